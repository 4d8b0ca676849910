//! The results of a [`StreamReader`](crate::StreamReader): verified parts, manifests and the ends
//! of responses.

use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::record::{Framing, MAX_LEVELS, Round};
use moteseal_core::schema::{
    Column, ColumnError, Field, GroupLayout, Groups, RecordCheck, Schema, SchemaError,
};
use moteseal_seal::follow::{PartError, Shape};
use moteseal_seal::sample::{Manifest, Sample};
use moteseal_seal::stream::{Part, Select};
use moteseal_seal::{Authentic, Seal, Statement, Unverified};

/// A schema of a stream. It applies to the parts that follow it.
///
/// If a part hides column groups, the entry of the part is a *projection*: the schema that has only
/// the shown columns ([`projection`](Self::projection)). The part's records are records of the
/// projection, and the hidden columns have no fields in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEntry {
    /// The encoded schema.
    pub bytes: Vec<u8>,
    /// The digest of the encoded schema.
    pub digest: Digest,
    /// How the schema's records are delimited.
    pub framing: Framing,
    /// The check of the schema's records; `None` if every record of the right length is valid.
    pub check: Option<Box<RecordCheck>>,
    /// The number of encrypted columns.
    pub encrypted: usize,
    /// The places of the column groups in the records; `None` if the stream's schema has no groups.
    pub groups: Option<Box<GroupLayout>>,
    /// The stream's schema; `None` if this entry is not a projection.
    whole: Option<Arc<SchemaEntry>>,
}

impl SchemaEntry {
    /// Decodes a schema.
    ///
    /// # Errors
    /// The errors of [`Schema::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SchemaError> {
        let schema = Schema::decode(bytes)?;
        let framing = schema.record_size().and_then(Framing::fixed).unwrap_or(Framing::Prefixed);
        let check = RecordCheck::of(&schema).map(Box::new);
        let encrypted = schema.encrypted_count();
        let groups = GroupLayout::new(&schema, schema.groups()).map(Box::new);
        let (digest, bytes) = (schema.digest(), bytes.to_vec());
        Ok(Self { digest, framing, check, encrypted, groups, whole: None, bytes })
    }

    /// Returns the entry of the schema without fields.
    #[must_use]
    pub fn opaque() -> Self {
        let schema = Schema::OPAQUE;
        Self {
            bytes: schema.as_bytes().to_vec(),
            digest: schema.digest(),
            framing: Framing::Prefixed,
            check: None,
            encrypted: 0,
            groups: None,
            whole: None,
        }
    }

    /// Returns the entry of the parts that show only the groups `shown`. Returns the same entry if
    /// these are all groups of the schema.
    ///
    /// # Errors
    /// `GroupsOutOfRange` if the schema does not have these groups, or group 0 is not shown.
    pub fn projection(self: &Arc<Self>, shown: Groups) -> Result<Arc<Self>, PartError> {
        let whole = self.whole.as_ref().unwrap_or(self);
        let all = whole.groups();
        if shown == all {
            return Ok(Arc::clone(whole));
        }
        let project = || {
            let schema = Schema::decode(&whole.bytes).ok()?;
            let layout = GroupLayout::new(&schema, shown)?;
            let mut buffer = vec![0; whole.bytes.len()];
            let projected = schema.project(shown, &mut buffer).ok()?;
            let entry = Self::decode(projected.as_bytes()).ok()?;
            let (groups, whole) = (Some(Box::new(layout)), Some(Arc::clone(whole)));
            Some(Arc::new(Self { groups, whole, ..entry }))
        };
        project().ok_or(PartError::GroupsOutOfRange)
    }

    /// Returns the schema that the device stated: this schema, or the one of which it is a
    /// projection.
    #[must_use]
    pub fn whole(&self) -> &Self {
        self.whole.as_deref().unwrap_or(self)
    }

    /// Returns the groups of the stream's schema; empty if it has no groups.
    #[must_use]
    pub fn groups(&self) -> Groups {
        self.groups.as_ref().map_or(Groups::NONE, |layout| layout.all())
    }

    /// Returns the groups that are shown; empty if the schema has no groups.
    #[must_use]
    pub fn shown(&self) -> Groups {
        self.groups.as_ref().map_or(Groups::NONE, |layout| layout.shown())
    }

    /// Returns the groups that are hidden.
    #[must_use]
    pub fn hidden(&self) -> Groups {
        self.groups().without(self.shown())
    }

    /// Returns the columns of the stream's schema. A column of a hidden group has no values, and a
    /// shown column has the field that reads the part's records.
    #[must_use]
    pub fn columns(&self) -> Vec<Column<'_>> {
        // The bytes have been decoded before.
        let schema = Schema::decode(&self.whole().bytes).unwrap_or(Schema::OPAQUE);
        schema.columns(self.shown()).collect()
    }

    /// Returns the field of a column.
    ///
    /// # Errors
    /// `UnknownColumn`, or `ColumnHidden` if the column's group is hidden.
    pub fn column(&self, name: &str) -> Result<Field<'_>, ColumnError> {
        let schema = Schema::decode(&self.whole().bytes).unwrap_or(Schema::OPAQUE);
        schema.column(name, self.shown())?.shown()
    }

    pub(crate) fn shape(&self) -> Shape<'_> {
        let whole = self.whole();
        Shape {
            digest: whole.digest,
            framing: self.framing,
            check: self.check.as_deref(),
            encrypted: whole.encrypted,
            groups: self.groups.as_deref(),
        }
    }
}

/// One part of a verified run.
#[derive(Debug)]
pub struct Proven<'a> {
    /// The seal.
    pub seal: &'a Seal<Authentic>,
    /// The selected events.
    pub sample: Sample<'a, Authentic>,
    /// The decoded part item.
    pub part: &'a Part<'a>,
    /// The encoded part item.
    pub bytes: &'a [u8],
    /// The digest `D_i` of each level that the part contains, for a star. Null for the other
    /// levels, and for a tree.
    pub blocks: &'a [Digest; MAX_LEVELS],
    /// The digests of the column groups that the part shows
    /// ([`Prepared::groups`](moteseal_seal::follow::Prepared::groups)).
    pub groups: &'a [Digest],
    /// The schema of the records: the stream's schema, or its projection to the shown column groups.
    pub schema: &'a Arc<SchemaEntry>,
}

impl Proven<'_> {
    /// Returns whether the part selects all levels that the seal still has, and shows all column
    /// groups. A bundle's part that lacks one of them is rejected as `NotWhole`, even if its
    /// signature is valid.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        if !self.schema.hidden().is_empty() {
            return false;
        }
        let surviving = self.seal.statement().surviving();
        matches!(self.part.select, Select::Levels(mask) if mask == surviving)
    }

    /// Returns the round `j` for which the part contains all of the seal's levels from `j` on and
    /// no lower level. Returns 0 if the part contains all levels, and `None` for every other
    /// selection and if a column group is hidden.
    #[must_use]
    pub fn whole_from(&self) -> Option<Round> {
        if !self.schema.hidden().is_empty() {
            return None;
        }
        match self.part.select {
            Select::Levels(mask) => kept_from(self.seal.statement(), mask),
            Select::Events(_) => None,
        }
    }
}

/// Returns the lowest round `j` for which `mask` contains all levels of the seal from `j` on and no
/// lower level; `None` for every other mask.
#[must_use]
pub fn kept_from(statement: &Statement, mask: u32) -> Option<Round> {
    let lacking = statement.surviving() & !mask;
    #[allow(clippy::cast_possible_truncation)]
    let round = Round((u32::BITS - lacking.leading_zeros()) as u8);
    let holes = mask & 1u32.checked_shl(round.0.into()).map_or(u32::MAX, |next| next - 1);
    (holes == 0 && mask & !statement.surviving() == 0).then_some(round)
}

/// An event of a stream.
// The size is acceptable: an event is passed to the callback at once and never stored.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Event<'a> {
    /// One part of a verified run.
    Proven(Proven<'a>),
    /// The query that a proof answers.
    Proof(&'a str),
    /// A seal's explaining form, not verified: the seal's `COSE_Sign1`, and the concatenated
    /// digests.
    Explain(&'a [u8], &'a [u8]),
    /// A verified manifest of the coordinator, and its tagged `COSE_Sign1`.
    Manifest(Manifest<'a>, &'a [u8]),
    /// What a sanitiser states of the next part, not verified: its statement, and the new cells. The
    /// part is the next one that is proven after it, or a later one of its run
    /// ([`Sanitisation`](crate::sanitised::Sanitisation)).
    Sanitised(&'a [u8], &'a [u8]),
    /// The end item: the response is complete.
    End,
    /// The server could not complete the response: the name of the error, and a description.
    Problem(&'a str, &'a str),
}

/// One part of a run that failed verification. None of its content is verified. The client compares
/// it with the explaining form, which the store returns on request, to find the fault.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The seal, rebuilt from the received part.
    pub seal: Seal<Unverified>,
    /// The digest `D_i` of each received level, for a star. Null for the other levels, and for a
    /// tree.
    pub blocks: [Digest; MAX_LEVELS],
    /// The part item's bytes.
    pub item: Vec<u8>,
    /// The schema of the part.
    pub schema: Arc<SchemaEntry>,
}
