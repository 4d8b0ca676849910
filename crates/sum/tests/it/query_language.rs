//! Tests of the query language (spec/queries.md, sections 1 to 3): the messages about mistakes, the
//! limits, and the canonical text and encoding. query.rs tests the answers.

use moteseal_core::Digest;
use moteseal_core::cbor::DecodeError;
use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_sum::query::{MAX_PLAN, MAX_SLOTS, MAX_TEXT, Plan, QueryId};
use proptest::prelude::*;

fn encode(fields: &[Field<'_>]) -> Vec<u8> {
    Schema::encode(fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

/// Returns the encoded schema that the tables of mistakes use.
fn weather() -> Vec<u8> {
    let columns = [
        "temperature:Cel:i16/100",
        "humidity:%RH:u16/100",
        "light:lx:f32",
        "at::time",
        "room temp:Cel:i8",
        "n::u64",
        "from::u8",
        "dew point:Cel:i16/100?",
        "open::bool",
    ];
    encode(&columns.map(|column| Field::parse(column).unwrap()))
}

fn encoded(plan: &Plan<'_>) -> Vec<u8> {
    plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()
}

// ------------------------------------------------------------------ messages about mistakes

fn mistake(text: &str) -> String {
    let schema = weather();
    let schema = Schema::decode(&schema).unwrap();
    Plan::parse(text, &schema).map(|plan| plan.to_string()).unwrap_err().named().to_string()
}

#[test]
fn reports_a_mistake_with_its_column_and_a_remedy() {
    for (query, expected) in MISTAKES {
        assert_eq!(mistake(query), *expected, "{query}");
    }
}

const MISTAKES: &[(&str, &str)] = &[
    ("", "UnexpectedToken: column 1: expected SELECT, but the query ends here"),
    (
        "SELEC AVG(temperature) FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 1: expected SELECT, found SELEC",
    ),
    (
        "SELECT FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 8: expected an aggregate such as SUM, COUNT, AVG or MEDIAN, found FROM",
    ),
    (
        "SELECT QUANTILE(temperature) FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 28: expected a comma and a number from 0 to 1, found )",
    ),
    (
        "SELECT QUANTILE(temperature, 1.5) FROM sensors EPOCH DURATION 5s",
        "RankOutOfRange: column 30: a quantile is from 0 to 1 with at most four digits after the point, such as 0.95",
    ),
    (
        "SELECT MEDIAN(temperature), QUANTILE(temperature, 0.5) FROM sensors EPOCH DURATION 5s",
        "DuplicateItem: column 29: this is already selected; remove it",
    ),
    (
        "SELECT AVG(temperature) FROM sensors BINS 16 EPOCH DURATION 5s",
        "NoBins: column 38: nothing in this query has bins; select HISTOGRAM, QUANTILE, MEDIAN, MIN or MAX, or remove BINS",
    ),
    (
        "SELECT MEDIAN(temperature) FROM sensors BINS 65 EPOCH DURATION 5s",
        "BinsOutOfRange: column 46: a column has 2 to 64 bins",
    ),
    (
        "SELECT COUNT(*) FROM sensors GROUP BY humidity (1.005) EPOCH DURATION 5s",
        "NotAValue: column 49: no value of the column is 1.005",
    ),
    (
        "SELECT COUNT(*) FROM sensors GROUP BY n (1, 2, 1.0) EPOCH DURATION 5s",
        "DuplicateValue: column 48: this value is already in the list; remove it",
    ),
    (
        "SELECT COUNT(*) FROM sensors GROUP BY n (0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16) EPOCH DURATION 5s",
        "TooManyGroups: column 80: a query has at most 16 groups; use two queries",
    ),
    (
        "SELECT COUNT(*) FROM sensors GROUP BY n EPOCH DURATION 5s",
        "UnexpectedToken: column 41: expected ( and the values of the groups, found EPOCH",
    ),
    (
        "SELECT MAX(temperature) FROM sensors EPSILON 0.5 EPOCH DURATION 5s",
        "NoNoisyForm: column 46: VARIANCE, STDDEV, MIN and MAX have no form with noise; remove them or EPSILON",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPSILON 5 EPOCH DURATION 5s",
        "EpsilonOutOfRange: column 38: an epsilon is from 0.001 to 4 with at most three digits after the point, and about 0.02 or more for each aggregate",
    ),
    (
        "SELECT temperature FROM sensors EPOCH DURATION 5s",
        "UnknownAggregate: column 8: there is no aggregate temperature; use SUM, COUNT, AVG, VARIANCE, STDDEV, MIN, MAX, MEDIAN, QUANTILE or HISTOGRAM",
    ),
    (
        "SELECT MODE(temperature) FROM sensors EPOCH DURATION 5s",
        "UnknownAggregate: column 8: there is no aggregate MODE; use SUM, COUNT, AVG, VARIANCE, STDDEV, MIN, MAX, MEDIAN, QUANTILE or HISTOGRAM",
    ),
    (
        "SELECT 5 FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 8: expected an aggregate such as SUM, COUNT, AVG or MEDIAN, found 5",
    ),
    (
        "SELECT SUM(*) FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 12: expected the name of a column, found *",
    ),
    (
        "SELECT AVG temperature FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 12: expected ( and the name of a column, found temperature",
    ),
    (
        "SELECT AVG(temperature FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 24: expected ), found FROM",
    ),
    (
        "SELECT AVG(temprature) FROM sensors EPOCH DURATION 5s",
        "UnknownColumn: column 12: there is no column temprature; the columns are temperature, humidity, \"room temp\", n, \"from\"",
    ),
    (
        "SELECT AVG(Temperature) FROM sensors EPOCH DURATION 5s",
        "UnknownColumn: column 12: there is no column Temperature; the columns are temperature, humidity, \"room temp\", n, \"from\"",
    ),
    (
        "SELECT COUNT(not) FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 14: expected the name of a column, found not",
    ),
    (
        "SELECT AVG(from) FROM sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 12: expected the name of a column, in double quotes because it is a keyword, found from",
    ),
    (
        "SELECT AVG(room temp) FROM sensors EPOCH DURATION 5s",
        "UnknownColumn: column 12: there is no column room; the columns are temperature, humidity, \"room temp\", n, \"from\"",
    ),
    (
        "SELECT AVG(\"room temp) FROM sensors EPOCH DURATION 5s",
        "Unterminated: column 12: the quote that opens here is not closed",
    ),
    (
        "SELECT AVG(light) FROM sensors EPOCH DURATION 5s",
        "NotExact: column 12: light holds floats, whose sums are not exact; seal it as a scaled integer, such as i16/100",
    ),
    (
        "SELECT AVG(at) FROM sensors EPOCH DURATION 5s",
        "NotNumeric: column 12: at is the time of a reading; use a column of measurements",
    ),
    (
        "SELECT AVG(\"dew point\") FROM sensors EPOCH DURATION 5s",
        "NotExact: column 12: \"dew point\" may be null, and private sums need a value in every reading; seal it in a column that is not nullable",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE open = 1 EPOCH DURATION 5s",
        "NotNumeric: column 36: open is of type bool, which has no sums; use a column of integers",
    ),
    (
        "SELECT AVG(temperature), COUNT(*), avg(temperature) FROM sensors EPOCH DURATION 5s",
        "DuplicateItem: column 36: this is already selected; remove it",
    ),
    (
        "SELECT COUNT(*) sensors EPOCH DURATION 5s",
        "UnexpectedToken: column 17: expected a comma or FROM sensors, found sensors",
    ),
    (
        "SELECT COUNT(*) FROM motes EPOCH DURATION 5s",
        "UnexpectedToken: column 22: expected sensors, found motes",
    ),
    (
        "SELECT COUNT(*) FROM sensors",
        "DurationMissing: column 29: the epoch duration is missing; end the query with, for example, EPOCH DURATION 30s",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity > 40",
        "DurationMissing: column 49: the epoch duration is missing; end the query with, for example, EPOCH DURATION 30s",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION",
        "DurationMissing: column 44: the epoch duration is missing; end the query with, for example, EPOCH DURATION 30s",
    ),
    (
        "SELECT COUNT(*) FROM sensors GROUP BY room EPOCH DURATION 5s",
        "UnknownColumn: column 39: there is no column room; the columns are temperature, humidity, \"room temp\", n, \"from\"",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH 5s",
        "UnexpectedToken: column 36: expected DURATION, found 5",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 0",
        "DurationOutOfRange: column 45: an epoch lasts 1s to 7d; write, for example, EPOCH DURATION 30s",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 0s",
        "DurationOutOfRange: column 45: an epoch lasts 1s to 7d; write, for example, EPOCH DURATION 30s",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 999ms",
        "DurationOutOfRange: column 45: an epoch lasts 1s to 7d; write, for example, EPOCH DURATION 30s",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 8d",
        "DurationOutOfRange: column 45: an epoch lasts 1s to 7d; write, for example, EPOCH DURATION 30s",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 99999999999999999999s",
        "DurationOutOfRange: column 45: an epoch lasts 1s to 7d; write, for example, EPOCH DURATION 30s",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 1.5s",
        "UnexpectedToken: column 45: expected a whole number and its unit, such as 30s, found 1.5",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 5 weeks",
        "UnexpectedToken: column 47: expected a unit of time: ms, s, m, h or d, found weeks",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 5s;",
        "UnknownCharacter: column 47: ';' is not part of the query language; put a column name that contains it in double quotes",
    ),
    (
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 5s LIMIT 1",
        "UnexpectedToken: column 48: expected the end of the query, found LIMIT",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE EPOCH DURATION 5s",
        "UnexpectedToken: column 36: expected a column, a number, NOT or (, found EPOCH",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity EPOCH DURATION 5s",
        "UnexpectedToken: column 45: expected <, <=, >, >=, =, != or BETWEEN, found EPOCH",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity > EPOCH DURATION 5s",
        "UnexpectedToken: column 47: expected a number, found EPOCH",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity > temperature EPOCH DURATION 5s",
        "UnexpectedToken: column 47: expected a number, found temperature",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity = 'wet' EPOCH DURATION 5s",
        "NotNumeric: column 47: columns hold numbers, not text; compare with a number",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE 'wet' = humidity EPOCH DURATION 5s",
        "NotNumeric: column 36: columns hold numbers, not text; compare with a number",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE room = 'kitchen' EPOCH DURATION 5s",
        "UnknownColumn: column 36: there is no column room; the columns are temperature, humidity, \"room temp\", n, \"from\"",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE light > 5 EPOCH DURATION 5s",
        "NotExact: column 36: light holds floats, whose sums are not exact; seal it as a scaled integer, such as i16/100",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE 40 < 50 EPOCH DURATION 5s",
        "UnexpectedToken: column 41: expected the name of a column, found 50",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity = 1e3 EPOCH DURATION 5s",
        "UnexpectedToken: column 48: expected AND, OR, GROUP BY, BINS, EPSILON or EPOCH DURATION, found e3",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity BETWEEN 40 OR 50 EPOCH DURATION 5s",
        "UnexpectedToken: column 56: expected AND, found OR",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity > --5 EPOCH DURATION 5s",
        "UnexpectedToken: column 48: expected a number, found -",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity > 99999999999999999999 EPOCH DURATION 5s",
        "NumberOutOfRange: column 47: 99999999999999999999 has too many digits for this column; shorten it",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE n > 9223372036854775807 EPOCH DURATION 5s",
        "NumberOutOfRange: column 40: 9223372036854775807 has too many digits for this column; shorten it",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity = 0.000000000000000000000000000000000000001 EPOCH DURATION 5s",
        "NumberOutOfRange: column 47: 0.000000000000000000000000000000000000001 has too many digits for this column; shorten it",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE (humidity > 5 EPOCH DURATION 5s",
        "UnexpectedToken: column 50: expected AND, OR or ), found EPOCH",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity > 5) EPOCH DURATION 5s",
        "UnexpectedToken: column 48: expected AND, OR, GROUP BY, BINS, EPSILON or EPOCH DURATION, found )",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity > 5 % EPOCH DURATION 5s",
        "UnknownCharacter: column 49: '%' is not part of the query language; put a column name that contains it in double quotes",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE humidity > 5 AND\u{1b}[2J EPOCH DURATION 5s",
        "UnknownCharacter: column 52: '\\u{1b}' is not part of the query language; put a column name that contains it in double quotes",
    ),
    (
        "SELECT COUNT(*) FROM sensors WHERE \"état\u{7}\" > 5 EPOCH DURATION 5s",
        "UnknownColumn: column 36: there is no column \"état\\u{7}\"; the columns are temperature, humidity, \"room temp\", n, \"from\"",
    ),
];

#[test]
fn an_opaque_stream_can_only_be_counted() {
    let parse = |text| {
        Plan::parse(text, &Schema::OPAQUE)
            .map(|plan| plan.to_string())
            .map_err(|error| error.named().to_string())
    };
    assert_eq!(
        parse("select count ( * ) from SENSORS epoch duration 60 s").unwrap(),
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 1m"
    );
    assert_eq!(
        parse("SELECT AVG(t) FROM sensors EPOCH DURATION 1m").unwrap_err(),
        "NotNumeric: column 12: the stream has no columns: its records are opaque; seal it with a schema, or use COUNT(*)"
    );
    let floats = encode(&[Field::parse("x::f64").unwrap()]);
    let floats = Schema::decode(&floats).unwrap();
    assert_eq!(
        Plan::parse("SELECT AVG(t) FROM sensors EPOCH DURATION 1m", &floats)
            .unwrap_err()
            .named()
            .to_string(),
        "UnknownColumn: column 12: there is no column t; no column can be summed"
    );
}

#[test]
fn rejects_a_query_at_the_place_where_it_exceeds_a_limit() {
    let fields: Vec<String> = (0..9).map(|at| format!("c{at}")).collect();
    let bytes =
        encode(&fields.iter().map(|name| Field::new(name, "", FieldType::U8)).collect::<Vec<_>>());
    let schema = Schema::decode(&bytes).unwrap();
    let found = |text: &str| {
        let error = Plan::parse(text, &schema).map(|plan| plan.to_string()).unwrap_err();
        (error.name(), error.column)
    };
    let end = " EPOCH DURATION 1s";
    assert_eq!(
        found(&format!("SELECT COUNT(*) FROM sensors{}{end}", " ".repeat(MAX_TEXT))),
        ("QueryTooLong", 1)
    );

    let items: Vec<String> = ["SUM", "AVG", "STDDEV"]
        .iter()
        .flat_map(|of| fields[..6].iter().map(move |c| format!("{of}({c})")))
        .collect();
    let sixteen = format!("SELECT {}", items[..16].join(","));
    assert!(Plan::parse(&format!("{sixteen} FROM sensors{end}"), &schema).is_ok());
    assert_eq!(
        found(&format!("{sixteen},COUNT(*) FROM sensors{end}")),
        ("TooManyItems", sixteen.len() + 2)
    );

    let columns: Vec<String> = fields.iter().map(|column| format!("{column}>0")).collect();
    let eight = format!("SELECT COUNT(*) FROM sensors WHERE {}", columns[..8].join(" OR "));
    assert!(Plan::parse(&format!("{eight}{end}"), &schema).is_ok());
    assert_eq!(found(&format!("{eight} OR c8>0{end}")), ("TooManyColumns", eight.len() + 5));

    // 31 comparisons and the AND that joins them are 32 steps, the maximum. Another comparison
    // exceeds it.
    let steps = format!("SELECT COUNT(*) FROM sensors WHERE {}", ["c0>0"; 31].join(" AND "));
    assert!(Plan::parse(&format!("{steps}{end}"), &schema).is_ok());
    assert_eq!(found(&format!("{steps} AND c0>0{end}")).0, "TooManySteps");

    let nested = |depth: usize| {
        format!(
            "SELECT COUNT(*) FROM sensors WHERE {}c0>0{}{end}",
            "(".repeat(depth),
            ")".repeat(depth)
        )
    };
    assert!(Plan::parse(&nested(16), &schema).is_ok());
    assert_eq!(found(&nested(17)), ("TooDeep", "SELECT COUNT(*) FROM sensors WHERE ".len() + 18));
    assert_eq!(found(&nested(8000)).0, "TooDeep");
    // Each pair of parentheses around an OR of ANDs adds two levels.
    let tree = |depth: usize| {
        let inner = (0..depth)
            .fold("c0>0".to_owned(), |inner, _| format!("(c0=1 AND c0=2 OR {inner} AND c0=3)"));
        format!("SELECT COUNT(*) FROM sensors WHERE {inner}{end}")
    };
    assert!(Plan::parse(&tree(5), &schema).is_ok());
    assert_eq!(
        found(&format!("SELECT COUNT(*) FROM sensors WHERE {}c0>0{end}", "NOT ".repeat(17))).0,
        "TooDeep"
    );
}

#[test]
fn the_largest_plan_fits_its_limits_and_its_text_parses_back() {
    // The names consist mostly of quotes, which are doubled in the text, and the columns have the
    // finest scales.
    let names: Vec<String> = (0..8).map(|at| format!("{}{at}", "\"".repeat(63))).collect();
    let fields: Vec<Field<'_>> = names
        .iter()
        .map(|name| Field::new(name, "", FieldType::I64).scaled(u32::MAX - 1, 0))
        .collect();
    let bytes = encode(&fields);
    let schema = Schema::decode(&bytes).unwrap();
    let quoted = |at: usize| format!("\"{}{at}\"", "\"".repeat(126));
    let items: Vec<String> = ["VARIANCE", "STDDEV"]
        .iter()
        .flat_map(|of| (0..8).map(move |at| format!("{of}({})", quoted(at))))
        .collect();
    let steps: Vec<String> = (0..31)
        .map(|at| format!("{} BETWEEN -2147483650.9 AND 2147483650.9", quoted(at % 8)))
        .collect();
    let text = format!(
        "SELECT {} FROM sensors WHERE {} EPOCH DURATION 604799999ms",
        items.join(", "),
        steps.join(" AND ")
    );
    assert_eq!(
        Plan::parse(&text, &schema).map(|plan| plan.to_string()).unwrap_err().named().to_string(),
        format!(
            "NumberOutOfRange: column {}: -2147483650.9 has too many digits for this column; shorten it",
            text.find("-2147").unwrap() + 1
        )
    );
    let text = text.replace("50.9", "48.9");
    let plan = Plan::parse(&text, &schema).unwrap();
    assert!(encoded(&plan).len() <= MAX_PLAN && plan.to_string().len() <= MAX_TEXT);
    assert_eq!(Plan::parse(&plan.to_string(), &schema), Ok(plan));
    assert_eq!(Plan::decode(&encoded(&plan)), Ok(plan));
    assert_eq!(plan.slots().count(), MAX_SLOTS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn never_panics_on_any_text(text in "[ -~é\n]{0,80}", start in 0usize..5) {
        let schema = weather();
        let schema = Schema::decode(&schema).unwrap();
        let starts = ["", "SELECT ", "SELECT COUNT(*) FROM sensors ", "SELECT COUNT(*) FROM sensors WHERE ", "SELECT COUNT(*) FROM sensors EPOCH DURATION "];
        let text = format!("{}{text}", starts[start]);
        if let Err(error) = Plan::parse(&text, &schema) {
            prop_assert!(error.column <= text.chars().count() + 1);
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}

// ------------------------------------------------------------------ canonical text and encoding

#[test]
fn rounds_comparisons_to_the_scale_of_the_column() {
    let schema = weather();
    let schema = Schema::decode(&schema).unwrap();
    let shown = |predicate: &str| {
        let text = format!("SELECT COUNT(*) FROM sensors WHERE {predicate} EPOCH DURATION 1s");
        let plan = Plan::parse(&text, &schema)
            .map_err(|error| error.named().to_string())
            .unwrap()
            .to_string();
        plan.strip_prefix("SELECT COUNT(*) FROM sensors WHERE ")
            .and_then(|rest| rest.strip_suffix(" EPOCH DURATION 1s"))
            .unwrap()
            .to_owned()
    };
    let cases = [
        ("humidity > 40", "humidity >= 40.01"),
        ("humidity > 40.005", "humidity >= 40.01"),
        ("humidity >= 40.005", "humidity >= 40.01"),
        ("humidity < 40", "humidity <= 39.99"),
        ("humidity <= 40.009", "humidity <= 40.00"),
        ("40 < humidity", "humidity >= 40.01"),
        ("40 >= humidity", "humidity <= 40.00"),
        ("temperature > -0.005", "temperature >= 0.00"),
        ("temperature < -0.005", "temperature <= -0.01"),
        ("temperature >= +7", "temperature >= 7.00"),
        ("humidity = 40", "humidity = 40.00"),
        ("humidity <> 40", "NOT humidity = 40.00"),
        ("40.0 != humidity", "NOT humidity = 40.00"),
        ("humidity = 40.001", "humidity BETWEEN 1 AND 0"),
        ("humidity BETWEEN 50 AND 40", "humidity BETWEEN 1 AND 0"),
        ("humidity BETWEEN 40 AND 40", "humidity = 40.00"),
        (
            "humidity BETWEEN 39.999 AND 50.001 AND n > 1",
            "humidity BETWEEN 40.00 AND 50.00 AND n >= 2",
        ),
        (
            "\"humidity\" = 1 and \"room temp\" = 2 or not n = 3",
            "humidity = 1.00 AND \"room temp\" = 2 OR NOT n = 3",
        ),
        (
            "(n=1 OR n=2) AND NOT (n=3 AND (n=4 AND n=5))",
            "(n = 1 OR n = 2) AND NOT (n = 3 AND n = 4 AND n = 5)",
        ),
        ("NOT NOT ((n=1))", "NOT NOT n = 1"),
    ];
    for (written, expected) in cases {
        assert_eq!(shown(written), expected, "{written}");
    }
}

#[test]
fn encodes_as_specified() {
    let bytes = encode(
        &["temperature:Cel:i16/100", "humidity:%RH:u16/100"]
            .map(|column| Field::parse(column).unwrap()),
    );
    let schema = Schema::decode(&bytes).unwrap();
    let text = "SELECT AVG(temperature), COUNT(*) FROM sensors WHERE NOT humidity > 40 OR humidity = 1 EPOCH DURATION 30s";
    let mut plan = Plan::parse(text, &schema).unwrap();
    assert_eq!(plan.narrow("temperature", "-40", "85"), Ok(true));
    // [1, [[2, 0], [1, null]], [["temperature", 100, -4000, 8500], ["humidity", 100]], [[1, 4001,
    // null], 0, [1, 100, 100], -2], null, 0, 0, 0, 30000]
    let expected = "890182820200820 1f682846b74656d706572617475726518 64390f9f19213482 6868756d696469747918 6484830 1190fa1f600830118641864 21f600000019 7530";
    assert_eq!(hex::encode(encoded(&plan)), expected.replace(' ', ""));
    let id = QueryId::of(&Digest([1; 32]), &[2; 16], &encoded(&plan));
    let whole = Digest::of(&[b"moteseal/1/query", &[1; 32], &[2; 16], &encoded(&plan)]);
    assert_eq!(
        (&id.0[..], id.reference().to_be_bytes()),
        (&whole.0[..16], [id.0[0], id.0[1], id.0[2], id.0[3]])
    );
}

/// Checks the order in which spec/queries.md, sections 1.3 and 3.2, reports failures: the other
/// verifiers must report the same ones.
#[test]
fn reports_the_first_of_several_mistakes() {
    let bytes = weather();
    let schema = Schema::decode(&bytes).unwrap();
    let count = |rest: &str| format!("SELECT COUNT(*) FROM sensors {rest}");
    let many = |comparisons: usize| {
        count(&format!("WHERE {}", vec!["humidity>0"; comparisons].join(" AND ")))
    };
    for (text, expected) in [
        // The next token is read as soon as a token is accepted.
        ("SELECT COUNT(*), COUNT(*) ?".into(), "UnknownCharacter"),
        (count("EPOCH DURATION 0 ?"), "UnknownCharacter"),
        (count("EPOCH DURATION 0 w"), "DurationOutOfRange"),
        (count("EPOCH DURATION 4294967296 w"), "DurationOutOfRange"),
        (count("EPOCH DURATION 8d ?"), "DurationOutOfRange"),
        (count("EPOCH DURATION"), "DurationMissing"),
        (count("EPOCH"), "UnexpectedToken"),
        // The words of the language are ASCII: these begin with a long s and a dotless i.
        ("\u{17f}elect COUNT(*) FROM sensors EPOCH DURATION 1s".into(), "UnexpectedToken"),
        ("SELECT COUNT(*) FROM \u{17f}ensors EPOCH DURATION 1s".into(), "UnexpectedToken"),
        (count("EPOCH DURAT\u{131}ON 1s"), "UnexpectedToken"),
        // A numeral does not begin a word, and U+001C is not white space.
        (count("WHERE \u{b2} > 1 EPOCH DURATION 1s"), "UnknownCharacter"),
        (count("\u{1c}EPOCH DURATION 1s"), "UnknownCharacter"),
        // A step is counted where it is complete.
        (format!("{} AND", many(33)), "TooManySteps"),
        (format!("{} AND", many(32)), "UnexpectedToken"),
        (format!("{} OR OR", many(32)), "TooManySteps"),
        (format!("{} OR OR", many(31)), "UnexpectedToken"),
    ] {
        let error = Plan::parse(&text, &schema).map(|plan| plan.to_string()).unwrap_err();
        assert_eq!(error.name(), expected, "{text}");
    }
    // White space is permitted between the sign and the digits of a number.
    let spaced = count("WHERE temperature > - 5 EPOCH DURATION 1s");
    let plan = Plan::parse(&spaced, &schema).unwrap();
    assert_eq!(plan.to_string(), count("WHERE temperature >= -4.99 EPOCH DURATION 1s"));
    // A column of one element, and a number that is not its divisor.
    let plan = [0x89, 1, 0x81, 0x82, 1, 0, 0x82, 0x81, 0x61, b'a', 0x1b, 1, 0, 0, 0, 0, 0, 0, 0];
    let plan = [&plan[..], &[0x80, 0xf6, 0, 0, 0, 0x19, 3, 0xe8]].concat();
    assert_eq!(Plan::decode(&plan), Err(DecodeError::UnexpectedType));
}
