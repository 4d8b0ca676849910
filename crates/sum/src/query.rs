//! Queries: which sums to compute over the readings of many devices (spec/queries.md).
//!
//! The querier parses the text of a query into a [`Plan`] for the columns of the stream's schema,
//! and sends the plan in its canonical encoding. A mote [binds](Plan::bind) the plan to its own
//! schema. From the reading of each epoch it computes one small integer per [slot](Plan::slots).
//! The module [`sies`](crate::sies) encrypts these integers, adds them and checks the sums. The
//! querier computes the [answer](Plan::answer) from the sums.
//!
//! ```
//! use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
//! use moteseal_sum::query::Plan;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fields = [Field::parse("temperature:Cel:i16/100")?, Field::parse("humidity:%RH:u16/100")?];
//! let mut buffer = [0; MAX_SCHEMA];
//! let schema = Schema::encode(&fields, &mut buffer)?;
//! let text = "select avg(temperature), count(*) from sensors where humidity > 40 epoch duration 30s";
//! let plan = Plan::parse(text, &schema).map_err(|mistake| mistake.to_string())?;
//! assert_eq!(plan.to_string(), "SELECT AVG(temperature), COUNT(*) FROM sensors WHERE humidity >= 40.01 EPOCH DURATION 30s");
//!
//! let bound = plan.bind(&schema).map_err(|error| error.to_string())?;
//! let mut totals = [0];
//! for reading in [[0x0a, 0xed, 0x10, 0x36], [0x0a, 0x00, 0x0f, 0xa0]] {
//!     let mut slots = [0];
//!     bound.contribution(Some(&reading), &mut slots).map_err(|error| error.to_string())?;
//!     totals.iter_mut().zip(slots).for_each(|(total, slot)| *total += slot);
//! }
//! // 27.97 °C at 41.5 %; 25.60 °C at 40 %, which is not above.
//! // One key group has both sources.
//! let answer = plan.answer(&totals, 2, 1)?;
//! let numbers = answer.values().flatten().filter_map(|value| value.number());
//! assert_eq!(numbers.map(|number| number.to_string()).collect::<Vec<_>>(), ["27.970000", "1"]);
//! # Ok(())
//! # }
//! ```

use core::fmt;
use core::ops::RangeInclusive;

use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::schema::{MAX_NAME, Schema};

mod encoding;
mod lexer;
mod list;
mod literal;
mod mistake;
mod mote;
mod parse;
mod partition;
mod predicate;
mod results;
mod slot;

pub use mistake::{Mistake, QueryError};
pub use mote::{BindError, Bound, ContributionError};
pub use results::{Answer, AnswerError, Bin, FixedPoint, GroupAnswer, Histogram, Value};
pub use slot::{MAX_SOURCES, Overflow, Slot, SlotKind};

use list::List;
use literal::Literal;
use partition::Groups;
pub(crate) use partition::STEPS;
use predicate::Steps;

/// The maximum length of a query's text, in bytes.
pub const MAX_TEXT: usize = 16_384;
/// The maximum number of aggregates in a query.
pub const MAX_ITEMS: usize = 16;
/// The maximum number of columns that a query names.
pub const MAX_COLUMNS: usize = 8;
/// The maximum number of steps in a predicate. Each comparison is a step, each NOT is a step, and
/// each sequence of operands that are joined by AND or by OR is one more step.
pub const MAX_STEPS: usize = 32;
/// The maximum nesting depth of a predicate.
pub const MAX_DEPTH: usize = 16;
/// The maximum number of slots of a query.
pub const MAX_SLOTS: usize = 1 + 2 * MAX_COLUMNS;
/// The maximum number of values in the list of a GROUP BY.
pub const MAX_GROUPS: usize = 16;
/// The permitted numbers of bins of a column.
pub const BINS: RangeInclusive<u8> = 2..=64;
/// The number of bins of a column if the query does not state it.
pub const DEFAULT_BINS: u8 = 8;
/// The unit of a quantile's rank: `QUANTILE(column, 0.95)` has the rank 9500.
pub const WHOLE_RANK: u16 = 10_000;
/// The maximum length of an encoded plan in bytes.
pub const MAX_PLAN: usize =
    32 + 8 * MAX_ITEMS + MAX_COLUMNS * (MAX_NAME + 32) + 24 * MAX_STEPS + 9 * MAX_GROUPS;
/// The permitted lengths of an epoch in milliseconds: from one second to one week.
pub const EPOCH_MS: RangeInclusive<u32> = 1000..=7 * 86_400_000;

/// An aggregate over the selected readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Aggregate {
    /// The sum; 0 if no readings are selected.
    Sum,
    /// The number of readings.
    #[default]
    Count,
    /// The mean; undefined if no readings are selected.
    Avg,
    /// The population variance; undefined if no readings are selected.
    Variance,
    /// The square root of the population variance; undefined if no readings are selected.
    Stddev,
    /// The number of readings in each bin of the column's range.
    Histogram,
    /// The bin of the value at a rank; undefined if no readings are selected. The lowest rank is the
    /// minimum, the highest one the maximum.
    Quantile,
}

impl Aggregate {
    /// All aggregates. An aggregate's index is its number in an encoded plan.
    pub const ALL: [Self; 7] = [
        Self::Sum,
        Self::Count,
        Self::Avg,
        Self::Variance,
        Self::Stddev,
        Self::Histogram,
        Self::Quantile,
    ];

    /// Returns the aggregate's name in the query language.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "SUM",
            Self::Count => "COUNT",
            Self::Avg => "AVG",
            Self::Variance => "VARIANCE",
            Self::Stddev => "STDDEV",
            Self::Histogram => "HISTOGRAM",
            Self::Quantile => "QUANTILE",
        }
    }

    /// Returns whether the aggregate needs the sum of the column.
    const fn takes_sum(self) -> bool {
        matches!(self, Self::Sum | Self::Avg | Self::Variance | Self::Stddev)
    }

    /// Returns whether the aggregate needs the number of readings in each bin of the column.
    const fn takes_bins(self) -> bool {
        matches!(self, Self::Histogram | Self::Quantile)
    }

    /// Returns whether the aggregate needs the sum of squares.
    const fn takes_squares(self) -> bool {
        matches!(self, Self::Variance | Self::Stddev)
    }
}

/// A selected aggregate, with the index of its column in the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Item {
    aggregate: Aggregate,
    /// `None` only for `COUNT(*)`.
    column: Option<u8>,
    /// The rank of a quantile, from 0 to [`WHOLE_RANK`]; 0 for other aggregates.
    rank: u16,
}

/// A column that a query names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column<'a> {
    name: &'a str,
    divisor: u32,
    /// The lowest and the highest numerator that may be summed, or that the bins divide; `None` for a
    /// column that is neither summed nor binned.
    range: Option<(i64, i64)>,
}

impl Default for Column<'_> {
    fn default() -> Self {
        Self { name: "", divisor: 1, range: None }
    }
}

/// A checked query: the result of [`parse`](Self::parse) or [`decode`](Self::decode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    items: List<Item, MAX_ITEMS>,
    /// The columns in the order in which the query first mentions them.
    columns: List<Column<'a>, MAX_COLUMNS>,
    predicate: Steps,
    /// The groups of the readings, if the query has a GROUP BY.
    groups: Option<Groups>,
    /// The number of bins of each binned column; 0 if there is none.
    bins: u8,
    /// The number of bits of each counter; 0 if the plan has no counters.
    counter_bits: u8,
    /// The epsilon of an answer in thousandths; 0 for exact answers.
    epsilon: u32,
    epoch_ms: u32,
}

named_errors! {
    /// Why narrowing a column's range failed.
    RangeError {
        /// A bound is not a decimal number, or has more than 38 digits.
        NotANumber => "a bound of a range is a decimal number such as -40 or 85.5",
        /// No value of the column is between the bounds.
        RangeEmpty => "no value of the column is in this range; give the lower bound first",
    }
}

impl<'a> Plan<'a> {
    fn empty() -> Self {
        Self {
            items: List::new(),
            columns: List::new(),
            predicate: List::new(),
            groups: None,
            bins: 0,
            counter_bits: 0,
            epsilon: 0,
            epoch_ms: 0,
        }
    }

    /// Parses the text of a query for the columns of a schema. By default a summed column may have
    /// any value of its type. [`narrow`](Self::narrow) declares a smaller range.
    ///
    /// # Errors
    /// [`QueryError`] with the first mistake in the text.
    pub fn parse(text: &'a str, schema: &Schema<'a>) -> Result<Self, QueryError<'a>> {
        parse::parse(text, schema)
    }

    /// Declares that the values of a column are between two decimal numbers, such as `-40` and
    /// `85.5`. With a smaller range, a query can have more sources, because each sum has at most 96
    /// bits. A reading with a value outside the range is not in the results; its source only counts
    /// it. Returns whether the query sums this column; if not, the plan does not change.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn narrow(
        &mut self,
        column: &str,
        least: &str,
        greatest: &str,
    ) -> Result<bool, RangeError> {
        let bounds = [least, greatest].map(|text| {
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
            let decimal = [whole, fraction]
                .iter()
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
            decimal
                .then(|| Literal::read(text.starts_with('-'), digits, text, 0))
                .flatten()
                .ok_or(RangeError::NotANumber)
        });
        let (least, greatest) = (bounds[0]?, bounds[1]?);
        let Some(column) = self.columns.iter_mut().find(|found| found.name == column) else {
            return Ok(false);
        };
        let Some((low, high)) = &mut column.range else { return Ok(false) };
        let divisor = column.divisor;
        let least = least.ceil(divisor).ok_or(RangeError::NotANumber)?.max((*low).into());
        let greatest = greatest.floor(divisor).ok_or(RangeError::NotANumber)?.min((*high).into());
        if least > greatest {
            return Err(RangeError::RangeEmpty);
        }
        // Both bounds are within the previous range, unless the new range is empty.
        *low = i64::try_from(least).map_err(|_| RangeError::RangeEmpty)?;
        *high = i64::try_from(greatest).map_err(|_| RangeError::RangeEmpty)?;
        Ok(true)
    }

    /// Declares that the numerators of a column are from `low` to `high`, which is not above it in a
    /// valid range. Does nothing if the query does not sum this column.
    pub fn declare(&mut self, column: &str, low: i64, high: i64) {
        let column = self.columns.iter_mut().find(|found| found.name == column);
        if let Some(range) = column.and_then(|column| column.range.as_mut()) {
            *range = (low, high);
        }
    }

    /// Returns the length of an epoch in milliseconds, within [`EPOCH_MS`].
    #[must_use]
    pub const fn epoch_ms(&self) -> u32 {
        self.epoch_ms
    }

    /// Returns the selected items in order.
    pub fn items(&self) -> impl ExactSizeIterator<Item = Selected<'a>> {
        self.items.iter().map(|item| Selected {
            aggregate: item.aggregate,
            column: item.column.map(|at| self.column(at).name),
            rank: item.rank,
        })
    }

    /// Returns the name of the column of a GROUP BY.
    #[must_use]
    pub fn group_column(&self) -> Option<&'a str> {
        self.groups.map(|groups| self.column(groups.column).name)
    }

    /// Returns the columns that the query names, in order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = NamedColumn<'a>> {
        self.columns.iter().map(|column| {
            let Column { name, divisor, range } = *column;
            NamedColumn { name, divisor, range }
        })
    }

    /// Returns whether the query has a condition.
    #[must_use]
    pub fn has_condition(&self) -> bool {
        !self.predicate.is_empty()
    }

    /// Returns whether the query divides the readings into groups or bins. Each of them is a
    /// condition on the readings.
    #[must_use]
    pub fn has_partition(&self) -> bool {
        self.groups.is_some() || self.bins > 0
    }

    /// Returns whether the query needs sums of squares.
    #[must_use]
    pub fn has_squares(&self) -> bool {
        self.items.iter().any(|item| item.aggregate.takes_squares())
    }

    /// Returns a column by its index. In a checked plan, every column index is valid.
    fn column(&self, at: u8) -> Column<'a> {
        self.columns.get(usize::from(at)).copied().unwrap_or_default()
    }
}

/// A column that a query names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedColumn<'a> {
    /// The column's name.
    pub name: &'a str,
    /// The divisor of its numerators.
    pub divisor: u32,
    /// The lowest and the highest numerator that may be summed, or that the bins divide; `None` for a
    /// column that is neither summed nor binned.
    pub range: Option<(i64, i64)>,
}

/// A selected item: `AVG(temperature)` or `COUNT(*)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selected<'a> {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// The column; `None` only for `COUNT(*)`.
    pub column: Option<&'a str>,
    /// The rank of a quantile, from 0 to [`WHOLE_RANK`]; 0 for other aggregates.
    pub rank: u16,
}

impl fmt::Display for Selected<'_> {
    /// Writes the item as in a query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.column {
            Some(column) if self.aggregate == Aggregate::Quantile => {
                match partition::RANKS.iter().find(|(_, rank)| *rank == self.rank) {
                    Some((name, _)) => write!(f, "{name}({})", Name(column)),
                    None => {
                        let rank =
                            FixedPoint::from_digits(self.rank.into(), partition::RANK_PLACES);
                        write!(f, "QUANTILE({}, {rank})", Name(column))
                    }
                }
            }
            Some(column) => write!(f, "{}({})", self.aggregate.name(), Name(column)),
            None => write!(f, "{}(*)", self.aggregate.name()),
        }
    }
}

impl fmt::Display for Plan<'_> {
    /// Writes the canonical text of the query: keywords in capitals, bounds as inclusive numbers on
    /// the columns' scales (`> 40` becomes `>= 40.01`), and only necessary parentheses. The text
    /// parses to this plan, but without narrowed ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, item) in self.items().enumerate() {
            write!(f, "{}{item}", if at == 0 { "SELECT " } else { ", " })?;
        }
        f.write_str(" FROM sensors")?;
        if !self.predicate.is_empty() {
            write!(
                f,
                " WHERE {}",
                predicate::Shown { steps: &self.predicate, columns: &self.columns }
            )?;
        }
        if let Some(groups) = &self.groups {
            partition::show(f, groups, &self.column(groups.column))?;
        }
        if !matches!(self.bins, 0 | DEFAULT_BINS) {
            write!(f, " BINS {}", self.bins)?;
        }
        if self.has_noise() {
            write!(f, " EPSILON {}", FixedPoint::from_digits(self.epsilon.into(), 3))?;
        }
        let whole = parse::UNITS.into_iter().find(|(_, ms)| self.epoch_ms.is_multiple_of(*ms));
        let (unit, ms) = whole.unwrap_or(("ms", 1));
        write!(f, " EPOCH DURATION {}{unit}", self.epoch_ms / ms)
    }
}

/// The name of a column as written in a query. It is in double quotes if the parser could read it
/// as anything else.
struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if lexer::is_plain(self.0) {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        self.0.split_inclusive('"').try_for_each(|part| {
            f.write_str(part)?;
            f.write_str(if part.ends_with('"') { "\"" } else { "" })
        })?;
        f.write_str("\"")
    }
}

/// The id of a query. Two queries with the same text have different nonces and therefore different
/// ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub [u8; 16]);

impl QueryId {
    /// Returns `SHA-256("moteseal/1/query" || roster || nonce || encoded plan)[..16]`. `roster` is
    /// the digest of version 0 of the group's roster, so that a query continues when the group
    /// changes.
    #[must_use]
    pub fn of(roster: &Digest, nonce: &[u8; 16], plan: &[u8]) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&Self::whole(roster, nonce, plan).0[..16]);
        Self(id)
    }

    /// Returns the digest whose first bytes are the id. The masks of a query depend on all its bytes,
    /// because the querier could find two queries with the same id.
    #[must_use]
    pub fn whole(roster: &Digest, nonce: &[u8; 16], plan: &[u8]) -> Digest {
        Digest::of(&[b"moteseal/1/query", &roster.0, nonce, plan])
    }

    /// Returns the first four bytes, big-endian, which identify the query in frames.
    #[must_use]
    pub const fn reference(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Debug for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for QueryId {
    /// Writes the id as 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
