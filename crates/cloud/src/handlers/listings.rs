//! Listings of devices and seals. Listings prove nothing: a client that needs proof sends a query
//! and verifies the response.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use axum::response::{IntoResponse, Json};
use moteseal_api::{DeviceEntry, DeviceList, Newest, ProblemType, SealEntry, SealList};
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_service::Peer;
use moteseal_store::{Head, ReadError, StoredSeal};
use serde::Deserialize;

use crate::conflicts;
use crate::ingest::on_verifier;
use crate::parameters::device;
use crate::refusal::Refusal;
use crate::state::Shared;
use crate::streaming::{counted, unreadable};
use crate::turns::Turn;

/// The number of devices that are read from the store at a time.
const PAGE: usize = 1024;

/// The query parameters of a listing of devices.
#[derive(Deserialize)]
pub(crate) struct Of {
    device: Option<String>,
}

/// Handles `GET /v1/devices`.
pub(crate) async fn devices(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    of: Result<Query<Of>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Query(of) = of.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let only = of.device.map(|text| device(&shared, &text)).transpose()?;
    let devices = move |shared: &Shared| {
        let heads = heads(shared, only).map_err(unreadable)?;
        let roster = shared.roster();
        let entry = |device: &moteseal_verify::roster::Device| DeviceEntry {
            id: device.id.to_string(),
            name: device.name.clone(),
            newest: heads.get(&device.id).map(|head| Newest {
                index: head.key.index.0,
                epoch: head.epoch.0,
                digest: head.key.digest.to_string(),
            }),
        };
        Ok(DeviceList {
            group: roster.group_name().to_owned(),
            roster_version: roster.version(),
            roster_digest: roster.digest().to_string(),
            devices: roster
                .devices()
                .filter(|device| only.is_none_or(|only| only == device.id))
                .map(entry)
                .collect(),
        })
    };
    let list = read(&shared, devices).await?;
    counted(&shared, peer, Json(list).into_response())
}

/// Reads the newest seal of each device, or of one.
fn heads(shared: &Shared, only: Option<DeviceId>) -> Result<HashMap<DeviceId, Head>, ReadError> {
    let mut heads = HashMap::new();
    if let Some(device) = only {
        let before = u64::from_be_bytes(device.0).checked_sub(1);
        let next = shared.store.devices(before.map(|id| DeviceId(id.to_be_bytes())), 1)?;
        heads.extend(next.into_iter().map(|head| (head.key.device, head)));
        return Ok(heads);
    }
    let mut after = None;
    loop {
        let page = shared.store.devices(after, PAGE)?;
        let more = page.len() == PAGE;
        after = page.last().map(|head| head.key.device);
        heads.extend(page.into_iter().map(|head| (head.key.device, head)));
        if !more {
            return Ok(heads);
        }
    }
}

/// The query parameters of a listing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    from: Option<u32>,
    limit: Option<usize>,
}

/// Handles `GET /v1/devices/{device}/seals`.
pub(crate) async fn seals(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<String>, PathRejection>,
    page: Result<Query<Page>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Path(text) = path.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let Query(page) = page.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let device = device(&shared, &text)?;
    let most = shared.limits.page;
    let limit = page.limit.unwrap_or(most).clamp(1, most);
    let from = SealIndex(page.from.unwrap_or(0));
    let page = move |shared: &Shared| {
        let (seals, next) = page_of(shared, device, from, limit).map_err(unreadable)?;
        let list = SealList {
            device: device.to_string(),
            seals: seals.iter().map(entry).collect(),
            next: next.map(|next| next.0),
        };
        Ok((list, seals))
    };
    let (mut list, seals) = read(&shared, page).await?;
    if seals.windows(2).any(|pair| pair[0].key().index == pair[1].key().index) {
        let verify = move |shared: &Shared, turn: &Turn| {
            Ok(conflicts::of_listed(&shared.roster(), &seals, &mut || turn.pause()))
        };
        let conflicts = on_verifier(&shared, peer, verify).await?;
        for (entry, conflict) in list.seals.iter_mut().zip(conflicts) {
            entry.conflict = conflict;
        }
    }
    counted(&shared, peer, Json(list).into_response())
}

/// Returns about `limit` seals from an index on, and the first index of the next page. Seals with
/// the same index are always on the same page.
fn page_of(
    shared: &Shared,
    device: DeviceId,
    from: SealIndex,
    limit: usize,
) -> Result<(Vec<StoredSeal>, Option<SealIndex>), ReadError> {
    let mut seals = shared.store.seals(device, from, limit + 1)?;
    let index = |seal: &StoredSeal| seal.seal().statement().index;
    let Some(next) = seals.get(limit).map(index) else { return Ok((seals, None)) };
    seals.retain(|seal| index(seal) < next);
    if seals.is_empty() {
        let twins = shared.store.seals_at(device, next)?;
        return Ok((twins, next.0.checked_add(1).map(SealIndex)));
    }
    Ok((seals, Some(next)))
}

fn entry(seal: &StoredSeal) -> SealEntry {
    let statement = seal.seal().statement();
    SealEntry {
        index: statement.index.0,
        epoch: statement.epoch.0,
        digest: seal.seal().digest().to_string(),
        prev: statement.prev.to_string(),
        scheme: statement.scheme.as_str().to_owned(),
        events: statement.counters.total(),
        last_in_epoch: statement.last_in_epoch,
        restart: statement.restart,
        kept_from: seal.kept_from().0,
        conflict: false,
    }
}

/// Runs `read`, which reads the store, on a thread that may block.
async fn read<T: Send + 'static>(
    shared: &Arc<Shared>,
    read: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let failed = |_| {
        Refusal::new(ProblemType::STORE_FAILED, "reading the store failed unexpectedly; try again")
    };
    let shared = Arc::clone(shared);
    tokio::task::spawn_blocking(move || read(&shared)).await.map_err(failed)?
}
