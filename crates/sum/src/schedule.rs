//! The query schedule, with which a querier starts and ends queries at gateways and motes
//! (spec/sums.md, section 3).
//!
//! The querier is a sender in the group's broadcast network. It sends a query schedule as a chain
//! of one message; the number of the chain is also the number of the query schedule. The current
//! query schedule contains all running queries and replaces the previous one.
//!
//! The number only increases. A device stores the highest number that it has accepted and rejects
//! lower ones. Otherwise an attacker could replay an older schedule, and the device would answer a
//! query that has ended. The caller of this module stores the number.

use crate::query::{MAX_PLAN, QueryId};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainId, ChainNumber, Head, Kind, MAX_MESSAGE, MAX_SINGLE, OpenedSingle, SealError,
    SingleDraft, SingleError, Window, open_single, sender_named,
};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::identity::IssueError;
use moteseal_core::named_errors;
use moteseal_core::record::NetworkId;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{KeyPair, PublicKey};

/// The maximum number of running queries.
pub const MAX_QUERIES: usize = 4;
/// The maximum length in bytes of an encoded query schedule: its own fields and the fields of each
/// query.
const MAX_LENGTH: usize = 64 + MAX_QUERIES * (MAX_PLAN + 48);
const _: () = assert!(MAX_LENGTH <= MAX_MESSAGE, "every query schedule fits one message");
/// The maximum length in bytes of an announcement: a signed query schedule as it is sent. A buffer
/// of this size also suffices as scratch space to sign or verify an announcement.
pub const MAX_QUERY_SCHEDULE: usize = MAX_SINGLE;

/// The maximum time by which the number of a query schedule may be ahead of the receiver's clock, in
/// milliseconds.
const AHEAD_MS: u64 = 24 * 3600 * 1000;

/// How long after the end of an epoch a query schedule may be signed under which the epoch is answered, in
/// milliseconds.
const SIGNED_BEFORE_MS: u64 = 60_000;

/// Returns whether the number of a query schedule is so far ahead of the receiver's clock that the
/// receiver must not accept it. Otherwise a querier with a wrong clock, or with a stolen key, could
/// use up the numbers of all later query schedules.
#[must_use]
pub const fn is_ahead(number: u64, unix_ms: u64) -> bool {
    number > unix_ms.saturating_add(AHEAD_MS)
}

/// Returns the first epoch that a source may answer under a query schedule with this number: epochs of
/// `epoch_ms` milliseconds that had ended when the querier signed the schedule, are over. A source
/// whose clock was set back does so not answer them again, even if it has lost its epoch guard
/// (spec/sums.md, section 3). A minute is for answers that are on their way, and for the clock of the
/// querier, which is ahead.
#[must_use]
pub const fn first_answered(number: u64, epoch_ms: u64) -> u64 {
    number.saturating_sub(SIGNED_BEFORE_MS) / if epoch_ms == 0 { 1 } else { epoch_ms }
}

/// Returns the network in which a group's query schedules are sent. The network's id equals the
/// group's id.
#[must_use]
pub const fn network(group: GroupId) -> NetworkId {
    NetworkId(group.0)
}

/// Returns the id of the querier as a sender. Every group's querier has the sender name `querier`.
#[must_use]
pub fn querier_id() -> DeviceId {
    sender_named("querier")
}

named_errors! {
    /// Why a query schedule was rejected.
    QueryScheduleError {
        /// The announcement is not a chain of one message that the querier signed for the group's
        /// network.
        Single(error: SingleError) => from,
        /// The announcement does not belong to the group's network.
        WrongNetwork => "the queries are for another group",
        /// The announcement's sender is not the querier.
        WrongSender => "the sender is not the querier",
        /// The querier signed the message, but not as a query schedule.
        WrongKind => "the querier signed this, but not as a query schedule",
        /// The message is not an encoded query schedule.
        Decode(error: DecodeError) => from,
        /// The query schedule was made for a roster with another version 0.
        WrongRoster => "the queries are for another roster of a group with this name; set up the sums again",
        /// The ids of two queries begin with the same four bytes.
        AmbiguousQuery => "the ids of two queries begin with the same four bytes; choose another nonce",
    }
}

/// A running query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posed<'a> {
    /// 16 random bytes, which make the query's id and keys unique.
    pub nonce: [u8; 16],
    /// The first epoch to answer.
    pub first: u64,
    /// The first epoch that sources no longer answer.
    pub until: u64,
    /// The encoded plan, for [`Plan::decode`](crate::query::Plan::decode).
    pub plan: &'a [u8],
}

impl Posed<'_> {
    /// Returns the query's id, which also depends on the group: `roster` is the digest of version 0
    /// of its roster.
    #[must_use]
    pub fn id(&self, roster: &Digest) -> QueryId {
        QueryId::of(roster, &self.nonce, self.plan)
    }
}

/// Returns the number that an announcement claims, without verifying it. A receiver can use it to
/// skip an old announcement without a signature check.
///
/// # Errors
/// [`QueryScheduleError`] if the announcement is not a chain of one message.
pub fn claimed_number(announcement: &[u8]) -> Result<u64, QueryScheduleError> {
    match BroadcastFrame::decode(announcement)? {
        BroadcastFrame::Single { head, .. } => Ok(Head::peek(head)?.id().number.0),
        _ => Err(SingleError::NotSingle.into()),
    }
}

/// Verifies that the querier of a group signed an announcement. `scratch` needs
/// [`MAX_QUERY_SCHEDULE`] bytes, or at least 64 bytes more than the announcement.
///
/// # Errors
/// [`QueryScheduleError::Single`].
pub fn receive<'a>(
    announcement: &'a [u8],
    group: GroupId,
    querier: &PublicKey,
    scratch: &mut [u8],
) -> Result<OpenedSingle<'a>, QueryScheduleError> {
    Ok(open_single(announcement, network(group), querier_id(), querier, scratch)?)
}

/// A verified query schedule of the querier. Only [`open`](Self::open) creates this type.
#[derive(Clone, Copy, Debug)]
pub struct QuerySchedule<'a> {
    digest: Digest,
    number: u64,
    roster: Digest,
    sources: u32,
    key_group: u32,
    queries: &'a [u8],
}

/// The content of a query schedule, before the querier signs it.
#[derive(Clone, Copy, Debug)]
pub struct QueryScheduleDraft<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of version 0 of the group's roster.
    pub roster: Digest,
    /// The number of the query schedule. It must be higher than the number of every earlier query
    /// schedule. Usually it is the current time in Unix milliseconds.
    pub number: u64,
    /// The number of sources in the querier's version of the roster.
    pub sources: u32,
    /// The number of consecutive positions that form a key group.
    pub key_group: u32,
    /// The running queries.
    pub queries: &'a [Posed<'a>],
}

impl QueryScheduleDraft<'_> {
    /// Signs the query schedule and writes its announcement to `out`. Both buffers need
    /// [`MAX_QUERY_SCHEDULE`] bytes.
    ///
    /// # Errors
    /// [`SealError`]. This function does not check the draft's fields. Receivers reject an invalid
    /// query schedule in [`QuerySchedule::open`].
    pub fn issue<'o>(
        &self,
        querier: &dyn KeyPair,
        scratch: &mut [u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], SealError> {
        let mut message = [0; MAX_LENGTH];
        let message = self.write(&mut message).map_err(IssueError::from)?;
        let id = ChainId {
            network: network(self.group),
            sender: querier_id(),
            number: ChainNumber(self.number),
        };
        SingleDraft {
            id,
            kind: Kind::QuerySchedule,
            label: "",
            window: Window::ALWAYS,
            previous: None,
            message,
        }
        .seal(querier, scratch, out)
    }

    fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(5)?.uint(1u8)?.bytes(&self.roster.0)?;
        out.uint(self.sources)?.uint(self.key_group)?.array(self.queries.len() as u64)?;
        for query in self.queries {
            out.array(4)?
                .bytes(&query.nonce)?
                .uint(query.first)?
                .uint(query.until)?
                .bytes(query.plan)?;
        }
        Ok(out.finish())
    }
}

fn posed<'a>(reader: &mut Reader<'a>) -> Result<Posed<'a>, DecodeError> {
    reader.array(4)?;
    Ok(Posed {
        nonce: reader.fixed()?,
        first: reader.u64()?,
        until: reader.u64()?,
        plan: reader.bytes()?,
    })
}

impl<'a> QuerySchedule<'a> {
    /// Reads a query schedule from a verified message, and checks that it is for this group.
    /// `roster` is the digest of version 0 of the group's roster.
    ///
    /// # Errors
    /// [`QueryScheduleError`].
    pub fn open(
        message: &OpenedSingle<'a>,
        group: GroupId,
        roster: &Digest,
    ) -> Result<Self, QueryScheduleError> {
        let ChainId { network: of, sender, number } = message.id();
        if of != network(group) {
            return Err(QueryScheduleError::WrongNetwork);
        }
        if sender != querier_id() {
            return Err(QueryScheduleError::WrongSender);
        }
        if message.outline().kind != Kind::QuerySchedule {
            return Err(QueryScheduleError::WrongKind);
        }
        let mut reader = Reader::new(message.message())?;
        reader.array(5)?;
        reader.version()?;
        let of = Digest(reader.fixed()?);
        let (sources, key_group) = (reader.uint()?, reader.uint()?);
        let queries = reader.raw()?;
        if of != *roster {
            return Err(QueryScheduleError::WrongRoster);
        }
        let schedule = Self {
            digest: message.digest(),
            number: number.0,
            roster: of,
            sources,
            key_group,
            queries,
        };
        schedule.check()?;
        Ok(schedule)
    }

    fn check(&self) -> Result<(), QueryScheduleError> {
        let mut reader = Reader::new(self.queries)?;
        let queries = usize::try_from(reader.array_any()?).unwrap_or(usize::MAX);
        if queries > MAX_QUERIES || self.sources == 0 || self.key_group == 0 {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        let mut references = [None; MAX_QUERIES];
        for i in 0..queries {
            let query = posed(&mut reader)?;
            if query.first >= query.until || query.plan.len() > MAX_PLAN {
                return Err(DecodeError::FieldOutOfRange.into());
            }
            let reference = Some(query.id(&self.roster).reference());
            if references.contains(&reference) {
                return Err(QueryScheduleError::AmbiguousQuery);
            }
            references[i] = reference;
        }
        Ok(())
    }

    /// Returns the digest of the chain's only block. Use it to detect two different query schedules
    /// with the same number.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the number of the query schedule, which is higher than the number of every earlier
    /// query schedule.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of sources in the querier's version of the roster. Sources with a higher
    /// position are not asked.
    #[must_use]
    pub const fn sources(&self) -> u32 {
        self.sources
    }

    /// Returns the number of consecutive positions that form a key group.
    #[must_use]
    pub const fn key_group(&self) -> u32 {
        self.key_group
    }

    /// Returns the running queries with their ids. The plans are not decoded.
    pub fn queries(&self) -> impl Iterator<Item = (QueryId, Posed<'a>)> + use<'a> {
        let (roster, bytes) = (self.roster, self.queries);
        let mut reader = Reader::new(bytes).ok();
        let mut left =
            reader.as_mut().and_then(|reader| reader.array_any().ok()).unwrap_or_default();
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let query = posed(reader.as_mut()?).ok()?;
            Some((query.id(&roster), query))
        })
    }
}
