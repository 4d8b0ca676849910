//! A mote's host side on Linux: import of recorded readings, sealing, the journal, the outbox, replay and push.
//!
//! [`Sealer`] turns readings into bundles and does no I/O.

#![forbid(unsafe_code)]

pub mod answerer;
pub mod broadcast;
mod clock;
pub mod durable;
pub mod import;
pub mod mote;
pub mod outbox;
pub mod push;
pub mod recorder;
pub mod recording;
pub mod replay;
pub mod runner;
pub mod seal;

pub use answerer::Answerer;
pub use durable::DurableMote;
pub use import::{Import, ImportError, Recording};
pub use mote::Mote;
pub use outbox::{Outbox, OutboxError};
pub use recorder::Recorder;
pub use recording::{Batch, BatchRefused, Sealed};
pub use seal::{Bundle, Chain, Profile, SealRefused, Sealer};
