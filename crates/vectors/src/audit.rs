//! Runs the audits that the test vectors describe (spec/coordinator.md, section 7) with the
//! product's code. Returns the findings of each epoch as JSON objects in a fixed order.

use moteseal_client::audit::{Audit, Doubt, EpochReport, Finding};
use moteseal_core::record::EpochNumber;
use moteseal_seal::sample;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, number};

/// Audits a range of epochs, given as the manifests followed by the seals of each device.
pub fn range(roster: &Roster, input: &Value) -> Verdict {
    let until = (!input["until"].is_null()).then(|| EpochNumber(number(input, "until")));
    let mut audit = Audit::new(roster, EpochNumber(number(input, "since")), until)
        .map_err(|_| "NoBudget".to_owned())?;
    let mut feed = audit.stream();
    feed.feed(&bytes(input, "bytes")).map_err(|refusal| refusal.name().to_owned())?;
    feed.finish().map_err(|refusal| refusal.name().to_owned())?;
    Ok(json!({ "epochs": audit.finish().epochs.iter().map(epoch).collect::<Vec<_>>() }))
}

fn epoch(report: &EpochReport) -> Value {
    json!({
        "epoch": report.epoch.0,
        "verdict": report.verdict(),
        "manifest": report.manifest.map(|(digest, _)| digest.to_string()),
        "round": report.manifest.map(|(_, round)| round.0),
        "due": report.due.map(|due| due.0),
        "kept": report.kept,
        "counts": report.counts.iter().map(|(_, count)| *count).collect::<Vec<_>>(),
        "devices": report.devices,
        "listed": report.listed,
        "seals": report.seals,
        "findings": sorted(report.findings.iter().map(finding).collect()),
        "doubts": sorted(report.doubts.iter().map(doubt).collect()),
    })
}

/// Sorts findings by name, device, index and digest.
fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    values.sort_by_key(|one| {
        (text(one, "name"), text(one, "device"), one["index"].as_u64(), text(one, "digest"))
    });
    values
}

fn finding(finding: &Finding) -> Value {
    let name = finding.name();
    match finding {
        Finding::Round { found: sample::Finding::OverBudget { round, kept, due }, .. } => {
            json!({ "name": name, "round": round.0, "kept": kept, "due": due.0 })
        }
        Finding::Round { found: sample::Finding::StoppedEarly { round, due, fitting }, .. } => {
            json!({ "name": name, "round": round.0, "due": due.0, "fitting": fitting })
        }
        Finding::Round {
            found: sample::Finding::RoundOverstated { round, announced },
            devices,
        } => {
            let mut rounds: Vec<(String, u8)> =
                devices.iter().map(|(device, round)| (device.to_string(), round.0)).collect();
            rounds.sort();
            json!({ "name": name, "round": round.0, "announced": announced.0, "told": rounds })
        }
        Finding::TwoManifests { digests } => {
            let mut digests: Vec<String> = digests.iter().map(ToString::to_string).collect();
            digests.sort();
            json!({ "name": name, "digests": digests })
        }
        Finding::Replayed { device, index, from } => {
            json!({ "name": name, "device": device.to_string(), "index": index.0, "from": from.0 })
        }
        Finding::InventedDevice { device, seals } => {
            json!({ "name": name, "device": device.to_string(), "seals": seals })
        }
        Finding::InventedSeal { device, digest } | Finding::Unshown { device, digest } => {
            json!({ "name": name, "device": device.to_string(), "digest": digest.to_string() })
        }
        Finding::Missing { device, index, named_by } => {
            json!({ "name": name, "device": device.to_string(), "index": index.0, "named_by": named_by.0 })
        }
        Finding::Equivocation { device, index } => {
            json!({ "name": name, "device": device.to_string(), "index": index.0 })
        }
        other => panic!("no vector shows {other:?}"),
    }
}

fn doubt(doubt: &Doubt) -> Value {
    let (name, device) = (doubt.name(), doubt.device().map(|device| device.to_string()));
    match doubt {
        Doubt::NoManifest { has_gone_on } => json!({ "name": name, "gone_on": has_gone_on }),
        Doubt::Absent { listed, .. } => json!({ "name": name, "device": device, "listed": listed }),
        Doubt::Restarted { .. } => json!({ "name": name, "device": device }),
        Doubt::Late { index, .. } | Doubt::Withheld { index, .. } => {
            json!({ "name": name, "device": device, "index": index.0 })
        }
        Doubt::NotShownYet { digest, .. } => {
            json!({ "name": name, "device": device, "digest": digest.to_string() })
        }
        other => panic!("no vector shows {other:?}"),
    }
}
