//! What the querier asks at present, signed: how queries reach gateways and motes, and how they end (spec/sums.md, section 3).
//!
//! There is one agenda at a time, with all queries that run. Its number only goes up: whoever keeps the highest that it has acted on can
//! neither be made to answer a query that has ended, nor be kept from hearing that it has by an older agenda.

use core::fmt;

use super::query::{MAX_PLAN, QueryId};
use crate::digest::Digest;
use crate::identity::{IssueError, protected};
use crate::record::GroupId;
use crate::signature::{MAX_SIGNATURE, PublicKey, SignatureError, Signer};
use crate::wire::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::wire::cose::{Sign1, Typ, sig_structure};

/// At most so many queries run at a time.
pub const MAX_QUERIES: usize = 4;
/// No agenda's payload is longer.
const MAX_PAYLOAD: usize = 96 + MAX_QUERIES * (MAX_PLAN + 48);
/// Room for any agenda, and for what is signed of it.
pub const MAX_AGENDA: usize = MAX_PAYLOAD + 64 + MAX_SIGNATURE;

/// Why an agenda was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AgendaError {
    /// Not the bytes of one.
    Decode(DecodeError),
    /// Signed with another suite than the querier's key.
    AlgorithmMismatch,
    /// The signature was refused.
    Signature(SignatureError),
    /// Of another group.
    WrongGroup,
    /// Made for another roster.
    WrongRoster,
    /// Two queries whose ids begin alike.
    AmbiguousQuery,
}

impl AgendaError {
    /// The error's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decode(error) => error.name(),
            Self::AlgorithmMismatch => "AlgorithmMismatch",
            Self::Signature(error) => error.name(),
            Self::WrongGroup => "WrongGroup",
            Self::WrongRoster => "WrongRoster",
            Self::AmbiguousQuery => "AmbiguousQuery",
        }
    }
}

impl From<DecodeError> for AgendaError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<BufferTooSmall> for AgendaError {
    fn from(_: BufferTooSmall) -> Self {
        Self::Decode(DecodeError::FieldOutOfRange)
    }
}

impl fmt::Display for AgendaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decode(error) => return error.fmt(f),
            Self::Signature(error) => return error.fmt(f),
            Self::AlgorithmMismatch => "AlgorithmMismatch: signed with another suite than the querier's key",
            Self::WrongGroup => "WrongGroup: the queries are for another group",
            Self::WrongRoster => {
                "WrongRoster: the queries are for another version of the roster; set up the sums again with this one"
            }
            Self::AmbiguousQuery => "AmbiguousQuery: the ids of two queries begin alike; draw another nonce",
        })
    }
}

impl core::error::Error for AgendaError {}

/// A query that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posed<'a> {
    /// Random, so that the query has keys of its own.
    pub nonce: [u8; 16],
    /// The first epoch that is asked for.
    pub first: u64,
    /// The first that is no longer.
    pub until: u64,
    /// The plan, encoded ([`Plan::decode`](super::query::Plan::decode) reads it).
    pub plan: &'a [u8],
}

impl Posed<'_> {
    /// Its id, among sources of a roster.
    #[must_use]
    pub fn id(&self, roster: &Digest) -> QueryId {
        QueryId::of(roster, &self.nonce, self.plan)
    }
}

/// What is asked at present. Checked; there is no other kind.
#[derive(Clone, Copy, Debug)]
pub struct Agenda<'a> {
    digest: Digest,
    number: u64,
    roster: Digest,
    sources: u32,
    key_group: u32,
    queries: &'a [u8],
}

/// An agenda to be signed.
#[derive(Clone, Copy, Debug)]
pub struct AgendaDraft<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of the roster that gives the sources their positions.
    pub roster: Digest,
    /// Higher than that of every agenda before; usually the time in milliseconds.
    pub number: u64,
    /// How many sources the roster has.
    pub sources: u32,
    /// How many sources, by position, are in a key group.
    pub key_group: u32,
    /// The queries that run.
    pub queries: &'a [Posed<'a>],
}

impl AgendaDraft<'_> {
    /// Signs the agenda and writes it to `out`; both buffers need [`MAX_AGENDA`] bytes.
    ///
    /// # Errors
    /// [`IssueError`]. A draft that [`Agenda::open`] would refuse makes an agenda that nobody opens.
    pub fn issue<'o>(&self, querier: &dyn Signer, scratch: &mut [u8], out: &'o mut [u8]) -> Result<&'o [u8], IssueError> {
        let mut writer = Writer::new(scratch);
        writer.array(7)?.uint(1u8)?.bytes(&self.group.0)?.bytes(&self.roster.0)?.uint(self.number)?;
        writer.uint(self.sources)?.uint(self.key_group)?.array(self.queries.len() as u64)?;
        for query in self.queries {
            writer.array(4)?.bytes(&query.nonce)?.uint(query.first)?.uint(query.until)?.bytes(query.plan)?;
        }
        let payload = writer.finish();
        let mut header = [0; _];
        let header = protected(querier.algorithm(), Typ::Agenda, &mut header)?;
        let signature = querier.signature(sig_structure(out, header, payload)?)?;
        let mut out = Writer::new(out);
        Sign1::encode(&mut out, header, payload, &signature)?;
        Ok(out.finish())
    }
}

fn posed<'a>(reader: &mut Reader<'a>) -> Result<Posed<'a>, DecodeError> {
    reader.array(4)?;
    Ok(Posed { nonce: reader.fixed()?, first: reader.u64()?, until: reader.u64()?, plan: reader.bytes()? })
}

impl<'a> Agenda<'a> {
    /// Reads an agenda and checks that it is the querier's, for this group and this version of its roster. `scratch` needs [`MAX_AGENDA`]
    /// bytes, or as many as the longest agenda that shall be read.
    ///
    /// # Errors
    /// [`AgendaError`].
    pub fn open(
        bytes: &'a [u8],
        group: GroupId,
        roster: &Digest,
        querier: &PublicKey,
        scratch: &mut [u8],
    ) -> Result<Self, AgendaError> {
        let object = Sign1::decode(bytes, Typ::Agenda)?;
        if object.header.algorithm != querier.algorithm() {
            return Err(AgendaError::AlgorithmMismatch);
        }
        querier.verify(object.message(scratch)?, object.signature).map_err(AgendaError::Signature)?;
        let mut reader = Reader::new(object.payload)?;
        reader.array(7)?;
        reader.version()?;
        let (found, of) = (GroupId(reader.fixed()?), Digest(reader.fixed()?));
        let (number, sources, key_group) = (reader.u64()?, reader.uint()?, reader.uint()?);
        let queries = reader.raw()?;
        if found != group {
            return Err(AgendaError::WrongGroup);
        }
        if of != *roster {
            return Err(AgendaError::WrongRoster);
        }
        let agenda = Self { digest: object.digest(), number, roster: of, sources, key_group, queries };
        agenda.check()?;
        Ok(agenda)
    }

    fn check(&self) -> Result<(), AgendaError> {
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
                return Err(AgendaError::AmbiguousQuery);
            }
            references[i] = reference;
        }
        Ok(())
    }

    /// The digest of what was signed.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Its number; higher than that of every agenda before.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// How many sources there are.
    #[must_use]
    pub const fn sources(&self) -> u32 {
        self.sources
    }

    /// How many sources, by position, are in a key group.
    #[must_use]
    pub const fn key_group(&self) -> u32 {
        self.key_group
    }

    /// The queries that run, with their ids. Their plans are as they came.
    pub fn queries(&self) -> impl Iterator<Item = (QueryId, Posed<'a>)> + use<'a> {
        let (roster, bytes) = (self.roster, self.queries);
        let mut reader = Reader::new(bytes).ok();
        let mut left = reader.as_mut().and_then(|reader| reader.array_any().ok()).unwrap_or_default();
        core::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let query = posed(reader.as_mut()?).ok()?;
            Some((query.id(&roster), query))
        })
    }
}
