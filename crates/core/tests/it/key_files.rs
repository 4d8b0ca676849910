//! Tests of key files: DER and PEM round trips, exchange with openssl, and invalid files.

use std::io::Write as _;
use std::process::{Command, Stdio};

use moteseal_core::identity::{
    MAX_DER, MAX_PEM, decode_public_der, decode_public_pem, decode_secret_der, decode_secret_pem,
    encode_public_der, encode_public_pem, encode_secret_der, encode_secret_pem,
};
use moteseal_core::signature::{Algorithm, KeyError, PublicKey, SecretKey, SignatureError, Signer};
use proptest::prelude::*;

pub(crate) fn suites() -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL
        .into_iter()
        .filter(|&algorithm| cfg!(feature = "host") || algorithm != Algorithm::MlDsa44)
}

pub(crate) fn key(algorithm: Algorithm, byte: u8) -> SecretKey {
    SecretKey::from_seed(algorithm, &[byte; 32]).unwrap()
}

fn secret_der(key: &SecretKey) -> Vec<u8> {
    encode_secret_der(key, &mut [0; MAX_DER]).unwrap().to_vec()
}

pub(crate) fn public_der(key: &PublicKey) -> Vec<u8> {
    encode_public_der(key, &mut [0; MAX_DER]).unwrap().to_vec()
}

fn secret_pem(key: &SecretKey) -> String {
    encode_secret_pem(key, &mut [0; MAX_PEM]).unwrap().to_owned()
}

fn public_pem(key: &PublicKey) -> String {
    encode_public_pem(key, &mut [0; MAX_PEM]).unwrap().to_owned()
}

/// Runs openssl with `input` on its standard input and returns its standard output. If openssl is
/// not installed, prints a message and returns `None`.
pub(crate) fn openssl(arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .inspect_err(|_| println!("skipped: openssl is not installed"));
    let mut child = child.ok()?;
    // Ignore a write error, because openssl may close its input early. The exit status shows
    // whether it succeeded.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "openssl {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(output.stdout)
}

/// Returns the arguments with which every 3.x version of openssl generates a key of this suite.
pub(crate) fn generate(algorithm: Algorithm) -> &'static [&'static str] {
    match algorithm {
        Algorithm::Ed25519 => &["genpkey", "-algorithm", "ed25519"],
        _ => &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
    }
}

pub(crate) const CLASSIC: [Algorithm; 2] = [Algorithm::Ed25519, Algorithm::Esp256];

#[test]
fn openssl_reads_keys_and_writes_the_same_bytes() {
    for algorithm in CLASSIC {
        let key = key(algorithm, 5);
        let Some(text) = openssl(&["pkey", "-text", "-noout"], secret_pem(&key).as_bytes()) else {
            return;
        };
        let digits: String =
            String::from_utf8(text).unwrap().chars().filter(char::is_ascii_hexdigit).collect();
        assert!(digits.contains(&hex::encode(*key.to_bytes())));
        assert!(digits.contains(&hex::encode(&*key.public().to_bytes())));

        let again = openssl(&["pkey", "-outform", "DER"], secret_pem(&key).as_bytes()).unwrap();
        // openssl writes an EC key to DER in the older form unless PKCS#8 is requested.
        let again = if algorithm == Algorithm::Esp256 {
            openssl(&["pkcs8", "-topk8", "-nocrypt", "-inform", "DER", "-outform", "DER"], &again)
                .unwrap()
        } else {
            again
        };
        assert_eq!(hex::encode(again), hex::encode(secret_der(&key)));

        let public = openssl(&["pkey", "-pubout"], secret_pem(&key).as_bytes()).unwrap();
        assert_eq!(String::from_utf8(public).unwrap(), public_pem(&key.public()));
        let der =
            openssl(&["pkey", "-pubin", "-outform", "DER"], public_pem(&key.public()).as_bytes())
                .unwrap();
        assert_eq!(der, public_der(&key.public()));
    }
}

#[test]
fn reads_openssl_keys_and_writes_the_same_pem() {
    for algorithm in CLASSIC {
        let Some(pem) = openssl(generate(algorithm), b"") else { return };
        let key = decode_secret_pem(&pem).unwrap();
        assert_eq!(key.algorithm(), algorithm);
        assert_eq!(secret_pem(&key), String::from_utf8(pem.clone()).unwrap());
        let public = openssl(&["pkey", "-pubout"], &pem).unwrap();
        assert_eq!(decode_public_pem(&public).unwrap(), key.public());
    }
}

/// Converts a signature from `r || s` to the DER that openssl uses (RFC 3279).
pub(crate) fn ecdsa_to_der(raw: &[u8]) -> Vec<u8> {
    let integer = |bytes: &[u8]| {
        let start = bytes.iter().position(|&byte| byte != 0).unwrap();
        let pad = usize::from(bytes[start] >> 7);
        let body = [&[0][..pad], &bytes[start..]].concat();
        [&[2, u8::try_from(body.len()).unwrap()], &body[..]].concat()
    };
    let body = [integer(&raw[..32]), integer(&raw[32..])].concat();
    [&[0x30, u8::try_from(body.len()).unwrap()], &body[..]].concat()
}

pub(crate) fn ecdsa_from_der(der: &[u8]) -> Vec<u8> {
    let integer = |bytes: &[u8]| {
        let bytes = if bytes[0] == 0 { &bytes[1..] } else { bytes };
        [&vec![0; 32 - bytes.len()], bytes].concat()
    };
    let r = usize::from(der[3]);
    [integer(&der[4..4 + r]), integer(&der[6 + r..])].concat()
}

#[test]
fn signatures_interoperate_with_openssl() {
    let folder = std::env::temp_dir().join(format!("moteseal-key-files-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    std::fs::write(path("message"), b"a reading").unwrap();
    for algorithm in CLASSIC {
        let key = key(algorithm, 6);
        std::fs::write(path("secret"), secret_pem(&key)).unwrap();
        std::fs::write(path("public"), public_pem(&key.public())).unwrap();
        let ours = key.signature(b"a reading").unwrap();
        let digest: &[&str] =
            if algorithm == Algorithm::Esp256 { &["-digest", "sha256"] } else { &[] };
        std::fs::write(
            path("signature"),
            if algorithm == Algorithm::Esp256 { ecdsa_to_der(&ours) } else { ours.to_vec() },
        )
        .unwrap();
        let (message, secret, public, signature) =
            (path("message"), path("secret"), path("public"), path("signature"));
        let arguments = [
            "pkeyutl", "-verify", "-rawin", "-in", &message, "-pubin", "-inkey", &public,
            "-sigfile", &signature,
        ];
        let Some(_) = openssl(&[&arguments, digest].concat(), b"") else { return };
        let arguments = ["pkeyutl", "-sign", "-rawin", "-in", &message, "-inkey", &secret];
        let theirs = openssl(&[&arguments, digest].concat(), b"").unwrap();
        match algorithm {
            Algorithm::Ed25519 => assert_eq!(theirs, *ours),
            // openssl does not normalise s. Half of its signatures have a high s, which is rejected
            // as HighS.
            _ => assert!(matches!(
                key.public().verify(b"a reading", &ecdsa_from_der(&theirs)),
                Ok(()) | Err(SignatureError::HighS)
            )),
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn keys_of_every_suite_round_trip_through_der_and_pem() {
    for algorithm in suites() {
        let key = key(algorithm, 9);
        for again in [
            decode_secret_der(&secret_der(&key)).unwrap(),
            decode_secret_pem(secret_pem(&key).as_bytes()).unwrap(),
        ] {
            assert_eq!(again.to_bytes(), key.to_bytes());
            assert_eq!(again.public(), key.public());
        }
        assert_eq!(decode_public_der(&public_der(&key.public())).unwrap(), key.public());
        assert_eq!(decode_public_pem(public_pem(&key.public()).as_bytes()).unwrap(), key.public());
    }
}

#[test]
fn rejects_a_buffer_that_is_one_byte_too_short() {
    for algorithm in suites() {
        let key = key(algorithm, 9);
        let (secret, public) = (secret_der(&key).len(), public_der(&key.public()).len());
        assert!(encode_secret_der(&key, &mut vec![0; secret]).is_ok());
        assert_eq!(
            encode_secret_der(&key, &mut vec![0; secret - 1]),
            Err(KeyError::BufferTooSmall)
        );
        assert!(encode_public_der(&key.public(), &mut vec![0; public]).is_ok());
        assert_eq!(
            encode_public_der(&key.public(), &mut vec![0; public - 1]),
            Err(KeyError::BufferTooSmall)
        );
        let (secret, public) = (secret_pem(&key).len(), public_pem(&key.public()).len());
        assert!(encode_secret_pem(&key, &mut vec![0; secret]).is_ok());
        assert_eq!(
            encode_secret_pem(&key, &mut vec![0; secret - 1]),
            Err(KeyError::BufferTooSmall)
        );
        assert_eq!(
            encode_public_pem(&key.public(), &mut vec![0; public - 1]),
            Err(KeyError::BufferTooSmall)
        );
    }
}

/// The keys of RFC 9881, appendix C.1, whose seed is 00 01 02 .. 1f. The test compares digests of
/// the keys in DER.
#[test]
#[cfg(feature = "host")]
fn ml_dsa_44_keys_equal_those_of_rfc_9881() {
    let pem = "-----BEGIN PRIVATE KEY-----\n\
               MDQCAQAwCwYJYIZIAWUDBAMRBCKAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZ\n\
               GhscHR4f\n\
               -----END PRIVATE KEY-----\n";
    let key = decode_secret_pem(pem.as_bytes()).unwrap();
    assert_eq!(key.to_bytes()[..], (0..32).collect::<Vec<u8>>()[..]);
    assert_eq!(secret_pem(&key), pem);
    assert_eq!(moteseal_core::Digest::of(&[&public_der(&key.public())]).to_string(), PUBLIC_DER);
}

#[cfg(feature = "host")]
const PUBLIC_DER: &str = "837832708c5236d951581f1fddf2b79991b3424a0486d16da1ddad0fd69701be";

pub(crate) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    let length = body.len();
    #[allow(clippy::cast_possible_truncation)]
    let head = match length {
        0..=127 => vec![tag, length as u8],
        128..=255 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [head, body].concat()
}

pub(crate) const ED25519_ID: &[u8] = &[0x30, 5, 0x06, 3, 0x2b, 0x65, 0x70];
pub(crate) const P256_ID: &[u8] = &[
    0x30, 0x13, 0x06, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d,
    3, 1, 7,
];

#[test]
fn reads_a_private_key_with_its_public_key_and_checks_the_pair() {
    let key = key(Algorithm::Ed25519, 1);
    let seed = element(4, &[&element(4, &[&*key.to_bytes()])]);
    let public = |bytes: &[u8]| element(0x81, &[&[0], bytes]);
    let attributes = element(0xa0, &[]);
    let own = key.public().to_bytes();
    let file = |version: &[u8], rest: &[&[u8]]| {
        element(0x30, &[version, ED25519_ID, &seed, &rest.concat()])
    };
    let decode = |der: Vec<u8>| decode_secret_der(&der).map(|key| key.public());

    assert_eq!(decode(file(&[2, 1, 0], &[])), Ok(key.public()));
    assert_eq!(decode(file(&[2, 1, 0], &[&attributes])), Ok(key.public()));
    assert_eq!(decode(file(&[2, 1, 1], &[&public(&own)])), Ok(key.public()));
    assert_eq!(decode(file(&[2, 1, 1], &[&attributes, &public(&own)])), Ok(key.public()));
    assert_eq!(decode(file(&[2, 1, 1], &[&public(&[9; 32])])), Err(KeyError::KeyPairMismatch));
    assert_eq!(
        decode(file(&[2, 1, 0], &[&public(&own)])),
        Err(KeyError::MalformedDer),
        "a public key is not allowed in version 0"
    );
    assert_eq!(
        decode(file(&[2, 1, 1], &[])),
        Err(KeyError::MalformedDer),
        "version 1 requires a public key"
    );
    assert_eq!(decode(file(&[2, 1, 2], &[])), Err(KeyError::MalformedDer));
    assert_eq!(decode(file(&[2, 1, 0], &[&[5, 0]])), Err(KeyError::MalformedDer), "extra element");
}

#[test]
fn reads_p256_keys_without_optional_elements() {
    let key = key(Algorithm::Esp256, 1);
    let scalar = element(4, &[&*key.to_bytes()]);
    let curve = element(0xa0, &[&P256_ID[11..]]);
    let public = |bytes: &[u8]| element(0xa1, &[&element(3, &[&[0], bytes])]);
    let own = key.public().to_bytes();
    let file = |parts: &[&[u8]]| {
        let private = element(4, &[&element(0x30, parts)]);
        decode_secret_der(&element(0x30, &[&[2, 1, 0], P256_ID, &private])).map(|key| key.public())
    };
    assert_eq!(file(&[&[2, 1, 1], &scalar]), Ok(key.public()));
    assert_eq!(file(&[&[2, 1, 1], &scalar, &curve]), Ok(key.public()));
    assert_eq!(file(&[&[2, 1, 1], &scalar, &curve, &public(&own)]), Ok(key.public()));
    let mut other = own.to_vec();
    other[10] ^= 1;
    assert_eq!(file(&[&[2, 1, 1], &scalar, &public(&other)]), Err(KeyError::KeyPairMismatch));
    assert_eq!(
        file(&[&[2, 1, 1], &scalar, &element(0xa0, &[&[6, 1, 1]])]),
        Err(KeyError::UnknownAlgorithm)
    );
    assert_eq!(file(&[&[2, 1, 2], &scalar]), Err(KeyError::MalformedDer));
    assert_eq!(file(&[&[2, 1, 1], &element(4, &[&[1; 31]])]), Err(KeyError::KeyLength));
    assert_eq!(file(&[&[2, 1, 1], &element(4, &[&[0; 32]])]), Err(KeyError::InvalidSecretKey));
}

#[test]
#[cfg(feature = "host")]
fn checks_ml_dsa_keys_with_both_forms_and_rejects_those_without_a_seed() {
    use ml_dsa::{ExpandedSigningKey, MlDsa44};

    let key = key(Algorithm::MlDsa44, 1);
    #[allow(deprecated)]
    let expanded =
        ExpandedSigningKey::<MlDsa44>::from_seed(&(*key.to_bytes()).into()).to_expanded();
    let mut other = expanded.to_vec();
    other[2000] ^= 1;
    let id = element(0x30, &[&[0x06, 9, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x03, 0x11]]);
    let file = |private: &[u8]| {
        decode_secret_der(&element(0x30, &[&[2, 1, 0], &id, &element(4, &[private])]))
            .map(|key| key.public())
    };
    let both = |expanded: &[u8]| {
        element(0x30, &[&element(4, &[&*key.to_bytes()]), &element(4, &[expanded])])
    };
    assert_eq!(file(&element(0x80, &[&*key.to_bytes()])), Ok(key.public()));
    assert_eq!(file(&both(&expanded)), Ok(key.public()));
    assert_eq!(file(&both(&other)), Err(KeyError::KeyPairMismatch));
    assert_eq!(file(&both(&expanded[1..])), Err(KeyError::KeyPairMismatch));
    assert_eq!(file(&element(4, &[&expanded])), Err(KeyError::SeedMissing));
}

#[test]
fn rejects_other_files_with_the_specified_error() {
    let key = key(Algorithm::Ed25519, 1);
    let (secret, public) = (secret_pem(&key), public_pem(&key.public()));
    let error = |pem: &str| decode_secret_pem(pem.as_bytes()).err();
    assert_eq!(error(&public), Some(KeyError::WrongPemLabel), "a public key file");
    assert_eq!(
        decode_public_pem(secret.as_bytes()).err(),
        Some(KeyError::WrongPemLabel),
        "a private key file"
    );
    assert_eq!(
        error(&secret.replace("PRIVATE", "ENCRYPTED PRIVATE")),
        Some(KeyError::WrongPemLabel)
    );
    assert_eq!(error(&secret.replace("PRIVATE", "EC PRIVATE")), Some(KeyError::WrongPemLabel));
    assert_eq!(error(""), Some(KeyError::MalformedPem));
    assert_eq!(error("id,temperature\n1,20\n"), Some(KeyError::MalformedPem));
    assert_eq!(error(&secret[..secret.len() - 10]), Some(KeyError::MalformedPem));
    let secp256k1 =
        [&P256_ID[..2], &P256_ID[2..11], &[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 8]].concat();
    let file = element(0x30, &[&secp256k1, &element(3, &[&[0], &[4; 65]])]);
    assert_eq!(decode_public_der(&file), Err(KeyError::UnknownAlgorithm));
    assert_eq!(
        decode_public_der(&element(0x30, &[ED25519_ID, &element(3, &[&[1], &[4; 32]])])),
        Err(KeyError::MalformedDer),
        "a bit string with unused bits"
    );
}

#[test]
fn accepts_windows_line_ends() {
    let key = key(Algorithm::Esp256, 1);
    let pem = secret_pem(&key).replace('\n', "\r\n");
    assert_eq!(decode_secret_pem(pem.as_bytes()).unwrap().public(), key.public());
}

#[test]
fn rejects_a_truncated_key_file() {
    for algorithm in suites() {
        let key = key(algorithm, 2);
        let (secret, public) = (secret_der(&key), public_der(&key.public()));
        for length in 0..secret.len() {
            assert!(decode_secret_der(&secret[..length]).is_err());
        }
        for length in 0..public.len() {
            assert!(decode_public_der(&public[..length]).is_err());
        }
        assert_eq!(
            decode_secret_der(&[&secret[..], &[0]].concat()).err(),
            Some(KeyError::MalformedDer)
        );
        assert_eq!(
            decode_public_der(&[&public[..], &[0]].concat()).err(),
            Some(KeyError::MalformedDer)
        );
    }
}

proptest! {
    #[test]
    fn any_key_round_trips_through_pem(seed: [u8; 32], esp256: bool) {
        let algorithm = if esp256 { Algorithm::Esp256 } else { Algorithm::Ed25519 };
        let key = SecretKey::from_seed(algorithm, &seed).unwrap();
        let again = decode_secret_pem(secret_pem(&key).as_bytes()).unwrap();
        prop_assert_eq!(again.to_bytes(), key.to_bytes());
        prop_assert_eq!(decode_public_pem(public_pem(&key.public()).as_bytes()).unwrap(), key.public());
    }

    /// Reading a mutated key never panics. A key that can still be read is written as the same
    /// bytes, unless the mutated file has another form that the reader accepts.
    #[test]
    fn mutated_keys_never_panic(at: prop::sample::Index, byte: u8, esp256: bool) {
        let key = key(if esp256 { Algorithm::Esp256 } else { Algorithm::Ed25519 }, 4);
        let mut der = secret_der(&key);
        let at = at.index(der.len());
        der[at] = byte;
        if let Ok(read) = decode_secret_der(&der) {
            prop_assert_eq!(hex::encode(secret_der(&read)), hex::encode(&der));
        }
        let mut der = public_der(&key.public());
        let at = at % der.len();
        der[at] = byte;
        if let Ok(read) = decode_public_der(&der) {
            prop_assert_eq!(public_der(&read), der);
        }
    }

    #[test]
    fn rejects_noise_as_a_key(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(decode_secret_der(&bytes).is_err());
        prop_assert!(decode_public_der(&bytes).is_err());
        prop_assert!(decode_secret_pem(&bytes).is_err());
        prop_assert!(decode_public_pem(&bytes).is_err());
    }
}
