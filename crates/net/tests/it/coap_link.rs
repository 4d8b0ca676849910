//! Links over CoAP on real sockets, with and without DTLS: frames in both directions, long frames,
//! announcements, members, a parent that restarts, and strangers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_core::link::{LinkKey, MAX_FRAME};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_net::coap::{Address, ChildOptions, CoapChild, CoapParent, Security, Transmission};
use moteseal_net::dtls;
use moteseal_net::link::{State, until_up, until_up_within};
use moteseal_net::mqtt::Backoff;
use moteseal_net::{ChildLink as _, Down, ParentLink as _};

pub(crate) const SECRET: [u8; 32] = [9; 32];
const GROUP: GroupId = GroupId([3; 8]);
pub(crate) const DEVICE: [u8; 8] = *b"device-1";
pub(crate) const OTHER: [u8; 8] = *b"device-2";
const SOON: Duration = Duration::from_secs(20);

pub(crate) fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn server() -> Security {
    let config = dtls::ServerConfig::new().with_psk(|device| {
        let secret = LinkKey::secret_of(&SECRET, GROUP, DeviceId(*device));
        Some(LinkKey::dtls_psk(&secret))
    });
    let server = dtls::Server::new(config, dtls::Limits::default(), Instant::now()).unwrap();
    Security::Server(Box::new(server))
}

pub(crate) fn options(
    address: SocketAddr,
    is_secure: bool,
    of: [u8; 8],
    secret: [u8; 32],
) -> ChildOptions {
    let scheme = if is_secure { "coaps" } else { "coap" };
    let address = Address::parse(&format!("{scheme}://{address}")).unwrap();
    let mut options = ChildOptions::new(address, "field");
    let quick = Duration::from_millis(200);
    options.backoff = Backoff { first: Duration::from_millis(50), longest: quick };
    options.transmission = Transmission { ack_timeout: quick, ..Transmission::default() };
    if is_secure {
        options.credentials = Some(Box::new(move || {
            let secret = LinkKey::secret_of(&secret, GROUP, DeviceId(of));
            Ok(dtls::ClientConfig::psk(dtls::Psk::new(of, LinkKey::dtls_psk(&secret))))
        }));
    }
    options
}

fn parent(is_secure: bool, address: SocketAddr) -> (CoapParent, SocketAddr) {
    let mut parent = CoapParent::new("field", [DEVICE, OTHER]);
    let security = if is_secure { server() } else { Security::Plain };
    let address = parent.listen(address, security).unwrap();
    (parent, address)
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it takes too long")
}

async fn frames_travel(is_secure: bool, listen: SocketAddr) {
    let (parent, address) = parent(is_secure, listen);
    parent.announce(Bytes::from_static(b"round 1")).await.unwrap();
    let mut child = CoapChild::new(options(address, is_secure, DEVICE, SECRET), DEVICE).unwrap();
    within(until_up(child.state())).await.unwrap();
    assert_eq!(within(child.receive()).await.unwrap(), Down::Announcement("round 1".into()));
    for length in [1, 1000, 1024, 1025, 5000, MAX_FRAME] {
        let frame = Bytes::from((0..length).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
        child.send(frame.clone()).await.unwrap();
        let up = within(parent.receive()).await.unwrap();
        assert_eq!((up.device, up.frame.len()), (DEVICE, length));
        assert_eq!(up.frame, frame);
        parent.send(DEVICE, frame.clone()).await.unwrap();
        assert_eq!(within(child.receive()).await.unwrap(), Down::Frame(frame));
    }
    parent.announce(Bytes::from_static(b"round 2")).await.unwrap();
    assert_eq!(within(child.receive()).await.unwrap(), Down::Announcement("round 2".into()));
    // Many more frames than are sent at the same time, in both directions.
    let many = async {
        for number in 0..300_u32 {
            child.send(Bytes::copy_from_slice(&number.to_be_bytes())).await.unwrap();
        }
    };
    let receive = async {
        for number in 0..300_u32 {
            assert_eq!(parent.receive().await.unwrap().frame, number.to_be_bytes()[..]);
        }
    };
    within(async { tokio::join!(many, receive) }).await;
    for number in 0..300_u32 {
        let frame = Bytes::copy_from_slice(&number.to_be_bytes());
        parent.send(DEVICE, frame.clone()).await.unwrap();
        assert_eq!(within(child.receive()).await.unwrap(), Down::Frame(frame));
    }
    let long = child.send(Bytes::from(vec![0; MAX_FRAME + 1])).await;
    assert_eq!(long.unwrap_err().name(), "FrameTooLong");
    // A frame for a device that is not there is lost, and does not block.
    within(parent.send(OTHER, Bytes::from_static(b"x"))).await.unwrap();
}

#[tokio::test]
async fn frames_and_announcements_travel_without_dtls() {
    frames_travel(false, local()).await;
}

#[tokio::test]
async fn a_child_without_dtls_that_sends_nothing_receives_long_frames() {
    let (parent, address) = parent(false, local());
    parent.announce(Bytes::from_static(b"round 1")).await.unwrap();
    let mut child = CoapChild::new(options(address, false, DEVICE, SECRET), DEVICE).unwrap();
    assert_eq!(within(child.receive()).await.unwrap(), Down::Announcement("round 1".into()));
    let frame = Bytes::from(vec![7; MAX_FRAME]);
    parent.send(DEVICE, frame.clone()).await.unwrap();
    assert_eq!(within(child.receive()).await.unwrap(), Down::Frame(frame));
}

#[tokio::test]
async fn frames_and_announcements_travel_within_dtls() {
    frames_travel(true, local()).await;
}

#[tokio::test]
async fn frames_and_announcements_travel_over_ipv6() {
    frames_travel(true, SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0))).await;
}

#[tokio::test]
async fn a_socket_for_all_ipv6_addresses_serves_ipv4_too() {
    let (parent, address) = parent(true, SocketAddr::from(([0; 8], 0)));
    let address = SocketAddr::from(([127, 0, 0, 1], address.port()));
    let child = CoapChild::new(options(address, true, DEVICE, SECRET), DEVICE).unwrap();
    child.send(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(within(parent.receive()).await.unwrap().frame, "hello");
}

#[tokio::test]
async fn a_child_with_another_key_is_refused() {
    let (_parent, address) = parent(true, local());
    let child = CoapChild::new(options(address, true, DEVICE, [1; 32]), DEVICE).unwrap();
    let error = within(until_up(child.state())).await.unwrap_err();
    assert_eq!(error.name(), "Refused", "{error}");
    // The key of one device does not open the path of another one.
    let child = CoapChild::new(options(address, true, OTHER, SECRET), DEVICE).unwrap();
    let error = within(until_up(child.state())).await.unwrap_err();
    assert_eq!(error.name(), "Refused", "{error}");
    assert!(error.to_string().contains("another device's"), "{error}");
}

#[tokio::test]
async fn a_device_that_is_no_member_is_refused_and_a_removed_one_loses_its_session() {
    let (parent, address) = parent(true, local());
    let stranger = *b"stranger";
    let child = CoapChild::new(options(address, true, stranger, SECRET), stranger).unwrap();
    let error = within(until_up(child.state())).await.unwrap_err();
    assert!(error.to_string().contains("not a member"), "{error}");
    let child = CoapChild::new(options(address, true, DEVICE, SECRET), DEVICE).unwrap();
    within(until_up(child.state())).await.unwrap();
    assert!(parent.knows(DEVICE));
    parent.set_members(vec![OTHER]);
    assert!(!parent.knows(DEVICE));
    let mut state = child.state();
    within(state.wait_for(|state| matches!(state, State::Down { .. }))).await.unwrap();
}

#[tokio::test]
async fn a_child_continues_after_its_parent_has_restarted_with_no_session() {
    let (first, address) = parent(true, local());
    let mut options = options(address, true, DEVICE, SECRET);
    options.transmission.ack_timeout = Duration::from_secs(1);
    let mut child = CoapChild::new(options, DEVICE).unwrap();
    within(until_up(child.state())).await.unwrap();
    drop(first);
    let second = loop {
        let mut parent = CoapParent::new("field", [DEVICE]);
        if parent.listen(address, server()).is_ok() {
            break parent;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    // The first frame of a session that the parent lost starts a new handshake.
    child.send(Bytes::from_static(b"after")).await.unwrap();
    let up =
        tokio::time::timeout(Duration::from_secs(60), second.receive()).await.unwrap().unwrap();
    assert_eq!(up.frame, "after");
    second.send(DEVICE, Bytes::from_static(b"down")).await.unwrap();
    assert_eq!(within(child.receive()).await.unwrap(), Down::Frame("down".into()));
}

#[tokio::test]
async fn a_parent_that_is_not_there_is_reported() {
    for is_secure in [false, true] {
        let mut options = options(local(), is_secure, DEVICE, SECRET);
        options.address = Address::parse("coap://127.0.0.1:9").unwrap();
        let scheme = if is_secure { "coaps" } else { "coap" };
        options.address = Address::parse(&format!("{scheme}://127.0.0.1:9")).unwrap();
        options.transmission.max_retransmit = 1;
        let child = CoapChild::new(options, DEVICE).unwrap();
        let up = until_up_within(child.state(), Duration::from_secs(2)).await;
        assert!(up.is_err());
    }
    let address = Address::parse("coaps://127.0.0.1:1").unwrap();
    let none = CoapChild::new(ChildOptions::new(address, "field"), DEVICE).unwrap_err();
    assert!(none.to_string().contains("credentials"), "{none}");
}
