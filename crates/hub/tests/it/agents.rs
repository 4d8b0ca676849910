//! What the tests of agents share: packages with the example `agent`, and a hub that records their
//! lines.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use moteseal_core::record::GroupId;
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_hub::agents::manifest::PackedFile;
use moteseal_hub::agents::package::{Trust, list, pack};
use moteseal_hub::agents::{
    AgentError, Agents, Commands, Confinement, Installed, Limits, Manifest, Settings, Status,
    Store, Timing,
};
use moteseal_hub::line::{Line, Lines, MAX_WAITING, Outcome};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub(crate) fn operator() -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap()
}

pub(crate) fn trust() -> Trust {
    Trust { group: GroupId::of("home"), operator: operator().public() }
}

/// Returns a built example of this crate.
pub(crate) fn example(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().and_then(Path::parent).unwrap();
    folder.join("examples").join(name)
}

/// A manifest without files.
pub(crate) fn manifest(name: &str, version: u64) -> Manifest {
    Manifest {
        group: GroupId::of("home"),
        name: name.to_owned(),
        version,
        minimum: 1.min(version),
        arguments: vec!["agent".to_owned()],
        limits: Limits::DEFAULT,
        start_timeout_ms: 1000,
        files: Vec::new(),
    }
}

/// A package in memory with the given files, signed by `signer`.
pub(crate) fn package(
    mut manifest: Manifest,
    files: &[(&str, &[u8])],
    signer: &SecretKey,
) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    manifest.files = list(folder.path()).unwrap();
    let mut out = Vec::new();
    pack(folder.path(), &manifest, signer, &mut out).unwrap();
    out
}

/// A file of a manifest.
pub(crate) fn packed(path: &str, size: u64) -> PackedFile {
    PackedFile { path: path.to_owned(), is_executable: true, size, digest: [0; 32] }
}

/// A package with the example `agent`.
pub(crate) fn agent(name: &str, version: u64, arguments: &[&str], limits: Limits) -> Vec<u8> {
    let mut manifest = manifest(name, version);
    manifest.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
    manifest.limits = limits;
    let program = fs::read(example("agent")).unwrap();
    package(manifest, &[("agent", &program)], &operator())
}

/// A package with a Perl script.
pub(crate) fn script(name: &str, script: &[u8], arguments: &[&str], limits: Limits) -> Vec<u8> {
    let mut manifest = manifest(name, 1);
    manifest.arguments = vec!["/usr/bin/perl".to_owned(), "script.pl".to_owned()];
    manifest.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
    manifest.limits = limits;
    package(manifest, &[("script.pl", script)], &operator())
}

/// The limits of the tests' agents.
pub(crate) fn limits() -> Limits {
    Limits { cpu_permille: 1_000_000, ..Limits::DEFAULT }
}

/// Delays that are short enough for tests.
pub(crate) fn timing() -> Timing {
    Timing {
        backoff_first: Duration::from_millis(20),
        backoff_longest: Duration::from_millis(500),
        stable: Duration::from_secs(60),
        stop: Duration::from_secs(5),
        poll: Duration::from_millis(20),
        measure: Duration::from_millis(50),
        cpu_window: Duration::from_millis(500),
    }
}

/// A hub whose agents' lines are recorded in memory.
pub(crate) struct Hub {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) commands: Option<Arc<Commands>>,
    recorded: Arc<Mutex<Vec<(String, String)>>>,
    running: Option<(Arc<Agents>, oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Hub {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // As root, each agent has a user of its own, who must be able to enter the folder.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let store = Store::open(&folder.path().join("state"), trust()).unwrap();
        let mut settings = Settings::new(vec![example("launch").into()]);
        (settings.timing, settings.confinement) = (timing(), Confinement::Required);
        Self { folder, store, settings, commands: None, recorded: Arc::default(), running: None }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn install(&self, package: &[u8]) -> Result<Installed, AgentError> {
        self.store.install(package, Path::new("test.agent"), true)
    }

    /// Starts the hub, with a receiver of the lines of every agent.
    pub(crate) fn start(&mut self) {
        let recorded = Arc::clone(&self.recorded);
        let receivers = move |name: &str| -> Vec<Lines> {
            let (lines, mut received) = mpsc::channel::<Line>(MAX_WAITING);
            let (recorded, name) = (Arc::clone(&recorded), name.to_owned());
            tokio::spawn(async move {
                while let Some(Line { text, done }) = received.recv().await {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    recorded.lock().unwrap().push((name.clone(), text));
                    done.tell(Outcome::Durable);
                }
            });
            vec![lines]
        };
        let agents = Agents::open(
            &self.state(),
            self.store.clone(),
            self.settings.clone(),
            self.commands.clone(),
        );
        let agents = Arc::new(agents.unwrap());
        let (stop, stopped) = oneshot::channel();
        let runs = Arc::clone(&agents);
        let task = tokio::spawn(async move {
            runs.run(&receivers, async { drop(stopped.await) }).await;
        });
        self.running = Some((agents, stop, task));
    }

    /// Returns the name of the error with which the hub refuses to start.
    pub(crate) fn refusal(&self) -> &'static str {
        let store = self.store.clone();
        let opened = Agents::open(&self.state(), store, self.settings.clone(), None);
        opened.unwrap_err().name()
    }

    /// Stops the hub, and waits until all lines are recorded.
    pub(crate) async fn stop(&mut self) {
        if let Some((_, stop, task)) = self.running.take() {
            drop(stop);
            task.await.unwrap();
        }
    }

    /// Returns the recorded lines of an agent.
    pub(crate) fn lines(&self, agent: &str) -> Vec<String> {
        let recorded = self.recorded.lock().unwrap();
        recorded.iter().filter(|(name, _)| name == agent).map(|(_, text)| text.clone()).collect()
    }

    pub(crate) fn status(&self, agent: &str) -> Option<Status> {
        let (agents, ..) = self.running.as_ref()?;
        agents.statuses().into_iter().find(|status| status.name == agent)
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            let statuses = self.running.as_ref().map(|(agents, ..)| agents.statuses());
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "not in time: {what}; {statuses:#?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until an agent's status has a property.
    pub(crate) async fn until_status(
        &self,
        agent: &str,
        what: &str,
        condition: impl Fn(&Status) -> bool,
    ) {
        self.until(what, |hub| hub.status(agent).is_some_and(|status| condition(&status))).await;
    }
}
