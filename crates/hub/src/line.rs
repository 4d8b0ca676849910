//! Messages of sensors on their way into a device's journal.
//!
//! Every source of readings (a topic, a datagram, a program's output) sends its messages through a
//! bounded channel of [`Line`]s. The receiver makes a reading of each message and tells the source
//! through [`Done`] when the reading is durable, or why it refused the message.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// The maximum length of a message, in bytes. Sources discard longer messages before they put them
/// into the channel.
pub const MAX_LINE: usize = 1 << 16;
/// The maximum number of messages of one source that wait to be recorded.
pub const MAX_WAITING: usize = 64;

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reading is in the device's journal, and the journal is synced.
    Durable,
    /// The message is not for this device: its filter does not match.
    NotMatched,
    /// The message is no reading of this device. The text says which value is wrong and why.
    Refused(String),
}

/// Receives the outcome of a message, once. If it is dropped without an outcome, the message is not
/// recorded: the source must not acknowledge it.
#[derive(Debug, Default)]
pub struct Done(Option<oneshot::Sender<Outcome>>);

impl Done {
    /// Returns the two ends: one for the receiver of the message, one for its source.
    #[must_use]
    pub fn new() -> (Self, oneshot::Receiver<Outcome>) {
        let (send, outcome) = oneshot::channel();
        (Self(Some(send)), outcome)
    }

    /// Returns an end for sources that need no acknowledgement.
    #[must_use]
    pub const fn ignored() -> Self {
        Self(None)
    }

    /// Tells the source the outcome.
    pub fn tell(self, outcome: Outcome) {
        if let Some(send) = self.0 {
            // The source may have stopped waiting.
            let _ = send.send(outcome);
        }
    }
}

/// A message of a sensor.
#[derive(Debug)]
pub struct Line {
    /// The message: JSON, at most [`MAX_LINE`] bytes.
    pub text: Bytes,
    /// Where to tell the outcome.
    pub done: Done,
}

/// The end of a source's channel into which the source puts its messages.
pub type Lines = mpsc::Sender<Line>;
