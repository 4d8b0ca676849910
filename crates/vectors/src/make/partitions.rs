//! Vectors of groups, bins, counters and noise (spec/queries.md, sections 3 to 5; spec/sums.md, section
//! 2.4).

use moteseal_core::schema::Schema;
use moteseal_fixtures::cbor_tree::{NULL, Value, array, int};
use moteseal_fixtures::world::schema;
use moteseal_sum::noise::Noise;
use moteseal_sum::query::{MAX_PLAN, MAX_SLOTS, Plan};
use serde_json::{Value as Json, json};

use super::plans::{counted, item, named, ranged};
use super::{File, Files};

const COLUMNS: [&str; 3] = ["t:Cel:i16/100", "room::u8", "h::u8/3"];

/// Queries, and the number of sources for which their counters are chosen.
const QUERIES: [(&str, u32); 13] = [
    ("SELECT MEDIAN(t) FROM sensors EPOCH DURATION 30s", 5),
    (
        "SELECT HISTOGRAM(t), MIN(t), MAX(t), QUANTILE(t, 0.95) FROM sensors EPOCH DURATION 30s",
        4094,
    ),
    ("SELECT HISTOGRAM(t) FROM sensors BINS 16 EPOCH DURATION 30s", 4095),
    ("SELECT HISTOGRAM(t) FROM sensors BINS 7 EPOCH DURATION 30s", 100_000),
    ("SELECT MEDIAN(h), AVG(t), MAX(t) FROM sensors BINS 32 EPOCH DURATION 30s", 9),
    ("SELECT COUNT(*) FROM sensors GROUP BY room (3, 1, 2) EPOCH DURATION 30s", 5),
    ("SELECT AVG(t), STDDEV(t) FROM sensors GROUP BY room (3, 1, 2) EPOCH DURATION 30s", 5),
    (
        "SELECT MEDIAN(t), SUM(t) FROM sensors WHERE t > 1 GROUP BY room (7, 0) BINS 3 EPOCH DURATION 30s",
        5,
    ),
    ("SELECT COUNT(*) FROM sensors GROUP BY t (-5, 20.15) EPOCH DURATION 30s", 5),
    ("SELECT COUNT(*) FROM sensors EPSILON 0.5 EPOCH DURATION 30s", 5),
    (
        "SELECT COUNT(*), AVG(t), SUM(t), MEDIAN(t) FROM sensors WHERE room = 3 EPSILON 1.5 EPOCH DURATION 30s",
        5,
    ),
    ("SELECT AVG(t) FROM sensors GROUP BY room (3, 4) EPSILON 4 EPOCH DURATION 30s", 5),
    (
        "SELECT HISTOGRAM(t), COUNT(*), QUANTILE(t, 0.25) FROM sensors BINS 4 EPSILON 0.875 EPOCH DURATION 30s",
        5,
    ),
];

pub fn make(files: &mut Files) {
    files.add(texts());
    files.add(plans());
    files.add(fits());
    files.add(contributions());
    files.add(noisy());
    files.add(answers());
}

/// Returns the encoded plan of a query over `t` from -10 to 50.
fn encoded(query: &str) -> Vec<u8> {
    let columns = schema(&COLUMNS);
    let schema = Schema::decode(&columns).unwrap();
    let mut plan = Plan::parse(query, &schema).map_err(|error| error.to_string()).unwrap();
    plan.declare("t", -1000, 5000);
    plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()
}

fn fitted(query: &str, sources: u32) -> Vec<u8> {
    let bytes = encoded(query);
    let mut plan = Plan::decode(&bytes).unwrap();
    plan.fit(sources);
    plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()
}

fn texts() -> File {
    let mut file = File::new(
        "query/partition_texts.json",
        "Texts with groups, bins and noise: queries.md, sections 1 to 3.",
    );
    let op = "query.parse";
    let columns = hex::encode(schema(&COLUMNS));
    let input = |text: &str| json!({ "schema": columns, "text": text });
    for (query, _) in QUERIES {
        file.valid(query, op, input(query));
    }
    for query in [
        "select min ( t ) , quantile(t, 1), quantile( t , +0.0001 ) from sensors bins 8 epoch duration 1s",
        "select count(*) from sensors group by \"room\" ( 1 ) epsilon 0.001 epoch duration 1s",
        "select count(*) from sensors where not t > 1 group by t (1, -0.01, 0.02) epoch duration 1s",
    ] {
        // The lowest epsilon is too low.
        if query.contains("epsilon") {
            file.invalid(query, op, input(query), "EpsilonOutOfRange");
        } else {
            file.valid(query, op, input(query));
        }
    }
    let count = |rest: &str| format!("SELECT COUNT(*) FROM sensors {rest} EPOCH DURATION 30s");
    let of = |item: &str| format!("SELECT {item} FROM sensors EPOCH DURATION 30s");
    let many: Vec<String> = (0..17).map(|value| value.to_string()).collect();
    for (query, error) in [
        (of("QUANTILE(t)"), "UnexpectedToken"),
        (of("QUANTILE(t, 1.0001)"), "RankOutOfRange"),
        (of("QUANTILE(t, -0.5)"), "RankOutOfRange"),
        (of("QUANTILE(t, 0.00001)"), "RankOutOfRange"),
        (of("MEDIAN(t, 0.5)"), "UnexpectedToken"),
        (of("MEDIAN(t), QUANTILE(t, 0.5)"), "DuplicateItem"),
        (of("MEDIAN(*)"), "UnexpectedToken"),
        (count("BINS 8"), "NoBins"),
        ("SELECT MIN(t) FROM sensors BINS 1 EPOCH DURATION 30s".into(), "BinsOutOfRange"),
        ("SELECT MIN(t) FROM sensors BINS 65 EPOCH DURATION 30s".into(), "BinsOutOfRange"),
        ("SELECT MIN(t) FROM sensors BINS 8.0 EPOCH DURATION 30s".into(), "UnexpectedToken"),
        ("SELECT MIN(t) FROM sensors EPSILON 1 BINS 8 EPOCH DURATION 30s".into(), "NoNoisyForm"),
        (
            "SELECT MEDIAN(t) FROM sensors EPSILON 1 BINS 8 EPOCH DURATION 30s".into(),
            "UnexpectedToken",
        ),
        (count("GROUP room (1)"), "UnexpectedToken"),
        (count("GROUP BY room"), "UnexpectedToken"),
        (count("GROUP BY room ()"), "UnexpectedToken"),
        (count("GROUP BY room (1"), "UnexpectedToken"),
        (count("GROUP BY room (1.5)"), "NotAValue"),
        (count("GROUP BY t (0.001)"), "NotAValue"),
        (count("GROUP BY h (1)"), "NotExact"),
        (count("GROUP BY room (1, 01)"), "DuplicateValue"),
        (count(&format!("GROUP BY room ({})", many.join(","))), "TooManyGroups"),
        (count("GROUP BY room (1) WHERE room > 3"), "UnexpectedToken"),
        (count("EPSILON 0"), "EpsilonOutOfRange"),
        (count("EPSILON 4.001"), "EpsilonOutOfRange"),
        (count("EPSILON 0.0005"), "EpsilonOutOfRange"),
        (count("EPSILON -1"), "EpsilonOutOfRange"),
        ("SELECT STDDEV(t) FROM sensors EPSILON 1 EPOCH DURATION 30s".into(), "NoNoisyForm"),
    ] {
        file.invalid(query.clone(), op, input(&query), error);
    }
    file
}

fn of_plan(bytes: &[u8], sources: u32) -> Json {
    json!({ "bytes": hex::encode(bytes), "sources": sources })
}

/// Returns a plan with these parts, valid or not.
fn plan(
    items: &[Value],
    columns: &[Value],
    groups: Value,
    (bins, bits, epsilon): (i64, i64, i64),
) -> Value {
    let list = |values: &[Value]| Value::Array(values.to_vec());
    let (items, columns) = (list(items), list(columns));
    array([
        int(1),
        items,
        columns,
        list(&[]),
        groups,
        int(bins),
        int(bits),
        int(epsilon),
        int(1000),
    ])
}

fn plans() -> File {
    let mut file = File::new(
        "query/partition_plans.json",
        "Plans with groups, bins and noise, and their slots: queries.md, sections 3 and 4.",
    );
    let op = "query.plan";
    for (query, sources) in QUERIES {
        file.valid(query, op, of_plan(&fitted(query, sources), sources));
    }
    let quantile = |rank: i64| array([int(6), int(0), int(rank)]);
    let (t, room) = (ranged("t", 100, -1000, 5000), named("room", 1));
    let groups = |column: i64, values: &[i64]| {
        array([int(column), Value::Array(values.iter().map(|value| int(*value)).collect())])
    };
    let one = std::slice::from_ref(&t);
    let both = [t.clone(), room.clone()];
    for (what, bytes) in [
        (
            "bins of a range of three",
            plan(&[quantile(1)], &[ranged("t", 1, 4, 6)], NULL, (8, 12, 0)),
        ),
        (
            "bins of 64 bits",
            plan(&[quantile(1)], &[ranged("t", 1, i64::MIN, i64::MAX)], NULL, (64, 16, 0)),
        ),
        (
            "a large sum in groups",
            plan(
                &[item(0, 0)],
                &[ranged("t", 1, 0, 1 << 40), room.clone()],
                groups(1, &[5, 4]),
                (0, 0, 0),
            ),
        ),
    ] {
        file.valid(what, op, of_plan(&bytes.encode(), 5));
    }
    for (what, value, error) in [
        ("a rank of 10,001", plan(&[quantile(10_001)], one, NULL, (8, 12, 0)), "FieldOutOfRange"),
        ("a rank of 2^16", plan(&[quantile(65_536)], one, NULL, (8, 12, 0)), "FieldOutOfRange"),
        ("a quantile without a rank", plan(&[item(6, 0)], one, NULL, (8, 12, 0)), "UnexpectedType"),
        (
            "a histogram with a rank",
            plan(&[array([int(5), int(0), int(0)])], one, NULL, (8, 12, 0)),
            "UnexpectedType",
        ),
        (
            "a quantile of nothing",
            plan(&[array([int(6), NULL, int(0)])], &[], NULL, (8, 12, 0)),
            "FieldOutOfRange",
        ),
        ("no bins", plan(&[quantile(1)], one, NULL, (0, 12, 0)), "FieldOutOfRange"),
        ("65 bins", plan(&[quantile(1)], one, NULL, (65, 12, 0)), "FieldOutOfRange"),
        ("256 bins", plan(&[quantile(1)], one, NULL, (256, 12, 0)), "FieldOutOfRange"),
        ("bins that nothing needs", plan(&[item(0, 0)], one, NULL, (8, 0, 0)), "FieldOutOfRange"),
        ("13 counter bits", plan(&[quantile(1)], one, NULL, (8, 13, 0)), "FieldOutOfRange"),
        ("no counter bits", plan(&[counted()], &[], NULL, (0, 0, 0)), "FieldOutOfRange"),
        ("counter bits of a sum", plan(&[item(0, 0)], one, NULL, (0, 20, 0)), "FieldOutOfRange"),
        ("noise in 20 bits", plan(&[counted()], &[], NULL, (0, 20, 500)), "FieldOutOfRange"),
        ("48 bits without noise", plan(&[counted()], &[], NULL, (0, 48, 0)), "FieldOutOfRange"),
        ("an epsilon of 4.001", plan(&[counted()], &[], NULL, (0, 48, 4001)), "FieldOutOfRange"),
        (
            "an epsilon that is too low",
            plan(&[item(0, 0)], one, NULL, (0, 48, 39)),
            "FieldOutOfRange",
        ),
        ("noise in a minimum", plan(&[quantile(0)], one, NULL, (8, 48, 500)), "FieldOutOfRange"),
        ("noise in a variance", plan(&[item(3, 0)], one, NULL, (0, 48, 500)), "FieldOutOfRange"),
        ("no group", plan(&[item(0, 0)], &both, groups(1, &[]), (0, 0, 0)), "FieldOutOfRange"),
        (
            "a group twice",
            plan(&[item(0, 0)], &both, groups(1, &[1, 2, 1]), (0, 0, 0)),
            "FieldOutOfRange",
        ),
        (
            "17 groups",
            plan(&[item(0, 0)], &both, groups(1, &(0..17).collect::<Vec<_>>()), (0, 0, 0)),
            "FieldOutOfRange",
        ),
        (
            "groups of no column",
            plan(&[item(0, 0)], one, groups(1, &[1]), (0, 0, 0)),
            "FieldOutOfRange",
        ),
        (
            "groups of inexact values",
            plan(&[item(0, 0)], &[t.clone(), named("h", 3)], groups(1, &[3]), (0, 0, 0)),
            "FieldOutOfRange",
        ),
        (
            "groups of three fields",
            plan(&[item(0, 0)], &both, array([int(1), array([int(1)]), int(0)]), (0, 0, 0)),
            "UnexpectedType",
        ),
        (
            "18 slots",
            plan(
                &[item(0, 0), item(3, 0)],
                &both,
                groups(1, &(0..9).collect::<Vec<_>>()),
                (0, 0, 0),
            ),
            "FieldOutOfRange",
        ),
    ] {
        file.invalid(what, op, of_plan(&value.encode(), 5), error);
    }
    let eight = fitted(QUERIES[1].0, 4094);
    file.invalid("more sources than 12 bits count", op, of_plan(&eight, 4096), "Overflow");
    file.mutate("cut short", op, of_plan(&fitted(QUERIES[7].0, 5), 5), "bytes", &[]);
    file
}

fn fits() -> File {
    let mut file =
        File::new("query/fits.json", "The bits of counters: queries.md, sections 3.1 and 4.4.");
    for (query, _) in QUERIES {
        for sources in [1, 4094, 4096, 65_536, 1_048_575, 1_048_576] {
            let input = json!({ "plan": hex::encode(encoded(query)), "sources": sources });
            file.valid(format!("{sources} sources: {query}"), "query.fit", input);
        }
    }
    file
}

/// Readings: `t`, `room` and `h`.
fn records() -> Vec<Option<Vec<u8>>> {
    let reading = |t: i16, room: u8, h: u8| Some([&t.to_be_bytes()[..], &[room, h]].concat());
    vec![
        None,
        reading(-1000, 3, 0),
        reading(5000, 1, 255),
        reading(2015, 2, 100),
        reading(-1001, 0, 9),
        reading(5001, 7, 9),
        reading(-500, 4, 1),
        reading(249, 3, 2),
        reading(250, 3, 2),
    ]
}

fn contributions() -> File {
    let mut file = File::new(
        "query/partition_contributions.json",
        "What a source contributes to groups, bins and counters: queries.md, section 4.",
    );
    let op = "query.contribution";
    for (query, sources) in QUERIES {
        for (at, record) in records().iter().enumerate() {
            let input = json!({
                "plan": hex::encode(fitted(query, sources)),
                "schema": hex::encode(schema(&COLUMNS)),
                "record": record.as_ref().map(hex::encode),
            });
            let what = format!("reading {at}: {query}");
            if query.contains("EPSILON") {
                file.invalid(what, op, input, "NoiseMissing");
            } else {
                file.valid(what, op, input);
            }
        }
    }
    file
}

fn noisy() -> File {
    let mut file = File::new("query/noise.json", "Contributions with noise: sums.md, section 2.4.");
    for (query, _) in QUERIES.iter().filter(|(query, _)| query.contains("EPSILON")) {
        for (at, record) in records().iter().enumerate() {
            for (ring, epoch) in [(5, 58_000_000 + at as u64), (2, 0), (31, 7), (1000, 1)] {
                let input = json!({
                    "plan": hex::encode(encoded(query)),
                    "schema": hex::encode(schema(&COLUMNS)),
                    "record": record.as_ref().map(hex::encode),
                    "key": hex::encode([0x6b; 32]),
                    "epoch": epoch,
                    "ring": ring,
                });
                let what = format!("reading {at}, a key group of {ring}: {query}");
                file.valid(what, "query.noisy", input);
            }
        }
    }
    file
}

/// Returns the totals of the slots over the readings, each of which occurs several times.
fn totals(bytes: &[u8], times: usize, epoch: u64) -> (Vec<u128>, u32) {
    let columns = schema(&COLUMNS);
    let (plan, schema) = (Plan::decode(bytes).unwrap(), Schema::decode(&columns).unwrap());
    let bound = plan.bind(&schema).unwrap();
    let (mut totals, mut participants) = (vec![0; plan.slots().count()], 0_u32);
    for record in records().iter().cycle().take(times * records().len()) {
        let mut slots = [0; MAX_SLOTS];
        let key = [u8::try_from(participants % 256).unwrap(); 32];
        let noise = Noise::new(&key, epoch, 5);
        let record = record.as_deref();
        if plan.has_noise() {
            bound.contribution_with_noise(record, &noise, &mut slots).unwrap();
        } else {
            bound.contribution(record, &mut slots).unwrap();
        }
        totals.iter_mut().zip(slots).for_each(|(total, value)| *total += value);
        participants += 1;
    }
    (totals, participants)
}

fn answers() -> File {
    let mut file = File::new(
        "query/partition_answers.json",
        "Results of groups, bins and noise: queries.md, section 5.",
    );
    let op = "query.answer";
    let input = |bytes: &[u8], totals: &[u128], participants: u32| {
        let totals: Vec<String> = totals.iter().map(u128::to_string).collect();
        json!({ "plan": hex::encode(bytes), "totals": totals, "participants": participants, "ring": 5 })
    };
    for (query, sources) in QUERIES {
        let bytes = fitted(query, sources);
        for times in [1, 3, 40] {
            let (totals, participants) = totals(&bytes, times, 9);
            let what = format!("{participants} participants: {query}");
            file.valid(what, op, input(&bytes, &totals, participants));
        }
        let nothing = vec![0; Plan::decode(&bytes).unwrap().slots().count()];
        file.valid(format!("nobody: {query}"), op, input(&bytes, &nothing, 0));
    }
    let count = fitted(QUERIES[5].0, 5);
    let median = fitted(QUERIES[0].0, 5);
    let both = fitted(QUERIES[4].0, 9);
    let noise = encoded(QUERIES[9].0);
    for (what, bytes, totals, error) in [
        ("a count of a group above the participants", &count, &[6][..], "SumOutOfRange"),
        ("counts of groups above the participants", &count, &[3 + (3 << 12)][..], "Inconsistent"),
        ("a bin above the participants", &median, &[6 << 24][..], "SumOutOfRange"),
        ("bins above the participants", &median, &[3 + (3 << 24)][..], "SumOutOfRange"),
        ("bits above the counters", &count, &[1 << 36][..], "SumOutOfRange"),
        ("a slot is missing", &both, &[5 << 56][..], "WrongSlotCount"),
        ("noise above its bound", &noise, &[5 * (1 + 2 * 80) + 1][..], "SumOutOfRange"),
    ] {
        file.invalid(what, op, input(bytes, totals, 5), error);
    }
    let slots = Plan::decode(&both).unwrap().slots().count();
    let mut bins = vec![0; slots];
    // One counted reading of 10 degrees, which is in no bin.
    bins[0] = (1 << 56) + 5 * 1000 + 1000;
    file.invalid("a reading in no bin", op, input(&both, &bins, 5), "Inconsistent");
    file
}
