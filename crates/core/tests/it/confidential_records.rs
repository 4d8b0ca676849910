//! Encrypted columns, compared with whole key streams of other implementations: the generator of the
//! crate `chacha20` for ChaCha20, and AWS-LC for AES-128-CTR.

use aws_lc_rs::cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey};
use aws_lc_rs::iv::FixedLength;
use chacha20::ChaCha20Rng;
use moteseal_core::confidential::{
    ColumnId, EncryptedColumns, KeyCommitments, KeyStream, MAX_ENCRYPTED, MAX_KEY_COMMITMENTS,
    Nonce, SealKey, StreamSecret, Suite,
};
use moteseal_core::record::Sequence;
use moteseal_core::schema::{
    Field, MAX_SCHEMA, RecordCheck, RecordError, Schema, SchemaError, ValueError,
};
use moteseal_core::{DeviceId, EpochNumber, SealIndex};
use proptest::prelude::*;
use rand_core::{Rng, SeedableRng};

const FIELDS: [&str; 9] = [
    "plain:Cel:i16/100?",
    "a:Cel:i16/100?!",
    "note::text20?!",
    "flag::bool?!aes",
    "open::text8?",
    "where::point?!",
    "state::enum(off,on)!",
    "aes note::text254?!aes",
    "big::u64?!aes",
];

fn encode(fields: &[&str]) -> Result<Vec<u8>, SchemaError> {
    let fields: Vec<_> =
        fields.iter().map(|field| Field::parse(field)).collect::<Result<_, _>>()?;
    Ok(Schema::encode(&fields, &mut [0; MAX_SCHEMA])?.as_bytes().to_vec())
}

fn key(column: ColumnId, suite: Suite, index: u32, nonce: u8) -> SealKey {
    let root = StreamSecret::new([7; 32], EpochNumber(0)).column(column);
    let key = root.epoch_key(EpochNumber(3)).unwrap();
    key.seal_key(DeviceId([1; 8]), SealIndex(index), suite, &Nonce([nonce; 12]))
}

fn keys(schema: &Schema<'_>, index: u32, nonce: u8) -> Vec<SealKey> {
    let columns = schema.encrypted_columns();
    columns.map(|(field, id)| key(id, field.suite.unwrap(), index, nonce)).collect()
}

fn streams(schema: &Schema<'_>, index: u32, nonce: u8) -> Vec<KeyStream> {
    keys(schema, index, nonce).into_iter().map(KeyStream::new).collect()
}

/// The key stream of a column of fixed width as one string of bytes.
fn whole_stream(key: &SealKey, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    match key.suite() {
        Suite::ChaCha20 => ChaCha20Rng::from_seed(*key.expose()).fill_bytes(&mut out),
        _ => out = aes_ctr(key, 0, length),
    }
    out
}

/// AES-128-CTR from a block on.
fn aes_ctr(key: &SealKey, block: u32, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    let mut counter = [0; 16];
    counter[..12].copy_from_slice(&key.expose()[16..28]);
    counter[12..].copy_from_slice(&block.to_be_bytes());
    let aes = UnboundCipherKey::new(&AES_128, &key.expose()[..16]).unwrap();
    let context = DecryptionContext::Iv128(FixedLength::from(counter));
    DecryptingKey::ctr(aes).unwrap().decrypt(&mut out, context).unwrap();
    out
}

/// The key stream of a text.
fn text_stream(key: &SealKey, seq: u64, length: usize) -> Vec<u8> {
    if key.suite() == Suite::Aes128Ctr {
        return aes_ctr(key, u32::try_from(seq * 16).unwrap(), length);
    }
    let mut out = vec![0; length];
    let mut stream = ChaCha20Rng::from_seed(*key.expose());
    stream.set_stream(seq);
    stream.set_block_pos(1 << 32);
    stream.fill_bytes(&mut out);
    out
}

/// Encrypts a record cell by cell with the oracle's key streams.
fn oracle(schema: &Schema<'_>, keys: &[SealKey], seq: u64, record: &[u8]) -> Vec<u8> {
    let mut out = record.to_vec();
    let mut keys = keys.iter();
    let mut texts = schema.record_size().unwrap_or_else(|| {
        let fixed = schema.fields().filter(|field| field.longest == 0);
        fixed.map(|field| field.kind.size()).sum()
    });
    for field in schema.fields() {
        let key = field.suite.map(|_| keys.next().unwrap());
        let (at, stream) = if field.longest > 0 {
            let length = usize::from(record[texts]) % 255;
            let at = texts + 1;
            texts = at + length;
            (at, key.map(|key| text_stream(key, seq, length)))
        } else {
            let width = field.kind.size();
            let end = (seq as usize + 1) * width;
            (field.start(), key.map(|key| whole_stream(key, end)[end - width..].to_vec()))
        };
        for (byte, stream) in out[at..].iter_mut().zip(stream.unwrap_or_default()) {
            *byte ^= stream;
        }
    }
    out
}

fn record(schema: &Schema<'_>, texts: &[String]) -> Vec<u8> {
    let mut record = vec![0; schema.longest_record()];
    for (field, text) in schema.fields().zip(texts) {
        field.write(text, &mut record).unwrap();
    }
    record.truncate(schema.record_length(&record).unwrap());
    schema.check_plain_record(&record).unwrap();
    record
}

fn or_null(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop_oneof![1 => Just(String::new()), 4 => text]
}

/// Random values of all columns, with nulls.
fn values() -> impl Strategy<Value = Vec<String>> {
    (
        or_null((-327..327_i32).prop_map(|value| value.to_string())),
        or_null((-327..327_i32).prop_map(|value| value.to_string())),
        or_null("[a-z]{0,20}"),
        or_null(any::<bool>().prop_map(|value| value.to_string())),
        or_null("[a-z]{0,8}"),
        or_null((-90..90_i32, -180..180_i32).prop_map(|(a, b)| format!("{a},{b}"))),
        prop_oneof![Just("off".to_string()), Just("on".to_string())],
        or_null("[a-z]{0,254}"),
        or_null(any::<u32>().prop_map(|value| value.to_string())),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i)| vec![a, b, c, d, e, f, g, h, i])
}

proptest! {
    #[test]
    fn encryption_adds_the_whole_key_stream_and_decryption_returns_the_values(
        texts in values(),
        seq in prop_oneof![0_u64..200, Just(4095)],
        readable in any::<[bool; 7]>(),
    ) {
        let bytes = encode(&FIELDS).unwrap();
        let schema = Schema::decode(&bytes).unwrap();
        let columns = EncryptedColumns::of(&schema);
        let plain = record(&schema, &texts);
        let mut sealed = plain.clone();
        columns.encrypt(Sequence(seq), &mut sealed, &mut streams(&schema, 0, 1)).unwrap();
        prop_assert_eq!(&sealed, &oracle(&schema, &keys(&schema, 0, 1), seq, &plain));
        prop_assert_eq!(schema.check_record(&sealed), Ok(()));
        prop_assert_eq!(RecordCheck::of(&schema).unwrap().check(&sealed), Ok(()));

        // No field of a sealed record has a value of an encrypted column.
        for (field, text) in schema.fields().zip(&texts) {
            let read = field.read(&sealed).map(|value| value.to_string());
            match field.suite {
                Some(_) => prop_assert_eq!(read, Err(ValueError::Encrypted)),
                None => prop_assert_eq!(&field.parse_back(&read.unwrap()), &field.parse_back(text)),
            }
            if field.suite.is_some() {
                prop_assert_eq!(field.read_f64(&sealed), Err(ValueError::Encrypted));
                prop_assert!(field.raw(&sealed).is_err());
            }
        }

        // A reader has the values of exactly the columns whose keys it has.
        let mut some: Vec<_> = streams(&schema, 0, 1)
            .into_iter()
            .zip(readable)
            .map(|(stream, is_readable)| is_readable.then_some(stream))
            .collect();
        let all = readable.iter().all(|&is_readable| is_readable);
        let decrypted = columns.decrypt(Sequence(seq), &mut sealed, &mut some).unwrap();
        let mut readable = readable.iter();
        for (field, text) in schema.fields().zip(&texts) {
            let read = decrypted.read(&field).map(|value| value.to_string());
            if field.suite.is_some() && !readable.next().unwrap() {
                prop_assert_eq!(read, Err(ValueError::Encrypted));
            } else {
                prop_assert_eq!(&field.parse_back(&read.unwrap()), &field.parse_back(text));
            }
        }
        if all {
            prop_assert_eq!(&sealed, &plain);
        }
    }

    #[test]
    fn cells_of_any_width_use_disjoint_bytes_of_one_key_stream(
        width in 1_usize..200,
        seqs in proptest::collection::vec(0_u64..300, 1..10),
        suite in proptest::sample::select(&Suite::ALL[..]),
    ) {
        let key = key(ColumnId([5; 16]), suite, 0, 0);
        let whole = whole_stream(&key, 300 * width);
        let mut stream = KeyStream::new(key);
        for seq in seqs {
            let mut cell = vec![0; width];
            stream.apply_cell(Sequence(seq), &mut cell).unwrap();
            let at = seq as usize * width;
            prop_assert_eq!(&cell, &whole[at..at + width]);
        }
    }

    #[test]
    fn the_cell_before_does_not_matter(
        cells in proptest::collection::vec((0_u64..40, 0_usize..10), 1..30),
        suite in proptest::sample::select(&Suite::ALL[..]),
    ) {
        let key = key(ColumnId([5; 16]), suite, 0, 0);
        let whole = whole_stream(&key, 400);
        let mut stream = KeyStream::new(key);
        for (seq, width) in cells {
            let mut cell = vec![0; width];
            stream.apply_cell(Sequence(seq), &mut cell).unwrap();
            let at = seq as usize * width;
            prop_assert_eq!(&cell, &whole[at..at + width]);
        }
    }

    #[test]
    fn the_key_stream_continues_after_2_to_the_32_events(
        seqs in proptest::collection::vec((1_u64 << 32) - 40..(1 << 32) + 40, 1..20),
    ) {
        let key = key(ColumnId([5; 16]), Suite::ChaCha20, 0, 0);
        let mut whole = ChaCha20Rng::from_seed(*key.expose());
        let mut stream = KeyStream::new(key);
        for seq in seqs {
            let (mut cell, mut expected) = ([0; 4], [0; 4]);
            stream.apply_cell(Sequence(seq), &mut cell).unwrap();
            whole.set_word_pos(seq.into());
            whole.fill_bytes(&mut expected);
            prop_assert_eq!(cell, expected);
        }
    }
}

/// Compares texts of values of one field.
trait ParseBack {
    fn parse_back(&self, text: &str) -> String;
}

impl ParseBack for Field<'_> {
    fn parse_back(&self, text: &str) -> String {
        if self.longest > 0 {
            return text.to_string();
        }
        let mut record = [0; 64];
        self.in_plaintext().write(text, &mut record).unwrap();
        self.in_plaintext().read(&record).unwrap().to_string()
    }
}

#[test]
fn a_schema_with_encrypted_columns_has_version_2_and_its_text_form_round_trips() {
    let bytes = encode(&FIELDS).unwrap();
    let schema = Schema::decode(&bytes).unwrap();
    assert_eq!((bytes[1], schema.encrypted_count()), (2, 7));
    for (field, text) in schema.fields().zip(FIELDS) {
        assert_eq!(field.to_string(), text);
    }
    for text in ["a::u8!", "a::u8?~!#7", "a::enum(x,y)!aes", "a::text9~!aes#3"] {
        assert_eq!(Field::parse(text).unwrap().to_string(), text);
    }
    for text in ["a::u8!?", "a::u8!~", "a::u8!!", "a::u8!des", "a::u8#7!", "a::u8!aes!"] {
        assert!(Field::parse(text).is_err(), "{text}");
    }
    assert_eq!(Field::parse("a::u8!des").unwrap_err(), SchemaError::UnknownSuite);
    assert_eq!(Field::parse("a::u8/100!AES").unwrap_err(), SchemaError::UnknownSuite);
    assert_eq!(Field::parse("a::u8!?").unwrap_err(), SchemaError::MalformedField);
    assert_eq!(encode(&["a::u8!"]).unwrap(), b"\x82\x02\x81\xa4\x00\x01\x01\x61a\x03\x00\x0c\x01");
}

#[test]
fn a_suite_that_is_zero_or_unknown_is_refused() {
    let schema = |suite: &[u8]| [b"\x82\x02\x81\xa4\x00\x01\x01\x61a\x03\x00\x0c", suite].concat();
    let name = |suite| Schema::decode(&schema(suite)).map(|_| ()).map_err(SchemaError::name);
    assert_eq!(name(b"\x01"), Ok(()));
    assert_eq!(name(b"\x02"), Ok(()));
    assert_eq!(name(b"\x00"), Err("NonCanonical"));
    assert_eq!(name(b"\x03"), Err("UnknownSuite"));
    assert_eq!(name(b"\x18\xff"), Err("UnknownSuite"));
    assert_eq!(name(b"\xf5"), Err("UnexpectedType"));
}

#[test]
fn a_schema_has_at_most_16_encrypted_columns() {
    let names: Vec<_> = (0..17).map(|at| format!("c{at}::u8!")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert!(encode(&names[..MAX_ENCRYPTED]).is_ok());
    assert_eq!(encode(&names), Err(SchemaError::TooManyEncryptedFields));
}

#[test]
fn the_id_of_a_column_depends_on_its_field_only() {
    let ids = |fields: &[&str]| -> Vec<ColumnId> {
        let bytes = encode(fields).unwrap();
        Schema::decode(&bytes).unwrap().encrypted_columns().map(|(_, id)| id).collect()
    };
    let one = ids(&["a::u8!#7"])[0];
    assert_eq!(one, ColumnId::of(b"\xa4\x00\x07\x01\x61a\x03\x00\x0c\x01"));
    assert_eq!(ids(&["b::text9", "c::u8!#3", "a::u8!#7"])[1], one);
    for other in ["a::u8!#8", "b::u8!#7", "a::i8!#7", "a::u8!aes#7", "a::u8?!#7", "a:Cel:u8!#7"] {
        assert_ne!(ids(&[other])[0], one, "{other}");
    }
}

#[test]
fn only_a_plain_record_is_checked_for_values() {
    let bytes = encode(&["flag::bool!", "note::text4!"]).unwrap();
    let schema = Schema::decode(&bytes).unwrap();
    assert_eq!(schema.check_record(&[7, 2, 0xff, 0xfe]), Ok(()));
    assert_eq!(schema.check_plain_record(&[7, 0]), Err(RecordError::RecordValue));
    assert_eq!(schema.check_plain_record(&[1, 2, 0xff, 0xfe]), Err(RecordError::RecordValue));
    assert_eq!(schema.check_plain_record(&[1, 2, b'a', b'b']), Ok(()));
    // The length of a text, and whether it is null, are in the clear.
    assert_eq!(schema.check_record(&[7, 5, 1, 2, 3, 4, 5]), Err(RecordError::RecordValue));
    assert_eq!(schema.check_record(&[7, 255]), Err(RecordError::RecordValue));
    assert_eq!(schema.check_record(&[7, 2, 1]), Err(RecordError::RecordLength));
    let plain = RecordCheck::of_plain(&schema).unwrap();
    assert_eq!(plain.check(&[7, 0]), Err(RecordError::RecordValue));
}

#[test]
fn keys_of_the_wrong_number_or_suite_are_refused_and_change_nothing() {
    let bytes = encode(&["a::u8!", "b::u8!aes"]).unwrap();
    let schema = Schema::decode(&bytes).unwrap();
    let columns = EncryptedColumns::of(&schema);
    let mut record = [1, 2];
    let mut swapped = streams(&schema, 0, 0);
    swapped.reverse();
    let refused = |record: &mut [u8], streams: &mut [KeyStream]| {
        columns.encrypt(Sequence(0), record, streams).unwrap_err().name()
    };
    assert_eq!(refused(&mut record, &mut swapped), "WrongSuite");
    let mut second = streams(&schema, 0, 0);
    second[1] = KeyStream::new(key(ColumnId([5; 16]), Suite::ChaCha20, 0, 0));
    assert_eq!(refused(&mut record, &mut second), "WrongSuite");
    assert_eq!(refused(&mut record, &mut swapped[..1]), "KeyCount");
    assert_eq!(refused(&mut record, &mut []), "KeyCount");
    assert_eq!(record, [1, 2]);
    assert_eq!(refused(&mut [1], &mut streams(&schema, 0, 0)), "RecordLength");
    let error = columns.decrypt(Sequence(0), &mut record, &mut [None]).unwrap_err();
    assert_eq!(error.name(), "KeyCount");
}

#[test]
fn aes_refuses_events_after_its_last_block_and_chacha20_has_more() {
    let stream = |suite| KeyStream::new(key(ColumnId([5; 16]), suite, 0, 0));
    let (mut aes, mut chacha) = (stream(Suite::Aes128Ctr), stream(Suite::ChaCha20));
    // 2^32 blocks of 16 bytes are 2^33 cells of 8 bytes, or 2^28 texts.
    let mut cell = [0; 8];
    assert!(aes.apply_cell(Sequence((1 << 33) - 1), &mut cell).is_ok());
    let last = aes_ctr(aes.key(), u32::MAX, 16);
    assert_eq!(cell, last[8..]);
    let error = aes.apply_cell(Sequence(1 << 33), &mut cell).unwrap_err();
    assert_eq!(error.name(), "KeyStreamEnd");
    assert!(aes.apply_text(Sequence((1 << 28) - 1), &mut cell).is_ok());
    assert!(aes.apply_text(Sequence(1 << 28), &mut cell).is_err());
    assert!(chacha.apply_cell(Sequence(1 << 40), &mut cell).is_ok());
    assert!(chacha.apply_text(Sequence(u64::MAX), &mut cell).is_ok());
    assert!(chacha.apply_cell(Sequence(u64::MAX), &mut cell).is_err());
    assert!(chacha.apply_text(Sequence(0), &mut [0; 256]).is_ok());
    assert!(chacha.apply_text(Sequence(0), &mut [0; 257]).is_err());
}

/// The 8-byte blocks of the key streams of several seals: of two indices, of two nonces under one
/// index, of fixed cells and of texts. No block occurs twice.
#[test]
fn no_two_seals_and_no_two_cells_share_key_stream() {
    let mut seen = std::collections::HashSet::new();
    for suite in Suite::ALL {
        for (index, nonce) in [(0, 1), (0, 2), (1, 1), (1, 2)] {
            for (column, is_text) in [(5, false), (6, false), (7, true)] {
                let mut stream = KeyStream::new(key(ColumnId([column; 16]), suite, index, nonce));
                for seq in 0..100 {
                    let mut cell = [0; 256];
                    let cell = if is_text { &mut cell[..] } else { &mut cell[..8] };
                    if is_text {
                        stream.apply_text(Sequence(seq), cell).unwrap();
                    } else {
                        stream.apply_cell(Sequence(seq), cell).unwrap();
                    }
                    for block in cell.chunks(8) {
                        assert!(seen.insert(block.to_vec()), "{suite:?} {index} {nonce} {seq}");
                    }
                }
            }
        }
    }
}

#[test]
fn key_commitments_have_one_encoding_and_another_length_is_refused() {
    let bytes = encode(&FIELDS).unwrap();
    let schema = Schema::decode(&bytes).unwrap();
    let keys = keys(&schema, 4, 9);
    let stated = KeyCommitments::new(Nonce([9; 12]), &keys).unwrap();
    let mut buffer = [0; MAX_KEY_COMMITMENTS];
    let encoded = stated.encode(&mut buffer).to_vec();
    assert_eq!(encoded.len(), 12 + 7 * 16);
    assert_eq!(KeyCommitments::decode(&encoded), Some(stated));
    for (key, commitment) in keys.iter().zip(stated.commitments()) {
        assert!(key.check(commitment).is_ok());
    }
    for length in 0..300 {
        let is_valid = length > 12 && length <= MAX_KEY_COMMITMENTS && (length - 12) % 16 == 0;
        assert_eq!(KeyCommitments::decode(&vec![1; length]).is_some(), is_valid, "{length}");
    }
    let other = KeyCommitments::new(Nonce([9; 12]), keys.iter().rev()).unwrap();
    assert_ne!(other, stated);
    assert_eq!(KeyCommitments::new(Nonce([9; 12]), []), None);
    let many: Vec<_> = (0..17).map(|_| keys[0].clone()).collect();
    assert_eq!(KeyCommitments::new(Nonce([9; 12]), &many), None);
}
