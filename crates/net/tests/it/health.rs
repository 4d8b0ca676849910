//! Tests of the resources of health: sizes, formats, who may change the policy, and what a gateway keeps
//! of its nodes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use moteseal_core::health::{Group, Health, Item, Policy, SHORTEST_ON_HOSTS, SHORTEST_ON_MOTES};
use moteseal_core::record::DeviceId;
use moteseal_net::coap::message::{Kind, Message, Number, Token};
use moteseal_net::coap::{
    Code, Config, Endpoint, Event, Format, Output, Owner, Peer, Request, Response,
};
use moteseal_net::health::{NodeHealth, NodeList, Nodes, NotTaken, content};

/// The IPv6 and UDP headers of a datagram, in bytes.
const HEADERS: usize = 40 + 8;
/// The largest datagram of the target. RERUM D5.3 needs three: of 110, 112 and 150 bytes.
const LARGEST: usize = 108;

/// Returns the counters of RERUM D5.3, section 3.2 (temperature, link layer, IP) of a node after a time
/// with pings every two seconds, as in the paper, and some interference.
fn after(seconds: u32) -> Health {
    let pings = i64::from(seconds / 2);
    let mut health = Health::new(3, seconds);
    health.set(Item::Temperature, 235);
    let link = [
        (Item::LinkTooLong, 0),
        (Item::LinkTooShort, 0),
        (Item::LinkBadSync, pings / 400),
        (Item::LinkBadCrc, pings / 100),
        (Item::LinkSent, pings + pings / 15),
        (Item::LinkReceived, pings),
        (Item::LinkCollisions, pings / 200),
    ];
    for (item, value) in link {
        health.set(item, value);
    }
    health.set(Item::IpReceived, pings).set(Item::IpSent, pings + pings / 15);
    health.set(Item::IpForwarded, 0).set(Item::IpDropped, pings / 1000);
    health
}

/// Observes `/h` with a token of this length. Returns the length of the datagram of a notification that
/// is not confirmable, with its headers.
fn notification(health: &Health, token: usize) -> usize {
    let now = Instant::now();
    let mut endpoint = Endpoint::new(Config::default(), [7; 32], now);
    let peer = Peer { address: SocketAddr::from(([192, 0, 2, 1], 5683)), session: 1 };
    let mut message = Message::new(Kind::Confirmable, Code::GET, 1);
    message.token = Token::new(&[0x5a; 8][..token]);
    message.options.add_uint(Number::OBSERVE, 0);
    message.options.add(Number::URI_PATH, "h");
    endpoint.receive(now, peer, &message.encode());
    let node = NodeHealth::new("mote", (Policy::FIXED, SHORTEST_ON_MOTES), {
        let health = *health;
        move || health
    });
    let represent = |request: &Request| node.respond(now, Owner::Peer(peer), request).unwrap();
    let mut length = 0;
    for _ in 0..3 {
        while let Some(output) = endpoint.poll() {
            match output {
                Output::Event(Event::Request { id, request, .. }) => {
                    endpoint.respond(now, id, represent(&request));
                }
                Output::Send(_, datagram) => {
                    let sent = Message::decode(&datagram).unwrap();
                    if sent.kind == Kind::Confirmable {
                        let ack = Message::new(Kind::Acknowledgement, Code::EMPTY, sent.id);
                        endpoint.receive(now, peer, &ack.encode());
                    } else if sent.kind == Kind::NonConfirmable {
                        assert_eq!(Health::decode(&sent.payload), Ok(*health));
                        length = datagram.len() + HEADERS;
                    }
                }
                Output::Event(_) => {}
            }
        }
        endpoint.notify(now, "/h", &mut |request| Some(represent(request)));
    }
    length
}

#[test]
fn the_counters_of_the_paper_fit_one_datagram_of_108_bytes() {
    let (hour, day, year) = (3600, 86_400, 365 * 86_400);
    // With tokens of 8 bytes, as clients without DTLS use them, for a day; with short ones for years.
    let sizes = [(hour, 8), (day, 8), (30 * day, 4), (year, 2), (3 * year, 2)]
        .map(|(seconds, token)| (seconds, token, notification(&after(seconds), token)));
    println!("{sizes:?}");
    for (seconds, token, length) in sizes {
        assert!(length <= LARGEST, "{length} bytes after {seconds} s with a token of {token}");
    }
    // One record a period, against pings of 104 bytes in both directions: the paper's figure 48.
    let overhead = |interval: f64| 108.0 / (2.0 * 104.0 * 30.0 / interval);
    assert!(overhead(4.0) <= 0.07, "{}", overhead(4.0));
    assert!(overhead(4.0) / 16.0 <= 0.02);
}

#[test]
fn every_format_has_the_values_and_others_are_not_acceptable() {
    let health = after(86_400);
    let body = |format: Option<Format>| content("mote", &health, format);
    assert_eq!(Health::decode(&body(None).body), Ok(health));
    assert_eq!(body(None).format, Some(Format::CBOR));
    let senml: serde_json::Value =
        serde_json::from_slice(&body(Some(Format::SENML_JSON)).body).unwrap();
    assert_eq!(senml[0]["bn"], "mote/");
    let find = |name: &str| {
        let records = senml.as_array().unwrap();
        records.iter().find(|record| record["n"] == name).unwrap().clone()
    };
    assert_eq!(
        (&find("dev/temperature")["v"], &find("dev/temperature")["u"]),
        (&23.5.into(), &"Cel".into())
    );
    assert_eq!(find("link/bad_crc")["v"], 432);
    assert_eq!(find("uptime")["v"], 86_400);
    let cbor = body(Some(Format::SENML_CBOR)).body;
    moteseal_core::cbor::check_item(&cbor).unwrap();
    assert_eq!(cbor[0], 0x80 | 14);
    let json: serde_json::Value = serde_json::from_slice(&body(Some(Format::JSON)).body).unwrap();
    assert_eq!(json["link"]["received"], 43_200);
    assert_eq!(body(Some(Format::TEXT)).code, Code::NOT_ACCEPTABLE);
}

fn node() -> Arc<NodeHealth> {
    NodeHealth::new("mote", (Policy::VARIABLE, SHORTEST_ON_HOSTS), || after(100))
}

fn owner(address: [u8; 4], session: u64) -> Owner {
    Owner::Peer(Peer { address: SocketAddr::from((address, 1)), session })
}

fn ask(node: &NodeHealth, owner: Owner, request: &Request) -> Response {
    node.respond(Instant::now(), owner, request).unwrap()
}

#[test]
fn each_group_has_a_resource_with_its_values_only() {
    let node = node();
    let me = owner([127, 0, 0, 1], 0);
    let link = ask(&node, me, &Request::new(Code::GET, "/h/link"));
    let health = Health::decode(&link.body).unwrap();
    assert_eq!((health.boot, health.get(Item::LinkReceived)), (3, Some(50)));
    assert!(health.values().all(|(item, _)| item.group() == Group::Link));
    assert_eq!(ask(&node, me, &Request::new(Code::PUT, "/h")).code, Code::METHOD_NOT_ALLOWED);
    assert!(node.respond(Instant::now(), me, &Request::new(Code::GET, "/h/none")).is_none());
    assert!(node.respond(Instant::now(), me, &Request::new(Code::GET, "/hh")).is_none());
}

#[test]
fn the_policy_is_changed_over_dtls_or_from_the_node_itself_only() {
    let node = node();
    let put =
        |body: &'static [u8], format| Request::new(Code::PUT, "/h/conf").with_body(format, body);
    let json = put(br#"{"period": 60, "threshold": 0}"#, Format::JSON);
    let stranger = owner([192, 0, 2, 7], 0);
    assert_eq!(ask(&node, stranger, &json).code, Code::UNAUTHORIZED);
    for allowed in [owner([127, 0, 0, 1], 0), owner([192, 0, 2, 7], 5), Owner::Device([1; 8])] {
        assert_eq!(ask(&node, allowed, &json).code, Code::CHANGED);
    }
    let get = Request { accept: Some(Format::JSON), ..Request::new(Code::GET, "/h/conf") };
    let policy: serde_json::Value =
        serde_json::from_slice(&ask(&node, stranger, &get).body).unwrap();
    assert_eq!(policy, serde_json::json!({ "period": 60, "min": 30, "threshold": 0 }));
    // {"min": 5}
    let me = owner([127, 0, 0, 1], 0);
    assert_eq!(
        ask(&node, me, &put(&[0xa1, 0x63, b'm', b'i', b'n', 5], Format::CBOR)).code,
        Code::CHANGED
    );
    let cbor = ask(&node, me, &Request::new(Code::GET, "/h/conf"));
    assert_eq!(&cbor.body[..6], &[0xa3, 0x63, b'm', b'i', b'n', 5]);
    let wrong: [(&[u8], &str); 5] = [
        (br#"{"min": 61}"#, "PolicyOutOfRange"),
        (br#"{"min": 0}"#, "PeriodTooShort"),
        (br#"{"other": 1}"#, "BadPolicy"),
        (b"{", "BadPolicy"),
        (b"\xa1", "Truncated"),
    ];
    for (body, name) in wrong {
        let request = Request { format: None, ..put(b"", Format::JSON) };
        let response = ask(&node, me, &Request { body: body.to_vec().into(), ..request });
        assert_eq!(response.code, Code::BAD_REQUEST);
        assert!(response.body.starts_with(name.as_bytes()), "{response:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_reports_at_its_period_and_at_once_after_the_policy_has_changed() {
    let uptime = Arc::new(Mutex::new(0));
    let start = tokio::time::Instant::now();
    let node = {
        let uptime = Arc::clone(&uptime);
        NodeHealth::new("node", (Policy::FIXED, SHORTEST_ON_HOSTS), move || {
            let seconds = u32::try_from(start.elapsed().as_secs()).unwrap();
            *uptime.lock().unwrap() = seconds;
            Health::new(1, seconds)
        })
    };
    let mut reports = node.reports();
    tokio::spawn(Arc::clone(&node).run());
    let mut times = Vec::new();
    for _ in 0..4 {
        reports.changed().await.unwrap();
        times.push(reports.borrow_and_update().unwrap().health.uptime_s);
    }
    assert_eq!(times, [0, 30, 60, 90]);
    let put =
        Request::new(Code::PUT, "/h/conf").with_body(Format::JSON, &br#"{"period":5,"min":5}"#[..]);
    assert_eq!(ask(&node, owner([127, 0, 0, 1], 0), &put).code, Code::CHANGED);
    reports.changed().await.unwrap();
    let next = reports.borrow_and_update().unwrap().health.uptime_s;
    assert!(next <= 95, "{next}");
}

fn device(number: u8) -> DeviceId {
    DeviceId([number; 8])
}

fn nodes() -> Nodes {
    Nodes::new((1..=3).map(|number| (device(number), format!("mote{number}"))))
}

#[test]
fn a_gateway_keeps_the_newest_record_of_each_node_of_the_roster() {
    let (mut nodes, now) = (nodes(), Instant::now());
    assert_eq!(nodes.take(now, device(9), &after(1)), Err(NotTaken::UnknownNode));
    nodes.take(now, device(2), &after(100)).unwrap();
    nodes.take(now, device(2), &after(130)).unwrap();
    for repeated in [130, 100] {
        assert_eq!(nodes.take(now, device(2), &after(repeated)), Err(NotTaken::NotNewer));
    }
    let later = now + Duration::from_millis(1500);
    let list = nodes.list(later);
    assert_eq!(NodeList::decode(&list.encode()), Ok(list.clone()));
    let heard: Vec<_> = list.nodes.iter().map(|node| (&*node.name, node.heard)).collect();
    assert_eq!(heard, [("mote1", None), ("mote2", Some((1500, after(130)))), ("mote3", None)]);
    assert_eq!(nodes.changed(), ["/h/node/mote2", "/h/recent"]);
    assert!(nodes.changed().is_empty());
    // A later version of the roster.
    nodes.set_members([(device(2), "renamed".to_owned()), (device(4), "new".to_owned())]);
    let list = nodes.list(now);
    assert_eq!(list.nodes.len(), 2);
    assert!(list.nodes[0].heard.is_some() && list.nodes[1].heard.is_none());
}

#[test]
fn a_restart_is_newer_and_lost_state_is_accepted_after_ten_minutes() {
    let (mut nodes, now) = (nodes(), Instant::now());
    let of = Health::new;
    nodes.take(now, device(1), &of(u32::MAX, 1000)).unwrap();
    nodes.take(now, device(1), &of(0, 1)).unwrap();
    // An old record, as somebody who has copied a frame repeats it.
    assert_eq!(nodes.take(now, device(1), &of(u32::MAX, 2000)), Err(NotTaken::NotNewer));
    nodes.take(now, device(1), &of(5, 1)).unwrap();
    assert_eq!(nodes.take(now, device(1), &of(1, 1)), Err(NotTaken::NotNewer));
    nodes.take(now + Duration::from_secs(600), device(1), &of(1, 1)).unwrap();
}

#[test]
fn the_recent_records_fit_a_datagram_and_number_what_was_taken() {
    let now = Instant::now();
    let mut nodes = Nodes::new((0..100).map(|n| (device(n), format!("a-long-name-of-mote-{n}"))));
    for number in 0..100 {
        nodes.take(now, device(number), &after(86_400)).unwrap();
    }
    let request = Request { observes: true, ..Request::new(Code::GET, "/h/recent") };
    let response = nodes.respond(now, &after(1), &request).unwrap();
    assert!(response.accepts_observer && response.is_periodic);
    assert!(response.body.len() <= 1024, "{}", response.body.len());
    let list = NodeList::decode(&response.body).unwrap();
    assert_eq!((list.taken, list.nodes.len()), (100, 8));
    assert_eq!(list.nodes[7].name, "a-long-name-of-mote-99");
}

#[test]
fn the_metrics_have_a_label_for_each_node_of_the_roster_only() {
    let now = Instant::now();
    let mut nodes =
        Nodes::new([(device(1), "a\"b\\c".to_owned()), (device(2), "silent".to_owned())]);
    nodes.take(now, device(1), &after(86_400)).unwrap();
    let mut page = String::new();
    nodes.render(now, ("gateway", &Health::new(7, 60)), &mut page);
    assert!(
        page.contains(
            "moteseal_health_dev_temperature{node=\"a\\\"b\\\\c\",role=\"device\"} 23.5\n"
        ),
        "{page}"
    );
    assert!(page.contains("# TYPE moteseal_health_link_bad_crc_total counter\n"), "{page}");
    assert!(page.contains("moteseal_health_boot{node=\"gateway\",role=\"gateway\"} 7\n"), "{page}");
    assert!(!page.contains("silent"), "{page}");
}

#[test]
fn a_node_has_a_resource_by_its_name_and_by_its_id() {
    let (mut nodes, now) = (nodes(), Instant::now());
    nodes.take(now, device(3), &after(7)).unwrap();
    let get = |path: &str| nodes.respond(now, &after(1), &Request::new(Code::GET, path)).unwrap();
    for path in ["/h/node/mote3".to_owned(), format!("/h/node/{}", device(3))] {
        assert_eq!(Health::decode(&get(&path).body), Ok(after(7)), "{path}");
    }
    assert_eq!(get("/h/node/mote1").code, Code::SERVICE_UNAVAILABLE);
    assert_eq!(get("/h/node/other").code, Code::NOT_FOUND);
    assert_eq!(get("/h/nbr").body[0], 0x84);
    assert!(nodes.respond(now, &after(1), &Request::new(Code::GET, "/h")).is_none());
}
