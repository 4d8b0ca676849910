//! The store: a connection to Cassandra, the runtime that drives it, and the blocking interface of
//! [`EpochStore`].
//!
//! `submit` starts a task and returns. A read starts a task too, and waits for it without the help of
//! a runtime, so it may be called from any thread, including the blocking threads of another runtime.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::time::{Duration, Instant};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex, Sequence};
use moteseal_store::{
    Bundle, EpochStore, Equivocation, Head, ManifestKey, PutError, ReadError, Receipt, Reply,
    StoredManifest, StoredSeal, StoredUrgent, UrgentKey, UrgentLimits, UrgentPage, UrgentPlace,
};
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::address::Address;
use crate::connect::{self, Access};
use crate::error::OpenError;
use crate::fault::{self, Fault};
use crate::known::{EventBytes, Known, KnownRows, Newest};
use crate::login;
use crate::outage::Outage;
use crate::queue::{Queue, Ticket};
use crate::statements::Statements;

/// The maximum number of devices whose bundles are written at the same time. The driver sends their
/// requests together, so that a request takes less processor time the more there are.
pub(crate) const WRITERS: usize = 64;
/// The number of locks of urgent events.
pub(crate) const STORING: usize = 64;

/// How a store works with its keyspace.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether the store only reads.
    pub access: Access,
    /// The maximum number of bytes of batches without a reply. Default 64 MiB.
    pub queue_bytes: usize,
    /// How long a batch is repeated while Cassandra is unavailable. Default 20 s.
    pub put_time: Duration,
    /// How long a read is repeated while Cassandra is unavailable. Default 10 s.
    pub read_time: Duration,
    /// The number of threads. Default 1, which suffices for some 10,000 requests a second: threads that
    /// wake one another take more processor time.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access: Access::ReadWrite,
            queue_bytes: 64 << 20,
            put_time: Duration::from_secs(20),
            read_time: Duration::from_secs(10),
            threads: 1,
        }
    }
}

/// A store in a keyspace of Cassandra.
///
/// Dropping it rejects further batches, and waits for those that have no reply yet.
pub struct TableStore {
    /// Replaced when its user, password or authorities were renewed. An operation uses one table to its end.
    table: Arc<RwLock<Arc<Table>>>,
    queue: Arc<Queue>,
    /// `None` only while the store is dropped.
    runtime: Option<Runtime>,
    options: Options,
}

/// The state that all tasks share.
pub(crate) struct Table {
    pub(crate) session: Session,
    pub(crate) statements: Statements,
    /// The URL, for messages.
    pub(crate) name: String,
    outage: Outage,
    pub(crate) writers: Semaphore,
    known: Mutex<KnownRows>,
    newest: Mutex<Newest>,
    event_bytes: Mutex<EventBytes>,
    /// Held while urgent events of some places of seals are stored, by the hash of the place.
    pub(crate) storing: [tokio::sync::Mutex<()>; STORING],
    /// Held while urgent events get their numbers.
    pub(crate) placing: tokio::sync::Mutex<()>,
    /// A number of the order of urgent events. A quorum has an event with it, unless it is 0.
    pub(crate) last_known: AtomicU64,
}

impl TableStore {
    /// Connects to a keyspace that [`init`](crate::init) has created, and checks that it can be used
    /// and that Cassandra is configured to be durable.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(address: &Address, options: Options) -> Result<Self, OpenError> {
        let failed = |what: String| OpenError::Failed { url: address.to_string(), what };
        let runtime = Builder::new_multi_thread()
            .worker_threads(options.threads.max(1))
            .thread_name("table")
            .enable_all()
            .build()
            .map_err(|error| failed(format!("cannot start threads: {error}")))?;
        let (given, access) = (address.clone(), options.access);
        let opening = wait(&runtime, async move {
            let complete = login::complete(&given)?;
            // A file that changes after this line is found: the digest is that of the files before it.
            let used = login::digest(&complete).ok();
            let table = Table::new(connect::open(&complete, access).await?, &complete);
            Ok((table, used))
        });
        let opened = opening.unwrap_or_else(|| Err(failed("its thread ended".to_owned())));
        let (table, used) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let table = Arc::new(RwLock::new(Arc::new(table)));
        if login::may_change(address) {
            runtime.spawn(login::renew(address.clone(), used, access, Arc::clone(&table)));
        }
        let queue = Queue::new(options.queue_bytes);
        Ok(Self { table, queue, runtime: Some(runtime), options })
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T, F>(&self, read: impl FnOnce(Arc<Table>, Instant) -> F) -> Result<T, ReadError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send + 'static,
    {
        let runtime = self.runtime.as_ref().ok_or(ReadError::Closed)?;
        let deadline = Instant::now() + self.options.read_time;
        let result = wait(runtime, read(self.table(), deadline));
        Ok(result.unwrap_or(Err(Fault::Closed))?)
    }

    fn start<F>(
        &self,
        bytes: usize,
        reply: Reply,
        work: impl FnOnce(Arc<Table>, Instant) -> F,
    ) -> Result<(), PutError>
    where
        F: Future<Output = Result<Receipt, Fault>> + Send + 'static,
    {
        let runtime = self.runtime.as_ref().ok_or(PutError::Closed)?;
        if self.options.access == Access::Read {
            let what = "it was opened for reading only".to_owned();
            return Err(PutError::Failed { store: self.table().name.clone(), what });
        }
        let ticket: Ticket = self.queue.enter(bytes, reply)?;
        let table = self.table();
        let work = work(Arc::clone(&table), Instant::now() + self.options.put_time);
        runtime.spawn(async move {
            let result = work.await.map_err(|fault| fault.on_put(&table.name));
            ticket.answer(result);
        });
        Ok(())
    }
}

/// Runs a future on the runtime, and waits for it. Returns `None` if it panicked.
fn wait<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (send, receive) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        let _ = send.send(work.await);
    });
    receive.recv().ok()
}

impl Drop for TableStore {
    fn drop(&mut self) {
        self.queue.close(self.options.put_time);
        if let Some(runtime) = self.runtime.take() {
            // Dropping a runtime would panic if this thread belongs to another runtime.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for TableStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableStore").field("url", &self.table().name).finish_non_exhaustive()
    }
}

impl Table {
    /// Returns the state of a connection that has nothing in progress.
    pub(crate) fn new((session, statements): (Session, Statements), address: &Address) -> Self {
        Self {
            session,
            statements,
            name: address.to_string(),
            outage: Outage::new(address.to_string()),
            writers: Semaphore::new(WRITERS),
            known: Mutex::new(KnownRows::new(Instant::now())),
            newest: Mutex::default(),
            event_bytes: Mutex::default(),
            storing: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            placing: tokio::sync::Mutex::default(),
            last_known: AtomicU64::new(0),
        }
    }

    /// Returns the connection, and what notes whether it answers.
    pub(crate) const fn connection(&self) -> (&Session, &Outage) {
        (&self.session, &self.outage)
    }

    /// Executes a statement.
    pub(crate) async fn run(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        deadline: Instant,
    ) -> Result<(), Fault> {
        fault::execute(self.connection(), statement, values, deadline).await.map(drop)
    }

    /// Writes rows of one partition, all or none of them.
    pub(crate) async fn run_all(
        &self,
        statement: &PreparedStatement,
        rows: Vec<impl SerializeRow>,
        deadline: Instant,
    ) -> Result<(), Fault> {
        match <[_; 1]>::try_from(rows) {
            Ok([row]) => self.run(statement, row, deadline).await,
            Err(rows) if rows.is_empty() => Ok(()),
            Err(rows) => fault::batch(self.connection(), statement, rows, deadline).await,
        }
    }

    /// Executes a statement and returns its rows.
    pub(crate) async fn rows<R>(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        deadline: Instant,
    ) -> Result<Vec<R>, Fault>
    where
        R: for<'r> DeserializeRow<'r, 'r>,
    {
        fault::rows(self.connection(), statement, values, deadline).await
    }

    pub(crate) fn is_known(&self, row: Known) -> bool {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(row, Instant::now())
    }

    pub(crate) fn remember(&self, row: Known) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(row, Instant::now());
    }

    /// Returns the newest index in a span when this process stored there last, if it knows.
    pub(crate) fn newest_index(&self, device: DeviceId, span: i32) -> Option<SealIndex> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).get(device, span)
    }

    pub(crate) fn remember_index(&self, device: DeviceId, span: i32, index: SealIndex) {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).insert(device, span, index);
    }

    /// Returns what this process knows of the bytes of urgent events of devices.
    pub(crate) fn event_bytes(&self) -> MutexGuard<'_, EventBytes> {
        self.event_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what this process has written.
    pub(crate) fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = KnownRows::new(Instant::now());
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Newest::default();
        *self.event_bytes() = EventBytes::default();
    }
}

impl EpochStore for TableStore {
    fn is_shared(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }

    fn submit(&self, batch: Vec<Bundle>, reply: Reply) -> Result<(), PutError> {
        let bytes = batch.iter().map(Bundle::stored_bytes).sum();
        self.start(bytes, reply, |table, deadline| async move { table.put(batch, deadline).await })
    }

    fn submit_manifests(
        &self,
        manifests: Vec<StoredManifest>,
        reply: Reply,
    ) -> Result<(), PutError> {
        let bytes = manifests.iter().map(|manifest| manifest.bytes().len()).sum();
        self.start(bytes, reply, |table, deadline| async move {
            table.put_manifests(&manifests, deadline).await
        })
    }

    fn submit_urgent(&self, events: Vec<StoredUrgent>, reply: Reply) -> Result<(), PutError> {
        let bytes = events.iter().map(|event| event.bytes().len()).sum();
        self.start(bytes, reply, |table, deadline| async move {
            table.put_urgent(&events, deadline).await
        })
    }

    fn urgent(
        &self,
        after: Option<UrgentPlace>,
        limits: UrgentLimits,
        select: &dyn Fn(DeviceId, EpochNumber) -> bool,
    ) -> Result<UrgentPage, ReadError> {
        let (places, mut has_more) = self.read(move |table, deadline| async move {
            table.places(after, limits.read, deadline).await
        })?;
        let (mut page, mut bytes) = (UrgentPage::default(), 0);
        for place in places {
            if page.events.len() >= limits.events || bytes >= limits.bytes {
                has_more = true;
                break;
            }
            page.last = Some(UrgentPlace { number: place.number, digest: place.key.digest });
            if !select(place.key.device, place.epoch) {
                continue;
            }
            let event = self
                .read(move |table, deadline| async move { table.event(&place, deadline).await })?;
            if let Some(event) = event {
                bytes += event.len();
                page.events.push((place.key, event));
            }
        }
        page.has_more = has_more;
        Ok(page)
    }

    fn urgent_at(
        &self,
        place: (DeviceId, SealIndex, Sequence),
        limit: usize,
    ) -> Result<Vec<(UrgentKey, Vec<u8>)>, ReadError> {
        self.read(
            move |table, deadline| async move { table.events_at(place, limit, deadline).await },
        )
    }

    fn urgent_bytes(&self, device: DeviceId) -> Result<u64, ReadError> {
        self.read(move |table, deadline| async move { table.urgent_bytes(device, deadline).await })
    }

    fn manifests(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
        after: Option<ManifestKey>,
        limit: usize,
    ) -> Result<Vec<StoredManifest>, ReadError> {
        self.read(move |table, deadline| async move {
            table.manifests(since, until, after, limit, deadline).await
        })
    }

    fn devices(&self, after: Option<DeviceId>, limit: usize) -> Result<Vec<Head>, ReadError> {
        self.read(move |table, deadline| async move { table.devices(after, limit, deadline).await })
    }

    fn seals(
        &self,
        device: DeviceId,
        from: SealIndex,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        self.read(
            move |table, deadline| async move { table.seals(device, from, limit, deadline).await },
        )
    }

    fn seals_since(
        &self,
        device: DeviceId,
        since: EpochNumber,
        limit: usize,
    ) -> Result<Vec<StoredSeal>, ReadError> {
        self.read(move |table, deadline| async move {
            match table.first_since(device, since, deadline).await? {
                Some(first) => table.seals(device, first, limit, deadline).await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn seals_at(&self, device: DeviceId, index: SealIndex) -> Result<Vec<StoredSeal>, ReadError> {
        self.read(
            move |table, deadline| async move { table.seals_at(device, index, deadline).await },
        )
    }

    fn body(&self, seal: &StoredSeal, range: Range<u64>) -> Result<Vec<u8>, ReadError> {
        if let Some(body) = seal.inline_body() {
            let start = usize::try_from(range.start).unwrap_or(usize::MAX);
            let end = usize::try_from(range.end).unwrap_or(usize::MAX);
            return body
                .get(start..end)
                .map(<[u8]>::to_vec)
                .ok_or_else(|| Fault::seal(seal.key(), "its events are truncated").into());
        }
        let (key, kept, length) = (seal.key(), seal.kept(), seal.body_length());
        self.read(move |table, deadline| async move {
            table.body(key, kept, length, range, deadline).await
        })
    }

    fn schema(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ReadError> {
        let digest = *digest;
        self.read(move |table, deadline| async move { table.schema(digest, deadline).await })
    }

    fn equivocations(
        &self,
        after: Option<(DeviceId, SealIndex)>,
        limit: usize,
    ) -> Result<Vec<Equivocation>, ReadError> {
        self.read(move |table, deadline| async move {
            table.equivocations(after, limit, deadline).await
        })
    }
}
