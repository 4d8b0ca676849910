//! Simulates a group that samples within a budget, from a seed. Frames are lost, repeated and
//! reordered, devices reboot, die, lose their state, recover it from the cloud or continue with an
//! old copy of it, and the gateway is killed at any moment. Keys are rotated and devices are removed
//! in the middle of an epoch, and each device and the gateway load the new roster at another time.
//! In every run, each seal verifies or a later seal states its loss, and the kept events are within the budget. The
//! audit has no findings: an epoch is either justified, or undetermined for exactly the devices
//! that were silent in it. Under the same faults, each cheat of a coordinator is found, or its
//! epoch is at least not justified.
//!
//! In half of the runs, devices encrypt columns, some of them in column groups. Their owner and a reader
//! with a grant decrypt every kept event, and nothing that is stored has a plaintext.

mod columns;
mod conclusions;
mod device;
mod every_interleaving;
mod machines;
mod readers;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::Chance;
use columns::Columns;
use conclusions::{Caught, Outcome};
use device::{Device, Kind};
use moteseal_adversary::coordinator::{CHEATS, FoundBy};
use moteseal_core::link::claimed_device;
use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_core::{DeviceId, Round, SealIndex};
use moteseal_device::mote::Waiting;
use moteseal_gateway::{Ended, GroupCoordinator, Refused, Standing};
use moteseal_seal::sample::{Announcement, MAX_ANNOUNCEMENT};
use moteseal_verify::Roster;
use moteseal_verify::issue::{Budget, FirstRoster};
use readers::{Reader, with_owner};
use versions::{Counts, Versions};

const LEVELS: u8 = 8;
const TICKS: u64 = 40;
const EPOCHS: u64 = 4;
const FIRST: u64 = 70;
/// The number of a device's second key, less that of its first key.
const NEXT_KEY: u8 = 40;
const GROUP_SECRET: [u8; 32] = [0x51; 32];

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// The rates of the faults in percent. `delay` is the longest delay of a frame in ticks.
#[derive(Debug)]
struct FaultRates {
    loss: u64,
    repeats: u64,
    delay: u64,
    reboots: u64,
    deaths: u64,
    kills: u64,
    /// How many of 100 reboots begin with an old copy of the state, or with none.
    rollbacks: u64,
    /// How many of 100 ticks begin with a new version of the roster.
    changes: u64,
}

impl FaultRates {
    const NONE: Self = Self {
        loss: 0,
        repeats: 0,
        delay: 0,
        reboots: 0,
        deaths: 0,
        kills: 0,
        rollbacks: 0,
        changes: 0,
    };
}

/// A frame in the gateway's durable log, and the seal that it concerns.
struct Logged {
    frame: Vec<u8>,
    now: EpochNumber,
    device: DeviceId,
    about: Option<(SealIndex, EpochNumber)>,
}

struct World {
    chance: Chance,
    faults: FaultRates,
    /// The newest version of the roster.
    roster: Roster,
    versions: Versions,
    budget: u64,
    devices: Vec<Device>,
    coordinator: GroupCoordinator,
    /// The gateway's durable state: its standing when the newest epoch ended, and the frames that it
    /// has needed since.
    standing: Standing,
    log: Vec<Logged>,
    /// All frames that have been in the log, if a device encrypts.
    durable: Vec<Vec<u8>>,
    /// Frames in transit: the time of arrival, the recipient (`None`: the coordinator), the frame.
    air: Vec<(u64, Option<usize>, Vec<u8>)>,
    announcements: Vec<(u64, usize, Announcement)>,
    /// The number of starts of devices, from which the challenges are derived.
    boots: u64,
    /// How often the gateway had more of a device than the device's state.
    rolled_back: u64,
    ended: Vec<Ended>,
    /// The bundles of seals that arrived after their epoch's manifest, with their epochs. A
    /// coordinator that was killed may return some of them again, perhaps with other levels.
    late: BTreeSet<(EpochNumber, Vec<u8>)>,
    sensed: u64,
    /// Who reads encrypted columns; `None` if no device has any.
    reader: Option<Reader>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let calm = chance.percent(10);
        let mut up_to = |most: u64| if calm { 0 } else { chance.below(most + 1) };
        let faults = FaultRates {
            loss: up_to(30),
            repeats: up_to(20),
            delay: up_to(12),
            reboots: up_to(2),
            deaths: up_to(1),
            kills: up_to(3),
            rollbacks: up_to(40),
            changes: up_to(4),
        };
        let count = 1 + chance.below(5) as u8;
        let budget = 5 + chance.below(150);
        let mut scheme = |_| if chance.percent(50) { Scheme::Tree } else { Scheme::Star };
        let schemes: Vec<Scheme> = (0..count).map(&mut scheme).collect();
        // The columns are drawn apart, so that they change no other choice.
        let columns = Columns::draw(&mut Chance::new(!seed), count);
        let kinds: Vec<Kind> = schemes.into_iter().zip(columns).collect();
        Self::of(chance, faults, &kinds, budget)
    }

    fn of(chance: Chance, faults: FaultRates, kinds: &[Kind], budget: u64) -> Self {
        let count = kinds.len() as u8;
        let names: Vec<String> = (0..count).map(|device| format!("mote-{device}")).collect();
        let keys: Vec<(&str, PublicKey)> = (0..count)
            .map(|device| (names[usize::from(device)].as_str(), secret(device).public()))
            .collect();
        let budget_of = Budget { events: budget, coordinator: secret(99).public() };
        let first = FirstRoster {
            group: "field",
            epoch_ms: 1000,
            levels: LEVELS,
            budget: Some(budget_of),
            devices: &keys,
        };
        let operator = secret(98);
        let mut roster =
            Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap();
        if kinds.iter().any(|(_, columns)| *columns != Columns::Plain) {
            roster = with_owner(&roster);
        }
        let devices = (0..count).zip(kinds).map(|(at, kind)| Device::new(&roster, at, *kind));
        let devices: Vec<Device> = devices.collect();
        let reader = Reader::new(&mut Chance::new(u64::from(count) ^ budget), &roster, &devices);
        let coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
        let versions = Versions::new(&roster, kinds.len());
        let mut world = Self {
            versions,
            chance,
            faults,
            budget,
            devices,
            coordinator,
            standing: Standing::default(),
            log: Vec::new(),
            durable: Vec::new(),
            air: Vec::new(),
            announcements: Vec::new(),
            boots: 0,
            rolled_back: 0,
            ended: Vec::new(),
            late: BTreeSet::new(),
            sensed: 0,
            reader,
            roster,
        };
        (0..usize::from(count)).for_each(|at| world.boot(at, Vec::new()));
        world
    }

    fn boot(&mut self, at: usize, waiting: Vec<Waiting>) {
        self.boots += 1;
        let challenge = self.boots.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.devices[at].boot(self.versions.of_device(at), challenge, waiting);
    }

    /// Replaces the state of a device that is off by an old copy, or deletes it.
    fn roll_back(&mut self, at: usize, deletes: bool) -> Vec<Waiting> {
        let device = &mut self.devices[at];
        let id = device.id;
        let certificate = self.roster.device(id).unwrap().certificate;
        // Frames that are still on their way would arrive as the device's own.
        self.air.retain(|(_, to, frame)| to.is_some() || claimed_device(frame) != Some(id));
        device.roll_back(deletes, certificate)
    }

    fn send(&mut self, now: u64, to: Option<usize>, frame: Vec<u8>) {
        if self.chance.percent(self.faults.loss) {
            return;
        }
        let delay = self.chance.below(self.faults.delay + 1);
        if self.chance.percent(self.faults.repeats) {
            let later = now + delay + self.chance.below(30);
            self.air.push((later, to, frame.clone()));
        }
        self.air.push((now + delay, to, frame));
    }

    /// Announces a round of the gateway. Only some devices receive it.
    fn announce(&mut self, now: u64, epoch: EpochNumber, round: Round) {
        let mut out = [0; MAX_ANNOUNCEMENT];
        let round = round.min(Round(LEVELS - 1));
        let announcement =
            Announcement::issue(self.roster.group(), epoch, round, &secret(99), &mut out).unwrap();
        // Every device would check the signature; check it only once here.
        let announcement = Announcement::open(
            announcement,
            self.roster.group(),
            self.roster.newest_period().coordinator.as_ref().unwrap(),
        )
        .unwrap();
        for at in 0..self.devices.len() {
            if !self.chance.percent(self.faults.loss) {
                let delay = self.chance.below(self.faults.delay + 1);
                self.announcements.push((now + delay, at, announcement));
            }
        }
    }

    fn tick(&mut self, now: u64, senses: bool) {
        let epoch = EpochNumber(FIRST + now / TICKS);
        if senses {
            self.change_roster(now, epoch);
        }
        self.load_rosters(now);
        for at in 0..self.devices.len() {
            self.device(at, now, epoch, senses);
        }
        // Frames that are due arrive in random order.
        let (mut due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.air).into_iter().partition(|(when, ..)| *when <= now);
        self.air = later;
        let mut touched = BTreeSet::new();
        let mut received = Vec::new();
        let mut raised = BTreeMap::new();
        while !due.is_empty() {
            let place = self.chance.below(due.len() as u64) as usize;
            let (_, to, frame) = due.swap_remove(place);
            if let Some(at) = to {
                let device = &mut self.devices[at];
                if device.mote.is_some() {
                    self.rolled_back += u64::from(device.receive(&frame));
                    device.quiet = 0;
                }
                continue;
            }
            match self.coordinator.receive(&frame, epoch) {
                Ok(news) => {
                    touched.insert(news.device);
                    if news.durable {
                        let (device, about) = (news.device, news.about);
                        received.push(Logged { frame, now: epoch, device, about });
                    }
                    raised.extend(news.raised);
                }
                Err(Refused::NotProven("UnknownRoster")) if self.versions.gateway_is_behind() => {
                    self.versions.counts.refused_by_a_gateway_behind += 1;
                }
                Err(refused) => assert!(
                    refused.name() == "EpochTooFar",
                    "an honest device's frame was refused: {refused}"
                ),
            }
            for epoch in self.coordinator.epochs().collect::<Vec<_>>() {
                assert!(self.coordinator.kept(epoch) <= self.budget);
            }
        }
        // The gateway is killed before the sync, after it, or not at all.
        let killed = self.chance.percent(self.faults.kills);
        let synced = !killed || self.chance.percent(50);
        if synced {
            if self.reader.is_some() {
                self.durable.extend(received.iter().map(|logged| logged.frame.clone()));
            }
            self.log.extend(received);
        }
        if killed {
            self.restart_coordinator();
        }
        if synced && !killed {
            for device in touched {
                let frame = self.coordinator.acknowledgement(device).unwrap();
                let at = self.devices.iter().position(|known| known.id == device);
                self.send(now, at, frame);
            }
            // Only durable rounds are announced.
            for (epoch, round) in raised {
                self.announce(now, epoch, round);
            }
        }
        // Announced rounds are repeated periodically.
        if now.is_multiple_of(8) {
            for epoch in self.coordinator.epochs().collect::<Vec<_>>() {
                let round = self.coordinator.round(epoch);
                self.announce(now, epoch, round);
            }
        }
        loop {
            let next = self.coordinator.epochs().next();
            let Some(epoch) = next else { break };
            let deadline = (epoch.0 - FIRST + 1) * TICKS + TICKS * 2;
            if !(now >= deadline
                || (now >= (epoch.0 - FIRST + 1) * TICKS && self.coordinator.is_complete(epoch)))
            {
                break;
            }
            let ended = self.coordinator.end(epoch, &secret(99)).unwrap();
            self.ended.push(ended);
            self.standing = self.coordinator.standing();
            let Self { log, coordinator, .. } = self;
            log.retain(|logged| {
                let of = |(index, epoch)| coordinator.needs(logged.device, index, epoch);
                logged.about.is_some_and(of)
            });
        }
        self.late.extend(self.coordinator.take_late());
    }

    fn restart_coordinator(&mut self) {
        let roster = self.versions.of_gateway().clone();
        self.resume(GroupCoordinator::new(roster, GROUP_SECRET).unwrap());
    }

    /// Continues with a coordinator that has nothing but the durable state.
    fn resume(&mut self, mut coordinator: GroupCoordinator) {
        coordinator.resume(self.standing.clone());
        for Logged { frame, now, .. } in &self.log {
            let _ = coordinator.replay(frame, *now).unwrap();
        }
        self.coordinator = coordinator;
    }

    fn device(&mut self, at: usize, now: u64, epoch: EpochNumber, senses: bool) {
        if self.devices[at].dead {
            return;
        }
        let epoch_before = EpochNumber(epoch.0.saturating_sub(1));
        if now.is_multiple_of(TICKS) && now > 0 && now <= EPOCHS * TICKS {
            self.devices[at].end(epoch_before);
        }
        if senses && self.versions.is_member(at, epoch) {
            for _ in 0..self.chance.below(6) {
                let reading = (self.sensed as u32).to_be_bytes();
                self.sensed += 1;
                self.devices[at].sense(epoch, reading);
            }
        }
        if self.chance.percent(self.faults.reboots) && senses {
            let waiting = self.devices[at].stop();
            if self.chance.percent(self.faults.deaths * 20) {
                let device = &mut self.devices[at];
                device.dead = true;
                device.settle();
                return;
            }
            let waiting = if self.chance.percent(self.faults.rollbacks) {
                let deletes = self.chance.percent(60);
                let waiting = self.roll_back(at, deletes);
                if deletes && self.chance.percent(40) {
                    self.recover(at);
                }
                waiting
            } else {
                self.devices[at].back_up(&waiting);
                waiting
            };
            self.boot(at, waiting);
        }
        let due: Vec<_> = {
            let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.announcements)
                .into_iter()
                .partition(|(when, to, _)| *to == at && *when <= now);
            self.announcements = later;
            due
        };
        let device = &mut self.devices[at];
        let mote = device.mote.as_mut().unwrap();
        for (_, _, announcement) in due {
            mote.announced(&announcement);
        }
        device.quiet += 1;
        if device.quiet > 10 && !mote.is_done() {
            mote.timeout();
            device.quiet = 0;
        }
        for frame in mote.frames(3).unwrap() {
            self.send(now, None, frame);
        }
    }

    /// Delivers a device's frames and their answers until the device sends nothing more. The
    /// gateway must accept every frame. Returns how often it had more of the device than the
    /// device's state.
    fn exchange(&mut self, at: usize, now: EpochNumber) -> u64 {
        let mut ahead = 0;
        loop {
            let device = &mut self.devices[at];
            let frames = device.mote.as_mut().unwrap().frames(3).unwrap();
            if frames.is_empty() {
                return ahead;
            }
            for frame in frames {
                let _ = self.coordinator.receive(&frame, now).unwrap();
                let answer = self.coordinator.acknowledgement(device.id).unwrap();
                ahead += u64::from(device.receive(&answer));
            }
        }
    }

    fn run(&mut self) {
        let mut now = 0;
        while now < EPOCHS * TICKS {
            self.tick(now, true);
            now += 1;
        }
        while now < (EPOCHS + 5) * TICKS {
            if now == (EPOCHS + 3) * TICKS {
                self.faults = FaultRates::NONE;
            }
            self.tick(now, false);
            now += 1;
        }
        // A device that has nothing to send does not repeat its challenge.
        self.devices.iter_mut().for_each(Device::settle);
    }
}

fn simulate(seeds: std::ops::Range<u64>) -> Outcome {
    let mut total = Outcome::default();
    for seed in seeds {
        let cheat = &CHEATS[(seed % CHEATS.len() as u64) as usize];
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            (world.audit(), world.cheat(cheat))
        });
        let (outcome, caught) = run.unwrap_or_else(|_| panic!("seed {seed}"));
        total.justified += outcome.justified;
        total.undetermined += outcome.undetermined;
        total.left += outcome.left;
        total.rolled_back += outcome.rolled_back;
        total.changes.add(outcome.changes);
        total.decrypted.add(outcome.decrypted);
        if let Some(caught) = caught {
            let (tried, found) = total.cheats.entry(cheat.name).or_default();
            *tried += 1;
            *found += u64::from(caught == Caught::Found);
        }
    }
    total
}

/// Runs `MOTESEAL_SEEDS` seeds, by default 400; `make test-long` runs 10,000.
#[test]
fn under_any_faults_the_audit_has_findings_only_for_cheating_coordinators() {
    let seeds = std::env::var("MOTESEAL_SEEDS")
        .map_or(400, |seeds| seeds.parse().expect("a number of seeds"));
    let total = simulate(0..seeds);
    // The runs must include both justified and undetermined epochs.
    println!("{seeds} runs: {total:?}");
    assert!(total.justified > seeds && total.undetermined > seeds / 8, "{total:?}");
    assert!(total.rolled_back > seeds / 20, "{total:?}");
    let Counts { rotated, removed, recovered, loaded_in_mid_epoch, refused_by_a_gateway_behind } =
        total.changes;
    for count in [rotated, removed, loaded_in_mid_epoch, refused_by_a_gateway_behind] {
        assert!(count > seeds / 20, "{total:?}");
    }
    assert!(recovered > seeds / 40, "{total:?}");
    total.decrypted.check_counts(seeds);
    assert_eq!(total.left, 0, "every live device must be done once there are no faults");
    // Each cheat must have been applied often enough. Cheats that can be found must have been found
    // in at least a third of the runs.
    for cheat in CHEATS {
        let (tried, found) = total.cheats.get(cheat.name).copied().unwrap_or_default();
        let can_be_found = cheat.found_by != FoundBy::Doubt;
        assert!(tried > seeds / 40 && (3 * found > tried) == can_be_found, "{cheat:?}: {total:?}");
    }
}

/// A device loses its state before the gateway has anything of it, and thus uses its first index
/// again. An old copy from before the loss is of another history, and is not restored.
#[test]
fn a_copy_from_before_an_unnoticed_loss_is_not_restored() {
    let of = |scheme| Columns::ALL.map(|columns| (scheme, columns));
    for kind in [of(Scheme::Star), of(Scheme::Tree)].concat() {
        let mut world = World::of(Chance::new(1), FaultRates::NONE, &[kind], 100);
        let epochs = [FIRST, FIRST + 1, FIRST + 2].map(EpochNumber);
        world.devices[0].sense(epochs[0], [0; 4]);
        world.devices[0].end(epochs[0]);
        let waiting = world.devices[0].stop();
        world.devices[0].back_up(&waiting);
        let waiting = world.roll_back(0, true);
        world.boot(0, waiting);
        assert_eq!(world.exchange(0, epochs[1]), 0, "the gateway has nothing of the device");
        world.devices[0].sense(epochs[1], [1; 4]);
        assert_eq!(world.exchange(0, epochs[1]), 0);
        world.devices[0].stop();
        let waiting = world.roll_back(0, false);
        world.boot(0, waiting);
        assert_eq!(world.exchange(0, epochs[2]), 1, "the gateway has the second history");
        world.devices[0].sense(epochs[2], [2; 4]);
        world.devices[0].end(epochs[2]);
        assert_eq!(world.exchange(0, epochs[2]), 0);
        assert!(world.devices[0].mote.as_ref().unwrap().is_done());
        for epoch in &epochs[1..] {
            world.ended.push(world.coordinator.end(*epoch, &secret(99)).unwrap());
        }
        let arrived = world.arrived_indices();
        assert!(arrived.len() == 1 && arrived.iter().all(|(_, index)| *index > 1), "{arrived:?}");
    }
}
