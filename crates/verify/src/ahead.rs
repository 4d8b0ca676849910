//! Whole runs, and the open items between them, worked on together: several hashes side by side in each thread, and several threads.
//!
//! Only what is right passes here. At the first item with anything wrong about it the reader goes on by itself, from where the stream
//! stands, so that there is one place that says what is refused and why. Runs are planned into batches. Parts are prepared and hashed
//! in any order, since the digest of the seal before is not in what they hash; batches are linked one after the other; their
//! signatures are verified in any order; runs are handed out in the order of the stream, on the caller's thread, while other threads
//! work on what comes next. What is worked on and not handed out yet is bounded ([`AHEAD`]), whatever the threads.

use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::roster::Directory;
use moteseal_lanes::Recall;
use moteseal_seal::follow::{Mark, Place, Prepared};
use moteseal_seal::stream::{Item, Open, Part};
use moteseal_seal::{Authentic, Follower, Seal, Unverified};

use crate::reader::{Event, Pending, Proven, Ready, SchemaEntry};

/// Parts that a thread takes at once: as many as there are lanes, and few enough to stay in a core's cache.
const SHARE: usize = 16;
/// What is hashed and not handed out comes to so much at most, beside the two batches at its ends: what the engine recalls of the
/// levels of [`BESIDE`] and its events for each seal, which is to be there when they are handed out.
const AHEAD: usize = 192 << 10;
/// What a seal comes to beside its events. It also bounds how many are ahead: some hundreds.
const BESIDE: usize = 256;
/// More threads than this are not started, whatever was asked for.
const MOST_THREADS: usize = 64;

/// Gives the digest of a seal that the receiver has.
type Known<'k> = dyn Fn(DeviceId, SealIndex) -> Option<Digest> + Send + Sync + 'k;

/// What of a stream is ready, and what it is verified with.
pub(crate) struct Ahead<'b, 'd, D: ?Sized> {
    pub(crate) directory: &'d D,
    pub(crate) known: Option<&'b Known<'d>>,
    pub(crate) threads: NonZero<usize>,
    pub(crate) ready: &'b [Ready],
    pub(crate) buffer: &'b [u8],
}

/// A part, and where it stands.
#[derive(Clone, Copy)]
struct Planned<'b> {
    place: Place,
    bytes: &'b [u8],
    schema: &'b Arc<SchemaEntry>,
}

/// Whole runs, one behind the other, with at least a share of parts where there are so many.
struct Batch<'b> {
    /// Which of what is ready: runs, and the open items before and between them.
    items: Range<usize>,
    parts: Vec<Planned<'b>>,
    /// The parts, hashed, a share each; `None` while nobody has given it back.
    shares: Vec<Option<Vec<Hashed<'b>>>>,
    /// What its parts come to, by [`AHEAD`].
    weight: usize,
    runs: Vec<Run>,
    /// The first item that is not right, and where the follower stood before it. No run from there on is in `runs`.
    broken: Option<(usize, Mark)>,
}

/// A part, prepared and hashed.
struct Hashed<'b> {
    part: Part<'b>,
    prepared: Prepared<'b>,
    seal: State,
}

/// What is known of a part's seal.
// Each in its turn lies in the same place.
#[allow(clippy::large_enum_variant)]
enum State {
    Unlinked,
    Linked(Seal<Unverified>),
    Proven(Seal<Authentic>),
}

/// A run in a batch.
struct Run {
    /// Which of what is ready.
    number: usize,
    /// Where the follower stood before it.
    before: Mark,
    /// Which of the batch's parts.
    parts: Range<usize>,
}

/// Where the batches of a plan are: each is linked, proven and handed out.
struct Line<'b, 'f, F> {
    batches: Vec<Stage<'b>>,
    /// The next share to be hashed: its batch, and its number there.
    next_share: (usize, usize),
    /// The batch to be linked next, and who links; `None` while somebody does, or when one was broken.
    next_link: usize,
    follower: Option<&'f mut F>,
    /// The batch to be proven next, once it is linked.
    next_prove: usize,
    /// The batch to be handed out next.
    next_out: usize,
    /// What was given out to be hashed and has not been handed out comes to.
    ahead: usize,
    /// Nobody is to begin anything more.
    is_over: bool,
}

enum Stage<'b> {
    Waiting(Batch<'b>),
    /// With who works on it, or handed out.
    Away,
    Proven(Batch<'b>),
}

/// Something to be done, with all that it takes.
enum Task<'b, 'f, F> {
    Hash { batch: usize, share: usize, parts: Vec<Planned<'b>> },
    Link { number: usize, batch: Batch<'b>, follower: &'f mut F },
    Prove { number: usize, batch: Batch<'b> },
}

impl<'b, 'd, D: Directory + Sync + ?Sized> Ahead<'b, 'd, D> {
    /// Works on what is ready as far as nothing is wrong, and says how far: there the follower stands then, and every run before it has
    /// been handed out.
    pub(crate) fn pass<E>(
        &self,
        follower: &mut Follower<'d, D, Recall>,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let (batches, end) = self.plan(follower);
        let shares = batches.iter().map(|batch| batch.shares.len()).sum();
        let hasher = follower.beside();
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
                // A thread that cannot be started is done without.
                if thread::Builder::new().spawn_scoped(scope, || work.help()).is_err() {
                    break;
                }
            }
            let _over = Over(&work);
            work.hand_out(visit)
        })?;
        drop(work);
        Ok(broken.map_or(end, |(number, before)| {
            follower.go_back(before);
            number
        }))
    }

    /// Places the parts of the runs, as far as they can be. The second value is the first of what is ready that cannot.
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
                                .map(|pending| pending.events as usize + BESIDE)
                                .sum::<usize>()
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
        *place = Some(follower.behind(&here, pending.stride).ok()?);
        parts.push(Planned { place: here, bytes: &self.buffer[pending.range.clone()], schema });
        Some(())
    }

    /// Completes the seals of a batch, as far as they can be.
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

    /// Proves the runs of a batch, each one's newest seal by its signature and each before it by the one behind it, as far as they can be.
    fn prove(&self, batch: &mut Batch<'b>) {
        let runs = std::mem::take(&mut batch.runs);
        for run in runs {
            let mut parts = run.parts.clone().rev();
            let mut behind = None;
            let proven = parts.all(|part| {
                let successor = behind.replace(part);
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

    /// A part, unless its share was given back without it: something is wrong about it.
    fn part(&mut self, part: usize) -> Option<&mut Hashed<'b>> {
        self.shares.get_mut(part / SHARE)?.as_mut()?.get_mut(part % SHARE)
    }

    /// A part that is proven, and its seal.
    fn proven(&self, part: usize) -> Option<(&Hashed<'b>, &Seal<Authentic>)> {
        let hashed = self.shares.get(part / SHARE)?.as_ref()?.get(part % SHARE)?;
        match &hashed.seal {
            State::Proven(seal) => Some((hashed, seal)),
            State::Unlinked | State::Linked(_) => None,
        }
    }

    /// Proves a part's seal by the one behind it, or by its signature where there is none.
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

/// The line, and what those who work on it share.
struct Work<'w, 'b, 'd, 'f, D: ?Sized> {
    ahead: &'w Ahead<'b, 'd, D>,
    /// Prepares and hashes.
    hasher: Follower<'d, D, Recall>,
    line: Mutex<Line<'b, 'f, Follower<'d, D, Recall>>>,
    /// Something has changed in the line.
    news: Condvar,
}

type Locked<'l, 'b, 'd, 'f, D> = MutexGuard<'l, Line<'b, 'f, Follower<'d, D, Recall>>>;

/// Ends the work however its owner leaves, so that nobody waits for who is gone.
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

    /// Does whatever is to be done until all is over.
    fn help(&self) {
        // Only a panic leaves while there is more to do.
        let _over = Over(self);
        let mut line = self.lock();
        while !line.is_over {
            line = self.work_or_wait(line);
        }
    }

    /// Hands the runs out in their order and helps meanwhile; gives the first item that is not right, and where the follower stood
    /// before it.
    fn hand_out<E>(
        &self,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<Option<(usize, Mark)>, E> {
        let mut line = self.lock();
        // Over before the last of them only if another thread panicked, and this one will when it is joined.
        while line.next_out < line.batches.len() && !line.is_over {
            let Some(batch) = line.take_out() else {
                line = self.work_or_wait(line);
                continue;
            };
            // The batch behind it may be hashed now, whatever it comes to.
            self.news.notify_all();
            drop(line);
            for (run, part) in
                batch.runs.iter().flat_map(|run| run.parts.clone().map(move |part| (run, part)))
            {
                let proven = batch
                    .proven(part)
                    .and_then(|(part, seal)| Some((part, seal, part.prepared.sample(seal)?)));
                // Every part of a run is proven by now; one that were not would not be passed over.
                let Some((hashed, seal, sample)) = proven else {
                    return Ok(Some((run.number, run.before)));
                };
                let Planned { bytes, schema, .. } = batch.parts[part];
                let (part, blocks) = (&hashed.part, hashed.prepared.blocks());
                visit(Event::Proven(Proven { seal, sample, part, bytes, blocks, schema }))?;
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

    /// Does something of what can be done now, or waits for news where there is nothing.
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
                    // Nothing behind it will be handed out.
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

    /// Prepares and hashes neighbouring parts, up to the first that is no part of any seal.
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
    /// The next batch to be handed out, if it is proven.
    fn take_out(&mut self) -> Option<Batch<'b>> {
        let stage = self
            .batches
            .get_mut(self.next_out)
            .filter(|stage| matches!(stage, Stage::Proven(_)))?;
        let Stage::Proven(batch) = std::mem::replace(stage, Stage::Away) else { return None };
        self.next_out += 1;
        Some(batch)
    }

    /// Something that can be done now: what lets most others go on comes first.
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
            // What is handed out next is always worked on, however long its runs.
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
