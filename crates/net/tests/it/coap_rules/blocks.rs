//! Transfers in blocks (RFC 7959).

use super::*;

fn put(id: u16, number: u32, more: bool, payload: &[u8]) -> Message {
    let mut message = Message { code: Code::PUT, ..get("bundles", id) };
    message.options.add_block(Number::BLOCK1, block(number, more, 0));
    message.payload = Bytes::copy_from_slice(payload);
    message
}

#[test]
fn a_body_arrives_in_blocks() {
    let mut bench = Bench::new();
    let sent = bench.receive(peer(1), &put(1, 0, true, &[1; 16]));
    assert_eq!(sent[0].code, Code::CONTINUE);
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(0, true, 0))));
    assert_eq!(bench.receive(peer(1), &put(2, 1, false, &[2; 3])), []);
    let (id, request) = bench.requested();
    assert_eq!(request.body, [&[1; 16][..], &[2; 3]].concat());
    let sent = bench.respond(id, Response::new(Code::CHANGED));
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(1, false, 0))));
}

#[test]
fn a_block_without_those_before_it_is_incomplete() {
    let mut bench = Bench::new();
    let code = |sent: Vec<Message>| sent[0].code;
    assert_eq!(
        code(bench.receive(peer(1), &put(1, 1, true, &[1; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE
    );
    assert_eq!(code(bench.receive(peer(1), &put(2, 0, true, &[1; 16]))), Code::CONTINUE);
    assert_eq!(
        code(bench.receive(peer(1), &put(3, 2, true, &[1; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE
    );
    assert_eq!(
        code(bench.receive(peer(2), &put(4, 1, true, &[1; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE,
        "the blocks are another peer's"
    );
    assert_eq!(code(bench.receive(peer(1), &put(5, 1, true, &[1; 16]))), Code::CONTINUE);
    assert_eq!(
        code(bench.receive(peer(1), &put(6, 1, true, &[1; 16]))),
        Code::CONTINUE,
        "the server has it"
    );
    assert_eq!(
        code(bench.receive(peer(1), &put(7, 1, true, &[9; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE,
        "it differs"
    );
    bench.pass(248.0);
    assert_eq!(
        code(bench.receive(peer(1), &put(8, 2, true, &[1; 16]))),
        Code::REQUEST_ENTITY_INCOMPLETE,
        "it took too long"
    );
}

#[test]
fn blocks_have_the_size_that_they_state() {
    let mut bench = Bench::new();
    for (id, message) in
        [put(1, 0, true, &[1; 15]), put(2, 0, true, &[1; 17]), put(3, 0, false, &[1; 17])]
            .iter()
            .enumerate()
    {
        assert_eq!(bench.receive(peer(1), message)[0].code, Code::BAD_REQUEST, "{id}");
    }
    let mut reserved = Message { id: 9, ..get("bundles", 0) };
    reserved.options.add_uint(Number::BLOCK1, 7);
    assert_eq!(bench.receive(peer(1), &reserved)[0].code, Code::BAD_REQUEST);
}

#[test]
fn a_body_beyond_the_limit_is_refused_at_its_first_block_if_it_states_its_size() {
    let limit = |_: Code, _: &str| 40;
    let mut bench =
        Bench::with(Config { body_limit: std::sync::Arc::new(limit), ..Config::default() });
    let mut stated = put(1, 0, true, &[1; 16]);
    stated.options.add_uint(Number::SIZE1, 41);
    let sent = bench.receive(peer(1), &stated);
    assert_eq!(sent[0].code, Code::REQUEST_ENTITY_TOO_LARGE);
    assert_eq!(sent[0].options.uint(Number::SIZE1), Some(40));
    for number in 0..2 {
        let sent = bench.receive(peer(1), &put(2 + number, number.into(), true, &[1; 16]));
        assert_eq!(sent[0].code, Code::CONTINUE);
    }
    let sent = bench.receive(peer(1), &put(9, 2, false, &[1; 9]));
    assert_eq!(sent[0].code, Code::REQUEST_ENTITY_TOO_LARGE);
    let whole =
        Message { code: Code::PUT, payload: Bytes::from_static(&[1; 41]), ..get("bundles", 10) };
    assert_eq!(bench.receive(peer(1), &whole)[0].code, Code::REQUEST_ENTITY_TOO_LARGE);
}

#[test]
fn two_bodies_at_the_same_time_are_distinguished_by_their_tags() {
    let mut bench = Bench::new();
    let tagged = |id, number, more, payload: &[u8], tag: &'static [u8]| {
        let mut message = put(id, number, more, payload);
        message.options.add(Number::REQUEST_TAG, tag);
        message
    };
    bench.receive(peer(1), &tagged(1, 0, true, &[1; 16], b"a"));
    bench.receive(peer(1), &tagged(2, 0, true, &[2; 16], b"b"));
    bench.receive(peer(1), &tagged(3, 1, false, &[1; 1], b"a"));
    assert_eq!(bench.requested().1.body, vec![1; 17]);
    bench.receive(peer(1), &tagged(4, 1, false, &[2; 1], b"b"));
    assert_eq!(bench.requested().1.body, vec![2; 17]);
}

#[test]
fn the_blocks_of_a_representation_are_of_one_version() {
    let mut bench = Bench::new();
    let mut first = get("a", 1);
    first.options.add_block(Number::BLOCK2, block(0, false, 1));
    bench.receive(peer(1), &first);
    let (id, _) = bench.requested();
    let body: Vec<u8> = (0..70).collect();
    let sent = bench.respond(id, text(body.clone()));
    assert_eq!(sent[0].options.block(Number::BLOCK2), Ok(Some(block(0, true, 1))));
    assert_eq!(sent[0].options.uint(Number::SIZE2), Some(70));
    assert_eq!(sent[0].payload, body[..32]);
    let etag = sent[0].options.first(Number::ETAG).cloned();
    assert!(etag.is_some());
    // The resource changes now, and is not asked again.
    let mut last = get("a", 2);
    last.options.add_block(Number::BLOCK2, block(2, false, 1));
    let sent = bench.receive(peer(1), &last);
    assert_eq!(sent[0].options.block(Number::BLOCK2), Ok(Some(block(2, false, 1))));
    assert_eq!(
        (&sent[0].payload, sent[0].options.first(Number::ETAG)),
        (&Bytes::from(body[64..].to_vec()), etag.as_ref())
    );
    let mut beyond = get("a", 3);
    beyond.options.add_block(Number::BLOCK2, block(3, false, 1));
    assert_eq!(bench.receive(peer(1), &beyond)[0].code, Code::BAD_REQUEST);
}

#[test]
fn a_client_fetches_all_blocks_and_starts_again_if_the_version_changes() {
    let mut bench = Bench::new();
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let part = |request: &Message, number, more, payload: &'static [u8], etag: &'static [u8]| {
        let mut reply = reply_to(request, Code::CONTENT, payload);
        reply.options.add_block(Number::BLOCK2, block(number, more, 0));
        reply.options.add(Number::ETAG, etag);
        reply
    };
    let sent = bench.receive(peer(1), &part(&sent[0], 0, true, &[1; 16], b"1"));
    assert_eq!(sent[0].options.block(Number::BLOCK2), Ok(Some(block(1, false, 0))));
    let sent = bench.receive(peer(1), &part(&sent[0], 1, false, &[2; 3], b"2"));
    assert_eq!(sent[0].options.block(Number::BLOCK2), Ok(None), "it starts again");
    let sent = bench.receive(peer(1), &part(&sent[0], 0, true, &[3; 16], b"2"));
    bench.receive(peer(1), &part(&sent[0], 1, false, &[2; 3], b"2"));
    assert_eq!(bench.success().body, [&[3; 16][..], &[2; 3]].concat());
}

#[test]
fn a_client_sends_smaller_blocks_if_the_server_asks() {
    let mut bench = Bench::new();
    let body = Bytes::from((0..=255).collect::<Vec<u8>>().repeat(8));
    let (_, sent) = bench
        .request(peer(1), Request::new(Code::PUT, "/a").with_body(Format::OCTETS, body.clone()));
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(0, true, 6))));
    assert_eq!(sent[0].options.uint(Number::SIZE1), Some(2048));
    // RFC 7959, figure 8: the server acknowledges the block, and asks for smaller ones from then on.
    let mut reply = reply_to(&sent[0], Code::CONTINUE, b"");
    reply.options.add_block(Number::BLOCK1, block(0, true, 5));
    let sent = bench.receive(peer(1), &reply);
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(2, true, 5))));
    assert_eq!(sent[0].payload, body[1024..1536]);
    // With 4.13 it refuses the block, and the body starts again.
    let mut reply = reply_to(&sent[0], Code::REQUEST_ENTITY_TOO_LARGE, b"");
    reply.options.add_block(Number::BLOCK1, block(2, true, 4));
    let sent = bench.receive(peer(1), &reply);
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(0, true, 4))));
    // With 4.08 the server lost the blocks before.
    let mut reply = reply_to(&sent[0], Code::CONTINUE, b"");
    reply.options.add_block(Number::BLOCK1, block(0, true, 4));
    let sent = bench.receive(peer(1), &reply);
    let sent = bench.receive(peer(1), &reply_to(&sent[0], Code::REQUEST_ENTITY_INCOMPLETE, b""));
    assert_eq!(sent[0].options.block(Number::BLOCK1), Ok(Some(block(0, true, 4))));
    // Without a smaller block, 4.13 is final.
    bench.receive(peer(1), &reply_to(&sent[0], Code::REQUEST_ENTITY_TOO_LARGE, b""));
    assert_eq!(bench.success().code, Code::REQUEST_ENTITY_TOO_LARGE);
}

#[test]
fn a_response_beyond_the_limit_is_not_fetched() {
    let mut bench = Bench::with(Config { response_limit: 24, ..Config::default() });
    let (_, sent) = bench.request(peer(1), Request::new(Code::GET, "/a"));
    let mut reply = reply_to(&sent[0], Code::CONTENT, &[1; 16]);
    reply.options.add_block(Number::BLOCK2, block(0, true, 0));
    let sent = bench.receive(peer(1), &reply);
    let mut reply = reply_to(&sent[0], Code::CONTENT, &[1; 16]);
    reply.options.add_block(Number::BLOCK2, block(1, true, 0));
    bench.receive(peer(1), &reply);
    assert_eq!(bench.failure(), RequestError::ResponseTooLong);
}

#[test]
fn an_upload_continues_after_a_new_handshake_of_the_same_device() {
    let (mut client, mut server) = (Bench::new(), Bench::new());
    let (before, after) = (peer(1), Peer { session: 99, ..peer(1) });
    server.endpoint.identify(before, *b"device-1");
    let body = Bytes::from(vec![5; 5000]);
    let request = Request::new(Code::PUT, "/bundles").with_body(Format::CBOR_SEQ, body.clone());
    let id =
        client.endpoint.request(client.now, before, request, Duration::from_secs(600)).unwrap();
    let mut sent = client.sent();
    for _ in 0..2 {
        let replies = server.receive(before, &sent[0]);
        sent = client.receive(before, &replies[0]);
    }
    // The session ends. The client makes a new one, and moves its request.
    server.endpoint.identify(after, *b"device-1");
    server.endpoint.forget(before);
    client.endpoint.move_requests(client.now, before, after);
    sent = client.sent();
    assert_eq!(
        sent[0].options.block(Number::BLOCK1).unwrap().unwrap().number,
        2,
        "the third block"
    );
    for _ in 0..2 {
        let replies = server.receive(after, &sent[0]);
        sent = client.receive(after, &replies[0]);
    }
    assert_eq!(server.receive(after, &sent[0]), []);
    let (exchange, request) = server.requested();
    assert_eq!(request.body, body);
    let replies = server.respond(exchange, Response::new(Code::CHANGED));
    client.receive(after, &replies[0]);
    let expected = RequestId { peer: after, number: id.number };
    assert!(
        matches!(client.events.pop(), Some(Event::Response { id, response: Ok(_) }) if id == expected)
    );
}

#[test]
fn a_patient_upload_survives_an_outage_that_is_longer_than_all_retransmissions() {
    let (mut client, mut server) = (Bench::new(), Bench::new());
    let body = Bytes::from(vec![5; 3000]);
    let request = Request::new(Code::PUT, "/bundles").with_body(Format::CBOR_SEQ, body.clone());
    client.endpoint.request(client.now, peer(1), request, Duration::from_secs(600)).unwrap();
    let sent = client.sent();
    let replies = server.receive(peer(1), &sent[0]);
    client.receive(peer(1), &replies[0]);
    let lost = client.pass(150.0);
    assert!(lost.len() > 5, "the second block is sent again and again");
    server.now = client.now;
    let replies = server.receive(peer(1), lost.last().unwrap());
    let sent = client.receive(peer(1), &replies[0]);
    server.receive(peer(1), &sent[0]);
    assert_eq!(server.requested().1.body, body);
}

/// The attacker knows the address of the victim, but not the tag of its body.
#[test]
fn forged_blocks_without_the_tag_do_not_change_a_body() {
    let mut bench = Bench::new();
    assert_eq!(bench.receive(stranger(), &tagged(1, 0, true, &[1; 16]))[0].code, Code::CONTINUE);
    bench.receive(stranger(), &put(2, 0, true, &[9; 16]));
    bench.receive(stranger(), &put(3, 1, false, &[9; 16]));
    let (_, forged) = bench.requested();
    assert_eq!(forged.body, [9; 32][..]);
    assert_eq!(bench.receive(stranger(), &tagged(4, 1, false, &[2; 16])), []);
    let (_, request) = bench.requested();
    assert_eq!(request.body, [[1; 16], [2; 16]].concat());
}

fn tagged(id: u16, number: u32, more: bool, payload: &[u8]) -> Message {
    let mut message = put(id, number, more, payload);
    message.options.add(Number::REQUEST_TAG, &b"tag"[..]);
    message
}

#[test]
fn another_body_with_a_used_tag_is_another_request() {
    let mut bench = Bench::new();
    let single = |id, payload: &'static [u8]| {
        let mut message = tagged(id, 0, false, payload);
        message.options.remove(Number::BLOCK1);
        message
    };
    bench.receive(peer(1), &single(1, b"first"));
    let (first, _) = bench.requested();
    assert_eq!(bench.receive(peer(1), &single(2, b"first")), []);
    assert!(bench.events.is_empty(), "it is in progress");
    bench.receive(peer(1), &single(3, b"second"));
    let (second, request) = bench.requested();
    assert_eq!(request.body, "second");
    let sent = bench.respond(first, Response::new(Code::CREATED));
    assert_eq!((sent[0].id, sent[0].code), (2, Code::CREATED));
    bench.respond(second, Response::new(Code::CHANGED));
    assert_eq!(bench.receive(peer(1), &single(4, b"second"))[0].code, Code::CHANGED);
    bench.receive(peer(1), &single(5, b"third"));
    assert_eq!(bench.requested().1.body, "third");
}

#[test]
fn another_body_in_blocks_with_a_used_tag_and_the_same_last_block_is_another_request() {
    let mut bench = Bench::new();
    let end = [9; 3];
    for (round, byte) in [1, 2, 3].into_iter().enumerate() {
        let id = round as u16 * 10;
        let sent = bench.receive(peer(1), &tagged(id, 0, true, &[byte; 16]));
        assert_eq!(sent[0].code, Code::CONTINUE);
        assert_eq!(bench.receive(peer(1), &tagged(id + 1, 1, false, &end)), []);
        let (exchange, request) = bench.requested();
        assert_eq!(request.body, [&[byte; 16][..], &end].concat());
        bench.respond(exchange, Response::new(Code::CHANGED));
        // The response was lost: the client sends its last block, or the whole body, again.
        let sent = bench.receive(peer(1), &tagged(id + 2, 1, false, &end));
        assert_eq!(sent[0].code, Code::CHANGED);
        bench.receive(peer(1), &tagged(id + 3, 0, true, &[byte; 16]));
        let sent = bench.receive(peer(1), &tagged(id + 4, 1, false, &end));
        assert_eq!((sent[0].code, bench.events.len()), (Code::CHANGED, 0));
    }
}

#[test]
fn the_paths_of_bodies_in_blocks_count_as_memory() {
    let limits = Limits { upload_bytes: 10_000, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    let long = |id: u16, name: u32, number, more| {
        let mut message = put(id, number, more, &[1; 16]);
        for part in 0..4 {
            message.options.add(Number::URI_QUERY, format!("{name:0200}{part}"));
        }
        message
    };
    for name in 0..16 {
        let sent = bench.receive(peer(1), &long(name, name.into(), 0, true));
        assert_eq!(sent[0].code, Code::CONTINUE);
    }
    let code = |bench: &mut Bench, name: u16| {
        bench.receive(peer(1), &long(100 + name, name.into(), 1, true))[0].code
    };
    assert_eq!(code(&mut bench, 15), Code::CONTINUE, "the newest is kept");
    assert_eq!(code(&mut bench, 0), Code::REQUEST_ENTITY_INCOMPLETE, "the oldest is dropped");
}

#[test]
fn a_peer_with_many_bodies_drops_its_own_and_not_those_of_others() {
    let limits = Limits { upload_bytes: 50_000, ..Limits::default() };
    let mut bench = Bench::with(Config { limits, ..Config::default() });
    let (victim, network) = (peer(1), |session| Peer { session, ..peer(2) });
    bench.receive(victim, &put(1, 0, true, &[1; 16]));
    bench.endpoint.identify(peer(3), *b"device-3");
    for number in 0..1000u16 {
        let of = [network(u64::from(number) + 10), stranger(), peer(3)][usize::from(number % 3)];
        let mut message = put(number + 10, 0, true, &[2; 16]);
        message.options.add(Number::REQUEST_TAG, number.to_be_bytes().to_vec());
        bench.receive(of, &message);
    }
    assert_eq!(bench.receive(victim, &put(2, 1, true, &[1; 16]))[0].code, Code::CONTINUE);
}
