//! The C library for firmware: it makes seals, encrypts columns of their events, encrypts values for
//! private sums, and receives broadcasts (see bindings/c/README.md).
//!
//! Every function converts its pointers to references (module [`boundary`]), calls a protocol
//! crate, and returns an error code. There is no heap, no operating system, no clock, no randomness
//! and no global state: the caller owns all memory and declares it with the opaque types of
//! `include/moteseal.h`. `moteseal-header` generates that header from these sources. No function
//! panics: every argument that could cause a panic is rejected first. Gateways and verifiers have
//! no C binding.

#![no_std]

mod boundary;
mod broadcast;
mod chain_position;
mod cipher;
mod column_keys;
mod device;
mod error;
mod frame;
mod grouped_star;
mod key;
mod layout;
mod seal;
mod sender;
mod star;
mod sum;
mod tree;
mod urgent;

pub use broadcast::{moteseal_broadcast, moteseal_head_info, moteseal_taken};
pub use chain_position::moteseal_chain;
pub use cipher::moteseal_cipher;
pub use column_keys::moteseal_column_keys;
pub use device::moteseal_device;
pub use frame::moteseal_frame;
pub use grouped_star::moteseal_grouped_star;
pub use key::moteseal_signing_key;
pub use seal::{moteseal_answers, moteseal_seal, moteseal_seal_info};
pub use sender::{moteseal_base, moteseal_sender, moteseal_single};
pub use star::moteseal_star;
pub use sum::{moteseal_guard, moteseal_permit, moteseal_sum_key, moteseal_sum_source};
pub use tree::moteseal_tree;

/// No function should panic. If one does, this handler stops the processor with a trap, because the
/// library's state may be incomplete.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        #[cfg(target_arch = "arm")]
        // SAFETY: an undefined instruction reads and writes no memory; the processor calls the
        // mote's fault handler.
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
