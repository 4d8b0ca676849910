//! `moteseal hub`: messages of sensors become verified rows of devices, whatever is killed meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::hub_home::{Home, metric, page, request};

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
    let home = Home::new(&names(4), "3s");
    home.configure(
        "[http]\nlisten = \"127.0.0.1:0\"\n\
         [[source]]\ndevice = \"sensor0\"\nmqtt = \"zigbee2mqtt/kitchen\"\n\
         columns = [\"temperature:Cel:i16/100\", \"power:W:u16/10\"]\nfrom = [\"/temperature\", \"/meter/power\"]\n\
         when = { \"/type\" = \"t\" }\n\
         [[source]]\ndevice = \"sensor1\"\nhttp = \"/hall\"\ncolumns = [\"temperature:Cel:i16/100\"]\n\
         [[source]]\ndevice = \"sensor2\"\nudp = \"127.0.0.1:47631\"\ncolumns = [\"temperature:Cel:i16/100\"]\nround = true\n\
         [[source]]\ndevice = \"sensor3\"\ncommand = [\"echo\", \"21.75\"]\nevery = \"1s\"\n\
         columns = [\"temperature:Cel:i16/100\"]\nfrom = [\"\"]\n",
    );
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
    let check = home.done(&["hub", "run", "hub.toml", "--check"]);
    assert!(check.contains("sensor2: temperature:Cel:i16/100"), "{check}");

    let (hub, pages) = home.hub();
    let log = home.log("hub");
    let _ = log;
    home.publish(
        "zigbee2mqtt/kitchen",
        r#"{"temperature":21.30,"type":"t","meter":{"power":7.5}}"#,
    );
    home.publish("zigbee2mqtt/kitchen", r#"{"temperature":21.30,"type":"other"}"#);
    home.publish("zigbee2mqtt/kitchen", "not a reading");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(br#"{"temperature": 20.004999}"#, "127.0.0.1:47631").unwrap();
    let rows = home.wait_for_rows("sensor0", 1);
    assert_eq!(rows[0]["temperature"].to_string().trim_matches('"'), "21.30", "{rows:?}");
    let rows = home.wait_for_rows("sensor3", 2);
    assert_eq!(rows[0]["temperature"].to_string().trim_matches('"'), "21.75", "{rows:?}");
    let rows = home.wait_for_rows("sensor2", 1);
    assert_eq!(rows[0]["temperature"].to_string().trim_matches('"'), "20.00", "{rows:?}");
    let metrics = page(&pages, "/metrics");
    let refused = "moteseal_hub_refused_total{source=\"sensor0\",reason=";
    assert_eq!(metric(&metrics, &format!("{refused}\"Ignored\"}}")), Some(2.0), "{metrics}");
    assert_eq!(metric(&metrics, "moteseal_hub_readings_total{source=\"sensor0\"}"), Some(1.0));
    hub.stop();
}
