//! One chain at a node: how much of it is here, when to ask for the rest, and when to say that all of it is.

use crate::recovery::early::EarlyLeaves;
use crate::recovery::meter::Draws;
use crate::recovery::settings::{LinkSet, Timing};
use crate::{ChainRef, Incoming, Outline};

/// How much of a chain is here.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Progress<const B: usize> {
    /// All of it.
    Whole,
    /// All of it, for it is the node's own; so many messages may be said.
    Own { released: u32 },
    /// What the verifier says.
    Under(Incoming<B>),
}

#[derive(Clone)]
pub(super) struct Tracked<const B: usize> {
    pub(super) outline: Outline,
    pub(super) reference: ChainRef,
    /// What the node knows the head by.
    pub(super) head: u64,
    /// Under whose certificate it was accepted, and which.
    pub(super) base: u8,
    pub(super) serial: u64,
    pub(super) progress: Progress<B>,
    /// Chains accepted before it.
    pub(super) order: u32,
    /// The links it was heard on.
    pub(super) links: LinkSet,
    /// All up to this block is said to have been said: a hint, which costs requests and no more.
    pub(super) out: u32,
    /// Requests have brought nothing: what is said to be out is not believed until one does.
    pub(super) is_doubted: bool,
    /// When this node asked last.
    pub(super) has_asked_at: Option<u64>,
    pub(super) ask: Ask,
    pub(super) trickle: Trickle,
    pub(super) early: EarlyLeaves,
    /// When something new of it came last.
    pub(super) since: u64,
    /// When somebody asked for some of it last.
    pub(super) asked: u64,
}

/// A bit for each of so many leaves.
pub(super) const fn every(leaves: u8) -> u64 {
    match leaves {
        0 => 0,
        1..=63 => (1 << leaves) - 1,
        _ => u64::MAX,
    }
}

impl<const B: usize> Tracked<B> {
    /// The leaves of a block that are here and may be said.
    pub(super) fn held(&self, block: u32) -> u64 {
        let all = every(self.outline.in_block(block));
        match &self.progress {
            Progress::Whole => all,
            Progress::Own { released } => {
                let before = u64::from(block.saturating_sub(1)) * u64::from(self.outline.per_block);
                let here = u64::from(*released).saturating_sub(before).min(64);
                all & every(u8::try_from(here).unwrap_or(64))
            }
            Progress::Under(incoming) if block == incoming.current() => all & !incoming.missing(),
            Progress::Under(incoming) if block < incoming.current() => all,
            Progress::Under(_) => 0,
        }
    }

    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.progress, Progress::Whole)
    }

    /// Block and leaves that are missing next; nothing of a chain that is here.
    pub(super) const fn missing(&self) -> Option<(u32, u64)> {
        match &self.progress {
            Progress::Under(incoming) => Some((incoming.current(), incoming.missing())),
            Progress::Whole | Progress::Own { .. } => None,
        }
    }

    /// The last leaf of the last block.
    pub(super) const fn end(&self) -> (u32, u8) {
        let blocks = self.outline.blocks();
        (blocks, self.outline.in_block(blocks).saturating_sub(1))
    }

    /// Whether others are said to have all of the block under way.
    fn is_reported_behind(&self) -> bool {
        self.missing().is_some_and(|(block, _)| self.out >= block)
    }

    /// Whether they are, and requests have not shown otherwise.
    pub(super) fn is_behind(&self) -> bool {
        self.is_reported_behind() && !self.is_doubted
    }

    /// Somebody says, or it follows from what somebody says, that all up to a block has been said.
    pub(super) fn hint(&mut self, block: u32, clock: u64, pace: &Pace, draws: &mut Draws) {
        let was_behind = self.is_reported_behind();
        self.out = self.out.max(block.min(self.outline.blocks()));
        if self.missing().is_some_and(|(missing, _)| block >= missing) {
            if !was_behind {
                // What it asked for while nobody said anything shows nothing about whoever does now.
                self.ask.attempts = 0;
            }
            self.ask.hint(self.is_doubted, clock, pace, draws);
        }
    }

    /// A leaf has come that was missing.
    pub(super) fn came(
        &mut self,
        block_is_verified: bool,
        clock: u64,
        pace: &Pace,
        draws: &mut Draws,
    ) {
        if let Progress::Under(incoming) = &self.progress
            && incoming.is_complete()
        {
            self.progress = Progress::Whole;
        }
        self.since = clock;
        // What comes just when it was asked for is an answer: there is more where it came from.
        let window = u64::from(pace.retry_ms());
        self.is_doubted &=
            self.has_asked_at.is_none_or(|asked| clock.saturating_sub(asked) > window);
        self.ask = if self.missing().is_none() {
            Ask::NEVER
        } else if self.is_behind() {
            // Somebody is answering: of this block there may be more to come.
            let more = if block_is_verified { 0 } else { pace.timing.reply_ms };
            Ask::at(clock, more, pace.timing.request_ms, draws)
        } else {
            Ask::at(clock, pace.timing.quiet_ms, pace.timing.quiet_ms / 4, draws)
        };
    }

    /// The request is on its way. Three before it that brought nothing show that others have no more than this node, whatever somebody said.
    pub(super) fn has_asked(&mut self, clock: u64, pace: &Pace, draws: &mut Draws) {
        self.is_doubted |= self.is_reported_behind() && self.ask.attempts >= 3;
        self.has_asked_at = Some(clock);
        let first =
            if self.is_behind() { pace.retry_ms() } else { pace.retry_ms().saturating_mul(2) };
        self.ask.again(first, clock, pace, draws);
    }

    /// Whether nothing new of it has come for so long that others may have its place: four times the longest interval of advertisements.
    pub(super) fn is_given_up(&self, clock: u64, timing: &Timing) -> bool {
        let patience = u64::from(timing.advertise_ms.1).saturating_mul(4);
        matches!(self.progress, Progress::Under(_)) && clock.saturating_sub(self.since) > patience
    }
}

/// The times of a node, and how long what was said travels on by relays.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) timing: Timing,
    pub(super) settle_ms: u32,
}

impl Pace {
    pub(super) const fn retry_ms(&self) -> u32 {
        self.timing.request_ms.saturating_add(self.timing.reply_ms).saturating_add(self.settle_ms)
    }
}

/// When to ask for what is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) due: u64,
    attempts: u8,
    /// Somebody else has asked for the same, and the own request waits, once, for what comes of that.
    has_yielded: bool,
}

impl Ask {
    pub(super) const NEVER: Self = Self { due: u64::MAX, attempts: 0, has_yielded: false };

    pub(super) fn at(clock: u64, after_ms: u32, within_ms: u32, draws: &mut Draws) -> Self {
        let due = clock
            .saturating_add(u64::from(after_ms))
            .saturating_add(u64::from(draws.below(within_ms)));
        Self { due, attempts: 0, has_yielded: false }
    }

    /// There is more to be had, and somebody is there to say it: a request that brought nothing was lost, or its answer was, and is not put
    /// off for longer and longer. Whoever forges that makes a node ask until it doubts, four times after a genuine leaf, and then once after
    /// each silence.
    fn hint(&mut self, is_doubted: bool, clock: u64, pace: &Pace, draws: &mut Draws) {
        let within = pace.timing.request_ms;
        let after = match self.attempts {
            _ if is_doubted => pace.timing.quiet_ms,
            0 => pace.settle_ms,
            _ => pace.retry_ms(),
        };
        if self.due > clock.saturating_add(u64::from(after)).saturating_add(u64::from(within)) {
            self.due = Self::at(clock, after, within, draws).due;
        }
    }

    /// Doubles the wait, from `first`, and ends it beyond the longest.
    pub(super) fn again(&mut self, first: u32, clock: u64, pace: &Pace, draws: &mut Draws) {
        let wait = u64::from(first) << self.attempts.min(31);
        self.attempts = self.attempts.saturating_add(1);
        self.has_yielded = false;
        self.due = if wait > u64::from(pace.timing.advertise_ms.1) {
            u64::MAX
        } else {
            clock
                .saturating_add(wait)
                .saturating_add(u64::from(draws.below(pace.timing.request_ms)))
        };
    }

    /// Somebody else has asked for all of it.
    pub(super) fn yield_once(&mut self, clock: u64, pace: &Pace, draws: &mut Draws) {
        if !self.has_yielded && self.due != u64::MAX {
            let later = Self::at(clock, pace.timing.reply_ms, pace.timing.request_ms, draws).due;
            if later > self.due {
                (self.due, self.has_yielded) = (later, true);
            }
        }
    }
}

/// When to say that all of a chain is here: Trickle (RFC 6206) with `k = 1`, which ends after its longest interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trickle {
    /// When this interval's advertisement is due; never if there is none.
    pub(super) due: u64,
    /// When it began.
    start: u64,
    interval: u32,
    has_duplicate: bool,
    /// Intervals in a row in which others spoke: a forger must not silence a node for good.
    silent: u8,
}

impl Trickle {
    pub(super) const OVER: Self =
        Self { due: u64::MAX, start: 0, interval: 0, has_duplicate: false, silent: 0 };

    /// From the shortest interval on, if it is not the one that runs.
    pub(super) fn start(&mut self, clock: u64, timing: &Timing, draws: &mut Draws) {
        if self.due == u64::MAX || self.interval != timing.advertise_ms.0 {
            *self = Self { interval: timing.advertise_ms.0, ..Self::OVER };
            self.begin(clock, draws);
        }
    }

    fn begin(&mut self, start: u64, draws: &mut Draws) {
        let half = self.interval / 2;
        self.start = start;
        self.due = start
            .saturating_add(u64::from(half))
            .saturating_add(u64::from(draws.below(self.interval - half)));
        self.has_duplicate = false;
    }

    /// Somebody else has said it.
    pub(super) const fn note_duplicate(&mut self, clock: u64) {
        if clock >= self.start {
            self.has_duplicate = true;
        }
    }

    /// The advertisement is due: whether it is said. The next interval begins.
    pub(super) fn fire(&mut self, timing: &Timing, draws: &mut Draws) -> bool {
        let sends = !self.has_duplicate || self.silent >= 2;
        self.silent = if sends { 0 } else { self.silent + 1 };
        let end = self.start.saturating_add(u64::from(self.interval));
        self.interval = self.interval.saturating_mul(2);
        if self.interval > timing.advertise_ms.1 || self.interval == 0 {
            self.due = u64::MAX;
        } else {
            self.begin(end, draws);
        }
        sends
    }
}
