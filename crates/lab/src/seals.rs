//! Costs of sealing: the numbers of Li et al. (tables I, II and IV to VII, figures 8 to 14), the
//! measurements that correspond to them, and the two models that replace hardware.
//!
//! The lab does not measure speed, and must not link the schemes that are only compared with.
//! `moteseal-bench lab` passes everything that it [`Measured`], and
//! [`report::seals`](crate::report::seals) draws it. Models are marked as models.

pub mod footprint;
pub mod paper;

use serde::Serialize;

/// A quantity over several runs in which all contenders took turns: the median, the least and the
/// most.
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
    /// No measurement: all values are NaN.
    pub const NONE: Self = Self { median: f64::NAN, least: f64::NAN, most: f64::NAN };

    /// Returns the same spread in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, least: self.least * factor, most: self.most * factor }
    }

    /// Converts nanoseconds for one unit into units per second.
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
    /// Whether it is in the paper's table; otherwise we added it.
    pub in_paper: bool,
    /// Nanoseconds.
    #[serde(skip)]
    pub time: Spread,
    /// The time divided by D, the time of one dependent compression of SHA-256.
    pub in_d: f64,
}

/// Table II: the measured properties of a scheme.
#[derive(Clone, Debug, Serialize)]
pub struct Ability {
    /// The scheme.
    pub scheme: &'static str,
    /// Signatures for an epoch of [`paper::EPOCH`] events.
    pub signatures: usize,
    /// Bytes served for half of the epoch, divided by the bytes for all of it; `None` if the scheme
    /// does not support it.
    pub half_of_all: Option<f64>,
    /// Bytes served for one event in the middle, divided by the bytes for all of the epoch.
    pub one_of_all: Option<f64>,
    /// Bytes of state at the device after [`paper::EPOCH`] events, and after a thousand times as
    /// many.
    pub state: (u64, u64),
    /// Whether an application detects that the cloud withholds one event of a sample by rate;
    /// `None` if the scheme has no samples.
    pub notices_withheld: Option<bool>,
    /// Whether an application detects that the cloud states half the number of events.
    pub notices_cut: bool,
}

/// Table IV: bytes of authentication data in addition to the events.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    /// The scheme.
    pub scheme: &'static str,
    /// `n`: events of the epoch at one device.
    pub events: u64,
    /// Bytes at the device.
    pub device: u64,
    /// Bytes at the coordinator of [`paper::DEVICES`] devices with a budget of 500.
    pub coordinator: u64,
}

/// Table V: the cost of a record.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The scheme.
    pub scheme: &'static str,
    /// The signature and the digest.
    pub suite: &'static str,
    /// Microseconds to sign one record.
    #[serde(skip)]
    pub signing: Spread,
    /// Bytes that the device sends for one record.
    pub sent: f64,
    /// Bytes that an application receives for each record that it wants, if it wants half of them.
    pub received: f64,
}

/// Table VI: a packet of a tree of height 3.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// The degree.
    pub degree: usize,
    /// Its size in bytes.
    pub bytes: usize,
    /// The time in microseconds.
    #[serde(skip)]
    pub time: Spread,
}

/// Figures 8 and 12: throughput by the signer's memory.
#[derive(Clone, Debug, Serialize)]
pub struct BySpace {
    /// GSC or DTC, and whether it is the product's.
    pub scheme: &'static str,
    /// The signature and the digest.
    pub suite: &'static str,
    /// The levels of the product's star; `None` for the others.
    pub levels: Option<u8>,
    /// The signer's memory in digests; for the product, its bytes divided by the size of a digest.
    pub units: f64,
    /// Events per second at the signer.
    #[serde(skip)]
    pub signed: Spread,
    /// Events per second at the verifier.
    #[serde(skip)]
    pub verified: Spread,
}

/// Figure 9: throughput of a receiver of DTC, by its cache.
#[derive(Clone, Debug, Serialize)]
pub struct ByCache {
    /// Memory of the signer, in digests.
    pub signer: usize,
    /// Memory of the receiver, in digests.
    pub cache: usize,
    /// Events per second.
    #[serde(skip)]
    pub verified: Spread,
}

/// Figure 10: throughput of a receiver that wants a share of the events.
#[derive(Clone, Debug, Serialize)]
pub struct ByRate {
    /// GSC or DTC.
    pub scheme: &'static str,
    /// The share that it wants.
    pub rate: f64,
    /// Memory of the signer, in digests.
    pub units: usize,
    /// The unwanted share of the events that it verifies.
    pub unused: f64,
    /// Wanted events per second.
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
    /// Microseconds to build the tree, for each event.
    #[serde(skip)]
    pub build: Spread,
    /// Microseconds to generate a packet.
    #[serde(skip)]
    pub packet: Spread,
}

/// Figure 14: throughput with the sampling protocol.
#[derive(Clone, Debug, Serialize)]
pub struct WithBudget {
    /// The budget.
    pub budget: u64,
    /// The signature and the digest.
    pub suite: &'static str,
    /// Whether the suite is the product's.
    pub is_ours: bool,
    /// GSC or DTC.
    pub scheme: &'static str,
    /// Signed events per second, of those that were sent to the coordinator.
    #[serde(skip)]
    pub signed: Spread,
    /// Verified events per second, of those that were saved.
    #[serde(skip)]
    pub verified: Spread,
}

/// Table VII: the events that are signed and verified.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    /// The budget.
    pub budget: u64,
    /// Events sent to the coordinator over all days.
    pub sent: u64,
    /// Events saved.
    pub saved: u64,
    /// Seals; one for each device and day.
    pub seals: u64,
}

/// In addition to the paper: the cost of a suite by the length of an epoch.
#[derive(Clone, Debug, Serialize)]
pub struct ByEpoch {
    /// The suite.
    pub suite: &'static str,
    /// Events of an epoch.
    pub events: u64,
    /// Bytes that the device sends in addition to an event.
    pub bytes: f64,
    /// Nanoseconds to seal an event.
    #[serde(skip)]
    pub time: Spread,
}

/// The source of a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Origin {
    /// The size of its encoding in this workspace.
    #[serde(rename = "its encoding here")]
    Encoding,
    /// The sum of signatures and digests, without framing.
    #[serde(rename = "by arithmetic, least possible")]
    Arithmetic,
    /// The statement of a third party.
    #[serde(rename = "stated by others")]
    Others,
}

impl Origin {
    /// Returns the source as text for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Encoding => "its encoding here",
            Self::Arithmetic => "by arithmetic, least possible",
            Self::Others => "stated by others",
        }
    }
}

/// In addition to the paper: bytes on the uplink for each event.
#[derive(Clone, Debug, Serialize)]
pub struct Uplink {
    /// The format.
    pub format: String,
    /// Bytes of the reading.
    pub payload: u64,
    /// All bytes for each event.
    pub bytes: f64,
    /// The source of these bytes.
    pub from: Origin,
}

/// The events that the throughput experiments used.
#[derive(Clone, Debug, Default)]
pub struct Fed {
    /// The names of the recordings.
    pub sources: Vec<String>,
    /// Epochs: the days of a device that have events.
    pub epochs: usize,
    /// Events.
    pub events: usize,
}

/// All measurements of sealing.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The time of one dependent compression of SHA-256, in nanoseconds.
    pub d: f64,
    /// The events that the throughput experiments used.
    pub fed: Fed,
    /// The number of runs of which a median is taken. Table I uses three times as many and at least
    /// nine; figure 11 and table VI use `tree_runs`.
    pub runs: usize,
    /// The runs of figure 11 and table VI.
    pub tree_runs: usize,
    /// The hashing loops that the machine used, as `moteseal-lanes` names them, such as
    /// "avx512+sha" and "scalar".
    pub loops: &'static str,
    /// Table I.
    pub primitives: Vec<Primitive>,
    /// Table II.
    pub abilities: Vec<Ability>,
    /// Table IV.
    pub states: Vec<State>,
    /// Table V.
    pub costs: Vec<Cost>,
    /// Bytes for each record that an application of the paper's DTC receives if every event travels
    /// with its own siblings.
    pub tree_packets: f64,
    /// Table VI.
    pub packets: Vec<Packet>,
    /// Table VII; empty if recorded data is absent.
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
    /// For the setting of figure 14, signed and verified events per second with one signature for
    /// each event, by the fastest of the paper's suites.
    pub each: Option<(f64, f64)>,
    /// In addition to the paper: the cost of a suite by the length of an epoch.
    pub by_epoch: Vec<ByEpoch>,
    /// In addition to the paper: bytes on the uplink.
    pub uplink: Vec<Uplink>,
    /// Counted instructions of a Cortex-M3; `None` if the file is absent.
    pub footprint: Option<footprint::Footprint>,
}
