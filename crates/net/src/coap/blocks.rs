//! The server's side of transfers in blocks (RFC 7959): bodies of requests that arrive in blocks, and
//! representations that are fetched in blocks. Both are bounded in bytes, and end after
//! EXCHANGE_LIFETIME.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::config::{Owner, network};
use super::exchange::Response;
use super::message::{Block, Code, Format};

/// The approximate memory of an entry in addition to its bytes and its key.
const OVERHEAD: usize = 512;

/// What identifies a body that arrives in blocks, or a representation that is fetched in blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) owner: Owner,
    pub(super) code: Code,
    /// The path and the arguments.
    pub(super) resource: String,
    /// The format of a representation.
    pub(super) accept: Option<Format>,
    /// The tag of the request.
    pub(super) tag: Bytes,
}

/// Those who share the memory of transfers in equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Sharer {
    /// A device, with all its sessions.
    Device([u8; 8]),
    /// The sessions without a device from one network.
    Network(u128),
    /// All peers without DTLS, because they can forge their addresses.
    Plain,
}

impl Sharer {
    fn of(owner: Owner) -> Self {
        match owner {
            Owner::Device(device) => Self::Device(device),
            Owner::Peer(peer) if peer.is_secure() => Self::Network(network(peer.address.ip())),
            Owner::Peer(_) => Self::Plain,
        }
    }
}

/// A map whose entries have sizes and end. At the bound, the sharer with the most bytes loses the
/// entry that it used the longest ago.
#[derive(Debug)]
struct Bounded<V> {
    entries: HashMap<Arc<Key>, Entry<V>>,
    /// The entries by their end.
    by_end: BTreeMap<Place, Arc<Key>>,
    /// The bytes of each sharer, and the places of its entries.
    sharers: HashMap<Sharer, (usize, BTreeSet<Place>)>,
    /// The sharers by their bytes.
    by_size: BTreeSet<(usize, Sharer)>,
    next: u64,
    total: usize,
    bound: usize,
    lifetime: Duration,
    /// The number of entries that were dropped at the bound.
    dropped: u64,
}

/// The end of an entry, and a number that distinguishes entries with the same end.
type Place = (Instant, u64);

#[derive(Debug)]
struct Entry<V> {
    value: V,
    size: usize,
    place: Place,
}

impl<V> Bounded<V> {
    fn new(bound: usize, lifetime: Duration) -> Self {
        Self {
            entries: HashMap::new(),
            by_end: BTreeMap::new(),
            sharers: HashMap::new(),
            by_size: BTreeSet::new(),
            next: 0,
            total: 0,
            bound,
            lifetime,
            dropped: 0,
        }
    }

    fn take(&mut self, key: &Key) -> Option<V> {
        let Entry { value, size, place } = self.entries.remove(key)?;
        self.by_end.remove(&place);
        self.total -= size;
        self.share(Sharer::of(key.owner), |bytes, places| {
            *bytes -= size;
            places.remove(&place);
        });
        Some(value)
    }

    fn put(&mut self, now: Instant, key: Key, value: V, size: usize) {
        drop(self.take(&key));
        self.next += 1;
        let place = (now + self.lifetime, self.next);
        let size = size + key.resource.capacity() + key.tag.len() + OVERHEAD;
        let sharer = Sharer::of(key.owner);
        let key = Arc::new(key);
        self.by_end.insert(place, Arc::clone(&key));
        self.entries.insert(key, Entry { value, size, place });
        self.total += size;
        self.share(sharer, |bytes, places| {
            *bytes += size;
            places.insert(place);
        });
        while self.total > self.bound
            && let Some(key) = self.excess()
        {
            self.dropped += 1;
            drop(self.take(&key));
        }
    }

    /// Returns the oldest entry of the sharer with the most bytes.
    fn excess(&self) -> Option<Arc<Key>> {
        let (_, sharer) = self.by_size.last()?;
        let (_, places) = self.sharers.get(sharer)?;
        self.by_end.get(places.first()?).cloned()
    }

    /// Changes what a sharer has.
    fn share(&mut self, sharer: Sharer, change: impl FnOnce(&mut usize, &mut BTreeSet<Place>)) {
        let (bytes, places) = self.sharers.entry(sharer).or_default();
        self.by_size.remove(&(*bytes, sharer));
        change(bytes, places);
        if places.is_empty() {
            self.sharers.remove(&sharer);
        } else {
            self.by_size.insert((*bytes, sharer));
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some(((end, _), key)) = self.by_end.first_key_value()
            && *end <= now
        {
            let key = Arc::clone(key);
            drop(self.take(&key));
        }
    }
}

/// The bodies of requests that arrive in blocks.
#[derive(Debug)]
pub(super) struct Uploads(Bounded<BytesMut>);

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

    /// Returns whether blocks of a body have arrived, and more are expected.
    pub(super) fn has(&mut self, now: Instant, key: &Key) -> bool {
        self.0.expire(now);
        self.0.entries.contains_key(key)
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        key: Key,
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

/// Identifies the body of a request. The same request that is sent again has the same mark. The
/// numbers are hashes with a key that clients do not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The last block and its number.
    pub(super) last: u64,
    /// The whole body.
    pub(super) whole: u64,
}

/// The representations that are fetched in blocks, and the responses to requests that are not safe,
/// with the marks of these requests. All blocks of a transfer come from one version.
#[derive(Debug)]
pub(super) struct Representations(Bounded<(Response, Mark)>);

impl Representations {
    pub(super) fn new(bound: usize, lifetime: Duration) -> Self {
        Self(Bounded::new(bound, lifetime))
    }

    /// Returns the number of representations that were dropped because there were too many.
    pub(super) const fn dropped(&self) -> u64 {
        self.0.dropped
    }

    pub(super) fn put(&mut self, now: Instant, key: Key, response: Response, mark: Mark) {
        let size = response.body.len();
        self.0.put(now, key, (response, mark), size);
    }

    /// Returns a representation if its mark is right. It then lives for another EXCHANGE_LIFETIME.
    pub(super) fn get(
        &mut self,
        now: Instant,
        key: &Key,
        is_right: impl FnOnce(&Mark) -> bool,
    ) -> Option<Response> {
        self.0.expire(now);
        let entry = self.0.entries.get(key).filter(|entry| is_right(&entry.value.1))?;
        let (response, mark) = entry.value.clone();
        self.put(now, key.clone(), response.clone(), mark);
        Some(response)
    }

    pub(super) fn forget(&mut self, key: &Key) {
        drop(self.0.take(key));
    }
}
