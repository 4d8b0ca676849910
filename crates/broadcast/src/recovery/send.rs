//! How a node sends its own frames, relays, answers, requests and advertisements, in the order in
//! which they are due.

use crate::recovery::*;
use moteseal_core::cbor::Writer;

/// A frame to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The links to send it on.
    pub links: LinkSet,
    /// The length of the frame in bytes. The frame is at the start of the buffer.
    pub length: usize,
    /// Why the node sends the frame.
    pub purpose: Purpose,
}

/// The queue or the chain from which the next frame comes.
#[derive(Clone, Copy)]
enum Turn {
    Relay,
    Answer,
    Ask(usize),
    Unknown(usize),
    Advertise(usize),
    Head(usize),
}

impl<const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'_, SENDERS, CHAINS, B> {
    /// Performs the work that is due and writes the next frame to be sent to `out`. Returns `None`
    /// if no frame is due. `out` needs room for the longest frame of the network, which has 32
    /// bytes more than the longest leaf; [`MAX_BROADCAST_FRAME`](crate::wire::MAX_BROADCAST_FRAME)
    /// bytes suffice.
    ///
    /// # Errors
    /// The errors of the storage.
    pub fn poll<S: Store>(
        &mut self,
        now: Now,
        store: &mut S,
        out: &mut [u8],
    ) -> Result<Option<Transmit>, S::Error> {
        self.advance(now);
        self.check_waiting(now, store)?;
        // Each turn finishes or postpones something, so the number of turns is bounded.
        while let Some((_, turn)) = self.turn().filter(|(due, _)| *due <= self.clock) {
            let transmit = match turn {
                Turn::Relay => self.send_planned(false, store, out)?,
                Turn::Answer => self.send_planned(true, store, out)?,
                Turn::Ask(slot) => {
                    let uses_repairs = S::REPAIRS
                        && self.settings.timing.gather_ms > 0
                        && self.clock >= self.no_repairs_until;
                    self.send_wanted(slot, uses_repairs, out)
                }
                Turn::Unknown(place) => self.send_unknown(place, out),
                Turn::Advertise(slot) => self.send_holds(slot, out),
                Turn::Head(place) => self.send_head_wanted(place, out),
            };
            if transmit.is_some() {
                return Ok(transmit);
            }
        }
        Ok(None)
    }

    /// Returns when the node next has work to do, in milliseconds of the host's clock; `None` if it
    /// only waits for frames.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let turn = self.turn().map_or(u64::MAX, |(due, _)| due);
        let head = if self.heads.is_empty() { u64::MAX } else { self.head_meter.ready() };
        let certificate =
            if self.certificates.is_empty() { u64::MAX } else { self.certificate_meter.ready() };
        let due = turn.min(head).min(certificate);
        (due != u64::MAX).then(|| self.host_ms.saturating_add(due.saturating_sub(self.clock)))
    }

    /// Returns when the first frame is due, and the queue or chain from which it comes.
    fn turn(&self) -> Option<(u64, Turn)> {
        let request = self.request_meter.ready();
        let answer = self.answers.due().max(self.answer_meter.ready());
        let mut first = (self.relays.due(), Turn::Relay);
        let mut consider = |due: u64, turn| {
            if due < first.0 {
                first = (due, turn);
            }
        };
        consider(answer, Turn::Answer);
        for (slot, tracked) in self.chains.iter().enumerate() {
            let Some(tracked) = tracked else { continue };
            if tracked.ask.due != u64::MAX {
                consider(tracked.ask.due.max(request), Turn::Ask(slot));
            }
            consider(tracked.trickle.due, Turn::Advertise(slot));
        }
        for (place, unknown) in self.unknown.iter().enumerate() {
            if let Some(unknown) = unknown {
                consider(unknown.ask.due.max(request), Turn::Unknown(place));
            }
        }
        for (place, sender) in self.senders.iter().enumerate() {
            consider(sender.as_ref().map_or(u64::MAX, |of| of.head_due), Turn::Head(place));
        }
        (first.0 != u64::MAX).then_some(first)
    }

    /// Sends the next relay or answer.
    fn send_planned<S: Store>(
        &mut self,
        answers: bool,
        store: &mut S,
        out: &mut [u8],
    ) -> Result<Option<Transmit>, S::Error> {
        let planned = if answers { self.answers.first() } else { self.relays.first() };
        let Some(planned) = planned else { return Ok(None) };
        let mut sent = Piece::of(planned.piece.next());
        if let (true, true, Piece::Leaves { chain, block, bits }) =
            (answers, S::REPAIRS, planned.piece)
        {
            sent = Piece::Leaves { chain, block, bits: self.wishes.choose(chain, block, bits) };
        }
        if answers && !self.note_recent(sent) {
            // The table of recent answers is full. Postpone this answer until an entry is free.
            let later =
                self.clock.saturating_add(u64::from(self.settings.timing.hold_off_ms.max(1)));
            self.answers.put_off(&planned, later);
            return Ok(None);
        }
        if answers && !self.answer_meter.take(self.clock) {
            return Ok(None);
        }
        let mut repair = None;
        if let Piece::Leaves { chain, block, bits } = sent
            && S::REPAIRS
            && !bits.is_power_of_two()
        {
            repair = Self::write_repair((chain, block), bits, store, out)?;
            if repair.is_none() {
                sent = Piece::of(sent.next());
            }
        }
        let item = sent.next();
        let (length, is_single) = match repair {
            Some(length) => (Some(length), false),
            None => self.write_item(item, store, out)?,
        };
        let again = if answers { self.within(self.settings.timing.reply_ms) } else { self.clock };
        if answers {
            self.answers.mark_sent(&planned, sent, again);
            if let (true, Piece::Leaves { chain, block, bits }) = (S::REPAIRS, sent) {
                self.wishes.sent(chain, block, bits);
            }
        } else {
            self.relays.mark_sent(&planned, sent, again);
        }
        if let (true, Item::Head(chain)) = (is_single, item) {
            let leaf = Item::Leaf { chain, block: 1, index: 0 };
            let ends = |other: &mut Planned| other.links == planned.links;
            if answers {
                self.answers.suppress(leaf, ends);
            } else {
                self.relays.suppress(leaf, ends);
            }
        }
        Ok(length.map(|length| Transmit { links: planned.links, length, purpose: planned.purpose }))
    }

    /// Writes the frame of an item. Returns the frame's length and whether the frame is a complete
    /// chain of one message. The length is `None` if the store no longer has the item or the item
    /// does not fit.
    fn write_item<S: Store>(
        &self,
        item: Item,
        store: &mut S,
        out: &mut [u8],
    ) -> Result<(Option<usize>, bool), S::Error> {
        let mut start = [0; 24];
        let mut writer = Writer::new(&mut start);
        if let Item::Head(chain) = item
            && let Some(tracked) = self.tracked(chain)
            && tracked.outline.messages == 1
            && tracked.held(1) == 1
            && BroadcastFrame::begin_single(&mut writer).is_ok()
            && let Some(at) = copy(out, 0, writer.written())
            && let Some(at) = append(store, item, out, at)?
            && let Some(length) = append(store, Item::Leaf { chain, block: 1, index: 0 }, out, at)?
        {
            return Ok((Some(length), true));
        }
        writer.truncate(0);
        let begun = item.begin_frame(&mut writer);
        let at = begun.ok().and_then(|()| copy(out, 0, writer.written()));
        Ok((at.map_or(Ok(None), |at| append(store, item, out, at))?, false))
    }

    /// Requests the missing leaves of the current block. `uses_repairs` states whether the node can
    /// compute leaves from repairs.
    fn send_wanted(&mut self, slot: usize, uses_repairs: bool, out: &mut [u8]) -> Option<Transmit> {
        let (pace, clock, links) = (self.pace(), self.clock, self.settings.links);
        let tracked = self.chains.get_mut(slot)?.as_mut()?;
        let Some((block, wanted)) = tracked.missing() else {
            tracked.ask = Ask::NEVER;
            return None;
        };
        if !self.request_meter.take(clock) {
            return None;
        }
        tracked.has_asked(clock, &pace, &mut self.draws);
        let links =
            if tracked.links.and(links).is_empty() { links } else { tracked.links.and(links) };
        let chain = tracked.reference;
        let flag = if uses_repairs { coded::flag(tracked.outline.in_block(block)) } else { 0 };
        let frame = self.request_frame(chain, block, wanted | flag);
        transmit(&frame, links, Purpose::Request, out)
    }

    /// Requests the head of an unknown chain.
    fn send_unknown(&mut self, place: usize, out: &mut [u8]) -> Option<Transmit> {
        let (pace, clock) = (self.pace(), self.clock);
        if !self.request_meter.take(clock) {
            return None;
        }
        let unknown = self.unknown.get_mut(place)?;
        let asked = unknown.as_mut()?;
        if clock < self.contended {
            let after = pace.timing.request_ms.saturating_add(pace.timing.reply_ms);
            asked.ask = Ask::at(clock, after.max(1), pace.timing.request_ms, &mut self.draws);
        } else {
            asked.ask.again(pace.retry_ms(), clock, &pace, &mut self.draws);
            asked.attempts = asked.attempts.saturating_add(1);
        }
        let (chain, wanted) = (asked.chain, asked.wanted);
        let links = if chain == ANY_CHAIN || asked.link == ALL_LINKS {
            self.settings.links
        } else {
            LinkSet::one(asked.link)
        };
        if asked.attempts >= UNKNOWN_ATTEMPTS || asked.ask.due == u64::MAX {
            *unknown = None;
        }
        let frame = self.request_frame(chain, 0, wanted);
        transmit(&frame, links, Purpose::Request, out)
    }

    /// Advertises that a chain is complete, unless other nodes have done so.
    fn send_holds(&mut self, slot: usize, out: &mut [u8]) -> Option<Transmit> {
        let tracked = self.chains.get_mut(slot)?.as_mut()?;
        let sends = tracked.trickle.fire(&self.settings.timing, &mut self.draws);
        if !sends || !self.request_meter.take(self.clock) {
            return None;
        }
        let (block, index) = tracked.end();
        transmit(
            &BroadcastFrame::Holds { chain: tracked.reference, block, index },
            self.settings.links,
            Purpose::Advertisement,
            out,
        )
    }

    /// Records that items are sent as an answer. Returns false if the table of recent answers has no
    /// room for the record; the items must then not be sent yet.
    fn note_recent(&mut self, sent: Piece) -> bool {
        let Some((chain, block, bits)) = sent.place() else { return true };
        let (clock, hold_off) = (self.clock, u64::from(self.settings.timing.hold_off_ms));
        let mut free = None;
        for (at, place) in self.recent.iter_mut().enumerate() {
            place.take_if(|recent| !recent.pass(clock, hold_off));
            if let Some(recent) = place
                && (recent.chain, recent.block) == (chain, block)
            {
                recent.bits |= bits;
                return true;
            }
            free = free.or(place.is_none().then_some(at));
        }
        let free = free.and_then(|at| self.recent.get_mut(at));
        free.is_some_and(|free| {
            *free = Some(Recent { chain, block, bits, before: 0, since: clock });
            true
        })
    }

    /// Returns the leaves of a block that were answered within the hold-off.
    pub(super) fn recent_bits(&self, chain: ChainRef, block: u32) -> u64 {
        let same = |recent: &&Recent| (recent.chain, recent.block) == (chain, block);
        self.recent.iter().flatten().find(same).copied().map_or(0, |mut recent| {
            recent.pass(self.clock, u64::from(self.settings.timing.hold_off_ms));
            recent.bits | recent.before
        })
    }
}

pub(super) fn transmit(
    frame: &BroadcastFrame<'_>,
    links: LinkSet,
    purpose: Purpose,
    out: &mut [u8],
) -> Option<Transmit> {
    let mut writer = Writer::new(out);
    frame.encode(&mut writer).ok()?;
    Some(Transmit { links, length: writer.position(), purpose })
}

fn copy(out: &mut [u8], at: usize, bytes: &[u8]) -> Option<usize> {
    let end = at.checked_add(bytes.len())?;
    out.get_mut(at..end)?.copy_from_slice(bytes);
    Some(end)
}

/// Appends a stored item as a CBOR byte string and returns the offset after it.
fn append<S: Store>(
    store: &mut S,
    item: Item,
    out: &mut [u8],
    at: usize,
) -> Result<Option<usize>, S::Error> {
    // The CBOR head of a byte string has up to five bytes, depending on the string's length. The
    // length is known only after the string is read.
    const HEAD: usize = 5;
    let Some(room) = out.get_mut(at.saturating_add(HEAD)..) else { return Ok(None) };
    let Some(length) = store.fetch(item, room)?.map(<[u8]>::len) else { return Ok(None) };
    let mut head = [0; HEAD];
    let mut writer = Writer::new(&mut head);
    if writer.byte_string(length as u64).is_err() {
        return Ok(None);
    }
    let Some(start) = copy(out, at, writer.written()) else { return Ok(None) };
    out.copy_within(at + HEAD..at + HEAD + length, start);
    Ok(Some(start + length))
}
