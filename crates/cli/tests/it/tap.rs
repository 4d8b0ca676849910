//! A forwarder of datagrams that records what it forwards, as a file for tshark. It needs no privilege
//! to capture packets.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The address of all clients in the capture; their ports differ.
const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [192, 0, 2, 2];
/// Datagrams without a link layer (`LINKTYPE_RAW`).
const RAW_IP: u32 = 101;
/// How often the threads check whether to end.
const PERIOD: Duration = Duration::from_millis(50);

/// A datagram.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    at: SystemTime,
    client: u16,
    /// Whether the server sent the datagram.
    is_down: bool,
    pub(crate) bytes: Vec<u8>,
}

/// A forwarder between clients and a server on this host.
pub(crate) struct Tap {
    scheme: &'static str,
    address: SocketAddr,
    packets: Arc<Mutex<Vec<Packet>>>,
    ended: Arc<AtomicBool>,
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn bound() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PERIOD)).unwrap();
    socket
}

/// Receives datagrams until the tap is dropped.
fn each(socket: &UdpSocket, ended: &AtomicBool, mut take: impl FnMut(&[u8], SocketAddr)) {
    let mut buffer = [0; 1 << 16];
    while !ended.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => take(&buffer[..length], from),
            // A rejected datagram is reported as an error of the socket that sent it.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
                "{error}"
            ),
        }
    }
}

impl Tap {
    /// Starts to forward to a server, such as `coaps://127.0.0.1:5684`, and back.
    pub(crate) fn new(server: &str) -> Self {
        let (scheme, server) = server.split_once("://").unwrap();
        let scheme = if scheme == "coaps" { "coaps" } else { "coap" };
        let server: SocketAddr = server.split('/').next().unwrap().parse().unwrap();
        let socket = Arc::new(bound());
        let tap = Self {
            scheme,
            address: socket.local_addr().unwrap(),
            packets: Arc::default(),
            ended: Arc::default(),
        };
        let (packets, ended) = (Arc::clone(&tap.packets), Arc::clone(&tap.ended));
        std::thread::spawn(move || {
            let mut clients = HashMap::new();
            each(&socket, &ended, |bytes, from| {
                let to_server = clients.entry(from).or_insert_with(|| {
                    let to_server = Arc::new(bound());
                    let (back, socket) = (Arc::clone(&to_server), Arc::clone(&socket));
                    let (packets, ended) = (Arc::clone(&packets), Arc::clone(&ended));
                    std::thread::spawn(move || {
                        each(&back, &ended, |bytes, _| {
                            record(&packets, from, true, bytes);
                            let _ = socket.send_to(bytes, from);
                        });
                    });
                    to_server
                });
                record(&packets, from, false, bytes);
                let _ = to_server.send_to(bytes, server);
            });
        });
        tap
    }

    /// Returns the address for clients.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Returns the datagrams so far.
    pub(crate) fn packets(&self) -> Vec<Packet> {
        self.packets.lock().unwrap().clone()
    }

    /// Writes the datagrams so far to a file, in which the server has the default port, and lets tshark
    /// decode them. `option` are options such as the key of DTLS. Returns the values of `fields` for
    /// each datagram.
    pub(crate) fn dissect(
        &self,
        file: &Path,
        option: &[String],
        fields: &[&str],
    ) -> Vec<Vec<String>> {
        let packets = self.packets();
        let port = if self.scheme == "coaps" { 5684 } else { 5683 };
        std::fs::write(file, capture(&packets, port)).unwrap();
        let mut command = Command::new("tshark");
        command.arg("-r").arg(file).args(["-n", "-T", "fields", "-E", "occurrence=a"]);
        command.args(option).args(fields.iter().flat_map(|field| ["-e", field]));
        let output = command.output();
        let output =
            output.unwrap_or_else(|error| panic!("tshark: {error}; run tools/setup.sh test"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect());
        let lines: Vec<Vec<String>> = lines.collect();
        assert_eq!(lines.len(), packets.len(), "tshark prints a line for each datagram");
        lines
    }
}

fn record(packets: &Mutex<Vec<Packet>>, client: SocketAddr, is_down: bool, bytes: &[u8]) {
    let packet =
        Packet { at: SystemTime::now(), client: client.port(), is_down, bytes: bytes.to_vec() };
    packets.lock().unwrap().push(packet);
}

/// Returns a capture in the format of libpcap (draft-ietf-opsawg-pcap), little-endian.
fn capture(packets: &[Packet], port: u16) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0xa1b2_c3d4_u32.to_le_bytes());
    out.extend(2_u16.to_le_bytes());
    out.extend(4_u16.to_le_bytes());
    for field in [0, 0, 1 << 16, RAW_IP] {
        out.extend(field.to_le_bytes());
    }
    for packet in packets {
        let since = packet.at.duration_since(UNIX_EPOCH).unwrap();
        let udp = u16::try_from(8 + packet.bytes.len()).unwrap();
        let length = u32::from(udp) + 20;
        let (seconds, micros) = (u32::try_from(since.as_secs()).unwrap(), since.subsec_micros());
        [seconds, micros, length, length].iter().for_each(|field| out.extend(field.to_le_bytes()));
        // IPv4 (RFC 791): no fragments, a time to live of 64, UDP. The checksums are not set.
        out.extend([0x45, 0]);
        out.extend((udp + 20).to_be_bytes());
        out.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        let (client, server) = ((CLIENT, packet.client), (SERVER, port));
        let (from, to) = if packet.is_down { (server, client) } else { (client, server) };
        out.extend(from.0);
        out.extend(to.0);
        out.extend(from.1.to_be_bytes());
        out.extend(to.1.to_be_bytes());
        out.extend(udp.to_be_bytes());
        out.extend([0, 0]);
        out.extend(&packet.bytes);
    }
    out
}
