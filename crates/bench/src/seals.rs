//! Measures the costs of sealing as Li et al. do (tables I, II and IV to VII, figures 8 to 14), and
//! additional costs. The paper's schemes are measured with the paper's primitives and with ours,
//! next to the product's schemes. The lab's page compares the measurements with the paper's
//! numbers.
//!
//! Times are processor time of one thread. Within each repetition the contenders take turns. The
//! paper's schemes are in `moteseal-research`.

mod beyond;
mod budget;
mod feed;
mod legacy;
mod primitives;
mod schemes;
mod signed;
mod space;
mod suites;
mod trees;

use moteseal_lab::chance::Seed;
use moteseal_lab::data::Recording;
use moteseal_lab::seals::footprint::Footprint;
use moteseal_lab::seals::{Fed, Measured, Spread};
use moteseal_lanes::Host;

use feed::Record;

use crate::measure::Times;

/// Returns a contender's median, smallest and largest time, which the lab's page shows.
pub(crate) fn extremes(times: &Times, contender: usize) -> Spread {
    let repetitions = times.repetitions(contender).iter().copied();
    let (least, most) =
        (repetitions.clone().fold(f64::INFINITY, f64::min), repetitions.fold(0.0, f64::max));
    Spread { median: times.nanoseconds(contender), least, most }
}

/// The input of the experiments.
pub(crate) struct Inputs<'a> {
    /// The recordings that are present.
    pub(crate) devices: &'a [Recording],
    /// Whether the recordings of all seven sources are present.
    pub(crate) is_whole: bool,
    /// The counted instructions, if they are available.
    pub(crate) footprint: Option<Footprint>,
}

/// The amount of measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of repetitions over which the median is taken.
    repetitions: usize,
    /// Number of days for figures 8 to 10.
    days: usize,
    /// Number of days for the sampling protocol: table VII and figure 14.
    budget_days: usize,
    /// Number of signatures per repetition of table I.
    signatures: usize,
    /// Number of digests per repetition of table I.
    digests: usize,
    /// Sizes of the signer's memory for figures 8 and 10, in digests.
    units: &'static [usize],
    /// Sizes of the receiver's memory for figure 9, in digests.
    caches: &'static [usize],
    /// Numbers of events in the trees of figure 11.
    trees: &'static [usize],
    /// The degrees for table VI.
    degrees: &'static [usize],
    /// Number of packets per repetition of table VI.
    packets: usize,
    /// Numbers of events per epoch for which the overhead is measured.
    lengths: &'static [u64],
}

impl Effort {
    /// The effort of `make lab`. It takes about five minutes.
    pub(crate) const FULL: Self = Self {
        repetitions: 7,
        days: 4,
        budget_days: moteseal_lab::data::DAYS,
        signatures: 100,
        digests: 10_000,
        units: &[1, 2, 3, 4, 5, 6, 7, 8, 10, 12],
        caches: &[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048],
        trees: &[64, 256, 1024, 4096, 16_384, 65_536],
        degrees: &[500, 600, 700, 800, 900, 1000],
        packets: 2000,
        lengths: &[1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000],
    };
    /// The smallest effort that produces every entry.
    pub(crate) const QUICK: Self = Self {
        repetitions: 1,
        days: 1,
        budget_days: 3,
        signatures: 2,
        digests: 50,
        units: &[3, 9],
        caches: &[0, 64],
        trees: &[64, 256],
        degrees: &[500, 1000],
        packets: 5,
        lengths: &[10, 300],
    };
}

/// Runs all measurements.
pub(crate) fn measure(
    inputs: &Inputs<'_>,
    effort: &Effort,
    seed: Seed,
    progress: &mut dyn FnMut(&str),
) -> Result<Measured, String> {
    let epochs = feed::epochs(inputs.devices, effort.days);
    let mut measured = Measured {
        fed: fed(inputs.devices, &epochs),
        runs: effort.repetitions,
        tree_runs: trees::runs(effort),
        loops: Host::detect().name(),
        footprint: inputs.footprint.clone(),
        ..Measured::default()
    };
    progress("table I: primitives");
    (measured.d, measured.primitives) = primitives::measure(effort)?;
    progress("table II: properties of each scheme");
    measured.abilities = schemes::abilities()?;
    progress("table IV: state");
    measured.states = schemes::states();
    progress("table V: cost of a record");
    (measured.costs, measured.tree_packets) = schemes::costs(&epochs, effort)?;
    progress("table VI: packets of wide trees");
    measured.packets = trees::packets(effort);
    if epochs.is_empty() {
        progress("figures 8 to 10 and 14 need a recording");
    } else {
        progress("figure 8: throughput by the signer's memory");
        measured.by_space = space::by_space(&epochs, effort)?;
        progress("figure 9: throughput by the receiver's cache");
        measured.by_cache = space::by_cache(&epochs, effort)?;
        progress("figure 10: throughput by rate");
        measured.by_rate = space::by_rate(&epochs, effort)?;
    }
    progress("figure 11: trees of degree 2, 3 and 4");
    measured.by_degree = trees::by_degree(effort);
    for budget in [500, 1000] {
        progress(&format!("table VII and figure 14: the sampling protocol, budget {budget}"));
        budget::measure(inputs, effort, budget, seed, &mut measured)?;
    }
    progress("in addition: the length of an epoch, and the uplink");
    measured.by_epoch = beyond::by_epoch(effort)?;
    measured.uplink = beyond::uplink()?;
    Ok(measured)
}

fn fed(devices: &[Recording], epochs: &[Vec<Record>]) -> Fed {
    Fed {
        sources: devices.iter().map(|device| device.name().to_owned()).collect(),
        epochs: epochs.len(),
        events: epochs.iter().map(Vec::len).sum(),
    }
}
