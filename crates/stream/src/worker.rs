//! A worker: takes messages from the stream, writes them to a store, and acknowledges them to the stream
//! after the store has made them durable.
//!
//! A message that was delivered has one of three ends. It is acknowledged, after its batch is durable in
//! the store, or after the message is durable among the dead letters. It is returned to the stream, if the
//! store does not accept it for a while. Or the stream gives it to another worker, if this one dies.
//!
//! A message goes to the dead letters if it can never be stored, or if the store rejects it for long while
//! it stores others.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{AckKind, Message};
use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use moteseal_core::digest::Digest;
use moteseal_store::{Batch, EpochStore, PutError, Receipt, Reply};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{Level, debug, enabled, info, warn};

use crate::backlog::Backlog;
use crate::connection::Stream;
use crate::error::StreamError;
use crate::message::{Content, Pieces, Unstorable, length, open};
use crate::pieces::{NoPieces, Sweep};
use crate::rejected::{Key, Rejected};
use crate::settings::WorkerLimits;

/// The shortest pause before something that failed is tried again; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause before something that failed is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long after a message was returned to the stream it is delivered again.
const RETURN_DELAY: Duration = Duration::from_secs(2);
/// How often this delay is doubled at most, for a message that the store rejects: to 32 seconds.
const MOST_DOUBLINGS: u32 = 4;
/// What the log says of pieces that are not read now.
const UNREAD: &str = "the pieces of a batch could not be read; trying again later";
/// How often a message is delivered before it is a dead letter, if its pieces are missing.
const MISSES: u32 = 3;
/// How many messages are written at the same time, if each is written by itself.
const SINGLES: usize = 32;
/// How many messages are requested at once is limited by their longest bytes.
const REQUESTED_BYTES: usize = 64 << 20;
/// The interval at which pieces without a batch are looked for, at most.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Removes from a receipt the conflicts that the rows of the store do not prove, and logs the others. It may block.
pub type CheckConflicts = Arc<dyn Fn(&dyn EpochStore, &mut Receipt) + Send + Sync>;

/// What a worker has done so far.
#[derive(Debug, Default)]
pub struct WorkerCounts {
    messages: AtomicU64,
    stored: AtomicU64,
    known: AtomicU64,
    conflicts: AtomicU64,
    writes: AtomicU64,
    retries: AtomicU64,
    returned: AtomicU64,
    dead: AtomicU64,
    is_stuck: AtomicBool,
    backlog: Backlog,
}

/// Defines the functions that return the counts.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        impl WorkerCounts {
            $($(#[$doc])* #[must_use] pub fn $name(&self) -> u64 { self.$name.load(Ordering::Relaxed) })+
        }
    };
}

counts! {
    /// The messages that were stored and acknowledged.
    messages,
    /// The bundles, manifests and urgent events that were new to the store.
    stored,
    /// Those that the store already had.
    known,
    /// The places at which a device or coordinator signed different things.
    conflicts,
    /// The writes to the store.
    writes,
    /// The writes that failed and were repeated.
    retries,
    /// The messages that were returned to the stream.
    returned,
    /// The messages that were written to the dead letters.
    dead,
}

impl WorkerCounts {
    /// Returns whether the worker cannot take messages or cannot store them at the moment.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    /// Returns the number of messages of the stream that no worker has stored yet, unless it is unknown. It is at most a few
    /// seconds old.
    #[must_use]
    pub fn waiting(&self) -> Option<u64> {
        self.backlog.waiting()
    }

    /// Returns the number of dead letters, unless it is unknown. It is at most a few seconds old.
    #[must_use]
    pub fn dead_letters(&self) -> Option<u64> {
        self.backlog.dead()
    }

    fn add(&self, receipt: &Receipt) {
        let conflicts =
            receipt.equivocations.len() + receipt.doubled.len() + receipt.doubled_events.len();
        self.stored.fetch_add(receipt.stored, Ordering::Relaxed);
        self.known.fetch_add(receipt.known, Ordering::Relaxed);
        self.conflicts.fetch_add(conflicts as u64, Ordering::Relaxed);
    }
}

/// A worker of a stream. Any number of workers, in any number of processes, share the messages.
pub struct Worker {
    shared: Arc<Shared>,
}

struct Shared {
    stream: Stream,
    store: Arc<dyn EpochStore>,
    limits: WorkerLimits,
    counts: Arc<WorkerCounts>,
    rejected: Mutex<Rejected>,
    /// How long the stream waits for an acknowledgement.
    ack_wait: Duration,
    check_conflicts: Option<CheckConflicts>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("stream", &self.shared.stream).finish_non_exhaustive()
    }
}

impl Worker {
    /// Returns a worker that writes to a store. A worker verifies no signatures itself, so without
    /// `check_conflicts` it reports two different rows of one place even if nobody signed both.
    ///
    /// # Errors
    /// [`StreamError`] if the consumer cannot be read.
    pub async fn new(
        stream: Stream,
        store: Arc<dyn EpochStore>,
        check_conflicts: Option<CheckConflicts>,
        limits: WorkerLimits,
    ) -> Result<Self, StreamError> {
        let info = stream.consumer_info().await?;
        let ack_wait = info["config"]["ack_wait"].as_u64().unwrap_or(30_000_000_000);
        let ack_wait = Duration::from_nanos(ack_wait).max(FIRST_PAUSE);
        let counts = Arc::default();
        let rejected = Mutex::new(Rejected::new(limits.rejection_time));
        let shared = Shared { stream, store, limits, counts, rejected, ack_wait, check_conflicts };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns what the worker has done so far.
    #[must_use]
    pub fn counts(&self) -> Arc<WorkerCounts> {
        Arc::clone(&self.shared.counts)
    }

    /// Works until `stop` completes. Then it finishes the writes in progress, returns the messages that it
    /// has not begun to write, and returns.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let shared = self.shared;
        let mut stop = pin!(stop);
        let mut tasks = JoinSet::new();
        let mut pause = FIRST_PAUSE;
        let sweep = tokio::spawn(sweep(Arc::clone(&shared)));
        let backlog = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { shared.counts.backlog.watch(&shared.stream).await }
        });
        'connected: loop {
            let opened = tokio::select! {
                () = &mut stop => break,
                opened = shared.open() => opened,
            };
            let mut messages = match opened {
                Ok(messages) => messages,
                Err(error) => {
                    shared.stuck(true);
                    warn!(%error, "the worker cannot take messages; trying again");
                    tokio::select! {
                        () = &mut stop => break,
                        () = sleep(pause) => {}
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
            };
            loop {
                tokio::select! {
                    biased;
                    () = &mut stop => {
                        shared.return_undelivered(&mut messages).await;
                        break 'connected;
                    }
                    Some(done) = tasks.join_next(), if !tasks.is_empty() => {
                        if let Err(error) = done {
                            warn!(%error, "a write ended unexpectedly; its messages are delivered again");
                        }
                    }
                    next = messages.next(), if tasks.len() < shared.limits.writes => match next {
                        Some(Ok(first)) => {
                            pause = FIRST_PAUSE;
                            let chunk = shared.chunk(first, &mut messages);
                            let shared = Arc::clone(&shared);
                            tasks.spawn(async move {
                                shared.write(chunk, shared.limits.patience).await;
                            });
                        }
                        Some(Err(error)) => {
                            warn!(%error, "the worker cannot take messages; connecting again");
                            break;
                        }
                        None => break,
                    },
                }
            }
            shared.stuck(true);
            tokio::select! {
                () = &mut stop => break,
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        while tasks.join_next().await.is_some() {}
        sweep.abort();
        backlog.abort();
        let _ = shared.stream.client().flush().await;
    }
}

/// Removes pieces without a batch from time to time.
async fn sweep(shared: Arc<Shared>) {
    let age = shared.limits.orphan_age;
    let mut sweep = Sweep::new(age);
    loop {
        sleep((age / 4).clamp(FIRST_PAUSE, SWEEP_INTERVAL)).await;
        sweep.step(&shared.stream).await;
    }
}

/// A message, its batch, and what is needed to read the batch again.
struct Loaded {
    message: Message,
    digest: Digest,
    bytes: Bytes,
    pieces: Option<Pieces>,
    batch: Batch,
}

impl Loaded {
    fn key(&self) -> Key {
        (position(&self.message), self.digest)
    }
}

impl Shared {
    fn rejected(&self) -> MutexGuard<'_, Rejected> {
        self.rejected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stuck(&self, is_stuck: bool) {
        self.counts.is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    async fn open(&self) -> Result<pull::Stream, StreamError> {
        let failed = |what: String| StreamError::StreamFailed { what };
        let names = self.stream.names();
        let consumer: PullConsumer = self
            .stream
            .refused_or(
                self.stream.context().get_consumer_from_stream(names.consumer, &names.batches),
            )
            .await?
            .map_err(|error| failed(error.to_string()))?;
        let longest = self.stream.client().server_info().max_payload.max(1);
        let at_once = (REQUESTED_BYTES / longest).clamp(1, self.limits.messages.max(1));
        let messages = consumer
            .stream()
            .max_messages_per_batch(at_once)
            .expires(Duration::from_secs(30))
            .heartbeat(Duration::from_secs(5))
            .messages()
            .await
            .map_err(|error| failed(error.to_string()))?;
        self.stuck(false);
        Ok(messages)
    }

    /// Returns a message and those that have arrived after it, up to the limits.
    fn chunk(&self, first: Message, messages: &mut pull::Stream) -> Vec<Message> {
        let mut bytes = length(&first);
        let mut chunk = vec![first];
        while chunk.len() < self.limits.messages
            && bytes < self.limits.bytes
            && let Some(Some(Ok(next))) = messages.next().now_or_never()
        {
            bytes = bytes.saturating_add(length(&next));
            chunk.push(next);
        }
        chunk
    }

    /// Returns the messages that have arrived and are not being written to the stream.
    async fn return_undelivered(&self, messages: &mut pull::Stream) {
        while let Some(Some(Ok(message))) = messages.next().now_or_never() {
            let _ = message.ack_with(AckKind::Nak(None)).await;
        }
    }

    /// Stores messages and acknowledges them. If the store does not accept them within `patience`,
    /// returns them to the stream.
    async fn write(&self, chunk: Vec<Message>, patience: Duration) {
        let arrived = Instant::now();
        let mut loaded = Vec::with_capacity(chunk.len());
        for message in chunk {
            loaded.extend(self.load(message).await);
        }
        if loaded.is_empty() {
            return;
        }
        let mut together = Batch::default();
        for one in &mut loaded {
            let batch = std::mem::take(&mut one.batch);
            together.bundles.extend(batch.bundles);
            together.manifests.extend(batch.manifests);
            together.events.extend(batch.events);
        }
        let until = Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        let mut progress = Instant::now() + self.ack_wait / 3;
        loop {
            let mut put = pin!(self.put(together));
            // A slow write must not look like a dead worker.
            let result = loop {
                tokio::select! {
                    result = &mut put => break result,
                    () = sleep_until(progress) => {
                        in_progress(&loaded).await;
                        progress = Instant::now() + self.ack_wait / 3;
                    }
                }
            };
            match result {
                Ok(()) => break,
                Err(error) => {
                    self.counts.retries.fetch_add(1, Ordering::Relaxed);
                    let is_over = Instant::now() + pause >= until || error == PutError::Closed;
                    let is_of_some = match &error {
                        PutError::Unavailable { .. } => is_over,
                        error => !matches!(error, PutError::Busy | PutError::Closed),
                    };
                    if is_over {
                        self.stuck(true);
                    }
                    if is_of_some && loaded.len() > 1 {
                        // Perhaps one message causes the error, or the replicas of some devices do not answer. The
                        // others must not wait for them.
                        warn!(%error, "the store failed; writing the messages one by one");
                        return self.write_singly(loaded).await;
                    }
                    if is_over {
                        warn!(
                            %error,
                            messages = loaded.len(),
                            "the store does not accept data; the messages are returned to the stream"
                        );
                        return self.give_back(&loaded, &error).await;
                    }
                }
            }
            sleep(pause.min(progress.saturating_duration_since(Instant::now()))).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            together = again(&loaded);
        }
        self.stuck(false);
        {
            let mut rejected = self.rejected();
            loaded.iter().for_each(|one| rejected.forget(&one.key()));
        }
        if enabled!(Level::DEBUG) {
            let positions = loaded.iter().map(|one| position(&one.message));
            let (first, last) = (positions.clone().min(), positions.max());
            let took_us = u64::try_from(arrived.elapsed().as_micros()).unwrap_or(u64::MAX);
            debug!(messages = loaded.len(), first, last, took_us, "stored");
        }
        join_all(loaded.iter().map(|one| self.acknowledge(one))).await;
    }

    /// Tries once to store each message.
    fn write_singly(&self, loaded: Vec<Loaded>) -> BoxFuture<'_, ()> {
        let messages = loaded.into_iter().map(|one| one.message);
        let write = |message| self.write(vec![message], Duration::ZERO);
        Box::pin(stream::iter(messages).for_each_concurrent(SINGLES, write))
    }

    /// Reads the batch of a message. A message that can never be stored goes to the dead letters; one
    /// whose pieces cannot be read now is returned to the stream.
    async fn load(&self, message: Message) -> Option<Loaded> {
        let error = match Content::of(&message) {
            Ok(Content::Whole(digest, bytes)) => match open(&digest, &bytes) {
                Ok(batch) => return Some(Loaded { message, digest, bytes, pieces: None, batch }),
                Err(error) => error,
            },
            Ok(Content::Pieces(pieces)) => {
                match self.stream.read_pieces(&pieces, self.limits.batch_bytes).await {
                    Ok(bytes) => match open(&pieces.digest, &bytes) {
                        Ok(batch) => {
                            let (digest, bytes) = (pieces.digest, Bytes::from(bytes));
                            let pieces = Some(pieces);
                            return Some(Loaded { message, digest, bytes, pieces, batch });
                        }
                        Err(error) => error,
                    },
                    Err(NoPieces::Never(error)) => {
                        // If an acknowledgement comes late, the stream delivers the message a second time. The first
                        // delivery may be stored, and its pieces removed, before the second is read. The servers
                        // remove the message a little later; until then, it is returned.
                        if error == Unstorable::PieceMissing {
                            let position = position(&message);
                            match self.stream.has_message(position).await {
                                Ok(false) => return None,
                                Ok(true) if deliveries(&message) >= MISSES => {}
                                unknown => {
                                    warn!(position, ?unknown, "{UNREAD}");
                                    self.return_one(&message, RETURN_DELAY).await;
                                    return None;
                                }
                            }
                        }
                        error
                    }
                    Err(NoPieces::Now(error)) => {
                        warn!(%error, "{UNREAD}");
                        self.return_one(&message, RETURN_DELAY).await;
                        return None;
                    }
                }
            }
            Err(error) => error,
        };
        self.bury(&message, error.name(), RETURN_DELAY).await;
        None
    }

    /// Writes a message to the dead letters, and then acknowledges it. Returns whether both are confirmed. If it
    /// cannot be written, it is returned to the stream and delivered again after `delay`.
    async fn bury(&self, message: &Message, name: &str, delay: Duration) -> bool {
        let position = position(message);
        match self.stream.bury(message, position, name).await {
            Ok(()) => {
                self.counts.dead.fetch_add(1, Ordering::Relaxed);
                warn!(
                    name,
                    position,
                    "a message cannot be stored; it is among the dead letters now (`moteseal stream \
                     dead list`)"
                );
                self.confirm(message).await
            }
            Err(failure) => {
                self.stuck(true);
                warn!(error = %failure, "a dead letter could not be written; trying again later");
                self.return_one(message, delay).await;
                false
            }
        }
    }

    /// Writes a batch to the store and waits until it is durable.
    async fn put(&self, batch: Batch) -> Result<(), PutError> {
        let Batch { bundles, manifests, events } = batch;
        let store = &self.store;
        // A manifest is stored before bundles, because bundles that were pruned need it.
        if !manifests.is_empty() {
            self.submitted(|reply| store.submit_manifests(manifests, reply)).await?;
        }
        if !bundles.is_empty() {
            self.submitted(|reply| store.submit(bundles, reply)).await?;
        }
        if !events.is_empty() {
            self.submitted(|reply| store.submit_urgent(events, reply)).await?;
        }
        Ok(())
    }

    async fn submitted(
        &self,
        submit: impl FnOnce(Reply) -> Result<(), PutError>,
    ) -> Result<(), PutError> {
        let (reply, stored) = oneshot::channel();
        submit(Box::new(move |result| {
            let _ = reply.send(result);
        }))?;
        let receipt = stored.await.unwrap_or(Err(PutError::Closed))?;
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.add(&self.checked(receipt).await);
        Ok(())
    }

    /// Checks the conflicts of a receipt, if it has any.
    async fn checked(&self, mut receipt: Receipt) -> Receipt {
        let Some(check) = self.check_conflicts.as_ref().filter(|_| receipt.has_conflicts()) else {
            return receipt;
        };
        let unchecked = receipt.clone();
        let (check, store) = (Arc::clone(check), Arc::clone(&self.store));
        let check = move || {
            check(&*store, &mut receipt);
            receipt
        };
        let checked = tokio::task::spawn_blocking(check).await;
        checked.unwrap_or_else(|error| {
            warn!(%error, "the check of conflicts failed, so the store's own conflicts are counted");
            unchecked
        })
    }

    /// Acknowledges a message whose batch is stored, and removes its pieces.
    async fn acknowledge(&self, one: &Loaded) {
        if !self.confirm(&one.message).await {
            return;
        }
        self.counts.messages.fetch_add(1, Ordering::Relaxed);
        if let Some(pieces) = &one.pieces
            && let Err(error) = self.stream.remove_pieces(pieces).await
        {
            info!(%error, "the pieces of a stored batch are removed later");
        }
    }

    /// Acknowledges a message and waits until the stream has confirmed it. Without a confirmation, the
    /// stream delivers the message again.
    async fn confirm(&self, message: &Message) -> bool {
        let Some(reply) = message.reply.clone() else { return false };
        let sent = self.stream.client().request(reply, Bytes::from_static(b"+ACK")).await;
        if let Err(error) = &sent {
            info!(%error, "the stream did not confirm an acknowledgement; it delivers the message again");
        }
        sent.is_ok()
    }

    /// Returns messages to the stream. Those that the store has rejected for long, while it stored others, go to
    /// the dead letters instead.
    async fn give_back(&self, loaded: &[Loaded], error: &PutError) {
        for one in loaded {
            if !matches!(error, PutError::Failed { .. }) {
                self.return_one(&one.message, RETURN_DELAY).await;
                continue;
            }
            // Perhaps the store rejects it for long, and it delays others each time.
            let before = deliveries(&one.message).saturating_sub(1);
            let delay = RETURN_DELAY * 2_u32.pow(before.min(MOST_DOUBLINGS));
            let stored = self.counts.stored();
            let is_over = self.rejected().note(one.key(), stored, Instant::now());
            if !is_over {
                self.return_one(&one.message, delay).await;
            } else if self.bury(&one.message, error.name(), delay).await {
                self.rejected().forget(&one.key());
            }
        }
    }

    async fn return_one(&self, message: &Message, delay: Duration) {
        self.counts.returned.fetch_add(1, Ordering::Relaxed);
        let _ = message.ack_with(AckKind::Nak(Some(delay))).await;
    }
}

/// Returns how often a message was delivered.
fn deliveries(message: &Message) -> u32 {
    message.info().map_or(0, |info| u32::try_from(info.delivered).unwrap_or(0))
}

/// Returns the position of a message in the stream.
fn position(message: &Message) -> u64 {
    message.info().map_or(0, |info| info.stream_sequence)
}

/// Tells the stream that the messages are still being written.
async fn in_progress(loaded: &[Loaded]) {
    for one in loaded {
        let _ = one.message.ack_with(AckKind::Progress).await;
    }
}

/// Reads the batches of messages again.
fn again(loaded: &[Loaded]) -> Batch {
    let mut together = Batch::default();
    for one in loaded {
        // It has been read once, so it can be read again.
        if let Ok(batch) = open(&one.digest, &one.bytes) {
            together.bundles.extend(batch.bundles);
            together.manifests.extend(batch.manifests);
            together.events.extend(batch.events);
        }
    }
    together
}
