//! A malicious operator of a NATS server alters, drops, swaps, moves and repeats what an intake has published,
//! before a worker takes it. The worker or the client names every alteration, and nothing false is served.

use std::ops::Range;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::jetstream::{self, Context};
use moteseal_core::digest::Digest;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::intake_pressure::metric;
use crate::nats::{SYNCED, Server};
use crate::scene::{Run, Scene};
use crate::stream_roles::cloud;

const BATCHES: &str = "moteseal.batches";
const DIGEST: &str = "Moteseal-Digest";
const PIECES: &str = "Moteseal-Pieces";
/// The seals of each device.
const SEALS: usize = 8;
/// The bytes of a seal's key: device, index, digest.
const KEY: usize = 44;

/// A message as it is in a stream.
#[derive(Clone, Debug)]
struct Message {
    subject: String,
    headers: HeaderMap,
    payload: Vec<u8>,
}

/// Where the parts of a batch with one bundle are (crates/store/src/batch/encoding.rs).
struct Parts {
    schema: Range<usize>,
    key: Range<usize>,
    head: Range<usize>,
    body: Range<usize>,
}

impl Message {
    fn parts(&self) -> Parts {
        let bytes = &self.payload;
        let number = |at: usize| {
            usize::try_from(u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())).unwrap()
        };
        assert_eq!((bytes[0], number(1)), (1, 1), "a version and one schema");
        let schema = 9..9 + number(5);
        assert_eq!(number(schema.end), 1, "one bundle");
        let key = schema.end + 8..schema.end + 8 + KEY;
        let head = key.end + 4..key.end + 4 + number(key.end);
        let body = head.end + 4..head.end + 4 + number(head.end);
        assert_eq!(body.end, bytes.len());
        Parts { schema, key, head, body }
    }

    /// Returns the message with another payload and the digest of before.
    fn with(&self, payload: Vec<u8>) -> Self {
        Self { payload, ..self.clone() }
    }

    /// Returns the message with a changed payload and the digest that fits.
    fn forged(&self, change: impl FnOnce(&mut Vec<u8>, &Parts)) -> Self {
        let mut forged = self.clone();
        change(&mut forged.payload, &self.parts());
        forged.headers.insert(DIGEST, Digest::of(&[&forged.payload]).to_string().as_str());
        forged
    }

    /// Returns the forged message in which one byte is changed.
    fn flipped(&self, at: impl FnOnce(&[u8], &Parts) -> usize) -> Self {
        self.forged(|bytes, parts| {
            let at = at(bytes, parts);
            bytes[at] ^= 1;
        })
    }

    fn to(&self, subject: &str) -> Self {
        Self { subject: subject.to_owned(), ..self.clone() }
    }

    fn header(&self, name: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.headers.insert(name, value);
        changed
    }
}

/// What the honest intakes have published.
struct Honest {
    /// A message for each bundle: those of a device with stars, then those of one with trees.
    single: Vec<Message>,
    /// The same bundles in one upload for each device: pieces, then the messages that commit them.
    long: Vec<Message>,
    /// The seals of a stranger who uses the name of the device with stars.
    forged: Vec<Message>,
}

impl Honest {
    fn star(&self, index: usize) -> &Message {
        &self.single[index]
    }

    fn tree(&self, index: usize) -> &Message {
        &self.single[SEALS + index]
    }

    /// Returns all messages, with other ones at these places.
    fn but<const N: usize>(&self, changes: [(usize, Message); N]) -> Vec<Message> {
        let mut messages = self.single.clone();
        for (at, message) in changes {
            messages[at] = message;
        }
        messages
    }

    fn without(&self, dropped: Range<usize>) -> Vec<Message> {
        let mut messages = self.single.clone();
        messages.drain(dropped);
        messages
    }

    /// Returns the place in the long uploads of a piece of the first one.
    fn piece(&self, number: usize) -> usize {
        let commit = self.long.iter().find(|message| message.subject == BATCHES).unwrap();
        let pieces = commit.headers.get(PIECES).unwrap().as_str();
        let (id, count) = pieces.split_once(' ').unwrap();
        assert!(number < count.parse().unwrap(), "{pieces}");
        let subject = format!("moteseal.pieces.{id}.{number}");
        self.long.iter().position(|message| message.subject == subject).unwrap()
    }
}

/// A lie: its name, the errors of the dead letters, the error of the client, and what the worker receives. Without an
/// error of the client, it gets all honest readings.
type Lie =
    (&'static str, &'static [&'static str], Option<&'static str>, fn(&Honest) -> Vec<Message>);

const LIES: &[Lie] = &[
    // The digest does not fit.
    ("a reading is altered", &["Altered"], Some("Missing"), |honest| {
        let mut payload = honest.star(3).payload.clone();
        *payload.last_mut().unwrap() ^= 1;
        honest.but([(3, honest.star(3).with(payload))])
    }),
    ("a message is cut off", &["Altered"], Some("Missing"), |honest| {
        let payload = &honest.star(3).payload;
        honest.but([(3, honest.star(3).with(payload[..payload.len() - 4].to_vec()))])
    }),
    (
        "the contents of two messages are exchanged",
        &["Altered", "Altered"],
        Some("Missing"),
        |honest| {
            let (a, b) = (honest.star(2), honest.star(6));
            honest.but([(2, a.with(b.payload.clone())), (6, b.with(a.payload.clone()))])
        },
    ),
    ("a message has no headers", &["NotAMessage"], Some("Missing"), |honest| {
        honest.but([(3, Message { headers: HeaderMap::new(), ..honest.star(3).clone() })])
    }),
    // The digest fits: the operator knows the format.
    ("a reading is altered with its digest", &[], Some("BlockDigestMismatch"), |honest| {
        honest.but([(3, honest.star(3).flipped(|bytes, _| bytes.len() - 1))])
    }),
    ("a reading of a tree is altered with its digest", &[], Some("PathMismatch"), |honest| {
        honest.but([(SEALS + 3, honest.tree(3).flipped(|bytes, _| bytes.len() - 1))])
    }),
    ("the readings of two seals are exchanged", &[], Some("BlockDigestMismatch"), |honest| {
        let body = |message: &Message| message.payload[message.parts().body].to_vec();
        let (a, b) = (honest.star(2), honest.star(6));
        let with = |message: &Message, body: Vec<u8>| {
            message.forged(|bytes, parts| bytes[parts.body.clone()].copy_from_slice(&body))
        };
        honest.but([(2, with(a, body(b))), (6, with(b, body(a)))])
    }),
    ("the signature is altered", &[], Some("NotAuthentic"), |honest| {
        // Later seals contain the digest of the one before, so only the last signature counts.
        let last = honest.tree(SEALS - 1).flipped(|bytes, parts| {
            // Version, epoch, size of a record, number of readings, and length precede the signed statement.
            let head = parts.head.start;
            let length = u16::from_be_bytes([bytes[head + 19], bytes[head + 20]]);
            head + 20 + usize::from(length)
        });
        honest.but([(2 * SEALS - 1, last)])
    }),
    ("the signed statement is altered", &["NotABatch"], Some("Missing"), |honest| {
        honest.but([(4, honest.star(4).flipped(|_, parts| parts.head.start + 40))])
    }),
    ("the number of readings is altered", &["NotABatch"], Some("Missing"), |honest| {
        honest.but([(4, honest.star(4).flipped(|_, parts| parts.head.start + 18))])
    }),
    ("the last reading is cut off with its digest", &["NotABatch"], Some("Missing"), |honest| {
        let cut = honest.star(4).forged(|bytes, parts| {
            bytes.truncate(parts.body.end - 4);
            let length = u32::try_from(parts.body.len() - 4).unwrap();
            bytes[parts.head.end..parts.body.start].copy_from_slice(&length.to_be_bytes());
        });
        honest.but([(4, cut)])
    }),
    (
        "two seals have the keys of each other",
        &["NotABatch", "NotABatch"],
        Some("Missing"),
        |honest| {
            let (a, b) = (honest.star(2), honest.star(6));
            let keyed = |message: &Message, from: &Message| {
                let key = from.payload[from.parts().key].to_vec();
                message.forged(|bytes, parts| bytes[parts.key.clone()].copy_from_slice(&key))
            };
            honest.but([(2, keyed(a, b)), (6, keyed(b, a))])
        },
    ),
    ("a seal is moved to the other device", &["NotABatch"], Some("Missing"), |honest| {
        let key = honest.tree(5).parts().key.start;
        let device = honest.tree(5).payload[key..key + 8].to_vec();
        let moved = honest.star(5).forged(|bytes, parts| {
            bytes[parts.key.start..parts.key.start + 8].copy_from_slice(&device);
        });
        honest.but([(5, moved)])
    }),
    ("a seal is moved to another epoch", &["NotABatch"], Some("Missing"), |honest| {
        honest.but([(5, honest.star(5).flipped(|_, parts| parts.head.start + 8))])
    }),
    ("the schema is another one", &["NotABatch"], Some("Missing"), |honest| {
        let renamed = honest.star(4).forged(|bytes, parts| {
            let schema = &mut bytes[parts.schema.clone()];
            let at = schema.windows(8).position(|name| name == b"humidity").unwrap();
            schema[at..at + 8].copy_from_slice(b"moisture");
        });
        honest.but([(4, renamed)])
    }),
    ("a batch is of an unknown version", &["NotABatch"], Some("Missing"), |honest| {
        honest.but([(4, honest.star(4).forged(|bytes, _| bytes[0] = 9))])
    }),
    ("a stranger has sealed in the name of the device", &[], Some("UnknownRoster"), |honest| {
        [&honest.forged[..], &honest.single[SEALS..]].concat()
    }),
    ("a stranger's seals are next to those of the device", &[], Some("UnknownRoster"), |honest| {
        [&honest.forged[..], &honest.single[..]].concat()
    }),
    // Messages do not arrive.
    ("a message is dropped", &[], Some("Missing"), |honest| honest.without(5..6)),
    ("the first message is dropped", &[], Some("Missing"), |honest| honest.without(0..1)),
    ("the newest message is dropped", &[], Some("Missing"), |honest| {
        honest.without(SEALS - 1..SEALS)
    }),
    ("everything is acknowledged and deleted", &[], Some("Missing"), |_| Vec::new()),
    ("an old snapshot is restored", &[], Some("Missing"), |honest| {
        honest.without(SEALS / 2..SEALS)
    }),
    ("a message is moved to the subject of the pieces", &[], Some("Missing"), |honest| {
        let moved = honest.star(5).to("moteseal.pieces.00000000000000000000000000000000.0");
        honest.but([(5, moved)])
    }),
    ("a message is moved to the dead letters", &["Unknown"], Some("Missing"), |honest| {
        honest.but([(5, honest.star(5).to("moteseal.dead"))])
    }),
    ("a message is buried with a false reason", &["TooLong"], Some("Missing"), |honest| {
        let dead = honest.star(5).to("moteseal.dead").header("Moteseal-Error", "TooLong");
        honest.but([(5, dead)])
    }),
    // Long batches, which travel in pieces.
    ("a piece is dropped", &["PieceMissing"], Some("Missing"), |honest| {
        let mut messages = honest.long.clone();
        messages.remove(honest.piece(1));
        messages
    }),
    ("a piece is altered", &["Altered"], Some("Missing"), |honest| {
        let mut messages = honest.long.clone();
        messages[honest.piece(1)].payload[100] ^= 1;
        messages
    }),
    ("two pieces are exchanged", &["Altered"], Some("Missing"), |honest| {
        let mut messages = honest.long.clone();
        let (a, b) = (honest.piece(0), honest.piece(1));
        (messages[a].payload, messages[b].payload) =
            (honest.long[b].payload.clone(), honest.long[a].payload.clone());
        messages
    }),
    ("a long batch states a length beyond the limit", &["TooLong"], Some("Missing"), |honest| {
        let mut messages = honest.long.clone();
        let commit = messages.iter_mut().find(|message| message.subject == BATCHES).unwrap();
        commit.headers.insert("Moteseal-Length", (2_u64 << 30).to_string().as_str());
        messages
    }),
    // What a grow-only set is not affected by.
    ("every message is delivered twice", &[], None, |honest| {
        honest.single.iter().flat_map(|message| [message.clone(), message.clone()]).collect()
    }),
    ("the order is reversed", &[], None, |honest| honest.single.iter().rev().cloned().collect()),
    ("old messages are replayed after newer ones", &[], None, |honest| {
        [&honest.single[..], &honest.single[..SEALS / 2], &honest.long].concat()
    }),
];

/// The server in the hands of the operator.
struct Operator {
    runtime: Runtime,
    client: async_nats::Client,
    context: Context,
}

impl Operator {
    fn new(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(async_nats::connect(&server.url)).unwrap();
        let context = {
            let _entered = runtime.enter();
            jetstream::new(client.clone())
        };
        Self { runtime, client, context }
    }

    /// Takes everything out of a stream.
    fn take(&self, stream: &str) -> Vec<Message> {
        self.runtime.block_on(async {
            let stream = self.context.get_stream(stream).await.unwrap();
            let state = stream.get_info().await.unwrap().state;
            let mut messages = Vec::new();
            for number in state.first_sequence..=state.last_sequence {
                if state.messages == 0 {
                    break;
                }
                let message = stream.get_raw_message(number).await.unwrap();
                messages.push(Message {
                    subject: message.subject.to_string(),
                    headers: message.headers,
                    payload: message.payload.to_vec(),
                });
            }
            stream.purge().await.unwrap();
            messages
        })
    }

    fn purge(&self, stream: &str) {
        self.runtime.block_on(async {
            self.context.get_stream(stream).await.unwrap().purge().await.unwrap();
        });
    }

    /// Puts messages into the streams of their subjects, in this order.
    fn put(&self, messages: Vec<Message>) {
        self.runtime.block_on(async {
            for message in messages {
                let mut headers = HeaderMap::new();
                // Without the id, by which the server would ignore repetitions.
                for (name, values) in message.headers.iter() {
                    let text: &str = name.as_ref();
                    if text != "Nats-Msg-Id" {
                        headers.insert(name.clone(), values[0].clone());
                    }
                }
                let sent = self.context.publish_with_headers(
                    message.subject,
                    headers,
                    message.payload.into(),
                );
                sent.await.unwrap().await.unwrap();
            }
        });
    }

    /// Waits until the workers have ended with every message.
    fn drained(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        let info = || async {
            let subject = "$JS.API.CONSUMER.INFO.moteseal.workers";
            let answer = self.client.request(subject, "".into()).await.unwrap();
            serde_json::from_slice::<Value>(&answer.payload).unwrap()
        };
        loop {
            let info = self.runtime.block_on(info());
            if info["num_pending"] == 0 && info["num_ack_pending"] == 0 {
                return;
            }
            assert!(Instant::now() < until, "{info}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Uploads a folder or a bundle, and returns what the intake has published.
fn published(scene: &Scene, operator: &Operator, intake: &str, bundles: &str) -> Vec<Message> {
    let pushed = scene.run(&["push", bundles, "--to", intake, "--json"]).done().json();
    assert!(pushed["queued"].as_u64().unwrap() > 0, "{pushed}");
    [operator.take("moteseal_pieces"), operator.take("moteseal")].concat()
}

/// Gets all readings of both devices up to the end.
fn get(scene: &Scene, url: &str) -> [Run; 2] {
    ["dev1", "dev2"].map(|device| {
        let range = ["--since", "2026-01-01", "--until", "2026-01-01T08:00:00Z"];
        let get = ["get", device, "--from", url, "--rate", "1", "--format", "csv"];
        scene.with_roster(&[&get[..], &range].concat())
    })
}

#[test]
fn every_lie_of_a_malicious_stream_is_named_and_nothing_false_is_served() {
    // A message has at most 3 KiB, so that the bundles of a device travel in pieces.
    let nats = Server::with(SYNCED, "max_payload: 4096");
    let (scene, stranger) = (Scene::new(), Scene::new());
    let limits = ["--max-mib", "16", "--piece-mib", "16", "--dead-mib", "4"];
    scene.run(&[&["stream", "init"][..], &limits, &nats.arguments()].concat()).done();
    let operator = Operator::new(&nats);
    let readings = u32::try_from(60 * SEALS).unwrap();
    for (scene, devices) in [(&scene, &["dev1", "dev2"][..]), (&stranger, &["dev1"][..])] {
        scene.table("readings.csv", readings);
        for device in devices {
            let scheme = if *device == "dev2" { "tree" } else { "star" };
            scene.seal("readings.csv", device, &["--scheme", scheme]).done();
        }
    }
    let intake = cloud(&scene, &nats, &["--role", "intake"]);
    let url = intake.url("http");
    let single: Vec<Message> = scene
        .names("bundles")
        .iter()
        .flat_map(|name| published(&scene, &operator, url, &format!("bundles/{name}")))
        .collect();
    assert_eq!(single.len(), 2 * SEALS);
    let long = published(&scene, &operator, url, "bundles");
    drop(intake);
    // The group of the stranger has the same name, and so have its devices.
    let intake = cloud(&stranger, &nats, &["--role", "intake"]);
    let forged: Vec<Message> = stranger
        .names("bundles")
        .iter()
        .flat_map(|name| {
            published(&stranger, &operator, intake.url("http"), &format!("bundles/{name}"))
        })
        .collect();
    drop(intake);
    let honest = Honest { single, long, forged };

    let mut number = 0;
    // Lets a worker with a new store take messages, and a client read it.
    let mut serve = |messages: Vec<Message>| {
        number += 1;
        operator.put(messages);
        let store = format!("{number}.redb");
        let service = cloud(&scene, &nats, &["--role", "worker,serve", "--store", &store]);
        operator.drained();
        let runs = get(&scene, service.url("http"));
        (runs, service)
    };
    let (runs, _) = serve(honest.single.clone());
    let truth = runs.map(|run| run.done().out);
    assert!(truth.iter().all(|rows| rows.lines().count() == 60 * SEALS + 1));

    let mut accepted = Vec::new();
    for (name, errors, expected, lie) in LIES {
        let (runs, service) = serve(lie(&honest));
        // No device has signed two seals of one index.
        let conflicts = metric(service.url("http"), "moteseal_worker_conflicts_total");
        assert!(conflicts.abs() < 0.5, "{name}: {conflicts}");
        drop(service);
        operator.purge("moteseal_pieces");
        let letters = operator.take("moteseal_dead");
        let mut found: Vec<String> = letters
            .iter()
            .map(|letter| {
                let error = letter.headers.get("Moteseal-Error");
                error.map_or("Unknown", async_nats::HeaderValue::as_str).to_owned()
            })
            .collect();
        found.sort_unstable();
        let refused: Vec<&str> =
            runs.iter().filter(|run| run.code != 0).map(|run| run.failed(run.code)).collect();
        println!("{name}: {found:?} {refused:?}");
        let is_named = |line: &&str| {
            expected.is_some_and(|expected| line.starts_with(&format!("moteseal: {expected}: ")))
        };
        if found != *errors
            || refused.is_empty() != expected.is_none()
            || !refused.iter().all(is_named)
        {
            accepted.push((name, found, refused.len()));
        }
        for (run, truth) in runs.iter().zip(&truth) {
            // What was printed before the refusal is true.
            assert!(truth.starts_with(&run.out), "{name}: {run:?}");
            assert!(run.code != 0 || run.out == *truth, "{name}: {run:?}");
        }
    }
    assert!(accepted.is_empty(), "{accepted:?}");

    // A message that the operator has buried is stored after a replay.
    let (runs, service) = serve(honest.but([(5, honest.star(5).to("moteseal.dead"))]));
    assert!(runs[0].failed(4).contains("Missing"), "{runs:?}");
    scene.run(&[&["stream", "dead", "replay"][..], &nats.arguments()].concat()).done();
    operator.drained();
    assert_eq!(get(&scene, service.url("http")).map(|run| run.done().out), truth);
}
