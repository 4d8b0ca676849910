//! Runs the device of one source, and starts it again after an error or under a later roster.

use std::sync::Arc;
use std::time::Duration;

use moteseal_api::{ErrorKind, NamedError};
use moteseal_core::record::DeviceId;
use moteseal_core::signature::SecretKey;
use moteseal_device::DurableMote;
use moteseal_device::runner::{self, RunError, Source, system_clock};
use moteseal_net::ParentAddress;
use moteseal_verify::Roster;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, error, info};

use crate::intake::Intake;
use crate::line::MAX_WAITING;

/// The first wait before a device starts again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long a reading that is durable may wait for others, so that fewer frames go to the gateway.
const LINGER: Duration = Duration::from_secs(5);
/// The longest wait before a device starts again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Why a device cannot run.
#[derive(Debug)]
pub struct Trouble {
    /// The name of the error.
    pub name: String,
    /// What happened, and what to do.
    pub what: String,
    /// What may help.
    pub remedy: Remedy,
}

/// What may help against an error of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The error may go away by itself, for example when a disk has room again.
    Time,
    /// A later version of the roster, a clock that is set, or another change outside of the hub.
    /// Messages that can wait do so, because the cause may be gone before the broker drops them.
    Change,
    /// Work on the device's files, or a new device. Messages are refused.
    Person,
}

impl Trouble {
    /// Returns the trouble of an error.
    #[must_use]
    pub fn new(name: impl Into<String>, what: impl Into<String>, kind: ErrorKind) -> Self {
        let (name, what) = (name.into(), what.into());
        let remedy = match (&*name, kind) {
            ("IndexExhausted" | "SealedElsewhere", _) => Remedy::Person,
            (_, ErrorKind::Internal | ErrorKind::Unreachable) => Remedy::Time,
            _ => Remedy::Change,
        };
        Self { name, what, remedy }
    }
}

impl<E: NamedError> From<&E> for Trouble {
    fn from(error: &E) -> Self {
        Self::new(error.name(), error.to_string(), error.kind())
    }
}

/// Opens the journal of a source's device.
pub type Open = Box<dyn FnMut() -> Result<DurableMote<SecretKey>, Trouble> + Send>;

/// The device of a source.
pub struct Device {
    /// Its id.
    pub id: DeviceId,
    /// The address of its gateway.
    pub gateway: ParentAddress,
    /// The device, opened for the first time.
    pub first: DurableMote<SecretKey>,
    /// Opens it again.
    pub again: Open,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Runs a device until `stop` changes. After an error, starts it again: after a while, and when there is
/// a later version of the roster.
pub(crate) async fn run(
    device: Device,
    intake: Arc<Intake>,
    mut rosters: watch::Receiver<Arc<Roster>>,
    mut stop: watch::Receiver<bool>,
) {
    let Device { id, gateway, first, mut again } = device;
    let mut wait = FIRST_WAIT;
    let mut opened = Some(first);
    let mut logged = None;
    loop {
        let start = Instant::now();
        rosters.mark_unchanged();
        let mote = match opened.take() {
            Some(mote) => Ok(mote),
            None => again(),
        };
        let ended = match mote {
            Ok(mote) => {
                let (rosters, stop) = (rosters.clone(), stop.clone());
                once(mote, id, &gateway, &intake, rosters, stop).await
            }
            Err(trouble) => Err(trouble),
        };
        let Err(trouble) = ended else { return intake.pause() };
        if start.elapsed() > LONGEST_WAIT {
            (wait, logged) = (FIRST_WAIT, None);
        }
        let Trouble { name, what, remedy } = trouble;
        let next = match remedy {
            Remedy::Time => {
                intake.pause();
                "the device starts again"
            }
            Remedy::Change => {
                intake.pause();
                wait = LONGEST_WAIT;
                "its messages wait; the device starts again after a while, or under a later roster"
            }
            Remedy::Person => {
                intake.stop();
                wait = LONGEST_WAIT;
                "its messages are refused until the hub starts again, or until there is a later roster"
            }
        };
        // An error that lasts is logged once.
        if remedy == Remedy::Time || logged.as_ref() != Some(&what) {
            error!(source = intake.name, name, again_in = ?wait, "{what}; {next}");
        } else {
            debug!(source = intake.name, name, again_in = ?wait, "{what}; {next}");
        }
        logged = Some(what);
        tokio::select! {
            () = sleep(wait), if remedy != Remedy::Person => {}
            Ok(()) = rosters.changed() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Runs a device once.
async fn once(
    mut mote: DurableMote<SecretKey>,
    id: DeviceId,
    gateway: &ParentAddress,
    intake: &Intake,
    rosters: watch::Receiver<Arc<Roster>>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Trouble> {
    // The journal may have been opened under an earlier version.
    let newest = Arc::clone(&rosters.borrow());
    if mote.mote().profile().roster.version < newest.version() {
        mote.load(&newest).map_err(|error| Trouble::from(&error))?;
    }
    let mut link = gateway.open(id.0).map_err(|error| Trouble::from(&error))?;
    let calendar = newest.calendar().clone();
    let settings = runner::Settings {
        rosters: Some(rosters),
        linger: LINGER,
        ..runner::Settings::new(calendar)
    };
    let (send, records) = mpsc::channel(2 * MAX_WAITING);
    intake.run(send);
    let mut taken = |_| {};
    let stopped = async {
        let _ = stop.wait_for(|stop| *stop).await;
        // No message may arrive after the runner has emptied its channel.
        intake.pause();
    };
    let source = Source::Live { records, clock: &system_clock };
    let ran = runner::run(&mut mote, &mut link, source, settings, &mut taken, stopped).await;
    match ran {
        Ok(ran) => {
            let waiting = mote.mote().waiting();
            info!(source = intake.name, readings = ran.readings, waiting, "the device stopped");
            Ok(())
        }
        Err(RunError::Link(error)) if !error.is_refusal() => {
            Err(Trouble { remedy: Remedy::Time, ..Trouble::from(&error) })
        }
        Err(error) => Err(Trouble::from(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_refused_only_for_causes_that_stay() {
        let remedy = |name: &str, kind| Trouble::new(name, "", kind).remedy;
        assert_eq!(remedy("DiskFull", ErrorKind::Internal), Remedy::Time);
        for name in ["EpochOutOfRange", "KeyMissing", "NotLater", "StateLocked", "OtherSchema"] {
            assert_eq!(remedy(name, ErrorKind::Usage), Remedy::Change, "{name}");
        }
        for name in ["IndexExhausted", "SealedElsewhere"] {
            assert_eq!(remedy(name, ErrorKind::Usage), Remedy::Person, "{name}");
        }
    }
}
