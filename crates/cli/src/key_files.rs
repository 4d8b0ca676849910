//! The arguments with the keys of encrypted columns: grants, and the stream secrets of devices.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use moteseal_client::decrypt::{DeviceKeys, KeySet};
use moteseal_core::confidential::StreamSecret;
use moteseal_core::record::DeviceId;
use moteseal_grant::{OpenError, OpenGrant, Unlock, decode_stream_secret};
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use crate::failure::{Exit, Failure};
use crate::files;

/// The keys of encrypted columns. Without them, the cells of these columns are empty.
#[derive(Args, Debug)]
pub(crate) struct KeyFiles {
    /// A grant of encrypted columns, made for an identity in --identity; several times for several
    /// grants. Cells that no grant opens are empty, and the report states why
    #[arg(long = "grant", value_name = "FILE", requires = "identity")]
    grants: Vec<PathBuf>,
    /// The file of your age identities, which open the grants
    #[arg(long, value_name = "FILE", requires = "grants")]
    identity: Option<PathBuf>,
    /// For the owner: the stream secret of a device, which opens all of its encrypted columns
    #[arg(long = "stream-secret", value_name = "DEVICE=FILE", value_parser = device_file)]
    stream_secrets: Vec<(String, PathBuf)>,
}

fn device_file(text: &str) -> Result<(String, PathBuf), String> {
    let parts = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
    let (name, path) = parts.ok_or("a device and its file: dev1=keys/dev1.stream.key")?;
    Ok((name.to_owned(), path.into()))
}

/// The keys that were read from the files.
pub(crate) struct OpenKeys {
    grants: Vec<OpenGrant>,
    secrets: Vec<(DeviceId, StreamSecret)>,
}

impl OpenKeys {
    /// Returns the keys, or `None` if no argument names any.
    pub(crate) fn set(&self) -> Option<KeySet<'_>> {
        let mut set = KeySet::new();
        for (device, secret) in &self.secrets {
            set.add(DeviceKeys::new(*device, secret.clone()));
        }
        for grant in &self.grants {
            set.add(grant.keys());
        }
        (!set.is_empty()).then_some(set)
    }
}

impl KeyFiles {
    /// Returns whether an argument names keys.
    pub(crate) fn is_given(&self) -> bool {
        !self.grants.is_empty() || !self.stream_secrets.is_empty()
    }

    /// Returns the files that are read. No output may replace them.
    pub(crate) fn read(&self) -> impl Iterator<Item = &PathBuf> {
        let secrets = self.stream_secrets.iter().map(|(_, path)| path);
        self.grants.iter().chain(&self.identity).chain(secrets)
    }

    /// Reads the keys. The grants must be valid now, and signed by an owner in the roster.
    pub(crate) fn open(&self, roster: &Roster) -> Result<OpenKeys, Failure> {
        let unlock = self.identity.as_deref().map(identities).transpose()?;
        let mut grants = Vec::new();
        for path in &self.grants {
            let unlock = unlock.as_ref().ok_or_else(|| Failure::usage("--identity is missing"))?;
            let grant = OpenGrant::open(&files::read(path)?, unlock, roster, now_ms()?);
            grants.push(grant.map_err(|error| rejected(error).about(path))?);
        }
        let mut secrets = Vec::new();
        for (name, path) in &self.stream_secrets {
            let device = roster.id(name).ok_or_else(|| {
                Failure::usage(format_args!("--stream-secret: the roster has no device {name}"))
            })?;
            let secret = decode_stream_secret(&text(path)?);
            let secret =
                secret.map_err(|error| Failure::named(Exit::Usage, error.named()).about(path))?;
            secrets.push((device, secret));
        }
        Ok(OpenKeys { grants, secrets })
    }
}

fn identities(path: &Path) -> Result<Unlock, Failure> {
    let unlock = Unlock::identity_file(&text(path)?);
    unlock.map_err(|error| Failure::named(Exit::Usage, error.named()).about(path))
}

/// Reads a file of text that is secret.
fn text(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let bytes = files::read(path)?;
    let text = str::from_utf8(&bytes).map_err(|_| Failure::usage("not UTF-8 text").about(path))?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn rejected(error: OpenError) -> Failure {
    let exit = match error {
        OpenError::Envelope(_) | OpenError::WrongGroup | OpenError::GrantExpired => Exit::Usage,
        _ => Exit::Refused,
    };
    Failure::named(exit, error.named())
}

/// Returns the present, in Unix milliseconds.
fn now_ms() -> Result<u64, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    now.and_then(|now| u64::try_from(now.as_millis()).ok())
        .ok_or_else(|| Failure::new(Exit::Internal, "the clock of this machine is wrong"))
}
