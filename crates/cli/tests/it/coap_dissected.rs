//! tshark decodes what devices, gateways, clouds and clients send over CoAP and DTLS, without a malformed
//! packet: readings and an urgent event on their way from a device to the cloud, and signed readings that
//! a client reads and observes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::coap_transport::{ROSTER, Service, certificate, cloud, dtls_key, scene};
use crate::scene::Scene;
use crate::tap::{Packet, Tap};

const LONG: Duration = Duration::from_secs(60);
/// The number of readings, whose bundle and frames have more than one block.
const READINGS: usize = 600;
const FIELDS: [&str; 9] = [
    "frame.protocols",
    "_ws.malformed",
    "_ws.expert.severity",
    "_ws.expert.message",
    "coap.code",
    "coap.opt.name",
    "coap.opt.uri_path_recon",
    "coap.opt.block_number",
    "dtls.handshake.type",
];
/// The least severity of an error in `_ws.expert.severity`.
const ERROR: u64 = 0x80_0000;
/// The type of DTLS records with data (RFC 5246, section 6.2.1).
const DATA: u8 = 23;

/// What tshark found in a capture.
#[derive(Debug, Default)]
struct Dissected {
    /// The values of all CoAP messages: codes, names of options, and paths.
    codes: Vec<String>,
    options: Vec<String>,
    paths: Vec<String>,
    /// The largest number of a block.
    block: u32,
    handshakes: Vec<String>,
}

/// Lets tshark decode all datagrams. Each one must be CoAP, or DTLS whose records with data are CoAP if
/// `options` have the key.
fn dissected(scene: &Scene, name: &str, tap: &Tap, options: &[String]) -> Dissected {
    let packets = tap.packets();
    let (mut found, mut messages) = (Dissected::default(), 0);
    let is_secure = tap.url().starts_with("coaps");
    let lines = tap.dissect(&scene.path(&format!("{name}.pcap")), options, &FIELDS);
    for line in &lines {
        let [protocols, malformed, severities, expert, code, names, path, block, handshake] =
            &line[..]
        else {
            panic!("{line:?}");
        };
        // Debian's tshark does not know the options No-Response (RFC 7967) and Request-Tag (RFC 9175). It
        // remarks on each datagram to a port that traceroute also uses, and the system may choose such a
        // port: "Possible traceroute: hop #9, attempt #2".
        let is_explained = |text: &str| {
            matches!(text, "Invalid Option Number 258" | "Invalid Option Number 292")
                || text.starts_with("Possible traceroute: hop #")
                || text.starts_with(" attempt #")
        };
        let is_known = malformed.is_empty() || expert.split(',').all(is_explained);
        assert!(is_known, "{name}: {line:?}");
        let severity = |value: &str| value.parse::<u64>().unwrap();
        let severest = severities.split(',').filter(|one| !one.is_empty()).map(severity).max();
        assert!(severest.is_none_or(|severest| severest < ERROR), "{name}: {expert}: {line:?}");
        let outer = if is_secure { "raw:ip:udp:dtls" } else { "raw:ip:udp:coap" };
        assert!(protocols.starts_with(outer), "{name}: {line:?}");
        let values = |text: &str| -> Vec<String> {
            text.split(',').filter(|value| !value.is_empty()).map(str::to_owned).collect()
        };
        messages += values(code).len();
        found.codes.extend(values(code));
        found.options.extend(values(names));
        found.paths.extend(values(path));
        found.handshakes.extend(values(handshake));
        let blocks = values(block).into_iter().map(|number| number.parse().unwrap()).max();
        found.block = found.block.max(blocks.unwrap_or(0));
    }
    let expected = match (is_secure, options.is_empty()) {
        (false, _) => packets.len(),
        (true, true) => 0,
        (true, false) => packets.iter().map(records_with_data).sum(),
    };
    assert_eq!(messages, expected, "{name}: every message is decoded");
    println!("{name}: {} datagrams, {messages} messages: {found:?}", packets.len());
    found
}

/// Returns the number of DTLS records with data in a datagram.
fn records_with_data(packet: &Packet) -> usize {
    let (mut rest, mut count) = (&packet.bytes[..], 0);
    while let [kind, _, _, _, _, _, _, _, _, _, _, high, low, after @ ..] = rest {
        count += usize::from(*kind == DATA);
        rest = &after[usize::from(u16::from_be_bytes([*high, *low]))..];
    }
    count
}

/// The option with which tshark decrypts the sessions that use a link secret.
fn with_key(scene: &Scene, file: &str) -> Vec<String> {
    let (_, key) = dtls_key(scene, file);
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    vec!["-o".to_owned(), format!("dtls.psk:{digits}")]
}

/// A device whose readings come from stdin, and the address at which it serves them.
struct Device {
    process: Child,
    readings: String,
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Device {
    fn start(scene: &Scene, to: &str, listen: &str) -> Self {
        let run = ["device", "run", "--config", "device.toml", "--to", to, listen, "127.0.0.1:0"];
        let mut command = scene.command(&run);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let readings = lines
            .by_ref()
            .find_map(|line| line.unwrap().strip_prefix("readings at ").map(str::to_owned));
        // The pipe of the log must be emptied.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, readings: readings.unwrap() }
    }

    fn sense(&mut self, reading: usize) {
        let stdin = self.process.stdin.as_mut().unwrap();
        // The column has values up to 327.67.
        writeln!(stdin, "{}.5", reading % 300).unwrap();
        stdin.flush().unwrap();
    }
}

fn until(what: &str, mut is_done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Runs the whole path, and checks what is sent between each two roles. With `coaps`, the device and the
/// client have the device's link secret, and the gateway checks the cloud's certificate.
fn the_whole_path(scheme: &str) {
    let is_secure = scheme == "coaps";
    let scene = scene(&["dev1"]);
    certificate(&scene);
    let cloud = cloud(&scene, &["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    let to_cloud = Tap::new(cloud.url(scheme));
    let ca = if is_secure { "ca = \"server.pem\"\n" } else { "" };
    scene.write(
        "gateway.toml",
        &format!(
            "roster = \"roster.cbor\"\noperator = \"keys/op.pub.pem\"\nkey = \"keys/gateway.key.pem\"\n\
             link_secret = \"keys/link.key\"\nstate = \"gateway\"\nlisten_{scheme} = \"127.0.0.1:0\"\n\
             [cloud]\nurl = \"{}\"\n{ca}",
            to_cloud.url()
        ),
    );
    let gateway = Service::start(&scene, &["gateway", "run", "--config", "gateway.toml"], 1);
    let to_gateway = Tap::new(gateway.url(scheme));
    scene.write(
        "device.toml",
        "device = \"dev1\"\nkey = \"keys/dev1.key.pem\"\nroster = \"roster.cbor\"\n\
         operator = \"keys/op.pub.pem\"\nlink_secret = \"keys/dev1.link.key\"\nstate = \"dev1\"\n\
         [link]\nurl = \"mqtt://broker.example\"\n\
         [source]\ncolumns = [\"temperature:Cel:i16/100\"]\n",
    );
    let mut device = Device::start(&scene, &to_gateway.url(), &format!("--listen-{scheme}"));
    let to_device = Tap::new(&device.readings);

    // A client reads a reading, and observes those that follow.
    (0..READINGS - 3).for_each(|reading| device.sense(reading));
    let readings = format!("{}/sensors", to_device.url());
    let mut client = vec!["reading", &readings];
    if is_secure {
        client.extend(["--device", "dev1", "--link-secret", "keys/dev1.link.key"]);
    }
    until("a reading", || scene.with_roster(&client).code == 0);
    let mut observer = scene.command(&[&client[..], &["--observe"], &ROSTER].concat());
    let mut observer = observer.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(observer.stdout.take().unwrap()).lines();
    for reading in READINGS - 3..READINGS {
        lines.next().unwrap().unwrap();
        device.sense(reading);
    }
    lines.next().unwrap().unwrap();
    observer.kill().unwrap();
    observer.wait().unwrap();

    // An urgent event, and the seal of the epoch.
    let event = ["device", "event", "99.5", "--config", "device.toml"];
    scene.run(&event).done();
    drop(device.process.stdin.take());
    until("the device ends", || device.process.try_wait().unwrap().is_some());
    let get = |more: &[&str]| {
        let get = ["get", "--from", cloud.url("https"), "--ca", "server.pem", "--format", "csv"];
        let run = scene.with_roster(&[&get[..], more].concat());
        run.out.lines().filter(|line| line.contains(".5")).count()
    };
    // The urgent event is a reading, too.
    until("all readings", || get(&["--rate", "1", "--since", "1970-01-01"]) == READINGS + 1);
    until("the urgent event", || get(&["--events", "urgent"]) == 1);

    let key = if is_secure { with_key(&scene, "keys/dev1.link.key") } else { Vec::new() };
    let has = |values: &[String], value: &str| values.iter().any(|one| one.contains(value));
    let up = dissected(&scene, "device to gateway", &to_gateway, &key);
    assert!(has(&up.paths, "/link/") && has(&up.paths, "/round") && has(&up.paths, "/frames"));
    assert!(has(&up.options, "(258)") && up.block > 0, "{up:?}");
    let down = dissected(&scene, "client to device", &to_device, &key);
    assert!(has(&down.paths, "/sensors") && has(&down.options, "Observe"), "{down:?}");
    let stored = dissected(&scene, "gateway to cloud", &to_cloud, &[]);
    if is_secure {
        // ClientHello, ServerHello, Certificate, ServerKeyExchange, HelloVerifyRequest.
        for kind in ["1", "2", "11", "12", "3"] {
            assert!(stored.handshakes.iter().any(|one| one == kind), "{kind}: {stored:?}");
        }
    } else {
        for path in ["/v1/bundles", "/v1/events", "/v1/manifests"] {
            assert!(has(&stored.paths, path), "{path}: {stored:?}");
        }
        assert!(stored.block > 0, "{stored:?}");
    }
}

#[test]
fn tshark_decodes_the_whole_path_over_coap() {
    the_whole_path("coap");
}

#[test]
fn tshark_decodes_the_whole_path_over_dtls() {
    the_whole_path("coaps");
}

/// `openssl s_client` logs the keys of its session with certificates, so that tshark decrypts it.
#[test]
fn tshark_decodes_coap_in_a_session_with_certificates() {
    let scene = scene(&["dev1"]);
    certificate(&scene);
    let cloud = cloud(&scene, &["--tls-cert", "server.pem", "--tls-key", "server.key"]);
    let tap = Tap::new(cloud.url("coaps"));
    let address = tap.url().replace("coaps://", "");
    let mut client = Command::new("openssl")
        .args(["s_client", "-dtls1_2", "-quiet", "-CAfile", "server.pem", "-verify_return_error"])
        .args(["-keylogfile", "keys.log", "-connect", &address])
        .current_dir(scene.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is missing: install the package openssl");
    // Confirmable GET /.well-known/core.
    let mut stdin = client.stdin.take().unwrap();
    stdin.write_all(b"\x40\x01\x12\x34\xbb.well-known\x04core").unwrap();
    let mut stdout = client.stdout.take().unwrap();
    let mut response = [0; 4];
    std::io::Read::read_exact(&mut stdout, &mut response).unwrap();
    drop(stdin);
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(response, *b"\x60\x45\x12\x34");
    let (codes, paths) = (["1", "69"].map(str::to_owned), ["/.well-known/core".to_owned()]);
    let keys = scene.path("keys.log");
    let options = ["-o".to_owned(), format!("tls.keylog_file:{}", keys.display())];
    let found = dissected(&scene, "certificates", &tap, &options);
    assert_eq!((&*found.codes, &*found.paths), (&codes[..], &paths[..]));
}
