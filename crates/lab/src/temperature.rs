//! The mean temperature of a day from what was kept: figure 7 of Li et al. Sampling against truncation, which keeps a day's first
//! readings and forgets the rest.

use crate::data::Recording;
use crate::sampling::Epoch;

/// How many readings the paper's truncation keeps.
pub const TRUNCATED: usize = 40;

/// A day's mean temperature, known and estimated, in the recording's unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day {
    /// Of all readings.
    pub truth: f64,
    /// Of the sampled readings; `None` if there is none.
    pub sampled: Option<f64>,
    /// How many were sampled.
    pub readings: usize,
    /// Of the first [`TRUNCATED`] readings.
    pub truncated: f64,
    /// Of the first readings, as many as were sampled.
    pub truncated_alike: Option<f64>,
}

impl Day {
    /// How far the sample's mean is off.
    #[must_use]
    pub fn sampled_off(&self) -> Option<f64> {
        self.sampled.map(|sampled| sampled - self.truth)
    }

    /// How far the paper's truncation is off.
    #[must_use]
    pub fn truncated_off(&self) -> f64 {
        self.truncated - self.truth
    }

    /// How far a truncation to as many readings as were sampled is off.
    #[must_use]
    pub fn truncated_alike_off(&self) -> Option<f64> {
        self.truncated_alike.map(|truncated| truncated - self.truth)
    }
}

/// One device's day; `None` if it has no reading.
#[must_use]
pub fn day(devices: &[Recording], device: usize, day: usize, epoch: &Epoch) -> Option<Day> {
    let readings: Vec<_> =
        devices.get(device)?.day(day).iter().map(|event| event.reading).collect();
    let sampled: Vec<_> = epoch
        .held
        .iter()
        .filter(|held| held.device == device)
        .filter_map(|held| readings.get(usize::try_from(held.seq).ok()?).copied())
        .collect();
    Some(Day {
        truth: mean(&readings)?,
        sampled: mean(&sampled),
        readings: sampled.len(),
        truncated: mean(&readings[..readings.len().min(TRUNCATED)])?,
        truncated_alike: mean(&readings[..sampled.len()]),
    })
}

#[allow(clippy::cast_precision_loss)]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
