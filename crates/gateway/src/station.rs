//! A coordinator with durable state: it adds a journal and an outbox to a [`GroupCoordinator`].
//!
//! Time and frames are arguments; a [`Station`] touches nothing but the disk. [`Station::commit`]
//! makes all frames received since the last commit durable with one sync. It returns the messages
//! that may be sent then: one cumulative acknowledgement for each device, and the newest round.
//! After a crash at any moment, [`Station::open`] restores the state from the journal, which
//! includes everything that was acknowledged.
//!
//! If the disk is full, or the outbox is at its bound, a station accepts no more frames. Nothing
//! that was acknowledged is dropped, and devices keep what is not acknowledged. The journal may
//! take a quarter of the bound, and no device can use the share of another.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_core::identity::IssueError;
use moteseal_core::link::claimed_device;
use moteseal_core::record::{DeviceId, EpochNumber, Round};
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::Signer;
use moteseal_seal::sample::{Announcement, MAX_ANNOUNCEMENT};
use moteseal_store::Journal;
use moteseal_store::journal::JournalError;
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use crate::coordinator::{FrameEffect, GroupCoordinator, Refused};
use crate::ledger::Entry;
use crate::outbox::{Item, Name, Outbox, OutboxError};
use crate::quota::Quota;

/// A commit is due when frames of this many bytes are waiting. A larger sync takes longer, and
/// frames that arrive meanwhile have to wait for it.
pub const COMMIT_BYTES: usize = 64 << 10;
/// What an epoch takes in the outbox at most, in addition to twice the size of its frames in the
/// journal and the digests of its trees, in bytes.
const RESERVE: u64 = 1 << 20;
/// How many epochs have their rounds announced repeatedly. More epochs are open at once only if
/// devices are far apart in time.
const ANNOUNCED: usize = 8;
/// The divisor that gives the part of the bound that frames may take in the journal. Each frame
/// counts twice, because it also takes space in the outbox. While the outbox takes less than half
/// of the bound, there is always room for frames.
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
        "the roster gives the group no budget; make one with `moteseal roster new --budget \
         --coordinator`"
    )]
    NoBudget,
    /// The key is not the one that the roster certifies for the coordinator.
    #[error(
        "the roster certifies another key for the coordinator; use the secret key that \
         belongs to the public key given to `moteseal roster new --coordinator`"
    )]
    NotTheCoordinator,
    /// The journal has a record that no gateway of this version writes.
    #[error(
        "{} is not the journal of a gateway of this version; name another state folder",
        .0.display()
    )]
    NotAGateway(PathBuf),
    /// Signing with the coordinator's key failed.
    #[error("{0}")]
    Sign(IssueError),
}

impl StationError {
    /// The error's name.
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

    /// [`Usage`](ErrorKind::Usage) if another folder, key or roster would succeed, otherwise
    /// [`Internal`](ErrorKind::Internal).
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Journal(error) => error.kind(),
            Self::NoBudget | Self::NotTheCoordinator | Self::NotAGateway(_) => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        }
    }

    /// Whether the disk is full. The operation can then be repeated.
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
    /// An acknowledgement for each device that sent a frame, and a refusal for each device with a
    /// permanently rejected seal.
    pub acknowledgements: Vec<(DeviceId, Vec<u8>)>,
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
    /// How many events are uploaded.
    pub kept: u64,
    /// How many seals are uploaded.
    pub seals: usize,
    /// Devices that did not close the epoch.
    pub absent: Vec<DeviceId>,
}

/// What [`Station::open`] found in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Frames that were replayed.
    pub frames: u64,
    /// Frames that are now rejected, because the roster no longer has their device.
    pub refused: u64,
    /// Bytes of an incomplete write at the end of the journal. Nothing in them was acknowledged.
    pub torn: u64,
}

/// A group's coordinator with its disk.
pub struct Station {
    coordinator: GroupCoordinator,
    signer: Box<dyn Signer + Send>,
    journal: Journal,
    journal_path: PathBuf,
    outbox: Arc<Outbox>,
    bound: u64,
    quota: Quota,
    /// Bytes that were appended to the journal since the last sync.
    uncommitted: usize,
    /// Devices that sent a frame since the last messages.
    received: BTreeSet<DeviceId>,
    /// The refusal for each device with a rejected seal.
    refusals: BTreeMap<DeviceId, Vec<u8>>,
    /// Epochs whose round is to be announced, one with each commit.
    to_announce: BTreeSet<EpochNumber>,
    /// The epoch that was announced last.
    announced: Option<EpochNumber>,
    /// The epoch whose end is in the journal, or will be after the next sync.
    ending: Option<EpochNumber>,
    /// Ended epochs and late seals that are not in the outbox yet.
    unstored: Vec<(Name, Item)>,
    over: Vec<Over>,
    /// Whether the journal has records that are no longer needed.
    stale: bool,
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
    /// Opens a station with its state in `folder`, which is created if necessary: `journal` and
    /// `outbox/`. `secret` is the group's link secret, `signer` the coordinator's key, and `bound`
    /// the maximum size of the folder, in bytes.
    ///
    /// # Errors
    /// [`StationError`].
    pub fn open(
        folder: &Path,
        roster: Roster,
        secret: impl Into<Zeroizing<[u8; 32]>>,
        signer: Box<dyn Signer + Send>,
        bound: u64,
    ) -> Result<(Self, Recovered), StationError> {
        check(&roster, &*signer)?;
        let coordinator = GroupCoordinator::new(roster, secret).ok_or(StationError::NoBudget)?;
        fs::create_dir_all(folder).map_err(|error| StationError::Io(folder.to_owned(), error))?;
        let journal_path = folder.join("journal");
        let journal = Journal::open_strict(&journal_path)?;
        let outbox = Arc::new(Outbox::open(&folder.join("outbox"))?);
        let quota = Quota::new(journal_room(bound), coordinator.roster().devices().len());
        let mut station = Self {
            coordinator,
            quota,
            signer,
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
        };
        let recovered = station.recover()?;
        Ok((station, recovered))
    }

    /// Replays the journal.
    fn recover(&mut self) -> Result<Recovered, StationError> {
        let mut recovered = Recovered { torn: self.journal.torn_bytes(), ..Recovered::default() };
        let foreign = || StationError::NotAGateway(self.journal_path.clone());
        let mut ended = Vec::new();
        for record in self.journal.iter() {
            let record = record?;
            let size = size_of_record(&record);
            match Entry::decode(&record).ok_or_else(foreign)? {
                Entry::Standing(standing) => self.coordinator.resume(standing),
                Entry::Frame { now, frame, .. } => match self.coordinator.receive(frame, now) {
                    Ok(news) => {
                        recovered.frames += 1;
                        self.quota.add(news.device, size);
                    }
                    Err(_) => recovered.refused += 1,
                },
                // The same frames give the same manifest. If the outbox or the cloud already has
                // it, it is written once more at most.
                Entry::End(epoch) => ended
                    .push(self.coordinator.end(epoch, &*self.signer).map_err(StationError::Sign)?),
            }
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

    /// The coordinator.
    #[must_use]
    pub const fn coordinator(&self) -> &GroupCoordinator {
        &self.coordinator
    }

    /// The ended epochs and late seals that wait for the cloud.
    #[must_use]
    pub fn outbox(&self) -> Arc<Outbox> {
        Arc::clone(&self.outbox)
    }

    /// The size of the folder, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.outbox.bytes() + self.journal_bytes()
    }

    fn journal_bytes(&self) -> u64 {
        fs::metadata(&self.journal_path).map_or(0, |journal| journal.len())
            + self.uncommitted as u64
    }

    /// The maximum size of the folder, in bytes.
    #[must_use]
    pub const fn bound(&self) -> u64 {
        self.bound
    }

    /// Whether more frames may be received: what follows from them fits the bound of the folder.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let digests = 32 * self.coordinator.digests();
        self.outbox.bytes() + 2 * self.journal_bytes() + digests + RESERVE <= self.bound
    }

    /// Whether so many bytes are uncommitted that a commit should come before the next frame.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.uncommitted >= COMMIT_BYTES
    }

    /// Receives a frame of a device. It is not durable before the next [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed.
    pub fn receive(&mut self, frame: &[u8], now: EpochNumber) -> Result<FrameEffect, Refused> {
        // The journal puts only a few bytes before a frame, and the device does not control their
        // number.
        let Self { coordinator, quota, .. } = self;
        let received = coordinator
            .receive_if(frame, now, |device| quota.admits(device, size_of_record(frame)));
        let news = received.inspect_err(|refused| {
            self.refusals.extend(self.coordinator.refusal(frame, refused));
        })?;
        self.received.insert(news.device);
        if news.durable {
            let entry = Entry::Frame { now, about: news.about, frame }.encode();
            self.uncommitted += entry.len();
            self.quota.add(news.device, size_of_record(&entry));
            // An append fails only after 256 MiB without a sync, and a commit is due long before.
            // If it fails, the frame must not be acknowledged.
            if self.journal.append(&entry).is_err() {
                self.received.remove(&news.device);
            }
        }
        // A device that continues in an ended epoch is sampled at the epoch's final round, which is
        // not announced any more.
        self.to_announce.extend(
            news.raised.map(|(epoch, _)| epoch).filter(|epoch| self.coordinator.is_live(*epoch)),
        );
        Ok(news)
    }

    /// Announces an epoch and its round with the next commit, even if they are not new.
    pub fn announce(&mut self, epoch: EpochNumber) {
        self.to_announce.insert(epoch);
    }

    /// Repeats the announcement of one epoch's round. `newest`, the newest epoch by the group's
    /// time, and all open epochs above round 0 take turns, because a device may be ahead of the
    /// others or after them.
    pub fn announce_next(&mut self, newest: EpochNumber) {
        let mut turns: BTreeSet<_> = self.raised().take(ANNOUNCED).collect();
        turns.insert(newest);
        let behind =
            |last: EpochNumber| turns.range((Bound::Excluded(last), Bound::Unbounded)).next();
        let next = self.announced.and_then(behind).or(turns.first());
        self.to_announce.extend(next);
    }

    /// How many epochs take turns in [`announce_next`](Self::announce_next).
    #[must_use]
    pub fn announced_epochs(&self) -> u32 {
        u32::try_from(self.raised().take(ANNOUNCED).count()).unwrap_or(u32::MAX).max(1)
    }

    /// The open epochs above round 0, the oldest first: most devices are in the oldest, however far
    /// a single device is ahead.
    fn raised(&self) -> impl Iterator<Item = EpochNumber> {
        self.coordinator.epochs().filter(|epoch| self.coordinator.round(*epoch) > Round(0))
    }

    /// Ends an epoch with the next commit.
    ///
    /// # Errors
    /// [`StationError::Journal`] if the journal cannot take the record; nothing has changed.
    pub fn end(&mut self, epoch: EpochNumber) -> Result<(), StationError> {
        if self.ending.is_none() {
            self.journal.append(&Entry::End(epoch).encode())?;
            self.ending = Some(epoch);
        }
        Ok(())
    }

    /// Makes everything durable, writes ended epochs to the outbox, and returns the messages that
    /// may be sent. After an error, the next call continues with what is left.
    ///
    /// # Errors
    /// [`StationError`]: until a later commit succeeds, send no message and receive no frame.
    pub fn commit(&mut self) -> Result<Outgoing, StationError> {
        self.make_durable()?;
        if self.stale {
            self.compact()?;
            self.stale = false;
        }
        self.messages()
    }

    /// Like [`commit`](Self::commit), but leaves ended epochs in the journal until the next
    /// [`commit`](Self::commit). If several epochs end, the journal is then rewritten only once.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_and_continue(&mut self) -> Result<Outgoing, StationError> {
        self.make_durable()?;
        self.messages()
    }

    fn make_durable(&mut self) -> Result<(), StationError> {
        self.journal.sync()?;
        self.uncommitted = 0;
        if let Some(epoch) = self.ending {
            let ended = self.coordinator.end(epoch, &*self.signer).map_err(StationError::Sign)?;
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

    /// Rewrites the journal with only the records that a restart needs.
    fn compact(&mut self) -> Result<(), StationError> {
        let Self { coordinator, journal, journal_path, .. } = self;
        let foreign = || StationError::NotAGateway(journal_path.clone());
        let standing = Entry::Standing(coordinator.standing()).encode();
        let mut quota = Quota::new(journal_room(self.bound), coordinator.roster().devices().len());
        journal.retain(&standing, |record| -> Result<bool, StationError> {
            let needed_of = match Entry::decode(record).ok_or_else(foreign)? {
                Entry::Frame { about: Some((index, epoch)), frame, .. } => {
                    claimed_device(frame).filter(|device| coordinator.needs(*device, index, epoch))
                }
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
        // A link keeps only the newest announcement, so one is sent at a time.
        if let Some(epoch) = self.to_announce.pop_first() {
            self.announced = Some(epoch);
            let roster = self.coordinator.roster();
            let round = self.coordinator.round(epoch).min(Round(roster.levels().saturating_sub(1)));
            let mut out = [0; MAX_ANNOUNCEMENT];
            let message =
                Announcement::issue(roster.group(), epoch, round, &*self.signer, &mut out)
                    .map_err(StationError::Sign)?;
            messages.announcement = Some(message.to_vec());
        }
        Ok(messages)
    }

    /// Returns the epochs that have ended since the last call.
    pub fn take_over(&mut self) -> Vec<Over> {
        std::mem::take(&mut self.over)
    }
}

/// How many bytes frames may take in the journal of a folder with this bound.
const fn journal_room(bound: u64) -> u64 {
    bound.saturating_sub(RESERVE) / JOURNAL_PART
}

/// The maximum size of a record in the journal: its length prefix, its bytes, and the header of a
/// sync of its own.
const fn size_of_record(record: &[u8]) -> u64 {
    24 + record.len() as u64
}

/// Checks that a key is that of a roster's coordinator.
///
/// # Errors
/// `NoBudget`, `NotTheCoordinator`.
pub fn check(roster: &Roster, signer: &dyn Signer) -> Result<(), StationError> {
    let coordinator =
        roster.coordinator().filter(|_| roster.budget().is_some()).ok_or(StationError::NoBudget)?;
    // A test signature shows which key it is, whether the key is in a file or in hardware.
    let message = b"moteseal/1/is this the coordinator";
    let signed = signer.signature(message).ok();
    let is_its = signed.is_some_and(|signature| coordinator.verify(message, &signature).is_ok());
    if is_its { Ok(()) } else { Err(StationError::NotTheCoordinator) }
}
