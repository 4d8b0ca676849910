//! What a mote in an emulator has reported over its serial line, and the health of the gateway that the line is
//! connected to.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The timeout of an operation: longer than any successful operation takes.
const LONG: Duration = Duration::from_secs(400);

/// Checks the health of the mote `mote2`, which has restarted, and of the gateway of its line. The first
/// processes are `gateway run` and `gateway serial`, whose first line is the address of their health.
pub(crate) fn check<'p>(
    processes: impl Iterator<Item = &'p mut Child>,
    command: impl Fn(&[&str]) -> Command,
) {
    let first_line = |of: &mut Child| {
        BufReader::new(of.stdout.as_mut().unwrap()).lines().next().unwrap().unwrap()
    };
    let urls: Vec<String> = processes.take(2).map(first_line).collect();
    let newest = |url: &str, is_wanted: &dyn Fn(&Value) -> bool| -> Value {
        let start = Instant::now();
        loop {
            let output = command(&["--json", "health", "watch", url, "--once"]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let mut rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            if let Some(row) = rows.find(|row| is_wanted(row) && row["health"].is_object()) {
                return row["health"].clone();
            }
            assert!(start.elapsed() < LONG, "{url}: {output:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let health = newest(urls[0].trim_end_matches("/h"), &|row| row["node"] == "mote2");
    assert!(health["boot"].as_u64().unwrap() >= 2, "it has restarted: {health}");
    for item in ["sent", "received", "bad_crc", "retransmitted"] {
        assert!(health["link"][item].is_u64(), "{item}: {health}");
    }
    assert!(health["link"]["received"].as_u64().unwrap() > 0, "{health}");
    for item in ["waiting", "readings", "given_up"] {
        assert!(health["queue"][item].is_u64(), "{item}: {health}");
    }
    // It reports nothing that it does not know.
    assert!(health["ip"].is_null() && health["queue"]["refused"].is_null(), "{health}");
    assert!(health["dev"]["battery"].is_null() && health["dev"]["temperature"].is_null());
    let own = newest(&urls[1], &|_| true);
    assert!(own["ip"]["received"].is_u64() && own["queue"].is_null(), "{own}");
}
