//! Reads keys and rosters, and writes files atomically.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

pub(crate) use moteseal_client::input::looks_like;
use moteseal_client::input::{self, LinkSecret};
use moteseal_core::record::DeviceId;
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_seal::level::SaltKey;
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use crate::client_error;
use crate::failure::Failure;
use crate::terminal::diagnostic;

/// Reads a small file.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    input::read(path).map_err(|error| client_error::input(&error))
}

/// Reads a public key.
pub(crate) fn public_key(path: &Path) -> Result<PublicKey, Failure> {
    input::public_key(path).map_err(|error| client_error::input(&error))
}

/// Reads the public key of a device that is to be enrolled, from a public key or a certificate
/// request. A failure names the device and the file.
pub(crate) fn device_public_key(device: &str, path: &Path) -> Result<PublicKey, Failure> {
    input::device_public_key(path).map_err(|error| client_error::input(&error).of(device))
}

/// Reads a secret key.
pub(crate) fn secret_key(path: &Path) -> Result<SecretKey, Failure> {
    input::secret_key(path).map_err(|error| client_error::input(&error))
}

/// Returns the path of the salt key that belongs to a secret key: `dev1.salt.key` next to
/// `dev1.key.pem`.
pub(crate) fn salt_key_path(key: &Path) -> PathBuf {
    let name = key.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    key.with_file_name(format!("{}.salt.key", name.strip_suffix(".key.pem").unwrap_or(name)))
}

/// Reads 32 secret bytes from a file of 64 hexadecimal digits. `what` is the kind of file, for
/// error messages.
pub(crate) fn secret_bytes(path: &Path, what: &str) -> Result<Zeroizing<[u8; 32]>, Failure> {
    input::secret(path, what).map_err(|error| client_error::input(&error))
}

/// Reads a salt key.
pub(crate) fn salt_key(path: &Path) -> Result<SaltKey, Failure> {
    Ok(SaltKey::new(*secret_bytes(path, "salt key")?))
}

/// Reads the link secret of the upper end of a link, or of the lower end if there is a `child`.
pub(crate) fn link_secret(
    path: &Path,
    roster: &Roster,
    child: Option<DeviceId>,
) -> Result<LinkSecret, Failure> {
    LinkSecret::read(path, roster, child).map_err(|error| client_error::input(&error))
}

/// Checks that a querier's key is the one that the roster names, if it names one.
pub(crate) fn check_querier(roster: &Roster, key: &PublicKey) -> Result<(), Failure> {
    input::check_querier(roster, key).map_err(|error| client_error::input(&error))
}

/// Returns the key of the group's querier: the key that the roster names, or `named`, the key in the
/// file `path`, if the roster names none. Prints a note if the two differ.
pub(crate) fn querier(roster: &Roster, named: PublicKey, path: &Path) -> PublicKey {
    match roster.querier() {
        None => named,
        Some(querier) if *querier == named => named,
        Some(querier) => {
            diagnostic(format_args!(
                "{}: version {} of the roster names another querier, whose queries are answered; if \
                 `moteseal roster set --querier` did not change the querier, make the keys again",
                path.display(),
                roster.version()
            ));
            querier.clone()
        }
    }
}

/// Reads a roster and checks that the operator signed it.
pub(crate) fn roster(path: &Path, operator: &Path) -> Result<Roster, Failure> {
    input::roster(path, operator).map_err(|error| client_error::input(&error))
}

/// Returns `; ... it looks like ...` if the file's first bytes show which kind of file it is,
/// otherwise an empty string.
pub(crate) fn likeness(path: &Path) -> String {
    let mut head = Vec::with_capacity(64);
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let read = is_file
        && fs::File::open(path).is_ok_and(|file| file.take(64).read_to_end(&mut head).is_ok());
    let like = if read { looks_like(&head) } else { None };
    like.map_or_else(String::new, |like| {
        format!("; this is not a bundle or proof; it looks like {like}")
    })
}

/// Returns `; it looks like ...` if the first bytes show which kind of file it is, otherwise an empty
/// string.
pub(crate) fn likeness_of(bytes: &[u8]) -> String {
    let like = looks_like(&bytes[..bytes.len().min(64)]);
    like.map_or_else(String::new, |like| format!("; it looks like {like}"))
}

/// Returns the devices with these names, or all devices of the roster if `names` is empty.
pub(crate) fn devices(
    roster: &Roster,
    path: &Path,
    names: &[String],
) -> Result<Vec<DeviceId>, Failure> {
    if names.is_empty() {
        return Ok(roster.devices().map(|device| device.id).collect());
    }
    names.iter().map(|name| device(roster, path, name)).collect()
}

/// Returns the id of a device of a roster.
pub(crate) fn device(roster: &Roster, path: &Path, name: &str) -> Result<DeviceId, Failure> {
    roster.id(name).ok_or_else(|| {
        let mut names: Vec<&str> = roster.devices().map(|device| device.name.as_str()).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(8);
        names.truncate(8);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Failure::usage(format_args!(
            "UnknownDevice: {} has no device {name:?}; it has {}{more}",
            path.display(),
            names.join(", ")
        ))
    })
}

/// Writes a new file, completely or not at all. Never replaces a file.
pub(crate) fn create(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let fail = |error| Failure::file("write", path, &error);
    check_absent(path)?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let created = if mode == moteseal_files::PRIVATE {
            moteseal_files::create_folder(folder)
        } else {
            fs::create_dir_all(folder)
        };
        created.map_err(fail)?;
    }
    input::create(path, bytes, mode).map_err(|error| client_error::input(&error))
}

/// Checks that there is no file with this name.
pub(crate) fn check_absent(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Err(Failure::usage(format_args!(
            "{} already exists; remove it or name another file",
            path.display()
        )));
    }
    Ok(())
}

/// Creates a folder that only its owner may use, unless it exists.
pub(crate) fn create_folder(folder: &Path) -> Result<(), Failure> {
    moteseal_files::create_folder(folder).map_err(|error| Failure::file("create", folder, &error))
}

/// Writes new files that only their owner may read, much faster than [`create`] for each. Never
/// replaces a file. If writing fails, some of the files may exist.
pub(crate) fn create_many(files: &[(PathBuf, &[u8])]) -> Result<(), Failure> {
    let files: Vec<_> = files
        .iter()
        .map(|(path, bytes)| (path.as_path(), *bytes, moteseal_files::PRIVATE))
        .collect();
    moteseal_files::create_many(&files)
        .map_err(|(path, error)| Failure::file("write", &path, &error))
}
