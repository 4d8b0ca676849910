//! The two hash functions of a chain (spec/broadcast.md, section 2). `h` hashes a leaf; the leaf's
//! tag is the start of the result. `d` hashes a block. Both are SHA-256 over a 64-byte prefix,
//! which names the chain and the function, and then the data. The SHA-256 state after the prefix is
//! computed once per chain, so a short message costs one compression.

use crate::{ChainId, ChainRef, KeyId};
use moteseal_core::digest::{self, INITIAL, compress256, state_bytes, tag};

const TAG: [u8; 24] = tag(b"moteseal/cast/1");

/// The hash function that a prefix names.
#[derive(Clone, Copy)]
enum Role {
    Leaf = 0,
    Block = 1,
}

fn prefix(id: &ChainId, key: KeyId, role: Role) -> [u8; 64] {
    let mut prefix = [0; 64];
    prefix[..24].copy_from_slice(&TAG);
    prefix[24..32].copy_from_slice(&id.network.0);
    prefix[32..40].copy_from_slice(&id.sender.0);
    prefix[40..48].copy_from_slice(&key.0);
    prefix[48..56].copy_from_slice(&id.number.0.to_be_bytes());
    prefix[56] = role as u8;
    prefix
}

pub(super) fn reference(id: &ChainId, key: KeyId) -> ChainRef {
    ChainRef(digest::short(&[&prefix(id, key, Role::Leaf)]))
}

/// The SHA-256 states after both prefixes of a chain: 64 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefixes {
    leaf: [u32; 8],
    block: [u32; 8],
}

impl Prefixes {
    pub(super) fn new(id: &ChainId, key: KeyId) -> Self {
        let state = |role| {
            let mut state = INITIAL;
            compress256(&mut state, &[prefix(id, key, role)]);
            state
        };
        Self { leaf: state(Role::Leaf), block: state(Role::Block) }
    }

    /// Returns the hash `h` of a leaf.
    #[inline]
    pub(super) fn leaf(&self, leaf: &[u8]) -> [u8; 32] {
        finish(self.leaf, leaf, leaf.len())
    }

    /// Returns the initial state of the hash `d` of a block. The caller adds the block's last leaf
    /// first, then the digests of its other leaves.
    #[inline]
    pub(super) const fn block(&self) -> Running {
        Running { state: self.block, length: 0, buffer: [0; 64] }
    }

    /// Returns the hash `d` of a block of one leaf.
    #[inline]
    pub(super) fn alone(&self, leaf: &[u8]) -> [u8; 32] {
        finish(self.block, leaf, leaf.len())
    }
}

/// Returns the digest of a prefix and `length` bytes. `state` already includes the prefix and all
/// bytes except the last ones, which are `rest`.
#[inline]
fn finish(mut state: [u32; 8], rest: &[u8], length: usize) -> [u8; 32] {
    let (blocks, rest) = rest.as_chunks::<64>();
    if !blocks.is_empty() {
        compress256(&mut state, blocks);
    }
    let mut last = [[0; 64]; 2];
    let bytes = last.as_flattened_mut();
    bytes[..rest.len()].copy_from_slice(rest);
    bytes[rest.len()] = 0x80;
    let blocks = if rest.len() < 56 { 1 } else { 2 };
    bytes[blocks * 64 - 8..blocks * 64].copy_from_slice(&((length as u64 + 64) * 8).to_be_bytes());
    compress256(&mut state, &last[..blocks]);
    state_bytes(&state)
}

/// An incremental hash of a block: 104 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    state: [u32; 8],
    length: usize,
    buffer: [u8; 64],
}

impl Running {
    #[inline]
    pub(super) fn update(&mut self, bytes: &[u8]) {
        let at = self.length % 64;
        self.length += bytes.len();
        if at + bytes.len() < 64 {
            self.buffer[at..at + bytes.len()].copy_from_slice(bytes);
            return;
        }
        let (head, rest) = bytes.split_at(64 - at);
        self.buffer[at..].copy_from_slice(head);
        compress256(&mut self.state, &[self.buffer]);
        let (blocks, rest) = rest.as_chunks::<64>();
        if !blocks.is_empty() {
            compress256(&mut self.state, blocks);
        }
        self.buffer[..rest.len()].copy_from_slice(rest);
    }

    #[inline]
    pub(super) fn finish(&self) -> [u8; 32] {
        finish(self.state, &self.buffer[..self.length % 64], self.length)
    }
}
