//! The leaves of the trees of a seal: whole records, or the cells of each column group.

use moteseal_core::digest::Digest;
use moteseal_core::record::{Framing, Sequence};
use moteseal_core::schema::{Cells, GroupLayout};
use moteseal_lanes::merkle;
use moteseal_seal::engine::Engine;
use moteseal_seal::tree;

/// What the leaves of the trees of a seal are hashes of.
#[derive(Clone, Debug)]
pub(crate) struct Leaves<'l> {
    /// The cells of each column group, ascending; `None` if the leaves of the only tree are hashes of
    /// whole records.
    groups: Option<Vec<Cells<'l>>>,
}

impl<'l> Leaves<'l> {
    /// Returns the leaves of the trees of all groups of `layout`, or of the tree of whole records if it
    /// is `None`.
    pub(crate) fn new(layout: Option<&'l GroupLayout>) -> Self {
        let cells = |layout: &'l GroupLayout| {
            layout.all().iter().map(|group| layout.cells(group)).collect()
        };
        Self { groups: layout.map(cells) }
    }

    pub(super) fn trees(&self) -> usize {
        self.groups.as_ref().map_or(1, Vec::len)
    }

    /// Returns the leaf hashes of consecutive records in one of the trees.
    pub(super) fn hashes(
        &self,
        engine: &impl Engine,
        tree: usize,
        framing: Framing,
        mut records: &[u8],
    ) -> Vec<Digest> {
        let cells = self.groups.as_ref().and_then(|groups| groups.get(tree));
        if let (None, Framing::Fixed(size)) = (cells, framing) {
            return merkle::leaves(engine, usize::from(size.get()), records);
        }
        let mut hashes = Vec::new();
        while let Some((record, rest)) = framing.split_first(records) {
            hashes.push(match cells {
                Some(cells) => tree::group_leaf(*cells, record),
                None => tree::leaf(record),
            });
            records = rest;
        }
        hashes
    }

    /// Returns the root of one of the trees, or of a subtree, of `n` places. `places` are those of the
    /// records, and `proof` is their multiproof.
    pub(super) fn root_of(
        &self,
        engine: &impl Engine,
        tree: usize,
        (n, framing): (u64, Framing),
        records: &[u8],
        mut places: impl Iterator<Item = Sequence>,
        proof: &[u8],
    ) -> Option<Digest> {
        if self.groups.is_none() {
            return engine.multiproof_root(n, framing, records, &mut places, proof).ok();
        }
        let leaves = self.hashes(engine, tree, framing, records);
        tree::multiproof_root(n, places.zip(leaves), proof).ok()
    }

    /// Returns the root of a seal, given the roots of its trees.
    pub(super) fn join(&self, roots: &[Digest]) -> Digest {
        match (&self.groups, roots) {
            (None, [root]) => *root,
            _ => tree::join_roots(roots),
        }
    }
}
