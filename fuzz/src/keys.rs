//! Fuzzes key files and certificate requests. If a key can be read, writing it must give a file that
//! is read as the same key.

use moteseal_core::identity::{
    MAX_DER, MAX_PEM, decode_public_der, decode_public_pem, decode_request_der, decode_request_pem,
    decode_secret_der, decode_secret_pem, encode_public_der, encode_public_pem, encode_secret_der,
    encode_secret_pem,
};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};

/// Certificate requests of other programs (`crates/core/tests/it/requests.rs`).
const REQUESTS: [&str; 4] = [
    include_str!("../../crates/core/tests/it/requests/ed25519.pem"),
    include_str!("../../crates/core/tests/it/requests/p256.pem"),
    include_str!("../../crates/core/tests/it/requests/p256_extensions.pem"),
    include_str!("../../crates/core/tests/it/requests/ml_dsa_44.pem"),
];

/// Reads the bytes as each kind of key file.
pub fn run(bytes: &[u8]) {
    let public = [
        decode_public_der(bytes),
        decode_public_pem(bytes),
        decode_request_der(bytes),
        decode_request_pem(bytes),
    ];
    for key in public.into_iter().flatten() {
        let mut out = [0; MAX_DER];
        let again = decode_public_der(encode_public_der(&key, &mut out).unwrap())
            .expect("a written key can be read");
        assert_eq!(again.to_bytes()[..], key.to_bytes()[..]);
    }
    for key in [decode_secret_der(bytes), decode_secret_pem(bytes)].into_iter().flatten() {
        let mut out = [0; MAX_DER];
        let again = decode_secret_der(encode_secret_der(&key, &mut out).unwrap())
            .expect("a written key can be read");
        assert_eq!(again.to_bytes()[..], key.to_bytes()[..]);
    }
    for algorithm in Algorithm::ALL {
        if let Ok(key) = PublicKey::from_bytes(algorithm, bytes) {
            assert_eq!(&key.to_bytes()[..], bytes, "two encodings of one key");
        }
    }
}

/// Decodes the base64 lines of a PEM block.
fn request_der(pem: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let lines = pem.lines().filter(|line| !line.starts_with('-'));
    let (mut out, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in lines.flat_map(str::bytes).filter(|&byte| byte != b'=') {
        let digit = DIGITS.iter().position(|&digit| digit == byte).unwrap();
        bits = bits << 6 | u32::try_from(digit).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    out
}

/// Returns the key files of each suite, and certificate requests.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for request in REQUESTS {
        seeds.push(request.as_bytes().to_vec());
        let der = request_der(request);
        decode_request_der(&der).expect("the seed is a valid request");
        seeds.push(der);
    }
    for algorithm in Algorithm::ALL {
        let key = SecretKey::from_seed(algorithm, &[3; 32]).unwrap();
        let (mut der, mut pem) = ([0; MAX_DER], [0; MAX_PEM]);
        seeds.push(encode_secret_der(&key, &mut der).unwrap().to_vec());
        seeds.push(encode_secret_pem(&key, &mut pem).unwrap().as_bytes().to_vec());
        let (mut der, mut pem) = ([0; MAX_DER], [0; MAX_PEM]);
        seeds.push(encode_public_der(&key.public(), &mut der).unwrap().to_vec());
        seeds.push(encode_public_pem(&key.public(), &mut pem).unwrap().as_bytes().to_vec());
        seeds.push(key.public().to_bytes().to_vec());
    }
    seeds
}
