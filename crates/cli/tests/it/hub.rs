//! `moteseal hub`: messages of sensors become verified rows of devices, whatever is killed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::hub_home::{Home, Publisher, metric, page, request};

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("sensor{number}")).collect()
}

/// Runs `moteseal hub try` with a message. Returns whether it succeeded, stdout and stderr.
fn trial(home: &Home, source: &str, message: &str) -> (bool, String, String) {
    let mut command = home.command(&["hub", "try", "--config", "hub.toml", "--source", source]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn messages_of_every_kind_of_source_become_verified_rows() {
    let mut devices = names(4);
    devices.push("hub-health".to_owned());
    let home = Home::new(&devices, "3s");
    let port = free_port();
    home.configure(&format!(
        "[health]\nlisten = \"127.0.0.1:0\"\nperiod = \"1s\"\ndevice = \"hub-health\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\ndevice = \"sensor0\"\nmqtt = \"zigbee2mqtt/kitchen\"\n\
         columns = [\"temperature:Cel:i16/100\", \"power:W:u16/10\"]\nfrom = [\"/temperature\", \"/meter/power\"]\n\
         when = {{ \"/type\" = \"t\" }}\n\
         [[source]]\ndevice = \"sensor1\"\nhttp = \"/hall\"\ncolumns = [\"temperature:Cel:i16/100\"]\n\
         [[source]]\ndevice = \"sensor2\"\nudp = \"127.0.0.1:{port}\"\ncolumns = [\"temperature:Cel:i16/100\"]\nround = true\n\
         [[source]]\ndevice = \"sensor3\"\ncommand = [\"echo\", \"21.75\"]\nevery = \"1s\"\n\
         columns = [\"temperature:Cel:i16/100\"]\nfrom = [\"\"]\n",
    ));
    let (ok, out, _) =
        trial(&home, "sensor0", r#"{"temperature": 21.30, "type": "t", "meter": {"power": 7}}"#);
    assert!(ok && out == "temperature,power\n21.30,7.0\n", "{out}");
    for (message, why) in [
        (r#"{"temperature": 21.305, "type": "t", "meter": {"power": 7}}"#, "round = true"),
        (
            r#"{"temperature": "warm", "type": "t", "meter": {"power": 7}}"#,
            "\"warm\" at /temperature",
        ),
        (r#"{"temperature": 21, "type": "t"}"#, "no value at /meter/power"),
        (r#"{"temperature": [1], "type": "t", "meter": {"power": 7}}"#, "an object or an array"),
    ] {
        let (ok, _, stderr) = trial(&home, "sensor0", message);
        assert!(!ok && stderr.contains(why) && stderr.contains("column"), "{stderr}");
    }
    let check = home.told(&["hub", "run", "hub.toml", "--check"]);
    assert!(check.contains("sensor2: temperature:Cel:i16/100"), "{check}");

    let (hub, urls) = home.service_with(&["hub", "run", "hub.toml"], 3);
    let pages = &urls[0];
    home.until_ready(pages);
    home.publish(
        "zigbee2mqtt/kitchen",
        r#"{"temperature":21.30,"type":"t","meter":{"power":7.5}}"#,
    );
    home.publish("zigbee2mqtt/kitchen", r#"{"temperature":21.30,"type":"other"}"#);
    home.publish("zigbee2mqtt/kitchen", "not a reading");
    home.publish("zigbee2mqtt/kitchen", r#"{"temperature":"warm","type":"t"}"#);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(br#"{"temperature": 20.004999}"#, ("127.0.0.1", port)).unwrap();
    let rows = home.wait_for_rows("sensor0", 1);
    assert_eq!(rows[0]["temperature"].as_f64(), Some(21.30), "{rows:?}");
    let rows = home.wait_for_rows("sensor3", 2);
    assert_eq!(rows[0]["temperature"].as_f64(), Some(21.75), "{rows:?}");
    let rows = home.wait_for_rows("sensor2", 1);
    assert_eq!(rows[0]["temperature"].as_f64(), Some(20.00), "{rows:?}");
    let metrics = page(pages, "/metrics");
    let refused = "moteseal_hub_refused_total{source=\"sensor0\",reason=";
    assert_eq!(metric(&metrics, &format!("{refused}\"Ignored\"}}")), Some(2.0), "{metrics}");
    assert_eq!(metric(&metrics, "moteseal_hub_readings_total{source=\"sensor0\"}"), Some(1.0));
    // The health of the hub counts the readings and the refused messages of all devices. What the filter
    // excludes is not refused.
    let own = "{node=\"hub\",role=\"hub\"}";
    let readings = metric(&metrics, &format!("moteseal_health_queue_readings_total{own}"));
    assert!(readings >= Some(4.0), "{metrics}");
    assert_eq!(metric(&metrics, &format!("moteseal_health_queue_refused_total{own}")), Some(1.0));
    let shown = home.done(&["--json", "health", "watch", &urls[2], "--once"]);
    let row: serde_json::Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    assert_eq!(row["health"]["queue"]["refused"], 1, "{row}");
    assert!(row["health"]["ip"]["received"].is_u64(), "{row}");
    // It is also a sealed stream.
    let rows = home.wait_for_rows("hub-health", 2);
    assert!(rows.iter().all(|row| row["boot"] == 1 && row["ip.received"].is_u64()), "{rows:?}");
    hub.stop();
}

/// Returns a free port of the loopback interface.
fn free_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn an_http_client_gets_204_after_its_reading_is_durable_and_an_explanation_otherwise() {
    let home = Home::new(&names(1), "3s");
    home.write("token", "4q9mB0xJ2kTqvYfB\n");
    home.configure(
        "[http]\nlisten = \"127.0.0.1:0\"\ntoken_file = \"token\"\n\
         [[source]]\ndevice = \"sensor0\"\nhttp = \"/hall\"\ncolumns = [\"temperature:Cel:i16/100\"]\n",
    );
    let text = std::fs::read_to_string(home.path("hub.toml")).unwrap();
    // Without a source of the broker, the hub needs none.
    let start = text.find("[mqtt]").unwrap();
    let end = text.find("[http]").unwrap();
    home.write("hub.toml", &(text[..start].to_owned() + &text[end..]));
    let (hub, urls) = home.service_with(&["hub", "run", "hub.toml"], 2);
    let post = |path: &str, token: &str, body: &str| {
        let length = body.len();
        request(
            &urls[1],
            &format!(
                "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
                 Content-Length: {length}\r\n\r\n{body}"
            ),
        )
    };
    let token = "4q9mB0xJ2kTqvYfB";
    let good = r#"{"temperature": 19.5}"#;
    assert!(post("/hall", token, good).starts_with("HTTP/1.1 204"));
    let refused = post("/hall", token, r#"{"temperature": "x"}"#);
    assert!(
        refused.starts_with("HTTP/1.1 422") && refused.contains("column temperature"),
        "{refused}"
    );
    assert!(post("/hall", "wrong", good).starts_with("HTTP/1.1 401"));
    assert!(post("/cellar", token, good).starts_with("HTTP/1.1 404"));
    // The acknowledged reading survives.
    drop(hub);
    let (_hub, _) = home.service_with(&["hub", "run", "hub.toml"], 2);
    let rows = home.wait_for_rows("sensor0", 1);
    assert_eq!(rows.len(), 1);
}

/// Publishes numbered messages while the hub is killed and the broker restarts. Every message must
/// become a row, and no two rows may have the same sequence number. After a kill, at most the messages
/// that the broker had sent and that were not acknowledged may be repeated.
#[test]
fn killed_hubs_and_restarted_brokers_lose_no_acknowledged_message() {
    const SOURCES: usize = 3;
    /// The number of messages of a source that a broker sends before the first is acknowledged.
    const UNACKNOWLEDGED: usize = 32;
    let kills = std::env::var("MOTESEAL_HUB_KILLS").map_or(5, |kills| kills.parse().unwrap());
    let mut home = Home::new(&names(SOURCES), "2s");
    let port = home.broker.as_ref().unwrap().port;
    let mut sources = String::new();
    for name in names(SOURCES) {
        sources += &format!(
            "[[source]]\ndevice = \"{name}\"\nmqtt = \"home/{name}\"\ncolumns = [\"n::u32\"]\n"
        );
    }
    home.configure(&sources);
    let mut chance = Chance::new(21);
    let mut hub = Some(home.hub().0);
    let mut published = 0_u32;
    let start = Instant::now();
    for kill in 0..kills {
        // With QoS 1, `mosquitto_pub` returns when the broker has the messages.
        for name in names(SOURCES) {
            let (mut process, mut stdin) = home.publish_lines(&format!("home/{name}"));
            for n in published..published + 40 {
                writeln!(stdin, "{{\"n\": {n}}}").unwrap();
            }
            drop(stdin);
            if kill % 2 == 0 && name == "sensor1" {
                std::thread::sleep(Duration::from_millis(chance.next() % 30));
                // SIGKILL, while messages arrive.
                drop(hub.take());
            }
            assert!(process.wait().unwrap().success());
        }
        published += 40;
        if kill % 2 == 1 {
            std::thread::sleep(Duration::from_millis(chance.next() % 300));
            drop(hub.take());
        }
        if kill % 4 == 2 {
            // SIGTERM: the broker stores its sessions and messages.
            home.restart_broker(port);
        }
        hub = Some(home.hub().0);
    }
    let expected: BTreeSet<u64> = (0..u64::from(published)).collect();
    for name in names(SOURCES) {
        loop {
            let rows = home.rows(&name);
            let values: BTreeSet<u64> = rows.iter().filter_map(|row| row["n"].as_u64()).collect();
            let mut places = BTreeMap::new();
            for row in &rows {
                *places
                    .entry((row["index"].clone().to_string(), row["seq"].to_string()))
                    .or_insert(0) += 1;
            }
            assert!(places.values().all(|count| *count == 1), "{name}: {places:?}");
            let repeated = rows.len() - values.len();
            assert!(repeated <= kills as usize * UNACKNOWLEDGED, "{name}: {repeated} repeated");
            if values == expected {
                break;
            }
            let missing: Vec<_> = expected.difference(&values).take(10).collect();
            let is_late = start.elapsed() > Duration::from_secs(120);
            assert!(!is_late, "{name} lacks {missing:?}\n{}", home.log("hub"));
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

/// Many sources at one message a second each. Prints the processor time and the memory of the hub.
#[test]
#[ignore = "takes a minute; `make test-long` runs it in release"]
fn two_hundred_sources_take_a_twentieth_of_a_core_and_64_mib() {
    const SOURCES: usize = 200;
    let seconds = std::env::var("MOTESEAL_HUB_SECONDS").map_or(60, |text| text.parse().unwrap());
    let home = Home::new(&names(SOURCES), "60s");
    let mut sources = String::new();
    for name in names(SOURCES) {
        sources += &format!(
            "[[source]]\ndevice = \"{name}\"\nmqtt = \"home/{name}\"\n\
             columns = [\"temperature:Cel:i16/100?\", \"humidity:%RH:u16/100?\", \"state::enum(off,on)?\"]\n"
        );
    }
    home.configure(&sources);
    let (hub, pages) = home.hub();
    let mut publisher = home.publish_mixed();
    let id = hub.0.id();
    let send = |publisher: &mut Publisher, count: u64| {
        for second in 0..count {
            let due = Instant::now() + Duration::from_secs(1);
            for (place, name) in names(SOURCES).iter().enumerate() {
                let payload = format!(
                    "{{\"battery\":97,\"humidity\":{}.5,\"linkquality\":120,\"state\":\"on\",\"temperature\":21.{:02}}}",
                    40 + second % 9,
                    place % 100
                );
                publisher.publish(&format!("home/{name}"), &payload);
                if place % 20 == 19 {
                    std::thread::sleep(Duration::from_millis(90));
                }
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    };
    send(&mut publisher, 5);
    let before = usage(id);
    let start = Instant::now();
    send(&mut publisher, seconds);
    let took = start.elapsed();
    let after = usage(id);
    std::thread::sleep(Duration::from_secs(1));
    let metrics = page(&pages, "/metrics");
    let recorded: f64 = names(SOURCES)
        .iter()
        .filter_map(|name| {
            metric(&metrics, &format!("moteseal_hub_readings_total{{source=\"{name}\"}}"))
        })
        .sum();
    let share = (after.0 - before.0) / took.as_secs_f64();
    let resident = after.1 >> 20;
    println!(
        "{SOURCES} sources, {recorded} readings in {:.0} s: {:.1} % of a core, {resident} MiB resident",
        took.as_secs_f64(),
        100.0 * share
    );
    assert_eq!(recorded as u64, (seconds + 5) * SOURCES as u64, "{}", home.log("hub"));
    if !cfg!(debug_assertions) {
        assert!(share < 0.05, "{share}");
        assert!(resident < 64, "{resident} MiB");
    }
}

/// Returns the processor time of a process in seconds, and the largest size of its memory in bytes.
fn usage(id: u32) -> (f64, u64) {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // User and system time, in hundredths of a second.
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (ticks / 100.0, kib << 10)
}
