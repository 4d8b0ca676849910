//! A device that samples within its group's budget. It seals events, forwards them, and keeps them
//! until its gateway has stored them (docs/design.md, sampling).
//!
//! [`Mote`] is the protocol without sockets or a clock: its inputs are readings and frames, and its
//! outputs are frames. [`DeviceSession`] is the session with the coordinator. This module adds the
//! buffers and the queue of closed seals. A closed seal and its forwarded events are kept until the
//! gateway has acknowledged that all of them are durable.
//!
//! Memory is bounded. Each seal has a buffer, usually of [`BUFFER`] bytes. If the buffer is full, the mote
//! raises its own round instead of losing single events. If no round makes room in the buffer of a
//! tree, the seal is closed and the epoch continues under the next index. The number of closed
//! seals is also limited. While the limit is reached, newer seals are given up: their indices are
//! abandoned, and the next seal that is signed states the gap (`restart`).
//!
//! If a gateway has lost data that it had acknowledged, the device can no longer send that data.
//! [`Mote::abandoned`] then returns the seal, and the caller must give it up.
//!
//! If a gateway has more of this device than the device's state contains, then the state is older
//! than the device's past, or a second device has the key. [`Mote::acknowledged`] then returns a
//! [`Rollback`], and the caller must continue with [`Mote::continue_after`].
//!
//! [`Chain`](crate::Chain) must survive a restart, as for every sealer: persist the result of
//! [`Mote::would_open`] before the first event of a seal is added. Closed seals survive if the
//! caller stores [`Waiting`]. The readings of an open seal are lost in a restart, and the next seal
//! states the gap (`restart`).
//!
//! Buffers and queues have ciphertext of encrypted columns ([`Profile::with_columns`]).

use std::collections::VecDeque;

use moteseal_core::cbor::BufferTooSmall;
use moteseal_core::digest::Digest;
use moteseal_core::health::Health;
use moteseal_core::link::{FrameError, MAX_FRAME};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Level, Round, SealIndex};
use moteseal_core::signature::Signer;
use moteseal_seal::device_session::{Closing, DeviceSession, Outstanding, link_statement};
use moteseal_seal::follow::Limits;
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::{Counters, SaltKey};
use moteseal_seal::sample::{Announcement, Forwarder, Noted};
use moteseal_seal::stream::{Open as OpenItem, Selection};
use moteseal_seal::wire::{HealthSession, MAX_EVENTS, MAX_HEALTH_FRAME, MAX_RECORD};
use moteseal_seal::{Answers, Seal, Statement};
use moteseal_verify::{Roster, write};

use crate::key_ring::KeyRing;
use crate::seal::{Chain, Profile, RosterName, SealRefused};

mod encryption;
mod ended;
mod folded;
mod hash;
mod outdated;
mod rollback;
mod unstated;
mod urgent;

pub(crate) use encryption::{Prepared, SealKeys};
use ended::Epochs;
pub use ended::{EndedEpoch, MAX_ENDED};
use folded::Folded;
pub use rollback::{IMPLAUSIBLE_INDEX, Progress, Received, Rollback, SentBefore};
pub use unstated::Unstated;

/// The usual size of a seal's buffer of forwarded events, in bytes. It has room for a record of any
/// length.
pub const BUFFER: usize = 1 << 16;
/// The maximum size of the events in one frame, in bytes. With this limit, a frame fits in one
/// datagram of any link and in one packet of most links.
pub const FRAME_EVENTS: usize = 1 << 10;

const _: () = assert!(BUFFER >= MAX_RECORD + 7, "the buffer has room for a record of any length");

/// A device of a group with a budget. Each seal has a buffer of `N` bytes.
#[derive(Clone)]
pub struct Mote<K, const N: usize = BUFFER> {
    profile: Profile,
    keys: KeyRing<K>,
    salt_key: SaltKey,
    session: DeviceSession,
    chain: Chain,
    open: Option<Open<N>>,
    waiting: VecDeque<Waiting<N>>,
    most_waiting: usize,
    /// Answers that no seal states yet, or that only an abandoned seal stated.
    unstated: Unstated,
    /// What the mote may have sent before this session, until the gateway has answered; afterwards
    /// `None`.
    sent_before: Option<SentBefore>,
    /// The number of readings in seals that were given up, since the start of the session.
    given_up: u64,
    /// The latest epoch that the gateway can have a seal of; `None` if the clock is not known.
    latest_epoch: Option<EpochNumber>,
    /// What the mote keeps for clients; `None` if it serves none.
    epochs: Option<Epochs>,
}

/// A seal that is open.
#[derive(Clone)]
struct Open<const N: usize> {
    index: SealIndex,
    epoch: EpochNumber,
    key: LevelKey,
    folded: Folded,
    counters: Counters,
    answers: Answers,
    forwarder: Box<Forwarder<N>>,
    /// The keys of the encrypted columns; `None` if the schema has none.
    keys: Option<SealKeys>,
}

/// A closed seal that the gateway has not received completely.
#[derive(Clone)]
pub struct Waiting<const N: usize = BUFFER> {
    index: SealIndex,
    digest: Digest,
    forwarder: Box<Forwarder<N>>,
    /// The open item and the part item of the seal's closing frame.
    open: Vec<u8>,
    part: Vec<u8>,
    answers: Answers,
}

impl<const N: usize> Open<N> {
    /// Returns whether the seal has fewer than `limit` events and has room for this event.
    fn has_room(&mut self, record: &[u8], limit: u64) -> bool {
        let count = self.counters.total();
        count < limit
            && self.forwarder.make_room(self.key.level(count, self.counters.levels()), record)
    }

    /// Adds an event, and returns its level. The caller has checked that there is room.
    fn take(&mut self, profile: &Profile, record: &[u8]) -> Level {
        let level = self.key.level(self.counters.total(), self.counters.levels());
        if let Some(count) = self.counters.as_mut_slice().get_mut(usize::from(level.0)) {
            *count += 1;
        }
        let noted = self.forwarder.note(level, record);
        debug_assert_ne!(noted, Noted::Full, "a full seal was closed before this event");
        self.folded.take(profile, (self.index, level, self.forwarder.rounds().1), record);
        level
    }
}

impl<K, const N: usize> std::fmt::Debug for Mote<K, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mote")
            .field("chain", &self.chain)
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}

impl<const N: usize> std::fmt::Debug for Waiting<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("index", &self.index).finish_non_exhaustive()
    }
}

impl<K: Signer, const N: usize> Mote<K, N> {
    /// Creates a mote that continues `chain` with the closed seals `waiting`, in a new session with
    /// its gateway. At most `most_waiting` (at least 1) closed seals wait for the gateway.
    #[must_use]
    pub fn new(
        profile: Profile,
        keys: impl Into<KeyRing<K>>,
        salt_key: SaltKey,
        session: DeviceSession,
        chain: Chain,
        waiting: Vec<Waiting<N>>,
        most_waiting: usize,
    ) -> Self {
        let mut mote = Self {
            session,
            profile,
            keys: keys.into(),
            salt_key,
            chain,
            open: None,
            waiting: waiting.into(),
            most_waiting: most_waiting.max(1),
            unstated: Unstated::default(),
            sent_before: None,
            given_up: 0,
            latest_epoch: None,
            epochs: None,
        };
        mote.begin_session();
        mote
    }

    /// Returns the position in the chain, which includes the open seal's index and epoch.
    #[must_use]
    pub const fn chain(&self) -> Chain {
        self.chain
    }

    /// Returns the number of closed seals that wait for the gateway.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the oldest seal that is open or waits for the gateway.
    #[must_use]
    pub fn oldest(&self) -> Option<SealIndex> {
        self.waiting.front().map(|waiting| waiting.index).or_else(|| self.opened())
    }

    /// Returns the index of the open seal.
    #[must_use]
    pub fn opened(&self) -> Option<SealIndex> {
        self.open.as_ref().map(|open| open.index)
    }

    /// Returns whether the seal with this index is open or waits for the gateway. Returns `false`
    /// if the seal was given up or the gateway has received it.
    #[must_use]
    pub fn has(&self, index: SealIndex) -> bool {
        self.opened() == Some(index) || self.waiting.iter().any(|waiting| waiting.index == index)
    }

    /// Returns the size of the open seal's events that the gateway does not have yet, in bytes. At
    /// most the size of the buffer.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.forwarder.buffered())
    }

    /// Sets the maximum number of closed seals that may wait from now on.
    pub fn set_most_waiting(&mut self, most_waiting: usize) {
        self.most_waiting = most_waiting.max(1);
    }

    /// Sets the scheme (star or tree) of the seals that are opened from now on.
    pub const fn set_scheme(&mut self, scheme: Scheme) {
        self.profile.scheme = scheme;
    }

    /// Skips indices and epochs that another process of the device gave up. Closes the open seal
    /// and continues at `next_index`. `last_in_epoch` tells whether the closed seal is the last
    /// seal of its epoch.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub fn pass_over(
        &mut self,
        next_index: SealIndex,
        epoch: EpochNumber,
        last_in_epoch: bool,
    ) -> Result<(), SealRefused> {
        if self.open.is_some() {
            self.close_or_give_up(last_in_epoch)?;
        }
        self.skip_to(next_index);
        self.chain.epoch = self.chain.epoch.max(Some(epoch));
        Ok(())
    }

    /// Skips indices that were opened and never used. The open seal stays open.
    pub fn skip_to(&mut self, next_index: SealIndex) {
        self.chain.next_index = self.chain.next_index.max(next_index);
    }

    /// Returns the oldest seal if the gateway has lost acknowledged data of this seal and keeps
    /// asking for events that the device no longer has. The caller must give up this seal, because
    /// the gateway would ask for the events forever.
    #[must_use]
    pub fn abandoned(&self) -> Option<SealIndex> {
        self.oldest().filter(|_| self.session.is_abandoned())
    }

    /// Gives up a seal that is open or waits for the gateway. If the seal is open, the next seal
    /// states the gap (`restart`). If the seal was already signed, the device stops sending it, and
    /// it is missing from the chain. The seal's answers are discarded, so read
    /// [`answers_of`](Self::answers_of) first.
    pub fn give_up(&mut self, index: SealIndex) {
        let kept = self.kept().filter(|kept| kept.index == index);
        self.given_up += kept.map(|kept| kept.events).sum::<u64>();
        self.waiting.retain(|waiting| waiting.index != index);
        if self.opened() == Some(index) {
            self.open = None;
        }
        self.session.reset_patience();
    }

    /// Returns the data that all seals of this mote share.
    #[must_use]
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Takes over what a later version of the roster states about the group and the device's keys.
    /// The version that seals name changes with [`set_roster`](Self::set_roster).
    pub fn load(&mut self, roster: &Roster) {
        self.profile.load(roster);
        if let Some(device) = roster.device(self.profile.device) {
            self.keys.load(device);
        }
    }

    /// Names another version of the roster in the seals that are closed from now on.
    pub const fn set_roster(&mut self, roster: RosterName) {
        self.profile.roster = roster;
    }

    /// Consumes the mote and returns its chain and the waiting seals. Use this to keep them across
    /// a restart.
    #[must_use]
    pub fn into_parts(self) -> (Chain, Vec<Waiting<N>>) {
        (self.chain, self.waiting.into())
    }

    /// Returns the chain that must be persisted before [`sense`](Self::sense) adds this reading of
    /// `epoch`. Returns `None` if adding the reading opens no seal. If a tree's buffer has no room
    /// for the reading, this function raises the device's own round, as `sense` would.
    #[must_use]
    pub fn would_open(&mut self, epoch: EpochNumber, record: &[u8]) -> Option<Chain> {
        let limit = self.limit();
        let goes_on = self.open.as_mut().is_some_and(|open| {
            open.epoch == epoch
                && open.keys.as_ref().is_none_or(SealKeys::can_encrypt)
                && open.has_room(record, limit)
        });
        let next_index = SealIndex(self.chain.next_index.0.saturating_add(1));
        (!goes_on).then_some(Chain { next_index, epoch: Some(epoch), ..self.chain })
    }

    /// Adds a reading. If the reading's epoch is later than the open seal's epoch, closes that seal
    /// first. If the open seal is full, closes it and continues its epoch under the next index.
    ///
    /// # Errors
    /// [`SealRefused`]. The reading was not added.
    pub fn sense(&mut self, epoch: EpochNumber, record: &[u8]) -> Result<(), SealRefused> {
        let Prepared { keys, record } = self.prepare(epoch, record)?;
        self.take(epoch, keys, &record)
    }

    /// Adds a reading whose encrypted columns are encrypted. `keys` are those of the seal that the
    /// reading opens; `None` if it opens no seal or the schema has no encrypted columns.
    ///
    /// # Errors
    /// [`SealRefused`]. The reading was not added.
    pub(crate) fn take(
        &mut self,
        epoch: EpochNumber,
        keys: Option<SealKeys>,
        record: &[u8],
    ) -> Result<(), SealRefused> {
        if self.profile.columns.is_none() {
            self.check_record(record)?;
        }
        let limit = self.limit();
        if self.open.as_mut().is_some_and(|open| {
            open.epoch == epoch && (keys.is_some() || !open.has_room(record, limit))
        }) {
            self.close_or_give_up(false)?;
        }
        self.go_to(epoch, keys)?;
        if let Some(open) = &mut self.open {
            let framing = self.profile.framing;
            let level = open.take(&self.profile, record);
            if let Some(epochs) = &mut self.epochs {
                let place = (open.index, open.folded.scheme(), framing);
                epochs.note(place, (level, open.forwarder.rounds().1), record);
            }
        }
        Ok(())
    }

    /// Ends an epoch and closes its open seal. If no seal is open, adds a seal which states that
    /// nothing was sensed. Later readings must be of later epochs.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub fn end(&mut self, epoch: EpochNumber) -> Result<(), SealRefused> {
        if self.open.as_ref().is_none_or(|open| open.epoch < epoch) {
            self.begin(epoch)?;
        }
        self.close_or_give_up(true)
    }

    /// Opens a seal for an epoch, unless one is open for it. Closes an open seal of an earlier
    /// epoch.
    ///
    /// # Errors
    /// [`SealRefused`].
    pub fn begin(&mut self, epoch: EpochNumber) -> Result<(), SealRefused> {
        let keys = self.keys_to_begin(epoch)?;
        self.go_to(epoch, keys)
    }

    /// Returns the epoch of the open seal.
    #[must_use]
    pub fn epoch(&self) -> Option<EpochNumber> {
        self.open.as_ref().map(|open| open.epoch)
    }

    /// Closes the open seal, or gives it up if the maximum number of closed seals is already
    /// waiting.
    fn close_or_give_up(&mut self, last_in_epoch: bool) -> Result<(), SealRefused> {
        if self.waiting.len() < self.most_waiting {
            return self.close(last_in_epoch);
        }
        if let Some(open) = self.open.take() {
            self.given_up += open.counters.total();
            self.unstated.add_all(&open.answers);
        }
        Ok(())
    }

    /// Returns the number of events at which a seal is closed. Verifiers reject seals with more
    /// events.
    fn limit(&self) -> u64 {
        u64::from(self.profile.max_events.clamp(1, Limits::default().max_events))
    }

    fn check_record(&self, record: &[u8]) -> Result<(), SealRefused> {
        let length = record.len();
        match self.profile.framing {
            Framing::Fixed(size) if length != usize::from(size.get()) => {
                Err(SealRefused::WrongLength { length })
            }
            _ if length > MAX_RECORD => Err(SealRefused::TooLong { length }),
            _ => self.profile.check_values(record),
        }
    }

    /// Checks that the chain allows a seal of an epoch, if none is open for it.
    fn check_epoch(&self, epoch: EpochNumber) -> Result<(), SealRefused> {
        if let Some(after) = self.chain.epoch.filter(|after| epoch < *after) {
            return Err(SealRefused::EpochGoesBack { epoch, after });
        }
        let (first, last) = self.profile.epochs;
        if epoch < first || last.is_some_and(|last| epoch > last) {
            return Err(SealRefused::EpochOutOfRange { epoch });
        }
        if self.open.is_none()
            && self.chain.position.epoch_closed
            && self.chain.position.last.is_some_and(|(_, last)| last == epoch)
        {
            return Err(SealRefused::EpochClosed { epoch });
        }
        Ok(())
    }

    /// Opens a seal for an epoch if none is open for it. `keys` are the keys of the new seal.
    pub(crate) fn go_to(
        &mut self,
        epoch: EpochNumber,
        keys: Option<SealKeys>,
    ) -> Result<(), SealRefused> {
        self.check_epoch(epoch)?;
        match &self.open {
            Some(open) if open.epoch == epoch => return Ok(()),
            Some(_) => self.close_or_give_up(true)?,
            None => {}
        }
        let index = self.chain.next_index;
        if index.0 == u32::MAX {
            return Err(SealRefused::IndexExhausted);
        }
        if keys.is_some() != self.profile.columns.is_some() {
            return Err(SealRefused::NoStreamSecret);
        }
        self.keys.signer(index, epoch)?;
        let salt = self.salt_key.salt(self.profile.device, index);
        let levels = self.profile.levels_in(epoch);
        let forwarder = Forwarder::new(
            index,
            epoch,
            (self.profile.scheme, self.profile.framing),
            levels,
            self.session.round_of(epoch),
        );
        let sends_all = self.profile.groups.is_some() && self.profile.scheme == Scheme::Tree;
        self.open = Some(Open {
            index,
            epoch,
            key: LevelKey::new(&salt),
            folded: Folded::new(&self.profile),
            counters: Counters::new(levels),
            answers: self.unstated.take(),
            forwarder: Box::new(if sends_all { forwarder.with_all_events() } else { forwarder }),
            keys,
        });
        self.chain.next_index.0 += 1;
        self.chain.epoch = Some(epoch);
        self.profile.pass_epochs_before(epoch);
        Ok(())
    }

    /// Signs the open seal and appends it to the queue.
    fn close(&mut self, last_in_epoch: bool) -> Result<(), SealRefused> {
        let Some(open) = &self.open else { return Ok(()) };
        let Profile { group, roster, device, .. } = self.profile;
        let levels = self.profile.levels_in(open.epoch);
        let position = self.chain.position;
        let mut statement =
            Statement::new(open.folded.scheme(), group, roster.digest, device, levels);
        link_statement(&mut statement, &position, &open.forwarder);
        (statement.epoch, statement.last_in_epoch) = (open.epoch, last_in_epoch);
        statement.schema = self.profile.schema_digest;
        statement.salt = self.salt_key.salt(device, open.index);
        statement.counters = open.counters;
        statement.answered = open.answers;
        statement.keys = open.keys.as_ref().map(SealKeys::commitments);
        statement.groups = self.profile.column_groups();
        let root = open.folded.root(&statement);
        let surviving = statement.surviving();
        let signer = self.keys.signer(open.index, open.epoch)?;
        let seal = Seal::new(statement, root, signer.algorithm());
        let signature = signer.signature(seal.message(&mut [0; _])).map_err(SealRefused::Sign)?;
        let (mut item, mut part) = (Vec::new(), Vec::new());
        let roster_version = roster.version;
        write::open(
            &mut item,
            &OpenItem { device, roster_version, prev: Some(position.prev), last: position.last },
        );
        write::part(&mut part, &seal, Selection::Levels(surviving), &[], &[], Some(&signature));
        if let Some(epochs) = &mut self.epochs {
            let schema = (&self.profile.schema[..], self.profile.framing);
            let layout = self.profile.groups.as_deref();
            epochs.close(&seal, &item, (schema, layout), &signature);
        }
        self.chain.position = seal.position();
        if let Some(Open { index, answers, mut forwarder, .. }) = self.open.take() {
            forwarder.end();
            let digest = seal.digest();
            self.waiting.push_back(Waiting { index, digest, forwarder, open: item, part, answers });
        }
        Ok(())
    }

    /// Returns the frames that must be sent now, at most `most`. These are frames that were never
    /// sent, and frames whose events the gateway has since reported missing.
    ///
    /// The frames of one seal are sent before those of the next, because a frame of the next seal
    /// would tell the gateway that this seal was abandoned.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if a frame is too long. This would be a bug, because readings that are
    /// too long are rejected earlier.
    pub fn frames(&mut self, most: usize) -> Result<Vec<Vec<u8>>, BufferTooSmall> {
        let frame_events = match self.profile.framing {
            Framing::Fixed(size) => FRAME_EVENTS.max(usize::from(size.get()) + 16).min(MAX_EVENTS),
            // A frame must have room for a record of any length.
            Framing::Prefixed => MAX_EVENTS,
        };
        let (mut scratch, mut out) = (vec![0; frame_events], vec![0; MAX_FRAME]);
        let schema = (&*self.profile.schema, self.profile.schema_digest);
        let mut frames = Vec::new();
        while frames.len() < most {
            let outstanding = outstanding(&mut self.waiting, &mut self.open);
            match self.session.next_frame(schema, outstanding, &mut scratch, &mut out)? {
                Some(frame) => frames.push(frame.to_vec()),
                None => break,
            }
        }
        Ok(frames)
    }

    /// Returns a frame with this health, for the gateway. `interval_s` is the time until the next report
    /// if nothing unusual happens.
    ///
    /// # Errors
    /// [`BufferTooSmall`]. This would be a bug, because the length of a record is limited.
    pub fn health_frame(
        &self,
        health: &Health,
        interval_s: u32,
    ) -> Result<Vec<u8>, BufferTooSmall> {
        let mut out = [0; MAX_HEALTH_FRAME];
        self.session.health_frame((health, interval_s), &mut out).map(<[u8]>::to_vec)
    }

    /// Receives the frame by which the gateway begins a session of reports. Returns whether the device
    /// must report again.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open_health_session(&mut self, frame: &[u8]) -> Result<bool, FrameError> {
        self.session.open_health_session(frame)
    }

    /// Reads the frame by which the gateway begins a session of reports, without any effect.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn read_health_session(&self, frame: &[u8]) -> Result<HealthSession, FrameError> {
        self.session.read_health_session(frame)
    }

    /// Receives the gateway's refusal of a seal. Returns the seal and the name of the refusal if
    /// the caller must give up the seal ([`Mote::give_up`]). This is the case if the seal is the
    /// oldest one, which delays all later seals, and if either the refusal is final or the queue is
    /// full. With a full queue, newer seals would be lost while the mote waits.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn refused<'f>(&self, frame: &'f [u8]) -> Result<Option<(SealIndex, &'f str)>, FrameError> {
        let costs_readings = self.waiting.len() >= self.most_waiting;
        let refusal = self.session.refused(frame, self.oldest(), costs_readings)?;
        Ok(refusal.map(|refusal| (refusal.index, refusal.name)))
    }

    /// Receives an announcement of the coordinator that the caller has verified. Returns whether
    /// the announcement changed anything. An old announcement changes nothing.
    pub fn announced(&mut self, announcement: &Announcement) -> bool {
        let open = self.open.as_mut().map(|open| (open.epoch, &mut *open.forwarder));
        self.session.announced(announcement, open)
    }

    /// Returns the newest epoch that the coordinator has announced, and its round. Before the first
    /// announcement, returns epoch 0 and round 0.
    #[must_use]
    pub const fn newest_announced(&self) -> (EpochNumber, Round) {
        self.session.newest_announced()
    }

    /// Marks all unacknowledged frames so that they are sent again. Call this if the coordinator
    /// has not replied for some time.
    pub fn timeout(&mut self) {
        self.session.timeout(outstanding(&mut self.waiting, &mut self.open));
    }

    /// Returns whether the gateway has everything that was sensed, in signed seals.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }
}

/// Returns the oldest seal that the coordinator has not received completely.
fn outstanding<'a, const N: usize>(
    waiting: &'a mut VecDeque<Waiting<N>>,
    open: &'a mut Option<Open<N>>,
) -> Option<Outstanding<'a, N>> {
    match (waiting.front_mut(), open) {
        (Some(Waiting { index, forwarder, open, part, .. }), _) => Some(Outstanding {
            index: *index,
            forwarder: Some(forwarder),
            closing: Some(Closing { open, part }),
        }),
        (None, Some(open)) => Some(Outstanding {
            index: open.index,
            forwarder: Some(&mut open.forwarder),
            closing: None,
        }),
        (None, None) => None,
    }
}
