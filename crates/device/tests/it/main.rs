//! Tests of a device: import, broadcasts, sealing, its outbox and recorder, replay and upload.

#![allow(clippy::unwrap_used, missing_docs)]

mod broadcast_addressed;
mod broadcast_delivery;
mod broadcast_receipts;
mod confidential;
mod confidential_journal;
mod ended;
mod health_over_coap;
mod import;
mod outbox;
mod push;
mod recorder;
mod replay;
mod resources;
mod sealing;
mod sensors;
mod sensors_over_coap;
