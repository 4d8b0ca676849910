//! Attacks of an untrusted cloud, gateway, coordinator or radio neighbour, as tables for tests, the
//! demo and the test vectors. No product crate links this crate.
//!
//! Use this crate to show that a verifier rejects an attack. An [`Answer`] is a cloud's answer
//! whose fields can all be changed. An unchanged answer encodes to the bytes from which it was
//! read. [`Holdings`] are the bundles that the cloud has; it can serve any selection of their
//! events with the devices' signatures. Each [`Lie`] of [`LIES`] contains a description, the error
//! names with which a verifier may reject it, and the error name that a verifier of the explaining
//! form then reports. The other tables are:
//!
//! - [`SCHEMA_2_LIES`]: lies about cells of schema version 2;
//! - [`EXPLAIN_LIES`]: lies about the explaining form itself;
//! - [`BUDGET_LIES`]: lies about manifests, and about the events that a group with a budget kept;
//! - [`coordinator::CHEATS`]: cheats of a coordinator with its epochs;
//! - [`aggregator::Malice`]: lies of a gateway about private sums;
//! - [`broadcaster::Assault`]: attacks of an outsider in radio range on a broadcast network.
//!
//! In this example a cloud inserts an item of an unknown kind into an answer, and the verifier
//! rejects it:
//!
//! ```
//! use moteseal_adversary::{Answer, Context, Holdings, Item, Question, find};
//! use moteseal_core::record::EpochNumber;
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_seal::follow::Limits;
//! use moteseal_seal::sample::{Choice, Rate};
//! use moteseal_verify::issue::FirstRoster;
//! use moteseal_verify::{ReadError, Roster, StreamReader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let device = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?.public();
//! let roster = FirstRoster {
//!     group: "orchard",
//!     epoch_ms: 900_000,
//!     levels: 12,
//!     budget: None,
//!     devices: &[("north", device)],
//! };
//! let roster = Roster::open(&roster.issue(&operator)?, &operator.public())?;
//!
//! let holdings = Holdings::default();
//! let question = Question {
//!     since: EpochNumber(0),
//!     until: None,
//!     choice: Choice::Rate(Rate::ALL),
//! };
//! let context = Context { holdings: &holdings, question, accomplice: None };
//! let mut answer = Answer { items: vec![Item::End] };
//! let lie = find("unknown-item").ok_or("no such lie")?;
//! assert!((lie.alter)(&mut answer, &context));
//!
//! let mut reader = StreamReader::new(&roster, Limits::default());
//! let rejected = reader.feed::<ReadError>(&answer.encode(), &mut |_| Ok(())).unwrap_err();
//! assert!(lie.expected.contains(&rejected.name()));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod aggregator;
pub mod broadcaster;
pub mod coordinator;
mod forge;
pub mod holdings;
mod honest;
pub mod lie;
pub mod lies;
pub mod query;
pub mod response;

pub use aggregator::{LyingAggregator, Malice};
pub use holdings::{Held, Holdings};
pub use lie::{Accomplice, COORDINATOR, Context, ExplainLie, Explains, Explanation, Lie, Schemes};
pub use lies::{BUDGET_LIES, EXPLAIN_LIES, LIES, SCHEMA_2_LIES, find};
pub use query::Question;
pub use response::{Answer, Item, Part, Select};
