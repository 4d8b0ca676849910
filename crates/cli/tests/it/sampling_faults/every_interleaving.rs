//! Explores every interleaving of a small group: its devices and its gateway run the product's state
//! machines, frames are delivered one at a time, and at most a few faults happen anywhere. When
//! nothing is left to do, the audit must accuse nobody, every acknowledged seal must be in the store,
//! and every seal must contain exactly the readings that its device sensed under its index.
//!
//! The state machines cannot be copied, so a state is the list of actions that leads to it, and is
//! reached by repeating them. Two lists lead to the same state if each machine received the same
//! inputs in the same order, the same frames are in transit, and the same faults are left. The
//! gateway's state is a function of each device's inputs by themselves, because the budget is large
//! enough that no round rises; the order in which the devices' first frames of an epoch arrived is
//! a part of the state.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use moteseal_core::link::claimed_device;
use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_device::mote::Waiting;
use moteseal_device::seal::RosterName;
use moteseal_verify::Roster;
use moteseal_verify::issue::NextRoster;

use super::{Chance, FIRST, FaultRates, Log, NEXT_KEY, World, secret};

/// A longer list of actions means that the machines make no progress.
const DEEPEST: usize = 400;

/// What can happen next. The numbers are places of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// The device senses its next reading, or ends the epoch.
    Step(usize),
    /// The gateway receives the device's next frame, syncs it and answers.
    Up(usize),
    /// The device receives the gateway's next answer.
    Down(usize),
    /// The device has waited for an answer long enough.
    Timeout(usize),
    /// The gateway ends an epoch.
    End(u64),
    /// The operator gives each device a further key for the second epoch. The gateway loads the
    /// version at once.
    Issue,
    /// The device loads the version.
    Load(usize),
    /// A fault.
    Fault(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// The next frame from the device, or to it, is lost.
    LostUp(usize),
    LostDown(usize),
    /// The next frame arrives twice: now, and after all others.
    TwiceUp(usize),
    TwiceDown(usize),
    /// The next frame is overtaken by the one after it.
    LateUp(usize),
    LateDown(usize),
    /// The device restarts with its state, with none, or with a copy from its previous restart.
    Reboot(usize),
    StateLost(usize),
    CopiedBack(usize),
    /// The gateway restarts.
    Killed,
}

/// A deliberate defect, which the search must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// The gateway answers before its frames are durable: a restart forgets the last one.
    AnswersBeforeSync,
    /// The gateway's store loses a seal of an ended epoch.
    LosesSeal,
    /// A device that has lost its state ignores that the gateway has more of it.
    IgnoresItsPast,
}

/// The bounds of a search.
#[derive(Clone, Debug)]
struct Bounds {
    schemes: Vec<Scheme>,
    /// The readings of each epoch.
    readings: usize,
    epochs: u64,
    faults: usize,
    /// Whether a version of the roster may be issued.
    changes: bool,
    defect: Defect,
}

/// What a run has done so far.
struct Run {
    world: World,
    bounds: Bounds,
    /// The next step of each device.
    steps: Vec<usize>,
    loaded: Vec<bool>,
    /// Whether a fault may have cost the device an answer. Without one, a device times out only at
    /// its end; otherwise it could time out again and again before its next step.
    is_owed: Vec<bool>,
    issued: bool,
    ended: u64,
    faults: usize,
    /// The devices that have restarted, or lost their state.
    disturbed: BTreeSet<usize>,
    /// The seals that devices no longer keep, because the gateway has acknowledged them.
    acknowledged: BTreeSet<(usize, u32)>,
    /// A hash of the inputs of each device, and of what the gateway has received of it.
    inputs: Vec<u64>,
    received: Vec<u64>,
    first_of: Vec<(u64, usize)>,
}

fn mixed(before: u64, with: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, with).hash(&mut hasher);
    hasher.finish()
}

impl Run {
    fn new(bounds: &Bounds) -> Self {
        let none = FaultRates {
            loss: 0,
            repeats: 0,
            delay: 0,
            reboots: 0,
            deaths: 0,
            kills: 0,
            rollbacks: 0,
        };
        let count = bounds.schemes.len();
        let mut world = World::of(Chance::new(1), none, &bounds.schemes, 1000);
        world.next_keys = bounds.changes;
        (0..count).for_each(|at| world.boot(at, Vec::new()));
        let mut run = Self {
            world,
            bounds: bounds.clone(),
            steps: vec![0; count],
            loaded: vec![false; count],
            is_owed: vec![false; count],
            issued: false,
            ended: 0,
            faults: 0,
            disturbed: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            inputs: vec![0; count],
            received: vec![0; count],
            first_of: Vec::new(),
        };
        (0..count).for_each(|at| run.send(at));
        run
    }

    fn repeated(bounds: &Bounds, actions: &[Action]) -> Self {
        let mut run = Self::new(bounds);
        actions.iter().for_each(|action| run.apply(*action));
        run
    }

    fn devices(&self) -> std::ops::Range<usize> {
        0..self.bounds.schemes.len()
    }

    /// The number of steps of an epoch: the readings, and its end.
    fn steps_of_epoch(&self) -> usize {
        self.bounds.readings + 1
    }

    fn epoch_of(&self, step: usize) -> EpochNumber {
        EpochNumber(FIRST + (step / self.steps_of_epoch()) as u64)
    }

    fn is_over(&self, at: usize) -> bool {
        self.steps[at] >= self.steps_of_epoch() * self.bounds.epochs as usize
    }

    /// Returns the places in `air` of the frames from a device, or of those to it, in order.
    fn frames(&self, at: usize, is_up: bool) -> Vec<usize> {
        let id = self.world.devices[at].id;
        let is_its = |(_, to, frame): &(u64, Option<usize>, Vec<u8>)| {
            if is_up { to.is_none() && claimed_device(frame) == Some(id) } else { *to == Some(at) }
        };
        let air = self.world.air.iter().enumerate();
        air.filter(|(_, frame)| is_its(frame)).map(|(place, _)| place).collect()
    }

    /// Returns what can happen next without a fault.
    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for at in self.devices() {
            let (up, down) = (self.frames(at, true), self.frames(at, false));
            let waits = self.issued && !self.loaded[at] && self.steps[at] >= self.steps_of_epoch();
            if !self.is_over(at) && !waits {
                actions.push(Action::Step(at));
            }
            if !up.is_empty() {
                actions.push(Action::Up(at));
            }
            if !down.is_empty() {
                actions.push(Action::Down(at));
            }
            let mote = self.world.devices[at].mote.as_ref().unwrap();
            let is_quiet = up.is_empty() && down.is_empty() && mote.awaits_answer();
            if is_quiet && (self.is_owed[at] || self.is_over(at)) {
                actions.push(Action::Timeout(at));
            }
            if self.issued && !self.loaded[at] {
                actions.push(Action::Load(at));
            }
        }
        // The gateway may end an epoch when it is over for all devices. It has heard of the epoch.
        let over = (self.ended as usize + 1) * self.steps_of_epoch();
        let is_known =
            self.world.coordinator.epochs().next() == Some(EpochNumber(FIRST + self.ended));
        if self.ended < self.bounds.epochs
            && is_known
            && self.steps.iter().all(|step| *step >= over)
        {
            actions.push(Action::End(FIRST + self.ended));
        }
        let in_first = self.steps.iter().all(|step| *step < self.steps_of_epoch());
        if self.bounds.changes
            && !self.issued
            && in_first
            && self.steps.iter().any(|step| *step > 0)
        {
            actions.push(Action::Issue);
        }
        actions
    }

    fn possible_faults(&self) -> Vec<Action> {
        if self.faults == self.bounds.faults {
            return Vec::new();
        }
        let mut faults = Vec::new();
        for at in self.devices() {
            let (up, down) = (self.frames(at, true).len(), self.frames(at, false).len());
            if up > 0 {
                faults.extend([Fault::LostUp(at), Fault::TwiceUp(at)]);
            }
            if up > 1 {
                faults.push(Fault::LateUp(at));
            }
            if down > 0 {
                faults.extend([Fault::LostDown(at), Fault::TwiceDown(at)]);
            }
            if down > 1 {
                faults.push(Fault::LateDown(at));
            }
            faults.extend([Fault::Reboot(at), Fault::StateLost(at)]);
            if self.world.devices[at].copy.is_some() {
                faults.push(Fault::CopiedBack(at));
            }
        }
        faults.push(Fault::Killed);
        faults.into_iter().map(Action::Fault).collect()
    }

    /// Puts the frames into transit that a device wants to send now.
    fn send(&mut self, at: usize) {
        let mote = self.world.devices[at].mote.as_mut().unwrap();
        for frame in mote.frames(3).unwrap() {
            self.world.air.push((0, None, frame));
        }
    }

    fn apply(&mut self, action: Action) {
        match action {
            Action::Step(at) => self.step(at),
            Action::Up(at) => self.up(at, self.frames(at, true)[0]),
            Action::Down(at) => self.down(at, self.frames(at, false)[0]),
            Action::Timeout(at) => {
                self.is_owed[at] = false;
                self.world.devices[at].mote.as_mut().unwrap().timeout();
                self.inputs[at] = mixed(self.inputs[at], action);
                self.send(at);
            }
            Action::End(epoch) => self.end(epoch),
            Action::Issue => self.issue(),
            Action::Load(at) => {
                self.load(at);
                self.inputs[at] = mixed(self.inputs[at], action);
                self.send(at);
            }
            Action::Fault(fault) => {
                self.faults += 1;
                self.is_owed.fill(true);
                self.fault(fault);
            }
        }
    }

    fn step(&mut self, at: usize) {
        let step = self.steps[at];
        let epoch = self.epoch_of(step);
        self.steps[at] += 1;
        self.inputs[at] = mixed(self.inputs[at], "step");
        let device = &mut self.world.devices[at];
        let mote = device.mote.as_mut().unwrap();
        if step % (self.bounds.readings + 1) == self.bounds.readings {
            let is_new = device.chain.position.last.is_none_or(|(_, last)| last < epoch);
            if is_new && mote.end(epoch).is_ok() {
                device.chain = mote.chain();
            }
        } else {
            let record = [at as u8, step as u8, 0, 0];
            if let Some(chain) = mote.would_open(epoch, &record) {
                device.chain = moteseal_device::Chain {
                    next_index: chain.next_index,
                    epoch: chain.epoch,
                    ..mote.chain()
                };
            }
            mote.sense(epoch, &record).unwrap();
            device.chain = mote.chain();
            let index = device.chain.next_index.0 - 1;
            device.truth.entry(index).or_insert_with(|| (epoch, Vec::new())).1.push(record);
        }
        self.send(at);
    }

    fn now(&self) -> EpochNumber {
        let step = self.steps.iter().max().copied().unwrap_or(0);
        let last = EpochNumber(FIRST + self.bounds.epochs - 1);
        self.epoch_of(step).min(last)
    }

    fn up(&mut self, at: usize, place: usize) {
        let (.., frame) = self.world.air.remove(place);
        let now = self.now();
        self.received[at] = mixed(self.received[at], (&frame, now.0));
        let news = self.world.coordinator.receive(&frame, now);
        let news = news.unwrap_or_else(|refused| panic!("an honest frame was refused: {refused}"));
        assert!(news.raised.is_none(), "no round rises within the budget");
        if let Some((_, epoch)) = news.about
            && self.first_of.iter().all(|(known, _)| *known != epoch.0)
        {
            self.first_of.push((epoch.0, at));
        }
        if news.durable {
            self.world.log.push(Log::Frame(frame, now));
        }
        let answer = self.world.coordinator.acknowledgement(news.device).unwrap();
        self.world.air.push((0, Some(at), answer));
        let late = self.world.coordinator.take_late();
        self.world.late.extend(late);
    }

    fn down(&mut self, at: usize, place: usize) {
        let (.., frame) = self.world.air.remove(place);
        self.inputs[at] = mixed(self.inputs[at], &frame);
        let device = &mut self.world.devices[at];
        let kept: Vec<u32> = device.truth.keys().copied().collect();
        let has = |device: &super::Device, index: u32| {
            device.mote.as_ref().is_some_and(|mote| mote.has(SealIndex(index)))
        };
        let before: Vec<u32> = kept.into_iter().filter(|index| has(device, *index)).collect();
        let is_ahead = if self.bounds.defect == Defect::IgnoresItsPast {
            device.mote.as_mut().unwrap().acknowledged(&frame).unwrap();
            false
        } else {
            device.receive(&frame)
        };
        if is_ahead {
            self.world.rolled_back += 1;
        } else {
            let gone = before.into_iter().filter(|index| !has(device, *index));
            self.acknowledged.extend(gone.map(|index| (at, index)));
        }
        self.send(at);
    }

    fn end(&mut self, epoch: u64) {
        self.ended += 1;
        let ended = self.world.coordinator.end(EpochNumber(epoch), &secret(99)).unwrap();
        let mut kept = ended.clone();
        if self.bounds.defect == Defect::LosesSeal {
            kept.bundles.pop();
        }
        self.world.log.push(Log::End(EpochNumber(epoch)));
        self.world.ended.push(kept);
        let late = self.world.coordinator.take_late();
        self.world.late.extend(late);
        self.received.iter_mut().for_each(|hash| *hash = mixed(*hash, ("end", epoch)));
    }

    /// Signs the next version of the roster, and lets the gateway continue with it.
    fn issue(&mut self) {
        let operator = secret(98);
        let public = operator.public();
        let mut next = NextRoster::after(self.world.roster.bytes(), &operator, &public).unwrap();
        for at in self.devices() {
            let name = format!("mote-{at}");
            let key = secret(at as u8 + NEXT_KEY).public();
            next.rotate(&name, &key, EpochNumber(FIRST + 1), SealIndex(0)).unwrap();
        }
        self.world.roster = Roster::open(&next.issue().unwrap(), &public).unwrap();
        let next = self.world.coordinator.under(self.world.roster.clone()).unwrap();
        self.world.continue_with(next);
        self.issued = true;
        self.received.iter_mut().for_each(|hash| *hash = mixed(*hash, "issue"));
    }

    fn load(&mut self, at: usize) {
        let device = &mut self.world.devices[at];
        let mote = device.mote.as_mut().unwrap();
        let roster = &self.world.roster;
        mote.load(roster);
        mote.set_roster(RosterName { version: roster.version(), digest: roster.digest() });
        self.loaded[at] = true;
    }

    fn fault(&mut self, fault: Fault) {
        let first = |frames: Vec<usize>| frames[0];
        match fault {
            Fault::LostUp(at) => drop(self.world.air.remove(first(self.frames(at, true)))),
            Fault::LostDown(at) => drop(self.world.air.remove(first(self.frames(at, false)))),
            Fault::TwiceUp(at) => {
                let place = first(self.frames(at, true));
                let again = self.world.air[place].clone();
                self.up(at, place);
                self.world.air.push(again);
            }
            Fault::TwiceDown(at) => {
                let place = first(self.frames(at, false));
                let again = self.world.air[place].clone();
                self.down(at, place);
                self.world.air.push(again);
            }
            Fault::LateUp(at) => self.up(at, self.frames(at, true)[1]),
            Fault::LateDown(at) => self.down(at, self.frames(at, false)[1]),
            Fault::Reboot(at) | Fault::StateLost(at) | Fault::CopiedBack(at) => {
                self.restart(at, fault);
            }
            Fault::Killed => {
                if self.bounds.defect == Defect::AnswersBeforeSync
                    && matches!(self.world.log.last(), Some(Log::Frame(..)))
                {
                    self.world.log.pop();
                }
                self.world.restart_coordinator();
                self.received.iter_mut().for_each(|hash| *hash = mixed(*hash, "killed"));
            }
        }
    }

    fn restart(&mut self, at: usize, fault: Fault) {
        self.disturbed.insert(at);
        self.inputs[at] = mixed(self.inputs[at], fault);
        let device = &mut self.world.devices[at];
        let mote = device.mote.take().unwrap();
        device.sent_before = mote.sent_before();
        let (chain, waiting) = mote.into_parts();
        device.chain = chain;
        let waiting: Vec<Waiting> = match fault {
            Fault::StateLost(_) => self.world.roll_back(at, true),
            Fault::CopiedBack(_) => self.world.roll_back(at, false),
            _ => {
                if device.past.is_none() {
                    device.copy = Some((chain, waiting.clone()));
                }
                waiting
            }
        };
        self.loaded[at] |= self.issued;
        self.world.boot(at, waiting);
        self.send(at);
    }

    /// Returns a hash of the whole state.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.inputs, &self.received, &self.first_of, self.faults, self.ended).hash(&mut hasher);
        (&self.steps, &self.loaded, &self.is_owed, self.issued, &self.acknowledged)
            .hash(&mut hasher);
        for at in self.devices() {
            for is_up in [true, false] {
                let frames = self.frames(at, is_up);
                frames.iter().for_each(|place| self.world.air[*place].2.hash(&mut hasher));
                frames.len().hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Checks a state in which nothing can happen any more but faults.
    fn check_end(mut self) {
        assert!(self.devices().all(|at| self.is_over(at)), "a device cannot continue");
        for device in &mut self.world.devices {
            if let Some((past, _)) = device.past.take() {
                device.truth = past;
            }
        }
        if self.ended < self.bounds.epochs {
            // The gateway never heard of the last epochs, so there is nothing to audit.
            return;
        }
        let outcome = self.world.audit();
        assert_eq!(outcome.left, 0, "a seal waits forever");
        let arrived = self.world.arrived_indices();
        for (at, index) in &self.acknowledged {
            let id = self.world.devices[*at].id;
            let is_past = !self.world.devices[*at].truth.contains_key(index);
            assert!(
                is_past || arrived.contains(&(id, *index)),
                "the acknowledged seal {index} of device {at} is not in the store"
            );
        }
        for at in self.devices().filter(|at| !self.disturbed.contains(at)) {
            let device = &self.world.devices[at];
            for index in device.truth.keys() {
                assert!(
                    arrived.contains(&(device.id, *index)),
                    "seal {index} of device {at}, which never restarted, is not in the store"
                );
            }
        }
    }
}

/// A search of all states within bounds.
#[derive(Debug, Default)]
struct Search {
    visited: HashSet<u64>,
    states: u64,
    ends: u64,
    deepest: usize,
    /// The actions that lead to a violation, and its message.
    violation: Option<(Vec<Action>, String)>,
}

impl Search {
    fn of(bounds: &Bounds) -> Self {
        let mut search = Self::default();
        search.explore(bounds, &mut Vec::new(), Run::new(bounds));
        search
    }

    fn explore(&mut self, bounds: &Bounds, path: &mut Vec<Action>, run: Run) {
        self.states += 1;
        self.deepest = self.deepest.max(path.len());
        if self.states.is_multiple_of(100_000) {
            eprintln!("{} states, {} ends, depth {}", self.states, self.ends, self.deepest);
        }
        let actions = run.actions();
        let is_end = actions.is_empty();
        let all: Vec<Action> = actions.into_iter().chain(run.possible_faults()).collect();
        let mut here = Some(run);
        if is_end {
            self.ends += 1;
            let run = Run::repeated(bounds, path);
            self.guard(path, None, || run.check_end());
        }
        if path.len() >= DEEPEST {
            self.violation = Some((path.clone(), "the machines make no progress".to_owned()));
        }
        for (at, action) in all.iter().enumerate() {
            if self.violation.is_some() {
                return;
            }
            let last = at + 1 == all.len();
            let next = if last { here.take() } else { None };
            let next = self.guard(path, Some(*action), || {
                let mut next = next.unwrap_or_else(|| Run::repeated(bounds, path));
                next.apply(*action);
                next
            });
            let Some(next) = next else { return };
            if self.visited.insert(next.fingerprint()) {
                path.push(*action);
                self.explore(bounds, path, next);
                path.pop();
            }
        }
    }

    /// Runs a part of the search. A panic is a violation.
    fn guard<T>(
        &mut self,
        path: &[Action],
        action: Option<Action>,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        catch_unwind(AssertUnwindSafe(work))
            .map_err(|panic| {
                let text = panic.downcast_ref::<String>().cloned();
                let text =
                    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let path = path.iter().copied().chain(action).collect();
                self.violation = Some((path, text.unwrap_or_default()));
            })
            .ok()
    }

    #[track_caller]
    fn holds(self, what: &str) -> Self {
        println!("{what}: {} states, {} ends, depth {}", self.states, self.ends, self.deepest);
        if let Some((path, text)) = &self.violation {
            panic!("{what}: {text}\nafter {path:#?}");
        }
        self
    }
}

fn bounds(schemes: &[Scheme], readings: usize, epochs: u64, faults: usize) -> Bounds {
    let (schemes, defect) = (schemes.to_vec(), Defect::None);
    Bounds { schemes, readings, epochs, faults, changes: false, defect }
}

/// Searches run on a thread with a large stack, because each action is a call.
fn searched(bounds: Bounds) -> Search {
    let search = std::thread::Builder::new().stack_size(256 << 20);
    search.spawn(move || Search::of(&bounds)).unwrap().join().unwrap()
}

fn no_fault_loses_or_accuses(scheme: Scheme) {
    let search = searched(bounds(&[scheme], 1, 1, 1)).holds(&format!("{scheme:?}, one fault"));
    assert!(search.states > 10_000 && search.ends > 1000, "{search:?}");
}

#[test]
fn no_interleaving_of_a_star_with_a_fault_loses_or_accuses() {
    no_fault_loses_or_accuses(Scheme::Star);
}

#[test]
fn no_interleaving_of_a_tree_with_a_fault_loses_or_accuses() {
    no_fault_loses_or_accuses(Scheme::Tree);
}

#[test]
fn the_search_finds_each_deliberate_defect() {
    for (defect, readings) in
        [(Defect::AnswersBeforeSync, 1), (Defect::LosesSeal, 1), (Defect::IgnoresItsPast, 2)]
    {
        let broken = Bounds { defect, ..bounds(&[Scheme::Star], readings, 1, 1) };
        let start = std::time::Instant::now();
        let search = searched(broken);
        let (path, text) = search.violation.unwrap_or_else(|| panic!("{defect:?}"));
        println!("{defect:?}: {} states, {:?}: {text}", search.states, start.elapsed());
        assert!(!path.is_empty(), "{defect:?}: {text}");
    }
}

#[test]
#[ignore = "takes long; a part of `make test-long`"]
fn no_interleaving_within_the_long_bounds_loses_or_accuses() {
    let changing = Bounds { changes: true, ..bounds(&[Scheme::Star], 1, 2, 0) };
    searched(changing).holds("two epochs with a change of the roster");
    for scheme in [Scheme::Star, Scheme::Tree] {
        searched(bounds(&[scheme], 1, 1, 2)).holds(&format!("{scheme:?}, two faults"));
        searched(bounds(&[scheme], 1, 2, 1)).holds(&format!("{scheme:?}, two epochs, one fault"));
    }
}
