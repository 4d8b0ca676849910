//! Verifies several runs at the same time: each thread computes several hashes at once, and there
//! are several threads.
//!
//! The pipeline handles valid runs only. It stops at the first item with an error, and the reader
//! continues from there one run at a time, so that only the reader reports errors.
//!
//! Runs are grouped into batches. Threads prepare and hash parts in any order, because these steps
//! do not need the digest of the previous seal. Batches are then linked in the order of the stream,
//! one at a time, and their signatures are verified in any order. The caller's thread returns runs
//! in the order of the stream while other threads work on later runs. [`AHEAD`] limits the amount
//! of work that has been started and not yet returned, for any number of threads.

use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::roster::Directory;
use moteseal_lanes::Recall;
use moteseal_seal::follow::{Mark, Place, Prepared, Stride};
use moteseal_seal::stream::{Item, Open, Part};
use moteseal_seal::{Authentic, Follower, Seal, Unverified};

use crate::event::{Event, Proven, SchemaEntry};

/// Number of parts that a thread hashes at once: as many as the hashing engine computes in
/// parallel, and few enough for a core's cache.
const SHARE: usize = 16;
/// Maximum weight of the parts that have been given to a thread and not yet returned. The next
/// batch to return is exempt from the limit. The weight of a seal is its number of events plus
/// [`SEAL_OVERHEAD`]. The limit is low enough that a seal's levels are still in the engine's cache
/// when its events are returned.
const AHEAD: usize = 192 << 10;
/// The weight of a seal in addition to its events. It limits the number of seals that are in
/// progress to several hundred.
const SEAL_OVERHEAD: usize = 256;
/// Maximum number of threads.
const MOST_THREADS: usize = 64;

/// Returns the digest of a seal, if the receiver has the seal.
type Known<'k> = dyn Fn(DeviceId, SealIndex) -> Option<Digest> + Send + Sync + 'k;

/// The input: the items to verify, and the directory and settings for their verification.
pub(crate) struct Pipeline<'b, 'd, D: ?Sized> {
    pub(crate) directory: &'d D,
    pub(crate) known: Option<&'b Known<'d>>,
    pub(crate) threads: NonZero<usize>,
    pub(crate) ready: &'b [Ready],
    pub(crate) buffer: &'b [u8],
}

/// A buffered part.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) range: Range<usize>,
    pub(crate) item: usize,
    pub(crate) stride: Stride,
    /// The number of events that the part claims.
    pub(crate) events: u32,
    pub(crate) schema: Option<Arc<SchemaEntry>>,
}

/// An item that is ready to be verified together with others. The items keep the order of the
/// stream.
#[derive(Debug)]
pub(crate) enum Ready {
    /// An open item, with its position in the stream.
    Open(Open, usize),
    /// A whole run, with the position of its last item.
    Run(Vec<Pending>, usize),
}

/// A part with its place in the device's sequence of seals.
#[derive(Clone, Copy)]
struct Planned<'b> {
    place: Place,
    bytes: &'b [u8],
    schema: &'b Arc<SchemaEntry>,
}

/// Consecutive whole runs. Each batch except the last has at least [`SHARE`] parts.
struct Batch<'b> {
    /// The range of this batch in the ready items: its runs, and the open items before and between
    /// them.
    items: Range<usize>,
    parts: Vec<Planned<'b>>,
    /// The hashed parts, in shares of [`SHARE`] parts; `None` until the share has been hashed.
    shares: Vec<Option<Vec<Hashed<'b>>>>,
    /// The weight of the batch's parts. [`AHEAD`] limits the sum of the weights.
    weight: usize,
    runs: Vec<Run>,
    /// The first item with an error, and the follower's position before this item. `runs` ends
    /// before the item.
    broken: Option<(usize, Mark)>,
}

/// A prepared and hashed part.
struct Hashed<'b> {
    part: Part<'b>,
    prepared: Prepared<'b>,
    seal: State,
}

/// The state of a part's seal.
// The size is acceptable: a part stores its state inline, and most parts reach the largest variant.
#[allow(clippy::large_enum_variant)]
enum State {
    Unlinked,
    Linked(Seal<Unverified>),
    Proven(Seal<Authentic>),
}

/// A run in a batch.
struct Run {
    /// The run's position among the ready items.
    number: usize,
    /// The follower's position before the run.
    before: Mark,
    /// The range of the run in the batch's parts.
    parts: Range<usize>,
}

/// The progress of all batches. A batch is hashed, then linked, then proven, then returned.
struct Line<'b, 'f, F> {
    batches: Vec<Stage<'b>>,
    /// The next share to hash: its batch, and its position in the batch.
    next_share: (usize, usize),
    /// The next batch to link, and the follower that links it. The follower is `None` while a
    /// thread is linking, and after an error.
    next_link: usize,
    follower: Option<&'f mut F>,
    /// The next batch to prove. It must have been linked.
    next_prove: usize,
    /// The next batch to return.
    next_out: usize,
    /// The weight of all batches that have been given to a thread and not yet returned.
    ahead: usize,
    /// Whether the threads must start no more tasks.
    is_over: bool,
}

enum Stage<'b> {
    Waiting(Batch<'b>),
    /// A thread works on the batch, or the batch has been returned.
    Away,
    Proven(Batch<'b>),
}

/// A task for a thread, with all its input.
enum Task<'b, 'f, F> {
    Hash { batch: usize, share: usize, parts: Vec<Planned<'b>> },
    Link { number: usize, batch: Batch<'b>, follower: &'f mut F },
    Prove { number: usize, batch: Batch<'b> },
}

impl<'b, 'd, D: Directory + Sync + ?Sized> Pipeline<'b, 'd, D> {
    /// Verifies the ready items up to the first error and returns the number of verified items.
    /// Afterwards the follower is positioned before the first remaining item, and every run before
    /// this item has been returned.
    pub(crate) fn pass<E>(
        &self,
        follower: &mut Follower<'d, D, Recall>,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let (batches, end) = self.plan(follower);
        let shares = batches.iter().map(|batch| batch.shares.len()).sum();
        let hasher = follower.detached();
        let line = Mutex::new(Line {
            batches: batches.into_iter().map(Stage::Waiting).collect(),
            next_share: (0, 0),
            next_link: 0,
            follower: Some(&mut *follower),
            next_prove: 0,
            next_out: 0,
            ahead: 0,
            is_over: false,
        });
        let work = Work { ahead: self, hasher, line, news: Condvar::new() };
        let threads = self.threads.get().min(shares).min(MOST_THREADS);
        let broken = thread::scope(|scope| {
            for _ in 1..threads {
                // If a thread cannot be started, continue without it.
                if thread::Builder::new().spawn_scoped(scope, || work.help()).is_err() {
                    break;
                }
            }
            let _over = Over(&work);
            work.return_runs(visit)
        })?;
        drop(work);
        Ok(broken.map_or(end, |(number, before)| {
            follower.go_back(before);
            number
        }))
    }

    /// Groups the ready items into batches and computes the place of each part. The second value is
    /// the index of the first ready item whose place cannot be computed.
    fn plan(&self, follower: &mut Follower<'d, D, Recall>) -> (Vec<Batch<'b>>, usize) {
        let (mut batches, mut batch) = (Vec::new(), Batch::from(0));
        let before = follower.mark();
        let mut place = follower.place();
        for (number, waiting) in self.ready.iter().enumerate() {
            let planned = match waiting {
                Ready::Open(open, _) => {
                    self.open(follower, open).map(|()| place = follower.place())
                }
                Ready::Run(run, _) => {
                    let first = batch.parts.len();
                    let planned = run.iter().try_for_each(|pending| {
                        self.place(follower, &mut place, pending, &mut batch.parts)
                    });
                    match planned {
                        Some(()) => {
                            batch.weight += run
                                .iter()
                                .map(|pending| pending.events as usize + SEAL_OVERHEAD)
                                .sum::<usize>();
                        }
                        None => batch.parts.truncate(first),
                    }
                    planned
                }
            };
            if planned.is_none() {
                break;
            }
            batch.items.end = number + 1;
            if batch.parts.len() >= SHARE {
                batches.push(std::mem::replace(&mut batch, Batch::from(number + 1)));
            }
        }
        follower.go_back(before);
        let end = batch.items.end;
        if !batch.items.is_empty() {
            batches.push(batch);
        }
        for batch in &mut batches {
            batch.shares.resize_with(batch.parts.len().div_ceil(SHARE), || None);
        }
        (batches, end)
    }

    fn open(&self, follower: &mut Follower<'d, D, Recall>, open: &Open) -> Option<()> {
        follower.open(open, |index| self.known.and_then(|known| known(open.device, index))).ok()
    }

    fn place(
        &self,
        follower: &Follower<'d, D, Recall>,
        place: &mut Option<Place>,
        pending: &'b Pending,
        parts: &mut Vec<Planned<'b>>,
    ) -> Option<()> {
        let (here, schema) = ((*place)?, pending.schema.as_ref()?);
        *place = Some(follower.place_after(&here, pending.stride).ok()?);
        parts.push(Planned { place: here, bytes: &self.buffer[pending.range.clone()], schema });
        Some(())
    }

    /// Links the seals of a batch: adds the digest of the previous seal to each. Stops at the first
    /// error.
    fn link(&self, follower: &mut Follower<'d, D, Recall>, batch: &mut Batch<'b>) {
        let mut next = 0;
        for (number, waiting) in batch.items.clone().zip(&self.ready[batch.items.clone()]) {
            let before = follower.mark();
            let linked = match waiting {
                Ready::Open(open, _) => self.open(follower, open),
                Ready::Run(run, _) => {
                    let parts = next..next + run.len();
                    next = parts.end;
                    let linked = parts.clone().try_for_each(|part| {
                        let hashed = batch.part(part)?;
                        hashed.seal = State::Linked(follower.link(&mut hashed.prepared).ok()?);
                        Some(())
                    });
                    linked.map(|()| batch.runs.push(Run { number, before, parts }))
                }
            };
            if linked.is_none() {
                batch.broken = Some((number, before));
                return;
            }
        }
    }

    /// Proves the runs of a batch, up to the first error. The newest seal of a run is proven by its
    /// signature, and each earlier seal by its successor.
    fn prove(&self, batch: &mut Batch<'b>) {
        let runs = std::mem::take(&mut batch.runs);
        for run in runs {
            let mut parts = run.parts.clone().rev();
            let mut next = None;
            let proven = parts.all(|part| {
                let successor = next.replace(part);
                batch.prove(part, successor, self.directory).is_some()
            });
            if !proven {
                batch.broken = Some((run.number, run.before));
                return;
            }
            batch.runs.push(run);
        }
    }
}

impl<'b> Batch<'b> {
    const fn from(first: usize) -> Self {
        Self {
            items: first..first,
            parts: Vec::new(),
            shares: Vec::new(),
            weight: 0,
            runs: Vec::new(),
            broken: None,
        }
    }

    fn is_hashed(&self) -> bool {
        self.shares.iter().all(Option::is_some)
    }

    /// Returns a hashed part; `None` if it could not be hashed because of an error.
    fn part(&mut self, part: usize) -> Option<&mut Hashed<'b>> {
        self.shares.get_mut(part / SHARE)?.as_mut()?.get_mut(part % SHARE)
    }

    /// Returns a part and its seal, if the seal is proven.
    fn proven(&self, part: usize) -> Option<(&Hashed<'b>, &Seal<Authentic>)> {
        let hashed = self.shares.get(part / SHARE)?.as_ref()?.get(part % SHARE)?;
        match &hashed.seal {
            State::Proven(seal) => Some((hashed, seal)),
            State::Unlinked | State::Linked(_) => None,
        }
    }

    /// Proves a part's seal by its successor, or by its own signature if it has no successor.
    fn prove<D: Directory + ?Sized>(
        &mut self,
        part: usize,
        successor: Option<usize>,
        directory: &D,
    ) -> Option<()> {
        let hashed = self.part(part)?;
        let State::Linked(seal) = std::mem::replace(&mut hashed.seal, State::Unlinked) else {
            return None;
        };
        let proven = match successor {
            Some(successor) => seal.proven_by(self.proven(successor)?.1),
            None => seal.verify(directory, hashed.part.signature?),
        };
        self.part(part)?.seal = State::Proven(proven.ok()?);
        Some(())
    }
}

/// The state that the threads share.
struct Work<'w, 'b, 'd, 'f, D: ?Sized> {
    ahead: &'w Pipeline<'b, 'd, D>,
    /// Prepares and hashes parts.
    hasher: Follower<'d, D, Recall>,
    line: Mutex<Line<'b, 'f, Follower<'d, D, Recall>>>,
    /// Signals that `line` has changed.
    news: Condvar,
}

type Locked<'l, 'b, 'd, 'f, D> = MutexGuard<'l, Line<'b, 'f, Follower<'d, D, Recall>>>;

/// Ends the work when a thread returns or panics, so that no other thread keeps waiting for it.
struct Over<'o, 'w, 'b, 'd, 'f, D: ?Sized>(&'o Work<'w, 'b, 'd, 'f, D>);

impl<D: ?Sized> Drop for Over<'_, '_, '_, '_, '_, D> {
    fn drop(&mut self) {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.0.news.notify_all();
    }
}

impl<'b, 'd, 'f, D: Directory + Sync + ?Sized> Work<'_, 'b, 'd, 'f, D> {
    fn lock(&self) -> Locked<'_, 'b, 'd, 'f, D> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes tasks until the work has ended.
    fn help(&self) {
        // The loop ends early only if this thread panics; this guard then ends the work of all
        // threads.
        let _over = Over(self);
        let mut line = self.lock();
        while !line.is_over {
            line = self.work_or_wait(line);
        }
    }

    /// Passes the runs to `visit` in the order of the stream, and executes tasks in between.
    /// Returns the first item with an error, and the follower's position before this item.
    fn return_runs<E>(
        &self,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<Option<(usize, Mark)>, E> {
        let mut line = self.lock();
        // If the work has ended before the last batch, another thread has panicked; joining that
        // thread then panics here.
        while line.next_out < line.batches.len() && !line.is_over {
            let Some(batch) = line.take_out() else {
                line = self.work_or_wait(line);
                continue;
            };
            // A batch that was too heavy may have become the next one to return, and may now be
            // hashed.
            self.news.notify_all();
            drop(line);
            for (run, part) in
                batch.runs.iter().flat_map(|run| run.parts.clone().map(move |part| (run, part)))
            {
                let proven = batch
                    .proven(part)
                    .and_then(|(part, seal)| Some((part, seal, part.prepared.sample(seal)?)));
                // Not expected: every part of a run in a proven batch has been proven.
                let Some((hashed, seal, sample)) = proven else {
                    return Ok(Some((run.number, run.before)));
                };
                let Planned { bytes, schema, .. } = batch.parts[part];
                let (part, blocks) = (&hashed.part, hashed.prepared.blocks());
                let groups = hashed.prepared.groups().as_slice();
                let proven = Proven { seal, sample, part, bytes, blocks, groups, schema };
                visit(Event::Proven(proven))?;
            }
            if batch.broken.is_some() {
                return Ok(batch.broken);
            }
            line = self.lock();
            line.ahead -= batch.weight;
            self.news.notify_all();
        }
        Ok(None)
    }

    /// Executes one task, or waits for a change of `line` if there is none.
    fn work_or_wait<'l>(
        &'l self,
        mut line: Locked<'l, 'b, 'd, 'f, D>,
    ) -> Locked<'l, 'b, 'd, 'f, D> {
        match line.take() {
            Some(task) => {
                drop(line);
                self.work(task);
                self.lock()
            }
            None => self.news.wait(line).unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn work(&self, task: Task<'b, 'f, Follower<'d, D, Recall>>) {
        match task {
            Task::Hash { batch, share, parts } => {
                let hashed = self.hash(&parts);
                let mut line = self.lock();
                if let Stage::Waiting(batch) = &mut line.batches[batch] {
                    batch.shares[share] = Some(hashed);
                }
            }
            Task::Link { number, mut batch, follower } => {
                self.ahead.link(follower, &mut batch);
                let mut line = self.lock();
                if batch.broken.is_none() {
                    line.follower = Some(follower);
                } else {
                    // No later batch will be returned, so do not hash any.
                    line.next_share = (line.batches.len(), 0);
                }
                line.batches[number] = Stage::Waiting(batch);
                line.next_link = number + 1;
            }
            Task::Prove { number, mut batch } => {
                self.ahead.prove(&mut batch);
                self.lock().batches[number] = Stage::Proven(batch);
            }
        }
        self.news.notify_all();
    }

    /// Prepares and hashes consecutive parts. Stops at the first part that cannot belong to any
    /// seal.
    fn hash(&self, parts: &[Planned<'b>]) -> Vec<Hashed<'b>> {
        let mut hashed = Vec::with_capacity(parts.len());
        for planned in parts {
            let Ok(Item::Part(part)) = Item::decode_whole(planned.bytes) else { break };
            let Ok(prepared) = self.hasher.prepare(&planned.place, &part, &planned.schema.shape())
            else {
                break;
            };
            hashed.push(Hashed { part, prepared, seal: State::Unlinked });
        }
        self.hasher.compute_roots(&mut hashed.iter_mut().map(|hashed| &mut hashed.prepared));
        hashed
    }
}

impl<'b, 'f, F> Line<'b, 'f, F> {
    /// Returns the next batch to return, if it is proven.
    fn take_out(&mut self) -> Option<Batch<'b>> {
        let stage = self
            .batches
            .get_mut(self.next_out)
            .filter(|stage| matches!(stage, Stage::Proven(_)))?;
        let Stage::Proven(batch) = std::mem::replace(stage, Stage::Away) else { return None };
        self.next_out += 1;
        Some(batch)
    }

    /// Returns the next task. Linking comes first because it allows the most other tasks to start,
    /// then proving, then hashing.
    fn take(&mut self) -> Option<Task<'b, 'f, F>> {
        self.take_link().or_else(|| self.take_prove()).or_else(|| self.take_hash())
    }

    fn take_link(&mut self) -> Option<Task<'b, 'f, F>> {
        let number = self.next_link;
        let stage = self
            .batches
            .get_mut(number)
            .filter(|stage| matches!(stage, Stage::Waiting(batch) if batch.is_hashed()))?;
        let follower = self.follower.take()?;
        let Stage::Waiting(batch) = std::mem::replace(stage, Stage::Away) else { return None };
        Some(Task::Link { number, batch, follower })
    }

    fn take_prove(&mut self) -> Option<Task<'b, 'f, F>> {
        let number = self.next_prove;
        if number >= self.next_link {
            return None;
        }
        let Stage::Waiting(batch) = std::mem::replace(self.batches.get_mut(number)?, Stage::Away)
        else {
            return None;
        };
        self.next_prove += 1;
        Some(Task::Prove { number, batch })
    }

    fn take_hash(&mut self) -> Option<Task<'b, 'f, F>> {
        let (number, share) = self.next_share;
        let Stage::Waiting(batch) = self.batches.get(number)? else { return None };
        if batch.parts.is_empty() {
            return None;
        }
        if share == 0 {
            // The next batch to return is exempt from the limit.
            if number > self.next_out && self.ahead + batch.weight > AHEAD {
                return None;
            }
            self.ahead += batch.weight;
        }
        let first = share * SHARE;
        let parts = batch.parts[first..batch.parts.len().min(first + SHARE)].to_vec();
        self.next_share =
            if first + SHARE < batch.parts.len() { (number, share + 1) } else { (number + 1, 0) };
        Some(Task::Hash { batch: number, share, parts })
    }
}
