//! Bearer tokens (RFC 6750). They determine which clients may read and which clients may write.
//!
//! Each line of a token file consists of the scopes of a token and the token itself; `#` starts a
//! comment:
//!
//! ```text
//! read        Zx3k...
//! write       9fQm...
//! read,write  b71L...
//! ```
//!
//! The cloud keeps only the digests of the tokens in memory. It compares the token of a request
//! with all of them in constant time.

use std::fmt;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::Digest;
use subtle::{Choice, ConstantTimeEq};

/// The minimum length of a token. Sixteen characters of base64 have 96 bits.
const SHORTEST: usize = 16;

/// The scope that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Queries, listings, bundles and metrics.
    Read,
    /// Uploads of bundles and manifests.
    Write,
}

impl Scope {
    const fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Write => 2,
        }
    }
}

/// The result of checking a request's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The token has the scope.
    Allowed,
    /// The request has no token, or an unknown token.
    Unknown,
    /// The token is known but does not have the scope.
    OtherScope,
}

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
    #[error("line {0} must have a scope (read, write or read,write) and a token")]
    Line(usize),
    /// A token is too short, or has a character that is not allowed.
    #[error(
        "the token in line {0} must have at least {SHORTEST} printable characters and no spaces"
    )]
    Token(usize),
    /// The file has no token.
    #[error("the file has no token, so no client could be served; add a token or omit the file")]
    Empty,
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

/// The tokens of a token file, as digests with their scopes.
#[derive(Clone, Default)]
pub struct Tokens(Vec<(Digest, u8)>);

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
        let text = std::fs::read_to_string(path)
            .map_err(|error| TokensError::Unreadable { path: path.to_owned(), error })?;
        Self::parse(&text).map_err(|error| error.about(path))
    }

    /// Parses the text of a token file.
    ///
    /// # Errors
    /// [`TokensError`] names the line and the mistake, but not the file.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = || TokensError::Line(number);
            let (scopes, token) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
            let mut bits = 0;
            for scope in scopes.split(',') {
                bits |= match scope {
                    "read" => Scope::Read.bit(),
                    "write" => Scope::Write.bit(),
                    _ => return Err(wrong()),
                };
            }
            let token = token.trim();
            if token.len() < SHORTEST || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(TokensError::Token(number));
            }
            tokens.push((Digest::of(&[token.as_bytes()]), bits));
        }
        if tokens.is_empty() {
            return Err(TokensError::Empty);
        }
        Ok(Self(tokens))
    }

    /// Checks the value of a request's `Authorization` header against a scope.
    #[must_use]
    pub fn check(&self, authorization: Option<&[u8]>, scope: Scope) -> Access {
        let Some(token) = authorization.and_then(bearer) else { return Access::Unknown };
        let presented = Digest::of(&[token]);
        let (mut known, mut allowed) = (Choice::from(0), Choice::from(0));
        for (digest, bits) in &self.0 {
            let same = digest.0.ct_eq(&presented.0);
            known |= same;
            allowed |= same & Choice::from(u8::from(bits & scope.bit() != 0));
        }
        match (bool::from(known), bool::from(allowed)) {
            (_, true) => Access::Allowed,
            (true, false) => Access::OtherScope,
            (false, false) => Access::Unknown,
        }
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_grants_only_its_scopes() {
        let tokens = Tokens::parse(
            "# tokens\nread aaaaaaaaaaaaaaaa\nwrite bbbbbbbbbbbbbbbb # the gateway\n\n\
                 read,write cccccccccccccccc",
        )
        .unwrap();
        let check = |value: &str, scope| tokens.check(Some(value.as_bytes()), scope);
        assert_eq!(check("Bearer aaaaaaaaaaaaaaaa", Scope::Read), Access::Allowed);
        assert_eq!(check("bearer aaaaaaaaaaaaaaaa", Scope::Write), Access::OtherScope);
        assert_eq!(check("Bearer bbbbbbbbbbbbbbbb", Scope::Read), Access::OtherScope);
        assert_eq!(check("Bearer cccccccccccccccc", Scope::Write), Access::Allowed);
        assert_eq!(check("Bearer cccccccccccccccd", Scope::Write), Access::Unknown);
        assert_eq!(check("Basic aaaaaaaaaaaaaaaa", Scope::Read), Access::Unknown);
        assert_eq!(check("", Scope::Read), Access::Unknown);
        assert_eq!(tokens.check(None, Scope::Read), Access::Unknown);
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
