//! A running gateway: a link to the devices, a station with its state on disk, an uplink to the
//! cloud, and metrics and health for the operator.
//!
//! The station has its own thread, because it waits for the disk. It takes a frame from the link
//! only when it is ready to process the frame. Frames that arrive faster wait in the link, which
//! returns one frame from each device in turn. The station receives a batch of frames and commits
//! the batch. After the commit it sends acknowledgements and announcements through a bounded queue.
//!
//! An epoch ends when every device has closed it, or after a grace period in which late frames can
//! arrive. The grace period does not include the time in which no link is up or the disk fails.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use moteseal_api::NamedError as _;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::link::State;
use moteseal_net::{Client, LinkError, ParentLink, Up};
use moteseal_seal::wire::{EventFrame, HealthFrame};
use moteseal_service::log_limit::log_suppressed;
use moteseal_service::metrics::{UPKEEP, gauge_value as value};
use moteseal_service::{LogLimit, Monitor, Monitored};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, error, info, warn};

mod health;
mod messages;
mod rosters;
mod urgent;
mod wait;

use crate::clock::Clock;
use crate::coordinator::{Counts, Refused};
use crate::error::ServiceError;
use crate::group_time::GroupTime;
pub use crate::group_time::Time;
use crate::health::GatewayHealth;
use crate::metrics::Metrics;
use crate::station::{Outgoing, Station, StationError};
use crate::uplink;
use messages::{confirm, send};
pub use rosters::{RecordRoster, Rosters};
use wait::ready_within;

/// The maximum number of frames that the station receives before it commits.
const INTAKE: usize = 128;
/// The minimum time limit for receiving a batch. Usually the limit is half of the time that the
/// last commit took. If one device floods and the batch also contains frames of other devices, the
/// limit is a quarter of that time. Frames then do not wait much longer than a sync takes.
const BATCH: Duration = Duration::from_micros(50);
/// While one device floods, the station waits before each batch for frames of other devices, if
/// another device sent a frame within this time.
const ACTIVE_WITHIN: Duration = Duration::from_secs(10);
/// Busy-poll for frames of other devices for this long, then poll at the interval `POLL_INTERVAL`.
const BUSY_POLL: Duration = Duration::from_millis(1);
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// The maximum number of messages that wait for the link. Messages beyond it are dropped. A device
/// that asks again receives a new acknowledgement.
const MESSAGES: usize = 64;
/// How often the station reads the clock, measures itself and notices that it must stop, if no frames
/// arrive.
const TICK: Duration = Duration::from_millis(200);
/// The longest wait for frames of other devices.
const LONGEST_POLL: Duration = Duration::from_millis(50);
/// The name of the problem that is reported when the state folder has reached its maximum size.
const OUTBOX_FULL: &str = "OutboxFull";
/// The minimum interval between two log lines that report rejected frames.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// How long a station that cannot accept frames waits before it tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long after an epoch's end the gateway waits for frames of the epoch before it signs the
    /// manifest.
    pub grace: Duration,
    /// Whether epochs follow the gateway's clock or the devices' recordings.
    pub time: Time,
    /// How often the gateway repeats the announcement of an unchanged round.
    pub announce_every: Duration,
    /// The address on which metrics and health are served, if any.
    pub listen: Option<SocketAddr>,
    /// The first pause after a failed upload. Each later pause is twice as long, up to a minute.
    pub first_pause: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(30),
            time: Time::Clock,
            announce_every: Duration::from_secs(10),
            listen: None,
            first_pause: Duration::from_secs(1),
        }
    }
}

/// The state that the parts of a running gateway share.
pub(crate) struct Shared {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) is_link_up: AtomicBool,
    pub(crate) takes_frames: AtomicBool,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) health: Option<Arc<GatewayHealth>>,
}

impl Monitored for Shared {
    fn metrics(&self) -> String {
        let mut page = self.metrics.render();
        if let Some(health) = &self.health {
            health.render(&mut page);
        }
        page
    }

    fn trouble(&self) -> Option<&'static str> {
        if self.is_stopping.load(Ordering::Relaxed) {
            Some("stopping")
        } else if !self.takes_frames.load(Ordering::Relaxed) {
            Some("no room: frames are not accepted")
        } else if !self.is_link_up.load(Ordering::Relaxed) {
            Some("the link to the devices is down")
        } else {
            None
        }
    }
}

/// A gateway that is ready to run.
pub struct Gateway {
    station: Station,
    settings: Settings,
    cloud: Option<Client>,
    monitor: Option<Monitor>,
    rosters: Option<Rosters>,
    health: Option<Arc<GatewayHealth>>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Creates a gateway that uploads to `cloud`. If `cloud` is `None`, everything stays in the
    /// outbox.
    ///
    /// # Errors
    /// `Listen` if the address for metrics and health cannot be used.
    pub async fn bind(
        station: Station,
        settings: Settings,
        cloud: Option<Client>,
    ) -> Result<Self, ServiceError> {
        let monitor = crate::monitor(settings.listen).await?;
        Ok(Self { station, settings, cloud, monitor, rosters: None, health: None })
    }

    /// Makes the gateway continue with each later version of the roster while it runs.
    #[must_use]
    pub fn with_rosters(self, rosters: Rosters) -> Self {
        Self { rosters: Some(rosters), ..self }
    }

    /// Makes the gateway keep, serve and export the health of its nodes and its own.
    #[must_use]
    pub fn with_health(self, health: Arc<GatewayHealth>) -> Self {
        Self { health: Some(health), ..self }
    }

    /// Returns the address on which metrics and health are served.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.monitor.as_ref().map(Monitor::address)
    }

    /// Runs until `stop` completes. Then the gateway accepts no more frames. It makes the frames
    /// that have arrived durable, acknowledges them, and returns.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn run<L: ParentLink + Sync + 'static>(
        self,
        link: L,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), ServiceError> {
        let Self { station, settings, cloud, monitor, rosters, health } = self;
        let shared = Arc::new(Shared {
            metrics: Arc::new(Metrics::new()),
            is_link_up: AtomicBool::new(false),
            takes_frames: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            health,
        });
        let roster = station.coordinator().roster();
        info!(group = roster.group_name(), devices = roster.devices().len(), "serving");
        // Stops the station's thread even if this future is dropped.
        let _stop = StopOnDrop(Arc::clone(&shared));
        let (outbox, urgent) = (station.outbox(), station.urgent());
        let link = Arc::new(link);
        let (send_messages, mut messages) = mpsc::channel(MESSAGES);
        let (ended, mut has_ended) = oneshot::channel();
        let mut keeper = Keeper::new(station, settings.clone(), Arc::clone(&shared), send_messages);
        keeper.rosters = rosters;
        let (handle, of_station) = (Handle::current(), Arc::clone(&link));
        let body = move || {
            // The link may use the runtime's timers at any time, so the thread must be inside the
            // runtime.
            let _runtime = handle.enter();
            let _ = ended.send(keeper.run(&*of_station));
        };
        std::thread::Builder::new()
            .name("station".to_owned())
            .spawn(body)
            .map_err(ServiceError::Thread)?;
        let mut tasks = tokio::task::JoinSet::new();
        if let Some(cloud) = cloud {
            let metrics = Arc::clone(&shared.metrics);
            let of_events = (cloud.clone(), Arc::clone(&metrics));
            tasks.spawn(uplink::run(outbox, cloud, metrics, settings.first_pause));
            let (cloud, metrics) = of_events;
            tasks.spawn(uplink::urgent::run(urgent, cloud, metrics, settings.first_pause));
        }
        if let Some(monitor) = monitor {
            tasks.spawn(monitor.serve(Arc::clone(&shared)));
        }

        if let Some(health) = &shared.health {
            tasks.spawn(Arc::clone(health).run());
        }

        let mut state = link.state();
        let mut stop = pin!(stop);
        let mut is_asked = false;
        let mut upkeep = tokio::time::interval(UPKEEP);
        let mut result = Ok(());
        note_link(&shared, &state.borrow_and_update());
        loop {
            tokio::select! {
                biased;
                () = &mut stop, if !is_asked => {
                    info!("stopping");
                    shared.is_stopping.store(true, Ordering::Relaxed);
                    is_asked = true;
                }
                outgoing = messages.recv() => match outgoing {
                    Some(outgoing) => send(&*link, outgoing).await,
                    None => break,
                },
                changed = state.changed() => match changed {
                    Ok(()) => note_link(&shared, &state.borrow_and_update()),
                    Err(_) => { result = Err(ServiceError::Link(LinkError::Closed)); break; }
                },
                _ = upkeep.tick() => {
                    shared.metrics.upkeep();
                    shared.metrics.frames_dropped.absolute(link.dropped());
                    shared.metrics.set_refused(&link.refused());
                }
            }
        }
        shared.is_stopping.store(true, Ordering::Relaxed);
        // Drop the messages that can no longer be sent, so that the station's thread does not wait
        // and can end.
        messages.close();
        tasks.shutdown().await;
        let ended = (&mut has_ended).await;
        info!("stopped");
        match ended {
            Ok(Ok(())) => result,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ServiceError::Thread(std::io::Error::other("it stopped unexpectedly"))),
        }
    }
}

/// Stops the station's thread when it is dropped.
struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.is_stopping.store(true, Ordering::Relaxed);
    }
}

fn note_link(shared: &Shared, state: &State) {
    let is_up = matches!(state, State::Up);
    let was_up = shared.is_link_up.swap(is_up, Ordering::Relaxed);
    shared.metrics.link_up.set(f64::from(u8::from(is_up)));
    match state {
        State::Down { cause, again_in } => {
            warn!(cause = %cause.named(), ?again_in, "the link to the devices is down");
        }
        State::Up if !was_up => info!("the link to the devices is up"),
        _ => {}
    }
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The state of the station's thread.
struct Keeper {
    station: Station,
    settings: Settings,
    shared: Arc<Shared>,
    messages: mpsc::Sender<Outgoing>,
    time: GroupTime,
    clock: Clock,
    announced: Option<Instant>,
    /// Whether an announcement was dropped because the link was too slow, and must be repeated.
    announces_again: bool,
    /// The name of the problem that prevents the gateway from accepting frames, if there is one.
    trouble: Option<&'static str>,
    measured: Option<Instant>,
    /// How long the last commit took.
    committed_in: Duration,
    /// The device that sent more than half of the frames of the last batch, if any.
    flooder: Option<[u8; 8]>,
    /// When a frame of another device last arrived while one device was flooding.
    others: Option<Instant>,
    /// The log lines about rejected frames, by sender.
    rejection_log: LogLimit<DeviceId>,
    counted: Counts,
    rosters: Option<Rosters>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        log_suppressed(&self.rejection_log.finish());
    }
}

impl Keeper {
    fn new(
        station: Station,
        settings: Settings,
        shared: Arc<Shared>,
        messages: mpsc::Sender<Outgoing>,
    ) -> Self {
        let mut time = GroupTime::new(settings.time, settings.grace, Instant::now());
        station
            .coordinator()
            .reached()
            .for_each(|(device, epoch)| time.received(device, epoch, Instant::now()));
        let counted = station.coordinator().counts();
        let clock = Clock::new(settings.grace);
        Self {
            station,
            settings,
            shared,
            messages,
            time,
            clock,
            announced: None,
            announces_again: false,
            trouble: None,
            measured: None,
            committed_in: Duration::ZERO,
            flooder: None,
            others: None,
            rejection_log: LogLimit::new(1, LOG_INTERVAL),
            rosters: None,
            counted,
        }
    }

    fn run<L: ParentLink + Sync>(mut self, link: &L) -> Result<(), ServiceError> {
        loop {
            if !link.is_up() {
                self.time.restart_grace(Instant::now());
            }
            let is_last = self.shared.is_stopping.load(Ordering::Relaxed);
            if self.can_take() {
                self.take_frames(link).map_err(ServiceError::Link)?;
            } else if !is_last {
                self.wait_for_room();
            }
            // End epochs even while no frames are accepted, because an ended epoch makes room.
            self.end_epochs()?;
            let start = Instant::now();
            self.commit(Station::commit)?;
            self.committed_in = start.elapsed();
            if self.measured.is_none_or(|measured| measured.elapsed() >= TICK) {
                self.measured = Some(Instant::now());
                self.measure();
                log_suppressed(&self.rejection_log.suppressed());
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Receives a batch of frames: those that have arrived, or else the next one to arrive within a
    /// tick.
    fn take_frames<L: ParentLink + Sync>(&mut self, link: &L) -> Result<(), LinkError> {
        let others_active = self.others.is_some_and(|received| received.elapsed() < ACTIVE_WITHIN);
        let flooder = self.flooder.take().filter(|_| others_active);
        let of_others = flooder.map_or(Ok(None), |flooder| self.wait_for_others(link, flooder))?;
        let excluded = flooder.filter(|_| of_others.is_some());
        let mut next = match of_others {
            None => ready_within(TICK, link.receive()).transpose()?,
            of_others => of_others,
        };
        self.load_roster(link);
        self.advance_time();
        let start = Instant::now();
        let (mut received, mut most, mut by_device) = (0, 0, HashMap::new());
        while let Some(up) = next {
            self.receive(link, &up);
            let own: &mut usize = by_device.entry(up.device).or_default();
            *own += 1;
            (received, most) = (received + 1, most.max(*own));
            // A device that floods must not delay the commit that the frames of other devices wait
            // for.
            let is_flooded = by_device.len() > 1 && 2 * most > received;
            let time = self.committed_in / if is_flooded { 4 } else { 2 };
            let is_enough =
                received == INTAKE || self.station.is_due() || start.elapsed() >= time.max(BATCH);
            next = if is_enough {
                None
            } else {
                link.receive_but(excluded).now_or_never().transpose()?
            };
        }
        let floods = by_device
            .iter()
            .find(|(_, own)| excluded.is_none() && received > 1 && 2 * **own > received);
        self.flooder = floods.map(|(device, _)| *device);
        if excluded.is_some() || by_device.len() > 1 {
            self.others = Some(Instant::now());
        }
        Ok(())
    }

    /// Called before a batch while one device floods. Waits for a frame of another device for as
    /// long as the last commit took. A frame that arrives in this time is committed without the
    /// flooding device's frames, so it waits for only one commit.
    fn wait_for_others<L: ParentLink + Sync>(
        &self,
        link: &L,
        flooder: [u8; 8],
    ) -> Result<Option<Up>, LinkError> {
        let start = Instant::now();
        loop {
            let next = link.receive_but(Some(flooder)).now_or_never().transpose()?;
            if next.is_some() || start.elapsed() >= self.committed_in.min(LONGEST_POLL) {
                return Ok(next);
            }
            // On a fast disk, the whole wait is shorter than the shortest sleep, so poll first.
            if start.elapsed() < BUSY_POLL {
                std::thread::yield_now();
            } else {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Waits for a moment, until it is time to check again whether the disk works or the cloud has
    /// accepted epochs.
    fn wait_for_room(&mut self) {
        // While the disk fails, devices can send nothing, so the grace period restarts. If the
        // folder has reached its maximum size, the grace period must continue: unless epochs end
        // and are uploaded, nothing makes room.
        if self.trouble != Some(OUTBOX_FULL) {
            self.time.restart_grace(Instant::now());
        }
        self.advance_time();
        std::thread::sleep(RETRY_INTERVAL);
    }

    /// Returns whether frames can be accepted. Logs each change.
    fn can_take(&mut self) -> bool {
        let now = match (self.trouble, self.station.has_room()) {
            (None | Some(OUTBOX_FULL), false) => Some(OUTBOX_FULL),
            (Some(OUTBOX_FULL), true) => None,
            (trouble, _) => trouble,
        };
        self.set_trouble(now, || {
            "the state folder has reached its limit `disk`; no frames are accepted until the cloud accepts epochs"
                .to_owned()
        });
        now.is_none()
    }

    /// Changes whether frames are accepted, and logs the change after it has taken effect.
    fn set_trouble(&mut self, trouble: Option<&'static str>, detail: impl FnOnce() -> String) {
        self.shared.takes_frames.store(trouble.is_none(), Ordering::Relaxed);
        self.shared.metrics.taking.set(f64::from(u8::from(trouble.is_none())));
        if self.trouble != trouble {
            match trouble {
                Some(name) => error!(
                    name,
                    detail = detail(),
                    "frames are neither accepted nor acknowledged, and devices keep them"
                ),
                None => info!("frames are accepted again"),
            }
            self.trouble = trouble;
        }
    }

    /// Returns the trusted time of the machine's clock, in milliseconds since 1970.
    fn unix_ms(&mut self) -> u64 {
        let clock_ms = unix_ms();
        let reading = self.clock.read(clock_ms, Instant::now());
        if reading.has_jumped {
            let grace = self.settings.grace.as_secs_f64();
            warn!(
                clock_ms,
                believed_ms = reading.unix_ms,
                grace,
                "the clock has jumped ahead; the new time is used if the clock stays ahead for the grace period"
            );
        }
        reading.unix_ms
    }

    fn advance_time(&mut self) {
        let reading = self.unix_ms();
        let clock = self.station.coordinator().roster().epoch_of(reading);
        let is_later = self.time.advance(clock, Instant::now());
        let Some(newest) = self.time.newest() else { return };
        // Announce a new epoch at once. Otherwise announce the open epochs in turn.
        let turn = self.settings.announce_every / self.station.announced_epochs();
        if is_later || std::mem::take(&mut self.announces_again) {
            self.station.announce(newest);
        } else if self.announced.is_none_or(|at| at.elapsed() >= turn) {
            self.announced = Some(Instant::now());
            self.station.announce_next(newest);
        }
    }

    fn receive<L: ParentLink>(&mut self, link: &L, up: &Up) {
        self.shared.metrics.frames.increment(1);
        if EventFrame::is_claimed(&up.frame) {
            return self.receive_event(link, up);
        }
        if HealthFrame::is_claimed(&up.frame) {
            return self.receive_health(link, up);
        }
        match self.station.receive(&up.frame, self.time.checked_against()) {
            Ok(news) => {
                confirm(link, up);
                if let Some((_, epoch)) = news.about {
                    self.time.received(news.device, epoch, Instant::now());
                }
            }
            Err(refused) => {
                if !matches!(refused, Refused::Frame(_) | Refused::UnknownDevice) {
                    confirm(link, up);
                }
                self.shared.metrics.refused(refused.name());
                self.shared.health.iter().for_each(|health| health.refused());
                let device = DeviceId(up.device);
                let is_lasting = matches!(refused, Refused::OverQuota | Refused::OtherSeal)
                    || refused.is_behind()
                    || refused.is_final().is_some();
                if is_lasting && self.rejection_log.allows(device) {
                    warn!(name = refused.name(), %device, %refused, "frames of a device are rejected");
                }
                debug!(%device, name = refused.name(), %refused, "rejected a frame");
            }
        }
    }

    fn end_epochs(&mut self) -> Result<(), ServiceError> {
        // All received frames are durable before an epoch ends, and each end is durable before the
        // next epoch ends.
        let now_ms = self.unix_ms();
        let mut next = self.station.coordinator().epochs().next();
        while let Some(epoch) = next {
            let coordinator = self.station.coordinator();
            let end_ms = coordinator
                .roster()
                .epoch_start_ms(EpochNumber(epoch.0.saturating_add(1)))
                .unwrap_or(u64::MAX);
            let late = Duration::from_millis(now_ms.saturating_sub(end_ms));
            if !coordinator.is_complete(epoch) && !self.time.is_over(epoch, late, Instant::now()) {
                return Ok(());
            }
            self.station.end(epoch).map_err(ServiceError::Station)?;
            if !self.commit(Station::commit_and_continue)? {
                return Ok(());
            }
            self.time.ended(epoch);
            next = self.station.coordinator().epochs().next();
        }
        Ok(())
    }

    /// Commits, and sends the messages that may be sent after the commit. Returns `Ok(true)` if the
    /// commit succeeded, `Ok(false)` if it can be repeated later, and `Err` if no repetition can
    /// succeed.
    fn commit(
        &mut self,
        how: fn(&mut Station) -> Result<Outgoing, StationError>,
    ) -> Result<bool, ServiceError> {
        let start = Instant::now();
        match how(&mut self.station) {
            Ok(outgoing) => {
                if self.trouble.is_some_and(|name| name != OUTBOX_FULL) {
                    self.set_trouble(None, String::new);
                }
                if !(outgoing.acknowledgements.is_empty() && outgoing.events.is_empty()) {
                    self.shared.metrics.commit_seconds.record(start.elapsed());
                }
                if outgoing != Outgoing::default() {
                    let announcement = outgoing.announcement.is_some();
                    // Messages that do not fit in the queue of a slow link are dropped. They are
                    // sent again later: acknowledgements when devices ask, announcements in turn.
                    if self.messages.try_send(outgoing).is_err() && announcement {
                        self.announces_again = true;
                    }
                }
                for over in self.station.take_over() {
                    let metrics = &self.shared.metrics;
                    metrics.epochs_ended.increment(1);
                    metrics.events_kept.increment(over.kept);
                    metrics.devices_absent.set(value(over.absent.len() as u64));
                    let (epoch, round, kept, seals) =
                        (over.epoch.0, over.round.0, over.kept, over.seals);
                    info!(
                        epoch,
                        round,
                        kept,
                        seals,
                        absent = over.absent.len(),
                        "an epoch has ended"
                    );
                }
                Ok(true)
            }
            Err(
                error @ (StationError::Journal(_) | StationError::Outbox(_) | StationError::Io(..)),
            ) => {
                self.set_trouble(Some(error.name()), || error.to_string());
                Ok(false)
            }
            Err(error) => Err(ServiceError::Station(error)),
        }
    }

    fn measure(&mut self) {
        let (coordinator, metrics) = (self.station.coordinator(), &self.shared.metrics);
        let Counts { seen, discarded } = coordinator.counts();
        metrics.events_seen.increment(seen - self.counted.seen);
        metrics.events_discarded.increment(discarded - self.counted.discarded);
        self.counted = coordinator.counts();
        metrics.buffered.set(value(
            coordinator.epochs().map(|epoch| coordinator.kept(epoch)).max().unwrap_or(0),
        ));
        let newest = self.time.newest().unwrap_or(EpochNumber(0));
        metrics.budget.set(value(coordinator.budget(newest)));
        metrics.round.set(f64::from(coordinator.round(newest).0));
        metrics.epoch.set(value(newest.0));
        metrics.state_bytes.set(value(self.station.bytes()));
        metrics.state_bound.set(value(self.station.bound()));
        let outbox = self.station.outbox();
        let names = outbox.names();
        metrics.outbox_items.set(value(names.len() as u64));
        metrics.outbox_bytes.set(value(outbox.bytes()));
        if let Some(health) = &self.shared.health {
            health.measured(names.len(), seen);
        }
        metrics.oldest_epoch.set(value(names.first().map_or(newest, |name| name.epoch).0));
    }
}
