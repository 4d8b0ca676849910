//! The papers' tables and figures on real data, beside the papers' numbers.
//!
//! Sampling within a budget, section VIII.B of Li et al. (figures 5, 6, 7a, 7b), and what its section V promises of
//! communication and of the budget's use. [`data`] reads the recorded events, [`sampling`] replays days of them through the
//! coordinator of `core`, [`traffic`] does the same for made-up loads of any size, [`rivals`] are the protocols that the paper
//! mentions beside its own, [`figure`] draws, and [`report`] writes everything down. And exact private sums: [`sums`] has the cost
//! models and the numbers of Papadopoulos et al. 2011. And authenticated broadcast: [`broadcast`] has the testbed of Liu et al. 2012.
//!
//! Not here: speed (that is `bench`), links and stores (their rooms test them). Nothing here is tuned to match a paper.

#![forbid(unsafe_code)]

pub mod broadcast;
pub mod chance;
pub mod data;
pub mod experiment;
pub mod figure;
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
