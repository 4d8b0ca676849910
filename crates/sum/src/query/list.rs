//! A list of at most `N` elements, without a heap.

use core::fmt;
use core::ops::{Deref, DerefMut};

/// A list of at most `N` elements. Unused places hold the default value, so that two lists with the
/// same elements compare as equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct List<T, const N: usize> {
    elements: [T; N],
    length: usize,
}

/// An error: the list already has `N` elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full;

impl<T: Copy + Default, const N: usize> List<T, N> {
    pub(super) fn new() -> Self {
        Self { elements: [T::default(); N], length: 0 }
    }

    /// Appends an element and returns its index.
    pub(super) fn push(&mut self, element: T) -> Result<usize, Full> {
        *self.elements.get_mut(self.length).ok_or(Full)? = element;
        self.length += 1;
        Ok(self.length - 1)
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements[..self.length]
    }
}

impl<T, const N: usize> DerefMut for List<T, N> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.elements[..self.length]
    }
}

impl<T: fmt::Debug, const N: usize> fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
