//! The numbers of the paper's tables I, III and IV, in milliseconds.

use super::wireless::{Medium, Protection};

/// Table I: the delay per message of the five trials with each medium: without encryption, and with one and
/// two encryptions.
pub const TRIALS: [[[f64; 3]; 2]; 5] = [
    [[0.169, 0.200, 0.336], [0.231, 0.253, 0.363]],
    [[0.183, 0.208, 0.314], [0.238, 0.265, 0.361]],
    [[0.169, 0.202, 0.331], [0.252, 0.277, 0.357]],
    [[0.168, 0.189, 0.317], [0.238, 0.281, 0.366]],
    [[0.180, 0.223, 0.310], [0.242, 0.269, 0.368]],
];

/// Returns the median of the trials of table I. The paper has no trials with TLS.
#[must_use]
pub fn per_message(medium: Medium, protection: Protection) -> Option<f64> {
    let column = match protection {
        Protection::Plain => 0,
        Protection::Once => 1,
        Protection::Twice => 2,
        Protection::Tls | Protection::Column => return None,
    };
    let mut trials = TRIALS.map(|trial| trial[usize::from(medium == Medium::Hotspot)][column]);
    trials.sort_unstable_by(f64::total_cmp);
    Some(trials[2])
}

/// Table III: the average end-to-end latency of configurations 1 to 4: at the low rate with 24 and 1,024
/// bytes, then at the maximum rate.
pub const TOTAL: [[f64; 4]; 4] = [
    [20.8, 20.6, 18.8, 19.2],
    [20.8, 23.0, 18.4, 23.3],
    [21.8, 20.2, 25.6, 29.9],
    [2101.0, 1696.0, 12425.6, 5899.0],
];

/// Table IV: the average processing latency, in the same order.
pub const PROCESSING: [[f64; 4]; 4] = [
    [0.11, 0.09, 0.06, 0.05],
    [0.06, 0.07, 0.04, 0.06],
    [0.23, 0.63, 0.16, 0.25],
    [295.0, 130.0, 2118.0, 1357.0],
];

/// The longest processing latency in figure 6, in milliseconds, by the text of section VI.F.
pub const SAWTOOTH: f64 = 6000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_medians_are_those_of_the_printed_trials() {
        assert_eq!(per_message(Medium::Loopback, Protection::Plain), Some(0.169));
        assert_eq!(per_message(Medium::Loopback, Protection::Once), Some(0.202));
        assert_eq!(per_message(Medium::Hotspot, Protection::Twice), Some(0.363));
        assert_eq!(per_message(Medium::Hotspot, Protection::Tls), None);
    }
}
