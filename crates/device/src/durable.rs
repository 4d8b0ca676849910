//! A mote that survives restarts: its inputs are in a journal, and are replayed after a restart.
//!
//! The state of a [`Mote`] follows from its inputs: readings, ends of epochs, announcements,
//! acknowledgements. A [`DurableMote`] writes each to its journal, and returns frames only after
//! the inputs that they follow from are synced. After a kill at any moment it rebuilds the same
//! seals, byte for byte: it loses no synced reading and never signs two statements under one index.
//!
//! The chain's state is in the [`Outbox`], where every sealer with the same key keeps it, so that
//! no sealer continues a chain that another one has extended. Opened indices are stored there
//! before the journal is synced, and signed positions before anything is sent. After a kill between
//! the two, the mote skips an index, and the next seal states `restart`.

mod answering;
mod entry;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::cbor::BufferTooSmall;
use moteseal_core::digest::Digest;
use moteseal_core::link::{FrameError, LinkKey};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, GroupId, SealIndex};
use moteseal_core::signature::{PublicKey, Signer};
use moteseal_seal::level::SaltKey;
use moteseal_seal::sample::{Announcement, AnnouncementError};
use moteseal_seal::wire::Refusal;
use moteseal_store::Journal;
use moteseal_store::journal::JournalError;
use moteseal_sum::guard::EpochGuard;
use tracing::warn;

use crate::mote::{Mote, Unstated};
use crate::outbox::{Outbox, OutboxError};
use crate::seal::{Chain, Profile, SealRefused};

pub use answering::{AnswerRefused, MOST_UNSTATED, QueryScheduleRefused};
use entry::{Input, Start, is_of_no_seal, pass_over};

/// The journal is rewritten when this many of its records are obsolete, and they are the majority.
const STALE_RECORDS: u64 = 256;

/// Why a durable mote cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableError {
    /// The reading or epoch does not fit the chain.
    #[error(transparent)]
    Refused(#[from] SealRefused),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The chain's state failed.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The journal belongs to another device, or is not a mote's journal.
    #[error(
        "{} is not a journal of this device; give the device a state folder of its own",
        .0.display()
    )]
    NotThisDevice(PathBuf),
    /// The journal has readings of another schema that the gateway does not have yet.
    #[error(
        "{} holds readings with other columns that the gateway does not have yet; run once \
         more with those columns, or move the file away to discard the readings",
        .0.display()
    )]
    OtherSchema(PathBuf),
    /// The journal has readings for seals of the other scheme that the gateway does not have yet.
    #[error(
        "{} holds readings, sealed by {}, that the gateway does not have yet; run once more \
         with that scheme, or move the file away to discard the readings",
        .0.display(), .1.as_str()
    )]
    OtherScheme(PathBuf, Scheme),
    /// A frame that is due is too long. This is a defect, since such readings are rejected.
    #[error("a frame that is due is too long: {0}")]
    Unsendable(#[from] BufferTooSmall),
    /// Another sealer with the same key has extended the chain.
    #[error(
        "{}: the key has sealed elsewhere since: its next seal here would be {next}, but the \
         state of the chain is at {found}; move the file away to discard what it holds",
        .journal.display()
    )]
    SealedElsewhere {
        /// The journal.
        journal: PathBuf,
        /// The index that this mote would use next.
        next: SealIndex,
        /// The next index according to the chain's state.
        found: SealIndex,
    },
}

impl DurableError {
    /// The error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused(error) => error.name(),
            Self::Journal(error) => error.name(),
            Self::Outbox(error) => error.name(),
            Self::NotThisDevice(_) => "OtherDevice",
            Self::OtherSchema(_) => "OtherSchema",
            Self::OtherScheme(..) => "OtherScheme",
            Self::Unsendable(_) => "BufferTooSmall",
            Self::SealedElsewhere { .. } => "SealedElsewhere",
        }
    }

    /// [`Internal`](ErrorKind::Internal) if the journal or the chain's state failed, otherwise
    /// [`Usage`](ErrorKind::Usage).
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Journal(_) | Self::Outbox(_) => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }
}

moteseal_api::named_error!(DurableError);

/// The newest epoch that has readings, and their number.
pub type Taken = Option<(EpochNumber, u64)>;

/// A mote's state before a seal was opened.
#[derive(Clone, Debug)]
struct Before {
    chain: Chain,
    taken: Taken,
    announcement: Option<Vec<u8>>,
    /// The answers that no seal stated when the seal was opened.
    unstated: Unstated,
}

/// A seal that was opened, and the number of the record that opened it.
#[derive(Debug)]
struct Opened {
    index: SealIndex,
    record: u64,
    before: Before,
}

/// A mote with its journal.
#[derive(Debug)]
pub struct DurableMote<K> {
    mote: Mote<K>,
    journal: Journal,
    path: PathBuf,
    state: Outbox,
    /// The chain according to the state file.
    persisted: Chain,
    group: GroupId,
    coordinator: PublicKey,
    most_waiting: u32,
    /// Every seal since the journal's start.
    opened: VecDeque<Opened>,
    records: u64,
    /// The number of records when the journal was last rewritten.
    compacted: u64,
    taken: Taken,
    announcement: Option<Vec<u8>>,
    /// Seals that were given up because the gateway refused them, since this process opened the
    /// journal.
    refused: u64,
    /// The guard of the query epochs; `None` before answers were permitted.
    guard: Option<Box<EpochGuard>>,
    /// Number and digest of the newest query schedule.
    schedule: Option<(u64, Digest)>,
}

/// A mote's identity and keys.
#[derive(Debug)]
pub struct Identity<K> {
    /// What the mote's seals have in common.
    pub profile: Profile,
    /// The key that signs its seals.
    pub signer: K,
    /// The key from which the salts follow.
    pub salt_key: SaltKey,
    /// The keys of the link to the gateway.
    pub link: LinkKey,
    /// The coordinator's key.
    pub coordinator: PublicKey,
}

impl<K: Signer> DurableMote<K> {
    /// Continues where the device stopped. `state` and `chain` are what [`Outbox::open`] returned.
    /// A missing journal is created. At most `most_waiting` closed seals wait for the gateway.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn open(
        identity: Identity<K>,
        (state, chain): (Outbox, Chain),
        path: &Path,
        most_waiting: u32,
    ) -> Result<Self, DurableError> {
        let Identity { profile, signer, salt_key, link, coordinator } = identity;
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
                };
                Start { device, schema, scheme, most_waiting, before }
            }
            Some(record) => {
                Start::decode(record).filter(|start| start.device == device).ok_or_else(foreign)?
            }
        };
        if start.schema != schema && !records.iter().skip(1).all(|record| is_of_no_seal(record)) {
            return Err(DurableError::OtherSchema(path.to_owned()));
        }
        let most = start.most_waiting as usize;
        // The replay must sign the same seals as before.
        let profile = Profile { scheme: start.scheme, ..profile };
        let mote = Mote::new(profile, signer, salt_key, link, start.before.chain, Vec::new(), most);
        let mut durable = Self {
            mote,
            journal,
            path: path.to_owned(),
            state,
            persisted: chain,
            group,
            coordinator,
            most_waiting: start.most_waiting,
            opened: VecDeque::new(),
            records: records.len() as u64,
            compacted: 0,
            taken: start.before.taken,
            announcement: None,
            refused: 0,
            guard: None,
            schedule: None,
        };
        for (record, number) in records.iter().zip(0..).skip(1) {
            durable.apply(&Input::decode(record).ok_or_else(foreign)?, number)?;
        }
        if start.scheme != scheme {
            if !durable.mote.is_done() {
                return Err(DurableError::OtherScheme(durable.path, start.scheme));
            }
            durable.mote.set_scheme(scheme);
        }
        let ours = durable.mote.chain();
        let (signed, found) = (
            ours.position.last.map(|(index, _)| index),
            chain.position.last.map(|(index, _)| index),
        );
        // After a kill, the state may lack seals that the journal's replay has signed. A position
        // that the replay did not reach comes from another sealer.
        if found > signed || (found == signed && chain.position.prev != ours.position.prev) {
            let (journal, next) = (durable.path, ours.next_index);
            return Err(DurableError::SealedElsewhere { journal, next, found: chain.next_index });
        }
        if chain.next_index > ours.next_index {
            durable.input(&Input::SkipTo(chain.next_index))?;
        }
        // The replay depends on the limit of waiting seals, so another limit needs a new journal.
        durable.most_waiting =
            most_waiting.max(u32::try_from(durable.mote.waiting()).unwrap_or(u32::MAX)).max(1);
        durable.mote.set_most_waiting(durable.most_waiting as usize);
        durable.compact()?;
        Ok(durable)
    }

    /// The mote.
    #[must_use]
    pub const fn mote(&self) -> &Mote<K> {
        &self.mote
    }

    /// The number of closed seals that may wait for the gateway.
    #[must_use]
    pub const fn most_waiting(&self) -> usize {
        self.most_waiting as usize
    }

    /// The newest epoch that has readings, and their number.
    #[must_use]
    pub const fn taken(&self) -> Taken {
        self.taken
    }

    /// The newest epoch that the coordinator has announced.
    #[must_use]
    pub fn newest_announced(&self) -> Option<EpochNumber> {
        self.announcement.is_some().then(|| self.mote.newest_announced().0)
    }

    /// The number of seals that were given up because the gateway refused them, since the device
    /// was opened.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Seals a reading. It is durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`DurableError`]. The reading was not added.
    pub fn sense(&mut self, epoch: EpochNumber, record: &[u8]) -> Result<(), DurableError> {
        self.input(&Input::Reading(epoch, record))
    }

    /// Ends an epoch: closes the open seal, or, if nothing was sensed, adds a seal that states so.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn end(&mut self, epoch: EpochNumber) -> Result<(), DurableError> {
        if self.mote.epoch().is_none_or(|open| open < epoch) {
            self.input(&Input::Begin(epoch))?;
        }
        self.input(&Input::End(epoch))
    }

    /// Receives an announcement.
    ///
    /// # Errors
    /// The inner [`AnnouncementError`] if it is not the coordinator's. Otherwise [`DurableError`].
    pub fn announced(
        &mut self,
        bytes: &[u8],
    ) -> Result<Result<Announcement, AnnouncementError>, DurableError> {
        let announcement = Announcement::open(bytes, self.group, &self.coordinator);
        if let Ok(announcement) = &announcement
            && self.mote.announced(announcement)
        {
            self.keep_newest(announcement, bytes);
            self.append(&Input::Announcement(bytes))?;
            self.tidy()?;
        }
        Ok(announcement)
    }

    /// Receives an acknowledgement or a refusal; returns whether it changed anything.
    ///
    /// # Errors
    /// The inner [`FrameError`] if the frame is not the gateway's. Otherwise [`DurableError`].
    pub fn acknowledged(&mut self, frame: &[u8]) -> Result<Result<bool, FrameError>, DurableError> {
        if Refusal::is_claimed(frame) {
            return self.receive_refusal(frame);
        }
        // Most acknowledgements change nothing and need not be in the journal.
        let result = self.mote.acknowledged(frame);
        if result == Ok(true) {
            self.append(&Input::Acknowledgement(frame))?;
            self.tidy()?;
        }
        if let Some(index) = self.mote.abandoned() {
            warn!(
                seal = index.0,
                "the gateway has lost acknowledged data of a seal; the seal is given up"
            );
            self.give_up(index)?;
        }
        Ok(result)
    }

    /// Gives up a seal that the gateway refuses, if it would otherwise delay the others forever. If
    /// the seal is open, the next one states the gap. If it was signed, it stays missing from the
    /// chain.
    fn receive_refusal(&mut self, frame: &[u8]) -> Result<Result<bool, FrameError>, DurableError> {
        Ok(match self.mote.refused(frame) {
            Ok(Some((index, name))) => {
                warn!(seal = index.0, name, "the gateway refuses a seal; the seal is given up");
                self.give_up(index)?;
                self.refused += 1;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Gives up a seal; the next seal to be opened states its answers.
    fn give_up(&mut self, index: SealIndex) -> Result<(), DurableError> {
        // The record contains the seal's answers, because the seal itself may be missing when the
        // journal is replayed.
        let mut answers = Unstated::default();
        answers.add_all(&self.mote.answers_of(index));
        self.input(&Input::GiveUp(index, answers))
    }

    /// Keeps the announcement that decides the round of the next seal.
    fn keep_newest(&mut self, announcement: &Announcement, bytes: &[u8]) {
        if self.mote.newest_announced() == (announcement.epoch(), announcement.round()) {
            self.announcement = Some(bytes.to_vec());
        }
    }

    /// Makes everything that is not acknowledged due again, as [`Mote::timeout`].
    pub fn timeout(&mut self) {
        self.mote.timeout();
    }

    /// Makes all inputs so far durable and returns the frames that are due, at most `most`.
    ///
    /// # Errors
    /// [`DurableError`]. Nothing may be sent.
    pub fn frames(&mut self, most: usize) -> Result<Vec<Vec<u8>>, DurableError> {
        self.sync()?;
        Ok(self.mote.frames(most)?)
    }

    /// Makes all inputs so far durable.
    ///
    /// # Errors
    /// [`DurableError`]. The call can be repeated.
    pub fn sync(&mut self) -> Result<(), DurableError> {
        let chain = self.mote.chain();
        if chain.next_index > self.persisted.next_index {
            // Before the journal, so that after a kill at this point every sealer skips the index.
            self.persist(Chain {
                next_index: chain.next_index,
                epoch: chain.epoch,
                ..self.persisted
            })?;
        }
        self.journal.sync()?;
        // After the journal, because a position that is ahead of the journal means another sealer.
        self.persist(chain)
    }

    fn persist(&mut self, chain: Chain) -> Result<(), DurableError> {
        if chain != self.persisted {
            self.state.persist(&chain)?;
            self.persisted = chain;
        }
        Ok(())
    }

    fn input(&mut self, input: &Input<'_>) -> Result<(), DurableError> {
        self.apply(input, self.records)?;
        self.append(input)?;
        self.tidy()
    }

    fn append(&mut self, input: &Input<'_>) -> Result<(), DurableError> {
        self.journal.append(&input.encode())?;
        self.records += 1;
        Ok(())
    }

    /// Applies an input, which is or becomes the journal's record number `record`.
    fn apply(&mut self, input: &Input<'_>, record: u64) -> Result<(), DurableError> {
        let (chain, taken) = (self.mote.chain(), self.taken);
        match *input {
            Input::Reading(epoch, reading) => {
                self.mote.sense(epoch, reading)?;
                let count = self.taken.filter(|(of, _)| *of == epoch).map_or(0, |(_, count)| count);
                self.taken = Some((epoch, count + 1));
            }
            Input::Announcement(bytes) => {
                if let Ok(announcement) = Announcement::open(bytes, self.group, &self.coordinator) {
                    self.mote.announced(&announcement);
                    self.keep_newest(&announcement, bytes);
                }
            }
            Input::Acknowledgement(frame) => {
                let _ = self.mote.acknowledged(frame);
            }
            Input::Begin(epoch) => self.mote.begin(epoch)?,
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
            Input::Answered { query, duration_ms, epoch } => {
                if let Some(guard) = &mut self.guard {
                    // After a compaction, the guard is before this record in the journal, and
                    // already knows the epoch.
                    let _ = guard.advance(query, duration_ms, epoch);
                }
                self.mote.answered(query, epoch);
            }
            Input::QuerySchedule(number, digest) => {
                self.schedule = Some((number, digest)).max(self.schedule);
            }
            Input::Guard(ref guard) => self.guard = Some(guard.clone()),
            Input::Unstated(ref unstated) => self.mote.set_unstated(unstated.clone()),
            Input::Part(epoch) => self.mote.part(epoch)?,
        }
        let after = self.mote.chain();
        // The open seal stays open when unused indices are skipped.
        if after.next_index > chain.next_index && !matches!(input, Input::SkipTo(_)) {
            // The same input may have closed the previous seal. An announcement opens no seal.
            let index = SealIndex(after.next_index.0 - 1);
            let chain = Chain { next_index: index, epoch: chain.epoch, ..after };
            // The new seal has only the answers that it took over.
            let mut unstated = self.mote.unstated().clone();
            unstated.add_all(&self.mote.answers_of(index));
            let before = Before { chain, taken, announcement: self.announcement.clone(), unstated };
            self.opened.push_back(Opened { index, record, before });
        }
        Ok(())
    }

    /// Rewrites the journal if most of it is obsolete.
    fn tidy(&mut self) -> Result<(), DurableError> {
        if self.records < self.compacted.saturating_mul(2).max(STALE_RECORDS) {
            return Ok(());
        }
        let (mut needed, mut end) = (0, self.records);
        for opened in self.opened.iter().rev() {
            if self.mote.has(opened.index) {
                needed += end - opened.record;
            }
            end = opened.record;
        }
        if self.records - needed >= STALE_RECORDS.max(needed) {
            self.compact()?;
        }
        Ok(())
    }

    /// Rewrites the journal with only the records that lead to open or waiting seals, and with
    /// records that skip those that were given up.
    fn compact(&mut self) -> Result<(), DurableError> {
        let Profile { device, schema_digest: schema, scheme, .. } = *self.mote.profile();
        let old = self.journal.iter().collect::<Result<Vec<_>, _>>()?;
        let (announcement, unstated) = (self.announcement.clone(), self.mote.unstated().clone());
        let now = Before { chain: self.mote.chain(), taken: self.taken, announcement, unstated };
        let mut spans: Vec<(&Opened, u64)> = Vec::with_capacity(self.opened.len());
        let mut end = self.records;
        for opened in self.opened.iter().rev() {
            spans.push((opened, end));
            end = opened.record;
        }
        spans.reverse();
        let first =
            spans.iter().position(|(opened, _)| self.mote.has(opened.index)).unwrap_or(spans.len());
        let start = spans.get(first).map_or(&now, |(opened, _)| &opened.before).clone();
        let mut announcement = start.announcement.clone();
        let unstated = |before: &Before| {
            self.guard.is_some().then(|| Input::Unstated(before.unstated.clone()).encode())
        };
        let answers = unstated(&start);
        let mut records = vec![
            Start { device, schema, scheme, most_waiting: self.most_waiting, before: start }
                .encode(),
        ];
        records.extend(announcement.as_deref().map(|bytes| Input::Announcement(bytes).encode()));
        // The current guard already knows the answers in the records after it.
        records.extend(self.guard.as_ref().map(|guard| Input::Guard(guard.clone()).encode()));
        records.extend(
            self.schedule.map(|(number, digest)| Input::QuerySchedule(number, digest).encode()),
        );
        records.extend(answers);
        let (mut kept, mut gave_up) = (VecDeque::new(), false);
        for (opened, end) in spans.into_iter().skip(first) {
            let Opened { index, record, before } = opened;
            if !self.mote.has(*index) {
                gave_up = true;
                continue;
            }
            if std::mem::take(&mut gave_up) {
                records.extend(pass_over(before));
                records.extend(unstated(before));
            }
            if before.announcement != announcement {
                records.extend(
                    before.announcement.as_deref().map(|bytes| Input::Announcement(bytes).encode()),
                );
            }
            let (from, to) = (usize::try_from(*record), usize::try_from(end));
            let inputs =
                old.get(from.unwrap_or(usize::MAX)..to.unwrap_or(usize::MAX)).unwrap_or_default();
            let newest = inputs.iter().rev().find_map(|record| match Input::decode(record) {
                Some(Input::Announcement(bytes)) => Some(bytes.to_vec()),
                _ => None,
            });
            announcement = newest.or_else(|| before.announcement.clone());
            kept.push_back(Opened {
                index: *index,
                record: records.len() as u64,
                before: before.clone(),
            });
            records.extend_from_slice(inputs);
        }
        if gave_up {
            let record = records.len() as u64;
            records.extend(pass_over(&now));
            records.extend(unstated(&now));
            let index = SealIndex(now.chain.next_index.0.saturating_sub(1));
            kept.push_back(Opened { index, record, before: now });
        }
        self.journal.compact(records.iter().map(Vec::as_slice))?;
        self.opened = kept;
        self.records = records.len() as u64;
        self.compacted = self.records;
        Ok(())
    }
}
