//! The pieces of batches that do not fit into one message: reading, and removing those that no message
//! refers to.
//!
//! An intake that dies between the pieces and their message leaves pieces that nobody needs. A worker may
//! remove a piece only if it is certain that no message refers to it. It therefore notes the last piece
//! at some time `T0`. An intake acknowledges a batch only if it published the message within
//! [`COMMIT_AGE`] of the first piece, on clocks that advance while its machine is suspended. So every
//! message whose acknowledged batch has one of these pieces is in the stream at `T1 = T0 + ORPHAN_AGE`, a
//! multiple of that. Once the workers have stored everything up to the last message at `T1`, the pieces
//! that remain are of no batch.
//!
//! Dead letters may refer to pieces, too, and a replay publishes them after `T1`. So there must be none
//! before the last message at `T1` is noted, and none may have been written since when pieces are removed.

use std::time::Duration;

use async_nats::jetstream::stream::{DirectGetErrorKind, RawMessageErrorKind};
use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::connection::Stream;
use crate::error::StreamError;
use crate::message::{Pieces, Unstorable};

/// The longest time between the first piece and the message that an intake acknowledges.
pub(crate) const COMMIT_AGE: Duration = Duration::from_mins(5);
/// How long a worker waits before it removes pieces that no message refers to.
pub(crate) const ORPHAN_AGE: Duration = Duration::from_mins(15);

/// Why pieces were not read.
pub(crate) enum NoPieces {
    /// They can never be read.
    Never(Unstorable),
    /// The servers did not answer; try again later.
    Now(StreamError),
}

impl Stream {
    /// Reads all pieces of a batch.
    pub(crate) async fn read_pieces(&self, of: &Pieces, most: u64) -> Result<Vec<u8>, NoPieces> {
        if of.length > most {
            return Err(NoPieces::Never(Unstorable::TooLong));
        }
        // The length is checked below, so a wrong one does not reserve much memory.
        let mut batch = Vec::with_capacity(usize::try_from(of.length.min(1 << 26)).unwrap_or(0));
        for number in 0..of.count {
            let subject = format!("{}.{}.{number}", self.names().piece_subject, of.id);
            let piece = self.read_piece(subject).await.map_err(NoPieces::Now)?;
            let piece = piece.ok_or(NoPieces::Never(Unstorable::PieceMissing))?;
            if (batch.len() + piece.len()) as u64 > of.length {
                return Err(NoPieces::Never(Unstorable::Altered));
            }
            batch.extend_from_slice(&piece);
        }
        Ok(batch)
    }

    /// Reads one piece. Returns `None` if it does not exist.
    async fn read_piece(&self, subject: String) -> Result<Option<Bytes>, StreamError> {
        let stream = self.context().get_stream_no_info(&self.names().pieces).await;
        let stream =
            stream.map_err(|error| StreamError::StreamFailed { what: error.to_string() })?;
        match stream.direct_get_last_for_subject(&subject).await {
            Ok(message) => return Ok(Some(message.payload)),
            Err(error) if error.kind() == DirectGetErrorKind::NotFound => {}
            Err(error) => return Err(StreamError::StreamFailed { what: error.to_string() }),
        }
        // The replica that answered may not have the newest messages yet. The leader has them.
        match stream.raw_message_builder().last_by_subject(&subject).send().await {
            Ok(message) => Ok(Some(message.payload)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(StreamError::StreamFailed { what: error.to_string() }),
        }
    }

    /// Returns whether the stream of batches still has the message at a position. It removes messages that
    /// are acknowledged.
    pub(crate) async fn has_message(&self, position: u64) -> Result<bool, StreamError> {
        // Usually this suffices. The list of removed messages can be long.
        if self.progress().await?.stored >= position {
            return Ok(false);
        }
        let info = format!("STREAM.INFO.{}", self.names().batches);
        let answer = self.api(&info, &json!({ "deleted_details": true })).await;
        let answer = answer.map_err(|failed| self.explained(failed))?;
        let state = &answer["state"];
        let mut deleted = state["deleted"].as_array().into_iter().flatten();
        let is_deleted = deleted.any(|deleted| deleted.as_u64() == Some(position));
        Ok(position >= state["first_seq"].as_u64().unwrap_or(0) && !is_deleted)
    }

    /// Removes the pieces of a batch that is stored.
    pub(crate) async fn remove_pieces(&self, of: &Pieces) -> Result<(), StreamError> {
        let purge = format!("STREAM.PURGE.{}", self.names().pieces);
        let filter = format!("{}.{}.*", self.names().piece_subject, of.id);
        self.api(&purge, &json!({ "filter": filter })).await?;
        Ok(())
    }

    /// Returns the number of messages of a stream and its last position.
    pub(crate) async fn extent(&self, stream: &str) -> Result<(u64, u64), StreamError> {
        let answer = self.api(&format!("STREAM.INFO.{stream}"), &serde_json::Value::Null).await;
        let answer = answer.map_err(|failed| self.explained(failed))?;
        let of = |name: &str| answer["state"][name].as_u64().unwrap_or(0);
        Ok((of("messages"), of("last_seq")))
    }
}

/// The removal of pieces that no message refers to.
#[derive(Debug)]
pub(crate) struct Sweep {
    age: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    Idle,
    /// The last piece at this time.
    Noted(u64, Instant),
    /// The last piece, the message up to which everything must be stored, and the last dead letter until then.
    Waiting(u64, u64, u64),
}

impl Sweep {
    pub(crate) const fn new(age: Duration) -> Self {
        Self { age, state: State::Idle }
    }

    /// Does the next step, if it is time. Call it often; a step costs a few requests.
    pub(crate) async fn step(&mut self, stream: &Stream) {
        if let Err(error) = self.try_step(stream).await {
            warn!(%error, "pieces without a batch could not be removed; trying again later");
        }
    }

    async fn try_step(&mut self, stream: &Stream) -> Result<(), StreamError> {
        let names = stream.names();
        match self.state {
            State::Idle => {
                let (count, last) = stream.extent(&names.pieces).await?;
                if count > 0 {
                    self.state = State::Noted(last, Instant::now());
                }
            }
            State::Noted(piece, at) if at.elapsed() >= self.age => {
                // A replay publishes a letter before it removes it. So the letters are counted before the
                // last message is noted, and are counted after it is known what is stored.
                let (letters, letter) = stream.extent(&names.dead).await?;
                if letters == 0 {
                    let (_, message) = stream.extent(&names.batches).await?;
                    self.state = State::Waiting(piece, message, letter);
                }
            }
            State::Noted(..) => {}
            State::Waiting(piece, message, letter) => {
                let is_stored = stream.progress().await?.stored >= message;
                if stream.extent(&names.dead).await? != (0, letter) {
                    self.state = State::Idle;
                    return Ok(());
                }
                if !is_stored {
                    return Ok(());
                }
                let purge = format!("STREAM.PURGE.{}", names.pieces);
                let purged = stream.api(&purge, &json!({ "seq": piece + 1 })).await?;
                if let Some(count @ 1..) = purged["purged"].as_u64() {
                    info!(count, "removed pieces of uploads that were never completed");
                }
                self.state = State::Idle;
            }
        }
        Ok(())
    }
}
