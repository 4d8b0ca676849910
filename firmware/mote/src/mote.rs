//! The whole mote, without a board: bytes of five channels and the time come in, bytes of channels go out (spec/mote.md).
//!
//! It senses, seals, forwards within the group's budget, and waits for the coordinator; it answers queries and acts on broadcasts. One seal at
//! a time: an epoch that is over is signed once the coordinator has its events, and the next one begins when it is. What must survive a
//! reboot is in the journal before anything is sent or done on its account. After an error nothing more may be done: the board restarts.

use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::provision::Provisioning;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, Framing, Round, SealIndex};
use moteseal_core::schema::Schema;
use moteseal_seal::frame::{Acknowledgement, Refusal, Uplink};
use moteseal_seal::sample::Announcement;
use moteseal_seal::star::PushError;
use moteseal_serial::Channel;

use crate::flash::Flash;
use crate::journal::JournalError;
use crate::listener::Listener;
use crate::memory::{Durable, Settings};
use crate::open::{Open, events_of, sign};
use crate::readings::{Next, Readings};
use crate::report::{Report, Tell};
use crate::retry::Retry;
use crate::source::Source;

/// Readings that are taken between two looks at the line.
const BATCH: usize = 8;
/// Bytes of events and digests in one frame: with what stands around them, it fits a body of the line.
const FRAME_EVENTS: usize = 1024;
/// After so many timeouts in a row a gateway that answers, and does not know what it has acknowledged, will not know it again.
const PATIENCE: u8 = 4;
/// How long a mote waits whose readings' seal was refused before it seals them again.
const PAUSE_MS: u64 = 10_000;

/// Why the mote cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The journal.
    Journal(JournalError),
    /// The schema is none, its records are longer than a frame, or what is sensed is not of their size.
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
    link: LinkKey,
    schema: Digest,
    framing: Framing,
    durable: &'d mut Durable<F>,
    readings: R,
    /// The place of the next reading, and when it is due.
    place: u32,
    due_ms: u64,
    open: Option<Open<L, N>>,
    /// The highest round that was announced, and its epoch.
    announced: (EpochNumber, Round),
    wants_schema: bool,
    /// The closing frame of the signed seal was sent.
    is_close_sent: bool,
    /// Readings were lost: the next seal leaves an index out.
    has_missed: bool,
    /// Everything is sealed, and the coordinator has it.
    is_done: bool,
    retry: Retry,
    /// Everything was sent again, and the gateway has not answered since.
    has_asked: bool,
    /// How often in a row the gateway did not know what it had acknowledged of the oldest seal.
    unknown: u8,
    source: Option<Source<'p>>,
    listener: Option<Listener<'p, 'd>>,
}

impl<'p, 'd, F: Flash, R: Readings, const L: usize, const N: usize> Mote<'p, 'd, F, R, L, N> {
    /// A mote that is to be [started](Self::start), where the journal says that it was.
    // Large parts are made where they lie, when they are needed: a board has no stack to move them over.
    pub fn new(
        told: &'p Provisioning<'p>,
        durable: &'d mut Durable<F>,
        listener: Option<Listener<'p, 'd>>,
        readings: R,
    ) -> Self {
        Self {
            told,
            link: LinkKey::new(&told.link_secret),
            schema: Digest::NULL,
            framing: Framing::Prefixed,
            place: 0,
            durable,
            readings,
            due_ms: 0,
            open: None,
            announced: (EpochNumber(0), Round(0)),
            wants_schema: true,
            is_close_sent: false,
            has_missed: false,
            is_done: false,
            retry: Retry::new(),
            has_asked: false,
            unknown: 0,
            source: told.sums.as_ref().map(|of| Source::new(told, of)),
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
        tell(Report::Started(self.boots()));
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
        self.resend();
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
            Channel::Coordinator if Refusal::is_claimed(body) => self.hear_refusal(now_ms, body, tell),
            Channel::Coordinator => self.hear_acknowledgement(now_ms, body, tell),
            Channel::CoordinatorAnnouncement => {
                self.hear_announcement(body);
                Ok(())
            }
            Channel::SumsAnnouncement => match &mut self.source {
                Some(source) => Ok(source.hear(now_ms, body, self.durable, tell)?),
                None => Ok(()),
            },
            Channel::Broadcast => match &mut self.listener {
                Some(listener) => Ok(listener.hear(now_ms, body, self.durable, tell)?),
                None => Ok(()),
            },
            Channel::Time => {
                if let (Some(source), Some(unix_ms)) = (&mut self.source, body.first_chunk()) {
                    source.hint(now_ms, u64::from_be_bytes(*unix_ms));
                }
                Ok(())
            }
            // A source is asked nothing by frames.
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
            self.resend();
            self.has_asked = true;
        }
        Ok(())
    }

    /// Writes the next body to be sent to `out`, which has room for one of the line's longest; its channel and length.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn say(
        &mut self,
        now_ms: u64,
        out: &mut [u8],
        tell: &mut Tell<'_>,
    ) -> Result<Option<(Channel, usize)>, Fault> {
        if let Some(source) = &mut self.source
            && let Some(length) = source.say(now_ms, out, self.durable, tell)?
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

    /// The next frame to the coordinator. One seal after the other: a frame of the next one would tell it that this one was abandoned.
    #[inline(never)]
    fn frame(&mut self, out: &mut [u8]) -> Option<usize> {
        let mut scratch = [0; FRAME_EVENTS];
        let sealed = self.durable.memory().sealed();
        let uplink = if core::mem::take(&mut self.wants_schema) {
            Uplink::Schema(self.told.schema)
        } else if let Some(sealed) = sealed {
            if core::mem::replace(&mut self.is_close_sent, true) {
                return None;
            }
            Uplink::Close { schema: self.schema, open: sealed.open(), part: sealed.part() }
        } else {
            Uplink::Forward(self.open.as_mut()?.forwarder.next_frame(&mut scratch).ok()??)
        };
        uplink.close(self.told.device, &self.link, out).ok().map(<[u8]>::len)
    }

    /// Whether anything was sent that is not acknowledged.
    fn waits(&self) -> bool {
        self.durable.memory().sealed().is_some()
            || self.open.as_ref().is_some_and(|open| !open.forwarder.is_drained())
    }

    /// Everything that is not acknowledged is due again.
    fn resend(&mut self) {
        self.wants_schema |= self.durable.memory().sealed().is_some();
        self.is_close_sent = false;
        if let Some(open) = &mut self.open {
            open.forwarder.rewind();
        }
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
                            tell(Report::Done);
                        }
                    }
                }
                return Ok(false);
            }
        };
        let own = EpochNumber(unix_ms / self.told.epoch_ms);
        let (first, last) = self.told.epochs;
        if own < first {
            // Before the roster there is nothing to seal them in; the next seal says that something is missing.
            if let Some(open) = &mut self.open {
                open.end(false);
                return Ok(false);
            }
            if !core::mem::replace(&mut self.has_missed, true) {
                tell(Report::TooEarly(self.place));
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
                    tell(Report::OutOfRange(self.place));
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
            let announced = if self.announced.0 == epoch { self.announced.1 } else { Round(0) };
            begin(&mut self.open, self.told, self.framing, (index, epoch), scheme, announced);
            tell(Report::Opened(index, epoch, scheme));
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
            if let Some(source) = &mut self.source {
                source.sensed(now_ms, record);
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
        tell(Report::Sealed(statement.index, statement.epoch, statement.counters.total()));
        self.open = None;
        self.is_close_sent = false;
        (self.has_asked, self.unknown) = (false, 0);
        self.retry.news(now_ms);
        Ok(())
    }

    fn hear_acknowledgement(
        &mut self,
        now_ms: u64,
        frame: &[u8],
        tell: &mut Tell<'_>,
    ) -> Result<(), Fault> {
        let Ok(said) = Acknowledgement::open(frame, self.told.device, &self.link) else {
            return Ok(());
        };
        self.wants_schema |= said.wants_schema;
        let sealed =
            self.durable.memory().sealed().map(|sealed| (sealed.index, events_of(sealed.part())));
        if let Some((index, _)) =
            sealed.filter(|(index, _)| said.sealed.is_some_and(|taken| *index <= taken))
        {
            self.durable.seal_done(index)?;
            tell(Report::Taken(index));
            (self.has_asked, self.unknown) = (false, 0);
            self.retry.news(now_ms);
            return Ok(());
        }
        let mut is_news = false;
        // Of an earlier seal it speaks where nothing of this one has come. Of a later one it never does to a mote that waits.
        let (oldest, held) = match (sealed, &mut self.open) {
            (Some((index, events)), _) => (index, events),
            (None, Some(open)) => {
                let before = open.forwarder.acknowledged();
                is_news = open.forwarder.acknowledge(&said);
                (open.index, before.0)
            }
            (None, None) => return Ok(()),
        };
        let is_unknown =
            if said.index == oldest { said.next.0 < held } else { said.index > oldest || held > 0 };
        if is_news || !is_unknown {
            (self.has_asked, self.unknown) = (false, 0);
            if is_news {
                self.retry.news(now_ms);
            }
        } else if core::mem::take(&mut self.has_asked) {
            self.unknown = self.unknown.saturating_add(1);
            if self.unknown >= PATIENCE {
                self.give_up(now_ms, tell)?;
            }
        }
        Ok(())
    }

    fn hear_refusal(
        &mut self,
        now_ms: u64,
        frame: &[u8],
        tell: &mut Tell<'_>,
    ) -> Result<(), Fault> {
        let Ok(said) = Refusal::open(frame, self.told.device, &self.link) else { return Ok(()) };
        let sealed = self.durable.memory().sealed().map(|sealed| sealed.index);
        let oldest = sealed.or(self.open.as_ref().map(|open| open.index));
        // What another roster or another time may change is waited for as long as it holds up no reading.
        let costs_others = self.open.as_ref().is_some_and(|open| open.ended.is_some());
        if oldest == Some(said.index) && (said.is_final || costs_others) {
            self.give_up(now_ms, tell)?;
        }
        Ok(())
    }

    /// Gives up the oldest seal. One that was signed stays missing from the chain; readings of an open one are sealed again, where they can be.
    fn give_up(&mut self, now_ms: u64, tell: &mut Tell<'_>) -> Result<(), Fault> {
        (self.has_asked, self.unknown) = (false, 0);
        if let Some(index) = self.durable.memory().sealed().map(|sealed| sealed.index) {
            self.durable.give_up_seal(index)?;
            tell(Report::GivenUp(index));
        } else if let Some(open) = self.open.take() {
            self.place = self.durable.memory().resume();
            self.readings.resume(self.place);
            self.due_ms = now_ms.saturating_add(PAUSE_MS);
            tell(Report::GivenUp(open.index));
        }
        Ok(())
    }

    /// Hears the coordinator's word on the round; what is old, or another's, changes nothing.
    fn hear_announcement(&mut self, body: &[u8]) {
        let Ok(word) = Announcement::open(body, self.told.group, &self.told.coordinator) else {
            return;
        };
        let heard = (word.epoch(), word.round());
        self.announced = self.announced.max(heard);
        if let Some(open) = self.open.as_mut().filter(|open| open.epoch == heard.0) {
            open.forwarder.announced(heard.1);
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
