//! Counts exactly how many instructions a function executes in QEMU with `-icount shift=8`. This
//! works only on the board `mps2-an385`, because QEMU's model of the LM3S6965's timers cannot be
//! read.
//!
//! With `-icount shift=8`, each instruction takes 256 ns of QEMU's time. A timer of 25 MHz counts
//! 6.4 ticks in that time, so the number of ticks determines the number of instructions. The result
//! is not a number of clock cycles, and does not measure time or energy.

use core::hint::black_box;
use core::ptr;
use core::sync::atomic::{Ordering, compiler_fence};

// The registers of CMSDK timer 0 (ARM DDI 0479, section 4.1), which counts down.
const CONTROL: *mut u32 = 0x4000_0000 as *mut u32;
const VALUE: *mut u32 = 0x4000_0004 as *mut u32;
const RELOAD: *mut u32 = 0x4000_0008 as *mut u32;

/// Nanoseconds of QEMU's time for each instruction: 2 to the power of `-icount`'s shift.
const INSTRUCTION_NS: u64 = 1 << 8;
/// Nanoseconds of QEMU's time for each tick of the timer.
const TICK_NS: u64 = 40;

/// The counter of instructions.
pub struct Instructions(());

impl Instructions {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Runs the work. Returns the number of executed instructions, including the call, and the
    /// result of the work. The limit is 670 million instructions.
    pub fn of<R>(&mut self, work: impl FnOnce() -> R) -> (u64, R) {
        for (register, value) in [(CONTROL, 0), (RELOAD, u32::MAX), (VALUE, u32::MAX), (CONTROL, 1)]
        {
            // SAFETY: these are registers of the board's first timer, and only the single
            // `Instructions` value accesses them.
            unsafe { ptr::write_volatile(register, value) };
        }
        let nothing = timed(|| ()).0;
        let (ticks, result) = timed(work);
        (instructions(ticks).saturating_sub(instructions(nothing)), result)
    }
}

fn instructions(ticks: u32) -> u64 {
    (u64::from(ticks) * TICK_NS + INSTRUCTION_NS / 2) / INSTRUCTION_NS
}

#[inline(never)]
fn timed<R>(work: impl FnOnce() -> R) -> (u32, R) {
    let start = now();
    compiler_fence(Ordering::SeqCst);
    // `black_box` forces the compiler to compute the result before it reads the timer again.
    let result = black_box(call(work));
    compiler_fence(Ordering::SeqCst);
    (start.wrapping_sub(now()), result)
}

/// Calls the work. This function is never inlined, so that the compiler cannot move parts of the
/// work before the first read of the timer.
#[inline(never)]
fn call<R>(work: impl FnOnce() -> R) -> R {
    work()
}

fn now() -> u32 {
    // SAFETY: this register may be read at any time.
    unsafe { ptr::read_volatile(VALUE) }
}
