//! The versions of a simulated group's roster. The operator issues them in the middle of an epoch, for
//! the next epoch. Each device and the gateway load them at another time.

use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_device::chain_state::recovered;
use moteseal_device::seal::RosterName;
use moteseal_seal::Position;
use moteseal_seal::follow::Limits;
use moteseal_verify::issue::NextRoster;
use moteseal_verify::{Event, ReadError, Roster, StreamReader};

use super::{FIRST, NEXT_KEY, TICKS, World, secret};

/// What happened to rosters and keys.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// The keys that were rotated, and the devices that were removed.
    pub(super) rotated: u64,
    pub(super) removed: u64,
    /// How often a device recovered its chain from the cloud.
    pub(super) recovered: u64,
    /// How often a device with an open seal loaded a roster.
    pub(super) loaded_in_mid_epoch: u64,
    /// The seals that a gateway refused because it had not loaded the device's roster yet.
    pub(super) refused_by_a_gateway_behind: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        let Self { rotated, removed, recovered, loaded_in_mid_epoch, refused_by_a_gateway_behind } =
            other;
        self.rotated += rotated;
        self.removed += removed;
        self.recovered += recovered;
        self.loaded_in_mid_epoch += loaded_in_mid_epoch;
        self.refused_by_a_gateway_behind += refused_by_a_gateway_behind;
    }
}

/// All versions of a roster, and which of them each device and the gateway use.
pub(super) struct Versions {
    rosters: Vec<Roster>,
    of_devices: Vec<usize>,
    of_gateway: usize,
    /// When which device, or the gateway (`None`), loads which version.
    loads: Vec<(u64, Option<usize>, usize)>,
    is_rotated: Vec<bool>,
    /// The first epoch in which a device is no member any more.
    ends: Vec<Option<EpochNumber>>,
    pub(super) counts: Counts,
}

impl Versions {
    pub(super) fn new(first: &Roster, devices: usize) -> Self {
        Self {
            rosters: vec![first.clone()],
            of_devices: vec![0; devices],
            of_gateway: 0,
            loads: Vec::new(),
            is_rotated: vec![false; devices],
            ends: vec![None; devices],
            counts: Counts::default(),
        }
    }

    pub(super) fn of_device(&self, at: usize) -> &Roster {
        &self.rosters[self.of_devices[at]]
    }

    pub(super) fn of_gateway(&self) -> &Roster {
        &self.rosters[self.of_gateway]
    }

    pub(super) fn gateway_is_behind(&self) -> bool {
        self.of_gateway + 1 < self.rosters.len()
    }

    pub(super) fn is_member(&self, at: usize, epoch: EpochNumber) -> bool {
        self.ends[at].is_none_or(|end| epoch < end)
    }
}

impl World {
    /// Issues a version of the roster, sometimes. It rotates a device's key or removes a device.
    /// Every device loads it before the epoch in which it matters; the gateway may load it later.
    pub(super) fn change_roster(&mut self, now: u64, epoch: EpochNumber) {
        let at = self.chance.below(self.devices.len() as u64) as usize;
        let is_due = self.chance.percent(self.faults.changes);
        let next_epoch = EpochNumber(epoch.0 + 1);
        if !is_due || self.versions.ends[at].is_some() {
            return;
        }
        let removes = self.devices.len() > 1 && self.chance.percent(30);
        if !removes && self.versions.is_rotated[at] {
            return;
        }
        let (operator, name) = (secret(98), format!("mote-{at}"));
        let public = operator.public();
        let mut next = NextRoster::after(self.roster.bytes(), &operator, &public).unwrap();
        if removes {
            next.end(&name, None, Some(next_epoch)).unwrap();
            self.versions.ends[at] = Some(next_epoch);
            self.versions.counts.removed += 1;
        } else {
            let key = secret(at as u8 + NEXT_KEY).public();
            next.rotate(&name, &key, next_epoch, SealIndex(0)).unwrap();
            self.versions.is_rotated[at] = true;
            self.versions.counts.rotated += 1;
        }
        self.roster = Roster::open(&next.issue().unwrap(), &public).unwrap();
        let version = self.versions.rosters.len();
        self.versions.rosters.push(self.roster.clone());
        let last = (next_epoch.0 - FIRST) * TICKS;
        for at in 0..self.devices.len() {
            let when = last.min(now + self.chance.below(TICKS));
            self.versions.loads.push((when, Some(at), version));
        }
        let when = now + self.chance.below(2 * TICKS);
        self.versions.loads.push((when, None, version));
    }

    /// Loads the versions of the roster that are due.
    pub(super) fn load_rosters(&mut self, now: u64) {
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.versions.loads)
            .into_iter()
            .partition(|(when, ..)| *when <= now);
        self.versions.loads = later;
        for (_, who, version) in due {
            let roster = self.versions.rosters[version].clone();
            let Some(at) = who else {
                if version > self.versions.of_gateway {
                    self.versions.of_gateway = version;
                    let next = self.coordinator.under(roster).unwrap();
                    self.resume(next);
                }
                continue;
            };
            if version > self.versions.of_devices[at] {
                self.versions.of_devices[at] = version;
                if let Some(mote) = &mut self.devices[at].mote {
                    self.versions.counts.loaded_in_mid_epoch += u64::from(mote.opened().is_some());
                    mote.load(&roster);
                    let name = RosterName { version: roster.version(), digest: roster.digest() };
                    mote.set_roster(name);
                }
            }
        }
    }

    /// Rebuilds the state of a device that is off from what the cloud has of it.
    pub(super) fn recover(&mut self, at: usize) {
        let id = self.devices[at].id;
        let mut newest: Option<(SealIndex, Position)> = None;
        let listed = self.ended.iter().flat_map(|ended| &ended.bundles);
        for bundle in listed.chain(self.late.iter().map(|(_, bundle)| bundle)) {
            let mut reader = StreamReader::new(&self.roster, Limits::default());
            let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
                let Event::Proven(proven) = event else { return Ok(()) };
                let index = proven.seal.statement().index;
                let is_newer = newest.is_none_or(|(newest, _)| newest < index);
                if proven.seal.statement().device == id && is_newer {
                    newest = Some((index, proven.seal.position()));
                }
                Ok(())
            };
            reader.feed(bundle, &mut visit).unwrap();
            reader.finish(&mut visit).unwrap();
        }
        let Some((index, position)) = newest else { return };
        let random = self.chance.below(1 << 32) as u32;
        let device = &mut self.devices[at];
        device.chain = recovered(position, SealIndex(index.0 + 1), random);
        if let Some((_, next_index)) = &mut device.past {
            *next_index = device.chain.next_index.0;
        }
        self.versions.counts.recovered += 1;
    }
}
