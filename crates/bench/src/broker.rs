//! The broker for the measurements of links: the lab's private Mosquitto. Mosquitto's own clients are
//! measured for comparison.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use moteseal_lab::latency::Broker;
use moteseal_lab::latency::IN_FLIGHT;

use crate::load::Failed;

/// Returns the time that Mosquitto's own clients take over TLS for `messages` lines of 32 bytes, from
/// the first published line to the last received one.
pub(crate) fn own_clients(broker: &Broker, messages: usize) -> Result<Duration, Failed> {
    let lines = broker.folder().join("lines");
    if !lines.exists() {
        let text: String = (0..messages).map(|line| format!("{line:032}\n")).collect();
        std::fs::write(&lines, text)?;
    }
    let common = |program: &str| {
        let mut command = Command::new(program);
        command
            .args(["-h", "localhost", "-q", "1", "-t", "peer", "-p"])
            .arg(broker.address(true).port().to_string());
        command.arg("--cafile").arg(broker.ca());
        command
    };
    // The message is retained, so the subscriber receives it first. It shows that the
    // subscription is active.
    common("mosquitto_pub").args(["-m", "subscribed", "-r"]).status()?;
    let mut subscriber = common("mosquitto_sub").stdout(Stdio::piped()).spawn()?;
    let mut received =
        BufReader::new(subscriber.stdout.take().ok_or("mosquitto_sub has no stdout")?).lines();
    received.next().ok_or("mosquitto_sub received nothing")??;
    let start = Instant::now();
    let mut publisher = common("mosquitto_pub");
    publisher.args(["-l", "-M", &IN_FLIGHT.to_string()]).stdin(File::open(lines)?);
    let mut publisher = publisher.spawn()?;
    let last = received.nth(messages - 1).ok_or("mosquitto's clients lost messages")??;
    let time = start.elapsed();
    publisher.wait()?;
    let _ = subscriber.kill();
    subscriber.wait()?;
    if last == format!("{:032}", messages - 1) {
        Ok(time)
    } else {
        Err("mosquitto's clients delivered messages out of order".into())
    }
}
