//! The input of the experiments: recorded events as four bytes each, by device and day, and the
//! events that the sampling protocol sends and keeps.

use moteseal_core::record::Sequence;
use moteseal_lab::chance::Seed;
use moteseal_lab::data::Recording;
use moteseal_lab::sampling::{self, Plan};
use moteseal_lab::seals::Counted;
use moteseal_seal::level::Salt;

/// A record as in the paper: two bytes of time and two bytes of reading.
pub(super) type Record = [u8; 4];

/// Encodes an event. The time is in steps of two seconds, because two bytes cannot hold the seconds
/// of a day. The reading is in tenths.
#[allow(clippy::cast_possible_truncation)]
fn record(second: u32, reading: f64) -> Record {
    let [_, _, high, low] = (second / 2).to_be_bytes();
    // The cast from a floating-point number saturates.
    let [first, last] = ((reading * 10.0) as i16).to_be_bytes();
    [high, low, first, last]
}

/// Returns the events of the first `days` days, with one epoch for each device and day that has
/// events.
pub(super) fn epochs(devices: &[Recording], days: usize) -> Vec<Vec<Record>> {
    let all = (0..days).flat_map(|day| devices.iter().map(move |device| device.day(day)));
    all.filter(|events| !events.is_empty())
        .map(|events| events.iter().map(|event| record(event.second, event.reading)).collect())
        .collect()
}

/// The events of one device on one day under the sampling protocol.
pub(super) struct Sampled {
    /// The salt of the day's levels.
    pub(super) salt: Salt,
    /// The number of the day's events, sent or not.
    pub(super) events: u32,
    /// The events sent to the coordinator, in order, each with its level.
    pub(super) sent: Vec<(u8, Record)>,
    /// The index of each sent event among the day's events.
    pub(super) seqs: Vec<Sequence>,
    /// The indices in `sent` of the kept events.
    pub(super) saved: Vec<usize>,
    /// The final round, which is the lowest level of the kept events.
    pub(super) round: u8,
}

impl Sampled {
    const NONE: Self = Self {
        salt: Salt([0; 16]),
        events: 0,
        sent: Vec::new(),
        seqs: Vec::new(),
        saved: Vec::new(),
        round: 0,
    };
}

/// Runs the sampling protocol. Returns all devices and days that sent events, and the total
/// numbers.
pub(super) fn sampled(
    devices: &[Recording],
    days: usize,
    budget: u64,
    seed: Seed,
) -> Option<(Vec<Sampled>, Counted)> {
    let plan = Plan::new(budget, devices, days, seed)?;
    let mut all = Vec::new();
    let mut counted = Counted { budget, sent: 0, saved: 0, seals: 0 };
    for day in 0..days {
        let mut seals: Vec<Sampled> = devices.iter().map(|_| Sampled::NONE).collect();
        let mut last = 0;
        let epoch = sampling::epoch(&plan, devices, day, &mut |step| {
            if step.sent > last
                && let Some(event) = devices[step.device].day(day).get(step.seq as usize)
            {
                seals[step.device].sent.push((step.level.0, record(event.second, event.reading)));
                seals[step.device].seqs.push(Sequence(u64::from(step.seq)));
            }
            last = step.sent;
        });
        counted.sent += epoch.sent;
        counted.saved += epoch.kept();
        for (mut seal, (salt, counters)) in seals.into_iter().zip(&epoch.stated) {
            (seal.salt, seal.events) = (*salt, counters.as_slice().iter().sum());
            seal.round = epoch.round.0;
            seal.saved =
                (0..seal.sent.len()).filter(|&place| seal.sent[place].0 >= epoch.round.0).collect();
            counted.seals += 1;
            if !seal.sent.is_empty() {
                all.push(seal);
            }
        }
    }
    Some((all, counted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_lab::data::Event;

    use super::*;

    #[test]
    fn a_record_keeps_time_and_reading_in_two_bytes_each() {
        assert_eq!(record(86_399, -3.25), [0xa8, 0xbf, 0xff, 0xe0]);
        assert_eq!(record(0, 1e9), [0, 0, 0x7f, 0xff]);
    }

    #[test]
    fn saved_events_are_those_that_the_simulation_kept() {
        let day = |device: u32| {
            (0..900)
                .map(|n| Event { second: n * 90 + device, reading: f64::from(n) })
                .collect::<Vec<_>>()
        };
        let devices: Vec<_> =
            (0..3).map(|device| Recording::new(&format!("d{device}"), vec![day(device)])).collect();
        let (seals, counted) = sampled(&devices, 2, 500, Seed::default()).unwrap();
        assert_eq!(counted.seals, 6);
        assert_eq!(seals.iter().map(|seal| seal.sent.len() as u64).sum::<u64>(), counted.sent);
        assert_eq!(seals.iter().map(|seal| seal.saved.len() as u64).sum::<u64>(), counted.saved);
        assert!(
            counted.saved > 500
                && counted.saved <= 1000
                && counted.sent > counted.saved
                && counted.sent < 5400
        );
        assert!(
            seals
                .iter()
                .all(|seal| seal.saved.iter().all(|&place| seal.sent[place].0 >= seal.round))
        );
    }
}
