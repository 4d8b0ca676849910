//! Urgent events, and the order of their arrival.
//!
//! Cassandra has no counter that gives every event a number of its own, so a number may have several
//! events; their digests order them. A process writes an event after the last place that it reads,
//! and then reads the end of the order again. If its place is still the last, no reader can have
//! passed it, and the place is confirmed. Otherwise another process placed an event at the same time:
//! the event gets a second, later place. A reader therefore misses no event that was acknowledged
//! after its last read, and may in this case see an event twice.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_store::{Receipt, StoredUrgent, UrgentKey, UrgentPlace};

use crate::fault::Fault;
use crate::guard;
use crate::reads::{digest_of, limit_of};
use crate::store::Table;

/// The maximum number of places in one answer.
const PAGE: usize = 1024;

/// A place in the order, and the event that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) number: u64,
    pub(crate) key: UrgentKey,
    pub(crate) epoch: EpochNumber,
}

fn damaged_order() -> Fault {
    Fault::damaged("the order of the urgent events is damaged")
}

/// Returns the number of an event as the database stores it. Another one can follow it.
fn number_of(number: i64) -> Result<u64, Fault> {
    u64::try_from(number).ok().filter(|_| number < i64::MAX).ok_or_else(damaged_order)
}

/// Returns the number of a row of a bucket. The first number is 1. A number of another bucket is damaged:
/// readers would pass over the rows between, and would not find the place of their cursor again.
fn number_in(bucket: i64, number: i64) -> Result<u64, Fault> {
    let number = number_of(number)?;
    let is_in = number > 0 && guard::bucket(number) == bucket;
    if is_in { Ok(number) } else { Err(damaged_order()) }
}

/// Returns a number as the database stores it.
fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Table {
    pub(crate) async fn put_urgent(
        &self,
        events: &[StoredUrgent],
        deadline: Instant,
    ) -> Result<Receipt, Fault> {
        // Within this process, events do not compete for places.
        let _placing = self.placing.lock().await;
        let mut receipt = Receipt::default();
        for event in events {
            let key = event.key();
            let before = self.digests_at(&key, deadline).await?;
            if before.contains(&key.digest) && !self.confirmed(&key, deadline).await?.is_empty() {
                receipt.known += 1;
                continue;
            }
            self.put_schema(event.schema().digest, &event.schema().bytes, deadline).await?;
            let (device, seq) = (&key.device.0[..], key.seq.0.to_be_bytes());
            let (index, span) = (i64::from(key.index.0), guard::span(key.index));
            let value = guard::wrap(&[b"urgent", &key.to_bytes()], &[event.bytes()]);
            let values = (device, span, index, &seq[..], &key.digest.0[..], value);
            self.run(&self.statements.add_urgent, values, deadline).await?;
            let size = i64::try_from(event.bytes().len()).unwrap_or(i64::MAX);
            let values = (device, index, &seq[..], &key.digest.0[..], size);
            self.run(&self.statements.add_urgent_size, values, deadline).await?;
            let number = self.place(event, deadline).await?;
            let values = (device, span, index, &seq[..], &key.digest.0[..], stored(number));
            self.run(&self.statements.confirm_urgent, values, deadline).await?;
            let after = self.digests_at(&key, deadline).await?;
            // Also for a row without confirmation: no receipt has named its conflict.
            if after.iter().any(|digest| *digest != key.digest) {
                receipt.doubled_events.push((key.device, key.index, key.seq));
            }
            receipt.stored += 1;
        }
        Ok(receipt)
    }

    /// Writes an event at the end of the order. Returns its number.
    async fn place(&self, event: &StoredUrgent, deadline: Instant) -> Result<u64, Fault> {
        let key = event.key();
        let mut pause = Duration::from_millis(1 + u64::from(key.digest.0[0]) % 8);
        loop {
            let last = self.last_place(deadline).await?;
            let number = last.map_or(1, |(number, _)| number + 1);
            let at = number.to_be_bytes();
            let row = guard::wrap(
                &[b"place", &at, &key.digest.0],
                &[&key.to_bytes(), &event.epoch().0.to_be_bytes()],
            );
            let values = (guard::bucket(number), stored(number), &key.digest.0[..], row);
            self.run(&self.statements.place_urgent, values, deadline).await?;
            if self.last_place(deadline).await? == Some((number, key.digest)) {
                return Ok(number);
            }
            if Instant::now() + pause >= deadline {
                return Err(Fault::Unavailable("too many processes store urgent events".into()));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Returns the last place of the order.
    async fn last_place(&self, deadline: Instant) -> Result<Option<(u64, Digest)>, Fault> {
        // No bucket is skipped: all buckets up to the last one have rows. First double the distance,
        // then halve it.
        let mut low = self.bucket.load(Ordering::Relaxed);
        let mut found = self.last_in(low, deadline).await?;
        if found.is_none() && low > 0 {
            low = 0;
            found = self.last_in(low, deadline).await?;
        }
        let (mut step, mut high) = (1, None);
        while found.is_some() {
            let next = match high {
                None => low + step,
                Some(high) if low + 1 < high => low + (high - low) / 2,
                Some(_) => break,
            };
            match self.last_in(next, deadline).await? {
                Some(last) => {
                    (low, found) = (next, Some(last));
                    step *= 2;
                }
                None => high = Some(next),
            }
        }
        self.bucket.store(low, Ordering::Relaxed);
        Ok(found)
    }

    async fn last_in(
        &self,
        bucket: u64,
        deadline: Instant,
    ) -> Result<Option<(u64, Digest)>, Fault> {
        let rows: Vec<(i64, Vec<u8>)> =
            self.rows(&self.statements.last_place, (stored(bucket),), deadline).await?;
        let last = rows.into_iter().next();
        let place = |(number, digest): (i64, Vec<u8>)| {
            Ok((number_in(stored(bucket), number)?, digest_of(&digest)?))
        };
        last.map(place).transpose()
    }

    async fn digests_at(&self, key: &UrgentKey, deadline: Instant) -> Result<Vec<Digest>, Fault> {
        let seq = key.seq.0.to_be_bytes();
        let values = (&key.device.0[..], guard::span(key.index), i64::from(key.index.0), &seq[..]);
        let rows: Vec<(Vec<u8>,)> = self.rows(&self.statements.urgent_at, values, deadline).await?;
        rows.iter().map(|(digest,)| digest_of(digest)).collect()
    }

    async fn confirmed(&self, key: &UrgentKey, deadline: Instant) -> Result<Vec<u64>, Fault> {
        let seq = key.seq.0.to_be_bytes();
        let (span, index) = (guard::span(key.index), i64::from(key.index.0));
        let values = (&key.device.0[..], span, index, &seq[..], &key.digest.0[..]);
        let rows: Vec<(i64,)> = self.rows(&self.statements.confirmed, values, deadline).await?;
        rows.into_iter().map(|(number,)| number_of(number)).collect()
    }

    /// Returns at most `limit` places after one, and whether there are more. If the order does not
    /// have the place, starts with the first.
    pub(crate) async fn places(
        &self,
        after: Option<UrgentPlace>,
        limit: usize,
        deadline: Instant,
    ) -> Result<(Vec<Placed>, bool), Fault> {
        let mut from = (0, Vec::new());
        if let Some(after) = after.filter(|after| after.number > 0) {
            let values =
                (guard::bucket(after.number), stored(after.number), &[][..], limit_of(PAGE));
            let values: (i64, i64, &[u8], i32) = values;
            let rows: Vec<Place> =
                self.rows(&self.statements.places_after, values, deadline).await?;
            let is_there =
                rows.iter().any(|row| row.0 == stored(after.number) && row.1 == after.digest.0);
            if is_there {
                from = (stored(after.number), after.digest.0.to_vec());
            }
        }
        let limit = limit.saturating_add(1);
        let first = self.page(from.clone(), None, limit, deadline).await?;
        let Some(last) = first.last() else { return Ok((Vec::new(), false)) };
        // An event may have become visible before the last one while the page was read. After this
        // second read none can: a process whose write ends now finds the last one and moves on.
        let last = (last.0, last.1.clone());
        let mut rows = self.page(from, Some(&last), limit, deadline).await?;
        let has_more = rows.len() >= limit;
        rows.truncate(limit - 1);
        let placed = rows.into_iter().map(decode).collect::<Result<_, _>>()?;
        Ok((placed, has_more))
    }

    /// Returns at most `limit` rows of the order after one, up to `until`.
    async fn page(
        &self,
        mut from: (i64, Vec<u8>),
        until: Option<&(i64, Vec<u8>)>,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Place>, Fault> {
        let mut bucket = guard::bucket(number_of(from.0)?);
        let mut found: Vec<Place> = Vec::new();
        while found.len() < limit {
            let wanted = (limit - found.len()).min(PAGE);
            let values = (bucket, from.0, &from.1[..], limit_of(wanted));
            let rows: Vec<Place> =
                self.rows(&self.statements.places_after, values, deadline).await?;
            let (count, is_last) = (rows.len(), rows.len() < wanted);
            for row in rows {
                number_in(bucket, row.0)?;
                from = (row.0, row.1.clone());
                if until.is_some_and(|until| from > *until) {
                    return Ok(found);
                }
                found.push(row);
            }
            if is_last {
                bucket += 1;
                // Buckets are filled one after the other.
                if count == 0 && self.last_in(number_of(bucket)?, deadline).await?.is_none() {
                    break;
                }
            }
        }
        Ok(found)
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
        let event = rows
            .into_iter()
            .next()
            .and_then(|(event,)| guard::unwrap(&[b"urgent", &key.to_bytes()], event));
        event.map(Some).ok_or_else(|| Fault::Damaged(None, format!("{key} is damaged or missing")))
    }

    /// Returns at most `limit` events for one place of a seal, ascending by digest.
    pub(crate) async fn events_at(
        &self,
        (device, index, seq): (DeviceId, SealIndex, Sequence),
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, Fault> {
        let (span, place) = (guard::span(index), seq.0.to_be_bytes());
        let values = (&device.0[..], span, i64::from(index.0), &place[..], limit_of(limit));
        let rows: Vec<(Vec<u8>, Vec<u8>)> =
            self.rows(&self.statements.urgent_events_at, values, deadline).await?;
        let event = |(digest, event): (Vec<u8>, Vec<u8>)| {
            let key = UrgentKey { device, index, seq, digest: digest_of(&digest)? };
            let event = guard::unwrap(&[b"urgent", &key.to_bytes()], event);
            let event = event.ok_or_else(|| Fault::Damaged(None, format!("{key} is damaged")))?;
            Ok((key, event))
        };
        rows.into_iter().map(event).collect()
    }

    pub(crate) async fn urgent_bytes(
        &self,
        device: DeviceId,
        deadline: Instant,
    ) -> Result<u64, Fault> {
        let rows: Vec<(Option<i64>,)> =
            self.rows(&self.statements.urgent_bytes, (&device.0[..],), deadline).await?;
        let sum = rows.first().and_then(|(sum,)| *sum).unwrap_or(0);
        u64::try_from(sum).map_err(|_| Fault::damaged("the lengths of urgent events are damaged"))
    }
}

/// Number, digest and wrapped place of a row of the order.
type Place = (i64, Vec<u8>, Vec<u8>);

fn decode((number, digest, row): Place) -> Result<Placed, Fault> {
    let number = number_of(number)?;
    let row = guard::unwrap(&[b"place", &number.to_be_bytes(), &digest], row);
    let row = row.ok_or_else(damaged_order)?;
    let (key, epoch) = row.split_first_chunk().ok_or_else(damaged_order)?;
    let epoch = epoch.try_into().map(u64::from_be_bytes).map_err(|_| damaged_order())?;
    let key = UrgentKey::from_bytes(key);
    if key.digest.0 != *digest {
        return Err(damaged_order());
    }
    Ok(Placed { number, key, epoch: EpochNumber(epoch) })
}
