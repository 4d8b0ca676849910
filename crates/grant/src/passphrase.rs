//! The tag by which a grant for a passphrase names its audience (spec/grants.md, section 3.2).
//!
//! The tag shows whether a passphrase is the one that the owner chose. Somebody who encrypts the
//! grant anew with another passphrase cannot change the tag. Only those who can decrypt the grant see
//! it, and scrypt makes guesses expensive.

use std::fmt;

use crate::envelope::Passphrase;

/// The number of rounds of scrypt is 2^15, with r = 8 and p = 1: 32 MiB of memory.
const LOG_N: u8 = 15;
const LABEL: &[u8] = b"moteseal/1/passphrase\0";

/// A salt, and 16 bytes that are derived from the salt and a passphrase.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PassphraseTag([u8; 32]);

impl fmt::Debug for PassphraseTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("passphrase tag")
    }
}

impl PassphraseTag {
    /// Returns the tag of a passphrase: `salt || scrypt(passphrase, "moteseal/1/passphrase" || 0x00 ||
    /// salt)[..16]` with N = 2^15, r = 8, p = 1 (RFC 7914).
    pub(crate) fn of(passphrase: &Passphrase, salt: [u8; 16]) -> Self {
        let mut tag = [0; 32];
        tag[..16].copy_from_slice(&salt);
        let salt = [LABEL, &salt].concat();
        // The parameters and the length are constants that scrypt accepts.
        let done = scrypt::Params::new(LOG_N, 8, 1, 16).map(|parameters| {
            let text = passphrase.expose().as_bytes();
            scrypt::scrypt(text, &salt, &parameters, &mut tag[16..]).is_ok()
        });
        debug_assert_eq!(done.ok(), Some(true));
        Self(tag)
    }

    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns whether this is the tag of the passphrase.
    pub(crate) fn is_of(&self, passphrase: &Passphrase) -> bool {
        let mut salt = [0; 16];
        salt.copy_from_slice(&self.0[..16]);
        *self == Self::of(passphrase, salt)
    }
}
