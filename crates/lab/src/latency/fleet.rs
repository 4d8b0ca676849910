//! The devices of one group, which seal readings for experiments that upload them.

use std::path::Path;

use moteseal_core::confidential::StreamSecret;
use moteseal_core::record::{EpochNumber, Scheme};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_device::ColumnKeys;
use moteseal_device::seal::{Bundle, Chain, Profile, Sealer};
use moteseal_seal::level::SaltKey;
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;

use super::Failed;

/// The first epoch that is sealed.
const FIRST: u64 = 400_000;

/// The devices of one group, each with its chain of seals. The keys are public, so the group is for
/// experiments only.
pub struct Fleet {
    /// The roster of the group.
    pub roster: Roster,
    operator: SecretKey,
    sealers: Vec<Sealer<SecretKey>>,
    epoch: u64,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Creates a fleet of `devices` devices with Ed25519, 16 levels, epochs of an hour, and records
    /// of 4 bytes.
    ///
    /// # Errors
    /// If a roster or a schema cannot be encoded.
    pub fn new(devices: u32, scheme: Scheme) -> Result<Self, Failed> {
        Self::with_column(devices, scheme, "reading::u32")
    }

    /// Creates a fleet like [`new`](Self::new) whose devices encrypt their readings with `ChaCha20`.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn encrypting(devices: u32, scheme: Scheme) -> Result<Self, Failed> {
        Self::with_column(devices, scheme, "reading::u32!")
    }

    fn with_column(devices: u32, scheme: Scheme, column: &str) -> Result<Self, Failed> {
        let operator = SecretKey::from_seed(Algorithm::Ed25519, &[0xff; 32])?;
        let names: Vec<String> = (0..devices).map(|device| format!("dev{device}")).collect();
        let secrets: Vec<SecretKey> = (0..devices)
            .map(|device| SecretKey::from_seed(Algorithm::Ed25519, &seed(1, device)))
            .collect::<Result<_, _>>()?;
        let keys: Vec<_> =
            names.iter().map(String::as_str).zip(secrets.iter().map(SecretKey::public)).collect();
        let group = FirstRoster {
            group: "fleet",
            epoch_ms: 3_600_000,
            levels: 16,
            budget: None,
            devices: &keys,
        };
        let roster = Roster::open(&group.issue(&operator)?, &operator.public())?;
        let mut buffer = [0; 256];
        let schema = Schema::encode(&[Field::parse(column)?], &mut buffer)?;
        let mut sealers = Vec::new();
        for (device, (name, secret)) in (0..devices).zip(names.iter().zip(secrets)) {
            let secret_of_stream = StreamSecret::new(seed(3, device), EpochNumber(0));
            let profile = match ColumnKeys::new(&schema, &secret_of_stream, EpochNumber(FIRST))? {
                Some(keys) => Profile::with_columns(&roster, name, scheme, &schema, keys)?,
                None => Profile::new(&roster, name, scheme, &schema)?,
            };
            let chain = Chain::start(profile.certificate);
            sealers.push(Sealer::new(profile, secret, SaltKey::new(seed(2, device)), chain));
        }
        Ok(Self { roster, operator, sealers, epoch: FIRST })
    }

    /// Seals the next `epochs` epochs of each device with `events` readings each, and returns the
    /// bundles.
    ///
    /// # Errors
    /// If a bundle cannot be encoded.
    pub fn seal(&mut self, epochs: u64, events: u32) -> Result<Vec<Vec<Bundle>>, Failed> {
        let first = self.epoch;
        self.epoch += epochs;
        let mut fleet = Vec::new();
        for sealer in &mut self.sealers {
            let mut bundles = Vec::new();
            for epoch in first..first + epochs {
                for reading in 0..events {
                    bundles.extend(sealer.push(EpochNumber(epoch), &record(epoch, reading))?);
                }
            }
            bundles.extend(sealer.close(true)?);
            fleet.push(bundles);
        }
        Ok(fleet)
    }

    /// Seals the next epoch of one device with `events` readings, and returns the bundle.
    ///
    /// # Errors
    /// If there is no such device, or the bundle cannot be encoded.
    pub fn seal_one(&mut self, device: usize, events: u32) -> Result<Bundle, Failed> {
        let epoch = self.epoch;
        self.epoch += 1;
        self.seal_epoch(device, epoch, events)
    }

    /// Seals an epoch of one device with `events` readings, and returns the bundle.
    ///
    /// # Errors
    /// If there is no such device, the device has sealed the epoch or a later one, or the bundle cannot be
    /// encoded.
    pub fn seal_epoch(&mut self, device: usize, epoch: u64, events: u32) -> Result<Bundle, Failed> {
        let sealer = self.sealers.get_mut(device).ok_or("the fleet has no such device")?;
        for reading in 0..events {
            if sealer.push(EpochNumber(epoch), &record(epoch, reading))?.is_some() {
                return Err("the readings do not fit into one seal".into());
            }
        }
        Ok(sealer.close(true)?.ok_or("there are no readings")?)
    }

    /// Returns the operator's public key, with which the roster is verified.
    #[must_use]
    pub fn operator_key(&self) -> PublicKey {
        self.operator.public()
    }

    /// Returns the next epoch to seal.
    #[must_use]
    pub const fn next_epoch(&self) -> u64 {
        self.epoch
    }

    /// Writes the roster and the operator's public key to files for a service.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), Failed> {
        let mut pem = [0; moteseal_core::identity::MAX_PEM];
        std::fs::write(folder.join("roster.cbor"), self.roster.bytes())?;
        std::fs::write(
            folder.join("op.pub.pem"),
            moteseal_core::identity::encode_public_pem(&self.operator_key(), &mut pem)?,
        )?;
        Ok(())
    }
}

/// Returns the record of a device's reading with this index in an epoch, as [`Fleet::seal`] seals
/// it.
#[allow(clippy::cast_possible_truncation)]
const fn record(epoch: u64, reading: u32) -> [u8; 4] {
    (reading ^ epoch as u32).to_be_bytes()
}

/// Returns the sum of all bytes of a device's readings in an epoch. An application that computes
/// this sum has read each of the readings.
#[must_use]
pub fn byte_sum(epoch: u64, readings: u32) -> u64 {
    (0..readings).flat_map(|reading| record(epoch, reading)).map(u64::from).sum()
}

/// Returns a seed for the secret of kind `kind` of a device.
fn seed(kind: u8, device: u32) -> [u8; 32] {
    let mut seed = [kind; 32];
    seed[..4].copy_from_slice(&device.to_be_bytes());
    seed
}
