//! Clean-up when a command is interrupted: no half-written file remains.
//!
//! On Ctrl-C (SIGINT) and SIGTERM, temporary files are removed before the process ends. Exceeding
//! `ulimit -f` (SIGXFSZ) becomes an error (EFBIG) that the command can report. A process that is
//! killed leaves its temporary files; the next one that writes to the same name removes them.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

type Cleanup = Box<dyn FnOnce() + Send>;

static CLEANUPS: Mutex<Vec<Cleanup>> = Mutex::new(Vec::new());

/// Registers `remove`, which is called if SIGINT or SIGTERM ends this process.
pub fn on_stop(remove: impl FnOnce() + Send + 'static) {
    CLEANUPS.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(remove));
}

/// Starts to watch for signals. With `stop` false, SIGINT and SIGTERM are left to the command: a
/// service handles them itself.
///
/// # Errors
///
/// The system does not allow a handler or a thread.
pub fn watch(stop: bool) -> Result<(), Failure> {
    let fail = |error| Failure::internal(format_args!("cannot watch for signals: {error}"));
    // A caught SIGXFSZ makes the write return EFBIG; the flag itself is not read.
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
        // End as if the signal had not been caught, so that the shell sees which one it was.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(fail)?;
    Ok(())
}
