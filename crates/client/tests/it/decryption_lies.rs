//! Altered bytes are rejected before a key is requested, other keys than the device's are refused by
//! name, and an invalid plaintext is an error of the device that encrypted it.

use moteseal_client::decrypt::{DeviceKeys, KeyRequest};
use moteseal_core::confidential::{
    KeyAccessError, KeyCommitments, KeyStream, MAX_KEY_COMMITMENTS, Nonce, SealKey, StreamSecret,
    Suite,
};
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::schema::Schema;

use crate::confidential::{
    Cell, Cells, FIELDS, Source, columns, encode, encrypted, next_index, record, secret_of,
    streams, unchecked,
};
use crate::support::{EPOCH, Group, Sealed, nowhere};

fn records() -> Vec<Vec<u8>> {
    (0..9).map(|at| record(100 * at, at as u8, at % 2 == 0, "attic")).collect()
}

fn sealed(group: &Group) -> Sealed {
    group.seal_secretly("mote-1", &mut group.start("mote-1"), EPOCH, &FIELDS, &records())
}

fn answer(group: &Group) -> Vec<u8> {
    group.answer(&[(&sealed(group), u32::MAX)])
}

/// Reads the rows with keys that a function returns.
fn read(
    group: &Group,
    answer: &[u8],
    keys: impl FnMut(&KeyRequest) -> Result<SealKey, KeyAccessError> + Send,
) -> Vec<Vec<Cell>> {
    let mut found = Cells::default();
    group.read(&["mote-1"], Some(&mut Source(keys)), answer, &mut found).unwrap();
    found.0.into_iter().map(|(.., row)| row).collect()
}

/// Returns the key that the device derives for a request.
fn right(request: &KeyRequest) -> SealKey {
    key_of(&secret_of("mote-1"), request)
}

fn key_of(secret: &StreamSecret, of: &KeyRequest) -> SealKey {
    let key = secret.column(of.column).epoch_key(of.epoch).unwrap();
    key.seal_key(of.device, of.index, of.suite, &of.nonce)
}

#[test]
fn an_answer_with_an_altered_byte_is_rejected_and_no_key_is_requested() {
    let group = Group::new();
    let answer = answer(&group);
    let names = ["mote-1"];
    for at in 0..answer.len() {
        for flip in [1, 0x80] {
            let mut altered = answer.clone();
            altered[at] ^= flip;
            let mut requests = 0;
            let mut keys = Source(|request: &KeyRequest| {
                requests += 1;
                Ok(right(request))
            });
            let result = group.read(&names, Some(&mut keys), &altered, &mut nowhere());
            // The end item follows the part, which is verified before it. The device's name is that
            // of the query.
            let is_end = at + 2 >= answer.len();
            assert!(result.is_err(), "byte {at} ^ {flip:#x}");
            assert!(requests == 0 || is_end, "byte {at} ^ {flip:#x}: {requests} requests");
        }
    }
}

#[test]
fn a_key_of_another_place_is_refused_by_name() {
    let group = Group::new();
    let answer = answer(&group);
    let bytes = encode(&FIELDS);
    let ids = columns(&Schema::decode(&bytes).unwrap());
    let other = |column| *ids.iter().find(|id| **id != column).unwrap();
    type Alter<'a> = &'a (dyn Fn(&mut KeyRequest) + Sync);
    let alterations: [(&str, Alter<'_>); 6] = [
        ("column", &|of| of.column = other(of.column)),
        ("epoch", &|of| of.epoch = EpochNumber(of.epoch.0 + 1)),
        ("index", &|of| of.index = SealIndex(of.index.0 + 1)),
        ("device", &|of| of.device = group.device("mote-2")),
        ("nonce", &|of| of.nonce.0[11] ^= 1),
        ("suite", &|of| {
            of.suite = match of.suite {
                Suite::ChaCha20 => Suite::Aes128Ctr,
                _ => Suite::ChaCha20,
            }
        }),
    ];
    for (what, alter) in alterations {
        let rows = read(&group, &answer, |request| {
            let mut request = *request;
            alter(&mut request);
            Ok(right(&request))
        });
        assert_eq!(rows.len(), 9);
        for row in rows {
            let names: Vec<_> = row.iter().map(|cell| cell.as_ref().err().copied()).collect();
            let wrong = Some("WrongKey");
            assert_eq!(names, [wrong, None, wrong, wrong], "{what}");
        }
    }
    let rows = read(&group, &answer, |request| Ok(key_of(&secret_of("mote-2"), request)));
    assert!(rows.iter().all(|row| row[0] == Err("WrongKey")));
    // The reason that a source states is the reader's reason.
    for error in [
        KeyAccessError::NotCovered,
        KeyAccessError::KeyErased,
        KeyAccessError::EpochOutOfKeyRange,
        KeyAccessError::WrongKey,
    ] {
        let rows = read(&group, &answer, |_| Err(error));
        assert!(rows.iter().all(|row| row[0] == Err(error.name()) && row[1].is_ok()));
    }
    assert!(read(&group, &answer, |of| Ok(right(of))).iter().all(|row| row[0].is_ok()));
}

/// Seals records under other commitments than those of their keys, as a device could that wants two
/// readers to read different values.
fn sealed_with(group: &Group, alter: impl Fn(&mut [u8])) -> Vec<u8> {
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let mut position = group.start("mote-1");
    let (place, nonce) = ((EpochNumber(EPOCH), next_index(&position)), Nonce([8; 12]));
    let device = group.device("mote-1");
    let streams = streams(&schema, device, place, (&secret_of("mote-1"), nonce));
    let (sealed, keys) = encrypted(&schema, &records(), nonce, streams);
    let mut buffer = [0; MAX_KEY_COMMITMENTS];
    let mut keys = keys.encode(&mut buffer).to_vec();
    alter(&mut keys);
    let keys = KeyCommitments::decode(&keys);
    let part = (EPOCH, true);
    let seal = group.seal_encrypted("mote-1", &mut position, part, &FIELDS, (&sealed, keys));
    group.answer(&[(&seal, u32::MAX)])
}

#[test]
fn a_device_that_signs_another_commitment_or_nonce_has_no_readable_column() {
    let group = Group::new();
    let device = group.device("mote-1");
    let read = |alter: &dyn Fn(&mut [u8])| {
        let answer = sealed_with(&group, alter);
        let mut found = Cells::default();
        let mut keys = DeviceKeys::new(device, secret_of("mote-1"));
        group.read(&["mote-1"], Some(&mut keys), &answer, &mut found).unwrap();
        let row = &found.0[0].3;
        [0, 2, 3].map(|at: usize| row[at].as_ref().err().copied())
    };
    let wrong = Some("WrongKey");
    assert_eq!(read(&|_| {}), [None; 3]);
    // Nonce, then the commitments of the columns.
    assert_eq!(read(&|keys| keys[0] ^= 1), [wrong; 3]);
    assert_eq!(read(&|keys| keys[12] ^= 1), [wrong, None, None]);
    assert_eq!(read(&|keys| keys[12 + 16 + 15] ^= 0x80), [None, wrong, None]);
    // Two commitments in each other's place.
    let swap = |keys: &mut [u8]| {
        let (one, two) = keys[12..].split_at_mut(16);
        one.swap_with_slice(&mut two[..16]);
    };
    assert_eq!(read(&swap), [wrong, wrong, None]);
}

#[test]
fn an_invalid_plaintext_is_an_error_of_the_device() {
    let group = Group::new();
    let bytes = encode(&FIELDS);
    let schema = Schema::decode(&bytes).unwrap();
    let device = group.device("mote-1");
    let (secret, nonce) = (secret_of("mote-1"), Nonce([8; 12]));
    let mut truth = record(1, 2, true, "attic");
    truth[3] = 2;
    let mut text = record(1, 2, true, "attic");
    text[6] = 0xff;
    for (column, invalid) in [("open", truth), ("place", text)] {
        assert!(
            schema.check_plain_record(&invalid).is_err() && schema.check_record(&invalid).is_ok()
        );
        let mut position = group.start("mote-1");
        let place = (EpochNumber(EPOCH), next_index(&position));
        let streams: Vec<KeyStream> = streams(&schema, device, place, (&secret, nonce));
        let mut records = records();
        records[4] = invalid;
        let (sealed, keys) = unchecked(&schema, &records, nonce, streams);
        let part = (EPOCH, true);
        let sealed = (&sealed[..], Some(keys));
        let seal = group.seal_encrypted("mote-1", &mut position, part, &FIELDS, sealed);
        let answer = group.answer(&[(&seal, u32::MAX)]);

        let mut found = Cells::default();
        let mut keys = DeviceKeys::new(device, secret.clone());
        let query = group.query(&["mote-1"], None, crate::support::everything());
        let session = moteseal_client::Session::new(&group.roster, query, None);
        let error = session.with_keys(&mut keys).feed(&answer, &mut found).unwrap_err();
        let error = moteseal_client::Error::from(error);
        assert_eq!(error.name(), "RecordValue", "{column}");
        let moteseal_client::Error::Rejected(rejected) = &error else { panic!("{error}") };
        assert_eq!((rejected.device(), rejected.index()), (Some(device), Some(SealIndex(0))));
        assert!(error.to_string().contains("reading 4"), "{error}");
        assert!(found.0.is_empty());
        // Who has no key of the column does not see the fault.
        group.read(&["mote-1"], None, &answer, &mut found).unwrap();
        assert_eq!(found.0.len(), 9);
    }
}
