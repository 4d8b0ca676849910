//! Dead letters: the messages that no worker can store.

use std::time::{Duration, SystemTime};

use async_nats::HeaderMap;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::RawMessageErrorKind;
use moteseal_core::digest::Digest;
use serde_json::json;

use crate::connection::Stream;
use crate::error::StreamError;
use crate::layout::{Described, Layout};
use crate::message::{DIGEST, ERROR, HEADER_BYTES, LENGTH, PIECES, POSITION};

/// The beginning of the names of the headers that are copied to a dead letter and back, also of those that
/// only later versions know.
const OURS: &str = "Moteseal-";
/// The most headers that are copied.
const MOST_HEADERS: usize = 5;
/// The longest header that is copied, with its name.
const MOST_HEADER: usize = 128;

/// A message that no worker can store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its number in the stream of dead letters.
    pub number: u64,
    /// The name of the error because of which it cannot be stored: `NotAMessage`, `Altered`,
    /// `NotABatch`, `PieceMissing` or `TooLong`; or `StoreFailed` if the store rejected it for long, while it
    /// stored others.
    pub error: String,
    /// The position that it had in the stream of batches.
    pub position: u64,
    /// When a worker put it here.
    pub at: SystemTime,
    /// The bytes of its payload.
    pub bytes: u64,
}

/// The dead letters of a stream.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    stream: Stream,
}

impl DeadLetters {
    /// Returns the dead letters of a stream. Waits up to 20 s for servers that do not answer, for example while they
    /// choose a leader.
    ///
    /// # Errors
    /// [`StreamError`] if the stream of dead letters is missing or has another configuration.
    pub async fn open(stream: Stream) -> Result<Self, StreamError> {
        let [.., dead] = Described::all(stream.names(), &Layout::default());
        let info = stream.patiently(|| stream.info(&dead.name)).await?;
        dead.check(&info, stream.settings().replicas)?;
        Ok(Self { stream })
    }

    /// Returns the number of dead letters.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn count(&self) -> Result<u64, StreamError> {
        Ok(self.stream.extent(&self.stream.names().dead).await?.messages)
    }

    /// Returns at most `limit` dead letters whose number is greater than `after`, in the order of their
    /// numbers.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn list(&self, after: u64, limit: usize) -> Result<Vec<DeadLetter>, StreamError> {
        let (mut letters, mut after) = (Vec::new(), after);
        while letters.len() < limit
            && let Some(message) = self.next(after).await?
        {
            after = message.sequence;
            letters.push(letter(&message));
        }
        Ok(letters)
    }

    /// Publishes the dead letters with these numbers to the stream of batches again, or all of them, and
    /// removes them here. Returns how many there were. A letter that still cannot be stored becomes a new
    /// dead letter.
    ///
    /// # Errors
    /// [`StreamError`]; the letters that were not replayed are kept.
    pub async fn replay(&self, numbers: Option<&[u64]>) -> Result<u64, StreamError> {
        let names = self.stream.names();
        // Letters that are added while this runs are not replayed.
        let last = self.stream.extent(&names.dead).await?.last;
        let (mut after, mut replayed) = (0, 0);
        while let Some(message) = self.next(after).await?
            && message.sequence <= last
        {
            after = message.sequence;
            if numbers.is_some_and(|numbers| !numbers.contains(&after)) {
                continue;
            }
            // Without an id, because the stream may still know the id of the original message.
            let again = PublishMessage::build()
                .payload(message.payload.clone())
                .headers(copied(&message.headers));
            self.publish(&names.batch_subject, again).await?;
            self.delete(after).await?;
            replayed += 1;
        }
        Ok(replayed)
    }

    /// Removes the dead letters with these numbers for good. Returns how many there were.
    ///
    /// # Errors
    /// [`StreamError`]; the letters that were not removed are kept.
    pub async fn discard(&self, numbers: &[u64]) -> Result<u64, StreamError> {
        let mut discarded = 0;
        for number in numbers {
            let letter = self.next(number.saturating_sub(1)).await?;
            if letter.is_some_and(|letter| letter.sequence == *number) {
                self.delete(*number).await?;
                discarded += 1;
            }
        }
        Ok(discarded)
    }

    /// Returns those of these numbers that no dead letter has.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn missing(&self, numbers: &[u64]) -> Result<Vec<u64>, StreamError> {
        let mut missing = Vec::new();
        for number in numbers {
            let letter = self.next(number.saturating_sub(1)).await?;
            if letter.is_none_or(|letter| letter.sequence != *number) {
                missing.push(*number);
            }
        }
        Ok(missing)
    }

    async fn delete(&self, number: u64) -> Result<(), StreamError> {
        let delete = format!("STREAM.MSG.DELETE.{}", self.stream.names().dead);
        self.stream.api(&delete, &json!({ "seq": number, "no_erase": true })).await?;
        Ok(())
    }

    /// Publishes a message and waits for its acknowledgement.
    async fn publish(&self, subject: &str, message: PublishMessage) -> Result<(), StreamError> {
        publish(&self.stream, subject, message).await
    }

    /// Returns the dead letter with the lowest number greater than `after`.
    async fn next(&self, after: u64) -> Result<Option<StreamMessage>, StreamError> {
        let names = self.stream.names();
        let failed = |what: String| StreamError::StreamFailed { what };
        let stream = self.stream.context().get_stream_no_info(&names.dead).await;
        let stream = stream.map_err(|error| failed(error.to_string()))?;
        let get =
            stream.raw_message_builder().sequence(after + 1).next_by_subject(&names.dead_subject);
        match self.stream.refused_or(get.send()).await? {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

impl Stream {
    /// Writes a message to the dead letters, and returns once it is stored there.
    pub(crate) async fn bury(
        &self,
        message: &async_nats::Message,
        position: u64,
        error: &str,
    ) -> Result<(), StreamError> {
        let mut headers = message.headers.as_ref().map(copied).unwrap_or_default();
        headers.insert(ERROR, error);
        headers.insert(POSITION, position.to_string().as_str());
        // The headers of a dead letter may be longer than those of the message.
        let most = self.client().server_info().max_payload.saturating_sub(HEADER_BYTES);
        // Garbage is cut off. What a later version may be able to store is not.
        let is_whole = |text: &str| *text == Digest::of(&[&message.payload]).to_string();
        if message.payload.len() > most
            && headers.get(DIGEST).is_some_and(|digest| is_whole(digest.as_str()))
        {
            let what = format!(
                "a dead letter of {} bytes is longer than max_payload now permits; raise max_payload",
                message.payload.len()
            );
            return Err(StreamError::StreamFailed { what });
        }
        let payload = message.payload.slice(..message.payload.len().min(most));
        // Positions begin anew if the stream is created again.
        let content = Digest::of(&[&payload]).to_string();
        let letter = PublishMessage::build()
            .payload(payload)
            .headers(headers)
            .message_id(format!("dead {position} {content}"));
        publish(self, &self.names().dead_subject, letter).await
    }
}

async fn publish(
    stream: &Stream,
    subject: &str,
    message: PublishMessage,
) -> Result<(), StreamError> {
    let sent = async { stream.context().send_publish(subject.to_owned(), message).await?.await };
    let sent = stream.refused_or(sent).await?;
    sent.map(|_| ()).map_err(|error| StreamError::StreamFailed {
        what: format!("{subject}: {error}{}", because(&error)),
    })
}

fn because(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(String::new, |source| format!(" ({source})"))
}

/// Returns the headers that state what a message contains.
fn copied(headers: &HeaderMap) -> HeaderMap {
    let mut copy = HeaderMap::new();
    let mut add = |name: &str| {
        if let Some(value) = headers.get(name)
            && name.len() + value.as_str().len() <= MOST_HEADER
            && copy.len() < MOST_HEADERS
        {
            copy.insert(name, value.clone());
        }
    };
    let known = [DIGEST, PIECES, LENGTH];
    known.into_iter().for_each(&mut add);
    let of_a_letter = [ERROR, POSITION];
    let others = headers.iter().map(|(name, _)| -> &str { name.as_ref() }).filter(|name| {
        name.starts_with(OURS) && !known.contains(name) && !of_a_letter.contains(name)
    });
    others.for_each(add);
    copy
}

fn letter(message: &StreamMessage) -> DeadLetter {
    let header = |name| message.headers.get(name).map(async_nats::HeaderValue::as_str);
    let seconds = u64::try_from(message.time.unix_timestamp()).unwrap_or(0);
    DeadLetter {
        number: message.sequence,
        error: header(ERROR).unwrap_or("Unknown").to_owned(),
        position: header(POSITION).and_then(|text| text.parse().ok()).unwrap_or(0),
        at: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
        bytes: message.payload.len() as u64,
    }
}
