//! Why a frame is rejected (spec/errors.md).

use moteseal_api::ErrorKind;
use moteseal_core::link::FrameError;

/// Why a frame was rejected. A rejected frame is counted and changes nothing. The device is
/// informed only if it would otherwise repeat the frame forever
/// ([`GroupCoordinator::refusal`](crate::GroupCoordinator::refusal)).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The frame does not decode, or it is not from the device that it names.
    #[error("not a frame of a device of this group")]
    Frame(#[from] FrameError),
    /// The roster has no such device.
    #[error("the roster has no such device; add it, or give the gateway the newer roster")]
    UnknownDevice,
    /// The epoch is more than one ahead of the group's current epoch, or outside the roster's
    /// epochs.
    #[error("the epoch is too far ahead, or outside the roster's epochs; check the device's clock")]
    EpochTooFar,
    /// The epoch is before one that the device has forwarded or sealed under an earlier index, or
    /// is one that the device has closed.
    #[error("the device has already begun a later epoch, or closed this one")]
    EpochGoesBack,
    /// The seal's event counts or levels differ from what its device forwarded.
    #[error("the seal's event counts or levels differ from what its device forwarded")]
    NotAsForwarded,
    /// The seal states a round that the coordinator has not announced.
    #[error("the seal states a round that this gateway has not announced")]
    RoundNotAnnounced,
    /// Too many open epochs were first reached by this device.
    #[error("the device is too many epochs ahead of the others, or behind them")]
    TooManyEpochs,
    /// The epoch has as many bytes in one level as can be kept: 4 GiB.
    #[error("the epoch's events fill the queues; give the group a smaller budget")]
    EpochFull,
    /// The device has used its share of the journal, and the rest of the room is reserved for
    /// others.
    #[error(
        "the device has filled its part of the state's limit; if it does not flood, raise \
         `disk`"
    )]
    OverQuota,
    /// The framing, or the scheme (star or tree), differs from that of an earlier frame of the same
    /// seal.
    #[error("the record size, or the scheme (star or tree), changed within one seal")]
    FramingChanged,
    /// The schema does not decode, or the device's seals already use the maximum number of schemas.
    #[error("the schema is invalid, or the device has too many of them")]
    Schema,
    /// The seal's items do not decode, are of another device, or contain events or digests that the
    /// coordinator must already have.
    #[error("the closing frame is malformed")]
    MalformedClose,
    /// The seal does not verify with the events that the coordinator has; the name of the
    /// verifier's error.
    #[error("the seal does not verify")]
    NotProven(&'static str),
}

impl Refused {
    /// The name of the reason, for counters and logs.
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

    /// Always [`ErrorKind::Refused`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }
}

impl Refused {
    /// Whether a seal is rejected, and the device must be informed: `Some(true)` if the rejection
    /// is final, `Some(false)` if another roster, another version of the gateway or a corrected
    /// clock may change it. `None` if the same frame may be accepted later, when epochs have ended
    /// or there is room again, or if the sender is unknown.
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

moteseal_api::named_error!(Refused);
