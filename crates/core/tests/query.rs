//! Queries: random schemas, readings and queries against a naive evaluator over big rationals; the one form of text and bytes; what is
//! said of mistakes; hostile plans and sums. spec/queries.md.
#![allow(clippy::unwrap_used, missing_docs)]

mod reference {
    pub(crate) mod query;
}

use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::sum::query::{EPOCH_MS, MAX_PLAN, MAX_SLOTS, MAX_TEXT, Plan};
use proptest::collection::vec;
use proptest::prelude::*;
use reference::query::{Query, query};

fn encode(fields: &[Field<'_>]) -> Vec<u8> {
    Schema::encode(fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

/// A schema as the tables of mistakes use it.
fn weather() -> Vec<u8> {
    let columns = ["temperature:Cel:i16/100", "humidity:%RH:u16/100", "light:lx:f32", "at::time", "room temp:Cel:i8", "n::u64"];
    encode(&columns.map(|column| Field::parse(column).unwrap()))
}

fn encoded(plan: &Plan<'_>) -> Vec<u8> {
    plan.encode(&mut [0; MAX_PLAN]).unwrap().to_vec()
}

// ------------------------------------------------------------------ the naive evaluator, and the one form

fn answers_are_those_of_the_naive_evaluator(query: &Query) {
    let (schema, text) = (encode(&query.fields()), query.text());
    let schema = Schema::decode(&schema).unwrap();
    let mut plan = Plan::parse(&text, &schema).map_err(|error| format!("{text}: {error}")).unwrap();
    for (name, least, greatest) in query.ranges() {
        plan.narrow(&name, &least, &greatest).unwrap();
    }
    round_trips(&plan, &schema, query);

    let bound = plan.bind(&schema).unwrap();
    let mut totals = vec![0u128; plan.slots().count()];
    let mut answered = Vec::new();
    for row in &query.rows {
        let mut slots = [0; MAX_SLOTS];
        match bound.contribution(row.as_deref(), &mut slots) {
            Ok(count) => {
                assert_eq!(count, totals.len());
                assert!(query.is_answerable(row.as_deref()), "{text}: a value outside its range was summed");
                for ((total, slot), value) in totals.iter_mut().zip(plan.slots()).zip(slots) {
                    assert!(value <= slot.vmax, "{text}: {slot} of {value} is above {}", slot.vmax);
                    *total = total.saturating_add(value);
                }
                answered.push(row.as_deref());
            }
            Err(error) => {
                assert!(!query.is_answerable(row.as_deref()), "{text}: {error}");
                assert_eq!(error.name(), "ValueOutOfRange");
            }
        }
    }
    let participants = u32::try_from(answered.len()).unwrap();
    if plan.check_capacity(participants).is_err() {
        return;
    }
    let shown: Vec<Option<String>> =
        plan.answer(&totals, participants).unwrap().map(|value| value.map(|value| value.to_string())).collect();
    assert_eq!(shown, query.expected(&answered), "{text}");
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
    fn plan_contribution_and_answer_equal_the_plain_computation_to_the_last_digit(query in query()) {
        answers_are_those_of_the_naive_evaluator(&query);
    }

    #[test]
    fn case_space_and_redundant_parentheses_leave_no_trace(query in query(), seed in any::<u64>()) {
        let schema = encode(&query.fields());
        let schema = Schema::decode(&schema).unwrap();
        let (text, disguised) = (query.text(), query.disguised(seed));
        let plan = Plan::parse(&text, &schema).unwrap();
        let other = Plan::parse(&disguised, &schema).map_err(|error| format!("{disguised}: {error}")).unwrap();
        prop_assert_eq!((encoded(&plan), plan.to_string()), (encoded(&other), other.to_string()), "{}", disguised);
    }

    #[test]
    fn a_changed_encoding_is_refused_or_is_the_one_of_another_plan(query in query(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<Option<prop::sample::Index>>()) {
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

    #[test]
    fn no_text_panics(text in "[ -~é\n]{0,80}", start in 0usize..5) {
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
