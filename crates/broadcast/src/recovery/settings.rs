//! What a node is told once: its network and base stations, when it speaks, what it passes on, and what strangers may cost it.

use moteseal_core::record::NetworkId;
use moteseal_core::signature::PublicKey;

/// Links a node has, at most.
pub const MAX_LINKS: u8 = 8;
/// Base stations whose certificates a node accepts, at most.
pub const MAX_BASES: usize = 8;

/// Some of a node's links: link `n` is bit `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSet(pub u8);

impl LinkSet {
    /// No link.
    pub const NONE: Self = Self(0);

    /// One link; none if a node has no link of that number.
    #[must_use]
    pub const fn one(link: u8) -> Self {
        Self(if link < MAX_LINKS { 1 << link } else { 0 })
    }

    /// The links `0 .. count`.
    #[must_use]
    pub const fn first(count: u8) -> Self {
        Self(if count >= MAX_LINKS { u8::MAX } else { (1 << count) - 1 })
    }

    /// Whether `link` is among them.
    #[must_use]
    pub const fn has(self, link: u8) -> bool {
        self.0 & Self::one(link).0 != 0
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those of these that are also among `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What a node does with what it has found to be genuine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relay {
    /// Nothing: it answers requests.
    Never,
    /// Says it on the links it was not heard on: a bridge between networks.
    OtherLinks,
    /// Says it on all links, the one it was heard on too: a radio, where not everybody hears everybody.
    Flood {
        /// It is not said on a link where so many others have been heard to say it meanwhile; 255: it is always said, as in the paper.
        copies: u8,
    },
}

/// When a node speaks, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What is passed on waits at random up to this.
    pub relay_ms: u32,
    /// A request waits at random up to this.
    pub request_ms: u32,
    /// Each fragment of an answer waits at random up to this.
    pub reply_ms: u32,
    /// A fragment that was sent as an answer is not sent as one again for so long, whatever is asked, and may not be for twice as long.
    pub hold_off_ms: u32,
    /// After so much silence a node asks for what is missing of a block, and then after twice as much, until the longest of `advertise_ms`.
    pub quiet_ms: u32,
    /// The shortest and the longest interval between advertisements (Trickle, RFC 6206, with `k = 1`); after the longest one they end.
    pub advertise_ms: (u32, u32),
}

impl Timing {
    /// Radios: the two seconds of the paper, and silences that a sender with a message every five seconds does not make.
    pub const RADIO: Self = Self {
        relay_ms: 2_000,
        request_ms: 2_000,
        reply_ms: 2_000,
        hold_off_ms: 4_000,
        quiet_ms: 30_000,
        advertise_ms: (15_000, 480_000),
    };
    /// Local networks of machines with an operating system. Whoever asks again because the answer was lost asks after the hold-off.
    pub const LAN: Self = Self {
        relay_ms: 5,
        request_ms: 10,
        reply_ms: 10,
        hold_off_ms: 5,
        quiet_ms: 500,
        advertise_ms: (1_000, 64_000),
    };
}

/// So much at once, and then one each so often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many at once.
    pub burst: u16,
    /// The milliseconds that one takes to come back, at least 1.
    pub each_ms: u32,
}

/// What strangers may cost a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// Signatures of heads that are checked.
    pub heads: Rate,
    /// Signatures of certificates and of revocations that are checked.
    pub certificates: Rate,
    /// Requests and advertisements that are sent.
    pub requests: Rate,
    /// Frames that are sent as answers.
    pub answers: Rate,
}

impl Meter {
    /// A mote: one check a second of a head and one of a certificate or revocation, and about a tenth of a slow radio's time for others.
    pub const MOTE: Self = Self {
        heads: Rate { burst: 4, each_ms: 1_000 },
        certificates: Rate { burst: 4, each_ms: 1_000 },
        requests: Rate { burst: 16, each_ms: 1_000 },
        answers: Rate { burst: 64, each_ms: 250 },
    };
    /// A machine with an operating system on a local network.
    pub const HOST: Self = Self {
        heads: Rate { burst: 32, each_ms: 20 },
        certificates: Rate { burst: 32, each_ms: 50 },
        requests: Rate { burst: 256, each_ms: 2 },
        answers: Rate { burst: 1_024, each_ms: 1 },
    };
}

/// What a node is told once.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Its network.
    pub network: NetworkId,
    /// The base stations whose certificates it accepts; of more than [`MAX_BASES`] the first ones.
    pub bases: &'a [PublicKey],
    /// The links it has.
    pub links: LinkSet,
    /// What it passes on.
    pub relay: Relay,
    /// When it speaks.
    pub timing: Timing,
    /// What strangers may cost it.
    pub meter: Meter,
}

/// The time, as the node's host has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of a clock that does not go back. If it does, the node takes it that no time has passed.
    pub ms: u64,
    /// Seconds since 1970, if the host knows: certificates are then held to their dates.
    pub unix: Option<u64>,
}
