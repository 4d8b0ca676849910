//! Tests of the limits on the memory and work that unauthenticated input can cause before a
//! signature is checked.

use std::time::{Duration, Instant};

use moteseal_core::record::Scheme;
use moteseal_core::signature::Algorithm;
use moteseal_fixtures::cbor_tree::{NULL, Value, encode_sequence, head, sequence};
use moteseal_fixtures::world::{Device, Epoch, FIXED, Pick, operator, roster, schema, stream};
use moteseal_seal::follow::Limits;
use moteseal_seal::stream::{MAX_ITEM, MAX_RUN_ITEMS};
use moteseal_verify::{Bundles, Event, ReadError, Roster, StreamReader, write};

const PIECE: usize = 1 << 20;

fn group() -> Roster {
    let devices: &[(&str, &[(Algorithm, u32)])] = &[("ed", &[(Algorithm::Ed25519, 0)])];
    Roster::open(&roster(devices), &operator().public()).unwrap()
}

/// Returns the items of a run of `epochs` seals without events. Only the last seal is signed.
fn run(group: &Roster, epochs: u64) -> Vec<Value> {
    let fixed = schema(FIXED);
    let mut device = Device::new(group, "ed", &fixed);
    let sealed: Vec<_> =
        (0..epochs).map(|epoch| device.seal(&Epoch::new(Scheme::Star, 50 + epoch, 5))).collect();
    sequence(&stream(&fixed, &sealed, &Pick::Levels(0)))
}

/// Sets field 5 of a part, the number of events that it claims.
fn claim(item: &mut Value, events: u64) {
    let Value::Array(fields) = item else { panic!("an item") };
    assert_eq!(fields[0], Value::Uint(2), "a part");
    fields[5] = Value::Uint(events);
}

struct Feed<'d> {
    reader: StreamReader<'d, Roster>,
    bytes: usize,
    rows: usize,
}

impl<'d> Feed<'d> {
    fn new(group: &'d Roster) -> Self {
        Self { reader: StreamReader::new(group, Limits::default()), bytes: 0, rows: 0 }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        self.bytes += bytes.len();
        self.reader.feed(bytes, &mut |event| {
            self.rows += usize::from(matches!(event, Event::Proven(_)));
            Ok::<_, ReadError>(())
        })
    }

    /// Feeds `bytes` repeatedly until they are rejected. Panics if more than `limit` bytes are
    /// accepted.
    fn feed_endlessly(&mut self, bytes: &[u8], limit: usize) -> &'static str {
        loop {
            if let Err(error) = self.feed(bytes) {
                return error.name();
            }
            assert!(self.bytes <= limit + PIECE, "{} bytes were taken", self.bytes);
        }
    }
}

#[test]
fn rejects_endless_schemas_after_an_unsigned_part() {
    let group = group();
    let mut feed = Feed::new(&group);
    let items = run(&group, 2);
    let (unsigned, _) = items.split_at(items.len() - 1);
    feed.feed(&encode_sequence(unsigned)).unwrap();
    let piece = encode_sequence(&items[..1]).repeat(PIECE / 64);
    assert_eq!(feed.feed_endlessly(&piece, MAX_RUN_ITEMS), "RunTooLong");
}

#[test]
fn rejects_endless_items_of_other_kinds_after_an_unsigned_part() {
    let group = group();
    let items = run(&group, 2);
    let long = |major| [head(major, 1000), vec![b'x'; 1000]].concat();
    let others = [
        ("a proof", [vec![0x83, 5, 1], long(3)].concat()),
        ("an explanation", [vec![0x83, 6, 0x40], long(2)].concat()),
        ("a problem", [vec![0x83, 4, 0x60], long(3)].concat()),
    ];
    for (what, other) in others {
        let mut feed = Feed::new(&group);
        feed.feed(&encode_sequence(&items[..items.len() - 1])).unwrap();
        assert_eq!(
            feed.feed_endlessly(&other.repeat(PIECE / 1004), MAX_RUN_ITEMS),
            "RunTooLong",
            "{what}"
        );
    }
}

#[test]
fn rejects_endless_schemas_and_opens_without_a_part() {
    let group = group();
    for item in 0..2 {
        let mut feed = Feed::new(&group);
        let items = run(&group, 1);
        let piece = encode_sequence(&items[item..=item]).repeat(PIECE / 64);
        assert_eq!(feed.feed_endlessly(&piece, MAX_RUN_ITEMS), "RunTooLong", "item {item}");
    }
}

#[test]
fn verified_runs_do_not_count_towards_limits() {
    let group = group();
    let mut feed = Feed::new(&group);
    let items = run(&group, 1);
    let schemas = encode_sequence(&items[..1]).repeat(MAX_RUN_ITEMS / 2 / 64);
    for _ in 0..5 {
        feed.feed(&schemas).unwrap();
        feed.feed(&encode_sequence(&items)).unwrap();
    }
    assert_eq!(feed.rows, 5);
    assert!(feed.bytes > 2 * MAX_RUN_ITEMS / 3);
}

#[test]
fn rejects_an_item_of_any_kind_at_the_maximum_length() {
    let group = group();
    let string = head(2, 1 << 40);
    let endless = [
        ("a schema", [vec![0x82, 0], string.clone()].concat()),
        ("a part's salt", [vec![0x8e, 2, 0, 0, 0], string.clone()].concat()),
        ("an explanation", [vec![0x83, 6], string].concat()),
        ("a long array", head(4, 1 << 40)),
    ];
    for (what, start) in endless {
        let mut feed = Feed::new(&group);
        feed.feed(&start).unwrap();
        assert_eq!(feed.feed_endlessly(&vec![0; PIECE], MAX_ITEM), "RunTooLong", "{what}");
    }
}

#[test]
fn rejects_a_run_that_claims_too_many_events_before_counting_them() {
    let group = group();
    let mut items = run(&group, 200);
    items[2..].iter_mut().for_each(|part| claim(part, 1 << 23));
    let mut feed = Feed::new(&group);
    let start = Instant::now();
    let refused = feed.feed(&encode_sequence(&items)).unwrap_err();
    assert_eq!(refused.name(), "RunTooLong");
    // Item 0 is the schema, item 1 the open item, and the parts follow. Two parts claim 2^24 events
    // together, which is the maximum. The limit does not count the newest part, so the fourth part
    // (item 5) is the first to be rejected.
    assert_eq!(refused.item, 5);
    // Counting the events of four parts takes a tenth of a second in a release build. Counting the
    // events of all 200 parts would take far longer than this limit in any build.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn scans_an_item_that_arrives_byte_by_byte_once() {
    let group = group();
    // A part selects half a million events of a tree one by one, without the digests between them.
    // It arrives byte by byte. If each byte caused a new scan from the start, this would take
    // hours.
    let mut item = vec![0x8e, 2, 1, 0, 0x18, 50];
    item.extend([head(2, 16), vec![0; 16], head(0, 1 << 20), vec![0, 0, 0x80, 0x80]].concat());
    item.extend([head(4, 500_000), vec![1; 500_000], vec![0x40, 0x40, 0xf6]].concat());
    let mut feed = Feed::new(&group);
    let items = run(&group, 1);
    feed.feed(&encode_sequence(&items[..2])).unwrap();
    let start = Instant::now();
    for byte in &item {
        feed.feed(&[*byte]).unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let mut end = Vec::new();
    write::end(&mut end);
    assert_eq!(feed.feed(&end).unwrap_err().name(), "DigestCount");
}

/// The items of an upload are checked one by one, before the events of a part are counted or
/// hashed.
#[test]
fn accepts_no_more_bundles_than_the_limits_allow() {
    let group = group();
    let fixed = schema(FIXED);
    let mut device = Device::new(&group, "ed", &fixed);
    let sealed: Vec<_> =
        (0..3).map(|epoch| device.seal(&Epoch::new(Scheme::Star, 50 + epoch, 5))).collect();
    let bundles: Vec<u8> = sealed
        .iter()
        .flat_map(|sealed| stream(&fixed, std::slice::from_ref(sealed), &Pick::Levels(0xff)))
        .collect();
    let read = |bytes: &[u8], parts, events| {
        let mut proven = 0;
        let mut reader =
            StreamReader::new(&group, Limits::default()).of_bundles(Bundles { parts, events });
        let result = reader.feed(bytes, &mut |event| {
            proven += usize::from(matches!(event, Event::Proven(_)));
            Ok::<_, ReadError>(())
        });
        (proven, result.err().map(|error| error.name()))
    };
    assert_eq!(read(&bundles, 3, 15), (3, None));
    assert_eq!(read(&bundles, 2, 15), (2, Some("TooManyParts")));
    assert_eq!(read(&bundles, 3, 14), (2, Some("TooManyEvents")));
    let mut unsigned = sequence(&bundles);
    let Some(Value::Array(fields)) =
        unsigned.iter_mut().find(|item| matches!(item, Value::Array(f) if f[0] == Value::Uint(2)))
    else {
        panic!("a part")
    };
    *fields.last_mut().unwrap() = NULL;
    assert_eq!(read(&encode_sequence(&unsigned), 3, 15), (0, Some("NotWhole")));
    let mut problem = bundles;
    write::problem(&mut problem, "x", "y");
    assert_eq!(read(&problem, 3, 15), (3, Some("BadBody")));
    // The part claims 2^24 events. It must be rejected before they are counted.
    let mut claiming = sequence(&stream(&fixed, &sealed[..1], &Pick::Levels(0xff)));
    claim(claiming.last_mut().unwrap(), 1 << 24);
    assert_eq!(read(&encode_sequence(&claiming), 3, 1 << 16), (0, Some("TooManyEvents")));
}
