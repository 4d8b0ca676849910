//! Runs `moteseal gateway run` and `moteseal device run` as processes with a real broker (Debian's
//! Mosquitto), and kills them at any moment. The epochs at the cloud are complete and justified.

use crate::group;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::group::{Cloud, FIRST};
use moteseal_core::DeviceId;
use moteseal_core::identity::decode_public_pem;
use moteseal_verify::Roster;

const EPOCH_MS: u64 = 60_000;
const DEVICES: u8 = 3;
const EPOCHS: u64 = 6;
const PER_EPOCH: u64 = 300;

fn moteseal() -> Command {
    Command::new(env!("CARGO_BIN_EXE_moteseal"))
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // SIGKILL: the process cannot clean up.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts Mosquitto, which `tools/setup.sh` installs.
fn broker(folder: &Path, port: u16) -> Running {
    let config = folder.join("mosquitto.conf");
    std::fs::write(
        &config,
        format!("listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\n"),
    )
    .unwrap();
    let program = ["/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let mut command = Command::new(program.unwrap_or("mosquitto"));
    let child = command.arg("-c").arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let running = Running(child.expect("tools/setup.sh installs Mosquitto"));
    let start = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "the broker does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    running
}

/// A group's keys, roster and configurations in a folder, as a user makes them.
struct Site {
    folder: PathBuf,
}

impl Site {
    fn new(folder: &Path, port: u16, cloud: &str, budget: u64) -> Self {
        Self::with_epochs(folder, port, cloud, budget, EPOCH_MS)
    }

    fn with_epochs(folder: &Path, port: u16, cloud: &str, budget: u64, epoch_ms: u64) -> Self {
        let site = Self { folder: folder.to_owned() };
        for name in ["op", "gateway"]
            .into_iter()
            .map(str::to_owned)
            .chain((0..DEVICES).map(|at| format!("mote-{at}")))
        {
            done(site.run(["key", "new", "--out", &name]));
        }
        let epoch = format!("{epoch_ms}ms");
        let budget = budget.to_string();
        let levels = group::LEVELS.to_string();
        let mut roster = moteseal();
        roster.current_dir(folder).args([
            "roster",
            "new",
            "--operator",
            "op.key.pem",
            "--group",
            "field",
            "--epoch",
            &epoch,
        ]);
        roster.args([
            "--levels",
            &levels,
            "--budget",
            &budget,
            "--coordinator",
            "gateway.pub.pem",
            "--out",
            "roster.cbor",
        ]);
        for at in 0..DEVICES {
            roster.args(["--device", &format!("mote-{at}=mote-{at}.pub.pem")]);
        }
        done(&mut roster);
        done(site.run(["key", "link", "--out", "link.key"]));
        let common = "roster = \"roster.cbor\"\noperator = \"op.pub.pem\"\n";
        let link = format!("[link]\nurl = \"mqtt://127.0.0.1:{port}\"\n");
        let gateway = format!(
            "{common}key = \"gateway.key.pem\"\nlink_secret = \"link.key\"\nstate = \"state\"\ngrace = \"60s\"\ntime = \"recorded\"\n\
             listen = \"127.0.0.1:0\"\n{link}[cloud]\nurl = \"{cloud}\"\n"
        );
        std::fs::write(folder.join("gateway.toml"), gateway).unwrap();
        for at in 0..DEVICES {
            let name = format!("mote-{at}");
            let secret = format!("{name}.link.key");
            done(site.run([
                "key",
                "link",
                "--group-secret",
                "link.key",
                "--device",
                &name,
                "--roster",
                "roster.cbor",
                "--operator",
                "op.pub.pem",
                "--out",
                &secret,
            ]));
            let mut table = std::fs::File::create(folder.join(format!("{name}.csv"))).unwrap();
            writeln!(table, "ts,reading").unwrap();
            for epoch in FIRST..FIRST + EPOCHS {
                for n in 0..PER_EPOCH {
                    let unix_ms = epoch * EPOCH_MS + n * EPOCH_MS / PER_EPOCH;
                    let reading = group::reading(at, epoch, n);
                    writeln!(table, "{}.{:03},{reading}", unix_ms / 1000, unix_ms % 1000).unwrap();
                }
            }
            let device = format!(
                "device = \"{name}\"\nkey = \"{name}.key.pem\"\n{common}link_secret = \"{secret}\"\nstate = \"{name}\"\n{link}\
                 [source]\ntable = \"{name}.csv\"\ntime = \"ts\"\ncolumns = [\"reading::u32\"]\n"
            );
            std::fs::write(folder.join(format!("{name}.toml")), device).unwrap();
        }
        site
    }

    fn run<const N: usize>(&self, arguments: [&str; N]) -> &'static mut Command {
        // Leak the command, so that callers can use it as a temporary value.
        let command = Box::leak(Box::new(moteseal()));
        command.current_dir(&self.folder).args(arguments)
    }

    fn gateway(&self) -> Running {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("gateway.log"))
            .unwrap();
        let mut command = moteseal();
        command
            .current_dir(&self.folder)
            .args(["gateway", "run", "--config", "gateway.toml"])
            .stdout(Stdio::null())
            .stderr(log);
        Running(command.spawn().unwrap())
    }

    fn device(&self, at: u8, speed: &str) -> Running {
        let log = self.folder.join(format!("mote-{at}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = moteseal();
        command.current_dir(&self.folder).args([
            "device",
            "run",
            "--config",
            &format!("mote-{at}.toml"),
            "--speed",
            speed,
        ]);
        Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn roster(&self) -> Roster {
        let operator = std::fs::read(self.folder.join("op.pub.pem")).unwrap();
        let roster = std::fs::read(self.folder.join("roster.cbor")).unwrap();
        Roster::open(&roster, &decode_public_pem(&operator).unwrap()).unwrap()
    }

    fn logs(&self) -> String {
        let names = std::iter::once("gateway.log".to_owned())
            .chain((0..DEVICES).map(|at| format!("mote-{at}.log")));
        names
            .map(|name| {
                format!(
                    "{name}:\n{}\n",
                    std::fs::read_to_string(self.folder.join(&name)).unwrap_or_default()
                )
            })
            .collect()
    }
}

#[test]
fn gateway_and_devices_that_are_killed_often_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cloud = Cloud::default();
    let url = runtime.block_on(cloud.serve());
    let port = free_port();
    let site = Site::new(folder.path(), port, &url, 150);
    let checked = done(site.run(["gateway", "run", "--config", "gateway.toml", "--check"]));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("the configuration is valid"));
    let mut mosquitto = broker(folder.path(), port);
    // How often the gateway's link was up, now and before the gateway's newest start.
    let ups = |site: &Site| site.logs().matches("the link to the devices is up").count();
    let mut ups_before = 0;
    let mut gateway = site.gateway();
    let mut devices: Vec<Option<Running>> =
        (0..DEVICES).map(|at| Some(site.device(at, "60x"))).collect();
    let (start, mut chance, mut kills, mut broker_restarted) =
        (Instant::now(), Chance::new(11), 0, false);
    while devices.iter().any(Option::is_some) {
        assert!(
            start.elapsed() < Duration::from_secs(240),
            "not within four minutes:\n{}",
            site.logs()
        );
        std::thread::sleep(Duration::from_millis(100 + chance.next() % 400));
        for (at, device) in (0..).zip(&mut devices) {
            let Some(running) = device else { continue };
            match running.0.try_wait().unwrap() {
                Some(status) => {
                    assert!(status.success(), "mote-{at} ended with {status}:\n{}", site.logs());
                    *device = None;
                }
                None if chance.next().is_multiple_of(8) && kills < 40 => {
                    kills += 1;
                    drop(device.take());
                    *device = Some(site.device(at, "60x"));
                }
                None => {}
            }
        }
        if chance.next().is_multiple_of(6) && kills < 40 {
            kills += 1;
            drop(gateway);
            ups_before = ups(&site);
            gateway = site.gateway();
        }
        assert!(gateway.0.try_wait().unwrap().is_none(), "the gateway ended:\n{}", site.logs());
        if kills >= 4 && !broker_restarted {
            broker_restarted = true;
            drop(mosquitto);
            mosquitto = broker(folder.path(), port);
        }
    }
    while (cloud.manifests.lock().unwrap().len() as u64) < EPOCHS
        || std::fs::read_dir(folder.path().join("state/outbox")).unwrap().count() > 0
    {
        assert!(
            start.elapsed() < Duration::from_secs(300),
            "not all epochs are at the cloud:\n{}",
            site.logs()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    // SIGTERM stops the gateway cleanly. It may have been started just now.
    while ups(&site) <= ups_before {
        assert!(start.elapsed() < Duration::from_secs(300), "{}", site.logs());
        std::thread::sleep(Duration::from_millis(50));
    }
    done(Command::new("kill").arg(gateway.0.id().to_string()));
    assert!(gateway.0.wait().unwrap().success(), "{}", site.logs());
    drop(mosquitto);
    let roster = site.roster();
    let ids: Vec<DeviceId> = (0..DEVICES).map(|device| group::device_id(&roster, device)).collect();
    let truth = |id: DeviceId, epoch: u64, seq: u64| {
        let device = ids.iter().position(|known| *known == id).unwrap();
        Some(group::reading(u8::try_from(device).unwrap(), epoch, seq).to_be_bytes())
    };
    let audited = group::audit(&roster, &cloud, &truth);
    println!("{kills} kills in {:?}: {audited:?}", start.elapsed());
    assert!(kills >= 5 && broker_restarted, "{kills}");
    assert_eq!(
        audited.justified,
        (FIRST..FIRST + EPOCHS).collect::<Vec<_>>(),
        "{audited:?}\n{}",
        site.logs()
    );
    assert!(audited.sensed.values().all(|&sensed| sensed == PER_EPOCH), "{audited:?}");
    assert_eq!(audited.sensed.len() as u64, u64::from(DEVICES) * EPOCHS);
}

/// Waits until a log contains a text.
fn until_logged(file: &Path, what: &str) {
    let start = Instant::now();
    while !std::fs::read_to_string(file).unwrap_or_default().contains(what) {
        assert!(start.elapsed() < Duration::from_secs(60), "{}: never {what:?}", file.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn lines_from_stdin_are_sealed_as_they_arrive_and_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cloud = Cloud::default();
    let url = runtime.block_on(cloud.serve());
    let port = free_port();
    let hour = 3_600_000;
    let site = Site::with_epochs(folder.path(), port, &url, 150, hour);
    let live = |name: &str, from: &str, to: &str| {
        let path = folder.path().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
    };
    live("gateway.toml", "\"recorded\"", "\"clock\"");
    (0..DEVICES).for_each(|at| {
        live(
            &format!("mote-{at}.toml"),
            &format!("table = \"mote-{at}.csv\"\ntime = \"ts\"\n"),
            "",
        );
    });
    let device = |at: u8| {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.path().join(format!("mote-{at}.log")));
        let mut command = moteseal();
        command.current_dir(folder.path()).args([
            "device",
            "run",
            "--config",
            &format!("mote-{at}.toml"),
        ]);
        Running(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(log.unwrap())
                .spawn()
                .unwrap(),
        )
    };
    // All readings must be in one epoch, so wait for the next epoch if the current one ends within
    // two minutes.
    let unix_ms =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    while unix_ms() % u128::from(hour) > u128::from(hour - 120_000) {
        std::thread::sleep(Duration::from_millis(200));
    }
    // Pass the first lines while no broker is running, then kill the device.
    for at in 0..DEVICES {
        let mut running = device(at);
        let mut stdin = running.0.stdin.take().unwrap();
        stdin.write_all(b"1\n\xff\n2\nnonsense\n").unwrap();
        let log = folder.path().join(format!("mote-{at}.log"));
        until_logged(&log, "stdin:2: the line is not text in UTF-8; the line is left out");
        until_logged(&log, "stdin:4: \"nonsense\" does not fit");
        let journal = folder.path().join(format!("mote-{at}/journal"));
        let start = Instant::now();
        // A reading in the journal: 1, its epoch, and the record.
        let epoch = u64::try_from(unix_ms() / u128::from(hour)).unwrap();
        let second = [&[1][..], &epoch.to_be_bytes(), &2_u32.to_be_bytes()].concat();
        while !std::fs::read(&journal).unwrap().windows(second.len()).any(|part| part == second) {
            assert!(start.elapsed() < Duration::from_secs(20), "the second reading is not durable");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Kill it before stdin ends, which would close the epoch.
        drop(running);
        drop(stdin);
    }
    let mosquitto = broker(folder.path(), port);
    let gateway = site.gateway();
    for at in 0..DEVICES {
        let mut running = device(at);
        running.0.stdin.take().unwrap().write_all(b"3\n").unwrap();
        assert!(running.0.wait().unwrap().success(), "{}", site.logs());
        until_logged(
            &folder.path().join(format!("mote-{at}.log")),
            "1 reading taken, 0 already taken before",
        );
        until_logged(&folder.path().join(format!("mote-{at}.log")), "the gateway has everything");
    }
    let start = Instant::now();
    // Every device has closed the epoch, so the gateway ends it early.
    while cloud.bundles.lock().unwrap().is_empty()
        || std::fs::read_dir(folder.path().join("state/outbox")).unwrap().count() > 0
    {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "not all epochs are at the cloud:\n{}",
            site.logs()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    drop((mosquitto, gateway));
    let audited = group::audit(&site.roster(), &cloud, &|_, _, seq| {
        Some(u32::try_from(seq + 1).unwrap().to_be_bytes())
    });
    assert_eq!(
        (audited.justified.len(), audited.sensed.len()),
        (1, usize::from(DEVICES)),
        "{audited:?}\n{}",
        site.logs()
    );
    assert!(audited.sensed.values().all(|&sensed| sensed == 3), "{audited:?}\n{}", site.logs());
}

#[test]
fn configuration_errors_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new(folder.path(), 1, "http://127.0.0.1:1", 10);
    let good = std::fs::read_to_string(folder.path().join("gateway.toml")).unwrap();
    for (from, to, expected) in [
        ("state =", "stat =", "gateway.toml:5: unknown field `stat`"),
        ("\"60s\"", "\"60\"", "a number and a unit"),
        ("gateway.key.pem", "op.key.pem", "key: NotTheCoordinator"),
        ("\"link.key\"", "\"nowhere.key\"", "link_secret: cannot read"),
        ("\"roster.cbor\"", "\"op.pub.pem\"", "roster: "),
        ("mqtt://127.0.0.1:1", "ftp://x", "BadAddress"),
        ("[cloud]", "[cloudy]", "unknown field `cloudy`"),
        ("[cloud]\nurl", "[cloud]\ntoken_file = \"none\"\nurl", "cloud.token_file"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        std::fs::write(folder.path().join("gateway.toml"), bad).unwrap();
        let output =
            site.run(["gateway", "run", "--config", "gateway.toml", "--check"]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(
            stderr.contains(expected) && stderr.trim_end().lines().count() == 1,
            "{from}: {stderr}"
        );
    }
}
