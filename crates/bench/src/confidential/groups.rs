//! How much less one of eight columns costs than all of them, if each is in a column group.

use std::hint::black_box;

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{DeviceId, EpochNumber, Framing, Scheme, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, GroupLayout, Groups, MAX_GROUPS, MAX_SCHEMA, Schema};
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_seal::follow::Limits;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::star::{self, GroupedStar};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::{MAX_MESSAGE, Seal, Statement, tree};
use moteseal_verify::redaction::{redact, redact_part};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};

use crate::group_of_one::{DEVICE, GROUP, group_of_one};
use crate::load::Failed;
use crate::measure::{Bar, Contender, Report, interleaved};

/// The events of a seal.
const EVENTS: u32 = 100_000;
const LEVELS: u8 = 4;
/// The bytes of a record: eight columns of 4 bytes.
const RECORD: usize = 4 * MAX_GROUPS;
const RUNS: usize = 9;

/// Measures a seal of each scheme: the bytes and the verification of one column, and the redaction of the
/// others. The first column is that of group 0, with which each other one comes.
pub(super) fn measure(report: &mut Report) -> Result<(), Failed> {
    let (roster, key) = group_of_one(Algorithm::Ed25519, LEVELS)?;
    for scheme in [Scheme::Star, Scheme::Tree] {
        let whole = stream(&roster, &key, scheme)?;
        let shown = [Groups::FIRST, Groups::FIRST.with(7)];
        let redacted = |shown: Groups| -> Result<Vec<u8>, Failed> {
            let mut some = Vec::new();
            redact(&mut some, &whole, (&roster, Limits::default()), &mut |_| shown)?;
            Ok(some)
        };
        let [first, other] = [redacted(shown[0])?, redacted(shown[1])?];
        let verify = |stream: &[u8]| {
            let mut reader = StreamReader::new(&roster, Limits::default());
            let mut visit = |_: Event<'_>| Ok::<_, ReadError>(());
            reader.feed(stream, &mut visit)?;
            reader.finish(&mut visit)
        };
        verify(&first)?;
        verify(&other)?;
        let mut reader = StreamReader::new(&roster, Limits::default());
        let mut times = None;
        let mut visit = |event: Event<'_>| {
            if let Event::Proven(proven) = event {
                let redaction = |shown: Groups| {
                    let proven = &proven;
                    Contender::new(1, move || {
                        let mut out = Vec::new();
                        redact_part(&mut out, proven, shown).expect("it is verified");
                        black_box(out);
                    })
                };
                let mut contenders = [
                    Contender::new(1, || verify(&whole).expect("it verifies")),
                    Contender::new(1, || drop(black_box(whole.clone()))),
                    Contender::new(1, || verify(&first).expect("it verifies")),
                    redaction(shown[0]),
                    Contender::new(1, || verify(&other).expect("it verifies")),
                    redaction(shown[1]),
                ];
                times = Some(interleaved(RUNS, &mut contenders));
            }
            Ok::<_, ReadError>(())
        };
        reader.feed(&whole, &mut visit)?;
        reader.finish(&mut visit)?;
        let times = times.ok_or("the stream has no seal")?;
        let mut add = |title: &str, what: &str, of: (usize, usize), bar| {
            report.add_spread(format!("{title}: {what}"), times.ratios(of.0, of.1), "x", bar);
        };
        let names = ["one of eight columns", "one of eight columns and that of group 0"];
        let names = names.map(|name| format!("{name}, {}", scheme.as_str()));
        for (title, at) in names.iter().zip([2, 4]) {
            add(title, "verifying, of the time of all", (at, 0), Some(Bar::AtMost(0.5)));
            add(title, "redacting the others, of the time of verifying all", (at + 1, 0), None);
            let copying = Some(Bar::AtMost(1.25));
            add(title, "redacting the others, of the time of a copy of all", (at + 1, 1), copying);
        }
        let ratio = |some: &[u8]| some.len() as f64 / whole.len() as f64;
        let what = |title: &str| format!("{title}: bytes, of those of all");
        report.add(what(&names[0]), ratio(&first), "x", Bar::AtMost(0.25));
        // Two of eight, and the digests of six.
        report.add(what(&names[1]), ratio(&other), "x", None);
    }
    Ok(())
}

/// A whole stream with one seal.
fn stream(roster: &Roster, key: &SecretKey, scheme: Scheme) -> Result<Vec<u8>, Failed> {
    let names = (0..MAX_GROUPS).map(|at| format!("c{at}::u32!@{at}"));
    let names: Vec<String> = names.collect();
    let columns: Vec<_> = names.iter().map(|name| Field::parse(name)).collect::<Result<_, _>>()?;
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&columns, &mut buffer)?;
    let layout = GroupLayout::new(&schema, schema.groups()).ok_or("the schema has no groups")?;
    let framing = Framing::fixed(RECORD).ok_or("no framing")?;
    let (device, index) = (DeviceId::of(GROUP, DEVICE), SealIndex(0));
    let salt = SaltKey::new([2; 32]).salt(device, index);
    // Nothing is decrypted, so any bytes are ciphertext.
    let record = |seq: u32| {
        let word = u64::from(seq).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        [word; RECORD / 8]
    };
    let mut statement = Statement::new(scheme, roster.group(), roster.digest(), device, LEVELS);
    statement.counters = Counters::of(&salt, LEVELS, EVENTS);
    let (root, events) = match scheme {
        Scheme::Star => {
            let star = GroupedStar::<{ LEVELS as usize }, MAX_GROUPS>::new(
                device,
                index,
                &salt,
                (layout, framing),
                LEVELS,
            );
            let mut star = star.ok_or("no star")?;
            let mut blocks: [Vec<u8>; LEVELS as usize] = Default::default();
            for seq in 0..EVENTS {
                let record = record(seq);
                let level = star.push(record.as_flattened())?.0;
                blocks[usize::from(level)].extend_from_slice(record.as_flattened());
            }
            let (counters, digests) = star.close();
            (star::root(&counters, &digests), blocks.into_iter().rev().flatten().collect())
        }
        Scheme::Tree => {
            let events: Vec<u8> =
                (0..EVENTS).flat_map(|seq| record(seq).into_iter().flatten()).collect();
            let selected = (0..EVENTS.into()).map(Sequence);
            let content = (&events[..], &[][..]);
            let root = tree::groups_root(EVENTS.into(), (&layout, framing), selected, content)?;
            (root, events)
        }
    };
    (statement.index, statement.epoch) = (index, EpochNumber(7));
    statement.last_in_epoch = true;
    (statement.schema, statement.salt) = (schema.digest(), salt);
    statement.keys = KeyCommitments::decode(&[9; 12 + 16 * MAX_GROUPS]);
    statement.groups = schema.groups();
    statement.prev = roster.first_prev(device).ok_or("the roster does not have the device")?;
    let selection = Selection::Levels(statement.surviving());
    let seal = Seal::new(statement, root, key.algorithm());
    let message = &mut [0; MAX_MESSAGE];
    let signature = key.signature(seal.message(message))?;
    let mut stream = Vec::new();
    write::schema(&mut stream, schema.as_bytes());
    write::open(&mut stream, &Open { device, roster_version: 0, prev: None, last: None });
    write::part(&mut stream, &seal, selection, &[], &events, Some(&signature));
    Ok(stream)
}
