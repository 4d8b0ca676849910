//! The state from which the root of an open seal is computed.

use std::collections::BTreeMap;

use moteseal_core::digest::Digest;
use moteseal_core::record::{Level, MAX_LEVELS, Round, Scheme, SealIndex};
use moteseal_seal::star::RunningBlock;
use moteseal_seal::tree::{Tree, group_leaf, join_roots};
use moteseal_seal::{Statement, star};
use sha2::{Digest as _, Sha256};

use crate::seal::Profile;

/// The state from which a seal's root is computed.
#[derive(Clone)]
pub(super) enum Folded {
    /// The running digests of a star's levels, from the device's own round upwards.
    Star(BTreeMap<u8, Sha256>),
    /// The same for a star with column groups.
    Groups(BTreeMap<u8, RunningBlock>),
    /// The frontier of a tree over all events.
    Tree(Box<Tree<32>>),
    /// The same for the tree of each column group, in ascending order.
    Trees(Vec<Tree<32>>),
}

impl Folded {
    /// Creates the state of a seal without events.
    pub(super) fn new(profile: &Profile) -> Self {
        match profile.scheme {
            Scheme::Star if profile.groups.is_some() => Self::Groups(BTreeMap::new()),
            Scheme::Star => Self::Star(BTreeMap::new()),
            Scheme::Tree => match &profile.groups {
                Some(layout) => Self::Trees(layout.all().iter().map(|_| Tree::new()).collect()),
                None => Self::Tree(Box::default()),
            },
        }
    }

    /// Returns the scheme of the seal.
    pub(super) const fn scheme(&self) -> Scheme {
        match self {
            Self::Star(_) | Self::Groups(_) => Scheme::Star,
            Self::Tree(_) | Self::Trees(_) => Scheme::Tree,
        }
    }

    /// Adds an event of a level. `own_round` is the device's round after the event.
    pub(super) fn take(
        &mut self,
        profile: &Profile,
        (index, level, own_round): (SealIndex, Level, Round),
        record: &[u8],
    ) {
        let place = (profile.device, index, level);
        match self {
            Self::Star(running) => {
                running.retain(|level, _| *level >= own_round.0);
                if level.0 >= own_round.0 {
                    let start = || Sha256::new_with_prefix(star::header(place.0, place.1, place.2));
                    let digest = running.entry(level.0).or_insert_with(start);
                    profile.framing.frame(record, |bytes| digest.update(bytes));
                }
            }
            Self::Groups(running) => {
                running.retain(|level, _| *level >= own_round.0);
                if let Some(layout) = profile.groups.as_deref()
                    && level.0 >= own_round.0
                {
                    let start = || RunningBlock::new(place, layout);
                    running.entry(level.0).or_insert_with(start).push(record);
                }
            }
            Self::Tree(tree) => {
                let pushed = tree.push(record);
                debug_assert!(pushed.is_ok(), "a seal has fewer events than a tree has room for");
            }
            Self::Trees(trees) => {
                let Some(layout) = profile.groups.as_deref() else { return };
                for (group, tree) in layout.all().iter().zip(trees) {
                    let pushed = tree.push_leaf(group_leaf(layout.cells(group), record));
                    debug_assert!(
                        pushed.is_ok(),
                        "a seal has fewer events than a tree has room for"
                    );
                }
            }
        }
    }

    /// Returns the root. The statement must be complete except for the digests of other objects.
    pub(super) fn root(&self, statement: &Statement) -> Digest {
        let of_levels = |digest: &dyn Fn(u8) -> Option<Digest>| {
            let (mut digests, levels) = ([Digest::NULL; MAX_LEVELS], statement.counters.levels());
            for level in (0..levels).filter(|level| !statement.is_null(Level(*level))) {
                digests[usize::from(level)] = digest(level).unwrap_or(Digest::NULL);
            }
            star::root(&statement.counters, &digests[..usize::from(levels)])
        };
        match self {
            Self::Star(running) => of_levels(&|level| {
                let digest = running.get(&level)?.clone();
                Some(Digest(digest.finalize().into()))
            }),
            Self::Groups(running) => {
                of_levels(&|level| running.get(&level).map(RunningBlock::digest))
            }
            Self::Tree(tree) => tree.root(),
            Self::Trees(trees) => join_roots(&trees.iter().map(Tree::root).collect::<Vec<_>>()),
        }
    }
}
