//! Tests of the resources of health: sizes, formats, who may change the policy, and what a gateway keeps
//! of its nodes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use moteseal_core::health::{Group, Health, Item, Policy, SHORTEST_ON_HOSTS, SHORTEST_ON_MOTES};
use moteseal_core::record::DeviceId;
use moteseal_net::coap::message::{Kind, Message, Number, Token};
use moteseal_net::coap::{
    Code, Config, Endpoint, Event, Format, Output, Owner, Peer, Request, Response,
};
use moteseal_net::health::{Heard, NodeHealth, NodeList, NodeReport, Nodes, NotTaken, content};

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
    let (hour, day) = (3600, 86_400);
    // With tokens of 8 bytes, as our clients without DTLS use them, for a day; with short ones for a month.
    let sizes = [(hour, 8), (day, 8), (30 * day, 3)]
        .map(|(seconds, token)| (seconds, token, notification(&after(seconds), token)));
    println!("{sizes:?}");
    for (seconds, token, length) in sizes {
        assert!(length <= LARGEST, "{length} bytes after {seconds} s with a token of {token}");
    }
    // However long the node runs, the record stays below the largest of the paper's three packets.
    let mut longest = after(u32::MAX);
    let items: Vec<Item> = longest.values().map(|(item, _)| item).collect();
    for item in items {
        longest.set(item, i64::from(i32::MIN));
    }
    longest.boot = u32::MAX;
    let length = notification(&longest, 8);
    println!("never more than {length}");
    assert!(length < 150, "{length}");
}

#[test]
fn every_format_has_the_values_and_others_are_not_acceptable() {
    let health = after(86_400);
    let body = |format: Option<Format>| content("mote", (&health, Duration::ZERO), format);
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

/// A report that a node with this session makes.
fn report(session: u64, health: Health) -> NodeReport {
    NodeReport { session, interval_s: 30, health }
}

/// Reports as a node that accepts each session that is offered. Returns its session.
fn tell(nodes: &mut Nodes, now: Instant, id: DeviceId, health: Health) -> u64 {
    let fresh = now.elapsed().as_nanos() as u64 ^ u64::from(id.0[0]) << 56 | 1;
    let offered = match nodes.take(now, id, &report(0, health), fresh) {
        Err(NotTaken::OtherSession(Some(offered))) => offered,
        other => panic!("{other:?}"),
    };
    nodes.take(now, id, &report(offered, health), fresh).unwrap();
    offered
}

#[test]
fn a_gateway_keeps_the_newest_record_of_each_node_of_the_roster() {
    let (mut nodes, now) = (nodes(), Instant::now());
    assert_eq!(nodes.take(now, device(9), &report(0, after(1)), 1), Err(NotTaken::UnknownNode));
    let session = tell(&mut nodes, now, device(2), after(100));
    nodes.take(now, device(2), &report(session, after(130)), 1).unwrap();
    for repeated in [130, 100] {
        let repeated = report(session, after(repeated));
        assert_eq!(nodes.take(now, device(2), &repeated, 1), Err(NotTaken::NotNewer));
    }
    let later = now + Duration::from_millis(1500);
    let list = nodes.list(later);
    assert_eq!(NodeList::decode(&list.encode()), Ok(list.clone()));
    let heard: Vec<_> = list.nodes.iter().map(|node| (&*node.name, node.heard)).collect();
    assert_eq!(
        heard,
        [
            ("mote1", None),
            ("mote2", Some(Heard { age_ms: 1500, interval_s: 30, health: after(130) })),
            ("mote3", None),
        ]
    );
    assert_eq!(nodes.changed(), ["/h/node/mote2", "/h/recent"]);
    assert!(nodes.changed().is_empty());
    // A later version of the roster.
    nodes.set_members([(device(2), "renamed".to_owned()), (device(4), "new".to_owned())]);
    let list = nodes.list(now);
    assert_eq!(list.nodes.len(), 2);
    assert!(list.nodes[0].heard.is_some() && list.nodes[1].heard.is_none());
    // Observers of the old name learn that it is gone.
    let removed = ["/h/node/mote1", "/h/node/mote2", "/h/node/mote3"];
    assert_eq!(
        nodes.changed().into_iter().collect::<BTreeSet<_>>(),
        removed.map(str::to_owned).into()
    );
}

#[test]
fn a_restarted_node_begins_another_session_also_if_it_has_lost_its_state() {
    let (mut nodes, now) = (nodes(), Instant::now());
    let of = Health::new;
    let mut sessions = vec![tell(&mut nodes, now, device(1), of(1, 1_000_000))];
    // The count of starts is the same, or smaller, or has wrapped.
    for (boot, uptime_s) in [(1, 30), (1, 20), (u32::MAX, 7), (0, 3), (5, 1)] {
        sessions.push(tell(&mut nodes, now, device(1), of(boot, uptime_s)));
        let heard = nodes.list(now).nodes[0].heard.unwrap().health;
        assert_eq!((heard.boot, heard.uptime_s), (boot, uptime_s));
    }
    // All reports of a session are of one start.
    let last = *sessions.last().unwrap();
    assert_eq!(nodes.take(now, device(1), &report(last, of(6, 2)), 1), Err(NotTaken::NotNewer));
    sessions.dedup();
    assert_eq!(sessions.len(), 6);
}

#[test]
fn recorded_reports_are_never_taken_again() {
    let (mut nodes, mut now) = (nodes(), Instant::now());
    let mut recorded = vec![report(0, after(1))];
    for start in 0..3 {
        let session = tell(&mut nodes, now, device(1), after(10 + start));
        recorded.extend((1..4).map(|step| report(session, after(100 * step))));
        for report in &recorded[recorded.len() - 3..] {
            nodes.take(now, device(1), report, 1).unwrap();
        }
    }
    let taken = nodes.list(now).taken;
    // Also after a silence of a day, and by another gateway, which has no memory.
    let mut restarted = self::nodes();
    for silence in [0, 86_400] {
        now += Duration::from_secs(silence);
        for report in recorded.iter().chain(recorded.iter()) {
            nodes.take(now, device(1), report, 77).unwrap_err();
            restarted.take(now, device(1), report, 78).unwrap_err();
        }
    }
    assert_eq!((nodes.list(now).taken, restarted.list(now).taken), (taken, 0));
}

#[test]
fn a_session_is_offered_at_most_once_a_second_and_stays_until_it_is_used() {
    let (mut nodes, now) = (nodes(), Instant::now());
    let mut ask = |ms, fresh| {
        let now = now + Duration::from_millis(ms);
        nodes.take(now, device(1), &report(0, after(1)), fresh).unwrap_err()
    };
    let offers = [(0, 5), (10, 6), (999, 7), (1000, 8), (1500, 9), (2000, 10)];
    assert_eq!(
        offers.map(|(ms, fresh)| ask(ms, fresh)),
        [Some(5), None, None, Some(5), None, Some(5)].map(NotTaken::OtherSession)
    );
}

#[test]
fn a_session_is_replaced_after_an_hour_because_the_node_compares_its_clock_then() {
    let (mut nodes, start) = (nodes(), Instant::now());
    let session = tell(&mut nodes, start, device(1), after(1));
    let mut take = |seconds, session, uptime_s, fresh| {
        let report = report(session, after(uptime_s));
        nodes.take(start + Duration::from_secs(seconds), device(1), &report, fresh)
    };
    assert_eq!(take(3599, session, 3600, 8), Ok(None));
    // It is offered with each report until it is used.
    assert_eq!([take(3600, session, 3601, 9), take(3630, session, 3631, 10)], [Ok(Some(9)); 2]);
    assert_eq!(take(3631, 9, 3631, 11), Ok(None));
    assert_eq!(take(3660, 9, 3661, 12), Ok(None));
    assert_eq!(take(3661, session, 3700, 13), Err(NotTaken::OtherSession(Some(13))));
}

#[test]
fn a_silent_node_is_not_shown_as_if_it_were_heard() {
    let (mut nodes, now) = (nodes(), Instant::now());
    tell(&mut nodes, now, device(1), after(86_400));
    let get = |at, accept| {
        let request = Request { accept, ..Request::new(Code::GET, "/h/node/mote1") };
        nodes.respond(now + Duration::from_secs(at), &after(1), &request).unwrap()
    };
    assert_eq!((get(10, None).code, get(10, None).max_age), (Code::CONTENT, Some(50)));
    let pack: serde_json::Value =
        serde_json::from_slice(&get(10, Some(Format::SENML_JSON)).body).unwrap();
    assert_eq!(pack[0]["bt"], -10);
    assert_eq!(
        (get(90, None).code, get(91, None).code),
        (Code::CONTENT, Code::SERVICE_UNAVAILABLE)
    );
    let page = |at| {
        let mut page = String::new();
        nodes.render(now + Duration::from_secs(at), ("gateway", &Health::new(7, 60)), &mut page);
        page
    };
    let of_node = "{node=\"mote1\",role=\"device\"}";
    let has = |page: &str, name: &str| page.contains(&format!("moteseal_health_{name}{of_node}"));
    for (at, is_heard) in [(90, true), (91, false)] {
        let page = page(at);
        assert!(has(&page, "age_seconds") && has(&page, "silent"), "{page}");
        for name in ["boot", "dev_temperature", "link_bad_crc_total"] {
            assert_eq!(has(&page, name), is_heard, "{name} {page}");
        }
    }
}

#[test]
fn the_recent_records_fit_a_datagram_and_number_what_was_taken() {
    let now = Instant::now();
    let mut nodes = Nodes::new((0..100).map(|n| (device(n), format!("a-long-name-of-mote-{n}"))));
    for number in 0..100 {
        tell(&mut nodes, now, device(number), after(86_400));
    }
    let request = Request { observes: true, ..Request::new(Code::GET, "/h/recent") };
    let response = nodes.respond(now, &after(1), &request).unwrap();
    assert!(response.accepts_observer && response.is_periodic);
    assert!(response.body.len() <= 1024, "{}", response.body.len());
    let list = NodeList::decode(&response.body).unwrap();
    assert_eq!((list.taken, list.nodes.len()), (100, 6));
    assert_eq!(list.nodes[5].name, "a-long-name-of-mote-99");
}

#[test]
fn the_metrics_have_a_label_for_each_node_of_the_roster_only() {
    let now = Instant::now();
    let mut nodes =
        Nodes::new([(device(1), "a\"b\\c".to_owned()), (device(2), "silent".to_owned())]);
    tell(&mut nodes, now, device(1), after(86_400));
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
    assert!(!page.contains("node=\"silent\""), "{page}");
}

#[test]
fn a_node_has_a_resource_by_its_name() {
    let (mut nodes, now) = (nodes(), Instant::now());
    tell(&mut nodes, now, device(3), after(7));
    let get = |path: &str| nodes.respond(now, &after(1), &Request::new(Code::GET, path)).unwrap();
    assert_eq!(Health::decode(&get("/h/node/mote3").body), Ok(after(7)));
    assert_eq!(get("/h/node/mote1").code, Code::SERVICE_UNAVAILABLE);
    assert_eq!(get("/h/node/other").code, Code::NOT_FOUND);
    assert_eq!(get("/h/nbr").body[0], 0x84);
    assert!(nodes.respond(now, &after(1), &Request::new(Code::GET, "/h")).is_none());
}
