//! Explores a group of two devices one device at a time, and combines what each device can do.
//!
//! Two devices affect each other only through a few events, which both notice: the gateway hears of
//! an epoch, ends it, loads a version of the roster or restarts. Between two events, each device and
//! its frames do the same whatever the other device does. So the states that a group can reach after
//! a history of events are all pairs of the states that each device can reach after that history,
//! with at most as many faults as are allowed together. A search of one device with its gateway
//! performs the events in every order: where the gateway hears of an epoch from the other device, it
//! receives the first frame that the other device sends in this epoch.
//!
//! Three checks support this argument:
//! - In small groups, the pairs are exactly the states that the search of the whole group reaches,
//!   except for the state of the gateway, and the audited ends are the same.
//! - For every pair of different ends, a gateway receives the frames of both devices on one path to
//!   these ends, in two orders. It must give the answers and store the bundles that it gives and
//!   stores for each device alone.
//! - The audit of each of these pairs is the audit of the whole group.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::machines::{DeviceInput, GatewayInput, Number, Numbered};
use super::{
    Action, DEEPEST, DEVICES, FIRST, Fault, Found, Search, State, Visited, hash_of, text_of,
};

/// An event that both devices notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// The gateway hears of an epoch from a device.
    Known {
        by: usize,
        epoch: u64,
    },
    End(u64),
    Issue,
    Killed,
}

/// A state of one device, its frames and its gateway, after the events of a history. The entries of
/// the other device are unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Alone {
    state: State,
    history: Number,
}

/// The search of one device.
#[derive(Default)]
struct View {
    /// For each state that was reached, in this order: the place of the previous state, and which of
    /// its actions led here.
    reached: Vec<(u32, u8)>,
    /// The ends, by history.
    ends: BTreeMap<Number, Ends>,
    /// The number of states by history and number of the device's own faults.
    counts: BTreeMap<(Number, u8), u64>,
    /// All states, if they are kept for a comparison.
    kept: Option<Vec<Alone>>,
}

/// An end: the fewest faults of the device that lead to it, and where the search reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    faults: u8,
    place: usize,
    device: Number,
    gateway: Number,
}

/// For each different end: its hash, and one that has it.
type Ends = BTreeMap<u64, End>;

/// What the gateway receives from one device before each event of a history and after the last one,
/// and its answers.
type Received = Vec<Vec<(GatewayInput, Option<Number>)>>;

/// A pair of ends after the same history.
struct Pair {
    history: Number,
    ends: [End; DEVICES],
}

/// The searches of both devices.
pub(super) struct Apart {
    pub(super) search: Search,
    histories: Numbered<Vec<Event>>,
    /// The frame with the schema of each device.
    schemas: [Number; DEVICES],
    /// The first frame of each epoch from each device.
    greetings: [Vec<Number>; DEVICES],
    views: [View; DEVICES],
    found: Found,
    /// The number of pairs of states of both devices.
    pub(super) pairs: u64,
    /// The ends of both devices that were audited.
    pub(super) audited: BTreeSet<u64>,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { histories, views, found, pairs, audited, search, .. } = self;
        let [first, second] = views.each_ref().map(|view| view.reached.len());
        write!(
            f,
            "{} histories, states {first} and {second}, depth {}, ",
            histories.len(),
            found.deepest
        )?;
        let audits = audited.len();
        write!(f, "{pairs} pairs of states, {audits} audits of pairs, {}", search.machines.counts())
    }
}

impl Apart {
    pub(super) fn new(mut search: Search) -> Self {
        assert_eq!(search.bounds.schemes.len(), DEVICES, "two devices");
        // The challenge comes first.
        let schemas = [0, 1].map(|at| search.machines.first_device(at).1[1]);
        let greetings = [0, 1].map(|at| greetings(&mut search, at));
        Self {
            search,
            histories: Numbered::default(),
            schemas,
            greetings,
            views: Default::default(),
            found: Found::default(),
            pairs: 0,
            audited: BTreeSet::new(),
        }
    }

    pub(super) const fn found(&self) -> &Found {
        &self.found
    }

    /// Explores each device, and audits all pairs of ends.
    pub(super) fn explore(&mut self) {
        for at in 0..DEVICES {
            if let Err((path, text)) = self.explore_one(at) {
                self.found.violation = Some((path, text));
                return;
            }
        }
        self.pairs = self.matching().map(|(one, other)| one * other).sum();
        self.audit_pairs();
    }

    fn first(&mut self, at: usize) -> Alone {
        let mut state = self.search.first();
        state.up[1 - at] = state.down[1 - at];
        state.devices[1 - at] = 0;
        Alone { state, history: self.histories.number(Vec::new()) }
    }

    fn explore_one(&mut self, at: usize) -> Result<(), (Vec<Action>, String)> {
        let first = self.first(at);
        let mut visited = Visited::default();
        visited.insert(hash_of(&first));
        let mut view = View {
            reached: vec![(0, 0)],
            kept: self.search.kept.as_ref().map(|_| Vec::new()),
            ..View::default()
        };
        let mut next = VecDeque::from([(first, 0)]);
        let mut place = 0;
        while let Some((alone, depth)) = next.pop_front() {
            let mut last = None;
            catch_unwind(AssertUnwindSafe(|| {
                assert!(depth < DEEPEST, "the machines make no progress");
                let (actions, is_end) = self.actions(at, alone);
                if is_end {
                    self.end(at, alone, place, &mut view.ends);
                }
                for (number, action) in (0..).zip(actions) {
                    last = Some(action);
                    let after = self.after(at, alone, action);
                    if visited.insert(hash_of(&after)) {
                        view.reached.push((u32::try_from(place).unwrap(), number));
                        next.push_back((after, depth + 1));
                    }
                }
            }))
            .map_err(|panic| {
                let mut path: Vec<Action> =
                    self.path(at, &view, place).into_iter().map(|(_, action)| action).collect();
                path.extend(last);
                (path, text_of(&*panic))
            })?;
            view.kept.iter_mut().for_each(|kept| kept.push(alone));
            *view.counts.entry((alone.history, alone.state.faults_of[at])).or_default() += 1;
            self.found.deepest = self.found.deepest.max(depth);
            place += 1;
            if place.is_multiple_of(1 << 22) {
                let left = next.len();
                eprintln!(
                    "device {at}: {place} states, {left} left, {}",
                    self.search.machines.counts()
                );
            }
        }
        self.views[at] = view;
        Ok(())
    }

    /// Returns the states that lead to a place, each with the action that was taken there.
    fn path(&mut self, at: usize, view: &View, mut place: usize) -> Vec<(Alone, Action)> {
        let mut numbers = Vec::new();
        while place > 0 {
            let (before, number) = view.reached[place];
            numbers.push(number);
            place = before as usize;
        }
        let mut alone = self.first(at);
        let step = |number: u8| {
            let action = self.actions(at, alone).0[usize::from(number)];
            let taken = (alone, action);
            alone = self.after(at, alone, action);
            taken
        };
        numbers.into_iter().rev().map(step).collect()
    }

    fn end(&self, at: usize, alone: Alone, place: usize, ends: &mut BTreeMap<Number, Ends>) {
        let State { devices, gateway, faults_of, .. } = alone.state;
        let (device, faults) = (devices[at], faults_of[at]);
        self.search.machines.check_steps(&[device]);
        let end = End { faults, place, device, gateway };
        let machines = &self.search.machines;
        let key = machines.end_of(&[device], machines.gateway(gateway));
        let fewest = ends.entry(alone.history).or_default().entry(key).or_insert(end);
        *fewest = end.min(*fewest);
    }

    /// Returns what can happen next, and whether this is an end: neither the device nor a frame can do
    /// anything, and the gateway cannot end an epoch.
    fn actions(&self, at: usize, Alone { state, history }: Alone) -> (Vec<Action>, bool) {
        let search = &self.search;
        let step = search.machines.device(state.devices[at]).step;
        let mut actions = Vec::with_capacity(32);
        search.add_actions_of(&state, at, &mut actions);
        if let Some((epoch, over)) = search.can_end(&state)
            && step >= over
        {
            actions.push(Action::End(epoch));
        }
        let is_end = actions.is_empty();
        // The second epoch of the other device begins only after the last moment for a new version.
        if search.can_issue(&state)
            && step < search.machines.steps_of_epoch()
            && !search.machines.is_known(state.gateway, FIRST + 1)
        {
            actions.push(Action::Issue);
        }
        let epochs = self.unheard(history, 1 - at)..FIRST + search.bounds.epochs;
        let unknown = |epoch: &u64| !search.machines.is_known(state.gateway, *epoch);
        actions.extend(epochs.filter(unknown).map(Action::Hear));
        if search.has_faults(&state) {
            search.add_faults_of(&state, at, &mut actions);
            actions.push(Action::Fault(Fault::Killed));
        }
        (actions, is_end)
    }

    /// Returns the state after an action.
    fn after(&mut self, at: usize, Alone { mut state, history }: Alone, action: Action) -> Alone {
        let before = self.known(&state);
        if let Action::Hear(epoch) = action {
            let of_other = (self.schemas[1 - at], &self.greetings[1 - at]);
            for frame in [of_other.0, of_other.1[(epoch - FIRST) as usize]] {
                self.search.gateway(&mut state, GatewayInput::Frame(frame, epoch));
            }
        } else {
            state = self.search.after(state, action);
        }
        let after = self.known(&state);
        assert_eq!(before & !after, 0, "the gateway forgets an epoch after {action:?}");
        let new = after & !before;
        let heard = (new != 0).then(|| FIRST + u64::from(new.trailing_zeros()));
        assert!(new.count_ones() <= 1 || matches!(action, Action::End(_)), "{new:#b}");
        let event = match (action, heard) {
            (Action::End(epoch), _) => Some(Event::End(epoch)),
            (Action::Issue, None) => Some(Event::Issue),
            (Action::Fault(Fault::Killed), None) => Some(Event::Killed),
            (Action::Hear(epoch), Some(heard)) if epoch == heard => {
                Some(Event::Known { by: 1 - at, epoch })
            }
            (Action::Issue | Action::Hear(_) | Action::Fault(Fault::Killed), _) => {
                panic!("the gateway hears of {heard:?} after {action:?}")
            }
            (_, heard) => heard.map(|epoch| Event::Known { by: at, epoch }),
        };
        if let Some(Event::Known { by, epoch }) = event {
            // A search of the other device contains only this.
            assert!(
                epoch >= self.unheard(history, by),
                "a device sends a frame of an epoch after it has sent one of a later epoch"
            );
        }
        let history = event.map_or(history, |event| {
            let events = [self.histories.get(history), &[event][..]].concat();
            self.histories.number(events)
        });
        Alone { state, history }
    }

    /// Returns the first epoch of which the gateway can still hear from a device, which sends its
    /// epochs in order.
    fn unheard(&self, history: Number, from: usize) -> u64 {
        let heard = |event: &Event| match *event {
            Event::Known { by, epoch } if by == from => Some(epoch + 1),
            _ => None,
        };
        self.histories.get(history).iter().rev().find_map(heard).unwrap_or(FIRST)
    }

    /// Returns the epochs that the gateway knows, a bit for each.
    fn known(&self, state: &State) -> u8 {
        let Search { machines, bounds, .. } = &self.search;
        let is_known = |epoch: &u64| machines.is_known(state.gateway, FIRST + epoch);
        (0..bounds.epochs).filter(is_known).map(|epoch| 1 << epoch).sum()
    }

    fn kills(&self, history: Number) -> u8 {
        let killed = self.histories.get(history).iter().filter(|event| **event == Event::Killed);
        killed.count() as u8
    }

    /// Returns the counts of states of both devices that belong together.
    fn matching(&self) -> impl Iterator<Item = (u64, u64)> {
        let [one, other] = self.views.each_ref().map(|view| &view.counts);
        one.iter().flat_map(move |((history, faults), count)| {
            let rest = self.search.bounds.faults - self.kills(*history) - faults;
            let others = other.range((*history, 0)..=(*history, rest));
            others.map(move |(_, others)| (*count, *others))
        })
    }

    /// Returns the hashes of all pairs of states that belong together (small bounds only).
    pub(super) fn pairs(&self) -> Visited {
        let [one, other] = self.views.each_ref().map(|view| view.kept.as_ref().unwrap());
        let mut by_history: HashMap<Number, Vec<&Alone>> = HashMap::new();
        for alone in other {
            by_history.entry(alone.history).or_default().push(alone);
        }
        let mut pairs = Visited::default();
        for one in one {
            for other in by_history.get(&one.history).into_iter().flatten() {
                let (mut state, second) = (one.state, other.state);
                state.faults_of[1] = second.faults_of[1];
                if state.faults_of.iter().sum::<u8>() + state.kills > self.search.bounds.faults {
                    continue;
                }
                state.devices[1] = second.devices[1];
                (state.up[1], state.down[1]) = (second.up[1], second.down[1]);
                state.is_owed[1] = second.is_owed[1];
                assert_eq!(self.known(&state), self.known(&second));
                pairs.insert(hash_of(&self.search.together(&state)));
            }
        }
        pairs
    }

    /// Audits each pair of different ends of both devices.
    fn audit_pairs(&mut self) {
        let mut pairs = Vec::new();
        let mut seen = HashSet::new();
        for (history, ends) in &self.views[0].ends {
            let Some(others) = self.views[1].ends.get(history) else { continue };
            for (key, one) in ends {
                if !self.search.machines.has_uploads(one.gateway) {
                    continue;
                }
                for (other_key, other) in others {
                    let faults = one.faults + other.faults + self.kills(*history);
                    if faults <= self.search.bounds.faults && seen.insert((*key, *other_key)) {
                        pairs.push(Pair { history: *history, ends: [*one, *other] });
                    }
                }
            }
        }
        let mut received = [0, 1].map(|_| HashMap::new());
        for at in 0..DEVICES {
            let view = std::mem::take(&mut self.views[at]);
            for Pair { ends, .. } in &pairs {
                let end = ends[at].place;
                received[at].entry(end).or_insert_with(|| self.received(at, &view, end));
            }
            self.views[at] = view;
        }
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let audited = Mutex::new(BTreeSet::new());
        let this = &*self;
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(pair) = pairs.get(at) else { break };
                if at.is_multiple_of(1 << 14) {
                    eprintln!("{at} of {} audits", pairs.len());
                }
                let received = [0, 1].map(|at| &received[at][&pair.ends[at].place]);
                match catch_unwind(AssertUnwindSafe(|| this.audit(pair, received))) {
                    Ok(end) => drop(audited.lock().unwrap().insert(end)),
                    Err(panic) => {
                        *failed.lock().unwrap() = Some((pair, text_of(&*panic)));
                        next.store(pairs.len(), Ordering::Relaxed);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            (0..threads).for_each(|_| drop(scope.spawn(work)));
        });
        self.audited = audited.into_inner().unwrap();
        if let Some((pair, text)) = failed.into_inner().unwrap() {
            let [one, other] = [0, 1].map(|at| {
                let view = std::mem::take(&mut self.views[at]);
                let path = self.path(at, &view, pair.ends[at].place);
                self.views[at] = view;
                path.into_iter().map(|(_, action)| action).collect::<Vec<_>>()
            });
            let text = format!("{text}\nand the other device did {other:#?}");
            self.found.violation = Some((one, text));
        }
    }

    /// Audits what a gateway stores that receives the frames of both devices. Returns the end's hash.
    fn audit(&self, pair: &Pair, received: [&Received; DEVICES]) -> u64 {
        let machines = &self.search.machines;
        let devices = pair.ends.map(|end| end.device);
        let [gateway, other] = [[0, 1], [1, 0]].map(|order| {
            let inputs = self.inputs(pair.history, received, order);
            machines.gateway_of(inputs)
        });
        machines.check_audit(&devices, &gateway);
        machines.check_stored(&gateway, pair.ends.map(|end| end.gateway));
        let end = machines.end_of(&devices, &gateway);
        assert_eq!(machines.end_of(&devices, &other), end, "the order of the devices matters");
        end
    }

    /// Returns what the gateway receives: between two events of a history the frames of the devices
    /// in this order, except that the frame by which it hears of an epoch is the last one before that.
    fn inputs<'r>(
        &'r self,
        history: Number,
        received: [&'r Received; DEVICES],
        order: [usize; DEVICES],
    ) -> impl Iterator<Item = (GatewayInput, Option<Number>)> + 'r {
        let events = self.histories.get(history).iter().map(Some).chain([None]);
        events.enumerate().flat_map(move |(at, event)| {
            let order = match event {
                Some(Event::Known { by, .. }) => [1 - by, *by],
                _ => order,
            };
            let shared = match event {
                Some(Event::End(epoch)) => Some(GatewayInput::End(*epoch)),
                Some(Event::Issue) => Some(GatewayInput::Load),
                Some(Event::Killed) => Some(GatewayInput::Restart),
                Some(Event::Known { .. }) | None => None,
            };
            let frames = order.into_iter().flat_map(move |of| received[of][at].iter().copied());
            frames.chain(shared.map(|input| (input, None)))
        })
    }

    /// Returns what the gateway receives from a device until the search reached a place.
    fn received(&mut self, at: usize, view: &View, place: usize) -> Received {
        let path = self.path(at, view, place);
        let mut received = vec![Vec::new()];
        for (alone, action) in path {
            let place = match action {
                Action::Up(_) | Action::Fault(Fault::TwiceUp(_)) => Some(0),
                Action::Fault(Fault::LateUp(_)) => Some(1),
                _ => None,
            };
            if let Some(place) = place {
                let input = self.search.input(&alone.state, at, place);
                let (_, answer) = self.search.machines.gateway_after(alone.state.gateway, input);
                received.last_mut().unwrap().push((input, answer));
            }
            if self.after(at, alone, action).history != alone.history {
                received.push(Vec::new());
            }
        }
        received
    }
}

impl Search {
    /// Returns the parts of a state by which the states of a whole group and of pairs are compared:
    /// all but the state of the gateway, of which each device knows its own part.
    pub(super) fn together(&self, state: &State) -> (State, u64, Vec<bool>) {
        let is_known = |epoch| self.machines.is_known(state.gateway, FIRST + epoch);
        let known = (0..self.bounds.epochs).map(is_known).collect();
        (State { gateway: 0, ..*state }, self.machines.ended(state.gateway), known)
    }
}

/// Returns the first frame of each epoch by which the gateway hears of it, if nothing is lost.
fn greetings(search: &mut Search, at: usize) -> Vec<Number> {
    let (first, frames) = search.machines.first_device(at);
    let (mut device, mut gateway) = (first, search.machines.first_gateway());
    let mut up = VecDeque::from(frames);
    let mut greetings = Vec::new();
    for _ in 0..search.machines.steps() {
        let (next, frames) = search.machines.device_after(device, DeviceInput::Step);
        device = next;
        up.extend(frames);
        while let Some(frame) = up.pop_front() {
            let epoch = FIRST + greetings.len() as u64;
            let now = search.machines.epoch_of(search.machines.device(device).step);
            let input = GatewayInput::Frame(frame, now);
            let (next, answer) = search.machines.gateway_after(gateway, input);
            gateway = next;
            if search.machines.is_known(gateway, epoch) {
                greetings.push(frame);
            }
            let (next, frames) =
                search.machines.device_after(device, DeviceInput::Frame(answer.unwrap()));
            device = next;
            up.extend(frames);
        }
    }
    greetings
}
