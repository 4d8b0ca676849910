//! Explores every interleaving of a small group: its devices and its gateway run the product's state
//! machines, frames are delivered one at a time, and at most a few faults happen anywhere. When
//! nothing is left to do, the audit must accuse nobody, every acknowledged seal must be in the store,
//! and every seal must contain exactly the readings that its device sensed under its index.
//!
//! A state of the search is the states of all machines, the frames in transit, and the faults that
//! are left. Visited states are recognised by a hash of 64 bits.
//!
//! The search assumes the following about a group:
//! - A device whose state is lost or copied back starts after its earlier frames have arrived or are
//!   lost.
//! - The clocks of a group agree on the epoch: the gateway ends an epoch after all devices have.
//! - Every device loads a version of the roster before the first epoch in which it matters.
//! - A device times out only if a fault may have cost it an answer, or if it has nothing else to do.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use moteseal_core::record::Scheme;

use super::FIRST;
use super::machines::{
    Counts, Defect, DeviceInput, GatewayInput, Kept, Machines, Number, Numbered,
};

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
    /// The faults of each device, of the gateway, and of all together.
    faults_of: [u8; DEVICES],
    kills: u8,
    faults: u8,
    /// Whether a version of the roster may be issued.
    changes: bool,
    defect: Defect,
    /// Whether to explore only one order of actions that do not affect each other. The faults are
    /// then divided among the devices and the gateway: a fault of one must not use up the faults of
    /// another.
    is_reduced: bool,
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

impl Action {
    /// Returns the device that acts, or whose frame it is.
    const fn device(self) -> Option<usize> {
        match self {
            Self::Step(at) | Self::Up(at) | Self::Down(at) | Self::Timeout(at) | Self::Load(at) => {
                Some(at)
            }
            Self::End(_) | Self::Issue | Self::Fault(Fault::Killed) => None,
            Self::Fault(
                Fault::LostUp(at)
                | Fault::LostDown(at)
                | Fault::TwiceUp(at)
                | Fault::TwiceDown(at)
                | Fault::LateUp(at)
                | Fault::LateDown(at)
                | Fault::Restart(at, _),
            ) => Some(at),
        }
    }
}

impl State {
    /// Returns the places of the group's devices.
    const fn places(bounds: &Bounds) -> std::ops::Range<usize> {
        0..bounds.schemes.len()
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// A search of all states within bounds.
struct Search {
    bounds: Bounds,
    machines: Machines,
    /// The contents of channels.
    contents: Numbered<Vec<Number>>,
    visited: HashSet<u64, BuildHasherDefault<AsIs>>,
    found: Found,
}

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
    fn of(bounds: &Bounds) -> (Found, Counts) {
        let machines =
            Machines::new(&bounds.schemes, bounds.readings, bounds.epochs, bounds.defect);
        let mut search = Self {
            bounds: bounds.clone(),
            machines,
            contents: Numbered::default(),
            visited: HashSet::default(),
            found: Found::default(),
        };
        search.explore();
        (search.found, search.machines.counts())
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
                let is_new = self.visited.insert(next.fingerprint());
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
        let mut rest = self.actions(&state);
        if rest.is_empty() {
            self.found.ends += 1;
            let places = State::places(&self.bounds);
            self.machines.check_end(&state.devices[places], state.gateway);
        }
        self.add_faults(&state, &mut rest);
        let alone = State::places(&self.bounds).find(|at| self.acts_alone(&state, *at));
        if let Some(at) = alone.filter(|_| self.bounds.is_reduced) {
            rest.retain(|action| action.device() == Some(at));
        }
        Visit { state, action, rest }
    }

    /// Returns whether it suffices to explore what this device does next, before anything else: a
    /// persistent set (Godefroid, Partial-Order Methods, 1996, section 4). Whatever the others do
    /// before the device acts then neither affects what it can do, nor is affected by it:
    /// - The other device and this one share only the gateway, which keeps them apart, except that
    ///   it notes which device was the first in an epoch.
    /// - The end of an epoch affects only frames that the gateway receives, and comes after the
    ///   device's steps of that epoch.
    /// - A new roster comes before the end of the device's first epoch.
    /// - A restart of the gateway affects everything.
    ///
    /// No state repeats, so that every action is taken at last.
    fn acts_alone(&self, state: &State, at: usize) -> bool {
        let step = self.machines.device(state.devices[at]).step;
        let of_epoch = self.machines.steps_of_epoch();
        let can_issue = self.bounds.changes && !state.is_issued && step < of_epoch;
        let can_restart = self.has_faults(state) && state.kills < self.bounds.kills;
        if can_issue || can_restart {
            return false;
        }
        let is_sending = self.length(state.up[at]) > 0;
        let ended = self.machines.ended(state.gateway);
        let can_end = ended < self.bounds.epochs && step >= (ended as usize + 1) * of_epoch;
        let newest = self.machines.epoch_of(step);
        let is_first = !self.machines.is_known(state.gateway, newest);
        if is_sending && (can_end || is_first) {
            return false;
        }
        let mut actions = self.actions(state);
        self.add_faults(state, &mut actions);
        actions.iter().any(|action| action.device() == Some(at))
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
        let of_epoch = self.machines.steps_of_epoch();
        let devices = state.devices.map(|device| self.machines.device(device));
        let devices = &devices[State::places(&self.bounds)];
        for (at, device) in devices.iter().enumerate() {
            let (up, down) = (self.length(state.up[at]), self.length(state.down[at]));
            let is_over = device.step == self.machines.steps();
            let is_late = state.is_issued && !device.has_loaded;
            let waits = is_late && device.step >= of_epoch;
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
        // The gateway may end an epoch when it is over for all devices, if it has heard of it.
        let ended = self.machines.ended(state.gateway);
        let over = (ended as usize + 1) * of_epoch;
        if ended < self.bounds.epochs
            && self.machines.open_epoch(state.gateway) == Some(FIRST + ended)
            && devices.iter().all(|device| device.step >= over)
        {
            actions.push(Action::End(FIRST + ended));
        }
        if self.bounds.changes
            && !state.is_issued
            && devices.iter().all(|device| device.step < of_epoch)
            && devices.iter().any(|device| device.step > 0)
        {
            actions.push(Action::Issue);
        }
        actions
    }

    fn add_faults(&self, state: &State, actions: &mut Vec<Action>) {
        if !self.has_faults(state) {
            return;
        }
        let mut add = |fault| actions.push(Action::Fault(fault));
        let may = |at: &usize| state.faults_of[*at] < self.bounds.faults_of[*at];
        for at in State::places(&self.bounds).filter(may) {
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
        if state.kills < self.bounds.kills {
            add(Fault::Killed);
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
            Action::End(epoch) => self.gateway(&mut state, GatewayInput::End(epoch)),
            Action::Issue => {
                state.is_issued = true;
                self.gateway(&mut state, GatewayInput::Load);
            }
            Action::Load(at) => self.device(&mut state, at, DeviceInput::Load),
            Action::Fault(fault) => {
                match action.device() {
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

    /// The gateway receives the frame at a place of a device's channel.
    fn up(&mut self, state: &mut State, at: usize, place: usize) {
        let frame = self.take(&mut state.up[at], place);
        let now = self.machines.epoch_of(self.machines.device(state.devices[at]).step);
        let input = GatewayInput::Frame(frame, now);
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
        match Action::Fault(fault).device() {
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
    let (faults_of, kills) = ([faults; DEVICES], faults);
    Bounds {
        schemes,
        readings,
        epochs,
        faults_of,
        kills,
        faults,
        changes: false,
        defect,
        is_reduced: false,
    }
}

/// Asserts that no interleaving within the bounds violates a property.
#[track_caller]
fn holds(what: &str, bounds: &Bounds) -> Found {
    let start = Instant::now();
    let (found, counts) = Search::of(bounds);
    println!("{what}: {found:?}, {counts}, {:?}", start.elapsed());
    if let Some((path, text)) = &found.violation {
        panic!("{what}: {text}\nafter {path:#?}");
    }
    found
}

/// Two devices with different schemes.
const BOTH: [Scheme; 2] = [Scheme::Star, Scheme::Tree];

#[test]
fn no_interleaving_of_a_device_with_a_fault_and_a_new_roster_loses_or_accuses() {
    for scheme in BOTH {
        let bounds = Bounds { changes: true, ..bounds(&[scheme], 3, 2, 1) };
        let found = holds(&format!("one device, {scheme:?}, one fault"), &bounds);
        assert!(found.states > 100_000 && found.ends > 500, "{found:?}");
    }
}

#[test]
fn no_interleaving_of_two_devices_with_a_fault_loses_or_accuses() {
    let found = holds("two devices, one epoch, one fault", &bounds(&BOTH, 1, 1, 1));
    assert!(found.states > 100_000 && found.ends > 100, "{found:?}");
}

#[test]
fn fewer_orders_lead_to_the_same_ends() {
    for (readings, epochs, faults, changes) in [(1, 2, 0, true), (1, 1, 1, false)] {
        let all = Bounds { changes, ..bounds(&BOTH, readings, epochs, faults) };
        let fewer = Bounds { is_reduced: true, ..all.clone() };
        let (all, fewer) = (holds("all orders", &all), holds("fewer orders", &fewer));
        assert_eq!(all.ends, fewer.ends);
        assert!(fewer.states < all.states, "{fewer:?}");
    }
}

/// Runs a search for each way to divide two faults among two devices and the gateway.
fn divided(what: &str, whole: &Bounds) {
    for (first, second, kills) in [(2, 0, 0), (0, 2, 0), (1, 1, 0), (1, 0, 1), (0, 1, 1), (0, 0, 2)]
    {
        let bounds = Bounds {
            faults_of: [first, second],
            kills,
            faults: 2,
            is_reduced: true,
            ..whole.clone()
        };
        holds(&format!("{what}, faults {first}, {second}, {kills}"), &bounds);
    }
}

#[test]
#[ignore = "takes long; a part of `make test-long`"]
fn no_interleaving_within_the_long_bounds_loses_or_accuses() {
    for scheme in BOTH {
        let one = Bounds { changes: true, ..bounds(&[scheme], 3, 2, 2) };
        holds(&format!("one device, {scheme:?}, two faults"), &one);
    }
    let two = Bounds { changes: true, ..bounds(&BOTH, 1, 2, 2) };
    divided("two devices, a reading in each epoch", &two);
}

#[test]
fn the_search_finds_each_deliberate_defect() {
    for (defect, readings) in
        [(Defect::AnswersBeforeSync, 1), (Defect::LosesSeal, 1), (Defect::IgnoresItsPast, 2)]
    {
        let broken = Bounds { defect, ..bounds(&[Scheme::Star], readings, 1, 1) };
        let start = Instant::now();
        let (found, _) = Search::of(&broken);
        let (path, text) = found.violation.unwrap_or_else(|| panic!("{defect:?}"));
        println!("{defect:?}: {} states, {:?}: {text}", found.states, start.elapsed());
        assert!(!path.is_empty(), "{defect:?}: {text}");
    }
}
