//! Implements the papers' schemes as published, and the schemes with which the papers compare them.
//! No product crate links this crate.
//!
//! The crate is for researchers who want to compare costs and weaknesses. Every sealing scheme
//! implements the same interface, [`Scheme`]: a device seals an epoch, a cloud serves a selection
//! of it, and an application verifies and opens the selection. The product's seals also implement
//! this interface ([`EpochSeal`]).
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
//! // With one changed byte, nothing opens.
//! let last = served.len() - 1;
//! served[last] ^= 1;
//! assert!(PaperStar.open(&context, &key.public(), &served, &Ask::All).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`SignEach`] | Li et al. 2019, section IV.A | detect a missing event or a biased selection; it sends one signature for each event |
//! | [`Concatenate`] | section IV.A | prove fewer events than all |
//! | [`OfflineChain`] | Gennaro and Rohatgi 2001, section 3 | send before the end of the epoch; omit an event before the last queried one |
//! | [`OnlineChain`] | Gennaro and Rohatgi 2001, section 4 | omit an event before the last queried one; it sends 2 KiB of signature for each event |
//! | [`PaperStar`] | Li et al., section IV.C | sample equal readings independently; prove the position of a row in the epoch |
//! | [`PaperTree`] | Li et al., section IV.B | prove that a level is complete; distinguish an event from an inner node |
//! | [`paper_seal`] | sections IV, VII and VIII: both schemes over MD5, SHA-1 or SHA-256, with any number of stored digests | same as [`PaperStar`] and [`PaperTree`] |
//!
//! Schemes of secure in-network sums that Papadopoulos et al. (2011) compare:
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`cmt`] | Castelluccia et al. 2005 | detect that a sum was altered |
//! | [`sies_paper`] | Papadopoulos et al. 2011, section IV | stay secure after a second answer in one epoch or after one leaked key; detect a source that is falsely reported as silent |
//! | [`secoa`] | Nath et al. 2009 | give an exact sum; keep the sum secret; **patented in the United States, for comparison only** |
//!
//! Schemes of authenticated broadcast that Liu et al. (2012) compare:
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`sigs`] | Liu et al. 2012, section V | distinguish an old message from a new one; be affordable for a mote, which has to check a signature for each message |
//! | [`hmac_broadcast`] | section V | stay secure if one node is compromised |
//! | [`paper_broadcast`] | section III | distinguish an old chain from a new one; reject forged fragments; mark the end of a message; limit the work that forged frames cause |
//! | [`tesla`] | Perrig et al. 2002 (SPINS), section 5; RFC 4082 | verify a message before its key is disclosed; work without a clock; prove a message to third parties; be relayed or repaired by other nodes |
//! | [`secp160r1`] | SEC 2 version 1 | provide more than 80 bits of security; **variable time, for comparison only** |
//!
//! Signatures and handshakes that the RERUM project measured on motes (deliverable D5.3, 2016):
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`json_signature`] | D5.3, sections 2.1.4.5 and 2.2 | detect a missing or an old reading; it sends one signature for each reading |
//! | [`secp192r1`] | SEC 2 version 1, section 2.5.2; RFC 6979 | provide more than 96 bits of security; **variable time, for comparison only** |
//! | [`dtls_psk`] | D5.3, section 2.5; RFC 6347, RFC 6655 | keep old records secret after the key leaks; continue after a lost or fragmented message |
//!
//! Signatures of messages of which others leave parts out (the same deliverable, sections 2.3 and 2.4):
//!
//! | scheme | source | what it cannot do |
//! |---|---|---|
//! | [`redactable::ps14`] | Pöhls and Samelin 2014 | be affordable for a mote; keep the order or the names of parts; hide that two messages are from one original |
//! | [`redactable::bps12`] | Brzuska, Pöhls and Samelin 2012 | remove a block; limit what the sanitiser writes; hide that the sanitiser signed |
//! | [`redactable::mpps14_hashed`] | de Meer et al. 2014 | hide where a subtree is absent; remove an inner node and keep what is below it |
//! | [`redactable::mpps14_accumulated`] | the same | be affordable for a mote; allow moves that the signer did not foresee |
//! | [`redactable::sd_jwt`] | RFC 9901 | hide how many claims there are; prevent that a presentation is copied |
//!
//! Without the feature `std`, the crate has only [`dtls_psk`], which runs on a mote.
//!
//! These implementations are for comparison only and are not hardened for use. They contain only
//! what a comparison needs: there are no seals, chains of seals, rosters or schemas. Signed
//! messages contain tags that no product accepts.

#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "std")]
pub mod cmt;
#[cfg(feature = "std")]
mod concatenate;
#[cfg(feature = "std")]
pub mod content_levels;
pub mod dtls_psk;
#[cfg(feature = "std")]
mod epoch_seal;
#[cfg(feature = "std")]
pub mod hash_chaining;
#[cfg(feature = "std")]
pub mod hmac_broadcast;
#[cfg(feature = "std")]
pub mod json_signature;
#[cfg(feature = "std")]
pub mod paper_broadcast;
#[cfg(feature = "std")]
pub mod paper_seal;
#[cfg(feature = "std")]
mod paper_star;
#[cfg(feature = "std")]
mod paper_tree;
#[cfg(feature = "std")]
pub mod prf;
#[cfg(feature = "std")]
pub mod redactable;
#[cfg(feature = "std")]
mod scheme;
#[cfg(feature = "std")]
pub mod secoa;
#[cfg(feature = "std")]
pub mod secp160r1;
#[cfg(feature = "std")]
pub mod secp192r1;
#[cfg(feature = "std")]
pub mod sies_paper;
#[cfg(feature = "std")]
mod sign_each;
#[cfg(feature = "std")]
pub mod sigs;
#[cfg(feature = "std")]
pub mod tesla;
#[cfg(feature = "std")]
mod weierstrass;
#[cfg(feature = "std")]
mod wire;

#[cfg(feature = "std")]
pub use concatenate::Concatenate;
#[cfg(feature = "std")]
pub use epoch_seal::EpochSeal;
#[cfg(feature = "std")]
pub use hash_chaining::{OfflineChain, OnlineChain};
#[cfg(feature = "std")]
pub use paper_star::{PaperStar, RunningStar};
#[cfg(feature = "std")]
pub use paper_tree::PaperTree;
#[cfg(feature = "std")]
pub use scheme::{Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
#[cfg(feature = "std")]
pub use sign_each::SignEach;
