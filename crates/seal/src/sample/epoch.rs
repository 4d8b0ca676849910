//! Checks that an epoch is complete, and determines what its parts together must contain
//! (spec/answers.md, section 4).
//!
//! The choices [`AtMost`](crate::sample::Choice::AtMost) and
//! [`Sample`](crate::sample::Choice::Sample) depend on all parts of an epoch. If a sender could
//! omit the last parts, it could choose among as many samples as there are parts. What the parts
//! must contain is therefore computed only from a [`WholeEpoch`].

use crate::engine::Engine;
use crate::sample::choice::{ChoiceError, EpochCounts, UniformSample};
use crate::sample::permutation::Swap;
use crate::sample::{Sample, Select, existing};
use crate::seal::{Authentic, Seal};
use moteseal_core::named_errors;
use moteseal_core::record::Scheme;
use moteseal_core::record::{Round, Sequence};

named_errors! {
    /// Why parts are not known to be a whole epoch.
    EpochError {
        /// A part is missing before or between the given parts, or one of the given parts belongs
        /// to another device or epoch.
        Missing => "a part of the epoch is missing",
        /// A part follows the part that closed the epoch.
        EpochClosed => "a part of the epoch follows the part that the device marked as its last",
        /// The last part does not close the epoch, and no seal of a later epoch shows that it was
        /// the last part.
        TailUnknown => "it is not known whether the epoch has further parts",
    }
}

/// All parts of one epoch of one device, without a missing part.
///
/// Only [`new`](Self::new) creates a `WholeEpoch`:
///
/// ```compile_fail
/// use moteseal_seal::sample::epoch::WholeEpoch;
/// let hand_picked = WholeEpoch { parts: &[] };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WholeEpoch<'e> {
    parts: &'e [Seal<Authentic>],
}

impl<'e> WholeEpoch<'e> {
    /// Checks that `parts`, ordered by index, are all parts of their epoch. The first part must not
    /// name a predecessor of the same epoch, and each other part must name the part before it. The
    /// last part must close the epoch or be the predecessor of `next`, a seal of a later epoch.
    ///
    /// # Errors
    /// [`EpochError`]. If there are no parts, `Missing`.
    pub fn new(
        parts: &'e [Seal<Authentic>],
        next: Option<&Seal<Authentic>>,
    ) -> Result<Self, EpochError> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Err(EpochError::Missing);
        };
        let epoch = first.statement().epoch;
        if first.statement().last.is_some_and(|(_, before)| before >= epoch) {
            return Err(EpochError::Missing);
        }
        let follows = |before: &Seal<Authentic>, after: &Seal<Authentic>| {
            after.statement().device == before.statement().device
                && after.statement().prev == before.digest()
        };
        for (before, after) in parts.iter().zip(parts.iter().skip(1)) {
            if after.statement().epoch != epoch || !follows(before, after) {
                return Err(EpochError::Missing);
            }
            if before.statement().last_in_epoch {
                return Err(EpochError::EpochClosed);
            }
        }
        let ended = |next: &Seal<Authentic>| next.statement().epoch > epoch && follows(last, next);
        if last.statement().last_in_epoch || next.is_some_and(ended) {
            Ok(Self { parts })
        } else {
            Err(EpochError::TailUnknown)
        }
    }

    /// Returns the parts, by ascending index.
    #[must_use]
    pub const fn parts(&self) -> &'e [Seal<Authentic>] {
        self.parts
    }

    /// Returns the number of events of each level in the epoch.
    #[must_use]
    pub fn counts(&self) -> EpochCounts {
        let mut counts = EpochCounts::new(
            self.parts.first().map_or(1, |part| part.statement().counters.levels()),
        );
        self.parts.iter().for_each(|part| counts.add(part.statement()));
        counts
    }

    /// Returns what the parts must contain if at most `m` events were requested
    /// ([`Choice::AtMost`](crate::sample::Choice::AtMost)).
    #[must_use]
    pub fn at_most(&self, m: u64) -> Forced<'e> {
        Forced { parts: self.parts, select: Selected::Levels(self.counts().at_most(m)) }
    }

    /// Returns the number of events of each level in an epoch that was kept within a budget and
    /// ended at `round`. Levels below `round` count as missing.
    #[must_use]
    pub fn counts_from(&self, round: Round) -> EpochCounts {
        let mut counts = EpochCounts::at_round(
            self.parts.first().map_or(1, |part| part.statement().counters.levels()),
            round,
        );
        self.parts.iter().for_each(|part| counts.add(part.statement()));
        counts
    }

    /// Returns what the parts must contain if at most `m` events were requested, and the epoch was
    /// kept within a budget and ended at `round`.
    #[must_use]
    pub fn at_most_from(&self, round: Round, m: u64) -> Forced<'e> {
        Forced { parts: self.parts, select: Selected::Levels(self.counts_from(round).at_most(m)) }
    }

    /// Returns what the parts must contain if a sample of `count` events with this seed was
    /// requested ([`Choice::Sample`](crate::sample::Choice::Sample)), and the epoch ended at
    /// `round` (0 without a budget). `chosen` receives the positions of the selected events. It
    /// must have room for `count` or for all [existing](EpochCounts::existing) events, whichever is
    /// smaller. `scratch` must have the size that [`choose`](crate::sample::permutation::choose)
    /// requires.
    ///
    /// # Errors
    /// `SchemeMismatch` if a part is not a tree; `ScratchTooSmall` if `chosen` or `scratch` is too
    /// small.
    pub fn draw<'m>(
        &self,
        engine: &impl Engine,
        round: Round,
        (count, seed): (u32, &[u8; 32]),
        chosen: &'m mut [u64],
        scratch: &mut [Swap],
    ) -> Result<Forced<'m>, ChoiceError>
    where
        'e: 'm,
    {
        if self.parts.iter().any(|part| part.statement().scheme != Scheme::Tree) {
            return Err(ChoiceError::SchemeMismatch);
        }
        let counts = self.counts_from(round);
        let drawn = usize::try_from(counts.existing().min(count.into()))
            .map_err(|_| ChoiceError::ScratchTooSmall)?;
        let chosen = chosen.get_mut(..drawn).ok_or(ChoiceError::ScratchTooSmall)?;
        let parts = self.parts.iter().map(Seal::statement);
        let chosen = existing::draw(engine, parts, counts.surviving(), seed, chosen, scratch)
            .map_err(|_| ChoiceError::ScratchTooSmall)?;
        Ok(Forced { parts: self.parts, select: Selected::Events(chosen) })
    }
}

/// What the parts of an epoch must contain. It is computed from all parts, so that the sender has
/// no choice.
///
/// A caller cannot pass a mask or a list of events instead:
///
/// ```compile_fail
/// use moteseal_seal::sample::epoch::ForcedPart;
/// # use moteseal_seal::stream::Select;
/// # fn of(seal: &moteseal_seal::Seal<moteseal_seal::Authentic>) {
/// let hand_picked = ForcedPart { seal, start: 0, select: Select::Levels(1) };
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Forced<'e> {
    parts: &'e [Seal<Authentic>],
    select: Selected<'e>,
}

#[derive(Clone, Copy, Debug)]
enum Selected<'e> {
    Levels(u32),
    /// Ascending positions within the epoch. A [`ForcedPart`] has only the positions of the events
    /// of that part.
    Events(&'e [u64]),
}

impl<'e> Forced<'e> {
    /// Returns what each part must contain, by ascending index.
    pub fn parts(&self) -> impl Iterator<Item = ForcedPart<'e>> + use<'e> {
        let (mut rest, mut start) = (self.select, 0);
        self.parts.iter().map(move |seal| {
            let statement = seal.statement();
            let first = start;
            start += statement.counters.total();
            let select = match rest {
                Selected::Levels(mask) => Selected::Levels(mask & statement.surviving()),
                Selected::Events(positions) => {
                    let (mine, others) =
                        positions.split_at(positions.partition_point(|&position| position < start));
                    rest = Selected::Events(others);
                    Selected::Events(mine)
                }
            };
            ForcedPart { seal, start: first, select }
        })
    }
}

/// What one part of a whole epoch must contain.
#[derive(Clone, Copy, Debug)]
pub struct ForcedPart<'e> {
    seal: &'e Seal<Authentic>,
    /// The position of the part's first event in the epoch.
    start: u64,
    select: Selected<'e>,
}

impl<'e> ForcedPart<'e> {
    /// Returns the part's seal.
    #[must_use]
    pub const fn seal(&self) -> &'e Seal<Authentic> {
        self.seal
    }

    /// Checks that a sample belongs to this part and is exactly what the part must contain.
    ///
    /// # Errors
    /// `NotAsAsked`.
    pub fn check<'a>(
        &self,
        sample: Sample<'a, Authentic>,
    ) -> Result<UniformSample<'a>, ChoiceError> {
        let forced = match (self.select, &sample.select) {
            (Selected::Levels(mask), Select::Levels(selected)) => mask == *selected,
            (Selected::Events(positions), Select::Events(gaps)) => {
                positions.iter().map(|position| Sequence(position - self.start)).eq(gaps.iter())
            }
            (Selected::Events(positions), Select::Levels(mask)) => {
                *mask == 0 && positions.is_empty()
            }
            (Selected::Levels(_), Select::Events(_)) => false,
        };
        if forced && sample.seal == self.seal.digest() {
            Ok(UniformSample::forced(sample))
        } else {
            Err(ChoiceError::NotAsAsked)
        }
    }
}
