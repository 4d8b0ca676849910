//! What an untrusted cloud might do to an honest answer: a table of lies, for tests and the demo. No product crate links this.
//!
//! An [`Answer`] is an answer's items with every field open to change; unchanged it encodes to the bytes it was read from. What
//! the cloud holds, and so can serve in any selection with all signatures its devices ever gave it, is [`Holdings`]. Each [`Lie`]
//! of [`LIES`] says what it does, by which names a verifier may refuse it, and what the explaining form then shows. Lies about the
//! explaining form itself are [`EXPLAIN_LIES`]; those about what a group's budget left are [`BUDGET_LIES`]. What an untrusted
//! coordinator might do to its epochs is [`coordinator::CHEATS`], what an untrusted gateway might do to private sums,
//! [`aggregator::Malice`], and what an attacker in earshot might do to a broadcast network, [`broadcaster::Assault`].

#![forbid(unsafe_code)]

pub mod aggregator;
pub mod answer;
pub mod broadcaster;
pub mod coordinator;
mod forge;
pub mod holdings;
mod honest;
pub mod lie;
pub mod lies;
pub mod question;

pub use aggregator::{LyingAggregator, Malice};
pub use answer::{Answer, Item, Part, Select};
pub use holdings::{Held, Holdings};
pub use lie::{Accomplice, COORDINATOR, Context, ExplainLie, Explains, Explanation, Lie, Schemes};
pub use lies::{BUDGET_LIES, EXPLAIN_LIES, LIES, find};
pub use question::Question;
