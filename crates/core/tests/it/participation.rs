//! Tests of the encoding of participants: each set has exactly one encoding, and all other bytes
//! are rejected.

use std::collections::BTreeSet;

use moteseal_core::participation::{Participation, ParticipationError, max_size, runs_of};
use proptest::prelude::*;

fn words(set: &BTreeSet<u32>) -> Vec<u64> {
    let mut words = vec![0; set.last().map_or(0, |last| *last as usize / 64 + 1)];
    set.iter().for_each(|n| words[*n as usize / 64] |= 1 << (n % 64));
    words
}

fn encoded(set: &BTreeSet<u32>) -> Vec<u8> {
    let mut out = vec![0; max_size(set.last().map_or(0, |last| last + 1))];
    let length = Participation::encode(&words(set), &mut out).unwrap();
    out.truncate(length);
    out
}

fn members(participation: Participation<'_>) -> BTreeSet<u32> {
    participation.runs().flatten().collect()
}

fn round_trip(set: &BTreeSet<u32>, sources: u32) -> Vec<u8> {
    let bytes = encoded(set);
    let read = Participation::decode(&bytes, sources).unwrap();
    assert_eq!(members(read), *set);
    assert_eq!(read.count() as usize, set.len());
    assert_eq!(runs_of(&words(set)).flatten().collect::<BTreeSet<_>>(), *set);
    if let Some(last) = set.last() {
        assert_eq!(Participation::decode(&bytes, *last), Err(ParticipationError::UnknownPosition));
    }
    bytes
}

#[test]
fn every_set_of_twelve_positions_has_its_own_encoding() {
    let mut seen = BTreeSet::new();
    for bits in 0_u32..1 << 12 {
        let set = (0..12).filter(|n| bits >> n & 1 != 0).collect();
        assert!(seen.insert(round_trip(&set, 12)));
    }
}

#[test]
fn every_short_byte_string_that_decodes_encodes_to_itself() {
    let mut read = 0_u32;
    let mut check = |bytes: &[u8]| {
        if let Ok(participation) = Participation::decode(bytes, 1 << 20) {
            assert_eq!(encoded(&members(participation)), bytes);
            read += 1;
        }
    };
    check(&[]);
    for value in 0_u32..1 << 24 {
        let bytes = value.to_le_bytes();
        // Check all strings of one and two bytes, and the strings of three bytes with a small first
        // byte.
        if value < 1 << 8 {
            check(&bytes[..1]);
        }
        if value < 1 << 16 {
            check(&bytes[..2]);
        }
        if bytes[0] < 4 || bytes[0] >= 0xfe {
            check(&bytes[..3]);
        }
    }
    assert!(read > 10_000, "{read}");
}

/// If the integer of a bitmap's base is just too large for one byte, an encoding with a smaller
/// base and a leading zero byte has the same length as the canonical encoding.
#[test]
fn rejects_a_bitmap_with_a_leading_zero_byte() {
    let malformed = Err(ParticipationError::MalformedParticipation);
    assert_eq!(Participation::decode(&[0x7f, 0x00, 0x81], 1 << 22), malformed);
    for base in [1_u32 << 6, 1 << 13, 1 << 20] {
        let set = BTreeSet::from([8 * base, 8 * base + 7]);
        let right = round_trip(&set, 1 << 26);
        let head = right.len() - 1;
        let mut wrong = vec![];
        let mut rest = (base - 1) << 1 | 1;
        while rest >= 0x80 {
            wrong.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        wrong.extend([rest as u8, 0]);
        wrong.extend(&right[head..]);
        assert_eq!(wrong.len(), right.len());
        assert_eq!(Participation::decode(&wrong, 1 << 26), malformed, "{wrong:02x?}");
    }
}

#[test]
fn encodes_a_set_of_one_without_a_bitmap() {
    for n in [0, 1, 63, 64, 1023, 70_000, (1 << 31) - 1] {
        let mut out = [0; 6];
        let length = Participation::encode_one(n, &mut out).unwrap();
        let read = Participation::decode(&out[..length], u32::MAX).unwrap();
        assert!(read.runs().eq(std::iter::once(n..n + 1)));
    }
}

#[test]
fn is_short_for_few_silent_sources_and_never_longer_than_a_bitmap() {
    // (the number of evenly spaced silent sources among 1,024, the length of the encoded set in
    // bytes)
    for (silent, bytes) in [(0, 3), (10, 22), (102, 129), (512, 129)] {
        let step = 1024_u32.checked_div(silent).unwrap_or(u32::MAX);
        let set: BTreeSet<u32> =
            (0..1024).filter(|n| n % step != step / 2 || n / step >= silent).collect();
        assert_eq!(set.len() as u32, 1024 - silent);
        assert_eq!(round_trip(&set, 1024).len(), bytes, "{silent}");
    }
}

proptest! {
    #[test]
    fn reads_any_set_as_written(set in prop::collection::btree_set(0_u32..5000, 0..600)) {
        round_trip(&set, 5000);
    }

    #[test]
    fn reads_any_runs_as_written(lengths in prop::collection::vec((1_u32..300, 1_u32..300), 0..20)) {
        let (mut set, mut at) = (BTreeSet::new(), 0);
        for (gap, length) in lengths {
            set.extend(at + gap..at + gap + length);
            at += gap + length;
        }
        round_trip(&set, 20_000);
    }

    #[test]
    fn rejects_bytes_or_encodes_them_the_same(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
        if let Ok(read) = Participation::decode(&bytes, 1 << 22) {
            prop_assert_eq!(encoded(&members(read)), bytes);
        }
    }
}
