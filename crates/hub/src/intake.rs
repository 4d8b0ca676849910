//! Takes the messages of one source: makes rows of them, counts them, and passes the rows on to the
//! runner of the source's device.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Label};
use moteseal_device::hosted::Feed;
use moteseal_device::runner::{LiveReading, Recorded, Reply, system_clock};
use moteseal_service::health::increase;
use moteseal_service::log_limit::{cut, log_suppressed};
use moteseal_service::metrics::{Table, gauge_value};
use moteseal_service::{Figures, LogLimit};
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::watch;
use tracing::warn;

use crate::line::{Done, MAX_LINE, Outcome};
use crate::mapping::{Input, Mapping};

/// The maximum number of lines about refused messages of one source per [`INTERVAL`].
const LINES: u32 = 3;
/// The interval after which the number of suppressed lines is logged.
const INTERVAL: Duration = Duration::from_secs(60);

pub(crate) const READINGS: &str = "moteseal_hub_readings_total";
pub(crate) const REFUSED: &str = "moteseal_hub_refused_total";
pub(crate) const LAST: &str = "moteseal_hub_last_reading_seconds";

/// The reason for messages that the broker had retained.
const RETAINED: &str = "Retained";
/// The reason for messages that are longer than [`MAX_LINE`].
const TOO_LONG: &str = "TooLong";
/// The reason for messages of a device that cannot continue.
const STOPPED: &str = "Stopped";
/// The reason for messages that were lost while the device was about to start again.
const PAUSED: &str = "Paused";
/// The reason for messages that were lost because too many waited.
const BUSY: &str = "Busy";
/// The reason for datagrams of a sender that the source does not accept.
const OTHER_SENDER: &str = "OtherSender";
/// The reason for messages that the filter of the source excludes, or that have no value.
const IGNORED: &str = "Ignored";

/// Where the rows of a source go.
#[derive(Clone, Debug)]
enum Target {
    /// The device has not started.
    Starting,
    /// The device runs.
    Running(mpsc::Sender<LiveReading>),
    /// The device is about to start again. Sources that can keep their messages do so.
    Pausing,
    /// The device cannot continue. Its messages are refused.
    Stopped,
}

/// A message of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived<'a> {
    /// The topic, for a message of a broker.
    pub(crate) topic: Option<&'a str>,
    /// The message.
    pub(crate) payload: &'a [u8],
    /// When it arrived, in milliseconds since 1970.
    pub(crate) at_ms: u64,
}

impl<'a> Arrived<'a> {
    /// A message without a topic that has arrived now.
    pub(crate) fn now(payload: &'a [u8]) -> Self {
        Self { topic: None, payload, at_ms: system_clock() }
    }
}

/// Room for one reading at the device of a source, or that the device cannot continue.
#[derive(Debug)]
pub(crate) struct Place(Option<OwnedPermit<LiveReading>>);

/// Where the messages of one source arrive.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) name: String,
    mapping: Mapping,
    /// Whether messages count that the broker had retained.
    takes_retained: bool,
    target: watch::Sender<Target>,
    table: Arc<Table>,
    /// Counts the messages that were refused before they reached the device.
    figures: Arc<Figures>,
    readings: Counter,
    last: Gauge,
    log: LogLimit<&'static str>,
}

impl Intake {
    pub(crate) fn new(
        name: String,
        mapping: Mapping,
        takes_retained: bool,
        (table, figures): (Arc<Table>, Arc<Figures>),
    ) -> Self {
        let labels = || vec![Label::new("source", name.clone())];
        Self {
            readings: table.counter_with(READINGS, labels()),
            last: table.gauge_with(LAST, labels()),
            mapping,
            takes_retained,
            target: watch::Sender::new(Target::Starting),
            table,
            figures,
            log: LogLimit::new(LINES, INTERVAL),
            name,
        }
    }

    fn count(&self, reason: &'static str, messages: u64) {
        let labels = vec![Label::new("source", self.name.clone()), Label::new("reason", reason)];
        self.table.counter_with(REFUSED, labels).increment(messages);
    }

    /// Counts messages that were refused here, and logs why they are no readings.
    fn note(&self, reason: &'static str, messages: u64, why: &str) {
        increase(&self.figures.refused, messages);
        self.log(reason, messages, why);
    }

    /// Counts messages in the metrics, and logs why they are no readings.
    fn log(&self, reason: &'static str, messages: u64, why: &str) {
        self.count(reason, messages);
        for (reason, lines) in self.log.suppressed() {
            let reason = reason.unwrap_or_default();
            warn!(source = self.name, reason, lines, "further refused messages");
        }
        if self.log.allows(reason) {
            warn!(source = self.name, reason, messages, "refused a message: {}", cut(why));
        }
    }

    fn refuse(&self, reason: &'static str, why: impl Into<String>, done: Done) {
        let why = why.into();
        self.note(reason, 1, &why);
        done.tell(Outcome::Refused(why));
    }

    fn ignore(&self, reason: &'static str, done: Done) {
        self.count(reason, 1);
        done.tell(Outcome::Ignored);
    }

    /// Counts messages that were lost because too many waited.
    pub(crate) fn lost(&self, messages: u64) {
        if messages > 0 {
            self.note(BUSY, messages, "too many messages of the source wait");
        }
    }

    /// Counts a datagram of a sender that the source does not accept.
    pub(crate) fn of_other_sender(&self, sender: IpAddr) {
        self.note(OTHER_SENDER, 1, &format!("{sender} is not in the list `senders`"));
    }

    /// Refuses a message that the broker had retained from before the subscription, unless the
    /// source accepts such messages. Returns the message's end if it is accepted.
    pub(crate) fn retained(&self, done: Done) -> Option<Done> {
        if self.takes_retained {
            return Some(done);
        }
        self.ignore(RETAINED, done);
        None
    }

    /// Refuses a message that is too long.
    pub(crate) fn too_long(&self, done: Done) {
        self.refuse(TOO_LONG, format!("the message is longer than {MAX_LINE} bytes"), done);
    }

    /// Waits until the device can take a reading, or cannot continue. The future may be dropped.
    pub(crate) async fn place(&self) -> Place {
        let mut targets = self.target.subscribe();
        loop {
            let target = targets.borrow_and_update().clone();
            match target {
                Target::Stopped => return Place(None),
                Target::Running(readings) => {
                    if let Ok(permit) = readings.reserve_owned().await {
                        return Place(Some(permit));
                    }
                    // The device has ended. The next state follows.
                }
                Target::Starting | Target::Pausing => {}
            }
            // The sender is in this value, so that it is not dropped meanwhile.
            let _ = targets.changed().await;
        }
    }

    /// Makes a row of a message and passes it to the device.
    pub(crate) fn pass(self: &Arc<Self>, place: Place, message: Arrived<'_>, done: Done) {
        let Arrived { topic, payload, at_ms } = message;
        if payload.len() > MAX_LINE {
            return self.too_long(done);
        }
        let Some(permit) = place.0 else {
            let why = "the device cannot continue; the log of the hub says why";
            self.note(STOPPED, 1, why);
            return done.tell(Outcome::Stopped);
        };
        match self.mapping.row(&Input { topic, payload, received_ms: at_ms }) {
            Ok(Some(row)) => {
                let of = Arc::clone(self);
                let reply = Reply::new(move |recorded| of.recorded(recorded, done));
                permit.send(LiveReading { record: row.record, reply: Some(reply) });
            }
            Ok(None) => self.ignore(IGNORED, done),
            Err(error) => self.refuse(error.name(), error.to_string(), done),
        }
    }

    /// Takes a message of a source that can keep it. Waits until the device can take it.
    pub(crate) async fn hold(self: &Arc<Self>, payload: &[u8], done: Done) {
        let message = Arrived::now(payload);
        self.pass(self.place().await, message, done);
    }

    /// Takes a message of a source that cannot keep it. Waits while too many rows of the source wait.
    /// If the device is about to start again, counts the message and drops its end.
    pub(crate) async fn take(self: &Arc<Self>, payload: &[u8], done: Done) {
        let message = Arrived::now(payload);
        let mut targets = self.target.subscribe();
        let started = targets.wait_for(|target| !matches!(target, Target::Starting)).await;
        let target = started.map(|target| target.clone());
        let place = match target {
            Ok(Target::Running(readings)) => readings.reserve_owned().await.ok(),
            Ok(Target::Stopped) => return self.pass(Place(None), message, done),
            _ => None,
        };
        match place {
            Some(permit) => self.pass(Place(Some(permit)), message, done),
            None => self.note(PAUSED, 1, "the device is about to start again"),
        }
    }

    fn recorded(&self, recorded: Recorded, done: Done) {
        match recorded {
            Recorded::Durable => {
                self.readings.increment(1);
                self.last.set(gauge_value(system_clock()) / 1000.0);
                done.tell(Outcome::Durable);
            }
            Recorded::Refused(reason) => {
                // The device has counted it.
                let why = "the row does not fit a frame to the gateway";
                self.log(reason, 1, why);
                done.tell(Outcome::Refused(why.to_owned()));
            }
        }
    }
}

impl Feed for Intake {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, rows: mpsc::Sender<LiveReading>) {
        self.target.send_replace(Target::Running(rows));
    }

    /// Sources that can keep their messages do so.
    fn pause(&self) {
        self.target.send_replace(Target::Pausing);
    }

    /// Refuses all messages.
    fn stop(&self) {
        self.target.send_replace(Target::Stopped);
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        log_suppressed(&self.log.finish());
    }
}
