//! The state of one chain at a node: which part of the chain the node has received, when to request
//! the rest, and when to advertise the chain.

use crate::recovery::early::EarlyLeaves;
use crate::recovery::meter::Draws;
use crate::recovery::settings::{LinkSet, Timing};
use crate::{ChainRef, Incoming, Outline};

/// The received part of a chain.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)]
pub(super) enum Progress<const B: usize> {
    /// The node has received the complete chain.
    Whole,
    /// The chain is the node's own. The first `released` messages may be sent.
    Own { released: u32 },
    /// The chain is incomplete. The verifier records which leaves are missing.
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
    /// The number of entries that the node had added before this chain.
    pub(super) order: u32,
    /// The links on which it was received.
    pub(super) links: LinkSet,
    /// The highest block that other nodes report as sent. A report covers all earlier blocks as
    /// well. The reports are not verified. A false report only makes the node send useless
    /// requests.
    pub(super) out: u32,
    /// Whether the recent requests had no effect. If so, the node ignores `out` until a request has
    /// an effect.
    pub(super) is_doubted: bool,
    /// When this node last sent a request.
    pub(super) has_asked_at: Option<u64>,
    pub(super) ask: Ask,
    pub(super) trickle: Trickle,
    pub(super) early: EarlyLeaves,
    /// When a new item of the chain last arrived.
    pub(super) since: u64,
    /// The link on which the newest leaf arrived.
    pub(super) newest_on: Option<u8>,
    /// When this node last queued an answer to a request for leaves of the chain.
    pub(super) asked: u64,
}

/// Returns a mask with the lowest `leaves` bits set.
pub(super) const fn every(leaves: u8) -> u64 {
    match leaves {
        0 => 0,
        1..=63 => (1 << leaves) - 1,
        _ => u64::MAX,
    }
}

impl<const B: usize> Tracked<B> {
    /// Returns the leaves of a block that the node has and may send.
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

    /// Returns the first incomplete block and its missing leaves; `None` if the chain is complete.
    pub(super) const fn missing(&self) -> Option<(u32, u64)> {
        match &self.progress {
            Progress::Under(incoming) => Some((incoming.current(), incoming.missing())),
            Progress::Whole | Progress::Own { .. } => None,
        }
    }

    /// Returns the number of the last block and the index of its last leaf.
    pub(super) const fn end(&self) -> (u32, u8) {
        let blocks = self.outline.blocks();
        (blocks, self.outline.in_block(blocks).saturating_sub(1))
    }

    /// Returns whether other nodes are reported to have the whole current block.
    fn is_reported_behind(&self) -> bool {
        self.missing().is_some_and(|(block, _)| self.out >= block)
    }

    /// Returns whether other nodes are reported to have the whole current block. Returns false if
    /// recent requests had no effect, because the reports are then doubtful.
    pub(super) fn is_behind(&self) -> bool {
        self.is_reported_behind() && !self.is_doubted
    }

    /// Records that every block up to `block` was sent. A frame of another node states or implies
    /// this.
    pub(super) fn hint(&mut self, block: u32, clock: u64, pace: &Pace, draws: &mut Draws) {
        let was_behind = self.is_reported_behind();
        self.out = self.out.max(block.min(self.outline.blocks()));
        if self.missing().is_some_and(|(missing, _)| block >= missing) {
            if !was_behind {
                // Requests before this first report went to nodes that may not have had the block,
                // so their failure does not count.
                self.ask.attempts = 0;
            }
            self.ask.hint(self.is_doubted, clock, pace, draws);
        }
    }

    /// Updates the state after a missing leaf has arrived.
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
        // A leaf that arrives shortly after a request is an answer to it, so another node does have
        // more, and the doubt ends.
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

    /// Updates the state after a request was sent. If three earlier requests had no effect, the
    /// node assumes that the reports are false, and that the other nodes have no more of the chain
    /// than this node has.
    pub(super) fn has_asked(&mut self, clock: u64, pace: &Pace, draws: &mut Draws) {
        self.is_doubted |= self.is_reported_behind() && self.ask.attempts >= 3;
        self.has_asked_at = Some(clock);
        let first =
            if self.is_behind() { pace.retry_ms() } else { pace.retry_ms().saturating_mul(2) };
        self.ask.again(first, clock, pace, draws);
    }

    /// Returns whether the node gives up an incomplete chain, so that another chain may use its
    /// slot. This happens when no new item has arrived for four times the longest advertisement
    /// interval.
    pub(super) fn is_given_up(&self, clock: u64, timing: &Timing) -> bool {
        let patience = u64::from(timing.advertise_ms.1).saturating_mul(4);
        matches!(self.progress, Progress::Under(_)) && clock.saturating_sub(self.since) > patience
    }
}

/// The timing of a node. `settle_ms` is the longest time for which other nodes delay relaying an
/// item.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) timing: Timing,
    pub(super) settle_ms: u32,
}

impl Pace {
    pub(super) const fn retry_ms(&self) -> u32 {
        self.timing
            .request_ms
            .saturating_add(self.timing.answer_ms())
            .saturating_add(self.settle_ms)
    }
}

/// The time of the next request for missing items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) due: u64,
    attempts: u8,
    /// Whether this node has already postponed its request because another node requested the same
    /// items. A node does so only once, to wait for the answers.
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

    /// Schedules an earlier request because another node is reported to have more. If an earlier
    /// request had no effect, the request or its answer was probably lost, so the wait does not
    /// grow further. If an attacker forges such reports, the node sends at most four requests after
    /// a genuine leaf, and then one after each quiet time.
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

    /// Schedules the next request. The wait starts with `first` and doubles each time. Requests
    /// stop when the wait exceeds the longest interval.
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

    /// Postpones the request once, because another node has requested everything that this node
    /// lacks.
    pub(super) fn yield_once(&mut self, clock: u64, pace: &Pace, draws: &mut Draws) {
        if !self.has_yielded && self.due != u64::MAX {
            let later = Self::at(clock, pace.timing.answer_ms(), pace.timing.request_ms, draws).due;
            if later > self.due {
                (self.due, self.has_yielded) = (later, true);
            }
        }
    }
}

/// The times at which a node advertises a complete chain. The algorithm is Trickle (RFC 6206) with
/// `k = 1`, except that it stops after the longest interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trickle {
    /// When this interval's advertisement is due; `u64::MAX` if the node does not advertise.
    pub(super) due: u64,
    /// When the interval began.
    start: u64,
    interval: u32,
    has_duplicate: bool,
    /// The number of consecutive intervals in which this node sent no advertisement because another
    /// node sent one. It is limited, so that a forger cannot silence a node for ever.
    silent: u8,
}

impl Trickle {
    pub(super) const OVER: Self =
        Self { due: u64::MAX, start: 0, interval: 0, has_duplicate: false, silent: 0 };

    /// Starts again with the shortest interval, unless that interval is already running.
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

    /// Records that another node has sent the same advertisement.
    pub(super) const fn note_duplicate(&mut self, clock: u64) {
        if clock >= self.start {
            self.has_duplicate = true;
        }
    }

    /// Ends the current interval when its advertisement is due, and begins the next one. Returns
    /// whether to send the advertisement.
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
