//! SIGS: a signature for every broadcast message (Liu, Li and Guizani 2012, section V), with the
//! suites of `moteseal-core` or with the paper's secp160r1.
//!
//! As published, only the message is signed. A receiver therefore cannot distinguish an old message
//! from a new one, and must check a signature for every datagram that anyone sends.

use moteseal_core::signature::{PublicKey, SignError, Signer};

use crate::secp160r1;

/// Returns a packet that consists of the message and its signature.
///
/// # Errors
/// [`SignError`].
pub fn seal(signer: &dyn Signer, message: &[u8]) -> Result<Vec<u8>, SignError> {
    Ok([message, &signer.signature(message)?].concat())
}

/// Returns the message of a packet, if its signature is valid.
#[must_use]
pub fn open<'p>(key: &PublicKey, packet: &'p [u8]) -> Option<&'p [u8]> {
    let (message, signature) =
        packet.split_at_checked(packet.len().checked_sub(key.algorithm().signature_length())?)?;
    key.verify(message, signature).ok().map(|()| message)
}

/// Returns a packet like [`seal`], with the paper's signature.
#[must_use]
pub fn seal_secp160r1(key: &secp160r1::SecretKey, message: &[u8]) -> Vec<u8> {
    [message, &key.sign(message)].concat()
}

/// Returns the message of a packet like [`open`], with the paper's signature.
#[must_use]
pub fn open_secp160r1<'p>(key: &secp160r1::PublicKey, packet: &'p [u8]) -> Option<&'p [u8]> {
    let (message, signature) = packet.split_last_chunk()?;
    key.verify(message, signature).then_some(message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::signature::{Algorithm, SecretKey};
    use num_bigint::BigUint;

    use super::*;

    #[test]
    fn a_packet_of_any_suite_opens_and_a_changed_one_does_not() {
        for algorithm in [Algorithm::Ed25519, Algorithm::Esp256] {
            let key = SecretKey::from_seed(algorithm, &[3; 32]).unwrap();
            let mut packet = seal(&key, b"valve 3 open").unwrap();
            assert_eq!(packet.len(), 12 + 64);
            assert_eq!(open(&key.public(), &packet), Some(&b"valve 3 open"[..]));
            assert_eq!(open(&key.public(), &packet[..63]), None);
            packet[8] ^= 1;
            assert_eq!(open(&key.public(), &packet), None);
        }
        let key = secp160r1::SecretKey::new(BigUint::from(77_u8)).unwrap();
        let mut packet = seal_secp160r1(&key, b"valve 3 open");
        assert_eq!(packet.len(), 12 + 44);
        assert_eq!(open_secp160r1(key.public(), &packet), Some(&b"valve 3 open"[..]));
        assert_eq!(open_secp160r1(key.public(), &packet[..43]), None);
        packet[8] ^= 1;
        assert_eq!(open_secp160r1(key.public(), &packet), None);
    }
}
