//! Handshakes, sessions and their ends.

use std::time::Duration;

use moteseal_core::link::LinkKey;
use moteseal_net::dtls::{
    ClientConfig, DtlsError, Identity, Limits, MAX_PLAINTEXT, Psk, ServerConfig,
};

use super::world::{DEVICE, SECRET, Seen, World, data, device_address, psk_client, psk_config};

fn world() -> World {
    World::new(psk_config(), Limits::default())
}

#[test]
fn a_device_with_its_key_opens_a_session_and_both_sides_send() {
    let mut world = world();
    let device = world.open(psk_client(DEVICE));
    world.send_up(device, b"up");
    world.send_down(device, &[5; MAX_PLAINTEXT]);
    world.settle();
    let opened = Seen::Opened(Identity::Device(DEVICE));
    assert_eq!(world.of(device), [opened.clone(), Seen::Data(b"up".to_vec())]);
    assert_eq!(world.devices[device].seen, [opened, Seen::Data(vec![5; MAX_PLAINTEXT])]);
    assert_eq!(world.server.sessions(), 1);
    assert_eq!(world.server.handshakes(), 0);
}

#[test]
fn a_plaintext_that_does_not_fit_into_a_record_is_refused_and_the_session_continues() {
    let mut world = world();
    let device = world.open(psk_client(DEVICE));
    let long = [0; MAX_PLAINTEXT + 1];
    let refused = DtlsError::PlaintextTooLong { length: long.len() };
    let sent = world.at_client(device, |client, now, out| client.send(now, &long, out));
    assert_eq!(sent, Err(refused.clone()));
    let to = device_address(device);
    let sent = world.at_server(|server, now, out| server.send(now, to, &long, out));
    assert_eq!(sent, Err(refused));
    world.send_up(device, b"");
    world.send_up(device, b"next");
    world.settle();
    assert_eq!(data(&world.of(device)).last(), Some(&&b"next"[..]));
}

#[test]
fn a_plaintext_without_a_session_is_refused() {
    let mut world = world();
    let to = device_address(9);
    let sent = world.at_server(|server, now, out| server.send(now, to, b"x", out));
    assert_eq!(sent, Err(DtlsError::NoSession { peer: to }));
    let device = world.add(psk_client(DEVICE));
    let sent = world.at_client(device, |client, now, out| client.send(now, b"x", out));
    assert!(matches!(sent, Err(DtlsError::NoSession { .. })));
}

#[test]
fn a_wrong_key_and_an_unknown_device_look_the_same_on_the_wire_and_fail_at_once() {
    let wrong = ClientConfig::psk(Psk::new(DEVICE, LinkKey::dtls_psk(&[8; 32])));
    let unknown = ClientConfig::psk(Psk::new(*b"stranger", LinkKey::dtls_psk(&SECRET)));
    let mut traces = Vec::new();
    for config in [wrong, unknown] {
        let mut world = world();
        let device = world.add(config);
        world.settle();
        let refused = [Seen::Refused(DtlsError::NotAuthentic)];
        assert_eq!(world.of(device), refused);
        assert_eq!(world.devices[device].seen, refused);
        assert_eq!((world.server.sessions(), world.server.handshakes()), (0, 0));
        assert_eq!(world.server.counters().refused, 1);
        let lengths: Vec<_> = world.sent.iter().map(|(way, sent)| (*way, sent.len())).collect();
        traces.push(lengths);
    }
    assert_eq!(traces[0], traces[1]);
}

#[test]
fn a_server_of_certificates_only_and_a_device_with_a_key_have_no_common_suite() {
    let mut world = World::new(ServerConfig::new(), Limits::default());
    let device = world.add(psk_client(DEVICE));
    world.settle();
    assert_eq!(world.of(device), [Seen::Refused(DtlsError::NoCommonSuite)]);
    let refused = Seen::Refused(DtlsError::RefusedByPeer { alert: 40 });
    assert_eq!(world.devices[device].seen, [refused]);
}

#[test]
fn a_close_by_either_side_ends_the_session_on_both_sides() {
    for closes_client in [true, false] {
        let mut world = world();
        let device = world.open(psk_client(DEVICE));
        let peer = device_address(device);
        if closes_client {
            world.at_client(device, |client, now, out| client.close(now, out));
        } else {
            world.at_server(|server, now, out| server.close(now, peer, out));
        }
        world.settle();
        let (mut here, mut there) = (world.devices[device].seen.pop(), world.of(device).pop());
        if !closes_client {
            std::mem::swap(&mut here, &mut there);
        }
        assert_eq!(here, Some(Seen::Closed(DtlsError::Closed)));
        assert_eq!(there, Some(Seen::Closed(DtlsError::ClosedByPeer)));
        assert_eq!(world.server.sessions(), 0);
        world.at_client(device, |client, now, out| client.connect(now, out));
        world.settle();
        assert_eq!(world.server.sessions(), 1);
    }
}

#[test]
fn a_device_that_restarts_keeps_its_old_session_until_the_new_handshake_is_complete() {
    let mut world = world();
    let device = world.open(psk_client(DEVICE));
    let peer = device_address(device);
    let (first, _) = world.server.session(peer).unwrap();
    // The server's flights of the new handshake are lost at first.
    world.lost = (world.sent.len()..world.sent.len() + 40).filter(|at| at % 2 == 0).collect();
    let mut old = std::mem::replace(&mut world.devices[device], {
        let client = moteseal_net::dtls::Client::new(
            psk_client(DEVICE),
            super::world::server_address(),
            world.now,
        );
        super::world::Device { client: client.unwrap(), address: peer, seen: Vec::new() }
    });
    world.run_for(Duration::from_millis(30));
    assert_eq!(world.server.session(peer).unwrap().0, first);
    let now = world.now;
    let mut record = Vec::new();
    old.client
        .send(now, b"by the old session", &mut |event| {
            if let moteseal_net::dtls::Event::Send { datagram, .. } = event {
                record = datagram.to_vec();
            }
        })
        .unwrap();
    world.at_server(|server, now, out| server.receive(now, peer, &record, out));
    assert_eq!(data(&world.of(device)), [b"by the old session"]);
    world.lost.clear();
    world.run_for(Duration::from_secs(20));
    let opened = Seen::Opened(Identity::Device(DEVICE));
    let replaced = Seen::Closed(DtlsError::Replaced);
    let seen = world.of(device);
    assert_eq!(seen[seen.len() - 2..], [replaced, opened]);
    assert_ne!(world.server.session(peer).unwrap().0, first);
    assert_eq!(world.server.sessions(), 1);
    world.send_up(device, b"by the new one");
    world.settle();
    assert_eq!(data(&world.of(device)).last(), Some(&&b"by the new one"[..]));
}

#[test]
fn a_session_without_data_ends_after_the_idle_time() {
    let limits = Limits { idle: Duration::from_secs(60), ..Limits::default() };
    let mut world = World::new(psk_config(), limits);
    let device = world.open(psk_client(DEVICE));
    world.run_for(Duration::from_secs(50));
    world.send_up(device, b"still there");
    world.run_for(Duration::from_secs(50));
    assert_eq!(world.server.sessions(), 1);
    world.run_for(Duration::from_secs(20));
    assert_eq!(world.server.sessions(), 0);
    assert_eq!(world.of(device).last(), Some(&Seen::Closed(DtlsError::Idle)));
    let last = world.devices[device].seen.last();
    assert_eq!(last, Some(&Seen::Closed(DtlsError::ClosedByPeer)));
    assert_eq!(world.server.next_timeout(), None);
}

#[test]
fn the_session_that_was_idle_longest_makes_room_for_a_new_one() {
    let limits = Limits { sessions: 3, ..Limits::default() };
    let mut world = World::new(psk_config(), limits);
    for number in 0..3 {
        world.open(psk_client([b"device".as_slice(), &[0, number]].concat().try_into().unwrap()));
    }
    world.send_up(0, b"busy");
    world.settle();
    world.open(psk_client(DEVICE));
    assert_eq!(world.of(1).last(), Some(&Seen::Closed(DtlsError::Evicted)));
    assert_eq!(world.server.sessions(), 3);
    assert_eq!(world.server.counters().evicted, 1);
}

#[test]
fn a_device_that_moves_often_replaces_only_its_own_sessions() {
    let mut world = world();
    let other = world.open(psk_client(*b"device-2"));
    for _ in 0..20 {
        world.open(psk_client(DEVICE));
    }
    assert_eq!(world.server.sessions(), 9);
    assert_eq!(world.of(1).last(), Some(&Seen::Closed(DtlsError::Replaced)));
    assert_eq!(world.of(other).len(), 1);
}

#[test]
fn all_sessions_of_a_removed_device_end_at_once() {
    let mut world = world();
    let other = world.open(psk_client(*b"device-2"));
    let (first, second) = (world.open(psk_client(DEVICE)), world.open(psk_client(DEVICE)));
    world.at_server(|server, now, out| server.close_device(now, DEVICE, out));
    world.settle();
    for device in [first, second] {
        let last = world.devices[device].seen.last();
        assert_eq!(last, Some(&Seen::Closed(DtlsError::ClosedByPeer)));
    }
    assert_eq!(world.server.sessions(), 1);
    assert_eq!(world.of(other).len(), 1);
}

#[test]
fn a_server_that_has_forgotten_its_sessions_ignores_records_and_accepts_a_new_handshake() {
    let mut world = world();
    let device = world.open(psk_client(DEVICE));
    let fresh = World::new(psk_config(), Limits::default());
    world.server = fresh.server;
    world.send_up(device, b"lost");
    world.settle();
    assert_eq!(world.server.counters().stray, 1);
    world.at_client(device, |client, now, out| client.connect(now, out));
    world.settle();
    world.send_up(device, b"arrives");
    world.settle();
    assert_eq!(data(&world.of(device)), [b"arrives"]);
}
