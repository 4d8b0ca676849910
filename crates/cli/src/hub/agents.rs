//! The agents and the broadcasts of `moteseal hub run`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use moteseal_broadcast::KeyId;
use moteseal_client::sum::BrokerConfig;
use moteseal_core::record::NetworkId;
use moteseal_device::broadcast::{Options, WatchError, Watcher, now, run};
use moteseal_hub::agents::broadcasts::{Broadcasts, Topic};
use moteseal_hub::agents::configuration::FIRST_UID;
use moteseal_hub::agents::package::Trust;
use moteseal_hub::agents::{AgentSettings, Agents, Commands, Confinement, INBOX, Settings, Store};
use moteseal_hub::line::Lines;
use moteseal_net::Broadcast;
use moteseal_store::Archive;
use moteseal_store::archive::QUOTA;
use serde::Deserialize;
use tokio::sync::oneshot;
use tracing::error;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::key::sender::network;

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
    /// The hub's configuration, and the folder to which its paths are relative.
    pub(super) file: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) state: &'a Path,
    pub(super) trust: Trust,
}

/// The agents and the commands of a hub.
pub(super) struct Running {
    pub(super) agents: Agents,
    pub(super) commands: Option<Arc<Commands>>,
    receivers: BTreeMap<String, Vec<Lines>>,
    watching: Option<Watching>,
}

/// A watcher of broadcasts that has not started.
struct Watching {
    bases: Vec<moteseal_core::signature::PublicKey>,
    network: NetworkId,
    revocations: Vec<Vec<u8>>,
    keys: Vec<moteseal_broadcast::receipt::ReceiverKey>,
    links: Vec<(String, moteseal_net::mqtt::Options)>,
    archive: Archive,
    clock_offset: Option<u64>,
    accepts_earlier_time: bool,
    inbox: PathBuf,
    broadcasts: Broadcasts,
}

/// Opens the agents. `receivers` are the receivers of the lines of each agent.
pub(super) fn open(
    opening: &Opening<'_>,
    receivers: BTreeMap<String, Vec<Lines>>,
) -> Result<Running, Failure> {
    let Opening { table, agents, broadcast, file, folder, state, trust } = opening;
    let store = Store::open(state, trust.clone())?;
    let commands = match broadcast {
        Some(broadcast) => {
            let path = store.folder().join("commands");
            let commands = Commands::open(&path, broadcast.accept_earlier_time)
                .map_err(|error| Failure::file("read", &path, &error))?;
            Some(Arc::new(commands))
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
            let broadcasts = Broadcasts::new(Arc::clone(commands), &broadcast.topic);
            Some(watching(broadcast, (file, folder, state), broadcasts)?)
        }
        _ => None,
    };
    let agents = Agents::open(state, store, settings, commands.clone())?;
    Ok(Running { agents, commands, receivers, watching })
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
    let ids: Vec<KeyId> = bases.iter().map(KeyId::of).collect();
    let archive =
        Archive::open(&state.join("broadcasts"), network, &ids, QUOTA).map_err(WatchError::from)?;
    Ok(Watching {
        bases,
        network,
        revocations,
        keys,
        links,
        archive,
        clock_offset: table.clock_offset,
        accepts_earlier_time: table.accept_earlier_time,
        inbox: state.join(INBOX),
        broadcasts,
    })
}

impl Running {
    /// Runs the agents and the watcher until `stop` completes, and until all lines are recorded.
    pub(super) async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let Self { agents, receivers, watching, .. } = self;
        let (failed, failure) = oneshot::channel();
        let (watch, stopped) = oneshot::channel::<()>();
        let thread = watching.map(|watching| {
            // The watcher writes to the disk between its frames, so it has a thread of its own.
            std::thread::spawn(move || {
                if let Err(error) = watching.run(stopped) {
                    error!(%error, "broadcasts are no longer received");
                    let _ = failed.send(error);
                }
            })
        });
        let receivers = move |agent: &str| receivers.get(agent).cloned().unwrap_or_default();
        let mut ended = None;
        let stop = async {
            let has_watcher = thread.is_some();
            tokio::select! {
                () = stop => {}
                error = failure, if has_watcher => ended = error.ok(),
            }
        };
        agents.run(&receivers, stop).await;
        drop(watch);
        if let Some(thread) = thread {
            let _ = tokio::task::spawn_blocking(|| thread.join()).await;
        }
        ended.map_or(Ok(()), Err)
    }
}

impl Watching {
    /// Receives broadcasts until `stop` completes.
    fn run(self, stop: oneshot::Receiver<()>) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Failure::new(Exit::Internal, format_args!("cannot start a thread: {error}"))
        })?;
        runtime.block_on(async {
            let Self { bases, network, revocations, keys, archive, broadcasts, .. } = self;
            let links = self
                .links
                .into_iter()
                .map(|(url, options)| Broadcast::open(&url, options).map_err(Failure::from));
            let links = links.collect::<Result<Vec<_>, _>>()?;
            let start = Instant::now();
            let defaults = Options::new(network, &bases);
            let options = Options {
                links: u8::try_from(links.len()).unwrap_or(u8::MAX),
                save_agents: Some(self.inbox),
                revocations: &revocations,
                receiver_keys: &keys,
                clock_offset: self.clock_offset.unwrap_or(defaults.clock_offset),
                accepts_earlier_time: self.accepts_earlier_time,
                ..defaults
            };
            let seed = getrandom::u64().map_err(|error| {
                Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
            })?;
            let mut take =
                |event: moteseal_device::broadcast::WatchEvent<'_>| broadcasts.take(&event);
            let mut watcher = Watcher::open(options, archive, seed, now(start), &mut take)?;
            let stop = async { drop(stop.await) };
            run(&mut watcher, &links, start, &mut take, stop).await.map_err(Failure::from)
        })
    }
}
