//! Sealing: a device signs all events of an epoch at once, and a reader verifies any part of them.
//!
//! This crate is for firmware that seals and for programs that verify. It needs no operating system
//! and no heap. On hosts, `moteseal-verify` reads whole streams with this crate, and
//! `moteseal-lanes` makes its hashing faster. [`moteseal_core::manual::sealing`] explains the
//! protocol.
//!
//! A device assigns a [`level`] to every event, adds the event to a [`Star`] or
//! [`Tree`](tree::Tree), and signs a [`Statement`] together with the root at the end of the epoch.
//! A receiver of any part of the epoch rebuilds the seal from that part and checks the signature.
//! The type states what has been checked: a [`Seal<Unverified>`](Seal) becomes a `Seal<Authentic>`
//! only through a signature, or through the hash chain from a signed successor. Only an authentic
//! sample returns events.
//!
//! The byte formats are in `spec/objects.md`. The algorithms are from Li et al., "Toward Secure and
//! Efficient Communication for the Internet of Things" (ToN 2019), sections IV and VI.
//!
//! # Example: seal three readings, then verify the sample of one level
//!
//! The directory below has one device. A real program uses an opened
//! [`Roster`](moteseal_core::roster::Roster).
//!
//! ```
//! use moteseal_core::cbor::Writer;
//! use moteseal_core::record::{Framing, Scheme};
//! use moteseal_core::roster::{Directory, NoKey};
//! use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
//! use moteseal_core::{DeviceId, Digest, EpochNumber, GroupId, SealIndex};
//! use moteseal_seal::engine::Scalar;
//! use moteseal_seal::follow::{Follower, Limits, Shape};
//! use moteseal_seal::level::SaltKey;
//! use moteseal_seal::stream::{Item, Open, PART_OVERHEAD, Selection};
//! use moteseal_seal::stream::{encode_part_head, encode_part_tail};
//! use moteseal_seal::{MAX_MESSAGE, Seal, Star, Statement, star};
//!
//! struct OneDevice(DeviceId, PublicKey);
//!
//! impl Directory for OneDevice {
//!     fn group(&self) -> GroupId {
//!         GroupId::of("home")
//!     }
//!     fn levels(&self, _: EpochNumber) -> u8 {
//!         8
//!     }
//!     fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
//!         (EpochNumber(0), None)
//!     }
//!     fn roster_digest(&self, version: u32) -> Option<Digest> {
//!         (version == 0).then_some(Digest([9; 32]))
//!     }
//!     fn with_key(
//!         &self,
//!         device: DeviceId,
//!         _: SealIndex,
//!         _: EpochNumber,
//!         use_key: &mut dyn FnMut(&PublicKey),
//!     ) -> Result<(), NoKey> {
//!         if device != self.0 {
//!             return Err(NoKey::Unknown);
//!         }
//!         use_key(&self.1);
//!         Ok(())
//!     }
//!     fn first_prev(&self, device: DeviceId) -> Option<Digest> {
//!         (device == self.0).then_some(Digest([5; 32]))
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let directory = OneDevice(DeviceId::of("home", "dev1"), key.public());
//! let (device, index) = (directory.0, SealIndex(0));
//! let framing = Framing::fixed(4).ok_or("no record has 0 bytes")?;
//!
//! // The device: add events of 4 bytes, end the epoch, sign.
//! let salt = SaltKey::new([2; 32]).salt(device, index);
//! let mut star = Star::<8>::new(device, index, &salt, framing);
//! let mut stored: [Vec<u8>; 8] = Default::default();
//! for event in [b"20.1", b"20.3", b"20.2"] {
//!     let level = star.push(event)?;
//!     stored[usize::from(level.0)].extend(event);
//! }
//! let (counters, blocks) = star.close();
//! let mut statement =
//!     Statement::new(Scheme::Star, directory.group(), Digest([9; 32]), device, 8);
//! (statement.prev, statement.epoch, statement.last_in_epoch) =
//!     (Digest([5; 32]), EpochNumber(0), true);
//! (statement.schema, statement.salt, statement.counters) = (Digest([3; 32]), salt, counters);
//! let seal = Seal::new(statement, star::root(&counters, &blocks), Algorithm::Ed25519);
//! let signature = key.signature(seal.message(&mut [0; MAX_MESSAGE]))?;
//!
//! // The store: serve the events of level 0, with the digests of all other levels.
//! let mut digests = [Digest::NULL; 32];
//! let count = star::star_evidence(seal.statement(), &blocks, 1, &mut digests);
//! let digests: Vec<u8> = digests[..count].iter().flat_map(|digest| digest.0).collect();
//! let mut bytes = [0; PART_OVERHEAD + 512];
//! let mut out = Writer::new(&mut bytes);
//! encode_part_head(&mut out, &seal, Selection::Levels(1), &digests, stored[0].len())?;
//! out.raw(&stored[0])?;
//! encode_part_tail(&mut out, Some(&signature))?;
//!
//! // The reader: rebuild the seal from the part, and verify it.
//! let mut follower = Follower::new(&directory, Scalar, Limits::default());
//! follower.open(&Open { device, roster_version: 0, prev: None, last: None }, |_| None)?;
//! let (Item::Part(part), _) = Item::decode(out.written())? else { return Err("no part".into()) };
//! let rebuilt = follower.part(&part, Some(&Shape::new(Digest([3; 32]), framing)))?;
//! let seal = rebuilt.seal.verify(&directory, part.signature.unwrap_or_default())?;
//! let sample = rebuilt.sample.proven(&seal).ok_or("another seal")?;
//! let mut read: Vec<u8> = Vec::new();
//! sample.for_each(&Scalar, |_seq, _level, event| read.extend(event));
//! assert_eq!(read, stored[0]);
//! assert_eq!(seal.statement().counters.total(), 3);
//! # Ok(())
//! # }
//! ```

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "alloc")]
extern crate alloc;

#[cfg(test)]
extern crate std;

mod answers;
pub mod device_session;
pub mod encryption;
pub mod engine;
pub mod follow;
pub mod history;
pub mod level;
mod members;
mod reading;
mod receipt;
pub mod sample;
mod seal;
pub mod star;
mod statement;
pub mod stream;
pub mod tree;
mod urgent;
pub mod wire;

pub use answers::{Answered, Answers, MAX_ANSWERED};
pub use follow::{Follower, Limits, PartError, Rebuilt};
pub use history::{Complete, History, Incomplete};
pub use reading::{
    MAX_REPRESENTATION, READING_OVERHEAD, ReadingFormat, SignedReading, SignedReadingError,
};
pub use receipt::ReceiptError;
pub use seal::{Authentic, MAX_MESSAGE, Position, Seal, SealError, Unverified};
pub use star::Star;
pub use statement::{Lost, Statement};
pub use urgent::{UrgentError, UrgentEvent};
