//! Tests of queries (spec/queries.md, sections 3 to 5). Random schemas, readings and queries are
//! compared with a naive evaluator that uses big rational numbers. Other tests check slots, motes,
//! and sums that no readings can have. query_language.rs tests the query language.

use crate::reference::{Query, Ratio, fixed, query, root};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_sum::query::{
    Answer, AnswerError, EPOCH_MS, FixedPoint, Histogram, MAX_PLAN, MAX_SLOTS, MAX_SOURCES,
    MAX_TEXT, Plan, RangeError, SlotKind, Value,
};
use num_bigint::BigInt;
use proptest::collection::vec;
use proptest::prelude::*;

fn encode(fields: &[Field<'_>]) -> Vec<u8> {
    Schema::encode(fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

/// Returns the encoded schema that the tests with known answers use.
fn weather() -> Vec<u8> {
    let columns = [
        "temperature:Cel:i16/100",
        "humidity:%RH:u16/100",
        "light:lx:f32",
        "at::time",
        "room temp:Cel:i8",
        "n::u64",
        "from::u8",
    ];
    encode(&columns.map(|column| Field::parse(column).unwrap()))
}

fn encoded(plan: &Plan<'_>) -> Vec<u8> {
    plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()
}

/// Returns a value as text. The numbers of a histogram have spaces between them.
fn shown(value: Value<Histogram<'_>>) -> String {
    let counts = |histogram: Histogram<'_>| {
        histogram.bins().map(|(_, count)| count.to_string()).collect::<Vec<_>>().join(" ")
    };
    value.with_histogram(counts).to_string()
}

// ------------------------------------------------------------------ the naive evaluator

fn check_against_naive_evaluator(query: &Query) {
    let (schema, text) = (encode(&query.fields()), query.text());
    let schema = Schema::decode(&schema).unwrap();
    let mut plan = Plan::parse(&text, &schema).map_err(|error| format!("{text}: {error}")).unwrap();
    for (name, least, greatest) in query.ranges() {
        plan.narrow(&name, &least, &greatest).unwrap();
    }
    let participants = u32::try_from(query.rows.len()).unwrap();
    if plan.slots().count() > MAX_SLOTS {
        assert!(
            plan.check_capacity(participants).is_err() && Plan::decode(&encoded(&plan)).is_err()
        );
        return;
    }
    round_trips(&plan, &schema, query);
    plan.fit(participants);
    assert_eq!(Plan::decode(&encoded(&plan)).as_ref(), Ok(&plan));

    let bound = plan.bind(&schema).unwrap();
    let mut totals = vec![0u128; plan.slots().count()];
    for row in &query.rows {
        let mut slots = [0; MAX_SLOTS];
        assert_eq!(bound.contribution(row.as_deref(), &mut slots), Ok(totals.len()));
        for ((total, slot), value) in totals.iter_mut().zip(plan.slots()).zip(slots) {
            assert!(value <= slot.most(), "{text}: {slot} of {value} is above {}", slot.most());
            *total = total.saturating_add(value);
        }
    }
    if plan.check_capacity(participants).is_err() {
        return;
    }
    let answer = plan.answer(&totals, participants, participants.div_ceil(5)).unwrap();
    let found: Vec<Option<String>> = answer.values().map(|value| value.map(shown)).collect();
    assert_eq!(found, query.expected(), "{text}");
    assert_eq!((answer.count() as usize, answer.outside() as usize), query.counts(), "{text}");
}

fn round_trips(plan: &Plan<'_>, schema: &Schema<'_>, query: &Query) {
    let bytes = encoded(plan);
    assert_eq!(Plan::decode(&bytes).as_ref(), Ok(plan));
    let text = plan.to_string();
    let mut again = Plan::parse(&text, schema).map_err(|error| format!("{text}: {error}")).unwrap();
    for (name, least, greatest) in query.ranges() {
        again.narrow(&name, &least, &greatest).unwrap();
    }
    assert_eq!((again.to_string(), encoded(&again)), (text, bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("MOTESEAL_QUERY_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3000)
    ))]

    #[test]
    fn answers_equal_the_naive_evaluators_to_the_last_digit(query in query()) {
        check_against_naive_evaluator(&query);
    }

    #[test]
    fn ignores_case_space_and_redundant_parentheses(query in query(), seed in any::<u64>()) {
        let schema = encode(&query.fields());
        let schema = Schema::decode(&schema).unwrap();
        let (text, disguised) = (query.text(), query.disguised(seed));
        let plan = Plan::parse(&text, &schema).unwrap();
        let other = Plan::parse(&disguised, &schema).map_err(|error| format!("{disguised}: {error}")).unwrap();
        prop_assert_eq!((encoded(&plan), plan.to_string()), (encoded(&other), other.to_string()), "{}", disguised);
    }

    #[test]
    fn rejects_a_changed_encoding_unless_it_is_that_of_another_plan(query in query(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<Option<prop::sample::Index>>()) {
        let schema = encode(&query.fields());
        let schema = Schema::decode(&schema).unwrap();
        let text = query.text();
        let mut bytes = encoded(&Plan::parse(&text, &schema).unwrap());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(plan) = Plan::decode(&bytes) {
            prop_assert_eq!(&encoded(&plan), &bytes);
            prop_assert!(plan.to_string().len() <= MAX_TEXT && EPOCH_MS.contains(&plan.epoch_ms()));
            plan.slots().for_each(|slot| assert!(slot.vmax < 1 << 127 && slot.shift <= 0));
        }
    }
}

// ------------------------------------------------------------------ known answers

/// Returns the part of the total of a first slot that is the number of readings.
fn counted(readings: u128) -> u128 {
    readings << 56
}

/// Returns the part of the total of a first slot that is the number of readings outside the ranges.
fn outside(readings: u128) -> u128 {
    readings << 76
}

/// Returns the answer to a query over one column `v` for these records.
fn answer(column: &str, select: &str, records: &[&[u8]]) -> Vec<Option<FixedPoint>> {
    let bytes = encode(&[Field::parse(column).unwrap()]);
    let schema = Schema::decode(&bytes).unwrap();
    let text = format!("SELECT {select} FROM sensors EPOCH DURATION 1s");
    let plan = Plan::parse(&text, &schema).unwrap();
    let bound = plan.bind(&schema).unwrap();
    let mut totals = vec![0; plan.slots().count()];
    for record in records {
        let mut slots = [0; MAX_SLOTS];
        bound.contribution(Some(record), &mut slots).unwrap();
        totals.iter_mut().zip(slots).for_each(|(total, slot)| *total += slot);
    }
    let participants = u32::try_from(records.len()).unwrap();
    let answer = plan.answer(&totals, participants, participants.div_ceil(5)).unwrap();
    let number = |value: Value<_>| match value {
        Value::Number(number) => number,
        other => panic!("{other:?} is not a number"),
    };
    answer.values().map(|value| value.map(number)).collect()
}

#[test]
fn rounds_half_to_even() {
    let mean = |records: &[&[u8]]| answer("v::i8", "AVG(v)", records)[0].unwrap().to_string();
    // A mean has four more digits than its column. 1/32 = 0.03125 and 3/32 = 0.09375 are exactly
    // between two such numbers, but 1/3 and 2/3 are not.
    let of = |first: u8, n: usize| -> Vec<Vec<u8>> {
        (0..n).map(|at| vec![if at == 0 { first } else { 0 }]).collect()
    };
    let means: Vec<String> =
        [(1u8, 32), (3, 32), (1, 3), (2, 3), (0xff, 32), (0xfd, 32), (0xff, 100_000)]
            .into_iter()
            .map(|(first, n)| {
                mean(&of(first, n).iter().map(|record| &record[..]).collect::<Vec<_>>())
            })
            .collect();
    assert_eq!(means, ["0.0312", "0.0938", "0.3333", "0.6667", "-0.0312", "-0.0938", "0.0000"]);
    // 63 readings are 0 and one reading is 1. Their variance is 63/4096 = 0.015380859375, whose
    // square root is 0.12401959...
    let one = of(1, 64);
    let one: Vec<&[u8]> = one.iter().map(|record| &record[..]).collect();
    let shown: Vec<String> = answer("v::u8", "VARIANCE(v), STDDEV(v)", &one)
        .iter()
        .map(|value| value.unwrap().to_string())
        .collect();
    assert_eq!(shown, ["0.0154", "0.1240"]);
    // Each of 1,024 readings is 1, -1 or 0. They are chosen so that the standard deviations are
    // 7/32 = 0.21875 and 9/32 = 0.28125. Both are exactly between two numbers with four digits
    // after the point.
    let deviation = |ones: usize, minus_ones: usize| {
        let records =
            [vec![&[1][..]; ones], vec![&[0xff]; minus_ones], vec![&[0]; 1024 - ones - minus_ones]]
                .concat();
        answer("v::i8", "STDDEV(v)", &records)[0].unwrap().to_string()
    };
    assert_eq!([deviation(41, 9), deviation(57, 25)], ["0.2188", "0.2812"]);
}

#[test]
fn results_have_a_fixed_number_of_places_more_than_their_columns() {
    let shown = |column: &str| {
        answer(column, "SUM(v), AVG(v), STDDEV(v), VARIANCE(v)", &[&[0], &[1]])
            .iter()
            .map(|value| value.unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(shown("v::u8"), ["1", "0.5000", "0.5000", "0.2500"]);
    assert_eq!(shown("v::u8/100"), ["0.01", "0.005000", "0.005000", "0.00002500"]);
    assert_eq!(
        shown("v::u8/512"),
        ["0.001953125", "0.0009765625000", "0.0009765625000", "0.0000009536743164062500"]
    );
    // If the column's values have no exact decimal form, the result has nine digits after the
    // point. The cases are the square root of 1/36, and numbers that are just above and just below
    // half of the ninth digit.
    assert_eq!(shown("v::u8/3"), ["0.333333333", "0.166666667", "0.166666667", "0.027777778"]);
    assert_eq!(shown("v::u8/1000000003")[1..], ["0.000000000", "0.000000000", "0.000000000"]);
    assert_eq!(shown("v::u8/999999999")[1..], ["0.000000001", "0.000000001", "0.000000000"]);
    // The column has the finest possible scale.
    assert_eq!(
        shown("v::u8/2147483648"),
        [
            "0.0000000004656612873077392578125",
            "0.00000000023283064365386962890625000",
            "0.00000000023283064365386962890625000",
            "0.000000000000000000054210108624275221700372640043497085571289062500"
        ]
    );
}

#[test]
fn the_largest_sums_on_the_finest_scale_are_exact() {
    for (column, places) in [
        ("v::u32/2147483648", Some(31)),
        ("v::u32/4294967295", None),
        ("v::u32", Some(0)),
        ("v::u32-4294967295", Some(0)),
    ] {
        let field = Field::parse(column).unwrap();
        let bytes = encode(&[field]);
        let schema = Schema::decode(&bytes).unwrap();
        let plan = Plan::parse(
            "SELECT SUM(v), AVG(v), VARIANCE(v), STDDEV(v) FROM sensors EPOCH DURATION 1s",
            &schema,
        )
        .unwrap();
        let sources = MAX_SOURCES;
        assert_eq!(plan.check_capacity(sources), Ok(()));
        // `far` sources read the numerator with the highest absolute value, and the others read 0.
        for far in [sources, sources / 2, sources - 1, 1] {
            let most = u128::from(u32::MAX);
            let (far, all) = (u128::from(far), u128::from(sources));
            let negative = field.offset < 0;
            // With a shift of -most, a source that reads the numerator 0 contributes `most`, and a
            // source that reads -most contributes 0.
            let total = if negative { (all - far) * most } else { far * most };
            let shown: Vec<String> = plan
                .answer(&[counted(all) + total, far * most * most], sources, 5)
                .unwrap()
                .values()
                .map(|value| shown(value.unwrap()))
                .collect();
            let (n, divisor) = (BigInt::from(all), BigInt::from(field.divisor));
            let sum: BigInt = BigInt::from(far * most) * if negative { -1 } else { 1 };
            let spread: BigInt = &n * BigInt::from(far * most * most) - sum.pow(2);
            let variance = Ratio::new(spread, (&n * &divisor).pow(2));
            let at = |exact: fn(u32) -> u32| places.map_or(9, exact);
            let expected = [
                fixed(&Ratio::new(sum.clone(), divisor.clone()), at(|places| places)),
                fixed(&Ratio::new(sum, &n * &divisor), at(|places| places + 4)),
                fixed(&variance, at(|places| 2 * places + 4)),
                root(&variance, at(|places| places + 4)),
            ];
            assert_eq!(shown, expected, "{far} of {column}");
        }
    }
}

#[test]
fn only_sum_and_count_are_defined_for_no_readings() {
    let found: Vec<Option<String>> =
        answer("v:V:u8/10", "SUM(v), COUNT(v), AVG(v), VARIANCE(v), STDDEV(v)", &[])
            .iter()
            .map(|value| value.map(|value| value.to_string()))
            .collect();
    assert_eq!(found, [Some("0.0".to_owned()), Some("0".to_owned()), None, None, None]);
    let sum = answer("v:V:i8/10", "SUM(v)", &[&[0xfb]])[0].unwrap();
    assert_eq!((sum.to_string().as_str(), sum.digits(), sum.places()), ("-0.5", Some(-5), 1));
}

// ------------------------------------------------------------------ slots and set-up

#[test]
fn slots_have_a_fixed_order_and_are_never_negative() {
    let schema = weather();
    let schema = Schema::decode(&schema).unwrap();
    let text = "SELECT SUM(humidity), STDDEV(temperature), SUM(temperature) FROM sensors WHERE n > 5 EPOCH DURATION 1s";
    let mut plan = Plan::parse(text, &schema).unwrap();
    let slots = |plan: &Plan<'_>| {
        assert!(plan.slots().enumerate().all(|(at, slot)| slot.has_counts == (at == 0)));
        plan.slots()
            .map(|slot| (slot.to_string(), slot.kind, slot.vmax, slot.shift))
            .collect::<Vec<_>>()
    };
    let humidity = ("the sum of humidity".to_owned(), SlotKind::Sum, 65535, 0);
    let squares = "the sum of squares of temperature".to_owned();
    assert_eq!(
        slots(&plan),
        [
            humidity.clone(),
            ("the sum of temperature".to_owned(), SlotKind::Sum, 65535, -32768),
            (squares.clone(), SlotKind::SumOfSquares, 32768 * 32768, 0)
        ]
    );
    // A column that the query only compares, or does not name, has no range that could be narrowed.
    assert_eq!(
        (plan.narrow("n", "0", "1"), plan.narrow("light", "0", "1")),
        (Ok(false), Ok(false))
    );
    assert_eq!(plan.narrow("temperature", "-40.004", "85.5"), Ok(true));
    assert_eq!(
        slots(&plan),
        [
            humidity,
            ("the sum of temperature".to_owned(), SlotKind::Sum, 12550, -4000),
            (squares, SlotKind::SumOfSquares, 8550 * 8550, 0)
        ]
    );
    for (least, greatest, expected) in [
        ("85.6", "90", RangeError::RangeEmpty),
        ("10", "-10", RangeError::RangeEmpty),
        ("", "5", RangeError::NotANumber),
        ("5", "1e3", RangeError::NotANumber),
        ("5", "5.", RangeError::NotANumber),
        ("-", "5", RangeError::NotANumber),
    ] {
        assert_eq!(
            plan.narrow("temperature", least, greatest),
            Err(expected),
            "{least} to {greatest}"
        );
    }
}

#[test]
fn set_up_rejects_a_sum_that_could_exceed_96_bits() {
    let bytes = encode(&["a::u32", "b::u64"].map(|column| Field::parse(column).unwrap()));
    let schema = Schema::decode(&bytes).unwrap();
    let check = |select: &str, narrow: Option<&str>, sources| {
        let text = format!("SELECT {select} FROM sensors EPOCH DURATION 1s");
        let mut plan = Plan::parse(&text, &schema).unwrap();
        narrow
            .into_iter()
            .for_each(|greatest| assert_eq!(plan.narrow("b", "0", greatest), Ok(true)));
        plan.check_capacity(sources).map_err(|error| error.named().to_string())
    };
    assert_eq!(check("VARIANCE(a)", None, MAX_SOURCES), Ok(()));
    assert_eq!(check("SUM(b)", None, MAX_SOURCES), Ok(()));
    assert_eq!(
        check("COUNT(*)", None, MAX_SOURCES + 1).unwrap_err(),
        "Overflow: a query has at most 1048575 sources, not 1048576"
    );
    assert_eq!(
        check("COUNT(*), STDDEV(b)", None, 1).unwrap_err(),
        "Overflow: the sum of squares of b over 1 sources can exceed its 96 bits; declare the range of the column's values"
    );
    // 2^16 * ((2^40 - 1)^2 + 1) = 2^96 - 2^57 + 2^17 is just below the limit of 2^96.
    assert_eq!(check("STDDEV(b)", Some("1099511627775"), 1 << 16), Ok(()));
    assert!(check("STDDEV(b)", Some("1099511627776"), 1 << 16).is_err());
    assert!(check("STDDEV(b)", Some("1099511627775"), (1 << 16) + 1).is_err());
}

#[test]
fn the_counts_share_the_slot_of_a_sum_that_leaves_room_for_them() {
    let bytes = encode(&["a::u16", "b::u64"].map(|column| Field::parse(column).unwrap()));
    let schema = Schema::decode(&bytes).unwrap();
    let slots = |select: &str, greatest: &str| {
        let text = format!("SELECT {select} FROM sensors EPOCH DURATION 1s");
        let mut plan = Plan::parse(&text, &schema).unwrap();
        plan.narrow("b", "0", greatest).unwrap();
        plan.slots().map(|slot| (slot.kind, slot.has_counts)).collect::<Vec<_>>()
    };
    let (counts, sum) = (SlotKind::Counts, SlotKind::Sum);
    assert_eq!(slots("COUNT(*)", "1"), [(SlotKind::Counters, false)]);
    assert_eq!(slots("SUM(a), COUNT(*)", "1"), [(sum, true)]);
    assert_eq!(slots("SUM(b)", "68719476735"), [(sum, true)]);
    assert_eq!(slots("SUM(b)", "68719476736"), [(counts, true), (sum, false)]);
    assert_eq!(slots("SUM(a), SUM(b)", "68719476736"), [(sum, true), (sum, false)]);
}

// ------------------------------------------------------------------ motes

#[test]
fn a_mote_binds_a_plan_only_to_columns_of_the_same_scale() {
    let bytes = weather();
    let schema = Schema::decode(&bytes).unwrap();
    let plan = Plan::parse(
        "SELECT AVG(temperature) FROM sensors WHERE humidity > 40 EPOCH DURATION 1s",
        &schema,
    )
    .unwrap();
    let bind = |columns: &[&str]| {
        let bytes =
            encode(&columns.iter().map(|column| Field::parse(column).unwrap()).collect::<Vec<_>>());
        let schema = Schema::decode(&bytes).unwrap();
        plan.bind(&schema).map(|_| ()).map_err(|error| error.named().to_string())
    };
    // The order, the width and the offset of columns do not change the numerators, so they may
    // differ from the querier's schema.
    assert_eq!(bind(&["humidity:%RH:u32/100", "x::u8", "temperature:Cel:u8/100-40"]), Ok(()));
    assert_eq!(
        bind(&["temperature:Cel:i16/100"]).unwrap_err(),
        "UnknownColumn: the query asks for humidity, which these records do not have"
    );
    assert_eq!(
        bind(&["temperature:Cel:i16/10", "humidity:%RH:u16/100"]).unwrap_err(),
        "DivisorMismatch: temperature has a different divisor in these records than in the query"
    );
    assert_eq!(
        bind(&["temperature:Cel:i16/100?", "humidity:%RH:u16/100"]).unwrap_err(),
        "NotExact: temperature is not a scaled integer without nulls in these records"
    );
    assert_eq!(
        bind(&["temperature:Cel:f32", "humidity:%RH:u16/100"]).unwrap_err(),
        "NotExact: temperature is not a scaled integer without nulls in these records"
    );
}

/// Finding C2 of the review: a device whose reading is outside the declared range answers like the
/// others.
#[test]
fn a_mote_counts_a_reading_outside_the_declared_range_and_adds_no_value() {
    let bytes =
        encode(&["t:Cel:i16/100", "h:%RH:u16/100"].map(|column| Field::parse(column).unwrap()));
    let schema = Schema::decode(&bytes).unwrap();
    let mut plan =
        Plan::parse("SELECT STDDEV(t) FROM sensors WHERE h > 40 EPOCH DURATION 1s", &schema)
            .unwrap();
    plan.narrow("t", "-10", "50").unwrap();
    let bound = plan.bind(&schema).unwrap();
    let record = |t: i16, h: u16| [t.to_be_bytes(), h.to_be_bytes()].concat();
    let contribution = |record: Option<&[u8]>, room: usize| {
        let mut slots = [7; 4];
        bound
            .contribution(record, &mut slots[..room])
            .map(|count| slots[..count].to_vec())
            .map_err(|error| error.named().to_string())
    };
    assert_eq!(contribution(Some(&record(-1000, 4001)), 2), Ok(vec![counted(1), 1_000_000]));
    assert_eq!(contribution(Some(&record(5000, 4001)), 2), Ok(vec![counted(1) + 6000, 25_000_000]));
    // The contribution to a sum without a value is 0 minus the shift.
    let without_a_value = vec![outside(1) + 1000, 0];
    assert_eq!(contribution(Some(&record(5001, 4001)), 2), Ok(without_a_value.clone()));
    assert_eq!(contribution(Some(&record(-1001, 4001)), 2), Ok(without_a_value));
    // A reading that the query does not select contributes the same as no reading.
    assert_eq!(contribution(Some(&record(5001, 4000)), 2), Ok(vec![1000, 0]));
    assert_eq!(contribution(None, 4), Ok(vec![1000, 0]));
    assert_eq!(
        contribution(Some(&record(0, 4001)[..3]), 2).unwrap_err(),
        "RecordTooShort: the record ends before a column of the query"
    );
    assert_eq!(
        contribution(None, 1).unwrap_err(),
        "BufferTooSmall: the buffer is too small for all slots of the query"
    );
}

// ------------------------------------------------------------------ sums that no readings have

#[test]
fn rejects_sums_that_no_readings_have() {
    let bytes = encode(&[Field::parse("t::i8").unwrap()]);
    let schema = Schema::decode(&bytes).unwrap();
    let parse = |text| Plan::parse(text, &schema).unwrap();
    let plan = parse("SELECT VARIANCE(t) FROM sensors EPOCH DURATION 1s");
    let of = |answer: Answer<'_>| answer.values().flatten().map(shown).collect::<Vec<_>>();
    let answer = |totals: &[u128], participants| {
        plan.answer(totals, participants, participants.div_ceil(5)).map(of)
    };
    // The readings 3 and 5 have the count 2, the sum 8 (264 with two shifts of 128) and the sum of
    // squares 34.
    assert_eq!(answer(&[counted(2) + 264, 34], 2).unwrap(), ["1.0000"]);
    for (totals, participants, expected) in [
        (&[counted(2) + 264][..], 2, AnswerError::WrongSlotCount),
        (&[counted(2) + 264, 34, 0], 2, AnswerError::WrongSlotCount),
        (&[], 0, AnswerError::WrongSlotCount),
        // If several checks fail, the first one in the order of spec/queries.md is reported.
        (&[counted(3) + 264], 2, AnswerError::WrongSlotCount),
        (&[counted(2) + 600, 32769], 2, AnswerError::SumOutOfRange),
        (&[264, 32769], 2, AnswerError::SumOutOfRange),
        (&[counted(3) + 264, 34], 2, AnswerError::SumOutOfRange),
        (&[counted(2) + outside(1) + 264, 34], 2, AnswerError::SumOutOfRange),
        (&[outside(3) + 264, 34], 2, AnswerError::SumOutOfRange),
        (&[counted(2) + 511, 34], 2, AnswerError::SumOutOfRange),
        (&[counted(2) + 264, 32769], 2, AnswerError::SumOutOfRange),
        (&[u128::MAX, 34], 2, AnswerError::SumOutOfRange),
        // These sums are impossible: a negative variance, sums without a reading, and a sum, or a
        // sum of squares, that needs more readings than the count.
        (&[counted(2) + 264, 31], 2, AnswerError::Inconsistent),
        (&[264, 34], 2, AnswerError::Inconsistent),
        (&[256, 1], 2, AnswerError::Inconsistent),
        (&[counted(1) + 256 + 128, 16384], 2, AnswerError::Inconsistent),
        (&[counted(1) + 256, 16385], 2, AnswerError::Inconsistent),
        (&[counted(1) + outside(1) + 256 + 128, 16384], 2, AnswerError::Inconsistent),
    ] {
        assert_eq!(answer(totals, participants), Err(expected), "{totals:?} of {participants}");
    }
    // A query that selects only a mean, or only a sum, has no sum of squares.
    for select in ["AVG(t)", "SUM(t)"] {
        let text = format!("SELECT {select} FROM sensors EPOCH DURATION 1s");
        let plan = Plan::parse(&text, &schema).unwrap();
        let answer = |totals: &[u128]| plan.answer(totals, 2, 1).map(of);
        assert_eq!(answer(&[counted(1) + 256 + 128]), Err(AnswerError::Inconsistent));
        assert!(answer(&[counted(1) + 256 + 127]).unwrap()[0].starts_with("127"));
    }
}
