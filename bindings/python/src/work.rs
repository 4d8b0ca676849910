//! Work outside Python's lock: a thread does it while Python's other threads go on, and Ctrl-C stops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use moteseal_client::output::OutputError;
use moteseal_client::{Rows, Sink};
use pyo3::prelude::*;
use tokio::sync::Notify;

use crate::failure::Problem;

/// How often the waiting thread looks for signals.
const TICK: Duration = Duration::from_millis(50);
/// How long stopped work may take to put its things away before it is left to itself.
const FAREWELL: Duration = Duration::from_secs(1);

/// Tells work that nobody waits for it any more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_stopped: AtomicBool,
    notify: Notify,
}

impl Stop {
    /// Stops the work.
    pub(crate) fn stop(&self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
        self.0.notify.notify_one();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.is_stopped.load(Ordering::Relaxed)
    }

    /// Waits until the work is stopped.
    pub(crate) async fn stopped(&self) {
        self.0.notify.notified().await;
    }
}

/// A sink that ends its session when the work is stopped.
pub(crate) struct Stoppable<'a, S> {
    pub(crate) sink: &'a mut S,
    pub(crate) stop: &'a Stop,
}

impl<S: Sink> Sink for Stoppable<'_, S> {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        if self.stop.is_stopped() {
            return Err(OutputError::interrupted());
        }
        self.sink.rows(rows)
    }
}

/// Does `work` on a thread of its own, without Python's lock. A signal that Python turns into an exception, as Ctrl-C is, stops it.
///
/// # Errors
/// What `work` fails with, or the signal's exception.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> Result<T, Problem> + Send + 'static,
) -> PyResult<T> {
    let stop = Stop::default();
    let theirs = stop.clone();
    let (done, mut doing) = sync_channel(1);
    let spawned = thread::Builder::new().name("moteseal".to_owned()).spawn(move || {
        // Nobody waits any more where this fails.
        let _ = done.send(work(&theirs));
    });
    spawned.map_err(|error| {
        Problem::system(format_args!("cannot start a thread: {error}")).raise(py)
    })?;
    loop {
        let (waited, found) = wait(py, doing, TICK);
        doing = waited;
        match found {
            Ok(result) => return result.map_err(|problem| problem.raise(py)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(signal) = py.check_signals() {
                    stop.stop();
                    let _ = wait(py, doing, FAREWELL);
                    return Err(signal);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(
                    Problem::system("an internal error ended the work; please report it").raise(py)
                );
            }
        }
    }
}

type Doing<T> = Receiver<Result<T, Problem>>;

/// Waits without Python's lock.
fn wait<T: Send>(
    py: Python<'_>,
    doing: Doing<T>,
    time: Duration,
) -> (Doing<T>, Result<Result<T, Problem>, RecvTimeoutError>) {
    py.detach(move || {
        let found = doing.recv_timeout(time);
        (doing, found)
    })
}
