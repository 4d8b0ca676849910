//! Floods of CoAP servers without DTLS, from forged addresses.

use moteseal_net::coap::message::{Block, Kind, Message, Number, Token};

use super::*;

/// A request whose message id and token contain a number.
fn request(number: u64, code: Code) -> Message {
    let mut message = Message::new(Kind::Confirmable, code, number as u16);
    message.token = Token::new(&number.to_be_bytes());
    message.options.add(Number::URI_PATH, "reading");
    message
}

fn block(number: u64, at: u32) -> Message {
    let mut message = request(number, Code::PUT);
    let block = Block { number: at, more: true, exponent: Block::LARGEST };
    message.options.add_block(Number::BLOCK1, block);
    message.options.add(Number::REQUEST_TAG, number.to_be_bytes().to_vec());
    message.payload = vec![b'x'; 1024].into();
    message
}

fn observe(number: u64) -> Message {
    let mut message = request(number, Code::GET);
    message.options.add_uint(Number::OBSERVE, 0);
    message
}

fn empty(number: u64, kind: Kind) -> Message {
    // 37 is no factor of 2^16, so all ids are guessed.
    Message::new(kind, Code::EMPTY, (number * 37) as u16)
}

/// Datagrams that are not messages: another version, a token that is too long, an option that is cut,
/// a payload that is empty, random bytes.
fn malformed(number: u64) -> Vec<u8> {
    let mut bytes = request(number, Code::GET).encode();
    match number % 5 {
        0 => bytes[0] ^= 0xc0,
        1 => bytes[0] |= 0x0f,
        2 => bytes.truncate(bytes.len() - 1),
        3 => bytes.push(0xff),
        _ => bytes = (0..number % 100).map(|at| ((at * number) >> 3) as u8).collect(),
    }
    bytes
}

const LIMITS: Limits = Limits {
    peers: 200,
    incoming: 16,
    outgoing: 64,
    remembered: 128,
    remembered_bytes: 8 << 10,
    observers: 100,
    observers_of_peer: 16,
    observers_of_network: 20,
    upload_bytes: 64 << 10,
    representation_bytes: 1 << 20,
};

type Step = fn(u64) -> Vec<u8>;

#[tokio::test]
async fn a_flood_from_forged_addresses_is_bounded_and_named_and_delays_nobody() {
    let _alone = ALONE.lock().await;
    let floods: [(&str, &str, Step); 7] = [
        ("requests", "PeerForgotten", |number| request(number, Code::GET).encode()),
        ("first blocks", "BodyDropped", |number| block(number, 0).encode()),
        ("later blocks", "PeerForgotten", |number| block(number, 7).encode()),
        ("observers", "ObserverDisplaced", |number| observe(number).encode()),
        ("pings", "", |number| empty(number, Kind::Confirmable).encode()),
        ("acknowledgements and resets", "Stray", |number| match number % 2 {
            0 => empty(number, Kind::Acknowledgement).encode(),
            _ => empty(number, Kind::Reset).encode(),
        }),
        ("no messages", "Malformed", malformed),
    ];
    for (name, reason, datagram) in floods {
        let (socket, address, _) = serve(Security::Plain, LIMITS);
        let client = connect(address, None);
        get(&client).await;
        let flood =
            Flood::start(move |number| send_from(forged(number), address, &datagram(number)));
        let slowdown = flood.slowdown(name, || get(&client)).await;
        let now = socket.handle().counters();
        drop(flood);
        println!("{name}: {now:?}");
        assert!(slowdown < 2.0, "{name}: {slowdown:.2}");
        assert!(now.peers <= 200 && now.observers <= 25, "{name}: {now:?}");
        let refused = now.refused().into_iter().find(|(name, _)| *name == reason);
        assert!(reason.is_empty() || refused.is_some_and(|(_, of)| of > 50), "{name}: {now:?}");
    }
}

/// The representation with this text.
fn version(text: &'static str) -> moteseal_net::coap::socket::Representation {
    let response = Response { accepts_observer: true, ..Response::content(Format::TEXT, text) };
    Box::new(move |_: &Request| Some(response.clone()))
}

#[tokio::test]
async fn honest_observers_keep_their_places_among_thousands_and_get_new_ones() {
    let _alone = ALONE.lock().await;
    let (socket, address, _) = serve(Security::Plain, LIMITS);
    let client = connect(address, None);
    let observation = || async {
        let request = Request::new(Code::GET, "/reading");
        let mut observation = client.handle().observe(To::Server, request).await.unwrap();
        let first = observation.next().await.unwrap().unwrap();
        assert!(first.accepts_observer, "the observer is not registered");
        observation
    };
    let mut before = observation().await;
    // Many ports of one address, and many addresses.
    let flood = Flood::start(move |number| {
        let from = if number % 2 == 0 { forged(1) } else { forged(number) };
        send_from(from, address, &observe(number).encode());
    });
    let slowdown = flood.slowdown("observers", || get(&client)).await;
    let mut meanwhile = {
        flood.active.store(true, Ordering::Relaxed);
        observation().await
    };
    for text in ["second", "third"] {
        sleep(Duration::from_millis(200)).await;
        let start = Instant::now();
        socket.handle().notify("/reading", version(text)).await;
        for observation in [&mut before, &mut meanwhile] {
            let next = tokio::time::timeout(Duration::from_secs(2), observation.next()).await;
            assert_eq!(&*next.expect("no notification").unwrap().unwrap().body, text.as_bytes());
        }
        println!("the notification {text} took {:.2?}", start.elapsed());
    }
    let now = socket.handle().counters();
    drop(flood);
    println!("{now:?}");
    assert!(slowdown < 2.0, "{slowdown:.2}");
    assert!(now.observers <= 27 && now.coap.displaced > 50, "{now:?}");
}

/// An attacker that guesses the address of a victim cannot guess the tag of its transfer, and its blocks
/// go into a body of their own.
#[tokio::test]
async fn an_upload_is_complete_during_a_flood_of_blocks() {
    let _alone = ALONE.lock().await;
    let (_socket, address, _) = serve(Security::Plain, Limits::default());
    let client = connect(address, None);
    let flood = Flood::start(move |number| {
        send_from(forged(number), address, &block(number, (number % 50) as u32).encode());
    });
    let upload = || async {
        let body = vec![b'b'; 40_000];
        let request = Request::new(Code::PUT, "/reading").with_body(Format::OCTETS, body);
        let response = client.handle().request(To::Server, request, Duration::ZERO).await.unwrap();
        assert!(response.code.is_success());
    };
    let slowdown = flood.slowdown("an upload", upload).await;
    assert!(slowdown < 2.0, "{slowdown:.2}");
}
