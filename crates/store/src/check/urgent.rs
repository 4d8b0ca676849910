//! Checks the tables of urgent events: every event by its signature, and the tables against each
//! other.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::{SealError, UrgentError, UrgentEvent};
use redb::{Database, ReadableDatabase, ReadableTable};

use super::{Check, Finding};
use crate::embedded::urgent::{URGENT, URGENT_BYTES, URGENT_ORDER, of_order_row, order_row};
use crate::embedded::{SCHEMAS, guarded};
use crate::epochs::ReadError;
use crate::urgent::UrgentKey;

pub(super) fn finding(name: &'static str, key: &UrgentKey, what: &str) -> Finding {
    Finding {
        name,
        device: Some(key.device),
        indices: Some((key.index, key.index)),
        what: format!("the urgent event at place {} {what}", key.seq),
    }
}

impl Check<'_> {
    /// Checks all urgent events.
    pub(super) fn urgent(&mut self, database: &Database) {
        let (mut found, mut count) = (Vec::new(), 0);
        let read = guarded(|| self.read_urgent(database, &mut found, &mut count));
        self.report.urgent = count;
        self.report.damage.append(&mut found);
        if read.is_err() {
            self.found(Finding {
                name: "EventsUnreadable",
                device: None,
                indices: None,
                what: format!("the urgent events cannot be read, except for {count}"),
            });
        }
    }

    /// Verifies an urgent event again. Returns its schema and epoch, if it belongs to its key and is
    /// not void.
    pub(super) fn urgent_event(
        &self,
        key: &UrgentKey,
        bytes: &[u8],
        found: &mut Vec<Finding>,
    ) -> Option<(Digest, EpochNumber)> {
        match UrgentEvent::open(bytes, self.directory, &mut vec![0; bytes.len() + 64]) {
            Ok(event) => {
                let named = UrgentKey {
                    device: event.device,
                    index: event.index,
                    seq: event.seq,
                    digest: UrgentEvent::digest(bytes).unwrap_or(Digest::NULL),
                };
                if named == *key {
                    return Some((event.schema, event.epoch));
                }
                found.push(finding("EventMismatch", key, "does not belong to this key"));
            }
            // The event is void and is not served.
            Err(UrgentError::Seal(SealError::KeyEnded)) => {}
            Err(error) => found.push(finding(error.name(), key, "does not verify")),
        }
        None
    }

    fn read_urgent(
        &self,
        database: &Database,
        found: &mut Vec<Finding>,
        count: &mut u64,
    ) -> Result<(), ReadError> {
        let transaction = database.begin_read()?;
        let (order, schemas) =
            (transaction.open_table(URGENT_ORDER)?, transaction.open_table(SCHEMAS)?);
        let mut used: BTreeMap<DeviceId, u64> = BTreeMap::new();
        for entry in transaction.open_table(URGENT)?.iter()? {
            let (key, value) = entry?;
            let key = UrgentKey::from_bytes(&key.value());
            *count += 1;
            let Some((number, bytes)) = value.value().split_first_chunk() else {
                found.push(finding("EventMismatch", &key, "is truncated"));
                continue;
            };
            *used.entry(key.device).or_default() += bytes.len() as u64;
            let Some((schema, epoch)) = self.urgent_event(&key, bytes, found) else { continue };
            let row = order.get(u64::from_be_bytes(*number))?;
            if row.map(|row| row.value()) != Some(order_row(&key, epoch)) {
                found.push(finding("EventMismatch", &key, "is not in the order of events"));
            }
            if schemas.get(schema.0)?.is_none() {
                found.push(finding("SchemaUnknown", &key, "has a schema that is missing"));
            }
        }
        let mut listed = 0;
        for entry in order.iter()? {
            let (key, _) = of_order_row(&entry?.1.value());
            listed += 1;
            // A missing event was not read above.
            if transaction.open_table(URGENT)?.get(key.to_bytes())?.is_none() {
                found.push(finding("EventMismatch", &key, "is listed, but it is missing"));
            }
        }
        let mut counted = BTreeMap::new();
        for entry in transaction.open_table(URGENT_BYTES)?.iter()? {
            let (device, bytes) = entry?;
            counted.insert(DeviceId(device.value()), bytes.value());
        }
        if counted != used || listed != *count {
            found.push(Finding::file("the counts of the urgent events are wrong"));
        }
        Ok(())
    }
}
