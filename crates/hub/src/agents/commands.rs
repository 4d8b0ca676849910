//! Commands to actuators (spec/agents.md, section 5). They arrive only as signed broadcasts, within
//! the time that their sender states.
//!
//! A command is durable before the broadcast counts as delivered, and stays until its agent, or the
//! broker of its actuator, has it. A command that has expired is never delivered, also after a
//! restart, and also if the clock was set back. Of the commands of one topic, only the newest waits.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use moteseal_files::PRIVATE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;

/// The maximum number of commands that wait.
const MAX_PENDING: usize = 256;
/// The maximum number of commands that wait for one destination.
const MAX_FOR_ONE: usize = 32;
/// While commands with an end wait, the time is stored this often, in seconds.
const STORE: u64 = 60;
/// The maximum number of topics of which the newest command is remembered.
const MAX_TOPICS: usize = 1024;
/// The maximum length of the file, in bytes.
const MAX_FILE: u64 = 16 << 20;
/// The start of the topics that address an agent.
const AGENT: &str = "agent/";

/// To whom a command goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Destination {
    /// An agent: a line on its standard input.
    Agent(String),
    /// An actuator that subscribes to this topic of the broker.
    Mqtt(String),
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// To whom it goes.
    pub destination: Destination,
    /// The sender's id, in hexadecimal digits.
    pub sender: String,
    /// The id of the sender's key, in hexadecimal digits.
    pub key: String,
    /// The topic: the label of the broadcast chain.
    pub topic: String,
    /// The number of the chain.
    pub chain: u64,
    /// The number of the message in the chain, from 0.
    pub message: u32,
    /// From when on the command applies, in Unix seconds.
    pub not_before: u64,
    /// The first second at which the command no longer applies, in Unix time; `None` if it does not
    /// expire.
    pub not_after: Option<u64>,
    /// The content, in hexadecimal digits.
    #[serde(with = "hex")]
    pub content: Vec<u8>,
}

impl Command {
    /// Returns the line for an agent's standard input, with its end: a JSON object with the topic,
    /// what identifies the command, its end, and the content as `text`, or as `hex` if it is not
    /// UTF-8.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = json!({
            "command": self.topic,
            "sender": self.sender,
            "chain": self.chain,
            "message": self.message,
            "not_after": self.not_after,
        });
        match std::str::from_utf8(&self.content) {
            Ok(text) => line["text"] = json!(text),
            Err(_) => line["hex"] = json!(hex::encode(&self.content)),
        }
        let mut line = line.to_string().into_bytes();
        line.push(b'\n');
        line
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.key, &self.topic, self.chain, self.message)
            == (&other.key, &other.topic, other.chain, other.message)
    }
}

/// What became of a command that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It waits for its destination.
    Waiting,
    /// It was delivered before, or a later command of its topic was.
    Repeated,
    /// It has expired.
    Expired,
    /// Too many commands wait, for this destination or together.
    Full,
    /// It waits for its destination. A command for a destination that does not exist was dropped.
    Displaced,
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// The latest time that was used, in Unix seconds.
    latest: u64,
    pending: Vec<Command>,
    /// The newest command that was delivered, by key and topic.
    delivered: BTreeMap<String, Delivered>,
}

/// A command that was delivered.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Delivered {
    chain: u64,
    message: u32,
    /// The place in the order of deliveries.
    order: u64,
}

/// The clock of the machine, in Unix seconds.
type Clock = fn() -> u64;
/// Decides whether a destination exists.
type Exists = Box<dyn Fn(&Destination) -> bool + Send + Sync>;

/// The commands that wait for their destinations. They are in one file, which is replaced as a whole.
pub struct Commands {
    path: PathBuf,
    state: Mutex<State>,
    machine: Clock,
    exists: Exists,
    /// The latest time of the file, and when it was read: time never goes back.
    clock: (u64, Instant),
    changed: Notify,
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").field("path", &self.path).finish_non_exhaustive()
    }
}

fn machine_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Commands {
    /// Reads the commands that wait. `accepts_earlier_time` is whether the clock of this machine may
    /// be earlier than in an earlier run, because that time was wrong.
    ///
    /// # Errors
    /// The errors of the operating system; `InvalidData` if the file is damaged.
    pub fn open(path: &Path, accepts_earlier_time: bool) -> io::Result<Self> {
        Self::open_at(path, accepts_earlier_time, machine_time)
    }

    fn open_at(path: &Path, accepts_earlier_time: bool, machine: Clock) -> io::Result<Self> {
        let mut state = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::default(),
            Ok(found) if found.len() > MAX_FILE => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) => return Err(error),
            Ok(_) => serde_json::from_slice(&fs::read(path)?)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
        };
        if accepts_earlier_time {
            state.latest = state.latest.min(machine());
        }
        let clock = (state.latest, Instant::now());
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(state),
            machine,
            exists: Box::new(|_| true),
            clock,
            changed: Notify::new(),
        })
    }

    /// Sets how to decide whether a destination exists. If too many commands wait, those for other
    /// destinations are dropped first.
    #[must_use]
    pub fn for_existing(
        mut self,
        exists: impl Fn(&Destination) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.exists = Box::new(exists);
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time in Unix seconds. It never goes back.
    #[must_use]
    pub fn now(&self) -> u64 {
        let (latest, read) = self.clock;
        (self.machine)().max(latest.saturating_add(read.elapsed().as_secs()))
    }

    fn save(&self, state: &mut State) -> io::Result<()> {
        state.latest = self.now();
        let bytes = serde_json::to_vec(state)?;
        moteseal_files::replace(&self.path, &bytes, PRIVATE)
    }

    /// Adds a command. When this function returns, the command is durable.
    ///
    /// # Errors
    /// The errors of the operating system. The command is then not added.
    pub fn add(&self, command: Command) -> io::Result<Added> {
        let now = self.now();
        if command.not_after.is_some_and(|end| end <= now) {
            return Ok(Added::Expired);
        }
        let mut state = self.lock();
        let topic = format!("{}/{}", command.key, command.topic);
        let number = (command.chain, command.message);
        let newest = state.delivered.get(&topic).map(|newest| (newest.chain, newest.message));
        let is_known = newest.is_some_and(|newest| newest >= number)
            || state.pending.iter().any(|waiting| waiting.is_same(&command));
        if is_known {
            return Ok(Added::Repeated);
        }
        let before = state.pending.clone();
        state.pending.retain(|waiting| {
            let is_superseded = (&waiting.key, &waiting.topic) == (&command.key, &command.topic)
                && waiting.chain < command.chain;
            !is_superseded && waiting.not_after.is_none_or(|end| end > now)
        });
        let is_same = |waiting: &&Command| waiting.destination == command.destination;
        let mut added = Added::Waiting;
        if state.pending.iter().filter(is_same).count() >= MAX_FOR_ONE {
            added = Added::Full;
        } else if state.pending.len() >= MAX_PENDING {
            let is_vain = |waiting: &Command| !(self.exists)(&waiting.destination);
            added = match state.pending.iter().position(is_vain) {
                Some(place) => {
                    state.pending.remove(place);
                    Added::Displaced
                }
                None => Added::Full,
            };
        }
        if added == Added::Full {
            state.pending = before;
            return Ok(added);
        }
        state.pending.push(command);
        if let Err(error) = self.save(&mut state) {
            state.pending = before;
            return Err(error);
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(added)
    }

    /// Removes the commands whose time has ended, and stores the time now and then while commands
    /// with an end wait: if the clock is set back before the next start, an end that has passed still
    /// counts. Call this about once a second, and with `is_end` when the hub stops.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn tidy(&self, is_end: bool) -> io::Result<()> {
        let now = self.now();
        let mut state = self.lock();
        let before = state.pending.len();
        let has_end = |command: &Command| command.not_after.is_some();
        if !state.pending.iter().any(has_end) {
            return Ok(());
        }
        state.pending.retain(|command| command.not_after.is_none_or(|end| end > now));
        let is_due = is_end || now >= state.latest.saturating_add(STORE);
        if state.pending.len() < before || is_due {
            // If this fails, the commands are in the file only, and are not delivered by this process.
            self.save(&mut state)?;
        }
        Ok(())
    }

    /// Returns the first command for a destination that applies now.
    #[must_use]
    pub fn due(&self, is_meant: impl Fn(&Destination) -> bool) -> Option<Command> {
        let now = self.now();
        let state = self.lock();
        let mut meant = state.pending.iter().filter(|command| is_meant(&command.destination));
        meant.find(|command| self.is_due_at(command, now)).cloned()
    }

    fn is_due_at(&self, command: &Command, now: u64) -> bool {
        command.not_before <= now && command.not_after.is_none_or(|end| end > now)
    }

    /// Returns whether a command applies now and still waits.
    #[must_use]
    pub fn is_due(&self, command: &Command) -> bool {
        let now = self.now();
        self.is_due_at(command, now)
            && self.lock().pending.iter().any(|waiting| waiting.is_same(command))
    }

    /// Records that a command was delivered.
    ///
    /// # Errors
    /// The errors of the operating system. The command is then delivered again after a restart.
    pub fn delivered(&self, command: &Command) -> io::Result<()> {
        let mut state = self.lock();
        state.pending.retain(|waiting| !waiting.is_same(command));
        let topic = format!("{}/{}", command.key, command.topic);
        let order = |delivered: &Delivered| delivered.order;
        let next = state.delivered.values().map(order).max().map_or(0, |last| last + 1);
        let (chain, message) = state
            .delivered
            .get(&topic)
            .map_or((0, 0), |newest| (newest.chain, newest.message))
            .max((command.chain, command.message));
        state.delivered.insert(topic, Delivered { chain, message, order: next });
        if state.delivered.len() > MAX_TOPICS {
            let oldest = state.delivered.iter().min_by_key(|(_, delivered)| delivered.order);
            if let Some(oldest) = oldest.map(|(topic, _)| topic.clone()) {
                state.delivered.remove(&oldest);
            }
        }
        self.save(&mut state)
    }

    /// Waits until a command was added.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Returns the agent that a topic addresses: `agent/NAME`, or `agent/NAME/` with more after it.
#[must_use]
pub fn agent_of(topic: &str) -> Option<&str> {
    topic.strip_prefix(AGENT).map(|rest| rest.split_once('/').map_or(rest, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    use std::sync::atomic::{AtomicU64, Ordering};

    fn command(chain: u64, topic: &str, not_after: Option<u64>) -> Command {
        Command {
            destination: Destination::Agent("lamp".into()),
            sender: "00".into(),
            key: "11".into(),
            topic: topic.into(),
            chain,
            message: 0,
            not_before: 0,
            not_after,
            content: b"on".to_vec(),
        }
    }

    fn due(commands: &Commands) -> Option<u64> {
        commands.due(|_| true).map(|command| command.chain)
    }

    #[test]
    fn a_command_waits_over_a_restart_and_is_delivered_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("commands");
        let first = command(1, "agent/lamp", None);
        {
            let commands = Commands::open(&path, false).unwrap();
            assert_eq!(commands.add(first.clone()).unwrap(), Added::Waiting);
            assert_eq!(commands.add(first.clone()).unwrap(), Added::Repeated);
        }
        let commands = Commands::open(&path, false).unwrap();
        assert_eq!(due(&commands), Some(1));
        commands.delivered(&first).unwrap();
        assert_eq!(due(&commands), None);
        let commands = Commands::open(&path, false).unwrap();
        assert_eq!(commands.add(first).unwrap(), Added::Repeated, "the broadcast arrives again");
        assert_eq!(due(&commands), None);
    }

    #[test]
    fn an_expired_command_is_never_delivered_even_if_the_clock_is_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("commands");
        let now = machine_time();
        let commands = Commands::open(&path, false).unwrap();
        assert_eq!(commands.add(command(1, "a", Some(now))).unwrap(), Added::Expired);
        assert_eq!(commands.add(command(2, "a", Some(now + 100))).unwrap(), Added::Waiting);
        // Another run used a time after the end. The clock of this machine is behind it.
        let mut state: State = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        state.latest = now + 100;
        fs::write(&path, serde_json::to_vec(&state).unwrap()).unwrap();
        let commands = Commands::open(&path, false).unwrap();
        assert_eq!(due(&commands), None);
        let commands = Commands::open(&path, true).unwrap();
        assert_eq!(due(&commands), Some(2), "the later time was wrong");
    }

    #[test]
    fn only_the_newest_command_of_a_topic_waits() {
        let folder = tempfile::tempdir().unwrap();
        let commands = Commands::open(&folder.path().join("commands"), false).unwrap();
        for chain in 1..=3 {
            commands.add(command(chain, "a", None)).unwrap();
        }
        commands.add(command(9, "b", None)).unwrap();
        let newest = commands.due(|_| true).unwrap();
        assert_eq!(newest.chain, 3);
        commands.delivered(&newest).unwrap();
        assert_eq!(commands.add(command(2, "a", None)).unwrap(), Added::Repeated);
        assert_eq!(due(&commands), Some(9));
    }

    #[test]
    fn commands_for_one_destination_do_not_displace_those_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let is_lamp = |to: &Destination| matches!(to, Destination::Agent(name) if name == "lamp");
        let commands = Commands::open(&folder.path().join("commands"), false).unwrap();
        let commands = commands.for_existing(is_lamp);
        let of = |agent: &str, topic: usize| Command {
            destination: Destination::Agent(agent.to_owned()),
            ..command(1, &format!("agent/{agent}/{topic}"), None)
        };
        for topic in 0..MAX_FOR_ONE {
            assert_eq!(commands.add(of("lamp", topic)).unwrap(), Added::Waiting);
        }
        assert_eq!(commands.add(of("lamp", MAX_FOR_ONE)).unwrap(), Added::Full);
        commands.delivered(&of("lamp", 0)).unwrap();
        // Commands for agents that do not exist take the rest of the room.
        for number in 1..=MAX_PENDING {
            commands.lock().pending.push(of(&format!("other{number}"), 0));
        }
        commands.lock().pending.truncate(MAX_PENDING);
        assert_eq!(commands.add(of("lamp", MAX_FOR_ONE)).unwrap(), Added::Displaced);
        assert_eq!(commands.lock().pending.len(), MAX_PENDING);
        let is_there = |agent: &str| {
            let is_meant = |to: &Destination| *to == Destination::Agent(agent.to_owned());
            commands.due(is_meant).is_some()
        };
        assert!(is_there("lamp") && is_there("other2") && !is_there("other1"));
    }

    static NOW: AtomicU64 = AtomicU64::new(0);

    #[test]
    fn a_command_that_expired_while_the_hub_ran_stays_expired_after_the_clock_was_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("commands");
        let open = || Commands::open_at(&path, false, || NOW.load(Ordering::SeqCst)).unwrap();
        let at = |now| NOW.store(now, Ordering::SeqCst);
        at(1000);
        let commands = open();
        commands.add(command(1, "a", Some(1060))).unwrap();
        commands.add(command(2, "b", Some(5000))).unwrap();
        at(2000);
        commands.tidy(false).unwrap();
        drop(commands);
        at(1030);
        let commands = open();
        assert_eq!(due(&commands), Some(2), "the first one expired");
        // The time is stored at the end, too.
        at(4990);
        commands.tidy(false).unwrap();
        at(5040);
        commands.lock().pending[0].not_after = Some(5045);
        commands.tidy(true).unwrap();
        drop(commands);
        at(1030);
        assert!(open().now() >= 5040);
    }

    #[test]
    fn the_oldest_deliveries_are_forgotten_first() {
        let folder = tempfile::tempdir().unwrap();
        let commands = Commands::open(&folder.path().join("commands"), false).unwrap();
        for order in 0..MAX_TOPICS as u64 {
            let topic = format!("11/z{order}");
            let delivered = Delivered { chain: 1, message: 0, order };
            commands.lock().delivered.insert(topic, delivered);
        }
        // By its text, the new topic is the first of all.
        commands.delivered(&command(1, "a", None)).unwrap();
        assert_eq!(commands.add(command(1, "a", None)).unwrap(), Added::Repeated);
        assert_eq!(commands.add(command(1, "z1", None)).unwrap(), Added::Repeated);
        assert_eq!(commands.add(command(1, "z0", None)).unwrap(), Added::Waiting);
    }

    #[test]
    fn a_topic_addresses_an_agent_by_name() {
        assert_eq!(agent_of("agent/lamp"), Some("lamp"));
        assert_eq!(agent_of("agent/lamp/brightness"), Some("lamp"));
        assert_eq!(agent_of("lamp"), None);
    }
}
