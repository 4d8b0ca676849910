//! Rules that name nodes whose health is bad.

use std::fmt;
use std::str::FromStr;

use moteseal_core::health::{Item, Kind};
use serde_json::{Value, json};

/// What a rule compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// A value, in its unit; for totals what was counted since the watch began.
    Value(Item),
    /// The rate of a total, a second.
    Rate(Item),
    /// The number of restarts since the watch began.
    Restarts,
    /// The time since the node was heard, in seconds.
    Age,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// A rule such as `link.bad_crc/s > 1`, `battery < 20`, `restarts > 0` or `age > 300`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    text: String,
    pub(super) quantity: Quantity,
    comparison: Comparison,
    limit: f64,
}

/// Why a text is not a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    text: String,
    why: &'static str,
}

impl RuleError {
    /// Returns the error's name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "BadRule"
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}; an example is \"link.bad_crc/s > 1\"", self.text, self.why)
    }
}

impl std::error::Error for RuleError {}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let failed = |why| RuleError { text: text.to_owned(), why };
        let at = text.find(['<', '>']).ok_or_else(|| failed("there is no < or >"))?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let (comparison, number) = match rest.as_bytes() {
            [b'>', b'=', ..] => (Comparison::AtLeast, &rest[2..]),
            [b'<', b'=', ..] => (Comparison::AtMost, &rest[2..]),
            [b'>', ..] => (Comparison::Above, &rest[1..]),
            _ => (Comparison::Below, &rest[1..]),
        };
        let limit = number.trim().parse::<f64>().ok().filter(|limit| limit.is_finite());
        let limit = limit.ok_or_else(|| failed("the limit is not a number"))?;
        let item = |name| {
            Item::parse(name)
                .ok_or_else(|| failed("there is no such item, or several groups have one"))
        };
        let quantity = match (name, name.strip_suffix("/s")) {
            ("restarts", _) => Quantity::Restarts,
            ("age", _) => Quantity::Age,
            (_, Some(name)) => {
                let item = item(name.trim())?;
                if item.kind() == Kind::Gauge {
                    return Err(failed("only counts have a rate"));
                }
                Quantity::Rate(item)
            }
            (name, None) => Quantity::Value(item(name)?),
        };
        Ok(Self { text: text.trim().to_owned(), quantity, comparison, limit })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Rule {
    /// Returns whether a value matches.
    pub(super) fn matches(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Above => value > self.limit,
            Comparison::AtLeast => value >= self.limit,
            Comparison::Below => value < self.limit,
            Comparison::AtMost => value <= self.limit,
        }
    }
}

/// A rule that began or ceased to match a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// The node's name.
    pub node: String,
    /// The rule.
    pub rule: String,
    /// The value.
    pub value: f64,
    /// Whether the rule matches now.
    pub is_on: bool,
}

impl Alert {
    /// Returns the alert as a JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "alert": self.rule,
            "node": self.node,
            "value": self.value,
            "state": if self.is_on { "on" } else { "off" },
        })
    }
}

impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_on { "ALERT" } else { "over" };
        write!(f, "{state} {}: {} (now {:.3})", self.node, self.rule, self.value)
    }
}
