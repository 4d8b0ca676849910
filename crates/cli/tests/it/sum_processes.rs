//! Runs private sums as users do, over Debian's Mosquitto, for about a minute. Eight motes, three
//! gateways in a tree and a querier run as separate processes. Two of the gateways are killed and
//! restarted. The sum of every epoch is exact for the sources that the result names, or the epoch
//! is reported as missing.

mod queriers;
mod several;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::broker::Broker;
use serde_json::Value;
use tempfile::TempDir;

const MOTES: usize = 8;
const EPOCHS: usize = 60;
/// The timeout of an operation: longer than any successful operation takes.
const LONG: Duration = Duration::from_secs(150);
const QUERY: &str =
    "SELECT SUM(reading), COUNT(*), AVG(reading) FROM sensors WHERE reading > 0 EPOCH DURATION 1s";

/// A process that is killed when this is dropped.
struct Running(Child);

impl Running {
    fn start(folder: &Path, arguments: &[&str], log: &str) -> Self {
        let log = fs::File::options().create(true).append(true).open(folder.join(log)).unwrap();
        let mut command = moteseal(folder, arguments);
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL: the process cannot clean up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn moteseal(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal"));
    command.args(arguments).current_dir(folder).env_remove("RUST_LOG");
    command
}

fn run(folder: &Path, arguments: &[&str]) {
    let output = moteseal(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A group with its keys and configurations in a folder.
struct Site {
    folder: TempDir,
    broker: Broker,
}

const TREE: &str =
    "[gateways]\nroot = \"querier\"\ngw-a = \"root\"\ngw-b = \"root\"\n\n[devices]\n";

fn gateway_of(mote: usize) -> &'static str {
    if mote < MOTES / 2 { "gw-a" } else { "gw-b" }
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = Broker::open(folder.path());
        let at = folder.path();
        for key in ["op", "coordinator", "q"] {
            run(at, &["key", "new", "--out", &format!("keys/{key}")]);
        }
        let mut roster: Vec<String> = [
            "roster",
            "new",
            "--operator",
            "keys/op.key.pem",
            "--group",
            "sums",
            "--epoch",
            "1h",
            "--levels",
            "16",
        ]
        .map(str::to_owned)
        .to_vec();
        roster.extend(
            [
                "--budget",
                "1000",
                "--coordinator",
                "keys/coordinator.pub.pem",
                "--out",
                "roster.cbor",
            ]
            .map(str::to_owned),
        );
        let mut tree = TREE.to_owned();
        for mote in 0..MOTES {
            run(at, &["key", "new", "--out", &format!("keys/mote{mote}")]);
            roster.extend(["--device".to_owned(), format!("mote{mote}=keys/mote{mote}.pub.pem")]);
            writeln!(tree, "mote{mote} = \"{}\"", gateway_of(mote)).unwrap();
        }
        run(at, &roster.iter().map(String::as_str).collect::<Vec<_>>());
        fs::write(at.join("tree.toml"), tree).unwrap();
        run(at, &["key", "link", "--out", "keys/link.key"]);
        for aggregator in ["querier", "root", "gw-a", "gw-b"] {
            run(at, &["key", "link", "--out", &format!("keys/{aggregator}.children.key")]);
        }
        let trusted = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
        let with_roster = |arguments: &[&str]| run(at, &[arguments, &trusted[..]].concat());
        // `sum setup` finds the operator's key in the roster's folder.
        run(
            at,
            &[
                "sum",
                "setup",
                "--roster",
                "roster.cbor",
                "--querier",
                "keys/q.key",
                "--out",
                "sumkeys/",
            ],
        );
        let link = format!("[link]\nurl = \"{}\"\n", broker.url());
        let common = "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\n";
        for (gateway, parent) in [("root", "querier"), ("gw-a", "root"), ("gw-b", "root")] {
            let secret = format!("keys/{parent}.children.key");
            let up = format!("keys/{gateway}.up.key");
            with_roster(&[
                "key",
                "link",
                "--group-secret",
                &secret,
                "--gateway",
                gateway,
                "--out",
                &up,
            ]);
            let config = format!(
                "name = \"{gateway}\"\n{common}querier = \"keys/q.pub.pem\"\ntree = \"tree.toml\"\n\
                 link_secret = \"keys/{gateway}.children.key\"\nup_secret = \"{up}\"\nstate = \"{gateway}\"\ngrace = \"500ms\"\n{link}"
            );
            fs::write(at.join(format!("{gateway}.toml")), config).unwrap();
        }
        let config = format!(
            "{common}key = \"keys/q.key.pem\"\nkeys = \"sumkeys/querier.sum.key\"\ntree = \"tree.toml\"\n\
             link_secret = \"keys/querier.children.key\"\nstate = \"querier.state\"\ncolumns = [\"reading::u32\"]\ngrace = \"500ms\"\n{link}"
        );
        fs::write(at.join("querier.toml"), config).unwrap();
        fs::copy(at.join("roster.cbor"), at.join("first.cbor")).unwrap();
        let site = Self { folder, broker };
        (0..MOTES).for_each(|mote| site.configure_mote(mote));
        site
    }

    /// Makes the link secrets and the configuration of a mote.
    fn configure_mote(&self, mote: usize) {
        let at = self.folder.path();
        let (name, gateway) = (format!("mote{mote}"), gateway_of(mote));
        let (main, sums) = (format!("keys/{name}.link.key"), format!("keys/{name}.sum-link.key"));
        let children = format!("keys/{gateway}.children.key");
        for (secret, out) in [("keys/link.key", &main), (&children, &sums)] {
            let derive = ["key", "link", "--group-secret", secret, "--device", &name, "--out", out];
            let trusted = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
            run(at, &[&derive[..], &trusted].concat());
        }
        let config = format!(
            "device = \"{name}\"\nkey = \"keys/{name}.key.pem\"\nroster = \"roster.cbor\"\n\
             operator = \"keys/op.pub.pem\"\nlink_secret = \"{main}\"\nstate = \"{name}\"\n\
             [link]\nurl = \"{}\"\n[source]\ncolumns = [\"reading::u32\"]\n\
             [sum]\nkey = \"sumkeys/{name}.sum.key\"\nparent = \"{gateway}\"\nlink_secret = \"{sums}\"\n",
            self.broker.url()
        );
        fs::write(at.join(format!("{name}.toml")), config).unwrap();
    }

    fn gateway(&self, name: &str) -> Running {
        Running::start(
            self.folder.path(),
            &["gateway", "sum", "--config", &format!("{name}.toml")],
            &format!("{name}.log"),
        )
    }

    fn mote(&self, mote: usize) -> Running {
        let config = format!("mote{mote}.toml");
        Running::start(
            self.folder.path(),
            &["device", "run", "--config", &config],
            &format!("mote{mote}.log"),
        )
    }

    fn logs(&self) -> String {
        let files = fs::read_dir(self.folder.path()).unwrap().flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|end| end == "log"));
        logs.map(|file| {
            format!("== {}\n{}\n", file.path().display(), fs::read_to_string(file.path()).unwrap())
        })
        .collect()
    }
}

/// Returns the sources that took part in a row, as bits: all sources of the roster that the row
/// does not list as silent or unheard.
fn participants(row: &Value) -> u32 {
    let others = ["silent", "unheard"].into_iter().flat_map(|key| row[key].as_array().unwrap());
    let bit = |name: &Value| {
        1 << name.as_str().unwrap().strip_prefix("mote").unwrap().parse::<u32>().unwrap()
    };
    others.fold((1 << MOTES) - 1, |all, name| all & !bit(name))
}

#[test]
fn a_minute_of_epochs_while_gateways_are_killed() {
    let site = Site::new();
    let mut gateways: Vec<Running> = ["root", "gw-a", "gw-b"].map(|name| site.gateway(name)).into();
    let mut motes: Vec<Running> = (0..MOTES).map(|mote| site.mote(mote)).collect();
    // Mote i reads 2^i several times per epoch, so the bits of a sum show whose readings are in it.
    let is_over = Arc::new(AtomicBool::new(false));
    let mut inputs: Vec<_> = motes.iter_mut().map(|mote| mote.0.stdin.take().unwrap()).collect();
    let over = Arc::clone(&is_over);
    let feeder = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            for (mote, input) in inputs.iter_mut().enumerate() {
                // If a mote's process has ended, this fails, and the mote's bit is missing in the
                // sums.
                let _ = writeln!(input, "{}", 1_u32 << mote);
            }
            std::thread::sleep(Duration::from_millis(150));
        }
    });

    let epochs = EPOCHS.to_string();
    let arguments = [
        "sum",
        "run",
        QUERY,
        "--config",
        "querier.toml",
        "--epochs",
        &epochs,
        "--floor",
        "3",
        "--min-count",
        "1",
        "--json",
    ];
    let mut querier = Running::start(site.folder.path(), &arguments, "querier.log");
    let start = Instant::now();
    let mut rows: Vec<Value> = Vec::new();
    for line in BufReader::new(querier.0.stdout.take().unwrap()).lines() {
        rows.push(serde_json::from_str(&line.unwrap()).unwrap());
        assert!(start.elapsed() < LONG, "{}", site.logs());
        match rows.len() {
            // Kill gw-b and the root, and restart each of them five epochs later.
            15 => drop(gateways.remove(2)),
            20 => gateways.push(site.gateway("gw-b")),
            35 => drop(gateways.remove(0)),
            40 => gateways.push(site.gateway("root")),
            _ => {}
        }
    }
    is_over.store(true, Ordering::Relaxed);
    feeder.join().unwrap();
    let code = querier.0.wait().unwrap().code();
    let error = rows.pop().unwrap();
    assert_eq!(error["error"]["name"], "Incomplete", "{error}");
    assert_eq!(rows.len(), EPOCHS, "{}", site.logs());
    // The epochs in which the root did not run are missing.
    assert_eq!(code, Some(4), "{}", site.logs());

    let (mut whole, mut partial, mut missing) = (0, 0, 0);
    for (row, epoch) in rows.iter().zip(rows[0]["epoch"].as_u64().unwrap()..) {
        assert_eq!(row["epoch"], epoch);
        let participants = participants(row);
        assert_eq!(row["participants"], participants.count_ones(), "{row}");
        let results = &row["results"];
        if results.is_null() {
            assert_eq!(row["error"]["name"], "BelowFloor", "{row}");
            missing += 1;
            continue;
        }
        let (sum, count) =
            (results["SUM(reading)"].as_str().unwrap(), results["COUNT(*)"].as_str().unwrap());
        let (sum, count): (u32, u32) = (sum.parse().unwrap(), count.parse().unwrap());
        // The sum is exact and contains only the sources that took part. A source that took part
        // without a reading in time answered with zeros.
        assert_eq!((sum.count_ones(), sum & !participants), (count, 0), "{row}");
        if count > 0 {
            let average: f64 = results["AVG(reading)"].as_str().unwrap().parse().unwrap();
            assert!((average - f64::from(sum) / f64::from(count)).abs() < 1e-4, "{row}");
        }
        whole += usize::from(sum == 0xff);
        partial += usize::from(participants == 0x0f);
    }
    println!(
        "{whole} epochs over all, {partial} over the motes of gw-a, {missing} missing, of {EPOCHS}"
    );
    assert!(whole >= EPOCHS / 2, "{whole} of {EPOCHS} over all\n{}", site.logs());
    assert!(
        partial >= 2 && missing >= 2,
        "{partial} without gw-b, {missing} without the root\n{}",
        site.logs()
    );
}

/// A thread that writes the readings of motes to their processes: mote `i` reads `2^i` several times
/// per epoch.
struct Feeder {
    inputs: Arc<Mutex<Vec<(usize, ChildStdin)>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Feeder {
    fn new() -> Self {
        let (inputs, is_over) = (Arc::<Mutex<Vec<(usize, ChildStdin)>>>::default(), Arc::default());
        let (theirs, over) = (Arc::clone(&inputs), Arc::<AtomicBool>::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for (mote, input) in &mut *theirs.lock().unwrap() {
                    let _ = writeln!(input, "{}", 1_u32 << *mote);
                }
                std::thread::sleep(Duration::from_millis(150));
            }
        });
        Self { inputs, is_over, thread: Some(thread) }
    }

    fn feed(&self, mote: usize, process: &mut Running) {
        self.inputs.lock().unwrap().push((mote, process.0.stdin.take().unwrap()));
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// A running query.
struct Query {
    process: Running,
    lines: Lines<BufReader<ChildStdout>>,
    start: Instant,
}

impl Query {
    fn start(site: &Site, config: &str) -> Self {
        Self::run(site, &[QUERY, "--config", config, "--min-count", "1"])
    }

    fn run(site: &Site, arguments: &[&str]) -> Self {
        let run = [&["sum", "run", "--json"], arguments].concat();
        let mut process = Running::start(site.folder.path(), &run, "querier.log");
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        Self { process, lines, start: Instant::now() }
    }

    /// Reads rows until one has a result over exactly the motes of the bits `expected`. Every row
    /// that has a result is exact.
    fn until(&mut self, expected: u32, site: &Site) -> Value {
        loop {
            let line = self.lines.next().unwrap_or_else(|| panic!("{}", site.logs())).unwrap();
            let row: Value = serde_json::from_str(&line).unwrap();
            assert!(self.start.elapsed() < LONG, "{row}\n{}", site.logs());
            let name = row["error"]["name"].as_str();
            // A gateway may load a version later than the querier.
            let is_known = matches!(name, None | Some("BelowFloor" | "NotMember"));
            assert!(is_known, "{row}\n{}", site.logs());
            let results = &row["results"];
            let Some(sum) = results["SUM(reading)"].as_str() else { continue };
            let sum: u32 = sum.parse().unwrap();
            assert_eq!(results["COUNT(*)"], sum.count_ones().to_string(), "{row}");
            if sum == expected {
                return row;
            }
        }
    }
}

#[test]
fn a_group_changes_while_its_sums_run() {
    let site = Site::new();
    let at = site.folder.path();
    let _gateways = ["root", "gw-a", "gw-b"].map(|name| site.gateway(name));
    let feeder = Feeder::new();
    let mut motes: Vec<Running> = (0..MOTES).map(|mote| site.mote(mote)).collect();
    for (mote, process) in motes.iter_mut().enumerate() {
        feeder.feed(mote, process);
    }
    let mut query = Query::start(&site, "querier.toml");
    let row = query.until(0xff, &site);
    assert_eq!(row["sources"], 8, "{row}");

    // A mote joins. Only its own key file is made.
    let change = |command: &str, arguments: &[&str]| {
        let roster = ["--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
        run(at, &[&["roster", command][..], &roster, arguments].concat());
    };
    run(at, &["key", "new", "--out", "keys/mote8"]);
    let tree = fs::read_to_string(at.join("tree.toml")).unwrap();
    let joined = ["--device", "mote8=keys/mote8.pub.pem", "--from", "2020-01-01"];
    change("add", &joined);
    fs::write(at.join("tree.toml"), format!("{tree}mote8 = \"gw-b\"\n")).unwrap();
    let keys = ["--keys", "sumkeys/querier.sum.key", "--out", "sumkeys/"];
    run(at, &[&["sum", "setup", "--roster", "roster.cbor"][..], &keys].concat());
    site.configure_mote(8);
    let mut mote = site.mote(8);
    feeder.feed(8, &mut mote);
    let row = query.until(0x1ff, &site);
    assert_eq!(row["sources"], 9, "{row}");

    // A mote's key is revoked. Nobody waits for it, and it is not reported as silent.
    // A mote may load the roster before the querier, which then still waits for it.
    change("revoke", &["--device", "mote0", "--from", "2020-01-01"]);
    let mut row = query.until(0x1fe, &site);
    while row["sources"] == 9 {
        assert_eq!(row["silent"], serde_json::json!(["mote0"]), "{row}");
        row = query.until(0x1fe, &site);
    }
    assert_eq!((&row["sources"], row["silent"].as_array().unwrap().len()), (&8.into(), 0), "{row}");

    // Another querier takes over. The query of the first one ends.
    run(at, &["key", "new", "--out", "keys/q2"]);
    change("set", &["--querier", "keys/q2.pub.pem"]);
    let code = query.process.0.wait().unwrap().code();
    assert_eq!(code, Some(2), "{}", site.logs());
    let config = fs::read_to_string(at.join("querier.toml")).unwrap();
    let config =
        config.replace("keys/q.key.pem", "keys/q2.key.pem").replace("querier.state", "q2.state");
    fs::write(at.join("querier2.toml"), config).unwrap();
    let mut query = Query::start(&site, "querier2.toml");
    query.until(0x1fe, &site);

    // An earlier version is not accepted after a later one, also not after a restart.
    fs::write(at.join("roster.cbor"), fs::read(at.join("first.cbor")).unwrap()).unwrap();
    drop(query);
    let refused =
        moteseal(at, &["sum", "run", QUERY, "--config", "querier2.toml"]).output().unwrap();
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && stderr.contains("NotLater: "), "{stderr}");
}

#[test]
fn a_device_with_keys_of_another_roster_or_device_is_refused() {
    let (site, other) = (Site::new(), Site::new());
    let at = site.folder.path();
    let refused = |name: &str| {
        let output = moteseal(at, &["device", "run", "--config", "mote0.toml"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains("sum.key") && stderr.contains(name) && stderr.lines().count() == 1,
            "{stderr}"
        );
    };
    fs::copy(other.folder.path().join("sumkeys/mote0.sum.key"), at.join("sumkeys/mote0.sum.key"))
        .unwrap();
    refused("WrongRoster: ");
    fs::copy(at.join("sumkeys/mote1.sum.key"), at.join("sumkeys/mote0.sum.key")).unwrap();
    refused("WrongDevice: these are the keys of mote1");
    fs::copy(at.join("sumkeys/querier.sum.key"), at.join("sumkeys/mote0.sum.key")).unwrap();
    refused("WrongPemLabel: ");
}
