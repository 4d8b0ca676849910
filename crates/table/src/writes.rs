//! Storing bundles.
//!
//! The rows of a bundle are written in this order, each after Cassandra acknowledged those before
//! it: the listings and the schema, the pieces of a long body, and the row of the seal. Only the last
//! makes the seal visible, so a reader never sees a seal without its body, and a process that is
//! killed between two writes leaves rows that no reader follows. The same put again writes what is
//! missing.
//!
//! After the row of the seal is written, its index and the neighbouring indices are read again. If
//! two processes store two different seals of one index at the same time, at least the later of the
//! two reads both, and lists the equivocation. The same holds for two seals whose epochs do not
//! ascend with their indices.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_store::{Bundle, Receipt, SealKey};

use crate::fault::Fault;
use crate::guard::{self, INLINE, PIECE};
use crate::reads::digest_of;
use crate::store::{Known, Table};
use crate::tables;

/// The maximum number of pieces of one body that are written at the same time.
const PIECES: usize = 8;
/// The number of rows of the end of a span that are read at once.
const NEWEST: usize = 8;

/// What storing one bundle changed.
struct Outcome {
    is_new: bool,
    is_equivocation: bool,
}

/// The seals of one index, and the nearest seals before and after it.
pub(crate) struct Around {
    at: Vec<Digest>,
    before: Option<EpochNumber>,
    after: Option<EpochNumber>,
    /// Whether the epoch of a neighbour is damaged.
    is_damaged: bool,
}

impl Table {
    /// Stores a batch. Bundles of one device are stored in their order.
    pub(crate) async fn put(
        &self,
        batch: Vec<Bundle>,
        deadline: Instant,
    ) -> Result<Receipt, Fault> {
        let mut devices: BTreeMap<DeviceId, Vec<(usize, &Bundle)>> = BTreeMap::new();
        for (place, bundle) in batch.iter().enumerate() {
            devices.entry(bundle.key().device).or_default().push((place, bundle));
        }
        let stored = devices.into_values().map(|bundles| async move {
            let _permit = self.writers.acquire().await.map_err(|_| Fault::Closed)?;
            let mut outcomes = Vec::with_capacity(bundles.len());
            for (place, bundle) in bundles {
                outcomes.push((place, self.put_one(bundle, deadline).await?));
            }
            Ok::<_, Fault>(outcomes)
        });
        let stored: Vec<_> = stored.collect();
        let mut outcomes: Vec<_> = stream::iter(stored)
            .buffer_unordered(PIECES)
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
                receipt.equivocations.push((key.device, key.index));
            }
        }
        Ok(receipt)
    }

    async fn put_one(&self, bundle: &Bundle, deadline: Instant) -> Result<Outcome, Fault> {
        let key = bundle.key();
        let (device, span) = (&key.device.0[..], guard::span(key.index));
        let rows: Vec<(Vec<u8>, i64)> = self
            .rows(&self.statements.keys_at, (device, span, i64::from(key.index.0)), deadline)
            .await?;
        let (mut is_present, mut is_known, mut is_twin) = (false, false, false);
        for (digest, kept) in rows {
            let is_same = digest_of(&digest)? == key.digest;
            is_present |= is_same;
            is_known |= is_same && !bundle.adds_to(mask_of(kept)?);
            is_twin |= !is_same;
        }
        // These rows are written also if the seal is known: the process that stored it may have been
        // killed before it wrote them.
        self.announce(key.device, span, deadline).await?;
        self.put_schema(bundle.schema().digest, &bundle.schema().bytes, deadline).await?;
        if is_twin {
            self.list_equivocation(&key, deadline).await?;
        }
        if !is_known {
            self.put_seal(bundle, deadline).await?;
        }
        let around = self.around(&key, deadline).await?;
        if !around.at.contains(&key.digest) {
            return Err(Fault::seal(key, "it was stored, but cannot be read"));
        }
        let is_twin_now = around.at.iter().any(|digest| *digest != key.digest);
        if is_twin_now && !is_twin {
            self.list_equivocation(&key, deadline).await?;
        }
        let epoch = bundle.epoch();
        let is_ordered = around.before.is_none_or(|before| before <= epoch)
            && around.after.is_none_or(|after| epoch <= after);
        if !is_ordered || around.is_damaged {
            self.list_unordered(key.device, deadline).await?;
        }
        Ok(Outcome {
            is_new: !is_known,
            is_equivocation: !is_present && !is_known && (is_twin || is_twin_now),
        })
    }

    /// Writes the rows through which readers find the partition of a seal.
    async fn announce(&self, device: DeviceId, span: i32, deadline: Instant) -> Result<(), Fault> {
        let row = Known::Span(device, span);
        if self.is_known(row) {
            return Ok(());
        }
        let id = &device.0[..];
        let shard = guard::shard(device);
        future::try_join3(
            self.run(&self.statements.list, (tables::DEVICES, &id[..1]), deadline),
            self.run(&self.statements.add_device, (shard, id), deadline),
            self.run(&self.statements.add_span, (id, span), deadline),
        )
        .await?;
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

    async fn put_seal(&self, bundle: &Bundle, deadline: Instant) -> Result<(), Fault> {
        let (key, (head, body)) = (bundle.key(), bundle.rows());
        let bytes = key.to_bytes();
        let kept = bundle.kept();
        let is_inline = body.len() <= INLINE;
        if !is_inline {
            self.put_pieces(&owner(&key, kept), body, deadline).await?;
        }
        // Two valid signatures of one seal make two heads. Neither overwrites the other.
        let variant = Digest::of(&[b"head", head]).0;
        let variant = &variant[..16];
        let body = if is_inline { body } else { &[] };
        let row = guard::wrap(&[b"seal", &bytes, &kept.to_be_bytes(), variant], &[head, body]);
        let epoch = guard::wrap(&[b"epoch", &bytes], &[&bundle.epoch().0.to_be_bytes()]);
        let values = (
            &key.device.0[..],
            guard::span(key.index),
            i64::from(key.index.0),
            &key.digest.0[..],
            i64::from(kept),
            variant,
            epoch,
            row,
        );
        self.run(&self.statements.add_seal, values, deadline).await
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

    /// Reads the seals of an index, and the nearest seals before and after it.
    async fn around(&self, key: &SealKey, deadline: Instant) -> Result<Around, Fault> {
        let (device, index) = (&key.device.0[..], i64::from(key.index.0));
        let span = guard::span(key.index);
        // In most cases the index is among the newest of the device.
        let newest = self.rows(&self.statements.newest, (device, span, NEWEST as i32), deadline);
        let later = self.rows(&self.statements.spans_from, (device, span + 1, 1), deadline);
        let (newest, later): (Vec<Newest>, Vec<(i32,)>) = future::try_join(newest, later).await?;
        let is_complete = newest.len() < NEWEST || newest.iter().any(|row| row.0 < index);
        let (at, before, after): (Vec<Vec<u8>>, Option<Neighbour>, Option<Neighbour>);
        if is_complete {
            before = newest.iter().find(|row| row.0 < index).map(neighbour);
            after = newest.iter().rev().find(|row| row.0 > index).map(neighbour);
            at = newest.into_iter().filter(|row| row.0 == index).map(|row| row.1).collect();
        } else {
            let place = || (device, span, index);
            let (twins, last, first): (Vec<Twin>, Vec<Neighbour>, Vec<Neighbour>) =
                future::try_join3(
                    self.rows(&self.statements.keys_at, place(), deadline),
                    self.rows(&self.statements.last_before, place(), deadline),
                    self.rows(&self.statements.first_after, place(), deadline),
                )
                .await?;
            at = twins.into_iter().map(|(digest, _)| digest).collect();
            (before, after) = (last.into_iter().next(), first.into_iter().next());
        }
        let epoch_of = |(index, digest, epoch): Neighbour| {
            let digest = digest_of(&digest).ok()?;
            let index = SealIndex(u32::try_from(index).ok()?);
            guard::epoch(&SealKey { device: key.device, index, digest }, epoch)
        };
        let mut is_damaged = false;
        let mut take = |neighbour: Option<Neighbour>| {
            let epoch = neighbour.map(epoch_of);
            is_damaged |= epoch == Some(None);
            epoch.flatten()
        };
        let (mut before, mut after) = (take(before), take(after));
        if before.is_none() && span > 0 && !is_damaged {
            let newest = self.newest_to(key.device, span - 1, deadline).await?;
            before = newest.map(|head| head.epoch);
        }
        if let (None, Some((later,)), false) = (after, later.first(), is_damaged) {
            let first = self.first_from(key.device, *later, deadline).await?;
            after = first.map(|(_, epoch)| epoch);
        }
        let at = at.iter().map(|digest| digest_of(digest)).collect::<Result<_, _>>()?;
        Ok(Around { at, before, after, is_damaged })
    }
}

type Newest = (i64, Vec<u8>, i64, Vec<u8>, Vec<u8>);
/// Digest and levels of a seal.
type Twin = (Vec<u8>, i64);
/// Index, digest and wrapped epoch of a seal.
type Neighbour = (i64, Vec<u8>, Vec<u8>);

fn neighbour(row: &Newest) -> Neighbour {
    (row.0, row.1.clone(), row.4.clone())
}

/// Returns the owner of the pieces of a body. A bundle with more levels has a body of its own.
pub(crate) fn owner(key: &SealKey, kept: u32) -> Vec<u8> {
    [&key.to_bytes()[..], &kept.to_be_bytes()].concat()
}

/// Returns the levels in a row.
pub(crate) fn mask_of(kept: i64) -> Result<u32, Fault> {
    u32::try_from(kept).map_err(|_| Fault::damaged("the levels of a seal are damaged"))
}
