//! What a command leaves behind when it is told to stop: nothing that is half written.
//!
//! Temporary files go before the process does on Ctrl-C (SIGINT) and SIGTERM. A file that grows past `ulimit -f` is an error that can
//! be told (EFBIG), instead of the end (SIGXFSZ). What a killed process leaves, the next one that writes to the same name removes.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use moteseal_client::output::AtomicFile;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::failure::{Exit, Failure};

/// Removes something that is not finished.
type Leftover = Box<dyn FnOnce() + Send>;

static LEFTOVERS: Mutex<Vec<Leftover>> = Mutex::new(Vec::new());

/// Has `remove` called if this process is told to stop.
pub(crate) fn on_stop(remove: impl FnOnce() + Send + 'static) {
    LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(remove));
}

/// Watches for signals; `stop` says whether those that end the process are ours.
pub(crate) fn watch(stop: bool) -> Result<(), Failure> {
    let fail =
        |error| Failure::new(Exit::Internal, format_args!("cannot watch for signals: {error}"));
    // Nobody asks whether it came: that it is caught makes an error of it.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map_err(fail)?;
    if !stop {
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(fail)?;
    let wait = move || {
        let Some(signal) = signals.forever().next() else { return };
        AtomicFile::abandon_all();
        for remove in std::mem::take(&mut *LEFTOVERS.lock().unwrap_or_else(PoisonError::into_inner))
        {
            remove();
        }
        // As if it had not been caught, so that a shell sees which signal it was.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(fail)?;
    Ok(())
}
