//! A roster that owns its bytes and has decoded every key for verification.

use std::collections::BTreeMap;
use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::roster::{self, Directory, NoKey, RosterError, SCRATCH_OVERHEAD};
use moteseal_core::schema::Groups;
use moteseal_core::signature::PublicKey;

use crate::calendar::Calendar;

/// A verified roster. Clones share the bytes and the devices.
#[derive(Clone, Debug)]
pub struct Roster {
    bytes: Arc<[u8]>,
    operator: PublicKey,
    group_name: String,
    group: GroupId,
    version: u32,
    digests: Vec<Digest>,
    periods: Vec<Period>,
    calendar: Calendar,
    last_epoch: Option<EpochNumber>,
    querier: Option<PublicKey>,
    devices: Arc<BTreeMap<DeviceId, Device>>,
    owners: Vec<Owner>,
    sanitisers: Vec<Sanitiser>,
}

/// An owner of confidential readings, whose key verifies grants.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The owner's id ([`roster::owner_id`]).
    pub id: DeviceId,
    /// The name.
    pub name: String,
    /// The key.
    pub key: PublicKey,
}

/// A sanitiser: a party that may replace the cells of column groups (spec/sanitised.md).
#[derive(Clone, Debug)]
pub struct Sanitiser {
    /// The sanitiser's id ([`roster::sanitiser_id`]).
    pub id: DeviceId,
    /// The name.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// What the sanitiser may replace.
    pub rights: Vec<SanitiserRight>,
}

impl Sanitiser {
    /// Returns whether the sanitiser may replace a column group of a device in an epoch.
    #[must_use]
    pub fn may_replace(&self, device: DeviceId, group: u8, epoch: EpochNumber) -> bool {
        self.rights.iter().any(|right| right.covers(device, group, epoch))
    }
}

/// What a sanitiser may replace: column groups of devices, in a range of epochs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SanitiserRight {
    /// The devices; `None` for all devices of the group.
    pub devices: Option<Vec<DeviceId>>,
    /// The column groups, without group 0.
    pub groups: Groups,
    /// The first epoch.
    pub first_epoch: EpochNumber,
    /// The epoch after the last one; `None` if there is no end.
    pub end_epoch: Option<EpochNumber>,
}

impl SanitiserRight {
    pub(crate) fn of(right: &roster::Right<'_>) -> Self {
        Self {
            devices: right.devices().map(Iterator::collect),
            groups: right.groups,
            first_epoch: right.first_epoch,
            end_epoch: right.end_epoch,
        }
    }

    fn covers(&self, device: DeviceId, group: u8, epoch: EpochNumber) -> bool {
        self.groups.contains(group)
            && self.first_epoch <= epoch
            && self.end_epoch.is_none_or(|end| epoch < end)
            && self.devices.as_ref().is_none_or(|devices| devices.contains(&device))
    }
}

/// A period of a group: epochs with the same length, number of levels, budget and coordinator.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    /// The version of the roster that introduced the period.
    pub version: u32,
    /// The first epoch of the period.
    pub first_epoch: EpochNumber,
    /// The length of an epoch, in milliseconds.
    pub epoch_ms: u64,
    /// The number of levels.
    pub levels: u8,
    /// The largest number of events that the coordinator may forward per epoch; `None` means no
    /// limit.
    pub budget: Option<u64>,
    /// The coordinator's key, if the group has a coordinator.
    pub coordinator: Option<PublicKey>,
}

/// A device of a roster.
#[derive(Clone, Debug)]
pub struct Device {
    /// The device's id.
    pub id: DeviceId,
    /// The device's name.
    pub name: String,
    /// The version of the roster that was the first to list the device.
    pub since: u32,
    /// The digest of the device's first certificate, which is the `prev` of its first seal.
    pub certificate: Digest,
    terms: Vec<Term>,
}

/// A key of a device, and the seals for which it is valid.
#[derive(Clone, Debug)]
pub struct Term {
    /// The key.
    pub key: PublicKey,
    /// The digest of the key's certificate.
    pub certificate: Digest,
    /// The first index for which the key is valid.
    pub first_index: SealIndex,
    /// The first epoch in which the key is valid.
    pub first_epoch: EpochNumber,
    /// The first index for which the key is no longer valid, if there is one.
    pub end_index: Option<SealIndex>,
    /// The first epoch in which the key is no longer valid, if there is one.
    pub end_epoch: Option<EpochNumber>,
}

impl Device {
    /// Returns the key that signs the seal with this index in this epoch.
    ///
    /// # Errors
    /// [`NoKey`].
    pub fn key(&self, index: SealIndex, epoch: EpochNumber) -> Result<&PublicKey, NoKey> {
        let is_started = |term: &&Term| term.first_index <= index && term.first_epoch <= epoch;
        let term = self.terms.iter().rev().find(is_started).ok_or(NoKey::Unknown)?;
        let has_ended = term.end_index.is_some_and(|end| index >= end)
            || term.end_epoch.is_some_and(|end| epoch >= end);
        if has_ended { Err(NoKey::Ended) } else { Ok(&term.key) }
    }

    /// Returns the device's keys with their terms, sorted by first index and first epoch.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Returns whether the roster has ended the key of this seal: the seal is void.
    #[must_use]
    pub fn is_void(&self, index: SealIndex, epoch: EpochNumber) -> bool {
        self.key(index, epoch) == Err(NoKey::Ended)
    }

    /// Returns whether a key of the device is valid for any seal after the seal `after` in the
    /// epochs `since .. until`.
    #[must_use]
    pub fn can_seal(
        &self,
        after: Option<SealIndex>,
        since: EpochNumber,
        until: EpochNumber,
    ) -> bool {
        self.terms.iter().any(|term| {
            let first = term.first_epoch.max(since);
            first < until
                && term.end_epoch.is_none_or(|end| first < end)
                && term.end_index.is_none_or(|end| after.is_none_or(|after| end.0 > after.0 + 1))
        })
    }

    /// Returns whether the device belongs to the group in an epoch: whether one of its keys is
    /// valid in it.
    #[must_use]
    pub fn is_member_in(&self, epoch: EpochNumber) -> bool {
        self.terms
            .iter()
            .any(|term| term.first_epoch <= epoch && term.end_epoch.is_none_or(|end| epoch < end))
    }

    /// Returns whether the device takes part in private sums in every epoch.
    #[must_use]
    pub fn always_takes_part(&self) -> bool {
        let has_no_end = |term: &Term| term.end_index.is_none() && term.end_epoch.is_none();
        self.takes_part_in(EpochNumber(0)) && self.terms.iter().all(has_no_end)
    }

    /// Returns whether the device takes part in private sums in an epoch: whether one of its keys
    /// is valid in it and is not revoked.
    #[must_use]
    pub fn takes_part_in(&self, epoch: EpochNumber) -> bool {
        self.terms.iter().any(|term| {
            term.first_epoch <= epoch
                && term.end_index.is_none()
                && term.end_epoch.is_none_or(|end| epoch < end)
        })
    }
}

impl Roster {
    /// Verifies a roster file.
    ///
    /// # Errors
    /// The errors of [`roster::Roster::open`].
    pub fn open(bytes: &[u8], operator: &PublicKey) -> Result<Self, RosterError> {
        let mut scratch = vec![0; bytes.len() + SCRATCH_OVERHEAD];
        let read = roster::Roster::open(bytes, operator, &mut scratch)?;
        let mut devices = BTreeMap::new();
        for device in read.devices() {
            let terms: Vec<Term> = device.terms().filter_map(|term| term_of(&term)).collect();
            let entry = Device {
                id: device.id,
                name: device.name.to_owned(),
                since: device.since,
                certificate: terms.first().map_or(Digest::NULL, |term| term.certificate),
                terms,
            };
            devices.insert(device.id, entry);
        }
        let period = |period: roster::Period<'_>| Period {
            version: period.version,
            first_epoch: period.first_epoch,
            epoch_ms: period.epoch_ms,
            levels: period.levels,
            budget: period.budget,
            coordinator: period.coordinator().and_then(|certificate| certificate.key().ok()),
        };
        Ok(Self {
            operator: operator.clone(),
            group_name: read.group_name().to_owned(),
            group: read.group(),
            version: read.version(),
            digests: read.history().chain([read.digest()]).collect(),
            periods: read.periods().map(period).collect(),
            calendar: Calendar::new(read.periods()),
            last_epoch: read.last_epoch(),
            querier: read.querier().and_then(|certificate| certificate.key().ok()),
            devices: Arc::new(devices),
            owners: read.owners().filter_map(|owner| owner_of(&owner)).collect(),
            sanitisers: read.sanitisers().filter_map(|found| sanitiser_of(&found)).collect(),
            bytes: bytes.into(),
        })
    }

    /// Returns the bytes of the roster file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the public key of the operator, with which the roster was verified.
    #[must_use]
    pub const fn operator(&self) -> &PublicKey {
        &self.operator
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
    pub fn digest(&self) -> Digest {
        self.digests.last().copied().unwrap_or(Digest::NULL)
    }

    /// Returns the digest of version 0. It is the same in all versions of a group's roster.
    #[must_use]
    pub fn first_digest(&self) -> Digest {
        self.digests.first().copied().unwrap_or(Digest::NULL)
    }

    /// Returns the digests of all versions up to this one, from version 0.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        &self.digests
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

    /// Returns whether a seal or manifest of `epoch` that names the version `named` is outdated: a
    /// later version of the roster introduced the period of the epoch. No verifier accepts it
    /// (`RosterOutdated`).
    #[must_use]
    pub fn is_outdated(&self, named: u32, epoch: EpochNumber) -> bool {
        named < self.period(epoch).version
    }

    /// Returns whether a stored seal or manifest of `epoch` that names the roster with the digest
    /// `named` is outdated ([`is_outdated`](Self::is_outdated)).
    #[must_use]
    pub fn outdates(&self, named: &Digest, epoch: EpochNumber) -> bool {
        self.version_of(named).is_some_and(|version| self.is_outdated(version, epoch))
    }

    /// Returns the periods of the group, in ascending order. There is at least one.
    #[must_use]
    pub fn periods(&self) -> &[Period] {
        &self.periods
    }

    /// Returns the period that contains an epoch. Epochs before the first period count as epochs of
    /// the first period.
    #[must_use]
    pub fn period(&self, epoch: EpochNumber) -> &Period {
        let later = self.periods.iter().rev().find(|period| period.first_epoch <= epoch);
        later.unwrap_or(&self.periods[0])
    }

    /// Returns the newest period. It may begin in the future.
    #[must_use]
    pub fn newest_period(&self) -> &Period {
        &self.periods[self.periods.len() - 1]
    }

    /// Returns the periods that have epochs in `since .. until`, in ascending order. `None` stands
    /// for a range without an end.
    pub fn periods_in(
        &self,
        since: EpochNumber,
        until: Option<EpochNumber>,
    ) -> impl Iterator<Item = &Period> {
        let current = self.period(since);
        let is_later = move |period: &&Period| {
            period.first_epoch > since && until.is_none_or(|until| period.first_epoch < until)
        };
        std::iter::once(current).chain(self.periods.iter().filter(is_later))
    }

    /// Returns the lengths of the group's epochs.
    #[must_use]
    pub const fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// Returns the largest number of events of an epoch that the group's coordinator may forward;
    /// `None` means no limit.
    #[must_use]
    pub fn budget(&self, epoch: EpochNumber) -> Option<u64> {
        self.period(epoch).budget
    }

    /// Returns the coordinators of the group: each key with the first epoch of the period from which
    /// it is the coordinator's, in ascending order. The first one counts from epoch 0.
    #[must_use]
    pub fn coordinators(&self) -> Vec<(EpochNumber, PublicKey)> {
        let mut coordinators: Vec<(EpochNumber, PublicKey)> = Vec::new();
        for period in &self.periods {
            let Some(key) = period.coordinator.as_ref().filter(|_| period.budget.is_some()) else {
                continue;
            };
            if coordinators.last().is_none_or(|(_, last)| last != key) {
                let first = if coordinators.is_empty() { 0 } else { period.first_epoch.0 };
                coordinators.push((EpochNumber(first), key.clone()));
            }
        }
        coordinators
    }

    /// Returns whether the group has a budget in any period.
    #[must_use]
    pub fn has_budget(&self) -> bool {
        self.periods.iter().any(|period| period.budget.is_some())
    }

    /// Returns the key of the querier of private sums, if the roster names one.
    #[must_use]
    pub const fn querier(&self) -> Option<&PublicKey> {
        self.querier.as_ref()
    }

    /// Returns the owners of confidential readings, sorted by id.
    #[must_use]
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// Returns the owner with this id.
    #[must_use]
    pub fn owner(&self, id: DeviceId) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.id == id)
    }

    /// Returns the sanitisers, sorted by id.
    #[must_use]
    pub fn sanitisers(&self) -> &[Sanitiser] {
        &self.sanitisers
    }

    /// Returns the sanitiser with this id.
    #[must_use]
    pub fn sanitiser(&self, id: DeviceId) -> Option<&Sanitiser> {
        self.sanitisers.iter().find(|sanitiser| sanitiser.id == id)
    }

    /// Returns the devices, sorted by id. This includes devices that no longer belong to the group:
    /// their past seals are still verified.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &Device> {
        self.devices.values()
    }

    /// Returns the devices in the order of their positions as sources of private sums: by the
    /// version that was the first to list them, then by id. Later versions of the roster do not
    /// change the positions.
    #[must_use]
    pub fn sources(&self) -> Vec<&Device> {
        let mut sources: Vec<&Device> = self.devices.values().collect();
        sources.sort_by_key(|device| device.since);
        sources
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
        let named = DeviceId::of(&self.group_name, name);
        if self.devices.contains_key(&named) {
            return Some(named);
        }
        self.devices.keys().find(|id| id.to_string() == name).copied()
    }

    /// Returns the name of a device.
    #[must_use]
    pub fn name(&self, id: DeviceId) -> Option<&str> {
        self.devices.get(&id).map(|device| device.name.as_str())
    }

    /// Returns the start of an epoch, in Unix milliseconds; `None` if that is 2^64 or more.
    #[must_use]
    pub fn epoch_start_ms(&self, epoch: EpochNumber) -> Option<u64> {
        self.calendar.start_ms(epoch)
    }

    /// Returns the epoch that contains an instant, in Unix milliseconds.
    #[must_use]
    pub fn epoch_of(&self, unix_ms: u64) -> EpochNumber {
        self.calendar.epoch_of(unix_ms)
    }
}

/// Reads a term of a roster that has been checked, so the result is always `Some`.
fn term_of(term: &roster::Term<'_>) -> Option<Term> {
    let certificate = term.certificate().ok()?;
    Some(Term {
        key: certificate.key().ok()?,
        certificate: certificate.digest(),
        first_index: certificate.first_index,
        first_epoch: term.first_epoch,
        end_index: term.end_index,
        end_epoch: term.end_epoch,
    })
}

/// Reads an owner of a roster that has been checked, so the result is always `Some`.
fn owner_of(owner: &roster::Owner<'_>) -> Option<Owner> {
    let certificate = owner.certificate().ok()?;
    Some(Owner {
        id: certificate.device,
        name: owner.name.to_owned(),
        key: certificate.key().ok()?,
    })
}

/// Reads a sanitiser of a roster that has been checked, so the result is always `Some`.
fn sanitiser_of(sanitiser: &roster::Sanitiser<'_>) -> Option<Sanitiser> {
    let certificate = sanitiser.certificate().ok()?;
    Some(Sanitiser {
        id: certificate.device,
        name: sanitiser.name.to_owned(),
        key: certificate.key().ok()?,
        rights: sanitiser.rights().map(|right| SanitiserRight::of(&right)).collect(),
    })
}

impl Directory for Roster {
    fn group(&self) -> GroupId {
        self.group
    }

    fn levels(&self, epoch: EpochNumber) -> u8 {
        self.period(epoch).levels
    }

    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (self.periods[0].first_epoch, self.last_epoch)
    }

    fn roster_digest(&self, version: u32) -> Option<Digest> {
        self.digests.get(usize::try_from(version).ok()?).copied()
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
        use_key(self.devices.get(&device).ok_or(NoKey::Unknown)?.key(index, epoch)?);
        Ok(())
    }

    fn first_prev(&self, device: DeviceId) -> Option<Digest> {
        self.devices.get(&device).map(|device| device.certificate)
    }

    fn with_coordinator(&self, epoch: EpochNumber, use_key: &mut dyn FnMut(&PublicKey)) {
        if let Some(key) = &self.period(epoch).coordinator {
            use_key(key);
        }
    }
}
