//! Tests of a device: import, sealing, its outbox and recorder, replay and upload.

#![allow(clippy::unwrap_used, missing_docs)]

mod import;
mod outbox;
mod push;
mod recorder;
mod replay;
mod sealing;
