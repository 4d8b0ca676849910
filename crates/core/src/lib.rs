//! What all of Moteseal's protocols share, without an operating system, a heap or `unsafe`: identifiers, digests, signatures,
//! identities, rosters, schemas, deterministic CBOR and COSE, and the keys of links.
//!
//! The protocols are crates of their own: `moteseal-seal`, `moteseal-sum`, `moteseal-broadcast` and `moteseal-serial`.
//! The byte formats are those of `spec/formats.md`.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

/// An error enum whose variants' names are part of the formats (spec/errors.md), each with the sentence that people read.
#[macro_export]
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

pub mod cbor;
pub mod cose;
pub mod digest;
pub mod identity;
pub mod link;
pub mod provision;
pub mod record;
pub mod roster;
pub mod schema;
pub mod signature;
pub mod siphash;

pub use digest::Digest;
pub use record::{DeviceId, EpochNumber, GroupId, Level, Round, SealIndex, Sequence};
