//! Vectors of uTESLA (spec/tesla.md): parameters, the output of a sender, and the results of a
//! receiver for frames that arrive just before and after their time limits.

use moteseal_broadcast::tesla::sender::Sender;
use moteseal_broadcast::tesla::{MAX_PARAMETERS, Parameters, Schedule};
use moteseal_broadcast::{ChainId, ChainNumber};
use moteseal_core::DeviceId;
use moteseal_core::record::NetworkId;
use serde_json::{Value as Json, json};

use super::{File, Files};

const SECRET: [u8; 16] = [9; 16];
const START: u64 = 1_000_000;
const OFFSET: u64 = 30;

pub fn make(files: &mut Files) {
    files.add(parameters());
    files.add(sender_file());
    files.add(receiver_file());
}

fn schedule() -> Schedule {
    let id =
        ChainId { network: NetworkId([1; 8]), sender: DeviceId([2; 8]), number: ChainNumber(3) };
    Schedule { id, start_ms: START, interval_ms: 100, delay: 2, last: 7 }
}

fn of(schedule: &Schedule, more: Json) -> Json {
    let ChainId { network, sender, number } = schedule.id;
    let mut input =
        json!({ "network": network.to_string(), "sender": sender.to_string(), "chain": number.0 });
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    input
}

fn encoded(parameters: &Parameters) -> String {
    hex::encode(parameters.encode(&mut [0; MAX_PARAMETERS]).unwrap())
}

fn parameters() -> File {
    let mut file =
        File::new("tesla/parameters.json", "Parameters of a chain of keys: tesla.md, section 3.");
    let op = "tesla.parameters";
    let first = Sender::new(schedule(), SECRET).unwrap().parameters();
    let late = Sender::new(schedule(), SECRET).unwrap().parameters_at(START + 650).unwrap();
    let with = |parameters: &Parameters, asked: &Schedule| {
        of(asked, json!({ "bytes": encoded(parameters) }))
    };
    file.valid("from the beginning", op, with(&first, &schedule()));
    file.valid("of a later interval", op, with(&late, &schedule()));
    let later = Schedule { id: ChainId { number: ChainNumber(4), ..schedule().id }, ..schedule() };
    file.valid("said again by a later chain", op, with(&late, &later));
    file.valid("after the last key", op, with(&Parameters { committed: 7, ..first }, &schedule()));
    let longest = Schedule {
        start_ms: 1 << 50,
        interval_ms: u32::MAX,
        delay: 255,
        last: 1 << 20,
        ..schedule()
    };
    file.valid(
        "as long as they get",
        op,
        with(&Parameters { schedule: longest, committed: 1 << 20, key: [7; 16] }, &schedule()),
    );
    for (what, change, error) in [
        (
            "of another network",
            ChainId { network: NetworkId([9; 8]), ..schedule().id },
            "WrongNetwork",
        ),
        ("of another sender", ChainId { sender: DeviceId([9; 8]), ..schedule().id }, "WrongSender"),
        (
            "of a chain after the one they came in",
            ChainId { number: ChainNumber(2), ..schedule().id },
            "WrongChain",
        ),
    ] {
        file.invalid(what, op, with(&first, &Schedule { id: change, ..schedule() }), error);
    }
    for (what, schedule) in [
        ("intervals of no length", Schedule { interval_ms: 0, ..schedule() }),
        ("no delay", Schedule { delay: 0, ..schedule() }),
        ("no interval", Schedule { last: 0, ..schedule() }),
        ("an interval too many", Schedule { last: (1 << 20) + 1, ..schedule() }),
        ("a millisecond too late", Schedule { start_ms: u64::MAX - 999, ..schedule() }),
    ] {
        file.invalid(what, op, with(&Parameters { schedule, ..first }, &schedule), "Malformed");
    }
    file.invalid(
        "a key beyond the last",
        op,
        with(&Parameters { committed: 8, ..first }, &schedule()),
        "Malformed",
    );
    let mut version = first.encode(&mut [0; MAX_PARAMETERS]).unwrap().to_vec();
    version[1] = 2;
    file.invalid(
        "version 2",
        op,
        of(&schedule(), json!({ "bytes": hex::encode(version) })),
        "Malformed",
    );
    file
}

fn sender_file() -> File {
    let mut file =
        File::new("tesla/said.json", "What a sender says, and when: tesla.md, sections 2 and 4.");
    let op = "tesla.say";
    let input = |schedule: &Schedule, inputs: Json| {
        let Schedule { start_ms, interval_ms, delay, last, .. } = schedule;
        let rest = json!({
            "start": start_ms, "interval": interval_ms, "delay": delay, "last": last, "secret": hex::encode(SECRET), "says": inputs,
        });
        of(schedule, rest)
    };
    let go = hex::encode("go left");
    let inputs: Vec<Json> = (1..=12)
        .flat_map(|i| {
            let now = START + 100 * i;
            let message = (i <= 7).then(|| json!([now, go]));
            message.into_iter().chain([json!([now + 99, null])])
        })
        .collect();
    file.valid(
        "a message and a key each interval, and the last key again and again",
        op,
        input(&schedule(), json!(inputs)),
    );
    file.valid(
        "nothing before the first key may be told",
        op,
        input(&schedule(), json!([[0, null], [START + 299, null], [START + 300, null]])),
    );
    file.valid(
        "one interval",
        op,
        input(
            &Schedule { last: 1, delay: 1, ..schedule() },
            json!([[START + 100, ""], [START + 200, null]]),
        ),
    );
    file.valid(
        "after a long silence",
        op,
        input(
            &Schedule { last: 1000, delay: 5, ..schedule() },
            json!([[START + 99_999, go], [START + 99_999, null]]),
        ),
    );
    for (what, schedule, inputs, error) in [
        ("before the first interval", schedule(), json!([[START + 99, go]]), "NotStarted"),
        ("after the last one", schedule(), json!([[START + 800, go]]), "Ended"),
        (
            "back before an interval that was served",
            schedule(),
            json!([[START + 300, go], [START + 299, go]]),
            "ClockWentBack",
        ),
        (
            "back after the last one",
            schedule(),
            json!([[START + 1000, null], [START + 900, null]]),
            "ClockWentBack",
        ),
        (
            "a leap too long",
            Schedule { last: 4000, ..schedule() },
            json!([[START + 100, go], [START + 102_500, go], [START + 205_000, go]]),
            "LeapTooLong",
        ),
        (
            "intervals of no length",
            Schedule { interval_ms: 0, ..schedule() },
            json!([]),
            "IntervalOutOfRange",
        ),
        ("no delay", Schedule { delay: 0, ..schedule() }, json!([]), "DelayOutOfRange"),
        (
            "an interval too many",
            Schedule { last: (1 << 20) + 1, ..schedule() },
            json!([]),
            "TooManyIntervals",
        ),
        (
            "a millisecond too late",
            Schedule { start_ms: u64::MAX - 999, ..schedule() },
            json!([]),
            "EndsTooLate",
        ),
        (
            "a message too long",
            schedule(),
            json!([[START + 100, "00".repeat(4097)]]),
            "MessageTooLong",
        ),
    ] {
        file.invalid(what, op, input(&schedule, inputs), error);
    }
    file
}

/// Produces every frame that a sender with this schedule can send.
struct Frames(Schedule);

impl Frames {
    fn packet(&self, interval: u64, message: &[u8]) -> String {
        let mut sender = Sender::new(self.0, SECRET).unwrap();
        hex::encode(sender.packet(self.begins(interval), message, &mut [0; 128]).unwrap())
    }

    fn key(&self, interval: u64) -> String {
        let mut sender = Sender::new(self.0, SECRET).unwrap();
        hex::encode(
            sender
                .disclosure(self.begins(interval + u64::from(self.0.delay)), &mut [0; 128])
                .unwrap()
                .unwrap(),
        )
    }

    fn begins(&self, interval: u64) -> u64 {
        self.0.start_ms + interval * u64::from(self.0.interval_ms)
    }
}

/// Returns a frame with its last byte changed. This changes the tag of a packet, or the key of a
/// disclosure.
fn forged(frame: &str) -> String {
    let mut bytes = hex::decode(frame).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    hex::encode(bytes)
}

/// Returns a frame with another interval, which must be below 24 so that its encoding has one byte.
fn of_interval(interval: u8, frame: &str) -> String {
    let mut bytes = hex::decode(frame).unwrap();
    // The interval follows the array's head (one byte), the kind (two bytes) and the reference
    // (nine bytes).
    bytes[12] = interval;
    hex::encode(bytes)
}

fn receiver_file() -> File {
    let mut file = File::new(
        "tesla/heard.json",
        "What a receiver with room for messages of 32 bytes makes of frames: tesla.md, section 5.",
    );
    let op = "tesla.hear";
    let (frames, other) = (
        Frames(schedule()),
        Frames(Schedule { id: ChainId { number: ChainNumber(4), ..schedule().id }, ..schedule() }),
    );
    let first = Sender::new(schedule(), SECRET).unwrap().parameters();
    let input = |arrivals: Vec<Json>| {
        of(
            &schedule(),
            json!({ "parameters": encoded(&first), "offset": OFFSET, "steps": 4, "budget": 8, "heard": arrivals }),
        )
    };
    let disclosed_at = frames.begins(5) - OFFSET;
    for (what, now) in [
        ("a millisecond before", disclosed_at - 1),
        ("at", disclosed_at),
        ("a millisecond after", disclosed_at + 1),
    ] {
        let arrivals =
            vec![json!([now, frames.packet(3, b"go")]), json!([disclosed_at + 50, frames.key(3)])];
        file.valid(
            format!("a packet {what} the time when its key may be out"),
            op,
            input(arrivals),
        );
    }
    let begins = frames.begins(3) - OFFSET;
    for (what, now) in [("a millisecond before", begins - 1), ("at", begins)] {
        file.valid(
            format!("a packet {what} the time when its interval can begin"),
            op,
            input(vec![json!([now, frames.packet(3, b"go")])]),
        );
        file.valid(
            format!("a key {what} the time when its interval can begin"),
            op,
            input(vec![json!([now, frames.key(3)])]),
        );
    }
    for (what, now) in [
        ("a millisecond before it may be out", disclosed_at - 1),
        ("when it may be out", disclosed_at),
    ] {
        let arrivals = vec![
            json!([begins, frames.packet(3, b"go")]),
            json!([begins, frames.packet(3, b"on")]),
            json!([now, frames.key(3)]),
            json!([now, frames.packet(3, b"late")]),
        ];
        file.valid(format!("a genuine key {what}"), op, input(arrivals));
    }
    let leapt = vec![
        json!([frames.begins(2), frames.packet(2, b"go")]),
        json!([frames.begins(2), forged(&frames.key(4))]),
        json!([frames.begins(2), frames.key(4)]),
        json!([frames.begins(3), frames.packet(3, b"forged")]),
        json!([frames.begins(4), frames.packet(4, b"forged")]),
        json!([frames.begins(5), frames.packet(5, b"on")]),
        json!([frames.begins(7), frames.key(5)]),
    ];
    file.valid(
        "a genuine key of an interval that has not begun makes all up to it unsafe",
        op,
        input(leapt),
    );
    file.valid(
        "a genuine key before the chain begins",
        op,
        input(vec![json!([0, frames.key(4)]), json!([START + 100, frames.packet(1, b"")])]),
    );
    let lost =
        (1..=4).map(|i| json!([frames.begins(i), frames.packet(i, &[u8::try_from(i).unwrap()])]));
    file.valid(
        "keys that were lost follow from a later one",
        op,
        input(lost.chain([json!([frames.begins(6), frames.key(4)])]).collect()),
    );
    file.valid(
        "a key too many steps away, and one that is not",
        op,
        input(vec![
            json!([frames.begins(9), frames.key(5)]),
            json!([frames.begins(9), frames.key(4)]),
        ]),
    );
    let (now, far) = (frames.begins(4), forged(&frames.key(4)));
    let spent = vec![
        json!([now, far]),
        json!([now + 69, far]),
        json!([now + 69, frames.key(4)]),
        json!([now + 69, forged(&frames.key(3))]),
        json!([now + 70, far]),
        json!([frames.begins(6), frames.key(4)]),
    ];
    file.valid("keys further than the delay and one have a budget an interval", op, input(spent));
    let now = frames.begins(3);
    let named = vec![
        json!([now, frames.packet(3, b"go")]),
        json!([now, frames.packet(3, b"go")]),
        json!([now, forged(&frames.packet(3, b"go"))]),
        json!([now, other.packet(3, b"go")]),
        json!([now, frames.packet(4, b"go")]),
        json!([now, frames.packet(3, &[0; 32])]),
        json!([now, frames.packet(3, &[0; 33])]),
        json!([now, of_interval(0, &frames.packet(3, b"go"))]),
        json!([now, of_interval(8, &frames.packet(3, b"go"))]),
        json!([now, of_interval(8, &frames.key(1))]),
        json!([now, "851828480000000000000000004100480000000000000000"]),
        json!([now, "81182a"]),
        json!([now, "841828480000000000000000004100"]),
        json!([now, ""]),
        json!([now, frames.key(1)]),
        json!([now, frames.key(1)]),
        json!([now, forged(&frames.key(1))]),
        json!([now, forged(&frames.key(2))]),
        json!([now, other.key(2)]),
        json!([frames.begins(5), frames.key(3)]),
        json!([frames.begins(5), frames.key(2)]),
        json!([now, frames.packet(3, b"again")]),
    ];
    file.valid("each refusal by its name", op, input(named));
    file
}
