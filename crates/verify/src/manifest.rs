//! Manifests on hosts: the coordinator's word on an epoch, opened with the key that the roster certifies for it
//! (spec/formats.md, section 8.1). What the coordinator says need not be fair: that is for the audit to judge.

use std::fmt;

use moteseal_core::roster::Directory;
use moteseal_core::signature::PublicKey;
use moteseal_seal::sample::{Manifest, WordError};

/// Why a manifest is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestError {
    /// The roster names no coordinator, so that nobody can sign one.
    NoCoordinator,
    /// It is not the coordinator's, or not of this group.
    Word(WordError),
    /// It names a roster that is neither this one nor one before it.
    UnknownRoster,
    /// An epoch outside those of the roster.
    EpochOutOfRange,
    /// A round above the group's number of levels.
    RoundOutOfRange,
}

impl ManifestError {
    /// The error's name: spec/errors.md.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoCoordinator => "NoCoordinator",
            Self::Word(error) => error.name(),
            Self::UnknownRoster => "UnknownRoster",
            Self::EpochOutOfRange => "EpochOutOfRange",
            Self::RoundOutOfRange => "RoundOutOfRange",
        }
    }
}

impl From<WordError> for ManifestError {
    fn from(error: WordError) -> Self {
        Self::Word(error)
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCoordinator => {
                f.write_str("NoCoordinator: the roster names no coordinator, so nobody can sign a manifest; is it the newest?")
            }
            Self::Word(error) => error.fmt(f),
            Self::UnknownRoster => f.write_str("UnknownRoster: the manifest names a roster that this one does not know"),
            Self::EpochOutOfRange => f.write_str("EpochOutOfRange: the manifest is of an epoch outside those of the roster"),
            Self::RoundOutOfRange => f.write_str("RoundOutOfRange: the manifest's round is above the group's number of levels"),
        }
    }
}

impl std::error::Error for ManifestError {}

/// Opens a manifest: a tagged `COSE_Sign1` that `directory`'s coordinator signed, of this group, under a roster that is known, with
/// an epoch and a round that the group can have.
///
/// # Errors
/// [`ManifestError`]: the first property that fails, in the order of section 8.1.
pub fn open<'b, D: Directory + ?Sized>(
    bytes: &'b [u8],
    directory: &D,
) -> Result<Manifest<'b>, ManifestError> {
    let mut opened = Err(ManifestError::NoCoordinator);
    directory.with_coordinator(&mut |key: &PublicKey| {
        // The payload stands in the bytes, and a Sig_structure takes less around it than they do, but for its own heads.
        let mut scratch = vec![0; bytes.len() + 64];
        opened = Manifest::open(bytes, directory.group(), key, &mut scratch)
            .map_err(ManifestError::Word);
    });
    let manifest = opened?;
    let known = (0..=u32::MAX)
        .map_while(|version| directory.roster_digest(version))
        .any(|digest| digest == manifest.roster());
    if !known {
        return Err(ManifestError::UnknownRoster);
    }
    let (first, last) = directory.epochs();
    if manifest.epoch() < first || last.is_some_and(|last| manifest.epoch() > last) {
        return Err(ManifestError::EpochOutOfRange);
    }
    if manifest.round().0 > directory.levels() {
        return Err(ManifestError::RoundOutOfRange);
    }
    Ok(manifest)
}
