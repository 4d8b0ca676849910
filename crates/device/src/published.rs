//! What a running device publishes for clients that read it directly: its newest reading, its newest
//! urgent events, and its newest epoch that has ended. Only the newest value of each kind is kept.

use std::sync::Arc;

use tokio::sync::watch;

use crate::durable::SignedEvent;
use crate::mote::EndedEpoch;
use crate::sensors::Sensed;

/// Publishes values. Everything that is published is durable.
#[derive(Debug)]
pub struct Publisher {
    reading: watch::Sender<Option<Arc<Sensed>>>,
    events: watch::Sender<Arc<[SignedEvent]>>,
    ended: watch::Sender<Option<Arc<EndedEpoch>>>,
}

/// Receives the values of a [`Publisher`].
#[derive(Clone, Debug)]
pub struct Published {
    pub(crate) reading: watch::Receiver<Option<Arc<Sensed>>>,
    pub(crate) events: watch::Receiver<Arc<[SignedEvent]>>,
    pub(crate) ended: watch::Receiver<Option<Arc<EndedEpoch>>>,
}

/// Returns both ends of the channels.
#[must_use]
pub fn channels() -> (Publisher, Published) {
    let (reading, of_reading) = watch::channel(None);
    let (events, of_events) = watch::channel(Arc::default());
    let (ended, of_ended) = watch::channel(None);
    let published = Published { reading: of_reading, events: of_events, ended: of_ended };
    (Publisher { reading, events, ended }, published)
}

impl Publisher {
    /// Publishes the newest reading.
    pub fn reading(&self, sensed: Sensed) {
        self.reading.send_replace(Some(Arc::new(sensed)));
    }

    /// Publishes the newest urgent events, oldest first.
    pub fn events(&self, events: Vec<SignedEvent>) {
        self.events.send_replace(events.into());
    }

    /// Publishes the newest epoch that has ended; `None` if its seals were given up.
    pub fn ended(&self, ended: Option<Arc<EndedEpoch>>) {
        self.ended.send_replace(ended);
    }
}
