//! Messages of sensors on their way into a device's journal.
//!
//! A source of readings (a topic, a datagram, a program's output) passes each message on together
//! with a [`Done`]. The receiver makes a reading of the message and tells the source through it when
//! the reading is durable, or why it refused the message. An agent's supervisor passes its messages
//! on through a bounded channel of [`Line`]s.

use std::fmt;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

/// The maximum length of a message, in bytes. Sources discard longer messages before they pass them
/// on.
pub const MAX_LINE: usize = 1 << 16;
/// The maximum number of messages of one source that wait to be recorded.
pub const MAX_WAITING: usize = 64;

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reading is in the device's journal, and the journal is synced.
    Durable,
    /// The message is no reading: the filter of the source does not match, or no column has a
    /// value.
    Ignored,
    /// The message is no reading of this device. The text says which value is wrong and why.
    Refused(String),
    /// The device cannot continue. It may continue under a later version of the roster, or after the
    /// hub was started again.
    Stopped,
}

/// Receives the outcome of a message, once. If it is dropped without an outcome, the message is not
/// recorded: the source must not acknowledge it.
#[derive(Default)]
pub struct Done(Option<Box<dyn FnOnce(Outcome) + Send>>);

impl Done {
    /// Returns the two ends: one for the receiver of the message, one for its source.
    #[must_use]
    pub fn new() -> (Self, oneshot::Receiver<Outcome>) {
        let (send, outcome) = oneshot::channel();
        // The source may have stopped waiting.
        (Self::calling(move |outcome| _ = send.send(outcome)), outcome)
    }

    /// Returns an end that calls a function with the outcome. The function must not block.
    #[must_use]
    pub fn calling(call: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self(Some(Box::new(call)))
    }

    /// Returns an end for sources that need no acknowledgement.
    #[must_use]
    pub const fn ignored() -> Self {
        Self(None)
    }

    /// Tells the source the outcome.
    pub fn tell(self, outcome: Outcome) {
        if let Some(call) = self.0 {
            call(outcome);
        }
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done")
    }
}

/// A message of an agent.
#[derive(Debug)]
pub struct Line {
    /// The message: JSON, at most [`MAX_LINE`] bytes.
    pub text: Bytes,
    /// Where to tell the outcome.
    pub done: Done,
}

/// The end of a channel into which an agent's supervisor puts the agent's messages.
pub type Lines = mpsc::Sender<Line>;
