//! Measures `SECOA^S` party by party. At the paper's sizes a complete network takes minutes to
//! compute its sketches. Sources and aggregators are therefore measured on real reports, and the
//! querier on the output of a simulated honest network. SECOA is patented, and is here for
//! comparison only.

use std::hint::black_box;

use moteseal_lab::chance::{Draws, Seed};
use moteseal_lab::sums::Accuracy;
use moteseal_research::secoa::sum::{Final, Partial, Querier, Source};
use moteseal_research::secoa::{Estimate, Sketch};

use super::exact::{Timer, key};

/// The errors of the estimates over all opened epochs.
#[derive(Default)]
pub(super) struct Estimates {
    count: u32,
    excess: f64,
    within: u32,
    corrected_within: u32,
}

impl Estimates {
    #[allow(clippy::cast_precision_loss)]
    fn add(&mut self, estimate: Estimate, values: &[u64]) {
        let truth = values.iter().sum::<u64>() as f64;
        let off = |sum: f64| sum / truth - 1.0;
        self.count += 1;
        self.excess += off(estimate.by_the_letter());
        self.within += u32::from(off(estimate.by_the_letter()).abs() <= 0.1);
        self.corrected_within += u32::from(off(estimate.corrected()).abs() <= 0.1);
    }

    pub(super) fn accuracy(&self) -> Accuracy {
        let count = f64::from(self.count.max(1));
        Accuracy {
            estimates: self.count,
            bias: self.excess / count,
            within_tenth: f64::from(self.within) / count,
            corrected_within_tenth: f64::from(self.corrected_within) / count,
        }
    }
}

/// Returns the mean microseconds of a source, over one reading for each of `values`.
pub(super) fn source(sketches: u32, values: &[u64]) -> f64 {
    let source = Source::new(0, &key(0));
    let mut timer = Timer::default();
    for (epoch, &value) in (1..).zip(values) {
        black_box(timer.time(1, || source.report(epoch, sketches, black_box(value))));
    }
    timer.micros()
}

/// Returns the mean microseconds of an aggregator of sources over some epochs, and the bytes that
/// it sends. An epoch has one reading for each child.
pub(super) fn aggregator(sketches: u32, epochs: &[Vec<u64>]) -> (f64, u64) {
    let (mut timer, mut bytes) = (Timer::default(), 0);
    for (epoch, values) in (1..).zip(epochs) {
        let reports = reports(sketches, epoch, values);
        let merged = timer.time(1, || Partial::merge(black_box(reports)));
        bytes = merged.map_or(0, |merged| merged.to_bytes().len() as u64);
    }
    (timer.micros(), bytes)
}

fn reports(sketches: u32, epoch: u64, values: &[u64]) -> Vec<Partial> {
    (0..)
        .zip(values)
        .map(|(source, &value)| Source::new(source, &key(source)).report(epoch, sketches, value))
        .collect()
}

/// The querier's time and the size of its input.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opened {
    pub(super) micros: f64,
    /// The mean number of bytes and SEALs from the sink.
    pub(super) bytes: f64,
    pub(super) seals: f64,
}

/// Measures the querier over some epochs, with one value for each source in each epoch.
///
/// # Errors
/// A message, if the querier rejects an honest network's output.
pub(super) fn querier(
    sketches: u32,
    epochs: &[Vec<u64>],
    seed: Seed,
    estimates: &mut Estimates,
) -> Result<Opened, String> {
    let sources = epochs.first().map_or(0, Vec::len);
    let keys: Vec<_> = (0..).take(sources).map(key).collect();
    let querier = Querier::new(&keys);
    let (mut timer, mut opened) = (Timer::default(), Opened::default());
    let mut draws: Draws = seed.draws();
    for (epoch, values) in (1..).zip(epochs) {
        let drawn: Vec<_> = values
            .iter()
            .map(|&value| Sketch::drawn(sketches, value, &mut || draws.unit()))
            .collect();
        let result = querier
            .as_aggregated(epoch, &drawn)
            .ok_or_else(|| "SECOA: sketches of different sizes".to_owned())?;
        check(&querier, sketches, epoch, values, &result, &mut timer, estimates)?;
        #[allow(clippy::cast_precision_loss)]
        {
            opened.bytes += result.to_bytes().len() as f64 / epochs.len() as f64;
            opened.seals += result.seals.len() as f64 / epochs.len() as f64;
        }
    }
    Ok(Opened { micros: timer.micros(), ..opened })
}

/// Simulates one complete network: every source inserts its items, every aggregator folds and
/// rolls, and the querier verifies.
///
/// # Errors
/// A message, if the querier rejects the result.
pub(super) fn whole_network(
    sketches: u32,
    fanout: usize,
    values: &[u64],
    estimates: &mut Estimates,
) -> Result<(), String> {
    let keys: Vec<_> = (0..).take(values.len()).map(key).collect();
    let mut level = reports(sketches, 1, values);
    while level.len() > 1 {
        let parents = level.chunks(fanout).map(|children| Partial::merge(children.to_vec()));
        level = parents
            .collect::<Option<_>>()
            .ok_or_else(|| "SECOA: reports of different sizes".to_owned())?;
    }
    let result = level.first().map(Partial::finish).ok_or_else(|| "no sources".to_owned())?;
    check(&Querier::new(&keys), sketches, 1, values, &result, &mut Timer::default(), estimates)
}

fn check(
    querier: &Querier,
    sketches: u32,
    epoch: u64,
    values: &[u64],
    result: &Final,
    timer: &mut Timer,
    estimates: &mut Estimates,
) -> Result<(), String> {
    let verified = timer.time(1, || querier.verify(epoch, sketches, black_box(result)));
    estimates.add(
        verified.map_err(|refused| {
            format!("SECOA: an honest network's result was rejected: {refused}")
        })?,
        values,
    );
    Ok(())
}
