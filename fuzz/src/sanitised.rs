//! Fuzzes sanitised column groups: payloads of statements, and streams with sanitised items. The first
//! byte of an input selects which.

use std::sync::OnceLock;

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{DeviceId, EpochNumber, Scheme, SealIndex};
use moteseal_core::roster::{Directory as _, sanitiser_id};
use moteseal_core::schema::{Field, Groups, MAX_SCHEMA, Schema};
use moteseal_core::signature::{SecretKey, Signer as _};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::star::{self, GroupedStar};
use moteseal_seal::stream::{Open, Selection};
use moteseal_seal::{MAX_MESSAGE, Seal, Statement};
use moteseal_verify::issue::NextRoster;
use moteseal_verify::redaction::redact;
use moteseal_verify::sanitised::{Statement as Sanitisation, WaitingStatements, block_digests};
use moteseal_verify::{
    Event, ReadError, Roster, SanitisedError, SanitiserRight, SchemaEntry, StreamReader, write,
};

use crate::fixture::{self, LEVELS};

/// The new cells: one byte for each event.
const CELLS: [u8; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

/// Decodes the bytes as the payload of a statement, or verifies them as a stream.
pub fn run(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    if first & 1 == 0 {
        if let Ok(statement) = Sanitisation::decode(rest)
            && let Ok(again) = statement.encode()
        {
            assert_eq!(again, rest, "a statement with two encodings");
        }
        return;
    }
    for cells in read(rest).unwrap_or_default() {
        assert_eq!(cells, CELLS, "cells that were never signed");
    }
}

/// Why a stream is refused.
enum Refused {
    Read,
    Sanitised,
}

impl From<ReadError> for Refused {
    fn from(_: ReadError) -> Self {
        Self::Read
    }
}

impl From<SanitisedError> for Refused {
    fn from(_: SanitisedError) -> Self {
        Self::Sanitised
    }
}

/// Returns the new cells of a stream.
fn read(stream: &[u8]) -> Result<Vec<Vec<u8>>, Refused> {
    let (mut waiting, mut found) = (WaitingStatements::default(), Vec::new());
    let mut visit = |event: Event<'_>| -> Result<(), Refused> {
        match event {
            Event::Sanitised(signed, cells) => waiting.push((signed, cells), roster())?,
            Event::Proven(proven) => {
                for of in waiting.take(&proven, roster())? {
                    found.push(of.cells().to_vec());
                }
            }
            _ => {}
        }
        Ok(())
    };
    let mut reader = StreamReader::new(roster(), Limits::default());
    reader.feed(stream, &mut visit)?;
    reader.finish(&mut visit)?;
    waiting.finish()?;
    Ok(found)
}

fn sanitiser() -> SecretKey {
    fixture::key("sanitiser")
}

/// The roster of the fixture with a sanitiser.
fn roster() -> &'static Roster {
    static ROSTER: OnceLock<Roster> = OnceLock::new();
    ROSTER.get_or_init(|| {
        let operator = fixture::operator();
        let public = operator.public();
        let mut next = NextRoster::after(fixture::roster(), &operator, &public).unwrap();
        let right = SanitiserRight {
            devices: None,
            groups: Groups::from_bits(2),
            first_epoch: EpochNumber(0),
            end_epoch: None,
        };
        next.set_sanitiser("gw", Some(&sanitiser().public()), right).unwrap();
        Roster::open(&next.issue().unwrap(), &public).unwrap()
    })
}

fn schema(fields: &[&str]) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|field| Field::parse(field).unwrap()).collect();
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

/// The stream of a seal that hides group 1.
fn stream() -> Vec<u8> {
    let (schema, device) = (schema(&["a::u8", "b::u16!@1"]), DeviceId::of("home", "star"));
    let entry = SchemaEntry::decode(&schema).unwrap();
    let (index, key) = (SealIndex(0), fixture::key("star"));
    let mut statement =
        Statement::new(Scheme::Star, roster().group(), roster().digest(), device, LEVELS);
    statement.prev = roster().first_prev(device).unwrap();
    statement.last_in_epoch = true;
    statement.schema = entry.digest;
    statement.keys = KeyCommitments::decode(&[7; 28]);
    statement.groups = entry.groups();
    statement.salt = SaltKey::new([3; 32]).salt(device, index);
    let layout = (*entry.groups.as_deref().unwrap(), entry.framing);
    let mut levels =
        GroupedStar::<{ LEVELS as usize }, 2>::new(device, index, &statement.salt, layout, LEVELS)
            .unwrap();
    let mut blocks = vec![Vec::new(); usize::from(LEVELS)];
    for seq in CELLS {
        let record = [seq, seq, 9];
        blocks[usize::from(levels.push(&record).unwrap().0)].extend(record);
    }
    let (counters, digests) = levels.close();
    statement.counters = counters;
    let seal = Seal::new(statement, star::root(&counters, &digests), key.algorithm());
    let signature = key.signature(seal.message(&mut [0; MAX_MESSAGE])).unwrap();
    let (mut whole, mut out) = (Vec::new(), Vec::new());
    write::schema(&mut whole, &schema);
    write::open(&mut whole, &Open { device, roster_version: 1, prev: None, last: None });
    let events: Vec<u8> = blocks.into_iter().rev().flatten().collect();
    let all = Selection::Levels(seal.statement().surviving());
    write::part(&mut whole, &seal, all, &[], &events, Some(&signature));
    redact(&mut out, &whole, (roster(), Limits::default()), &mut |_| Groups::FIRST).unwrap();
    out
}

/// Returns the statement of the stream's group 1.
fn statement(stream: &[u8]) -> Sanitisation {
    let mut made = None;
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(part) = event {
            let (seal, fields) = (part.seal.statement(), schema(&["b::u8#2"]));
            let entry = SchemaEntry::decode(&fields).unwrap();
            made = Some(Sanitisation {
                group: roster().group(),
                roster: roster().digest(),
                sanitiser: sanitiser_id("home", "gw"),
                device: seal.device,
                index: seal.index,
                seal: part.seal.digest(),
                schema: seal.schema,
                column_group: 1,
                mask: seal.surviving(),
                fields,
                policy: "rounded".to_owned(),
                blocks: block_digests(&part, 1, &entry, &CELLS).unwrap(),
            });
            part.sample.for_each(&Scalar, |_, _, record| assert_eq!(record.len(), 1));
        }
        Ok::<_, ReadError>(())
    };
    let mut reader = StreamReader::new(roster(), Limits::default());
    reader.feed(stream, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    made.unwrap()
}

/// Returns the payload of a statement, and streams with and without it.
pub fn seeds() -> Vec<Vec<u8>> {
    let stream = stream();
    let statement = statement(&stream);
    let mut item = Vec::new();
    write::sanitised(&mut item, &statement.sign(&sanitiser()).unwrap(), &CELLS);
    // The part is the last item of the stream.
    let mut at = 0;
    for _ in 0..2 {
        at += moteseal_core::cbor::item_length(&stream[at..]).unwrap();
    }
    let sanitised = [&stream[..at], &item, &stream[at..]].concat();
    assert!(read(&sanitised).is_ok_and(|found| found == [CELLS]), "the seed is valid");
    vec![
        [&[0][..], &statement.encode().unwrap()].concat(),
        [&[1][..], &stream].concat(),
        [&[1][..], &sanitised].concat(),
    ]
}
