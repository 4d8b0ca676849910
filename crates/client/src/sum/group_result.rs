//! The results of an epoch for each group of a query, as owned values.

use std::fmt;

use moteseal_sum::query::{Bin, FixedPoint, GroupAnswer, Value};

/// The results for a group. A query without GROUP BY has one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupResult {
    /// The value of the group's column; `None` without a GROUP BY.
    pub name: Option<FixedPoint>,
    /// The results; `None` if they are withheld because the group has too few readings.
    pub results: Option<Results>,
}

/// The results for a group that are not withheld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results {
    /// The number of readings in the results. With noise, it is not exact.
    pub count: u32,
    /// The number of readings that the query selects, but that are not in the results because a value
    /// is outside the range that the query declares for a summed column.
    pub outside: u32,
    /// The value of each selected item, in order. If there are no readings, the items that are then
    /// undefined, such as a mean, are `None`.
    pub values: Vec<Option<ResultValue>>,
}

/// The result of a selected item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultValue {
    /// An exact number.
    Number(FixedPoint),
    /// A number with noise.
    Noisy {
        /// The number.
        number: FixedPoint,
        /// The distance within which the exact number is with a probability of about 95 %.
        within: FixedPoint,
    },
    /// The bin of a quantile; with noise, a range of bins.
    Bin(Bin),
    /// The number of readings in each bin, from the lowest bin to the highest.
    Histogram {
        /// The bins and their numbers. With noise, a number may be negative.
        bins: Vec<(Bin, i64)>,
        /// The distance within which each number is from the exact one with a probability of about
        /// 95 %; 0 without noise.
        within: u64,
    },
}

impl ResultValue {
    /// Returns the number, exact or with noise; `None` for a bin or a histogram.
    #[must_use]
    pub const fn number(&self) -> Option<FixedPoint> {
        match self {
            Self::Number(number) | Self::Noisy { number, .. } => Some(*number),
            Self::Bin(_) | Self::Histogram { .. } => None,
        }
    }
}

impl From<Value<'_>> for ResultValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Number(number) => Self::Number(number),
            Value::Noisy(number, within) => Self::Noisy { number, within },
            Value::Bin(bin) => Self::Bin(bin),
            Value::Histogram(histogram) => {
                Self::Histogram { bins: histogram.bins().collect(), within: histogram.within() }
            }
        }
    }
}

impl fmt::Display for ResultValue {
    /// Writes a number, `number ± distance`, `lower..upper`, or the numbers of a histogram with spaces
    /// between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Noisy { number, within } => write!(f, "{number} ± {within}"),
            Self::Bin(bin) => bin.fmt(f),
            Self::Histogram { bins, within } => {
                let counts: Vec<String> = bins.iter().map(|(_, count)| count.to_string()).collect();
                f.write_str(&counts.join(" "))?;
                if *within > 0 { write!(f, " ± {within}") } else { Ok(()) }
            }
        }
    }
}

impl GroupResult {
    /// Returns the results of a group. They are withheld if they are over fewer readings than `minimum`
    /// and not over none.
    pub(super) fn new(answer: &GroupAnswer<'_>, minimum: u32) -> Self {
        let count = answer.count();
        let results = (!(1..minimum).contains(&count)).then(|| Results {
            count,
            outside: answer.outside(),
            values: answer.values().map(|value| value.map(ResultValue::from)).collect(),
        });
        Self { name: answer.name(), results }
    }
}
