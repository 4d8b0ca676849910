//! Measures complete networks of the schemes with exact sums: CMT, SIES of the paper, and SIES of
//! the product. Every source answers, a complete tree of aggregators adds, and the querier opens
//! the sum. The measurement fails if the result is not the sum of the plain values.

use std::hint::black_box;
use std::time::Duration;

use moteseal_core::{DeviceId, GroupId};
use moteseal_lanes::Host;
use moteseal_research::prf::hm1;
use moteseal_research::{cmt, sies_paper};
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{self, KeyGroupKey, KeyLanes, KeyTotals, LANES, Master, Slot, SourceKey};

use crate::measure::thread_time;

/// A scheme, with the keys of all sources and of the querier.
pub(super) trait Network {
    /// A record in transit.
    type Record: Copy;

    /// The scheme's name in error messages.
    const NAME: &'static str;

    /// Creates the network of this many sources.
    fn new(sources: u32) -> Self;

    /// Returns the answer of a source.
    fn answer(&mut self, source: usize, epoch: u64, value: u64) -> Self::Record;

    /// Returns the aggregator's sum of the records of its children.
    fn merge(children: &[Self::Record]) -> Option<Self::Record>;

    /// Returns the querier's result from the sink's record; `None` if the record is rejected.
    fn open(&mut self, epoch: u64, record: Self::Record) -> Option<u128>;

    /// Returns the number of bytes of a record in transit.
    fn bytes(record: Self::Record) -> u64;
}

/// The mean microseconds at each party, and the transmitted bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Costs {
    pub(super) source: f64,
    pub(super) aggregator: f64,
    pub(super) querier: f64,
    pub(super) bytes: u64,
    /// Number of sums that were opened.
    pub(super) opened: u64,
}

/// Simulates an epoch for each row of values, which has one value for each source.
///
/// # Errors
/// A message, if a sum is rejected or is not the sum of the plain values.
pub(super) fn run<N: Network>(fanout: usize, epochs: &[Vec<u64>]) -> Result<Costs, String> {
    let sources = epochs.first().map_or(0, Vec::len);
    let mut network = N::new(u32::try_from(sources).map_err(|_| "too many sources".to_owned())?);
    let (mut source, mut aggregator, mut querier) =
        (Timer::default(), Timer::default(), Timer::default());
    let mut costs = Costs::default();
    for (epoch, values) in (1..).zip(epochs) {
        let mut records = Vec::with_capacity(sources);
        source.time(sources, || {
            records.extend(
                values.iter().enumerate().map(|(i, &value)| network.answer(i, epoch, value)),
            );
        });
        while records.len() > 1 {
            let mut parents = Vec::with_capacity(records.len().div_ceil(fanout));
            // Measure only the aggregators that have all their children.
            let full = records.chunks_exact(fanout);
            let rest = full.remainder();
            aggregator.time(full.len(), || {
                parents.extend(full.filter_map(|children| N::merge(black_box(children))));
            });
            parents.extend(N::merge(rest));
            records = parents;
        }
        let record = records.first().copied().ok_or_else(|| "no sources".to_owned())?;
        let mut opened = None;
        querier.time(1, || opened = network.open(epoch, black_box(record)));
        let truth = values.iter().map(|&value| u128::from(value)).sum();
        match opened {
            Some(sum) if sum == truth => costs.opened += 1,
            other => return Err(format!("{}: {other:?} was opened in place of {truth}", N::NAME)),
        }
        costs.bytes = N::bytes(record);
    }
    Ok(Costs {
        source: source.micros(),
        aggregator: aggregator.micros(),
        querier: querier.micros(),
        ..costs
    })
}

/// The elapsed time, and the number of units.
#[derive(Default)]
pub(super) struct Timer {
    spent: Duration,
    units: usize,
}

impl Timer {
    pub(super) fn time<T>(&mut self, units: usize, run: impl FnOnce() -> T) -> T {
        let start = thread_time();
        let out = run();
        self.spent += thread_time() - start;
        self.units += units;
        out
    }

    /// Returns the mean microseconds per unit; 0 if there are no units.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn micros(&self) -> f64 {
        self.spent.as_secs_f64() * 1e6 / self.units.max(1) as f64
    }
}

/// Returns a source's key of 20 bytes.
pub(super) fn key(source: u32) -> [u8; 20] {
    hm1(b"moteseal-bench sums", &source.to_be_bytes())
}

pub(super) struct Cmt {
    sources: Vec<cmt::Source>,
    querier: cmt::Querier,
}

impl Network for Cmt {
    type Record = cmt::Ciphertext;
    const NAME: &'static str = "CMT";

    fn new(sources: u32) -> Self {
        let keys: Vec<_> = (0..sources).map(key).collect();
        Self {
            sources: keys.iter().copied().map(cmt::Source::new).collect(),
            querier: cmt::Querier::new(keys),
        }
    }

    fn answer(&mut self, source: usize, epoch: u64, value: u64) -> Self::Record {
        self.sources[source].encrypt(epoch, value)
    }

    fn merge(children: &[Self::Record]) -> Option<Self::Record> {
        children.iter().copied().reduce(cmt::Ciphertext::merge)
    }

    fn open(&mut self, epoch: u64, record: Self::Record) -> Option<u128> {
        self.querier.decrypt(epoch, record)
    }

    fn bytes(record: Self::Record) -> u64 {
        record.to_bytes().len() as u64
    }
}

pub(super) struct PaperSies {
    sources: Vec<sies_paper::Source>,
    querier: sies_paper::Querier,
}

impl Network for PaperSies {
    type Record = sies_paper::Psr;
    const NAME: &'static str = "SIES by the paper";

    fn new(sources: u32) -> Self {
        let (global, keys) = ([0x4b; 20], (0..sources).map(key).collect::<Vec<_>>());
        Self {
            sources: keys.iter().map(|&own| sies_paper::Source::new(global, own)).collect(),
            querier: sies_paper::Querier::new(global, keys),
        }
    }

    fn answer(&mut self, source: usize, epoch: u64, value: u64) -> Self::Record {
        // Values are at most 500,000, so they fit into the 4 bytes that the paper provides for
        // them.
        self.sources[source].answer(epoch, u32::try_from(value).unwrap_or(u32::MAX))
    }

    fn merge(children: &[Self::Record]) -> Option<Self::Record> {
        children.iter().copied().reduce(sies_paper::Psr::merge)
    }

    fn open(&mut self, epoch: u64, record: Self::Record) -> Option<u128> {
        self.querier.open(epoch, record).ok().map(u128::from)
    }

    fn bytes(record: Self::Record) -> u64 {
        record.to_bytes().len() as u64
    }
}

const QUERY: QueryId = QueryId([5; 16]);
const GROUP: GroupId = GroupId([1; 8]);
const SLOT: Slot = Slot(0);
/// The largest value of an experiment.
const LARGEST: u128 = 1 << 40;

/// The product's SIES. Each source checks its epoch guard before it encrypts, and the querier adds
/// keys with the host's vector loops.
pub(super) struct OurSies {
    sources: Vec<(EpochGuard, SourceKey)>,
    lanes: Vec<KeyLanes>,
    present: Vec<u16>,
    key_group: KeyGroupKey,
    host: Host,
}

impl Network for OurSies {
    type Record = sies::Psr;
    const NAME: &'static str = "SIES, ours";

    fn new(sources: u32) -> Self {
        let master = Master::new([7; 32]);
        let source = |i: u32| {
            (
                EpochGuard::default(),
                master.source(GROUP, DeviceId(u64::from(i).to_be_bytes()), 0).for_query(QUERY),
            )
        };
        let sources: Vec<_> = (0..sources).map(source).collect();
        let mut lanes = vec![KeyLanes::default(); sources.len().div_ceil(LANES)];
        let mut present = vec![0_u16; lanes.len()];
        for (i, (_, key)) in sources.iter().enumerate() {
            lanes[i / LANES].set(i % LANES, key);
            present[i / LANES] |= 1 << (i % LANES);
        }
        Self {
            sources,
            lanes,
            present,
            key_group: master.key_group(GROUP, 0).for_query(QUERY),
            host: Host::detect(),
        }
    }

    fn answer(&mut self, source: usize, epoch: u64, value: u64) -> Self::Record {
        let (guard, key) = &mut self.sources[source];
        // Epochs ascend and values are small, so encryption succeeds. If it did not, the sum would
        // be wrong and the measurement would fail.
        let psr = guard
            .advance(QUERY, 1, epoch)
            .ok()
            .and_then(|mut permit| key.encrypt(&mut permit, SLOT, value.into()).ok());
        psr.unwrap_or(sies::Psr::ZERO)
    }

    fn merge(children: &[Self::Record]) -> Option<Self::Record> {
        children.iter().copied().reduce(|sum, psr| sum.merge(&psr))
    }

    fn open(&mut self, epoch: u64, record: Self::Record) -> Option<u128> {
        let mut totals = KeyTotals::default();
        self.host.sum_keys(&self.lanes, &self.present, SLOT, epoch, &mut totals);
        totals.open(&record, &self.key_group, SLOT, epoch, LARGEST).ok()
    }

    fn bytes(record: Self::Record) -> u64 {
        record.to_bytes().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network of CMT in which aggregators lose a child.
    struct Lossy(Cmt);

    impl Network for Lossy {
        type Record = cmt::Ciphertext;
        const NAME: &'static str = "lossy";

        fn new(sources: u32) -> Self {
            Self(Cmt::new(sources))
        }

        fn answer(&mut self, source: usize, epoch: u64, value: u64) -> Self::Record {
            self.0.answer(source, epoch, value)
        }

        fn merge(children: &[Self::Record]) -> Option<Self::Record> {
            Cmt::merge(&children[..1.min(children.len())])
        }

        fn open(&mut self, epoch: u64, record: Self::Record) -> Option<u128> {
            self.0.open(epoch, record)
        }

        fn bytes(record: Self::Record) -> u64 {
            Cmt::bytes(record)
        }
    }

    #[test]
    fn a_network_of_any_size_opens_to_the_plain_sum() {
        for (sources, fanout) in [(1, 2), (2, 2), (7, 3), (17, 4), (33, 16)] {
            let epochs = vec![(0..sources).collect::<Vec<u64>>(); 2];
            assert_eq!(run::<Cmt>(fanout, &epochs).map(|costs| costs.opened), Ok(2));
            assert_eq!(run::<PaperSies>(fanout, &epochs).map(|costs| costs.opened), Ok(2));
            assert_eq!(run::<OurSies>(fanout, &epochs).map(|costs| costs.opened), Ok(2));
        }
    }

    #[test]
    fn a_wrong_sum_fails_the_measurement() {
        let error = run::<Lossy>(2, &[vec![1, 2, 3, 4]]).map(|costs| costs.opened);
        assert!(
            error.as_ref().is_err_and(
                |error| error.starts_with("lossy: ") && error.ends_with("in place of 10")
            ),
            "{error:?}"
        );
        assert!(run::<Cmt>(2, &[Vec::new()]).is_err());
    }
}
