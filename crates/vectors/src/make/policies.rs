//! Vectors of policies and masks (spec/policy.md; spec/sums.md, section 2.3).

use moteseal_broadcast::KeyId;
use moteseal_core::digest::Digest;
use moteseal_core::record::GroupId;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_fixtures::cbor_tree::{NULL, Value, array, bytes, int, text};
use moteseal_fixtures::world::{GROUP, header, operator, secret, sign1};
use moteseal_sum::query::{MAX_PLAN, Plan};
use serde_json::json;

use super::{File, Files, public};

const TYP: &str = "moteseal-policy+cose";
const OPEN: &str = "policy.open";
const PERMIT: &str = "policy.permit";
const ROSTER: Digest = Digest([0x52; 32]);

pub fn make(files: &mut Files) {
    files.add(policies());
    files.add(permissions());
    files.add(charges());
    files.add(masks());
}

fn querier() -> SecretKey {
    secret(Algorithm::Ed25519, 44)
}

fn column(name: &str, divisor: i64, low: Value, high: Value) -> Value {
    array([text(name), int(divisor), low, high])
}

fn temperature() -> Value {
    column("temperature", 100, int(-4000), int(8500))
}

fn terms(key: &SecretKey, trust: i64, epoch_ms: i64, columns: &[Value]) -> Value {
    with_budget(key, trust, (epoch_ms, 0), columns)
}

fn with_budget(
    key: &SecretKey,
    trust: i64,
    (epoch_ms, budget): (i64, i64),
    columns: &[Value],
) -> Value {
    let key = bytes(&KeyId::of(&key.public()).0);
    array([key, int(trust), int(epoch_ms), int(budget), Value::Array(columns.to_vec())])
}

fn policy(minimums: (i64, i64), queriers: &[Value]) -> Value {
    let (group, roster) = (bytes(&GroupId::of(GROUP).0), bytes(&ROSTER.0));
    let (least, squares) = (int(minimums.0), int(minimums.1));
    array([int(1), group, roster, int(3), least, squares, Value::Array(queriers.to_vec())])
}

fn usual() -> Value {
    policy((5, 8), &[terms(&querier(), 0, 30_000, &[temperature()])])
}

fn given(payload: &Value, signer: &SecretKey) -> serde_json::Value {
    let header = header(signer.public().algorithm(), TYP, &[]);
    let signed = sign1(signer, &header, &payload.encode());
    let mut input = public(&operator());
    input["bytes"] = json!(hex::encode(signed));
    input["group"] = json!(GroupId::of(GROUP).to_string());
    input["roster"] = json!(hex::encode(ROSTER.0));
    input
}

fn policies() -> File {
    let mut file = File::new("policy/policies.json", "Policies: policy.md, section 1.");
    let operator = operator();
    let other = secret(Algorithm::Ed25519, 45);
    file.valid("a querier that is not trusted", OPEN, given(&usual(), &operator));
    let free = terms(&other, 1, 1000, &[]);
    let some = terms(&other, 1, 604_800_000, &[column("humidity", 1, NULL, NULL)]);
    let budget = with_budget(&querier(), 0, (30_000, u32::MAX.into()), &[temperature()]);
    for (what, payload) in [
        ("the highest budget", policy((5, 8), &[budget])),
        ("no querier", policy((2, 2), &[])),
        ("a trusted querier", policy((5, 8), std::slice::from_ref(&free))),
        ("a trusted querier with a column", policy((5, 8), std::slice::from_ref(&some))),
        (
            "two queriers",
            policy((5, 8), &[terms(&querier(), 1, 30_000, &[temperature()]), free.clone()]),
        ),
    ] {
        file.valid(what, OPEN, given(&payload, &operator));
    }
    let of = |columns: &[Value]| policy((5, 8), &[terms(&querier(), 0, 30_000, columns)]);
    let many = |count: i64| {
        let columns: Vec<Value> =
            (0..count).map(|at| column(&format!("c{at}"), 1, int(0), int(1))).collect();
        of(&columns)
    };
    let queriers = |count: u8| {
        let all: Vec<Value> = (0..count)
            .map(|at| terms(&secret(Algorithm::Ed25519, 60 + at), 1, 1000, &[]))
            .collect();
        policy((5, 8), &all)
    };
    file.valid("16 columns", OPEN, given(&many(16), &operator));
    file.valid("8 queriers", OPEN, given(&queriers(8), &operator));
    for (what, payload) in [
        ("a minimum of 1", policy((1, 8), &[])),
        ("a lower minimum with squares", policy((5, 4), &[])),
        ("17 columns", many(17)),
        ("9 queriers", queriers(9)),
        ("a trust of 2", policy((5, 8), &[terms(&querier(), 2, 1000, &[])])),
        (
            "one trusted querier and another one",
            policy((5, 8), &[terms(&querier(), 0, 30_000, &[temperature()]), free.clone()]),
        ),
        ("a querier twice", policy((5, 8), &[free.clone(), free])),
        ("epochs that are too short", policy((5, 8), &[terms(&querier(), 1, 999, &[])])),
        ("epochs that are too long", policy((5, 8), &[terms(&querier(), 1, 604_800_001, &[])])),
        (
            "a trusted querier with a budget",
            policy((5, 8), &[with_budget(&other, 1, (1000, 1), &[])]),
        ),
        ("a column without a range", of(&[column("temperature", 100, NULL, NULL)])),
        ("a column without a low end", of(&[column("temperature", 100, NULL, int(1))])),
        ("a range without a value", of(&[column("temperature", 100, int(1), int(0))])),
        ("a column twice", of(&[temperature(), temperature()])),
        ("a divisor of 0", of(&[column("temperature", 0, int(0), int(1))])),
        ("a column without a name", of(&[column("", 1, int(0), int(1))])),
    ] {
        file.invalid(what, OPEN, given(&payload, &operator), "FieldOutOfRange");
    }
    for (field, value, error) in [
        ("group", json!("0909090909090909"), "WrongGroup"),
        ("roster", json!(hex::encode([9; 32])), "WrongRoster"),
        ("key", public(&other)["key"].clone(), "NotAuthentic"),
    ] {
        let mut input = given(&usual(), &operator);
        input[field] = value;
        file.invalid(format!("another {field}"), OPEN, input, error);
    }
    let mut of_p256 = given(&usual(), &secret(Algorithm::Esp256, 45));
    file.invalid(
        "of another suite than the operator's",
        OPEN,
        of_p256.clone(),
        "AlgorithmMismatch",
    );
    let key = public(&secret(Algorithm::Esp256, 45));
    (of_p256["alg"], of_p256["key"]) = (key["alg"].clone(), key["key"].clone());
    file.valid("of an operator with a P-256 key", OPEN, of_p256);
    let mut other_typ = given(&usual(), &operator);
    let header = header(operator.public().algorithm(), "moteseal-time+cose", &[]);
    other_typ["bytes"] = json!(hex::encode(sign1(&operator, &header, &usual().encode())));
    file.invalid("another typ", OPEN, other_typ, "WrongType");
    file
}

fn plan(query: &str, range: Option<(i64, i64)>) -> Vec<u8> {
    let columns = ["temperature:Cel:i16/100", "humidity:%RH:u16/100", "room::u8"];
    let fields = columns.map(|column| Field::parse(column).unwrap());
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let mut plan = Plan::parse(query, &schema).unwrap();
    if let Some((low, high)) = range {
        plan.declare("temperature", low, high);
    }
    plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()
}

fn permissions() -> File {
    let mut file = File::new(
        "policy/permissions.json",
        "Whether a source answers a query under a policy: policy.md, section 3.",
    );
    let other = secret(Algorithm::Ed25519, 45);
    let humidity = column("humidity", 100, NULL, NULL);
    let tenths = column("humidity", 10, NULL, NULL);
    let untrusted = usual();
    let trusted = policy((5, 8), &[terms(&querier(), 1, 30_000, &[])]);
    let limited = policy((5, 8), &[terms(&querier(), 1, 30_000, &[humidity])]);
    let scaled = policy((5, 8), &[terms(&querier(), 1, 30_000, &[tenths])]);
    let input = |policy: &Value, key: &SecretKey, plan: &[u8], ring: Option<u32>| {
        let mut input = public(key);
        input["policy"] = json!(hex::encode(policy.encode()));
        input["plan"] = json!(hex::encode(plan));
        input["ring"] = json!(ring);
        input
    };
    let ranged = column("humidity", 100, int(0), int(65_535));
    let two = policy((5, 8), &[terms(&querier(), 0, 30_000, &[temperature(), ranged])]);
    let both = "SELECT SUM(temperature), SUM(humidity) FROM sensors EPOCH DURATION 30s";
    let range = Some((-4000, 8500));
    let sum = "SELECT SUM(temperature), COUNT(*) FROM sensors EPOCH DURATION 30s";
    let squares = "SELECT STDDEV(temperature) FROM sensors EPOCH DURATION 30s";
    let minute = "SELECT SUM(temperature) FROM sensors EPOCH DURATION 1m";
    let second = "SELECT SUM(temperature) FROM sensors EPOCH DURATION 1s";
    let humid = "SELECT AVG(humidity) FROM sensors WHERE humidity > 40 EPOCH DURATION 30s";
    let room = "SELECT AVG(temperature) FROM sensors WHERE room = 3 EPOCH DURATION 30s";
    let warm = "SELECT AVG(temperature) FROM sensors WHERE temperature > 3 EPOCH DURATION 30s";
    let count = "SELECT COUNT(*) FROM sensors EPOCH DURATION 30s";
    let named = "SELECT COUNT(temperature) FROM sensors EPOCH DURATION 30s";
    for (what, policy, query, range, ring) in [
        ("a sum over a key group", &untrusted, sum, range, Some(5)),
        ("squares over a larger one", &untrusted, squares, range, Some(8)),
        ("a count", &untrusted, count, None, Some(5)),
        ("a count of a column", &untrusted, named, None, Some(5)),
        ("trusted: a condition", &trusted, room, None, None),
        ("trusted: longer epochs", &trusted, minute, Some((0, 1)), Some(2)),
        ("trusted: a permitted column", &limited, humid, None, None),
    ] {
        file.valid(what, PERMIT, input(policy, &querier(), &plan(query, range), ring));
    }
    let noisy = policy((5, 8), &[with_budget(&querier(), 0, (30_000, 500), &[temperature()])]);
    let with_noise = |rest: &str| format!("SELECT AVG(temperature) FROM sensors {rest}");
    let (half, warm_half) = (
        with_noise("EPSILON 0.5 EPOCH DURATION 30s"),
        with_noise("WHERE temperature > 3 EPSILON 0.5 EPOCH DURATION 2m"),
    );
    let more = with_noise("EPSILON 0.501 EPOCH DURATION 30s");
    let short = with_noise("EPSILON 0.5 EPOCH DURATION 29s");
    let other_column = "SELECT AVG(humidity) FROM sensors EPSILON 0.5 EPOCH DURATION 30s";
    let bins = "SELECT MEDIAN(temperature) FROM sensors EPOCH DURATION 30s";
    let groups = "SELECT COUNT(*) FROM sensors GROUP BY temperature (1, 2) EPOCH DURATION 30s";
    for (what, policy, query, range, ring) in [
        ("noise", &noisy, &half[..], range, Some(5)),
        ("noise: a condition, another range and longer epochs", &noisy, &warm_half, None, Some(5)),
        (
            "noise: groups",
            &noisy,
            "SELECT COUNT(*) FROM sensors GROUP BY temperature (1, 2) EPSILON 0.2 EPOCH DURATION 30s",
            None,
            Some(5),
        ),
        ("trusted: noise", &trusted, &half, None, Some(5)),
        ("trusted: bins", &trusted, bins, None, None),
    ] {
        file.valid(what, PERMIT, input(policy, &querier(), &plan(query, range), ring));
    }
    for (what, policy, query, ring, error) in [
        ("noise: above the budget", &noisy, &more[..], Some(5), "BudgetTooSmall"),
        ("noise: no budget", &untrusted, &half, Some(5), "BudgetTooSmall"),
        ("noise: shorter epochs", &noisy, &short, Some(5), "EpochNotPermitted"),
        ("noise: another column", &noisy, other_column, Some(5), "ColumnNotPermitted"),
        ("noise: no masks", &noisy, &half, None, "NoMasks"),
        ("noise: a small key group", &noisy, &half, Some(4), "GroupTooSmall"),
        ("trusted: noise without masks", &trusted, &half, None, "NoMasks"),
        ("bins", &untrusted, bins, Some(5), "ConditionNotPermitted"),
        ("groups", &untrusted, groups, Some(5), "ConditionNotPermitted"),
    ] {
        let input = input(policy, &querier(), &plan(query, range), ring);
        file.invalid(what, PERMIT, input, error);
    }
    for (what, policy, query, range, ring, error) in [
        ("longer epochs", &untrusted, minute, range, Some(5), "EpochNotPermitted"),
        ("shorter epochs", &untrusted, second, range, Some(5), "EpochNotPermitted"),
        ("trusted: shorter epochs", &trusted, second, None, None, "EpochNotPermitted"),
        ("another column", &untrusted, humid, None, Some(5), "ColumnNotPermitted"),
        ("a column in a condition", &untrusted, room, range, Some(5), "ColumnNotPermitted"),
        ("trusted: another column", &limited, sum, None, None, "ColumnNotPermitted"),
        ("trusted: another divisor", &scaled, humid, None, None, "ColumnNotPermitted"),
        ("the range of the type", &untrusted, sum, None, Some(5), "RangeNotPermitted"),
        ("a narrower range", &untrusted, sum, Some((-4000, 8499)), Some(5), "RangeNotPermitted"),
        ("a condition", &untrusted, warm, range, Some(5), "ConditionNotPermitted"),
        ("two summed columns", &two, both, range, Some(5), "ColumnsCombined"),
        ("no masks", &untrusted, sum, range, None, "NoMasks"),
        ("a small key group", &untrusted, sum, range, Some(4), "GroupTooSmall"),
        ("squares over a small key group", &untrusted, squares, range, Some(7), "GroupTooSmall"),
    ] {
        let input = input(policy, &querier(), &plan(query, range), ring);
        file.invalid(what, PERMIT, input, error);
    }
    let stranger = input(&untrusted, &other, &plan(second, None), None);
    file.invalid("another querier", PERMIT, stranger, "QuerierNotPermitted");
    file
}

fn charges() -> File {
    let mut file = File::new("policy/charges.json", "The budget of a day: policy.md, section 4.");
    let op = "policy.charge";
    let input = |(day, spent): (u64, u32), start_ms: u64, epsilon: u32, budget: u32| {
        json!({
            "day": day,
            "spent": spent,
            "start_ms": start_ms,
            "epsilon": epsilon,
            "budget": budget,
        })
    };
    const DAY: u64 = 86_400_000;
    for (what, state, start_ms, epsilon, budget) in [
        ("the first answer", (0, 0), 20_000 * DAY + 5, 500, 500),
        ("a second one", (20_000, 500), 20_000 * DAY + 6, 500, 1000),
        ("the last moment of a day", (20_000, 500), 20_001 * DAY - 1, 500, 1000),
        ("a new day", (20_000, 1000), 20_001 * DAY, 500, 1000),
        ("an earlier day", (20_000, 500), 19_999 * DAY, 500, 1000),
    ] {
        file.valid(what, op, input(state, start_ms, epsilon, budget));
    }
    for (what, state, start_ms, epsilon, budget) in [
        ("spent", (20_000, 1000), 20_000 * DAY, 1, 1000),
        ("more than is left", (20_000, 501), 20_000 * DAY, 500, 1000),
        ("spent on a later day", (20_000, 1000), 19_999 * DAY, 1, 1000),
        ("another querier has spent more", (20_000, 3000), 20_000 * DAY, 1, 1000),
        ("more than 32 bits", (20_000, u32::MAX), 20_000 * DAY, 1, u32::MAX),
    ] {
        file.invalid(what, op, input(state, start_ms, epsilon, budget), "BudgetSpent");
    }
    file
}

fn masks() -> File {
    let mut file = File::new("policy/masks.json", "Masks: sums.md, section 2.3.");
    for (position, ring, slot, epoch) in [
        (0, (0, 5), 0, 0),
        (1, (0, 5), 0, 0),
        (4, (0, 5), 0, 0),
        (7, (5, 10), 2, 58_000_000),
        (5, (5, 10), 2, 58_000_000),
        (9, (5, 10), 2, u64::MAX),
        (3, (2, 4), 0, 1),
        (6, (6, 7), 0, 1),
    ] {
        let (first, end) = ring;
        let input = json!({
            "root": hex::encode([0x71; 32]),
            "group": GroupId::of(GROUP).to_string(),
            "query": hex::encode([0x51; 32]),
            "slot": slot,
            "epoch": epoch,
            "position": position,
            "first": first,
            "end": end,
        });
        file.valid(format!("position {position} of {first} to {end}"), "sum.mask", input);
    }
    file
}
