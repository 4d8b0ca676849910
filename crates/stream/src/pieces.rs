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

    /// Returns the extent of a stream.
    pub(crate) async fn extent(&self, stream: &str) -> Result<Extent, StreamError> {
        let answer = self.api(&format!("STREAM.INFO.{stream}"), &serde_json::Value::Null).await;
        let answer = answer.map_err(|failed| self.explained(failed))?;
        let of = |name: &str| answer["state"][name].as_u64().unwrap_or(0);
        let created = answer["created"].as_str().unwrap_or_default().to_owned();
        Ok(Extent { created, messages: of("messages"), last: of("last_seq") })
    }
}

/// How far a stream reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// When the stream was created. Positions start at 1 again if it is created again.
    created: String,
    pub(crate) messages: u64,
    /// The last position.
    pub(crate) last: u64,
}

impl Extent {
    /// Returns whether positions of `before` are positions of this stream.
    fn continues(&self, before: &Self) -> bool {
        self.created == before.created && self.last >= before.last
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
    /// The pieces at this time.
    Noted(Extent, Instant),
    Waiting(Noted),
}

#[derive(Clone, Debug)]
struct Noted {
    pieces: Extent,
    /// The messages of which the last and all before it must be stored.
    batches: Extent,
    /// The dead letters until then: none are left.
    letters: Extent,
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
        match &self.state {
            State::Idle => {
                let pieces = stream.extent(&names.pieces).await?;
                if pieces.messages > 0 {
                    self.state = State::Noted(pieces, Instant::now());
                }
            }
            State::Noted(pieces, at) if at.elapsed() >= self.age => {
                // A replay publishes a letter before it removes it. So the letters are counted before the
                // last message is noted, and are counted after it is known what is stored.
                let letters = stream.extent(&names.dead).await?;
                if letters.messages == 0 {
                    let batches = stream.extent(&names.batches).await?;
                    let pieces = pieces.clone();
                    self.state = State::Waiting(Noted { pieces, batches, letters });
                }
            }
            State::Noted(..) => {}
            State::Waiting(noted) => {
                let noted = noted.clone();
                let is_stored = stream.progress().await?.stored >= noted.batches.last;
                if stream.extent(&names.dead).await? != noted.letters {
                    self.state = State::Idle;
                    return Ok(());
                }
                if !is_stored {
                    return Ok(());
                }
                // Positions of a stream that was deleted and created again say nothing about the new one.
                let is_same = stream.extent(&names.batches).await?.continues(&noted.batches)
                    && stream.extent(&names.pieces).await?.continues(&noted.pieces);
                if is_same {
                    let purge = format!("STREAM.PURGE.{}", names.pieces);
                    let purged =
                        stream.api(&purge, &json!({ "seq": noted.pieces.last + 1 })).await?;
                    if let Some(count @ 1..) = purged["purged"].as_u64() {
                        info!(count, "removed pieces of uploads that were never completed");
                    }
                }
                self.state = State::Idle;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_the_stream_that_was_not_created_again_or_restored() {
        let extent =
            |created: &str, messages, last| Extent { created: created.to_owned(), messages, last };
        let noted = extent("monday", 3, 40);
        assert!(extent("monday", 0, 40).continues(&noted), "its messages were removed");
        assert!(extent("monday", 5, 45).continues(&noted));
        assert!(!extent("tuesday", 60, 60).continues(&noted), "it was created again");
        assert!(!extent("monday", 3, 39).continues(&noted), "an older copy was restored");
    }
}
