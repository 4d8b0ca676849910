//! Messages of a broker.
//!
//! Each source is a client of its own at the broker: messages of a source whose device cannot record
//! them wait at the broker without delaying those of other sources. A message with QoS 1 is
//! acknowledged after its source has recorded or refused it. Messages that a device did not record
//! before it ended are passed to it again when it has started again.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use moteseal_device::runner::system_clock;
use moteseal_net::mqtt::{Message, Subscriber, matches};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::{MissedTickBehavior, interval};

use crate::intake::{Arrived, Intake, Place};
use crate::line::{Done, Outcome};

/// The memory for the messages of a source that wait, in bytes: a few of the longest ones.
pub(crate) const ROOM: u32 = 256 << 10;
/// The maximum number of messages of a source that are not recorded. At the limit, further messages
/// wait in the subscriber and at the broker.
const MOST: usize = 64;
/// The interval at which lost messages are counted.
const COUNT: Duration = Duration::from_secs(5);

/// A message of a source.
struct Waiting {
    message: Message,
    /// When it arrived, in milliseconds since 1970.
    at_ms: u64,
    state: State,
}

enum State {
    /// It must be passed to the device.
    New,
    /// It was passed to the device.
    Passed(oneshot::Receiver<Outcome>),
    /// It is recorded or refused.
    Done,
}

/// The messages of one source that are not recorded, oldest first.
struct Messages {
    intake: Arc<Intake>,
    /// The topics of the source.
    filters: Vec<String>,
    waiting: VecDeque<Waiting>,
}

/// Passes the messages of a subscriber to its source until `stop` completes. `recorded` then completes
/// when the readings that have arrived are durable.
pub(crate) async fn run(
    mut subscriber: Subscriber,
    filters: Vec<String>,
    intake: Arc<Intake>,
    stop: impl Future<Output = ()>,
    recorded: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    let mut messages = Messages { intake: Arc::clone(&intake), filters, waiting: VecDeque::new() };
    let (mut count, mut dropped) = (interval(COUNT), 0);
    count.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        messages.acknowledge();
        let has_new = messages.new_one().is_some();
        let has_room = messages.waiting.len() < MOST;
        tokio::select! {
            () = &mut stop => break,
            () = messages.change() => {}
            place = intake.place(), if has_new => messages.pass(place),
            message = subscriber.next(), if has_room => match message {
                Some(message) => messages.take(message),
                None => return,
            },
            _ = count.tick() => {
                let newest = subscriber.dropped();
                intake.lost(newest - dropped);
                dropped = newest;
            }
        }
    }
    recorded.await;
    messages.acknowledge();
    // The broker keeps the other messages.
    drop(messages);
    subscriber.finish().await;
}

impl Messages {
    fn take(&mut self, message: Message) {
        // A session that the broker kept may still have subscriptions of an earlier configuration.
        if !self.filters.iter().any(|filter| matches(filter, &message.topic)) {
            return message.received.acknowledge();
        }
        let (done, outcome) = Done::new();
        let state = if message.is_too_long {
            self.intake.too_long(done);
            State::Passed(outcome)
        } else if message.is_retained && self.intake.retained(done).is_none() {
            State::Passed(outcome)
        } else {
            State::New
        };
        self.waiting.push_back(Waiting { message, at_ms: system_clock(), state });
    }

    /// Returns the oldest message that must be passed to the device.
    fn new_one(&mut self) -> Option<&mut Waiting> {
        self.waiting.iter_mut().find(|waiting| matches!(waiting.state, State::New))
    }

    fn pass(&mut self, place: Place) {
        let intake = Arc::clone(&self.intake);
        let Some(Waiting { message, at_ms, state }) = self.new_one() else { return };
        let (done, outcome) = Done::new();
        let (topic, payload) = (Some(&*message.topic), &*message.payload);
        intake.pass(place, Arrived { topic, payload, at_ms: *at_ms }, done);
        *state = State::Passed(outcome);
    }

    /// Waits until the outcome of a message that was passed is known, or the device has ended without
    /// recording it. The future may be dropped.
    async fn change(&mut self) {
        poll_fn(|context| {
            let mut is_changed = false;
            for Waiting { state, .. } in &mut self.waiting {
                if let State::Passed(outcome) = state
                    && let Poll::Ready(outcome) = Pin::new(outcome).poll(context)
                {
                    *state = if outcome.is_ok() { State::Done } else { State::New };
                    is_changed = true;
                }
            }
            if is_changed { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Acknowledges the messages whose outcome is known, in any order: the subscriber sends the
    /// acknowledgements in the order of the messages. Messages that a device has dropped are new
    /// again, all of them before one is passed to the device, so that they keep their order.
    fn acknowledge(&mut self) {
        for Waiting { state, .. } in &mut self.waiting {
            if let State::Passed(outcome) = state {
                match outcome.try_recv() {
                    Ok(_) => *state = State::Done,
                    Err(TryRecvError::Closed) => *state = State::New,
                    Err(TryRecvError::Empty) => {}
                }
            }
        }
        let is_done = |waiting: &mut Waiting| matches!(waiting.state, State::Done);
        while let Some(place) = self.waiting.iter_mut().position(is_done) {
            if let Some(waiting) = self.waiting.remove(place) {
                waiting.message.received.acknowledge();
            }
        }
    }
}

#[cfg(test)]
mod tests;
