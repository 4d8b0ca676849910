//! The configuration of a node: its network and base stations, its timing, what it relays, and the
//! limits on the work that frames of unknown origin may cause.

use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;

/// The maximum number of links of a node.
pub const MAX_LINKS: u8 = 8;
/// The maximum number of base stations whose certificates a node accepts.
pub const MAX_BASES: usize = 8;

/// A set of a node's links: link `n` is bit `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSet(pub u8);

impl LinkSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set that contains only `link`; the empty set if `link` is out of range.
    #[must_use]
    pub const fn one(link: u8) -> Self {
        Self(if link < MAX_LINKS { 1 << link } else { 0 })
    }

    /// Returns the set of the links `0 .. count`.
    #[must_use]
    pub const fn first(count: u8) -> Self {
        Self(if count >= MAX_LINKS { u8::MAX } else { (1 << count) - 1 })
    }

    /// Returns whether the set contains `link`.
    #[must_use]
    pub const fn has(self, link: u8) -> bool {
        self.0 & Self::one(link).0 != 0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the links of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// On which links a node relays verified items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relay {
    /// The node relays nothing and only answers requests.
    Never,
    /// The node relays an item on all links except the one on which it received the item. For a
    /// bridge between networks.
    OtherLinks,
    /// The node relays an item on all links, including the one on which it received the item. For
    /// radios, where not every node is in range of every other node.
    Flood {
        /// If the node receives this many copies of an item on a link before its relay is due, it
        /// does not relay the item on that link. With 255 it always relays, as in the paper.
        copies: u8,
    },
}

/// The timing of a node, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The maximum random delay of a relay.
    pub relay_ms: u32,
    /// The maximum random delay of a request.
    pub request_ms: u32,
    /// The maximum random delay of each fragment that answers a request.
    pub reply_ms: u32,
    /// The minimum time between two answers with the same fragment. The effective minimum is
    /// between one and two times this value.
    pub hold_off_ms: u32,
    /// After this long without a new leaf, a node requests the missing leaves of a block. The
    /// interval doubles with each request, up to the longest interval of `advertise_ms`.
    pub quiet_ms: u32,
    /// The shortest and the longest interval between advertisements (Trickle, RFC 6206, with `k =
    /// 1`). After the longest interval a node stops advertising.
    pub advertise_ms: (u32, u32),
    /// After a new leaf of a chain has arrived on a link, the node ignores requests for the chain on
    /// that link for this time: the node that sent the leaf can answer. The pause avoids repeated
    /// answers by neighbours that did not receive the first answer. An attacker cannot cause the
    /// pause, because only the chain's sender can create a new leaf. 0 for none.
    pub leave_ms: u32,
    /// For how long a node collects requests for leaves of a block before it answers them. The
    /// answers are then repairs: the exclusive or of leaves that different nodes lack. 0 for answers
    /// with single leaves. Only a node whose store permits repairs
    /// ([`Store::REPAIRS`](super::Store::REPAIRS)) sends them.
    pub gather_ms: u32,
}

impl Timing {
    /// Returns the longest time from a request to the first frame that answers it.
    pub(super) const fn answer_ms(&self) -> u32 {
        self.gather_ms.saturating_add(self.reply_ms)
    }

    /// Timing for radios. The random delays are the paper's two seconds. The quiet time is longer
    /// than the gaps of a sender that sends a message every five seconds. Neighbours answer at any
    /// time, because the sender may be out of range.
    pub const RADIO: Self = Self {
        relay_ms: 2_000,
        request_ms: 2_000,
        reply_ms: 2_000,
        hold_off_ms: 4_000,
        quiet_ms: 30_000,
        advertise_ms: (15_000, 480_000),
        leave_ms: 0,
        gather_ms: 0,
    };
    /// Timing for local networks of machines with an operating system. The hold-off ends before a
    /// node repeats its request, so a lost answer is sent again.
    pub const LAN: Self = Self {
        relay_ms: 5,
        request_ms: 10,
        reply_ms: 10,
        hold_off_ms: 5,
        quiet_ms: 500,
        advertise_ms: (1_000, 64_000),
        leave_ms: 1_000,
        gather_ms: 8,
    };
}

/// The rate of a token bucket: `burst` tokens at once, then one token every `each_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The maximum number of tokens at once.
    pub burst: u16,
    /// The number of milliseconds after which one token is added, at least 1.
    pub each_ms: u32,
}

/// The limits on the work that frames of unknown origin may cause at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// How often the node checks the signature of a head.
    pub heads: Rate,
    /// How often the node checks the signature of a certificate or revocation.
    pub certificates: Rate,
    /// How often the node sends a request or advertisement.
    pub requests: Rate,
    /// How often the node sends a frame as an answer, and how often it reads a leaf for a
    /// repair that it has received.
    pub answers: Rate,
}

impl Meter {
    /// Limits for a mote. It checks one signature per second for heads, and one per second for
    /// certificates and revocations. Its answers use about a tenth of a slow radio's time.
    pub const MOTE: Self = Self {
        heads: Rate { burst: 4, each_ms: 1_000 },
        certificates: Rate { burst: 4, each_ms: 1_000 },
        requests: Rate { burst: 16, each_ms: 1_000 },
        answers: Rate { burst: 64, each_ms: 250 },
    };
    /// Limits for a machine with an operating system on a local network.
    pub const HOST: Self = Self {
        heads: Rate { burst: 32, each_ms: 20 },
        certificates: Rate { burst: 32, each_ms: 50 },
        requests: Rate { burst: 256, each_ms: 2 },
        answers: Rate { burst: 1_024, each_ms: 1 },
    };
}

/// The configuration of a node.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Its network.
    pub network: NetworkId,
    /// The keys of the base stations whose certificates the node accepts. Only the first
    /// [`MAX_BASES`] are used.
    pub bases: &'a [PublicKey],
    /// The node's links.
    pub links: LinkSet,
    /// On which links the node relays items.
    pub relay: Relay,
    /// The node's timing.
    pub timing: Timing,
    /// The node's limits against floods.
    pub meter: Meter,
}

/// The time on the node's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time of a monotonic clock in milliseconds. If it goes back, the node assumes that no
    /// time has passed.
    pub ms: u64,
    /// Seconds since 1970, if the host knows the date. The node then checks the dates of
    /// certificates.
    pub unix: Option<u64>,
}
