//! A naive evaluator of queries, and generators of random queries, schemas and readings. In the
//! evaluator, values are quotients of big integers, a predicate is a tree, and each aggregate
//! computes its sums separately.

use std::fmt::Write as _;

use moteseal_core::schema::{Field, FieldType};
use num_bigint::BigInt;
use proptest::collection::{hash_set, vec};
use proptest::prelude::*;

/// A rational number with a positive denominator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ratio(BigInt, BigInt);

impl Ratio {
    pub(crate) fn new(numerator: BigInt, denominator: BigInt) -> Self {
        Self(numerator, denominator)
    }

    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.0 * &other.1).cmp(&(&other.0 * &self.1))
    }

    /// Parses a decimal number.
    fn of(text: &str) -> Self {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits: BigInt = format!("{whole}{fraction}").trim_start_matches('+').parse().unwrap();
        Self(digits, BigInt::from(10).pow(u32::try_from(fraction.len()).unwrap()))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ColumnSpec {
    pub(crate) name: String,
    pub(crate) kind: FieldType,
    pub(crate) divisor: u32,
    pub(crate) offset: i64,
    pub(crate) range: Option<(i64, i64)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Compare(usize, &'static str, String),
    Between(usize, String, String),
    Not(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
}

#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) columns: Vec<ColumnSpec>,
    pub(crate) items: Vec<(&'static str, Option<usize>)>,
    pub(crate) predicate: Option<Expr>,
    /// The column of a GROUP BY, and the numerators of the groups.
    pub(crate) groups: Option<(usize, Vec<i64>)>,
    pub(crate) bins: Option<u8>,
    pub(crate) epoch: &'static str,
    pub(crate) rows: Vec<Option<Vec<u8>>>,
}

const DIVISORS: [u32; 12] = [1, 10, 100, 1000, 2, 256, 3, 7, 60, 1 << 31, u32::MAX, 1_000_000_000];
const KINDS: [FieldType; 8] = [
    FieldType::I16,
    FieldType::U16,
    FieldType::U8,
    FieldType::I8,
    FieldType::U32,
    FieldType::I32,
    FieldType::U64,
    FieldType::I64,
];
const AGGREGATES: [&str; 10] =
    ["SUM", "COUNT", "AVG", "VARIANCE", "STDDEV", "MIN", "MAX", "MEDIAN", "QUANTILE", "HISTOGRAM"];
const BINNED: [&str; 5] = ["MIN", "MAX", "MEDIAN", "QUANTILE", "HISTOGRAM"];
/// The rank of every QUANTILE.
const RANK: (&str, u16) = ("0.35", 3500);
const NAMES: [&str; 6] = ["temperature", "état", "room temp", "from", "say \"hi\"", "count"];
const EPOCHS: [&str; 6] = ["1s", "30s", "1500ms", "5m", "24h", "7d"];

fn column(name: usize) -> impl Strategy<Value = ColumnSpec> {
    let offset = prop_oneof![4 => Just(0i64), 2 => -10_000i64..10_000, 1 => any::<i64>()];
    let kind = prop_oneof![5 => 0usize..4, 2 => 4usize..6, 1 => 6usize..8];
    (kind, 0..DIVISORS.len(), offset, prop::option::weighted(0.2, (-500i64..0, 0i64..500)))
        .prop_map(move |(kind, divisor, offset, range)| ColumnSpec {
            name: NAMES[name].to_owned(),
            kind: KINDS[kind],
            divisor: DIVISORS[divisor],
            offset,
            // Columns with an offset get no range, because the generated ranges are around 0 and
            // would contain none of their values.
            range: range.filter(|_| offset == 0),
        })
}

/// Generates literals. Most are near the values of a column with small numerators, and some are far
/// away.
pub(crate) fn literal_near() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "-?[0-9]{1,3}(\\.[0-9]{1,4})?",
        2 => "-?0\\.[0-9]{1,12}",
        1 => "-?[0-9]{1,8}",
        1 => Just("0".to_owned()),
    ]
}

fn expr(columns: usize) -> impl Strategy<Value = Expr> {
    let sign = prop::sample::select(vec!["<", "<=", ">", ">=", "=", "!=", "<>"]);
    let leaf = prop_oneof![
        3 => (0..columns, sign, literal_near()).prop_map(|(column, sign, literal)| Expr::Compare(column, sign, literal)),
        1 => (0..columns, literal_near(), literal_near()).prop_map(|(column, low, high)| Expr::Between(column, low, high)),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Expr::Not(Box::new(inner))),
            vec(inner.clone(), 2..4).prop_map(Expr::And),
            vec(inner, 2..4).prop_map(Expr::Or),
        ]
    })
}

/// Generates the bytes of a reading, or no reading. Small raw values are more frequent than large
/// ones.
fn reading(columns: Vec<ColumnSpec>) -> impl Strategy<Value = Option<Vec<u8>>> {
    let raw =
        prop_oneof![3 => -300i128..300, 2 => -3i128..4, 1 => any::<i64>().prop_map(i128::from)];
    let bytes = vec(raw, columns.len()).prop_map(move |raws| {
        raws.iter()
            .zip(&columns)
            .flat_map(|(raw, column)| raw.to_be_bytes()[16 - column.kind.size()..].to_vec())
            .collect()
    });
    prop::option::weighted(0.9, bytes)
}

pub(crate) fn query() -> impl Strategy<Value = Query> {
    (1usize..=4)
        .prop_flat_map(|count| (0..count).map(column).collect::<Vec<_>>())
        .prop_flat_map(|columns| {
            let count = columns.len();
            let aggregate = prop::sample::select(AGGREGATES.to_vec());
            let item = (aggregate, prop::option::weighted(0.9, 0..count)).prop_map(
                |(aggregate, column)| {
                    (aggregate, if aggregate == "COUNT" { column } else { column.or(Some(0)) })
                },
            );
            (
                vec(item, 1..6),
                prop::option::of(expr(count)),
                prop::option::weighted(0.4, (0..count, hash_set(-3i64..4, 1..4))),
                prop::option::of(2u8..=64),
                prop::sample::select(EPOCHS.to_vec()),
                vec(reading(columns.clone()), 0..12),
                Just(columns),
            )
        })
        .prop_map(|(items, predicate, groups, bins, epoch, rows, columns)| {
            let mut unique: Vec<(&'static str, Option<usize>)> = Vec::new();
            items.into_iter().for_each(|item| {
                if !unique.contains(&item) {
                    unique.push(item);
                }
            });
            let has_bins = unique.iter().any(|(aggregate, _)| BINNED.contains(aggregate));
            // A list of groups needs exact decimal values.
            let groups = groups.filter(|(column, _)| exact(columns[*column].divisor).is_some());
            let groups = groups.map(|(column, values)| {
                let offset = columns[column].offset;
                (column, values.into_iter().map(|value| value.saturating_add(offset)).collect())
            });
            let bins = bins.filter(|_| has_bins);
            Query { columns, items: unique, predicate, groups, bins, epoch, rows }
        })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Query {
    pub(crate) fn fields(&self) -> Vec<Field<'_>> {
        self.columns
            .iter()
            .map(|column| {
                Field::new(&column.name, "", column.kind).scaled(column.divisor, column.offset)
            })
            .collect()
    }

    /// Returns the declared ranges: the name of the column and the bounds as decimal texts.
    pub(crate) fn ranges(&self) -> Vec<(String, String, String)> {
        let bound = |numerator: i64, column: &ColumnSpec| {
            // Round the bound away from 0 to 10 digits after the point. No numerator is between the
            // rounded and the exact bound.
            let scaled = i128::from(numerator.abs()) * 10i128.pow(10);
            let up = (scaled + i128::from(column.divisor) - 1) / i128::from(column.divisor);
            format!(
                "{}{}.{:010}",
                if numerator < 0 { "-" } else { "" },
                up / 10i128.pow(10),
                up % 10i128.pow(10)
            )
        };
        let clamp = |column: &ColumnSpec| column.range.filter(|(low, high)| low < high);
        self.columns
            .iter()
            .filter_map(|column| {
                clamp(column).map(|(low, high)| {
                    (column.name.clone(), bound(low, column), bound(high, column))
                })
            })
            .collect()
    }

    pub(crate) fn text(&self) -> String {
        self.write(&mut |text, _| text.to_owned())
    }

    /// Returns the text of the same query with other letter case, other white space and redundant
    /// parentheses. The seed determines them.
    pub(crate) fn disguised(&self, seed: u64) -> String {
        let mut state = seed | 1;
        let mut below = move |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % bound
        };
        self.write(&mut |text, what| match what {
            Part::Keyword => {
                let space = [" ", "\n", "\t  "][below(3) as usize];
                let text: String = text
                    .chars()
                    .map(|c| if below(2) == 0 { c.to_ascii_lowercase() } else { c })
                    .collect();
                format!("{space}{text}{space}")
            }
            Part::Operand => {
                let more = below(2) as usize;
                format!("{}{text}{}", "( ".repeat(more), ")".repeat(more))
            }
        })
    }

    fn write(&self, part: &mut dyn FnMut(&str, Part) -> String) -> String {
        let name = |column: usize| quoted(&self.columns[column].name);
        let mut text = part("SELECT", Part::Keyword) + " ";
        for (at, (aggregate, column)) in self.items.iter().enumerate() {
            let mut column = column.map_or("*".to_owned(), name);
            if *aggregate == "QUANTILE" {
                column += ", ";
                column += RANK.0;
            }
            write!(
                text,
                "{}{}({column})",
                if at == 0 { "" } else { ", " },
                part(aggregate, Part::Keyword)
            )
            .unwrap();
        }
        write!(text, " {} {}", part("FROM", Part::Keyword), part("sensors", Part::Keyword))
            .unwrap();
        if let Some(predicate) = &self.predicate {
            write!(text, " {} {}", part("WHERE", Part::Keyword), self.show(predicate, part))
                .unwrap();
        }
        if let Some((column, values)) = &self.groups {
            let values: Vec<String> =
                values.iter().map(|value| self.exact_text(*column, &(*value).into())).collect();
            let (group, by) = (part("GROUP", Part::Keyword), part("BY", Part::Keyword));
            write!(text, " {group} {by} {} ({})", name(*column), values.join(", ")).unwrap();
        }
        if let Some(bins) = self.bins {
            write!(text, " {} {bins}", part("BINS", Part::Keyword)).unwrap();
        }
        write!(
            text,
            " {} {} {}",
            part("EPOCH", Part::Keyword),
            part("DURATION", Part::Keyword),
            self.epoch
        )
        .unwrap();
        text
    }

    fn show(&self, expr: &Expr, part: &mut dyn FnMut(&str, Part) -> String) -> String {
        let name = |column: usize| quoted(&self.columns[column].name);
        let text = match expr {
            Expr::Compare(column, sign, literal) => format!("{} {sign} {literal}", name(*column)),
            Expr::Between(column, low, high) => {
                format!(
                    "{} {} {low} {} {high}",
                    name(*column),
                    part("BETWEEN", Part::Keyword),
                    part("AND", Part::Keyword)
                )
            }
            // Write parentheses around every operand.
            Expr::Not(inner) => {
                format!("{} ({})", part("NOT", Part::Keyword), self.show(inner, part))
            }
            Expr::And(inner) | Expr::Or(inner) => {
                let operands: Vec<String> =
                    inner.iter().map(|inner| format!("({})", self.show(inner, part))).collect();
                let join =
                    part(if matches!(expr, Expr::And(_)) { "AND" } else { "OR" }, Part::Keyword);
                return part(&format!("({})", operands.join(&format!(" {join} "))), Part::Operand);
            }
        };
        part(&format!("({text})"), Part::Operand)
    }

    fn numerator(&self, row: &[u8], column: usize) -> BigInt {
        let start: usize = self.columns[..column].iter().map(|column| column.kind.size()).sum();
        let kind = self.columns[column].kind;
        let bytes = &row[start..start + kind.size()];
        let signed =
            matches!(kind, FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::I64);
        let raw = if signed {
            BigInt::from_signed_bytes_be(bytes)
        } else {
            BigInt::from_bytes_be(num_bigint::Sign::Plus, bytes)
        };
        raw + self.columns[column].offset
    }

    fn value(&self, row: &[u8], column: usize) -> Ratio {
        Ratio(self.numerator(row, column), self.columns[column].divisor.into())
    }

    fn holds(&self, row: &[u8], expr: &Expr) -> bool {
        match expr {
            Expr::Compare(column, sign, literal) => {
                let order = self.value(row, *column).cmp(&Ratio::of(literal));
                match *sign {
                    "<" => order.is_lt(),
                    "<=" => order.is_le(),
                    ">" => order.is_gt(),
                    ">=" => order.is_ge(),
                    "=" => order.is_eq(),
                    _ => order.is_ne(),
                }
            }
            Expr::Between(column, low, high) => {
                let value = self.value(row, *column);
                value.cmp(&Ratio::of(low)).is_ge() && value.cmp(&Ratio::of(high)).is_le()
            }
            Expr::Not(inner) => !self.holds(row, inner),
            Expr::And(inner) => inner.iter().all(|inner| self.holds(row, inner)),
            Expr::Or(inner) => inner.iter().any(|inner| self.holds(row, inner)),
        }
    }

    fn matches(&self, row: &[u8]) -> bool {
        let has_group = self.groups.as_ref().is_none_or(|(column, values)| {
            values.iter().any(|value| self.numerator(row, *column) == BigInt::from(*value))
        });
        has_group && self.predicate.as_ref().is_none_or(|predicate| self.holds(row, predicate))
    }

    /// Returns the value of a numerator as a decimal text, with the digits that the column needs.
    fn exact_text(&self, column: usize, numerator: &BigInt) -> String {
        let divisor = self.columns[column].divisor;
        let places = exact(divisor).unwrap();
        decimal(&(numerator * BigInt::from(10).pow(places) / divisor), places)
    }

    /// Returns the range of a column: the declared one, or all values of the type.
    fn range(&self, column: usize) -> (BigInt, BigInt) {
        let ColumnSpec { kind, offset, range, .. } = &self.columns[column];
        if let Some((low, high)) = range.filter(|(low, high)| low < high) {
            let (least, greatest) = type_range(*kind);
            return (least.max(low.into()), greatest.min(high.into()));
        }
        let clamp = |bound: BigInt| bound.clamp(i64::MIN.into(), i64::MAX.into());
        let (least, greatest) = type_range(*kind);
        (clamp(least + offset), clamp(greatest + offset))
    }

    fn is_summed(&self, column: usize) -> bool {
        let sums = ["SUM", "AVG", "VARIANCE", "STDDEV"];
        self.items.iter().any(|(aggregate, of)| *of == Some(column) && sums.contains(aggregate))
    }

    /// Returns the first numerators of the bins of a column.
    fn bin_starts(&self, column: usize) -> Vec<BigInt> {
        let (low, high) = self.range(column);
        let values = high - &low + 1u8;
        let bins = BigInt::from(self.bins.unwrap_or(8)).min(values.clone());
        let bins = u32::try_from(bins).unwrap();
        (0..bins).map(|bin| &low + (&values * bin + (bins - 1)) / bins).collect()
    }

    /// Returns the bounds of the bin with a number.
    fn bin_text(&self, column: usize, bin: usize) -> String {
        let starts = self.bin_starts(column);
        let is_closed = self.is_summed(column);
        let low = (bin > 0 || is_closed).then(|| starts[bin].clone());
        let high = match starts.get(bin + 1) {
            Some(next) => Some(next - 1),
            None => is_closed.then(|| self.range(column).1),
        };
        let shown = |bound: Option<BigInt>, is_up: bool| {
            let divisor = BigInt::from(self.columns[column].divisor);
            bound.map_or_else(String::new, |bound| {
                let places = exact(self.columns[column].divisor).unwrap_or(10);
                let scaled = bound * BigInt::from(10).pow(places);
                // Division of big integers truncates.
                let cut: BigInt = &scaled / &divisor;
                let is_above = &cut * &divisor > scaled;
                let is_below = &cut * &divisor < scaled;
                let one = u8::from(is_up && is_below);
                decimal(&(cut - u8::from(!is_up && is_above) + one), places)
            })
        };
        format!("{}..{}", shown(low, false), shown(high, true))
    }

    /// Returns the bin of a row: the last one that does not start above its value.
    fn bin(&self, row: &[u8], column: usize) -> usize {
        let value = self.numerator(row, column);
        self.bin_starts(column).iter().filter(|start| **start <= value).count().max(1) - 1
    }

    /// Returns whether every summed value of a row is in the range of its column.
    fn is_inside(&self, row: &[u8]) -> bool {
        (0..self.columns.len()).filter(|column| self.is_summed(*column)).all(|column| {
            let (low, high) = self.columns[column]
                .range
                .filter(|(low, high)| low < high)
                .unwrap_or((i64::MIN, i64::MAX));
            (BigInt::from(low)..=BigInt::from(high)).contains(&self.numerator(row, column))
        })
    }

    /// Returns the expected number of readings in the results, and the number of readings outside
    /// the ranges.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let matching: Vec<&[u8]> = self
            .rows
            .iter()
            .flatten()
            .map(|row| &row[..])
            .filter(|row| self.matches(row))
            .collect();
        let inside = matching.iter().filter(|row| self.is_inside(row)).count();
        (inside, matching.len() - inside)
    }

    /// Returns the expected results of all groups as texts.
    pub(crate) fn expected(&self) -> Vec<Option<String>> {
        let rows: Vec<&[u8]> = self
            .rows
            .iter()
            .flatten()
            .map(|row| &row[..])
            .filter(|row| self.matches(row) && self.is_inside(row))
            .collect();
        let Some((column, values)) = &self.groups else { return self.expected_of(&rows) };
        let of = |value: &i64| {
            let rows = rows.iter().copied();
            rows.filter(|row| self.numerator(row, *column) == BigInt::from(*value)).collect()
        };
        values.iter().map(of).flat_map(|rows: Vec<&[u8]>| self.expected_of(&rows)).collect()
    }

    fn expected_of(&self, rows: &[&[u8]]) -> Vec<Option<String>> {
        let n = BigInt::from(rows.len());
        let result = |&(aggregate, column): &(&str, Option<usize>)| {
            let Some(column) = column.filter(|_| aggregate != "COUNT") else {
                return Some(n.to_string());
            };
            if aggregate == "HISTOGRAM" {
                let bins = self.bin_starts(column).len();
                let counts = (0..bins)
                    .map(|bin| rows.iter().filter(|row| self.bin(row, column) == bin).count());
                return Some(counts.map(|count| count.to_string()).collect::<Vec<_>>().join(" "));
            }
            if BINNED.contains(&aggregate) {
                let mut sorted = rows.to_vec();
                sorted.sort_by_key(|row| self.numerator(row, column));
                let rank = match aggregate {
                    "MIN" => 0,
                    "MAX" => 10_000,
                    "MEDIAN" => 5000,
                    _ => usize::from(RANK.1),
                };
                let place = (rank * sorted.len()).div_ceil(10_000).max(1) - 1;
                return sorted.get(place).map(|row| self.bin_text(column, self.bin(row, column)));
            }
            let divisor = BigInt::from(self.columns[column].divisor);
            // The smallest number of digits after the point with which 1 / divisor is exact.
            let exact =
                (0..=31u32).find(|&places| BigInt::from(10).pow(places) % &divisor == BigInt::ZERO);
            let numerators: Vec<BigInt> =
                rows.iter().map(|row| self.numerator(row, column)).collect();
            let sum: BigInt = numerators.iter().sum();
            if aggregate == "SUM" {
                return Some(fixed(&Ratio(sum, divisor), exact.unwrap_or(9)));
            }
            if rows.is_empty() {
                return None;
            }
            if aggregate == "AVG" {
                return Some(fixed(
                    &Ratio(sum, divisor * &n),
                    exact.map_or(9, |places| places + 4),
                ));
            }
            // The variance is the mean of the squared distances from the mean. The distances have
            // the denominator n * divisor.
            let scale = &divisor * &n;
            let distances: BigInt =
                numerators.iter().map(|numerator| (numerator * &n - &sum).pow(2)).sum();
            let variance = Ratio(distances, scale.pow(2) * &n);
            if aggregate == "VARIANCE" {
                return Some(fixed(&variance, exact.map_or(9, |places| 2 * places + 4)));
            }
            Some(root(&variance, exact.map_or(9, |places| places + 4)))
        };
        self.items.iter().map(result).collect()
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Part {
    Keyword,
    Operand,
}

/// Returns the smallest number of digits after the point with which all values are exact, if it is at
/// most ten.
fn exact(divisor: u32) -> Option<u32> {
    (0..=10u32).find(|&places| 10u128.pow(places).is_multiple_of(divisor.into()))
}

/// Returns the lowest and the highest raw value of a type.
fn type_range(kind: FieldType) -> (BigInt, BigInt) {
    let signed = matches!(kind, FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::I64);
    let values = BigInt::from(1) << (8 * kind.size());
    let half: BigInt = &values / 2;
    let low = if signed { -half } else { BigInt::ZERO };
    (low.clone(), low + values - 1)
}

fn decimal(digits: &BigInt, places: u32) -> String {
    let negative = *digits < BigInt::ZERO;
    let places = places as usize;
    let text = format!("{:0>width$}", digits.magnitude().to_string(), width = places + 1);
    let (whole, fraction) = text.split_at(text.len() - places);
    format!(
        "{}{whole}{}{fraction}",
        if negative { "-" } else { "" },
        if places > 0 { "." } else { "" }
    )
}

/// Returns the value rounded to `places` digits after the point. If two numbers are equally near,
/// the one with the even last digit is returned.
pub(crate) fn fixed(value: &Ratio, places: u32) -> String {
    let scaled = &value.0 * BigInt::from(10).pow(places);
    let near = &scaled / &value.1;
    let distance = |candidate: &BigInt| {
        let distance = candidate * &value.1 - &scaled;
        (BigInt::from(distance.magnitude().clone()), (candidate % 2u8) != BigInt::ZERO)
    };
    let nearest = [&near - 1, near.clone(), near + 1].into_iter().min_by_key(distance).unwrap();
    decimal(&nearest, places)
}

/// Returns the square root of a value, rounded to `places` digits after the point. Finds by
/// bisection the greatest candidate for which the candidate minus half a step is not above the
/// root.
pub(crate) fn root(value: &Ratio, places: u32) -> String {
    // Compare sqrt(4 * scaled / denominator) with 2 * candidate - 1.
    let scaled = &value.0 * BigInt::from(10).pow(2 * places) * 4;
    let (mut low, mut high) = (BigInt::ZERO, BigInt::from(1) << 256);
    while &high - &low > BigInt::from(1) {
        let middle: BigInt = (&low + &high) / 2;
        let step: BigInt = &middle * 2 - 1;
        let half_below = step.pow(2) * &value.1;
        let tie_to_even = half_below == scaled && (&middle % 2u8) == BigInt::ZERO;
        if half_below < scaled || tie_to_even { low = middle } else { high = middle }
    }
    decimal(&low, places)
}
