//! Streams, stores and devices for the tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_store::conformance::Mote;
use moteseal_store::{Bundle, EpochStore, Options, PutError, Receipt, RedbStore, UrgentLimits};
use moteseal_stream::{
    Authority, Credentials, Duty, IntakeLimits, Layout, Permissions, Role, Settings, Stream,
    StreamStore, SyncCheck, Worker, WorkerCounts, WorkerLimits, push_account,
};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use crate::server::{SYNCED, Server, folder};

/// Returns the server that most tests share. It ends with the test program.
pub(crate) fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

/// A server whose users are those of an authority.
pub(crate) struct Governed {
    pub(crate) server: Server,
    pub(crate) authority: Authority,
    folder: TempDir,
}

impl Governed {
    /// Starts a server for the stream `moteseal` with short messages. `more` are further lines of its configuration.
    pub(crate) fn start(more: &str) -> Self {
        let (authority, folder) = (Authority::generate(), folder());
        let lines = authority.server_lines(
            &authority.operator_jwt(1).unwrap(),
            &authority.account_jwt("moteseal", &BTreeMap::new(), 1).unwrap(),
            &authority.system_jwt(1).unwrap(),
            folder.path().join("accounts").to_str().unwrap(),
        );
        let server = Server::with(SYNCED, &format!("max_payload: 65536\n{lines}{more}"));
        let governed = Self { server, authority, folder };
        governed.write("system", &governed.authority.system_user(1).unwrap());
        governed
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, user: &Credentials) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, user.text().as_bytes()).unwrap();
        path
    }

    /// Issues credentials for these duties. Returns the user's public key and the settings of a connection.
    pub(crate) fn user(&self, name: &str, duties: &[Duty]) -> (String, Settings) {
        let permissions = Permissions::of("moteseal", duties);
        let user = self.authority.user(name, &permissions, None, 10).unwrap();
        let file = self.write(name, &user);
        let settings = Settings {
            credentials: Some(file),
            inbox: duties[0].inbox().to_owned(),
            ..settings(&self.server, "moteseal", Role::Serve)
        };
        (user.user(), settings)
    }

    /// Passes an account without these users to the server.
    pub(crate) async fn revoke(&self, users: &[String], at: u64) {
        let revoked = users.iter().map(|user| (user.clone(), at)).collect();
        let jwt = self.authority.account_jwt("moteseal", &revoked, at).unwrap();
        push_account(self.system(), &jwt).await.unwrap();
    }

    /// The settings of the user who may pass accounts to the server.
    pub(crate) fn system(&self) -> Settings {
        Settings {
            credentials: Some(self.path("system")),
            inbox: Duty::Admin.inbox().to_owned(),
            ..settings(&self.server, "moteseal", Role::Serve)
        }
    }
}

/// Returns a name that no other stream of this test program has.
pub(crate) fn name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A small layout whose messages are delivered again soon.
pub(crate) fn layout() -> Layout {
    Layout {
        max_bytes: 32 << 20,
        piece_bytes: 64 << 20,
        dead_bytes: 4 << 20,
        ack_wait: Duration::from_secs(2),
        max_in_progress: 256,
    }
}

pub(crate) fn settings(server: &Server, name: &str, role: Role) -> Settings {
    Settings {
        name: name.to_owned(),
        sync: SyncCheck::Monitors(vec![server.monitor.clone()]),
        request_time: Duration::from_secs(2),
        ..Settings::new(vec![server.url.clone()], role)
    }
}

/// Connects to a stream of a server, after it was created and checked.
pub(crate) async fn connect(server: &Server, name: &str, role: Role) -> Stream {
    let stream = Stream::connect(settings(server, name, role)).await.unwrap();
    stream.check(role).await.unwrap();
    stream
}

/// Creates the streams of a new name.
pub(crate) async fn created(server: &Server, layout: &Layout) -> String {
    let name = name();
    let stream = Stream::connect(settings(server, &name, Role::Intake)).await.unwrap();
    stream.init(layout).await.unwrap();
    name
}

/// An embedded store in a folder of its own.
pub(crate) struct Store {
    pub(crate) store: Arc<dyn EpochStore>,
    _folder: TempDir,
}

impl Store {
    pub(crate) fn new() -> Self {
        let folder = folder();
        let store =
            RedbStore::open(&folder.path().join("epochs.redb"), Options::default()).unwrap();
        Self { store: Arc::new(store), _folder: folder }
    }
}

/// The store of an intake.
pub(crate) async fn intake(server: &Server, name: &str, reads: &Store) -> StreamStore {
    let stream = connect(server, name, Role::Intake).await;
    StreamStore::new(stream, Arc::clone(&reads.store), IntakeLimits::default())
}

/// Submits bundles and waits for the receipt.
pub(crate) async fn put(store: &dyn EpochStore, batch: Vec<Bundle>) -> Result<Receipt, PutError> {
    let (reply, receipt) = oneshot::channel();
    store.submit(batch, Box::new(move |result| drop(reply.send(result))))?;
    receipt.await.unwrap()
}

/// A worker that runs until it is stopped.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    pub(crate) counts: Arc<WorkerCounts>,
    task: JoinHandle<()>,
}

pub(crate) fn worker_limits() -> WorkerLimits {
    WorkerLimits { patience: Duration::from_secs(1), ..WorkerLimits::default() }
}

impl Running {
    pub(crate) async fn start(server: &Server, name: &str, store: &Store) -> Self {
        Self::with(server, name, Arc::clone(&store.store), worker_limits()).await
    }

    pub(crate) async fn with(
        server: &Server,
        name: &str,
        store: Arc<dyn EpochStore>,
        limits: WorkerLimits,
    ) -> Self {
        let stream = connect(server, name, Role::Worker).await;
        let worker = Worker::new(stream, store, None, limits).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let counts = worker.counts();
        let task = tokio::spawn(worker.run(async { drop(stopped.await) }));
        Self { stop: Some(stop), counts, task }
    }

    /// Ends the worker at once, as a kill would.
    pub(crate) fn kill(self) {
        self.task.abort();
    }

    /// Ends the worker in order.
    pub(crate) async fn stop(mut self) -> Arc<WorkerCounts> {
        drop(self.stop.take());
        self.task.await.unwrap();
        self.counts
    }
}

/// Seals `n` bundles of `events` readings each.
pub(crate) fn bundles(device: &str, n: u32, events: u32) -> Vec<Bundle> {
    let mut mote = Mote::new(device, false);
    (0..n).map(|epoch| mote.seal_some(Scheme::Star, epoch.into(), events).bundle).collect()
}

/// Everything that a store has, in a form that can be compared.
pub(crate) fn content(store: &dyn EpochStore) -> BTreeMap<String, Vec<u8>> {
    let mut content = BTreeMap::new();
    for head in store.devices(None, 1000).unwrap() {
        for seal in store.seals(head.key.device, SealIndex(0), 100_000).unwrap() {
            let key = seal.key();
            let body = store.body(&seal, 0..seal.body_length()).unwrap();
            content.insert(format!("{key} {}", key.digest), body);
        }
    }
    for manifest in store.manifests(EpochNumber(0), None, None, 1000).unwrap() {
        content.insert(manifest.key().to_string(), manifest.bytes().to_vec());
    }
    let limits = UrgentLimits { read: 1000, events: 1000, bytes: 1 << 20 };
    for (key, bytes) in store.urgent(None, limits, &|_, _| true).unwrap().events {
        content.insert(format!("{key} {}", key.digest), bytes);
    }
    for found in store.equivocations(None, 1000).unwrap() {
        content.insert(format!("equivocation {} {}", found.device, found.index), Vec::new());
    }
    content
}

/// Waits until a condition holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what} takes too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until two stores have the same content.
pub(crate) async fn same(store: &Store, expected: &Store) {
    let expected = content(&*expected.store);
    until("storing everything", || content(&*store.store).len() >= expected.len()).await;
    assert!(content(&*store.store) == expected, "the content differs");
}
