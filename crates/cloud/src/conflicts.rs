//! Checks whether the rows of a store prove that somebody signed two histories.
//!
//! A store compares only the keys of its rows. A party that can write to its tables could add a row next to an
//! honest upload, and the device or the coordinator would be accused. So a cloud or a worker reports a conflict
//! only if two different rows verify with the roster. A row that does not verify is damage.

use std::fmt::Display;
use std::iter;

use moteseal_core::digest::Digest;
use moteseal_core::record::EpochNumber;
use moteseal_seal::sample::Manifest;
use moteseal_seal::{SealError, UrgentError, UrgentEvent};
use moteseal_service::LogLimit;
use moteseal_service::log_limit::log_suppressed;
use moteseal_store::{EpochStore, ReadError, Receipt, StoredManifest, StoredSeal, UrgentKey};
use moteseal_verify::{Roster, manifest};
use tracing::warn;

use crate::response::{is_served, unsigned};
use crate::state::{Finding, LOG_INTERVAL, LOG_LINES};

/// The maximum number of rows of one index, epoch or place that are verified, because a party that can write
/// to the tables can add any number of rows.
const ROWS: usize = 4;

/// Why a conflict of a receipt is not reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unproven {
    /// The name of the error (spec/errors.md): `StoreDamaged`, `UnknownRoster`, or that of a read that failed.
    pub name: &'static str,
    /// Which row it is, what is wrong with it, and what to do.
    pub what: String,
}

/// What a row proves.
enum Row {
    /// The device or the coordinator signed the object with this digest.
    Signed(Digest),
    /// Nothing, because no verifier accepts it: its key has ended, or its version of the roster is outdated.
    Unusable,
    /// Nothing, because of this error: it does not verify, or it names a roster that is not known here.
    Refused(&'static str, String),
}

/// Removes from a receipt the conflicts that the rows of the store do not prove. Returns what is wrong with
/// these rows. If the receipt has conflicts, this function reads the store, which may block. Calls `pause`
/// after each row.
pub fn confirm(
    store: &dyn EpochStore,
    roster: &Roster,
    receipt: &mut Receipt,
    pause: &mut dyn FnMut(),
) -> Vec<Unproven> {
    let mut found = Vec::new();
    receipt.equivocations.retain(|&(device, index)| {
        // Two rows usually suffice. More could be rows of later indices, which may be damaged.
        let more = iter::once_with(|| each(store.seals(device, index, ROWS)).skip(2)).flatten();
        let seals = each(store.seals(device, index, 2))
            .chain(more)
            .filter(|seal| seal.as_ref().ok().is_none_or(|seal| seal.key().index == index))
            .map(|seal| seal.map(|seal| of_seal(roster, &seal)));
        is_proven(&format!("device {device}, index {index}"), seals, pause, &mut found)
    });
    receipt.doubled.retain(|&epoch| {
        let manifests = manifests_of(store, epoch)
            .map(|manifest| manifest.map(|manifest| of_manifest(roster, &manifest)));
        is_proven(&format!("epoch {epoch}"), manifests, pause, &mut found)
    });
    receipt.doubled_events.retain(|&(device, index, seq)| {
        let events = each(store.urgent_at((device, index, seq), ROWS))
            .map(|event| event.map(|(key, bytes)| of_event(roster, &key, &bytes)));
        let place = format!("device {device}, index {index}, place {seq}");
        is_proven(&place, events, pause, &mut found)
    });
    found
}

/// Logs the conflicts of receipts. The lines of each device and epoch are limited, because a party that uploads can
/// repeat a conflict.
#[derive(Debug)]
pub struct ConflictLog(LogLimit<Finding>);

impl Default for ConflictLog {
    fn default() -> Self {
        Self(LogLimit::new(LOG_LINES, LOG_INTERVAL))
    }
}

impl ConflictLog {
    /// Logs the conflicts of a receipt that [`confirm`] has returned, and what it found.
    pub fn log(&self, receipt: &Receipt, unproven: &[Unproven]) {
        log_suppressed(&self.0.suppressed());
        log(&self.0, receipt, unproven);
    }
}

pub(crate) fn log(lines: &LogLimit<Finding>, receipt: &Receipt, unproven: &[Unproven]) {
    for Unproven { name, what } in unproven {
        if lines.allows(Finding::Failure) {
            warn!(name, "{what}");
        }
    }
    for (device, index) in &receipt.equivocations {
        if lines.allows(Finding::Equivocation(*device)) {
            warn!(%device, %index, "the device signed different seals under one index");
        }
    }
    for epoch in &receipt.doubled {
        if lines.allows(Finding::TwoManifests(*epoch)) {
            warn!(%epoch, "the coordinator signed different manifests of one epoch");
        }
    }
    for (device, index, seq) in &receipt.doubled_events {
        if lines.allows(Finding::Equivocation(*device)) {
            warn!(%device, %index, %seq, "the device signed different urgent events for one place");
        }
    }
}

/// Returns for each of these seals of a device whether the device signed another one of them under the same
/// index. The seals must be in the order of their indices. Calls `pause` after each seal that it verifies.
pub(crate) fn of_listed(
    roster: &Roster,
    seals: &[StoredSeal],
    pause: &mut dyn FnMut(),
) -> Vec<bool> {
    let mut conflicts = Vec::with_capacity(seals.len());
    for twins in seals.chunk_by(|a, b| a.key().index == b.key().index) {
        let first = conflicts.len();
        conflicts.resize(first + twins.len(), false);
        if twins.len() == 1 {
            continue;
        }
        for (at, seal) in twins.iter().enumerate().take(ROWS) {
            conflicts[first + at] = matches!(of_seal(roster, seal), Row::Signed(_));
            pause();
        }
        let signed = &mut conflicts[first..];
        if signed.iter().filter(|is_signed| **is_signed).count() < 2 {
            signed.fill(false);
        }
    }
    conflicts
}

/// Returns whether two of the rows of a place are signed and different. If not, adds the first row that is
/// damaged to `found`.
fn is_proven(
    place: &str,
    rows: impl Iterator<Item = Result<Row, ReadError>>,
    pause: &mut dyn FnMut(),
    found: &mut Vec<Unproven>,
) -> bool {
    let (mut signed, mut unproven) = (None, None);
    for row in rows.take(ROWS) {
        match row {
            Ok(Row::Signed(digest)) if signed.is_some_and(|first| first != digest) => return true,
            Ok(Row::Signed(digest)) => signed = Some(digest),
            Ok(Row::Unusable) => {}
            Ok(Row::Refused(name, what)) => {
                let what = format!("{place}: {what}");
                unproven.get_or_insert(Unproven { name, what });
            }
            Err(error) => {
                let what = format!("{place}: {error}");
                unproven.get_or_insert(Unproven { name: error.name(), what });
                break;
            }
        }
        pause();
    }
    found.extend(unproven);
    false
}

/// Returns the rows that were read, or the error.
fn each<T>(read: Result<Vec<T>, ReadError>) -> impl Iterator<Item = Result<T, ReadError>> {
    let (rows, error) = match read {
        Ok(rows) => (rows, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    rows.into_iter().map(Ok).chain(error.map(Err))
}

/// Reads the manifests of an epoch one by one, because they may be long.
fn manifests_of(
    store: &dyn EpochStore,
    epoch: EpochNumber,
) -> impl Iterator<Item = Result<StoredManifest, ReadError>> {
    let until = epoch.0.checked_add(1).map(EpochNumber);
    let mut after = None;
    iter::from_fn(move || {
        let next = store.manifests(epoch, until, after, 1).map(|mut found| found.pop()).transpose();
        if let Some(Ok(manifest)) = &next {
            after = Some(manifest.key());
        }
        next
    })
}

fn of_seal(roster: &Roster, seal: &StoredSeal) -> Row {
    match unsigned(roster, seal) {
        Some((name, what)) => Row::Refused(name, what),
        None if is_served(roster, seal) => Row::Signed(seal.key().digest),
        None => Row::Unusable,
    }
}

fn of_manifest(roster: &Roster, stored: &StoredManifest) -> Row {
    let (key, bytes) = (stored.key(), stored.bytes());
    let is_outdated = Manifest::claimed_roster(bytes)
        .is_some_and(|named| roster.outdates(&named, stored.epoch()));
    if is_outdated {
        return Row::Unusable;
    }
    match manifest::open(bytes, roster) {
        Ok(manifest) if (manifest.epoch(), manifest.digest()) == (key.epoch, key.digest) => {
            Row::Signed(key.digest)
        }
        Ok(_) => damaged(&key, &"the row has another manifest"),
        Err(error) => damaged(&key, &error.named()),
    }
}

fn of_event(roster: &Roster, key: &UrgentKey, bytes: &[u8]) -> Row {
    match UrgentEvent::open(bytes, roster, &mut vec![0; bytes.len() + 64]) {
        Ok(event)
            if (event.device, event.index, event.seq) == (key.device, key.index, key.seq)
                && UrgentEvent::digest(bytes) == Ok(key.digest) =>
        {
            Row::Signed(key.digest)
        }
        Ok(_) => damaged(key, &"the row has another event"),
        Err(UrgentError::Seal(SealError::KeyEnded)) => Row::Unusable,
        Err(error) => damaged(key, &error.named()),
    }
}

fn damaged(key: &dyn Display, why: &dyn Display) -> Row {
    let what = format!("{key} does not verify: {why}; run `moteseal store check`");
    Row::Refused("StoreDamaged", what)
}
