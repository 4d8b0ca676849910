//! Sessions with the programs of OpenSSL over UDP on the loopback interface.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use moteseal_core::link::LinkKey;
use moteseal_net::dtls::{
    Authority, Certificates, Client, ClientConfig, Event, Identity, Limits, Server, ServerConfig,
};
use rcgen::{PKCS_ECDSA_P256_SHA256, SanType};

use super::certificates::Pki;
use super::world::{DEVICE, SECRET, psk_client, psk_config};

const PATIENCE: Duration = Duration::from_secs(20);
const IDENTITY: &str = "6465766963652d31";

struct Openssl {
    process: Child,
    lines: Receiver<String>,
}

impl Openssl {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is missing: install the package openssl");
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, lines }
    }

    fn type_line(&mut self, text: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{text}").unwrap();
    }

    fn wait_for(&self, text: &str) {
        let end = Instant::now() + PATIENCE;
        let mut all = String::new();
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            if line.contains(text) {
                return;
            }
            all.push_str(&line);
            all.push('\n');
        }
        panic!("openssl did not print {text:?}:\n{all}");
    }
}

impl Drop for Openssl {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn key() -> String {
    LinkKey::dtls_psk(&SECRET).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket
}

/// Serves until the peer has sent a line, and answers it. Returns the identity of the peer.
fn serve(config: ServerConfig, socket: &UdpSocket) -> (Identity, Vec<u8>) {
    let mut server = Server::new(config, Limits::default(), Instant::now()).unwrap();
    let (mut identity, mut buffer) = (None, [0; 4096]);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let mut data: Option<(SocketAddr, Vec<u8>)> = None;
        let mut out = |event: Event<'_>| match event {
            Event::Send { to, datagram } => {
                socket.send_to(datagram, to).unwrap();
            }
            Event::Opened { identity: proved, .. } => identity = Some(proved),
            Event::Data { peer, bytes, .. } => data = Some((peer, bytes.to_vec())),
            Event::Closed { why, .. } | Event::Refused { why, .. } => panic!("{why}"),
            _ => {}
        };
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            server.receive(Instant::now(), from, &buffer[..length], &mut out);
        }
        server.timeout(Instant::now(), &mut out);
        if let Some((peer, bytes)) = data {
            let mut out = |event: Event<'_>| {
                if let Event::Send { to, datagram } = event {
                    socket.send_to(datagram, to).unwrap();
                }
            };
            server.send(Instant::now(), peer, b"answer of the server\n", &mut out).unwrap();
            return (identity.unwrap(), bytes);
        }
    }
    panic!("no data; {:?}", server.counters());
}

#[test]
fn s_client_opens_sessions_with_a_key_and_with_certificates() {
    let pki = Pki::new();
    pki.issue("server", &PKCS_ECDSA_P256_SHA256, |params| {
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    });
    pki.issue("client", &PKCS_ECDSA_P256_SHA256, |params| {
        let uri = format!("urn:moteseal:device:{IDENTITY}");
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
    });
    let path = |name| pki.path(name).to_str().unwrap().to_owned();
    let (ca, certificate, own) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let key = key();
    let with_key =
        ["-psk_identity", IDENTITY, "-psk", &key, "-cipher", "PSK-AES128-CCM8:@SECLEVEL=0"];
    let with_certificate = [
        "-cipher",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "-CAfile",
        &ca,
        "-cert",
        &certificate,
        "-key",
        &own,
        "-verify_return_error",
        "-verify_ip",
        "127.0.0.1",
    ];
    for (options, names_certificate) in [(&with_key[..], false), (&with_certificate[..], true)] {
        let socket = socket();
        let address = socket.local_addr().unwrap().to_string();
        let common = ["s_client", "-dtls1_2", "-connect", &address];
        let mut client = Openssl::start(&[&common[..], options].concat());
        client.type_line("question of the client");
        let clock = SystemTime::now;
        let authority = Authority::load(&pki.path("ca.pem"), clock).unwrap();
        let (pem, secret) = (pki.path("server.pem"), pki.path("server.key"));
        let certificates = Certificates::load(&pem, &secret, authority).unwrap();
        let (identity, bytes) = serve(psk_config().with_certificates(certificates), &socket);
        assert_eq!(bytes, b"question of the client\n");
        assert_eq!(identity.device(), Some(DEVICE));
        assert_eq!(matches!(identity, Identity::Certificate { .. }), names_certificate);
        client.wait_for("answer of the server");
    }
}

/// Connects to a server, sends a line and waits for the answer.
fn ask(config: ClientConfig, server: SocketAddr, openssl: &mut Openssl) {
    let socket = socket();
    let mut client = Client::new(config, server, Instant::now()).unwrap();
    let mut buffer = [0; 4096];
    let (mut answer, mut is_open, mut has_asked) = (Vec::new(), false, false);
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let mut out = |event: Event<'_>| match event {
            // The server may not listen yet.
            Event::Send { to, datagram } => _ = socket.send_to(datagram, to),
            Event::Opened { .. } => is_open = true,
            Event::Data { bytes, .. } => answer.extend_from_slice(bytes),
            Event::Closed { why, .. } | Event::Refused { why, .. } => panic!("{why}"),
            _ => {}
        };
        if client.next_timeout().is_some_and(|at| at <= Instant::now()) {
            client.timeout(Instant::now(), &mut out);
        }
        if let Ok((length, from)) = socket.recv_from(&mut buffer)
            && from == server
        {
            client.receive(Instant::now(), &buffer[..length], &mut out);
        }
        if is_open && !has_asked {
            let mut out = |event: Event<'_>| {
                if let Event::Send { to, datagram } = event {
                    socket.send_to(datagram, to).unwrap();
                }
            };
            client.send(Instant::now(), b"question of the client\n", &mut out).unwrap();
            has_asked = true;
            openssl.wait_for("question of the client");
            openssl.type_line("answer of openssl");
        }
        if answer == b"answer of openssl\n" {
            return;
        }
    }
    panic!("no answer, but {answer:?}");
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn s_server_accepts_sessions_with_a_key_and_with_certificates() {
    let pki = Pki::new();
    pki.issue("server", &PKCS_ECDSA_P256_SHA256, |params| {
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    });
    pki.issue("client", &PKCS_ECDSA_P256_SHA256, |_| {});
    let path = |name| pki.path(name).to_str().unwrap().to_owned();
    let (ca, certificate, own) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let key = key();
    let with_key = [
        "-nocert",
        "-psk_identity",
        IDENTITY,
        "-psk",
        &key,
        "-cipher",
        "PSK-AES128-CCM8:@SECLEVEL=0",
    ];
    let with_certificate = [
        "-cipher",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "-CAfile",
        &ca,
        "-cert",
        &certificate,
        "-key",
        &own,
        "-Verify",
        "1",
        "-verify_return_error",
    ];
    let authority = || Authority::load(&pki.path("ca.pem"), SystemTime::now).unwrap();
    let mutual = || {
        let (pem, secret) = (pki.path("client.pem"), pki.path("client.key"));
        let certificates = Certificates::load(&pem, &secret, authority()).unwrap();
        ClientConfig::certificates(certificates, "127.0.0.1").unwrap()
    };
    let cases = [(&with_key[..], psk_client(DEVICE)), (&with_certificate[..], mutual())];
    for (options, config) in cases {
        let port = free_port();
        let accept = port.to_string();
        let common = ["s_server", "-dtls1_2", "-listen", "-accept", &accept];
        let mut server = Openssl::start(&[&common[..], options].concat());
        server.wait_for("ACCEPT");
        ask(config, ([127, 0, 0, 1], port).into(), &mut server);
    }
}

/// The clients of libcoap with OpenSSL and with GnuTLS.
const LIBCOAP: [&str; 2] = ["coap-client-openssl", "coap-client-gnutls"];

#[test]
fn the_clients_of_libcoap_open_sessions_with_a_key() {
    const KEY: &[u8; 32] = b"a pre-shared key of 32 letters!!";
    for program in LIBCOAP {
        let socket = socket();
        let url = format!("coaps://{}/reading", socket.local_addr().unwrap());
        let key = std::str::from_utf8(KEY).unwrap();
        let client = Command::new(program)
            .args(["-B", "5", "-u", IDENTITY, "-k", key, &url])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut client) = client else {
            eprintln!("SKIPPED {program}: install libcoap3-bin");
            continue;
        };
        let config = ServerConfig::new()
            .with_psk(|device| (*device == DEVICE).then(|| zeroize::Zeroizing::new(*KEY)));
        let (identity, request) = serve(config, &socket);
        let _ = client.kill();
        let _ = client.wait();
        assert_eq!(identity, Identity::Device(DEVICE), "{program}");
        // CoAP version 1, confirmable GET.
        assert_eq!((request[0] >> 4, request[1]), (4, 1), "{program}");
    }
}
