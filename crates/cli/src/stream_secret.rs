//! The secret of a device's stream, from which the keys of its encrypted columns are derived.

use std::path::{Path, PathBuf};

use moteseal_core::confidential::{KeyAccessError, Path as ColumnPath, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber, Scheme};
use moteseal_core::schema::Schema;
use moteseal_device::column_keys::path_of;
use moteseal_device::{Outbox, OutboxError, Profile};
use moteseal_grant::decode_stream_secret;
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::terminal::diagnostic;

/// Reads a device's copy of its stream secret.
fn read(path: &Path, device: DeviceId) -> Result<StreamSecret, Failure> {
    let bytes = Zeroizing::new(files::read(path)?);
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let (of, secret) = decode_stream_secret(text).map_err(|_| {
        Failure::usage(format_args!(
            "{} is not the stream secret of a device; `moteseal owner add` makes one, NAME.stream.key, and \
             `moteseal owner copy` writes it again",
            path.display()
        ))
    })?;
    if of != device {
        let text = format_args!(
            "{} is the stream secret of the device with the id {of}; this device has the id {device}, and its \
             owner could not read what it encrypts",
            path.display()
        );
        return Err(Failure::usage(text).with_name("OtherDevice"));
    }
    Ok(secret)
}

/// The key of the configuration that names a device's stream secret.
pub(crate) const IN_CONFIGURATION: &str = "stream_secret";

/// Where a device's stream secret is.
#[derive(Clone, Copy)]
pub(crate) struct OwnSecret<'a> {
    /// The file. It may be missing if the device has the keys of its columns.
    pub(crate) path: Option<&'a Path>,
    /// The option, or the key of the configuration, that names the file.
    pub(crate) named: &'static str,
    /// The device.
    pub(crate) device: DeviceId,
}

impl OwnSecret<'_> {
    fn exists(self) -> Option<PathBuf> {
        self.path.filter(|path| path.exists()).map(Path::to_owned)
    }

    /// Warns about a file that a device no longer needs. A command that seals a table is run where the
    /// secret is kept.
    fn warn(self, path: &Path) {
        if self.named == IN_CONFIGURATION {
            let path = path.display();
            diagnostic(format_args!(
                "{path}: the device has derived its keys, and a thief of this file can read everything that \
                 the device has encrypted with it; remove it: shred -u {path}"
            ));
        }
    }

    /// Returns the failure of a device that has no keys for its encrypted columns.
    fn missing(self, schema: &Schema<'_>) -> Failure {
        let columns = schema.encrypted_columns().map(|(field, _)| field.name.to_owned());
        let columns = columns.collect::<Vec<_>>().join(", ");
        let named = self.named;
        let what = match self.path {
            Some(path) => format!("{} does not exist", path.display()),
            None => format!("there is no {named}"),
        };
        Failure::usage(format_args!(
            "the device encrypts {columns}, and {what}: name the secret of the device's stream, which \
             `moteseal owner add` makes"
        ))
        .with_name("NoStreamSecret")
    }

    /// Checks, before anything is opened, that the device can get the keys of its encrypted columns.
    /// `chain` is the state of its chain.
    pub(crate) fn check(self, schema: &Schema<'_>, chain: &Path) -> Result<(), Failure> {
        if schema.encrypted_count() == 0 {
            return self.check_absent();
        }
        match self.exists() {
            Some(path) => read(&path, self.device).map(drop),
            None if path_of(chain).exists() => Ok(()),
            None => Err(self.missing(schema)),
        }
    }

    /// Checks that there is no secret, because no column is encrypted.
    fn check_absent(self) -> Result<(), Failure> {
        let what = "there is a stream secret, and no column is encrypted; mark the columns to encrypt \
                    with ! at their end, or leave the secret out";
        self.path.map_or(Ok(()), |_| Err(Failure::usage(what)))
    }

    /// Returns the keys of the encrypted columns from an epoch on, or from the base epoch of the secret if
    /// that is later.
    pub(crate) fn keys_from(
        self,
        schema: &Schema<'_>,
        epoch: EpochNumber,
    ) -> Result<Vec<ColumnPath>, Failure> {
        if schema.encrypted_count() == 0 {
            return self.check_absent().map(|()| Vec::new());
        }
        let secret = read(&self.exists().ok_or_else(|| self.missing(schema))?, self.device)?;
        let epoch = epoch.max(secret.base());
        let columns = schema.encrypted_columns();
        let paths = columns.map(|(_, column)| ColumnPath::new(&secret.column(column), epoch));
        let paths: Result<_, _> = paths.collect();
        paths.map_err(|error: KeyAccessError| Failure::named(Exit::Usage, error.named()))
    }

    /// Returns the profile of the device with a name and a scheme, with the keys of its encrypted
    /// columns.
    pub(crate) fn profile(
        self,
        outbox: &Outbox,
        roster: &Roster,
        (name, scheme): (&str, Scheme),
        schema: &Schema<'_>,
    ) -> Result<Profile, Failure> {
        let secret = match self.exists() {
            Some(path) if schema.encrypted_count() > 0 => Some(read(&path, self.device)?),
            _ => None,
        };
        let keys = outbox.column_keys(schema, secret.as_ref());
        if let (Ok(Some(_)), Some(path)) = (&keys, self.exists()) {
            self.warn(&path);
        }
        let profile = match keys {
            Ok(Some(keys)) => Profile::with_columns(roster, name, scheme, schema, keys),
            Ok(None) => Profile::new(roster, name, scheme, schema),
            Err(OutboxError::NoStreamSecret(_)) => return Err(self.missing(schema)),
            Err(error) => return Err(error.into()),
        };
        profile.map_err(|error| Failure::named(Exit::Usage, error.named()))
    }
}
