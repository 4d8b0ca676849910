//! Runs a device whose rows another part of the process makes, and starts it again after an error or
//! under a later roster: a device of a hub, or the device of a stream of health.

use std::sync::Arc;
use std::time::Duration;

use moteseal_api::{ErrorKind, NamedError};
use moteseal_core::health::{Policy, SHORTEST_ON_HOSTS};
use moteseal_core::record::DeviceId;
use moteseal_core::signature::SecretKey;
use moteseal_net::ParentAddress;
use moteseal_net::health::NodeHealth;
use moteseal_service::Figures;
use moteseal_service::health::Start;
use moteseal_verify::{Calendar, Roster};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, error, info};

use crate::DurableMote;
use crate::runner::{self, HealthLink, LiveReading, RunError, Source, system_clock};

/// The maximum number of rows that wait for a device.
const MAX_WAITING: usize = 128;
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
    /// A later version of the roster, a clock that is set, or another change outside of the process.
    /// Rows that can wait do so, because the cause may be gone before their senders drop them.
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

/// Opens the journal of a hosted device.
pub type Open = Box<dyn FnMut() -> Result<DurableMote<SecretKey>, Trouble> + Send>;

/// What makes the rows of a hosted device.
pub trait Feed: Send + Sync {
    /// Returns the name of the device, for the log.
    fn name(&self) -> &str;
    /// Passes rows to this channel from now on.
    fn run(&self, rows: mpsc::Sender<LiveReading>);
    /// Passes no rows until the device runs again.
    fn pause(&self);
    /// Passes no rows until the device runs again, which needs a person.
    fn stop(&self);
    /// Returns whether there are no more rows. A device that fails is then not started again.
    fn is_over(&self) -> bool {
        false
    }
}

/// A hosted device.
pub struct Device {
    /// Its id.
    pub id: DeviceId,
    /// What waits for its gateway and what was lost; it reports this as its health.
    pub figures: Arc<Figures>,
    /// When the process started, as the device's health states it.
    pub start: Start,
    /// How often it reports its health.
    pub policy: Policy,
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
///
/// The device reports its health to its gateway: what waits, and what was lost. All other values are those of
/// the machine, which the process that hosts the device reports.
pub async fn run(
    device: Device,
    feed: Arc<impl Feed>,
    rosters: watch::Receiver<Arc<Roster>>,
    stop: watch::Receiver<bool>,
) {
    let (start, figures) = (device.start, Arc::clone(&device.figures));
    let health = NodeHealth::new(feed.name(), (device.policy, SHORTEST_ON_HOSTS), move || {
        let mut health = start.record();
        figures.write(&mut health);
        health
    });
    let link = HealthLink { figures: Arc::clone(&device.figures), reports: health.reports() };
    tokio::select! {
        () = run_again(device, &*feed, link, rosters, stop) => {}
        () = health.run() => {}
    }
}

async fn run_again(
    device: Device,
    feed: &impl Feed,
    health: HealthLink,
    mut rosters: watch::Receiver<Arc<Roster>>,
    mut stop: watch::Receiver<bool>,
) {
    let Device { id, gateway, first, mut again, .. } = device;
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
                let settings = |calendar| runner::Settings {
                    rosters: Some(rosters.clone()),
                    health: Some(health.clone()),
                    linger: LINGER,
                    ..runner::Settings::new(calendar)
                };
                let newest = Arc::clone(&rosters.borrow());
                once(mote, (id, &gateway), feed, (&newest, settings), stop.clone()).await
            }
            Err(trouble) => Err(trouble),
        };
        let Err(trouble) = ended else { return feed.pause() };
        if start.elapsed() > LONGEST_WAIT {
            (wait, logged) = (FIRST_WAIT, None);
        }
        let Trouble { name, what, remedy } = trouble;
        if feed.is_over() {
            let source = feed.name();
            error!(source, name, "{what}; what the gateway does not have stays in the journal");
            return feed.pause();
        }
        let next = match remedy {
            Remedy::Time => {
                feed.pause();
                "the device starts again"
            }
            Remedy::Change => {
                feed.pause();
                wait = LONGEST_WAIT;
                "its messages wait; the device starts again after a while, or under a later roster"
            }
            Remedy::Person => {
                feed.stop();
                wait = LONGEST_WAIT;
                "its messages are refused until this program starts again, or until there is a later roster"
            }
        };
        // An error that lasts is logged once.
        if remedy == Remedy::Time || logged.as_ref() != Some(&what) {
            error!(source = feed.name(), name, again_in = ?wait, "{what}; {next}");
        } else {
            debug!(source = feed.name(), name, again_in = ?wait, "{what}; {next}");
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
    (id, gateway): (DeviceId, &ParentAddress),
    feed: &impl Feed,
    (newest, settings): (&Roster, impl FnOnce(Calendar) -> runner::Settings),
    mut stop: watch::Receiver<bool>,
) -> Result<(), Trouble> {
    // The journal may have been opened under an earlier version.
    if mote.mote().profile().roster.version < newest.version() {
        mote.load(newest).map_err(|error| Trouble::from(&error))?;
    }
    let mut link = gateway.open(id.0).map_err(|error| Trouble::from(&error))?;
    let settings = settings(newest.calendar().clone());
    let (send, records) = mpsc::channel(MAX_WAITING);
    feed.run(send);
    let mut taken = |_| {};
    let stopped = async {
        let _ = stop.wait_for(|stop| *stop).await;
        // No row may arrive after the runner has emptied its channel.
        feed.pause();
    };
    let source = Source::Live { records, clock: &system_clock };
    let ran = runner::run(&mut mote, &mut link, source, settings, &mut taken, stopped).await;
    match ran {
        Ok(ran) => {
            let waiting = mote.mote().waiting();
            info!(source = feed.name(), readings = ran.readings, waiting, "the device stopped");
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
