//! One verified part of a proof, and what a redactor leaves of it. A part shows events, and of these the
//! cells of some column groups.

use std::cmp::Ordering;
use std::sync::Arc;

use moteseal_core::record::{Level, Scheme, SealIndex, Sequence};
use moteseal_core::schema::{Groups, Schema};
use moteseal_seal::star::star_digests;
use moteseal_seal::stream::{Item, Part, Select, Selection};
use moteseal_seal::tree::geometry::siblings;
use moteseal_seal::{Authentic, Seal, Statement};
use moteseal_verify::redaction::{Content, RedactionError, hide, merge_parts};
use moteseal_verify::{Proven, SchemaEntry, write};

use super::tree::Leaves;

/// A verified part that owns its data.
#[derive(Clone, Debug)]
pub(super) struct OwnedPart {
    pub(super) seal: Seal<Authentic>,
    /// The schema of the records: that of the stream, or its projection to the shown groups.
    pub(super) schema: Arc<SchemaEntry>,
    signature: Option<Vec<u8>>,
    selected: Selected,
    digests: Vec<u8>,
    events: Vec<u8>,
}

impl<'a> Leaves<'a> {
    /// Returns the content of the part of one tree.
    fn of(part: &'a OwnedPart, selected: &'a [Sequence]) -> Self {
        Self {
            size: part.seal.statement().counters.total(),
            framing: part.schema.framing,
            selected,
            digests: &part.digests,
            events: &part.events,
        }
    }
}

/// Which events are in a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Selected {
    /// All events of these levels: bit `i` selects level `i`.
    Levels(u32),
    /// These events of a tree: at least one, in ascending order.
    Events(Vec<Sequence>),
}

impl Selected {
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

    /// Returns the part with the events only that `keeps` selects.
    ///
    /// # Errors
    /// [`NoSingleEvents`] if the part has events, and its seal does not support that some are omitted.
    pub(super) fn keeping(
        proven: &Proven<'_>,
        mut keeps: impl FnMut(Sequence) -> bool,
    ) -> Result<Self, NoSingleEvents> {
        if proven.sample.is_empty() {
            return Ok(Self::bare(proven));
        }
        let statement = proven.seal.statement();
        if statement.scheme == Scheme::Star {
            return Err(NoSingleEvents::Star);
        }
        let all = selected(&proven.part.select).sequences(statement);
        let kept: Vec<Sequence> = all.iter().copied().filter(|seq| keeps(*seq)).collect();
        if kept.is_empty() {
            return Ok(Self::bare(proven));
        }
        if kept.len() == all.len() {
            return Ok(Self::of(proven));
        }
        let leaves = Leaves {
            size: statement.counters.total(),
            framing: proven.schema.framing,
            selected: &all,
            digests: proven.part.digests,
            events: proven.part.events,
        };
        // The content of a verified part is that of a tree, unless there are several trees.
        let narrowed = if proven.schema.groups.is_none() { leaves.narrowed(&kept) } else { None };
        let (digests, events) = narrowed.ok_or(NoSingleEvents::GroupedTree)?;
        Ok(Self::with(proven, Selected::Events(kept), digests, events))
    }

    /// Hides the column groups that are not in `kept`, except group 0.
    ///
    /// # Errors
    /// [`RedactionError`], which a verified part does not cause.
    pub(super) fn show_only(&mut self, kept: Groups) -> Result<(), RedactionError> {
        let kept = kept.with(0);
        let Some(layout) = self.schema.groups.as_deref() else { return Ok(()) };
        let dropped = layout.shown().without(kept);
        if dropped.is_empty() {
            return Ok(());
        }
        if self.shows_events() {
            let (statement, events) = (self.seal.statement(), self.selected_events());
            let selection = match (&self.selected, &events) {
                (Selected::Levels(mask), None) => Selection::Levels(*mask),
                (Selected::Events(events), _) | (_, Some(events)) => Selection::Events(events),
            };
            let content =
                Content { digests: (&self.digests[..]).into(), events: (&self.events[..]).into() };
            let view = (layout, self.schema.framing);
            let Content { digests, events } = hide(statement, view, selection, &content, kept)?;
            let shown = (digests.into_owned(), events.into_owned());
            (self.digests, self.events) = shown;
        }
        self.schema = self.schema.projection(self.schema.shown().without(dropped))?;
        Ok(())
    }

    /// Returns the selected events of a tree that are stated as levels.
    fn selected_events(&self) -> Option<Vec<Sequence>> {
        let statement = self.seal.statement();
        let is_mask = matches!(self.selected, Selected::Levels(_));
        (is_mask && statement.scheme == Scheme::Tree).then(|| self.selected.sequences(statement))
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

    /// Adds what another part of the same seal shows.
    ///
    /// # Errors
    /// [`NotMergeable`]. The part is then unchanged.
    pub(super) fn merge(&mut self, other: &Self) -> Result<(), NotMergeable> {
        if !self.contains(other) {
            if other.contains(self) {
                let signature = self.signature.take();
                *self = Self { signature, ..other.clone() };
            } else if self.schema.shown() == other.schema.shown() {
                self.add_events(other)?;
            } else if self.selected == other.selected {
                self.add_groups(other).ok_or(NotMergeable)?;
            } else {
                return Err(NotMergeable);
            }
        }
        if self.signature.is_none() {
            self.signature.clone_from(&other.signature);
        }
        Ok(())
    }

    /// Returns whether the merged part of this part and another one of the same seal shows all that they
    /// show, whatever other parts are merged before or after: one contains the other, or their
    /// schema has no column groups.
    pub(super) fn always_merges(&self, other: &Self) -> bool {
        self.schema.groups.is_none() || self.contains(other) || other.contains(self)
    }

    /// Orders parts of the same seal by what they show.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let shown = |part: &Self| part.schema.shown().bits();
        self.selected.cmp(&other.selected).then_with(|| shown(self).cmp(&shown(other)))
    }

    /// Returns the smallest number of omitted readings that one digest in the part stands for, if the
    /// readings are in plaintext. A reader who can guess them all can test the guess.
    pub(super) fn fewest_omitted(&self) -> Option<u64> {
        let whole = &self.schema.whole().bytes;
        if Schema::decode(whole).unwrap_or(Schema::OPAQUE).encrypted_count() > 0 {
            return None;
        }
        let statement = self.seal.statement();
        let counters = &statement.counters;
        let numbers = match (&self.selected, statement.scheme) {
            (Selected::Levels(mask), Scheme::Star) => {
                let surviving = statement.surviving();
                // One digest stands for all levels below the lowest one that is selected.
                let lowest = mask.trailing_zeros();
                let (mut below, mut above) = (0, Vec::new());
                for level in (0..counters.levels()).filter(|level| surviving >> level & 1 == 1) {
                    let number = u64::from(counters.at(Level(level)));
                    if u32::from(level) < lowest {
                        below += number;
                    } else if mask >> level & 1 == 0 {
                        above.push(number);
                    }
                }
                above.push(below);
                above
            }
            (selected, _) => siblings(counters.total(), selected.sequences(statement))
                .map(|range| range.end - range.start)
                .collect(),
        };
        numbers.into_iter().filter(|number| *number > 0).min()
    }

    /// Returns whether the part shows everything that another part of the same seal shows.
    fn contains(&self, other: &Self) -> bool {
        if !other.shows_events() {
            return true;
        }
        let statement = self.seal.statement();
        let has_events = || match (&self.selected, &other.selected, statement.scheme) {
            (Selected::Levels(one), Selected::Levels(two), _) => two & !one == 0,
            _ => {
                let all = self.selected.sequences(statement);
                let mut theirs = other.selected.sequences(statement).into_iter();
                theirs.all(|seq| all.binary_search(&seq).is_ok())
            }
        };
        other.schema.shown().is_subset(self.schema.shown()) && has_events()
    }

    /// Adds the events of a part that shows the same groups.
    fn add_events(&mut self, other: &Self) -> Result<(), NotMergeable> {
        if self.selected == other.selected {
            return Ok(());
        }
        let statement = self.seal.statement();
        match (&self.selected, &other.selected, statement.scheme) {
            (Selected::Levels(one), Selected::Levels(two), Scheme::Star) => {
                let mask = one | two;
                let merged = Blocks::new(*one, self).union(&Blocks::new(*two, other), self);
                (self.digests, self.events) = merged;
                self.selected = Selected::Levels(mask);
            }
            _ if self.schema.groups.is_some() => return Err(NotMergeable),
            _ => {
                let (ours, theirs) =
                    (self.selected.sequences(statement), other.selected.sequences(statement));
                let union = Leaves::of(self, &ours).union(&Leaves::of(other, &theirs));
                let (selected, digests, events) = union.ok_or(NotMergeable)?;
                self.selected = Selected::Events(selected);
                (self.digests, self.events) = (digests, events);
            }
        }
        Ok(())
    }

    /// Adds the groups of a part that has the same events. Returns `None` if the parts do not fit
    /// together, which verified parts do.
    fn add_groups(&mut self, other: &Self) -> Option<()> {
        let (mut one, mut two, mut merged) = (Vec::new(), Vec::new(), Vec::new());
        self.encode(&mut one, None);
        other.encode(&mut two, None);
        let (ours, theirs) = (part(&one)?, part(&two)?);
        let both = ((&ours, &self.schema), (&theirs, &other.schema));
        merge_parts(&mut merged, &self.seal, both.0, both.1).ok()?;
        let merged = part(&merged)?;
        self.schema = self.schema.projection(merged.groups).ok()?;
        (self.digests, self.events) = (merged.digests.to_vec(), merged.events.to_vec());
        Some(())
    }

    /// Appends the encoding of the part.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.encode(out, self.signature.as_deref());
    }

    fn encode(&self, out: &mut Vec<u8>, signature: Option<&[u8]>) {
        let selection = match &self.selected {
            Selected::Levels(mask) => Selection::Levels(*mask),
            Selected::Events(selected) => Selection::Events(selected),
        };
        let (shown, length) = (self.schema.shown(), self.events.len());
        write::part_head_showing(out, &self.seal, shown, selection, &self.digests, length);
        out.extend_from_slice(&self.events);
        write::part_tail(out, signature);
    }
}

/// Why no single events of a part can be omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoSingleEvents {
    Star,
    GroupedTree,
}

/// Two parts of a seal show different events and different column groups, so that no part shows
/// exactly what either shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotMergeable;

/// Decodes a part.
fn part(bytes: &[u8]) -> Option<Part<'_>> {
    match Item::decode_whole(bytes) {
        Ok(Item::Part(part)) => Some(part),
        _ => None,
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
    /// The digests of levels.
    levels: &'a [u8],
    /// For each level of the mask in ascending order, the digests of its hidden groups.
    groups: &'a [u8],
    events: &'a [u8],
}

impl<'a> Blocks<'a> {
    fn new(mask: u32, part: &'a OwnedPart) -> Self {
        let surviving = part.seal.statement().surviving();
        let length = (32 * star_digests(surviving, mask) as usize).min(part.digests.len());
        let (levels, groups) = part.digests.split_at(length);
        Self { mask, levels, groups, events: &part.events }
    }

    /// Returns the digests and the events of a part that has the levels of both. `part` is one of
    /// them.
    fn union(&self, other: &Self, part: &OwnedPart) -> (Vec<u8>, Vec<u8>) {
        let (statement, framing) = (part.seal.statement(), part.schema.framing);
        let (levels, surviving) = (statement.counters.levels(), statement.surviving());
        let has = |blocks: &Self, level: u8| blocks.mask >> level & 1 == 1;
        // The part with the lowest level has a digest of every other level from there on, and the
        // digest of all levels below.
        let base =
            if self.mask.trailing_zeros() <= other.mask.trailing_zeros() { self } else { other };
        let lowest = base.mask.trailing_zeros();
        let below = surviving & ((1_u32 << lowest) - 1) != 0;
        let (under, above) = base.levels.split_at(if below { 32 } else { 0 });
        let mut digests = under.to_vec();
        let replaced = (0..levels)
            .filter(|level| surviving & !base.mask & !((1 << lowest) - 1) & 1 << level != 0);
        for (level, digest) in replaced.zip(above.chunks(32)) {
            if !has(self, level) && !has(other, level) {
                digests.extend_from_slice(digest);
            }
        }
        let hidden = 32 * part.schema.hidden().len();
        let (mut ours, mut theirs) = (self.groups, other.groups);
        for level in 0..levels {
            let one = has(self, level).then(|| take(&mut ours, hidden));
            let two = has(other, level).then(|| take(&mut theirs, hidden));
            digests.extend_from_slice(one.or(two).unwrap_or_default());
        }
        let mut events = Vec::with_capacity(self.events.len() + other.events.len());
        let (mut ours, mut theirs) = (self.events, other.events);
        for level in (0..levels).rev() {
            let count = statement.counters.at(Level(level));
            let next = |rest: &mut &'a [u8]| {
                let length = framing.length_of(rest, count).unwrap_or(rest.len());
                take(rest, length)
            };
            let one = has(self, level).then(|| next(&mut ours));
            let two = has(other, level).then(|| next(&mut theirs));
            events.extend_from_slice(one.or(two).unwrap_or_default());
        }
        (digests, events)
    }
}

/// Removes the first bytes of a slice and returns them. Returns fewer if there are not as many.
fn take<'a>(rest: &mut &'a [u8], length: usize) -> &'a [u8] {
    let bytes = *rest;
    let (first, after) = bytes.split_at(length.min(bytes.len()));
    *rest = after;
    first
}
