//! Tests of the provisioning blob: a blob round trips, and other bytes are rejected.

use moteseal_core::confidential::{ColumnId, Path, StreamSecret};
use moteseal_core::digest::Digest;
use moteseal_core::provision::{
    Audience, GivenKeys, MASKS, MAX_PROVISIONING, Membership, ProvisionError, Provisioning,
    ReplayedWindow, SharedKey, blob_end, encode_keys,
};
use moteseal_core::record::NetworkId;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use proptest::prelude::*;
use zeroize::Zeroizing;

fn key(algorithm: Algorithm, byte: u8) -> SecretKey {
    SecretKey::from_seed(algorithm, &[byte; 32]).unwrap()
}

fn public(byte: u8) -> PublicKey {
    key(Algorithm::Ed25519, byte).public()
}

fn provisioning<'a>(
    schema: &'a [u8],
    algorithm: Algorithm,
    has_sums: bool,
    has_audience: bool,
    policy: (usize, Option<&'a [u8]>),
) -> Provisioning<'a> {
    let (device, group) = (DeviceId([1; 8]), GroupId([2; 8]));
    let membership = Membership {
        roster: Digest([9; 32]),
        key_group: 4,
        position: 8,
        secret: Zeroizing::new(std::array::from_fn(|at| 100 + at as u8)),
        querier: public(4),
        link_secret: Zeroizing::new([5; 32]),
        masks: (policy.0 == 2).then(|| Zeroizing::new([18; MASKS])),
        needs_policy: policy.0 > 0,
        policy: policy.1,
    };
    Provisioning {
        device,
        group,
        roster: (Digest([6; 32]), 7),
        certificate: Digest([8; 32]),
        levels: 16,
        epoch_ms: 3_600_000,
        epochs: (EpochNumber(0), has_sums.then_some(EpochNumber(u64::MAX))),
        start_ms: 0,
        scheme: if has_audience { Scheme::Tree } else { Scheme::Star },
        schema,
        signer: key(algorithm, 9),
        salt_key: Zeroizing::new([10; 32]),
        link_secret: Zeroizing::new([11; 32]),
        coordinator: public(12),
        window: ReplayedWindow {
            first: 1,
            count: 2,
            start_ms: u64::MAX,
            every_ms: 5000,
            interval_ms: 0,
        },
        sums: has_sums.then_some(membership),
        audience: has_audience.then(|| Audience {
            network: NetworkId([13; 8]),
            base: public(14),
            shared: has_sums.then(|| SharedKey {
                sender: DeviceId([16; 8]),
                position: 300,
                key: Zeroizing::new([17; 32]),
            }),
        }),
        operator: has_sums.then(|| public(15)),
    }
}

fn blob(contents: &Provisioning<'_>) -> Vec<u8> {
    contents.encode(&mut [0; MAX_PROVISIONING]).unwrap().to_vec()
}

proptest! {
    /// The encoding contains every field, so equal bytes mean equal contents.
    #[test]
    fn a_blob_round_trips(
        schema in prop::collection::vec(any::<u8>(), 0..200),
        p256: bool,
        has_sums: bool,
        has_audience: bool,
        masks in 0..3_usize,
        policy in prop::option::of(prop::collection::vec(any::<u8>(), 0..300)),
        behind in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let algorithm = if p256 { Algorithm::Esp256 } else { Algorithm::Ed25519 };
        let contents = provisioning(&schema, algorithm, has_sums, has_audience, (masks, policy.as_deref()));
        let written = blob(&contents);
        let flash = [&written[..], &behind].concat();
        let read = Provisioning::decode(&flash).unwrap();
        prop_assert_eq!(blob(&read), written);
        prop_assert_eq!((read.device, read.group, read.roster, read.certificate), (contents.device, contents.group, contents.roster, contents.certificate));
        prop_assert_eq!((read.levels, read.epoch_ms, read.epochs, read.scheme), (contents.levels, contents.epoch_ms, contents.epochs, contents.scheme));
        prop_assert_eq!((read.schema, read.window, read.signer.public()), (contents.schema, contents.window, contents.signer.public()));
        prop_assert_eq!((&*read.salt_key, &*read.link_secret), (&*contents.salt_key, &*contents.link_secret));
        let sums = read.sums.as_ref().map(|of| (of.needs_policy, of.masks.as_deref().copied(), of.policy));
        let expected = (masks > 0, (masks == 2).then_some([18; MASKS]), policy.as_deref());
        prop_assert_eq!(sums, has_sums.then_some(expected));
        prop_assert_eq!(read.audience.is_some(), has_audience);
        let shared = read.audience.and_then(|audience| audience.shared);
        let shared = shared.map(|of| (of.sender, of.position, *of.key));
        prop_assert_eq!(shared, (has_audience && has_sums).then_some((DeviceId([16; 8]), 300, [17; 32])));
        prop_assert_eq!(read.operator, contents.operator);
    }
}

#[test]
fn rejects_a_blob_with_any_bit_changed_or_any_truncation() {
    let whole =
        blob(&provisioning(b"schema", Algorithm::Ed25519, true, true, (2, Some(b"policy"))));
    for bit in 0..whole.len() * 8 {
        let mut changed = whole.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(Provisioning::decode(&changed).is_err(), "bit {bit}");
    }
    for length in 0..whole.len() {
        assert!(Provisioning::decode(&whole[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn keys_follow_a_blob_and_can_be_erased_without_damage_to_it() {
    let secret = StreamSecret::new([7; 32], EpochNumber(5));
    let paths: Vec<_> = [1, 2]
        .map(|column| Path::new(&secret.column(ColumnId([column; 16])), EpochNumber(9)).unwrap())
        .into();
    for length in 0..4 {
        let schema = vec![3; 20 + length];
        let contents = provisioning(&schema, Algorithm::Ed25519, false, false, (0, None));
        let mut flash = vec![0xff; MAX_PROVISIONING];
        flash[..blob(&contents).len()].copy_from_slice(&blob(&contents));
        let start = blob_end(&flash);
        assert!(start.is_multiple_of(4) && (0..4).contains(&(start - blob(&contents).len())));
        assert!(GivenKeys::read(&flash[start..]).is_none());
        let nonce_base = &[4; 12];
        let written = encode_keys(nonce_base, &paths, &mut flash[start..]).unwrap();
        let given = GivenKeys::read(&flash[start..]).unwrap();
        assert_eq!((given.length, given.nonce_base), (written, nonce_base));
        let (one, rest) = Path::decode_short(given.paths).unwrap();
        let (two, rest) = Path::decode_short(rest).unwrap();
        assert_eq!(([one, two].as_slice(), rest), (&paths[..], &[][..]));
        // Keys of which a bit is erased are none, and their length is still known.
        for at in [start + 8, start + 16, start + written - 1] {
            let mut changed = flash.clone();
            changed[at] ^= 1;
            let given = GivenKeys::read(&changed[start..]).unwrap();
            assert_eq!((given.length, given.paths), (written, &[][..]), "{at}");
        }
        flash[start..start + written].fill(0);
        assert!(GivenKeys::read(&flash[start..]).is_none());
        assert!(Provisioning::decode(&flash).is_ok());
    }
    assert!(encode_keys(&[4; 12], &paths, &mut [0; 1000]).is_err());
    assert_eq!((blob_end(&[0xff; 64]), blob_end(b"MSP\x01\xff\xff\xff\xff")), (0, 8));
}

#[test]
fn rejects_a_policy_that_is_too_long_for_a_mote() {
    for (length, is_accepted) in [(512, true), (513, false)] {
        let policy = vec![7; length];
        let contents = provisioning(b"schema", Algorithm::Ed25519, true, true, (1, Some(&policy)));
        let blob = blob(&contents);
        assert_eq!(Provisioning::decode(&blob).is_ok(), is_accepted, "{length} bytes");
    }
}

#[test]
fn distinguishes_unwritten_flash_from_damage() {
    for blank in [&[][..], &[0; 4096], &[0xff; 4096]] {
        assert!(matches!(Provisioning::decode(blank), Err(ProvisionError::NotProvisioned)));
    }
    let mut whole = blob(&provisioning(b"schema", Algorithm::Ed25519, false, false, (0, None)));
    *whole.last_mut().unwrap() ^= 1;
    assert!(matches!(Provisioning::decode(&whole), Err(ProvisionError::Damaged)));
}

#[test]
fn debug_prints_no_secrets() {
    let contents = provisioning(b"schema", Algorithm::Ed25519, true, true, (2, Some(b"policy")));
    let text =
        format!("{contents:?} {:?} {:?} {:?}", contents.sums, contents.audience, contents.signer);
    for secret in [
        "9, 9, 9", "10, 10", "11, 11", "5, 5, 5", "100, 101", "0909", "0a0a", "0b0b", "0505",
        "6465", "17, 17", "1111", "18, 18", "1212",
    ] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
