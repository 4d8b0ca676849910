//! A device's session with the coordinator of its group. It determines which frames to send, and
//! processes the frames and announcements of the coordinator (spec/coordinator.md, section 4).
//!
//! A [`DeviceSession`] holds the state of the protocol but no seals. The caller stores the seals,
//! on a heap or in flash, and passes the [`Outstanding`] seal to each call: the oldest seal that
//! the coordinator does not have. The session has no clock: the caller decides when to send, and
//! when [`timeout`](DeviceSession::timeout) is due.
//!
//! Seals are sent one after the other. A frame of the next seal would tell the coordinator that the
//! device has abandoned the outstanding seal.
//!
//! Acknowledgements are fresh: the device sends a challenge, and an acknowledgement that does not
//! repeat the current challenge has no effect. Until the coordinator has answered the first
//! challenge of a session, the device sends nothing else except the schema. If the device's state
//! is older than its past, [`is_ahead`] therefore detects this before the device sends a seal with
//! an index that it has used before.

use core::hash::{Hash, Hasher};

use moteseal_core::cbor::BufferTooSmall;
use moteseal_core::digest::Digest;
use moteseal_core::health::Health;
use moteseal_core::link::{FrameError, LinkKey};
use moteseal_core::record::{DeviceId, EpochNumber, Round, SealIndex, Sequence};

use crate::sample::{Announcement, Forwarder};
use crate::wire::{
    Acknowledgement, EventAnswer, EventFrame, HealthFrame, HealthSession, Refusal, Uplink,
};
use crate::{Position, Statement};

/// The number of consecutive timeouts after which the coordinator is assumed to have lost data
/// permanently. A timeout counts if the coordinator's next acknowledgement does not cover data that
/// it had acknowledged before.
const PATIENCE: u8 = 4;

/// The number of indices that a device leaves unused after the newest index that its coordinator
/// knows, if the device's state is older than its past. A device opens one index per epoch, and a
/// few more if seals are full or the device restarts. Of the indices that the coordinator does not
/// know, the device may have signed some before it lost its state. With epochs of one minute, the
/// gap covers the indices of 45 days in which no seal arrived at the coordinator.
pub const INDEX_GAP: u32 = 1 << 16;
/// The upper bound of the random part that is added to [`INDEX_GAP`]. Without it, a device that
/// loses its state again before the coordinator has received anything would continue at the same
/// index a second time.
pub const INDEX_SPREAD: u32 = 1 << 20;

/// The oldest seal that the coordinator does not have. Its events are in a buffer of `N` bytes.
#[derive(Debug)]
pub struct Outstanding<'a, const N: usize> {
    /// The seal's index.
    pub index: SealIndex,
    /// The buffer of the seal's events; `None` if the coordinator has all events and the device has
    /// dropped the buffer.
    pub forwarder: Option<&'a mut Forwarder<N>>,
    /// The items of the seal's closing frame; `None` while the seal is open.
    pub closing: Option<Closing<'a>>,
}

/// The content of a closing frame: the two items that turn forwarded events into a seal
/// (spec/answers.md, section 1.5).
#[derive(Clone, Copy, Debug)]
pub struct Closing<'a> {
    /// The open item.
    pub open: &'a [u8],
    /// The part item, without events.
    pub part: &'a [u8],
}

/// The state of a device's exchange with its coordinator.
#[derive(Clone)]
pub struct DeviceSession {
    device: DeviceId,
    link: LinkKey,
    /// The newest announcement: its epoch, and the highest round of that epoch.
    announced: (EpochNumber, Round),
    wants_schema: bool,
    /// The seal whose closing frame was sent, if that frame is not due again.
    closing_sent: Option<SealIndex>,
    /// Whether a timeout has occurred since the last acknowledgement, so that all data that is not
    /// acknowledged is sent again.
    has_asked: bool,
    /// The number of consecutive timeouts after which an acknowledgement did not cover already
    /// acknowledged data of the oldest seal.
    unknown: u8,
    /// The current challenge.
    challenge: u64,
    /// Whether a frame with the challenge is due.
    sends_challenge: bool,
    /// Whether the coordinator has answered the current challenge.
    is_answered: bool,
    /// Whether the coordinator has answered any challenge of this session.
    has_begun: bool,
    /// The session of reports of health that the coordinator has begun; 0 if there is none.
    health: u64,
}

/// The hash covers everything but the link key.
impl Hash for DeviceSession {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            device,
            link: _,
            announced,
            wants_schema,
            closing_sent,
            has_asked,
            unknown,
            challenge,
            sends_challenge,
            is_answered,
            has_begun,
            health,
        } = self;
        (device, announced, wants_schema, closing_sent, has_asked, unknown).hash(state);
        (challenge, sends_challenge, is_answered, has_begun, health).hash(state);
    }
}

impl core::fmt::Debug for DeviceSession {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DeviceSession")
            .field("device", &self.device)
            .field("announced", &self.announced)
            .field("unknown", &self.unknown)
            .field("challenge", &self.challenge)
            .finish_non_exhaustive()
    }
}

impl DeviceSession {
    /// Creates a session that has neither sent nor received anything. Its first frames are the
    /// challenge and the schema. `challenge` must differ from all challenges of earlier sessions,
    /// and so must the numbers that follow it: each session uses at most 2^32 consecutive numbers.
    /// A device with a random number generator uses a random number; a device that counts its
    /// starts uses that count, multiplied by 2^32.
    #[must_use]
    pub const fn new(device: DeviceId, link: LinkKey, challenge: u64) -> Self {
        Self {
            device,
            link,
            announced: (EpochNumber(0), Round(0)),
            wants_schema: true,
            closing_sent: None,
            has_asked: false,
            unknown: 0,
            challenge,
            sends_challenge: true,
            is_answered: false,
            has_begun: false,
            health: 0,
        }
    }

    /// Returns whether the coordinator has answered a challenge of this session.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns whether the coordinator has answered the current challenge.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Returns whether a frame with the schema or the challenge is due.
    #[must_use]
    pub const fn greets(&self) -> bool {
        self.wants_schema || self.sends_challenge
    }

    /// Returns the newest epoch that the coordinator has announced, and the round of that epoch.
    /// Returns epoch 0 and round 0 before the first announcement.
    #[must_use]
    pub const fn newest_announced(&self) -> (EpochNumber, Round) {
        self.announced
    }

    /// Returns the round at which a seal of `epoch` must be opened: the announced round, or 0 if
    /// none was announced for this epoch.
    #[must_use]
    pub fn round_of(&self, epoch: EpochNumber) -> Round {
        if self.announced.0 == epoch { self.announced.1 } else { Round(0) }
    }

    /// Returns whether the coordinator has lost already acknowledged data of the oldest seal. It
    /// then asks for events that the device no longer has. The device must abandon that seal;
    /// otherwise the exchange never ends.
    #[must_use]
    pub const fn is_abandoned(&self) -> bool {
        self.unknown >= PATIENCE
    }

    /// Writes a frame with the device's health to `out`. `interval_s` is the time until the next report if
    /// nothing unusual happens.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_HEALTH_FRAME`](crate::wire::MAX_HEALTH_FRAME) bytes suffice.
    pub fn health_frame<'o>(
        &self,
        (health, interval_s): (&Health, u32),
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let frame = HealthFrame { session: self.health, interval_s, health: *health };
        frame.close(self.device, &self.link, out)
    }

    /// Opens the coordinator's frame that begins a session of reports. Returns whether the session is
    /// another one than before; the caller then reports again. The caller must have checked that the frame
    /// answers its newest report; any other frame may be a repeated one of an earlier session.
    ///
    /// # Errors
    /// [`FrameError`] if the frame is not such a frame of the coordinator to this device.
    pub fn open_health_session(&mut self, frame: &[u8]) -> Result<bool, FrameError> {
        let HealthSession { session, .. } = self.read_health_session(frame)?;
        Ok(core::mem::replace(&mut self.health, session) != session)
    }

    /// Reads the coordinator's frame that begins a session of reports, without any effect.
    ///
    /// # Errors
    /// Those of [`open_health_session`](Self::open_health_session).
    pub fn read_health_session(&self, frame: &[u8]) -> Result<HealthSession, FrameError> {
        HealthSession::open(frame, self.device, &self.link)
    }

    /// Writes the next frame that is due to `out`, or returns `None` if no frame is due. The length
    /// of `scratch` limits the events and digests of one frame. Frames are sent in this order: the
    /// challenge, the schema, the outstanding seal's events, the outstanding seal's closing frame.
    /// Frames of the seal are due only after the coordinator has answered a challenge of this
    /// session.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if a single event does not fit `scratch`, or a frame does not fit `out`.
    pub fn next_frame<'o, const N: usize>(
        &mut self,
        (schema, schema_digest): (&[u8], Digest),
        outstanding: Option<Outstanding<'_, N>>,
        scratch: &mut [u8],
        out: &'o mut [u8],
    ) -> Result<Option<&'o [u8]>, BufferTooSmall> {
        let (device, link) = (self.device, &self.link);
        if core::mem::take(&mut self.sends_challenge) {
            return Uplink::Challenge(self.challenge).close(device, link, out).map(Some);
        }
        if core::mem::take(&mut self.wants_schema) {
            return Uplink::Schema(schema).close(device, link, out).map(Some);
        }
        if !self.has_begun {
            return Ok(None);
        }
        let Some(Outstanding { index, forwarder, closing }) = outstanding else { return Ok(None) };
        if let Some(forwarder) = forwarder
            && let Some(forward) = forwarder.next_frame(scratch)?
        {
            return Uplink::Forward(forward).close(device, link, out).map(Some);
        }
        match closing.filter(|_| self.closing_sent != Some(index)) {
            None => Ok(None),
            Some(Closing { open, part }) => {
                self.closing_sent = Some(index);
                let frame = Uplink::Close { schema: schema_digest, open, part };
                frame.close(device, link, out).map(Some)
            }
        }
    }

    /// Schedules the challenge and all data that the coordinator has not acknowledged to be sent
    /// again. Call this if frames may have been lost.
    pub fn resend<const N: usize>(&mut self, outstanding: Option<Outstanding<'_, N>>) {
        self.sends_challenge = true;
        let Some(Outstanding { forwarder, closing, .. }) = outstanding else { return };
        // The coordinator may have been replaced. The new coordinator does not have the schema that
        // the closed seal needs.
        self.wants_schema |= closing.is_some();
        self.closing_sent = None;
        if let Some(forwarder) = forwarder {
            forwarder.rewind();
        }
    }

    /// Does the same as [`resend`](Self::resend), with the next challenge if the current one was
    /// answered. Call this if the coordinator has not replied for a while. The next acknowledgement
    /// shows whether the coordinator still has its data of the outstanding seal.
    ///
    /// A challenge that was not answered stays the current one, so that a late answer counts even
    /// if the link is slower than the device's timeouts.
    pub fn timeout<const N: usize>(&mut self, outstanding: Option<Outstanding<'_, N>>) {
        if core::mem::take(&mut self.is_answered) {
            self.challenge = self.challenge.wrapping_add(1);
        }
        self.resend(outstanding);
        self.has_asked = true;
    }

    /// Opens an acknowledgement. Returns `None` if it does not answer the current challenge; it then
    /// has no effect. Otherwise the caller must check whether the coordinator [`is_ahead`] of the
    /// device. If it is not, the caller must drop the seals that the acknowledgement covers, pass
    /// it to the forwarders of the remaining seals ([`Forwarder::acknowledge`]), and call
    /// [`acknowledged`](Self::acknowledged).
    ///
    /// # Errors
    /// [`FrameError`] if the frame is not an acknowledgement of the coordinator to this device.
    pub fn open_acknowledgement(
        &mut self,
        frame: &[u8],
    ) -> Result<Option<Acknowledgement>, FrameError> {
        let acknowledgement = Acknowledgement::open(frame, self.device, &self.link)?;
        if acknowledgement.challenge != Some(self.challenge) {
            // A coordinator that was restarted knows no challenge. Do not wait for a timeout.
            self.sends_challenge |= acknowledgement.challenge.is_none();
            return Ok(None);
        }
        (self.is_answered, self.has_begun) = (true, true);
        self.wants_schema |= acknowledgement.wants_schema;
        Ok(Some(acknowledgement))
    }

    /// Returns the index at which the device must continue if its coordinator [`is_ahead`]. The
    /// device has signed no seal with this index or a later one, even if the coordinator has not
    /// received its newest seals. The index depends on the session's challenge, so that two
    /// sessions do not continue at the same index.
    #[must_use]
    pub fn index_after(
        &self,
        acknowledgement: &Acknowledgement,
        next_index: SealIndex,
    ) -> SealIndex {
        let sealed = acknowledgement.sealed.map_or(SealIndex(0), |sealed| sealed.index);
        // The device's own next index also needs a gap: another copy of the same state may have
        // signed it.
        let known = sealed.max(acknowledgement.index).max(next_index);
        // A device without random numbers counts its starts. The multiplication (Knuth, The Art of
        // Computer Programming, volume 3, section 6.4) puts the indices of consecutive starts far
        // apart; otherwise the second seal of one start would have the index of the first seal of
        // the next start. The remainder is below 2^20.
        #[allow(clippy::cast_possible_truncation)]
        let start = (self.challenge >> 32) as u32;
        let spread = start.wrapping_mul(0x9e37_79b1) >> (u32::BITS - INDEX_SPREAD.ilog2());
        SealIndex(known.0.saturating_add(INDEX_GAP + spread))
    }

    /// Detects a coordinator that has lost data: counts consecutive acknowledgements that do not
    /// cover already acknowledged data of the oldest seal ([`is_abandoned`](Self::is_abandoned)).
    /// `oldest` is the oldest seal that the coordinator does not have, and the first event of this
    /// seal that is not acknowledged. `is_news` states whether a seal was dropped or a forwarder
    /// advanced because of the acknowledgement.
    ///
    /// An acknowledgement may be late or repeated. It is therefore counted only if it is the first
    /// one after a [`timeout`](Self::timeout), so that each counted one answers another challenge.
    /// Any acknowledgement that covers the data resets the count.
    pub fn acknowledged(
        &mut self,
        acknowledgement: &Acknowledgement,
        oldest: Option<(SealIndex, Sequence)>,
        is_news: bool,
    ) {
        let is_unknown = oldest.is_some_and(|(index, next)| {
            // Acknowledgements name an earlier seal until an event of this seal has arrived. They
            // never name a later seal while the device still sends this one.
            let is_earlier = acknowledgement.index < index && next.0 > 0;
            let is_short = acknowledgement.index == index && acknowledgement.next < next;
            is_earlier || is_short || acknowledgement.index > index
        });
        if is_news || !is_unknown {
            self.reset_patience();
        } else if core::mem::take(&mut self.has_asked) {
            self.unknown = self.unknown.saturating_add(1);
        }
    }

    /// Resets the count of timeouts. Call this if another seal has become the oldest one, or if the
    /// coordinator has made progress.
    pub const fn reset_patience(&mut self) {
        self.has_asked = false;
        self.unknown = 0;
    }

    /// Opens the coordinator's refusal of a seal. Returns the refusal if the device must abandon
    /// that seal, otherwise `None`. The device must abandon the seal under two conditions: it is
    /// the oldest seal, so that it delays all other seals; and the refusal is final, or the device
    /// would lose newer readings by waiting longer (`costs_readings`).
    ///
    /// # Errors
    /// [`FrameError`] if the frame is not a refusal of the coordinator to this device.
    pub fn refused<'f>(
        &self,
        frame: &'f [u8],
        oldest: Option<SealIndex>,
        costs_readings: bool,
    ) -> Result<Option<Refusal<'f>>, FrameError> {
        let refusal = Refusal::open(frame, self.device, &self.link)?;
        let gives_up = oldest == Some(refusal.index) && (refusal.is_final || costs_readings);
        Ok(gives_up.then_some(refusal))
    }

    /// Writes the frame of an urgent event. The caller sends it only after the coordinator has
    /// answered a challenge of this session ([`has_begun`](Self::has_begun)).
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn close_event<'o>(
        &self,
        frame: &EventFrame<'_>,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        frame.close(self.device, &self.link, out)
    }

    /// Opens the coordinator's answer to an urgent event.
    ///
    /// # Errors
    /// [`FrameError`] if the frame is not such an answer of the coordinator to this device.
    pub fn open_event_answer<'f>(&self, frame: &'f [u8]) -> Result<EventAnswer<'f>, FrameError> {
        EventAnswer::open(frame, self.device, &self.link)
    }

    /// Processes an announcement of the coordinator, which the caller must have verified. Raises
    /// the round of the open seal if the announcement is for that seal's epoch. Returns whether the
    /// announcement changed anything.
    pub fn announced<const N: usize>(
        &mut self,
        announcement: &Announcement,
        open: Option<(EpochNumber, &mut Forwarder<N>)>,
    ) -> bool {
        let (epoch, round) = (announcement.epoch(), announcement.round());
        let is_newest = (epoch, round) > self.announced;
        self.announced = self.announced.max((epoch, round));
        // The newest announcement may be for a later epoch than the open seal, because the clock of
        // another device may be ahead of this device's clock.
        let open = open.filter(|(of, _)| *of == epoch);
        open.is_some_and(|(_, forwarder)| forwarder.announced(round)) || is_newest
    }
}

/// Returns whether an acknowledgement states that the coordinator has stored the seal `index`
/// durably. The caller has checked that the coordinator is not ahead ([`is_ahead`]).
#[must_use]
pub fn is_sealed(acknowledgement: &Acknowledgement, index: SealIndex) -> bool {
    acknowledgement.sealed.is_some_and(|sealed| index <= sealed.index)
}

/// A seal that a device keeps: it is open, or waits for the coordinator.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// The seal's index.
    pub index: SealIndex,
    /// The number of its events that the device may have sent.
    pub events: u64,
    /// The seal's digest; `None` while the seal is open.
    pub digest: Option<Digest>,
}

/// Returns whether a coordinator has stored more of a device than the device's state accounts for:
/// an event or a seal that the device has not recorded, or another seal under an index that the
/// device has signed. The state is then older than the device's past, or a second device has the
/// key. If so, the acknowledgement covers none of the device's seals.
///
/// `position` and `next_index` are the device's position in its chain and its next unused index;
/// `kept` are the open seal and the seals that wait. The device compares the digest wherever it
/// knows the seal. Each seal contains the digest of its predecessor, so two equal digests show that
/// all earlier seals are equal, too.
#[must_use]
pub fn is_ahead(
    acknowledgement: &Acknowledgement,
    position: &Position,
    next_index: SealIndex,
    kept: impl Iterator<Item = Kept>,
) -> bool {
    let Acknowledgement { index, next, sealed, .. } = *acknowledgement;
    if next.0 > 0 && index >= next_index {
        return true;
    }
    let (mut keeps_earlier, mut is_equal) = (false, false);
    for seal in kept {
        if seal.index == index && next.0 > seal.events {
            return true;
        }
        let Some(sealed) = sealed else { continue };
        keeps_earlier |= seal.index < sealed.index;
        if seal.index == sealed.index {
            if seal.digest != Some(sealed.digest) {
                return true;
            }
            is_equal = true;
        }
    }
    let Some(sealed) = sealed else { return false };
    if sealed.index >= next_index {
        return true;
    }
    match position.last {
        Some((last, _)) if sealed.index == last => sealed.digest != position.prev,
        // The device no longer knows this seal, unless it still keeps an earlier one.
        Some((last, _)) if sealed.index < last => keeps_earlier && !is_equal,
        // The device has opened the index, but has never signed a seal with it.
        _ => true,
    }
}

/// Completes the statement of a forwarded seal. Links it into its device's chain at `position`, and
/// adds the rounds and the lost events from the forwarder. If indices are missing between
/// `position` and the seal, the device had an outage, and the statement reports it (`restart`).
pub fn link_statement<const N: usize>(
    statement: &mut Statement,
    position: &Position,
    forwarder: &Forwarder<N>,
) {
    statement.index = forwarder.index();
    (statement.prev, statement.last) = (position.prev, position.last);
    let next = position.last.map_or(0, |(index, _)| index.0.saturating_add(1));
    statement.restart = statement.index.0 != next;
    (statement.round, statement.own_round, statement.lost) = forwarder.rounds();
}
