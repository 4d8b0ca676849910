//! Sanitises proofs: replaces the cells of column groups by coarser ones, with a statement that the
//! sanitiser signs (spec/sanitised.md). The device's signature still proves everything else.

use std::io::Read;
use std::path::Path;

use moteseal_api::ErrorKind;
use moteseal_core::identity::IssueError;
use moteseal_core::record::SealIndex;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{
    Decimal, Field, FieldType, Groups, MAX_SCHEMA, Schema, SchemaError, Value, ValueError,
};
use moteseal_core::signature::SecretKey;
use moteseal_lanes::Recall;
use moteseal_seal::stream::Select;
use moteseal_verify::sanitised::{Statement, WaitingStatements, block_digests, is_policy};
use moteseal_verify::{Event, Proven, Roster, SanitisedError, Sanitiser, SchemaEntry};

use super::output::Output;
use super::part::{Attached, OwnedPart};
use crate::bundles::device_name;
use crate::completeness::Report;
use crate::decrypt::{KeySource, PartColumns, Readable, SealKeys, Withheld, columns_of};
use crate::error::Error;
use crate::proof::{self, Scope};
use crate::rejection::Rejection;
use crate::sanitised::Accepted;
use crate::session::Session;

/// A column to replace.
#[derive(Clone, Debug)]
pub struct NewColumn<'a> {
    /// The new field. It has the name and the unit of the column; its id and group are not used.
    pub field: Field<'a>,
    /// Round numbers to the nearest multiple of this step, which is in the unit of the column.
    pub step: Option<f64>,
}

impl<'a> NewColumn<'a> {
    /// Parses a new column: a field as for `moteseal seal --column`, such as `temperature:Cel:i8`.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn parse(text: &'a str) -> Result<Self, SchemaError> {
        Ok(Self { field: Field::parse(text)?, step: None })
    }

    /// Returns the column with numbers rounded to the nearest multiple of a step. Returns `None` if the
    /// step is not a positive number.
    #[must_use]
    pub fn in_steps(self, step: f64) -> Option<Self> {
        (step.is_finite() && step > 0.0).then_some(Self { step: Some(step), ..self })
    }

    /// Returns the value to write instead of a value of the device.
    fn coarse<'v>(&self, value: Value<'v>) -> Result<Value<'v>, ValueError> {
        if value == Value::Null {
            return Ok(value);
        }
        if !self.field.kind.is_numeric() {
            let is_kept = self.step.is_none();
            return if is_kept { Ok(value) } else { Err(ValueError::WrongValueType) };
        }
        let number = match value {
            Value::Integer(decimal) => decimal,
            Value::Float(float) => return Ok(Value::Float(self.rounded(float))),
            other if self.step.is_none() => return Ok(other),
            _ => return Err(ValueError::WrongValueType),
        };
        if !self.field.kind.is_integer() {
            return Ok(Value::Float(self.rounded(number.to_f64())));
        }
        // The step in raw values of the new field.
        let (divisor, step) = (self.field.divisor, self.raw_step()?);
        let scaled = number.numerator.checked_mul(divisor.into()).ok_or(ValueError::OutOfRange)?;
        let unit = i128::from(number.divisor) * step;
        let steps = rounded_quotient(scaled, unit);
        let numerator = steps.checked_mul(step).ok_or(ValueError::OutOfRange)?;
        Ok(Value::Integer(Decimal { numerator, divisor }))
    }

    fn rounded(&self, value: f64) -> f64 {
        let unit = match self.step {
            Some(step) => step,
            None if self.field.kind.is_integer() => 1.0 / f64::from(self.field.divisor),
            None => return value,
        };
        let rounded = (value / unit).round() * unit;
        if self.field.kind.is_integer() {
            // A multiple of 1/divisor, which a sum of roundings may miss by the last bit.
            let divisor = f64::from(self.field.divisor);
            (rounded * divisor).round() / divisor
        } else {
            rounded
        }
    }

    /// Returns the step as a multiple of the resolution of the new field, at least 1.
    #[allow(clippy::cast_possible_truncation)]
    fn raw_step(&self) -> Result<i128, ValueError> {
        let Some(step) = self.step else { return Ok(1) };
        let raw = step * f64::from(self.field.divisor);
        if raw.fract() != 0.0 || !(1.0..9e15).contains(&raw) {
            return Err(ValueError::NotRepresentable);
        }
        Ok(raw as i128)
    }

    /// Describes the replacement, for the policy.
    fn describe(&self) -> String {
        let Field { name, kind, divisor, .. } = self.field;
        let scale = if divisor == 1 { String::new() } else { format!("/{divisor}") };
        let step = self.step.map_or_else(String::new, |step| format!(" in steps of {step}"));
        format!("{name} as {kind}{scale}{step}")
    }
}

/// Returns the quotient of two numbers, of which the divisor is positive, rounded half away from zero.
const fn rounded_quotient(number: i128, divisor: i128) -> i128 {
    let (quotient, rest) = (number / divisor, number % divisor);
    if 2 * rest.unsigned_abs() >= divisor.unsigned_abs() {
        quotient + number.signum()
    } else {
        quotient
    }
}

/// Why a proof cannot be sanitised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SanitiseError {
    /// The roster does not name the key's sanitiser.
    #[error(
        "the roster names no sanitiser with this key; the operator adds one with `moteseal roster sanitiser`"
    )]
    UnknownSanitiser,
    /// The roster does not permit the sanitiser to replace the column.
    #[error(
        "the roster does not permit {sanitiser} to replace {column} of {name} in the epoch of seal {index}"
    )]
    NotPermitted {
        /// The name of the sanitiser.
        sanitiser: String,
        /// The column.
        column: String,
        /// The name of the device.
        name: String,
        /// The index of the seal.
        index: SealIndex,
    },
    /// A seal does not have the column.
    #[error("seal {index} of {name} has no column {column:?}")]
    UnknownColumn {
        /// The column.
        column: String,
        /// The name of the device.
        name: String,
        /// The index of the seal.
        index: SealIndex,
    },
    /// The column is in group 0, which is always shown.
    #[error(
        "{column} of {name} is in column group 0, which cannot be replaced; seal it in another group"
    )]
    FirstGroup {
        /// The column.
        column: String,
        /// The name of the device.
        name: String,
    },
    /// Another column of the group has no new type.
    #[error("{other} is in the column group of {column}; give a new type for it, too")]
    WholeGroup {
        /// The column.
        column: String,
        /// The other column.
        other: String,
    },
    /// A column has another unit than the new field.
    #[error("the unit of {column} is {unit:?}; a replacement has the same unit")]
    UnitMismatch {
        /// The column.
        column: String,
        /// The unit.
        unit: String,
    },
    /// The device's values of the column cannot be read.
    #[error("the values of {column} of {name} cannot be read: {reason}")]
    ColumnWithheld {
        /// The column.
        column: String,
        /// The name of the device.
        name: String,
        /// Why.
        reason: Withheld,
    },
    /// The proof selects single events.
    #[error(
        "the proof shows single readings of seal {index} of {name}; only proofs of whole levels can be \
         sanitised"
    )]
    MaskMismatch {
        /// The name of the device.
        name: String,
        /// The index of the seal.
        index: SealIndex,
    },
    /// A value does not fit the new field.
    #[error("a value of {column} does not fit its new type: {error}")]
    Value {
        /// The column.
        column: String,
        /// Why.
        error: ValueError,
    },
    /// The policy is not 1 to 256 bytes without control characters.
    #[error("the policy must be 1 to 256 bytes without control characters")]
    InvalidPolicy,
    /// The new fields are not a schema.
    #[error("the new columns are invalid: {0}")]
    Schema(SchemaError),
    /// The key could not sign.
    #[error("the statement cannot be signed: {0}")]
    Sign(IssueError),
    /// The new cells do not fit the part, which verified parts do not cause.
    #[error(transparent)]
    Cells(#[from] SanitisedError),
}

impl SanitiseError {
    /// Returns the stable name of the error (`spec/errors.md`).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::UnknownSanitiser => "UnknownSanitiser",
            Self::NotPermitted { .. } => "SanitiserNotPermitted",
            Self::UnknownColumn { .. } => "UnknownColumn",
            Self::FirstGroup { .. } => "GroupsOutOfRange",
            Self::WholeGroup { .. } | Self::UnitMismatch { .. } => "FieldMismatch",
            Self::ColumnWithheld { reason, .. } => reason.name(),
            Self::MaskMismatch { .. } => "MaskMismatch",
            Self::Value { error, .. } => error.name(),
            Self::InvalidPolicy => "InvalidPolicy",
            Self::Schema(error) => error.name(),
            Self::Sign(error) => error.name(),
            Self::Cells(error) => error.name(),
        }
    }

    /// Returns the kind, which tells the caller how to react.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

moteseal_api::named_error!(SanitiseError);

/// What a sanitiser replaces, and by what.
#[derive(Clone, Debug)]
pub struct Sanitisation<'a> {
    /// The new columns: all columns of one or more column groups.
    pub columns: &'a [NewColumn<'a>],
    /// What the sanitiser does, as a text for people; `None` to describe the new columns.
    pub policy: Option<&'a str>,
    /// The sanitiser's key. The roster names the sanitiser.
    pub key: &'a SecretKey,
}

/// Writes a copy of the proof in `source`, whose path is `path`, in which a sanitiser replaced columns.
/// `keys` decrypts them. Returns the report of the new proof, which is written to `out`.
///
/// The new proof has the scope of the proof. A reader must accept the sanitiser by name.
///
/// # Errors
/// [`Error`] if the proof is rejected, if the sanitiser cannot or must not replace the columns
/// ([`SanitiseError`]), or if a file cannot be read or written.
pub fn sanitise(
    (source, path): (impl Read, &Path),
    roster: &Roster,
    keys: &mut dyn SealKeys,
    with: &Sanitisation<'_>,
    out: &Path,
) -> Result<Report, Error> {
    let public = with.key.public();
    let sanitiser = roster.sanitisers().iter().find(|sanitiser| sanitiser.key == public);
    let sanitiser = sanitiser.ok_or(SanitiseError::UnknownSanitiser)?;
    let described: Vec<String> = with.columns.iter().map(NewColumn::describe).collect();
    let policy = with.policy.map_or_else(|| described.join(", "), str::to_owned);
    if !is_policy(&policy) {
        return Err(SanitiseError::InvalidPolicy.into());
    }
    let mut maker = Maker {
        roster,
        sanitiser,
        with,
        policy,
        keys: KeySource::new(keys),
        engine: Recall::detect(),
        out,
        output: None,
        statements: WaitingStatements::default(),
        run: Vec::new(),
    };
    let mut session = Session::of_proof(roster, None).accepting(Accepted::All);
    proof::pieces(source, path, &mut |piece| {
        session.observe(piece, &mut |event| maker.event(event))
    })?;
    session.finish(&mut crate::rows::NoRows)?;
    maker.output.ok_or(super::RedactError::NothingLeft)?.finish()
}

struct Maker<'r> {
    roster: &'r Roster,
    sanitiser: &'r Sanitiser,
    with: &'r Sanitisation<'r>,
    policy: String,
    keys: KeySource<'r>,
    engine: Recall,
    out: &'r Path,
    output: Option<Output<'r>>,
    statements: WaitingStatements,
    run: Vec<(OwnedPart, bool)>,
}

impl Maker<'_> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        match event {
            Event::Proof(text) if self.output.is_none() => {
                let (scope, _) =
                    Scope::decode(text).map_err(|cause| Rejection::NotAProof { cause })?;
                self.output = Some(Output::create(self.out, &scope, self.roster)?);
            }
            Event::Manifest(_, bytes) => {
                if let Some(output) = &mut self.output {
                    output.manifest(bytes);
                }
            }
            Event::Sanitised(signed, cells) => {
                let pushed = self.statements.push((*signed, *cells), self.roster);
                pushed.map_err(Rejection::from)?;
            }
            Event::Proven(proven) => {
                let sanitised = self.statements.take(proven, self.roster);
                let mut part = OwnedPart::of(proven, sanitised.map_err(Rejection::from)?);
                part.keep_groups(proven);
                if part.shows_events() {
                    self.replace(proven, &mut part)?;
                }
                self.run.push((part, true));
                if let (Some(_), Some(output)) = (proven.part.signature, &mut self.output) {
                    output.run(std::mem::take(&mut self.run))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Replaces the columns of a part.
    fn replace(&mut self, proven: &Proven<'_>, part: &mut OwnedPart) -> Result<(), Error> {
        let statement = proven.seal.statement();
        let (index, name) = (statement.index, device_name(self.roster, statement.device));
        let Select::Levels(mask) = proven.part.select else {
            return Err(SanitiseError::MaskMismatch { name, index }.into());
        };
        let whole = Schema::decode(&proven.schema.whole().bytes).unwrap_or(Schema::OPAQUE);
        let groups = self.groups(&whole, (&name, index))?;
        for group in groups.iter() {
            if !self.sanitiser.may_replace(statement.device, group, statement.epoch) {
                let replaced = whole.fields().find(|field| field.group == group);
                let column = replaced.map_or("", |field| field.name).to_owned();
                let sanitiser = self.sanitiser.name.clone();
                return Err(SanitiseError::NotPermitted { sanitiser, column, name, index }.into());
            }
        }
        let access = PartColumns::of_seal(proven.seal, proven.schema, self.keys.reborrow());
        let plain = access.decrypt(proven.schema, &proven.sample, &self.engine);
        let plain = plain.map_err(|(seq, error)| {
            let device = statement.device;
            Rejection::Plaintext { error, device, index, seq }
        })?;
        let mut records: Vec<&[u8]> = Vec::new();
        let mut rest = plain.as_deref();
        proven.sample.for_each(&self.engine, |_, _, sealed| {
            records.push(match &mut rest {
                Some(plain) => {
                    let split = plain.split_at_checked(sealed.len()).unwrap_or_default();
                    *plain = split.1;
                    split.0
                }
                None => sealed,
            });
        });
        for group in groups.iter() {
            let mut columns = Vec::new();
            for column in columns_of(proven.schema, None, &access) {
                let field = *column.field();
                if field.group != group {
                    continue;
                }
                let readable = column.readable().map_err(|reason| {
                    let (column, name) = (field.name.to_owned(), name.clone());
                    SanitiseError::ColumnWithheld { column, name, reason }
                })?;
                let new = self.with.columns.iter().find(|new| new.field.name == field.name);
                columns.extend(new.map(|new| (readable, new.field.with_id(field.id), new)));
            }
            let (entry, cells) = new_cells(&columns, &records)?;
            let statement = Statement {
                group: self.roster.group(),
                roster: self.roster.digest(),
                sanitiser: self.sanitiser.id,
                device: statement.device,
                index,
                seal: proven.seal.digest(),
                schema: statement.schema,
                column_group: group,
                mask,
                policy: self.policy.clone(),
                blocks: block_digests(proven, group, &entry, &cells)
                    .map_err(SanitiseError::Cells)?,
                fields: entry.bytes,
            };
            let signed = statement.sign(self.with.key).map_err(SanitiseError::Sign)?;
            part.attach(Attached { statement, signed, cells }).map_err(Rejection::from)?;
        }
        Ok(())
    }

    /// Returns the groups to replace. Each of them has only columns that are replaced.
    fn groups(
        &self,
        whole: &Schema<'_>,
        (name, index): (&str, SealIndex),
    ) -> Result<Groups, SanitiseError> {
        let mut groups = Groups::NONE;
        for NewColumn { field: new, .. } in self.with.columns {
            let column = new.name.to_owned();
            let Some(field) = whole.field(new.name) else {
                return Err(SanitiseError::UnknownColumn { column, name: name.to_owned(), index });
            };
            if field.group == 0 {
                return Err(SanitiseError::FirstGroup { column, name: name.to_owned() });
            }
            if field.unit != new.unit {
                return Err(SanitiseError::UnitMismatch { column, unit: field.unit.to_owned() });
            }
            let is_kept = |other: &Field<'_>| {
                other.group == field.group
                    && !self.with.columns.iter().any(|new| new.field.name == other.name)
            };
            if let Some(other) = whole.fields().find(is_kept) {
                let other = other.name.to_owned();
                return Err(SanitiseError::WholeGroup { column, other });
            }
            groups = groups.with(field.group);
        }
        Ok(groups)
    }
}

/// Returns the schema of new cells, and the cells of all records. Each column has the reader of the
/// device's values and the new field.
fn new_cells(
    columns: &[(Readable<'_>, Field<'_>, &NewColumn<'_>)],
    records: &[&[u8]],
) -> Result<(SchemaEntry, Vec<u8>), SanitiseError> {
    let fields: Vec<Field<'_>> = columns.iter().map(|(_, new, _)| new.in_group(0)).collect();
    let mut buffer = vec![0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).map_err(SanitiseError::Schema)?;
    let is_framed = schema.fields().any(|field| field.kind == FieldType::Text);
    let (mut cells, mut record) = (Vec::new(), Vec::new());
    for sealed in records {
        record.clear();
        record.resize(schema.longest_record(), 0);
        // Text cells are written one after the other, in the order of the fields.
        for (new, (readable, _, how)) in schema.fields().zip(columns) {
            let written = readable
                .read(sealed)
                .and_then(|value| how.coarse(value))
                .and_then(|value| new.write_value(value, &mut record));
            written.map_err(|error| SanitiseError::Value { column: new.name.to_owned(), error })?;
        }
        let length = schema.record_length(&record).unwrap_or(record.len());
        if is_framed {
            cells.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        }
        cells.extend_from_slice(&record[..length]);
    }
    let entry = SchemaEntry::decode(schema.as_bytes()).map_err(SanitiseError::Schema)?;
    Ok((entry, cells))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest_multiple_of_the_step() {
        for (column, step, numerator, divisor, expected) in [
            ("t::i8", None, 2149, 100, "21"),
            ("t::i8", None, 2150, 100, "22"),
            ("t::i8", None, -2150, 100, "-22"),
            ("t::i8", Some(5.0), 2249, 100, "20"),
            ("t::i8", Some(5.0), 2250, 100, "25"),
            ("t::i16/10", Some(0.5), 2274, 100, "22.5"),
            ("t::i16/10", Some(0.5), 2275, 100, "23.0"),
        ] {
            let new = NewColumn { step, ..NewColumn::parse(column).unwrap() };
            let coarse = new.coarse(Value::Integer(Decimal { numerator, divisor })).unwrap();
            assert_eq!(coarse.to_string(), expected, "{column} of {numerator}/{divisor}");
        }
        let new = NewColumn::parse("t::i8").unwrap().in_steps(5.0).unwrap();
        let coarse = new.coarse(Value::Float(-7.6)).unwrap();
        assert_eq!(coarse.to_f64(), Some(-10.0));
    }

    #[test]
    fn a_step_that_is_no_multiple_of_the_resolution_is_refused() {
        let new = NewColumn::parse("t::i8").unwrap();
        let halves = new.clone().in_steps(0.5).unwrap();
        let value = Value::Integer(Decimal { numerator: 1, divisor: 1 });
        assert_eq!(halves.coarse(value), Err(ValueError::NotRepresentable));
        for step in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(new.clone().in_steps(step).is_none(), "{step}");
        }
    }
}
