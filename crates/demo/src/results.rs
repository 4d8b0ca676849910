//! The measurements and observations of the demonstration of seals.

use std::time::Duration;

use moteseal_client::Report;
use moteseal_client::estimate::Estimate;
use moteseal_device::push::Pushed;
use moteseal_seal::sample::Rate;

use crate::confidential::Confidential;
use crate::edge::Edge;
use crate::fleet::Fleet;
use crate::life::Life;
use crate::readings::Mote;
use crate::verdict::Verdict;

/// The number of readings per epoch in the sample that a seed determines.
pub(crate) const DRAWN: u32 = 20;

/// All results of the demonstration.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) motes: Vec<Mote>,
    pub(crate) fleet: Fleet,
    pub(crate) pushed: Pushed,
    pub(crate) push_time: Duration,
    pub(crate) store_bytes: u64,
    /// The time of one SHA-256 compression in a dependent sequence, in nanoseconds.
    pub(crate) compression_ns: f64,
    pub(crate) rate: Rate,
    pub(crate) sampled: Report,
    pub(crate) sample_time: Duration,
    pub(crate) all: Report,
    pub(crate) all_time: Duration,
    pub(crate) drawn: Report,
    pub(crate) estimates: Vec<Estimated>,
    pub(crate) verdicts: Vec<Verdict>,
    /// The names of the lies that were not possible with these responses.
    pub(crate) untold: Vec<&'static str>,
    /// The results of the group with a budget; `None` if only one lie is shown in detail.
    pub(crate) edge: Option<Edge>,
    /// The results of the group that changes; `None` if only one lie is shown in detail.
    pub(crate) life: Option<Life>,
    /// The results of the group with encrypted readings; `None` if only one lie is shown in detail.
    pub(crate) confidential: Option<Confidential>,
}

/// An estimate and the true value.
#[derive(Debug)]
pub(crate) struct Estimated {
    pub(crate) field: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) estimate: Estimate,
    pub(crate) truth: f64,
}

impl Results {
    pub(crate) fn uncaught(&self) -> usize {
        self.verdicts.iter().filter(|verdict| !verdict.caught).count()
            + self.edge.as_ref().map_or(0, Edge::uncaught)
            + self.life.as_ref().map_or(0, Life::uncaught)
            + self.confidential.as_ref().map_or(0, Confidential::uncaught)
    }
}
