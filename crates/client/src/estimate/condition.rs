//! A condition on one field, such as `temperature>=25.5`. An estimate can state the share and the
//! number of events that meet it.

use std::fmt;
use std::str::FromStr;

/// A comparison of a field with a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    field: String,
    comparison: Comparison,
    number: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Below,
    AtMost,
    Equal,
    Unequal,
    AtLeast,
    Above,
}

/// The comparisons and their notation. `<=` must be listed before `<`, and `>=` before `>`, because
/// the first notation that matches is used.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("!=", Comparison::Unequal),
    ("<", Comparison::Below),
    (">", Comparison::Above),
    ("=", Comparison::Equal),
];

/// The text is not a valid condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a condition is a field, one of < <= = != >= >, and a number, as in 'temperature>=25.5'")]
pub struct ConditionError;

impl Condition {
    /// Returns the name of the field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Returns whether a value of the field meets the condition.
    #[must_use]
    #[allow(clippy::float_cmp)]
    pub fn holds(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Below => value < self.number,
            Comparison::AtMost => value <= self.number,
            Comparison::Equal => value == self.number,
            Comparison::Unequal => value != self.number,
            Comparison::AtLeast => value >= self.number,
            Comparison::Above => value > self.number,
        }
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let at = text.find(['<', '>', '=', '!']).ok_or(ConditionError)?;
        let (field, rest) = text.split_at(at);
        let known = COMPARISONS
            .iter()
            .find_map(|(sign, comparison)| Some((*comparison, rest.strip_prefix(sign)?)));
        let (comparison, number) = known.ok_or(ConditionError)?;
        let number: f64 = number.trim().parse().map_err(|_| ConditionError)?;
        let field = field.trim();
        if field.is_empty() || !number.is_finite() {
            return Err(ConditionError);
        }
        Ok(Self { field: field.to_owned(), comparison, number })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = COMPARISONS
            .iter()
            .find(|(_, comparison)| *comparison == self.comparison)
            .map_or("", |(sign, _)| sign);
        write!(f, "{}{sign}{}", self.field, self.number)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn parses_and_applies_every_comparison() {
        for (text, holds) in [
            ("t<2", [true, false, false]),
            ("t <= 2", [true, true, false]),
            ("t=2.0", [false, true, false]),
            ("t!=2", [true, false, true]),
            ("t>=2", [false, true, true]),
            ("t>2e0", [false, false, true]),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(
                ([1.0, 2.0, 3.0].map(|value| condition.holds(value)), condition.field()),
                (holds, "t"),
                "{text}"
            );
            assert_eq!(condition.to_string().parse(), Ok(condition));
        }
    }

    #[test]
    fn rejects_text_that_is_not_a_condition() {
        for text in ["", "t", "<2", "t<", "t<x", "t!2", "t==2", "t<nan", "t>inf"] {
            assert_eq!(text.parse::<Condition>(), Err(ConditionError), "{text}");
        }
    }
}
