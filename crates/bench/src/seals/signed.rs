//! Epochs that are signed by the paper's schemes, as the cloud stores them, and an application that
//! verifies a share of their events.

use moteseal_research::paper_seal::{Hash, Nodes, Receiver, Star, TreeSigner, cover};

use super::feed::Record;
use super::suites::{Key, Named};

/// Returns the signed message for a root: the hash of the root and the epoch's number.
fn statement<H: Named>(root: &H::Digest, epoch: usize) -> H::Digest {
    H::of(&[root.as_ref(), &epoch.to_be_bytes()])
}

/// Seals every epoch as a star with memory for `units` digests. Each epoch has one signature.
pub(super) fn sign_stars<H: Named>(
    key: &Key,
    epochs: &[Vec<Record>],
    units: usize,
) -> Vec<Vec<u8>> {
    let seal = |(number, events): (usize, &Vec<Record>)| {
        let mut star = Star::<H>::new(units);
        for event in events {
            star.push(event);
        }
        key.sign::<H>(statement::<H>(&star.root(), number).as_ref())
    };
    epochs.iter().enumerate().map(seal).collect()
}

/// Seals every epoch as trees with memory for `units` digests. There is a signature each time the
/// memory is full, and one more at the end.
pub(super) fn sign_trees<H: Named>(
    key: &Key,
    epochs: &[Vec<Record>],
    units: usize,
) -> Vec<Vec<u8>> {
    let mut signatures = Vec::new();
    for (number, events) in epochs.iter().enumerate() {
        let mut signer = TreeSigner::<H>::new(units);
        let mut sign = |root: H::Digest| {
            signatures.push(key.sign::<H>(statement::<H>(&root, number).as_ref()));
        };
        for event in events {
            if let Some(root) = signer.push(event) {
                sign(root);
            }
        }
        if let Some(root) = signer.close() {
            sign(root);
        }
    }
    signatures
}

/// Stars as the cloud stores them, with each epoch's events by block.
pub(super) struct Stars<H: Hash> {
    units: usize,
    epochs: Vec<StarAtCloud<H>>,
}

struct StarAtCloud<H: Hash> {
    blocks: Vec<Vec<Record>>,
    digests: Vec<H::Digest>,
    signature: Vec<u8>,
}

impl<H: Named> Stars<H> {
    pub(super) fn new(key: &Key, epochs: &[Vec<Record>], units: usize) -> Self {
        let signatures = sign_stars::<H>(key, epochs, units);
        let at_cloud = |(events, signature): (&Vec<Record>, Vec<u8>)| {
            let mut star = Star::<H>::new(units);
            let mut blocks = vec![Vec::new(); units];
            for event in events {
                blocks[star.push(event)].push(*event);
            }
            StarAtCloud {
                blocks,
                digests: (0..units).map(|level| star.digest(level)).collect(),
                signature,
            }
        };
        Self { units, epochs: epochs.iter().zip(signatures).map(at_cloud).collect() }
    }

    /// Returns the number of events that an application receives if it requests this share.
    pub(super) fn served(&self, rate: f64) -> usize {
        let mask = cover(rate, self.units);
        let blocks = self.epochs.iter().flat_map(|epoch| epoch.blocks.iter().enumerate());
        blocks.filter(|(level, _)| mask >> level & 1 == 1).map(|(_, block)| block.len()).sum()
    }

    /// Verifies the blocks that contain at least this share of each epoch. Returns whether all of
    /// them are authentic and all events have the levels of their blocks.
    pub(super) fn verify(&self, key: &Key, rate: f64) -> bool {
        let mask = cover(rate, self.units);
        self.epochs.iter().enumerate().all(|(number, epoch)| {
            let mut star = Star::<H>::new(self.units);
            for (level, block) in epoch.blocks.iter().enumerate() {
                if mask >> level & 1 == 0 {
                    star.adopt(level, epoch.digests[level]);
                } else if !block.iter().all(|event| star.push(event) == level) {
                    return false;
                }
            }
            key.verify::<H>(statement::<H>(&star.root(), number).as_ref(), &epoch.signature)
        })
    }
}

/// Trees as the cloud stores them.
pub(super) struct Trees<H: Hash> {
    trees: Vec<TreeAtCloud<H>>,
}

struct TreeAtCloud<H: Hash> {
    epoch: usize,
    events: Vec<Record>,
    nodes: Nodes<H>,
    signature: Vec<u8>,
}

/// The packets of one tree: their indices, and the concatenation of all their siblings.
pub(super) struct Packets<H: Hash> {
    tree: usize,
    places: Vec<(usize, usize)>,
    siblings: Vec<H::Digest>,
}

impl<H: Named> Trees<H> {
    pub(super) fn new(key: &Key, epochs: &[Vec<Record>], units: usize) -> Self {
        let most = 1_usize
            .checked_shl(u32::try_from(units).unwrap_or(u32::MAX))
            .map_or(usize::MAX, |size| size - 1);
        let mut signatures = sign_trees::<H>(key, epochs, units).into_iter();
        let mut trees = Vec::new();
        for (epoch, events) in epochs.iter().enumerate() {
            for events in events.chunks(most) {
                let nodes = Nodes::of(events.iter().map(|event| &event[..]));
                trees.push(TreeAtCloud {
                    epoch,
                    events: events.to_vec(),
                    nodes,
                    signature: signatures.next().unwrap_or_default(),
                });
            }
        }
        Self { trees }
    }

    /// Returns the packets of the events that `wanted` selects by their epoch and their index in
    /// the epoch.
    pub(super) fn packets(&self, mut wanted: impl FnMut(usize, usize) -> bool) -> Vec<Packets<H>> {
        let (mut all, mut buffer) = (Vec::new(), Vec::new());
        let (mut epoch, mut first) = (0, 0);
        for (number, tree) in self.trees.iter().enumerate() {
            if tree.epoch != epoch {
                (epoch, first) = (tree.epoch, 0);
            }
            let mut packets = Packets { tree: number, places: Vec::new(), siblings: Vec::new() };
            for place in 0..tree.events.len() {
                if wanted(epoch, first + place) {
                    tree.nodes.siblings(place, &mut buffer);
                    packets.places.push((place, buffer.len()));
                    packets.siblings.extend(&buffer);
                }
            }
            first += tree.events.len();
            if !packets.places.is_empty() {
                all.push(packets);
            }
        }
        all
    }

    /// Verifies the packets with a cache for this number of verified nodes.
    pub(super) fn verify(&self, key: &Key, packets: &[Packets<H>], cache: usize) -> bool {
        let mut receiver = Receiver::<H>::new(cache);
        packets.iter().all(|packets| {
            let tree = &self.trees[packets.tree];
            let root = tree.nodes.root();
            if !key.verify::<H>(statement::<H>(&root, tree.epoch).as_ref(), &tree.signature) {
                return false;
            }
            receiver.begin(tree.nodes.leaves(), root);
            let mut siblings = &packets.siblings[..];
            packets.places.iter().all(|&(place, count)| {
                let (own, rest) = siblings.split_at(count);
                siblings = rest;
                receiver.verify(place, &tree.events[place], own)
            })
        })
    }
}

impl<H: Hash> Packets<H> {
    /// Returns the number of events.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_core::signature::Algorithm;
    use moteseal_research::paper_seal::{Md5, Sha256};

    use super::super::legacy::Dsa;
    use super::*;

    fn epochs() -> Vec<Vec<Record>> {
        [300_u32, 1, 45].map(|count| (0..count).map(|n| (n * 7).to_be_bytes()).collect()).to_vec()
    }

    #[test]
    fn every_share_verifies_and_changed_events_do_not() {
        let (dsa, ours) =
            (Key::Dsa(Dsa::generate().unwrap()), Key::ours(Algorithm::Ed25519).unwrap());
        for units in [1, 2, 5, 16] {
            let mut stars = Stars::<Md5>::new(&dsa, &epochs(), units);
            for rate in [0.01, 0.1, 0.5, 1.0] {
                assert!(stars.verify(&dsa, rate), "{units} units, rate {rate}");
            }
            assert_eq!(stars.served(1.0), 346);
            stars.epochs[0].blocks[0][3][1] ^= 1;
            assert!(!stars.verify(&dsa, 1.0));

            let trees = Trees::<Sha256>::new(&ours, &epochs(), units);
            for cache in [0, 3, usize::MAX] {
                let packets = trees.packets(|epoch, place| (epoch + place) % 3 == 0);
                assert_eq!(packets.iter().map(Packets::len).sum::<usize>(), 100 + 15);
                assert!(trees.verify(&ours, &packets, cache), "{units} units, cache {cache}");
                let mut lying = trees.packets(|_, _| true);
                assert!(trees.verify(&ours, &lying, cache));
                lying[0].places.reverse();
                assert_eq!(trees.verify(&ours, &lying, cache), lying[0].len() < 2);
            }
        }
    }

    #[test]
    fn less_memory_needs_more_signatures_of_trees_but_one_of_a_star() {
        let key = Key::ours(Algorithm::Ed25519).unwrap();
        let count = |units| {
            (
                sign_trees::<Sha256>(&key, &epochs(), units).len(),
                sign_stars::<Sha256>(&key, &epochs(), units).len(),
            )
        };
        assert_eq!(
            [1, 2, 5, 20].map(count),
            [(346, 3), (100 + 1 + 15, 3), (10 + 1 + 2, 3), (3, 3)]
        );
    }
}
