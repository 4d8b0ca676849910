//! A group that samples within a budget, simulated by the seed: frames lost, repeated and
//! reordered, devices that reboot or die, a gateway killed at any moment. Whatever happens, every
//! seal verifies or its loss is stated, the budget holds, and the audit accuses nobody: an epoch is
//! justified, or undetermined for exactly the devices that were silent on it. And in the same
//! weather a coordinator that cheats, in each of its ways, is found or at least not acquitted.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::Chance;
use crate::cheats::{audited, audited_alone, got};
use moteseal_adversary::coordinator::{Bundle, CHEATS, Cheat, FoundBy, Upload};
use moteseal_client::audit::{Doubt, EpochReport, Finding, Report};
use moteseal_core::link::LinkKey;
use moteseal_core::record::EpochNumber;
use moteseal_core::record::Scheme;
use moteseal_core::roster::Directory as _;
use moteseal_core::schema::{Field, Schema};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_core::{DeviceId, Digest, Level, Round};
use moteseal_device::mote::{Mote, Waiting};
use moteseal_device::seal::{Chain, Profile};
use moteseal_gateway::{Ended, GroupCoordinator};
use moteseal_seal::engine::Scalar;
use moteseal_seal::follow::Limits;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Announcement, MAX_ANNOUNCEMENT, Manifest};
use moteseal_seal::stream::Select;
use moteseal_verify::issue::{Budget, FirstRoster};
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

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
    scheme: Scheme,
    mote: Option<Mote<SecretKey>>,
    /// What a journal keeps: the chain with what was opened.
    chain: Chain,
    /// Every record that was sensed, by the index that was open, which is of this epoch.
    truth: BTreeMap<u32, (EpochNumber, Vec<[u8; 4]>)>,
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
    coordinator: GroupCoordinator,
    /// What the gateway has synced.
    log: Vec<Log>,
    /// Frames under way: when they arrive, to whom (none: the coordinator), what.
    air: Vec<(u64, Option<usize>, Vec<u8>)>,
    words: Vec<(u64, usize, Announcement)>,
    ended: Vec<Ended>,
    /// Bundles of seals that came after their manifest, with their epochs: an coordinator that was
    /// killed may say some of them again.
    late: BTreeSet<(EpochNumber, Vec<u8>)>,
    sensed: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let calm = chance.percent(10);
        let mut up_to = |most: u64| if calm { 0 } else { chance.below(most + 1) };
        let weather = Weather {
            loss: up_to(30),
            again: up_to(20),
            delay: up_to(12),
            reboots: up_to(2),
            deaths: up_to(1),
            kills: up_to(3),
        };
        let count = 1 + chance.below(5) as u8;
        let budget = 5 + chance.below(150);
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
        let roster = Roster::open(&first.issue(&operator).unwrap(), &operator.public()).unwrap();
        let mut buffer = [0; 256];
        let schema = Schema::encode(&[Field::parse("reading::u32").unwrap()], &mut buffer).unwrap();
        let devices = names.iter().map(|name| {
            let scheme = if chance.percent(50) { Scheme::Tree } else { Scheme::Star };
            let profile = Profile::new(&roster, name, scheme, &schema).unwrap();
            Device {
                id: profile.device,
                scheme,
                mote: None,
                chain: Chain::start(profile.certificate),
                truth: BTreeMap::new(),
                quiet: 0,
                dead: false,
            }
        });
        let devices = devices.collect();
        let coordinator = GroupCoordinator::new(roster.clone(), GROUP_SECRET).unwrap();
        let mut world = Self {
            chance,
            weather,
            schema: schema.as_bytes().to_vec(),
            budget,
            devices,
            coordinator,
            log: Vec::new(),
            air: Vec::new(),
            words: Vec::new(),
            ended: Vec::new(),
            late: BTreeSet::new(),
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
        let profile = Profile::new(&self.roster, name, device.scheme, &schema).unwrap();
        let link = LinkKey::new(&LinkKey::secret_of(&GROUP_SECRET, self.roster.group(), device.id));
        let salt_key = SaltKey::new([at as u8 ^ 0x33; 32]);
        device.mote =
            Some(Mote::new(profile, secret(at as u8), salt_key, link, device.chain, waiting, 3));
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

    /// The gateway announces a round; some devices receive it.
    fn announce(&mut self, now: u64, epoch: EpochNumber, round: Round) {
        let mut out = [0; MAX_ANNOUNCEMENT];
        let round = round.min(Round(LEVELS - 1));
        let word =
            Announcement::issue(self.roster.group(), epoch, round, &secret(99), &mut out).unwrap();
        // Every device checks the signature; once will do here.
        let word =
            Announcement::open(word, self.roster.group(), self.roster.coordinator().unwrap())
                .unwrap();
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
        let (mut due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.air).into_iter().partition(|(when, ..)| *when <= now);
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
            match self.coordinator.hear(&frame, epoch) {
                Ok(news) => {
                    touched.insert(news.device);
                    if news.durable {
                        heard.push(Log::Frame(frame, epoch));
                    }
                    raised.extend(news.raised);
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
        // The gateway dies before the sync, or after it, or not at all.
        let killed = self.chance.percent(self.weather.kills);
        let synced = !killed || self.chance.percent(50);
        if synced {
            self.log.extend(heard);
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
            // What is not durable is not said.
            for (epoch, round) in raised {
                self.announce(now, epoch, round);
            }
        }
        // A round that was announced before is said again from time to time.
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
            self.log.push(Log::End(epoch));
            self.ended.push(ended);
        }
        self.late.extend(self.coordinator.take_late());
    }

    fn restart_coordinator(&mut self) {
        let mut coordinator = GroupCoordinator::new(self.roster.clone(), GROUP_SECRET).unwrap();
        for entry in &self.log {
            match entry {
                Log::Frame(frame, now) => {
                    let _ = coordinator.hear(frame, *now).unwrap();
                }
                Log::End(epoch) => {
                    let again = coordinator.end(*epoch, &secret(99)).unwrap();
                    let before = self.ended.iter().find(|ended| ended.epoch == *epoch).unwrap();
                    assert_eq!(
                        (again.manifest, again.bundles),
                        (before.manifest.clone(), before.bundles.clone())
                    );
                }
            }
        }
        self.coordinator = coordinator;
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
            if device.chain.position.last.is_none_or(|(_, last)| last < epoch_before)
                && mote.end(epoch_before).is_ok()
            {
                device.chain = mote.chain();
            }
        }
        if sensing {
            for _ in 0..self.chance.below(6) {
                let device = &mut self.devices[at];
                let mote = device.mote.as_mut().unwrap();
                let record = (self.sensed as u32).to_be_bytes();
                self.sensed += 1;
                if let Some(chain) = mote.would_open(epoch, &record) {
                    // Persisted before the first event.
                    device.chain =
                        Chain { next_index: chain.next_index, epoch: chain.epoch, ..mote.chain() };
                }
                mote.sense(epoch, &record).unwrap();
                device.chain = mote.chain();
                let index = device.chain.next_index.0 - 1;
                device.truth.entry(index).or_insert_with(|| (epoch, Vec::new())).1.push(record);
            }
        }
        if self.chance.percent(self.weather.reboots) && sensing {
            let device = &mut self.devices[at];
            let (chain, waiting) = device.mote.take().unwrap().into_parts();
            device.chain = chain;
            if self.chance.percent(self.weather.deaths * 20) {
                self.devices[at].dead = true;
                return;
            }
            self.boot(at, waiting);
        }
        let due: Vec<_> = {
            let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.words)
                .into_iter()
                .partition(|(when, to, _)| *to == at && *when <= now);
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
                self.weather =
                    Weather { loss: 0, again: 0, delay: 0, reboots: 0, deaths: 0, kills: 0 };
            }
            self.tick(now, false);
            now += 1;
        }
    }

    /// Everything that was uploaded, by epoch: what is late and what was listed; of an epoch in
    /// which nobody was heard in time no manifest.
    fn uploads(&self) -> Vec<Upload> {
        let late_of = |epoch| {
            self.late.iter().filter(move |(of, _)| *of == epoch).map(|(_, bundle)| bundle.clone())
        };
        let read = |ended: &Ended, epoch, listed: &[Vec<u8>]| {
            let bundles: Vec<Vec<u8>> = listed.iter().cloned().chain(late_of(epoch)).collect();
            Upload::read(&self.roster, &ended.manifest, &bundles).unwrap()
        };
        let mut uploads: BTreeMap<EpochNumber, Upload> = self
            .ended
            .iter()
            .map(|ended| (ended.epoch, read(ended, ended.epoch, &ended.bundles)))
            .collect();
        for (epoch, _) in &self.late {
            let unlisted = || {
                let upload = read(&self.ended[0], *epoch, &[]);
                Upload {
                    epoch: *epoch,
                    round: Round(0),
                    listed: BTreeMap::new(),
                    withheld: true,
                    ..upload
                }
            };
            uploads.entry(*epoch).or_insert_with(unlisted);
        }
        uploads.into_values().collect()
    }

    /// Checks every bundle against what was sensed, and says which seals of which device arrived.
    fn arrived(&self) -> BTreeMap<DeviceId, Vec<Arrived>> {
        let mut arrived: BTreeMap<DeviceId, Vec<Arrived>> = BTreeMap::new();
        let listed =
            self.ended.iter().flat_map(|ended| ended.bundles.iter().map(|bundle| (true, bundle)));
        for (is_listed, bundle) in listed.chain(self.late.iter().map(|(_, bundle)| (false, bundle)))
        {
            let mut reader = StreamReader::new(&self.roster, Limits::default());
            let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                let Event::Proven(proven) = event else { return Ok(()) };
                let statement = proven.seal.statement();
                let Select::Levels(mask) = proven.part.select else { panic!("levels") };
                let device =
                    self.devices.iter().find(|device| device.id == statement.device).unwrap();
                let none = (statement.epoch, Vec::new());
                let (epoch, truth) = device.truth.get(&statement.index.0).unwrap_or(&none);
                assert_eq!(
                    (*epoch, truth.len() as u64),
                    (statement.epoch, statement.counters.total())
                );
                let mut kept = 0;
                proven.sample.for_each(&Scalar, |seq, _, record| {
                    assert_eq!(truth[seq.0 as usize], record);
                    kept += 1;
                });
                arrived.entry(statement.device).or_default().push(Arrived {
                    index: statement.index.0,
                    epoch: statement.epoch,
                    digest: proven.seal.digest(),
                    before: statement.last.map(|(index, epoch)| (index.0, epoch)),
                    is_last: statement.last_in_epoch,
                    restart: statement.restart,
                    is_listed,
                    counted: statement.counters.total(),
                    kept,
                    surviving: statement.surviving(),
                    mask,
                });
                Ok(())
            };
            reader.feed(bundle, &mut visit).unwrap();
            reader.finish(&mut visit).unwrap();
        }
        arrived.values_mut().for_each(|seals| seals.sort_by_key(|seal| seal.index));
        arrived
    }

    /// What anyone concludes from what the gateway uploads.
    fn audit(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let (uploads, arrived) = (self.uploads(), self.arrived());
        let report = audited(&self.roster, &uploads, &secret(99)).unwrap();
        let found: Vec<_> = report.findings().collect();
        assert!(found.is_empty(), "an honest gateway is accused: {found:?}");
        for ended in &self.ended {
            self.check_manifest(ended, &arrived);
            let [audited] = of_epoch(&report, ended.epoch)[..] else { panic!("{report:?}") };
            self.check_doubts(audited, &arrived);
            match audited.verdict() {
                "Justified" => outcome.justified += 1,
                _ => outcome.undetermined += 1,
            }
            // Who audits the epoch alone is told the same.
            let at = uploads.iter().position(|upload| upload.epoch == ended.epoch).unwrap();
            let alone = audited_alone(&self.roster, &uploads, at, &secret(99)).unwrap();
            let of = of_epoch(&alone, ended.epoch);
            assert!(
                alone.findings().next().is_none() && of[0].is_justified == audited.is_justified,
                "{of:?} and {audited:?}"
            );
        }
        for device in &self.devices {
            if !device.dead {
                outcome.left += device.mote.as_ref().unwrap().waiting() as u64;
            }
        }
        outcome
    }

    /// A manifest lists what is there, and of that exactly the levels from its round on are kept,
    /// within the budget.
    fn check_manifest(&self, ended: &Ended, arrived: &BTreeMap<DeviceId, Vec<Arrived>>) {
        let mut scratch = vec![0; ended.manifest.len() + 64];
        let coordinator = self.roster.coordinator().unwrap();
        let manifest =
            Manifest::open(&ended.manifest, self.roster.group(), coordinator, &mut scratch)
                .unwrap();
        let listed: BTreeSet<Digest> = manifest.devices().flat_map(|(_, seals)| seals).collect();
        let there: Vec<&Arrived> = arrived
            .values()
            .flatten()
            .filter(|seal| seal.is_listed && seal.epoch == ended.epoch)
            .collect();
        assert_eq!(there.iter().map(|seal| seal.digest).collect::<BTreeSet<_>>(), listed);
        let from = u32::MAX.checked_shl(u32::from(manifest.round().0)).unwrap_or(0);
        assert!(
            there.iter().all(|seal| seal.mask == seal.surviving & from),
            "exactly the levels from the round on"
        );
        let kept: u64 = there.iter().map(|seal| seal.kept).sum();
        assert_eq!(kept, ended.kept);
        assert!(kept <= self.budget);
    }

    /// An epoch is undetermined for exactly the devices that were silent on it; of all others it
    /// has whatever they sensed, unless they say that they restarted.
    fn check_doubts(&self, audited: &EpochReport, arrived: &BTreeMap<DeviceId, Vec<Arrived>>) {
        let epoch = audited.epoch;
        let named = |of: &dyn Fn(&Doubt) -> bool| {
            audited
                .doubts
                .iter()
                .filter(|doubt| of(doubt))
                .filter_map(Doubt::device)
                .collect::<BTreeSet<_>>()
        };
        let absent = named(&|doubt| matches!(doubt, Doubt::Absent { .. }));
        let restarted = named(&|doubt| matches!(doubt, Doubt::Restarted { .. }));
        let late = named(&|doubt| matches!(doubt, Doubt::Late { .. }));
        let mut silent = BTreeSet::new();
        for device in &self.devices {
            let none = Vec::new();
            let seals = arrived.get(&device.id).unwrap_or(&none);
            let listed: u64 = seals
                .iter()
                .filter(|seal| seal.epoch == epoch && seal.is_listed)
                .map(|seal| seal.counted)
                .sum();
            let sensed: usize = device
                .truth
                .values()
                .filter(|(of, _)| *of == epoch)
                .map(|(_, records)| records.len())
                .sum();
            if is_silent(seals, epoch) {
                silent.insert(device.id);
            } else {
                assert!(
                    listed == sensed as u64 || restarted.contains(&device.id),
                    "{} in {audited:?}",
                    device.id
                );
            }
            assert_eq!(
                late.contains(&device.id),
                seals.iter().any(|seal| seal.epoch == epoch && !seal.is_listed)
            );
        }
        assert_eq!(absent, silent, "{audited:?}");
        let is_due = audited.manifest.map(|(_, round)| round) == audited.due;
        assert_eq!(
            audited.is_justified,
            silent.is_empty() && (is_due || restarted.is_empty()),
            "{audited:?}"
        );
        // Nothing else is in doubt: what is listed is there.
        let others = audited.doubts.len() - absent.len() - restarted.len() - late.len();
        assert!(others == 0, "{audited:?}");
    }

    /// Lets the coordinator cheat in one way, on the first occasion that there is, if there is one.
    fn cheat(&mut self, cheat: &Cheat) -> Option<Caught> {
        let honest = self.uploads();
        let occasions = honest.len() * self.devices.len();
        let start = self.chance.below(occasions.max(1) as u64) as usize;
        for occasion in (0..occasions).map(|offset| (start + offset) % occasions) {
            let (at, device) =
                (occasion / self.devices.len(), self.devices[occasion % self.devices.len()].id);
            let mut uploads = honest.clone();
            if !honest[at].withheld && (cheat.bend)(&mut uploads, at, device) && uploads != honest {
                return Some(self.caught(cheat, &uploads, at, device));
            }
        }
        None
    }

    /// What becomes of a cheat: it is found, or the epoch is undetermined with the devices named
    /// that make it so, whether all epochs are audited or that one. It is never justified, and no
    /// other epoch is accused.
    fn caught(&self, cheat: &Cheat, uploads: &[Upload], at: usize, device: DeviceId) -> Caught {
        let (upload, what) =
            (&uploads[at], format!("{cheat:?} of {device} in epoch {}", uploads[at].epoch));
        if cheat.found_by == FoundBy::Verifier {
            let bundle = upload.bundles.iter().find(|bundle| bundle.device == device).unwrap();
            let name = got(&self.roster, upload, bundle).unwrap_err();
            assert!(cheat.names.contains(&name.as_str()), "{what}: {name}");
            return Caught::Found;
        }
        let reports = [
            audited(&self.roster, uploads, &secret(99)),
            audited_alone(&self.roster, uploads, at, &secret(99)),
        ];
        let caught = reports.map(|report| match report {
            Ok(report) => {
                let others: Vec<_> =
                    report.findings().filter(|(epoch, _)| *epoch != upload.epoch).collect();
                assert!(others.is_empty(), "{what}: {others:?}");
                let of = of_epoch(&report, upload.epoch);
                // Without a manifest and without a seal of anybody nothing is said of an epoch, and
                // nothing claimed.
                let nothing = cheat.name == "yesterday-resent" && upload.bundles.is_empty();
                assert_eq!(of.is_empty(), nothing, "{what}: {report:?}");
                let caught = |of: &EpochReport| {
                    if self.is_due_but_not_kept(cheat, upload, of) {
                        Caught::Found
                    } else {
                        caught_in(cheat, of, &what)
                    }
                };
                of.into_iter().map(caught).min().unwrap_or(Caught::Undetermined)
            }
            // One round more than there are levels is no manifest at all.
            Err(name) => {
                assert_eq!(
                    (cheat.name, name.as_str()),
                    ("kept-too-little", "RoundOutOfRange"),
                    "{what}"
                );
                Caught::Found
            }
        });
        // Who sees the seals of one epoch only may not know a replayed one; who sees more of them
        // may see a restart, and wonder.
        caught[0]
    }

    /// Where a device restarted, an honest round may be above the one that the counters ask for.
    /// Who signs that one instead is justified by them, but does not have its readings: whoever
    /// asks for what it should have kept finds out.
    fn is_due_but_not_kept(&self, cheat: &Cheat, upload: &Upload, of: &EpochReport) -> bool {
        let is_due =
            cheat.name == "kept-too-much" && of.is_justified && of.due == Some(upload.round);
        let level = Level(upload.round.0);
        let lacks = |bundle: &Bundle| {
            bundle.counters.at(level) == 0 || got(&self.roster, upload, bundle).is_err()
        };
        is_due && upload.bundles.iter().all(lacks)
    }
}

fn of_epoch(report: &Report, epoch: EpochNumber) -> Vec<&EpochReport> {
    report.epochs.iter().filter(|audited| audited.epoch == epoch).collect()
}

/// The result for the altered epoch, or for one of its manifests.
fn caught_in(cheat: &Cheat, of: &EpochReport, what: &str) -> Caught {
    let names: Vec<&str> = of.findings.iter().map(Finding::name).collect();
    match of.verdict() {
        "Unjustified" => {
            // Where a device's chain has gone silent nobody can say that a seal was invented, but
            // that nobody shows it. And where it restarted, the round that was told may say more
            // than the counters.
            let known = |name: &&str| {
                cheat.names.contains(name)
                    || *name == "Unshown"
                    || (cheat.name == "kept-too-much" && *name == "RoundOverstated")
            };
            assert!(names.iter().any(known), "{what}: {of:?}");
            Caught::Found
        }
        "Undetermined" => {
            let names_whom = of.doubts.iter().any(|doubt| match doubt {
                Doubt::NoManifest { .. } => true,
                Doubt::Late { .. } => false,
                doubt => doubt.device().is_some(),
            });
            assert!(names_whom, "{what}: nobody is named: {of:?}");
            Caught::Undetermined
        }
        verdict => panic!("{what}: {verdict}, a false acquittal: {of:?}"),
    }
}

/// How a cheat ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Caught {
    Undetermined,
    Found,
}

/// A seal that reached the gateway.
#[derive(Debug)]
struct Arrived {
    index: u32,
    epoch: EpochNumber,
    digest: Digest,
    /// Its predecessor, by its own words.
    before: Option<(u32, EpochNumber)>,
    is_last: bool,
    restart: bool,
    is_listed: bool,
    counted: u64,
    kept: u64,
    surviving: u32,
    mask: u32,
}

/// Whether a device's seals, by index, leave open what it sensed in an epoch: the obvious way, over
/// all of them.
fn is_silent(seals: &[Arrived], epoch: EpochNumber) -> bool {
    let listed: Vec<&Arrived> =
        seals.iter().filter(|seal| seal.epoch == epoch && seal.is_listed).collect();
    let newest = listed.last().map(|seal| seal.index);
    let left_out = seals
        .iter()
        .any(|seal| seal.epoch == epoch && !seal.is_listed && Some(seal.index) < newest);
    if left_out || listed.iter().any(|seal| seal.is_last) {
        return left_out;
    }
    let behind = seals.iter().find(|seal| seal.epoch > epoch && !seal.restart);
    let first_behind = seals.iter().find(|seal| seal.epoch > epoch).map(|seal| seal.index);
    !behind.is_some_and(|behind| {
        let follows = match newest {
            Some(newest) => behind.before.is_some_and(|(index, _)| index == newest),
            None => behind.before.is_none_or(|(_, of)| of < epoch),
        };
        follows && Some(behind.index) == first_behind
    })
}

#[derive(Debug, Default)]
struct Outcome {
    justified: u64,
    undetermined: u64,
    left: u64,
    /// By a cheat's name, how often there was an occasion for it, and how often it was found.
    cheats: BTreeMap<&'static str, (u64, u64)>,
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
        if let Some(caught) = caught {
            let (tried, found) = total.cheats.entry(cheat.name).or_default();
            *tried += 1;
            *found += u64::from(caught == Caught::Found);
        }
    }
    total
}

/// Runs as many as `MOTESEAL_SEEDS` says: 400 in the usual test, 10,000 in `make test-long`.
#[test]
fn with_any_faults_only_cheating_coordinators_are_accused() {
    let seeds = std::env::var("MOTESEAL_SEEDS")
        .map_or(400, |seeds| seeds.parse().expect("a number of seeds"));
    let total = simulate(0..seeds);
    // The simulation is worth something only if it is not all calm, and not all chaos.
    println!("{seeds} runs: {total:?}");
    assert!(total.justified > seeds && total.undetermined > seeds / 8, "{total:?}");
    assert_eq!(total.left, 0, "a living device is done once the link comes to its senses");
    // Every way to cheat had its occasions; those that can be found were found in one weather of
    // three at least.
    for cheat in CHEATS {
        let (tried, found) = total.cheats.get(cheat.name).copied().unwrap_or_default();
        let can_be_found = cheat.found_by != FoundBy::Doubt;
        assert!(tried > seeds / 40 && (3 * found > tried) == can_be_found, "{cheat:?}: {total:?}");
    }
}
