//! Follows another cloud: finds what the other cloud stores and this one does not, fetches it,
//! verifies it like an upload, and stores it (`spec/summaries.md`).
//!
//! In each period, one small request returns the fingerprints of the other cloud and what it has
//! stored since the last request. Only if the fingerprints still differ are the blocks compared: at
//! the start, when the other cloud has restarted, and from time to time.
//!
//! The other cloud is not trusted. What it sends is verified with this cloud's roster. The size and
//! the time of each response are limited, and so is the number of requests in progress. What was
//! refused is remembered, so that it is not fetched again. If the other cloud fails, the follower
//! waits, each time longer.

mod compare;
mod events;
mod fetch;
mod manifests;
mod memory;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use metrics::{Counter, Gauge, Label};
use moteseal_api::summary::{Change, Fingerprint};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_net::replica::{ListedSeal, Replica};
use moteseal_net::{Client, NetError};
use moteseal_service::Peer;
use moteseal_service::log_limit::cut;
use tracing::{info, warn};

use crate::handlers::summary::refreshed;
use crate::refusal::Refusal;
use crate::state::{Finding, Shared};
use crate::summary::{Summaries, Totals};
use memory::Recent;

/// The default time between two requests for the summary.
pub const EVERY: Duration = Duration::from_secs(10);
/// The longest wait after failures.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// How often the blocks of two clouds are compared while their fingerprints differ.
const COMPARE_EVERY: Duration = Duration::from_secs(300);
/// The number of refused objects that are remembered.
const REFUSED: usize = 1 << 16;
/// The number of blocks that are remembered because comparing them again is useless.
const BLOCKS: usize = 1 << 16;
/// The number of unknown devices that are reported.
const UNKNOWN: usize = 1 << 10;
/// After this number of refused objects in a row, the other cloud counts as failed.
const MOST_REFUSED: u32 = 1 << 10;

/// The address that the work of following counts against in the limits for each address.
const PEER: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Why a period ended early.
#[derive(Debug)]
enum Failure {
    /// The other cloud did not respond as it should.
    Net(NetError),
    /// This cloud could not verify or store what it fetched.
    Own(Refusal),
    /// The other cloud belongs to another group.
    OtherGroup(String),
    /// The other cloud lists much that this cloud refuses.
    MuchRefused,
}

impl Failure {
    fn name(&self) -> &str {
        match self {
            Self::Net(error) => error.name(),
            Self::Own(refusal) => refusal.problem().name(),
            Self::OtherGroup(_) => "OtherGroup",
            Self::MuchRefused => "MuchRefused",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Net(error) => error.to_string(),
            Self::Own(refusal) => refusal.problem().detail.clone(),
            Self::OtherGroup(group) => {
                format!("it is a cloud of the group {group}; follow a cloud of the own group")
            }
            Self::MuchRefused => {
                "it lists much that this cloud refuses; check its roster".to_owned()
            }
        }
    }
}

impl From<NetError> for Failure {
    fn from(error: NetError) -> Self {
        Self::Net(error)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Own(refusal)
    }
}

/// An object of the other cloud that this cloud refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Refused {
    Seal(DeviceId, SealIndex, Digest, u8),
    /// The digest of the bytes of a manifest or an urgent event.
    Bytes(Digest),
}

impl Refused {
    const fn seal(seal: &ListedSeal) -> Self {
        Self::Seal(seal.device, seal.index, seal.digest, seal.kept_from)
    }
}

/// The metrics of one followed cloud.
#[derive(Debug)]
struct FollowMetrics {
    seals: Counter,
    manifests: Counter,
    events: Counter,
    failures: Counter,
    success: Gauge,
    differing: Gauge,
}

/// A cloud that is followed.
pub(crate) struct Follower {
    shared: Arc<Shared>,
    replica: Replica,
    number: usize,
    every: Duration,
    peer: Peer,
    metrics: FollowMetrics,
    /// The cursors of the last summary, and of the last urgent events.
    cursor: Option<String>,
    events_cursor: Option<String>,
    /// The roster version for which the memory below is valid.
    roster_version: u32,
    refused: Recent<Refused, ()>,
    refused_in_a_row: u32,
    /// For each block from which nothing could be fetched: the own and the other fingerprint.
    blocks: Recent<(Option<DeviceId>, u64), (Fingerprint, Fingerprint)>,
    devices: Recent<DeviceId, (Fingerprint, Fingerprint)>,
    events: Option<(Fingerprint, Fingerprint)>,
    unknown: Recent<DeviceId, ()>,
    /// When the blocks were compared last, and the totals after a comparison that found nothing.
    compared: Option<Instant>,
    fruitless: Option<(Totals, Totals)>,
}

impl Follower {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        number: usize,
        client: Client,
        every: Duration,
    ) -> Self {
        let metrics = shared.metrics.follow(client.base());
        let (seals, manifests, events) = metrics.fetched;
        let metrics = FollowMetrics {
            seals,
            manifests,
            events,
            failures: metrics.failures,
            success: metrics.success,
            differing: metrics.differing,
        };
        Self {
            shared: Arc::clone(shared),
            replica: Replica::new(client),
            number,
            every,
            peer: PEER.into(),
            metrics,
            cursor: None,
            events_cursor: None,
            roster_version: shared.roster().version(),
            refused: Recent::new(REFUSED),
            refused_in_a_row: 0,
            blocks: Recent::new(BLOCKS),
            devices: Recent::new(BLOCKS),
            events: None,
            unknown: Recent::new(UNKNOWN),
            compared: None,
            fruitless: None,
        }
    }

    /// Follows the cloud until the service stops.
    pub(crate) async fn run(mut self) {
        let mut changes = self.shared.urgent.subscribe();
        let stopping = Arc::clone(&self.shared);
        let stopped = async move {
            while !stopping.stopping.load(Ordering::Relaxed) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = self.follow() => {}
            () = stopped => {}
        }
    }

    async fn follow(&mut self) {
        info!(cloud = self.replica.client().base(), "following");
        let mut wait = self.every;
        loop {
            match self.period().await {
                Ok(()) => {
                    wait = self.every;
                    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    self.metrics.success.set(now.as_secs_f64());
                }
                Err(failure) => {
                    self.metrics.failures.increment(1);
                    if self.shared.findings_log.allows(Finding::Followed(self.number)) {
                        let (cloud, detail) = (self.replica.client().base(), failure.detail());
                        warn!(cloud, name = failure.name(), detail = %cut(&detail), "following failed");
                    }
                    wait = (2 * wait).min(LONGEST_WAIT).max(self.every);
                }
            }
            tokio::time::sleep(spread(wait)).await;
        }
    }

    /// Fetches what the other cloud has and this one does not.
    async fn period(&mut self) -> Result<(), Failure> {
        let roster = self.shared.roster();
        if roster.version() != self.roster_version {
            // A later version may accept what an earlier one refused.
            self.roster_version = roster.version();
            self.refused.clear();
            self.blocks.clear();
            self.devices.clear();
            self.unknown.clear();
            (self.events, self.fruitless, self.compared) = (None, None, None);
        }
        self.refused_in_a_row = 0;
        let theirs = loop {
            let theirs = self.replica.summary(self.cursor.as_deref()).await?;
            if theirs.group != roster.group().to_string() {
                return Err(Failure::OtherGroup(cut(&theirs.group).into_owned()));
            }
            match &theirs.changes {
                Some(changes) => self.apply(changes).await?,
                // The other cloud has restarted, or this one was away for long.
                None => self.compared = None,
            }
            self.cursor = Some(theirs.cursor.clone());
            if !theirs.more {
                break theirs;
            }
        };
        let own = self.own(Summaries::totals).await?;
        self.follow_events(&own.events, &theirs).await?;
        let theirs =
            Totals { seals: theirs.seals, manifests: theirs.manifests, events: theirs.events };
        if (own.seals, own.manifests) == (theirs.seals, theirs.manifests) {
            self.metrics.differing.set(0.0);
            return Ok(());
        }
        let is_due = self.compared.is_none_or(|at| at.elapsed() >= COMPARE_EVERY);
        if is_due && self.fruitless != Some((own, theirs)) {
            let fetched = self.compare().await?;
            self.compared = Some(Instant::now());
            self.fruitless = (fetched == 0).then_some((own, theirs));
        }
        Ok(())
    }

    /// Fetches what the other cloud has just stored, manifests first.
    async fn apply(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let (mut epochs, mut seals) = (Vec::new(), Vec::new());
        for change in changes {
            match *change {
                Change::Manifest { epoch } => epochs.push(epoch),
                Change::Seal { device, index, digest, kept_from } => seals.push(ListedSeal {
                    device,
                    index: SealIndex(index),
                    digest,
                    kept_from,
                    epoch: None,
                }),
            }
        }
        epochs.sort_unstable();
        epochs.dedup();
        for epoch in epochs {
            self.fetch_manifests(EpochNumber(epoch), epoch.checked_add(1).map(EpochNumber)).await?;
        }
        self.fetch(seals).await?;
        Ok(())
    }

    /// Brings the own fingerprints up to date, and reads them.
    async fn own<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Summaries) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        Ok(refreshed(&self.shared, None, read).await?)
    }

    /// Remembers an object that this cloud refuses, and reports it once.
    fn refuse(&mut self, what: Refused, text: &str, name: &str) -> Result<(), Failure> {
        self.refused.insert(what, ());
        self.shared.metrics.follow_refused(self.replica.client().base(), name);
        if self.shared.findings_log.allows(Finding::Followed(self.number)) {
            let cloud = self.replica.client().base();
            warn!(cloud, name, what = %cut(text), "refused what the followed cloud has");
        }
        self.refused_in_a_row += 1;
        if self.refused_in_a_row >= MOST_REFUSED {
            return Err(Failure::MuchRefused);
        }
        Ok(())
    }
}

/// Returns a wait of 75 to 125 % of `wait`, so that clouds do not send their requests all at once.
fn spread(wait: Duration) -> Duration {
    let mut random = [0; 2];
    let share = getrandom::fill(&mut random)
        .map_or(0.5, |()| f64::from(u16::from_be_bytes(random)) / f64::from(u16::MAX));
    wait.mul_f64(0.75 + 0.5 * share)
}

/// Returns whether a refusal is about the data, and not about the state of this cloud.
fn is_about_data(refusal: &Refusal) -> bool {
    !matches!(refusal.problem().status, 429 | 500..)
}

/// Returns the name of an error that is about the requested object, or the error if it is about the
/// other cloud. The name does not come from the other cloud, because it becomes a label of a metric.
fn about_object(error: NetError) -> Result<String, Failure> {
    match error {
        NetError::Refused { status: 404 | 409 | 413 | 422, .. } => Ok("NotServed".to_owned()),
        NetError::NotACloud { .. } => Ok("NotACloud".to_owned()),
        error => Err(error.into()),
    }
}

/// Creates the label of a followed cloud.
pub(crate) fn label(cloud: &str) -> Label {
    Label::new("cloud", cloud.to_owned())
}
