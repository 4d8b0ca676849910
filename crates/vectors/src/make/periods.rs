//! Vectors across the versions of a roster: a period with another epoch length, keys that are rotated
//! and revoked, and a device that is removed (spec/objects.md, section 4; spec/answers.md, sections 2
//! and 6).

use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_fixtures::world::{
    BUDGETED, Device, Epoch, FIXED, Pick, Sealed, device_secret, operator, roster, schema,
};
use moteseal_seal::stream::Open;
use moteseal_verify::Roster;
use moteseal_verify::issue::{NextRoster, PeriodChange};
use moteseal_verify::write;
use serde_json::{Value as Json, json};

use super::coordinator::id;
use super::{File, Files, of};

/// The first epoch of the second period.
const SECOND: u64 = 12;

pub fn make(files: &mut Files) {
    let versions = Versions::new();
    files.add(streams(&versions));
    files.add(answers(&versions));
}

/// Version 1 of the group's roster, and version 2. Version 2 begins a period with epochs of half the
/// length, gives `north` a new key from then on, removes `south` at the same time, and revokes the
/// key of `west` from seal 1 on, with a new key from seal 2 on.
struct Versions {
    first: Roster,
    second: Roster,
    bytes: Vec<u8>,
}

impl Versions {
    fn new() -> Self {
        let (operator, before) = (operator(), roster(BUDGETED));
        let public = operator.public();
        let mut next = NextRoster::after(&before, &operator, &public).unwrap();
        let shorter =
            PeriodChange { epoch_ms: Some(450_000), levels: None, budget: None, coordinator: None };
        next.begin_period(EpochNumber(SECOND), &shorter).unwrap();
        next.rotate("north", &next_key("north").public(), EpochNumber(SECOND), SealIndex(0))
            .unwrap();
        next.end("south", None, Some(EpochNumber(SECOND))).unwrap();
        next.end("west", Some(SealIndex(1)), None).unwrap();
        next.rotate("west", &next_key("west").public(), EpochNumber(0), SealIndex(2)).unwrap();
        let bytes = next.issue().unwrap();
        Self {
            first: Roster::open(&before, &public).unwrap(),
            second: Roster::open(&bytes, &public).unwrap(),
            bytes,
        }
    }

    fn file(&self, path: &'static str, about: &'static str) -> File {
        let roster = json!(hex::encode(&self.bytes));
        File::new(path, about).operator(&operator()).shared("roster", roster)
    }

    /// Seals epochs of a device one after another. Each is under a version of the roster, with the
    /// device's first or next key.
    fn chain(&self, name: &'static str, epochs: &[(u64, u32, bool)]) -> Vec<(u32, Sealed)> {
        let mut device = Device::new(&self.first, name, &schema(FIXED));
        epochs
            .iter()
            .map(|&(epoch, version, is_next)| {
                let under = if version == 1 { &self.first } else { &self.second };
                let position = device.position;
                device = Device::new(under, name, &schema(FIXED));
                device.position = position;
                let mut sealed = device.seal(&Epoch::new(Scheme::Star, epoch, 12));
                if is_next {
                    let key = next_key(name);
                    sealed.seal = moteseal_seal::Seal::new(
                        sealed.seal.statement().clone(),
                        *sealed.seal.root(),
                        key.algorithm(),
                    );
                    let mut buffer = [0; moteseal_seal::MAX_MESSAGE];
                    sealed.signature =
                        key.signature(sealed.seal.message(&mut buffer)).unwrap().to_vec();
                    device.position = sealed.seal.position();
                }
                (version, sealed)
            })
            .collect()
    }
}

/// Returns the key that version 2 gives a device.
fn next_key(name: &str) -> SecretKey {
    device_secret(name, Algorithm::Ed25519, 1000)
}

/// Returns seals with all their events, each under its own open item.
fn items(sealed: &[(u32, Sealed)]) -> Vec<u8> {
    let mut out = Vec::new();
    write::schema(&mut out, &schema(FIXED));
    for (version, one) in sealed {
        let statement = one.seal.statement();
        let open = Open {
            device: statement.device,
            roster_version: *version,
            prev: Some(statement.prev),
            last: statement.last,
        };
        write::open(&mut out, &open);
        out.extend(one.part(&Pick::Levels(0xff), true));
    }
    out
}

fn streams(versions: &Versions) -> File {
    let mut file = versions.file(
        "stream/periods.json",
        "Seals of several versions of a roster: objects.md, section 4, and answers.md, section 2.",
    );
    let op = "stream.read";
    for (name, device, epochs) in [
        ("a new key with a new period", "north", &[(11, 1, false), (SECOND, 2, true)][..]),
        ("the later version in the first period", "north", &[(11, 2, false)]),
        ("the past of a device that was removed", "south", &[(10, 1, false), (11, 1, false)]),
        ("a seal before the key was revoked", "west", &[(10, 1, false)]),
    ] {
        file.valid(name, op, of(&items(&versions.chain(device, epochs))));
    }
    for (name, device, epochs, error) in [
        (
            "the earlier version in the second period",
            "north",
            &[(SECOND, 1, false)][..],
            "RosterOutdated",
        ),
        ("the old key in the second period", "north", &[(SECOND, 2, false)], "NotAuthentic"),
        ("the new key in the first period", "north", &[(11, 2, true)], "NotAuthentic"),
        ("a device that was removed", "south", &[(SECOND, 2, false)], "KeyEnded"),
        ("a seal after the key was revoked", "west", &[(10, 1, false), (11, 1, false)], "KeyEnded"),
        ("a version that does not exist", "north", &[(11, 3, false)], "UnknownRoster"),
    ] {
        file.invalid(name, op, of(&items(&versions.chain(device, epochs))), error);
    }
    file
}

fn answers(versions: &Versions) -> File {
    let mut file = versions.file(
        "budget/periods.json",
        "Answers across versions of a roster: objects.md, section 4.3, and answers.md, section 6.1.",
    );
    let op = "answer.open";
    let case = |name: &str, sealed: &[(u32, Sealed)], until: Option<u64>| -> Json {
        let mut bytes = items(sealed);
        write::end(&mut bytes);
        json!({
            "bytes": hex::encode(bytes),
            "query": {
                "devices": [id(name).to_string()],
                "since": 10,
                "until": until,
                "rate": "1",
            },
        })
    };
    let north = versions.chain("north", &[(10, 1, false), (11, 1, false), (SECOND, 2, true)]);
    file.valid("two periods", op, case("north", &north, Some(SECOND + 1)));
    file.valid("two periods, and what follows is unknown", op, case("north", &north, Some(20)));
    let south = versions.chain("south", &[(10, 1, false), (11, 1, false)]);
    // No seal can follow, because the device was removed.
    file.valid("a device that was removed", op, case("south", &south, Some(20)));
    file.valid("a device that was removed, without an end", op, case("south", &south, None));
    file.valid("a device that was removed, and sealed nothing", op, case("south", &[], Some(20)));
    let mut west = versions.chain("west", &[(10, 1, false), (11, 1, false), (13, 2, true)]);
    let void = west.remove(1);
    file.valid("a successor of a void seal", op, case("west", &west, Some(14)));
    let alone = vec![west.remove(1)];
    file.valid("only the successor of a void seal", op, case("west", &alone, Some(14)));
    let with_void = vec![west.remove(0), void];
    file.invalid("a void seal", op, case("west", &with_void, Some(14)), "KeyEnded");
    file
}
