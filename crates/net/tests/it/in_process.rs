//! Tests the guarantees of the link within a process: it loses, repeats, delays and reorders frames
//! exactly as configured, and its memory is bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use moteseal_net::in_memory::{Faults, Network};
use moteseal_net::link::{MAX_FRAME, State, until_up};
use moteseal_net::{ChildLink, Down, ParentLink, Up};
use proptest::prelude::*;
use tokio::time::{Instant, timeout};

const A: [u8; 8] = *b"device a";
const B: [u8; 8] = *b"device b";

fn numbered(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame.try_into().unwrap())
}

/// Runs a future on one thread. The clock is paused and jumps to the next timer.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

/// Receives all frames that still arrive, with the time of each.
async fn rest(parent: &mut impl ParentLink) -> Vec<(Duration, Up)> {
    let start = Instant::now();
    let mut received = Vec::new();
    while let Ok(up) = timeout(Duration::from_secs(60), parent.receive()).await {
        received.push((start.elapsed(), up.unwrap()));
    }
    received
}

/// Returns the frames that a parent receives if two devices send 500 frames each.
fn transcript(seed: u64, faults: Faults) -> Vec<(Duration, [u8; 8], u32)> {
    run(async {
        let network = Network::new(seed, faults);
        let (a, b, mut parent) = (network.child(A), network.child(B), network.parent());
        for n in 0..500 {
            a.send(numbered(n)).await.unwrap();
            b.send(numbered(n)).await.unwrap();
        }
        rest(&mut parent)
            .await
            .into_iter()
            .map(|(at, up)| (at, up.device, number(&up.frame)))
            .collect()
    })
}

#[test]
fn without_faults_every_frame_arrives_once_and_in_order() {
    run(async {
        let network = Network::new(1, Faults::default());
        let (mut device, mut parent) = (network.child(A), network.parent());
        until_up(parent.state()).await.unwrap();
        for n in 0..100 {
            device.send(numbered(n)).await.unwrap();
            parent.send(A, numbered(n)).await.unwrap();
            parent.send(B, numbered(n)).await.unwrap();
        }
        for n in 0..100 {
            assert_eq!(parent.receive().await.unwrap(), Up::new(A, numbered(n)));
            assert_eq!(device.receive().await.unwrap(), Down::Frame(numbered(n)));
        }
        assert!(rest(&mut parent).await.is_empty());
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_seed_repeats_exactly_and_devices_do_not_affect_the_faults_of_others(seed: u64, loss in 0.0..0.5, other in 0u32..50) {
        let faults = Faults { loss, duplication: 0.1, reordering: 0.1, delay: (Duration::ZERO, Duration::from_millis(200)) };
        let first = transcript(seed, faults);
        prop_assert_eq!(&first, &transcript(seed, faults));
        let of_a: Vec<(Duration, u32)> = first.iter().filter(|(_, device, _)| *device == A).map(|(at, _, n)| (*at, *n)).collect();
        let alone: Vec<(Duration, u32)> = run(async {
            let network = Network::new(seed, faults);
            let (a, b, mut parent) = (network.child(A), network.child(B), network.parent());
            for n in 0..500 {
                a.send(numbered(n)).await.unwrap();
                if n < other {
                    b.send(numbered(n)).await.unwrap();
                }
            }
            rest(&mut parent).await.into_iter().filter(|(_, up)| up.device == A).map(|(at, up)| (at, number(&up.frame))).collect()
        });
        prop_assert_eq!(of_a, alone);
    }
}

#[test]
fn faults_occur_as_often_as_configured() {
    let faults = Faults { loss: 0.3, duplication: 0.2, ..Faults::default() };
    let mut copies = BTreeMap::new();
    for seed in 0..20 {
        for (_, device, n) in transcript(seed, faults) {
            *copies.entry((seed, device, n)).or_insert(0u32) += 1;
        }
    }
    let (arrived, twice) = (copies.len(), copies.values().filter(|copies| **copies == 2).count());
    // Of 20,000 frames, about 14,000 arrive, and about 2,800 of these arrive twice. The test
    // accepts deviations of up to four standard deviations (260 and 190 frames).
    assert!((13_740..=14_260).contains(&arrived), "{arrived}");
    assert!((2_610..=2_990).contains(&twice), "{twice}");
    assert!(copies.values().all(|copies| *copies <= 2));
}

#[test]
fn frames_take_the_configured_time_and_may_overtake() {
    let delay = (Duration::from_millis(20), Duration::from_millis(80));
    let received = transcript(7, Faults { delay, ..Faults::default() });
    assert_eq!(received.len(), 1000);
    assert!(
        received
            .iter()
            .all(|(at, _, _)| (delay.0..=delay.1 + Duration::from_millis(1)).contains(at))
    );
    let order: Vec<u32> =
        received.iter().filter(|(_, device, _)| *device == A).map(|(_, _, n)| *n).collect();
    assert!(!order.is_sorted());

    let order: Vec<u32> = transcript(7, Faults { reordering: 0.1, ..Faults::default() })
        .iter()
        .map(|(_, _, n)| *n)
        .collect();
    assert_eq!(order.len(), 1000);
    assert!(!order.is_sorted());
}

#[test]
fn a_late_device_receives_the_newest_announcement_even_on_a_bad_link() {
    run(async {
        let network = Network::new(3, Faults { loss: 1.0, ..Faults::default() });
        let parent = network.parent();
        let mut early = network.child(A);
        for n in 0..3 {
            parent.announce(numbered(n)).await.unwrap();
        }
        assert!(
            timeout(Duration::from_secs(60), early.receive()).await.is_err(),
            "announcements are lost like frames"
        );
        let mut late = network.child(B);
        assert_eq!(late.receive().await.unwrap(), Down::Announcement(numbered(2)));
    });
}

#[test]
fn a_cut_network_reports_it_and_delivers_the_newest_announcement_afterwards() {
    run(async {
        let network = Network::new(3, Faults::default());
        let (mut device, parent) = (network.child(A), network.parent());
        network.cut(true);
        assert!(
            matches!(&*device.state().borrow(), State::Down { cause, .. } if cause.name() == "Unreachable")
        );
        device.send(numbered(1)).await.unwrap();
        parent.announce(numbered(2)).await.unwrap();
        parent.announce(numbered(3)).await.unwrap();
        network.cut(false);
        until_up(device.state()).await.unwrap();
        device.send(numbered(4)).await.unwrap();
        assert_eq!(device.receive().await.unwrap(), Down::Announcement(numbered(3)));
        assert_eq!(parent.receive().await.unwrap().frame, numbered(4));
    });
}

#[test]
fn a_rebooted_device_loses_frames_that_it_had_not_received() {
    run(async {
        let network = Network::new(3, Faults::default());
        let (device, parent) = (network.child(A), network.parent());
        parent.send(A, numbered(1)).await.unwrap();
        drop(device);
        let mut device = network.child(A);
        parent.send(A, numbered(2)).await.unwrap();
        assert_eq!(device.receive().await.unwrap(), Down::Frame(numbered(2)));
    });
}

#[test]
fn rejects_a_frame_above_the_limit() {
    run(async {
        let network = Network::new(3, Faults::default());
        let (device, parent) = (network.child(A), network.parent());
        let (most, more) = (Bytes::from(vec![0; MAX_FRAME]), Bytes::from(vec![0; MAX_FRAME + 1]));
        device.send(most).await.unwrap();
        assert_eq!(device.send(more.clone()).await.unwrap_err().name(), "FrameTooLong");
        assert_eq!(parent.send(A, more.clone()).await.unwrap_err().name(), "FrameTooLong");
        assert_eq!(parent.announce(more).await.unwrap_err().name(), "FrameTooLong");
    });
}

#[test]
fn a_flooding_device_waits_for_room_and_the_frame_of_another_comes_next() {
    run(async {
        let network = Network::new(3, Faults::default());
        let (flooding, calm, parent) = (network.child(A), network.child(B), network.parent());
        let mut sent = 0;
        while timeout(Duration::from_secs(1), flooding.send(numbered(sent))).await.is_ok() {
            sent += 1;
            assert!(sent < 100_000, "the device never had to wait");
        }
        calm.send(numbered(1)).await.unwrap();
        let place = {
            let mut place = 0;
            while parent.receive().await.unwrap().device != B {
                place += 1;
            }
            place
        };
        assert!(place <= 1, "{place} frames of the flood came first");
        timeout(Duration::from_secs(1), flooding.send(numbered(sent))).await.unwrap().unwrap();
        assert_eq!(parent.dropped(), 0);
    });
}
