//! All that a mote runs and all that a verifier needs, without an operating system, a heap or `unsafe`.
//!
//! A device assigns every event a level ([`level`]), folds it into a running [`seal::Star`] or [`Tree`](seal::tree::Tree), and signs
//! once at the end of the epoch. Whoever receives any part of the epoch rebuilds the seal from what it got and checks the
//! one signature. What a check has proven is a type: [`Seal<Unverified>`](seal::Seal) becomes `Seal<Authentic>` only by a
//! signature or by the hash chain of a signed successor, and events come out of an authentic sample only.
//!
//! The byte formats are those of `spec/formats.md`; the algorithms are of Li et al., "Toward Secure and Efficient
//! Communication for the Internet of Things" (ToN 2019), sections IV and VI.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

/// An error enum whose variants' names are part of the formats (spec/errors.md), each with the sentence that people read.
macro_rules! named_errors {
    ($(#[$doc:meta])* $error:ident { $($(#[$variant_doc:meta])* $variant:ident => $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $error {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $error {
            /// The error's name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }
        }

        impl core::fmt::Display for $error {
            /// The name, and what is wrong.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => concat!(stringify!($variant), ": ", $text),)+
                })
            }
        }

        impl core::error::Error for $error {}
    };
}

pub mod cast;
pub mod digest;
pub mod engine;
pub mod identity;
pub mod level;
pub mod provision;
pub mod record;
pub mod roster;
pub mod sample;
pub mod schema;
pub mod seal;
pub mod signature;
pub mod sum;
pub mod wire;

pub use digest::Digest;
pub use record::{DeviceId, EpochNumber, GroupId, Level, Round, SealIndex, Sequence};
pub use seal::{Authentic, Seal, Unverified};
