//! Our client with the servers of libcoap, `coap-server-notls`, `coap-server-openssl` and
//! `coap-server-gnutls`: the list of resources, transfers in blocks in both directions, and an
//! observed resource; without DTLS, with a pre-shared key, and with certificates.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use moteseal_net::coap::{
    Code, Config, Format, Handle, Request, Response, Security, Socket, To, Transmission,
    socket::NoService,
};
use moteseal_net::dtls::{Authority, Certificates, Client, ClientConfig, Psk};
use moteseal_net::mqtt::Backoff;
use rcgen::{PKCS_ECDSA_P256_SHA256, SanType};
use zeroize::Zeroizing;

use super::certificates::Pki;
use super::world::DEVICE;

const PATIENCE: Duration = Duration::from_secs(20);
/// libcoap's programs take a key as text.
const KEY: &[u8; 32] = b"a pre-shared key of 32 letters!!";
const TLS: [&str; 2] = ["openssl", "gnutls"];

/// A server of libcoap, with DTLS on the port after that without.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn bind(port: u16) -> std::io::Result<UdpSocket> {
    UdpSocket::bind(("127.0.0.1", port))
}

/// Returns whether a program listens on a port. Does not bind it, which would keep the program from it.
fn is_bound(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/udp").unwrap();
    let ending = format!(":{port:04X}");
    sockets
        .lines()
        .any(|line| line.split_whitespace().nth(1).is_some_and(|of| of.ends_with(&ending)))
}

impl Server {
    /// Starts a server. The address is that of DTLS unless the server has none.
    fn start(program: &str, arguments: &[&str]) -> Self {
        let is_secure = program != "notls";
        let program = format!("coap-server-{program}");
        let port = loop {
            let port = bind(0).unwrap().local_addr().unwrap().port();
            if port < u16::MAX && bind(port).is_ok() && bind(port + 1).is_ok() {
                break port;
            }
        };
        // The server may create ten resources.
        let common = ["-A", "127.0.0.1", "-d", "10", "-v", "1", "-p", &port.to_string()];
        let process = Command::new(&program)
            .args(common)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}; run tools/setup.sh test"));
        let port = port + u16::from(is_secure);
        let mut server = Self { process, address: ([127, 0, 0, 1], port).into() };
        let start = Instant::now();
        while !is_bound(port) {
            assert_eq!(server.process.try_wait().unwrap(), None, "{program} has ended");
            assert!(start.elapsed() < PATIENCE, "{program} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

fn connect(server: &Server, security: Security) -> Socket {
    let transmission =
        Transmission { ack_timeout: Duration::from_millis(500), ..Transmission::default() };
    let config = Config { transmission, ..Config::default() };
    let no_service = |_: &Handle| Box::new(NoService) as _;
    Socket::connect(server.address, security, Backoff::default(), config, no_service).unwrap()
}

fn secure(server: &Server, config: ClientConfig) -> Security {
    Security::Client(Box::new(Client::new(config, server.address, Instant::now()).unwrap()))
}

async fn ask(handle: &Handle, request: Request) -> Response {
    let path = request.path.clone();
    let response = tokio::time::timeout(PATIENCE, handle.request(To::Server, request, PATIENCE));
    response.await.expect("the response takes too long").unwrap_or_else(|error| {
        panic!("{path}: {error}");
    })
}

fn get(path: &str) -> Request {
    Request::new(Code::GET, path)
}

/// Uses all that the server has.
async fn every_kind_of_request(socket: &Socket) {
    let handle = socket.handle();
    let links = ask(handle, get("/.well-known/core")).await;
    assert_eq!((links.code, links.format), (Code::CONTENT, Some(Format::LINKS)));
    let text = String::from_utf8(links.body.to_vec()).unwrap();
    assert!(text.contains("</time>") && text.contains("</example_data>"), "{text}");

    // The server's own resource has more than one block.
    let example = ask(handle, get("/example_data")).await;
    assert_eq!(example.code, Code::CONTENT);
    assert!(example.body.len() > 1024, "{} bytes", example.body.len());

    // One block, blocks of which the last is full, and blocks of which the last is not.
    for length in [0, 1, 1024, 2048, 10_000] {
        let body: Bytes = (0..length).map(|at| (at % 251) as u8).collect();
        for (path, made) in [("/example_data", Code::CHANGED), ("/own", Code::CREATED)] {
            let put = Request::new(Code::PUT, path).with_body(Format::OCTETS, body.clone());
            let code = ask(handle, put).await.code;
            assert!(code == made || code == Code::CHANGED, "{path}: {code}, {length} bytes");
            let response = ask(handle, get(path)).await;
            assert_eq!(response.code, Code::CONTENT);
            assert!(response.body == body, "{path}: {} of {length} bytes", response.body.len());
        }
    }

    let missing = ask(handle, get("/nothing")).await;
    assert_eq!(missing.code, Code::NOT_FOUND);
    let refused = ask(handle, Request::new(Code::POST, "/time")).await;
    assert_eq!(refused.code, Code::METHOD_NOT_ALLOWED);
    // The server acknowledges this request, and responds to it a second later.
    let separate = ask(handle, Request { query: vec!["1".to_owned()], ..get("/async") }).await;
    assert_eq!(separate.code, Code::CONTENT);

    let mut observation = handle.observe(To::Server, get("/time")).await.unwrap();
    let mut versions = Vec::new();
    for _ in 0..3 {
        let version = tokio::time::timeout(PATIENCE, observation.next()).await.unwrap();
        versions.push(version.unwrap().unwrap().body);
    }
    versions.dedup();
    assert_eq!(versions.len(), 3, "{versions:?}");
    drop(observation);
    assert_eq!(ask(handle, get("/time")).await.code, Code::CONTENT);
}

#[tokio::test]
async fn our_client_uses_a_server_of_libcoap_without_dtls() {
    let server = Server::start("notls", &[]);
    every_kind_of_request(&connect(&server, Security::Plain)).await;
}

#[tokio::test]
async fn our_client_uses_servers_of_libcoap_with_a_key() {
    for program in TLS {
        let key = std::str::from_utf8(KEY).unwrap();
        let server = Server::start(program, &["-k", key]);
        let psk = ClientConfig::psk(Psk::new(DEVICE, Zeroizing::new(*KEY)));
        every_kind_of_request(&connect(&server, secure(&server, psk))).await;
    }
}

#[tokio::test]
async fn our_client_uses_servers_of_libcoap_with_certificates() {
    let pki = Pki::new();
    for name in ["server", "client"] {
        pki.issue(name, &PKCS_ECDSA_P256_SHA256, |params| {
            params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        });
    }
    let path = |name| pki.path(name).to_str().unwrap().to_owned();
    let (ca, certificate, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let authority = || Authority::load(&pki.path("ca.pem"), SystemTime::now).unwrap();
    for program in TLS {
        let server = Server::start(program, &["-c", &certificate, "-j", &key, "-C", &ca]);
        let (pem, secret) = (pki.path("client.pem"), pki.path("client.key"));
        let certificates = Certificates::load(&pem, &secret, authority()).unwrap();
        let mutual = ClientConfig::certificates(certificates, "127.0.0.1").unwrap();
        every_kind_of_request(&connect(&server, secure(&server, mutual))).await;
        // A server that asks for no certificate.
        let server = Server::start(program, &["-c", &certificate, "-j", &key, "-C", &ca, "-n"]);
        let anonymous = ClientConfig::anonymous(authority(), "127.0.0.1").unwrap();
        let socket = connect(&server, secure(&server, anonymous));
        assert_eq!(ask(socket.handle(), get("/time")).await.code, Code::CONTENT, "{program}");
    }
}
