//! Serves signed time to motes: answers each challenge of a mote with a time statement
//! (spec/time.md).
//!
//! The operator or the querier runs a time server. It needs to know nothing about the motes, and
//! keeps no state: a statement is correct for every challenge. Several servers may run on the topics
//! of a group.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use moteseal_api::NamedError as _;
use moteseal_core::identity::IssueError;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::Signer;
use moteseal_core::signed_time::{MAX_TIME_STATEMENT, TimeChallenge, TimeSigner, TimeStatement};
use moteseal_net::link::{State, Up};
use moteseal_net::{LinkError, ParentLink};
use moteseal_verify::Roster;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, warn};

/// The minimum time between two statements for one device. It bounds the signatures that a party can
/// cause with many challenges.
const INTERVAL: Duration = Duration::from_millis(500);

/// A server of the time of one group.
pub struct TimeServer<'a> {
    group: GroupId,
    role: TimeSigner,
    signer: &'a (dyn Signer + Sync),
    unix_ms: &'a (dyn Fn() -> u64 + Sync),
    /// When each device was last answered.
    answered: HashMap<[u8; 8], Instant>,
}

impl std::fmt::Debug for TimeServer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimeServer").field("group", &self.group).finish_non_exhaustive()
    }
}

/// Returns the time of this machine's clock in Unix milliseconds; 0 before 1970.
#[must_use]
pub fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the part of the MQTT topics that names a group's link for the time.
#[must_use]
pub fn time_topic(group: GroupId) -> String {
    format!("{}-time", hex::encode(group.0))
}

/// Returns the devices that may ask for the time: all devices of the roster.
#[must_use]
pub fn time_members(roster: &Roster) -> Vec<[u8; 8]> {
    roster.devices().map(|device| device.id.0).collect()
}

impl<'a> TimeServer<'a> {
    /// Creates a server that signs with the key of the operator or of the querier. `unix_ms` returns
    /// the time in Unix milliseconds.
    #[must_use]
    pub fn new(
        group: GroupId,
        role: TimeSigner,
        signer: &'a (dyn Signer + Sync),
        unix_ms: &'a (dyn Fn() -> u64 + Sync),
    ) -> Self {
        Self { group, role, signer, unix_ms, answered: HashMap::new() }
    }

    /// Returns the statement that answers a frame, or `None` if the frame is not a challenge or if
    /// the device was answered a moment ago.
    ///
    /// # Errors
    /// [`IssueError`] if the signer fails.
    pub fn answer(&mut self, up: &Up) -> Result<Option<Bytes>, IssueError> {
        let Ok(challenge) = up.frame.as_ref().try_into() else { return Ok(None) };
        let now = Instant::now();
        if self.answered.get(&up.device).is_some_and(|at| now.duration_since(*at) < INTERVAL) {
            return Ok(None);
        }
        self.answered.insert(up.device, now);
        let statement = TimeStatement {
            group: self.group,
            device: DeviceId(up.device),
            challenge: TimeChallenge(challenge),
            unix_ms: (self.unix_ms)(),
        };
        let mut out = [0; MAX_TIME_STATEMENT];
        let statement = statement.issue(self.role, self.signer, &mut out)?;
        Ok(Some(Bytes::copy_from_slice(statement)))
    }

    /// Answers challenges until the link is closed. Continues while the broker is not reached.
    /// `members` delivers the devices whose challenges are answered.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn serve<L: ParentLink + Sync>(
        mut self,
        link: &L,
        mut members: watch::Receiver<Vec<[u8; 8]>>,
    ) -> Result<Infallible, LinkError> {
        let mut state = link.state();
        loop {
            tokio::select! {
                up = link.receive() => {
                    let up = up?;
                    match self.answer(&up) {
                        Ok(Some(statement)) => link.send(up.device, statement).await?,
                        Ok(None) => debug!(device = hex::encode(up.device), "ignored a challenge"),
                        Err(error) => warn!(%error, "the time was not signed"),
                    }
                }
                Ok(()) = members.changed() => {
                    let members = members.borrow_and_update().clone();
                    self.answered.retain(|device, _| members.contains(device));
                    link.set_members(members);
                }
                changed = state.changed() => {
                    changed.map_err(|_| LinkError::Closed)?;
                    if let State::Down { cause, again_in } = &*state.borrow_and_update() {
                        warn!(cause = %cause.named(), ?again_in, "the link for the motes' time is down");
                    }
                }
            }
        }
    }
}
