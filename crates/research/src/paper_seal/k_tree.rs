//! Trees in which a node has up to `k` children (section VII.A): builds them, and creates packets
//! that contain an event and its siblings.

use super::Hash;

/// The error if the tree, or the stored section of it, does not contain the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchEvent;

/// The nodes of a tree of degree `k`, by level from the leaves, without the root.
#[derive(Clone, Debug)]
pub struct KTree<H: Hash> {
    degree: usize,
    leaves: usize,
    levels: Vec<Vec<H::Digest>>,
    root: H::Digest,
}

/// Returns the node over at most `k` children.
fn node<H: Hash>(children: &[H::Digest]) -> H::Digest {
    // Hash the children as one message: the paper's argument is that four MD5 digests fill one
    // block.
    let parts: Vec<&[u8]> = children.iter().map(AsRef::as_ref).collect();
    H::of(&parts)
}

impl<H: Hash> KTree<H> {
    /// Builds the tree over these events. `degree` is at least two.
    #[must_use]
    pub fn build<'e>(degree: usize, events: impl IntoIterator<Item = &'e [u8]>) -> Self {
        let degree = degree.max(2);
        let mut levels = Vec::new();
        let mut level: Vec<_> = events.into_iter().map(|event| H::of(&[event])).collect();
        let leaves = level.len();
        while level.len() > 1 {
            let above = level
                .chunks(degree)
                .map(|group| if let [alone] = group { *alone } else { node::<H>(group) })
                .collect();
            levels.push(std::mem::replace(&mut level, above));
        }
        Self { degree, leaves, levels, root: level.first().copied().unwrap_or_default() }
    }

    /// Creates a section of a tree that is too large for memory. The digests come from a counter.
    /// On each level there are enough of them for the packets of the first `degree^2` events. The
    /// section is only for measuring packets; its root is not a real digest.
    #[must_use]
    pub fn first_part(degree: usize, height: u32) -> Self {
        let groups = |level: u32| degree.pow((height - level).min(2));
        let digest = |number: usize| H::of(&[&number.to_be_bytes()]);
        let levels = (0..height).map(|level| (0..groups(level)).map(digest).collect()).collect();
        Self { degree, leaves: groups(0), levels, root: H::Digest::default() }
    }

    /// Returns the root.
    #[must_use]
    pub const fn root(&self) -> &H::Digest {
        &self.root
    }

    /// Returns the number of levels below the root.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.levels.len()
    }

    /// Writes a packet to `out`: the event, and for each level of its path to the root the digests
    /// of its siblings, in order.
    ///
    /// # Errors
    /// [`NoSuchEvent`].
    pub fn packet(&self, seq: usize, event: &[u8], out: &mut Vec<u8>) -> Result<(), NoSuchEvent> {
        if seq >= self.leaves {
            return Err(NoSuchEvent);
        }
        out.clear();
        out.extend_from_slice(event);
        let mut at = seq;
        for level in &self.levels {
            let first = at - at % self.degree;
            let group = &level[first..level.len().min(first + self.degree)];
            let (before, after) = group.split_at(at - first);
            before
                .iter()
                .chain(&after[1..])
                .for_each(|digest| out.extend_from_slice(digest.as_ref()));
            at /= self.degree;
        }
        Ok(())
    }

    /// Returns the root that a packet implies in a tree with this number of leaves; `None` if the
    /// packet has a different length.
    #[must_use]
    pub fn root_of(
        degree: usize,
        leaves: usize,
        seq: usize,
        event: &[u8],
        siblings: &[u8],
    ) -> Option<H::Digest> {
        let (mut at, mut nodes, mut digest, mut rest) = (seq, leaves, H::of(&[event]), siblings);
        if seq >= leaves {
            return None;
        }
        while nodes > 1 {
            let first = at - at % degree;
            let group = degree.min(nodes - first);
            let (others, above) = rest.split_at_checked((group - 1) * H::LENGTH)?;
            if group > 1 {
                let (before, after) = others.split_at((at - first) * H::LENGTH);
                digest = H::of(&[before, digest.as_ref(), after]);
            }
            (at, nodes, rest) = (at / degree, nodes.div_ceil(degree), above);
        }
        rest.is_empty().then_some(digest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Md5, Nodes, Sha256};
    use super::*;

    fn events(count: u32) -> Vec<[u8; 4]> {
        (0..count).map(u32::to_be_bytes).collect()
    }

    #[test]
    fn every_packet_implies_the_root_and_a_changed_one_does_not() {
        for degree in [2, 3, 4, 7] {
            for count in [1, 2, 5, 16, 27, 64, 100] {
                let events = events(count);
                let tree = KTree::<Md5>::build(degree, events.iter().map(|event| &event[..]));
                let mut packet = Vec::new();
                for (seq, event) in events.iter().enumerate() {
                    tree.packet(seq, event, &mut packet).unwrap();
                    let root = |packet: &[u8]| {
                        KTree::<Md5>::root_of(degree, events.len(), seq, &packet[..4], &packet[4..])
                    };
                    assert_eq!(
                        root(&packet),
                        Some(*tree.root()),
                        "degree {degree}, {count} events, number {seq}"
                    );
                    let last = packet.len() - 1;
                    packet[last] ^= 1;
                    assert_ne!(root(&packet), Some(*tree.root()));
                }
                assert_eq!(tree.packet(events.len(), b"none", &mut packet), Err(NoSuchEvent));
            }
        }
    }

    #[test]
    fn a_tree_of_degree_two_has_the_root_of_the_signers_tree() {
        let events = events(37);
        let nodes = Nodes::<Sha256>::of(events.iter().map(|event| &event[..]));
        assert_eq!(
            *KTree::<Sha256>::build(2, events.iter().map(|event| &event[..])).root(),
            nodes.root()
        );
    }

    #[test]
    fn packets_of_a_section_are_as_long_as_those_of_the_whole_tree() {
        let mut packet = Vec::new();
        for degree in [2, 5, 9] {
            let whole = events(u32::try_from(degree * degree * degree).unwrap_or(u32::MAX));
            let whole = KTree::<Md5>::build(degree, whole.iter().map(|event| &event[..]));
            let part = KTree::<Md5>::first_part(degree, 3);
            assert_eq!((part.height(), whole.height()), (3, 3));
            for seq in [0, 1, degree * degree - 1] {
                let mut length = |tree: &KTree<Md5>| {
                    tree.packet(seq, b"4444", &mut packet).map(|()| packet.len())
                };
                assert_eq!(length(&part), length(&whole));
            }
        }
    }
}
