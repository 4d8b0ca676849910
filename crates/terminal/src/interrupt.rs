//! Clean-up when a signal ends a command, so that no half-written file remains.
//!
//! On Ctrl-C (SIGINT) and SIGTERM, a command removes its temporary files before the process ends.
//! If a file would exceed the size limit (`ulimit -f`), SIGXFSZ does not end the process. Instead,
//! the write fails with EFBIG, and the command can report this error. A process ended by SIGKILL
//! leaves its temporary files; the next process that writes to the same path removes them.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

type Cleanup = Box<dyn FnOnce() + Send>;

static CLEANUPS: Mutex<Vec<Cleanup>> = Mutex::new(Vec::new());

/// Registers a clean-up function, which is called if SIGINT or SIGTERM ends this process.
pub fn on_stop(remove: impl FnOnce() + Send + 'static) {
    CLEANUPS.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(remove));
}

/// Starts to watch for signals. If `stop` is false, SIGINT and SIGTERM are not caught, because the
/// command is a service that handles them itself.
///
/// # Errors
///
/// The system does not allow the process to install a handler or to start a thread.
pub fn watch(stop: bool) -> Result<(), Failure> {
    let fail = |error| Failure::internal(format_args!("cannot watch for signals: {error}"));
    // While SIGXFSZ has a handler, a write above the size limit returns EFBIG. Nothing reads the
    // flag that the handler sets.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map_err(fail)?;
    if !stop {
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(fail)?;
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        let cleanups =
            std::mem::take(&mut *CLEANUPS.lock().unwrap_or_else(PoisonError::into_inner));
        for remove in cleanups {
            remove();
        }
        // End the process by the signal's default action, so that the shell reports the signal.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(fail)?;
    Ok(())
}
