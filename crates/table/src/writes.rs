//! Storing bundles.
//!
//! The bundles of a device are stored in runs: bundles whose indices ascend, of one partition. The
//! rows of a run are written in this order, each after Cassandra acknowledged those before it: the
//! listings and the schemas, the pieces of long bodies, and the rows of all seals in one batch, which
//! Cassandra applies as a whole, because it changes one partition. Only the last makes the seals
//! visible, so a reader never sees a seal without its body, and a process that is killed between two
//! writes leaves rows that no reader follows. The same put again writes what is missing.
//!
//! After the rows of the seals are written, their indices and the neighbouring indices are read. If
//! two processes store two different seals of one index at the same time, at least the later of the
//! two reads both, and lists the equivocation. The same holds for two seals whose epochs do not ascend
//! with their indices.
//!
//! The two seals can be in two partitions. A process that lists a partition therefore reads afterwards
//! whether the device has a later one, and if so marks its own as followed. It also marks the partitions
//! before it, down to the first that has seals. So a partition with seals is marked before a later one
//! gets seals: by the process that listed the later one if it found the earlier one listed, and otherwise
//! by the process that listed the earlier one, which then found the later one listed. After a seal was
//! stored in a marked partition, the first seal after the partition is read, too.
//!
//! So a run takes two requests if this process has stored earlier indices of its partition. Otherwise it
//! reads first what is stored, and lists the partition.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Instant;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_store::{Bundle, Receipt, SealKey};

use crate::fault::{self, Fault};
use crate::guard::{self, INLINE, PIECE};
use crate::known::Known;
use crate::reads::{digest_of, index_of, limit_of};
use crate::store::{Table, WRITERS};
use crate::tables;

/// The maximum number of pieces of one body that are written at the same time.
const PIECES: usize = 8;
/// The number of rows of the end of a span that are read at once.
const NEWEST: usize = 8;

/// The maximum number of bundles of a run.
const RUN: usize = 64;
/// The maximum length of the rows of a run in bytes. A single row may be longer.
const RUN_BYTES: usize = 256 << 10;

/// A bundle, and its place in the batch that was submitted.
type Placed<'a> = (usize, &'a Bundle);

/// What storing one bundle changed.
struct Outcome {
    is_new: bool,
    is_equivocation: bool,
}

/// The row of a seal: device, span, index, digest, levels, variant, wrapped epoch and wrapped head.
type SealRow = (Vec<u8>, i32, i64, Vec<u8>, i64, Vec<u8>, Vec<u8>, Vec<u8>);

/// The seals of some indices, and the nearest seals before and after them.
struct Around {
    /// The digests of the seals, by index.
    at: BTreeMap<SealIndex, Vec<Digest>>,
    /// Whether the epochs of all these seals ascend with their indices. An epoch that is damaged
    /// does not.
    is_ordered: bool,
    /// Whether the partition states that readers find it.
    is_listed: bool,
    /// The newest index of the partition.
    newest: SealIndex,
}

impl Table {
    /// Stores a batch. Bundles of one device are stored in their order.
    pub(crate) async fn put(
        &self,
        batch: Vec<Bundle>,
        deadline: Instant,
    ) -> Result<Receipt, Fault> {
        let mut devices: BTreeMap<DeviceId, Vec<Placed<'_>>> = BTreeMap::new();
        for (place, bundle) in batch.iter().enumerate() {
            devices.entry(bundle.key().device).or_default().push((place, bundle));
        }
        let stored = devices
            .into_values()
            .map(|bundles| async move { self.put_of_device(bundles, deadline).await });
        let stored: Vec<_> = stored.collect();
        let mut outcomes: Vec<_> = stream::iter(stored)
            .buffer_unordered(WRITERS)
            .try_collect::<Vec<_>>()
            .await?
            .into_iter()
            .flatten()
            .collect();
        outcomes.sort_unstable_by_key(|(place, _)| *place);
        let mut receipt = Receipt::default();
        for (place, Outcome { is_new, is_equivocation }) in outcomes {
            let key = batch[place].key();
            receipt.stored += u64::from(is_new);
            receipt.known += u64::from(!is_new);
            if is_equivocation {
                receipt.add_equivocation(key.device, key.index);
            }
        }
        Ok(receipt)
    }

    /// Stores the bundles of a device in their order. The state is large, so it is allocated when it is needed
    /// instead of moved.
    fn put_of_device<'s>(
        &'s self,
        bundles: Vec<Placed<'s>>,
        deadline: Instant,
    ) -> BoxFuture<'s, Result<Vec<(usize, Outcome)>, Fault>> {
        Box::pin(async move {
            let _permit = self.writers.acquire().await.map_err(|_| Fault::Closed)?;
            let mut outcomes = Vec::with_capacity(bundles.len());
            let mut rest = &bundles[..];
            while !rest.is_empty() {
                let (run, later) = rest.split_at(run_length(rest));
                outcomes.extend(self.put_run(run, deadline).await?);
                rest = later;
            }
            Ok(outcomes)
        })
    }

    /// Stores the bundles of a run.
    async fn put_run(
        &self,
        run: &[Placed<'_>],
        deadline: Instant,
    ) -> Result<Vec<(usize, Outcome)>, Fault> {
        let [first, .., last] = match run {
            [] => return Ok(Vec::new()),
            [one] => [one, one],
            [first, .., last] => [first, last],
        };
        let device = first.1.key().device;
        let range = first.1.key().index..=last.1.key().index;
        let span = guard::span(*range.start());
        let newest = self.newest_index(device, span);
        let stored = match newest {
            Some(newest) if newest < *range.start() => BTreeMap::new(),
            _ => self.stored(device, &range, deadline).await?,
        };
        self.list_shard(device, deadline).await?;
        if newest.is_none() {
            // Also if the seals are stored: the process that stored them may have been killed before it
            // listed the partition.
            self.list(device, span, deadline).await?;
        }
        let mut states = Vec::with_capacity(run.len());
        let mut rows = Vec::with_capacity(run.len());
        for (place, bundle) in run {
            let key = bundle.key();
            let schema = bundle.schema();
            self.put_schema(schema.digest, &schema.bytes, deadline).await?;
            let (mut is_known, mut is_twin) = (false, false);
            for (digest, kept) in stored.get(&key.index).into_iter().flatten() {
                let is_same = *digest == key.digest;
                is_known |= is_same && !bundle.adds_to(*kept);
                is_twin |= !is_same;
            }
            if is_twin {
                self.list_equivocation(&key, deadline).await?;
            }
            if !is_known {
                rows.push(self.seal_row(bundle, deadline).await?);
            }
            states.push((*place, key, is_known, is_twin));
        }
        self.put_seals(rows, newest.is_none(), deadline).await?;
        let mut around = self.around(device, &range, run.len(), deadline).await?;
        if !around.is_listed {
            if newest.is_some() {
                // The keyspace was emptied after this process listed the partition.
                self.forget();
                self.list_shard(device, deadline).await?;
                self.list(device, span, deadline).await?;
                for (_, bundle) in run {
                    let schema = bundle.schema();
                    self.put_schema(schema.digest, &schema.bytes, deadline).await?;
                }
            }
            self.run(&self.statements.add_listed, (&device.0[..], span), deadline).await?;
            around = self.around(device, &range, run.len(), deadline).await?;
        }
        let mut outcomes = Vec::with_capacity(run.len());
        for (place, key, is_known, is_twin) in states {
            let at = around.at.get(&key.index).map_or(&[][..], Vec::as_slice);
            if !at.contains(&key.digest) {
                return Err(Fault::seal(key, "it was stored, but cannot be read"));
            }
            let is_twin_now = at.iter().any(|digest| *digest != key.digest);
            if is_twin_now && !is_twin {
                self.list_equivocation(&key, deadline).await?;
            }
            let is_equivocation = is_twin || is_twin_now;
            outcomes.push((place, Outcome { is_new: !is_known, is_equivocation }));
        }
        if !around.is_ordered {
            self.list_unordered(device, deadline).await?;
        }
        self.remember_index(device, span, around.newest);
        Ok(outcomes)
    }

    /// Reads which seals of some indices are stored, and with which levels.
    async fn stored(
        &self,
        device: DeviceId,
        range: &RangeInclusive<SealIndex>,
        deadline: Instant,
    ) -> Result<BTreeMap<SealIndex, Vec<(Digest, u32)>>, Fault> {
        let (first, last) = (i64::from(range.start().0), i64::from(range.end().0));
        let values = (&device.0[..], guard::span(*range.start()), first, last);
        let rows: Vec<(i64, Vec<u8>, i64)> =
            self.rows(&self.statements.keys_in, values, deadline).await?;
        let mut stored: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (index, digest, kept) in rows {
            let seal = (digest_of(&digest)?, mask_of(kept)?);
            stored.entry(index_of(index)?).or_default().push(seal);
        }
        Ok(stored)
    }

    /// Writes the rows through which readers find the partition of a seal, and marks a partition that has
    /// another one after it.
    async fn list(&self, device: DeviceId, span: i32, deadline: Instant) -> Result<(), Fault> {
        let id = &device.0[..];
        future::try_join(
            self.run(&self.statements.add_device, (guard::shard(device), id), deadline),
            self.run(&self.statements.add_span, (id, span), deadline),
        )
        .await?;
        // If two processes list two partitions at the same time, at least the later of the two reads both.
        let later: Vec<(i32,)> =
            self.rows(&self.statements.spans_from, (id, span + 1, 1), deadline).await?;
        if !later.is_empty() {
            self.run(&self.statements.add_followed, (id, span), deadline).await?;
        }
        self.mark_before(device, span, deadline).await
    }

    /// Marks the partitions before one as followed, down to the first that has seals: the process that stored
    /// them has marked those before it. A partition without seals was listed by a process that was killed,
    /// or is about to store some.
    async fn mark_before(
        &self,
        device: DeviceId,
        mut span: i32,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let id = &device.0[..];
        while span > 0 {
            let values = (id, span - 1, 1);
            let before: Vec<(i32,)> =
                self.rows(&self.statements.spans_to, values, deadline).await?;
            let Some((before,)) = before.into_iter().next() else { break };
            self.run(&self.statements.add_followed, (id, before), deadline).await?;
            let newest: Vec<NewestRow> =
                self.rows(&self.statements.newest, (id, before, 1), deadline).await?;
            if !newest.is_empty() {
                break;
            }
            span = before;
        }
        Ok(())
    }

    /// Writes the row through which readers find the devices whose ids begin with the same byte.
    async fn list_shard(&self, device: DeviceId, deadline: Instant) -> Result<(), Fault> {
        let row = Known::Shard(device.0[0]);
        if self.is_known(row) {
            return Ok(());
        }
        self.run(&self.statements.list, (tables::DEVICES, &device.0[..1]), deadline).await?;
        self.remember(row);
        Ok(())
    }

    pub(crate) async fn put_schema(
        &self,
        digest: Digest,
        bytes: &[u8],
        deadline: Instant,
    ) -> Result<(), Fault> {
        if self.is_known(Known::Schema(digest)) {
            return Ok(());
        }
        let value = guard::wrap(&[b"schema", &digest.0], &[bytes]);
        self.run(&self.statements.add_schema, (&digest.0[..], value), deadline).await?;
        self.remember(Known::Schema(digest));
        Ok(())
    }

    /// Returns the row of a seal, after the pieces of its body were written.
    async fn seal_row(&self, bundle: &Bundle, deadline: Instant) -> Result<SealRow, Fault> {
        let (key, (head, body)) = (bundle.key(), bundle.rows());
        let bytes = key.to_bytes();
        let kept = bundle.kept();
        let is_inline = body.len() <= INLINE;
        if !is_inline {
            self.put_pieces(&owner(&key, kept), body, deadline).await?;
        }
        // Two valid signatures of one seal make two heads. Neither overwrites the other.
        let variant = Digest::of(&[b"head", head]).0[..16].to_vec();
        let body = if is_inline { body } else { &[] };
        let row = guard::wrap(&[b"seal", &bytes, &kept.to_be_bytes(), &variant], &[head, body]);
        let epoch = guard::wrap(&[b"epoch", &bytes], &[&bundle.epoch().0.to_be_bytes()]);
        let (span, index) = (guard::span(key.index), i64::from(key.index.0));
        let digest = key.digest.0.to_vec();
        Ok((key.device.0.to_vec(), span, index, digest, i64::from(kept), variant, epoch, row))
    }

    /// Writes the rows of seals of one partition, all or none of them, and, if it `is_listed`, states it in the
    /// partition.
    async fn put_seals(
        &self,
        rows: Vec<SealRow>,
        is_listed: bool,
        deadline: Instant,
    ) -> Result<(), Fault> {
        let statements = &self.statements;
        let add = if is_listed { &statements.add_listed_seal } else { &statements.add_seal };
        match <[_; 1]>::try_from(rows) {
            Ok([row]) => self.run(add, row, deadline).await,
            Err(rows) if rows.is_empty() => Ok(()),
            Err(rows) => fault::batch(self.connection(), add, rows, deadline).await,
        }
    }

    /// Writes a long body or manifest in pieces.
    pub(crate) async fn put_pieces(
        &self,
        owner: &[u8],
        body: &[u8],
        deadline: Instant,
    ) -> Result<(), Fault> {
        #[allow(clippy::cast_possible_truncation)]
        let pieces = body.chunks(PIECE as usize).enumerate().map(|(number, piece)| async move {
            let (part, number) = guard::piece(number as u64 * PIECE);
            let data = guard::wrap(&[b"piece", owner, &number.to_be_bytes()], &[piece]);
            self.run(&self.statements.add_piece, (owner, part, number, data), deadline).await
        });
        let pieces: Vec<_> = pieces.collect();
        stream::iter(pieces).buffer_unordered(PIECES).try_collect().await
    }

    async fn list_equivocation(&self, key: &SealKey, deadline: Instant) -> Result<(), Fault> {
        let id = &key.device.0[..];
        self.run(&self.statements.list, (tables::EQUIVOCATIONS, &id[..1]), deadline).await?;
        let values = (guard::shard(key.device), id, i64::from(key.index.0));
        self.run(&self.statements.add_equivocation, values, deadline).await?;
        self.list_unordered(key.device, deadline).await
    }

    async fn list_unordered(&self, device: DeviceId, deadline: Instant) -> Result<(), Fault> {
        if self.is_known(Known::Unordered(device)) {
            return Ok(());
        }
        self.run(&self.statements.add_unordered, (&device.0[..],), deadline).await?;
        self.remember(Known::Unordered(device));
        Ok(())
    }

    /// Reads the seals of some indices, `count` of which were stored, and the nearest seals before
    /// and after them.
    async fn around(
        &self,
        device: DeviceId,
        range: &RangeInclusive<SealIndex>,
        count: usize,
        deadline: Instant,
    ) -> Result<Around, Fault> {
        let (id, span) = (&device.0[..], guard::span(*range.start()));
        let (first, last) = (i64::from(range.start().0), i64::from(range.end().0));
        // In most cases the indices are among the newest of the device.
        let limit = count + NEWEST;
        let values = (id, span, limit_of(limit));
        let rows: Vec<NewestRow> = self.rows(&self.statements.newest, values, deadline).await?;
        let is_set = |state: Option<i8>| state == Some(1);
        let is_listed = rows.first().is_some_and(|row| is_set(row.3));
        let is_followed = rows.first().is_some_and(|row| is_set(row.4));
        let newest_index = rows.first().map_or(Ok(*range.end()), |row| index_of(row.0))?;
        let newest: Vec<Seal> =
            rows.into_iter().map(|(index, digest, epoch, ..)| (index, digest, epoch)).collect();
        let is_complete = newest.len() < limit || newest.iter().any(|row| row.0 < first);
        // In ascending order of their indices.
        let (before, at, after): (Option<Seal>, Vec<Seal>, Option<Seal>);
        if is_complete {
            before = newest.iter().find(|row| row.0 < first).cloned();
            after = newest.iter().rev().find(|row| row.0 > last).cloned();
            let in_range = newest.into_iter().rev().filter(|row| (first..=last).contains(&row.0));
            at = in_range.collect();
        } else {
            let (rows, lower, upper): (Vec<Seal>, Vec<Seal>, Vec<Seal>) = future::try_join3(
                self.rows(&self.statements.seals_in, (id, span, first, last), deadline),
                self.rows(&self.statements.last_before, (id, span, first), deadline),
                self.rows(&self.statements.first_after, (id, span, last), deadline),
            )
            .await?;
            (before, at, after) = (lower.into_iter().next(), rows, upper.into_iter().next());
        }
        // The epochs in the order of the indices. `None` is damaged.
        let epoch_of = |(index, digest, epoch): Seal| {
            let digest = digest_of(&digest).ok()?;
            let index = SealIndex(u32::try_from(index).ok()?);
            guard::epoch(&SealKey { device, index, digest }, epoch)
        };
        let mut epochs = Vec::with_capacity(at.len() + 2);
        match before {
            Some(before) => epochs.push(epoch_of(before)),
            None if span > 0 => {
                let newest = self.newest_to(device, span - 1, deadline).await?;
                epochs.extend(newest.map(|head| Some(head.epoch)));
            }
            None => {}
        }
        let mut seals: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for seal in at {
            seals.entry(index_of(seal.0)?).or_default().push(digest_of(&seal.1)?);
            epochs.push(epoch_of(seal));
        }
        if let Some(after) = after {
            epochs.push(epoch_of(after));
        } else if is_followed {
            let first = self.first_from(device, span + 1, deadline).await?;
            epochs.extend(first.map(|(_, epoch)| Some(epoch)));
        }
        let is_ordered = epochs.iter().all(Option::is_some) && epochs.is_sorted();
        Ok(Around { at: seals, is_ordered, is_listed, newest: newest_index })
    }
}

/// Returns the number of bundles at the start of a list that are one run.
fn run_length(bundles: &[Placed<'_>]) -> usize {
    let (mut length, mut bytes) = (0, 0);
    let mut before: Option<SealIndex> = None;
    for (_, bundle) in bundles {
        let (key, (head, body)) = (bundle.key(), bundle.rows());
        bytes += head.len() + if body.len() <= INLINE { body.len() } else { 0 };
        let follows = before.is_none_or(|before| {
            key.index > before && guard::span(key.index) == guard::span(before)
        });
        if length == RUN || !follows || (length > 0 && bytes > RUN_BYTES) {
            break;
        }
        before = Some(key.index);
        length += 1;
    }
    length
}

/// Index, digest and wrapped epoch of a seal.
type Seal = (i64, Vec<u8>, Vec<u8>);

/// The same, and whether the partition of the seal is listed and followed.
pub(crate) type NewestRow = (i64, Vec<u8>, Vec<u8>, Option<i8>, Option<i8>);

/// Returns the owner of the pieces of a body. A bundle with more levels has a body of its own.
pub(crate) fn owner(key: &SealKey, kept: u32) -> Vec<u8> {
    [&key.to_bytes()[..], &kept.to_be_bytes()].concat()
}

/// Returns the levels in a row.
pub(crate) fn mask_of(kept: i64) -> Result<u32, Fault> {
    u32::try_from(kept).map_err(|_| Fault::damaged("the levels of a seal are damaged"))
}
