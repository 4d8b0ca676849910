//! Observers (RFC 7641).

use super::*;

#[test]
fn an_observer_gets_every_new_version_with_an_increasing_number_until_it_cancels() {
    let mut bench = Bench::new();
    let sent = bench.register(peer(1), &observe("a", 1, 0));
    let first = sent[0].options.uint(Number::OBSERVE).unwrap();
    let sent = bench.notify("/a", "second");
    assert_eq!((sent[0].kind, &*sent[0].payload), (Kind::Confirmable, &b"second"[..]));
    assert_eq!(sent[0].token, Token::new(b"tk"));
    assert!(sent[0].options.uint(Number::OBSERVE).unwrap() > first);
    assert_eq!(bench.notify("/b", "another resource"), []);
    bench.receive(peer(1), &ack(&sent[0]));
    // Another request for the resource with Observe 1 ends the observation.
    bench.receive(peer(1), &observe("a", 2, 1));
    let (id, request) = bench.requested();
    assert!(!request.observes);
    assert_eq!(bench.respond(id, observable("third"))[0].options.uint(Number::OBSERVE), None);
    assert_eq!(bench.notify("/a", "fourth"), []);
    assert_eq!(bench.endpoint.observers(), 0);
}

#[test]
fn an_observer_that_resets_or_does_not_acknowledge_is_removed() {
    let mut bench = Bench::new();
    bench.register(peer(1), &observe("a", 1, 0));
    let sent = bench.notify("/a", "second");
    bench.receive(peer(1), &Message::new(Kind::Reset, Code::EMPTY, sent[0].id));
    assert_eq!((bench.endpoint.observers(), bench.notify("/a", "third")), (0, vec![]));
    bench.register(peer(1), &observe("a", 2, 0));
    bench.notify("/a", "fourth");
    bench.pass(100.0);
    assert_eq!((bench.endpoint.observers(), bench.notify("/a", "fifth")), (0, vec![]));
}

#[test]
fn while_a_notification_is_outstanding_only_the_newest_version_waits() {
    let mut bench = Bench::new();
    bench.register(peer(1), &observe("a", 1, 0));
    let sent = bench.notify("/a", "second");
    assert_eq!(bench.notify("/a", "third"), []);
    assert_eq!(bench.notify("/a", "fourth"), []);
    let sent = bench.receive(peer(1), &ack(&sent[0]));
    assert_eq!((sent.len(), &*sent[0].payload), (1, &b"fourth"[..]));
}

#[test]
fn registering_again_with_the_same_token_replaces_the_registration() {
    let mut bench = Bench::new();
    bench.register(peer(1), &observe("a", 1, 0));
    bench.register(peer(1), &observe("a", 2, 0));
    assert_eq!(bench.endpoint.observers(), 1);
    assert_eq!(bench.notify("/a", "second").len(), 1);
}

#[test]
fn an_error_ends_all_observations() {
    let mut bench = Bench::new();
    bench.register(peer(1), &observe("a", 1, 0));
    bench.endpoint.notify(bench.now, "/a", &mut |_| Some(Response::new(Code::NOT_FOUND)));
    let sent = bench.sent();
    assert_eq!((sent[0].code, sent[0].options.uint(Number::OBSERVE)), (Code::NOT_FOUND, None));
    assert_eq!(bench.endpoint.observers(), 0);
}

#[test]
fn observers_beyond_the_limit_get_the_representation_only() {
    let limits = Limits { observers: 3, observers_of_peer: 2, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    let register = |bench: &mut Bench, of: u8, id: u16| {
        let mut message = observe("a", id, 0);
        message.token = Token::new(&id.to_be_bytes());
        bench.register(peer(of), &message)[0].options.uint(Number::OBSERVE).is_some()
    };
    let accepted: Vec<bool> = [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]
        .into_iter()
        .map(|(of, id)| register(&mut bench, of, id))
        .collect();
    assert_eq!(accepted, [true, true, false, true, false]);
    assert_eq!(bench.endpoint.counters().unregistered, 2);
    bench.endpoint.forget(peer(1));
    assert_eq!(bench.endpoint.observers(), 1);
}

#[test]
fn a_client_ignores_older_notifications_and_fetches_the_rest_of_long_ones() {
    let mut bench = Bench::new();
    let request = Request { observes: true, ..Request::new(Code::GET, "/a") };
    let (id, sent) = bench.request(peer(1), request);
    assert_eq!(sent[0].options.uint(Number::OBSERVE), Some(0));
    let token = sent[0].token;
    let mut reply = reply_to(&sent[0], Code::CONTENT, b"first");
    reply.options.add_uint(Number::OBSERVE, 100);
    bench.receive(peer(1), &reply);
    assert_eq!(bench.notified().body, "first");
    let notification = |id: u16, number: u32, payload: &'static [u8]| {
        let mut message = Message::new(Kind::NonConfirmable, Code::CONTENT, id);
        message.token = token;
        message.options.add_uint(Number::OBSERVE, number);
        message.payload = Bytes::from_static(payload);
        message
    };
    bench.receive(peer(1), &notification(1, 102, b"third"));
    assert_eq!(bench.notified().body, "third");
    bench.receive(peer(1), &notification(2, 101, b"second"));
    assert!(bench.events.is_empty(), "it is older");
    // The number wraps around at 2^24, and any number is newer after 128 s.
    bench.pass(129.0);
    bench.events.clear();
    bench.receive(peer(1), &notification(3, 5, b"fourth"));
    assert_eq!(bench.notified().body, "fourth");
    let mut long = notification(4, 6, &[1; 16]);
    long.options.add_block(Number::BLOCK2, block(0, true, 0));
    long.options.add(Number::ETAG, &b"e"[..]);
    let sent = bench.receive(peer(1), &long);
    assert_ne!(sent[0].token, token, "the blocks have another token");
    assert_eq!(sent[0].options.uint(Number::OBSERVE), None);
    let mut rest = reply_to(&sent[0], Code::CONTENT, &[2; 3]);
    rest.options.add_block(Number::BLOCK2, block(1, false, 0));
    rest.options.add(Number::ETAG, &b"e"[..]);
    bench.receive(peer(1), &rest);
    assert_eq!(bench.notified().body, [&[1; 16][..], &[2; 3]].concat());
    bench.endpoint.cancel(bench.now, id);
    let sent = bench.sent();
    assert_eq!((sent[0].options.uint(Number::OBSERVE), sent[0].token), (Some(1), token));
    let late = Message { kind: Kind::Confirmable, ..notification(9, 7, b"late") };
    assert_eq!(bench.receive(peer(1), &late), [Message::new(Kind::Reset, Code::EMPTY, 9)]);
}

#[test]
fn a_client_registers_again_when_its_representation_is_stale() {
    let mut bench = Bench::new();
    let request = Request { observes: true, ..Request::new(Code::GET, "/a") };
    let (_, sent) = bench.request(peer(1), request);
    let mut reply = reply_to(&sent[0], Code::CONTENT, b"first");
    reply.options.add_uint(Number::OBSERVE, 100);
    reply.options.add_uint(Number::MAX_AGE, 30);
    bench.receive(peer(1), &reply);
    assert_eq!(bench.pass(30.0), []);
    let again = bench.pass(11.0);
    assert_eq!(again[0].options.uint(Number::OBSERVE), Some(0));
    assert_eq!(again[0].token, sent[0].token);
}

/// Registers an observer under a plain address. Returns the ping.
fn register_stranger(bench: &mut Bench, number: u32) -> (Peer, Message) {
    let peer = Peer::plain(SocketAddr::from((number.to_be_bytes(), 5683)));
    let mut message = observe("a", 1, 0);
    // The longer request permits a notification to the address.
    message.options.add(Number::URI_QUERY, "an argument");
    let sent = bench.register(peer, &message);
    assert!(sent[0].options.uint(Number::OBSERVE).is_some());
    assert_eq!((sent[1].kind, sent[1].code), (Kind::Confirmable, Code::EMPTY));
    (peer, sent[1].clone())
}

#[test]
fn an_observer_that_answers_a_ping_is_not_displaced_by_those_with_forged_addresses() {
    let limits = Limits { observers: 40, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    let (honest, ping) = register_stranger(&mut bench, 1);
    assert_eq!(bench.receive(honest, &Message::new(Kind::Reset, Code::EMPTY, ping.id)), []);
    for number in 2..1000 {
        register_stranger(&mut bench, number);
    }
    assert_eq!(bench.endpoint.observers(), 11, "a quarter, and the honest one");
    assert_eq!(bench.endpoint.counters().displaced, 988);
    let sent = bench.notify("/a", "second");
    assert_eq!(sent.len(), 11);
    // Nobody acknowledges at the forged addresses.
    bench.endpoint.receive(bench.now, honest, &ack(&sent[0]).encode());
    bench.pass(100.0);
    assert!(bench.endpoint.observers() <= 1);
}

#[test]
fn a_notification_does_not_wait_for_the_answer_to_a_ping() {
    let mut bench = Bench::new();
    let (honest, _) = register_stranger(&mut bench, 1);
    let sent = bench.notify("/a", "second");
    assert_eq!(&*sent[0].payload, b"second");
    bench.receive(honest, &ack(&sent[0]));
    assert_eq!(&*bench.notify("/a", "third")[0].payload, b"third");
}

#[test]
fn observers_of_one_network_are_bounded() {
    let limits = Limits { observers_of_network: 3, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    let accepts = |bench: &mut Bench, port: u16| {
        let address = SocketAddr::from(([192, 0, 2, 1], port));
        let peer = Peer { address, session: u64::from(port) };
        bench.register(peer, &observe("a", 1, 0))[0].options.uint(Number::OBSERVE).is_some()
    };
    let accepted: Vec<bool> = (1..=5).map(|port| accepts(&mut bench, port)).collect();
    assert_eq!(accepted, [true, true, true, false, false]);
    assert_eq!(bench.endpoint.counters().unregistered, 2);
    bench.endpoint.forget(Peer { address: SocketAddr::from(([192, 0, 2, 1], 2)), session: 2 });
    assert!(accepts(&mut bench, 6));
}

#[test]
fn an_ignored_notification_does_not_end_an_observation() {
    let mut bench = Bench::new();
    let request = Request { observes: true, ..Request::new(Code::GET, "/a") };
    let (_, sent) = bench.request(peer(1), request);
    let mut reply = reply_to(&sent[0], Code::CONTENT, b"first");
    reply.options.add_uint(Number::OBSERVE, 100);
    reply.options.add_uint(Number::MAX_AGE, 10_000);
    bench.receive(peer(1), &reply);
    bench.notified();
    let mut older =
        Message { kind: Kind::NonConfirmable, ..reply_to(&sent[0], Code::CONTENT, b"") };
    older.options.add_uint(Number::OBSERVE, 99);
    bench.receive(peer(1), &older);
    bench.pass(1000.0);
    assert!(bench.events.is_empty(), "{:?}", bench.events);
}

#[test]
fn a_renewal_for_which_there_is_no_room_is_sent_later() {
    let limits = Limits { outgoing: 1, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    let request = Request { observes: true, ..Request::new(Code::GET, "/a") };
    let (_, sent) = bench.request(peer(1), request);
    let mut reply = reply_to(&sent[0], Code::CONTENT, b"first");
    reply.options.add_uint(Number::OBSERVE, 100);
    reply.options.add_uint(Number::MAX_AGE, 30);
    bench.receive(peer(1), &reply);
    bench.notified();
    bench.pass(39.5);
    // Two notifications of the server's own: one waits for its acknowledgement, and one for room.
    for id in 1..=2 {
        let token = Token::new(&[id as u8]);
        bench.register(peer(1), &Message { token, ..observe("b", id, 0) });
    }
    let first = bench.notify("/b", "second");
    assert_eq!((first.len(), bench.pass(1.0)), (1, vec![]));
    let second = bench.receive(peer(1), &ack(&first[0]));
    bench.receive(peer(1), &ack(&second[0]));
    let again = bench.pass(11.0);
    assert_eq!((again[0].code, again[0].token), (Code::GET, sent[0].token));
}
