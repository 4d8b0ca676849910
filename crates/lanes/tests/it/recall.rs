//! Tests that an engine with a cache returns the results of the scalar loops, whatever it has
//! computed before.

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_lanes::{Host, Recall};
use moteseal_seal::engine::{Engine, Scalar};
use moteseal_seal::level::Salt;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Asked {
    Counters { salt: u8, levels: u8, n: u32 },
    Levels { salt: u8, levels: u8, first: u64, length: usize },
}

/// Generates requests with few different salts, so that many requests find their levels in the
/// cache, find only some of them, or find them for another number of levels. Some seals are so long
/// that they evict other seals or are not cached.
fn asked() -> impl Strategy<Value = Asked> {
    let n = prop_oneof![8 => 0..700_u32, 1 => 60_000..90_000_u32, 1 => Just((256 << 10) + 1)];
    let levels = prop_oneof![Just(16_u8), 1..=32_u8];
    prop_oneof![
        (0..6_u8, levels.clone(), n).prop_map(|(salt, levels, n)| Asked::Counters {
            salt,
            levels,
            n
        }),
        (0..6_u8, levels, prop_oneof![0..800_u64, Just(u64::MAX - 300)], 0..300_usize).prop_map(
            |(salt, levels, first, length)| Asked::Levels { salt, levels, first, length }
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..Default::default() })]

    #[test]
    fn cached_levels_equal_computed_levels(asked in prop::collection::vec(asked(), 1..40)) {
        for engine in [Recall::detect(), Recall::from(Host::detect())] {
            let clone = engine.clone();
            for (at, asked) in asked.iter().enumerate() {
                let engine = if at % 3 == 0 { &clone } else { &engine };
                match *asked {
                    Asked::Counters { salt, levels, n } => {
                        let salt = Salt([salt; 16]);
                        let expected = Scalar.counters(&salt, levels, n);
                        prop_assert_eq!(engine.counters(&salt, levels, n), expected);
                    }
                    Asked::Levels { salt, levels, first, length } => {
                        let salt = Salt([salt; 16]);
                        let (mut recalled, mut hashed) = (vec![0; length], vec![0; length]);
                        engine.levels(&salt, levels, first, &mut recalled);
                        Scalar.levels(&salt, levels, first, &mut hashed);
                        prop_assert_eq!(recalled, hashed);
                    }
                }
            }
        }
    }
}

#[test]
fn the_digests_of_blocks_equal_computed_digests() {
    let (device, index) = (DeviceId([7; 8]), SealIndex(3));
    let blocks: [&[u8]; 4] = [b"one", b"", &[9; 500], b"four"];
    for engine in [Recall::detect(), Recall::from(Host::detect())] {
        let (mut recalled, mut hashed) = ([Digest::NULL; 4], [Digest::NULL; 4]);
        engine.block_digests(device, index, &blocks, &mut recalled);
        Scalar.block_digests(device, index, &blocks, &mut hashed);
        assert_eq!(recalled, hashed);
        assert_eq!(hashed.map(|digest| digest == Digest::NULL), [false, true, false, false]);
    }
}
