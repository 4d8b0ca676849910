//! The arguments that all commands that query a cloud share: the cloud, the roster, the time range,
//! and the files in which to keep a verified response.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_api::Query;
use moteseal_client::pinned::PinFile;
use moteseal_client::{Client as DataClient, CloudRoster, Error, Get, PinnedSeals};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::Client;
use moteseal_seal::sample::Choice;
use moteseal_verify::Roster;

use crate::client_error;
use crate::failure::Failure;
use crate::files;
use crate::push::Access;
use crate::terminal::diagnostic;
use crate::time::{When, when};

/// The cloud, the group, and the time range.
#[derive(Args, Debug)]
pub(crate) struct CloudQuery {
    /// The cloud's address
    #[arg(long, value_name = "URL")]
    from: String,
    #[command(flatten)]
    access: Access,
    /// Wait until the cloud's workers have stored what it acknowledged up to this position, which `push` printed
    #[arg(long, value_name = "POSITION")]
    after_position: Option<u64>,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// Start with the epoch that contains this time; default: the first epoch
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    since: Option<When>,
    /// End with the first epoch that ends at or after this time; default: everything sealed so far
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    until: Option<When>,
}

impl CloudQuery {
    /// Reads the roster and checks the operator's signature.
    pub(crate) fn roster(&self) -> Result<Roster, Failure> {
        files::roster(&self.roster, &self.operator)
    }

    /// Returns the path of the roster.
    pub(crate) fn roster_path(&self) -> &Path {
        &self.roster
    }

    /// Returns a client of the cloud.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.access.client_after(&self.from, self.after_position)
    }

    /// Returns the files that the command reads. No output may replace them.
    pub(crate) const fn read(&self) -> [&PathBuf; 2] {
        [&self.roster, &self.operator]
    }

    /// Returns the first epoch of the range and the epoch after its last, or `None` without
    /// `--until`.
    pub(crate) fn epochs(&self, roster: &Roster) -> (EpochNumber, Option<EpochNumber>) {
        let since = self.since.map_or(EpochNumber(0), |since| since.epoch(roster.calendar()));
        (since, self.until.map(|until| until.epoch_after(roster.calendar())))
    }

    /// Returns the devices with these names, or all devices of the roster if `names` is empty.
    pub(crate) fn devices(
        &self,
        roster: &Roster,
        names: &[String],
    ) -> Result<Vec<DeviceId>, Failure> {
        files::devices(roster, &self.roster, names)
    }

    /// Returns the query for a choice among the readings of these devices. Checks the query by the
    /// same rules as a cloud.
    pub(crate) fn query(
        &self,
        roster: &Roster,
        names: &[String],
        choice: Choice,
    ) -> Result<Query, Failure> {
        let (devices, (since, until)) = (self.devices(roster, names)?, self.epochs(roster));
        let query = Query { devices, since, until, choice, columns: Vec::new() };
        Ok(query.check()?)
    }
}

/// The files in which a verified response is kept.
#[derive(Args, Debug)]
pub(crate) struct KeptFiles {
    /// Save the response as a proof, which `moteseal verify` can check later without a network
    #[arg(long, value_name = "FILE")]
    proof: Option<PathBuf>,
    #[command(flatten)]
    pins: Pins,
}

/// The arguments that select the file of pinned seals.
#[derive(Args, Debug)]
pub(crate) struct Pins {
    /// The file of pinned seals, which holds the newest verified seal of each device and the newest
    /// version of the roster; default: a file in the user's state directory
    #[arg(long, value_name = "FILE", conflicts_with = "no_pinned_seals")]
    pinned_seals: Option<PathBuf>,
    /// Neither check nor update pinned seals; also accept an earlier version of the roster
    #[arg(long)]
    no_pinned_seals: bool,
}

impl Pins {
    /// Reads the pinned seals, unless `--no-pinned-seals` was given, and checks the roster against
    /// the pinned version. `path` is the roster's file, for the message.
    fn open(&self, roster: &Roster, path: &Path) -> Result<Option<PinnedSeals>, Failure> {
        let file = match &self.pinned_seals {
            _ if self.no_pinned_seals => PinFile::None,
            Some(path) => PinFile::At(path.clone()),
            None => PinFile::Default,
        };
        open_pins(&file, roster, path)
    }

    /// Does the same as [`open`](Self::open), and saves the version of the roster if it is a later
    /// one. For commands that save nothing else.
    pub(crate) fn open_and_save(
        &self,
        roster: &Roster,
        path: &Path,
    ) -> Result<Option<PinnedSeals>, Failure> {
        let mut pinned = self.open(roster, path)?;
        save_roster(pinned.as_mut());
        Ok(pinned)
    }
}

/// Reads a file of pinned seals, and checks the roster, which was read from `path`, against the
/// pinned version.
pub(crate) fn open_pins(
    file: &PinFile,
    roster: &Roster,
    path: &Path,
) -> Result<Option<PinnedSeals>, Failure> {
    file.open(roster).map_err(|error| {
        let failure = client_error::failure(roster, &error);
        match error {
            Error::RosterNotLater(_) => failure.about(path),
            _ => failure,
        }
    })
}

/// Saves a later version of the roster. If this fails, the command still has its result: it reports
/// that the version is not pinned.
pub(crate) fn save_roster(pinned: Option<&mut PinnedSeals>) {
    if let Some(Err(error)) = pinned.map(PinnedSeals::save_if_changed) {
        diagnostic(format_args!(
            "the version of the roster is not pinned, so that an earlier one would not be noticed: {error}"
        ));
    }
}

/// Reports that the cloud states a later version of the roster than the one in `path`.
pub(crate) fn report_newer_roster(cloud_roster: Option<CloudRoster>, path: &Path) {
    if let Some(versions) = cloud_roster.filter(CloudRoster::is_newer) {
        diagnostic(format_args!("{}: {versions}", path.display()));
    }
}

impl KeptFiles {
    /// Returns the files that the command writes, each with its option.
    pub(crate) fn written(&self) -> [(&'static str, Option<&Path>); 2] {
        [("--proof", self.proof.as_deref()), ("--pinned-seals", self.pins.pinned_seals.as_deref())]
    }

    /// Reads the pinned seals, unless `--no-pinned-seals` was given, and checks the roster against
    /// the pinned version.
    pub(crate) fn pinned(
        &self,
        roster: &Roster,
        cloud_query: &CloudQuery,
    ) -> Result<Option<PinnedSeals>, Failure> {
        self.pins.open(roster, &cloud_query.roster)
    }

    /// Returns the request for a query, which uses these files.
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
