//! Identifiers and numbers that all protocols use: device, group, epoch, sequence, seal index,
//! level, round.
//!
//! Each has its own type, so that, for example, an epoch number cannot be passed as a seal index.
//! The glossary in ARCHITECTURE.md explains the words.

use core::fmt;
use core::num::NonZeroU16;

use crate::digest;

/// The largest number of levels that a group may use. A seal has fewer than 2^32 events, so further
/// levels would almost always be empty.
pub const MAX_LEVELS: usize = 32;
/// The largest payload of one event, in bytes.
pub const MAX_PAYLOAD: usize = u16::MAX as usize;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $tag:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 8]);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $name {
            /// Writes sixteen hexadecimal digits.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

id!(
    /// The id of a device, unique within its group (spec/objects.md, section 1.4).
    DeviceId,
    "device"
);
id!(
    /// The id of a group: the devices that share a roster.
    GroupId,
    "group"
);

id!(
    /// The id of a broadcast network: the nodes that share base stations.
    NetworkId,
    "network"
);

impl GroupId {
    /// Returns the id of the group called `name`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(digest::short(&[b"moteseal/1/group\0", name.as_bytes()]))
    }
}

impl DeviceId {
    /// Returns the id of the device called `name` in the group called `group`.
    #[must_use]
    pub fn of(group: &str, name: &str) -> Self {
        Self(digest::short(&[b"moteseal/1/device\0", group.as_bytes(), b"\0", name.as_bytes()]))
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// The number of a group's time interval: `floor(unix_ms / epoch_ms)`.
    EpochNumber(u64)
);
number!(
    /// The position of an event in its seal, from 0.
    Sequence(u64)
);
number!(
    /// A device's seal counter, from 0. A value is never reused.
    SealIndex(u32)
);
number!(
    /// An event's level: `i` with probability `2^-(i+1)`; the last level has the remaining
    /// probability. The paper calls the events of a level the interval `S_i`.
    Level(u8)
);
number!(
    /// A sampling round. Round `j` keeps the levels `>= j`, so it samples at rate `2^-j`.
    Round(u8)
);

/// How records are delimited wherever they are hashed, stored or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// All records have this size in bytes, without a prefix.
    Fixed(NonZeroU16),
    /// Records of any size up to [`MAX_PAYLOAD`]. Each record is preceded by its length, a 2-byte
    /// big-endian integer.
    Prefixed,
}

impl Framing {
    /// Returns the framing for records of `size` bytes, or `None` if `size` is 0 or above
    /// [`MAX_PAYLOAD`].
    #[must_use]
    pub fn fixed(size: usize) -> Option<Self> {
        u16::try_from(size).ok().and_then(NonZeroU16::new).map(Self::Fixed)
    }

    /// Returns the prefix of a record: `Some(None)` if records have no prefix, otherwise the
    /// record's length in two bytes. Returns `None` if the record's size does not fit the framing.
    #[inline]
    pub fn prefix(self, event: &[u8]) -> Option<Option<[u8; 2]>> {
        match self {
            Self::Fixed(size) => (event.len() == usize::from(size.get())).then_some(None),
            Self::Prefixed => {
                u16::try_from(event.len()).ok().map(|length| Some(length.to_be_bytes()))
            }
        }
    }

    /// Passes a record, as it is encoded in a block, to `take`: first the length prefix, if there
    /// is one, then the record. A record whose size does not fit the framing is passed without a
    /// prefix. The caller must have rejected such records before.
    #[inline]
    pub fn frame(self, record: &[u8], mut take: impl FnMut(&[u8])) {
        if let Some(prefix) = self.prefix(record).flatten() {
            take(&prefix);
        }
        take(record);
    }

    /// Splits the first record off `bytes`. Returns the record without its prefix, and the
    /// remaining bytes.
    #[must_use]
    #[inline]
    pub fn split_first(self, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        match self {
            Self::Fixed(size) => bytes.split_at_checked(usize::from(size.get())),
            Self::Prefixed => {
                let (length, rest) = bytes.split_first_chunk()?;
                rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
            }
        }
    }

    /// Returns the length in bytes of the first `count` records of `bytes`, or `None` if there are
    /// fewer records.
    #[must_use]
    pub fn length_of(self, bytes: &[u8], count: u32) -> Option<usize> {
        match self {
            Self::Fixed(size) => {
                let length = u64::from(count) * u64::from(size.get());
                usize::try_from(length).ok().filter(|&length| length <= bytes.len())
            }
            Self::Prefixed => {
                let mut rest = bytes;
                for _ in 0..count {
                    rest = self.split_first(rest)?.1;
                }
                Some(bytes.len() - rest.len())
            }
        }
    }
}

/// How a seal hashes its events into one root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Geometric Star Chaining: one digest per level.
    Star,
    /// Dynamic Tree Chaining: an RFC 9162 tree.
    Tree,
}

impl Scheme {
    /// Returns the number of the scheme in the wire formats.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Star => 0,
            Self::Tree => 1,
        }
    }

    /// Returns the name of the scheme in output and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Star => "star",
            Self::Tree => "tree",
        }
    }
}
