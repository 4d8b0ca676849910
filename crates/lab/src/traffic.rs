//! Simulates the sampling protocol for loads of any size, to measure the number of messages and the
//! used share of the budget. The results show the orders of growth that sections V and VII.C of Li
//! et al. derive.
//!
//! There are two simulations of the same protocol. [`one_by_one`] computes the level of every event
//! with its device's salt, as devices do. [`skipping`] jumps to the next event that is forwarded,
//! so that 10^8 events take microseconds. Both use the coordinator of `moteseal-seal`.
//!
//! **Why skipping is exact.** Levels are independent, because each is the SipHash of a different
//! sequence number under a secret salt. Therefore an event is at or above a device's round `j` with
//! probability `2^-j`, independently of earlier events, and the number of events up to the next
//! such event has a geometric distribution. Each further level of that event again has probability
//! 1/2. Skipped events have no effect: they are not sent, and because rounds never fall, no
//! coordinator requests them later. If the devices' round changes within a gap, the simulation
//! discards the gap and draws a new one from the change on, which is correct because the geometric
//! distribution is memoryless. The number of devices only affects the announcements, because an
//! event's level does not depend on its device.

use std::collections::VecDeque;

use moteseal_core::{DeviceId, SealIndex};
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Coordinator, Offer};

use crate::chance::{Draws, Seed};
use crate::sampling::enough_levels;

/// The load of one epoch: synthetic events that are distributed over the devices at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Number of events of all devices.
    pub events: u64,
    /// The budget: the maximum number of events that may be kept.
    pub budget: u64,
    /// The number of devices.
    pub devices: u64,
    /// The number of levels of the group.
    pub levels: u8,
    /// The delay of an announcement, in events. 0 means that the devices receive a round at once.
    pub delay: u64,
}

impl Load {
    /// Creates a load with no delay and as many levels as a roster needs for it. `None` if no group
    /// can have that many levels.
    #[must_use]
    pub fn new(events: u64, budget: u64, devices: u64) -> Option<Self> {
        Some(Self { events, budget, devices, levels: enough_levels(events, budget)?, delay: 0 })
    }
}

/// The cost and the result of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of events sent to the coordinator.
    pub sent: u64,
    /// Number of announced rounds. Each takes one message to every device.
    pub announcements: u64,
    /// The final round. It is at least the number of announcements.
    pub round: u8,
    /// Number of events kept at the end.
    pub kept: u64,
    /// The largest number of events kept at any time.
    pub most_kept: u64,
}

impl Traffic {
    /// Returns the number of messages in both directions if each message contains one event.
    #[must_use]
    pub const fn messages(&self, devices: u64) -> u64 {
        self.sent + self.announcements * devices
    }

    fn of(&mut self, coordinator: &Coordinator) {
        self.round = coordinator.round().0;
        self.kept = coordinator.kept();
        self.most_kept = self.most_kept.max(self.kept);
    }
}

/// The announced rounds that have not reached the devices yet. Each entry is the last event before
/// the round arrives, and the round.
#[derive(Debug, Default)]
struct Announced {
    on_the_way: VecDeque<(u64, u8)>,
    /// The last round that has reached the devices.
    round: u8,
}

impl Announced {
    /// Adds a round that the coordinator announces after event `at`. No device uses a round above
    /// the last level.
    fn send(&mut self, at: u64, round: u8, load: &Load) {
        self.on_the_way
            .push_back((at.saturating_add(load.delay), round.min(load.levels.saturating_sub(1))));
    }

    /// Returns the last event before the devices' round changes.
    fn until(&self) -> u64 {
        self.on_the_way.front().map_or(u64::MAX, |&(at, _)| at)
    }

    fn arrive(&mut self) {
        if let Some((_, round)) = self.on_the_way.pop_front() {
            self.round = round;
        }
    }
}

/// Simulates an epoch event by event, with every device's salt.
#[must_use]
pub fn one_by_one(load: &Load, seed: Seed) -> Traffic {
    let key = |device: u64| {
        let salt = SaltKey::new(seed.derive("salt key", device).0)
            .salt(DeviceId(device.to_be_bytes()), SealIndex(0));
        (LevelKey::new(&salt), 0_u64)
    };
    // Compute a device's salt at its first event.
    let mut devices: Vec<_> = (0..load.devices).map(|_| None).collect();
    let mut whose = seed.derive("whose event", 0).draws();
    let (mut coordinator, mut announced, mut traffic) =
        (Coordinator::new(load.levels, load.budget), Announced::default(), Traffic::default());
    for at in 1..=load.events {
        while announced.until() < at {
            announced.arrive();
        }
        let number = whose.below(load.devices);
        let Some(device) = usize::try_from(number).ok().and_then(|number| devices.get_mut(number))
        else {
            break;
        };
        let (key, seq) = device.get_or_insert_with(|| key(number));
        let level = key.level(*seq, load.levels);
        *seq += 1;
        if level.0 >= announced.round {
            traffic.sent += 1;
            if let Offer::Raised(_) = coordinator.offer(level) {
                traffic.announcements += 1;
                announced.send(at, coordinator.round().0, load);
            }
            traffic.of(&coordinator);
        }
    }
    traffic
}

/// Simulates an epoch by its forwarded events only. The time hardly depends on the number of
/// events.
#[must_use]
pub fn skipping(load: &Load, draws: &mut Draws) -> Traffic {
    let mut end = Traffic::default();
    skipping_through(load, &[load.events], draws, &mut |_, traffic| end = traffic);
    end
}

/// Simulates an epoch like [`skipping`]. Also calls `seen` with the costs after each number of
/// events in `stops`, which must be ascending.
pub fn skipping_through(
    load: &Load,
    stops: &[u64],
    draws: &mut Draws,
    seen: &mut dyn FnMut(u64, Traffic),
) {
    let (mut coordinator, mut announced, mut traffic) =
        (Coordinator::new(load.levels, load.budget), Announced::default(), Traffic::default());
    let mut at = 0_u64;
    for &stop in stops {
        let stop = stop.min(load.events);
        while at < stop {
            let until = announced.until().min(stop);
            let next = at.saturating_add(draws.gap(0.5_f64.powi(i32::from(announced.round))));
            if next > until {
                at = until;
                if announced.until() == until {
                    announced.arrive();
                }
                continue;
            }
            at = next;
            traffic.sent += 1;
            let level = draws.level_from(announced.round, load.levels);
            if let Offer::Raised(_) = coordinator.offer(level) {
                traffic.announcements += 1;
                announced.send(at, coordinator.round().0, load);
            }
            traffic.of(&coordinator);
        }
        seen(stop, traffic);
    }
}

/// Returns the expected number of sent events without delay, `B (1 + log2(events / B) / 2)`. Round
/// 0 sends `B` events, and then each doubling of the load sends another `B / 2`. If there are at
/// most `B` events, all are sent.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn expected_sent(events: u64, budget: u64) -> f64 {
    let (events, budget) = (events as f64, budget as f64);
    if events <= budget { events } else { budget * (1.0 + (events / budget).log2() / 2.0) }
}

/// Returns the expected number of sent events. The result is also exact within a round. Round `j`
/// lasts from `2^(j-1) B` to `2^j B` events and accepts one event in `2^j`. In a logarithmic plot,
/// [`expected_sent`] is a straight line that is exact at the ends of the rounds, and up to 3.5 %
/// higher between them.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn expected_sent_within(events: u64, budget: u64) -> f64 {
    let (events, budget) = (events as f64, budget as f64);
    if events <= budget {
        return events;
    }
    let doublings = (events / budget).log2();
    budget * (1.0 + (doublings.floor() + doublings.fract().exp2() - 1.0) / 2.0)
}

/// Returns the expected number of additional sent events if every announcement arrives `delay`
/// events late. While round `j` is in transit, devices send one event in `2^j` that they would
/// otherwise not send. The total is `delay * (1 - 2^-round)`, less the events that would be after
/// the end of the epoch.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn expected_late(delay: u64, round: u8) -> f64 {
    delay as f64 * (1.0 - 0.5_f64.powi(i32::from(round)))
}

/// The expected share of the budget that is used at the end of an epoch, averaged over loads whose
/// logarithm is uniform over whole doublings. The number of kept events is then log-uniform between
/// half a budget and a full budget.
pub const EXPECTED_USE: f64 = 0.5 / std::f64::consts::LN_2;

/// Simulates one epoch and returns the used share of the budget. The load is log-uniform between 2
/// and 64 budgets. `None` if no group can have enough levels.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
pub fn budget_used(budget: u64, draws: &mut Draws) -> Option<f64> {
    let budgets = (1.0 + 5.0 * draws.unit()).exp2();
    let load = Load {
        levels: enough_levels(64 * budget, budget)?,
        ..Load::new((budget as f64 * budgets) as u64, budget, 1)?
    };
    Some(skipping(&load, draws).kept as f64 / budget as f64)
}
