//! The axes of a figure: a linear or logarithmic range with ticks at round numbers.

use crate::table::thousands;

/// One axis of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    label: String,
    from: f64,
    to: f64,
    logarithmic: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Creates a linear axis with ticks at round numbers. An empty range is widened.
    #[must_use]
    pub fn linear(label: &str, from: f64, to: f64) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        let step = round_step(to - from);
        let decimals = if step < 0.095 { 2 } else { usize::from(step < 0.95) };
        let first = (from / step).ceil();
        let ticks = (0..64)
            .map(|i| (first + f64::from(i)) * step)
            .take_while(|&tick| tick <= to + step * 1e-9)
            .map(|tick| (tick, number(tick, decimals)))
            .collect();
        Self { label: label.to_owned(), from, to, logarithmic: false, ticks }
    }

    /// Creates a logarithmic axis with ticks at the powers of ten. Both ends must be above zero.
    #[must_use]
    pub fn logarithmic(label: &str, from: f64, to: f64) -> Self {
        let from = from.max(f64::MIN_POSITIVE);
        let to = if to > from { to } else { from * 10.0 };
        #[allow(clippy::cast_possible_truncation)]
        let powers = from.log10().ceil() as i32..=to.log10().floor() as i32;
        let ticks =
            powers.map(|power| 10_f64.powi(power)).map(|tick| (tick, short(tick))).collect();
        Self { label: label.to_owned(), from, to, logarithmic: true, ticks }
    }

    /// Returns the same axis with the given ticks.
    #[must_use]
    pub fn with_ticks(self, ticks: impl IntoIterator<Item = (f64, String)>) -> Self {
        Self { ticks: ticks.into_iter().collect(), ..self }
    }

    /// Returns the measured quantity, with its unit.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the start and the end of the axis.
    #[must_use]
    pub const fn range(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Returns the position of a number on the axis, from 0 at its start to 1 at its end. A number
    /// outside the range is clamped to the nearer end. `None` if the axis has no position for the
    /// number.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.logarithmic {
            (value.max(f64::MIN_POSITIVE) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        place.is_finite().then(|| place.clamp(0.0, 1.0))
    }

    pub(super) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }
}

/// Returns a step of 1, 2 or 5 times a power of ten that divides a span into at most six steps.
fn round_step(span: f64) -> f64 {
    let rough = span / 6.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&step| step >= rough * (1.0 - 1e-9));
    step.unwrap_or(10.0 * power)
}

/// Formats a number for people, with a minus sign (U+2212).
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn number(value: f64, decimals: usize) -> String {
    let sign = if value < -1e-9 { "\u{2212}" } else { "" };
    let value = value.abs();
    if decimals == 0 {
        format!("{sign}{}", thousands(value.round() as u64))
    } else {
        format!("{sign}{value:.decimals$}")
    }
}

/// Formats a power of ten for people: `1,000`, `1 M`.
fn short(value: f64) -> String {
    match value {
        1e9.. => format!("{} G", number(value / 1e9, 0)),
        1e6.. => format!("{} M", number(value / 1e6, 0)),
        1.0.. => number(value, 0),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks().iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_numbers_within_the_range() {
        assert_eq!(
            labels(&Axis::linear("", 0.0, 8000.0)),
            ["0", "2,000", "4,000", "6,000", "8,000"]
        );
        assert_eq!(labels(&Axis::linear("", -12.0, 5.0)), ["\u{2212}10", "\u{2212}5", "0", "5"]);
        assert_eq!(labels(&Axis::linear("", 0.0, 1.0)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(
            labels(&Axis::logarithmic("", 100.0, 2e8)),
            ["100", "1,000", "10,000", "100,000", "1 M", "10 M", "100 M"]
        );
    }

    #[test]
    fn a_position_is_clamped_to_the_ends() {
        let linear = Axis::linear("", 10.0, 20.0);
        assert_eq!(
            [5.0, 10.0, 15.0, 20.0, 99.0].map(|value| linear.place(value)),
            [0.0, 0.0, 0.5, 1.0, 1.0].map(Some)
        );
        assert_eq!(linear.place(f64::NAN), None);
        let decades = Axis::logarithmic("", 1.0, 100.0);
        assert_eq!(
            [0.0, 1.0, 10.0, 100.0].map(|value| decades.place(value)),
            [0.0, 0.0, 0.5, 1.0].map(Some)
        );
    }

    #[test]
    fn an_empty_range_is_widened() {
        assert_eq!(Axis::linear("", 3.0, 3.0).range(), (3.0, 4.0));
        assert!(Axis::logarithmic("", 0.0, 0.0).range().1 > 0.0);
    }
}
