//! Issues rosters and certificates on a host. Wraps [`RosterDraft`] and [`CertificateDraft`] and
//! allocates their buffers.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::error::Named;
use moteseal_core::identity::{CertificateDraft, IssueError, MAX_CERTIFICATE};
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{
    self, DeviceDraft, OwnerDraft, Period, RosterDraft, RosterError, SCRATCH_OVERHEAD, Term,
    owner_id, querier_id,
};
use moteseal_core::signature::{PublicKey, SignError, Signer};

mod sanitisers;

use sanitisers::OwnedSanitiser;

/// A group's first roster: version 0, one key per device.
#[derive(Clone, Debug)]
pub struct FirstRoster<'a> {
    /// The group's name.
    pub group: &'a str,
    /// The length of an epoch, in milliseconds.
    pub epoch_ms: u64,
    /// The number of levels.
    pub levels: u8,
    /// The group's budget, and the coordinator that enforces it; `None` if the group has no budget
    /// and the cloud keeps all events.
    pub budget: Option<Budget>,
    /// The devices' names and keys, in any order.
    pub devices: &'a [(&'a str, PublicKey)],
}

/// A group's budget.
#[derive(Clone, Debug)]
pub struct Budget {
    /// The largest number of events that the coordinator may forward per epoch.
    pub events: u64,
    /// The coordinator's key.
    pub coordinator: PublicKey,
}

/// The coordinator's name. Its id is derived from the name in the same way as a device's id.
const COORDINATOR: &str = "coordinator";

/// Issues a certificate.
fn certify(operator: &dyn Signer, draft: &CertificateDraft<'_>) -> Result<Vec<u8>, RosterError> {
    let mut certificate = vec![0; MAX_CERTIFICATE];
    let issued = draft.issue(operator, &mut certificate).map_err(|error| match error {
        IssueError::Sign(error) => RosterError::Sign(error),
        _ => RosterError::Sign(SignError::BufferTooSmall),
    })?;
    let length = issued.len();
    certificate.truncate(length);
    Ok(certificate)
}

impl FirstRoster<'_> {
    /// Certifies every device's key, signs the roster, and returns the bytes of the roster file.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn issue(&self, operator: &dyn Signer) -> Result<Vec<u8>, RosterError> {
        let group = GroupId::of(self.group);
        let certify = |serial, device, key| {
            let first_index = SealIndex(0);
            certify(operator, &CertificateDraft { group, device, serial, key, first_index })
        };
        let mut devices = Vec::with_capacity(self.devices.len());
        for (serial, (name, key)) in (0..).zip(self.devices) {
            let device = DeviceId::of(self.group, name);
            devices.push((device, *name, certify(serial, device, key)?));
        }
        devices.sort_by_key(|(device, ..)| *device);
        let terms: Vec<[Term<'_>; 1]> =
            devices.iter().map(|(.., certificate)| [Term::always(certificate)]).collect();
        let drafts = devices.iter().zip(&terms);
        let drafts: Vec<DeviceDraft<'_>> =
            drafts.map(|((_, name, _), terms)| DeviceDraft { name, since: 0, terms }).collect();
        let coordinator = self.budget.as_ref().map(|budget| {
            let device = DeviceId::of(self.group, COORDINATOR);
            certify(self.devices.len() as u64, device, &budget.coordinator)
        });
        let coordinator = coordinator.transpose()?;
        let budget = self.budget.as_ref().map(|budget| budget.events);
        let first = EpochNumber(0);
        let draft = RosterDraft {
            group_name: self.group,
            history: &[],
            periods: &[Period::first(
                self.epoch_ms,
                self.levels,
                budget,
                first,
                coordinator.as_deref(),
            )],
            last_epoch: None,
            querier: None,
            devices: &drafts,
            owners: &[],
            sanitisers: &[],
        };
        sign(&draft, operator)
    }
}

fn sign(draft: &RosterDraft<'_>, operator: &dyn Signer) -> Result<Vec<u8>, RosterError> {
    let (mut scratch, mut out) = (vec![0; draft.size()], vec![0; draft.size()]);
    draft.sign(operator, &mut scratch, &mut out).map(<[u8]>::to_vec)
}

/// Why a change of a roster is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The roster lists no device with this name.
    #[error("the roster lists no device {0}")]
    UnknownDevice(String),
    /// The roster lists no owner with this name.
    #[error("the roster lists no owner {0}")]
    UnknownOwner(String),
    /// The roster lists no sanitiser with this name.
    #[error("the roster lists no sanitiser {0}; give its public key to add it")]
    UnknownSanitiser(String),
    /// The device belongs to the group already.
    #[error("{0} is already a device of the group")]
    DuplicateDevice(String),
    /// The device no longer belongs to the group, or its key has ended.
    #[error("{0} no longer belongs to the group")]
    DeviceEnded(String),
    /// The key belongs to a device of the roster already, or did so in the past; or the key of a sanitiser
    /// is that of a device, an owner or another sanitiser.
    #[error("the key of {name} is also a key of {other}; make a new key")]
    KeyInUse {
        /// The name for which the key was given.
        name: String,
        /// The name of the device, owner or sanitiser that has the key.
        other: String,
    },
    /// All rights of the sanitiser end at this point or before.
    #[error(
        "the rights of sanitiser {0} already end then or before; a new right is given with its groups"
    )]
    RightsEndBefore(String),
    /// The new key would be valid from an index or epoch before the one from which the newest key
    /// is valid.
    #[error("the newest key of {0} is valid from a later index or epoch")]
    KeyNotLater(String),
    /// The new end is later than the end that an earlier version states.
    #[error(
        "an earlier version of the roster already ends this key of {0} at this point or before"
    )]
    EndNotEarlier(String),
    /// The new period does not begin after the newest period.
    #[error("the new period begins before the newest period of the roster does")]
    PeriodNotLater,
    /// The roster cannot be signed or is invalid.
    #[error(transparent)]
    Roster(#[from] RosterError),
}

impl ChangeError {
    /// Returns the error's name: spec/errors.md.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::UnknownDevice(_) => "UnknownDevice",
            Self::UnknownOwner(_) => "UnknownOwner",
            Self::UnknownSanitiser(_) => "UnknownSanitiser",
            Self::DuplicateDevice(_) => "DuplicateDevice",
            Self::DeviceEnded(_) => "DeviceEnded",
            Self::KeyInUse { .. } => "KeyInUse",
            Self::RightsEndBefore(_) => "EndNotEarlier",
            Self::KeyNotLater(_) => "KeyNotLater",
            Self::EndNotEarlier(_) => "EndNotEarlier",
            Self::PeriodNotLater => "PeriodNotLater",
            Self::Roster(error) => error.name(),
        }
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

/// The next version of a roster.
///
/// It begins as a copy of the version before. Each change either succeeds or leaves the draft as it
/// was. [`issue`](Self::issue) signs the result.
pub struct NextRoster<'k> {
    operator: &'k dyn Signer,
    group_name: String,
    history: Vec<Digest>,
    periods: Vec<OwnedPeriod>,
    last_epoch: Option<EpochNumber>,
    querier: Option<Vec<u8>>,
    devices: BTreeMap<DeviceId, OwnedDevice>,
    /// The owners by id: name and certificate.
    owners: BTreeMap<DeviceId, (String, Vec<u8>)>,
    sanitisers: BTreeMap<DeviceId, OwnedSanitiser>,
    /// Every certified key of a device, with the device.
    keys: BTreeMap<Vec<u8>, DeviceId>,
    next_serial: u64,
}

struct OwnedPeriod {
    version: u32,
    first_epoch: EpochNumber,
    start_ms: Option<u64>,
    epoch_ms: u64,
    levels: u8,
    budget: Option<u64>,
    coordinator: Option<Vec<u8>>,
}

struct OwnedDevice {
    name: String,
    since: u32,
    terms: Vec<OwnedTerm>,
}

struct OwnedTerm {
    certificate: Vec<u8>,
    first_index: SealIndex,
    first_epoch: EpochNumber,
    end_index: Option<SealIndex>,
    end_epoch: Option<EpochNumber>,
}

impl OwnedTerm {
    fn borrow(&self) -> Term<'_> {
        let Self { certificate, first_epoch, end_index, end_epoch, .. } = self;
        Term {
            bytes: certificate,
            first_epoch: *first_epoch,
            end_index: *end_index,
            end_epoch: *end_epoch,
        }
    }
}

/// The parameters of a new period. `None` keeps the value of the period before.
#[derive(Clone, Debug, Default)]
pub struct PeriodChange {
    /// The length of an epoch, in milliseconds.
    pub epoch_ms: Option<u64>,
    /// The number of levels.
    pub levels: Option<u8>,
    /// The budget; `Some(None)` removes it.
    pub budget: Option<Option<u64>>,
    /// The coordinator's key.
    pub coordinator: Option<PublicKey>,
}

impl<'k> NextRoster<'k> {
    /// Starts the version after `before`, the bytes of a roster file that this operator signed.
    ///
    /// # Errors
    /// [`RosterError`] if `before` is not a roster of this operator.
    pub fn after(
        before: &[u8],
        operator: &'k dyn Signer,
        operator_key: &PublicKey,
    ) -> Result<Self, RosterError> {
        let mut scratch = vec![0; before.len() + SCRATCH_OVERHEAD];
        let read = roster::Roster::open(before, operator_key, &mut scratch)?;
        let (mut devices, mut keys, mut next_serial) = (BTreeMap::new(), BTreeMap::new(), 0);
        for device in read.devices() {
            let mut terms = Vec::new();
            for term in device.terms() {
                let certificate = term.certificate()?;
                next_serial = next_serial.max(certificate.serial.saturating_add(1));
                keys.insert(certificate.key_bytes.to_vec(), device.id);
                terms.push(OwnedTerm {
                    certificate: term.bytes.to_vec(),
                    first_index: certificate.first_index,
                    first_epoch: term.first_epoch,
                    end_index: term.end_index,
                    end_epoch: term.end_epoch,
                });
            }
            let (name, since) = (device.name.to_owned(), device.since);
            devices.insert(device.id, OwnedDevice { name, since, terms });
        }
        let period = |period: Period<'_>| OwnedPeriod {
            version: period.version,
            first_epoch: period.first_epoch,
            start_ms: period.start_ms,
            epoch_ms: period.epoch_ms,
            levels: period.levels,
            budget: period.budget,
            coordinator: period.coordinator.map(<[u8]>::to_vec),
        };
        let others = read.periods().filter_map(|period| period.coordinator());
        let mut owners = BTreeMap::new();
        for owner in read.owners() {
            let certificate = owner.certificate()?;
            next_serial = next_serial.max(certificate.serial.saturating_add(1));
            owners.insert(certificate.device, (owner.name.to_owned(), owner.bytes.to_vec()));
        }
        let (sanitisers, highest) = OwnedSanitiser::all(&read)?;
        next_serial = next_serial.max(highest.map_or(0, |serial| serial.saturating_add(1)));
        for certificate in others.chain(read.querier()) {
            next_serial = next_serial.max(certificate.serial.saturating_add(1));
        }
        Ok(Self {
            operator,
            group_name: read.group_name().to_owned(),
            history: read.history().chain([read.digest()]).collect(),
            periods: read.periods().map(period).collect(),
            last_epoch: read.last_epoch(),
            querier: read.querier_bytes().map(<[u8]>::to_vec),
            devices,
            owners,
            sanitisers,
            keys,
            next_serial,
        })
    }

    /// Returns the version that is being made.
    #[must_use]
    pub fn version(&self) -> u32 {
        u32::try_from(self.history.len()).unwrap_or(u32::MAX)
    }

    fn certify(
        &mut self,
        device: DeviceId,
        key: &PublicKey,
        first_index: SealIndex,
    ) -> Result<Vec<u8>, RosterError> {
        let (group, serial) = (GroupId::of(&self.group_name), self.next_serial);
        let draft = CertificateDraft { group, device, serial, key, first_index };
        let certificate = certify(self.operator, &draft)?;
        self.next_serial = serial.saturating_add(1);
        Ok(certificate)
    }

    /// Checks that no device has or had a key, so that no device can seal in the name of another.
    fn check_key(&self, name: &str, key: &PublicKey) -> Result<(), ChangeError> {
        let Some(other) = self.keys.get(&*key.to_bytes()) else { return Ok(()) };
        let other = self.devices.get(other).map(|device| device.name.clone());
        Err(ChangeError::KeyInUse {
            name: name.to_owned(),
            other: other.unwrap_or_else(|| name.to_owned()),
        })
    }

    fn find(&self, name: &str) -> Result<(DeviceId, &OwnedDevice), ChangeError> {
        let id = DeviceId::of(&self.group_name, name);
        let device = self.devices.get(&id);
        Ok((id, device.ok_or_else(|| ChangeError::UnknownDevice(name.to_owned()))?))
    }

    /// Adds a device that belongs to the group from `first_epoch` on. A device that was removed can
    /// be added again, with a new key and a first epoch at or after its end.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn add(
        &mut self,
        name: &str,
        key: &PublicKey,
        first_epoch: EpochNumber,
    ) -> Result<(), ChangeError> {
        let id = DeviceId::of(&self.group_name, name);
        if let Some(before) = self.devices.get(&id) {
            let last = before.terms.last().and_then(|term| term.end_epoch);
            if last.is_none_or(|end| end > first_epoch) {
                return Err(ChangeError::DuplicateDevice(name.to_owned()));
            }
            return self.rotate(name, key, first_epoch, SealIndex(0));
        }
        self.check_key(name, key)?;
        let certificate = self.certify(id, key, SealIndex(0))?;
        let first_index = SealIndex(0);
        let term =
            OwnedTerm { certificate, first_index, first_epoch, end_index: None, end_epoch: None };
        let since = self.version();
        self.keys.insert(key.to_bytes().to_vec(), id);
        self.devices.insert(id, OwnedDevice { name: name.to_owned(), since, terms: vec![term] });
        Ok(())
    }

    /// Gives a device a new key from `first_epoch` and from `first_index` on; the index is raised to
    /// that of the key before. The term of the key before ends at `first_epoch`.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn rotate(
        &mut self,
        name: &str,
        key: &PublicKey,
        first_epoch: EpochNumber,
        first_index: SealIndex,
    ) -> Result<(), ChangeError> {
        self.check_key(name, key)?;
        let (id, device) = self.find(name)?;
        let last = device.terms.last();
        let first_index = last.map_or(first_index, |last| last.first_index.max(first_index));
        let ascends = last.is_none_or(|last| {
            first_epoch >= last.first_epoch
                && (first_epoch, first_index) != (last.first_epoch, last.first_index)
        });
        if !ascends {
            return Err(ChangeError::KeyNotLater(name.to_owned()));
        }
        let certificate = self.certify(id, key, first_index)?;
        let Some(device) = self.devices.get_mut(&id) else {
            return Err(ChangeError::UnknownDevice(name.to_owned()));
        };
        if let Some(last) = device.terms.last_mut()
            && last.first_epoch < first_epoch
        {
            last.end_epoch = Some(last.end_epoch.map_or(first_epoch, |end| end.min(first_epoch)));
        }
        let term =
            OwnedTerm { certificate, first_index, first_epoch, end_index: None, end_epoch: None };
        device.terms.push(term);
        self.keys.insert(key.to_bytes().to_vec(), id);
        Ok(())
    }

    /// Ends a device's keys at an epoch, its newest key at an index, or both. With an epoch in the
    /// future this removes the device from the group; with an index or epoch in the past it revokes
    /// the keys, and seals from there on are no longer valid.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn end(
        &mut self,
        name: &str,
        end_index: Option<SealIndex>,
        end_epoch: Option<EpochNumber>,
    ) -> Result<(), ChangeError> {
        let (id, _) = self.find(name)?;
        let not_earlier = || ChangeError::EndNotEarlier(name.to_owned());
        let Some(device) = self.devices.get_mut(&id) else { return Err(not_earlier()) };
        let Some(last) = device.terms.last_mut() else { return Err(not_earlier()) };
        let tightens = end_index.is_some_and(|end| last.end_index.is_none_or(|old| end < old))
            || end_epoch.is_some_and(|end| last.end_epoch.is_none_or(|old| end < old));
        if !tightens {
            return Err(not_earlier());
        }
        last.end_index = last.end_index.into_iter().chain(end_index).min();
        last.end_index = last.end_index.map(|end| end.max(last.first_index));
        // The keys before it end at the same epoch, so that the device has no key from then on. A
        // term cannot end before it begins: the key was then never valid.
        let ending = if end_epoch.is_some() { &mut device.terms[..] } else { &mut [] };
        for term in ending {
            term.end_epoch = term.end_epoch.into_iter().chain(end_epoch).min();
            term.end_epoch = term.end_epoch.map(|end| end.max(term.first_epoch));
        }
        Ok(())
    }

    /// Begins a new period. Its first epoch starts at `first_epoch`, counted in the epochs of the
    /// periods before.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn begin_period(
        &mut self,
        first_epoch: EpochNumber,
        change: &PeriodChange,
    ) -> Result<(), ChangeError> {
        let version = self.version();
        let is_of_this_version =
            self.periods.last().is_some_and(|newest| newest.version == version);
        let newest = self.periods.last().filter(|_| !is_of_this_version);
        let newest = newest.filter(|newest| newest.first_epoch < first_epoch);
        let (epoch_ms, levels, budget, coordinator, start_ms) = match newest {
            Some(newest) => (
                newest.epoch_ms,
                newest.levels,
                newest.budget,
                newest.coordinator.clone(),
                Period {
                    version: newest.version,
                    first_epoch: newest.first_epoch,
                    start_ms: newest.start_ms,
                    epoch_ms: newest.epoch_ms,
                    levels: newest.levels,
                    budget: None,
                    coordinator: None,
                }
                .epoch_start_ms(first_epoch),
            ),
            None => return Err(ChangeError::PeriodNotLater),
        };
        let start_ms = start_ms.ok_or(ChangeError::Roster(RosterError::EpochStartMismatch))?;
        let coordinator = match &change.coordinator {
            Some(key) => {
                let device = DeviceId::of(&self.group_name, COORDINATOR);
                Some(self.certify(device, key, SealIndex(0))?)
            }
            None => coordinator,
        };
        self.periods.push(OwnedPeriod {
            version,
            first_epoch,
            start_ms: Some(start_ms),
            epoch_ms: change.epoch_ms.unwrap_or(epoch_ms),
            levels: change.levels.unwrap_or(levels),
            budget: change.budget.unwrap_or(budget),
            coordinator,
        });
        Ok(())
    }

    /// Names the querier of private sums.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn set_querier(&mut self, key: &PublicKey) -> Result<(), ChangeError> {
        let device = querier_id(&self.group_name);
        self.querier = Some(self.certify(device, key, SealIndex(0))?);
        Ok(())
    }

    /// Certifies the key of an owner of confidential readings. An owner with this name gets the new
    /// key; grants that the old key signed are then no longer accepted.
    ///
    /// # Errors
    /// [`ChangeError`]. An invalid name is an error of [`issue`](Self::issue).
    pub fn set_owner(&mut self, name: &str, key: &PublicKey) -> Result<(), ChangeError> {
        let id = owner_id(&self.group_name, name);
        let certificate = self.certify(id, key, SealIndex(0))?;
        self.owners.insert(id, (name.to_owned(), certificate));
        Ok(())
    }

    /// Removes an owner. Its grants are then no longer accepted.
    ///
    /// # Errors
    /// `UnknownOwner`.
    pub fn remove_owner(&mut self, name: &str) -> Result<(), ChangeError> {
        let removed = self.owners.remove(&owner_id(&self.group_name, name));
        removed.map(|_| ()).ok_or_else(|| ChangeError::UnknownOwner(name.to_owned()))
    }

    /// Signs the roster and returns the bytes of the roster file.
    ///
    /// # Errors
    /// [`ChangeError`].
    pub fn issue(&self) -> Result<Vec<u8>, ChangeError> {
        let periods: Vec<Period<'_>> = self
            .periods
            .iter()
            .map(|period| Period {
                version: period.version,
                first_epoch: period.first_epoch,
                start_ms: period.start_ms,
                epoch_ms: period.epoch_ms,
                levels: period.levels,
                budget: period.budget,
                coordinator: period.coordinator.as_deref(),
            })
            .collect();
        let terms: Vec<Vec<Term<'_>>> = self
            .devices
            .values()
            .map(|device| device.terms.iter().map(OwnedTerm::borrow).collect())
            .collect();
        let devices: Vec<DeviceDraft<'_>> = self
            .devices
            .values()
            .zip(&terms)
            .map(|(device, terms)| DeviceDraft { name: &device.name, since: device.since, terms })
            .collect();
        let owners: Vec<OwnerDraft<'_>> = self
            .owners
            .values()
            .map(|(name, certificate)| OwnerDraft { name, certificate })
            .collect();
        let rights: Vec<_> = self.sanitisers.values().map(OwnedSanitiser::rights).collect();
        let sanitisers: Vec<_> = self
            .sanitisers
            .values()
            .zip(&rights)
            .map(|(sanitiser, rights)| sanitiser.draft(rights))
            .collect();
        let draft = RosterDraft {
            group_name: &self.group_name,
            history: &self.history,
            periods: &periods,
            last_epoch: self.last_epoch,
            querier: self.querier.as_deref(),
            devices: &devices,
            owners: &owners,
            sanitisers: &sanitisers,
        };
        Ok(sign(&draft, self.operator)?)
    }
}
