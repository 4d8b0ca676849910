//! Messages of a broker.
//!
//! A message with QoS 1 is acknowledged to the broker after all sources that it belongs to have
//! recorded or refused it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use moteseal_net::mqtt::{Message, Received, Subscriber, matches};

use crate::intake::Intake;
use crate::line::Done;

/// The sources of messages, by topic.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    /// Sources whose filter is a topic.
    exact: HashMap<String, Vec<Arc<Intake>>>,
    /// Sources whose filter has wildcards.
    wild: Vec<(String, Arc<Intake>)>,
}

impl Routes {
    pub(crate) fn add(&mut self, filter: &str, intake: &Arc<Intake>) {
        if filter.contains(['+', '#']) {
            self.wild.push((filter.to_owned(), Arc::clone(intake)));
        } else {
            self.exact.entry(filter.to_owned()).or_default().push(Arc::clone(intake));
        }
    }

    /// Returns the filters to subscribe to, each once.
    pub(crate) fn filters(&self) -> Vec<String> {
        let mut filters: Vec<String> =
            self.exact.keys().chain(self.wild.iter().map(|(filter, _)| filter)).cloned().collect();
        filters.sort_unstable();
        filters.dedup();
        filters
    }

    /// Returns the sources of a topic, each once.
    fn of(&self, topic: &str) -> Vec<Arc<Intake>> {
        let mut found: Vec<Arc<Intake>> = self.exact.get(topic).cloned().unwrap_or_default();
        for (filter, intake) in &self.wild {
            if matches(filter, topic) && !found.iter().any(|other| Arc::ptr_eq(other, intake)) {
                found.push(Arc::clone(intake));
            }
        }
        found
    }

    /// Passes the messages of a broker to their sources until `stop` completes. `recorded` then
    /// completes when the readings that have arrived are durable.
    pub(crate) async fn run(
        &self,
        mut subscriber: Subscriber,
        stop: impl Future<Output = ()>,
        recorded: impl Future<Output = ()>,
    ) {
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                message = subscriber.next() => match message {
                    Some(message) => self.pass(message).await,
                    None => return,
                },
            }
        }
        recorded.await;
        subscriber.finish().await;
    }

    /// Passes a message to its sources. Waits for a source that is behind if the broker repeats the
    /// message: all later messages must wait for its acknowledgement anyway.
    async fn pass(&self, message: Message) {
        let Message { topic, payload, is_retained, received } = message;
        let sources = self.of(&topic);
        // A session that the broker kept may still have subscriptions of an earlier configuration.
        if sources.is_empty() {
            return received.acknowledge();
        }
        let is_lost = !received.is_repeated();
        let all = Arc::new(AllOf(Mutex::new((sources.len(), Some(received)))));
        for source in sources {
            let all = Arc::clone(&all);
            let done = Done::calling(move |_| all.one_is_done());
            let done = if is_retained { source.retained(done) } else { Some(done) };
            match done {
                Some(done) if is_lost => source.offer(Some(&topic), &payload, done),
                Some(done) => source.take(Some(&topic), &payload, done).await,
                None => {}
            }
        }
    }
}

/// Acknowledges a message when all its sources are done. If one of them drops its end, the message
/// is not acknowledged.
struct AllOf(Mutex<(usize, Option<Received>)>);

impl AllOf {
    fn one_is_done(&self) {
        let (left, received) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *left -= 1;
        if *left == 0 {
            received.take().into_iter().for_each(Received::acknowledge);
        }
    }
}
