//! Why a frame is rejected (spec/errors.md).

use std::fmt;

use moteseal_core::link::FrameError;

/// Why a frame was dropped. It is counted and changes nothing. The device is told only if it would
/// repeat the frame forever ([`GroupCoordinator::refusal`](crate::GroupCoordinator::refusal)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// No frame, or not the sender's.
    Frame(FrameError),
    /// The roster has no such device.
    UnknownDevice,
    /// The epoch is ahead of the group's by more than one, or outside the roster's.
    EpochTooFar,
    /// The epoch is before one that the device has forwarded or sealed under an earlier index, or
    /// one that it has closed.
    EpochGoesBack,
    /// The seal counts other events than its device forwarded, or gives them other levels.
    NotAsForwarded,
    /// The seal states a round that the coordinator has not announced.
    RoundNotAnnounced,
    /// The device is the first to name too many epochs that are still open.
    TooManyEpochs,
    /// The epoch holds as many bytes as can be kept of a level: 4 GiB.
    EpochFull,
    /// The device fills more of the journal than is its part, and others need the room.
    OverQuota,
    /// The frame's framing, or whether it is of a star or a tree, differs from the one before under
    /// the same seal.
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
    /// Whether a rejected seal is rejected for good, so that its device is told; `None` if the same
    /// frame may be accepted later, when epochs have ended or room was made, or if the sender is
    /// unknown. A rejection is not final if another roster, another version of the gateway, or the
    /// clock may change it.
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
