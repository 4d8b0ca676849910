//! Bearer tokens (RFC 6750): who may read and who may write.
//!
//! The file has one token a line, after what it is good for; `#` starts a comment:
//!
//! ```text
//! read        Zx3k...
//! write       9fQm...
//! read,write  b71L...
//! ```
//!
//! Only digests of tokens are kept, and each presented token is compared with all of them in constant time.

use std::fmt;
use std::path::Path;

use moteseal_core::Digest;
use subtle::{Choice, ConstantTimeEq};

/// The shortest token: sixteen characters of base64 are 96 bits.
const SHORTEST: usize = 16;

/// What a request needs to be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Queries, listings, bundles, metrics.
    Read,
    /// Uploads.
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

/// Whether a request is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Allowed,
    /// There is no token, or an unknown one.
    Unknown,
    /// The token is for something else.
    OtherScope,
}

/// The known tokens.
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
    /// One line that names the file, the line and what is wrong with it, never a token.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read the tokens in {}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads the text of a token file.
    ///
    /// # Errors
    /// As [`read`](Self::read), without the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong =
                || format!("line {number} is not a scope (read, write or read,write) and a token");
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
                return Err(format!(
                    "the token in line {number} needs at least {SHORTEST} printable characters and no spaces"
                ));
            }
            tokens.push((Digest::of(&[token.as_bytes()]), bits));
        }
        if tokens.is_empty() {
            return Err(
                "there is no token, so nobody could ever be served; add one or leave the file out"
                    .into(),
            );
        }
        Ok(Self(tokens))
    }

    /// Judges the value of an `Authorization` header.
    #[must_use]
    pub fn judge(&self, authorization: Option<&[u8]>, scope: Scope) -> Verdict {
        let Some(token) = authorization.and_then(bearer) else { return Verdict::Unknown };
        let presented = Digest::of(&[token]);
        let (mut known, mut allowed) = (Choice::from(0), Choice::from(0));
        for (digest, bits) in &self.0 {
            let same = digest.0.ct_eq(&presented.0);
            known |= same;
            allowed |= same & Choice::from(u8::from(bits & scope.bit() != 0));
        }
        match (bool::from(known), bool::from(allowed)) {
            (_, true) => Verdict::Allowed,
            (true, false) => Verdict::OtherScope,
            (false, false) => Verdict::Unknown,
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
    fn a_token_is_good_for_its_scopes_only() {
        let tokens =
            Tokens::parse("# ours\nread aaaaaaaaaaaaaaaa\nwrite bbbbbbbbbbbbbbbb # the gateway\n\nread,write cccccccccccccccc")
                .unwrap();
        let judge = |value: &str, scope| tokens.judge(Some(value.as_bytes()), scope);
        assert_eq!(judge("Bearer aaaaaaaaaaaaaaaa", Scope::Read), Verdict::Allowed);
        assert_eq!(judge("bearer aaaaaaaaaaaaaaaa", Scope::Write), Verdict::OtherScope);
        assert_eq!(judge("Bearer bbbbbbbbbbbbbbbb", Scope::Read), Verdict::OtherScope);
        assert_eq!(judge("Bearer cccccccccccccccc", Scope::Write), Verdict::Allowed);
        assert_eq!(judge("Bearer cccccccccccccccd", Scope::Write), Verdict::Unknown);
        assert_eq!(judge("Basic aaaaaaaaaaaaaaaa", Scope::Read), Verdict::Unknown);
        assert_eq!(judge("", Scope::Read), Verdict::Unknown);
        assert_eq!(tokens.judge(None, Scope::Read), Verdict::Unknown);
    }

    #[test]
    fn a_bad_file_is_refused_without_showing_a_token() {
        for text in [
            "",
            "# nothing",
            "read",
            "reed aaaaaaaaaaaaaaaa",
            "read short",
            "read aaaaaaaaaaaaaaaa bbbb",
            "aaaaaaaaaaaaaaaaaaaa",
        ] {
            let error = Tokens::parse(text).unwrap_err();
            assert!(!error.contains("aaaa"), "{error}");
        }
        let missing = Tokens::read(Path::new("no/such/file")).unwrap_err();
        assert!(missing.contains("no/such/file"), "{missing}");
    }
}
