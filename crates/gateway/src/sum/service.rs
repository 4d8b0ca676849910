//! A running gateway of the aggregation tree: a link to its children, a link to its parent, the
//! clock, and metrics and health for the operator.
//!
//! [`Aggregator`] makes all decisions. Frames that have arrived are processed before epochs are
//! ended, so that a machine that was suspended for a moment does not lose frames that arrived in
//! time. The links reconnect automatically. If the link to the parent does not accept a frame
//! within a second, the frame is dropped, because the parent will soon end the frame's epoch. If
//! the clock jumps ahead, the new time is trusted only after the clock has stayed ahead for ten
//! seconds.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt as _;
use moteseal_api::NamedError as _;
use moteseal_core::DeviceId;
use moteseal_net::link::State;
use moteseal_net::{ChildLink, Down, LinkError, ParentLink};
use moteseal_service::log_limit::log_suppressed;
use moteseal_service::metrics::{UPKEEP, gauge_value as value};
use moteseal_service::{LogLimit, Monitor, Monitored, MoreMetrics};
use moteseal_verify::SumGroup;
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::aggregator::{Aggregator, Ended, FrameOutcome, Outgoing};
use super::error::Refused;
use super::gather::OPEN_EPOCHS;
use super::metrics::SumMetrics;
use super::number::NumberFile;
use crate::clock::Clock;
use crate::error::ServiceError;

/// How long a clock that has jumped ahead must stay ahead before it is trusted.
const CLOCK_GRACE: Duration = Duration::from_secs(10);
/// The maximum time between two readings of the clock.
const TICK: Duration = Duration::from_millis(250);
/// How long a link may take to accept a frame.
const SEND_TIME: Duration = Duration::from_secs(1);
/// The minimum interval between two log lines about rejected frames.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The source of the log lines about all senders that are not children.
const STRANGERS: &str = "senders that are not children";
/// The maximum number of silent children that a log line names.
const NAMED: usize = 8;

/// The state from which the operator's HTTP pages are generated.
struct Shown {
    metrics: SumMetrics,
    is_link_up: AtomicBool,
    is_up_link_up: AtomicBool,
    is_stopping: AtomicBool,
}

impl Monitored for Shown {
    fn metrics(&self) -> String {
        self.metrics.render()
    }

    fn trouble(&self) -> Option<&'static str> {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        if is(&self.is_stopping) {
            Some("stopping")
        } else if !is(&self.is_link_up) {
            Some("the link to the children is down")
        } else if !is(&self.is_up_link_up) {
            Some("the link to the parent is down")
        } else {
            None
        }
    }
}

/// Continues with a later version of the group: passes it to [`Aggregator::load`]. Returns whether
/// the tree contains the gateway.
pub type LoadVersion = Box<dyn FnMut(&mut Aggregator, &SumGroup) -> bool + Send + Sync>;

/// The later versions of the group that a gateway loads while it runs.
pub struct Versions {
    /// The newest version. The sender has checked that it can replace the version before it.
    pub newest: watch::Receiver<SumGroup>,
    /// Loads a version.
    pub load: LoadVersion,
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versions").finish_non_exhaustive()
    }
}

/// A gateway that is ready to run.
pub struct SumGateway {
    aggregator: Aggregator,
    versions: Option<Versions>,
    number: NumberFile,
    monitor: Option<Monitor>,
    shown: Arc<Shown>,
    clock: Clock,
    /// The log lines about rejected frames, by sender.
    refused: LogLimit<String>,
}

impl fmt::Debug for SumGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SumGateway").field("aggregator", &self.aggregator).finish_non_exhaustive()
    }
}

impl Drop for SumGateway {
    fn drop(&mut self) {
        log_suppressed(&self.refused.finish());
    }
}

impl SumGateway {
    /// Creates a gateway that stores the number of its query schedule in `number`. Serves metrics
    /// and health on the address `listen`, if there is one.
    ///
    /// # Errors
    /// `Listen` if the address for metrics and health cannot be used.
    pub async fn bind(
        aggregator: Aggregator,
        number: NumberFile,
        listen: Option<SocketAddr>,
    ) -> Result<Self, ServiceError> {
        let monitor = crate::monitor(listen).await?;
        let shown = Arc::new(Shown {
            metrics: SumMetrics::new(),
            is_link_up: AtomicBool::new(false),
            is_up_link_up: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        });
        Ok(Self {
            aggregator,
            versions: None,
            number,
            monitor,
            shown,
            clock: Clock::new(CLOCK_GRACE),
            refused: LogLimit::new(1, LOG_INTERVAL),
        })
    }

    /// Loads later versions of the group while the gateway runs.
    #[must_use]
    pub fn with_versions(mut self, versions: Versions) -> Self {
        self.versions = Some(versions);
        self
    }

    /// Appends further metrics to those of the gateway, for example those of its own health.
    #[must_use]
    pub fn with_more_metrics(mut self, more: MoreMetrics) -> Self {
        self.monitor = self.monitor.take().map(|monitor| monitor.with_more(more));
        self
    }

    /// Returns the address on which metrics and health are served.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.monitor.as_ref().map(Monitor::address)
    }

    /// Runs until `stop` completes. Then sends the sums of epochs that have ended, and returns.
    /// `children` is the link to the children, `up` is the link to the parent.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn run(
        mut self,
        children: impl ParentLink + Sync,
        mut up: impl ChildLink + Sync,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), ServiceError> {
        let place = self.aggregator.node();
        info!(
            gateway = place.name(),
            children = place.children().len(),
            height = place.height(),
            "aggregating sums"
        );
        let mut tasks = tokio::task::JoinSet::new();
        if let Some(monitor) = self.monitor.take() {
            tasks.spawn(monitor.serve(Arc::clone(&self.shown)));
        }
        let (mut state, mut up_state) = (children.state(), up.state());
        self.note(&mut state, &mut up_state);
        let mut stop = pin!(stop);
        let mut upkeep = tokio::time::interval(UPKEEP);
        loop {
            self.load_version(&children);
            self.receive_waiting(&children)?;
            let now_ms = self.unix_ms();
            self.aggregator.tick(now_ms);
            let output = self.aggregator.take_outgoing();
            self.send_all(output, &children, &up).await.map_err(ServiceError::Link)?;
            let due_ms =
                self.aggregator.due_ms().map_or(u64::MAX, |due| due.saturating_sub(now_ms));
            tokio::select! {
                () = &mut stop => break,
                down = up.receive() => {
                    let down = down.map_err(ServiceError::Link)?;
                    self.receive_waiting(&children)?;
                    self.receive_down(&down);
                }
                received = children.receive() => {
                    let received = received.map_err(ServiceError::Link)?;
                    self.receive(DeviceId(received.device), &received.frame);
                }
                changed = state.changed() => {
                    changed.map_err(|_| ServiceError::Link(LinkError::Closed))?;
                    self.note(&mut state, &mut up_state);
                }
                changed = up_state.changed() => {
                    changed.map_err(|_| ServiceError::Link(LinkError::Closed))?;
                    self.note(&mut state, &mut up_state);
                }
                () = sleep(Duration::from_millis(due_ms).min(TICK)) => {}
                _ = upkeep.tick() => {
                    let metrics = &self.shown.metrics;
                    metrics.upkeep();
                    metrics.frames_dropped.absolute(children.dropped());
                    metrics.held_bytes.set(value(self.aggregator.held_bytes() as u64));
                    log_suppressed(&self.refused.suppressed());
                }
            }
        }
        info!("stopping");
        self.shown.is_stopping.store(true, Ordering::Relaxed);
        let received = self.receive_waiting(&children);
        let now_ms = self.unix_ms();
        self.aggregator.finish(now_ms);
        let output = self.aggregator.take_outgoing();
        let result = self.send_all(output, &children, &up).await.map_err(ServiceError::Link);
        tasks.shutdown().await;
        info!("stopped");
        result.and(received)
    }

    /// Continues with a later version of the group, if there is one.
    fn load_version(&mut self, children: &impl ParentLink) {
        let Some(versions) = &mut self.versions else { return };
        if !versions.newest.has_changed().unwrap_or(false) {
            return;
        }
        let group = versions.newest.borrow_and_update().clone();
        let version = group.roster.version();
        if !(versions.load)(&mut self.aggregator, &group) {
            warn!(
                version,
                "a later tree does not contain this gateway; it continues with the tree in use"
            );
            return;
        }
        let members = self.aggregator.node().children().iter().map(|child| child.id.0);
        children.set_members(members.collect());
        info!(version, "loaded a later version of the roster, or of the tree");
    }

    /// Returns the trusted time of the machine's clock, in milliseconds since 1970.
    fn unix_ms(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let reading = self.clock.read(clock_ms, Instant::now());
        if reading.has_jumped {
            warn!(
                clock_ms,
                believed_ms = reading.unix_ms,
                "the clock has jumped ahead; the new time is used if the clock stays ahead for ten seconds"
            );
        }
        reading.unix_ms
    }

    fn note(&self, link: &mut watch::Receiver<State>, up: &mut watch::Receiver<State>) {
        let links = [
            (link, &self.shown.is_link_up, &self.shown.metrics.link_up, "children"),
            (up, &self.shown.is_up_link_up, &self.shown.metrics.up_link_up, "parent"),
        ];
        for (state, flag, gauge, peer) in links {
            let state = state.borrow_and_update();
            let is_up = matches!(*state, State::Up);
            let was_up = flag.swap(is_up, Ordering::Relaxed);
            gauge.set(f64::from(u8::from(is_up)));
            match &*state {
                State::Down { cause, again_in } => {
                    warn!(cause = %cause.named(), ?again_in, "the link to the {peer} is down");
                }
                State::Up if !was_up => info!("the link to the {peer} is up"),
                _ => {}
            }
        }
    }

    fn receive_down(&mut self, down: &Down) {
        let now_ms = self.unix_ms();
        let received = match down {
            Down::Announcement(schedule) => {
                let number = &self.number;
                let mut failed = None;
                let received = self.aggregator.receive_schedule(schedule, now_ms, |highest| {
                    number.store(highest).inspect_err(|error| failed = Some(error.to_string()))
                });
                if let Some(cause) = failed {
                    warn!(cause, "the query schedule's number could not be written");
                }
                received
            }
            Down::Frame(frame) => self.aggregator.receive_question(frame, now_ms),
        };
        match received {
            Ok(FrameOutcome::Taken) if matches!(down, Down::Announcement(_)) => {
                let metrics = &self.shown.metrics;
                metrics.queries.set(value(self.aggregator.queries().len() as u64));
                metrics.schedule.set(value(self.aggregator.number()));
                info!(
                    number = self.aggregator.number(),
                    queries = self.aggregator.queries().len(),
                    "accepted a new query schedule"
                );
            }
            Ok(_) => {}
            Err(refused) => self.refuse("the parent", "the parent", refused),
        }
    }

    /// Receives the frames of children that have arrived. It stops after as many frames as all
    /// children can validly send for all open epochs, so that a flood of frames does not prevent
    /// epochs from ending.
    fn receive_waiting(&mut self, children: &impl ParentLink) -> Result<(), ServiceError> {
        let most = self.aggregator.node().children().len() as u64 * (OPEN_EPOCHS + 2);
        for _ in 0..most {
            // Without `unconstrained`, tokio would report that no frame has arrived once the task
            // has used up its cooperative budget.
            let Some(received) = unconstrained(children.receive()).now_or_never() else { break };
            let received = received.map_err(ServiceError::Link)?;
            self.receive(DeviceId(received.device), &received.frame);
        }
        Ok(())
    }

    fn receive(&mut self, child: DeviceId, frame: &[u8]) {
        self.shown.metrics.frames.increment(1);
        let now_ms = self.unix_ms();
        if let Err(refused) = self.aggregator.receive(child, frame, now_ms) {
            match self.aggregator.node().child(child) {
                Some(at) => {
                    let name = self.aggregator.node().children()[at].name.clone();
                    self.refuse(&name, &name, refused);
                }
                // Senders can invent any number of ids, so they share the lines of one source.
                None => self.refuse(STRANGERS, &child.to_string(), refused),
            }
        }
    }

    /// Logs a rejected frame of `sender`, unless its `source` has caused many lines.
    fn refuse(&self, source: &str, sender: &str, refused: Refused) {
        self.shown.metrics.refused(refused.name());
        debug!(from = sender, refused = %refused.named(), "rejected a frame");
        if self.refused.allows(source.to_owned()) {
            warn!(from = sender, refused = %refused.named(), "frames are rejected");
        }
    }

    async fn send_all(
        &self,
        output: Outgoing,
        children: &impl ParentLink,
        up: &impl ChildLink,
    ) -> Result<(), LinkError> {
        for unusable in output.unusable {
            warn!(query = %unusable.query, name = unusable.name, "this gateway cannot answer a query of the schedule");
        }
        output.ended.iter().for_each(|ended| self.report(ended));
        if let Some(schedule) = output.announcement {
            self.sent(timeout(SEND_TIME, children.announce(Bytes::from(schedule))).await)?;
        }
        for frame in output.up {
            self.sent(timeout(SEND_TIME, up.send(Bytes::from(frame))).await)?;
        }
        for (child, frame) in output.down {
            self.sent(timeout(SEND_TIME, children.send(child.0, Bytes::from(frame))).await)?;
        }
        Ok(())
    }

    fn sent(
        &self,
        sent: Result<Result<(), LinkError>, tokio::time::error::Elapsed>,
    ) -> Result<(), LinkError> {
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(LinkError::Closed)) => Err(LinkError::Closed),
            lost => {
                self.shown.metrics.frames_lost.increment(1);
                debug!(?lost, "a frame was not sent");
                Ok(())
            }
        }
    }

    fn report(&self, ended: &Ended) {
        let metrics = &self.shown.metrics;
        metrics.epochs.increment(1);
        metrics.participants.set(f64::from(ended.participants));
        let Ended { query, epoch, participants, silent } = ended;
        if silent.is_empty() {
            debug!(%query, epoch, participants, "an epoch is complete");
            return;
        }
        metrics.epochs_partial.increment(1);
        silent.iter().for_each(|name| metrics.silent(name));
        let more = silent.len().saturating_sub(NAMED);
        let names = silent[..silent.len().min(NAMED)].join(", ");
        warn!(%query, epoch, participants, silent = names, more, "some children have not answered in time");
    }
}
