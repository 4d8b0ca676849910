//! Why a response or a proof is rejected: the property that failed, its stable name, and where.

use moteseal_api::{ErrorKind, NamedError as _};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::sample::{ChoiceError, EpochError};
use moteseal_verify::{ReadError, ReadErrorKind};

use crate::explain::Finding;

/// Why a response or a proof is rejected. The names are those of `spec/errors.md`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The bytes are not a stream, or one of its runs is not proven.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The levels or events are not those that were asked for, or that can be served.
    #[error("{error} (device {device}, index {index})")]
    Choice {
        /// What is wrong with them.
        error: ChoiceError,
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// The parts that should make up one epoch do not.
    #[error("{error} (device {device}, epoch {epoch})")]
    Epoch {
        /// What is wrong with them.
        error: EpochError,
        /// The device.
        device: DeviceId,
        /// The epoch.
        epoch: EpochNumber,
    },
    /// A device, a seal or an item that was not asked for, or that is out of order.
    #[error("the response contains something that was not asked for{}", at(*device, *index))]
    NotAsAsked {
        /// The device.
        device: Option<DeviceId>,
        /// The seal's index.
        index: Option<SealIndex>,
    },
    /// A seal is missing that another seal, or a pinned seal, refers to.
    #[error(
        "the store withholds the seal {index} of device {device}{}{}",
        epoch.map_or_else(String::new, |epoch| format!(", of epoch {epoch}")),
        if *pinned { ", which an earlier response contained" } else { "" }
    )]
    Missing {
        /// The device.
        device: DeviceId,
        /// The missing seal's index.
        index: SealIndex,
        /// Its epoch, if known.
        epoch: Option<EpochNumber>,
        /// Whether only the pinned seals refer to it.
        pinned: bool,
    },
    /// A seal that its epoch's manifest lists is missing.
    #[error(
        "the store withholds a seal of device {device} that the manifest of epoch {epoch} lists \
         (digest {seal})"
    )]
    Unshown {
        /// The device.
        device: DeviceId,
        /// The epoch.
        epoch: EpochNumber,
        /// The seal's digest.
        seal: Digest,
    },
    /// A manifest that was not asked for, or that is out of order.
    #[error("the manifest of epoch {epoch} was not asked for, or is out of order")]
    ManifestNotAsAsked {
        /// Its epoch.
        epoch: EpochNumber,
    },
    /// The coordinator signed two different manifests of one epoch.
    #[error(
        "the coordinator signed two manifests of epoch {epoch}, so it is unknown what was kept; \
         ask for other epochs"
    )]
    TwoManifests {
        /// The epoch.
        epoch: EpochNumber,
    },
    /// The device signed two different seals under one index, or its chain omits a seal that it
    /// signed.
    #[error(
        "device {device} signed two histories that differ from index {index} on; its key was \
         stolen, or the device was restored from a backup"
    )]
    Equivocation {
        /// The device.
        device: DeviceId,
        /// The index.
        index: SealIndex,
    },
    /// The store reported that it cannot continue.
    #[error("the store stopped: {detail}")]
    Stopped {
        /// The name of the error, as reported by the store.
        name: String,
        /// What happened.
        detail: String,
    },
    /// The response ends before its end item.
    #[error("the response stops before its end item")]
    Unended,
    /// There are bytes after the end item.
    #[error("more bytes follow after the end item")]
    Trailing,
    /// An epoch whose parts must be checked together exceeds the memory limit.
    #[error(
        "epoch {epoch} of device {device} is too large to be checked as a whole; ask for a rate \
         instead of a number"
    )]
    EpochTooLarge {
        /// The device.
        device: DeviceId,
        /// The epoch.
        epoch: EpochNumber,
    },
    /// A proof that does not start with its query.
    #[error("{cause}; `moteseal get --proof` writes proofs")]
    NotAProof {
        /// What is wrong with it.
        cause: String,
    },
    /// A proof that was made under a roster that is not a version of the given one.
    #[error(
        "the proof was made under the roster {digest}, which is not a version of this one; use \
         that roster or a later version of it"
    )]
    UnknownRoster {
        /// The digest in the proof.
        digest: String,
    },
}

/// ` (device D, index I)`, as far as they are known.
fn at(device: Option<DeviceId>, index: Option<SealIndex>) -> String {
    match (device, index) {
        (Some(device), Some(index)) => format!(" (device {device}, index {index})"),
        (Some(device), None) => format!(" (device {device})"),
        _ => String::new(),
    }
}

impl Rejection {
    /// The rejection for the problem item of a store. Text of a store is untrusted, so control
    /// characters are removed before it can reach a terminal.
    pub(crate) fn stopped(name: &str, detail: &str) -> Self {
        let is_name = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let detail =
            detail.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
        Self::Stopped { name: if is_name { name.to_owned() } else { "Problem".to_owned() }, detail }
    }

    /// The stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Read(error) => error.name(),
            Self::Choice { error, .. } => error.name(),
            Self::Epoch { error, .. } => error.name(),
            Self::NotAsAsked { .. } | Self::ManifestNotAsAsked { .. } => "NotAsAsked",
            Self::Missing { .. } | Self::Unshown { .. } => "Missing",
            Self::TwoManifests { .. } => "TwoManifests",
            Self::Equivocation { .. } => "Equivocation",
            Self::Stopped { name, .. } => name,
            Self::Unended => "Truncated",
            Self::Trailing => "TrailingBytes",
            Self::EpochTooLarge { .. } => "TooManyEvents",
            Self::NotAProof { .. } => "NotAProof",
            Self::UnknownRoster { .. } => "UnknownRoster",
        }
    }

    /// [`Incomplete`](ErrorKind::Incomplete) if something was withheld,
    /// [`Usage`](ErrorKind::Usage) if the seals do not support the query, else
    /// [`Refused`](ErrorKind::Refused).
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            // A sample by count and seed of seals that are not trees.
            Self::Stopped { name, .. } if name == "SchemeMismatch" => ErrorKind::Usage,
            Self::Missing { .. } | Self::Unshown { .. } | Self::Stopped { .. } => {
                ErrorKind::Incomplete
            }
            Self::Epoch { error: EpochError::Missing | EpochError::TailUnknown, .. } => {
                ErrorKind::Incomplete
            }
            _ => ErrorKind::Refused,
        }
    }

    /// The device that the rejection is about.
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

    /// The index of the seal that the rejection is about, if it is about one seal.
    #[must_use]
    pub fn index(&self) -> Option<SealIndex> {
        match self {
            Self::Choice { index, .. }
            | Self::Equivocation { index, .. }
            | Self::Missing { index, .. } => Some(*index),
            Self::NotAsAsked { index, .. } => *index,
            Self::Read(ReadError {
                kind: ReadErrorKind::Seal(_),
                run: Some((first, last)),
                ..
            }) => (first == last).then_some(*first),
            _ => None,
        }
    }

    /// The epoch that the rejection is about.
    #[must_use]
    pub const fn epoch(&self) -> Option<EpochNumber> {
        match self {
            Self::Missing { epoch, .. } => *epoch,
            Self::Epoch { epoch, .. }
            | Self::Unshown { epoch, .. }
            | Self::ManifestNotAsAsked { epoch }
            | Self::TwoManifests { epoch }
            | Self::EpochTooLarge { epoch, .. } => Some(*epoch),
            _ => None,
        }
    }

    /// Whether a run was not proven, so that the store's explanation can locate the fault.
    #[must_use]
    pub const fn is_unproven_run(&self) -> bool {
        matches!(self, Self::Read(ReadError { kind: ReadErrorKind::Seal(_), .. }))
    }
}

moteseal_api::named_error!(Rejection, Rejected);

/// A rejection, and what a comparison with the store's explanation found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct Rejected {
    /// Why the response as a whole is rejected.
    pub rejection: Rejection,
    /// The first difference between the response and the explanation.
    pub finding: Option<Finding>,
}

impl Rejected {
    /// The stable name: of the finding if there is one, else of the rejection.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.finding {
            Some(finding) => finding.name(),
            None => self.rejection.name(),
        }
    }

    /// What the caller does next, as for the rejection.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.rejection.kind()
    }

    fn sentence(&self) -> String {
        match &self.finding {
            Some(finding) => format!("{finding}; {}", self.rejection.named()),
            None => self.rejection.to_string(),
        }
    }

    /// The device that the finding, or else the rejection, is about.
    #[must_use]
    pub fn device(&self) -> Option<DeviceId> {
        self.finding.as_ref().map(|finding| finding.device).or_else(|| self.rejection.device())
    }

    /// The index of the seal that the finding, or else the rejection, is about.
    #[must_use]
    pub fn index(&self) -> Option<SealIndex> {
        self.finding.as_ref().map_or_else(|| self.rejection.index(), |found| Some(found.index))
    }

    /// The epoch that the finding, or else the rejection, is about.
    #[must_use]
    pub fn epoch(&self) -> Option<EpochNumber> {
        self.finding.as_ref().map_or_else(|| self.rejection.epoch(), |found| Some(found.epoch))
    }
}

impl From<Rejection> for Rejected {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, finding: None }
    }
}
