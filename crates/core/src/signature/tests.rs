#![allow(clippy::unwrap_used)]

use std::format;
use std::prelude::v1::*;

use super::*;

/// Returns the suites that are built in.
fn suites() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL
        .into_iter()
        .filter(|&algorithm| cfg!(feature = "host") || algorithm != Algorithm::MlDsa44)
}

#[test]
fn a_signature_verifies_under_its_key_and_message_and_no_other() {
    for algorithm in suites() {
        let key = SecretKey::from_seed(algorithm, &[7; 32]).unwrap();
        let other = SecretKey::from_seed(algorithm, &[8; 32]).unwrap();
        let signature = key.signature(b"reading").unwrap();
        assert_eq!(signature.len(), algorithm.signature_length());
        assert_eq!(key.public().verify(b"reading", &signature), Ok(()));
        assert_eq!(key.public().verify(b"Reading", &signature), Err(SignatureError::NotAuthentic));
        assert_eq!(
            other.public().verify(b"reading", &signature),
            Err(SignatureError::NotAuthentic)
        );
        assert_eq!(
            key.public().verify(b"reading", &signature[1..]),
            Err(SignatureError::MalformedSignature)
        );
        assert_eq!(key.signature(b"reading").unwrap(), signature, "signing is deterministic");
        assert_eq!(key.sign(b"reading", &mut [0; 63]), Err(SignError::BufferTooSmall));
    }
}

#[test]
fn keys_round_trip_through_their_raw_form() {
    for algorithm in suites() {
        let key = SecretKey::from_seed(algorithm, &[3; 32]).unwrap();
        let again = SecretKey::from_bytes(algorithm, &*key.to_bytes()).unwrap();
        let public = PublicKey::from_bytes(algorithm, &key.public().to_bytes()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(public, key.public());
        assert_eq!(public.to_bytes().len(), algorithm.public_key_length());
        assert_eq!(
            PublicKey::from_bytes(algorithm, &public.to_bytes()[1..]),
            Err(KeyError::KeyLength)
        );
    }
}

#[test]
fn debug_does_not_print_a_secret_key() {
    for algorithm in suites() {
        let key = SecretKey::from_seed(algorithm, &[3; 32]).unwrap();
        assert_eq!(format!("{key:?}"), format!("SecretKey({algorithm} secret)"));
    }
}
