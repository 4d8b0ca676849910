//! A running gateway of the tree: a link to its children, one to the parent, the clock, and what an
//! operator watches.
//!
//! All that decides is [`Aggregator`]'s. What has come is heard before epochs whose time is up are
//! ended, so that a machine that stood still for a moment loses nothing that came in time. Links
//! connect again by themselves; while the one upward does not take a frame, the frame is lost after
//! a moment, for its epoch soon is over above, too. Where the clock jumps ahead it is believed once
//! it has said so for a while.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt as _;
use moteseal_core::DeviceId;
use moteseal_net::link::State;
use moteseal_net::{ChildLink, Down, LinkError, ParentLink};
use moteseal_service::metrics::{UPKEEP, gauge_value as value};
use moteseal_service::{Monitor, Monitored};
use tokio::sync::watch;
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::aggregator::{Aggregator, Ended, Heard, Said};
use super::error::Refused;
use super::gather::OPEN_EPOCHS;
use super::metrics::SumMetrics;
use super::number::NumberFile;
use crate::clock::Clock;
use crate::error::ServiceError;

/// A clock that has jumped ahead is believed after this time.
const CLOCK_GRACE: Duration = Duration::from_secs(10);
/// The clock is looked at this often, whatever is due.
const TICK: Duration = Duration::from_millis(250);
/// How long a link may take to take a frame.
const SEND_TIME: Duration = Duration::from_secs(1);
/// How often it is said again that frames are refused, and for which child.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// Silent children that a line names.
const NAMED: usize = 8;

/// What the listener shows.
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

/// A gateway that is ready to run.
pub struct SumGateway {
    aggregator: Aggregator,
    number: NumberFile,
    monitor: Option<Monitor>,
    shown: Arc<Shown>,
    clock: Clock,
    /// When it was last said that frames are refused.
    refused: Option<Instant>,
}

impl fmt::Debug for SumGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SumGateway").field("aggregator", &self.aggregator).finish_non_exhaustive()
    }
}

impl SumGateway {
    /// A gateway that keeps the number of its query schedule in `number`, and shows metrics and
    /// health where it shall listen.
    ///
    /// # Errors
    /// `Listen`.
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
            number,
            monitor,
            shown,
            clock: Clock::new(CLOCK_GRACE),
            refused: None,
        })
    }

    /// Where metrics and health are served.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.monitor.as_ref().map(Monitor::address)
    }

    /// Runs until `stop` is done; then says what it has of epochs that have ended, and returns.
    /// `children` is the link to the children, `up` the one to the parent.
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
            "adding up"
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
            self.hear_waiting(&children)?;
            let now_ms = self.unix_ms();
            self.aggregator.tick(now_ms);
            let said = self.aggregator.take_said();
            self.say(said, &children, &up).await.map_err(ServiceError::Link)?;
            let due_ms =
                self.aggregator.due_ms().map_or(u64::MAX, |due| due.saturating_sub(now_ms));
            tokio::select! {
                () = &mut stop => break,
                down = up.receive() => {
                    let down = down.map_err(ServiceError::Link)?;
                    self.hear_waiting(&children)?;
                    self.hear_down(&down);
                }
                heard = children.receive() => {
                    let heard = heard.map_err(ServiceError::Link)?;
                    self.hear(DeviceId(heard.device), &heard.frame);
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
                }
            }
        }
        info!("stopping");
        self.shown.is_stopping.store(true, Ordering::Relaxed);
        let heard = self.hear_waiting(&children);
        let now_ms = self.unix_ms();
        self.aggregator.finish(now_ms);
        let said = self.aggregator.take_said();
        let result = self.say(said, &children, &up).await.map_err(ServiceError::Link);
        tasks.shutdown().await;
        info!("stopped");
        result.and(heard)
    }

    /// The machine's clock, as far as it is believed.
    fn unix_ms(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let told = self.clock.read(clock_ms, Instant::now());
        if told.has_jumped {
            warn!(
                clock_ms,
                believed_ms = told.unix_ms,
                "the clock has jumped ahead; it is believed if it says so for ten seconds"
            );
        }
        told.unix_ms
    }

    fn note(&self, link: &mut watch::Receiver<State>, up: &mut watch::Receiver<State>) {
        let links = [
            (link, &self.shown.is_link_up, &self.shown.metrics.link_up, "children"),
            (up, &self.shown.is_up_link_up, &self.shown.metrics.up_link_up, "parent"),
        ];
        for (state, flag, gauge, whom) in links {
            let state = state.borrow_and_update();
            let is_up = matches!(*state, State::Up);
            let was_up = flag.swap(is_up, Ordering::Relaxed);
            gauge.set(f64::from(u8::from(is_up)));
            match &*state {
                State::Down { cause, again_in } => {
                    warn!(%cause, ?again_in, "the link to the {whom} is down");
                }
                State::Up if !was_up => info!("the link to the {whom} is up"),
                _ => {}
            }
        }
    }

    fn hear_down(&mut self, down: &Down) {
        let now_ms = self.unix_ms();
        let heard = match down {
            Down::Announcement(schedule) => {
                let number = &self.number;
                let mut failed = None;
                let heard = self.aggregator.hear_schedule(schedule, now_ms, |highest| {
                    number.store(highest).inspect_err(|error| failed = Some(error.to_string()))
                });
                if let Some(cause) = failed {
                    warn!(cause, "the query schedule's number could not be written");
                }
                heard
            }
            Down::Frame(frame) => self.aggregator.hear_question(frame, now_ms),
        };
        match heard {
            Ok(Heard::Taken) if matches!(down, Down::Announcement(_)) => {
                let metrics = &self.shown.metrics;
                metrics.queries.set(value(self.aggregator.queries().len() as u64));
                metrics.schedule.set(value(self.aggregator.number()));
                info!(
                    number = self.aggregator.number(),
                    queries = self.aggregator.queries().len(),
                    "a new query schedule"
                );
            }
            Ok(_) => {}
            Err(refused) => self.refuse("the parent", refused),
        }
    }

    /// Hears what has come of the children: at most what all of them have to say of all epochs that
    /// are open, for a flood must not keep epochs from ending.
    fn hear_waiting(&mut self, children: &impl ParentLink) -> Result<(), ServiceError> {
        let most = self.aggregator.node().children().len() as u64 * (OPEN_EPOCHS + 2);
        for _ in 0..most {
            // Not slowed by tokio's budget of a task, which would say that nothing has come.
            let Some(heard) = unconstrained(children.receive()).now_or_never() else { break };
            let heard = heard.map_err(ServiceError::Link)?;
            self.hear(DeviceId(heard.device), &heard.frame);
        }
        Ok(())
    }

    fn hear(&mut self, child: DeviceId, frame: &[u8]) {
        self.shown.metrics.frames.increment(1);
        let now_ms = self.unix_ms();
        if let Err(refused) = self.aggregator.hear(child, frame, now_ms) {
            let known = self.aggregator.node().child(child);
            let name = known.map_or_else(
                || child.to_string(),
                |at| self.aggregator.node().children()[at].name.clone(),
            );
            self.refuse(&name, refused);
        }
    }

    fn refuse(&mut self, whose: &str, refused: Refused) {
        self.shown.metrics.refused(refused.name());
        debug!(from = whose, %refused, "refused a frame");
        if self.refused.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
            self.refused = Some(Instant::now());
            warn!(from = whose, %refused, "frames are refused");
        }
    }

    async fn say(
        &self,
        said: Said,
        children: &impl ParentLink,
        up: &impl ChildLink,
    ) -> Result<(), LinkError> {
        for unusable in said.unusable {
            warn!(query = %unusable.query, name = unusable.name, "this gateway cannot answer a query of the query schedule");
        }
        said.ended.iter().for_each(|ended| self.tell(ended));
        if let Some(schedule) = said.announcement {
            self.sent(timeout(SEND_TIME, children.announce(Bytes::from(schedule))).await)?;
        }
        for frame in said.up {
            self.sent(timeout(SEND_TIME, up.send(Bytes::from(frame))).await)?;
        }
        for (child, frame) in said.down {
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

    fn tell(&self, ended: &Ended) {
        let metrics = &self.shown.metrics;
        metrics.epochs.increment(1);
        metrics.participants.set(f64::from(ended.participants));
        let Ended { query, epoch, participants, silent } = ended;
        if silent.is_empty() {
            debug!(%query, epoch, participants, "an epoch is complete");
            return;
        }
        metrics.epochs_partial.increment(1);
        let children = self.aggregator.node().children();
        let names =
            silent.iter().filter_map(|child| children.get(*child)).map(|child| child.name.as_str());
        names.clone().for_each(|name| metrics.silent(name));
        let more = silent.len().saturating_sub(NAMED);
        let names = names.take(NAMED).collect::<Vec<_>>().join(", ");
        warn!(%query, epoch, participants, silent = names, more, "children have not spoken in time");
    }
}
