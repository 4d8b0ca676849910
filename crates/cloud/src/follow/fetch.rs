//! Fetches bundles: several at a time, verified like uploads, and stored in batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use moteseal_core::roster::{Directory as _, NoKey};
use moteseal_net::NetError;
use moteseal_net::replica::{ListedSeal, Replica, bundle_of};
use moteseal_service::Peer;
use moteseal_store::Bundle;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::{Failure, Follower, Refused, about_object, is_about_data};
use crate::access::Grant;
use crate::handlers::bundles::{self, Pruned};
use crate::ingest::Room;
use crate::refusal::Refusal;
use crate::state::Shared;

/// The number of bundles that are requested at the same time.
const AT_ONCE: usize = 8;
/// Several bundles of up to this size are received at the same time, but only one longer bundle.
const SHORT: usize = 1 << 20;
/// A batch is stored once it has this many bundles or bytes.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 4 << 20;
/// A batch is stored if no further bundle arrives within this time. It also frees the memory for
/// which the next bundle may be waiting.
const PAUSE: Duration = Duration::from_millis(50);
/// The time within which a bundle must have arrived, for its beginning and for each `SHORT` bytes.
const TIME: Duration = Duration::from_secs(30);

/// A verified bundle, or the name of the error with which it was refused.
type Fetched = Result<(Bundle, Room), String>;

impl Follower {
    /// Fetches those of the listed seals that this cloud does not have, or of which it has fewer
    /// levels, and returns the number of bundles that were stored.
    pub(super) async fn fetch(&mut self, listed: Vec<ListedSeal>) -> Result<u64, Failure> {
        let mut wanted = self.wanted(listed).await?.into_iter();
        let long = Arc::new(Mutex::new(()));
        let mut tasks: JoinSet<(ListedSeal, Result<Fetched, Failure>)> = JoinSet::new();
        let (mut batch, mut bytes, mut stored) = (Vec::new(), 0, 0);
        loop {
            while tasks.len() < AT_ONCE
                && let Some(seal) = wanted.next()
            {
                let (shared, replica) = (Arc::clone(&self.shared), self.replica.clone());
                let (long, peer) = (Arc::clone(&long), self.peer);
                tasks.spawn(async move { (seal, one(&shared, &replica, &long, peer, seal).await) });
            }
            let joined = tokio::time::timeout(PAUSE, tasks.join_next()).await;
            let (is_idle, is_last) = (joined.is_err(), matches!(joined, Ok(None)));
            let mut failed = None;
            if let Ok(Some(joined)) = joined {
                let unexpected = |_| {
                    Failure::Own(Refusal::busy("verification failed unexpectedly; it is repeated"))
                };
                let (seal, fetched) = joined.map_err(unexpected)?;
                match fetched {
                    Ok(Ok((bundle, room))) => {
                        self.refused_in_a_row = 0;
                        bytes += bundle.stored_bytes();
                        batch.push((bundle, room));
                    }
                    Ok(Err(name)) => {
                        let text = format!("seal {} of device {}", seal.index, seal.device);
                        failed = self.refuse(Refused::seal(&seal), &text, &name).err();
                    }
                    Err(failure) => failed = Some(failure),
                }
            }
            let is_full = batch.len() >= BATCH || bytes >= BATCH_BYTES || failed.is_some();
            if !batch.is_empty() && (is_full || is_last || is_idle) {
                let (bundles, _rooms): (Vec<Bundle>, Vec<Room>) = batch.drain(..).unzip();
                let (receipt, _) = bundles::store(&self.shared, self.peer, bundles).await?;
                self.metrics.seals.increment(receipt.stored);
                stored += receipt.stored;
                bytes = 0;
            }
            if let Some(failure) = failed {
                return Err(failure);
            }
            if is_last {
                return Ok(stored);
            }
        }
    }

    /// Returns those of the listed seals that must be fetched.
    async fn wanted(&mut self, listed: Vec<ListedSeal>) -> Result<Vec<ListedSeal>, Failure> {
        let roster = self.shared.roster();
        let mut wanted = Vec::new();
        for seal in listed {
            if roster.device(seal.device).is_none() {
                self.report_unknown(seal.device);
            } else if !self.refused.contains(&Refused::seal(&seal)) {
                wanted.push(seal);
            }
        }
        let shared = Arc::clone(&self.shared);
        let work = move || {
            let is_wanted = |seal: &ListedSeal| {
                // What the roster has ended is not accepted, so it need not be fetched.
                let is_void = seal.epoch.is_some_and(|epoch| {
                    roster.with_key(seal.device, seal.index, epoch, &mut |_| {})
                        == Err(NoKey::Ended)
                });
                if is_void {
                    return Ok(false);
                }
                let own = shared.store.seals_at(seal.device, seal.index)?;
                Ok(!own.iter().any(|own| {
                    own.key().digest == seal.digest && own.kept_from().0 <= seal.kept_from
                }))
            };
            let mut missing = Vec::new();
            for seal in wanted {
                if is_wanted(&seal).map_err(crate::streaming::unreadable)? {
                    missing.push(seal);
                }
            }
            Ok(missing)
        };
        let unexpected = |_| Refusal::busy("reading the store failed unexpectedly; it is repeated");
        let missing: Result<Vec<ListedSeal>, Refusal> =
            tokio::task::spawn_blocking(work).await.map_err(unexpected)?;
        Ok(missing?)
    }
}

/// Fetches and verifies one bundle.
async fn one(
    shared: &Arc<Shared>,
    replica: &Replica,
    long: &Mutex<()>,
    peer: Peer,
    seal: ListedSeal,
) -> Result<Fetched, Failure> {
    let body = match receive(shared.limits.body_bytes, replica, long, &seal).await {
        Ok(body) => body,
        Err(error) => return about_object(error).map(Err),
    };
    let Some(range) = bundle_of(&body) else { return Ok(Err("NotWhole".to_owned())) };
    let body = body.slice(range);
    let how = (Pruned::Copied, Grant::Open);
    let (mut bundles, room) = match bundles::verified(shared, peer, how, body, None).await {
        Ok(verified) => verified,
        Err(refusal) if is_about_data(&refusal) => {
            return Ok(Err(refusal.problem().name().to_owned()));
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let Some(bundle) = bundles.pop() else { return Ok(Err("NotWhole".to_owned())) };
    let key = bundle.key();
    if (key.device, key.index, key.digest) != (seal.device, seal.index, seal.digest)
        || bundle.kept_from().0 > seal.kept_from
    {
        return Ok(Err("NotAsAsked".to_owned()));
    }
    Ok(Ok((bundle, room)))
}

/// Receives the response to a request for a bundle.
async fn receive(
    most: usize,
    replica: &Replica,
    long: &Mutex<()>,
    seal: &ListedSeal,
) -> Result<Bytes, NetError> {
    let late = || NetError::Interrupted {
        url: replica.client().base().to_owned(),
        cause: "a bundle did not arrive in time".to_owned(),
    };
    let mut response =
        tokio::time::timeout(TIME, replica.bundle(seal)).await.map_err(|_| late())??;
    let (mut body, mut turn, mut spent) = (Vec::new(), None, Duration::ZERO);
    loop {
        let share = u32::try_from(body.len() / SHORT).unwrap_or(u32::MAX);
        let left = (TIME * share.saturating_add(1)).checked_sub(spent).ok_or_else(late)?;
        let start = Instant::now();
        let chunk = tokio::time::timeout(left, response.chunk()).await.map_err(|_| late())??;
        spent += start.elapsed();
        let Some(chunk) = chunk else { return Ok(body.into()) };
        if body.len() + chunk.len() > most {
            return Err(NetError::NotACloud {
                url: response.url().to_owned(),
                cause: format!("the bundle is longer than {most} bytes"),
            });
        }
        if body.len() + chunk.len() > SHORT && turn.is_none() {
            turn = Some(long.lock().await);
        }
        body.extend_from_slice(&chunk);
    }
}
