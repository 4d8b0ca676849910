//! Sanitised column groups: a named party, the sanitiser, replaces the cells of a hidden column group
//! by coarser ones, and signs a statement about them (spec/sanitised.md).
//!
//! Trust is a type. A [`Statement`] is only decoded. A [`Sanitisation`] has been signed by a sanitiser
//! of the roster. [`Sanitised`] cells fit the part that they belong to, and the roster gives the
//! sanitiser the right to replace them. None of them is a value of the device.

use std::collections::VecDeque;
use std::sync::Arc;

use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::digest::{self, Digest};
use moteseal_core::identity::{IssueError, protected};
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, GroupId, MAX_LEVELS, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, RecordError, Schema, SchemaError};
use moteseal_core::signature::{SignatureError, Signer};
use moteseal_lanes::Host;
use moteseal_seal::stream::{MAX_RUN_PARTS, Select};

use crate::event::{Proven, SchemaEntry};
use crate::roster::Roster;

/// The longest text of a policy, in bytes.
pub const MAX_POLICY: usize = 256;
/// The maximum number of statements that wait for their parts: one for each group of each part of a
/// run.
const MAX_WAITING: usize = 7 * MAX_RUN_PARTS;
/// An upper bound on the length of a signed statement without its signature, in bytes.
const MAX_STATEMENT: usize = 512 + MAX_SCHEMA + MAX_POLICY + 34 * MAX_LEVELS;

named_errors! {
    /// Why sanitised cells are refused.
    SanitisedError {
        /// The bytes are not a sanitiser's statement.
        Decode(error: DecodeError) => from,
        /// The new fields are not a schema.
        Schema(error: SchemaError) => from,
        /// The policy is not 1 to [`MAX_POLICY`] bytes without control characters.
        InvalidPolicy => "the policy of a sanitiser must be 1 to 256 bytes without control characters",
        /// The statement is of another group.
        WrongGroup => "the sanitiser's statement is of another group",
        /// The statement names a roster that is neither this one nor an earlier version.
        UnknownRoster =>
            "the sanitiser's statement names a roster that is neither this one nor an earlier version",
        /// The roster lists no such sanitiser.
        UnknownSanitiser => "the roster does not list this sanitiser, or no longer does",
        /// The statement is not signed with the signature suite of the sanitiser's key.
        AlgorithmMismatch =>
            "the statement is not signed with the signature suite of the sanitiser's key",
        /// The sanitiser did not sign the statement.
        Signature(error: SignatureError) => from,
        /// The statement is of another seal than the part that follows it.
        SealMismatch => "the sanitiser's statement is of another seal than the part after it",
        /// The statement names another schema than the seal.
        SchemaMismatch => "the sanitiser's statement names another schema than the seal",
        /// The seal's schema does not have the column group, or it is group 0.
        GroupsOutOfRange => "the sanitiser's statement names a column group that the seal does not have",
        /// The part shows the cells of the column group.
        GroupShown => "the part shows the device's own cells of the sanitised column group",
        /// The part selects other levels than the statement.
        MaskMismatch => "the sanitiser's statement is of other levels than the part shows",
        /// The roster does not give the sanitiser the right to replace this group of this device in this
        /// epoch.
        SanitiserNotPermitted =>
            "the roster does not permit this sanitiser to replace this column group of this device in \
             this epoch",
        /// The new fields are not the columns of the group: the same ids, names and units, in the same
        /// order, and not encrypted.
        FieldMismatch => "the sanitised columns are not those of the column group",
        /// The statement does not have one digest for each level of the mask.
        DigestCount => "the sanitiser's statement does not have one digest for each of its levels",
        /// The cells are not one record for each event of the part.
        EventsLength => "the sanitised cells are not one record for each event of the part",
        /// A record of the cells is not one of the new fields.
        Record(error: RecordError) => from,
        /// The cells are not those that the sanitiser signed.
        CellsMismatch => "the sanitised cells are not those that the sanitiser signed",
        /// Two statements of one sanitiser about one group of one seal contradict each other.
        SanitiserEquivocation =>
            "a sanitiser signed two different statements about one column group of one seal",
        /// Two sanitisers replaced one group of one seal, or a statement is repeated.
        DuplicateSanitised => "a column group of a seal is replaced twice",
        /// The part of the statement does not follow it in the same run.
        SanitisedWithoutPart => "the part that a sanitiser's statement belongs to does not follow it",
    }
}

impl From<BufferTooSmall> for SanitisedError {
    fn from(_: BufferTooSmall) -> Self {
        Self::Decode(DecodeError::Truncated)
    }
}

/// What a sanitiser states: which cells it replaced, by what, and why. Nothing is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The group of devices.
    pub group: GroupId,
    /// The digest of the roster under which the sanitiser worked.
    pub roster: Digest,
    /// The id of the sanitiser ([`sanitiser_id`](moteseal_core::roster::sanitiser_id)).
    pub sanitiser: DeviceId,
    /// The device.
    pub device: DeviceId,
    /// The index of the seal.
    pub index: SealIndex,
    /// The digest of the seal.
    pub seal: Digest,
    /// The digest of the seal's schema.
    pub schema: Digest,
    /// The column group.
    pub column_group: u8,
    /// The levels of which the cells were replaced: bit `i` is level `i`.
    pub mask: u32,
    /// The encoded schema of the new cells.
    pub fields: Vec<u8>,
    /// What the sanitiser did, as a text for people.
    pub policy: String,
    /// `D'_ig` of each level of the mask, ascending.
    pub blocks: Vec<Digest>,
}

impl Statement {
    /// Decodes a payload.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload)?;
        reader.array(15)?;
        reader.version()?;
        let group = GroupId(reader.fixed()?);
        let (roster, sanitiser) = (Digest(reader.fixed()?), DeviceId(reader.fixed()?));
        let (device, index) = (DeviceId(reader.fixed()?), SealIndex(reader.uint()?));
        let (seal, schema) = (Digest(reader.fixed()?), Digest(reader.fixed()?));
        let (column_group, mask) = (reader.uint()?, reader.uint()?);
        // An encrypted output has a nonce and a commitment. In this version every output is plain.
        let nonce = reader.optional(|reader| reader.fixed::<12>())?;
        let commitment = reader.optional(|reader| reader.fixed::<16>())?;
        let (fields, policy) = (reader.bytes()?.to_vec(), reader.text()?.to_owned());
        let count = reader.array_any()?;
        let mut blocks = Vec::new();
        for _ in 0..count {
            blocks.push(Digest(reader.fixed()?));
        }
        if nonce.is_some() || commitment.is_some() || column_group > 7 || mask == 0 {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok(Self {
            group,
            roster,
            sanitiser,
            device,
            index,
            seal,
            schema,
            column_group,
            mask,
            fields,
            policy,
            blocks,
        })
    }

    /// Encodes the payload.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if the fields or the policy are too long.
    pub fn encode(&self) -> Result<Vec<u8>, BufferTooSmall> {
        let mut buffer = vec![0; MAX_STATEMENT];
        let mut out = Writer::new(&mut buffer);
        out.array(15)?.uint(1u8)?.bytes(&self.group.0)?.bytes(&self.roster.0)?;
        out.bytes(&self.sanitiser.0)?.bytes(&self.device.0)?.uint(self.index.0)?;
        out.bytes(&self.seal.0)?.bytes(&self.schema.0)?.uint(self.column_group)?;
        out.uint(self.mask)?.null()?.null()?.bytes(&self.fields)?.text(&self.policy)?;
        out.array(self.blocks.len() as u64)?;
        for block in &self.blocks {
            out.bytes(&block.0)?;
        }
        let length = out.position();
        buffer.truncate(length);
        Ok(buffer)
    }

    /// Signs the statement: a tagged `COSE_Sign1`.
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn sign(&self, key: &dyn Signer) -> Result<Vec<u8>, IssueError> {
        let payload = self.encode()?;
        let mut header = [0; _];
        let header = protected(key.algorithm(), Typ::Sanitised, &mut header)?;
        let mut scratch = vec![0; payload.len() + header.len() + 64];
        let signature = key.signature(sig_structure(&mut scratch, header, &payload)?)?;
        let mut out = vec![0; payload.len() + header.len() + signature.len() + 64];
        let mut writer = Writer::new(&mut out);
        Sign1::encode(&mut writer, header, &payload, &signature)?;
        let length = writer.position();
        out.truncate(length);
        Ok(out)
    }

    /// Returns whether another statement contradicts this one: it has the same scope (sanitiser, seal, group
    /// and levels), and other fields, another policy or other digests. The version of the roster does not
    /// matter, because it changes without the sanitiser.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        let scope = |of: &Self| (of.sanitiser, of.seal, of.column_group, of.mask);
        scope(self) == scope(other) && !self.says_as(other)
    }

    /// Returns whether another statement replaces the same cells by the same ones, with the same policy.
    #[must_use]
    pub fn says_as(&self, other: &Self) -> bool {
        let content = |of: &Self| Self { roster: Digest::NULL, ..of.clone() };
        content(self) == content(other)
    }
}

/// Returns whether a text is a valid policy.
#[must_use]
pub fn is_policy(text: &str) -> bool {
    (1..=MAX_POLICY).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// A statement that a sanitiser of the roster signed. Whether it fits the part, and whether the
/// sanitiser had the right to replace the cells, is not checked yet.
#[derive(Clone, Debug)]
pub struct Sanitisation {
    statement: Statement,
    signed: Vec<u8>,
    by: String,
}

impl Sanitisation {
    /// Decodes a statement, and verifies the sanitiser's signature.
    ///
    /// # Errors
    /// [`SanitisedError`]: the first check of spec/sanitised.md, section 4, steps 1 to 6, that fails.
    pub fn open(signed: &[u8], roster: &Roster) -> Result<Self, SanitisedError> {
        let sign1 = Sign1::decode(signed, Typ::Sanitised)?;
        let statement = Statement::decode(sign1.payload)?;
        if !is_policy(&statement.policy) {
            return Err(SanitisedError::InvalidPolicy);
        }
        if statement.group != roster.group() {
            return Err(SanitisedError::WrongGroup);
        }
        if roster.version_of(&statement.roster).is_none() {
            return Err(SanitisedError::UnknownRoster);
        }
        let sanitiser =
            roster.sanitiser(statement.sanitiser).ok_or(SanitisedError::UnknownSanitiser)?;
        if sign1.header.algorithm != sanitiser.key.algorithm() {
            return Err(SanitisedError::AlgorithmMismatch);
        }
        let mut scratch = vec![0; signed.len() + 64];
        sanitiser.key.verify(sign1.message(&mut scratch)?, sign1.signature)?;
        let by = sanitiser.name.clone();
        Ok(Self { statement, signed: signed.to_vec(), by })
    }

    /// Returns the statement.
    #[must_use]
    pub const fn statement(&self) -> &Statement {
        &self.statement
    }

    /// Returns whether the statement claims to belong to a part.
    #[must_use]
    pub fn claims(&self, part: &Proven<'_>) -> bool {
        let of = part.seal.statement();
        (self.statement.device, self.statement.index) == (of.device, of.index)
    }

    /// Checks that the statement and its cells belong to a verified part, that the sanitiser signed
    /// these cells, and that the roster gives it the right to replace the group.
    ///
    /// # Errors
    /// [`SanitisedError`]: the first check of spec/sanitised.md, section 4, from step 7 on, that fails.
    pub fn check(
        self,
        part: &Proven<'_>,
        cells: &[u8],
        roster: &Roster,
    ) -> Result<Sanitised, SanitisedError> {
        let (statement, seal) = (&self.statement, part.seal.statement());
        if !self.claims(part) || statement.seal != part.seal.digest() {
            return Err(SanitisedError::SealMismatch);
        }
        if statement.schema != seal.schema {
            return Err(SanitisedError::SchemaMismatch);
        }
        let group = statement.column_group;
        if group == 0 || !part.schema.groups().contains(group) {
            return Err(SanitisedError::GroupsOutOfRange);
        }
        if part.schema.shown().contains(group) {
            return Err(SanitisedError::GroupShown);
        }
        if !matches!(part.part.select, Select::Levels(mask) if mask == statement.mask) {
            return Err(SanitisedError::MaskMismatch);
        }
        let sanitiser =
            roster.sanitiser(statement.sanitiser).ok_or(SanitisedError::UnknownSanitiser)?;
        if !sanitiser.may_replace(seal.device, group, seal.epoch) {
            return Err(SanitisedError::SanitiserNotPermitted);
        }
        let entry = new_fields(part.schema, group, &statement.fields)?;
        if statement.blocks.len() != statement.mask.count_ones() as usize {
            return Err(SanitisedError::DigestCount);
        }
        if block_digests(part, group, &entry, cells)? != statement.blocks {
            return Err(SanitisedError::CellsMismatch);
        }
        let cells = cells.to_vec();
        Ok(Sanitised { of: self, entry: Arc::new(entry), cells })
    }
}

/// Decodes the schema of new cells, and checks that it has the columns of a group.
fn new_fields(
    stream: &SchemaEntry,
    group: u8,
    fields: &[u8],
) -> Result<SchemaEntry, SanitisedError> {
    let new = Schema::decode(fields)?;
    let whole = Schema::decode(&stream.whole().bytes)?;
    let name = |field: Field<'_>| (field.id, field.name.to_owned(), field.unit.to_owned());
    let is_plain = |field: Field<'_>| field.suite.is_none() && field.group == 0;
    let replaced = whole.fields().filter(|field| field.group == group);
    if !new.fields().all(is_plain) || !replaced.map(name).eq(new.fields().map(name)) {
        return Err(SanitisedError::FieldMismatch);
    }
    Ok(SchemaEntry::decode(fields)?)
}

/// Returns `D'_ig` of each level that a part selects, ascending, for new cells of group `group`.
/// `cells` has one record of `entry` for each event of the part, in ascending order of the sequence
/// numbers.
///
/// # Errors
/// `EventsLength` or `RecordValue`.
pub fn block_digests(
    part: &Proven<'_>,
    group: u8,
    entry: &SchemaEntry,
    cells: &[u8],
) -> Result<Vec<Digest>, SanitisedError> {
    let statement = part.seal.statement();
    let headers: Vec<[u8; 64]> = (0..statement.counters.levels())
        .map(|level| header(statement.device, statement.index, level, group))
        .collect();
    let mut levels: Vec<Vec<&[u8]>> = headers.iter().map(|header| vec![&header[..]]).collect();
    if entry.framing.length_of(cells, part.sample.len()) != Some(cells.len()) {
        return Err(SanitisedError::EventsLength);
    }
    let (mut rest, mut result) = (cells, Ok(()));
    part.sample.for_each(&Host::detect(), |_: Sequence, level, _| {
        let Some((record, after)) = entry.framing.split_first(rest) else { return };
        if let Some(check) = &entry.check {
            result = result.and(check.check(record).map_err(SanitisedError::Record));
        }
        levels[usize::from(level.0)].push(&rest[..rest.len() - after.len()]);
        rest = after;
    });
    result?;
    let filled = levels.iter().filter(|level| level.len() > 1);
    Ok(filled.map(|level| Digest::of(level)).collect())
}

/// Returns the header of the cells of a level.
fn header(device: DeviceId, index: SealIndex, level: u8, group: u8) -> [u8; 64] {
    let mut header: [u8; 64] = digest::tag(b"moteseal/1/sanitised");
    header[32..40].copy_from_slice(&device.0);
    header[40..44].copy_from_slice(&index.0.to_be_bytes());
    header[44..48].copy_from_slice(&u32::from(level).to_be_bytes());
    header[48..52].copy_from_slice(&u32::from(group).to_be_bytes());
    header
}

/// The cells by which a sanitiser replaced those of a column group of one part. They are what the
/// sanitiser signed, and the sanitiser was allowed to replace the group. They are not the device's.
#[derive(Clone, Debug)]
pub struct Sanitised {
    of: Sanitisation,
    entry: Arc<SchemaEntry>,
    cells: Vec<u8>,
}

impl Sanitised {
    /// Returns the name of the sanitiser.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.of.by
    }

    /// Returns what the sanitiser states.
    #[must_use]
    pub const fn statement(&self) -> &Statement {
        &self.of.statement
    }

    /// Returns the signed statement, a tagged `COSE_Sign1`.
    #[must_use]
    pub fn signed(&self) -> &[u8] {
        &self.of.signed
    }

    /// Returns the column group.
    #[must_use]
    pub const fn group(&self) -> u8 {
        self.of.statement.column_group
    }

    /// Returns the schema of the cells.
    #[must_use]
    pub const fn schema(&self) -> &Arc<SchemaEntry> {
        &self.entry
    }

    /// Returns the cells: one record of the schema for each event of the part, in ascending order of the
    /// sequence numbers.
    #[must_use]
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// Returns the records of the cells, without their length prefixes.
    pub fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.cells[..];
        std::iter::from_fn(move || {
            let split = self.entry.framing.split_first(rest).filter(|_| !rest.is_empty());
            let (record, after) = split?;
            rest = after;
            Some(record)
        })
    }

    /// Checks that two sanitised groups of one part do not contradict or repeat each other.
    ///
    /// # Errors
    /// `SanitiserEquivocation` or `DuplicateSanitised`.
    pub fn check_next_to(&self, other: &Self) -> Result<(), SanitisedError> {
        if self.group() != other.group() {
            return Ok(());
        }
        if self.statement().contradicts(other.statement()) {
            return Err(SanitisedError::SanitiserEquivocation);
        }
        Err(SanitisedError::DuplicateSanitised)
    }
}

/// The sanitised items of a stream, each of which is before its part. A reader passes it each
/// [`Event::Sanitised`](crate::Event::Sanitised) and each proven part, in their order.
#[derive(Debug, Default)]
pub struct WaitingStatements(VecDeque<(Sanitisation, Vec<u8>)>);

impl WaitingStatements {
    /// Adds a sanitised item.
    ///
    /// # Errors
    /// The errors of [`Sanitisation::open`]; `SanitisedWithoutPart` if more items wait than a run can
    /// have.
    pub fn push(
        &mut self,
        (signed, cells): (&[u8], &[u8]),
        roster: &Roster,
    ) -> Result<(), SanitisedError> {
        if self.0.len() >= MAX_WAITING {
            return Err(SanitisedError::SanitisedWithoutPart);
        }
        self.0.push_back((Sanitisation::open(signed, roster)?, cells.to_vec()));
        Ok(())
    }

    /// Removes and checks the items that belong to a proven part, and returns their cells by ascending
    /// group.
    ///
    /// # Errors
    /// The errors of [`Sanitisation::check`] and [`Sanitised::check_next_to`]; `SealMismatch` if an item
    /// before the end of the part's run belongs to none of its parts.
    pub fn take(
        &mut self,
        part: &Proven<'_>,
        roster: &Roster,
    ) -> Result<Vec<Sanitised>, SanitisedError> {
        let mut taken: Vec<Sanitised> = Vec::new();
        while let Some((waiting, cells)) = self.0.pop_front_if(|(first, _)| first.claims(part)) {
            let sanitised = waiting.check(part, &cells, roster)?;
            taken.iter().try_for_each(|other| sanitised.check_next_to(other))?;
            taken.push(sanitised);
        }
        if part.part.signature.is_some() && !self.0.is_empty() {
            return Err(SanitisedError::SealMismatch);
        }
        taken.sort_by_key(Sanitised::group);
        Ok(taken)
    }

    /// Checks that no item waits, at the end of a stream.
    ///
    /// # Errors
    /// `SanitisedWithoutPart`.
    pub fn finish(&self) -> Result<(), SanitisedError> {
        if self.0.is_empty() { Ok(()) } else { Err(SanitisedError::SanitisedWithoutPart) }
    }
}
