//! The few hashing loops that dominate a verifier's time, behind one trait, so that a host can run several lanes at once
//! (crate `moteseal-lanes`) and a mote one. Every implementation gives the same bytes as [`Scalar`].

use crate::digest::Digest;
use crate::level::{Counters, Salt, SipKey};
use crate::seal::tree;

/// Hashing loops over many independent inputs. The provided methods are the reference.
pub trait Engine {
    /// The levels of events `first, first + 1, ...`, one a byte of `out`, in a group of `levels` levels.
    fn levels(&self, salt: &Salt, levels: u8, first: u64, out: &mut [u8]) {
        let key = SipKey::new(salt);
        for (seq, level) in (first..).zip(out) {
            *level = key.level(seq, levels).0;
        }
    }

    /// The counts of `level(0) .. level(n - 1)`.
    fn counters(&self, salt: &Salt, levels: u8, n: u32) -> Counters {
        Counters::of(salt, levels, n)
    }

    /// RFC 9162 leaf hashes of the records of `size` bytes (at least 1) in `records`, as many as `out` holds.
    fn leaves(&self, size: usize, records: &[u8], out: &mut [Digest]) {
        for (record, leaf) in records.chunks_exact(size).zip(out) {
            *leaf = tree::leaf(record);
        }
    }

    /// RFC 9162 node hashes of neighbouring pairs: `children` holds twice as many as `out`.
    fn nodes(&self, children: &[Digest], out: &mut [Digest]) {
        for (pair, node) in children.chunks_exact(2).zip(out) {
            *node = tree::node(&pair[0], &pair[1]);
        }
    }
}

/// One lane: the reference, and what a mote runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scalar;

impl Engine for Scalar {}
