//! Tests of the signature suites with known answers from other sources: Wycheproof, the RFCs, and
//! another implementation.

use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, KeyError, PublicKey, SecretKey, SignatureError, Signer};
use moteseal_fixtures::external_data;
use serde_json::Value;

/// Half the order of P-256, rounded down.
const HALF_ORDER: &str = "7fffffff800000007fffffffffffffffde737d56d38bcf4279dce5617e3192a8";

/// Returns a file of external vectors; `None` if the vectors are absent.
fn data(folder: &str, file: &str) -> Option<Vec<u8>> {
    Some(std::fs::read(external_data(folder)?.join(file)).unwrap())
}

fn wycheproof(name: &str) -> Option<Value> {
    Some(serde_json::from_slice(&data("vectors_wycheproof", name)?).unwrap())
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

/// Calls `check` with each group's public key and each test's message, signature and verdict.
fn each_signature(file: &Value, mut check: impl FnMut(&Value, &[u8], &[u8], bool, &str)) -> usize {
    let mut count = 0;
    for group in file["testGroups"].as_array().unwrap() {
        for test in group["tests"].as_array().unwrap() {
            let valid = test["result"] == "valid";
            let about = format!("test {}: {}", test["tcId"], test["comment"]);
            check(&group["publicKey"], &bytes(&test["msg"]), &bytes(&test["sig"]), valid, &about);
            count += 1;
        }
    }
    assert_eq!(count as u64, file["numberOfTests"].as_u64().unwrap());
    count
}

#[test]
fn ed25519_agrees_with_wycheproof() {
    let Some(file) = wycheproof("ed25519_test.json") else { return };
    each_signature(&file, |key, message, signature, valid, about| {
        let key = PublicKey::from_bytes(Algorithm::Ed25519, &bytes(&key["pk"])).unwrap();
        let expected = match (valid, signature.len()) {
            (true, _) => Ok(()),
            (false, 64) => Err(SignatureError::NotAuthentic),
            (false, _) => Err(SignatureError::MalformedSignature),
        };
        assert_eq!(key.verify(message, signature), expected, "{about}");
    });
}

#[test]
fn esp256_agrees_with_wycheproof_and_detects_high_s() {
    let Some(file) = wycheproof("ecdsa_secp256r1_sha256_p1363_test.json") else { return };
    let half = hex::decode(HALF_ORDER).unwrap();
    let (mut high, mut low) = (0, 0);
    each_signature(&file, |key, message, signature, valid, about| {
        let key = PublicKey::from_bytes(Algorithm::Esp256, &bytes(&key["uncompressed"])).unwrap();
        let expected = match (valid, signature.len()) {
            (true, _) if signature[32..] > half[..] => {
                high += 1;
                Err(SignatureError::HighS)
            }
            (true, _) => {
                low += 1;
                Ok(())
            }
            (false, 64) => Err(SignatureError::NotAuthentic),
            (false, _) => Err(SignatureError::MalformedSignature),
        };
        assert_eq!(key.verify(message, signature), expected, "{about}");
    });
    assert!(high > 50 && low > 50, "the file has both kinds: {high} high, {low} low");
}

/// Computes HMAC as RFC 2104 defines it, with only the hash function.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Digest::of(&[key]).0);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Digest::of(&[&block.map(|byte| byte ^ 0x36), message]);
    Digest::of(&[&block.map(|byte| byte ^ 0x5c), &inner.0]).0
}

#[test]
fn the_reference_hmac_agrees_with_wycheproof() {
    let Some(file) = wycheproof("hmac_sha256_test.json") else { return };
    for group in file["testGroups"].as_array().unwrap() {
        for test in group["tests"].as_array().unwrap() {
            let tag = bytes(&test["tag"]);
            let own = hmac(&bytes(&test["key"]), &bytes(&test["msg"]));
            assert_eq!(
                own[..tag.len()] == tag[..],
                test["result"] == "valid",
                "test {}",
                test["tcId"]
            );
        }
    }
}

#[test]
fn the_secret_of_a_link_is_the_reference_hmac_of_group_and_device() {
    let group_secret = [7; 32];
    let (group, device) = (GroupId::of("home"), DeviceId::of("home", "dev1"));
    let message = [b"moteseal/1/link".as_slice(), &group.0, &device.0].concat();
    assert_eq!(*LinkKey::secret_of(&group_secret, group, device), hmac(&group_secret, &message));
}

/// The vectors of ed25519.cr.yp.to. Each line has four fields: seed and public key; public key;
/// message; signature and message.
#[test]
fn ed25519_signs_as_the_reference_implementation_does() {
    let Some(file) = data("vectors_ed25519", "TESTVECTORS") else { return };
    let mut count = 0;
    for line in String::from_utf8(file).unwrap().lines() {
        let fields: Vec<Vec<u8>> =
            line.split(':').take(4).map(|field| hex::decode(field).unwrap()).collect();
        let [secret, public, message, signed] = &fields[..] else { panic!("{line}") };
        let key = SecretKey::from_bytes(Algorithm::Ed25519, &secret[..32]).unwrap();
        assert_eq!(*key.public().to_bytes(), **public);
        assert_eq!(*key.signature(message).unwrap(), signed[..64]);
        count += 1;
    }
    assert_eq!(count, 128);
}

/// RFC 6979, appendix A.2.5, with SHA-256. The RFC's own `s` of the first vector is in the upper
/// half.
#[test]
fn esp256_signs_by_rfc_6979_with_low_s() {
    let secret =
        hex::decode("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721").unwrap();
    let key = SecretKey::from_bytes(Algorithm::Esp256, &secret).unwrap();
    let r = "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716";
    let high = "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8";
    let low = "0834e36ad29a83bf2bc9385e491d6099c8fdf9d1ed67aa7ea5f51f93782857a9";
    assert_eq!(hex::encode(&*key.signature(b"sample").unwrap()), format!("{r}{low}"));
    let malleated = hex::decode(format!("{r}{high}")).unwrap();
    assert_eq!(key.public().verify(b"sample", &malleated), Err(SignatureError::HighS));
    assert_eq!(
        key.public().verify(b"simple", &malleated),
        Err(SignatureError::NotAuthentic),
        "a signature with HighS is otherwise valid"
    );
    assert_eq!(
        hex::encode(&*key.signature(b"test").unwrap()),
        "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367\
         019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083"
    );
}

#[test]
fn rejects_ed25519_keys_of_small_order_and_non_canonical_encodings() {
    let p = "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f";
    for (encoding, about) in [
        ("0100000000000000000000000000000000000000000000000000000000000000", "the neutral element"),
        (
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "the point of order 2",
        ),
        ("0000000000000000000000000000000000000000000000000000000000000000", "a point of order 4"),
        ("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", "a point of order 8"),
        (p, "y = p, which is y = 0 again"),
        (
            "f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "y = p + 3, which is y = 3 again",
        ),
        (
            "f1ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
            "y = p + 4, which is y = 4 again",
        ),
        (
            "0200000000000000000000000000000000000000000000000000000000000000",
            "not a point of the curve",
        ),
    ] {
        let bytes = hex::decode(encoding).unwrap();
        assert_eq!(
            PublicKey::from_bytes(Algorithm::Ed25519, &bytes),
            Err(KeyError::InvalidPublicKey),
            "{about}"
        );
    }
    // At least one of the canonical encodings of y = 3 and y = 4 is accepted. This shows that the
    // encodings above were rejected because they are not canonical.
    let canonical = [3, 4].map(|y| {
        let mut bytes = [0; 32];
        bytes[0] = y;
        PublicKey::from_bytes(Algorithm::Ed25519, &bytes).is_ok()
    });
    assert!(canonical.contains(&true));
}

/// A signer can choose an `R` of small order. With a key of mixed order, the verification equation
/// can hold for every such `R`. Strict verification rejects these signatures.
#[test]
fn rejects_ed25519_signatures_with_r_of_small_order() {
    use curve25519_dalek::{EdwardsPoint, Scalar, constants::EIGHT_TORSION};
    use ed25519_dalek::Verifier as _;

    let secret = Scalar::from_bytes_mod_order([9; 32]);
    for torsion in &EIGHT_TORSION[..2] {
        let public = EdwardsPoint::mul_base(&secret) + torsion;
        let key_bytes = public.compress().to_bytes();
        let key = PublicKey::from_bytes(Algorithm::Ed25519, &key_bytes).unwrap();
        let theirs = ed25519_dalek::VerifyingKey::from_bytes(&key_bytes).unwrap();
        let mut found = std::collections::BTreeSet::new();
        for message in 0u32..2000 {
            let message = message.to_be_bytes();
            for r in EIGHT_TORSION {
                let r_bytes = r.compress().to_bytes();
                let k =
                    Scalar::from_bytes_mod_order_wide(&sha512(&[&r_bytes, &key_bytes, &message]));
                if r + torsion * k != EIGHT_TORSION[0] {
                    continue;
                }
                let signature = [r_bytes, (k * secret).to_bytes()].concat();
                let parsed = ed25519_dalek::Signature::from_slice(&signature).unwrap();
                assert!(theirs.verify(&message, &parsed).is_ok(), "the equation holds");
                assert!(theirs.verify_strict(&message, &parsed).is_err());
                assert_eq!(key.verify(&message, &signature), Err(SignatureError::NotAuthentic));
                found.insert(r_bytes);
            }
        }
        assert_eq!(found.len(), if *torsion == EIGHT_TORSION[0] { 1 } else { 8 });
    }
}

fn sha512(parts: &[&[u8]]) -> [u8; 64] {
    use sha2::Digest as _;
    let mut hasher = sha2::Sha512::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}

#[test]
fn accepts_only_uncompressed_points_as_esp256_keys() {
    let key = SecretKey::from_seed(Algorithm::Esp256, &[1; 32]).unwrap().public().to_bytes();
    let with = |at: usize, byte: u8| {
        let mut bytes = key.to_vec();
        bytes[at] ^= byte;
        PublicKey::from_bytes(Algorithm::Esp256, &bytes)
    };
    assert_eq!(with(64, 1), Err(KeyError::InvalidPublicKey), "off the curve");
    for first in [0, 2, 3, 6, 7] {
        assert_eq!(with(0, 4 ^ first), Err(KeyError::InvalidPublicKey), "form {first}");
    }
    let compressed = [&[2 | key[64] & 1], &key[1..33]].concat();
    assert_eq!(PublicKey::from_bytes(Algorithm::Esp256, &compressed), Err(KeyError::KeyLength));
    assert_eq!(
        SecretKey::from_bytes(Algorithm::Esp256, &[0; 32]).err(),
        Some(KeyError::InvalidSecretKey)
    );
    assert_eq!(
        SecretKey::from_bytes(Algorithm::Esp256, &[0xff; 32]).err(),
        Some(KeyError::InvalidSecretKey)
    );
    assert!(
        SecretKey::from_seed(Algorithm::Esp256, &[0xff; 32]).is_ok(),
        "32 random bytes always give a key"
    );
}

#[test]
#[cfg(not(feature = "host"))]
fn rejects_ml_dsa_keys_if_the_suite_is_not_built_in() {
    assert_eq!(
        PublicKey::from_bytes(Algorithm::MlDsa44, &[0; 1312]),
        Err(KeyError::UnknownAlgorithm)
    );
    assert_eq!(
        SecretKey::from_seed(Algorithm::MlDsa44, &[0; 32]).err(),
        Some(KeyError::UnknownAlgorithm)
    );
}

/// Compares with AWS-LC, because the folder of external vectors has none for this suite.
#[test]
#[cfg(feature = "host")]
fn ml_dsa_44_agrees_with_another_implementation() {
    use aws_lc_rs::signature::{
        KeyPair, ML_DSA_44, ML_DSA_44_SIGNING, PqdsaKeyPair, UnparsedPublicKey,
    };

    for byte in 0..8 {
        let ours = SecretKey::from_seed(Algorithm::MlDsa44, &[byte; 32]).unwrap();
        let theirs = PqdsaKeyPair::from_seed(&ML_DSA_44_SIGNING, &[byte; 32]).unwrap();
        assert_eq!(*ours.public().to_bytes(), *theirs.public_key().as_ref());
        for message in [b"".as_slice(), b"one epoch", &[byte; 5000]] {
            let signature = ours.signature(message).unwrap();
            UnparsedPublicKey::new(&ML_DSA_44, &*ours.public().to_bytes())
                .verify(message, &signature)
                .unwrap();
            let mut signature = [0; 2420];
            theirs.sign(message, &mut signature).unwrap();
            assert_eq!(ours.public().verify(message, &signature), Ok(()));
            for at in [0, 31, 32, 1000, 2335, 2336, 2415, 2419] {
                let mut broken = signature;
                broken[at] ^= 1;
                let refused = UnparsedPublicKey::new(&ML_DSA_44, &*ours.public().to_bytes())
                    .verify(message, &broken)
                    .is_err();
                assert!(refused);
                assert_eq!(
                    ours.public().verify(message, &broken),
                    Err(SignatureError::NotAuthentic),
                    "byte {at}"
                );
            }
        }
    }
}
