//! The numbers and names that everything else speaks of: device, group, epoch, sequence, seal index, level, round.
//!
//! Each is a type of its own, so that an epoch cannot be passed where an index is meant. Glossary: ARCHITECTURE.md.

use core::fmt;

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
