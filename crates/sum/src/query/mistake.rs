//! The error type for mistakes in the text of a query. Its messages state where the mistake is,
//! what is wrong, and what to write instead.

use core::fmt;

use moteseal_core::error::Named;

use crate::query::{
    BINS, MAX_COLUMNS, MAX_DEPTH, MAX_GROUPS, MAX_ITEMS, MAX_STEPS, MAX_TEXT, Name,
};
use moteseal_core::schema::{FieldType, Schema};

/// The first mistake in the text of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryError<'a> {
    /// The position of the mistake in characters, counted from 1.
    pub column: usize,
    /// The kind of mistake.
    pub mistake: Mistake<'a>,
}

/// The kinds of mistakes in the text of a query. spec/errors.md lists their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mistake<'a> {
    /// A word, number or sign is not allowed here.
    UnexpectedToken {
        /// What is allowed here.
        expected: &'static str,
        /// The token that was found; empty at the end of the query.
        found: &'a str,
    },
    /// A character is not part of the query language.
    UnknownCharacter(char),
    /// A quoted text has no closing quote.
    Unterminated,
    /// There is no aggregate with this name.
    UnknownAggregate(&'a str),
    /// The schema has no column with this name.
    UnknownColumn {
        /// The name, as written in the query.
        name: &'a str,
        /// The schema.
        schema: Schema<'a>,
    },
    /// The column contains floats, whose sums are not exact.
    FloatColumn(&'a str),
    /// The column contains times, which are not measurements.
    TimeColumn(&'a str),
    /// The column's type has no numbers, so no sums.
    NotNumericColumn(&'a str, FieldType),
    /// The values of the column may be null. Every reading of a sum must have a value.
    NullableColumn(&'a str),
    /// The stream's records are opaque, so it has no columns.
    NoColumns,
    /// A column is compared with a text. Columns can only be compared with numbers.
    TextLiteral,
    /// A number does not fit in 64 bits on this column's scale, or has more than 38 digits.
    NumberOutOfRange(&'a str),
    /// The clause `EPOCH DURATION` is missing.
    DurationMissing,
    /// The duration is less than a second or more than a week.
    DurationOutOfRange,
    /// The same item is selected twice.
    DuplicateItem,
    /// The text is longer than [`MAX_TEXT`] bytes.
    TooLong,
    /// The query has more than [`MAX_ITEMS`] aggregates.
    TooManyItems,
    /// The query has more than [`MAX_COLUMNS`] columns.
    TooManyColumns,
    /// The predicate has more than [`MAX_STEPS`] steps.
    TooManySteps,
    /// The predicate is nested deeper than [`MAX_DEPTH`].
    TooDeep,
    /// The rank of a quantile is not from 0 to 1, or has more than four digits after the point.
    RankOutOfRange,
    /// The number of bins is not within [`BINS`].
    BinsOutOfRange,
    /// The query states a number of bins, but has no aggregate that needs bins.
    NoBins,
    /// No value of the column equals this value of a GROUP BY.
    NotAValue(&'a str),
    /// The values of the column of a GROUP BY have no exact decimal form.
    InexactGroups(&'a str),
    /// The same value is in the list of a GROUP BY twice.
    DuplicateValue,
    /// The list of a GROUP BY has more than [`MAX_GROUPS`] values.
    TooManyGroups,
    /// The epsilon is not from 0.001 to 4 with at most three digits after the point, or is too low
    /// for this query.
    EpsilonOutOfRange,
    /// The aggregate has no form with noise.
    NoNoisyForm,
}

impl<'a> QueryError<'a> {
    /// Creates the error for a mistake at byte `at` of `text`.
    pub(super) fn at(text: &'a str, at: usize, mistake: Mistake<'a>) -> Self {
        let before = text.char_indices().take_while(|&(start, _)| start < at).count();
        Self { column: before + 1, mistake }
    }

    /// Returns the mistake's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.mistake {
            Mistake::UnexpectedToken { .. } => "UnexpectedToken",
            Mistake::UnknownCharacter(_) => "UnknownCharacter",
            Mistake::Unterminated => "Unterminated",
            Mistake::UnknownAggregate(_) => "UnknownAggregate",
            Mistake::UnknownColumn { .. } => "UnknownColumn",
            Mistake::FloatColumn(_) | Mistake::NullableColumn(_) | Mistake::InexactGroups(_) => {
                "NotExact"
            }
            Mistake::TimeColumn(_)
            | Mistake::NotNumericColumn(..)
            | Mistake::NoColumns
            | Mistake::TextLiteral => "NotNumeric",
            Mistake::NumberOutOfRange(_) => "NumberOutOfRange",
            Mistake::DurationMissing => "DurationMissing",
            Mistake::DurationOutOfRange => "DurationOutOfRange",
            Mistake::DuplicateItem => "DuplicateItem",
            Mistake::TooLong => "QueryTooLong",
            Mistake::TooManyItems => "TooManyItems",
            Mistake::TooManyColumns => "TooManyColumns",
            Mistake::TooManySteps => "TooManySteps",
            Mistake::TooDeep => "TooDeep",
            Mistake::RankOutOfRange => "RankOutOfRange",
            Mistake::BinsOutOfRange => "BinsOutOfRange",
            Mistake::NoBins => "NoBins",
            Mistake::NotAValue(_) => "NotAValue",
            Mistake::DuplicateValue => "DuplicateValue",
            Mistake::TooManyGroups => "TooManyGroups",
            Mistake::EpsilonOutOfRange => "EpsilonOutOfRange",
            Mistake::NoNoisyForm => "NoNoisyForm",
        }
    }

    /// Returns the error with its name, displayed as `Name: sentence`.
    #[must_use]
    pub const fn named(self) -> Named<'static, Self> {
        Named { name: self.name(), error: self }
    }
}

impl fmt::Display for QueryError<'_> {
    /// Writes the position of the mistake, what is wrong, and what to write instead. The message is
    /// always one line, because control characters of the query are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: ", self.column)?;
        match self.mistake {
            Mistake::UnexpectedToken { expected, found: "" } => write!(f, "expected {expected}, but the query ends here"),
            Mistake::UnexpectedToken { expected, found } => write!(f, "expected {expected}, found {}", Shown(found)),
            Mistake::UnknownCharacter(c) => {
                write!(f, "{c:?} is not part of the query language; put a column name that contains it in double quotes")
            }
            Mistake::Unterminated => f.write_str("the quote that opens here is not closed"),
            Mistake::UnknownAggregate(found) => {
                write!(f, "there is no aggregate {}; use SUM, COUNT, AVG, VARIANCE, STDDEV, MIN, MAX, MEDIAN, QUANTILE or HISTOGRAM", Shown(found))
            }
            Mistake::UnknownColumn { name, schema } => {
                write!(f, "there is no column {}; ", Shown(name))?;
                let mut columns = schema.fields().filter(|field| field.kind.is_integer() && !field.nullable);
                match columns.next() {
                    Some(first) => write!(f, "the columns are {}", Name(first.name))?,
                    None => f.write_str("no column can be summed")?,
                }
                columns.try_for_each(|field| write!(f, ", {}", Name(field.name)))
            }
            Mistake::FloatColumn(name) => {
                write!(f, "{} holds floats, whose sums are not exact; seal it as a scaled integer, such as i16/100", Shown(name))
            }
            Mistake::TimeColumn(name) => write!(f, "{} is the time of a reading; use a column of measurements", Shown(name)),
            Mistake::NotNumericColumn(name, kind) => {
                write!(f, "{} is of type {kind}, which has no sums; use a column of integers", Shown(name))
            }
            Mistake::NullableColumn(name) => {
                write!(f, "{} may be null, and private sums need a value in every reading; seal it in a column that is not nullable", Shown(name))
            }
            Mistake::NoColumns => {
                f.write_str("the stream has no columns: its records are opaque; seal it with a schema, or use COUNT(*)")
            }
            Mistake::TextLiteral => f.write_str("columns hold numbers, not text; compare with a number"),
            Mistake::NumberOutOfRange(number) => {
                write!(f, "{} has too many digits for this column; shorten it", Shown(number))
            }
            Mistake::DurationMissing => {
                f.write_str("the epoch duration is missing; end the query with, for example, EPOCH DURATION 30s")
            }
            Mistake::DurationOutOfRange => f.write_str("an epoch lasts 1s to 7d; write, for example, EPOCH DURATION 30s"),
            Mistake::DuplicateItem => f.write_str("this is already selected; remove it"),
            Mistake::TooLong => write!(f, "a query has at most {MAX_TEXT} bytes"),
            Mistake::TooManyItems => write!(f, "at most {MAX_ITEMS} aggregates can be selected at once; use two queries"),
            Mistake::TooManyColumns => write!(f, "a query names at most {MAX_COLUMNS} columns; use two queries"),
            Mistake::TooManySteps => write!(f, "a predicate has at most {MAX_STEPS} comparisons, NOTs and sequences of AND or OR"),
            Mistake::TooDeep => write!(f, "parentheses and NOTs nest at most {MAX_DEPTH} deep"),
            Mistake::RankOutOfRange => f.write_str("a quantile is from 0 to 1 with at most four digits after the point, such as 0.95"),
            Mistake::BinsOutOfRange => write!(f, "a column has {} to {} bins", BINS.start(), BINS.end()),
            Mistake::NoBins => f.write_str("nothing in this query has bins; select HISTOGRAM, QUANTILE, MEDIAN, MIN or MAX, or remove BINS"),
            Mistake::NotAValue(number) => write!(f, "no value of the column is {}", Shown(number)),
            Mistake::InexactGroups(name) => {
                write!(f, "the values of {} have no exact decimal form; group by another column", Shown(name))
            }
            Mistake::DuplicateValue => f.write_str("this value is already in the list; remove it"),
            Mistake::EpsilonOutOfRange => f.write_str("an epsilon is from 0.001 to 4 with at most three digits after the point, and about 0.02 or more for each aggregate"),
            Mistake::NoNoisyForm => f.write_str("VARIANCE, STDDEV, MIN and MAX have no form with noise; remove them or EPSILON"),
            Mistake::TooManyGroups => write!(f, "a query has at most {MAX_GROUPS} groups; use two queries"),
        }
    }
}

impl core::error::Error for QueryError<'_> {}

/// A part of the query for display. It is truncated, and escaped so that it cannot control a
/// terminal.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 64;
        let (whole, rest) =
            self.0.char_indices().nth(LONGEST).map_or((self.0, ""), |(at, _)| self.0.split_at(at));
        // Quotes are shown unescaped, because they may be the mistake.
        for c in whole.chars() {
            if matches!(c, '"' | '\'') {
                write!(f, "{c}")?;
            } else {
                write!(f, "{}", c.escape_debug())?;
            }
        }
        f.write_str(if rest.is_empty() { "" } else { "..." })
    }
}
