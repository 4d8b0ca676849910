//! A mote that survives restarts. Its inputs are in a journal and are replayed after a restart.
//!
//! The state of a [`Mote`] is determined by its inputs: readings, ends of epochs, announcements and
//! acknowledgements. A [`DurableMote`] writes each input to its journal. It returns a frame only
//! after the inputs on which the frame depends are synced. If the process is killed at any moment,
//! the next process rebuilds the same seals, byte for byte. No synced reading is lost, and no index
//! is signed with two different statements.
//!
//! The chain's state is in the [`Outbox`]. Every sealer with the same key keeps the chain's state
//! there, so that a sealer does not continue a chain that another sealer has extended. The mote
//! stores an opened index in the state before it syncs the journal, and a signed position before it
//! sends anything. If the process is killed between storing the index and syncing the journal, the
//! mote skips the index, and the next seal states `restart`.
//!
//! The journal has ciphertext of encrypted columns, with the nonces and the commitments of their keys,
//! and no key. A replay encrypts nothing: a seal that was open takes no further reading, and the next
//! reading of its epoch opens the next index with a new nonce.

mod answering;
mod compaction;
mod entry;
mod error;
mod receiving;
mod urgent;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use moteseal_core::confidential::KeyCommitments;
use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use moteseal_core::signature::{PublicKey, SignatureError, Signer};
use moteseal_seal::Position;
use moteseal_seal::device_session::DeviceSession;
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Announcement, AnnouncementError};
use moteseal_store::Journal;
use moteseal_sum::guard::EpochGuard;
use moteseal_sum::policy::Ledger;
use moteseal_verify::Roster;
use tracing::warn;

use crate::key_ring::KeyRing;
use crate::mote::{Mote, Prepared, SealKeys, Unstated};
use crate::outbox::Outbox;
use crate::seal::{Chain, Profile, RosterName};

pub use answering::{AnswerRefused, MOST_UNSTATED, QueryScheduleRefused};
use entry::{Input, Start, is_of_no_seal, split_keys, with_keys};
pub use error::DurableError;
use urgent::Urgent;
pub use urgent::{MOST_PENDING, SignedEvent, UrgentOutcome, UrgentPlace, UrgentRefused};

/// The journal is rewritten when at least this many of its records, and at least half of them, are
/// obsolete.
const STALE_RECORDS: u64 = 256;

/// The newest epoch that has readings, and their number.
pub type Taken = Option<(EpochNumber, u64)>;

/// A mote's state before a seal was opened.
#[derive(Clone, Debug)]
struct Before {
    chain: Chain,
    taken: Taken,
    announcement: Option<Vec<u8>>,
    /// The answers that no seal had stated when this seal was opened.
    unstated: Unstated,
    /// The version of the roster that seals named.
    roster: RosterName,
}

/// A seal that was opened, and the number of the journal's record that opened it.
#[derive(Debug)]
struct Opened {
    index: SealIndex,
    record: u64,
    before: Before,
}

/// A mote whose inputs are in a journal.
#[derive(Debug)]
pub struct DurableMote<K> {
    mote: Mote<K>,
    journal: Journal,
    path: PathBuf,
    state: Outbox,
    /// The chain as it was last written to the state file.
    persisted: Chain,
    group: GroupId,
    coordinators: Vec<(EpochNumber, PublicKey)>,
    most_waiting: u32,
    /// The seals that were opened since the start of the journal.
    opened: VecDeque<Opened>,
    records: u64,
    /// The number of records that the journal had when it was last rewritten.
    compacted: u64,
    taken: Taken,
    announcement: Option<Vec<u8>>,
    /// The number of seals that were given up because the gateway refused them, since this process
    /// opened the journal.
    refused: u64,
    /// The number of times that the gateway had more than the state, since this process opened the
    /// journal.
    rollbacks: u64,
    /// The number of acknowledgements that were ignored because they are implausible.
    implausible: u64,
    /// Whether the gateway has begun another session of reports of health.
    reports_again: bool,
    /// The positions that the mote left because the gateway was ahead. Until the newest position is
    /// persisted, the chain's state may contain one of them.
    superseded: Vec<Position>,
    /// The guard of the query epochs of each querier, by the id of its name; none until answers to this
    /// querier are permitted. Those of earlier queriers remain.
    guards: BTreeMap<DeviceId, Box<EpochGuard>>,
    /// What was spent of the budget for answers with noise; `None` before the first of them.
    ledger: Option<Ledger>,
    /// The number and the digest of the newest accepted query schedule of each querier, by the id of
    /// its name. Those of earlier queriers remain, so that none is accepted again.
    schedules: BTreeMap<DeviceId, (u64, Digest)>,
    /// The urgent events that the gateway has not stored yet.
    urgent: Urgent,
    /// Whether an input that must be durable was appended since the last sync.
    needs_sync: bool,
}

/// A mote's identity and keys.
#[derive(Debug)]
pub struct Identity<K> {
    /// The data that all seals of the mote share.
    pub profile: Profile,
    /// The keys that sign the mote's seals.
    pub keys: KeyRing<K>,
    /// The key from which the salts are derived.
    pub salt_key: SaltKey,
    /// The keys of the link to the gateway.
    pub link: LinkKey,
    /// The first challenge of the session with the gateway: a random number.
    pub challenge: u64,
    /// The coordinator's key from each of these epochs on, in ascending order.
    pub coordinators: Vec<(EpochNumber, PublicKey)>,
    /// Whether the mote keeps the newest epoch that has ended for clients ([`Mote::ended`]).
    pub keeps_ended: bool,
}

impl<K: Signer> DurableMote<K> {
    /// Continues where the device stopped. `state` and `chain` are the results of [`Outbox::open`].
    /// Creates the journal if it is missing. At most `most_waiting` closed seals wait for the
    /// gateway.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn open(
        identity: Identity<K>,
        (state, chain): (Outbox, Chain),
        path: &Path,
        most_waiting: u32,
    ) -> Result<Self, DurableError> {
        let Identity { profile, keys, salt_key, link, challenge, coordinators, keeps_ended } =
            identity;
        let (device, group, schema, scheme) =
            (profile.device, profile.group, profile.schema_digest, profile.scheme);
        let journal = Journal::open(path)?;
        let records = journal.iter().collect::<Result<Vec<_>, _>>()?;
        let foreign = || DurableError::NotThisDevice(path.to_owned());
        let start = match records.first() {
            None => {
                let before = Before {
                    chain,
                    taken: None,
                    announcement: None,
                    unstated: Unstated::default(),
                    roster: profile.roster,
                };
                Start { device, schema, scheme, most_waiting, before }
            }
            Some(record) => {
                let start = Start::decode(
                    record,
                    profile.history.first().copied().unwrap_or(profile.roster.digest),
                );
                start.filter(|start| start.device == device).ok_or_else(foreign)?
            }
        };
        if start.schema != schema && !records.iter().skip(1).all(|record| is_of_no_seal(record)) {
            return Err(DurableError::OtherSchema(path.to_owned()));
        }
        let most = start.most_waiting as usize;
        // The replay must sign the same seals as before, so use the scheme with which the journal
        // starts.
        let newest_roster = profile.roster;
        let profile = Profile { scheme: start.scheme, roster: start.before.roster, ..profile };
        let session = DeviceSession::new(device, link, challenge);
        let mut mote =
            Mote::new(profile, keys, salt_key, session, start.before.chain, Vec::new(), most);
        // Journals that were written before challenges existed do not state what was sent.
        mote.set_sent_before(None);
        if keeps_ended {
            mote.keep_ended();
        }
        let mut durable = Self {
            mote,
            journal,
            path: path.to_owned(),
            state,
            persisted: chain,
            group,
            coordinators,
            most_waiting: start.most_waiting,
            opened: VecDeque::new(),
            records: records.len() as u64,
            compacted: 0,
            taken: start.before.taken,
            announcement: None,
            refused: 0,
            rollbacks: 0,
            implausible: 0,
            reports_again: false,
            superseded: Vec::new(),
            guards: BTreeMap::new(),
            ledger: None,
            schedules: BTreeMap::new(),
            urgent: Urgent::default(),
            needs_sync: false,
        };
        for (record, number) in records.iter().zip(0..).skip(1) {
            let (keys, record) = split_keys(record).ok_or_else(foreign)?;
            let input = Input::decode(record).ok_or_else(foreign)?;
            durable.apply(&input, keys.map(SealKeys::stated), number)?;
        }
        let named = durable.mote.profile().roster;
        if named != newest_roster {
            // Only a later version of the roster that the journal names may continue it.
            let known = durable.mote.profile().history.get(named.version as usize).copied();
            if named.version >= newest_roster.version || known != Some(named.digest) {
                let journal = durable.path;
                return Err(DurableError::RosterNotLater { journal, named: named.version });
            }
            durable.input(&Input::Roster(newest_roster))?;
        }
        if start.scheme != scheme {
            if !durable.mote.is_done() {
                return Err(DurableError::OtherScheme(durable.path, start.scheme));
            }
            durable.mote.set_scheme(scheme);
        }
        let ours = durable.mote.chain();
        // If the process was killed, the state may lack seals that the replay of the journal has
        // signed. A position that the replay did not reach was written by another sealer.
        let reached = |position: &Position| {
            let index = |position: &Position| position.last.map(|(index, _)| index);
            let (found, reached) = (index(&chain.position), index(position));
            found < reached || (found == reached && chain.position.prev == position.prev)
        };
        if !reached(&ours.position) && !durable.superseded.iter().any(reached) {
            let (journal, next) = (durable.path, ours.next_index);
            return Err(DurableError::SealedElsewhere { journal, next, found: chain.next_index });
        }
        if chain.next_index > ours.next_index {
            durable.input(&Input::SkipTo(chain.next_index))?;
        }
        // A replay depends on the limit of waiting seals, which may differ from the previous limit,
        // so rewrite the journal.
        durable.most_waiting =
            most_waiting.max(u32::try_from(durable.mote.waiting()).unwrap_or(u32::MAX)).max(1);
        durable.mote.set_most_waiting(durable.most_waiting as usize);
        durable.mote.begin_session();
        durable.compact()?;
        Ok(durable)
    }

    /// Continues under a later version of the roster. The caller has checked that it succeeds the
    /// roster in use. Seals that are closed from now on name the new version. Gives up the seals that
    /// the new version has made outdated ([`leave_outdated`](Self::leave_outdated)).
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn load(&mut self, roster: &Roster) -> Result<(), DurableError> {
        self.mote.load(roster);
        self.coordinators = roster.coordinators();
        let name = RosterName { version: roster.version(), digest: roster.digest() };
        self.input(&Input::Roster(name))?;
        self.leave_outdated(roster)
    }

    /// Gives up the seals that the gateway does not have and that the roster in use has made
    /// outdated: the gateway refuses them (`RosterOutdated`), and a seal after them would name a
    /// predecessor that no cloud has. The next seal follows the seal before them and states a
    /// restart. Call this after [`open`](Self::open).
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn leave_outdated(&mut self, roster: &Roster) -> Result<(), DurableError> {
        let Some(index) = self.mote.outdated(roster) else { return Ok(()) };
        let before = self.mote.given_up();
        self.input(&Input::Leave(index))?;
        warn!(
            name = "RosterOutdated",
            seal = index.0,
            version = roster.version(),
            given_up_readings = self.mote.given_up() - before,
            "the seals from this one on were sealed under an earlier version of the roster than their \
             epochs need; they are given up, and sealing continues after a gap"
        );
        Ok(())
    }

    /// Returns the mote.
    #[must_use]
    pub const fn mote(&self) -> &Mote<K> {
        &self.mote
    }

    /// Returns the maximum number of closed seals that wait for the gateway.
    #[must_use]
    pub const fn most_waiting(&self) -> usize {
        self.most_waiting as usize
    }

    /// Returns the newest epoch that has readings, and the number of its readings.
    #[must_use]
    pub const fn taken(&self) -> Taken {
        self.taken
    }

    /// Returns the newest epoch that the coordinator has announced.
    #[must_use]
    pub fn newest_announced(&self) -> Option<EpochNumber> {
        self.announcement.is_some().then(|| self.mote.newest_announced().0)
    }

    /// Returns the number of seals that were given up because the gateway refused them, since the
    /// device was opened.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns how often the gateway had more of this device than its state, since the device was
    /// opened ([`Rollback`](crate::mote::Rollback)).
    #[must_use]
    pub const fn rollbacks(&self) -> u64 {
        self.rollbacks
    }

    /// Adds a reading to the open seal. The reading is durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`DurableError`]. The reading was not added.
    pub fn sense(&mut self, epoch: EpochNumber, record: &[u8]) -> Result<(), DurableError> {
        self.sense_encrypted(epoch, record).map(drop)
    }

    /// Does the same as [`sense`](Self::sense). Returns the record as it is sealed.
    pub(crate) fn sense_encrypted<'r>(
        &mut self,
        epoch: EpochNumber,
        record: &'r [u8],
    ) -> Result<Cow<'r, [u8]>, DurableError> {
        let Prepared { keys, record } = self.mote.prepare(epoch, record)?;
        self.input_with(&Input::Reading(epoch, &record), keys)?;
        Ok(record)
    }

    /// Ends an epoch: closes the open seal. If nothing was sensed in the epoch, adds a seal that
    /// states so.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn end(&mut self, epoch: EpochNumber) -> Result<(), DurableError> {
        if self.mote.epoch().is_none_or(|open| open < epoch) {
            let keys = self.mote.keys_to_begin(epoch)?;
            self.input_with(&Input::Begin(epoch), keys)?;
        }
        self.input(&Input::End(epoch))
    }

    /// Receives an announcement.
    ///
    /// # Errors
    /// The inner [`AnnouncementError`] if the announcement is not valid or not from the
    /// coordinator. Otherwise [`DurableError`].
    pub fn announced(
        &mut self,
        bytes: &[u8],
    ) -> Result<Result<Announcement, AnnouncementError>, DurableError> {
        let announcement = self.open_announcement(bytes);
        if let Ok(announcement) = &announcement
            && self.mote.announced(announcement)
        {
            self.keep_newest(announcement, bytes);
            self.append(&Input::Announcement(bytes))?;
            self.tidy()?;
        }
        Ok(announcement)
    }

    /// Opens an announcement with the coordinator's key of its epoch.
    fn open_announcement(&self, bytes: &[u8]) -> Result<Announcement, AnnouncementError> {
        let mut result = Err(AnnouncementError::Signature(SignatureError::NotAuthentic));
        let mut end = None;
        for (first, key) in self.coordinators.iter().rev() {
            let opened = Announcement::open(bytes, self.group, key);
            let is_in_term = |announcement: &Announcement| {
                announcement.epoch() >= *first && end.is_none_or(|end| announcement.epoch() < end)
            };
            match opened {
                Ok(announcement) if is_in_term(&announcement) => return Ok(announcement),
                Err(error) => result = Err(error),
                Ok(_) => {}
            }
            end = Some(*first);
        }
        result
    }

    /// Keeps the announcement that determines the round of the next seal.
    fn keep_newest(&mut self, announcement: &Announcement, bytes: &[u8]) {
        if self.mote.newest_announced() == (announcement.epoch(), announcement.round()) {
            self.announcement = Some(bytes.to_vec());
        }
    }

    /// Marks all unacknowledged frames so that they are sent again, like [`Mote::timeout`].
    pub fn timeout(&mut self) {
        self.urgent_timeout();
        self.mote.timeout();
    }

    /// Returns the frames that must be sent now, at most `most`, after
    /// [`sync_inputs`](Self::sync_inputs).
    ///
    /// # Errors
    /// [`DurableError`]. No frame may be sent.
    pub fn frames(&mut self, most: usize) -> Result<Vec<Vec<u8>>, DurableError> {
        self.sync_inputs()?;
        Ok(self.mote.frames(most)?)
    }

    /// Does the same as [`sync`](Self::sync), unless only acknowledgements of events were received
    /// since. They are durable with the next input of another kind: after a restart without them, the
    /// device sends events that the gateway already has.
    ///
    /// # Errors
    /// [`DurableError`]. The call can be repeated.
    pub fn sync_inputs(&mut self) -> Result<(), DurableError> {
        if self.needs_sync { self.sync() } else { Ok(()) }
    }

    /// Makes all inputs received so far durable.
    ///
    /// # Errors
    /// [`DurableError`]. The call can be repeated.
    pub fn sync(&mut self) -> Result<(), DurableError> {
        let chain = self.mote.chain();
        if chain.next_index > self.persisted.next_index {
            // Write the state before the journal. If the process is then killed, every sealer skips
            // the index.
            self.persist(Chain {
                next_index: chain.next_index,
                epoch: chain.epoch,
                ..self.persisted
            })?;
        }
        self.journal.sync()?;
        // Write the position after the journal, because a position that is ahead of the journal
        // indicates another sealer.
        self.persist(chain)?;
        self.superseded.clear();
        self.needs_sync = false;
        Ok(())
    }

    fn persist(&mut self, chain: Chain) -> Result<(), DurableError> {
        if chain != self.persisted {
            self.state.persist(&chain)?;
            self.persisted = chain;
        }
        Ok(())
    }

    fn input(&mut self, input: &Input<'_>) -> Result<(), DurableError> {
        self.input_with(input, None)
    }

    /// Applies an input that opens a seal with these keys, and writes both to the journal.
    fn input_with(
        &mut self,
        input: &Input<'_>,
        keys: Option<SealKeys>,
    ) -> Result<(), DurableError> {
        let commitments = keys.as_ref().map(SealKeys::commitments);
        self.apply(input, keys, self.records)?;
        self.append_with(input, commitments.as_ref())?;
        self.tidy()
    }

    fn append(&mut self, input: &Input<'_>) -> Result<(), DurableError> {
        self.append_with(input, None)
    }

    fn append_with(
        &mut self,
        input: &Input<'_>,
        keys: Option<&KeyCommitments>,
    ) -> Result<(), DurableError> {
        self.journal.append(&with_keys(keys, input.encode()))?;
        self.records += 1;
        self.needs_sync |= !matches!(input, Input::Progress(_));
        Ok(())
    }

    /// Applies an input. `keys` are those of the seal that it opens, and `record` is the number of the
    /// input's record in the journal.
    fn apply(
        &mut self,
        input: &Input<'_>,
        keys: Option<SealKeys>,
        record: u64,
    ) -> Result<(), DurableError> {
        let (chain, taken) = (self.mote.chain(), self.taken);
        match *input {
            Input::Reading(epoch, reading) => {
                self.mote.take(epoch, keys, reading)?;
                let count = self.taken.filter(|(of, _)| *of == epoch).map_or(0, |(_, count)| count);
                self.taken = Some((epoch, count + 1));
            }
            Input::Announcement(bytes) => {
                if let Ok(announcement) = self.open_announcement(bytes) {
                    self.mote.announced(&announcement);
                    self.keep_newest(&announcement, bytes);
                }
            }
            Input::Progress(ref progress) => _ = self.mote.advance(progress),
            Input::ContinueAfter(next, ref stored) => {
                self.superseded.push(chain.position);
                self.mote.continue_after(stored.as_ref(), next);
            }
            Input::SentBefore(before) => self.mote.set_sent_before(before),
            Input::Roster(roster) => self.mote.set_roster(roster),
            Input::Leave(index) => {
                self.superseded.push(chain.position);
                self.mote.leave(index);
            }
            Input::Begin(epoch) => self.mote.go_to(epoch, keys)?,
            Input::End(epoch) => self.mote.end(epoch)?,
            Input::PassOver(next_index, epoch, readings, closed) => {
                self.mote.pass_over(next_index, epoch, closed)?;
                self.taken = self.taken.max(Some((epoch, readings)));
            }
            Input::GiveUp(index, ref answers) => {
                self.mote.give_up(index);
                self.mote.state_again(answers);
            }
            Input::SkipTo(next) => self.mote.skip_to(next),
            Input::Answered { querier, query, duration_ms, epoch } => {
                if let Some(guard) = self.guards.get_mut(&querier) {
                    // After the journal was rewritten, the guard precedes this record and already
                    // knows the epoch.
                    let _ = guard.advance(query, duration_ms, epoch);
                }
                self.mote.answered(query, epoch);
            }
            Input::QuerySchedule(querier, number, digest) => {
                let newest = self.schedules.entry(querier).or_insert((number, digest));
                *newest = (number, digest).max(*newest);
            }
            // After the journal was rewritten, the newest ledger precedes earlier ones.
            Input::Ledger(ledger) => self.ledger = Some(ledger).max(self.ledger),
            // After the journal was rewritten, the current guard precedes the first one.
            Input::Guard(querier, ref guard) => {
                self.guards.entry(querier).or_insert_with(|| guard.clone());
            }
            Input::Forget(querier, query) => {
                self.guards.entry(querier).and_modify(|guard| guard.forget(query));
            }
            Input::Unstated(ref unstated) => self.mote.set_unstated(unstated.clone()),
            Input::Part(epoch) => self.mote.part_with(epoch, keys)?,
            Input::Urgent { schema, event } => self.urgent.add(schema, event),
            Input::UrgentDone(digest) => self.urgent.remove(&digest),
            Input::UrgentSent(digest) => self.urgent.sent(&digest),
        }
        let after = self.mote.chain();
        // Skipping unused indices opens no seal.
        let skips = matches!(input, Input::SkipTo(_) | Input::ContinueAfter(..));
        if after.next_index > chain.next_index && !skips {
            // The same input may also have closed the previous seal. An announcement never opens a
            // seal.
            let index = SealIndex(after.next_index.0 - 1);
            let chain = Chain { next_index: index, epoch: chain.epoch, ..after };
            // The answers in the new seal were unstated before it was opened.
            let mut unstated = self.mote.unstated().clone();
            unstated.add_all(&self.mote.answers_of(index));
            let (announcement, roster) = (self.announcement.clone(), self.mote.profile().roster);
            let before = Before { chain, taken, announcement, unstated, roster };
            self.opened.push_back(Opened { index, record, before });
        }
        Ok(())
    }
}
