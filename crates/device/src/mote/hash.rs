//! A hash of a mote's state, by which a model checker recognises a state that it has explored.

use std::hash::{Hash, Hasher};

use super::{Folded, Mote, Open, Waiting};

/// Two motes with the same keys, the same profile and the same hash do the same from now on, except
/// for collisions.
impl<K, const N: usize> Hash for Mote<K, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            profile,
            keys: _,
            salt_key: _,
            session,
            chain,
            open,
            waiting,
            most_waiting,
            unstated,
            sent_before,
            given_up: _,
            latest_epoch,
            epochs: _,
        } = self;
        (profile.roster, session, chain, open, waiting).hash(state);
        (most_waiting, unstated, sent_before, latest_epoch).hash(state);
    }
}

impl<const N: usize> Hash for Open<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The level key follows from the index.
        let Self { index, epoch, key: _, folded, counters, answers, forwarder, keys } = self;
        let keys = keys.as_ref().map(|keys| (keys.commitments(), keys.can_encrypt()));
        (index, epoch, folded, counters, answers, forwarder, keys).hash(state);
    }
}

impl Hash for Folded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Star(running) => {
                let digest = |digest: &sha2::Sha256| -> [u8; 32] {
                    sha2::Digest::finalize(digest.clone()).into()
                };
                running.iter().for_each(|(level, running)| (level, digest(running)).hash(state));
            }
            Self::Groups(running) => {
                running.iter().for_each(|(level, running)| (level, running.digest()).hash(state));
            }
            Self::Tree(tree) => tree.root().hash(state),
            Self::Trees(trees) => trees.iter().for_each(|tree| tree.root().hash(state)),
        }
    }
}

impl<const N: usize> Hash for Waiting<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { index, digest, forwarder, open, part, answers } = self;
        (index, digest, forwarder, open, part, answers).hash(state);
    }
}
