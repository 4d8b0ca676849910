//! Tests the receiver of other programs' messages: what is acknowledged, what is passed on again, and
//! what is dropped; and the publisher of messages that expire.

use std::cell::Cell;
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use moteseal_net::LinkError;
use moteseal_net::link::{MAX_FRAME, State, until_up};
use moteseal_net::mqtt::{Backoff, Due, Message, Options, Publisher, Subscriber, Version};
use tokio::time::{sleep, timeout};

use crate::broker::{Asks, Broker};
use crate::peer::Listener;

/// The timeout for steps that must not fail.
const LONG: Duration = Duration::from_secs(20);
/// How long to wait for something that must not happen.
const SHORT: Duration = Duration::from_millis(150);

fn options(url: String, version: Version) -> Options {
    let backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_millis(100) };
    Options { version, backoff, ..Options::new(url, "group") }
}

fn subscriber(options: &Options, room: u32) -> Subscriber {
    Subscriber::new(options, "tests", vec!["t".to_owned()], room).unwrap()
}

async fn next(subscriber: &mut Subscriber) -> Message {
    timeout(LONG, subscriber.next()).await.expect("nothing arrives").unwrap()
}

async fn nothing(subscriber: &mut Subscriber) {
    assert!(timeout(SHORT, subscriber.next()).await.is_err(), "a message is passed on");
}

#[tokio::test]
async fn a_message_that_the_receiver_has_is_not_passed_on_again_after_a_broken_connection() {
    let broker = Listener::new().await;
    let mut subscriber = subscriber(&options(broker.url(), Version::V3), 1 << 20);
    let mut peer = broker.accept_subscriber(false).await;
    for (id, payload) in [(1, "same"), (2, "same"), (3, "other"), (4, "dropped")] {
        peer.publish(Some(id), false, payload.as_bytes()).await;
    }
    let first = next(&mut subscriber).await;
    next(&mut subscriber).await.received.acknowledge();
    let third = next(&mut subscriber).await;
    let fourth = next(&mut subscriber).await;
    drop(peer);
    let mut state = subscriber.state();
    state.wait_for(|state| matches!(state, State::Down { .. })).await.unwrap();
    // The first is recorded while there is no connection, the third later, the fourth not at all.
    first.received.acknowledge();
    drop(fourth);
    let mut peer = broker.accept_subscriber(true).await;
    for (id, payload) in [(1, "same"), (2, "same"), (3, "other"), (4, "dropped")] {
        peer.publish(Some(id), true, payload.as_bytes()).await;
    }
    peer.acknowledged(1).await;
    peer.acknowledged(2).await;
    let fourth = next(&mut subscriber).await;
    assert_eq!(fourth.payload, "dropped", "only what was not recorded is passed on again");
    nothing(&mut subscriber).await;
    fourth.received.acknowledge();
    third.received.acknowledge();
    peer.acknowledged(3).await;
    peer.acknowledged(4).await;
    // A packet identifier that is used again names another message.
    peer.publish(Some(1), false, b"same").await;
    let again = next(&mut subscriber).await;
    drop(peer);
    state.wait_for(|state| matches!(state, State::Down { .. })).await.unwrap();
    again.received.acknowledge();
    // If the broker has lost the session, so do the identifiers of all messages.
    let mut peer = broker.accept_subscriber(false).await;
    peer.publish(Some(1), true, b"same").await;
    next(&mut subscriber).await.received.acknowledge();
    peer.acknowledged(1).await;
}

#[tokio::test]
async fn messages_without_room_are_dropped_and_counted_or_stay_at_the_broker() {
    let broker = Listener::new().await;
    let mut subscriber = subscriber(&options(broker.url(), Version::V3), 2000);
    let mut peer = broker.accept_subscriber(false).await;
    let long = [b'x'; 1000];
    for _ in 0..3 {
        peer.publish(None, false, &long).await;
    }
    let first = next(&mut subscriber).await;
    nothing(&mut subscriber).await;
    assert_eq!(subscriber.dropped(), 2);
    peer.publish(Some(1), false, &long).await;
    nothing(&mut subscriber).await;
    drop(first);
    next(&mut subscriber).await.received.acknowledge();
    peer.acknowledged(1).await;
    assert_eq!(subscriber.dropped(), 2);
}

#[tokio::test]
async fn a_long_message_is_reported_and_does_not_hold_up_others() {
    let broker = Broker::start(Asks::Nothing);
    let options = options(broker.tcp(), Version::V3);
    let mut subscriber = subscriber(&options, 1 << 20);
    timeout(LONG, until_up(subscriber.state())).await.unwrap().unwrap();
    broker.publish("t", b"before");
    broker.publish("t", &vec![b'x'; 500_000]);
    broker.publish("t", &vec![b'y'; MAX_FRAME]);
    let before = next(&mut subscriber).await;
    let long = next(&mut subscriber).await;
    assert!(long.is_too_long && long.payload.is_empty());
    let longest = next(&mut subscriber).await;
    assert!(!longest.is_too_long && longest.payload.len() == MAX_FRAME);
    assert!(*subscriber.state().borrow() == State::Up, "the connection broke");
    for message in [before, long, longest] {
        message.received.acknowledge();
    }
    subscriber.finish().await;
    broker.until_no_client();
    // All of them are acknowledged: the session has none.
    let mut subscriber = self::subscriber(&options, 1 << 20);
    timeout(LONG, until_up(subscriber.state())).await.unwrap().unwrap();
    nothing(&mut subscriber).await;
}

#[tokio::test]
async fn a_message_counts_as_published_after_its_acknowledgement_and_is_not_sent_after_its_end() {
    let broker = Listener::new().await;
    let mut publisher = Publisher::new(&options(broker.url(), Version::V3), "tests").unwrap();
    let is_over = Cell::new(false);
    let due = || if is_over.get() { Due::Over } else { Due::Seconds(60) };
    let publishing = timeout(LONG, publisher.publish("t", Bytes::from_static(b"on"), due));
    let test = async {
        let mut peer = broker.accept(false).await;
        let (kind, body) = peer.read().await;
        assert!(kind == 0x32 && body.ends_with(b"on"), "{kind} {body:?}");
        // The broker has received the message, but the connection ends before it says so.
        drop(peer);
        let mut peer = broker.accept(false).await;
        let (kind, _) = peer.read().await;
        assert_eq!(kind, 0x32, "the message is sent again as a new one");
        is_over.set(true);
        drop(peer);
        let mut peer = broker.accept(false).await;
        assert!(timeout(SHORT, peer.read()).await.is_err(), "sent after its end");
        peer
    };
    let (published, mut peer) = tokio::join!(publishing, test);
    assert!(matches!(published, Ok(Ok(false))), "{published:?}");
    // The next message is published when the broker has acknowledged it.
    let mut publishing =
        std::pin::pin!(publisher.publish("t", Bytes::from_static(b"off"), || Due::Always));
    let (_, body) = tokio::select! {
        _ = &mut publishing => panic!("not acknowledged"),
        packet = peer.read() => packet,
    };
    assert!(timeout(SHORT, &mut publishing).await.is_err(), "not acknowledged");
    peer.write(&[0x40, 2, body[3], body[4]]).await;
    assert!(timeout(LONG, publishing).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_does_not_keep_a_message_for_an_absent_receiver_beyond_its_end() {
    let broker = Broker::start(Asks::Nothing);
    let port = broker.tcp().rsplit_once(':').unwrap().1.to_owned();
    let receiver = |more: &[&str]| {
        let mut command = Command::new("mosquitto_sub");
        command.args(["-h", "127.0.0.1", "-p", &port, "-V", "5", "-i", "lamp", "-c", "-q", "1"]);
        command.args(["-x", "600", "-t", "t"]).args(more).output().unwrap().stdout
    };
    // It subscribes and leaves. Its session stays.
    receiver(&["-E"]);
    let mut publisher = Publisher::new(&options(broker.tcp(), Version::V5), "tests").unwrap();
    for (payload, due) in [("first", Due::Seconds(1)), ("second", Due::Always)] {
        let payload = Bytes::from_static(payload.as_bytes());
        let published = timeout(LONG, publisher.publish("t", payload, || due)).await;
        assert!(published.unwrap().unwrap());
    }
    sleep(Duration::from_millis(2100)).await;
    assert_eq!(receiver(&["-C", "1", "-W", "20"]), b"second\n");
}

#[tokio::test]
async fn a_topic_with_wildcards_is_refused_and_the_publisher_goes_on() {
    let broker = Broker::start(Asks::Nothing);
    let mut publisher = Publisher::new(&options(broker.tcp(), Version::V5), "tests").unwrap();
    for topic in ["a/+", "#", ""] {
        let published = publisher.publish(topic, Bytes::new(), || Due::Always).await;
        assert!(matches!(published, Err(LinkError::Refused { .. })), "{published:?}");
    }
    let published = publisher.publish("a", Bytes::new(), || Due::Always);
    assert!(timeout(LONG, published).await.unwrap().unwrap());
}
