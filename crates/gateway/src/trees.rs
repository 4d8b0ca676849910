//! The dropped leaves of the trees of one seal: of one tree over its records, or of one tree for each
//! column group (spec/groups.md, section 4). All trees have the same kept leaves.

use std::hash::{Hash, Hasher};

use moteseal_core::digest::Digest;
use moteseal_core::record::Sequence;
use moteseal_core::schema::GroupLayout;
use moteseal_seal::tree;

use crate::pruned::Pruned;

/// The roots that represent the leaves of a seal that are not kept, in each of its trees.
#[derive(Clone, Debug)]
pub(crate) struct Trees {
    /// The cells of each column group; `None` if the leaves are those of whole records.
    layout: Option<Box<GroupLayout>>,
    /// The roots of each tree, in ascending order of the groups.
    pruned: Vec<Pruned>,
}

/// The layout follows from the schema, which the seal states.
impl Hash for Trees {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.pruned.hash(state);
    }
}

impl Trees {
    /// Creates the trees of a seal without leaves.
    pub(crate) fn new(layout: Option<&GroupLayout>) -> Self {
        let count = layout.map_or(1, |layout| layout.all().len());
        Self {
            layout: layout.map(|layout| Box::new(*layout)),
            pruned: vec![Pruned::default(); count],
        }
    }

    /// Drops the leaves of a record that was kept or has just arrived.
    pub(crate) fn drop_record(&mut self, seq: Sequence, record: &[u8]) {
        match (&self.layout, &mut self.pruned[..]) {
            (Some(layout), trees) => {
                for (group, tree) in layout.all().iter().zip(trees) {
                    tree.drop_leaf(seq, tree::group_leaf(layout.cells(group), record));
                }
            }
            (None, trees) => {
                trees.iter_mut().for_each(|tree| tree.drop_leaf(seq, tree::leaf(record)));
            }
        }
    }

    /// Returns the only tree; `None` if the seal has column groups.
    pub(crate) fn only(&mut self) -> Option<&mut Pruned> {
        if self.layout.is_none() { self.pruned.first_mut() } else { None }
    }

    /// Returns the number of trees.
    pub(crate) const fn count(&self) -> usize {
        self.pruned.len()
    }

    /// Returns the number of stored roots of all trees.
    pub(crate) fn roots(&self) -> usize {
        self.pruned.iter().map(Pruned::len).sum()
    }

    /// Returns the digests of a part with the kept leaves of trees with `n` leaves each: the compact
    /// multiproofs of all trees, or the root of the seal if no leaf is kept. `kept` must be ascending.
    /// Returns `None` if the stored roots do not cover exactly the leaves that are not in `kept`.
    pub(crate) fn digests(&self, n: u64, kept: &[Sequence]) -> Option<Vec<u8>> {
        let mut digests = Vec::new();
        for tree in &self.pruned {
            digests.extend(tree.multiproof(n, kept.iter().copied())?);
        }
        if self.layout.is_some() && kept.is_empty() && n > 0 {
            let roots: Vec<Digest> =
                digests.as_chunks::<32>().0.iter().map(|root| Digest(*root)).collect();
            return Some(tree::join_roots(&roots).0.to_vec());
        }
        Some(digests)
    }
}
