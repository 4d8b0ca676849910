//! A clock that counts the milliseconds since it was started, driven by the SysTick timer. With
//! QEMU's option `-icount`, the time depends only on the number of executed instructions.

use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m_rt::exception;

use crate::CYCLES_PER_MS;

// The count is in two words, because the processor has no 64-bit atomics.
static LOW: AtomicU32 = AtomicU32::new(0);
static HIGH: AtomicU32 = AtomicU32::new(0);

/// A clock that counts milliseconds.
pub struct Clock(SYST);

impl Clock {
    pub(crate) const fn new(syst: SYST) -> Self {
        Self(syst)
    }

    /// Starts the clock at 0. From then on, an interrupt handler runs every millisecond, on the
    /// program's stack.
    pub fn start(&mut self) {
        self.0.set_clock_source(SystClkSource::Core);
        self.0.set_reload(CYCLES_PER_MS - 1);
        self.0.clear_current();
        self.0.enable_counter();
        self.0.enable_interrupt();
    }

    /// Returns the number of milliseconds since the start.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        loop {
            let (high, low) = (HIGH.load(Ordering::Acquire), LOW.load(Ordering::Acquire));
            // The interrupt handler may change both words between the two reads: repeat until HIGH
            // has not changed.
            if HIGH.load(Ordering::Acquire) == high {
                return u64::from(high) << 32 | u64::from(low);
            }
        }
    }
}

#[exception]
fn SysTick() {
    let next = LOW.load(Ordering::Relaxed).wrapping_add(1);
    LOW.store(next, Ordering::Release);
    if next == 0 {
        HIGH.store(HIGH.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }
}
