//! Experiments of three papers on recorded data and in simulation, compared with the papers'
//! numbers: for researchers, and for engineers who choose the parameters of a deployment.
//!
//! - Sampling within a budget (Li et al. 2019, section VIII.B and section V): [`data`] reads
//!   recorded events, [`sampling`] replays days of them through the coordinator of `moteseal-seal`,
//!   [`traffic`] does the same for synthetic loads of any size, and [`rivals`] has the alternatives
//!   that the paper mentions.
//! - Exact private sums (Papadopoulos et al. 2011): [`sums`] has the cost models and the paper's
//!   numbers.
//! - Authenticated broadcast (Liu et al. 2012): [`broadcast`] has the testbed, and [`radio`] the
//!   simulator of its nodes.
//!
//! [`figure`] draws, and [`report`] writes the pages. The crate does not measure speed
//! (`moteseal-bench` does). No parameter is tuned to match a paper.
//!
//! # Example
//!
//! How many events are sent to a coordinator that may keep 500 of 10,000 events of 20 devices?
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
pub mod kept;
pub mod radio;
pub mod repair;
pub mod report;
pub mod rivals;
pub mod sampling;
pub mod seals;
pub mod sums;
pub mod table;
pub mod temperature;
pub mod traffic;
