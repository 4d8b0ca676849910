//! The part of a mote's state that survives a reboot, and the journal records that change it
//! (spec/mote.md, section 3).
//!
//! RAM holds a copy of the state. Each method of [`Durable`] that changes the state returns only
//! after the change is in the journal. The comment of each method states what the caller must not
//! do before the method returns. After an error, the mote must not seal, encrypt or act on anything
//! until the next start.

mod answering;
mod fields;
mod firmware;

pub use answering::AnswerRefused;
use answering::add_answer;
use fields::{Content, Fields};
pub use firmware::FirmwareState;
use moteseal_broadcast::{ChainNumber, KeyId, MAX_REVOKED_BYTES, Revoked};
use moteseal_core::digest::Digest;
use moteseal_core::provision::MAX_POLICY_PAYLOAD;
use moteseal_core::record::Scheme;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_seal::wire::StoredSeal;
use moteseal_seal::{Answered, Answers, Position};
use moteseal_sum::guard::{EpochGuard, GUARD_LENGTH};
use moteseal_sum::policy::Ledger;
use moteseal_sum::query::QueryId;

use crate::flash::Flash;
use crate::journal::{Journal, JournalError, Page};

/// The maximum length of a closed seal's open item and part item together, in bytes. The part item
/// has no events; the group may have up to 32 levels, and the schema two encrypted columns.
pub const MAX_ITEMS: usize = 768;
/// The maximum number of runs of answers that no seal states yet. A run covers consecutive epochs
/// of one query. Half of the runs are reserved for the answers of a seal that is given up.
const MAX_UNSTATED: usize = 16;
/// The maximum number of senders' keys for which the newest chain is recorded. Keys are never
/// removed, because an attacker could then replay old chains of a removed key. The mote refuses
/// chains of any further key.
const MAX_FLOORS: usize = 4;

const IDENTITY: u8 = 0;
const BOOT: u8 = 1;
const OPEN: u8 = 2;
const SEALED: u8 = 3;
const DONE: u8 = 4;
const GIVEN_UP: u8 = 5;
const GUARD: u8 = 6;
const ANSWERED: u8 = 7;
const QUERY_SCHEDULE: u8 = 8;
const FLOOR: u8 = 9;
const REVOKED: u8 = 10;
const SETTINGS: u8 = 11;
const UNSTATED: u8 = 12;
const POSITION: u8 = 13;
const RECORDING: u8 = 14;
const TIME: u8 = 15;
const FIRMWARE: u8 = 16;
const POLICY: u8 = 17;
const LEDGER: u8 = 18;

/// The settings that broadcasts change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Milliseconds between two readings.
    pub interval_ms: u32,
    /// Whether the LED is on.
    pub led: bool,
    /// The scheme of the seals that the mote opens from now on.
    pub scheme: Scheme,
}

/// A signed seal that the coordinator does not have yet.
#[derive(Clone)]
pub struct Sealed {
    /// The seal's index.
    pub index: SealIndex,
    answers: Answers,
    open: u16,
    length: u16,
    items: [u8; MAX_ITEMS],
}

impl Sealed {
    /// Returns the open item of the seal's closing frame.
    #[must_use]
    pub fn open(&self) -> &[u8] {
        self.items.get(..usize::from(self.open)).unwrap_or_default()
    }

    /// Returns the part item of the seal's closing frame, without events.
    #[must_use]
    pub fn part(&self) -> &[u8] {
        self.items.get(usize::from(self.open)..usize::from(self.length)).unwrap_or_default()
    }
}

/// The state that survives a reboot.
#[derive(Clone)]
pub struct Memory {
    device: DeviceId,
    certificate: Digest,
    boots: u32,
    position: Position,
    next_index: SealIndex,
    epoch: Option<EpochNumber>,
    recording: Option<(u32, u64)>,
    resume: u32,
    sealed: Option<Sealed>,
    guard: Option<EpochGuard>,
    unstated: Runs,
    schedule: Option<(u64, Digest)>,
    /// The length of the payload of the policy; 0 if there is none.
    policy_length: usize,
    policy: [u8; MAX_POLICY_PAYLOAD],
    ledger: Option<Ledger>,
    floors: [Option<(KeyId, ChainNumber)>; MAX_FLOORS],
    revoked: Revoked,
    settings: Settings,
    time_floor: u64,
    firmware: FirmwareState,
}

/// The answers that no seal states yet, in runs of consecutive epochs of one query, in the order in
/// which the runs began.
type Runs = [Option<Answered>; MAX_UNSTATED];

impl Memory {
    fn new(device: DeviceId, certificate: Digest, settings: Settings) -> Self {
        Self {
            device,
            certificate,
            boots: 0,
            position: Position::start(certificate),
            next_index: SealIndex(0),
            epoch: None,
            recording: None,
            resume: 0,
            sealed: None,
            guard: None,
            unstated: [None; MAX_UNSTATED],
            schedule: None,
            policy_length: 0,
            policy: [0; MAX_POLICY_PAYLOAD],
            ledger: None,
            floors: [None; MAX_FLOORS],
            revoked: Revoked::NONE,
            settings,
            time_floor: 0,
            firmware: FirmwareState::NEW,
        }
    }

    /// Returns the number of starts.
    #[must_use]
    pub const fn boots(&self) -> u32 {
        self.boots
    }

    /// Returns the device's position in its chain of seals, after the newest signed seal.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Returns the next index, which has never been opened.
    #[must_use]
    pub const fn next_index(&self) -> SealIndex {
        self.next_index
    }

    /// Returns the latest epoch that was opened.
    #[must_use]
    pub const fn epoch(&self) -> Option<EpochNumber> {
        self.epoch
    }

    /// Returns the place in the recording of the first reading that no signed seal covers.
    #[must_use]
    pub const fn resume(&self) -> u32 {
        self.resume
    }

    /// Returns the signed seal that the coordinator does not have yet.
    #[must_use]
    pub const fn sealed(&self) -> Option<&Sealed> {
        self.sealed.as_ref()
    }

    /// Returns the number and the digest of the newest query schedule that was accepted.
    #[must_use]
    pub const fn schedule(&self) -> Option<(u64, Digest)> {
        self.schedule
    }

    /// Returns the payload of the newest policy that the mote has had, if there is one.
    #[must_use]
    pub fn policy(&self) -> Option<&[u8]> {
        self.policy.get(..self.policy_length).filter(|payload| !payload.is_empty())
    }

    /// Returns the budget that is spent; `None` if nothing was charged yet.
    #[must_use]
    pub const fn ledger(&self) -> Option<Ledger> {
        self.ledger
    }

    /// Returns the last answered epoch of a query, if the guard still lists the query.
    #[must_use]
    pub fn last_answer(&self, query: QueryId) -> Option<u64> {
        self.guard.as_ref()?.last(query)
    }

    /// Returns the number of the newest chain that was accepted under a sender's key.
    #[must_use]
    pub fn floor(&self, key: KeyId) -> Option<ChainNumber> {
        self.floors.iter().flatten().find(|(of, _)| *of == key).map(|(_, number)| *number)
    }

    /// Returns the place that holds the newest chain of this key, or a free place.
    fn floor_place(&mut self, key: KeyId) -> Option<&mut Option<(KeyId, ChainNumber)>> {
        self.floors.iter_mut().find(|place| place.is_none_or(|(of, _)| of == key))
    }

    /// Returns whether the newest chain of this key can be recorded.
    #[must_use]
    pub fn has_floor(&self, key: KeyId) -> bool {
        self.floors.iter().any(|place| place.is_none_or(|(of, _)| of == key))
    }

    /// Returns what the base station has revoked.
    #[must_use]
    pub const fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// Returns the settings, which broadcasts can change.
    #[must_use]
    pub const fn settings(&self) -> Settings {
        self.settings
    }

    /// Returns the lower limit of the time, in Unix milliseconds; 0 if there is none. It is the
    /// newest recorded time or the end of the newest answered epoch, whichever is later.
    #[must_use]
    pub const fn time_floor(&self) -> u64 {
        self.time_floor
    }

    /// Returns the answers that no seal states yet, as many of them as one seal can state.
    #[must_use]
    pub fn unstated(&self) -> Answers {
        let mut answers = Answers::NONE;
        for run in self.unstated.iter().flatten() {
            let _ = answers.push(*run);
        }
        answers
    }

    /// Removes the answers that a seal states from the unstated answers.
    fn state(&mut self, answers: &Answers) {
        let is_left = |run: &Answered| !answers.runs().any(|stated| stated == *run);
        let mut left = [None; MAX_UNSTATED];
        for (place, run) in
            left.iter_mut().zip(self.unstated.iter().flatten().copied().filter(is_left))
        {
            *place = Some(run);
        }
        self.unstated = left;
    }

    /// Applies a journal record to the state.
    fn apply(&mut self, kind: u8, content: &[u8]) -> Result<(), JournalError> {
        let mut fields = Fields(content);
        match kind {
            IDENTITY => {
                if (DeviceId(fields.take()?), Digest(fields.take()?))
                    != (self.device, self.certificate)
                {
                    return Err(JournalError::Damaged);
                }
            }
            BOOT => self.boots = fields.u32()?,
            OPEN => {
                self.next_index = SealIndex(fields.u32()?);
                self.epoch = fields.bool()?.then_some(EpochNumber(fields.u64()?));
            }
            SEALED => {
                let position = fields.position()?;
                let (resume, [open], length) = (fields.u32()?, fields.take()?, fields.take()?);
                let length = u16::from_be_bytes(length);
                let mut answers = Answers::NONE;
                for run in fields.runs()?.iter().flatten() {
                    if !answers.push(*run) {
                        return Err(JournalError::Damaged);
                    }
                }
                let (index, _) = position.last.ok_or(JournalError::Damaged)?;
                let mut sealed =
                    Sealed { index, answers, open: u16::from(open), length, items: [0; MAX_ITEMS] };
                let place =
                    sealed.items.get_mut(..usize::from(length)).ok_or(JournalError::Damaged)?;
                if fields.0.len() != place.len() || length < u16::from(open) {
                    return Err(JournalError::Damaged);
                }
                place.copy_from_slice(fields.0);
                fields.0 = &[];
                self.state(&answers);
                (self.position, self.resume, self.sealed) = (position, resume, Some(sealed));
            }
            DONE | GIVEN_UP => {
                let index = SealIndex(fields.u32()?);
                if let Some(sealed) = self.sealed.take_if(|sealed| sealed.index <= index)
                    && kind == GIVEN_UP
                {
                    let mut runs = [None; MAX_UNSTATED];
                    let all = sealed.answers.runs().chain(self.unstated.iter().flatten().copied());
                    for (place, run) in runs.iter_mut().zip(all) {
                        *place = Some(run);
                    }
                    self.unstated = runs;
                }
            }
            GUARD => {
                let guard: [u8; GUARD_LENGTH] = fields.take()?;
                self.guard = Some(EpochGuard::decode(&guard).map_err(|_| JournalError::Damaged)?);
            }
            ANSWERED => {
                let (query, duration_ms, epoch) =
                    (QueryId(fields.take()?), fields.u64()?, fields.u64()?);
                let guard = self.guard.as_mut().ok_or(JournalError::Damaged)?;
                // The query that is forgotten in its place, if there is one.
                if !fields.0.is_empty() {
                    guard.forget(QueryId(fields.take()?));
                }
                guard.advance(query, duration_ms, epoch).map_err(|_| JournalError::Damaged)?;
                if !add_answer(&mut self.unstated, query, epoch) {
                    return Err(JournalError::Damaged);
                }
                // An epoch is answered only after its end.
                let end = epoch.saturating_add(1).saturating_mul(duration_ms);
                self.time_floor = self.time_floor.max(end);
            }
            QUERY_SCHEDULE => self.schedule = Some((fields.u64()?, Digest(fields.take()?))),
            FLOOR => {
                let (key, number) = (KeyId(fields.take()?), ChainNumber(fields.u64()?));
                *self.floor_place(key).ok_or(JournalError::Damaged)? = Some((key, number));
            }
            REVOKED => {
                let revoked = Revoked::decode(core::mem::take(&mut fields.0));
                self.revoked = revoked.map_err(|_| JournalError::Damaged)?;
            }
            SETTINGS => {
                self.settings = Settings {
                    interval_ms: fields.u32()?,
                    led: fields.bool()?,
                    scheme: fields.scheme()?,
                };
            }
            UNSTATED => self.unstated = fields.runs()?,
            POSITION => (self.position, self.resume) = (fields.position()?, fields.u32()?),
            RECORDING => {
                let recording = Some((fields.u32()?, fields.u64()?));
                if self.recording.is_some() && self.recording != recording {
                    self.resume = 0;
                }
                self.recording = recording;
            }
            TIME => self.time_floor = fields.u64()?.max(self.time_floor),
            FIRMWARE => self.firmware = FirmwareState(fields.take()?),
            POLICY => {
                let payload = core::mem::take(&mut fields.0);
                let place = self.policy.get_mut(..payload.len()).ok_or(JournalError::Damaged)?;
                place.copy_from_slice(payload);
                self.policy_length = payload.len();
            }
            LEDGER => {
                let ledger = Ledger::decode(core::mem::take(&mut fields.0));
                self.ledger = Some(ledger.ok_or(JournalError::Damaged)?);
            }
            _ => return Err(JournalError::Damaged),
        }
        if fields.0.is_empty() { Ok(()) } else { Err(JournalError::Damaged) }
    }

    /// Writes the whole state as records.
    fn snapshot<F: Flash>(&self, page: &mut Page<'_, F>) -> Result<(), JournalError> {
        page.record(IDENTITY, &[&self.device.0, &self.certificate.0])?;
        page.record(BOOT, &[&self.boots.to_be_bytes()])?;
        if let Some((first, start_ms)) = self.recording {
            page.record(RECORDING, &[&first.to_be_bytes(), &start_ms.to_be_bytes()])?;
        }
        page.record(
            POSITION,
            &[Content::new().position(&self.position)?.put(&self.resume.to_be_bytes())?.written()],
        )?;
        if let Some(sealed) = &self.sealed {
            page.record(SEALED, &[self.sealed_content(sealed)?.written()])?;
        }
        page.record(OPEN, &[self.open_content()?.written()])?;
        if let Some(guard) = &self.guard {
            page.record(GUARD, &[&guard.encode()])?;
        }
        page.record(
            UNSTATED,
            &[Content::new().runs(self.unstated.iter().flatten().copied())?.written()],
        )?;
        if let Some((number, digest)) = &self.schedule {
            page.record(QUERY_SCHEDULE, &[&number.to_be_bytes(), &digest.0])?;
        }
        if let Some(payload) = self.policy() {
            page.record(POLICY, &[payload])?;
        }
        if let Some(ledger) = &self.ledger {
            page.record(LEDGER, &[&ledger.encode()])?;
        }
        for (key, number) in self.floors.iter().flatten() {
            page.record(FLOOR, &[&key.0, &number.0.to_be_bytes()])?;
        }
        page.record(REVOKED, &[self.revoked.encode(&mut [0; MAX_REVOKED_BYTES])])?;
        page.record(TIME, &[&self.time_floor.to_be_bytes()])?;
        // A board without slots never has this record.
        if self.firmware != FirmwareState::NEW {
            page.record(FIRMWARE, &[&self.firmware.0])?;
        }
        page.record(SETTINGS, &[settings_content(self.settings)?.written()])
    }

    fn open_content(&self) -> Result<Content, JournalError> {
        let mut content = Content::new();
        content.put(&self.next_index.0.to_be_bytes())?.put(&[u8::from(self.epoch.is_some())])?;
        content.put(&self.epoch.unwrap_or_default().0.to_be_bytes())?;
        Ok(content)
    }

    /// Returns the content of the record of a signed seal. The position and the first uncovered
    /// reading in the record come from this state.
    fn sealed_content(&self, sealed: &Sealed) -> Result<Content, JournalError> {
        let mut content = Content::new();
        let open = u8::try_from(sealed.open).map_err(|_| JournalError::Full)?;
        content
            .position(&self.position)?
            .put(&self.resume.to_be_bytes())?
            .put(&[open])?
            .put(&sealed.length.to_be_bytes())?;
        content.runs(sealed.answers.runs())?.put(sealed.open())?.put(sealed.part())?;
        Ok(content)
    }
}

fn settings_content(settings: Settings) -> Result<Content, JournalError> {
    let mut content = Content::new();
    content.put(&settings.interval_ms.to_be_bytes())?;
    content.put(&[u8::from(settings.led), u8::from(settings.scheme == Scheme::Tree)])?;
    Ok(content)
}

/// The error of a sender's key for which there is no room to record the newest chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The mote's state in RAM, and the journal that stores it.
pub struct Durable<F> {
    memory: Memory,
    journal: Journal<F>,
}

impl<F: Flash> Durable<F> {
    /// Reads the journal and records this start in it. `settings` are the settings until a
    /// broadcast changes them.
    ///
    /// # Errors
    /// [`JournalError`], also if the journal belongs to another device.
    #[inline(never)]
    pub fn open(
        flash: F,
        device: DeviceId,
        certificate: Digest,
        settings: Settings,
    ) -> Result<Self, JournalError> {
        let mut memory = Memory::new(device, certificate, settings);
        let journal = Journal::open(flash, &mut memory, Memory::apply, Memory::snapshot)?;
        let mut durable = Self { memory, journal };
        let boots = durable.memory.boots.checked_add(1).ok_or(JournalError::Full)?;
        if boots == 1 {
            durable.record(IDENTITY, Content::new().put(&device.0)?.put(&certificate.0)?)?;
        }
        durable.record(BOOT, Content::new().put(&boots.to_be_bytes())?)?;
        Ok(durable)
    }

    /// Returns the state.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the flash.
    pub fn into_flash(self) -> F {
        self.journal.into_flash()
    }

    #[inline(never)]
    fn record(&mut self, kind: u8, content: &Content) -> Result<(), JournalError> {
        self.memory.apply(kind, content.written())?;
        self.journal.write(kind, &[content.written()], &self.memory, Memory::snapshot)
    }

    /// Selects the recording that provides the readings. `first` is the position of its first
    /// reading in the table, and `start_ms` the time of that reading. If the mote's previous
    /// recording was another one, the mote starts with the first reading.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn sense_from(&mut self, first: u32, start_ms: u64) -> Result<(), JournalError> {
        if self.memory.recording == Some((first, start_ms)) {
            return Ok(());
        }
        self.record(
            RECORDING,
            Content::new().put(&first.to_be_bytes())?.put(&start_ms.to_be_bytes())?,
        )
    }

    /// Opens the next index for an epoch. Call this before you add the first event to the seal.
    ///
    /// # Errors
    /// [`JournalError`]; `Full` if no index is left.
    pub fn open_seal(&mut self, epoch: EpochNumber) -> Result<SealIndex, JournalError> {
        let index = self.memory.next_index;
        self.open_up_to(index.0.checked_add(1).ok_or(JournalError::Full)?, Some(epoch))?;
        Ok(index)
    }

    /// Skips an index, so that the next seal states that readings are missing before it.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn skip_index(&mut self) -> Result<(), JournalError> {
        let next = self.memory.next_index.0.checked_add(1).ok_or(JournalError::Full)?;
        self.open_up_to(next, self.memory.epoch)
    }

    fn open_up_to(&mut self, next: u32, epoch: Option<EpochNumber>) -> Result<(), JournalError> {
        let mut content = Content::new();
        content
            .put(&next.to_be_bytes())?
            .put(&[u8::from(epoch.is_some())])?
            .put(&epoch.unwrap_or_default().0.to_be_bytes())?;
        self.record(OPEN, &content)
    }

    /// Continues the chain after a seal that the coordinator has stored, at the index `next`. Call
    /// this after all seals were given up. If the power fails before this method returns, the
    /// coordinator's next acknowledgement has the same effect again.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn continue_after(
        &mut self,
        stored: Option<&StoredSeal>,
        next: SealIndex,
    ) -> Result<(), JournalError> {
        self.open_up_to(next.0, self.memory.epoch.max(stored.map(|stored| stored.epoch)))?;
        let start = Position::start(self.memory.certificate);
        let position = stored.map_or(start, StoredSeal::position);
        let mut content = Content::new();
        content.position(&position)?.put(&self.memory.resume.to_be_bytes())?;
        self.record(POSITION, &content)
    }

    /// Stores a signed seal with its items. Call this before you send any of the items. `position`
    /// is the position in the chain after the seal, `resume` is the place of the first reading that
    /// the seal does not cover, and `answers` are the answers that the seal states.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn keep_seal(
        &mut self,
        position: &Position,
        resume: u32,
        answers: &Answers,
        (open, part): (&[u8], &[u8]),
    ) -> Result<(), JournalError> {
        let length = u16::try_from(open.len() + part.len()).map_err(|_| JournalError::Full)?;
        let mut content = Content::new();
        let open_length = u8::try_from(open.len()).map_err(|_| JournalError::Full)?;
        content
            .position(position)?
            .put(&resume.to_be_bytes())?
            .put(&[open_length])?
            .put(&length.to_be_bytes())?;
        content.runs(answers.runs())?.put(open)?.put(part)?;
        self.record(SEALED, &content)
    }

    /// Records that the coordinator has every seal up to this one.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn seal_done(&mut self, index: SealIndex) -> Result<(), JournalError> {
        self.record(DONE, Content::new().put(&index.0.to_be_bytes())?)
    }

    /// Gives up a signed seal that the coordinator does not accept. A later seal then states the
    /// answers of this seal.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn give_up_seal(&mut self, index: SealIndex) -> Result<(), JournalError> {
        self.record(GIVEN_UP, Content::new().put(&index.0.to_be_bytes())?)
    }

    /// Raises the floor of a sender's key: chains of this key with this number or a lower one are
    /// not accepted afterwards. Call this before you act on any message of the chain.
    ///
    /// # Errors
    /// [`NoRoom`] in the inner result if there are too many keys, [`JournalError`] in the outer
    /// one. In both cases the mote must not accept the chain.
    pub fn raise(
        &mut self,
        key: KeyId,
        number: ChainNumber,
    ) -> Result<Result<(), NoRoom>, JournalError> {
        if !self.memory.has_floor(key) {
            return Ok(Err(NoRoom));
        }
        // The chain of an image is over after later chains of commands.
        if self.memory.floor(key).is_some_and(|floor| floor >= number) {
            return Ok(Ok(()));
        }
        self.record(FLOOR, Content::new().put(&key.0)?.put(&number.0.to_be_bytes())?).map(Ok)
    }

    /// Records all that the base station has revoked.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn revoke(&mut self, revoked: &Revoked) -> Result<(), JournalError> {
        self.record(REVOKED, Content::new().put(revoked.encode(&mut [0; MAX_REVOKED_BYTES]))?)
    }

    /// Raises the lower limit of the time. After a restart, the mote accepts no earlier time.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn raise_time(&mut self, unix_ms: u64) -> Result<(), JournalError> {
        self.record(TIME, Content::new().put(&unix_ms.to_be_bytes())?)
    }

    /// Changes the settings, because of a broadcast command.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn set(&mut self, settings: Settings) -> Result<(), JournalError> {
        self.record(SETTINGS, &settings_content(settings)?)
    }
}
