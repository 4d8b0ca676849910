//! Reads the files that a client needs: rosters, keys and configurations. Its errors name the file
//! and state what to do.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use moteseal_api::ErrorKind;
use moteseal_core::identity::{decode_public_pem, decode_request_pem, decode_secret_pem};
use moteseal_core::link::LinkKey;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::{KeyError, PublicKey, SecretKey};
use moteseal_verify::Roster;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

/// The maximum length of a key, roster or configuration in bytes. A roster of 32 MiB has almost two hundred
/// thousand devices.
const MAX_FILE: u64 = 32 << 20;
/// The name of an error about a file, for errors without a more specific name in `spec/errors.md`.
const BAD_FILE: &str = "BadFile";
/// The name of an error about an argument, for errors without a more specific name in
/// `spec/errors.md`.
const BAD_ARGUMENT: &str = "UsageError";
/// The first bytes of a certificate request (PEM).
const REQUEST_HEADS: [&[u8]; 2] =
    [b"-----BEGIN CERTIFICATE REQUEST-----", b"-----BEGIN NEW CERTIFICATE REQUEST-----"];

/// The first bytes of an encrypted file in the age format, and of its text form.
const ENCRYPTED_HEADS: [&[u8]; 2] = [b"age-encryption.org/", b"-----BEGIN AGE ENCRYPTED FILE-----"];

/// The error for a file or a value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{sentence}", self.prefix())]
pub struct InputError {
    place: Vec<String>,
    name: String,
    kind: ErrorKind,
    sentence: String,
    column: Option<usize>,
}

impl InputError {
    pub(crate) fn new(name: &str, kind: ErrorKind, sentence: impl Display) -> Self {
        Self {
            place: Vec::new(),
            name: name.to_owned(),
            kind,
            sentence: sentence.to_string(),
            column: None,
        }
    }

    /// Creates the error for an argument that the caller must change.
    pub(crate) fn argument(sentence: impl Display) -> Self {
        Self::new(BAD_ARGUMENT, ErrorKind::Usage, sentence)
    }

    /// Creates the error called `name`, whose cause the caller must correct.
    pub(crate) fn usage(name: &str, sentence: impl Display) -> Self {
        Self::new(name, ErrorKind::Usage, sentence)
    }

    /// Creates the error for a failure of the machine.
    pub(crate) fn internal(sentence: impl Display) -> Self {
        Self::new("Failed", ErrorKind::Internal, sentence)
    }

    /// Creates the error for a file that cannot be used. `sentence` is the whole message.
    pub(crate) fn file(sentence: impl Display) -> Self {
        Self::new(BAD_FILE, ErrorKind::Usage, sentence)
    }

    /// Creates the error for a file that cannot be read or written. Its kind is
    /// [`Usage`](ErrorKind::Usage) if the path is wrong, and [`Internal`](ErrorKind::Internal)
    /// otherwise.
    pub(crate) fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::IsADirectory => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        };
        let sentence = format_args!("cannot {action} {}: {error}", path.display());
        Self::new(if action == "write" { "OutputFailed" } else { BAD_FILE }, kind, sentence)
    }

    /// Puts the place of the error before the message: a file, or a key of a configuration.
    pub(crate) fn at(mut self, place: impl Display) -> Self {
        self.place.insert(0, place.to_string());
        self
    }

    pub(crate) fn in_file(self, path: &Path) -> Self {
        self.at(path.display())
    }

    pub(crate) const fn column_at(mut self, column: usize) -> Self {
        self.column = Some(column);
        self
    }

    fn prefix(&self) -> String {
        self.place.iter().map(|place| format!("{place}: ")).collect()
    }

    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the place of the error, from the outermost to the innermost part: a file, then a key
    /// of a configuration.
    #[must_use]
    pub fn place(&self) -> &[String] {
        &self.place
    }

    /// Returns what happened and what to do, without the place and the name.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// Returns whether the name is a general one, which adds nothing to the message.
    #[must_use]
    pub fn is_general(&self) -> bool {
        matches!(&*self.name, BAD_FILE | BAD_ARGUMENT | "OutputFailed" | "Failed")
    }

    /// Returns the message with the name of the error after the place: `keys: WrongRoster: ...`.
    /// General names, which add nothing to the message, are left out.
    #[must_use]
    pub fn line(&self) -> String {
        if self.is_general() {
            return self.to_string();
        }
        format!("{}{}: {}", self.prefix(), self.name, self.sentence)
    }

    /// Returns the position of the mistake in the text of a query, in characters from 1.
    #[must_use]
    pub const fn column(&self) -> Option<usize> {
        self.column
    }
}

/// Reads a file, which must not be empty or larger than 32 MiB. The returned bytes are erased when
/// dropped.
///
/// # Errors
/// [`InputError`] if the file cannot be read, is empty or is too large.
pub fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, InputError> {
    read_up_to(path, MAX_FILE)
}

/// Reads a file, which must not be empty or larger than `limit` bytes, like [`read`].
pub(crate) fn read_up_to(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, InputError> {
    let fail = |error: io::Error| InputError::io("read", path, &error);
    let file = File::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len().min(limit);
    // Allocate enough memory at the start, because a vector that grows leaves copies of a key in
    // memory.
    let length = usize::try_from(length).unwrap_or_default() + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(length));
    file.take(limit + 1).read_to_end(&mut bytes).map_err(fail)?;
    match bytes.len() as u64 {
        0 => Err(InputError::file(format_args!("{} is empty", path.display()))),
        length if length <= limit => Ok(bytes),
        _ => Err(InputError::file(format_args!(
            "{} is larger than {limit} bytes; is it the right file?",
            path.display()
        ))),
    }
}

/// Reads a public key (PEM).
///
/// # Errors
/// [`InputError`] if the file cannot be read or is not a public key.
pub fn public_key(path: &Path) -> Result<PublicKey, InputError> {
    decode_public_pem(&read(path)?).map_err(|error| {
        let what = format_args!("{error}; a public key file is a PEM like dev1.pub.pem");
        InputError::usage(error.name(), what).in_file(path)
    })
}

/// Reads the public key of a device that is to be enrolled, from a public key or a certificate
/// request (PEM). The label of the PEM block determines which of them it is. The signature of a
/// request is verified: it shows that the maker of the request has the secret key.
///
/// # Errors
/// [`InputError`] if the file cannot be read, is neither a public key nor a certificate request, or
/// is a request that is not signed with its own key.
pub fn device_public_key(path: &Path) -> Result<PublicKey, InputError> {
    let pem = read(path)?;
    let key = match decode_public_pem(&pem) {
        Err(KeyError::WrongPemLabel) => decode_request_pem(&pem),
        key => key,
    };
    key.map_err(|error| {
        let what = match error {
            KeyError::MalformedRequest
            | KeyError::RequestTooLong
            | KeyError::AlgorithmMismatch
            | KeyError::RequestNotAuthentic => error.to_string(),
            _ => format!(
                "{error}; give the device's public key or its certificate request in PEM, like dev1.pub.pem"
            ),
        };
        InputError::usage(error.name(), what).in_file(path)
    })
}

/// Reads a secret key (PEM).
///
/// # Errors
/// [`InputError`] if the file cannot be read or is not a secret key.
pub fn secret_key(path: &Path) -> Result<SecretKey, InputError> {
    decode_secret_pem(&read(path)?).map_err(|error| {
        let what = format_args!("{error}; a secret key file is a PEM like dev1.key.pem");
        InputError::usage(error.name(), what).in_file(path)
    })
}

/// Reads the public key from a file that contains either a secret or a public key.
///
/// # Errors
/// [`InputError`] if the file cannot be read or is not a key.
pub fn public_half(path: &Path) -> Result<PublicKey, InputError> {
    match decode_secret_pem(&read(path)?) {
        Ok(secret) => Ok(secret.public()),
        Err(_) => public_key(path),
    }
}

/// Reads 32 secret bytes from a file with 64 hexadecimal digits. Error messages call the file "a
/// `what` file".
///
/// # Errors
/// [`InputError`] if the file cannot be read or contains something else.
pub fn secret(path: &Path, what: &str) -> Result<Zeroizing<[u8; 32]>, InputError> {
    let text = read(path)?;
    let mut secret = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim_ascii(), &mut *secret).map_err(|_| {
        InputError::file(format_args!("a {what} file must contain 64 hexadecimal digits"))
            .in_file(path)
    })?;
    Ok(secret)
}

/// A link secret, and what its file states about it.
#[derive(Clone, Debug)]
pub struct LinkSecret {
    bytes: Zeroizing<[u8; 32]>,
    /// The name of the secret that the parent at the upper end of the link keeps, if it is known.
    parent: Option<String>,
}

impl LinkSecret {
    /// Reads a link secret from a file. `child` is the device or gateway at the lower end of the
    /// link if the file belongs there; the file of the upper end contains the secret from which the
    /// secrets of all children are derived.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be read or contains something else, or `WrongDevice` if the
    /// file states that it belongs to another child or end.
    pub fn read(path: &Path, roster: &Roster, child: Option<DeviceId>) -> Result<Self, InputError> {
        let text = read(path)?;
        let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let malformed = || {
            let what = "a link secret file must contain 64 hexadecimal digits, and then at most one line `for GROUP/CHILD of SECRET`";
            InputError::file(what).in_file(path)
        };
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(lines.next().unwrap_or_default(), &mut *bytes)
            .map_err(|_| malformed())?;
        let mut lines = lines.filter(|line| !line.is_empty());
        let (line, more) = (lines.next(), lines.next());
        if more.is_some() {
            return Err(malformed());
        }
        let wrong = |what: &dyn Display| InputError::usage("WrongDevice", what).in_file(path);
        let Some(line) = line else {
            let parent = child.is_none().then(|| hex::encode(LinkKey::name_of(&bytes)));
            return Ok(Self { bytes, parent });
        };
        let line = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("for "));
        let (whose, parent) =
            line.and_then(|line| line.split_once(" of ")).ok_or_else(malformed)?;
        let whose = whose.split_once('/').and_then(|(group, id)| {
            let (mut whose, mut of) = ([0; 8], [0; 8]);
            hex::decode_to_slice(group, &mut of).ok()?;
            hex::decode_to_slice(id, &mut whose).ok()?;
            Some((GroupId(of), DeviceId(whose)))
        });
        let (group, id) = whose.ok_or_else(malformed)?;
        let name = roster.name(id).map_or_else(|| format!("the child {id}"), str::to_owned);
        match child {
            None => Err(wrong(&format_args!(
                "this is the link secret of {name}; the upper end of a link needs the secret from which `moteseal key link` derived it"
            ))),
            Some(_) if group != roster.group() => Err(wrong(
                &"this link secret is for another group; derive one with `moteseal key link` and this group's roster",
            )),
            Some(child) if child != id => {
                let own = roster.name(child).map_or_else(|| child.to_string(), str::to_owned);
                Err(wrong(&format_args!(
                    "this is the link secret of {name}; derive the secret of {own} with `moteseal key link`"
                )))
            }
            Some(_) => Ok(Self { bytes, parent: Some(parent.to_owned()) }),
        }
    }

    /// Reads the link secret of a child, and the child that its file names.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be read, contains something else, or does not name a child.
    pub fn of_child(path: &Path) -> Result<(DeviceId, Self), InputError> {
        let text = read(path)?;
        let malformed = || {
            let what = "this must be the link secret of a device: 64 hexadecimal digits, and then a line `for GROUP/CHILD of SECRET`; derive it with `moteseal key link --device`";
            InputError::file(what).in_file(path)
        };
        let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(lines.next().unwrap_or_default(), &mut *bytes)
            .map_err(|_| malformed())?;
        let line = lines.next().and_then(|line| std::str::from_utf8(line).ok());
        let (whose, parent) = line
            .and_then(|line| line.strip_prefix("for ")?.split_once(" of "))
            .ok_or_else(malformed)?;
        let mut device = [0; 8];
        let id = whose.split_once('/').map_or("", |(_, id)| id);
        hex::decode_to_slice(id, &mut device).map_err(|_| malformed())?;
        Ok((DeviceId(device), Self { bytes, parent: Some(parent.to_owned()) }))
    }

    /// Derives the secret of a child.
    #[must_use]
    pub fn of(parent: &Self, group: GroupId, child: DeviceId) -> Self {
        let name = hex::encode(LinkKey::name_of(parent));
        Self { bytes: LinkKey::secret_of(parent, group, child), parent: Some(name) }
    }

    /// Returns the contents of the file of a secret that was derived for a child.
    #[must_use]
    pub fn derived_file(parent: &Self, roster: &Roster, child: DeviceId) -> Zeroizing<String> {
        let secret = LinkKey::secret_of(parent, roster.group(), child);
        let name = hex::encode(LinkKey::name_of(parent));
        Zeroizing::new(format!(
            "{}\nfor {}/{child} of {name}\n",
            hex::encode(*secret),
            roster.group()
        ))
    }

    /// Returns the secret.
    #[must_use]
    pub fn into_bytes(self) -> Zeroizing<[u8; 32]> {
        self.bytes
    }

    /// Returns the name of the secret at the upper end of the link. Both ends of a link have the
    /// same name. `None` if the file of the lower end does not state it.
    #[must_use]
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }
}

impl std::ops::Deref for LinkSecret {
    type Target = [u8; 32];

    fn deref(&self) -> &[u8; 32] {
        &self.bytes
    }
}

/// Checks that a querier's key is the one that the roster names, if it names one.
///
/// # Errors
/// [`InputError`] `WrongQuerier`.
pub fn check_querier(roster: &Roster, key: &PublicKey) -> Result<(), InputError> {
    if roster.querier().is_none_or(|listed| listed == key) {
        return Ok(());
    }
    let what = "this is not the key of the querier in the roster; use that key, or name this one with `moteseal roster set --querier`";
    Err(InputError::usage("WrongQuerier", what))
}

/// Reads a TOML file. Errors name the line, and refer to `docs`, the document that lists the keys
/// of the file.
///
/// # Errors
/// [`InputError`] if the file cannot be read, or its contents do not match `T`.
pub fn toml<T: DeserializeOwned>(path: &Path, docs: &str) -> Result<T, InputError> {
    let text = read(path)?;
    let text =
        std::str::from_utf8(&text).map_err(|_| InputError::file("not UTF-8 text").in_file(path))?;
    toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let message = error.message().replace('\n', " ");
        InputError::file(format_args!("{message}; {docs} lists all keys"))
            .at(format_args!("{}:{line}", path.display()))
    })
}

/// Reads a roster, and verifies that the operator signed it.
///
/// # Errors
/// [`InputError`] if a file cannot be read, is not a roster, or is not signed by the operator.
pub fn roster(path: &Path, operator: &Path) -> Result<Roster, InputError> {
    let key = public_key(operator)?;
    let bytes = read(path)?;
    Roster::open(&bytes, &key).map_err(|error| {
        let head = &bytes[..bytes.len().min(64)];
        let what = match looks_like(head) {
            // A file with these first bytes is a tagged COSE_Sign1, like every roster
            // (spec/objects.md, section 4).
            _ if head.starts_with(&[0xd2, 0x84]) => {
                let what = format_args!("{error} (operator {})", operator.display());
                return InputError::new(error.name(), ErrorKind::Refused, what).in_file(path);
            }
            Some(like) => format!("is not a roster; it looks like {like}"),
            None => "is not a roster".to_owned(),
        };
        InputError::file(format_args!("{} {what}; `moteseal roster new` makes one", path.display()))
    })
}

/// Returns the kind of file that the first bytes of a file indicate. Returns `None` for a Moteseal
/// stream and for an unknown kind.
#[must_use]
pub fn looks_like(head: &[u8]) -> Option<&'static str> {
    let is_text = || {
        head.iter()
            .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace() || *byte >= 0x80)
    };
    match head {
        [] => None,
        head if REQUEST_HEADS.iter().any(|begin| head.starts_with(begin)) => {
            Some("a certificate request (PEM)")
        }
        head if ENCRYPTED_HEADS.iter().any(|begin| head.starts_with(begin)) => {
            Some("a grant (`moteseal grant show`) or a backup (`moteseal owner restore`)")
        }
        head if head.starts_with(b"AGE-SECRET-KEY-") || head.starts_with(b"# created: ") => {
            Some("an age identity")
        }
        head if head.len() >= 64 && head[..64].iter().all(u8::is_ascii_hexdigit) => {
            Some("a secret, such as NAME.salt.key or NAME.stream.key")
        }
        head if head.starts_with(b"-----BEGIN ") => Some("a key (PEM)"),
        // A tagged COSE_Sign1 (spec/objects.md, section 4).
        [0xd2, 0x84, ..] => Some("a roster or a certificate"),
        head if head.starts_with(b"PAR1") => Some("a Parquet file"),
        head if head.starts_with(b"redb") => Some("a cloud's store"),
        // No stream of Moteseal begins with a letter.
        [first, ..] if first.is_ascii() && is_text() => Some("a text, such as a CSV"),
        _ => None,
    }
}

/// Creates a file with the Unix mode `mode`. Writes it completely or not at all, and never replaces
/// a file.
///
/// # Errors
/// [`InputError`] if a file with this name exists, or if the file cannot be written.
pub fn create(path: &Path, bytes: &[u8], mode: u32) -> Result<(), InputError> {
    moteseal_files::create(path, bytes, mode).map_err(|error| InputError::io("write", path, &error))
}
