//! A running gateway: a link to the devices, a station with its disk, an uplink to the cloud, and
//! what an operator watches.
//!
//! The station lives on a thread of its own, for it waits for the disk. It takes frames from the
//! link when it can hear them, so that what comes too fast waits there, in fair turns; its words go
//! to the link through a bounded queue. It hears frames that have come, commits them at once, and
//! only then speaks. Epochs end by the clock, after a grace in which frames could come: time in
//! which the link was down, or the station could take nothing, is no grace.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::FutureExt as _;
use moteseal_core::record::EpochNumber;
use moteseal_net::link::State;
use moteseal_net::{Client, LinkError, ParentLink, Up};
use moteseal_service::metrics::{UPKEEP, gauge_value as value};
use moteseal_service::{Monitor, Monitored};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tracing::{debug, error, info, warn};

use crate::clock::Clock;
use crate::coordinator::{Counts, Refused};
use crate::error::ServiceError;
use crate::group_time::GroupTime;
pub use crate::group_time::Time;
use crate::metrics::Metrics;
use crate::station::{Said, Station, StationError};
use crate::uplink;

/// Frames that the station hears before it commits.
const INTAKE: usize = 128;
/// The least time that a batch of frames may take. As a rule it may take half as long as the commit
/// before did, and half of that once frames of others stand in it beside those of a device that
/// floods: they shall wait little longer than for the sync.
const BATCH: Duration = Duration::from_micros(50);
/// Who was heard within this time beside a device that floods is waited for between its commits.
const LATELY: Duration = Duration::from_secs(10);
/// So long it is looked without a pause whether one of the others has come, and then this often.
const BRIEF: Duration = Duration::from_millis(1);
const GLANCE: Duration = Duration::from_micros(100);
/// Words that wait for the link; what does not fit is said again when a device asks.
const WORDS: usize = 64;
/// How long a word may wait for the link to take it.
const WORD_TIME: Duration = Duration::from_secs(5);
/// How often the station looks at the clock.
const TICK: Duration = Duration::from_millis(50);
/// The name of the trouble that the state is at its bound.
const OUTBOX_FULL: &str = "OutboxFull";
/// How often it is said again that a device fills the journal, or that a seal is refused for good.
const SAY_AGAIN: Duration = Duration::from_secs(60);
/// How long a station that cannot go on waits before it tries again.
const AGAIN: Duration = Duration::from_millis(500);

/// How a gateway runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long after an epoch's end what belongs to it is still taken into its manifest.
    pub grace: Duration,
    /// Whose time epochs follow.
    pub time: Time,
    /// How often the round is announced again although it has not changed.
    pub announce_every: Duration,
    /// Where metrics and health are served; nowhere if none.
    pub listen: Option<SocketAddr>,
    /// The first pause after an upload that failed; later ones double, up to a minute.
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

/// What the parts of a running gateway share.
pub(crate) struct Shared {
    pub(crate) metrics: Arc<Metrics>,
    /// Something came into the outbox.
    pub(crate) stored: Arc<Notify>,
    pub(crate) is_link_up: AtomicBool,
    pub(crate) takes_frames: AtomicBool,
    pub(crate) is_stopping: AtomicBool,
}

impl Monitored for Shared {
    fn metrics(&self) -> String {
        self.metrics.render()
    }

    fn trouble(&self) -> Option<&'static str> {
        if self.is_stopping.load(Ordering::Relaxed) {
            Some("stopping")
        } else if !self.takes_frames.load(Ordering::Relaxed) {
            Some("no room: frames are not taken")
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
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway that uploads to `cloud`, or, without one, keeps everything in its outbox.
    ///
    /// # Errors
    /// `Listen`.
    pub async fn bind(
        station: Station,
        settings: Settings,
        cloud: Option<Client>,
    ) -> Result<Self, ServiceError> {
        let monitor = crate::monitor(settings.listen).await?;
        Ok(Self { station, settings, cloud, monitor })
    }

    /// Where metrics and health are served.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.monitor.as_ref().map(Monitor::address)
    }

    /// Runs until `stop` is done; then takes no more frames, makes durable and acknowledges what
    /// has come, and returns.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn run<L: ParentLink + Sync + 'static>(
        self,
        link: L,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), ServiceError> {
        let Self { station, settings, cloud, monitor } = self;
        let shared = Arc::new(Shared {
            metrics: Arc::new(Metrics::new()),
            stored: Arc::new(Notify::new()),
            is_link_up: AtomicBool::new(false),
            takes_frames: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
        });
        let roster = station.coordinator().roster();
        info!(group = roster.group_name(), devices = roster.devices().len(), "serving");
        // The station goes on for no longer than this, also where it is dropped.
        let _stop = StopOnDrop(Arc::clone(&shared));
        let outbox = station.outbox();
        let link = Arc::new(link);
        let (send_words, mut words) = mpsc::channel(WORDS);
        let (ended, mut has_ended) = oneshot::channel();
        let keeper = Keeper::new(station, settings.clone(), Arc::clone(&shared), send_words);
        let (handle, of_station) = (Handle::current(), Arc::clone(&link));
        let body = move || {
            // A link may want the runtime's clock whenever it is asked.
            let _runtime = handle.enter();
            let _ = ended.send(keeper.run(&*of_station, &handle));
        };
        std::thread::Builder::new()
            .name("station".to_owned())
            .spawn(body)
            .map_err(ServiceError::Thread)?;
        let mut tasks = tokio::task::JoinSet::new();
        if let Some(cloud) = cloud {
            let (metrics, stored) = (Arc::clone(&shared.metrics), Arc::clone(&shared.stored));
            tasks.spawn(uplink::run(outbox, cloud, metrics, stored, settings.first_pause));
        }
        if let Some(monitor) = monitor {
            tasks.spawn(monitor.serve(Arc::clone(&shared)));
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
                said = words.recv() => match said {
                    Some(said) => say(&*link, said).await,
                    None => break,
                },
                changed = state.changed() => match changed {
                    Ok(()) => note_link(&shared, &state.borrow_and_update()),
                    Err(_) => { result = Err(ServiceError::Link(LinkError::Closed)); break; }
                },
                _ = upkeep.tick() => {
                    shared.metrics.upkeep();
                    shared.metrics.frames_dropped.absolute(link.dropped());
                }
            }
        }
        shared.is_stopping.store(true, Ordering::Relaxed);
        // Words that nobody hears any more are dropped, so that the station can end.
        words.close();
        tasks.shutdown().await;
        let ended = (&mut has_ended).await;
        info!("stopped");
        match ended {
            Ok(Ok(())) => result,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ServiceError::Thread(std::io::Error::other("it ended unexpectedly"))),
        }
    }
}

/// Asks the station to end.
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
            warn!(%cause, ?again_in, "the link to the devices is down");
        }
        State::Up if !was_up => info!("the link to the devices is up"),
        _ => {}
    }
}

async fn say<L: ParentLink>(link: &L, said: Said) {
    if let Some(announcement) = said.announcement {
        let announced =
            tokio::time::timeout(WORD_TIME, link.announce(Bytes::from(announcement))).await;
        debug!(?announced, "announced");
    }
    for (device, frame) in said.acknowledgements {
        // A device that does not hear it asks again.
        let sent = tokio::time::timeout(WORD_TIME, link.send(device.0, Bytes::from(frame))).await;
        if !matches!(sent, Ok(Ok(()))) {
            debug!(%device, ?sent, "an acknowledgement was not sent");
            break;
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// What runs on the station's thread.
struct Keeper {
    station: Station,
    settings: Settings,
    shared: Arc<Shared>,
    words: mpsc::Sender<Said>,
    time: GroupTime,
    clock: Clock,
    announced: Option<Instant>,
    /// The link has missed an announcement.
    says_again: bool,
    /// Why no frames are taken, if none are.
    trouble: Option<&'static str>,
    measured: Option<Instant>,
    /// How long the last commit took.
    committed_in: Duration,
    /// Who sent most of the frames that were heard last.
    flooder: Option<[u8; 8]>,
    /// When others were last heard beside one that floods.
    others: Option<Instant>,
    /// When it was last said that a device filled its part of the journal, or that a seal of one is
    /// refused for good.
    filled: Option<Instant>,
    counted: Counts,
}

impl Keeper {
    fn new(
        station: Station,
        settings: Settings,
        shared: Arc<Shared>,
        words: mpsc::Sender<Said>,
    ) -> Self {
        let mut time = GroupTime::new(settings.time, settings.grace, Instant::now());
        station
            .coordinator()
            .reached()
            .for_each(|(device, epoch)| time.heard(device, epoch, Instant::now()));
        let counted = station.coordinator().counts();
        let clock = Clock::new(settings.grace);
        Self {
            station,
            settings,
            shared,
            words,
            time,
            clock,
            announced: None,
            says_again: false,
            trouble: None,
            measured: None,
            committed_in: Duration::ZERO,
            flooder: None,
            others: None,
            filled: None,
            counted,
        }
    }

    fn run<L: ParentLink + Sync>(mut self, link: &L, handle: &Handle) -> Result<(), ServiceError> {
        loop {
            if !self.shared.is_link_up.load(Ordering::Relaxed) {
                self.time.nothing_came(Instant::now());
            }
            let is_last = self.shared.is_stopping.load(Ordering::Relaxed);
            if self.can_take() {
                self.take_frames(link, handle).map_err(ServiceError::Link)?;
            } else if !is_last {
                self.wait_for_room();
            }
            // Also while no frames are taken: what an epoch's end lets go of makes room.
            self.end_epochs()?;
            let start = Instant::now();
            self.commit(Station::commit)?;
            self.committed_in = start.elapsed();
            if self.measured.is_none_or(|measured| measured.elapsed() >= TICK) {
                self.measured = Some(Instant::now());
                self.measure();
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Hears frames that have come, or come within a tick.
    fn take_frames<L: ParentLink + Sync>(
        &mut self,
        link: &L,
        handle: &Handle,
    ) -> Result<(), LinkError> {
        let lately = self.others.is_some_and(|heard| heard.elapsed() < LATELY);
        let flooder = self.flooder.take().filter(|_| lately);
        let of_others = flooder.map_or(Ok(None), |flooder| self.wait_for_others(link, flooder))?;
        let but = flooder.filter(|_| of_others.is_some());
        let mut next = match of_others {
            None => handle
                .block_on(async { tokio::time::timeout(TICK, link.receive()).await })
                .ok()
                .transpose()?,
            of_others => of_others,
        };
        self.look_at_clock();
        let start = Instant::now();
        let (mut heard, mut most, mut by_device) = (0, 0, HashMap::new());
        while let Some(up) = next {
            self.hear(&up);
            let own: &mut usize = by_device.entry(up.device).or_default();
            *own += 1;
            (heard, most) = (heard + 1, most.max(*own));
            // Who floods must not put off the commit that others wait for.
            let is_flooded = by_device.len() > 1 && 2 * most > heard;
            let time = self.committed_in / if is_flooded { 4 } else { 2 };
            let is_enough =
                heard == INTAKE || self.station.is_due() || start.elapsed() >= time.max(BATCH);
            next =
                if is_enough { None } else { link.receive_but(but).now_or_never().transpose()? };
        }
        let floods =
            by_device.iter().find(|(_, own)| but.is_none() && heard > 1 && 2 * **own > heard);
        self.flooder = floods.map(|(device, _)| *device);
        if but.is_some() || by_device.len() > 1 {
            self.others = Some(Instant::now());
        }
        Ok(())
    }

    /// Between two commits for a device that floods, as long as the commit before took belongs to
    /// the others: a frame of theirs that comes then waits for no other commit than its own.
    fn wait_for_others<L: ParentLink + Sync>(
        &self,
        link: &L,
        flooder: [u8; 8],
    ) -> Result<Option<Up>, LinkError> {
        let start = Instant::now();
        loop {
            let next = link.receive_but(Some(flooder)).now_or_never().transpose()?;
            if next.is_some() || start.elapsed() >= self.committed_in.min(TICK) {
                return Ok(next);
            }
            // A sync of a fast disk is shorter than any sleep.
            if start.elapsed() < BRIEF {
                std::thread::yield_now();
            } else {
                std::thread::sleep(GLANCE);
            }
        }
    }

    /// Waits for the disk, or for the cloud to take epochs.
    fn wait_for_room(&mut self) {
        // While the disk fails, devices can do nothing. At the bound, time goes on: if epochs did
        // not end, nothing might ever make room.
        if self.trouble != Some(OUTBOX_FULL) {
            self.time.nothing_came(Instant::now());
        }
        self.look_at_clock();
        std::thread::sleep(AGAIN);
    }

    /// Whether frames can be taken; says so when that changes.
    fn can_take(&mut self) -> bool {
        let now = match (self.trouble, self.station.has_room()) {
            (None | Some(OUTBOX_FULL), false) => Some(OUTBOX_FULL),
            (Some(OUTBOX_FULL), true) => None,
            (trouble, _) => trouble,
        };
        self.be_in(now, || {
            "the state is at its bound; no frame is taken until the cloud has taken epochs"
                .to_owned()
        });
        now.is_none()
    }

    fn be_in(&mut self, trouble: Option<&'static str>, detail: impl FnOnce() -> String) {
        if self.trouble != trouble {
            match trouble {
                Some(name) => error!(
                    name,
                    detail = detail(),
                    "frames are not taken and not acknowledged; devices hold back"
                ),
                None => info!("frames are taken again"),
            }
            self.trouble = trouble;
        }
        self.shared.takes_frames.store(trouble.is_none(), Ordering::Relaxed);
        self.shared.metrics.taking.set(f64::from(u8::from(trouble.is_none())));
    }

    /// The machine's clock, as far as it is believed.
    fn unix_ms(&mut self) -> u64 {
        let clock_ms = unix_ms();
        let told = self.clock.read(clock_ms, Instant::now());
        if told.has_jumped {
            let grace = self.settings.grace.as_secs_f64();
            warn!(
                clock_ms,
                believed_ms = told.unix_ms,
                grace,
                "the clock has jumped ahead; it is believed if it says so for the grace"
            );
        }
        told.unix_ms
    }

    fn look_at_clock(&mut self) {
        let told = self.unix_ms();
        let clock = self.station.coordinator().roster().epoch_of(told);
        let is_later = self.time.look(clock, Instant::now());
        let Some(newest) = self.time.newest() else { return };
        // A newer epoch is said at once; those that are open take turns.
        let turn = self.settings.announce_every / self.station.announced_epochs();
        if is_later || std::mem::take(&mut self.says_again) {
            self.station.announce(newest);
        } else if self.announced.is_none_or(|at| at.elapsed() >= turn) {
            self.announced = Some(Instant::now());
            self.station.announce_next(newest);
        }
    }

    fn hear(&mut self, up: &Up) {
        self.shared.metrics.frames.increment(1);
        match self.station.hear(&up.frame, self.time.judged_by()) {
            Ok(news) => {
                if let Some((_, epoch)) = news.about {
                    self.time.heard(news.device, epoch, Instant::now());
                }
            }
            Err(refused) => {
                self.shared.metrics.refused(refused.name());
                let is_lasting = refused == Refused::OverQuota || refused.is_final().is_some();
                if is_lasting && self.filled.is_none_or(|at| at.elapsed() >= SAY_AGAIN) {
                    self.filled = Some(Instant::now());
                    warn!(name = refused.name(), device = %moteseal_core::DeviceId(up.device), %refused, "a device's frames are refused");
                }
                debug!(device = %moteseal_core::DeviceId(up.device), name = refused.name(), %refused, "refused a frame");
            }
        }
    }

    fn end_epochs(&mut self) -> Result<(), ServiceError> {
        // What was heard is durable before an epoch ends with it, and each end before the next.
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
            if !self.commit(Station::commit_and_go_on)? {
                return Ok(());
            }
            self.time.ended(epoch);
            next = self.station.coordinator().epochs().next();
        }
        Ok(())
    }

    /// Commits and speaks; says whether it could. What will never be possible is an error.
    fn commit(
        &mut self,
        how: fn(&mut Station) -> Result<Said, StationError>,
    ) -> Result<bool, ServiceError> {
        let start = Instant::now();
        match how(&mut self.station) {
            Ok(said) => {
                if self.trouble.is_some_and(|name| name != OUTBOX_FULL) {
                    self.be_in(None, String::new);
                }
                if !said.acknowledgements.is_empty() {
                    self.shared.metrics.commit_seconds.record(start.elapsed());
                }
                if said != Said::default() {
                    let announcement = said.announcement.is_some();
                    // A link that is slow misses words that are said again: acknowledgements when
                    // devices ask, rounds by and by.
                    if self.words.try_send(said).is_err() && announcement {
                        self.says_again = true;
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
                        "an epoch is over"
                    );
                }
                self.shared.stored.notify_one();
                Ok(true)
            }
            Err(
                error @ (StationError::Journal(_) | StationError::Outbox(_) | StationError::Io(..)),
            ) => {
                self.be_in(Some(error.name()), || error.to_string());
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
        metrics.budget.set(value(coordinator.budget()));
        let newest = self.time.newest().unwrap_or(EpochNumber(0));
        metrics.round.set(f64::from(coordinator.round(newest).0));
        metrics.epoch.set(value(newest.0));
        metrics.state_bytes.set(value(self.station.bytes()));
        metrics.state_bound.set(value(self.station.bound()));
        let outbox = self.station.outbox();
        let names = outbox.names();
        metrics.outbox_items.set(value(names.len() as u64));
        metrics.outbox_bytes.set(value(outbox.bytes()));
        metrics.oldest_epoch.set(value(names.first().map_or(newest, |name| name.epoch).0));
    }
}
