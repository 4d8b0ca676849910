//! Estimates the mean temperature of a day from the kept readings, as in figure 7 of Li et al. It
//! compares sampling with truncation, which keeps only the first readings of a day.

use crate::data::Recording;
use crate::sampling::Epoch;

/// The number of readings that the paper's truncation keeps.
pub const TRUNCATED: usize = 40;

/// The mean temperature of a day, both exact and estimated, in the unit of the recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day {
    /// The mean of all readings.
    pub truth: f64,
    /// The mean of the sampled readings; `None` if there are none.
    pub sampled: Option<f64>,
    /// The number of sampled readings.
    pub readings: usize,
    /// The mean of the first [`TRUNCATED`] readings.
    pub truncated: f64,
    /// The mean of the first readings of the day. Their number is `readings`.
    pub truncated_alike: Option<f64>,
}

impl Day {
    /// Returns the error of the mean of the sample.
    #[must_use]
    pub fn sampled_off(&self) -> Option<f64> {
        self.sampled.map(|sampled| sampled - self.truth)
    }

    /// Returns the error of the paper's truncation.
    #[must_use]
    pub fn truncated_off(&self) -> f64 {
        self.truncated - self.truth
    }

    /// Returns the error of a truncation that keeps as many readings as were sampled.
    #[must_use]
    pub fn truncated_alike_off(&self) -> Option<f64> {
        self.truncated_alike.map(|truncated| truncated - self.truth)
    }
}

/// Computes the mean temperatures of one device on one day; `None` if the device has no reading on
/// this day.
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
