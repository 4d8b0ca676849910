//! The canonical encoding of a plan (spec/queries.md, section 3).

use crate::query::list::List;
use crate::query::partition::Groups;
use crate::query::predicate::{Interval, Join, Step, is_canonical};
use crate::query::{Aggregate, Column, EPOCH_MS, Item, Plan, WHOLE_RANK};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::schema::check_words;

impl<'a> Plan<'a> {
    /// Writes the plan as `[1, items, columns, steps, groups, bins, counter bits, epsilon,
    /// epoch ms]`.
    ///
    /// # Errors
    /// `BufferTooSmall`; [`MAX_PLAN`](crate::query::MAX_PLAN) bytes suffice.
    pub fn encode<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], BufferTooSmall> {
        let mut out = Writer::new(buffer);
        out.array(9)?.uint(1u8)?.array(self.items.len() as u64)?;
        for item in self.items.iter() {
            let is_quantile = item.aggregate == Aggregate::Quantile;
            out.array(if is_quantile { 3 } else { 2 })?
                .uint(item.aggregate as u8)?
                .optional(item.column, Writer::uint)?;
            if is_quantile {
                out.uint(item.rank)?;
            }
        }
        out.array(self.columns.len() as u64)?;
        for column in self.columns.iter() {
            let length = if column.range.is_some() { 4u8 } else { 2 };
            out.array(length.into())?.text(column.name)?.uint(column.divisor)?;
            if let Some((low, high)) = column.range {
                out.int(low)?.int(high)?;
            }
        }
        out.array(self.predicate.len() as u64)?;
        for step in self.predicate.iter() {
            match *step {
                Step::Compare(column, Interval { low, high }) => out
                    .array(3)?
                    .uint(column)?
                    .optional(low, Writer::int)?
                    .optional(high, Writer::int)?,
                Step::Not => out.uint(0u8)?,
                Step::Join(Join::And, operands) => out.uint(operands)?,
                Step::Join(Join::Or, operands) => out.int(-i64::from(operands))?,
            };
        }
        match &self.groups {
            Some(groups) => {
                out.array(2)?.uint(groups.column)?.array(groups.values.len() as u64)?;
                groups.values.iter().try_for_each(|value| out.int(*value).map(|_| ()))?;
            }
            None => {
                out.null()?;
            }
        }
        out.uint(self.bins)?.uint(self.counter_bits)?.uint(self.epsilon)?.uint(self.epoch_ms)?;
        Ok(out.finish())
    }

    /// Reads a plan. Accepts only the canonical encoding of a plan that the parser can produce from
    /// a query's text.
    ///
    /// # Errors
    /// [`DecodeError`]; `FieldOutOfRange` if the bytes have the right format but the plan is
    /// invalid.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes)?;
        let mut plan = Self::empty();
        reader.array(9)?;
        reader.version()?;
        list(&mut reader, &mut plan.items, item)?;
        list(&mut reader, &mut plan.columns, column)?;
        list(&mut reader, &mut plan.predicate, step)?;
        plan.groups = reader.optional(groups)?;
        plan.bins = reader.uint()?;
        plan.counter_bits = reader.uint()?;
        plan.epsilon = reader.uint()?;
        plan.epoch_ms = reader.uint()?;
        if plan.is_canonical() { Ok(plan) } else { Err(DecodeError::FieldOutOfRange) }
    }

    /// Returns whether the parser can produce this plan from a query's text.
    fn is_canonical(&self) -> bool {
        let unique = |at: usize, item: &Item| {
            !self.items[..at].contains(item)
                && (item.column.is_some() || item.aggregate == Aggregate::Count)
                && item.rank <= WHOLE_RANK
        };
        !self.items.is_empty()
            && self.items.iter().enumerate().all(|(at, item)| unique(at, item))
            && self.columns.iter().enumerate().all(|(at, column)| self.is_consistent(at, column))
            && self.columns_are_by_first_mention()
            && is_canonical(&self.predicate)
            && self.has_valid_partition()
            && EPOCH_MS.contains(&self.epoch_ms)
    }

    fn is_consistent(&self, at: usize, column: &Column<'a>) -> bool {
        let sums = |item: &Item| {
            item.aggregate != Aggregate::Count && item.column.map(usize::from) == Some(at)
        };
        check_words(column.name, "").is_ok()
            && column.divisor != 0
            && self.columns[..at].iter().all(|before| before.name != column.name)
            && column.range.is_some() == self.items.iter().any(sums)
            && column.range.is_none_or(|(low, high)| low <= high)
    }

    fn columns_are_by_first_mention(&self) -> bool {
        let items = self.items.iter().filter_map(|item| item.column);
        let steps = self.predicate.iter().filter_map(|step| {
            if let Step::Compare(column, _) = step { Some(*column) } else { None }
        });
        let group = self.groups.map(|groups| groups.column);
        let mentioned = items.chain(steps).chain(group).map(usize::from).try_fold(
            0,
            |mentioned, at| match at {
                _ if at < mentioned => Some(mentioned),
                _ if at == mentioned => Some(mentioned + 1),
                _ => None,
            },
        );
        mentioned == Some(self.columns.len())
    }
}

fn list<'a, T: Copy + Default, const N: usize>(
    reader: &mut Reader<'a>,
    out: &mut List<T, N>,
    read: impl Fn(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<(), DecodeError> {
    for _ in 0..reader.array_any()? {
        out.push(read(reader)?).map_err(|_| DecodeError::FieldOutOfRange)?;
    }
    Ok(())
}

fn item(reader: &mut Reader<'_>) -> Result<Item, DecodeError> {
    let length = reader.array_any()?;
    let aggregate =
        Aggregate::ALL.get(reader.uint::<usize>()?).copied().ok_or(DecodeError::FieldOutOfRange)?;
    let is_quantile = aggregate == Aggregate::Quantile;
    if length != if is_quantile { 3 } else { 2 } {
        return Err(DecodeError::UnexpectedType);
    }
    let column = reader.optional(Reader::uint)?;
    Ok(Item { aggregate, column, rank: if is_quantile { reader.uint()? } else { 0 } })
}

fn groups(reader: &mut Reader<'_>) -> Result<Groups, DecodeError> {
    reader.array(2)?;
    let mut groups = Groups { column: reader.uint()?, values: List::new() };
    list(reader, &mut groups.values, Reader::i64)?;
    Ok(groups)
}

fn column<'a>(reader: &mut Reader<'a>) -> Result<Column<'a>, DecodeError> {
    let length = reader.array_any()?;
    if !matches!(length, 2 | 4) {
        return Err(DecodeError::UnexpectedType);
    }
    let (name, divisor) = (reader.text()?, reader.uint()?);
    let range = if length == 4 { Some((reader.i64()?, reader.i64()?)) } else { None };
    Ok(Column { name, divisor, range })
}

fn step(reader: &mut Reader<'_>) -> Result<Step, DecodeError> {
    if reader.at_array() {
        reader.array(3)?;
        let column = reader.uint()?;
        return Ok(Step::Compare(
            column,
            Interval { low: reader.optional(Reader::i64)?, high: reader.optional(Reader::i64)? },
        ));
    }
    let number = reader.i64()?;
    let operands = u8::try_from(number.unsigned_abs()).map_err(|_| DecodeError::FieldOutOfRange)?;
    Ok(match number {
        0 => Step::Not,
        1.. => Step::Join(Join::And, operands),
        _ => Step::Join(Join::Or, operands),
    })
}
