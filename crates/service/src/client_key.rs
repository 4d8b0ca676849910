//! The public key of a TLS client's certificate, by which a service recognises the client.

use std::fmt;

/// The SHA-256 digest of the public key of a certificate (`SubjectPublicKeyInfo`, RFC 5280, section
/// 4.1.2.7). It stays the same if the certificate is renewed for the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(pub [u8; 32]);

impl fmt::Display for ClientKey {
    /// Writes 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientKey({self})")
    }
}
