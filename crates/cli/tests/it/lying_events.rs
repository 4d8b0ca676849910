//! The rows of urgent events in Cassandra, and lies about them (see `lying_rows.rs`).

use Outcome::{Fewer, Named, Same};
use moteseal_core::cbor::Writer;
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{SecretKey, Signer as _};
use moteseal_core::{DeviceId, GroupId};
use moteseal_seal::UrgentEvent;
use moteseal_verify::Roster;

use crate::budgeted::FIRST;
use crate::lying_rows::{Lie, Outcome};
use crate::lying_table::{Change, changed, hex, wrap};

/// A place after all events.
pub(crate) const LATER: i64 = 9;

/// Returns the schema of the readings of the group.
pub(crate) fn schema() -> Vec<u8> {
    let mut buffer = [0; 256];
    Schema::encode(&[Field::parse("place::u32").unwrap()], &mut buffer).unwrap().as_bytes().to_vec()
}

/// Returns an urgent event with a value that `key` signs in the name of a device. Each device has one seal in
/// each epoch.
pub(crate) fn event(
    (group, roster): (GroupId, &Roster),
    device: DeviceId,
    (epoch, seq): (u64, u64),
    value: u32,
    key: &SecretKey,
) -> Vec<u8> {
    let record = value.to_be_bytes();
    let event = UrgentEvent {
        group,
        roster: roster.digest(),
        device,
        index: SealIndex(u32::try_from(epoch).unwrap()),
        epoch: EpochNumber(FIRST + epoch),
        seq: Sequence(seq),
        schema: Schema::decode(&schema()).unwrap().digest(),
        keys: None,
        record: &record,
    };
    let mut buffer = [0; 1024];
    let signature = key.signature(event.message(key.algorithm(), &mut buffer).unwrap()).unwrap();
    let mut bytes = [0; 1024];
    let mut out = Writer::new(&mut bytes);
    event.encode(&mut out, key.algorithm(), &signature).unwrap();
    out.written().to_vec()
}

/// An urgent event, and its rows in the tables `urgent`, `urgent_sizes`, `urgent_order` and `urgent_placed`.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) device: Vec<u8>,
    index: u32,
    seq: u64,
    pub(crate) digest: Vec<u8>,
    epoch: u64,
    pub(crate) number: i64,
    pub(crate) bytes: Vec<u8>,
}

impl Event {
    pub(crate) fn new(
        device: DeviceId,
        (epoch, seq): (u64, u64),
        number: i64,
        bytes: Vec<u8>,
    ) -> Self {
        Self {
            device: device.0.to_vec(),
            index: u32::try_from(epoch).unwrap(),
            seq,
            digest: UrgentEvent::digest(&bytes).unwrap().0.to_vec(),
            epoch: FIRST + epoch,
            number,
            bytes,
        }
    }

    /// Returns the key of the event in checksums.
    fn key(&self) -> Vec<u8> {
        let (index, seq) = (self.index.to_be_bytes(), self.seq.to_be_bytes());
        [&self.device[..], &index, &seq, &self.digest].concat()
    }

    /// Returns the columns of the key, with their values.
    fn columns(&self) -> [(&'static str, String); 4] {
        [
            ("device", hex(&self.device)),
            ("seal_index", self.index.to_string()),
            ("seq", hex(&self.seq.to_be_bytes())),
            ("digest", hex(&self.digest)),
        ]
    }

    /// Returns a condition for the rows of the event in a table with spans.
    pub(crate) fn condition(&self) -> String {
        let [device, others @ ..] = self.columns().map(|(name, value)| format!("{name} = {value}"));
        format!("{device} AND span = 0 AND {}", others.join(" AND "))
    }

    /// Returns a statement that adds a row with the event's key and one more column.
    fn insert_into(&self, table: &str, has_spans: bool, (name, value): (&str, String)) -> String {
        let (mut names, mut values): (Vec<_>, Vec<_>) = self.columns().into_iter().unzip();
        if has_spans {
            names.push("span");
            values.push("0".to_owned());
        }
        names.push(name);
        values.push(value);
        format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "))
    }

    pub(crate) fn row(&self, bytes: &[u8]) -> Vec<u8> {
        wrap(&[b"urgent", &self.key()], bytes)
    }

    pub(crate) fn insert(&self, bytes: &[u8]) -> String {
        self.insert_into("urgent", true, ("event", hex(&self.row(bytes))))
    }

    pub(crate) fn delete(&self) -> String {
        format!("DELETE FROM urgent WHERE {}", self.condition())
    }

    /// Replaces the signed event, under the same key.
    fn with(&self, bytes: &[u8]) -> Change {
        Change(vec![self.insert(bytes)], vec![self.insert(&self.bytes)])
    }

    /// Returns the value at a place under this event's digest that leads to `to`.
    pub(crate) fn place_of(&self, number: i64, to: &Self) -> Vec<u8> {
        let value = [&to.key()[..], &to.epoch.to_be_bytes()].concat();
        wrap(&[b"place", &number.to_be_bytes(), &self.digest], &value)
    }

    fn put_place_of(&self, number: i64, to: &Self) -> String {
        let (digest, place) = (hex(&self.digest), hex(&self.place_of(number, to)));
        format!(
            "INSERT INTO urgent_order (bucket, number, digest, place) VALUES (0, {number}, {digest}, {place})"
        )
    }

    fn put_place(&self, number: i64) -> String {
        self.put_place_of(number, self)
    }

    fn delete_place(&self, number: i64) -> String {
        let digest = hex(&self.digest);
        format!(
            "DELETE FROM urgent_order WHERE bucket = 0 AND number = {number} AND digest = {digest}"
        )
    }

    fn confirm(&self, number: i64) -> String {
        self.insert_into("urgent_placed", true, ("number", number.to_string()))
    }

    fn unconfirm(&self, number: i64) -> String {
        format!("DELETE FROM urgent_placed WHERE {} AND number = {number}", self.condition())
    }

    pub(crate) fn put_size(&self, size: i64) -> String {
        self.insert_into("urgent_sizes", false, ("size", size.to_string()))
    }

    /// Gives the event another key. Its place leads there.
    fn moved(&self, to: &Self) -> Change {
        let place = self.put_place_of(self.number, to);
        Change(vec![to.insert(&self.bytes), place], vec![to.delete(), self.put_place(self.number)])
    }

    /// Adds the event, with a place of its own.
    fn added(&self) -> Change {
        Change(
            vec![self.insert(&self.bytes), self.put_place(LATER), self.confirm(LATER)],
            vec![self.delete(), self.delete_place(LATER), self.unconfirm(LATER)],
        )
    }
}

/// Lies about urgent events. The first command gets those of all devices, the second one those of `north` from the
/// second epoch on: the third event and the last one.
pub(crate) const EVENT_LIES: &[Lie] = &[
    ("the record of an event is changed", [Named("NotAuthentic"); 2], |rows| {
        // The last byte before the signature.
        let event = &rows.events[2];
        event.with(&changed(&event.bytes, event.bytes.len() - 67))
    }),
    ("the signature of an event is changed", [Named("NotAuthentic"); 2], |rows| {
        let event = &rows.events[2];
        event.with(&changed(&event.bytes, event.bytes.len() - 1))
    }),
    ("an event is cut off", [Named("StoreDamaged"); 2], |rows| {
        let event = &rows.events[2];
        event.with(&event.bytes[..event.bytes.len() - 4])
    }),
    ("an event is that of another device", [Fewer(1), Named("NotAsAsked")], |rows| {
        rows.events[2].with(&rows.events[3].bytes)
    }),
    ("an event is given to another device", [Same, Named("NotAsAsked")], |rows| {
        let event = &rows.events[3];
        event.moved(&Event { device: rows.events[2].device.clone(), ..event.clone() })
    }),
    ("an event is given to another seal", [Same, Same], |rows| {
        let event = &rows.events[2];
        event.moved(&Event { index: 7, ..event.clone() })
    }),
    ("an event is given to another place of its seal", [Same, Same], |rows| {
        let event = &rows.events[2];
        event.moved(&Event { seq: 7, ..event.clone() })
    }),
    ("an event is said to be of a later epoch", [Same, Named("NotAsAsked")], |rows| {
        let event = &rows.events[0];
        let later = Event { epoch: FIRST + 1, ..event.clone() };
        Change(vec![later.put_place(event.number)], vec![event.put_place(event.number)])
    }),
    ("an event is said to be of an earlier epoch", [Same, Fewer(1)], |rows| {
        let event = &rows.events[2];
        let earlier = Event { epoch: FIRST - 1, ..event.clone() };
        Change(vec![earlier.put_place(event.number)], vec![event.put_place(event.number)])
    }),
    ("an event is dropped, and its place is left", [Named("StoreDamaged"); 2], |rows| {
        let event = &rows.events[2];
        Change(vec![event.delete()], vec![event.insert(&event.bytes)])
    }),
    ("an event and its place are dropped", [Fewer(1), Fewer(1)], |rows| {
        let event = &rows.events[2];
        Change(
            vec![event.delete(), event.delete_place(event.number)],
            vec![event.insert(&event.bytes), event.put_place(event.number)],
        )
    }),
    ("the order is cut off", [Fewer(2), Fewer(1)], |rows| {
        let last = &rows.events[3..];
        Change(
            last.iter().map(|event| event.delete_place(event.number)).collect(),
            last.iter().map(|event| event.put_place(event.number)).collect(),
        )
    }),
    ("the order is dropped", [Fewer(5), Fewer(2)], |rows| {
        Change(
            vec!["DELETE FROM urgent_order WHERE bucket = 0".to_owned()],
            rows.events.iter().map(|event| event.put_place(event.number)).collect(),
        )
    }),
    ("an event has another place in the order", [Same, Same], |rows| {
        let event = &rows.events[2];
        Change(
            vec![event.delete_place(event.number), event.put_place(LATER)],
            vec![event.delete_place(LATER), event.put_place(event.number)],
        )
    }),
    ("an event has a second place in the order", [Same, Same], |rows| {
        let event = &rows.events[2];
        Change(vec![event.put_place(LATER)], vec![event.delete_place(LATER)])
    }),
    ("an event is repeated under another digest", [Same, Same], |rows| {
        let event = &rows.events[2];
        Event { digest: changed(&event.digest, 0), ..event.clone() }.added()
    }),
    ("a place is in the partition of others", [Named("StoreDamaged"); 2], |rows| {
        let event = &rows.events[2];
        Change(vec![event.put_place(2000)], vec![event.delete_place(2000)])
    }),
    ("a place has the number 0", [Named("StoreDamaged"); 2], |rows| {
        let event = &rows.events[2];
        Change(vec![event.put_place(0)], vec![event.delete_place(0)])
    }),
    ("a place leads to the event of another digest", [Named("StoreDamaged"); 2], |rows| {
        let (event, other) = (&rows.events[2], &rows.events[4]);
        Change(vec![event.put_place_of(event.number, other)], vec![event.put_place(event.number)])
    }),
    ("a place leads to no event", [Named("StoreDamaged"); 2], |rows| {
        let event = Event { seq: 7, digest: vec![0xab; 32], ..rows.events[2].clone() };
        Change(vec![event.put_place(LATER)], vec![event.delete_place(LATER)])
    }),
    ("a confirmation is dropped", [Same, Same], |rows| {
        let event = &rows.events[2];
        Change(vec![event.unconfirm(event.number)], vec![event.confirm(event.number)])
    }),
    ("an event is said to be confirmed at a later place", [Fewer(1), Fewer(1)], |rows| {
        let event = &rows.events[2];
        Change(vec![event.confirm(LATER)], vec![event.unconfirm(LATER)])
    }),
    ("a stranger signs in the name of the device", [Named("NotAuthentic"); 2], |rows| {
        rows.stranger.added()
    }),
    ("an event is of another group", [Named("WrongGroup"); 2], |rows| rows.of_other_group.added()),
];
