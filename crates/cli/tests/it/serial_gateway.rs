//! Runs `moteseal gateway serial` as a process. It connects motes on TCP ports to a real broker
//! (Debian's Mosquitto), which a real `moteseal gateway run` also uses. The epochs at the cloud are
//! complete and justified, and no frame of a stranger is forwarded.

use crate::group;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::broker::Broker;
use crate::group::{COORDINATOR, Cloud, FIRST, GROUP_SECRET, OPERATOR};
use bytes::Bytes;
use moteseal_core::DeviceId;
use moteseal_core::identity::{encode_public_pem, encode_secret_pem};
use moteseal_core::roster::Directory as _;
use moteseal_core::signed_time::{TimeChallenge, TimeError, TimeSigner, TimeStatement};
use moteseal_device::runner::{Settings, Source};
use moteseal_net::link::{State, until_up};
use moteseal_net::mqtt::{Backoff, MqttParent, Options as Mqtt};
use moteseal_net::serial::{Event, Options, SerialLine};
use moteseal_net::{Broadcast, BroadcastLink as _, ChildLink, Down, LinkError, ParentLink as _};
use moteseal_serial::{Channel, MAX_BODY, Side, Timing};
use moteseal_verify::{Calendar, Roster};
use tokio::io::copy_bidirectional;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

/// The timeout of an operation: longer than any successful operation takes.
const LONG: Duration = Duration::from_secs(120);
const EPOCH_MS: u64 = 60_000;

/// A process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moteseal"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

/// Opens a listening TCP port that connects the gateway with a mote, in place of the mote's UART
/// and a serial adapter.
async fn port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut one, _) = listener.accept().await.unwrap();
            let (mut other, _) = listener.accept().await.unwrap();
            one.set_nodelay(true).unwrap();
            other.set_nodelay(true).unwrap();
            // If either side disconnects, both are disconnected, and both connect again.
            let _ = copy_bidirectional(&mut one, &mut other).await;
        }
    });
    address
}

/// Returns a mote's end of its serial line.
fn mote_at(port: SocketAddr, device: DeviceId, start: u32) -> SerialLine {
    let backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_millis(100) };
    let timing = Some(Timing { repeat_ms: 200, tries: 50 });
    let address = format!("tcp://{port}");
    SerialLine::new(&Options {
        side: Side::Mote(device),
        start,
        timing,
        backoff,
        ..Options::gateway(address)
    })
    .unwrap()
}

/// A device's link to the coordinator over a serial line.
struct OverSerial(SerialLine);

impl ChildLink for OverSerial {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        assert!(frame.len() <= MAX_BODY, "the frame is longer than a serial line carries");
        self.0.send(Channel::Coordinator, frame).await
    }

    async fn receive(&mut self) -> Result<Down, LinkError> {
        loop {
            match self.0.receive().await? {
                Event::Body(Channel::Coordinator, frame) => return Ok(Down::Frame(frame)),
                Event::Body(Channel::CoordinatorAnnouncement, announcement) => {
                    return Ok(Down::Announcement(announcement));
                }
                _ => {}
            }
        }
    }

    fn state(&self) -> watch::Receiver<State> {
        self.0.state()
    }
}

/// A broker, and a group's files in a folder, made as a user makes them.
struct Site {
    folder: tempfile::TempDir,
    broker: Broker,
    roster: Roster,
}

impl Site {
    fn new(devices: u8, budget: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = Broker::open(folder.path());
        let roster = group::roster(devices, budget, EPOCH_MS);
        let site = Self { folder, broker, roster };
        let mut pem = [0; 512];
        site.write(
            "op.pub.pem",
            encode_public_pem(&group::secret(OPERATOR).public(), &mut pem).unwrap(),
        );
        site.write(
            "gateway.key.pem",
            encode_secret_pem(&group::secret(COORDINATOR), &mut pem).unwrap(),
        );
        site.write(
            "link.key",
            &GROUP_SECRET.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        );
        std::fs::write(site.folder.path().join("roster.cbor"), site.roster.bytes()).unwrap();
        for secret in ["gateway.key.pem", "link.key"] {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(
                site.folder.path().join(secret),
                std::fs::Permissions::from_mode(0o600),
            )
            .unwrap();
        }
        site
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn serial_toml(&self, more: &str, ports: &[(SocketAddr, Option<&str>)]) {
        let mut text =
            "roster = \"roster.cbor\"\noperator = \"op.pub.pem\"\nlisten = \"127.0.0.1:0\"\n"
                .to_owned();
        text += &format!("[link]\nurl = \"{}\"\n{more}", self.broker.url());
        for (port, device) in ports {
            text += &format!("[[port]]\naddress = \"tcp://{port}\"\n");
            text += &device.map_or(String::new(), |device| format!("device = \"{device}\"\n"));
        }
        self.write("serial.toml", &text);
    }

    /// Starts the gateway for serial lines. Also returns the address of its metrics.
    fn serial(&self) -> (Running, SocketAddr) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("serial.log"))
            .unwrap();
        let mut command =
            command(self.folder.path(), &["gateway", "serial", "--config", "serial.toml"]);
        let mut running = Running(command.stdout(Stdio::piped()).stderr(log).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("http://")
            .unwrap_or_else(|| panic!("{line:?}: {}", self.log()))
            .parse()
            .unwrap();
        (running, address)
    }

    fn log(&self) -> String {
        let read =
            |name| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        format!("serial:\n{}\ngateway:\n{}", read("serial.log"), read("gateway.log"))
    }

    fn id(&self, device: u8) -> DeviceId {
        group::device_id(&self.roster, device)
    }

    fn mqtt(&self, parent: &str) -> Mqtt {
        Mqtt::new(self.broker.url(), format!("{}{parent}", self.roster.group()))
    }
}

fn fetch(address: SocketAddr, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Returns the value of the metric whose line begins with `prefix`, or 0 if there is none.
fn metric(address: SocketAddr, prefix: &str) -> f64 {
    let text = fetch(address, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(prefix));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

async fn until(what: &str, site: &Site, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "not in time: {what}\n{}", site.log());
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Returns the next body and its channel.
async fn body(line: &SerialLine, site: &Site) -> (Channel, Bytes) {
    loop {
        match timeout(LONG, line.receive())
            .await
            .unwrap_or_else(|_| panic!("nothing was received\n{}", site.log()))
            .unwrap()
        {
            Event::Opened(_) => {}
            Event::Body(channel, body) => return (channel, body),
        }
    }
}

#[test]
fn devices_on_serial_lines_reach_the_cloud_through_a_gateway_that_is_killed() {
    let (devices, epochs, per_epoch) = (2, 4, 60);
    let site = Site::new(devices, 70);
    runtime().block_on(async {
        let cloud = Cloud::default();
        let url = cloud.serve().await;
        site.write(
            "gateway.toml",
            &format!(
                "roster = \"roster.cbor\"\noperator = \"op.pub.pem\"\nkey = \"gateway.key.pem\"\nlink_secret = \"link.key\"\n\
                 state = \"state\"\ngrace = \"60s\"\ntime = \"recorded\"\n[link]\nurl = \"{}\"\n[cloud]\nurl = \"{url}\"\n",
                site.broker.url()
            ),
        );
        let log = std::fs::File::create(site.folder.path().join("gateway.log")).unwrap();
        let mut coordinator = command(site.folder.path(), &["gateway", "run", "--config", "gateway.toml"]);
        let _coordinator = Running(coordinator.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let ports = [port().await, port().await];
        site.serial_toml("", &[(ports[0], Some("mote-0")), (ports[1], None)]);
        let (mut serial, mut address) = site.serial();
        let mut running = Vec::new();
        for device in 0..devices {
            let mut mote = group::mote(&site.roster, device, site.folder.path(), 8);
            let mut link = OverSerial(mote_at(ports[usize::from(device)], site.id(device), 1));
            let recording = group::recording(device, EPOCH_MS, epochs, per_epoch);
            let settings = Settings { first_wait: Duration::from_millis(100), ..Settings::new(Calendar::constant(EPOCH_MS)) };
            running.push(tokio::spawn(async move {
                let source = Source::Recording { recording: &recording, speed: Some(30.0) };
                moteseal_device::runner::run(&mut mote, &mut link, source, settings, &mut |_| {}, std::future::pending())
                    .await
                    .unwrap()
            }));
        }
        until("both ports forward frames", &site, || {
            ports.iter().all(|port| {
                let of = format!("moteseal_serial_frames_up_total{{port=\"tcp://{port}\",channel=\"coordinator\"}}");
                metric(address, &of) > 0.0
            })
        })
        .await;
        assert!(fetch(address, "/healthz").ends_with("alive\n"));
        until("it is ready", &site, || fetch(address, "/readyz").ends_with("ready\n")).await;
        // Kill the gateway while the motes still send. The motes continue, and open their lines
        // again.
        drop(serial);
        (serial, address) = site.serial();
        for device in running {
            let ran = timeout(LONG, device).await.unwrap_or_else(|_| panic!("a device does not end\n{}", site.log())).unwrap();
            assert!(ran.is_done && ran.readings == epochs * per_epoch && ran.left_out == 0, "{ran:?}");
        }
        until("all epochs are at the cloud", &site, || cloud.manifests.lock().unwrap().len() as u64 == epochs).await;
        let outbox = site.folder.path().join("state/outbox");
        until("the outbox is empty", &site, || std::fs::read_dir(&outbox).unwrap().count() == 0).await;
        assert!(metric(address, &format!("moteseal_serial_joined{{port=\"tcp://{}\"}}", ports[1])) > 0.0);
        let ids: Vec<DeviceId> = (0..devices).map(|device| site.id(device)).collect();
        let truth = |id: DeviceId, epoch: u64, seq: u64| {
            let device = ids.iter().position(|known| *known == id).unwrap();
            Some(group::reading(u8::try_from(device).unwrap(), epoch, seq).to_be_bytes())
        };
        let audited = group::audit(&site.roster, &cloud, &truth);
        assert_eq!(audited.justified, (FIRST..FIRST + epochs).collect::<Vec<_>>(), "{audited:?}");
        assert!(audited.sensed.values().all(|&sensed| sensed == per_epoch), "{audited:?}");
        // SIGTERM stops it cleanly.
        let pid = serial.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(serial.0.wait().unwrap().success(), "{}", site.log());
    });
}

#[test]
fn a_restarted_mote_receives_the_newest_announcements_again() {
    let site = Site::new(2, 70);
    runtime().block_on(async {
        let at = port().await;
        site.serial_toml("[sums]\naggregator = \"gw-a\"\n", &[(at, None)]);
        let _serial = site.serial();
        let id = site.id(0);
        let coordinator = MqttParent::new(&site.mqtt(""), [id.0]).unwrap();
        let sums = MqttParent::new(&site.mqtt(".gw-a"), [id.0]).unwrap();
        until_up(coordinator.state()).await.unwrap();
        until_up(sums.state()).await.unwrap();
        coordinator.announce(Bytes::from_static(b"round 1")).await.unwrap();
        sums.announce(Bytes::from_static(b"query schedule 1")).await.unwrap();
        for start in 1..4 {
            let mote = mote_at(at, id, start);
            let mut received = [body(&mote, &site).await, body(&mote, &site).await];
            received.sort_by_key(|(channel, _)| *channel as u8);
            let newest = format!("round {start}");
            let expected = [
                (Channel::CoordinatorAnnouncement, newest.into()),
                (Channel::SumsAnnouncement, Bytes::from_static(b"query schedule 1")),
            ];
            assert_eq!(received, expected, "start {start}");
            // Frames are forwarded in both directions between the mote and the right parent.
            mote.send(Channel::Coordinator, Bytes::from_static(b"to the coordinator"))
                .await
                .unwrap();
            mote.send(Channel::Sums, Bytes::from_static(b"to the sums")).await.unwrap();
            for (parent, expected) in
                [(&coordinator, &b"to the coordinator"[..]), (&sums, b"to the sums")]
            {
                let up = timeout(LONG, parent.receive()).await.unwrap().unwrap();
                assert_eq!((up.device, &up.frame[..]), (id.0, expected));
            }
            coordinator.send(id.0, Bytes::from_static(b"acknowledged")).await.unwrap();
            assert_eq!(
                body(&mote, &site).await,
                (Channel::Coordinator, Bytes::from_static(b"acknowledged"))
            );
            sums.send(id.0, Bytes::from_static(b"acknowledged too")).await.unwrap();
            assert_eq!(
                body(&mote, &site).await,
                (Channel::Sums, Bytes::from_static(b"acknowledged too"))
            );
            coordinator.announce(format!("round {}", start + 1).into()).await.unwrap();
            let (channel, newer) = body(&mote, &site).await;
            assert_eq!(
                (channel, newer),
                (Channel::CoordinatorAnnouncement, format!("round {}", start + 1).into())
            );
        }
    });
}

#[test]
fn broadcasts_pass_between_the_medium_and_all_motes() {
    let site = Site::new(2, 70);
    runtime().block_on(async {
        let medium = format!("{}/yard", site.broker.url());
        let ports = [port().await, port().await];
        site.serial_toml(
            &format!("[broadcast]\nurl = \"{medium}\"\n"),
            &[(ports[0], None), (ports[1], None)],
        );
        let (_serial, address) = site.serial();
        let link = Broadcast::open(&medium, Mqtt::new("", "")).unwrap();
        link.until_up().await.unwrap();
        let motes = [mote_at(ports[0], site.id(0), 1), mote_at(ports[1], site.id(1), 1)];
        until("both are joined", &site, || {
            ports.iter().all(|port| {
                metric(address, &format!("moteseal_serial_joined{{port=\"tcp://{port}\"}}")) > 0.0
            })
        })
        .await;
        // The gateway may not be connected to the medium yet: send until the mote receives it.
        let first = loop {
            link.send(Bytes::from_static(b"from afar")).await.unwrap();
            if let Ok(received) = timeout(Duration::from_millis(500), body(&motes[0], &site)).await
            {
                break received;
            }
        };
        assert_eq!(first, (Channel::Broadcast, Bytes::from_static(b"from afar")));
        motes[0].send(Channel::Broadcast, Bytes::from_static(b"from mote 0")).await.unwrap();
        while timeout(LONG, link.receive()).await.unwrap().unwrap()
            != Bytes::from_static(b"from mote 0")
        {}
        loop {
            let (channel, received) = body(&motes[1], &site).await;
            assert_eq!(channel, Channel::Broadcast);
            if received == Bytes::from_static(b"from mote 0") {
                break;
            }
            assert_eq!(received, Bytes::from_static(b"from afar"));
        }
        // A frame that is longer than a serial line carries is dropped and counted. The next frame
        // is received.
        link.send(Bytes::from(vec![7; MAX_BODY + 1])).await.unwrap();
        link.send(Bytes::from_static(b"the end")).await.unwrap();
        while body(&motes[1], &site).await.1 != Bytes::from_static(b"the end") {}
        assert!(metric(address, "moteseal_serial_broadcasts_too_long_total") >= 1.0);
    });
}

#[test]
fn frames_of_strangers_are_not_forwarded_and_do_not_affect_other_ports() {
    let site = Site::new(2, 70);
    runtime().block_on(async {
        let ports = [port().await, port().await, port().await, port().await];
        site.serial_toml(
            "",
            &[
                (ports[0], Some("mote-0")),
                (ports[1], Some("mote-1")),
                (ports[2], None),
                (ports[3], None),
            ],
        );
        let (_serial, address) = site.serial();
        let (good, other) = (site.id(0), site.id(1));
        let coordinator = MqttParent::new(&site.mqtt(""), [good.0, other.0]).unwrap();
        until_up(coordinator.state()).await.unwrap();
        let mote = mote_at(ports[0], good, 1);
        until("the device of the first port is joined", &site, || {
            metric(address, &format!("moteseal_serial_joined{{port=\"tcp://{}\"}}", ports[0])) > 0.0
        })
        .await;
        let stranger = DeviceId([0x66; 8]);
        // Three devices that may not use their port: a device that is configured for another port,
        // a device that already uses another port, and a device that is not in the roster. The
        // first two send continuously, and the third restarts continuously.
        let wrong = mote_at(ports[1], good, 7);
        let twice = mote_at(ports[2], good, 8);
        let flood = [wrong, twice].map(|line| {
            tokio::spawn(async move {
                loop {
                    line.send(Channel::Coordinator, Bytes::from(vec![0x42; MAX_BODY])).await.unwrap();
                }
            })
        });
        let at = ports[3];
        let storm = tokio::spawn(async move {
            for start in 0.. {
                let line = mote_at(at, stranger, start);
                let _ = timeout(Duration::from_secs(5), until_up(line.state())).await;
                let _ = line.send(Channel::Coordinator, Bytes::from_static(b"let me in")).await;
            }
        });
        for (port, name) in [(1, "WrongDevice"), (2, "DeviceElsewhere"), (3, "UnknownDevice")] {
            let of = format!(
                "moteseal_serial_refused_total{{port=\"tcp://{}\",name=\"{name}\"}}",
                ports[port]
            );
            until(name, &site, || metric(address, &of) > 0.0).await;
        }
        for number in 0..50_u32 {
            mote.send(Channel::Coordinator, Bytes::copy_from_slice(&number.to_be_bytes())).await.unwrap();
            let up = timeout(LONG, coordinator.receive())
                .await
                .unwrap_or_else(|_| panic!("{number}\n{}", site.log()))
                .unwrap();
            assert_eq!((up.device, &up.frame[..]), (good.0, &number.to_be_bytes()[..]));
        }
        flood.iter().for_each(tokio::task::JoinHandle::abort);
        storm.abort();
        for port in &ports[1..] {
            assert_eq!(
                metric(address, &format!("moteseal_serial_joined{{port=\"tcp://{port}\"}}")),
                0.0
            );
            assert_eq!(
                metric(
                    address,
                    &format!(
                        "moteseal_serial_frames_up_total{{port=\"tcp://{port}\",channel=\"coordinator\"}}"
                    )
                ),
                0.0
            );
        }
    });
}

#[test]
fn errors_in_serial_toml_are_one_line_and_check_lists_the_settings() {
    let site = Site::new(2, 70);
    let good = "roster = \"roster.cbor\"\noperator = \"op.pub.pem\"\n[link]\nurl = \"mqtt://127.0.0.1:1\"\n[sums]\naggregator = \"gw-a\"\n\
                [broadcast]\nurl = \"udp://239.83.7.9:5000?interface=127.0.0.1\"\n[[port]]\naddress = \"/dev/ttyUSB77\"\ndevice = \"mote-0\"\n\
                [[port]]\naddress = \"tcp://127.0.0.1:4001\"\nbaud = 9600\n";
    let check = |text: &str| {
        site.write("serial.toml", text);
        let mut command = command(
            site.folder.path(),
            &["gateway", "serial", "--config", "serial.toml", "--check"],
        );
        let output = command.output().unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), out, err)
    };
    let (code, out, err) = check(good);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for line in [
        "port     /dev/ttyUSB77, 115200 baud: mote-0, does not exist yet",
        "port     tcp://127.0.0.1:4001, 9600 baud: any device",
        "sums     mqtt://127.0.0.1:1, at gw-a",
        "the configuration is valid; without --check the gateway would run now",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    for (from, to, expected) in [
        ("operator =", "operato =", "serial.toml:2: unknown field `operato`"),
        ("op.pub.pem", "link.key", "roster: "),
        ("/dev/ttyUSB77", "ttyUSB77", "port.address: BadAddress"),
        ("tcp://127.0.0.1:4001", "/dev/ttyUSB77", "/dev/ttyUSB77 is listed twice"),
        ("baud = 9600", "baud = 75", "1200 to 4000000"),
        ("\"mote-0\"", "\"mote-7\"", "the roster has no device \"mote-7\""),
        ("baud = 9600", "device = \"mote-0\"", "its device is already at another port"),
        ("mqtt://127.0.0.1:1", "ftp://x", "link: BadAddress"),
        ("udp://", "xdp://", "broadcast: BadAddress"),
        ("aggregator = \"gw-a\"", "", "give either `tree`"),
        ("aggregator = \"gw-a\"", "tree = \"none.toml\"", "sums.tree: cannot read"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        let (code, _, err) = check(&bad);
        assert!(
            code == Some(2) && err.contains(expected) && err.trim_end().lines().count() == 1,
            "{from}: {code:?} {err}"
        );
    }
    let (code, _, err) = check(
        "roster = \"roster.cbor\"\noperator = \"op.pub.pem\"\n[[port]]\naddress = \"/dev/ttyS0\"\n",
    );
    assert!(code == Some(2) && err.contains("nothing to connect motes to"), "{err}");
    let (code, _, err) = check(
        "roster = \"roster.cbor\"\noperator = \"op.pub.pem\"\n[link]\nurl = \"mqtt://127.0.0.1:1\"\n",
    );
    assert!(code == Some(2) && err.contains("[[port]]"), "{err}");
}

#[test]
fn a_mote_gets_the_time_from_its_signer_and_never_from_the_gateway() {
    let site = Site::new(2, 100);
    let mut pem = [0; 512];
    site.write("op.key.pem", encode_secret_pem(&group::secret(OPERATOR), &mut pem).unwrap());
    let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(site.folder.path().join("op.key.pem"), only_owner).unwrap();
    let url = site.broker.url();
    site.write(
        "time.toml",
        &format!(
            "roster = \"roster.cbor\"\noperator = \"op.pub.pem\"\nkey = \"op.key.pem\"\n[link]\nurl = \"{url}\"\n"
        ),
    );
    runtime().block_on(async {
        let (port, device) = (port().await, site.id(0));
        site.serial_toml(&format!("[time]\nurl = \"{url}\"\n"), &[(port, None)]);
        let (_serial, metrics) = site.serial();
        let mote = mote_at(port, device, 1);
        until("the mote joins", &site, || {
            metric(metrics, &format!("moteseal_serial_joined{{port=\"tcp://{port}\"}}")) > 0.0
        })
        .await;
        let mut serve = command(site.folder.path(), &["time", "serve", "--config", "time.toml"]);
        let mut serve = Running(serve.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(serve.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), url);

        let unix_ms = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            u64::try_from(now.as_millis()).unwrap()
        };
        let (operator, to) = (group::secret(OPERATOR).public(), (site.roster.group(), device));
        let mut before = unix_ms();
        for count in 0..3 {
            let challenge = TimeChallenge::new(&[7; 32], 1, count);
            let key = |role| (role == TimeSigner::Operator).then_some(&operator);
            // The signer may not have subscribed yet, and answers twice a second at most.
            let statement = loop {
                mote.send(Channel::Time, Bytes::copy_from_slice(&challenge.0)).await.unwrap();
                let next = async {
                    loop {
                        let (channel, body) = body(&mote, &site).await;
                        assert_eq!(channel, Channel::Time, "there is no other sender");
                        match TimeStatement::open(&body, to, challenge, key) {
                            // The answer to a repeated challenge.
                            Err(TimeError::WrongChallenge) => {}
                            opened => return opened.unwrap(),
                        }
                    }
                };
                if let Ok(statement) = timeout(Duration::from_secs(2), next).await {
                    break statement;
                }
            };
            let signed_ms = statement.unix_ms;
            assert!((before..=unix_ms()).contains(&signed_ms), "{signed_ms} {before}");
            before = signed_ms;
            tokio::time::sleep(Duration::from_millis(600)).await;
        }
        // Without the signer, the gateway sends nothing.
        drop(serve);
        let challenge = TimeChallenge::new(&[7; 32], 1, 9);
        mote.send(Channel::Time, Bytes::copy_from_slice(&challenge.0)).await.unwrap();
        let silence = timeout(Duration::from_secs(2), body(&mote, &site)).await;
        assert!(silence.is_err(), "{silence:?}");
    });
}
