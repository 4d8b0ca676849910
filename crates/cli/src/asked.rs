//! What the commands that ask a cloud have in common: where it is, by whose word its answers are judged, of which time, and what is
//! kept of an answer that was verified.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_api::Query;
use moteseal_client::Memory;
use moteseal_client::proof::ProofWriter;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_net::Client;
use moteseal_seal::sample::Choice;
use moteseal_verify::Roster;

use crate::failure::Failure;
use crate::files;
use crate::get::open_memory;
use crate::push::Access;
use crate::rows::output_failure;
use crate::time::{When, when};

/// A cloud, a group, and a range of time.
#[derive(Args, Debug)]
pub(crate) struct Asked {
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
    /// From the epoch that this time lies in; everything unless given
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    since: Option<When>,
    /// Up to this time; everything sealed so far unless given
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    until: Option<When>,
}

impl Asked {
    /// The roster, if the operator signed it.
    pub(crate) fn roster(&self) -> Result<Roster, Failure> {
        files::roster(&self.roster, &self.operator)
    }

    /// A client of the cloud.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.access.client(&self.from)
    }

    /// The files that are read: none of them may be written.
    pub(crate) const fn read(&self) -> [&PathBuf; 2] {
        [&self.roster, &self.operator]
    }

    /// The first epoch of the range, and the one behind its last.
    pub(crate) fn epochs(&self, roster: &Roster) -> (EpochNumber, Option<EpochNumber>) {
        let since = self.since.map_or(EpochNumber(0), |since| since.epoch(roster.epoch_ms()));
        (since, self.until.map(|until| until.epoch_after(roster.epoch_ms())))
    }

    /// The devices of these names, every one of the roster if there are none.
    pub(crate) fn devices(
        &self,
        roster: &Roster,
        names: &[String],
    ) -> Result<Vec<DeviceId>, Failure> {
        files::devices(roster, &self.roster, names)
    }

    /// The query for a choice among what these devices sealed, checked as the cloud checks it.
    pub(crate) fn query(
        &self,
        roster: &Roster,
        names: &[String],
        choice: Choice,
    ) -> Result<Query, Failure> {
        let (devices, (since, until)) = (self.devices(roster, names)?, self.epochs(roster));
        let query = Query { devices, since, until, choice };
        Query::from_json(query.to_json().as_bytes())
            .map_err(|error| Failure::usage(format_args!("{}: {error}", error.name())))
    }
}

/// What is kept of an answer.
#[derive(Args, Debug)]
pub(crate) struct Kept {
    /// Keep the answer as a proof that `moteseal verify` checks later, elsewhere, offline
    #[arg(long, value_name = "FILE")]
    proof: Option<PathBuf>,
    /// Where the newest seals are remembered; in the user's state directory unless given
    #[arg(long, value_name = "FILE", conflicts_with = "no_memory")]
    memory: Option<PathBuf>,
    /// Neither use nor keep what earlier answers proved
    #[arg(long)]
    no_memory: bool,
}

impl Kept {
    /// The files that are written, by their options.
    pub(crate) fn written(&self) -> [(&'static str, Option<&Path>); 2] {
        [("--proof", self.proof.as_deref()), ("--memory", self.memory.as_deref())]
    }

    /// What is remembered of earlier answers, if that is to be used.
    pub(crate) fn memory(&self, roster: &Roster) -> Result<Option<Memory>, Failure> {
        open_memory(self.memory.as_deref(), self.no_memory, roster)
    }

    /// The proof that the answer will be, if it is to be kept.
    pub(crate) fn proof(
        &self,
        query: &Query,
        roster: &Roster,
    ) -> Result<Option<ProofWriter>, Failure> {
        self.proof
            .as_deref()
            .map(|path| ProofWriter::create(path, query, roster))
            .transpose()
            .map_err(output_failure)
    }
}

/// Keeps a verified answer's proof, and what it has shown of the newest seals. What can fail for want of space fails before anything is
/// in its place.
pub(crate) fn keep(proof: Option<ProofWriter>, memory: Option<&mut Memory>) -> Result<(), Failure> {
    let mut proof = proof;
    if let Some(proof) = &mut proof {
        proof.settle().map_err(output_failure)?;
    }
    if let Some(memory) = memory {
        memory.save().map_err(output_failure)?;
    }
    proof.map_or(Ok(()), |proof| proof.keep().map_err(output_failure))
}
