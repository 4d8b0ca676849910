//! Explores every interleaving of a small group: its devices and its gateway run the product's state
//! machines, frames are delivered one at a time, and at most a few faults happen anywhere. When
//! nothing is left to do, the audit must accuse nobody, every acknowledged seal must be in the store,
//! and every seal must contain exactly the readings that its device sensed under its index.
//!
//! A state of the search is the states of all machines, the frames in transit, and the faults that
//! are left. Visited states are recognised by a hash of 64 bits. Two devices have too many states
//! together for the largest bounds, so that [`apart`] explores each device on its own.
//!
//! The search assumes the following about a group:
//! - A device whose state is lost or copied back starts after its earlier frames have arrived or are
//!   lost.
//! - The clocks of a group agree on the epoch: the gateway ends an epoch after all devices have, and a
//!   frame arrives in the epoch of its device. The gateway ends the oldest epoch first.
//! - No round rises: the budget is larger than the number of readings.
//! - The gateway loads a version of the roster before any device does. Every device loads it before
//!   the first epoch in which it matters.
//! - A gateway restarts from the whole log of its frames. It does not shorten the log.
//! - A device times out only if no frame to it or from it is in transit, and if a fault may have cost
//!   it an answer or it has nothing else to do. Several faults cost it one answer.

mod apart;

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use moteseal_core::record::Scheme;

use super::FIRST;
use super::machines::{Defect, DeviceInput, GatewayInput, Kept, Machines, Number, Numbered};
use apart::Apart;

/// A longer list of actions means that the machines make no progress.
const DEEPEST: usize = 400;
/// The largest number of devices.
const DEVICES: usize = 2;

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
    /// The gateway receives a frame of an epoch from the other device (only in [`apart`]).
    Hear(u64),
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
    Restart(usize, Kept),
    /// The gateway restarts.
    Killed,
}

/// The bounds of a search.
#[derive(Clone, Debug)]
struct Bounds {
    schemes: Vec<Scheme>,
    /// The readings of each epoch.
    readings: usize,
    epochs: u64,
    /// The faults of all together.
    faults: u8,
    /// Whether a version of the roster may be issued.
    changes: bool,
    defect: Defect,
}

/// The frames in transit in one direction, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Channel(Number);

/// A state of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    devices: [Number; DEVICES],
    up: [Channel; DEVICES],
    down: [Channel; DEVICES],
    gateway: Number,
    /// Whether a fault may have cost the device an answer. Without one, a device times out only at
    /// its end; otherwise it could time out again and again before its next step.
    is_owed: [bool; DEVICES],
    is_issued: bool,
    faults_of: [u8; DEVICES],
    kills: u8,
}

impl Fault {
    /// Returns the device with the fault, or whose frame has it.
    const fn device(self) -> Option<usize> {
        match self {
            Self::LostUp(at)
            | Self::LostDown(at)
            | Self::TwiceUp(at)
            | Self::TwiceDown(at)
            | Self::LateUp(at)
            | Self::LateDown(at)
            | Self::Restart(at, _) => Some(at),
            Self::Killed => None,
        }
    }
}

impl State {
    /// Returns the places of the group's devices.
    const fn places(bounds: &Bounds) -> std::ops::Range<usize> {
        0..bounds.schemes.len()
    }
}

fn hash_of(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// A search of all states within bounds.
struct Search {
    bounds: Bounds,
    machines: Machines,
    /// The contents of channels.
    contents: Numbered<Vec<Number>>,
    visited: Visited,
    found: Found,
    /// All states, if they are kept for a comparison.
    kept: Option<Vec<State>>,
}

/// The hashes of states.
type Visited = HashSet<u64, BuildHasherDefault<AsIs>>;

/// The result of a search.
#[derive(Debug, Default)]
struct Found {
    states: u64,
    steps: u64,
    ends: u64,
    deepest: usize,
    /// The actions that lead to a violation, and its message.
    violation: Option<(Vec<Action>, String)>,
}

/// A state on the path that is being explored, with the actions that were not taken yet.
struct Visit {
    state: State,
    action: Option<Action>,
    rest: Vec<Action>,
}

/// The hash of a number that is a hash.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a fingerprint is a u64")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Search {
    fn new(bounds: &Bounds) -> Self {
        let machines =
            Machines::new(&bounds.schemes, bounds.readings, bounds.epochs, bounds.defect);
        Self {
            bounds: bounds.clone(),
            machines,
            contents: Numbered::default(),
            visited: HashSet::default(),
            found: Found::default(),
            kept: None,
        }
    }

    fn first(&mut self) -> State {
        let empty = Channel(self.contents.number(Vec::new()));
        let mut state = State {
            devices: [0; DEVICES],
            up: [empty; DEVICES],
            down: [empty; DEVICES],
            gateway: self.machines.first_gateway(),
            is_owed: [false; DEVICES],
            is_issued: false,
            faults_of: [0; DEVICES],
            kills: 0,
        };
        for at in State::places(&self.bounds) {
            let (device, frames) = self.machines.first_device(at);
            state.devices[at] = device;
            self.push(&mut state.up[at], &frames);
        }
        state
    }

    /// Explores all states, depth first.
    fn explore(&mut self) {
        let first = self.first();
        let mut path = vec![self.visit(first, None)];
        while let Some(last) = path.last_mut() {
            let Some(action) = last.rest.pop() else {
                path.pop();
                continue;
            };
            let state = last.state;
            self.found.steps += 1;
            let next = catch_unwind(AssertUnwindSafe(|| {
                let next = self.after(state, action);
                let is_new = self.visited.insert(hash_of(&next));
                is_new.then(|| self.visit(next, Some(action)))
            }));
            match next {
                Ok(None) => {}
                Ok(Some(visit)) if path.len() < DEEPEST => {
                    path.push(visit);
                    self.found.deepest = self.found.deepest.max(path.len());
                }
                failed => {
                    let text = match failed {
                        Ok(_) => "the machines make no progress".to_owned(),
                        Err(panic) => text_of(&*panic),
                    };
                    let path = path.iter().filter_map(|visit| visit.action);
                    self.found.violation = Some((path.chain([action]).collect(), text));
                    return;
                }
            }
        }
    }

    /// Counts a new state, and checks it if it is an end.
    fn visit(&mut self, state: State, action: Option<Action>) -> Visit {
        self.found.states += 1;
        if self.found.states.is_multiple_of(1 << 22) {
            eprintln!("{:?}, {}", self.found, self.machines.counts());
        }
        if let Some(kept) = &mut self.kept {
            kept.push(state);
        }
        let mut rest = self.actions(&state);
        if rest.is_empty() {
            self.found.ends += 1;
            let places = State::places(&self.bounds);
            self.machines.check_end(&state.devices[places], state.gateway);
        }
        self.add_faults(&state, &mut rest);
        Visit { state, action, rest }
    }

    fn has_faults(&self, state: &State) -> bool {
        state.faults_of.iter().sum::<u8>() + state.kills < self.bounds.faults
    }

    fn length(&self, channel: Channel) -> usize {
        self.contents.get(channel.0).len()
    }

    fn push(&mut self, channel: &mut Channel, frames: &[Number]) {
        if !frames.is_empty() {
            let frames = [self.contents.get(channel.0), frames].concat();
            channel.0 = self.contents.number(frames);
        }
    }

    /// Removes the frame at a place of a channel.
    fn take(&mut self, channel: &mut Channel, place: usize) -> Number {
        let mut frames = self.contents.get(channel.0).clone();
        let frame = frames.remove(place);
        channel.0 = self.contents.number(frames);
        frame
    }

    /// Returns what can happen next without a fault.
    fn actions(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::with_capacity(32);
        State::places(&self.bounds).for_each(|at| self.add_actions_of(state, at, &mut actions));
        let steps = || state.devices[State::places(&self.bounds)].iter();
        let all = |is: &dyn Fn(usize) -> bool| {
            steps().all(|device| is(self.machines.device(*device).step))
        };
        if let Some((epoch, over)) = self.can_end(state)
            && all(&|step| step >= over)
        {
            actions.push(Action::End(epoch));
        }
        if self.can_issue(state) && all(&|step| step < self.machines.steps_of_epoch()) {
            actions.push(Action::Issue);
        }
        actions
    }

    /// Adds what a device, or a frame from or to it, can do next without a fault.
    fn add_actions_of(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let device = self.machines.device(state.devices[at]);
        let (up, down) = (self.length(state.up[at]), self.length(state.down[at]));
        let is_over = device.step == self.machines.steps();
        let is_late = state.is_issued && !device.has_loaded;
        let waits = is_late && device.step >= self.machines.steps_of_epoch();
        if !(is_over || waits) {
            actions.push(Action::Step(at));
        }
        if up > 0 {
            actions.push(Action::Up(at));
        }
        if down > 0 {
            actions.push(Action::Down(at));
        }
        let is_quiet = up == 0 && down == 0 && device.awaits_answer();
        if is_quiet && (state.is_owed[at] || is_over) {
            actions.push(Action::Timeout(at));
        }
        if is_late {
            actions.push(Action::Load(at));
        }
    }

    /// Returns the epoch that the gateway ends next, and the step that all devices must have reached
    /// before. Returns `None` if the gateway has not heard of an epoch that it has not ended.
    fn can_end(&self, state: &State) -> Option<(u64, usize)> {
        let epoch = self.machines.open_epoch(state.gateway)?;
        Some((epoch, ((epoch - FIRST) as usize + 1) * self.machines.steps_of_epoch()))
    }

    const fn can_issue(&self, state: &State) -> bool {
        self.bounds.changes && !state.is_issued
    }

    fn add_faults(&self, state: &State, actions: &mut Vec<Action>) {
        if self.has_faults(state) {
            State::places(&self.bounds).for_each(|at| self.add_faults_of(state, at, actions));
            actions.push(Action::Fault(Fault::Killed));
        }
    }

    /// Adds the faults of a device, and of the frames from it and to it.
    fn add_faults_of(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let mut add = |fault| actions.push(Action::Fault(fault));
        let (up, down) = (self.length(state.up[at]), self.length(state.down[at]));
        if up > 0 {
            add(Fault::LostUp(at));
            add(Fault::TwiceUp(at));
        }
        if up > 1 {
            add(Fault::LateUp(at));
        }
        if down > 0 {
            add(Fault::LostDown(at));
            add(Fault::TwiceDown(at));
        }
        if down > 1 {
            add(Fault::LateDown(at));
        }
        add(Fault::Restart(at, Kept::State));
        add(Fault::Restart(at, Kept::Nothing));
        if self.machines.device(state.devices[at]).has_copy() {
            add(Fault::Restart(at, Kept::Copy));
        }
    }

    fn after(&mut self, mut state: State, action: Action) -> State {
        match action {
            Action::Step(at) => self.device(&mut state, at, DeviceInput::Step),
            Action::Up(at) => self.up(&mut state, at, 0),
            Action::Down(at) => self.down(&mut state, at, 0),
            Action::Timeout(at) => {
                state.is_owed[at] = false;
                self.device(&mut state, at, DeviceInput::Timeout);
            }
            Action::Hear(epoch) => {
                unreachable!("only one device alone has another device: {epoch}")
            }
            Action::End(epoch) => self.gateway(&mut state, GatewayInput::End(epoch)),
            Action::Issue => {
                state.is_issued = true;
                self.gateway(&mut state, GatewayInput::Load);
            }
            Action::Load(at) => self.device(&mut state, at, DeviceInput::Load),
            Action::Fault(fault) => {
                match fault.device() {
                    Some(at) => state.faults_of[at] += 1,
                    None => state.kills += 1,
                }
                self.fault(&mut state, fault);
            }
        }
        state
    }

    fn device(&mut self, state: &mut State, at: usize, input: DeviceInput) {
        let (device, frames) = self.machines.device_after(state.devices[at], input);
        state.devices[at] = device;
        self.push(&mut state.up[at], &frames);
    }

    fn gateway(&mut self, state: &mut State, input: GatewayInput) {
        state.gateway = self.machines.gateway_after(state.gateway, input).0;
    }

    /// Returns the input of the gateway if it receives the frame at a place of a device's channel.
    fn input(&self, state: &State, at: usize, place: usize) -> GatewayInput {
        let now = self.machines.epoch_of(self.machines.device(state.devices[at]).step);
        GatewayInput::Frame(self.contents.get(state.up[at].0)[place], now)
    }

    /// The gateway receives the frame at a place of a device's channel.
    fn up(&mut self, state: &mut State, at: usize, place: usize) {
        let input = self.input(state, at, place);
        self.take(&mut state.up[at], place);
        let (gateway, answer) = self.machines.gateway_after(state.gateway, input);
        state.gateway = gateway;
        self.push(&mut state.down[at], answer.as_slice());
    }

    /// A device receives the frame at a place of its channel.
    fn down(&mut self, state: &mut State, at: usize, place: usize) {
        let frame = self.take(&mut state.down[at], place);
        self.device(state, at, DeviceInput::Frame(frame));
    }

    fn fault(&mut self, state: &mut State, fault: Fault) {
        match fault.device() {
            Some(at) => state.is_owed[at] = true,
            None => state.is_owed.fill(true),
        }
        match fault {
            Fault::LostUp(at) => drop(self.take(&mut state.up[at], 0)),
            Fault::LostDown(at) => drop(self.take(&mut state.down[at], 0)),
            Fault::TwiceUp(at) => {
                let frame = self.contents.get(state.up[at].0)[0];
                self.up(state, at, 0);
                self.push(&mut state.up[at], &[frame]);
            }
            Fault::TwiceDown(at) => {
                let frame = self.contents.get(state.down[at].0)[0];
                self.down(state, at, 0);
                self.push(&mut state.down[at], &[frame]);
            }
            Fault::LateUp(at) => self.up(state, at, 1),
            Fault::LateDown(at) => self.down(state, at, 1),
            Fault::Restart(at, kept) => {
                if kept != Kept::State {
                    state.up[at] = Channel(self.contents.number(Vec::new()));
                }
                self.device(state, at, DeviceInput::Restart(kept, state.is_issued));
            }
            Fault::Killed => self.gateway(state, GatewayInput::Restart),
        }
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

fn bounds(schemes: &[Scheme], readings: usize, epochs: u64, faults: u8) -> Bounds {
    let (schemes, defect) = (schemes.to_vec(), Defect::None);
    Bounds { schemes, readings, epochs, faults, changes: false, defect }
}

impl Found {
    /// Asserts that nothing within the bounds violates a property.
    #[track_caller]
    fn holds(&self, what: &str) {
        if let Some((path, text)) = &self.violation {
            panic!("{what}: {text}\nafter {path:#?}");
        }
    }
}

/// Asserts that no interleaving within the bounds violates a property.
#[track_caller]
fn holds(what: &str, bounds: &Bounds, keeps: bool) -> Search {
    let start = Instant::now();
    let mut search = Search::new(bounds);
    search.kept = keeps.then(Vec::new);
    search.explore();
    println!("{what}: {:?}, {}, {:?}", search.found, search.machines.counts(), start.elapsed());
    search.found.holds(what);
    search
}

/// Like [`holds`], but explores each of two devices on its own.
#[track_caller]
fn holds_apart(what: &str, bounds: &Bounds) -> Apart {
    let start = Instant::now();
    let mut apart = Apart::new(Search::new(bounds));
    apart.explore();
    println!("{what}, each alone: {apart}, {:?}", start.elapsed());
    apart.found().holds(what);
    apart
}

/// Two devices with different schemes.
const BOTH: [Scheme; 2] = [Scheme::Star, Scheme::Tree];

#[test]
fn no_interleaving_of_a_device_with_a_fault_and_a_new_roster_loses_or_accuses() {
    for scheme in BOTH {
        let bounds = Bounds { changes: true, ..bounds(&[scheme], 3, 2, 1) };
        let found = holds(&format!("one device, {scheme:?}, one fault"), &bounds, false).found;
        assert!(found.states > 100_000 && found.ends > 500, "{found:?}");
    }
}

#[test]
fn no_interleaving_of_two_devices_with_a_fault_and_a_new_roster_loses_or_accuses() {
    let bounds = Bounds { changes: true, ..bounds(&BOTH, 1, 2, 1) };
    let apart = holds_apart("two devices, one fault", &bounds);
    assert!(apart.pairs > 10_000_000 && apart.audited.len() > 2000, "{apart}");
}

#[test]
fn two_devices_alone_reach_what_they_reach_together() {
    alone_and_together(&Bounds { changes: true, ..bounds(&BOTH, 1, 2, 0) });
    alone_and_together(&bounds(&BOTH, 1, 1, 1));
}

/// Compares what each of two devices reaches alone, in all pairs, with what they reach together: the
/// states except for that of the gateway, and what the gateway has stored at the ends.
#[track_caller]
fn alone_and_together(bounds: &Bounds) {
    let together = holds("two devices together", bounds, true);
    let kept = together.kept.iter().flatten();
    let states: Visited = kept.map(|state| hash_of(&together.together(state))).collect();
    let mut apart = Apart::new(together);
    apart.explore();
    println!("each alone: {apart}");
    apart.found().holds("each alone");
    let pairs = apart.pairs();
    assert_eq!(pairs.len(), states.len());
    assert!(pairs == states, "the same number of states, but others");
    let audited = &apart.search.machines.audited;
    assert_eq!(apart.audited.len(), audited.len());
    assert!(apart.audited == *audited, "the same number of ends, but others");
}

#[test]
#[ignore = "takes long; a part of `make test-long`"]
fn no_interleaving_within_the_long_bounds_loses_or_accuses() {
    alone_and_together(&Bounds { changes: true, ..bounds(&BOTH, 1, 2, 1) });
    alone_and_together(&bounds(&BOTH, 1, 1, 2));
    let two = Bounds { changes: true, ..bounds(&BOTH, 3, 2, 2) };
    holds_apart("two devices, three readings in each of two epochs, two faults", &two);
}

/// Deliberate defects, each with the readings that it needs and parts of the violations to which it
/// may lead.
const DEFECTS: [(Defect, usize, [&str; 2]); 3] = [
    (
        Defect::AnswersBeforeSync,
        1,
        ["the gateway has lost what it had acknowledged", "is not in the store"],
    ),
    (Defect::LosesSeal, 1, ["the store lacks a seal of the manifest"; 2]),
    (
        Defect::IgnoresItsPast,
        2,
        ["a seal has other readings than its device sensed", "an honest frame was refused"],
    ),
];

fn is_one_of(text: &str, violations: [&str; 2]) -> bool {
    violations.iter().any(|violation| text.contains(violation))
}

#[test]
fn the_search_finds_each_deliberate_defect() {
    for (defect, readings, violations) in DEFECTS {
        let broken = Bounds { defect, ..bounds(&[Scheme::Star], readings, 1, 1) };
        let start = Instant::now();
        let mut search = Search::new(&broken);
        search.explore();
        let (path, text) = search.found.violation.unwrap_or_else(|| panic!("{defect:?}"));
        println!("{defect:?}: {} states, {:?}: {text}", search.found.states, start.elapsed());
        assert!(!path.is_empty() && is_one_of(&text, violations), "{defect:?}: {text}");
    }
}

#[test]
fn the_search_of_each_device_alone_finds_each_deliberate_defect() {
    for (defect, readings, violations) in DEFECTS {
        let broken = Bounds { defect, ..bounds(&BOTH, readings, 1, 1) };
        let mut apart = Apart::new(Search::new(&broken));
        apart.explore();
        let Some((path, text)) = &apart.found().violation else { panic!("{defect:?}: {apart}") };
        println!("{defect:?}: {text}");
        assert!(!path.is_empty() && is_one_of(text, violations), "{defect:?}: {text}");
    }
}
