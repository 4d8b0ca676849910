//! The version of the roster that a cloud states in its responses. The statement is not signed. It
//! only explains to a user why a response was rejected or lacks readings.

use std::fmt;

use moteseal_api::ROSTER_VERSION;
use moteseal_net::Response;
use moteseal_verify::Roster;

use crate::error::Error;

/// The version of the roster that a cloud states, if it is not the version that the client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloudRoster {
    /// The version that the client uses.
    pub client: u32,
    /// The version that the cloud states.
    pub cloud: u32,
}

impl CloudRoster {
    /// Reads the version that a response states. Returns `None` if it states none, or the client's.
    pub(crate) fn of(response: &Response, roster: &Roster) -> Option<Self> {
        let cloud = response.header(ROSTER_VERSION)?.parse().ok()?;
        let client = roster.version();
        (cloud != client).then_some(Self { client, cloud })
    }

    /// Returns whether the cloud's version is later than the client's.
    #[must_use]
    pub const fn is_newer(&self) -> bool {
        self.cloud > self.client
    }
}

/// Adds the cloud's version of the roster to a rejection.
pub(crate) fn annotated(error: Error, cloud_roster: Option<CloudRoster>) -> Error {
    match error {
        Error::Rejected(mut rejected) => {
            rejected.cloud_roster = cloud_roster;
            Error::Rejected(rejected)
        }
        error => error,
    }
}

impl fmt::Display for CloudRoster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, cloud } = *self;
        write!(
            f,
            "the cloud uses version {cloud} of the roster, and this client version {client}; "
        )?;
        if self.is_newer() {
            write!(f, "get the newest version from the operator")
        } else {
            write!(f, "give the cloud the newest version")
        }
    }
}
