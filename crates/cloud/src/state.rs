//! The state that all requests of a cloud share.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_service::{LogLimit, MetricsPage, Peer, Pool};
use moteseal_store::EpochStore;
use moteseal_verify::Roster;
use tokio::sync::watch;

use crate::access::Access;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::summary::Summaries;
use crate::turns::Turns;

/// The maximum number of log lines that one address can cause per [`LOG_INTERVAL`].
pub(crate) const LOG_LINES: u32 = 20;
/// The interval at which suppressed log lines are reported.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What a log line reports that a client cannot cause alone. These lines are counted separately, so
/// that no client can suppress them with other lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Finding {
    /// A device signed different seals under one index.
    Equivocation(DeviceId),
    /// The coordinator signed different manifests of this epoch.
    TwoManifests(EpochNumber),
    /// The store or the service failed.
    Failure,
    /// Following another cloud, by the number of the cloud among those that are followed.
    Followed(usize),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equivocation(device) => write!(f, "equivocations of device {device}"),
            Self::TwoManifests(epoch) => write!(f, "different manifests of epoch {epoch}"),
            Self::Failure => f.write_str("failures"),
            Self::Followed(number) => write!(f, "the followed cloud {}", number + 1),
        }
    }
}

/// When the store was asked, and the error if it did not respond.
pub(crate) type Readiness = (Instant, Result<(), String>);

pub(crate) struct Shared {
    /// The newest version of the roster. A request uses the version that was current when the
    /// request began.
    roster: RwLock<Arc<Roster>>,
    pub(crate) store: Arc<dyn EpochStore>,
    /// The queue to the workers, if uploads go through one.
    pub(crate) queue: OnceLock<Queue>,
    /// Fingerprints of what the store has.
    pub(crate) summaries: Arc<Summaries>,
    /// Held by the one request that brings the fingerprints up to date.
    pub(crate) summary_turn: Arc<tokio::sync::Mutex<()>>,
    pub(crate) access: Access,
    pub(crate) limits: Limits,
    pub(crate) metrics: Metrics,
    pub(crate) metrics_page: MetricsPage,
    /// The log lines that each address can cause.
    pub(crate) log: LogLimit<Peer>,
    /// The log lines that each kind of finding can cause.
    pub(crate) findings_log: LogLimit<Finding>,
    pub(crate) stopping: AtomicBool,
    /// Held by the one request that finds out whether the store responds.
    pub(crate) readiness_turn: Arc<tokio::sync::Mutex<()>>,
    /// When the store was last asked, and the error if it did not respond.
    readiness: Mutex<Option<Readiness>>,
    /// Requests in progress. A request counts once its body has fully arrived.
    pub(crate) requests: Arc<Pool>,
    /// Clients that wait for urgent events.
    pub(crate) waiters: Arc<Pool>,
    /// Changes whenever urgent events were stored, and when the service stops.
    pub(crate) urgent: watch::Sender<u64>,
    /// Streamed responses in progress.
    pub(crate) responses: Arc<Pool>,
    /// Bytes of long parts that are being sent.
    pub(crate) response_bytes: Arc<Pool>,
    /// Bytes of request bodies that are in memory.
    pub(crate) bodies: Arc<Pool>,
    /// Bytes of uploads that are being verified and stored, in addition to their bodies: one copy
    /// in the reader and one in the store.
    pub(crate) bundles: Arc<Pool>,
    /// Threads that verify uploads which are not verified inline. There are twice as many as cores:
    /// one address can use all cores, and the uploads of other addresses still start at once.
    pub(crate) verifiers: Arc<Pool>,
    /// The order in which these threads use the processors.
    pub(crate) turns: Arc<Turns>,
}

impl Shared {
    pub(crate) fn new(
        roster: Roster,
        store: Arc<dyn EpochStore>,
        access: Access,
        limits: Limits,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (percent, body) = (limits.peer_percent, limits.body_bytes as u64);
        let pool = |total: usize| Pool::new(total as u64, percent, 1);
        Self {
            roster: RwLock::new(Arc::new(roster)),
            store,
            queue: OnceLock::new(),
            summaries: Arc::new(Summaries::new(limits.summary_blocks)),
            summary_turn: Arc::default(),
            access,
            metrics: Metrics::new(),
            metrics_page: MetricsPage::default(),
            log: LogLimit::new(LOG_LINES, LOG_INTERVAL),
            findings_log: LogLimit::new(LOG_LINES, LOG_INTERVAL),
            stopping: AtomicBool::new(false),
            readiness_turn: Arc::default(),
            readiness: Mutex::default(),
            waiters: pool(limits.event_waiters),
            urgent: watch::Sender::new(0),
            requests: pool(limits.requests),
            responses: pool(limits.answers),
            response_bytes: pool(limits.answer_bytes),
            // One upload of the maximum size must always be possible.
            bodies: Pool::new((limits.upload_bytes as u64 / 3).max(body), percent, body),
            bundles: pool(limits.upload_bytes / 3 * 2),
            verifiers: pool(2 * cores),
            turns: Turns::new(cores),
            limits,
        }
    }
}

impl Shared {
    /// Returns whether the store is also written by others than the handlers of this cloud.
    pub(crate) fn has_other_writers(&self) -> bool {
        self.store.is_shared() || self.queue.get().is_some()
    }

    /// Returns whether the store responded when it was asked last.
    pub(crate) fn readiness(&self) -> Option<Readiness> {
        self.readiness.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_readiness(&self, readiness: Result<(), String>) {
        let mut last = self.readiness.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), readiness));
    }

    /// Returns the newest version of the roster.
    pub(crate) fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.roster.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Continues with a later version of the roster.
    pub(crate) fn load(&self, roster: Arc<Roster>) {
        *self.roster.write().unwrap_or_else(PoisonError::into_inner) = roster;
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("limits", &self.limits).finish_non_exhaustive()
    }
}
