//! The files of an owner: its secrets, and the devices' copies of theirs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_client::start_text;
use moteseal_core::confidential::{ColumnId, StreamSecret};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_device::runner::system_clock;
use moteseal_grant::{MAX_FILE, Owner, OwnerError, OwnerFileError, encode_stream_secret};
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use crate::failure::{Exit, Failure};
use crate::{files, key};

/// A secret and the file for the device's copy of it.
pub(crate) type DeviceCopy = (PathBuf, Zeroizing<String>);

/// The columns of a schema, of which some are encrypted.
#[derive(Args, Debug)]
pub(crate) struct Columns {
    /// A column of the devices' schema, NAME:UNIT:TYPE with its marks, for example
    /// temperature:Cel:i16/100!; ! and !aes encrypt it, and `moteseal seal --help` describes the other
    /// marks. Repeat it for every column, in the order of the schema
    #[arg(long = "column", value_name = "COLUMN")]
    columns: Vec<String>,
}

impl Columns {
    /// Returns whether a column is given.
    pub(crate) fn is_given(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Returns the ids and the names of the encrypted columns.
    ///
    /// # Errors
    /// A usage failure if the columns are not a schema, or if none is encrypted.
    pub(crate) fn encrypted(&self) -> Result<Vec<(ColumnId, String)>, Failure> {
        let mut fields = Vec::with_capacity(self.columns.len());
        for text in &self.columns {
            let field = Field::parse(text);
            fields.push(field.map_err(|error| {
                Failure::named(Exit::Usage, error.named()).of(format_args!("--column {text}"))
            })?);
        }
        let mut buffer = vec![0; MAX_SCHEMA];
        let schema = Schema::encode(&fields, &mut buffer)
            .map_err(|error| Failure::named(Exit::Usage, error.named()).of("--column"))?;
        let columns: Vec<_> = schema
            .encrypted_columns()
            .map(|(field, column)| (column, field.name.to_owned()))
            .collect();
        if columns.is_empty() {
            return Err(Failure::usage(
                "no column is encrypted; mark encrypted columns with !, for example \
                 --column temperature:Cel:i16/100!",
            ));
        }
        Ok(columns)
    }
}

/// Reads an encrypted file: a grant or a backup.
pub(crate) fn read_encrypted(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    read_up_to(path, MAX_FILE)
}

/// Reads a file. Its bytes are erased when they are dropped. A file that is longer than `limit` is
/// read up to a byte more, so that the caller refuses it.
fn read_up_to(path: &Path, limit: usize) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let fail = |error| Failure::file("read", path, &error);
    let file = File::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    let capacity = usize::try_from(length).unwrap_or(limit).min(limit) + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

/// An owner that was read from its file.
pub(crate) struct OwnerFile {
    path: PathBuf,
    /// The file itself, if `path` is a symbolic link.
    target: PathBuf,
    before: Zeroizing<Vec<u8>>,
    pub(crate) owner: Owner,
}

impl OwnerFile {
    /// Reads the file. A symbolic link is resolved first, so that the file itself is replaced later and
    /// not the link. Overwrites and removes the temporary files that commands left when they were killed,
    /// because they can have keys that the owner has forgotten since.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        // The folder may be read-only, and another command may write the file.
        if target.exists()
            && let Ok(lock) = open_lock(&target)
            && lock.try_lock().is_ok()
        {
            moteseal_files::erase_abandoned(&target);
        }
        let before = read_up_to(path, moteseal_grant::MAX_CONTENT)?;
        let owner = Owner::decode(&before).map_err(|error| {
            let failure = Failure::named(Exit::Usage, error.named()).about(path);
            match error {
                OwnerFileError::Decode(_) => failure
                    .with("; this is not an owner's file (NAME.owner)")
                    .with(files::likeness_of(&before)),
                _ => failure,
            }
        })?;
        Ok(Self { path: path.to_owned(), target, before, owner })
    }

    /// Writes the file of a new or restored owner. Never replaces a file.
    pub(crate) fn create(path: &Path, owner: &Owner) -> Result<(), Failure> {
        files::create(path, &encode(owner)?, moteseal_files::PRIVATE)
    }

    /// Returns the devices' copies of their secrets next to the owner's file, of the devices that are chosen
    /// or of all.
    pub(crate) fn copies(&self, roster: &Roster, chosen: Option<&[DeviceId]>) -> Vec<PathBuf> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let devices: BTreeSet<DeviceId> =
            self.owner.streams().iter().map(moteseal_grant::Stream::device).collect();
        let devices =
            devices.into_iter().filter(|id| chosen.is_none_or(|chosen| chosen.contains(id)));
        let names = devices.filter_map(|id| roster.name(id));
        let mut copies: Vec<_> =
            names.map(|name| copy_path(folder, name)).filter(|path| path.exists()).collect();
        copies.sort_unstable();
        copies
    }

    /// Checks that the owner is one of the roster's group.
    pub(crate) fn check_group(&self, roster: &Roster) -> Result<(), Failure> {
        if self.owner.group_name() == roster.group_name() {
            return Ok(());
        }
        let text = format!(
            "the owner is one of group {}, and the roster is that of group {}",
            self.owner.group_name(),
            roster.group_name()
        );
        Err(Failure::usage(text).with_name("WrongGroup").about(&self.path))
    }

    /// Makes a secret for each device. Returns the devices' copies, which [`save`](Self::save) writes.
    ///
    /// # Errors
    /// A usage failure about the owner's file if a device has a secret of the same time or a later one, or
    /// about the copy if there is a file with its name.
    pub(crate) fn add(
        &mut self,
        roster: &Roster,
        devices: &[(&str, DeviceId)],
        from: EpochNumber,
        columns: &[(ColumnId, String)],
        folder: &Path,
    ) -> Result<Vec<DeviceCopy>, Failure> {
        let columns: Vec<_> = columns.iter().map(|(id, name)| (*id, name.as_str())).collect();
        let base = base(roster, from);
        let streams = self.owner.streams().iter();
        let before: Vec<_> = streams.map(|stream| (stream.device(), stream.base())).collect();
        let mut copies = Vec::with_capacity(devices.len());
        for (name, device) in devices {
            let path = copy_path(folder, name);
            let mut bytes = Zeroizing::new([0; 32]);
            key::random(&mut *bytes)?;
            let secret = StreamSecret::new(*bytes, base);
            copies.push((path, encode_stream_secret(*device, &secret)));
            self.owner.add(*device, secret, &columns).map_err(|error| {
                let mut text = error.to_string().replace(&device.to_string(), name);
                let newest = before.iter().rev().find(|(of, _)| of == device);
                if let (OwnerError::BaseNotLater { .. }, Some((_, base))) = (error, newest) {
                    let since =
                        format!("has a secret from {} on already", start_text(roster, *base));
                    text = text.replace("has a secret already", &since);
                }
                Failure::usage(text).with_name(error.name()).about(&self.path)
            })?;
        }
        copies.iter().try_for_each(|(path, _)| files::check_absent(path))?;
        Ok(copies)
    }

    /// Returns whether the owner's file has the content that was read.
    pub(crate) fn is_as_before(&self) -> bool {
        let content = read_up_to(&self.target, moteseal_grant::MAX_CONTENT);
        content.is_ok_and(|content| *content == *self.before)
    }

    /// Replaces the owner's file and overwrites the previous one, unless another process has replaced it in the meantime, and then
    /// writes the devices' copies. A secret is thus never used that the owner does not have.
    pub(crate) fn save(&self, copies: &[DeviceCopy]) -> Result<(), Failure> {
        let after = encode(&self.owner)?;
        if let Some(folder) = copies.first().and_then(|(path, _)| path.parent()) {
            files::create_folder(folder)?;
        }
        // Held until the copies are written.
        let fail = |error: std::io::Error| Failure::file("lock", &self.path, &error);
        let lock = open_lock(&self.target).map_err(fail)?;
        lock.lock().map_err(fail)?;
        moteseal_files::erase_abandoned(&self.target);
        check_one_name(&self.target)?;
        if *read_up_to(&self.target, moteseal_grant::MAX_CONTENT)? != *self.before {
            return Err(Failure::usage(format_args!(
                "{} was changed while this command ran; run the command again",
                self.path.display()
            )));
        }
        moteseal_files::replace_erasing(&self.target, &after, moteseal_files::PRIVATE)
            .map_err(|error| Failure::file("write", &self.path, &error))?;
        let copies: Vec<_> =
            copies.iter().map(|(path, text)| (path.clone(), text.as_bytes())).collect();
        files::create_many(&copies)
    }
}

/// What to do after secrets or columns were added.
pub(crate) const OLD_BACKUPS: &str =
    "backups that were made before do not have them; make a new one: moteseal owner backup";

/// Checks that the file has one name only. Another name would keep the keys that a command erases.
fn check_one_name(path: &Path) -> Result<(), Failure> {
    let fail = |error| Failure::file("read", path, &error);
    if fs::metadata(path).map_err(fail)?.nlink() == 1 {
        return Ok(());
    }
    let what = "the file has another name (a hard link), which would keep what this command replaces; remove the \
                other name: find / -samefile FILE";
    Err(Failure::usage(what).with_name("HardLinked").about(path))
}

/// Opens the file whose lock a command holds while it writes the owner's file.
fn open_lock(path: &Path) -> std::io::Result<File> {
    let mut lock = path.to_owned().into_os_string();
    lock.push(".lock");
    moteseal_files::private().write(true).create(true).truncate(false).open(lock)
}

/// Returns the path of a device's copy of its secret.
pub(crate) fn copy_path(folder: &Path, device: &str) -> PathBuf {
    folder.join(format!("{device}.stream.key"))
}

fn encode(owner: &Owner) -> Result<Zeroizing<Vec<u8>>, Failure> {
    owner.encode().map_err(|error| Failure::named(Exit::Usage, error.named()))
}

/// Returns the base epoch of a secret for readings from `from` on. The keys cover 2^32 epochs; at
/// least half of them are in the future.
fn base(roster: &Roster, from: EpochNumber) -> EpochNumber {
    let now = roster.epoch_of(system_clock());
    from.max(EpochNumber(now.0.saturating_sub(1 << 31)))
}
