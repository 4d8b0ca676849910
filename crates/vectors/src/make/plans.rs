//! Vectors of queries and their plans (spec/queries.md): texts, encodings, contributions and
//! results.

use moteseal_core::schema::Schema;
use moteseal_sum::query::{MAX_PLAN, Plan};
use serde_json::{Value as Json, json};

use super::{File, Files, partitions};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::schema;

/// The columns that the query texts may use.
const COLUMNS: &[&str] = &[
    "temperature:Cel:i16/100",
    "humidity:%RH:u16/100",
    "counter::u64",
    "third::i8/3",
    "fine::i32/1024",
    "order::u8",
    "two words::i32",
    "ratio::f32",
    "at::time",
];

pub fn make(files: &mut Files) {
    files.add(texts());
    files.add(plans());
    files.add(contributions());
    files.add(answers());
    partitions::make(files);
}

fn texts() -> File {
    let mut file =
        File::new("query/texts.json", "From texts to plans: queries.md, sections 1 to 3.");
    let op = "query.parse";
    let columns = schema(COLUMNS);
    let input = |text: &str| json!({ "schema": hex::encode(&columns), "text": text });
    for query in [
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 30s",
        "select avg(temperature), count(*) from SENSORS where humidity > 40 epoch duration 30S",
        "SELECT\tSUM ( temperature ) ,\n COUNT(temperature) FROM sensors EPOCH DURATION 90000ms",
        "SELECT SUM(temperature),COUNT(*),AVG(temperature),VARIANCE(temperature),STDDEV(humidity)FROM sensors EPOCH DURATION 7d",
        "SELECT COUNT(humidity) FROM sensors WHERE temperature < 20 EPOCH DURATION 1h",
        "SELECT SUM(counter), SUM(third), SUM(fine), SUM(order), SUM(\"two words\") FROM sensors EPOCH DURATION 1000ms",
        "SELECT COUNT(*) FROM sensors WHERE temperature > 40.5 EPOCH DURATION 1001ms",
        "SELECT COUNT(*) FROM sensors WHERE temperature >= 40.505 EPOCH DURATION 61s",
        "SELECT COUNT(*) FROM sensors WHERE temperature < 40.505 EPOCH DURATION 60s",
        "SELECT COUNT(*) FROM sensors WHERE temperature < 40.5 EPOCH DURATION 120m",
        "SELECT COUNT(*) FROM sensors WHERE temperature <= -0.001 EPOCH DURATION 24h",
        "SELECT COUNT(*) FROM sensors WHERE temperature = 40.5 EPOCH DURATION 48h",
        "SELECT COUNT(*) FROM sensors WHERE temperature = 40.505 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE temperature != 40.505 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE temperature <> +007.50 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE temperature BETWEEN -10 AND 10.019 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE temperature BETWEEN 10 AND -10 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE 20 < temperature AND 30>=temperature EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE 20 = temperature OR 21 != temperature EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE third >= 0.3 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE third > 0.34 AND third <= 5 OR third = 1 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE fine > 0.0009765625 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE counter <= 9223372036854775807 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE counter >= -9223372036854775808 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE order > 1 AND (order < 9 AND humidity > 2) EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE (order > 1 OR order < 9) AND NOT (humidity > 2 AND temperature > 2) EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE order > 1 OR order < 9 AND humidity > 2 OR NOT order = 4 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE NOT NOT ((order > 1)) EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE NOT order > 1 AND order < 3 EPOCH DURATION 30s",
        "SELECT COUNT(*) FROM sensors WHERE ((order > 1 OR (order < 9 OR humidity > 2))) EPOCH DURATION 30s",
        "SELECT AVG(humidity) FROM sensors WHERE \"order\" > 1 AND \"two words\" = 3 EPOCH DURATION 30s",
    ] {
        file.valid(query, op, input(query));
    }
    let one = |rest: &str| format!("SELECT COUNT(*) FROM sensors {rest}");
    let nested = |depth: usize| {
        one(&format!(
            "WHERE {}order > 1{} EPOCH DURATION 30s",
            "(".repeat(depth),
            ")".repeat(depth)
        ))
    };
    let steps = |count: usize| {
        one(&format!("WHERE {} EPOCH DURATION 30s", vec!["order > 1"; count].join(" AND ")))
    };
    file.valid("16 levels of parentheses", op, input(&nested(16)));
    file.valid("32 steps", op, input(&steps(31)));
    let long = |digits: usize| {
        one(&format!("WHERE order > {}1 EPOCH DURATION 30s", "0".repeat(digits - 1)))
    };
    file.valid("38 digits", op, input(&long(38)));
    for (what, query, error) in [
        ("nothing", String::new(), "UnexpectedToken"),
        ("no item", "SELECT FROM sensors EPOCH DURATION 30s".into(), "UnexpectedToken"),
        (
            "a comma too many",
            "SELECT COUNT(*), FROM sensors EPOCH DURATION 30s".into(),
            "UnexpectedToken",
        ),
        (
            "another table",
            "SELECT COUNT(*) FROM motes EPOCH DURATION 30s".into(),
            "UnexpectedToken",
        ),
        (
            "the sum of everything",
            "SELECT SUM(*) FROM sensors EPOCH DURATION 30s".into(),
            "UnexpectedToken",
        ),
        ("something behind the end", one("EPOCH DURATION 30s order"), "UnexpectedToken"),
        ("a predicate without a sign", one("WHERE order 3 EPOCH DURATION 30s"), "UnexpectedToken"),
        (
            "two columns compared",
            one("WHERE order > humidity EPOCH DURATION 30s"),
            "UnexpectedToken",
        ),
        (
            "a parenthesis that is not closed",
            one("WHERE (order > 3 EPOCH DURATION 30s"),
            "UnexpectedToken",
        ),
        ("a parenthesis too many", one("WHERE order > 3) EPOCH DURATION 30s"), "UnexpectedToken"),
        (
            "BETWEEN without AND",
            one("WHERE order BETWEEN 3 4 EPOCH DURATION 30s"),
            "UnexpectedToken",
        ),
        ("a duration without a unit", one("EPOCH DURATION 30"), "UnexpectedToken"),
        ("a duration with a fraction", one("EPOCH DURATION 1.5s"), "UnexpectedToken"),
        ("weeks", one("EPOCH DURATION 1w"), "UnexpectedToken"),
        ("a semicolon", one("EPOCH DURATION 30s;"), "UnknownCharacter"),
        ("a point alone", one("WHERE order > 3. EPOCH DURATION 30s"), "UnknownCharacter"),
        ("a quote that is not closed", one("WHERE \"order > 3 EPOCH DURATION 30s"), "Unterminated"),
        ("a mode", "SELECT MODE(order) FROM sensors EPOCH DURATION 30s".into(), "UnknownAggregate"),
        ("a column that is not there", one("WHERE wind > 3 EPOCH DURATION 30s"), "UnknownColumn"),
        (
            "a column in other letters",
            one("WHERE Humidity > 3 EPOCH DURATION 30s"),
            "UnknownColumn",
        ),
        ("a column of floats", one("WHERE ratio > 3 EPOCH DURATION 30s"), "NotExact"),
        (
            "a column of times",
            "SELECT AVG(at) FROM sensors EPOCH DURATION 30s".into(),
            "NotNumeric",
        ),
        ("a text", one("WHERE order = 'three' EPOCH DURATION 30s"), "NotNumeric"),
        (
            "a bound of 2^63",
            one("WHERE counter <= 9223372036854775808 EPOCH DURATION 30s"),
            "NumberOutOfRange",
        ),
        (
            "a bound of 2^63, by more than",
            one("WHERE counter > 9223372036854775807 EPOCH DURATION 30s"),
            "NumberOutOfRange",
        ),
        (
            "a bound that its scale makes too large",
            one("WHERE humidity > 92233720368547758.08 EPOCH DURATION 30s"),
            "NumberOutOfRange",
        ),
        ("39 digits", long(39), "NumberOutOfRange"),
        ("no duration", one(""), "DurationMissing"),
        ("no duration behind a predicate", one("WHERE order > 3"), "DurationMissing"),
        ("less than a second", one("EPOCH DURATION 999ms"), "DurationOutOfRange"),
        ("more than a week", one("EPOCH DURATION 604800001ms"), "DurationOutOfRange"),
        ("no time at all", one("EPOCH DURATION 0s"), "DurationOutOfRange"),
        ("eight days", one("EPOCH DURATION 8d"), "DurationOutOfRange"),
        (
            "an item twice",
            "SELECT SUM(order), sum(\"order\") FROM sensors EPOCH DURATION 30s".into(),
            "DuplicateItem",
        ),
        ("17 levels of parentheses", nested(17), "TooDeep"),
        ("33 steps", steps(32), "TooManySteps"),
        (
            "16,385 bytes",
            format!("{}{}", one("EPOCH DURATION 30s"), " ".repeat(16_385 - 46)),
            "QueryTooLong",
        ),
    ] {
        file.invalid(what, op, input(&query), error);
    }
    for (what, column, error) in [
        ("a nullable column", "a::u8?", "NotExact"),
        ("a column of booleans", "a::bool", "NotNumeric"),
        ("a nullable column of points", "a::point?", "NotNumeric"),
        ("a column of texts", "a::text9", "NotNumeric"),
    ] {
        let text = "SELECT SUM(a) FROM sensors EPOCH DURATION 30s";
        let input = json!({ "schema": hex::encode(schema(&[column])), "text": text });
        file.invalid(what, op, input, error);
    }
    let opaque = json!({ "schema": hex::encode(schema(&[])), "text": "SELECT SUM(order) FROM sensors EPOCH DURATION 30s" });
    file.invalid("a column of an opaque stream", op, opaque, "NotNumeric");
    let opaque = json!({ "schema": hex::encode(schema(&[])), "text": one("EPOCH DURATION 30s") });
    file.valid("a count of an opaque stream", op, opaque);
    file
}

fn encoded(query: &str) -> Vec<u8> {
    let columns = schema(COLUMNS);
    let schema = Schema::decode(&columns).unwrap();
    let mut buffer = vec![0; MAX_PLAN];
    Plan::parse(query, &schema)
        .map_err(|error| error.to_string())
        .unwrap()
        .encode(&mut buffer)
        .unwrap()
        .to_vec()
}

/// Returns a plan with these fields, valid or not, without groups, bins and noise.
fn plan(items: &[Value], columns: &[Value], steps: &[Value]) -> Value {
    let list = |values: &[Value]| Value::Array(values.to_vec());
    // A plan without a sum has counters.
    let has_sum = items.iter().any(|item| !item.clone().elements().starts_with(&[int(1)]));
    let bits = int(if has_sum { 0 } else { 20 });
    let (items, columns, steps) = (list(items), list(columns), list(steps));
    array([int(1), items, columns, steps, NULL, int(0), bits, int(0), int(30_000)])
}

pub(super) fn item(aggregate: i64, column: i64) -> Value {
    array([int(aggregate), int(column)])
}

pub(super) fn counted() -> Value {
    array([int(1), NULL])
}

pub(super) fn ranged(name: &str, divisor: i64, low: i64, high: i64) -> Value {
    array([text(name), int(divisor), int(low), int(high)])
}

pub(super) fn named(name: &str, divisor: i64) -> Value {
    array([text(name), int(divisor)])
}

fn between(column: i64, low: i64, high: i64) -> Value {
    array([int(column), int(low), int(high)])
}

fn of_plan(bytes: &[u8], sources: u32) -> Json {
    json!({ "bytes": hex::encode(bytes), "sources": sources })
}

fn plans() -> File {
    let mut file = File::new(
        "query/plans.json",
        "Plans, their slots and their texts: queries.md, sections 3 and 4.",
    );
    let op = "query.plan";
    let all = "SELECT SUM(temperature), VARIANCE(humidity), AVG(third) FROM sensors WHERE order > 1 AND (fine < 0.5 OR NOT order = 3) EPOCH DURATION 5m";
    let sum = plan(&[item(0, 0)], &[ranged("t", 100, -4000, 8500)], &[]);
    for (what, bytes, sources) in [
        ("a count", encoded("SELECT COUNT(*) FROM sensors EPOCH DURATION 30s"), 1),
        ("a sum alone", encoded("SELECT SUM(temperature) FROM sensors EPOCH DURATION 30s"), 1000),
        ("everything", encoded(all), 10_000),
        ("a narrowed range", sum.encode(), 4),
        ("a range above zero", plan(&[item(2, 0)], &[ranged("t", 1, 10, 20)], &[]).encode(), 4),
        ("a range below zero", plan(&[item(4, 0)], &[ranged("t", 1, -20, -10)], &[]).encode(), 4),
        ("a range of one", plan(&[item(3, 0)], &[ranged("t", 1, 0, 0)], &[]).encode(), 4),
        (
            "the range of 64 bits",
            plan(&[item(0, 0)], &[ranged("t", 1, i64::MIN, i64::MAX)], &[]).encode(),
            1_048_575,
        ),
        (
            "as many sources as fit",
            plan(&[item(3, 0)], &[ranged("t", 1, 0, (1 << 40) - 1)], &[]).encode(),
            65_536,
        ),
        ("as many sources as can be counted", encoded(all), 1_048_575),
        (
            "the largest sum in a slot with the counts",
            plan(&[item(0, 0)], &[ranged("t", 1, 0, (1 << 36) - 1)], &[]).encode(),
            1_048_575,
        ),
        (
            "the smallest sum in a slot of its own",
            plan(&[item(0, 0)], &[ranged("t", 1, 0, 1 << 36)], &[]).encode(),
            1_048_575,
        ),
        (
            "a large sum before a small one",
            plan(
                &[item(0, 0), item(0, 1)],
                &[ranged("t", 1, 0, 1 << 40), ranged("u", 1, 0, 1)],
                &[],
            )
            .encode(),
            4,
        ),
        (
            "a column that is quoted",
            plan(&[counted()], &[named("a \"b\"", 7)], &[between(0, -5, -5)]).encode(),
            1,
        ),
        (
            "a scale of ten digits",
            plan(&[counted()], &[named("t", 1 << 10)], &[between(0, 1, 1)]).encode(),
            1,
        ),
        (
            "a scale of more than ten digits",
            plan(&[counted()], &[named("t", 1 << 11)], &[between(0, 1, 1)]).encode(),
            1,
        ),
        ("no numerator", plan(&[counted()], &[named("t", 1)], &[between(0, 1, 0)]).encode(), 1),
    ] {
        file.valid(what, op, of_plan(&bytes, sources));
    }
    let squares = plan(&[item(3, 0)], &[ranged("t", 1, 0, (1 << 40) - 1)], &[]);
    file.invalid("too many sources", op, of_plan(&squares.encode(), 65_537), "Overflow");
    let count = encoded("SELECT COUNT(*) FROM sensors EPOCH DURATION 30s");
    file.invalid("more sources than can be counted", op, of_plan(&count, 1_048_576), "Overflow");
    let wide = plan(&[item(3, 0)], &[ranged("t", 1, i64::MIN, i64::MAX)], &[]);
    file.invalid("squares of 64 bits", op, of_plan(&wide.encode(), 1), "Overflow");
    let on = |steps: &[Value]| plan(&[counted()], &[named("t", 1), named("u", 1)], steps);
    let (t, u) = (between(0, 1, 2), between(1, 1, 2));
    for (what, value) in [
        ("no items", plan(&[], &[], &[])),
        ("an item twice", plan(&[counted(), counted()], &[], &[])),
        ("an aggregate of 7", plan(&[item(7, 0)], &[ranged("t", 1, 0, 1)], &[])),
        ("a sum of nothing", plan(&[array([int(0), NULL])], &[], &[])),
        (
            "an item of a column that is not there",
            plan(&[item(0, 1)], &[ranged("t", 1, 0, 1)], &[]),
        ),
        ("a column that nothing names", plan(&[counted()], &[named("t", 1)], &[])),
        (
            "columns in another order",
            plan(&[item(1, 1), item(1, 0)], &[named("t", 1), named("u", 1)], &[]),
        ),
        ("a column twice", plan(&[item(1, 0), item(1, 1)], &[named("t", 1), named("t", 1)], &[])),
        ("a sum without a range", plan(&[item(0, 0)], &[named("t", 1)], &[])),
        ("a range of what is not summed", plan(&[item(1, 0)], &[ranged("t", 1, 0, 1)], &[])),
        ("a range from above to below", plan(&[item(0, 0)], &[ranged("t", 1, 1, 0)], &[])),
        ("a divisor of 0", plan(&[item(0, 0)], &[ranged("t", 0, 0, 1)], &[])),
        ("a divisor of 2^32", plan(&[item(0, 0)], &[ranged("t", 1 << 32, 0, 1)], &[])),
        ("a column without a name", plan(&[item(0, 0)], &[ranged("", 1, 0, 1)], &[])),
        (
            "a column's name of 65 bytes",
            plan(&[item(0, 0)], &[ranged(&"x".repeat(65), 1, 0, 1)], &[]),
        ),
        (
            "a column's name that a terminal obeys",
            plan(&[item(0, 0)], &[ranged("\u{1b}[2J", 1, 0, 1)], &[]),
        ),
        ("a comparison without a bound", on(&[array([int(0), NULL, NULL]), u.clone(), int(2)])),
        ("no numerator in another form", on(&[between(0, 2, 1), u.clone(), int(2)])),
        ("two operands left", on(&[t.clone(), u.clone()])),
        ("an AND of three, of two", on(&[t.clone(), u.clone(), int(3)])),
        ("an AND of one", on(&[t.clone(), u.clone(), int(2), int(1)])),
        ("an OR of one", on(&[t.clone(), u.clone(), int(2), int(-1)])),
        ("a NOT of nothing", on(&[int(0), t.clone(), u.clone(), int(2)])),
        ("an AND in an AND", on(&[t.clone(), u.clone(), int(2), t.clone(), int(2)])),
        ("an OR in an OR", on(&[t.clone(), u.clone(), int(-2), t.clone(), int(-2)])),
        (
            "a comparison of a column that is not there",
            on(&[t.clone(), u.clone(), between(2, 0, 1), int(3)]),
        ),
        ("17 steps deep", on(&[vec![t.clone(), u.clone(), int(2)], vec![int(0); 16]].concat())),
        ("999 ms", sum.with(8, int(999))),
        ("more than a week", sum.with(8, int(604_800_001))),
    ] {
        file.invalid(what, op, of_plan(&value.encode(), 1), "FieldOutOfRange");
    }
    file.valid(
        "16 steps deep",
        op,
        of_plan(&on(&[vec![t.clone(), u.clone(), int(2)], vec![int(0); 15]].concat()).encode(), 1),
    );
    for (what, value, error) in [
        ("version 2", sum.with(0, int(2)), "UnsupportedVersion"),
        ("items of null", sum.with(1, NULL), "UnexpectedType"),
        (
            "an item of three fields",
            sum.with(1, array([array([int(0), int(0), NULL])])),
            "UnexpectedType",
        ),
        (
            "a column of three fields",
            sum.with(2, array([array([text("t"), int(1), int(0)])])),
            "UnexpectedType",
        ),
        (
            "a column's name of bytes",
            sum.with(2, array([array([bytes(b"t"), int(1), int(0), int(1)])])),
            "UnexpectedType",
        ),
        ("a step that is a text", sum.with(3, array([text("x")])), "UnexpectedType"),
        (
            "a comparison of two fields",
            sum.with(3, array([array([int(0), int(0)])])),
            "UnexpectedType",
        ),
        (
            "ten fields",
            Value::Array([&sum.clone().elements()[..], &[NULL]].concat()),
            "UnexpectedType",
        ),
        ("no array", int(1), "UnexpectedType"),
    ] {
        file.invalid(what, op, of_plan(&value.encode(), 1), error);
    }
    file.mutate("cut short", op, of_plan(&encoded(all), 1), "bytes", &[]);
    file.invalid(
        "a byte behind it",
        op,
        of_plan(&[sum.encode(), vec![0]].concat(), 1),
        "TrailingBytes",
    );
    file
}

fn contributions() -> File {
    let mut file = File::new(
        "query/contributions.json",
        "What a source contributes to each slot: queries.md, section 4.",
    );
    let op = "query.contribution";
    let columns = ["temperature:Cel:i16/100", "humidity:%RH:u16/100"];
    let input = |plan: &Value, schema_of: &[&str], record: Option<&str>| json!({ "plan": hex::encode(plan.encode()), "schema": hex::encode(schema(schema_of)), "record": record });
    // The reading has a temperature of -12.34 and a humidity of 55.55 %, which are the numerators
    // -1234 and 5555.
    let reading = Some("fb2e15b3");
    let range = ranged("temperature", 100, -4000, 8500);
    let squares = plan(&[item(2, 0), item(3, 0)], std::slice::from_ref(&range), &[]);
    let wet = |low: i64| {
        plan(
            &[item(3, 0)],
            &[range.clone(), named("humidity", 100)],
            &[array([int(1), int(low), NULL])],
        )
    };
    let narrow = plan(&[item(0, 0)], &[ranged("temperature", 100, -1000, 1000)], &[]);
    let not = plan(&[counted()], &[named("humidity", 100)], &[between(0, 5555, 5555), int(0)]);
    let either = plan(
        &[counted()],
        &[named("humidity", 100), named("temperature", 100)],
        &[between(0, 0, 1), between(1, -1234, -1234), int(-2), between(0, 5000, 6000), int(2)],
    );
    for (what, plan, schema_of, record) in [
        ("a reading", &squares, &columns[..], reading),
        ("no reading", &squares, &columns[..], None),
        ("a reading that matches", &wet(5555), &columns[..], reading),
        ("a reading that does not", &wet(5556), &columns[..], reading),
        ("NOT", &not, &columns[..], reading),
        ("OR and AND", &either, &columns[..], reading),
        (
            "columns in another order, of another type and offset",
            &wet(5000),
            &["humidity:%RH:u32/100+5000", "temperature:Cel:i64/100"][..],
            Some("0000022bfffffffffffffb2e"),
        ),
        (
            "a range without zero, and no reading",
            &plan(&[item(0, 0)], &[ranged("humidity", 100, 10, 20)], &[]),
            &columns[..],
            None,
        ),
        ("out of range, but without a reading", &narrow, &columns[..], None),
        (
            "out of range, but no match",
            &plan(
                &[item(0, 0)],
                &[ranged("temperature", 100, 0, 1), named("humidity", 100)],
                &[between(1, 0, 1)],
            ),
            &columns[..],
            reading,
        ),
        ("out of range", &narrow, &columns[..], reading),
        (
            "just below the range",
            &plan(&[item(0, 0)], &[ranged("temperature", 100, -1233, 1000)], &[]),
            &columns[..],
            reading,
        ),
        (
            "just above the range",
            &plan(&[item(0, 0)], &[ranged("temperature", 100, -2000, -1235)], &[]),
            &columns[..],
            reading,
        ),
        (
            "the second column is out of range",
            &plan(
                &[item(0, 0), item(0, 1)],
                &[range.clone(), ranged("humidity", 100, 0, 5000)],
                &[],
            ),
            &columns[..],
            reading,
        ),
        (
            "a large range, with the counts in a slot of their own",
            &plan(&[item(0, 0)], &[ranged("temperature", 100, i64::MIN, i64::MAX)], &[]),
            &columns[..],
            reading,
        ),
    ] {
        file.valid(what, op, input(plan, schema_of, record));
    }
    for (what, plan, schema_of, record, error) in [
        ("no such column", &squares, &columns[1..], None, "UnknownColumn"),
        ("a column of floats", &squares, &["temperature:Cel:f32"][..], None, "NotExact"),
        ("a column of times", &squares, &["temperature::time"][..], None, "NotExact"),
        ("a nullable column", &squares, &["temperature:Cel:i16/100?"][..], None, "NotExact"),
        ("a column of timestamps", &squares, &["temperature::timestamp"][..], None, "NotExact"),
        ("another divisor", &squares, &["temperature:Cel:i16/10"][..], None, "DivisorMismatch"),
        (
            "a column that is not summed has another divisor",
            &wet(0),
            &["temperature:Cel:i16/100", "humidity:%RH:u16/10"][..],
            None,
            "DivisorMismatch",
        ),
    ] {
        file.invalid(what, op, input(plan, schema_of, record), error);
    }
    file
}

fn answers() -> File {
    let mut file = File::new(
        "query/answers.json",
        "From the totals of slots to results: queries.md, section 5.",
    );
    let op = "query.answer";
    // The totals are the count and then the values; the count is in the slot of the first value.
    let input = |plan: &Value, totals: &[u128], participants: u32| {
        let totals: Vec<String> = match totals {
            [count] => vec![count << 56],
            [count, first, rest @ ..] => [&[(count << 56) + first], rest].concat(),
            [] => Vec::new(),
        }
        .iter()
        .map(u128::to_string)
        .collect();
        json!({ "plan": hex::encode(plan.encode()), "totals": totals, "participants": participants, "ring": 5 })
    };
    let of = |divisor: i64, low: i64, high: i64| {
        let items: Vec<Value> =
            [0, 1, 2, 3, 4].into_iter().map(|aggregate| item(aggregate, 0)).collect();
        plan(&items, &[ranged("t", divisor, low, high)], &[])
    };
    let (cents, thirds, binary) = (of(100, -4000, 8500), of(3, -10, 10), of(1024, 0, 1 << 20));
    let sums = plan(&[item(0, 0)], &[ranged("t", 100, -4000, 8500)], &[]);
    let large = of(1, 0, (1 << 32) - 1);
    for (what, plan, totals, participants) in [
        ("two readings", &cents, &[2, 2 * 4000 + 5357, 14_350_009][..], 2),
        ("two of three, where one did not match", &cents, &[2, 3 * 4000 + 5357, 14_350_009][..], 3),
        ("none of three", &cents, &[0, 12_000, 0][..], 3),
        ("nobody", &cents, &[0, 0, 0][..], 0),
        ("below zero", &cents, &[3, 3 * 4000 - 301, 30_201][..], 3),
        ("thirds", &thirds, &[2, 2 * 10 + 5, 17][..], 2),
        ("a scale of ten digits", &binary, &[3, 1_000_003, 1_000_000_000_009][..], 3),
        ("a scale of one", &of(1, 0, 10), &[2, 5, 13][..], 2),
        ("a mean halfway above an even digit", &cents, &[128, 128 * 4000 + 4, 4][..], 128),
        ("a mean halfway above an odd digit", &cents, &[128, 128 * 4000 + 12, 12][..], 128),
        ("a mean halfway, below zero", &cents, &[128, 128 * 4000 - 12, 12][..], 128),
        (
            "a root halfway above an even digit",
            &of(1, -10, 10),
            &[640_000, 6_400_000, 1][..],
            640_000,
        ),
        (
            "a root halfway above an odd digit",
            &of(1, -10, 10),
            &[640_000, 6_400_000, 9][..],
            640_000,
        ),
        ("a sum alone", &sums, &[2, 7900][..], 2),
        ("a sum of zero has no sign", &sums, &[2, 8000][..], 2),
        ("a sum of the least", &sums, &[2, 0][..], 2),
        (
            "a million sources at the largest value",
            &large,
            &[
                1_000_000,
                1_000_000 * ((1 << 32) - 1),
                1_000_000 * ((1 << 32) - 1) * ((1 << 32) - 1),
            ][..],
            1_000_000,
        ),
        (
            "zero and the largest value",
            &large,
            &[2, (1 << 32) - 1, ((1 << 32) - 1) * ((1 << 32) - 1)][..],
            2,
        ),
        ("a sum, and a reading outside", &sums, &[1 + (1 << 20), 3 * 4000 + 7][..], 3),
    ] {
        file.valid(what, op, input(plan, totals, participants));
    }
    // The means and roots of these numerators need rounding.
    for count in [3_u128, 7, 11, 16, 128, 625] {
        let numerators = (0..count).map(|i| (i * i * 37) % 8500);
        let (sum, squares) =
            numerators.fold((0, 0), |(sum, squares), v| (sum + v, squares + v * v));
        let totals = [count, sum + 4000 * count, squares];
        file.valid(
            format!("{count} readings"),
            op,
            input(&cents, &totals, u32::try_from(count).unwrap()),
        );
    }
    for (what, plan, totals, participants, error) in [
        ("a total is missing", &cents, &[2, 13_357][..], 2, "WrongSlotCount"),
        ("no totals", &cents, &[][..], 2, "WrongSlotCount"),
        ("a total too many", &cents, &[2, 13_357, 14_350_009, 0][..], 2, "WrongSlotCount"),
        (
            "more readings than participants",
            &cents,
            &[3, 13_357, 14_350_009][..],
            2,
            "SumOutOfRange",
        ),
        (
            "more readings outside than participants",
            &sums,
            &[3 << 20, 8000][..],
            2,
            "SumOutOfRange",
        ),
        (
            "more readings, and readings outside, than participants",
            &sums,
            &[2 + (1 << 20), 8000][..],
            2,
            "SumOutOfRange",
        ),
        ("a sum above its readings", &sums, &[1, 2 * 4000 + 8501][..], 2, "Inconsistent"),
        ("more than all can contribute", &sums, &[2, 25_001][..], 2, "SumOutOfRange"),
        ("anything of nobody", &sums, &[0, 1][..], 0, "SumOutOfRange"),
        ("squares of nobody's", &cents, &[0, 8000, 1][..], 2, "Inconsistent"),
        ("a sum of no readings", &cents, &[0, 8001, 0][..], 2, "Inconsistent"),
        ("more than one reading can be", &cents, &[1, 16_501, 72_250_000][..], 2, "Inconsistent"),
        ("less than one reading can be", &cents, &[1, 3999, 16_008_001][..], 2, "Inconsistent"),
        (
            "a sum whose square is too large",
            &cents,
            &[2, 13_357, 14_348_724][..],
            2,
            "Inconsistent",
        ),
        (
            "squares above what readings can have",
            &cents,
            &[1, 8001, 72_250_001][..],
            2,
            "Inconsistent",
        ),
        (
            "a mean above the range, without squares",
            &plan(&[item(2, 0)], &[ranged("t", 1, 0, 9)], &[]),
            &[1, 10][..],
            2,
            "Inconsistent",
        ),
        (
            "a mean below the range, without squares",
            &plan(&[item(2, 0)], &[ranged("t", 1, 5, 9)], &[]),
            &[2, 9][..],
            2,
            "Inconsistent",
        ),
    ] {
        file.invalid(what, op, input(plan, totals, participants), error);
    }
    file
}
