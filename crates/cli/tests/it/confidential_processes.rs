//! A device and a hub that encrypt columns, as programs, with a gateway and a cloud. They are killed in
//! the middle, and the device's state is copied back from a backup. A reader with a grant gets what was
//! sent. No file and no log on the way has a reading in plaintext, and no key stream is used twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use moteseal_core::confidential::{EncryptedColumns, KeyStream, StreamSecret};
use moteseal_core::schema::Schema;
use moteseal_grant::{Identity, decode_stream_secret};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

use crate::hub_home::{Home, Process, Row, page, request};

const LONG: Duration = Duration::from_secs(120);
const ROSTER: [&str; 4] = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
const NOTE: &str = "private note";

/// Returns the value of a number. No two numbers share a pattern of bytes.
fn value(number: u64) -> u64 {
    (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63
}

fn note(number: u64) -> String {
    format!("{NOTE} {number:05}")
}

fn run(home: &Home, command: &str) -> String {
    home.done(&command.split_whitespace().collect::<Vec<_>>())
}

/// Makes a group with a device and a sensor of a hub, whose owner has their secrets. Columns of a hub are
/// relayed (`~`).
fn home() -> Home {
    let home = Home::new(&["dev".to_owned(), "sensor0".to_owned()], "2s");
    run(&home, "owner new --group home --name alice --out keys/alice");
    let set = "roster set --roster roster.cbor --operator keys/op.key.pem";
    run(&home, &format!("{set} --owner alice=keys/alice.pub.pem"));
    for (device, mark) in [("dev", ""), ("sensor0", "~")] {
        let add = format!("owner add --owner keys/alice.owner --device {device} --keys keys");
        let columns = format!(
            "--column n::u64{mark}! --column seen::u16{mark} --column note::text40{mark}!aes"
        );
        run(&home, &format!("{add} {columns} {}", ROSTER.join(" ")));
        let key = format!("keys/{device}.stream.key");
        fs::copy(home.path(&key), home.path(format!("{device}.kept"))).unwrap();
    }
    let reader = Identity::generate();
    home.write("me.txt", &format!("{}\n", *reader.expose()));
    let make =
        "grant make --owner keys/alice.owner --columns n --since 2020-01-01 --until 2090-01-01";
    let to = reader.recipient().as_str();
    run(&home, &format!("{make} --to {to} --out n.mgrant {}", ROSTER.join(" ")));
    home
}

/// Returns the rows of a device that the reader gets.
fn rows(home: &Home, device: &str) -> Vec<Row> {
    let get = format!(
        "get {device} --from {} --rate 1 --since 2020-01-01 --format jsonl --grant n.mgrant --identity me.txt",
        home.cloud_url()
    );
    let command = format!("{get} {}", ROSTER.join(" "));
    let output = home.run(&command.split_whitespace().collect::<Vec<_>>());
    let stderr = String::from_utf8_lossy(&output.stderr);
    // Until the newest seal arrives, the answer is incomplete.
    assert!(matches!(output.status.code(), Some(0 | 4)), "{device}: {stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the numbers of the rows of a device. Asserts that each row has the value of its number, and no
/// note.
fn numbers(home: &Home, device: &str) -> Vec<u64> {
    let number = |row: Row| {
        let seen = row["seen"].as_u64().unwrap();
        assert_eq!(row["n"].as_u64(), Some(value(seen)), "{row:?}");
        assert!(row["note"].is_null(), "{row:?}");
        seen
    };
    rows(home, device).into_iter().map(number).collect()
}

fn until<T>(what: &str, home: &Home, mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        let logs = ["dev", "hub", "gateway"].map(|name| home.log(name)).join("\n");
        assert!(start.elapsed() < LONG, "never: {what}\n{logs}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `moteseal device run`, which is killed with SIGKILL when this is dropped.
struct Device<'h> {
    home: &'h Home,
    _process: Process,
    stdin: ChildStdin,
    /// The address of its newest reading.
    url: String,
}

impl<'h> Device<'h> {
    fn start(home: &'h Home) -> Self {
        let before = home.log("dev").len();
        let log = fs::OpenOptions::new().create(true).append(true).open(home.path("dev.log"));
        let mut command = home.command(&["device", "run", "--config", "device.toml"]);
        command.env("RUST_LOG", "moteseal=trace,moteseal_device=trace,moteseal_net=trace");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log.unwrap());
        let mut process = Process(command.spawn().unwrap());
        let stdin = process.0.stdin.take().unwrap();
        let url = until("the device serves its readings", home, || {
            let log = home.log("dev").split_off(before);
            log.lines().find_map(|line| line.strip_prefix("readings at ").map(str::to_owned))
        });
        Self { home, _process: process, stdin, url }
    }

    fn send(&mut self, number: u64) {
        writeln!(self.stdin, "{},{number},{}", value(number), note(number)).unwrap();
        self.stdin.flush().unwrap();
    }

    /// Returns the newest reading that is durable: only its plain column is served.
    fn newest(&self) -> Option<u64> {
        let get = ["--json", "reading", &self.url, "--no-pinned-seals"];
        let output = self.home.run(&[&get[..], &ROSTER].concat());
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let values = shown["values"].as_array()?;
        assert_eq!(values.len(), 1, "{shown}");
        assert_eq!(values[0]["name"], "seen", "{shown}");
        values[0]["value"].as_str()?.parse().ok()
    }

    /// Sends readings, and waits until the last one is durable.
    fn send_all(&mut self, numbers: std::ops::Range<u64>) {
        let last = numbers.end - 1;
        for number in numbers {
            self.send(number);
            std::thread::sleep(Duration::from_millis(40));
        }
        until("the newest reading is durable", self.home, || {
            (self.newest() == Some(last)).then_some(())
        });
    }
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else if let Ok(bytes) = fs::read(entry.path()) {
            found.push((entry.path().display().to_string(), bytes));
        }
    }
    found
}

/// Asserts that none of these files has a reading in plaintext: as bytes of a record, or as text.
fn assert_no_plaintext(home: &Home, places: &[&str], numbers: &BTreeSet<u64>) {
    let records: HashSet<[u8; 8]> =
        numbers.iter().map(|number| value(*number).to_be_bytes()).collect();
    let texts: HashSet<Vec<u8>> =
        numbers.iter().map(|number| value(*number).to_string().into_bytes()).collect();
    for place in places {
        let path = home.path(place);
        let files = if path.is_dir() {
            files(&path)
        } else {
            vec![((*place).to_owned(), fs::read(&path).unwrap())]
        };
        assert!(!files.is_empty(), "{place}");
        for (name, bytes) in files {
            let mut windows = bytes.windows(NOTE.len());
            assert!(!windows.any(|window| window == NOTE.as_bytes()), "{name} has a note");
            let mut windows = bytes.windows(8);
            assert!(!windows.any(|window| records.contains(window)), "{name} has a value");
            // Values have 19 or 20 digits.
            for length in [19, 20] {
                let mut windows = bytes.windows(length);
                assert!(!windows.any(|window| texts.contains(window)), "{name} has a text");
            }
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            // A backup has no sockets.
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The key stream of 8 bytes that encrypts the number of an event, and the number.
type Cells = Vec<(u64, u64)>;

/// Asserts that no file has a value of another number under a key stream of `cells`: also the frames of
/// seals that were given up, and the journals of the device, encrypt nothing with a key stream that is
/// used for an event at the cloud. `sent` is the number of values that were sent.
fn assert_no_other_value(home: &Home, places: &[&str], cells: &[(u64, u64)], sent: u64) {
    let cell = |stream: u64, number: u64| (stream ^ value(number)).to_be_bytes();
    let own: HashSet<[u8; 8]> = cells.iter().map(|(stream, of)| cell(*stream, *of)).collect();
    let others = cells.iter().flat_map(|(stream, of)| {
        (0..sent).filter(move |number| number != of).map(move |number| cell(*stream, number))
    });
    let others: HashSet<[u8; 8]> = others.collect();
    let mut is_found = false;
    for (name, bytes) in places.iter().flat_map(|place| {
        let path = home.path(place);
        if path.is_dir() {
            files(&path)
        } else {
            vec![((*place).to_owned(), fs::read(&path).unwrap())]
        }
    }) {
        for window in bytes.windows(8) {
            assert!(!others.contains(window), "{name} has two values under one key stream");
            is_found |= own.contains(window);
        }
    }
    assert!(is_found, "the files have no encrypted value");
}

/// Decrypts all events of a device at the cloud, from the sealed bytes. Asserts that no key stream
/// encrypts two values of the first or of the last column. Returns the numbers, and the key streams of the
/// first column.
fn assert_no_key_stream_twice(home: &Home, device: &str) -> (BTreeSet<u64>, Cells) {
    let proof = format!("{device}.mproof");
    let _ = fs::remove_file(home.path(&proof));
    let get = format!(
        "get {device} --from {} --rate 1 --since 2020-01-01 --out all.csv --proof {proof} {}",
        home.cloud_url(),
        ROSTER.join(" ")
    );
    home.run(&get.split_whitespace().collect::<Vec<_>>());
    let secret = fs::read_to_string(home.path(format!("{device}.kept"))).unwrap();
    let (_, secret): (_, StreamSecret) = decode_stream_secret(&secret).unwrap();
    let operator = fs::read_to_string(home.path("keys/op.pub.pem")).unwrap();
    let operator = moteseal_core::identity::decode_public_pem(operator.as_bytes()).unwrap();
    let roster = Roster::open(&fs::read(home.path("roster.cbor")).unwrap(), &operator).unwrap();
    let (mut used, mut used_for_notes) = (BTreeMap::new(), BTreeMap::new());
    let (mut found, mut cells) = (BTreeSet::new(), Cells::new());
    let mut visit = |event: Event<'_>| {
        let Event::Proven(proven) = event else { return Ok::<(), ReadError>(()) };
        let schema = Schema::decode(&proven.schema.bytes).unwrap();
        let statement = proven.seal.statement();
        let stream = |column| {
            let root = secret.column(column);
            KeyStream::new(proven.seal.column_key(&schema, &root.nodes()).unwrap())
        };
        let mut streams: Vec<_> =
            schema.encrypted_columns().map(|(_, column)| Some(stream(column))).collect();
        proven.sample.for_each(&Scalar, |seq, _, sealed| {
            let mut plain = sealed.to_vec();
            EncryptedColumns::of(&schema).decrypt(seq, &mut plain, &mut streams).unwrap();
            let cell = |record: &[u8]| u64::from_be_bytes(*record.first_chunk().unwrap());
            let number = u64::from(u16::from_be_bytes([plain[8], plain[9]]));
            assert_eq!(cell(&plain), value(number));
            assert_eq!(&plain[11..], note(number).as_bytes());
            let place = (statement.index, seq);
            let before = used.insert(cell(sealed) ^ cell(&plain), place);
            assert_eq!(before, None, "the key stream of {place:?} was used before");
            let text = |record: &[u8]| u128::from_be_bytes(*record[11..].first_chunk().unwrap());
            let before = used_for_notes.insert(text(sealed) ^ text(&plain), place);
            assert_eq!(before, None, "the key stream of the note of {place:?} was used before");
            found.insert(number);
            cells.push((cell(sealed) ^ cell(&plain), number));
        });
        Ok(())
    };
    let mut reader = StreamReader::new(&roster, Limits::default()).of_proof();
    reader.feed(&fs::read(home.path(&proof)).unwrap(), &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    (found, cells)
}

#[test]
fn a_device_that_is_killed_and_copied_back_encrypts_everything_and_reuses_no_key_stream() {
    let home = home();
    home.write(
        "device.toml",
        &format!(
            "device = \"dev\"\nkey = \"keys/dev.key.pem\"\nroster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n\
             link_secret = \"keys/dev.link.key\"\nstream_secret = \"keys/{{device}}.stream.key\"\nstate = \"dev\"\n\
             chain = \"dev/chain\"\n[link]\nurl = \"{}\"\n[coap]\nlisten = [\"127.0.0.1:0\"]\n\
             [source]\ncolumns = [\"n::u64!\", \"seen::u16\", \"note::text40!aes\"]\n",
            home.gateway_url()
        ),
    );
    fs::create_dir(home.path("dev")).unwrap();
    let mut device = Device::start(&home);
    let warned = |log: &str| log.contains("dev.stream.key") && log.contains("remove it: shred -u");
    assert!(warned(&home.log("dev")), "{}", home.log("dev"));
    // A line that is no reading is logged without the value.
    writeln!(device.stdin, "{NOTE},7,{NOTE}").unwrap();
    device.send_all(0..60);
    // SIGKILL, in the middle of an epoch.
    drop(device);
    fs::remove_file(home.path("keys/dev.stream.key")).unwrap();
    let before = home.log("dev").len();
    let mut device = Device::start(&home);
    assert!(!warned(&home.log("dev")[before..]));
    device.send_all(60..100);
    let sent: Vec<u64> = (0..100).collect();
    // Rows are sorted by their places.
    until("all readings are at the cloud", &home, || {
        let found = numbers(&home, "dev");
        assert!(sent.starts_with(&found), "{found:?}");
        (found == sent).then_some(())
    });
    assert_eq!(assert_no_key_stream_twice(&home, "dev").0.len(), 100);
    drop(device);

    // The state is copied back after the device has sealed more.
    copy(&home.path("dev"), &home.path("backup"));
    let mut device = Device::start(&home);
    device.send_all(100..160);
    drop(device);
    copy(&home.path("backup"), &home.path("dev"));
    let mut device = Device::start(&home);
    let mut sent = 200;
    // Readings from before the gateway's first answer may be given up.
    until("readings of the copy are at the cloud", &home, || {
        (0..5).for_each(|_| {
            device.send(sent);
            sent += 1;
        });
        let found = numbers(&home, "dev");
        (found.iter().filter(|number| **number >= 200).count() >= 20).then_some(())
    });
    let (found, cells) = assert_no_key_stream_twice(&home, "dev");
    assert!((0..100).all(|number| found.contains(&number)), "{found:?}");
    let all: BTreeSet<u64> = (0..sent).collect();
    assert!(found.is_subset(&all));
    drop(device);
    assert!(home.log("dev").contains("the value does not fit"), "{}", home.log("dev"));
    let places = ["dev", "backup", "gateway", "epochs.redb", "dev.log", "gateway.log", "cloud.log"];
    assert_no_plaintext(&home, &places, &all);
    assert_no_other_value(&home, &["dev", "backup", "gateway", "epochs.redb"], &cells, sent);
}

#[test]
fn a_hub_that_is_killed_encrypts_every_message_that_it_acknowledged_and_logs_none() {
    let home = home();
    home.configure(
        "[http]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\ndevice = \"sensor0\"\nhttp = \"/hall\"\nstream_secret = \"keys/{device}.stream.key\"\n\
         columns = [\"n::u64!\", \"seen::u16\", \"note::text40!aes\"]\n",
    );
    let start = || {
        let (hub, urls) = home.service_with(&["hub", "run", "hub.toml"], 2);
        home.until_ready(&urls[0]);
        (hub, urls)
    };
    let post = |url: &str, body: &str| {
        let length = body.len();
        request(
            url,
            &format!(
                "POST /hall HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            ),
        )
    };
    let message = |number: u64| {
        format!("{{\"n\": {}, \"seen\": {number}, \"note\": \"{}\"}}", value(number), note(number))
    };
    for (place, numbers) in [0..40, 40..80, 80..120].into_iter().enumerate() {
        let (hub, urls) = start();
        if place == 0 {
            assert!(home.log("hub").contains("shred -u"), "{}", home.log("hub"));
            fs::remove_file(home.path("keys/sensor0.stream.key")).unwrap();
        }
        for number in numbers {
            let response = post(&urls[1], &message(number));
            assert!(response.starts_with("HTTP/1.1 204"), "{response}");
            if number % 8 == 3 {
                // Values that do not fit their columns are refused, and logged without the value.
                let bad = format!("{{\"n\": \"{NOTE}\", \"seen\": 1, \"note\": \"{NOTE}\"}}");
                let refused = post(&urls[1], &bad);
                assert!(
                    refused.starts_with("HTTP/1.1 422") && !refused.contains(NOTE),
                    "{refused}"
                );
                let long =
                    format!("{{\"n\": 1, \"seen\": 1, \"note\": \"{NOTE}{}\"}}", "x".repeat(40));
                assert!(!post(&urls[1], &long).contains(NOTE));
            }
        }
        let metrics = page(&urls[0], "/metrics");
        assert!(metrics.contains("reason=\"TextTooLong\""), "{metrics}");
        // SIGKILL, in the middle of an epoch.
        drop(hub);
    }
    let (hub, _) = start();
    let sent: Vec<u64> = (0..120).collect();
    until("all messages are at the cloud", &home, || {
        (numbers(&home, "sensor0") == sent).then_some(())
    });
    let (found, cells) = assert_no_key_stream_twice(&home, "sensor0");
    assert_no_other_value(&home, &["hub", "gateway", "epochs.redb"], &cells, 120);
    assert_eq!(found, sent.into_iter().collect());
    drop(hub);
    assert!(home.log("hub").contains("refused a message"), "{}", home.log("hub"));
    assert_no_plaintext(
        &home,
        &["hub", "gateway", "epochs.redb", "hub.log", "gateway.log"],
        &found,
    );
}
