//! A group that samples within a budget, simulated by the seed: frames lost, repeated and reordered, devices that reboot or die, a
//! gateway killed at any moment. Whatever happens, every seal verifies or its loss is stated, the budget holds, and the audit
//! accuses nobody.
#![allow(clippy::unwrap_used, missing_docs)]

mod chance;

use std::collections::{BTreeMap, BTreeSet};

use chance::Chance;
use moteseal_client::audit::{Audit, Report};
use moteseal_core::engine::Scalar;
use moteseal_core::level::SaltKey;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::roster::Directory as _;
use moteseal_core::sample::{Announcement, Doubt, MAX_ANNOUNCEMENT, Manifest, Tally, Verdict};
use moteseal_core::schema::{Field, Schema};
use moteseal_core::seal::Scheme;
use moteseal_core::seal::follow::Limits;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_core::wire::link::LinkKey;
use moteseal_core::wire::stream::Select;
use moteseal_core::{DeviceId, Digest, Round};
use moteseal_device::mote::{Mote, Waiting};
use moteseal_device::seal::{Chain, Profile};
use moteseal_gateway::{Ended, Hub};
use moteseal_verify::issue::{Budget, FirstRoster};
use moteseal_verify::{Event, ReadError, Roster, StreamReader, write};

const LEVELS: u8 = 8;
const TICKS: u64 = 40;
const EPOCHS: u64 = 4;
const FIRST: u64 = 70;
const GROUP_SECRET: [u8; 32] = [0x51; 32];

fn secret(byte: u8) -> SecretKey {
    SecretKey::from_seed(Algorithm::Ed25519, &[byte; 32]).unwrap()
}

/// How bad it is.
#[derive(Debug)]
struct Weather {
    loss: u64,
    again: u64,
    delay: u64,
    reboots: u64,
    deaths: u64,
    kills: u64,
}

struct Device {
    id: DeviceId,
    mote: Option<Mote<SecretKey>>,
    /// What a journal keeps: the chain with what was opened.
    chain: Chain,
    /// Every record that was sensed, by the index that was open.
    truth: BTreeMap<u32, Vec<[u8; 4]>>,
    quiet: u64,
    dead: bool,
}

enum Log {
    Frame(Vec<u8>, EpochNumber),
    End(EpochNumber),
}

struct World {
    chance: Chance,
    weather: Weather,
    roster: Roster,
    schema: Vec<u8>,
    budget: u64,
    devices: Vec<Device>,
    hub: Hub,
    /// What the gateway has synced.
    log: Vec<Log>,
    /// Frames under way: when they arrive, to whom (none: the hub), what.
    air: Vec<(u64, Option<usize>, Vec<u8>)>,
    words: Vec<(u64, usize, Announcement)>,
    ended: Vec<Ended>,
    /// Bundles of seals that came after their manifest.
    late: Vec<Vec<u8>>,
    restarted: BTreeSet<(u64, DeviceId)>,
    sensed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let calm = chance.percent(10);
        let mut up_to = |most: u64| if calm { 0 } else { chance.below(most + 1) };
        let weather =
            Weather { loss: up_to(30), again: up_to(20), delay: up_to(12), reboots: up_to(2), deaths: up_to(1), kills: up_to(3) };
        let count = 1 + chance.below(5) as u8;
        let budget = 5 + chance.below(150);
        let names: Vec<String> = (0..count).map(|device| format!("mote-{device}")).collect();
        let keys: Vec<(&str, PublicKey)> =
            (0..count).map(|device| (names[usize::from(device)].as_str(), secret(device).public())).collect();
        let budget_of = Budget { events: budget, coordinator: secret(99).public() };
        let first = FirstRoster { group: "field", epoch_ms: 1000, levels: LEVELS, budget: Some(budget_of), devices: &keys };
        let operator = secret(98);
        let roster = Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap();
        let mut buffer = [0; 256];
        let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
        let devices = names.iter().map(|name| {
            let profile = Profile::new(&roster, name, Scheme::Star, &schema).unwrap();
            Device {
                id: profile.device,
                mote: None,
                chain: Chain::start(profile.certificate),
                truth: BTreeMap::new(),
                quiet: 0,
                dead: false,
            }
        });
        let devices = devices.collect();
        let hub = Hub::new(roster.clone(), GROUP_SECRET).unwrap();
        let mut world = Self {
            chance,
            weather,
            schema: schema.as_bytes().to_vec(),
            budget,
            devices,
            hub,
            log: Vec::new(),
            air: Vec::new(),
            words: Vec::new(),
            ended: Vec::new(),
            late: Vec::new(),
            restarted: BTreeSet::new(),
            sensed: 0,
            roster,
        };
        (0..usize::from(count)).for_each(|at| world.boot(at, Vec::new()));
        world
    }

    fn boot(&mut self, at: usize, waiting: Vec<Waiting>) {
        let device = &mut self.devices[at];
        let schema = Schema::decode(&self.schema).unwrap();
        let name = self.roster.name(device.id).unwrap();
        let profile = Profile::new(&self.roster, name, Scheme::Star, &schema).unwrap();
        let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, self.roster.group(), device.id));
        let salt_key = SaltKey::new([at as u8 ^ 0x33; 32]);
        device.mote = Some(Mote::new(profile, secret(at as u8), salt_key, link, device.chain, waiting, 3));
    }

    fn send(&mut self, now: u64, to: Option<usize>, frame: Vec<u8>) {
        if self.chance.percent(self.weather.loss) {
            return;
        }
        let delay = self.chance.below(self.weather.delay + 1);
        if self.chance.percent(self.weather.again) {
            let later = now + delay + self.chance.below(30);
            self.air.push((later, to, frame.clone()));
        }
        self.air.push((now + delay, to, frame));
    }

    /// The gateway says a round, to whoever hears it.
    fn announce(&mut self, now: u64, epoch: EpochNumber, round: Round) {
        let mut out = [0; MAX_ANNOUNCEMENT];
        let round = round.min(Round(LEVELS - 1));
        let word = Announcement::issue(self.roster.group(), epoch, round, &secret(99), &mut out).unwrap();
        // Every device checks the signature; once will do here.
        let word = Announcement::open(word, self.roster.group(), self.roster.coordinator().unwrap()).unwrap();
        for at in 0..self.devices.len() {
            if !self.chance.percent(self.weather.loss) {
                let delay = self.chance.below(self.weather.delay + 1);
                self.words.push((now + delay, at, word));
            }
        }
    }

    fn tick(&mut self, now: u64, sensing: bool) {
        let epoch = EpochNumber(FIRST + now / TICKS);
        for at in 0..self.devices.len() {
            self.device(at, now, epoch, sensing);
        }
        // What arrives, arrives in any order.
        let (mut due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.air).into_iter().partition(|(when, ..)| *when <= now);
        self.air = later;
        let mut touched = BTreeSet::new();
        let mut heard = Vec::new();
        let mut raised = BTreeMap::new();
        while !due.is_empty() {
            let place = self.chance.below(due.len() as u64) as usize;
            let (_, to, frame) = due.swap_remove(place);
            if let Some(at) = to {
                let device = &mut self.devices[at];
                if let Some(mote) = &mut device.mote {
                    mote.acknowledged(&frame).unwrap();
                    device.quiet = 0;
                }
                continue;
            }
            match self.hub.hear(&frame, epoch) {
                Ok(news) => {
                    touched.insert(news.device);
                    if news.durable {
                        heard.push(Log::Frame(frame, epoch));
                    }
                    raised.extend(news.raised);
                }
                Err(refused) => assert!(refused.name() == "EpochTooFar", "an honest device's frame was refused: {refused}"),
            }
            for epoch in self.hub.epochs().collect::<Vec<_>>() {
                assert!(self.hub.kept(epoch) <= self.budget);
            }
        }
        // The gateway dies before the sync, or after it, or not at all.
        let killed = self.chance.percent(self.weather.kills);
        let synced = !killed || self.chance.percent(50);
        if synced {
            self.log.extend(heard);
        }
        if killed {
            self.restart_hub();
        }
        if synced && !killed {
            for device in touched {
                let frame = self.hub.acknowledgement(device).unwrap();
                let at = self.devices.iter().position(|known| known.id == device);
                self.send(now, at, frame);
            }
            // What is not durable is not said.
            for (epoch, round) in raised {
                self.announce(now, epoch, round);
            }
        }
        // A round that was announced before is said again from time to time.
        if now.is_multiple_of(8) {
            for epoch in self.hub.epochs().collect::<Vec<_>>() {
                let round = self.hub.round(epoch);
                self.announce(now, epoch, round);
            }
        }
        loop {
            let next = self.hub.epochs().next();
            let Some(epoch) = next else { break };
            let deadline = (epoch.0 - FIRST + 1) * TICKS + TICKS * 2;
            if !(now >= deadline || (now >= (epoch.0 - FIRST + 1) * TICKS && self.hub.is_complete(epoch))) {
                break;
            }
            let ended = self.hub.end(epoch, &secret(99)).unwrap();
            self.log.push(Log::End(epoch));
            self.ended.push(ended);
        }
        self.late.extend(self.hub.take_late().into_iter().map(|(_, bundle)| bundle));
    }

    fn restart_hub(&mut self) {
        let mut hub = Hub::new(self.roster.clone(), GROUP_SECRET).unwrap();
        for entry in &self.log {
            match entry {
                Log::Frame(frame, now) => {
                    let _ = hub.hear(frame, *now).unwrap();
                }
                Log::End(epoch) => {
                    let again = hub.end(*epoch, &secret(99)).unwrap();
                    let before = self.ended.iter().find(|ended| ended.epoch == *epoch).unwrap();
                    assert_eq!((again.manifest, again.bundles), (before.manifest.clone(), before.bundles.clone()));
                }
            }
        }
        self.hub = hub;
    }

    fn device(&mut self, at: usize, now: u64, epoch: EpochNumber, sensing: bool) {
        if self.devices[at].dead {
            return;
        }
        let epoch_before = EpochNumber(epoch.0.saturating_sub(1));
        if now.is_multiple_of(TICKS) && now > 0 && now <= EPOCHS * TICKS {
            let device = &mut self.devices[at];
            let mote = device.mote.as_mut().unwrap();
            // A device that sensed nothing says so.
            if device.chain.position.last.is_none_or(|(_, last)| last < epoch_before) && mote.end(epoch_before).is_ok() {
                device.chain = mote.chain();
            }
        }
        if sensing {
            for _ in 0..self.chance.below(6) {
                let device = &mut self.devices[at];
                let mote = device.mote.as_mut().unwrap();
                if let Some(chain) = mote.would_open(epoch) {
                    // Persisted before the first event.
                    device.chain = Chain { next_index: chain.next_index, epoch: chain.epoch, ..mote.chain() };
                }
                let record = (self.sensed as u32).to_be_bytes();
                self.sensed += 1;
                mote.sense(epoch, &record).unwrap();
                device.chain = mote.chain();
                let index = device.chain.next_index.0 - 1;
                device.truth.entry(index).or_default().push(record);
            }
        }
        if self.chance.percent(self.weather.reboots) && sensing {
            let device = &mut self.devices[at];
            let (chain, waiting) = device.mote.take().unwrap().into_parts();
            device.chain = chain;
            self.restarted.insert((epoch.0, device.id));
            self.restarted.insert((epoch.0.saturating_sub(1), device.id));
            if self.chance.percent(self.weather.deaths * 20) {
                self.devices[at].dead = true;
                return;
            }
            self.boot(at, waiting);
        }
        let due: Vec<_> = {
            let (due, later): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.words).into_iter().partition(|(when, to, _)| *to == at && *when <= now);
            self.words = later;
            due
        };
        let device = &mut self.devices[at];
        let mote = device.mote.as_mut().unwrap();
        for (_, _, word) in due {
            mote.announced(&word);
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

    fn run(&mut self) {
        let mut now = 0;
        while now < EPOCHS * TICKS {
            self.tick(now, true);
            now += 1;
        }
        while now < (EPOCHS + 5) * TICKS {
            if now == (EPOCHS + 3) * TICKS {
                self.weather = Weather { loss: 0, again: 0, delay: 0, reboots: 0, deaths: 0, kills: 0 };
            }
            self.tick(now, false);
            now += 1;
        }
    }

    /// What the client's audit says of everything that was uploaded: manifests, then each device's seals by index.
    fn report(&self) -> Report {
        let mut audit = Audit::new(&self.roster, EpochNumber(FIRST), None).unwrap();
        let mut stream = Vec::new();
        self.ended.iter().for_each(|ended| write::manifest(&mut stream, &ended.manifest));
        let mut seals = BTreeMap::new();
        for bundle in self.ended.iter().flat_map(|ended| &ended.bundles).chain(&self.late) {
            let mut reader = StreamReader::new(&self.roster, Limits::default());
            let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                if let Event::Proven(proven) = event {
                    seals.insert((proven.seal.statement().device, proven.seal.statement().index), bundle);
                }
                Ok(())
            };
            reader.feed(bundle, &mut visit).unwrap();
            reader.finish(&mut visit).unwrap();
        }
        seals.values().for_each(|bundle| stream.extend_from_slice(bundle));
        write::end(&mut stream);
        let mut feed = audit.stream();
        stream.chunks(1000).for_each(|chunk| feed.feed(chunk).unwrap());
        feed.finish().unwrap();
        audit.finish()
    }

    /// What anyone concludes from what the gateway uploads.
    fn audit(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let report = self.report();
        let found: Vec<_> = report.findings().collect();
        assert!(found.is_empty(), "an honest gateway is accused: {found:?}");
        outcome.audited = report.epochs.iter().filter(|epoch| epoch.is_justified).count() as u64;
        let coordinator = self.roster.coordinator().unwrap();
        for ended in &self.ended {
            let mut scratch = vec![0; ended.manifest.len() + 64];
            let manifest = Manifest::open(&ended.manifest, self.roster.group(), coordinator, &mut scratch).unwrap();
            let mut listed: BTreeSet<Digest> = manifest.devices().flat_map(|(_, seals)| seals).collect();
            let mut tally = Tally::new(LEVELS, self.budget);
            let (mut kept, mut closed, mut restarted) = (0, BTreeSet::new(), false);
            for bundle in &ended.bundles {
                let mut reader = StreamReader::new(&self.roster, Limits::default());
                let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                    let Event::Proven(proven) = event else { return Ok(()) };
                    let statement = proven.seal.statement();
                    assert!(listed.remove(&proven.seal.digest()), "a bundle that the manifest does not list");
                    assert_eq!(statement.epoch, manifest.epoch());
                    tally.add(proven.seal);
                    restarted |= statement.restart;
                    if statement.last_in_epoch {
                        closed.insert(statement.device);
                    }
                    let from = u32::MAX.checked_shl(u32::from(manifest.round().0)).unwrap_or(0);
                    let Select::Levels(mask) = proven.part.select else { panic!("levels") };
                    assert_eq!(mask, statement.surviving() & from, "exactly the levels from the round on");
                    let device = self.devices.iter().find(|device| device.id == statement.device).unwrap();
                    let SealIndex(index) = statement.index;
                    let none = Vec::new();
                    let truth = device.truth.get(&index).unwrap_or(&none);
                    assert_eq!(truth.len() as u64, statement.counters.total());
                    proven.sample.for_each(&Scalar, |seq, _, record| {
                        assert_eq!(truth[seq.0 as usize], record);
                        kept += 1;
                    });
                    Ok(())
                };
                reader.feed(bundle, &mut visit).unwrap();
                reader.finish(&mut visit).unwrap();
            }
            assert!(listed.is_empty(), "a seal that is listed and not uploaded");
            assert_eq!(kept, ended.kept);
            assert!(kept <= self.budget);
            let missing = closed.len() < self.devices.len();
            restarted |= self.restarted.iter().any(|(epoch, _)| *epoch == ended.epoch.0);
            match tally.judge(manifest.round(), Doubt { missing, restarted }) {
                Verdict::Justified => {
                    // Whoever sees the chains knows no less.
                    let audited = report.epochs.iter().find(|audited| audited.epoch == ended.epoch).unwrap();
                    assert!(audited.is_justified, "{audited:?}");
                    outcome.justified += 1;
                }
                Verdict::Undetermined => {
                    assert!(missing || restarted);
                    outcome.undetermined += 1;
                }
                Verdict::Unjustified(finding) => panic!("an honest gateway is accused: {finding}"),
            }
        }
        for device in &self.devices {
            if !device.dead {
                outcome.left += device.mote.as_ref().unwrap().waiting() as u64;
            }
        }
        outcome
    }
}

#[derive(Debug, Default)]
struct Outcome {
    justified: u64,
    /// Epochs that the client's audit finds justified: also those of which only the chains show that nobody had more.
    audited: u64,
    undetermined: u64,
    left: u64,
}

fn simulate(seeds: std::ops::Range<u64>) -> Outcome {
    let mut total = Outcome::default();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            world.audit()
        });
        let outcome = run.unwrap_or_else(|_| panic!("seed {seed}"));
        total.justified += outcome.justified;
        total.audited += outcome.audited;
        total.undetermined += outcome.undetermined;
        total.left += outcome.left;
    }
    total
}

/// Runs as many as `MOTESEAL_SEEDS` says: 400 in the usual test, 10,000 in `make test-long`.
#[test]
fn whatever_happens_the_budget_holds_and_nobody_is_accused() {
    let seeds = std::env::var("MOTESEAL_SEEDS").map_or(400, |seeds| seeds.parse().expect("a number of seeds"));
    let total = simulate(0..seeds);
    // The simulation is worth something only if it is not all calm, and not all chaos.
    println!("{seeds} runs: {total:?}");
    assert!(total.justified > seeds && total.undetermined > seeds / 8, "{total:?}");
    assert_eq!(total.left, 0, "a living device is done once the link comes to its senses");
}
