//! Passwords of users, and their hashes by Argon2id (RFC 9106).
//!
//! All hashes have the same parameters, so that the time of a check does not depend on the user:
//! 19 MiB, two passes and one lane, the first choice of the OWASP Password Storage Cheat Sheet. The
//! parameters that RFC 9106 recommends need more than three times the memory. Anyone can cause a
//! hash by sending a password, so its cost is the cloud's cost under attack.

use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use moteseal_api::ErrorKind;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Memory in KiB.
const MEMORY: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// The length of a salt in bytes.
const SALT: usize = 16;
/// The length of a hash in bytes.
const HASH: usize = 32;
/// The start of each hash as a PHC string: algorithm, version and parameters.
const PREFIX: &str = "$argon2id$v=19$m=19456,t=2,p=1$";

/// The minimum length of a password in bytes.
pub const SHORTEST: usize = 12;
/// The maximum length of a password in bytes.
pub const LONGEST: usize = 256;

/// Why a password cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    /// The file cannot be read.
    #[error("cannot read the password in {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// The password is too short or too long, or has characters that HTTP does not permit.
    #[error(
        "{}: a password is one line of {SHORTEST} to {LONGEST} bytes without control characters",
        .0.display()
    )]
    Unusable(PathBuf),
    /// The system has no random bytes, or no memory for the hash.
    #[error("cannot hash the password: {0}")]
    Failed(String),
}

impl PasswordError {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::Unusable(_) => "BadFile",
            Self::Failed(_) => "Internal",
        }
    }

    /// Returns the kind, which states whether the file is wrong or the machine failed.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreadable { .. } | Self::Unusable(_) => ErrorKind::Usage,
            Self::Failed(_) => ErrorKind::Internal,
        }
    }
}

moteseal_api::named_error!(PasswordError);

/// A password. It is never printed, and it is overwritten when it is dropped.
#[derive(Clone)]
pub struct Password(Zeroizing<Vec<u8>>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(secret)")
    }
}

impl Password {
    /// Takes a password. Returns `None` if its length is out of range, if it is not UTF-8, or if it
    /// has control characters, which HTTP does not permit (RFC 7617, section 2).
    #[must_use]
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Option<Self> {
        let is_valid = (SHORTEST..=LONGEST).contains(&bytes.len())
            && std::str::from_utf8(&bytes).is_ok_and(|text| !text.chars().any(char::is_control));
        is_valid.then_some(Self(bytes))
    }

    /// Reads a password from a file of one line.
    ///
    /// # Errors
    /// [`PasswordError`] names the file and the mistake, and never contains the password.
    pub fn read(path: &Path) -> Result<Self, PasswordError> {
        let unreadable = |error| PasswordError::Unreadable { path: path.to_owned(), error };
        let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST + 3));
        let file = std::fs::File::open(path).map_err(unreadable)?;
        file.take(LONGEST as u64 + 3).read_to_end(&mut bytes).map_err(unreadable)?;
        while matches!(bytes.last(), Some(b'\n' | b'\r')) {
            bytes.pop();
        }
        Self::new(bytes).ok_or_else(|| PasswordError::Unusable(path.to_owned()))
    }

    /// Makes a password of 160 random bits, as 40 hexadecimal digits.
    ///
    /// # Errors
    /// [`PasswordError::Failed`] if the system has no random bytes.
    pub fn generate() -> Result<Self, PasswordError> {
        let mut random = Zeroizing::new([0; 20]);
        fill(&mut *random)?;
        let digits = random.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        Ok(Self(Zeroizing::new(
            digits.map(|digit| b"0123456789abcdef"[usize::from(digit)]).collect(),
        )))
    }

    /// Returns the password's bytes. Do not print or log them, except a password that was just made
    /// for the user.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The salted hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    salt: [u8; SALT],
    hash: [u8; HASH],
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(secret)")
    }
}

impl fmt::Display for PasswordHash {
    /// Writes the hash as a PHC string.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, hash] = [&self.salt[..], &self.hash].map(|bytes| STANDARD_NO_PAD.encode(bytes));
        write!(f, "{PREFIX}{salt}${hash}")
    }
}

impl PasswordHash {
    /// The hash against which a password is checked if there is no user with the name. No password
    /// with this hash is known.
    pub const NONE: Self = Self { salt: [0x5a; SALT], hash: [0; HASH] };

    /// Hashes a password with a new salt.
    ///
    /// # Errors
    /// [`PasswordError::Failed`].
    pub fn of(password: &Password) -> Result<Self, PasswordError> {
        let mut salt = [0; SALT];
        fill(&mut salt)?;
        Ok(Self { salt, hash: argon2id(password.bytes(), &salt)? })
    }

    /// Parses a PHC string. Returns `None` if it is malformed, or if its algorithm or its
    /// parameters are others than those of this module.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (salt, hash) = text.strip_prefix(PREFIX)?.split_once('$')?;
        let decode = |text: &str| STANDARD_NO_PAD.decode(text).ok();
        Some(Self { salt: decode(salt)?.try_into().ok()?, hash: decode(hash)?.try_into().ok()? })
    }

    /// Checks a password, in a time that depends on neither the password nor the hash. This takes
    /// tens of milliseconds and 19 MiB of memory.
    ///
    /// # Errors
    /// [`PasswordError::Failed`] if there is too little memory.
    pub fn is_of(&self, password: &[u8]) -> Result<bool, PasswordError> {
        Ok(argon2id(password, &self.salt)?.ct_eq(&self.hash).into())
    }
}

fn argon2id(password: &[u8], salt: &[u8; SALT]) -> Result<[u8; HASH], PasswordError> {
    let failed = |error: argon2::Error| PasswordError::Failed(error.to_string());
    let parameters = Params::new(MEMORY, PASSES, LANES, Some(HASH)).map_err(failed)?;
    let mut hash = [0; HASH];
    Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters)
        .hash_password_into(password, salt, &mut hash)
        .map_err(failed)?;
    Ok(hash)
}

fn fill(bytes: &mut [u8]) -> Result<(), PasswordError> {
    getrandom::fill(bytes).map_err(|error| PasswordError::Failed(error.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn password(text: &str) -> Option<Password> {
        Password::new(Zeroizing::new(text.as_bytes().to_vec()))
    }

    /// Made with pyca/cryptography: `Argon2id(salt=b"0123456789abcdef", length=32, iterations=2,
    /// lanes=1, memory_cost=19456).derive(b"correct horse battery")`.
    const KNOWN: &str = "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$\
                         69I7qCjDTsQwhQqFvpQJiqEI0lGQvxC84fXE0Ktxca4";

    #[test]
    fn the_hash_is_that_of_another_implementation() {
        let known = PasswordHash::parse(KNOWN).unwrap();
        assert!(known.is_of(b"correct horse battery").unwrap());
        assert_eq!(known.to_string(), KNOWN);
    }

    #[test]
    fn a_hash_accepts_only_its_password_and_survives_its_phc_string() {
        let right = password("correct horse battery").unwrap();
        let hash = PasswordHash::of(&right).unwrap();
        let parsed = PasswordHash::parse(&hash.to_string()).unwrap();
        assert_eq!(parsed, hash);
        assert!(parsed.is_of(right.bytes()).unwrap());
        assert!(!parsed.is_of(b"correct horse batterz").unwrap());
        assert!(!PasswordHash::NONE.is_of(right.bytes()).unwrap());
        assert_ne!(PasswordHash::of(&right).unwrap(), hash, "each hash has its own salt");
    }

    #[test]
    fn only_the_parameters_of_this_module_are_accepted() {
        let text = PasswordHash::NONE.to_string();
        assert!(PasswordHash::parse(&text).is_some());
        for (from, to) in [
            ("argon2id", "argon2i"),
            ("v=19", "v=16"),
            ("m=19456", "m=4194304"),
            ("t=2", "t=1"),
            ("p=1", "p=2"),
            ("p=1$", "p=1$AA"),
            ("$argon2id", " $argon2id"),
        ] {
            assert_eq!(PasswordHash::parse(&text.replace(from, to)), None, "{to}");
        }
        assert_eq!(PasswordHash::parse(&text[..text.len() - 1]), None);
        assert_eq!(PasswordHash::parse(&format!("{text}A")), None);
    }

    #[test]
    fn passwords_have_a_minimum_length_and_are_never_printed() {
        for text in ["", "eleven-byte", &"x".repeat(257), "with a\ttabulator", "with a\nline end"] {
            assert!(password(text).is_none(), "{text:?}");
        }
        let secret = password("twelve-bytes").unwrap();
        assert_eq!(format!("{secret:?}"), "Password(secret)");
        let made = [Password::generate().unwrap(), Password::generate().unwrap()];
        assert_ne!(made[0].bytes(), made[1].bytes());
        assert!(made.iter().all(|made| made.bytes().len() == 40));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "twelve-bytes\r\n").unwrap();
        assert_eq!(Password::read(file.path()).unwrap().bytes(), secret.bytes());
        std::fs::write(file.path(), "sesame").unwrap();
        let error = Password::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("12 to 256") && !error.contains("sesame"), "{error}");
    }
}
