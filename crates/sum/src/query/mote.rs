//! The mote's part of a query. A mote binds a plan to the schema of its records, and computes the
//! contribution of a reading to each slot.

use core::fmt;

use moteseal_core::error::Named;

use crate::noise::Noise;
use crate::query::partition::Field as Counted;
use crate::query::predicate::holds;
use crate::query::{MAX_COLUMNS, Name, Plan, SlotKind};
use moteseal_core::schema::{Field, FieldType, Schema};

/// Why a plan cannot be bound to a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BindError<'a> {
    /// The schema has no column with this name.
    UnknownColumn(&'a str),
    /// The column is not of an integer type, or it is nullable.
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
                write!(f, "{} is not a scaled integer without nulls in these records", Name(name))
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
    /// The query asks for noise.
    NoiseMissing,
}

impl ContributionError {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RecordTooShort => "RecordTooShort",
            Self::BufferTooSmall => "BufferTooSmall",
            Self::NoiseMissing => "NoiseMissing",
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
            Self::NoiseMissing => {
                f.write_str("the query asks for noise, which this source does not add")
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

/// A selected reading.
struct Reading {
    /// The number of its group.
    group: usize,
    /// The numerators of the columns that are summed or binned.
    numerators: [i128; MAX_COLUMNS],
    /// Whether the values of all summed columns are within the plan's ranges.
    is_inside: bool,
}

impl Reading {
    fn numerator(&self, at: u8) -> i128 {
        self.numerators.get(usize::from(at)).copied().unwrap_or_default()
    }

    /// Returns whether the reading is one of those that a field counts.
    fn counts_in(&self, plan: &Plan<'_>, field: Counted) -> bool {
        match field {
            Counted::Bin(at, bin) => plan.bin_of(at, self.numerator(at)) == bin,
            Counted::Count | Counted::Steps(_) => true,
        }
    }
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
            if !field.kind.is_integer() || field.nullable {
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
    /// unchanged. A selected reading with a value outside the range that the query declares for a
    /// summed column changes only the count of these readings.
    ///
    /// # Errors
    /// [`ContributionError`]. The caller must then not send the contents of the buffer.
    pub fn contribution(
        &self,
        record: Option<&[u8]>,
        slots: &mut [u128],
    ) -> Result<usize, ContributionError> {
        if self.plan.has_noise() {
            return Err(ContributionError::NoiseMissing);
        }
        self.write(record, slots, None)
    }

    /// Writes the contribution of a source to a query with noise. Every source adds its share of
    /// the noise to each field, also a source without a selected reading.
    ///
    /// # Errors
    /// [`ContributionError`]. The caller must then not send the contents of the buffer.
    pub fn contribution_with_noise(
        &self,
        record: Option<&[u8]>,
        noise: &Noise<'_>,
        slots: &mut [u128],
    ) -> Result<usize, ContributionError> {
        self.write(record, slots, Some(noise))
    }

    /// Writes the contribution to each slot.
    fn write(
        &self,
        record: Option<&[u8]>,
        slots: &mut [u128],
        noise: Option<&Noise<'_>>,
    ) -> Result<usize, ContributionError> {
        let plan = self.plan;
        let reading = match record {
            Some(record) if holds(&plan.predicate, |column| self.numerator(column, record))? => {
                self.reading(record)?
            }
            _ => None,
        };
        let is_outside = reading.as_ref().is_some_and(|reading| !reading.is_inside);
        let counted_in =
            |group| reading.as_ref().filter(|reading| reading.is_inside && reading.group == group);
        let mut count = 0;
        for slot in plan.slots() {
            let place = slots.get_mut(count).ok_or(ContributionError::BufferTooSmall)?;
            let counted = counted_in(slot.group);
            // The numerator is within the plan's range, which has 64 bits.
            let numerator = counted.map_or(0, |reading| reading.numerator(slot.at));
            let numerator = i64::try_from(numerator).unwrap_or_default();
            let value = match slot.kind {
                SlotKind::Counts => 0,
                // The shift is the lowest value of the range, or 0 if that is lower, so the
                // difference is not negative.
                SlotKind::Sum => numerator.abs_diff(slot.shift).into(),
                SlotKind::SumOfSquares => u128::from(numerator.unsigned_abs()).pow(2),
                SlotKind::Counters => {
                    let fields = (0..).zip(plan.fields()).skip(slot.first);
                    let mut total = 0;
                    for (place, (number, (group, kind))) in
                        (0..).zip(fields.take(plan.fields_in_slot()))
                    {
                        let found = counted_in(group);
                        let value = match noise {
                            Some(noise) => noisy(plan, (number, kind), found, noise),
                            None => counted_once(plan, kind, found),
                        };
                        total += u128::from(value) << (place * u32::from(plan.counter_bits));
                    }
                    total
                }
            };
            let is_here =
                is_outside && reading.as_ref().is_some_and(|found| found.group == slot.group);
            *place = slot.joined(value, counted.is_some(), is_here);
            count += 1;
        }
        Ok(count)
    }

    /// Reads the numerators of a selected record; `None` if it is in no group of the query.
    fn reading(&self, record: &[u8]) -> Result<Option<Reading>, ContributionError> {
        let plan = self.plan;
        let group = match &plan.groups {
            None => 0,
            Some(groups) => {
                let value = self.numerator(groups.column, record)?;
                match groups.values.iter().position(|group| i128::from(*group) == value) {
                    Some(group) => group,
                    None => return Ok(None),
                }
            }
        };
        let (mut numerators, mut is_inside) = ([0; MAX_COLUMNS], true);
        for ((at, column), place) in (0..).zip(plan.columns.iter()).zip(&mut numerators) {
            let Some((low, high)) = column.range else { continue };
            *place = self.numerator(at, record)?;
            is_inside &=
                !plan.is_summed(at) || (i128::from(low)..=i128::from(high)).contains(place);
        }
        Ok(Some(Reading { group, numerators, is_inside }))
    }

    fn numerator(&self, at: u8, record: &[u8]) -> Result<i128, ContributionError> {
        let field = self.fields.get(usize::from(at)).ok_or(ContributionError::RecordTooShort)?;
        let raw =
            field.in_plaintext().raw(record).map_err(|_| ContributionError::RecordTooShort)?;
        Ok(raw + i128::from(field.offset))
    }
}

/// Returns 1 if a reading counts in a field, and otherwise 0.
fn counted_once(plan: &Plan<'_>, field: Counted, reading: Option<&Reading>) -> u64 {
    u64::from(reading.is_some_and(|reading| reading.counts_in(plan, field)))
}

/// Returns the number of a field for a reading that counts in the field's group, with noise.
fn noisy(
    plan: &Plan<'_>,
    (number, field): (u32, Counted),
    reading: Option<&Reading>,
    noise: &Noise<'_>,
) -> u64 {
    let random = noise.random(number);
    let value = match (reading, field) {
        (Some(reading), Counted::Steps(at)) => {
            let (low, high) = plan.column(at).range.unwrap_or_default();
            random.rounded(reading.numerator(at) - i128::from(low), low.abs_diff(high))
        }
        _ => counted_once(plan, field, reading),
    };
    // The noise is not below the negative bound, so that the sum is not negative.
    let noise = plan.noise_terms(field, noise.ring).draw(&random);
    value.saturating_add(noise)
}
