//! The encryption of strings of 24 bytes: AES-128-CBC once and twice, as Mishra et al. do (section V),
//! and the key streams of the product's encrypted columns.

use std::hint::black_box;

use moteseal_core::confidential::{EncryptedColumns, KeyStream, Nonce, StreamSecret};
use moteseal_core::record::Sequence;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::{DeviceId, EpochNumber, SealIndex};
use moteseal_lab::chance::Seed;
use moteseal_lab::latency::wireless::{Cipher, Protection, STRING};
use moteseal_lab::redactable::Encryption;
use moteseal_lanes::Host;

use super::Effort;
use crate::measure::{Contender, interleaved};
use crate::seals::extremes;

/// The columns that hold a string: three of eight bytes.
const COLUMNS: [&str; 3] = ["a::i64!", "b::i64!", "c::i64!"];

/// Measures all encryptions. They take turns within each repetition.
pub(super) fn measure(effort: Effort) -> Result<Vec<Encryption>, String> {
    let text = |error: &dyn std::fmt::Display| format!("encryption: {error}");
    let strings = 100 * effort.count;
    let string = [b'x'; STRING];
    let cipher =
        |protection| Cipher::new(Seed::default(), protection).map_err(|error| text(&error));
    let ciphers = [cipher(Protection::Once)?, cipher(Protection::Twice)?];
    let mut lengths = Vec::new();
    for cipher in &ciphers {
        lengths.push(cipher.encrypt(0, &string).map_err(|error| text(&error))?.len());
    }

    let fields = COLUMNS.map(Field::parse);
    let [a, b, c] = fields.map(|field| field.map_err(|error| text(&error)));
    let mut buffer = [0; MAX_SCHEMA];
    let schema = Schema::encode(&[a?, b?, c?], &mut buffer).map_err(|error| text(&error))?;
    let columns = EncryptedColumns::of(&schema);
    let secret = StreamSecret::new([1; 32], EpochNumber(0));
    let mut keys = Vec::new();
    for (field, column) in schema.encrypted_columns() {
        let key = secret.column(column).epoch_key(EpochNumber(0)).map_err(|error| text(&error))?;
        let suite = field.suite.ok_or("encryption: a column is not encrypted")?;
        let (device, index) = (DeviceId([7; 8]), SealIndex(0));
        keys.push(key.seal_key(device, index, suite, &Nonce([2; 12])));
    }
    let mut one_by_one: Vec<_> = keys.iter().cloned().map(KeyStream::new).collect();
    let keys: Vec<_> = keys.into_iter().map(Some).collect();
    let (mut first, mut second) = (string.repeat(strings), string.repeat(strings));
    let sequences: Vec<_> = (0_u64..).map(Sequence).take(strings).collect();
    let host = Host::detect();

    let mut contenders: Vec<_> = ciphers
        .iter()
        .map(|cipher| {
            Contender::new(strings, move || {
                for _ in 0..strings {
                    let _ = black_box(cipher.encrypt(0, black_box(&string)));
                }
            })
        })
        .collect();
    contenders.push(Contender::new(strings, || {
        for (seq, record) in (0..).map(Sequence).zip(first.chunks_exact_mut(STRING)) {
            let _ = black_box(columns.encrypt(seq, record, &mut one_by_one));
        }
    }));
    contenders.push(Contender::new(strings, || {
        let records = (STRING, &mut second[..]);
        let _ = black_box(host.apply_key_streams(&columns, &sequences, records, &keys));
    }));
    let times = interleaved(effort.repetitions, &mut contenders);
    drop(contenders);
    // Each contender has added its key stream equally often.
    if first != second {
        return Err("encryption: the lanes computed another key stream".to_owned());
    }
    let names = [
        "AES-128-CBC once",
        "AES-128-CBC twice",
        "ChaCha20 key stream, record by record",
        "ChaCha20 key stream, in lanes",
    ];
    let bytes = lengths.into_iter().chain([STRING; 2]);
    let row = |(at, (name, bytes))| Encryption { name, bytes, time: extremes(&times, at) };
    Ok(names.into_iter().zip(bytes).enumerate().map(row).collect())
}
