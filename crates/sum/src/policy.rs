//! The policy of a group: which queries its devices answer, and for which querier (spec/policy.md).
//!
//! A querier can decrypt every exact sum that reaches it. The devices therefore enforce the policy:
//! they do not answer a query that the policy does not permit. The operator signs the policy.
//!
//! A querier that is not *trusted* gets exact sums over whole key groups only. A device masks its
//! answer to it ([`MaskSecret`](crate::sies::MaskSecret)), so that a sum opens only if all devices
//! of the key group have answered.

use moteseal_broadcast::KeyId;
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::digest::Digest;
use moteseal_core::identity::{IssueError, protected};
use moteseal_core::named_errors;
use moteseal_core::record::GroupId;
use moteseal_core::schema::MAX_NAME;
use moteseal_core::signature::{MAX_SIGNATURE, PublicKey, SignatureError, Signer};

use crate::query::{EPOCH_MS, Plan};

/// The maximum number of queriers in a policy.
pub const MAX_QUERIERS: usize = 8;
/// The maximum number of columns of a querier.
pub const MAX_COLUMNS: usize = 16;
/// The maximum length of a policy's payload, in bytes.
pub const MAX_PAYLOAD: usize = 96 + MAX_QUERIERS * (32 + MAX_COLUMNS * (MAX_NAME + 32));
/// The maximum length of a signed policy, in bytes.
pub const MAX_POLICY: usize = MAX_PAYLOAD + 64 + MAX_SIGNATURE;
/// The minimum number of sources in a key group that a policy may state. With one source, a sum
/// would be that source's reading.
pub const LEAST_COUNT: u32 = 2;

named_errors! {
    /// Why a policy was rejected.
    PolicyError {
        /// The bytes are not a policy.
        Decode(error: DecodeError) => from,
        /// The policy is for another group.
        WrongGroup => "the policy is for another group",
        /// The policy is for a roster with another version 0.
        WrongRoster => "the policy is for another roster of a group with this name; sign it again",
        /// The policy is not signed with the signature suite of the operator's key.
        AlgorithmMismatch => "the policy is not signed with the signature suite of the operator's key",
        /// The signature was rejected.
        Signature(error: SignatureError) => from,
    }
}

named_errors! {
    /// Why a device does not answer a query.
    NotPermitted {
        /// The set-up made masks, and the device has no policy.
        PolicyMissing => "the device has no policy; give it the policy that the operator signed",
        /// The policy does not name the querier.
        QuerierNotPermitted => "the policy does not name this querier",
        /// The length of the query's epochs is not permitted.
        EpochNotPermitted => "the policy does not permit epochs of this length",
        /// The query names a column that is not permitted, or with another divisor.
        ColumnNotPermitted => "the policy does not permit a column of the query",
        /// The query declares another range than the policy.
        RangeNotPermitted => "the query declares another range for a column than the policy",
        /// The query has a condition.
        ConditionNotPermitted => "the policy permits this querier WHERE, GROUP BY and bins only with noise; add EPSILON, for example EPSILON 0.5",
        /// The epsilon of the query is above the querier's budget.
        BudgetTooSmall => "the policy gives this querier a smaller budget for a day than the query's epsilon",
        /// The policy of another querier that is not trusted permits exact queries of the same column
        /// with other epochs or another range, or its masks are for other devices of the key group.
        PoliciesDiffer => "exact answers to this querier and to another one would differ by few readings; use the same epoch and range for the same column in both policies, make masks for the same devices, or use EPSILON",
        /// The budget of the day is spent.
        BudgetSpent => "the querier's budget for this day is spent",
        /// The query sums several columns.
        ColumnsCombined => "the policy permits this querier only one summed column in an exact query; use two queries, or EPSILON",
        /// The device has no masks.
        NoMasks => "the device has no masks: it joined the group after the set-up, or the set-up made none",
        /// The device's key group is smaller than the minimum of the policy.
        GroupTooSmall => "the device's key group has fewer devices than the policy requires for this query",
    }
}

/// How a device answers a query that the policy permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Without a mask. The querier is trusted with the readings.
    Plain,
    /// With a mask: only the sum of the whole key group opens.
    Masked,
    /// With a mask and noise. Each answer costs the query's epsilon. `budget` is the maximum cost in a
    /// day in thousandths; `None` if the querier is trusted.
    Noisy {
        /// The maximum cost in a day.
        budget: Option<u32>,
    },
}

impl Permission {
    /// Returns whether the answer is masked.
    #[must_use]
    pub const fn is_masked(self) -> bool {
        !matches!(self, Self::Plain)
    }
}

/// The budget that a device has spent on a day, over all queriers that are not trusted (spec/policy.md,
/// section 4). The device must store it durably before it sends an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ledger {
    day: u64,
    /// The sum of the epsilons of the day's answers, in thousandths.
    spent: u32,
}

/// The length of an encoded [`Ledger`] in bytes.
pub const LEDGER: usize = 13;
/// The length of a day in milliseconds.
const DAY_MS: u64 = 86_400_000;

impl Ledger {
    /// Charges an answer with this epsilon in thousandths for the epoch that starts at `start_ms`, in
    /// Unix milliseconds. An earlier day than that of the last answer is charged to the later day.
    ///
    /// # Errors
    /// [`NotPermitted::BudgetSpent`] if the querier's budget does not suffice. The ledger is then
    /// unchanged.
    pub fn charge(&mut self, start_ms: u64, epsilon: u32, budget: u32) -> Result<(), NotPermitted> {
        let day = start_ms / DAY_MS;
        let before = if day > self.day { 0 } else { self.spent };
        let spent = before.checked_add(epsilon).filter(|spent| *spent <= budget);
        self.spent = spent.ok_or(NotPermitted::BudgetSpent)?;
        self.day = self.day.max(day);
        Ok(())
    }

    /// Returns the ledger as bytes: the version 1, the day in 8 bytes and the sum in 4, big-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; LEDGER] {
        let mut bytes = [0; LEDGER];
        bytes[0] = 1;
        bytes[1..9].copy_from_slice(&self.day.to_be_bytes());
        bytes[9..].copy_from_slice(&self.spent.to_be_bytes());
        bytes
    }

    /// Reads a ledger; `None` if the bytes are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first()?;
        let (day, spent) = rest.split_first_chunk()?;
        let spent = u32::from_be_bytes(spent.try_into().ok()?);
        (*version == 1).then_some(Self { day: u64::from_be_bytes(*day), spent })
    }
}

/// A column that a querier may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnTerms<'a> {
    /// The column.
    pub name: &'a str,
    /// The column's divisor.
    pub divisor: u32,
    /// The lowest and the highest numerator that a query must declare. `None` permits every range.
    pub range: Option<(i64, i64)>,
}

/// What a policy permits a querier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuerierTerms<'a> {
    /// The id of the querier's public key.
    pub key: KeyId,
    /// Whether the querier is trusted with the readings.
    pub is_trusted: bool,
    /// The length of the epochs in milliseconds: the minimum for a trusted querier, and the only
    /// permitted one for others. With two lengths, a querier could compare sums whose newest
    /// readings differ for one device only.
    pub epoch_ms: u32,
    /// The sum of the epsilons of a device's answers in a day, in thousandths; 0 for a trusted querier.
    pub budget: u32,
    /// The columns. An empty list permits a trusted querier all columns. The columns of other
    /// queriers have ranges.
    pub columns: &'a [ColumnTerms<'a>],
}

/// A policy that is to be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyDraft<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of version 0 of the group's roster.
    pub roster: Digest,
    /// The version of the policy. A device refuses a lower version than it had before.
    pub version: u32,
    /// The minimum number of devices in a key group whose sum a querier that is not trusted may get.
    pub min_count: u32,
    /// The same for queries with sums of squares.
    pub min_count_squares: u32,
    /// The queriers.
    pub queriers: &'a [QuerierTerms<'a>],
}

impl PolicyDraft<'_> {
    /// Writes the payload.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(7)?.uint(1u8)?.bytes(&self.group.0)?.bytes(&self.roster.0)?;
        out.uint(self.version)?.uint(self.min_count)?.uint(self.min_count_squares)?;
        out.array(self.queriers.len() as u64)?;
        for terms in self.queriers {
            out.array(5)?.bytes(&terms.key.0)?.uint(u8::from(terms.is_trusted))?;
            out.uint(terms.epoch_ms)?.uint(terms.budget)?.array(terms.columns.len() as u64)?;
            for column in terms.columns {
                out.array(4)?.text(column.name)?.uint(column.divisor)?;
                out.optional(column.range.map(|range| range.0), Writer::int)?;
                out.optional(column.range.map(|range| range.1), Writer::int)?;
            }
        }
        Ok(out.finish())
    }

    /// Signs the policy and writes it to `out`. [`MAX_POLICY`] bytes suffice, also for `scratch`.
    ///
    /// # Errors
    /// [`IssueError`]. `FieldOutOfRange` if readers reject the policy.
    pub fn issue<'o>(
        &self,
        operator: &dyn Signer,
        scratch: &mut [u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], IssueError> {
        let payload = self.encode(scratch)?;
        Policy::decode(payload).map_err(|_| IssueError::FieldOutOfRange)?;
        let mut header = [0; _];
        let header = protected(operator.algorithm(), Typ::Policy, &mut header)?;
        let signature = operator.signature(sig_structure(out, header, payload)?)?;
        let mut out = Writer::new(out);
        Sign1::encode(&mut out, header, payload, &signature)?;
        Ok(out.finish())
    }
}

/// A checked policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of version 0 of the group's roster.
    pub roster: Digest,
    /// The version of the policy.
    pub version: u32,
    /// The minimum number of devices in a key group whose sum a querier that is not trusted may get.
    pub min_count: u32,
    /// The same for queries with sums of squares.
    pub min_count_squares: u32,
    payload: &'a [u8],
    /// The encoded array of the queriers.
    queriers: &'a [u8],
}

/// The terms of a querier in a policy.
struct Terms<'a> {
    key: KeyId,
    is_trusted: bool,
    epoch_ms: u32,
    budget: u32,
    /// The encoded array of the columns, which was checked.
    columns: &'a [u8],
}

impl<'a> Terms<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.array(5)?;
        let key = KeyId(reader.fixed()?);
        let is_trusted = match reader.u64()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::FieldOutOfRange),
        };
        let (epoch_ms, budget) = (reader.uint()?, reader.uint()?);
        Ok(Self { key, is_trusted, epoch_ms, budget, columns: reader.raw()? })
    }

    /// Returns the columns. The second value is the error of the first column that does not decode.
    fn columns(&self) -> impl Iterator<Item = Result<ColumnTerms<'a>, DecodeError>> + use<'a> {
        array(self.columns, column)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let mut count = 0;
        for (place, found) in self.columns().enumerate() {
            let found = found?;
            let is_new = self.columns().take(place).flatten().all(|other| other.name != found.name);
            let has_range = found.range.map_or(self.is_trusted, |(low, high)| low <= high);
            let is_named = (1..=MAX_NAME).contains(&found.name.len());
            if !(is_new && has_range && is_named && found.divisor > 0) {
                return Err(DecodeError::FieldOutOfRange);
            }
            count = place + 1;
        }
        let is_free = self.is_trusted && self.budget > 0;
        if count > MAX_COLUMNS || !EPOCH_MS.contains(&self.epoch_ms) || is_free {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok(())
    }
}

fn column<'a>(reader: &mut Reader<'a>) -> Result<ColumnTerms<'a>, DecodeError> {
    reader.array(4)?;
    let (name, divisor) = (reader.text()?, reader.uint()?);
    let (low, high) = (reader.optional(Reader::i64)?, reader.optional(Reader::i64)?);
    if low.is_some() != high.is_some() {
        return Err(DecodeError::FieldOutOfRange);
    }
    Ok(ColumnTerms { name, divisor, range: low.zip(high) })
}

/// Iterates over the items of an encoded array. Ends after the first error.
fn array<'a, T>(
    bytes: &'a [u8],
    read: fn(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> impl Iterator<Item = Result<T, DecodeError>> + use<'a, T> {
    let mut reader = Reader::new(bytes);
    let mut left = match &mut reader {
        Ok(reader) => reader.array_any(),
        Err(error) => Err(*error),
    };
    core::iter::from_fn(move || {
        let item = match (&mut left, &mut reader) {
            (Ok(0), _) => return None,
            (Ok(count), Ok(reader)) => {
                *count -= 1;
                read(reader)
            }
            (Err(error), _) | (_, Err(error)) => Err(*error),
        };
        if item.is_err() {
            left = Ok(0);
        }
        Some(item)
    })
}

impl<'a> Policy<'a> {
    /// Reads and checks a payload that the operator has signed, or that is in a mote's provisioning
    /// blob.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload)?;
        reader.array(7)?;
        reader.version()?;
        let (group, roster) = (GroupId(reader.fixed()?), Digest(reader.fixed()?));
        let (version, min_count, min_count_squares) =
            (reader.uint()?, reader.uint()?, reader.uint()?);
        let queriers = reader.raw()?;
        if min_count < LEAST_COUNT || min_count_squares < min_count {
            return Err(DecodeError::FieldOutOfRange);
        }
        let policy =
            Self { group, roster, version, min_count, min_count_squares, payload, queriers };
        let mut count = 0;
        for (place, terms) in policy.terms().enumerate() {
            let terms = terms?;
            terms.check()?;
            // All queriers have the same secrets, so that one could open what another one may ask.
            let is_other =
                |other: &Terms<'_>| other.key != terms.key && other.is_trusted == terms.is_trusted;
            if !policy.terms().take(place).flatten().all(|other| is_other(&other)) {
                return Err(DecodeError::FieldOutOfRange);
            }
            count = place + 1;
        }
        if count > MAX_QUERIERS || payload.len() > MAX_PAYLOAD {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok(policy)
    }

    /// Reads a policy, and checks that the operator has signed it for this group. `roster` is the
    /// digest of version 0 of the group's roster. `scratch` needs [`MAX_POLICY`] bytes.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn open(
        bytes: &'a [u8],
        (group, roster): (GroupId, &Digest),
        operator: &PublicKey,
        scratch: &mut [u8],
    ) -> Result<Self, PolicyError> {
        let object = Sign1::decode(bytes, Typ::Policy)?;
        let policy = Self::decode(object.payload)?;
        if policy.group != group {
            return Err(PolicyError::WrongGroup);
        }
        if policy.roster != *roster {
            return Err(PolicyError::WrongRoster);
        }
        if object.header.algorithm != operator.algorithm() {
            return Err(PolicyError::AlgorithmMismatch);
        }
        let message = object.message(scratch).map_err(|_| DecodeError::FieldOutOfRange)?;
        operator.verify(message, object.signature)?;
        Ok(policy)
    }

    /// Returns the payload.
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    fn terms(&self) -> impl Iterator<Item = Result<Terms<'a>, DecodeError>> + use<'a> {
        array(self.queriers, Terms::read)
    }

    /// Calls `each` with the terms of each querier, in order.
    pub fn for_each_querier(&self, mut each: impl FnMut(&QuerierTerms<'_>)) {
        for terms in self.terms().flatten() {
            let mut columns = [ColumnTerms { name: "", divisor: 1, range: None }; MAX_COLUMNS];
            let mut count = 0;
            for (place, column) in columns.iter_mut().zip(terms.columns().flatten()) {
                *place = column;
                count += 1;
            }
            let columns = columns.get(..count).unwrap_or_default();
            let Terms { key, is_trusted, epoch_ms, budget, .. } = terms;
            each(&QuerierTerms { key, is_trusted, epoch_ms, budget, columns });
        }
    }

    /// Returns whether a device may give exact answers to the queriers of both policies that are not
    /// trusted (spec/policy.md, section 3). If both may use a column, they must use the same epochs and
    /// the same range: together, they could otherwise compare sums that differ by few readings.
    #[must_use]
    pub fn agrees_with(&self, other: &Policy<'_>) -> bool {
        self.strict_terms().all(|ours| {
            other.strict_terms().all(|theirs| {
                ours.columns().flatten().all(|column| {
                    let same = theirs.columns().flatten().find(|other| other.name == column.name);
                    same.is_none_or(|same| same == column && ours.epoch_ms == theirs.epoch_ms)
                })
            })
        })
    }

    /// Returns whether there is a querier that is not trusted.
    #[must_use]
    pub fn has_strict(&self) -> bool {
        self.strict_terms().next().is_some()
    }

    /// Returns the terms of the queriers that are not trusted.
    fn strict_terms(&self) -> impl Iterator<Item = Terms<'a>> + use<'a> {
        self.terms().flatten().filter(|terms| !terms.is_trusted)
    }

    /// Checks whether a device may answer a query of the querier with this public key. `ring` is the
    /// number of devices in the device's key group if the device has masks.
    ///
    /// # Errors
    /// [`NotPermitted`], except `PolicyMissing`.
    pub fn permit(
        &self,
        querier: &PublicKey,
        plan: &Plan<'_>,
        ring: Option<u32>,
    ) -> Result<Permission, NotPermitted> {
        let key = KeyId::of(querier);
        let terms = self.terms().flatten().find(|terms| terms.key == key);
        let terms = terms.ok_or(NotPermitted::QuerierNotPermitted)?;
        let epoch_ms = plan.epoch_ms();
        // An exact answer must not select readings.
        let is_exact = !plan.has_noise();
        let is_strict = is_exact && !terms.is_trusted;
        let is_permitted = match is_strict {
            false => epoch_ms >= terms.epoch_ms,
            true => epoch_ms == terms.epoch_ms,
        };
        if !is_permitted {
            return Err(NotPermitted::EpochNotPermitted);
        }
        let is_free = terms.is_trusted && terms.columns().next().is_none();
        for used in plan.columns().filter(|_| !is_free) {
            let column = terms
                .columns()
                .flatten()
                .find(|column| (column.name, column.divisor) == (used.name, used.divisor))
                .ok_or(NotPermitted::ColumnNotPermitted)?;
            let is_other = |range| used.range.is_some_and(|used| used != range);
            if is_exact && column.range.is_some_and(is_other) {
                return Err(NotPermitted::RangeNotPermitted);
            }
        }
        if terms.is_trusted && is_exact {
            return Ok(Permission::Plain);
        }
        if is_exact && (plan.has_condition() || plan.has_partition()) {
            return Err(NotPermitted::ConditionNotPermitted);
        }
        // A reading counts only if all summed columns are in range. With several columns, a range is
        // thus a condition on the readings of another column.
        if is_exact && plan.columns().filter(|column| column.range.is_some()).count() > 1 {
            return Err(NotPermitted::ColumnsCombined);
        }
        if !is_exact && !terms.is_trusted && plan.epsilon() > terms.budget {
            return Err(NotPermitted::BudgetTooSmall);
        }
        let ring = ring.ok_or(NotPermitted::NoMasks)?;
        let least = if plan.has_squares() { self.min_count_squares } else { self.min_count };
        if ring < least {
            return Err(NotPermitted::GroupTooSmall);
        }
        let budget = (!terms.is_trusted).then_some(terms.budget);
        Ok(if is_exact { Permission::Masked } else { Permission::Noisy { budget } })
    }
}

/// Checks whether a device may answer a query. A device without a policy answers every query of its
/// querier, unless `needs_policy` is true, because the set-up made masks.
///
/// # Errors
/// [`NotPermitted`].
pub fn permit(
    policy: Option<&Policy<'_>>,
    querier: &PublicKey,
    plan: &Plan<'_>,
    ring: Option<u32>,
    needs_policy: bool,
) -> Result<Permission, NotPermitted> {
    match policy {
        Some(policy) => policy.permit(querier, plan, ring),
        None if needs_policy || ring.is_some() => Err(NotPermitted::PolicyMissing),
        None if plan.has_noise() => Err(NotPermitted::NoMasks),
        None => Ok(Permission::Plain),
    }
}
