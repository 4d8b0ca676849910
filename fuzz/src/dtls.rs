//! Fuzzes DTLS. The bytes are a datagram from strangers, and a script for a client and a server whose
//! datagrams are changed, lost, repeated and delayed on their way. The server must not answer a
//! stranger with more bytes than it received, and no end may deliver a plaintext that the other end
//! did not send.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use moteseal_core::link::LinkKey;
use moteseal_net::dtls::{Client, ClientConfig, Event, Limits, Psk, Server, ServerConfig};

const SECRET: [u8; 32] = [7; 32];
/// The maximum number of datagrams on their way in one direction.
const QUEUE: usize = 16;

fn server_address() -> SocketAddr {
    ([192, 0, 2, 1], 5684).into()
}

fn device_address() -> SocketAddr {
    ([192, 0, 2, 2], 5684).into()
}

/// Both ends. They are made once for each thread, because this takes longer than most inputs.
struct Ends {
    server: Server,
    client: Client,
    now: Instant,
}

thread_local! {
    static ENDS: RefCell<Ends> = RefCell::new(Ends::new());
}

impl Ends {
    fn new() -> Self {
        let now = Instant::now();
        let config = ServerConfig::new().with_psk(|_| Some(LinkKey::dtls_psk(&SECRET)));
        let limits = Limits { handshakes: 8, handshakes_per_network: 4, ..Limits::default() };
        let psk = Psk::new([1; 8], LinkKey::dtls_psk(&SECRET));
        Self {
            server: Server::new(config, limits, now).unwrap(),
            client: Client::new(ClientConfig::psk(psk), server_address(), now).unwrap(),
            now,
        }
    }
}

/// Sorts the events of one end: its datagrams are sent, and its plaintexts are checked.
fn sort(event: Event<'_>, sent: &mut Vec<Vec<u8>>, plaintext: &[u8]) {
    match event {
        Event::Send { datagram, .. } if sent.len() < QUEUE => sent.push(datagram.to_vec()),
        Event::Data { bytes, .. } => assert_eq!(bytes, plaintext, "a forged plaintext"),
        _ => {}
    }
}

/// Uses the bytes as a datagram from several strangers.
fn as_strangers(ends: &mut Ends, bytes: &[u8]) {
    for stranger in 0..3 {
        let from: SocketAddr = ([198, 51, 100, stranger], 5684).into();
        let mut answered = 0;
        ends.server.receive(ends.now, from, bytes, &mut |event| match event {
            Event::Send { datagram, .. } => answered += datagram.len(),
            Event::Refused { .. } => {}
            other => panic!("{other:?} of a stranger"),
        });
        assert!(answered <= bytes.len(), "{answered} bytes answer {}", bytes.len());
    }
}

/// Uses the bytes as a script: two bytes for each step.
fn as_script(ends: &mut Ends, script: &[u8]) {
    let from = device_address();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    ends.server.close(ends.now, from, &mut |_| {});
    ends.client.connect(ends.now, &mut |event| sort(event, &mut up, b"down"));
    for step in script.as_chunks::<2>().0.iter().take(256) {
        let [operation, value] = *step;
        let queue = if operation & 1 == 0 { &mut up } else { &mut down };
        let mut datagram = match operation >> 1 & 7 {
            0..=2 if !queue.is_empty() => queue.remove(0),
            3 if !queue.is_empty() => queue[usize::from(value) % queue.len()].clone(),
            4 if !queue.is_empty() => {
                // Change a byte.
                let mut datagram = queue.remove(0);
                let at = usize::from(value) * 7 % datagram.len();
                datagram[at] ^= operation | 0x80;
                datagram
            }
            5 => {
                ends.now += Duration::from_millis(u64::from(value) * 100);
                ends.server.timeout(ends.now, &mut |event| sort(event, &mut down, b"up"));
                ends.client.timeout(ends.now, &mut |event| sort(event, &mut up, b"down"));
                continue;
            }
            6 => {
                let mut send = |event: Event<'_>| sort(event, &mut up, b"down");
                let _ = ends.client.send(ends.now, b"up", &mut send);
                let mut send = |event: Event<'_>| sort(event, &mut down, b"up");
                let _ = ends.server.send(ends.now, from, b"down", &mut send);
                continue;
            }
            7 if value == 0 => {
                ends.client.connect(ends.now, &mut |event| sort(event, &mut up, b"down"));
                continue;
            }
            _ => continue,
        };
        if operation & 0x40 != 0 {
            datagram.truncate(usize::from(value));
        }
        if operation & 1 == 0 {
            let mut out = |event: Event<'_>| sort(event, &mut down, b"up");
            ends.server.receive(ends.now, from, &datagram, &mut out);
        } else {
            let mut out = |event: Event<'_>| sort(event, &mut up, b"down");
            ends.client.receive(ends.now, &datagram, &mut out);
        }
        assert!(ends.server.handshakes() <= 8 && ends.server.sessions() <= 8);
    }
}

/// Processes the bytes as datagrams and as a script.
pub fn run(bytes: &[u8]) {
    ENDS.with_borrow_mut(|ends| {
        as_strangers(ends, bytes);
        ends.client.receive(ends.now, bytes, &mut |event| sort(event, &mut Vec::new(), b""));
        as_script(ends, bytes);
    });
}

/// Returns a script of a whole session, scripts with faults, and the first datagrams of a client.
pub fn seeds() -> Vec<Vec<u8>> {
    let handshake = [[0, 0], [1, 0]].repeat(3).concat();
    let data = [[12, 0], [0, 0], [1, 0]].concat();
    let fault = |step: [u8; 2]| [&handshake[..4], &step, &handshake, &data].concat();
    let mut seeds = vec![
        [&handshake[..], &data, &data].concat(),
        fault([8, 9]),
        fault([9, 3]),
        fault([6, 0]),
        fault([7, 1]),
        fault([10, 20]),
        fault([14, 0]),
        [fault([0x40, 30]), fault([0x41, 60])].concat(),
    ];
    let mut ends = Ends::new();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    ends.client.timeout(ends.now, &mut |event| sort(event, &mut up, b""));
    ends.server.receive(ends.now, device_address(), &up[0], &mut |event| {
        sort(event, &mut down, b"");
    });
    ends.client.receive(ends.now, &down[0], &mut |event| sort(event, &mut up, b""));
    seeds.extend(up);
    seeds.extend(down);
    seeds
}
