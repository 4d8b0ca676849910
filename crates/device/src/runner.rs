//! Runs a device over a link. The runner seals readings, from a recording or live, sends frames to
//! the gateway, and receives the gateway's frames.
//!
//! The link never delays sensing. While the gateway cannot be reached, closed seals wait. If too
//! many seals wait, newer seals are given up, as [`Mote`](crate::Mote) describes. Epochs never
//! decrease, even if the clock is set back. If the clock jumps far ahead, the epoch follows only
//! after the coordinator has announced a later epoch.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moteseal_api::ErrorKind;
use moteseal_core::record::EpochNumber;
use moteseal_core::signature::Signer;
use moteseal_net::link::State;
use moteseal_net::{ChildLink, Down, LinkError};
use moteseal_verify::{Calendar, Roster};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::answerers::Answerers;
use crate::clock::Clock;
use crate::durable::{DurableError, DurableMote, Taken};
use crate::import::Recording;
use crate::mote::BUFFER;
use crate::published::Publisher;
use crate::seal::SealRefused;
use crate::warning_log::WarningLog;

mod health;
mod live;
mod publishing;
mod retry;
mod roster;
mod sending;
mod sums;
mod urgent;

pub use health::HealthLink;
use health::{Newest, next_report};
pub use live::{LiveReading, Recorded, Reply};
use publishing::Unpublished;
use retry::Retry;
use roster::{next_policy, next_roster};
use sending::note_link;
use sums::receive;
pub use urgent::{UrgentReading, UrgentReport};
use urgent::{Waiting, arrived, next_urgent};

/// The maximum number of readings that are made durable together.
const BATCH: usize = 256;
/// The time by which an earlier clock of this device may have been ahead of its clock now, in
/// milliseconds.
const CLOCK_TOLERANCE_MS: u64 = 86_400_000;
/// The longest interval at which the clock is read, because it may be set.
const TICK: Duration = Duration::from_secs(1);
/// The shortest interval at which the clock is read.
const SHORTEST_TICK: Duration = Duration::from_millis(10);
/// If this many seals wait for the gateway, a recording without a pace pauses until there are
/// fewer.
const MOST_WAITING: usize = 2;

/// Settings of a running device.
#[derive(Debug)]
pub struct Settings {
    /// The lengths of the group's epochs.
    pub calendar: Calendar,
    /// The later versions of the roster that the device loads while it runs. The sender has checked
    /// that each version succeeds the one before it.
    pub rosters: Option<watch::Receiver<Arc<Roster>>>,
    /// For each querier of the answerers, in their order: the payloads of the later versions of its
    /// policy of private sums, if it has one. The sender has checked that the operator signed each, and
    /// that no version is lower than the one before it.
    pub policies: Vec<Option<watch::Receiver<Vec<u8>>>>,
    /// Urgent readings, which are recorded and sent at once; `None` if there are none.
    pub urgent: Option<mpsc::Receiver<UrgentReading>>,
    /// Receives what clients of the device may read, as soon as it is durable.
    pub publisher: Option<Publisher>,
    /// The device's health, which is sent to the gateway; `None` if it is not.
    pub health: Option<HealthLink>,
    /// How long readings of the open seal may wait, after they are durable, so that one frame has
    /// several of them. They wait only while the gateway has everything that was sent before.
    pub linger: Duration,
    /// How long to wait for an acknowledgement before frames are sent again. The wait doubles after
    /// each attempt without progress, up to `longest_wait`.
    pub first_wait: Duration,
    /// The maximum wait before frames are sent again.
    pub longest_wait: Duration,
}

impl Settings {
    /// Returns the default settings for a group with this calendar.
    #[must_use]
    pub const fn new(calendar: Calendar) -> Self {
        Self {
            calendar,
            rosters: None,
            policies: Vec::new(),
            urgent: None,
            publisher: None,
            health: None,
            linger: Duration::ZERO,
            first_wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(30),
        }
    }
}

/// The source of a device's readings.
pub enum Source<'a> {
    /// A recording, replayed as if it were sensed now.
    Recording {
        /// The complete recording. Readings that were sealed before are skipped.
        recording: &'a Recording,
        /// Recorded seconds per second; `None` to replay as fast as the gateway accepts readings.
        speed: Option<f64>,
    },
    /// Records as they are sensed.
    Live {
        /// Receives the records. The source ends when all senders are dropped.
        records: mpsc::Receiver<LiveReading>,
        /// The machine's clock, in milliseconds since 1970; usually [`system_clock`].
        clock: &'a (dyn Fn() -> u64 + Sync),
    },
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recording { .. } => "Recording",
            Self::Live { .. } => "Live",
        })
    }
}

/// Returns the time of this machine's clock, in milliseconds since 1970.
#[must_use]
pub fn system_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The result of running a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The number of readings that were sealed.
    pub readings: u64,
    /// Readings of a recording that an earlier process sealed, or whose epochs are closed.
    pub left_out: u64,
    /// Live readings that could not be sealed, because their size is wrong or they are too long.
    pub refused: u64,
    /// The number of readings in seals that were given up, because the device's state was older
    /// than its past, because the gateway refused the seals or lost their events, or because too
    /// many seals were waiting.
    pub given_up: u64,
    /// Whether the gateway has received everything that was not given up.
    pub is_done: bool,
}

/// Why a device stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A reading was rejected, or the journal or the chain's state failed.
    #[error(transparent)]
    Durable(#[from] DurableError),
    /// The link was refused or closed.
    #[error(transparent)]
    Link(LinkError),
}

impl RunError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Durable(error) => error.name(),
            Self::Link(error) => error.name(),
        }
    }

    /// Returns the error's kind.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Durable(error) => error.kind(),
            Self::Link(error) => error.kind(),
        }
    }
}

moteseal_api::named_error!(RunError);

/// The readings of a source, one by one.
enum Readings<'a> {
    Recorded {
        rows: Box<dyn Iterator<Item = (u64, &'a [u8])> + Send + 'a>,
        next: Option<(u64, &'a [u8])>,
        pace: Pace,
    },
    Live {
        records: mpsc::Receiver<LiveReading>,
        is_open: bool,
        now: Now<'a>,
    },
}

/// The clock of a live device.
struct Now<'a> {
    machine: &'a (dyn Fn() -> u64 + Sync),
    clock: Clock,
    start: Instant,
    /// Whether the machine's clock is too far ahead to be trusted.
    is_far: bool,
    /// Whether the machine's clock is in an earlier epoch than the newest sealed epoch.
    is_behind: bool,
}

impl<'a> Now<'a> {
    fn new(
        machine: &'a (dyn Fn() -> u64 + Sync),
        calendar: Calendar,
        newest: Option<EpochNumber>,
    ) -> Self {
        let clock = Clock::new(calendar, machine(), newest);
        Self { machine, clock, start: Instant::now(), is_far: false, is_behind: false }
    }

    fn announced(&mut self, epoch: EpochNumber) {
        self.clock.announced(epoch, self.start.elapsed());
    }

    /// Returns the current epoch by the clock, as far as the clock is trusted.
    fn epoch(&mut self) -> EpochNumber {
        let unix_ms = (self.machine)();
        let (epoch, is_far) = self.clock.epoch(unix_ms, self.start.elapsed());
        if is_far && !self.is_far {
            warn!(
                clock_ms = unix_ms,
                epoch = epoch.0,
                "the clock has jumped far ahead; until the gateway announces a later epoch, the epochs of readings follow the elapsed time"
            );
        }
        self.is_far = is_far;
        epoch
    }

    /// Returns the epoch for a reading: the epoch by the clock, but at least `least`.
    fn epoch_from(&mut self, least: EpochNumber) -> EpochNumber {
        let epoch = self.epoch();
        let is_behind = epoch < least;
        if is_behind && !self.is_behind {
            warn!(
                clock = epoch.0,
                epoch = least.0,
                "the clock was set back; readings are sealed under the newest epoch until the clock has caught up"
            );
        }
        self.is_behind = is_behind;
        epoch.max(least)
    }

    /// Returns when the clock must be read again: when the current epoch ends, or earlier.
    fn next_tick(&self) -> Duration {
        let end_ms = self.clock.end_ms((self.machine)(), self.start.elapsed());
        Duration::from_millis(end_ms).clamp(SHORTEST_TICK, TICK)
    }
}

/// Determines when the readings of a recording are due.
struct Pace {
    speed: Option<f64>,
    start: Option<(Instant, u64)>,
}

impl Pace {
    fn due(&mut self, unix_ms: u64) -> Instant {
        let (start, first_ms) = *self.start.get_or_insert((Instant::now(), unix_ms));
        #[allow(clippy::cast_precision_loss)]
        self.speed.map_or(start, |speed| {
            start
                + Duration::from_secs_f64(unix_ms.saturating_sub(first_ms) as f64 / 1000.0 / speed)
        })
    }
}

impl<'a> Readings<'a> {
    /// Returns the readings of a source, and the number of a recording's readings that are skipped
    /// because an earlier process sealed them. These are the first readings of the newest epoch, as
    /// many as `taken` counts, and all readings of earlier epochs. `newest` is the newest epoch
    /// that the device knows.
    fn new(
        source: Source<'a>,
        taken: Taken,
        newest: Option<EpochNumber>,
        calendar: &Calendar,
    ) -> (Self, u64) {
        match source {
            Source::Live { records, clock } => {
                let now = Now::new(clock, calendar.clone(), newest);
                (Self::Live { records, is_open: true, now }, 0)
            }
            Source::Recording { recording, speed } => {
                let (newest, mut left) = taken.unwrap_or((EpochNumber(0), 0));
                let is_taken = |(unix_ms, _): &(u64, &[u8])| {
                    let of = calendar.epoch_of(*unix_ms);
                    let counts = of == newest && left > 0;
                    left -= u64::from(counts);
                    counts || of < newest
                };
                let passed = recording.iter().take_while(is_taken).count();
                let mut rows: Box<dyn Iterator<Item = (u64, &'a [u8])> + Send> =
                    Box::new(recording.iter().skip(passed));
                let next = rows.next();
                (Self::Recorded { rows, next, pace: Pace { speed, start: None } }, passed as u64)
            }
        }
    }

    /// Returns when a live source must read the clock again.
    fn next_tick(&self) -> Option<Duration> {
        match self {
            Self::Recorded { .. } => None,
            Self::Live { now, .. } => Some(now.next_tick()),
        }
    }

    /// Returns whether the readings are available as fast as the device accepts them.
    const fn is_free(&self) -> bool {
        matches!(self, Self::Recorded { pace: Pace { speed: None, .. }, .. })
    }

    const fn is_over(&self) -> bool {
        match self {
            Self::Recorded { next, .. } => next.is_none(),
            Self::Live { is_open, .. } => !*is_open,
        }
    }

    /// Waits for the next reading. A live source returns the reading; a recording returns `None`
    /// when its next reading is due. Waits forever if there are no more readings, or if a recording
    /// must wait because `holds_back` is set. The future may be dropped: no reading is lost.
    async fn next(&mut self, holds_back: bool) -> Option<Option<LiveReading>> {
        match self {
            Self::Recorded { next: Some((unix_ms, _)), pace, .. } if !holds_back => {
                sleep_until(pace.due(*unix_ms)).await;
                None
            }
            Self::Live { records, is_open: true, .. } => Some(records.recv().await),
            _ => std::future::pending().await,
        }
    }
}

/// Runs a device until `stop` completes, or until its source has ended and the gateway has received
/// everything. The future may be dropped at any moment, because accepted readings are in the
/// journal. `taken` is called with the number of readings that were sealed so far.
///
/// # Errors
/// [`RunError`].
pub async fn run<K: Signer + Send, L: ChildLink + Sync>(
    mote: &mut DurableMote<K>,
    link: &mut L,
    source: Source<'_>,
    settings: Settings,
    taken: &mut (dyn FnMut(u64) + Send),
    stop: impl Future<Output = ()> + Send,
) -> Result<Ran, RunError> {
    let mut none = Answerers::default();
    run_answering(mote, link, source, settings, (&mut none, &mut []), taken, stop).await
}

/// Like [`run`], for a device that also answers queries. `sum_links` has a link for each querier, in the
/// order of the answerers.
///
/// # Errors
/// [`RunError`].
pub async fn run_answering<K: Signer + Send, L: ChildLink + Sync>(
    mote: &mut DurableMote<K>,
    link: &mut L,
    source: Source<'_>,
    settings: Settings,
    (answerers, sum_links): (&mut Answerers, &mut [L]),
    taken: &mut (dyn FnMut(u64) + Send),
    stop: impl Future<Output = ()> + Send,
) -> Result<Ran, RunError> {
    let newest = mote.mote().chain().epoch.max(mote.newest_announced());
    let (mut readings, left_out) = Readings::new(source, mote.taken(), newest, &settings.calendar);
    let ran = Ran { left_out, ..Ran::default() };
    let mut run = Run {
        mote,
        answerers,
        retry: Retry::new(&settings),
        sent: Instant::now(),
        lingers_until: None,
        settings,
        ran,
        is_ended: false,
        gives_up: false,
        urgent: Waiting::default(),
        unpublished: Unpublished::default(),
        replies: Vec::new(),
        log: WarningLog::new(),
        report: Newest::default(),
    };
    let mut state = link.state();
    let mut rosters = run.settings.rosters.take();
    let mut policies = std::mem::take(&mut run.settings.policies);
    let mut urgent = run.settings.urgent.take();
    let mut reports = run.settings.health.as_ref().map(|health| health.reports.clone());
    let mut stop = pin!(stop);
    let mut turn = 0_usize;
    loop {
        turn = turn.wrapping_add(1);
        run.ran.given_up = run.mote.mote().given_up();
        for reading in arrived(&mut urgent) {
            run.take_urgent(&mut readings, reading)?;
        }
        run.end_passed_epochs(&mut readings)?;
        run.reply()?;
        run.publish()?;
        run.note_health();
        let is_up = matches!(*state.borrow_and_update(), State::Up);
        let has_more = if is_up {
            run.send_report(link).await?;
            run.send(link).await?
        } else {
            run.mote.sync_inputs()?;
            false
        };
        run.report_urgent();
        if run.is_ended && run.mote.mote().is_done() && !run.mote.has_urgent() {
            run.ran.is_done = true;
            return Ok(run.ran);
        }
        let due = run.answer(sum_links, turn).await?;
        let holds_back = readings.is_free() && run.holds_back();
        let tick = readings.next_tick();
        run.watch_answers();
        tokio::select! {
            () = &mut stop => {
                for reading in arrived(&mut urgent) {
                    run.take_urgent(&mut readings, reading)?;
                }
                run.take_queued(&mut readings)?;
                run.reply()?;
                run.mote.sync()?;
                return Ok(run.ran);
            }
            down = link.receive() => {
                run.receive_from_gateway(&down.map_err(RunError::Link)?, &mut readings)?;
            }
            changed = state.changed() => {
                if changed.is_err() {
                    return Err(RunError::Link(LinkError::Closed));
                }
                note_link(&state.borrow());
                run.mote.timeout();
                run.report_again();
            }
            roster = next_roster(&mut rosters) => run.load(&roster, &mut readings)?,
            (place, policy) = next_policy(&mut policies) => run.answerers.set_policy(place, policy),
            (place, down) = receive(sum_links, turn) => {
                run.receive_from_parent(place, &down.map_err(RunError::Link)?)?;
            }
            report = next_report(&mut reports) => run.note_report(report),
            reading = next_urgent(&mut urgent) => run.take_urgent(&mut readings, reading)?,
            () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {}
            () = sleep_until(run.retry.at) => run.try_again(is_up),
            () = tokio::time::sleep(tick.unwrap_or_default()), if tick.is_some() => {}
            () = sleep_until(run.lingers_until.unwrap_or(run.retry.at)), if run.lingers_until.is_some() => {}
            () = std::future::ready(()), if has_more => {}
            came = readings.next(holds_back) => {
                run.take(&mut readings, came)?;
                taken(run.ran.readings);
            }
        }
    }
}

/// A running device.
struct Run<'a, K> {
    mote: &'a mut DurableMote<K>,
    answerers: &'a mut Answerers,
    settings: Settings,
    ran: Ran,
    retry: Retry,
    /// When readings were last sent to the gateway.
    sent: Instant,
    /// When the readings that wait for others must be sent, if there are any.
    lingers_until: Option<Instant>,
    /// Whether the source has ended and its last epoch is closed.
    is_ended: bool,
    /// Whether newer seals are being given up because too many wait.
    gives_up: bool,
    /// Those who wait for reports of urgent readings.
    urgent: Waiting,
    unpublished: Unpublished,
    /// The replies to readings that are not durable yet.
    replies: Vec<Reply>,
    log: WarningLog,
    report: Newest,
}

impl<K: Signer + Send> Run<'_, K> {
    /// Ends the epochs that have passed. For a live device the clock decides; for a recording, the
    /// last epoch ends with the recording.
    fn end_passed_epochs(&mut self, readings: &mut Readings<'_>) -> Result<(), RunError> {
        if readings.is_over() {
            if !std::mem::replace(&mut self.is_ended, true)
                && let Some(epoch) = self.mote.mote().epoch()
            {
                self.mote.end(epoch)?;
            }
            return Ok(());
        }
        let Readings::Live { now, .. } = readings else { return Ok(()) };
        let current = now.epoch();
        let start_ms = self.settings.calendar.start_ms(current).unwrap_or(u64::MAX);
        let latest = self.settings.calendar.epoch_of(start_ms.saturating_add(CLOCK_TOLERANCE_MS));
        self.mote.set_latest_epoch(EpochNumber(latest.0.saturating_add(1)));
        let Some(before) = current.0.checked_sub(1).map(EpochNumber) else { return Ok(()) };
        let chain = self.mote.mote().chain();
        let (first, last) = self.mote.mote().profile().epochs;
        let is_due = match self.mote.mote().epoch() {
            Some(open) => open <= before,
            // After its first reading, a device also seals the epochs without readings.
            None => chain.epoch.is_some_and(|newest| newest < before),
        };
        if is_due && before >= first && last.is_none_or(|last| before <= last) {
            // If several epochs have passed, for example while the machine was suspended, only the
            // newest of them gets an empty seal.
            if let Some(open) = self.mote.mote().epoch().filter(|open| *open < before) {
                self.mote.end(open)?;
            }
            self.mote.end(before)?;
            self.note_waiting();
        }
        Ok(())
    }

    /// Returns the earliest epoch that a live reading may have. This is the open epoch or the first
    /// epoch that is not closed, and at least the roster's first epoch.
    fn least_epoch(&self) -> EpochNumber {
        let chain = self.mote.mote().chain();
        let least = match (self.mote.mote().epoch(), chain.epoch) {
            (Some(open), _) => open,
            (None, Some(newest))
                if chain.position.epoch_closed
                    && chain.position.last.is_some_and(|(_, of)| of == newest) =>
            {
                EpochNumber(newest.0.saturating_add(1))
            }
            (None, newest) => newest.unwrap_or(EpochNumber(0)),
        };
        least.max(self.mote.mote().profile().epochs.0)
    }

    /// Counts a reading that was sealed, and passes it to the answerer and to those who serve it.
    /// `unix_ms` is 0 if the time is not known. `sealed` is the record as it is sealed.
    fn note_taken(&mut self, unix_ms: u64, record: &[u8], sealed: &[u8]) {
        self.ran.readings += 1;
        self.note_newest(unix_ms, sealed);
        self.answerers.sensed(record);
    }

    /// Seals the readings that are available, up to [`BATCH`] readings.
    fn take(
        &mut self,
        readings: &mut Readings<'_>,
        came: Option<Option<LiveReading>>,
    ) -> Result<(), RunError> {
        match readings {
            Readings::Recorded { rows, next, pace } => {
                let mut count = 0;
                while let Some((unix_ms, record)) = *next
                    && count < BATCH
                    && pace.due(unix_ms) <= Instant::now()
                    && !(pace.speed.is_none() && self.holds_back())
                {
                    let epoch = self.settings.calendar.epoch_of(unix_ms);
                    match self.mote.sense_encrypted(epoch, record) {
                        Ok(sealed) => self.note_taken(unix_ms, record, &sealed),
                        Err(DurableError::Refused(
                            SealRefused::EpochGoesBack { .. } | SealRefused::EpochClosed { .. },
                        )) => {
                            self.ran.left_out += 1;
                            // Measure the pace from the first reading that is not skipped.
                            pace.start = None;
                        }
                        Err(error) => return Err(error.into()),
                    }
                    *next = rows.next();
                    count += 1;
                }
                self.note_waiting();
            }
            Readings::Live { records, is_open, now } => {
                let mut next = came.flatten();
                *is_open = next.is_some();
                let mut count = 0;
                while let Some(reading) = next {
                    self.sense_now(now, reading)?;
                    count += 1;
                    next = if count < BATCH { records.try_recv().ok() } else { None };
                }
            }
        }
        Ok(())
    }

    /// Returns whether a recording without a pace must wait for the gateway, because a full queue
    /// or buffer would lose readings that would not be lost in real time. The same applies to a
    /// state that turns out to be older than the device's past when the gateway first answers.
    fn holds_back(&self) -> bool {
        let mote = self.mote.mote();
        !mote.has_begun() || mote.waiting() >= MOST_WAITING || mote.buffered() > BUFFER / 2
    }

    /// Receives a message from the gateway.
    fn receive_from_gateway(
        &mut self,
        down: &Down,
        readings: &mut Readings<'_>,
    ) -> Result<(), RunError> {
        match down {
            Down::Announcement(bytes) => match self.mote.announced(bytes)? {
                Ok(announcement) => {
                    if let Readings::Live { now, .. } = readings {
                        now.announced(announcement.epoch());
                    }
                    // The gateway's grace period may be shorter than the current wait. Send the
                    // missed frames at once, so that they are not late.
                    if self.retry.received() && self.awaits_answer() {
                        debug!("the gateway is back; sending again");
                        self.mote.timeout();
                        self.retry.reset();
                    }
                }
                Err(error) => self.log.warn("ignored another sender's announcement", error.named()),
            },
            Down::Frame(frame) if !self.takes(frame) => {}
            Down::Frame(frame) => match self.mote.acknowledged(frame)? {
                Ok(is_news) => {
                    self.retry.received();
                    self.note_acknowledged();
                    if is_news {
                        self.retry.reset();
                    }
                }
                Err(error) => self.log.warn("ignored another sender's frame", error.named()),
            },
        }
        Ok(())
    }

    /// Returns whether the device must send again if the gateway does not answer.
    fn awaits_answer(&self) -> bool {
        self.mote.mote().awaits_answer() || self.mote.has_urgent()
    }

    /// Starts to wait for an answer of the gateway, or stops, when the first frame without an answer was
    /// sent or the last one was answered.
    fn watch_answers(&mut self) {
        let is_in_transit = self.mote.mote().is_in_transit() || self.mote.has_urgent();
        self.retry.watch(is_in_transit);
    }

    /// Marks everything to be sent again, because the wait for an acknowledgement is over.
    fn try_again(&mut self, is_up: bool) {
        let in_vain = is_up && self.awaits_answer();
        if in_vain {
            debug!(
                seconds = self.retry.wait.as_secs_f64(),
                "the gateway has acknowledged nothing; sending again"
            );
            self.mote.timeout();
        }
        self.retry.back_off(in_vain);
    }

    /// Logs a warning when the device starts to give seals up.
    fn note_waiting(&mut self) {
        let mote = self.mote.mote();
        let gives_up = mote.waiting() >= self.mote.most_waiting();
        if gives_up && !self.gives_up {
            warn!(
                waiting = mote.waiting(),
                "the queue of seals for the gateway is full; newer seals are given up until the gateway accepts seals"
            );
        }
        self.gives_up = gives_up;
    }
}
