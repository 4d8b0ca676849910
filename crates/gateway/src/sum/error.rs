//! Why an aggregator rejects a frame or a query schedule (spec/errors.md).

use std::fmt;

use moteseal_core::link::FrameError;
use moteseal_sum::participation::ParticipationError;
use moteseal_sum::schedule::QueryScheduleError;
use moteseal_sum::sies::PsrError;

/// Why a frame or a query schedule was rejected. A rejection is counted and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// The frame does not decode, or it is not from the sender that it names.
    Frame(FrameError),
    /// The query schedule does not decode, or is not the querier's for this group and roster.
    QuerySchedule(QueryScheduleError),
    /// The participants are not a valid set of positions of the roster.
    Participation(ParticipationError),
    /// A partial state record is invalid.
    Psr(PsrError),
    /// This gateway has no such child in the tree.
    UnknownChild,
    /// The frame is longer than any valid frame of this child.
    FrameTooLong,
    /// No active query has this reference.
    WrongQuery,
    /// The epoch was not asked for, or is still too far ahead.
    WrongEpoch,
    /// The epoch has already been sent to the parent, without this share.
    EpochOver,
    /// A participant is not below this child.
    NotBeneath,
    /// The number of records does not match the query's slots and the key groups of the
    /// participants.
    WrongPsrCount,
    /// The child has sent a different share of this epoch before; the first one counts.
    Contradiction,
    /// No question waits for this answer.
    NotAsked,
    /// The question is for a node that is not below this gateway.
    UnknownNode,
    /// The query schedule is older than the accepted one.
    OlderAgenda,
    /// Another query schedule with the same number was accepted.
    TwoAgendas,
    /// The query schedule states another number of sources than the roster has.
    SourcesMismatch,
    /// The query schedule's number could not be made durable, so the schedule is rejected.
    NotDurable,
}

impl Refused {
    /// The name of the reason, for counters and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frame(error) => error.name(),
            Self::QuerySchedule(error) => error.name(),
            Self::Participation(error) => error.name(),
            Self::Psr(error) => error.name(),
            Self::UnknownChild => "UnknownChild",
            Self::FrameTooLong => "FrameTooLong",
            Self::WrongQuery => "WrongQuery",
            Self::WrongEpoch => "WrongEpoch",
            Self::EpochOver => "EpochOver",
            Self::NotBeneath => "NotBeneath",
            Self::WrongPsrCount => "WrongPsrCount",
            Self::Contradiction => "Contradiction",
            Self::NotAsked => "NotAsked",
            Self::UnknownNode => "UnknownNode",
            Self::OlderAgenda => "OlderAgenda",
            Self::TwoAgendas => "TwoAgendas",
            Self::SourcesMismatch => "SourcesMismatch",
            Self::NotDurable => "NotDurable",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Frame(error) => return error.named().fmt(f),
            Self::QuerySchedule(error) => return error.named().fmt(f),
            Self::Participation(error) => return error.named().fmt(f),
            Self::Psr(error) => return error.named().fmt(f),
            Self::UnknownChild => {
                "this gateway has no such child in the tree; give all gateways the same tree"
            }
            Self::FrameTooLong => "the frame is longer than any valid frame of this child",
            Self::WrongQuery => "no active query has this reference",
            Self::WrongEpoch => {
                "the epoch was not asked for, or is too far ahead; check the child's clock"
            }
            Self::EpochOver => {
                "the epoch was sent to the parent without this share; check the child's clock, or raise `grace`"
            }
            Self::NotBeneath => {
                "a participant is not below this child; give all gateways the same tree"
            }
            Self::WrongPsrCount => {
                "the number of records does not match the query's slots and the participants' key groups"
            }
            Self::Contradiction => "the child has sent a different share of this epoch before",
            Self::NotAsked => "no question waits for this answer",
            Self::UnknownNode => {
                "the question is for a node that is not below this gateway; give the querier and all gateways the same tree"
            }
            Self::OlderAgenda => "the query schedule is older than the accepted one",
            Self::TwoAgendas => {
                "another query schedule with this number was accepted; the querier must not reuse a number"
            }
            Self::SourcesMismatch => {
                "the query schedule states another number of sources than the roster has"
            }
            Self::NotDurable => {
                "the number could not be written to the state folder, so the query schedule is rejected"
            }
        };
        write!(f, "{}: {text}", self.name())
    }
}

impl std::error::Error for Refused {}

macro_rules! from {
    ($($variant:ident($error:ty)),+) => {
        $(impl From<$error> for Refused {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })+
    };
}
from!(
    Frame(FrameError),
    QuerySchedule(QueryScheduleError),
    Participation(ParticipationError),
    Psr(PsrError)
);
