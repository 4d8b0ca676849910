//! The requests by which one cloud, or a backup, finds and fetches what another cloud stores
//! (`spec/summaries.md`).
//!
//! A [`Replica`] checks the form of each response, its size, and that listings continue in ascending
//! order. It does not verify what it fetches. A cloud that lies can therefore only withhold data, or
//! cause bounded work.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_api::summary::{
    BLOCK, BlockPage, BlockSummary, DevicePage, DeviceSummary, PAGE, Summary, block_of,
};
use moteseal_api::{CBOR_SEQ, CURSOR, JSON, ProblemType, SealList, parse_digest, paths};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::stream::Item;
use serde::de::DeserializeOwned;

use crate::client::{Client, Response};
use crate::error::NetError;

/// The maximum size of a summary or of a page, in bytes.
const PAGE_BYTES: usize = 1 << 20;
/// The maximum size of an answer with urgent events, in bytes.
const EVENTS_BYTES: usize = 16 << 20;
/// The maximum size of one manifest, in bytes.
const MANIFEST_BYTES: usize = 64 << 20;
/// The maximum number of seals that a page of a listing asks for.
const SEALS: u32 = 1000;
/// The maximum number of pages of one listing.
const PAGES: usize = 1 << 13;
/// The time within which a page must have arrived, including the client's retries.
const PAGE_TIME: Duration = Duration::from_secs(60);
/// The maximum length of a cursor, in bytes.
const CURSOR_BYTES: usize = 128;
/// How long a fresh summary may take, because the cloud reads its whole store for it.
const READING_TIME: Duration = Duration::from_secs(12 * 60 * 60);

/// A cloud whose data is compared or fetched. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Replica {
    client: Client,
    /// The token of a demand for fresh summaries.
    fresh: Option<String>,
}

/// A seal in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListedSeal {
    /// The device.
    pub device: DeviceId,
    /// The index.
    pub index: SealIndex,
    /// The digest.
    pub digest: Digest,
    /// The levels from this round on are stored.
    pub kept_from: u8,
    /// The epoch, if the listing states it.
    pub epoch: Option<EpochNumber>,
}

/// Which blocks a [`BlockWalk`] lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlocksOf {
    /// Those of a device's seals.
    Seals(DeviceId),
    /// Those of the manifests.
    Manifests,
}

impl Replica {
    /// Creates a replica that is reached with `client`.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client, fresh: None }
    }

    /// Demands that summaries have everything that the cloud had stored before the first request with
    /// the replica that this function returns, whichever process stored it. The cloud may have to read
    /// its whole store first. A request for a summary waits until it has, for at most 12 hours.
    #[must_use]
    pub fn fresh(self) -> Self {
        let token = RandomState::new().build_hasher().finish();
        Self { fresh: Some(format!("{token:016x}")), ..self }
    }

    /// Returns the client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    fn odd(&self, cause: &str) -> NetError {
        NetError::NotACloud { url: self.client.base().to_owned(), cause: cause.to_owned() }
    }

    async fn page<T: DeserializeOwned>(&self, path: &str, limit: usize) -> Result<T, NetError> {
        let body =
            self.in_time(async { self.client.get(path).await?.expect(JSON)?.bytes(limit).await });
        let body = body.await?;
        serde_json::from_slice(&body)
            .map_err(|error| self.odd(&format!("the response of {path} is not valid: {error}")))
    }

    /// Gets a page of the summary. See [`fresh`](Self::fresh).
    async fn summary_page<T: DeserializeOwned>(&self, path: &str) -> Result<T, NetError> {
        let Some(token) = &self.fresh else { return self.page(path, PAGE_BYTES).await };
        let path = paths::fresh(path, token);
        let (start, mut was_reading) = (Instant::now(), false);
        loop {
            let result = self.page(&path, PAGE_BYTES).await;
            let Err(NetError::Busy { problem, .. }) = &result else { return result };
            let reading = problem.as_deref() == Some(ProblemType::SUMMARY_NOT_READY.name());
            // The client has waited between its attempts. A cloud that was reading may be busy for a moment.
            if !(reading || was_reading) || start.elapsed() >= READING_TIME {
                return result;
            }
            was_reading = reading;
        }
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, NetError>>,
    ) -> Result<T, NetError> {
        tokio::time::timeout(PAGE_TIME, work).await.unwrap_or_else(|_| {
            Err(NetError::Interrupted {
                url: self.client.base().to_owned(),
                cause: "no whole response in time".to_owned(),
            })
        })
    }

    /// Gets the summary. `after` is the cursor of the last summary.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn summary(&self, after: Option<&str>) -> Result<Summary, NetError> {
        let summary: Summary = self.summary_page(&paths::summary(after)).await?;
        let cursors = [Some(&summary.cursor), summary.events_cursor.as_ref()];
        if !cursors.into_iter().flatten().all(|cursor| is_cursor(cursor)) {
            return Err(self.odd("a cursor of the summary is not valid"));
        }
        Ok(summary)
    }

    /// Gets a page of a device's seals from an index on, ascending by index, and the first index of
    /// the next page. All seals of one index are on the same page.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
    ) -> Result<(Vec<ListedSeal>, Option<SealIndex>), NetError> {
        let list: SealList = self.page(&paths::seals(device, from, SEALS), PAGE_BYTES).await?;
        let wrong = || self.odd("the listing of a device's seals is not in ascending order");
        let mut seals = Vec::with_capacity(list.seals.len());
        let mut last = from.0;
        for entry in list.seals {
            let digest = parse_digest(&entry.digest).ok_or_else(wrong)?;
            if entry.index < last || list.next.is_some_and(|next| entry.index >= next) {
                return Err(wrong());
            }
            last = entry.index;
            let (index, epoch) = (SealIndex(entry.index), Some(EpochNumber(entry.epoch)));
            seals.push(ListedSeal { device, index, digest, kept_from: entry.kept_from, epoch });
        }
        if list.next.is_some_and(|next| next <= from.0) {
            return Err(wrong());
        }
        Ok((seals, list.next.map(SealIndex)))
    }

    /// Lists the seals of the block of a device that starts with `first`. A listing with more than
    /// `most` seals ends with an error.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn seals_of_block(
        &self,
        device: DeviceId,
        first: u64,
        most: usize,
    ) -> Result<Vec<ListedSeal>, NetError> {
        let mut seals: Vec<ListedSeal> = Vec::new();
        let mut from = u32::try_from(first).ok().map(SealIndex);
        while let Some(start) = from {
            let (page, next) = self.seals(device, start).await?;
            let is_in = |seal: &ListedSeal| u64::from(seal.index.0) < first + BLOCK;
            let ended = page.iter().any(|seal| !is_in(seal));
            seals.extend(page.into_iter().filter(is_in));
            if seals.len() > most {
                return Err(self.odd("a block of seals has more seals than are accepted"));
            }
            from = next.filter(|next| !ended && u64::from(next.0) < first + BLOCK);
        }
        Ok(seals)
    }

    /// Requests a bundle. The response is a stream of manifests, schema, open, part and end items
    /// ([`bundle_of`]).
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn bundle(&self, seal: &ListedSeal) -> Result<Response, NetError> {
        let path = format!("{}?digest={}", paths::bundle(seal.device, seal.index), seal.digest);
        self.client.get(&path).await?.expect(CBOR_SEQ)
    }

    /// Requests the manifests of a range of epochs.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> Result<ManifestStream, NetError> {
        let response = self.client.get(&paths::manifests(since, until)).await?.expect(CBOR_SEQ)?;
        Ok(ManifestStream::new(response))
    }

    /// Gets the urgent events after a cursor: a stream of schemas and events with an end item, and
    /// the next cursor.
    ///
    /// # Errors
    /// [`NetError`].
    pub async fn events(&self, after: Option<&str>) -> Result<(Bytes, Option<String>), NetError> {
        let path = paths::events(EpochNumber(0), &[], after, None);
        self.in_time(async {
            let response = self.client.get(&path).await?.expect(CBOR_SEQ)?;
            let cursor = response.header(CURSOR).map(str::to_owned);
            if cursor.as_deref().is_some_and(|cursor| !is_cursor(cursor)) {
                return Err(self.odd("the cursor of the urgent events is not valid"));
            }
            Ok((response.bytes(EVENTS_BYTES).await?.into(), cursor))
        })
        .await
    }
}

/// Lists the devices of a summary, page by page.
#[derive(Debug, Default)]
pub struct DeviceWalk {
    after: Option<DeviceId>,
    has_ended: bool,
    pages: usize,
}

impl DeviceWalk {
    /// Returns the next devices, ascending, or `None` after the last.
    ///
    /// # Errors
    /// [`NetError`], also if a page does not continue in ascending order.
    pub async fn next(&mut self, of: &Replica) -> Result<Option<Vec<DeviceSummary>>, NetError> {
        if self.has_ended {
            return Ok(None);
        }
        let page: DevicePage = of.summary_page(&paths::summary_devices(self.after)).await?;
        for entry in &page.devices {
            if self.after.is_some_and(|after| entry.device <= after) {
                return Err(of.odd("the devices of the summary are not in ascending order"));
            }
            self.after = Some(entry.device);
        }
        self.pages += 1;
        check_page(of, (page.devices.len(), page.more), self.pages)?;
        self.has_ended = !page.more;
        Ok(Some(page.devices))
    }
}

/// Lists the blocks of a summary, page by page.
#[derive(Debug)]
pub struct BlockWalk {
    of: BlocksOf,
    from: u64,
    has_ended: bool,
    pages: usize,
}

impl BlockWalk {
    /// Creates a walk through all blocks.
    #[must_use]
    pub const fn new(of: BlocksOf) -> Self {
        Self { of, from: 0, has_ended: false, pages: 0 }
    }

    /// Returns the next blocks, ascending, or `None` after the last.
    ///
    /// # Errors
    /// [`NetError`], also if a page does not continue in ascending order.
    pub async fn next(&mut self, of: &Replica) -> Result<Option<Vec<BlockSummary>>, NetError> {
        if self.has_ended {
            return Ok(None);
        }
        let path = match self.of {
            BlocksOf::Seals(device) => paths::summary_seals(device, self.from),
            BlocksOf::Manifests => paths::summary_manifests(self.from),
        };
        let page: BlockPage = of.summary_page(&path).await?;
        for block in &page.blocks {
            if block.first < self.from || block_of(block.first) != block.first {
                return Err(of.odd("the blocks of the summary are not in ascending order"));
            }
            match block.first.checked_add(BLOCK) {
                Some(next) => self.from = next,
                None => self.has_ended = true,
            }
        }
        self.pages += 1;
        check_page(of, (page.blocks.len(), page.more), self.pages)?;
        self.has_ended |= !page.more;
        Ok(Some(page.blocks))
    }
}

fn check_page(of: &Replica, (entries, more): (usize, bool), pages: usize) -> Result<(), NetError> {
    if entries > PAGE || (more && (entries == 0 || pages >= PAGES)) {
        return Err(of.odd("a listing of the summary does not end"));
    }
    Ok(())
}

/// Manifests that are arriving.
#[derive(Debug)]
pub struct ManifestStream {
    response: Response,
    buffer: Vec<u8>,
    at: usize,
    /// The number of bytes that must be there before an item is decoded. It doubles whenever the
    /// item is not whole, so that a long item is not decoded again for each piece that arrives.
    next_try: usize,
    is_last_try: bool,
}

impl ManifestStream {
    const fn new(response: Response) -> Self {
        Self { response, buffer: Vec::new(), at: 0, next_try: 1, is_last_try: false }
    }

    fn odd(&self, cause: &str) -> NetError {
        NetError::NotACloud { url: self.response.url().to_owned(), cause: cause.to_owned() }
    }

    /// Returns the next manifest, a tagged `COSE_Sign1`, or `None` at the end. Call it no more after
    /// that.
    ///
    /// # Errors
    /// [`NetError`], also if the response is not a complete stream of manifests.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, NetError> {
        loop {
            if self.buffer.len() - self.at >= self.next_try || self.is_last_try {
                match Item::decode(&self.buffer[self.at..]) {
                    Ok((Item::Manifest(manifest), length)) => {
                        let manifest = manifest.to_vec();
                        (self.at, self.next_try) = (self.at + length, 1);
                        return Ok(Some(manifest));
                    }
                    Ok((Item::End, _)) => return Ok(None),
                    Ok((Item::Problem { name, .. }, _)) => {
                        return Err(self.odd(&format!("the manifests ended with the error {name}")));
                    }
                    Ok(_) => return Err(self.odd("an item is not a manifest")),
                    Err(_) if self.is_last_try => {
                        return Err(self.odd("the manifests do not end with an end item"));
                    }
                    Err(_) => {
                        self.buffer.drain(..std::mem::take(&mut self.at));
                        self.next_try = 2 * self.buffer.len().max(1);
                    }
                }
            }
            let more = tokio::time::timeout(PAGE_TIME, self.response.chunk()).await;
            let late = || NetError::Interrupted {
                url: self.response.url().to_owned(),
                cause: "no data in time".to_owned(),
            };
            match more.map_err(|_| late())?? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => self.is_last_try = true,
            }
            if self.buffer.len() - self.at > MANIFEST_BYTES {
                return Err(self.odd("a manifest is longer than is accepted"));
            }
        }
    }
}

/// Returns where the bundle is in the response to a request for a bundle: after the manifests, and
/// before the end item. Returns `None` if the response is not complete, or has other items.
#[must_use]
pub fn bundle_of(response: &[u8]) -> Option<std::ops::Range<usize>> {
    let (mut at, mut start, mut parts) = (0, None, 0);
    while let Ok((item, length)) = Item::decode(response.get(at..)?) {
        match item {
            Item::Manifest(_) if start.is_none() => {}
            Item::Schema(_) | Item::Open(_) => start = start.or(Some(at)),
            Item::Part(_) if start.is_some() => parts += 1,
            Item::End if parts == 1 && at + length == response.len() => return Some(start?..at),
            _ => return None,
        }
        at += length;
    }
    None
}

/// Returns whether a text from a cloud can be sent back as a cursor.
fn is_cursor(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= CURSOR_BYTES && text.bytes().all(is_plain)
}
