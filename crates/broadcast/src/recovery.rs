//! A node: whoever hears, verifies, keeps, passes on and repairs chains, and says its own (spec/broadcast.md, section 6). One state machine for
//! relay, receiver and sender alike, without sockets, clock or heap.
//!
//! After section III-A.2 of the paper: blocks in order, what is new is passed on after a short random wait, what is missing is asked for by a
//! bit vector, neighbours answer after a random wait, and whoever hears another say the same is silent. What the paper leaves open: nothing
//! is passed on or kept before it is found to be genuine; chains of a sender only go up, over reboots too ([`Store`]); and everything that
//! a stranger can make a node do (check a signature, ask, answer) is metered, with no advantage in coming first or most often.
//!
//! A host gives the node every frame it hears ([`Node::receive`]), sends what [`Node::poll`] writes, and polls again at [`Node::next_due`].
//! Messages are read from the store when an [`Event::Verified`] says so.

use crate::wire::BroadcastFrame;
use crate::{ChainId, ChainNumber, ChainRef, Incoming, KeyId};
use moteseal_core::named_errors;
use moteseal_core::record::DeviceId;
use moteseal_core::signature::PublicKey;

mod certificates;
mod early;
mod meter;
mod originate;
mod progress;
mod queue;
mod receive;
mod send;
mod settings;
mod store;

pub use originate::Resumed;
pub use queue::Purpose;
pub use send::Transmit;
pub use settings::{LinkSet, MAX_BASES, MAX_LINKS, Meter, Now, Rate, Relay, Settings, Timing};
pub use store::{Item, Store};

use crate::{MAX_HEAD, MAX_SENDER_CERTIFICATE};
use early::EarlyLeaves;
use meter::{Bucket, Draws, Refusals, Waiting};
use progress::{Ask, Pace, Progress, Tracked, Trickle};
use queue::{Piece, Planned, Queue};

/// Chains that were heard of and are not known, at once.
const UNKNOWN: usize = 4;
/// Requests for the head of such a chain.
const UNKNOWN_ATTEMPTS: u8 = 8;
/// Relays that are planned at once.
const RELAYS: usize = 24;
/// Blocks of which something is to be answered at once.
const ANSWERS: usize = 16;
/// Blocks of which something was answered lately. While there is no place for another one, nothing of another one is answered.
const RECENT: usize = 16;
/// Blocks of which something was not answered because others were heard to say it.
const SPARED: usize = 8;
/// What a node that has just started asks for: whichever chains there are.
const ANY_CHAIN: ChainRef = ChainRef([0; 8]);
/// No jump of the clock is longer than this, about 34 years.
const LONGEST_JUMP_MS: u64 = 1 << 40;
/// In a request for what comes before the blocks.
const WANTS_HEAD: u64 = 1;
const WANTS_CERTIFICATE: u64 = 2;

named_errors! {
    /// Why a frame, or something in it, was not taken. Nothing has changed, unless it says so.
    RefusedBroadcast {
        /// Not a frame, or what is in it is not what it should be.
        Malformed => "the bytes are not a frame of a broadcast",
        /// Of another network.
        WrongNetwork => "it is of another network",
        /// Of a sender whose certificate is not known; it is asked for.
        UnknownSender => "the sender's certificate is not known yet",
        /// Of a base station that is not among the node's.
        UnknownBaseStation => "the certificate is of a base station that is not known; add its key",
        /// The certificate's time is over.
        Expired => "the sender's certificate has expired; have it certified again",
        /// The certificate's time has not come.
        NotYetValid => "the sender's certificate is not valid yet; check the clock",
        /// The certificate's serial is below the base station's minimum.
        Revoked => "the base station has revoked the sender's certificate",
        /// A certificate or revocation by the same base station with a higher number is known.
        Superseded => "a later one of the same base station is known",
        /// The chain's number is not higher than that of a chain that was accepted.
        ChainGoesBack => "the sender has said a later chain, or another one under this number",
        /// The chain's blocks have more messages than the node has room for.
        BlockTooLarge => "the chain's blocks have more messages than there is room for; send it with smaller blocks",
        /// These very bytes were refused lately.
        RefusedBefore => "the same bytes were refused before",
        /// No signature can be checked now; one of those that wait will be.
        Metered => "more signatures came than are checked at a time",
        /// The signature is not the sender's or the base station's.
        NotAuthentic => "the signature is not of whom it says",
        /// Every place for senders or chains is taken by what is under way.
        NoRoom => "all places for senders or chains are taken",
        /// Another chain that is tracked has the same reference.
        ReferenceTaken => "another chain has the same reference; send it under another number",
        /// A leaf of a chain whose head is not known; it is asked for.
        UnknownChain => "the chain's head is not known yet",
        /// A leaf of a later block than the one under way, which is asked for.
        NotThisBlock => "the leaf is of another block than the one under way",
        /// The bytes are not what the sender signed.
        ForgedLeaf => "the bytes are not what the sender signed",
        /// All tags of the block fit and its digest does not: what was kept of the block was forgotten.
        BlockMismatch => "the leaves fit their tags and the block does not fit its digest; it starts again",
        /// The leaf was released before the chain was originated, or the chain has no such leaf.
        NoSuchLeaf => "the chain has no such leaf",
    }
}

/// What came of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing that is new.
    Nothing,
    /// A sender's certificate was accepted.
    Certified {
        /// The sender.
        sender: DeviceId,
        /// Its key.
        key: KeyId,
    },
    /// A chain's head was accepted: the chain is tracked.
    Accepted {
        /// The chain.
        chain: ChainRef,
        /// Its sender.
        sender: DeviceId,
        /// Its number.
        number: ChainNumber,
        /// The chain of this sender that gave way to it before it was complete, if any: it is forgotten.
        abandoned: Option<ChainRef>,
    },
    /// A leaf was kept that carries the right tag. It must not be acted on.
    Pending {
        /// The chain.
        chain: ChainRef,
        /// The block.
        block: u32,
        /// The leaf.
        index: u8,
    },
    /// Blocks are authentic, and were not before: their messages, in the store, are to be acted on. Said once a block and in order.
    Verified {
        /// The chain.
        chain: ChainRef,
        /// Its sender.
        sender: DeviceId,
        /// Its number.
        number: ChainNumber,
        /// The first of the blocks.
        first: u32,
        /// The last of them.
        last: u32,
        /// Whether the chain is complete.
        is_last: bool,
    },
    /// A base station has revoked the certificates below a serial. The chains under them are no longer tracked.
    Revoked {
        /// The base station, by its place in the settings.
        base: u8,
        /// The lowest serial that is valid.
        minimum: u64,
    },
    /// Something was refused.
    Refused(RefusedBroadcast),
}

/// Signatures that were checked since the start, genuine or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Of heads.
    pub heads: u64,
    /// Of certificates and revocations.
    pub certificates: u64,
}

/// A sender whose certificate is known. One with two keys is two of these.
#[derive(Clone)]
struct Sender {
    id: DeviceId,
    key_id: KeyId,
    key: PublicKey,
    base: u8,
    serial: u64,
    not_before: u64,
    not_after: u64,
    /// What the node knows the certificate by.
    certificate: u64,
    /// The highest chain that was accepted.
    floor: Option<ChainNumber>,
    /// What the chain is named by that most likely comes next.
    next: ChainRef,
    order: u32,
}

/// A chain that was heard of and whose head is not known.
#[derive(Clone, Copy)]
struct Unknown {
    chain: ChainRef,
    wanted: u64,
    link: u8,
    /// Whether a known sender is about to say such a chain: it does not give way to whatever else is heard of.
    is_expected: bool,
    ask: Ask,
    attempts: u8,
}

/// A block of which leaves were answered lately: those since a time, and those within a hold-off before it. Each is held for at least one
/// hold-off and at most two.
#[derive(Clone, Copy)]
struct Recent {
    chain: ChainRef,
    block: u32,
    bits: u64,
    before: u64,
    since: u64,
}

impl Recent {
    /// Takes it that time has passed; whether something is still held.
    fn pass(&mut self, clock: u64, hold_off: u64) -> bool {
        let passed = clock.saturating_sub(self.since);
        if passed >= hold_off {
            let lately = passed < hold_off.saturating_mul(2);
            let (before, since) =
                if lately { (self.bits, self.since.saturating_add(hold_off)) } else { (0, clock) };
            (self.before, self.bits, self.since) = (before, 0, since);
        }
        self.bits | self.before != 0
    }
}

/// Leaves of a block that were not answered because others were heard to say them.
#[derive(Clone, Copy)]
struct Spared {
    chain: ChainRef,
    block: u32,
    bits: u64,
}

/// A node that knows up to `SENDERS` senders and follows up to `CHAINS` chains of up to `B` messages a block. Its memory is its size, but for
/// what is on the stack during a call: a head and a certificate.
#[derive(Clone)]
pub struct Node<'a, const SENDERS: usize, const CHAINS: usize, const B: usize> {
    settings: Settings<'a>,
    bases: [Option<KeyId>; MAX_BASES],
    minimums: [u64; MAX_BASES],
    draws: Draws,
    /// Milliseconds since the start. Goes on however the host's clock jumps.
    clock: u64,
    host_ms: u64,
    senders: [Option<Sender>; SENDERS],
    chains: [Option<Tracked<B>>; CHAINS],
    /// Counts what takes a place, so that the oldest is known.
    order: u32,
    unknown: [Option<Unknown>; UNKNOWN],
    relays: Queue<RELAYS>,
    answers: Queue<ANSWERS>,
    recent: [Option<Recent>; RECENT],
    spared: [Option<Spared>; SPARED],
    spared_next: usize,
    /// Until when more signatures are taken to come than are checked.
    contended: u64,
    heads: Waiting<MAX_HEAD, SENDERS>,
    certificates: Waiting<MAX_SENDER_CERTIFICATE, 2>,
    refusals: Refusals,
    head_meter: Bucket,
    certificate_meter: Bucket,
    request_meter: Bucket,
    answer_meter: Bucket,
    checks: Checks,
}

impl<'a, const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'a, SENDERS, CHAINS, B> {
    /// A node at its start, which reads from the store what was revoked. All that is random follows from `seed`, which strangers should not
    /// know. Chains that were under way go on by [`Node::resume`].
    ///
    /// # Errors
    /// Those of the store.
    pub fn new<S: Store>(
        settings: Settings<'a>,
        seed: u64,
        now: Now,
        store: &mut S,
    ) -> Result<Self, S::Error> {
        let mut node = Self {
            settings,
            bases: [None; MAX_BASES],
            minimums: [0; MAX_BASES],
            draws: Draws::new(seed),
            clock: 0,
            host_ms: now.ms,
            senders: [const { None }; SENDERS],
            chains: [const { None }; CHAINS],
            order: 0,
            unknown: [None; UNKNOWN],
            relays: Queue::new(),
            answers: Queue::new(),
            recent: [None; RECENT],
            spared: [None; SPARED],
            spared_next: 0,
            contended: 0,
            heads: Waiting::new(),
            certificates: Waiting::new(),
            refusals: Refusals::new(),
            head_meter: Bucket::new(settings.meter.heads),
            certificate_meter: Bucket::new(settings.meter.certificates),
            request_meter: Bucket::new(settings.meter.requests),
            answer_meter: Bucket::new(settings.meter.answers),
            checks: Checks::default(),
        };
        for ((place, key), (id, minimum)) in
            (0..).zip(settings.bases).zip(node.bases.iter_mut().zip(&mut node.minimums))
        {
            (*id, *minimum) = (Some(KeyId::of(key)), store.minimum(place)?);
        }
        Ok(node)
    }

    /// Looks at a frame that was heard on a link.
    ///
    /// # Errors
    /// Those of the store; then the frame was not taken, and is when it comes again.
    pub fn receive<S: Store>(
        &mut self,
        now: Now,
        link: u8,
        frame: &[u8],
        store: &mut S,
    ) -> Result<Event, S::Error> {
        self.advance(now);
        let Ok(frame) = BroadcastFrame::decode(frame) else {
            return Ok(Event::Refused(RefusedBroadcast::Malformed));
        };
        match frame {
            BroadcastFrame::Certificate(bytes) => {
                self.receive_certificate(now, link, bytes, false, store)
            }
            BroadcastFrame::Revocation(bytes) => self.receive_revocation(link, bytes, false, store),
            BroadcastFrame::Head(bytes) => self.receive_head(now, link, bytes, None, false, store),
            BroadcastFrame::Single { head, leaf } => {
                self.receive_single(now, link, head, leaf, store)
            }
            BroadcastFrame::Fragment { chain, block, index, leaf } => {
                self.receive_leaf(link, chain, block, index, leaf, store)
            }
            BroadcastFrame::Wanted { chain, block, wanted } => {
                self.receive_wanted(link, chain, block, wanted);
                Ok(Event::Nothing)
            }
            BroadcastFrame::Holds { chain, block, index } => {
                self.receive_holds(link, chain, block, index);
                Ok(Event::Nothing)
            }
            _ => Ok(Event::Nothing),
        }
    }

    /// Asks which chains there are, until somebody says: for a node that has just started, and cannot know what was said before. Those who hold
    /// chains advertise them again.
    pub fn solicit(&mut self, now: Now) {
        self.advance(now);
        self.note_unknown(ANY_CHAIN, WANTS_HEAD, 0);
    }

    /// The signatures that were checked so far.
    #[must_use]
    pub const fn checks(&self) -> Checks {
        self.checks
    }

    /// The chains that the node has a place for: reference, which chain, its verified blocks, and whether that is all.
    pub fn chains(&self) -> impl Iterator<Item = (ChainRef, ChainId, u32, bool)> {
        self.chains.iter().flatten().map(|chain| {
            let verified = chain
                .missing()
                .map_or(chain.outline.blocks(), |(block, _)| block.saturating_sub(1));
            (chain.reference, chain.outline.id, verified, chain.missing().is_none())
        })
    }

    /// Whether all that was asked for of a chain has been answered and nobody has asked for a while: a sender that is in no hurry goes on to
    /// the next block then.
    #[must_use]
    pub fn is_settled(&self, chain: ChainRef) -> bool {
        let is_planned = |planned: &Planned| planned.piece.chain() == Some(chain);
        let pause =
            u64::from(self.settings.timing.request_ms) + u64::from(self.settings.timing.reply_ms);
        !self.relays.iter().chain(self.answers.iter()).any(is_planned)
            && self
                .tracked(chain)
                .is_none_or(|tracked| self.clock >= tracked.asked.saturating_add(pause))
    }

    /// Takes it that time has passed. A clock that goes back has stood still.
    fn advance(&mut self, now: Now) {
        let passed = now.ms.saturating_sub(self.host_ms).min(LONGEST_JUMP_MS);
        self.clock = self.clock.saturating_add(passed);
        self.host_ms = now.ms;
    }

    const fn pace(&self) -> Pace {
        let timing = self.settings.timing;
        Pace {
            timing,
            settle_ms: if matches!(self.settings.relay, Relay::Flood { .. }) {
                timing.relay_ms
            } else {
                0
            },
        }
    }

    fn slot(&self, chain: ChainRef) -> Option<usize> {
        self.chains
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|tracked| tracked.reference == chain))
    }

    fn tracked(&self, chain: ChainRef) -> Option<&Tracked<B>> {
        self.chains.iter().flatten().find(|tracked| tracked.reference == chain)
    }

    fn sender(&self, id: DeviceId, key: KeyId) -> Option<usize> {
        self.senders.iter().position(|slot| {
            slot.as_ref().is_some_and(|sender| (sender.id, sender.key_id) == (id, key))
        })
    }

    fn next_order(&mut self) -> u32 {
        self.order = self.order.saturating_add(1);
        self.order
    }

    /// A wait of up to so many milliseconds from now on.
    fn within(&mut self, ms: u32) -> u64 {
        self.clock.saturating_add(u64::from(self.draws.below(ms)))
    }
}
