//! Takes the messages of one source: makes rows of them, counts them, and passes the rows on to the
//! runner of the source's device.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, Label};
use moteseal_device::runner::{LiveReading, Recorded, Reply, system_clock};
use moteseal_service::LogLimit;
use moteseal_service::log_limit::{cut, log_suppressed};
use moteseal_service::metrics::{Table, gauge_value};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::line::{Done, MAX_LINE, MAX_WAITING, Outcome};
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
/// The reason for messages of a device that was stopped for good.
const STOPPED: &str = "Stopped";
/// The reason for messages that the source could not repeat while the device was busy.
const BUSY: &str = "Busy";
/// The reason for messages that the filter of the source excludes, or that have no value.
const IGNORED: &str = "Ignored";

/// Where the rows of a source go.
#[derive(Debug)]
enum Target {
    /// The device runs.
    Running(mpsc::Sender<LiveReading>),
    /// The device is about to start again. Sources that can repeat their messages keep them.
    Pausing,
    /// The device cannot continue. Its messages are refused, so that they do not delay the messages
    /// of other devices.
    Stopped,
}

/// Where the messages of one source arrive.
#[derive(Debug)]
pub(crate) struct Intake {
    pub(crate) name: String,
    mapping: Mapping,
    /// Whether messages count that the broker had retained.
    takes_retained: bool,
    target: Mutex<Target>,
    /// Whether the device has run, or could not.
    started: watch::Sender<bool>,
    table: Arc<Table>,
    readings: Counter,
    last: Gauge,
    log: LogLimit<&'static str>,
}

impl Intake {
    pub(crate) fn new(
        name: String,
        mapping: Mapping,
        takes_retained: bool,
        table: Arc<Table>,
    ) -> Self {
        let labels = || vec![Label::new("source", name.clone())];
        Self {
            readings: table.counter_with(READINGS, labels()),
            last: table.gauge_with(LAST, labels()),
            mapping,
            takes_retained,
            target: Mutex::new(Target::Pausing),
            started: watch::Sender::new(false),
            table,
            log: LogLimit::new(LINES, INTERVAL),
            name,
        }
    }

    fn set(&self, target: Target) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
        self.started.send_replace(true);
    }

    /// Waits until the device has started, or could not.
    pub(crate) async fn started(&self) {
        // The sender is in this value, so that it is not dropped meanwhile.
        let _ = self.started.subscribe().wait_for(|started| *started).await;
    }

    /// Passes rows to this channel from now on.
    pub(crate) fn run(&self, readings: mpsc::Sender<LiveReading>) {
        self.set(Target::Running(readings));
    }

    /// Accepts no messages until the device runs again.
    pub(crate) fn pause(&self) {
        self.set(Target::Pausing);
    }

    /// Refuses all messages from now on.
    pub(crate) fn stop(&self) {
        self.set(Target::Stopped);
    }

    fn refuse(&self, reason: &'static str, why: impl Into<String>, done: Done) {
        let labels = vec![Label::new("source", self.name.clone()), Label::new("reason", reason)];
        self.table.counter_with(REFUSED, labels).increment(1);
        let why = why.into();
        if !matches!(reason, IGNORED | RETAINED) {
            for (reason, lines) in self.log.suppressed() {
                let reason = reason.unwrap_or_default();
                warn!(source = self.name, reason, lines, "further refused messages");
            }
            if self.log.allows(reason) {
                warn!(source = self.name, reason, "refused a message: {}", cut(&why));
            }
        }
        let is_ignored = matches!(reason, IGNORED | RETAINED);
        done.tell(if is_ignored { Outcome::Ignored } else { Outcome::Refused(why) });
    }

    /// Refuses a message that the broker had retained from before the subscription, unless the
    /// source accepts such messages. Returns the message's end if it is accepted.
    pub(crate) fn retained(&self, done: Done) -> Option<Done> {
        if self.takes_retained {
            return Some(done);
        }
        self.refuse(RETAINED, "the broker had retained the message", done);
        None
    }

    /// Refuses a message that is too long.
    pub(crate) fn too_long(&self, done: Done) {
        self.refuse(TOO_LONG, format!("the message is longer than {MAX_LINE} bytes"), done);
    }

    /// Makes a row of a message. Returns the channel and the reading; or `None` if the message was
    /// refused, or must be repeated.
    fn row(
        self: &Arc<Self>,
        topic: Option<&str>,
        payload: &[u8],
        done: Done,
    ) -> Option<(mpsc::Sender<LiveReading>, LiveReading)> {
        if payload.len() > MAX_LINE {
            self.too_long(done);
            return None;
        }
        let target = match &*self.target.lock().unwrap_or_else(PoisonError::into_inner) {
            Target::Running(readings) => Ok(readings.clone()),
            Target::Pausing => Err(None),
            Target::Stopped => Err(Some("the device is stopped; the log of the hub says why")),
        };
        let readings = match target {
            Ok(readings) => readings,
            // `done` is dropped: the message is not recorded.
            Err(None) => return None,
            Err(Some(why)) => {
                self.refuse(STOPPED, why, done);
                return None;
            }
        };
        match self.mapping.row(&Input { topic, payload, received_ms: system_clock() }) {
            Ok(Some(row)) => {
                let of = Arc::clone(self);
                let reply = Reply::new(move |recorded| of.recorded(recorded, done));
                Some((readings, LiveReading { record: row.record, reply: Some(reply) }))
            }
            Ok(None) => {
                self.refuse(IGNORED, "the message has no value for this source", done);
                None
            }
            Err(error) => {
                self.refuse(error.name(), error.to_string(), done);
                None
            }
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
                self.refuse(reason, "the row does not fit a frame to the gateway", done);
            }
        }
    }

    /// Takes a message. Waits while too many rows of the source wait.
    pub(crate) async fn take(self: &Arc<Self>, topic: Option<&str>, payload: &[u8], done: Done) {
        if let Some((readings, reading)) = self.row(topic, payload, done) {
            // If the device stops, the reading is dropped and therefore not acknowledged.
            let _ = readings.send(reading).await;
        }
    }

    /// Takes a message of a source that neither waits nor repeats it. If too many rows wait, drops and
    /// counts the message: such messages leave room for others.
    pub(crate) fn offer(self: &Arc<Self>, topic: Option<&str>, payload: &[u8], done: Done) {
        let Some((readings, reading)) = self.row(topic, payload, done) else { return };
        if readings.capacity() <= MAX_WAITING || readings.try_send(reading).is_err() {
            self.refuse(BUSY, "too many rows of the source wait", Done::ignored());
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        log_suppressed(&self.log.finish());
    }
}
