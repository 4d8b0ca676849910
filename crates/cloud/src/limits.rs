//! How much a cloud does at once, and how long anything may take.

use std::time::Duration;

/// How much is done at once, and how long anything may take. Whatever passes a limit is refused before memory is taken for it.
/// Nothing is taken for bytes that have not come.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Of connections, requests, answers and memory one address (IPv6: one /64) may take more than this many percent only while
    /// half is free, so that one peer cannot keep all from others; 100 treats all alike, for a proxy that limits its clients itself.
    /// Default 25.
    pub peer_percent: u8,
    /// Open connections; one more is answered 503 and closed. Default 1024.
    pub connections: usize,
    /// Requests being answered at once, those whose body is still coming not counted; one more is answered 503. Default 256.
    pub requests: usize,
    /// Queries and bundles being streamed at once; one more is answered 429. Default 32.
    pub answers: usize,
    /// Memory for the events of all long parts being sent; an answer waits for its share. Default 256 MiB.
    pub answer_bytes: usize,
    /// Bytes of one upload; more is 413. Default 64 MiB.
    pub body_bytes: usize,
    /// Memory for all uploads: a third for bodies that are coming, which take of it what they have sent, and are refused with 503
    /// when there is no more; the rest for bundles being verified and stored, which wait for it. The longest body fits, however
    /// little this is. Default 512 MiB.
    pub upload_bytes: usize,
    /// Bundles in one upload; more is 413. Default 4096.
    pub upload_parts: usize,
    /// Events under one seal, and under all seals of one upload; more is 413. Default 2^24.
    pub events: u32,
    /// Devices of one query; more is 413. Default 4096.
    pub query_devices: usize,
    /// Epochs of a query's range, an open one counting to the end of time; more is 413. Default unlimited: what costs is seals,
    /// and those are streamed.
    pub query_epochs: u64,
    /// Events an epoch that a query by count and seed may ask for; more is 413. Default 2^18.
    pub query_sample: u32,
    /// Seals on one page of a listing. Default 1000.
    pub page: usize,
    /// A request's head must be there in this time, also the first byte of the next on an idle connection. Default 30 s.
    pub head_time: Duration,
    /// How often a body's pace is judged: in each such time it must bring what [`body_rate`](Self::body_rate) asks. Default 10 s.
    pub body_stall: Duration,
    /// Bytes a second that a request's body must bring. Default 1 KiB.
    pub body_rate: u64,
    /// A request's whole body must come in this time. Default 120 s.
    pub body_time: Duration,
    /// How often the pace of an answer's receiver is judged: of each such time spent waiting for it, it must have taken what
    /// [`write_rate`](Self::write_rate) asks. Default 30 s.
    pub write_stall: Duration,
    /// Bytes a second that the receiver of an answer must take. Default 16 KiB.
    pub write_rate: u64,
    /// Requests under way when the service is told to stop may take this long. Default 10 s.
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

/// The limits by name, as [`Limits::set`] takes them.
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

impl Limits {
    /// Sets one limit from text: `NAME=VALUE`. Numbers may end in KiB, MiB or GiB, times end in ms, s or m.
    ///
    /// # Errors
    /// One line that says what is wrong and what would be right.
    pub fn set(&mut self, assignment: &str) -> Result<(), String> {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| format!("\"{assignment}\" is not NAME=VALUE"))?;
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
            _ => {
                return Err(format!(
                    "there is no limit \"{name}\"; there are {}",
                    NAMES.join(", ")
                ));
            }
        }
        Ok(())
    }
}

fn number<T: TryFrom<u64>>(name: &str, value: &str) -> Result<T, String> {
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
    fitting.ok_or_else(|| format!("\"{value}\" cannot be the limit {name}: a number from 1 on, with or without KiB, MiB or GiB"))
}

fn time(name: &str, value: &str) -> Result<Duration, String> {
    let (digits, unit) = split(value);
    let scale = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    let time =
        digits.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
    // A day is longer than anything here should take, and far from what timers overflow at.
    let fitting = time.filter(|time| (1..=86_400_000).contains(time)).map(Duration::from_millis);
    fitting.ok_or_else(|| {
        format!("\"{value}\" cannot be the limit {name}: a time like 500ms, 30s or 2m, up to a day")
    })
}

fn split(value: &str) -> (&str, &str) {
    value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_limit_can_be_set_by_name_and_bad_values_are_told_why() {
        let mut limits = Limits::default();
        for name in NAMES {
            let is_time = name.ends_with("time") || name.ends_with("stall");
            let before = format!("{limits:?}");
            limits.set(&format!("{name}={}", if is_time { "7s" } else { "7" })).unwrap();
            assert_ne!(format!("{limits:?}"), before, "{name}");
            for bad in ["", "0", "x", "-1", "7 s", "99999999999999999999", "7TiB"] {
                let error = limits.set(&format!("{name}={bad}")).unwrap_err();
                assert!(error.contains(name), "{error}");
            }
        }
        limits.set("body_bytes=3MiB").unwrap();
        limits.set("head_time=1500ms").unwrap();
        assert_eq!((limits.body_bytes, limits.head_time), (3 << 20, Duration::from_millis(1500)));
        assert!(limits.set("events=4GiB").is_err(), "more than a seal can count");
        assert!(limits.set("conections=7").unwrap_err().contains("connections"));
        assert!(limits.set("connections").unwrap_err().contains("NAME=VALUE"));
    }
}
