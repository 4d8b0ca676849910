//! The schemes that the papers compare with, and the papers' own proposals as published. No product
//! crate links this crate.
//!
//! For researchers who want to compare costs and weaknesses. Every sealing scheme is behind one
//! interface, [`Scheme`]: a device seals an epoch, a cloud serves a selection of it, and an
//! application opens what was served. The product's own seals are behind it too ([`EpochSeal`]).
//!
//! The paper's star seals four events, and the application verifies all of them:
//!
//! ```
//! use moteseal_core::record::{DeviceId, EpochNumber, Framing};
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_research::{Ask, Context, PaperStar, Scheme};
//! use moteseal_seal::level::Salt;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = SecretKey::from_seed(Algorithm::Ed25519, &[4; 32])?;
//! let context = Context {
//!     device: DeviceId([7; 8]),
//!     epoch: EpochNumber(3),
//!     framing: Framing::Prefixed,
//!     salt: Salt([5; 16]),
//! };
//! let events: Vec<Vec<u8>> = ["20.1", "20.3", "20.2", "35.0"].map(Into::into).to_vec();
//!
//! let sealed = PaperStar.seal(&context, &key, &events)?;
//! let mut served = PaperStar.serve(&context, &sealed, &Ask::All).map_err(|_| "unsupported")?;
//! let rows = PaperStar.open(&context, &key.public(), &served, &Ask::All).map_err(|_| "rejected")?;
//! assert_eq!(rows.len(), 4);
//!
//! // One changed byte, and nothing opens.
//! let last = served.len() - 1;
//! served[last] ^= 1;
//! assert!(PaperStar.open(&context, &key.public(), &served, &Ask::All).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`SignEach`] | Li et al. 2019, section IV.A | show that an event is missing, or that a choice was fair; one signature for each event |
//! | [`Concatenate`] | section IV.A | prove less than all |
//! | [`OfflineChain`] | Gennaro and Rohatgi 2001, section 3 | start sending before the end; leave out an event before the last wanted |
//! | [`OnlineChain`] | Gennaro and Rohatgi 2001, section 4 | leave out an event before the last wanted; 2 KiB of signature for each event |
//! | [`PaperStar`] | Li et al., section IV.C | sample equal readings independently; say which event of the epoch a row is |
//! | [`PaperTree`] | Li et al., section IV.B | show that a level is whole; tell an event from an inner node |
//! | [`paper_seal`] | sections IV, VII and VIII: the same over MD5, SHA-1 or SHA-256, with any number of stored digests | as the two above |
//!
//! Schemes of secure in-network sums, as Papadopoulos et al. 2011 compare them:
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`cmt`] | Castelluccia et al. 2005 | notice that a sum was altered |
//! | [`sies_paper`] | Papadopoulos et al. 2011, section IV | survive a second answer in one epoch, or one leaked key; notice a source that is claimed silent |
//! | [`secoa`] | Nath et al. 2009 | give an exact sum, or a secret one; **patented in the United States, for comparison only** |
//!
//! Schemes of authenticated broadcast, as Liu et al. 2012 compare them:
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`sigs`] | Liu et al. 2012, section V | tell an old message from a new one; be affordable for a mote, which checks a signature for each message |
//! | [`hmac_broadcast`] | section V | survive one compromised node |
//! | [`paper_broadcast`] | section III | tell an old chain from a new one; sort out forged fragments; say where a message ends; bound what frames of unknown origin make it do |
//! | [`secp160r1`] | SEC 2 version 1 | more than 80 bits of security; **variable time, for comparison only** |
//!
//! None of this is hardened for use. There are no seals, chains of seals, rosters or schemas here, only
//! what a comparison needs, and messages carry tags that no product accepts.

#![forbid(unsafe_code)]

pub mod chain;
pub mod cmt;
mod concatenate;
pub mod content;
mod each;
mod epoch_seal;
pub mod hmac_broadcast;
pub mod paper_broadcast;
pub mod paper_seal;
mod paper_star;
mod paper_tree;
pub mod prf;
mod scheme;
pub mod secoa;
pub mod secp160r1;
pub mod sies_paper;
pub mod sigs;
mod wire;

pub use chain::{OfflineChain, OnlineChain};
pub use concatenate::Concatenate;
pub use each::SignEach;
pub use epoch_seal::EpochSeal;
pub use paper_star::{PaperStar, RunningStar};
pub use paper_tree::PaperTree;
pub use scheme::{Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
