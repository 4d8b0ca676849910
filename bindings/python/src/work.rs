//! Runs work on a thread without Python's lock, so that other Python threads continue. Ctrl-C stops
//! the work.

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

/// The waiting thread checks for signals at this interval.
const TICK: Duration = Duration::from_millis(50);
/// How long a stopped call waits for its work to end. Work that takes longer ends in the
/// background.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A flag that tells work on another thread to stop.
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

/// A sink that ends its transfer when the work is stopped.
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

/// Runs `work` on a new thread, without Python's lock. A signal that Python turns into an
/// exception, such as Ctrl-C, stops the work.
///
/// # Errors
/// The error of `work`, or the exception of the signal.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(&Stop) -> Result<T, Problem> + Send + 'static,
) -> PyResult<T> {
    let stop = Stop::default();
    let stop_of_work = stop.clone();
    let (done, mut receiver) = sync_channel(1);
    let spawned = thread::Builder::new().name("moteseal".to_owned()).spawn(move || {
        // Sending fails if the caller no longer waits.
        let _ = done.send(work(&stop_of_work));
    });
    spawned.map_err(|error| {
        Problem::system(format_args!("cannot start a thread: {error}")).raise(py)
    })?;
    loop {
        let (waited, found) = wait(py, receiver, TICK);
        receiver = waited;
        match found {
            Ok(result) => return result.map_err(|problem| problem.raise(py)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(signal) = py.check_signals() {
                    stop.stop();
                    let _ = wait(py, receiver, STOP_TIMEOUT);
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

type ResultReceiver<T> = Receiver<Result<T, Problem>>;

/// Waits for the result without Python's lock.
fn wait<T: Send>(
    py: Python<'_>,
    receiver: ResultReceiver<T>,
    time: Duration,
) -> (ResultReceiver<T>, Result<Result<T, Problem>, RecvTimeoutError>) {
    py.detach(move || {
        let found = receiver.recv_timeout(time);
        (receiver, found)
    })
}
