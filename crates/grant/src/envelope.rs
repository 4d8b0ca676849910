//! Encryption for recipients in the age format (<https://c2sp.org/age>): X25519 recipients and
//! passphrases. SSH keys and plugins are not supported.
//!
//! Lengths, the number of recipients and the work of scrypt are limited before any work is done
//! for a file.

use std::borrow::Cow;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::iter;

use age::armor::{ArmoredReader, ArmoredWriter, Format};
use age::secrecy::{ExposeSecret as _, SecretString};
use age::{DecryptError, Decryptor, Encryptor, scrypt, x25519};
use zeroize::{Zeroize as _, Zeroizing};

/// The longest encrypted file, in bytes. Armour makes a file a third longer.
pub const MAX_FILE: usize = 64 << 20;
/// The longest decrypted content, in bytes.
pub const MAX_CONTENT: usize = 32 << 20;
/// The longest header of an encrypted file, in bytes. The header has about 100 bytes a recipient.
const MAX_HEADER: usize = 16 << 10;
/// The largest number of recipients, and of identities.
pub const MAX_RECIPIENTS: usize = 64;
/// The longest identity file, in bytes.
pub const MAX_IDENTITY_FILE: usize = 64 << 10;
/// The work factor of scrypt for new files: 2^18 rounds, which take 256 MiB of memory.
pub const WORK_FACTOR: u8 = 18;
/// The largest work factor of scrypt that is accepted. Each step more doubles the time and the memory that
/// a file from somebody else costs its reader.
pub const MAX_WORK_FACTOR: u8 = WORK_FACTOR;

moteseal_core::named_errors! {
    /// Why a file was not encrypted or decrypted, or why a recipient or an identity was rejected.
    EnvelopeError {
        /// The text is not an X25519 recipient of age.
        InvalidRecipient => "not a recipient; use the line `age1...` that age-keygen prints",
        /// There are no recipients, more than [`MAX_RECIPIENTS`], or one of them twice.
        RecipientCount => "give 1 to 64 different recipients",
        /// A line of an identity file is not an X25519 identity of age.
        InvalidIdentity {
            /// The number of the line, from 1.
            line: usize
        } => "line {line} of the identity file is not an X25519 identity; SSH keys and plugins are \
              not supported",
        /// The identity file has no identity, more than [`MAX_RECIPIENTS`], or is too long.
        IdentityCount => "the identity file must have 1 to 64 identities",
        /// The passphrase is empty.
        EmptyPassphrase => "the passphrase is empty",
        /// The work factor is not 1 to [`MAX_WORK_FACTOR`].
        WorkFactorOutOfRange => "the work factor must be 1 to 18",
        /// The file, its header or its content is longer than the limits.
        FileTooLong => "the file is longer than allowed",
        /// The file is not in the age format.
        NotEncrypted => "the file is not an encrypted file in the age format",
        /// The file is encrypted for other recipients, or with another passphrase.
        NoMatchingKey => "the file is encrypted for another identity or passphrase",
        /// The file needs a passphrase, or it needs an identity.
        OtherKeyKind => "the file needs a passphrase instead of an identity, or the reverse",
        /// The work factor of the file is above [`MAX_WORK_FACTOR`].
        ExcessiveWork => "the file demands more work of scrypt than allowed",
        /// The file was altered or truncated.
        Damaged => "the encrypted file is damaged",
        /// The operating system failed to provide memory or random numbers.
        EncryptionFailed => "the file could not be encrypted",
    }
}

/// A recipient: the public key of an age identity.
#[derive(Clone)]
pub struct Recipient {
    key: x25519::Recipient,
    text: String,
}

impl Recipient {
    /// Reads the text form, `age1...`.
    ///
    /// # Errors
    /// `InvalidRecipient`.
    pub fn parse(text: &str) -> Result<Self, EnvelopeError> {
        let key: x25519::Recipient =
            text.trim().parse().map_err(|_| EnvelopeError::InvalidRecipient)?;
        let text = key.to_string();
        Ok(Self { key, text })
    }

    /// Returns the text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An identity: the secret key of a [`Recipient`]. `Debug` prints the recipient.
pub struct Identity {
    key: x25519::Identity,
    recipient: Recipient,
}

impl Identity {
    /// Reads the text form, `AGE-SECRET-KEY-1...`.
    ///
    /// # Errors
    /// `InvalidIdentity`, with line 1.
    pub fn parse(text: &str) -> Result<Self, EnvelopeError> {
        let key = text.parse().map_err(|_| EnvelopeError::InvalidIdentity { line: 1 })?;
        Ok(Self::new(key))
    }

    /// Returns a new identity from the system's source of random numbers.
    #[must_use]
    pub fn generate() -> Self {
        Self::new(x25519::Identity::generate())
    }

    fn new(key: x25519::Identity) -> Self {
        let public = key.to_public();
        let text = public.to_string();
        Self { key, recipient: Recipient { key: public, text } }
    }

    /// Returns the recipient.
    #[must_use]
    pub const fn recipient(&self) -> &Recipient {
        &self.recipient
    }

    /// Returns the secret text form, `AGE-SECRET-KEY-1...`.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        Zeroizing::new(self.key.to_string().expose_secret().to_owned())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "identity of {}", self.recipient.text)
    }
}

/// A passphrase, with the work factor for files that are encrypted with it.
#[derive(Clone)]
pub struct Passphrase {
    text: SecretString,
    work_factor: u8,
}

impl Passphrase {
    /// Creates a passphrase with [`WORK_FACTOR`].
    ///
    /// # Errors
    /// `EmptyPassphrase`.
    pub fn new(text: &str) -> Result<Self, EnvelopeError> {
        if text.is_empty() {
            return Err(EnvelopeError::EmptyPassphrase);
        }
        Ok(Self { text: text.to_owned().into(), work_factor: WORK_FACTOR })
    }

    /// Sets the binary logarithm of the number of rounds of scrypt for new files.
    ///
    /// # Errors
    /// `WorkFactorOutOfRange`.
    pub fn with_work_factor(mut self, log_n: u8) -> Result<Self, EnvelopeError> {
        if !(1..=MAX_WORK_FACTOR).contains(&log_n) {
            return Err(EnvelopeError::WorkFactorOutOfRange);
        }
        self.work_factor = log_n;
        Ok(self)
    }

    pub(crate) fn expose(&self) -> &str {
        self.text.expose_secret()
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("passphrase")
    }
}

/// For whom a file is encrypted.
#[derive(Clone, Debug)]
pub enum Recipients {
    /// Each of these recipients can decrypt the file.
    Keys(Vec<Recipient>),
    /// Anyone who knows the passphrase can decrypt the file.
    Passphrase(Passphrase),
}

impl Recipients {
    /// Checks the number of recipients, and that no recipient occurs twice.
    ///
    /// # Errors
    /// `RecipientCount`.
    pub(crate) fn check(&self) -> Result<(), EnvelopeError> {
        let Self::Keys(keys) = self else { return Ok(()) };
        let mut texts: Vec<&str> = keys.iter().map(Recipient::as_str).collect();
        texts.sort_unstable();
        texts.dedup();
        if (1..=MAX_RECIPIENTS).contains(&keys.len()) && texts.len() == keys.len() {
            Ok(())
        } else {
            Err(EnvelopeError::RecipientCount)
        }
    }
}

/// What decrypts a file.
#[derive(Debug)]
pub enum Unlock {
    /// The identities of a reader, at least one.
    Identities(Vec<Identity>),
    /// A passphrase.
    Passphrase(Passphrase),
}

impl Unlock {
    /// Reads an identity file of age: an identity on each line. Empty lines, and lines that begin with
    /// `#`, are ignored.
    ///
    /// # Errors
    /// `InvalidIdentity`, `IdentityCount`.
    pub fn identity_file(text: &str) -> Result<Self, EnvelopeError> {
        if text.len() > MAX_IDENTITY_FILE {
            return Err(EnvelopeError::IdentityCount);
        }
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut identities = Vec::new();
        for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
            let identity = Identity::parse(text);
            identities.push(identity.map_err(|_| EnvelopeError::InvalidIdentity { line })?);
        }
        if (1..=MAX_RECIPIENTS).contains(&identities.len()) {
            Ok(Self::Identities(identities))
        } else {
            Err(EnvelopeError::IdentityCount)
        }
    }
}

/// The key that decrypted a file.
#[derive(Debug)]
pub(crate) enum Unlocked<'k> {
    Identity(&'k Identity),
    Passphrase(&'k Passphrase),
}

/// Encrypts `content`. With `armour`, the result is text in the form of PEM, for mail.
///
/// # Errors
/// `RecipientCount`, `FileTooLong`, `EncryptionFailed`.
pub fn encrypt(
    content: &[u8],
    recipients: &Recipients,
    armour: bool,
) -> Result<Vec<u8>, EnvelopeError> {
    recipients.check()?;
    if content.len() > MAX_CONTENT {
        return Err(EnvelopeError::FileTooLong);
    }
    let encryptor = match recipients {
        Recipients::Keys(keys) => {
            Encryptor::with_recipients(keys.iter().map(|recipient| &recipient.key as _))
        }
        Recipients::Passphrase(passphrase) => {
            let mut recipient = scrypt::Recipient::new(passphrase.text.clone());
            recipient.set_work_factor(passphrase.work_factor);
            Encryptor::with_recipients(iter::once(&recipient as _))
        }
    };
    let encryptor = encryptor.map_err(|_| EnvelopeError::EncryptionFailed)?;
    let format = if armour { Format::AsciiArmor } else { Format::Binary };
    let mut out = Vec::with_capacity(content.len() + content.len() / 1024 + 1024);
    let written = ArmoredWriter::wrap_output(&mut out, format).and_then(|armoured| {
        let mut writer = encryptor.wrap_output(armoured)?;
        writer.write_all(content)?;
        writer.finish()?.finish().map(|_| ())
    });
    written.map(|()| out).map_err(|_| EnvelopeError::EncryptionFailed)
}

/// Returns whether a file is encrypted with a passphrase. Otherwise, it is encrypted for recipients.
///
/// # Errors
/// `FileTooLong`, `NotEncrypted`.
pub fn needs_passphrase(file: &[u8]) -> Result<bool, EnvelopeError> {
    if file.len() > MAX_FILE {
        return Err(EnvelopeError::FileTooLong);
    }
    let file = without_armour(file)?;
    check_header(&file)?;
    Ok(decryptor(&file)?.is_scrypt())
}

/// Decrypts a file, with or without armour. Returns the content and the key that decrypted it.
///
/// # Errors
/// The first that applies: `FileTooLong`, `NotEncrypted`, `OtherKeyKind`, `ExcessiveWork`,
/// `NoMatchingKey`, `Damaged`.
pub(crate) fn decrypt<'k>(
    file: &[u8],
    unlock: &'k Unlock,
) -> Result<(Zeroizing<Vec<u8>>, Unlocked<'k>), EnvelopeError> {
    if file.len() > MAX_FILE {
        return Err(EnvelopeError::FileTooLong);
    }
    let file = without_armour(file)?;
    check_header(&file)?;
    let needs_passphrase = decryptor(&file)?.is_scrypt();
    match unlock {
        Unlock::Identities(identities) if !needs_passphrase => {
            for identity in identities {
                let opened = open(&file, &identity.key);
                if !matches!(opened, Err(EnvelopeError::NoMatchingKey)) {
                    return opened.map(|content| (content, Unlocked::Identity(identity)));
                }
            }
            Err(EnvelopeError::NoMatchingKey)
        }
        Unlock::Passphrase(passphrase) if needs_passphrase => {
            let mut identity = scrypt::Identity::new(passphrase.text.clone());
            identity.set_max_work_factor(MAX_WORK_FACTOR);
            open(&file, &identity).map(|content| (content, Unlocked::Passphrase(passphrase)))
        }
        _ => Err(EnvelopeError::OtherKeyKind),
    }
}

/// Returns the binary form of a file.
fn without_armour(file: &[u8]) -> Result<Cow<'_, [u8]>, EnvelopeError> {
    if file.starts_with(b"age-encryption.org/") {
        return Ok(Cow::Borrowed(file));
    }
    let mut binary = Vec::with_capacity(file.len() / 4 * 3);
    let read = ArmoredReader::new(file).read_to_end(&mut binary);
    read.map_err(|_| EnvelopeError::NotEncrypted)?;
    Ok(Cow::Owned(binary))
}

/// Checks that the header ends within [`MAX_HEADER`] bytes, before it is parsed.
fn check_header(file: &[u8]) -> Result<(), EnvelopeError> {
    let start = &file[..file.len().min(MAX_HEADER)];
    if start.windows(5).any(|window| window == b"\n--- ") {
        Ok(())
    } else if file.len() > MAX_HEADER && file.starts_with(b"age-encryption.org/v1\n") {
        Err(EnvelopeError::FileTooLong)
    } else {
        Err(EnvelopeError::NotEncrypted)
    }
}

fn decryptor(file: &[u8]) -> Result<Decryptor<&[u8]>, EnvelopeError> {
    Decryptor::new_buffered(file).map_err(error_of)
}

fn open(file: &[u8], identity: &dyn age::Identity) -> Result<Zeroizing<Vec<u8>>, EnvelopeError> {
    let reader = decryptor(file)?.decrypt(iter::once(identity)).map_err(error_of)?;
    // The content is shorter than the file, so the buffer never moves and leaves no copy behind.
    let mut content = Zeroizing::new(Vec::with_capacity(file.len().min(MAX_CONTENT + 1)));
    let mut limited = reader.take(MAX_CONTENT as u64 + 1);
    let read = limited.read_to_end(&mut content);
    read.map_err(|_| EnvelopeError::Damaged)?;
    if content.len() > MAX_CONTENT {
        content.zeroize();
        return Err(EnvelopeError::FileTooLong);
    }
    Ok(content)
}

fn error_of(error: DecryptError) -> EnvelopeError {
    match error {
        DecryptError::ExcessiveWork { .. } => EnvelopeError::ExcessiveWork,
        // A wrong passphrase is a failure to decrypt the file key, which no other step reports so.
        DecryptError::NoMatchingKeys | DecryptError::DecryptionFailed => {
            EnvelopeError::NoMatchingKey
        }
        DecryptError::KeyDecryptionFailed => EnvelopeError::NoMatchingKey,
        DecryptError::InvalidMac => EnvelopeError::Damaged,
        _ => EnvelopeError::NotEncrypted,
    }
}
