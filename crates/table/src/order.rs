//! The order in which urgent events arrive.
//!
//! Cassandra has no counter that gives every event another number, so a number may have several events;
//! their digests order them. A process reads the last number of the order, and writes a batch of events with
//! the numbers that follow. Then it reads the order from the first of them on. If no other event has one of
//! these numbers, no reader can have passed an event of the batch without having read it, and the places are
//! confirmed. Otherwise another process placed events at the same time: the batch gets second, later places.
//! A reader therefore misses no event that was acknowledged after its last read, and may in this case read an
//! event twice.
//!
//! Why no reader passes an event of a batch that is confirmed:
//!
//! - A reader reads a page twice, and returns what the second read finds up to the last place of the first
//!   read. So it passes an event only if a quorum has a later place L before a quorum has the event.
//! - L is not a place of another batch. All numbers of the other batch are above those of this batch, so its
//!   process had read a place with the last number of this batch, which only this batch has. A quorum then
//!   had this batch, and had it before L was written.
//! - L is not a place of the same batch either. The rows of a batch that are in one bucket, which is a
//!   partition, are one write, and a replica applies all of it or nothing. A batch that fills a bucket is
//!   written to the next one after a quorum has the first part. But a quorum read with different replicas
//!   copies the rows that it returns to the replicas that lack them, and copies no other rows. Therefore every
//!   read of the order ascends from a place that a quorum has, or from the start of a bucket, and does not
//!   pass over a row. It copies earlier rows of a batch before later ones, so a replica that has a row of this
//!   batch has all earlier ones. A read of the last row alone (`ORDER BY number DESC LIMIT 1`) would break this.
//!
//! A single event is also confirmed if it is the last one of the order, although another event has its number.
//! Then L does not exist.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future;
use moteseal_core::digest::Digest;
use moteseal_core::record::EpochNumber;
use moteseal_store::{StoredUrgent, UrgentKey, UrgentPlace};

use crate::fault::Fault;
use crate::guard;
use crate::reads::{digest_of, limit_of};
use crate::store::Table;

/// The maximum number of rows of the order that one request reads.
const PAGE: usize = 1024;
/// How often the pause before a batch is placed again is doubled at most: to 16 to 128 ms.
const MOST_DOUBLINGS: u32 = 4;

/// A place in the order, and the event that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) number: u64,
    pub(crate) key: UrgentKey,
    pub(crate) epoch: EpochNumber,
}

/// Bucket, number, digest and wrapped place of a row that is written.
type NewPlace = (i64, i64, Vec<u8>, Vec<u8>);

/// Number, digest and wrapped place of a row of the order.
type Place = (i64, Vec<u8>, Vec<u8>);

fn damaged_order() -> Fault {
    Fault::damaged("the order of the urgent events is damaged")
}

/// Returns the number of an event as the database stores it. Another one can follow it.
pub(crate) fn number_of(number: i64) -> Result<u64, Fault> {
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
pub(crate) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the row of an event at a place.
fn row_of(event: &StoredUrgent, number: u64) -> NewPlace {
    let key = event.key();
    let row = guard::wrap(
        &[b"place", &number.to_be_bytes(), &key.digest.0],
        &[&key.to_bytes(), &event.epoch().0.to_be_bytes()],
    );
    (guard::bucket(number), stored(number), key.digest.0.to_vec(), row)
}

/// Returns whether no reader can have passed an event of a batch that was written. `own` are its places, and
/// `found` those of the order from the first number of the batch on. Both ascend.
fn is_kept(own: &[(u64, Digest)], found: &[(u64, Digest)]) -> bool {
    let Some((last, _)) = own.last() else { return true };
    let count = found.partition_point(|(number, _)| number <= last);
    found[..count] == *own || (own.len() == 1 && found.last() == own.last())
}

/// Returns the pause before the next attempt. Processes that place batches at the same time have different ones.
fn pause(attempt: u32, digest: &Digest) -> Duration {
    let random = digest.0[attempt as usize % digest.0.len()];
    Duration::from_millis(1 + u64::from(random) % 8) * 2_u32.pow(attempt.min(MOST_DOUBLINGS))
}

impl Table {
    /// Writes events at the end of the order, with consecutive numbers. Returns the first number.
    pub(crate) async fn place(
        &self,
        events: &[&StoredUrgent],
        deadline: Instant,
    ) -> Result<u64, Fault> {
        // Within this process, events do not compete for places.
        let _placing = self.placing.lock().await;
        let count = events.len() as u64;
        for attempt in 0.. {
            let last = self.last_number(deadline).await?;
            number_of(stored(last.saturating_add(count)))?;
            let numbers = last + 1..;
            let rows: Vec<NewPlace> =
                events.iter().zip(numbers.clone()).map(|(event, at)| row_of(event, at)).collect();
            for rows in rows.chunk_by(|one, next| one.0 == next.0) {
                let rows = rows.iter().collect();
                self.run_all(&self.statements.place_urgent, rows, deadline).await?;
            }
            let own: Vec<_> =
                numbers.zip(events).map(|(at, event)| (at, event.key().digest)).collect();
            if is_kept(&own, &self.order_from(last + 1, deadline).await?) {
                self.last_known.store(last + count, Ordering::Relaxed);
                return Ok(last + 1);
            }
            let pause = own.first().map_or(Duration::ZERO, |(_, digest)| pause(attempt, digest));
            if Instant::now() + pause >= deadline {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        Err(Fault::Unavailable("too many processes store urgent events".into()))
    }

    /// Returns the last number of the order, or 0 if it is empty. Only a process that places events may use it.
    async fn last_number(&self, deadline: Instant) -> Result<u64, Fault> {
        let known = self.last_known.load(Ordering::Relaxed);
        let mut found = Vec::new();
        if known > 0 {
            found = self.order_from(known, deadline).await?;
        }
        if found.is_empty() {
            // Also if the keyspace was emptied, or an old copy was restored.
            let bucket = self.last_bucket(deadline).await?;
            found = self.order_from(guard::first_number(bucket), deadline).await?;
        }
        let last = found.last().map_or(0, |(number, _)| *number);
        self.last_known.store(last, Ordering::Relaxed);
        Ok(last)
    }

    /// Returns the last bucket that has rows, or 0.
    async fn last_bucket(&self, deadline: Instant) -> Result<u64, Fault> {
        // No bucket is skipped: all buckets up to the last one have rows. First double the distance, then
        // halve it.
        let (mut low, mut step, mut high) = (0, 1, None);
        loop {
            let next = match high {
                None => low + step,
                Some(high) if low + 1 < high => low + (high - low) / 2,
                Some(_) => return Ok(low),
            };
            if self.has_rows(stored(next), deadline).await? {
                low = next;
                step *= 2;
            } else {
                high = Some(next);
            }
        }
    }

    async fn has_rows(&self, bucket: i64, deadline: Instant) -> Result<bool, Fault> {
        Ok(!self.numbers((bucket, 0, &[]), 1, deadline).await?.is_empty())
    }

    /// Returns the places of the order from a number on. A quorum must have a row with this number or with
    /// the one before it, unless it is the first one of a bucket.
    async fn order_from(
        &self,
        number: u64,
        deadline: Instant,
    ) -> Result<Vec<(u64, Digest)>, Fault> {
        let (mut bucket, mut after) = (guard::bucket(number), (stored(number), Vec::new()));
        let mut found = Vec::new();
        loop {
            let (rows, has_more) = future::try_join(
                self.numbers((bucket, after.0, &after.1), PAGE, deadline),
                self.has_rows(bucket + 1, deadline),
            )
            .await?;
            let is_last = rows.len() < PAGE;
            for (number, digest) in rows {
                found.push((number_in(bucket, number)?, digest_of(&digest)?));
                after = (number, digest);
            }
            if is_last && !has_more {
                return Ok(found);
            }
            if is_last {
                bucket += 1;
                after = (0, Vec::new());
            }
        }
    }

    /// Returns numbers and digests of rows of a bucket, after a number and a digest.
    async fn numbers(
        &self,
        (bucket, number, digest): (i64, i64, &[u8]),
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<(i64, Vec<u8>)>, Fault> {
        let values = (bucket, number, digest, limit_of(limit));
        self.rows(&self.statements.numbers_after, values, deadline).await
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
            // This reads no other row, because a client may name any number.
            let values = (guard::bucket(after.number), stored(after.number), &after.digest.0[..]);
            let rows: Vec<(i64,)> = self.rows(&self.statements.place_at, values, deadline).await?;
            if !rows.is_empty() {
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
                if count == 0 && !self.has_rows(bucket, deadline).await? {
                    break;
                }
            }
        }
        Ok(found)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn places<const N: usize>(places: [(u64, u8); N]) -> [(u64, Digest); N] {
        places.map(|(number, digest)| (number, Digest([digest; 32])))
    }

    #[test]
    fn a_batch_is_kept_if_no_other_event_has_one_of_its_numbers() {
        let own = places([(5, 9), (6, 3), (7, 4)]);
        assert!(is_kept(&own, &own));
        assert!(is_kept(&own, &places([(5, 9), (6, 3), (7, 4), (8, 1)])), "later events");
        for other in [(5, 1), (5, 10), (6, 2), (6, 7), (7, 1), (7, 9)] {
            let mut found = [&own[..], &places([other])].concat();
            found.sort_unstable();
            assert!(!is_kept(&own, &found), "{other:?}");
        }
        assert!(!is_kept(&own, &own[1..]), "a place is missing");
    }

    #[test]
    fn a_single_event_is_also_kept_if_it_is_the_last_one() {
        let own = places([(5, 9)]);
        assert!(is_kept(&own, &places([(5, 1), (5, 9)])));
        assert!(is_kept(&own, &places([(5, 9), (6, 1)])));
        for found in [[(5, 1), (5, 9), (6, 1)], [(5, 1), (5, 9), (5, 10)]] {
            assert!(!is_kept(&own, &places(found)), "{found:?}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_limit_and_differ() {
        let digest = Digest(std::array::from_fn(|byte| u8::try_from(byte).unwrap_or(0) * 7));
        let pauses: Vec<_> = (0..100).map(|attempt| pause(attempt, &digest)).collect();
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_millis(128)));
        assert!(pauses[50..].windows(2).any(|pauses| pauses[0] != pauses[1]));
    }
}
