//! Loss, repetition and reordering.

use std::time::Duration;

use moteseal_net::dtls::{DtlsError, Identity, Limits};

use super::certificates::{Pki, mutual};
use super::world::{
    DEVICE, Faults, Seen, Way, World, data, device_address, psk_client, psk_config,
};

/// The time within which a handshake either completes or fails.
const BOUND: Duration = Duration::from_secs(45);

#[test]
fn the_loss_of_any_one_datagram_of_the_handshake_delays_it_by_one_timeout() {
    for lost in 0..6 {
        let mut world = World::new(psk_config(), Limits::default());
        world.lost = vec![lost];
        let device = world.add(psk_client(DEVICE));
        world.run_for(Duration::from_millis(1500));
        let opened = [Seen::Opened(Identity::Device(DEVICE))];
        assert_eq!(world.devices[device].seen, opened, "datagram {lost}");
        assert_eq!(world.of(device), opened, "datagram {lost}");
        world.send_up(device, b"up");
        world.send_down(device, b"down");
        world.settle();
        assert_eq!(data(&world.of(device)), [b"up"]);
        assert_eq!(data(&world.devices[device].seen), [b"down"]);
    }
}

#[test]
fn a_handshake_without_answers_ends_with_a_timeout_on_both_sides() {
    let mut world = World::new(psk_config(), Limits::default());
    // Everything after the server's first long flight is lost.
    world.lost = (3..1000).collect();
    let device = world.add(psk_client(DEVICE));
    world.run_for(BOUND);
    assert_eq!(world.devices[device].seen, [Seen::Refused(DtlsError::Timeout)]);
    assert_eq!(world.of(device), [Seen::Refused(DtlsError::Timeout)]);
    assert_eq!((world.server.handshakes(), world.server.next_timeout()), (0, None));
    assert!(world.sent.len() < 25, "{} datagrams", world.sent.len());
}

#[test]
fn a_thousand_lossy_handshakes_complete_and_no_plaintext_arrives_twice() {
    let mut retries = 0;
    let pki = Pki::new();
    for seed in 0..1000 {
        let has_certificate = seed % 10 == 0;
        let faults = Faults { loss: seed % 31, duplication: seed % 29, reordering: seed % 37 };
        let config = if has_certificate { pki.config() } else { psk_config() };
        let mut world = World::new(config, Limits::default()).with_faults(faults, seed);
        let device = world.add(if has_certificate {
            mutual(pki.client(|_| {}))
        } else {
            psk_client(DEVICE)
        });
        let start = world.now;
        while world.devices[device].client.session().is_none() {
            world.run_for(Duration::from_secs(1));
            let seen = &world.devices[device].seen;
            if let Some(Seen::Refused(why)) = seen.last() {
                assert_eq!(*why, DtlsError::Timeout, "seed {seed}");
                retries += 1;
                world.devices[device].seen.clear();
                world.at_client(device, |client, now, out| client.connect(now, out));
            }
            assert!(world.now - start < 5 * BOUND, "seed {seed}: no session");
        }
        let to = device_address(device);
        for number in 0..10 {
            world.send_up(device, &[b'u', number]);
            let sent =
                world.at_server(|server, now, out| server.send(now, to, &[b'd', number], out));
            assert_eq!(sent, Ok(()), "seed {seed}");
            world.run_for(Duration::from_millis(100));
        }
        world.run_for(Duration::from_secs(2));
        for (kind, seen) in [(b'u', world.of(device)), (b'd', world.devices[device].seen.clone())] {
            let mut numbers: Vec<u8> = data(&seen).iter().map(|text| text[1]).collect();
            assert!(data(&seen).iter().all(|text| text[0] == kind), "seed {seed}");
            assert!(faults.loss > 0 || numbers.len() == 10, "seed {seed}: {numbers:?}");
            numbers.sort_unstable();
            let count = numbers.len();
            numbers.dedup();
            assert_eq!(numbers.len(), count, "seed {seed}: repeated");
        }
    }
    assert!(retries < 50, "{retries} handshakes of 1,000 took longer than their limit");
}

#[test]
fn replayed_datagrams_of_a_whole_session_change_nothing() {
    let mut world = World::new(psk_config(), Limits::default());
    let device = world.open(psk_client(DEVICE));
    for text in [b"one", b"two"] {
        world.send_up(device, text);
        world.send_down(device, text);
    }
    world.settle();
    let (from, seen) = (device_address(device), world.of(device));
    let at_device = world.devices[device].seen.clone();
    for (way, datagram) in world.sent.clone() {
        match way {
            Way::Up => {
                world.at_server(|server, now, out| server.receive(now, from, &datagram, out));
            }
            Way::Down => {
                world.at_client(device, |client, now, out| client.receive(now, &datagram, out));
            }
        }
    }
    world.run_for(Duration::from_secs(60));
    assert_eq!(data(&world.of(device)), data(&seen));
    assert_eq!(world.devices[device].seen, at_device);
    assert_eq!((world.server.sessions(), world.server.handshakes()), (1, 0));
    world.send_up(device, b"three");
    world.settle();
    assert_eq!(data(&world.of(device)).last(), Some(&&b"three"[..]));
}
