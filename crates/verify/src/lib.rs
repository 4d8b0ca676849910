//! Verification on hosts: rosters with an index and prepared keys, and streams that are verified
//! run by run. This crate does no I/O.
//!
//! Clients, clouds and gateways use it to receive sealed readings. Uploads, responses, bundles and
//! proofs are all streams of the same items (`spec/answers.md`, section 1), and [`StreamReader`]
//! reads them all. It only returns parts that a verified signature covers ([`Proven`]). The crate
//! also issues rosters ([`issue`]), writes items ([`write`]), and reports why data fails
//! verification ([`explain`]).
//!
//! # Example: verify a stream
//!
//! ```
//! use moteseal_core::record::{Framing, Scheme};
//! use moteseal_core::roster::Directory as _;
//! use moteseal_core::schema::Schema;
//! use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
//! use moteseal_core::{DeviceId, EpochNumber, SealIndex};
//! use moteseal_seal::engine::Scalar;
//! use moteseal_seal::follow::Limits;
//! use moteseal_seal::level::SaltKey;
//! use moteseal_seal::stream::{Open, Selection};
//! use moteseal_seal::{Seal, Star, Statement, star};
//! use moteseal_verify::issue::FirstRoster;
//! use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The operator issues the roster of a group with one device.
//! let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let key = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?;
//! let draft = FirstRoster {
//!     group: "home",
//!     epoch_ms: 3_600_000,
//!     levels: 8,
//!     budget: None,
//!     devices: &[("dev1", key.public())],
//! };
//! let roster = Roster::open(&draft.issue(&operator)?, &operator.public())?;
//!
//! // The device seals one event (moteseal-device does this for programs).
//! let (device, index) = (DeviceId::of("home", "dev1"), SealIndex(0));
//! let salt = SaltKey::new([3; 32]).salt(device, index);
//! let mut star = Star::<8>::new(device, index, &salt, Framing::Prefixed);
//! star.push(b"20.1")?;
//! let (counters, blocks) = star.close();
//! let mut statement =
//!     Statement::new(Scheme::Star, roster.group(), roster.digest(), device, 8);
//! statement.prev = roster.first_prev(device).ok_or("the roster has no such device")?;
//! statement.last_in_epoch = true;
//! statement.schema = Schema::OPAQUE.digest();
//! (statement.salt, statement.counters) = (salt, counters);
//! let seal = Seal::new(statement, star::root(&counters, &blocks), Algorithm::Ed25519);
//! let signature = key.signature(seal.message(&mut [0; moteseal_seal::MAX_MESSAGE]))?;
//!
//! // Its bundle: schema, device, and one part with all events, each after its length.
//! let mut stream = Vec::new();
//! write::schema(&mut stream, Schema::OPAQUE.as_bytes());
//! write::open(&mut stream, &Open { device, roster_version: 0, prev: None, last: None });
//! let all = Selection::Levels(seal.statement().surviving());
//! write::part(&mut stream, &seal, all, &[], b"\0\x0420.1", Some(&signature));
//!
//! // The reader receives the bytes in pieces of any size.
//! let mut reader = StreamReader::new(&roster, Limits::default());
//! let mut events = Vec::new();
//! let mut visit = |event: Event<'_>| {
//!     if let Event::Proven(part) = event {
//!         part.sample.for_each(&Scalar, |_seq, _level, event| events.push(event.to_vec()));
//!     }
//!     Ok::<(), ReadError>(())
//! };
//! reader.feed(&stream, &mut visit)?;
//! reader.finish(&mut visit)?;
//! assert_eq!(events, [b"20.1"]);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod aggregation;
mod calendar;
mod error;
mod event;
pub mod explain;
pub mod issue;
pub mod manifest;
mod pipeline;
pub mod reader;
pub mod reading;
pub mod receipt;
pub mod redaction;
pub mod roster;
pub mod sanitised;
pub mod succession;
pub mod urgent;
pub mod write;

pub use aggregation::{AggregationTree, SumGroup, TreeError};
pub use calendar::Calendar;
pub use error::{ReadError, ReadErrorKind};
pub use event::{Event, Proven, SchemaEntry, Suspect, kept_from};
pub use explain::{Explained, Finding, RunFinding, explain_run};
pub use manifest::ManifestError;
pub use reader::{Bundles, StreamReader};
pub use roster::{Device, Roster, Sanitiser, SanitiserRight};
pub use sanitised::{Sanitised, SanitisedError};
pub use succession::SuccessionError;
pub use urgent::{Urgent, UrgentRefused};
