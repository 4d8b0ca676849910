//! HMAC broadcast: every message has an 8-byte tag under one key that all nodes share (Liu, Li and
//! Guizani 2012, section V). There are tags over SHA-256, and over SHA-1 as in the paper.
//!
//! It is the cheapest scheme, but a receiver can also create every tag that it can check. One
//! compromised node can impersonate the sender to all other nodes.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::Sha256;

/// The length of a tag, in bytes.
pub const TAG: usize = 8;

/// The key that all nodes share. The two hash states of HMAC are computed once.
#[derive(Clone)]
pub struct SharedKey {
    sha256: Hmac<Sha256>,
    sha1: Hmac<Sha1>,
}

impl SharedKey {
    /// Creates the key from its bytes.
    #[must_use]
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    pub fn new(key: &[u8]) -> Self {
        let sha256 = Hmac::new_from_slice(key).expect("HMAC takes keys of any length");
        Self { sha256, sha1: Hmac::new_from_slice(key).expect("HMAC takes keys of any length") }
    }

    /// Returns the tag of a message.
    #[must_use]
    pub fn tag(&self, message: &[u8]) -> [u8; TAG] {
        first(&self.sha256.clone().chain_update(message).finalize().into_bytes())
    }

    /// Returns the tag as the paper computes it: HMAC over SHA-1.
    #[must_use]
    pub fn paper_tag(&self, message: &[u8]) -> [u8; TAG] {
        first(&self.sha1.clone().chain_update(message).finalize().into_bytes())
    }

    /// Returns a packet that consists of the message and its tag.
    #[must_use]
    pub fn seal(&self, message: &[u8]) -> Vec<u8> {
        [message, &self.tag(message)].concat()
    }

    /// Returns the message of a packet, if its tag is valid.
    #[must_use]
    pub fn open<'p>(&self, packet: &'p [u8]) -> Option<&'p [u8]> {
        let (message, tag) = packet.split_last_chunk()?;
        (self.tag(message) == *tag).then_some(message)
    }
}

fn first(bytes: &[u8]) -> [u8; TAG] {
    let mut tag = [0; TAG];
    tag.copy_from_slice(&bytes[..TAG]);
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vectors are RFC 4231 and RFC 2202, test case 2.
    #[test]
    fn tags_are_the_first_bytes_of_the_standards_examples() {
        let key = SharedKey::new(b"Jefe");
        let message = b"what do ya want for nothing?";
        assert_eq!(key.tag(message), 0x5bdc_c146_bf60_754e_u64.to_be_bytes());
        assert_eq!(key.paper_tag(message), 0xeffc_df6a_e5eb_2fa2_u64.to_be_bytes());
        let packet = key.seal(message);
        assert_eq!(key.open(&packet), Some(&message[..]));
        assert_eq!(SharedKey::new(b"Jeff").open(&packet), None);
        assert_eq!(key.open(&packet[1..]), None);
        assert_eq!(key.open(&packet[..7]), None);
    }
}
