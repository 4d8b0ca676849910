//! The boot stage (spec/update.md, section 4): the program with which the board starts. It installs
//! an image if the application has asked for it, or falls back if the new image was started once and
//! did not confirm itself. Then it starts the image in the run slot. It starts the watchdog before an
//! image on trial, so that an image that hangs also falls back.
//!
//! It has no keys and checks no signature: the application has checked the manifest and the digest of
//! the image before it asked.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use moteseal_board::flash::SLOTS_SECTOR;
#[cfg(not(feature = "report"))]
use moteseal_board::reset;
use moteseal_board::{Board, entry, start_image};
use moteseal_mote::board_flash::Paged;
use moteseal_mote::slots::Slots;

/// The time in which an image on trial must begin to feed the watchdog, in seconds.
const WATCHDOG_SECONDS: u32 = 60;

#[entry]
fn main() -> ! {
    if let Some(mut board) = Board::take() {
        let mut slots = Slots::new(Paged::<SLOTS_SECTOR>(board.slots));
        if let Ok(is_trial) = slots.boot() {
            if is_trial {
                board.watchdog.start(WATCHDOG_SECONDS);
            }
            let offset = slots.run_slot();
            start_image(&slots.into_flash().0, offset);
        }
    }
    // The flash failed, or the run slot has no image.
    #[cfg(feature = "report")]
    {
        moteseal_board::println!("boot: no image");
        moteseal_board::host::exit(4)
    }
    #[cfg(not(feature = "report"))]
    reset()
}
