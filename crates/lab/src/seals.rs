//! The costs of sealing: the numbers of Li et al. (tables I, II and IV to VII, figures 8 to 14),
//! the types of the corresponding measurements, and the data of the two models that replace
//! hardware.
//!
//! The lab does not measure speed, and must not link the schemes that are only compared with the
//! product. `moteseal-bench lab` passes its results as [`Measured`], and
//! [`report::seals`](crate::report::seals) draws them. Results of models are marked as such.

pub mod footprint;
pub mod paper;

use serde::Serialize;

/// A measured quantity: the median, the smallest value and the largest value of several runs. In
/// each run all contenders take turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
}

impl Spread {
    /// Stands for a missing measurement: all values are NaN.
    pub const NONE: Self = Self { median: f64::NAN, least: f64::NAN, most: f64::NAN };

    /// Returns the spread with all values multiplied by `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { median: self.median * factor, least: self.least * factor, most: self.most * factor }
    }

    /// Converts nanoseconds per unit into units per second.
    #[must_use]
    pub fn per_second(self) -> Self {
        Self { median: 1e9 / self.median, least: 1e9 / self.most, most: 1e9 / self.least }
    }
}

/// A row of table I: an operation on a string of 10 bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Primitive {
    /// The name of the operation.
    pub name: &'static str,
    /// Whether the row is in the paper's table. The other rows are additional.
    pub in_paper: bool,
    /// The time, in nanoseconds.
    #[serde(skip)]
    pub time: Spread,
    /// The time divided by D, the time of one dependent compression of SHA-256.
    pub in_d: f64,
}

/// A row of table II: the measured properties of a scheme.
#[derive(Clone, Debug, Serialize)]
pub struct Ability {
    /// The scheme.
    pub scheme: &'static str,
    /// Number of signatures for an epoch of [`paper::EPOCH`] events.
    pub signatures: usize,
    /// Bytes that the cloud serves for half of the epoch's events, divided by the bytes for all of
    /// them; `None` if the scheme cannot serve half of them.
    pub half_of_all: Option<f64>,
    /// Bytes that the cloud serves for one event in the middle of the epoch, divided by the bytes
    /// for all events.
    pub one_of_all: Option<f64>,
    /// Bytes of state at the device after [`paper::EPOCH`] events, and after a thousand times as
    /// many events.
    pub state: (u64, u64),
    /// Whether an application detects that the cloud withholds one event of a sample by rate;
    /// `None` if the scheme has no samples.
    pub notices_withheld: Option<bool>,
    /// Whether an application detects that the cloud states half the number of events.
    pub notices_cut: bool,
}

/// A row of table IV: bytes of authentication data in addition to the events.
#[derive(Clone, Debug, Serialize)]
pub struct State {
    /// The scheme.
    pub scheme: &'static str,
    /// `n`: number of events in the epoch at one device.
    pub events: u64,
    /// Bytes at the device.
    pub device: u64,
    /// Bytes at the coordinator of [`paper::DEVICES`] devices with a budget of 500.
    pub coordinator: u64,
}

/// A row of table V: the cost of a record.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The scheme.
    pub scheme: &'static str,
    /// The signature and the digest.
    pub suite: &'static str,
    /// Time to sign one record, in microseconds.
    #[serde(skip)]
    pub signing: Spread,
    /// Bytes that the device sends per record.
    pub sent: f64,
    /// Bytes that an application receives per record that it requests, if it requests half of the
    /// records.
    pub received: f64,
}

/// A row of table VI: a packet of a tree of height 3.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// The degree.
    pub degree: usize,
    /// The size of the packet, in bytes.
    pub bytes: usize,
    /// The time to generate the packet, in microseconds.
    #[serde(skip)]
    pub time: Spread,
}

/// A point of figures 8 and 12: throughput by the signer's memory.
#[derive(Clone, Debug, Serialize)]
pub struct BySpace {
    /// GSC (stars) or DTC (trees), and whether it is the product's implementation.
    pub scheme: &'static str,
    /// The signature and the digest.
    pub suite: &'static str,
    /// The number of levels of the product's star; `None` for the other schemes.
    pub levels: Option<u8>,
    /// The signer's memory, in digests. For the product it is the number of bytes divided by the
    /// size of a digest.
    pub units: f64,
    /// Number of events per second at the signer.
    #[serde(skip)]
    pub signed: Spread,
    /// Number of events per second at the verifier.
    #[serde(skip)]
    pub verified: Spread,
}

/// A point of figure 9: throughput of a receiver of DTC, by the size of its cache.
#[derive(Clone, Debug, Serialize)]
pub struct ByCache {
    /// Memory of the signer, in digests.
    pub signer: usize,
    /// Memory of the receiver, in digests.
    pub cache: usize,
    /// Number of verified events per second.
    #[serde(skip)]
    pub verified: Spread,
}

/// A point of figure 10: throughput of a receiver that requests a share of the events.
#[derive(Clone, Debug, Serialize)]
pub struct ByRate {
    /// GSC or DTC.
    pub scheme: &'static str,
    /// The share of the events that the receiver requests.
    pub rate: f64,
    /// Memory of the signer, in digests.
    pub units: usize,
    /// The share of the verified events that the receiver did not request.
    pub unused: f64,
    /// Number of requested events per second.
    #[serde(skip)]
    pub verified: Spread,
}

/// A point of figure 11: the times of trees of degree `k`.
#[derive(Clone, Debug, Serialize)]
pub struct ByDegree {
    /// The degree.
    pub degree: usize,
    /// Number of events in the tree.
    pub events: usize,
    /// Time to build the tree, in microseconds per event.
    #[serde(skip)]
    pub build: Spread,
    /// Time to generate a packet, in microseconds.
    #[serde(skip)]
    pub packet: Spread,
}

/// A point of figure 14: throughput with the sampling protocol.
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
    /// Number of signed events per second, among the events that were sent to the coordinator.
    #[serde(skip)]
    pub signed: Spread,
    /// Number of verified events per second, among the events that were kept.
    #[serde(skip)]
    pub verified: Spread,
}

/// A row of table VII: the numbers of events that are signed and verified.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    /// The budget.
    pub budget: u64,
    /// Number of events sent to the coordinator on all days.
    pub sent: u64,
    /// Number of events kept.
    pub saved: u64,
    /// Number of seals: one for each device and day.
    pub seals: u64,
}

/// Not in the paper: the cost of a suite, by the number of events in an epoch.
#[derive(Clone, Debug, Serialize)]
pub struct ByEpoch {
    /// The suite.
    pub suite: &'static str,
    /// Number of events in the epoch.
    pub events: u64,
    /// Bytes per event that the device sends in addition to the event.
    pub bytes: f64,
    /// Time to seal an event, in nanoseconds.
    #[serde(skip)]
    pub time: Spread,
}

/// Where a number of bytes comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Origin {
    /// The size of the format's encoding, produced by code of this workspace.
    #[serde(rename = "its encoding here")]
    Encoding,
    /// The sum of the sizes of signatures and digests, without framing.
    #[serde(rename = "by arithmetic, least possible")]
    Arithmetic,
    /// A number that a third party has published.
    #[serde(rename = "stated by others")]
    Others,
}

impl Origin {
    /// Returns the origin as text for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Encoding => "its encoding here",
            Self::Arithmetic => "by arithmetic, least possible",
            Self::Others => "stated by others",
        }
    }
}

/// Not in the paper: bytes on the uplink per event.
#[derive(Clone, Debug, Serialize)]
pub struct Uplink {
    /// The format.
    pub format: String,
    /// Bytes of the reading.
    pub payload: u64,
    /// All bytes per event.
    pub bytes: f64,
    /// The origin of the number of bytes.
    pub from: Origin,
}

/// The events that the throughput experiments used.
#[derive(Clone, Debug, Default)]
pub struct Fed {
    /// The names of the recordings.
    pub sources: Vec<String>,
    /// Number of epochs. An epoch is a day on which a device has events.
    pub epochs: usize,
    /// Number of events.
    pub events: usize,
}

/// All measurements of sealing.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The time of one dependent compression of SHA-256, in nanoseconds.
    pub d: f64,
    /// The events that the throughput experiments used.
    pub fed: Fed,
    /// Number of runs over which each median is taken. Table I uses three times as many, and at
    /// least nine. Figure 11 and table VI use `tree_runs`.
    pub runs: usize,
    /// Number of runs for figure 11 and table VI.
    pub tree_runs: usize,
    /// The hashing loops that the machine used, as `moteseal-lanes` names them, such as
    /// `avx512+sha` or `scalar`.
    pub loops: &'static str,
    /// Table I.
    pub primitives: Vec<Primitive>,
    /// Table II.
    pub abilities: Vec<Ability>,
    /// Table IV.
    pub states: Vec<State>,
    /// Table V.
    pub costs: Vec<Cost>,
    /// Bytes per record that an application of the paper's DTC receives if every event is sent with
    /// its own siblings.
    pub tree_packets: f64,
    /// Table VI.
    pub packets: Vec<Packet>,
    /// Table VII; empty if the recorded data is absent.
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
    /// Signed and verified events per second with one signature per event, in the setting of figure
    /// 14, for the fastest of the paper's suites.
    pub each: Option<(f64, f64)>,
    /// Not in the paper: the cost of a suite, by the number of events in an epoch.
    pub by_epoch: Vec<ByEpoch>,
    /// Not in the paper: bytes on the uplink.
    pub uplink: Vec<Uplink>,
    /// Counted instructions on a Cortex-M3; `None` if the file is absent.
    pub footprint: Option<footprint::Footprint>,
}
