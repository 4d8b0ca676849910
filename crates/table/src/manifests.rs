//! Manifests of coordinators.

use std::time::Instant;

use moteseal_core::digest::Digest;
use moteseal_core::record::EpochNumber;
use moteseal_store::{ManifestKey, Receipt, StoredManifest};

use crate::fault::Fault;
use crate::guard::{self, INLINE};
use crate::known::Known;
use crate::reads::{digest_of, limit_of};
use crate::store::Table;
use crate::tables;

/// The maximum number of manifests in one answer.
const PAGE: usize = 64;

/// The first byte of a row with the manifest itself, and of one with its length.
const WHOLE: u8 = 0;
const IN_PIECES: u8 = 1;

impl Table {
    pub(crate) async fn put_manifests(
        &self,
        manifests: &[StoredManifest],
        deadline: Instant,
    ) -> Result<Receipt, Fault> {
        let mut receipt = Receipt::default();
        for manifest in manifests {
            let (key, bytes) = (manifest.key(), manifest.bytes());
            let before = self.digests_of(key.epoch, deadline).await?;
            let is_known = before.contains(&key.digest);
            if is_known {
                if before.iter().any(|digest| *digest != key.digest) {
                    receipt.add_doubled(key.epoch);
                }
                receipt.known += 1;
                continue;
            }
            let span = guard::epoch_span(key.epoch);
            let listed = span.to_be_bytes();
            if !self.is_known(Known::Manifests(span)) {
                let values = (tables::MANIFESTS, &listed[..]);
                self.run(&self.statements.list, values, deadline).await?;
                self.remember(Known::Manifests(span));
            }
            let encoded = key.to_bytes();
            let guarded: &[&[u8]] = &[b"manifest", &encoded];
            let row = if bytes.len() <= INLINE {
                guard::wrap(guarded, &[&[WHOLE], bytes])
            } else {
                self.put_pieces(&encoded, bytes, deadline).await?;
                guard::wrap(guarded, &[&[IN_PIECES], &(bytes.len() as u64).to_be_bytes()])
            };
            let epoch = key.epoch.0.to_be_bytes();
            let values = (&listed[..], &epoch[..], &key.digest.0[..], row);
            self.run(&self.statements.add_manifest, values, deadline).await?;
            // If two processes store two manifests at the same time, the later one reads both.
            let after = self.digests_of(key.epoch, deadline).await?;
            if after.iter().any(|digest| *digest != key.digest) {
                receipt.add_doubled(key.epoch);
            }
            receipt.stored += 1;
        }
        Ok(receipt)
    }

    async fn digests_of(
        &self,
        epoch: EpochNumber,
        deadline: Instant,
    ) -> Result<Vec<Digest>, Fault> {
        let (span, epoch) = (guard::epoch_span(epoch).to_be_bytes(), epoch.0.to_be_bytes());
        let values = (&span[..], &epoch[..]);
        let rows: Vec<(Vec<u8>,)> =
            self.rows(&self.statements.manifests_of, values, deadline).await?;
        rows.iter().map(|(digest,)| digest_of(digest)).collect()
    }

    pub(crate) async fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
        after: Option<ManifestKey>,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<StoredManifest>, Fault> {
        let mut place = match after {
            Some(after) if after.epoch >= since => {
                (after.epoch.0.to_be_bytes().to_vec(), after.digest.0.to_vec())
            }
            _ => (since.0.to_be_bytes().to_vec(), Vec::new()),
        };
        let first = after.map_or(since, |after| after.epoch.max(since));
        let mut from = Some(guard::epoch_span(first));
        let mut found = Vec::new();
        while let Some(span) = from {
            let spans = self.listed(tables::MANIFESTS, &span.to_be_bytes(), PAGE, deadline).await?;
            from = None;
            for span in spans {
                loop {
                    if found.len() >= limit {
                        return Ok(found);
                    }
                    let wanted = (limit - found.len()).min(PAGE);
                    let values = (&span[..], &place.0[..], &place.1[..], limit_of(wanted));
                    let rows: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> =
                        self.rows(&self.statements.manifests_after, values, deadline).await?;
                    let is_last = rows.len() < wanted;
                    for (epoch, digest, row) in rows {
                        place = (epoch.clone(), digest.clone());
                        let epoch = epoch.try_into().map(u64::from_be_bytes);
                        let epoch = epoch
                            .map_err(|_| Fault::damaged("the epoch of a manifest is damaged"))?;
                        let (epoch, digest) = (EpochNumber(epoch), digest_of(&digest)?);
                        if until.is_some_and(|until| epoch >= until) {
                            return Ok(found);
                        }
                        found.push(
                            self.manifest(ManifestKey { epoch, digest }, row, deadline).await?,
                        );
                    }
                    if is_last {
                        break;
                    }
                }
                let number = <[u8; 8]>::try_from(&span[..]).map(u64::from_be_bytes);
                from = number.ok().and_then(|number| number.checked_add(1));
            }
        }
        Ok(found)
    }

    async fn manifest(
        &self,
        key: ManifestKey,
        row: Vec<u8>,
        deadline: Instant,
    ) -> Result<StoredManifest, Fault> {
        let damaged = || Fault::Damaged(None, format!("{key} is damaged"));
        let encoded = key.to_bytes();
        let row = guard::unwrap(&[b"manifest", &encoded], row).ok_or_else(damaged)?;
        let bytes = match row.split_first() {
            Some((&WHOLE, bytes)) => bytes.to_vec(),
            Some((&IN_PIECES, length)) => {
                let length = length.try_into().map(u64::from_be_bytes).map_err(|_| damaged())?;
                let bytes = self.pieces(&encoded, length, 0..length, deadline).await?;
                bytes.ok_or_else(damaged)?
            }
            _ => return Err(damaged()),
        };
        Ok(StoredManifest::of_parts(key, bytes))
    }
}
