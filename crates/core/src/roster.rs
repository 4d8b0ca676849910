//! The roster: the operator's signed list of a group's devices with their certificates, and the
//! parameters that the group shares: levels, budget, length and range of epochs (spec/formats.md,
//! section 2.2).
//!
//! A [`Roster`] borrows the bytes of its file. [`Roster::open`] checks everything, so that reading
//! from an opened roster cannot fail. Verifiers of seals use it through the trait [`Directory`],
//! which a host may also implement, for example with an index.
//!
//! ```
//! use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
//! use moteseal_core::roster::{DeviceDraft, Roster, RosterDraft, SCRATCH_OVERHEAD};
//! use moteseal_core::signature::{Algorithm, SecretKey};
//! use moteseal_core::{DeviceId, EpochNumber, GroupId, SealIndex};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In production, take the seeds from a source of randomness.
//! let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32])?;
//! let device = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32])?.public();
//!
//! let draft = CertificateDraft {
//!     group: GroupId::of("home"),
//!     device: DeviceId::of("home", "dev1"),
//!     serial: 0,
//!     key: &device,
//!     first_index: SealIndex(0),
//! };
//! let mut buffer = [0; MAX_CERTIFICATE];
//! let certificate = draft.issue(&operator, &mut buffer)?;
//!
//! let draft = RosterDraft {
//!     group_name: "home",
//!     history: &[],
//!     epoch_ms: 3_600_000,
//!     levels: 16,
//!     budget: None,
//!     first_epoch: EpochNumber(0),
//!     last_epoch: None,
//!     coordinator: None,
//!     // Sorted by id.
//!     devices: &[DeviceDraft { name: "dev1", certificates: &[certificate] }],
//! };
//! let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
//! let file = draft.sign(&operator, &mut scratch, &mut out)?;
//!
//! let mut scratch = vec![0; file.len() + SCRATCH_OVERHEAD];
//! let roster = Roster::open(file, &operator.public(), &mut scratch)?;
//! assert_eq!(roster.device_named("dev1").map(|device| device.id), Some(DeviceId::of("home", "dev1")));
//! # Ok(())
//! # }
//! ```

use core::fmt;

use crate::cbor::{BufferTooSmall, DecodeError, Reader};
use crate::cose::{Sign1, Typ};
use crate::digest::Digest;
use crate::identity::{Certificate, CertificateError};
use crate::record::{DeviceId, EpochNumber, GroupId, MAX_LEVELS, SealIndex};
use crate::signature::{PublicKey, SignError, SignatureError};

mod draft;

pub use draft::{DeviceDraft, RosterDraft};

/// The longest epoch, in milliseconds: 2^53.
pub const MAX_EPOCH_MS: u64 = 1 << 53;
/// The longest name of a group or device, in bytes.
pub const MAX_NAME: usize = 64;
/// Bytes of scratch that [`Roster::open`] needs in addition to the length of the roster.
pub const SCRATCH_OVERHEAD: usize = 64;

/// The length of a digest in CBOR: a head of two bytes, then 32 bytes.
const HISTORY_ENTRY: usize = 34;

named_errors! {
    /// Why a roster was rejected or not issued.
    RosterError {
        /// The bytes are not a roster.
        Decode(error: DecodeError) => from,
        /// The roster is not signed with the signature suite of the operator's key.
        AlgorithmMismatch =>
            "the roster is not signed with the signature suite of the operator's key",
        /// The operator did not sign these bytes.
        NotAuthentic => "the roster is not signed by this operator",
        /// The encoding of the operator's signature was rejected.
        Signature(error: SignatureError) => forward,
        /// The operator did not sign a certificate.
        CertificateNotAuthentic => "a certificate in the roster is not signed by this operator",
        /// A certificate was rejected for a reason other than its signature.
        Certificate(error: CertificateError) => forward,
        /// A certificate is listed under a device or group that it was not issued for.
        CertificateMismatch =>
            "a certificate is listed under a device or group that it was not issued for",
        /// A device has no certificate.
        CertificateMissing => "a device has no certificate",
        /// A device's certificates are not sorted by first index, ascending.
        UnsortedCertificates => "a device's certificates are not sorted by their first index",
        /// A name of a group or device is empty, longer than [`MAX_NAME`], or has control
        /// characters.
        InvalidName =>
            "a name of a group or device must be 1 to 64 bytes of UTF-8 without control characters",
        /// The group id does not follow from the group's name.
        GroupMismatch => "the group id does not match the group's name",
        /// A device id does not follow from the names of the group and the device.
        DeviceMismatch => "a device id does not match the device's name",
        /// Two devices, or a device and the coordinator, have the same id.
        DuplicateDevice => "two devices have the same id; choose distinct names",
        /// The devices are not sorted by id, ascending.
        UnsortedDevices => "the devices are not sorted by id",
        /// The number of past digests differs from the number of earlier versions.
        HistoryLength => "the number of past digests differs from the number of earlier versions",
        /// The number of levels is not 1 to [`MAX_LEVELS`].
        LevelsOutOfRange => "the number of levels must be 1 to 32",
        /// The epoch length is 0 or above [`MAX_EPOCH_MS`].
        EpochLengthOutOfRange => "the length of an epoch must be 1 to 2^53 milliseconds",
        /// The last epoch is before the first.
        EpochRangeEmpty => "the last epoch is before the first",
        /// The budget is 0.
        BudgetOutOfRange => "the budget must be at least 1 event",
        /// The scratch or output buffer is too small.
        BufferTooSmall => "the roster does not fit the buffer",
        /// The operator's signer failed.
        Sign(error: SignError) => from,
    }
}

impl RosterError {
    /// Returns the error for a roster whose signature was rejected.
    const fn of_signature(error: SignatureError) -> Self {
        match error {
            SignatureError::NotAuthentic => Self::NotAuthentic,
            error => Self::Signature(error),
        }
    }

    /// Returns the error for a roster that contains a rejected certificate.
    const fn of_certificate(error: CertificateError) -> Self {
        match error {
            CertificateError::AlgorithmMismatch | CertificateError::Signature(_) => {
                Self::CertificateNotAuthentic
            }
            error => Self::Certificate(error),
        }
    }
}

impl From<BufferTooSmall> for RosterError {
    fn from(_: BufferTooSmall) -> Self {
        Self::BufferTooSmall
    }
}

/// The information about a group that a verifier of seals needs.
pub trait Directory {
    /// Returns the id of the group.
    fn group(&self) -> GroupId;

    /// Returns the number of levels.
    fn levels(&self) -> u8;

    /// Returns the first and the last epoch that may be sealed. `None` means that there is no last
    /// epoch.
    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>);

    /// Returns the digest of version `version` of the roster, which may be the current version or
    /// an earlier one. Returns `None` for any other version.
    fn roster_digest(&self, version: u32) -> Option<Digest>;

    /// Calls `use_key` with the key that verifies the seal `index` of a device: the key of the
    /// device's last certificate whose first index is not above `index`. Does not call `use_key` if
    /// there is no such certificate. The key is borrowed, so an implementation can store prepared
    /// keys and pass them without a copy.
    fn with_key(&self, device: DeviceId, index: SealIndex, use_key: &mut dyn FnMut(&PublicKey));

    /// Returns the `prev` of the device's first seal: the digest of its first certificate. Returns
    /// `None` if the device is unknown.
    fn first_prev(&self, device: DeviceId) -> Option<Digest>;

    /// Calls `use_key` with the coordinator's key, if the group has a coordinator. The default
    /// implementation is for groups without a coordinator and does not call `use_key`.
    fn with_coordinator(&self, use_key: &mut dyn FnMut(&PublicKey)) {
        let _ = use_key;
    }
}

/// A roster that has been checked completely: its signature, the signatures of its certificates,
/// and its consistency.
#[derive(Clone, Copy)]
pub struct Roster<'a> {
    own: Digest,
    group_name: &'a str,
    group: GroupId,
    version: u32,
    history: &'a [u8],
    epoch_ms: u64,
    levels: u8,
    budget: Option<u64>,
    first_epoch: EpochNumber,
    last_epoch: Option<EpochNumber>,
    coordinator: Option<&'a [u8]>,
    devices: &'a [u8],
}

impl<'a> Roster<'a> {
    /// Opens the bytes of a roster file. `scratch` must have [`SCRATCH_OVERHEAD`] bytes more than
    /// `bytes`.
    ///
    /// # Errors
    /// [`RosterError`]: the first check that fails.
    pub fn open(
        bytes: &'a [u8],
        operator: &PublicKey,
        scratch: &mut [u8],
    ) -> Result<Self, RosterError> {
        let sign1 = Sign1::decode(bytes, Typ::Roster)?;
        if sign1.header.algorithm != operator.algorithm() {
            return Err(RosterError::AlgorithmMismatch);
        }
        operator
            .verify(sign1.message(scratch)?, sign1.signature)
            .map_err(RosterError::of_signature)?;
        let roster = Self::read(sign1.payload, sign1.digest())?;
        if let Some(bytes) = roster.coordinator {
            Certificate::open(bytes, operator).map_err(RosterError::of_certificate)?;
        }
        for device in roster.devices() {
            for bytes in device.certificate_bytes() {
                Certificate::open(bytes, operator).map_err(RosterError::of_certificate)?;
            }
        }
        Ok(roster)
    }

    /// Reads a payload and performs all checks that need no key: first it checks the encoding of
    /// every field, then the values.
    fn read(payload: &'a [u8], own: Digest) -> Result<Self, RosterError> {
        let mut reader = Reader::new(payload)?;
        reader.array(12)?;
        reader.version()?;
        let group_name = reader.text()?;
        let group = GroupId(reader.fixed()?);
        let version = reader.uint()?;
        let history = read_history(&mut reader)?;
        let epoch_ms = reader.u64()?;
        let levels = reader.u64()?;
        let budget = reader.optional(Reader::u64)?;
        let first_epoch = EpochNumber(reader.u64()?);
        let last_epoch = reader.optional(Reader::u64)?.map(EpochNumber);
        let coordinator = reader.optional(Reader::bytes)?;
        let devices = reader.raw()?;
        let mut reader = Reader::resume(devices);
        for _ in 0..reader.array_any()? {
            let mut certificates = Reader::resume(Device::read(&mut reader)?.certificates);
            for _ in 0..certificates.array_any()? {
                certificates.bytes()?;
            }
        }

        check_name(group_name)?;
        if group != GroupId::of(group_name) {
            return Err(RosterError::GroupMismatch);
        }
        if history.len() as u64 / HISTORY_ENTRY as u64 != u64::from(version) {
            return Err(RosterError::HistoryLength);
        }
        if epoch_ms == 0 || epoch_ms > MAX_EPOCH_MS {
            return Err(RosterError::EpochLengthOutOfRange);
        }
        let levels = u8::try_from(levels)
            .ok()
            .filter(|&levels| levels > 0 && usize::from(levels) <= MAX_LEVELS);
        let levels = levels.ok_or(RosterError::LevelsOutOfRange)?;
        if budget == Some(0) {
            return Err(RosterError::BudgetOutOfRange);
        }
        if last_epoch.is_some_and(|last| last < first_epoch) {
            return Err(RosterError::EpochRangeEmpty);
        }
        let roster = Self {
            own,
            group_name,
            group,
            version,
            history,
            epoch_ms,
            levels,
            budget,
            first_epoch,
            last_epoch,
            coordinator,
            devices,
        };
        roster.check_devices()?;
        Ok(roster)
    }

    fn check_devices(&self) -> Result<(), RosterError> {
        let coordinator = self.coordinator.map(Certificate::decode).transpose()?;
        if coordinator.is_some_and(|certificate| certificate.group != self.group) {
            return Err(RosterError::CertificateMismatch);
        }
        let mut last = None;
        for device in self.devices() {
            device.check(self.group_name, self.group)?;
            if last == Some(device.id)
                || coordinator.is_some_and(|certificate| certificate.device == device.id)
            {
                return Err(RosterError::DuplicateDevice);
            }
            if last > Some(device.id) {
                return Err(RosterError::UnsortedDevices);
            }
            last = Some(device.id);
        }
        Ok(())
    }

    /// Returns the digest of this version.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.own
    }

    /// Returns the digest of version `version`, which may be this version or an earlier one.
    /// Returns `None` for any other version.
    #[must_use]
    pub fn digest_of(&self, version: u32) -> Option<Digest> {
        if version == self.version {
            Some(self.own)
        } else {
            self.history().nth(usize::try_from(version).ok()?)
        }
    }

    /// Returns the digests of the versions before this one, from version 0.
    pub fn history(&self) -> impl ExactSizeIterator<Item = Digest> + use<'a> {
        self.history.chunks_exact(HISTORY_ENTRY).map(|entry| {
            let mut digest = Digest::NULL;
            digest.0.copy_from_slice(&entry[2..]);
            digest
        })
    }

    /// Returns the group's name.
    #[must_use]
    pub const fn group_name(&self) -> &'a str {
        self.group_name
    }

    /// Returns the group's id.
    #[must_use]
    pub const fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the version, from 0.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
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

    /// Returns the largest number of events that the coordinator may keep per epoch; `None` means
    /// no limit.
    #[must_use]
    pub const fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// Returns the first epoch that may be sealed.
    #[must_use]
    pub const fn first_epoch(&self) -> EpochNumber {
        self.first_epoch
    }

    /// Returns the last epoch that may be sealed; `None` means no end.
    #[must_use]
    pub const fn last_epoch(&self) -> Option<EpochNumber> {
        self.last_epoch
    }

    /// Returns the epoch that contains a Unix time in milliseconds, even if that epoch may not be
    /// sealed.
    #[must_use]
    pub const fn epoch_of(&self, unix_ms: u64) -> EpochNumber {
        EpochNumber(unix_ms / self.epoch_ms)
    }

    /// Returns whether an epoch may be sealed.
    #[must_use]
    pub fn contains(&self, epoch: EpochNumber) -> bool {
        epoch >= self.first_epoch && self.last_epoch.is_none_or(|last| epoch <= last)
    }

    /// Returns the coordinator's certificate.
    #[must_use]
    pub fn coordinator(&self) -> Option<Certificate<'a>> {
        Certificate::decode(self.coordinator?).ok()
    }

    /// Returns the bytes of the coordinator's certificate, for use in the next version of the
    /// roster.
    #[must_use]
    pub const fn coordinator_bytes(&self) -> Option<&'a [u8]> {
        self.coordinator
    }

    /// Returns the devices, sorted by id.
    pub fn devices(&self) -> impl Iterator<Item = Device<'a>> + use<'a> {
        let mut reader = Reader::resume(self.devices);
        let count = reader.array_any().unwrap_or(0);
        // The bytes have been read successfully before, so `ok()` is always `Some` here.
        (0..count).map_while(move |_| Device::read(&mut reader).ok())
    }

    /// Finds a device by its id, in time proportional to its position in the roster. Programs that
    /// handle many devices should build an index.
    #[must_use]
    pub fn device(&self, id: DeviceId) -> Option<Device<'a>> {
        self.devices().take_while(|device| device.id <= id).find(|device| device.id == id)
    }

    /// Finds a device by its name.
    #[must_use]
    pub fn device_named(&self, name: &str) -> Option<Device<'a>> {
        self.device(DeviceId::of(self.group_name, name))
    }
}

impl fmt::Debug for Roster<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster")
            .field("group", &self.group_name)
            .field("version", &self.version)
            .field("digest", &self.own)
            .finish_non_exhaustive()
    }
}

impl Directory for Roster<'_> {
    fn group(&self) -> GroupId {
        self.group
    }

    fn levels(&self) -> u8 {
        self.levels
    }

    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (self.first_epoch, self.last_epoch)
    }

    fn roster_digest(&self, version: u32) -> Option<Digest> {
        self.digest_of(version)
    }

    fn with_key(&self, device: DeviceId, index: SealIndex, use_key: &mut dyn FnMut(&PublicKey)) {
        if let Some((_, key)) = self.device(device).and_then(|device| device.key(index)) {
            use_key(&key);
        }
    }

    fn first_prev(&self, device: DeviceId) -> Option<Digest> {
        Some(self.device(device)?.first_certificate()?.digest())
    }

    fn with_coordinator(&self, use_key: &mut dyn FnMut(&PublicKey)) {
        if let Some(key) = self.coordinator().and_then(|certificate| certificate.key().ok()) {
            use_key(&key);
        }
    }
}

/// A device of a roster.
#[derive(Clone, Copy)]
pub struct Device<'a> {
    /// The id.
    pub id: DeviceId,
    /// The name.
    pub name: &'a str,
    certificates: &'a [u8],
}

impl<'a> Device<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.array(3)?;
        Ok(Self {
            id: DeviceId(reader.fixed()?),
            name: reader.text()?,
            certificates: reader.raw()?,
        })
    }

    fn check(&self, group_name: &str, group: GroupId) -> Result<(), RosterError> {
        check_name(self.name)?;
        if self.id != DeviceId::of(group_name, self.name) {
            return Err(RosterError::DeviceMismatch);
        }
        let mut last = None;
        for bytes in self.certificate_bytes() {
            let certificate = Certificate::decode(bytes)?;
            if (certificate.group, certificate.device) != (group, self.id) {
                return Err(RosterError::CertificateMismatch);
            }
            if last >= Some(certificate.first_index) {
                return Err(RosterError::UnsortedCertificates);
            }
            last = Some(certificate.first_index);
        }
        last.map(|_| ()).ok_or(RosterError::CertificateMissing)
    }

    /// Returns the encoded certificates of the device, sorted by first index.
    pub fn certificate_bytes(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut reader = Reader::resume(self.certificates);
        let count = reader.array_any().unwrap_or(0);
        (0..count).map_while(move |_| reader.bytes().ok())
    }

    /// Returns the certificates of the device, sorted by first index. There is at least one.
    pub fn certificates(&self) -> impl Iterator<Item = Certificate<'a>> + use<'a> {
        self.certificate_bytes().map_while(|bytes| Certificate::decode(bytes).ok())
    }

    /// Returns the first certificate of the device. Its digest is the `prev` of the device's first
    /// seal.
    #[must_use]
    pub fn first_certificate(&self) -> Option<Certificate<'a>> {
        self.certificates().next()
    }

    /// Returns the certificate and the key for the device's seal `index`: the last certificate
    /// whose first index is not above `index`.
    #[must_use]
    pub fn key(&self, index: SealIndex) -> Option<(Certificate<'a>, PublicKey)> {
        let certificate = self
            .certificates()
            .take_while(|certificate| certificate.first_index <= index)
            .last()?;
        Some((certificate, certificate.key().ok()?))
    }
}

impl fmt::Debug for Device<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Reads an array of digests and returns its encoded elements, without the head of the array.
fn read_history<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    let item = reader.raw()?;
    let mut reader = Reader::resume(item);
    let entries = reader.array_any()?;
    for _ in 0..entries {
        reader.fixed::<32>()?;
    }
    // The head of the array consists of the bytes before the entries.
    let length = usize::try_from(entries).unwrap_or(0) * HISTORY_ENTRY;
    Ok(&item[item.len() - length..])
}

/// Checks the name of a group or device. Control characters could make different names look alike,
/// and a zero byte could give different names the same id.
fn check_name(name: &str) -> Result<(), RosterError> {
    if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
        Err(RosterError::InvalidName)
    } else {
        Ok(())
    }
}
