//! A seal's salt, compared with HMAC-SHA256 over the bytes given in spec/formats.md.

use hmac::{Hmac, KeyInit, Mac};
use moteseal_core::{DeviceId, SealIndex};
use moteseal_seal::level::SaltKey;

#[test]
fn a_salt_equals_the_truncated_reference_hmac() {
    for (key, index) in [([0; 32], 0), ([7; 32], 1), ([0xff; 32], u32::MAX)] {
        let device = DeviceId::of("home", "dev1");
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
        mac.update(&[b"moteseal/1/salt".as_slice(), &device.0, &index.to_be_bytes()].concat());
        let whole = mac.finalize().into_bytes();
        assert_eq!(SaltKey::new(key).salt(device, SealIndex(index)).0, whole[..16]);
    }
}
