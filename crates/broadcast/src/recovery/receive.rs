//! How a node processes the frames that it receives. The cheap checks come before the signature
//! check. If more frames need a signature check than the limits allow, the node chooses among them
//! at random ([`Waiting`]). Nothing is stored or relayed before it is verified.

use crate::recovery::missed::Known;
use crate::recovery::progress::every;
use crate::recovery::*;
use crate::{Claim, Head, HeadError, LeafError, SenderCertificate, Taken};

/// The signer of a head: a sender with a key that a base station has certified.
pub(super) struct HeadSigner {
    pub(super) sender: DeviceId,
    pub(super) key: PublicKey,
    pub(super) base: u8,
    pub(super) serial: u64,
}

pub(super) const fn refused(error: RefusedBroadcast) -> Event {
    Event::Refused(error)
}

impl<const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'_, SENDERS, CHAINS, B> {
    /// Checks one of the waiting signatures, if the limits allow one.
    pub(super) fn check_waiting<S: Store>(
        &mut self,
        now: Now,
        store: &mut S,
    ) -> Result<(), S::Error> {
        if !self.heads.is_empty()
            && self.head_meter.take(self.clock)
            && let Some(head) = self.heads.take()
        {
            self.receive_head(now, head.link, head.bytes(), None, true, store)?;
        }
        if !self.certificates.is_empty()
            && self.certificate_meter.take(self.clock)
            && let Some(waited) = self.certificates.take()
        {
            if SenderCertificate::peek(waited.bytes()).is_ok() {
                self.receive_certificate(now, waited.link, waited.bytes(), true, store)?;
            } else {
                self.receive_revocation(waited.link, waited.bytes(), true, store)?;
            }
        }
        Ok(())
    }

    /// Processes a head, and the leaf that arrived in the same frame, if any. `is_drawn` means that
    /// this head was drawn for a check and the token for the check is already taken.
    pub(super) fn receive_head<S: Store>(
        &mut self,
        now: Now,
        link: u8,
        bytes: &[u8],
        leaf: Option<&[u8]>,
        is_drawn: bool,
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let Ok(claim) = Head::peek(bytes) else { return Ok(refused(RefusedBroadcast::Malformed)) };
        if claim.id().network != self.settings.network {
            return Ok(refused(RefusedBroadcast::WrongNetwork));
        }
        let (chain, fingerprint) = (claim.reference(), self.draws.fingerprint(bytes));
        if let Some(known) = self.tracked(chain) {
            if known.outline.id != claim.id() {
                return Ok(refused(RefusedBroadcast::ReferenceTaken));
            }
            if known.head != fingerprint {
                return Ok(refused(RefusedBroadcast::ChainGoesBack));
            }
            // A frame with the same head and a different leaf is not a copy of the genuine frame.
            let is_copy = match leaf {
                Some(leaf) => store.is_kept(Item::Leaf { chain, block: 1, index: 0 }, leaf)?,
                None => true,
            };
            if is_copy {
                self.note_duplicate(Item::Head(chain), link);
            }
            return Ok(Event::Nothing);
        }
        let is_missed = store.missed(chain)?.is_some() || store.reached(chain)?.is_some();
        let known = if is_missed { Known::Missed } else { Known::No };
        let place = match self.may_accept(now, &claim, fingerprint, known) {
            Ok(place) => place,
            Err(error) => {
                if error == RefusedBroadcast::UnknownSender {
                    self.note_unknown(chain, WANTS_HEAD | WANTS_CERTIFICATE, link);
                }
                return Ok(refused(error));
            }
        };
        // If other heads are waiting, the next check is for one of them. Otherwise a head that
        // arrives at the right moment would have an advantage.
        if !(is_drawn || self.heads.is_empty() && self.head_meter.take(self.clock)) {
            self.heads.offer(bytes, link, place, &mut self.draws);
            self.note_contention();
            self.note_flooded(place);
            return Ok(refused(RefusedBroadcast::Metered));
        }
        let Some(signer) = self.head_signer(place) else {
            return Ok(refused(RefusedBroadcast::UnknownSender));
        };
        let event = self.accept(bytes, &signer, LinkSet::one(link), false, store)?;
        if let Event::Accepted { chain, .. } = event {
            self.pass_on(Piece::Head(chain), link);
        }
        Ok(event)
    }

    /// Returns the key and the certificate data of the sender in a slot.
    pub(super) fn head_signer(&self, place: usize) -> Option<HeadSigner> {
        let sender = self.senders.get(place)?.as_ref()?;
        Some(HeadSigner {
            sender: sender.id,
            key: sender.key.clone(),
            base: sender.base,
            serial: sender.serial,
        })
    }

    /// Checks everything in a head except its signature, and returns the sender's slot.
    pub(super) fn may_accept(
        &self,
        now: Now,
        claim: &Claim,
        fingerprint: u64,
        known: Known,
    ) -> Result<usize, RefusedBroadcast> {
        let id = claim.id();
        let place = self.sender(id.sender, claim.key()).ok_or(RefusedBroadcast::UnknownSender)?;
        let sender = self
            .senders
            .get(place)
            .and_then(Option::as_ref)
            .ok_or(RefusedBroadcast::UnknownSender)?;
        match now.unix {
            Some(unix) if unix < sender.not_before => return Err(RefusedBroadcast::NotYetValid),
            Some(unix) if unix >= sender.not_after && sender.not_after != u64::MAX => {
                return Err(RefusedBroadcast::Expired);
            }
            _ => {}
        }
        let is_back = |floor| match known {
            Known::No => id.number <= floor,
            Known::Kept => id.number < floor,
            Known::Missed => false,
        };
        if sender.floor.is_some_and(is_back) {
            return Err(RefusedBroadcast::ChainGoesBack);
        }
        if usize::from(claim.largest_block()) > B {
            return Err(RefusedBroadcast::BlockTooLarge);
        }
        if self.refusals.has(fingerprint) {
            return Err(RefusedBroadcast::RefusedBefore);
        }
        self.chain_place(id.sender).map(|_| place).ok_or(RefusedBroadcast::NoRoom)
    }

    /// Checks a head's signature and starts to receive the chain. `is_own` means that the chain is
    /// the node's own and all its leaves are in the store.
    pub(super) fn accept<S: Store>(
        &mut self,
        bytes: &[u8],
        signer: &HeadSigner,
        links: LinkSet,
        is_own: bool,
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let id = signer.sender;
        self.checks.heads = self.checks.heads.saturating_add(1);
        let head =
            match Head::open(bytes, self.settings.network, id, &signer.key, &mut [0; MAX_HEAD]) {
                Ok(head) => head,
                Err(HeadError::Decode(_)) => return Ok(refused(RefusedBroadcast::Malformed)),
                Err(_) => {
                    self.refusals.add(self.draws.fingerprint(bytes));
                    return Ok(refused(RefusedBroadcast::NotAuthentic));
                }
            };
        let Some(slot) = self.chain_place(id) else { return Ok(refused(RefusedBroadcast::NoRoom)) };
        let reached = store.reached(head.reference())?;
        let is_continued = reached.is_some();
        let progress = match Incoming::continued(&head, reached) {
            _ if is_own => Progress::Own { released: 0 },
            Ok(incoming) => Progress::Under(incoming),
            Err(_) => return Ok(refused(RefusedBroadcast::BlockTooLarge)),
        };
        let (chain, number) = (head.reference(), head.id().number);
        let key = head.key();
        let place = self.sender(id, key);
        let floor = place.and_then(|place| self.senders.get(place)?.as_ref()?.floor);
        // The chains above this number and below this chain were missed.
        let mut gap = None;
        let is_new = floor.is_none_or(|floor| number > floor);
        let missed = if is_new { None } else { store.missed(chain)? };
        if is_new || missed.is_some() || is_continued {
            keep_certificate(key, chain, store)?;
            store.keep(Item::Head(chain), bytes)?;
        }
        if is_new {
            if !is_own {
                gap = self.note_missed(&head, floor, MOST_STEPS_BACK, store)?;
            }
            // Before acting on the chain, make its number durable, together with all items that
            // were stored before.
            store.raise(key, number)?;
        } else if let Some(missed) = missed {
            gap = self.note_missed(&head, missed.above, missed.left, store)?;
            store.found(chain)?;
        }
        let abandoned = self
            .chains
            .get(slot)
            .and_then(|old| old.as_ref().filter(|old| !old.is_whole()).map(|old| old.reference));
        self.vacate(slot, store)?;
        let floor = floor.max(Some(number));
        let next = self.next_chain(id, head.key(), floor);
        if let Some(sender) = place.and_then(|place| self.senders.get_mut(place)?.as_mut()) {
            (sender.floor, sender.next) = (floor, next);
        }
        let pace = self.pace();
        let ask = if is_own {
            Ask::NEVER
        } else {
            Ask::at(self.clock, pace.timing.quiet_ms, pace.timing.quiet_ms / 4, &mut self.draws)
        };
        let tracked = Tracked {
            outline: *head.outline(),
            reference: chain,
            head: self.draws.fingerprint(bytes),
            base: signer.base,
            serial: signer.serial,
            progress,
            order: self.next_order(),
            links,
            out: 0,
            is_doubted: false,
            has_asked_at: None,
            ask,
            trickle: Trickle::OVER,
            early: EarlyLeaves::new(),
            since: self.clock,
            newest_on: None,
            asked: 0,
        };
        if let Some(slot) = self.chains.get_mut(slot) {
            *slot = Some(tracked);
        }
        for unknown in &mut self.unknown {
            if unknown.is_some_and(|unknown| unknown.chain == chain || unknown.chain == ANY_CHAIN) {
                *unknown = None;
            }
        }
        if let Some(missed) = gap {
            self.note_unknown(missed, WANTS_HEAD, ALL_LINKS);
        }
        Ok(Event::Accepted { chain, sender: id, number, abandoned })
    }

    /// Returns the slot for the next chain of a sender. In order of preference, this is:
    ///
    /// 1. a free slot,
    /// 2. the slot of a complete chain: of the same sender, then of a chain that is no longer
    ///    advertised, then of any other chain; each time the oldest chain first,
    /// 3. the slot of the same sender's oldest incomplete chain.
    ///
    /// The slot of another sender's incomplete chain is used only if no part of that chain has
    /// arrived for a very long time. A sender that signs heads but sends no leaves therefore cannot
    /// occupy all slots for ever.
    fn chain_place(&self, sender: DeviceId) -> Option<usize> {
        if let Some(free) = self.chains.iter().position(Option::is_none) {
            return Some(free);
        }
        let taken = self
            .chains
            .iter()
            .enumerate()
            .filter_map(|(place, tracked)| Some((place, tracked.as_ref()?)));
        let rank = |tracked: &Tracked<B>| {
            let is_own = tracked.outline.id.sender == sender;
            match (tracked.is_whole(), tracked.trickle.due == u64::MAX) {
                (true, _) if is_own => Some(0),
                (true, true) => Some(1),
                (true, false) => Some(2),
                (false, _) if is_own => Some(3),
                (false, _) => tracked.is_given_up(self.clock, &self.settings.timing).then_some(4),
            }
        };
        let ranked =
            taken.filter_map(|(place, tracked)| Some(((rank(tracked)?, tracked.order), place)));
        ranked.min().map(|(_, place)| place)
    }

    /// Empties a chain's slot.
    pub(super) fn vacate<S: Store>(&mut self, slot: usize, store: &mut S) -> Result<(), S::Error> {
        let Some(tracked) = self.chains.get(slot).and_then(Option::as_ref) else { return Ok(()) };
        let chain = tracked.reference;
        if tracked.is_whole() {
            store.retire(chain)?;
        } else {
            store.forget(chain)?;
        }
        self.relays.drop_if(|planned| planned.piece.chain() == Some(chain));
        self.answers.drop_if(|planned| planned.piece.chain() == Some(chain));
        if let Some(slot) = self.chains.get_mut(slot) {
            *slot = None;
        }
        Ok(())
    }

    /// Processes a complete chain of one message.
    pub(super) fn receive_single<S: Store>(
        &mut self,
        now: Now,
        link: u8,
        head: &[u8],
        leaf: &[u8],
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let event = self.receive_head(now, link, head, Some(leaf), false, store)?;
        let chain = match (event, Head::peek(head)) {
            (Event::Refused(_), _) | (_, Err(_)) => return Ok(event),
            (_, Ok(claim)) => claim.reference(),
        };
        match self.receive_leaf(link, chain, 1, 0, leaf, store)? {
            // The head is new even if the leaf was rejected. The node then requests the leaf.
            Event::Refused(_) | Event::Nothing if event != Event::Nothing => Ok(event),
            of_leaf => Ok(of_leaf),
        }
    }

    /// Processes a leaf.
    pub(super) fn receive_leaf<S: Store>(
        &mut self,
        link: u8,
        chain: ChainRef,
        block: u32,
        index: u8,
        leaf: &[u8],
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let item = Item::Leaf { chain, block, index };
        let Some(slot) = self.slot(chain) else {
            self.note_unknown(chain, WANTS_HEAD, link);
            return Ok(refused(RefusedBroadcast::UnknownChain));
        };
        let Some(tracked) = self.chains.get(slot).and_then(Option::as_ref) else {
            return Ok(Event::Nothing);
        };
        if index < 64 && tracked.held(block) >> index & 1 == 1 {
            // Only an exact copy of the stored leaf counts as a copy.
            let is_planned = self.relays.has(item) || self.answers.has(item);
            if is_planned && store.is_kept(item, leaf)? {
                self.note_duplicate(item, link);
            }
            return Ok(Event::Nothing);
        }
        let event = self.take_leaf(slot, link, block, index, leaf, store)?;
        let Event::Verified { chain, sender, number, first, mut last, mut is_last } = event else {
            return Ok(event);
        };
        // Leaves of the next block may have arrived early, so verify them now. Errors among them do
        // not change the result for this leaf.
        while let Some(tracked) = self.chains.get_mut(slot).and_then(Option::as_mut)
            && let Some((current, _)) = tracked.missing()
            && let Some(early) = tracked.early.take(current)
        {
            if let Ok(Event::Verified { last: block, is_last: ends, .. }) =
                self.take_leaf(slot, link, current, early.index, early.leaf(), store)
            {
                (last, is_last) = (block, ends);
            }
        }
        Ok(Event::Verified { chain, sender, number, first, last, is_last })
    }

    /// Verifies a leaf, stores it if it is genuine, and relays it.
    fn take_leaf<S: Store>(
        &mut self,
        slot: usize,
        link: u8,
        block: u32,
        index: u8,
        leaf: &[u8],
        store: &mut S,
    ) -> Result<Event, S::Error> {
        let (pace, clock) = (self.pace(), self.clock);
        let Some(tracked) = self.chains.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(Event::Nothing);
        };
        let Progress::Under(incoming) = &mut tracked.progress else { return Ok(Event::Nothing) };
        let (chain, before) = (tracked.reference, *incoming);
        let item = Item::Leaf { chain, block, index };
        let taken = match incoming.take(block, index, leaf) {
            Ok(taken) => taken,
            Err(LeafError::NotThisBlock) => {
                if block > incoming.current() && index < tracked.outline.in_block(block) {
                    tracked.early.add(block, index, leaf);
                    tracked.hint(block - 1, clock, &pace, &mut self.draws);
                }
                return Ok(refused(RefusedBroadcast::NotThisBlock));
            }
            Err(LeafError::BlockMismatch) => {
                if let Err(error) = store.forget_block(chain, block) {
                    *incoming = before;
                    return Err(error);
                }
                tracked.out = tracked.out.max(block);
                tracked.note_arrival(false, clock, &pace, &mut self.draws);
                return Ok(refused(RefusedBroadcast::BlockMismatch));
            }
            Err(_) => return Ok(refused(RefusedBroadcast::ForgedLeaf)),
        };
        if taken == Taken::Repeated {
            return Ok(Event::Nothing);
        }
        if let Err(error) = store.keep(item, leaf) {
            *incoming = before;
            return Err(error);
        }
        tracked.links = tracked.links.with(LinkSet::one(link));
        let ChainId { sender, number, .. } = tracked.outline.id;
        let is_verified = matches!(taken, Taken::Verified { .. });
        tracked.note_arrival(is_verified, clock, &pace, &mut self.draws);
        tracked.newest_on = Some(link);
        if tracked.is_whole() {
            tracked.trickle.start(clock, &pace.timing, &mut self.draws);
        }
        // The relay of the head of a one-message chain also contains the leaf, so the leaf needs no
        // relay of its own while that relay is queued.
        if tracked.outline.messages > 1 || !self.relays.has(Item::Head(chain)) {
            self.pass_on(Piece::Leaves { chain, block, bits: 1 << index }, link);
        }
        Ok(match taken {
            Taken::Verified { block, is_last, .. } => {
                Event::Verified { chain, sender, number, first: block, last: block, is_last }
            }
            _ => Event::Pending { chain, block, index },
        })
    }

    /// Processes a request. `codes` states whether the node may answer with repairs.
    pub(super) fn receive_wanted(
        &mut self,
        link: u8,
        (chain, block): (ChainRef, u32),
        wanted: u64,
        codes: bool,
    ) {
        let (pace, clock) = (self.pace(), self.clock);
        if chain == ANY_CHAIN {
            for tracked in self.chains.iter_mut().flatten().filter(|tracked| tracked.is_whole()) {
                tracked.trickle.start(clock, &pace.timing, &mut self.draws);
            }
            return;
        }
        let Some(slot) = self.slot(chain) else {
            let same = |unknown: &&mut Unknown| unknown.chain == chain;
            match self.unknown.iter_mut().flatten().find(same) {
                Some(unknown) if block == 0 && unknown.wanted & !wanted == 0 => {
                    unknown.ask.yield_once(clock, &pace, &mut self.draws);
                }
                // A node that requests a block has the head, so request the head from it. A node
                // that requests the head does not have it. If this node requested the head from it,
                // the two nodes would request the head from each other for ever.
                None if block > 0 => self.note_unknown(chain, WANTS_HEAD, link),
                _ => {}
            }
            return;
        };
        let Some(tracked) = self.chains.get_mut(slot).and_then(Option::as_mut) else { return };
        let pause_ends = tracked.since.saturating_add(pace.timing.leave_ms.into());
        if tracked.newest_on == Some(link) && clock < pause_ends {
            return;
        }
        if block == 0 {
            if wanted & WANTS_CERTIFICATE != 0 {
                self.plan_answer(Piece::ChainCertificate(chain), link, 0);
            }
            if wanted & WANTS_HEAD != 0 {
                self.plan_answer(Piece::Head(chain), link, 0);
            }
            return;
        }
        // A node that requests a block has the blocks before it.
        tracked.hint(block - 1, clock, &pace, &mut self.draws);
        let in_block = tracked.outline.in_block(block);
        // A node that cannot use repairs does not rely on answers to a node that can.
        let is_answered_for_all = codes || in_block == 1 || wanted & coded::flag(in_block) == 0;
        if let Some((current, missing)) = tracked.missing()
            && current == block
            && missing & !wanted == 0
            && is_answered_for_all
        {
            tracked.ask.yield_once(clock, &pace, &mut self.draws);
        }
        let bits = wanted & tracked.held(block);
        let gather_ms = if codes && in_block > 1 { pace.timing.gather_ms } else { 0 };
        if bits != 0 && gather_ms > 0 {
            self.note_wish(chain, block, wanted, in_block);
        }
        if bits != 0
            && self.plan_answer(Piece::Leaves { chain, block, bits }, link, gather_ms)
            && let Some(tracked) = self.chains.get_mut(slot).and_then(Option::as_mut)
        {
            tracked.asked = clock;
        }
    }

    /// Processes an advertisement of a chain up to a leaf.
    pub(super) fn receive_holds(&mut self, link: u8, chain: ChainRef, block: u32, index: u8) {
        let (pace, clock) = (self.pace(), self.clock);
        for place in &mut self.unknown {
            // This answers a request for any chain.
            place.take_if(|unknown| unknown.chain == ANY_CHAIN && unknown.attempts > 0);
        }
        let Some(slot) = self.slot(chain) else {
            self.note_unknown(chain, WANTS_HEAD, link);
            return;
        };
        let Some(tracked) = self.chains.get_mut(slot).and_then(Option::as_mut) else { return };
        if tracked.is_whole() {
            if (block, index) == tracked.end() {
                tracked.trickle.note_duplicate(clock);
            }
            return;
        }
        let is_all = every(index.saturating_add(1)) & every(tracked.outline.in_block(block))
            == every(tracked.outline.in_block(block));
        let out = if is_all { block } else { block.saturating_sub(1) };
        tracked.links = tracked.links.with(LinkSet::one(link));
        tracked.hint(out, clock, &pace, &mut self.draws);
    }

    /// Queues a new, verified item for relaying. The items of a chain are relayed in the order in
    /// which they arrived.
    pub(super) fn pass_on(&mut self, piece: Piece, link: u8) {
        let (links, others) =
            (self.settings.links, self.settings.links.without(LinkSet::one(link)));
        let due = self.within(self.settings.timing.relay_ms).max(self.relays.latest(piece.chain()));
        let is_firm =
            matches!(self.settings.relay, Relay::Flood { .. }) && self.draws.below(2) == 0;
        let planned =
            |links| Planned { due, piece, links, purpose: Purpose::Relay, duplicates: 0, is_firm };
        match self.settings.relay {
            Relay::Never => {}
            Relay::OtherLinks if others.is_empty() => {}
            Relay::OtherLinks => self.relays.add(planned(others), false),
            Relay::Flood { .. } => {
                for link in (0..MAX_LINKS).filter(|link| links.has(*link)) {
                    self.relays.add(planned(LinkSet::one(link)), false);
                }
            }
        }
    }

    /// Queues answers for the requested items, except items that were answered recently or are
    /// already queued as relays. The node waits for `gather_ms` before it answers. Returns whether an
    /// answer was queued.
    pub(super) fn plan_answer(&mut self, piece: Piece, link: u8, gather_ms: u32) -> bool {
        let link = LinkSet::one(link);
        let is_about_to_be_sent = |item: Item| {
            self.relays
                .iter()
                .any(|planned| planned.links.and(link) == link && planned.piece.has(item))
        };
        let piece = match piece {
            Piece::Leaves { chain, block, bits } => {
                let bits = bits & !self.recent_bits(chain, block);
                let planned = (0..64).filter(|index| {
                    bits >> index & 1 == 1
                        && is_about_to_be_sent(Item::Leaf { chain, block, index: *index })
                });
                Piece::Leaves {
                    chain,
                    block,
                    bits: planned.fold(bits, |bits, index| bits & !(1 << index)),
                }
            }
            piece => {
                let was_lately = piece
                    .place()
                    .is_some_and(|(chain, block, bit)| self.recent_bits(chain, block) & bit != 0);
                if was_lately || is_about_to_be_sent(piece.next()) {
                    return false;
                }
                piece
            }
        };
        let is_something = !matches!(piece, Piece::Leaves { bits: 0, .. });
        if is_something {
            let due =
                self.within(self.settings.timing.reply_ms).saturating_add(u64::from(gather_ms));
            // If a node repeats a request for items that other nodes have sent, it did not receive
            // them, so this node must send them.
            let is_firm = self.was_spared(piece);
            self.answers.add(
                Planned {
                    due,
                    piece,
                    links: link,
                    purpose: Purpose::Answer,
                    duplicates: 0,
                    is_firm,
                },
                true,
            );
        }
        is_something
    }

    /// Records that more signatures arrive than can be checked. A genuine signature may then need
    /// many attempts until it is chosen, so the node keeps requesting, and asks other nodes to
    /// advertise their chains.
    pub(super) fn note_contention(&mut self) {
        self.contended = self.clock.saturating_add(u64::from(self.settings.timing.quiet_ms));
        if self.unknown.iter().all(Option::is_none) {
            self.note_unknown(ANY_CHAIN, WANTS_HEAD, 0);
        }
    }
}

/// Stores the sender's certificate with the chain, as part of its evidence.
#[inline(never)]
fn keep_certificate<S: Store>(key: KeyId, chain: ChainRef, store: &mut S) -> Result<(), S::Error> {
    let mut buffer = [0; MAX_SENDER_CERTIFICATE];
    match store.fetch(Item::Certificate(key), &mut buffer)?.map(<[u8]>::len) {
        Some(length) => {
            store.keep(Item::ChainCertificate(chain), buffer.get(..length).unwrap_or_default())
        }
        None => Ok(()),
    }
}
