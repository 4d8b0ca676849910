//! The memory of a buffer. Without a heap it is an array. With the feature `alloc` it grows and shrinks
//! with the content, because a host keeps many buffers, most of them nearly empty.

use core::ops::{Deref, DerefMut};

/// Memory for up to `N` bytes of content.
#[cfg(not(feature = "alloc"))]
#[derive(Clone)]
pub(super) struct Memory<const N: usize>([u8; N]);

/// Memory for up to `N` bytes of content.
#[cfg(feature = "alloc")]
#[derive(Clone)]
pub(super) struct Memory<const N: usize>(alloc::vec::Vec<u8>);

#[cfg(not(feature = "alloc"))]
impl<const N: usize> Memory<N> {
    pub(super) const fn new() -> Self {
        Self([0; N])
    }

    /// Makes room for content that ends at `end`, at most `N`.
    #[allow(clippy::unused_self, reason = "memory of the heap grows")]
    pub(super) const fn grow(&mut self, _end: usize) {}

    /// Frees the memory after the content, which ends at `end`.
    #[allow(clippy::unused_self, reason = "memory of the heap shrinks")]
    pub(super) const fn shrink(&mut self, _end: usize) {}
}

#[cfg(feature = "alloc")]
impl<const N: usize> Memory<N> {
    /// Memory of this size is kept, because freeing it gains little.
    const SMALL: usize = 1024;

    pub(super) const fn new() -> Self {
        Self(alloc::vec::Vec::new())
    }

    /// Makes room for content that ends at `end`, at most `N`.
    pub(super) fn grow(&mut self, end: usize) {
        if self.0.len() < end {
            let length = end.max(2 * self.0.len()).min(N.max(end));
            self.0.reserve_exact(length - self.0.len());
            self.0.resize(length, 0);
        }
    }

    /// Frees the memory after the content, which ends at `end`.
    pub(super) fn shrink(&mut self, end: usize) {
        if self.0.len() > Self::SMALL.max(2 * end) {
            self.0.truncate(end);
            self.0.shrink_to_fit();
        }
    }
}

impl<const N: usize> Deref for Memory<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> DerefMut for Memory<N> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;

    #[test]
    fn memory_follows_the_content_up_to_its_limit() {
        let mut memory = Memory::<{ 1 << 16 }>::new();
        assert_eq!(memory.0.capacity(), 0);
        for end in (8..=1 << 16).step_by(8) {
            memory.grow(end);
            assert!(end <= memory.len() && memory.len() <= 2 * end);
        }
        assert_eq!(memory.0.capacity(), 1 << 16);
        memory[..4].copy_from_slice(b"kept");
        memory.shrink(1 << 15);
        assert_eq!(memory.len(), 1 << 16, "half of it is in use");
        memory.shrink(4);
        assert_eq!((&*memory, memory.0.capacity()), (&b"kept"[..], 4));
    }
}
