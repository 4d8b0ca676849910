//! Encodings of several values as one text that no other values have: each value follows its length,
//! which has four bytes, big-endian.

/// Appends a value and its length.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn put(out: &mut Vec<u8>, value: &[u8]) {
    put_number(out, value.len());
    out.extend(value);
}

/// Appends a number, such as a count or an index, in four bytes, big-endian.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn put_number(out: &mut Vec<u8>, number: usize) {
    debug_assert!(u32::try_from(number).is_ok(), "messages are shorter than 4 GiB");
    out.extend((number as u32).to_be_bytes());
}
