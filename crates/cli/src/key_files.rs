//! The arguments with the keys of encrypted columns: grants, and the stream secrets of devices.

use std::path::PathBuf;

use clap::Args;
use moteseal_client::decrypt::{ColumnKeyFiles, OpenKeys};
use moteseal_verify::Roster;

use crate::client_error;
use crate::failure::Failure;
use crate::grant::{self, Unlocking};

/// The keys of encrypted columns. Without them, the cells of these columns are empty.
#[derive(Args, Debug)]
pub(crate) struct KeyFiles {
    /// A grant of encrypted columns, made for an identity in --identity or for a passphrase; several times
    /// for several grants. Cells that no grant opens are empty, and the report states why
    #[arg(long = "grant", value_name = "FILE")]
    grants: Vec<PathBuf>,
    #[command(flatten)]
    unlocking: Unlocking,
    /// For the owner: the stream secret of a device, which opens all of its encrypted columns
    #[arg(long = "stream-secret", value_name = "DEVICE=FILE", value_parser = device_file)]
    stream_secrets: Vec<(String, PathBuf)>,
}

fn device_file(text: &str) -> Result<(String, PathBuf), String> {
    let parts = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
    let (name, path) = parts.ok_or("a device and its file: dev1=keys/dev1.stream.key")?;
    Ok((name.to_owned(), path.into()))
}

impl KeyFiles {
    /// Returns the files that are read. No output may replace them.
    pub(crate) fn read(&self) -> impl Iterator<Item = &PathBuf> {
        let secrets = self.stream_secrets.iter().map(|(_, path)| path);
        self.grants.iter().chain(self.unlocking.read()).chain(secrets)
    }

    /// Reads the keys. The grants must be valid now, and signed by an owner in the roster.
    pub(crate) fn open(&self, roster: &Roster) -> Result<OpenKeys, Failure> {
        if self.grants.is_empty() && self.unlocking.is_given() {
            let what = "--identity and --passphrase-file open grants; name one with --grant";
            return Err(Failure::usage(what));
        }
        let stream_secrets = self.stream_secrets.clone();
        let files = ColumnKeyFiles { stream_secrets, ..ColumnKeyFiles::default() };
        let mut keys = files.open(roster).map_err(|error| client_error::input(&error))?;
        let mut unlocker = self.unlocking.start();
        for path in &self.grants {
            keys.add(grant::open(path, &mut unlocker, roster)?);
        }
        Ok(keys)
    }
}
