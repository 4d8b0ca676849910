//! Fuzzes streams of urgent events: an upload, and an answer with its end item. The first byte of an
//! input selects the kind of stream.

use moteseal_core::cbor::Writer;
use moteseal_core::confidential::KeyCommitments;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex, Sequence};
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::Signer as _;
use moteseal_seal::UrgentEvent;
use moteseal_seal::stream::{encode_end, encode_schema};
use moteseal_verify::urgent::read;

use crate::fixture;

/// The maximum number of events in one stream.
const MOST: usize = 4;

/// The records of the events that were signed.
const RECORDS: [[u8; 4]; 3] = [[0, 1, 2, 3], [0xff; 4], [9, 8, 7, 6]];

/// Verifies the bytes as a stream.
pub fn run(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let is_answer = first & 1 == 1;
    let mut pauses = 0;
    let result = read(rest, fixture::directory(), (MOST, is_answer), &mut || pauses += 1);
    assert!(pauses <= MOST, "{pauses} events were verified");
    let Ok(stream) = result else { return };
    assert!(stream.events.len() + stream.void == pauses, "an event is missing");
    for event in &stream.events {
        let record: &[u8] = event.record();
        assert!(RECORDS.iter().any(|signed| signed == record), "an event that was never signed");
        assert!(rest.windows(event.bytes().len()).any(|part| part == event.bytes()));
    }
}

/// Returns uploads and answers with no event, one event, several events of two devices, and more than
/// the maximum.
pub fn seeds() -> Vec<Vec<u8>> {
    let plain = (fixture::schema(), None);
    // The nonce, and the commitment to the key of one column.
    let encrypted = (encrypted_schema(), KeyCommitments::decode(&[9; 12 + 16]));
    let mut seeds = Vec::new();
    for (schema, keys) in [plain, encrypted] {
        let events: Vec<Vec<u8>> = ["star", "tree"]
            .into_iter()
            .flat_map(|name| RECORDS.map(|record| signed(name, &record, &schema, keys)))
            .collect();
        for (count, is_answer) in
            [0, 1, 4, 5].into_iter().flat_map(|count| [(count, false), (count, true)])
        {
            let mut out = vec![0; 4096];
            let mut writer = Writer::new(&mut out);
            encode_schema(&mut writer, &schema).unwrap();
            for event in &events[..count] {
                writer.raw(event).unwrap();
            }
            if is_answer {
                encode_end(&mut writer).unwrap();
            }
            seeds.push([&[u8::from(is_answer)][..], writer.finish()].concat());
        }
    }
    seeds
}

/// Returns a schema with a plain and an encrypted column of 2 bytes each.
fn encrypted_schema() -> Vec<u8> {
    let fields = ["a:Cel:i16/100", "b:Cel:i16/100!"].map(|field| Field::parse(field).unwrap());
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

fn signed(name: &str, record: &[u8], schema: &[u8], keys: Option<KeyCommitments>) -> Vec<u8> {
    let key = fixture::key(name);
    let event = UrgentEvent {
        group: GroupId::of("home"),
        roster: fixture::directory().digest(),
        device: DeviceId::of("home", name),
        index: SealIndex(1),
        epoch: EpochNumber(2),
        seq: Sequence(u64::from(record[0])),
        schema: Schema::decode(schema).unwrap().digest(),
        keys,
        record,
    };
    let mut message = vec![0; 512];
    let message = event.message(key.algorithm(), &mut message).unwrap();
    let signature = key.signature(message).unwrap();
    let mut out = vec![0; 512];
    let mut out = Writer::new(&mut out);
    event.encode(&mut out, key.algorithm(), &signature).unwrap();
    out.finish().to_vec()
}
