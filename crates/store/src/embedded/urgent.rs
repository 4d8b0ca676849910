//! The tables of urgent events.
//!
//! One table has the signed events by their keys, so that an event that is submitted twice is
//! stored once. Another one has the keys in the order in which the events arrived, from which
//! clients continue. The third one has the number of bytes of each device's events.

use std::ops::Bound;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use redb::{ReadTransaction, ReadableTable, TableDefinition, WriteTransaction};

use super::damaged;
use crate::epochs::{ReadError, Receipt};
use crate::urgent::{StoredUrgent, UrgentKey, UrgentLimits, UrgentPage, UrgentPlace};

/// Maps an [`UrgentKey`] to the number of the event (8 bytes, big-endian) and the signed object.
pub(crate) const URGENT: TableDefinition<'_, [u8; UrgentKey::LENGTH], &[u8]> =
    TableDefinition::new("urgent");
/// Maps the number of an event, from 1, to its key and its epoch (8 bytes, big-endian).
pub(crate) const URGENT_ORDER: TableDefinition<'_, u64, [u8; ORDER_ROW]> =
    TableDefinition::new("urgent_order");
/// Maps a device to the number of bytes of its events.
pub(crate) const URGENT_BYTES: TableDefinition<'_, [u8; 8], u64> =
    TableDefinition::new("urgent_bytes");

/// The length of a row of [`URGENT_ORDER`].
pub(crate) const ORDER_ROW: usize = UrgentKey::LENGTH + 8;

/// Returns the row of [`URGENT_ORDER`] of an event.
pub(crate) fn order_row(key: &UrgentKey, epoch: EpochNumber) -> [u8; ORDER_ROW] {
    let mut row = [0; ORDER_ROW];
    row[..UrgentKey::LENGTH].copy_from_slice(&key.to_bytes());
    row[UrgentKey::LENGTH..].copy_from_slice(&epoch.0.to_be_bytes());
    row
}

/// Returns the key and the epoch of a row of [`URGENT_ORDER`].
pub(crate) fn of_order_row(row: &[u8; ORDER_ROW]) -> (UrgentKey, EpochNumber) {
    let (mut key, mut epoch) = ([0; UrgentKey::LENGTH], [0; 8]);
    key.copy_from_slice(&row[..UrgentKey::LENGTH]);
    epoch.copy_from_slice(&row[UrgentKey::LENGTH..]);
    (UrgentKey::from_bytes(&key), EpochNumber(u64::from_be_bytes(epoch)))
}

/// Returns all keys of one place of a seal.
fn place(key: &UrgentKey) -> std::ops::RangeInclusive<[u8; UrgentKey::LENGTH]> {
    let with = |byte| {
        let mut bytes = key.to_bytes();
        bytes[UrgentKey::LENGTH - 32..].fill(byte);
        bytes
    };
    with(0)..=with(0xff)
}

/// Reads the rows that [`put`] needs, so that a damaged page is found before a transaction.
pub(super) fn probe<'e>(
    transaction: &ReadTransaction,
    events: impl Iterator<Item = &'e StoredUrgent>,
) -> Result<(), ReadError> {
    let mut events = events.peekable();
    if events.peek().is_none() {
        return Ok(());
    }
    let (table, bytes) = (transaction.open_table(URGENT)?, transaction.open_table(URGENT_BYTES)?);
    transaction.open_table(URGENT_ORDER)?.last()?;
    for event in events {
        let key = event.key.to_bytes();
        table.range(..key)?.next_back().transpose()?;
        table.range(key..)?.next().transpose()?;
        bytes.get(event.key.device.0)?;
    }
    Ok(())
}

/// Stores events, including several for one place of a seal.
pub(super) fn put(
    transaction: &WriteTransaction,
    events: &[StoredUrgent],
    receipt: &mut Receipt,
) -> Result<(), redb::Error> {
    let mut table = transaction.open_table(URGENT)?;
    let mut order = transaction.open_table(URGENT_ORDER)?;
    let mut bytes = transaction.open_table(URGENT_BYTES)?;
    let mut schemas = transaction.open_table(super::SCHEMAS)?;
    for event in events {
        let StoredUrgent { key, epoch, schema, bytes: signed } = event;
        let is_known = table.get(key.to_bytes())?.is_some();
        for other in table.range(place(key))?.take(2) {
            if other?.0.value() != key.to_bytes() {
                receipt.add_doubled_event(key.device, key.index, key.seq);
            }
        }
        if is_known {
            receipt.known += 1;
            continue;
        }
        if schemas.get(schema.digest.0)?.is_none() {
            schemas.insert(schema.digest.0, &schema.bytes[..])?;
        }
        let number = order.last()?.map_or(0, |(number, _)| number.value()) + 1;
        order.insert(number, order_row(key, *epoch))?;
        table.insert(key.to_bytes(), &[&number.to_be_bytes()[..], signed].concat()[..])?;
        let used = bytes.get(key.device.0)?.map_or(0, |used| used.value());
        bytes.insert(key.device.0, used.saturating_add(event.counted_bytes()))?;
        receipt.stored += 1;
    }
    Ok(())
}

/// Reads a page of events after a place. If the store does not have this place, the page is the
/// first one.
pub(super) fn page(
    transaction: &ReadTransaction,
    after: Option<UrgentPlace>,
    limits: UrgentLimits,
    select: &dyn Fn(DeviceId, EpochNumber) -> bool,
) -> Result<UrgentPage, ReadError> {
    let (table, order) = (transaction.open_table(URGENT)?, transaction.open_table(URGENT_ORDER)?);
    let mut from = Bound::Unbounded;
    if let Some(after) = after
        && let Some(row) = order.get(after.number)?
        && of_order_row(&row.value()).0.digest == after.digest
    {
        from = Bound::Excluded(after.number);
    }
    let (mut page, mut bytes, mut read) = (UrgentPage::default(), 0, 0);
    for row in order.range::<u64>((from, Bound::Unbounded))? {
        if read == limits.read || page.events.len() == limits.events || bytes >= limits.bytes {
            page.has_more = true;
            break;
        }
        let (number, row) = row?;
        let (key, epoch) = of_order_row(&row.value());
        if select(key.device, epoch) {
            let value =
                table.get(key.to_bytes())?.ok_or_else(|| damaged("an urgent event is missing"))?;
            let (stored, signed) = value
                .value()
                .split_first_chunk()
                .ok_or_else(|| damaged("an urgent event is truncated"))?;
            if u64::from_be_bytes(*stored) != number.value() {
                return Err(damaged("the order of the urgent events is damaged"));
            }
            bytes += signed.len();
            page.events.push((key, signed.to_vec()));
        }
        page.last = Some(UrgentPlace { number: number.value(), digest: key.digest });
        read += 1;
    }
    Ok(page)
}

/// Returns at most `limit` events for one place of a seal.
pub(super) fn at(
    transaction: &ReadTransaction,
    (device, index, seq): (DeviceId, SealIndex, Sequence),
    limit: usize,
) -> Result<Vec<(UrgentKey, Vec<u8>)>, ReadError> {
    let table = transaction.open_table(URGENT)?;
    let keys = place(&UrgentKey { device, index, seq, digest: Digest::NULL });
    let mut events = Vec::new();
    for row in table.range(keys)?.take(limit) {
        let (key, value) = row?;
        let (_, signed) = value
            .value()
            .split_first_chunk::<8>()
            .ok_or_else(|| damaged("an urgent event is truncated"))?;
        events.push((UrgentKey::from_bytes(&key.value()), signed.to_vec()));
    }
    Ok(events)
}

/// Returns the number of bytes of a device's events.
pub(super) fn bytes_of(transaction: &ReadTransaction, device: DeviceId) -> Result<u64, ReadError> {
    Ok(transaction.open_table(URGENT_BYTES)?.get(device.0)?.map_or(0, |used| used.value()))
}
