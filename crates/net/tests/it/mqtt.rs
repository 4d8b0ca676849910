//! Tests links over a real Mosquitto broker: both versions of MQTT, with and without TLS, with
//! restarts, rejections and floods.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::broker::{Asks, Broker};
use bytes::Bytes;
use moteseal_net::link::{MAX_FRAME, State, until_up};
use moteseal_net::mqtt::{
    Backoff, Identity, Login, MqttChild, MqttChildren, MqttParent, Options, Password, Version,
};
use moteseal_net::{ChildLink, Down, LinkError, ParentLink, Up};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

const A: [u8; 8] = *b"\0\0\0mote\x01";
const B: [u8; 8] = *b"\0\0\0mote\x02";
/// The timeout for steps that must not fail.
const LONG: Duration = Duration::from_secs(20);
const VERSIONS: [Version; 2] = [Version::V3, Version::V5];

fn options(broker: &Broker, version: Version) -> Options {
    let backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_millis(400) };
    Options {
        version,
        backoff,
        ca: Some(broker.path("ca.pem")),
        ..Options::new(broker.tls(), "group")
    }
}

async fn parent(options: &Options) -> MqttParent {
    let parent = MqttParent::new(options, [A, B]).unwrap();
    is_up(parent.state()).await;
    parent
}

async fn device(options: &Options, device: [u8; 8]) -> MqttChild {
    let device = MqttChild::new(options, device).unwrap();
    is_up(device.state()).await;
    device
}

async fn is_up(state: watch::Receiver<State>) {
    match timeout(LONG, until_up(state.clone())).await {
        Ok(up) => up.unwrap(),
        Err(_) => panic!("{:?}", *state.borrow()),
    }
}

fn numbered(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame.try_into().unwrap())
}

async fn up(parent: &mut MqttParent) -> Up {
    timeout(LONG, parent.receive()).await.expect("nothing arrives").unwrap()
}

async fn down(device: &mut MqttChild) -> Down {
    timeout(LONG, device.receive()).await.expect("nothing arrives").unwrap()
}

/// Waits until a link is down. Returns the cause.
async fn why_down(mut state: watch::Receiver<State>) -> LinkError {
    let is_down = |state: &State| matches!(state, State::Down { .. });
    match &*timeout(LONG, state.wait_for(is_down)).await.unwrap().unwrap() {
        State::Down { cause, .. } => cause.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn carries_frames_and_announcements_in_both_versions_over_tcp_and_tls() {
    let broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        for (url, group) in [(broker.tcp(), "tcp"), (broker.tls(), "tls")] {
            let options =
                Options { url, group: format!("{group}{version:?}"), ..options(&broker, version) };
            let (mut parent, mut a, mut b) =
                (parent(&options).await, device(&options, A).await, device(&options, B).await);
            for n in 0..200 {
                a.send(numbered(n)).await.unwrap();
                assert_eq!(up(&mut parent).await, Up::new(A, numbered(n)));
                parent.send(A, numbered(n)).await.unwrap();
                assert_eq!(down(&mut a).await, Down::Frame(numbered(n)));
            }
            let large = Bytes::from(vec![7; MAX_FRAME]);
            b.send(large.clone()).await.unwrap();
            assert_eq!(up(&mut parent).await, Up::new(B, large.clone()));
            parent.announce(large.clone()).await.unwrap();
            assert_eq!(down(&mut a).await, Down::Announcement(large.clone()));
            assert_eq!(down(&mut b).await, Down::Announcement(large));
            assert_eq!(parent.dropped(), 0);
        }
    }
}

#[tokio::test]
async fn a_late_device_receives_the_newest_announcement() {
    let broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        let options = Options { group: format!("{version:?}"), ..options(&broker, version) };
        let (parent, mut early) = (parent(&options).await, device(&options, A).await);
        for n in 0..3 {
            parent.announce(numbered(n)).await.unwrap();
        }
        while down(&mut early).await != Down::Announcement(numbered(2)) {}
        drop(parent);
        assert_eq!(down(&mut device(&options, B).await).await, Down::Announcement(numbered(2)));
    }
}

/// Children of one process are one client of the broker. Each receives its own frames and all
/// announcements, also if it is opened late or again, and the broker's restart interrupts none for long.
#[tokio::test]
async fn children_of_one_process_share_a_connection() {
    const CHILDREN: u64 = 600;
    let mut broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        let options = Options { group: format!("{version:?}"), ..options(&broker, version) };
        let devices: Vec<[u8; 8]> = (1..=CHILDREN).map(u64::to_be_bytes).collect();
        let mut parent = MqttParent::new(&options, devices.clone()).unwrap();
        is_up(parent.state()).await;
        let children = MqttChildren::new(options.clone(), devices.clone()).unwrap();
        assert_eq!(children.open(A).unwrap_err().name(), "BadAddress");
        let mut open: Vec<_> =
            devices[1..].iter().map(|device| children.open(*device).unwrap()).collect();
        is_up(open[0].state()).await;
        for (child, device) in open.iter().zip(&devices[1..]) {
            child.send(Bytes::copy_from_slice(device)).await.unwrap();
        }
        let mut arrived = BTreeSet::new();
        while arrived.len() + 1 < devices.len() {
            let Up { device, frame, .. } = up(&mut parent).await;
            assert_eq!(device[..], frame[..]);
            arrived.insert(device);
        }
        for device in &devices[1..] {
            parent.send(*device, Bytes::copy_from_slice(device)).await.unwrap();
        }
        parent.announce(numbered(7)).await.unwrap();
        for (child, device) in open.iter_mut().zip(&devices[1..]) {
            let messages = [down(child).await, down(child).await];
            assert!(messages.contains(&Down::Announcement(numbered(7))), "{messages:?}");
            assert!(messages.contains(&Down::Frame(Bytes::copy_from_slice(device))));
        }
        // A child that is opened late, and one that is opened again, receive the announcement.
        let mut late = children.open(devices[0]).unwrap();
        assert_eq!(down(&mut late).await, Down::Announcement(numbered(7)));
        let mut again = children.open(devices[1]).unwrap();
        assert_eq!(down(&mut again).await, Down::Announcement(numbered(7)));
        // The end of the first link does not end that of the second.
        drop(open.remove(0));
        parent.send(devices[1], numbered(8)).await.unwrap();
        assert_eq!(down(&mut again).await, Down::Frame(numbered(8)));
        // All of them return after the broker has restarted.
        broker.restart();
        why_down(late.state()).await;
        is_up(late.state()).await;
        is_up(parent.state()).await;
        late.send(numbered(9)).await.unwrap();
        while up(&mut parent).await.frame != numbered(9) {}
        // The last child ends the connection, and another one starts it again.
        drop((open, late, again));
        let child = children.open(devices[2]).unwrap();
        is_up(child.state()).await;
        child.send(numbered(10)).await.unwrap();
        while up(&mut parent).await.frame != numbered(10) {}
    }
}

/// Runs a device that repeats its frames until the parent has acknowledged all of them. The
/// protocol above a link does the same.
async fn deliver(mut device: MqttChild, frames: u32) {
    let mut confirmed = 0;
    while confirmed < frames {
        for n in confirmed..frames.min(confirmed + 200) {
            device.send(numbered(n)).await.unwrap();
        }
        let deadline = Instant::now() + Duration::from_millis(300);
        while let Ok(received) = tokio::time::timeout_at(deadline, device.receive()).await {
            if let Down::Frame(frame) = received.unwrap() {
                confirmed = confirmed.max(number(&frame));
            }
        }
    }
}

#[tokio::test]
async fn nothing_that_is_repeated_is_lost_when_a_broker_is_killed_and_restarted() {
    for version in VERSIONS {
        let mut broker = Broker::start(Asks::Nothing);
        let options = options(&broker, version);
        let parent = parent(&options).await;
        parent.announce(numbered(77)).await.unwrap();
        let frames = 4_000;
        let sending = tokio::spawn(deliver(device(&options, A).await, frames));
        let (mut received, mut next, mut kills) = (BTreeSet::new(), 0, 0);
        while !sending.is_finished() {
            if let Ok(up) = timeout(Duration::from_millis(50), parent.receive()).await {
                received.insert(number(&up.unwrap().frame));
            }
            while received.contains(&next) {
                next += 1;
            }
            if next % 50 == 0 || next == frames {
                parent.send(A, numbered(next)).await.unwrap();
            }
            if next >= 1_000 * (kills + 1) && kills < 3 {
                kills += 1;
                broker.kill();
                assert_eq!(why_down(parent.state()).await.name(), "Unreachable");
                broker.restart();
            }
        }
        sending.await.unwrap();
        assert_eq!((next, kills), (frames, 3), "{version:?}");
        // The broker stores nothing on disk, so the announcement arrives only if the parent
        // published it again.
        assert_eq!(down(&mut device(&options, B).await).await, Down::Announcement(numbered(77)));
    }
}

#[tokio::test]
async fn frames_wait_at_the_broker_while_the_parent_is_away() {
    let broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        let options = Options { group: format!("{version:?}"), ..options(&broker, version) };
        let device = device(&options, A).await;
        drop(parent(&options).await);
        for n in 0..300 {
            device.send(numbered(n)).await.unwrap();
        }
        sleep(Duration::from_millis(500)).await;
        let mut parent = parent(&options).await;
        let received: BTreeSet<u32> = {
            let mut received = BTreeSet::new();
            while received.len() < 300 {
                received.insert(number(&up(&mut parent).await.frame));
            }
            received
        };
        assert_eq!(received, (0..300).collect());
    }
}

#[tokio::test]
async fn waits_for_a_broker_that_does_not_run() {
    let mut broker = Broker::start(Asks::Nothing);
    broker.kill();
    for version in VERSIONS {
        let options = options(&broker, version);
        let (mut parent, device) =
            (MqttParent::new(&options, [A, B]).unwrap(), MqttChild::new(&options, A).unwrap());
        let cause = why_down(parent.state()).await;
        assert_eq!(cause.name(), "Unreachable");
        assert!(
            cause.to_string().contains("connection refused")
                && cause.to_string().contains(&options.url),
            "{cause}"
        );
        parent.send(A, numbered(1)).await.unwrap();
        device.send(numbered(2)).await.unwrap();
        broker.restart();
        is_up(parent.state()).await;
        is_up(device.state()).await;
        device.send(numbered(3)).await.unwrap();
        while number(&up(&mut parent).await.frame) != 3 {}
        broker.kill();
    }
}

/// Finding B9 of the review. Two gateways of one group disconnect each other.
#[tokio::test]
async fn reports_another_program_with_the_same_client_id() {
    let broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        let options = options(&broker, version);
        let parents = [(); 2].map(|()| MqttParent::new(&options, [A, B]).unwrap());
        // Some brokers report with MQTT 5 that another client has connected.
        let names = if version == Version::V5 {
            &["ClientIdTaken", "ClosedSoon"][..]
        } else {
            &["ClosedSoon"]
        };
        let is_named = |state: &State| matches!(state, State::Down { cause, .. } if names.contains(&cause.name()));
        let [mut one, mut other] = parents.each_ref().map(ParentLink::state);
        let named = async {
            tokio::select! {
                state = one.wait_for(is_named) => state.unwrap().clone(),
                state = other.wait_for(is_named) => state.unwrap().clone(),
            }
        };
        let State::Down { cause, .. } = timeout(LONG, named).await.expect("named in time") else {
            panic!("the link is down")
        };
        let text = cause.to_string();
        assert!(text.contains("MQTT client id moteseal-group-hub"), "{text}");
    }
}

/// A broker that restarts repeatedly closes connections without a reason, too.
#[tokio::test]
async fn does_not_report_another_program_if_the_broker_restarts() {
    let mut broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        // The broker is back before the next attempt.
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(2) };
        let parent = parent(&Options { backoff, ..options(&broker, version) }).await;
        for number in 1..5 {
            broker.restart();
            let cause = why_down(parent.state()).await;
            assert_ne!(cause.name(), "ClientIdTaken", "after {number} restarts: {cause}");
            is_up(parent.state()).await;
        }
    }
}

#[tokio::test]
async fn reports_which_side_does_not_trust_the_other() {
    let broker = Broker::start(Asks::Password);
    let asks_certificate = Broker::start(Asks::Certificate);
    for version in VERSIONS {
        let good = options(&broker, version);
        let password = |text: &str| {
            let file = broker.path("password");
            std::fs::write(&file, format!("{text}\n")).unwrap();
            Some(Login { user: "mote".to_owned(), password: Password::read(&file).unwrap() })
        };
        let refused = async |options: &Options, name: &str, part: &str| {
            let parent = MqttParent::new(options, [A, B]).unwrap();
            let error = match timeout(LONG, until_up(parent.state())).await {
                Ok(refused) => refused.unwrap_err(),
                Err(_) => panic!("{:?}", *parent.state().borrow()),
            };
            assert_eq!(error.name(), name, "{error}");
            assert!(error.is_refusal() && error.to_string().contains(part), "{error}");
            assert_eq!(why_down(MqttChild::new(options, A).unwrap().state()).await.name(), name);
        };
        refused(&Options { login: password("open"), ..good.clone() }, "Refused", "not authorized")
            .await;
        refused(&Options { login: None, ..good.clone() }, "Refused", "not authorized").await;
        let wrong_ca = Options {
            ca: Some(broker.path("other.pem")),
            login: password("sesame"),
            ..good.clone()
        };
        refused(&wrong_ca, "NotTrusted", "UnknownIssuer").await;
        let url = good.url.replace("localhost", "127.0.0.1");
        refused(&Options { url, login: password("sesame"), ..good.clone() }, "NotTrusted", "name")
            .await;
        parent(&Options { login: password("sesame"), ..good }).await;

        let good = options(&asks_certificate, version);
        refused(&good, "NotTrusted", "certificate").await;
        let identity = |name: &str| {
            let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
            Some(Identity {
                certificate: asks_certificate.path(&certificate),
                key: asks_certificate.path(&key),
            })
        };
        refused(
            &Options { identity: identity("broker"), ..good.clone() },
            "NotTrusted",
            "certificate",
        )
        .await;
        parent(&Options { identity: identity("mote"), ..good }).await;
    }
}

#[tokio::test]
async fn reports_a_port_without_tls() {
    let broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        let options =
            Options { url: broker.tcp().replace("mqtt:", "mqtts:"), ..options(&broker, version) };
        let cause = why_down(MqttParent::new(&options, [A, B]).unwrap().state()).await;
        assert_eq!(cause.name(), "Unreachable", "{cause}");
    }
}

#[tokio::test]
async fn reports_a_file_that_cannot_be_used_before_anything_is_sent() {
    let broker = Broker::start(Asks::Nothing);
    let name = |options: &Options| MqttParent::new(options, [A, B]).unwrap_err().name();
    let good = options(&broker, Version::V5);
    assert_eq!(name(&Options { ca: Some(broker.path("nothing.pem")), ..good.clone() }), "BadFile");
    assert_eq!(name(&Options { ca: Some(broker.path("broker.key")), ..good.clone() }), "BadFile");
    let mixed = Identity { certificate: broker.path("mote.pem"), key: broker.path("broker.key") };
    assert_eq!(name(&Options { identity: Some(mixed), ..good.clone() }), "BadFile");
    assert_eq!(name(&Options { group: "a/b".to_owned(), ..good }), "BadAddress");
    std::fs::write(broker.path("two"), "one\ntwo\n").unwrap();
    assert_eq!(Password::read(&broker.path("two")).unwrap_err().name(), "BadFile");
}

#[tokio::test]
async fn rejects_a_frame_that_is_too_long_and_ignores_those_of_others() {
    let broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        let options = Options { group: format!("{version:?}"), ..options(&broker, version) };
        let (parent, device) = (parent(&options).await, device(&options, A).await);
        let long = Bytes::from(vec![0; MAX_FRAME + 1]);
        assert_eq!(device.send(long.clone()).await.unwrap_err().name(), "FrameTooLong");
        assert_eq!(parent.send(A, long.clone()).await.unwrap_err().name(), "FrameTooLong");
        assert_eq!(parent.announce(long.clone()).await.unwrap_err().name(), "FrameTooLong");
        // Send a message that is one byte longer than a frame may be, and a message that is too
        // long for the connection.
        let topic = format!("moteseal/1/{version:?}/up/0000006d6f746501");
        broker.publish(&topic, &vec![0; MAX_FRAME + 1]);
        let start = Instant::now();
        while parent.dropped() == 0 && start.elapsed() < LONG {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(parent.dropped(), 1);
        broker.publish(&topic, &vec![0; 200_000]);
        let sending = tokio::spawn(deliver(device, 50));
        let mut received = BTreeSet::new();
        while !sending.is_finished() {
            if let Ok(up) = timeout(Duration::from_millis(50), parent.receive()).await {
                let up = up.unwrap();
                assert_eq!(up.device, A);
                received.insert(number(&up.frame));
                parent.send(A, numbered(u32::try_from(received.len()).unwrap())).await.unwrap();
            }
        }
        sending.await.unwrap();
    }
}

#[tokio::test]
async fn counts_and_drops_messages_on_topics_that_name_no_device() {
    let broker = Broker::start(Asks::Nothing);
    let options = options(&broker, Version::V5);
    let (mut parent, device) = (parent(&options).await, device(&options, A).await);
    for part in ["x", "00000000000000FF", "0000000000000001", "0000000000000001/x"] {
        broker.publish(&format!("moteseal/1/group/up/{part}"), b"?");
    }
    device.send(numbered(1)).await.unwrap();
    assert_eq!(up(&mut parent).await.device, A);
    assert_eq!(parent.dropped(), 3, "the subscription does not match the last topic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flooding_device_does_not_starve_another() {
    let broker = Broker::start(Asks::Nothing);
    for version in VERSIONS {
        let options = Options { group: format!("{version:?}"), ..options(&broker, version) };
        let mut parent = parent(&options).await;
        let (flooding, calm) = (device(&options, A).await, device(&options, B).await);
        let flood = tokio::spawn(async move {
            let frame = Bytes::from(vec![0; 1000]);
            while flooding.send(frame.clone()).await.is_ok() {}
        });
        // The flood has many thousands of frames. The parent receives only 500 frames per second.
        let start = Instant::now();
        let asking = tokio::spawn(async move {
            sleep(Duration::from_secs(2)).await;
            for n in 0..10 {
                calm.send(numbered(n)).await.unwrap();
                sleep(Duration::from_millis(100)).await;
            }
            calm
        });
        let (mut of_flood, mut of_calm) = (0, Vec::new());
        while of_calm.len() < 10 {
            let up = up(&mut parent).await;
            if up.device == A {
                of_flood += 1;
            } else {
                let n = number(&up.frame);
                let sent = start + Duration::from_secs(2) + Duration::from_millis(100) * n;
                of_calm.push(Instant::now() - sent);
            }
            sleep(Duration::from_millis(2)).await;
        }
        flood.abort();
        drop(asking.await.unwrap());
        let mut rest = 0;
        while timeout(Duration::from_millis(100), parent.receive()).await.is_ok() {
            rest += 1;
        }
        // If frames were received in order of arrival, the tenth frame would come after the rest of
        // the flood, at two milliseconds per frame.
        assert!(rest > 2_000, "no flood: {of_flood} frames taken, {rest} waited");
        assert!(
            of_calm.iter().all(|wait| *wait < Duration::from_secs(2)),
            "{version:?}: {of_calm:?}"
        );
    }
}
