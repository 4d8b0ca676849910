//! Runs the fuzz targets of `fuzz/src` on the stable toolchain, with thousands of mutations of each
//! target's seeds. The mutations are the same in every run. `make fuzz-smoke` runs the same targets
//! under libFuzzer.
//!
//! This is a separate test program, because the targets are compiled as modules of its crate root.

#![allow(clippy::unwrap_used, dead_code, missing_docs, unreachable_pub)]

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use moteseal_core::cbor::{Reader, head, item_length};
use targets::{TARGETS, fixture};

// The targets import these names from their own crate.
pub(crate) use targets::*;

/// SplitMix64, which gives the same sequence on every platform.
struct Mutator(u64);

impl Mutator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Makes one to four changes to `seed`: sets a byte, flips a bit, removes or doubles a range,
    /// replaces a range by a range of `other`, or truncates.
    fn mutate(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            let end = at + self.below(32.min(bytes.len() - at));
            match self.below(6) {
                0 if !bytes.is_empty() => {
                    bytes[at] = [0, 1, 0x17, 0x18, 0x1b, 0x7f, 0x80, 0xf6, 0xff][self.below(9)];
                }
                1 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                2 => drop(bytes.drain(at..end)),
                3 => {
                    let range = bytes[at..end].to_vec();
                    bytes.splice(at..at, range);
                }
                4 => {
                    let from = self.below(other.len());
                    let length = self.below(32.min(other.len() - from));
                    bytes.splice(at..end, other[from..from + length].iter().copied());
                }
                _ => bytes.truncate(at),
            }
        }
        bytes
    }
}

#[test]
fn no_target_panics_on_a_few_thousand_mutations() {
    for (name, run, seeds) in TARGETS {
        let seeds = seeds();
        seeds.iter().for_each(|seed| run(seed));
        let mut mutator = Mutator(1);
        for round in 0..6000 {
            let (seed, other) = (mutator.below(seeds.len()), mutator.below(seeds.len()));
            let bytes = mutator.mutate(&seeds[seed], &seeds[other]);
            let panics = std::panic::catch_unwind(|| run(&bytes)).is_err();
            assert!(!panics, "{name} panics in round {round} on {}", hex::encode(&bytes));
        }
    }
}

/// Sets every byte of a bundle of each scheme to every other value, and truncates it at every byte.
#[test]
fn no_changed_byte_of_a_bundle_yields_a_row_that_was_not_sealed() {
    for history in fixture::sealed() {
        let bundle = fixture::stream(history, 2, 0xf);
        let whole = stream::rows(&bundle).len();
        assert_eq!(whole, 11, "the bundle itself verifies");
        let mut survivors = 0;
        for at in 0..bundle.len() {
            stream::run(&bundle[..at]);
            let mut changed = bundle.clone();
            for value in (0..=255).filter(|&value| value != bundle[at]) {
                changed[at] = value;
                stream::run(&changed);
                survivors += usize::from(!stream::rows(&changed).is_empty());
            }
        }
        // Only a change of the end item, which follows the last signature, can leave the bundle
        // valid.
        assert!(survivors <= 2 * 255, "{survivors} changed bundles verify");
    }
}

/// A CBOR item, parsed as deeply as the structure of a stream requires.
#[derive(Clone)]
enum Node {
    /// The encoding of an item without elements.
    Leaf(Vec<u8>),
    /// An array.
    Array(Vec<Node>),
    /// A byte string that consists of pieces of equal size: digests or records.
    Pieces(Vec<Vec<u8>>),
}

impl Node {
    /// Parses the first node of `bytes`. Returns it and the remaining bytes. `piece` is the size of
    /// the pieces of a byte string, if it has any.
    fn parse(bytes: &[u8], piece: Option<usize>) -> (Self, &[u8]) {
        let length = item_length(bytes).unwrap();
        let (item, rest) = bytes.split_at(length);
        let mut reader = Reader::new(item).unwrap();
        if reader.at_array() {
            let count = reader.array_any().unwrap();
            let mut inner = reader.rest();
            let mut elements = Vec::new();
            for at in 0..count {
                let is_part = count == 14;
                let size =
                    (is_part && at == 11).then_some(32).or((is_part && at == 12).then_some(4));
                let (element, tail) = Self::parse(inner, size);
                elements.push(element);
                inner = tail;
            }
            return (Self::Array(elements), rest);
        }
        let node = match piece {
            Some(size) => {
                Self::Pieces(reader.bytes().unwrap().chunks(size).map(<[u8]>::to_vec).collect())
            }
            None => Self::Leaf(item.to_vec()),
        };
        (node, rest)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Leaf(bytes) => out.extend(bytes),
            Self::Array(elements) => {
                push_head(out, 4, elements.len());
                elements.iter().for_each(|element| element.encode(out));
            }
            Self::Pieces(pieces) => {
                push_head(out, 2, pieces.iter().map(Vec::len).sum());
                pieces.iter().for_each(|piece| out.extend(piece));
            }
        }
    }

    /// Calls `each` with every variant of this node in which one element, at any depth, is removed,
    /// doubled, or swapped with another.
    fn variants(&self, each: &mut dyn FnMut(Self)) {
        match self {
            Self::Leaf(_) => {}
            Self::Pieces(pieces) => rearranged(pieces, &mut |pieces| each(Self::Pieces(pieces))),
            Self::Array(elements) => {
                rearranged(elements, &mut |elements| each(Self::Array(elements)));
                for (at, element) in elements.iter().enumerate() {
                    element.variants(&mut |variant| {
                        let mut elements = elements.clone();
                        elements[at] = variant;
                        each(Self::Array(elements));
                    });
                }
            }
        }
    }
}

fn push_head(out: &mut Vec<u8>, major: u8, argument: usize) {
    let (head, length) = head(major, argument as u64);
    out.extend(&head[..length]);
}

fn rearranged<T: Clone>(elements: &[T], each: &mut dyn FnMut(Vec<T>)) {
    for at in 0..elements.len() {
        let mut removed = elements.to_vec();
        removed.remove(at);
        each(removed);
        let mut doubled = elements.to_vec();
        doubled.insert(at, elements[at].clone());
        each(doubled);
        for with in at + 1..elements.len() {
            let mut swapped = elements.to_vec();
            swapped.swap(at, with);
            each(swapped);
        }
    }
}

/// Removes, doubles and swaps every element of the CBOR tree, every item, every digest and every
/// record.
#[test]
fn no_rearranged_stream_yields_a_row_that_was_not_sealed() {
    for history in fixture::sealed() {
        let bytes = fixture::stream(history, 0, 0xe);
        let (mut rest, mut items) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let (item, tail) = Node::parse(rest, None);
            items.push(item);
            rest = tail;
        }
        let encode = |node: &Node| {
            let Node::Array(items) = node else { unreachable!("variants keep the kind") };
            let mut out = Vec::new();
            items.iter().for_each(|item| item.encode(&mut out));
            out
        };
        let whole = Node::Array(items);
        assert_eq!(encode(&whole), bytes);
        let sealed = stream::rows(&bytes);
        let mut variants = 0;
        whole.variants(&mut |variant| {
            let changed = encode(&variant);
            stream::run(&changed);
            let rows = stream::rows(&changed);
            assert!(
                rows.is_empty() || rows == sealed,
                "only bytes after the signature can change: {}",
                hex::encode(&changed)
            );
            variants += 1;
        });
        assert!(variants > 400, "{variants} variants");
    }
}

#[test]
fn the_seeds_yield_their_stated_numbers_of_rows() {
    for history in fixture::sealed() {
        assert_eq!(stream::rows(&fixture::stream(history, 0, 0xf)).len(), 9 + 10 + 11);
        assert_eq!(stream::rows(&fixture::stream(history, 1, 0)).len(), 0);
    }
    assert_eq!(stream::rows(&fixture::single_events(&fixture::sealed()[1][1])).len(), 3);
}
