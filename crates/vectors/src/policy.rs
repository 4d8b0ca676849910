//! Runs the operations of the vectors for policies and masks (spec/policy.md; spec/sums.md, section
//! 2.3) with the product's code.

use moteseal_core::Digest;
use moteseal_core::record::GroupId;
use moteseal_core::signature::PublicKey;
use moteseal_sum::policy::{Ledger, MAX_POLICY, Permission, Policy};
use moteseal_sum::query::Plan;
use moteseal_sum::sies::{MaskRoot, Psr, Slot};
use serde_json::{Value, json};

use crate::ops::{Verdict, algorithm, bytes, fixed, hex_of, name, number};

fn key(input: &Value) -> PublicKey {
    PublicKey::from_bytes(algorithm(input), &bytes(input, "key")).unwrap()
}

/// Opens a signed policy. Returns its version and its minimums.
pub fn open(input: &Value) -> Verdict {
    let (signed, mut scratch) = (bytes(input, "bytes"), vec![0; MAX_POLICY + 64]);
    let of = (GroupId(fixed(input, "group")), &Digest(fixed(input, "roster")));
    let policy = Policy::open(&signed, of, &key(input), &mut scratch).map_err(name)?;
    Ok(json!({
        "version": policy.version,
        "min_count": policy.min_count,
        "min_count_squares": policy.min_count_squares,
    }))
}

/// Checks whether a policy permits a query.
pub fn permit(input: &Value) -> Verdict {
    let (payload, plan) = (bytes(input, "policy"), bytes(input, "plan"));
    let policy = Policy::decode(&payload).map_err(name)?;
    let plan = Plan::decode(&plan).unwrap();
    let ring = (!input["ring"].is_null()).then(|| number(input, "ring"));
    let permission = policy.permit(&key(input), &plan, ring).map_err(name)?;
    Ok(json!({ "permission": match permission {
        Permission::Plain => json!("plain"),
        Permission::Masked => json!("masked"),
        Permission::Noisy { budget } => json!({ "noisy": budget }),
    } }))
}

/// Charges an answer with noise to what a source has spent on a day.
pub fn charge(input: &Value) -> Verdict {
    let (day, spent) = (number::<u64>(input, "day"), number::<u32>(input, "spent"));
    let bytes = [&[1][..], &day.to_be_bytes(), &spent.to_be_bytes()].concat();
    let mut ledger = Ledger::decode(&bytes).unwrap();
    ledger
        .charge(number(input, "start_ms"), number(input, "epsilon"), number(input, "budget"))
        .map_err(name)?;
    let bytes = ledger.encode();
    let (day, spent) = (bytes[1..9].try_into().unwrap(), bytes[9..].try_into().unwrap());
    Ok(json!({ "day": u64::from_be_bytes(day), "spent": u32::from_be_bytes(spent) }))
}

/// Returns the mask of a source.
pub fn mask(input: &Value) -> Value {
    let ring = number(input, "first")..number(input, "end");
    let root = MaskRoot::new(fixed(input, "root"));
    let secret = root.source(GroupId(fixed(input, "group")), ring, number(input, "position"));
    let key = secret.for_query(&Digest(fixed(input, "query")));
    let (slot, epoch) = (Slot(number(input, "slot")), number(input, "epoch"));
    json!({ "mask": hex_of(key.cover(&Psr::ZERO, slot, epoch).to_bytes()) })
}
