//! The coordinator of a group, without sockets, clock or disk (docs/design.md, sampling;
//! spec/coordinator.md, section 1).
//!
//! [`GroupCoordinator::receive`] receives a device's frame and returns what the frame changed. If
//! the frame changed something, the caller appends the frame to a durable journal, in the order of
//! receipt. Only then may the caller send the [`GroupCoordinator::acknowledgement`]. After a
//! restart, the caller replays the journal, which restores the same state.
//! [`GroupCoordinator::end`] ends an epoch. It returns the manifest and one bundle for each seal,
//! pruned to the round that the signed counters require.
//!
//! A seal is accepted only if it verifies. To verify it, the coordinator keeps the events of the
//! levels that it has not dropped. For a star, it also keeps a running digest of each level that it
//! dropped while the device still forwarded that level. For a tree, it keeps the roots of the
//! subtrees between kept events. A rejected frame is counted under the name of its error and
//! affects no other device.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;

use moteseal_core::digest::Digest;
use moteseal_core::link::{FrameError, LinkKey, MAX_FRAME, claimed_device};
use moteseal_core::record::{
    DeviceId, EpochNumber, Framing, Level, MAX_LEVELS, Round, SealIndex, Sequence,
};
use moteseal_core::roster::Directory as _;
use moteseal_seal::sample::Coordinator;
use moteseal_seal::wire::{Acknowledgement, MAX_ACKNOWLEDGEMENT, StoredSeal, Uplink};
use moteseal_seal::{Authentic, Seal};
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use self::intake::Open;
use self::schemas::{Held, Schemas};
use self::session::Session;
use crate::queues::{Queues, Slot};
use crate::trees::Trees;
pub use error::Refused;
pub use urgent::EventRefused;

#[cfg(test)]
mod bounds;
mod bundle;
mod close;
mod end;
mod error;
mod hash;
mod intake;
mod refusal;
mod schemas;
mod session;
mod standing;
mod urgent;

/// The maximum number of open epochs whose first frame came from the same device. Without the
/// limit, a single device could open any number of epochs. Each of them uses memory and takes time
/// to end.
const OPENED: usize = 512;
/// The number of ended epochs whose final rounds are kept, for seals that arrive late.
const ROUNDS: usize = 1 << 12;

/// What a frame changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct FrameEffect {
    /// The device that sent the frame and expects an acknowledgement.
    pub device: DeviceId,
    /// Whether the frame must be durable before it is acknowledged.
    pub durable: bool,
    /// The epoch whose round has risen, and its new round, which must be announced.
    pub raised: Option<(EpochNumber, Round)>,
    /// The seal that the frame concerns, and its epoch; `None` for a schema or a challenge.
    pub about: Option<(SealIndex, EpochNumber)>,
}

/// How many events a coordinator has received and discarded since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of forwarded events, each counted once. For a tree, this includes events that a
    /// device sent although it could have sent a digest instead.
    pub seen: u64,
    /// The number of events that were dropped, or never kept, because their level is below the
    /// round.
    pub discarded: u64,
}

/// The state about ended epochs that a coordinator keeps. A coordinator can continue from this
/// state ([`GroupCoordinator::resume`]) together with the frames of the epochs that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The newest epoch that has ended.
    pub over: Option<EpochNumber>,
    /// The final rounds of the newest ended epochs.
    pub rounds: BTreeMap<EpochNumber, Round>,
    /// For each device, its newest stored seal in an ended epoch.
    pub sealed: BTreeMap<DeviceId, Newest>,
    /// The newest seal that each device has abandoned after its newest stored seal, with the
    /// abandoned seal's epoch. Only seals of ended epochs are listed.
    pub abandoned: BTreeMap<DeviceId, (SealIndex, EpochNumber)>,
    /// The stream schemas, encoded.
    pub schemas: Vec<Vec<u8>>,
    /// The schemas that each device sent, in the order in which it sent them, as indices into
    /// [`schemas`](Self::schemas).
    pub shown: BTreeMap<DeviceId, Vec<u32>>,
}

/// The newest stored seal of a device: the predecessor of its next seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Newest {
    /// The seal's index.
    pub index: SealIndex,
    /// The seal's digest.
    pub digest: Digest,
    /// The seal's epoch.
    pub epoch: EpochNumber,
    /// Whether the seal is the device's last seal of that epoch.
    pub is_last: bool,
}

/// An epoch that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The epoch.
    pub epoch: EpochNumber,
    /// The final round.
    pub round: Round,
    /// The number of kept events.
    pub kept: u64,
    /// The coordinator's signed manifest.
    pub manifest: Vec<u8>,
    /// A bundle for each seal, ordered by device and index. A bundle contains the levels from the
    /// final round upwards.
    pub bundles: Vec<Vec<u8>>,
    /// The devices that have not closed the epoch with a last seal.
    pub absent: Vec<DeviceId>,
}

/// The coordinator of a group.
#[derive(Clone)]
pub struct GroupCoordinator {
    roster: Roster,
    /// For each period of the roster, whether this coordinator serves its epochs.
    serves: Vec<bool>,
    secret: Zeroizing<[u8; 32]>,
    devices: Vec<Member>,
    schemas: Schemas,
    epochs: BTreeMap<EpochNumber, Epoch>,
    /// Ended epochs for which a device still has an open seal.
    late: BTreeMap<EpochNumber, Epoch>,
    /// Bundles of late seals.
    late_bundles: Vec<(EpochNumber, Vec<u8>)>,
    counts: Counts,
    /// The newest ended epoch, and the final rounds of the newest ended epochs.
    over: Option<EpochNumber>,
    rounds: BTreeMap<EpochNumber, Round>,
    /// For each device, by slot: the newest seal that it abandoned after its newest stored seal,
    /// with the abandoned seal's epoch.
    abandoned: BTreeMap<u32, (SealIndex, EpochNumber)>,
    /// For each open epoch, the slot of the device that sent its first frame.
    openers: BTreeMap<EpochNumber, u32>,
    /// For each device, by slot: what was received in its session since the coordinator was created.
    sessions: HashMap<u32, Session>,
}

/// The effect of a frame whose device is known.
enum Outcome {
    /// Nothing new: acknowledge the current state.
    Stale,
    /// Something new, and perhaps a new round.
    Fresh(Option<Round>),
}

/// A device of the roster. The type is small because most devices are idle most of the time.
#[derive(Clone)]
struct Member {
    id: DeviceId,
    /// The device's link key. It is stored while a seal is open. Otherwise it is derived when it is
    /// needed.
    key: Option<Box<LinkKey>>,
    open: Option<Box<Open>>,
    /// The newest stored seal.
    sealed: Option<Newest>,
    /// The newest stored seal of an ended epoch.
    over: Option<Newest>,
    wants_schema: bool,
    schemas: Held,
}

#[derive(Clone)]
struct Epoch {
    coordinator: Coordinator,
    queues: Queues,
    sealed: Vec<Sealed>,
}

#[derive(Clone)]
struct Sealed {
    slot: Slot,
    seal: Seal<Authentic>,
    evidence: Evidence,
    signature: Vec<u8>,
    schema: Digest,
    framing: Framing,
    /// The kept events, as one block per level. Dropped levels are absent.
    events: BTreeMap<u8, Vec<u8>>,
    /// Whether the manifest lists this seal.
    is_listed: bool,
}

/// The digests that, with the kept events, prove the root of a seal.
#[derive(Clone)]
enum Evidence {
    /// For a star, the block digest `D_i` of every level that is not null.
    Blocks(Box<[Digest; MAX_LEVELS]>),
    /// For a tree, or the trees of column groups: the roots of the subtrees between kept events, and for
    /// each level the sequence numbers of its kept events in ascending order.
    Roots { trees: Trees, seqs: BTreeMap<u8, Vec<Sequence>> },
}

impl fmt::Debug for GroupCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCoordinator")
            .field("devices", &self.devices.len())
            .field("epochs", &self.epochs.len())
            .finish_non_exhaustive()
    }
}

impl GroupCoordinator {
    /// Creates the coordinator of a roster's group. `secret` is the group's link secret. Returns
    /// `None` if the roster never has a budget, because a group without a budget needs no
    /// coordinator.
    #[must_use]
    pub fn new(roster: Roster, secret: impl Into<Zeroizing<[u8; 32]>>) -> Option<Self> {
        if !roster.has_budget() {
            return None;
        }
        let member = |id| Member {
            id,
            key: None,
            open: None,
            sealed: None,
            over: None,
            wants_schema: false,
            schemas: Held::EMPTY,
        };
        // `slot` uses a binary search, so the order matters: a roster lists its devices in
        // ascending order.
        let devices: Vec<Member> = roster.devices().map(|device| member(device.id)).collect();
        let serves = roster.periods().iter().map(|period| period.budget.is_some()).collect();
        Some(Self {
            roster,
            serves,
            secret: secret.into(),
            devices,
            schemas: Schemas::default(),
            epochs: BTreeMap::new(),
            late: BTreeMap::new(),
            late_bundles: Vec::new(),
            counts: Counts::default(),
            over: None,
            rounds: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            openers: BTreeMap::new(),
            sessions: HashMap::new(),
        })
    }

    /// Returns a device's position in `devices`.
    fn slot(&self, device: DeviceId) -> Option<u32> {
        let place = self.devices.binary_search_by_key(&device, |member| member.id).ok()?;
        u32::try_from(place).ok()
    }

    /// Serves only the epochs of some periods of the roster: `serves` has an element for each
    /// period. Another coordinator serves the others.
    pub(crate) fn serve_only(&mut self, serves: impl Iterator<Item = bool>) {
        for (serves, may) in self.serves.iter_mut().zip(serves) {
            *serves &= may;
        }
    }

    /// Returns whether this coordinator serves an epoch.
    fn serves(&self, epoch: EpochNumber) -> bool {
        let periods = self.roster.periods();
        let later = periods.iter().rposition(|period| period.first_epoch <= epoch);
        self.serves[later.unwrap_or(0)]
    }

    /// Receives a frame. `now` is the current epoch by the coordinator's own clock.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed.
    pub fn receive(&mut self, frame: &[u8], now: EpochNumber) -> Result<FrameEffect, Refused> {
        self.receive_if(frame, now, |_| true)
    }

    /// Like [`receive`](Self::receive), but accepts a frame with new contents only if `has_room`
    /// returns true for its device. The caller uses `has_room` to limit the room that each device
    /// uses in the journal.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed.
    pub fn receive_if(
        &mut self,
        frame: &[u8],
        now: EpochNumber,
        has_room: impl FnOnce(DeviceId) -> bool,
    ) -> Result<FrameEffect, Refused> {
        self.take_frame(frame, now, has_room, true)
    }

    /// Receives a frame of a journal again. It needs no schema of the device's session: the coordinator
    /// that wrote the journal had it, and sessions are not stored.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed.
    pub fn replay(&mut self, frame: &[u8], now: EpochNumber) -> Result<FrameEffect, Refused> {
        self.take_frame(frame, now, |_| true, false)
    }

    fn take_frame(
        &mut self,
        frame: &[u8],
        now: EpochNumber,
        has_room: impl FnOnce(DeviceId) -> bool,
        live: bool,
    ) -> Result<FrameEffect, Refused> {
        if frame.len() > MAX_FRAME {
            return Err(FrameError::Malformed.into());
        }
        let device = claimed_device(frame).ok_or(FrameError::Malformed)?;
        let slot = self.slot(device).ok_or(Refused::UnknownDevice)?;
        let member = &self.devices[slot as usize];
        let uplink = match &member.key {
            Some(key) => Uplink::open(frame, key)?,
            None => Uplink::open(frame, &link_key(&self.secret, &self.roster, device))?,
        };
        let has_room = has_room(device);
        let (about, outcome) = match uplink {
            Uplink::Forward(forward) => (
                Some((forward.index, forward.epoch)),
                self.forward(slot, &forward, now, (has_room, live))?,
            ),
            Uplink::Close { schema, open, part } => {
                let (about, outcome) = self.close(slot, schema, open, part, now, has_room)?;
                (Some(about), outcome)
            }
            Uplink::Schema(bytes) => (None, self.learn(slot, bytes, (has_room, live))?),
            Uplink::Challenge(challenge) => {
                self.sessions.entry(slot).or_default().challenged(challenge);
                (None, Outcome::Stale)
            }
        };
        Ok(match outcome {
            Outcome::Stale => FrameEffect { device, durable: false, raised: None, about },
            Outcome::Fresh(raised) => FrameEffect {
                device,
                durable: true,
                raised: about.zip(raised).map(|((_, epoch), round)| (epoch, round)),
                about,
            },
        })
    }

    /// Returns the frame that tells a device what was received. Send it only after everything that
    /// it acknowledges is durable.
    #[must_use]
    pub fn acknowledgement(&mut self, device: DeviceId) -> Option<Vec<u8>> {
        let slot = self.slot(device)?;
        let member = &self.devices[slot as usize];
        let (index, next) = match &member.open {
            Some(open) => (open.followed.index, open.followed.next),
            None => (
                SealIndex(member.sealed.map_or(0, |sealed| sealed.index.0.saturating_add(1))),
                Sequence(0),
            ),
        };
        let sealed = member.sealed.map(|Newest { index, digest, epoch, is_last }| StoredSeal {
            index,
            epoch,
            last_in_epoch: is_last,
            digest,
        });
        let wants_schema = member.wants_schema;
        let challenge = self.sessions.get(&slot).and_then(|session| session.challenge);
        let acknowledgement = Acknowledgement { index, next, sealed, wants_schema, challenge };
        let mut out = [0; MAX_ACKNOWLEDGEMENT];
        let frame = match &member.key {
            Some(key) => acknowledgement.close(device, key, &mut out),
            None => acknowledgement.close(
                device,
                &link_key(&self.secret, &self.roster, device),
                &mut out,
            ),
        };
        frame.ok().map(<[u8]>::to_vec)
    }

    /// Returns the current round of an epoch.
    #[must_use]
    pub fn round(&self, epoch: EpochNumber) -> Round {
        self.epochs.get(&epoch).map_or(Round(0), |epoch| epoch.coordinator.round())
    }

    /// Returns how many events of an open epoch are kept.
    #[must_use]
    pub fn kept(&self, epoch: EpochNumber) -> u64 {
        self.epochs.get(&epoch).map_or(0, |epoch| epoch.coordinator.kept())
    }

    /// Returns an upper bound on the number of digests in the bundles of trees. It counts the roots
    /// of dropped events, and one digest in each tree of a seal for each event that may still be dropped.
    /// The digests may take more bytes than the frames from which they were computed.
    #[must_use]
    pub fn digests(&self) -> u64 {
        let of_open = |open: &Open| {
            let (roots, trees) = open.roots()?;
            Some((open.followed.epoch, roots, trees))
        };
        let open =
            self.devices.iter().filter_map(|member| member.open.as_deref()).filter_map(of_open);
        let epochs = || self.epochs.iter().chain(&self.late);
        let sealed = epochs().flat_map(|(epoch, state)| {
            let trees = state.sealed.iter().filter_map(|sealed| match &sealed.evidence {
                Evidence::Blocks(_) => None,
                Evidence::Roots { trees, .. } => Some(trees),
            });
            trees.map(|trees| (*epoch, trees.roots(), trees.count()))
        });
        // For each epoch with trees, the largest number of trees of a seal.
        let (mut total, mut most) = (0, BTreeMap::new());
        for (epoch, roots, trees) in open.chain(sealed) {
            total += roots as u64;
            let most: &mut usize = most.entry(epoch).or_default();
            *most = trees.max(*most);
        }
        let kept = epochs().filter_map(|(epoch, state)| {
            most.get(epoch).map(|trees| state.coordinator.kept() * *trees as u64)
        });
        total + kept.sum::<u64>()
    }

    /// Returns whether every device of the roster has closed this epoch.
    #[must_use]
    pub fn is_complete(&self, epoch: EpochNumber) -> bool {
        self.epochs.get(&epoch).is_some_and(|epoch| self.absent(epoch).is_empty())
    }

    fn absent(&self, epoch: &Epoch) -> Vec<DeviceId> {
        let mut closed = vec![false; self.devices.len()];
        for sealed in epoch.listed() {
            closed[sealed.slot.0 as usize] |= sealed.seal.statement().last_in_epoch;
        }
        self.devices
            .iter()
            .zip(closed)
            .filter(|(_, closed)| !closed)
            .map(|(device, _)| device.id)
            .collect()
    }

    fn check_epoch(&self, slot: u32, epoch: EpochNumber, now: EpochNumber) -> Result<(), Refused> {
        let (first, last) = self.roster.epochs();
        if epoch.0 > now.0.saturating_add(1)
            || epoch < first
            || last.is_some_and(|last| epoch > last)
        {
            return Err(Refused::EpochTooFar);
        }
        if !self.serves(epoch) {
            return Err(Refused::NotCoordinated);
        }
        let device = self.roster.device(self.devices[slot as usize].id);
        if !device.is_some_and(|device| device.is_member_in(epoch)) {
            return Err(Refused::NotAMember);
        }
        let opened = || self.openers.values().filter(|opener| **opener == slot).count();
        if !self.is_over(epoch) && !self.is_live(epoch) && opened() >= OPENED {
            return Err(Refused::TooManyEpochs);
        }
        Ok(())
    }

    /// Records the device as the sender of the epoch's first frame, if the epoch is not open yet.
    fn note_opener(&mut self, slot: u32, epoch: EpochNumber) {
        if !self.is_over(epoch) && !self.is_live(epoch) {
            self.openers.insert(epoch, slot);
        }
    }

    /// Returns whether an epoch is open: a frame of it was received, and it has not ended.
    #[must_use]
    pub fn is_live(&self, epoch: EpochNumber) -> bool {
        self.epochs.contains_key(&epoch)
    }

    fn is_over(&self, epoch: EpochNumber) -> bool {
        self.over.is_some_and(|over| epoch <= over)
    }

    /// Returns the state of an epoch, and creates it if necessary. A late epoch is sampled within
    /// the budget, at its final round if that round is still known.
    fn epoch(&mut self, epoch: EpochNumber) -> &mut Epoch {
        let (levels, budget) = (self.roster.levels(epoch), self.budget(epoch));
        let is_over = self.is_over(epoch);
        let round = self.rounds.get(&epoch).copied().unwrap_or(Round(0));
        let epochs = if is_over { &mut self.late } else { &mut self.epochs };
        epochs.entry(epoch).or_insert_with(|| {
            let mut state = Epoch {
                coordinator: Coordinator::new(levels, budget),
                queues: Queues::new(levels),
                sealed: Vec::new(),
            };
            for level in state.coordinator.settle(round) {
                state.queues.forget(Level(level));
            }
            state
        })
    }

    fn known_epoch(&self, epoch: EpochNumber) -> Option<&Epoch> {
        if self.is_over(epoch) { self.late.get(&epoch) } else { self.epochs.get(&epoch) }
    }

    fn known_epoch_mut(&mut self, epoch: EpochNumber) -> Option<&mut Epoch> {
        self.epoch_and_devices(epoch).map(|(state, _)| state)
    }

    fn epoch_and_devices(&mut self, epoch: EpochNumber) -> Option<(&mut Epoch, &mut [Member])> {
        let epochs = if self.is_over(epoch) { &mut self.late } else { &mut self.epochs };
        Some((epochs.get_mut(&epoch)?, &mut self.devices))
    }

    /// Returns the bundles of seals that their epoch's manifest does not list, usually because they
    /// arrived late. Each bundle is returned with its epoch and pruned to the epoch's round. The
    /// caller must store the bundles. They cannot change the round.
    pub fn take_late(&mut self) -> Vec<(EpochNumber, Vec<u8>)> {
        std::mem::take(&mut self.late_bundles)
    }

    /// Drops the late epochs in which no device still has an open seal.
    fn forget_late(&mut self) {
        let open: Vec<_> = self
            .devices
            .iter()
            .filter_map(|member| member.open.as_ref())
            .map(|open| open.followed.epoch)
            .collect();
        self.late.retain(|epoch, _| open.contains(epoch));
    }

    /// Returns the open epochs in ascending order.
    pub fn epochs(&self) -> impl Iterator<Item = EpochNumber> {
        self.epochs.keys().copied()
    }

    /// Returns every device that has sent frames, with the newest epoch of these frames.
    pub fn reached(&self) -> impl Iterator<Item = (DeviceId, EpochNumber)> {
        self.devices.iter().filter_map(|member| {
            let open = member.open.as_ref().map(|open| open.followed.epoch);
            Some((member.id, open.or(member.sealed.map(|sealed| sealed.epoch))?))
        })
    }

    /// Returns how many events were received and discarded since the coordinator was created.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the group's budget in an epoch, in events; 0 if there is none.
    #[must_use]
    pub fn budget(&self, epoch: EpochNumber) -> u64 {
        self.roster.budget(epoch).unwrap_or(0)
    }

    /// Returns the group's roster.
    #[must_use]
    pub const fn roster(&self) -> &Roster {
        &self.roster
    }
}

impl Newest {
    fn of(seal: &Seal<Authentic>) -> Self {
        let statement = seal.statement();
        Self {
            index: statement.index,
            digest: seal.digest(),
            epoch: statement.epoch,
            is_last: statement.last_in_epoch,
        }
    }

    /// Returns whether the device's next seal may belong to this epoch.
    fn goes_on_in(&self, epoch: EpochNumber) -> bool {
        epoch > self.epoch || (epoch == self.epoch && !self.is_last)
    }
}

impl Sealed {
    /// Returns the kept levels, each with the number of its events.
    fn kept_levels(&self) -> impl Iterator<Item = (Level, u64)> {
        let counters = &self.seal.statement().counters;
        self.events.keys().map(|level| (Level(*level), u64::from(counters.at(Level(*level)))))
    }

    /// Returns the number of kept events.
    fn kept(&self) -> u64 {
        self.kept_levels().map(|(_, events)| events).sum()
    }

    /// Drops the events of some levels.
    fn forget(&mut self, levels: &Range<u8>) {
        for level in levels.clone() {
            let Some(block) = self.events.remove(&level) else { continue };
            if let Evidence::Roots { trees, seqs } = &mut self.evidence {
                let seqs = seqs.remove(&level).unwrap_or_default();
                for (seq, record) in seqs.into_iter().zip(records(self.framing, &block)) {
                    trees.drop_record(seq, record);
                }
            }
        }
    }
}

/// Returns the records of a block, in order.
fn records(framing: Framing, block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let (record, tail) = framing.split_first(rest).filter(|_| !rest.is_empty())?;
        rest = tail;
        Some(record)
    })
}

impl Epoch {
    /// Returns the seals that the manifest lists.
    fn listed(&self) -> impl Iterator<Item = &Sealed> {
        self.sealed.iter().filter(|sealed| sealed.is_listed)
    }

    fn keep(&mut self, slot: u32, level: Level, seq: Sequence, record: &[u8]) {
        // The caller has checked `has_room` for the whole frame, so this cannot fail.
        let _ = self.queues.keep(Slot(slot), level, seq, record);
    }
}

fn link_key(secret: &[u8; 32], roster: &Roster, device: DeviceId) -> LinkKey {
    LinkKey::new(&LinkKey::secret_of(secret, roster.group(), device))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle device uses memory only for its entry in `devices` and for one word per level in the
    /// queues of an epoch.
    #[test]
    fn an_idle_device_takes_at_most_200_bytes() {
        let newest = 16 * size_of::<u32>();
        assert!(size_of::<Member>() + newest <= 200, "{} + {newest}", size_of::<Member>());
    }
}
