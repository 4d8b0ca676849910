//! The state of one chain at a node: which part of it was received, when to request the rest, and
//! when to advertise it.

use crate::recovery::early::EarlyLeaves;
use crate::recovery::meter::Draws;
use crate::recovery::settings::{LinkSet, Timing};
use crate::{ChainRef, Incoming, Outline};

/// The received part of a chain.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Progress<const B: usize> {
    /// The complete chain.
    Whole,
    /// The complete chain of the node's own; this many messages may be sent.
    Own { released: u32 },
    /// The chain is incomplete; the verifier knows what is missing.
    Under(Incoming<B>),
}

#[derive(Clone)]
pub(super) struct Tracked<const B: usize> {
    pub(super) outline: Outline,
    pub(super) reference: ChainRef,
    /// The fingerprint of the head.
    pub(super) head: u64,
    /// The base station and the serial of the certificate under which the chain was accepted.
    pub(super) base: u8,
    pub(super) serial: u64,
    pub(super) progress: Progress<B>,
    /// The number of chains that were accepted before it.
    pub(super) order: u32,
    /// The links on which it was received.
    pub(super) links: LinkSet,
    /// Other nodes have reported that they have every block up to this one. The report is not
    /// verified; a wrong one costs only requests.
    pub(super) out: u32,
    /// Requests had no effect: the node ignores `out` until one has.
    pub(super) is_doubted: bool,
    /// When this node last sent a request.
    pub(super) has_asked_at: Option<u64>,
    pub(super) ask: Ask,
    pub(super) trickle: Trickle,
    pub(super) early: EarlyLeaves,
    /// When a new item of the chain last arrived.
    pub(super) since: u64,
    /// When another node last requested a part of it.
    pub(super) asked: u64,
}

/// A mask with one bit for each of `leaves` leaves.
pub(super) const fn every(leaves: u8) -> u64 {
    match leaves {
        0 => 0,
        1..=63 => (1 << leaves) - 1,
        _ => u64::MAX,
    }
}

impl<const B: usize> Tracked<B> {
    /// The leaves of a block that the node has and may send.
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

    /// The first incomplete block and its missing leaves; `None` if the chain is complete.
    pub(super) const fn missing(&self) -> Option<(u32, u64)> {
        match &self.progress {
            Progress::Under(incoming) => Some((incoming.current(), incoming.missing())),
            Progress::Whole | Progress::Own { .. } => None,
        }
    }

    /// The last block and its last leaf.
    pub(super) const fn end(&self) -> (u32, u8) {
        let blocks = self.outline.blocks();
        (blocks, self.outline.in_block(blocks).saturating_sub(1))
    }

    /// Whether other nodes are reported to have the whole current block.
    fn is_reported_behind(&self) -> bool {
        self.missing().is_some_and(|(block, _)| self.out >= block)
    }

    /// Whether other nodes are reported to have more, and failed requests do not contradict it.
    pub(super) fn is_behind(&self) -> bool {
        self.is_reported_behind() && !self.is_doubted
    }

    /// Another node reports, or its frame implies, that every block up to `block` was sent.
    pub(super) fn hint(&mut self, block: u32, clock: u64, pace: &Pace, draws: &mut Draws) {
        let was_behind = self.is_reported_behind();
        self.out = self.out.max(block.min(self.outline.blocks()));
        if self.missing().is_some_and(|(missing, _)| block >= missing) {
            if !was_behind {
                // Requests from before any report do not show what the node that reports now has.
                self.ask.attempts = 0;
            }
            self.ask.hint(self.is_doubted, clock, pace, draws);
        }
    }

    /// A missing leaf has arrived.
    pub(super) fn note_arrival(
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
        // What arrives shortly after a request is an answer to it, so the other node has more.
        let window = u64::from(pace.retry_ms());
        self.is_doubted &=
            self.has_asked_at.is_none_or(|asked| clock.saturating_sub(asked) > window);
        self.ask = if self.missing().is_none() {
            Ask::NEVER
        } else if self.is_behind() {
            // A node is answering, so more leaves of this block may follow.
            let more = if block_is_verified { 0 } else { pace.timing.reply_ms };
            Ask::at(clock, more, pace.timing.request_ms, draws)
        } else {
            Ask::at(clock, pace.timing.quiet_ms, pace.timing.quiet_ms / 4, draws)
        };
    }

    /// A request was sent. If three earlier requests had no effect, the node assumes that the other
    /// nodes have no more than itself, whatever they reported.
    pub(super) fn has_asked(&mut self, clock: u64, pace: &Pace, draws: &mut Draws) {
        self.is_doubted |= self.is_reported_behind() && self.ask.attempts >= 3;
        self.has_asked_at = Some(clock);
        let first =
            if self.is_behind() { pace.retry_ms() } else { pace.retry_ms().saturating_mul(2) };
        self.ask.again(first, clock, pace, draws);
    }

    /// Whether no new item has arrived for so long that another chain may take the slot: four times
    /// the longest advertisement interval.
    pub(super) fn is_given_up(&self, clock: u64, timing: &Timing) -> bool {
        let patience = u64::from(timing.advertise_ms.1).saturating_mul(4);
        matches!(self.progress, Progress::Under(_)) && clock.saturating_sub(self.since) > patience
    }
}

/// The timing of a node, and the extra delay of relays.
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

/// The time of the next request for what is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) due: u64,
    attempts: u8,
    /// Another node has requested the same. This node postpones its own request once, to wait for
    /// the answers.
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

    /// Another node has more. If a request had no effect, it or its answer was lost, so the wait is
    /// not doubled further. An attacker that forges such hints makes a node send at most four
    /// requests after a genuine leaf, then one after each quiet time.
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

    /// Doubles the wait, starting with `first`. Stops requesting when it exceeds the longest
    /// interval.
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

    /// Another node has requested everything that this node lacks.
    pub(super) fn yield_once(&mut self, clock: u64, pace: &Pace, draws: &mut Draws) {
        if !self.has_yielded && self.due != u64::MAX {
            let later = Self::at(clock, pace.timing.reply_ms, pace.timing.request_ms, draws).due;
            if later > self.due {
                (self.due, self.has_yielded) = (later, true);
            }
        }
    }
}

/// When to advertise that a chain is complete: Trickle (RFC 6206) with `k = 1`, which stops after
/// its longest interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trickle {
    /// When this interval's advertisement is due; `u64::MAX` if there is none.
    pub(super) due: u64,
    /// When the interval began.
    start: u64,
    interval: u32,
    has_duplicate: bool,
    /// Consecutive intervals in which this node sent nothing because others did. Limited, so that
    /// a forger cannot silence a node for ever.
    silent: u8,
}

impl Trickle {
    pub(super) const OVER: Self =
        Self { due: u64::MAX, start: 0, interval: 0, has_duplicate: false, silent: 0 };

    /// Starts with the shortest interval, unless that interval is already running.
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

    /// Another node has sent the same advertisement.
    pub(super) const fn note_duplicate(&mut self, clock: u64) {
        if clock >= self.start {
            self.has_duplicate = true;
        }
    }

    /// The advertisement is due. Returns whether to send it, and begins the next interval.
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
