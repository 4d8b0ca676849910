//! Reading a stream run by run: nothing is handed out before a signature has proven it.
//!
//! Items arrive in chunks of any size. Parts are buffered until a signed one ends their run, then rebuilt, proven newest first, and
//! handed out oldest first. What comes before a signature is bounded in parts, in bytes and in work (`RunTooLong`). The runs of a chunk
//! are worked on together ([`ahead`](crate::ahead)), which changes nothing in what comes out.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use moteseal_core::cbor::{DecodeError, Scanner};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, Framing, MAX_LEVELS, Round, SealIndex};
use moteseal_core::roster::Directory;
use moteseal_core::schema::{Schema, SchemaError};
use moteseal_lanes::{Host, Recall};
use moteseal_seal::follow::{Limits, Rebuilt, Shape, Stride};
use moteseal_seal::sample::{Manifest, Sample};
use moteseal_seal::stream::{
    Item, MAX_ITEM, MAX_RUN_BYTES, MAX_RUN_EVENTS, MAX_RUN_ITEMS, MAX_RUN_PARTS, Open, Part, Select,
};
use moteseal_seal::{Authentic, Follower, Seal, Statement, Unverified};

use crate::ahead::Ahead;
use crate::manifest;
use crate::refused::{ReadError, ReadErrorKind};

/// A stream schema in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEntry {
    /// Its encoding.
    pub bytes: Vec<u8>,
    /// Its digest.
    pub digest: Digest,
    /// How its records lie next to each other.
    pub framing: Framing,
}

impl SchemaEntry {
    /// Reads a schema.
    ///
    /// # Errors
    /// As [`Schema::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SchemaError> {
        let schema = Schema::decode(bytes)?;
        let framing = schema.record_size().and_then(Framing::fixed).unwrap_or(Framing::Prefixed);
        Ok(Self { digest: schema.digest(), framing, bytes: bytes.to_vec() })
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { digest: self.digest, framing: self.framing }
    }
}

/// One part of a proven run.
#[derive(Debug)]
pub struct Proven<'a> {
    /// The seal.
    pub seal: &'a Seal<Authentic>,
    /// The selected events.
    pub sample: Sample<'a, Authentic>,
    /// The item.
    pub part: &'a Part<'a>,
    /// The item's bytes.
    pub bytes: &'a [u8],
    /// A star's `D_i` of each level that is in the part; null elsewhere, and for a tree.
    pub blocks: &'a [Digest; MAX_LEVELS],
    /// The schema.
    pub schema: &'a Arc<SchemaEntry>,
}

impl Proven<'_> {
    /// Whether every event that survived is here: the part selects each surviving level. A bundle that lacks one is `NotWhole`,
    /// though its signature holds.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        matches!(self.part.select, Select::Levels(mask) if mask == self.seal.statement().surviving())
    }

    /// The round with regard to which the part is whole: every level that survived from it on is here, and none below. 0 if
    /// the part is whole; `None` if it selects anything else than the levels from a round on.
    #[must_use]
    pub fn whole_from(&self) -> Option<Round> {
        match self.part.select {
            Select::Levels(mask) => kept_from(self.seal.statement(), mask),
            Select::Events(_) => None,
        }
    }
}

/// The lowest round from which on `mask` holds every surviving level, if it holds none below it.
#[must_use]
pub fn kept_from(statement: &Statement, mask: u32) -> Option<Round> {
    let lacking = statement.surviving() & !mask;
    #[allow(clippy::cast_possible_truncation)]
    let round = Round((u32::BITS - lacking.leading_zeros()) as u8);
    let holes = mask & 1u32.checked_shl(round.0.into()).map_or(u32::MAX, |next| next - 1);
    (holes == 0 && mask & !statement.surviving() == 0).then_some(round)
}

/// What a stream says.
// Passed on at once, never stored.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Event<'a> {
    /// One part of a proven run.
    Proven(Proven<'a>),
    /// A proof's query.
    Proof(&'a str),
    /// The explaining form of a seal: its `COSE_Sign1` and digests, unverified.
    Explain(&'a [u8], &'a [u8]),
    /// A coordinator's manifest, authentic, and its tagged `COSE_Sign1`.
    Manifest(Manifest<'a>, &'a [u8]),
    /// The answer is whole.
    End,
    /// The server could not go on: the error's name, and what happened.
    Problem(&'a str, &'a str),
}

/// One part of a run that failed: what a store's explanation is compared with. Nothing of it is proven.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The seal as rebuilt from what came.
    pub seal: Seal<Unverified>,
    /// A star's `D_i` of each level that came; null elsewhere, and for a tree.
    pub blocks: [Digest; MAX_LEVELS],
    /// The part item's bytes.
    pub item: Vec<u8>,
    /// The schema it came under.
    pub schema: Arc<SchemaEntry>,
}

/// Gives the digest of a seal that the receiver has: of a device, by index. Runs are worked on together, so that it is asked more than once,
/// on any thread, and maybe before what stands earlier in the stream has been handed out: what that adds need not be found yet.
pub type Known<'d> = Box<dyn Fn(DeviceId, SealIndex) -> Option<Digest> + Send + Sync + 'd>;

/// How much a stream of bundles may hold, as uploads are: every part signed for itself, and no items of answers or proofs.
#[derive(Clone, Copy, Debug)]
pub struct Bundles {
    /// At most so many parts; the next one is `TooManyParts`.
    pub parts: usize,
    /// The parts may claim at most so many events together; the part that passes it is `TooManyEvents`.
    pub events: u64,
}

/// Reads a stream.
pub struct StreamReader<'d, D: ?Sized> {
    directory: &'d D,
    follower: Follower<'d, D, Recall>,
    known: Option<Known<'d>>,
    /// What is left of the bundles that may come, and of their events; `None` takes any stream.
    bundles: Option<(Bundles, Bundles)>,
    schema: Option<Arc<SchemaEntry>>,
    buffer: Vec<u8>,
    /// Where the next item starts in the buffer.
    at: usize,
    /// How far the next item has been looked at.
    scanner: Scanner,
    /// The parts of the run so far: where each lies, its item number and schema.
    run: Vec<Pending>,
    /// What the run has come to.
    load: Load,
    /// Whole runs, and open items, that have come and were not looked at.
    ready: Vec<Ready>,
    /// What they come to.
    waiting: Waiting,
    threads: NonZero<usize>,
    items: usize,
    failed: bool,
    suspects: Vec<Suspect>,
}

/// What has come since the last proven run, to be bounded.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Bytes of schema, open and part items, and of all others within a run.
    items: usize,
    /// Bytes of the parts' records.
    records: usize,
    /// Events that the parts claim to cover, the newest part's apart.
    claimed: u64,
    newest: u64,
}

impl Load {
    fn add(&mut self, item: &Item<'_>, length: usize, within_run: bool) {
        match item {
            Item::Part(part) => {
                self.records += part.events.len();
                self.claimed += self.newest;
                self.newest = u64::from(part.n);
            }
            Item::Schema(_) | Item::Open(_) => {}
            // Handed out at once, unless they stand where nothing may be let go.
            Item::Proof { .. }
            | Item::Explain { .. }
            | Item::Problem { .. }
            | Item::Manifest(_)
            | Item::End
                if !within_run =>
            {
                return;
            }
            Item::Proof { .. }
            | Item::Explain { .. }
            | Item::Problem { .. }
            | Item::Manifest(_)
            | Item::End => {}
        }
        self.items += length;
    }

    const fn is_too_much(&self) -> bool {
        self.records > MAX_RUN_BYTES || self.items > MAX_RUN_ITEMS || self.claimed > MAX_RUN_EVENTS
    }
}

/// A part that waits.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) range: Range<usize>,
    item: usize,
    pub(crate) stride: Stride,
    /// Events that the part claims to cover.
    pub(crate) events: u32,
    pub(crate) schema: Option<Arc<SchemaEntry>>,
}

/// What waits to be worked on together, in the order of the stream.
#[derive(Debug)]
pub(crate) enum Ready {
    /// A device's, by the number of the item.
    Open(Open, usize),
    /// A run, whole, by the number of its last item.
    Run(Vec<Pending>, usize),
}

/// How much waits. What a stranger sends is never worked on much further ahead of its signatures than without waiting.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    parts: usize,
    bytes: usize,
    /// Events that the parts claim to cover.
    claimed: u64,
}

impl Waiting {
    /// Beyond any of these nothing waits longer.
    const MOST: Self = Self { parts: 1024, bytes: 1 << 20, claimed: 1 << 20 };

    const fn is_enough(&self) -> bool {
        self.parts >= Self::MOST.parts
            || self.bytes >= Self::MOST.bytes
            || self.claimed >= Self::MOST.claimed
    }
}

impl<D: ?Sized> fmt::Debug for StreamReader<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReader")
            .field("items", &self.items)
            .field("buffered", &self.buffer.len())
            .finish_non_exhaustive()
    }
}

impl<'d, D: Directory + Sync + ?Sized> StreamReader<'d, D> {
    /// A reader that goes by `directory`.
    #[must_use]
    pub fn new(directory: &'d D, limits: Limits) -> Self {
        Self::with_engine(directory, limits, Host::detect().into())
    }

    /// The same with an engine that recalls for whoever hands events out what the reader has hashed.
    #[must_use]
    pub fn with_engine(directory: &'d D, limits: Limits, engine: Recall) -> Self {
        Self {
            directory,
            follower: Follower::new(directory, engine, limits),
            known: None,
            bundles: None,
            schema: None,
            buffer: Vec::new(),
            at: 0,
            scanner: Scanner::default(),
            run: Vec::new(),
            load: Load::default(),
            ready: Vec::new(),
            waiting: Waiting::default(),
            threads: NonZero::<usize>::MIN,
            items: 0,
            failed: false,
            suspects: Vec::new(),
        }
    }

    /// The same, with the digests of seals that the receiver has, for open items that leave `prev` out.
    #[must_use]
    pub fn with_known(mut self, known: Known<'d>) -> Self {
        self.known = Some(known);
        self
    }

    /// The same, verifying on so many threads, the caller's included. What is handed out, in which order, and what is refused and
    /// why, does not depend on it.
    #[must_use]
    pub const fn with_threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// The same, taking nothing but bundles, and no more than `most`. A part that passes it, that has no signature of its own, or
    /// any other item is refused before any of its events is hashed.
    #[must_use]
    pub const fn of_bundles(mut self, most: Bundles) -> Self {
        self.bundles = Some((most, most));
        self
    }

    /// Takes the next bytes and hands out what they prove.
    ///
    /// # Errors
    /// [`ReadError`], or what `visit` returns; the reader then takes no more.
    pub fn feed<E: From<ReadError>>(
        &mut self,
        bytes: &[u8],
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.failed {
            return Ok(());
        }
        self.buffer.extend_from_slice(bytes);
        let result = self.drain(visit);
        self.failed = result.is_err();
        result
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// `Truncated` within an item, `Unsigned` within a run, or what `visit` returns.
    pub fn finish<E: From<ReadError>>(
        mut self,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.failed {
            return Ok(());
        }
        if self.at < self.buffer.len() {
            self.judge_unsigned_parts()?;
            return Err(self.error(ReadErrorKind::Decode(DecodeError::Truncated)).into());
        }
        self.refuse_unsigned()?;
        let _ = visit;
        Ok(())
    }

    /// The parts of the run that failed to prove, oldest first; empty unless `feed` has failed for that reason.
    #[must_use]
    pub fn suspects(&self) -> &[Suspect] {
        &self.suspects
    }

    fn error(&self, kind: ReadErrorKind) -> ReadError {
        ReadError {
            kind,
            item: self.items,
            device: self.follower.position().map(|(device, _)| device),
            run: None,
        }
    }

    fn drain<E: From<ReadError>>(
        &mut self,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // The buffer is taken out of self for as long as items borrow from it.
        let buffer = std::mem::take(&mut self.buffer);
        let mut done = Ok(Step::Item);
        while let Ok(Step::Item) = done {
            done = self.step(&buffer, visit);
        }
        let done = done.and_then(|_| self.flush(&buffer, visit));
        self.buffer = buffer;
        // What nothing refers to any more is dropped.
        let first = self.run.first().map_or(self.at, |part| part.range.start);
        self.buffer.drain(..first);
        self.at -= first;
        for part in &mut self.run {
            part.range = part.range.start - first..part.range.end - first;
        }
        done
    }

    fn step<E: From<ReadError>>(
        &mut self,
        buffer: &[u8],
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<Step, E> {
        let rest = &buffer[self.at..];
        if rest.is_empty() {
            return Ok(Step::NeedMore);
        }
        // Whatever stands behind the longest item does not matter.
        let decoded = match self.scanner.scan(&rest[..rest.len().min(MAX_ITEM + 1)]) {
            Ok(length) if length <= MAX_ITEM => {
                Item::decode_whole(&rest[..length]).map(|item| (item, length))
            }
            Err(DecodeError::Truncated) if rest.len() <= MAX_ITEM => return Ok(Step::NeedMore),
            Ok(_) | Err(DecodeError::Truncated) => {
                self.flush(buffer, visit)?;
                return Err(self.too_long(buffer).into());
            }
            Err(error) => Err(error),
        };
        self.scanner = Scanner::default();
        let (item, length) = match decoded {
            Ok(decoded) => decoded,
            Err(error) => {
                self.flush(buffer, visit)?;
                self.judge_pending(buffer)?;
                return Err(self.error(ReadErrorKind::Decode(error)).into());
            }
        };
        if let Some(kind) = self.no_bundle(&item) {
            self.flush(buffer, visit)?;
            return Err(self.error(kind).into());
        }
        self.load.add(&item, length, !self.run.is_empty());
        let range = self.at..self.at + length;
        if let Item::Part(part) = &item {
            let (range, schema) = (range.clone(), self.schema.clone());
            self.run.push(Pending {
                range,
                item: self.items,
                stride: Stride::of(part),
                events: part.n,
                schema,
            });
        }
        if self.run.len() > MAX_RUN_PARTS || self.load.is_too_much() {
            self.flush(buffer, visit)?;
            return Err(self.too_long(buffer).into());
        }
        match item {
            Item::Part(part) => {
                self.waiting.parts += 1;
                self.waiting.bytes += length;
                self.waiting.claimed += u64::from(part.n);
                if part.signature.is_some() {
                    self.ready.push(Ready::Run(std::mem::take(&mut self.run), self.items));
                    self.load = Load::default();
                    if self.waiting.is_enough() {
                        self.flush(buffer, visit)?;
                    }
                }
            }
            Item::Schema(bytes) => match SchemaEntry::decode(bytes) {
                Ok(entry) => self.schema = Some(Arc::new(entry)),
                Err(error) => {
                    self.flush(buffer, visit)?;
                    self.judge_pending(buffer)?;
                    return Err(self.error(ReadErrorKind::Schema(error)).into());
                }
            },
            Item::Open(open) => {
                if !self.run.is_empty() || self.ready.len() >= Waiting::MOST.parts {
                    self.flush(buffer, visit)?;
                }
                self.unless_in_run(buffer)?;
                self.ready.push(Ready::Open(open, self.items));
            }
            Item::Manifest(bytes) => {
                self.flush(buffer, visit)?;
                self.unless_in_run(buffer)?;
                let manifest = manifest::open(bytes, self.directory);
                let manifest =
                    manifest.map_err(|error| self.error(ReadErrorKind::Manifest(error)))?;
                visit(Event::Manifest(manifest, bytes))?;
            }
            Item::Proof { query } => {
                self.flush(buffer, visit)?;
                visit(Event::Proof(query))?;
            }
            Item::Explain { seal, digests } => {
                self.flush(buffer, visit)?;
                visit(Event::Explain(seal, digests))?;
            }
            Item::Problem { name, detail } => {
                self.flush(buffer, visit)?;
                visit(Event::Problem(name, detail))?;
            }
            Item::End => {
                self.flush(buffer, visit)?;
                self.unless_in_run(buffer)?;
                visit(Event::End)?;
            }
        }
        self.at = range.end;
        self.items += 1;
        Ok(Step::Item)
    }

    /// Works on what waits: together as far as nothing is wrong, then one by one, so that what is refused is refused for what it is.
    fn flush<E: From<ReadError>>(
        &mut self,
        buffer: &[u8],
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let ready = std::mem::take(&mut self.ready);
        // The run that is not whole yet goes on waiting, and is bounded by itself.
        self.waiting = Waiting::default();
        let Self { directory, threads, .. } = *self;
        let mut rest = &ready[..];
        while !rest.is_empty() {
            let known = self.known.as_deref();
            let passed = Ahead { directory, known, threads, ready: rest, buffer }
                .pass(&mut self.follower, visit)?;
            rest = &rest[passed..];
            if let Some((waiting, behind)) = rest.split_first() {
                match waiting {
                    Ready::Open(open, item) => self.open(open, *item)?,
                    Ready::Run(run, item) => self.prove(run, *item, buffer, visit)?,
                }
                rest = behind;
            }
        }
        Ok(())
    }

    fn open(&mut self, open: &Open, item: usize) -> Result<(), ReadError> {
        let known = self.known.as_deref();
        let opened =
            self.follower.open(open, |index| known.and_then(|known| known(open.device, index)));
        opened.map_err(|error| ReadError {
            device: Some(open.device),
            item,
            ..self.error(ReadErrorKind::Open(error))
        })
    }

    /// Why an item cannot come where only so many bundles may.
    fn no_bundle(&mut self, item: &Item<'_>) -> Option<ReadErrorKind> {
        let (most, left) = self.bundles.as_mut()?;
        match item {
            Item::Part(part) => {
                let (Some(parts), Some(events)) =
                    (left.parts.checked_sub(1), left.events.checked_sub(part.n.into()))
                else {
                    let parts =
                        (left.parts == 0).then_some(ReadErrorKind::TooManyParts(most.parts));
                    return Some(parts.unwrap_or(ReadErrorKind::TooManyEvents(most.events)));
                };
                *left = Bundles { parts, events };
                part.signature.is_none().then_some(ReadErrorKind::NotWhole)
            }
            Item::Schema(_) | Item::Open(_) | Item::End => None,
            Item::Proof { .. }
            | Item::Explain { .. }
            | Item::Problem { .. }
            | Item::Manifest(_) => Some(ReadErrorKind::NoBundle),
        }
    }

    /// Refuses what must not stand within a run, unless one of the pending parts is refused for itself.
    fn unless_in_run(&mut self, buffer: &[u8]) -> Result<(), ReadError> {
        if self.run.is_empty() {
            return Ok(());
        }
        self.judge_pending(buffer)?;
        Err(self.error(ReadErrorKind::Unsigned))
    }

    /// What comes before a signature is too much, unless one of the pending parts is refused for itself.
    fn too_long(&mut self, buffer: &[u8]) -> ReadError {
        self.judge_pending(buffer).err().unwrap_or_else(|| self.error(ReadErrorKind::RunTooLong))
    }

    /// Refuses the pending parts if one of them cannot be rebuilt.
    fn judge_pending(&mut self, buffer: &[u8]) -> Result<(), ReadError> {
        let run = std::mem::take(&mut self.run);
        let judged = self.judge(&run, buffer).map(|_| ());
        self.run = run;
        judged
    }

    /// Rebuilds the parts of a run, so that the first of them that cannot be is what is reported.
    fn judge<'b>(
        &mut self,
        run: &[Pending],
        buffer: &'b [u8],
    ) -> Result<Vec<(Part<'b>, Rebuilt<'b>)>, ReadError> {
        let mut rebuilt = Vec::with_capacity(run.len());
        let device = self.follower.position().map(|(device, _)| device);
        for pending in run {
            let fail = |kind| ReadError { kind, item: pending.item, device, run: None };
            let item = Item::decode_whole(&buffer[pending.range.clone()])
                .map_err(|error| fail(ReadErrorKind::Decode(error)))?;
            let Item::Part(part) = item else { continue };
            let shape = pending.schema.as_ref().map(|schema| schema.shape());
            let parts = self
                .follower
                .part(&part, shape.as_ref())
                .map_err(|error| fail(ReadErrorKind::Part(error)))?;
            rebuilt.push((part, parts));
        }
        Ok(rebuilt)
    }

    fn judge_unsigned_parts(&mut self) -> Result<(), ReadError> {
        let buffer = std::mem::take(&mut self.buffer);
        self.judge_pending(&buffer)
    }

    fn refuse_unsigned(&mut self) -> Result<(), ReadError> {
        if self.run.is_empty() {
            return Ok(());
        }
        self.judge_unsigned_parts()?;
        Err(self.error(ReadErrorKind::Unsigned))
    }

    /// Proves a run by the signature of its last part, which is `item`, and hands it out.
    fn prove<E: From<ReadError>>(
        &mut self,
        run: &[Pending],
        item: usize,
        buffer: &[u8],
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let rebuilt = self.judge(run, buffer)?;
        let index = |rebuilt: Option<&(Part<'_>, Rebuilt<'_>)>| {
            rebuilt.map(|(_, rebuilt)| rebuilt.seal.statement().index)
        };
        let indices = index(rebuilt.first()).zip(index(rebuilt.last()));
        let device = self.follower.position().map(|(device, _)| device);

        let mut proven: Vec<Seal<Authentic>> = Vec::with_capacity(rebuilt.len());
        for (part, unproven) in rebuilt.iter().rev() {
            let seal = unproven.seal.clone();
            let seal = match proven.last() {
                Some(successor) => seal.proven_by(successor),
                None => seal.verify(self.directory, part.signature.unwrap_or_default()),
            };
            match seal {
                Ok(seal) => proven.push(seal),
                Err(error) => {
                    self.suspects = suspected(run, buffer, &rebuilt);
                    return Err(ReadError {
                        kind: ReadErrorKind::Seal(error),
                        item,
                        device,
                        run: indices,
                    }
                    .into());
                }
            }
        }
        proven.reverse();
        for (((part, rebuilt), seal), pending) in rebuilt.into_iter().zip(&proven).zip(run) {
            let (Some(sample), Some(schema)) = (rebuilt.sample.proven(seal), &pending.schema)
            else {
                continue;
            };
            let bytes = &buffer[pending.range.clone()];
            visit(Event::Proven(Proven {
                seal,
                sample,
                part: &part,
                bytes,
                blocks: &rebuilt.blocks,
                schema,
            }))?;
        }
        Ok(())
    }
}

fn suspected(run: &[Pending], buffer: &[u8], rebuilt: &[(Part<'_>, Rebuilt<'_>)]) -> Vec<Suspect> {
    let suspect = |((_, rebuilt), pending): (&(Part<'_>, Rebuilt<'_>), &Pending)| {
        let (seal, blocks, schema) =
            (rebuilt.seal.clone(), rebuilt.blocks, pending.schema.clone()?);
        Some(Suspect { seal, blocks, item: buffer[pending.range.clone()].to_vec(), schema })
    };
    rebuilt.iter().zip(run).filter_map(suspect).collect()
}

enum Step {
    Item,
    NeedMore,
}
