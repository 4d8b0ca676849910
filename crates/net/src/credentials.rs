//! What a client presents to a cloud or a broker: a token, a user's password, or a certificate.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;
use zeroize::Zeroizing;

use crate::error::{BadFile, NetError};
use crate::file::read_small;
use crate::link::LinkError;

/// The maximum size of a token file, in bytes.
const MAX_TOKEN: u64 = 4096;
/// The maximum size of a password file, in bytes.
const MAX_PASSWORD: u64 = 4096;

/// What a client sends with each request to a cloud.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A bearer token.
    Token(Token),
    /// A user and a password.
    Login(Login),
}

impl Credential {
    /// Returns the value of the header `Authorization`.
    pub(crate) fn header(&self) -> Result<HeaderValue, NetError> {
        match self {
            Self::Token(token) => Ok(token.0.clone()),
            Self::Login(login) => login.header(),
        }
    }
}

/// A bearer token (RFC 6750). The token is never printed.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// Reads a token from a file of one line.
    ///
    /// # Errors
    /// [`NetError::BadFile`] if the file cannot be read or does not contain a token.
    pub fn read(path: &Path) -> Result<Self, NetError> {
        let bytes = Zeroizing::new(read_small(path, MAX_TOKEN)?);
        let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
        let bad =
            |cause: &str| NetError::BadFile { path: path.to_owned(), cause: cause.to_owned() };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("a token is one line of printable ASCII without spaces"));
        }
        let mut header =
            HeaderValue::try_from(format!("Bearer {text}")).map_err(|_| bad("not a token"))?;
        header.set_sensitive(true);
        Ok(Self(header))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// A user and a password, for a cloud (RFC 7617) or a broker.
#[derive(Clone, Debug)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: Password,
}

impl Login {
    /// Reads the password of a user from a file of one line.
    ///
    /// # Errors
    /// `BadFile` if the file cannot be read or does not contain a password.
    pub fn read(user: &str, password: &Path) -> Result<Self, NetError> {
        Ok(Self { user: user.to_owned(), password: Password::from_file(password)? })
    }

    fn header(&self) -> Result<HeaderValue, NetError> {
        let is_name = |c: char| c != ':' && !c.is_control();
        let no_name = || NetError::BadUser { user: self.user.clone() };
        if self.user.is_empty() || !self.user.chars().all(is_name) {
            return Err(no_name());
        }
        let pair = Zeroizing::new(format!("{}:{}", self.user, self.password.text()));
        let value = Zeroizing::new(format!("Basic {}", STANDARD.encode(&*pair)));
        let mut header = HeaderValue::from_str(&value).map_err(|_| no_name())?;
        header.set_sensitive(true);
        Ok(header)
    }
}

/// A password. The password is never printed.
#[derive(Clone)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Reads a password from a file of one line.
    ///
    /// # Errors
    /// `BadFile` if the file cannot be read or does not contain a password.
    pub fn read(path: &Path) -> Result<Self, LinkError> {
        Ok(Self::from_file(path)?)
    }

    fn from_file(path: &Path) -> Result<Self, BadFile> {
        let bytes = Zeroizing::new(read_small(path, MAX_PASSWORD)?);
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let line = text.trim_end_matches(['\r', '\n']);
        if line.is_empty() || line.contains(['\r', '\n', '\0']) {
            return Err(BadFile::new(path, "a password is one line of text"));
        }
        Ok(Self(Zeroizing::new(line.to_owned())))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(secret)")
    }
}

/// A client certificate, for mutual TLS.
#[derive(Clone, Debug)]
pub struct Identity {
    /// A PEM file with the chain of certificates. The client's own certificate is the first one.
    pub certificate: PathBuf,
    /// A PEM file with the certificate's private key.
    pub key: PathBuf,
}
