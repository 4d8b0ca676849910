//! Mutates small bundles exhaustively: sets every byte to every other value, truncates at every
//! length, and removes, duplicates or swaps every element of the CBOR tree. No mutation may yield a
//! row that was not sealed, and none may cause a panic.

use std::collections::BTreeSet;

use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::Algorithm;
use moteseal_fixtures::cbor_tree::{Value, encode_sequence, sequence};
use moteseal_fixtures::world::{
    Device, Epoch, FIXED, Pick, Sealed, operator, roster, schema, stream,
};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

/// The content of an event that applications use: device, seal index, sequence number, level,
/// record and schema digest.
type Row = (u32, u64, u64, u8, Vec<u8>, [u8; 32]);

struct Bundle {
    name: String,
    bytes: Vec<u8>,
    roster: Roster,
    /// All rows that were sealed, including those that the bundle does not contain.
    sealed: BTreeSet<Row>,
}

fn group() -> Roster {
    let devices: &[(&str, &[(Algorithm, u32)])] = &[("ed", &[(Algorithm::Ed25519, 0)])];
    Roster::open(&roster(devices), &operator().public()).unwrap()
}

/// Reads a stream. Returns all rows that were proven before the first error, and the result.
fn rows(roster: &Roster, bytes: &[u8]) -> (Vec<Row>, Result<(), ReadError>) {
    let mut rows = Vec::new();
    let mut reader = StreamReader::new(roster, Limits { max_events: 1 << 12 });
    let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
        if let Event::Proven(proven) = event {
            let statement = proven.seal.statement();
            let (SealIndex(index), EpochNumber(epoch)) = (statement.index, statement.epoch);
            proven.sample.for_each(&Scalar, |seq, level, record| {
                rows.push((index, epoch, seq.0, level.0, record.to_vec(), proven.schema.digest.0));
            });
        }
        Ok(())
    };
    let result = reader.feed(bytes, &mut visit).and_then(|()| reader.finish(&mut visit));
    (rows, result)
}

fn sealed_rows(one: &Sealed) -> impl Iterator<Item = Row> + '_ {
    let statement = one.seal.statement();
    one.records.iter().enumerate().map(move |(seq, record)| {
        (
            statement.index.0,
            statement.epoch.0,
            seq as u64,
            one.level(seq),
            record.clone(),
            statement.schema.0,
        )
    })
}

/// Returns a bundle for each scheme and framing, a bundle with single events of a tree, and a run
/// of two parts under one signature.
fn bundles() -> Vec<Bundle> {
    let mut bundles = Vec::new();
    for scheme in [Scheme::Star, Scheme::Tree] {
        for (framing, schema) in [("4-byte", schema(FIXED)), ("opaque", schema(&[]))] {
            for pick in [Pick::Levels(0xff), Pick::Levels(0xfe), Pick::Events(vec![0, 3])] {
                if scheme == Scheme::Star && matches!(pick, Pick::Events(_)) {
                    continue;
                }
                let roster = group();
                let mut device = Device::new(&roster, "ed", &schema);
                let mut epoch = Epoch::new(scheme, 7, 5);
                if framing == "opaque" {
                    epoch.records = vec![
                        b"on".to_vec(),
                        Vec::new(),
                        b"off".to_vec(),
                        b"on".to_vec(),
                        b"x".to_vec(),
                    ];
                }
                let one = device.seal(&epoch);
                let bytes = stream(&schema, std::slice::from_ref(&one), &pick);
                let sealed = sealed_rows(&one).collect();
                bundles.push(Bundle {
                    name: format!("{} of {framing} records, {pick:?}", scheme.as_str()),
                    bytes,
                    roster,
                    sealed,
                });
            }
        }
    }
    let (roster, schema) = (group(), schema(FIXED));
    let mut device = Device::new(&roster, "ed", &schema);
    let run = [(Scheme::Star, 7), (Scheme::Tree, 9)]
        .map(|(scheme, epoch)| device.seal(&Epoch::new(scheme, epoch, 4)));
    let bytes = stream(&schema, &run, &Pick::Levels(0xff));
    let sealed = run.iter().flat_map(sealed_rows).collect();
    bundles.push(Bundle { name: "a run of two".to_owned(), bytes, roster, sealed });
    bundles
}

impl Bundle {
    /// Checks that a changed bundle yields no row that was not sealed. Returns whether it yields
    /// any rows.
    fn check(&self, changed: &[u8], what: impl Fn() -> String) -> bool {
        let (rows, result) = rows(&self.roster, changed);
        for row in &rows {
            assert!(
                self.sealed.contains(row),
                "{}: {}: {row:?} was never sealed",
                self.name,
                what()
            );
        }
        // A run is proven as a whole, so the changed bundle yields either no rows or all rows.
        if rows.is_empty() {
            return false;
        }
        let (whole, _) = self::rows(&self.roster, &self.bytes);
        assert!(
            rows.chunks(whole.len()).all(|run| run == whole),
            "{}: {}: a part of a run: {result:?}",
            self.name,
            what()
        );
        true
    }
}

#[test]
fn the_bundles_verify() {
    for bundle in bundles() {
        let (rows, result) = rows(&bundle.roster, &bundle.bytes);
        assert_eq!(result, Ok(()), "{}", bundle.name);
        assert!(
            rows.len() >= 2 && rows.iter().all(|row| bundle.sealed.contains(row)),
            "{}",
            bundle.name
        );
    }
}

#[test]
fn no_changed_byte_yields_a_row() {
    for bundle in bundles() {
        let mut changed = bundle.bytes.clone();
        for at in 0..changed.len() {
            let right = changed[at];
            for wrong in (0..=u8::MAX).filter(|&wrong| wrong != right) {
                changed[at] = wrong;
                assert!(
                    !bundle.check(&changed, || format!("byte {at} = {wrong:#04x}")),
                    "{}: byte {at} = {wrong:#04x}",
                    bundle.name
                );
            }
            changed[at] = right;
        }
    }
}

#[test]
fn no_truncation_yields_a_row() {
    for bundle in bundles() {
        for length in 0..bundle.bytes.len() {
            assert!(
                !bundle.check(&bundle.bytes[..length], || format!("cut at {length}")),
                "{}: cut at {length}",
                bundle.name
            );
        }
    }
}

/// Appends to `out` every tree that differs from `value` in one element that is removed,
/// duplicated, or swapped with its right neighbour, at any depth. A byte string that contains an
/// encoded structure counts as a subtree.
fn edits(value: &Value, out: &mut Vec<Value>) {
    let mut children = |children: &[Value], rebuild: &dyn Fn(Vec<Value>) -> Value| {
        for at in 0..children.len() {
            let mut removed = children.to_vec();
            removed.remove(at);
            out.push(rebuild(removed));
            let mut doubled = children.to_vec();
            doubled.insert(at, children[at].clone());
            out.push(rebuild(doubled));
            if at + 1 < children.len() && children[at] != children[at + 1] {
                let mut swapped = children.to_vec();
                swapped.swap(at, at + 1);
                out.push(rebuild(swapped));
            }
            let mut inner = Vec::new();
            edits(&children[at], &mut inner);
            for edited in inner {
                let mut changed = children.to_vec();
                changed[at] = edited;
                out.push(rebuild(changed));
            }
        }
    };
    match value {
        Value::Array(values) => children(values, &|values| Value::Array(values)),
        Value::Map(pairs) => {
            let flat: Vec<Value> =
                pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
            children(&flat, &|flat| {
                Value::Map(
                    flat.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
                )
            });
        }
        Value::Tag(number, value) => {
            children(std::slice::from_ref(value), &|mut values| match values.pop() {
                Some(value) => Value::Tag(*number, Box::new(value)),
                None => Value::Array(Vec::new()),
            });
        }
        Value::Bytes(bytes) => {
            if let Some(nested) = nested(bytes) {
                children(std::slice::from_ref(&nested), &|values| {
                    Value::Bytes(encode_sequence(&values))
                });
            }
        }
        _ => {}
    }
}

/// Decodes the bytes if they encode an array, a map or a tagged item.
fn nested(bytes: &[u8]) -> Option<Value> {
    moteseal_core::cbor::check_item(bytes).ok()?;
    let value = Value::decode(bytes);
    matches!(value, Value::Array(_) | Value::Map(_) | Value::Tag(..)).then_some(value)
}

#[test]
fn no_removed_duplicated_or_swapped_element_yields_a_false_row() {
    let mut kept = BTreeSet::new();
    for bundle in bundles() {
        let mut edited = Vec::new();
        edits(&Value::Array(sequence(&bundle.bytes)), &mut edited);
        assert!(edited.len() > 60, "{} edits", edited.len());
        for (number, value) in edited.iter().enumerate() {
            let Value::Array(items) = value else { continue };
            if bundle.check(&encode_sequence(items), || format!("edit {number}: {value:?}")) {
                kept.insert(items.iter().map(kind).collect::<String>());
            }
        }
    }
    // These sequences of items still yield the sealed rows. They have the schema (`s`) or the open
    // item (`o`) twice, or these two in the other order. Some have a repeated part after the
    // complete run; this part is rejected, because its index is one too high.
    let expected = ["soop", "ssop", "osp", "sopp", "soopp", "ssopp", "ospp", "soppp"];
    let expected: BTreeSet<String> = expected.map(str::to_owned).into();
    assert_eq!(kept, expected);
}

/// Returns a letter for the item: schema, open, part, or another item.
fn kind(item: &Value) -> char {
    match item {
        Value::Array(fields) => match fields.first() {
            Some(Value::Uint(0)) => 's',
            Some(Value::Uint(1)) => 'o',
            Some(Value::Uint(2)) => 'p',
            _ => '?',
        },
        _ => '?',
    }
}

/// Mutates a roster in the same ways. No changed roster may open.
#[test]
fn no_changed_roster_is_accepted() {
    let (good, key) = (roster(&[("ed", &[(Algorithm::Ed25519, 0)])]), operator().public());
    let mut changed = good.clone();
    for at in 0..good.len() {
        for bit in 0..8 {
            changed[at] ^= 1 << bit;
            assert!(Roster::open(&changed, &key).is_err(), "byte {at}, bit {bit}");
            changed[at] ^= 1 << bit;
        }
        assert!(Roster::open(&good[..at], &key).is_err(), "cut at {at}");
    }
    let mut edited = Vec::new();
    edits(&Value::Array(vec![Value::decode(&good)]), &mut edited);
    for value in edited {
        let Value::Array(items) = &value else { continue };
        let bytes = encode_sequence(items);
        assert!(bytes == good || Roster::open(&bytes, &key).is_err(), "{value:?}");
    }
    assert_eq!(Roster::open(&good, &key).unwrap().newest_period().levels, 8);
}
