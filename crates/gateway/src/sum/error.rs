//! Why an aggregator refuses what it is told: by a name that is counted, and a line that says what
//! to do (spec/errors.md).

use std::fmt;

use moteseal_core::link::FrameError;
use moteseal_sum::participation::ParticipationError;
use moteseal_sum::schedule::QueryScheduleError;
use moteseal_sum::sies::PsrError;

/// Why a frame or an query schedule was dropped. It is counted and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refused {
    /// No frame, or not the sender's.
    Frame(FrameError),
    /// No query schedule, or not the querier's for this group and roster.
    QuerySchedule(QueryScheduleError),
    /// The participants are no set of positions of the roster.
    Participation(ParticipationError),
    /// A partial state record is none.
    Psr(PsrError),
    /// The tree has no such child beneath this gateway.
    UnknownChild,
    /// A frame longer than this child can have anything to say.
    FrameTooLong,
    /// No query that runs is named so.
    WrongQuery,
    /// An epoch that was not asked for, or has not come yet.
    WrongEpoch,
    /// The epoch was sent on without this.
    EpochOver,
    /// A position that is not beneath this child.
    NotBeneath,
    /// More or fewer records than the query's slots for the key groups of the participants.
    WrongPsrCount,
    /// The child has said something else of this epoch before; that stands.
    Contradiction,
    /// An answer that nobody waits for.
    NotAsked,
    /// A question to somebody who is not beneath this gateway.
    UnknownNode,
    /// An query schedule that is older than one that was acted on.
    OlderAgenda,
    /// Another query schedule with this number was acted on.
    TwoAgendas,
    /// The query schedule counts other sources than the roster has.
    SourcesMismatch,
    /// The query schedule's number could not be made durable, so it is not acted on.
    NotDurable,
}

impl Refused {
    /// The reason's name: for counters and logs.
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
                "the tree has no such child here; give all gateways the same tree"
            }
            Self::FrameTooLong => "longer than this child can have anything to say",
            Self::WrongQuery => "no such query runs",
            Self::WrongEpoch => {
                "an epoch that is not asked for, or has not come yet; check the child's clock"
            }
            Self::EpochOver => {
                "the epoch was sent on without it; check the child's clock, or raise `grace`"
            }
            Self::NotBeneath => {
                "somebody who is not beneath this child; give all gateways the same tree"
            }
            Self::WrongPsrCount => {
                "not a record for each slot of the query and key group of the participants"
            }
            Self::Contradiction => "the child has said something else of this epoch before",
            Self::NotAsked => "an answer that nobody waits for",
            Self::UnknownNode => {
                "a question to somebody who is not beneath this gateway; give querier and gateways the same tree"
            }
            Self::OlderAgenda => "older than what was acted on already",
            Self::TwoAgendas => {
                "another query schedule with this number was acted on; the querier must not reuse a number"
            }
            Self::SourcesMismatch => "the query schedule counts other sources than the roster has",
            Self::NotDurable => {
                "the number could not be written to the state folder, so the query schedule is not acted on"
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
