//! The complete mote, without a board: bytes of its channels and the time go in, bytes of channels
//! come out (spec/mote.md).
//!
//! It senses, seals, forwards within the group's budget, and waits for the coordinator; it answers
//! queries and acts on broadcasts. It has one open seal: when an epoch ends, its seal is signed
//! once the coordinator has its events, and the next epoch begins then. The session with the
//! coordinator is [`DeviceSession`]. Whatever must survive a reboot is in the journal before
//! anything that depends on it is sent or done. After an error the board must restart.

use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::provision::Provisioning;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Round, SealIndex, Sequence};
use moteseal_core::schema::Schema;
use moteseal_seal::device_session::{Closing, DeviceSession, Outstanding, is_sealed};
use moteseal_seal::sample::Announcement;
use moteseal_seal::star::PushError;
use moteseal_seal::wire::Refusal;
use moteseal_serial::Channel;

use crate::answerer::Answerer;
use crate::durable::{Durable, Settings};
use crate::flash::Flash;
use crate::journal::JournalError;
use crate::listener::Listener;
use crate::notice::{Notice, Tell};
use crate::open_seal::{Open, events_of, sign};
use crate::readings::{Next, Readings};
use crate::retry::Retry;

/// Readings that are taken between two looks at the line.
const BATCH: usize = 8;
/// Bytes of events and digests in one frame: with what stands around them, it fits a body of the
/// line.
const FRAME_EVENTS: usize = 1024;
/// How long a mote waits whose readings' seal was refused before it seals them again.
const PAUSE_MS: u64 = 10_000;

/// Why the mote cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The journal.
    Journal(JournalError),
    /// The schema is none, its records are longer than a frame, or what is sensed is not of their
    /// size.
    Schema,
    /// There are no such readings in flash.
    Readings,
    /// The group has more levels than the firmware is built for.
    Levels,
    /// The seal was not signed.
    Sign,
}

impl Fault {
    /// The fault's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Journal(error) => error.name(),
            Self::Schema => "SchemaUnusable",
            Self::Readings => "NoSuchReadings",
            Self::Levels => "LevelsMismatch",
            Self::Sign => "NotSigned",
        }
    }
}

impl From<JournalError> for Fault {
    fn from(error: JournalError) -> Self {
        Self::Journal(error)
    }
}

/// A mote of a group of at most `L` levels, with `N` bytes for events on their way.
pub struct Mote<'p, 'd, F, R, const L: usize, const N: usize> {
    told: &'p Provisioning<'p>,
    session: DeviceSession,
    schema: Digest,
    framing: Framing,
    durable: &'d mut Durable<F>,
    readings: R,
    /// The place of the next reading, and when it is due.
    place: u32,
    due_ms: u64,
    open: Option<Open<L, N>>,
    /// Readings were lost: the next seal leaves an index out.
    has_missed: bool,
    /// Everything is sealed, and the coordinator has it.
    is_done: bool,
    retry: Retry,
    answerer: Option<Answerer<'p>>,
    listener: Option<Listener<'p, 'd>>,
}

impl<'p, 'd, F: Flash, R: Readings, const L: usize, const N: usize> Mote<'p, 'd, F, R, L, N> {
    /// A mote that is to be [started](Self::start), where the journal says that it was.
    // Large parts are made where they lie, when they are needed: a board has no stack to move them
    // over.
    pub fn new(
        told: &'p Provisioning<'p>,
        durable: &'d mut Durable<F>,
        listener: Option<Listener<'p, 'd>>,
        readings: R,
    ) -> Self {
        Self {
            told,
            session: DeviceSession::new(told.device, LinkKey::new(&told.link_secret)),
            schema: Digest::NULL,
            framing: Framing::Prefixed,
            place: 0,
            durable,
            readings,
            due_ms: 0,
            open: None,
            has_missed: false,
            is_done: false,
            retry: Retry::new(),
            answerer: told.sums.as_ref().map(|of| Answerer::new(told, of)),
            listener,
        }
    }

    /// Starts: before this nothing else is to be done with it.
    ///
    /// # Errors
    /// `Schema`, `Levels`, `Journal`.
    pub fn start(&mut self, now_ms: u64, tell: &mut Tell<'_>) -> Result<(), Fault> {
        let schema = Schema::decode(self.told.schema).map_err(|_| Fault::Schema)?;
        self.framing = schema
            .record_size()
            .map_or(Some(Framing::Prefixed), Framing::fixed)
            .ok_or(Fault::Schema)?;
        // Readings of another size would be sealed by nobody.
        if schema
            .record_size()
            .zip(self.readings.record_size())
            .is_some_and(|(told, has)| told != has)
        {
            return Err(Fault::Schema);
        }
        self.schema = schema.digest();
        if usize::from(self.told.levels) > L {
            return Err(Fault::Levels);
        }
        self.durable.sense_from(self.told.window.first, self.told.window.start_ms)?;
        self.place = self.durable.memory().resume();
        self.due_ms = now_ms;
        self.readings.resume(self.place);
        tell(Notice::Started(self.boots()));
        Ok(())
    }

    /// How often it has started: another number at each start, as a serial line wants one.
    #[must_use]
    pub const fn boots(&self) -> u32 {
        self.durable.memory().boots()
    }

    /// What broadcasts have set.
    #[must_use]
    pub const fn settings(&self) -> Settings {
        self.durable.memory().settings()
    }

    /// Whether everything is sealed, and the coordinator has it.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.is_done
    }

    /// The line was opened anew: what was sent and not acknowledged may be lost.
    pub fn opened(&mut self) {
        self.session.resend(outstanding(&mut self.open, self.durable));
    }

    /// Hears a body of a channel.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn hear(
        &mut self,
        now_ms: u64,
        channel: Channel,
        body: &[u8],
        tell: &mut Tell<'_>,
    ) -> Result<(), Fault> {
        match channel {
            Channel::Coordinator if Refusal::is_claimed(body) => {
                self.hear_refusal(now_ms, body, tell)
            }
            Channel::Coordinator => self.hear_acknowledgement(now_ms, body, tell),
            Channel::CoordinatorAnnouncement => {
                self.hear_announcement(body);
                Ok(())
            }
            Channel::SumsAnnouncement => match &mut self.answerer {
                Some(answerer) => Ok(answerer.hear(now_ms, body, self.durable, tell)?),
                None => Ok(()),
            },
            Channel::Broadcast => match &mut self.listener {
                Some(listener) => Ok(listener.hear(now_ms, body, self.durable, tell)?),
                None => Ok(()),
            },
            Channel::Time => {
                if let (Some(answerer), Some(unix_ms)) = (&mut self.answerer, body.first_chunk()) {
                    answerer.hint(now_ms, u64::from_be_bytes(*unix_ms));
                }
                Ok(())
            }
            // A answerer is asked nothing by frames.
            Channel::Sums => Ok(()),
        }
    }

    /// Does what the time asks for: senses, ends epochs, signs.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn work(&mut self, now_ms: u64, tell: &mut Tell<'_>) -> Result<(), Fault> {
        for _ in 0..BATCH {
            if now_ms < self.due_ms || !self.sense(now_ms, tell)? {
                break;
            }
        }
        self.sign(now_ms, tell)?;
        if self.waits() && self.retry.is_due(now_ms) {
            self.session.timeout(outstanding(&mut self.open, self.durable));
        }
        Ok(())
    }

    /// Writes the next body to be sent to `out`, which has room for one of the line's longest; its
    /// channel and length.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn say(
        &mut self,
        now_ms: u64,
        out: &mut [u8],
        tell: &mut Tell<'_>,
    ) -> Result<Option<(Channel, usize)>, Fault> {
        if let Some(answerer) = &mut self.answerer
            && let Some(length) = answerer.say(now_ms, out, self.durable, tell)?
        {
            return Ok(Some((Channel::Sums, length)));
        }
        if let Some(length) = self.frame(out) {
            self.retry.sent(now_ms);
            return Ok(Some((Channel::Coordinator, length)));
        }
        if let Some(listener) = &mut self.listener
            && let Some(length) = listener.say(now_ms, out, self.durable)?
        {
            return Ok(Some((Channel::Broadcast, length)));
        }
        Ok(None)
    }

    /// The next frame to the coordinator. One seal after the other: a frame of the next one would
    /// tell it that this one was abandoned.
    #[inline(never)]
    fn frame(&mut self, out: &mut [u8]) -> Option<usize> {
        let mut scratch = [0; FRAME_EVENTS];
        let outstanding = outstanding(&mut self.open, self.durable);
        let schema = (self.told.schema, self.schema);
        let frame = self.session.next_frame(schema, outstanding, &mut scratch, out);
        frame.ok()?.map(<[u8]>::len)
    }

    /// Whether anything was sent that is not acknowledged.
    fn waits(&self) -> bool {
        self.durable.memory().sealed().is_some()
            || self.open.as_ref().is_some_and(|open| !open.forwarder.is_drained())
    }

    /// Takes the next reading, if it can be taken now.
    #[inline(never)]
    fn sense(&mut self, now_ms: u64, tell: &mut Tell<'_>) -> Result<bool, Fault> {
        if self.is_done || self.open.as_ref().is_some_and(|open| open.ended.is_some()) {
            return Ok(false);
        }
        let holds_back =
            self.open.as_ref().is_some_and(|open| open.forwarder.buffered() > N / 4 * 3);
        if holds_back && self.readings.can_wait() {
            return Ok(false);
        }
        let memory = self.durable.memory();
        let framing = self.framing;
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
                            tell(Notice::Done);
                        }
                    }
                }
                return Ok(false);
            }
        };
        let own = EpochNumber(unix_ms / self.told.epoch_ms);
        let (first, last) = self.told.epochs;
        if own < first {
            // Before the roster there is nothing to seal them in; the next seal says that something
            // is missing.
            if let Some(open) = &mut self.open {
                open.end(false);
                return Ok(false);
            }
            if !core::mem::replace(&mut self.has_missed, true) {
                tell(Notice::TooEarly(self.place));
            }
            self.place = self.place.saturating_add(1);
            return Ok(true);
        }
        // Epochs never go back, whatever clock the readings have.
        let closed = memory
            .position()
            .last
            .filter(|_| memory.position().epoch_closed)
            .map(|(_, epoch)| EpochNumber(epoch.0 + 1));
        let least = memory.epoch().max(closed).unwrap_or_default();
        let epoch = own.max(least);
        if last.is_some_and(|last| epoch > last) {
            match &mut self.open {
                Some(open) => open.end(true),
                None if memory.sealed().is_none() => {
                    self.is_done = true;
                    tell(Notice::OutOfRange(self.place));
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
            let scheme = self.durable.memory().settings().scheme;
            let announced = self.session.round_of(epoch);
            begin(&mut self.open, self.told, self.framing, (index, epoch), scheme, announced);
            tell(Notice::Opened(index, epoch, scheme));
        }
        if let Some(open) = &mut self.open {
            match open.take(record) {
                Ok(()) => {}
                Err(PushError::WrongLength) => return Err(Fault::Schema),
                // The epoch goes on under the next index.
                Err(_) => {
                    open.end(false);
                    return Ok(false);
                }
            }
            if let Some(answerer) = &mut self.answerer {
                answerer.sensed(now_ms, record);
            }
        }
        self.place = self.place.saturating_add(1);
        let interval_ms = u64::from(self.durable.memory().settings().interval_ms);
        // One that was late does not make the next ones early.
        self.due_ms =
            self.due_ms.saturating_add(interval_ms).max(now_ms.saturating_sub(interval_ms));
        Ok(true)
    }

    /// Signs the seal that has ended, once the coordinator has its events and the seal before it.
    #[inline(never)]
    fn sign(&mut self, now_ms: u64, tell: &mut Tell<'_>) -> Result<(), Fault> {
        let memory = self.durable.memory();
        let is_ready = |open: &&mut Open<L, N>| {
            open.ended.is_some() && open.forwarder.is_drained() && memory.sealed().is_none()
        };
        let Some(open) = self.open.as_mut().filter(is_ready) else { return Ok(()) };
        let (position, answers) = (memory.position(), memory.unstated());
        let seal = open.seal(self.told, self.schema, &position, &answers);
        let items = sign(self.told, &position, &seal).map_err(|_| Fault::Sign)?;
        self.durable.keep_seal(
            &seal.position(),
            self.place,
            &answers,
            (items.open(), items.part()),
        )?;
        let statement = seal.statement();
        tell(Notice::Sealed(statement.index, statement.epoch, statement.counters.total()));
        self.open = None;
        self.session.reset_patience();
        self.retry.news(now_ms);
        Ok(())
    }

    fn hear_acknowledgement(
        &mut self,
        now_ms: u64,
        frame: &[u8],
        tell: &mut Tell<'_>,
    ) -> Result<(), Fault> {
        let Ok(acknowledgement) = self.session.open_acknowledgement(frame) else {
            return Ok(());
        };
        let sealed =
            self.durable.memory().sealed().map(|sealed| (sealed.index, events_of(sealed.part())));
        if let Some((index, _)) = sealed.filter(|(index, _)| is_sealed(&acknowledgement, *index)) {
            self.durable.seal_done(index)?;
            tell(Notice::Taken(index));
            self.session.reset_patience();
            self.retry.news(now_ms);
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
            self.retry.news(now_ms);
        } else if self.session.is_forsaken() {
            self.give_up(now_ms, tell)?;
        }
        Ok(())
    }

    fn hear_refusal(
        &mut self,
        now_ms: u64,
        frame: &[u8],
        tell: &mut Tell<'_>,
    ) -> Result<(), Fault> {
        let sealed = self.durable.memory().sealed().map(|sealed| sealed.index);
        let oldest = sealed.or(self.open.as_ref().map(|open| open.index));
        let costs_readings = self.open.as_ref().is_some_and(|open| open.ended.is_some());
        if let Ok(Some(_)) = self.session.refused(frame, oldest, costs_readings) {
            self.give_up(now_ms, tell)?;
        }
        Ok(())
    }

    /// Gives up the oldest seal. One that was signed stays missing from the chain; readings of an
    /// open one are sealed again, where they can be.
    fn give_up(&mut self, now_ms: u64, tell: &mut Tell<'_>) -> Result<(), Fault> {
        self.session.reset_patience();
        if let Some(index) = self.durable.memory().sealed().map(|sealed| sealed.index) {
            self.durable.give_up_seal(index)?;
            tell(Notice::GivenUp(index));
        } else if let Some(open) = self.open.take() {
            self.place = self.durable.memory().resume();
            self.readings.resume(self.place);
            self.due_ms = now_ms.saturating_add(PAUSE_MS);
            tell(Notice::GivenUp(open.index));
        }
        Ok(())
    }

    /// Hears the coordinator's word on the round; what is old, or another's, changes nothing.
    fn hear_announcement(&mut self, body: &[u8]) {
        let (group, coordinator) = (self.told.group, &self.told.coordinator);
        if let Ok(announcement) = Announcement::open(body, group, coordinator) {
            let open = self.open.as_mut().map(|open| (open.epoch, &mut open.forwarder));
            self.session.announced(&announcement, open);
        }
    }

    /// Which scheme the next seal has.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.durable.memory().settings().scheme
    }
}

/// Whether a record is of the schema's size.
fn fits(framing: Framing, record: &[u8]) -> bool {
    match framing {
        Framing::Fixed(size) => record.len() == usize::from(size.get()),
        Framing::Prefixed => record.len() <= usize::from(u16::MAX),
    }
}

/// Opens a seal. Apart, so that what is made here is on the stack only meanwhile.
#[inline(never)]
fn begin<const L: usize, const N: usize>(
    open: &mut Option<Open<L, N>>,
    told: &Provisioning<'_>,
    framing: Framing,
    which: (SealIndex, EpochNumber),
    scheme: Scheme,
    announced: Round,
) {
    *open = Open::new(told, framing, which, scheme, announced);
}

/// The oldest seal that the coordinator does not have: the signed one, or else the open one.
fn outstanding<'a, F: Flash, const L: usize, const N: usize>(
    open: &'a mut Option<Open<L, N>>,
    durable: &'a Durable<F>,
) -> Option<Outstanding<'a, N>> {
    match (durable.memory().sealed(), open) {
        (Some(sealed), _) => Some(Outstanding {
            index: sealed.index,
            // It was signed only once the coordinator had all of its events.
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
