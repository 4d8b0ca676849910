//! Reading seals, bodies, schemas and listings.

use std::ops::Range;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_store::{Equivocation, Head, SealKey, StoredSeal};

use crate::fault::Fault;
use crate::guard::{self, PIECE};
use crate::store::Table;
use crate::tables;
use crate::writes::{NewestRow, mask_of, owner};

/// The maximum number of rows with bodies in one answer, which has at most about 1 MiB.
const PAGE: usize = 64;
/// The maximum number of requests of one read at the same time.
const AT_ONCE: usize = 16;
/// The maximum number of bytes that are reserved before the pieces of a body are read.
const RESERVED: u64 = 16 * PIECE;

/// Index, digest, levels, variant and wrapped head of a seal.
type Row = (i64, Vec<u8>, i64, Vec<u8>, Vec<u8>);

pub(crate) fn digest_of(bytes: &[u8]) -> Result<Digest, Fault> {
    bytes.try_into().map(Digest).map_err(|_| Fault::damaged("the digest of a seal is damaged"))
}

pub(crate) fn device_of(bytes: &[u8]) -> Result<DeviceId, Fault> {
    bytes.try_into().map(DeviceId).map_err(|_| Fault::damaged("the id of a device is damaged"))
}

pub(crate) fn index_of(index: i64) -> Result<SealIndex, Fault> {
    u32::try_from(index).map(SealIndex).map_err(|_| Fault::damaged("an index is damaged"))
}

/// Returns a limit as the database expects it.
pub(crate) fn limit_of(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}

fn decode(device: DeviceId, row: Row) -> Result<StoredSeal, Fault> {
    let (index, digest, kept, variant, head) = row;
    let key = SealKey { device, index: index_of(index)?, digest: digest_of(&digest)? };
    let kept = mask_of(kept)?;
    let damaged = || Fault::seal(key, "its head is not the one that was stored");
    let parts: &[&[u8]] = &[b"seal", &key.to_bytes(), &kept.to_be_bytes(), &variant];
    let head = guard::unwrap(parts, head).ok_or_else(damaged)?;
    StoredSeal::decode(&key, &head).filter(|seal| seal.kept() == kept).ok_or_else(damaged)
}

impl Table {
    /// Returns the spans of a device from one on that may have seals, ascending.
    pub(crate) async fn spans(
        &self,
        device: DeviceId,
        from: i32,
        deadline: Instant,
    ) -> Result<Vec<i32>, Fault> {
        let values = (&device.0[..], from, limit_of(PAGE));
        let rows = self.rows::<(i32,)>(&self.statements.spans_from, values, deadline).await?;
        let possible = 0..=guard::span(SealIndex(u32::MAX));
        if !rows.iter().all(|(span,)| possible.contains(span)) {
            return Err(Fault::damaged("the list of a device's partitions is damaged"));
        }
        Ok(rows.into_iter().map(|(span,)| span).collect())
    }

    pub(crate) async fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<StoredSeal>, Fault> {
        let mut found: Vec<StoredSeal> = Vec::new();
        let mut spans = Vec::new().into_iter();
        let mut next = guard::span(from);
        while found.len() < limit {
            let Some(span) = spans.next() else {
                let page = self.spans(device, next, deadline).await?;
                let Some(last) = page.last() else { break };
                next = last + 1;
                spans = page.into_iter();
                continue;
            };
            let mut after = (i64::from(from.0), Vec::new());
            while found.len() < limit {
                let wanted = (limit - found.len()).min(PAGE);
                let values = (&device.0[..], span, after.0, &after.1[..], limit_of(wanted));
                let rows: Vec<Row> =
                    self.rows(&self.statements.seals_from, values, deadline).await?;
                let is_last = rows.len() < wanted;
                for row in rows {
                    // The first row of a seal has the most levels.
                    if (row.0, &row.1) > (after.0, &after.1) {
                        after = (row.0, row.1.clone());
                        found.push(decode(device, row)?);
                    }
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(found)
    }

    pub(crate) async fn seals_at(
        &self,
        device: DeviceId,
        index: SealIndex,
        deadline: Instant,
    ) -> Result<Vec<StoredSeal>, Fault> {
        let values = (&device.0[..], guard::span(index), i64::from(index.0));
        let rows: Vec<Row> = self.rows(&self.statements.seals_at, values, deadline).await?;
        let mut found: Vec<StoredSeal> = Vec::new();
        for row in rows {
            let digest = digest_of(&row.1)?;
            if found.last().is_none_or(|last| last.key().digest != digest) {
                found.push(decode(device, row)?);
            }
        }
        Ok(found)
    }

    /// Reads a range of a body or manifest of `length` bytes that is stored in pieces.
    pub(crate) async fn pieces(
        &self,
        owner: &[u8],
        length: u64,
        range: Range<u64>,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, Fault> {
        if range.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let numbers = range.start / PIECE..=(range.end - 1) / PIECE;
        let read = |number: u64| {
            let range = range.clone();
            async move {
                let (start, end) = (number * PIECE, ((number + 1) * PIECE).min(length));
                let (part, number) = guard::piece(start);
                let rows: Vec<(Vec<u8>,)> =
                    self.rows(&self.statements.piece, (owner, part, number), deadline).await?;
                let data = rows.into_iter().next().and_then(|(data,)| {
                    guard::unwrap(&[b"piece", owner, &number.to_be_bytes()], data)
                });
                #[allow(clippy::cast_possible_truncation)]
                let wanted = (range.start.max(start) - start) as usize
                    ..(range.end.min(end) - start) as usize;
                let data = data.filter(|data| data.len() as u64 == end - start);
                Ok::<_, Fault>(data.map(|data| data[wanted].to_vec()))
            }
        };
        let mut reads = stream::iter(numbers.map(read)).buffered(AT_ONCE);
        // A row only claims the length, so it must not determine how much memory is reserved.
        let reserved = (range.end - range.start).min(RESERVED);
        let mut body = Vec::with_capacity(usize::try_from(reserved).unwrap_or(0));
        while let Some(piece) = reads.try_next().await? {
            match piece {
                Some(piece) => body.extend(piece),
                None => return Ok(None),
            }
        }
        Ok(Some(body))
    }

    pub(crate) async fn body(
        &self,
        key: SealKey,
        kept: u32,
        length: u64,
        range: Range<u64>,
        deadline: Instant,
    ) -> Result<Vec<u8>, Fault> {
        if range.start > range.end || range.end > length {
            return Err(Fault::seal(key, "its events are truncated"));
        }
        let body = self.pieces(&owner(&key, kept), length, range, deadline).await?;
        body.ok_or_else(|| Fault::seal(key, "a piece of its events is missing or damaged"))
    }

    pub(crate) async fn schema(
        &self,
        digest: Digest,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let rows: Vec<(Vec<u8>,)> =
            self.rows(&self.statements.schema, (&digest.0[..],), deadline).await?;
        let Some((schema,)) = rows.into_iter().next() else { return Ok(None) };
        let schema = guard::unwrap(&[b"schema", &digest.0], schema);
        schema.map(Some).ok_or_else(|| Fault::damaged("a schema is damaged"))
    }

    /// Returns the items of a listing from one on, ascending.
    pub(crate) async fn listed(
        &self,
        kind: i16,
        from: &[u8],
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, Fault> {
        let values = (kind, from, limit_of(limit));
        let rows = self.rows::<(Vec<u8>,)>(&self.statements.listed, values, deadline).await?;
        Ok(rows.into_iter().map(|(item,)| item).collect())
    }

    /// Returns the shards of a listing from one on.
    async fn shards(&self, kind: i16, from: u8, deadline: Instant) -> Result<Vec<u8>, Fault> {
        let items = self.listed(kind, &[from], 256, deadline).await?;
        Ok(items.into_iter().filter_map(|item| item.first().copied()).collect())
    }

    pub(crate) async fn devices(
        &self,
        after: Option<DeviceId>,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Head>, Fault> {
        let mut heads = Vec::new();
        let first = after.map_or(0, |after| after.0[0]);
        for shard in self.shards(tables::DEVICES, first, deadline).await? {
            let mut after = after.filter(|_| shard == first).map_or(Vec::new(), |id| id.0.to_vec());
            while heads.len() < limit {
                let wanted = (limit - heads.len()).min(1024);
                let values = (i16::from(shard), &after[..], limit_of(wanted));
                let rows: Vec<(Vec<u8>,)> =
                    self.rows(&self.statements.devices_after, values, deadline).await?;
                let is_last = rows.len() < wanted;
                if let Some((last,)) = rows.last() {
                    after.clone_from(last);
                }
                let newest = rows.into_iter().map(|(device,)| async move {
                    self.newest_to(device_of(&device)?, i32::MAX, deadline).await
                });
                let newest: Vec<_> = newest.collect();
                let newest: Vec<Option<Head>> =
                    stream::iter(newest).buffered(AT_ONCE).try_collect().await?;
                // A device without seals is one whose first put was interrupted.
                heads.extend(newest.into_iter().flatten());
                if is_last {
                    break;
                }
            }
            if heads.len() >= limit {
                break;
            }
        }
        Ok(heads)
    }

    /// Returns the newest seal of a device in the spans up to one.
    pub(crate) async fn newest_to(
        &self,
        device: DeviceId,
        span: i32,
        deadline: Instant,
    ) -> Result<Option<Head>, Fault> {
        let mut to = span;
        let mut at_once = 1;
        while to >= 0 {
            let values = (&device.0[..], to, at_once);
            let spans: Vec<(i32,)> = self.rows(&self.statements.spans_to, values, deadline).await?;
            let Some((last,)) = spans.last().copied() else { break };
            for (span,) in spans {
                let values = (&device.0[..], span, 1);
                let rows: Vec<NewestRow> =
                    self.rows(&self.statements.newest, values, deadline).await?;
                if let Some((index, digest, epoch, ..)) = rows.into_iter().next() {
                    let (index, digest) = (index_of(index)?, digest_of(&digest)?);
                    let key = SealKey { device, index, digest };
                    let epoch = guard::epoch(&key, epoch)
                        .ok_or_else(|| Fault::seal(key, "its epoch is damaged"))?;
                    return Ok(Some(Head { key, epoch }));
                }
            }
            to = last - 1;
            at_once = 16;
        }
        Ok(None)
    }

    pub(crate) async fn equivocations(
        &self,
        after: Option<(DeviceId, SealIndex)>,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Equivocation>, Fault> {
        let mut found = Vec::new();
        let first = after.map_or(0, |(device, _)| device.0[0]);
        for shard in self.shards(tables::EQUIVOCATIONS, first, deadline).await? {
            let mut after = after
                .filter(|_| shard == first)
                .map_or((Vec::new(), -1), |(id, index)| (id.0.to_vec(), i64::from(index.0)));
            while found.len() < limit {
                let wanted = (limit - found.len()).min(1024);
                let values = (i16::from(shard), &after.0[..], after.1, limit_of(wanted));
                let rows: Vec<(Vec<u8>, i64)> =
                    self.rows(&self.statements.equivocations_after, values, deadline).await?;
                let is_last = rows.len() < wanted;
                if let Some(last) = rows.last() {
                    after.clone_from(last);
                }
                for (device, index) in rows {
                    let (device, index) = (device_of(&device)?, index_of(index)?);
                    let (span, at) = (guard::span(index), i64::from(index.0));
                    let keys: Vec<(i64, Vec<u8>, i64)> = self
                        .rows(&self.statements.keys_in, (&device.0[..], span, at, at), deadline)
                        .await?;
                    let digests = keys.iter().map(|(_, digest, _)| digest_of(digest));
                    let mut digests = digests.collect::<Result<Vec<_>, _>>()?;
                    digests.dedup();
                    // An index can be listed before its second seal is stored.
                    if digests.len() > 1 {
                        found.push(Equivocation { device, index, digests });
                    }
                }
                if is_last {
                    break;
                }
            }
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }
}
