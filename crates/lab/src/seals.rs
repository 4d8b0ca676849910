//! What sealing costs: the numbers of Li et al. (tables I, II and IV to VII, figures 8 to 14), what was measured in their place, and the two models that
//! stand in for hardware.
//!
//! The lab does not measure speed, and may not link what is only compared with, so everything [`Measured`] is handed in by `moteseal-bench lab` and drawn by
//! [`report::seals`](crate::report::seals). Models say that they are models.

pub mod footprint;
pub mod paper;

use serde::Serialize;

/// A quantity over several runs in which all contenders took turns: the middle one, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of nothing: not a number.
    pub const NONE: Self = Self { median: f64::NAN, least: f64::NAN, most: f64::NAN };

    /// The same in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, least: self.least * factor, most: self.most * factor }
    }

    /// Nanoseconds a unit, turned into units a second.
    #[must_use]
    pub fn per_second(self) -> Self {
        Self { median: 1e9 / self.median, least: 1e9 / self.most, most: 1e9 / self.least }
    }
}

/// Table I: an operation over a 10-byte string.
#[derive(Clone, Debug, Serialize)]
pub struct Primitive {
    /// Its name.
    pub name: &'static str,
    /// Whether the paper has it; else it is ours.
    pub in_paper: bool,
    /// Nanoseconds.
    #[serde(skip)]
    pub time: Spread,
    /// The same in D, dependent compressions of SHA-256.
    pub in_d: f64,
}

/// Table II: what a scheme did when it was asked.
#[derive(Clone, Debug, Serialize)]
pub struct Ability {
    /// The scheme.
    pub scheme: &'static str,
    /// Signatures for an epoch of [`paper::EPOCH`] events.
    pub signatures: usize,
    /// Bytes served for half of the epoch, against all of it; `None` where the scheme has no way.
    pub half_of_all: Option<f64>,
    /// Bytes served for one event in the middle, against all of it.
    pub one_of_all: Option<f64>,
    /// Bytes of state at the device after [`paper::EPOCH`] events, and after a thousand times as many.
    pub state: (u64, u64),
    /// Whether an application notices that the cloud withholds one event of a sample by rate; `None` where the scheme has no sample to be cut.
    pub notices_withheld: Option<bool>,
    /// Whether it notices that the cloud states half as many events as there were.
    pub notices_cut: bool,
}

/// Table IV: bytes that authentication takes beside the events.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    /// The scheme.
    pub scheme: &'static str,
    /// `n`: events of the epoch at one device.
    pub events: u64,
    /// At the device.
    pub device: u64,
    /// At the coordinator of [`paper::DEVICES`] devices with a budget of 500.
    pub coordinator: u64,
}

/// Table V: what a record costs.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The scheme.
    pub scheme: &'static str,
    /// The signature and the digest.
    pub suite: &'static str,
    /// Microseconds to sign, a record.
    #[serde(skip)]
    pub signing: Spread,
    /// Bytes that the device sends, a record.
    pub sent: f64,
    /// Bytes that an application gets that wants half of the records, a record that it wants.
    pub received: f64,
}

/// Table VI: a packet of a tree of height 3.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// The degree.
    pub degree: usize,
    /// Bytes of it.
    pub bytes: usize,
    /// Microseconds.
    #[serde(skip)]
    pub time: Spread,
}

/// Figure 8 (and 12): throughput by the room that the signer has.
#[derive(Clone, Debug, Serialize)]
pub struct BySpace {
    /// GSC or DTC, and whether it is the product's.
    pub scheme: &'static str,
    /// The signature and the digest.
    pub suite: &'static str,
    /// Levels of the product's star; of nothing else.
    pub levels: Option<u8>,
    /// Digests for which there is room; of the product, its bytes in digests.
    pub units: f64,
    /// Events a second, at the signer.
    #[serde(skip)]
    pub signed: Spread,
    /// At the verifier.
    #[serde(skip)]
    pub verified: Spread,
}

/// Figure 9: throughput of a receiver of DTC, by its cache.
#[derive(Clone, Debug, Serialize)]
pub struct ByCache {
    /// Units at the signer.
    pub signer: usize,
    /// Units at the receiver.
    pub cache: usize,
    /// Events a second.
    #[serde(skip)]
    pub verified: Spread,
}

/// Figure 10: throughput of a receiver that wants a part.
#[derive(Clone, Debug, Serialize)]
pub struct ByRate {
    /// GSC or DTC.
    pub scheme: &'static str,
    /// The rate that it wants.
    pub rate: f64,
    /// Units at the signer.
    pub units: usize,
    /// Of the events that it verifies, the share that it did not want.
    pub unused: f64,
    /// Events that it wants, a second.
    #[serde(skip)]
    pub verified: Spread,
}

/// Figure 11: trees of degree `k`.
#[derive(Clone, Debug, Serialize)]
pub struct ByDegree {
    /// The degree.
    pub degree: usize,
    /// Events of the tree.
    pub events: usize,
    /// Microseconds to build, an event.
    #[serde(skip)]
    pub build: Spread,
    /// Microseconds to generate a packet.
    #[serde(skip)]
    pub packet: Spread,
}

/// Figure 14: with the sampling protocol.
#[derive(Clone, Debug, Serialize)]
pub struct WithBudget {
    /// The budget.
    pub budget: u64,
    /// The signature and the digest.
    pub suite: &'static str,
    /// Whether it is ours.
    pub is_ours: bool,
    /// GSC or DTC.
    pub scheme: &'static str,
    /// Events a second, of those that were sent to the coordinator.
    #[serde(skip)]
    pub signed: Spread,
    /// Events a second, of those that were saved.
    #[serde(skip)]
    pub verified: Spread,
}

/// Table VII: how many events those are.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    /// The budget.
    pub budget: u64,
    /// Events sent to the coordinator over all days.
    pub sent: u64,
    /// Events saved.
    pub saved: u64,
    /// Seals: a device and day.
    pub seals: u64,
}

/// Beyond: what an epoch's length makes of a suite.
#[derive(Clone, Debug, Serialize)]
pub struct ByEpoch {
    /// The suite.
    pub suite: &'static str,
    /// Events of an epoch.
    pub events: u64,
    /// Bytes that the device sends beside an event.
    pub bytes: f64,
    /// Nanoseconds to seal an event.
    #[serde(skip)]
    pub time: Spread,
}

/// Where a number of bytes is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Origin {
    /// What its encoding here takes.
    #[serde(rename = "its encoding here")]
    Encoding,
    /// Signatures and digests added up, without anything that frames them.
    #[serde(rename = "by arithmetic, least possible")]
    Arithmetic,
    /// Somebody states it.
    #[serde(rename = "stated by others")]
    Others,
}

impl Origin {
    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Encoding => "its encoding here",
            Self::Arithmetic => "by arithmetic, least possible",
            Self::Others => "stated by others",
        }
    }
}

/// Beyond: bytes on the uplink, an event.
#[derive(Clone, Debug, Serialize)]
pub struct Uplink {
    /// The format.
    pub format: String,
    /// Bytes of the reading.
    pub payload: u64,
    /// Bytes of all, an event.
    pub bytes: f64,
    /// Where these bytes are from.
    pub from: Origin,
}

/// What was fed to the throughput experiments.
#[derive(Clone, Debug, Default)]
pub struct Fed {
    /// Recordings, by name.
    pub sources: Vec<String>,
    /// Epochs of them: a device and day that has events.
    pub epochs: usize,
    /// Their events.
    pub events: usize,
}

/// Everything of sealing that was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// One dependent compression of SHA-256, in nanoseconds.
    pub d: f64,
    /// What was fed.
    pub fed: Fed,
    /// Runs of which a median is taken, except table I's, which has three times as many and nine at least, and `tree_runs`.
    pub runs: usize,
    /// The runs of figure 11 and table VI.
    pub tree_runs: usize,
    /// The hashing loops that the machine ran, as `moteseal-lanes` names them: "avx512+sha", "scalar" and the like.
    pub loops: &'static str,
    /// Table I.
    pub primitives: Vec<Primitive>,
    /// Table II.
    pub abilities: Vec<Ability>,
    /// Table IV.
    pub states: Vec<State>,
    /// Table V.
    pub costs: Vec<Cost>,
    /// Bytes a record that an application of the paper's DTC gets if every event travels with its own siblings.
    pub tree_packets: f64,
    /// Table VI.
    pub packets: Vec<Packet>,
    /// Table VII; nothing where recorded data is missing.
    pub counted: Vec<Counted>,
    /// Figures 8 and 12.
    pub by_space: Vec<BySpace>,
    /// Figure 9.
    pub by_cache: Vec<ByCache>,
    /// Figure 10.
    pub by_rate: Vec<ByRate>,
    /// Figure 11.
    pub by_degree: Vec<ByDegree>,
    /// Figure 14.
    pub with_budget: Vec<WithBudget>,
    /// Of figure 14's setting, a signature an event by the quickest of the paper's suites: events a second.
    pub each: Option<(f64, f64)>,
    /// Beyond.
    pub by_epoch: Vec<ByEpoch>,
    /// Beyond.
    pub uplink: Vec<Uplink>,
    /// Counted instructions of a Cortex-M3, if the file was there.
    pub footprint: Option<footprint::Footprint>,
}
