//! The roster: the operator's signed list of a group's devices with their certificates, and the
//! parameters that the group shares: levels, budget, length and range of epochs (spec/objects.md,
//! section 4).
//!
//! A [`Roster`] borrows the bytes of its file. [`Roster::open`] checks everything, so that reading
//! from an opened roster cannot fail. Verifiers of seals use it through the trait [`Directory`],
//! which a host may also implement, for example with an index.
//!
//! ```
//! use moteseal_core::identity::{CertificateDraft, MAX_CERTIFICATE};
//! use moteseal_core::roster::{DeviceDraft, Period, Roster, RosterDraft, SCRATCH_OVERHEAD, Term};
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
//!     periods: &[Period::first(3_600_000, 16, None, EpochNumber(0), None)],
//!     last_epoch: None,
//!     querier: None,
//!     // Sorted by id.
//!     devices: &[DeviceDraft { name: "dev1", since: 0, terms: &[Term::always(certificate)] }],
//!     owners: &[],
//!     sanitisers: &[],
//! };
//! let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
//! let file = draft.sign(&operator, &mut scratch, &mut out)?;
//!
//! let mut scratch = vec![0; file.len() + SCRATCH_OVERHEAD];
//! let roster = Roster::open(file, &operator.public(), &mut scratch)?;
//! assert_eq!(roster.device_named("dev1").map(|device| device.id), Some(DeviceId::of("home",
//! "dev1")));
//! # Ok(())
//! # }
//! ```

use core::fmt;

use crate::cbor::{BufferTooSmall, DecodeError, Reader};
use crate::cose::{Sign1, Typ};
use crate::digest::Digest;
use crate::identity::{Certificate, CertificateError};
use crate::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use crate::signature::{PublicKey, SignError, SignatureError};

mod draft;
mod owner;
mod period;
mod sanitiser;
mod term;

pub use draft::{DeviceDraft, RosterDraft};
use owner::Owners;
pub use owner::{Owner, OwnerDraft, owner_id};
pub use period::Period;
use period::Periods;
use sanitiser::Sanitisers;
pub use sanitiser::{Right, RightDraft, Sanitiser, SanitiserDraft, sanitiser_id};
pub use term::{Device, NoKey, Term};

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
        /// A device's certificates are not sorted by first index and first epoch, ascending.
        UnsortedCertificates =>
            "a device's certificates are not sorted by their first index and first epoch",
        /// A certificate's term ends before it begins.
        TermRangeEmpty => "a certificate's term ends before it begins",
        /// A device is listed since a version that is later than the roster's.
        SinceOutOfRange => "a device is listed since a version that is later than the roster's",
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
        /// The owners are not sorted by id, ascending, or two owners have the same id.
        UnsortedOwners => "the owners are not sorted by id, or two have the same id",
        /// The sanitisers are not sorted by id, ascending, or two sanitisers have the same id.
        UnsortedSanitisers => "the sanitisers are not sorted by id, or two have the same id",
        /// The number of past digests differs from the number of earlier versions.
        HistoryLength => "the number of past digests differs from the number of earlier versions",
        /// The number of levels is not 1 to [`MAX_LEVELS`].
        LevelsOutOfRange => "the number of levels must be 1 to 32",
        /// The epoch length is 0 or above [`MAX_EPOCH_MS`].
        EpochLengthOutOfRange => "the length of an epoch must be 1 to 2^53 milliseconds",
        /// The periods are not sorted by version and first epoch, ascending from version 0, or one
        /// of them is of a later version than the roster's. There must be at least one.
        UnsortedPeriods => "the periods are not sorted by version and first epoch from version 0",
        /// A period does not start where an epoch of the period before it ends.
        EpochStartMismatch => "a period does not start where the epoch before its first one ends",
        /// The last epoch is before the first epoch of the newest period.
        EpochRangeEmpty => "the last epoch is before the first",
        /// A draft of the first version has more than one period, a querier, an owner, a sanitiser, a
        /// term that is limited or a device since a later version, which only later versions can have.
        NotAFirstVersion =>
            "the first version of a roster has one period, no querier, no owners, no sanitisers and \
             no limited terms",
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

    /// Returns the number of levels in an epoch.
    fn levels(&self, epoch: EpochNumber) -> u8;

    /// Returns the first and the last epoch that may be sealed. `None` means that there is no last
    /// epoch.
    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>);

    /// Returns the digest of version `version` of the roster, which may be the current version or
    /// an earlier one. Returns `None` for any other version.
    fn roster_digest(&self, version: u32) -> Option<Digest>;

    /// Returns the first version of the roster that seals of this epoch may name: the version that
    /// introduced the epoch's period. The default implementation is for groups with one period.
    fn least_version(&self, epoch: EpochNumber) -> u32 {
        let _ = epoch;
        0
    }

    /// Calls `use_key` with the key that verifies the seal `index` of a device in `epoch`: the key
    /// of the device's last certificate whose first index and first epoch are not above them. The
    /// key is borrowed, so an implementation can store prepared keys and pass them without a copy.
    ///
    /// # Errors
    /// [`NoKey`] if there is no such key; `use_key` is then not called.
    fn with_key(
        &self,
        device: DeviceId,
        index: SealIndex,
        epoch: EpochNumber,
        use_key: &mut dyn FnMut(&PublicKey),
    ) -> Result<(), NoKey>;

    /// Returns the `prev` of the device's first seal: the digest of its first certificate. Returns
    /// `None` if the device is unknown.
    fn first_prev(&self, device: DeviceId) -> Option<Digest>;

    /// Calls `use_key` with the coordinator's key in an epoch, if the group has a coordinator. The
    /// default implementation is for groups without a coordinator and does not call `use_key`.
    fn with_coordinator(&self, epoch: EpochNumber, use_key: &mut dyn FnMut(&PublicKey)) {
        let _ = (epoch, use_key);
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
    periods: Periods<'a>,
    newest: Period<'a>,
    last_epoch: Option<EpochNumber>,
    querier: Option<&'a [u8]>,
    devices: &'a [u8],
    owners: Owners<'a>,
    sanitisers: Sanitisers<'a>,
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
        let coordinators = roster.periods().filter_map(|period| period.coordinator);
        for bytes in coordinators.chain(roster.querier) {
            Certificate::open(bytes, operator).map_err(RosterError::of_certificate)?;
        }
        let sanitisers = roster.sanitisers().map(|sanitiser| sanitiser.bytes);
        for bytes in roster.owners().map(|owner| owner.bytes).chain(sanitisers) {
            Certificate::open(bytes, operator).map_err(RosterError::of_certificate)?;
        }
        for device in roster.devices() {
            for term in device.terms() {
                Certificate::open(term.bytes, operator).map_err(RosterError::of_certificate)?;
            }
        }
        Ok(roster)
    }

    /// Reads a payload and performs all checks that need no key: first it checks the encoding of
    /// every field, then the values.
    fn read(payload: &'a [u8], own: Digest) -> Result<Self, RosterError> {
        let mut reader = Reader::new(payload)?;
        let fields = reader.array_any()?;
        reader.version()?;
        let group_name = reader.text()?;
        let group = GroupId(reader.fixed()?);
        let version = reader.uint()?;
        let is_first = version == 0;
        if !(if is_first { 12..=12 } else { 9..=11 }).contains(&fields) {
            return Err(DecodeError::UnexpectedType.into());
        }
        let history = read_history(&mut reader)?;
        let (periods, last_epoch, querier);
        if is_first {
            let (epoch_ms, levels) = (reader.u64()?, period::saturated(reader.u64()?));
            let budget = reader.optional(Reader::u64)?;
            let first_epoch = EpochNumber(reader.u64()?);
            last_epoch = reader.optional(Reader::u64)?.map(EpochNumber);
            let coordinator = reader.optional(Reader::bytes)?;
            let only = Period::first(epoch_ms, levels, budget, first_epoch, coordinator);
            (periods, querier) = (Periods::First(only), None);
        } else {
            let bytes = reader.raw()?;
            let mut listed = Reader::resume(bytes);
            for _ in 0..listed.array_any()? {
                Period::read(&mut listed)?;
            }
            periods = Periods::Listed(bytes);
            last_epoch = reader.optional(Reader::u64)?.map(EpochNumber);
            querier = reader.optional(Reader::bytes)?;
        }
        let devices = reader.raw()?;
        let mut listed = Reader::resume(devices);
        for _ in 0..listed.array_any()? {
            Device::read(&mut listed, is_first)?.check_shape()?;
        }
        let (owners, sanitisers) = match fields {
            10 => (Owners::read(&mut reader)?, Sanitisers::NONE),
            11 => (Owners::read_any(&mut reader)?, Sanitisers::read(&mut reader)?),
            _ => (Owners::NONE, Sanitisers::NONE),
        };

        check_name(group_name)?;
        if group != GroupId::of(group_name) {
            return Err(RosterError::GroupMismatch);
        }
        if history.len() as u64 / HISTORY_ENTRY as u64 != u64::from(version) {
            return Err(RosterError::HistoryLength);
        }
        let mut newest = None;
        for period in periods.iter() {
            period.check(newest.as_ref(), group)?;
            newest = Some(period);
        }
        let newest = newest
            .filter(|newest| newest.version <= version)
            .ok_or(RosterError::UnsortedPeriods)?;
        if last_epoch.is_some_and(|last| last < newest.first_epoch) {
            return Err(RosterError::EpochRangeEmpty);
        }
        let roster = Self {
            own,
            group_name,
            group,
            version,
            history,
            periods,
            newest,
            last_epoch,
            querier,
            devices,
            owners,
            sanitisers,
        };
        roster.check_devices()?;
        Ok(roster)
    }

    fn check_devices(&self) -> Result<(), RosterError> {
        let querier = self.querier.map(Certificate::decode).transpose()?;
        if querier.is_some_and(|certificate| {
            (certificate.group, certificate.device) != (self.group, querier_id(self.group_name))
        }) {
            return Err(RosterError::CertificateMismatch);
        }
        self.owners.check(self.group_name, self.group)?;
        self.sanitisers.check(self.group_name, self.group)?;
        let mut last = None;
        for device in self.devices() {
            device.check(self.group_name, self.group, self.version)?;
            let is_coordinator = |period: Period<'_>| {
                period.coordinator().is_some_and(|certificate| certificate.device == device.id)
            };
            if last == Some(device.id) || self.periods().any(is_coordinator) {
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

    /// Returns the periods of the group, in ascending order. There is at least one.
    pub fn periods(&self) -> impl Iterator<Item = Period<'a>> + use<'a> {
        self.periods.iter()
    }

    /// Returns the newest period. It may begin in the future.
    #[must_use]
    pub const fn newest_period(&self) -> Period<'a> {
        self.newest
    }

    /// Returns the period that contains an epoch. Epochs before the first period count as epochs of
    /// the first period.
    #[must_use]
    pub fn period(&self, epoch: EpochNumber) -> Period<'a> {
        if self.newest.first_epoch <= epoch {
            return self.newest;
        }
        let mut found = None;
        for period in self.periods() {
            if found.is_some() && period.first_epoch > epoch {
                break;
            }
            found = Some(period);
        }
        found.unwrap_or(self.newest)
    }

    /// Returns the first epoch that may be sealed.
    #[must_use]
    pub fn first_epoch(&self) -> EpochNumber {
        self.periods().next().map_or(self.newest.first_epoch, |first| first.first_epoch)
    }

    /// Returns the last epoch that may be sealed; `None` means no end.
    #[must_use]
    pub const fn last_epoch(&self) -> Option<EpochNumber> {
        self.last_epoch
    }

    /// Returns the epoch that contains a Unix time in milliseconds, even if that epoch may not be
    /// sealed.
    #[must_use]
    pub fn epoch_of(&self, unix_ms: u64) -> EpochNumber {
        if let Some(epoch) = self.newest.epoch_of(unix_ms) {
            return epoch;
        }
        let mut periods = self.periods();
        let first = periods.next().unwrap_or(self.newest);
        let start = EpochNumber(unix_ms / first.epoch_ms);
        periods.map_while(|period| period.epoch_of(unix_ms)).last().unwrap_or(start)
    }

    /// Returns whether an epoch may be sealed.
    #[must_use]
    pub fn contains(&self, epoch: EpochNumber) -> bool {
        epoch >= self.first_epoch() && self.last_epoch.is_none_or(|last| epoch <= last)
    }

    /// Returns the certificate of the querier of private sums, if the roster names one.
    #[must_use]
    pub fn querier(&self) -> Option<Certificate<'a>> {
        Certificate::decode(self.querier?).ok()
    }

    /// Returns the bytes of the querier's certificate, for use in the next version of the roster.
    #[must_use]
    pub const fn querier_bytes(&self) -> Option<&'a [u8]> {
        self.querier
    }

    /// Returns the owners of confidential readings, sorted by id.
    pub fn owners(&self) -> impl Iterator<Item = Owner<'a>> + use<'a> {
        self.owners.iter()
    }

    /// Returns the sanitisers, sorted by id.
    pub fn sanitisers(&self) -> impl Iterator<Item = Sanitiser<'a>> + use<'a> {
        self.sanitisers.iter()
    }

    /// Returns the devices, sorted by id. This includes devices that no longer belong to the group:
    /// their past seals are still verified.
    pub fn devices(&self) -> impl Iterator<Item = Device<'a>> + use<'a> {
        let mut reader = Reader::resume(self.devices);
        let count = reader.array_any().unwrap_or(0);
        let is_first = self.version == 0;
        // The bytes have been read successfully before, so `ok()` is always `Some` here.
        (0..count).map_while(move |_| Device::read(&mut reader, is_first).ok())
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

    fn levels(&self, epoch: EpochNumber) -> u8 {
        self.period(epoch).levels
    }

    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (self.first_epoch(), self.last_epoch)
    }

    fn roster_digest(&self, version: u32) -> Option<Digest> {
        self.digest_of(version)
    }

    fn least_version(&self, epoch: EpochNumber) -> u32 {
        self.period(epoch).version
    }

    fn with_key(
        &self,
        device: DeviceId,
        index: SealIndex,
        epoch: EpochNumber,
        use_key: &mut dyn FnMut(&PublicKey),
    ) -> Result<(), NoKey> {
        let (_, key) = self.device(device).ok_or(NoKey::Unknown)?.key(index, epoch)?;
        use_key(&key);
        Ok(())
    }

    fn first_prev(&self, device: DeviceId) -> Option<Digest> {
        Some(self.device(device)?.first_certificate()?.digest())
    }

    fn with_coordinator(&self, epoch: EpochNumber, use_key: &mut dyn FnMut(&PublicKey)) {
        let certificate = self.period(epoch).coordinator();
        if let Some(key) = certificate.and_then(|certificate| certificate.key().ok()) {
            use_key(&key);
        }
    }
}

/// Returns the id for which a group's querier of private sums is certified.
#[must_use]
pub fn querier_id(group_name: &str) -> DeviceId {
    DeviceId::of(group_name, "querier")
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
