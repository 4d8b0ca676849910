//! Requests and responses (RFC 7252, section 5), and No-Response (RFC 7967).

use super::*;

#[test]
fn a_response_that_takes_long_is_sent_separately() {
    let mut bench = Bench::new();
    let request = get("a", 5);
    assert_eq!(bench.receive(peer(1), &request), []);
    assert_eq!(bench.pass(1.0), [ack(&request)]);
    assert_eq!(bench.receive(peer(1), &request), [ack(&request)], "a duplicate is acknowledged");
    let (id, _) = bench.requested();
    let sent = bench.respond(id, text("late"));
    assert_eq!((sent[0].kind, sent[0].token), (Kind::Confirmable, request.token));
    assert_ne!(sent[0].id, request.id);
    assert_eq!(bench.pass(3.1), sent, "it is retransmitted");
    bench.receive(peer(1), &ack(&sent[0]));
    assert_eq!(bench.pass(100.0), []);
}

#[test]
fn a_separate_response_ends_a_request_and_is_acknowledged() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    bench.receive(peer(1), &ack(&sent[0]));
    assert_eq!(bench.pass(100.0), [], "an acknowledged request is not retransmitted");
    let response =
        Message { kind: Kind::Confirmable, id: 77, ..reply_to(&sent[0], Code::CONTENT, b"x") };
    let acknowledgement = [Message::new(Kind::Acknowledgement, Code::EMPTY, 77)];
    assert_eq!(bench.receive(peer(1), &response), acknowledgement);
    assert_eq!(bench.success().body, "x");
    assert_eq!(bench.receive(peer(1), &response), acknowledgement, "so is its duplicate");
    assert!(bench.events.is_empty());
}

#[test]
fn a_separate_response_also_ends_a_request_whose_acknowledgement_was_lost() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let response =
        Message { kind: Kind::NonConfirmable, id: 77, ..reply_to(&sent[0], Code::CONTENT, b"x") };
    bench.receive(peer(1), &response);
    assert_eq!(bench.success().body, "x");
    assert_eq!(bench.pass(100.0), []);
}

#[test]
fn an_acknowledged_request_without_a_response_is_given_up() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    bench.receive(peer(1), &ack(&sent[0]));
    bench.pass(250.0);
    assert_eq!(bench.failure(), RequestError::NoResponse);
}

#[test]
fn a_response_with_another_token_is_not_the_requests() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let mut response = reply_to(&sent[0], Code::CONTENT, b"x");
    response.token = Token::new(b"other");
    bench.receive(peer(1), &response);
    assert!(bench.events.is_empty());
    assert_eq!(sent[0].token.bytes().len(), 3, "within DTLS");
    let (_, sent) = bench.request(stranger(), Request::new(Code::GET, "/a"));
    assert_eq!(sent[0].token.bytes().len(), 8, "without DTLS, strangers must not guess it");
}

#[test]
fn critical_options_that_are_not_supported_are_refused_and_elective_ones_ignored() {
    let mut bench = Bench::new();
    let mut request = get("a", 5);
    request.options.add(Number(9), &b"oscore"[..]);
    let sent = bench.receive(peer(1), &request);
    assert_eq!((sent[0].kind, sent[0].code), (Kind::Acknowledgement, Code::BAD_OPTION));
    let mut request = Message { kind: Kind::NonConfirmable, ..get("a", 6) };
    request.options.add(Number(9), &b"oscore"[..]);
    assert_eq!(bench.receive(peer(1), &request), [Message::new(Kind::Reset, Code::EMPTY, 6)]);
    let mut request = get("a", 7);
    request.options.add(Number(252), &b"echo"[..]);
    bench.receive(peer(1), &request);
    assert_eq!(bench.requested().1.path, "/a");
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let mut response = reply_to(&sent[0], Code::CONTENT, b"x");
    response.options.add(Number(9), &b""[..]);
    bench.receive(peer(1), &response);
    assert_eq!(bench.failure(), RequestError::BadOption);
}

#[test]
fn a_server_is_no_proxy_and_knows_four_methods() {
    let mut bench = Bench::new();
    let mut request = get("a", 5);
    request.options.add(Number::PROXY_URI, "coap://example.com/");
    assert_eq!(bench.receive(peer(1), &request)[0].code, Code::PROXYING_NOT_SUPPORTED);
    let fetch = Message { code: Code(5), ..get("a", 6) };
    assert_eq!(bench.receive(peer(1), &fetch)[0].code, Code::METHOD_NOT_ALLOWED);
}

#[test]
fn a_path_has_its_segments_and_arguments_as_text() {
    let mut bench = Bench::new();
    let mut request = get("sensors", 5);
    request.options.add(Number::URI_PATH, "chip temp");
    request.options.add(Number::URI_QUERY, "sig=cose");
    bench.receive(peer(1), &request);
    let (_, request) = bench.requested();
    assert_eq!((&*request.path, request.argument("sig")), ("/sensors/chip temp", Some("cose")));
    for (id, wrong) in [(6, &b"a/b"[..]), (7, b"\xff")] {
        let mut request = Message::new(Kind::Confirmable, Code::GET, id);
        request.options.add(Number::URI_PATH, wrong);
        assert_eq!(bench.receive(peer(1), &request)[0].code, Code::BAD_OPTION);
    }
}

#[test]
fn too_many_requests_of_a_peer_are_refused() {
    let mut bench = Bench::new();
    let most = Limits::default().incoming as u16;
    for id in 0..most {
        assert_eq!(bench.receive(peer(1), &get("a", id)), []);
    }
    let sent = bench.receive(peer(1), &get("a", most));
    assert_eq!(sent[0].code, Code::SERVICE_UNAVAILABLE);
    assert_eq!(sent[0].options.uint(Number::MAX_AGE), Some(1));
    assert_eq!(bench.receive(peer(2), &get("a", 0)), [], "others are served");
}

#[test]
fn a_response_that_the_client_does_not_want_is_not_sent() {
    let mut bench = Bench::new();
    let mut request = get("a", 5);
    request.options.add_uint(Number::NO_RESPONSE, 2);
    bench.receive(peer(1), &request);
    let (id, _) = bench.requested();
    assert_eq!(bench.respond(id, text("x")), [ack(&request)]);
    request.id = 6;
    bench.receive(peer(1), &request);
    let (id, _) = bench.requested();
    assert_eq!(bench.respond(id, Response::new(Code::NOT_FOUND))[0].code, Code::NOT_FOUND);
    let mut request = Message { kind: Kind::NonConfirmable, ..get("a", 7) };
    request.options.add_uint(Number::NO_RESPONSE, 26);
    bench.receive(peer(1), &request);
    let (id, _) = bench.requested();
    assert_eq!(bench.respond(id, Response::new(Code::NOT_FOUND)), []);
}

#[test]
fn a_request_that_wants_no_response_ends_with_its_acknowledgement() {
    let mut bench = Bench::new();
    let body = vec![7; 1500];
    let request = Request::new(Code::POST, "/a").with_body(Format::OCTETS, body);
    let (_, sent) = bench.request(peer(1), Request { no_response: 2, ..request });
    // The acknowledgement of a block that is not the last one is not the end.
    bench.receive(peer(1), &ack(&sent[0]));
    assert!(bench.events.is_empty());
    let mut reply =
        Message { kind: Kind::NonConfirmable, ..reply_to(&sent[0], Code::CONTINUE, b"") };
    reply.options.add_block(Number::BLOCK1, block(0, true, 6));
    let sent = bench.receive(peer(1), &reply);
    bench.receive(peer(1), &ack(&sent[0]));
    assert_eq!(bench.success().code, Code::CHANGED);
    assert_eq!(bench.pass(300.0), []);
}

#[test]
fn a_path_that_is_too_long_or_has_too_many_parts_is_refused() {
    let mut bench = Bench::new();
    for (id, number) in [(1, Number::URI_PATH), (2, Number::URI_QUERY)] {
        let with = |id: u16, count: usize, length: usize| {
            let mut request = Message { id, ..get("a", 0) };
            (0..count).for_each(|_| request.options.add(number, vec![b'x'; length]));
            request
        };
        for (at, (count, length)) in [(31, 0), (31, 30), (4, 250)].into_iter().enumerate() {
            let id = id * 10 + at as u16;
            assert_eq!(bench.receive(peer(1), &with(id, count, length)), [], "{count}");
            bench.requested();
        }
        for (at, (count, length)) in [(32, 0), (5, 250)].into_iter().enumerate() {
            let sent = bench.receive(peer(1), &with(id * 10 + 5 + at as u16, count, length));
            assert_eq!(sent[0].code, Code::BAD_OPTION, "{count}");
        }
    }
}

#[test]
fn the_requests_of_a_client_carry_the_name_of_its_server() {
    let server_name = Some("gateway.example".to_owned());
    let mut client = Bench::with(Config { server_name, ..Config::default() });
    let (_, sent) = client.request(peer(1), Request::new(Code::GET, "/a"));
    assert_eq!(sent[0].options.first(Number::URI_HOST).unwrap(), &b"gateway.example"[..]);
    let mut server = Bench::new();
    assert_eq!(server.receive(peer(1), &sent[0]), []);
    assert_eq!(server.requested().1.path, "/a");
}
