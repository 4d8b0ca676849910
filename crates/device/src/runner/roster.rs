//! Loads later versions of the roster while a device runs.

use std::sync::Arc;

use moteseal_core::signature::Signer;
use moteseal_verify::Roster;
use tokio::sync::watch;
use tracing::info;

use super::{Readings, Run, RunError};

/// Returns the next later version of the roster. Waits forever if there will be none.
pub(super) async fn next_roster(rosters: &mut Option<watch::Receiver<Arc<Roster>>>) -> Arc<Roster> {
    if let Some(rosters) = rosters
        && rosters.changed().await.is_ok()
    {
        return Arc::clone(&rosters.borrow_and_update());
    }
    std::future::pending().await
}

/// Returns the payload of the next version of a querier's policy, and the querier's place. Waits forever
/// if there will be none.
pub(super) async fn next_policy(
    policies: &mut [Option<watch::Receiver<Vec<u8>>>],
) -> (usize, Vec<u8>) {
    let next = policies.iter_mut().map(|policies| async move {
        if let Some(policies) = policies
            && policies.changed().await.is_ok()
        {
            return policies.borrow_and_update().clone();
        }
        std::future::pending().await
    });
    super::sums::first(next, 0).await
}

impl<K: Signer + Send> Run<'_, K> {
    /// Continues under a later version of the roster.
    pub(super) fn load(
        &mut self,
        roster: &Roster,
        readings: &mut Readings<'_>,
    ) -> Result<(), RunError> {
        self.mote.load(roster)?;
        self.settings.calendar = roster.calendar().clone();
        if let Readings::Live { now, .. } = readings {
            now.clock.load(roster.calendar().clone());
        }
        self.answerers.load(roster);
        info!(version = roster.version(), "loaded a later version of the roster");
        Ok(())
    }
}
