//! Output and exit status of QEMU, through semihosting (ARM IHI 0078). A real board without a
//! debugger must not call these functions: it would stop with a hard fault.

use core::fmt;

use cortex_m_semihosting::{hio, syscall};

/// SYS_EXIT_EXTENDED.
const EXIT_EXTENDED: usize = 0x20;

/// ADP_Stopped_ApplicationExit.
const APPLICATION_EXIT: usize = 0x2_0026;

/// Writes text to QEMU's standard output.
pub fn print(text: &str) {
    if let Ok(mut out) = hio::hstdout() {
        // If no host is connected, the text is lost.
        let _ = out.write_all(text.as_bytes());
    }
}

/// Writes formatted text to QEMU's standard output.
pub fn print_fmt(text: fmt::Arguments<'_>) {
    if let Ok(mut out) = hio::hstdout() {
        let _ = fmt::Write::write_fmt(&mut out, text);
    }
}

/// Writes a decimal number to QEMU's standard output, without the code of `core::fmt`.
pub fn print_number(number: u64) {
    let (mut digits, mut rest, mut at) = ([0; 20], number, 20);
    loop {
        at -= 1;
        #[allow(clippy::cast_possible_truncation)]
        let digit = b'0' + (rest % 10) as u8;
        digits[at] = digit;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if let Ok(mut out) = hio::hstdout() {
        let _ = out.write_all(&digits[at..]);
    }
}

/// Writes a formatted line to QEMU's standard output.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => { $crate::host::print_fmt(format_args!("{}\n", format_args!($($text)*))) };
}

/// Ends QEMU with this exit status.
pub fn exit(status: u8) -> ! {
    let block = [APPLICATION_EXIT, usize::from(status)];
    loop {
        // SAFETY: SYS_EXIT_EXTENDED reads the two words at the address. It returns only if no host
        // is connected.
        unsafe { syscall(EXIT_EXTENDED, &block) };
    }
}
