//! The first seal of a device from an epoch on.
//!
//! Epochs ascend with the indices of a chain. The spans of a device are therefore searched by
//! bisection, and then the rows of one span. If the seals of a device are not in order, for example
//! because its key was stolen, the device is listed as such, and all its spans are read.

use std::time::Instant;

use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_store::SealKey;

use crate::fault::Fault;
use crate::guard;
use crate::reads::{digest_of, index_of, limit_of};
use crate::store::Table;

/// The maximum number of epochs in one answer.
const PAGE: usize = 256;

impl Table {
    /// Returns the first index of a device whose epoch is at least `since`.
    pub(crate) async fn first_since(
        &self,
        device: DeviceId,
        since: EpochNumber,
        deadline: Instant,
    ) -> Result<Option<SealIndex>, Fault> {
        let unordered: Vec<(Vec<u8>,)> =
            self.rows(&self.statements.unordered, (&device.0[..],), deadline).await?;
        let Some(newest) = self.newest_to(device, i32::MAX, deadline).await? else {
            return Ok(None);
        };
        if unordered.is_empty() {
            self.bisect(device, since, guard::span(newest.key.index), deadline).await
        } else {
            self.search(device, since, deadline).await
        }
    }

    async fn bisect(
        &self,
        device: DeviceId,
        since: EpochNumber,
        last: i32,
        deadline: Instant,
    ) -> Result<Option<SealIndex>, Fault> {
        // The first seals of all spans below `low` have an epoch before `since`, and those from
        // `high` on do not.
        let (mut low, mut high) = (0, last + 1);
        let (mut before, mut found) = (None, None);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.first_from(device, middle, deadline).await? {
                Some((index, epoch)) if epoch < since => {
                    before = Some(guard::span(index));
                    low = guard::span(index) + 1;
                }
                Some((index, _)) => {
                    found = Some(index);
                    high = middle;
                }
                None => high = middle,
            }
        }
        if let Some(span) = before
            && let Some(index) = self.first_in(device, span, since, deadline).await?
        {
            return Ok(Some(index));
        }
        Ok(found)
    }

    async fn search(
        &self,
        device: DeviceId,
        since: EpochNumber,
        deadline: Instant,
    ) -> Result<Option<SealIndex>, Fault> {
        let mut from = 0;
        loop {
            let spans = self.spans(device, from, deadline).await?;
            let Some(last) = spans.last() else { return Ok(None) };
            from = last + 1;
            for span in spans {
                if let Some(index) = self.first_in(device, span, since, deadline).await? {
                    return Ok(Some(index));
                }
            }
        }
    }

    /// Returns the first index in a span whose epoch is at least `since`.
    async fn first_in(
        &self,
        device: DeviceId,
        span: i32,
        since: EpochNumber,
        deadline: Instant,
    ) -> Result<Option<SealIndex>, Fault> {
        let mut from = guard::first_index(span);
        loop {
            let rows = self.epochs(device, span, from, PAGE, deadline).await?;
            if let Some((index, _)) = rows.iter().find(|(_, epoch)| *epoch >= since) {
                return Ok(Some(*index));
            }
            match rows.last() {
                // One index has fewer rows than a page: one for each seal, set of levels and
                // signature.
                Some((last, _)) if rows.len() == PAGE && *last > from => from = *last,
                Some((last, _)) if rows.len() == PAGE => from = SealIndex(last.0.saturating_add(1)),
                _ => return Ok(None),
            }
        }
    }

    /// Returns the first seal of a device in the spans from one on, and its epoch.
    pub(crate) async fn first_from(
        &self,
        device: DeviceId,
        span: i32,
        deadline: Instant,
    ) -> Result<Option<(SealIndex, EpochNumber)>, Fault> {
        let mut from = span;
        loop {
            let spans = self.spans(device, from, deadline).await?;
            let Some(last) = spans.last() else { return Ok(None) };
            from = last + 1;
            for span in spans {
                let first = guard::first_index(span);
                let rows = self.epochs(device, span, first, 1, deadline).await?;
                if let Some(first) = rows.first() {
                    return Ok(Some(*first));
                }
            }
        }
    }

    async fn epochs(
        &self,
        device: DeviceId,
        span: i32,
        from: SealIndex,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<(SealIndex, EpochNumber)>, Fault> {
        let values = (&device.0[..], span, i64::from(from.0), limit_of(limit));
        let rows: Vec<(i64, Vec<u8>, Vec<u8>)> =
            self.rows(&self.statements.epochs_from, values, deadline).await?;
        let epoch = |(index, digest, epoch): (i64, Vec<u8>, Vec<u8>)| {
            let key = SealKey { device, index: index_of(index)?, digest: digest_of(&digest)? };
            let epoch = guard::epoch(&key, epoch)
                .ok_or_else(|| Fault::seal(key, "its epoch is damaged"))?;
            Ok((key.index, epoch))
        };
        rows.into_iter().map(epoch).collect()
    }
}
