//! The configuration of a node: its network and base stations, its timing, what it relays, and the
//! limits on what other nodes' frames may cost it.

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
    /// No link.
    pub const NONE: Self = Self(0);

    /// One link; the empty set if `link` is out of range.
    #[must_use]
    pub const fn one(link: u8) -> Self {
        Self(if link < MAX_LINKS { 1 << link } else { 0 })
    }

    /// The links `0 .. count`.
    #[must_use]
    pub const fn first(count: u8) -> Self {
        Self(if count >= MAX_LINKS { u8::MAX } else { (1 << count) - 1 })
    }

    /// Whether the set contains `link`.
    #[must_use]
    pub const fn has(self, link: u8) -> bool {
        self.0 & Self::one(link).0 != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The links of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The intersection of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Which verified items a node relays, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relay {
    /// It relays nothing and only answers requests.
    Never,
    /// It sends an item on the links on which it was not received: a bridge between networks.
    OtherLinks,
    /// It sends an item on all links, including the one on which it was received: a radio, where
    /// not every node is in range of every other.
    Flood {
        /// The node does not send an item on a link on which it has received this many copies
        /// before the relay was due. With 255 it always sends, as in the paper.
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
    /// Once a fragment was sent as an answer, it is not sent as an answer again for this long,
    /// even if it is requested. The node may withhold it for up to twice as long.
    pub hold_off_ms: u32,
    /// After this long without a new leaf, a node requests the missing leaves of a block. The
    /// interval doubles with each request, up to the longest of `advertise_ms`.
    pub quiet_ms: u32,
    /// The shortest and the longest interval between advertisements (Trickle, RFC 6206, with `k =
    /// 1`). After the longest interval a node stops advertising.
    pub advertise_ms: (u32, u32),
}

impl Timing {
    /// For radios: the two seconds of the paper, and quiet times that are longer than the gaps of a
    /// sender that sends a message every five seconds.
    pub const RADIO: Self = Self {
        relay_ms: 2_000,
        request_ms: 2_000,
        reply_ms: 2_000,
        hold_off_ms: 4_000,
        quiet_ms: 30_000,
        advertise_ms: (15_000, 480_000),
    };
    /// For local networks of machines with an operating system. A node whose answer was lost
    /// requests it again after the hold-off.
    pub const LAN: Self = Self {
        relay_ms: 5,
        request_ms: 10,
        reply_ms: 10,
        hold_off_ms: 5,
        quiet_ms: 500,
        advertise_ms: (1_000, 64_000),
    };
}

/// The rate of a token bucket: `burst` at once, then one every `each_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The maximum number at once.
    pub burst: u16,
    /// The milliseconds until one token comes back, at least 1.
    pub each_ms: u32,
}

/// The limits on what frames of unknown origin may cost a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Signatures of heads that the node checks.
    pub heads: Rate,
    /// Signatures of certificates and revocations that the node checks.
    pub certificates: Rate,
    /// Requests and advertisements that the node sends.
    pub requests: Rate,
    /// Frames that the node sends as answers.
    pub answers: Rate,
}

impl Meter {
    /// For a mote: one signature check a second for heads and one for certificates and revocations,
    /// and about a tenth of a slow radio's time for answers.
    pub const MOTE: Self = Self {
        heads: Rate { burst: 4, each_ms: 1_000 },
        certificates: Rate { burst: 4, each_ms: 1_000 },
        requests: Rate { burst: 16, each_ms: 1_000 },
        answers: Rate { burst: 64, each_ms: 250 },
    };
    /// For a machine with an operating system on a local network.
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
    /// The base stations whose certificates the node accepts. After the first [`MAX_BASES`], the
    /// rest are ignored.
    pub bases: &'a [PublicKey],
    /// Its links.
    pub links: LinkSet,
    /// What it relays.
    pub relay: Relay,
    /// Its timing.
    pub timing: Timing,
    /// Its limits against floods.
    pub meter: Meter,
}

/// The time on the node's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a monotonic clock. If it goes back, the node assumes that no time has
    /// passed.
    pub ms: u64,
    /// Seconds since 1970, if the host knows the date. The node then checks the dates of
    /// certificates.
    pub unix: Option<u64>,
}
