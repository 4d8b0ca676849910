//! Checksums of values, and the keys of partitions.
//!
//! Cassandra verifies the checksums of its files, but not the path between its memory, the disk and
//! this process, and an operator can change a row. Every value is therefore followed by the xxHash64
//! of its key and itself. A value that was changed, or that is under another key, is damaged. The
//! checksum finds accidents; clients detect a malicious store by the devices' signatures.

use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_store::SealKey;
use xxhash_rust::xxh64::Xxh64;

/// One partition has the seals of this many consecutive indices of a device: about 3 MiB if each
/// has the maximum of [`INLINE`].
const SEALS: u32 = 256;
/// One partition has the manifests of this many consecutive epochs.
const EPOCHS: u64 = 64;
/// One partition has the places of this many urgent events.
const PLACES: u64 = 1024;
/// A body or manifest up to this length is in the same row as its head, in bytes.
pub(crate) const INLINE: usize = 8 << 10;
/// The length of a piece of a longer one, in bytes. The last piece is shorter.
pub(crate) const PIECE: u64 = 64 << 10;
/// One partition has this many pieces: 16 MiB.
const PIECES: u64 = 256;

pub(crate) fn sum(key: &[&[u8]], value: &[u8]) -> [u8; 8] {
    let mut hash = Xxh64::new(0);
    for part in key {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(value);
    hash.digest().to_be_bytes()
}

/// Returns a value with its checksum.
pub(crate) fn wrap(key: &[&[u8]], value: &[&[u8]]) -> Vec<u8> {
    let length: usize = value.iter().map(|part| part.len()).sum();
    let mut wrapped = Vec::with_capacity(length + 8);
    value.iter().for_each(|part| wrapped.extend_from_slice(part));
    let sum = sum(key, &wrapped);
    wrapped.extend_from_slice(&sum);
    wrapped
}

/// Returns the value, or `None` if it does not match its checksum.
pub(crate) fn unwrap(key: &[&[u8]], mut wrapped: Vec<u8>) -> Option<Vec<u8>> {
    let at = wrapped.len().checked_sub(8)?;
    if sum(key, &wrapped[..at]) != wrapped[at..] {
        return None;
    }
    wrapped.truncate(at);
    Some(wrapped)
}

/// Returns the epoch in a wrapped value, for comparisons without reading the seal.
pub(crate) fn epoch(key: &SealKey, wrapped: Vec<u8>) -> Option<EpochNumber> {
    let bytes = unwrap(&[b"epoch", &key.to_bytes()], wrapped)?;
    Some(EpochNumber(u64::from_be_bytes(bytes.try_into().ok()?)))
}

/// Returns the span of an index: the number of its partition within the device.
pub(crate) const fn span(index: SealIndex) -> i32 {
    // The quotient is below 2^24.
    (index.0 / SEALS).cast_signed()
}

/// Returns the lowest index of a span.
pub(crate) const fn first_index(span: i32) -> SealIndex {
    SealIndex(span.cast_unsigned() * SEALS)
}

/// Returns the span of an epoch, in big-endian order.
pub(crate) const fn epoch_span(epoch: EpochNumber) -> u64 {
    epoch.0 / EPOCHS
}

/// Returns the bucket of the place of an urgent event. Places start at 1.
#[allow(clippy::cast_possible_wrap)]
pub(crate) const fn bucket(number: u64) -> i64 {
    (number.saturating_sub(1) / PLACES) as i64
}

/// Returns the first number of a bucket.
pub(crate) const fn first_number(bucket: u64) -> u64 {
    bucket.saturating_mul(PLACES).saturating_add(1)
}

/// Returns the part and the number of the piece that contains a byte of a body.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
pub(crate) const fn piece(at: u64) -> (i32, i32) {
    // A body has at most 2^43 bytes, because its records have 16-bit lengths and 32-bit numbers.
    ((at / PIECE / PIECES) as i32, (at / PIECE) as i32)
}

/// Returns the shard of a device in the listings: its first byte.
pub(crate) fn shard(device: DeviceId) -> i16 {
    i16::from(device.0[0])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_changed_value_is_found() {
        let wrapped = wrap(&[b"a", b"bc"], &[b"val", b"ue"]);
        assert_eq!(unwrap(&[b"a", b"bc"], wrapped.clone()).unwrap(), b"value");
        assert_eq!(unwrap(&[b"ab", b"c"], wrapped.clone()), None);
        for at in 0..wrapped.len() {
            let mut changed = wrapped.clone();
            changed[at] ^= 1;
            assert_eq!(unwrap(&[b"a", b"bc"], changed), None);
            assert_eq!(unwrap(&[b"a", b"bc"], wrapped[..at].to_vec()), None);
        }
    }

    #[test]
    fn spans_cover_every_index() {
        assert_eq!((span(SealIndex(255)), span(SealIndex(256))), (0, 1));
        assert_eq!(first_index(span(SealIndex(u32::MAX))), SealIndex(u32::MAX - 255));
        assert_eq!((bucket(1), bucket(1024), bucket(1025)), (0, 0, 1));
        assert_eq!((first_number(0), first_number(1)), (1, 1025));
        assert_eq!(piece(PIECE * PIECES), (1, 256));
    }
}
