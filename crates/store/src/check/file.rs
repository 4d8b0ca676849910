//! The check of a file of the embedded store: every page, and the tables against each other.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::PoisonError;

use moteseal_core::digest::Digest;
use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory;
use redb::{Database, ReadableDatabase, ReadableTable};

use super::{Check, Finding, Progress, Report, Source, rows};
use crate::bundle::SealKey;
use crate::embedded::{
    self, EQUIVOCATIONS, MANIFESTS, OpenError, Options, PIECES, SCHEMAS, SEALS, UNORDERED,
    frozen_journal, guarded, open_frozen, read_body, resolve,
};
use crate::epochs::ReadError;
use crate::manifest::ManifestKey;
use crate::pages::Damaged;
use crate::stored::StoredSeal;

/// Checks the store at `path` with the public keys in `directory`. Calls `progress` after every
/// seal.
///
/// No other process may have the store open. [`check_store`](super::check_store) checks an open
/// store.
///
/// # Errors
/// [`OpenError`] if the store cannot be checked because the file does not exist, is not a store, or
/// is in use. If the file is too damaged to be opened, that is a finding and not an error.
pub fn check(
    path: &Path,
    directory: &dyn Directory,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, OpenError> {
    let path = &resolve(path)?;
    let damaged = Damaged::default();
    let mut report = Report::default();
    let mut database =
        match open_frozen(path, &Options { create: false, ..Options::default() }, &damaged) {
            Ok(database) => database,
            Err(OpenError::Damaged(_, what)) => {
                report.damage.push(Finding::file(format!("the file cannot be opened: {what}")));
                return Ok(report);
            }
            Err(error) => return Err(error),
        };
    match frozen_journal(path, &database) {
        Ok(0) => {}
        Ok(torn) => report.damage.push(Finding {
            name: "JournalTorn",
            device: None,
            indices: None,
            what: format!(
                "the tail of the store's journal may have lost {torn} bytes: a crash interrupted \
                 its last write, or acknowledged uploads are damaged; push the devices' data again"
            ),
        }),
        Err(error @ (OpenError::Locked(_) | OpenError::Io(..))) => return Err(error),
        Err(error) => report.damage.push(Finding {
            name: error.name(),
            device: None,
            indices: None,
            what: error.to_string(),
        }),
    }
    let file_bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let source = File(&database);
    let mut check = Check::new(&source, directory, progress, report, file_bytes);
    rows::check_seals(&mut check, &database);
    check.end_device();
    check.pieces(&database);
    check.manifests(&database);
    check.urgent(&database);
    check.tables(&database);
    report = check.report;
    // redb's own checksums also cover the pages that reading all seals does not visit, for example
    // the lists of free pages.
    let whole = guarded(|| match database.check_integrity() {
        Ok(true) => Ok(()),
        Ok(false) => Err(embedded::damaged("redb's lists of pages do not match the pages")),
        Err(error) => Err(embedded::damaged(&error.to_string())),
    });
    let _ = guarded(|| {
        drop(database);
        Ok(())
    });
    if let Err(error) = whole {
        let pages = damaged.lock().unwrap_or_else(PoisonError::into_inner);
        let pages: Vec<String> = pages.iter().map(u64::to_string).collect();
        let what = match error {
            ReadError::Damaged { what, .. } => what,
            other => other.to_string(),
        };
        let which = if pages.is_empty() {
            String::new()
        } else {
            format!("; pages that fail their checksum: {}", pages.join(", "))
        };
        report
            .damage
            .push(Finding::file(format!("the file as a whole does not verify: {what}{which}")));
    }
    Ok(report)
}

/// The bodies and schemas of a file.
struct File<'c>(&'c Database);

impl Source for File<'_> {
    fn body(&self, seal: &StoredSeal) -> Result<Vec<u8>, ReadError> {
        if let Some(body) = seal.inline_body() {
            return Ok(body.to_vec());
        }
        guarded(|| {
            read_body(&self.0.begin_read()?.open_table(PIECES)?, seal, 0..seal.body_length())
        })
    }

    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        guarded(|| {
            let schemas = self.0.begin_read()?.open_table(SCHEMAS)?;
            Ok(schemas.get(digest.0)?.map(|value| value.value().to_vec()))
        })
    }
}

impl Check<'_> {
    /// Reports pieces to which no head refers. Pieces with a head were already read with that head.
    fn pieces(&mut self, database: &Database) {
        let read = guarded(|| {
            let transaction = database.begin_read()?;
            let (mut last, mut found) = (None, Vec::new());
            let seals = transaction.open_table(SEALS)?;
            for entry in transaction.open_table(PIECES)?.iter()? {
                let (bytes, value) = entry?;
                let (bytes, length) = (bytes.value(), value.value().len() as u64);
                let Some((key, number)) = bytes.split_first_chunk() else { continue };
                let (key, number) = (
                    SealKey::from_bytes(key),
                    u32::from_be_bytes(number.try_into().unwrap_or_default()),
                );
                // The pieces of a body must not extend past its end.
                let fits = |(first, body): &(u32, u64)| {
                    let start = number
                        .checked_sub(*first)
                        .map(|number| u64::from(number) * embedded::PIECE as u64);
                    start.is_some_and(|start| start < *body && length <= body - start)
                };
                let expected =
                    self.long.get(&key).is_some_and(fits) || superseded(&seals, &key, number)?;
                if !expected && last != Some(key) {
                    last = Some(key);
                    found.push(Finding::seal(
                        "PieceWithoutHead",
                        &key,
                        "the store holds events that belong to no seal",
                    ));
                }
            }
            Ok(found)
        });
        // If pieces cannot be read, their seals are already among the findings.
        self.report.damage.extend(read.unwrap_or_default());
    }

    /// Verifies all manifests again.
    fn manifests(&mut self, database: &Database) {
        let mut last = None;
        let read = guarded(|| {
            let transaction = database.begin_read()?;
            for entry in transaction.open_table(MANIFESTS)?.iter()? {
                let (key, value) = entry?;
                let key = ManifestKey::from_bytes(&key.value());
                last = Some(key.epoch);
                self.manifest(&key, value.value());
            }
            Ok(())
        });
        if read.is_err() {
            let from =
                last.map_or_else(String::new, |epoch| format!(" after one of epoch {epoch}"));
            let what = format!("the manifests{from} cannot be read");
            self.found(Finding { name: "ManifestsUnreadable", device: None, indices: None, what });
        }
    }

    /// Compares the tables of equivocations and unordered devices with the seals that were read.
    fn tables(&mut self, database: &Database) {
        let read = guarded(|| {
            let transaction = database.begin_read()?;
            let (doubled, unordered) =
                (transaction.open_table(EQUIVOCATIONS)?, transaction.open_table(UNORDERED)?);
            let doubled = doubled
                .iter()?
                .map(|entry| Ok(entry?.0.value()))
                .collect::<Result<BTreeSet<_>, ReadError>>()?;
            let unordered = unordered
                .iter()?
                .map(|entry| Ok(entry?.0.value()))
                .collect::<Result<BTreeSet<_>, ReadError>>()?;
            Ok((doubled, unordered))
        });
        let Ok((doubled, unordered)) = read else {
            return self.found(Finding::file(
                "the lists of equivocations and of devices with seals out of order cannot be read",
            ));
        };
        for key in doubled.symmetric_difference(&self.doubled).copied().collect::<Vec<_>>() {
            let (device, index) = embedded::index_of(&key);
            let what = if doubled.contains(&key) {
                "is listed as signed twice, but is not"
            } else {
                "was signed twice, but is not listed"
            };
            self.found(Finding::seal(
                "IndexMismatch",
                &SealKey { device, index, digest: Digest::NULL },
                what,
            ));
        }
        for device in unordered.symmetric_difference(&self.unordered).copied().collect::<Vec<_>>() {
            let what = if unordered.contains(&device) {
                "is listed as a device with seals out of order, but its seals are in order"
            } else {
                "has seals out of order, but is not in the list of such devices"
            };
            self.found(Finding {
                name: "IndexMismatch",
                device: Some(DeviceId(device)),
                indices: None,
                what: what.to_owned(),
            });
        }
    }
}

/// Returns whether a piece belongs to an earlier version of a pruned tree that has since received
/// more levels. Such a piece is kept because a client may still be reading it.
fn superseded(
    seals: &impl ReadableTable<[u8; SealKey::LENGTH], &'static [u8]>,
    key: &SealKey,
    number: u32,
) -> Result<bool, ReadError> {
    let Some(from) = (number / embedded::PIECES_OF_A_BODY).checked_sub(1) else { return Ok(false) };
    let head = seals.get(key.to_bytes())?.and_then(|row| StoredSeal::decode(key, row.value()));
    Ok(head.and_then(|seal| seal.tree_from()).is_some_and(|kept| u32::from(kept.0) <= from))
}
