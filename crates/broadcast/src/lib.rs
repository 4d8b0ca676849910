//! Authenticated broadcast (spec/broadcast.md). A receiver checks one signature per chain of
//! messages and about one SHA-256 compression per message.
//!
//! This crate is for senders of commands, firmware images and query schedules, for the nodes that
//! relay them, and for motes that receive them. It needs neither an operating system nor a heap,
//! and does not depend on the crates `seal` and `sum`. It contains no sockets, storage or clock:
//! the caller provides bytes and times.
//!
//! It follows Liu, Li and Guizani, "PKC Based Broadcast Authentication using Signature Amortization
//! for WSNs" (IEEE TWC 2012), section III. It extends the paper in four ways: chain numbers only
//! increase, tags let a receiver reject forged fragments before a block is complete, certificates
//! expire and can be revoked, and a head states the time in which its chain may be delivered. A
//! sender can encrypt a chain for named receivers ([`address`]). It must know all messages of a chain
//! before it signs the head; a live command is a chain of one message ([`SingleDraft`]).
//!
//! In this example a sender signs a chain of one block, and a receiver verifies it:
//!
//! ```
//! use moteseal_broadcast::{
//!     ChainDraft, ChainId, ChainNumber, Head, Incoming, KeyId, Kind, MAX_HEAD, MAX_LEAF,
//!     OutgoingChain, Taken, Window, sender_named,
//! };
//! use moteseal_core::digest::Digest;
//! use moteseal_core::record::NetworkId;
//! use moteseal_core::signature::{Algorithm, SecretKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = SecretKey::from_seed(Algorithm::Ed25519, &[7; 32])?;
//! let id = ChainId {
//!     network: NetworkId([1; 8]),
//!     sender: sender_named("operations"),
//!     number: ChainNumber(1),
//! };
//! let messages = [&b"open valve 3"[..], b"report hourly"];
//!
//! // The sender hashes the messages and signs the head.
//! let draft = ChainDraft {
//!     id,
//!     key: KeyId::of(&key.public()),
//!     messages: 2,
//!     per_block: 2,
//!     kind: Kind::Command,
//!     label: "valve 3",
//!     window: Window { not_before: 1_700_000_000, not_after: 1_700_000_600 },
//!     previous: None,
//!     is_addressed: false,
//! };
//! let (mut digests, mut tags, mut scratch) = ([Digest::NULL], [[0; 8]; 2], [0; MAX_LEAF]);
//! let chain = OutgoingChain::build(draft, &mut digests, &mut tags, &mut scratch, |at, buffer| {
//!     let message = messages[at as usize];
//!     buffer[..message.len()].copy_from_slice(message);
//!     Ok::<_, std::convert::Infallible>(message.len())
//! })?;
//! let mut head = [0; MAX_HEAD];
//! let head = chain.head(&key, &mut scratch, &mut head)?;
//!
//! // A receiver that knows the sender's key checks the head, then one leaf after the other.
//! let opened = Head::open(head, id.network, id.sender, &key.public(), &mut [0; MAX_HEAD])?;
//! let mut incoming = Incoming::<2>::new(&opened)?;
//! let mut leaf = [0; MAX_LEAF];
//! let first = chain.leaf(1, 0, messages[0], &mut leaf)?;
//! assert_eq!(incoming.take(1, 0, first)?, Taken::Pending { message: messages[0] });
//! let last = chain.leaf(1, 1, messages[1], &mut leaf)?;
//! // The block is complete: both messages are authentic. Obey them only within their window.
//! assert_eq!(
//!     incoming.take(1, 1, last)?,
//!     Taken::Verified { message: messages[1], block: 1, is_last: true }
//! );
//! assert!(opened.window().check(Some(1_700_000_599), 0).is_ok());
//! assert!(opened.window().check(Some(1_700_000_600), 0).is_err());
//! # Ok(())
//! # }
//! ```

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

use core::fmt;

use moteseal_core::digest;
use moteseal_core::record::{DeviceId, NetworkId};

pub mod address;
mod certificate;
mod chain;
mod evidence;
pub mod firmware;
mod freshness;
mod hash;
mod head;
mod incoming;
pub mod receipt;
mod revocation;
mod single;
pub mod wire;

pub mod recovery;

pub use certificate::{
    MAX_REQUEST, MAX_SENDER_CERTIFICATE, NotInForce, SenderCertificate, SenderCertificateDraft,
    SenderCertificateError, SenderClaim, SenderRequest, SenderRequestDraft,
};
pub use chain::{
    BuildError, ChainDraft, ContentChanged, DraftError, MAX_HEAD, OutgoingChain, Outline,
};
pub use evidence::{EvidenceCheck, EvidenceError, ExportError, Shown, export};
pub use freshness::{CLOCK_OFFSET_SECONDS, MAX_COMMAND_SECONDS, Untimely, Window};
pub use head::{Claim, Head, HeadError};
pub use incoming::{
    BYTES_PER_MESSAGE, BlockTooLarge, Incoming, IncomingState, LeafError, MAX_SNAPSHOT, Taken,
};
pub use revocation::{
    MAX_REVOCATION, MAX_REVOKED, MAX_REVOKED_BYTES, Revocation, RevocationDraft, RevokeError,
    Revoked,
};
pub use single::{MAX_SINGLE, OpenedSingle, SealError, SingleDraft, SingleError, open_single};

use moteseal_core::signature::PublicKey;

/// The maximum number of messages in a block. It is the number of bits in a request for missing
/// messages.
pub const MAX_PER_BLOCK: u8 = 64;
/// The maximum number of messages in a chain.
pub const MAX_MESSAGES: u32 = 1 << 24;
/// The maximum length of a message, in bytes.
pub const MAX_MESSAGE: usize = 8192;
/// The maximum length of a chain's label, in bytes.
pub const MAX_LABEL: usize = 64;
/// The maximum length of a trailer, in bytes. A trailer contains the digest of the next block and
/// one tag per message of that block.
pub const MAX_TRAILER: usize = 32 + 8 * MAX_PER_BLOCK as usize;
/// The maximum length of a leaf, in bytes.
pub const MAX_LEAF: usize = MAX_TRAILER + MAX_MESSAGE;

/// The maximum number of receivers in a sender's list.
pub const MAX_RECEIVERS: u32 = 1 << 15;

/// The first eight bytes of a leaf's digest. Tags let a receiver reject forged fragments before a
/// block is complete.
pub type Tag = [u8; 8];

macro_rules! bytes_id {
    ($(#[$doc:meta])* $name:ident($length:literal)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $length]);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $name {
            /// Writes the bytes as hexadecimal digits.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

bytes_id!(
    /// The short name of a chain in frames: the first 8 bytes of the digest of the chain's leaf
    /// prefix (spec/broadcast.md, section 2). A sender needs about 2^64 hashes to find another
    /// chain of its own with the same reference.
    ChainRef(8)
);
bytes_id!(
    /// The id of a base station's or a sender's key: the first 8 bytes of a digest of the key.
    KeyId(8)
);

impl KeyId {
    /// Returns the id of a key.
    #[must_use]
    pub fn of(key: &PublicKey) -> Self {
        Self::of_bytes(&key.to_bytes())
    }

    /// Returns the id of raw key bytes. Does not check whether they are a valid key.
    #[must_use]
    pub fn of_bytes(key: &[u8]) -> Self {
        Self(digest::short(&[b"moteseal/1/key\0", key]))
    }
}

/// Returns the id of the sender called `name`.
#[must_use]
pub fn sender_named(name: &str) -> DeviceId {
    DeviceId(digest::short(&[b"moteseal/1/sender\0", name.as_bytes()]))
}

/// The number of a chain. Each chain of a sender has a higher number than its previous chains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainNumber(pub u64);

impl fmt::Display for ChainNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies a chain. A sender has at most one chain with this id under each of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId {
    /// The network.
    pub network: NetworkId,
    /// The sender.
    pub sender: DeviceId,
    /// The chain's number.
    pub number: ChainNumber,
}

impl ChainId {
    /// Returns the reference of the chain with this id that is signed with `key`. Costs two SHA-256
    /// compressions.
    #[must_use]
    pub fn reference(&self, key: KeyId) -> ChainRef {
        hash::reference(self, key)
    }
}

/// The kind of a chain's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Independent messages that remain true: each receiver reads all of them.
    Announcement,
    /// The consecutive chunks of one file.
    File,
    /// A querier's current query schedule (spec/sums.md, section 3).
    QuerySchedule,
    /// Commands on one topic, which is the chain's label. They have an end, and only the newest
    /// chain of a topic applies.
    Command,
}

impl Kind {
    /// Returns the number that encodes the kind in a head.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Announcement => 0,
            Self::File => 1,
            Self::QuerySchedule => 2,
            Self::Command => 3,
        }
    }

    /// Returns the kind that a number encodes; `None` for an unknown number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Announcement),
            1 => Some(Self::File),
            2 => Some(Self::QuerySchedule),
            3 => Some(Self::Command),
            _ => None,
        }
    }

    /// Returns whether a chain of this kind may be for named receivers. Query schedules are for all.
    #[must_use]
    pub const fn may_be_addressed(self) -> bool {
        !matches!(self, Self::QuerySchedule)
    }

    /// Returns the kind's name for users: `announcement`, `file`, `schedule` or `command`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Announcement => "announcement",
            Self::File => "file",
            Self::QuerySchedule => "schedule",
            Self::Command => "command",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
