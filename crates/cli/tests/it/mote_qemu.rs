//! Tests complete motes: the firmware runs on two boards in QEMU, each with a serial line. The real
//! gateways, cloud, querier, broadcast sender and client run as processes. The motes reboot and
//! lose power at random.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::chance::Chance;
use crate::emulator::{Board, Emulator, build, firmware, image_of};
use crate::mote_health;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The timeout of an operation: longer than any successful operation takes.
const LONG: Duration = Duration::from_secs(400);
const MOTES: [(&str, Board, u32); 2] =
    [("mote1", Board::Lm3s6965evb, 0), ("mote2", Board::Mps2An385, READINGS)];
/// The number of readings of each mote.
const READINGS: u32 = 5_000;
/// The interval between two readings of a mote in ms, at first: on a busy machine the commands take minutes.
const INTERVAL: u32 = 60;
/// The number of readings of both motes in each hour: from 9:55 on, one every 5 seconds.
const EVENTS: [u32; 8] = [120, 1440, 1440, 1440, 1440, 1440, 1440, 1240];
/// The number of reboots of each mote.
const REBOOTS: usize = 10;
/// The numbers of epochs of the query: at least, and at most if the reboots take long.
const SUM_EPOCHS: usize = 3;
const MAX_SUM_EPOCHS: usize = 90;
const QUERY: &str = "SELECT SUM(humidity), COUNT(*) FROM sensors EPOCH DURATION 4s";
const COLUMNS: &str = "[\"humidity:%RH:u16/100\", \"temperature:Cel:i16/100\"]";
/// The recordings that the firmware replays, one after the other (firmware/mote/build.rs).
const RECORDINGS: [&str; 3] =
    ["singlehop_indoor_moteid1", "singlehop_indoor_moteid2", "singlehop_outdoor_moteid3"];

/// A process that is killed when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the recorded readings as the client writes them: humidity and temperature.
pub(crate) fn recorded() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/telosb");
    let mut readings = Vec::new();
    for recording in RECORDINGS {
        let text = fs::read_to_string(folder.join(format!("{recording}_data.txt"))).unwrap();
        for line in text.lines().skip(1) {
            let fields: Vec<f64> =
                line.split_whitespace().map(|field| field.parse().unwrap()).collect();
            readings.push((format!("{:.2}", fields[2]), format!("{:.2}", fields[3])));
        }
    }
    readings
}

/// A group with its keys, configurations and processes.
pub(crate) struct Site {
    pub(crate) folder: TempDir,
    broker: Broker,
}

impl Site {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = Broker::open(folder.path());
        let site = Self { folder, broker };
        for key in ["op", "gateway", "q", "base", "ops", "mote1", "mote2"] {
            site.done(&["key", "new", "--out", &format!("keys/{key}")]);
        }
        let roster = [
            "roster",
            "new",
            "--operator",
            "keys/op.key.pem",
            "--group",
            "field",
            "--epoch",
            "1h",
            "--levels",
            "16",
        ];
        let devices =
            ["--device", "mote1=keys/mote1.pub.pem", "--device", "mote2=keys/mote2.pub.pem"];
        let budget =
            ["--budget", "2000", "--coordinator", "keys/gateway.pub.pem", "--out", "roster.cbor"];
        site.done(&[&roster[..], &budget[..], &devices[..]].concat());
        for aggregator in ["link", "querier.children", "root.children"] {
            site.done(&["key", "link", "--out", &format!("keys/{aggregator}.key")]);
        }
        site.with_roster(&[
            "key",
            "link",
            "--group-secret",
            "keys/querier.children.key",
            "--gateway",
            "root",
            "--out",
            "keys/root.up.key",
        ]);
        site.done(&[
            "sum",
            "setup",
            "--roster",
            "roster.cbor",
            "--querier",
            "keys/q.key",
            "--out",
            "sumkeys/",
        ]);
        site.done(&[
            "key",
            "request",
            "--key",
            "keys/ops.key.pem",
            "--sender",
            "ops",
            "--out",
            "ops.request",
        ]);
        site.done(&[
            "key",
            "certify",
            "ops.request",
            "--ca",
            "keys/base.key.pem",
            "--serial",
            "1",
            "--out",
            "ops.cert",
        ]);
        let list = ["--list", "keys/ops.receivers"];
        let init = ["broadcast", "receivers", "init", "--cert", "ops.cert"];
        site.done(&[&init[..], &list].concat());
        let add = ["broadcast", "receivers", "add", "--out", "keys"];
        site.done(&[&add[..], &list, &MOTES.map(|(name, ..)| name)].concat());
        site.write(
            "policy.toml",
            "version = 1\n[[querier]]\nkey = \"keys/q.pub.pem\"\ntrusted = true\nepoch = \"1s\"\n",
        );
        let sign = ["sum", "policy", "sign", "policy.toml", "--roster", "roster.cbor"];
        site.done(
            &[&sign[..], &["--operator-key", "keys/op.key.pem", "--out", "policy.cbor"]].concat(),
        );
        site.write(
            "tree.toml",
            "[gateways]\nroot = \"querier\"\n[devices]\nmote1 = \"root\"\nmote2 = \"root\"\n",
        );
        for (name, _, first) in MOTES {
            for (group, out) in [("link", "link"), ("root.children", "sum-link")] {
                let (secret, out) = (format!("keys/{group}.key"), format!("keys/{name}.{out}.key"));
                site.with_roster(&[
                    "key",
                    "link",
                    "--group-secret",
                    &secret,
                    "--device",
                    name,
                    "--out",
                    &out,
                ]);
            }
            site.write(
                &format!("{name}.toml"),
                &format!(
                    "device = \"{name}\"\nkey = \"keys/{name}.key.pem\"\nroster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n\
                     link_secret = \"keys/{name}.link.key\"\nscheme = \"star\"\ncolumns = {COLUMNS}\n\
                     [recording]\nfirst = {first}\ncount = {READINGS}\nstart = \"2010-05-09T09:55:00Z\"\nevery = \"5s\"\ninterval = \"{INTERVAL}ms\"\n\
                     [sum]\nkey = \"sumkeys/{name}.sum.key\"\nlink_secret = \"keys/{name}.sum-link.key\"\npolicy = \"policy.cbor\"\n\
                     [broadcast]\nbase = \"keys/base.pub.pem\"\nreceiver_key = \"keys/{name}.receiver.key\"\n"
                ),
            );
            site.done(&[
                "device",
                "provision",
                "--config",
                &format!("{name}.toml"),
                "--out",
                &format!("{name}.bin"),
            ]);
        }
        let link = format!("[link]\nurl = \"{}\"\n", site.broker.url());
        let common = "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n";
        site.write(
            "root.toml",
            &format!(
                "name = \"root\"\n{common}querier = \"keys/q.pub.pem\"\ntree = \"tree.toml\"\nlink_secret = \"keys/root.children.key\"\n\
                 up_secret = \"keys/root.up.key\"\nstate = \"root\"\ngrace = \"3s\"\n{link}"
            ),
        );
        site.write(
            "querier.toml",
            &format!(
                "{common}key = \"keys/q.key.pem\"\nkeys = \"sumkeys/querier.sum.key\"\ntree = \"tree.toml\"\n\
                 link_secret = \"keys/querier.children.key\"\nstate = \"querier.state\"\ncolumns = {COLUMNS}\ngrace = \"3s\"\n\
                 [ranges]\nhumidity = \"0..100\"\n{link}"
            ),
        );
        site
    }

    /// Writes the configurations of the processes that connect to the motes and to the cloud.
    pub(crate) fn join(&self, motes: &[(&str, &Emulator)], cloud: &str) {
        let broker = self.broker.url();
        let common = "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n";
        self.write(
            "gateway.toml",
            &format!(
                "{common}key = \"keys/gateway.key.pem\"\nlink_secret = \"keys/link.key\"\nstate = \"state\"\ngrace = \"120s\"\n\
                 time = \"recorded\"\n[link]\nurl = \"{broker}\"\n[cloud]\nurl = \"{cloud}\"\n\
                 [health]\nlisten = \"127.0.0.1:0\"\n"
            ),
        );
        let mut serial = format!(
            "{common}[link]\nurl = \"{broker}\"\n[sums]\naggregator = \"root\"\n[broadcast]\nurl = \"{broker}/field\"\n\
             [health]\nlisten = \"127.0.0.1:0\"\nstate = \"serial\"\n"
        );
        for (name, mote) in motes {
            write!(
                serial,
                "[[port]]\naddress = \"tcp://127.0.0.1:{}\"\ndevice = \"{name}\"\n",
                mote.port
            )
            .unwrap();
        }
        self.write("serial.toml", &serial);
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
            .env_remove("RUST_LOG");
        command
    }

    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    #[track_caller]
    pub(crate) fn with_roster(&self, arguments: &[&str]) -> Output {
        self.done(
            &[arguments, &["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"]].concat(),
        )
    }

    /// Starts a process with a pipe as stdout. A service prints its address there first.
    pub(crate) fn start(&self, name: &str, arguments: &[&str]) -> Running {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("{name}.log")))
            .unwrap();
        Running(self.command(arguments).stdout(Stdio::piped()).stderr(log).spawn().unwrap())
    }

    pub(crate) fn logs(&self) -> String {
        let files = fs::read_dir(self.folder.path()).unwrap().flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|end| end == "log"));
        logs.map(|file| {
            format!("== {}\n{}\n", file.path().display(), fs::read_to_string(file.path()).unwrap())
        })
        .collect()
    }

    /// Broadcasts a command, and keeps answering receivers that request lost messages.
    fn broadcast(&self, command: &str) -> Running {
        Running(self.send(command, &["--live", "--linger", "120"]))
    }

    /// Broadcasts a command, and waits until all motes have acknowledged it.
    fn broadcast_to_all(&self, command: &str) {
        let more = ["--wait-for", "100%", "--timeout", "120", "--linger", "0.5"];
        let ended = self.send(command, &more).wait().unwrap();
        assert!(ended.success(), "{ended}: {}", self.logs());
    }

    fn send(&self, command: &str, more: &[&str]) -> Child {
        let to = format!("{}/field", self.broker.url());
        let arguments = [
            "broadcast",
            "send",
            "--key",
            "keys/ops.key.pem",
            "--cert",
            "ops.cert",
            "--to",
            &to,
            "--lines",
            "-",
            "--kind",
            "command",
            "--topic",
            "settings",
            "--valid",
            "10m",
        ];
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("cast.log"))
            .unwrap();
        let mut process = self
            .command(&[&arguments[..], more].concat())
            .stdin(Stdio::piped())
            .stderr(log)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        process.stdin.take().unwrap().write_all(format!("{command}\n").as_bytes()).unwrap();
        process
    }
}

/// Gets a mote's readings with the client. Returns them in the order in which they were sealed, and
/// the indices of their seals.
fn readings_at_cloud(
    site: &Site,
    cloud: &str,
    name: &str,
) -> (Vec<(String, String)>, BTreeSet<u32>) {
    let out = format!("{name}.csv");
    site.with_roster(&[
        "get",
        name,
        "--from",
        cloud,
        "--rate",
        "1",
        "--no-pinned-seals",
        "--proof",
        &format!("{name}.mproof"),
        "-o",
        &out,
    ]);
    site.with_roster(&["verify", &format!("{name}.mproof")]);
    let mut rows: Vec<(u64, u32, u64, String, String)> = Vec::new();
    for row in csv::Reader::from_path(site.folder.path().join(out)).unwrap().records() {
        let row = row.unwrap();
        let of = |at: usize| row.get(at).unwrap();
        rows.push((
            of(0).parse().unwrap(),
            of(3).parse().unwrap(),
            of(4).parse().unwrap(),
            of(5).to_owned(),
            of(6).to_owned(),
        ));
    }
    rows.sort();
    let indices = rows.iter().map(|row| row.1).collect();
    let two_digits = |text: &str| format!("{:.2}", text.parse::<f64>().unwrap());
    (
        rows.iter()
            .map(|(.., humidity, temperature)| (two_digits(humidity), two_digits(temperature)))
            .collect(),
        indices,
    )
}

/// Asserts that an audit has every epoch of the recordings without a finding, and that it justifies
/// each epoch with all readings of both motes. Only epochs in which the machine was too slow for a
/// seal to arrive in time are undetermined; there are at most two of these. Returns their number.
fn assert_justified(audit: &Value, seals: usize) -> usize {
    let epochs = audit["epochs"].as_array().unwrap();
    let of_epochs = |name: &str| epochs.iter().map(|of| of[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((epochs.len(), of_epochs("seals")), (EVENTS.len(), seals as u64), "{audit}");
    let mut late = 0;
    for (epoch, events) in epochs.iter().zip(EVENTS) {
        assert_eq!(epoch["findings"], json!([]), "{epoch}");
        let doubts = epoch["doubts"].as_array().unwrap();
        if doubts.iter().any(|doubt| doubt["name"] == "Late") {
            late += 1;
            continue;
        }
        // The budget has room for all readings, so a restart leaves no doubt about the round.
        assert!(doubts.iter().all(|doubt| doubt["name"] == "Restarted"), "{epoch}");
        assert_eq!(epoch["verdict"], "Justified", "{epoch}");
        assert_eq!((&epoch["devices"], &epoch["events"]), (&json!(2), &json!(events)), "{epoch}");
        assert_eq!((&epoch["round"], &epoch["kept"]), (&json!(0), &json!(events)), "{epoch}");
    }
    assert!(late <= 2, "{audit}");
    late
}

#[test]
fn motes_that_reboot_often_lose_and_repeat_nothing() {
    let reboots = std::env::var("MOTESEAL_SEEDS")
        .ok()
        .map_or(REBOOTS, |seeds| REBOOTS * seeds.parse::<usize>().unwrap().max(1));
    let site = Site::new();
    let at = site.folder.path();
    for (name, board, _) in MOTES {
        firmware(board, &at.join(format!("{name}.elf")));
    }
    let mut motes: Vec<Emulator> =
        MOTES.iter().map(|(name, board, _)| Emulator::start(*board, at, name)).collect();
    let mut cloud = site.start(
        "cloud",
        &[
            "cloud",
            "run",
            "--store",
            "epochs.redb",
            "--listen",
            "127.0.0.1:0",
            "--roster",
            "roster.cbor",
            "--operator",
            "keys/op.pub.pem",
        ],
    );
    let mut url = String::new();
    BufReader::new(cloud.0.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    let url = url.trim();
    site.join(&[(MOTES[0].0, &motes[0]), (MOTES[1].0, &motes[1])], url);
    let _gateways: Vec<Running> = [
        ("gateway", ["gateway", "run"]),
        ("root", ["gateway", "sum"]),
        ("serial", ["gateway", "serial"]),
    ]
    .map(|(name, command)| {
        site.start(name, &[&command[..], &["--config", &format!("{name}.toml")]].concat())
    })
    .into();
    let start = Instant::now();
    // Reboot the motes before anything is sealed, and again after the first seal.
    motes.iter().for_each(|mote| mote.until("opened"));
    motes.iter().for_each(Emulator::reset);
    motes.iter().for_each(|mote| mote.until("taken"));
    motes.iter_mut().for_each(|mote| {
        if mote.board == Board::Mps2An385 { mote.lose_power() } else { mote.reset() }
    });
    // Without a signer of the time, a mote does not know the time: the gateway has none to give.
    assert!(motes.iter().all(|mote| mote.count("time") == 0));
    // A query that both motes answer. The querier signs the time for them.
    let epochs = MAX_SUM_EPOCHS.to_string();
    let arguments = [
        "sum",
        "run",
        QUERY,
        "--config",
        "querier.toml",
        "--epochs",
        &epochs,
        "--floor",
        "2",
        "--min-count",
        "1",
        "--json",
    ];
    let mut querier = site.start("querier", &arguments);
    let rows = BufReader::new(querier.0.stdout.take().unwrap()).lines();
    let collected = Arc::new(Mutex::new(Vec::<Value>::new()));
    let collector = std::thread::spawn({
        let collected = Arc::clone(&collected);
        move || {
            for row in rows {
                collected.lock().unwrap().push(serde_json::from_str(&row.unwrap()).unwrap());
            }
        }
    });
    let is_answered_by_both = |row: &&Value| row["participants"] == 2;
    motes.iter().for_each(|mote| mote.until("time"));
    motes.iter().for_each(|mote| mote.until("answered"));
    // On a busy machine the motes' clocks lose ticks, and answers can be too late. Do not reboot
    // the motes before one epoch has the answers of both.
    let is_answered = || collected.lock().unwrap().iter().any(|row| is_answered_by_both(&row));
    while !collector.is_finished() && !is_answered() {
        assert!(start.elapsed() < LONG, "no epoch has both answers: {}", site.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    let before_reboots = collected.lock().unwrap().len();
    let sensed = usize::try_from(start.elapsed().as_millis() / u128::from(INTERVAL)).unwrap();
    // Change from stars to trees, which both motes acknowledge to the sender, and shorten the interval.
    site.broadcast_to_all("scheme=tree");
    motes.iter().for_each(|mote| mote.until("acted"));
    let _faster = site.broadcast("interval=6");
    motes.iter().for_each(|mote| mote.until_all("acted", 2));
    let mut chance = Chance::new(7);
    let mut done = [2; MOTES.len()];
    while done.iter().any(|done| *done < reboots)
        || motes.iter().any(|mote| mote.count("done") == 0)
    {
        assert!(
            start.elapsed() < LONG,
            "{:#?}\n{}",
            motes.iter().map(Emulator::reports).collect::<Vec<_>>(),
            site.logs()
        );
        std::thread::sleep(Duration::from_millis(200 + chance.below(1200)));
        let place = usize::try_from(chance.below(MOTES.len() as u64)).unwrap();
        if done[place] < reboots {
            done[place] += 1;
            if MOTES[place].1 == Board::Mps2An385 && chance.percent(50) {
                motes[place].lose_power();
            } else {
                motes[place].reset();
            }
        }
    }
    let rebooted: usize = done.iter().sum();
    while !collector.is_finished() && collected.lock().unwrap().len() < SUM_EPOCHS {
        assert!(start.elapsed() < LONG, "the query has too few epochs: {}", site.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    if !collector.is_finished() {
        Command::new("kill").args(["-INT", &querier.0.id().to_string()]).status().unwrap();
    }
    collector.join().unwrap();
    querier.0.wait().unwrap();
    let rows = collected.lock().unwrap();
    let outbox = at.join("state/outbox");
    while fs::read_dir(&outbox).unwrap().count() > 0 {
        assert!(start.elapsed() < LONG, "not all epochs are at the cloud: {}", site.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (recorded, mut sealed, mut seals) = (recorded(), [0, 0], 0);
    for ((name, _, first), mote) in MOTES.iter().zip(&motes) {
        let first = *first as usize;
        let (readings, indices) = readings_at_cloud(&site, url, name);
        seals += indices.len();
        // The cloud has every reading exactly once, in order. If a reboot interrupts a seal, the
        // mote seals its readings again under another index.
        assert_eq!(readings.len(), READINGS as usize, "{name}: {:#?}", mote.reports());
        assert!(
            readings == recorded[first..first + READINGS as usize],
            "{name} sealed other readings than it sensed"
        );
        // An index is signed at most once. If an index was opened but not signed, the next seal
        // states it.
        let of = |what: &str| -> Vec<u32> {
            let reports = mote.reports().into_iter().filter(|report| report.starts_with(what));
            reports.map(|report| report.split(' ').nth(1).unwrap().parse().unwrap()).collect()
        };
        let (opened, signed) = (of("opened"), of("sealed"));
        assert!(
            opened.windows(2).all(|pair| pair[0] < pair[1]),
            "{name} reuses an index: {opened:?}"
        );
        assert!(
            signed.windows(2).all(|pair| pair[0] < pair[1]),
            "{name} signs an index twice: {signed:?}"
        );
        assert!(
            signed.iter().all(|index| indices.contains(index)),
            "{name}: {signed:?}, and the cloud has {indices:?}"
        );
        // No epoch of the query is answered twice, whenever the mote rebooted.
        let answered: Vec<u64> = mote
            .reports()
            .iter()
            .filter_map(|report| report.strip_prefix("answered "))
            .map(|epoch| epoch.parse().unwrap())
            .collect();
        assert!(
            answered.windows(2).all(|pair| pair[0] < pair[1]),
            "{name} answers an epoch twice: {answered:?}"
        );
        for (scheme, count) in ["star", "tree"].into_iter().zip(&mut sealed) {
            *count += mote
                .reports()
                .iter()
                .filter(|report| report.starts_with("opened") && report.ends_with(scheme))
                .count();
        }
        assert_eq!(
            mote.count("acted"),
            2,
            "{name} must act on each command once: {:#?}",
            mote.reports()
        );
    }
    assert!(sealed[0] >= 2 && sealed[1] >= 4, "{sealed:?}");
    let answers: Vec<&Value> = rows.iter().filter(is_answered_by_both).collect();
    assert!(!answers.is_empty(), "{rows:#?}\n{}", site.logs());
    // The humidities of each mote, in hundredths.
    let humidities = MOTES.map(|(_, _, first)| -> Vec<i64> {
        let of_mote = &recorded[first as usize..(first + READINGS) as usize];
        of_mote.iter().map(|(humidity, _)| humidity.replace('.', "").parse().unwrap()).collect()
    });
    for (place, row) in rows.iter().enumerate().filter(|(_, row)| is_answered_by_both(row)) {
        let number = |name: &str| -> Option<f64> { row["results"][name].as_str()?.parse().ok() };
        let is_first = place < before_reboots;
        let sensed = if is_first { sensed.min(READINGS as usize) } else { READINGS as usize };
        let [one, other] =
            humidities.each_ref().map(|of| of[..sensed].iter().copied().collect::<BTreeSet<i64>>());
        #[allow(clippy::cast_possible_truncation)]
        let sum = number("SUM(humidity)").map(|sum| (sum * 100.0).round() as i64);
        // A mote that has replayed all its readings participates without a reading.
        let is_right = match (number("COUNT(*)"), sum) {
            (Some(2.0), Some(sum)) => one.iter().any(|of_one| other.contains(&(sum - of_one))),
            (Some(1.0), Some(sum)) => !is_first && (one.contains(&sum) || other.contains(&sum)),
            (Some(0.0), Some(0)) => !is_first,
            _ => false,
        };
        assert!(is_right, "row {place} is not of readings that the motes had sensed: {row}");
    }
    let audit = ["audit", "--from", url, "--roster", "roster.cbor", "--json"];
    let audited =
        site.command(&[&audit[..], &["--operator", "keys/op.pub.pem"]].concat()).output().unwrap();
    // If an epoch is undetermined, a second line states the error.
    let stdout = String::from_utf8(audited.stdout).unwrap();
    let audit: Value = serde_json::from_str(stdout.lines().next().unwrap()).unwrap();
    let late = assert_justified(&audit, seals);
    assert_eq!(audited.status.code(), Some(if late == 0 { 0 } else { 4 }), "{audit}");
    println!(
        "{rebooted} reboots, {sealed:?} star and tree seals, {} of {} epochs of a query by both, {:?}\n{audit}",
        answers.len(),
        rows.len(),
        start.elapsed()
    );
}

#[test]
fn a_mote_installs_the_firmware_that_a_sender_broadcasts_and_acknowledges_it() {
    let site = Site::new();
    let at = site.folder.path();
    build("boot", "mps2-an385,report", 1, &at.join("mote2.elf"));
    for version in [1, 2] {
        let path = at.join(format!("version{version}.elf"));
        build("mote", "mps2-an385,slots,report", version, &path);
    }
    let image = image_of(&fs::read(at.join("version1.elf")).unwrap());
    let mote = Emulator::start_with_image(at, "mote2", &image);
    // There is no cloud: the coordinator keeps what the mote seals.
    site.join(&[("mote2", &mote)], "http://127.0.0.1:9");
    let broker = site.broker.url();
    site.write(
        "time.toml",
        &format!(
            "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/op.key.pem\"\n\
             [link]\nurl = \"{broker}\"\n"
        ),
    );
    let mut services: Vec<Running> = [
        ("gateway", ["gateway", "run"]),
        ("serial", ["gateway", "serial"]),
        ("time", ["time", "serve"]),
    ]
    .map(|(name, command)| {
        site.start(name, &[&command[..], &["--config", &format!("{name}.toml")]].concat())
    })
    .into();
    mote.until("update confirmed 1");
    mote.until("time");
    site.done(&["key", "firmware", "version2.elf", "--ca", "keys/base.key.pem"]);
    let to = format!("{broker}/field");
    let sender = ["--key", "keys/ops.key.pem", "--cert", "ops.cert", "--to", &to];
    let wait = ["--for", "mote2", "--wait-for", "100%", "--timeout", "600"];
    let send = |what: &[&str]| {
        let arguments = [&["broadcast", "send"], what, &sender, &wait].concat();
        let output = site.command(&arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{:#?}{}", mote.reports(), site.logs());
    };
    // The clock of a mote is behind on a busy machine, and the sender does not wait for it.
    let begin = jiff::Timestamp::now().to_string();
    let start = Instant::now();
    send(&["mps2-an385-2.firmware"]);
    println!("the image has arrived after {:?}", start.elapsed());
    assert_eq!(mote.count("update received 2"), 1, "{:#?}", mote.reports());
    site.write("install", "install 2\n");
    let window = ["--not-before", &begin, "--valid", "1h"];
    let install = ["--lines", "install", "--kind", "command", "--topic", "firmware"];
    send(&[&install[..], &window].concat());
    // The receipt of the command states that the mote has confirmed the new version.
    for report in ["update installing 2", "update trying 2", "update confirmed 2"] {
        assert_eq!(mote.count(report), 1, "{report}: {:#?}", mote.reports());
    }
    println!("version 2 was confirmed after {:?}", start.elapsed());
    let log = fs::read_to_string(at.join("serial.log")).unwrap();
    assert!(log.contains("confirmed 2"), "the gateway logs it: {log}");
    mote_health::check(services.iter_mut().map(|of| &mut of.0), |line| site.command(line));
}
