//! Fuzzes the provisioning blob of a mote, and the keys of encrypted columns that follow it. What decodes must have
//! exactly one encoding, and nothing may be read beyond the end.

use moteseal_core::confidential::{ColumnId, PATH, Path, StreamSecret};
use moteseal_core::digest::{Digest, short};
use moteseal_core::provision::{
    Audience, GivenKeys, MASKS, MAX_PROVISIONING, Membership, NONCE_BASE, Provisioning,
    ReplayedWindow, SharedKey, blob_end, encode_keys,
};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, NetworkId, Scheme};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};

/// The length of a head.
const HEAD: usize = 16;
/// The magic bytes of a blob and of keys, and what precedes the body in the check value.
const KINDS: [(&[u8; 4], &[u8]); 2] =
    [(b"MSP\x01", b"moteseal/1/provision\0"), (b"MSK\x01", b"moteseal/1/provision/keys\0")];

/// Reads the bytes as flash, and as a body under a head with the right check value.
pub fn run(bytes: &[u8]) {
    check(bytes);
    for kind in KINDS {
        check(&with_head(kind, bytes));
    }
}

fn with_head((magic, label): (&[u8; 4], &[u8]), body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&magic[..], &length, &short(&[label, body]), body].concat()
}

fn check(flash: &[u8]) {
    assert!(blob_end(flash) <= flash.len());
    if let Ok(blob) = Provisioning::decode(flash) {
        let mut out = vec![0; flash.len()];
        let encoded = blob.encode(&mut out).expect("it is as long as before");
        assert!(flash.starts_with(encoded), "two encodings of a blob");
        assert!(encoded.len() <= blob_end(flash));
    }
    let Some(keys) = GivenKeys::read(flash) else { return };
    assert!(keys.length <= flash.len());
    let mut rest = keys.paths;
    while let Ok((path, after)) = Path::decode_short(rest) {
        let mut out = [0; PATH];
        assert!(rest.starts_with(path.encode_short(&mut out)), "two encodings of a path");
        rest = after;
    }
}

fn public(byte: u8) -> PublicKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap().public()
}

/// The bodies of a short blob, of one with everything, and of keys, and both blobs with keys after them.
pub fn seeds() -> Vec<Vec<u8>> {
    let fields = [Field::parse("temperature:Cel:i16/100!").unwrap()];
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let blobs = [false, true].map(|is_full| blob(schema.as_bytes(), is_full));
    let keys = keys();
    let bodies = blobs.iter().chain([&keys]).map(|of| of[HEAD..].to_vec());
    let flashes = blobs.iter().map(|blob| {
        let mut flash = blob.clone();
        flash.resize(blob_end(blob).next_multiple_of(4), 0xff);
        [flash, keys.clone()].concat()
    });
    bodies.chain(flashes).collect()
}

fn keys() -> Vec<u8> {
    let secret = StreamSecret::new([7; 32], EpochNumber(3));
    let path = |column| Path::new(&secret.column(ColumnId([column; 16])), EpochNumber(9)).unwrap();
    let paths = [1, 2].map(path);
    let mut out = vec![0; MAX_PROVISIONING];
    let length = encode_keys(&[9; NONCE_BASE], &paths, &mut out).unwrap();
    out[..length].to_vec()
}

fn blob(schema: &[u8], is_full: bool) -> Vec<u8> {
    let sums = Membership {
        roster: Digest([9; 32]),
        key_group: 4,
        position: 8,
        secret: [100; 64].into(),
        querier: public(4),
        link_secret: [5; 32].into(),
        masks: Some([18; MASKS].into()),
        needs_policy: true,
        policy: Some(b"a policy"),
    };
    let audience = Audience {
        network: NetworkId([13; 8]),
        base: public(14),
        shared: Some(SharedKey { sender: DeviceId([16; 8]), position: 300, key: [17; 32].into() }),
    };
    let blob = Provisioning {
        device: DeviceId([1; 8]),
        group: GroupId([2; 8]),
        roster: (Digest([6; 32]), 7),
        certificate: Digest([8; 32]),
        levels: 16,
        epoch_ms: 3_600_000,
        epochs: (EpochNumber(0), is_full.then_some(EpochNumber(u64::MAX))),
        start_ms: 0,
        scheme: if is_full { Scheme::Tree } else { Scheme::Star },
        schema,
        signer: SecretKey::from_seed(Algorithm::Ed25519, &[9; 32]).unwrap(),
        salt_key: [10; 32].into(),
        link_secret: [11; 32].into(),
        coordinator: public(12),
        window: ReplayedWindow { first: 1, count: 2, start_ms: 3, every_ms: 5000, interval_ms: 0 },
        sums: is_full.then_some(sums),
        audience: is_full.then_some(audience),
        operator: is_full.then(|| public(15)),
    };
    blob.encode(&mut [0; MAX_PROVISIONING]).unwrap().to_vec()
}
