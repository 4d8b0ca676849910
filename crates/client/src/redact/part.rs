//! One verified part of a proof, and what a redactor leaves of it.

use std::sync::Arc;

use moteseal_core::record::{Level, Scheme, SealIndex, Sequence};
use moteseal_seal::stream::{Select, Selection};
use moteseal_seal::{Authentic, Seal, Statement};
use moteseal_verify::{Proven, SchemaEntry, write};

use super::tree::Leaves;

/// A verified part that owns its data.
#[derive(Clone, Debug)]
pub(super) struct OwnedPart {
    pub(super) seal: Seal<Authentic>,
    pub(super) schema: Arc<SchemaEntry>,
    signature: Option<Vec<u8>>,
    selected: Selected,
    digests: Vec<u8>,
    events: Vec<u8>,
}

/// Which events are in a part.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Selected {
    /// All events of these levels: bit `i` selects level `i`.
    Levels(u32),
    /// These events of a tree: at least one, in ascending order.
    Events(Vec<Sequence>),
}

impl Selected {
    fn of_tree(selected: Vec<Sequence>) -> Self {
        if selected.is_empty() { Self::Levels(0) } else { Self::Events(selected) }
    }

    /// Returns the selected events of a tree.
    fn sequences(&self, statement: &Statement) -> Vec<Sequence> {
        match self {
            Self::Levels(0) => Vec::new(),
            Self::Levels(mask) => {
                let (salt, levels) = (&statement.salt, statement.counters.levels());
                let all = (0..statement.counters.total()).map(Sequence);
                all.filter(|seq| mask >> salt.level(*seq, levels).0 & 1 == 1).collect()
            }
            Self::Events(selected) => selected.clone(),
        }
    }
}

impl OwnedPart {
    fn with(proven: &Proven<'_>, selected: Selected, digests: Vec<u8>, events: Vec<u8>) -> Self {
        Self {
            seal: proven.seal.clone(),
            schema: Arc::clone(proven.schema),
            signature: proven.part.signature.map(<[u8]>::to_vec),
            selected,
            digests,
            events,
        }
    }

    /// Returns the whole part.
    pub(super) fn of(proven: &Proven<'_>) -> Self {
        let selected = selected(&proven.part.select);
        Self::with(proven, selected, proven.part.digests.to_vec(), proven.part.events.to_vec())
    }

    /// Returns the statement of the seal, without events.
    pub(super) fn bare(proven: &Proven<'_>) -> Self {
        let statement = proven.seal.statement();
        let has_root = match statement.scheme {
            Scheme::Star => statement.surviving() != 0,
            Scheme::Tree => statement.counters.total() > 0,
        };
        let root = if has_root { proven.seal.root().0.to_vec() } else { Vec::new() };
        Self::with(proven, Selected::Levels(0), root, Vec::new())
    }

    /// Returns the part with the events only that `keeps` selects. Returns `None` if the part is that
    /// of a star and has events.
    pub(super) fn keeping(
        proven: &Proven<'_>,
        mut keeps: impl FnMut(Sequence) -> bool,
    ) -> Option<Self> {
        if proven.sample.is_empty() {
            return Some(Self::bare(proven));
        }
        let statement = proven.seal.statement();
        if statement.scheme == Scheme::Star {
            return None;
        }
        let all = selected(&proven.part.select).sequences(statement);
        let kept: Vec<Sequence> = all.iter().copied().filter(|seq| keeps(*seq)).collect();
        if kept.is_empty() {
            return Some(Self::bare(proven));
        }
        if kept.len() == all.len() {
            return Some(Self::of(proven));
        }
        let leaves = Leaves {
            size: statement.counters.total(),
            framing: proven.schema.framing,
            selected: &all,
            digests: proven.part.digests,
            events: proven.part.events,
        };
        let (digests, events) = leaves.narrowed(&kept)?;
        Some(Self::with(proven, Selected::Events(kept), digests, events))
    }

    /// Returns whether the part has events.
    pub(super) fn shows_events(&self) -> bool {
        self.selected != Selected::Levels(0)
    }

    pub(super) const fn is_signed(&self) -> bool {
        self.signature.is_some()
    }

    /// Returns the index of the seal.
    pub(super) const fn index(&self) -> SealIndex {
        self.seal.statement().index
    }

    /// Returns the number of bytes that the part holds in memory, about.
    pub(super) fn size(&self) -> usize {
        let selected = match &self.selected {
            Selected::Levels(_) => 0,
            Selected::Events(selected) => size_of_val(&selected[..]),
        };
        size_of::<Self>() + selected + self.digests.len() + self.events.len()
    }

    /// Adds the events of another part of the same seal.
    pub(super) fn merge(&mut self, other: Self) {
        let Self { signature, selected, digests, events, .. } = other;
        self.signature = self.signature.take().or(signature);
        if self.selected == selected || selected == Selected::Levels(0) {
            return;
        }
        if self.selected == Selected::Levels(0) {
            (self.selected, self.digests, self.events) = (selected, digests, events);
            return;
        }
        let statement = self.seal.statement();
        match (&self.selected, &selected, statement.scheme) {
            (Selected::Levels(one), Selected::Levels(two), Scheme::Star) => {
                let ours = Blocks { mask: *one, digests: &self.digests, events: &self.events };
                let theirs = Blocks { mask: *two, digests: &digests, events: &events };
                let mask = one | two;
                let merged = ours.union(&theirs, self.seal.statement(), &self.schema);
                (self.digests, self.events) = merged;
                self.selected = Selected::Levels(mask);
            }
            _ => {
                let (ours, theirs) =
                    (self.selected.sequences(statement), selected.sequences(statement));
                let leaves = |selected, digests, events| Leaves {
                    size: statement.counters.total(),
                    framing: self.schema.framing,
                    selected,
                    digests,
                    events,
                };
                let union = leaves(&ours, &self.digests, &self.events)
                    .union(&leaves(&theirs, &digests, &events));
                // The digests of verified parts suffice. If not, the part stays as it is.
                if let Some((selected, digests, events)) = union {
                    self.selected = Selected::of_tree(selected);
                    (self.digests, self.events) = (digests, events);
                }
            }
        }
    }

    /// Appends the encoding of the part.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let selection = match &self.selected {
            Selected::Levels(mask) => Selection::Levels(*mask),
            Selected::Events(selected) => Selection::Events(selected),
        };
        let signature = self.signature.as_deref();
        write::part(out, &self.seal, selection, &self.digests, &self.events, signature);
    }
}

fn selected(select: &Select<'_>) -> Selected {
    match select {
        Select::Levels(mask) => Selected::Levels(*mask),
        Select::Events(gaps) => Selected::Events(gaps.iter().collect()),
    }
}

/// The content of a star's part: the blocks of the levels `mask`, the finest first, and the digests
/// that replace the others.
struct Blocks<'a> {
    mask: u32,
    digests: &'a [u8],
    events: &'a [u8],
}

impl<'a> Blocks<'a> {
    /// Returns the digests and the events of a part that has the levels of both.
    fn union(
        &self,
        other: &Self,
        statement: &Statement,
        schema: &SchemaEntry,
    ) -> (Vec<u8>, Vec<u8>) {
        // The part with the lowest level has a digest of every other level from there on, and the
        // digest of all levels below.
        let base =
            if self.mask.trailing_zeros() <= other.mask.trailing_zeros() { self } else { other };
        let (lowest, surviving) = (base.mask.trailing_zeros(), statement.surviving());
        let below = surviving & ((1_u32 << lowest) - 1) != 0;
        let (under, above) = base.digests.split_at(if below { 32 } else { 0 });
        let mut digests = under.to_vec();
        let replaced = (lowest..32).filter(|level| surviving & !base.mask & 1 << level != 0);
        for (level, digest) in replaced.zip(above.chunks(32)) {
            if other.mask >> level & 1 == 0 && self.mask >> level & 1 == 0 {
                digests.extend_from_slice(digest);
            }
        }
        let mut events = Vec::with_capacity(self.events.len() + other.events.len());
        let (mut ours, mut theirs) = (self.events, other.events);
        for level in (0..statement.counters.levels()).rev() {
            let next = |blocks: &Self, rest: &mut &'a [u8]| -> Option<&'a [u8]> {
                if blocks.mask >> level & 1 == 0 {
                    return None;
                }
                let (bytes, count) = (*rest, statement.counters.at(Level(level)));
                let length = schema.framing.length_of(bytes, count).unwrap_or(bytes.len());
                let (block, after) = bytes.split_at(length);
                *rest = after;
                Some(block)
            };
            let (one, two) = (next(self, &mut ours), next(other, &mut theirs));
            events.extend_from_slice(one.or(two).unwrap_or_default());
        }
        (digests, events)
    }
}
