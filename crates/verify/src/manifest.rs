//! Verifies manifests on hosts. A manifest is the coordinator's signed list of an epoch's seals; it
//! is verified with the key that the roster certifies for the coordinator (spec/coordinator.md,
//! section 3). This module does not check that the round in a manifest is correct: the audit does.

use moteseal_core::error::Named;
use moteseal_core::record::EpochNumber;
use moteseal_core::roster::Directory;
use moteseal_core::signature::PublicKey;
use moteseal_seal::sample::{AnnouncementError, Manifest};

/// Why a manifest is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The roster names no coordinator, so there is no key to check a manifest with.
    #[error("the roster names no coordinator, so no manifest can be checked; is it the newest?")]
    NoCoordinator,
    /// The coordinator did not sign the manifest, or the manifest is of another group.
    #[error(transparent)]
    Announcement(#[from] AnnouncementError),
    /// The manifest names a roster that is neither this one nor an earlier version.
    #[error("the manifest names a roster that is neither this one nor an earlier version")]
    UnknownRoster,
    /// The epoch is outside the roster's range of epochs.
    #[error("the manifest's epoch is outside the roster's range of epochs")]
    EpochOutOfRange,
    /// The epoch belongs to a period that a later version of the roster introduced.
    #[error(
        "the manifest was made under an outdated version of the roster; load the newest version on \
         the coordinator"
    )]
    RosterOutdated,
    /// The round is above the group's number of levels.
    #[error("the manifest's round is above the group's number of levels")]
    RoundOutOfRange,
}

impl ManifestError {
    /// Returns the error's name: spec/errors.md.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoCoordinator => "NoCoordinator",
            Self::Announcement(error) => error.name(),
            Self::UnknownRoster => "UnknownRoster",
            Self::EpochOutOfRange => "EpochOutOfRange",
            Self::RosterOutdated => "RosterOutdated",
            Self::RoundOutOfRange => "RoundOutOfRange",
        }
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

/// Decodes a manifest, a tagged `COSE_Sign1`. Checks that the coordinator of `directory` signed it,
/// and that it belongs to the same group as `directory`. Also checks that its roster is known, and
/// that its epoch and round are in the ranges of the group.
///
/// # Errors
/// [`ManifestError`]: the first check that fails, in the order of spec/coordinator.md, section 3.
pub fn open<'b, D: Directory + ?Sized>(
    bytes: &'b [u8],
    directory: &D,
) -> Result<Manifest<'b>, ManifestError> {
    // The key depends on the epoch. If the manifest is not readable, any key leads to its error.
    let epoch = Manifest::claimed_epoch(bytes).unwrap_or(EpochNumber(u64::MAX));
    let mut opened = Err(ManifestError::NoCoordinator);
    directory.with_coordinator(epoch, &mut |key: &PublicKey| {
        // A Sig_structure contains the payload, some of the object's other bytes, and a few
        // additional CBOR heads, for which 64 bytes suffice.
        let mut scratch = vec![0; bytes.len() + 64];
        opened = Manifest::open(bytes, directory.group(), key, &mut scratch)
            .map_err(ManifestError::Announcement);
    });
    let manifest = opened?;
    let version = (0..=u32::MAX)
        .map_while(|version| Some((version, directory.roster_digest(version)?)))
        .find_map(|(version, digest)| (digest == manifest.roster()).then_some(version))
        .ok_or(ManifestError::UnknownRoster)?;
    let (first, last) = directory.epochs();
    if manifest.epoch() < first || last.is_some_and(|last| manifest.epoch() > last) {
        return Err(ManifestError::EpochOutOfRange);
    }
    if version < directory.least_version(manifest.epoch()) {
        return Err(ManifestError::RosterOutdated);
    }
    if manifest.round().0 > directory.levels(manifest.epoch()) {
        return Err(ManifestError::RoundOutOfRange);
    }
    Ok(manifest)
}
