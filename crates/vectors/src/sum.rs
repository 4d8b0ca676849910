//! Runs the operations of the vectors for private sums (spec/sums.md) with the product's code. The
//! operations on plans and answers are in query.rs.

use moteseal_core::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::participation::{self, Participation};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, PublicKey};
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::query::QueryId;
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, Posed, QuerySchedule};
use moteseal_sum::sies::{KeyTotals, Master, Psr, Slot, SourceSecret};
use moteseal_sum::wire::{Explain, Psrs, SumUplink};
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, fixed, hex_list, hex_of, list, name, number, text};

/// Reads an integer of up to 128 bits, which is a string in JSON.
pub fn wide(value: &Value) -> u128 {
    value.as_str().unwrap().parse().unwrap()
}

fn source(input: &Value, device: [u8; 8]) -> SourceSecret {
    Master::new(fixed(input, "master")).source(
        GroupId(fixed(input, "group")),
        DeviceId(device),
        number(input, "key_group"),
    )
}

/// Returns a source's two secrets, and the record that it sends for a value.
pub fn encrypt(input: &Value) -> Verdict {
    let (source, query) = (source(input, fixed(input, "device")), QueryId(fixed(input, "query")));
    // These vectors do not test the epoch guard. With epochs of one millisecond, a new guard
    // permits any epoch number.
    let mut permit =
        EpochGuard::default().advance(query, 1, number(input, "epoch")).map_err(name)?;
    let psr = source
        .for_query(query)
        .encrypt(&mut permit, Slot(number(input, "slot")), wide(&input["value"]))
        .map_err(name)?;
    let secrets = source.to_bytes();
    Ok(
        json!({ "device": hex_of(&secrets[..32]), "key_group": hex_of(&secrets[32..]), "psr": hex_of(psr.to_bytes()) }),
    )
}

/// Adds the records of one key group's participants for one slot, and opens the sum.
pub fn open(input: &Value) -> Verdict {
    let mut sum = Psr::ZERO;
    for psr in hex_list(input, "psrs") {
        sum = sum.merge(&Psr::from_bytes(&psr).map_err(name)?);
    }
    let (query, slot, epoch) =
        (QueryId(fixed(input, "query")), Slot(number(input, "slot")), number(input, "epoch"));
    let mut totals = KeyTotals::default();
    for device in hex_list(input, "participants") {
        totals.add(&source(input, device.try_into().unwrap()).for_query(query), slot, epoch);
    }
    let master = Master::new(fixed(input, "master"));
    let key = master
        .key_group(GroupId(fixed(input, "group")), number(input, "key_group"))
        .for_query(query);
    let value = totals.open(&sum, &key, slot, epoch, wide(&input["vmax"])).map_err(name)?;
    Ok(json!({ "sum": value.to_string() }))
}

fn runs(input: &Value) -> Vec<(u32, u32)> {
    let end = |run: &Value, at: usize| u32::try_from(run[at].as_u64().unwrap()).unwrap();
    list(input, "runs").iter().map(|run| (end(run, 0), end(run, 1))).collect()
}

/// Encodes a set of positions, which is given by its runs.
pub fn participants(input: &Value) -> Value {
    let runs = runs(input);
    let mut out = vec![0; participation::max_size(runs.last().map_or(0, |run| run.1))];
    let length = match runs[..] {
        [(start, end)] if end == start + 1 => Participation::encode_one(start, &mut out).unwrap(),
        _ => {
            let mut words = vec![0_u64; out.len().div_ceil(8)];
            runs.iter()
                .flat_map(|&(start, end)| start..end)
                .for_each(|at| words[at as usize / 64] |= 1 << (at % 64));
            Participation::encode(&words, &mut out).unwrap()
        }
    };
    json!({ "bytes": hex_of(&out[..length]) })
}

/// Decodes a set of positions and returns its runs.
pub fn participation(input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let read = Participation::decode(&bytes, number(input, "sources")).map_err(name)?;
    let runs: Vec<_> = read.runs().map(|run| [run.start, run.end]).collect();
    Ok(json!({ "runs": runs, "count": read.count() }))
}

fn key_of(input: &Value) -> LinkKey {
    let (group, child) = (GroupId(fixed(input, "group")), DeviceId(fixed(input, "child")));
    LinkKey::new(&LinkKey::secret_of(&fixed(input, "hub_secret"), group, child))
}

fn records(psrs: Psrs<'_>) -> Result<Vec<String>, String> {
    psrs.iter().map(|psr| psr.map(|psr| hex_of(psr.to_bytes())).map_err(name)).collect()
}

fn reference(query: u32) -> String {
    hex_of(query.to_be_bytes())
}

/// Opens a frame of a child, as its parent does, and reads every record in it.
pub fn up(input: &Value) -> Verdict {
    let frame = bytes(input, "frame");
    Ok(match SumUplink::open(&frame, &key_of(input)).map_err(|error| error.name().to_owned())? {
        SumUplink::Share(share) => json!({
            "frame": "share",
            "query": reference(share.query),
            "epoch": share.epoch,
            "participation": hex_of(share.participation),
            "psrs": records(share.psrs)?,
        }),
        SumUplink::Children(children) => {
            let shares: Result<Vec<Value>, String> = children
                .shares()
                .map(|(child, participation, psrs)| {
                    Ok(json!([child.to_string(), hex_of(participation), records(psrs)?]))
                })
                .collect();
            json!({
                "frame": "children",
                "query": reference(children.query),
                "epoch": children.epoch,
                "node": children.node.to_string(),
                "first": children.first,
                "total": children.total,
                "children": shares?,
            })
        }
        SumUplink::Refusal(refusal) => json!({
            "frame": "refusal",
            "query": reference(refusal.query),
            "epoch": refusal.epoch,
            "position": refusal.position,
            "reason": refusal.reason,
            "tag": hex_of(refusal.tag),
        }),
    })
}

/// Returns the tag of a source's statement that it does not answer.
pub fn refusal(input: &Value) -> Value {
    let (group, device) = (GroupId(fixed(input, "group")), DeviceId(fixed(input, "device")));
    let secret = Master::new(fixed(input, "master")).source(group, device, 0);
    let (query, epoch) = (QueryId(fixed(input, "query")), number(input, "epoch"));
    let tag = secret.refusal_tag(query, epoch, text(input, "reason"));
    assert!(secret.has_refused(query, epoch, text(input, "reason"), &tag));
    json!({ "tag": hex_of(tag) })
}

/// Opens a question of a parent, as its child does.
pub fn explain(input: &Value) -> Verdict {
    let asked = Explain::open(&bytes(input, "frame"), &key_of(input))
        .map_err(|error| error.name().to_owned())?;
    Ok(json!({
        "query": reference(asked.query),
        "epoch": asked.epoch,
        "node": asked.node.to_string(),
        "first": asked.first,
    }))
}

/// Opens a query schedule with the querier's public key, as a device or gateway does.
pub fn schedule(input: &Value) -> Verdict {
    let key = PublicKey::from_bytes(
        Algorithm::from_name(text(input, "alg")).unwrap(),
        &bytes(input, "key"),
    )
    .unwrap();
    let (bytes, group, roster) =
        (bytes(input, "bytes"), GroupId(fixed(input, "group")), Digest(fixed(input, "roster")));
    let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
    let message = schedule::receive(&bytes, group, &key, &mut scratch)
        .map_err(|error| error.name().to_owned())?;
    let schedule =
        QuerySchedule::open(&message, group, &roster).map_err(|error| error.name().to_owned())?;
    let query = |(id, posed): (QueryId, Posed<'_>)| json!({ "id": id.to_string(), "first": posed.first, "until": posed.until, "plan": hex_of(posed.plan) });
    Ok(json!({
        "digest": schedule.digest().to_string(),
        "number": schedule.number(),
        "sources": schedule.sources(),
        "key_group": schedule.key_group(),
        "queries": schedule.queries().map(query).collect::<Vec<_>>(),
    }))
}
