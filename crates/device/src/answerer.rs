//! A device as a source of private sums: it encrypts what it sensed in an epoch of a query right
//! after that epoch ends (spec/sums.md).
//! after that epoch ends (spec/sums.md).
//!
//! Query epochs follow the device's clock, whatever times the readings have: a recording is
//! answered as if it were sensed now. The device encrypts only what the [`DurableMote`] has
//! permitted. An answer that cannot be sent soon after the end of its epoch is not made: the
//! gateway would not wait for it, and the seal would state an answer that never arrived.

use std::fmt;

use moteseal_api::{ErrorKind, NamedError as _};
use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::record::GroupId;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{PublicKey, Signer};
use moteseal_sum::participation::Participation;
use moteseal_sum::query::{MAX_SLOTS, Plan, QueryId};
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, Posed, QuerySchedule, QueryScheduleError};
use moteseal_sum::sies::{PSR, Psr, Slot, SourceKey, SourceSecret};
use moteseal_sum::wire::close_share;
use tracing::{debug, info, warn};

use crate::durable::{DurableError, DurableMote, QueryScheduleRefused};

/// An answer is sent within this fraction (1/10) of an epoch after its epoch's end, or not at all.
const WITHIN: u64 = 10;
/// Lower and upper bound of that time, in milliseconds.
const WITHIN_MS: (u64, u64) = (250, 1000);
/// Upper bound of a frame's length without its records, in bytes.
const AROUND: usize = 80;

/// A device's configuration as a source of private sums.
#[derive(Debug)]
pub struct Membership {
    /// The group.
    pub group: GroupId,
    /// The roster whose devices take part.
    pub roster: Digest,
    /// The number of these devices.
    pub sources: u32,
    /// The number of sources in a key group; groups are consecutive positions.
    pub key_group: u32,
    /// This device's position among the sources.
    pub position: u32,
    /// This device's secrets.
    pub secret: SourceSecret,
    /// The querier's public key.
    pub querier: PublicKey,
    /// The keys of the link to the parent.
    pub link: LinkKey,
}

/// Why a device rejects a query schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleRejected {
    /// The announcement is not a query schedule, or it is not from this querier, or for another
    /// group or roster.
    #[error("{0}")]
    QuerySchedule(#[from] QueryScheduleError),
    /// The schedule's numbers of sources and key groups differ from the configured ones.
    #[error(
        "the query schedule is for other key groups than this device's key file; set up the \
         sums again"
    )]
    OtherSources,
    /// A schedule with this number or a higher one was accepted before.
    #[error("{0}")]
    Refused(QueryScheduleRefused),
}

impl ScheduleRejected {
    /// The error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::QuerySchedule(error) => error.name(),
            Self::OtherSources => "OtherSources",
            Self::Refused(error) => error.name(),
        }
    }

    /// Always [`ErrorKind::Refused`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }
}

moteseal_api::named_error!(ScheduleRejected);

/// A query that this device answers.
struct Running {
    id: QueryId,
    first: u64,
    until: u64,
    epoch_ms: u64,
    plan: Vec<u8>,
    key: SourceKey,
    /// The next epoch to answer.
    next: u64,
    /// The first epoch that this process observed from its start. In an earlier epoch, a process
    /// before a restart may have sensed a reading that is no longer known.
    whole_from: u64,
    /// The newest reading of each of the two newest epochs that have one, the older first.
    readings: [Option<(u64, Vec<u8>)>; 2],
}

/// Answers the queries of a query schedule.
pub struct Answerer {
    membership: Membership,
    schema: Vec<u8>,
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    running: Vec<Running>,
}

impl fmt::Debug for Answerer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answerer")
            .field("membership", &self.membership)
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}

impl Answerer {
    /// Creates a source whose records have this schema. `clock` returns Unix milliseconds.
    #[must_use]
    pub fn new(
        membership: Membership,
        schema: Vec<u8>,
        clock: Box<dyn Fn() -> u64 + Send + Sync>,
    ) -> Self {
        Self { membership, schema, clock, running: Vec::new() }
    }

    /// Receives a query schedule, and logs the reason if it is rejected.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn receive<K: Signer>(
        &mut self,
        announcement: &[u8],
        mote: &mut DurableMote<K>,
    ) -> Result<(), DurableError> {
        if let Err(error) = self.try_receive(announcement, mote)? {
            warn!(error = %error.named(), "a query schedule was rejected");
        }
        Ok(())
    }

    /// Receives a query schedule. A schedule of another querier, or one that is older than the
    /// newest accepted schedule, changes nothing.
    ///
    /// # Errors
    /// The inner [`ScheduleRejected`] if the schedule is rejected. Otherwise [`DurableError`], in
    /// which case the schedule has no effect either.
    pub fn try_receive<K: Signer>(
        &mut self,
        announcement: &[u8],
        mote: &mut DurableMote<K>,
    ) -> Result<Result<(), ScheduleRejected>, DurableError> {
        let mut scratch = vec![0; MAX_QUERY_SCHEDULE];
        let schedule = match self.open(
            announcement,
            mote.schedule().map(|(newest, _)| newest),
            &mut scratch,
        ) {
            Ok(schedule) => schedule,
            Err(error) => return Ok(Err(error)),
        };
        if let Err(error) = mote.accept_schedule(schedule.number(), schedule.digest())? {
            return Ok(Err(ScheduleRejected::Refused(error)));
        }
        let before = std::mem::take(&mut self.running);
        for (id, posed) in schedule.queries() {
            match before.iter().position(|running| running.id == id) {
                Some(_) => {}
                None => match self.check(&posed) {
                    Ok(text) => info!(query = %text, "answering a query"),
                    Err(error) => {
                        warn!(%error, "a query cannot be answered");
                        continue;
                    }
                },
            }
            self.start(id, &posed);
        }
        // Keep the readings of a query that continues.
        for old in before {
            if let Some(running) = self.running.iter_mut().find(|running| running.id == old.id) {
                (running.next, running.whole_from, running.readings) =
                    (old.next, old.whole_from, old.readings);
            }
        }
        Ok(Ok(()))
    }

    /// Verifies a query schedule: it must be for this device and no older than the newest one.
    fn open<'a>(
        &self,
        announcement: &'a [u8],
        newest: Option<u64>,
        scratch: &mut [u8],
    ) -> Result<QuerySchedule<'a>, ScheduleRejected> {
        let of = &self.membership;
        // Skip the signature check if the unverified number is already too old.
        if let Some(newest) = newest.filter(|newest| {
            schedule::claimed_number(announcement).is_ok_and(|number| number < *newest)
        }) {
            return Err(ScheduleRejected::Refused(QueryScheduleRefused::OlderAgenda { newest }));
        }
        let verified = schedule::receive(announcement, of.group, &of.querier, scratch)?;
        let schedule = QuerySchedule::open(&verified, of.group, &of.roster)?;
        if (schedule.sources(), schedule.key_group()) != (of.sources, of.key_group) {
            return Err(ScheduleRejected::OtherSources);
        }
        Ok(schedule)
    }

    /// Checks that a query can be answered from this device's records. Returns the query's text.
    fn check(&self, posed: &Posed<'_>) -> Result<String, String> {
        let plan = Plan::decode(posed.plan).map_err(|error| error.named().to_string())?;
        plan.check_capacity(self.membership.sources).map_err(|error| error.named().to_string())?;
        let schema = Schema::decode(&self.schema).map_err(|error| error.named().to_string())?;
        plan.bind(&schema).map_err(|error| error.named().to_string())?;
        Ok(plan.to_string())
    }

    fn start(&mut self, id: QueryId, posed: &Posed<'_>) {
        let Ok(plan) = Plan::decode(posed.plan) else { return };
        let epoch_ms = u64::from(plan.epoch_ms());
        let epoch = (self.clock)() / epoch_ms;
        self.running.push(Running {
            id,
            first: posed.first,
            until: posed.until,
            epoch_ms,
            plan: posed.plan.to_vec(),
            key: self.membership.secret.for_query(id),
            next: posed.first.max(epoch),
            whole_from: epoch + 1,
            readings: [None, None],
        });
    }

    /// Notes a record that was sensed just now.
    pub fn sensed(&mut self, record: &[u8]) {
        if self.running.is_empty() {
            return;
        }
        let now = (self.clock)();
        for running in &mut self.running {
            let epoch = now / running.epoch_ms;
            match &mut running.readings[1] {
                Some((of, newest)) if *of == epoch => {
                    newest.clear();
                    newest.extend_from_slice(record);
                }
                _ => {
                    running.readings.swap(0, 1);
                    running.readings[1] = Some((epoch, record.to_vec()));
                }
            }
        }
    }

    /// The number of milliseconds until the next epoch of a query ends.
    #[must_use]
    pub fn due_in_ms(&self) -> Option<u64> {
        let now = (self.clock)();
        let end =
            |running: &Running| running.next.saturating_add(1).saturating_mul(running.epoch_ms);
        self.running.iter().map(|running| end(running).saturating_sub(now)).min()
    }

    /// The frames to send now. None if the parent cannot be reached.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn answers<K: Signer>(
        &mut self,
        is_up: bool,
        mote: &mut DurableMote<K>,
    ) -> Result<Vec<Vec<u8>>, DurableError> {
        let now = (self.clock)();
        let mut frames = Vec::new();
        for running in &mut self.running {
            // If the clock was set back, the guard knows which epochs were answered before.
            running.next = running.next.min(now / running.epoch_ms).max(running.first);
            let Some(epoch) =
                (now / running.epoch_ms).checked_sub(1).filter(|epoch| *epoch >= running.next)
            else {
                continue;
            };
            let late = now - (epoch + 1) * running.epoch_ms;
            let within = (running.epoch_ms / WITHIN).clamp(WITHIN_MS.0, WITHIN_MS.1);
            if late <= within && !is_up {
                continue;
            }
            running.next = epoch + 1;
            if late > within || epoch >= running.until {
                debug!(
                    epoch,
                    late, "skipped an epoch of a query: too late, or outside the query's epochs"
                );
                continue;
            }
            match answer(&self.membership, &self.schema, running, epoch, mote)? {
                Ok(frame) => frames.push(frame),
                Err(error) => {
                    warn!(epoch, %error, "an epoch of a query was not answered");
                }
            }
        }
        self.running.retain(|running| running.next < running.until);
        Ok(frames)
    }
}

/// The frame with the answer to an epoch, or the reason why there is none.
fn answer<K: Signer>(
    of: &Membership,
    schema: &[u8],
    running: &Running,
    epoch: u64,
    mote: &mut DurableMote<K>,
) -> Result<Result<Vec<u8>, String>, DurableError> {
    let reading = running
        .readings
        .iter()
        .flatten()
        .find(|(at, _)| *at == epoch)
        .map(|(_, record)| &record[..]);
    if reading.is_none() && epoch < running.whole_from {
        return Ok(Err(
            "the device started during the epoch and does not know its earlier readings".to_owned(),
        ));
    }
    let mut values = [0; MAX_SLOTS];
    let values = match contribution(schema, &running.plan, reading, &mut values) {
        Ok(slots) => &values[..slots],
        Err(error) => return Ok(Err(error)),
    };
    // A journal without earlier answers permits answers from this epoch on. The querier asked for
    // this epoch, and a device never answers an epoch before its end.
    mote.begin_answers(epoch.saturating_mul(running.epoch_ms))?;
    let mut permit = match mote.answer(running.id, running.epoch_ms, epoch)? {
        Ok(permit) => permit,
        Err(error) => return Ok(Err(error.named().to_string())),
    };
    let encrypted: Result<Vec<Psr>, _> = (0..)
        .map(Slot)
        .zip(values)
        .map(|(slot, value)| running.key.encrypt(&mut permit, slot, *value))
        .collect();
    let psrs = match encrypted {
        Ok(psrs) => psrs,
        Err(error) => return Ok(Err(error.named().to_string())),
    };
    let mut participation = [0; 8];
    let length = Participation::encode_one(of.position, &mut participation)?;
    let mut frame = vec![0; AROUND + psrs.len() * (PSR + 2)];
    let length = close_share(
        running.id.reference(),
        epoch,
        &participation[..length],
        &psrs,
        &of.link,
        &mut frame,
    )?
    .len();
    frame.truncate(length);
    Ok(Ok(frame))
}

/// The value that a reading, or the absence of one, contributes to each slot.
fn contribution(
    schema: &[u8],
    plan: &[u8],
    reading: Option<&[u8]>,
    values: &mut [u128],
) -> Result<usize, String> {
    let schema = Schema::decode(schema).map_err(|error| error.named().to_string())?;
    let plan = Plan::decode(plan).map_err(|error| error.named().to_string())?;
    let bound = plan.bind(&schema).map_err(|error| error.named().to_string())?;
    bound.contribution(reading, values).map_err(|error| error.named().to_string())
}
