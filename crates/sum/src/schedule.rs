//! The query schedule: how queries reach gateways and motes, and how they end (spec/sums.md,
//! section 3).
//!
//! The querier is a sender of the group's network, and a query schedule is a chain of one message:
//! the head is signed, the message is the query schedule, and the chain's number is its number.
//! There is one current query schedule, with all running queries. Its number only increases. A
//! device stores the highest number that it has accepted and rejects lower ones, so that nobody can
//! make it answer a query that has ended by replaying an older schedule. The caller stores the
//! number.

use crate::query::{MAX_PLAN, QueryId};
use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{
    ChainId, ChainNumber, Head, Kind, MAX_MESSAGE, MAX_SINGLE, OpenedSingle, SealError,
    SingleDraft, SingleError, open_single, sender_named,
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
/// The maximum length of an encoded query schedule: its own fields, and those of each query.
const MAX_LENGTH: usize = 64 + MAX_QUERIES * (MAX_PLAN + 48);
const _: () = assert!(MAX_LENGTH <= MAX_MESSAGE, "every query schedule fits one message");
/// Maximum length of an announced query schedule in bytes. A buffer of this size also suffices as
/// scratch space to sign or verify one.
pub const MAX_QUERY_SCHEDULE: usize = MAX_SINGLE;

/// Returns the network in which a group's query schedules are sent: its id is the group's id.
#[must_use]
pub const fn network(group: GroupId) -> NetworkId {
    NetworkId(group.0)
}

/// Returns the querier's id as a sender: the id of the name `querier`.
#[must_use]
pub fn querier_id() -> DeviceId {
    sender_named("querier")
}

named_errors! {
    /// Why a query schedule was rejected.
    QueryScheduleError {
        /// It is not a chain of one message that the querier signed for the group's network.
        Single(error: SingleError) => from,
        /// It does not belong to the group's network.
        WrongNetwork => "the queries are for another group",
        /// Its sender is not the querier.
        WrongSender => "the sender is not the querier",
        /// The querier signed it, but as another kind of message.
        WrongKind => "the querier signed this, but not as a query schedule",
        /// The message is not an encoded query schedule.
        Decode(error: DecodeError) => from,
        /// It was made for another roster.
        WrongRoster => "the queries are for another version of the roster; set up the sums again with this version",
        /// The ids of two queries begin with the same four bytes.
        AmbiguousQuery => "the ids of two queries begin with the same four bytes; choose another nonce",
    }
}

/// A running query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posed<'a> {
    /// 16 random bytes, so that the query has its own keys.
    pub nonce: [u8; 16],
    /// The first epoch to answer.
    pub first: u64,
    /// The first epoch that is no longer answered.
    pub until: u64,
    /// The plan, encoded ([`Plan::decode`](crate::query::Plan::decode) reads it).
    pub plan: &'a [u8],
}

impl Posed<'_> {
    /// Returns the query's id under a roster.
    #[must_use]
    pub fn id(&self, roster: &Digest) -> QueryId {
        QueryId::of(roster, &self.nonce, self.plan)
    }
}

/// Returns the number that an announcement claims. It is not verified, but lets a receiver skip an
/// old announcement without a signature check.
///
/// # Errors
/// The announcement is not a chain of one message.
pub fn claimed_number(announcement: &[u8]) -> Result<u64, QueryScheduleError> {
    match BroadcastFrame::decode(announcement)? {
        BroadcastFrame::Single { head, .. } => Ok(Head::peek(head)?.id().number.0),
        _ => Err(SingleError::NotSingle.into()),
    }
}

/// Verifies that the querier of a group signed an announcement. `scratch` needs
/// [`MAX_QUERY_SCHEDULE`] bytes, or 64 bytes more than the longest announcement to be read.
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

/// A verified query schedule of the querier. Only [`open`](Self::open) makes one.
#[derive(Clone, Copy, Debug)]
pub struct QuerySchedule<'a> {
    digest: Digest,
    number: u64,
    roster: Digest,
    sources: u32,
    key_group: u32,
    queries: &'a [u8],
}

/// A query schedule to be signed.
#[derive(Clone, Copy, Debug)]
pub struct QueryScheduleDraft<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of the roster that gives the sources their positions.
    pub roster: Digest,
    /// Its number, higher than that of every earlier query schedule. Usually the time in Unix
    /// milliseconds.
    pub number: u64,
    /// The number of sources in the roster.
    pub sources: u32,
    /// The number of consecutive positions that form a key group.
    pub key_group: u32,
    /// The running queries.
    pub queries: &'a [Posed<'a>],
}

impl QueryScheduleDraft<'_> {
    /// Signs the query schedule and writes its announcement to `out`; both buffers need
    /// [`MAX_QUERY_SCHEDULE`] bytes.
    ///
    /// # Errors
    /// [`SealError`]. This does not check the draft as [`QuerySchedule::open`] does; receivers
    /// reject an invalid one.
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
        SingleDraft { id, kind: Kind::QuerySchedule, label: "", message }
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
    /// Reads a verified message as a query schedule, and checks that it is for this group and this
    /// version of its roster.
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
        if message.kind() != Kind::QuerySchedule {
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

    /// Returns the digest of the chain's only block. It distinguishes two query schedules with the
    /// same number.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Its number, which is the chain's number. It is higher than that of every earlier query
    /// schedule.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of sources.
    #[must_use]
    pub const fn sources(&self) -> u32 {
        self.sources
    }

    /// Returns the number of consecutive positions that form a key group.
    #[must_use]
    pub const fn key_group(&self) -> u32 {
        self.key_group
    }

    /// Returns the running queries with their ids. Their plans are still encoded.
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
