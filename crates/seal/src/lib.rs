//! Sealing, without an operating system, a heap or `unsafe`.
//!
//! A device assigns every event a level ([`level`]), folds it into a running [`Star`] or [`Tree`](tree::Tree), and signs
//! once at the end of the epoch. A receiver of any part of the epoch rebuilds the seal from that part and checks the
//! one signature. What a check has proven is a type: [`Seal<Unverified>`](Seal) becomes `Seal<Authentic>` only by a
//! signature or by the hash chain of a signed successor, and events come out of an authentic sample only.
//!
//! The byte formats are those of `spec/formats.md`; the algorithms are of Li et al., "Toward Secure and Efficient
//! Communication for the Internet of Things" (ToN 2019), sections IV and VI.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod answers;
pub mod device_session;
pub mod each;
pub mod engine;
pub mod follow;
pub mod frame;
pub mod history;
pub mod level;
mod receipt;
pub mod sample;
mod seal;
pub mod star;
mod statement;
pub mod stream;
pub mod tree;

pub use answers::{Answered, Answers, MAX_ANSWERED};
pub use each::UrgentEvent;
pub use follow::{Follower, Limits, PartError, Rebuilt};
pub use history::{Complete, History, Incomplete};
pub use receipt::ReceiptError;
pub use seal::{Authentic, MAX_MESSAGE, Position, Seal, SealError, Unverified};
pub use star::Star;
pub use statement::{Lost, Statement};
