//! Replays recorded days through the sampling protocol of section V.A of Li et al. It uses the
//! coordinator of `moteseal-seal`, without loss or delay.
//!
//! Each device computes the levels of its events with the salt of its day's seal, forwards the
//! events at or above the round, and counts all events. The coordinator's store in this module
//! holds the events themselves, so that [`temperature`](crate::temperature) can use them later.
//! There is one seal for each device and day. The crates that implement links test them with loss
//! and delay; this module does not.

use moteseal_core::record::{MAX_LEVELS, Round};
use moteseal_core::{DeviceId, Level, SealIndex, Sequence};
use moteseal_seal::level::{Counters, Salt, SaltKey};
use moteseal_seal::sample::{Coordinator, Offer};

use crate::chance::Seed;
use crate::data::Recording;

/// Returns the smallest number of levels `L` that a roster needs for a load:
/// `2^(L-1) >= 8 events / budget`. `None` if the maximum number of levels is too small.
#[must_use]
pub fn enough_levels(events: u64, budget: u64) -> Option<u8> {
    let enough = |levels: &u8| (u128::from(budget) << (levels - 1)) >= 8 * u128::from(events);
    #[allow(clippy::cast_possible_truncation)]
    let most = MAX_LEVELS as u8;
    (1..=most).find(enough)
}

/// The parameters of a group, and the seed of its devices' salt keys.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Maximum number of events that may be kept per epoch.
    pub budget: u64,
    /// Number of levels, 1 to 32.
    pub levels: u8,
    /// The seed of the salt keys.
    pub seed: Seed,
}

impl Plan {
    /// Creates a plan with enough levels for the busiest of the first `days` days; `None` if the
    /// budget is too small.
    #[must_use]
    pub fn new(budget: u64, devices: &[Recording], days: usize, seed: Seed) -> Option<Self> {
        let busiest = (0..days).map(|day| load(devices, day)).max().unwrap_or(0);
        Some(Self { budget, levels: enough_levels(busiest, budget)?, seed })
    }

    fn salt(&self, device: usize, name: &str, day: usize) -> Salt {
        let key = SaltKey::new(self.seed.derive("salt key", device as u64).0);
        key.salt(DeviceId::of("lab", name), SealIndex(u32::try_from(day).unwrap_or(u32::MAX)))
    }
}

/// Returns the number of events of all devices on a day.
#[must_use]
pub fn load(devices: &[Recording], day: usize) -> u64 {
    devices.iter().map(|device| device.day(day).len() as u64).sum()
}

/// The state of a day after one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Seconds since midnight.
    pub second: u32,
    /// The event's device, as an index into the list of devices.
    pub device: usize,
    /// The event's index among the device's events of the day.
    pub seq: u32,
    /// The event's level.
    pub level: Level,
    /// Number of events that all devices have monitored so far.
    pub monitored: u64,
    /// Number of events sent to the coordinator so far.
    pub sent: u64,
    /// Number of events that the coordinator buffers now.
    pub kept: u64,
    /// The round.
    pub round: Round,
}

/// An event that the coordinator holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The event's device, as an index into the list of devices.
    pub device: usize,
    /// The event's index among the device's events of the day.
    pub seq: u32,
    /// The event's level.
    pub level: Level,
}

/// The result of a day.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    /// Number of events that all devices monitored.
    pub monitored: u64,
    /// Number of events sent to the coordinator.
    pub sent: u64,
    /// The largest number of events that the coordinator buffered at any time.
    pub most_kept: u64,
    /// The final round.
    pub round: Round,
    /// The number of rounds announced to every device.
    pub announcements: u64,
    /// The kept events.
    pub held: Vec<Held>,
    /// The salt and the counters that each device's seal would contain.
    pub stated: Vec<(Salt, Counters)>,
}

impl Epoch {
    /// Returns the number of events kept.
    #[must_use]
    pub const fn kept(&self) -> u64 {
        self.held.len() as u64
    }

    /// Returns the share of a budget that is used.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn used(&self, budget: u64) -> f64 {
        self.kept() as f64 / budget as f64
    }
}

/// Replays one day. Passes the state after each event to `seen`.
pub fn epoch(plan: &Plan, devices: &[Recording], day: usize, seen: &mut dyn FnMut(Step)) -> Epoch {
    let mut coordinator = Coordinator::new(plan.levels, plan.budget);
    let mut epoch = Epoch {
        monitored: 0,
        sent: 0,
        most_kept: 0,
        round: Round(0),
        announcements: 0,
        held: Vec::new(),
        stated: (0..)
            .zip(devices)
            .map(|(i, device)| (plan.salt(i, device.name(), day), Counters::new(plan.levels)))
            .collect(),
    };
    for (second, device, seq) in in_order(devices, day) {
        let (salt, counters) = &mut epoch.stated[device];
        let level = salt.level(Sequence(u64::from(seq)), plan.levels);
        counters.as_mut_slice()[usize::from(level.0)] += 1;
        epoch.monitored += 1;
        // Without delay, the device's round is the coordinator's.
        if level.0 >= coordinator.round().0 {
            epoch.sent += 1;
            match coordinator.offer(level) {
                Offer::Declined => {}
                Offer::Kept => epoch.held.push(Held { device, seq, level }),
                Offer::Raised(dropped) => {
                    epoch.held.push(Held { device, seq, level });
                    epoch.held.retain(|held| !dropped.contains(&held.level.0));
                    epoch.announcements += 1;
                }
            }
            epoch.most_kept = epoch.most_kept.max(epoch.kept());
        }
        seen(Step {
            second,
            device,
            seq,
            level,
            monitored: epoch.monitored,
            sent: epoch.sent,
            kept: coordinator.kept(),
            round: coordinator.round(),
        });
    }
    epoch.round = coordinator.round();
    epoch
}

/// Replays the first `days` days.
#[must_use]
pub fn epochs(plan: &Plan, devices: &[Recording], days: usize) -> Vec<Epoch> {
    (0..days).map(|day| epoch(plan, devices, day, &mut |_| {})).collect()
}

/// Returns the time, device and sequence number of each event of a day, ordered by time, then by
/// device.
fn in_order(devices: &[Recording], day: usize) -> Vec<(u32, usize, u32)> {
    let mut events: Vec<_> = devices
        .iter()
        .enumerate()
        .flat_map(|(device, recording)| {
            (0..).zip(recording.day(day)).map(move |(seq, event)| (event.second, device, seq))
        })
        .collect();
    events.sort_unstable();
    events
}
