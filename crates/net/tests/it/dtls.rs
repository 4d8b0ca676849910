//! DTLS sessions between the client and the server of this crate, over datagrams in memory.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use moteseal_core::link::LinkKey;
use moteseal_net::dtls::{
    Client, ClientConfig, DtlsError, Event, Identity, Limits, Psk, Server, ServerConfig,
};

const SECRET: [u8; 32] = [7; 32];
const DEVICE: [u8; 8] = *b"device-1";

fn server_address() -> SocketAddr {
    ([192, 0, 2, 1], 5684).into()
}

fn psk_server(limits: Limits, now: Instant) -> Server {
    let config = ServerConfig::new().with_psk(|device| {
        let key = LinkKey::dtls_psk(&SECRET);
        (*device == DEVICE).then_some(key)
    });
    Server::new(config, limits, now).unwrap()
}

fn psk_client(now: Instant) -> Client {
    let psk = Psk::new(DEVICE, LinkKey::dtls_psk(&SECRET));
    Client::new(ClientConfig::psk(psk), server_address(), now).unwrap()
}

#[derive(Debug, PartialEq)]
enum Seen {
    Opened(Identity),
    Data(Vec<u8>),
    Closed(DtlsError),
    Refused(DtlsError),
}

fn sort(event: Event<'_>, datagrams: &mut Vec<Vec<u8>>, seen: &mut Vec<Seen>) {
    match event {
        Event::Send { datagram, .. } => datagrams.push(datagram.to_vec()),
        Event::Opened { identity, .. } => seen.push(Seen::Opened(identity)),
        Event::Data { bytes, .. } => seen.push(Seen::Data(bytes.to_vec())),
        Event::Closed { why, .. } => seen.push(Seen::Closed(why)),
        Event::Refused { why, .. } => seen.push(Seen::Refused(why)),
        _ => {}
    }
}

#[test]
fn a_device_with_its_key_opens_a_session_and_both_sides_send() {
    let now = Instant::now() + Duration::from_secs(1);
    let (mut server, mut client) = (psk_server(Limits::default(), now), psk_client(now));
    let from: SocketAddr = ([192, 0, 2, 2], 1000).into();
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let (mut at_client, mut at_server) = (Vec::new(), Vec::new());
    client.timeout(now, &mut |event| sort(event, &mut up, &mut at_client));
    while !up.is_empty() || !down.is_empty() {
        for datagram in std::mem::take(&mut up) {
            println!("up {}", datagram.len());
            server.receive(now, from, &datagram, &mut |e| sort(e, &mut down, &mut at_server));
        }
        for datagram in std::mem::take(&mut down) {
            println!("down {}", datagram.len());
            client.receive(now, &datagram, &mut |e| sort(e, &mut up, &mut at_client));
        }
    }
    assert_eq!(at_client, [Seen::Opened(Identity::Device(DEVICE))]);
    assert_eq!(at_server, [Seen::Opened(Identity::Device(DEVICE))]);
    client.send(now, b"up", &mut |event| sort(event, &mut up, &mut at_client)).unwrap();
    server.receive(now, from, &up[0], &mut |e| sort(e, &mut down, &mut at_server));
    assert_eq!(at_server[1], Seen::Data(b"up".to_vec()));
    server.send(now, from, b"down", &mut |e| sort(e, &mut down, &mut at_server)).unwrap();
    client.receive(now, &down[0], &mut |e| sort(e, &mut up, &mut at_client));
    assert_eq!(at_client[1], Seen::Data(b"down".to_vec()));
}
