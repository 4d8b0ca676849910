//! Tests that a device encrypts columns: what is sealed decrypts to what was recorded, takes the bytes
//! that the specification states, and depends on nothing else (spec/confidential.md, section 6).

use std::collections::HashSet;

use moteseal_core::confidential::{ColumnId, EncryptedColumns, KeyStream, Nonce, StreamSecret};
use moteseal_core::link::LinkKey;
use moteseal_core::record::{EpochNumber, Round, Scheme};
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::signature::SecretKey;
use moteseal_device::mote::BUFFER;
use moteseal_device::{
    Bundle, Chain, ColumnKeys, Mote, Profile, ProfileError, SealRefused, Sealer,
};
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::Announcement;
use moteseal_verify::{Event, ReadError, StreamReader};
use proptest::prelude::*;

use crate::sensors::{roster, secret};

/// The epochs of the tests begin here, some epochs after the base epoch.
pub(crate) const FIRST: u64 = 1_000;

pub(crate) fn stream_secret() -> StreamSecret {
    StreamSecret::new([5; 32], EpochNumber(FIRST - 10))
}

/// Returns an encoded schema: a number of 8 bytes, a number of 2 bytes in plaintext, and a text.
pub(crate) fn schema(is_encrypted: bool, has_text: bool) -> Vec<u8> {
    let mark = if is_encrypted { "!" } else { "" };
    let texts = [format!("a::u64{mark}"), "b::i16".to_owned(), format!("c::text20{mark}")];
    let count = if has_text { 3 } else { 2 };
    let fields: Vec<Field<'_>> =
        texts.iter().take(count).map(|text| Field::parse(text).unwrap()).collect();
    let mut buffer = [0; MAX_SCHEMA];
    Schema::encode(&fields, &mut buffer).unwrap().as_bytes().to_vec()
}

/// A reading: a number, another one, and a text.
type Reading = (u64, i16, String);

/// Returns the record of a reading.
fn record((a, b, c): &Reading, has_text: bool) -> Vec<u8> {
    let mut out = [&a.to_be_bytes()[..], &b.to_be_bytes()].concat();
    if has_text {
        out.push(u8::try_from(c.len()).unwrap());
        out.extend_from_slice(c.as_bytes());
    }
    out
}

fn readings(most: usize) -> impl Strategy<Value = Vec<Vec<Reading>>> {
    let reading = (any::<u64>(), any::<i16>(), "[a-z]{0,20}");
    prop::collection::vec(prop::collection::vec(reading, 0..most), 1..4)
}

/// Returns the profile of `dev1`, whose columns are encrypted if the schema says so.
pub(crate) fn profile(scheme: Scheme, schema: &[u8], keys: Option<ColumnKeys>) -> Profile {
    let schema = Schema::decode(schema).unwrap();
    match keys {
        Some(keys) => Profile::with_columns(&roster(), "dev1", scheme, &schema, keys).unwrap(),
        None => Profile::new(&roster(), "dev1", scheme, &schema).unwrap(),
    }
}

fn keys(schema: &[u8]) -> Option<ColumnKeys> {
    let schema = Schema::decode(schema).unwrap();
    ColumnKeys::new(&schema, &stream_secret(), EpochNumber(FIRST)).unwrap()
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) epoch: u64,
    pub(crate) index: u32,
    pub(crate) seq: u64,
    /// The record, decrypted.
    pub(crate) plain: Vec<u8>,
    /// The record as it is in the stream.
    pub(crate) sealed: Vec<u8>,
    pub(crate) nonce: Option<Nonce>,
}

impl Row {
    /// Returns the place and the decrypted record.
    fn place(&self) -> (u64, u32, u64, &[u8]) {
        (self.epoch, self.index, self.seq, &self.plain)
    }
}

/// Verifies a stream, and decrypts its events with the stream secret.
pub(crate) fn rows(stream: &[u8], schema: &[u8]) -> Vec<Row> {
    let (roster, schema) = (roster(), Schema::decode(schema).unwrap());
    let (columns, mut out) = (EncryptedColumns::of(&schema), Vec::new());
    let mut reader = StreamReader::new(&roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        let Event::Proven(proven) = event else { panic!("{event:?}") };
        let statement = proven.seal.statement();
        assert_eq!(statement.keys.is_some(), !columns.is_empty());
        let stream_of = |column: ColumnId| {
            let root = stream_secret().column(column);
            KeyStream::new(proven.seal.column_key(&schema, &root.nodes()).unwrap())
        };
        let mut streams: Vec<Option<KeyStream>> =
            schema.encrypted_columns().map(|(_, column)| Some(stream_of(column))).collect();
        proven.sample.for_each(&Scalar, |seq, _, sealed| {
            let mut plain = sealed.to_vec();
            columns.decrypt(seq, &mut plain, &mut streams).unwrap();
            schema.check_plain_record(&plain).unwrap();
            out.push(Row {
                epoch: statement.epoch.0,
                index: statement.index.0,
                seq: seq.0,
                plain,
                sealed: sealed.to_vec(),
                nonce: statement.keys.map(|keys| keys.nonce()),
            });
        });
        Ok::<(), ReadError>(())
    };
    reader.feed(stream, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    out
}

/// Verifies a stream, and returns the number of its seals.
fn seal_count(stream: &[u8]) -> usize {
    let (roster, mut count) = (roster(), 0);
    let mut reader = StreamReader::new(&roster, Limits::default());
    let mut visit = |event: Event<'_>| {
        count += usize::from(matches!(event, Event::Proven(_)));
        Ok::<(), ReadError>(())
    };
    reader.feed(stream, &mut visit).unwrap();
    reader.finish(&mut visit).unwrap();
    count
}

/// Asserts that no two events are encrypted with the same key stream in the column of 8 bytes.
pub(crate) fn assert_no_key_stream_twice<'r>(rows: impl IntoIterator<Item = &'r Row>) {
    let mut seen = HashSet::new();
    for row in rows {
        let cell = |record: &[u8]| u64::from_be_bytes(*record.first_chunk().unwrap());
        let stream = cell(&row.sealed) ^ cell(&row.plain);
        assert!(seen.insert(stream), "the key stream of {row:?} was used before");
    }
}

fn places(rows: &[Row]) -> Vec<(u64, u32, u64, &[u8])> {
    rows.iter().map(Row::place).collect()
}

fn sealer(profile: Profile) -> Sealer<SecretKey> {
    let chain = Chain::start(profile.certificate);
    Sealer::new(profile, secret(), SaltKey::new([2; 32]), chain)
}

fn seal(profile: Profile, epochs: &[Vec<Vec<u8>>]) -> Vec<Bundle> {
    let (mut sealer, mut bundles) = (sealer(profile), Vec::new());
    for (epoch, records) in (FIRST..).step_by(3).zip(epochs) {
        bundles.extend(sealer.begin(EpochNumber(epoch)).unwrap());
        for record in records {
            bundles.extend(sealer.push(EpochNumber(epoch), record).unwrap());
        }
    }
    bundles.extend(sealer.close(true).unwrap());
    bundles
}

/// Returns a mote that keeps ended epochs.
fn mote<const N: usize>(profile: Profile) -> Mote<SecretKey, N> {
    let (device, chain) = (profile.device, Chain::start(profile.certificate));
    let session = DeviceSession::new(device, LinkKey::new(&[7; 32]), 1);
    let salt_key = SaltKey::new([3; 32]);
    let mut mote = Mote::new(profile, secret(), salt_key, session, chain, Vec::new(), 10_000);
    mote.keep_ended();
    mote
}

/// Runs a mote whose gateway announces a round, and returns the streams of its epochs.
fn forward<const N: usize>(profile: Profile, epochs: &[Vec<Vec<u8>>], round: u8) -> Vec<Vec<u8>> {
    let (mut mote, group, mut streams) = (mote::<N>(profile), roster().group(), Vec::new());
    for (epoch, records) in (FIRST..).map(EpochNumber).zip(epochs) {
        for (number, record) in records.iter().enumerate() {
            if number == records.len() / 2 {
                let mut out = [0; 512];
                let bytes =
                    Announcement::issue(group, epoch, Round(round), &secret(), &mut out).unwrap();
                mote.announced(&Announcement::open(bytes, group, &secret().public()).unwrap());
            }
            mote.sense(epoch, record).unwrap();
        }
        mote.end(epoch).unwrap();
        streams.push(mote.ended().unwrap().stream.as_ref().unwrap().to_vec());
    }
    streams
}

/// Asserts that a seal takes 12 bytes more, 16 more a column, and at most 3 for longer heads.
fn assert_cost(encrypted: usize, plain: usize, columns: usize, seals: usize) {
    let more = encrypted.checked_sub(plain + seals * (12 + 16 * columns)).unwrap();
    assert!(more <= 3 * seals, "{more} bytes of heads in {seals} seals");
}

/// Returns the schema with the text, which is in a column group of its own.
fn grouped() -> Vec<u8> {
    let fields = ["a::u64!@3", "b::i16", "c::text20!@1"].map(|field| Field::parse(field).unwrap());
    Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn column_groups_change_no_row(
        tree: bool,
        round in 0..3u8,
        max_events in 20..200u32,
        epochs in readings(120),
    ) {
        let scheme = if tree { Scheme::Tree } else { Scheme::Star };
        let records = |reading: &Vec<Reading>| -> Vec<Vec<u8>> {
            reading.iter().map(|reading| record(reading, true)).collect()
        };
        let epochs: Vec<_> = epochs.iter().map(records).collect();
        let schemas = [schema(true, true), grouped()];
        let sealed = schemas.each_ref().map(|schema| {
            let profile = Profile { max_events, ..profile(scheme, schema, keys(schema)) };
            let bundles = seal(profile, &epochs);
            let stream: Vec<u8> = bundles.iter().flat_map(|bundle| bundle.bytes.clone()).collect();
            rows(&stream, schema)
        });
        prop_assert_eq!(places(&sealed[0]), places(&sealed[1]));
        let forwarded = schemas.each_ref().map(|schema| {
            let profile = Profile { max_events, ..profile(Scheme::Star, schema, keys(schema)) };
            let streams = forward::<600>(profile, &epochs, round);
            streams.iter().flat_map(|stream| rows(stream, schema)).collect::<Vec<_>>()
        });
        prop_assert_eq!(places(&forwarded[0]), places(&forwarded[1]));
        // The buffer is large enough for all events of an epoch, which a tree with groups forwards.
        let forwarded = schemas.each_ref().map(|schema| {
            let profile = Profile { max_events, ..profile(scheme, schema, keys(schema)) };
            let streams = forward::<BUFFER>(profile, &epochs, round);
            streams.iter().flat_map(|stream| rows(stream, schema)).collect::<Vec<_>>()
        });
        prop_assert_eq!(places(&forwarded[0]), places(&forwarded[1]));
    }

    #[test]
    fn a_sealer_seals_what_it_seals_without_encryption(
        tree: bool,
        has_text: bool,
        max_events in 1..60u32,
        epochs in readings(150),
    ) {
        let scheme = if tree { Scheme::Tree } else { Scheme::Star };
        let records = |reading: &Vec<Reading>| -> Vec<Vec<u8>> {
            reading.iter().map(|reading| record(reading, has_text)).collect()
        };
        let epochs: Vec<_> = epochs.iter().map(records).collect();
        let schemas = [false, true].map(|is_encrypted| schema(is_encrypted, has_text));
        let [plain, encrypted] = schemas.each_ref().map(|schema| {
            seal(Profile { max_events, ..profile(scheme, schema, keys(schema)) }, &epochs)
        });
        let whole = |bundles: &[Bundle], schema: &[u8]| {
            let stream: Vec<u8> = bundles.iter().flat_map(|bundle| bundle.bytes.clone()).collect();
            rows(&stream, schema)
        };
        let of_plain = whole(&plain, &schemas[0]);
        let of_encrypted = whole(&encrypted, &schemas[1]);
        prop_assert_eq!(places(&of_plain), places(&of_encrypted));
        assert_no_key_stream_twice(&of_encrypted);
        let columns = 1 + usize::from(has_text);
        let heads = schemas[1].len() - schemas[0].len();
        let mut nonces = HashSet::new();
        for (encrypted, plain) in encrypted.iter().zip(&plain) {
            let uplink = |bundle: &Bundle| bundle.bytes.len() - bundle.part_start;
            assert_cost(uplink(encrypted), uplink(plain), columns, 1);
            prop_assert_eq!(encrypted.part_start - heads, plain.part_start);
            prop_assert_eq!(encrypted.seal.statement().counters, plain.seal.statement().counters);
            prop_assert!(nonces.insert(encrypted.seal.statement().keys.unwrap().nonce()));
        }
        for row in of_plain.iter().filter(|row| row.plain[0] != 0) {
            let number = &row.plain[..8];
            let mut bytes = encrypted.iter().flat_map(|bundle| bundle.bytes.windows(8));
            prop_assert!(bytes.all(|window| window != number), "a number is in plaintext");
        }
    }

    #[test]
    fn a_mote_forwards_what_it_forwards_without_encryption(
        tree: bool,
        has_text: bool,
        round in 0..3u8,
        max_events in 20..200u32,
        epochs in readings(120),
    ) {
        let scheme = if tree { Scheme::Tree } else { Scheme::Star };
        let records = |reading: &Vec<Reading>| -> Vec<Vec<u8>> {
            reading.iter().map(|reading| record(reading, has_text)).collect()
        };
        let epochs: Vec<_> = epochs.iter().map(records).collect();
        let schemas = [false, true].map(|is_encrypted| schema(is_encrypted, has_text));
        let profiles = || schemas.each_ref().map(|schema| {
            Profile { max_events, ..profile(scheme, schema, keys(schema)) }
        });
        let large = profiles().map(|profile| forward::<BUFFER>(profile, &epochs, round));
        let small = profiles().map(|profile| forward::<600>(profile, &epochs, round));
        let heads = schemas[1].len() - schemas[0].len();
        for [plain, encrypted] in [large, small] {
            let mut all = Vec::new();
            for (plain, encrypted) in plain.iter().zip(&encrypted) {
                let of_plain = rows(plain, &schemas[0]);
                let of_encrypted = rows(encrypted, &schemas[1]);
                prop_assert_eq!(places(&of_plain), places(&of_encrypted));
                // A seal may have no row in the sample.
                let seals = seal_count(encrypted);
                prop_assert_eq!(seals, seal_count(plain));
                if seals > 0 {
                    let columns = 1 + usize::from(has_text);
                    assert_cost(encrypted.len() - heads, plain.len(), columns, seals);
                }
                all.extend(of_encrypted);
            }
            assert_no_key_stream_twice(&all);
        }
    }
}

#[test]
fn a_profile_has_the_keys_of_its_encrypted_columns_or_does_not_exist() {
    let (plain, encrypted) = (schema(false, false), schema(true, false));
    let of = |schema: &[u8]| {
        Profile::new(&roster(), "dev1", Scheme::Star, &Schema::decode(schema).unwrap())
    };
    assert_eq!(of(&encrypted).unwrap_err(), ProfileError::NoStreamSecret);
    assert!(of(&plain).is_ok());
    assert!(keys(&plain).is_none(), "there are no keys for a schema without encrypted columns");
    let with = |name: &str, schema: &[u8], keys: ColumnKeys| {
        let schema = Schema::decode(schema).unwrap();
        Profile::with_columns(&roster(), name, Scheme::Star, &schema, keys).unwrap_err()
    };
    let own = keys(&encrypted).unwrap();
    assert_eq!(with("dev1", &plain, own.clone()), ProfileError::WrongColumn);
    assert_eq!(with("dev1", &schema(true, true), own.clone()), ProfileError::WrongColumn);
    assert_eq!(with("nobody", &encrypted, own), ProfileError::UnknownDevice);
}

#[test]
fn a_profile_whose_keys_were_removed_seals_nothing() {
    let encrypted = schema(true, false);
    let without = Profile { columns: None, ..profile(Scheme::Star, &encrypted, keys(&encrypted)) };
    let refused = sealer(without.clone()).push(EpochNumber(FIRST), &[0; 10]).unwrap_err();
    assert_eq!(refused, SealRefused::NoStreamSecret);
    let refused = mote::<BUFFER>(without).sense(EpochNumber(FIRST), &[0; 10]).unwrap_err();
    assert_eq!(refused, SealRefused::NoStreamSecret);
}

#[test]
fn epochs_without_keys_are_refused_by_name_and_change_nothing() {
    let schema = schema(true, false);
    let base = stream_secret().base().0;
    let columns = Schema::decode(&schema).unwrap();
    let from_base = || ColumnKeys::new(&columns, &stream_secret(), EpochNumber(0)).unwrap();
    let profile = || profile(Scheme::Star, &schema, from_base());
    let (mut sealer, mut mote) = (sealer(profile()), mote::<BUFFER>(profile()));
    for (epoch, name) in [
        (base - 1, "EpochOutOfKeyRange"),
        (base + (1 << 32), "EpochOutOfKeyRange"),
        (base, ""),
        (base + 2, ""),
        (base + 1, "EpochGoesBack"),
    ] {
        let epoch = EpochNumber(epoch);
        let name_of = |result: Result<(), SealRefused>| result.err().map_or("", SealRefused::name);
        assert_eq!(name_of(sealer.push(epoch, &[1; 10]).map(drop)), name, "{epoch}");
        assert_eq!(name_of(mote.sense(epoch, &[1; 10])), name, "{epoch}");
    }
    assert_eq!(sealer.chain().next_index.0, 2);
    assert_eq!(mote.chain().next_index.0, 2);
    // Keys of later epochs do not open earlier ones.
    let mut later = from_base().unwrap();
    later.erase_before(EpochNumber(base + 5));
    assert_eq!(later.check(EpochNumber(base + 4)).unwrap_err().name(), "KeyErased");
    assert!(later.check(EpochNumber(base + 5)).is_ok());
    assert!(!format!("{later:?}").contains("05, 05"), "no key is printed");
}

#[test]
fn a_copy_of_a_mote_continues_the_epoch_in_another_seal() {
    let schema = schema(true, false);
    let mut one = mote::<BUFFER>(profile(Scheme::Tree, &schema, keys(&schema)));
    let epoch = EpochNumber(FIRST);
    one.sense(epoch, &[1; 10]).unwrap();
    let mut other = one.clone();
    for mote in [&mut one, &mut other] {
        mote.sense(epoch, &[2; 10]).unwrap();
        mote.end(epoch).unwrap();
    }
    let of = |mote: &Mote<SecretKey>| rows(mote.ended().unwrap().stream.as_ref().unwrap(), &schema);
    let (one, other) = (of(&one), of(&other));
    let indices = |rows: &[Row]| rows.iter().map(|row| row.index).collect::<Vec<_>>();
    assert_eq!((indices(&one), indices(&other)), (vec![0, 0], vec![0, 1]));
    assert_no_key_stream_twice(one.iter().chain(&other[1..]));
}

#[test]
fn the_digest_of_confidential_readings_cannot_be_tested_with_guesses() {
    // The chain's state has a digest of the readings of an open epoch.
    let schema = schema(true, false);
    let covered = |secret: u8| {
        let profile = profile(Scheme::Star, &schema, keys(&schema));
        let chain = Chain::start(profile.certificate);
        let salt_key = SaltKey::new([secret; 32]);
        let mut sealer = Sealer::new(profile, crate::sensors::secret(), salt_key, chain);
        sealer.push(EpochNumber(FIRST), &[0; 10]).unwrap();
        sealer.close(false).unwrap().unwrap().chain.covered.unwrap()
    };
    let mut guess = moteseal_device::Covered::NONE;
    guess.add(&[0; 10]);
    assert_ne!(covered(2), guess);
    assert_ne!(covered(2), covered(3));
    assert_eq!(covered(2), covered(2));
}
