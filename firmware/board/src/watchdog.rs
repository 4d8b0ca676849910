//! The watchdog: resets the board if the program does not feed it in time. The CMSDK watchdog of the
//! MPS2 (ARM DDI 0479, section 4.5) counts down twice before it resets.

use core::ptr;

use crate::CYCLES_PER_MS;

const LOAD: *mut u32 = 0x4000_8000 as *mut u32;
const CONTROL: *mut u32 = 0x4000_8008 as *mut u32;
const CLEAR: *mut u32 = 0x4000_800c as *mut u32;

/// Counts down, and resets the board at the second end.
const RUN: u32 = 0b11;

/// The watchdog.
pub struct Watchdog(());

impl Watchdog {
    pub(crate) const fn new() -> Self {
        Self(())
    }

    /// Starts the watchdog: it resets the board if it is not fed for `seconds`, which must be 1 to
    /// 300. It cannot be stopped.
    pub fn start(&mut self, seconds: u32) {
        // `CYCLES_PER_MS * 1000 / 2` cycles are half of a second.
        Self::write(&[(LOAD, seconds * (CYCLES_PER_MS * 500)), (CONTROL, RUN)]);
    }

    /// Starts the time again. Does nothing if the watchdog was not started.
    pub fn feed(&mut self) {
        Self::write(&[(CLEAR, 1)]);
    }

    fn write(writes: &[(*mut u32, u32)]) {
        for &(register, value) in writes {
            // SAFETY: these are registers of the board's watchdog, and only the single `Watchdog`
            // value accesses them.
            unsafe { ptr::write_volatile(register, value) };
        }
    }
}
