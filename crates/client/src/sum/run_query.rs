//! Runs a query: announces it, receives and opens its epochs one by one, and withdraws it at the
//! end.
//!
//! The announcement is a lease: it names the epoch until which the query runs, and is renewed while
//! the querier runs. Devices therefore stop soon after a querier was killed. The only I/O is the
//! link and the file of the numbers of query schedules.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use moteseal_api::ErrorKind;
use moteseal_broadcast::SealError;
use moteseal_core::link::LinkKey;
use moteseal_core::record::DeviceId;
use moteseal_core::signature::KeyPair;
use moteseal_net::link::Up;
use moteseal_net::{LinkError, ParentLink};
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::schedule::{MAX_QUERY_SCHEDULE, Posed, QueryScheduleDraft};
use moteseal_sum::wire::{Explain, SumUplink};
use moteseal_verify::aggregation::AggregationTree;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, warn};

use super::localise::{ATTEMPTS, Finding, Localisation};
use super::open_epochs::{Epochs, Received, Row};
use super::querier::Querier;
use super::schedule_numbers::{ScheduleNumberError, ScheduleNumbers};
use crate::error::OutputError;

/// The longest time of a fault localisation, for any duration of epochs.
const LONGEST_LOCALISATION: Duration = Duration::from_secs(300);
/// The shortest time to wait for an answer.
const LEAST_WAIT: Duration = Duration::from_millis(500);
/// Room for an explain frame, in bytes.
const MAX_EXPLAIN: usize = 64;
/// Interval at which the clock is read again, because it may be set.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// Before an epoch is closed by its deadline, received frames are handled until none arrives for
/// this long.
const QUIET: Duration = Duration::from_millis(1);
/// The longest time for that.
const CATCH_UP: Duration = Duration::from_secs(1);
/// Interval at which the newest query schedule is announced again, unchanged.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(60);
/// Time for the link to send the end of a query.
const FAREWELL: Duration = Duration::from_millis(500);

/// Options of [`run_query`].
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Number of epochs; without it, until the query is stopped.
    pub epochs: Option<u64>,
    /// Time that an edge of the tree may take.
    pub grace: Duration,
    /// Time after its last renewal at which the query ends.
    pub lease: Duration,
}

/// Why a running query has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The file of schedule numbers cannot be used.
    #[error(transparent)]
    Number(#[from] ScheduleNumberError),
    /// The query schedule could not be signed.
    #[error(transparent)]
    Issue(#[from] SealError),
    /// The rows could not be written.
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl RunError {
    /// The stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Link(error) => error.name(),
            Self::Number(error) => error.name(),
            Self::Issue(_) => "Failed",
            Self::Output(error) => error.name(),
        }
    }

    /// What the caller does next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Link(error) => error.kind(),
            Self::Number(error) => error.kind(),
            Self::Issue(_) => ErrorKind::Internal,
            Self::Output(error) => error.kind(),
        }
    }
}

moteseal_api::named_error!(RunError);

/// The querier's end of the link, its keys and its clock.
pub struct Endpoint<'a, L> {
    /// The querier's end of the link to its children.
    pub link: &'a L,
    /// The secret of that link.
    pub link_secret: &'a [u8; 32],
    /// The querier's key.
    pub signer: &'a dyn KeyPair,
    /// The numbers of its schedules.
    pub numbers: &'a mut ScheduleNumbers,
    /// Returns the time in Unix milliseconds.
    pub unix_ms: &'a (dyn Fn() -> u64 + Sync),
}

impl<L> fmt::Debug for Endpoint<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

/// Runs a query and passes its epochs to `rows` in order, until there were enough of them or `stop`
/// completes. Then the query is withdrawn. Returns how many epochs have no row: after a long pause
/// of the querier, only the last of the elapsed epochs have one. If the clock was ahead for a
/// while, epochs that were closed without any share in that time are repeated at their time.
///
/// # Errors
/// [`RunError`]. A query that was announced is withdrawn even after an error, if the link works.
pub async fn run_query<L: ParentLink + Sync, E: KeyEngine + Sync>(
    asking: Endpoint<'_, L>,
    tree: &AggregationTree,
    querier: Querier<E>,
    run: RunOptions,
    rows: &mut dyn FnMut(&Row) -> Result<(), OutputError>,
    stop: impl Future<Output = ()>,
) -> Result<u64, RunError> {
    let mut asked = Asked::new(asking, tree, querier, run);
    let done = asked.run(rows, stop).await;
    // Also after an error, so that the devices stop answering.
    let ended = asked.announce(false).await;
    tokio::time::sleep(FAREWELL).await;
    done.and(ended).map(|()| asked.missed)
}

struct Asked<'a, 't, L, E> {
    asking: Endpoint<'a, L>,
    epochs: Epochs<'t, E>,
    run: RunOptions,
    keys: HashMap<[u8; 8], LinkKey>,
    first: u64,
    /// The first epoch that the newest query schedule does not ask for.
    until: u64,
    /// Number of skipped epochs.
    missed: u64,
    /// The newest query schedule, and when it is sent again.
    announced: Option<(Bytes, Instant)>,
}

impl<'a, 't, L: ParentLink + Sync, E: KeyEngine + Sync> Asked<'a, 't, L, E> {
    fn new(
        asking: Endpoint<'a, L>,
        tree: &'t AggregationTree,
        querier: Querier<E>,
        run: RunOptions,
    ) -> Self {
        // Devices receive the announcement in the middle of the current epoch. The next epoch is
        // complete for all of them.
        let first = (asking.unix_ms)() / u64::from(querier.epoch_ms()) + 1;
        let grace_ms = u64::try_from(run.grace.as_millis()).unwrap_or(u64::MAX);
        let group = querier.question().group;
        let epochs = Epochs::new(tree, querier, grace_ms, first);
        let children = epochs.aggregator().children().iter();
        let key = |id: DeviceId| LinkKey::new(&LinkKey::secret_of(asking.link_secret, group, id));
        let keys = children.map(|child| (child.id.0, key(child.id))).collect();
        Self { asking, epochs, run, keys, first, until: first, missed: 0, announced: None }
    }

    fn now_ms(&self) -> u64 {
        (self.asking.unix_ms)()
    }

    fn epoch_ms(&self) -> u64 {
        self.epochs.querier().epoch_ms().into()
    }

    /// The length of the lease in epochs: at least two, the current and the next.
    fn lease(&self) -> u64 {
        (u64::try_from(self.run.lease.as_millis()).unwrap_or(u64::MAX) / self.epoch_ms()).max(2)
    }

    fn is_over(&self) -> bool {
        self.run
            .epochs
            .is_some_and(|epochs| self.epochs.next() >= self.first.saturating_add(epochs))
    }

    /// Announces a new query schedule with this query, or with none.
    async fn announce(&mut self, is_asked: bool) -> Result<(), RunError> {
        let querier = self.epochs.querier();
        let (question, shape) = (querier.question(), querier.shape());
        let posed = Posed {
            nonce: question.nonce,
            first: self.first,
            until: self.until,
            plan: &question.plan,
        };
        let draft = QueryScheduleDraft {
            group: question.group,
            roster: question.roster,
            number: self.asking.numbers.next((self.asking.unix_ms)())?,
            sources: shape.sources,
            key_group: shape.key_group,
            queries: if is_asked { std::slice::from_ref(&posed) } else { &[] },
        };
        let (mut scratch, mut out) = (vec![0; MAX_QUERY_SCHEDULE], vec![0; MAX_QUERY_SCHEDULE]);
        let schedule =
            Bytes::copy_from_slice(draft.issue(self.asking.signer, &mut scratch, &mut out)?);
        debug!(number = draft.number, until = self.until, is_asked, "announced the query schedule");
        self.send(schedule).await
    }

    async fn send(&mut self, schedule: Bytes) -> Result<(), RunError> {
        self.announced = Some((schedule.clone(), Instant::now() + ANNOUNCE_AGAIN));
        Ok(self.asking.link.announce(schedule).await?)
    }

    /// Renews the lease once half of it is over. In between, the same query schedule is sent
    /// repeatedly: an aggregator or mote that was restarted may have received an older one from its
    /// broker.
    async fn renew(&mut self) -> Result<(), RunError> {
        let (from, lease) = ((self.now_ms() / self.epoch_ms()).max(self.first), self.lease());
        let end = self.run.epochs.map_or(u64::MAX, |epochs| self.first.saturating_add(epochs));
        let until = from.saturating_add(lease).min(end);
        // A clock that was ahead has announced a later end.
        let is_too_long = self.until > until.saturating_add(1);
        if is_too_long || until > self.until && from.saturating_add(lease.div_ceil(2)) >= self.until
        {
            self.until = until;
            return self.announce(true).await;
        }
        match &self.announced {
            Some((schedule, again)) if *again <= Instant::now() => {
                self.send(schedule.clone()).await
            }
            _ => Ok(()),
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
            self.renew().await?;
            if self.epochs.is_due(self.now_ms()) {
                self.catch_up().await?;
                let row = tokio::select! {
                    row = self.close() => row?,
                    () = &mut stop => return Ok(()),
                };
                rows(&row)?;
                continue;
            }
            // The clock may be set meanwhile, so it is read again every second.
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

    /// Handles received frames before an epoch is closed by its deadline: after a pause of this
    /// process, all shares may still be waiting.
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

    /// Handles a child's frame: a share, or an answer to a question of the localisation.
    fn handle(&mut self, up: &Up, localisation: Option<&mut Localisation<'t>>) {
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
            Err(error) => debug!(name = error.name(), "dropped a frame"),
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

    /// Locates a fault, until all questions are answered or the time for this epoch is up. Shares
    /// of other epochs are still received.
    async fn localise(
        &mut self,
        mut localisation: Localisation<'t>,
        within: Duration,
    ) -> Result<Vec<Finding>, RunError> {
        let edges = u64::from(self.epochs.aggregator().height()).saturating_mul(2);
        let wait = Duration::from_millis(self.epochs.grace_ms().saturating_mul(edges))
            .min(within / ATTEMPTS)
            .max(LEAST_WAIT);
        let end = Instant::now() + within;
        // All questions have the same timeout, so the oldest is always in front.
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
            // Renew the lease meanwhile, so that the devices continue to answer.
            self.renew().await?;
        }
        Ok(localisation.finish())
    }
}
