//! Tests of the time server: it answers each challenge with a statement that opens at the mote, and
//! signs at most two statements a second for a device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use moteseal_client::time_server::{TimeServer, time_topic};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_core::signed_time::{TimeChallenge, TimeSigner, TimeStatement};
use moteseal_net::link::Up;

const GROUP: GroupId = GroupId([0xab; 8]);

fn up(device: u8, frame: &[u8]) -> Up {
    Up::new([device; 8], Bytes::copy_from_slice(frame))
}

#[test]
fn answers_challenges_and_nothing_else_and_at_most_two_a_second_for_a_device() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(answers());
}

async fn answers() {
    let signer = SecretKey::from_seed(Algorithm::Ed25519, &[4; 32]).unwrap();
    let clock = AtomicU64::new(1000);
    let unix_ms = || clock.load(Ordering::Relaxed);
    let mut server = TimeServer::new(GROUP, TimeSigner::Querier, &signer, &unix_ms);
    let opened = |device: u8, challenge: [u8; 16], statement: &[u8]| {
        let to = (GROUP, DeviceId([device; 8]));
        let key = signer.public();
        TimeStatement::open(statement, to, TimeChallenge(challenge), |role| {
            (role == TimeSigner::Querier).then_some(&key)
        })
        .unwrap()
        .unix_ms
    };
    for frame in [&[][..], &[1; 8], &[1; 15], &[1; 17], &[1; 1400]] {
        assert_eq!(server.answer(&up(1, frame)).unwrap(), None);
    }
    let statement = server.answer(&up(1, &[5; 16])).unwrap().unwrap();
    assert_eq!(opened(1, [5; 16], &statement), 1000);
    // A device that floods does not keep others from their answers.
    for _ in 0..10 {
        assert_eq!(server.answer(&up(1, &[6; 16])).unwrap(), None);
    }
    let statement = server.answer(&up(2, &[6; 16])).unwrap().unwrap();
    assert_eq!(opened(2, [6; 16], &statement), 1000);
    tokio::time::advance(Duration::from_millis(500)).await;
    clock.store(1500, Ordering::Relaxed);
    let statement = server.answer(&up(1, &[7; 16])).unwrap().unwrap();
    assert_eq!(opened(1, [7; 16], &statement), 1500);
    assert_eq!(time_topic(GROUP), "abababababababab-time");
}
