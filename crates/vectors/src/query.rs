//! Runs the operations of the query vectors (spec/queries.md) with the product's code.

use moteseal_core::schema::Schema;
use moteseal_sum::noise::Noise;
use moteseal_sum::query::{
    FixedPoint, Histogram, MAX_PLAN, MAX_SLOTS, Plan, SlotKind, Value as Answered,
};
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, hex_of, list, name, number, text};
use crate::sum::wide;

/// Parses the text of a query. Returns the encoded plan and its canonical text.
pub fn parse(input: &Value) -> Verdict {
    let schema = bytes(input, "schema");
    let schema = Schema::decode(&schema).unwrap();
    let plan =
        Plan::parse(text(input, "text"), &schema).map_err(|error| error.name().to_owned())?;
    let mut buffer = vec![0; MAX_PLAN];
    Ok(json!({ "plan": hex_of(plan.encode(&mut buffer).unwrap()), "text": plan.to_string() }))
}

/// Decodes a plan. Returns its contents, and checks its capacity for the given number of sources.
pub fn plan(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let plan = Plan::decode(&bytes).map_err(name)?;
    let mut buffer = vec![0; MAX_PLAN];
    assert_eq!(plan.encode(&mut buffer).unwrap(), bytes);
    plan.check_capacity(number(input, "sources")).map_err(|error| error.name().to_owned())?;
    let slots = plan.slots().map(|slot| {
        let kind = match slot.kind {
            SlotKind::Counts => "counts",
            SlotKind::Sum => "sum",
            SlotKind::SumOfSquares => "squares",
            SlotKind::Counters => "counters",
        };
        json!([kind, slot.column, slot.vmax.to_string(), slot.shift, slot.most().to_string()])
    });
    Ok(
        json!({ "text": plan.to_string(), "epoch_ms": plan.epoch_ms(), "slots": slots.collect::<Vec<_>>() }),
    )
}

/// Returns the contribution of a source with or without a reading.
pub fn contribution(input: &Value) -> Verdict {
    let (plan, schema) = (bytes(input, "plan"), bytes(input, "schema"));
    let (plan, schema) = (Plan::decode(&plan).unwrap(), Schema::decode(&schema).unwrap());
    let bound = plan.bind(&schema).map_err(|error| error.name().to_owned())?;
    let record = (!input["record"].is_null()).then(|| bytes(input, "record"));
    let mut slots = [0; MAX_SLOTS];
    let count = bound
        .contribution(record.as_deref(), &mut slots)
        .map_err(|error| error.name().to_owned())?;
    Ok(json!({ "values": slots[..count].iter().map(u128::to_string).collect::<Vec<_>>() }))
}

/// Returns the contribution of a source to a query with noise.
pub fn noisy(input: &Value) -> Verdict {
    let (plan, schema) = (bytes(input, "plan"), bytes(input, "schema"));
    let (plan, schema) = (Plan::decode(&plan).unwrap(), Schema::decode(&schema).unwrap());
    let bound = plan.bind(&schema).map_err(|error| error.name().to_owned())?;
    let record = (!input["record"].is_null()).then(|| bytes(input, "record"));
    let key: [u8; 32] = fixed(input, "key");
    let noise = Noise::new(&key, number(input, "epoch"), number(input, "ring"));
    let mut slots = [0; MAX_SLOTS];
    let count = bound
        .contribution_with_noise(record.as_deref(), &noise, &mut slots)
        .map_err(|error| error.name().to_owned())?;
    Ok(json!({ "values": slots[..count].iter().map(u128::to_string).collect::<Vec<_>>() }))
}

/// Chooses the number of bits of a plan's counters for a number of sources.
pub fn fit(input: &Value) -> Verdict {
    let bytes = bytes(input, "plan");
    let mut plan = Plan::decode(&bytes).map_err(name)?;
    plan.fit(number(input, "sources"));
    let mut buffer = vec![0; MAX_PLAN];
    Ok(json!({ "plan": hex_of(plan.encode(&mut buffer).unwrap()) }))
}

/// Returns the results of a query for given totals of its slots.
pub fn answer(input: &Value) -> Verdict {
    let plan = bytes(input, "plan");
    let plan = Plan::decode(&plan).unwrap();
    let totals: Vec<u128> = list(input, "totals").iter().map(wide).collect();
    let (participants, ring) = (number(input, "participants"), number::<u32>(input, "ring"));
    let rings = u32::div_ceil(participants, ring.max(1));
    let answer = plan.answer(&totals, participants, rings).map_err(name)?;
    let bound = |bound: Option<FixedPoint>| bound.map(|bound| bound.to_string());
    let result = |result: Option<Answered<Histogram<'_>>>| match result {
        None => Value::Null,
        Some(Answered::Number(number)) => number.to_string().into(),
        Some(Answered::Noisy(number, within)) => {
            json!({ "value": number.to_string(), "within": within.to_string() })
        }
        Some(Answered::Bin(bin)) => json!({ "low": bound(bin.low), "high": bound(bin.high) }),
        Some(Answered::Histogram(histogram)) => json!({
            "counts": histogram.bins().map(|(_, count)| count).collect::<Vec<_>>(),
            "within": histogram.within(),
        }),
    };
    let groups = answer.groups().map(|group| {
        json!({
            "name": bound(group.name()),
            "count": group.count(),
            "outside": group.outside(),
            "results": group.values().map(result).collect::<Vec<_>>(),
        })
    });
    Ok(json!({ "groups": groups.collect::<Vec<_>>() }))
}
