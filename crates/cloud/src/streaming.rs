//! Streams a response: a producer on a thread that may block sends pieces to the body of the
//! response.
//!
//! If the client receives more slowly than the store is read, the producer waits. A problem that
//! occurs before the first byte is sent becomes an HTTP error. A later problem becomes the last
//! item of the stream.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response};
use futures_util::stream;
use moteseal_api::{CBOR_SEQ, Problem, ProblemType};
use moteseal_service::{Held, Peer};
use moteseal_store::ReadError;
use moteseal_verify::write;
use tokio::sync::mpsc;

use crate::refusal::Refusal;
use crate::response::PartOutput;
use crate::state::Shared;

/// The approximate size of a piece, in bytes.
pub(crate) const PIECE: usize = 128 << 10;
/// The maximum number of pieces that wait for the client.
pub(crate) const AHEAD: usize = 2;
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

/// The error of sending a piece after the client has closed the connection.
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

    /// Sends a part without copying its events. `memory` counts the events until their last piece
    /// has been sent.
    pub(crate) fn long_part(
        &mut self,
        mut part: PartOutput,
        memory: Option<Held>,
    ) -> Result<(), Gone> {
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

/// Bytes whose memory counts against a peer until they are dropped.
struct CountedBytes {
    bytes: Vec<u8>,
    _memory: Option<Held>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Waits for the first piece and returns a response whose body consists of the pieces.
pub(crate) async fn respond(
    mut pieces: mpsc::Receiver<Piece>,
    permit: Place,
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
    Ok(response)
}

/// Returns the problem that reports an error of the store.
pub(crate) fn unreadable(error: ReadError) -> Refusal {
    Refusal::new(ProblemType::of_response(error.name()), error.to_string())
}
