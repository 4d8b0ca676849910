//! Loads later versions of the roster while a gateway runs.

use std::fmt;
use std::sync::Arc;

use moteseal_net::ParentLink;
use moteseal_verify::Roster;
use tokio::sync::watch;
use tracing::{info, warn};

use super::Keeper;
use crate::station::StationError;

/// Writes a version of the roster durably.
pub type RecordRoster = Box<dyn FnMut(&Roster) -> std::io::Result<()> + Send>;

/// The later versions of the roster that a gateway loads while it runs.
pub struct Rosters {
    /// The newest version. The sender has checked that each version succeeds the one before it.
    pub newest: watch::Receiver<Arc<Roster>>,
    /// Makes a version durable, so that a restart continues with it.
    pub record: RecordRoster,
}

impl fmt::Debug for Rosters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rosters").finish_non_exhaustive()
    }
}

impl Keeper {
    /// Continues with a later version of the roster, if there is one.
    pub(super) fn load_roster<L: ParentLink>(&mut self, link: &L) {
        let Some(rosters) = &mut self.rosters else { return };
        if !rosters.newest.has_changed().unwrap_or(false) {
            return;
        }
        let roster = Arc::clone(&rosters.newest.borrow_and_update());
        let version = roster.version();
        let record = &mut rosters.record;
        let loaded = self.station.load(Roster::clone(&roster), |roster| {
            record(roster).map_err(|error| StationError::Io("roster".into(), error))
        });
        match loaded {
            Ok(recovered) => {
                if let Some(health) = &self.shared.health {
                    health.load(&roster);
                }
                link.set_members(roster.devices().map(|device| device.id.0).collect());
                let refused = recovered.refused;
                info!(version, refused, "loaded a later version of the roster");
            }
            Err(error) => {
                warn!(version, name = error.name(), %error, "cannot load a later version of the roster");
            }
        }
    }
}
