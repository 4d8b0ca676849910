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
use moteseal_core::error::Named;
use moteseal_core::link::LinkKey;
use moteseal_core::participation::Participation;
use moteseal_core::record::GroupId;
use moteseal_core::schema::Schema;
use moteseal_core::signature::{PublicKey, Signer};
use moteseal_sum::QuerierName;
use moteseal_sum::noise::Noise;
use moteseal_sum::policy::{NotPermitted, Permission, Policy, permit};
use moteseal_sum::query::{MAX_SLOTS, Plan, QueryId};
use moteseal_sum::schedule::{self, MAX_QUERY_SCHEDULE, Posed, QuerySchedule, QueryScheduleError};
use moteseal_sum::sies::{
    EncryptError, MaskKey, MaskRing, MaskSecret, PSR, Psr, Slot, SourceKey, SourceSecret,
};
use moteseal_sum::wire::{REFUSE_AGAIN_MS, Refusal, close_share};
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
/// The maximum length of the frame of a refusal, in bytes.
const MAX_REFUSAL: usize = 128;

/// A device's configuration as a source of private sums.
#[derive(Debug)]
pub struct Membership {
    /// The querier's name.
    pub querier_name: QuerierName,
    /// The group.
    pub group: GroupId,
    /// The digest of the querier's set-up ([`QuerierName::set_up_digest`]).
    pub set_up: Digest,
    /// The number of sources in a key group. A key group consists of consecutive positions.
    pub key_group: u32,
    /// This device's position among the sources.
    pub position: u32,
    /// This device's secrets.
    pub secret: SourceSecret,
    /// This device's mask secrets and its ring, if it has masks.
    pub masks: Option<(MaskSecret, MaskRing)>,
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

impl Membership {
    /// Returns whether the device may give exact answers to both queriers (spec/policy.md, section 3).
    /// Queriers that are trusted, and policies that cannot be read, do not matter: the device gives
    /// them no masked answers.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        let policies = [self, other]
            .map(|of| of.policy.as_deref().filter(|_| of.masks.is_some()).map(Policy::decode));
        match policies {
            [Some(Ok(ours)), Some(Ok(theirs))] => {
                let strict = ours.has_strict() && theirs.has_strict();
                !strict || self.ring() == other.ring() && ours.agrees_with(&theirs)
            }
            _ => true,
        }
    }

    /// Returns the ring of this device. All set-ups of a group have the same positions.
    fn ring(&self) -> Option<MaskRing> {
        self.masks.as_ref().map(|(_, ring)| *ring)
    }
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
    /// When the querier was last told why an epoch was not answered, in milliseconds since 1970.
    refused_ms: u64,
}

/// A query that this device does not answer.
struct RefusedQuery {
    id: QueryId,
    first: u64,
    until: u64,
    epoch_ms: u64,
    /// The name of the reason.
    reason: String,
    /// The next epoch that is not answered.
    next: u64,
    /// When the querier was last told, in milliseconds since 1970.
    refused_ms: u64,
}

/// Why a query, or an epoch of it, is not answered: the stable name of the error, and its text with the
/// name.
struct Unanswered {
    name: String,
    text: String,
}

impl Unanswered {
    fn new(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: format!("{name}: {text}") }
    }
}

impl<E: fmt::Display> From<Named<'_, E>> for Unanswered {
    fn from(error: Named<'_, E>) -> Self {
        Self { name: error.name.to_owned(), text: error.to_string() }
    }
}

/// Answers the queries of a query schedule.
pub struct Answerer {
    membership: Membership,
    schema: Vec<u8>,
    clock: Box<dyn Fn() -> u64 + Send + Sync>,
    running: Vec<Running>,
    refused: Vec<RefusedQuery>,
    /// Whether exact answers to this querier and to another one would not agree.
    differs: bool,
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
        Self {
            membership,
            schema,
            clock,
            running: Vec::new(),
            refused: Vec::new(),
            differs: false,
            log: WarningLog::new(),
        }
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Continues under a later version of the roster. If it names another querier in place of the
    /// default one, the queries of the previous one end.
    pub fn load(&mut self, roster: &Roster) {
        let is_named = self.membership.querier_name.is_default();
        let named = roster.querier().filter(|key| is_named && **key != self.membership.querier);
        if let Some(querier) = named {
            self.membership.querier = querier.clone();
            self.running.clear();
            self.refused.clear();
        }
    }

    /// Continues under another policy: the payload of a policy that the operator has signed. Queries
    /// that it does not permit end, and so do queries that it permits in another way.
    pub fn set_policy(&mut self, payload: Vec<u8>) {
        self.membership.policy = Some(payload);
        self.reconsider();
    }

    /// Sets whether exact answers to this querier and to another one would not agree. If so, this device
    /// gives no masked exact answers.
    pub(crate) fn set_differs(&mut self, differs: bool) {
        if std::mem::replace(&mut self.differs, differs) != differs {
            if differs {
                let querier = self.membership.querier_name;
                warn!(%querier, "exact queries are not answered: the policies of two queriers differ");
            }
            self.reconsider();
        }
    }

    /// Ends the queries that are no longer permitted, or in another way.
    fn reconsider(&mut self) {
        let (membership, differs, refused) = (&self.membership, self.differs, &mut self.refused);
        self.running.retain(|running| {
            let permitted = Plan::decode(&running.plan)
                .map_err(|error| error.named().into())
                .and_then(|plan| permission(membership, differs, &plan));
            let error = match permitted {
                Ok(permission) if permission == running.permission => return true,
                Ok(_) => Unanswered::new("PolicyChanged", "ask the query again"),
                Err(error) => error,
            };
            warn!(error = %error.text, "a query ends: the policy has changed");
            let Running { id, first, until, epoch_ms, next, refused_ms, .. } = *running;
            let reason = error.name;
            refused.push(RefusedQuery { id, first, until, epoch_ms, reason, next, refused_ms });
            false
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
        let newest = mote.schedule(&self.membership.querier_name).map(|(newest, _)| newest);
        let schedule = match self.open(announcement, newest, &mut scratch) {
            Ok(schedule) => schedule,
            Err(error) => return Ok(Err(error)),
        };
        let (name, number) = (self.membership.querier_name, schedule.number());
        if let Err(error) = mote.accept_schedule(&name, number, schedule.digest())? {
            return Ok(Err(ScheduleRejected::Refused(error)));
        }
        let before = std::mem::take(&mut self.running);
        let refused_before = std::mem::take(&mut self.refused);
        for (id, posed) in schedule.queries() {
            let is_new = before.iter().all(|running| running.id != id);
            let checked = if is_new { self.check(&posed, schedule.sources()) } else { Ok(()) };
            match checked.and_then(|()| self.start(id, &posed)) {
                Ok(text) if is_new => info!(query = %text, "answering a query"),
                Ok(_) => {}
                Err(error) => {
                    let known = refused_before.iter().find(|refused| refused.id == id);
                    if known.is_none_or(|known| known.reason != error.name) {
                        warn!(error = %error.text, "a query cannot be answered");
                    }
                    let refused_ms = known.map_or(0, |known| known.refused_ms);
                    self.refuse(id, &posed, error.name, refused_ms);
                }
            }
        }
        // Keep the readings of the queries that continue.
        for old in before {
            if let Some(running) = self.running.iter_mut().find(|running| running.id == old.id) {
                (running.next, running.whole_from, running.readings, running.refused_ms) =
                    (old.next, old.whole_from, old.readings, old.refused_ms);
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
        let schedule = QuerySchedule::open(&verified, of.group, &of.set_up)?;
        if schedule::is_ahead(schedule.number(), (self.clock)()) {
            return Err(ScheduleRejected::ScheduleAhead);
        }
        if of.position >= schedule.sources() || schedule.key_group() != of.key_group {
            return Err(ScheduleRejected::OtherSources);
        }
        Ok(schedule)
    }

    /// Tells the querier at the end of each epoch, but not too often, that this device does not answer
    /// a query.
    fn refuse(&mut self, id: QueryId, posed: &Posed<'_>, reason: String, refused_ms: u64) {
        // The epochs of a query that cannot be read have an unknown length.
        let Ok(plan) = Plan::decode(posed.plan) else { return };
        let (first, until, epoch_ms) = (posed.first, posed.until, u64::from(plan.epoch_ms()));
        let next = first.max((self.clock)() / epoch_ms);
        self.refused.push(RefusedQuery { id, first, until, epoch_ms, reason, next, refused_ms });
    }

    /// Checks that this device's records can answer a query to `sources` sources.
    fn check(&self, posed: &Posed<'_>, sources: u32) -> Result<(), Unanswered> {
        let plan = Plan::decode(posed.plan).map_err(|error| error.named())?;
        plan.check_capacity(sources).map_err(|error| error.named())?;
        let schema = Schema::decode(&self.schema).map_err(|error| error.named())?;
        plan.bind(&schema).map_err(|error| error.named())?;
        // A querier could read the values of an encrypted column without a grant of its owner.
        let is_encrypted =
            |name: &str| schema.field(name).is_some_and(|field| field.suite.is_some());
        if plan.columns().any(|column| is_encrypted(column.name)) {
            return Err(Unanswered::new(
                "ColumnEncrypted",
                "the query needs an encrypted column; ask its owner for a grant",
            ));
        }
        Ok(())
    }

    /// Begins to answer a query, if the policy permits it. Returns the query's text.
    fn start(&mut self, id: QueryId, posed: &Posed<'_>) -> Result<String, Unanswered> {
        let plan = Plan::decode(posed.plan).map_err(|error| error.named())?;
        let permission = permission(&self.membership, self.differs, &plan)?;
        let mask = match &self.membership.masks {
            Some((secret, ring)) if permission.is_masked() => {
                let digest = QueryId::whole(&self.membership.set_up, &posed.nonce, posed.plan);
                Some((secret.for_query(&digest), ring.sources))
            }
            // A policy permits no masked answer of a device without masks.
            None if permission.is_masked() => {
                return Err(NotPermitted::NoMasks.named().into());
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
            refused_ms: 0,
        });
        Ok(plan.to_string())
    }

    /// Stores a record that was sensed just now, as the newest reading of each query's current
    /// epoch.
    pub fn sensed(&mut self, record: &[u8]) {
        self.sensed_at((self.clock)(), record);
    }

    /// Like [`sensed`](Self::sensed), at the time `now` in milliseconds since 1970.
    pub(crate) fn sensed_at(&mut self, now: u64, record: &[u8]) {
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

    /// Returns the time in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        (self.clock)()
    }

    /// Returns the number of milliseconds until the next end of an epoch of any query.
    #[must_use]
    pub fn due_in_ms(&self) -> Option<u64> {
        let now = (self.clock)();
        let running = self.running.iter().map(|running| (running.next, running.epoch_ms));
        let refused = self.refused.iter().map(|refused| (refused.next, refused.epoch_ms));
        let end = |(next, epoch_ms): (u64, u64)| next.saturating_add(1).saturating_mul(epoch_ms);
        running.chain(refused).map(|of| end(of).saturating_sub(now)).min()
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
        let number = mote.schedule(&self.membership.querier_name).map_or(0, |(number, _)| number);
        let mut frames = Vec::new();
        let ids: Vec<QueryId> = self.running.iter().map(|running| running.id).collect();
        for running in &mut self.running {
            // After the clock was set back, epochs that were already answered may end again. The
            // epoch guard rejects a second answer.
            let first = running.first.max(schedule::first_answered(number, running.epoch_ms));
            running.next = running.next.min(now / running.epoch_ms).max(first);
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
            match answer(&self.membership, &self.schema, (running, &ids), epoch, mote)? {
                Ok(frame) => frames.push(frame),
                Err(error) => {
                    warn!(epoch, error = %error.text, "an epoch of a query was not answered");
                    if now.abs_diff(running.refused_ms) >= REFUSE_AGAIN_MS {
                        running.refused_ms = now;
                        frames.extend(refusal(&self.membership, running.id, epoch, &error.name));
                    }
                }
            }
        }
        self.running.retain(|running| running.next < running.until);
        for refused in &mut self.refused {
            refused.next = refused.next.min(now / refused.epoch_ms).max(refused.first);
            let ended = (now / refused.epoch_ms).checked_sub(1);
            let Some(epoch) = ended.filter(|epoch| *epoch >= refused.next) else { continue };
            refused.next = epoch + 1;
            if is_up && now.abs_diff(refused.refused_ms) >= REFUSE_AGAIN_MS {
                refused.refused_ms = now;
                frames.extend(refusal(&self.membership, refused.id, epoch, &refused.reason));
            }
        }
        self.refused.retain(|refused| refused.next < refused.until);
        Ok(frames)
    }
}

/// Returns the frame that tells the querier why an epoch is not answered.
fn refusal(of: &Membership, query: QueryId, epoch: u64, reason: &str) -> Option<Vec<u8>> {
    let refusal = Refusal::by(&of.secret, of.position, query, epoch, reason);
    let mut frame = [0; MAX_REFUSAL];
    refusal.close(&of.link, &mut frame).ok().map(<[u8]>::to_vec)
}

/// Checks whether the policy permits a query of this device's querier. No masked exact answer is
/// permitted if `differs` is true.
fn permission(of: &Membership, differs: bool, plan: &Plan<'_>) -> Result<Permission, Unanswered> {
    let policy =
        of.policy.as_deref().map(Policy::decode).transpose().map_err(|error| error.named())?;
    let ring = of.masks.as_ref().map(|(_, ring)| ring.sources);
    match permit(policy.as_ref(), &of.querier, plan, ring, of.needs_policy) {
        Ok(Permission::Masked) if differs => Err(NotPermitted::PoliciesDiffer.named().into()),
        permitted => permitted.map_err(|error| error.named().into()),
    }
}

/// Returns the frame with the answer to an epoch, or the reason why the epoch is not answered.
fn answer<K: Signer>(
    of: &Membership,
    schema: &[u8],
    (running, ids): (&Running, &[QueryId]),
    epoch: u64,
    mote: &mut DurableMote<K>,
) -> Result<Result<Vec<u8>, Unanswered>, DurableError> {
    let reading = running
        .readings
        .iter()
        .flatten()
        .find(|(at, _)| *at == epoch)
        .map(|(_, record)| &record[..]);
    if reading.is_none() && epoch < running.whole_from {
        return Ok(Err(Unanswered::new(
            "EpochNotObserved",
            "the device started during the epoch and does not know its earlier readings",
        )));
    }
    if reading.is_none() && running.permission == Permission::Masked {
        // The sum of a key group would otherwise be over few readings, or over one.
        return Ok(Err(Unanswered::new(
            "NoReading",
            "the device has no reading in the epoch, and the querier is not trusted with readings",
        )));
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
    let charge = match running.permission {
        Permission::Noisy { budget: Some(budget) } => Some((epsilon, budget)),
        _ => None,
    };
    // If the journal contains no earlier answers, permit answers from this epoch on. The time is
    // trusted because the querier asked for this epoch. The clock cannot make the device answer too
    // early: it answers an epoch only after the epoch's end.
    let (querier, at) = (&of.querier_name, (running.epoch_ms, epoch));
    mote.begin_answers(querier, epoch.saturating_mul(running.epoch_ms))?;
    let mut permit = match mote.answer(querier, running.id, at, ids, charge)? {
        Ok(permit) => permit,
        Err(error) => return Ok(Err(error.named().into())),
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
        Err(error) => return Ok(Err(error.named().into())),
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
) -> Result<(usize, u32), Unanswered> {
    let schema = Schema::decode(schema).map_err(|error| error.named())?;
    let plan = Plan::decode(plan).map_err(|error| error.named())?;
    let bound = plan.bind(&schema).map_err(|error| error.named())?;
    let slots = match noise {
        Some(noise) => bound.contribution_with_noise(reading, noise, values),
        None => bound.contribution(reading, values),
    };
    let slots = slots.map_err(|error| error.named())?;
    Ok((slots, plan.epsilon()))
}
