//! Tests broadcast links over real transports: UDP on the loopback interface, and a Mosquitto
//! broker.

use std::net::UdpSocket;
use std::time::Duration;

use crate::broker::{Asks, Broker};
use bytes::Bytes;
use moteseal_net::broadcast::MAX_DATAGRAM;
use moteseal_net::broadcast::lossy::{Losses, Lossy};
use moteseal_net::mqtt::{Backoff, Login, Options, Password, Version};
use moteseal_net::{Broadcast, BroadcastLink, LinkError};
use tokio::time::{Instant, sleep, timeout};

/// The timeout for steps that must not fail.
const LONG: Duration = Duration::from_secs(20);
/// Long enough for frames in transit to arrive.
const MOMENT: Duration = Duration::from_millis(100);

/// Returns the address of a multicast group on the loopback interface, with a free port.
fn multicast() -> String {
    format!("udp://239.83.7.1:{}?interface=127.0.0.1", free_port())
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn open(url: &str) -> Result<Broadcast, LinkError> {
    Broadcast::open(url, Options::new("", ""))
}

fn numbered(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

async fn received(link: &impl BroadcastLink) -> Bytes {
    timeout(LONG, link.receive()).await.expect("nothing arrives").unwrap()
}

async fn silent(link: &impl BroadcastLink) {
    let received = timeout(MOMENT, link.receive()).await;
    assert!(received.is_err(), "{received:?}");
}

/// Checks that every link receives all frames of the other links, in the order in which each sender
/// sent them, and none of its own frames.
async fn each_receives_all_others(links: [Broadcast; 3]) {
    for (from, link) in links.iter().enumerate() {
        for number in 0..50 {
            link.send(numbered(1000 * u32::try_from(from).unwrap() + number)).await.unwrap();
        }
        let longest = Bytes::from(vec![7; MAX_DATAGRAM]);
        link.send(longest.clone()).await.unwrap();
        for (to, other) in links.iter().enumerate().filter(|(to, _)| *to != from) {
            for number in 0..50 {
                assert_eq!(
                    received(other).await,
                    numbered(1000 * u32::try_from(from).unwrap() + number),
                    "{from} to {to}"
                );
            }
            assert_eq!(received(other).await, longest, "{from} to {to}");
        }
    }
    for link in &links {
        silent(link).await;
        assert_eq!(link.dropped(), 0);
    }
}

#[tokio::test]
async fn multicast_reaches_all_others_of_one_machine() {
    let url = multicast();
    each_receives_all_others([(); 3].map(|()| open(&url).unwrap())).await;
}

#[tokio::test]
async fn broadcast_reaches_all_others_of_one_machine() {
    let url = format!("udp://127.255.255.255:{}?interface=127.0.0.1", free_port());
    each_receives_all_others([(); 3].map(|()| open(&url).unwrap())).await;
}

#[tokio::test]
async fn multicast_of_ipv6_reaches_all_others_of_one_machine() {
    let url = format!("udp://[ff02::83:7]:{}?interface={}", free_port(), an_interface());
    each_receives_all_others([(); 3].map(|()| open(&url).unwrap())).await;
}

/// Returns the name of an interface that is up, has an IPv6 address and supports multicast. The
/// loopback interface cannot be used, because it has no multicast route.
fn an_interface() -> String {
    let addresses = std::fs::read_to_string("/proc/net/if_inet6").unwrap();
    let names = addresses.lines().filter_map(|line| line.split_whitespace().last());
    names.filter(|name| *name != "lo").chain(["lo"]).next().unwrap().to_owned()
}

#[tokio::test]
async fn groups_and_ports_are_separate() {
    let port = free_port();
    let [one, other] = ["239.83.7.1", "239.83.7.2"]
        .map(|group| format!("udp://{group}:{port}?interface=127.0.0.1"));
    let (here, there, next) =
        (open(&one).unwrap(), open(&other).unwrap(), open(&multicast()).unwrap());
    open(&one).unwrap().send(numbered(1)).await.unwrap();
    assert_eq!(received(&here).await, numbered(1));
    silent(&there).await;
    silent(&next).await;
}

#[tokio::test]
async fn rejects_a_frame_that_is_too_long_and_counts_those_of_others() {
    let url = multicast();
    let (link, other) = (open(&url).unwrap(), open(&url).unwrap());
    let refused = link.send(Bytes::from(vec![0; MAX_DATAGRAM + 1])).await.unwrap_err();
    assert_eq!((refused.name(), refused.to_string().contains("12288")), ("FrameTooLong", true));
    let port: u16 = url.split([':', '?']).nth(2).unwrap().parse().unwrap();
    let stranger = socket2::Socket::from(UdpSocket::bind("127.0.0.1:0").unwrap());
    stranger.set_multicast_if_v4(&std::net::Ipv4Addr::LOCALHOST).unwrap();
    UdpSocket::from(stranger).send_to(&vec![0; MAX_DATAGRAM + 1], ("239.83.7.1", port)).unwrap();
    link.send(numbered(2)).await.unwrap();
    assert_eq!(received(&other).await, numbered(2));
    assert_eq!(other.dropped(), 1);
}

#[tokio::test]
async fn drops_and_counts_frames_that_do_not_fit() {
    let url = multicast();
    let (sender, receiver) = (open(&url).unwrap(), open(&url).unwrap());
    let frame = Bytes::from(vec![0; 8192]);
    // Send twice as much as can wait. The pauses let the operating system deliver the frames.
    for number in 0..2048 {
        sender.send(frame.clone()).await.unwrap();
        if number % 16 == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    sleep(MOMENT).await;
    let dropped = receiver.dropped();
    let mut waited = 0;
    while timeout(MOMENT, receiver.receive()).await.is_ok() {
        waited += 1;
    }
    assert!(dropped > 500, "{dropped} dropped, {waited} waited");
    assert!((900..=1024).contains(&waited), "{dropped} dropped, {waited} waited");
}

#[tokio::test]
async fn reports_invalid_addresses() {
    let name = |url: &str| open(url).unwrap_err().name();
    assert_eq!(name("udp://127.0.0.1:5000"), "BadAddress", "the address of one machine");
    for url in [
        "",
        "239.1.2.3:5000",
        "http://239.1.2.3:5000",
        "mqtt://broker.example",
        "mqtt://broker.example/a/b",
    ] {
        assert_eq!(name(url), "BadAddress", "{url}");
    }
    for url in [
        "udp://239.1.2.3:5000?loss=1",
        "udp://239.1.2.3:5000?loss=x",
        "udp://239.1.2.3:5000?loss=0.1&seed=-1",
    ] {
        assert_eq!(name(url), "BadAddress", "{url}");
    }
    assert_eq!(
        name("udp://239.1.2.3:5000?interface=198.51.100.9"),
        "NoSuchInterface",
        "not of this machine"
    );
    let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(name(&format!("udp://239.83.7.1:{port}?interface=127.0.0.1")), "PortInUse");
}

#[tokio::test]
async fn losses_follow_the_seed_and_are_independent_for_each_receiver() {
    let url = multicast();
    let sender = open(&url).unwrap();
    let lossy = |seed: u64| open(&format!("{url}&loss=0.1&seed={seed}")).unwrap();
    let (one, same, other) = (lossy(1), lossy(1), lossy(2));
    let wrapped = Lossy::new(open(&url).unwrap(), Losses::new(1, 0.1));
    for number in 0..2000 {
        sender.send(numbered(number)).await.unwrap();
        if number % 100 == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    async fn all(link: &impl BroadcastLink) -> Vec<Bytes> {
        let mut all = Vec::new();
        while let Ok(frame) = timeout(MOMENT, link.receive()).await {
            all.push(frame.unwrap());
        }
        all
    }
    let (one, same, other, wrapped) =
        (all(&one).await, all(&same).await, all(&other).await, all(&wrapped).await);
    assert!((1740..1860).contains(&one.len()), "{} of 2000 received", one.len());
    assert_eq!(one, same);
    assert_eq!(one, wrapped);
    assert_ne!(one, other);
}

/// Returns the options for a broker. Their address is empty, because the link's address replaces
/// it.
fn access(broker: &Broker, version: Version) -> Options {
    let backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_millis(400) };
    Options { version, backoff, ca: Some(broker.path("ca.pem")), ..Options::new("", "") }
}

async fn at_broker(url: &str, access: &Options) -> Broadcast {
    let link = Broadcast::open(url, access.clone()).unwrap();
    timeout(LONG, link.until_up()).await.unwrap().unwrap();
    link
}

#[tokio::test]
async fn a_topic_reaches_all_others_in_both_versions_over_tcp_and_tls() {
    let broker = Broker::start(Asks::Nothing);
    for version in [Version::V3, Version::V5] {
        let access = access(&broker, version);
        for url in
            [format!("{}/tcp{version:?}", broker.tcp()), format!("{}/tls{version:?}", broker.tls())]
        {
            let links = [
                at_broker(&url, &access).await,
                at_broker(&url, &access).await,
                at_broker(&url, &access).await,
            ];
            each_receives_all_others(links).await;
        }
    }
}

#[tokio::test]
async fn logs_in_to_a_broker_and_reports_a_wrong_password() {
    let broker = Broker::start(Asks::Password);
    std::fs::write(broker.path("right"), "sesame\n").unwrap();
    std::fs::write(broker.path("wrong"), "open\n").unwrap();
    let login = |file: &str| {
        let password = Password::read(&broker.path(file)).unwrap();
        Options {
            login: Some(Login { user: "mote".to_owned(), password }),
            ..access(&broker, Version::V5)
        }
    };
    let url = format!("{}/field", broker.tls());
    let (one, other) =
        (at_broker(&url, &login("right")).await, at_broker(&url, &login("right")).await);
    one.send(numbered(1)).await.unwrap();
    assert_eq!(received(&other).await, numbered(1));
    let refused = Broadcast::open(&url, login("wrong")).unwrap().until_up().await.unwrap_err();
    assert_eq!(refused.name(), "Refused", "{refused}");
}

#[tokio::test]
async fn a_link_reconnects_after_its_broker_was_killed() {
    let mut broker = Broker::start(Asks::Nothing);
    let (url, access) = (format!("{}/field", broker.tcp()), access(&broker, Version::V5));
    let (one, other) = (at_broker(&url, &access).await, at_broker(&url, &access).await);
    broker.kill();
    sleep(MOMENT).await;
    one.send(numbered(1)).await.unwrap();
    broker.restart();
    let start = Instant::now();
    loop {
        one.send(numbered(2)).await.unwrap();
        if let Ok(frame) = timeout(MOMENT, other.receive()).await {
            assert_eq!(frame.unwrap(), numbered(2), "frames that were sent meanwhile are lost");
            break;
        }
        assert!(start.elapsed() < LONG, "the link does not reconnect");
    }
}

#[tokio::test]
async fn drops_frames_under_invalid_names() {
    let broker = Broker::start(Asks::Nothing);
    let link = at_broker(&format!("{}/field", broker.tcp()), &access(&broker, Version::V5)).await;
    for part in ["x", "00000000000000FF", "0000000000000001"] {
        broker.publish(&format!("moteseal/1/field/cast/{part}"), part.as_bytes());
    }
    assert_eq!(received(&link).await, Bytes::from_static(b"0000000000000001"));
    assert_eq!(link.dropped(), 2);
}
