//! A roster that owns its bytes and has every key prepared.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{self, Directory, RosterError};
use moteseal_core::signature::PublicKey;

/// A verified roster.
#[derive(Clone, Debug)]
pub struct Roster {
    bytes: Vec<u8>,
    group_name: String,
    group: GroupId,
    version: u32,
    digest: Digest,
    digests: Vec<Digest>,
    epoch_ms: u64,
    levels: u8,
    epochs: (EpochNumber, Option<EpochNumber>),
    devices: BTreeMap<DeviceId, Device>,
    budget: Option<u64>,
    coordinator: Option<PublicKey>,
}

/// A device of a roster.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its id.
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// The `prev` of its first seal: the digest of its first certificate.
    pub certificate: Digest,
    /// Its keys, sorted by the first index that each is for.
    keys: Vec<(SealIndex, PublicKey)>,
}

impl Device {
    /// The key for a seal index.
    #[must_use]
    pub fn key(&self, index: SealIndex) -> Option<&PublicKey> {
        self.keys.iter().rev().find(|(first, _)| *first <= index).map(|(_, key)| key)
    }
}

impl Roster {
    /// Verifies a roster file.
    ///
    /// # Errors
    /// As [`roster::Roster::open`].
    pub fn open(bytes: &[u8], operator: &PublicKey) -> Result<Self, RosterError> {
        let mut scratch = vec![0; bytes.len() + 64];
        let read = roster::Roster::open(bytes, operator, &mut scratch)?;
        let mut devices = BTreeMap::new();
        for device in read.devices() {
            let mut keys = Vec::new();
            let mut first = None;
            for certificate in device.certificates() {
                first.get_or_insert(certificate.digest());
                if let Ok(key) = certificate.key() {
                    keys.push((certificate.first_index, key));
                }
            }
            let entry = Device {
                id: device.id,
                name: device.name.to_owned(),
                certificate: first.unwrap_or(Digest::NULL),
                keys,
            };
            devices.insert(device.id, entry);
        }
        Ok(Self {
            group_name: read.group_name().to_owned(),
            group: read.group(),
            version: read.version(),
            digest: read.digest(),
            digests: read.history().chain([read.digest()]).collect(),
            epoch_ms: read.epoch_ms(),
            levels: read.levels(),
            epochs: (read.first_epoch(), read.last_epoch()),
            devices,
            budget: read.budget(),
            coordinator: read.coordinator().and_then(|certificate| certificate.key().ok()),
            bytes: bytes.to_vec(),
        })
    }

    /// The bytes of the roster file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The group's name.
    #[must_use]
    pub fn group_name(&self) -> &str {
        &self.group_name
    }

    /// The roster's version, from 0.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The roster's digest, which seals name.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The version of the roster with this digest.
    #[must_use]
    pub fn version_of(&self, digest: &Digest) -> Option<u32> {
        self.digests
            .iter()
            .position(|known| known == digest)
            .and_then(|version| u32::try_from(version).ok())
    }

    /// The length of an epoch, in milliseconds.
    #[must_use]
    pub const fn epoch_ms(&self) -> u64 {
        self.epoch_ms
    }

    /// The number of levels.
    #[must_use]
    pub const fn levels(&self) -> u8 {
        self.levels
    }

    /// The largest number of events that the group's coordinator may forward per epoch; `None`
    /// means no limit.
    #[must_use]
    pub const fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// The coordinator's key, if the group has one.
    #[must_use]
    pub const fn coordinator(&self) -> Option<&PublicKey> {
        self.coordinator.as_ref()
    }

    /// The devices, sorted by id.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.devices.values()
    }

    /// The device with this id.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(&id)
    }

    /// The id of the device with this name, or of the device whose id is these 16 hexadecimal
    /// digits.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<DeviceId> {
        let named = self.devices.values().find(|device| device.name == name);
        named
            .or_else(|| self.devices.values().find(|device| device.id.to_string() == name))
            .map(|device| device.id)
    }

    /// The name of a device.
    #[must_use]
    pub fn name(&self, id: DeviceId) -> Option<&str> {
        self.devices.get(&id).map(|device| device.name.as_str())
    }

    /// The start of an epoch, in Unix milliseconds; `None` if that is 2^64 or more.
    #[must_use]
    pub fn epoch_start_ms(&self, epoch: EpochNumber) -> Option<u64> {
        epoch.0.checked_mul(self.epoch_ms)
    }

    /// The epoch that contains an instant, in Unix milliseconds.
    #[must_use]
    pub const fn epoch_of(&self, unix_ms: u64) -> EpochNumber {
        EpochNumber(unix_ms / self.epoch_ms)
    }
}

impl Directory for Roster {
    fn group(&self) -> GroupId {
        self.group
    }

    fn levels(&self) -> u8 {
        self.levels
    }

    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        self.epochs
    }

    fn roster_digest(&self, version: u32) -> Option<Digest> {
        self.digests.get(usize::try_from(version).ok()?).copied()
    }

    fn with_key(&self, device: DeviceId, index: SealIndex, use_key: &mut dyn FnMut(&PublicKey)) {
        if let Some(key) = self.devices.get(&device).and_then(|device| device.key(index)) {
            use_key(key);
        }
    }

    fn first_prev(&self, device: DeviceId) -> Option<Digest> {
        self.devices.get(&device).map(|device| device.certificate)
    }

    fn with_coordinator(&self, use_key: &mut dyn FnMut(&PublicKey)) {
        if let Some(key) = &self.coordinator {
            use_key(key);
        }
    }
}
