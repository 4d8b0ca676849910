//! What a mote runs, for C: seals, the source of private sums, the receiver of broadcasts (bindings/c/README.md).
//!
//! Thin: every function here turns pointers into references ([`memory`]), calls `moteseal-core`, and says in a number how it went. There
//! is no heap, no operating system, no clock, no randomness and no global state: all memory is the caller's, in the opaque types of
//! `include/moteseal.h`, which `moteseal-header` writes from these sources. Nothing panics: what could is refused before. What a gateway
//! or a verifier does is not here.

#![no_std]

mod broadcast;
mod chain;
mod device;
mod error;
mod frame;
mod key;
mod layout;
mod memory;
mod seal;
mod sender;
mod star;
mod sum;
mod tree;
mod urgent;

pub use broadcast::{moteseal_broadcast, moteseal_head_info, moteseal_taken};
pub use chain::moteseal_chain;
pub use device::moteseal_device;
pub use frame::moteseal_frame;
pub use key::moteseal_signing_key;
pub use seal::{moteseal_answers, moteseal_seal, moteseal_seal_info};
pub use sender::{moteseal_base, moteseal_sender, moteseal_single};
pub use star::moteseal_star;
pub use sum::{moteseal_guard, moteseal_permit, moteseal_sum_key, moteseal_sum_source};
pub use tree::moteseal_tree;

/// Nothing here panics; if it does all the same, the processor traps rather than go on with half a state.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        #[cfg(target_arch = "arm")]
        // SAFETY: an undefined instruction reads and writes nothing; the mote's fault handler takes over.
        unsafe {
            core::arch::asm!("udf #0", options(nomem, nostack));
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!("ud2", options(nomem, nostack));
        }
        core::hint::spin_loop();
    }
}
