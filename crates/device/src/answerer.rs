//! A device as a source of private sums. Right after the end of each epoch of a query, it encrypts
//! its newest reading of that epoch (spec/sums.md).
//!
//! The epochs of queries follow the device's clock, not the times in the readings. A replayed
//! recording is therefore answered as if its readings were sensed now. The device encrypts an
//! answer only if the [`DurableMote`] has permitted it. If an answer cannot be sent soon after the
//! end of its epoch, the device does not create it: the gateway would not wait for the answer, and
//! the seal would state an answer that never arrived.

use std::fmt;

use moteseal_api::{ErrorKind, NamedError as _};
use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::participation::Participation;
use moteseal_core::record::GroupId;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{PublicKey, Signer};
use moteseal_sum::noise::Noise;
use moteseal_sum::policy::{NotPermitted, Permission, Policy, permit};
use moteseal_sum::query::{MAX_SLOTS, Plan, QueryId};
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, Posed, QuerySchedule, QueryScheduleError};
use moteseal_sum::sies::{
    EncryptError, MaskKey, MaskSecret, PSR, Psr, Slot, SourceKey, SourceSecret,
};
use moteseal_sum::wire::close_share;
use moteseal_verify::Roster;
use tracing::{debug, info, warn};

use crate::durable::{DurableError, DurableMote, QueryScheduleRefused};
use crate::warning_log::WarningLog;

/// The answer to an epoch is sent within one tenth of an epoch after the epoch's end, or not at
/// all.
const WITHIN: u64 = 10;
/// The minimum and the maximum of this time, in milliseconds.
const WITHIN_MS: (u64, u64) = (250, 1000);
/// The maximum length of a frame without its records, in bytes.
const AROUND: usize = 80;

/// A device's configuration as a source of private sums.
#[derive(Debug)]
pub struct Membership {
    /// The group.
    pub group: GroupId,
    /// The digest of version 0 of the group's roster.
    pub roster: Digest,
    /// The number of sources in a key group. A key group consists of consecutive positions.
    pub key_group: u32,
    /// This device's position among the sources.
    pub position: u32,
    /// This device's secrets.
    pub secret: SourceSecret,
    /// This device's mask secrets and the number of devices in its key group, if the set-up made
    /// masks.
    pub masks: Option<(MaskSecret, u32)>,
    /// Whether the set-up made masks, for this device or for others. The device then answers only
    /// under a policy.
    pub needs_policy: bool,
    /// The payload of the policy, if there is one. The caller has checked that the operator signed
    /// it.
    pub policy: Option<Vec<u8>>,
    /// The querier's public key.
    pub querier: PublicKey,
    /// The keys of the link to the parent.
    pub link: LinkKey,
}

/// Why a device rejects a query schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleRejected {
    /// The announcement is not a valid query schedule, the configured querier did not sign it, or
    /// it is for another group or roster.
    #[error("{0}")]
    QuerySchedule(#[from] QueryScheduleError),
    /// The schedule's size of key groups differs from the device's configuration, or the schedule
    /// does not ask this device, because the querier has a version of the roster from before the
    /// device joined the group.
    #[error(
        "the query schedule has another size of key groups than this device's key file, or does \
         not ask this device; give the querier the newest roster, or set up the sums again"
    )]
    OtherSources,
    /// The number of the schedule is far ahead of the device's clock.
    #[error(
        "the number of the query schedule, a time in milliseconds, is more than a day ahead of this \
         clock; check the clocks of the querier and of this device"
    )]
    ScheduleAhead,
    /// A schedule with a higher number, or a different schedule with this number, was accepted
    /// before.
    #[error("{0}")]
    Refused(QueryScheduleRefused),
}

impl ScheduleRejected {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::QuerySchedule(error) => error.name(),
            Self::OtherSources => "OtherSources",
            Self::ScheduleAhead => "ScheduleAhead",
            Self::Refused(error) => error.name(),
        }
    }

    /// Returns [`ErrorKind::Refused`] for every error.
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
    /// How the policy permits the query.
    permission: Permission,
    /// The mask key and the number of devices in the key group, if answers are masked.
    mask: Option<(MaskKey, u32)>,
    /// The next epoch to answer.
    next: u64,
    /// The first epoch that this process has observed from its start. In an earlier epoch, a
    /// previous process may have sensed readings that are no longer known.
    whole_from: u64,
    /// The newest reading of each of the two newest epochs that have readings, the older epoch
    /// first.
    readings: [Option<(u64, Vec<u8>)>; 2],
}

/// Answers the queries of a query schedule.
pub struct Answerer {
    membership: Membership,
    schema: Vec<u8>,
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    running: Vec<Running>,
    log: WarningLog,
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
    /// Creates a source whose records have the schema `schema`. `clock` returns milliseconds since
    /// 1970.
    #[must_use]
    pub fn new(
        membership: Membership,
        schema: Vec<u8>,
        clock: Box<dyn Fn() -> u64 + Send + Sync>,
    ) -> Self {
        Self { membership, schema, clock, running: Vec::new(), log: WarningLog::new() }
    }

    /// Continues under a later version of the roster. If it names another querier, the queries of the
    /// previous one end.
    pub fn load(&mut self, roster: &Roster) {
        if let Some(querier) = roster.querier().filter(|key| **key != self.membership.querier) {
            self.membership.querier = querier.clone();
            self.running.clear();
        }
    }

    /// Continues under another policy: the payload of a policy that the operator has signed. Queries
    /// that it does not permit end, and so do queries that it permits in another way.
    pub fn set_policy(&mut self, payload: Vec<u8>) {
        self.membership.policy = Some(payload);
        let membership = &self.membership;
        self.running.retain(|running| {
            let permitted = Plan::decode(&running.plan)
                .map_err(|error| error.named().to_string())
                .and_then(|plan| permission(membership, &plan));
            match permitted {
                Ok(permission) if permission == running.permission => true,
                Ok(_) => {
                    warn!("a query ends: the policy has changed; ask it again");
                    false
                }
                Err(error) => {
                    warn!(%error, "a query ends: the policy has changed");
                    false
                }
            }
        });
    }

    /// Receives a query schedule. If the schedule is rejected, logs the reason.
    ///
    /// # Errors
    /// [`DurableError`].
    pub fn receive<K: Signer>(
        &mut self,
        announcement: &[u8],
        mote: &mut DurableMote<K>,
    ) -> Result<(), DurableError> {
        if let Err(error) = self.try_receive(announcement, mote)? {
            self.log.warn("a query schedule was rejected", error.named());
        }
        Ok(())
    }

    /// Receives a query schedule. The schedule changes nothing if it is from another querier, or if
    /// it is older than the newest accepted schedule.
    ///
    /// # Errors
    /// The inner [`ScheduleRejected`] if the schedule is rejected, or [`DurableError`] if it cannot
    /// be stored. In both cases the schedule has no effect.
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
            let is_new = before.iter().all(|running| running.id != id);
            let checked = if is_new { self.check(&posed, schedule.sources()) } else { Ok(()) };
            match checked.and_then(|()| self.start(id, &posed)) {
                Ok(text) if is_new => info!(query = %text, "answering a query"),
                Ok(_) => {}
                Err(error) => warn!(%error, "a query cannot be answered"),
            }
        }
        // Keep the readings of the queries that continue.
        for old in before {
            if let Some(running) = self.running.iter_mut().find(|running| running.id == old.id) {
                (running.next, running.whole_from, running.readings) =
                    (old.next, old.whole_from, old.readings);
            }
        }
        Ok(Ok(()))
    }

    /// Verifies that a query schedule is for this device and not older than the newest accepted
    /// schedule.
    fn open<'a>(
        &self,
        announcement: &'a [u8],
        newest: Option<u64>,
        scratch: &mut [u8],
    ) -> Result<QuerySchedule<'a>, ScheduleRejected> {
        let of = &self.membership;
        // Do not check the signature if the claimed number is already too old.
        if let Some(newest) = newest.filter(|newest| {
            schedule::claimed_number(announcement).is_ok_and(|number| number < *newest)
        }) {
            return Err(ScheduleRejected::Refused(QueryScheduleRefused::OlderAgenda { newest }));
        }
        let verified = schedule::receive(announcement, of.group, &of.querier, scratch)?;
        let schedule = QuerySchedule::open(&verified, of.group, &of.roster)?;
        if schedule::is_ahead(schedule.number(), (self.clock)()) {
            return Err(ScheduleRejected::ScheduleAhead);
        }
        if of.position >= schedule.sources() || schedule.key_group() != of.key_group {
            return Err(ScheduleRejected::OtherSources);
        }
        Ok(schedule)
    }

    /// Checks that this device's records can answer a query to `sources` sources.
    fn check(&self, posed: &Posed<'_>, sources: u32) -> Result<(), String> {
        let plan = Plan::decode(posed.plan).map_err(|error| error.named().to_string())?;
        plan.check_capacity(sources).map_err(|error| error.named().to_string())?;
        let schema = Schema::decode(&self.schema).map_err(|error| error.named().to_string())?;
        plan.bind(&schema).map_err(|error| error.named().to_string())?;
        Ok(())
    }

    /// Begins to answer a query, if the policy permits it. Returns the query's text.
    fn start(&mut self, id: QueryId, posed: &Posed<'_>) -> Result<String, String> {
        let plan = Plan::decode(posed.plan).map_err(|error| error.named().to_string())?;
        let permission = permission(&self.membership, &plan)?;
        let mask = match &self.membership.masks {
            Some((secret, ring)) if permission.is_masked() => {
                let digest = QueryId::whole(&self.membership.roster, &posed.nonce, posed.plan);
                Some((secret.for_query(&digest), *ring))
            }
            // A policy permits no masked answer of a device without masks.
            None if permission.is_masked() => {
                return Err(NotPermitted::NoMasks.named().to_string());
            }
            _ => None,
        };
        let epoch_ms = u64::from(plan.epoch_ms());
        let epoch = (self.clock)() / epoch_ms;
        self.running.push(Running {
            id,
            first: posed.first,
            until: posed.until,
            epoch_ms,
            plan: posed.plan.to_vec(),
            key: self.membership.secret.for_query(id),
            permission,
            mask,
            next: posed.first.max(epoch),
            whole_from: epoch + 1,
            readings: [None, None],
        });
        Ok(plan.to_string())
    }

    /// Stores a record that was sensed just now, as the newest reading of each query's current
    /// epoch.
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

    /// Returns the number of milliseconds until the next end of an epoch of any query.
    #[must_use]
    pub fn due_in_ms(&self) -> Option<u64> {
        let now = (self.clock)();
        let end =
            |running: &Running| running.next.saturating_add(1).saturating_mul(running.epoch_ms);
        self.running.iter().map(|running| end(running).saturating_sub(now)).min()
    }

    /// Returns the frames that must be sent now. Returns no frames if `is_up` is false, because the
    /// parent cannot be reached then.
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
            // After the clock was set back, epochs that were already answered may end again. The
            // epoch guard rejects a second answer.
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
                    late,
                    "skipped an epoch of a query because the time for an answer is over or the query does not ask for the epoch"
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

/// Checks whether the policy permits a query of this device's querier.
fn permission(of: &Membership, plan: &Plan<'_>) -> Result<Permission, String> {
    let policy = of.policy.as_deref().map(Policy::decode).transpose();
    let policy = policy.map_err(|error| error.named().to_string())?;
    let ring = of.masks.as_ref().map(|(_, ring)| *ring);
    permit(policy.as_ref(), &of.querier, plan, ring, of.needs_policy)
        .map_err(|error| error.named().to_string())
}

/// Returns the frame with the answer to an epoch, or the reason why the epoch is not answered.
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
    if reading.is_none() && running.permission == Permission::Masked {
        // The sum of a key group would otherwise be over few readings, or over one.
        return Ok(Err(
            "the device has no reading in the epoch, and the querier is not trusted with readings"
                .to_owned(),
        ));
    }
    let mut values = [0; MAX_SLOTS];
    let noise = match (running.permission, &running.mask) {
        (Permission::Noisy { .. }, Some((key, ring))) => Some(key.noise(epoch, *ring)),
        _ => None,
    };
    let (values, epsilon) =
        match contribution(schema, &running.plan, reading, noise.as_ref(), &mut values) {
            Ok((slots, epsilon)) => (&values[..slots], epsilon),
            Err(error) => return Ok(Err(error)),
        };
    if let Permission::Noisy { budget: Some(budget) } = running.permission {
        let start_ms = epoch.saturating_mul(running.epoch_ms);
        if let Err(error) = mote.charge(start_ms, epsilon, budget)? {
            return Ok(Err(error.named().to_string()));
        }
    }
    // If the journal contains no earlier answers, permit answers from this epoch on. The time is
    // trusted because the querier asked for this epoch. The clock cannot make the device answer too
    // early: it answers an epoch only after the epoch's end.
    mote.begin_answers(epoch.saturating_mul(running.epoch_ms))?;
    let mut permit = match mote.answer(running.id, running.epoch_ms, epoch)? {
        Ok(permit) => permit,
        Err(error) => return Ok(Err(error.named().to_string())),
    };
    let encrypted: Result<Vec<Psr>, EncryptError> = (0..)
        .map(Slot)
        .zip(values)
        .map(|(slot, value)| {
            let psr = running.key.encrypt(&mut permit, slot, *value)?;
            Ok(running.mask.as_ref().map_or(psr, |(mask, _)| mask.cover(&psr, slot, epoch)))
        })
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

/// Writes the value that a reading, or the absence of a reading, contributes to each slot. Returns the
/// number of slots and the epsilon of the query.
fn contribution(
    schema: &[u8],
    plan: &[u8],
    reading: Option<&[u8]>,
    noise: Option<&Noise<'_>>,
    values: &mut [u128],
) -> Result<(usize, u32), String> {
    let schema = Schema::decode(schema).map_err(|error| error.named().to_string())?;
    let plan = Plan::decode(plan).map_err(|error| error.named().to_string())?;
    let bound = plan.bind(&schema).map_err(|error| error.named().to_string())?;
    let slots = match noise {
        Some(noise) => bound.contribution_with_noise(reading, noise, values),
        None => bound.contribution(reading, values),
    };
    let slots = slots.map_err(|error| error.named().to_string())?;
    Ok((slots, plan.epsilon()))
}
