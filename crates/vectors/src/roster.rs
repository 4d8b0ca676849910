//! The operations of rosters (spec/objects.md, section 4).

use moteseal_core::roster::{Right, Roster as CoreRoster, Term};
use moteseal_core::signature::PublicKey;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes};

/// Opens a roster.
pub fn open(operator: &PublicKey, input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let mut scratch = vec![0; bytes.len() + moteseal_core::roster::SCRATCH_OVERHEAD];
    let roster = CoreRoster::open(&bytes, operator, &mut scratch)
        .map_err(|error| error.name().to_owned())?;
    let owned = Roster::open(&bytes, operator).unwrap();
    assert_eq!(owned.digest(), roster.digest());
    let term = |term: Term<'_>| {
        let certificate = term.certificate().expect("the roster has been checked");
        let (index, epoch) = (term.end_index, term.end_epoch);
        json!([
            certificate.first_index.0,
            term.first_epoch.0,
            index.map(|index| index.0),
            epoch.map(|epoch| epoch.0),
        ])
    };
    let devices = roster.devices().map(|device| {
        let terms: Vec<Value> = device.terms().map(term).collect();
        json!([device.id.to_string(), device.name, device.since, terms])
    });
    let periods = roster.periods().map(|period| {
        json!({
            "version": period.version,
            "first_epoch": period.first_epoch.0,
            "start_ms": period.start_ms,
            "epoch_ms": period.epoch_ms,
            "levels": period.levels,
            "budget": period.budget,
            "coordinator": period.coordinator().map(|certificate| certificate.digest().to_string()),
        })
    });
    let mut output = json!({
        "digest": roster.digest().to_string(),
        "group_name": roster.group_name(),
        "group": roster.group().to_string(),
        "version": roster.version(),
        "periods": periods.collect::<Vec<_>>(),
        "last_epoch": roster.last_epoch().map(|epoch| epoch.0),
        "querier": roster.querier().map(|certificate| certificate.digest().to_string()),
        "devices": devices.collect::<Vec<_>>(),
    });
    let owners: Vec<Value> = roster
        .owners()
        .map(|owner| json!([owner.name, owner.certificate().unwrap().digest().to_string()]))
        .collect();
    if !owners.is_empty() {
        output["owners"] = json!(owners);
    }
    let right = |right: Right<'_>| {
        let devices = right.devices().map(|ids| ids.map(|id| id.to_string()).collect::<Vec<_>>());
        let end = right.end_epoch.map(|end| end.0);
        json!([devices, right.groups.bits(), right.first_epoch.0, end])
    };
    let sanitisers: Vec<Value> = roster
        .sanitisers()
        .map(|of| {
            let digest = of.certificate().unwrap().digest().to_string();
            json!([of.name, digest, of.rights().map(right).collect::<Vec<_>>()])
        })
        .collect();
    if !sanitisers.is_empty() {
        output["sanitisers"] = json!(sanitisers);
    }
    Ok(output)
}

/// Checks that a roster is a later version of another.
pub fn succeed(operator: &PublicKey, input: &Value) -> Verdict {
    let open = |name| {
        let bytes = bytes(input, name);
        Roster::open(&bytes, operator).map_err(|error| error.name().to_owned())
    };
    let (before, later) = (open("before")?, open("later")?);
    later.check_succeeds(&before).map_err(|error| error.name().to_owned())?;
    Ok(json!({ "version": later.version() }))
}
