//! Where a parent with a broker and CoAP sends the frames for a device, how announcements reach many
//! children, and which of a server's addresses a child uses.

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moteseal_net::any::AnyParent;
use moteseal_net::coap::config::Config;
use moteseal_net::coap::socket::NoService;
use moteseal_net::coap::{
    CoapChild, CoapParent, Code, Request, Security, Socket, To, first_responding,
};
use moteseal_net::link::{State, until_up};
use moteseal_net::mqtt::{Backoff, MqttChild, MqttParent, Options};
use moteseal_net::{ChildLink, Down, ParentLink as _, Up, dtls};

use crate::broker::{Asks, Broker};
use crate::coap_link::{DEVICE, OTHER, SECRET, local, options, server, within};

/// Returns the options of a broker that nobody runs.
fn no_broker() -> Options {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Options::new(format!("mqtt://127.0.0.1:{port}"), "field")
}

async fn up(parent: &AnyParent) -> Up {
    within(parent.receive()).await.unwrap()
}

async fn frame(child: &mut impl ChildLink) -> Bytes {
    match within(child.receive()).await.unwrap() {
        Down::Frame(frame) => frame,
        other @ Down::Announcement(_) => panic!("{other:?}"),
    }
}

/// Anyone can send a request without DTLS. It takes the place of a device only if its frame was
/// verified. Afterwards, frames go to the link on which the device last sent one.
#[tokio::test]
async fn frames_go_to_the_link_on_which_a_device_last_proved_itself() {
    let broker = Broker::start(Asks::Nothing);
    let of_broker = Options::new(broker.tcp(), "field");
    let mqtt = MqttParent::new(&of_broker, [DEVICE, OTHER]).unwrap();
    within(until_up(mqtt.state())).await.unwrap();
    let mut coap = CoapParent::new("field", [DEVICE, OTHER]);
    let address = coap.listen(local(), Security::Plain).unwrap();
    let parent = AnyParent::new(Some(mqtt), Some(coap));
    let mut device = MqttChild::new(&of_broker, DEVICE).unwrap();
    within(until_up(device.state())).await.unwrap();
    device.send(Bytes::from_static(b"by mqtt")).await.unwrap();
    let first = up(&parent).await;
    parent.confirm(first.device, first.origin);

    // Another party announces the device, and sends a frame that is not authentic.
    let mut other = CoapChild::new(options(address, false, DEVICE, SECRET), DEVICE).unwrap();
    within(until_up(other.state())).await.unwrap();
    other.send(Bytes::from_static(b"forged")).await.unwrap();
    let forged = up(&parent).await;
    assert_eq!(forged.frame, "forged");
    parent.send(DEVICE, Bytes::from_static(b"1")).await.unwrap();
    assert_eq!(frame(&mut device).await, "1");

    // The frame was authentic: the device now uses CoAP.
    parent.confirm(forged.device, forged.origin);
    parent.send(DEVICE, Bytes::from_static(b"2")).await.unwrap();
    assert_eq!(frame(&mut other).await, "2");
    // And back.
    device.send(Bytes::from_static(b"by mqtt again")).await.unwrap();
    let again = up(&parent).await;
    parent.confirm(again.device, again.origin);
    parent.send(DEVICE, Bytes::from_static(b"3")).await.unwrap();
    assert_eq!(frame(&mut device).await, "3");
}

#[tokio::test]
async fn a_stranger_without_dtls_does_not_take_the_place_of_a_session() {
    let mut parent = CoapParent::new("field", [DEVICE]);
    let secure = parent.listen(local(), server()).unwrap();
    let plain = parent.listen(local(), Security::Plain).unwrap();
    let mut child = CoapChild::new(options(secure, true, DEVICE, SECRET), DEVICE).unwrap();
    within(until_up(child.state())).await.unwrap();
    let stranger = CoapChild::new(options(plain, false, DEVICE, SECRET), DEVICE).unwrap();
    within(until_up(stranger.state())).await.unwrap();
    parent.send(DEVICE, Bytes::from_static(b"down")).await.unwrap();
    assert_eq!(frame(&mut child).await, "down");
}

/// The epochs of children that use CoAP end although the broker cannot be reached.
#[tokio::test]
async fn a_parent_is_up_without_its_broker_while_children_use_coap() {
    let mqtt = MqttParent::new(&no_broker(), [DEVICE]).unwrap();
    let mut coap = CoapParent::new("field", [DEVICE]);
    let address = coap.listen(local(), server()).unwrap();
    let parent = AnyParent::new(Some(mqtt), Some(coap));
    assert!(!parent.is_up());
    let child = CoapChild::new(options(address, true, DEVICE, SECRET), DEVICE).unwrap();
    within(until_up(child.state())).await.unwrap();
    assert!(parent.is_up() && *parent.state().borrow() != State::Up);
    drop(child);
    parent.set_members(vec![OTHER]);
    assert!(!parent.is_up());
}

/// Many more children than commands wait for the socket's task. Each has an address of its own, at
/// which one socket receives.
#[tokio::test]
async fn an_announcement_reaches_each_of_many_children() {
    const CHILDREN: u16 = 3000;
    let reusable = |address: SocketAddr| {
        use socket2::{Domain, Protocol, Type};
        let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
        socket.set_reuse_address(true).unwrap();
        let _ = socket.set_recv_buffer_size(4 << 20);
        socket.bind(&address.into()).unwrap();
        UdpSocket::from(socket)
    };
    let device = |child: u16| {
        let [high, low] = child.to_be_bytes();
        [0xab, 0, 0, 0, 0, 0, high, low]
    };
    let mut parent = CoapParent::new("field", (0..CHILDREN).map(device));
    let address = parent.listen(local(), Security::Plain).unwrap();
    let receiver = reusable(SocketAddr::from(([0, 0, 0, 0], 0)));
    let port = receiver.local_addr().unwrap().port();
    for child in 0..CHILDREN {
        let [high, low] = child.to_be_bytes();
        let own = SocketAddr::from(([127, 1, high, low], port));
        // A request without confirmation and without a token: POST /link/field/DEVICE.
        let mut hello = vec![0x50, 0x02, high, low, 0xb4];
        hello.extend_from_slice(b"link\x05field\x0d\x03");
        hello.extend_from_slice(
            moteseal_core::record::DeviceId(device(child)).to_string().as_bytes(),
        );
        reusable(own).send_to(&hello, address).unwrap();
        if child % 64 == 0 {
            // The parent receives them meanwhile.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let all_known = async {
        while !(0..CHILDREN).all(|child| parent.knows(device(child))) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(all_known).await;
    let received = tokio::task::spawn_blocking(move || {
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (mut tokens, mut buffer) = (HashSet::new(), [0; 256]);
        while tokens.len() < usize::from(CHILDREN) {
            let Ok(length) = receiver.recv(&mut buffer) else { break };
            // A confirmable PUT; a repetition has the same token.
            let datagram = &buffer[..length];
            if datagram[0] >> 4 == 4 && datagram[1] == 3 {
                tokens.insert(datagram[4..4 + usize::from(datagram[0] & 15)].to_vec());
            }
        }
        tokens.len()
    });
    parent.announce(Bytes::from_static(b"round 1")).await.unwrap();
    assert_eq!(received.await.unwrap(), usize::from(CHILDREN));
}

#[tokio::test]
async fn a_client_uses_the_address_of_its_server_that_responds() {
    let mut parent = CoapParent::new("field", [DEVICE]);
    let listens = parent.listen(local(), Security::Plain).unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let open = |server| {
        let config = Config::default();
        Socket::connect(server, Security::Plain, Backoff::default(), config, |_| {
            Box::new(NoService)
        })
    };
    let hello = Request::new(Code::GET, "/.well-known/core");
    let start = Instant::now();
    let socket = first_responding(&[silent, listens], 0, &hello, open).await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(15));
    let response = within(socket.handle().request(To::Server, hello, Duration::ZERO)).await;
    response.unwrap();
}

/// A child whose session is refused reads its credentials again after a while. The operator may have
/// replaced them.
#[tokio::test]
async fn a_child_that_is_refused_repeatedly_reads_its_credentials_again() {
    let mut parent = CoapParent::new("field", [DEVICE]);
    let address = parent.listen(local(), server()).unwrap();
    let wrong = options(address, true, DEVICE, [1; 32]).credentials.unwrap();
    let mut options = options(address, true, DEVICE, SECRET);
    let right = options.credentials.take().unwrap();
    let reads = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&reads);
    options.credentials = Some(Box::new(move || -> Result<dtls::ClientConfig, _> {
        if count.fetch_add(1, Ordering::Relaxed) == 0 { wrong() } else { right() }
    }));
    let child = CoapChild::new(options, DEVICE).unwrap();
    let mut state = child.state();
    within(state.wait_for(|state| *state == State::Up)).await.unwrap();
    assert_eq!(reads.load(Ordering::Relaxed), 2);
    child.send(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(within(parent.receive()).await.unwrap().frame, "hello");
}
