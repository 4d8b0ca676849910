//! Hostile clients of `moteseal cloud run` as a process: its log and its file descriptors stay within
//! their limits, and other clients are served.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::scene::Scene;

/// A cloud that a shell has started, with its log in a file.
pub(crate) struct Cloud {
    pub(crate) process: Child,
    pub(crate) address: SocketAddr,
}

impl Cloud {
    /// Starts a cloud after the shell command `prepare`.
    pub(crate) fn start(scene: &Scene, prepare: &str, more: &[&str]) -> Self {
        let group = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
        let run = ["cloud", "run", "--store", "epochs.redb", "--listen", "127.0.0.1:0"];
        let binary = scene.command(&[&run[..], &group, more].concat());
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("{prepare}; exec \"$0\" \"$@\"")]).arg(binary.get_program());
        shell.args(binary.get_args()).current_dir(scene.path("")).stdin(Stdio::null());
        shell.stdout(Stdio::piped()).stderr(File::create(scene.path("log")).unwrap());
        let mut process = shell.env_remove("RUST_LOG").spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        let address = url.trim().strip_prefix("http://").expect("the cloud runs");
        Self { process, address: address.parse().unwrap() }
    }

    /// Opens a connection from the address 127.0.0.`host`.
    pub(crate) fn connect(&self, host: u8) -> TcpStream {
        connect(self.address, host).unwrap()
    }

    /// Asks the cloud to stop, and returns its log.
    pub(crate) fn stop(mut self, scene: &Scene) -> String {
        let kill = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(kill.success() && self.process.wait().unwrap().success());
        fs::read_to_string(scene.path("log")).unwrap()
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Opens a connection from the address 127.0.0.`host`.
pub(crate) fn connect(to: SocketAddr, host: u8) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
    socket.bind(&from.into())?;
    socket.connect(&to.into())?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    Ok(stream)
}

/// Returns the status line of the response to a request for `/healthz`.
fn health(mut stream: TcpStream) -> String {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Finding B4 of the review.
#[test]
fn rejected_requests_with_long_uris_do_not_fill_the_log() {
    let scene = Scene::new();
    scene.write("tokens", "read 4q9mB0xJ2kTqvYfB\n");
    let cloud = Cloud::start(&scene, "true", &["--tokens", "tokens"]);
    let (requests, length) = (200, 60_000);
    let request = format!("GET /v1/devices/{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(length));
    let mut stream = cloud.connect(2);
    for _ in 0..requests {
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"}") {
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).unwrap();
            assert!(read > 0, "{}", String::from_utf8_lossy(&head));
            head.extend_from_slice(&bytes[..read]);
        }
        assert!(head.starts_with(b"HTTP/1.1 404") || head.starts_with(b"HTTP/1.1 401"));
    }
    let mut other = cloud.connect(3);
    other.write_all(b"GET /v1/devices HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let _ = other.read_to_end(&mut Vec::new());
    let log = cloud.stop(&scene);
    assert!(log.len() < 40_000, "{} bytes of log", log.len());
    assert!(log.lines().count() < 60, "{log}");
    assert!(log.contains("path=/v1/devices status=401"), "another address has its own lines");
    let suppressed: u64 = log
        .lines()
        .filter(|line| line.contains("were suppressed") && line.contains("127.0.0.2"))
        .map(|line| {
            let (_, lines) = line.split_once("lines=").unwrap();
            lines.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        })
        .sum();
    let written = log.lines().filter(|line| line.contains(&format!("({} bytes)", length + 12)));
    assert!(suppressed + written.count() as u64 + 20 >= requests, "{suppressed} suppressed: {log}");
}

/// Finding B5 of the review. One address opens more connections than the process may have file
/// descriptors.
#[test]
fn idle_connections_do_not_use_up_the_file_descriptors() {
    let scene = Scene::new();
    let cloud = Cloud::start(&scene, "ulimit -n 256", &[]);
    let idle: Vec<TcpStream> = (0..400).map(|_| cloud.connect(2)).collect();
    for _ in 0..3 {
        assert_eq!(health(cloud.connect(3)), "HTTP/1.1 200 OK");
    }
    let mut rejected = String::new();
    BufReader::new(cloud.connect(2)).read_line(&mut rejected).unwrap();
    assert!(rejected.starts_with("HTTP/1.1 503"), "{rejected}");
    drop(idle);
    let log = cloud.stop(&scene);
    assert!(!log.contains("cannot accept"), "{log}");
    assert!(log.contains("permits fewer connections") && log.contains("wanted=1024"), "{log}");
}

/// Finding B5 of the review.
#[test]
fn the_soft_limit_of_open_files_is_raised() {
    let scene = Scene::new();
    let cloud = Cloud::start(&scene, "ulimit -S -n 64", &[]);
    let idle: Vec<TcpStream> = (0..100).map(|_| cloud.connect(2)).collect();
    assert_eq!(health(cloud.connect(2)), "HTTP/1.1 200 OK");
    drop(idle);
    let log = cloud.stop(&scene);
    assert!(!log.contains("fewer connections") && !log.contains("cannot accept"), "{log}");
}
