//! How much a cloud does at once, and how long each step may take.

use std::time::Duration;

use moteseal_api::ErrorKind;

/// How much a cloud does at once, and how long each step may take. A request above a limit is
/// rejected before memory is allocated for it; no memory is allocated for bytes that have not
/// arrived.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The share, in percent, of connections, requests, responses and memory that one address
    /// (IPv6: one /64 network) may have once half of them are in use, so that one client cannot
    /// exclude the others. Use 100 if a proxy limits the clients. Default 25.
    pub peer_percent: u8,
    /// Open connections; another one is closed with status 503. Default 1024.
    pub connections: usize,
    /// Requests in progress, not counting those whose body has not fully arrived; another one is
    /// rejected with status 503. Default 256.
    pub requests: usize,
    /// Queries and bundles that are streamed at once; another one is rejected with status 429.
    /// Default 32.
    pub answers: usize,
    /// Memory for the events of all long parts that are being sent; a response waits for its share.
    /// Default 256 MiB.
    pub answer_bytes: usize,
    /// Bytes of one upload; a longer one is rejected with status 413. Default 64 MiB.
    pub body_bytes: usize,
    /// Memory for all uploads. A third is for request bodies, which count with the bytes that have
    /// arrived and are rejected with status 503 when the third is used up. The rest is for bundles
    /// that are verified and stored, which wait for it. A single upload may always have the maximum
    /// size. Default 512 MiB.
    pub upload_bytes: usize,
    /// Bundles in one upload; more are rejected with status 413. Default 4096.
    pub upload_parts: usize,
    /// Events under one seal, and under all seals of one upload; more are rejected with status 413.
    /// Default 2^24.
    pub events: u32,
    /// Devices of one query; more are rejected with status 413. Default 4096.
    pub query_devices: usize,
    /// Epochs in the range of a query; a range without an end counts to the last possible epoch.
    /// More are rejected with status 413. Unlimited by default: the cost is in the seals, which are
    /// streamed.
    pub query_epochs: u64,
    /// Events of each epoch that a query by count and seed may select; more are rejected with
    /// status
    /// 413. Default 2^18.
    pub query_sample: u32,
    /// Seals on one page of a listing. Default 1000.
    pub page: usize,
    /// The time in which the head of a request must arrive. It also limits how long a connection
    /// may be idle. Default 30 s.
    pub head_time: Duration,
    /// The interval over which the pace of a request's body is measured against
    /// [`body_rate`](Self::body_rate). Default 10 s.
    pub body_stall: Duration,
    /// Bytes a second at which a request's body must arrive. Default 1 KiB.
    pub body_rate: u64,
    /// The time in which a request's whole body must arrive. Default 120 s.
    pub body_time: Duration,
    /// The interval over which the pace of a receiving client is measured against
    /// [`write_rate`](Self::write_rate); only time spent waiting for the client counts. Default 30
    /// s.
    pub write_stall: Duration,
    /// Bytes a second at which a client must receive a response. Default 16 KiB.
    pub write_rate: u64,
    /// The time that requests in progress have to finish when the service stops. Default 10 s.
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
pub const NAMES: [&str; 20] = [
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
    /// The value is not a number, or out of range.
    #[error("the limit {name} cannot be \"{value}\"; use a number from 1 on, such as 64 or 64MiB")]
    Number {
        /// The limit.
        name: String,
        /// The value.
        value: String,
    },
    /// The value is not a time, or out of range.
    #[error("the limit {name} cannot be \"{value}\"; use a time up to a day, such as 500ms or 30s")]
    Time {
        /// The limit.
        name: String,
        /// The value.
        value: String,
    },
}

impl LimitError {
    /// Always [`ErrorKind::Usage`].
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
        assert!(limits.set("events=4GiB").is_err(), "a seal counts fewer events");
        assert!(limits.set("conections=7").unwrap_err().to_string().contains("connections"));
        assert!(limits.set("connections").unwrap_err().to_string().contains("NAME=VALUE"));
    }
}
