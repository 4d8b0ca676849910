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

/// Sends a ClientHello from a new address in each step. With `goes_on`, returns the cookies of earlier
/// addresses, and never continues the handshakes.
fn hellos(to: SocketAddr, hello: Vec<u8>, goes_on: bool) -> Flood {
    let mut waiting: VecDeque<UdpSocket> = VecDeque::new();
    Flood::start(move |number| {
        if !goes_on {
            return send_from(forged(number), to, &hello);
        }
        let socket = UdpSocket::bind((forged(number), 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.send_to(&hello, to);
        waiting.push_back(socket);
        if waiting.len() > 100
            && let Some(socket) = waiting.pop_front()
        {
            let mut request = [0; 256];
            if let Ok((length, _)) = socket.recv_from(&mut request) {
                let _ = socket.send_to(&with_cookie(&hello, &request[..length]), to);
            }
        }
    })
}

#[tokio::test]
async fn a_flood_of_client_hellos_delays_neither_sessions_nor_handshakes() {
    let _alone = ALONE.lock().await;
    let pki = Pki::new();
    // Each half-open handshake keeps its place for a second, so the limit is also one on new ones.
    let limits = dtls::Limits { handshakes: 200, ..dtls::Limits::default() };
    let (socket, address, _) = serve(server(pki.config(), limits), Limits::default());
    let certificate = hello_of(mutual(pki.client(|_| {})));
    for (name, hello, goes_on) in [
        ("ClientHellos without a cookie", client_hello(), false),
        ("ClientHellos with a cookie, for a key", client_hello(), true),
        ("ClientHellos with a cookie, for a certificate", certificate, true),
    ] {
        let client = connect(address, Some(psk_client(DEVICE)));
        get(&client).await;
        let flood = hellos(address, hello, goes_on);
        let session = flood.slowdown(&format!("{name}: a session"), || get(&client)).await;
        let handshake = || async { get(&connect(address, Some(psk_client(DEVICE)))).await };
        let handshake = flood.slowdown(&format!("{name}: a handshake"), handshake).await;
        drop(flood);
        let now = socket.handle().counters();
        println!("{name}: {now:?}");
        assert!(session < 2.0 && handshake < 2.0, "{name}: {session:.2} and {handshake:.2}");
        assert!(now.handshakes <= 200 && now.sessions <= 8, "{name}: {now:?}");
        assert!(now.dtls.unverified > 300, "{name}: {now:?}");
        assert_eq!(goes_on, now.dtls.evicted + now.dtls.postponed > 0, "{name}: {now:?}");
    }
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
