//! What is streamed: answers to queries, whole bundles, explaining forms.
//!
//! Items are made on a blocking thread, one part at a time, and handed over in pieces; when the receiver is slower than the
//! store, the thread waits. A problem before the first byte is an HTTP refusal, a later one the stream's last item.

use std::cell::RefCell;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query as Parameters, Request, State};
use axum::http::HeaderValue;
use axum::http::Response;
use axum::http::header::CONTENT_TYPE;
use futures_util::stream;
use moteseal_api::problem::name;
use moteseal_api::{CBOR_SEQ, JSON, Problem, Query, parse_device};
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::sample::Choice;
use moteseal_store::{ReadError, StoredSeal};
use moteseal_verify::write;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::answer::{Answer, Output, PartOutput, Selected, open_before};
use crate::body;
use crate::manifest::Manifests;
use crate::refusal::Refusal;
use crate::service::Shared;
use crate::share::{Held, Peer};

/// Items are handed over in pieces of about this many bytes.
const PIECE: usize = 128 << 10;
/// Pieces made ahead of the receiver.
pub(crate) const AHEAD: usize = 2;
/// The longest query: 4096 devices are some 80 KiB.
const QUERY_BYTES: usize = 1 << 20;

/// `POST /v1/query`.
pub(crate) async fn query(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    let (body, room) = body::read(&shared, peer, (&head.headers, body), JSON, QUERY_BYTES).await?;
    let _place = body::request_place(&shared, peer)?;
    let query = Query::from_json(&body).map_err(|error| Refusal::bad_query(error.to_string()))?;
    drop((body, room));
    judge(&shared, &query)?;
    let permit = answer_permit(&shared, peer)?;
    let (send, receive) = mpsc::channel(AHEAD);
    let (producer, working) = (Arc::clone(&shared), Arc::clone(&permit));
    tokio::task::spawn_blocking(move || {
        produce(&producer, peer, query, &send);
        drop(working);
    });
    respond(receive, permit).await
}

/// What can be refused before anything is read.
fn judge(shared: &Shared, query: &Query) -> Result<(), Refusal> {
    let limits = &shared.limits;
    let too_large = |detail: String| Err(Refusal::new(name::QUERY_TOO_LARGE, 413, detail));
    if query.devices.len() > limits.query_devices {
        return too_large(format!(
            "a query may name {} devices; ask for fewer at once",
            limits.query_devices
        ));
    }
    let span = query.until.map_or(u64::MAX, |until| until.0) - query.since.0;
    if span > limits.query_epochs {
        return too_large(format!(
            "a query may span {} epochs; ask for fewer at once",
            limits.query_epochs
        ));
    }
    if let Some(device) =
        query.devices.iter().find(|&&device| shared.roster.device(device).is_none())
    {
        let detail =
            format!("the roster has no device {device}; /v1/devices lists those there are");
        return Err(Refusal::new("UnknownDevice", 404, detail));
    }
    match query.choice {
        Choice::Sample { count, .. } if count > limits.query_sample => too_large(format!(
            "a sample may have {} events an epoch; ask for fewer",
            limits.query_sample
        )),
        Choice::Rate(rate) if rate.levels(shared.roster.levels()).is_none() => {
            let detail = format!(
                "with {} levels, rate {rate} rounds to 0; ask for more",
                shared.roster.levels()
            );
            Err(Refusal::new("RateUnavailable", 422, detail))
        }
        _ => Ok(()),
    }
}

/// A place among the answers at once. The thread that makes an answer and the body that carries it both hold it: who hangs up
/// frees it only once the thread has noticed.
pub(crate) type Place = Arc<Held>;

pub(crate) fn answer_permit(shared: &Shared, peer: Peer) -> Result<Place, Refusal> {
    let busy = || {
        Refusal::new(
            name::TOO_MANY_REQUESTS,
            429,
            "too many answers are being sent; try again shortly",
        )
    };
    shared.answers.take(peer, 1).map(Arc::new).ok_or_else(busy)
}

/// A piece of an answer, or why there is none.
pub(crate) type Piece = Result<Bytes, Problem>;

/// Writes the answer until it ends or nobody listens any more.
fn produce(shared: &Shared, peer: Peer, query: Query, send: &mpsc::Sender<Piece>) {
    let room = RefCell::new(None);
    let runtime = Handle::current();
    // Long parts wait for their share of the memory, as long as somebody listens; short ones fit the pieces.
    let gate = |bytes: u64| {
        if bytes > PIECE as u64 {
            room.replace(None);
            let held = runtime.block_on(async {
                tokio::select! {
                    held = shared.answer_bytes.wait(peer, bytes) => held,
                    () = send.closed() => None,
                }
            });
            room.replace(held);
        }
    };
    let mut outgoing = Outgoing::new(shared, send);
    for output in Answer::new(&*shared.store, &shared.roster, query).with_gate(gate) {
        let written = match output {
            Output::Problem { name, detail } => {
                return outgoing.stop(&Problem::new(name, problem_status(name), detail));
            }
            Output::Part(part) if part.events.len() > PIECE => {
                outgoing.long_part(*part, room.take())
            }
            Output::Manifest(manifest) => {
                outgoing.preamble(|piece| write::manifest(piece, &manifest))
            }
            output => outgoing.item(|piece| output.write(piece)),
        };
        if written.is_err() {
            return;
        }
    }
    let _ = outgoing.flush();
}

/// Nobody listens any more.
pub(crate) struct Gone;

/// An answer on its way out, in pieces.
pub(crate) struct Outgoing<'s> {
    shared: &'s Shared,
    send: &'s mpsc::Sender<Piece>,
    piece: Vec<u8>,
    /// Something was sent, or stands in the piece, that is more than what an answer begins with.
    begun: bool,
}

impl<'s> Outgoing<'s> {
    pub(crate) const fn new(shared: &'s Shared, send: &'s mpsc::Sender<Piece>) -> Self {
        Self { shared, send, piece: Vec::new(), begun: false }
    }

    /// Appends an item.
    pub(crate) fn item(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Gone> {
        self.begun = true;
        self.preamble(write)
    }

    /// Appends an item that says nothing yet of what was asked: as long as it has not been sent, the answer can still be a refusal.
    fn preamble(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Gone> {
        write(&mut self.piece);
        if self.piece.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Ends an answer that cannot go on: with a refusal where nothing has been said yet, else with a problem item.
    pub(crate) fn stop(mut self, problem: &Problem) {
        if !self.begun {
            let _ = self.send.blocking_send(Err(problem.clone()));
            return;
        }
        write::problem(&mut self.piece, problem.name(), &problem.detail);
        let _ = self.flush();
    }

    fn send(&mut self, piece: Bytes) -> Result<(), Gone> {
        self.shared.metrics.answer_bytes.increment(piece.len() as u64);
        self.begun = true;
        self.send.blocking_send(Ok(piece)).map_err(|_| Gone)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Gone> {
        let piece = std::mem::take(&mut self.piece);
        self.send(piece.into())
    }

    /// Sends a part's events without copying them; their room is free again when the last piece of them is gone.
    fn long_part(&mut self, mut part: PartOutput, room: Option<Held>) -> Result<(), Gone> {
        part.write_head(&mut self.piece);
        self.flush()?;
        part.write_tail(&mut self.piece);
        let mut events =
            Bytes::from_owner(Roomed { bytes: std::mem::take(&mut part.events), _room: room });
        while !events.is_empty() {
            let piece = events.split_to(events.len().min(PIECE));
            self.send(piece)?;
        }
        Ok(())
    }
}

/// Bytes that hold their share of the memory.
struct Roomed {
    bytes: Vec<u8>,
    _room: Option<Held>,
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The status of a problem that stands where an answer should begin.
fn problem_status(name: &str) -> u16 {
    match name {
        name::EQUIVOCATION => 409,
        name::QUERY_TOO_LARGE => 413,
        "Closed" => 503,
        "StoreFailed" | "StoreDamaged" | "UnknownRoster" => 500,
        _ => 422,
    }
}

/// A response that streams the pieces.
pub(crate) async fn respond(
    mut pieces: mpsc::Receiver<Piece>,
    permit: Place,
) -> Result<Response<Body>, Refusal> {
    let first = match pieces.recv().await {
        Some(Ok(piece)) => piece,
        Some(Err(problem)) => return Err(problem.into()),
        None => {
            return Err(Refusal::new(
                name::STORE_FAILED,
                500,
                "the answer failed unexpectedly; ask again",
            ));
        }
    };
    let rest =
        stream::unfold((Some(first), pieces, permit), |(first, mut pieces, permit)| async move {
            let piece = match first {
                Some(piece) => Ok(piece),
                None => pieces.recv().await?,
            };
            Some((piece, (None, pieces, permit)))
        });
    let mut response = Response::new(Body::from_stream(rest));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(CBOR_SEQ));
    Ok(response)
}

/// What may stand behind the `?` of a bundle's path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    digest: Option<String>,
}

/// `GET /v1/devices/{device}/bundles/{index}`.
pub(crate) async fn bundle(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<(String, String)>, PathRejection>,
    which: Result<Parameters<Which>, QueryRejection>,
) -> Result<Response<Body>, Refusal> {
    let Parameters(which) = which.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let permit = answer_permit(&shared, peer)?;
    let (device, index) = place(&shared, path)?;
    let (send, receive) = mpsc::channel(AHEAD);
    let working = Arc::clone(&permit);
    tokio::task::spawn_blocking(move || {
        let _working = working;
        let made = one(&shared, device, index, which.digest.as_deref())
            .map_err(|refusal| refusal.problem().clone());
        let _ = send.blocking_send(made.map(Bytes::from));
    });
    respond(receive, permit).await
}

fn one(
    shared: &Shared,
    device: DeviceId,
    index: SealIndex,
    digest: Option<&str>,
) -> Result<Vec<u8>, Refusal> {
    let mut seals = found(shared, device, index)?;
    if let Some(digest) = digest {
        seals.retain(|seal| seal.key().digest.to_string() == digest.to_ascii_lowercase());
    }
    let Some(seal) = seals.pop() else {
        return Err(Refusal::not_found(format!(
            "device {device} has no seal {index} of that digest"
        )));
    };
    if !seals.is_empty() {
        let detail = format!(
            "device {device} signed different seals under index {index}; name one by ?digest=, \
             the listing has their digests"
        );
        return Err(Refusal::new(name::EQUIVOCATION, 409, detail));
    }
    let statement = seal.seal().statement();
    let schema = shared.store.schema(&statement.schema).map_err(unreadable)?;
    let schema = schema.ok_or_else(|| {
        damaged(format!("the schema of seal {index} of device {device} is not in the store"))
    })?;
    let unknown = || {
        damaged(format!(
            "seal {index} of device {device} names a roster that this service does not know"
        ))
    };
    let open = open_before(&shared.roster, &seal).ok_or_else(unknown)?;
    let (epoch, pruned) = (statement.epoch, seal.kept_from().0 > 0);
    let selection = Selected::Levels(seal.kept());
    let part = PartOutput::read(&*shared.store, seal, selection, true).map_err(unreadable)?;
    let mut out = Vec::with_capacity(part.events.len() + schema.len() + 4096);
    if pruned {
        // What is not whole by itself is whole with regard to the round that the epoch ended at.
        for manifest in
            Manifests::new(&*shared.store, epoch, epoch.0.checked_add(1).map(EpochNumber))
        {
            Output::Manifest(manifest.map_err(unreadable)?.bytes().to_vec()).write(&mut out);
        }
    }
    for output in
        [Output::Schema(schema), Output::Open(open), Output::Part(Box::new(part)), Output::End]
    {
        output.write(&mut out);
    }
    shared.metrics.answer_bytes.increment(out.len() as u64);
    Ok(out)
}

/// `GET /v1/devices/{device}/seals/{index}/explain`.
pub(crate) async fn explain(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response<Body>, Refusal> {
    let permit = answer_permit(&shared, peer)?;
    let (device, index) = place(&shared, path)?;
    let (send, receive) = mpsc::channel(AHEAD);
    let working = Arc::clone(&permit);
    tokio::task::spawn_blocking(move || {
        let _working = working;
        let made = found(&shared, device, index).map(|seals| explained(&seals));
        let _ =
            send.blocking_send(made.map(Bytes::from).map_err(|refusal| refusal.problem().clone()));
    });
    respond(receive, permit).await
}

/// The explaining form of seals: spec/formats.md, section 6.
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
            "device {device} has no seal {index} here; its seals are listed at its path"
        )));
    }
    Ok(seals)
}

/// The device of a path, which the roster must have.
pub(crate) fn device(shared: &Shared, text: &str) -> Result<DeviceId, Refusal> {
    let device = parse_device(text).ok_or_else(|| {
        Refusal::bad_query(
            "a device stands in a path as its id, 16 hexadecimal digits; /v1/devices lists them",
        )
    })?;
    if shared.roster.device(device).is_none() {
        return Err(Refusal::not_found(format!(
            "the roster has no device {device}; /v1/devices lists those there are"
        )));
    }
    Ok(device)
}

fn place(
    shared: &Shared,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<(DeviceId, SealIndex), Refusal> {
    let Path((device, index)) = path.map_err(|error| Refusal::bad_query(error.body_text()))?;
    let device = self::device(shared, &device)?;
    let index = index
        .parse()
        .map_err(|_| Refusal::bad_query("an index is a number from 0 to 4294967295"))?;
    Ok((device, SealIndex(index)))
}

fn damaged(detail: String) -> Refusal {
    Refusal::new("StoreDamaged", 500, detail)
}

pub(crate) fn unreadable(error: ReadError) -> Refusal {
    Problem::new(error.name(), problem_status(error.name()), error.to_string()).into()
}
