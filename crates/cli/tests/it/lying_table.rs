//! A malicious operator of Cassandra changes the rows of a cloud, with checksums that fit. A client that reads
//! from the honest cloud on these rows accepts nothing false.

use scylla::client::session::Session;
use xxhash_rust::xxh64::Xxh64;

use crate::scene::{Run, Scene};
use crate::table_store::shared;

pub(crate) fn hex(bytes: &[u8]) -> String {
    format!("0x{}", hex::encode(bytes))
}

/// Returns a value with the checksum that the store expects (crates/table/src/guard.rs).
pub(crate) fn wrap(key: &[&[u8]], value: &[u8]) -> Vec<u8> {
    let mut hash = Xxh64::new(0);
    for part in key {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(value);
    [value, &hash.digest().to_be_bytes()].concat()
}

/// A row of the table `seals`.
#[derive(Clone, Debug, scylla::DeserializeRow)]
pub(crate) struct Seal {
    pub(crate) device: Vec<u8>,
    span: i32,
    pub(crate) seal_index: i64,
    pub(crate) digest: Vec<u8>,
    kept: i64,
    variant: Vec<u8>,
    epoch: Vec<u8>,
    head: Vec<u8>,
}

impl Seal {
    /// Returns the key of the seal in checksums: device, index and digest.
    fn key(&self) -> Vec<u8> {
        let index = u32::try_from(self.seal_index).unwrap().to_be_bytes();
        [&self.device[..], &index, &self.digest].concat()
    }

    /// Returns the head and the body.
    pub(crate) fn value(&self) -> &[u8] {
        &self.head[..self.head.len() - 8]
    }

    /// Returns the row with this head and body, or at another place, with the right checksums.
    pub(crate) fn with(&self, value: &[u8]) -> Self {
        let kept = u32::try_from(self.kept).unwrap().to_be_bytes();
        let head = wrap(&[b"seal", &self.key(), &kept, &self.variant], value);
        let epoch = wrap(&[b"epoch", &self.key()], &self.epoch[..self.epoch.len() - 8]);
        Self { head, epoch, ..self.clone() }
    }

    /// Returns the row with another signature.
    pub(crate) fn with_other_signature(&self) -> Self {
        self.with(&changed(self.value(), end_of_signed(self.value()) - 1))
    }

    /// Returns a seal of the same index that its device did not sign.
    pub(crate) fn forged(&self) -> Self {
        let end = end_of_signed(self.value());
        // The last byte of the root, before the signature.
        let value = changed(self.value(), end - 67);
        let (seal, _) = moteseal_seal::Seal::decode(&value[21..end]).unwrap();
        Self { digest: seal.digest().0.to_vec(), ..self.clone() }.with(&value)
    }

    fn in_epoch(&self, epoch: u64) -> Self {
        let epoch = wrap(&[b"epoch", &self.key()], &epoch.to_be_bytes());
        Self { epoch, ..self.clone() }
    }

    pub(crate) fn insert(&self) -> String {
        format!(
            "INSERT INTO seals (device, span, seal_index, digest, kept, variant, epoch, head) \
             VALUES ({}, {}, {}, {}, {}, {}, {}, {})",
            hex(&self.device),
            self.span,
            self.seal_index,
            hex(&self.digest),
            self.kept,
            hex(&self.variant),
            hex(&self.epoch),
            hex(&self.head),
        )
    }

    pub(crate) fn delete(&self) -> String {
        format!(
            "DELETE FROM seals WHERE device = {} AND span = {} AND seal_index = {} AND digest = {} \
             AND kept = {} AND variant = {}",
            hex(&self.device),
            self.span,
            self.seal_index,
            hex(&self.digest),
            self.kept,
            hex(&self.variant),
        )
    }
}

/// The honest rows: those of a device with stars and of one with trees, in the order of their indices.
struct Rows {
    stars: Vec<Seal>,
    trees: Vec<Seal>,
    /// Digest and encoding of the schema.
    schema: (Vec<u8>, Vec<u8>),
    /// A schema with other names, under its own digest.
    other: Vec<u8>,
}

/// What a lie writes, and what undoes it.
pub(crate) struct Change(pub(crate) Vec<String>, pub(crate) Vec<String>);

impl Change {
    /// Replaces rows.
    pub(crate) fn replace(old: &[&Seal], new: &[Seal]) -> Self {
        let back = new.iter().map(Seal::delete).chain(old.iter().map(|row| row.insert())).collect();
        Self(old.iter().map(|row| row.delete()).chain(new.iter().map(Seal::insert)).collect(), back)
    }
}

/// A lie: its name, what the client names, and what it changes. `dev1` has stars, `dev2` trees.
type Lie = (&'static str, &'static str, fn(&Rows) -> Change);

pub(crate) fn changed(value: &[u8], at: usize) -> Vec<u8> {
    let mut value = value.to_vec();
    value[at] ^= 1;
    value
}

/// Returns where the signed statement of a head ends. It begins at byte 21.
fn end_of_signed(value: &[u8]) -> usize {
    // Version, epoch, size of a record, length of the readings, and length precede it.
    21 + usize::from(u16::from_be_bytes([value[19], value[20]]))
}

/// Returns a head that claims 2^50 bytes of readings, each with a length before it, in pieces that do not
/// exist.
fn endless(value: &[u8]) -> Vec<u8> {
    let end = end_of_signed(value);
    let (seal, _) = moteseal_seal::Seal::decode(&value[21..end]).unwrap();
    let kept = usize::try_from(seal.statement().surviving().count_ones()).unwrap();
    let mut head = value[..end + 32 * kept].to_vec();
    let length = (1_u64 << 50).to_be_bytes();
    head[9..11].fill(0);
    head[11..19].copy_from_slice(&length);
    // The highest level has all of them.
    head.extend(length);
    head.extend(vec![0; 8 * (kept - 1)]);
    head
}

/// Puts the heads and bodies of two rows at each other's place.
fn exchanged(a: &Seal, b: &Seal) -> Change {
    Change::replace(&[a, b], &[a.with(b.value()), b.with(a.value())])
}

/// Replaces one row by another one.
fn put(old: &Seal, new: Seal) -> Change {
    Change::replace(&[old], &[new])
}

const LIES: &[Lie] = &[
    ("a reading is changed", "BlockDigestMismatch", |rows| {
        let row = &rows.stars[3];
        put(row, row.with(&changed(row.value(), row.value().len() - 1)))
    }),
    ("a reading of a tree is changed", "PathMismatch", |rows| {
        let row = &rows.trees[3];
        put(row, row.with(&changed(row.value(), row.value().len() - 1)))
    }),
    ("the last reading is cut off", "StoreDamaged", |rows| {
        let row = &rows.stars[3];
        put(row, row.with(&row.value()[..row.value().len() - 8]))
    }),
    ("the signed statement is changed", "StoreDamaged", |rows| {
        let row = &rows.stars[4];
        put(row, row.with(&changed(row.value(), 40)))
    }),
    ("the signature is changed", "NotAuthentic", |rows| {
        // Later seals contain the digest of the one before, so only the last signature counts.
        let row = &rows.trees[rows.trees.len() - 1];
        put(row, row.with_other_signature())
    }),
    ("the number of readings is changed", "StoreDamaged", |rows| {
        let row = &rows.stars[4];
        put(row, row.with(&changed(row.value(), 18)))
    }),
    ("the readings are said to be longer than any memory", "StoreDamaged", |rows| {
        let row = &rows.stars[4];
        put(row, row.with(&endless(row.value())))
    }),
    ("the body is empty", "StoreDamaged", |rows| {
        let row = &rows.stars[4];
        put(row, row.with(&row.value()[..row.value().len() - 400]))
    }),
    ("a seal is dropped", "Missing", |rows| Change::replace(&[&rows.stars[5]], &[])),
    ("the first seal is dropped", "Missing", |rows| Change::replace(&[&rows.trees[0]], &[])),
    ("the newest seal is dropped", "Missing", |rows| {
        Change::replace(&[&rows.stars[rows.stars.len() - 1]], &[])
    }),
    ("an old snapshot is restored", "Missing", |rows| {
        let newer: Vec<&Seal> = rows.stars[rows.stars.len() / 2..].iter().collect();
        Change::replace(&newer, &[])
    }),
    ("everything is dropped", "Missing", |rows| {
        Change::replace(&rows.stars.iter().collect::<Vec<_>>(), &[])
    }),
    ("two seals are exchanged", "StoreDamaged", |rows| exchanged(&rows.stars[2], &rows.stars[6])),
    ("two seals of trees are exchanged", "StoreDamaged", |rows| {
        exchanged(&rows.trees[2], &rows.trees[6])
    }),
    ("the seals of two devices are exchanged", "StoreDamaged", |rows| {
        exchanged(&rows.stars[2], &rows.trees[2])
    }),
    ("a seal is repeated at another index", "StoreDamaged", |rows| {
        let old = &rows.stars[5];
        let new = Seal { seal_index: old.seal_index, ..rows.stars[4].clone() };
        put(old, new.with(rows.stars[4].value()))
    }),
    ("a seal has the digest of another one", "StoreDamaged", |rows| {
        let old = &rows.trees[5];
        let new = Seal { digest: rows.trees[6].digest.clone(), ..old.clone() };
        put(old, new.with(old.value()))
    }),
    ("a seal of one device is given to the other", "StoreDamaged", |rows| {
        let (old, from) = (&rows.trees[7], &rows.stars[7]);
        let new = Seal { device: old.device.clone(), ..from.clone() };
        put(old, new.with(from.value()))
    }),
    ("levels are said to be missing", "StoreDamaged", |rows| {
        let old = &rows.stars[3];
        let new = Seal { kept: old.kept & !1, ..old.clone() };
        put(old, new.with(old.value()))
    }),
    ("a seal is in an earlier epoch", "StoreDamaged", |rows| {
        let row = &rows.stars[8];
        let value = [&row.value()[..1], &rows.stars[2].value()[1..9], &row.value()[9..]].concat();
        put(row, row.with(&value))
    }),
    ("a search by epoch skips a seal", "Missing", |rows| {
        put(&rows.stars[0], rows.stars[0].in_epoch(0))
    }),
    ("the schema is another one", "StatementMismatch", |rows| {
        let (digest, honest) = &rows.schema;
        let other = wrap(&[b"schema", digest], &rows.other);
        let update = |value: &[u8]| {
            format!("UPDATE schemas SET encoding = {} WHERE digest = {}", hex(value), hex(digest))
        };
        Change(vec![update(&other)], vec![update(honest)])
    }),
    ("the schema is gone", "StoreDamaged", |rows| {
        let (digest, honest) = &rows.schema;
        let (digest, honest) = (hex(digest), hex(honest));
        Change(
            vec![format!("DELETE FROM schemas WHERE digest = {digest}")],
            vec![format!("INSERT INTO schemas (digest, encoding) VALUES ({digest}, {honest})")],
        )
    }),
    ("the partitions of a device are gone", "Missing", |rows| {
        let device = hex(&rows.stars[0].device);
        Change(
            vec![format!("DELETE FROM spans WHERE device = {device}")],
            vec![format!("INSERT INTO spans (device, span) VALUES ({device}, 0)")],
        )
    }),
];

/// Writes a lie, reads, and takes the lie back. Returns what was read.
pub(crate) fn told<T>(
    runtime: &tokio::runtime::Runtime,
    session: &Session,
    Change(lies, undo): &Change,
    read: impl FnOnce() -> T,
) -> T {
    runtime.block_on(write(session, lies));
    let result = read();
    runtime.block_on(write(session, undo));
    result
}

async fn write(session: &Session, statements: &[String]) {
    for statement in statements {
        session.query_unpaged(statement.as_str(), &[]).await.unwrap();
    }
}

pub(crate) async fn seals_of(session: &Session, device: &str) -> Vec<Seal> {
    let select = format!(
        "SELECT device, span, seal_index, digest, kept, variant, epoch, head FROM seals \
         WHERE device = 0x{device} AND span = 0"
    );
    let result = session.query_unpaged(select, &[]).await.unwrap().into_rows_result().unwrap();
    result.rows::<Seal>().unwrap().map(Result::unwrap).collect()
}

/// Returns the id of a device in hexadecimal digits.
fn id_of(scene: &Scene, name: &str) -> String {
    let show = ["roster", "show", "roster.cbor", "--operator", "keys/op.pub.pem", "--json"];
    let roster = scene.run(&show).done().json();
    let devices = roster["devices"].as_array().unwrap();
    let device = devices.iter().find(|device| device["name"] == name).unwrap();
    device["id"].as_str().unwrap().to_owned()
}

/// Gets the readings of both devices in the hours before `hour`.
fn get(scene: &Scene, url: &str, hour: u32) -> [Run; 2] {
    ["dev1", "dev2"].map(|device| {
        let until = format!("2026-01-01T{hour:02}:00:00Z");
        let range = ["--since", "2026-01-01", "--until", &until];
        let get = ["get", device, "--from", url, "--rate", "1", "--format", "csv"];
        scene.with_roster(&[&get[..], &range].concat())
    })
}

#[test]
fn every_lie_of_a_malicious_table_is_named_by_the_client() {
    let (scene, cassandra) = (Scene::new(), shared());
    let address = cassandra.address("lies");
    let url = address.to_string();
    scene.run(&["store", "init", "--replicas", "1", "--store", &url]).done();
    scene.table("readings.csv", 960);
    scene.seal("readings.csv", "dev1", &[]).done();
    scene.seal("readings.csv", "dev2", &["--scheme", "tree"]).done();
    let cloud = scene.cloud(&url);
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let honest = get(&scene, &cloud.url, 16).map(Run::done);
    assert!(honest.iter().all(|run| run.out.lines().count() == 961), "{honest:?}");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let session = runtime.block_on(cassandra.session(&address));
    let rows = |name: &str| runtime.block_on(seals_of(&session, &id_of(&scene, name)));
    let (stars, trees) = (rows("dev1"), rows("dev2"));
    assert_eq!((stars.len(), trees.len()), (16, 16));
    let schemas = runtime.block_on(async {
        let all = session.query_unpaged("SELECT digest, encoding FROM schemas", &[]).await.unwrap();
        let all = all.into_rows_result().unwrap();
        all.rows::<(Vec<u8>, Vec<u8>)>().unwrap().map(Result::unwrap).collect::<Vec<_>>()
    });
    assert_eq!(schemas.len(), 1);
    let schema = schemas[0].clone();
    let at = schema.1.windows(8).position(|name| name == b"humidity").unwrap();
    let mut other = schema.1[..schema.1.len() - 8].to_vec();
    other[at..at + 8].copy_from_slice(b"moisture");
    let rows = Rows { stars, trees, schema, other };

    let mut accepted = Vec::new();
    for (name, expected, lie) in LIES {
        let read = || get(&scene, &cloud.url, 16);
        if !is_named(&runtime, &session, (name, expected, lie(&rows)), (&read, &honest)) {
            accepted.push(name);
        }
    }
    assert!(accepted.is_empty(), "{accepted:?}");
    let again = get(&scene, &cloud.url, 16).map(Run::done);
    assert_eq!(again.map(|run| run.out), honest.map(|run| run.out));
}

/// Writes a lie, reads, and takes the lie back. Returns whether what a client names is what is expected.
fn is_named(
    runtime: &tokio::runtime::Runtime,
    session: &Session,
    (name, expected, change): (&str, &str, Change),
    (get, honest): (&dyn Fn() -> [Run; 2], &[Run; 2]),
) -> bool {
    let results = told(runtime, session, &change, get);
    let refused: Vec<&str> =
        results.iter().filter(|run| run.code != 0).map(|run| run.failed(run.code)).collect();
    println!("{name}: {refused:?}");
    for (run, honest) in results.iter().zip(honest) {
        // What was printed before the refusal is true.
        assert!(honest.out.starts_with(&run.out), "{name}: {run:?}");
    }
    let is_named = |line: &&str| line.starts_with(&format!("moteseal: {expected}: "));
    !refused.is_empty() && refused.iter().all(is_named)
}

/// A row of the table `pieces`: a part of a body that is longer than 8 KiB.
#[derive(Clone, Debug, scylla::DeserializeRow)]
struct Piece {
    owner: Vec<u8>,
    part: i32,
    number: i32,
    data: Vec<u8>,
}

impl Piece {
    fn value(&self) -> &[u8] {
        &self.data[..self.data.len() - 8]
    }

    fn insert(&self, value: &[u8]) -> String {
        let data = wrap(&[b"piece", &self.owner, &self.number.to_be_bytes()], value);
        let (owner, part, number) = (hex(&self.owner), self.part, self.number);
        let data = hex(&data);
        format!(
            "INSERT INTO pieces (owner, part, number, data) VALUES ({owner}, {part}, {number}, {data})"
        )
    }

    fn delete(&self) -> String {
        let (owner, part, number) = (hex(&self.owner), self.part, self.number);
        format!("DELETE FROM pieces WHERE owner = {owner} AND part = {part} AND number = {number}")
    }

    fn put(&self, value: &[u8]) -> Change {
        Change(vec![self.insert(value)], vec![self.insert(self.value())])
    }
}

#[test]
fn lies_about_the_pieces_of_a_long_body_are_named_by_the_client() {
    let (scene, cassandra) = (Scene::new(), shared());
    let address = cassandra.address("lies_of_pieces");
    let url = address.to_string();
    scene.run(&["store", "init", "--replicas", "1", "--store", &url]).done();
    // Two epochs of 1,800 readings with texts: a body is a piece of 64 KiB and a shorter one.
    let mut text = String::from("ts,humidity,temperature,note\n");
    for at in 0..3600_u32 {
        let (second, note) = (1_767_225_600 + 2 * at, format!("{at:04} all is well ").repeat(3));
        text += &format!("{second},{}.5,{}.25,{note}\n", at / 7 % 90, at % 97);
    }
    scene.write("readings.csv", &text);
    for (device, scheme) in [("dev1", "star"), ("dev2", "tree")] {
        let more = ["--column", "note::text60", "--scheme", scheme];
        scene.seal("readings.csv", device, &more).done();
    }
    let cloud = scene.cloud(&url);
    scene.run(&["push", "bundles", "--to", &cloud.url]).done();
    let read = || get(&scene, &cloud.url, 2);
    let honest = read().map(Run::done);
    assert!(honest.iter().all(|run| run.out.lines().count() == 3601), "{honest:?}");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let session = runtime.block_on(cassandra.session(&address));
    let pieces: Vec<Piece> = runtime.block_on(async {
        let all = "SELECT owner, part, number, data FROM pieces";
        let all = session.query_unpaged(all, &[]).await.unwrap().into_rows_result().unwrap();
        all.rows::<Piece>().unwrap().map(Result::unwrap).collect()
    });
    // Four bodies with two pieces each.
    assert_eq!(pieces.len(), 8);
    let of = |name: &str, number: i32| -> Vec<&Piece> {
        let id = hex::decode(id_of(&scene, name)).unwrap();
        pieces.iter().filter(|of| of.owner.starts_with(&id) && of.number == number).collect()
    };
    let ([one, other], tree) = ([of("dev1", 0)[0], of("dev1", 0)[1]], of("dev2", 0)[0]);
    let after = *of("dev1", 1).iter().find(|after| after.owner == one.owner).unwrap();
    let end = after.value().len();
    let exchange = Change(
        vec![one.insert(other.value()), other.insert(one.value())],
        vec![one.insert(one.value()), other.insert(other.value())],
    );
    let lies = [
        ("a byte is changed", "BlockDigestMismatch", one.put(&changed(one.value(), 5000))),
        ("a byte of a tree is changed", "PathMismatch", tree.put(&changed(tree.value(), 5000))),
        (
            "a byte of the last piece",
            "BlockDigestMismatch",
            after.put(&changed(after.value(), 100)),
        ),
        (
            "a piece is dropped",
            "StoreDamaged",
            Change(vec![one.delete()], vec![one.insert(one.value())]),
        ),
        ("a piece is cut off", "StoreDamaged", after.put(&after.value()[..end - 4])),
        ("a piece is too long", "StoreDamaged", after.put(&[after.value(), &[0; 4]].concat())),
        ("a piece is repeated", "StoreDamaged", after.put(one.value())),
        ("the pieces of two seals are exchanged", "BlockDigestMismatch", exchange),
    ];
    let mut accepted = Vec::new();
    for (name, expected, change) in lies {
        if !is_named(&runtime, &session, (name, expected, change), (&read, &honest)) {
            accepted.push(name);
        }
    }
    assert!(accepted.is_empty(), "{accepted:?}");
    assert_eq!(read().map(|run| run.done().out), honest.map(|run| run.out));
}
