//! Urgent events.
//!
//! The events of a batch are stored in these steps, each after Cassandra acknowledged those before it; the
//! requests of one step are sent at the same time. The stored events of their places are read. The schemas
//! are written, then the events and their lengths. The events get their places in the order (see `order.rs`),
//! which makes them visible. The places are confirmed, and the events of the places are read once more: if two
//! processes store two events of one place at the same time, at least the later one reads both. A process that
//! is killed between two steps leaves rows without a confirmation. The same put again writes what is missing,
//! and places the events again if they were not confirmed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex, Sequence};
use moteseal_store::{Receipt, StoredUrgent, UrgentKey};

use crate::fault::Fault;
use crate::guard;
use crate::order::{Placed, number_of, stored};
use crate::reads::{digest_of, limit_of};
use crate::store::{STORING, Table};

/// The maximum number of events that are stored together. The events of a longer batch follow.
const EVENTS: usize = 256;
/// The maximum number of requests of one batch at the same time.
const AT_ONCE: usize = 32;
/// If a device has more events than this, the sum of their lengths is known for a while. Fewer are cheap to add up.
const MANY: i64 = 1_000;

/// The place of an event in a seal.
type SealPlace = (DeviceId, SealIndex, Sequence);

/// Device, index, place, digest and length of an event.
type SizeRow = (Vec<u8>, i64, Vec<u8>, Vec<u8>, i64);
/// Device, span, index, place, digest and number of an event.
type ConfirmedRow = (Vec<u8>, i32, i64, Vec<u8>, Vec<u8>, i64);

const fn place_of(key: &UrgentKey) -> SealPlace {
    (key.device, key.index, key.seq)
}

/// Returns the event in a row, if it matches its checksum.
fn event_in(key: &UrgentKey, row: Option<Vec<u8>>) -> Result<Vec<u8>, Fault> {
    let event = row.and_then(|row| guard::unwrap(&[b"urgent", &key.to_bytes()], row));
    event.ok_or_else(|| Fault::Damaged(None, format!("{key} is damaged or missing")))
}

impl Table {
    pub(crate) async fn put_urgent(
        &self,
        events: &[StoredUrgent],
        deadline: Instant,
    ) -> Result<Receipt, Fault> {
        let mut receipt = Receipt::default();
        for events in events.chunks(EVENTS) {
            self.put_events(events, &mut receipt, deadline).await?;
        }
        Ok(receipt)
    }

    async fn put_events(
        &self,
        events: &[StoredUrgent],
        receipt: &mut Receipt,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let places: BTreeSet<SealPlace> =
            events.iter().map(|event| place_of(&event.key())).collect();
        // Within this process, the events of one place are stored one after the other. The locks are taken in
        // ascending order.
        let locks: BTreeSet<usize> = places.iter().map(lock_of).collect();
        let mut storing = Vec::with_capacity(locks.len());
        for lock in locks {
            storing.push(self.storing[lock].lock().await);
        }
        let before = self.digests_at(places, deadline).await?;
        let known = self.known_of(events, &before, deadline).await?;
        let mut seen = HashSet::new();
        let new: Vec<&StoredUrgent> = events
            .iter()
            .filter(|event| !known.contains(&event.key()) && seen.insert(event.key()))
            .collect();
        let mut at = before;
        if !new.is_empty() {
            self.write_events(&new, deadline).await?;
            let first = self.place(&new, deadline).await?;
            self.confirm(&new, first, deadline).await?;
            let places = new.iter().map(|event| place_of(&event.key())).collect();
            at.extend(self.digests_at(places, deadline).await?);
        }
        for key in events.iter().map(StoredUrgent::key) {
            let mut digests = at.get(&place_of(&key)).into_iter().flatten();
            if digests.any(|digest| *digest != key.digest) {
                receipt.add_doubled_event(key.device, key.index, key.seq);
            }
        }
        receipt.stored += new.len() as u64;
        receipt.known += (events.len() - new.len()) as u64;
        Ok(())
    }

    /// Returns which of the events are stored and confirmed. `before` are the stored ones of their places.
    async fn known_of(
        &self,
        events: &[StoredUrgent],
        before: &BTreeMap<SealPlace, Vec<Digest>>,
        deadline: Instant,
    ) -> Result<HashSet<UrgentKey>, Fault> {
        let stored: HashSet<UrgentKey> = events
            .iter()
            .map(StoredUrgent::key)
            .filter(|key| before.get(&place_of(key)).is_some_and(|at| at.contains(&key.digest)))
            .collect();
        let reads = stored.into_iter().map(|key| async move {
            let is_confirmed = !self.confirmed(&key, deadline).await?.is_empty();
            Ok::<_, Fault>(is_confirmed.then_some(key))
        });
        let reads: Vec<_> = reads.collect();
        let known: Vec<Option<UrgentKey>> =
            stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(known.into_iter().flatten().collect())
    }

    /// Writes the schemas of events, then the events and their lengths.
    async fn write_events(&self, events: &[&StoredUrgent], deadline: Instant) -> Result<(), Fault> {
        let schemas: BTreeMap<Digest, _> =
            events.iter().map(|event| (event.schema().digest, event.schema())).collect();
        let writes = schemas.into_values().map(|schema| async move {
            self.put_schema(schema.digest, &schema.bytes, deadline).await
        });
        let writes: Vec<_> = writes.collect();
        let () = stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await?;
        let writes = events.iter().map(|event| async move {
            let (key, seq) = (event.key(), event.key().seq.0.to_be_bytes());
            let (span, index) = (guard::span(key.index), i64::from(key.index.0));
            let value = guard::wrap(&[b"urgent", &key.to_bytes()], &[event.bytes()]);
            let values = (&key.device.0[..], span, index, &seq[..], &key.digest.0[..], value);
            self.run(&self.statements.add_urgent, values, deadline).await
        });
        let writes: Vec<_> = writes.collect();
        let () = stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await?;
        let mut sizes: BTreeMap<DeviceId, Vec<SizeRow>> = BTreeMap::new();
        for event in events {
            let key = event.key();
            let size = i64::try_from(event.bytes().len()).unwrap_or(i64::MAX);
            sizes.entry(key.device).or_default().push((
                key.device.0.to_vec(),
                i64::from(key.index.0),
                key.seq.0.to_be_bytes().to_vec(),
                key.digest.0.to_vec(),
                size,
            ));
        }
        let writes = sizes.into_iter().map(|(device, rows)| async move {
            let bytes = rows.iter().map(|row| row.4.unsigned_abs()).sum();
            let add = &self.statements.add_urgent_size;
            let written = self.run_all(add, rows, deadline).await;
            match &written {
                Ok(()) => self.event_bytes().add(device, bytes),
                // Perhaps Cassandra has them nevertheless.
                Err(_) => self.event_bytes().forget(device),
            }
            written
        });
        let writes: Vec<_> = writes.collect();
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Writes that events have places with consecutive numbers.
    async fn confirm(
        &self,
        events: &[&StoredUrgent],
        first: u64,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let mut rows: BTreeMap<(DeviceId, i32), Vec<ConfirmedRow>> = BTreeMap::new();
        for (event, number) in events.iter().zip(first..) {
            let key = event.key();
            let span = guard::span(key.index);
            rows.entry((key.device, span)).or_default().push((
                key.device.0.to_vec(),
                span,
                i64::from(key.index.0),
                key.seq.0.to_be_bytes().to_vec(),
                key.digest.0.to_vec(),
                stored(number),
            ));
        }
        let writes = rows.into_values().map(|rows| async move {
            self.run_all(&self.statements.confirm_urgent, rows, deadline).await
        });
        let writes: Vec<_> = writes.collect();
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Reads the digests of the stored events of places.
    async fn digests_at(
        &self,
        places: BTreeSet<SealPlace>,
        deadline: Instant,
    ) -> Result<BTreeMap<SealPlace, Vec<Digest>>, Fault> {
        let reads = places.into_iter().map(|place| async move {
            let (device, index, seq) = place;
            let seq = seq.0.to_be_bytes();
            let values = (&device.0[..], guard::span(index), i64::from(index.0), &seq[..]);
            let rows: Vec<(Vec<u8>,)> =
                self.rows(&self.statements.urgent_at, values, deadline).await?;
            let digests: Vec<Digest> =
                rows.iter().map(|(digest,)| digest_of(digest)).collect::<Result<_, _>>()?;
            Ok((place, digests))
        });
        let reads: Vec<_> = reads.collect();
        stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn confirmed(&self, key: &UrgentKey, deadline: Instant) -> Result<Vec<u64>, Fault> {
        let seq = key.seq.0.to_be_bytes();
        let (span, index) = (guard::span(key.index), i64::from(key.index.0));
        let values = (&key.device.0[..], span, index, &seq[..], &key.digest.0[..]);
        let rows: Vec<(i64,)> = self.rows(&self.statements.confirmed, values, deadline).await?;
        rows.into_iter().map(|(number,)| number_of(number)).collect()
    }

    /// Returns the event at a place, or `None` if it was confirmed at a later place.
    pub(crate) async fn event(
        &self,
        place: &Placed,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let key = place.key;
        let confirmed = self.confirmed(&key, deadline).await?;
        if confirmed.iter().any(|number| *number > place.number) {
            return Ok(None);
        }
        let seq = key.seq.0.to_be_bytes();
        let (span, index) = (guard::span(key.index), i64::from(key.index.0));
        let values = (&key.device.0[..], span, index, &seq[..], &key.digest.0[..]);
        let rows: Vec<(Vec<u8>,)> = self.rows(&self.statements.urgent, values, deadline).await?;
        event_in(&key, rows.into_iter().next().map(|(event,)| event)).map(Some)
    }

    /// Returns at most `limit` events for one place of a seal, ascending by digest.
    pub(crate) async fn events_at(
        &self,
        (device, index, seq): SealPlace,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, Fault> {
        let (span, place) = (guard::span(index), seq.0.to_be_bytes());
        let values = (&device.0[..], span, i64::from(index.0), &place[..], limit_of(limit));
        let rows: Vec<(Vec<u8>, Vec<u8>)> =
            self.rows(&self.statements.urgent_events_at, values, deadline).await?;
        let event = |(digest, event): (Vec<u8>, Vec<u8>)| {
            let key = UrgentKey { device, index, seq, digest: digest_of(&digest)? };
            let event = event_in(&key, Some(event))?;
            Ok((key, event))
        };
        rows.into_iter().map(event).collect()
    }

    /// Returns the bytes of the events of a device. If it has many, the sum lacks what other processes have stored
    /// in the last 10 s.
    pub(crate) async fn urgent_bytes(
        &self,
        device: DeviceId,
        deadline: Instant,
    ) -> Result<u64, Fault> {
        let since = Instant::now();
        let begun = {
            let mut known = self.event_bytes();
            if let Some(bytes) = known.get(device, since) {
                return Ok(bytes);
            }
            known.begin(device)
        };
        let rows: Vec<(Option<i64>, i64)> =
            self.rows(&self.statements.urgent_bytes, (&device.0[..],), deadline).await?;
        let (sum, count) = rows.first().copied().unwrap_or_default();
        let bytes = u64::try_from(sum.unwrap_or(0))
            .map_err(|_| Fault::damaged("the lengths of urgent events are damaged"))?;
        if count > MANY {
            self.event_bytes().insert(device, bytes, since, begun);
        }
        Ok(bytes)
    }
}

/// Returns the lock of a place.
fn lock_of(place: &SealPlace) -> usize {
    let (device, index, seq) = place;
    let digest = guard::sum(&[&device.0, &index.0.to_be_bytes(), &seq.0.to_be_bytes()], &[]);
    usize::from(digest[7]) % STORING
}
