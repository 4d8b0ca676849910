//! `moteseal hub` when a disk is full, a broker restarts, a device may not seal yet, or a link of
//! broadcasts fails; and configurations and clients that it refuses.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::hub_home::{Home, Process, metric, page, request};

const LONG: Duration = Duration::from_secs(120);

fn until(what: &str, home: &Home, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "not in time: {what}\n{}", home.log("hub"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Publishes the numbers of a range with QoS 1, and waits until the broker has them.
fn publish(home: &Home, topic: &str, numbers: std::ops::Range<u64>) {
    use std::io::Write as _;
    let (mut process, mut stdin) = home.publish_lines(topic);
    for n in numbers {
        writeln!(stdin, "{{\"n\": {n}}}").unwrap();
    }
    drop(stdin);
    assert!(process.wait().unwrap().success());
}

/// Limits the size of the files that a process writes.
fn limit_files(process: &Process, bytes: &str) {
    let pid = process.0.id().to_string();
    let limit = format!("--fsize={bytes}:");
    assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
}

/// A limit on file sizes has the same effect as a full disk, and the test can lift it.
#[test]
fn a_full_disk_multiplies_no_message_and_a_restarted_broker_loses_none() {
    let names = ["sensor0".to_owned(), "sensor1".to_owned()];
    let mut home = Home::new(&names, "2s");
    let source = |name: &str| {
        format!("[[source]]\ndevice = \"{name}\"\nmqtt = \"home/{name}\"\ncolumns = [\"n::u32\"]\n")
    };
    home.configure(&names.iter().map(|name| source(name)).collect::<String>());
    let (hub, pages) = home.hub();
    let all = |home: &Home, numbers: std::ops::Range<u64>| {
        names.iter().for_each(|name| publish(home, &format!("home/{name}"), numbers.clone()));
    };
    all(&home, 0..50);
    names.iter().for_each(|name| drop(home.wait_for_rows(name, 50)));
    limit_files(&hub, "1");
    all(&home, 50..150);
    // The log is a file, too, so that it does not tell. The devices fail and start again.
    std::thread::sleep(Duration::from_millis(2500));
    let counts = |home: &Home| {
        let metrics = page(&pages, "/metrics");
        let count = |name: &String| {
            metric(&metrics, &format!("moteseal_hub_readings_total{{source=\"{name}\"}}"))
                .unwrap_or_else(|| panic!("{metrics}\n{}", home.log("hub")))
        };
        names.iter().map(count).collect::<Vec<_>>()
    };
    assert_eq!(counts(&home), [50.0, 50.0], "readings count although they are not durable");
    limit_files(&hub, "unlimited");
    for name in &names {
        home.wait_for_rows(name, 150);
    }
    // No process was killed, and no connection lost: each message is one reading.
    assert_eq!(counts(&home), [150.0, 150.0]);
    let port = home.broker.as_ref().unwrap().port;
    all(&home, 150..200);
    home.restart_broker(port);
    all(&home, 200..250);
    for name in &names {
        home.wait_for_rows(name, 250);
    }
    std::thread::sleep(Duration::from_secs(3));
    for name in &names {
        let mut counts = BTreeMap::new();
        for row in home.wait_for_rows(name, 250) {
            *counts.entry(row["n"].as_u64().unwrap()).or_insert(0) += 1;
        }
        assert!(counts.keys().copied().eq(0..250), "{name}: {counts:?}");
        // A broker that is killed before it has read an acknowledgement delivers the message again.
        let more: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        assert!(more.iter().all(|(n, _)| (150..200).contains(*n)), "{name}: {more:?}");
    }
    hub.stop();
}

#[test]
fn messages_wait_until_a_later_roster_lets_their_device_seal() {
    let home = Home::new(&["sensor0".to_owned()], "1s");
    for name in ["late", "other"] {
        home.done(&["key", "new", "--out", &format!("keys/{name}")]);
    }
    // The epochs have one second, so that their numbers are Unix times.
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let add = |name: &str, seconds: u64| {
        let from = &format!("@{}", now() + seconds);
        let roster = ["--roster", "roster.cbor", "--operator", "keys/op.key.pem"];
        let device = format!("{name}=keys/{name}.pub.pem");
        let rest = ["--device", &device, "--from", from];
        home.done(&[&["roster", "add"][..], &roster, &rest].concat());
    };
    add("late", 10);
    let begin = Instant::now() + Duration::from_secs(11);
    let roster = ["--roster", "roster.cbor", "--operator", "keys/op.pub.pem"];
    let key = ["key", "link", "--group-secret", "keys/link.key", "--device", "late"];
    home.done(&[&key[..], &roster, &["--out", "keys/late.link.key"]].concat());
    home.configure("[[source]]\ndevice = \"late\"\nmqtt = \"home/late\"\ncolumns = [\"n::u32\"]\n");
    let (hub, pages) = home.hub();
    publish(&home, "home/late", 0..20);
    until("the device cannot seal", &home, || home.log("hub").contains("its messages wait"));
    assert!(Instant::now() < begin, "the test is too slow");
    let metrics = page(&pages, "/metrics");
    assert!(!metrics.contains("moteseal_hub_refused_total{"), "{metrics}");
    std::thread::sleep(begin.saturating_duration_since(Instant::now()));
    // Any later version makes the hub try again.
    add("other", 3600);
    let rows = home.wait_for_rows("late", 20);
    assert!(rows.iter().map(|row| row["n"].as_u64().unwrap()).eq(0..20), "{rows:?}");
    hub.stop();
}

#[test]
fn a_link_of_broadcasts_that_fails_does_not_stop_the_hub() {
    let home = Home::new(&["hall".to_owned()], "2s");
    home.done(&["key", "new", "--out", "keys/base"]);
    // An address of documentation, which no interface of this machine has.
    let url = "udp://239.1.2.3:5000?interface=192.0.2.1";
    home.configure(&format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\ndevice = \"hall\"\nhttp = \"/hall\"\ncolumns = [\"n::u32\"]\n\
         [broadcast]\nca = [\"keys/base.pub.pem\"]\n[[broadcast.link]]\nurl = \"{url}\"\n"
    ));
    let (hub, urls) = home.service_with(&["hub", "run", "hub.toml"], 2);
    let is_deaf = || page(&urls[0], "/readyz").contains("broadcasts are not received");
    until("the link has failed", &home, is_deaf);
    std::thread::sleep(Duration::from_millis(1200));
    assert!(post(&urls[1], "", "{\"n\": 1}").starts_with("HTTP/1.1 204"), "{}", home.log("hub"));
    assert!(home.log("hub").contains("NoSuchInterface"), "{}", home.log("hub"));
    hub.stop();
}

/// Posts a message to `/hall`, with further header lines.
fn post(url: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let head = "POST /hall HTTP/1.1\r\nHost: x\r\nConnection: close\r\n";
    request(url, &format!("{head}{headers}Content-Length: {length}\r\n\r\n{body}"))
}

#[test]
fn unsafe_configurations_and_clients_that_are_not_meant_are_refused() {
    let names = ["hall".to_owned(), "cellar".to_owned()];
    let home = Home::new(&names, "2s");
    let hall =
        "[[source]]\ndevice = \"hall\"\nhttp = \"/hall\"\ncolumns = [\"n::u32\", \"v:V:u8?\"]\n";
    let refused = |text: &str| {
        home.configure(text);
        let output = home.run(&["hub", "run", "hub.toml", "--check"]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        String::from_utf8(output.stderr).unwrap()
    };
    let open = refused(&format!("[http]\nlisten = \"0.0.0.0:0\"\n{hall}"));
    assert!(open.contains("http.token_file") && open.contains("token"), "{open}");
    let local = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let twice = hall.replace("\"hall\"", "\"cellar\"");
    let twice = refused(&format!("{local}{hall}{twice}"));
    assert!(twice.contains("cellar.http") && twice.contains("another source"), "{twice}");
    let broadcast = "[broadcast]\nca = [\"keys/gateway.pub.pem\"]\n[[broadcast.link]]\n\
                     url = \"udp://239.1.2.3:5000\"\n[[broadcast.topic]]\nlabel = \"lamp\"\n";

    // Only these two clients may send: a program of this machine, and one sender of datagrams.
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cellar = format!(
        "[[source]]\ndevice = \"cellar\"\nudp = \"127.0.0.1:{port}\"\nsenders = [\"127.0.0.2\"]\ncolumns = [\"n::u32\"]\n"
    );
    home.configure(&format!("{local}{hall}{cellar}"));
    let (hub, urls) = home.service_with(&["hub", "run", "hub.toml"], 2);
    let web = post(&urls[1], "Origin: https://site.example\r\n", "{\"n\": 1}");
    assert!(web.starts_with("HTTP/1.1 403"), "{web}");
    assert!(post(&urls[1], "", "{\"n\": 1}").starts_with("HTTP/1.1 204"));
    for (sender, n) in [("127.0.0.1:0", 1), ("127.0.0.2:0", 2)] {
        let socket = UdpSocket::bind(sender).unwrap();
        socket.send_to(format!("{{\"n\": {n}}}").as_bytes(), ("127.0.0.1", port)).unwrap();
    }
    let readings = "moteseal_hub_readings_total{source=\"cellar\"}";
    until("a datagram", &home, || metric(&page(&urls[0], "/metrics"), readings) == Some(1.0));
    let metrics = page(&urls[0], "/metrics");
    let others = "moteseal_hub_refused_total{source=\"cellar\",reason=\"OtherSender\"}";
    assert_eq!(metric(&metrics, others), Some(1.0), "{metrics}");
    hub.stop();

    // A column keeps its id, also if it is moved.
    let inserted = hall.replace("[\"n", "[\"new::u8?\", \"n");
    let inserted = refused(&format!("{local}{inserted}"));
    for part in ["hall.columns", "ColumnIdChanged", "\"new::u8?#3\", \"n::u32#1\", \"v:V:u8?#2\""] {
        assert!(inserted.contains(part), "{part}: {inserted}");
    }
    let right =
        hall.replace("[\"n::u32\", \"v:V:u8?\"", "[\"new::u8?#3\", \"n::u32#1\", \"v:V:u8?#2\"");
    home.configure(&format!("{local}{right}"));
    home.done(&["hub", "run", "hub.toml", "--check"]);

    let start = |text: &str| {
        home.configure(text);
        let output = home.run(&["hub", "run", "hub.toml"]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        String::from_utf8(output.stderr).unwrap()
    };
    let wrong = start(&format!("{local}{right}{broadcast}mqtt = \"lamp/+/set\"\n"));
    assert!(wrong.contains("broadcast.topic") && wrong.contains("without + and #"), "{wrong}");
}
