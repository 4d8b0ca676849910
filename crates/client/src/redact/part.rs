//! One verified part of a proof, and what a redactor leaves of it. A part shows events, and of these the
//! cells of some column groups.

use std::cmp::Ordering;
use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::record::{Level, Scheme, SealIndex, Sequence};
use moteseal_core::schema::{GroupLayout, Groups, Schema};
use moteseal_seal::star::star_digests;
use moteseal_seal::stream::{Item, Part, Select, Selection};
use moteseal_seal::tree::geometry::siblings;
use moteseal_seal::tree::sibling_count;
use moteseal_seal::{Authentic, Seal, Statement};
use moteseal_verify::redaction::{Content, RedactionError, hide, hide_verified, merge_parts};
use moteseal_verify::sanitised::Statement as SanitiserStatement;
use moteseal_verify::{Proven, Sanitised, SchemaEntry, write};

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
    /// The digests of the shown column groups ([`Proven::groups`]); empty if they are not known.
    groups: Vec<Digest>,
    /// The cells by which sanitisers replaced hidden groups, by ascending group.
    sanitised: Vec<Attached>,
}

/// The cells by which a sanitiser replaced those of a column group, with its signed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attached {
    pub(super) statement: SanitiserStatement,
    pub(super) signed: Vec<u8>,
    pub(super) cells: Vec<u8>,
}

impl From<Sanitised> for Attached {
    fn from(of: Sanitised) -> Self {
        let (statement, signed) = (of.statement().clone(), of.signed().to_vec());
        Self { statement, signed, cells: of.cells().to_vec() }
    }
}

/// The content of a part of one of the trees of a seal.
enum TreeContent<'a> {
    /// The tree of a shown group, or the only tree.
    Shown(Leaves<'a>),
    /// The root of the tree of a hidden group.
    Hidden(&'a [u8]),
}

/// Returns the content of each tree of a part: of the trees of all column groups in ascending order, or
/// of the only tree. `content` are the digests of all trees, and the records. At least one leaf must be
/// selected. Returns `None` if there are too few digests.
fn trees<'a>(
    schema: &'a SchemaEntry,
    size: u64,
    selected: &'a [Sequence],
    (digests, events): (&'a [u8], &'a [u8]),
) -> Option<Vec<TreeContent<'a>>> {
    let framing = schema.framing;
    let leaves = |digests, cells| Leaves { size, framing, selected, digests, events, cells };
    let Some(layout) = schema.groups.as_deref() else {
        return Some(vec![TreeContent::Shown(leaves(digests, None))]);
    };
    let siblings = usize::try_from(32 * sibling_count(size, selected.iter().copied())).ok()?;
    let mut rest = digests;
    let tree = |group: u8| {
        let is_shown = layout.shown().contains(group);
        let (given, after) = rest.split_at_checked(if is_shown { siblings } else { 32 })?;
        rest = after;
        Some(if is_shown {
            TreeContent::Shown(leaves(given, Some(layout.cells(group))))
        } else {
            TreeContent::Hidden(given)
        })
    };
    layout.all().iter().map(tree).collect()
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
            groups: Vec::new(),
            sanitised: Vec::new(),
        }
    }

    /// Returns the whole part, with the sanitised cells that belong to it.
    pub(super) fn of(proven: &Proven<'_>, sanitised: Vec<Sanitised>) -> Self {
        let (digests, events) = (proven.part.digests.to_vec(), proven.part.events.to_vec());
        let part = Self::with(proven, selected(&proven.part.select), digests, events);
        Self { sanitised: sanitised.into_iter().map(Attached::from).collect(), ..part }
    }

    /// Keeps the digests of the column groups, so that [`show_only`](Self::show_only) need not compute them.
    /// `proven` is the part from which this one was made.
    pub(super) fn keep_groups(&mut self, proven: &Proven<'_>) {
        let is_tree = self.seal.statement().scheme == Scheme::Tree;
        if self.shows_events() && (is_tree || self.selected == selected(&proven.part.select)) {
            self.groups = proven.groups.to_vec();
        }
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

    /// Returns the part with the events only that `keeps` selects, and without sanitised cells unless
    /// all events are kept.
    ///
    /// # Errors
    /// [`NoSingleEvents`] if the part has events, and its seal is a star, of which no single events can
    /// be omitted.
    pub(super) fn keeping(
        proven: &Proven<'_>,
        sanitised: Vec<Sanitised>,
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
            return Ok(Self::of(proven, sanitised));
        }
        let content = (proven.part.digests, proven.part.events);
        let narrowed = || {
            let (mut digests, mut events) = (Vec::new(), Vec::new());
            for tree in trees(proven.schema, statement.counters.total(), &all, content)? {
                match tree {
                    TreeContent::Shown(leaves) => {
                        let (of_tree, records) = leaves.narrowed(&kept)?;
                        digests.extend(of_tree);
                        events = records;
                    }
                    TreeContent::Hidden(root) => digests.extend_from_slice(root),
                }
            }
            Some((digests, events))
        };
        let (digests, events) = narrowed().ok_or(RedactionError::DigestCount)?;
        Ok(Self::with(proven, Selected::Events(kept), digests, events))
    }

    /// Hides the column groups that are not in `kept`, except group 0.
    ///
    /// # Errors
    /// [`RedactionError`], which a verified part does not cause.
    pub(super) fn show_only(&mut self, kept: Groups) -> Result<(), RedactionError> {
        let kept = kept.with(0);
        self.sanitised.retain(|of| kept.contains(of.statement.column_group));
        let Some(layout) = self.schema.groups.as_deref() else { return Ok(()) };
        let dropped = layout.shown().without(kept);
        if dropped.is_empty() {
            return Ok(());
        }
        if self.shows_events() {
            let content =
                Content { digests: (&self.digests[..]).into(), events: (&self.events[..]).into() };
            let Content { digests, events } = self.content_showing(layout, &content, kept)?;
            let shown = (digests.into_owned(), events.into_owned());
            (self.digests, self.events) = shown;
            let of_groups = layout.shown().iter().cycle().zip(std::mem::take(&mut self.groups));
            let stays = of_groups.filter(|(group, _)| kept.contains(*group));
            self.groups = stays.map(|(_, digest)| digest).collect();
        }
        self.schema = self.schema.projection(self.schema.shown().without(dropped))?;
        Ok(())
    }

    /// Returns the content of the part with the groups in `kept` only.
    fn content_showing<'a>(
        &self,
        layout: &GroupLayout,
        content: &Content<'a>,
        kept: Groups,
    ) -> Result<Content<'a>, RedactionError> {
        let (statement, view) = (self.seal.statement(), (layout, self.schema.framing));
        if !self.groups.is_empty() {
            let levels = match self.selected {
                Selected::Levels(levels) => levels,
                Selected::Events(_) => 0,
            };
            return hide_verified(statement, view, levels, content, (&self.groups, kept));
        }
        let events = self.selected_events();
        let selection = match (&self.selected, &events) {
            (Selected::Levels(mask), None) => Selection::Levels(*mask),
            (Selected::Events(events), _) | (_, Some(events)) => Selection::Events(events),
        };
        hide(statement, view, selection, content, kept)
    }

    /// Hides the column group of sanitised cells, and adds the cells.
    ///
    /// # Errors
    /// As for [`show_only`](Self::show_only).
    pub(super) fn attach(&mut self, new: Attached) -> Result<(), RedactionError> {
        let group = new.statement.column_group;
        let sanitised = std::mem::take(&mut self.sanitised);
        self.show_only(self.schema.shown().without(Groups::NONE.with(group)))?;
        self.sanitised = sanitised;
        let place = self.sanitised.partition_point(|of| of.statement.column_group < group);
        self.sanitised.insert(place, new);
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
        let attached = |of: &Attached| of.signed.len() + of.cells.len();
        let sanitised = self.sanitised.iter().map(attached).sum::<usize>();
        size_of::<Self>() + selected + self.digests.len() + self.events.len() + sanitised
    }

    /// Adds what another part of the same seal shows.
    ///
    /// # Errors
    /// [`NotMergeable`]. The part is then unchanged.
    pub(super) fn merge(&mut self, other: &Self) -> Result<(), NotMergeable> {
        let has_sanitised = self.has_sanitised() || other.has_sanitised();
        if other.shows_events() && !self.shows_events()
            || !has_sanitised && !self.contains(other) && other.contains(self)
        {
            let signature = self.signature.take();
            *self = Self { signature, ..other.clone() };
        } else if has_sanitised && other.shows_events() {
            self.merge_sanitised(other)?;
        } else if has_sanitised || self.contains(other) {
            // The other part shows no more.
        } else if self.schema.shown() == other.schema.shown() {
            self.add_events(other)?;
        } else if self.selected == other.selected {
            self.add_groups(other).ok_or(NotMergeable::Parts)?;
        } else {
            return Err(NotMergeable::Parts);
        }
        if self.signature.is_none() {
            self.signature.clone_from(&other.signature);
        }
        Ok(())
    }

    /// Returns whether the part has cells of sanitisers.
    fn has_sanitised(&self) -> bool {
        !self.sanitised.is_empty()
    }

    /// Adds what another part shows, if one of them has sanitised cells. These are for the events of
    /// their part, so parts with other events are not merged. Cells of the device take the place of
    /// sanitised ones.
    fn merge_sanitised(&mut self, other: &Self) -> Result<(), NotMergeable> {
        if self.selected != other.selected {
            if other.sanitised.is_empty() && self.contains(other) {
                return Ok(());
            }
            if self.sanitised.is_empty() && other.contains(self) {
                let signature = self.signature.take();
                *self = Self { signature, ..other.clone() };
                return Ok(());
            }
            return Err(NotMergeable::Parts);
        }
        let mut merged = self.clone();
        if self.schema.shown() != other.schema.shown() {
            merged.add_groups(other).ok_or(NotMergeable::Parts)?;
        }
        for new in &other.sanitised {
            let group = |of: &Attached| of.statement.column_group;
            match merged.sanitised.iter_mut().find(|of| group(of) == group(new)) {
                None => merged.sanitised.push(new.clone()),
                Some(known) if known.statement.says_as(&new.statement) => {
                    // The choice does not depend on the order of the proofs.
                    if new.signed < known.signed {
                        *known = new.clone();
                    }
                }
                Some(known) if known.statement.contradicts(&new.statement) => {
                    return Err(NotMergeable::Statements);
                }
                Some(_) => return Err(NotMergeable::Parts),
            }
        }
        let shown = merged.schema.shown();
        merged.sanitised.retain(|of| !shown.contains(of.statement.column_group));
        merged.sanitised.sort_by_key(|of| of.statement.column_group);
        *self = merged;
        Ok(())
    }

    /// Returns whether the merged part of this part and another one of the same seal shows all that they
    /// show, whatever other parts are merged before or after: none has cells of sanitisers, and one
    /// contains the other, or their schema has no column groups.
    pub(super) fn always_merges(&self, other: &Self) -> bool {
        !self.has_sanitised()
            && !other.has_sanitised()
            && (self.schema.groups.is_none() || self.contains(other) || other.contains(self))
    }

    /// Orders parts of the same seal by what they show.
    pub(super) fn order(&self, other: &Self) -> Ordering {
        let shown = |part: &Self| part.schema.shown().bits();
        self.selected.cmp(&other.selected).then_with(|| shown(self).cmp(&shown(other)))
    }

    /// Returns the smallest number of omitted readings that one digest in the part covers, if they have
    /// plaintext. A reader who can guess them all can test the guess. Ciphertext next to the plaintext
    /// only adds to what must be guessed: 16 bits for a cell of two bytes.
    pub(super) fn fewest_omitted(&self) -> Option<u64> {
        let whole = Schema::decode(&self.schema.whole().bytes).unwrap_or(Schema::OPAQUE);
        if whole.encrypted_count() > 0 && whole.fields().all(|field| field.suite.is_some()) {
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
                self.groups.clear();
                self.selected = Selected::Levels(mask);
            }
            _ => {
                let (selected, digests, events) = self.union(other).ok_or(NotMergeable::Parts)?;
                self.selected = Selected::Events(selected);
                (self.digests, self.events) = (digests, events);
            }
        }
        Ok(())
    }

    fn trees<'a>(&'a self, selected: &'a [Sequence]) -> Option<Vec<TreeContent<'a>>> {
        let size = self.seal.statement().counters.total();
        trees(&self.schema, size, selected, (&self.digests, &self.events))
    }

    /// Returns the events of this part and of another one of the same tree that shows the same groups,
    /// with the digests and records of all trees. Returns `None` if the parts do not fit together, which
    /// verified parts do.
    fn union(&self, other: &Self) -> Option<(Vec<Sequence>, Vec<u8>, Vec<u8>)> {
        let [ours, theirs] =
            [self, other].map(|part| part.selected.sequences(part.seal.statement()));
        let (mut all, mut digests, mut events) = (Vec::new(), Vec::new(), Vec::new());
        for pair in self.trees(&ours)?.into_iter().zip(other.trees(&theirs)?) {
            match pair {
                (TreeContent::Shown(ours), TreeContent::Shown(theirs)) => {
                    let (selected, of_tree, records) = ours.union(&theirs)?;
                    digests.extend(of_tree);
                    (all, events) = (selected, records);
                }
                (TreeContent::Hidden(root), _) => digests.extend_from_slice(root),
                (TreeContent::Shown(_), TreeContent::Hidden(_)) => return None,
            }
        }
        Some((all, digests, events))
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
        self.groups.clear();
        Some(())
    }

    /// Appends the encoding of the part, after the sanitised cells.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for of in &self.sanitised {
            write::sanitised(out, &of.signed, &of.cells);
        }
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoSingleEvents {
    Star,
    /// The digests do not belong to the events, which a verified part does not cause.
    Content(RedactionError),
}

impl From<RedactionError> for NoSingleEvents {
    fn from(error: RedactionError) -> Self {
        Self::Content(error)
    }
}

/// Why two parts of a seal cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotMergeable {
    /// They show different events and different column groups, or cells of different sanitisers for
    /// one group, so that no part shows exactly what either shows.
    Parts,
    /// A sanitiser signed two different statements of one scope.
    Statements,
}

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
