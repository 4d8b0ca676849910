//! Runs the operations of the vectors for sampling within a budget (spec/coordinator.md, section 1)
//! with the product's code.

use std::collections::BTreeMap;

use moteseal_api::Query;
use moteseal_client::output::OutputError;
use moteseal_client::{Rows, Session, Standing, Stop};
use moteseal_core::DeviceId;
use moteseal_core::record::{EpochNumber, Level, Round};
use moteseal_core::roster::Directory as _;
use moteseal_seal::follow::Limits;
use moteseal_seal::sample::{Announcement, Coordinator, Offer};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, manifest as manifests};
use serde_json::{Value, json};

use crate::ops::{Verdict, bytes, list, number};

/// Opens a coordinator's announcement and returns its round.
pub fn announcement(roster: &Roster, input: &Value) -> Verdict {
    let announcement =
        Announcement::open(&bytes(input, "bytes"), roster.group(), &roster.coordinators()[0].1)
            .map_err(|error| error.name().to_owned())?;
    Ok(json!({ "epoch": announcement.epoch().0, "round": announcement.round().0 }))
}

/// Opens a manifest and returns its contents.
pub fn manifest(roster: &Roster, input: &Value) -> Verdict {
    let bytes = bytes(input, "bytes");
    let manifest = manifests::open(&bytes, roster).map_err(|error| error.name().to_owned())?;
    let devices = manifest.devices().map(|(device, seals)| {
        let seals: Vec<String> = seals.map(|digest| digest.to_string()).collect();
        assert_eq!(
            manifest.seals(device).map(|digest| digest.to_string()).collect::<Vec<_>>(),
            seals
        );
        json!([device.to_string(), seals])
    });
    Ok(json!({
        "digest": manifest.digest().to_string(),
        "roster": manifest.roster().to_string(),
        "epoch": manifest.epoch().0,
        "round": manifest.round().0,
        "devices": devices.collect::<Vec<_>>(),
    }))
}

/// Why a bundle that is verified as a file is rejected.
enum Refused {
    Read(ReadError),
    NotWhole,
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Verifies a bundle file. It must contain every surviving level. If the manifest of its epoch
/// precedes it, it must contain every level from the final round on.
pub fn bundle(roster: &Roster, limits: Limits, input: &Value) -> Verdict {
    let mut rounds: BTreeMap<EpochNumber, Round> = BTreeMap::new();
    let mut parts = Vec::new();
    let mut visit = |event: Event<'_>| {
        match event {
            Event::Manifest(manifest, _) => {
                let round = rounds.entry(manifest.epoch()).or_insert(Round(0));
                *round = manifest.round().max(*round);
            }
            Event::Proven(proven) => {
                let statement = proven.seal.statement();
                let ended = rounds
                    .get(&statement.epoch)
                    .filter(|_| roster.budget(statement.epoch).is_some());
                let from = proven.whole_from();
                if !proven.is_whole() && from.zip(ended).is_none_or(|(from, ended)| from > *ended) {
                    return Err(Refused::NotWhole);
                }
                parts.push(json!({
                    "index": statement.index.0,
                    "epoch": statement.epoch.0,
                    "from": from.map(|from| from.0),
                    "events": proven.sample.len(),
                }));
            }
            _ => {}
        }
        Ok(())
    };
    let mut reader = StreamReader::new(roster, limits);
    let read =
        reader.feed(&bytes(input, "bytes"), &mut visit).and_then(|()| reader.finish(&mut visit));
    match read {
        Ok(()) if !parts.is_empty() => Ok(json!({ "parts": parts })),
        Ok(()) | Err(Refused::NotWhole) => Err("NotWhole".to_owned()),
        Err(Refused::Read(error)) => Err(error.name().to_owned()),
    }
}

/// Checks a response to a query as a client does.
pub fn answer(roster: &Roster, input: &Value) -> Verdict {
    let query = Query::from_json(input["query"].to_string().as_bytes())
        .map_err(|error| error.name().to_owned())?;
    verify(Session::new(roster, query, None), input)
}

/// Checks a proof as a client does.
pub fn proof(roster: &Roster, input: &Value) -> Verdict {
    verify(Session::of_proof(roster, None), input)
}

fn verify(mut session: Session<'_>, input: &Value) -> Verdict {
    let mut rows: BTreeMap<DeviceId, Vec<Value>> = BTreeMap::new();
    let mut sink = |part: &Rows<'_>| -> Result<(), OutputError> {
        let of_device = rows.entry(part.device()).or_default();
        part.sample().for_each(&moteseal_seal::engine::Scalar, |seq, _, record| {
            of_device.push(json!([part.statement().index.0, seq.0, hex::encode(record)]));
        });
        Ok(())
    };
    let refused = |stop| match stop {
        Stop::Rejected(refusal) => refusal.name().to_owned(),
        Stop::Output(error) => panic!("{error}"),
    };
    session.feed(&bytes(input, "bytes"), &mut sink).map_err(refused)?;
    let (report, _) = session.finish(&mut sink).map_err(refused)?;
    let devices = report.devices.iter().map(|device| {
        let (standing, from) = match device.standing {
            Standing::Complete => ("Complete", None),
            Standing::TailUnknown { from } => ("TailUnknown", Some(from.0)),
            Standing::ManifestMissing { from } => ("ManifestMissing", Some(from.0)),
            Standing::Redacted => ("Redacted", None),
        };
        json!({
            "device": device.device.to_string(),
            "standing": standing,
            "from": from,
            "seals": device.seals,
            "late": device.late,
            "rows": rows.remove(&device.device).unwrap_or_default(),
        })
    });
    let devices: Vec<Value> = devices.collect();
    Ok(
        json!({ "devices": devices, "rounds": report.rounds.iter().map(|(epoch, round)| (epoch.0, round.0)).collect::<Vec<_>>() }),
    )
}

/// Runs the steps of a coordinator: offered events, withdrawn events and settled rounds. Returns
/// its state after each step, and the number of kept events of each level.
pub fn offers(input: &Value) -> Value {
    let levels: u8 = number(input, "levels");
    let mut coordinator = Coordinator::new(levels, number(input, "budget"));
    let mut after = Vec::new();
    for step in list(input, "steps") {
        let at = |place: usize| step[place].as_u64().unwrap();
        let level = || u8::try_from(at(1)).unwrap();
        let before = coordinator.round().0;
        let became = match step[0].as_str().unwrap() {
            "offer" => match coordinator.offer(Level(level())) {
                Offer::Declined => "declined",
                Offer::Kept => "kept",
                Offer::Raised(forgotten) => {
                    assert_eq!(forgotten, before..coordinator.round().0);
                    "raised"
                }
            },
            "withdraw" => {
                coordinator.withdraw(Level(level()), at(2));
                "withdrawn"
            }
            "settle" => {
                assert_eq!(coordinator.settle(Round(level())), before..coordinator.round().0);
                "settled"
            }
            other => panic!("unknown step {other}"),
        };
        after.push(json!([became, coordinator.round().0, coordinator.kept()]));
    }
    let kept: Vec<u64> = (0..levels).map(|level| coordinator.kept_at(Level(level))).collect();
    json!({ "after": after, "kept": kept })
}
