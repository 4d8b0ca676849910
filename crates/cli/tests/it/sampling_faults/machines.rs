//! The state machines of a search of interleavings: devices and a gateway, each with what it keeps.
//! Every distinct state of a machine is stored once, and every transition of a machine is executed
//! once and then looked up.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use moteseal_core::record::{EpochNumber, Scheme, SealIndex};
use moteseal_device::seal::RosterName;
use moteseal_gateway::{Ended, GroupCoordinator};
use moteseal_verify::Roster;
use moteseal_verify::issue::NextRoster;

use super::columns::Columns;
use super::device::Device;
use super::{Chance, FIRST, FaultRates, GROUP_SECRET, NEXT_KEY, World, secret};

/// The size of a seal's buffer on a device, in bytes: small, because a search keeps many devices.
const BUFFER: usize = 256;
/// Large enough that no round rises. The round of an epoch would depend on all devices.
const BUDGET: u64 = 1000;

/// The number of a state of a machine, or of a frame.
pub(super) type Number = u32;

/// Values, each with a number.
pub(super) struct Numbered<T> {
    values: Vec<T>,
    numbers: HashMap<T, Number>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    pub(super) fn number(&mut self, value: T) -> Number {
        let Self { values, numbers } = self;
        *numbers.entry(value).or_insert_with_key(|value| {
            values.push(value.clone());
            Number::try_from(values.len() - 1).unwrap()
        })
    }

    pub(super) fn get(&self, number: Number) -> &T {
        &self.values[number as usize]
    }

    pub(super) const fn len(&self) -> usize {
        self.values.len()
    }
}

/// A deliberate defect, which the search must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    None,
    /// The gateway answers before its frames are durable: a restart forgets the last one.
    AnswersBeforeSync,
    /// The gateway's store loses a seal of an ended epoch.
    LosesSeal,
    /// A device that has lost its state ignores that the gateway has more of it.
    IgnoresItsPast,
}

/// The inputs of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum DeviceInput {
    /// The device senses its next reading, or ends the epoch.
    Step,
    Frame(Number),
    /// The device has waited for an answer long enough.
    Timeout,
    /// The device loads the next version of the roster.
    Load,
    /// The device restarts with its state, with none, or with the copy from an earlier restart.
    Restart(Kept, IsIssued),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kept {
    State,
    Nothing,
    Copy,
}

/// Whether the next version of the roster has been issued.
pub(super) type IsIssued = bool;

/// The inputs of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum GatewayInput {
    /// A frame, and the current epoch.
    Frame(Number, u64),
    /// The gateway ends an epoch.
    End(u64),
    /// The gateway loads the next version of the roster.
    Load,
    /// The gateway restarts.
    Restart,
}

/// A device and its past.
#[derive(Clone)]
pub(super) struct DeviceState {
    device: Device<BUFFER>,
    /// The next step of the device.
    pub(super) step: usize,
    /// Whether it has loaded the next version of the roster.
    pub(super) has_loaded: bool,
    /// How often it has started.
    starts: u64,
    /// Whether it has restarted.
    is_disturbed: bool,
    /// The seals that it no longer keeps, because the gateway has acknowledged them.
    acknowledged: BTreeSet<u32>,
}

impl Hash for DeviceState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { device, step, has_loaded, starts, is_disturbed, acknowledged } = self;
        (step, has_loaded, starts, is_disturbed, acknowledged).hash(state);
        let copy = device.copy.as_ref().map(|(chain, waiting, _)| (chain, waiting));
        (device.id, &device.mote, device.chain, &device.truth, copy).hash(state);
        (device.sent_before, &device.past).hash(state);
    }
}

/// An entry of the gateway's durable log.
#[derive(Clone)]
enum Log {
    Frame(Arc<[u8]>, EpochNumber),
    End(EpochNumber),
}

/// A gateway, and everything that it has stored and uploaded.
#[derive(Clone)]
pub(super) struct GatewayState {
    coordinator: GroupCoordinator,
    /// The coordinator that a restart creates from the log.
    restarted: GroupCoordinator,
    log: Vec<Log>,
    ended: Vec<Ended>,
    late: BTreeSet<(EpochNumber, Vec<u8>)>,
    has_loaded: bool,
}

impl Hash for GatewayState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The effects of the log are in `restarted`.
        let Self { coordinator, restarted, log: _, ended, late, has_loaded } = self;
        (coordinator, restarted, late, has_loaded).hash(state);
        ended.iter().for_each(|ended| (&ended.manifest, &ended.bundles).hash(state));
    }
}

/// The states of one kind of machine, and the transitions between them that have been executed.
struct States<S, I, O> {
    states: Vec<S>,
    numbers: HashMap<u64, Number>,
    transitions: HashMap<(Number, I), (Number, O)>,
}

impl<S: Hash, I: Hash + Eq + Copy, O: Clone> States<S, I, O> {
    fn new() -> Self {
        Self { states: Vec::new(), numbers: HashMap::new(), transitions: HashMap::new() }
    }

    fn number(&mut self, state: S) -> Number {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        match self.numbers.entry(hasher.finish()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let number = Number::try_from(self.states.len()).unwrap();
                self.states.push(state);
                *new.insert(number)
            }
        }
    }
}

/// The group of a search: all states of its devices and its gateway that have been reached.
pub(super) struct Machines {
    pub(super) schemes: Vec<Scheme>,
    /// The readings of each epoch.
    readings: usize,
    epochs: u64,
    defect: Defect,
    rosters: [Roster; 2],
    devices: States<DeviceState, DeviceInput, Vec<Number>>,
    gateways: States<GatewayState, GatewayInput, Option<Number>>,
    frames: Numbered<Arc<[u8]>>,
    /// The ends that were audited, by what the audit depends on.
    pub(super) audited: BTreeSet<u64>,
}

/// The counts of a search's machines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) devices: usize,
    pub(super) gateways: usize,
    pub(super) transitions: usize,
    pub(super) audits: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { devices, gateways, transitions, audits } = self;
        write!(f, "states of devices: {devices}, of the gateway: {gateways}, ")?;
        write!(f, "transitions: {transitions}, audits: {audits}")
    }
}

impl Machines {
    pub(super) fn new(schemes: &[Scheme], readings: usize, epochs: u64, defect: Defect) -> Self {
        let first = world(schemes).roster;
        let next = next_version(&first, schemes.len());
        Self {
            schemes: schemes.to_vec(),
            readings,
            epochs,
            defect,
            rosters: [first, next],
            devices: States::new(),
            gateways: States::new(),
            frames: Numbered::default(),
            audited: BTreeSet::new(),
        }
    }

    /// The number of steps of an epoch: the readings, and its end.
    pub(super) const fn steps_of_epoch(&self) -> usize {
        self.readings + 1
    }

    pub(super) const fn steps(&self) -> usize {
        self.steps_of_epoch() * self.epochs as usize
    }

    /// Returns the epoch of a step; after the last step, the last epoch.
    pub(super) fn epoch_of(&self, step: usize) -> u64 {
        FIRST + (step.min(self.steps() - 1) / self.steps_of_epoch()) as u64
    }

    pub(super) fn device(&self, number: Number) -> &DeviceState {
        &self.devices.states[number as usize]
    }

    pub(super) fn gateway(&self, number: Number) -> &GatewayState {
        &self.gateways.states[number as usize]
    }

    pub(super) fn counts(&self) -> Counts {
        Counts {
            devices: self.devices.states.len(),
            gateways: self.gateways.states.len(),
            transitions: self.devices.transitions.len() + self.gateways.transitions.len(),
            audits: self.audited.len(),
        }
    }

    /// Starts a device for the first time. Returns its state and its frames.
    pub(super) fn first_device(&mut self, at: usize) -> (Number, Vec<Number>) {
        let device = Device::new(&self.rosters[0], at as u8, (self.schemes[at], Columns::Plain));
        let mut state = DeviceState {
            device,
            step: 0,
            has_loaded: false,
            starts: 0,
            is_disturbed: false,
            acknowledged: BTreeSet::new(),
        };
        state.boot(&self.rosters[0], Vec::new());
        self.settled(state)
    }

    pub(super) fn first_gateway(&mut self) -> Number {
        self.gateways.number(self.new_gateway())
    }

    fn new_gateway(&self) -> GatewayState {
        let roster = self.rosters[0].clone();
        let coordinator = GroupCoordinator::new(roster, GROUP_SECRET).unwrap();
        GatewayState {
            restarted: coordinator.clone(),
            coordinator,
            log: Vec::new(),
            ended: Vec::new(),
            late: BTreeSet::new(),
            has_loaded: false,
        }
    }

    /// Returns the number of a device's state, and the frames that the device sends now.
    fn settled(&mut self, mut state: DeviceState) -> (Number, Vec<Number>) {
        let frames = state.device.mote.as_mut().unwrap().frames(3).unwrap();
        let frames = frames.into_iter().map(|frame| self.frames.number(frame.into())).collect();
        (self.devices.number(state), frames)
    }

    /// Returns the state of a device after an input, and the frames that it sends.
    pub(super) fn device_after(
        &mut self,
        number: Number,
        input: DeviceInput,
    ) -> (Number, Vec<Number>) {
        if let Some(known) = self.devices.transitions.get(&(number, input)) {
            return known.clone();
        }
        let mut state = self.device(number).clone();
        match input {
            DeviceInput::Step => state.step(self),
            DeviceInput::Frame(frame) => {
                let ignores = self.defect == Defect::IgnoresItsPast;
                state.receive(self.frames.get(frame), ignores);
            }
            DeviceInput::Timeout => state.device.mote.as_mut().unwrap().timeout(),
            DeviceInput::Load => state.load(&self.rosters[1]),
            DeviceInput::Restart(kept, issued) => {
                state.has_loaded |= issued;
                state.restart(kept, &self.rosters[usize::from(issued)]);
            }
        }
        let after = self.settled(state);
        self.devices.transitions.insert((number, input), after.clone());
        after
    }

    /// Returns the state of the gateway after an input, and its answer.
    pub(super) fn gateway_after(
        &mut self,
        number: Number,
        input: GatewayInput,
    ) -> (Number, Option<Number>) {
        if let Some(known) = self.gateways.transitions.get(&(number, input)) {
            return *known;
        }
        let mut state = self.gateway(number).clone();
        let answer = self.apply(&mut state, input);
        let answer = answer.map(|answer| self.frames.number(answer.into()));
        let after = (self.gateways.number(state), answer);
        self.gateways.transitions.insert((number, input), after);
        after
    }

    /// Changes the state of a gateway by an input. Returns its answer.
    fn apply(&self, state: &mut GatewayState, input: GatewayInput) -> Option<Vec<u8>> {
        let mut answer = None;
        match input {
            GatewayInput::Frame(frame, now) => {
                answer = Some(state.receive(self.frames.get(frame), EpochNumber(now)));
            }
            GatewayInput::End(epoch) => {
                state.end(EpochNumber(epoch), self.defect == Defect::LosesSeal);
            }
            GatewayInput::Load => state.load(&self.rosters[1]),
            GatewayInput::Restart => {
                if self.defect == Defect::AnswersBeforeSync {
                    self.forget_last(state);
                }
                state.coordinator = state.restarted.clone();
            }
        }
        state.late.extend(state.coordinator.take_late());
        state.restarted.take_late();
        answer
    }

    /// Loses the last frame of a gateway's log, unless it was the first one of its epoch.
    fn forget_last(&self, state: &mut GatewayState) {
        let roster = &self.rosters[usize::from(state.has_loaded)];
        let mut without = state.clone();
        if let Some(Log::Frame(..)) = without.log.pop() {
            without.replay(roster);
            if without.restarted.epochs().eq(state.restarted.epochs()) {
                *state = without;
            }
        }
    }

    /// Executes inputs of the gateway from its first state on. Panics if an answer is another one
    /// than is stated.
    pub(super) fn gateway_of(
        &self,
        inputs: impl Iterator<Item = (GatewayInput, Option<Number>)>,
    ) -> GatewayState {
        let mut gateway = self.new_gateway();
        for (input, expected) in inputs {
            let answer = self.apply(&mut gateway, input);
            let expected = expected.map(|frame| &**self.frames.get(frame));
            assert!(
                answer.as_deref() == expected,
                "the other device affects the answer: {input:?}"
            );
        }
        gateway
    }

    /// Panics unless a gateway has stored exactly what the gateways of each device have stored.
    pub(super) fn check_stored(&self, gateway: &GatewayState, alone: [Number; 2]) {
        let alone = alone.map(|number| self.gateway(number));
        let late: BTreeSet<_> = alone.iter().flat_map(|gateway| &gateway.late).collect();
        assert!(late.into_iter().eq(&gateway.late), "the other device affects late seals");
        for (at, ended) in gateway.ended.iter().enumerate() {
            let stored: BTreeSet<_> =
                alone.iter().flat_map(|gateway| &gateway.ended[at].bundles).collect();
            let together: BTreeSet<_> = ended.bundles.iter().collect();
            assert!(stored == together, "the other device affects epoch {}", ended.epoch.0);
        }
    }

    /// Returns the first epoch that the gateway has heard of and has not ended.
    pub(super) fn open_epoch(&self, gateway: Number) -> Option<u64> {
        self.gateway(gateway).coordinator.epochs().next().map(|epoch| epoch.0)
    }

    /// Returns whether the gateway has heard of an epoch, or has ended it or a later one.
    pub(super) fn is_known(&self, gateway: Number, epoch: u64) -> bool {
        let GatewayState { coordinator, ended, .. } = self.gateway(gateway);
        ended.last().is_some_and(|newest| epoch <= newest.epoch.0)
            || coordinator.is_live(EpochNumber(epoch))
    }

    /// Returns the number of epochs that the gateway has ended.
    pub(super) fn ended(&self, gateway: Number) -> u64 {
        self.gateway(gateway).ended.len() as u64
    }

    /// Returns a hash of everything that the audit of an end depends on.
    pub(super) fn end_of(&self, devices: &[Number], end: &GatewayState) -> u64 {
        let mut hasher = DefaultHasher::new();
        let uploads = end.ended.iter().map(|ended| (&ended.manifest, &ended.bundles));
        (uploads.collect::<Vec<_>>(), &end.late, end.has_loaded).hash(&mut hasher);
        for device in devices.iter().map(|number| self.device(*number)) {
            let DeviceState { device, is_disturbed, acknowledged, .. } = device;
            let waiting = device.mote.as_ref().unwrap().waiting();
            (&device.truth, &device.past, waiting, is_disturbed, acknowledged).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Checks a state in which nothing can happen any more but faults.
    pub(super) fn check_end(&mut self, devices: &[Number], gateway: Number) {
        self.check_steps(devices);
        if self.has_uploads(gateway) {
            let end = self.end_of(devices, self.gateway(gateway));
            if self.audited.insert(end) {
                self.check_audit(devices, self.gateway(gateway));
            }
        }
    }

    /// Returns whether there is something to audit at an end: the gateway has heard of an epoch. It
    /// must then have ended all epochs of which it has heard.
    pub(super) fn has_uploads(&self, gateway: Number) -> bool {
        assert_eq!(self.open_epoch(gateway), None, "an epoch never ends");
        self.ended(gateway) > 0
    }

    pub(super) fn check_steps(&self, devices: &[Number]) {
        assert!(
            devices.iter().all(|device| self.device(*device).step == self.steps()),
            "a device cannot continue"
        );
    }

    /// Audits what the gateway has stored of the devices at an end.
    pub(super) fn check_audit(&self, devices: &[Number], end: &GatewayState) {
        let states = devices.iter().map(|number| self.device(*number));
        let mut world = world(&self.schemes);
        world.roster = self.rosters[usize::from(end.has_loaded)].clone();
        (world.ended, world.late) = (end.ended.clone(), end.late.clone());
        for (audited, state) in world.devices.iter_mut().zip(states.clone()) {
            let mut device = state.device.clone();
            device.settle();
            audited.truth = device.truth;
            assert_eq!(device.mote.unwrap().waiting(), 0, "a seal waits forever");
        }
        world.audit();
        let arrived = world.arrived_indices();
        for (device, state) in world.devices.iter().zip(states) {
            for index in &state.acknowledged {
                let is_past = !device.truth.contains_key(index);
                assert!(
                    is_past || arrived.contains(&(device.id, *index)),
                    "the acknowledged seal {index} of {} is not in the store",
                    device.id
                );
            }
            for index in device.truth.keys().filter(|_| !state.is_disturbed) {
                assert!(
                    arrived.contains(&(device.id, *index)),
                    "seal {index} of {}, which never restarted, is not in the store",
                    device.id
                );
            }
        }
    }
}

impl DeviceState {
    pub(super) fn has_copy(&self) -> bool {
        self.device.copy.is_some()
    }

    pub(super) fn awaits_answer(&self) -> bool {
        self.device.mote.as_ref().unwrap().awaits_answer()
    }

    fn boot(&mut self, roster: &Roster, waiting: Vec<moteseal_device::mote::Waiting<BUFFER>>) {
        self.starts += 1;
        self.device.boot(roster, self.starts << 32, waiting);
    }

    fn step(&mut self, machines: &Machines) {
        let (step, epoch) = (self.step, EpochNumber(machines.epoch_of(self.step)));
        self.step += 1;
        if step % machines.steps_of_epoch() == machines.readings {
            self.device.end(epoch);
        } else {
            self.device.sense(epoch, [step as u8; 4]);
        }
    }

    fn receive(&mut self, frame: &[u8], ignores_its_past: bool) {
        let device = &mut self.device;
        let mote = device.mote.as_mut().unwrap();
        let kept = device.truth.keys().copied().filter(|index| mote.has(SealIndex(*index)));
        let before: Vec<u32> = kept.collect();
        let is_ahead = if ignores_its_past {
            mote.acknowledged(frame).unwrap();
            false
        } else {
            device.receive(frame)
        };
        if !is_ahead {
            let mote = device.mote.as_ref().unwrap();
            assert!(mote.abandoned().is_none(), "the gateway has lost what it had acknowledged");
            let gone = before.into_iter().filter(|index| !mote.has(SealIndex(*index)));
            self.acknowledged.extend(gone);
        }
    }

    fn load(&mut self, roster: &Roster) {
        let mote = self.device.mote.as_mut().unwrap();
        mote.load(roster);
        mote.set_roster(RosterName { version: roster.version(), digest: roster.digest() });
        self.has_loaded = true;
    }

    fn restart(&mut self, kept: Kept, roster: &Roster) {
        self.is_disturbed = true;
        let waiting = self.device.stop();
        let certificate = roster.device(self.device.id).unwrap().certificate;
        let waiting = match kept {
            Kept::State => {
                self.device.back_up(&waiting);
                waiting
            }
            Kept::Nothing => self.device.roll_back(true, certificate),
            Kept::Copy => self.device.roll_back(false, certificate),
        };
        self.boot(roster, waiting);
    }
}

impl GatewayState {
    /// Receives a frame, makes it durable, and answers.
    fn receive(&mut self, frame: &Arc<[u8]>, now: EpochNumber) -> Vec<u8> {
        let news = self.coordinator.receive(frame, now);
        let news = news.unwrap_or_else(|refused| panic!("an honest frame was refused: {refused}"));
        assert!(news.raised.is_none(), "no round rises within the budget");
        if news.durable {
            self.log.push(Log::Frame(Arc::clone(frame), now));
            let again = self.restarted.replay(frame, now);
            assert!(again.unwrap().durable, "a logged frame has the same effect after a restart");
        }
        self.coordinator.acknowledgement(news.device).unwrap()
    }

    fn end(&mut self, epoch: EpochNumber, loses_seal: bool) {
        let mut ended = self.coordinator.end(epoch, &secret(99)).unwrap();
        let again = self.restarted.end(epoch, &secret(99)).unwrap();
        assert_eq!((&again.manifest, &again.bundles), (&ended.manifest, &ended.bundles));
        self.log.push(Log::End(epoch));
        if loses_seal {
            ended.bundles.pop();
        }
        self.ended.push(ended);
    }

    fn load(&mut self, roster: &Roster) {
        self.has_loaded = true;
        self.replay(roster);
        self.coordinator = self.coordinator.under(roster.clone()).unwrap();
        replay(&self.log, &mut self.coordinator);
    }

    /// Creates the coordinator of a restart from the log.
    fn replay(&mut self, roster: &Roster) {
        self.restarted = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
        replay(&self.log, &mut self.restarted);
    }
}

fn replay(log: &[Log], coordinator: &mut GroupCoordinator) {
    for entry in log {
        match entry {
            Log::Frame(frame, now) => {
                assert!(coordinator.replay(frame, *now).unwrap().durable, "it was new before");
            }
            Log::End(epoch) => drop(coordinator.end(*epoch, &secret(99)).unwrap()),
        }
    }
}

/// Returns a group of devices that have done nothing yet. They encrypt nothing: the random nonces of encrypted
/// seals would make two equal states different.
fn world(schemes: &[Scheme]) -> World {
    let kinds: Vec<_> = schemes.iter().map(|scheme| (*scheme, Columns::Plain)).collect();
    World::of(Chance::new(1), FaultRates::NONE, &kinds, BUDGET)
}

/// Returns the version of the roster that gives each device a further key for the second epoch.
fn next_version(roster: &Roster, devices: usize) -> Roster {
    let operator = secret(98);
    let public = operator.public();
    let mut next = NextRoster::after(roster.bytes(), &operator, &public).unwrap();
    for at in 0..devices {
        let key = secret(at as u8 + NEXT_KEY).public();
        let second = EpochNumber(FIRST + 1);
        next.rotate(&format!("mote-{at}"), &key, second, SealIndex(0)).unwrap();
    }
    Roster::open(&next.issue().unwrap(), &public).unwrap()
}
