//! Runs a query: announces it, receives and opens its epochs one by one, and withdraws it at the
//! end.
//!
//! The announcement is a lease: it states the epoch at which the query ends, and the querier renews
//! it while it runs. If a querier is killed, the devices therefore stop answering soon. The only
//! I/O is the link and the querier's state.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use moteseal_api::ErrorKind;
use moteseal_core::link::{FrameError, LinkKey};
use moteseal_core::record::DeviceId;
use moteseal_core::signature::{KeyPair, PublicKey};
use moteseal_net::link::Up;
use moteseal_net::{LinkError, ParentLink};
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::key_file::Circle;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::Master;
use moteseal_sum::wire::{Explain, SumUplink};
use moteseal_verify::SumGroup;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::localise::{ATTEMPTS, Finding, Localisation};
use super::open_epochs::{Epochs, Received, Row};
use super::querier::{PoseError, Querier};
use super::querier_state::{AskedQuery, QuerierState, QuerierStateError};
use crate::error::OutputError;

/// The maximum time of a fault localisation, for any duration of epochs.
const LONGEST_LOCALISATION: Duration = Duration::from_secs(300);
/// The minimum time to wait for an answer.
const LEAST_WAIT: Duration = Duration::from_millis(500);
/// The size of the buffer for an explain frame, in bytes.
const MAX_EXPLAIN: usize = 64;
/// The interval at which the clock is read again, because it may have been set.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Before an epoch is closed at its deadline, received frames are handled until no frame arrives
/// for this long.
const QUIET: Duration = Duration::from_millis(1);
/// The maximum time for which received frames are handled before an epoch is closed.
const CATCH_UP: Duration = Duration::from_secs(1);
/// The interval at which the newest query schedule is announced again, unchanged.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(60);
/// The time that the link has to send the withdrawal of a query.
pub(super) const FAREWELL: Duration = Duration::from_millis(500);

/// The options of [`run_query`].
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The number of epochs, or `None` to run until the query is stopped, or until the end of the
    /// query that is continued.
    pub epochs: Option<u64>,
    /// The query to continue, whose previous process has ended without withdrawing it.
    pub continued: Option<AskedQuery>,
    /// The maximum time that each edge of the tree may need.
    pub grace: Duration,
    /// Whether the minimum number of participants is the default for the members of each epoch,
    /// instead of the querier's.
    pub has_default_floor: bool,
    /// The time from the last renewal of the query to its end.
    pub lease: Duration,
}

/// Why a running query has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The querier cannot use its state.
    #[error(transparent)]
    State(#[from] QuerierStateError),
    /// The rows could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The query cannot be asked to the devices of a later version of the roster.
    #[error("the query ends with a later version of the roster: {0}")]
    Pose(#[from] PoseError),
    /// A later version of the roster names another querier.
    #[error("a later version of the roster names another querier; run the query with its key")]
    Replaced,
}

impl RunError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Link(error) => error.name(),
            Self::State(error) => error.name(),
            Self::Output(error) => error.name(),
            Self::Pose(error) => error.name(),
            Self::Replaced => "WrongQuerier",
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Link(error) => error.kind(),
            Self::State(error) => error.kind(),
            Self::Output(error) => error.kind(),
            Self::Pose(error) => error.kind(),
            Self::Replaced => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(RunError);

/// The querier's end of the link, its keys, its state and its clock.
pub struct Endpoint<'a, L> {
    /// The querier's end of the link to its children.
    pub link: &'a L,
    /// The secret of that link.
    pub link_secret: &'a [u8; 32],
    /// The secret from which the keys of the sources are derived.
    pub master: &'a Master,
    /// The querier's secret key, which signs the query schedules.
    pub signer: &'a dyn KeyPair,
    /// The state of the querier, with its other queries.
    pub state: &'a QuerierState,
    /// A function that returns the time in Unix milliseconds.
    pub unix_ms: &'a (dyn Fn() -> u64 + Sync),
}

impl<L> fmt::Debug for Endpoint<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

/// The later versions of the group that a querier loads while it runs.
pub struct Later {
    /// The newest version. The sender has checked that it can replace the version before it.
    pub newest: watch::Receiver<SumGroup>,
    /// The querier's public key.
    pub querier: PublicKey,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").finish_non_exhaustive()
    }
}

/// Runs a query to a group until `run.epochs` epochs are closed or `stop` completes, and then withdraws it.
/// Passes the row of each epoch to `rows`, in order.
///
/// Returns how many epochs have no row. After a long pause of the querier, only the last few of the
/// elapsed epochs have rows. If the clock was ahead for a while and is set back, epochs that were
/// closed too early without any share are closed again at their proper time.
///
/// If `later` is given, the query continues with each later version of the group: sources that join
/// are asked from the next announcement on, and sources that leave no longer count.
///
/// # Errors
/// [`RunError`]. If the query was announced, it is withdrawn even after an error, as long as the
/// link works.
pub async fn run_query<L: ParentLink + Sync, E: KeyEngine + Sync>(
    asking: Endpoint<'_, L>,
    group: SumGroup,
    querier: Querier<E>,
    run: RunOptions,
    later: Option<Later>,
    rows: &mut dyn FnMut(&Row) -> Result<(), OutputError>,
    stop: impl Future<Output = ()>,
) -> Result<u64, RunError> {
    let mut asked = Asked::new(asking, group, querier, run);
    asked.later = later;
    let done = asked.run(rows, stop).await;
    let is_asked = asked.announced.is_some() || (done.is_ok() && asked.run.continued.is_some());
    if !is_asked {
        return done.map(|()| asked.missed);
    }
    // Withdraw the query even after an error, so that the devices stop answering.
    let ended = asked.withdraw().await;
    tokio::time::sleep(FAREWELL).await;
    done.and(ended).map(|()| asked.missed)
}

/// Returns the link keys of the querier's children.
fn link_keys<L, E: KeyEngine + Sync>(
    asking: &Endpoint<'_, L>,
    epochs: &Epochs<E>,
) -> HashMap<[u8; 8], LinkKey> {
    let group = epochs.querier().question().group;
    let key = |id: DeviceId| LinkKey::new(&LinkKey::secret_of(asking.link_secret, group, id));
    epochs.aggregator().children().iter().map(|child| (child.id.0, key(child.id))).collect()
}

struct Asked<'a, L, E> {
    asking: Endpoint<'a, L>,
    epochs: Epochs<E>,
    run: RunOptions,
    later: Option<Later>,
    keys: HashMap<[u8; 8], LinkKey>,
    first: u64,
    /// The end of the lease: the first epoch that the newest query schedule does not include.
    until: u64,
    /// The first epoch after the last one to ask.
    end: Option<u64>,
    /// The number of skipped epochs.
    missed: u64,
    /// When the query schedule is sent again; `None` if it has not been sent yet.
    announced: Option<Instant>,
    /// When the state is read again, to find out whether the query was stopped.
    read_again: Instant,
}

impl<'a, L: ParentLink + Sync, E: KeyEngine + Sync> Asked<'a, L, E> {
    fn new(asking: Endpoint<'a, L>, group: SumGroup, querier: Querier<E>, run: RunOptions) -> Self {
        let epoch = (asking.unix_ms)() / u64::from(querier.epoch_ms());
        // Devices receive the announcement in the middle of the current epoch. The next epoch is
        // the first one that they can answer completely.
        let asks_from = |next: u64| (next, next, next);
        let (first, until, next) = match &run.continued {
            // The devices still answer. They send their shares of this epoch after its end.
            Some(query) if query.until > epoch => {
                (query.first, query.until, epoch.max(query.first))
            }
            Some(query) => asks_from(query.first.max(epoch + 1)),
            None => asks_from(epoch + 1),
        };
        let end = match run.epochs {
            Some(epochs) => Some(next.saturating_add(epochs)),
            None => run.continued.as_ref().and_then(|query| query.end),
        };
        let grace_ms = u64::try_from(run.grace.as_millis()).unwrap_or(u64::MAX);
        let mut epochs = Epochs::new(group, querier, grace_ms, next);
        if run.has_default_floor {
            epochs = epochs.with_default_floor();
        }
        let keys = link_keys(&asking, &epochs);
        let (missed, announced, later, read_again) = (0, None, None, Instant::now());
        Self { asking, epochs, run, later, keys, first, until, end, missed, announced, read_again }
    }

    /// Continues with a later version of the group, if there is one, and announces the query to its
    /// sources.
    async fn load_version(&mut self) -> Result<(), RunError> {
        let Some(later) = &mut self.later else { return Ok(()) };
        if !later.newest.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let group = later.newest.borrow_and_update().clone();
        if group.querier_in_roster().is_some_and(|querier| *querier != later.querier) {
            return Err(RunError::Replaced);
        }
        let (version, sources) =
            (group.roster.version(), group.sources_at((self.asking.unix_ms)()));
        self.epochs.load(group, self.asking.master)?;
        let floor = self.epochs.querier().question().floor;
        if !self.run.has_default_floor && sources < floor {
            warn!(version, sources, floor, "fewer sources take part than the floor requires");
        }
        self.keys = link_keys(&self.asking, &self.epochs);
        self.asking.link.set_members(self.keys.keys().copied().collect());
        info!(version, "loaded a later version of the roster, or of the tree");
        if self.announced.is_some() {
            // If the query was stopped, the next call of `renew` finds out.
            self.announce().await?;
        }
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        (self.asking.unix_ms)()
    }

    fn epoch_ms(&self) -> u64 {
        self.epochs.querier().epoch_ms().into()
    }

    /// Returns the length of the lease in epochs: at least two, for the current and the next epoch.
    fn lease(&self) -> u64 {
        (u64::try_from(self.run.lease.as_millis()).unwrap_or(u64::MAX) / self.epoch_ms()).max(2)
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.epochs.next() >= end)
    }

    /// Returns the group that this process asks.
    fn circle(&self) -> Circle {
        let querier = self.epochs.querier();
        let (question, shape) = (querier.question(), querier.shape());
        Circle {
            group: question.group,
            roster: question.roster,
            sources: shape.sources,
            key_group: shape.key_group,
        }
    }

    fn id(&self) -> QueryId {
        self.epochs.querier().id()
    }

    /// Announces a new query schedule that contains this query, and the other running ones. Returns
    /// `false` if another process has stopped the query.
    async fn announce(&mut self) -> Result<bool, RunError> {
        let querier = self.epochs.querier();
        let question = querier.question();
        let query = AskedQuery {
            nonce: question.nonce,
            plan: question.plan.clone(),
            first: self.first,
            until: self.until,
            epoch_ms: querier.epoch_ms(),
            end: self.end,
            floor: (!self.run.has_default_floor).then_some(question.floor),
            min_count: question.min_count,
        };
        let Endpoint { state, signer, .. } = self.asking;
        let schedule = match self.announced {
            Some(_) => state.renew(&self.circle(), &query, signer, self.now_ms())?,
            None => Some(state.ask(&self.circle(), &query, signer, self.now_ms())?),
        };
        let Some(schedule) = schedule else { return Ok(false) };
        debug!(until = self.until, "announced the query schedule");
        self.send(schedule).await?;
        Ok(true)
    }

    /// Announces a new query schedule that does not contain this query.
    async fn withdraw(&mut self) -> Result<(), RunError> {
        let Endpoint { state, signer, .. } = self.asking;
        let schedule = state.withdraw(&self.circle(), self.id(), signer, self.now_ms())?;
        debug!("withdrew the query");
        self.send(schedule).await
    }

    async fn send(&mut self, schedule: Vec<u8>) -> Result<(), RunError> {
        self.announced = Some(Instant::now() + ANNOUNCE_AGAIN);
        Ok(self.asking.link.announce(schedule.into()).await?)
    }

    /// Renews the lease once half of it has passed. Until then, repeats the newest query schedule
    /// at intervals, because an aggregator or mote that was restarted may have received an older
    /// schedule from its broker. Returns `false` if another process has stopped the query.
    async fn renew(&mut self) -> Result<bool, RunError> {
        let (from, lease) = ((self.now_ms() / self.epoch_ms()).max(self.first), self.lease());
        let until = from.saturating_add(lease).min(self.end.unwrap_or(u64::MAX));
        // If the clock was ahead, the announced end is too late and must be corrected.
        let is_too_long = self.until > until.saturating_add(1);
        let is_due = is_too_long
            || until > self.until && from.saturating_add(lease.div_ceil(2)) >= self.until;
        let now = Instant::now();
        match self.announced {
            Some(again) if !is_due => {
                if self.read_again > now {
                    return Ok(true);
                }
                self.read_again = now + READ_AGAIN;
                let schedule = self.asking.state.schedule_with(self.id())?;
                let Some(schedule) = schedule else { return Ok(false) };
                if again <= now {
                    self.send(schedule).await?;
                }
                Ok(true)
            }
            _ => {
                self.until = until;
                self.announce().await
            }
        }
    }

    async fn run(
        &mut self,
        rows: &mut dyn FnMut(&Row) -> Result<(), OutputError>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        tokio::pin!(stop);
        while !self.is_over() {
            let missed = self.epochs.follow_clock(self.now_ms());
            if missed > 0 {
                self.missed = self.missed.saturating_add(missed);
                warn!(
                    missed,
                    next = self.epochs.next(),
                    "skipped epochs: the querier was paused, or its clock was set"
                );
                continue;
            }
            self.load_version().await?;
            if !self.renew().await? {
                warn!("the query was stopped with `moteseal sum stop`");
                return Ok(());
            }
            if self.epochs.is_due(self.now_ms()) {
                self.catch_up().await?;
                let row = tokio::select! {
                    row = self.close() => row?,
                    () = &mut stop => return Ok(()),
                };
                rows(&row)?;
                continue;
            }
            // The clock may be set in the meantime, so the loop reads it again every second.
            let wait =
                Duration::from_millis(self.epochs.deadline_ms().saturating_sub(self.now_ms()))
                    .min(READ_AGAIN);
            tokio::select! {
                up = self.asking.link.receive() => {
                    self.handle(&up?, None);
                }
                () = sleep_until(Instant::now() + wait) => {}
                () = &mut stop => return Ok(()),
            }
        }
        Ok(())
    }

    /// Handles frames that have already been received, before an epoch is closed at its deadline.
    /// After a pause of this process, all shares of the epoch may be among them.
    async fn catch_up(&mut self) -> Result<(), RunError> {
        let end = Instant::now() + CATCH_UP;
        while !self.epochs.is_complete()
            && Instant::now() < end
            && let Ok(up) = timeout(QUIET, self.asking.link.receive()).await
        {
            self.handle(&up?, None);
        }
        Ok(())
    }

    /// Handles a child's frame, which is a share or an answer to a question of the fault
    /// localisation.
    fn handle(&mut self, up: &Up, localisation: Option<&mut Localisation>) {
        let Some(key) = self.keys.get(&up.device) else { return };
        match SumUplink::open(&up.frame, key) {
            Ok(SumUplink::Share(share)) => {
                let child = DeviceId(up.device);
                match self.epochs.receive(child, &share) {
                    Received::Kept => {
                        debug!(%child, epoch = share.epoch, "received a child's share");
                    }
                    Received::Wrong(refusal) => {
                        let (epoch, name) = (share.epoch, refusal.name());
                        warn!(%child, epoch, name, "rejected a child's share");
                    }
                    Received::Untimely | Received::NotOurs => {
                        debug!(%child, epoch = share.epoch, "ignored a share");
                    }
                }
            }
            Ok(SumUplink::Children(children)) => {
                if !localisation.is_some_and(|localisation| {
                    localisation.answer(self.epochs.querier(), DeviceId(up.device), &children)
                }) {
                    let (node, epoch) = (children.node, children.epoch);
                    debug!(%node, epoch, "dropped an answer to a question that is not open");
                }
            }
            Ok(SumUplink::Refusal(refusal)) => {
                let (child, reason) = (DeviceId(up.device), refusal.reason);
                if self.epochs.note_refusal(child, &refusal, self.asking.master) {
                    debug!(position = refusal.position, reason, "a source does not answer");
                } else {
                    debug!(%child, "dropped a refusal that its source did not make");
                }
            }
            Err(error) => {
                debug!(name = error.name(), "dropped a frame");
                if error == FrameError::NotAuthentic {
                    self.epochs.note_not_authentic(DeviceId(up.device));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<Row, RunError> {
        let (row, failed) = self.epochs.close();
        let Some(failed) = failed else { return Ok(row) };
        let within = Duration::from_millis(self.epochs.localisation_ms(row.epoch, self.now_ms()))
            .clamp(LEAST_WAIT, LONGEST_LOCALISATION);
        let localisation = self.epochs.localise(failed);
        let findings = self.localise(localisation, within).await?;
        Ok(row.with_findings(findings))
    }

    /// Localises a fault, until all questions are answered or the time for this epoch has passed.
    /// Shares of other epochs are still received.
    async fn localise(
        &mut self,
        mut localisation: Localisation,
        within: Duration,
    ) -> Result<Vec<Finding>, RunError> {
        let edges = u64::from(self.epochs.aggregator().height()).saturating_mul(2);
        let wait = Duration::from_millis(self.epochs.grace_ms().saturating_mul(edges))
            .min(within / ATTEMPTS)
            .max(LEAST_WAIT);
        let end = Instant::now() + within;
        // All questions have the same timeout, so the oldest question is always at the front.
        let mut timeouts: VecDeque<(Explain, Instant)> = VecDeque::new();
        while !localisation.is_done() && Instant::now() < end {
            while let Some((child, explain)) = localisation.question() {
                let until = Instant::now() + wait;
                let mut frame = [0; MAX_EXPLAIN];
                if let Some(key) = self.keys.get(&child.0)
                    && let Ok(frame) = explain.close(key, &mut frame)
                {
                    let sent = timeout_at(
                        end,
                        self.asking.link.send(child.0, Bytes::copy_from_slice(frame)),
                    );
                    sent.await.unwrap_or(Ok(()))?;
                }
                timeouts.push_back((explain, until));
            }
            let next = timeouts
                .front()
                .map_or(end, |(_, until)| *until)
                .min(end)
                .min(Instant::now() + READ_AGAIN);
            if let Ok(up) = timeout_at(next, self.asking.link.receive()).await {
                self.handle(&up?, Some(&mut localisation));
            }
            let now = Instant::now();
            while let Some((explain, _)) = timeouts.pop_front_if(|(_, until)| *until <= now) {
                localisation.give_up(&explain);
            }
            // Renew the lease during the localisation, so that the devices continue to answer. A
            // query that was stopped ends after the localisation.
            self.renew().await?;
        }
        Ok(localisation.finish())
    }
}
