//! Repeats the experiments of four publications on recorded data and in simulation, and compares the
//! results with the papers' numbers. The crate is for researchers, and for engineers who choose the
//! parameters of a deployment.
//!
//! - Sampling within a budget (Li et al. 2019, section VIII.B and section V): [`data`] reads
//!   recorded events, [`sampling`] replays them day by day through the coordinator of
//!   `moteseal-seal`, [`traffic`] does the same for synthetic loads of any size, and [`rivals`]
//!   models the alternatives that the paper mentions.
//! - Exact private sums (Papadopoulos et al. 2011): [`sums`] contains the cost models and the
//!   paper's numbers.
//! - Authenticated broadcast (Liu et al. 2012): [`broadcast`] contains the testbed, and [`radio`]
//!   the simulator of its nodes.
//! - Signed readings and DTLS on motes (RERUM deliverable D5.3, 2016): [`rerum`] contains its numbers
//!   and the types of our measurements.
//! - Malleable signatures on motes (the same deliverable): [`redactable`] contains its numbers and the
//!   types of our measurements.
//! - Self-monitoring of motes (the same deliverable): [`health`] simulates its experiment.
//! - Latency from the sensor to the store (Mishra et al.): [`latency`] runs brokers, clouds and engines as
//!   processes, and takes the times of messages.
//!
//! [`figure`] draws figures, and [`report`] writes the pages of results. The crate does not measure
//! the speed of code; `moteseal-bench` does. No parameter is tuned to match a paper.
//!
//! # Example
//!
//! How many events do 20 devices send to a coordinator that may keep 500 of their 10,000 events?
//!
//! ```
//! use moteseal_lab::chance::Seed;
//! use moteseal_lab::traffic::{Load, expected_sent, one_by_one};
//!
//! let load = Load::new(10_000, 500, 20).ok_or("no group has enough levels")?;
//! let traffic = one_by_one(&load, Seed::default());
//! let theory = expected_sent(10_000, 500);
//! println!("{} events sent, {theory:.0} in theory", traffic.sent);
//! assert!((traffic.sent as f64 / theory - 1.0).abs() < 0.2);
//! # Ok::<(), &str>(())
//! ```

#![forbid(unsafe_code)]

pub mod broadcast;
pub mod chance;
pub mod data;
pub mod experiment;
pub mod figure;
pub mod health;
pub mod kept;
pub mod latency;
pub mod radio;
pub mod redactable;
pub mod repair;
pub mod report;
pub mod rerum;
pub mod rivals;
pub mod sampling;
pub mod seals;
pub mod sums;
pub mod table;
pub mod temperature;
pub mod traffic;
