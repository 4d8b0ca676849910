//! Whole runs, and the open items between them, worked on together: several hashes side by side in each thread, and several threads.
//!
//! Only what is right passes here. At the first item with anything wrong about it the reader goes on by itself, from where the stream
//! stands, so that there is one place that says what is refused and why. Work: parts are prepared and hashed in any order, since the
//! digest of the seal before is not in what they hash; seals are completed one after the other; signatures are verified in any order;
//! runs are handed out in the order of the stream, on the caller's thread.

use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, SealIndex};
use moteseal_core::roster::Directory;
use moteseal_core::seal::follow::{Mark, Place, Prepared, Rebuilt};
use moteseal_core::seal::{Authentic, Follower, Seal};
use moteseal_core::wire::stream::{Item, Open, Part};
use moteseal_lanes::Recall;

use crate::reader::{Event, Pending, Proven, Ready, SchemaEntry};

/// Parts that a thread takes at once: as many as there are lanes, and few enough to stay in a core's cache.
const SHARE: usize = 16;
/// Parts that are worked on while as many before them are handed out.
const PORTION: usize = 64;
/// More threads than this are not started, whatever was asked for.
const MOST_THREADS: usize = 64;

/// Gives the digest of a seal that the receiver has.
type Known<'k> = dyn Fn(DeviceId, SealIndex) -> Option<Digest> + Send + 'k;

/// What of a stream is ready, and what it is verified with.
pub(crate) struct Ahead<'b, 'd, D: ?Sized> {
    pub(crate) directory: &'d D,
    pub(crate) known: Option<&'b Known<'d>>,
    pub(crate) threads: NonZero<usize>,
    pub(crate) ready: &'b [Ready],
    pub(crate) buffer: &'b [u8],
}

/// A part, decoded, and where it stands.
struct Planned<'b> {
    place: Place,
    part: Part<'b>,
    bytes: &'b [u8],
    schema: &'b Arc<SchemaEntry>,
}

/// Whole runs, one behind the other.
struct Plan<'b> {
    parts: Vec<Planned<'b>>,
    /// Of each run, which of what is ready it is, and how many parts it has.
    runs: Vec<(usize, usize)>,
    /// The first of what is ready that is not in the plan.
    end: usize,
    /// Whether that cannot be planned.
    broken: bool,
}

/// A run whose seals are complete, and then proven.
struct Run<'b> {
    number: usize,
    /// Where the follower stood before it.
    before: Mark,
    parts: Vec<(Planned<'b>, Rebuilt<'b>)>,
    /// Newest first.
    proven: Vec<Seal<Authentic>>,
}

impl<'b, 'd, D: Directory + Sync + ?Sized> Ahead<'b, 'd, D> {
    /// Works on what is ready as far as nothing is wrong, and says how far: there the follower stands then, and every run before it has
    /// been handed out.
    pub(crate) fn pass<E>(
        &self,
        follower: &mut Follower<'d, D, Recall>,
        visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let (mut next, mut proven) = (0, Vec::new());
        loop {
            let plan = self.plan(follower, next);
            let parts = plan.parts.len();
            // What was proven is handed out while others hash what comes next.
            let threads = self.threads_for(parts);
            let mut hashed: Vec<Vec<Option<Prepared<'b>>>> = Vec::new();
            hashed.resize_with(parts.div_ceil(SHARE), Vec::new);
            let following = &*follower;
            share(
                threads,
                plan.parts.chunks(SHARE).zip(&mut hashed),
                |(parts, hashed)| *hashed = hash(following, parts),
                || hand_out(std::mem::take(&mut proven), visit),
            )?;
            let (end, broken) = (plan.end, plan.broken);
            let (mut runs, linked) = self.link(follower, next, plan, hashed.into_iter().flatten());
            share(threads.min(runs.len()), runs.iter_mut(), |run| run.prove(self.directory), || ());
            let cut = match runs.iter().position(|run| run.proven.len() < run.parts.len()) {
                Some(first) => {
                    let first = runs.drain(first..).next();
                    first.map(|run| {
                        follower.go_back(run.before);
                        run.number
                    })
                }
                None => linked,
            };
            proven = runs;
            next = cut.unwrap_or(end);
            if cut.is_some() || broken || next == self.ready.len() {
                hand_out(proven, visit)?;
                return Ok(next);
            }
        }
    }

    /// As many threads as there is work for.
    fn threads_for(&self, parts: usize) -> usize {
        self.threads.get().min(parts.div_ceil(SHARE)).min(MOST_THREADS)
    }

    /// Places the parts of the next runs, about a portion of them.
    fn plan(&self, follower: &mut Follower<'d, D, Recall>, from: usize) -> Plan<'b> {
        let mut plan = Plan { parts: Vec::new(), runs: Vec::new(), end: from, broken: false };
        let before = follower.mark();
        let mut place = follower.place();
        for waiting in &self.ready[from..] {
            if plan.parts.len() >= PORTION {
                break;
            }
            let planned = match waiting {
                Ready::Open(open, _) => {
                    let opened = self.open(follower, open);
                    place = follower.place();
                    opened
                }
                Ready::Run(run, _) => {
                    let first = plan.parts.len();
                    let planned = run.iter().try_for_each(|pending| self.place(follower, &mut place, pending, &mut plan.parts));
                    match planned {
                        Some(()) => plan.runs.push((plan.end, run.len())),
                        None => plan.parts.truncate(first),
                    }
                    planned
                }
            };
            if planned.is_none() {
                plan.broken = true;
                break;
            }
            plan.end += 1;
        }
        follower.go_back(before);
        plan
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
        let bytes = &self.buffer[pending.range.clone()];
        let Item::Part(part) = Item::decode_whole(bytes).ok()? else { return None };
        let (here, schema) = ((*place)?, pending.schema.as_ref()?);
        *place = Some(follower.behind(&here, &part).ok()?);
        parts.push(Planned { place: here, part, bytes, schema });
        Some(())
    }

    /// Completes the seals of a plan. The second value is the number of the run that cannot be, before which the follower then stands.
    fn link(
        &self,
        follower: &mut Follower<'d, D, Recall>,
        from: usize,
        plan: Plan<'b>,
        mut hashed: impl Iterator<Item = Option<Prepared<'b>>>,
    ) -> (Vec<Run<'b>>, Option<usize>) {
        let mut runs = Vec::with_capacity(plan.runs.len());
        let (mut parts, mut lengths) = (plan.parts.into_iter(), plan.runs.into_iter());
        for (number, waiting) in (from..plan.end).zip(&self.ready[from..]) {
            let before = follower.mark();
            let linked = match waiting {
                Ready::Open(open, _) => self.open(follower, open),
                Ready::Run(..) => lengths.next().and_then(|(number, length)| {
                    let mut link = |part| Some((part, follower.link(hashed.next()??).ok()?));
                    let parts = parts.by_ref().take(length).map(&mut link).collect::<Option<Vec<_>>>()?;
                    runs.push(Run { number, before, parts, proven: Vec::new() });
                    Some(())
                }),
            };
            if linked.is_none() {
                follower.go_back(before);
                return (runs, Some(number));
            }
        }
        (runs, None)
    }
}

impl Run<'_> {
    /// Proves the newest seal by its signature, and each before it by the one behind it, as far as they can be.
    fn prove<D: Directory + ?Sized>(&mut self, directory: &D) {
        for (planned, rebuilt) in self.parts.iter().rev() {
            let seal = rebuilt.seal.clone();
            let seal = match self.proven.last() {
                Some(successor) => seal.proven_by(successor),
                None => seal.verify(directory, planned.part.signature.unwrap_or_default()),
            };
            let Ok(seal) = seal else { return };
            self.proven.push(seal);
        }
    }
}

/// Prepares and hashes neighbouring parts; `None` for the first that is no part of any seal, and for all behind it.
fn hash<'b, D: Directory + ?Sized>(follower: &Follower<'_, D, Recall>, parts: &[Planned<'b>]) -> Vec<Option<Prepared<'b>>> {
    let prepare = |planned: &Planned<'b>| follower.prepare(&planned.place, &planned.part, &planned.schema.shape()).ok();
    let mut prepared: Vec<_> = parts.iter().map_while(prepare).collect();
    follower.compute_roots(&mut prepared);
    let mut prepared: Vec<_> = prepared.into_iter().map(Some).collect();
    prepared.resize_with(parts.len(), || None);
    prepared
}

/// Hands runs out, each oldest part first.
fn hand_out<E>(runs: Vec<Run<'_>>, visit: &mut dyn FnMut(Event<'_>) -> Result<(), E>) -> Result<(), E> {
    for run in runs {
        for ((planned, rebuilt), seal) in run.parts.into_iter().zip(run.proven.iter().rev()) {
            let Some(sample) = rebuilt.sample.proven(seal) else { continue };
            let Planned { part, bytes, schema, .. } = planned;
            visit(Event::Proven(Proven { seal, sample, part: &part, bytes, blocks: &rebuilt.blocks, schema }))?;
        }
    }
    Ok(())
}

/// Works on tasks with so many threads, the caller's included, which does something else first. A thread that cannot be started is
/// done without.
fn share<T: Send, R>(
    threads: usize,
    tasks: impl Iterator<Item = T> + Send,
    work: impl Fn(T) + Sync,
    meanwhile: impl FnOnce() -> R,
) -> R {
    let tasks = Mutex::new(tasks);
    let take = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
    let help = || {
        while let Some(task) = take() {
            work(task);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            if thread::Builder::new().spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        let done = meanwhile();
        help();
        done
    })
}
