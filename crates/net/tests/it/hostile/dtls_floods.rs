//! Floods of DTLS servers: ClientHellos, replayed and modified records.

use std::collections::VecDeque;

use super::*;
use crate::dtls::certificates::{Pki, mutual};
use crate::dtls::hostile::{client_hello, with_cookie};
use crate::dtls::world::{DEVICE, psk_client, psk_config};

fn server(config: dtls::ServerConfig, limits: dtls::Limits) -> Security {
    Security::Server(Box::new(dtls::Server::new(config, limits, Instant::now()).unwrap()))
}

/// The first ClientHello of a client.
fn hello_of(config: dtls::ClientConfig) -> Vec<u8> {
    let now = Instant::now();
    let server = (Ipv4Addr::LOCALHOST, 5684).into();
    let mut client = dtls::Client::new(config, server, now).unwrap();
    let mut hello = Vec::new();
    client.timeout(now, &mut |event| {
        if let dtls::Event::Send { datagram, .. } = event {
            hello = datagram.to_vec();
        }
    });
    hello
}

/// Sends a ClientHello in each step, from the address with the number that `from` returns.
fn hellos(to: SocketAddr, hello: Vec<u8>, from: fn(u64) -> u64) -> Flood {
    Flood::start(move |number| send_from(forged(from(number)), to, &hello))
}

/// Like [`hellos`], but the attacker receives the cookies and sends them back. It does not continue the
/// handshakes.
fn hellos_with_cookies(rate: u64, to: SocketAddr, hello: Vec<u8>, from: fn(u64) -> u64) -> Flood {
    let mut waiting: VecDeque<UdpSocket> = VecDeque::new();
    Flood::at(rate, move |number| {
        let socket = UdpSocket::bind((forged(from(number)), 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.send_to(&hello, to);
        waiting.push_back(socket);
        if waiting.len() > 20
            && let Some(socket) = waiting.pop_front()
        {
            let mut request = [0; 256];
            if let Ok((length, _)) = socket.recv_from(&mut request) {
                let _ = socket.send_to(&with_cookie(&hello, &request[..length]), to);
            }
        }
    })
}

/// Each datagram comes from another address.
const MANY: fn(u64) -> u64 = |number| number;
/// Three addresses send from many ports.
const THREE: fn(u64) -> u64 = |number| number % 3;

#[tokio::test]
async fn a_flood_of_client_hellos_delays_neither_sessions_nor_handshakes() {
    let _alone = ALONE.lock().await;
    let pki = Pki::new();
    let limits = dtls::Limits { handshakes: 300, handshakes_per_network: 50, ..<_>::default() };
    let (socket, address, _) = serve(server(pki.config(), limits), Limits::default());
    let certificate = hello_of(mutual(pki.client(|_| {})));
    let client = connect(address, Some(psk_client(DEVICE)));
    get(&client).await;
    let handshake = || async { get(&connect(address, Some(psk_client(DEVICE)))).await };
    let with_cookies = |rate, hello: &[u8], from| {
        let hello = hello.to_vec();
        move || hellos_with_cookies(rate, address, hello.clone(), from)
    };
    let (hello, slow) = (&client_hello(), RATE / 10);
    // Real hosts open more handshakes from thousands of addresses than the server accepts: then
    // their clients and others must repeat the first message of a handshake, and sessions continue.
    let floods: [(&str, bool, &dyn Fn() -> Flood); 6] = [
        ("without a cookie", true, &|| hellos(address, hello.clone(), MANY)),
        ("with a cookie, for a key, of three addresses", true, &with_cookies(RATE, hello, THREE)),
        (
            "with a cookie, for a certificate, of three addresses",
            true,
            &with_cookies(RATE, &certificate, THREE),
        ),
        ("with a cookie, for a key", true, &with_cookies(slow, hello, MANY)),
        ("with a cookie, for a certificate", true, &with_cookies(slow, &certificate, MANY)),
        ("with a cookie, many", false, &with_cookies(RATE, hello, MANY)),
    ];
    for (name, serves_all, flood) in floods {
        let flood = flood();
        let slowdown = flood.slowdown(&format!("{name}: a session"), || get(&client)).await;
        assert!(slowdown < 2.0, "{name}: a session takes {slowdown:.2} times as long");
        if serves_all {
            let slowdown = flood.slowdown(&format!("{name}: a handshake"), handshake).await;
            assert!(slowdown < 2.0, "{name}: a handshake takes {slowdown:.2} times as long");
        }
        drop(flood);
        let now = socket.handle().counters();
        println!("{name}: {now:?}");
        assert!(now.handshakes <= 300 && now.sessions <= 8, "{name}: {now:?}");
        assert!(now.dtls.unverified > 40, "{name}: {now:?}");
    }
    let now = socket.handle().counters().dtls;
    assert!(now.evicted > 0 && now.postponed > 300, "{now:?}");
}

/// Passes datagrams between a client and a server, and keeps those of the client.
struct Path {
    address: SocketAddr,
    /// The socket whose address the server sees.
    upper: Arc<UdpSocket>,
    recorded: Arc<std::sync::Mutex<Vec<Vec<u8>>>>,
}

impl Path {
    async fn open(server: SocketAddr) -> Self {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (lower, upper) = (bind(), bind());
        for socket in [&lower, &upper] {
            socket.set_nonblocking(true).unwrap();
        }
        let upper = Arc::new(upper);
        let up = tokio::net::UdpSocket::from_std(upper.try_clone().unwrap()).unwrap();
        let address = lower.local_addr().unwrap();
        let down = tokio::net::UdpSocket::from_std(lower).unwrap();
        let recorded = Arc::<std::sync::Mutex<Vec<Vec<u8>>>>::default();
        let record = Arc::clone(&recorded);
        tokio::spawn(async move {
            let (mut client, mut of_client, mut of_server) = (None, [0; 2048], [0; 2048]);
            loop {
                tokio::select! {
                    Ok((length, from)) = down.recv_from(&mut of_client) => {
                        client = Some(from);
                        let datagram = &of_client[..length];
                        record.lock().unwrap().push(datagram.to_vec());
                        let _ = up.send_to(datagram, server).await;
                    }
                    Ok((length, _)) = up.recv_from(&mut of_server) => {
                        let Some(client) = client else { continue };
                        let _ = down.send_to(&of_server[..length], client).await;
                    }
                }
            }
        });
        Self { address, upper, recorded }
    }
}

#[tokio::test]
async fn replayed_and_modified_records_have_no_effect_and_delay_nobody() {
    let _alone = ALONE.lock().await;
    let security = server(psk_config(), dtls::Limits::default());
    let (socket, address, served) = serve(security, Limits::default());
    let path = Path::open(address).await;
    let client = connect(path.address, Some(psk_client(DEVICE)));
    for _ in 0..20 {
        get(&client).await;
    }
    let recorded = path.recorded.lock().unwrap().clone();
    assert!(recorded.len() > 20);
    let before = served.load(Ordering::Relaxed);
    // The latest record with the sequence number and the epoch of a record to come, and an old epoch.
    let altered = |number: u64| {
        let mut datagram = recorded[number as usize % recorded.len()].clone();
        let at = number as usize * 7 % datagram.len();
        datagram[at] ^= 1 << (number % 8);
        datagram
    };
    let altered: Vec<Vec<u8>> = (0..5000).map(altered).collect();
    for (name, datagrams, is_of_client) in [
        ("the whole session, replayed", recorded.clone(), true),
        ("the whole session, from other addresses", recorded, false),
        ("records with a modified bit", altered, true),
    ] {
        let upper = Arc::clone(&path.upper);
        let requests = Arc::<AtomicU64>::default();
        let flood = Flood::start(move |number| {
            let datagram = &datagrams[number as usize % datagrams.len()];
            if is_of_client {
                let _ = upper.send_to(datagram, address);
            } else {
                send_from(forged(number), address, datagram);
            }
        });
        let counted = Arc::clone(&requests);
        let request = || async {
            get(&client).await;
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let slowdown = flood.slowdown(name, request).await;
        drop(flood);
        assert!(slowdown < 2.0, "{name}: {slowdown:.2}");
        let (now, of_client) = (socket.handle().counters(), requests.load(Ordering::Relaxed));
        println!("{name}: {now:?}");
        assert_eq!((now.sessions, now.dtls.evicted), (1, 0), "{name}");
        assert!(now.handshakes <= 1, "{name}: {now:?}");
        served.fetch_sub(of_client, Ordering::Relaxed);
        assert_eq!(served.load(Ordering::Relaxed), before, "{name}: a request was served twice");
    }
}
