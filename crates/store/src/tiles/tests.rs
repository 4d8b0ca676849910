//! Tests the layout of trees: the proof of any selection, read from a stored tree, equals the proof
//! computed from the complete tree.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;

use moteseal_lanes::Host;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const LEVELS: u8 = 12;

struct Grown {
    leaves: Vec<Digest>,
    framing: Framing,
    frames: Vec<Vec<u8>>,
    pruned: Pruned,
}

impl Grown {
    /// Makes a tree of `n` records that keeps only the levels from `from` on, with chunks of
    /// `2^chunk_bits` places.
    fn new(n: u64, salt: [u8; 16], from: u8, framing: Framing, chunk_bits: u32) -> Self {
        let record = |seq: u64| match framing {
            Framing::Fixed(_) => Digest::of(&[&seq.to_be_bytes()]).0[..3].to_vec(),
            Framing::Prefixed => vec![7; usize::try_from(seq % 5).unwrap()],
        };
        let records: Vec<Vec<u8>> = (0..n).map(record).collect();
        let leaves = records.iter().map(|record| tree::leaf(record)).collect();
        let framed = |record: Vec<u8>| match framing {
            Framing::Fixed(_) => record,
            Framing::Prefixed => [&[0, u8::try_from(record.len()).unwrap()][..], &record].concat(),
        };
        let kept = (u32::MAX << from) & ((1 << LEVELS) - 1);
        let pruned = Pruned { salt: Salt(salt), levels: LEVELS, kept, siblings: 0, chunk_bits };
        Self { leaves, framing, frames: records.into_iter().map(framed).collect(), pruned }
    }

    fn level(&self, seq: u64) -> u8 {
        self.pruned.salt.level(Sequence(seq), LEVELS).0
    }

    fn at(&self, mask: u32) -> Vec<Sequence> {
        (0..self.leaves.len() as u64)
            .filter(|&seq| mask >> self.level(seq) & 1 == 1)
            .map(Sequence)
            .collect()
    }

    /// Returns the expected result: the records and their proof, computed from the complete tree.
    fn part(&self, selected: &[Sequence]) -> TreePart {
        let proof = merkle::multiproof(&Host::detect(), &self.leaves, selected.iter().copied());
        TreePart {
            records: selected
                .iter()
                .flat_map(|seq| self.frames[usize::try_from(seq.0).unwrap()].clone())
                .collect(),
            siblings: proof.iter().flat_map(|digest| digest.0).collect(),
        }
    }

    /// Returns the layout of the tree's body, and the body.
    fn lay_out(&self) -> (Geometry, Vec<u8>) {
        let kept = self.part(&self.at(self.pruned.kept));
        let pruned = Some(Pruned { siblings: kept.siblings.len() as u64 / 32, ..self.pruned });
        let (n, framing, events) =
            (self.leaves.len() as u64, self.framing, kept.records.len() as u64);
        let geometry = Geometry { n, framing, events, trees: 1, pruned };
        let (body, root) = lay_out_pruned(
            &Host::detect(),
            &Leaves::new(None),
            geometry,
            &kept.records,
            &kept.siblings,
        )
        .unwrap();
        assert_eq!(root, merkle::root(&Host::detect(), &self.leaves));
        assert_eq!(body.len() as u64, geometry.body_length());
        (geometry, body)
    }
}

fn read_part(
    geometry: Geometry,
    body: &[u8],
    selected: &[Sequence],
) -> Result<(TreePart, u64), ()> {
    let read = RefCell::new(0);
    let mut reader = |range: Range<u64>| {
        *read.borrow_mut() += range.end - range.start;
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        body.get(range).map(<[u8]>::to_vec).ok_or(())
    };
    let part = part(&Host::detect(), &Leaves::new(None), geometry, selected, &mut reader, || ())?;
    let read = *read.borrow();
    Ok((part, read))
}

fn framings() -> impl Strategy<Value = Framing> {
    select(vec![Framing::fixed(3).unwrap(), Framing::Prefixed])
}

proptest! {
    /// The chunks are so small that most of them have no kept record, and that subtrees without a
    /// kept record span many chunks and whole tiles.
    #[test]
    fn a_selection_from_a_pruned_tree_equals_that_from_the_complete_tree(
        n in 1_u64..3000, salt: [u8; 16], from in 1..LEVELS, framing in framings(),
        chunk_bits in 0_u32..6,
        mask: u32, chosen in vec(any::<u32>(), 0..20),
    ) {
        let grown = Grown::new(n, salt, from, framing, chunk_bits);
        let kept = grown.at(grown.pruned.kept);
        let (geometry, body) = grown.lay_out();
        prop_assume!((kept.len() as u64) < n);
        let mut some: Vec<Sequence> = chosen
            .iter()
            .filter_map(|&i| kept.get(i as usize % kept.len().max(1)).copied())
            .collect();
        some.sort_unstable();
        some.dedup();
        for selected in [some, grown.at(grown.pruned.kept & mask), kept, vec![]] {
            let part = read_part(geometry, &body, &selected).unwrap().0;
            prop_assert!(part == grown.part(&selected), "{selected:?}");
        }
    }

    /// A read of damaged bytes may return other bytes or an error, but never panics.
    #[test]
    fn a_damaged_body_does_not_panic(
        n in 1_u64..600, salt: [u8; 16], from in 1..4_u8, framing in framings(),
        chunk_bits in 0_u32..6,
        at: prop::sample::Index, xor in 1_u8.., chosen: prop::sample::Index,
    ) {
        let grown = Grown::new(n, salt, from, framing, chunk_bits);
        let kept = grown.at(grown.pruned.kept);
        prop_assume!(!kept.is_empty() && (kept.len() as u64) < n);
        let (geometry, mut body) = grown.lay_out();
        *at.get_mut(&mut body) ^= xor;
        let _ = read_part(geometry, &body, &[*chosen.get(&kept)]);
        let _ = read_part(geometry, &body, &kept);
    }

    #[test]
    fn rejects_a_wrong_number_of_records_or_digests(
        n in 2_u64..600, salt: [u8; 16], from in 1..4_u8, framing in framings(),
        chunk_bits in 0_u32..6,
    ) {
        let grown = Grown::new(n, salt, from, framing, chunk_bits);
        let kept = grown.at(grown.pruned.kept);
        prop_assume!(!kept.is_empty() && (kept.len() as u64) < n);
        let part = grown.part(&kept);
        let (geometry, _) = grown.lay_out();
        let laid_out = |records: &[u8], siblings: &[u8]| {
            lay_out_pruned(&Host::detect(), &Leaves::new(None), geometry, records, siblings).is_some()
        };
        prop_assert!(laid_out(&part.records, &part.siblings));
        prop_assert!(!laid_out(&part.records, &part.siblings[32..]));
        prop_assert!(!laid_out(&part.records, &[&part.siblings[..], &[0; 32]].concat()));
        prop_assert!(!laid_out(&part.records[..part.records.len() - 1], &part.siblings));
        prop_assert!(!laid_out(&[&part.records[..], &[0; 3]].concat(), &part.siblings));
    }
}

#[test]
fn reads_a_small_fraction_of_a_large_pruned_tree_for_a_small_sample() {
    let (n, from) = (1 << 20, 3);
    let grown =
        Grown::new(n, [5; 16], from, Framing::fixed(3).unwrap(), WIDTH_BITS + u32::from(from));
    let (geometry, body) = grown.lay_out();
    let kept = grown.at(grown.pruned.kept);
    let selected: Vec<Sequence> = kept.iter().copied().step_by(kept.len() / 8).collect();
    let (part, read) = read_part(geometry, &body, &selected).unwrap();
    assert!(part == grown.part(&selected));
    assert!(read * 16 < body.len() as u64, "{read} of {} bytes", body.len());
}
