//! The arguments common to all commands that query a cloud: the cloud, the roster, the range of
//! time, and the files in which to keep a verified response.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_api::Query;
use moteseal_client::pinned::PinFile;
use moteseal_client::{Client as DataClient, Get, PinnedSeals};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::Client;
use moteseal_seal::sample::Choice;
use moteseal_verify::Roster;

use crate::client_error;
use crate::failure::Failure;
use crate::files;
use crate::push::Access;
use crate::time::{When, when};

/// A cloud, a group, and a range of time.
#[derive(Args, Debug)]
pub(crate) struct CloudQuery {
    /// The cloud's address
    #[arg(long, value_name = "URL")]
    from: String,
    #[command(flatten)]
    access: Access,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// Start with the epoch that contains this time; default: everything
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    since: Option<When>,
    /// End with the epoch that ends at or after this time; default: everything sealed so far
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    until: Option<When>,
}

impl CloudQuery {
    /// Reads the roster and checks the operator's signature.
    pub(crate) fn roster(&self) -> Result<Roster, Failure> {
        files::roster(&self.roster, &self.operator)
    }

    /// A client of the cloud.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.access.client(&self.from)
    }

    /// The files that are read: no output may replace them.
    pub(crate) const fn read(&self) -> [&PathBuf; 2] {
        [&self.roster, &self.operator]
    }

    /// The first epoch of the range, and the one after its last.
    pub(crate) fn epochs(&self, roster: &Roster) -> (EpochNumber, Option<EpochNumber>) {
        let since = self.since.map_or(EpochNumber(0), |since| since.epoch(roster.epoch_ms()));
        (since, self.until.map(|until| until.epoch_after(roster.epoch_ms())))
    }

    /// The devices of these names; all in the roster if there are none.
    pub(crate) fn devices(
        &self,
        roster: &Roster,
        names: &[String],
    ) -> Result<Vec<DeviceId>, Failure> {
        files::devices(roster, &self.roster, names)
    }

    /// The query for a choice among the readings of these devices, with the same checks as in the
    /// cloud.
    pub(crate) fn query(
        &self,
        roster: &Roster,
        names: &[String],
        choice: Choice,
    ) -> Result<Query, Failure> {
        let (devices, (since, until)) = (self.devices(roster, names)?, self.epochs(roster));
        let query = Query { devices, since, until, choice };
        Ok(Query::from_json(query.to_json().as_bytes())?)
    }
}

/// The files that a verified response is kept in.
#[derive(Args, Debug)]
pub(crate) struct KeptFiles {
    /// Keep the response as a proof, which `moteseal verify` checks later and offline
    #[arg(long, value_name = "FILE")]
    proof: Option<PathBuf>,
    #[command(flatten)]
    pins: Pins,
}

/// Which file of pinned seals to use.
#[derive(Args, Debug)]
pub(crate) struct Pins {
    /// The file of pinned seals, the newest verified seal of each device; default: a file in the
    /// user's state directory
    #[arg(long, value_name = "FILE", conflicts_with = "no_pinned_seals")]
    pinned_seals: Option<PathBuf>,
    /// Do not use pinned seals
    #[arg(long)]
    no_pinned_seals: bool,
}

impl Pins {
    /// Reads the pinned seals, unless they are turned off.
    pub(crate) fn open(&self, roster: &Roster) -> Result<Option<PinnedSeals>, Failure> {
        let file = match &self.pinned_seals {
            _ if self.no_pinned_seals => PinFile::None,
            Some(path) => PinFile::At(path.clone()),
            None => PinFile::Default,
        };
        file.open(roster).map_err(client_error::output)
    }
}

impl KeptFiles {
    /// The files that are written, by their options.
    pub(crate) fn written(&self) -> [(&'static str, Option<&Path>); 2] {
        [("--proof", self.proof.as_deref()), ("--pinned-seals", self.pins.pinned_seals.as_deref())]
    }

    /// Reads the pinned seals, unless they are turned off.
    pub(crate) fn pinned(&self, roster: &Roster) -> Result<Option<PinnedSeals>, Failure> {
        self.pins.open(roster)
    }

    /// The request for a query, with these files.
    pub(crate) fn request<'a>(
        &self,
        client: DataClient<'a>,
        query: &Query,
        pinned: Option<&'a mut PinnedSeals>,
    ) -> Get<'a> {
        let mut request = client.query(query);
        if let Some(pinned) = pinned {
            request = request.pinned_seals(pinned);
        }
        if let Some(proof) = &self.proof {
            request = request.proof(proof);
        }
        request
    }
}
