//! What a mote says of what it does, to whoever watches it. Nothing depends on anybody listening.

use core::fmt;

use moteseal_broadcast::ChainNumber;
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex};

use crate::command::Command;

/// One thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It has started, so often now.
    Started(u32),
    /// It opened a seal.
    Opened(SealIndex, EpochNumber, Scheme),
    /// It signed a seal over so many events.
    Sealed(SealIndex, EpochNumber, u64),
    /// The coordinator has a seal.
    Taken(SealIndex),
    /// A seal that the coordinator refuses, or has lost what it had of, was given up.
    GivenUp(SealIndex),
    /// All readings are sealed, and the coordinator has every seal.
    Done,
    /// Readings from this place on, until one is of the roster's first epoch, are passed over.
    TooEarly(u32),
    /// Every reading from this place on is of an epoch that the roster does not allow: it seals no
    /// more.
    OutOfRange(u32),
    /// It acts on an query schedule of this number.
    QuerySchedule(u64),
    /// An query schedule, or a query of it, is not acted on.
    NotAnswering(&'static str),
    /// It answered an epoch of a query.
    Answered(u64),
    /// It acted on a command of a chain.
    Acted(ChainNumber, Command),
    /// A message of a chain is no command, or was too long to keep.
    NoCommand(ChainNumber),
    /// A broadcast was refused.
    Refused(RefusedBroadcast),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(boots) => write!(f, "started {boots}"),
            Self::Opened(index, epoch, scheme) => {
                write!(f, "opened {index} epoch {epoch} {}", scheme.as_str())
            }
            Self::Sealed(index, epoch, events) => {
                write!(f, "sealed {index} epoch {epoch} events {events}")
            }
            Self::Taken(index) => write!(f, "taken {index}"),
            Self::GivenUp(index) => write!(f, "given-up {index}"),
            Self::Done => f.write_str("done"),
            Self::TooEarly(at) => write!(f, "too-early {at}"),
            Self::OutOfRange(at) => write!(f, "out-of-range {at}"),
            Self::QuerySchedule(number) => write!(f, "query schedule {number}"),
            Self::NotAnswering(why) => write!(f, "not-answering {why}"),
            Self::Answered(epoch) => write!(f, "answered {epoch}"),
            Self::Acted(chain, command) => write!(f, "acted {chain} {command}"),
            Self::NoCommand(chain) => write!(f, "no-command {chain}"),
            Self::Refused(refused) => write!(f, "refused {}", refused.name()),
        }
    }
}

/// Where reports go.
pub type Tell<'t> = dyn FnMut(Notice) + 't;
