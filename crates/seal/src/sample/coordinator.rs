//! Determines which events a coordinator keeps so that a group never exceeds its budget: Algorithm
//! 2 of the paper (section V.A), on counts instead of events.
//!
//! A [`Coordinator`] stores numbers, not events. The code that stores the events passes the level
//! of each event to the `Coordinator`, and discards the levels that the `Coordinator` drops. A
//! `Coordinator` covers one epoch, has no clock and does no I/O. The correct final round follows
//! from the counters that the devices sign ([`audit`](crate::sample::audit)), so anyone can check
//! whether the right events were kept.

use core::ops::Range;

use moteseal_core::record::{Level, MAX_LEVELS, Round};

/// The state of one epoch: the round, and the number of kept events of each level.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Coordinator {
    budget: u64,
    levels: u8,
    /// The round, from 0 to `levels`. If it equals `levels`, not even the events of the last level
    /// fit the budget, and nothing is kept.
    round: u8,
    kept: [u64; MAX_LEVELS],
    total: u64,
}

/// What to do with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Offer {
    /// The event's level is below the round. Discard the event.
    Declined,
    /// Store the event.
    Kept,
    /// The event exceeded the budget. Discard all events of these levels, including this event if
    /// its level is among them, and announce the new round to the devices.
    Raised(Range<u8>),
}

impl Coordinator {
    /// Creates the state at the start of an epoch: round 0, nothing kept. A group has 1 to 32
    /// levels. Events of levels that the group does not have are declined.
    #[must_use]
    pub fn new(levels: u8, budget: u64) -> Self {
        debug_assert!(
            (1..=MAX_LEVELS).contains(&usize::from(levels)),
            "a group has 1 to 32 levels"
        );
        Self { budget, levels, round: 0, kept: [0; MAX_LEVELS], total: 0 }
    }

    /// Returns the round. Only the levels from the round on are kept, so the sampling rate is
    /// `2^-round`.
    #[must_use]
    pub const fn round(&self) -> Round {
        Round(self.round)
    }

    /// Returns the number of kept events of all levels. Between calls, it is never above the
    /// budget.
    #[must_use]
    pub const fn kept(&self) -> u64 {
        self.total
    }

    /// Returns the number of kept events of one level.
    #[must_use]
    pub fn kept_at(&self, level: Level) -> u64 {
        self.kept.get(usize::from(level.0)).copied().unwrap_or(0)
    }

    /// Returns the budget.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Decides whether to keep an event that a device forwarded.
    #[inline]
    pub fn offer(&mut self, level: Level) -> Offer {
        if level.0 < self.round || level.0 >= self.levels {
            return Offer::Declined;
        }
        self.kept[usize::from(level.0)] += 1;
        self.total += 1;
        if self.total <= self.budget { Offer::Kept } else { self.raise() }
    }

    /// Raises the round until the kept events fit the budget.
    #[cold]
    fn raise(&mut self) -> Offer {
        let before = self.round;
        while self.total > self.budget && self.round < self.levels {
            self.drop_finest();
        }
        Offer::Raised(before..self.round)
    }

    fn drop_finest(&mut self) {
        let finest = &mut self.kept[usize::from(self.round)];
        self.total -= *finest;
        *finest = 0;
        self.round += 1;
    }

    /// Subtracts events of a level that will not be served after all, because their device
    /// abandoned the seal or raised its own round. If `events` exceeds the number of kept events of
    /// the level, all of them are subtracted.
    pub fn withdraw(&mut self, level: Level, events: u64) {
        if let Some(kept) = self.kept.get_mut(usize::from(level.0)) {
            let events = events.min(*kept);
            *kept -= events;
            self.total -= events;
        }
    }

    /// Raises the round to `round`, which the signed counters require. `round` may be higher than
    /// the current round, because the counters include events that never arrived. Returns the
    /// levels to discard.
    #[must_use]
    pub fn settle(&mut self, round: Round) -> Range<u8> {
        let before = self.round;
        while self.round < round.0.min(self.levels) {
            self.drop_finest();
        }
        before..self.round
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// The paper's Algorithm 2, which stores the events in queues.
    struct Reference {
        queues: Vec<Vec<u32>>,
        round: usize,
    }

    impl Reference {
        fn offer(&mut self, event: u32, level: usize, budget: usize) {
            if level < self.round || level >= self.queues.len() {
                return;
            }
            self.queues[level].push(event);
            while self.queues.iter().map(Vec::len).sum::<usize>() > budget
                && self.round < self.queues.len()
            {
                self.queues[self.round].clear();
                self.round += 1;
            }
        }
    }

    /// Returns a level with the distribution that the levels of events have: `i` with probability
    /// `2^-(i+1)`.
    fn level(random: u32, levels: u8) -> u8 {
        u8::try_from(random.leading_zeros()).unwrap().min(levels - 1)
    }

    proptest! {
        #[test]
        fn keeps_the_same_events_as_the_papers_algorithm(randoms in prop::collection::vec(any::<u32>(), 0..2000), levels in 1..12u8, budget in 0..200u64) {
            let mut coordinator = Coordinator::new(levels, budget);
            let mut reference = Reference { queues: std::vec![Vec::new(); usize::from(levels)], round: 0 };
            for (event, random) in (0..).zip(randoms) {
                let level = level(random, levels);
                let before = coordinator.round().0;
                match coordinator.offer(Level(level)) {
                    Offer::Raised(dropped) => prop_assert_eq!(dropped, before..coordinator.round().0),
                    Offer::Kept => prop_assert!(level >= before),
                    Offer::Declined => prop_assert!(level < before),
                }
                reference.offer(event, usize::from(level), usize::try_from(budget).unwrap());
                prop_assert!(coordinator.kept() <= budget);
                prop_assert_eq!(usize::from(coordinator.round().0), reference.round);
                for (level, queue) in (0..).zip(&reference.queues) {
                    prop_assert_eq!(coordinator.kept_at(Level(level)), queue.len() as u64);
                }
            }
        }

        #[test]
        fn removing_events_makes_room(kept in prop::collection::vec(0..6u8, 0..50), level in 0..8u8, events: u64) {
            let mut coordinator = Coordinator::new(6, 100);
            for &level in &kept {
                prop_assert_eq!(coordinator.offer(Level(level)), Offer::Kept);
            }
            let there = coordinator.kept_at(Level(level));
            coordinator.withdraw(Level(level), events);
            prop_assert_eq!(coordinator.kept_at(Level(level)), there.saturating_sub(events));
            prop_assert_eq!(coordinator.kept(), kept.len() as u64 - there.min(events));
        }
    }

    #[test]
    fn keeps_nothing_if_not_even_the_last_level_fits() {
        let mut coordinator = Coordinator::new(3, 2);
        for _ in 0..2 {
            assert_eq!(coordinator.offer(Level(2)), Offer::Kept);
        }
        assert_eq!(coordinator.offer(Level(2)), Offer::Raised(0..3));
        assert_eq!((coordinator.kept(), coordinator.round()), (0, Round(3)));
        assert_eq!(coordinator.offer(Level(2)), Offer::Declined);
    }

    #[test]
    fn declines_levels_that_the_group_does_not_have() {
        let mut coordinator = Coordinator::new(4, 10);
        for level in 4..=255 {
            assert_eq!(coordinator.offer(Level(level)), Offer::Declined);
        }
        assert_eq!(coordinator.kept(), 0);
    }

    #[test]
    fn settling_never_goes_back() {
        let mut coordinator = Coordinator::new(4, 10);
        for level in [0, 0, 1, 2, 3] {
            assert_eq!(coordinator.offer(Level(level)), Offer::Kept);
        }
        assert_eq!(coordinator.settle(Round(2)), 0..2);
        assert_eq!((coordinator.kept(), coordinator.round()), (2, Round(2)));
        assert_eq!(coordinator.settle(Round(1)), 2..2);
        assert_eq!(coordinator.settle(Round(9)), 2..4);
        assert_eq!(coordinator.kept(), 0);
    }
}
