//! Kills gateways and devices at moments chosen by a seed, while frames are lost, repeated and
//! delayed. Gateways and devices restart from their journals on disk. Every durable reading is
//! sealed once. The audit justifies every epoch or names the devices that did not close it.
//!
//! In half of the runs the roster changes in the middle of epochs: from one epoch on, the group has
//! another budget, number of levels and coordinator's key, and from a later one on a device has
//! another key. Each party loads each version at its own time, so the gateway may be behind its
//! devices, and the reverse.

use crate::group;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::chance::Chance;
use crate::group::{Cloud, FIRST};
use moteseal_core::DeviceId;
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_core::signature::SecretKey;
use moteseal_device::DurableMote;
use moteseal_gateway::{Station, StationError};
use moteseal_verify::Roster;
use moteseal_verify::issue::PeriodChange;

const TICKS: u64 = 24;
const EPOCHS: u64 = 5;
const BOUND: u64 = 1 << 30;
/// The number of epochs from one version of the roster to the next.
const VERSION_EPOCHS: u64 = 2;

#[derive(Clone, Copy)]
struct FaultRates {
    loss: u64,
    repeats: u64,
    delay: u64,
    reboots: u64,
    kills: u64,
}

struct Device {
    id: DeviceId,
    /// The version of the roster that the device has loaded.
    version: usize,
    mote: Option<DurableMote<SecretKey>>,
    /// The sensed records, by epoch. Records that were not durable at a kill are removed again.
    truth: BTreeMap<u64, Vec<[u8; 4]>>,
    /// The indices of the seals that the device gave up because too many seals were waiting. After
    /// a kill, the set keeps only the seals whose removal was durable.
    given_up: BTreeSet<u32>,
    quiet: u64,
}

impl Device {
    /// Changes the mote. Records the seals that it no longer has afterwards as given up.
    fn change(&mut self, change: impl FnOnce(&mut DurableMote<SecretKey>)) {
        let mote = self.mote.as_mut().unwrap();
        let first = mote.mote().opened().unwrap_or(mote.mote().chain().next_index);
        change(mote);
        for index in (first.0..mote.mote().chain().next_index.0)
            .filter(|index| !mote.mote().has(SealIndex(*index)))
        {
            let waiting = mote.mote().waiting();
            assert!(
                waiting >= mote.most_waiting(),
                "seal {index} was given up although only {waiting} waited"
            );
            self.given_up.insert(index);
        }
    }
}

struct World<'a> {
    chance: Chance,
    faults: FaultRates,
    folder: &'a Path,
    /// The versions of the roster.
    rosters: Vec<Roster>,
    /// The version that the gateway has loaded.
    version: usize,
    loads: u64,
    devices: Vec<Device>,
    station: Option<Station>,
    /// Messages in transit: the time of arrival, the recipient (`None`: the gateway), the message,
    /// and whether it is an announcement.
    air: Vec<(u64, Option<usize>, Vec<u8>, bool)>,
    sensed: u32,
    kills: u64,
    reboots: u64,
}

impl<'a> World<'a> {
    fn new(seed: u64, folder: &'a Path) -> Self {
        let mut chance = Chance::new(seed);
        let mut up_to = |most: u64| chance.below(most + 1);
        let faults = FaultRates {
            loss: up_to(30),
            repeats: up_to(20),
            delay: up_to(8),
            reboots: up_to(4),
            kills: up_to(6),
        };
        let count = u8::try_from(1 + chance.below(4)).unwrap();
        let budget = 5 + chance.below(120);
        let roster = group::roster(count, budget, 1000);
        let mut rosters = vec![roster.clone()];
        if chance.percent(50) {
            let change = PeriodChange {
                levels: Some(u8::try_from(4 + chance.below(8)).unwrap()),
                budget: Some(Some(5 + chance.below(120))),
                coordinator: Some(group::next_key(group::COORDINATOR).public()),
                ..PeriodChange::default()
            };
            let epoch = |version: u64| EpochNumber(FIRST + VERSION_EPOCHS * version);
            let second = group::next_version(&roster, |next| next.begin_period(epoch(1), &change));
            let key = group::next_key(0).public();
            let third = group::next_version(&second, |next| {
                next.rotate("mote-0", &key, epoch(2), SealIndex(0))
            });
            rosters.extend([second, third]);
        }
        let device = |device| Device {
            id: group::device_id(&roster, device),
            version: 0,
            mote: Some(group::mote(&roster, device, folder, 3)),
            truth: BTreeMap::new(),
            given_up: BTreeSet::new(),
            quiet: 0,
        };
        let devices = (0..count).map(device).collect();
        let station = Some(group::station(&roster, folder, BOUND));
        Self {
            chance,
            faults,
            folder,
            rosters,
            version: 0,
            loads: 0,
            devices,
            station,
            air: Vec::new(),
            sensed: 0,
            kills: 0,
            reboots: 0,
        }
    }

    fn send(&mut self, now: u64, to: Option<usize>, message: &[u8], is_announcement: bool) {
        if self.chance.percent(self.faults.loss) {
            return;
        }
        let delay = self.chance.below(self.faults.delay + 1);
        if self.chance.percent(self.faults.repeats) {
            let later = now + delay + self.chance.below(20);
            self.air.push((later, to, message.to_vec(), is_announcement));
        }
        self.air.push((now + delay, to, message.to_vec(), is_announcement));
    }

    fn device(&mut self, at: usize, now: u64, senses: bool) {
        let epoch = FIRST + now / TICKS;
        if now >= TICKS {
            let device = &mut self.devices[at];
            let mote = device.mote.as_ref().unwrap();
            let before = EpochNumber((epoch - 1).min(FIRST + EPOCHS - 1));
            let newest = mote.mote().chain().epoch;
            // A device that sensed nothing makes an empty seal.
            if mote
                .mote()
                .epoch()
                .map_or(newest.is_none_or(|newest| newest < before), |open| open <= before)
            {
                device.change(|mote| mote.end(before).unwrap());
            }
        }
        if senses {
            for _ in 0..self.chance.below(6) {
                let record = self.sensed.to_be_bytes();
                self.sensed += 1;
                let device = &mut self.devices[at];
                device.change(|mote| mote.sense(EpochNumber(epoch), &record).unwrap());
                device.truth.entry(epoch).or_default().push(record);
            }
        }
        if self.chance.percent(self.faults.reboots) {
            self.reboots += 1;
            self.devices[at].mote = None;
            let roster = &self.rosters[self.devices[at].version];
            let mote = group::mote(roster, u8::try_from(at).unwrap(), self.folder, 3);
            let device = &mut self.devices[at];
            // Records that were not synced are lost.
            let (newest, count) = mote.taken().map_or((0, 0), |(epoch, count)| (epoch.0, count));
            device.truth.retain(|epoch, _| *epoch <= newest);
            if let Some(truth) = device.truth.get_mut(&newest) {
                assert!(count <= truth.len() as u64);
                truth.truncate(usize::try_from(count).unwrap());
            }
            // Seals that the device gave up without a sync will be given up again.
            let next = mote.mote().chain().next_index.0;
            device.given_up.retain(|index| *index < next && !mote.mote().has(SealIndex(*index)));
            device.mote = Some(mote);
        }
        let device = &mut self.devices[at];
        let mote = device.mote.as_mut().unwrap();
        device.quiet += 1;
        if device.quiet > 8 && !mote.mote().is_done() {
            mote.timeout();
            device.quiet = 0;
        }
        for frame in mote.frames(3).unwrap() {
            self.send(now, None, &frame, false);
        }
    }

    fn tick(&mut self, now: u64, senses: bool) {
        let epoch = EpochNumber(FIRST + now / TICKS);
        (0..self.devices.len()).for_each(|at| self.device(at, now, senses));
        let (mut due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.air).into_iter().partition(|(when, ..)| *when <= now);
        self.air = later;
        while !due.is_empty() {
            let place = usize::try_from(self.chance.below(due.len() as u64)).unwrap();
            let (_, to, message, is_announcement) = due.swap_remove(place);
            match to {
                Some(at) if is_announcement => {
                    let _ = self.devices[at]
                        .mote
                        .as_mut()
                        .unwrap()
                        .announced(&message)
                        .unwrap()
                        .unwrap();
                }
                Some(at) => {
                    let device = &mut self.devices[at];
                    device.change(|mote| _ = mote.acknowledged(&message).unwrap().unwrap());
                    device.quiet = 0;
                }
                None => {
                    let station = self.station.as_mut().unwrap();
                    if let Err(refused) = station.receive(&message, epoch) {
                        let is_behind =
                            self.devices.iter().any(|device| device.version > self.version);
                        assert!(
                            is_behind && refused.name() == "UnknownRoster",
                            "an honest device's frame was refused: {refused}"
                        );
                    }
                    let coordinator = station.coordinator();
                    assert!(
                        coordinator
                            .epochs()
                            .all(|epoch| coordinator.kept(epoch) <= coordinator.budget(epoch))
                    );
                }
            }
        }
        // Kill the gateway either before the sync, or after the sync but before its announcements
        // are sent.
        if self.chance.percent(self.faults.kills) {
            if self.chance.percent(50) {
                let _ = self.station.as_mut().unwrap().commit().unwrap();
            }
            self.kill();
        }
        if now.is_multiple_of(8) {
            self.station.as_mut().unwrap().announce(epoch);
        }
        self.commit(now);
        loop {
            let next = self.station.as_ref().unwrap().coordinator().epochs().next();
            let Some(epoch) = next else { break };
            let station = self.station.as_mut().unwrap();
            let end = (epoch.0 - FIRST + 1) * TICKS;
            if !(now >= end + 2 * TICKS || (now >= end && station.coordinator().is_complete(epoch)))
            {
                break;
            }
            station.end(epoch).unwrap();
            if self.chance.percent(self.faults.kills) {
                // The end of the epoch is not durable, and will be repeated.
                self.kill();
                break;
            }
            self.commit(now);
        }
    }

    fn commit(&mut self, now: u64) {
        let committed = self.station.as_mut().unwrap().commit().unwrap();
        for (device, frame) in committed.acknowledgements {
            let at = self.devices.iter().position(|known| known.id == device);
            self.send(now, at, &frame, false);
        }
        if let Some(announcement) = committed.announcement {
            (0..self.devices.len()).for_each(|at| self.send(now, Some(at), &announcement, true));
        }
    }

    fn kill(&mut self) {
        self.kills += 1;
        self.station = None;
        self.station = Some(group::station(&self.rosters[self.version], self.folder, BOUND));
    }

    /// Lets parties load the next version of the roster: all of them before the epoch in which it
    /// takes effect, each at its own time.
    fn load(&mut self, now: u64) {
        let latest = |version: usize| VERSION_EPOCHS * TICKS * version as u64 - 1;
        for at in 0..self.devices.len() {
            let next = self.devices[at].version + 1;
            let Some(roster) = self.rosters.get(next) else { continue };
            if now >= latest(next) || self.chance.percent(5) {
                self.devices[at].version = next;
                self.devices[at].change(|mote| mote.load(roster).unwrap());
                self.loads += 1;
            }
        }
        let next = self.version + 1;
        let Some(roster) = self.rosters.get(next).cloned() else { return };
        let must = now >= latest(next);
        if !must && !self.chance.percent(5) {
            return;
        }
        self.loads += 1;
        let station = self.station.as_mut().unwrap();
        if self.chance.percent(30) {
            // The gateway is killed before the version is recorded.
            let failed = station.load(roster.clone(), |_| {
                Err(StationError::Io("roster".into(), std::io::Error::other("killed")))
            });
            assert!(failed.is_err());
            self.kill();
        }
        let station = self.station.as_mut().unwrap();
        let recovered = station.load(roster, |_| Ok::<(), StationError>(())).unwrap();
        assert_eq!(recovered.refused, 0);
        self.version = next;
        if self.chance.percent(30) {
            self.kill();
        }
    }

    fn run(&mut self) {
        for now in 0..(EPOCHS + 8) * TICKS {
            if now == (EPOCHS + 4) * TICKS {
                self.faults = FaultRates { loss: 0, repeats: 0, delay: 0, reboots: 0, kills: 0 };
            }
            self.load(now);
            self.tick(now, now < EPOCHS * TICKS);
        }
    }
}

#[derive(Debug, Default)]
struct Total {
    kills: u64,
    reboots: u64,
    justified: u64,
    undetermined: u64,
    late: u64,
    given_up: u64,
    loads: u64,
}

fn simulate(seed: u64) -> Total {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new(seed, folder.path());
    world.run();
    let cloud = Cloud::default();
    cloud.take(world.station.as_ref().unwrap());
    let devices: BTreeMap<DeviceId, &Device> =
        world.devices.iter().map(|device| (device.id, device)).collect();
    let truth = |id: DeviceId, epoch: u64, seq: u64| {
        let sensed = devices[&id].truth.get(&epoch);
        Some(
            *sensed
                .and_then(|sensed| sensed.get(usize::try_from(seq).unwrap()))
                .expect("an event that was never sensed"),
        )
    };
    let audited = group::audit(world.rosters.last().unwrap(), &cloud, &truth);
    let mut given_up = 0;
    for device in &world.devices {
        let mote = device.mote.as_ref().unwrap().mote();
        assert!(mote.is_done(), "every device must be done once there are no faults");
        // For each opened index, either the cloud has the seal, or the device gave up the seal
        // because too many seals were waiting.
        let sealed = audited.indices.get(&device.id).cloned().unwrap_or_default();
        assert!(sealed.is_disjoint(&device.given_up), "{sealed:?} and {:?}", device.given_up);
        let known: BTreeSet<u32> = sealed.union(&device.given_up).copied().collect();
        assert_eq!(
            known,
            (0..mote.chain().next_index.0).collect(),
            "given up: {:?}",
            device.given_up
        );
        given_up += device.given_up.len() as u64;
        // Each durable reading is sealed once, unless its epoch was given up.
        let mut missing = 0;
        for (epoch, sensed) in device.truth.iter().filter(|(_, sensed)| !sensed.is_empty()) {
            match audited.sensed.get(&(device.id, *epoch)) {
                Some(sealed) => assert_eq!(*sealed, sensed.len() as u64, "epoch {epoch}"),
                None => missing += 1,
            }
        }
        assert!(
            missing <= device.given_up.len(),
            "{missing} epochs are missing, but only {:?} were given up",
            device.given_up
        );
    }
    let epochs: BTreeSet<u64> =
        audited.justified.iter().chain(&audited.undetermined).copied().collect();
    assert_eq!(epochs.len(), audited.justified.len() + audited.undetermined.len());
    Total {
        kills: world.kills,
        reboots: world.reboots,
        justified: audited.justified.len() as u64,
        undetermined: audited.undetermined.len() as u64,
        late: audited.late,
        given_up,
        loads: world.loads,
    }
}

/// Runs `MOTESEAL_SEEDS` seeds, by default 20.
#[test]
fn killed_gateways_and_devices_recover_and_the_audit_has_no_findings() {
    let seeds = std::env::var("MOTESEAL_SEEDS")
        .map_or(20, |seeds| seeds.parse().expect("a number of seeds"));
    let mut total = Total::default();
    for seed in 0..seeds {
        let run =
            std::panic::catch_unwind(|| simulate(seed)).unwrap_or_else(|_| panic!("seed {seed}"));
        total.kills += run.kills;
        total.reboots += run.reboots;
        total.justified += run.justified;
        total.undetermined += run.undetermined;
        total.late += run.late;
        total.given_up += run.given_up;
        total.loads += run.loads;
    }
    println!("{seeds} runs: {total:?}");
    // The runs must include kills.
    assert!(total.kills > seeds && total.reboots > seeds && total.justified > seeds, "{total:?}");
    assert!(seeds < 20 || (total.given_up > 0 && total.loads > seeds), "{total:?}");
}
