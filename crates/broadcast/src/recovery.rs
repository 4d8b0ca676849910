//! A node of a broadcast network (spec/broadcast.md, section 5). It receives, verifies, stores,
//! relays and repairs the chains of other nodes, and sends its own chains. Relays, receivers and
//! senders all use this state machine, which needs no sockets, clock or heap.
//!
//! The protocol follows section III-A.2 of the paper:
//!
//! - Blocks are received in order.
//! - New items are relayed after a short random delay.
//! - Missing items are requested by a bit vector.
//! - Neighbours answer a request after a random delay, unless they receive the same answer from
//!   another node.
//!
//! It adds these rules to those of the paper:
//!
//! - Nothing is relayed or stored before it is verified.
//! - A sender's chain numbers only increase, even across reboots ([`Store`]).
//! - A head states the number of the chain before it. A node with memory for it ([`Store::miss`])
//!   requests the chains that it has missed.
//! - All work that frames of unknown origin can cause (signature checks, requests, answers) is
//!   limited. Frames that arrive first or most often have no advantage over other frames.
//!
//! A host passes each received frame to [`Node::receive`], sends the frames that [`Node::poll`]
//! writes, and polls again at [`Node::next_due`]. It reads messages from the store when an
//! [`Event::Verified`] reports them.

use crate::receipt::ReceiverKey;
use crate::wire::BroadcastFrame;
use crate::{ChainId, ChainNumber, ChainRef, Incoming, KeyId};
use moteseal_core::named_errors;
use moteseal_core::record::DeviceId;
use moteseal_core::signature::PublicKey;

mod certificates;
mod coded;
mod copies;
mod early;
pub(crate) mod meter;
mod missed;
mod originate;
mod progress;
mod queue;
mod receive;
mod receivers;
mod send;
mod settings;
mod store;

pub use originate::Resumed;
pub use queue::Purpose;
pub use send::Transmit;
pub use settings::{LinkSet, MAX_BASES, MAX_LINKS, Meter, Now, Rate, Relay, Settings, Timing};
pub use store::{Item, MissedChain, Store};

use crate::{MAX_HEAD, MAX_SENDER_CERTIFICATE};
use coded::Wishes;
use early::EarlyLeaves;
use meter::{Bucket, Draws, Refusals, Waiting};
use progress::{Ask, Pace, Progress, Tracked, Trickle};
use queue::{Piece, Planned, Queue};

/// The maximum number of unknown chains whose heads the node requests at the same time.
const UNKNOWN: usize = 4;
/// The maximum number of chains that a node follows back from one chain to the chains before it
/// that it has missed.
const MOST_STEPS_BACK: u8 = 16;
/// The link of a request that goes to all links.
const ALL_LINKS: u8 = MAX_LINKS;
/// The maximum number of requests for the head of an unknown chain.
const UNKNOWN_ATTEMPTS: u8 = 8;
/// The maximum number of queued relays.
const RELAYS: usize = 24;
/// The maximum number of blocks with a queued answer.
const ANSWERS: usize = 16;
/// The maximum number of blocks whose recent answers are recorded. While the table is full, the
/// node does not answer requests for other blocks.
const RECENT: usize = 16;
/// The maximum number of blocks whose withheld answers are recorded. A node withholds an answer if
/// another node has already sent it.
const SPARED: usize = 8;
/// In a request, this reference stands for any chain. A node may send such a request after it
/// starts.
const ANY_CHAIN: ChainRef = ChainRef([0; 8]);
/// The longest forward jump of the host's clock that the node accepts, about 34 years. A longer
/// jump counts as this long.
const LONGEST_JUMP_MS: u64 = 1 << 40;
/// The meaning of the bits in a request for block 0.
const WANTS_HEAD: u64 = 1;
const WANTS_CERTIFICATE: u64 = 2;

named_errors! {
    /// Why a frame, or an item in it, was rejected. The rejected frame changes nothing unless the
    /// variant states a change.
    RefusedBroadcast {
        /// The bytes are not a frame, or its content is malformed.
        Malformed => "the bytes are not a frame of a broadcast",
        /// It belongs to another network.
        WrongNetwork => "the frame belongs to another network",
        /// The sender's certificate is not known; the node requests it.
        UnknownSender => "the sender's certificate is not known yet",
        /// The base station is not among those that the node accepts.
        UnknownBaseStation => "the certificate's base station is not known; add its key",
        /// The certificate has expired.
        Expired => "the sender's certificate has expired; have it certified again",
        /// The certificate is not yet valid.
        NotYetValid => "the sender's certificate is not valid yet; check the clock",
        /// The base station has revoked the certificate.
        Revoked => "the base station has revoked the sender's certificate",
        /// A certificate of the same base station with a higher serial is known, or a revocation
        /// that revokes something that this one does not revoke.
        Superseded => "a later certificate or revocation of the same base station is known",
        /// The chain is not signed with the certified key.
        KeyNotCertified => "the key is not the one in the certificate; use the key that was certified",
        /// The node has already accepted a chain of this sender with the same or a higher number.
        ChainGoesBack => "the sender has sent a later chain, or another chain with this number",
        /// The chain's blocks have more messages than the node has room for.
        BlockTooLarge => "the chain's blocks have more messages than there is room for; send it with smaller blocks",
        /// The same bytes were rejected recently.
        RefusedBefore => "the same bytes were rejected before",
        /// The limit of signature checks is reached. When the next check is allowed, the node
        /// checks one of the waiting candidates, which it chooses at random.
        Metered => "too many signatures arrived at once; the node checks one of them later",
        /// The signature does not match the key of the stated sender or base station.
        NotAuthentic => "the signature is not that of the stated signer",
        /// All slots for senders or chains are in use by incomplete chains.
        NoRoom => "all slots for senders or chains are in use",
        /// Another chain at this node has the same reference.
        ReferenceTaken => "another chain has the same reference; send it under another number",
        /// The head of the leaf's chain is not known. The node requests the head.
        UnknownChain => "the chain's head is not known yet",
        /// The leaf belongs to a later block than the current one. The node requests the missing
        /// leaves.
        NotThisBlock => "the leaf does not belong to the current block",
        /// The bytes are not what the sender signed.
        ForgedLeaf => "the bytes are not what the sender signed",
        /// All tags of the block match, but its digest does not. The stored leaves of the block
        /// were deleted.
        BlockMismatch => "the leaves match their tags, but not the block's digest; the block starts again",
        /// The chain is not one of the node's own chains, or it has no such leaf.
        NoSuchLeaf => "the chain has no such leaf",
    }
}

/// The result of processing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The frame changed nothing that the host needs to know.
    Nothing,
    /// A sender's certificate was accepted.
    Certified {
        /// The sender.
        sender: DeviceId,
        /// The id of the sender's key.
        key: KeyId,
    },
    /// A chain's head was accepted, and the node now receives the chain.
    Accepted {
        /// The chain.
        chain: ChainRef,
        /// The chain's sender.
        sender: DeviceId,
        /// The chain's number.
        number: ChainNumber,
        /// The incomplete chain that was deleted to make room, if any. It belongs to the same
        /// sender, or no part of it has arrived for a very long time.
        abandoned: Option<ChainRef>,
    },
    /// A leaf with a matching tag was stored. The host must not act on it yet.
    Pending {
        /// The chain.
        chain: ChainRef,
        /// The leaf's block, counted from 1.
        block: u32,
        /// The leaf's index in the block, counted from 0.
        index: u8,
    },
    /// One or more blocks are now authentic. The host may act on their messages, which are in the
    /// store. Each block is reported once, in order.
    Verified {
        /// The chain.
        chain: ChainRef,
        /// The chain's sender.
        sender: DeviceId,
        /// The chain's number.
        number: ChainNumber,
        /// The first block that is now authentic.
        first: u32,
        /// The last block that is now authentic.
        last: u32,
        /// Whether the chain is complete.
        is_last: bool,
    },
    /// A base station has revoked more certificates. The node drops the incomplete chains that it
    /// accepted under these certificates. [`Store::revoked`] returns what is revoked now.
    Revoked {
        /// The base station's index in the settings.
        base: u8,
    },
    /// A frame was rejected.
    Refused(RefusedBroadcast),
}

/// The number of signatures checked since the start, valid or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Signatures of heads.
    pub heads: u64,
    /// Signatures of certificates and revocations.
    pub certificates: u64,
}

/// A sender whose certificate is known. A sender with two keys has two entries.
#[derive(Clone)]
struct Sender {
    id: DeviceId,
    key_id: KeyId,
    key: PublicKey,
    base: u8,
    serial: u64,
    not_before: u64,
    not_after: u64,
    /// The certificate's fingerprint.
    certificate: u64,
    /// The highest chain number that was accepted.
    floor: Option<ChainNumber>,
    /// The reference of the chain that the sender is expected to send next.
    next: ChainRef,
    order: u32,
    /// When to ask the sender for its newest head; `u64::MAX` if never.
    head_due: u64,
}

/// A chain that other nodes mention, but whose head is not known.
#[derive(Clone, Copy)]
struct Unknown {
    chain: ChainRef,
    wanted: u64,
    link: u8,
    /// Whether this is the expected next chain of a known sender. Such an entry is not displaced by
    /// other unknown chains.
    is_expected: bool,
    ask: Ask,
    attempts: u8,
}

/// The recent answers for one block. `bits` are the leaves answered since the time `since`, and
/// `before` are those answered within one hold-off before `since`. Each answer is recorded for at
/// least one and at most two hold-off times.
#[derive(Clone, Copy)]
struct Recent {
    chain: ChainRef,
    block: u32,
    bits: u64,
    before: u64,
    since: u64,
}

impl Recent {
    /// Drops answers that are older than the hold-off. Returns whether any are left.
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

/// Requested leaves of a block that this node did not send because other nodes sent them.
#[derive(Clone, Copy)]
struct Spared {
    chain: ChainRef,
    block: u32,
    bits: u64,
}

/// A node with room for `SENDERS` senders and `CHAINS` chains of up to `B` messages per block. It
/// has a fixed size and allocates no memory. During a call, the stack needs room for a head and a
/// certificate.
#[derive(Clone)]
pub struct Node<'a, const SENDERS: usize, const CHAINS: usize, const B: usize> {
    settings: Settings<'a>,
    bases: [Option<KeyId>; MAX_BASES],
    draws: Draws,
    /// Milliseconds since the node was created. Never decreases, even if the host's clock goes
    /// back.
    clock: u64,
    host_ms: u64,
    senders: [Option<Sender>; SENDERS],
    chains: [Option<Tracked<B>>; CHAINS],
    /// Counts additions, to identify the oldest entry.
    order: u32,
    unknown: [Option<Unknown>; UNKNOWN],
    relays: Queue<RELAYS>,
    answers: Queue<ANSWERS>,
    wishes: Wishes,
    recent: [Option<Recent>; RECENT],
    spared: [Option<Spared>; SPARED],
    spared_next: usize,
    /// Until this time, the node assumes that more signatures arrive than it can check.
    contended: u64,
    heads: Waiting<MAX_HEAD, SENDERS>,
    certificates: Waiting<MAX_SENDER_CERTIFICATE, 2>,
    refusals: Refusals,
    head_meter: Bucket,
    certificate_meter: Bucket,
    request_meter: Bucket,
    answer_meter: Bucket,
    /// Limits the leaves that are read for repairs that the node receives.
    repair_meter: Bucket,
    /// Until this time, the node requests leaves that are sent alone, because more repairs arrive than
    /// it may compute.
    no_repairs_until: u64,
    checks: Checks,
    receiver_keys: &'a [ReceiverKey],
    /// The number of authenticated requests that the node has sent.
    attempts: u32,
}

impl<'a, const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'a, SENDERS, CHAINS, B> {
    /// Creates a node. All random choices derive from `seed`, which must be secret. To continue
    /// chains from before a reboot, call [`Node::resume`].
    #[must_use]
    pub fn new(settings: Settings<'a>, seed: u64, now: Now) -> Self {
        let mut node = Self {
            settings,
            bases: [None; MAX_BASES],
            draws: Draws::new(seed),
            clock: 0,
            host_ms: now.ms,
            senders: [const { None }; SENDERS],
            chains: [const { None }; CHAINS],
            order: 0,
            unknown: [None; UNKNOWN],
            relays: Queue::new(),
            answers: Queue::new(),
            wishes: Wishes::new(),
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
            repair_meter: Bucket::new(settings.meter.answers),
            no_repairs_until: 0,
            checks: Checks::default(),
            receiver_keys: &[],
            attempts: 0,
        };
        for (id, key) in node.bases.iter_mut().zip(settings.bases) {
            *id = Some(KeyId::of(key));
        }
        node
    }

    /// Processes a frame that was received on a link.
    ///
    /// # Errors
    /// The errors of the storage. After such an error the frame is not accepted. The node processes
    /// it when it arrives again.
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
            BroadcastFrame::Wanted { chain, block, wanted }
            | BroadcastFrame::ReceiverWanted { chain, block, wanted, .. } => {
                self.receive_wanted(link, (chain, block), wanted, S::REPAIRS);
                Ok(Event::Nothing)
            }
            BroadcastFrame::Repair { chain, block, mask, lengths, bytes } if S::REPAIRS => {
                self.receive_repair(link, (chain, block), mask, lengths, bytes, store)
            }
            BroadcastFrame::Holds { chain, block, index } => {
                self.receive_holds(link, chain, block, index);
                Ok(Event::Nothing)
            }
            BroadcastFrame::HeadFor { receiver, tag, head } => {
                self.receive_head_for((now, link), receiver, &tag, head, store)
            }
            _ => Ok(Event::Nothing),
        }
    }

    /// Requests any chain until another node advertises one. Nodes that have chains respond by
    /// advertising them again. Call this on a node that has just started and does not know what was
    /// sent before.
    pub fn solicit(&mut self, now: Now) {
        self.advance(now);
        // A request that has waited long is sent soon, too.
        let pace = self.pace();
        for unknown in self.unknown.iter_mut().flatten() {
            let (settle_ms, request_ms) = (pace.settle_ms, pace.timing.request_ms);
            unknown.ask = Ask::at(self.clock, settle_ms, request_ms, &mut self.draws);
            unknown.attempts = 0;
        }
        self.note_unknown(ANY_CHAIN, WANTS_HEAD, 0);
    }

    /// Returns the number of signatures that have been checked so far.
    #[must_use]
    pub const fn checks(&self) -> Checks {
        self.checks
    }

    /// For each chain in the node's slots, returns its reference, its id, the number of its
    /// verified blocks, and whether it is complete.
    pub fn chains(&self) -> impl Iterator<Item = (ChainRef, ChainId, u32, bool)> {
        self.chains.iter().flatten().map(|chain| {
            let verified = chain
                .missing()
                .map_or(chain.outline.blocks(), |(block, _)| block.saturating_sub(1));
            (chain.reference, chain.outline.id, verified, chain.missing().is_none())
        })
    }

    /// Returns whether no relay or answer for a chain is queued, and the node has not recently
    /// answered a request for its leaves. A sender that is not in a hurry waits for this before it
    /// sends the next block.
    #[must_use]
    pub fn is_settled(&self, chain: ChainRef) -> bool {
        let is_planned = |planned: &Planned| planned.piece.chain() == Some(chain);
        let pause = u64::from(self.settings.timing.request_ms)
            + u64::from(self.settings.timing.answer_ms());
        !self.relays.iter().chain(self.answers.iter()).any(is_planned)
            && self
                .tracked(chain)
                .is_none_or(|tracked| self.clock >= tracked.asked.saturating_add(pause))
    }

    /// Advances the node's clock. If the host's clock goes back, no time passes for the node.
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

    /// Returns a random time within the next `ms` milliseconds.
    fn within(&mut self, ms: u32) -> u64 {
        self.clock.saturating_add(u64::from(self.draws.below(ms)))
    }
}
