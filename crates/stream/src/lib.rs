//! Uploads through a NATS JetStream: intake publishes verified batches durably, and workers write them
//! to a store.
//!
//! ```text
//!  cloud (intake) ── batch ──> stream, replicated and synced ── batch ──> worker ──> store ──> cloud (serve)
//!       <── acknowledgement ──┘                    <── acknowledgement ──┘ durable
//! ```
//!
//! - [`Stream`] is a connection to the servers. [`Stream::init`] creates the streams and the consumer;
//!   [`Stream::check`] checks what a role needs before the role starts.
//! - [`StreamStore`] is the [`EpochStore`](moteseal_store::EpochStore) of an intake. It acknowledges a
//!   batch after the stream has stored and synced it.
//! - [`Worker`] takes batches from the stream, writes them to a store, and acknowledges them to the
//!   stream after the store has made them durable. Any number of workers share one consumer.
//! - [`DeadLetters`] are the messages that no worker can store. They can be counted, listed and
//!   replayed.
//! - [`Authority`] has the keys that decide who may do what at the servers, and issues [`Credentials`] with
//!   the [`Permissions`] of each role. [`push_account`] makes revocations take effect, and [`attempts`] finds
//!   out what a user may do by trying it.
//!
//! Order does not matter and repetitions do no harm, because a store is a grow-only set. The stream
//! therefore delivers at least once, and nothing relies on its deduplication.
//!
//! An acknowledgement of JetStream means that the data is on disk only if the servers run with
//! `sync_interval: always`; the default acknowledges up to two minutes before that. Intake and workers
//! do not start on other servers ([`Stream::check`]).

#![forbid(unsafe_code)]

mod accepted;
mod attempts;
mod authority;
mod backlog;
mod check;
mod connection;
mod dead;
mod error;
mod intake;
mod layout;
mod message;
mod moment;
mod no_store;
mod permissions;
mod pieces;
mod position;
mod published;
mod push;
mod rejected;
mod settings;
mod sync;
mod worker;

pub use attempts::{Attempt, CONNECT, accepts_plain_text, attempts};
pub use authority::{Authority, Credentials, IssuedAccount, MAX_REVOKED, jwt_issued_at};
pub use connection::Stream;
pub use dead::{DeadLetter, DeadLetters};
pub use error::StreamError;
pub use intake::StreamStore;
pub use layout::Layout;
pub use no_store::NoStore;
pub use permissions::{Duty, Permissions};
pub use position::Reached;
pub use push::{NotPassed, fetch_account, push_account};
pub use settings::{BATCH_BYTES, IntakeLimits, Role, Settings, SyncCheck, WorkerLimits};
pub use worker::{CheckConflicts, Worker, WorkerCounts};
