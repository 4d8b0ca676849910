//! Why an answer is refused: the property that failed, by name, and where.

use std::fmt;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::sample::{ChoiceError, EpochError};
use moteseal_verify::{ReadError, ReadErrorKind};

use crate::explain::Finding;

/// Why an answer or a proof is refused. Names as in spec/errors.md.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The bytes are no stream, or a run of it is not proven.
    Read(ReadError),
    /// Other levels or events than asked for, or ones that cannot be had.
    Choice {
        /// What is wrong with them.
        error: ChoiceError,
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// The parts of an epoch, which have to be judged together, are not those of one epoch.
    Epoch {
        /// What is wrong with them.
        error: EpochError,
        /// The device.
        device: DeviceId,
        /// The epoch.
        epoch: EpochNumber,
    },
    /// A device or seal that was not asked for, in a place where it does not belong, or an item that no answer has.
    NotAsAsked {
        /// The device.
        device: Option<DeviceId>,
        /// The seal's index.
        index: Option<SealIndex>,
    },
    /// A seal is not there, though another one, or our memory, names it.
    Missing {
        /// The device.
        device: DeviceId,
        /// The missing seal's index.
        index: SealIndex,
        /// Its epoch, where that is known.
        epoch: Option<EpochNumber>,
        /// Whether we know of it from an earlier answer only.
        remembered: bool,
    },
    /// A seal that its epoch's manifest lists is not there.
    Unshown {
        /// The device.
        device: DeviceId,
        /// The epoch.
        epoch: EpochNumber,
        /// The seal's digest.
        seal: Digest,
    },
    /// A manifest that was not asked for, out of order, or behind what it should stand before.
    ManifestNotAsAsked {
        /// Its epoch.
        epoch: EpochNumber,
    },
    /// The coordinator signed two different manifests of one epoch.
    TwoManifests {
        /// The epoch.
        epoch: EpochNumber,
    },
    /// The device signed two different seals under one index, or its chain leads around a seal that it signed.
    Equivocation {
        /// The device.
        device: DeviceId,
        /// The index.
        index: SealIndex,
    },
    /// The store says that it could not go on.
    Stopped {
        /// The error's name, as the store gives it.
        name: String,
        /// What happened.
        detail: String,
    },
    /// The answer stops before its end item.
    Unended,
    /// More follows after the end item.
    Trailing,
    /// An epoch whose parts have to be judged together is larger than we hold in memory.
    EpochTooLarge {
        /// The device.
        device: DeviceId,
        /// The epoch.
        epoch: EpochNumber,
    },
    /// A proof that does not start with its query.
    NotAProof {
        /// What is wrong with it.
        cause: String,
    },
    /// A proof for a roster that the one at hand does not know.
    UnknownRoster {
        /// The digest that the proof names.
        digest: String,
    },
}

impl Refusal {
    /// The error's name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Read(error) => error.name().to_owned(),
            Self::Choice { error, .. } => error.name().to_owned(),
            Self::Epoch { error, .. } => error.name().to_owned(),
            Self::NotAsAsked { .. } | Self::ManifestNotAsAsked { .. } => "NotAsAsked".into(),
            Self::Missing { .. } | Self::Unshown { .. } => "Missing".into(),
            Self::TwoManifests { .. } => "TwoManifests".into(),
            Self::Equivocation { .. } => "Equivocation".into(),
            Self::Stopped { name, .. } => name.clone(),
            Self::Unended => "Truncated".into(),
            Self::Trailing => "TrailingBytes".into(),
            Self::EpochTooLarge { .. } => "TooManyEvents".into(),
            Self::NotAProof { .. } => "NotAProof".into(),
            Self::UnknownRoster { .. } => "UnknownRoster".into(),
        }
    }

    /// 4 (incomplete) where something was withheld, 2 (usage) where what was asked for cannot be, else 3 (refused).
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            // A sample of a kind that these seals do not have.
            Self::Stopped { name, .. } if name == "SchemeMismatch" => 2,
            Self::Missing { .. } | Self::Unshown { .. } | Self::Stopped { .. } => 4,
            Self::Epoch { error: EpochError::Missing | EpochError::TailUnknown, .. } => 4,
            _ => 3,
        }
    }

    /// The device in question.
    #[must_use]
    pub const fn device(&self) -> Option<DeviceId> {
        match self {
            Self::Read(error) => error.device,
            Self::Choice { device, .. }
            | Self::Epoch { device, .. }
            | Self::Missing { device, .. }
            | Self::Unshown { device, .. }
            | Self::Equivocation { device, .. }
            | Self::EpochTooLarge { device, .. } => Some(*device),
            Self::NotAsAsked { device, .. } => *device,
            _ => None,
        }
    }

    /// Whether a run was not proven, so that an explanation can tell more.
    #[must_use]
    pub const fn is_unproven_run(&self) -> bool {
        matches!(self, Self::Read(ReadError { kind: ReadErrorKind::Seal(_), .. }))
    }
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.named().fmt(f),
            Self::Choice { error, device, index } => {
                write!(f, "{} (device {device}, index {index})", error.named())
            }
            Self::Epoch { error, device, epoch } => {
                write!(f, "{} (device {device}, epoch {epoch})", error.named())
            }
            Self::NotAsAsked { device, index } => {
                f.write_str("NotAsAsked: the answer holds what was not asked for")?;
                match (device, index) {
                    (Some(device), Some(index)) => write!(f, " (device {device}, index {index})"),
                    (Some(device), None) => write!(f, " (device {device})"),
                    _ => Ok(()),
                }
            }
            Self::Missing { device, index, epoch, remembered } => {
                write!(f, "Missing: the store withholds the seal {index} of device {device}")?;
                if let Some(epoch) = epoch {
                    write!(f, ", of epoch {epoch}")?;
                }
                f.write_str(if *remembered { ", which an earlier answer held" } else { "" })
            }
            Self::Unshown { device, epoch, seal } => write!(
                f,
                "Missing: the store withholds a seal of device {device} that the manifest of epoch {epoch} lists (digest {seal})"
            ),
            Self::ManifestNotAsAsked { epoch } => {
                write!(
                    f,
                    "NotAsAsked: the manifest of epoch {epoch} was not asked for, or does not stand where it should"
                )
            }
            Self::TwoManifests { epoch } => write!(
                f,
                "TwoManifests: the coordinator signed two manifests of epoch {epoch}, so that nobody knows what was kept; other epochs can still be asked for"
            ),
            Self::Equivocation { device, index } => write!(
                f,
                "Equivocation: device {device} signed two histories that part at index {index}; its key is in other hands, or it was restored from a copy"
            ),
            Self::Stopped { name, detail } => write!(f, "{name}: the store stopped: {detail}"),
            Self::Unended => f.write_str("Truncated: the answer stops before its end item"),
            Self::Trailing => f.write_str("TrailingBytes: more follows after the end item"),
            Self::EpochTooLarge { device, epoch } => write!(
                f,
                "TooManyEvents: epoch {epoch} of device {device} is too large to be judged at once; ask for a rate instead of a number"
            ),
            Self::NotAProof { cause } => {
                write!(f, "NotAProof: {cause}; a proof is what `moteseal get --proof` writes")
            }
            Self::UnknownRoster { digest } => write!(
                f,
                "UnknownRoster: the proof was made under the roster {digest}, which this one does not know; use that roster or a later version of it"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// A refusal, and what the store's own explanation says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why the answer is refused as a whole.
    pub refusal: Refusal,
    /// The first disagreement between the answer and the explaining form.
    pub finding: Option<Finding>,
}

impl Refused {
    /// The name of what was wrong: of the finding if there is one, else of the refusal.
    #[must_use]
    pub fn name(&self) -> String {
        self.finding
            .as_ref()
            .map_or_else(|| self.refusal.name(), |finding| finding.name().to_owned())
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, finding: None }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)?;
        self.finding.as_ref().map_or(Ok(()), |finding| write!(f, "; {finding}"))
    }
}

impl std::error::Error for Refused {}
