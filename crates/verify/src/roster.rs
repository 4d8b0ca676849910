//! A roster that owns its bytes and has decoded every key for verification.

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
    /// The device's id.
    pub id: DeviceId,
    /// The device's name.
    pub name: String,
    /// The digest of the device's first certificate, which is the `prev` of its first seal.
    pub certificate: Digest,
    /// Each key of the device, with the first seal index to which the key applies, sorted by this
    /// index.
    keys: Vec<(SealIndex, PublicKey)>,
}

impl Device {
    /// Returns the key that signs the seal with this index.
    #[must_use]
    pub fn key(&self, index: SealIndex) -> Option<&PublicKey> {
        self.keys.iter().rev().find(|(first, _)| *first <= index).map(|(_, key)| key)
    }
}

impl Roster {
    /// Verifies a roster file.
    ///
    /// # Errors
    /// The errors of [`roster::Roster::open`].
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

    /// Returns the bytes of the roster file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the group's name.
    #[must_use]
    pub fn group_name(&self) -> &str {
        &self.group_name
    }

    /// Returns the roster's version, from 0.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the roster's digest. Each seal contains the digest of the roster in use.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the version of the roster with this digest, if it is this roster or an earlier
    /// version of it.
    #[must_use]
    pub fn version_of(&self, digest: &Digest) -> Option<u32> {
        self.digests
            .iter()
            .position(|known| known == digest)
            .and_then(|version| u32::try_from(version).ok())
    }

    /// Returns the length of an epoch, in milliseconds.
    #[must_use]
    pub const fn epoch_ms(&self) -> u64 {
        self.epoch_ms
    }

    /// Returns the number of levels.
    #[must_use]
    pub const fn levels(&self) -> u8 {
        self.levels
    }

    /// Returns the largest number of events that the group's coordinator may forward per epoch;
    /// `None` means no limit.
    #[must_use]
    pub const fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// Returns the coordinator's key, if the group has one.
    #[must_use]
    pub const fn coordinator(&self) -> Option<&PublicKey> {
        self.coordinator.as_ref()
    }

    /// Returns the devices, sorted by id.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.devices.values()
    }

    /// Returns the device with this id.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(&id)
    }

    /// Returns the id of the device with this name. `name` may also be the id itself, as 16
    /// hexadecimal digits.
    #[must_use]
    pub fn id(&self, name: &str) -> Option<DeviceId> {
        let named = self.devices.values().find(|device| device.name == name);
        named
            .or_else(|| self.devices.values().find(|device| device.id.to_string() == name))
            .map(|device| device.id)
    }

    /// Returns the name of a device.
    #[must_use]
    pub fn name(&self, id: DeviceId) -> Option<&str> {
        self.devices.get(&id).map(|device| device.name.as_str())
    }

    /// Returns the start of an epoch, in Unix milliseconds; `None` if that is 2^64 or more.
    #[must_use]
    pub fn epoch_start_ms(&self, epoch: EpochNumber) -> Option<u64> {
        epoch.0.checked_mul(self.epoch_ms)
    }

    /// Returns the epoch that contains an instant, in Unix milliseconds.
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
