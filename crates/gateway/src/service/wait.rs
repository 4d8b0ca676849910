//! Waits for a future on a thread of its own. A timer of the runtime would wake one of the runtime's
//! threads each time it is set.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns the output of a future, or `None` if it is not ready within a time. The future is dropped then.
pub(super) fn ready_within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let start = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = limit.checked_sub(start.elapsed())?;
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn a_future_is_awaited_until_the_limit() {
        assert_eq!(ready_within(Duration::ZERO, std::future::ready(1)), Some(1));
        let start = Instant::now();
        let limit = Duration::from_millis(20);
        assert_eq!(ready_within(limit, std::future::pending::<()>()), None);
        assert!(start.elapsed() >= limit);
        let (sender, receiver) = oneshot::channel();
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            sender.send(2)
        });
        assert_eq!(ready_within(Duration::from_secs(60), receiver), Some(Ok(2)));
        assert_eq!(other.join().ok(), Some(Ok(())));
    }
}
