//! Column groups: sets of columns that a seal commits to separately (spec/groups.md).
//!
//! Every field of a schema is in a group, 0 to 7. A holder of a part can drop the cells of a group
//! other than 0, and the rest still verifies. The records in such a part are *projections*: records
//! of the schema that has only the columns of the shown groups ([`Schema::project`]). A column of a
//! hidden group is a [`HiddenColumn`], which has no values.

use core::fmt;

use super::check::split_text;
use super::encoding::Shape;
use super::{Field, FieldType, MAX_FIELDS, Schema, SchemaError};
use crate::cbor::Writer;
use crate::record::Framing;

/// The number of groups that a schema can have.
pub const MAX_GROUPS: usize = 8;

/// A set of column groups: bit `g` is group `g`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Groups(u8);

impl Groups {
    /// The empty set. It means that the schema has no groups: a schema with groups has group 0,
    /// and group 0 is always shown.
    pub const NONE: Self = Self(0);
    /// Only group 0.
    pub const FIRST: Self = Self(1);

    /// Creates a set from its bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns the bits of the set.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of groups in the set.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether the set has this group.
    #[must_use]
    pub const fn contains(self, group: u8) -> bool {
        group < 8 && self.0 >> group & 1 == 1
    }

    /// Returns whether all groups of this set are in `other`.
    #[must_use]
    pub const fn is_subset(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Returns the set with one more group. A group above 7 is ignored.
    #[must_use]
    pub const fn with(self, group: u8) -> Self {
        if group < 8 { Self(self.0 | 1 << group) } else { self }
    }

    /// Returns the groups of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the groups of this set that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the groups, ascending.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u8> + Clone {
        (0..8).filter(move |&group| self.contains(group))
    }
}

impl fmt::Display for Groups {
    /// Writes the numbers of the groups, such as `0, 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, group) in self.iter().enumerate() {
            if place > 0 {
                f.write_str(", ")?;
            }
            group.fmt(f)?;
        }
        Ok(())
    }
}

named_errors! {
    /// Why the values of a column cannot be read.
    ColumnError {
        /// The schema has no column of this name.
        UnknownColumn => "the schema has no column of this name",
        /// The column's group is hidden.
        ColumnHidden => "the cells of this column are not in the data; get a proof that shows them",
    }
}

/// A column whose group is hidden. It has a name and a type, but no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiddenColumn<'a> {
    /// The name.
    pub name: &'a str,
    /// The SenML unit, or empty.
    pub unit: &'a str,
    /// The type.
    pub kind: FieldType,
    /// The id of the column.
    pub id: u16,
    /// The group.
    pub group: u8,
}

/// A column of a stream of which some groups are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column<'a> {
    /// The column is shown. The field reads the records of the projection.
    Shown(Field<'a>),
    /// The column is hidden.
    Hidden(HiddenColumn<'a>),
}

impl<'a> Column<'a> {
    /// Returns the name of the column.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        match self {
            Self::Shown(field) => field.name,
            Self::Hidden(hidden) => hidden.name,
        }
    }

    /// Returns the field.
    ///
    /// # Errors
    /// `ColumnHidden`.
    pub const fn shown(&self) -> Result<Field<'a>, ColumnError> {
        match self {
            Self::Shown(field) => Ok(*field),
            Self::Hidden(_) => Err(ColumnError::ColumnHidden),
        }
    }
}

impl<'a> Schema<'a> {
    /// Returns the groups of the schema's columns, or the empty set if all columns are in group 0.
    #[must_use]
    pub const fn groups(&self) -> Groups {
        self.groups
    }

    /// Returns the columns in the order of the schema. The fields of the columns in `shown` read
    /// the records of the projection to these groups ([`project`](Self::project)).
    pub fn columns(&self, shown: Groups) -> impl Iterator<Item = Column<'a>> + use<'a> {
        let is_shown = move |field: &Field<'_>| shown.is_empty() || shown.contains(field.group);
        let mut placed = Self { texts: 0, fixed: 0, ..*self };
        let mut position = 0;
        let fixed = self
            .fields()
            .filter(|field| is_shown(field) && field.kind != FieldType::Text)
            .map(|field| field.kind.size())
            .sum::<usize>();
        // A schema has at most 64 cells of at most 8 bytes.
        let fixed = u16::try_from(fixed).unwrap_or(u16::MAX);
        self.fields().map(move |field| {
            if !is_shown(&field) {
                let Field { name, unit, kind, id, group, .. } = field;
                return Column::Hidden(HiddenColumn { name, unit, kind, id, group });
            }
            position += 1;
            let field = placed.place(&field);
            let start = if field.kind == FieldType::Text { fixed } else { field.start };
            Column::Shown(Field { start, position, ..field })
        })
    }

    /// Returns the column with this name; see [`columns`](Self::columns).
    ///
    /// # Errors
    /// `UnknownColumn`.
    pub fn column(&self, name: &str, shown: Groups) -> Result<Column<'a>, ColumnError> {
        self.columns(shown).find(|column| column.name() == name).ok_or(ColumnError::UnknownColumn)
    }

    /// Writes the projection of the schema to the groups in `shown` to `out` ([`MAX_SCHEMA`](super::MAX_SCHEMA) bytes
    /// suffice): the schema that has only the columns of these groups, with unchanged encodings and
    /// therefore with the same column ids. The records of a part that shows these groups are
    /// records of the projection.
    ///
    /// # Errors
    /// `NoFirstGroup` if no column is left in group 0; `BufferTooSmall`.
    pub fn project<'o>(&self, shown: Groups, out: &'o mut [u8]) -> Result<Schema<'o>, SchemaError> {
        let is_shown = |field: &Field<'_>| shown.contains(field.group);
        if !self.fields().any(|field| is_shown(&field) && field.group == 0) {
            return Err(SchemaError::NoFirstGroup);
        }
        let count = self.fields().filter(is_shown).count() as u64;
        let mut out = Writer::new(out);
        out.array(2)?.uint(self.version.number())?.array(count)?;
        let mut reader = self.reader();
        for field in self.fields() {
            let before = reader.rest();
            // The bytes have been read successfully before, so nothing here fails.
            Shape::read(&mut reader, self.version, field.position.into())?;
            if is_shown(&field) {
                out.raw(&before[..before.len() - reader.rest().len()])?;
            }
        }
        Schema::decode(out.finish())
    }

    /// Checks the groups of a schema whose fields have been checked. `plain` are the groups with
    /// columns that are not encrypted.
    pub(super) const fn check_groups(groups: Groups, plain: Groups) -> Result<Groups, SchemaError> {
        if groups.is_subset(Groups::FIRST) {
            return Ok(Groups::NONE);
        }
        if !groups.contains(0) {
            return Err(SchemaError::NoFirstGroup);
        }
        if !plain.is_subset(Groups::FIRST) {
            return Err(SchemaError::PlainGroup);
        }
        Ok(groups)
    }
}

/// Consecutive bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellRange {
    start: u16,
    length: u16,
}

const NO_CELLS: CellRange = CellRange { start: 0, length: 0 };

/// Some of the cells of a record: those of a group, or those of several groups. Their bytes are the
/// record of the schema that has only these columns.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'l> {
    /// The cells that are not texts, in the order of the record.
    ranges: &'l [CellRange],
    /// Bit `i` is the text cell `i`.
    texts: u64,
    /// The offset of the first text cell in the record.
    fixed: u16,
    /// The number of text cells in the record.
    text_cells: u8,
}

impl Cells<'_> {
    /// Returns how the records with only these cells are delimited.
    #[must_use]
    pub fn framing(&self) -> Framing {
        let size = self.ranges.iter().map(|range| usize::from(range.length)).sum();
        if self.texts == 0 {
            Framing::fixed(size).unwrap_or(Framing::Prefixed)
        } else {
            Framing::Prefixed
        }
    }

    /// Returns the offset in a record and the length of each run of consecutive cells, in the order of the
    /// record, if they are at the same places in every record.
    #[must_use]
    pub fn runs(&self) -> Option<impl ExactSizeIterator<Item = (usize, usize)>> {
        let run = |range: &CellRange| (range.start.into(), range.length.into());
        (self.texts == 0).then(|| self.ranges.iter().map(run))
    }

    /// Returns the offset in a record and the length of the cells, if they are consecutive bytes at
    /// the same place in every record.
    #[must_use]
    pub fn stride(&self) -> Option<(usize, usize)> {
        match self.ranges {
            [range] if self.texts == 0 => Some((range.start.into(), range.length.into())),
            _ => None,
        }
    }

    /// Passes the cells of a record to `take`, in their order. `record` must be a record of the
    /// layout; bytes that it lacks are left out.
    #[inline]
    pub fn for_each(&self, record: &[u8], mut take: impl FnMut(&[u8])) {
        for range in self.ranges {
            let start = usize::from(range.start);
            take(record.get(start..start + usize::from(range.length)).unwrap_or(&[]));
        }
        if self.texts == 0 {
            return;
        }
        let mut rest = record.get(self.fixed.into()..).unwrap_or(&[]);
        for cell in 0..self.text_cells {
            let Some((_, after)) = split_text(rest) else { return };
            if self.texts >> cell & 1 == 1 {
                take(&rest[..rest.len() - after.len()]);
            }
            rest = after;
        }
    }

    /// Passes the record with only these cells to `take`, as it is encoded in a block: first the
    /// length prefix, if there are texts, and then the cells.
    #[inline]
    pub fn frame(&self, record: &[u8], mut take: impl FnMut(&[u8])) {
        if self.texts != 0 {
            let mut length = 0;
            self.for_each(record, |cell| length += cell.len());
            // The cells are part of a record, which has at most 65,535 bytes.
            take(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        }
        self.for_each(record, take);
    }

    /// Does the same as [`frame`](Self::frame) for all records in `records`, which are delimited by
    /// `framing`.
    #[inline]
    pub fn frame_all(&self, framing: Framing, records: &[u8], mut take: impl FnMut(&[u8])) {
        let mut rest = records;
        while let Some((record, tail)) = framing.split_first(rest).filter(|_| !rest.is_empty()) {
            self.frame(record, &mut take);
            rest = tail;
        }
    }
}

/// The cells of each shown group in the records of a part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct GroupLayout {
    all: Groups,
    shown: Groups,
    /// The ranges of group 0, then those of group 1, and so on.
    ranges: [CellRange; MAX_FIELDS],
    /// The end of each group's ranges.
    ends: [u8; MAX_GROUPS],
    texts: [u64; MAX_GROUPS],
    fixed: u16,
    text_cells: u8,
}

impl fmt::Debug for GroupLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupLayout")
            .field("all", &self.all)
            .field("shown", &self.shown)
            .finish_non_exhaustive()
    }
}

impl GroupLayout {
    /// Returns the layout of the records of a part that shows the groups `shown`. Returns `None` if
    /// the schema has no groups, `shown` has a group that the schema does not have, or group 0 is
    /// not in `shown`.
    #[must_use]
    pub fn new(schema: &Schema<'_>, shown: Groups) -> Option<Self> {
        let all = schema.groups();
        if !shown.is_subset(all) || !shown.contains(0) {
            return None;
        }
        let mut out = Self {
            all,
            shown,
            ranges: [NO_CELLS; MAX_FIELDS],
            ends: [0; MAX_GROUPS],
            texts: [0; MAX_GROUPS],
            fixed: 0,
            text_cells: 0,
        };
        let fields = || schema.columns(shown).filter_map(|column| column.shown().ok());
        let mut count = 0;
        for group in 0..MAX_GROUPS {
            let first = count;
            for field in fields().filter(|field| usize::from(field.group) == group) {
                count = out.add(&field, first, count);
            }
            out.ends[group] = u8::try_from(count).unwrap_or(u8::MAX);
        }
        for field in fields() {
            if field.kind == FieldType::Text {
                out.texts[usize::from(field.group) % MAX_GROUPS] |= 1 << out.text_cells;
                out.text_cells += 1;
            } else {
                let length = u16::try_from(field.kind.size()).unwrap_or(u16::MAX);
                out.fixed = out.fixed.saturating_add(length);
            }
        }
        Some(out)
    }

    /// Adds the cell of a field to the ranges of its group, which begin at `first`. Returns the
    /// number of all ranges.
    fn add(&mut self, field: &Field<'_>, first: usize, count: usize) -> usize {
        if field.kind == FieldType::Text {
            return count;
        }
        let length = u16::try_from(field.kind.size()).unwrap_or(0);
        if let Some(last) = self.ranges[first..count].last_mut()
            && last.start + last.length == field.start
        {
            last.length += length;
            return count;
        }
        self.ranges[count] = CellRange { start: field.start, length };
        count + 1
    }

    /// Returns the groups of the schema.
    #[must_use]
    pub const fn all(&self) -> Groups {
        self.all
    }

    /// Returns the groups whose cells are in the records.
    #[must_use]
    pub const fn shown(&self) -> Groups {
        self.shown
    }

    /// Returns the groups whose cells are not in the records.
    #[must_use]
    pub const fn hidden(&self) -> Groups {
        self.all.without(self.shown)
    }

    /// Returns the cells of a shown group.
    #[must_use]
    pub fn cells(&self, group: u8) -> Cells<'_> {
        let group = usize::from(group) % MAX_GROUPS;
        let start = if group == 0 { 0 } else { self.ends[group - 1] };
        Cells {
            ranges: &self.ranges[start.into()..self.ends[group].into()],
            texts: self.texts[group],
            fixed: self.fixed,
            text_cells: self.text_cells,
        }
    }
}

/// The cells of several groups in the records of a part.
#[derive(Clone, Copy, Debug)]
pub struct Projection {
    ranges: [CellRange; MAX_FIELDS],
    count: u8,
    texts: u64,
    fixed: u16,
    text_cells: u8,
}

impl Projection {
    /// Returns the cells of the groups `kept` in the records of a layout. Groups that the layout
    /// does not show are left out.
    #[must_use]
    pub fn new(layout: &GroupLayout, kept: Groups) -> Self {
        let mut ranges = [NO_CELLS; MAX_FIELDS];
        let (mut count, mut texts) = (0, 0);
        for group in kept.iter() {
            let cells = layout.cells(group);
            for range in cells.ranges {
                ranges[count] = *range;
                count += 1;
            }
            texts |= cells.texts;
        }
        ranges[..count].sort_unstable_by_key(|range| range.start);
        let mut merged = 0;
        for at in 0..count {
            let range = ranges[at];
            match ranges[..merged].last_mut() {
                Some(last) if last.start + last.length == range.start => {
                    last.length += range.length;
                }
                _ => {
                    ranges[merged] = range;
                    merged += 1;
                }
            }
        }
        Self {
            ranges,
            count: u8::try_from(merged).unwrap_or(u8::MAX),
            texts,
            fixed: layout.fixed,
            text_cells: layout.text_cells,
        }
    }

    /// Returns the cells.
    #[must_use]
    pub fn cells(&self) -> Cells<'_> {
        Cells {
            ranges: &self.ranges[..self.count.into()],
            texts: self.texts,
            fixed: self.fixed,
            text_cells: self.text_cells,
        }
    }
}
