//! A malicious operator of Cassandra changes the rows of urgent events, manifests and equivocations, with checksums
//! that fit. A client that reads from the honest cloud on these rows gets only what the devices and the coordinator
//! signed, and no device or coordinator is accused, neither in an answer nor in a receipt. Two things stay unnoticed,
//! as the documents state: withheld urgent events (spec/objects.md, section 7.1), and an epoch of which no manifest
//! and no seal is left (docs/design.md).

use std::collections::BTreeSet;

use Outcome::{Fewer, Named, Same};
use bytes::Bytes;
use moteseal_adversary::coordinator::Upload;
use moteseal_api::{CBOR_SEQ, COSE, paths};
use moteseal_core::identity::encode_public_pem;
use moteseal_core::record::{DeviceId, Round, Scheme};
use moteseal_core::roster::Directory as _;
use moteseal_net::NetError;
use moteseal_verify::write;
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::budgeted::{self, FIRST, Group, coordinator, secret};
use crate::cassandra::Cassandra;
use crate::lying_events::{EVENT_LIES, Event, LATER, event, schema};
use crate::lying_table::{Change, Seal, changed, hex, seals_of, told, wrap};
use crate::scene::{self, Run, Scene};
use crate::table_store::shared;

/// The number of readings of the four devices in each epoch. The budget is not reached.
const LOADS: [[u32; 4]; 3] = [[10, 12, 8, 9], [11, 9, 12, 8], [9, 10, 11, 12]];
const BUDGET: u64 = 100;
/// The positions in the group of two honest devices, and of one that signs two seals of one index.
const NORTH: usize = 0;
const SOUTH: usize = 1;
const EAST: usize = 3;
/// The urgent events in the order of their arrival: device, epoch after the first one, and place in the seal.
const EVENTS: [(usize, u64, u64); 5] =
    [(NORTH, 0, 2), (SOUTH, 0, 5), (NORTH, 1, 3), (SOUTH, 1, 1), (NORTH, 2, 4)];

/// A row of the table `manifests`.
#[derive(Clone, Debug, scylla::DeserializeRow)]
pub(crate) struct Manifest {
    span: Vec<u8>,
    epoch: Vec<u8>,
    digest: Vec<u8>,
    manifest: Vec<u8>,
}

impl Manifest {
    /// Returns the kind of the row and the signed manifest.
    fn value(&self) -> &[u8] {
        &self.manifest[..self.manifest.len() - 8]
    }

    fn insert(&self, value: &[u8]) -> String {
        let key = [&self.epoch[..], &self.digest].concat();
        let (span, epoch, digest) = (hex(&self.span), hex(&self.epoch), hex(&self.digest));
        let manifest = hex(&wrap(&[b"manifest", &key], value));
        format!(
            "INSERT INTO manifests (span, epoch, digest, manifest) VALUES ({span}, {epoch}, {digest}, {manifest})"
        )
    }

    fn delete(&self) -> String {
        let (span, epoch, digest) = (hex(&self.span), hex(&self.epoch), hex(&self.digest));
        format!(
            "DELETE FROM manifests WHERE span = {span} AND epoch = {epoch} AND digest = {digest}"
        )
    }

    fn with(&self, value: &[u8]) -> Change {
        Change(vec![self.insert(value)], vec![self.insert(self.value())])
    }

    fn dropped(&self) -> Change {
        Change(vec![self.delete()], vec![self.insert(self.value())])
    }

    /// Adds a row under another digest.
    fn next_to(&self, value: &[u8]) -> Change {
        let other = Self { digest: changed(&self.digest, 0), ..self.clone() };
        Change(vec![other.insert(value)], vec![other.delete()])
    }
}

/// The honest rows, and what strangers have signed.
pub(crate) struct Rows {
    pub(crate) events: Vec<Event>,
    /// In the order of their epochs.
    manifests: Vec<Manifest>,
    /// The seals of the last epoch.
    newest: Vec<Seal>,
    pub(crate) stranger: Event,
    pub(crate) of_other_group: Event,
    /// A manifest that is not the coordinator's.
    forged: Vec<u8>,
}

/// What a command does after a lie. In no case does it print anything false.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// It reports this error.
    Named(&'static str),
    /// It prints what it prints without the lie. The order of urgent events may be another one.
    Same,
    /// It prints all lines but this many.
    Fewer(usize),
}

impl Outcome {
    fn is(self, honest: &Run, run: &Run) -> bool {
        match self {
            Named(name) => {
                run.code != 0 && run.failed(run.code).starts_with(&format!("moteseal: {name}: "))
            }
            Same => run.code == 0 && lines(run) == lines(honest),
            Fewer(less) => run.code == 0 && lines(run).len() + less == lines(honest).len(),
        }
    }
}

/// Returns the rows or verdicts that were printed, without the names of columns and the reasons of verdicts.
fn lines(run: &Run) -> BTreeSet<&str> {
    all_lines(run).collect()
}

fn all_lines(run: &Run) -> impl Iterator<Item = &str> {
    run.out.lines().filter(|line| !line.starts_with("epoch,") && !line.starts_with("  "))
}

/// Asserts that each printed line is a true one, and that none is repeated. Of an audit, only what is stated to be
/// justified must be true, and nothing may be unjustified.
fn assert_true(name: &str, honest: &Run, run: &Run) {
    let (printed, truth) = (lines(run), lines(honest));
    assert_eq!(printed.len(), all_lines(run).count(), "{name}: a line is repeated: {run:?}");
    for line in printed {
        let is_open = line.starts_with("epoch ") && line.contains("  Undetermined  ");
        assert!(truth.contains(line) || is_open, "{name}: {line}: {run:?}");
    }
}

/// A lie: its name, what two commands do, and what it changes.
pub(crate) type Lie = (&'static str, [Outcome; 2], fn(&Rows) -> Change);

/// Lies about manifests. The first command is an audit, the second one gets the readings of `north`.
const MANIFEST_LIES: &[Lie] = &[
    ("a listed seal is changed", [Named("NotAuthentic"), Named("StoreDamaged")], |rows| {
        // The last byte before the signature.
        let row = &rows.manifests[1];
        row.with(&changed(row.value(), row.value().len() - 67))
    }),
    ("the signature is changed", [Named("NotAuthentic"), Named("StoreDamaged")], |rows| {
        let row = &rows.manifests[1];
        row.with(&changed(row.value(), row.value().len() - 1))
    }),
    ("a manifest is cut off", [Named("Truncated"), Named("StoreDamaged")], |rows| {
        let row = &rows.manifests[1];
        row.with(&row.value()[..row.value().len() - 4])
    }),
    ("a manifest is empty", [Named("StoreDamaged"); 2], |rows| rows.manifests[1].with(&[])),
    ("a manifest is said to be longer than any memory", [Named("StoreDamaged"); 2], |rows| {
        // It is in pieces, which do not exist.
        rows.manifests[1].with(&[&[1][..], &(1_u64 << 60).to_be_bytes()].concat())
    }),
    ("a stranger signs another manifest", [Named("NotAuthentic"), Named("StoreDamaged")], |rows| {
        rows.manifests[1].next_to(&[&[0][..], &rows.forged].concat())
    }),
    ("a manifest is that of another epoch", [Named("Undetermined"), Named("NotAsAsked")], |rows| {
        rows.manifests[1].with(rows.manifests[2].value())
    }),
    ("two manifests are exchanged", [Same, Named("NotAsAsked")], |rows| {
        let (a, b) = (&rows.manifests[0], &rows.manifests[1]);
        Change(
            vec![a.insert(b.value()), b.insert(a.value())],
            vec![a.insert(a.value()), b.insert(b.value())],
        )
    }),
    ("a manifest is repeated under another digest", [Same, Named("NotAsAsked")], |rows| {
        let row = &rows.manifests[1];
        row.next_to(row.value())
    }),
    ("a manifest is moved to a later epoch", [Same, Named("ManifestMissing")], |rows| {
        let row = &rows.manifests[1];
        let later = Manifest { epoch: (FIRST + 9).to_be_bytes().to_vec(), ..row.clone() };
        Change(
            vec![row.delete(), later.insert(row.value())],
            vec![later.delete(), row.insert(row.value())],
        )
    }),
    ("a manifest is dropped", [Named("Undetermined"), Named("ManifestMissing")], |rows| {
        rows.manifests[1].dropped()
    }),
    ("the newest manifest is dropped", [Named("Undetermined"), Named("ManifestMissing")], |rows| {
        rows.manifests[2].dropped()
    }),
    (
        "the list of partitions is dropped",
        [Named("Undetermined"), Named("ManifestMissing")],
        |rows| {
            let span = hex(&rows.manifests[0].span);
            Change(
                vec!["DELETE FROM listing WHERE kind = 2".to_owned()],
                vec![format!("INSERT INTO listing (kind, item) VALUES (2, {span})")],
            )
        },
    ),
    // The audit has no entry for the epoch. A client that has had a seal of it misses this seal.
    ("the newest manifest and its seals are dropped", [Fewer(1), Named("Missing")], |rows| {
        let Change(mut lies, mut undo) = rows.manifests[2].dropped();
        let Change(seals, back) = Change::replace(&rows.newest.iter().collect::<Vec<_>>(), &[]);
        lies.extend(seals);
        undo.extend(back);
        Change(lies, undo)
    }),
];

/// A group with a budget, its cloud on a keyspace of its own, and the operator of Cassandra.
struct Site {
    scene: Scene,
    group: Group,
    cloud: scene::Cloud,
    /// A client that uploads to the cloud.
    client: budgeted::Cloud,
    runtime: Runtime,
    session: Session,
    store: String,
}

impl Site {
    fn new(cassandra: &Cassandra) -> Self {
        let (scene, address) = (Scene::new(), cassandra.address("lies_of_rows"));
        let store = address.to_string();
        scene.run(&["store", "init", "--replicas", "1", "--store", &store]).done();
        let group = Group::new(Scheme::Star, 10, BUDGET, 7);
        std::fs::write(scene.path("roster.cbor"), group.roster.bytes()).unwrap();
        let mut pem = [0; 512];
        let pem = encode_public_pem(&secret(98).public(), &mut pem).unwrap();
        std::fs::write(scene.path("keys/op.pub.pem"), pem).unwrap();
        let cloud = scene.cloud(&store);
        let client = budgeted::Cloud::at(&cloud.url);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let session = runtime.block_on(cassandra.session(&address));
        Self { scene, group, cloud, client, runtime, session, store }
    }

    fn upload(&self, upload: &Upload) {
        self.runtime.block_on(self.client.take(&self.group.roster, upload)).unwrap();
    }

    /// Uploads urgent events. Returns the name of the cloud's error.
    fn put_events(&self, events: &[Event]) -> Result<(), String> {
        let put = self.client.client.put(paths::EVENTS, CBOR_SEQ, Bytes::from(stream(events)));
        match self.runtime.block_on(put) {
            Ok(_) => Ok(()),
            Err(NetError::Refused { name, .. }) => Err(name),
            Err(error) => panic!("{error}"),
        }
    }

    /// Uploads something. Returns its receipt.
    fn receipt(&self, path: &str, media_type: &'static str, body: Vec<u8>) -> Value {
        self.runtime.block_on(async {
            let answer = self.client.client.put(path, media_type, Bytes::from(body)).await.unwrap();
            serde_json::from_slice(&answer.bytes(1 << 20).await.unwrap()).unwrap()
        })
    }

    /// Returns how many equivocations of devices and of the coordinator the cloud has counted.
    fn counted(&self) -> [u64; 2] {
        let text = self.runtime.block_on(async {
            let answer = self.client.client.get(paths::METRICS).await.unwrap();
            String::from_utf8(answer.bytes(1 << 20).await.unwrap()).unwrap()
        });
        ["moteseal_equivocations_total ", "moteseal_manifests_doubled_total "].map(|name| {
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
        })
    }

    /// Returns the honest events, signed.
    fn events(&self) -> Vec<Event> {
        let (roster, devices) = (&self.group.roster, &self.group.devices);
        (1..)
            .zip(EVENTS)
            .map(|(number, (device, epoch, seq))| {
                let key = secret(u8::try_from(device).unwrap());
                let group = (roster.group(), roster);
                let value = u32::try_from(seq).unwrap();
                let bytes = event(group, devices[device], (epoch, seq), value, &key);
                Event::new(devices[device], (epoch, seq), number, bytes)
            })
            .collect()
    }

    /// Returns an event with another value for the place of the first one, signed by this key.
    fn other_event(&self, key: u8) -> Event {
        let (roster, (device, epoch, seq)) = (&self.group.roster, EVENTS[0]);
        let device = self.group.devices[device];
        let bytes = event((roster.group(), roster), device, (epoch, seq), 99, &secret(key));
        Event::new(device, (epoch, seq), LATER, bytes)
    }

    fn rows<R: for<'r> DeserializeRow<'r, 'r>>(&self, select: &str) -> Vec<R> {
        self.runtime.block_on(async {
            let result = self.session.query_unpaged(select, &[]).await.unwrap();
            let result = result.into_rows_result().unwrap();
            result.rows::<R>().unwrap().map(Result::unwrap).collect()
        })
    }

    fn seals(&self, device: usize) -> Vec<Seal> {
        let device = hex::encode(self.group.devices[device].0);
        self.runtime.block_on(seals_of(&self.session, &device))
    }

    /// Runs commands at the same time.
    fn run<const N: usize>(&self, commands: [&[&str]; N]) -> [Run; N] {
        let scene = &self.scene;
        std::thread::scope(|scope| {
            let running = commands.map(|command| scope.spawn(|| scene.with_roster(command)));
            running.map(|run| run.join().unwrap())
        })
    }

    fn told<T>(&self, change: &Change, read: impl FnOnce() -> T) -> T {
        told(&self.runtime, &self.session, change, read)
    }

    /// Tells lies, and asserts that each has the stated outcome.
    fn tell(&self, lies: &[Lie], rows: &Rows, commands: [&[&str]; 2]) {
        let honest = self.run(commands).map(Run::done);
        let mut unexpected = Vec::new();
        for (name, expected, lie) in lies {
            let runs = self.told(&lie(rows), || self.run(commands));
            println!(
                "{name}: {:?}",
                runs.each_ref().map(|run| (run.code, run.stderr.lines().last()))
            );
            for ((outcome, honest), run) in expected.iter().zip(&honest).zip(&runs) {
                assert_true(name, honest, run);
                if !outcome.is(honest, run) {
                    unexpected.push((name, outcome, run.out.clone(), run.stderr.clone()));
                }
                // The coordinator is not accused of what the store can have withheld.
                let is_open = *outcome == Named("Undetermined");
                assert!(!is_open || run.stderr.contains("the store withholds"), "{name}: {run:?}");
            }
        }
        assert!(unexpected.is_empty(), "{unexpected:#?}");
        let again = self.run(commands).map(Run::done);
        assert_eq!(again.map(|run| run.out), honest.map(|run| run.out));
    }
}

/// Returns an upload of urgent events.
fn stream(events: &[Event]) -> Vec<u8> {
    let mut stream = Vec::new();
    write::schema(&mut stream, &schema());
    events.iter().for_each(|event| stream.extend_from_slice(&event.bytes));
    stream
}

#[test]
fn lies_about_urgent_events_manifests_and_equivocations_have_nothing_false_served() {
    let cassandra = shared();
    let mut site = Site::new(&cassandra);
    let uploads = LOADS.map(|readings| site.group.epoch(readings));
    uploads.iter().for_each(|upload| site.upload(upload));
    let events = site.events();
    assert_eq!(site.put_events(&events), Ok(()));
    let rows = rows(&site, events, &uploads);

    let url = &site.cloud.url;
    let urgent = ["get", "--events", "urgent", "--format", "csv", "--from", url];
    let of_north = [&urgent[..], &["--since", "@1001", "north"]].concat();
    site.tell(EVENT_LIES, &rows, [&urgent, &of_north]);
    lies_about_the_lengths_of_events(&site, &rows.events);

    let get = |device| ["get", device, "--from", url, "--at-most", "1000", "--format", "csv"];
    let until = |device| [&get(device)[..], &["--until", "@1003"]].concat();
    site.tell(MANIFEST_LIES, &rows, [&["audit", "--from", url], &until("north")]);

    // The last device signs another seal of the last epoch: its state was copied before.
    let commands: [&[&str]; 3] = [&get("east"), &until("east"), &until("north")];
    let honest = site.run(commands).map(Run::done);
    let mut copy = Group::new(Scheme::Star, 10, BUDGET, 7);
    let [.., mut twin] = [LOADS[0], LOADS[1], [9, 10, 11, 20]].map(|readings| copy.epoch(readings));
    twin.bundles.retain(|bundle| bundle.device == copy.devices[EAST]);
    twin.withheld = true;
    site.upload(&twin);
    lies_about_equivocations(&site, (commands, &honest), &twin);
    let before = site.counted();
    forged_rows_accuse_nobody(&site, &rows, &uploads[1]);
    assert_eq!(site.counted(), before);
    forged_rows_hide_no_equivocation(&site, &rows, (&uploads[1], &twin));
    assert_eq!(site.counted(), [before[0] + 2, before[1] + 1]);
}

/// Returns the honest rows. Asserts that they are in the tables.
fn rows(site: &Site, events: Vec<Event>, uploads: &[Upload]) -> Rows {
    let order = "SELECT number, digest, place FROM urgent_order WHERE bucket = 0";
    let order: Vec<(i64, Vec<u8>, Vec<u8>)> = site.rows(order);
    let place =
        |event: &Event| (event.number, event.digest.clone(), event.place_of(event.number, event));
    assert_eq!(order, events.iter().map(place).collect::<Vec<_>>());
    for event in &events {
        let select =
            |columns, table| format!("SELECT {columns} FROM {table} WHERE {}", event.condition());
        let stored: Vec<(Vec<u8>,)> = site.rows(&select("event", "urgent"));
        assert_eq!(stored, [(event.row(&event.bytes),)]);
        let confirmed: Vec<(i64,)> = site.rows(&select("number", "urgent_placed"));
        assert_eq!(confirmed, [(event.number,)]);
    }
    let manifests: Vec<Manifest> = site.rows("SELECT span, epoch, digest, manifest FROM manifests");
    assert_eq!(manifests.len(), uploads.len());
    for (row, upload) in manifests.iter().zip(uploads) {
        let signed = upload.manifest(&site.group.roster, &coordinator()).unwrap();
        assert_eq!(row.value(), [&[0][..], &signed].concat());
    }
    let newest = (0..site.group.devices.len()).map(|device| site.seals(device)[2].clone());
    let (roster, north) = (&site.group.roster, site.group.devices[NORTH]);
    let mut group = roster.group();
    let stranger = event((group, roster), north, (1, 6), 6, &secret(97));
    group.0[0] ^= 1;
    let of_other_group = event((group, roster), north, (1, 7), 7, &secret(0));
    Rows {
        events,
        manifests,
        newest: newest.collect(),
        stranger: Event::new(north, (1, 6), LATER, stranger),
        of_other_group: Event::new(north, (1, 7), LATER, of_other_group),
        forged: uploads[1].manifest(roster, &secret(97)).unwrap(),
    }
}

/// The lengths limit what a device can upload. If an upload is refused, its gateway keeps the events.
fn lies_about_the_lengths_of_events(site: &Site, events: &[Event]) {
    let north = &events[0];
    let length = |event: &Event| i64::try_from(event.bytes.len()).unwrap();
    let lie = |size| Change(vec![north.put_size(size)], vec![north.put_size(length(north))]);
    let device = hex(&north.device);
    let dropped = Change(
        vec![format!("DELETE FROM urgent_sizes WHERE device = {device}")],
        events.iter().map(|event| event.put_size(length(event))).collect(),
    );
    for (name, change, expected) in [
        ("the limit is said to be used up", lie(1 << 40), Some("EventQuota")),
        ("a length is negative", lie(-(1 << 40)), Some("StoreDamaged")),
        ("the lengths are dropped", dropped, None),
    ] {
        // A repeated upload changes nothing.
        let result = site.told(&change, || site.put_events(&events[..1]));
        assert_eq!(result, expected.map_or(Ok(()), |name| Err(name.to_owned())), "{name}");
    }
}

/// The device `east` has signed two seals of index 2, and `north` is honest. The commands get the readings of `east`,
/// those up to the end of the epoch of the two seals, and those of `north`.
fn lies_about_equivocations(
    site: &Site,
    (commands, honest): ([&[&str]; 3], &[Run; 3]),
    twin: &Upload,
) {
    let ids = [EAST, NORTH].map(|device| site.group.devices[device].0);
    let row = |id: &[u8; 8], index: u32| {
        let (shard, id) = (id[0], hex(id));
        let columns = "INSERT INTO equivocations (shard, device, seal_index)";
        (
            format!("{columns} VALUES ({shard}, {id}, {index})"),
            format!(
                "DELETE FROM equivocations WHERE shard = {shard} AND device = {id} AND seal_index = {index}"
            ),
        )
    };
    let list =
        |id: &[u8; 8]| format!("INSERT INTO listing (kind, item) VALUES (1, {})", hex(&id[..1]));
    let listed: Vec<(Vec<u8>, i64)> = site.rows("SELECT device, seal_index FROM equivocations");
    assert_eq!(listed, [(ids[0].to_vec(), 2)]);
    let (insert, delete) = row(&ids[0], 2);
    let of_east = site.seals(EAST);
    assert_eq!(of_east.len(), 4);
    let second = of_east.iter().find(|seal| seal.digest == twin.bundles[0].digest.0).unwrap();
    let of_north = site.seals(NORTH)[1].clone();
    assert_eq!(of_north.seal_index, 1);
    let forged = of_north.forged();
    let (accuse, acquit) = row(&ids[1], 1);
    let unlisted = "was signed twice, but is not listed";
    let (twice, forgery) = (Named("Equivocation"), Named("StoreDamaged"));
    // Of a range that one of the two seals closes, the cloud does not read the other one, unless it is listed. The
    // client has pinned the first one.
    let hidden = if of_east[2].digest == second.digest { twice } else { Same };
    let lies = [
        ("no lie", Change(vec![], vec![]), [twice, twice, Same], None),
        (
            "an equivocation is dropped",
            Change(vec![delete], vec![insert]),
            [twice, hidden, Same],
            Some(unlisted),
        ),
        (
            "the list of partitions is dropped",
            Change(vec!["DELETE FROM listing WHERE kind = 1".to_owned()], vec![list(&ids[0])]),
            [twice, hidden, Same],
            Some(unlisted),
        ),
        (
            "an equivocation is invented for an honest device",
            Change(vec![accuse.clone(), list(&ids[1])], vec![acquit.clone()]),
            [twice, twice, Same],
            None,
        ),
        // What is served is one of the two histories. The evidence against the device is withheld.
        ("the second seal is dropped", Change::replace(&[second], &[]), [Same, Same, Same], None),
        (
            "an equivocation is invented with a forged seal",
            Change(vec![forged.insert(), accuse, list(&ids[1])], vec![forged.delete(), acquit]),
            [twice, twice, forgery],
            Some("the signature is invalid"),
        ),
    ];
    for (name, change, expected, finding) in lies {
        let check = ["store", "check", &site.store];
        let (runs, check) =
            site.told(&change, || (site.run(commands), site.scene.with_roster(&check)));
        for ((outcome, honest), run) in expected.iter().zip(honest).zip(&runs) {
            assert_true(name, honest, run);
            assert!(outcome.is(honest, run), "{name}: {outcome:?}: {run:?}");
        }
        let is_found = finding.is_none_or(|finding| check.out.contains(finding));
        assert!(
            is_found && check.code == if finding.is_some() { 5 } else { 0 },
            "{name}: {check:?}"
        );
    }
}

/// The operator drops what was uploaded, and adds a row that nobody has signed in its place. The upload is repeated.
fn forged_rows_accuse_nobody(site: &Site, rows: &Rows, upload: &Upload) {
    let expected = json!({ "stored": 1, "known": 0 });
    let seal = site.seals(NORTH)[1].clone();
    let forged = seal.with_other_signature().forged();
    let lie = Change(vec![seal.delete(), forged.insert()], vec![forged.delete()]);
    let bundle = bundle_of(upload, site.group.devices[NORTH]);
    let receipt = site.told(&lie, || site.receipt(paths::BUNDLES, CBOR_SEQ, bundle.clone()));
    assert_eq!(receipt, expected, "a seal");
    std::fs::write(site.scene.path("north.mseal"), bundle).unwrap();
    let push = ["push", "north.mseal", "--to", &site.cloud.url, "--json"];
    let pushed = site.told(&lie, || site.scene.run(&push)).done().json();
    assert_eq!((&pushed["stored"], &pushed["conflicts"]), (&json!(1), &json!([])), "{pushed}");

    let row = &rows.manifests[1];
    let Change(mut lies, undo) = row.next_to(&[&[0][..], &rows.forged].concat());
    lies.insert(0, row.delete());
    let manifest = upload.manifest(&site.group.roster, &coordinator()).unwrap();
    let put = || site.receipt(paths::MANIFESTS, COSE, manifest);
    assert_eq!(site.told(&Change(lies, undo), put), expected, "a manifest");

    let (event, forged) = (&rows.events[0], site.other_event(97));
    let lie = Change(vec![event.delete(), forged.insert(&forged.bytes)], vec![forged.delete()]);
    let put = || site.receipt(paths::EVENTS, CBOR_SEQ, stream(std::slice::from_ref(event)));
    assert_eq!(site.told(&lie, put), expected, "an event");
}

/// The same lies about a device and a coordinator that have signed two histories.
fn forged_rows_hide_no_equivocation(site: &Site, rows: &Rows, (upload, twin): (&Upload, &Upload)) {
    let [east, north] = [EAST, NORTH].map(|device| site.group.devices[device]);
    let seals = site.seals(EAST);
    let second = seals.iter().find(|seal| seal.digest == twin.bundles[0].digest.0).unwrap();
    let forged = second.with_other_signature().forged();
    let lie = Change(vec![second.delete(), forged.insert()], vec![forged.delete()]);
    let bundle = bundle_of(twin, east);
    let receipt = site.told(&lie, || site.receipt(paths::BUNDLES, CBOR_SEQ, bundle.clone()));
    let conflicts = json!([{ "device": east.to_string(), "index": 2 }]);
    assert_eq!(receipt, json!({ "stored": 1, "known": 0, "conflicts": conflicts }));
    std::fs::write(site.scene.path("east.mseal"), bundle).unwrap();
    let pushed = site.scene.run(&["push", "east.mseal", "--to", &site.cloud.url]);
    assert!(pushed.failed(5).contains("signed different seals under index 2"), "{pushed:?}");

    let other = Upload { round: Round(upload.round.0 + 1), ..upload.clone() };
    let lie = rows.manifests[1].next_to(&[&[0][..], &rows.forged].concat());
    let manifest = other.manifest(&site.group.roster, &coordinator()).unwrap();
    let receipt = site.told(&lie, || site.receipt(paths::MANIFESTS, COSE, manifest));
    assert_eq!(receipt, json!({ "stored": 1, "known": 0, "conflict": true }));

    let [forged, other] = [97, 0].map(|key| site.other_event(key));
    let lie = Change(vec![forged.insert(&forged.bytes)], vec![forged.delete()]);
    let put = || site.receipt(paths::EVENTS, CBOR_SEQ, stream(&[other]));
    let receipt = site.told(&lie, put);
    let conflicts = json!([{ "device": north.to_string(), "index": 0, "seq": 2 }]);
    assert_eq!(receipt, json!({ "stored": 1, "known": 0, "conflicts": conflicts }));
}

fn bundle_of(upload: &Upload, device: DeviceId) -> Vec<u8> {
    upload.bundles.iter().find(|bundle| bundle.device == device).unwrap().bytes.clone()
}
