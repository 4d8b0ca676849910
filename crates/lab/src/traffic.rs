//! What the sampling protocol costs in messages, and how much of the budget it uses, for loads of any size: what section V and
//! VII.C of Li et al. promise as orders of growth, measured.
//!
//! Two simulations of the same thing. [`one_by_one`] levels every event with its device's salt, as devices do. [`skipping`] goes
//! straight to the next event that is forwarded, so that 10^8 events take microseconds. Both ask the coordinator of `core`.
//!
//! **Why skipping is exact.** Levels are independent: each is SipHash of another sequence number under a secret salt. So whether an
//! event is at or above a device's round `j` is a coin of probability `2^-j`, whatever came before, and the number of events up to
//! the next such one is geometric; of that one, which of the levels from `j` on it has is again a fair coin a level. What is
//! passed over has no effect: it is not sent, and rounds never fall, so no coordinator ever asks for it. When the devices' round
//! changes before the gap is over, the draw is dropped and another is made from the change on: the geometric distribution has no
//! memory. Which device an event belongs to changes nothing either, so the number of devices enters only by the announcements.

use std::collections::VecDeque;

use moteseal_core::{DeviceId, SealIndex};
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Coordinator, Offer};

use crate::chance::{Draws, Seed};
use crate::sampling::enough_levels;

/// One epoch of made-up events, spread over the devices at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Events of all devices.
    pub events: u64,
    /// Events that may be kept.
    pub budget: u64,
    /// Devices.
    pub devices: u64,
    /// Levels of the group.
    pub levels: u8,
    /// A round that is announced at one event reaches the devices this many events later; 0 is at once.
    pub delay: u64,
}

impl Load {
    /// With as many levels as a roster requires, and no delay; `None` if no group can have that many.
    #[must_use]
    pub fn new(events: u64, budget: u64, devices: u64) -> Option<Self> {
        Some(Self { events, budget, devices, levels: enough_levels(events, budget)?, delay: 0 })
    }
}

/// What an epoch cost, and what it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Events sent to the coordinator.
    pub sent: u64,
    /// New rounds announced: a message to each device.
    pub announcements: u64,
    /// The final round: it is never below the announcements.
    pub round: u8,
    /// Events kept in the end.
    pub kept: u64,
    /// The most that were kept at once.
    pub most_kept: u64,
}

impl Traffic {
    /// All messages, both ways, with one event a message.
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

/// Rounds on their way to the devices: the last event that does not know, and the round.
#[derive(Debug, Default)]
struct Announced {
    on_the_way: VecDeque<(u64, u8)>,
    /// What the devices know.
    round: u8,
}

impl Announced {
    /// The coordinator's word after event `at`. No device goes beyond the last level.
    fn send(&mut self, at: u64, round: u8, load: &Load) {
        self.on_the_way
            .push_back((at.saturating_add(load.delay), round.min(load.levels.saturating_sub(1))));
    }

    /// The last event before the devices' round changes.
    fn until(&self) -> u64 {
        self.on_the_way.front().map_or(u64::MAX, |&(at, _)| at)
    }

    fn arrive(&mut self) {
        if let Some((_, round)) = self.on_the_way.pop_front() {
            self.round = round;
        }
    }
}

/// An epoch event by event, with every device's salt.
#[must_use]
pub fn one_by_one(load: &Load, seed: Seed) -> Traffic {
    let key = |device: u64| {
        let salt = SaltKey::new(seed.derive("salt key", device).0)
            .salt(DeviceId(device.to_be_bytes()), SealIndex(0));
        (LevelKey::new(&salt), 0_u64)
    };
    // A salt is made when its device has an event.
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

/// An epoch by its forwarded events alone, whatever its size.
#[must_use]
pub fn skipping(load: &Load, draws: &mut Draws) -> Traffic {
    let mut end = Traffic::default();
    skipping_through(load, &[load.events], draws, &mut |_, traffic| end = traffic);
    end
}

/// The same, and shows what it has cost after each of some numbers of events, in ascending order.
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

/// What theory says is sent on average without delay: a budget in round 0, then half a budget each time the load doubles,
/// `B (1 + log2(events / B) / 2)`; everything up to a budget.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn expected_sent(events: u64, budget: u64) -> f64 {
    let (events, budget) = (events as f64, budget as f64);
    if events <= budget { events } else { budget * (1.0 + (events / budget).log2() / 2.0) }
}

/// What theory says is sent on average, within a round too: round `j` lasts from `2^(j-1)` to `2^j` budgets, and lets in an event
/// in `2^j`. [`expected_sent`] is a straight line in the logarithm through the rounds' ends; between them it is at most 3.5 % above.
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

/// What theory says is sent on average beyond that when every announcement takes `delay` events: while round `j` is on its way,
/// an event in `2^j` comes that it would have held back, so `delay * (1 - 2^-round)` in all, less what the epoch's end cuts off.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn expected_late(delay: u64, round: u8) -> f64 {
    delay as f64 * (1.0 - 0.5_f64.powi(i32::from(round)))
}

/// The part of the budget that is used at an epoch's end, on average over loads log-uniform over whole doublings: kept events are
/// then log-uniform between half a budget and one.
pub const EXPECTED_USE: f64 = 0.5 / std::f64::consts::LN_2;

/// An epoch's use of its budget, with a load log-uniform in `[2, 64]` budgets; `None` if no group can have enough levels.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
pub fn budget_used(budget: u64, draws: &mut Draws) -> Option<f64> {
    let budgets = (1.0 + 5.0 * draws.unit()).exp2();
    let load = Load {
        levels: enough_levels(64 * budget, budget)?,
        ..Load::new((budget as f64 * budgets) as u64, budget, 1)?
    };
    Some(skipping(&load, draws).kept as f64 / budget as f64)
}
