//! How much a cloud does at once, and how long each step may take.

use std::time::Duration;

use moteseal_api::ErrorKind;

/// How much a cloud does at once, and how long each step may take. The cloud checks a limit before
/// it allocates memory for a request, and it allocates memory only for bytes that have arrived.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The share, in percent, of connections, requests, responses and memory that one address (with
    /// IPv6, one /64 network) may use once half of them are in use. It prevents one client from
    /// excluding the others. Use 100 if a proxy limits the clients. Default 25.
    pub peer_percent: u8,
    /// The maximum number of open connections. Further connections are closed with status 503. The
    /// number is lower if the process may not open enough files. Default 1024.
    pub connections: usize,
    /// The maximum number of requests in progress. A request counts once its body has fully
    /// arrived. Further requests are rejected with status 503. Default 256.
    pub requests: usize,
    /// The maximum number of responses to queries and of bundles that are sent at the same time.
    /// Further requests for responses or bundles are rejected with status 429. Default 32.
    pub answers: usize,
    /// Memory for whole bundles, long parts of answers and listings, until the client has received
    /// them. A response waits until this memory has room for its next long part; a listing is
    /// rejected with status 503. Default 256 MiB.
    pub answer_bytes: usize,
    /// The maximum size of one upload in bytes. A longer upload is rejected with status 413.
    /// Default 64 MiB.
    pub body_bytes: usize,
    /// Memory for all uploads. One third is for request bodies: a body counts with the bytes that
    /// have arrived, and is rejected with status 503 if the third is used up. Two thirds are for
    /// bundles that are being verified and stored: an upload waits until this memory has room for
    /// it. A single upload may always have the maximum size. Default 512 MiB.
    pub upload_bytes: usize,
    /// The maximum number of bundles in one upload. An upload with more bundles is rejected
    /// with status 413. Default 4096.
    pub upload_parts: usize,
    /// The maximum number of events that all seals of one upload cover together, and therefore also
    /// that one seal covers. An upload with more is rejected with status 413. Default 2^24.
    pub events: u32,
    /// The maximum number of devices in one query. A longer list is rejected with status 413.
    /// Default 4096.
    pub query_devices: usize,
    /// The maximum number of epochs in the range of a query. A range without an end extends to the
    /// last possible epoch. A query with more epochs is rejected with status 413. Unlimited by
    /// default, because the cost of a query depends on its seals, which are streamed.
    pub query_epochs: u64,
    /// The maximum number of events that a query by count and seed may select from each epoch. A
    /// query for more is rejected with status 413. Default 2^18.
    pub query_sample: u32,
    /// The maximum number of bytes of the urgent events of one device that the store accepts, over
    /// its whole life. Further events are rejected with status 422, and their senders keep them. A
    /// device may exceed the limit by one upload, and by more if several processes store events
    /// (docs/scale.md, The limit of urgent events). Default 64 MiB.
    pub event_bytes: u64,
    /// The maximum number of clients that wait for urgent events. A further client is rejected with
    /// status 429. Default 256.
    pub event_waiters: usize,
    /// The maximum number of blocks of up to 1,024 seals of a device whose fingerprints are kept for
    /// summaries, with 48 bytes each, and twice that while the store of several processes is read again. A
    /// store with more blocks cannot be followed or exported. Default 2^22.
    pub summary_blocks: usize,
    /// The maximum number of seals on one page of a listing. Default 1000.
    pub page: usize,
    /// The time within which the head of a request must arrive. It also limits how long a
    /// connection may be idle. Default 30 s.
    pub head_time: Duration,
    /// The interval over which the arrival rate of a request's body is compared with
    /// [`body_rate`](Self::body_rate). Default 10 s.
    pub body_stall: Duration,
    /// The minimum rate at which a request's body must arrive, in bytes per second.
    /// Default 1 KiB/s.
    pub body_rate: u64,
    /// The time within which the whole body of a request must arrive. Default 120 s.
    pub body_time: Duration,
    /// The interval over which a client's receive rate is compared with
    /// [`write_rate`](Self::write_rate). Only time spent waiting for the client counts.
    /// Default 30 s.
    pub write_stall: Duration,
    /// The minimum rate at which a client must receive a response, in bytes per second.
    /// Default 16 KiB/s.
    pub write_rate: u64,
    /// How long requests in progress may take to finish when the service stops. Default 10 s.
    pub stop_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peer_percent: 25,
            connections: 1024,
            requests: 256,
            answers: 32,
            answer_bytes: 256 << 20,
            body_bytes: 64 << 20,
            upload_bytes: 512 << 20,
            upload_parts: 4096,
            events: 1 << 24,
            query_devices: 4096,
            query_epochs: u64::MAX,
            query_sample: 1 << 18,
            event_bytes: 64 << 20,
            event_waiters: 256,
            summary_blocks: 1 << 22,
            page: 1000,
            head_time: Duration::from_secs(30),
            body_stall: Duration::from_secs(10),
            body_rate: 1 << 10,
            body_time: Duration::from_secs(120),
            write_stall: Duration::from_secs(30),
            write_rate: 16 << 10,
            stop_time: Duration::from_secs(10),
        }
    }
}

/// The names that [`Limits::set`] accepts.
pub const NAMES: [&str; 23] = [
    "peer_percent",
    "connections",
    "requests",
    "answers",
    "answer_bytes",
    "body_bytes",
    "upload_bytes",
    "upload_parts",
    "events",
    "query_devices",
    "query_epochs",
    "query_sample",
    "event_bytes",
    "event_waiters",
    "summary_blocks",
    "page",
    "head_time",
    "body_stall",
    "body_rate",
    "body_time",
    "write_stall",
    "write_rate",
    "stop_time",
];

/// Why a limit cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The text has no `=`.
    #[error("\"{0}\" is not of the form NAME=VALUE")]
    NotAnAssignment(String),
    /// There is no limit with this name.
    #[error("there is no limit \"{0}\"; the limits are {names}", names = NAMES.join(", "))]
    Unknown(String),
    /// The value is not a number, or is out of range.
    #[error(
        "the limit {name} cannot be \"{value}\"; use a number of at least 1, such as 64 or 64MiB"
    )]
    Number {
        /// The limit.
        name: String,
        /// The value.
        value: String,
    },
    /// The value is not a time, or is out of range.
    #[error("the limit {name} cannot be \"{value}\"; use a time up to a day, such as 500ms or 30s")]
    Time {
        /// The limit.
        name: String,
        /// The value.
        value: String,
    },
}

impl LimitError {
    /// Always returns [`ErrorKind::Usage`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }
}

impl Limits {
    /// Sets one limit from text of the form `NAME=VALUE`. Numbers may end in KiB, MiB or GiB; times
    /// end in ms, s or m.
    ///
    /// # Errors
    /// [`LimitError`] states what is wrong and what is valid.
    pub fn set(&mut self, assignment: &str) -> Result<(), LimitError> {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| LimitError::NotAnAssignment(assignment.to_owned()))?;
        match name {
            "peer_percent" => self.peer_percent = number(name, value)?,
            "connections" => self.connections = number(name, value)?,
            "requests" => self.requests = number(name, value)?,
            "answers" => self.answers = number(name, value)?,
            "answer_bytes" => self.answer_bytes = number(name, value)?,
            "body_bytes" => self.body_bytes = number(name, value)?,
            "upload_bytes" => self.upload_bytes = number(name, value)?,
            "upload_parts" => self.upload_parts = number(name, value)?,
            "events" => self.events = number(name, value)?,
            "query_devices" => self.query_devices = number(name, value)?,
            "query_epochs" => self.query_epochs = number(name, value)?,
            "query_sample" => self.query_sample = number(name, value)?,
            "event_bytes" => self.event_bytes = number(name, value)?,
            "event_waiters" => self.event_waiters = number(name, value)?,
            "summary_blocks" => self.summary_blocks = number(name, value)?,
            "page" => self.page = number(name, value)?,
            "head_time" => self.head_time = time(name, value)?,
            "body_stall" => self.body_stall = time(name, value)?,
            "body_rate" => self.body_rate = number(name, value)?,
            "body_time" => self.body_time = time(name, value)?,
            "write_stall" => self.write_stall = time(name, value)?,
            "write_rate" => self.write_rate = number(name, value)?,
            "stop_time" => self.stop_time = time(name, value)?,
            _ => return Err(LimitError::Unknown(name.to_owned())),
        }
        Ok(())
    }
}

fn number<T: TryFrom<u64>>(name: &str, value: &str) -> Result<T, LimitError> {
    let (digits, unit) = split(value);
    let scale = match unit {
        "" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        _ => None,
    };
    let number = digits
        .parse::<u64>()
        .ok()
        .zip(scale)
        .and_then(|(number, scale)| number.checked_mul(1 << scale));
    let fitting = number.filter(|&number| number > 0).and_then(|number| T::try_from(number).ok());
    fitting.ok_or_else(|| LimitError::Number { name: name.to_owned(), value: value.to_owned() })
}

fn time(name: &str, value: &str) -> Result<Duration, LimitError> {
    let (digits, unit) = split(value);
    let scale = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let time =
        digits.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
    // A day is far below the value at which timers overflow.
    let fitting = time.filter(|time| (1..=86_400_000).contains(time)).map(Duration::from_millis);
    fitting.ok_or_else(|| LimitError::Time { name: name.to_owned(), value: value.to_owned() })
}

fn split(value: &str) -> (&str, &str) {
    value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sets_every_limit_by_name_and_rejects_invalid_values() {
        let mut limits = Limits::default();
        for name in NAMES {
            let is_time = name.ends_with("time") || name.ends_with("stall");
            let before = format!("{limits:?}");
            limits.set(&format!("{name}={}", if is_time { "7s" } else { "7" })).unwrap();
            assert_ne!(format!("{limits:?}"), before, "{name}");
            for bad in ["", "0", "x", "-1", "7 s", "99999999999999999999", "7TiB"] {
                let error = limits.set(&format!("{name}={bad}")).unwrap_err().to_string();
                assert!(error.contains(name), "{error}");
            }
        }
        limits.set("body_bytes=3MiB").unwrap();
        limits.set("head_time=1500ms").unwrap();
        assert_eq!((limits.body_bytes, limits.head_time), (3 << 20, Duration::from_millis(1500)));
        assert!(limits.set("events=4GiB").is_err(), "a seal cannot cover 2^32 events");
        assert!(limits.set("conections=7").unwrap_err().to_string().contains("connections"));
        assert!(limits.set("connections").unwrap_err().to_string().contains("NAME=VALUE"));
    }
}
