//! Opened values are exact. For random trees, readings, predicates and failures, each value equals
//! the result of a simple computation in every digit. `MOTESEAL_SEEDS=100000` runs 100,000 cases.

use std::collections::HashMap;

use crate::sum_support::{
    Chance, Contribution, Reading, Scene, epoch, opened, reading, roster, seeds, tree,
};
use moteseal_verify::Roster;

/// The name of each column, and its number of decimal places.
const COLUMNS: [(&str, u32); 4] =
    [("temperature", 2), ("humidity", 2), ("light", 0), ("voltage", 3)];

/// A predicate: its text, and a function of a reading.
type Predicate = (String, Box<dyn Fn(&Reading) -> bool>);

fn number(raw: i64, places: u32) -> String {
    let scale = 10_i64.pow(places);
    let sign = if raw < 0 { "-" } else { "" };
    let (whole, rest) = (raw.abs() / scale, raw.abs() % scale);
    if places == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{rest:0width$}", width = places as usize)
    }
}

fn predicate(chance: &mut Chance, depth: u32) -> Predicate {
    let choice = if depth == 0 { 0 } else { chance.below(5) };
    match choice {
        0 | 1 => {
            let column = chance.below(COLUMNS.len());
            let (name, places) = COLUMNS[column];
            let bound = reading(chance)[column];
            let text = number(bound, places);
            match chance.below(8) {
                0 => (format!("{name} < {text}"), Box::new(move |reading| reading[column] < bound)),
                1 => {
                    (format!("{name} <= {text}"), Box::new(move |reading| reading[column] <= bound))
                }
                2 => (format!("{name} > {text}"), Box::new(move |reading| reading[column] > bound)),
                3 => {
                    (format!("{text} <= {name}"), Box::new(move |reading| reading[column] >= bound))
                }
                4 => {
                    (format!("{name} = {text}"), Box::new(move |reading| reading[column] == bound))
                }
                5 => {
                    (format!("{name} <> {text}"), Box::new(move |reading| reading[column] != bound))
                }
                // Compare with a number that is between two values of the column, by appending the
                // digit 5.
                6 => {
                    let finer =
                        if text.contains('.') { format!("{text}5") } else { format!("{text}.5") };
                    // Appending a digit makes a positive number greater and a negative number
                    // smaller.
                    let above = bound >= 0 && !text.starts_with('-');
                    let is_more = move |raw: i64| if above { raw > bound } else { raw >= bound };
                    (format!("{name} > {finer}"), Box::new(move |reading| is_more(reading[column])))
                }
                _ => {
                    let (low, high) = (bound.min(bound - 700).max(0), bound.max(0));
                    let text = format!(
                        "{name} BETWEEN {} AND {}",
                        number(low, places),
                        number(high, places)
                    );
                    (text, Box::new(move |reading| (low..=high).contains(&reading[column])))
                }
            }
        }
        2 => {
            let (text, holds) = predicate(chance, depth - 1);
            (format!("NOT ({text})"), Box::new(move |reading| !holds(reading)))
        }
        3 => {
            let ((one, left), (other, right)) =
                (predicate(chance, depth - 1), predicate(chance, depth - 1));
            (
                format!("({one}) AND ({other})"),
                Box::new(move |reading| left(reading) && right(reading)),
            )
        }
        _ => {
            let ((one, left), (other, right)) =
                (predicate(chance, depth - 1), predicate(chance, depth - 1));
            (
                format!("({one}) or ({other})"),
                Box::new(move |reading| left(reading) || right(reading)),
            )
        }
    }
}

/// Returns `numerator * 10^places / denominator`, rounded half to even.
fn rounded(numerator: i128, denominator: i128, places: u32) -> i128 {
    let scaled = numerator.abs() * 10_i128.pow(places);
    let (down, rest) = (scaled / denominator, scaled % denominator);
    let up = 2 * rest > denominator || (2 * rest == denominator && down % 2 == 1);
    (down + i128::from(up)) * numerator.signum()
}

/// Returns `10^places * sqrt(numerator / denominator)`, rounded to the nearest integer.
fn root(numerator: i128, denominator: i128, places: u32) -> i128 {
    let scaled = numerator * 10_i128.pow(2 * places);
    let down = (scaled / denominator).isqrt();
    // Round up if `(down + 1/2)^2` is less than `scaled / denominator`. The two numbers are never
    // equal here.
    let up = (2 * down + 1).pow(2) * denominator < 4 * scaled;
    down + i128::from(up)
}

fn decimal(digits: i128, places: u32) -> String {
    let sign = if digits < 0 { "-" } else { "" };
    let scale = 10_i128.pow(places);
    let (whole, rest) = (digits.abs() / scale, digits.abs() % scale);
    if places == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{rest:0width$}", width = places as usize)
    }
}

/// Returns the value of an aggregate, computed from its definition.
fn plain(aggregate: &str, values: &[i64], places: u32) -> Option<String> {
    let count = values.len() as i128;
    let sum: i128 = values.iter().map(|value| i128::from(*value)).sum();
    let squares: i128 = values.iter().map(|value| i128::from(*value).pow(2)).sum();
    let spread = count * squares - sum * sum;
    let scale = count * 10_i128.pow(places);
    match aggregate {
        "SUM" => Some(decimal(sum, places)),
        "COUNT" => Some(count.to_string()),
        _ if count == 0 => None,
        "AVG" => Some(decimal(rounded(sum, scale, places + 4), places + 4)),
        "VARIANCE" => Some(decimal(rounded(spread, scale * scale, 2 * places + 4), 2 * places + 4)),
        "STDDEV" => Some(decimal(root(spread, scale * scale, places + 4), places + 4)),
        other => panic!("{other}"),
    }
}

/// Returns a random query over all columns.
fn query(chance: &mut Chance) -> (String, Vec<(&'static str, usize)>, Option<Predicate>) {
    let mut items = Vec::new();
    for _ in 0..=chance.below(4) {
        let item = (
            *chance.of(&["SUM", "COUNT", "AVG", "VARIANCE", "STDDEV"]),
            chance.below(COLUMNS.len()),
        );
        if !items.contains(&item) {
            items.push(item);
        }
    }
    let text: Vec<String> = items
        .iter()
        .map(|(aggregate, column)| format!("{aggregate}({})", COLUMNS[*column].0))
        .collect();
    let filter = chance.hits(70).then(|| predicate(chance, 2));
    let condition = filter.as_ref().map(|(text, _)| format!(" WHERE {text}")).unwrap_or_default();
    (
        format!("SELECT {} FROM sensors{condition} EPOCH DURATION 30s", text.join(", ")),
        items,
        filter,
    )
}

fn case(rosters: &mut HashMap<usize, Roster>, sources: usize, gateways: usize, seed: u64) {
    let mut chance = Chance(seed);
    let chance = &mut chance;
    let roster = rosters.entry(sources).or_insert_with(|| roster(sources)).clone();
    let tree = tree(&roster, gateways, chance);
    let (text, items, filter) = query(chance);
    let key_group = 1 + chance.below(sources) as u32;
    let scene = Scene::new(roster, tree, &text, key_group, 2, chance);
    let mut querier = scene.querier();
    let number = 50_000_000 + chance.next() % 1000;
    let silent = chance.below(60) as u64;
    let readings: Vec<Option<Option<Reading>>> = (0..sources)
        .map(|_| (!chance.hits(silent)).then(|| chance.hits(95).then(|| reading(chance))))
        .collect();
    let answers: Vec<Option<Contribution>> = (0..)
        .zip(&readings)
        .map(|(position, answered)| {
            answered.as_ref().map(|reading| scene.answer(position, number, reading.as_ref()))
        })
        .collect();
    let traffic = epoch(&scene.tree, &answers, &mut |_, _| ());
    let total = traffic.total(&scene.tree);
    let frame = total.frame(scene.id, number, sources as u32);
    let found = querier.open(number, &opened(&frame));
    let count = readings.iter().flatten().count();
    if count < 2 {
        assert_eq!(found.unwrap_err().name(), "BelowFloor", "seed {seed}");
        return;
    }
    let found = found.unwrap_or_else(|error| panic!("seed {seed}: {text}: {error}"));
    assert_eq!(found.participants().count() as usize, count);
    assert!(
        (0..sources as u32).all(|position| found.participants().contains(position)
            == readings[position as usize].is_some())
    );
    let matching: Vec<&Reading> = readings
        .iter()
        .flatten()
        .flatten()
        .filter(|reading| filter.as_ref().is_none_or(|(_, holds)| holds(reading)))
        .collect();
    for ((aggregate, column), value) in items.iter().zip(found.values()) {
        let values: Vec<i64> = matching.iter().map(|reading| reading[*column]).collect();
        let expected = plain(aggregate, &values, COLUMNS[*column].1);
        assert_eq!(
            value.map(|value| value.to_string()),
            expected,
            "seed {seed}: {aggregate} of {}: {text}",
            COLUMNS[*column].0
        );
    }
    assert_eq!(found.values().len(), items.len());
}

#[test]
fn every_value_equals_a_plain_computation_in_every_digit() {
    let mut rosters = HashMap::new();
    for seed in 0..seeds(400) {
        let mut chance = Chance(!seed);
        let sources = *chance.of(&[2, 3, 5, 9, 16, 17, 33, 70]);
        let gateways = 1 + chance.below(sources.min(9));
        case(&mut rosters, sources, gateways, seed);
    }
}

#[test]
fn ten_thousand_sources_are_summed_exactly() {
    let mut rosters = HashMap::new();
    case(&mut rosters, 10_000, 120, 1);
}
