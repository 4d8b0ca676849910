//! A hash of a coordinator's state, by which a model checker recognises a state that it has explored.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use moteseal_core::record::Level;

use super::intake::{Open, Unkept};
use super::schemas::Schemas;
use super::{Epoch, Evidence, GroupCoordinator, Member, Sealed};
use crate::queues::{Queues, Slot};

/// Two coordinators of the same group with the same hash do the same from now on, except for
/// collisions. The order in which different devices did the same is a part of the hash only where it
/// matters: which device opened an epoch.
impl Hash for GroupCoordinator {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            roster,
            serves,
            secret: _,
            devices,
            schemas,
            epochs,
            late,
            late_bundles,
            counts: _,
            over,
            rounds,
            abandoned,
            openers,
            sessions,
        } = self;
        (roster.digest(), serves, epochs, late, late_bundles, over).hash(state);
        (rounds, abandoned, openers).hash(state);
        sessions.iter().collect::<BTreeMap<_, _>>().hash(state);
        devices.iter().for_each(|member| hash_member(member, schemas, state));
    }
}

fn hash_member<H: Hasher>(member: &Member, known: &Schemas, state: &mut H) {
    // The link key follows from the device.
    let Member { id, key: _, open, sealed, over, wants_schema, schemas } = member;
    (id, open, sealed, over, wants_schema).hash(state);
    known.encodings(schemas).for_each(|schema| schema.hash(state));
}

impl Hash for Open {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { followed, framing, claimed, unkept, grouped } = self;
        (followed, framing, claimed).hash(state);
        // The layouts follow from the schemas.
        grouped.iter().for_each(|grouped| grouped.schema.hash(state));
        match unkept {
            Unkept::Running(running) => {
                for (level, running) in running {
                    level.hash(state);
                    running.digests().for_each(|digest| digest.hash(state));
                }
            }
            Unkept::Roots(trees) => trees.hash(state),
        }
    }
}

impl Hash for Epoch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { coordinator, queues, sealed } = self;
        (coordinator, queues).hash(state);
        // Seals of different devices may arrive in any order.
        let order = |sealed: &&Sealed| (sealed.slot, sealed.seal.statement().index);
        let mut sealed: Vec<_> = sealed.iter().collect();
        sealed.sort_by_key(order);
        sealed.hash(state);
    }
}

/// Two queues with the same events have the same hash, wherever they store them.
impl Hash for Queues {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for level in (0..self.levels()).map(Level) {
            for slot in (0..self.slots()).map(Slot) {
                let mut events = self.newest_first(slot, level).peekable();
                if events.peek().is_some() {
                    (slot, level).hash(state);
                    events.for_each(|event| event.hash(state));
                }
            }
        }
    }
}

impl Hash for Sealed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { slot, seal, evidence, signature, schema, framing, events, is_listed } = self;
        (slot, seal.digest(), signature, schema, framing, events, is_listed).hash(state);
        match evidence {
            Evidence::Blocks(digests) => digests.hash(state),
            Evidence::Roots { trees, seqs } => (trees, seqs).hash(state),
        }
    }
}
