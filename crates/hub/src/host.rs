//! Runs the device of one source, and starts it again after an error.

use std::sync::Arc;
use std::time::Duration;

use moteseal_api::{ErrorKind, NamedError};
use moteseal_core::record::DeviceId;
use moteseal_core::signature::SecretKey;
use moteseal_device::DurableMote;
use moteseal_device::runner::{self, RunError, Source, system_clock};
use moteseal_net::ParentAddress;
use moteseal_verify::{Calendar, Roster};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{error, info};

use crate::intake::Intake;
use crate::line::MAX_WAITING;

/// The first wait before a device starts again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a device starts again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Why a device cannot run.
#[derive(Debug)]
pub struct Trouble {
    /// The name of the error.
    pub name: String,
    /// What happened, and what to do.
    pub what: String,
    /// Whether the error may go away by itself, for example when a disk has room again.
    pub is_passing: bool,
}

impl<E: NamedError> From<&E> for Trouble {
    fn from(error: &E) -> Self {
        let is_passing = matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unreachable);
        Self { name: error.name().to_owned(), what: error.to_string(), is_passing }
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
    /// The lengths of the group's epochs.
    pub calendar: Calendar,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Runs a device until `stop` changes. After an error that may pass, starts it again; after another
/// one, refuses all its messages.
pub(crate) async fn run(
    device: Device,
    intake: Arc<Intake>,
    rosters: watch::Receiver<Arc<Roster>>,
    stop: watch::Receiver<bool>,
) {
    let Device { id, gateway, first, mut again, calendar } = device;
    let mut wait = FIRST_WAIT;
    let mut opened = Some(first);
    loop {
        let start = Instant::now();
        let mote = match opened.take() {
            Some(mote) => Ok(mote),
            None => again(),
        };
        let ended = match mote {
            Ok(mote) => {
                let (rosters, stop) = (rosters.clone(), stop.clone());
                once(mote, id, &gateway, calendar.clone(), &intake, rosters, stop).await
            }
            Err(trouble) => Err(trouble),
        };
        let Err(trouble) = ended else { return intake.pause() };
        if !trouble.is_passing {
            intake.stop();
            error!(
                source = intake.name,
                name = trouble.name,
                "{}; the messages of this source are refused until the hub starts again",
                trouble.what
            );
            return;
        }
        intake.pause();
        if start.elapsed() > LONGEST_WAIT {
            wait = FIRST_WAIT;
        }
        error!(
            source = intake.name,
            name = trouble.name,
            again_in = ?wait,
            "{}; the device starts again", trouble.what
        );
        let mut stopped = stop.clone();
        tokio::select! {
            () = sleep(wait) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Runs a device once.
async fn once(
    mut mote: DurableMote<SecretKey>,
    id: DeviceId,
    gateway: &ParentAddress,
    calendar: Calendar,
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
    let settings = runner::Settings { rosters: Some(rosters), ..runner::Settings::new(calendar) };
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
            Err(Trouble { is_passing: true, ..Trouble::from(&error) })
        }
        Err(error) => Err(Trouble::from(&error)),
    }
}
