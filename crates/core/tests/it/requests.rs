//! Tests of certificate requests: requests of other programs, requests of every suite that the tests
//! write themselves, and invalid requests.
//!
//! The files in `requests/` are from OpenSSL 3.0, except `ml_dsa_44.pem`:
//!
//! ```sh
//! new="openssl req -new -noenc -keyout /dev/null"
//! p256="-newkey ec -pkeyopt ec_paramgen_curve:P-256"
//! more="-addext subjectAltName=DNS:dev1.example -addext keyUsage=digitalSignature"
//! $new -newkey ed25519 -subj /CN=dev1 -out ed25519.pem
//! $new -newkey ed25519 -subj /O=Field/CN=dev1 $more -out ed25519_extensions.pem
//! $new $p256 -subj /CN=dev2 -out p256.pem
//! $new $p256 -subj /O=Field/CN=dev2 $more -newhdr -out p256_extensions.pem
//! $new $p256 -sha384 -subj /CN=dev2 -out p256_sha384.pem
//! $new -newkey ec -pkeyopt ec_paramgen_curve:P-384 -subj /CN=dev2 -out p384.pem
//! $new -newkey rsa:2048 -subj /CN=dev3 -out rsa.pem
//! ```
//!
//! `ml_dsa_44.pem` is from the Python package cryptography 50.0 with OpenSSL 4.0. Its key has the
//! seed 00 01 02 .. 1f:
//!
//! ```py
//! name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dev3")])
//! names = x509.SubjectAlternativeName([x509.DNSName("dev3.example")])
//! key = mldsa.MLDSA44PrivateKey.from_seed_bytes(bytes(range(32)))
//! request = x509.CertificateSigningRequestBuilder().subject_name(name)
//! request = request.add_extension(names, critical=False).sign(key, None)
//! ```

use moteseal_core::identity::{
    MAX_REQUEST, decode_public_pem, decode_request_der, decode_request_pem,
};
use moteseal_core::signature::{Algorithm, KeyError, PublicKey, SecretKey, Signer as _};
use num_bigint::BigUint;
use proptest::prelude::*;

use crate::key_files::{
    CLASSIC, ecdsa_from_der, ecdsa_to_der, element, generate, key, openssl, public_der, suites,
};

const ED25519: &str = include_str!("requests/ed25519.pem");
const ED25519_EXTENSIONS: &str = include_str!("requests/ed25519_extensions.pem");
const P256: &str = include_str!("requests/p256.pem");
const P256_EXTENSIONS: &str = include_str!("requests/p256_extensions.pem");
const ML_DSA_44: &str = include_str!("requests/ml_dsa_44.pem");

/// Returns the contents of a PEM block.
fn der(pem: &str) -> Vec<u8> {
    let mut buffer = [0; MAX_REQUEST];
    pem_rfc7468::decode(pem.as_bytes(), &mut buffer).unwrap().1.to_vec()
}

fn pem(label: &str, der: &[u8]) -> String {
    let mut buffer = vec![0; 2 * der.len() + 200];
    pem_rfc7468::encode(label, pem_rfc7468::LineEnding::LF, der, &mut buffer).unwrap().to_owned()
}

/// The subject `CN=dev1`.
const SUBJECT: &[u8] =
    &[0x30, 15, 0x31, 13, 0x30, 11, 0x06, 3, 0x55, 0x04, 0x03, 0x0c, 4, b'd', b'e', b'v', b'1'];
const VERSION: &[u8] = &[2, 1, 0];
const NO_ATTRIBUTES: &[u8] = &[0xa0, 0];

/// Returns a `CertificationRequestInfo` for a public key.
fn info(key: &PublicKey) -> Vec<u8> {
    element(0x30, &[VERSION, SUBJECT, &public_der(key), NO_ATTRIBUTES])
}

/// Returns the `AlgorithmIdentifier` of a signature.
fn signature_id(algorithm: Algorithm) -> Vec<u8> {
    let identifier: &[u8] = match algorithm {
        Algorithm::Ed25519 => &[0x06, 3, 0x2b, 0x65, 0x70],
        Algorithm::Esp256 => &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
        _ => &[0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x11],
    };
    element(0x30, &[identifier])
}

/// Returns a request with this signature.
fn request_with(info: &[u8], algorithm: Algorithm, signature: &[u8]) -> Vec<u8> {
    element(0x30, &[info, &signature_id(algorithm), &element(3, &[&[0], signature])])
}

/// Returns a request that is signed with `key`.
fn request_of(info: &[u8], key: &SecretKey) -> Vec<u8> {
    let signature = key.signature(info).unwrap();
    match key.algorithm() {
        Algorithm::Esp256 => request_with(info, key.algorithm(), &ecdsa_to_der(&signature)),
        algorithm => request_with(info, algorithm, &signature),
    }
}

/// Returns a request for the public key of `key`, signed with it.
fn request(key: &SecretKey) -> Vec<u8> {
    request_of(&info(&key.public()), key)
}

#[test]
fn reads_the_public_key_of_requests_of_other_programs() {
    let cases = [
        (ED25519, "d8264f0bc4666a43b97251d82f09486540d313e3f05ba56689d43ee6762bf7e8"),
        (ED25519_EXTENSIONS, "4dc7b9362cec78548d2072482040592f6e79bf581d1013cb33e6003c4b20265c"),
        (
            P256,
            "04a7deef73ec801834b3e36ba698264f21ce05437c25a9cc5f496f3a366421e88c\
             d39f7fbc93a24b5e049d3cb4047228888abaa8c1508c68b472fcbae7ec2879f1",
        ),
        (
            P256_EXTENSIONS,
            "047041a37eae59be7dbdb19df31f47b4b308272243c2de73d09c4c26fe65277076\
             93a61c4edf64638964ae6921d846ecadc30c03207b9d8b2f57bee6bda0a91ea7",
        ),
    ];
    for (pem, expected) in cases {
        let key = decode_request_pem(pem.as_bytes()).unwrap();
        assert_eq!(hex::encode(&*key.to_bytes()), expected);
        assert_eq!(decode_request_der(&der(pem)), Ok(key));
    }
    let seed: Vec<u8> = (0..32).collect();
    let key = SecretKey::from_bytes(Algorithm::MlDsa44, &seed).unwrap();
    assert_eq!(decode_request_pem(ML_DSA_44.as_bytes()), Ok(key.public()));
}

#[test]
fn reads_requests_that_openssl_makes_now() {
    for algorithm in CLASSIC {
        // Half of the signatures of openssl with P-256 have a high s, and some have short integers.
        for _ in 0..16 {
            let Some(secret) = openssl(generate(algorithm), b"") else { return };
            let public = openssl(&["pkey", "-pubout"], &secret).unwrap();
            let arguments = ["req", "-new", "-key", "/dev/stdin", "-subj", "/CN=dev1"];
            let more: [&[&str]; 3] =
                [&[], &["-newhdr", "-text"], &["-addext", "keyUsage=digitalSignature"]];
            for more in more {
                let request = openssl(&[&arguments, more].concat(), &secret).unwrap();
                assert_eq!(
                    decode_request_pem(&request),
                    decode_public_pem(&public),
                    "{}",
                    String::from_utf8_lossy(&request)
                );
            }
        }
    }
}

#[test]
fn openssl_verifies_the_requests_of_these_tests() {
    for algorithm in CLASSIC {
        let arguments = ["req", "-verify", "-noout", "-inform", "DER"];
        if openssl(&arguments, &request(&key(algorithm, 3))).is_none() {
            return;
        }
    }
}

#[test]
fn reads_requests_of_every_suite() {
    for algorithm in suites() {
        let key = key(algorithm, 3);
        let request = request(&key);
        assert_eq!(decode_request_der(&request), Ok(key.public()));
        for label in ["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"] {
            assert_eq!(decode_request_pem(pem(label, &request).as_bytes()), Ok(key.public()));
        }
    }
}

#[test]
fn reads_requests_without_a_subject_and_with_several_values() {
    let key = key(Algorithm::Ed25519, 3);
    let public = public_der(&key.public());
    let pair = &SUBJECT[4..];
    let relative = element(0x31, &[pair, pair]);
    let subject = element(0x30, &[&relative, &SUBJECT[2..]]);
    let attribute = element(0x30, &[&[6, 1, 1], &element(0x31, &[&[5, 0], &[4, 1, 9]])]);
    let attributes = element(0xa0, &[&attribute, &attribute]);
    for (subject, attributes) in [(&[0x30, 0][..], NO_ATTRIBUTES), (&subject, &attributes)] {
        let info = element(0x30, &[VERSION, subject, &public, attributes]);
        assert_eq!(decode_request_der(&request_of(&info, &key)), Ok(key.public()));
    }
}

/// Every byte of a request is either signed or has only one valid value.
#[test]
fn rejects_a_request_with_any_bit_flipped() {
    for pem in [ED25519, ED25519_EXTENSIONS, P256, P256_EXTENSIONS] {
        let mut der = der(pem);
        for bit in 0..8 * der.len() {
            der[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_request_der(&der).is_err(), "bit {bit}: {}", hex::encode(&der));
            der[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(decode_request_der(&der).is_ok());
    }
    // A request of ML-DSA-44 has 3,844 bytes. Flip all bits of the structure, and one bit of every
    // eleventh byte of the key and the signature.
    let mut der = der(ML_DSA_44);
    for bit in 0..8 * der.len() {
        let (byte, within) = (bit / 8, bit % 8);
        let is_structure = byte < 60 || (1350..1440).contains(&byte);
        if is_structure || (byte % 11 == 0 && within == byte / 11 % 8) {
            der[byte] ^= 1 << within;
            assert!(decode_request_der(&der).is_err(), "bit {bit}");
            der[byte] ^= 1 << within;
        }
    }
    assert!(decode_request_der(&der).is_ok());
}

#[test]
fn rejects_truncated_requests_and_trailing_bytes() {
    for pem in [ED25519, ED25519_EXTENSIONS, P256, P256_EXTENSIONS, ML_DSA_44] {
        let der = der(pem);
        for length in 0..der.len() {
            assert_eq!(decode_request_der(&der[..length]), Err(KeyError::MalformedRequest));
        }
        let longer = [&der[..], &[0]].concat();
        assert_eq!(decode_request_der(&longer), Err(KeyError::MalformedRequest));
    }
}

#[test]
fn rejects_trailing_elements_at_every_level() {
    let key = key(Algorithm::Esp256, 3);
    let info = info(&key.public());
    let algorithm = signature_id(Algorithm::Esp256);
    let raw = key.signature(&info).unwrap();
    let bits = |signature: &[u8]| element(3, &[&[0], signature]);
    let good = ecdsa_to_der(&raw);
    let null: &[u8] = &[5, 0];
    let body = &good[2..];
    let outer = |parts: &[&[u8]]| decode_request_der(&element(0x30, parts));
    assert_eq!(outer(&[&info, &algorithm, &bits(&good)]), Ok(key.public()));
    for parts in [
        &[&info[..], &algorithm, &bits(&good), null][..],
        &[&info, &algorithm, &bits(&[&good, null].concat())],
        &[&info, &algorithm, &bits(&element(0x30, &[body, null]))],
        &[&info, &algorithm, &element(3, &[&[1], &good])],
        &[&info, &bits(&good)],
        &[&info, &algorithm],
    ] {
        assert_eq!(outer(parts), Err(KeyError::MalformedRequest));
    }
    let inner =
        &element(0x30, &[VERSION, SUBJECT, &public_der(&key.public()), NO_ATTRIBUTES, null]);
    assert_eq!(decode_request_der(&request_of(inner, &key)), Err(KeyError::MalformedRequest));
}

#[test]
fn rejects_a_request_that_another_key_signed() {
    for algorithm in suites() {
        let (own, other) = (key(algorithm, 3), key(algorithm, 4));
        let info = info(&own.public());
        assert_eq!(
            decode_request_der(&request_of(&info, &other)),
            Err(KeyError::RequestNotAuthentic)
        );
        for foreign in suites().filter(|&foreign| foreign != algorithm) {
            assert_eq!(
                decode_request_der(&request_of(&info, &key(foreign, 3))),
                Err(KeyError::AlgorithmMismatch)
            );
        }
        let empty = request_with(&info, algorithm, &[]);
        assert!(matches!(
            decode_request_der(&empty),
            Err(KeyError::RequestNotAuthentic | KeyError::MalformedRequest)
        ));
    }
}

#[test]
fn rejects_the_signature_of_another_request() {
    for algorithm in suites() {
        let key = key(algorithm, 3);
        let other =
            element(0x30, &[VERSION, &[0x30, 0], &public_der(&key.public()), NO_ATTRIBUTES]);
        let signature = key.signature(&other).unwrap();
        let signature = match algorithm {
            Algorithm::Esp256 => ecdsa_to_der(&signature),
            _ => signature.to_vec(),
        };
        assert_eq!(
            decode_request_der(&request_with(&info(&key.public()), algorithm, &signature)),
            Err(KeyError::RequestNotAuthentic)
        );
    }
}

/// The order of the group of P-256.
const ORDER: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551";

/// An ECDSA signature `(r, s)` and its twin `(r, n - s)` are both valid. Other programs write either
/// of them, so a request is accepted with both.
#[test]
fn accepts_a_p256_signature_with_either_s() {
    for pem in [P256, P256_EXTENSIONS] {
        let der = der(pem);
        // The signature is the last element: 03, the length, 00 and an ECDSA-Sig-Value.
        let at = (0..der.len() - 3)
            .rev()
            .find(|&at| der[at..at + 3] == [3, u8::try_from(der.len() - at - 2).unwrap(), 0])
            .unwrap();
        let raw = ecdsa_from_der(&der[at + 3..]);
        let order = BigUint::parse_bytes(ORDER.as_bytes(), 16).unwrap();
        let s = (order - BigUint::from_bytes_be(&raw[32..])).to_bytes_be();
        let twin = ecdsa_to_der(&[&raw[..32], &vec![0; 32 - s.len()], &s].concat());
        // The length of the outer sequence has one more byte in P256 and two in P256_EXTENSIONS.
        let start = if der[1] == 0x81 { 3 } else { 4 };
        let twin = element(0x30, &[&der[start..at], &element(3, &[&[0], &twin])]);
        assert_ne!(twin, der);
        assert_eq!(decode_request_der(&twin).unwrap(), decode_request_der(&der).unwrap());
    }
}

#[test]
fn rejects_p256_signatures_whose_integers_are_not_der() {
    let key = key(Algorithm::Esp256, 3);
    let info = info(&key.public());
    let raw = key.signature(&info).unwrap();
    let good = ecdsa_to_der(&raw);
    let r = usize::from(good[3]);
    let (r, s) = (&good[2..4 + r], &good[4 + r..]);
    let decode = |r: &[u8], s: &[u8]| {
        decode_request_der(&request_with(&info, Algorithm::Esp256, &element(0x30, &[r, s])))
    };
    let integer = |contents: &[u8]| element(2, &[contents]);
    assert_eq!(decode(r, s), Ok(key.public()));
    let padded = integer(&[&[0], &r[2..]].concat());
    let long = integer(&[1; 33]);
    for (r, s) in [
        (&padded[..], s),
        (r, &long),
        (r, &integer(&[])),
        (&integer(&[0]), s),
        (&integer(&[0x80]), s),
        (&integer(&[0xff, 1]), s),
        (&integer(&[0, 1]), s),
        (&element(4, &[&r[2..]]), s),
    ] {
        assert_eq!(decode(r, s), Err(KeyError::MalformedRequest));
    }
    let order = integer(&[&[0], &hex::decode(ORDER).unwrap()[..]].concat());
    assert_eq!(decode(&order, s), Err(KeyError::RequestNotAuthentic));
    assert_eq!(decode(r, &order), Err(KeyError::RequestNotAuthentic));
    // The raw form of the signature is not DER.
    assert_eq!(
        decode_request_der(&request_with(&info, Algorithm::Esp256, &raw)),
        Err(KeyError::MalformedRequest)
    );
}

#[test]
fn rejects_another_structure_of_the_signed_part() {
    let key = key(Algorithm::Ed25519, 3);
    let public = public_der(&key.public());
    let decode = |parts: &[&[u8]]| decode_request_der(&request_of(&element(0x30, parts), &key));
    let pair = &SUBJECT[4..];
    let oid: &[u8] = &[6, 1, 1];
    let attributes = |contents: &[u8]| element(0xa0, &[contents]);
    let attribute = |values: &[u8]| attributes(&element(0x30, &[oid, &element(0x31, &[values])]));
    assert_eq!(decode(&[VERSION, SUBJECT, &public, NO_ATTRIBUTES]), Ok(key.public()));
    assert_eq!(decode(&[VERSION, SUBJECT, &public, &attribute(&[5, 0])]), Ok(key.public()));
    for parts in [
        // The version is 0, in one byte.
        [&[2, 1, 1][..], SUBJECT, &public, NO_ATTRIBUTES],
        [&[2, 2, 0, 0], SUBJECT, &public, NO_ATTRIBUTES],
        [&[2, 0], SUBJECT, &public, NO_ATTRIBUTES],
        // The subject is a sequence of sets of pairs.
        [VERSION, &element(0x30, &[pair]), &public, NO_ATTRIBUTES],
        [VERSION, &element(0x30, &[&[0x31, 0]]), &public, NO_ATTRIBUTES],
        [VERSION, &element(0x30, &[&element(0x31, &[oid])]), &public, NO_ATTRIBUTES],
        [VERSION, &element(0x31, &[&SUBJECT[2..]]), &public, NO_ATTRIBUTES],
        // The attributes are required, and each has a type and values.
        [VERSION, SUBJECT, &public, &[]],
        [VERSION, SUBJECT, &public, &[0x80, 0]],
        [VERSION, SUBJECT, &public, &attribute(&[])],
        [VERSION, SUBJECT, &public, &attribute(&[5])],
        [VERSION, SUBJECT, &public, &attribute(&[0x1f, 1, 0])],
        [VERSION, SUBJECT, &public, &attributes(&element(0x30, &[oid]))],
        [VERSION, SUBJECT, &public, &attributes(oid)],
    ] {
        assert_eq!(decode(&parts), Err(KeyError::MalformedRequest), "{parts:x?}");
    }
    // A length that is not in its shortest form is not DER.
    let long = [0xa0, 0x81, 0];
    assert_eq!(decode(&[VERSION, SUBJECT, &public, &long]), Err(KeyError::MalformedRequest));
}

#[test]
fn rejects_other_algorithms_with_the_specified_error() {
    let error = |pem: &str| decode_request_pem(pem.as_bytes()).unwrap_err();
    let rsa = error(include_str!("requests/rsa.pem"));
    assert_eq!(rsa, KeyError::UnknownAlgorithm);
    assert!(rsa.to_string().contains("not Ed25519, P-256 or ML-DSA-44"), "{rsa}");
    assert_eq!(error(include_str!("requests/p384.pem")), KeyError::UnknownAlgorithm);
    let digest = error(include_str!("requests/p256_sha384.pem"));
    assert_eq!(digest, KeyError::AlgorithmMismatch);
    assert!(digest.to_string().contains("SHA-256"), "{digest}");
    // The identifier of a signature has no parameters.
    let key = key(Algorithm::Ed25519, 3);
    let info = info(&key.public());
    let algorithm = element(0x30, &[&[0x06, 3, 0x2b, 0x65, 0x70], &[5, 0]]);
    let signature = element(3, &[&[0], &key.signature(&info).unwrap()]);
    assert_eq!(
        decode_request_der(&element(0x30, &[&info, &algorithm, &signature])),
        Err(KeyError::AlgorithmMismatch)
    );
}

#[test]
fn rejects_public_keys_that_are_not_valid() {
    let key = key(Algorithm::Ed25519, 3);
    let id = element(0x30, &[&[0x06, 3, 0x2b, 0x65, 0x70]]);
    let decode = |bytes: &[u8]| {
        let public = element(0x30, &[&id, &element(3, &[&[0], bytes])]);
        let info = element(0x30, &[VERSION, SUBJECT, &public, NO_ATTRIBUTES]);
        decode_request_der(&request_of(&info, &key))
    };
    assert_eq!(decode(&key.public().to_bytes()), Ok(key.public()));
    assert_eq!(decode(&[1; 31]), Err(KeyError::KeyLength));
    // A point of small order, for which anyone can make signatures.
    let mut weak = [0; 32];
    weak[0] = 1;
    assert_eq!(decode(&weak), Err(KeyError::InvalidPublicKey));
}

#[test]
fn rejects_requests_that_are_too_long() {
    let key = key(Algorithm::Ed25519, 3);
    let public = public_der(&key.public());
    let of_length = |length: usize| {
        let value = element(4, &[&vec![0; length]]);
        let attribute = element(0x30, &[&[6, 1, 1], &element(0x31, &[&value])]);
        let attributes = element(0xa0, &[&attribute]);
        request_of(&element(0x30, &[VERSION, SUBJECT, &public, &attributes]), &key)
    };
    let surplus = of_length(7000).len() - 7000;
    let longest = of_length(MAX_REQUEST - surplus);
    assert_eq!(longest.len(), MAX_REQUEST);
    assert_eq!(decode_request_der(&longest), Ok(key.public()));
    let text = pem("CERTIFICATE REQUEST", &longest).replace('\n', "\r\n");
    assert_eq!(decode_request_pem(text.as_bytes()), Ok(key.public()));
    for length in [MAX_REQUEST + 1, 2 * MAX_REQUEST, 7 * MAX_REQUEST] {
        let long = of_length(length - surplus);
        assert_eq!(decode_request_der(&long), Err(KeyError::RequestTooLong));
        let text = pem("CERTIFICATE REQUEST", &long);
        assert_eq!(decode_request_pem(text.as_bytes()), Err(KeyError::RequestTooLong));
        let other = pem("CERTIFICATE", &long);
        assert_eq!(decode_request_pem(other.as_bytes()), Err(KeyError::WrongPemLabel));
        assert_eq!(decode_request_pem(&text.as_bytes()[20..]), Err(KeyError::MalformedPem));
    }
    let message = KeyError::RequestTooLong.to_string().replace(',', "");
    assert!(message.contains(&MAX_REQUEST.to_string()), "{message}");
}

#[test]
fn a_public_key_is_not_a_request_and_a_request_is_not_a_public_key() {
    let public = pem("PUBLIC KEY", &public_der(&key(Algorithm::Ed25519, 3).public()));
    assert_eq!(decode_request_pem(public.as_bytes()), Err(KeyError::WrongPemLabel));
    for request in [ED25519, P256_EXTENSIONS, ML_DSA_44] {
        assert_eq!(decode_public_pem(request.as_bytes()), Err(KeyError::WrongPemLabel));
    }
    let mislabelled = ED25519.replace("CERTIFICATE REQUEST", "CERTIFICATE");
    assert_eq!(decode_request_pem(mislabelled.as_bytes()), Err(KeyError::WrongPemLabel));
    let twice = [ED25519, ED25519].concat();
    assert_eq!(decode_request_pem(twice.as_bytes()), Err(KeyError::MalformedPem));
    assert_eq!(decode_request_pem(b""), Err(KeyError::MalformedPem));
    assert!(
        decode_public_pem(ED25519.replace("CERTIFICATE REQUEST", "PUBLIC KEY").as_bytes()).is_err()
    );
}

proptest! {
    #[test]
    fn requests_of_any_key_are_read(seed: [u8; 32], esp256: bool) {
        let algorithm = if esp256 { Algorithm::Esp256 } else { Algorithm::Ed25519 };
        let key = SecretKey::from_seed(algorithm, &seed).unwrap();
        prop_assert_eq!(decode_request_der(&request(&key)), Ok(key.public()));
    }

    /// A changed range of bytes is rejected and never causes a panic.
    #[test]
    fn rejects_mutated_requests(
        at: prop::sample::Index, bytes in prop::collection::vec(any::<u8>(), 1..8), esp256: bool,
    ) {
        let good = der(if esp256 { P256_EXTENSIONS } else { ED25519_EXTENSIONS });
        let mut der = good.clone();
        let at = at.index(der.len());
        der.splice(at..(at + bytes.len()).min(good.len()), bytes);
        prop_assert!(der == good || decode_request_der(&der).is_err());
    }

    #[test]
    fn rejects_noise_as_a_request(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode_request_der(&bytes).is_err());
        prop_assert!(decode_request_pem(&bytes).is_err());
    }
}
