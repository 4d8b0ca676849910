//! A mote as a source of private sums: what it sensed in an epoch of a query, encrypted right after
//! its end (spec/sums.md).
//!
//! The host's counterpart is `moteseal_device::answerer`; this one has no heap and no clock. Query
//! epochs are wall time, which the mote is told by hints: the gateway's, and the number of an query
//! schedule, which the querier makes its time of signing. A wrong hint costs answers and never a
//! key: nothing is encrypted that the journal has not permitted, and nothing that the query
//! schedule does not ask for.

use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::provision::{Membership, Provisioning};
use moteseal_core::schema::Schema;
use moteseal_sum::participation::Participation;
use moteseal_sum::query::{MAX_SLOTS, Plan, QueryId};
use moteseal_sum::schedule::{self, Posed, QuerySchedule};
use moteseal_sum::sies::{Psr, Slot, SourceKey, SourceSecret};
use moteseal_sum::wire::close_share;

use crate::durable::{AnswerRefused, Durable};
use crate::flash::Flash;
use crate::journal::JournalError;
use crate::notice::{Notice, Tell};

/// Queries that are answered at once; of an query schedule with more, the first ones that can be.
const QUERIES: usize = 2;
/// The longest plan that a mote keeps, in bytes.
const PLAN: usize = 320;
/// The longest record whose newest reading is kept.
const RECORD: usize = 32;
/// The longest announcement that is read, and what its check takes beside.
const ANNOUNCEMENT: usize = 1400 + 64;
/// An answer leaves within this part of the epoch after it, or not at all.
const WITHIN: u64 = 10;
/// But so many milliseconds may always pass, and no more than so many.
const WITHIN_MS: (u64, u64) = (250, 1000);

/// The newest reading of an epoch of a query.
#[derive(Clone, Copy)]
struct Newest {
    epoch: u64,
    record: [u8; RECORD],
    length: usize,
}

/// A query that is answered.
struct Running {
    id: QueryId,
    first: u64,
    until: u64,
    epoch_ms: u64,
    plan: [u8; PLAN],
    plan_length: usize,
    key: SourceKey,
    /// The next epoch to answer.
    next: u64,
    /// The first epoch of which every reading was seen here.
    whole_from: u64,
    /// Of the two newest epochs in which there was a reading, the older one first.
    newest: [Option<Newest>; 2],
}

/// Answers the queries of an schedule.
pub struct Answerer<'p> {
    of: &'p Membership,
    told: &'p Provisioning<'p>,
    link: LinkKey,
    /// Wall time less the mote's own, in milliseconds, once there was a hint.
    ahead_ms: Option<u64>,
    running: [Option<Running>; QUERIES],
}

/// What came of looking for an answer.
enum Answer {
    Frame(usize),
    Nothing,
}

impl<'p> Answerer<'p> {
    /// A source that answers nothing yet.
    #[must_use]
    pub fn new(told: &'p Provisioning<'p>, of: &'p Membership) -> Self {
        Self {
            of,
            told,
            link: LinkKey::new(&of.link_secret),
            ahead_ms: None,
            running: [const { None }; QUERIES],
        }
    }

    /// Somebody says what time it is. In another epoch than the present one, what was sensed was
    /// sensed at another time, and the first epoch that is known from its beginning is the next.
    pub fn hint(&mut self, now_ms: u64, unix_ms: u64) {
        let before = self.unix_ms(now_ms);
        self.ahead_ms = Some(unix_ms.saturating_sub(now_ms));
        let Some((before, after)) = before.zip(self.unix_ms(now_ms)) else { return };
        for running in self.running.iter_mut().flatten() {
            let epoch = after / running.epoch_ms;
            if epoch != before / running.epoch_ms {
                running.whole_from = epoch.saturating_add(1);
                running.newest = [None; 2];
            }
        }
    }

    fn unix_ms(&self, now_ms: u64) -> Option<u64> {
        Some(self.ahead_ms?.saturating_add(now_ms))
    }

    /// Hears an announcement. One that is not the querier's, or older than another, changes
    /// nothing.
    ///
    /// # Errors
    /// [`JournalError`]: the query schedule must not be acted on.
    #[inline(never)]
    pub fn hear<F: Flash>(
        &mut self,
        now_ms: u64,
        announcement: &[u8],
        durable: &mut Durable<F>,
        tell: &mut Tell<'_>,
    ) -> Result<(), JournalError> {
        let newest = durable.memory().schedule();
        // What is old by its own word is not worth the check of a signature.
        if let Some((newest, _)) = newest
            && schedule::claimed_number(announcement).is_ok_and(|number| number < newest)
        {
            return Ok(());
        }
        let mut scratch = [0; ANNOUNCEMENT];
        let opened = schedule::hear(announcement, self.told.group, &self.of.querier, &mut scratch)
            .and_then(|said| QuerySchedule::open(&said, self.told.group, &self.told.roster.0));
        let schedule = match opened {
            Ok(schedule) => schedule,
            Err(error) => {
                tell(Notice::NotAnswering(error.name()));
                return Ok(());
            }
        };
        if (schedule.sources(), schedule.key_group()) != (self.of.sources, self.of.key_group) {
            tell(Notice::NotAnswering("OtherSources"));
            return Ok(());
        }
        let said: (u64, Digest) = (schedule.number(), schedule.digest());
        match newest {
            Some((newest, _)) if said.0 < newest => return Ok(()),
            Some((newest, digest)) if said.0 == newest && digest != said.1 => {
                tell(Notice::NotAnswering("TwoAgendas"));
                return Ok(());
            }
            Some((newest, _)) if said.0 == newest => {}
            _ => durable.accept_schedule(said.0, said.1)?,
        }
        // It was signed before it was heard.
        if self.unix_ms(now_ms).is_none_or(|unix_ms| unix_ms < said.0) {
            self.hint(now_ms, said.0);
        }
        tell(Notice::QuerySchedule(said.0));
        // What was sensed for a query that goes on stays.
        for place in &mut self.running {
            place.take_if(|running| schedule.queries().all(|(id, _)| id != running.id));
        }
        let unix_ms = self.unix_ms(now_ms).unwrap_or_default();
        for (id, posed) in schedule.queries() {
            if self.running.iter().flatten().any(|running| running.id == id) {
                continue;
            }
            // One that is over gives way; the time alone, which may be wrong, ends none.
            let is_over = |running: &Running| unix_ms / running.epoch_ms > running.until;
            let free = self.running.iter().position(Option::is_none);
            let free = free.or_else(|| {
                self.running.iter().position(|place| place.as_ref().is_some_and(is_over))
            });
            let free = free.and_then(|at| self.running.get_mut(at));
            let started = free
                .ok_or("TooManyQueries")
                .and_then(|place| start(place, self.told, self.of, unix_ms, id, &posed));
            if let Err(why) = started {
                tell(Notice::NotAnswering(why));
            }
        }
        Ok(())
    }

    /// A record was sensed just now.
    pub fn sensed(&mut self, now_ms: u64, record: &[u8]) {
        let Some(unix_ms) = self.unix_ms(now_ms) else { return };
        for running in self.running.iter_mut().flatten() {
            let epoch = unix_ms / running.epoch_ms;
            let mut newest = Newest { epoch, record: [0; RECORD], length: record.len() };
            let Some(place) = newest.record.get_mut(..record.len()) else { return };
            place.copy_from_slice(record);
            if running.newest[1].is_none_or(|before| before.epoch != epoch) {
                running.newest.swap(0, 1);
            }
            running.newest[1] = Some(newest);
        }
    }

    /// Writes the frame of an answer that is due to `out`, to be sent at once; its length.
    ///
    /// # Errors
    /// [`JournalError`]: nothing may be sent.
    pub fn say<F: Flash>(
        &mut self,
        now_ms: u64,
        out: &mut [u8],
        durable: &mut Durable<F>,
        tell: &mut Tell<'_>,
    ) -> Result<Option<usize>, JournalError> {
        let Some(now) = self.unix_ms(now_ms) else { return Ok(None) };
        for running in self.running.iter_mut().flatten() {
            // Of a clock that was set back: what was answered before, the journal knows.
            running.next = running.next.min(now / running.epoch_ms).max(running.first);
            let Some(epoch) =
                (now / running.epoch_ms).checked_sub(1).filter(|epoch| *epoch >= running.next)
            else {
                continue;
            };
            running.next = epoch + 1;
            let late = now - (epoch + 1) * running.epoch_ms;
            let within = (running.epoch_ms / WITHIN).clamp(WITHIN_MS.0, WITHIN_MS.1);
            let answer = if late > within || epoch >= running.until {
                Answer::Nothing
            } else {
                respond(self.told, self.of, &self.link, running, epoch, out, durable, tell)?
            };
            if let Answer::Frame(length) = answer {
                tell(Notice::Answered(epoch));
                return Ok(Some(length));
            }
        }
        Ok(None)
    }
}

/// Begins to answer a query, if it can be answered from this mote's records.
#[inline(never)]
fn start(
    place: &mut Option<Running>,
    told: &Provisioning<'_>,
    of: &Membership,
    unix_ms: u64,
    id: QueryId,
    posed: &Posed<'_>,
) -> Result<(), &'static str> {
    let plan = Plan::decode(posed.plan).map_err(|_| "MalformedPlan")?;
    plan.check_capacity(of.sources).map_err(|_| "CapacityExceeded")?;
    let schema = Schema::decode(told.schema).map_err(|error| error.name())?;
    plan.bind(&schema).map_err(|_| "UnknownColumn")?;
    let epoch_ms = u64::from(plan.epoch_ms());
    let mut kept = [0; PLAN];
    kept.get_mut(..posed.plan.len()).ok_or("PlanTooLong")?.copy_from_slice(posed.plan);
    let epoch = unix_ms / epoch_ms.max(1);
    *place = Some(Running {
        id,
        first: posed.first,
        until: posed.until,
        epoch_ms: epoch_ms.max(1),
        plan: kept,
        plan_length: posed.plan.len(),
        key: SourceSecret::from_bytes(&of.secret).for_query(id),
        next: posed.first.max(epoch),
        whole_from: epoch + 1,
        newest: [None; 2],
    });
    Ok(())
}

/// Writes the frame of an answer, or says why there is none.
#[allow(clippy::too_many_arguments)]
#[inline(never)]
fn respond<F: Flash>(
    told: &Provisioning<'_>,
    of: &Membership,
    link: &LinkKey,
    running: &Running,
    epoch: u64,
    out: &mut [u8],
    durable: &mut Durable<F>,
    tell: &mut Tell<'_>,
) -> Result<Answer, JournalError> {
    let newest = running.newest.iter().flatten().find(|newest| newest.epoch == epoch);
    let reading = newest.and_then(|newest| newest.record.get(..newest.length));
    // Of an epoch that it does not know from its beginning, nothing sensed may be something
    // forgotten.
    if reading.is_none() && epoch < running.whole_from {
        return Ok(Answer::Nothing);
    }
    let mut values = [0; MAX_SLOTS];
    let plan = running.plan.get(..running.plan_length).unwrap_or_default();
    let (Ok(schema), Ok(plan)) = (Schema::decode(told.schema), Plan::decode(plan)) else {
        return Ok(Answer::Nothing);
    };
    let contributed = plan.bind(&schema).map_err(|error| error.name()).and_then(|bound| {
        let slots = bound.contribution(reading, &mut values);
        slots.map_err(|error| error.name())
    });
    let slots = match contributed {
        Ok(slots) => slots,
        Err(why) => {
            tell(Notice::NotAnswering(why));
            return Ok(Answer::Nothing);
        }
    };
    let mut permit = match durable.answer(running.id, running.epoch_ms, epoch)? {
        Ok(permit) => permit,
        Err(AnswerRefused::Guard(error)) => {
            tell(Notice::NotAnswering(error.name()));
            return Ok(Answer::Nothing);
        }
        Err(AnswerRefused::Full) => {
            tell(Notice::NotAnswering("AnswersFull"));
            return Ok(Answer::Nothing);
        }
    };
    let mut psrs = [Psr::ZERO; MAX_SLOTS];
    for ((slot, value), psr) in (0..).map(Slot).zip(values.iter().take(slots)).zip(&mut psrs) {
        match running.key.encrypt(&mut permit, slot, *value) {
            Ok(encrypted) => *psr = encrypted,
            Err(_) => return Ok(Answer::Nothing),
        }
    }
    let mut participation = [0; 8];
    let length = Participation::encode_one(of.position, &mut participation).unwrap_or(0);
    let (participation, psrs) =
        (participation.get(..length).unwrap_or_default(), psrs.get(..slots).unwrap_or_default());
    let frame = close_share(running.id.reference(), epoch, participation, psrs, link, out);
    Ok(frame.map_or(Answer::Nothing, |frame| Answer::Frame(frame.len())))
}
