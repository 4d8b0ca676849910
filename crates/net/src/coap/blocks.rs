//! The server's side of transfers in blocks (RFC 7959): bodies of requests that arrive in blocks, and
//! representations that are fetched in blocks. Both are bounded in number and bytes, and end after
//! EXCHANGE_LIFETIME.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::config::Owner;
use super::exchange::Response;
use super::message::{Block, Code, Format};

/// The approximate memory of an entry in addition to its bytes.
const OVERHEAD: usize = 256;

/// What identifies a body that arrives in blocks: its owner, method, path and arguments, and tag.
pub(super) type UploadKey = (Owner, Code, String, Bytes);

/// What identifies a representation that is fetched in blocks: its owner, method, path and arguments,
/// format, and the request's tag.
pub(super) type RepresentationKey = (Owner, Code, String, Option<Format>, Bytes);

/// A map whose entries have sizes and end. At the bound, the entry that was used the longest ago is
/// dropped.
#[derive(Debug)]
struct Bounded<K, V> {
    entries: HashMap<K, (V, usize, Instant)>,
    by_end: BTreeSet<(Instant, K)>,
    total: usize,
    bound: usize,
    lifetime: Duration,
    /// The number of entries that were dropped at the bound.
    dropped: u64,
}

impl<K: Clone + Ord + std::hash::Hash, V> Bounded<K, V> {
    fn new(bound: usize, lifetime: Duration) -> Self {
        let (entries, by_end) = (HashMap::new(), BTreeSet::new());
        Self { entries, by_end, total: 0, bound, lifetime, dropped: 0 }
    }

    fn take(&mut self, key: &K) -> Option<V> {
        let (value, size, end) = self.entries.remove(key)?;
        self.by_end.remove(&(end, key.clone()));
        self.total -= size;
        Some(value)
    }

    fn put(&mut self, now: Instant, key: K, value: V, size: usize) {
        drop(self.take(&key));
        let (size, end) = (size + OVERHEAD, now + self.lifetime);
        self.by_end.insert((end, key.clone()));
        self.entries.insert(key, (value, size, end));
        self.total += size;
        while self.total > self.bound
            && let Some((_, oldest)) = self.by_end.first().cloned()
        {
            self.dropped += 1;
            drop(self.take(&oldest));
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((end, key)) = self.by_end.first().filter(|(end, _)| *end <= now).cloned() {
            debug_assert!(end <= now);
            drop(self.take(&key));
        }
    }
}

/// The bodies of requests that arrive in blocks.
#[derive(Debug)]
pub(super) struct Uploads(Bounded<UploadKey, BytesMut>);

/// The result of receiving a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// More blocks follow.
    Continue,
    /// The body is complete.
    Whole(Bytes),
    /// The block is refused.
    Refused(Code),
}

impl Uploads {
    pub(super) fn new(bound: usize, lifetime: Duration) -> Self {
        Self(Bounded::new(bound, lifetime))
    }

    /// Returns the number of bodies that were dropped because there were too many.
    pub(super) const fn dropped(&self) -> u64 {
        self.0.dropped
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        key: UploadKey,
        block: Block,
        payload: &[u8],
        limit: usize,
    ) -> Received {
        self.0.expire(now);
        let is_size_right = match block.more {
            true => payload.len() == block.size(),
            false => payload.len() <= block.size(),
        };
        if !is_size_right {
            return Received::Refused(Code::BAD_REQUEST);
        }
        let mut body = match (self.0.take(&key), block.number) {
            (_, 0) => BytesMut::new(),
            (Some(body), _) => body,
            (None, _) => return Received::Refused(Code::REQUEST_ENTITY_INCOMPLETE),
        };
        let (start, end) = (block.offset(), block.offset() + payload.len());
        if end > limit {
            return Received::Refused(Code::REQUEST_ENTITY_TOO_LARGE);
        }
        let received = if start == body.len() {
            body.extend_from_slice(payload);
            Received::Continue
        } else if block.more && body.get(start..end) == Some(payload) {
            // The server has this block already: the acknowledgement was lost, and the client sends
            // the block again under another message id.
            Received::Continue
        } else {
            Received::Refused(Code::REQUEST_ENTITY_INCOMPLETE)
        };
        if received == Received::Continue && !block.more {
            return Received::Whole(body.freeze());
        }
        // The blocks before a missing one stay: the client may continue where they end.
        let size = body.capacity();
        self.0.put(now, key, body, size);
        received
    }
}

/// The representations that are fetched in blocks. All blocks of a transfer come from one version.
#[derive(Debug)]
pub(super) struct Representations(Bounded<RepresentationKey, Response>);

impl Representations {
    pub(super) fn new(bound: usize, lifetime: Duration) -> Self {
        Self(Bounded::new(bound, lifetime))
    }

    /// Returns the number of representations that were dropped because there were too many.
    pub(super) const fn dropped(&self) -> u64 {
        self.0.dropped
    }

    pub(super) fn put(&mut self, now: Instant, key: RepresentationKey, response: Response) {
        let size = response.body.len();
        self.0.put(now, key, response, size);
    }

    /// Returns a representation, which then lives for another EXCHANGE_LIFETIME.
    pub(super) fn get(&mut self, now: Instant, key: &RepresentationKey) -> Option<Response> {
        self.0.expire(now);
        let response = self.0.take(key)?;
        self.put(now, key.clone(), response.clone());
        Some(response)
    }

    pub(super) fn forget(&mut self, key: &RepresentationKey) {
        drop(self.0.take(key));
    }
}
