//! The store of an intake: writes go to the stream, reads go to another store.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::connection::State;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_store::{
    Batch, Bundle, EpochStore, Equivocation, Head, ManifestKey, PutError, ReadError, Receipt,
    Reply, StoredManifest, StoredSeal, StoredUrgent, UrgentKey, UrgentLimits, UrgentPage,
    UrgentPlace,
};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::accepted::{Accepted, Counted};
use crate::connection::Stream;
use crate::error::StreamError;
use crate::message::{DIGEST, HEADER_BYTES, LENGTH, PIECES};
use crate::moment::Moment;
use crate::pieces::COMMIT_AGE;
use crate::published::Published;
use crate::settings::{BATCH_BYTES, IntakeLimits};

/// The unit in which the bytes in progress are counted.
const UNIT: usize = 1024;
/// How many pieces of one batch are published at the same time.
const PIECES_AT_ONCE: usize = 4;
/// The pause before a publication is repeated.
const PAUSE: Duration = Duration::from_millis(100);

/// JetStream's error codes of a publication that may succeed later.
mod code {
    /// The same message is being published by another connection.
    pub(super) const DUPLICATE_IN_PROGRESS: u64 = 10158;
    /// The stream could not store the message: it is full, or the disk failed.
    pub(super) const NOT_STORED: u64 = 10077;
    /// The account or the server has no more storage.
    pub(super) const NO_RESOURCES: [u64; 3] = [10002, 10023, 10047];
    /// The cluster has no leader at the moment.
    pub(super) const NOT_AVAILABLE: u64 = 10008;
}

/// An [`EpochStore`] whose writes go to a stream, and whose reads go to another store.
///
/// A batch is acknowledged once the stream has stored, replicated and synced it. The
/// [`Receipt`] counts it as `queued` and states its position in the stream: whether it is new, and
/// whether it conflicts with other seals, is known only when a worker has stored it. Reads return what
/// the workers have stored so far; manifests also include those that this intake published lately. The bytes of
/// the urgent events of a device are those that this intake has published since its start, if the other store has
/// none.
///
/// The number and the bytes of batches in memory are limited ([`IntakeLimits`]); beyond the limits,
/// and while the stream is full, batches are rejected with [`PutError::Busy`] or
/// [`PutError::Unavailable`]. A batch that was rejected because no acknowledgement arrived in time counts until
/// the connection has written it or dropped it.
pub struct StreamStore {
    publisher: Arc<Publisher>,
    reads: Arc<dyn EpochStore>,
    /// The manifests that were published lately, which reads return, too.
    published: Arc<Published>,
    /// The bytes of urgent events that were published since the start.
    accepted: Arc<Accepted>,
    runtime: Handle,
    batches: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// All units of `bytes`.
    units: u32,
}

struct Publisher {
    stream: Stream,
    limits: IntakeLimits,
}

impl fmt::Debug for StreamStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamStore")
            .field("stream", &self.publisher.stream)
            .finish_non_exhaustive()
    }
}

impl StreamStore {
    /// Returns the store of an intake. It publishes on the current runtime.
    ///
    /// # Panics
    /// If it is called outside a tokio runtime.
    #[must_use]
    pub fn new(stream: Stream, reads: Arc<dyn EpochStore>, limits: IntakeLimits) -> Self {
        let units = u32::try_from(limits.bytes.div_ceil(UNIT)).unwrap_or(u32::MAX >> 3).max(1);
        Self {
            publisher: Arc::new(Publisher { stream, limits }),
            reads,
            published: Arc::default(),
            accepted: Arc::default(),
            runtime: Handle::current(),
            batches: Arc::new(Semaphore::new(limits.batches.min(Semaphore::MAX_PERMITS))),
            bytes: Arc::new(Semaphore::new(units as usize)),
            units,
        }
    }

    fn submit_batch(&self, batch: &Batch, items: usize, reply: Reply) -> Result<(), PutError> {
        let place = Arc::clone(&self.batches).try_acquire_owned().map_err(|_| PutError::Busy)?;
        let encoded = batch.encode().filter(|bytes| bytes.len() as u64 <= BATCH_BYTES);
        let encoded = encoded.ok_or_else(|| PutError::Failed {
            store: self.publisher.name(),
            what: format!(
                "the upload is longer than {BATCH_BYTES} bytes, so no worker would store it"
            ),
        })?;
        // A batch that is longer than the limit uses all of it.
        let units = u32::try_from(encoded.len().div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units);
        let room = Arc::clone(&self.bytes).try_acquire_many_owned(units);
        let room = room.map_err(|_| PutError::Busy)?;
        let publisher = Arc::clone(&self.publisher);
        let encoded = Encoded { bytes: encoded, _place: place, _room: room };
        self.runtime.spawn(publisher.run(Bytes::from_owner(encoded), items, reply));
        Ok(())
    }
}

/// An encoded batch with its share of the limits. The share is free again when the last reference to the bytes is
/// dropped: messages that the server does not read remain in the queue of the connection, also after their batch
/// was rejected, and a piece refers to the whole batch.
struct Encoded {
    bytes: Vec<u8>,
    _place: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Publisher {
    fn name(&self) -> String {
        format!("stream {}", self.stream.settings().name)
    }

    async fn run(self: Arc<Self>, batch: Bytes, items: usize, reply: Reply) {
        let published = self.publish(batch).await;
        reply(published.map(|position| Receipt {
            queued: items as u64,
            position: Some(position),
            ..Receipt::default()
        }));
    }

    /// Publishes a batch and returns its position, once the stream has acknowledged it.
    async fn publish(&self, batch: Bytes) -> Result<u64, PutError> {
        let digest = Digest::of(&[&batch]);
        let most = self.stream.client().server_info().max_payload.saturating_sub(HEADER_BYTES);
        let until = Instant::now() + self.limits.publish_time;
        let subject = &self.stream.names().batch_subject;
        let mut headers = HeaderMap::new();
        headers.insert(DIGEST, digest.to_string().as_str());
        if batch.len() <= most {
            let id = digest.to_string();
            return self.send(subject, (headers, Some(&id)), batch, until).await;
        }
        self.publish_pieces(batch, (digest, headers), most, until).await
    }

    /// Publishes a batch in pieces, then the message that commits them.
    async fn publish_pieces(
        &self,
        batch: Bytes,
        (digest, mut headers): (Digest, HeaderMap),
        most: usize,
        until: Instant,
    ) -> Result<u64, PutError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| PutError::Failed {
            store: self.name(),
            what: format!("the system has no random bytes ({error})"),
        })?;
        // The id is new for each publication: pieces are removed together with the message that commits
        // them, so no other message may refer to them.
        let id = hex::encode(random);
        let size = most.min(self.limits.piece_bytes).max(1);
        let started = Moment::now();
        let prefix = &self.stream.names().piece_subject;
        let sends = (0..batch.len()).step_by(size).enumerate().map(|(number, at)| {
            let piece = batch.slice(at..batch.len().min(at + size));
            let subject = format!("{prefix}.{id}.{number}");
            async move { self.send(&subject, (HeaderMap::new(), None), piece, until).await }
        });
        let count = batch.len().div_ceil(size);
        let mut sends = futures_util::stream::iter(sends);
        let mut running = futures_util::stream::FuturesUnordered::new();
        loop {
            use futures_util::StreamExt as _;
            while running.len() < PIECES_AT_ONCE
                && let Some(send) = sends.next().await
            {
                running.push(send);
            }
            match running.next().await {
                Some(sent) => drop(sent?),
                None => break,
            }
        }
        headers.insert(PIECES, format!("{id} {count}").as_str());
        headers.insert(LENGTH, batch.len().to_string().as_str());
        let message_id = format!("{digest} {id}");
        let subject = &self.stream.names().batch_subject;
        let position =
            self.send(subject, (headers, Some(&message_id)), Bytes::new(), until).await?;
        // The workers remove pieces that have no message after a multiple of this time. A process that
        // was stopped in between must therefore not acknowledge the batch, nor one on a machine that was
        // suspended.
        if !started.is_within(COMMIT_AGE, Moment::now()) {
            return Err(self.unavailable(
                "publishing took too long, or the time of day was changed".to_owned(),
            ));
        }
        Ok(position)
    }

    /// Publishes a message and returns its position. Repeats the publication until `until`, if it is
    /// unknown whether the stream has stored the message.
    async fn send(
        &self,
        subject: &str,
        (headers, id): (HeaderMap, Option<&str>),
        payload: Bytes,
        until: Instant,
    ) -> Result<u64, PutError> {
        loop {
            let mut message =
                PublishMessage::build().headers(headers.clone()).payload(payload.clone());
            if let Some(id) = id {
                message = message.message_id(id);
            }
            let sent = async {
                let acknowledged =
                    self.stream.context().send_publish(subject.to_owned(), message).await?;
                acknowledged.await
            };
            let sent = match self.stream.refused_or(tokio::time::timeout_at(until, sent)).await {
                Ok(Ok(sent)) => sent,
                Ok(Err(_)) => {
                    let time = self.limits.publish_time.as_secs_f32();
                    return Err(self.unavailable(format!("no acknowledgement within {time} s")));
                }
                // Perhaps the refusal concerns another request of this connection.
                Err(_) if Instant::now() + PAUSE < until && id.is_some() => {
                    sleep(PAUSE).await;
                    continue;
                }
                Err(refused) => {
                    return Err(self.unavailable(StreamError::from(refused).to_string()));
                }
            };
            match sent {
                Ok(acknowledged) => return Ok(acknowledged.sequence),
                Err(error) => self.rejected(&error, until)?,
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns an error if a publication that failed is not to be repeated.
    fn rejected(&self, error: &PublishError, until: Instant) -> Result<(), PutError> {
        let answer = std::error::Error::source(error)
            .and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>());
        let repeat = match answer.map(|answer| (answer.error_code().0, answer)) {
            Some((code::NOT_STORED, answer)) => {
                let what = answer.to_string();
                return Err(if what.contains("no space left") {
                    PutError::DiskFull { store: self.name() }
                } else {
                    self.unavailable(format!("the stream is full or cannot be written ({what})"))
                });
            }
            Some((code, answer)) if code::NO_RESOURCES.contains(&code) => {
                return Err(
                    self.unavailable(format!("the servers have no more storage ({answer})"))
                );
            }
            Some((code::DUPLICATE_IN_PROGRESS | code::NOT_AVAILABLE, _)) => true,
            Some(_) => false,
            None => !matches!(error.kind(), PublishErrorKind::MaxPayloadExceeded),
        };
        if repeat && Instant::now() + PAUSE < until {
            return Ok(());
        }
        Err(self.unavailable(error.to_string()))
    }

    fn unavailable(&self, what: String) -> PutError {
        PutError::Unavailable { store: self.name(), what }
    }
}

impl EpochStore for StreamStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        self.reads.waits()
    }

    fn accepts(&self) -> Result<(), ReadError> {
        match self.publisher.stream.client().connection_state() {
            State::Connected => Ok(()),
            _ => Err(ReadError::Unavailable { what: "the stream cannot be reached".to_owned() }),
        }
    }

    fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError> {
        let items = batch.len();
        self.submit_batch(&batch.into(), items, reply)
    }

    fn submit_manifests(
        &self,
        manifests: Vec<StoredManifest>,
        reply: Reply,
    ) -> Result<(), PutError> {
        let items = manifests.len();
        let (published, kept) = (Arc::clone(&self.published), manifests.clone());
        let reply: Reply = Box::new(move |result| {
            if result.is_ok() {
                published.add(kept);
            }
            reply(result);
        });
        self.submit_batch(&manifests.into(), items, reply)
    }

    fn submit_urgent(&self, events: Vec<StoredUrgent>, reply: Reply) -> Result<(), PutError> {
        let items = events.len();
        let accepted = Arc::clone(&self.accepted);
        let counted: Vec<Counted> = events.iter().map(Counted::from).collect();
        let reply: Reply = Box::new(move |result| {
            if result.is_ok() {
                accepted.add(&counted);
            }
            reply(result);
        });
        self.submit_batch(&events.into(), items, reply)
    }

    fn urgent(
        &self,
        after: Option<UrgentPlace>,
        limits: UrgentLimits,
        select: &dyn Fn(DeviceId, EpochNumber) -> bool,
    ) -> Result<UrgentPage, ReadError> {
        self.reads.urgent(after, limits, select)
    }

    fn urgent_at(
        &self,
        place: (DeviceId, SealIndex, Sequence),
        limit: usize,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, ReadError> {
        self.reads.urgent_at(place, limit)
    }

    fn urgent_bytes(&self, device: DeviceId) -> Result<u64, ReadError> {
        // Without a store, or before the workers have stored anything, this intake counts what it has published.
        match self.reads.urgent_bytes(device)? {
            0 => Ok(self.accepted.of(device)),
            stored => Ok(stored),
        }
    }

    fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
        after: Option<ManifestKey>,
        limit: usize,
    ) -> Result<Vec<StoredManifest>, ReadError> {
        let stored = self.reads.manifests(since, until, after, limit)?;
        Ok(self.published.merge(stored, (since, until), after, limit))
    }

    fn devices(&self, after: Option<DeviceId>, limit: usize) -> Result<Vec<Head>, ReadError> {
        self.reads.devices(after, limit)
    }

    fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        self.reads.seals(device, from, limit)
    }

    fn seals_since(
        &self,
        device: DeviceId,
        since: EpochNumber,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        self.reads.seals_since(device, since, limit)
    }

    fn seals_at(&self, device: DeviceId, index: SealIndex) -> Result<Vec<StoredSeal>, ReadError> {
        self.reads.seals_at(device, index)
    }

    fn body(&self, seal: &StoredSeal, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        self.reads.body(seal, range)
    }

    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        self.reads.schema(digest)
    }

    fn equivocations(
        &self,
        after: Option<(DeviceId, SealIndex)>,
        limit: usize,
    ) -> Result<Vec<Equivocation>, ReadError> {
        self.reads.equivocations(after, limit)
    }
}
