//! The bounded queue of batches that were submitted and have no reply yet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use moteseal_store::{PutError, Receipt, Reply};

/// The maximum number of batches without a reply.
const BATCHES: usize = 4096;

/// What is in the queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    limit: usize,
    bytes: AtomicUsize,
    batches: Mutex<usize>,
    emptied: Condvar,
    closing: AtomicBool,
}

/// A place in the queue, and the reply of its batch. If it is dropped without a reply, the reply is
/// [`PutError::Closed`].
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    bytes: usize,
    reply: Option<Reply>,
}

impl Queue {
    /// Returns a queue for at most `limit` bytes. A single batch may be longer.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, ..Self::default() })
    }

    /// Adds a batch.
    pub(crate) fn enter(self: &Arc<Self>, bytes: usize, reply: Reply) -> Result<Ticket, PutError> {
        if self.closing.load(Ordering::SeqCst) {
            return Err(PutError::Closed);
        }
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let queued = self.bytes.load(Ordering::SeqCst);
        if *batches >= BATCHES || (*batches > 0 && queued.saturating_add(bytes) > self.limit) {
            return Err(PutError::Busy);
        }
        *batches += 1;
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
        Ok(Ticket { queue: Arc::clone(self), bytes, reply: Some(reply) })
    }

    /// Rejects further batches, and waits until the queue is empty, but not longer than `limit`.
    pub(crate) fn close(&self, limit: Duration) {
        self.closing.store(true, Ordering::SeqCst);
        let until = Instant::now() + limit;
        let mut batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        while *batches > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            batches =
                self.emptied.wait_timeout(batches, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Ticket {
    /// Leaves the queue and sends the reply.
    pub(crate) fn answer(mut self, result: Result<Receipt, PutError>) {
        if let Some(reply) = self.reply.take() {
            reply(result);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            reply(Err(PutError::Closed));
        }
        let mut batches = self.queue.batches.lock().unwrap_or_else(PoisonError::into_inner);
        *batches -= 1;
        self.queue.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        drop(batches);
        self.queue.emptied.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_full_queue_is_busy_and_every_batch_gets_one_reply() {
        let (send, receive) = mpsc::channel();
        let reply = || {
            let send = send.clone();
            let reply: Reply = Box::new(move |result| {
                let _ = send.send(result);
            });
            reply
        };
        let queue = Queue::new(100);
        let long = queue.enter(1_000, reply());
        assert!(long.is_ok(), "a single batch may be longer than the limit");
        assert!(matches!(queue.enter(1, reply()), Err(PutError::Busy)));
        drop(long);
        assert_eq!(receive.try_recv(), Ok(Err(PutError::Closed)));
        let (one, two) = (queue.enter(50, reply()), queue.enter(50, reply()));
        assert!(matches!(queue.enter(1, reply()), Err(PutError::Busy)));
        for ticket in [one, two].into_iter().flatten() {
            ticket.answer(Ok(Receipt::default()));
            assert_eq!(receive.try_recv(), Ok(Ok(Receipt::default())));
        }
        queue.close(Duration::from_secs(60));
        assert!(matches!(queue.enter(1, reply()), Err(PutError::Closed)));
        assert!(receive.try_recv().is_err());
    }
}
