//! Whether a coordinator kept what the group's budget asks for: section VI.C and appendix C of the paper, DESIGN section 6.
//!
//! The final round is no decision: it is `j* = min { j : the signed counters of levels >= j sum to at most B }`. A [`Tally`] adds up
//! the counters of the authentic seals that a manifest lists, and [`Tally::judge`] says whether the manifest's round is that one.
//! It judges the rounds that were announced, never those that devices took upon themselves. Which devices are missing, and
//! whether they restarted, is for the caller to find out from their chains ([`History`](crate::History)).

use crate::{Authentic, Seal};
use moteseal_core::named_errors;
use moteseal_core::record::{MAX_LEVELS, Round};

/// The signed counters of an epoch, over all devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    counts: [u64; MAX_LEVELS],
    levels: u8,
    budget: u64,
    announced: Round,
}

/// What the counters say of a final round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is the one that the counters ask for.
    Justified,
    /// It is not, and nothing that is not known could make it so.
    Unjustified(Finding),
    /// It would be another one for what is known, but a device whose counters are missing may have caused it, or might have
    /// asked for a higher one.
    Undetermined,
}

named_errors! {
    /// What a coordinator did wrong.
    Finding {
        /// More was kept than the budget allows.
        OverBudget {
            /// The manifest's round.
            round: Round,
            /// Events of the levels from this round on.
            kept: u64,
            /// The round that the counters require.
            due: Round,
        } => "round {round} keeps {kept} events; the budget requires round {due}",
        /// Less was kept than the budget allows.
        StoppedEarly {
            /// The manifest's round.
            round: Round,
            /// The round that the counters require.
            due: Round,
            /// Events that would have fitted.
            fitting: u64,
        } => "round {round}, although the {fitting} events of round {due} fit the budget",
        /// A round above the final one was announced to a device, so its events of the levels
        /// between are missing.
        RoundOverstated {
            /// The manifest's round.
            round: Round,
            /// The highest round that a device signed as announced to it.
            announced: Round,
        } => "round {announced} was announced to a device, but the epoch ended at round {round}",
    }
}

impl Tally {
    /// Nothing counted yet, in a group of `levels` levels (1 to 32) and this budget.
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

    /// Events of the levels from a round on, whether or not they arrived anywhere.
    #[must_use]
    pub fn from_round(&self, round: Round) -> u64 {
        self.counts[..usize::from(self.levels)].iter().skip(usize::from(round.0)).sum()
    }

    /// The round that the counters ask for: the first whose events fit the budget; the number of levels if none does.
    #[must_use]
    pub fn due(&self) -> Round {
        let fits = |&round: &u8| self.from_round(Round(round)) <= self.budget;
        Round((0..self.levels).find(fits).unwrap_or(self.levels))
    }

    /// Judges an epoch's final round, given what the chains of the devices say.
    pub fn judge(&self, round: Round, doubt: Doubt) -> Verdict {
        let due = self.due();
        // More counters can only ask for a higher round.
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

/// What the signed counters cannot tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubt {
    /// A device of the roster is neither listed to the end of the epoch, nor does its chain, as far as the coordinator has taken it, show
    /// that it was silent.
    pub missing: bool,
    /// A listed device restarted within the epoch, before it had closed it: events of a seal that it abandoned may have raised the round.
    pub restarted: bool,
}
