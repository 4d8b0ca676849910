//! Why a response or a proof is rejected: the property that failed, its stable name, and the place
//! of the fault.

use moteseal_api::{ErrorKind, NamedError as _};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_seal::sample::{ChoiceError, EpochError};
use moteseal_verify::redaction::RedactionError;
use moteseal_verify::{ReadError, ReadErrorKind, SanitisedError};

use crate::cloud_roster::CloudRoster;
use crate::decrypt::PlaintextError;
use crate::explain::Finding;

/// Why a response or a proof is rejected. The names are those of `spec/errors.md`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The bytes are not a stream, or one of its runs is not proven.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The levels or events of a part are not those that were requested, or the seal cannot serve
    /// the request.
    #[error("{error} (device {device}, index {index})")]
    Choice {
        /// What is wrong with the levels or events.
        error: ChoiceError,
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
    },
    /// A record that was decrypted is not a record of its schema. The device encrypted it, so the fault
    /// is the device's.
    #[error("{error}: device {device} encrypted an invalid record (seal {index}, reading {seq})")]
    Plaintext {
        /// What is wrong with the record.
        error: PlaintextError,
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
        /// The sequence number of the record in the seal.
        seq: Sequence,
    },
    /// The parts of an epoch do not form a whole epoch.
    #[error("{error} (device {device}, epoch {epoch})")]
    Epoch {
        /// What is wrong with the parts.
        error: EpochError,
        /// The device.
        device: DeviceId,
        /// The epoch.
        epoch: EpochNumber,
    },
    /// The response has a device, a seal or an item that was not requested, or that is out of
    /// order.
    #[error("the response contains something that was not asked for{}", at(*device, *index))]
    NotAsAsked {
        /// The device.
        device: Option<DeviceId>,
        /// The seal's index.
        index: Option<SealIndex>,
    },
    /// A seal is missing, although another seal or a pinned seal refers to it.
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
        /// The missing seal's epoch, if it is known.
        epoch: Option<EpochNumber>,
        /// Whether the pinned seals are the only ones that refer to the missing seal.
        pinned: bool,
    },
    /// A seal is missing, although the manifest of its epoch lists it.
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
    /// A manifest was not requested, or is out of order.
    #[error("the manifest of epoch {epoch} was not asked for, or is out of order")]
    ManifestNotAsAsked {
        /// The manifest's epoch.
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
    /// The device signed two different seals under one index, or its chain leaves out a seal that
    /// it signed.
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
        /// What happened, as reported by the store.
        detail: String,
    },
    /// The response ends before its end item.
    #[error("the response ended before its end item")]
    Unended,
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
    /// The store hides the column groups of requested columns.
    #[error("the store withholds {columns} of seal {index} of device {device}")]
    ColumnWithheld {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
        /// The names of the requested columns that the response hides.
        columns: String,
    },
    /// A sanitiser replaced columns, and the reader does not accept its values.
    #[error(
        "{by} replaced the values of {columns} in seal {index} of device {device}; they are not the \
         device's. To take them, accept the sanitiser by name"
    )]
    ColumnSanitised {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
        /// The names of the columns.
        columns: String,
        /// The name of the sanitiser.
        by: String,
    },
    /// Sanitised cells were rejected.
    #[error("{error}{}", at(*device, *index))]
    Sanitised {
        /// What is wrong with the statement or the cells.
        error: SanitisedError,
        /// The device.
        device: Option<DeviceId>,
        /// The seal's index.
        index: Option<SealIndex>,
    },
    /// A requested column is not one of a seal's schema.
    #[error(
        "seal {index} of device {device}, of epoch {epoch}, has no column {column:?}, only {known}; ask \
         for other columns, or begin where the device has it"
    )]
    UnknownColumn {
        /// The device.
        device: DeviceId,
        /// The seal's index.
        index: SealIndex,
        /// The seal's epoch.
        epoch: EpochNumber,
        /// The name of the column.
        column: String,
        /// The names of the seal's columns.
        known: String,
    },
    /// The column groups of a part cannot be separated or put together.
    #[error(transparent)]
    Groups(#[from] RedactionError),
    /// The proof does not start with its query.
    #[error("{cause}; `moteseal get --proof` writes proofs")]
    NotAProof {
        /// What is wrong with the proof.
        cause: String,
    },
    /// The proof was made under a roster that is not a version of the given roster.
    #[error(
        "the proof was made under the roster {digest}, which is not a version of this one; use \
         that roster or a later version of it"
    )]
    UnknownRoster {
        /// The digest of the roster in the proof.
        digest: String,
    },
}

/// Returns ` (device D, index I)`, as far as the device and the index are known.
fn at(device: Option<DeviceId>, index: Option<SealIndex>) -> String {
    match (device, index) {
        (Some(device), Some(index)) => format!(" (device {device}, index {index})"),
        (Some(device), None) => format!(" (device {device})"),
        _ => String::new(),
    }
}

impl Rejection {
    /// Creates the rejection for a problem item of a store. The text of a store is untrusted, so
    /// control characters are removed before the text can reach a terminal.
    pub(crate) fn stopped(name: &str, detail: &str) -> Self {
        let is_name = !name.is_empty()
            && name.len() <= 64
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let detail =
            detail.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
        Self::Stopped { name: if is_name { name.to_owned() } else { "Problem".to_owned() }, detail }
    }

    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Read(error) => error.name(),
            Self::Choice { error, .. } => error.name(),
            Self::Plaintext { error, .. } => error.name(),
            Self::Epoch { error, .. } => error.name(),
            Self::NotAsAsked { .. } | Self::ManifestNotAsAsked { .. } => "NotAsAsked",
            Self::Missing { .. } | Self::Unshown { .. } => "Missing",
            Self::TwoManifests { .. } => "TwoManifests",
            Self::Equivocation { .. } => "Equivocation",
            Self::Stopped { name, .. } => name,
            Self::Unended => "Truncated",
            Self::EpochTooLarge { .. } => "TooManyEvents",
            Self::ColumnWithheld { .. } => "ColumnWithheld",
            Self::ColumnSanitised { .. } => "ColumnSanitised",
            Self::Sanitised { error, .. } => error.name(),
            Self::UnknownColumn { .. } => "UnknownColumn",
            Self::Groups(error) => error.name(),
            Self::NotAProof { .. } => "NotAProof",
            Self::UnknownRoster { .. } => "UnknownRoster",
        }
    }

    /// Returns [`Incomplete`](ErrorKind::Incomplete) if data was withheld,
    /// [`Usage`](ErrorKind::Usage) if the seals do not support the query, and
    /// [`Refused`](ErrorKind::Refused) otherwise.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            // The seals do not support the query: it requested a sample by count and seed from
            // seals that are not trees, a rate above the available one, or a reading that was not
            // sealed or kept. The kind is the same
            // whether the store notices this before or after it has sent a part.
            Self::Stopped { name, .. }
                if matches!(
                    name.as_str(),
                    "SchemeMismatch" | "RateUnavailable" | "ReadingUnavailable"
                ) =>
            {
                ErrorKind::Usage
            }
            Self::UnknownColumn { .. } => ErrorKind::Usage,
            Self::Missing { .. }
            | Self::Unshown { .. }
            | Self::ColumnWithheld { .. }
            | Self::Stopped { .. } => ErrorKind::Incomplete,
            Self::Epoch { error: EpochError::Missing | EpochError::TailUnknown, .. } => {
                ErrorKind::Incomplete
            }
            _ => ErrorKind::Refused,
        }
    }

    /// Returns the device that the rejection concerns.
    #[must_use]
    pub const fn device(&self) -> Option<DeviceId> {
        match self {
            Self::Read(error) => error.device,
            Self::Choice { device, .. }
            | Self::Plaintext { device, .. }
            | Self::Epoch { device, .. }
            | Self::Missing { device, .. }
            | Self::Unshown { device, .. }
            | Self::ColumnWithheld { device, .. }
            | Self::ColumnSanitised { device, .. }
            | Self::UnknownColumn { device, .. }
            | Self::Equivocation { device, .. }
            | Self::EpochTooLarge { device, .. } => Some(*device),
            Self::NotAsAsked { device, .. } | Self::Sanitised { device, .. } => *device,
            _ => None,
        }
    }

    /// Returns the index of the seal that the rejection concerns, if it concerns a single seal.
    #[must_use]
    pub fn index(&self) -> Option<SealIndex> {
        match self {
            Self::Choice { index, .. }
            | Self::Plaintext { index, .. }
            | Self::Equivocation { index, .. }
            | Self::ColumnWithheld { index, .. }
            | Self::ColumnSanitised { index, .. }
            | Self::UnknownColumn { index, .. }
            | Self::Missing { index, .. } => Some(*index),
            Self::NotAsAsked { index, .. } | Self::Sanitised { index, .. } => *index,
            Self::Read(ReadError {
                kind: ReadErrorKind::Seal(_),
                run: Some((first, last)),
                ..
            }) => (first == last).then_some(*first),
            _ => None,
        }
    }

    /// Returns the epoch that the rejection concerns.
    #[must_use]
    pub const fn epoch(&self) -> Option<EpochNumber> {
        match self {
            Self::Missing { epoch, .. } => *epoch,
            Self::Epoch { epoch, .. }
            | Self::Unshown { epoch, .. }
            | Self::ManifestNotAsAsked { epoch }
            | Self::TwoManifests { epoch }
            | Self::UnknownColumn { epoch, .. }
            | Self::EpochTooLarge { epoch, .. } => Some(*epoch),
            _ => None,
        }
    }

    /// Returns whether the rejection concerns a run that was not proven. The store's explaining
    /// form can then locate the fault.
    #[must_use]
    pub const fn is_unproven_run(&self) -> bool {
        matches!(self, Self::Read(ReadError { kind: ReadErrorKind::Seal(_), .. }))
    }
}

moteseal_api::named_error!(Rejection, Rejected);

/// A rejection, and the result of comparing the response with the store's explaining form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct Rejected {
    /// Why the response as a whole is rejected.
    pub rejection: Rejection,
    /// The first difference between the response and the explaining form.
    pub finding: Option<Finding>,
    /// The versions of the roster, if the cloud states that it uses another one than the client.
    /// Nothing proves this statement.
    pub cloud_roster: Option<CloudRoster>,
}

impl Rejected {
    /// Returns the stable name of the finding. If there is no finding, returns the stable name of
    /// the rejection.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.finding {
            Some(finding) => finding.name(),
            None => self.rejection.name(),
        }
    }

    /// Returns the kind of the rejection, which tells the caller how to react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.rejection.kind()
    }

    fn sentence(&self) -> String {
        let text = match &self.finding {
            Some(finding) => format!("{finding}; {}", self.rejection.named()),
            None => self.rejection.to_string(),
        };
        match &self.cloud_roster {
            Some(versions) => format!("{text}; {versions}"),
            None => text,
        }
    }

    /// Returns the device that the finding concerns. If there is no finding, returns the device
    /// that the rejection concerns.
    #[must_use]
    pub fn device(&self) -> Option<DeviceId> {
        self.finding.as_ref().map(|finding| finding.device).or_else(|| self.rejection.device())
    }

    /// Returns the index of the seal that the finding concerns. If there is no finding, returns the
    /// index that the rejection concerns.
    #[must_use]
    pub fn index(&self) -> Option<SealIndex> {
        self.finding.as_ref().map_or_else(|| self.rejection.index(), |found| Some(found.index))
    }

    /// Returns the epoch that the finding concerns. If there is no finding, returns the epoch that
    /// the rejection concerns.
    #[must_use]
    pub fn epoch(&self) -> Option<EpochNumber> {
        self.finding.as_ref().map_or_else(|| self.rejection.epoch(), |found| Some(found.epoch))
    }
}

impl From<Rejection> for Rejected {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, finding: None, cloud_roster: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Concerns = (Option<DeviceId>, Option<SealIndex>, Option<EpochNumber>);

    /// One rejection of every kind, with its name, its kind and what it concerns.
    fn rejections() -> Vec<(Rejection, &'static str, ErrorKind, Concerns)> {
        use ErrorKind::{Incomplete, Refused, Usage};
        let (device, index, epoch) = (DeviceId([7; 8]), SealIndex(3), EpochNumber(5));
        let (d, i, e) = (Some(device), Some(index), Some(epoch));
        let choice = ChoiceError::RateUnavailable;
        let invalid = PlaintextError::Record(moteseal_core::schema::RecordError::RecordValue);
        let incomplete = |error| Rejection::Epoch { error, device, epoch };
        vec![
            (
                Rejection::Choice { error: choice, device, index },
                choice.name(),
                Refused,
                (d, i, None),
            ),
            (
                Rejection::Plaintext { error: invalid, device, index, seq: Sequence(9) },
                "RecordValue",
                Refused,
                (d, i, None),
            ),
            (incomplete(EpochError::Missing), "Missing", Incomplete, (d, None, e)),
            (incomplete(EpochError::TailUnknown), "TailUnknown", Incomplete, (d, None, e)),
            (Rejection::NotAsAsked { device: d, index: i }, "NotAsAsked", Refused, (d, i, None)),
            (
                Rejection::NotAsAsked { device: None, index: None },
                "NotAsAsked",
                Refused,
                (None, None, None),
            ),
            (
                Rejection::Missing { device, index, epoch: e, pinned: true },
                "Missing",
                Incomplete,
                (d, i, e),
            ),
            (
                Rejection::Unshown { device, epoch, seal: Digest([0; 32]) },
                "Missing",
                Incomplete,
                (d, None, e),
            ),
            (Rejection::ManifestNotAsAsked { epoch }, "NotAsAsked", Refused, (None, None, e)),
            (Rejection::TwoManifests { epoch }, "TwoManifests", Refused, (None, None, e)),
            (Rejection::Equivocation { device, index }, "Equivocation", Refused, (d, i, None)),
            (
                Rejection::stopped("StoreDamaged", "bad"),
                "StoreDamaged",
                Incomplete,
                (None, None, None),
            ),
            (
                Rejection::stopped("SchemeMismatch", "a star"),
                "SchemeMismatch",
                Usage,
                (None, None, None),
            ),
            (
                Rejection::stopped("RateUnavailable", "the highest available rate is 1/8"),
                "RateUnavailable",
                Usage,
                (None, None, None),
            ),
            (Rejection::stopped("\x1b[2J", "x"), "Problem", Incomplete, (None, None, None)),
            (Rejection::Unended, "Truncated", Refused, (None, None, None)),
            (Rejection::EpochTooLarge { device, epoch }, "TooManyEvents", Refused, (d, None, e)),
            (
                Rejection::NotAProof { cause: "the file is empty".to_owned() },
                "NotAProof",
                Refused,
                (None, None, None),
            ),
            (
                Rejection::ColumnSanitised {
                    device,
                    index,
                    columns: "t".to_owned(),
                    by: "gw".to_owned(),
                },
                "ColumnSanitised",
                Refused,
                (d, i, None),
            ),
            (
                Rejection::Sanitised { error: SanitisedError::CellsMismatch, device: d, index: i },
                "CellsMismatch",
                Refused,
                (d, i, None),
            ),
            (
                Rejection::UnknownRoster { digest: "00".to_owned() },
                "UnknownRoster",
                Refused,
                (None, None, None),
            ),
        ]
    }

    #[test]
    fn every_rejection_has_a_specified_name_and_states_what_it_concerns() {
        let specified = include_str!("../../../spec/errors.md");
        for (rejection, name, kind, concerns) in rejections() {
            let found = (rejection.device(), rejection.index(), rejection.epoch());
            assert_eq!((rejection.name(), rejection.kind(), found), (name, kind, concerns));
            let text = rejection.to_string();
            if let Some(device) = concerns.0 {
                assert!(text.contains(&device.to_string()), "{text}");
            }
            assert!(name == "Problem" || specified.contains(&format!("`{name}`")), "{name}");
            // Without a finding, the rejected response has the properties of the rejection.
            let rejected = Rejected::from(rejection);
            let found = (rejected.device(), rejected.index(), rejected.epoch());
            assert_eq!((rejected.name(), rejected.kind(), found), (name, kind, concerns));
            assert_eq!(rejected.to_string(), text);
        }
    }

    #[test]
    fn the_text_of_a_store_cannot_control_a_terminal() {
        let Rejection::Stopped { detail, .. } = Rejection::stopped("X", &"\x1b[2J\n".repeat(200))
        else {
            panic!("another rejection")
        };
        assert!(detail.len() <= 400 && !detail.contains(char::is_control), "{detail:?}");
    }
}
