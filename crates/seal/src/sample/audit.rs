//! Checks whether a coordinator kept the events that the group's budget requires (section VI.C and
//! appendix C of the paper).
//!
//! The final round is determined by the signed counters: `j* = min { j : the signed counters of
//! levels >= j sum to at most B }`. A [`Tally`] adds up the counters of the authentic seals that a
//! manifest lists, and [`Tally::verdict`] compares the manifest's round with the result. The audit
//! checks only announced rounds, not the higher rounds that devices may choose for themselves. The
//! caller determines from the devices' chains which devices are missing and which have restarted
//! ([`History`](crate::History)).

use crate::seal::{Authentic, Seal};
use moteseal_core::named_errors;
use moteseal_core::record::{MAX_LEVELS, Round};

/// The sum of the signed counters of an epoch over all devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    counts: [u64; MAX_LEVELS],
    levels: u8,
    budget: u64,
    announced: Round,
}

/// The result of checking a final round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The round is the one that the counters require.
    Justified,
    /// The round is wrong, whatever the unknown counters are.
    Unjustified(Finding),
    /// The result depends on counters that are not known: the counters of a missing device, or of a
    /// seal that a device abandoned when it restarted. With these counters, the required round may
    /// be the manifest's round or another one.
    Undetermined,
}

named_errors! {
    /// What a coordinator did wrong.
    Finding {
        /// The coordinator kept more than the budget allows.
        OverBudget {
            /// The manifest's round.
            round: Round,
            /// The number of events at the levels from this round on.
            kept: u64,
            /// The round that the counters require.
            due: Round,
        } => "round {round} keeps {kept} events; the budget requires round {due}",
        /// The coordinator kept less than the budget allows.
        StoppedEarly {
            /// The manifest's round.
            round: Round,
            /// The round that the counters require.
            due: Round,
            /// The number of events at the levels from the required round on, which would have
            /// fitted the budget.
            fitting: u64,
        } => "the final round is {round}, but the {fitting} events of round {due} fit the budget",
        /// A round above the final round was announced to a device. The device dropped its events
        /// of the levels in between, so they are missing.
        RoundOverstated {
            /// The manifest's round.
            round: Round,
            /// The highest announced round that a device has signed.
            announced: Round,
        } => "round {announced} was announced to a device, but the epoch ended at round {round}",
    }
}

impl Tally {
    /// Creates a tally without counters for a group with this budget and `levels` levels (1 to 32).
    #[must_use]
    pub const fn new(levels: u8, budget: u64) -> Self {
        Self { counts: [0; MAX_LEVELS], levels, budget, announced: Round(0) }
    }

    /// Adds a seal that the manifest lists.
    pub fn add(&mut self, seal: &Seal<Authentic>) {
        let statement = seal.statement();
        for (total, &count) in self.counts.iter_mut().zip(statement.counters.as_slice()) {
            *total += u64::from(count);
        }
        self.announced = self.announced.max(statement.round);
    }

    /// Returns the number of events at the levels from `round` on, whether or not they were
    /// forwarded.
    #[must_use]
    pub fn from_round(&self, round: Round) -> u64 {
        self.counts[..usize::from(self.levels)].iter().skip(usize::from(round.0)).sum()
    }

    /// Returns the round that the counters require: the lowest round whose events fit the budget,
    /// or the number of levels if there is no such round.
    #[must_use]
    pub fn due(&self) -> Round {
        let fits = |&round: &u8| self.from_round(Round(round)) <= self.budget;
        Round((0..self.levels).find(fits).unwrap_or(self.levels))
    }

    /// Checks an epoch's final round. `doubt` states what the devices' chains do not show.
    pub fn verdict(&self, round: Round, doubt: Doubt) -> Verdict {
        let due = self.due();
        // Unknown counters can only raise the required round.
        if round < due {
            return Verdict::Unjustified(Finding::OverBudget {
                round,
                kept: self.from_round(round),
                due,
            });
        }
        if self.announced > round {
            return Verdict::Unjustified(Finding::RoundOverstated {
                round,
                announced: self.announced,
            });
        }
        if doubt.missing || (doubt.restarted && round > due) {
            return Verdict::Undetermined;
        }
        if round > due {
            return Verdict::Unjustified(Finding::StoppedEarly {
                round,
                due,
                fitting: self.from_round(due),
            });
        }
        Verdict::Justified
    }
}

/// What the signed counters cannot show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    /// A device of the roster may have seals of the epoch that the manifest does not list. The part
    /// of the device's chain that the coordinator has received does not show that there are no such
    /// seals.
    pub missing: bool,
    /// A listed device restarted within the epoch, before its last seal. It may have abandoned a
    /// seal at that time, and the events of that seal may have raised the round.
    pub restarted: bool,
}
