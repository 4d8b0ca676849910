//! The message layer (RFC 7252, section 4), and the limit on amplification (section 11.3).

use super::*;

#[test]
fn a_confirmable_message_is_retransmitted_four_times_with_doubled_waits_and_then_given_up() {
    let mut bench = Bench::new();
    let start = bench.now;
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let before = bench.now;
        bench.now = bench.endpoint.next_timeout().unwrap();
        waits.push((bench.now - before).as_secs_f64());
        assert_eq!(bench.pass(0.0), sent, "it is sent again unchanged");
    }
    assert!((2.0..=3.0).contains(&waits[0]), "{waits:?}");
    waits.windows(2).for_each(|pair| assert!((pair[1] / pair[0] - 2.0).abs() < 1e-6, "{waits:?}"));
    assert_eq!(bench.pass(60.0), []);
    assert_eq!(bench.failure(), RequestError::NoResponse);
    assert!(bench.now - start < Duration::from_secs_f64(93.0 + 60.0));
}

#[test]
fn the_random_factor_differs_between_messages() {
    let mut bench = Bench::new();
    let mut waits = Vec::new();
    for number in 1..=8 {
        bench.request(peer(number), Request::new(Code::GET, "/a"));
        let wait = bench.endpoint.next_timeout().unwrap() - bench.now;
        waits.push(wait);
        bench.endpoint.forget(peer(number));
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 4, "{waits:?}");
}

#[test]
fn only_one_confirmable_message_to_a_peer_is_outstanding() {
    let mut bench = Bench::new();
    let (_, first) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let (_, second) = bench.request(peer(1), Request::new(Code::GET, "/b"));
    assert_eq!((first.len(), second.len()), (1, 0));
    let (_, other) = bench.request(peer(2), Request::new(Code::GET, "/b"));
    assert_eq!(other.len(), 1, "another peer has its own");
    let next = bench.receive(peer(1), &reply_to(&first[0], Code::CONTENT, b"x"));
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].options.first(Number::URI_PATH).unwrap(), &b"b"[..]);
}

#[test]
fn a_duplicate_of_a_request_gets_the_same_reply_and_is_processed_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.receive(peer(1), &get("a", 5)), []);
    assert_eq!(bench.receive(peer(1), &get("a", 5)), [], "its response is not ready");
    let (id, _) = bench.requested();
    assert!(bench.events.is_empty());
    let reply = bench.respond(id, text("x"));
    assert_eq!(bench.receive(peer(1), &get("a", 5)), reply);
    bench.pass(240.0);
    assert_eq!(bench.receive(peer(1), &get("a", 5)), reply);
    assert!(bench.events.is_empty());
    bench.pass(10.0);
    assert_eq!(bench.receive(peer(1), &get("a", 5)), [], "after 247 s it is another request");
    bench.requested();
    assert_eq!(bench.receive(peer(2), &get("a", 5)), [], "ids are those of a peer");
    bench.requested();
}

#[test]
fn a_duplicate_of_a_non_confirmable_request_is_processed_once() {
    let mut bench = Bench::new();
    let request = Message { kind: Kind::NonConfirmable, ..get("a", 5) };
    assert_eq!(bench.receive(peer(1), &request), []);
    let (id, _) = bench.requested();
    let reply = bench.respond(id, text("x"));
    assert_eq!(reply[0].kind, Kind::NonConfirmable);
    assert_eq!(reply[0].token, request.token);
    bench.receive(peer(1), &request);
    assert!(bench.events.is_empty());
}

#[test]
fn a_ping_is_answered_with_a_reset() {
    let mut bench = Bench::new();
    let sent = bench.receive(peer(1), &Message::new(Kind::Confirmable, Code::EMPTY, 9));
    assert_eq!(sent, [Message::new(Kind::Reset, Code::EMPTY, 9)]);
}

#[test]
fn a_confirmable_message_with_a_format_error_is_rejected_and_another_one_ignored() {
    let mut bench = Bench::new();
    bench.endpoint.receive(bench.now, peer(1), b"\x40\x01\x12\x34\xff");
    assert_eq!(bench.sent(), [Message::new(Kind::Reset, Code::EMPTY, 0x1234)]);
    for ignored in [&b"\x50\x01\x12\x34\xff"[..], b"\x60\x01\x12\x34\xff", b"\x00\x01\x12\x34", b""]
    {
        bench.endpoint.receive(bench.now, peer(1), ignored);
        assert_eq!(bench.sent(), []);
    }
    assert_eq!(bench.endpoint.counters().malformed, 5);
}

#[test]
fn a_message_of_more_than_2048_bytes_is_rejected() {
    let mut bench = Bench::new();
    let mut request = get("a", 5);
    request.payload = vec![1; 2048 - request.encode().len() - 1].into();
    assert_eq!((request.encode().len(), bench.receive(peer(1), &request)), (2048, vec![]));
    bench.requested();
    request.id = 6;
    request.payload = [&request.payload[..], b"x"].concat().into();
    assert_eq!(bench.receive(peer(1), &request), [Message::new(Kind::Reset, Code::EMPTY, 6)]);
    assert_eq!(bench.endpoint.counters().malformed, 1);
}

#[test]
fn an_unexpected_response_is_rejected() {
    let mut bench = Bench::new();
    let mut response = Message::new(Kind::Confirmable, Code::CONTENT, 3);
    response.token = Token::new(b"unknown");
    assert_eq!(bench.receive(peer(1), &response), [Message::new(Kind::Reset, Code::EMPTY, 3)]);
    let unexpected = Message::new(Kind::Acknowledgement, Code::EMPTY, 3);
    assert_eq!(bench.receive(peer(1), &unexpected), []);
}

#[test]
fn a_reset_ends_a_request() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    bench.receive(peer(1), &Message::new(Kind::Reset, Code::EMPTY, sent[0].id));
    assert_eq!(bench.failure(), RequestError::Reset);
    assert_eq!(bench.pass(100.0), []);
}

#[test]
fn message_ids_are_not_used_again_within_their_lifetime_and_do_not_run_out() {
    let mut bench = Bench::new();
    let mut used = std::collections::HashMap::new();
    let start = bench.now;
    for number in 0..100_000 {
        let (_, mut sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
        if sent.is_empty() {
            sent = bench.pass(0.02);
            assert_eq!(sent.len(), 1, "message {number} waits for long");
        }
        if let Some(before) = used.insert(sent[0].id, bench.now) {
            let age = bench.now - before;
            assert!(age >= Duration::from_secs(247), "{} is used after {age:?}", sent[0].id);
        }
        if number < 30_000 {
            assert_eq!(bench.now, start, "the first messages do not wait");
        }
        bench.receive(peer(1), &reply_to(&sent[0], Code::CONTENT, b""));
        bench.success();
    }
}

#[test]
fn an_address_that_is_not_validated_receives_at_most_three_times_what_it_sent() {
    let mut bench = Bench::new();
    let request = observe("sensors", 1, 0);
    bench.receive(stranger(), &request);
    let (id, _) = bench.requested();
    let wire = |messages: &[Message]| -> usize {
        messages.iter().map(|message| message.encode().len() + 28).sum()
    };
    let received = wire(std::slice::from_ref(&request));
    let mut all = bench.respond(id, observable(vec![b'x'; 4000]));
    assert_eq!(all.len(), 2, "a response and a ping");
    assert!(all[0].options.block(Number::BLOCK2).unwrap().unwrap().size() < 1024);
    for _ in 0..50 {
        all.extend(bench.notify("/sensors", "a new version of the representation"));
        all.extend(bench.pass(10.0));
    }
    assert!(wire(&all) <= 3 * received, "{} > 3 * {received}", wire(&all));
    assert!(bench.endpoint.counters().withheld > 0);
}

/// A stranger that observes, with an argument, and whose address is not validated. Returns the ping.
fn observed(argument: &str) -> (Bench, Message) {
    let mut bench = Bench::new();
    let mut message = observe("a", 1, 0);
    message.options.add(Number::URI_QUERY, argument.to_owned());
    bench.receive(stranger(), &message);
    let (id, _) = bench.requested();
    let sent = bench.respond(id, observable("x"));
    assert_eq!((sent.len(), sent[1].code), (2, Code::EMPTY));
    (bench, sent[1].clone())
}

#[test]
fn a_guessed_message_id_does_not_validate_an_address() {
    let (mut bench, ping) = observed("");
    // A sender with a forged address tries several ids, of which one is that of the ping.
    for id in [ping.id.wrapping_add(1), ping.id] {
        bench.receive(stranger(), &Message::new(Kind::Reset, Code::EMPTY, id));
    }
    let mut forged = get("a", 2);
    forged.options.add(Number::URI_QUERY, "forged");
    bench.receive(stranger(), &forged);
    let (id, _) = bench.requested();
    let sent = bench.respond(id, text(vec![b'z'; 900]));
    assert!(sent[0].payload.len() <= 256, "{}", sent[0].payload.len());
    // A request of the server has a token that cannot be guessed.
    let (_, sent) = bench.request(stranger(), Request::new(Code::GET, "/b"));
    bench.receive(stranger(), &reply_to(&sent[0], Code::CONTENT, b""));
    bench.success();
    forged.id = 3;
    bench.receive(stranger(), &forged);
    let (id, _) = bench.requested();
    assert_eq!(bench.respond(id, text(vec![b'z'; 900]))[0].payload.len(), 900);
}

#[test]
fn a_long_notification_waits_for_the_answer_to_the_ping_of_its_observer() {
    let (mut bench, ping) = observed("");
    assert_eq!(bench.notify("/a", &"y".repeat(900)), []);
    let sent = bench.receive(stranger(), &Message::new(Kind::Reset, Code::EMPTY, ping.id));
    assert_eq!((sent.len(), sent[0].payload.len()), (1, 900));
    bench.receive(stranger(), &ack(&sent[0]));
    assert_eq!(bench.notify("/a", &"z".repeat(900))[0].payload.len(), 900);
}

#[test]
fn a_further_request_permits_a_notification_that_waits_for_the_answer_to_a_ping() {
    let (mut bench, _) = observed("");
    assert_eq!(bench.notify("/a", &"y".repeat(100)), []);
    let mut request = get("b", 2);
    request.options.add(Number::URI_QUERY, "x".repeat(40));
    assert_eq!(bench.receive(stranger(), &request), [], "the response precedes it");
    let (id, _) = bench.requested();
    let sent = bench.respond(id, text("z"));
    assert_eq!(sent.iter().map(|sent| sent.payload.len()).collect::<Vec<_>>(), [1, 100]);
    bench.receive(stranger(), &ack(&sent[1]));
    assert_eq!(bench.notify("/a", &"z".repeat(900))[0].payload.len(), 900);
}

#[test]
fn the_answer_to_a_ping_may_arrive_after_a_short_notification() {
    // The longer request permits the notification.
    let (mut bench, ping) = observed("an argument");
    let sent = bench.notify("/a", "y");
    bench.receive(stranger(), &Message::new(Kind::Reset, Code::EMPTY, ping.id));
    bench.receive(stranger(), &ack(&sent[0]));
    assert_eq!(bench.notify("/a", &"z".repeat(900))[0].payload.len(), 900);
}

#[test]
fn an_observer_that_answers_no_ping_receives_no_long_notification() {
    let (mut bench, _) = observed("");
    assert_eq!(bench.notify("/a", &"y".repeat(900)), []);
    let sent = bench.pass(200.0);
    assert!(sent.iter().all(|sent| sent.code == Code::EMPTY), "{sent:?}");
    assert_eq!(bench.endpoint.observers(), 0);
}

#[test]
fn an_observer_that_acknowledges_every_notification_receives_all_of_them() {
    let mut bench = Bench::new();
    bench.receive(stranger(), &observe("a", 1, 0));
    let (id, _) = bench.requested();
    for ping in bench.respond(id, observable("x")).iter().filter(|of| of.code == Code::EMPTY) {
        bench.receive(stranger(), &Message::new(Kind::Reset, Code::EMPTY, ping.id));
    }
    for number in 0..200 {
        let sent = bench.notify("/a", &format!("{number:0900}"));
        assert_eq!(sent.len(), 1, "{number}");
        assert!(number < 20 || sent[0].payload.len() == 900, "{number}");
        bench.receive(stranger(), &ack(&sent[0]));
        bench.pass(1.0);
    }
    assert_eq!(bench.endpoint.counters().withheld, 0);
}

#[test]
fn an_acknowledgement_or_a_reset_with_a_code_of_another_kind_is_ignored() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    bench.receive(peer(1), &reply_to(&sent[0], Code::GET, b""));
    let reset = Message { kind: Kind::Reset, ..reply_to(&sent[0], Code::CONTENT, b"") };
    bench.receive(peer(1), &reset);
    assert!(bench.events.is_empty());
    assert_eq!(bench.pass(3.1), sent, "it is retransmitted");
}

#[test]
fn the_peers_are_bounded_and_strangers_are_forgotten_first() {
    let limits = Limits { peers: 100, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    bench.register(peer(1), &observe("a", 1, 0));
    for number in 0..100_000u32 {
        let address = SocketAddr::from((number.to_be_bytes(), 5683));
        bench.receive(Peer::plain(address), &get("a", 1));
        bench.events.clear();
    }
    assert_eq!(bench.endpoint.peers(), 100);
    assert_eq!(bench.notify("/a", "still there").len(), 1);
}

#[test]
fn messages_of_strangers_that_are_no_requests_leave_no_state() {
    let mut bench = Bench::new();
    for id in 0..100 {
        for kind in [Kind::Acknowledgement, Kind::Reset] {
            assert_eq!(bench.receive(stranger(), &Message::new(kind, Code::EMPTY, id)), []);
        }
        let ping = Message::new(Kind::Confirmable, Code::EMPTY, id);
        assert_eq!(bench.receive(stranger(), &ping)[0].kind, Kind::Reset);
        let response = Message::new(Kind::Confirmable, Code::CONTENT, id);
        assert_eq!(bench.receive(stranger(), &response)[0].kind, Kind::Reset);
    }
    assert_eq!((bench.endpoint.peers(), bench.endpoint.counters().stray), (0, 300));
}
