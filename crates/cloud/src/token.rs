//! Bearer tokens (RFC 6750). They determine which clients may read and which clients may write.
//!
//! Each line of a token file consists of the scopes of a token, optionally a binding to devices or
//! to a group, and the token itself; `#` starts a comment:
//!
//! ```text
//! read                           Zx3k...
//! write device=0123456789abcdef  9fQm...
//! write group=0123456789abcdef   e7Wt...
//! read,write                     b71L...
//! ```
//!
//! The cloud keeps only the digests of the tokens in memory. It compares the token of a request
//! with all of them in constant time.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_core::Digest;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::credential_file::{Credentials, read_at_most};
use crate::rights::{Binding, Rights, Scopes};

/// The minimum length of a token. Sixteen characters of base64 have 96 bits.
const SHORTEST: usize = 16;
/// The maximum size of a token file in bytes.
const MAX_FILE: u64 = 4 << 20;

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// The file cannot be read.
    #[error("cannot read the tokens in {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: std::io::Error,
    },
    /// A line does not consist of scopes and a token.
    #[error(
        "line {0} must have a scope (read, write or read,write), optionally a binding of write \
         (device=ID,ID or group=ID), and a token"
    )]
    Line(usize),
    /// A token is too short, or has a character that is not allowed.
    #[error(
        "the token in line {0} must have at least {SHORTEST} printable characters and no spaces"
    )]
    Token(usize),
    /// The file has no token.
    #[error("the file has no token, so no client could be served; add a token or omit the file")]
    Empty,
    /// The file is not text, or is longer than the maximum.
    #[error("the file is not UTF-8 text of at most {MAX_FILE} bytes")]
    NotText,
    /// An error in the contents of a file, with the path of the file.
    #[error("{}: {error}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// The error.
        error: Box<Self>,
    },
}

impl TokensError {
    fn about(self, path: &Path) -> Self {
        Self::InFile { path: path.to_owned(), error: Box::new(self) }
    }

    /// Always returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

/// The tokens of a token file, as digests with their rights.
#[derive(Clone, Default)]
pub struct Tokens(Vec<(Digest, Arc<Rights>)>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Reads a token file.
    ///
    /// # Errors
    /// [`TokensError`] names the file, the line and the mistake. The error never contains a token.
    pub fn read(path: &Path) -> Result<Self, TokensError> {
        Self::of_file(path, &Self::bytes(path)?)
    }

    /// Parses the text of a token file.
    ///
    /// # Errors
    /// [`TokensError`] names the line and the mistake, but not the file.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let (scopes, binding, token) = match &words[..] {
                [] => continue,
                [scopes, binding @ .., token] => (scopes, binding, token),
                [_] => return Err(TokensError::Line(number)),
            };
            let rights = Scopes::parse(scopes)
                .zip(Binding::parse(binding.iter().copied()))
                .and_then(|(scopes, binding)| Rights::new(scopes, binding));
            let rights = rights.ok_or(TokensError::Line(number))?;
            if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(TokensError::Token(number));
            }
            tokens.push((Digest::of(&[token.as_bytes()]), Arc::new(rights)));
        }
        if tokens.is_empty() {
            return Err(TokensError::Empty);
        }
        Ok(Self(tokens))
    }

    /// Returns the rights of a token, in a time that depends only on the number of tokens. If the
    /// file has the token in several lines, returns the rights of each of them.
    #[must_use]
    pub fn rights(&self, token: &[u8]) -> Vec<Arc<Rights>> {
        self.rights_of(&Digest::of(&[token]))
    }

    /// Like [`rights`](Self::rights), for the digest of a token.
    pub(crate) fn rights_of(&self, presented: &Digest) -> Vec<Arc<Rights>> {
        let mut found = Vec::new();
        for (digest, rights) in &self.0 {
            if bool::from(digest.0.ct_eq(&presented.0)) {
                found.push(Arc::clone(rights));
            }
        }
        found
    }
}

impl Credentials for Tokens {
    type Error = TokensError;
    const WHAT: &str = "tokens";

    fn bytes(path: &Path) -> Result<Zeroizing<Vec<u8>>, TokensError> {
        let fail = |error| TokensError::Unreadable { path: path.to_owned(), error };
        read_at_most(path, MAX_FILE).map_err(fail)
    }

    fn of_file(path: &Path, bytes: &[u8]) -> Result<Self, TokensError> {
        let is_short = bytes.len() as u64 <= MAX_FILE;
        let text = std::str::from_utf8(bytes).ok().filter(|_| is_short);
        text.ok_or(TokensError::NotText).and_then(Self::parse).map_err(|error| error.about(path))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_has_the_rights_of_its_lines() {
        let tokens = Tokens::parse(
            "# tokens\nread aaaaaaaaaaaaaaaa\nwrite bbbbbbbbbbbbbbbb # the gateway\n\n\
                 read,write cccccccccccccccc\nwrite device=0123456789abcdef dddddddddddddddd\n\
                 write  group=0123456789abcdef  aaaaaaaaaaaaaaaa\nwrite device=aaaaaaaaaa",
        )
        .unwrap();
        let rights = |token: &str| {
            let rights = tokens.rights(token.as_bytes()).into_iter();
            rights.map(|of| format!("{} {}", of.scopes, of.binding)).collect::<Vec<_>>()
        };
        assert_eq!(rights("aaaaaaaaaaaaaaaa"), ["read ", "write group=0123456789abcdef"]);
        assert_eq!(rights("bbbbbbbbbbbbbbbb"), ["write "]);
        assert_eq!(rights("cccccccccccccccc"), ["read,write "]);
        assert_eq!(rights("dddddddddddddddd"), ["write device=0123456789abcdef"]);
        assert_eq!(rights("device=aaaaaaaaaa"), ["write "], "the last word is always the token");
        assert!(rights("cccccccccccccccd").is_empty() && rights("").is_empty());
    }

    #[test]
    fn errors_of_a_file_never_contain_a_token() {
        for text in [
            "",
            "# nothing",
            "read",
            "reed aaaaaaaaaaaaaaaa",
            "read short",
            "read aaaaaaaaaaaaaaaa bbbb",
            "read device=0123456789abcdef aaaaaaaaaaaaaaaa",
            "write device=0123456789abcde aaaaaaaaaaaaaaaa",
            "aaaaaaaaaaaaaaaaaaaa",
        ] {
            let error = Tokens::parse(text).unwrap_err().to_string();
            assert!(!error.contains("aaaa"), "{error}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "reed aaaaaaaaaaaaaaaa").unwrap();
        let error = Tokens::read(file.path()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(file.path().to_str().unwrap()) && !text.contains("aaaa"), "{text}");
        assert_eq!(error.kind(), ErrorKind::Usage);
        std::fs::write(file.path(), "read aaaaaaaaaaaaaaaa").unwrap();
        assert_eq!(format!("{:?}", Tokens::read(file.path()).unwrap()), "Tokens(1)");
        let missing = Tokens::read(Path::new("no/such/file")).unwrap_err().to_string();
        assert!(missing.contains("no/such/file"), "{missing}");
    }
}
