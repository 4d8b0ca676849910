//! The streams and the consumer: their names, their configuration, and how they are created.
//!
//! | stream | subjects | retention | contains |
//! |---|---|---|---|
//! | `NAME` | `NAME.batches` | work queue: a message is removed when a worker acknowledged it | batches |
//! | `NAME_pieces` | `NAME.pieces.ID.NUMBER` | limits; workers remove pieces after their batch is stored | pieces of batches that are longer than a message |
//! | `NAME_dead` | `NAME.dead` | limits; `replay` removes what it replays | messages that no worker can store |
//!
//! All streams are on disk and reject new messages when they are full, so nothing that was acknowledged
//! is ever discarded. No stream removes messages by age.

use std::time::Duration;

use serde_json::{Value, json};

use crate::connection::{Failed, Stream};
use crate::error::StreamError;
use crate::sync::Server;

/// How long a stream remembers the ids of messages, to ignore repeated publications.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);

/// JetStream's error codes.
pub(crate) mod code {
    pub(crate) const NO_JETSTREAM_FOR_ACCOUNT: u64 = 10039;
    pub(crate) const UNAVAILABLE: u64 = 10008;
    pub(crate) const NO_JETSTREAM: u64 = 10076;
    pub(crate) const STREAM_NOT_FOUND: u64 = 10059;
    pub(crate) const CONSUMER_NOT_FOUND: u64 = 10014;
    pub(crate) const WRONG_LAST_SEQUENCE: u64 = 10071;
    pub(crate) const MESSAGE_NOT_FOUND: u64 = 10037;
}

/// The names of the streams, subjects and consumer.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) batches: String,
    pub(crate) pieces: String,
    pub(crate) dead: String,
    pub(crate) batch_subject: String,
    /// The prefix of the subjects of pieces, without the last dot.
    pub(crate) piece_subject: String,
    pub(crate) dead_subject: String,
    pub(crate) consumer: &'static str,
}

impl Names {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            batches: name.to_owned(),
            pieces: format!("{name}_pieces"),
            dead: format!("{name}_dead"),
            batch_subject: format!("{name}.batches"),
            piece_subject: format!("{name}.pieces"),
            dead_subject: format!("{name}.dead"),
            consumer: "workers",
        }
    }
}

/// The parameters of the streams and the consumer that [`Stream::init`] creates. The number of replicas
/// is that of the [`Settings`](crate::Settings).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The most bytes of the stream of batches. It rejects batches beyond them.
    pub max_bytes: u64,
    /// The most bytes of the stream of pieces.
    pub piece_bytes: u64,
    /// The most bytes of the stream of dead letters.
    pub dead_bytes: u64,
    /// How long a worker may keep a message before the stream gives it to another worker.
    pub ack_wait: Duration,
    /// The most messages that all workers together have in progress.
    pub max_in_progress: u32,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            max_bytes: 8 << 30,
            piece_bytes: 2 << 30,
            dead_bytes: 256 << 20,
            ack_wait: Duration::from_secs(30),
            max_in_progress: 8192,
        }
    }
}

/// One of the streams.
pub(crate) struct Described {
    pub(crate) name: String,
    subjects: Vec<String>,
    retention: &'static str,
    pub(crate) max_bytes: u64,
    allow_direct: bool,
}

impl Described {
    pub(crate) fn all(names: &Names, layout: &Layout) -> [Self; 3] {
        [
            Self {
                name: names.batches.clone(),
                subjects: vec![names.batch_subject.clone()],
                retention: "workqueue",
                max_bytes: layout.max_bytes,
                allow_direct: false,
            },
            Self {
                name: names.pieces.clone(),
                subjects: vec![format!("{}.>", names.piece_subject)],
                retention: "limits",
                max_bytes: layout.piece_bytes,
                allow_direct: true,
            },
            Self {
                name: names.dead.clone(),
                subjects: vec![names.dead_subject.clone()],
                retention: "limits",
                max_bytes: layout.dead_bytes,
                allow_direct: true,
            },
        ]
    }

    fn config(&self, replicas: usize) -> Value {
        json!({
            "name": self.name,
            "subjects": self.subjects,
            "retention": self.retention,
            "storage": "file",
            "discard": "new",
            "num_replicas": replicas,
            "max_bytes": self.max_bytes,
            "max_msgs": -1,
            "max_msgs_per_subject": -1,
            "max_msg_size": -1,
            "max_consumers": -1,
            "max_age": 0,
            "duplicate_window": nanoseconds(DUPLICATE_WINDOW),
            "allow_direct": self.allow_direct,
        })
    }

    /// Checks a configuration that the servers have. `max_bytes` may differ, but must be set.
    pub(crate) fn check(&self, found: &Value, replicas: usize) -> Result<(), StreamError> {
        const LASTING: &str = "a stream keeps this setting: let the workers empty it, delete it and run \
                               `moteseal stream init`, or use another --stream-name";
        const CHANGEABLE: &str = "run `moteseal stream init` to change it";
        let wanted = self.config(replicas);
        let settings = [
            ("storage", LASTING),
            ("retention", LASTING),
            ("subjects", CHANGEABLE),
            ("discard", CHANGEABLE),
            ("num_replicas", CHANGEABLE),
            ("max_msgs", CHANGEABLE),
            ("max_msgs_per_subject", CHANGEABLE),
            ("max_msg_size", CHANGEABLE),
            ("max_age", CHANGEABLE),
            ("allow_direct", CHANGEABLE),
        ];
        let mismatch = |setting, found: &Value, expected: &Value, remedy| {
            let text = |value: &Value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            StreamError::StreamMismatch {
                of: format!("stream {}", self.name),
                setting,
                found: text(found),
                expected: text(expected),
                remedy,
            }
        };
        for (setting, remedy) in settings {
            // The servers leave out fields with the value false.
            let found = found.get(setting).cloned().unwrap_or(Value::Bool(false));
            if found != wanted[setting] {
                return Err(mismatch(setting, &found, &wanted[setting], remedy));
            }
        }
        if found["max_bytes"].as_i64().unwrap_or(-1) <= 0 {
            let expected = Value::from("a limit");
            return Err(mismatch("max_bytes", &found["max_bytes"], &expected, CHANGEABLE));
        }
        for (setting, is_on) in [
            ("no_ack", found["no_ack"] == true),
            ("sealed", found["sealed"] == true),
            ("persist_mode", found["persist_mode"] == "async"),
        ] {
            if is_on {
                let expected = Value::from("absent");
                return Err(mismatch(setting, &found[setting], &expected, LASTING));
            }
        }
        Ok(())
    }
}

fn consumer_config(names: &Names, layout: &Layout) -> Value {
    json!({
        "durable_name": names.consumer,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "replay_policy": "instant",
        "ack_wait": nanoseconds(layout.ack_wait),
        "max_deliver": -1,
        "max_ack_pending": layout.max_in_progress,
    })
}

/// Checks the configuration of the consumer.
pub(crate) fn check_consumer(names: &Names, found: &Value) -> Result<(), StreamError> {
    let wanted = consumer_config(names, &Layout::default());
    for setting in ["ack_policy", "max_deliver", "deliver_policy", "replay_policy"] {
        if found[setting] != wanted[setting] {
            return Err(StreamError::StreamMismatch {
                of: format!("consumer {} of stream {}", names.consumer, names.batches),
                setting,
                found: found[setting].to_string(),
                expected: wanted[setting].to_string(),
                remedy: "delete the consumer and run `moteseal stream init`; no message is lost",
            });
        }
    }
    Ok(())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Stream {
    /// Creates the streams and the consumer. What exists already is changed to the layout; what cannot
    /// be changed is an error. Calling it again changes nothing.
    ///
    /// # Errors
    /// [`StreamError`].
    pub async fn init(&self, layout: &Layout) -> Result<(), StreamError> {
        let (names, replicas) = (self.names(), self.settings().replicas);
        for described in Described::all(names, layout) {
            let config = described.config(replicas);
            match self.info(&described.name).await {
                Ok(found) => {
                    if let Err(error @ StreamError::StreamMismatch { setting, .. }) =
                        described.check(&found, replicas)
                        && matches!(setting, "retention" | "storage" | "no_ack" | "sealed")
                    {
                        return Err(error);
                    }
                    let subject = format!("STREAM.UPDATE.{}", described.name);
                    self.api(&subject, &config).await.map_err(|failed| self.explained(failed))?;
                }
                Err(StreamError::StreamMissing { .. }) => {
                    let subject = format!("STREAM.CREATE.{}", described.name);
                    self.api(&subject, &config).await.map_err(|failed| self.explained(failed))?;
                }
                Err(error) => return Err(error),
            }
        }
        let subject = format!("CONSUMER.CREATE.{}.{}", names.batches, names.consumer);
        let body =
            json!({ "stream_name": names.batches, "config": consumer_config(names, layout) });
        self.api(&subject, &body).await.map_err(|failed| self.explained(failed))?;
        Ok(())
    }

    /// Returns the configuration of a stream.
    pub(crate) async fn info(&self, stream: &str) -> Result<Value, StreamError> {
        Ok(self.info_and_servers(stream).await?.0)
    }

    /// Returns the configuration of a stream, and the servers that have it.
    pub(crate) async fn info_and_servers(
        &self,
        stream: &str,
    ) -> Result<(Value, Vec<Server>), StreamError> {
        let answer = self.api(&format!("STREAM.INFO.{stream}"), &Value::Null).await;
        let mut answer = answer.map_err(|failed| match failed {
            Failed::Code { code: code::STREAM_NOT_FOUND, .. } => {
                StreamError::StreamMissing { what: format!("stream {stream}") }
            }
            other => self.explained(other),
        })?;
        let cluster = &answer["cluster"];
        let server = |name: &Value, is_offline: &Value| {
            let name = name.as_str().filter(|name| !name.is_empty())?.to_owned();
            Some(Server { name, is_offline: is_offline.as_bool().unwrap_or(false) })
        };
        let replicas = cluster["replicas"].as_array().into_iter().flatten();
        let replicas = replicas.filter_map(|of| server(&of["name"], &of["offline"]));
        let servers = replicas.chain(server(&cluster["leader"], &Value::Null)).collect();
        Ok((answer["config"].take(), servers))
    }

    /// Returns the state of the consumer.
    pub(crate) async fn consumer_info(&self) -> Result<Value, StreamError> {
        let names = self.names();
        let subject = format!("CONSUMER.INFO.{}.{}", names.batches, names.consumer);
        self.api(&subject, &Value::Null).await.map_err(|failed| match failed {
            Failed::Code { code: code::STREAM_NOT_FOUND, .. } => {
                StreamError::StreamMissing { what: format!("stream {}", names.batches) }
            }
            Failed::Code { code: code::CONSUMER_NOT_FOUND, .. } => StreamError::StreamMissing {
                what: format!("consumer {} of stream {}", names.consumer, names.batches),
            },
            other => self.explained(other),
        })
    }

    /// Returns the error of a failed request to JetStream's interface.
    pub(crate) fn explained(&self, failed: Failed) -> StreamError {
        match failed {
            Failed::NoResponders
            | Failed::Code { code: code::NO_JETSTREAM | code::NO_JETSTREAM_FOR_ACCOUNT, .. } => {
                StreamError::NoJetStream { servers: self.servers() }
            }
            // For example while the servers choose a leader.
            Failed::Code { code: code::UNAVAILABLE, text } => {
                StreamError::Unreachable { servers: self.servers(), what: text }
            }
            other => other.into(),
        }
    }
}
