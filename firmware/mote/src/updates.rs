//! Updates of the firmware: receives an image into the staging slot, begins its installation at a
//! command, and confirms it after its self-test (spec/update.md).
//!
//! An image is never in RAM. Each message of its chain is written to flash when it is verified. The
//! journal has the progress at the end of each page, so that the mote continues there after a
//! restart.

use moteseal_broadcast::ChainRef;
use moteseal_broadcast::firmware::{
    FirmwareManifest, UPDATE_PART, UPDATE_REPORT, UpdateError, UpdateReport,
};
use moteseal_broadcast::receipt::ReceiverTag;
use moteseal_core::digest::Digest;
use moteseal_core::provision::Audience;

use crate::durable::{Durable, FirmwareState};
use crate::flash::{Flash, NoFlash};
use crate::journal::JournalError;
use crate::notice::{Notice, OnNotice};
use crate::slots::{Phase, Slots};

/// A new image that is not confirmed this long after its start resets the board, in milliseconds.
/// The boot stage then falls back.
const TRIAL_MS: u64 = 600_000;
/// The time between the command to install an image and the restart, in milliseconds: the time to
/// send the report.
const RESTART_MS: u64 = 1_000;

/// A chain that brings an image.
#[derive(Clone, Copy, Debug)]
struct Progress {
    chain: ChainRef,
    /// The next block, counted from 1, and its digest.
    next: (u32, [u8; 32]),
    /// The last block.
    last: u32,
    /// Whether the mote has the image already, so nothing is written.
    is_known: bool,
}

/// The updates of a mote.
#[derive(Debug)]
pub struct Updates<'p, F = NoFlash> {
    slots: Slots<F>,
    audience: &'p Audience,
    board: &'static str,
    /// The version of the image that runs.
    version: u32,
    progress: Option<Progress>,
    /// When the trial of the image that runs ends; `None` if it is confirmed.
    trial_ends: Option<u64>,
    /// When to restart.
    restart: Option<u64>,
    /// The newest report, and whether it is to be sent.
    report: ([u8; UPDATE_REPORT], bool),
}

impl<'p, F: Flash> Updates<'p, F> {
    /// Takes the slots of a board. `board` and `version` are those of the image that runs.
    pub const fn new(flash: F, audience: &'p Audience, board: &'static str, version: u32) -> Self {
        Self {
            slots: Slots::new(flash),
            audience,
            board,
            version,
            progress: None,
            trial_ends: None,
            restart: None,
            report: (UpdateReport::Running(version).encode(), true),
        }
    }

    #[inline(never)]
    fn tell(&mut self, report: UpdateReport, notify: &mut OnNotice<'_>) {
        self.report = (report.encode(), true);
        notify(Notice::Update(report));
    }

    #[inline(never)]
    fn refuse(&mut self, version: u32, error: UpdateError, notify: &mut OnNotice<'_>) {
        self.tell(UpdateReport::Refused(version, error), notify);
    }

    /// Returns whether the image that runs is on trial. The mote may fall back to the image before it, so
    /// the journal must not have records that only the new image can read.
    #[must_use]
    pub const fn is_on_trial(&self) -> bool {
        self.trial_ends.is_some()
    }

    /// Begins the trial of a new image, or completes what the last start has begun.
    ///
    /// # Errors
    /// [`JournalError`].
    pub(crate) fn start<J: Flash>(
        &mut self,
        now_ms: u64,
        durable: &mut Durable<J>,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), JournalError> {
        let mut state = *durable.memory().firmware();
        let (chain, block, digest) = state.next();
        if block > 0 {
            let last = messages_of(state.staged().1);
            self.progress = Some(Progress { chain, next: (block, digest), last, is_known: false });
        }
        match self.slots.phase() {
            Some((version, Phase::Trial)) => {
                // An image of another version than its manifest states fails.
                let is_right = version == self.version;
                self.trial_ends = Some(if is_right { now_ms.saturating_add(TRIAL_MS) } else { 0 });
                self.tell(UpdateReport::Trying(version), notify);
            }
            Some((version, Phase::Begun | Phase::FellBack)) => {
                state.set_owed(0, None);
                durable.set_firmware(&state)?;
                self.slots.clear()?;
                self.refuse(version, UpdateError::SelfTestFailed, notify);
            }
            phase => {
                if phase.is_some() || self.version > state.version() {
                    return self.settle(durable, notify);
                }
                self.tell(UpdateReport::Running(self.version), notify);
            }
        }
        Ok(())
    }

    /// Records that the image that runs is confirmed.
    #[inline(never)]
    fn settle<J: Flash>(
        &mut self,
        durable: &mut Durable<J>,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), JournalError> {
        let mut state = *durable.memory().firmware();
        state.set_version(self.version.max(state.version()));
        let has_installed = self.slots.phase().is_some();
        if has_installed {
            // The staging slot has the image that ran before.
            state.drop_staged();
        }
        durable.set_firmware(&state)?;
        if has_installed {
            self.slots.clear()?;
        }
        self.tell(UpdateReport::Confirmed(self.version), notify);
        Ok(())
    }

    /// Confirms an image on trial as soon as the mote has passed its self-test. Returns whether it
    /// did so now. The journal is readable and writable, because the mote has recorded this start;
    /// `is_in_contact` is whether the coordinator has answered.
    ///
    /// # Errors
    /// [`JournalError`].
    pub(crate) fn supervise<J: Flash>(
        &mut self,
        now_ms: u64,
        is_in_contact: bool,
        durable: &mut Durable<J>,
        notify: &mut OnNotice<'_>,
    ) -> Result<bool, JournalError> {
        let Some(ends) = self.trial_ends else { return Ok(false) };
        if now_ms >= ends {
            self.restart = Some(now_ms);
        } else if is_in_contact {
            self.slots.confirm()?;
            self.trial_ends = None;
            self.settle(durable, notify)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Returns the receipt that the mote owes for the installation of the image that runs.
    pub(crate) fn owed(&self, state: &FirmwareState) -> Option<(ChainRef, ReceiverTag)> {
        let (version, chain, tag) = state.owed();
        (version == self.version && self.trial_ends.is_none()).then_some((chain, tag))
    }

    /// Returns whether the board is to restart now.
    pub(crate) fn wants_restart(&self, now_ms: u64) -> bool {
        self.restart.is_some_and(|restart| now_ms >= restart)
    }

    /// If there is a report to send, writes it to `out` and returns its length.
    pub(crate) fn next_report(&mut self, out: &mut [u8]) -> Option<usize> {
        let place = out.first_chunk_mut().filter(|_| self.report.1)?;
        *place = self.report.0;
        self.report.1 = false;
        Some(place.len())
    }

    /// Returns the next block of a chain whose image is partly in the staging slot, and the digest
    /// of the block.
    pub(crate) fn reached(&self, chain: ChainRef) -> Option<(u32, [u8; 32])> {
        let progress = self.progress.as_ref()?;
        (progress.chain == chain && !progress.is_known).then_some(progress.next)
    }

    /// Processes the message of a verified block of an update file. `messages` is the number of
    /// messages of the chain, and `digest` that of the next block. Returns `None` until the
    /// reception is over, and then whether the mote has the image.
    ///
    /// # Errors
    /// [`JournalError`].
    #[inline(never)]
    pub(crate) fn receive<J: Flash>(
        &mut self,
        (chain, messages): (ChainRef, u32),
        (block, message, digest): (u32, &[u8], &[u8; 32]),
        durable: &mut Durable<J>,
        notify: &mut OnNotice<'_>,
    ) -> Result<Option<bool>, JournalError> {
        let mut state = *durable.memory().firmware();
        if block == 1 {
            return Ok(match self.open(messages, message, &mut state) {
                // An image that the mote has does not end the reception of another one.
                Ok(true) if self.progress.is_some_and(|other| other.chain != chain) => None,
                Ok(is_known) => {
                    if !is_known {
                        state.set_staged_chain(chain);
                        state.set_next(2, digest);
                        durable.set_firmware(&state)?;
                    }
                    let next = (2, *digest);
                    self.progress = Some(Progress { chain, next, last: messages, is_known });
                    None
                }
                Err((version, error)) => {
                    self.refuse(version, error, notify);
                    // After the trial, the mote can receive the chain.
                    (error != UpdateError::NotConfirmed).then_some(false)
                }
            });
        }
        let Some(progress) = &mut self.progress else { return Ok(None) };
        if progress.chain != chain || progress.next.0 != block {
            return Ok(None);
        }
        let (block_digest, is_known) = (progress.next.1, progress.is_known);
        progress.next = (block.saturating_add(1), *digest);
        let is_last = block >= progress.last;
        let (version, length, image) = state.staged();
        if !is_known {
            let offset = (block as usize - 2) * UPDATE_PART;
            if message.len() != UPDATE_PART.min(length.saturating_sub(offset)) {
                return self.drop_image(UpdateError::WrongLength, state, durable, notify);
            }
            if offset.is_multiple_of(F::PAGE) {
                state.set_next(block, &block_digest);
                durable.set_firmware(&state)?;
            }
            if self.slots.stage(offset, message).is_err() {
                return self.drop_image(UpdateError::ImageDamaged, state, durable, notify);
            }
        }
        if !is_last {
            return Ok(None);
        }
        if !is_known {
            if digest_of(self.slots.staged(length)) != image {
                return self.drop_image(UpdateError::ImageDamaged, state, durable, notify);
            }
            state.set_next(0, &image);
            durable.set_firmware(&state)?;
            self.tell(UpdateReport::Received(version), notify);
        }
        self.progress = None;
        Ok(Some(true))
    }

    /// Checks the manifest of an update file, which is the first message of its chain. Returns
    /// whether the mote has the image already. If not, writes the image to the state.
    fn open(
        &self,
        messages: u32,
        message: &[u8],
        state: &mut FirmwareState,
    ) -> Result<bool, (u32, UpdateError)> {
        let Audience { network, base, .. } = self.audience;
        let manifest = FirmwareManifest::open_part(message, *network, base)
            .map_err(|_| (0, UpdateError::ManifestRefused))?;
        let FirmwareManifest { board, version, length, digest, .. } = manifest;
        let bytes = length as usize;
        let is_staged = state.staged() == (version, bytes, digest) && state.next().1 == 0;
        let is_known = is_staged && digest_of(self.slots.staged(bytes)) == digest
            || version == self.version && digest_of(self.slots.running(bytes)) == digest;
        let error = if board != self.board {
            UpdateError::WrongBoard
        } else if messages != messages_of(bytes) {
            UpdateError::WrongLength
        } else if is_known {
            return Ok(true);
        } else if version <= self.least(state) {
            UpdateError::VersionNotAbove
        } else if bytes > self.slots.length() {
            UpdateError::ImageTooLong
        } else if self.is_busy() {
            UpdateError::NotConfirmed
        } else {
            state.set_staged(version, length, &digest);
            return Ok(false);
        };
        Err((version, error))
    }

    /// Returns the highest version that may not be installed.
    fn least(&self, state: &FirmwareState) -> u32 {
        self.version.max(state.version())
    }

    /// Returns whether the staging slot is in use by an installation.
    const fn is_busy(&self) -> bool {
        self.trial_ends.is_some() || self.restart.is_some()
    }

    /// Begins the installation of the received image of this version. `receipt` is the receipt of
    /// the command, which the mote sends when the image is confirmed. Returns whether this version
    /// runs already.
    ///
    /// # Errors
    /// [`JournalError`].
    #[inline(never)]
    pub(crate) fn install<J: Flash>(
        &mut self,
        now_ms: u64,
        version: u32,
        receipt: Option<(ChainRef, ReceiverTag)>,
        durable: &mut Durable<J>,
        notify: &mut OnNotice<'_>,
    ) -> Result<bool, JournalError> {
        let mut state = *durable.memory().firmware();
        let (staged, length, digest) = state.staged();
        let error = if self.is_busy() {
            UpdateError::NotConfirmed
        } else if version == self.version {
            return Ok(true);
        } else if version <= self.least(&state) {
            UpdateError::VersionNotAbove
        } else if staged != version || state.next().1 > 0 {
            UpdateError::NotReceived
        } else if digest_of(self.slots.staged(length)) != digest {
            self.drop_image(UpdateError::ImageDamaged, state, durable, notify)?;
            return Ok(false);
        } else {
            state.set_owed(version, receipt);
            durable.set_firmware(&state)?;
            self.slots.begin(version, length)?;
            self.restart = Some(now_ms.saturating_add(RESTART_MS));
            self.tell(UpdateReport::Installing(version), notify);
            return Ok(false);
        };
        self.refuse(version, error, notify);
        Ok(false)
    }

    /// Refuses an image and forgets what is in the staging slot.
    #[inline(never)]
    fn drop_image<J: Flash>(
        &mut self,
        error: UpdateError,
        mut state: FirmwareState,
        durable: &mut Durable<J>,
        notify: &mut OnNotice<'_>,
    ) -> Result<Option<bool>, JournalError> {
        self.progress = None;
        let version = state.staged().0;
        state.drop_staged();
        durable.set_firmware(&state)?;
        self.refuse(version, error, notify);
        Ok(Some(false))
    }
}

#[inline(never)]
fn digest_of(image: &[u8]) -> [u8; 32] {
    Digest::of(&[image]).0
}

/// Returns the number of messages of an update file with an image of this length.
#[allow(clippy::cast_possible_truncation)]
const fn messages_of(length: usize) -> u32 {
    1 + length.div_ceil(UPDATE_PART) as u32
}
