//! Redacts and merges proofs (`spec/answers.md`, section 7.1). A redacted proof shows less than the
//! proof or the bundles that it was made from, and verifies without them: digests take the place of what
//! was left out. Nobody has to sign, and nothing is decrypted. [`BundleProof`] makes a proof of bundles.
//!
//! A redacted proof never passes for a complete one, or for a uniform sample: its scope is
//! [`Scope::Redacted`], the report of its verification is never complete, and estimators refuse its
//! readings. The signed counters show how many readings are omitted of each seal.
//!
//! Both functions verify what they read and what they write. The new file appears when all of it has
//! been verified.

mod bundles;
mod merge;
mod output;
mod part;
mod sanitise;
mod tree;

pub use bundles::{BundleProof, BundleProofReader};
pub use merge::{MergeError, merge};
pub use sanitise::{NewColumn, Sanitisation, SanitiseError, sanitise};

use std::io::Read;
use std::path::{Path, PathBuf};

use moteseal_api::{ErrorKind, groups_of};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{Field, Schema};
use moteseal_verify::sanitised::WaitingStatements;
use moteseal_verify::{Event, Proven, Roster};

use crate::bundles::device_name;
use crate::completeness::Report;
use crate::error::Error;
use crate::proof::{self, Extent, Scope};
use crate::rejection::Rejection;
use crate::sanitised::Accepted;
use crate::session::Session;
use output::Output;
use part::{NoSingleEvents, OwnedPart};

/// What a redacted proof keeps of a proof. By default, everything.
#[derive(Clone, Debug, Default)]
pub struct Keep {
    /// The devices; empty to keep all.
    pub devices: Vec<DeviceId>,
    /// The first epoch.
    pub since: EpochNumber,
    /// The epoch after the last one; `None` to keep all later epochs.
    pub until: Option<EpochNumber>,
    /// The readings, of seals that are trees; empty to keep all.
    pub readings: Vec<KeptReadings>,
    /// The names of columns; empty to keep all. The cells of the column groups that have none of them
    /// are left out. Only whole groups can be left out, and group 0 cannot, so the names must include
    /// all columns of the groups that stay (`ColumnNotSeparate`).
    pub columns: Vec<String>,
}

/// The number of omitted readings below which a digest of them is reported ([`Guessable`]).
pub const FEW_READINGS: u64 = 8;

/// The result of [`redact`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redacted {
    /// The report of the verification of the new proof.
    pub report: Report,
    /// What a reader of the new proof may learn by guessing.
    pub guessable: Guessable,
}

/// The seals of which the new proof has a digest of fewer than [`FEW_READINGS`] omitted readings with
/// columns in plaintext: of a whole seal, of a level of a star, or of a part of a tree. Digests are not
/// blinded, so a reader can test guesses of these readings. Encrypted columns under the same digest only
/// make the guess longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guessable {
    /// The number of the seals.
    pub seals: u64,
    /// The first of them.
    pub first: Option<(DeviceId, SealIndex, EpochNumber)>,
}

/// Consecutive readings to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptReadings {
    /// The seal; `None` for every seal that is kept. With a seal, the proof must contain the readings.
    pub index: Option<SealIndex>,
    /// The first reading.
    pub first: u32,
    /// The last reading, at least the first.
    pub last: u32,
}

impl KeptReadings {
    fn has(&self, index: SealIndex, seq: Sequence) -> bool {
        self.concerns(index) && (u64::from(self.first)..=u64::from(self.last)).contains(&seq.0)
    }

    fn concerns(&self, index: SealIndex) -> bool {
        self.index.is_none_or(|of| of == index)
    }
}

/// Why proofs cannot be redacted or merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedactError {
    /// The proof does not have this device.
    #[error("there are no readings of {name}; there are those of {known}")]
    NotInProof {
        /// The name of the device.
        name: String,
        /// The names of the proof's devices.
        known: String,
    },
    /// Readings were named by their seal, and the proof has several devices.
    #[error("several devices have a seal {index}; name one device with --devices")]
    AmbiguousSeal {
        /// The index of the seal.
        index: SealIndex,
    },
    /// A reading that should be kept is not in the proof.
    #[error("{}; keep only readings that are there", unavailable((*first, *last), *index, *found))]
    ReadingUnavailable {
        /// The index of the seal.
        index: SealIndex,
        /// The first of the readings.
        first: u32,
        /// The last of the readings.
        last: u32,
        /// The number of these readings that the proof shows.
        found: u64,
    },
    /// Single readings should be kept of a seal that is not a tree.
    #[error(
        "seal {index} of {name} is a star, of which single readings cannot be omitted; leave out \
         whole epochs, or seal as a tree"
    )]
    SchemeMismatch {
        /// The name of the device.
        name: String,
        /// The index of the seal.
        index: SealIndex,
    },
    /// A column that should be kept is in no seal of the proof.
    #[error("no seal that is kept has a column {column:?}; they have {known}")]
    UnknownColumn {
        /// The name of the column.
        column: String,
        /// The names of the columns of the last seal.
        known: String,
    },
    /// A column that should be left out is in a group that stays.
    #[error(
        "the cells of {column} cannot be left out: {column} of {name} is in column group {group}, {why}; \
         to keep it, name it too"
    )]
    ColumnNotSeparate {
        /// The name of the device.
        name: String,
        /// The name of the column.
        column: String,
        /// The group of the column.
        group: u8,
        /// Why the group stays.
        why: &'static str,
    },
    /// The proofs show different readings and different columns of a seal.
    #[error(
        "the proofs show different readings and different columns of seal {index} of {name}; redact \
         one of them to the readings or the columns of the other"
    )]
    NotMergeable {
        /// The name of the device.
        name: String,
        /// The index of the seal.
        index: SealIndex,
    },
    /// The proofs have two different statements of one sanitiser about the same cells.
    #[error(
        "a sanitiser signed two different statements about one column group of seal {index} of {name}; \
         keep both proofs as evidence"
    )]
    SanitiserEquivocation {
        /// The name of the device.
        name: String,
        /// The index of the seal.
        index: SealIndex,
    },
    /// Nothing of the proof would be left.
    #[error("nothing would be left; keep other devices, epochs or readings")]
    NothingLeft,
    /// The files have different seals under one index, so they are not parts of one original.
    #[error(
        "the files have different seals of {name} under index {index}: {name} signed two histories, \
         and one proof cannot show both; keep both files as evidence"
    )]
    NotOneOriginal {
        /// The name of the device.
        name: String,
        /// The index of the seals.
        index: SealIndex,
    },
    /// The proofs or bundles are too large to be put together in memory.
    #[error(
        "the files have more than {limit} MiB together; give fewer bundles at a time, or redact the \
         proofs before they are merged"
    )]
    ProofTooLarge {
        /// The limit, in MiB.
        limit: usize,
    },
}

/// Describes which readings of a seal are missing.
fn unavailable((first, last): (u32, u32), index: SealIndex, found: u64) -> String {
    match found {
        0 if first == last => format!("there is no reading {first} of seal {index}"),
        0 => format!("there is none of the readings {first} to {last} of seal {index}"),
        1 => format!("there is only 1 of the readings {first} to {last} of seal {index}"),
        _ => format!("there are only {found} of the readings {first} to {last} of seal {index}"),
    }
}

impl RedactError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotInProof { .. } => "NotInProof",
            Self::AmbiguousSeal { .. } => "AmbiguousSeal",
            Self::ReadingUnavailable { .. } => "ReadingUnavailable",
            Self::SchemeMismatch { .. } => "SchemeMismatch",
            Self::UnknownColumn { .. } => "UnknownColumn",
            Self::ColumnNotSeparate { .. } => "ColumnNotSeparate",
            Self::NotMergeable { .. } => "NotMergeable",
            Self::SanitiserEquivocation { .. } => "SanitiserEquivocation",
            Self::NothingLeft => "NothingLeft",
            Self::NotOneOriginal { .. } => "NotOneOriginal",
            Self::ProofTooLarge { .. } => "ProofTooLarge",
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NotOneOriginal { .. } | Self::SanitiserEquivocation { .. } => ErrorKind::Refused,
            // Other arguments would do.
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(RedactError);

/// Writes a proof that shows only what `keep` names of the proof in `source`, whose path is `path`.
/// `source` may be redacted already, or a proof of bundles ([`BundleProof`]). The new proof is written to
/// `out`.
///
/// Seals outside the range are left out, except the statements of those that lead from the last kept
/// seal to a signature. Manifests are left out.
///
/// # Errors
/// [`Error`] if the proof is rejected, if `keep` does not fit it ([`RedactError`]), or if a file cannot
/// be read or written.
pub fn redact(
    source: impl Read,
    path: &Path,
    roster: &Roster,
    keep: &Keep,
    out: &Path,
) -> Result<Redacted, Error> {
    let mut redactor = Redactor {
        roster,
        keep,
        out: out.to_owned(),
        output: None,
        run: Vec::new(),
        found: vec![0; keep.readings.len()],
        columns: keep.columns.clone(),
        statements: WaitingStatements::default(),
        known: String::new(),
    };
    let mut session = Session::of_proof(roster, None).accepting(Accepted::All);
    proof::pieces(source, path, &mut |piece| {
        session.observe(piece, &mut |event| redactor.event(event))
    })?;
    session.finish(&mut crate::rows::NoRows)?;
    redactor.finish()
}

struct Redactor<'r> {
    roster: &'r Roster,
    keep: &'r Keep,
    out: PathBuf,
    /// The new proof, and its scope.
    output: Option<(Output<'r>, Extent)>,
    /// The parts of the current run, and whether the new proof must show each.
    run: Vec<(OwnedPart, bool)>,
    /// For each of the consecutive readings to keep, the number of those in the new proof.
    found: Vec<u64>,
    /// The columns to keep that no seal has had so far.
    columns: Vec<String>,
    statements: WaitingStatements,
    /// The columns of the newest seal.
    known: String,
}

impl Redactor<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        match event {
            Event::Proof(text) if self.output.is_none() => {
                let (scope, _) =
                    Scope::decode(text).map_err(|cause| Rejection::NotAProof { cause })?;
                let extent = self.narrowed(&scope)?;
                let scope = Scope::Redacted(extent.clone());
                let output = Output::create(&self.out, &scope, self.roster)?;
                self.output = Some((output, extent));
                Ok(())
            }
            Event::Sanitised(signed, cells) => {
                let pushed = self.statements.push((signed, cells), self.roster);
                Ok(pushed.map_err(Rejection::from)?)
            }
            Event::Proven(proven) => self.part(proven),
            _ => Ok(()),
        }
    }

    /// Returns the devices and the range of the new proof.
    fn narrowed(&self, scope: &Scope) -> Result<Extent, Error> {
        let Keep { devices, since, until, readings, .. } = self.keep;
        let name = |device: &DeviceId| device_name(self.roster, *device);
        if let Some(device) = devices.iter().find(|device| !scope.devices().contains(device)) {
            let known: Vec<String> = scope.devices().iter().take(8).map(name).collect();
            let known = known.join(", ");
            return Err(RedactError::NotInProof { name: name(device), known }.into());
        }
        let is_kept = |device: &&DeviceId| devices.is_empty() || devices.contains(device);
        let kept: Vec<DeviceId> = scope.devices().iter().filter(is_kept).copied().collect();
        if let Some(index) = readings.iter().find_map(|run| run.index)
            && kept.len() > 1
        {
            return Err(RedactError::AmbiguousSeal { index }.into());
        }
        let (first, end) = scope.range();
        let until = match (end, *until) {
            (Some(end), Some(until)) => Some(end.min(until)),
            (end, until) => end.or(until),
        };
        let extent = Extent { devices: kept, since: first.max(*since), until };
        extent.check().map_err(|_| RedactError::NothingLeft.into())
    }

    fn part(&mut self, proven: &Proven<'_>) -> Result<(), Error> {
        let sanitised = self.statements.take(proven, self.roster).map_err(Rejection::from)?;
        let Some((output, extent)) = &mut self.output else { return Ok(()) };
        let statement = proven.seal.statement();
        let (device, index) = (statement.device, statement.index);
        let readings = &self.keep.readings;
        let concerns = readings.iter().any(|run| run.concerns(index));
        let (mut part, is_shown) = if !extent.has(device, statement.epoch) {
            (OwnedPart::bare(proven), false)
        } else if readings.is_empty() {
            (OwnedPart::of(proven, sanitised), true)
        } else if concerns {
            let found = &mut self.found;
            let part = OwnedPart::keeping(proven, sanitised, |seq| {
                let mut is_kept = false;
                for (run, found) in readings.iter().zip(&mut *found) {
                    let has = run.has(index, seq);
                    *found += u64::from(has);
                    is_kept |= has;
                }
                is_kept
            });
            let part = part.map_err(|error| match error {
                NoSingleEvents::Star => {
                    let name = device_name(self.roster, device);
                    Error::from(RedactError::SchemeMismatch { name, index })
                }
                NoSingleEvents::Content(error) => Rejection::from(error).into(),
            })?;
            let shows = part.shows_events();
            (part, shows)
        } else {
            (OwnedPart::bare(proven), false)
        };
        if !self.keep.columns.is_empty() {
            part.keep_groups(proven);
            let schema = Schema::decode(&proven.schema.whole().bytes).unwrap_or(Schema::OPAQUE);
            let kept = groups_of(&schema, &self.keep.columns);
            part.show_only(kept).map_err(Rejection::from)?;
            if is_shown {
                let shown = Schema::decode(&proven.schema.bytes).unwrap_or(Schema::OPAQUE);
                let is_named = |name: &str| self.keep.columns.iter().any(|column| column == name);
                let stays = |field: &Field<'_>| {
                    (kept.is_empty() || kept.contains(field.group)) && !is_named(field.name)
                };
                if let Some(field) = shown.fields().find(stays) {
                    return Err(RedactError::ColumnNotSeparate {
                        name: device_name(self.roster, device),
                        column: field.name.to_owned(),
                        group: field.group,
                        why: if field.group == 0 {
                            "which every proof shows"
                        } else {
                            "like a column that is kept"
                        },
                    }
                    .into());
                }
                let has = |name: &String| schema.field(name).is_some();
                self.columns.retain(|name| !has(name));
                let names: Vec<&str> = schema.fields().map(|field| field.name).collect();
                self.known = names.join(", ");
            }
        }
        self.run.push((part, is_shown));
        if proven.part.signature.is_some() {
            output.run(std::mem::take(&mut self.run))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<Redacted, Error> {
        for (run, found) in self.keep.readings.iter().zip(&self.found) {
            let KeptReadings { index: Some(index), first, last } = *run else { continue };
            let (found, all) = (*found, u64::from(last) - u64::from(first) + 1);
            if found < all {
                return Err(RedactError::ReadingUnavailable { index, first, last, found }.into());
            }
        }
        let (output, _) = self.output.ok_or(RedactError::NothingLeft)?;
        if let (Some(column), false) = (self.columns.first(), output.is_empty()) {
            let (column, known) = (column.clone(), self.known);
            return Err(RedactError::UnknownColumn { column, known }.into());
        }
        let guessable = output.guessable();
        Ok(Redacted { report: output.finish()?, guessable })
    }
}
