//! Fuzzes the redaction and the merging of streams with column groups. No bytes may verify to a cell
//! that was not sealed. What verifies can be redacted to any groups, and the result verifies to the same
//! rows with fewer cells. An input is two sets of groups, the length of the first stream (2 bytes,
//! big-endian), and two streams.

use moteseal_core::schema::Groups;
use moteseal_seal::follow::Limits;
use moteseal_verify::redaction::{merge, redact};

use crate::grouped::{self, ShownRow};

/// Verifies, redacts and merges the streams.
pub fn run(bytes: &[u8]) {
    let Some((&[one, other, high, low], rest)) = bytes.split_first_chunk() else { return };
    let length = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    let (first, second) = rest.split_at(length);
    let kept = [one, other].map(|bits| Groups::from_bits(bits & grouped::GROUPS | 1));
    for stream in [first, second] {
        let rows = grouped::read(stream);
        let parts = kept.map(|kept| redacted(stream, kept));
        assert!(parts.iter().all(|part| part.is_some() == rows.is_ok()), "only what verifies");
        let (Ok(rows), [Some(a), Some(b)]) = (rows, parts) else { continue };
        check_rows(&rows, &a, kept[0]);
        check_rows(&rows, &b, kept[1]);
        // The rules of spec/groups.md, section 6.3.
        let both = redacted(&a, kept[1]).expect("a redaction verifies");
        assert_eq!(Some(&both), redacted(&b, kept[0]).as_ref(), "the order does not matter");
        let union = redacted(stream, kept[0].union(kept[1]));
        assert_eq!(merged(&a, &b), union, "a merge is the redaction to the union");
    }
    if let Some(stream) = merged(first, second) {
        let counts = [first, second].map(|part| grouped::read(part).expect("it verified").len());
        let rows = grouped::read(&stream).expect("a merge verifies");
        assert_eq!(counts, [rows.len(); 2], "a row was lost");
    }
}

fn redacted(stream: &[u8], kept: Groups) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let limits = Limits { max_events: 1 << 12 };
    redact(&mut out, stream, (grouped::roster(), limits), &mut |_| kept).ok().map(|()| out)
}

fn merged(first: &[u8], second: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let limits = Limits { max_events: 1 << 12 };
    merge(&mut out, (first, second), (grouped::roster(), limits)).ok().map(|()| out)
}

/// Checks that `redacted` has the rows `rows`, and of their groups those in `kept`. [`grouped::read`]
/// checks the cells.
fn check_rows(rows: &[ShownRow], redacted: &[u8], kept: Groups) {
    let left = grouped::read(redacted).expect("a redaction verifies");
    let places = |rows: &[ShownRow]| rows.iter().map(|row| (row.0, row.1)).collect::<Vec<_>>();
    assert_eq!(places(&left), places(rows));
    for (left, row) in left.iter().zip(rows) {
        assert_eq!(left.2.bits(), row.2.bits() & kept.bits());
    }
}

/// Returns pairs of streams: whole ones, redactions of one original, and those of different seals.
pub fn seeds() -> Vec<Vec<u8>> {
    let streams = grouped::streams();
    let mut seeds = Vec::new();
    for (at, stream) in streams.iter().enumerate() {
        let [a, b] = [0b11, 0b10_0001]
            .map(|bits| redacted(stream, Groups::from_bits(bits)).expect("the stream verifies"));
        let next = &streams[(at + 1) % streams.len()];
        for (one, other) in [(stream, &a), (&a, &b), (&b, &a), (&a, next)] {
            let length = u16::try_from(one.len()).expect("a short stream").to_be_bytes();
            seeds.push([&[0b11, 0b10_0001][..], &length, one, other].concat());
        }
    }
    seeds
}
