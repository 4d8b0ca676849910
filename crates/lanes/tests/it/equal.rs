//! Tests that all loops that this processor can run return the same results as the scalar loops.

use moteseal_core::record::{Framing, MAX_LEVELS};
use moteseal_core::schema::{Field, GroupLayout, Groups, MAX_SCHEMA, Schema};
use moteseal_core::{DeviceId, Digest, GroupId, SealIndex, Sequence};
use moteseal_lanes::{Host, merkle};
use moteseal_seal::engine::{Engine, Scalar};
use moteseal_seal::level::{Counters, Salt};
use moteseal_seal::star::{GroupDigests, Served};
use moteseal_seal::tree::{self, Tree};
use moteseal_sum::engine::KeyEngine;
use moteseal_sum::query::QueryId;
use moteseal_sum::sies::{KeyLanes, KeyTotals, LANES, Master, Slot};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn digests(n: usize, seed: u8) -> Vec<Digest> {
    (0..n).map(|i| Digest::of(&[&[seed], &(i as u64).to_be_bytes()])).collect()
}

/// Returns every set of loops that this processor can run.
fn hosts() -> Vec<Host> {
    let hosts = Host::all();
    assert_eq!(hosts[0].name(), Host::detect().name());
    hosts
}

proptest! {
    #[test]
    fn levels(salt: [u8; 16], levels in 1_u8..=32, first: u32, n in 0_usize..200) {
        let mut expected = vec![0; n];
        Scalar.levels(&Salt(salt), levels, first.into(), &mut expected);
        for host in hosts() {
            let mut out = vec![0xff; n];
            host.levels(&Salt(salt), levels, first.into(), &mut out);
            prop_assert_eq!(&out, &expected, "{}", host.name());
        }
    }

    #[test]
    fn counters(salt: [u8; 16], levels in 1_u8..=32, n in 0_u32..20_000) {
        for host in hosts() {
            let expected = Scalar.counters(&Salt(salt), levels, n);
            prop_assert_eq!(host.counters(&Salt(salt), levels, n), expected, "{}", host.name());
        }
    }

    #[test]
    fn leaves(size in prop_oneof![Just(4_usize), 1_usize..200], n in 0_usize..70, seed: u8) {
        let records: Vec<u8> = (0..size * n).map(|i| (i * 131 + i / 251) as u8 ^ seed).collect();
        let mut expected = vec![Digest::NULL; n];
        Scalar.leaves(size, &records, &mut expected);
        for host in hosts() {
            let mut out = vec![Digest::NULL; n];
            host.leaves(size, &records, &mut out);
            prop_assert_eq!(&out, &expected, "{}", host.name());
        }
    }

    #[test]
    fn block_digests(
        device: [u8; 8],
        index: u32,
        lengths in vec(prop_oneof![Just(0_usize), 0_usize..300, 0_usize..5000], 0..=32),
    ) {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| (i * 131 + i / 251).to_le_bytes()[0]).collect();
        let blocks: Vec<&[u8]> = lengths.iter().map(|&length| &bytes[5000 - length..]).collect();
        let mut expected = vec![Digest::NULL; blocks.len()];
        Scalar.block_digests(DeviceId(device), SealIndex(index), &blocks, &mut expected);
        for host in hosts() {
            let mut out = vec![Digest([0xff; 32]); blocks.len()];
            host.block_digests(DeviceId(device), SealIndex(index), &blocks, &mut out);
            prop_assert_eq!(&out, &expected, "{}", host.name());
        }
    }

    #[test]
    fn grouped_digests(
        device: [u8; 8],
        index: u32,
        shown in 0..8_u8,
        lengths in vec(prop_oneof![Just(1_u32), 1_u32..30, 1_u32..600], 0..=9),
    ) {
        let fields = ["a::u8", "b::u16!@1", "c::u32!@1", "d::u64!@2", "e::u8", "f::u16!@3"];
        let fields = fields.map(|field| Field::parse(field).unwrap());
        let mut buffer = [0; MAX_SCHEMA];
        let schema = Schema::encode(&fields, &mut buffer).unwrap();
        let shown = Groups::from_bits(shown << 1 | 1);
        let layout = GroupLayout::new(&schema, shown).unwrap();
        let mut buffer = [0; MAX_SCHEMA];
        let size = schema.project(shown, &mut buffer).unwrap().record_size().unwrap();
        let bytes: Vec<u8> = (0..40_000_u32).map(|i| (i * 131 + i / 251).to_le_bytes()[0]).collect();
        let mut counters = Counters::new(10);
        let mut star = Served {
            device: DeviceId(device),
            index: SealIndex(index),
            counters,
            surviving: 0,
            mask: 0,
            evidence: &[],
            blocks: [&[]; MAX_LEVELS],
            digests: [Digest::NULL; MAX_LEVELS],
            groups: GroupDigests::default(),
            root: Digest::NULL,
        };
        for (level, count) in lengths.iter().enumerate() {
            counters.as_mut_slice()[level] = *count;
            star.mask |= 1 << level;
            star.blocks[level] = &bytes[level..level + size * *count as usize];
        }
        star.counters = counters;
        let hidden: Vec<u8> = digests(40, 7).iter().flat_map(|digest| digest.0).collect();
        let framing = Framing::fixed(size).unwrap();
        let mut expected = star.clone();
        Scalar.grouped_digests(&layout, framing, &hidden, &mut expected);
        for host in hosts() {
            let mut found = star.clone();
            host.grouped_digests(&layout, framing, &hidden, &mut found);
            prop_assert_eq!(found.digests, expected.digests, "{}", host.name());
            prop_assert_eq!(&found.groups, &expected.groups, "{}", host.name());
        }
        prop_assert_eq!(expected.groups.as_slice().len(), lengths.len() * layout.shown().len());
    }

    #[test]
    fn keys_of_private_sums(
        present in vec(any::<u16>(), 0..9),
        spare in 0_usize..2,
        query: [u8; 16],
        slot: u8,
        epoch: u64,
    ) {
        let master = Master::new([7; 32]);
        let mut keys = vec![KeyLanes::default(); present.len() + spare];
        for (i, lanes) in keys.iter_mut().enumerate() {
            for lane in 0..LANES {
                let device = DeviceId((i * LANES + lane).to_be_bytes());
                let source = master.source(GroupId([1; 8]), device, 0);
                lanes.set(lane, &source.for_query(QueryId(query)));
            }
        }
        let total = |engine: &dyn KeyEngine| {
            let mut totals = KeyTotals::default();
            // Call it twice, so that the second call adds to existing totals.
            engine.sum_keys(&keys, &present, Slot(slot), epoch, &mut totals);
            engine.sum_keys(&keys, &present, Slot(slot), epoch, &mut totals);
            (*totals.words(), totals.sources())
        };
        let expected = total(&moteseal_sum::engine::Scalar);
        for host in hosts() {
            prop_assert_eq!(total(&host), expected, "{}", host.name());
        }
    }

    #[test]
    fn nodes(n in 0_usize..70, seed: u8) {
        let children = digests(2 * n, seed);
        let mut expected = vec![Digest::NULL; n];
        Scalar.nodes(&children, &mut expected);
        for host in hosts() {
            let mut out = vec![Digest::NULL; n];
            host.nodes(&children, &mut out);
            prop_assert_eq!(&out, &expected, "{}", host.name());
        }
    }

    #[test]
    fn extending_a_tree(portions in vec(0_usize..700, 0..4), size in 1_usize..40) {
        let length = size * portions.iter().sum::<usize>();
        let records: Vec<u8> = (0..length).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut expected = Tree::<12>::new();
        for record in records.chunks_exact(size) {
            expected.push(record).unwrap();
        }
        for host in hosts() {
            let mut tree = Tree::<12>::new();
            let mut rest = &records[..];
            for portion in &portions {
                let (now, later) = rest.split_at(portion * size);
                tree.extend(&host, size, now).unwrap();
                rest = later;
            }
            prop_assert_eq!(tree.root(), expected.root(), "{}", host.name());
        }
    }

    #[test]
    fn multiproof_roots(
        n in 0_u64..600,
        selected in prop_oneof![btree_set(0_u64..600, 0..20), btree_set(0_u64..600, 0..500)],
        size in prop_oneof![Just(0_usize), 1_usize..12],
        cut in prop_oneof![Just(0_usize), 1_usize..70],
        surplus in prop_oneof![Just(0_usize), 1_usize..70],
    ) {
        // Size 0 means records of several lengths.
        let framing = Framing::fixed(size).unwrap_or(Framing::Prefixed);
        let record = |seq: u64| match size {
            0 => [&[0, (seq % 7) as u8][..], &[seq as u8; 7][..(seq % 7) as usize]].concat(),
            size => seq.to_be_bytes().repeat(2)[16 - size..].to_vec(),
        };
        let leaf = |seq: u64| tree::leaf(&record(seq)[if size == 0 { 2 } else { 0 }..]);
        let leaves: Vec<Digest> = (0..n).map(leaf).collect();
        let records: Vec<u8> = selected.iter().flat_map(|&seq| record(seq)).collect();
        let inside = selected.iter().copied().filter(|seq| *seq < n).map(Sequence);
        let proof = merkle::multiproof(&Scalar, &leaves, inside);
        let mut siblings: Vec<u8> = proof.iter().flat_map(|digest| digest.0).collect();
        siblings.truncate(siblings.len().saturating_sub(cut));
        siblings.extend(vec![7; surplus]);
        let positions = || selected.iter().copied().map(Sequence);
        let expected = Scalar.multiproof_root(n, framing, &records, &mut positions(), &siblings);
        if selected.last().is_none_or(|last| *last < n) && cut == 0 && surplus == 0 {
            prop_assert_eq!(expected, Ok(merkle::root(&Scalar, &leaves)));
        }
        for host in hosts() {
            let root = host.multiproof_root(n, framing, &records, &mut positions(), &siblings);
            // If there are several errors, the engines may report different ones.
            prop_assert_eq!(root.ok(), expected.ok(), "{}", host.name());
        }
    }

    #[test]
    fn a_multiproof_leads_to_the_root(n in 1_u64..900, selected in btree_set(0_u64..900, 0..60)) {
        let leaves = digests(usize::try_from(n).unwrap(), 0);
        let selected: Vec<Sequence> =
            selected.into_iter().filter(|seq| *seq < n).map(Sequence).collect();
        for host in hosts() {
            let proof = merkle::multiproof(&host, &leaves, selected.iter().copied());
            let siblings: Vec<u8> = proof.iter().flat_map(|digest| digest.0).collect();
            let known = selected.iter().map(|&seq| (seq, leaves[usize::try_from(seq.0).unwrap()]));
            let root = tree::multiproof_root(n, known, &siblings);
            prop_assert_eq!(root, Ok(merkle::root(&Scalar, &leaves)));
        }
    }

    #[test]
    fn a_path_leads_to_the_root(n in 1_usize..900, seq: prop::sample::Index) {
        let leaves = digests(n, 1);
        let seq = seq.index(n);
        let path = merkle::path(&Host::detect(), &leaves, Sequence(seq as u64));
        let siblings: Vec<u8> = path.iter().flat_map(|digest| digest.0).collect();
        let root = tree::path_root(leaves[seq], Sequence(seq as u64), n as u64, &siblings);
        prop_assert_eq!(root, Ok(merkle::root(&Scalar, &leaves)));
    }
}

#[test]
fn the_root_of_leaves_is_the_root_of_the_online_tree() {
    for n in [0, 1, 2, 3, 100, 1000] {
        let records: Vec<u8> = (0..4 * n).map(|i| i as u8).collect();
        let mut tree = Tree::<12>::new();
        tree.extend(&Scalar, 4, &records).unwrap();
        let host = Host::detect();
        assert_eq!(merkle::root(&host, &merkle::leaves(&host, 4, &records)), tree.root());
    }
}

/// Tests numbers of inputs just below, at and above the numbers that the loops process at a time,
/// and records whose length is close to a block boundary.
#[test]
fn every_length_around_the_boundaries() {
    let salt = Salt(*b"0123456789abcdef");
    let bytes: Vec<u8> = (0..50 * 130_u32).map(|i| (i * 131 + i / 251).to_le_bytes()[0]).collect();
    let children = digests(100, 9);
    for host in hosts() {
        for n in 0..=50 {
            let (mut expected, mut out) = (vec![Digest::NULL; n], vec![Digest::NULL; n]);
            for size in [1, 3, 4, 5, 8, 53, 54, 55, 56, 62, 63, 64, 117, 118, 119, 127, 128, 129] {
                Scalar.leaves(size, &bytes[..n * size], &mut expected);
                host.leaves(size, &bytes[..n * size], &mut out);
                assert_eq!(out, expected, "{} {n} leaves of {size}", host.name());
            }
            Scalar.nodes(&children[..2 * n], &mut expected);
            host.nodes(&children[..2 * n], &mut out);
            assert_eq!(out, expected, "{} {n} nodes", host.name());

            let (mut expected, mut out) = (vec![0; n], vec![0; n]);
            Scalar.levels(&salt, 16, u64::MAX - 1000, &mut expected);
            host.levels(&salt, 16, u64::MAX - 1000, &mut out);
            assert_eq!(out, expected, "{} {n} levels", host.name());
        }
        for n in (0..50).chain(2025..2050).chain(4060..4070).chain([65_535, 65_536, 1_000_003]) {
            assert_eq!(
                host.counters(&salt, 16, n),
                Scalar.counters(&salt, 16, n),
                "{} {n} counters",
                host.name()
            );
        }
        for length in 0..=400 {
            let blocks = [&bytes[..length], &bytes[..400 - length], &bytes[..64]];
            let (mut expected, mut out) = ([Digest::NULL; 3], [Digest::NULL; 3]);
            Scalar.block_digests(DeviceId([1; 8]), SealIndex(2), &blocks, &mut expected);
            host.block_digests(DeviceId([1; 8]), SealIndex(2), &blocks, &mut out);
            assert_eq!(out, expected, "{} a block of {length}", host.name());
        }
    }
}

/// The part of a star with any levels. The part may be invalid.
#[derive(Clone, Debug)]
struct AnyStar {
    device: [u8; 8],
    index: u32,
    counts: Vec<u32>,
    surviving: u32,
    mask: u32,
    lengths: Vec<usize>,
    evidence: usize,
}

fn any_star() -> impl Strategy<Value = AnyStar> {
    let lengths = vec(prop_oneof![4 => 0_usize..200, 2 => Just(0_usize), 1 => 0_usize..5000], 32);
    let counts = vec(any::<u32>(), 1..=32);
    let masks = (any::<u32>(), any::<u32>(), prop_oneof![Just(0_u32), Just(!0), any::<u32>()]);
    (any::<[u8; 8]>(), any::<u32>(), counts, masks, lengths, 0_usize..35).prop_map(
        |(device, index, counts, masks, lengths, evidence)| {
            let (surviving, shift, mask) = masks;
            AnyStar {
                device,
                index,
                counts,
                surviving,
                mask: mask << (shift % 32),
                lengths,
                evidence,
            }
        },
    )
}

proptest! {
    #[test]
    fn roots_of_many_stars(stars in vec(any_star(), 0..40)) {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| (i * 131 + i / 251).to_le_bytes()[0]).collect();
        let served = || stars.iter().map(|star| {
            let mut counters = Counters::new(u8::try_from(star.counts.len()).unwrap());
            counters.as_mut_slice().copy_from_slice(&star.counts);
            let is_here = |level: usize| star.mask >> level & 1 == 1 && level < star.counts.len();
            let block = |level: usize| {
                if is_here(level) { &bytes[5000 - star.lengths[level]..] } else { &[] }
            };
            Served {
                device: DeviceId(star.device),
                index: SealIndex(star.index),
                counters,
                surviving: star.surviving,
                mask: star.mask,
                evidence: &bytes[..32 * star.evidence],
                blocks: std::array::from_fn(block),
                digests: [Digest([0xff; 32]); MAX_LEVELS],
                groups: GroupDigests::default(),
                root: Digest([0xff; 32]),
            }
        }).collect::<Vec<_>>();
        let mut expected = served();
        Scalar.star_roots(&mut expected.iter_mut());
        for host in hosts() {
            let mut found = served();
            host.star_roots(&mut found.iter_mut());
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(&found.digests, &expected.digests, "{}", host.name());
                prop_assert_eq!(found.root, expected.root, "{}", host.name());
            }
        }
    }
}
