//! Tests of the CBOR scanner, which checks all input. It agrees with a slow reference, whether the
//! input arrives whole or in pieces of any size.

use moteseal_core::cbor::{DecodeError, MAX_DEPTH, Reader, Scanner, item_length};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::Union;

fn head(major: u8, argument: u64) -> Vec<u8> {
    let wide = argument.to_be_bytes();
    match argument {
        0..24 => vec![major << 5 | wide[7]],
        24..0x100 => vec![major << 5 | 24, wide[7]],
        0x100..0x1_0000 => [&[major << 5 | 25], &wide[6..]].concat(),
        0x1_0000..0x1_0000_0000 => [&[major << 5 | 26], &wide[4..]].concat(),
        _ => [&[major << 5 | 27], &wide[..]].concat(),
    }
}

/// Generates items that are valid, except that the keys of maps may be in the wrong order.
fn item() -> impl Strategy<Value = Vec<u8>> {
    let argument = Union::new([0..30u64, 200..300, 65_000..66_000, 0xffff_fff0..0x1_0000_0010]);
    let leaf = prop_oneof![
        (0..2u8, argument).prop_map(|(major, argument)| head(major, argument)),
        vec(any::<u8>(), 0..40).prop_map(|bytes| [head(2, bytes.len() as u64), bytes].concat()),
        "\\PC{0,9}".prop_map(|text| [head(3, text.len() as u64), text.into_bytes()].concat()),
        (20..23u64).prop_map(|simple| head(7, simple)),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(|items| [
                head(4, items.len() as u64),
                items.concat()
            ]
            .concat()),
            (vec((inner.clone(), inner.clone()), 0..5), any::<bool>()).prop_map(
                |(mut pairs, sorted)| {
                    if sorted {
                        pairs.sort();
                        pairs.dedup_by(|one, other| one.0 == other.0);
                    }
                    let entries =
                        pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]);
                    [head(5, pairs.len() as u64), entries.flatten().collect()].concat()
                }
            ),
            (30..99u64, inner).prop_map(|(tag, item)| [head(6, tag), item].concat()),
        ]
    })
}

/// Returns the result of a scanner that receives `bytes` in pieces, which end at `ends`.
fn scanned(bytes: &[u8], ends: &[Index]) -> Result<usize, DecodeError> {
    let mut ends: Vec<usize> = ends.iter().map(|end| end.index(bytes.len() + 1)).collect();
    ends.sort_unstable();
    ends.push(bytes.len());
    let mut scanner = Scanner::default();
    let mut result = Err(DecodeError::Truncated);
    for end in ends {
        result = scanner.scan(&bytes[..end]);
        if result != Err(DecodeError::Truncated) {
            break;
        }
    }
    result
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_scan_in_pieces_equals_the_reference(bytes in item(), tail in vec(any::<u8>(), 0..9), ends in vec(any::<Index>(), 0..9)) {
        let expected = crate::reference::item_length(&bytes);
        prop_assert_eq!(item_length(&bytes), expected);
        let longer = [bytes, tail].concat();
        prop_assert_eq!(scanned(&longer, &ends), expected);
    }

    #[test]
    fn rejects_damaged_items_as_the_reference_does(
        bytes in item(),
        at in any::<Index>(),
        byte in any::<u8>(),
        cut in any::<Index>(),
        ends in vec(any::<Index>(), 0..9),
    ) {
        let mut bytes = bytes;
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(cut.index(bytes.len() + 1));
        prop_assert_eq!(scanned(&bytes, &ends), crate::reference::item_length(&bytes));
    }

    #[test]
    fn rejects_noise_as_the_reference_does(bytes in vec(any::<u8>(), 0..60), ends in vec(any::<Index>(), 0..9)) {
        prop_assert_eq!(scanned(&bytes, &ends), crate::reference::item_length(&bytes));
    }
}

#[test]
fn accepts_the_maximum_nesting_and_no_more() {
    for depth in 0..=MAX_DEPTH + 3 {
        let bytes = [vec![0x81; depth], vec![0]].concat();
        let expected =
            if depth <= MAX_DEPTH { Ok(depth + 1) } else { Err(DecodeError::NonCanonical) };
        assert_eq!(item_length(&bytes), expected, "{depth}");
        assert_eq!(crate::reference::item_length(&bytes), expected, "{depth}");
    }
}

#[test]
fn an_impossible_length_is_truncated_input() {
    for head in [
        "9bffffffffffffffff",
        "bbffffffffffffffff",
        "bb8000000000000000",
        "5bffffffffffffffff",
        "7bffffffffffffffff",
    ] {
        let bytes = [hex::decode(head).unwrap(), vec![0, 1, 2, 3]].concat();
        let expected = crate::reference::item_length(&bytes);
        assert_eq!(item_length(&bytes), expected, "{head}");
        assert_eq!(expected, Err(DecodeError::Truncated), "{head}");
    }
}

/// Finding F3 of the review. The last element of an item is a negative integer whose head has an
/// argument. The item is complete, so the element has the wrong type and nothing is truncated.
#[test]
fn a_complete_item_is_never_reported_as_truncated() {
    type Read = fn(&mut Reader<'_>) -> Result<(), DecodeError>;
    let reads: [(&str, Read); 10] = [
        ("array", |reader| reader.array(2)),
        ("array_any", |reader| reader.array_any().map(|_| ())),
        ("map", |reader| reader.map().map(|_| ())),
        ("u64", |reader| reader.u64().map(|_| ())),
        ("bool", |reader| reader.bool().map(|_| ())),
        ("bytes", |reader| reader.bytes().map(|_| ())),
        ("text", |reader| reader.text().map(|_| ())),
        ("tag", |reader| reader.tag().map(|_| ())),
        ("version", |reader| reader.version()),
        ("optional", |reader| reader.optional(Reader::bytes).map(|_| ())),
    ];
    for item in ["20", "3818", "38ff", "390100", "3a00010000", "3b0000000100000000"] {
        let bytes = hex::decode(item).unwrap();
        for (name, read) in reads {
            let found = read(&mut Reader::new(&bytes).unwrap());
            assert_eq!(found, Err(DecodeError::UnexpectedType), "{name} of {item}");
        }
        // The same element as the last one of an array, and an element after the last one.
        let of_array = [&[0x82, 0x07][..], &bytes].concat();
        let mut reader = Reader::new(&of_array).unwrap();
        assert_eq!(reader.array(2).and_then(|()| reader.u64()), Ok(7));
        assert_eq!(reader.bytes(), Err(DecodeError::UnexpectedType), "{item}");
        let mut reader = Reader::new(&bytes).unwrap();
        assert!(reader.raw().is_ok());
        assert_eq!(reader.u64(), Err(DecodeError::UnexpectedType), "{item}");
        assert_eq!(reader.raw(), Err(DecodeError::UnexpectedType), "{item}");
    }
}
