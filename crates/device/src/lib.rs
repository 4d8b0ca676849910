//! The host side of a mote on Linux: importing recorded readings, sealing, the journal, the outbox,
//! replay and upload.
//!
//! This crate is for programs that seal readings on a host, for example a device's agent, an
//! importer or a simulator. [`Sealer`] turns readings into bundles and does no I/O. [`Recorder`]
//! and [`Outbox`] make readings and bundles durable, and [`push`] uploads bundles. [`Mote`] and
//! [`runner`] sample within a group's budget.
//!
//! # Example
//! Import a CSV text and seal it:
//!
//! ```
//! use std::path::Path;
//!
//! use moteseal_core::record::{EpochNumber, Scheme};
//! use moteseal_core::schema::Schema;
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_device::import::Clock;
//! use moteseal_device::{Chain, Import, Profile, Sealer};
//! use moteseal_seal::level::SaltKey;
//! use moteseal_verify::Roster;
//! use moteseal_verify::issue::FirstRoster;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let import = Import {
//!     columns: vec!["celsius:Cel:i16/10".to_owned()],
//!     opaque: None,
//!     clock: Clock::Column("time".to_owned()),
//!     keep_time: None,
//!     delimiter: None,
//!     skip_incomplete: false,
//!     sort: false,
//!     latest_ms: None,
//! };
//! let text = "time,celsius\n2026-01-01T00:00:00Z,21.5\n2026-01-01T00:00:01Z,21.7\n";
//! let recording = import.read(Path::new("home.csv"), text.as_bytes())?;
//!
//! // The operator's key signs the group's roster; the device's key signs its seals.
//! let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let device = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?;
//! let devices = [("sensor", device.public())];
//! let first =
//!     FirstRoster { group: "home", epoch_ms: 60_000, levels: 8, budget: None, devices: &devices };
//! let roster = Roster::open(&first.issue(&operator)?, &operator.public())?;
//!
//! let schema = Schema::decode(&recording.schema)?;
//! let profile = Profile::new(&roster, "sensor", Scheme::Star, &schema)?;
//! let chain = Chain::start(profile.certificate);
//! let mut sealer = Sealer::new(profile, device, SaltKey::new([3; 32]), chain);
//! for (unix_ms, record) in recording.iter() {
//!     sealer.push(EpochNumber(unix_ms / 60_000), record)?;
//! }
//! let bundle = sealer.close(true)?.ok_or("nothing was sealed")?;
//! assert_eq!(bundle.events(), 2);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod answerer;
pub mod answerers;
pub mod broadcast;
pub mod chain_state;
mod clock;
pub mod coap;
pub mod column_keys;
pub mod durable;
pub mod health_stream;
pub mod hosted;
pub mod import;
pub mod key_ring;
pub mod mote;
pub mod outbox;
pub mod published;
pub mod push;
pub mod recorder;
pub mod recording;
pub mod replay;
pub mod resources;
pub mod runner;
pub mod seal;
pub mod sensors;
mod warning_log;

pub use answerer::Answerer;
pub use answerers::Answerers;
pub use column_keys::ColumnKeys;
pub use durable::DurableMote;
pub use import::{Import, ImportError, Recording};
pub use mote::Mote;
pub use outbox::{Outbox, OutboxError};
pub use recorder::Recorder;
pub use recording::{Batch, BatchRefused, Sealed};
pub use seal::{Bundle, Chain, Covered, Profile, ProfileError, SealRefused, Sealer};
