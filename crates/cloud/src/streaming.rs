//! Streams a response: a producer on a thread that may block sends pieces to the body of the
//! response.
//!
//! If the client receives more slowly than the store is read, the producer waits. A problem that
//! occurs before the first byte is sent becomes an HTTP error. A later problem becomes the last
//! item of the stream.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use futures_util::stream;
use http_body_util::BodyExt as _;
use moteseal_api::{CBOR_SEQ, Problem, ProblemType, ROSTER_VERSION};
use moteseal_service::{Held, Peer};
use moteseal_store::ReadError;
use moteseal_verify::write;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::refusal::Refusal;
use crate::response::PartOutput;
use crate::state::Shared;

/// The approximate size of a piece, in bytes.
pub(crate) const PIECE: usize = 128 << 10;
/// The maximum number of pieces that wait for the client.
pub(crate) const AHEAD: usize = 2;
/// The memory of a response that was built as a whole counts if the response has more bytes than
/// this. The number of connections limits the memory of shorter responses.
const SMALL: u64 = 16 << 10;
/// A place among the responses in progress. The producer and the body share it. The place therefore
/// becomes free only after the producer has noticed that the client closed the connection.
pub(crate) type Place = Arc<Held>;

pub(crate) fn response_permit(shared: &Shared, peer: Peer) -> Result<Place, Refusal> {
    let busy = || {
        Refusal::new(
            ProblemType::TOO_MANY_REQUESTS,
            "too many responses are in progress; try again shortly",
        )
    };
    shared.responses.take(peer, 1).map(Arc::new).ok_or_else(busy)
}

/// A piece of a response, or the problem that is sent instead of a response.
pub(crate) type Piece = Result<Bytes, Problem>;

/// The client has closed the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// The producer's end of a streamed response.
pub(crate) struct Outgoing<'s> {
    shared: &'s Shared,
    send: &'s mpsc::Sender<Piece>,
    piece: Vec<u8>,
    /// Whether an item other than a manifest has been appended, or a piece has been sent. After
    /// that, a problem can no longer become an HTTP error.
    begun: bool,
}

impl<'s> Outgoing<'s> {
    pub(crate) const fn new(shared: &'s Shared, send: &'s mpsc::Sender<Piece>) -> Self {
        Self { shared, send, piece: Vec::new(), begun: false }
    }

    /// Appends an item to the current piece.
    pub(crate) fn item(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Gone> {
        self.begun = true;
        self.preamble(write)
    }

    /// Appends an item that precedes all parts, such as a manifest. As long as the response has
    /// only such items and no piece has been sent, a problem can still become an HTTP error.
    pub(crate) fn preamble(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Gone> {
        write(&mut self.piece);
        if self.piece.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Ends a response that cannot continue. Reports the problem as an HTTP error if this is still
    /// possible, otherwise as a problem item.
    pub(crate) fn stop(mut self, problem: &Problem) {
        if !self.begun {
            let _ = self.send.blocking_send(Err(problem.clone()));
            return;
        }
        write::problem(&mut self.piece, problem.name(), &problem.detail);
        let _ = self.flush();
    }

    fn send(&mut self, piece: Bytes) -> Result<(), Gone> {
        self.shared.metrics.response_bytes.increment(piece.len() as u64);
        self.begun = true;
        self.send.blocking_send(Ok(piece)).map_err(|_| Gone)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Gone> {
        let piece = std::mem::take(&mut self.piece);
        self.send(piece.into())
    }

    /// Sends a part. `memory` counts the events of a long part until their last piece has been sent.
    pub(crate) fn part(&mut self, part: PartOutput, memory: Option<Held>) -> Result<(), Gone> {
        if part.events.len() > PIECE {
            self.long_part(part, memory)
        } else {
            self.item(|piece| part.write(piece))
        }
    }

    /// Sends a part without copying its events. `memory` counts the events until their last piece
    /// has been sent.
    fn long_part(&mut self, mut part: PartOutput, memory: Option<Held>) -> Result<(), Gone> {
        part.write_head(&mut self.piece);
        self.flush()?;
        part.write_tail(&mut self.piece);
        let mut events = Bytes::from_owner(CountedBytes {
            bytes: std::mem::take(&mut part.events),
            _memory: memory,
        });
        while !events.is_empty() {
            let piece = events.split_to(events.len().min(PIECE));
            self.send(piece)?;
        }
        Ok(())
    }
}

/// Waits on this thread until there is memory for a part of `bytes` bytes. Returns `None` if the
/// part is short: short parts fit into the pieces, whose number is limited.
pub(crate) fn part_memory(
    shared: &Shared,
    peer: Peer,
    send: &mpsc::Sender<Piece>,
    bytes: u64,
) -> Result<Option<Held>, Gone> {
    if send.is_closed() {
        return Err(Gone);
    }
    if bytes <= PIECE as u64 {
        return Ok(None);
    }
    Handle::current().block_on(async {
        tokio::select! {
            // The pool exists as long as `shared`.
            held = shared.response_bytes.wait(peer, bytes) => held.map(Some).ok_or(Gone),
            () = send.closed() => Err(Gone),
        }
    })
}

/// Bytes whose memory counts against a peer until they are dropped.
struct CountedBytes<B> {
    bytes: B,
    _memory: Option<Held>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for CountedBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Counts the memory of a response that was built as a whole, until the client has received it.
/// Rejects the request if there is no memory for it.
pub(crate) fn counted(
    shared: &Shared,
    peer: Peer,
    mut response: Response<Body>,
) -> Result<Response<Body>, Refusal> {
    let length = response.body().size_hint().exact().unwrap_or(0);
    if length <= SMALL {
        return Ok(response);
    }
    // The body below does not know its length.
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    // A response may be longer than the whole memory, which must not exclude it for ever.
    let length = length.min(shared.limits.answer_bytes as u64);
    let memory = shared
        .response_bytes
        .take(peer, length)
        .ok_or_else(|| Refusal::busy("the memory for responses is full; try again shortly"))?;
    let mut memory = Some(memory);
    Ok(response.map(|body| {
        // The whole body is one frame.
        Body::new(body.map_frame(move |frame| {
            frame
                .map_data(|bytes| Bytes::from_owner(CountedBytes { bytes, _memory: memory.take() }))
        }))
    }))
}

/// Waits for the first piece and returns a response whose body consists of the pieces.
/// `roster_version` is the version of the roster that the response states.
pub(crate) async fn respond(
    mut pieces: mpsc::Receiver<Piece>,
    permit: Place,
    roster_version: u32,
) -> Result<Response<Body>, Refusal> {
    let first = match pieces.recv().await {
        Some(Ok(piece)) => piece,
        Some(Err(problem)) => return Err(problem.into()),
        None => {
            return Err(Refusal::new(
                ProblemType::STORE_FAILED,
                "the response failed unexpectedly; try again",
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
    response.headers_mut().insert(ROSTER_VERSION, HeaderValue::from(roster_version));
    Ok(response)
}

/// Returns the problem that reports an error of the store.
pub(crate) fn unreadable(error: ReadError) -> Refusal {
    Refusal::new(ProblemType::of_response(error.name()), error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;

    use moteseal_core::signature::{Algorithm, SecretKey};
    use moteseal_store::{Options, RedbStore};
    use moteseal_verify::Roster;
    use moteseal_verify::issue::FirstRoster;

    use super::*;
    use crate::access::Access;
    use crate::limits::Limits;

    fn shared(directory: &std::path::Path, limits: Limits) -> Shared {
        let key = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
        let first =
            FirstRoster { group: "g", epoch_ms: 1000, levels: 8, budget: None, devices: &[] };
        let roster = Roster::open(&first.issue(&key).unwrap(), &key.public()).unwrap();
        let store = RedbStore::open(&directory.join("s.redb"), Options::default()).unwrap();
        Shared::new(roster, Arc::new(store), Access::open(None, None).unwrap(), limits)
    }

    /// Finding B2 of the review. A part may be read without counted memory only if it is short.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_client_that_is_gone_is_not_a_short_part() {
        let directory = tempfile::tempdir().unwrap();
        let shared =
            shared(directory.path(), Limits { answer_bytes: 1 << 20, ..Limits::default() });
        let peer = Peer::from(IpAddr::from([127, 0, 0, 1]));
        let (send, receive) = mpsc::channel(AHEAD);
        let long = PIECE as u64 + 1;
        let wait = |bytes| tokio::task::block_in_place(|| part_memory(&shared, peer, &send, bytes));
        assert!(wait(PIECE as u64).is_ok_and(|memory| memory.is_none()), "a short part");
        let all = wait(1 << 20).ok().flatten();
        assert!(all.is_some(), "a long part");
        drop(receive);
        for bytes in [1, long] {
            assert!(wait(bytes).is_err(), "the client is gone");
        }
    }

    /// Finding B2 of the review. hyper keeps a response in its buffer until the client has read it,
    /// and drops the body earlier.
    #[tokio::test]
    async fn the_memory_of_a_whole_response_counts_until_its_bytes_are_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let shared = shared(directory.path(), Limits { answer_bytes: 50_000, ..Limits::default() });
        let peer = Peer::from(IpAddr::from([127, 0, 0, 1]));
        let made = |length: usize| Response::new(Body::from(vec![7; length]));
        let response = counted(&shared, peer, made(40_000)).unwrap();
        let refused = counted(&shared, peer, made(40_000)).unwrap_err();
        assert_eq!(refused.problem().status, 503);
        assert!(counted(&shared, peer, made(100)).is_ok(), "a short response does not count");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes, vec![7; 40_000]);
        assert!(counted(&shared, peer, made(40_000)).is_err(), "the bytes are still in memory");
        drop(bytes);
        let long = counted(&shared, peer, made(1_000_000)).unwrap();
        assert!(counted(&shared, peer, made(20_000)).is_err());
        drop(long);
        assert!(counted(&shared, peer, made(20_000)).is_ok());
    }
}
