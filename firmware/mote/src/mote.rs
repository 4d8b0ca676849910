//! The complete mote, independent of a board: the caller passes the time and the bodies of packets
//! that arrive on the serial line's channels, and sends the bodies that the mote returns
//! (spec/mote.md).
//!
//! The mote senses, seals its readings, forwards events within the group's budget, answers queries
//! and acts on broadcasts. It has at most one open seal. When an epoch ends, the mote waits until
//! the coordinator has acknowledged all events of the seal; then it signs the seal and begins the
//! next epoch. [`DeviceSession`] is the session with the coordinator. The mote writes everything
//! that must survive a reboot to the journal before it sends or does anything that depends on it.
//! After an error the board must restart.

use moteseal_core::digest::Digest;
use moteseal_core::health::Policy;
use moteseal_core::link::LinkKey;
use moteseal_core::provision::Provisioning;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, SealIndex, Sequence};
use moteseal_core::schema::Schema;
use moteseal_core::signed_time::TimeRange;
use moteseal_seal::device_session::{
    Closing, DeviceSession, Kept, Outstanding, is_ahead, is_sealed,
};
use moteseal_seal::sample::Announcement;
use moteseal_seal::star::PushError;
use moteseal_seal::wire::{Acknowledgement, HealthSession, Refusal};
use moteseal_serial::{Channel, Counters};

use crate::answerer::Answerer;
use crate::column_keys::SealKeys;
use crate::durable::{Durable, Settings};
pub use crate::fault::Fault;
use crate::flash::{Flash, NoFlash};
use crate::health::{Counts, MoteHealth};
use crate::listener::Listener;
use crate::notice::{Notice, OnNotice};
use crate::open_seal::{MAX_GROUPS, Open, begin, events_of, sign};
use crate::readings::{Next, Readings};
use crate::retry::Retry;
use crate::trusted_clock::TrustedClock;

/// The maximum number of readings that one call of [`Mote::work`] reads.
const BATCH: usize = 8;
/// The maximum number of bytes of events and digests in one frame. With the frame's other fields,
/// they fit in one body of the serial line.
const FRAME_EVENTS: usize = 1024;
/// After the mote gives up an open seal, it waits this long before it seals the readings again.
const PAUSE_MS: u64 = 10_000;

/// The epochs of a mote without encrypted columns.
const EVERY_EPOCH: (EpochNumber, EpochNumber) = (EpochNumber(0), EpochNumber(u64::MAX));

/// A mote for groups of at most `L` levels, with a buffer of `N` bytes for events that the
/// coordinator has not acknowledged.
pub struct Mote<'p, 'd, F, R, const L: usize, const N: usize, U = NoFlash> {
    provisioning: &'p Provisioning<'p>,
    session: DeviceSession,
    schema: Digest,
    framing: Framing,
    /// Whether the schema has column groups.
    has_groups: bool,
    durable: &'d mut Durable<F>,
    readings: R,
    /// The place of the next reading, and the time at which the mote takes it.
    place: u32,
    /// What the mote counted since its start, for its health.
    counts: Counts,
    due_ms: u64,
    open: Option<Open<L, N>>,
    /// Whether readings were lost. If so, an index is skipped before the next seal.
    has_missed: bool,
    /// The first index that was not opened before this start, until the coordinator has answered;
    /// afterwards `None`.
    first_index: Option<SealIndex>,
    /// Whether all readings are sealed and the coordinator has every seal.
    is_done: bool,
    retry: Retry,
    clock: TrustedClock,
    answerer: Option<Answerer<'p>>,
    listener: Option<Listener<'p, 'd, U>>,
    health: Option<MoteHealth>,
    /// The keys of the encrypted columns, if the schema has any.
    keys: Option<&'d mut dyn SealKeys>,
}

impl<'p, 'd, F: Flash, R: Readings, const L: usize, const N: usize, U: Flash>
    Mote<'p, 'd, F, R, L, N, U>
{
    /// Creates a mote with the state that the journal holds. Call [`Self::start`] next.
    // Large parts are built in place, when they are needed: a board's stack has no room to move
    // them.
    pub fn new(
        provisioning: &'p Provisioning<'p>,
        durable: &'d mut Durable<F>,
        listener: Option<Listener<'p, 'd, U>>,
        readings: R,
    ) -> Self {
        Self {
            provisioning,
            session: DeviceSession::new(
                provisioning.device,
                LinkKey::new(&provisioning.link_secret),
                // The mote has no random number generator. The number of starts repeats only if the
                // flash is erased or restored.
                u64::from(durable.memory().boots()) << 32,
            ),
            first_index: Some(durable.memory().next_index()),
            clock: TrustedClock::new(durable.memory().time_floor()),
            schema: Digest::NULL,
            framing: Framing::Prefixed,
            has_groups: false,
            place: 0,
            counts: Counts { readings: 0, given_up: 0 },
            durable,
            readings,
            due_ms: 0,
            open: None,
            has_missed: false,
            is_done: false,
            retry: Retry::new(),
            answerer: provisioning.sums.as_ref().map(|of| Answerer::new(provisioning, of)),
            listener,
            health: None,
            keys: None,
        }
    }

    /// Sets the keys of the schema's encrypted columns. A mote without them refuses such a schema.
    pub fn encrypt_with(&mut self, keys: &'d mut dyn SealKeys) {
        self.keys = Some(keys);
    }

    /// Makes the mote report its health to the coordinator.
    pub const fn report_health(&mut self, policy: Policy) {
        self.health = Some(MoteHealth::new(policy));
    }

    /// Notes what the serial line has counted, for the mote's health.
    pub fn note_line(&mut self, counters: Counters) {
        self.health.iter_mut().for_each(|health| health.note_line(counters));
    }

    /// Starts the mote. Call this before any other method.
    ///
    /// # Errors
    /// `Schema`, `ColumnGroups`, `Levels`, `NoKeys`, `Journal`.
    pub fn start(&mut self, now_ms: u64, notify: &mut OnNotice<'_>) -> Result<(), Fault> {
        let schema = Schema::decode(self.provisioning.schema).map_err(|_| Fault::Schema)?;
        self.framing = schema
            .record_size()
            .map_or(Some(Framing::Prefixed), Framing::fixed)
            .ok_or(Fault::Schema)?;
        self.has_groups = !schema.groups().is_empty();
        let is_tree = self.provisioning.scheme == Scheme::Tree;
        if self.has_groups && (is_tree || schema.groups().len() > MAX_GROUPS) {
            return Err(Fault::ColumnGroups);
        }
        if schema.encrypted_count() == 0 {
            self.keys = None;
        } else if self.keys.is_none() {
            return Err(Fault::NoKeys);
        }
        // The sources of readings do not make records with texts.
        if schema.record_size().is_none() && !schema.is_opaque() {
            return Err(Fault::Schema);
        }
        // Readings of another size cannot be sealed.
        if schema
            .record_size()
            .zip(self.readings.record_size())
            .is_some_and(|(expected, actual)| expected != actual)
        {
            return Err(Fault::Schema);
        }
        self.schema = schema.digest();
        if usize::from(self.provisioning.levels) > L {
            return Err(Fault::Levels);
        }
        self.durable
            .sense_from(self.provisioning.window.first, self.provisioning.window.start_ms)?;
        self.place = self.durable.memory().resume();
        self.due_ms = now_ms;
        self.readings.resume(self.place);
        notify(Notice::Started(self.boots()));
        if let Some(listener) = &mut self.listener {
            listener.start(now_ms, self.durable, notify)?;
        }
        self.take_policy(notify)
    }

    /// Takes the policy of the provisioning blob, unless the image of the firmware is on trial.
    fn take_policy(&mut self, notify: &mut OnNotice<'_>) -> Result<(), Fault> {
        let is_on_trial = self.listener.as_ref().is_some_and(Listener::is_on_trial);
        if let Some(answerer) = &mut self.answerer {
            answerer.take_policy(is_on_trial, self.durable, notify)?;
        }
        Ok(())
    }

    /// Returns the number of starts so far, with which the serial line numbers its sessions.
    #[must_use]
    pub const fn boots(&self) -> u32 {
        self.durable.memory().boots()
    }

    /// Returns the settings, which broadcasts can change.
    #[must_use]
    pub const fn settings(&self) -> Settings {
        self.durable.memory().settings()
    }

    /// Returns whether all readings are sealed and the coordinator has every seal.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Returns whether the board is to restart now, to install an image of the firmware, or because
    /// a new image has failed.
    #[must_use]
    pub fn wants_restart(&self, now_ms: u64) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.wants_restart(now_ms))
    }

    /// Returns the times that are possible now; `None` until the mote knows the time. The comment of
    /// [`TrustedClock::range`] states which of its two limits an action must use.
    #[must_use]
    pub fn time(&self, now_ms: u64) -> Option<TimeRange> {
        self.clock.range(now_ms)
    }

    /// Sends again everything that the coordinator has not acknowledged. Call this after the serial
    /// line was opened again, because frames may have been lost.
    pub fn opened(&mut self, now_ms: u64) {
        self.clock.opened(now_ms);
        self.session.resend(outstanding(&mut self.open, self.durable));
    }

    /// Processes the body of a packet that arrived on a channel.
    ///
    /// # Errors
    /// [`Fault`].
    #[inline(never)]
    pub fn receive(
        &mut self,
        now_ms: u64,
        channel: Channel,
        body: &[u8],
        notify: &mut OnNotice<'_>,
    ) -> Result<(), Fault> {
        match channel {
            Channel::Coordinator if Refusal::is_claimed(body) => {
                self.on_refusal(now_ms, body, notify)
            }
            Channel::Coordinator if HealthSession::is_claimed(body) => {
                let unix_ms = self.earliest_ms(now_ms);
                if let Some(health) = &mut self.health
                    && let Ok(offer) = self.session.read_health_session(body)
                    && health.takes(now_ms, unix_ms, &offer)
                    && self.session.open_health_session(body) == Ok(true)
                {
                    health.report_again();
                }
                Ok(())
            }
            Channel::Coordinator => self.on_acknowledgement(now_ms, body, notify),
            Channel::CoordinatorAnnouncement => {
                self.on_announcement(body);
                Ok(())
            }
            Channel::SumsAnnouncement => {
                let unix_ms = self.earliest_ms(now_ms);
                if let Some(answerer) = &mut self.answerer {
                    self.clock.hasten(now_ms);
                    answerer.receive(unix_ms, body, self.durable, notify)?;
                }
                Ok(())
            }
            Channel::Broadcast => match &mut self.listener {
                Some(listener) => {
                    let time = self.clock.range(now_ms);
                    if time.is_none() {
                        self.clock.hasten(now_ms);
                    }
                    Ok(listener.receive(now_ms, time, body, self.durable, notify)?)
                }
                None => Ok(()),
            },
            Channel::Time => {
                let before = self.earliest_ms(now_ms);
                self.clock.receive(now_ms, body, self.provisioning, self.durable, notify)?;
                let after = self.earliest_ms(now_ms);
                if let Some(answerer) = &mut self.answerer {
                    answerer.stepped(before, after);
                }
                Ok(())
            }
            // On these channels the mote only sends.
            Channel::Sums | Channel::Firmware => Ok(()),
        }
    }

    /// Does the work that is due: takes readings, ends epochs, and signs seals.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn work(&mut self, now_ms: u64, notify: &mut OnNotice<'_>) -> Result<(), Fault> {
        for _ in 0..BATCH {
            if now_ms < self.due_ms || !self.sense(now_ms, notify)? {
                break;
            }
        }
        self.sign(now_ms, notify)?;
        if let Some(listener) = &mut self.listener {
            listener.supervise(now_ms, self.session.has_begun(), self.durable, notify)?;
        }
        self.take_policy(notify)?;
        if self.awaits_acknowledgement() && self.retry.is_due(now_ms) {
            self.session.timeout(outstanding(&mut self.open, self.durable));
        }
        Ok(())
    }

    /// If there is something to send, writes the next body to `out` and returns its channel and
    /// length. `out` must have room for the serial line's longest body.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn next_body(
        &mut self,
        now_ms: u64,
        out: &mut [u8],
        notify: &mut OnNotice<'_>,
    ) -> Result<Option<(Channel, usize)>, Fault> {
        if let Some(unix_ms) = self.earliest_ms(now_ms)
            && let Some(answerer) = &mut self.answerer
            && let Some(length) = answerer.next_body(unix_ms, out, self.durable, notify)?
        {
            return Ok(Some((Channel::Sums, length)));
        }
        let starts = self.boots();
        if let Some(length) = self.clock.next_body(now_ms, self.provisioning, starts, out) {
            return Ok(Some((Channel::Time, length)));
        }
        if let Some(listener) = &mut self.listener
            && let Some(length) = listener.next_report(out)
        {
            return Ok(Some((Channel::Firmware, length)));
        }
        // A report, of which there are few, does not wait until the coordinator has everything else.
        let memory = self.durable.memory();
        let figures = (memory.boots(), self.counts, memory.sealed().is_some().into());
        if let Some(health) = &mut self.health
            && let Some(length) = health.next_frame(now_ms, figures, &self.session, out)
        {
            return Ok(Some((Channel::Coordinator, length)));
        }
        if let Some(length) = self.frame(out) {
            self.retry.sent(now_ms);
            return Ok(Some((Channel::Coordinator, length)));
        }
        let time = self.time(now_ms);
        if let Some(listener) = &mut self.listener
            && let Some(length) = listener.next_body(now_ms, time, out, self.durable)?
        {
            return Ok(Some((Channel::Broadcast, length)));
        }
        Ok(None)
    }

    /// Writes the next frame to the coordinator. The mote sends seals strictly one after another,
    /// because the coordinator treats a seal as abandoned when a frame of the next seal arrives.
    #[inline(never)]
    fn frame(&mut self, out: &mut [u8]) -> Option<usize> {
        let mut scratch = [0; FRAME_EVENTS];
        let outstanding = outstanding(&mut self.open, self.durable);
        let schema = (self.provisioning.schema, self.schema);
        let frame = self.session.next_frame(schema, outstanding, &mut scratch, out);
        frame.ok()?.map(<[u8]>::len)
    }

    /// Returns the time for the epochs of queries: an epoch must not be answered before its end.
    fn earliest_ms(&self, now_ms: u64) -> Option<u64> {
        self.time(now_ms).map(|time| time.earliest_ms)
    }

    /// Returns whether the coordinator has not acknowledged everything yet, or has not answered in
    /// this session.
    fn awaits_acknowledgement(&self) -> bool {
        !self.session.has_begun()
            || self.durable.memory().sealed().is_some()
            || self.open.as_ref().is_some_and(|open| !open.forwarder.is_drained())
    }

    /// Takes the next reading, if possible. Returns whether the caller may call it again at once.
    #[inline(never)]
    fn sense(&mut self, now_ms: u64, notify: &mut OnNotice<'_>) -> Result<bool, Fault> {
        if self.is_done || self.open.as_ref().is_some_and(|open| open.ended.is_some()) {
            return Ok(false);
        }
        let holds_back =
            self.open.as_ref().is_some_and(|open| open.forwarder.buffered() > N / 4 * 3);
        if holds_back && self.readings.can_wait() {
            return Ok(false);
        }
        let memory = self.durable.memory();
        let (framing, scheme) = (self.framing, self.scheme());
        let (unix_ms, record) = match self.readings.next(self.place) {
            Next::Reading(_, record) if !fits(framing, record) => return Err(Fault::Schema),
            Next::Reading(unix_ms, record) => (unix_ms, record),
            Next::Later => return Ok(false),
            Next::Missed => {
                self.has_missed = true;
                if let Some(open) = &mut self.open {
                    open.end(false);
                }
                return Ok(self.open.is_none());
            }
            Next::Over => {
                match &mut self.open {
                    Some(open) => open.end(true),
                    None => {
                        self.is_done = memory.sealed().is_none();
                        if self.is_done {
                            notify(Notice::Done);
                        }
                    }
                }
                return Ok(false);
            }
        };
        let own = self.provisioning.epoch_of(unix_ms);
        let (first, last) = self.provisioning.epochs;
        // The epochs of seals never decrease, even if the times of the readings do.
        let closed = memory
            .position()
            .last
            .filter(|_| memory.position().epoch_closed)
            .map(|(_, epoch)| EpochNumber(epoch.0.saturating_add(1)));
        let least = memory.epoch().max(closed).unwrap_or_default();
        let epoch = own.max(least);
        let (oldest, newest) = self.keys.as_ref().map_or(EVERY_EPOCH, |keys| keys.epochs());
        if own < first || epoch < oldest {
            // Readings from before the roster's first epoch, or of an epoch whose keys are erased,
            // cannot be sealed. The next seal states that readings are missing.
            if let Some(open) = &mut self.open {
                open.end(false);
                return Ok(false);
            }
            if !core::mem::replace(&mut self.has_missed, true) {
                notify(Notice::TooEarly(self.place));
            }
            self.place = self.place.saturating_add(1);
            return Ok(true);
        }
        if epoch > newest || last.is_some_and(|last| epoch > last) {
            match &mut self.open {
                Some(open) => open.end(true),
                None if memory.sealed().is_none() => {
                    self.is_done = true;
                    notify(Notice::OutOfRange(self.place));
                }
                None => {}
            }
            return Ok(false);
        }
        if let Some(open) = self.open.as_mut().filter(|open| open.epoch < epoch) {
            open.end(true);
            return Ok(false);
        }
        if self.open.is_none() {
            if core::mem::take(&mut self.has_missed) {
                self.durable.skip_index()?;
            }
            let index = self.durable.open_seal(epoch)?;
            let announced = self.session.round_of(epoch);
            if let Some(keys) = &mut self.keys {
                keys.advance(epoch)?;
            }
            begin(
                &mut self.open,
                (self.provisioning, self.keys.as_deref(), self.durable.memory().boots()),
                self.framing,
                (index, epoch),
                scheme,
                announced,
            )?;
            notify(Notice::Opened(index, epoch, scheme));
        }
        if let Some(open) = &mut self.open {
            match open.take(record) {
                Ok(()) => {}
                Err(PushError::WrongLength) => return Err(Fault::Schema),
                // The seal is full: the epoch continues in a seal with the next index.
                Err(_) => {
                    open.end(false);
                    return Ok(false);
                }
            }
            self.counts.readings = self.counts.readings.wrapping_add(1);
            let time = self.clock.range(now_ms);
            if let (Some(answerer), Some(time)) = (&mut self.answerer, time) {
                answerer.sensed(time.earliest_ms, record);
            }
        }
        self.place = self.place.saturating_add(1);
        let interval_ms = u64::from(self.durable.memory().settings().interval_ms);
        // If readings were late, catch up by at most one interval.
        self.due_ms =
            self.due_ms.saturating_add(interval_ms).max(now_ms.saturating_sub(interval_ms));
        Ok(true)
    }

    /// Signs the ended seal once the coordinator has all events of this seal and has the previous
    /// seal.
    #[inline(never)]
    fn sign(&mut self, now_ms: u64, notify: &mut OnNotice<'_>) -> Result<(), Fault> {
        let memory = self.durable.memory();
        let is_ready = |open: &&mut Open<L, N>| {
            open.ended.is_some() && open.forwarder.is_drained() && memory.sealed().is_none()
        };
        let Some(open) = self.open.as_mut().filter(is_ready) else { return Ok(()) };
        let (position, answers) = (memory.position(), memory.unstated());
        let seal = open.seal(self.provisioning, self.schema, &position, &answers);
        let items = sign(self.provisioning, &position, &seal).map_err(|_| Fault::Sign)?;
        self.durable.keep_seal(
            &seal.position(),
            self.place,
            &answers,
            (items.open(), items.part()),
        )?;
        let statement = seal.statement();
        notify(Notice::Sealed(statement.index, statement.epoch, statement.counters.total()));
        self.open = None;
        self.session.reset_patience();
        self.retry.progress(now_ms);
        Ok(())
    }

    fn on_acknowledgement(
        &mut self,
        now_ms: u64,
        frame: &[u8],
        notify: &mut OnNotice<'_>,
    ) -> Result<(), Fault> {
        let Ok(Some(acknowledgement)) = self.session.open_acknowledgement(frame) else {
            return Ok(());
        };
        if self.is_behind(&acknowledgement) {
            return self.continue_after(now_ms, &acknowledgement, notify);
        }
        self.first_index = None;
        let sealed =
            self.durable.memory().sealed().map(|sealed| (sealed.index, events_of(sealed.part())));
        if let Some((index, _)) = sealed.filter(|(index, _)| is_sealed(&acknowledgement, *index)) {
            self.durable.seal_done(index)?;
            notify(Notice::Taken(index));
            self.session.reset_patience();
            self.retry.progress(now_ms);
            return Ok(());
        }
        let (oldest, is_news) = match (sealed, &mut self.open) {
            (Some((index, events)), _) => (Some((index, Sequence(events))), false),
            (None, Some(open)) => {
                let is_news = open.forwarder.acknowledge(&acknowledgement);
                (Some((open.index, open.forwarder.acknowledged())), is_news)
            }
            (None, None) => (None, false),
        };
        self.session.acknowledged(&acknowledgement, oldest, is_news);
        if is_news {
            self.retry.progress(now_ms);
        } else if self.session.is_abandoned() {
            self.give_up(now_ms, notify)?;
        }
        Ok(())
    }

    /// Returns whether the coordinator is ahead of the mote ([`is_ahead`]).
    fn is_behind(&self, acknowledgement: &Acknowledgement) -> bool {
        let memory = self.durable.memory();
        let position = memory.position();
        let sealed = memory.sealed().map(|sealed| Kept {
            index: sealed.index,
            events: events_of(sealed.part()),
            digest: Some(position.prev),
        });
        let open = self.open.as_ref().map(|open| Kept {
            index: open.index,
            events: open.forwarder.noted().into(),
            digest: None,
        });
        let next_index = self.first_index.unwrap_or(memory.next_index());
        is_ahead(acknowledgement, &position, next_index, sealed.into_iter().chain(open))
    }

    /// Continues after the newest seal that the coordinator has, because the mote's state is older
    /// than its past, or because a second device has the key. Gives up the seals that the mote
    /// keeps.
    #[inline(never)]
    fn continue_after(
        &mut self,
        now_ms: u64,
        acknowledgement: &Acknowledgement,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), Fault> {
        let stored = &acknowledgement.sealed;
        let next = self.session.index_after(acknowledgement, self.durable.memory().next_index());
        notify(Notice::RolledBack(stored.map(|stored| stored.index), next));
        while self.durable.memory().sealed().is_some() || self.open.is_some() {
            self.give_up(now_ms, notify)?;
        }
        self.durable.continue_after(stored.as_ref(), next)?;
        self.first_index = None;
        self.session.reset_patience();
        self.retry.progress(now_ms);
        Ok(())
    }

    fn on_refusal(
        &mut self,
        now_ms: u64,
        frame: &[u8],
        notify: &mut OnNotice<'_>,
    ) -> Result<(), Fault> {
        let sealed = self.durable.memory().sealed().map(|sealed| sealed.index);
        let oldest = sealed.or(self.open.as_ref().map(|open| open.index));
        let costs_readings = self.open.as_ref().is_some_and(|open| open.ended.is_some());
        if let Ok(Some(_)) = self.session.refused(frame, oldest, costs_readings) {
            self.give_up(now_ms, notify)?;
        }
        Ok(())
    }

    /// Gives up the oldest seal that the coordinator does not have. If the seal is signed, its
    /// place in the chain stays empty. If the seal is open, the mote seals the same readings again,
    /// provided that it can still read them.
    fn give_up(&mut self, now_ms: u64, notify: &mut OnNotice<'_>) -> Result<(), Fault> {
        self.session.reset_patience();
        if let Some(index) = self.durable.memory().sealed().map(|sealed| sealed.index) {
            self.durable.give_up_seal(index)?;
            self.counts.given_up = self.counts.given_up.wrapping_add(1);
            notify(Notice::GivenUp(index));
        } else if let Some(open) = self.open.take() {
            self.place = self.durable.memory().resume();
            self.readings.resume(self.place);
            self.due_ms = now_ms.saturating_add(PAUSE_MS);
            notify(Notice::GivenUp(open.index));
        }
        Ok(())
    }

    /// Processes an announcement of a sampling round. Ignores it if it is old or if the coordinator
    /// did not sign it.
    fn on_announcement(&mut self, body: &[u8]) {
        let (group, coordinator) = (self.provisioning.group, &self.provisioning.coordinator);
        if let Ok(announcement) = Announcement::open(body, group, coordinator) {
            let open = self.open.as_mut().map(|open| (open.epoch, &mut open.forwarder));
            self.session.announced(&announcement, open);
        }
    }

    /// Returns the scheme of the next seal: that of the settings, or a star if the schema has column
    /// groups.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        if self.has_groups { Scheme::Star } else { self.durable.memory().settings().scheme }
    }
}

/// Returns whether a record has the size that the schema requires.
fn fits(framing: Framing, record: &[u8]) -> bool {
    match framing {
        Framing::Fixed(size) => record.len() == usize::from(size.get()),
        Framing::Prefixed => record.len() <= usize::from(u16::MAX),
    }
}

/// Returns the oldest seal that the coordinator does not have: the signed seal if there is one,
/// otherwise the open seal.
fn outstanding<'a, F: Flash, const L: usize, const N: usize>(
    open: &'a mut Option<Open<L, N>>,
    durable: &'a Durable<F>,
) -> Option<Outstanding<'a, N>> {
    match (durable.memory().sealed(), open) {
        (Some(sealed), _) => Some(Outstanding {
            index: sealed.index,
            // A seal is signed only after the coordinator has all its events.
            forwarder: None,
            closing: Some(Closing { open: sealed.open(), part: sealed.part() }),
        }),
        (None, Some(open)) => Some(Outstanding {
            index: open.index,
            forwarder: Some(&mut open.forwarder),
            closing: None,
        }),
        (None, None) => None,
    }
}
