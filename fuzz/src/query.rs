//! Fuzzes queries. Each text must have one plan, each plan must have one text and one encoding, and
//! no plan may cause a panic at a mote or a querier.

use moteseal_core::schema::{Field, FieldType, MAX_SCHEMA, Schema};
use moteseal_sum::noise::Noise;
use moteseal_sum::query::{MAX_PLAN, MAX_SLOTS, MAX_SOURCES, Plan};

/// Uses the bytes as a query's text and as an encoded plan.
pub fn run(bytes: &[u8]) {
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    if let Ok(text) = core::str::from_utf8(bytes) {
        match Plan::parse(text, &schema) {
            Ok(plan) => {
                let shown = plan.to_string();
                assert_eq!(
                    Plan::parse(&shown, &schema),
                    Ok(plan),
                    "the canonical text of a plan has a different plan"
                );
                assert!(plan.bind(&schema).is_ok(), "a plan does not bind to its own schema");
                check(&plan, &schema, bytes);
            }
            Err(error) => assert!(
                error.column <= text.chars().count() + 1 && !error.to_string().contains('\n')
            ),
        }
    }
    if let Ok(plan) = Plan::decode(bytes) {
        assert_eq!(plan.encode(&mut [0; MAX_PLAN]).unwrap(), bytes, "two encodings of one plan");
        check(&plan, &schema, bytes);
    }
}

/// Encodes a plan and decodes it again, evaluates it at a mote, and computes the answer from the
/// mote's contributions and from arbitrary sums.
fn check(plan: &Plan<'_>, schema: &Schema<'_>, bytes: &[u8]) {
    let mut buffer = [0; MAX_PLAN];
    let encoded = plan.encode(&mut buffer).unwrap();
    let count = plan.slots().count();
    if count > MAX_SLOTS {
        assert!(plan.check_capacity(1).is_err() && Plan::decode(encoded).is_err());
        return;
    }
    assert_eq!(Plan::decode(encoded).as_ref(), Ok(plan));
    let any: Vec<u128> = (0..count)
        .map(|at| {
            bytes.iter().skip(at).fold(1, |sum: u128, &byte| sum.rotate_left(5) ^ u128::from(byte))
        })
        .collect();
    for shift in [0, 40, 100, 127] {
        let totals: Vec<u128> = any.iter().map(|total| total >> shift).collect();
        if let Ok(answer) = plan.answer(&totals, MAX_SOURCES >> (shift / 8), 5) {
            answer.values().flatten().for_each(|result| {
                drop(result.with_histogram(|histogram| histogram.bins().count()).to_string());
            });
        }
    }
    let Ok(bound) = plan.bind(schema) else { return };
    let record: Vec<u8> =
        bytes.iter().copied().cycle().take(schema.record_size().unwrap()).collect();
    for record in [None, Some(&record[..])] {
        let mut slots = [0; MAX_SLOTS];
        let noise = Noise::new(&[7; 32], 5, 5);
        let written = match plan.has_noise() {
            true => bound.contribution_with_noise(record, &noise, &mut slots),
            false => bound.contribution(record, &mut slots),
        };
        let Ok(written) = written else { continue };
        assert_eq!(written, count);
        plan.slots()
            .zip(slots)
            .for_each(|(slot, value)| assert!(value <= slot.most(), "{slot} is above its bound"));
        if plan.check_capacity(1).is_ok() {
            let answer =
                plan.answer(&slots[..written], 1, 5).expect("one source is enough for an answer");
            assert!(answer.groups().all(|group| group.values().count() == plan.items().len()));
            assert!(plan.has_noise() || answer.count() + answer.outside() <= 1);
        }
    }
}

fn schema() -> Vec<u8> {
    let fields = [
        Field::new("temperature", "Cel", FieldType::I16).scaled(100, 0),
        Field::new("n", "", FieldType::U64).scaled(3, i64::MAX),
        Field::new("room \"a\"", "", FieldType::I64).scaled(u32::MAX, i64::MIN),
        Field::new("light", "lx", FieldType::F32),
    ];
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

/// Returns typical queries, and their plans.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "SELECT COUNT(*) FROM sensors EPOCH DURATION 30s",
        "select avg(temperature), stddev(n), sum(\"room \"\"a\"\"\") from sensors where 1 < n and not temperature between -4.05 and 20 epoch duration 7d",
        "SELECT VARIANCE(temperature) FROM sensors WHERE (n = 1 OR n <> 2) AND (n <= 3.5 OR temperature >= -1) EPOCH DURATION 1500ms",
        "SELECT MAX(light) FROM sensors WHERE \"room = 'x'",
    ];
    let schema = schema();
    let schema = Schema::decode(&schema).unwrap();
    let plans = texts.iter().filter_map(|text| Plan::parse(text, &schema).ok());
    let plans: Vec<Vec<u8>> =
        plans.map(|plan| plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()).collect();
    texts.iter().map(|text| text.as_bytes().to_vec()).chain(plans).collect()
}
