//! Vectors of audits, which compare manifests with the devices' seals epoch by epoch
//! (spec/coordinator.md, section 7).

use std::collections::BTreeMap;

use moteseal_adversary::coordinator::{CHEATS, FoundBy, Upload, stream as uploaded};
use moteseal_core::digest::Digest;
use moteseal_core::record::DeviceId;
use moteseal_core::record::Scheme;
use moteseal_core::signature::Algorithm;
use moteseal_verify::write;
use serde_json::{Value as Json, json};

use super::coordinator::{file_within, group_within, id, manifest, manifest_under};
use super::parts::file_of_streams;
use super::pruned::{device, item};
use super::{File, Files};
use moteseal_fixtures::world::{
    BUDGET, Epoch, FIXED, LEVELS, Pick, Sealed, coordinator, schema, stream,
};

const ED: Algorithm = Algorithm::Ed25519;
const OP: &str = "audit.range";
const NAMES: [&str; 4] = ["north", "south", "west", "east"];
/// The number of events of each device in the epochs 10 to 13.
const LOADS: [[u32; 4]; 4] = [[30, 20, 25, 40], [50, 10, 33, 28], [25, 0, 9, 6], [20, 9, 14, 30]];

pub fn make(files: &mut Files) {
    files.add(rounds());
    files.add(chains());
    files.add(lists());
    files.add(cheats());
    files.add(without_budget());
}

/// The content of a manifest, before it is signed.
#[derive(Clone)]
struct DraftManifest {
    epoch: u64,
    round: u8,
    listed: BTreeMap<DeviceId, Vec<Digest>>,
    roster: Digest,
}

/// The input of an audit: manifests, and the seals of each device.
#[derive(Clone)]
struct Scene {
    drafts: Vec<DraftManifest>,
    seals: Vec<(&'static str, Vec<Sealed>)>,
}

impl Scene {
    /// Creates a scene with these devices' seals, and with the manifests of an honest coordinator
    /// that received all of them.
    fn of(devices: &[(&'static str, Vec<Epoch>)]) -> Self {
        let seal = |(name, epochs): &(&'static str, Vec<Epoch>)| {
            let mut device = device(name);
            (*name, epochs.iter().map(|epoch| device.seal(epoch)).collect())
        };
        let seals: Vec<(&str, Vec<Sealed>)> = devices.iter().map(seal).collect();
        let mut drafts: BTreeMap<u64, BTreeMap<DeviceId, Vec<Digest>>> = BTreeMap::new();
        for (name, sealed) in &seals {
            for one in sealed {
                let draft = drafts.entry(one.seal.statement().epoch.0).or_default();
                draft.entry(id(name)).or_default().push(one.seal.digest());
            }
        }
        let roster = group_within(ED).digest();
        let mut scene = Self { drafts: Vec::new(), seals };
        let draft =
            |(epoch, listed)| DraftManifest { epoch, round: scene.due(epoch), listed, roster };
        scene.drafts = drafts.into_iter().map(draft).collect();
        scene
    }

    /// Creates a scene without faults, in which four devices seal four epochs.
    fn honest() -> Self {
        let device = |(at, name)| {
            let epochs =
                (10..).zip(LOADS).map(|(epoch, load): (u64, [u32; 4])| sealing(epoch, load[at]));
            (name, epochs.collect())
        };
        Self::of(&NAMES.into_iter().enumerate().map(device).collect::<Vec<(&str, Vec<Epoch>)>>())
    }

    /// Creates a scene with three devices as in [`honest`](Self::honest), and with the device
    /// `east`, which has these epochs.
    fn with_east(epochs: Vec<Epoch>) -> Self {
        let device = |(at, name)| {
            let epochs =
                (10..).zip(LOADS).map(|(epoch, load): (u64, [u32; 4])| sealing(epoch, load[at]));
            (name, epochs.collect())
        };
        let mut devices: Vec<(&str, Vec<Epoch>)> =
            NAMES.into_iter().enumerate().take(3).map(device).collect();
        devices.push(("east", epochs));
        Self::of(&devices)
    }

    /// Returns the lowest round at which the epoch's events fit the budget, according to the
    /// counters of all its seals.
    fn due(&self, epoch: u64) -> u8 {
        let of_epoch = || {
            self.seals
                .iter()
                .flat_map(|(_, seals)| seals)
                .filter(|one| one.seal.statement().epoch.0 == epoch)
        };
        let fits = |round: &u8| {
            let from = usize::from(*round);
            let events =
                of_epoch().flat_map(|one| &one.seal.statement().counters.as_slice()[from..]);
            events.map(|count| u64::from(*count)).sum::<u64>() <= BUDGET
        };
        (0..LEVELS).find(fits).unwrap_or(LEVELS)
    }

    fn draft(&mut self, epoch: u64) -> &mut DraftManifest {
        self.drafts.iter_mut().find(|draft| draft.epoch == epoch).unwrap()
    }

    fn sealed(&mut self, name: &str) -> &mut Vec<Sealed> {
        &mut self.seals.iter_mut().find(|(known, _)| *known == name).unwrap().1
    }

    fn changed(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut changed = self.clone();
        change(&mut changed);
        changed
    }

    /// Removes the seals of a device with these indices from the scene.
    fn hide(&mut self, name: &str, indices: &[u32]) {
        self.sealed(name).retain(|one| !indices.contains(&one.seal.statement().index.0));
    }

    fn digest(&self, name: &str, index: u32) -> Digest {
        let seals = self.seals.iter().find(|(known, _)| *known == name).unwrap();
        seals.1.iter().find(|one| one.seal.statement().index.0 == index).unwrap().seal.digest()
    }

    fn manifests(&self) -> Vec<Vec<u8>> {
        self.drafts.iter().map(DraftManifest::item).collect()
    }

    /// Returns the manifests, then every seal of each device, each with its own proof and without
    /// events.
    fn pieces(&self) -> Vec<Vec<u8>> {
        let mut pieces = self.manifests();
        for (_, sealed) in &self.seals {
            let mut out = Vec::new();
            write::schema(&mut out, &schema(FIXED));
            for one in sealed {
                out.extend(one.open(true));
                out.extend(one.part(&Pick::Levels(0), true));
            }
            pieces.push(out);
        }
        pieces
    }

    fn case(&self) -> Json {
        self.between(10, None)
    }

    /// Returns the data that a store serves for a range of epochs: the manifests from the start on,
    /// the seals in the range, and for each device the next seal, which proves where the range
    /// ends.
    fn between(&self, since: u64, until: Option<u64>) -> Json {
        let end = until.unwrap_or(u64::MAX);
        let shown = self.changed(|scene| {
            scene.drafts.retain(|draft| draft.epoch >= since);
            for (_, seals) in &mut scene.seals {
                let mut ended = false;
                seals.retain(|one| {
                    let statement = one.seal.statement();
                    let shown = statement.epoch.0 >= since && !ended;
                    ended |= statement.epoch.0 >= end
                        || (statement.epoch.0 + 1 == end && statement.last_in_epoch);
                    shown
                });
            }
        });
        case(&shown.pieces(), since, until)
    }
}

impl DraftManifest {
    fn item(&self) -> Vec<u8> {
        let listed: Vec<(DeviceId, Vec<Digest>)> =
            self.listed.iter().map(|(id, seals)| (*id, seals.clone())).collect();
        item(&manifest_under(self.roster, self.epoch, self.round, &listed))
    }
}

fn case(pieces: &[Vec<u8>], since: u64, until: Option<u64>) -> Json {
    let mut bytes = pieces.concat();
    write::end(&mut bytes);
    json!({ "bytes": hex::encode(bytes), "since": since, "until": until })
}

fn sealing(epoch: u64, count: u32) -> Epoch {
    Epoch::new(Scheme::Star, epoch, count)
}

fn part(epoch: u64, count: u32) -> Epoch {
    Epoch { last_in_epoch: false, ..sealing(epoch, count) }
}

fn restarted(epoch: u64, count: u32) -> Epoch {
    Epoch { restart: true, skipped: 1, ..sealing(epoch, count) }
}

fn rounds() -> File {
    let mut file = file_within(
        "audit/rounds.json",
        "Whether a manifest's round is the one that is due: coordinator.md, section 7.",
        ED,
    );
    let honest = Scene::honest();
    assert_eq!(honest.drafts.iter().map(|draft| draft.round).collect::<Vec<_>>(), [2, 2, 0, 1]);
    file.valid("four honest epochs", OP, honest.case());
    file.valid("one of them", OP, honest.between(13, None));
    for by in 1..=6u8 {
        let more = honest.changed(|scene| scene.draft(11).round += by);
        file.valid(format!("{by} rounds more than due"), OP, more.case());
    }
    for by in 1..=2u8 {
        let less = honest.changed(|scene| scene.draft(11).round -= by);
        file.valid(format!("{by} rounds less than due"), OP, less.case());
    }
    let exact = Scene::of(&[("north", vec![sealing(10, 40)]), ("south", vec![sealing(10, 0)])]);
    assert_eq!(exact.drafts[0].round, 0);
    let all = |scene: &Scene| {
        scene.changed(|scene| scene.seals.extend([("west", silent()), ("east", silent())]))
    };
    file.valid("as many events as the budget", OP, all(&exact).case());
    let over = Scene::of(&[("north", vec![sealing(10, 40)]), ("south", vec![sealing(10, 1)])]);
    assert!(over.drafts[0].round > 0);
    file.valid("one event more than the budget", OP, all(&over).case());
    file.valid(
        "one event more than the budget, and all of them kept",
        OP,
        all(&over).changed(|scene| scene.draft(10).round = 0).case(),
    );
    // The epoch has so many events that not even the highest level fits the budget.
    let flood = Scene::with_east(
        [vec![part(10, 3000), part(10, 3000)], vec![sealing(10, 3000)], vec![sealing(11, 3)]]
            .concat(),
    );
    assert_eq!(flood.drafts[0].round, LEVELS);
    file.valid("nothing fits", OP, flood.between(10, Some(11)));
    let one_less = flood.changed(|scene| scene.draft(10).round -= 1);
    file.valid("nothing fits, and the coarsest level is kept", OP, one_less.between(10, Some(11)));

    // `round` is the announced round, and `own_round` is the higher round that a device has set for
    // itself.
    let with_round = |round: u8, own_round: u8| {
        let mut epochs: Vec<Epoch> = (10..14).map(|epoch| sealing(epoch, 40)).collect();
        (epochs[1].round, epochs[1].own_round) = (round, own_round);
        Scene::with_east(epochs)
    };
    let due = with_round(0, 0).drafts[1].round;
    file.valid("a device was told the round that is due", OP, with_round(due, due).case());
    file.valid("a device raised itself above it", OP, with_round(0, due + 2).case());
    file.valid("a device was told a higher round", OP, with_round(due + 1, due + 1).case());
    file.valid("a device was told a much higher round", OP, with_round(due + 3, due + 4).case());
    let two = {
        let epochs = |rounds: u8| {
            let mut epochs: Vec<Epoch> = (10..14).map(|epoch| sealing(epoch, 40)).collect();
            (epochs[1].round, epochs[1].own_round) = (rounds, rounds);
            epochs
        };
        Scene::of(&[
            ("north", epochs(due + 3)),
            ("south", epochs(due + 1)),
            ("west", epochs(0)),
            ("east", epochs(due + 2)),
        ])
    };
    file.valid(
        "devices were told different rounds",
        OP,
        two.changed(|scene| scene.draft(11).round = due).case(),
    );
    file.valid("devices were told different rounds, where the due one was signed", OP, two.case());
    let signed = with_round(due + 1, due + 1).changed(|scene| scene.draft(11).round += 1);
    file.valid("a device was told a higher round, and it was signed", OP, signed.case());
    let both = with_round(due + 1, due + 1).changed(|scene| scene.draft(11).round -= 1);
    file.valid("too low a round, and a device was told a higher one", OP, both.case());
    let unlisted = with_round(due + 3, due + 3)
        .changed(|scene| drop(scene.draft(11).listed.remove(&id("east"))));
    file.valid("who was told a higher round is not listed", OP, unlisted.case());
    file
}

/// Returns no seals, because no device seals anything in epoch 10.
fn silent() -> Vec<Sealed> {
    Vec::new()
}

fn chains() -> File {
    let mut file = file_within(
        "audit/chains.json",
        "What the devices' chains leave open, and what they prove: coordinator.md, section 7.",
        ED,
    );
    let honest = Scene::honest();
    let last = |round_more: u8| {
        honest.changed(|scene| {
            scene.hide("east", &[3]);
            let draft = scene.draft(13);
            draft.listed.remove(&id("east"));
            draft.round += round_more;
        })
    };
    file.valid("a device is absent from the newest epoch", OP, last(0).case());
    file.valid(
        "a device is absent from the newest epoch, which ended at a higher round",
        OP,
        last(3).case(),
    );
    let low = last(0).changed(|scene| scene.draft(13).round = 0);
    file.valid("a device is absent from the newest epoch, which kept too much", OP, low.case());
    // In these epochs `east` is silent, and its chain continues afterwards in different ways.
    for (name, epochs) in [
        ("silence, and the chain goes on", vec![sealing(10, 9), sealing(13, 9)]),
        ("silence from the start on", vec![sealing(13, 9)]),
        ("silence to the end", vec![sealing(10, 9)]),
        ("an outage", vec![sealing(10, 9), restarted(13, 9)]),
        ("an outage from the start on", vec![restarted(13, 9)]),
        (
            "a restart within an epoch",
            vec![sealing(10, 9), part(11, 9), restarted(11, 9), sealing(13, 9)],
        ),
        (
            "a restart at an epoch's start",
            vec![sealing(10, 9), restarted(11, 9), sealing(12, 1), sealing(13, 9)],
        ),
        (
            "an epoch that the next seal closes",
            vec![sealing(10, 9), part(11, 9), sealing(12, 9), sealing(13, 9)],
        ),
        ("an epoch that a later seal closes", vec![sealing(10, 9), part(11, 9), sealing(13, 9)]),
        (
            "an epoch that is left open by a restart",
            vec![sealing(10, 9), part(11, 9), restarted(12, 9), sealing(13, 9)],
        ),
        (
            "an epoch that nothing closes",
            vec![sealing(10, 9), sealing(11, 9), sealing(12, 9), part(13, 9)],
        ),
        (
            "two parts that the next seal closes",
            vec![sealing(10, 9), part(11, 9), part(11, 9), sealing(12, 9), sealing(13, 9)],
        ),
        (
            "two parts that are left open by a restart",
            vec![sealing(10, 9), part(11, 9), part(11, 9), restarted(12, 9), sealing(13, 9)],
        ),
        ("three parts of an epoch", vec![part(10, 9), part(10, 9), sealing(10, 9), sealing(13, 9)]),
    ] {
        let scene = Scene::with_east(epochs);
        file.valid(name, OP, scene.case());
        let more =
            scene.changed(|scene| scene.drafts.iter_mut().for_each(|draft| draft.round += 1));
        file.valid(format!("{name}; a round more than due each time"), OP, more.case());
        file.valid(format!("{name}; epoch 11 alone"), OP, scene.between(11, Some(12)));
    }
    // A seal that no manifest lists can prove that its device was silent before it, if a later
    // listed seal refers to it.
    let back = Scene::with_east(vec![sealing(10, 9), sealing(12, 9), sealing(13, 9)]);
    for (name, unlisted) in
        [("the next seal was late", &[12][..]), ("the next two seals were late", &[12, 13])]
    {
        let late = back.changed(|scene| {
            unlisted.iter().for_each(|epoch| drop(scene.draft(*epoch).listed.remove(&id("east"))));
        });
        file.valid(format!("silence, and {name}"), OP, late.case());
        file.valid(format!("silence, and {name}; epoch 11 alone"), OP, late.between(11, Some(12)));
        let more = late.changed(|scene| scene.draft(11).round += 1);
        file.valid(format!("silence, and {name}; a round more than due"), OP, more.case());
    }
    // The fourth device never sealed anything.
    let three = Scene::with_east(Vec::new());
    file.valid("a device that never spoke", OP, three.case());
    // Only some of three parts are served. The audit accuses no device, because the store may have
    // withheld the other parts.
    let parts = Scene::with_east(vec![
        part(10, 9),
        part(10, 9),
        sealing(10, 9),
        sealing(11, 9),
        sealing(13, 9),
    ]);
    for hidden in 1..8u32 {
        let indices: Vec<u32> = (0..3).filter(|index| hidden >> index & 1 == 1).collect();
        let withheld = parts.changed(|scene| scene.hide("east", &indices));
        file.valid(
            format!("listed and not shown: {indices:?} of three parts"),
            OP,
            withheld.case(),
        );
        let dropped = withheld.changed(|scene| {
            let gone: Vec<Digest> =
                indices.iter().map(|index| parts.digest("east", *index)).collect();
            scene
                .draft(10)
                .listed
                .get_mut(&id("east"))
                .unwrap()
                .retain(|digest| !gone.contains(digest));
            if indices.len() == 3 {
                scene.draft(10).listed.remove(&id("east"));
            }
        });
        file.valid(
            format!("neither listed nor shown: {indices:?} of three parts"),
            OP,
            dropped.case(),
        );
    }
    for unlisted in 1..7u32 {
        let indices: Vec<u32> = (0..3).filter(|index| unlisted >> index & 1 == 1).collect();
        let late = parts.changed(|scene| {
            let gone: Vec<Digest> =
                indices.iter().map(|index| parts.digest("east", *index)).collect();
            scene
                .draft(10)
                .listed
                .get_mut(&id("east"))
                .unwrap()
                .retain(|digest| !gone.contains(digest));
        });
        file.valid(format!("shown and not listed: {indices:?} of three parts"), OP, late.case());
    }
    for epoch in [10, 12] {
        let invented = parts.changed(|scene| {
            scene.draft(epoch).listed.entry(id("east")).or_default().push(Digest([0x78; 32]));
        });
        file.valid(
            format!("an invented seal of epoch {epoch} beside three parts of epoch 10"),
            OP,
            invented.case(),
        );
    }
    let dropped = honest.changed(|scene| {
        scene.hide("south", &[1]);
        scene.draft(11).listed.remove(&id("south"));
    });
    file.valid("a device's epoch is dropped", OP, dropped.case());
    let late = honest.changed(|scene| drop(scene.draft(11).listed.remove(&id("south"))));
    file.valid("a device's epoch is late", OP, late.case());
    // A device has two different histories.
    let fork = Scene::with_east(vec![sealing(10, 9), sealing(11, 30), sealing(13, 3)]);
    let forked = honest.changed(|scene| {
        let other = fork.clone().sealed("east")[1].clone();
        scene.sealed("east")[1] = other;
    });
    file.valid("a device signed two histories", OP, forked.case());
    file
}

fn lists() -> File {
    let mut file = file_within(
        "audit/lists.json",
        "What a manifest lists that is not there, or not so: coordinator.md, section 7.",
        ED,
    );
    let honest = Scene::honest();
    let fake = |byte: u8| Digest([byte; 32]);
    let push = |epoch: u64, name: &str, digest: Digest| {
        honest.changed(|scene| scene.draft(epoch).listed.entry(id(name)).or_default().push(digest))
    };
    for (name, epoch) in [("of an old epoch", 11), ("of the newest epoch", 13)] {
        file.valid(format!("an invented seal {name}"), OP, push(epoch, "west", fake(0x78)).case());
        file.valid(
            format!("two invented seals {name}"),
            OP,
            push(epoch, "west", fake(0x78))
                .changed(|scene| {
                    scene.draft(epoch).listed.entry(id("west")).or_default().push(fake(0x79));
                })
                .case(),
        );
        let mute = push(epoch, "west", fake(0x78)).changed(|scene| scene.sealed("west").clear());
        file.valid(
            format!("an invented seal {name} of a device that shows nothing"),
            OP,
            mute.case(),
        );
    }
    let certificate = group_within(ED).device(id("east")).unwrap().certificate;
    file.valid("a certificate for a seal", OP, push(11, "east", certificate).case());
    file.valid("a seal of the epoch before", OP, push(11, "east", honest.digest("east", 0)).case());
    file.valid("a seal of the epoch after", OP, push(11, "east", honest.digest("east", 2)).case());
    let before = push(11, "east", honest.digest("east", 0))
        .changed(|scene| scene.sealed("east").truncate(2));
    file.valid("a seal of the epoch before, which alone was asked for", OP, {
        let alone = before.changed(|scene| {
            scene.drafts.retain(|draft| draft.epoch == 11);
            scene
                .seals
                .iter_mut()
                .for_each(|(_, seals)| seals.retain(|one| one.seal.statement().epoch.0 == 11));
        });
        alone.between(11, Some(12))
    });
    let elsewhere = honest.changed(|scene| {
        let seals = scene.draft(11).listed.remove(&id("south")).unwrap();
        scene.draft(11).listed.entry(id("north")).or_default().extend(seals);
    });
    file.valid("a seal listed under another device", OP, elsewhere.case());
    let phantom = honest.changed(|scene| {
        drop(scene.draft(11).listed.insert(DeviceId(*b"phantom!"), vec![fake(1), fake(2)]));
    });
    file.valid("a device that the roster does not have", OP, phantom.case());
    let older = phantom.changed(|scene| scene.draft(11).roster = Digest::of(&[b"version 0"]));
    file.valid("a device that an older roster may have had", OP, older.case());
    let twice = push(11, "east", honest.digest("east", 1));
    file.valid("a seal twice", OP, twice.case());

    let mut two = honest.clone();
    let mut other = two.drafts[1].clone();
    other.listed.remove(&id("north"));
    other.round = 1;
    two.drafts.insert(2, other);
    file.valid("two manifests of one epoch", OP, two.case());
    let mut again = honest.clone();
    again.drafts.insert(2, again.drafts[1].clone());
    file.valid("a manifest twice", OP, again.case());
    let without = |epochs: &[u64]| {
        honest.changed(|scene| scene.drafts.retain(|draft| !epochs.contains(&draft.epoch)))
    };
    file.valid("no manifest of an old epoch", OP, without(&[11]).case());
    file.valid("no manifest of the newest epoch", OP, without(&[13]).case());
    file.valid("no manifests", OP, without(&[10, 11, 12, 13]).case());
    let lost = without(&[11]).changed(|scene| scene.hide("south", &[1]));
    file.valid("no manifest of an epoch, and a seal of it missing", OP, lost.case());
    let all_lost =
        without(&[11]).changed(|scene| NAMES.iter().for_each(|name| scene.hide(name, &[1])));
    file.valid("no manifest of an epoch, and no seal of it", OP, all_lost.case());
    let unshown = honest.changed(|scene| scene.hide("east", &[3]));
    file.valid("the newest seal is on its way", OP, unshown.case());
    let unshown_at_epoch_14 = |until: u64| {
        unshown
            .changed(|scene| {
                scene.drafts.push(DraftManifest {
                    epoch: 14,
                    round: 0,
                    listed: BTreeMap::new(),
                    roster: scene.drafts[0].roster,
                });
            })
            .between(10, Some(until))
    };
    file.valid(
        "the newest seal is not shown, and the coordinator has gone on",
        OP,
        unshown_at_epoch_14(15),
    );
    file.valid(
        "the newest seal is not shown, and the coordinator has gone on behind the range",
        OP,
        unshown_at_epoch_14(14),
    );
    file.valid("nothing", OP, json!({ "bytes": "8103", "since": 10, "until": null }));
    file.valid("nothing but manifests", OP, honest.changed(|scene| scene.seals.clear()).case());

    let pieces = honest.pieces();
    let with = |at: usize, piece: Vec<u8>| {
        let mut changed = pieces.clone();
        changed.insert(at, piece);
        case(&changed, 10, None)
    };
    let forged = super::cose::parts_of(&manifest(14, 0, &[]));
    let forged = moteseal_fixtures::cbor_tree::Value::Array(
        [&forged[..3], &[moteseal_fixtures::cbor_tree::bytes(&[0; 64])]].concat(),
    );
    let forged = item(&moteseal_fixtures::cbor_tree::Value::Tag(18, Box::new(forged)).encode());
    let mut problem = Vec::new();
    write::problem(&mut problem, "StoreFailed", "the disk");
    let mut query = Vec::new();
    write::proof(&mut query, "{}");
    for (name, input, error) in [
        ("a manifest before the range", with(0, item(&manifest(9, 0, &[]))), "NotAsAsked"),
        ("a manifest that is not the coordinator's", with(4, forged), "NotAuthentic"),
        ("a device again", with(8, pieces[4].clone()), "NotAsAsked"),
        ("a query", with(0, query), "NotAsAsked"),
        ("the store could not go on", with(5, problem), "StoreFailed"),
        ("a seal before the range", case(&pieces[1..], 11, None), "NotAsAsked"),
        (
            "a manifest behind the end",
            case(&[&pieces[..], &[vec![0x81, 3], pieces[0].clone()]].concat(), 10, None),
            "TrailingBytes",
        ),
        ("a manifest after a seal", with(5, pieces[0].clone()), "NotAsAsked"),
        (
            "a schema after the end",
            case(&[&pieces[..], &[vec![0x81, 3, 0x82, 0, 0x42, 0x82, 1]]].concat(), 10, None),
            "TrailingBytes",
        ),
    ] {
        file.invalid(name, OP, input, error);
    }
    let unended = json!({ "bytes": hex::encode(pieces.concat()), "since": 10, "until": null });
    file.invalid("no end", OP, unended, "Truncated");
    file
}

/// Returns the epochs as their coordinator uploads them: each with its manifest, and with the
/// bundles' levels from the final round on.
fn uploads(honest: &Scene) -> Vec<Upload> {
    let roster = group_within(ED);
    let upload = |draft: &DraftManifest| {
        let listed: Vec<(DeviceId, Vec<Digest>)> = draft.listed.clone().into_iter().collect();
        let mask = 0xffu32 << draft.round & 0xff;
        let of_epoch = honest
            .seals
            .iter()
            .flat_map(|(_, seals)| seals)
            .filter(|one| one.seal.statement().epoch.0 == draft.epoch);
        let bundles: Vec<Vec<u8>> = of_epoch
            .map(|one| stream(&schema(FIXED), std::slice::from_ref(one), &Pick::Levels(mask)))
            .collect();
        Upload::read(&roster, &manifest(draft.epoch, draft.round, &listed), &bundles).unwrap()
    };
    honest.drafts.iter().map(upload).collect()
}

fn cheats() -> File {
    let about = "Every way in which a coordinator may cheat in what it uploads, and what an audit, or a client that asks for one \
                 device's epoch, says of it. Sections 5 and 8.3.";
    let mut file = file_within("audit/cheats.json", about, ED);
    let (roster, key) = (group_within(ED), coordinator(ED));
    let honest = uploads(&Scene::honest());
    let audited = |uploads: &[Upload]| json!({ "bytes": hex::encode(uploaded(uploads, &roster, &key).unwrap()), "since": 10, "until": null });
    file.valid("honest epochs", OP, audited(&honest));
    let at = 1;
    let got = |upload: &Upload, device: DeviceId| {
        let bundle = upload.bundles.iter().find(|bundle| bundle.device == device).unwrap();
        let mut bytes = bundle.bytes.clone();
        write::end(&mut bytes);
        let rate = if upload.round.0 == 0 {
            "1".to_owned()
        } else {
            format!("1/{}", 1u32 << upload.round.0)
        };
        let query =
            json!({ "devices": [device.to_string()], "since": 11, "until": 12, "rate": rate });
        json!({ "bytes": hex::encode(bytes), "query": query })
    };
    file.valid("honest readings", "answer.open", got(&honest[at], id("north")));
    for cheat in CHEATS {
        let altered = NAMES.iter().find_map(|name| {
            let mut uploads = honest.clone();
            ((cheat.alter)(&mut uploads, at, id(name)) && uploads != honest)
                .then_some((*name, uploads))
        });
        let (name, altered) = altered.unwrap();
        let what = format!("{}: {} ({name})", cheat.name, cheat.about);
        if cheat.found_by == FoundBy::Verifier {
            let input = got(&altered[at], id(name));
            let shared = crate::ops::Shared::new(&file.shared_values());
            let error = shared.run("answer.open", &input).unwrap_err();
            let listed = cheat.names.iter().find(|listed| **listed == error);
            file.invalid(what, "answer.open", input, listed.unwrap());
        } else {
            file.valid(what, OP, audited(&altered));
        }
    }
    file
}

fn without_budget() -> File {
    let mut file = file_of_streams(
        "audit/no-budget.json",
        "A group without a budget: there is nothing to audit. Section 8.3.",
    );
    let mut end = Vec::new();
    write::end(&mut end);
    file.valid("an end alone is a stream", "stream.read", json!({ "bytes": hex::encode(&end) }));
    file.invalid(
        "an audit",
        OP,
        json!({ "bytes": hex::encode(&end), "since": 10, "until": null }),
        "NoBudget",
    );
    file
}
