//! Streamed data: responses to queries, whole bundles, and the explaining form of seals.

use std::cell::RefCell;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query as Parameters, Request, State};
use axum::http::Response as HttpResponse;
use moteseal_api::{JSON, Problem, ProblemType, Query};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::sample::Choice;
use moteseal_service::{Held, Peer};
use moteseal_store::StoredSeal;
use moteseal_verify::write;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::parameters::device_and_index;
use crate::refusal::Refusal;
use crate::request_body;
use crate::response::{
    Manifests, PartOutput, Response, ResponseItem, Selected, is_served, open_before, unsigned,
};
use crate::state::Shared;
use crate::streaming::{
    AHEAD, Gone, Outgoing, Piece, part_memory, respond, response_permit, unreadable,
};

/// The maximum length of a query, in bytes. A query for 4096 devices has about 80 KiB.
const QUERY_BYTES: usize = 1 << 20;

/// Handles `POST /v1/query`.
pub(crate) async fn query(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<HttpResponse<Body>, Refusal> {
    let (head, body) = request.into_parts();
    let (body, memory) =
        request_body::read(&shared, peer, (&head.headers, body), JSON, QUERY_BYTES).await?;
    let _place = request_body::place(&shared, peer)?;
    let query = Query::from_json(&body).map_err(|error| Refusal::bad_query(error.to_string()))?;
    drop((body, memory));
    check(&shared, &query)?;
    let permit = response_permit(&shared, peer)?;
    let (send, receive) = mpsc::channel(AHEAD);
    let (producer, working) = (Arc::clone(&shared), Arc::clone(&permit));
    tokio::task::spawn_blocking(move || {
        produce(&producer, peer, query, &send);
        drop(working);
    });
    respond(receive, permit, shared.roster().version()).await
}

/// Rejects a query that exceeds a limit or names an unknown device, before the store is read.
fn check(shared: &Shared, query: &Query) -> Result<(), Refusal> {
    let limits = &shared.limits;
    let too_large = |detail: String| Err(Refusal::new(ProblemType::QUERY_TOO_LARGE, detail));
    if query.devices.len() > limits.query_devices {
        return too_large(format!(
            "a query may name at most {} devices; request fewer at once",
            limits.query_devices
        ));
    }
    let span = query.until.map_or(u64::MAX, |until| until.0) - query.since.0;
    if span > limits.query_epochs {
        return too_large(format!(
            "a query may span at most {} epochs; request fewer at once",
            limits.query_epochs
        ));
    }
    let roster = shared.roster();
    if let Some(device) = query.devices.iter().find(|&&device| roster.device(device).is_none()) {
        let version = roster.version();
        let detail = format!(
            "version {version} of the roster, which the service uses, has no device {device}; \
             /v1/devices lists its devices"
        );
        return Err(Refusal::new(ProblemType::new("UnknownDevice", 404), detail));
    }
    let periods = roster.periods_in(query.since, query.until);
    let levels = periods.map(|period| period.levels).max().unwrap_or(1);
    match query.choice {
        Choice::Sample { count, .. } if count > limits.query_sample => too_large(format!(
            "a sample may have at most {} events of each epoch; request fewer",
            limits.query_sample
        )),
        Choice::Readings(readings) if readings.count() > limits.query_sample.into() => too_large(
            format!("a query may name at most {} readings; request fewer", limits.query_sample),
        ),
        Choice::Rate(rate) if rate.levels(levels).is_none() => {
            let detail =
                format!("with {levels} levels, rate {rate} rounds to 0; request a higher rate");
            Err(Refusal::new(ProblemType::new("RateUnavailable", 422), detail))
        }
        _ => Ok(()),
    }
}

/// Sends the response until it ends or the client closes the connection.
fn produce(shared: &Shared, peer: Peer, query: Query, send: &mpsc::Sender<Piece>) {
    let memory = RefCell::new(None);
    // Before a long part is read, the producer waits for memory.
    let gate = |bytes: u64| {
        memory.replace(None);
        let held = part_memory(shared, peer, send, bytes);
        held.map(|held| memory.replace(held)).is_ok()
    };
    let mut outgoing = Outgoing::new(shared, send);
    let roster = shared.roster();
    for item in Response::new(&*shared.store, &roster, query).with_gate(gate) {
        let written = match item {
            ResponseItem::Problem { name, detail } => {
                return outgoing.stop(&Problem::new(ProblemType::of_response(name), detail));
            }
            ResponseItem::Part(part) => outgoing.part(*part, memory.take()),
            ResponseItem::Manifest(manifest) => {
                outgoing.preamble(|piece| write::manifest(piece, &manifest))
            }
            item => outgoing.item(|piece| item.write(piece)),
        };
        if written.is_err() {
            return;
        }
    }
    let _ = outgoing.flush();
}

/// The query parameters of the route of a bundle.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    digest: Option<String>,
}

/// Handles `GET /v1/devices/{device}/bundles/{index}`.
pub(crate) async fn bundle(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<(String, String)>, PathRejection>,
    which: Result<Parameters<Which>, QueryRejection>,
) -> Result<HttpResponse<Body>, Refusal> {
    let Parameters(which) = which.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let permit = response_permit(&shared, peer)?;
    let (device, index) = device_and_index(&shared, path)?;
    let (send, receive) = mpsc::channel(AHEAD);
    let (working, version) = (Arc::clone(&permit), shared.roster().version());
    tokio::task::spawn_blocking(move || {
        let _working = working;
        let mut outgoing = Outgoing::new(&shared, &send);
        let found = one(&shared, device, index, which.digest.as_deref());
        let whole = found.and_then(|seal| Whole::read(&shared, peer, seal, &send));
        match whole {
            Err(refusal) => outgoing.stop(refusal.problem()),
            // If the client has closed the connection, nothing is left to do.
            Ok(whole) => drop(whole.and_then(|whole| whole.send(&mut outgoing))),
        }
    });
    respond(receive, permit, version).await
}

/// Returns the only seal with this index, and with this digest if one is given. Without a digest, returns
/// a seal that verifiers accept rather than one that they do not.
fn one(
    shared: &Shared,
    device: DeviceId,
    index: SealIndex,
    digest: Option<&str>,
) -> Result<StoredSeal, Refusal> {
    let mut seals = found(shared, device, index)?;
    if let Some(digest) = digest {
        seals.retain(|seal| seal.key().digest.to_string() == digest.to_ascii_lowercase());
    }
    let roster = shared.roster();
    if seals.len() > 1 {
        let refused = seals.iter().filter_map(|seal| unsigned(&roster, seal));
        // Damage is more important than a roster that is not known here.
        if let Some((name, what)) = refused.max_by_key(|(name, _)| *name == "StoreDamaged") {
            let detail = format!("device {device}, index {index}: {what}");
            return Err(Refusal::new(ProblemType::new(name, 500), detail));
        }
        // Void and outdated seals prove nothing about the device.
        seals.sort_by_key(|seal| is_served(&roster, seal));
    }
    let Some(seal) = seals.pop() else {
        return Err(Refusal::not_found(format!(
            "device {device} has no seal {index} with that digest"
        )));
    };
    if seals.last().is_some_and(|other| is_served(&roster, other)) {
        let detail = format!(
            "device {device} signed different seals under index {index}; select one with ?digest=; \
             the listing has their digests"
        );
        return Err(Refusal::new(ProblemType::EQUIVOCATION, detail));
    }
    Ok(seal)
}

/// A bundle, with all items that precede its part.
struct Whole {
    items: Vec<ResponseItem>,
    part: PartOutput,
    /// Counts the events of a long part.
    memory: Option<Held>,
}

impl Whole {
    /// Reads the bundle of a seal, as soon as there is memory for it, unless the client has closed
    /// the connection.
    fn read(
        shared: &Shared,
        peer: Peer,
        seal: StoredSeal,
        send: &mpsc::Sender<Piece>,
    ) -> Result<Result<Self, Gone>, Refusal> {
        let statement = seal.seal().statement();
        let (device, index, epoch) = (statement.device, statement.index, statement.epoch);
        let schema = shared.store.schema(&statement.schema).map_err(unreadable)?;
        let schema = schema.ok_or_else(|| {
            damaged(format!("the schema of seal {index} of device {device} is not in the store"))
        })?;
        let unknown = || {
            damaged(format!(
                "seal {index} of device {device} refers to a roster that this service does not have"
            ))
        };
        let open = open_before(&shared.roster(), &seal).ok_or_else(unknown)?;
        let mut items = Vec::new();
        if seal.kept_from().0 > 0 {
            // A pruned bundle is complete only with respect to its epoch's round, so the epoch's
            // manifests precede it.
            let until = epoch.0.checked_add(1).map(EpochNumber);
            for manifest in Manifests::new(&*shared.store, &shared.roster(), epoch, until) {
                let manifest = manifest.map_err(unreadable)?;
                items.push(ResponseItem::Manifest(manifest.bytes().to_vec()));
            }
        }
        items.extend([ResponseItem::Schema(schema), ResponseItem::Open(open)]);
        let memory = match part_memory(shared, peer, send, seal.most_bytes()) {
            Ok(memory) => memory,
            Err(Gone) => return Ok(Err(Gone)),
        };
        let selection = Selected::Levels(seal.kept());
        let part = PartOutput::read(&*shared.store, seal, selection, true).map_err(unreadable)?;
        Ok(Ok(Self { items, part, memory }))
    }

    fn send(self, outgoing: &mut Outgoing<'_>) -> Result<(), Gone> {
        for item in self.items {
            outgoing.item(|piece| item.write(piece))?;
        }
        outgoing.part(self.part, self.memory)?;
        outgoing.item(write::end)?;
        outgoing.flush()
    }
}

/// Handles `GET /v1/devices/{device}/seals/{index}/explain`.
pub(crate) async fn explain(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<HttpResponse<Body>, Refusal> {
    let permit = response_permit(&shared, peer)?;
    let (device, index) = device_and_index(&shared, path)?;
    let (send, receive) = mpsc::channel(AHEAD);
    let (working, version) = (Arc::clone(&permit), shared.roster().version());
    tokio::task::spawn_blocking(move || {
        let _working = working;
        let made = found(&shared, device, index).map(|seals| explained(&seals));
        let _ =
            send.blocking_send(made.map(Bytes::from).map_err(|refusal| refusal.problem().clone()));
    });
    respond(receive, permit, version).await
}

/// Encodes the explaining form of seals (`spec/answers.md`, section 5.3).
#[must_use]
pub fn explained(seals: &[StoredSeal]) -> Vec<u8> {
    let mut out = Vec::new();
    for seal in seals {
        write::explain(&mut out, seal.sign1(), &seal.explaining());
    }
    write::end(&mut out);
    out
}

fn found(shared: &Shared, device: DeviceId, index: SealIndex) -> Result<Vec<StoredSeal>, Refusal> {
    let seals = shared.store.seals_at(device, index).map_err(unreadable)?;
    if seals.is_empty() {
        return Err(Refusal::not_found(format!(
            "the store has no seal {index} of device {device}; \
             the listing of the device's seals has the stored indices"
        )));
    }
    Ok(seals)
}

fn damaged(detail: String) -> Refusal {
    Refusal::new(ProblemType::new("StoreDamaged", 500), detail)
}
