//! A group with an operator, two owners and a few devices.

use moteseal_core::confidential::{ColumnId, Commitment, Nonce, SealKey, StreamSecret, Suite};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::{DeviceId, EpochNumber, SealIndex};
use moteseal_grant::{GrantRequest, Identity, KeyRequest, Owner, Recipients};
use moteseal_verify::Roster;
use moteseal_verify::issue::{FirstRoster, NextRoster};

pub(crate) const GROUP: &str = "home";
pub(crate) const BASE: EpochNumber = EpochNumber(1000);
pub(crate) const NAMES: [&str; 2] = ["temperature", "humidity"];

pub(crate) fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]).unwrap()
}

pub(crate) fn device(number: u16) -> DeviceId {
    DeviceId::of(GROUP, &format!("dev{number}"))
}

pub(crate) fn column(name: &str) -> ColumnId {
    ColumnId::of(name.as_bytes())
}

pub(crate) fn columns() -> Vec<(ColumnId, &'static str)> {
    NAMES.iter().map(|name| (column(name), *name)).collect()
}

pub(crate) fn secret_of(number: u16) -> StreamSecret {
    let mut bytes = [7; 32];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    StreamSecret::new(bytes, BASE)
}

/// Returns the rosters of versions 0 to 2: without owners, with alice, with alice and bob.
pub(crate) fn rosters() -> [Roster; 3] {
    let operator = key(1);
    let first = FirstRoster {
        group: GROUP,
        epoch_ms: 3_600_000,
        levels: 16,
        budget: None,
        devices: &[("dev0", key(10).public()), ("dev1", key(11).public())],
    };
    let first = first.issue(&operator).unwrap();
    let with = |before: &[u8], name: &str, seed: u8| {
        let mut next = NextRoster::after(before, &operator, &operator.public()).unwrap();
        next.set_owner(name, &key(seed).public()).unwrap();
        next.issue().unwrap()
    };
    let second = with(&first, "alice", 2);
    let third = with(&second, "bob", 3);
    [first, second, third].map(|bytes| Roster::open(&bytes, &operator.public()).unwrap())
}

/// Returns alice, the owner of the first `count` devices.
pub(crate) fn alice(count: u16) -> Owner {
    let mut owner = Owner::new(GROUP, "alice", key(2)).unwrap();
    for number in 0..count {
        owner.add(device(number), secret_of(number), &columns()).unwrap();
    }
    owner
}

pub(crate) fn to(identity: &Identity) -> Recipients {
    Recipients::Keys(vec![identity.recipient().clone()])
}

pub(crate) fn request<'a>(
    devices: &'a [DeviceId],
    recipients: &'a Recipients,
    first: u64,
    last: u64,
) -> GrantRequest<'a> {
    GrantRequest {
        devices,
        columns: None,
        epochs: EpochNumber(first)..=EpochNumber(last),
        recipients,
        not_after_ms: None,
        purpose: "test",
    }
}

pub(crate) fn seal(device: DeviceId, name: &str, epoch: u64) -> KeyRequest {
    KeyRequest {
        device,
        column: column(name),
        epoch: EpochNumber(epoch),
        index: SealIndex(5),
        suite: Suite::ChaCha20,
        nonce: Nonce([9; 12]),
    }
}

/// Returns the key that the device uses, derived from its secret, and the commitment.
pub(crate) fn key_of(secret: &StreamSecret, seal: &KeyRequest) -> (SealKey, Commitment) {
    let epoch_key = secret.column(seal.column).epoch_key(seal.epoch).unwrap();
    let key = epoch_key.seal_key(seal.device, seal.index, seal.suite, &seal.nonce);
    let commitment = key.commitment();
    (key, commitment)
}
