//! Floods, forged datagrams and garbage. None of them keeps state, ends a session or delivers data.

use std::net::SocketAddr;
use std::time::Duration;

use moteseal_net::dtls::{Event, Identity, Limits, Server};

use super::world::{DELAY, DEVICE, Seen, Way, World, data, device_address, psk_client, psk_config};

fn world() -> World {
    World::new(psk_config(), Limits::default())
}

/// A ClientHello without a cookie, as a device sends it first.
pub(crate) fn client_hello() -> Vec<u8> {
    let mut world = world();
    let device = world.add(psk_client(DEVICE));
    world.at_client(device, |client, now, out| client.timeout(now, out));
    world.sent.remove(0).1
}

/// The ClientHello with the cookie of a HelloVerifyRequest.
pub(crate) fn with_cookie(hello: &[u8], request: &[u8]) -> Vec<u8> {
    let cookie = &request[25 + 2..];
    let at = 25 + 2 + 32 + 1;
    assert_eq!(hello[at..=at], [0], "the first message has a cookie");
    let mut out = [&hello[..at], cookie, &hello[at + 1..]].concat();
    let record = (out.len() - 13) as u16;
    let message = (out.len() - 25) as u16;
    out[11..13].copy_from_slice(&record.to_be_bytes());
    out[15..17].copy_from_slice(&message.to_be_bytes());
    out[23..25].copy_from_slice(&message.to_be_bytes());
    (out[10], out[18]) = (1, 1);
    out
}

/// The only answer to a datagram.
fn answer(
    server: &mut Server,
    now: std::time::Instant,
    from: SocketAddr,
    datagram: &[u8],
) -> Vec<u8> {
    let mut answers = Vec::new();
    server.receive(now, from, datagram, &mut |event| {
        if let Event::Send { to, datagram } = event {
            assert_eq!(to, from);
            answers.push(datagram.to_vec());
        }
    });
    assert_eq!(answers.len(), 1, "of {datagram:02x?}");
    answers.remove(0)
}

fn stranger(number: u32) -> SocketAddr {
    (std::net::Ipv4Addr::from(0x0a00_0000 + number), 40000).into()
}

#[test]
fn ten_thousand_strangers_without_a_cookie_get_a_shorter_answer_and_leave_no_state() {
    let mut world = world();
    let device = world.open(psk_client(DEVICE));
    let hello = client_hello();
    for number in 0..10_000 {
        let answer = answer(&mut world.server, world.now, stranger(number), &hello);
        assert!(answer.len() <= hello.len());
    }
    assert_eq!((world.server.handshakes(), world.server.sessions()), (0, 1));
    assert_eq!(world.server.counters().unverified, 10_001);
    world.send_up(device, b"served");
    world.settle();
    assert_eq!(data(&world.of(device)), [b"served"]);
}

#[test]
fn the_shortest_client_hello_is_longer_than_its_answer() {
    // The only suite and compression method, and no extensions.
    let body = [&[0xfe, 0xfd][..], &[1; 32], &[0, 0, 0, 2, 0xc0, 0xa8, 1, 0]].concat();
    let length = [0, 0, body.len() as u8];
    let message = [&[1][..], &length, &[0; 5], &length, &body].concat();
    let record = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, message.len() as u8];
    let hello = [&record[..], &message].concat();
    let mut world = world();
    let answer = answer(&mut world.server, world.now, stranger(1), &hello);
    assert!(answer.len() < hello.len(), "{} and {}", answer.len(), hello.len());
}

#[test]
fn a_cookie_is_valid_for_its_address_and_its_client_hello_and_two_minutes() {
    let mut world = world();
    let hello = client_hello();
    let request = answer(&mut world.server, world.now, stranger(1), &hello);
    let with_cookie = with_cookie(&hello, &request);
    let mut changed = with_cookie.clone();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    let mut other_random = with_cookie.clone();
    other_random[30] ^= 1;
    let other_port = SocketAddr::new(stranger(1).ip(), 40001);
    for (from, datagram) in [
        (stranger(2), &with_cookie),
        (other_port, &with_cookie),
        (stranger(1), &changed),
        (stranger(1), &other_random),
    ] {
        let answer = answer(&mut world.server, world.now, from, datagram);
        assert_eq!(answer[13], 3, "not a HelloVerifyRequest");
        assert_eq!(world.server.handshakes(), 0);
    }
    let late = world.now + Duration::from_secs(121);
    assert_eq!(answer(&mut world.server, late, stranger(1), &with_cookie)[13], 3);
    assert_eq!(world.server.handshakes(), 0);
    let request = answer(&mut world.server, late, stranger(1), &hello);
    let soon = late + Duration::from_secs(59);
    let fresh = self::with_cookie(&hello, &request);
    assert_eq!(answer(&mut world.server, soon, stranger(1), &fresh)[13], 2, "not a ServerHello");
    assert_eq!(world.server.handshakes(), 1);
}

#[test]
fn half_open_handshakes_are_bounded_in_total_and_for_each_network() {
    let limits = Limits { handshakes: 100, handshakes_per_network: 10, ..Limits::default() };
    let mut world = World::new(psk_config(), limits);
    let hello = client_hello();
    let start = |world: &mut World, from: SocketAddr| {
        let request = answer(&mut world.server, world.now, from, &hello);
        let hello = with_cookie(&hello, &request);
        world.at_server(|server, now, out| server.receive(now, from, &hello, out));
    };
    for port in 1..=500 {
        start(&mut world, SocketAddr::new([203, 0, 113, 9].into(), port));
    }
    assert_eq!(world.server.handshakes(), 10);
    for host in 0..200u16 {
        let mut address = [0u16; 8];
        (address[0], address[1], address[7]) = (0x2001, 0xdb8, host);
        start(&mut world, (address, 40000).into());
    }
    assert_eq!(world.server.handshakes(), 20, "one IPv6 /64 is one network");
    for number in 0..10_000_u32 {
        start(&mut world, SocketAddr::new(stranger(number % 8).ip(), 1 + (number / 8) as u16));
    }
    assert_eq!(world.server.handshakes(), 100);
    // A device of another network completes its handshake all the same.
    let device = world.open(psk_client(DEVICE));
    world.server.close_device(world.now, DEVICE, &mut |_| {});
    world.devices.clear();
    world.at_server.clear();
    for number in 0..10_000 {
        start(&mut world, stranger(number));
    }
    assert_eq!(world.server.handshakes(), 100);
    assert!(world.server.counters().postponed > 9000, "each one keeps its place for a second");
    world.run_for(Duration::from_secs(1));
    assert_eq!(world.open(psk_client(DEVICE)), device);
    world.run_for(Duration::from_secs(60));
    assert_eq!((world.server.handshakes(), world.server.sessions()), (0, 1));
    assert_eq!(world.of(device), [Seen::Opened(Identity::Device(DEVICE))]);
}

#[test]
fn forged_records_from_a_devices_address_neither_deliver_data_nor_end_the_session() {
    let mut world = world();
    let device = world.open(psk_client(DEVICE));
    let from = device_address(device);
    let record = |content: u8, epoch: u8, sequence: u8, body: &[u8]| {
        let length = (body.len() as u16).to_be_bytes();
        let header = [content, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, sequence];
        [&header[..], &length, body].concat()
    };
    let hello = client_hello();
    let mut forged = vec![
        record(23, 0, 90, b"plaintext data"),
        record(21, 0, 91, &[2, 40]),
        record(21, 0, 92, &[1, 0]),
        record(20, 0, 93, &[1]),
        record(22, 0, 94, &hello[13..]),
        record(
            22,
            0,
            95,
            &[20, 0, 0, 12, 0, 3, 0, 0, 0, 0, 0, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3],
        ),
        record(22, 0, 96, &[1, 0xff, 0xff, 0xff, 0, 9, 0, 0, 0, 0, 0, 1, 1]),
        record(22, 1, 97, &[0; 40]),
        record(23, 1, 98, &[7; 60]),
        record(21, 1, 99, &[7; 18]),
        record(23, 1, 99, &[]),
        record(23, 2, 100, &[7; 60]),
        record(23, 0xff, 100, &[7; 60]),
        record(20, 1, 101, &[1]),
    ];
    forged.push([&forged[0][..], &forged[8], &forged[7]].concat());
    forged.push(vec![23, 0xfe, 0xfd]);
    forged.push(vec![0; 3000]);
    forged.push(Vec::new());
    forged.push(vec![0xff; 65_000]);
    for round in 0..100 {
        for datagram in &forged {
            world.at_server(|server, now, out| server.receive(now, from, datagram, out));
            world.at_client(device, |client, now, out| client.receive(now, datagram, out));
        }
        world.run_for(DELAY * (1 + round % 3));
    }
    world.run_for(Duration::from_secs(90));
    assert_eq!(world.of(device), [Seen::Opened(Identity::Device(DEVICE))]);
    assert_eq!(world.devices[device].seen.len(), 1);
    assert_eq!(world.server.handshakes(), 0);
    world.send_up(device, b"up");
    world.send_down(device, b"down");
    world.settle();
    assert_eq!(data(&world.of(device)), [b"up"]);
    assert_eq!(data(&world.devices[device].seen), [b"down"]);
}

#[test]
fn every_truncation_and_every_changed_byte_of_a_handshake_is_survived() {
    // A recorded handshake.
    let mut recorded = world();
    let device = recorded.open(psk_client(DEVICE));
    recorded.send_up(device, b"data");
    recorded.settle();
    let mut world = world();
    let victim = world.open(psk_client(DEVICE));
    for (way, datagram) in &recorded.sent {
        for at in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 1 << (at % 8);
            for forged in [&datagram[..at], &changed] {
                if *way == Way::Up {
                    let from = device_address(victim);
                    world.at_server(|server, now, out| server.receive(now, from, forged, out));
                }
                world.at_client(victim, |client, now, out| client.receive(now, forged, out));
            }
        }
        world.run_for(Duration::from_secs(1));
    }
    world.run_for(Duration::from_secs(60));
    assert_eq!((world.server.sessions(), world.server.handshakes()), (1, 0));
    world.send_up(victim, b"up");
    world.settle();
    assert_eq!(data(&world.of(victim)), [b"up"]);
}

#[test]
fn a_peer_cannot_make_the_server_keep_more_than_its_queue() {
    // A stranger completes the cookie exchange and then sends fragments that never end.
    let mut world = world();
    let hello = client_hello();
    let from = stranger(1);
    let request = answer(&mut world.server, world.now, from, &hello);
    let hello = with_cookie(&hello, &request);
    world.at_server(|server, now, out| server.receive(now, from, &hello, out));
    assert_eq!(world.server.handshakes(), 1);
    for number in 0..100u16 {
        let fragment = [16, 0xff, 0xff, 0xff, 0, 2, 0, number as u8, 0, 0, 3, 0x84];
        let body = [&fragment[..], &[0; 900]].concat();
        let mut record = vec![22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 1];
        record.push(number as u8);
        record.extend_from_slice(&(body.len() as u16).to_be_bytes());
        record.extend_from_slice(&body);
        world.at_server(|server, now, out| server.receive(now, from, &record, out));
    }
    assert_eq!(world.server.handshakes(), 0, "the handshake ends when the queue is full");
    assert!(matches!(&world.at_server[..], [(_, Seen::Refused(_))]));
}

/// The records of a datagram.
fn split(datagram: &[u8]) -> Vec<Vec<u8>> {
    let (mut records, mut rest) = (Vec::new(), datagram);
    while !rest.is_empty() {
        let (record, after) =
            rest.split_at(13 + usize::from(rest[11]) * 256 + usize::from(rest[12]));
        records.push(record.to_vec());
        rest = after;
    }
    records
}

#[test]
fn a_failed_handshake_does_not_give_its_device_to_another_handshake() {
    let is_key_exchange = |(way, datagram): &(Way, Vec<u8>)| {
        *way == Way::Up && (datagram[0], datagram[13]) == (22, 16)
    };
    let mut recorded = world();
    recorded.open(psk_client(DEVICE));
    let at = recorded.sent.iter().position(is_key_exchange).unwrap();
    // The device sends its key exchange alone.
    let mut world = world();
    world.lost = vec![at];
    let device = world.add(psk_client(DEVICE));
    world.settle();
    let records = split(&world.sent[at].1);
    let from = device_address(device);
    world.at_server(|server, now, out| server.receive(now, from, &records[0], out));
    // From another port, a handshake names another device and fails at its Finished message.
    let other = SocketAddr::new(from.ip(), 40000);
    let hello = client_hello();
    let request = answer(&mut world.server, world.now, other, &hello);
    let hello = with_cookie(&hello, &request);
    world.at_server(|server, now, out| server.receive(now, other, &hello, out));
    let victim = moteseal_core::record::DeviceId(*b"device-2").to_string();
    let mut exchange = records[0][..13 + 12].to_vec();
    exchange.extend_from_slice(&(victim.len() as u16).to_be_bytes());
    exchange.extend_from_slice(victim.as_bytes());
    let length = victim.len() as u8 + 2;
    (exchange[12], exchange[16], exchange[24]) = (length + 12, length, length);
    let change = [20, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 1];
    let finished = [&[22, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40][..], &[7; 40]].concat();
    let forged = [&exchange[..], &change, &finished].concat();
    world.at_server(|server, now, out| server.receive(now, other, &forged, out));
    let refused = Seen::Refused(moteseal_net::dtls::DtlsError::NotAuthentic);
    assert_eq!(world.at_server, [(other, refused)]);
    let rest = records[1..].concat();
    world.at_server(|server, now, out| server.receive(now, from, &rest, out));
    assert_eq!(world.of(device), [Seen::Opened(Identity::Device(DEVICE))]);
}
