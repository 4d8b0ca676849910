//! The mote's part of a query. A mote binds a plan to the schema of its records, and computes the
//! contribution of a reading to each slot.

use core::fmt;

use moteseal_core::error::Named;

use crate::query::predicate::holds;
use crate::query::{MAX_COLUMNS, Name, Plan, SlotKind};
use moteseal_core::schema::{Field, FieldType, Schema};

/// Why a plan cannot be bound to a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError<'a> {
    /// The schema has no column with this name.
    UnknownColumn(&'a str),
    /// The column holds floats or times.
    NotExact(&'a str),
    /// The column's divisor differs from the divisor in the plan.
    DivisorMismatch(&'a str),
}

impl BindError<'_> {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::UnknownColumn(_) => "UnknownColumn",
            Self::NotExact(_) => "NotExact",
            Self::DivisorMismatch(_) => "DivisorMismatch",
        }
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

impl fmt::Display for BindError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownColumn(name) => {
                write!(f, "the query asks for {}, which these records do not have", Name(name))
            }
            Self::NotExact(name) => {
                write!(f, "{} is not a scaled integer in these records", Name(name))
            }
            Self::DivisorMismatch(name) => {
                write!(
                    f,
                    "{} has a different divisor in these records than in the query",
                    Name(name)
                )
            }
        }
    }
}

impl core::error::Error for BindError<'_> {}

/// Why a reading has no contribution. The mote then does not answer the query in this epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContributionError {
    /// The record ends before a column of the query.
    RecordTooShort,
    /// The buffer is too small for all slots.
    BufferTooSmall,
}

impl ContributionError {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RecordTooShort => "RecordTooShort",
            Self::BufferTooSmall => "BufferTooSmall",
        }
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

impl fmt::Display for ContributionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordTooShort => f.write_str("the record ends before a column of the query"),
            Self::BufferTooSmall => {
                f.write_str("the buffer is too small for all slots of the query")
            }
        }
    }
}

impl core::error::Error for ContributionError {}

/// A plan that is bound to a mote's schema: it has the positions of the plan's columns in the
/// mote's records.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'p, 'a> {
    plan: &'p Plan<'a>,
    fields: [Field<'p>; MAX_COLUMNS],
}

impl<'a> Plan<'a> {
    /// Finds the plan's columns in a mote's schema.
    ///
    /// # Errors
    /// [`BindError`] for the first column that does not match the plan.
    pub fn bind<'p>(&'p self, schema: &Schema<'p>) -> Result<Bound<'p, 'a>, BindError<'a>> {
        let mut fields = [Field::new("", "", FieldType::U8); MAX_COLUMNS];
        for (place, column) in fields.iter_mut().zip(self.columns.iter()) {
            let field = schema.field(column.name).ok_or(BindError::UnknownColumn(column.name))?;
            if !field.kind.is_integer() {
                return Err(BindError::NotExact(column.name));
            }
            if field.divisor != column.divisor {
                return Err(BindError::DivisorMismatch(column.name));
            }
            *place = field;
        }
        Ok(Bound { plan: self, fields })
    }
}

impl Bound<'_, '_> {
    /// Writes a source's contribution to each slot and returns the number of slots. If the query
    /// does not select the reading, or there is no reading, the contributions leave the results
    /// unchanged. A selected reading with a value outside the range that the query declares for its
    /// column changes only the count of these readings.
    ///
    /// # Errors
    /// [`ContributionError`]. The caller must then not send the contents of the buffer.
    pub fn contribution(
        &self,
        record: Option<&[u8]>,
        slots: &mut [u128],
    ) -> Result<usize, ContributionError> {
        let selected = match record {
            Some(record)
                if holds(&self.plan.predicate, |column| self.numerator(column, record))? =>
            {
                Some(record)
            }
            _ => None,
        };
        let counted = match selected {
            Some(record) if self.is_inside(record)? => Some(record),
            _ => None,
        };
        let is_outside = selected.is_some() && counted.is_none();
        let mut count = 0;
        for slot in self.plan.slots() {
            let place = slots.get_mut(count).ok_or(ContributionError::BufferTooSmall)?;
            let numerator = match counted {
                Some(record) if slot.column.is_some() => self.numerator(slot.at, record)?,
                _ => 0,
            };
            // The numerator is within the plan's range, which has 64 bits.
            let numerator = i64::try_from(numerator).unwrap_or_default();
            let value = match slot.kind {
                SlotKind::Counts => 0,
                // The shift is the lowest value of the range, or 0 if that is lower, so the
                // difference is not negative.
                SlotKind::Sum => numerator.abs_diff(slot.shift).into(),
                SlotKind::SumOfSquares => u128::from(numerator.unsigned_abs()).pow(2),
            };
            *place = slot.joined(value, counted.is_some(), is_outside);
            count += 1;
        }
        Ok(count)
    }

    /// Returns whether the values of all summed columns are within the plan's ranges.
    fn is_inside(&self, record: &[u8]) -> Result<bool, ContributionError> {
        for (at, column) in (0..).zip(self.plan.columns.iter()) {
            let Some((low, high)) = column.range else { continue };
            if !(i128::from(low)..=i128::from(high)).contains(&self.numerator(at, record)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn numerator(&self, at: u8, record: &[u8]) -> Result<i128, ContributionError> {
        let field = self.fields.get(usize::from(at)).ok_or(ContributionError::RecordTooShort)?;
        let raw = field.raw(record).map_err(|_| ContributionError::RecordTooShort)?;
        Ok(raw + i128::from(field.offset))
    }
}
