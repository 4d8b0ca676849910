//! The keys of encrypted columns in files: grants, and the stream secrets of devices.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use moteseal_api::ErrorKind;
use moteseal_core::confidential::StreamSecret;
use moteseal_core::record::DeviceId;
use moteseal_grant::{
    MAX_FILE, OpenError, OpenGrant, Passphrase, Unlock, decode_stream_secret, needs_passphrase,
};
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use super::{DeviceKeys, KeySet};
use crate::input::{self, InputError};

/// The files from which a reader takes the keys of encrypted columns.
#[derive(Clone, Debug, Default)]
pub struct ColumnKeyFiles {
    /// The grants.
    pub grants: Vec<PathBuf>,
    /// The file with the reader's age identities, which open the grants.
    pub identity: Option<PathBuf>,
    /// The passphrase of the grants that were made for one.
    pub passphrase: Option<Passphrase>,
    /// For an owner: the names of devices, and the files with their stream secrets.
    pub stream_secrets: Vec<(String, PathBuf)>,
}

/// The keys in [`ColumnKeyFiles`]. `Debug` prints no key.
#[derive(Debug)]
pub struct OpenKeys {
    grants: Vec<OpenGrant>,
    secrets: Vec<(DeviceId, StreamSecret)>,
}

impl OpenKeys {
    /// Adds a grant.
    pub fn add(&mut self, grant: OpenGrant) {
        self.grants.push(grant);
    }

    /// Returns the keys as one source, or `None` if there are none.
    #[must_use]
    pub fn set(&self) -> Option<KeySet<'_>> {
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

impl ColumnKeyFiles {
    /// Returns the files that are read. No output may replace them.
    pub fn read(&self) -> impl Iterator<Item = &PathBuf> {
        let secrets = self.stream_secrets.iter().map(|(_, path)| path);
        self.grants.iter().chain(&self.identity).chain(secrets)
    }

    /// Reads the keys. The grants must be valid now, and signed by an owner in the roster.
    ///
    /// # Errors
    /// [`InputError`] about a file that cannot be used, with the name of the error that
    /// [`OpenGrant::open`], [`Unlock::identity_file`] or [`decode_stream_secret`] returned;
    /// `UnknownDevice` if the roster does not have the device of a stream secret; `OtherDevice` if the
    /// secret is that of another device.
    pub fn open(&self, roster: &Roster) -> Result<OpenKeys, InputError> {
        let identities = self.identity.as_deref().map(identities).transpose()?;
        let passphrase = self.passphrase.clone().map(Unlock::Passphrase);
        let mut grants = Vec::new();
        for path in &self.grants {
            let bytes = input::read_up_to(path, MAX_FILE as u64)?;
            let needs_passphrase = needs_passphrase(&bytes)
                .map_err(|error| rejected(OpenError::Envelope(error)).in_file(path))?;
            let (unlock, what) = if needs_passphrase {
                (&passphrase, "it is encrypted with a passphrase; give the passphrase")
            } else {
                (&identities, "it is encrypted for an identity; give the file of your identities")
            };
            let unlock = unlock
                .as_ref()
                .ok_or_else(|| InputError::usage("OtherKeyKind", what).in_file(path))?;
            let grant = OpenGrant::open(&bytes, unlock, roster, now_ms()?);
            grants.push(grant.map_err(|error| rejected(error).in_file(path))?);
        }
        let mut secrets = Vec::new();
        for (name, path) in &self.stream_secrets {
            let device = roster.id(name).ok_or_else(|| {
                let what = format_args!("the roster has no device {name:?}");
                InputError::usage("UnknownDevice", what).at("stream secret")
            })?;
            let bytes = input::read(path)?;
            let secret = decode_stream_secret(str::from_utf8(&bytes).unwrap_or_default());
            let (of, secret) = secret.map_err(|error| {
                let what = "not a stream secret; name the file NAME.stream.key, which `moteseal owner add` \
                            and `moteseal owner copy` write";
                InputError::usage(error.name(), what).in_file(path)
            })?;
            if of != device {
                let of = roster.name(of).unwrap_or("a device that the roster does not have");
                let what = format_args!("it is the secret of {of}, not of {name}");
                return Err(InputError::usage("OtherDevice", what).in_file(path));
            }
            secrets.push((device, secret));
        }
        Ok(OpenKeys { grants, secrets })
    }
}

fn identities(path: &Path) -> Result<Unlock, InputError> {
    let unlock = Unlock::identity_file(&text(path)?);
    unlock.map_err(|error| InputError::usage(error.name(), error).in_file(path))
}

/// Reads a file of text that is secret.
fn text(path: &Path) -> Result<Zeroizing<String>, InputError> {
    let bytes = input::read(path)?;
    let text = str::from_utf8(&bytes);
    let text = text.map_err(|_| InputError::file("not UTF-8 text").in_file(path))?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn rejected(error: OpenError) -> InputError {
    let kind = match error {
        OpenError::Envelope(_) | OpenError::WrongGroup => ErrorKind::Usage,
        _ => ErrorKind::Refused,
    };
    InputError::new(error.name(), kind, error)
}

/// Returns the present, in Unix milliseconds.
fn now_ms() -> Result<u64, InputError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    now.and_then(|now| u64::try_from(now.as_millis()).ok())
        .ok_or_else(|| InputError::internal("the clock of this machine is wrong"))
}
