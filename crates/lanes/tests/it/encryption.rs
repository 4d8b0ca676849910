//! Key streams in lanes equal those of the scalar loop.

use moteseal_core::confidential::{EncryptedColumns, KeyStream, Nonce, SealKey, StreamSecret};
use moteseal_core::record::Sequence;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};
use moteseal_core::{DeviceId, EpochNumber, SealIndex};
use moteseal_lanes::Host;
use proptest::prelude::*;

/// The columns of a schema, and the size of its records.
type Columns = (&'static [&'static str], usize);
const MIXED: Columns = (&["a::u8!", "b::u16", "c::u16!", "d::u32!", "e::u64!", "f::u32!aes"], 21);
/// A schema whose records have one cell.
const SINGLE: Columns = (&["d::u32!"], 4);

fn keys(schema: &Schema<'_>, present: [bool; 5]) -> Vec<Option<SealKey>> {
    let secret = StreamSecret::new([7; 32], EpochNumber(0));
    let columns = schema.encrypted_columns().zip(present);
    columns
        .map(|((field, column), is_present)| {
            let key = secret.column(column).epoch_key(EpochNumber(3)).unwrap();
            let key =
                key.seal_key(DeviceId([1; 8]), SealIndex(4), field.suite.unwrap(), &Nonce([9; 12]));
            is_present.then_some(key)
        })
        .collect()
}

proptest! {
    #[test]
    fn many_records_are_decrypted_as_one_by_one(
        first in prop_oneof![
            0_u64..3000,
            (1_u64 << 32) - 40..(1 << 32),
            (1_u64 << 36) - 600..(1 << 36),
            Just(u64::MAX / 64)
        ],
        gaps in prop_oneof![
            prop::collection::vec(prop_oneof![4 => Just(1_u64), 1 => 0..40_u64], 0..700),
            prop::collection::vec(Just(1_u64), 0..700),
        ],
        present in any::<[bool; 5]>(),
        byte in any::<u8>(),
        (columns, size) in prop::sample::select(&[MIXED, SINGLE]),
    ) {
        let fields: Vec<_> = columns.iter().map(|field| Field::parse(field).unwrap()).collect();
        let mut buffer = [0; MAX_SCHEMA];
        let schema = Schema::encode(&fields, &mut buffer).unwrap();
        let columns = EncryptedColumns::of(&schema);
        let sequences = gaps.iter().scan(first, |seq, gap| {
            *seq = seq.saturating_add(*gap);
            Some(Sequence(*seq))
        });
        let sequences: Vec<_> = sequences.collect();
        let mut slow = vec![byte; sequences.len() * size];
        let keys = keys(&schema, present);
        let mut scalar: Vec<_> = keys.iter().map(|key| key.clone().map(KeyStream::new)).collect();
        let mut expected = Ok(());
        for (seq, record) in sequences.iter().copied().zip(slow.chunks_exact_mut(size)) {
            if let Err(error) = columns.decrypt(seq, record, &mut scalar) {
                expected = Err(error);
                break;
            }
        }
        for host in Host::all() {
            let mut fast = vec![byte; sequences.len() * size];
            let found = host.apply_key_streams(&columns, &sequences, (size, &mut fast), &keys);
            prop_assert_eq!(found, expected, "{}", host.name());
            if expected.is_ok() {
                prop_assert_eq!(&fast, &slow, "{}", host.name());
            }
        }
    }
}
