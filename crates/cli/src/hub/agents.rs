//! The agents and the broadcasts of `moteseal hub run`.
//!
//! If the receiver of broadcasts fails, it starts again: the hub goes on without it meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moteseal_broadcast::KeyId;
use moteseal_client::sum::BrokerConfig;
use moteseal_core::record::NetworkId;
use moteseal_device::broadcast::{Options, WatchError, Watcher, now, run};
use moteseal_hub::agents::broadcasts::{Broadcasts, Topic};
use moteseal_hub::agents::commands::Destination;
use moteseal_hub::agents::configuration::FIRST_UID;
use moteseal_hub::agents::package::Trust;
use moteseal_hub::agents::{AgentSettings, Agents, Commands, Confinement, INBOX, Settings, Store};
use moteseal_hub::line::Lines;
use moteseal_net::Broadcast;
use moteseal_net::mqtt::is_topic;
use moteseal_store::Archive;
use moteseal_store::archive::QUOTA;
use serde::Deserialize;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;
use tracing::{error, info};

use crate::failure::{Exit, Failure};
use crate::files;
use crate::key::sender::network;

/// The first wait before the receiver of broadcasts starts again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before the receiver of broadcasts starts again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// How long a receiver must run before it counts as received again.
const STABLE: Duration = Duration::from_secs(1);

/// The table `[agents]`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentsTable {
    confinement: Confinement,
    /// The user id of the first agent, if the hub runs as root.
    first_uid: u32,
}

impl Default for AgentsTable {
    fn default() -> Self {
        Self { confinement: Confinement::Required, first_uid: FIRST_UID }
    }
}

/// The table `[broadcast]`: the same as the options of `moteseal broadcast watch`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BroadcastTable {
    /// The public keys of the base stations.
    ca: Vec<PathBuf>,
    /// The links, each with its address and how to log in to a broker.
    link: Vec<BrokerConfig>,
    /// The network, as 16 hexadecimal digits.
    network: Option<String>,
    #[serde(default)]
    revocations: Vec<PathBuf>,
    /// The keys that this hub shares with senders.
    #[serde(default)]
    receiver_keys: Vec<PathBuf>,
    clock_offset: Option<u64>,
    #[serde(default)]
    accept_earlier_time: bool,
    /// Topics of the broker for actuators without an agent.
    #[serde(default)]
    topic: Vec<Topic>,
}

/// What `hub run` needs to know about the agents.
pub(super) struct Opening<'a> {
    pub(super) table: AgentsTable,
    pub(super) agents: &'a [AgentSettings],
    pub(super) broadcast: Option<&'a BroadcastTable>,
    /// Whether the configuration names the broker of the sensors.
    pub(super) has_broker: bool,
    /// The hub's configuration, and the folder to which its paths are relative.
    pub(super) file: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) state: &'a Path,
    pub(super) trust: Trust,
}

/// The agents and the commands of a hub.
pub(super) struct Running {
    agents: Agents,
    commands: Option<Arc<Commands>>,
    receivers: BTreeMap<String, Vec<Lines>>,
    watching: Option<Arc<Watching>>,
    /// Whether broadcasts are received.
    receives: watch::Sender<bool>,
}

/// A receiver of broadcasts.
struct Watching {
    bases: Vec<moteseal_core::signature::PublicKey>,
    network: NetworkId,
    revocations: Vec<Vec<u8>>,
    keys: Vec<moteseal_broadcast::receipt::ReceiverKey>,
    links: Vec<(String, moteseal_net::mqtt::Options)>,
    archive: PathBuf,
    clock_offset: Option<u64>,
    accepts_earlier_time: bool,
    inbox: PathBuf,
    broadcasts: Broadcasts,
    has_topics: bool,
}

/// Opens the agents. `receivers` are the receivers of the lines of each agent.
pub(super) fn open(
    opening: &Opening<'_>,
    receivers: BTreeMap<String, Vec<Lines>>,
) -> Result<Running, Failure> {
    let Opening { table, agents, broadcast, has_broker, file, folder, state, trust } = opening;
    let store = Store::open(state, trust.clone())?;
    let commands = match broadcast {
        Some(broadcast) => {
            let path = store.folder().join("commands");
            let commands = Commands::open(&path, broadcast.accept_earlier_time)
                .map_err(|error| Failure::file("read", &path, &error))?;
            let installed = store.clone();
            let exists = move |destination: &Destination| match destination {
                Destination::Mqtt(_) => true,
                Destination::Agent(name) => installed
                    .record(name)
                    .is_ok_and(|record| record.is_some_and(|record| record.current.is_some())),
            };
            Some(Arc::new(commands.for_existing(exists)))
        }
        None => None,
    };
    let program = if cfg!(target_os = "linux") {
        // The file of the program may be replaced while the hub runs.
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().map_err(Failure::internal)?
    };
    let mut settings = Settings::new(vec![program.into(), "hub".into(), super::LAUNCH.into()]);
    (settings.confinement, settings.first_uid) = (table.confinement, table.first_uid);
    let named = agents.iter().map(|agent| (agent.name.clone(), agent.clone()));
    settings.agents = named.collect();
    let watching = match (broadcast, &commands) {
        (Some(broadcast), Some(commands)) => {
            let wrong = |what: &str| Failure::usage(what).about_key(file, "broadcast.topic");
            if !broadcast.topic.is_empty() && !has_broker {
                return Err(wrong("name the broker of the actuators in the table [mqtt]"));
            }
            if !broadcast.topic.iter().all(|topic| is_topic(&topic.mqtt)) {
                return Err(wrong("`mqtt` is a topic without + and #, such as \"lamp/set\""));
            }
            let broadcasts = Broadcasts::new(Arc::clone(commands), &broadcast.topic);
            Some(Arc::new(watching(broadcast, (file, folder, state), broadcasts)?))
        }
        _ => None,
    };
    let agents = Agents::open(state, store, settings, commands.clone())?;
    Ok(Running { agents, commands, receivers, watching, receives: watch::Sender::new(true) })
}

fn watching(
    table: &BroadcastTable,
    (file, folder, state): (&Path, &Path, &Path),
    broadcasts: Broadcasts,
) -> Result<Watching, Failure> {
    let in_key = |key: &'static str| move |failure: Failure| failure.about_key(file, key);
    let bases = table.ca.iter().map(|path| files::public_key(&folder.join(path)));
    let bases = bases.collect::<Result<Vec<_>, _>>().map_err(in_key("broadcast.ca"))?;
    let network = match (&table.network, bases.first()) {
        (Some(text), _) => {
            network(text).map_err(Failure::usage).map_err(in_key("broadcast.network"))?
        }
        (None, Some(base)) => NetworkId::of(base),
        (None, None) => {
            let what = "give the public key of a base station";
            return Err(in_key("broadcast.ca")(Failure::usage(what)));
        }
    };
    let read =
        |path: &PathBuf| crate::broadcast::watch::revocation(&folder.join(path), network, &bases);
    let revocations = table.revocations.iter().map(read).collect::<Result<Vec<_>, _>>();
    let revocations = revocations.map_err(in_key("broadcast.revocations"))?;
    let paths: Vec<PathBuf> = table.receiver_keys.iter().map(|path| folder.join(path)).collect();
    let keys = crate::broadcast::watch::receiver_keys(&paths, network)
        .map_err(in_key("broadcast.receiver_keys"))?;
    let links = table.link.iter().map(|link| {
        let options =
            crate::config::link_options(link, "broadcast.link", file, folder, String::new())?;
        Ok((link.url.clone(), options))
    });
    let links = links.collect::<Result<Vec<_>, Failure>>()?;
    if !(1..=8).contains(&links.len()) {
        let what = "write one to eight tables [[broadcast.link]]";
        return Err(in_key("broadcast.link")(Failure::usage(what)));
    }
    let has_scheme =
        |url: &str| ["udp://", "mqtt://", "mqtts://"].iter().any(|scheme| url.starts_with(scheme));
    if !links.iter().all(|(url, _)| has_scheme(url)) {
        let what = "the address of a link starts with udp://, mqtt:// or mqtts://";
        return Err(in_key("broadcast.link")(Failure::usage(what)));
    }
    let watching = Watching {
        bases,
        network,
        revocations,
        keys,
        links,
        archive: state.join("broadcasts"),
        clock_offset: table.clock_offset,
        accepts_earlier_time: table.accept_earlier_time,
        inbox: state.join(INBOX),
        broadcasts,
        has_topics: !table.topic.is_empty(),
    };
    // A folder that cannot be used is a mistake at the start, and may pass later.
    watching.archive()?;
    Ok(watching)
}

impl Running {
    /// Returns the commands, if some are for the broker.
    pub(super) fn commands_for_broker(&self) -> Option<Arc<Commands>> {
        self.watching.as_ref().filter(|watching| watching.has_topics)?;
        self.commands.clone()
    }

    /// Returns whether broadcasts are received, as a channel that reports changes, if they should be.
    pub(super) fn receives(&self) -> Option<watch::Receiver<bool>> {
        self.watching.as_ref().map(|_| self.receives.subscribe())
    }

    /// Runs the agents and the receiver of broadcasts until `stop` completes, and until all lines are
    /// recorded.
    pub(super) async fn run(self, stop: impl Future<Output = ()>) {
        let Self { agents, receivers, watching, receives, .. } = self;
        let (watch, stopped) = watch::channel(false);
        let watcher =
            watching.map(|watching| tokio::spawn(keep_watching(watching, receives, stopped)));
        let receivers = move |agent: &str| receivers.get(agent).cloned().unwrap_or_default();
        agents.run(&receivers, stop).await;
        watch.send_replace(true);
        if let Some(watcher) = watcher {
            let _ = watcher.await;
        }
    }
}

/// Receives broadcasts until `stop` changes. After an error or a panic, starts again after a while.
async fn keep_watching(
    watching: Arc<Watching>,
    receives: watch::Sender<bool>,
    mut stop: watch::Receiver<bool>,
) {
    let mut wait = FIRST_WAIT;
    loop {
        let start = Instant::now();
        let (end, ends) = oneshot::channel::<()>();
        let (ended, mut outcome) = oneshot::channel();
        let runs = Arc::clone(&watching);
        // The receiver writes to the disk between its frames, so it has a thread of its own.
        let thread = std::thread::Builder::new().name("broadcasts".to_owned());
        let started = thread.spawn(move || drop(ended.send(runs.run(ends))));
        let mut is_stopping = pin!(async { _ = stop.wait_for(|stop| *stop).await });
        let failed = loop {
            tokio::select! {
                // If the thread panicked or could not be started, its end of the channel is dropped.
                outcome = &mut outcome => break match (outcome, started) {
                    (Ok(Ok(())), _) => "it ended".to_owned(),
                    (Ok(Err(error)), _) => error.to_string(),
                    (Err(_), Ok(_)) => "it failed".to_owned(),
                    (Err(_), Err(error)) => error.to_string(),
                },
                () = sleep(STABLE), if !*receives.borrow() => {
                    info!("broadcasts are received again");
                    receives.send_replace(true);
                }
                () = &mut is_stopping => {
                    drop(end);
                    let _ = outcome.await;
                    return;
                }
            }
        };
        receives.send_replace(false);
        if start.elapsed() > LONGEST_WAIT {
            wait = FIRST_WAIT;
        }
        error!(again_in = ?wait, "broadcasts are not received: {failed}");
        tokio::select! {
            () = sleep(wait) => {}
            () = &mut is_stopping => return,
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

impl Watching {
    /// Opens the archive of broadcasts.
    fn archive(&self) -> Result<Archive, Failure> {
        let ids: Vec<KeyId> = self.bases.iter().map(KeyId::of).collect();
        let archive = Archive::open(&self.archive, self.network, &ids, QUOTA);
        Ok(archive.map_err(WatchError::from)?)
    }

    /// Receives broadcasts until `stop` completes.
    fn run(&self, stop: oneshot::Receiver<()>) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Failure::new(Exit::Internal, format_args!("cannot start a thread: {error}"))
        })?;
        runtime.block_on(async {
            let archive = self.archive()?;
            let links =
                self.links.iter().map(|(url, options)| Broadcast::open(url, options.clone()));
            let links = links.collect::<Result<Vec<_>, _>>()?;
            let start = Instant::now();
            let defaults = Options::new(self.network, &self.bases);
            let options = Options {
                links: u8::try_from(links.len()).unwrap_or(u8::MAX),
                save_agents: Some(self.inbox.clone()),
                revocations: &self.revocations,
                receiver_keys: &self.keys,
                clock_offset: self.clock_offset.unwrap_or(defaults.clock_offset),
                accepts_earlier_time: self.accepts_earlier_time,
                ..defaults
            };
            let seed = getrandom::u64().map_err(|error| {
                Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
            })?;
            let mut take =
                |event: moteseal_device::broadcast::WatchEvent<'_>| self.broadcasts.take(&event);
            let mut watcher = Watcher::open(options, archive, seed, now(start), &mut take)?;
            let stop = async { drop(stop.await) };
            run(&mut watcher, &links, start, &mut take, stop).await.map_err(Failure::from)
        })
    }
}
