//! Gateways limit the log lines about rejected frames, and report how many they suppressed when they
//! stop.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use moteseal_gateway::{Gateway, Settings, Time};
use moteseal_net::ChildLink as _;
use moteseal_net::in_memory::{Faults, Network};
use tokio::sync::oneshot;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::damage::{frame, roster, station};

/// The lines that were logged, with the fields in their order.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Returns the number of lines that contain all of these texts.
    pub(crate) fn count(&self, texts: &[&str]) -> usize {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| texts.iter().all(|text| line.contains(text))).count()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{field}={value:?};").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Finding B4 of the review. The coordinator logs on a thread of its own.
#[tokio::test]
async fn a_coordinator_that_stops_reports_the_lines_that_it_suppressed() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let device = roster().id("mote").unwrap();
    let settings = Settings {
        grace: Duration::from_secs(20),
        time: Time::Clock,
        announce_every: Duration::from_millis(200),
        listen: None,
        first_pause: Duration::from_millis(20),
    };
    let gateway = Gateway::bind(station(folder.path()).unwrap(), settings, None).await.unwrap();
    let network = Network::new(1, Faults::default());
    let link = network.parent();
    let (stop, stopped) = oneshot::channel();
    let running =
        tokio::spawn(async move { gateway.run(link, async { drop(stopped.await) }).await });
    let child = network.child(device.0);
    for _ in 0..5 {
        child.send(Bytes::from(frame(device, u64::MAX / 2, 0..1))).await.unwrap();
    }
    while lines.count(&["rejected a frame", "EpochTooFar"]) < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
    let device = device.to_string();
    assert_eq!(lines.count(&["frames of a device are rejected", &device]), 1);
    assert_eq!(lines.count(&["were suppressed", &device, "lines=4;"]), 1);
}
