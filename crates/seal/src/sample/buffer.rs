//! The buffer of an open seal on a device. It contains records, in order, until the coordinator has
//! stored them. For a tree, it also contains roots of subtrees in place of the records that are not
//! wanted.
//!
//! A record is wanted if its level is at or above the device's round. Wanted records must be
//! forwarded. The entries of a tree cover all sequence numbers from the first one on, without a
//! gap. Records that are not wanted are replaced by roots as soon as this saves bytes. A record
//! that is longer than a digest is replaced at once. Shorter records are replaced together with
//! their neighbours. The subtrees then grow, up to the largest perfect subtrees without a wanted
//! record. The size of the buffer is fixed. [`forward`](crate::sample::forward) decides when to
//! send.

use core::hash::{Hash, Hasher};

use super::memory::Memory;
use crate::tree::{self, Frontier};
use moteseal_core::digest::Digest;
use moteseal_core::record::Level;

/// Length of the head of an entry: the first sequence number (4 bytes), the level or height (1),
/// and the length of the content (2).
pub(super) const HEAD: usize = 7;
/// Length of a root entry with its head.
pub(super) const ROOT: usize = HEAD + 32;
/// A height that no perfect subtree reaches, because a seal has at most 2^32 - 1 records.
const MAX_HEIGHT: usize = 32;
/// The bit that marks an entry as the root of a subtree. The lower bits are its height.
const SUBTREE: u8 = 0x80;

/// The entries of one open seal, in at most `N` bytes.
#[derive(Clone)]
pub(super) struct Buffer<const N: usize> {
    bytes: Memory<N>,
    used: usize,
    /// The offset of the first entry that has not been sent.
    unsent: usize,
    /// For a tree: the offset of the end of the last wanted record. The entries after it may still
    /// be merged into one root.
    settled: usize,
}

/// Two buffers with the same entries have the same hash.
impl<const N: usize> Hash for Buffer<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { bytes, used, unsent, settled } = self;
        (&bytes[..*used], unsent, settled).hash(state);
    }
}

/// One entry of the buffer.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) start: u32,
    pub(super) kind: Kind,
    /// The offset of the entry, and the offset of the end of its record or root.
    pub(super) at: usize,
    pub(super) end: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A record of this level.
    Record(Level),
    /// The root of `2^height` leaves.
    Subtree(u32),
}

impl Entry {
    /// Returns the first sequence number after the entry. A seal has at most 2^32 - 1 events.
    pub(super) fn until(&self) -> u32 {
        self.start.saturating_add(1 << self.height())
    }

    fn height(&self) -> u32 {
        if let Kind::Subtree(height) = self.kind { height } else { 0 }
    }

    pub(super) fn is_at_least(&self, round: u8) -> bool {
        matches!(self.kind, Kind::Record(level) if level.0 >= round)
    }
}

/// A perfect subtree without a wanted record: its first leaf, its height, and the offset of its
/// entries.
#[derive(Clone, Copy, Default)]
struct Subtree {
    start: u32,
    height: u32,
    at: usize,
}

impl Subtree {
    /// Returns whether this subtree is the left child of its parent.
    const fn is_left(&self) -> bool {
        self.start as u64 >> self.height & 1 == 0
    }

    /// Returns whether this subtree and `other` are the left and right child of the same parent.
    fn is_left_of(&self, other: &Self) -> bool {
        self.is_left()
            && self.height == other.height
            && u64::from(self.start) + (1 << self.height) == u64::from(other.start)
    }
}

/// The subtrees without a wanted record that may still be merged. All are left children whose
/// siblings have not been added yet; their heights decrease.
#[derive(Default)]
struct Growing {
    waiting: [Subtree; MAX_HEIGHT],
    count: usize,
}

impl Growing {
    /// Adds the next subtree, whose entries end at `end`. `replace` must replace the entries of a
    /// subtree, up to the given end, by one root, and return the new end. Returns the end of the
    /// entries after all replacements.
    fn add(
        &mut self,
        subtree: Subtree,
        end: usize,
        mut replace: impl FnMut(&Subtree, usize) -> usize,
    ) -> usize {
        let (mut subtree, mut end) = (subtree, end);
        loop {
            if end - subtree.at > ROOT {
                end = replace(&subtree, end);
            }
            let Some(left) =
                self.waiting[..self.count].last().filter(|left| left.is_left_of(&subtree))
            else {
                break;
            };
            subtree = Subtree { height: left.height + 1, ..*left };
            self.count -= 1;
        }
        if subtree.is_left() {
            self.waiting[self.count] = subtree;
            self.count += 1;
        }
        end
    }
}

impl<const N: usize> Buffer<N> {
    pub(super) const fn new() -> Self {
        Self { bytes: Memory::new(), used: 0, unsent: 0, settled: 0 }
    }

    /// Returns the number of bytes in use.
    pub(super) const fn used(&self) -> usize {
        self.used
    }

    pub(super) const fn has_room(&self, length: usize) -> bool {
        self.used + length <= N
    }

    /// Returns the entry at an offset, or `None` if the offset is the end of the buffer's content.
    pub(super) fn entry(&self, at: usize) -> Option<Entry> {
        self.entry_before(self.used, at)
    }

    fn entry_before(&self, used: usize, at: usize) -> Option<Entry> {
        let head = self.bytes[..used].get(at..)?.first_chunk::<HEAD>()?;
        let start = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let kind = if head[4] & SUBTREE == 0 {
            Kind::Record(Level(head[4]))
        } else {
            Kind::Subtree(u32::from(head[4] & !SUBTREE))
        };
        let length = usize::from(u16::from_be_bytes([head[5], head[6]]));
        Some(Entry { start, kind, at, end: at + HEAD + length })
    }

    /// Returns the record or root of an entry.
    pub(super) fn content(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.at + HEAD..entry.end]
    }

    /// Returns the first entry that has not been sent.
    pub(super) fn first_unsent(&self) -> Option<Entry> {
        self.entry(self.unsent)
    }

    /// Returns the offset up to which entries may be sent. As long as the seal is open (`is_over`
    /// is false), the last entries of a tree may still be merged and must not be sent.
    pub(super) const fn sendable(&self, is_over: bool) -> usize {
        if is_over { self.used } else { self.settled }
    }

    /// Frees the memory that the content does not use, because nothing will be added.
    pub(super) fn end(&mut self) {
        self.bytes.shrink(self.used);
    }

    /// Marks the entries before the offset `at` as sent.
    pub(super) const fn sent_up_to(&mut self, at: usize) {
        self.unsent = at;
    }

    /// Writes an entry at an offset and returns the offset of its end. The caller must have checked
    /// that the entry fits.
    fn write(&mut self, at: usize, start: u32, mark: u8, content: &[u8]) -> usize {
        // No record is longer than MAX_RECORD, which fits two bytes.
        #[allow(clippy::cast_possible_truncation)]
        let length = (content.len() as u16).to_be_bytes();
        let end = at + HEAD + content.len();
        self.bytes.grow(end);
        let entry = &mut self.bytes[at..end];
        entry[..4].copy_from_slice(&start.to_be_bytes());
        entry[4] = mark;
        entry[5..HEAD].copy_from_slice(&length);
        entry[HEAD..].copy_from_slice(content);
        end
    }

    /// Appends a wanted record. The caller must have checked that it fits.
    pub(super) fn push(&mut self, seq: u32, level: Level, record: &[u8]) {
        self.used = self.write(self.used, seq, level.0, record);
        self.settled = self.used;
    }

    /// Returns the number of bytes that an unwanted record takes in the buffer of a tree before it
    /// is merged.
    pub(super) fn skipped_length(record: &[u8]) -> usize {
        HEAD + record.len().min(32)
    }

    /// Appends an unwanted record of a tree. The caller must have checked that it fits.
    pub(super) fn skip(&mut self, seq: u32, level: Level, record: &[u8]) {
        self.used = if record.len() > 32 {
            self.write(self.used, seq, SUBTREE, &tree::leaf(record).0)
        } else {
            self.write(self.used, seq, level.0, record)
        };
        if seq & 1 == 1 {
            self.collapse(self.settled, u8::MAX);
        }
    }

    /// Keeps the entries for which `keep` returns true, in order. Returns how many were removed.
    pub(super) fn retain(&mut self, keep: impl Fn(&Entry) -> bool) -> u32 {
        let (mut from, mut to, mut dropped, mut unsent) = (0, 0, 0, None);
        while let Some(entry) = self.entry(from) {
            if from == self.unsent {
                unsent = Some(to);
            }
            if keep(&entry) {
                self.bytes.copy_within(from..entry.end, to);
                to += entry.end - from;
            } else {
                dropped += 1;
            }
            from = entry.end;
        }
        (self.used, self.unsent) = (to, unsent.unwrap_or(to));
        dropped
    }

    /// Removes the entries before `next`, which the coordinator has stored.
    pub(super) fn acknowledged(&mut self, next: u32) {
        let mut start = 0;
        while let Some(entry) = self.entry(start).filter(|entry| entry.until() <= next) {
            start = entry.end;
        }
        self.bytes.copy_within(start..self.used, 0);
        self.used -= start;
        self.bytes.shrink(self.used);
        self.unsent = self.unsent.saturating_sub(start);
        self.settled = self.settled.saturating_sub(start);
    }

    /// Treats a tree's records below `round` as unwanted, from the entry at `at` on: replaces them
    /// by the roots of maximal subtrees without a wanted record, wherever this saves bytes. Entries
    /// move only towards the start of the buffer, so this needs no additional memory.
    pub(super) fn collapse(&mut self, at: usize, round: u8) {
        let (mut from, mut to, mut unsent) = (at, at, None);
        let mut settled = self.settled.min(at);
        let mut growing = Growing::default();
        while let Some(entry) = self.entry(from) {
            if from == self.unsent {
                unsent = Some(to);
            }
            self.bytes.copy_within(from..entry.end, to);
            let subtree = Subtree { start: entry.start, height: entry.height(), at: to };
            (from, to) = (entry.end, to + (entry.end - entry.at));
            if entry.is_at_least(round) {
                growing = Growing::default();
                settled = to;
                continue;
            }
            to = growing.add(subtree, to, |subtree, end| {
                // Either all or none of the entries that are merged into one root have been sent.
                unsent = unsent.map(|unsent: usize| unsent.min(subtree.at));
                self.replace(subtree, end)
            });
        }
        if self.unsent >= at {
            self.unsent = unsent.unwrap_or(to);
        }
        (self.used, self.settled) = (to, settled);
    }

    /// Returns the number of bytes that the buffer would contain after [`collapse`](Self::collapse)
    /// of all entries.
    pub(super) fn collapsed(&self, round: u8) -> usize {
        let (mut from, mut to, mut growing) = (0, 0, Growing::default());
        while let Some(entry) = self.entry(from) {
            let subtree = Subtree { start: entry.start, height: entry.height(), at: to };
            (from, to) = (entry.end, to + (entry.end - entry.at));
            if entry.is_at_least(round) {
                growing = Growing::default();
            } else {
                to = growing.add(subtree, to, |subtree, _| subtree.at + ROOT);
            }
        }
        to
    }

    /// Replaces the entries of a subtree, which end at `end`, by one root. Returns the new end.
    fn replace(&mut self, subtree: &Subtree, end: usize) -> usize {
        let (mut frontier, mut at) = (Frontier::<{ MAX_HEIGHT + 1 }>::new(), subtree.at);
        while let Some(entry) = self.entry_before(end, at) {
            let content = self.content(&entry);
            let root = match entry.kind {
                Kind::Record(_) => tree::leaf(content),
                Kind::Subtree(_) => {
                    content.first_chunk().map_or(Digest::NULL, |root| Digest(*root))
                }
            };
            frontier.append(entry.height(), root);
            at = entry.end;
        }
        let root = frontier.root(None).unwrap_or(Digest::NULL);
        // The height is at most 32.
        #[allow(clippy::cast_possible_truncation)]
        let mark = SUBTREE | subtree.height as u8;
        self.write(subtree.at, subtree.start, mark, &root.0)
    }
}
