//! A device's side of sampling within a budget: Algorithm 1 of the paper (section V.A) over a link that loses things, and what
//! the other end needs to follow it. DESIGN section 6; spec/formats.md, section 8.
//!
//! A [`Forwarder`] buffers the events of one open seal that are at or above the device's round until they are acknowledged as
//! durable. It never drops a single event in silence: a buffer that fills raises the device's own round, which the seal states, and
//! at the last level what does not fit is counted as lost. Fixed memory, no heap, no clock: who drives it decides when to send
//! and when to [`rewind`](Forwarder::rewind).

use core::fmt;

use crate::level::Counters;
use crate::record::{EpochNumber, Framing, Level, Round, SealIndex, Sequence};
use crate::seal::Lost;
use crate::wire::cbor::{BufferTooSmall, Writer};
use crate::wire::link::{Acknowledgement, Forward, MAX_RECORD, encode_event};

/// What stands before a buffered record: its sequence number, level and length.
const HEAD: usize = 7;

/// The forwarded events of one open seal, in at most `N` bytes: each takes its length and 7 bytes more.
#[derive(Clone)]
pub struct Forwarder<const N: usize> {
    index: SealIndex,
    epoch: EpochNumber,
    framing: Framing,
    announced: Round,
    own: Round,
    lost: Counters,
    /// Events noted so far: the next one's sequence number.
    noted: u32,
    /// The first event that is not known to be durable, and the first that was not sent since.
    acknowledged: u32,
    sent: u32,
    buffer: [u8; N],
    used: usize,
    /// Where in the buffer the first event lies that was not sent: those before it were, those behind it were not.
    unsent: usize,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Noted {
    /// It is below the device's round.
    Below,
    /// It will be forwarded.
    Buffered,
    /// It will be forwarded, or is below the round to which the device had to raise itself to find room.
    Raised(Round),
    /// It fits no more, at any round: its level's events are lost, and the seal will say so.
    Lost,
    /// There is no sequence number left for it: it was not taken. Close the seal, and go on under the next index.
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
    /// For a seal that is being opened, in a group of `levels` levels, at the highest round that the device has been told for this
    /// epoch (0 if none).
    #[must_use]
    pub fn new(index: SealIndex, epoch: EpochNumber, framing: Framing, levels: u8, announced: Round) -> Self {
        let announced = announced.min(Round(levels.saturating_sub(1)));
        Self {
            index,
            epoch,
            framing,
            announced,
            own: announced,
            lost: Counters::new(levels),
            noted: 0,
            acknowledged: 0,
            sent: 0,
            buffer: [0; N],
            used: 0,
            unsent: 0,
        }
    }

    /// Takes note of the seal's next event, at the level that `Star::push` or the salt gave it.
    pub fn note(&mut self, level: Level, record: &[u8]) -> Noted {
        let seq = self.noted;
        let Some(noted) = seq.checked_add(1) else { return Noted::Full };
        self.noted = noted;
        if level.0 < self.own.0 {
            return Noted::Below;
        }
        // Where the whole buffer is too small, a higher round makes no room: only what lies there would be given up.
        if self.is_lost(level) || HEAD + record.len() > N || record.len() > MAX_RECORD {
            return self.lose(level);
        }
        let before = self.own;
        while self.used + HEAD + record.len() > N {
            if self.own.0 + 1 >= self.lost.levels() {
                return self.lose(level);
            }
            self.own.0 += 1;
            self.drop_below(self.own);
            if level.0 < self.own.0 {
                return Noted::Raised(self.own);
            }
        }
        // MAX_RECORD fits two bytes.
        #[allow(clippy::cast_possible_truncation)]
        let length = (record.len() as u16).to_be_bytes();
        let end = self.used + HEAD + record.len();
        let entry = &mut self.buffer[self.used..end];
        entry[..4].copy_from_slice(&seq.to_be_bytes());
        entry[4] = level.0;
        entry[5..HEAD].copy_from_slice(&length);
        entry[HEAD..].copy_from_slice(record);
        self.used = end;
        if self.own == before { Noted::Buffered } else { Noted::Raised(self.own) }
    }

    fn is_lost(&self, level: Level) -> bool {
        self.lost.at(level) > 0
    }

    /// Gives up an event, and with it its whole level under this seal: a block with a hole is never served.
    fn lose(&mut self, level: Level) -> Noted {
        let dropped = self.retain(|entry| entry.level != level);
        if let Some(lost) = self.lost.as_mut_slice().get_mut(usize::from(level.0)) {
            *lost += dropped + 1;
        }
        Noted::Lost
    }

    fn drop_below(&mut self, round: Round) {
        let _ = self.retain(|entry| entry.level.0 >= round.0);
    }

    /// Keeps the entries that `keep` says, in order; how many went.
    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) -> u32 {
        let (mut from, mut to, mut dropped, mut unsent) = (0, 0, 0, None);
        while let Some(entry) = Entry::at(&self.buffer[..self.used], from) {
            if from == self.unsent {
                unsent = Some(to);
            }
            let length = entry.end - from;
            if keep(&entry) {
                self.buffer.copy_within(from..from + length, to);
                to += length;
            } else {
                dropped += 1;
            }
            from += length;
        }
        (self.used, self.unsent) = (to, unsent.unwrap_or(to));
        dropped
    }

    /// Goes up to a round that the coordinator announced for this epoch, and says whether that is a new one. Rounds never fall, and end at
    /// the last level.
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

    /// Writes the next frame's events into `scratch`, whose length bounds them; `None` if all events have been sent.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if not even one event fits `scratch`.
    pub fn next_frame<'s>(&mut self, scratch: &'s mut [u8]) -> Result<Option<Forward<'s>>, BufferTooSmall> {
        if self.sent >= self.noted {
            return Ok(None);
        }
        let from = Sequence(u64::from(self.sent));
        let (mut out, mut next, mut until, mut at) = (Writer::new(scratch), from, self.noted, self.unsent);
        while let Some(entry) = Entry::at(&self.buffer[..self.used], at) {
            let (seq, start) = (Sequence(u64::from(entry.seq)), out.position());
            let record = &self.buffer[entry.end - entry.length..entry.end];
            let prefix = self.framing.prefix(record).flatten();
            if encode_event(&mut out, next, seq, entry.level, prefix, record).is_err() {
                out.truncate(start);
                until = entry.seq;
                break;
            }
            (next, at) = (Sequence(seq.0 + 1), entry.end);
        }
        if out.position() == 0 && until == self.sent {
            return Err(BufferTooSmall);
        }
        (self.sent, self.unsent) = (until, at);
        Ok(Some(Forward {
            index: self.index,
            epoch: self.epoch,
            own_round: self.own,
            from,
            until: Sequence(u64::from(until)),
            framing: self.framing,
            events: out.finish(),
        }))
    }

    /// Takes the coordinator's word on what is durable, and says whether that changed anything; what belongs to another seal says
    /// nothing here.
    pub fn acknowledge(&mut self, acknowledgement: &Acknowledgement) -> bool {
        let Ok(next) = u32::try_from(acknowledgement.next.0) else { return false };
        let is_news = acknowledgement.index == self.index && next > self.acknowledged && next <= self.noted;
        if is_news {
            self.acknowledged = next;
            // Events lie in order: what is durable is the buffer's start.
            let mut start = 0;
            while let Some(entry) = Entry::at(&self.buffer[..self.used], start).filter(|entry| entry.seq < next) {
                start = entry.end;
            }
            self.buffer.copy_within(start..self.used, 0);
            self.used -= start;
            // Where it is ahead of what was sent again, the rest need not be.
            (self.sent, self.unsent) = (self.sent.max(next), self.unsent.saturating_sub(start));
        }
        is_news
    }

    /// Sends what is not acknowledged again, from the next frame on.
    pub fn rewind(&mut self) {
        (self.sent, self.unsent) = (self.acknowledged, 0);
    }

    /// The first event that is not known to be durable at the coordinator.
    #[must_use]
    pub const fn acknowledged(&self) -> Sequence {
        // Widening.
        Sequence(self.acknowledged as u64)
    }

    /// Whether everything that was noted is durable at the coordinator.
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        self.acknowledged == self.noted
    }

    /// Bytes of the buffer that are taken.
    #[must_use]
    pub const fn buffered(&self) -> usize {
        self.used
    }

    /// Events noted so far.
    #[must_use]
    pub const fn noted(&self) -> u32 {
        self.noted
    }

    /// The index of the seal.
    #[must_use]
    pub const fn index(&self) -> SealIndex {
        self.index
    }

    /// What the seal must state: the highest round that was announced, the device's own, and what was lost.
    #[must_use]
    pub fn rounds(&self) -> (Round, Round, Lost) {
        (self.announced, self.own, (self.lost.total() > 0).then_some(self.lost))
    }
}

struct Entry {
    seq: u32,
    level: Level,
    /// Of the record, which ends the entry.
    length: usize,
    end: usize,
}

impl Entry {
    fn at(buffer: &[u8], at: usize) -> Option<Self> {
        let head = buffer.get(at..)?.first_chunk::<HEAD>()?;
        let seq = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let length = usize::from(u16::from_be_bytes([head[5], head[6]]));
        Some(Self { seq, level: Level(head[4]), length, end: at + HEAD + length })
    }
}

/// The other end: how far a device's open seal has been followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The seal.
    pub index: SealIndex,
    /// Its epoch.
    pub epoch: EpochNumber,
    /// Every forwarded event before this one is here.
    pub next: Sequence,
    /// The device has confirmed this round: it forwards nothing below it.
    pub confirmed: Round,
}

/// What a frame is to one who follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Heard {
    /// Its events from this sequence number on are new: take them. The follower stands behind the frame now.
    News(Sequence),
    /// It says nothing new: acknowledge again.
    Old,
    /// Frames before it are missing: acknowledge again, and the device goes back.
    Gap,
    /// The device has gone on to this seal: the one that was followed, if it was not closed, is abandoned.
    Next(Followed),
}

impl Followed {
    /// The start of a seal that a frame speaks of.
    #[must_use]
    pub const fn start(forward: &Forward<'_>) -> Self {
        Self { index: forward.index, epoch: forward.epoch, next: Sequence(0), confirmed: Round(0) }
    }

    /// Hears a frame, which changes nothing unless it is news.
    pub fn hear(&mut self, forward: &Forward<'_>) -> Heard {
        if forward.index > self.index {
            // Only what is taken may change anything: who follows keeps what was news, and forgets the rest.
            let is_start = forward.from.0 == 0 && forward.until.0 > 0;
            return if is_start { Heard::Next(Self::start(forward)) } else { Heard::Gap };
        }
        if forward.index < self.index || forward.epoch != self.epoch {
            return Heard::Old;
        }
        if forward.from > self.next {
            return Heard::Gap;
        }
        if forward.until <= self.next {
            return Heard::Old;
        }
        if forward.own_round > self.confirmed {
            self.confirmed = forward.own_round;
        }
        let first = self.next;
        self.next = forward.until;
        Heard::News(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_without_a_sequence_number_is_not_taken() {
        let framing = Framing::Prefixed;
        let mut forwarder = Forwarder::<64>::new(SealIndex(0), EpochNumber(0), framing, 4, Round(0));
        forwarder.noted = u32::MAX - 1;
        assert_eq!(forwarder.note(Level(3), b"last"), Noted::Buffered);
        let before = (forwarder.noted(), forwarder.buffered(), forwarder.rounds());
        assert_eq!(forwarder.note(Level(3), b"none"), Noted::Full);
        assert_eq!((forwarder.noted(), forwarder.buffered(), forwarder.rounds()), before);
    }
}
