//! Reads the table of seals row by row. Continues after rows that cannot be read.

use std::ops::Bound;

use moteseal_core::record::{DeviceId, SealIndex};
use redb::{Database, ReadableDatabase};

use super::{Check, Finding};
use crate::bundle::SealKey;
use crate::embedded::{SEALS, guarded};

type Key = [u8; SealKey::LENGTH];

/// Returns the device and index of a key as one number. The numbers sort in the same order as the
/// encoded keys without their digests.
fn place(key: &Key) -> u128 {
    key[..12].iter().fold(0, |place, &byte| place << 8 | u128::from(byte))
}

const PLACES: u128 = 1 << 96;

/// Returns the lowest key of a device and index.
fn lowest(place: u128) -> Key {
    let mut key = [0; SealKey::LENGTH];
    key[..12].copy_from_slice(&place.to_be_bytes()[4..]);
    key
}

fn parts(place: u128) -> (DeviceId, SealIndex) {
    let key = SealKey::from_bytes(&lowest(place));
    (key.device, key.index)
}

/// Passes every readable row to the check, and reports the gaps where rows cannot be read.
pub(super) fn check_seals(check: &mut Check<'_>, database: &Database) {
    let mut from = Bound::Unbounded;
    loop {
        // The last row that was read before the iteration failed.
        let mut last = match from {
            Bound::Excluded(key) => Some(key),
            _ => None,
        };
        let ended = guarded(|| {
            let transaction = database.begin_read()?;
            let table = transaction.open_table(SEALS)?;
            for entry in table.range::<Key>((from, Bound::Unbounded))? {
                let (key, row) = entry?;
                check.row(key.value(), row.value());
                last = Some(key.value());
            }
            Ok(())
        });
        if ended.is_ok() {
            return;
        }
        let next = resume(database, last.as_ref());
        report_the_gap(check, last.as_ref(), next.as_ref());
        match next {
            Some(next) => from = Bound::Included(next),
            None => return,
        }
    }
}

/// Returns the first readable row after `last`. After each failed read, the search doubles the
/// distance that it skips.
fn resume(database: &Database, last: Option<&Key>) -> Option<Key> {
    let after = last.map_or(0, |last| place(last) + 1);
    let mut step = 0;
    while after + step < PLACES {
        let found = guarded(|| {
            let transaction = database.begin_read()?;
            let table = transaction.open_table(SEALS)?;
            let entry = table.range(lowest(after + step)..)?.next();
            Ok(entry.transpose()?.map(|(key, _)| key.value()))
        });
        match found {
            Ok(next) => return next,
            Err(_) => step = (step * 2).max(1),
        }
    }
    None
}

fn report_the_gap(check: &mut Check<'_>, last: Option<&Key>, next: Option<&Key>) {
    let mut name = |device, first, last| {
        let what = "the rows of these seals cannot be read".to_owned();
        check.found(Finding {
            name: "SealsUnreadable",
            device,
            indices: Some((first, last)),
            what,
        });
    };
    // The lost rows may have the same index as the readable rows next to them, so report both ends
    // of the gap.
    let after = last.map(|last| parts(place(last)));
    let next = next.map(|next| parts(place(next)));
    match (after, next) {
        (Some((device, first)), Some((other, last))) if device == other => {
            name(Some(device), first, last);
        }
        (after, next) => {
            if let Some((device, first)) = after {
                name(Some(device), first, SealIndex(u32::MAX));
            }
            if let Some((device, last)) = next {
                name(Some(device), SealIndex(0), last);
            }
            let what = match (after, next) {
                (Some((first, _)), Some((last, _))) => {
                    format!("devices between {first} and {last} cannot be listed")
                }
                (Some((first, _)), None) => format!("devices after {first} cannot be listed"),
                (None, Some((last, _))) => format!("devices before {last} cannot be listed"),
                (None, None) => "no device can be listed".to_owned(),
            };
            check.found(Finding { name: "SealsUnreadable", device: None, indices: None, what });
        }
    }
}
