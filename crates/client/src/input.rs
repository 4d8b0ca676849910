//! Reads the files that a client needs (roster, keys, configuration), with errors that name the
//! file and the remedy.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::identity::{decode_public_pem, decode_secret_pem};
use moteseal_core::signature::{PublicKey, SecretKey};
use moteseal_verify::Roster;
use zeroize::Zeroizing;

/// The longest key, roster or configuration in bytes: 16 MiB hold a hundred thousand devices.
const MAX_FILE: u64 = 16 << 20;
/// The name of an error of a file that has no name of its own in `spec/errors.md`.
const BAD_FILE: &str = "BadFile";
/// The name of an error of an argument that has no name of its own in `spec/errors.md`.
const BAD_ARGUMENT: &str = "UsageError";

/// A file or a value that cannot be used.
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
        let sentence = sentence.to_string();
        // Some errors of other crates begin with their name.
        let sentence = sentence
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(": "))
            .map_or_else(|| sentence.clone(), str::to_owned);
        Self { place: Vec::new(), name: name.to_owned(), kind, sentence, column: None }
    }

    /// An argument that the caller must change.
    pub(crate) fn argument(sentence: impl Display) -> Self {
        Self::new(BAD_ARGUMENT, ErrorKind::Usage, sentence)
    }

    /// A named error that the caller must fix.
    pub(crate) fn usage(name: &str, sentence: impl Display) -> Self {
        Self::new(name, ErrorKind::Usage, sentence)
    }

    /// An error of the machine.
    pub(crate) fn internal(sentence: impl Display) -> Self {
        Self::new("Failed", ErrorKind::Internal, sentence)
    }

    /// A file that cannot be used, for a reason that `sentence` gives in full.
    pub(crate) fn file(sentence: impl Display) -> Self {
        Self::new(BAD_FILE, ErrorKind::Usage, sentence)
    }

    /// A file that cannot be read or written: the caller's mistake if the path is wrong.
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

    /// Adds what the error is about in front of the message: a file, or a key of a configuration.
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

    /// The stable name of the error (`spec/errors.md`).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the caller does next.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message with the name of the error after the place: `keys: WrongRoster: ...`. Names that
    /// only say that a file or an argument is wrong are left out.
    #[must_use]
    pub fn line(&self) -> String {
        match self.name.as_str() {
            BAD_FILE | BAD_ARGUMENT | "OutputFailed" | "Failed" => self.to_string(),
            name => format!("{}{name}: {}", self.prefix(), self.sentence),
        }
    }

    /// The place of the mistake in the text of a query, in characters from 1.
    #[must_use]
    pub const fn column(&self) -> Option<usize> {
        self.column
    }
}

/// Reads a file of at most 16 MiB, which must not be empty. The bytes are erased when dropped.
///
/// # Errors
/// [`InputError`] if it cannot be read, is empty or too large.
pub fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, InputError> {
    let fail = |error: io::Error| InputError::io("read", path, &error);
    let file = File::open(path).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len().min(MAX_FILE);
    // Enough room from the start: a vector that grows leaves copies of a key behind.
    let length = usize::try_from(length).unwrap_or_default() + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(length));
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(fail)?;
    match bytes.len() as u64 {
        0 => Err(InputError::file(format_args!("{} is empty", path.display()))),
        1..=MAX_FILE => Ok(bytes),
        _ => Err(InputError::file(format_args!(
            "{} is larger than {MAX_FILE} bytes; is it the right file?",
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

/// Reads the public half of a key from a file that has either half.
///
/// # Errors
/// [`InputError`] if the file cannot be read or is not a key.
pub fn public_half(path: &Path) -> Result<PublicKey, InputError> {
    match decode_secret_pem(&read(path)?) {
        Ok(secret) => Ok(secret.public()),
        Err(_) => public_key(path),
    }
}

/// Reads a link secret: 64 hexadecimal digits.
///
/// # Errors
/// [`InputError`] if the file cannot be read or contains something else.
pub fn link_secret(path: &Path) -> Result<Zeroizing<[u8; 32]>, InputError> {
    let text = read(path)?;
    let mut secret = Zeroizing::new([0; 32]);
    hex::decode_to_slice(text.trim_ascii(), &mut *secret).map_err(|_| {
        InputError::file("a link secret file holds 64 hexadecimal digits").in_file(path)
    })?;
    Ok(secret)
}

/// Reads a roster, and verifies that the operator signed it.
///
/// # Errors
/// [`InputError`] if a file cannot be read, is not a roster, or is not signed by the operator.
pub fn roster(path: &Path, operator: &Path) -> Result<Roster, InputError> {
    let key = public_key(operator)?;
    let bytes = read(path)?;
    Roster::open(&bytes, &key).map_err(|error| {
        // A roster is a tagged COSE_Sign1 (spec/formats.md, section 2.2).
        if bytes.starts_with(&[0xd2, 0x84]) {
            let what = format_args!("{error} (operator {})", operator.display());
            InputError::new(error.name(), ErrorKind::Refused, what).in_file(path)
        } else {
            let what = "is not a roster; `moteseal roster new` makes one";
            InputError::file(format_args!("{} {what}", path.display()))
        }
    })
}

/// Writes a new file that only its owner can read: whole or not at all, and never over another one.
pub(crate) fn create_secret(path: &Path, bytes: &[u8]) -> Result<(), InputError> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary: PathBuf = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
    let written = (|| {
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        // A link fails if the file exists by now; a rename would replace it.
        fs::hard_link(&temporary, path)
    })();
    let _ = fs::remove_file(&temporary);
    written.map_err(|error| InputError::io("write", path, &error))
}
