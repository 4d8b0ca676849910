//! A coordinator with durable state: adds a journal and an outbox to a [`GroupCoordinator`].
//!
//! A [`Station`] does disk I/O only: callers pass frames and times as arguments, and send the
//! messages that it returns. [`Station::commit`] makes all frames received since the last commit
//! durable with one sync. It returns the messages that may be sent after it: one cumulative
//! acknowledgement for each device that sent a frame, and one announcement of a round. After a
//! crash at any moment, [`Station::open`] restores the state from the journal, which includes
//! everything that was acknowledged.
//!
//! If the disk is full, or if the state folder has reached its maximum size, a station accepts no
//! more frames. It never drops anything that was acknowledged, and devices keep what was not
//! acknowledged. The frames in the journal may use a quarter of the maximum size, and no device can
//! use the share of another device.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_core::digest::Digest;
use moteseal_core::identity::IssueError;
use moteseal_core::link::claimed_device;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::{PublicKey, Signer};
use moteseal_seal::sample::{Announcement, MAX_ANNOUNCEMENT};
use moteseal_store::Journal;
use moteseal_store::journal::JournalError;
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use crate::coordinator::{Ended, FrameEffect, GroupCoordinator, Refused};
use crate::ledger::Entry;
use crate::outbox::{Item, Name, Outbox, OutboxError};
use crate::quota::Quota;
use crate::urgent::{StoredEvents, UrgentQueue, UrgentRate, Waiting};

mod urgent;

pub use urgent::EventEffect;

/// A commit is due when this many bytes of frames are waiting. With more bytes, a sync would take
/// longer, and frames that arrive during the sync would wait longer.
pub const COMMIT_BYTES: usize = 64 << 10;
/// An epoch takes at most this many bytes in the outbox, plus twice the size of its frames in the
/// journal, plus the digests of its trees.
const RESERVE: u64 = 1 << 20;
/// The maximum number of epochs whose rounds are announced repeatedly. More epochs are open at once
/// only if the clocks or recordings of the devices are far apart.
const ANNOUNCED: usize = 8;
/// The frames in the journal may use the folder's maximum size divided by this number. Each frame
/// counts twice, because it also takes space in the outbox later. While the outbox uses less than
/// half of the maximum size, there is therefore always room for frames.
const JOURNAL_PART: u64 = 4;

/// Why a station cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StationError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The outbox failed.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    /// The folder cannot be used.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, std::io::Error),
    /// The roster has no budget, so there is nothing to coordinate.
    #[error(
        "the roster gives the group no budget; create a roster with `moteseal roster new \
         --budget --coordinator`"
    )]
    NoBudget,
    /// The key is not the one that the roster certifies for the coordinator.
    #[error(
        "the roster certifies another key for the coordinator; use the secret key that \
         belongs to the public key given to `moteseal roster new --coordinator`"
    )]
    NotTheCoordinator,
    /// The journal contains a record of an unknown kind, or an invalid record.
    #[error(
        "{} is not a journal of this version of the gateway; use another state folder",
        .0.display()
    )]
    NotAGateway(PathBuf),
    /// Signing with the coordinator's key failed.
    #[error("{0}")]
    Sign(IssueError),
}

impl StationError {
    /// Returns the error's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.name(),
            Self::Outbox(error) => error.name(),
            Self::Io(..) => "StateFailed",
            Self::NoBudget => "NoBudget",
            Self::NotTheCoordinator => "NotTheCoordinator",
            Self::NotAGateway(_) => "NotAGateway",
            Self::Sign(_) => "NotSigned",
        }
    }

    /// Returns [`Usage`](ErrorKind::Usage) if another folder, key or roster would help, and
    /// [`Internal`](ErrorKind::Internal) otherwise.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Journal(error) => error.kind(),
            Self::NoBudget | Self::NotTheCoordinator | Self::NotAGateway(_) => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        }
    }

    /// Returns whether the disk is full. If so, the caller may repeat the operation later.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Journal(JournalError::DiskFull(_)) | Self::Outbox(OutboxError::DiskFull(_))
        )
    }
}

moteseal_api::named_error!(StationError);

/// The messages that may be sent after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// An acknowledgement for each device that sent a frame, and a refusal for each device whose
    /// seal is rejected.
    pub acknowledgements: Vec<(DeviceId, Vec<u8>)>,
    /// The answers to urgent events, and the sessions of reports of health.
    pub events: Vec<(DeviceId, Vec<u8>)>,
    /// A signed announcement to all devices.
    pub announcement: Option<Vec<u8>>,
}

/// An epoch that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// The epoch.
    pub epoch: EpochNumber,
    /// The final round.
    pub round: Round,
    /// The number of events that are uploaded.
    pub kept: u64,
    /// The number of seals that are uploaded.
    pub seals: usize,
    /// Devices that did not close the epoch.
    pub absent: Vec<DeviceId>,
}

/// What [`Station::open`] found in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Frames that were replayed.
    pub frames: u64,
    /// Frames that are now rejected, for example because the roster no longer lists their device.
    pub refused: u64,
    /// The size in bytes of an incomplete write at the end of the journal. Nothing in it was
    /// acknowledged.
    pub torn: u64,
}

/// The coordinator of a group, with its state on disk.
pub struct Station {
    coordinator: GroupCoordinator,
    keys: CoordinatorKeys,
    journal: Journal,
    journal_path: PathBuf,
    outbox: Arc<Outbox>,
    bound: u64,
    quota: Quota,
    /// The number of bytes that were appended to the journal since the last sync.
    uncommitted: usize,
    /// The devices that sent a frame since messages were last returned.
    received: BTreeSet<DeviceId>,
    /// The refusal for each device with a rejected seal.
    refusals: BTreeMap<DeviceId, Vec<u8>>,
    /// The epochs whose rounds must be announced. Each commit announces one of them.
    to_announce: BTreeSet<EpochNumber>,
    /// The epoch whose round was announced last.
    announced: Option<EpochNumber>,
    /// The epoch whose end was appended to the journal and must be processed after the next sync.
    ending: Option<EpochNumber>,
    /// Ended epochs and late seals that are not in the outbox yet.
    unstored: Vec<(Name, Item)>,
    over: Vec<Over>,
    /// Whether the journal has records that are no longer needed.
    stale: bool,
    /// The urgent events that are durable and not uploaded yet.
    urgent: Arc<UrgentQueue>,
    urgent_rate: UrgentRate,
    /// The newest urgent events of each device that are durable, also if they are uploaded.
    known_events: StoredEvents,
    /// The urgent events that become durable with the next commit.
    new_events: Vec<Waiting>,
    /// The urgent events that the next commit acknowledges.
    stored_events: Vec<(DeviceId, Digest)>,
    /// The newest refusal of an urgent event for each device.
    refused_events: BTreeMap<DeviceId, Vec<u8>>,
}

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station")
            .field("coordinator", &self.coordinator)
            .field("journal", &self.journal_path)
            .finish_non_exhaustive()
    }
}

impl Station {
    /// Opens a station whose state is in `folder`, and creates the folder if necessary. The folder
    /// contains the file `journal` and the folder `outbox`. `secret` is the group's link secret,
    /// `keys` sign with the coordinator's keys, and `bound` is the maximum size of `folder` in
    /// bytes.
    ///
    /// # Errors
    /// [`StationError`].
    pub fn open(
        folder: &Path,
        roster: Roster,
        secret: impl Into<Zeroizing<[u8; 32]>>,
        keys: impl Into<CoordinatorKeys>,
        bound: u64,
    ) -> Result<(Self, Recovered), StationError> {
        let mut keys = keys.into();
        keys.serve(&roster)?;
        let mut coordinator =
            GroupCoordinator::new(roster, secret).ok_or(StationError::NoBudget)?;
        coordinator.serve_only(keys.served());
        moteseal_files::create_folder(folder)
            .map_err(|error| StationError::Io(folder.to_owned(), error))?;
        let journal_path = folder.join("journal");
        let journal = Journal::open_strict(&journal_path)?;
        let outbox = Arc::new(Outbox::open(&folder.join("outbox"))?);
        let quota = Quota::new(journal_room(bound), coordinator.roster().devices().len());
        let mut station = Self {
            coordinator,
            quota,
            keys,
            journal,
            journal_path,
            outbox,
            bound,
            uncommitted: 0,
            received: BTreeSet::new(),
            refusals: BTreeMap::new(),
            to_announce: BTreeSet::new(),
            announced: None,
            ending: None,
            unstored: Vec::new(),
            over: Vec::new(),
            stale: false,
            urgent: Arc::default(),
            urgent_rate: UrgentRate::default(),
            known_events: StoredEvents::default(),
            new_events: Vec::new(),
            stored_events: Vec::new(),
            refused_events: BTreeMap::new(),
        };
        let recovered = station.recover()?;
        Ok((station, recovered))
    }

    /// Replays the journal.
    fn recover(&mut self) -> Result<Recovered, StationError> {
        let mut recovered = Recovered { torn: self.journal.torn_bytes(), ..Recovered::default() };
        let foreign = || StationError::NotAGateway(self.journal_path.clone());
        let (mut ended, mut events) = (Vec::new(), Vec::new());
        for record in self.journal.iter() {
            let record = record?;
            let size = size_of_record(&record);
            match Entry::decode(&record).ok_or_else(foreign)? {
                Entry::Standing(standing) => self.coordinator.resume(standing),
                Entry::Frame { now, frame, .. } => match self.coordinator.replay(frame, now) {
                    Ok(news) => {
                        recovered.frames += 1;
                        self.quota.add(news.device, size);
                    }
                    Err(_) => recovered.refused += 1,
                },
                // The same frames give the same manifest. At worst, a manifest that the outbox or
                // the cloud already has is written and uploaded again.
                Entry::End(epoch) => {
                    ended.push(sign_end(&mut self.coordinator, &self.keys, epoch)?);
                }
                Entry::Urgent { schema, event } => {
                    events.push((schema.to_vec(), event.to_vec(), size));
                }
            }
        }
        for (schema, event, size) in events {
            self.recover_event(&schema, &event, size);
        }
        for ended in ended {
            self.unstored.push((
                Name::of(ended.epoch),
                Item { manifest: Some(ended.manifest), bundles: ended.bundles },
            ));
            self.stale = true;
        }
        self.take_late();
        Ok(recovered)
    }

    /// Continues under a later version of the roster. The caller has checked that it succeeds the
    /// roster in use. `record` makes the new roster durable: it is called when everything that was
    /// received is durable under the old roster and the manifests of all ended epochs are in the
    /// outbox. A restart after that opens the station with the new roster.
    ///
    /// # Errors
    /// [`StationError`], or the error of `record`. The station continues under the old roster.
    pub fn load<E: From<StationError>>(
        &mut self,
        roster: Roster,
        record: impl FnOnce(&Roster) -> Result<(), E>,
    ) -> Result<Recovered, E> {
        let mut next = self.coordinator.under(roster).ok_or(StationError::NoBudget)?;
        // Ended epochs must leave the journal under the old roster: ended again under the new one,
        // they would have a second manifest.
        self.make_durable()?;
        self.compact()?;
        self.stale = false;
        let mut keys = CoordinatorKeys::from(std::mem::take(&mut self.keys.signers));
        let served = keys.serve(next.roster());
        if let Err(error) = served {
            self.keys.signers = keys.signers;
            return Err(error.into());
        }
        let recorded = record(next.roster());
        if let Err(error) = recorded {
            self.keys.signers = keys.signers;
            return Err(error);
        }
        next.serve_only(keys.served());
        (self.coordinator, self.keys) = (next, keys);
        self.quota =
            Quota::new(journal_room(self.bound), self.coordinator.roster().devices().len());
        Ok(self.recover()?)
    }

    /// Returns the coordinator.
    #[must_use]
    pub const fn coordinator(&self) -> &GroupCoordinator {
        &self.coordinator
    }

    /// Returns the outbox: the ended epochs and late seals that are not uploaded yet.
    #[must_use]
    pub fn outbox(&self) -> Arc<Outbox> {
        Arc::clone(&self.outbox)
    }

    /// Returns the size of the folder, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.outbox.bytes() + self.journal_bytes()
    }

    fn journal_bytes(&self) -> u64 {
        fs::metadata(&self.journal_path).map_or(0, |journal| journal.len())
            + self.uncommitted as u64
    }

    /// Returns the maximum size of the folder, in bytes.
    #[must_use]
    pub const fn bound(&self) -> u64 {
        self.bound
    }

    /// Returns whether more frames may be received. They may if everything that results from them
    /// still fits in the folder's maximum size.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let digests = 32 * self.coordinator.digests();
        self.outbox.bytes() + 2 * self.journal_bytes() + digests + RESERVE <= self.bound
    }

    /// Returns whether so many bytes are uncommitted that the caller should commit before it
    /// receives another frame.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.uncommitted >= COMMIT_BYTES
    }

    /// Receives a frame of a device. The frame is not durable until the next
    /// [`commit`](Self::commit) succeeds.
    ///
    /// # Errors
    /// [`Refused`]. Nothing has changed.
    pub fn receive(&mut self, frame: &[u8], now: EpochNumber) -> Result<FrameEffect, Refused> {
        // The quota checks the size of the frame. The journal also stores a few bytes before each
        // frame, but a device cannot increase their number.
        let Self { coordinator, quota, .. } = self;
        let received = coordinator
            .receive_if(frame, now, |device| quota.admits(device, size_of_record(frame)));
        let news = received.inspect_err(|refused| {
            self.refusals.extend(self.coordinator.refusal(frame, refused));
            if *refused == Refused::OtherSeal {
                // The acknowledgement tells the device which seal the gateway has.
                self.received.extend(claimed_device(frame));
            }
        })?;
        self.received.insert(news.device);
        if news.durable {
            let entry = Entry::Frame { now, about: news.about, frame }.encode();
            self.uncommitted += entry.len();
            self.quota.add(news.device, size_of_record(&entry));
            // An append fails only after 256 MiB without a sync, and a commit is due much earlier.
            // If it does fail, the frame must not be acknowledged.
            if self.journal.append(&entry).is_err() {
                self.received.remove(&news.device);
            }
        }
        // If a device sends more events for an ended epoch, they are sampled at the epoch's final
        // round. That round is no longer announced.
        self.to_announce.extend(
            news.raised.map(|(epoch, _)| epoch).filter(|epoch| self.coordinator.is_live(*epoch)),
        );
        Ok(news)
    }

    /// Announces the round of an epoch with one of the next commits, even if neither the epoch nor
    /// the round is new.
    pub fn announce(&mut self, epoch: EpochNumber) {
        self.to_announce.insert(epoch);
    }

    /// Announces the round of one epoch again, with one of the next commits. The calls alternate
    /// between `newest`, which is the newest epoch by the group's time, and the open epochs above
    /// round 0. Open epochs are included because a device may be in an earlier or a later epoch
    /// than most devices.
    pub fn announce_next(&mut self, newest: EpochNumber) {
        let mut turns: BTreeSet<_> = self.raised().take(ANNOUNCED).collect();
        turns.insert(newest);
        let behind =
            |last: EpochNumber| turns.range((Bound::Excluded(last), Bound::Unbounded)).next();
        let next = self.announced.and_then(behind).or(turns.first());
        self.to_announce.extend(next);
    }

    /// Returns how many epochs [`announce_next`](Self::announce_next) alternates between.
    #[must_use]
    pub fn announced_epochs(&self) -> u32 {
        u32::try_from(self.raised().take(ANNOUNCED).count()).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the open epochs above round 0, oldest first. Most devices are in the oldest epoch,
    /// even if a single device is far ahead.
    fn raised(&self) -> impl Iterator<Item = EpochNumber> {
        self.coordinator.epochs().filter(|epoch| self.coordinator.round(*epoch) > Round(0))
    }

    /// Ends an epoch with the next commit.
    ///
    /// # Errors
    /// [`StationError::Journal`] if the record cannot be appended to the journal. Nothing has
    /// changed.
    pub fn end(&mut self, epoch: EpochNumber) -> Result<(), StationError> {
        if self.ending.is_none() {
            self.journal.append(&Entry::End(epoch).encode())?;
            self.ending = Some(epoch);
        }
        Ok(())
    }

    /// Makes all received frames durable, writes ended epochs to the outbox, and returns the
    /// messages that may now be sent. After an error, the next call continues with the remaining
    /// work.
    ///
    /// # Errors
    /// [`StationError`]. Until a later commit succeeds, send no message and receive no frame.
    pub fn commit(&mut self) -> Result<Outgoing, StationError> {
        self.make_durable()?;
        if self.stale || self.urgent.is_stale() {
            self.compact()?;
            self.stale = false;
        }
        self.messages()
    }

    /// Like [`commit`](Self::commit), but does not rewrite the journal to remove ended epochs. If
    /// several epochs end, the next [`commit`](Self::commit) rewrites the journal once for all of
    /// them.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    pub fn commit_and_continue(&mut self) -> Result<Outgoing, StationError> {
        self.make_durable()?;
        self.messages()
    }

    fn make_durable(&mut self) -> Result<(), StationError> {
        self.journal.sync()?;
        self.uncommitted = 0;
        if let Some(epoch) = self.ending {
            let ended = sign_end(&mut self.coordinator, &self.keys, epoch)?;
            self.ending = None;
            self.stale = true;
            let (seals, kept) = (ended.bundles.len(), ended.kept);
            self.unstored.push((
                Name::of(epoch),
                Item { manifest: Some(ended.manifest), bundles: ended.bundles },
            ));
            self.over.push(Over { epoch, round: ended.round, kept, seals, absent: ended.absent });
        }
        self.take_late();
        while let Some((name, item)) = self.unstored.first() {
            self.outbox.store(*name, item)?;
            self.unstored.remove(0);
        }
        Ok(())
    }

    fn take_late(&mut self) {
        for (epoch, bundle) in self.coordinator.take_late() {
            self.unstored.push((
                Name::of_late(epoch, &bundle),
                Item { manifest: None, bundles: vec![bundle] },
            ));
        }
    }

    /// Rewrites the journal with only those records that a restart needs.
    fn compact(&mut self) -> Result<(), StationError> {
        let Self { coordinator, journal, journal_path, urgent, new_events, .. } = self;
        let foreign = || StationError::NotAGateway(journal_path.clone());
        let standing = Entry::Standing(coordinator.standing()).encode();
        let mut quota = Quota::new(journal_room(self.bound), coordinator.roster().devices().len());
        journal.retain(&standing, |record| -> Result<bool, StationError> {
            let needed_of = match Entry::decode(record).ok_or_else(foreign)? {
                Entry::Frame { about: Some((index, epoch)), frame, .. } => {
                    claimed_device(frame).filter(|device| coordinator.needs(*device, index, epoch))
                }
                Entry::Urgent { event, .. } => urgent::needed(urgent, new_events, event),
                Entry::Frame { about: None, .. } | Entry::Standing(_) | Entry::End(_) => None,
            };
            if let Some(device) = needed_of {
                quota.add(device, size_of_record(record));
            }
            Ok(needed_of.is_some())
        })?;
        self.quota = quota;
        Ok(())
    }

    fn messages(&mut self) -> Result<Outgoing, StationError> {
        let mut messages = Outgoing::default();
        for device in std::mem::take(&mut self.received) {
            messages
                .acknowledgements
                .extend(self.coordinator.acknowledgement(device).map(|frame| (device, frame)));
        }
        messages.acknowledgements.extend(std::mem::take(&mut self.refusals));
        messages.events = self.event_answers();
        // A link keeps only the newest announcement, so send one at a time.
        if let Some(epoch) = self.to_announce.pop_first() {
            self.announced = Some(epoch);
            let roster = self.coordinator.roster();
            let highest = Round(roster.levels(epoch).saturating_sub(1));
            let round = self.coordinator.round(epoch).min(highest);
            let mut out = [0; MAX_ANNOUNCEMENT];
            // No frame of an epoch that another coordinator serves is accepted.
            if let Some(signer) = self.keys.signer(roster, epoch) {
                let message = Announcement::issue(roster.group(), epoch, round, signer, &mut out)
                    .map_err(StationError::Sign)?;
                messages.announcement = Some(message.to_vec());
            }
        }
        Ok(messages)
    }

    /// Returns the epochs that have ended since the last call of this function.
    pub fn take_over(&mut self) -> Vec<Over> {
        std::mem::take(&mut self.over)
    }
}

/// Returns how many bytes frames may use in the journal of a folder whose maximum size is `bound`.
const fn journal_room(bound: u64) -> u64 {
    bound.saturating_sub(RESERVE) / JOURNAL_PART
}

/// Returns the maximum size of a record in the journal: its length prefix, its bytes, and the
/// header of a sync that contains only this record.
const fn size_of_record(record: &[u8]) -> u64 {
    24 + record.len() as u64
}

/// Ends an epoch with the signature of the coordinator of the epoch's period.
fn sign_end(
    coordinator: &mut GroupCoordinator,
    keys: &CoordinatorKeys,
    epoch: EpochNumber,
) -> Result<Ended, StationError> {
    let signer = keys.signer(coordinator.roster(), epoch).ok_or(StationError::NotTheCoordinator)?;
    coordinator.end(epoch, signer).map_err(StationError::Sign)
}

/// The keys of a coordinator. There are several while the coordinator's key changes: each period of
/// a roster has one.
pub struct CoordinatorKeys {
    signers: Vec<Box<dyn Signer + Send>>,
    /// For each period of the roster, the signer that has its coordinator's key.
    periods: Vec<Option<usize>>,
}

impl fmt::Debug for CoordinatorKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinatorKeys").field("periods", &self.periods).finish_non_exhaustive()
    }
}

impl From<Vec<Box<dyn Signer + Send>>> for CoordinatorKeys {
    fn from(signers: Vec<Box<dyn Signer + Send>>) -> Self {
        Self { signers, periods: Vec::new() }
    }
}

impl<S: Signer + Send + 'static> From<Box<S>> for CoordinatorKeys {
    fn from(signer: Box<S>) -> Self {
        Self { signers: vec![signer], periods: Vec::new() }
    }
}

impl CoordinatorKeys {
    /// Finds the key of each period of a roster.
    ///
    /// # Errors
    /// `NoBudget` if no period of the roster has a budget, `NotTheCoordinator` if none of the keys
    /// is that of a coordinator.
    fn serve(&mut self, roster: &Roster) -> Result<(), StationError> {
        if !roster.has_budget() {
            return Err(StationError::NoBudget);
        }
        self.periods = roster
            .periods()
            .iter()
            .map(|period| {
                let key = period.coordinator.as_ref().filter(|_| period.budget.is_some())?;
                self.signers.iter().position(|signer| is_key_of(key, &**signer))
            })
            .collect();
        if self.periods.iter().any(Option::is_some) {
            Ok(())
        } else {
            Err(StationError::NotTheCoordinator)
        }
    }

    /// Returns for each period of the roster whether one of the keys is its coordinator's.
    fn served(&self) -> impl Iterator<Item = bool> {
        self.periods.iter().map(Option::is_some)
    }

    /// Returns the signer of an epoch, if one of the keys is the coordinator's.
    fn signer(&self, roster: &Roster, epoch: EpochNumber) -> Option<&dyn Signer> {
        let later = roster.periods().iter().rposition(|period| period.first_epoch <= epoch);
        let signer = &self.signers[(*self.periods.get(later.unwrap_or(0))?)?];
        Some(&**signer)
    }
}

/// Checks that one of `keys` is a key that the roster certifies for the group's coordinator.
///
/// # Errors
/// `NoBudget` if the roster has no budget, `NotTheCoordinator` if no key is the coordinator's.
pub fn check(roster: &Roster, keys: &mut CoordinatorKeys) -> Result<(), StationError> {
    keys.serve(roster)
}

/// Returns whether a signer has the secret key of a public key. A test signature identifies the key
/// even if it is in hardware and cannot be read.
fn is_key_of(key: &PublicKey, signer: &dyn Signer) -> bool {
    let message = b"moteseal/1/is this the coordinator";
    let signed = signer.signature(message).ok();
    signed.is_some_and(|signature| key.verify(message, &signature).is_ok())
}
