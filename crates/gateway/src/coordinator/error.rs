//! The reasons for which the coordinator rejects a frame (spec/errors.md).

use moteseal_api::ErrorKind;
use moteseal_core::link::FrameError;

/// Why a frame was rejected. A rejected frame is counted and changes nothing. The coordinator
/// informs the device only if the device would otherwise repeat the frame forever
/// ([`GroupCoordinator::refusal`](crate::GroupCoordinator::refusal)).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The frame does not decode, or the device that it names did not send it.
    #[error("not a valid frame of a device of this group")]
    Frame(#[from] FrameError),
    /// The roster has no such device.
    #[error("the roster has no such device; add it, or give the gateway the newer roster")]
    UnknownDevice,
    /// The seal's epoch is more than one epoch ahead of the group's current epoch, or outside the
    /// epochs that the roster allows.
    #[error(
        "the seal's epoch is too far ahead, or outside the roster's epochs; check the device's clock \
         and that the gateway has the device's roster"
    )]
    EpochTooFar,
    /// The roster gives the group no budget in this epoch, or another coordinator.
    #[error(
        "the roster gives the group no budget or another coordinator in this epoch; give the device \
         and the gateway the newest roster"
    )]
    NotCoordinated,
    /// The device does not belong to the group in this epoch: it joins later, or was removed.
    #[error(
        "the roster does not list the device in this epoch; give the device and the gateway the \
         newest roster"
    )]
    NotAMember,
    /// The device has already forwarded events of a later epoch, sent a seal of a later epoch, or
    /// closed this epoch.
    #[error("the device has already begun a later epoch, or closed this one")]
    EpochGoesBack,
    /// The seal's event counts or levels differ from what its device forwarded.
    #[error("the seal's event counts or levels differ from what its device forwarded")]
    NotAsForwarded,
    /// The seal states a round that the coordinator has not announced.
    #[error("the seal states a round that this gateway has not announced")]
    RoundNotAnnounced,
    /// This device sent the first frame of too many epochs that are still open.
    #[error("the device is too many epochs ahead of the others, or behind them")]
    TooManyEpochs,
    /// One level of the epoch already holds the maximum number of bytes, 4 GiB.
    #[error("the epoch's events fill the queues; give the group a smaller budget")]
    EpochFull,
    /// The device has used its share of the journal. The rest of the journal's room is reserved for
    /// other devices.
    #[error(
        "the device has used its share of the limit `disk`; raise `disk`, unless the \
         device is flooding the gateway"
    )]
    OverQuota,
    /// The framing or the scheme (star or tree) differs from an earlier frame of the same seal.
    #[error("the record framing or the scheme (star or tree) changed within one seal")]
    FramingChanged,
    /// The schema does not decode, or the device's seals already use the maximum number of schemas.
    #[error("the schema is invalid, or the device has too many of them")]
    Schema,
    /// The items of the closing frame do not decode, the items name another device, or the frame
    /// contains events or digests, which only earlier frames may contain.
    #[error("the closing frame is malformed")]
    MalformedClose,
    /// The gateway has another seal of this device with the same index.
    #[error(
        "the gateway has another seal with this index: a second device has the key, or the \
         device's state is an old copy"
    )]
    OtherSeal,
    /// The seal does not verify with the events that the coordinator has. The field is the name of
    /// the verifier's error.
    #[error("the seal does not verify")]
    NotProven(&'static str),
}

impl Refused {
    /// Returns the name of the reason, for counters and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Frame(error) => error.name(),
            Self::UnknownDevice => "UnknownDevice",
            Self::EpochTooFar => "EpochTooFar",
            Self::NotCoordinated => "NotCoordinated",
            Self::NotAMember => "NotAMember",
            Self::EpochGoesBack => "EpochGoesBack",
            Self::NotAsForwarded => "NotAsForwarded",
            Self::RoundNotAnnounced => "RoundNotAnnounced",
            Self::TooManyEpochs => "TooManyEpochs",
            Self::EpochFull => "EpochFull",
            Self::OverQuota => "OverQuota",
            Self::FramingChanged => "FramingChanged",
            Self::Schema => "Schema",
            Self::MalformedClose => "MalformedClose",
            Self::OtherSeal => "OtherSeal",
            Self::NotProven(name) => name,
        }
    }

    /// Returns [`ErrorKind::Refused`] for every reason.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }
}

impl Refused {
    /// Returns whether the seal names a version of the roster that the gateway does not have yet.
    pub(crate) fn is_behind(&self) -> bool {
        *self == Self::NotProven("UnknownRoster")
    }

    /// Returns whether the device must be informed that its seal is rejected. `Some(true)`: the
    /// rejection is final. `Some(false)`: another roster, another version of the gateway or a
    /// corrected clock may change the decision. `None`: the device is not informed, because the
    /// sender is unknown, because the same frame may be accepted later, when epochs have ended or
    /// there is room again, or because an acknowledgement informs it.
    pub(crate) fn is_final(&self) -> Option<bool> {
        match self {
            Self::EpochGoesBack | Self::NotAsForwarded | Self::FramingChanged => Some(true),
            // The device keeps the seal until the gateway has loaded the version of the roster that
            // the seal names. If it gave up a signed seal, the seal would seem to be withheld.
            _ if self.is_behind() => None,
            Self::EpochTooFar
            | Self::NotCoordinated
            | Self::NotAMember
            | Self::MalformedClose | Self::NotProven(_) => Some(false),
            Self::Frame(_)
            | Self::UnknownDevice
            // The acknowledgement tells the device more than a refusal would: which seal is stored.
            | Self::OtherSeal
            | Self::RoundNotAnnounced
            | Self::TooManyEpochs
            | Self::EpochFull
            | Self::OverQuota
            | Self::Schema => None,
        }
    }
}

moteseal_api::named_error!(Refused);
