//! Board support for two Cortex-M3 boards that QEMU emulates: `lm3s6965evb` and `mps2-an385`, each
//! selected by a feature.
//!
//! The crate contains start-up code (cortex-m-rt), a serial line, a millisecond clock, a page of
//! simulated flash that survives resets, slots for firmware and a watchdog (mps2-an385 only), access to the provisioning blob, output through
//! semihosting, and measurements of instructions and stack. All `unsafe` code of the firmware is in
//! this crate. A program calls [`Board::take`] once and then owns the parts of the board.

#![no_std]

#[cfg(all(feature = "lm3s6965evb", feature = "mps2-an385"))]
compile_error!("choose one board: the feature lm3s6965evb or mps2-an385");
#[cfg(all(feature = "lm3s6965evb", feature = "slots"))]
compile_error!("the board lm3s6965evb has no memory for slots: remove the feature slots");
#[cfg(not(any(feature = "lm3s6965evb", feature = "mps2-an385")))]
compile_error!("choose a board: the feature lm3s6965evb or mps2-an385");

pub mod clock;
pub mod flash;
pub mod host;
#[cfg(feature = "mps2-an385")]
pub mod instructions;
mod panic;
pub mod stack;
pub mod uart;
#[cfg(feature = "slots")]
pub mod watchdog;

pub use cortex_m_rt::entry;

use clock::Clock;
use flash::Flash;
#[cfg(feature = "mps2-an385")]
use instructions::Instructions;
use uart::Uart;
#[cfg(feature = "slots")]
use watchdog::Watchdog;

/// The vectors of the interrupts, of which the boot stage uses none. The start-up code requires at
/// least one.
#[cfg(feature = "boot")]
#[doc(hidden)]
#[unsafe(link_section = ".vector_table.interrupts")]
#[unsafe(no_mangle)]
pub static __INTERRUPTS: [fn() -> !; 1] = [reset];

/// Clock cycles of the processor per millisecond, at the speed at which QEMU starts the board.
#[cfg(feature = "mps2-an385")]
pub(crate) const CYCLES_PER_MS: u32 = 25_000;
/// Clock cycles of the processor per millisecond, at the speed at which QEMU starts the board.
#[cfg(not(feature = "mps2-an385"))]
pub(crate) const CYCLES_PER_MS: u32 = 12_500;

/// The parts of the board. At most one value of this type exists.
pub struct Board {
    /// The serial line, not yet started.
    pub uart: Uart,
    /// The clock, not yet started.
    pub clock: Clock,
    /// The flash page.
    pub flash: Flash,
    /// The slots for firmware.
    #[cfg(feature = "slots")]
    pub slots: Flash,
    /// The watchdog.
    #[cfg(feature = "slots")]
    pub watchdog: Watchdog,
    /// The counter of instructions.
    #[cfg(feature = "mps2-an385")]
    pub instructions: Instructions,
    /// Two pages of flash for the keys of encrypted columns. The other board has none, because QEMU does
    /// not emulate writing to its region for provisioning, where the keys must be erased.
    #[cfg(feature = "mps2-an385")]
    pub keys: Flash,
    /// The region of flash for provisioning. The provisioning blob is at its start, and the keys of
    /// encrypted columns may follow it.
    pub provision: Flash,
}

impl Board {
    /// Returns the board at the first call and `None` at every later call.
    #[must_use]
    pub fn take() -> Option<Self> {
        let core = cortex_m::Peripherals::take()?;
        Some(Self {
            uart: Uart::new(),
            clock: Clock::new(core.SYST),
            flash: Flash::page(),
            #[cfg(feature = "slots")]
            slots: Flash::slots(),
            #[cfg(feature = "slots")]
            watchdog: Watchdog::new(),
            #[cfg(feature = "mps2-an385")]
            instructions: Instructions::new(),
            #[cfg(feature = "mps2-an385")]
            keys: Flash::keys(),
            provision: Flash::provision(),
        })
    }
}

/// Resets the board, as its reset button does. RAM keeps its content, except for the program's
/// static memory, which the start-up code initialises again.
pub fn reset() -> ! {
    cortex_m::peripheral::SCB::sys_reset()
}

/// Ends this program and starts the image at this offset of the slots, as a reset would start it.
/// Returns only if there is no image: its second word is not the address of a start in the region.
/// The program must not have started the clock.
#[cfg(feature = "slots")]
pub fn start_image(slots: &Flash, offset: usize) {
    let image = slots.bytes().get(offset..).unwrap_or_default();
    let Some([_, start]) = image.as_chunks::<4>().0.first_chunk() else { return };
    let start = u32::from_le_bytes(*start) as usize;
    if !image.as_ptr_range().contains(&(start as *const u8)) {
        return;
    }
    // SAFETY: the image is a program that is linked for this address; from here on, it owns the
    // board, and nothing of this program runs again. No interrupt is enabled.
    unsafe {
        (*cortex_m::peripheral::SCB::PTR).vtor.write(image.as_ptr().addr() as u32);
        cortex_m::asm::bootload(image.as_ptr().cast());
    }
}
