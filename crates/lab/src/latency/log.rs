//! The times that the services state in their logs: a line for each upload that a cloud served, and for
//! each write of a worker. The lines have the time at which they were written and how long the work took.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

use super::Failed;

/// The level of the log that has these lines, as the variable `RUST_LOG`.
pub(super) const LEVEL: &str = "info,moteseal_cloud::router=debug,moteseal_stream::worker=debug";

/// The start and the end of some work, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) from_us: i64,
    pub(super) to_us: i64,
}

/// A write of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// From the start of the write, which takes what has arrived, until the messages are durable.
    pub(super) work: Work,
    /// The positions of the first and the last message in the stream.
    pub(super) positions: (u64, u64),
    /// The number of messages.
    pub(super) messages: u64,
}

/// What a service did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// It served an upload.
    Upload(Work),
    /// It stored messages.
    Write(Write),
}

#[derive(Deserialize)]
struct Line {
    timestamp: String,
    fields: Fields,
}

#[derive(Deserialize)]
struct Fields {
    message: String,
    method: Option<String>,
    path: Option<String>,
    took_us: Option<i64>,
    messages: Option<u64>,
    first: Option<u64>,
    last: Option<u64>,
}

/// Returns what a line states, or `None` if it is about something else.
fn read(line: &str) -> Option<Done> {
    let Line { timestamp, fields } = serde_json::from_str(line).ok()?;
    let to_us = timestamp.parse::<Timestamp>().ok()?.as_microsecond();
    let work = Work { from_us: to_us - fields.took_us?, to_us };
    match &*fields.message {
        "served" => {
            let is_upload = fields.method.as_deref() == Some("PUT")
                && fields.path.as_deref() == Some(moteseal_api::paths::BUNDLES);
            is_upload.then_some(Done::Upload(work))
        }
        "stored" => Some(Done::Write(Write {
            work,
            positions: (fields.first?, fields.last?),
            messages: fields.messages?,
        })),
        _ => None,
    }
}

/// A log that grows.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Where the lines begin that were not read.
    at: u64,
}

impl Log {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), at: 0 }
    }

    /// Returns what the lines state that were written since the last call.
    pub(super) fn news(&mut self) -> Result<Vec<Done>, Failed> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.at))?;
        let (mut file, mut line, mut done) = (BufReader::new(file), String::new(), Vec::new());
        loop {
            line.clear();
            let length = file.read_line(&mut line)?;
            // The last line may still be incomplete.
            if length == 0 || !line.ends_with('\n') {
                return Ok(done);
            }
            self.at += length as u64;
            done.extend(read(&line));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use super::*;

    #[test]
    fn only_uploads_and_writes_are_read_and_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = File::create(&path).unwrap();
        let mut log = Log::new(&path);
        let upload = r#"{"timestamp":"1970-01-01T00:00:02.000500Z","level":"DEBUG","fields":{"message":"served","peer":"127.0.0.1","method":"PUT","path":"/v1/bundles","status":200,"took_us":400},"target":"moteseal_cloud::router"}"#;
        let other = upload.replace("PUT", "GET");
        let write = r#"{"timestamp":"1970-01-01T00:00:03.000001Z","level":"DEBUG","fields":{"message":"stored","messages":3,"first":7,"last":9,"took_us":1},"target":"moteseal_stream::worker"}"#;
        write!(file, "{other}\n{upload}\nnot JSON\n{write}\n{upload}").unwrap();
        let uploaded = Done::Upload(Work { from_us: 2_000_100, to_us: 2_000_500 });
        let work = Work { from_us: 3_000_000, to_us: 3_000_001 };
        let written = Done::Write(Write { work, positions: (7, 9), messages: 3 });
        assert_eq!(log.news().unwrap(), [uploaded, written]);
        writeln!(file).unwrap();
        assert_eq!(log.news().unwrap(), [uploaded]);
        assert_eq!(log.news().unwrap(), []);
    }
}
