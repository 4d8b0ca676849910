//! Reads a stream run by run. Returns no part before a signature has proven it.
//!
//! Input may arrive in pieces of any size. Parts are buffered until a signed part ends their run.
//! The run is then rebuilt, proven from the newest part to the oldest, and returned from the oldest
//! part to the newest. The number of parts, bytes and events before a signature is limited
//! (`RunTooLong`). All runs that arrive in one piece are verified together by the
//! [`pipeline`](crate::pipeline). The results are the same as when they are verified one by one.

use std::fmt;
use std::num::NonZero;
use std::sync::Arc;

use moteseal_core::cbor::{DecodeError, Scanner};
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::roster::Directory;
use moteseal_lanes::{Host, Recall};
use moteseal_seal::follow::{Limits, Rebuilt, Stride};
use moteseal_seal::stream::{
    Item, MAX_ITEM, MAX_RUN_BYTES, MAX_RUN_EVENTS, MAX_RUN_ITEMS, MAX_RUN_PARTS, Open, Part,
};
use moteseal_seal::{Authentic, Follower, Seal};

use crate::error::{ReadError, ReadErrorKind};
use crate::event::{Event, Proven, SchemaEntry, Suspect};
use crate::manifest;
use crate::pipeline::{Pending, Pipeline, Ready};

/// Returns the digest of the seal of this device and index, if the receiver has the seal. The
/// reader may call this function several times, on any thread, and before it has returned earlier
/// events of the stream. The result need not include seals from those events.
pub type Known<'d> = Box<dyn Fn(DeviceId, SealIndex) -> Option<Digest> + Send + Sync + 'd>;

/// Limits for a stream of bundles, such as an upload. In a stream of bundles every part has its own
/// signature, and items that only occur in responses or proofs are not allowed.
#[derive(Clone, Copy, Debug)]
pub struct Bundles {
    /// Maximum number of parts. Further parts are rejected with `TooManyParts`.
    pub parts: usize,
    /// Maximum number of events that all parts together may claim. The part that exceeds it is
    /// rejected with `TooManyEvents`.
    pub events: u64,
}

/// What an answer or a proof may contain next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The query of a proof.
    Query,
    /// Any item.
    Item,
    /// Nothing, because the end item was read.
    Nothing,
}

/// Reads a stream.
pub struct StreamReader<'d, D: ?Sized> {
    directory: &'d D,
    follower: Follower<'d, D, Recall>,
    known: Option<Known<'d>>,
    /// The limits, and the remaining amounts; `None` if the stream need not consist of bundles.
    bundles: Option<(Bundles, Bundles)>,
    /// What may follow; `None` if the stream is neither an answer nor a proof.
    next: Option<Next>,
    schema: Option<Arc<SchemaEntry>>,
    buffer: Vec<u8>,
    /// The offset of the next item in the buffer.
    at: usize,
    /// The state of scanning the next item, which may have arrived in part only.
    scanner: Scanner,
    /// The parts of the current run.
    run: Vec<Pending>,
    /// The size of the current run.
    load: Load,
    /// Whole runs and open items that have not been verified yet.
    ready: Vec<Ready>,
    /// The size of `ready`.
    waiting: Waiting,
    threads: NonZero<usize>,
    items: usize,
    failed: bool,
    suspects: Vec<Suspect>,
}

/// The amount of input since the last verified run. [`Load::is_too_much`] compares it with the
/// limits.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Bytes of schema, open and part items, and of all other items that are within a run.
    items: usize,
    /// Bytes of the parts' records.
    records: usize,
    /// The number of events that the parts claim, except the newest part.
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
            // A sanitised item counts with the part that follows it.
            Item::Schema(_) | Item::Open(_) | Item::Sanitised { .. } => {}
            // Outside a run these items are returned at once and do not count.
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

/// The size of the runs and open items that wait for verification. When it exceeds
/// [`Waiting::MOST`], all waiting items are verified. This limits how much unverified input is
/// processed before its signatures are checked.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    parts: usize,
    bytes: usize,
    /// The number of events that the parts claim.
    claimed: u64,
}

impl Waiting {
    /// The waiting items are verified as soon as one of these values is exceeded.
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
    /// Creates a reader that uses the keys of `directory`.
    #[must_use]
    pub fn new(directory: &'d D, limits: Limits) -> Self {
        Self::with_engine(directory, limits, Host::detect().into())
    }

    /// Creates a reader like [`new`](Self::new), with an engine that shares a cache with the
    /// caller.
    #[must_use]
    pub fn with_engine(directory: &'d D, limits: Limits, engine: Recall) -> Self {
        Self {
            directory,
            follower: Follower::new(directory, engine, limits),
            known: None,
            bundles: None,
            next: None,
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

    /// Sets the function that returns the digests of seals that the receiver has. They are needed
    /// for open items without `prev`.
    #[must_use]
    pub fn with_known(mut self, known: Known<'d>) -> Self {
        self.known = Some(known);
        self
    }

    /// Sets the number of threads that verify, including the caller's. The result does not depend
    /// on the number.
    #[must_use]
    pub const fn with_threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the reader to accept bundles only, up to the limits `most`. It rejects a part beyond
    /// the limits, a part without its own signature, and every item that is not allowed in a
    /// bundle. It does so before it hashes any event of the part.
    #[must_use]
    pub const fn of_bundles(mut self, most: Bundles) -> Self {
        self.bundles = Some((most, most));
        self
    }

    /// Sets the reader to accept one answer: nothing may follow its end item.
    #[must_use]
    pub const fn of_answer(mut self) -> Self {
        self.next = Some(Next::Item);
        self
    }

    /// Sets the reader to accept one proof: its query, and then an answer.
    #[must_use]
    pub const fn of_proof(mut self) -> Self {
        self.next = Some(Next::Query);
        self
    }

    /// Adds the next bytes of the stream and passes every event that they complete to `visit`.
    ///
    /// # Errors
    /// [`ReadError`], or the error of `visit`. The reader then ignores further input.
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

    /// Ends the stream and verifies what is still waiting.
    ///
    /// # Errors
    /// `Truncated` within an item, `Unsigned` within a run, or the error of `visit`.
    pub fn finish<E: From<ReadError>>(
        mut self,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.failed {
            return Ok(());
        }
        if self.at < self.buffer.len() {
            self.check_unsigned_parts()?;
            return Err(self.error(ReadErrorKind::Decode(DecodeError::Truncated)).into());
        }
        self.reject_unsigned()?;
        let _ = visit;
        Ok(())
    }

    /// Returns the parts of the run that failed verification, oldest first. Empty unless `feed`
    /// failed because of such a run.
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
        // The decoded items borrow the buffer. Move it out of `self` so that `self` can be
        // modified.
        let buffer = std::mem::take(&mut self.buffer);
        let mut done = Ok(Step::Item);
        while let Ok(Step::Item) = done {
            done = self.step(&buffer, visit);
        }
        let done = done.and_then(|_| self.flush(&buffer, visit));
        self.buffer = buffer;
        // Remove the processed bytes, except the bytes of the current run.
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
        if self.next == Some(Next::Nothing) {
            return Err(self.error(ReadErrorKind::Trailing).into());
        }
        // Scan at most one byte more than the longest allowed item.
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
                self.check_pending(buffer)?;
                return Err(self.error(ReadErrorKind::Decode(error)).into());
            }
        };
        if let Some(kind) = self.no_bundle(&item) {
            self.flush(buffer, visit)?;
            return Err(self.error(kind).into());
        }
        if self.next == Some(Next::Query) {
            if !matches!(item, Item::Proof { .. }) {
                return Err(self.error(ReadErrorKind::NotAProof).into());
            }
            self.next = Some(Next::Item);
        }
        self.load.add(&item, length, !self.run.is_empty());
        let range = self.at..self.at + length;
        if let Item::Part(part) = &item {
            let (range, schema) = (range.clone(), self.schema_of(part));
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
                    self.check_pending(buffer)?;
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
            Item::Proof { query } => self.pass(Event::Proof(query), buffer, visit)?,
            Item::Explain { seal, digests } => {
                self.pass(Event::Explain(seal, digests), buffer, visit)?;
            }
            Item::Sanitised { statement, cells } => {
                self.pass(Event::Sanitised(statement, cells), buffer, visit)?;
            }
            Item::Problem { name, detail } => {
                self.pass(Event::Problem(name, detail), buffer, visit)?;
            }
            Item::End => {
                self.flush(buffer, visit)?;
                self.unless_in_run(buffer)?;
                visit(Event::End)?;
                self.next = self.next.map(|_| Next::Nothing);
            }
        }
        self.at = range.end;
        self.items += 1;
        Ok(Step::Item)
    }

    /// Returns the schema of a part's records. If the part shows groups that the schema does not have,
    /// returns the whole schema, with which the part is then rejected.
    fn schema_of(&mut self, part: &Part<'_>) -> Option<Arc<SchemaEntry>> {
        let entry = self.schema.as_mut()?;
        if entry.shown() != part.groups
            && let Ok(projection) = entry.projection(part.groups)
        {
            *entry = projection;
        }
        Some(Arc::clone(entry))
    }

    /// Passes an item to `visit` that may occur within a run. If `visit` rejects the item, and a
    /// pending part before it has an error, reports the error of the part instead.
    fn pass<E: From<ReadError>>(
        &mut self,
        event: Event<'_>,
        buffer: &[u8],
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.flush(buffer, visit)?;
        let visited = visit(event);
        if visited.is_err() {
            self.check_pending(buffer)?;
        }
        visited
    }

    /// Verifies the waiting runs together up to the first error, and then one by one, to report the
    /// error.
    fn flush<E: From<ReadError>>(
        &mut self,
        buffer: &[u8],
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let ready = std::mem::take(&mut self.ready);
        // The incomplete run stays in the buffer. It has its own limits.
        self.waiting = Waiting::default();
        let Self { directory, threads, .. } = *self;
        let mut rest = &ready[..];
        while !rest.is_empty() {
            let known = self.known.as_deref();
            let passed = Pipeline { directory, known, threads, ready: rest, buffer }
                .pass(&mut self.follower, visit)?;
            rest = &rest[passed..];
            if let Some((waiting, following)) = rest.split_first() {
                match waiting {
                    Ready::Open(open, item) => self.open(open, *item)?,
                    Ready::Run(run, item) => self.prove(run, *item, buffer, visit)?,
                }
                rest = following;
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

    /// Checks an item of a stream of bundles. Returns the error if the item is not allowed.
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
            | Item::Manifest(_)
            | Item::Sanitised { .. } => Some(ReadErrorKind::NoBundle),
        }
    }

    /// Rejects an item that is not allowed within a run. If a pending part has an error, reports
    /// that error instead.
    fn unless_in_run(&mut self, buffer: &[u8]) -> Result<(), ReadError> {
        if self.run.is_empty() {
            return Ok(());
        }
        self.check_pending(buffer)?;
        Err(self.error(ReadErrorKind::Unsigned))
    }

    /// Rejects a run that is too long. If a pending part has an error, reports that error instead.
    fn too_long(&mut self, buffer: &[u8]) -> ReadError {
        self.check_pending(buffer).err().unwrap_or_else(|| self.error(ReadErrorKind::RunTooLong))
    }

    /// Returns the error of the first pending part that cannot be rebuilt, if there is one.
    fn check_pending(&mut self, buffer: &[u8]) -> Result<(), ReadError> {
        let run = std::mem::take(&mut self.run);
        let result = self.rebuild(&run, buffer).map(|_| ());
        self.run = run;
        result
    }

    /// Rebuilds the parts of a run, up to the first error.
    fn rebuild<'b>(
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

    fn check_unsigned_parts(&mut self) -> Result<(), ReadError> {
        let buffer = std::mem::take(&mut self.buffer);
        self.check_pending(&buffer)
    }

    fn reject_unsigned(&mut self) -> Result<(), ReadError> {
        if self.run.is_empty() {
            return Ok(());
        }
        self.check_unsigned_parts()?;
        Err(self.error(ReadErrorKind::Unsigned))
    }

    /// Verifies a run with the signature of its last part, which is item number `item`, and passes
    /// its parts to `visit`.
    fn prove<E: From<ReadError>>(
        &mut self,
        run: &[Pending],
        item: usize,
        buffer: &[u8],
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let rebuilt = self.rebuild(run, buffer)?;
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
                groups: rebuilt.groups.as_slice(),
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
