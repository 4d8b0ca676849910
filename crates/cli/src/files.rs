//! Reading keys and rosters, and writing files whole or not at all.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::record::DeviceId;
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_seal::level::SaltKey;
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// No key or roster is larger: 16 MiB hold a hundred thousand devices.
const MAX_FILE: u64 = 16 << 20;

/// Reads a small file.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let fail = |error| Failure::file("read", path, &error);
    let mut file = fs::File::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    if length > MAX_FILE {
        return Err(Failure::usage(format_args!(
            "{} is too large: {length} bytes; is it the right file?",
            path.display()
        )));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(length).unwrap_or_default()));
    Read::by_ref(&mut file).take(MAX_FILE).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.is_empty() {
        return Err(Failure::usage(format_args!("{} is empty", path.display())));
    }
    Ok(bytes)
}

/// Reads a public key.
pub(crate) fn public_key(path: &Path) -> Result<PublicKey, Failure> {
    decode_public_pem(&read(path)?).map_err(|error| {
        Failure::usage(format_args!(
            "{}: {}; a public key file is a PEM like dev1.pub.pem",
            path.display(),
            error.named()
        ))
    })
}

/// Reads a secret key.
pub(crate) fn secret_key(path: &Path) -> Result<SecretKey, Failure> {
    decode_secret_pem(&read(path)?).map_err(|error| {
        Failure::usage(format_args!(
            "{}: {}; a secret key file is a PEM like dev1.key.pem",
            path.display(),
            error.named()
        ))
    })
}

/// Where the salt key of a secret key lies: `dev1.salt.key` beside `dev1.key.pem`.
pub(crate) fn salt_key_path(key: &Path) -> PathBuf {
    let name = key.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    key.with_file_name(format!("{}.salt.key", name.strip_suffix(".key.pem").unwrap_or(name)))
}

/// Reads 32 secret bytes as 64 hexadecimal digits; `what` is what a file of them is called.
pub(crate) fn secret_bytes(path: &Path, what: &str) -> Result<Zeroizing<[u8; 32]>, Failure> {
    let text = read(path)?;
    let mut key = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim_ascii(), &mut *key).map_err(|_| {
        Failure::usage(format_args!(
            "{}: a {what} file holds 64 hexadecimal digits",
            path.display()
        ))
    })?;
    Ok(key)
}

/// Reads a salt key.
pub(crate) fn salt_key(path: &Path) -> Result<SaltKey, Failure> {
    Ok(SaltKey::new(*secret_bytes(path, "salt key")?))
}

/// Reads a link secret: a group's, or one device's.
pub(crate) fn link_secret(path: &Path) -> Result<Zeroizing<[u8; 32]>, Failure> {
    secret_bytes(path, "link secret")
}

/// Reads a roster and checks that the operator signed it.
pub(crate) fn roster(path: &Path, operator: &Path) -> Result<Roster, Failure> {
    let key = public_key(operator)?;
    let bytes = read(path)?;
    Roster::open(&bytes, &key).map_err(|error| match looks_like(&bytes[..bytes.len().min(64)]) {
        Some(like) if !bytes.starts_with(&[0xd2, 0x84]) => Failure::usage(format_args!(
            "{} is not a roster, it looks like {like}; `moteseal roster new` makes one",
            path.display()
        )),
        _ => Failure::refused(format_args!(
            "{}: {} (operator {})",
            path.display(),
            error.named(),
            operator.display()
        )),
    })
}

/// A message with a device's name instead of its id.
pub(crate) fn with_name(roster: &Roster, device: DeviceId, message: &str) -> String {
    roster
        .name(device)
        .map_or_else(|| message.to_owned(), |name| message.replace(&device.to_string(), name))
}

/// What a file seems to be by its first bytes, if it is none of the streams that we write.
pub(crate) fn looks_like(head: &[u8]) -> Option<&'static str> {
    let is_text = || {
        head.iter()
            .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace() || *byte >= 0x80)
    };
    match head {
        [] => None,
        head if head.starts_with(b"-----BEGIN ") => Some("a key (PEM)"),
        // A COSE_Sign1, tagged: spec/formats.md, section 2.2.
        [0xd2, 0x84, ..] => Some("a roster or a certificate"),
        head if head.starts_with(b"PAR1") => Some("a Parquet file"),
        head if head.starts_with(b"redb") => Some("a cloud's store"),
        // No stream of ours begins with a letter.
        [first, ..] if first.is_ascii() && is_text() => Some("a text, such as a CSV"),
        _ => None,
    }
}

/// `; it looks like ...` where a file's first bytes say so.
pub(crate) fn likeness(path: &Path) -> String {
    let mut head = Vec::with_capacity(64);
    let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
    let read = is_file
        && fs::File::open(path).is_ok_and(|file| file.take(64).read_to_end(&mut head).is_ok());
    let like = if read { looks_like(&head) } else { None };
    like.map_or_else(String::new, |like| {
        format!("; this is no bundle or proof, it looks like {like}")
    })
}

/// The devices of these names; every one of the roster where none is named.
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

/// The id of a device of a roster.
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

/// Writes a new file whole or not at all; never over another.
pub(crate) fn create(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    let fail = |error| Failure::file("write", path, &error);
    if path.exists() {
        return Err(Failure::usage(format_args!(
            "{} exists already; remove it or name another file",
            path.display()
        )));
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(fail)?;
    }
    let temporary = beside(path);
    let written = (|| {
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // A link fails where a rename would replace what another process has made meanwhile.
        fs::hard_link(&temporary, path)
    })();
    let _ = fs::remove_file(&temporary);
    written.map_err(fail)
}

/// A name beside `path` for what is not finished yet.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}
