//! Compares a seal's salt with HMAC-SHA256 over the bytes that spec/objects.md specifies.

use moteseal_core::{DeviceId, Digest, SealIndex};
use moteseal_seal::level::SaltKey;

/// Computes HMAC as RFC 2104 defines it, for keys of at most one block, with only the hash
/// function.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Digest::of(&[&block.map(|byte| byte ^ 0x36), message]);
    Digest::of(&[&block.map(|byte| byte ^ 0x5c), &inner.0]).0
}

#[test]
fn a_salt_equals_the_truncated_reference_hmac() {
    for (key, index) in [([0; 32], 0), ([7; 32], 1), ([0xff; 32], u32::MAX)] {
        let device = DeviceId::of("home", "dev1");
        let message = [b"moteseal/1/salt".as_slice(), &device.0, &index.to_be_bytes()].concat();
        assert_eq!(SaltKey::new(key).salt(device, SealIndex(index)).0, hmac(&key, &message)[..16]);
    }
}
