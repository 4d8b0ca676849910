//! The mote as a source of private sums: directly after the end of each epoch of a query, it
//! encrypts its newest reading of that epoch (spec/sums.md).
//!
//! The counterpart on Linux is `moteseal_device::answerer`; this module needs no heap and no clock.
//! The caller passes the earliest possible time of the mote's clock, so that no epoch is answered
//! before its end, whatever the mote's gateway does. The journal permits one answer to each epoch of a
//! query.

use moteseal_core::digest::Digest;
use moteseal_core::link::LinkKey;
use moteseal_core::participation::Participation;
use moteseal_core::provision::{Membership, Provisioning};
use moteseal_core::schema::Schema;
use moteseal_sum::policy::{NotPermitted, Permission, Policy, permit};
use moteseal_sum::query::{MAX_SLOTS, Plan, QueryId};
use moteseal_sum::schedule::{self, Posed, QuerySchedule};
use moteseal_sum::sies::{MaskKey, MaskSecret, Psr, Slot, SourceKey, SourceSecret};
use moteseal_sum::wire::{REFUSE_AGAIN_MS, Refusal, close_share};

use crate::durable::Durable;
use crate::flash::Flash;
use crate::journal::JournalError;
use crate::notice::{Notice, OnNotice};

/// The maximum number of queries that the mote answers at the same time. If a query schedule has
/// more queries, the mote answers the first ones that it is able to answer.
const QUERIES: usize = 2;
/// The maximum length of a query's plan that the mote can store, in bytes.
const PLAN: usize = 320;
/// The maximum length of a reading's record that the mote can store, in bytes.
const RECORD: usize = 32;
/// Bytes of working memory to read and check the longest announcement that the mote accepts.
const ANNOUNCEMENT: usize = 1400 + 64;
/// The mote sends an answer within this fraction of the next epoch (10 means one tenth), or not at
/// all.
const WITHIN: u64 = 10;
/// The minimum and the maximum of the time within which an answer is sent, in milliseconds. They
/// apply to epochs of any length.
const WITHIN_MS: (u64, u64) = (250, 1000);
/// The maximum number of steps of the computation of noise for each millisecond of the time within which
/// an answer is sent. A processor with 25 MHz needs about that long.
const NOISE_STEPS_PER_MS: u64 = 30;

/// The newest reading in one epoch of a query.
#[derive(Clone, Copy)]
struct Newest {
    epoch: u64,
    record: [u8; RECORD],
    length: usize,
}

/// A query that the mote answers.
struct Running {
    id: QueryId,
    until: u64,
    epoch_ms: u64,
    plan: [u8; PLAN],
    plan_length: usize,
    key: SourceKey,
    /// How the policy permits the query.
    permission: Permission,
    /// The mask key and the number of sources in the ring, if answers are masked.
    mask: Option<(MaskKey, u32)>,
    /// The next epoch to answer.
    next: u64,
    /// The first epoch of this query in which the mote was running from the start of the epoch.
    whole_from: u64,
    /// The two newest epochs that have a reading, the older epoch first, each with its newest
    /// reading.
    newest: [Option<Newest>; 2],
    /// When the mote last stated why it does not answer, in Unix milliseconds; 0 if never.
    refused_ms: u64,
}

/// A query that the mote does not answer, and the reason.
struct Refused {
    id: QueryId,
    until: u64,
    epoch_ms: u64,
    why: &'static str,
    /// The next epoch that is not answered.
    next: u64,
    refused_ms: u64,
}

/// A source that answers the queries of the newest query schedule.
pub struct Answerer<'p> {
    membership: &'p Membership<'p>,
    provisioning: &'p Provisioning<'p>,
    link: LinkKey,
    running: [Option<Running>; QUERIES],
    refused: [Option<Refused>; QUERIES],
    /// Whether the policy of the provisioning blob was taken.
    is_policy_taken: bool,
    /// Whether the image of the firmware is on trial.
    is_on_trial: bool,
}

/// The result of an attempt to answer: the length of the frame, the reason why there is none, or
/// nothing.
enum Answer {
    Frame(usize),
    Refused(&'static str),
    Nothing,
}

impl<'p> Answerer<'p> {
    /// Creates a source that has no queries yet.
    #[must_use]
    pub fn new(provisioning: &'p Provisioning<'p>, membership: &'p Membership<'p>) -> Self {
        Self {
            membership,
            provisioning,
            link: LinkKey::new(&membership.link_secret),
            running: [const { None }; QUERIES],
            refused: [const { None }; QUERIES],
            is_policy_taken: false,
            is_on_trial: false,
        }
    }

    /// Takes the policy of the provisioning blob, if it is newer than the one that the journal holds.
    /// Only the first call without a trial of the firmware's image has an effect: until then, the journal
    /// must have no records that the image before it cannot read. Call this before any other method, and
    /// repeatedly afterwards.
    ///
    /// # Errors
    /// [`JournalError`]: the mote must not answer anything.
    #[inline(never)]
    pub fn take_policy<F: Flash>(
        &mut self,
        is_on_trial: bool,
        durable: &mut Durable<F>,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), JournalError> {
        self.is_on_trial = is_on_trial;
        if self.is_on_trial || self.is_policy_taken {
            return Ok(());
        }
        self.is_policy_taken = true;
        let Some(payload) = self.membership.policy else { return Ok(()) };
        let before = durable.memory().policy();
        if before == Some(payload) {
            return Ok(());
        }
        let version = |payload| Policy::decode(payload).map(|policy| policy.version);
        match (version(payload), before.map(version)) {
            (Err(error), _) => notify(Notice::NotAnswering(error.name())),
            (Ok(found), Some(Ok(newest))) if found <= newest => {
                notify(Notice::NotAnswering("OlderPolicy"));
            }
            (Ok(_), _) => durable.accept_policy(payload)?,
        }
        Ok(())
    }

    /// Adapts to a change of the time by a time statement, from `before` to `after`, both in Unix
    /// milliseconds; `None` means that the time is not known. The time never decreases.
    ///
    /// If the epoch of a query changes, the mote did not observe the new epoch from its beginning. If
    /// the time advances by more than the time within which an answer is sent, the mote also discards
    /// what it sensed for the query.
    pub fn stepped(&mut self, before: Option<u64>, after: Option<u64>) {
        for running in self.running.iter_mut().flatten() {
            let epoch = |unix_ms: Option<u64>| unix_ms.map(|unix_ms| unix_ms / running.epoch_ms);
            if epoch(before) == epoch(after) {
                continue;
            }
            running.whole_from = epoch(after).map_or(u64::MAX, |epoch| epoch.saturating_add(1));
            let step = before.zip(after).map(|(before, after)| after.saturating_sub(before));
            if step.is_none_or(|step| step > within(running.epoch_ms)) {
                running.newest = [None; 2];
            }
        }
    }

    /// Processes an announcement of a query schedule. Ignores it if the querier did not sign it, or
    /// if it is older than the newest one that was accepted. `unix_ms` is the time, if it is known.
    ///
    /// # Errors
    /// [`JournalError`]: the mote must not act on the query schedule.
    #[inline(never)]
    pub fn receive<F: Flash>(
        &mut self,
        unix_ms: Option<u64>,
        announcement: &[u8],
        durable: &mut Durable<F>,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), JournalError> {
        let newest = durable.memory().schedule();
        // If the announcement itself states that it is old, skip the signature check.
        if let Some((newest, _)) = newest
            && schedule::claimed_number(announcement).is_ok_and(|number| number < newest)
        {
            return Ok(());
        }
        let mut scratch = [0; ANNOUNCEMENT];
        let opened = schedule::receive(
            announcement,
            self.provisioning.group,
            &self.membership.querier,
            &mut scratch,
        )
        .and_then(|signed| {
            QuerySchedule::open(&signed, self.provisioning.group, &self.membership.roster)
        });
        let schedule = match opened {
            Ok(schedule) => schedule,
            Err(error) => {
                notify(Notice::NotAnswering(error.name()));
                return Ok(());
            }
        };
        let Membership { position, key_group, .. } = *self.membership;
        if position >= schedule.sources() || schedule.key_group() != key_group {
            notify(Notice::NotAnswering("OtherSources"));
            return Ok(());
        }
        let found: (u64, Digest) = (schedule.number(), schedule.digest());
        match newest {
            Some((newest, _)) if found.0 < newest => return Ok(()),
            Some((newest, digest)) if found.0 == newest && digest != found.1 => {
                notify(Notice::NotAnswering("TwoAgendas"));
                return Ok(());
            }
            Some((newest, _)) if found.0 == newest => {}
            _ => durable.accept_schedule(found.0, found.1)?,
        }
        notify(Notice::QuerySchedule(found.0));
        // Remove only the queries that are not in the new schedule. Queries that continue keep
        // their readings.
        for place in &mut self.running {
            place.take_if(|running| schedule.queries().all(|(id, _)| id != running.id));
        }
        for place in &mut self.refused {
            place.take_if(|refused| schedule.queries().all(|(id, _)| id != refused.id));
        }
        for (id, posed) in schedule.queries() {
            if let Some(running) = self.running.iter_mut().flatten().find(|run| run.id == id) {
                // The querier prolongs a query while it runs.
                running.until = posed.until;
                running.next = running.next.max(posed.first);
                continue;
            }
            // Replace a query that is over only if no other place is free, because a new schedule may
            // prolong it.
            let is_over = |running: &Running| {
                unix_ms.is_some_and(|unix_ms| unix_ms / running.epoch_ms > running.until)
            };
            let free = self.running.iter().position(Option::is_none);
            let free = free.or_else(|| {
                self.running.iter().position(|place| place.as_ref().is_some_and(is_over))
            });
            let free = free.and_then(|at| self.running.get_mut(at));
            let started = free.ok_or("TooManyQueries").and_then(|place| {
                let of = (self.provisioning, self.membership, schedule.sources());
                start(place, of, durable.memory().policy(), unix_ms, id, &posed)
            });
            let before = self
                .refused
                .iter()
                .position(|place| place.as_ref().is_some_and(|refused| refused.id == id));
            match started {
                Ok(()) => {
                    let before = before.and_then(|at| self.refused.get_mut(at)?.take());
                    let running = self.running.iter_mut().flatten().find(|run| run.id == id);
                    if let (Some(before), Some(running)) = (before, running) {
                        running.refused_ms = before.refused_ms;
                    }
                }
                Err(why) => {
                    notify(Notice::NotAnswering(why));
                    let free = before.or_else(|| self.refused.iter().position(Option::is_none));
                    if let Some(place) = free.and_then(|at| self.refused.get_mut(at)) {
                        refuse(place, unix_ms, id, &posed, why);
                    }
                }
            }
        }
        Ok(())
    }

    /// Stores a record that was just sensed as the newest reading of each query's current epoch.
    pub fn sensed(&mut self, unix_ms: u64, record: &[u8]) {
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

    /// If an answer is due at the time `now`, in Unix milliseconds, or a statement why there is none,
    /// writes its frame to `out` and returns its length. The caller must send it at once.
    ///
    /// # Errors
    /// [`JournalError`]: the caller must send nothing.
    pub fn next_body<F: Flash>(
        &mut self,
        now: u64,
        out: &mut [u8],
        durable: &mut Durable<F>,
        notify: &mut OnNotice<'_>,
    ) -> Result<Option<usize>, JournalError> {
        let is_on_trial = self.is_on_trial;
        let ids = self.running.each_ref().map(|place| place.as_ref().map(|running| running.id));
        for running in self.running.iter_mut().flatten() {
            let Some(epoch) =
                (now / running.epoch_ms).checked_sub(1).filter(|epoch| *epoch >= running.next)
            else {
                continue;
            };
            running.next = epoch + 1;
            let late = now - (epoch + 1) * running.epoch_ms;
            let answer = if late > within(running.epoch_ms) || epoch >= running.until {
                Answer::Nothing
            } else {
                respond(
                    self.provisioning,
                    self.membership,
                    &self.link,
                    // While the image is on trial, no query is forgotten in place of another one.
                    (running, &|id| is_on_trial || ids.contains(&Some(id))),
                    epoch,
                    out,
                    durable,
                )?
            };
            match answer {
                Answer::Frame(length) => {
                    notify(Notice::Answered(epoch));
                    return Ok(Some(length));
                }
                Answer::Refused(why) => {
                    notify(Notice::NotAnswering(why));
                    if now.saturating_sub(running.refused_ms) >= REFUSE_AGAIN_MS {
                        running.refused_ms = now;
                        return Ok(refusal(
                            self.membership,
                            &self.link,
                            running.id,
                            epoch,
                            why,
                            out,
                        ));
                    }
                }
                Answer::Nothing => {}
            }
        }
        for place in &mut self.refused {
            let Some(refused) = place else { continue };
            let ended = (now / refused.epoch_ms).checked_sub(1);
            let Some(epoch) = ended.filter(|epoch| *epoch >= refused.next) else { continue };
            refused.next = epoch + 1;
            if epoch >= refused.until {
                *place = None;
            } else if now.saturating_sub(refused.refused_ms) >= REFUSE_AGAIN_MS {
                refused.refused_ms = now;
                let (id, why) = (refused.id, refused.why);
                return Ok(refusal(self.membership, &self.link, id, epoch, why, out));
            }
        }
        Ok(None)
    }
}

/// Records that a query is not answered. The end of the query can change; the time of the last
/// statement stays. The epochs of a query that cannot be read have an unknown length.
fn refuse(
    place: &mut Option<Refused>,
    unix_ms: Option<u64>,
    id: QueryId,
    posed: &Posed<'_>,
    why: &'static str,
) {
    let Ok(plan) = Plan::decode(posed.plan) else { return };
    let (until, epoch_ms) = (posed.until, u64::from(plan.epoch_ms()).max(1));
    // The mote may have answered the epoch that ended last, before a restart.
    let epoch = unix_ms.unwrap_or_default() / epoch_ms;
    if epoch >= until {
        return;
    }
    let (next, refused_ms) =
        place.as_ref().map_or((0, 0), |before| (before.next, before.refused_ms));
    let next = next.max(posed.first).max(epoch);
    *place = Some(Refused { id, until, epoch_ms, why, next, refused_ms });
}

/// Writes the frame that tells the querier why an epoch is not answered (spec/sums.md, section 4.1).
#[inline(never)]
fn refusal(
    membership: &Membership<'_>,
    link: &LinkKey,
    query: QueryId,
    epoch: u64,
    reason: &str,
    out: &mut [u8],
) -> Option<usize> {
    let secret = SourceSecret::from_bytes(&membership.secret);
    let refusal = Refusal::by(&secret, membership.position, query, epoch, reason);
    refusal.close(link, out).ok().map(<[u8]>::len)
}

/// Returns the time after the end of an epoch within which an answer is sent, in milliseconds.
fn within(epoch_ms: u64) -> u64 {
    (epoch_ms / WITHIN).clamp(WITHIN_MS.0, WITHIN_MS.1)
}

/// Begins to answer a query if this mote's records have the columns that the query uses, and if the
/// policy permits it.
#[inline(never)]
fn start(
    place: &mut Option<Running>,
    (provisioning, membership, sources): (&Provisioning<'_>, &Membership<'_>, u32),
    policy: Option<&[u8]>,
    unix_ms: Option<u64>,
    id: QueryId,
    posed: &Posed<'_>,
) -> Result<(), &'static str> {
    let plan = Plan::decode(posed.plan).map_err(|_| "MalformedPlan")?;
    plan.check_capacity(sources).map_err(|_| "CapacityExceeded")?;
    let schema = Schema::decode(provisioning.schema).map_err(|error| error.name())?;
    plan.bind(&schema).map_err(|_| "UnknownColumn")?;
    // A querier could read the values of an encrypted column without a grant of its owner.
    let is_encrypted = |name: &str| schema.field(name).is_some_and(|field| field.suite.is_some());
    if plan.columns().any(|column| is_encrypted(column.name)) {
        return Err("ColumnEncrypted");
    }
    let epoch_ms = u64::from(plan.epoch_ms());
    // The mote does nothing else while it computes noise.
    if plan.noise_steps() > within(epoch_ms).saturating_mul(NOISE_STEPS_PER_MS) {
        return Err("NoiseTooLong");
    }
    let policy = policy.map(Policy::decode).transpose().map_err(|error| error.name())?;
    let masks = membership.masks.as_ref().map(|bytes| MaskSecret::from_bytes_with_ring(bytes));
    let ring = masks.as_ref().map(|(_, ring)| ring.sources);
    let needs_policy = membership.needs_policy || membership.policy.is_some();
    let permission = permit(policy.as_ref(), &membership.querier, &plan, ring, needs_policy)
        .map_err(|error| error.name())?;
    let mask = match masks.filter(|_| permission.is_masked()) {
        Some((secret, ring)) => {
            let digest = QueryId::whole(&membership.roster, &posed.nonce, posed.plan);
            Some((secret.for_query(&digest), ring.sources))
        }
        // A policy permits no masked answer of a mote without masks.
        None if permission.is_masked() => return Err(NotPermitted::NoMasks.name()),
        None => None,
    };
    let mut kept = [0; PLAN];
    kept.get_mut(..posed.plan.len()).ok_or("PlanTooLong")?.copy_from_slice(posed.plan);
    let epoch_ms = epoch_ms.max(1);
    let epoch = unix_ms.map(|unix_ms| unix_ms / epoch_ms);
    *place = Some(Running {
        id,
        until: posed.until,
        epoch_ms,
        plan: kept,
        plan_length: posed.plan.len(),
        key: SourceSecret::from_bytes(&membership.secret).for_query(id),
        permission,
        mask,
        next: posed.first.max(epoch.unwrap_or_default()),
        whole_from: epoch.map_or(u64::MAX, |epoch| epoch.saturating_add(1)),
        newest: [None; 2],
        refused_ms: 0,
    });
    Ok(())
}

/// Writes the frame of an answer, or returns why there is none.
#[inline(never)]
fn respond<F: Flash>(
    provisioning: &Provisioning<'_>,
    membership: &Membership<'_>,
    link: &LinkKey,
    (running, is_running): (&Running, &dyn Fn(QueryId) -> bool),
    epoch: u64,
    out: &mut [u8],
    durable: &mut Durable<F>,
) -> Result<Answer, JournalError> {
    let newest = running.newest.iter().flatten().find(|newest| newest.epoch == epoch);
    let reading = newest.and_then(|newest| newest.record.get(..newest.length));
    // If the mote did not observe the epoch from its beginning, it may have discarded a reading: it
    // must not answer that it sensed nothing.
    if reading.is_none() && epoch < running.whole_from {
        return Ok(Answer::Refused("EpochNotObserved"));
    }
    if reading.is_none() && running.permission == Permission::Masked {
        // The sum of a ring would otherwise be over few readings, or over one.
        return Ok(Answer::Refused("NoReading"));
    }
    let mut values = [0; MAX_SLOTS];
    let plan = running.plan.get(..running.plan_length).unwrap_or_default();
    let (Ok(schema), Ok(plan)) = (Schema::decode(provisioning.schema), Plan::decode(plan)) else {
        return Ok(Answer::Nothing);
    };
    let at = (running.epoch_ms, epoch);
    let charge = match running.permission {
        Permission::Noisy { budget: Some(budget) } => Some((plan.epsilon(), budget)),
        _ => None,
    };
    // Refuse before the noise is computed, and before the budget is charged.
    let spent = match durable.check_answer(running.id, at, is_running, charge) {
        Ok(spent) => spent,
        Err(error) => return Ok(Answer::Refused(error.name())),
    };
    let noise = match (running.permission, &running.mask) {
        (Permission::Noisy { .. }, Some((key, ring))) => Some(key.noise(epoch, *ring)),
        _ => None,
    };
    let contributed = plan.bind(&schema).map_err(|error| error.name()).and_then(|bound| {
        let slots = match &noise {
            Some(noise) => bound.contribution_with_noise(reading, noise, &mut values),
            None => bound.contribution(reading, &mut values),
        };
        slots.map_err(|error| error.name())
    });
    let slots = match contributed {
        Ok(slots) => slots,
        Err(why) => return Ok(Answer::Refused(why)),
    };
    if let Some(spent) = spent {
        durable.spend(spent)?;
    }
    let mut permit = match durable.answer(running.id, at, is_running)? {
        Ok(permit) => permit,
        Err(error) => return Ok(Answer::Refused(error.name())),
    };
    let mut psrs = [Psr::ZERO; MAX_SLOTS];
    for ((slot, value), psr) in (0..).map(Slot).zip(values.iter().take(slots)).zip(&mut psrs) {
        match running.key.encrypt(&mut permit, slot, *value) {
            Ok(encrypted) => {
                let mask = running.mask.as_ref();
                *psr = mask.map_or(encrypted, |(mask, _)| mask.cover(&encrypted, slot, epoch));
            }
            Err(_) => return Ok(Answer::Nothing),
        }
    }
    let mut participation = [0; 8];
    let length = Participation::encode_one(membership.position, &mut participation).unwrap_or(0);
    let (participation, psrs) =
        (participation.get(..length).unwrap_or_default(), psrs.get(..slots).unwrap_or_default());
    let frame = close_share(running.id.reference(), epoch, participation, psrs, link, out);
    Ok(frame.map_or(Answer::Nothing, |frame| Answer::Frame(frame.len())))
}
