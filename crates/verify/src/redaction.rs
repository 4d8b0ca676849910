//! Leaves column groups out of verified parts, and puts them together again (spec/groups.md, section
//! 6). Neither needs a key: the result verifies under the device's signature.
//!
//! [`redact`] and [`merge`] work on streams: answers, proofs and files of bundles. They verify the
//! streams first. [`hide`] and [`hide_verified`] work on the content of one part: the first for stores that
//! answer with some groups only, the second for those who have verified the part.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{Framing, Level, MAX_LEVELS, Scheme, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::schema::{
    Column, Field, FieldType, GroupLayout, Groups, MAX_GROUPS, Projection, Schema,
};
use moteseal_lanes::{copied_length, copy_cells};
use moteseal_seal::follow::{Limits, PartError};
use moteseal_seal::stream::{Item, Part, Select, Selection};
use moteseal_seal::{Authentic, Seal, Statement, star, tree};

use crate::error::ReadError;
use crate::event::{Event, Proven, SchemaEntry};
use crate::reader::StreamReader;
use crate::write;

named_errors! {
    /// Why groups cannot be left out or put together.
    RedactionError {
        /// The schema does not have the groups, or group 0 is not among them.
        Part(error: PartError) => from,
        /// The digests or events of a part do not belong to its selection.
        DigestCount => "the digests of the part do not belong to its events; verify it first",
        /// A part of one stream is of another seal than the part at the same place of the other
        /// stream, or the streams differ in other items.
        NotOneOriginal => "the two are not from one original; merge only what was redacted from the \
            same answer",
    }
}

/// Why a stream cannot be redacted or merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamRedactionError {
    /// A stream does not verify.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The groups cannot be left out or put together.
    #[error(transparent)]
    Redaction(#[from] RedactionError),
}

impl StreamRedactionError {
    /// Returns the stable name of the error (spec/errors.md).
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Read(error) => error.name(),
            Self::Redaction(error) => error.name(),
        }
    }
}

/// Appends a copy of a stream in which the parts show only the groups that `shown` returns for their
/// schema. Groups that a part does not show stay hidden. Group 0 is always shown. Parts of schemas
/// without groups do not change.
///
/// # Errors
/// [`StreamRedactionError`]: the stream does not verify.
pub fn redact<D: Directory + Sync + ?Sized>(
    out: &mut Vec<u8>,
    stream: &[u8],
    (directory, limits): (&D, Limits),
    shown: &mut dyn FnMut(&SchemaEntry) -> Groups,
) -> Result<(), StreamRedactionError> {
    let mut parts = Vec::new();
    read(stream, directory, limits, &mut |proven| {
        let kept = shown(proven.schema.whole());
        let mut part = Vec::new();
        redact_part(&mut part, proven, kept)?;
        parts.push(part);
        Ok(())
    })?;
    let mut parts = parts.iter();
    for (item, bytes) in items(stream) {
        match item {
            Item::Part(_) => out.extend_from_slice(parts.next().map_or(bytes, Vec::as_slice)),
            _ => out.extend_from_slice(bytes),
        }
    }
    Ok(())
}

/// Appends the stream whose parts show the groups of both streams. The streams must be equal except
/// for the groups that they show.
///
/// # Errors
/// [`StreamRedactionError`]: a stream does not verify, or `NotOneOriginal`.
pub fn merge<D: Directory + Sync + ?Sized>(
    out: &mut Vec<u8>,
    (first, second): (&[u8], &[u8]),
    (directory, limits): (&D, Limits),
) -> Result<(), StreamRedactionError> {
    let kept = |stream: &[u8]| {
        let mut parts = Vec::new();
        read(stream, directory, limits, &mut |proven| {
            parts.push((proven.seal.clone(), Arc::clone(proven.schema)));
            Ok(())
        })?;
        Ok::<_, StreamRedactionError>(parts)
    };
    let mut parts = kept(first)?.into_iter().zip(kept(second)?);
    let (mut of_first, mut of_second) = (items(first), items(second));
    loop {
        match (of_first.next(), of_second.next()) {
            (None, None) => return Ok(()),
            (Some((Item::Part(a), _)), Some((Item::Part(b), _))) => {
                let (one, other) = parts.next().ok_or(RedactionError::NotOneOriginal)?;
                if one.0.digest() != other.0.digest() {
                    return Err(RedactionError::NotOneOriginal.into());
                }
                merge_parts(out, &one.0, (&a, &one.1), (&b, &other.1))?;
            }
            (Some((_, a)), Some((_, b))) if a == b => out.extend_from_slice(a),
            _ => return Err(RedactionError::NotOneOriginal.into()),
        }
    }
}

/// Verifies a stream and passes its parts to `each`, in their order.
fn read<D: Directory + Sync + ?Sized>(
    stream: &[u8],
    directory: &D,
    limits: Limits,
    each: &mut dyn FnMut(&Proven<'_>) -> Result<(), RedactionError>,
) -> Result<(), StreamRedactionError> {
    let mut reader = StreamReader::new(directory, limits);
    let mut visit = |event: Event<'_>| match event {
        Event::Proven(proven) => each(&proven).map_err(StreamRedactionError::Redaction),
        _ => Ok(()),
    };
    reader.feed(stream, &mut visit)?;
    reader.finish(&mut visit)
}

/// Returns the items of a stream that has been verified.
fn items(stream: &[u8]) -> impl Iterator<Item = (Item<'_>, &[u8])> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        let (item, length): (_, usize) = Item::decode(rest).ok()?;
        let (bytes, tail) = rest.split_at(length);
        rest = tail;
        Some((item, bytes))
    })
}

/// Appends a copy of a verified part that shows only the groups in `kept`, of those that the part
/// shows. Group 0 is always shown.
///
/// # Errors
/// `DigestCount`, which a verified part does not cause.
pub fn redact_part(
    out: &mut Vec<u8>,
    proven: &Proven<'_>,
    kept: Groups,
) -> Result<(), RedactionError> {
    let part = proven.part;
    let kept = kept.with(0);
    let layout = match proven.schema.groups.as_deref() {
        Some(layout) if !layout.shown().is_subset(kept) => layout,
        _ => {
            out.extend_from_slice(proven.bytes);
            return Ok(());
        }
    };
    let levels = match part.select {
        Select::Levels(levels) => levels,
        Select::Events(_) => 0,
    };
    let content = Content { digests: part.digests.into(), events: part.events.into() };
    let statement = proven.seal.statement();
    let digests = digests_of_verified(statement, layout, levels, &content, (proven.groups, kept))?;
    let shown = Groups::from_bits(layout.shown().bits() & kept.bits());
    let projection = Projection::new(layout, shown);
    let (cells, framing) = (projection.cells(), proven.schema.framing);
    let events = copied_length(cells, framing, part.events);
    let append = |out: &mut Vec<u8>| copy_cells(out, cells, framing, part.events);
    write::part_showing_with(out, part, shown, &digests, (events, append));
    Ok(())
}

/// The digests and events of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content<'a> {
    /// The digests that replace what is not in the part, 32 bytes each.
    pub digests: Cow<'a, [u8]>,
    /// The records of the selected events.
    pub events: Cow<'a, [u8]>,
}

/// Returns the digests and events of the part that shows only the groups in `kept`, of those that
/// `layout` shows. `content` is that of the part with the groups of `layout`, whose records
/// `framing` delimits. `selection` must be the levels of a star, or the events of a tree.
///
/// # Errors
/// `DigestCount` if the digests or events do not belong to the selection.
pub fn hide<'a>(
    statement: &Statement,
    (layout, framing): (&GroupLayout, Framing),
    selection: Selection<'_>,
    content: &Content<'a>,
    kept: Groups,
) -> Result<Content<'a>, RedactionError> {
    let dropped = layout.shown().without(kept);
    if dropped.is_empty() {
        return Ok(content.clone());
    }
    let view = (layout, framing);
    let (mask, digests) = match selection {
        Selection::Levels(mask) => {
            (mask, digests_of_star(statement, view, mask, &content.events, dropped)?)
        }
        Selection::Events(sequence) => {
            (0, digests_of_tree(statement, view, sequence, content, dropped)?)
        }
    };
    let digests = replaced(statement, layout, mask, content, (dropped, digests.into_iter()))?;
    Ok(without(dropped, view, digests, content))
}

/// Does what [`hide`] does for a part that was verified, without hashing. `groups` are the digests of the
/// groups that the part shows ([`Proven::groups`]). `levels` are those of a star's part, as a bit mask; they
/// have no meaning for a tree.
///
/// # Errors
/// `DigestCount` if there are too few digests. With wrong digests, the result does not verify.
pub fn hide_verified<'a>(
    statement: &Statement,
    (layout, framing): (&GroupLayout, Framing),
    levels: u32,
    content: &Content<'a>,
    (groups, kept): (&[Digest], Groups),
) -> Result<Content<'a>, RedactionError> {
    let dropped = layout.shown().without(kept);
    if dropped.is_empty() {
        return Ok(content.clone());
    }
    let digests = digests_of_verified(statement, layout, levels, content, (groups, kept))?;
    Ok(without(dropped, (layout, framing), digests, content))
}

/// Returns the digests of [`hide_verified`].
fn digests_of_verified(
    statement: &Statement,
    layout: &GroupLayout,
    levels: u32,
    content: &Content<'_>,
    (groups, kept): (&[Digest], Groups),
) -> Result<Vec<u8>, RedactionError> {
    let dropped = layout.shown().without(kept);
    let of_groups = layout.shown().iter().cycle().zip(groups);
    let digests = of_groups.filter(|(group, _)| dropped.contains(*group));
    let digests = digests.map(|(_, digest)| *digest);
    replaced(statement, layout, levels, content, (dropped, digests))
}

/// Returns the content with these digests and without the cells of the groups `dropped`.
fn without<'a>(
    dropped: Groups,
    (layout, framing): (&GroupLayout, Framing),
    digests: Vec<u8>,
    content: &Content<'_>,
) -> Content<'a> {
    let projection = Projection::new(layout, layout.shown().without(dropped));
    let mut events = Vec::new();
    copy_cells(&mut events, projection.cells(), framing, &content.events);
    Content { digests: digests.into(), events: events.into() }
}

/// Returns the digests of the part in which digests take the place of the groups `dropped`. In
/// a star, there is a digest for each of `levels` and of the groups, ascending; in a tree, for each group.
fn replaced(
    statement: &Statement,
    layout: &GroupLayout,
    levels: u32,
    content: &Content<'_>,
    (dropped, digests): (Groups, impl Iterator<Item = Digest>),
) -> Result<Vec<u8>, RedactionError> {
    match statement.scheme {
        Scheme::Star => replaced_in_star(statement, layout, levels, content, (dropped, digests)),
        Scheme::Tree => replaced_in_tree(layout, content, (dropped, digests)),
    }
}

fn replaced_in_star(
    statement: &Statement,
    layout: &GroupLayout,
    levels: u32,
    content: &Content<'_>,
    (dropped, mut new): (Groups, impl Iterator<Item = Digest>),
) -> Result<Vec<u8>, RedactionError> {
    let count = 32 * star::star_digests(statement.surviving(), levels) as usize;
    let (evidence, given) =
        content.digests.split_at_checked(count).ok_or(RedactionError::DigestCount)?;
    let mut given = given.as_chunks::<32>().0.iter();
    let mut digests = evidence.to_vec();
    for _ in 0..levels.count_ones() {
        for group in layout.hidden().union(dropped).iter() {
            let digest = if dropped.contains(group) {
                new.next().map(|digest| digest.0)
            } else {
                given.next().copied()
            };
            digests.extend_from_slice(&digest.ok_or(RedactionError::DigestCount)?);
        }
    }
    Ok(digests)
}

fn replaced_in_tree(
    layout: &GroupLayout,
    content: &Content<'_>,
    (dropped, mut new): (Groups, impl Iterator<Item = Digest>),
) -> Result<Vec<u8>, RedactionError> {
    let given = &content.digests[..];
    if content.events.is_empty() {
        return Ok(given.to_vec());
    }
    let of_shown = given.len().checked_sub(32 * layout.hidden().len());
    let siblings = of_shown.ok_or(RedactionError::DigestCount)? / layout.shown().len();
    let (mut digests, mut rest) = (Vec::new(), given);
    for group in layout.all().iter() {
        let length = if layout.shown().contains(group) { siblings } else { 32 };
        let (given, tail) = rest.split_at_checked(length).ok_or(RedactionError::DigestCount)?;
        rest = tail;
        if dropped.contains(group) {
            digests.extend_from_slice(&new.next().ok_or(RedactionError::DigestCount)?.0);
        } else {
            digests.extend_from_slice(given);
        }
    }
    Ok(digests)
}

/// Computes the digests of the groups `dropped`, of each level in `mask`.
fn digests_of_star(
    statement: &Statement,
    view: (&GroupLayout, Framing),
    mask: u32,
    events: &[u8],
    dropped: Groups,
) -> Result<Vec<Digest>, RedactionError> {
    let blocks = blocks(statement, view.1, mask, events)?;
    let mut digests = Vec::new();
    for level in (0..statement.counters.levels()).filter(|level| mask >> level & 1 == 1) {
        let block = &events[blocks[usize::from(level)].clone()];
        let mut computed = [Digest::NULL; MAX_GROUPS];
        let place = (statement.device, statement.index, Level(level));
        star::group_digests(place, view, dropped, block, &mut computed);
        digests.extend_from_slice(&computed[..dropped.len()]);
    }
    Ok(digests)
}

/// Computes the roots of the trees of the groups `dropped`.
fn digests_of_tree(
    statement: &Statement,
    view: (&GroupLayout, Framing),
    sequence: &[Sequence],
    content: &Content<'_>,
    dropped: Groups,
) -> Result<Vec<Digest>, RedactionError> {
    if sequence.is_empty() {
        return Ok(Vec::new());
    }
    let (n, selected) = (statement.counters.total(), sequence.iter().copied());
    let roots = tree::shown_roots(n, view, selected, (&content.events, &content.digests))
        .map_err(|_| RedactionError::DigestCount)?;
    let of_all = view.0.all().iter().zip(roots);
    Ok(of_all.filter(|(group, _)| dropped.contains(*group)).map(|(_, root)| root).collect())
}

/// Returns the place of the block of each level in `mask`.
fn blocks(
    statement: &Statement,
    framing: Framing,
    mask: u32,
    events: &[u8],
) -> Result<[Range<usize>; MAX_LEVELS], RedactionError> {
    let mut blocks = std::array::from_fn(|_| 0..0);
    let mut start = 0;
    let levels = statement.counters.levels();
    for level in (0..levels).rev().filter(|level| mask >> level & 1 == 1) {
        let length = framing.length_of(&events[start..], statement.counters.at(Level(level)));
        let end = start + length.ok_or(RedactionError::DigestCount)?;
        blocks[usize::from(level)] = start..end;
        start = end;
    }
    Ok(blocks)
}

/// Appends the part that shows the groups of both parts. The parts must be proven, and of one seal.
///
/// # Errors
/// `NotOneOriginal` if the parts select different events.
pub fn merge_parts(
    out: &mut Vec<u8>,
    seal: &Seal<Authentic>,
    first: (&Part<'_>, &Arc<SchemaEntry>),
    second: (&Part<'_>, &Arc<SchemaEntry>),
) -> Result<(), RedactionError> {
    let statement = seal.statement();
    let shown = first.1.shown().union(second.1.shown());
    let entry = first.1.projection(shown)?;
    let same_selection = match (&first.0.select, &second.0.select) {
        (Select::Levels(a), Select::Levels(b)) => a == b,
        (Select::Events(a), Select::Events(b)) => a.iter().eq(b.iter()),
        _ => false,
    };
    if !same_selection || first.0.signature != second.0.signature {
        return Err(RedactionError::NotOneOriginal);
    }
    let events = MergePlan::new(first.1, second.1, shown).events(first, second, &entry);
    let digests = match (entry.groups.as_deref(), &first.0.select, statement.scheme) {
        (Some(layout), Select::Levels(mask), Scheme::Star) => {
            merged_in_star(statement, layout, *mask, first)?
        }
        (Some(layout), _, Scheme::Tree) if !first.0.events.is_empty() => {
            merged_in_tree(layout, first, second)?
        }
        _ => first.0.digests.to_vec(),
    };
    write::part_showing(out, first.0, shown, &digests, &events);
    Ok(())
}

/// Returns the digests of a star's part that shows the groups of `layout`: those of a part that shows
/// less, without the digests of the groups that are now shown.
fn merged_in_star(
    statement: &Statement,
    layout: &GroupLayout,
    mask: u32,
    (part, entry): (&Part<'_>, &Arc<SchemaEntry>),
) -> Result<Vec<u8>, RedactionError> {
    let count = 32 * star::star_digests(statement.surviving(), mask) as usize;
    let (evidence, given) =
        part.digests.split_at_checked(count).ok_or(RedactionError::DigestCount)?;
    let mut digests = evidence.to_vec();
    let groups = entry.hidden();
    for of_level in given.chunks_exact((32 * groups.len()).max(1)) {
        for (group, digest) in groups.iter().zip(of_level.chunks_exact(32)) {
            if layout.hidden().contains(group) {
                digests.extend_from_slice(digest);
            }
        }
    }
    Ok(digests)
}

/// Returns the digests of a tree's part that shows the groups of `layout`.
fn merged_in_tree(
    layout: &GroupLayout,
    first: (&Part<'_>, &Arc<SchemaEntry>),
    second: (&Part<'_>, &Arc<SchemaEntry>),
) -> Result<Vec<u8>, RedactionError> {
    let split = |(part, entry): (&Part<'_>, &Arc<SchemaEntry>)| {
        let (shown, hidden) = (entry.shown().len().max(1), entry.hidden().len());
        let siblings = part.digests.len().checked_sub(32 * hidden)? / shown;
        let mut start = 0;
        Some(std::array::from_fn::<_, MAX_GROUPS, _>(|group| {
            let group = u8::try_from(group).unwrap_or(0);
            let length = match (entry.shown().contains(group), entry.hidden().contains(group)) {
                (true, _) => siblings,
                (_, true) => 32,
                _ => 0,
            };
            let range = start..start + length;
            start = range.end;
            range
        }))
    };
    let of_first = split(first).ok_or(RedactionError::DigestCount)?;
    let of_second = split(second).ok_or(RedactionError::DigestCount)?;
    let mut out = Vec::new();
    for group in layout.all().iter() {
        let is_in_second = !first.1.shown().contains(group) && second.1.shown().contains(group);
        let (part, ranges) =
            if is_in_second { (second.0, &of_second) } else { (first.0, &of_first) };
        let digests = part.digests.get(ranges[usize::from(group)].clone());
        out.extend_from_slice(digests.ok_or(RedactionError::DigestCount)?);
    }
    Ok(out)
}

/// Where the cells of a merged record come from. `false` means the first part.
struct MergePlan {
    fixed: Vec<(bool, Range<usize>)>,
    /// The position of each text cell among the texts of its record.
    texts: Vec<(bool, usize)>,
    /// The offset of the first text cell in the records of each part.
    starts: [usize; 2],
}

impl MergePlan {
    fn new(first: &SchemaEntry, second: &SchemaEntry, shown: Groups) -> Self {
        let whole = Schema::decode(&first.whole().bytes).unwrap_or(Schema::OPAQUE);
        let fields = |entry: &SchemaEntry| -> Vec<Option<Field<'_>>> {
            whole.columns(entry.shown()).map(|column| column.shown().ok()).collect()
        };
        let sources = [fields(first), fields(second)];
        let size = |field: &Field<'_>| {
            if field.kind == FieldType::Text { 0 } else { field.kind.size() }
        };
        let starts = [0, 1].map(|part: usize| sources[part].iter().flatten().map(size).sum());
        let mut plan = Self { fixed: Vec::new(), texts: Vec::new(), starts };
        let mut texts = [0, 0];
        for ((column, a), b) in whole.columns(shown).zip(&sources[0]).zip(&sources[1]) {
            let is_text = matches!(&column, Column::Shown(field) if field.kind == FieldType::Text);
            if let (Column::Shown(_), Some((is_second, field))) =
                (column, a.map(|field| (false, field)).or(b.map(|field| (true, field))))
            {
                if is_text {
                    plan.texts.push((is_second, texts[usize::from(is_second)]));
                } else {
                    plan.add(is_second, field.start()..field.start() + field.kind.size());
                }
            }
            texts[0] += usize::from(is_text && a.is_some());
            texts[1] += usize::from(is_text && b.is_some());
        }
        plan
    }

    fn add(&mut self, is_second: bool, range: Range<usize>) {
        match self.fixed.last_mut() {
            Some((source, last)) if *source == is_second && last.end == range.start => {
                last.end = range.end;
            }
            _ => self.fixed.push((is_second, range)),
        }
    }

    fn events(
        &self,
        first: (&Part<'_>, &Arc<SchemaEntry>),
        second: (&Part<'_>, &Arc<SchemaEntry>),
        entry: &SchemaEntry,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(first.0.events.len() + second.0.events.len());
        let (mut record, mut rest) = (Vec::new(), [first.0.events, second.0.events]);
        let framings = [first.1.framing, second.1.framing];
        while let (Some((a, after_a)), Some((b, after_b))) =
            (framings[0].split_first(rest[0]), framings[1].split_first(rest[1]))
        {
            rest = [after_a, after_b];
            self.record([a, b], &mut record);
            entry.framing.frame(&record, |bytes| out.extend_from_slice(bytes));
            if rest.iter().all(|rest| rest.is_empty()) {
                break;
            }
        }
        out
    }

    fn record(&self, sources: [&[u8]; 2], record: &mut Vec<u8>) {
        record.clear();
        for (is_second, range) in &self.fixed {
            let cell = sources[usize::from(*is_second)].get(range.clone());
            record.extend_from_slice(cell.unwrap_or_default());
        }
        for (is_second, skip) in &self.texts {
            let part = usize::from(*is_second);
            let mut rest = sources[part].get(self.starts[part]..).unwrap_or_default();
            for _ in 0..*skip {
                rest = &rest[text_length(rest)..];
            }
            record.extend_from_slice(&rest[..text_length(rest)]);
        }
    }
}

/// Returns the length of the text cell at the start of `bytes`, which have been checked.
fn text_length(bytes: &[u8]) -> usize {
    let length = match bytes.first() {
        Some(&length) if length != u8::MAX => 1 + usize::from(length),
        Some(_) => 1,
        None => 0,
    };
    length.min(bytes.len())
}
