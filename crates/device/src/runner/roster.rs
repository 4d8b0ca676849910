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

/// Returns the payload of the next version of the policy. Waits forever if there will be none.
pub(super) async fn next_policy(policies: &mut Option<watch::Receiver<Vec<u8>>>) -> Vec<u8> {
    if let Some(policies) = policies
        && policies.changed().await.is_ok()
    {
        return policies.borrow_and_update().clone();
    }
    std::future::pending().await
}

impl<K: Signer + Send> Run<'_, K> {
    /// Continues under another version of the policy.
    pub(super) fn set_policy(&mut self, payload: Vec<u8>) {
        if let Some(answerer) = &mut self.answerer {
            answerer.set_policy(payload);
        }
    }

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
        if let Some(answerer) = &mut self.answerer {
            answerer.load(roster);
        }
        info!(version = roster.version(), "loaded a later version of the roster");
        Ok(())
    }
}
