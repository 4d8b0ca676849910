//! A small buffer per chain for leaves of later blocks, which cannot be checked yet. With this
//! buffer, a node that misses one fragment does not also need to request the fragments after it.
//! The node neither relays nor stores these leaves until their block is the current one. A forger
//! can at most fill the buffer. The node then requests leaves that it could otherwise have kept.

/// The capacity in bytes, including a header of six bytes per leaf.
const ROOM: usize = 512;
/// The length in bytes of the longest leaf that is kept.
pub(super) const LONGEST: usize = 255;
/// The length in bytes of the header before each leaf: block, index and length.
const START: usize = 6;

#[derive(Clone)]
pub(super) struct EarlyLeaves {
    bytes: [u8; ROOM],
    length: usize,
}

/// A leaf that arrived early and whose block is now the current one.
pub(super) struct EarlyLeaf {
    pub(super) index: u8,
    length: usize,
    bytes: [u8; LONGEST],
}

impl EarlyLeaf {
    pub(super) fn leaf(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl EarlyLeaves {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; ROOM], length: 0 }
    }

    /// Returns the offset, block, index and length of each leaf.
    fn iter(&self) -> impl Iterator<Item = (usize, u32, u8, usize)> {
        let mut at = 0;
        core::iter::from_fn(move || {
            let start = self.bytes.get(..self.length)?.get(at..)?.first_chunk::<START>()?;
            let [a, b, c, d, index, length] = *start;
            let found = (at, u32::from_be_bytes([a, b, c, d]), index, usize::from(length));
            at += START + usize::from(length);
            Some(found)
        })
    }

    /// Keeps a leaf if there is room and it is not already kept.
    pub(super) fn add(&mut self, block: u32, index: u8, leaf: &[u8]) {
        let Ok(length) = u8::try_from(leaf.len()) else { return };
        let waits = self.iter().any(|(at, of, place, _)| {
            (of, place) == (block, index) && self.bytes[at + START..].starts_with(leaf)
        });
        let end = self.length + START + leaf.len();
        if waits {
            return;
        }
        if let Some(room) = self.bytes.get_mut(self.length..end)
            && let Some((start, rest)) = room.split_first_chunk_mut::<START>()
        {
            let [a, b, c, d] = block.to_be_bytes();
            *start = [a, b, c, d, index, length];
            rest.copy_from_slice(leaf);
            self.length = end;
        }
    }

    /// Removes and returns a leaf of block `current`. Drops the leaves of earlier blocks.
    pub(super) fn take(&mut self, current: u32) -> Option<EarlyLeaf> {
        loop {
            let found = self.iter().find(|(_, block, ..)| *block <= current)?;
            let (at, block, index, length) = found;
            let mut early = EarlyLeaf { index, length, bytes: [0; LONGEST] };
            let end = at + START + length;
            early.bytes.get_mut(..length)?.copy_from_slice(self.bytes.get(at + START..end)?);
            self.bytes.copy_within(end..self.length, at);
            self.length -= START + length;
            if block == current {
                return Some(early);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_leaves_of_the_current_block_and_drops_older_ones() {
        let mut early = EarlyLeaves::new();
        early.add(3, 1, b"three");
        early.add(2, 0, b"");
        early.add(3, 1, b"three");
        early.add(4, 9, b"four");
        early.add(3, 0, b"forged");
        assert!(early.take(1).is_none());
        let mut of_three = [early.take(3), early.take(3), early.take(3)].into_iter().flatten();
        assert_eq!(
            of_three.next().map(|early| (early.index, early.leaf() == b"three")),
            Some((1, true))
        );
        assert_eq!(
            of_three.next().map(|early| (early.index, early.leaf() == b"forged")),
            Some((0, true))
        );
        assert!(of_three.next().is_none() && early.take(2).is_none());
        assert_eq!(early.take(4).map(|early| early.index), Some(9));
        assert_eq!(early.length, 0);
    }

    #[test]
    fn drops_leaves_that_do_not_fit() {
        let mut early = EarlyLeaves::new();
        early.add(2, 0, &[0; LONGEST + 1]);
        assert_eq!(early.length, 0);
        for index in 0..64 {
            early.add(2, index, &[index; 40]);
        }
        assert_eq!(early.length, 11 * 46);
        assert_eq!(
            std::iter::from_fn(|| early.take(2))
                .map(|early| early.index)
                .collect::<std::vec::Vec<_>>(),
            (0..11).collect::<std::vec::Vec<_>>()
        );
    }
}
