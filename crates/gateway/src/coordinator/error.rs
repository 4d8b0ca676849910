//! Why a frame is refused: by a name that is counted, and a line that says what to do (spec/errors.md).

use std::fmt;

use moteseal_core::link::FrameError;

/// Why a frame was dropped. It is counted, changes nothing, and is answered only where its device would send it for ever
/// ([`GroupCoordinator::refusal`](crate::GroupCoordinator::refusal)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// No frame, or not the sender's.
    Frame(FrameError),
    /// The roster has no such device.
    UnknownDevice,
    /// The epoch is ahead of the group's by more than one, or outside the roster's.
    EpochTooFar,
    /// The epoch is before one that the device has forwarded or sealed under an earlier index, or one that it has closed.
    EpochGoesBack,
    /// The seal counts other events than its device forwarded, or gives them other levels.
    NotAsForwarded,
    /// The seal says that its device was told a round that the coordinator has not reached.
    RoundNotAnnounced,
    /// The device is the first to speak of too many epochs that are still open.
    TooManyEpochs,
    /// The epoch holds as many bytes as can be kept of a level: 4 GiB.
    EpochFull,
    /// The device fills more of the journal than is its part, and others need the room.
    OverQuota,
    /// The frame's framing, or whether it is of a star or a tree, differs from the one before under the same seal.
    FramingChanged,
    /// The schema does not decode, or the device's seals use as many as one may.
    Schema,
    /// The seal's items do not decode, are of another device, or carry what the coordinator has.
    MalformedClose,
    /// The seal does not verify with what the coordinator has: the name of the error.
    NotProven(&'static str),
}

impl Refused {
    /// The reason's name: for counters and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Frame(error) => error.name(),
            Self::UnknownDevice => "UnknownDevice",
            Self::EpochTooFar => "EpochTooFar",
            Self::EpochGoesBack => "EpochGoesBack",
            Self::NotAsForwarded => "NotAsForwarded",
            Self::RoundNotAnnounced => "RoundNotAnnounced",
            Self::TooManyEpochs => "TooManyEpochs",
            Self::EpochFull => "EpochFull",
            Self::OverQuota => "OverQuota",
            Self::FramingChanged => "FramingChanged",
            Self::Schema => "Schema",
            Self::MalformedClose => "MalformedClose",
            Self::NotProven(name) => name,
        }
    }
}

impl Refused {
    /// Whether the seal that was refused is refused for good, and its device is to be told; none where the same frame may be taken later,
    /// when epochs have ended or room was made, or where nobody known sent it. Not for good is what another roster, another version of the
    /// gateway, or the clock may change.
    pub(crate) const fn is_final(&self) -> Option<bool> {
        match self {
            Self::EpochGoesBack | Self::NotAsForwarded | Self::FramingChanged => Some(true),
            Self::EpochTooFar | Self::MalformedClose | Self::NotProven(_) => Some(false),
            Self::Frame(_)
            | Self::UnknownDevice
            | Self::RoundNotAnnounced
            | Self::TooManyEpochs
            | Self::EpochFull
            | Self::OverQuota
            | Self::Schema => None,
        }
    }
}

impl From<FrameError> for Refused {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        f.write_str(match self {
            Self::Frame(_) => ": the frame is none of this group's devices",
            Self::UnknownDevice => ": the roster has no such device; add it, or give the gateway the newer roster",
            Self::EpochTooFar => ": the epoch is too far ahead, or not the roster's; check the device's clock",
            Self::EpochGoesBack => ": the epoch is before one that the device has gone to, or closed",
            Self::NotAsForwarded => ": the seal counts other events than its device forwarded, or gives them other levels",
            Self::RoundNotAnnounced => ": the seal states a round that this gateway has not announced",
            Self::TooManyEpochs => ": the device is too many epochs ahead of the others, or behind them",
            Self::EpochFull => ": the epoch's events fill the queues; give the group a smaller budget",
            Self::OverQuota => ": the device has filled its part of the state's bound; if it does not flood, raise `disk`",
            Self::FramingChanged => ": the records' size, or star and tree, changed under one seal",
            Self::Schema => ": no schema, or too many of them",
            Self::MalformedClose => ": the closing frame is not one",
            Self::NotProven(_) => ": the seal does not verify",
        })
    }
}

impl std::error::Error for Refused {}
