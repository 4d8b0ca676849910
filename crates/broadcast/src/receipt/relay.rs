//! How a node sends its own receipts and passes on those of others (spec/broadcast.md, section
//! 7.3).
//!
//! Receipts go to the links from which their chain came. A node with several links is a relay: it
//! combines the receipts that it receives within a short time. It cannot check them. It keeps none
//! after it has sent them: the sender requests those that did not arrive, and the receivers send
//! them again. A relay also passes on the other frames between receivers and senders.

use super::{ReceiverTag, combine, receivers};
use crate::recovery::meter::{Bucket, Draws};
use crate::recovery::{LinkSet, Purpose, Rate, Transmit};
use crate::wire::BroadcastFrame;
use crate::{ChainRef, Head, MAX_HEAD, MAX_RECEIVERS};
use moteseal_core::cbor::Writer;
use moteseal_core::participation::Participation;

/// How often a relay accepts a frame of receipts, or passes on a frame, in both directions
/// together.
const PASSED: Rate = Rate { burst: 256, each_ms: 2 };
/// The number of frames that a relay remembers so as not to pass on a copy: more than it passes on in
/// [`RECENT_MS`], so that no frame goes back and forth between relays.
const RECENT: usize = 512;
/// How long it remembers them, in milliseconds. Receivers repeat their requests less often.
const RECENT_MS: u64 = 400;
/// How long a limit of the sender on combined receipts applies, in milliseconds.
const LIMIT_MS: u64 = 30_000;

/// A set of receivers, and the exclusive or of their tags.
#[derive(Clone)]
struct Combined<const WORDS: usize> {
    set: [u64; WORDS],
    count: u32,
    tag: ReceiverTag,
}

impl<const WORDS: usize> Combined<WORDS> {
    const NONE: Self = Self { set: [0; WORDS], count: 0, tag: [0; 16] };

    fn one(position: u32, tag: ReceiverTag) -> Option<Self> {
        let mut one = Self { count: 1, tag, ..Self::NONE };
        *one.set.get_mut(position as usize / 64)? |= 1 << (position % 64);
        Some(one)
    }

    /// Reads the receipts of a frame. Returns `None` if they are malformed, or there is no room.
    fn read(bytes: &[u8], tag: ReceiverTag) -> Option<Self> {
        let mut read = Self { tag, ..Self::NONE };
        let set = receivers(bytes).ok()?;
        for position in set.runs().flatten() {
            *read.set.get_mut(position as usize / 64)? |= 1 << (position % 64);
            read.count += 1;
        }
        (read.count > 0).then_some(read)
    }

    fn meets(&self, other: &Self) -> bool {
        self.set.iter().zip(&other.set).any(|(one, other)| one & other != 0)
    }

    fn add(&mut self, other: &Self) {
        self.set.iter_mut().zip(&other.set).for_each(|(one, other)| *one |= other);
        self.count += other.count;
        self.tag = combine(self.tag, other.tag);
    }
}

/// A chain whose receipts the node sends or passes on.
#[derive(Clone)]
struct Followed<const WORDS: usize> {
    chain: ChainRef,
    /// The links from which the chain came.
    up: LinkSet,
    order: u32,
    /// The node's own receipt.
    own: Option<(u32, ReceiverTag)>,
    /// When to send the own receipt; `u64::MAX` if it is not to be sent.
    own_due: u64,
    /// When the own receipt was last sent; `u64::MAX` if it was not sent.
    own_sent: u64,
    /// Receipts that can be sent now.
    ready: Combined<WORDS>,
    /// Receipts that wait for others.
    waiting: Combined<WORDS>,
    due: u64,
    /// The maximum number of receipts in a frame, and until when this limit applies.
    most: u32,
    limited_until: u64,
}

impl<const WORDS: usize> Followed<WORDS> {
    /// Adds receipts to those that wait. If they cannot be combined, those that wait are sent at
    /// once. If there is no room for that, the new receipts are dropped.
    fn add(&mut self, new: &Combined<WORDS>, due: u64) {
        let cannot =
            self.waiting.meets(new) || self.waiting.count.saturating_add(new.count) > self.most;
        if self.waiting.count > 0 && cannot {
            if self.ready.count > 0 {
                return;
            }
            core::mem::swap(&mut self.ready, &mut self.waiting);
        }
        if self.waiting.count == 0 {
            self.waiting = new.clone();
            self.due = due;
        } else {
            self.waiting.add(new);
            self.due = self.due.min(due);
        }
    }

    const fn next_due(&self) -> u64 {
        if self.ready.count > 0 {
            return 0;
        }
        let due = if self.waiting.count > 0 { self.due } else { u64::MAX };
        if due < self.own_due { due } else { self.own_due }
    }
}

/// Sends a node's receipts, and combines and passes on those of others. It has room for `CHAINS`
/// chains and for the receivers with positions below `64 * WORDS`. It has a fixed size and
/// allocates no memory.
#[derive(Clone)]
pub struct ReceiptRelay<const CHAINS: usize, const WORDS: usize> {
    links: LinkSet,
    spread_ms: u32,
    draws: Draws,
    clock: u64,
    chains: [Option<Followed<WORDS>>; CHAINS],
    order: u32,
    passed: Bucket,
    /// For requests for heads and their answers, so that they leave room for receipts.
    passed_heads: Bucket,
    recent: [(u64, u64); RECENT],
    recent_next: usize,
    repeats: bool,
}

impl<const CHAINS: usize, const WORDS: usize> ReceiptRelay<CHAINS, WORDS> {
    /// Creates a relay between `links`. A receiver sends its receipt within `spread_ms`
    /// milliseconds, and a relay waits this long for receipts to combine. `seed` must be secret.
    #[must_use]
    pub fn new(links: LinkSet, spread_ms: u32, seed: u64) -> Self {
        Self {
            links,
            spread_ms: spread_ms.max(1),
            draws: Draws::new(seed),
            clock: 0,
            chains: [const { None }; CHAINS],
            order: 0,
            passed: Bucket::new(PASSED),
            passed_heads: Bucket::new(PASSED),
            recent: [(0, 0); RECENT],
            recent_next: 0,
            repeats: false,
        }
    }

    /// Makes the relay repeat frames on all links, also on the one on which they were received, and
    /// combine none: for a medium on which not every receiver is in range of the sender.
    pub const fn set_repeating(&mut self) {
        self.repeats = true;
    }

    /// Begins to follow a chain. `up` are the links from which it comes. If there is no room, the
    /// chain that was followed first is dropped.
    pub fn follow(&mut self, chain: ChainRef, up: LinkSet) {
        if let Some(known) = self.followed(chain) {
            known.up = known.up.with(up);
            return;
        }
        self.order = self.order.wrapping_add(1);
        let oldest = |place: &&mut Option<Followed<WORDS>>| {
            place.as_ref().map_or(0, |followed| followed.order)
        };
        if let Some(place) = self.chains.iter_mut().min_by_key(oldest) {
            *place = Some(Followed {
                chain,
                up,
                order: self.order,
                own: None,
                own_due: u64::MAX,
                own_sent: u64::MAX,
                ready: Combined::NONE,
                waiting: Combined::NONE,
                due: u64::MAX,
                most: MAX_RECEIVERS,
                limited_until: 0,
            });
        }
    }

    /// Sends the receipt of this node for a chain that it follows: `tag` of the receiver at
    /// `position`. Call it when the chain is complete.
    pub fn acknowledge(&mut self, now_ms: u64, chain: ChainRef, position: u32, tag: ReceiverTag) {
        self.clock = self.clock.max(now_ms);
        let due = self.within();
        if let Some(followed) = self.followed(chain)
            && followed.own.is_none()
        {
            (followed.own, followed.own_due) = (Some((position, tag)), due);
        }
    }

    /// Returns whether the node follows a chain.
    #[must_use]
    pub fn is_following(&self, chain: ChainRef) -> bool {
        self.chains.iter().flatten().any(|followed| followed.chain == chain)
    }

    /// Returns whether the node has sent, or will send, its receipt for a chain.
    #[must_use]
    pub fn has_acknowledged(&self, chain: ChainRef) -> bool {
        self.chains.iter().flatten().any(|of| of.chain == chain && of.own.is_some())
    }

    /// Processes a frame that was received on `link`. Returns the links on which the caller must
    /// send the same bytes now.
    pub fn receive(&mut self, now_ms: u64, link: u8, frame: &BroadcastFrame<'_>) -> LinkSet {
        self.clock = self.clock.max(now_ms);
        let on = if self.repeats { LinkSet::NONE } else { LinkSet::one(link) };
        let others = self.links.without(on);
        match *frame {
            BroadcastFrame::Receipts { chain, receivers, tag } if self.repeats => {
                let is_repeated = self.is_following(chain)
                    && self.is_new([b"receipts", &chain.0, receivers, &tag])
                    && self.passed.take(self.clock);
                if is_repeated { others } else { LinkSet::NONE }
            }
            BroadcastFrame::Receipts { chain, receivers, tag } => {
                self.receive_receipts(link, chain, receivers, tag);
                LinkSet::NONE
            }
            BroadcastFrame::ReceiptsWanted { chain, most, receivers } => {
                self.receive_wanted(link, chain, most, receivers).and(others)
            }
            BroadcastFrame::HeadWanted { key, above, receiver, tag } => {
                let numbers = [above.to_be_bytes(), u64::from(receiver).to_be_bytes()];
                self.pass_on(others, [b"wanted", &key.0, numbers.as_flattened(), &tag])
            }
            BroadcastFrame::HeadFor { receiver, tag, head }
                if head.len() <= MAX_HEAD && Head::peek(head).is_ok() =>
            {
                self.pass_on(others, [b"head", &receiver.to_be_bytes(), head, &tag])
            }
            _ => LinkSet::NONE,
        }
    }

    /// Returns the links on which to pass on a frame about heads.
    fn pass_on(&mut self, links: LinkSet, content: [&[u8]; 4]) -> LinkSet {
        if !links.is_empty() && self.is_new(content) && self.passed_heads.take(self.clock) {
            links
        } else {
            LinkSet::NONE
        }
    }

    fn receive_receipts(&mut self, link: u8, chain: ChainRef, set: &[u8], tag: ReceiverTag) {
        let (clock, due) = (self.clock, self.clock.saturating_add(u64::from(self.spread_ms)));
        let Some(slot) = self
            .chains
            .iter()
            .position(|slot| matches!(slot, Some(followed) if followed.chain == chain))
        else {
            return;
        };
        let Some(Some(followed)) = self.chains.get_mut(slot) else { return };
        if followed.up.and(self.links).without(LinkSet::one(link)).is_empty()
            || followed.up.has(link)
        {
            return;
        }
        if !self.passed.take(clock) {
            return;
        }
        if clock >= followed.limited_until {
            followed.most = MAX_RECEIVERS;
        }
        if let Some(read) = Combined::read(set, tag) {
            followed.add(&read, due);
        }
    }

    /// Processes a request for receipts. Returns the links on which to pass it on.
    fn receive_wanted(&mut self, link: u8, chain: ChainRef, most: u32, set: &[u8]) -> LinkSet {
        let (clock, due, spread) = (self.clock, self.within(), u64::from(self.spread_ms));
        let repeats = self.repeats;
        let Ok(decoded) = receivers(set) else { return LinkSet::NONE };
        let Some(followed) = self.followed(chain) else { return LinkSet::NONE };
        if !followed.up.has(link) {
            return LinkSet::NONE;
        }
        (followed.most, followed.limited_until) = (most, clock.saturating_add(LIMIT_MS));
        if let Some((position, _)) = followed.own
            && followed.own_due == u64::MAX
            && clock >= followed.own_sent.saturating_add(spread)
            && decoded.runs().any(|run| run.contains(&position))
        {
            followed.own_due = due;
        }
        let up = if repeats { LinkSet::NONE } else { followed.up };
        if self.is_new([b"asked", &chain.0, &most.to_be_bytes(), set]) && self.passed.take(clock) {
            self.links.without(up)
        } else {
            LinkSet::NONE
        }
    }

    /// Writes the next frame that is due to the start of `out`. `out` needs room for two frames;
    /// [`MAX_BROADCAST_FRAME`](crate::wire::MAX_BROADCAST_FRAME) bytes suffice.
    pub fn poll(&mut self, now_ms: u64, out: &mut [u8]) -> Option<Transmit> {
        self.clock = self.clock.max(now_ms);
        let (clock, links, spread) = (self.clock, self.links, u64::from(self.spread_ms));
        let repeats = self.repeats;
        for followed in self.chains.iter_mut().flatten() {
            if followed.own_due <= clock {
                followed.own_due = u64::MAX;
                followed.own_sent = clock;
                if let Some((position, tag)) = followed.own
                    && let Some(own) = Combined::one(position, tag)
                {
                    // A relay sends its own receipt with those of others.
                    let is_alone = repeats || links.without(followed.up).is_empty();
                    let wait = if is_alone { 0 } else { spread };
                    followed.add(&own, clock.saturating_add(wait));
                }
            }
            if followed.ready.count == 0 && followed.waiting.count > 0 && followed.due <= clock {
                core::mem::swap(&mut followed.ready, &mut followed.waiting);
            }
            if followed.ready.count > 0 {
                let sent = core::mem::replace(&mut followed.ready, Combined::NONE);
                let up = followed.up.and(links);
                let length = write(followed.chain, &sent, out)?;
                return Some(Transmit { links: up, length, purpose: Purpose::Receipt });
            }
        }
        None
    }

    /// Returns when [`poll`](Self::poll) next has a frame to send, in milliseconds.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let due = self.chains.iter().flatten().map(Followed::next_due).min();
        due.filter(|due| *due != u64::MAX)
    }

    fn followed(&mut self, chain: ChainRef) -> Option<&mut Followed<WORDS>> {
        self.chains.iter_mut().flatten().find(|followed| followed.chain == chain)
    }

    fn within(&mut self) -> u64 {
        self.clock.saturating_add(u64::from(self.draws.below(self.spread_ms)))
    }

    /// Returns whether no frame with this content was received recently, and remembers it.
    fn is_new(&mut self, content: [&[u8]; 4]) -> bool {
        let parts = content.map(|part| self.draws.fingerprint(part).to_be_bytes());
        let fingerprint = self.draws.fingerprint(parts.as_flattened());
        let clock = self.clock;
        let is_known = |(of, until): &(u64, u64)| *of == fingerprint && clock < *until;
        if self.recent.iter().any(is_known) {
            return false;
        }
        if let Some(place) = self.recent.get_mut(self.recent_next) {
            *place = (fingerprint, clock.saturating_add(RECENT_MS));
        }
        self.recent_next = (self.recent_next + 1) % RECENT;
        true
    }
}

fn write<const WORDS: usize>(
    chain: ChainRef,
    combined: &Combined<WORDS>,
    out: &mut [u8],
) -> Option<usize> {
    let (frame, scratch) = out.split_at_mut(out.len() / 2);
    let length = Participation::encode(&combined.set, scratch).ok()?;
    let mut writer = Writer::new(frame);
    let receivers = scratch.get(..length)?;
    BroadcastFrame::Receipts { chain, receivers, tag: combined.tag }.encode(&mut writer).ok()?;
    Some(writer.position())
}
