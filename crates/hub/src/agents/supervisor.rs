//! Runs the installed agents (spec/agents.md, section 3).
//!
//! Each agent has a task, which starts the program, watches it, and replaces it when another version
//! is current. The store decides which version is current: this module only asks it, so that a
//! command in another process can install, roll back or remove an agent while the hub runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use moteseal_api::NamedError as _;
use moteseal_service::LogLimit;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use super::commands::{Commands, Destination};
use super::configuration::{Confinement, Settings};
use super::data_folder;
use super::error::AgentError;
use super::inbox::{self, INBOX};
use super::launcher;
use super::output::{Counts, Output};
use super::process::{Input, Process};
use super::status::{State, Status, StopReason};
use super::store::{Active, Lock, Store};
use super::usage::{self, Meter, is_nearly_full};
use crate::line::Lines;

mod start;

/// A new version that exits this often before it delivers a line did not come up.
const TRIALS: u32 = 3;
/// How long to wait for the rest of an agent's output if nothing arrives, and for its devices while the
/// hub stops.
const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait until the devices of an agent record a line, before it is started again. A device
/// that failed starts again within this time.
const PATIENCE: Duration = Duration::from_secs(90);
/// The interval at which a status is written although nothing but the counts has changed.
const STATUS: Duration = Duration::from_secs(10);

/// The receivers of an agent's lines, by the agent's name.
pub type Receivers = dyn Fn(&str) -> Vec<Lines> + Send + Sync;

/// What all supervisors share.
#[derive(Debug)]
struct Shared {
    store: Store,
    settings: Settings,
    commands: Option<Arc<Commands>>,
    statuses: Mutex<BTreeMap<String, Status>>,
}

/// The agents of a hub.
#[derive(Debug)]
pub struct Agents {
    shared: Arc<Shared>,
    inbox: PathBuf,
    _claim: Lock,
}

impl Agents {
    /// Prepares to run the agents of the hub whose state is in the folder `state`. Reports what this
    /// system lacks to confine agents.
    ///
    /// # Errors
    /// `HubIsRunning`; `ConfinementUnavailable` if confinement is required; the errors of the
    /// operating system.
    pub fn open(
        state: &Path,
        store: Store,
        settings: Settings,
        commands: Option<Arc<Commands>>,
    ) -> Result<Self, AgentError> {
        let claim = store.claim()?;
        for part in launcher::missing(settings.landlock) {
            warn!("agents are confined less than on other systems: {}", part.what);
            if part.is_vital && settings.confinement == Confinement::Required {
                return Err(AgentError::ConfinementUnavailable(part.what));
            }
        }
        let inbox = state.join(INBOX);
        moteseal_files::create_folder(&inbox).map_err(AgentError::at(&inbox))?;
        let statuses = Mutex::default();
        let shared = Arc::new(Shared { store, settings, commands, statuses });
        Ok(Self { shared, inbox, _claim: claim })
    }

    /// Returns the status of each agent that this hub has run, in ascending order of the names.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        self.shared.statuses().values().cloned().collect()
    }

    /// Runs the agents until `stop` completes. Then stops them, and returns when all their lines are
    /// recorded. `receivers` returns the receivers of an agent's lines.
    pub async fn run(&self, receivers: &Receivers, stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch::channel(false);
        let mut stop = std::pin::pin!(stop);
        let mut poll = interval(self.shared.settings.timing.poll);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut tasks, mut running) = (JoinSet::new(), BTreeSet::new());
        let log = Arc::new(LogLimit::new(1, Duration::from_secs(60)));
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    if let Ok(name) = ended {
                        running.remove(&name);
                    }
                    continue;
                }
                _ = poll.tick() => {}
            }
            let (inbox, log, shared) =
                (self.inbox.clone(), Arc::clone(&log), Arc::clone(&self.shared));
            let names = blocking(move || {
                shared.tidy(false);
                inbox::process(&inbox, &shared.store, &log);
                let names = shared.store.names().unwrap_or_default();
                let is_installed = |name: &String| {
                    // A damaged record is reported by the supervisor.
                    shared.store.record(name).map_or(true, |record| {
                        record.is_some_and(|record| record.current.is_some())
                    })
                };
                names.into_iter().filter(is_installed).collect::<Vec<_>>()
            });
            for name in names.await.unwrap_or_default() {
                if running.insert(name.clone()) {
                    let supervisor = Supervisor {
                        shared: Arc::clone(&self.shared),
                        lines: receivers(&name),
                        counts: Arc::default(),
                        stop: stopped.clone(),
                        status: Status { name, ..Status::default() },
                        written: None,
                    };
                    tasks.spawn(supervisor.run());
                }
            }
        }
        stopping.send_replace(true);
        while tasks.join_next().await.is_some() {}
        let shared = Arc::clone(&self.shared);
        let _ = blocking(move || shared.tidy(true)).await;
    }
}

impl Shared {
    /// Removes commands that have expired.
    fn tidy(&self, is_end: bool) {
        if let Some(commands) = &self.commands
            && let Err(error) = commands.tidy(is_end)
        {
            warn!(%error, "the commands that wait cannot be stored");
        }
    }

    fn statuses(&self) -> MutexGuard<'_, BTreeMap<String, Status>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a function that blocks. Returns `None` if it panicked.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(run).await.ok()
}

/// Why one process of an agent ended.
enum End {
    /// The hub stops.
    Stop,
    /// Another version is current, or none.
    Changed,
    /// The agent exited, or was stopped because it exceeded a limit.
    Exited,
}

/// Runs one agent.
struct Supervisor {
    shared: Arc<Shared>,
    lines: Vec<Lines>,
    counts: Arc<Counts>,
    stop: watch::Receiver<bool>,
    status: Status,
    written: Option<(Instant, Status)>,
}

impl Supervisor {
    async fn run(mut self) -> String {
        let timing = self.shared.settings.timing;
        let (mut delay, mut trials) = (timing.backoff_first, 0);
        let mut known: Option<Active> = None;
        self.end_earlier().await;
        while !*self.stop.borrow() {
            let version = known.as_ref().map(|active| active.manifest.version);
            match self.load(known).await {
                Ok(None) => break,
                Ok(Some(active)) => {
                    if version != Some(active.manifest.version) {
                        (delay, trials) = (timing.backoff_first, 0);
                    }
                    let started = Instant::now();
                    let end = self.run_process(&active, &mut trials).await;
                    known = Some(active);
                    match end {
                        Ok(End::Stop) => break,
                        Ok(End::Changed) => continue,
                        Ok(End::Exited) => {
                            if started.elapsed() >= timing.stable {
                                delay = timing.backoff_first;
                            }
                            self.status.state = State::Waiting;
                        }
                        Err(error) => self.fail(&error),
                    }
                }
                Err(error) => {
                    known = None;
                    self.fail(&error);
                }
            }
            self.publish();
            self.wait(delay, known.as_ref()).await;
            delay = (delay * 2).min(timing.backoff_longest);
        }
        (self.status.state, self.status.process) = (State::Stopped, None);
        self.publish();
        self.status.name
    }

    fn name(&self) -> &str {
        &self.status.name
    }

    fn fail(&mut self, error: &AgentError) {
        let error = error.named().to_string();
        if self.status.error.as_ref() != Some(&error) {
            warn!(agent = self.name(), %error, "an agent cannot be started");
        }
        (self.status.state, self.status.error) = (State::Failed, Some(error));
    }

    /// Returns the version that is current. Its files are checked once.
    async fn load(&self, known: Option<Active>) -> Result<Option<Active>, AgentError> {
        let (shared, name) = (Arc::clone(&self.shared), self.name().to_owned());
        let loaded = blocking(move || {
            let Some(record) = shared.store.record(&name)? else { return Ok(None) };
            if let Some(known) = known
                && record.current == Some(known.manifest.version)
                && record.digest == known.record.digest
            {
                return Ok(Some(Active { record, ..known }));
            }
            shared.store.tidy(&name)?;
            shared.store.active(&name)
        });
        loaded.await.unwrap_or(Ok(None))
    }

    /// Returns whether another version than `version` is current.
    async fn is_changed(&self, version: u64) -> bool {
        let (shared, name) = (Arc::clone(&self.shared), self.name().to_owned());
        let current = blocking(move || shared.store.record(&name)).await;
        matches!(current, Some(Ok(record)) if record.as_ref().and_then(|record| record.current) != Some(version))
    }

    /// Waits before the next start, or until another version is current or the hub stops.
    async fn wait(&mut self, delay: Duration, known: Option<&Active>) {
        let end = Instant::now() + delay;
        let version = known.map(|active| active.manifest.version);
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            let poll = left.min(self.shared.settings.timing.poll);
            if timeout(poll, stops(&mut self.stop)).await.is_ok() {
                return;
            }
            if let Some(version) = version
                && self.is_changed(version).await
            {
                return;
            }
        }
    }

    /// Makes the status visible.
    fn publish(&mut self) {
        let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        self.status.lines = count(&counts.accepted);
        self.status.lines_too_long = count(&counts.too_long);
        self.status.lines_refused =
            [&counts.refused, &counts.too_long, &counts.cut, &counts.unused, &counts.lost]
                .map(count)
                .iter()
                .sum();
        self.shared.statuses().insert(self.name().to_owned(), self.status.clone());
        let is_new = self.written.as_ref().is_none_or(|(when, written)| {
            let quiet = Status {
                lines: written.lines,
                lines_refused: written.lines_refused,
                lines_too_long: written.lines_too_long,
                ..self.status.clone()
            };
            quiet != *written || when.elapsed() >= STATUS && self.status != *written
        });
        if is_new {
            self.status.write(&self.shared.store.agent(self.name()).join("status"));
            self.written = Some((Instant::now(), self.status.clone()));
        }
    }

    /// Starts the program and watches it until it ends.
    async fn run_process(&mut self, active: &Active, trials: &mut u32) -> Result<End, AgentError> {
        let timing = self.shared.settings.timing;
        let (version, limits) = (active.manifest.version, active.manifest.limits);
        self.status.version = version;
        self.status.fell_back = active.record.failed.clone();
        if let Some(reason) = self.storage(active).await {
            self.stopped(reason, version);
            return Ok(End::Exited);
        }
        let mut process = self.start(active).await?;
        self.status.state = State::Starting;
        (self.status.process, self.status.error) = (Some(process.id), None);
        self.status.process_started = usage::started(process.id);
        self.publish();

        let start_timeout = Duration::from_millis(active.manifest.start_timeout_ms.into());
        let (started, mut deadline) = (Instant::now(), start_timeout);
        let mut is_trial = !active.record.is_confirmed;
        let mut pending = None::<Delivery>;
        let reserve = self.shared.settings.reserve;
        let meter = Meter::new(process.id, limits, &active.data, timing.cpu_window, reserve);
        let meter = Arc::new(Mutex::new(meter));
        let mut poll = interval(timing.poll);
        let mut measure = interval(timing.measure);
        for interval in [&mut poll, &mut measure] {
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let output = Arc::clone(&process.output);
        loop {
            let is_alive = output.is_alive.load(Ordering::Acquire);
            if is_alive && self.status.state == State::Starting {
                self.status.state = State::Running;
                self.publish();
            }
            if is_alive && is_trial {
                let (shared, name) = (Arc::clone(&self.shared), self.name().to_owned());
                let confirmed = blocking(move || shared.store.confirm(&name, version)).await;
                is_trial = !matches!(confirmed, Some(Ok(())));
            }
            if is_alive && pending.is_none() {
                pending = self.deliver(&process);
            }
            let left = deadline.saturating_sub(started.elapsed());
            let is_watched = is_trial && !is_alive && active.record.previous.is_some();
            tokio::select! {
                () = stops(&mut self.stop) => {
                    self.end(&mut process, timing.stop).await;
                    return Ok(End::Stop);
                }
                exit = &mut process.exit => {
                    self.drain(&process).await;
                    self.note_errors(&output);
                    let is_trial = is_trial && !output.is_alive.load(Ordering::Acquire);
                    return self.exited(exit.ok(), active, is_trial, trials).await;
                }
                written = delivery(&mut pending) => self.written(written).await,
                () = output.changed.notified() => {}
                () = commands_changed(self.shared.commands.as_deref()), if is_alive && pending.is_none() => {}
                _ = poll.tick() => {
                    self.note_errors(&output);
                    self.publish();
                    if self.is_changed(version).await {
                        self.end(&mut process, timing.stop).await;
                        return Ok(End::Changed);
                    }
                }
                _ = measure.tick() => {
                    if let Some(reason) = exceeded(&meter).await {
                        self.stopped(reason, version);
                        process.kill();
                    }
                }
                () = tokio::time::sleep(left), if is_watched => {
                    if output.waiting.load(Ordering::Acquire) > 0 {
                        // The first line waits to be recorded.
                        deadline += timing.poll;
                        continue;
                    }
                    self.end(&mut process, timing.stop).await;
                    if output.is_alive.load(Ordering::Acquire) {
                        return Ok(End::Exited);
                    }
                    return self.fall_back(version, StopReason::NoLineInTime).await;
                }
            }
        }
    }

    fn note_errors(&mut self, output: &Output) {
        let last = output.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        last.clone_into(&mut self.status.last_error_line);
    }

    /// Notes that the hub stops the agent.
    fn stopped(&mut self, reason: StopReason, version: u64) {
        let reason_name = reason.name();
        warn!(agent = self.name(), version, reason = reason_name, "stopped an agent");
        self.status.stopped = Some(reason);
    }

    /// Asks the agent to exit, kills it if it does not, and records the rest of its lines.
    async fn end(&mut self, process: &mut Process, patience: Duration) {
        process.terminate();
        if timeout(patience, &mut process.exit).await.is_err() {
            process.kill();
            let _ = timeout(patience, &mut process.exit).await;
        }
        self.drain(process).await;
        self.note_errors(&process.output);
        self.status.process = None;
    }

    /// Waits until every line of a process that has exited is recorded. Gives up if the output stays
    /// open although nothing arrives, because a process that is not confined may have kept it, or if
    /// the devices record no line.
    async fn drain(&self, process: &Process) {
        let output = &process.output;
        let (mut before, mut since) = ((0, 0), Instant::now());
        while !output.is_drained.load(Ordering::Acquire) {
            let _ = timeout(Duration::from_millis(20), output.changed.notified()).await;
            let waiting = output.waiting.load(Ordering::Acquire);
            let now = (output.parts.load(Ordering::Relaxed), waiting);
            let patience = if waiting == 0 || *self.stop.borrow() { SILENCE } else { PATIENCE };
            if now != before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() >= patience {
                output.is_abandoned.store(true, Ordering::Release);
                if waiting > 0 {
                    self.counts.lost.fetch_add(waiting, Ordering::Relaxed);
                    warn!(
                        agent = self.name(),
                        lines = waiting,
                        "lines of an agent are lost, because their device does not record them"
                    );
                }
                return;
            }
        }
    }

    /// Notes an exit. Goes back to the version before if the new one does not come up.
    async fn exited(
        &mut self,
        status: Option<std::io::Result<ExitStatus>>,
        active: &Active,
        is_trial: bool,
        trials: &mut u32,
    ) -> Result<End, AgentError> {
        let version = active.manifest.version;
        let shown = match status {
            Some(Ok(status)) => status.to_string(),
            Some(Err(error)) => error.to_string(),
            None => "unknown status".to_owned(),
        };
        info!(agent = self.name(), version, status = shown, "an agent exited");
        (self.status.process, self.status.last_exit) = (None, Some(shown));
        self.status.exits += 1;
        if !is_trial {
            return Ok(End::Exited);
        }
        *trials += 1;
        if *trials < TRIALS || active.record.previous.is_none() {
            return Ok(End::Exited);
        }
        self.fall_back(version, StopReason::ExitedRepeatedly).await
    }

    async fn fall_back(&mut self, version: u64, reason: StopReason) -> Result<End, AgentError> {
        let (shared, name) = (Arc::clone(&self.shared), self.name().to_owned());
        let done = blocking(move || shared.store.fall_back(&name, version, reason.name())).await;
        if let Some(Some(back)) = done.transpose()? {
            let reason = reason.name();
            warn!(agent = self.name(), version, back, reason, "a new version did not come up");
            self.status.stopped = None;
        }
        Ok(End::Changed)
    }

    /// Returns why the agent is not started: its data folder is too large, or nothing is free.
    async fn storage(&self, active: &Active) -> Option<StopReason> {
        let (data, limit) = (active.data.clone(), active.manifest.limits.storage);
        let reserve = self.shared.settings.reserve;
        let reason = blocking(move || {
            if data_folder::size(&data, limit) > limit {
                Some(StopReason::StorageExceeded)
            } else {
                is_nearly_full(&data, reserve).then_some(StopReason::DiskNearlyFull)
            }
        });
        reason.await.flatten()
    }

    /// Passes the next command to the agent, if there is one.
    fn deliver(&self, process: &Process) -> Option<Delivery> {
        let commands = self.shared.commands.as_ref()?;
        let name = self.name();
        let command =
            commands.due(|to| matches!(to, Destination::Agent(agent) if agent == name))?;
        let (done, written) = oneshot::channel();
        let (line, checked) = (command.line(), command.clone());
        let clock = Arc::clone(commands);
        let is_due = Box::new(move || clock.is_due(&checked));
        // If the agent does not read its input, the command waits.
        process.input.try_send(Input { line, is_due, done }).ok()?;
        Some(Delivery { command, written })
    }

    /// Records that a command was written to the agent.
    async fn written(&self, command: Option<super::commands::Command>) {
        let (Some(commands), Some(command)) = (self.shared.commands.clone(), command) else {
            return;
        };
        let recorded = blocking(move || commands.delivered(&command)).await;
        if let Some(Err(error)) = recorded {
            warn!(agent = self.name(), %error, "a delivered command cannot be recorded");
        }
    }
}

/// Measures what an agent uses. Returns the limit that it exceeds.
async fn exceeded(meter: &Arc<Mutex<Meter>>) -> Option<StopReason> {
    let meter = Arc::clone(meter);
    let measured =
        blocking(move || meter.lock().unwrap_or_else(PoisonError::into_inner).exceeded());
    measured.await.flatten()
}

/// A command on its way to an agent.
struct Delivery {
    command: super::commands::Command,
    written: oneshot::Receiver<bool>,
}

/// Waits until a command was written. Returns it, or `None` if it was not written.
async fn delivery(pending: &mut Option<Delivery>) -> Option<super::commands::Command> {
    let Some(on_its_way) = pending else { return std::future::pending().await };
    let is_written = (&mut on_its_way.written).await.unwrap_or(false);
    pending.take().filter(|_| is_written).map(|delivery| delivery.command)
}

/// Waits until the hub stops.
async fn stops(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stops| *stops).await;
}

async fn commands_changed(commands: Option<&Commands>) {
    match commands {
        Some(commands) => commands.changed().await,
        None => std::future::pending().await,
    }
}
