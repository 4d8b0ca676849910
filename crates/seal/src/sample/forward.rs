//! The device's side of sampling within a budget: Algorithm 1 of the paper (section V.A) over a
//! lossy link. This module also contains the state with which the coordinator follows a device
//! (spec/coordinator.md, section 1; docs/design.md, section on sampling).
//!
//! A [`Forwarder`] buffers the events of one open seal whose levels are at or above the device's
//! round, until the coordinator acknowledges that it has stored them durably. For a tree, it also
//! buffers the roots of the subtrees between these events. It never drops an event silently. If the
//! buffer is full, the device raises its own round, which the seal states. If an event does not fit
//! and the round cannot be raised further, the event is lost in a star; in a tree, the seal ends.
//!
//! Memory is fixed and there is no clock. The caller decides when to send and when to
//! [`rewind`](Forwarder::rewind).

use core::fmt;

use crate::level::Counters;
use crate::sample::buffer::{Buffer, HEAD, Kind};
use crate::statement::Lost;
use crate::wire::{Acknowledgement, Forward, MAX_RECORD, encode_event};
use moteseal_core::cbor::{BufferTooSmall, Writer};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Level, Round, SealIndex, Sequence};

/// The events of one open seal that a device forwards, in a buffer of `N` bytes. An event takes its
/// length plus 7 bytes, and the root of a subtree takes 39 bytes.
#[derive(Clone, Hash)]
pub struct Forwarder<const N: usize> {
    index: SealIndex,
    epoch: EpochNumber,
    scheme: Scheme,
    framing: Framing,
    announced: Round,
    own: Round,
    lost: Counters,
    /// The number of events so far, which is also the sequence number of the next event.
    noted: u32,
    /// The first event that is not known to be durable. In a star, `sent` is the first event that
    /// has not been sent since the last rewind. In a tree, that event follows from the buffer,
    /// which has no gaps.
    acknowledged: u32,
    sent: u32,
    /// Whether the seal has ended, so that no more events follow.
    is_over: bool,
    /// Whether all events are forwarded, and no roots of a tree's subtrees.
    sends_all: bool,
    buffer: Buffer<N>,
}

/// The result of adding an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Noted {
    /// The event's level is below the device's round. The event will not be forwarded.
    Below,
    /// The event will be forwarded.
    Buffered,
    /// The device has raised its own round to this round to make room. The event will be forwarded,
    /// unless its level is below the new round.
    Raised(Round),
    /// The event does not fit at any round. All events of its level are lost, and the seal will
    /// state this.
    Lost,
    /// The event was not accepted, because no sequence number is left, or because the buffer of a
    /// tree is full and a tree cannot state losses. Close the seal and continue under the next
    /// index.
    Full,
}

impl<const N: usize> fmt::Debug for Forwarder<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder")
            .field("index", &self.index)
            .field("noted", &self.noted)
            .field("acknowledged", &self.acknowledged)
            .field("own_round", &self.own)
            .finish_non_exhaustive()
    }
}

impl<const N: usize> Forwarder<N> {
    /// Creates the forwarder of a new seal in a group of `levels` levels. `announced` is the
    /// highest round that was announced to the device for this epoch, or 0 if none was.
    #[must_use]
    pub fn new(
        index: SealIndex,
        epoch: EpochNumber,
        (scheme, framing): (Scheme, Framing),
        levels: u8,
        announced: Round,
    ) -> Self {
        let announced = announced.min(Round(levels.saturating_sub(1)));
        Self {
            index,
            epoch,
            scheme,
            framing,
            announced,
            own: announced,
            lost: Counters::new(levels),
            noted: 0,
            acknowledged: 0,
            sent: 0,
            is_over: false,
            sends_all: false,
            buffer: Buffer::new(),
        }
    }

    /// Forwards all events of a tree, also those below the round, and no roots of subtrees. A device
    /// with column groups does, because the coordinator needs the leaves of each group's tree
    /// (spec/coordinator.md, section 4.3).
    #[must_use]
    pub const fn with_all_events(mut self) -> Self {
        self.sends_all = true;
        self
    }

    /// Adds the seal's next event, at the level that `Star::push` or the salt determined.
    pub fn note(&mut self, level: Level, record: &[u8]) -> Noted {
        let (seq, before) = (self.noted, self.own);
        if !self.make_room(level, record) {
            return Noted::Full;
        }
        self.noted += 1;
        if level.0 < self.own.0 && !self.sends_all {
            if self.scheme == Scheme::Tree {
                self.buffer.skip(seq, level, record);
            }
            return if self.own == before { Noted::Below } else { Noted::Raised(self.own) };
        }
        if self.scheme == Scheme::Star {
            // If even the empty buffer is too small, raising the round would not help, and would
            // only discard the buffer's content.
            if self.is_lost(level) || HEAD + record.len() > N || record.len() > MAX_RECORD {
                return self.lose(level);
            }
            while !self.buffer.has_room(HEAD + record.len()) {
                if !self.raise() {
                    return self.lose(level);
                }
                if level.0 < self.own.0 {
                    return Noted::Raised(self.own);
                }
            }
        }
        self.buffer.push(seq, level, record);
        if self.own == before { Noted::Buffered } else { Noted::Raised(self.own) }
    }

    /// Returns whether [`note`](Self::note) would accept the seal's next event. If a tree's buffer
    /// is full and a higher round makes room, raises the device's own round, as `note` would. An
    /// empty buffer has room for every record of at most [`MAX_RECORD`] and at most `N - 7` bytes.
    pub fn make_room(&mut self, level: Level, record: &[u8]) -> bool {
        if self.noted == u32::MAX {
            return false;
        }
        if self.scheme == Scheme::Star {
            return true;
        }
        let length = |round: u8| {
            if level.0 >= round || self.sends_all {
                HEAD + record.len()
            } else {
                Buffer::<N>::skipped_length(record)
            }
        };
        let fits = |round: u8, used: usize| {
            let is_skipped = level.0 < round && !self.sends_all;
            used + length(round) <= N && (is_skipped || record.len() <= MAX_RECORD)
        };
        if fits(self.own.0, self.buffer.used()) {
            return true;
        }
        if self.sends_all {
            return false;
        }
        // If no round makes room, reject the event. The caller then closes the seal with its
        // current content.
        let Some(round) = (self.own.0 + 1..self.lost.levels())
            .find(|round| fits(*round, self.buffer.collapsed(*round)))
        else {
            return false;
        };
        self.own.0 = round;
        self.drop_below(self.own);
        true
    }

    fn is_lost(&self, level: Level) -> bool {
        self.lost.at(level) > 0
    }

    /// Discards an event and all other events of its level under this seal, because an incomplete
    /// block is never served.
    fn lose(&mut self, level: Level) -> Noted {
        let dropped = self.buffer.retain(|entry| entry.kind != Kind::Record(level));
        if let Some(lost) = self.lost.as_mut_slice().get_mut(usize::from(level.0)) {
            *lost += dropped + 1;
        }
        Noted::Lost
    }

    /// Raises the device's own round by one. Returns `false` if the round is already the last
    /// level.
    fn raise(&mut self) -> bool {
        let is_last = self.own.0 + 1 >= self.lost.levels();
        if !is_last {
            self.own.0 += 1;
            self.drop_below(self.own);
        }
        !is_last
    }

    fn drop_below(&mut self, round: Round) {
        match self.scheme {
            Scheme::Star => _ = self.buffer.retain(|entry| entry.is_at_least(round.0)),
            Scheme::Tree if self.sends_all => {}
            Scheme::Tree => self.buffer.collapse(0, round.0),
        }
    }

    /// Raises the round to `round`, which the coordinator has announced for this epoch. Returns
    /// whether it is higher than every round announced before. Rounds never decrease, and the
    /// highest round is the last level.
    pub fn announced(&mut self, round: Round) -> bool {
        let round = round.min(Round(self.lost.levels().saturating_sub(1)));
        let is_news = round > self.announced;
        if is_news {
            self.announced = round;
            if round > self.own {
                self.own = round;
                self.drop_below(round);
            }
        }
        is_news
    }

    /// Ends the seal: no more events follow. The last entries of a tree may then be sent.
    pub fn end(&mut self) {
        self.is_over = true;
        self.buffer.end();
    }

    /// Writes the events of the next frame to `scratch`, whose length limits the events and a
    /// tree's digests. Returns `None` if there is nothing to send.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if not even one event fits `scratch`.
    pub fn next_frame<'s>(
        &mut self,
        scratch: &'s mut [u8],
    ) -> Result<Option<Forward<'s>>, BufferTooSmall> {
        let is_tree = self.scheme == Scheme::Tree;
        let sendable = self.buffer.sendable(!is_tree || self.is_over);
        let first = self.buffer.first_unsent().filter(|entry| entry.at < sendable);
        let from = match (self.scheme, first) {
            (Scheme::Star, _) if self.sent < self.noted => self.sent,
            (Scheme::Tree, Some(first)) => first.start,
            _ => return Ok(None),
        };
        let start = first.map_or(sendable, |first| first.at);
        let (room, mut out, mut digests) = (scratch.len(), Writer::new(scratch), 0);
        let (mut at, mut next, mut behind, mut cut) = (start, from, from, None);
        while let Some(entry) = self.buffer.entry(at).filter(|entry| entry.at < sendable) {
            let (before, record) = (out.position(), self.buffer.content(&entry));
            let is_in = match entry.kind {
                Kind::Record(level) => {
                    let prefix = self.framing.prefix(record).flatten();
                    encode_event(
                        &mut out,
                        sequence(next),
                        sequence(entry.start),
                        level,
                        prefix,
                        record,
                    )
                    .is_ok()
                        && out.position() + digests <= room
                }
                Kind::Subtree(_) => before + digests + 32 <= room,
            };
            if !is_in {
                out.truncate(before);
                cut = Some(entry.start);
                break;
            }
            match entry.kind {
                Kind::Record(_) => next = entry.start + 1,
                Kind::Subtree(_) => digests += 32,
            }
            (at, behind) = (entry.end, entry.until());
        }
        let until = if is_tree { behind } else { cut.unwrap_or(self.noted) };
        if until == from {
            return Err(BufferTooSmall);
        }
        let events = out.position();
        let mut place = start;
        while let Some(entry) = self.buffer.entry(place).filter(|entry| entry.at < at) {
            if let Kind::Subtree(_) = entry.kind {
                out.raw(self.buffer.content(&entry))?;
            }
            place = entry.end;
        }
        self.sent = until;
        self.buffer.sent_up_to(at);
        let (events, digests) = out.finish().split_at(events);
        Ok(Some(Forward {
            index: self.index,
            epoch: self.epoch,
            own_round: self.own,
            from: sequence(from),
            until: sequence(until),
            framing: self.framing,
            events,
            digests: is_tree.then_some(digests),
        }))
    }

    /// Processes an acknowledgement and returns whether it changed anything. Acknowledgements of
    /// another seal are ignored. If the coordinator has nothing of this seal and asks for the schema,
    /// the next frame starts at the first event again: without the schema, it has not taken the
    /// events.
    pub fn acknowledge(&mut self, acknowledgement: &Acknowledgement) -> bool {
        let Ok(next) = u32::try_from(acknowledgement.next.0) else { return false };
        let is_news =
            acknowledgement.index == self.index && next > self.acknowledged && next <= self.noted;
        if is_news {
            self.acknowledged = next;
            // After a rewind, the acknowledgement may be ahead of what has been sent again. Events
            // that it covers need not be sent again.
            self.buffer.acknowledged(next);
            self.sent = self.sent.max(next);
        } else if acknowledgement.wants_schema && self.acknowledged == 0 {
            self.rewind();
        }
        is_news
    }

    /// Makes the next frame start at the first event that has not been acknowledged.
    pub fn rewind(&mut self) {
        self.sent = self.acknowledged;
        self.buffer.sent_up_to(0);
    }

    /// Returns the sequence number of the first event that is not known to be durable at the
    /// coordinator.
    #[must_use]
    pub const fn acknowledged(&self) -> Sequence {
        sequence(self.acknowledged)
    }

    /// Returns whether every event so far is durable at the coordinator.
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        self.acknowledged == self.noted
    }

    /// Returns whether events were sent that are not known to be durable at the coordinator.
    #[must_use]
    pub const fn is_in_transit(&self) -> bool {
        self.sent > self.acknowledged
    }

    /// Returns the number of bytes of the buffer that are in use.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.buffer.used()
    }

    /// Returns the number of events so far.
    #[must_use]
    pub const fn noted(&self) -> u32 {
        self.noted
    }

    /// Returns the index of the seal.
    #[must_use]
    pub const fn index(&self) -> SealIndex {
        self.index
    }

    /// Returns what the seal must state: the highest announced round, the device's own round, and
    /// the lost events.
    #[must_use]
    pub fn rounds(&self) -> (Round, Round, Lost) {
        (self.announced, self.own, (self.lost.total() > 0).then_some(self.lost))
    }
}

const fn sequence(seq: u32) -> Sequence {
    // A widening cast.
    Sequence(seq as u64)
}

/// The coordinator's side: how much of a device's open seal the coordinator has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Followed {
    /// The index of the seal.
    pub index: SealIndex,
    /// The epoch of the seal.
    pub epoch: EpochNumber,
    /// Every forwarded event before this one has been received.
    pub next: Sequence,
    /// The round that the device has confirmed. The device no longer forwards events of levels
    /// below this round.
    pub confirmed: Round,
}

/// The result of processing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum FrameOutcome {
    /// The frame's events from this sequence number on are new. Store them. The state has advanced
    /// past the frame.
    New(Sequence),
    /// The frame contains nothing new. Acknowledge again.
    Old,
    /// Earlier frames are missing. Acknowledge again, so that the device sends them again.
    Gap,
    /// The device has continued with another seal. The value is the state at the start of that
    /// seal. If the previous seal was not closed, the device has abandoned it.
    Next(Followed),
}

impl Followed {
    /// Returns the state at the start of the seal that a frame belongs to.
    #[must_use]
    pub const fn start(forward: &Forward<'_>) -> Self {
        Self { index: forward.index, epoch: forward.epoch, next: Sequence(0), confirmed: Round(0) }
    }

    /// Processes a frame. Only a frame with new events changes the state.
    pub fn receive(&mut self, forward: &Forward<'_>) -> FrameOutcome {
        if forward.index > self.index {
            // Start the next seal only with a frame from its beginning: the caller must not miss
            // any of its events.
            let is_start = forward.from.0 == 0 && forward.until.0 > 0;
            return if is_start {
                FrameOutcome::Next(Self::start(forward))
            } else {
                FrameOutcome::Gap
            };
        }
        if forward.index < self.index || forward.epoch != self.epoch {
            return FrameOutcome::Old;
        }
        if forward.from > self.next {
            return FrameOutcome::Gap;
        }
        if forward.until <= self.next {
            return FrameOutcome::Old;
        }
        if forward.own_round > self.confirmed {
            self.confirmed = forward.own_round;
        }
        let first = self.next;
        self.next = forward.until;
        FrameOutcome::New(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_an_event_without_a_sequence_number() {
        let framing = Framing::Prefixed;
        let mut forwarder = Forwarder::<64>::new(
            SealIndex(0),
            EpochNumber(0),
            (Scheme::Star, framing),
            4,
            Round(0),
        );
        forwarder.noted = u32::MAX - 1;
        assert_eq!(forwarder.note(Level(3), b"last"), Noted::Buffered);
        let before = (forwarder.noted(), forwarder.buffered(), forwarder.rounds());
        assert_eq!(forwarder.note(Level(3), b"none"), Noted::Full);
        assert_eq!((forwarder.noted(), forwarder.buffered(), forwarder.rounds()), before);
    }
}
