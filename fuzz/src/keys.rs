//! Fuzzes key files. If a key can be read, writing it must give a file that is read as the same
//! key.

use moteseal_core::identity::{
    MAX_DER, MAX_PEM, decode_public_der, decode_public_pem, decode_secret_der, decode_secret_pem,
    encode_public_der, encode_public_pem, encode_secret_der, encode_secret_pem,
};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};

/// Reads the bytes as each kind of key file.
pub fn run(bytes: &[u8]) {
    for key in [decode_public_der(bytes), decode_public_pem(bytes)].into_iter().flatten() {
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

/// Returns the key files of each suite.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
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
