//! Motes that encrypt their columns: the firmware runs in QEMU and loses power. One mote seals stars, and
//! the other one trees. The owner reads what they sensed, a grant opens what it grants, and neither the
//! gateway's nor the cloud's files have a reading in plaintext. A third mote of the group does not encrypt.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use moteseal_core::EpochNumber;
use moteseal_core::provision::{GivenKeys, blob_end};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_grant::{Identity, decode_stream_secret};

use crate::emulator::{Board, Emulator, firmware};
use crate::mote_qemu::{Running, Site, recorded};

/// The timeout of an operation: longer than any successful operation takes.
const LONG: Duration = Duration::from_secs(300);
/// The time of the readings of each mote in seconds, from 9:55 on: the epochs of all motes end together. The
/// budget has room for all readings.
const TIME: u32 = 7500;
/// The part of this time in the first hour, in seconds.
const FIRST_HOUR: u32 = 300;
const PLAIN: Mote = Mote { name: "mote1", scheme: "star", first: 0, every: 5 };
const ENCRYPTED: Mote = Mote { name: "mote2", scheme: "star", first: 5000, every: 5 };
const TREE: Mote = Mote { name: "mote3", scheme: "tree", first: 7000, every: 30 };
const COLUMNS: [&str; 2] = ["humidity:%RH:u16/100!", "temperature:Cel:i16/100!aes"];

/// A mote, and the window of the recordings that it replays.
struct Mote {
    name: &'static str,
    scheme: &'static str,
    /// The first reading in the recordings.
    first: u32,
    /// The seconds between two readings.
    every: u32,
}

impl Mote {
    const fn count(&self) -> u32 {
        TIME / self.every
    }

    fn sensed(&self) -> Vec<(String, String)> {
        recorded()[self.first as usize..(self.first + self.count()) as usize].to_vec()
    }
}

fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

/// Adds a mote that seals trees. Makes an owner with the stream secrets of the motes that encrypt, and
/// provisions all motes anew.
fn provision(site: &Site) {
    site.done(&words("key new --out keys/mote3"));
    let add = "roster add --roster roster.cbor --operator keys/op.key.pem --from 2010-05-09";
    site.done(&words(&format!("{add} --device mote3=keys/mote3.pub.pem")));
    let link = "key link --group-secret keys/link.key --device mote3 --out keys/mote3.link.key";
    site.with_roster(&words(link));
    site.done(&words("owner new --group field --name alice --out keys/alice"));
    let set = "roster set --roster roster.cbor --operator keys/op.key.pem";
    site.done(&words(&format!("{set} --owner alice=keys/alice.pub.pem")));
    let [humidity, temperature] = COLUMNS;
    let add = "owner add --owner keys/alice.owner --device mote2 --device mote3 --keys keys";
    site.with_roster(&words(&format!("{add} --column {humidity} --column {temperature}")));
    for mote in [PLAIN, ENCRYPTED, TREE] {
        let (Mote { name, scheme, first, every }, count) = (&mote, mote.count());
        let columns = if *name == PLAIN.name {
            "[\"humidity:%RH:u16/100\", \"temperature:Cel:i16/100\"]".to_owned()
        } else {
            format!("{COLUMNS:?}\nstream_secret = \"keys/{name}.stream.key\"")
        };
        site.write(
            &format!("{name}.toml"),
            &format!(
                "device = \"{name}\"\nkey = \"keys/{name}.key.pem\"\nroster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n\
                 link_secret = \"keys/{name}.link.key\"\nscheme = \"{scheme}\"\ncolumns = {columns}\n\
                 [recording]\nfirst = {first}\ncount = {count}\nstart = \"2010-05-09T09:55:00Z\"\nevery = \"{every}s\"\ninterval = \"8ms\"\n"
            ),
        );
        let _ = fs::remove_file(site.folder.path().join(format!("{name}.bin")));
        let command = format!("device provision --config {name}.toml --out {name}.bin");
        site.done(&words(&command));
    }
    check_nonce_bases(site);
}

/// Checks that each run of `provision` draws another nonce base: an erased mote that is provisioned anew
/// then uses no nonce again. Everything else is equal.
fn check_nonce_bases(site: &Site) {
    let again = format!("device provision --config {}.toml --out again.bin", ENCRYPTED.name);
    site.done(&words(&again));
    let [first, again] = [format!("{}.bin", ENCRYPTED.name), "again.bin".to_owned()].map(|name| {
        let blob = fs::read(site.folder.path().join(name)).unwrap();
        let given = GivenKeys::read(&blob[blob_end(&blob)..]).unwrap();
        (*given.nonce_base, given.paths.to_vec())
    });
    assert!(first.0 != again.0 && first.0 != [0; 12]);
    assert_eq!(first.1, again.1);
}

/// Returns all files in a folder and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the records of a mote as it would send them in plaintext.
fn records(mote: &Mote) -> BTreeSet<[u8; 4]> {
    let hundredths = |text: &str| text.replace('.', "").parse::<i16>().unwrap().to_be_bytes();
    let rows = mote.sensed();
    rows.iter()
        .map(|(humidity, temperature)| {
            let ([a, b], [c, d]) = (hundredths(humidity), hundredths(temperature));
            [a, b, c, d]
        })
        .collect()
}

/// Returns how many of these records are in any of the files.
fn found(records: &BTreeSet<[u8; 4]>, files: &[PathBuf]) -> usize {
    let mut found = BTreeSet::new();
    for file in files {
        let bytes = fs::read(file).unwrap();
        let windows = bytes.windows(4).filter_map(|window| window.first_chunk());
        found.extend(windows.filter(|window| records.contains(*window)).copied());
    }
    found.len()
}

/// Returns the humidities and temperatures of a mote that a reader sees, in the order in which they were
/// sealed.
fn rows(site: &Site, url: &str, mote: &Mote, keys: &str) -> Vec<(String, String)> {
    let out = site.folder.path().join("rows.csv");
    let _ = fs::remove_file(&out);
    let name = mote.name;
    let get = format!("get {name} --from {url} --rate 1 --no-pinned-seals --out rows.csv {keys}");
    site.with_roster(&words(&get));
    let mut rows: Vec<(u64, u32, u64, String, String)> = Vec::new();
    for row in csv::Reader::from_path(out).unwrap().records() {
        let row = row.unwrap();
        let number = |at: usize| row[at].parse::<u64>().unwrap();
        let index = u32::try_from(number(3)).unwrap();
        rows.push((number(0), index, number(4), row[5].to_owned(), row[6].to_owned()));
    }
    rows.sort();
    rows.into_iter().map(|(.., humidity, temperature)| (humidity, temperature)).collect()
}

/// Checks that the mote's flash has the keys of the newest epoch, and none of an earlier one.
fn check_erased_keys(site: &Site, newest: u64, epochs: u64) {
    let ram = fs::read(site.folder.path().join("mote2.ram")).unwrap();
    let text = fs::read_to_string(site.folder.path().join("keys/mote2.stream.key")).unwrap();
    let (_, secret) = decode_stream_secret(&text).unwrap();
    let mut buffer = [0; MAX_SCHEMA];
    let fields = COLUMNS.map(|column| Field::parse(column).unwrap());
    let schema = Schema::encode(&fields, &mut buffer).unwrap();
    let has = |key: &[u8; 32]| ram.windows(32).any(|window| window == key);
    for (_, column) in schema.encrypted_columns() {
        let root = secret.column(column);
        assert!(!has(root.node().expose()) && !has(secret.expose()));
        for epoch in newest - epochs..=newest {
            let key = root.epoch_key(EpochNumber(epoch)).unwrap().expose();
            assert_eq!(has(&key), epoch == newest, "{epoch}, newest {newest}");
        }
    }
}

#[test]
fn a_mote_seals_columns_that_only_a_grant_opens() {
    let site = Site::new();
    let at = site.folder.path();
    provision(&site);
    firmware(Board::Lm3s6965evb, &at.join("mote1.elf"));
    firmware(Board::Mps2An385, &at.join("mote2.elf"));
    fs::copy(at.join("mote2.elf"), at.join("mote3.elf")).unwrap();
    let plain = Emulator::start(Board::Lm3s6965evb, at, PLAIN.name);
    let mut encrypted = Emulator::start(Board::Mps2An385, at, ENCRYPTED.name);
    let mut tree = Emulator::start(Board::Mps2An385, at, TREE.name);
    let cloud = "cloud run --store epochs.redb --listen 127.0.0.1:0";
    let trust = "--roster roster.cbor --operator keys/op.pub.pem";
    let mut cloud = site.start("cloud", &words(&format!("{cloud} {trust}")));
    let mut url = String::new();
    BufReader::new(cloud.0.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let url = url.trim();
    site.join(&[(PLAIN.name, &plain), (ENCRYPTED.name, &encrypted), (TREE.name, &tree)], url);
    let _gateways: Vec<Running> = [("gateway", "run"), ("serial", "serial")]
        .map(|(name, what)| {
            site.start(name, &words(&format!("gateway {what} --config {name}.toml")))
        })
        .into();
    let start = Instant::now();
    // The power fails while a seal is open, and again later.
    encrypted.until("opened");
    encrypted.lose_power();
    tree.until("opened");
    tree.lose_power();
    encrypted.until("taken");
    encrypted.lose_power();
    plain.until("done");
    encrypted.until("done");
    tree.until("done");
    while fs::read_dir(at.join("state/outbox")).unwrap().count() > 0 {
        assert!(start.elapsed() < LONG, "not all epochs are at the cloud: {}", site.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    for (mote, emulator) in [(ENCRYPTED, &mut encrypted), (TREE, &mut tree)] {
        emulator.kill();
        let keys = format!("--stream-secret {0}=keys/{0}.stream.key", mote.name);
        let (owner, reports) = (rows(&site, url, &mote, &keys), emulator.reports());
        assert!(owner == mote.sensed(), "the owner reads other readings: {reports:#?}");
        let mut opened = reports.iter().filter(|report| report.starts_with("opened"));
        assert!(opened.all(|report| report.ends_with(mote.scheme)), "{reports:#?}");
    }
    let reader = Identity::generate();
    site.write("me.txt", &format!("{}\n", *reader.expose()));
    let make = "grant make --owner keys/alice.owner --device mote2 --device mote3";
    let range = "--since 2010-05-09T09:00:00Z --until 2010-05-09T10:00:00Z";
    let to = reader.recipient().as_str().to_owned();
    site.with_roster(&words(&format!(
        "{make} --columns temperature {range} --to {to} --out x.mgrant"
    )));
    for mote in [ENCRYPTED, TREE] {
        let sensed = mote.sensed();
        let granted = rows(&site, url, &mote, "--grant x.mgrant --identity me.txt");
        let nobody = rows(&site, url, &mote, "");
        assert!(granted.len() == sensed.len() && nobody.len() == sensed.len());
        for (place, (of_sensor, row)) in (0..).zip(sensed.iter().zip(&granted)) {
            let temperature =
                if place * mote.every < FIRST_HOUR { of_sensor.1.as_str() } else { "" };
            assert_eq!((row.0.as_str(), row.1.as_str()), ("", temperature), "{place}");
        }
        assert!(nobody.iter().all(|row| row.0.is_empty() && row.1.is_empty()));
    }

    // The files of the gateways and of the cloud have the readings of the mote that does not encrypt, and
    // none of the others. A few of their records occur by chance.
    let mut stored = files(&at.join("state"));
    stored.extend(["epochs.redb", "epochs.redb-journal"].map(|name| at.join(name)));
    let (open, mut hidden) = (records(&PLAIN), records(&ENCRYPTED));
    hidden.extend(records(&TREE));
    hidden.retain(|record| !open.contains(record));
    let (open, hidden) =
        ((found(&open, &stored), open.len()), (found(&hidden, &stored), hidden.len()));
    assert!(open.0 == open.1 && hidden.1 > 500 && hidden.0 < 20, "{open:?} {hidden:?}");

    let epochs = encrypted.reports().into_iter().filter_map(|report| {
        let words: Vec<&str> = report.split(' ').collect();
        (words[0] == "opened").then(|| words[3].parse::<u64>().unwrap())
    });
    let epochs: BTreeSet<u64> = epochs.collect();
    assert!(epochs.len() >= 3, "{:#?}", encrypted.reports());
    check_erased_keys(&site, *epochs.last().unwrap(), epochs.len() as u64 - 1);
    println!(
        "records in plaintext: {open:?} of mote1, {hidden:?} of the others; {:?}",
        start.elapsed()
    );
}
