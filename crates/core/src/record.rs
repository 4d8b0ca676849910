//! The numbers and names that everything else speaks of: device, group, epoch, sequence, seal index, level, round.
//!
//! Each is a type of its own, so that an epoch cannot be passed where an index is meant. Glossary: ARCHITECTURE.md.

use core::fmt;
use core::num::NonZeroU16;

use crate::digest;

/// The largest number of levels a group may use: 31 halvings of 2^32 events leave one.
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
            /// Sixteen hexadecimal digits.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

id!(
    /// A device, unique within its group: spec/formats.md, section 1.
    DeviceId,
    "device"
);
id!(
    /// A group of devices that share a roster.
    GroupId,
    "group"
);

id!(
    /// A broadcast network: everything that trusts one base station.
    NetworkId,
    "network"
);

impl GroupId {
    /// The id of the group called `name`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        Self(digest::short(&[b"moteseal/1/group\0", name.as_bytes()]))
    }
}

impl DeviceId {
    /// The id of the device called `name` in the group called `group`.
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
    /// An interval of a group's time: `floor(unix_ms / epoch_ms)`.
    EpochNumber(u64)
);
number!(
    /// The place of an event under its seal, from 0.
    Sequence(u64)
);
number!(
    /// A device's seal counter, from 0, never reused.
    SealIndex(u32)
);
number!(
    /// An event's level: `i` with probability `2^-(i+1)`, the last one catching the rest (the paper's interval `S_i`).
    Level(u8)
);
number!(
    /// Sampling at rate `2^-j`: only levels `>= j` survive.
    Round(u8)
);

/// How records lie next to each other wherever events are hashed, stored or sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// All of one size, in bytes: raw.
    Fixed(NonZeroU16),
    /// Of any size up to [`MAX_PAYLOAD`], each behind its length as two bytes, big-endian.
    Prefixed,
}

impl Framing {
    /// Records of `size` bytes; `None` if that is 0 or above [`MAX_PAYLOAD`].
    #[must_use]
    pub fn fixed(size: usize) -> Option<Self> {
        u16::try_from(size).ok().and_then(NonZeroU16::new).map(Self::Fixed)
    }

    /// What stands before an event: nothing, or its length. `None` if the event cannot be of this framing.
    #[inline]
    pub fn prefix(self, event: &[u8]) -> Option<Option<[u8; 2]>> {
        match self {
            Self::Fixed(size) => (event.len() == usize::from(size.get())).then_some(None),
            Self::Prefixed => {
                u16::try_from(event.len()).ok().map(|length| Some(length.to_be_bytes()))
            }
        }
    }

    /// Hands out a record as it lies in a block: its length, where it stands before it, then itself. A record that cannot be of this
    /// framing is handed out as it is: who takes readings has refused it.
    #[inline]
    pub fn frame(self, record: &[u8], mut take: impl FnMut(&[u8])) {
        if let Some(prefix) = self.prefix(record).flatten() {
            take(&prefix);
        }
        take(record);
    }

    /// Splits the first record off `bytes`: the record without its length, and what follows.
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

    /// Bytes that the first `count` records of `bytes` take; `None` if there are fewer.
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

/// How the events are folded into the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Geometric Star Chaining: a digest a level.
    Star,
    /// Dynamic Tree Chaining: an RFC 9162 tree.
    Tree,
}

impl Scheme {
    /// Its number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Star => 0,
            Self::Tree => 1,
        }
    }

    /// The name in output and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Star => "star",
            Self::Tree => "tree",
        }
    }
}
