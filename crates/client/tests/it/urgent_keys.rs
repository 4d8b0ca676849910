//! Urgent events that state other keys than the seal of the same index (spec/confidential.md,
//! section 3, rule 5).

use std::sync::Arc;
use std::time::Duration;

use moteseal_api::{CBOR_SEQ, JSON, paths};
use moteseal_client::{Client, UrgentCheck, UrgentConflict};
use moteseal_cloud::{Cloud, Config};
use moteseal_core::cbor::Writer;
use moteseal_core::confidential::{KeyCommitments, MAX_KEY_COMMITMENTS};
use moteseal_core::record::{EpochNumber, SealIndex, Sequence};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{Algorithm, SecretKey, Signer as _};
use moteseal_seal::UrgentEvent;
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_store::{Options, RedbStore};
use moteseal_verify::urgent::Urgent;
use moteseal_verify::{Event, ReadError, SchemaEntry, StreamReader, write};

use crate::confidential::{FIELDS, encode, record};
use crate::support::{EPOCH, Group};

const NAME: &str = "mote-1";

/// Returns an event of the seal with index 0, signed by the device.
fn event(group: &Group, seq: u64, record: &[u8], keys: KeyCommitments) -> Vec<u8> {
    let bytes = encode(&FIELDS);
    let event = UrgentEvent {
        group: group.roster.group(),
        roster: group.roster.digest(),
        device: group.device(NAME),
        index: SealIndex(0),
        epoch: EpochNumber(EPOCH),
        seq: Sequence(seq),
        schema: Schema::decode(&bytes).unwrap().digest(),
        keys: Some(keys),
        record,
    };
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[2; 32]).unwrap();
    let mut buffer = [0; 1024];
    let signature = key.signature(event.message(key.algorithm(), &mut buffer).unwrap()).unwrap();
    let mut out = [0; 1024];
    let mut writer = Writer::new(&mut out);
    event.encode(&mut writer, key.algorithm(), &signature).unwrap();
    writer.finish().to_vec()
}

/// Returns the sealed records of an answer, and what the seal states about their keys.
fn sealed(group: &Group, answer: &[u8]) -> (Vec<Vec<u8>>, KeyCommitments) {
    let (mut records, mut keys) = (Vec::new(), None);
    let mut visit = |event: Event<'_>| {
        if let Event::Proven(proven) = event {
            keys = proven.seal.statement().keys;
            proven.sample.for_each(&Scalar, |_, _, record| records.push(record.to_vec()));
        }
        Ok::<(), ReadError>(())
    };
    let mut reader = StreamReader::new(&group.roster, Limits::default());
    reader.feed(answer, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    (records, keys.unwrap())
}

#[tokio::test]
async fn an_event_with_other_keys_than_its_seal_or_than_another_event_is_evidence() {
    let (group, folder) = (Group::new(), tempfile::tempdir().unwrap());
    let records: Vec<_> = (0..9).map(|at| record(100 * at, at as u8, true, "attic")).collect();
    let mut position = group.start(NAME);
    let part = group.seal_secretly(NAME, &mut position, EPOCH, &FIELDS, &records);
    let answer = group.answer(&[(&part, u32::MAX)]);
    let (sealed, keys) = sealed(&group, &answer);
    let mut altered = [0; MAX_KEY_COMMITMENTS];
    let length = keys.encode(&mut altered).len();
    altered[0] ^= 1;
    let others = KeyCommitments::decode(&altered[..length]).unwrap();

    let store = RedbStore::open(&folder.path().join("epochs.redb"), Options::default()).unwrap();
    let service = Cloud::bind(Config::new(group.roster.clone()), Arc::new(store)).await.unwrap();
    let cloud = moteseal_net::Client::new(&service.url(), &Default::default()).unwrap();
    tokio::spawn(service.run(std::future::pending()));
    // Without its end item, the answer is an upload.
    let upload = answer[..answer.len() - 2].to_vec();
    cloud.put(paths::BUNDLES, CBOR_SEQ, upload.into()).await.unwrap().expect(JSON).unwrap();
    let client = Client::new(&cloud, &group.roster);
    let entry = Arc::new(SchemaEntry::decode(&encode(&FIELDS)).unwrap());
    let events = [
        (2, &sealed[2], keys, UrgentCheck::Agrees),
        (3, &sealed[3], others, UrgentCheck::OtherKeys),
        (4, &sealed[5], keys, UrgentCheck::Contradicts),
    ];
    for (seq, record, keys, expected) in &events {
        let bytes = event(&group, *seq, record, *keys);
        let event = Urgent::open(&bytes, &entry, &group.roster).unwrap();
        assert_eq!(client.check_urgent(&event).await.unwrap(), *expected, "{seq}");
    }

    // The cloud keeps all events, and the client reports the conflict.
    let mut upload = Vec::new();
    write::schema(&mut upload, &encode(&FIELDS));
    for (seq, record, keys, _) in &events[..2] {
        upload.extend(event(&group, *seq, record, *keys));
    }
    cloud.put(paths::EVENTS, CBOR_SEQ, upload.into()).await.unwrap().expect(JSON).unwrap();
    let found = client.urgent().next(Duration::ZERO).await.unwrap();
    assert_eq!(found.events.len(), 2);
    assert_eq!(found.conflicts, [UrgentConflict::Keys(group.device(NAME), SealIndex(0))]);
}
