//! The results of an epoch for each group of a query, as owned values.

use std::fmt;

use moteseal_sum::query::{Bin, FixedPoint, GroupAnswer, Histogram, Value};

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
pub type ResultValue = Value<Bins>;

/// The bins of a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bins {
    /// The bins and the numbers of their readings, from the lowest bin to the highest. With noise, a
    /// number may be negative.
    pub bins: Vec<(Bin, i64)>,
    /// The distance within which each number is from the exact one with a probability of about 95 %; 0
    /// without noise.
    pub within: u64,
}

impl Bins {
    /// Returns the numbers with spaces between them.
    pub(super) fn counts(&self) -> String {
        self.bins.iter().map(|(_, count)| count.to_string()).collect::<Vec<_>>().join(" ")
    }
}

impl From<Histogram<'_>> for Bins {
    fn from(histogram: Histogram<'_>) -> Self {
        Self { bins: histogram.bins().collect(), within: histogram.within() }
    }
}

impl fmt::Display for Bins {
    /// Writes the numbers, and with noise the distance.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.counts())?;
        if self.within > 0 { write!(f, " ± {}", self.within) } else { Ok(()) }
    }
}

impl GroupResult {
    /// Returns the results of a group. They are withheld if they are over fewer readings than `minimum`
    /// and not over none.
    pub(super) fn new(answer: &GroupAnswer<'_>, minimum: u32) -> Self {
        let count = answer.count();
        let owned = |value: Value<Histogram<'_>>| value.with_histogram(Bins::from);
        let results = (!(1..minimum).contains(&count)).then(|| Results {
            count,
            outside: answer.outside(),
            values: answer.values().map(|value| value.map(owned)).collect(),
        });
        Self { name: answer.name(), results }
    }
}
