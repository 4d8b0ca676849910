//! What all seals of a device have in common.

use moteseal_core::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, GroupId, Scheme, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{GroupLayout, Groups, RecordCheck, RecordError, Schema};
use moteseal_verify::Roster;

use super::SealRefused;
use crate::column_keys::{Cipher, ColumnKeys};

/// The default of [`Profile::max_events`].
pub const DEFAULT_MAX_EVENTS: u32 = 1 << 20;
/// The default of [`Profile::max_bytes`].
pub const DEFAULT_MAX_BYTES: usize = 16 << 20;

named_errors! {
    /// Why there is no [`Profile`] of a device.
    ProfileError {
        /// The roster does not list the device.
        UnknownDevice => "the roster has no such device",
        /// The schema has encrypted columns, and there are no keys for them.
        NoStreamSecret => "the schema has encrypted columns; give the device its stream secret",
        /// The keys are not those of the schema's encrypted columns.
        WrongColumn => "the keys are for other columns than the encrypted ones of the schema",
    }
}

/// A version of a roster, as seals name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RosterName {
    /// The version, from 0.
    pub version: u32,
    /// The digest of the roster.
    pub digest: Digest,
}

/// The data that all seals of one device share.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The group.
    pub group: GroupId,
    /// The version of the roster that the device's seals name.
    pub roster: RosterName,
    /// The digests of all versions of the roster up to the newest one, from version 0.
    pub history: Vec<Digest>,
    /// The group's periods in ascending order: the first epoch, the version of the roster that
    /// introduced the period, and the number of levels, 1 to 32.
    pub levels: Vec<(EpochNumber, u32, u8)>,
    /// The first and the last epoch that may be sealed.
    pub epochs: (EpochNumber, Option<EpochNumber>),
    /// The device.
    pub device: DeviceId,
    /// The digest of the device's first certificate, which is the `prev` of its first seal.
    pub certificate: Digest,
    /// Star or tree.
    pub scheme: Scheme,
    /// The stream schema, encoded.
    pub schema: Vec<u8>,
    /// The stream schema's digest.
    pub schema_digest: Digest,
    /// How the records of a seal are delimited: by their fixed size or by length prefixes.
    pub framing: Framing,
    /// The places of the column groups in the records; `None` if the schema has no groups.
    pub groups: Option<Box<GroupLayout>>,
    /// The check of the records; `None` if the schema allows every record of the right length.
    pub check: Option<Box<RecordCheck>>,
    /// The keys of the encrypted columns; `None` if the schema has none.
    pub columns: Option<Box<ColumnKeys>>,
    /// The maximum number of events of a seal. A seal with this many events is closed, and the
    /// epoch continues under the next index.
    pub max_events: u32,
    /// The maximum size of a seal's events in bytes. A seal is closed before its events exceed it.
    pub max_bytes: usize,
}

impl Profile {
    /// Creates the profile of the device with the name `name`, whose schema has no encrypted columns.
    ///
    /// # Errors
    /// `UnknownDevice`; `NoStreamSecret` if the schema has encrypted columns.
    pub fn new(
        roster: &Roster,
        name: &str,
        scheme: Scheme,
        schema: &Schema<'_>,
    ) -> Result<Self, ProfileError> {
        if schema.encrypted_count() > 0 {
            return Err(ProfileError::NoStreamSecret);
        }
        Self::create(roster, name, scheme, schema)
    }

    /// Creates the profile of a device whose schema has encrypted columns. `columns` are their keys.
    ///
    /// # Errors
    /// `UnknownDevice`; `WrongColumn` if the keys are not those of the schema's encrypted columns.
    pub fn with_columns(
        roster: &Roster,
        name: &str,
        scheme: Scheme,
        schema: &Schema<'_>,
        columns: ColumnKeys,
    ) -> Result<Self, ProfileError> {
        if !columns.are_of(schema) {
            return Err(ProfileError::WrongColumn);
        }
        let profile = Self::create(roster, name, scheme, schema)?;
        Ok(Self { columns: Some(Box::new(columns)), ..profile })
    }

    fn create(
        roster: &Roster,
        name: &str,
        scheme: Scheme,
        schema: &Schema<'_>,
    ) -> Result<Self, ProfileError> {
        let device = roster.id(name).and_then(|id| roster.device(id));
        let device = device.ok_or(ProfileError::UnknownDevice)?;
        Ok(Self {
            group: roster.group(),
            roster: RosterName { version: roster.version(), digest: roster.digest() },
            history: roster.digests().to_vec(),
            levels: levels_of(roster),
            epochs: roster.epochs(),
            device: device.id,
            certificate: device.certificate,
            scheme,
            schema: schema.as_bytes().to_vec(),
            schema_digest: schema.digest(),
            framing: schema.record_size().and_then(Framing::fixed).unwrap_or(Framing::Prefixed),
            groups: GroupLayout::new(schema, schema.groups()).map(Box::new),
            check: RecordCheck::of_plain(schema).map(Box::new),
            columns: None,
            max_events: DEFAULT_MAX_EVENTS,
            max_bytes: DEFAULT_MAX_BYTES,
        })
    }

    /// Returns the groups of the schema's columns; empty if it has no groups.
    #[must_use]
    pub fn column_groups(&self) -> Groups {
        self.groups.as_ref().map_or(Groups::NONE, |layout| layout.all())
    }

    /// Takes over what a later version of the roster states about the group. The version that seals
    /// name does not change.
    pub(crate) fn load(&mut self, roster: &Roster) {
        self.levels = levels_of(roster);
        self.epochs = roster.epochs();
        self.history = roster.digests().to_vec();
    }

    /// Returns the number of levels in an epoch, under the version of the roster that seals name. A
    /// journal that was written under an earlier version thus leads to the same seals again.
    pub(crate) fn levels_in(&self, epoch: EpochNumber) -> u8 {
        let named = self.roster.version;
        let mut known = self.levels.iter().rev().filter(|(_, version, _)| *version <= named);
        let period = known.find(|(first, ..)| *first <= epoch);
        period.or(self.levels.first()).map_or(1, |(.., levels)| *levels)
    }

    /// Draws a nonce and returns the encryption of the seal with this index. Returns `None` if the
    /// schema has no encrypted columns.
    ///
    /// # Errors
    /// `NoStreamSecret`, `NoNonce`, and the errors of the keys.
    pub(crate) fn cipher(
        &self,
        index: SealIndex,
        epoch: EpochNumber,
    ) -> Result<Option<Cipher>, SealRefused> {
        if let Some(columns) = &self.columns {
            return columns.cipher(&self.schema, (self.device, index), epoch).map(Some);
        }
        // The fields of a profile are public: never seal the values of encrypted columns in plaintext.
        let encrypted = Schema::decode(&self.schema).map_or(0, |schema| schema.encrypted_count());
        if encrypted == 0 { Ok(None) } else { Err(SealRefused::NoStreamSecret) }
    }

    /// Checks that the keys of the encrypted columns cover an epoch.
    ///
    /// # Errors
    /// `EpochOutOfKeyRange` or `KeyErased`.
    pub(crate) fn check_keys(&self, epoch: EpochNumber) -> Result<(), SealRefused> {
        let columns = self.columns.as_ref();
        columns.map_or(Ok(()), |columns| columns.check(epoch)).map_err(SealRefused::Key)
    }

    /// Erases the keys of the epochs before this one, of which no further seal is opened.
    pub(crate) fn pass_epochs_before(&mut self, epoch: EpochNumber) {
        if let Some(columns) = &mut self.columns {
            columns.erase_before(epoch);
        }
    }

    /// Checks that the cells of a record in plaintext are values of the schema's columns.
    pub(crate) fn check_values(&self, record: &[u8]) -> Result<(), SealRefused> {
        let Some(check) = &self.check else { return Ok(()) };
        check.check(record).map_err(|error| match error {
            RecordError::RecordLength => SealRefused::WrongLength { length: record.len() },
            _ => SealRefused::RecordValue,
        })
    }

    /// Returns the number of bytes that a record of `length` bytes takes in a seal.
    pub(crate) fn framed(&self, length: usize) -> usize {
        length + if self.framing == Framing::Prefixed { 2 } else { 0 }
    }

    /// Returns whether a seal with `count` events in `bytes` bytes must be closed before a record
    /// of `length` bytes is added.
    pub(crate) fn is_full(&self, count: u32, bytes: usize, length: usize) -> bool {
        count >= self.max_events.max(1)
            || (count > 0 && bytes + self.framed(length) > self.max_bytes)
    }
}

/// Returns the first epoch, the version and the number of levels of each period of a group.
fn levels_of(roster: &Roster) -> Vec<(EpochNumber, u32, u8)> {
    let periods = roster.periods().iter();
    periods.map(|period| (period.first_epoch, period.version, period.levels)).collect()
}
