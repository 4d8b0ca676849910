//! What a mote does, reported to the program that runs it. The mote works the same if nobody
//! reads these notices.

use core::fmt;

use moteseal_broadcast::ChainNumber;
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex};

use crate::command::Command;

/// Something that a mote did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It started; the number of starts so far.
    Started(u32),
    /// It opened a seal.
    Opened(SealIndex, EpochNumber, Scheme),
    /// It signed a seal; the last field is the number of events.
    Sealed(SealIndex, EpochNumber, u64),
    /// The coordinator has a seal.
    Taken(SealIndex),
    /// It gave up a seal: the coordinator refuses the seal, or has lost acknowledged events of it.
    GivenUp(SealIndex),
    /// All readings are sealed, and the coordinator has every seal.
    Done,
    /// It skips the readings from this place on that are earlier than the roster's first epoch.
    TooEarly(u32),
    /// It stops sealing: the reading at this place is later than the roster's last epoch.
    OutOfRange(u32),
    /// It acts on the query schedule with this number.
    QuerySchedule(u64),
    /// It does not act on a query schedule, or does not answer a query; the reason.
    NotAnswering(&'static str),
    /// It answered an epoch of a query.
    Answered(u64),
    /// It acted on a command; the chain that brought it.
    Acted(ChainNumber, Command),
    /// A message of this chain is not a command, or is too long to keep.
    NoCommand(ChainNumber),
    /// It refused a broadcast.
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
            Self::QuerySchedule(number) => write!(f, "query-schedule {number}"),
            Self::NotAnswering(why) => write!(f, "not-answering {why}"),
            Self::Answered(epoch) => write!(f, "answered {epoch}"),
            Self::Acted(chain, command) => write!(f, "acted {chain} {command}"),
            Self::NoCommand(chain) => write!(f, "no-command {chain}"),
            Self::Refused(refused) => write!(f, "refused {}", refused.name()),
        }
    }
}

/// The callback that receives notices.
pub type OnNotice<'t> = dyn FnMut(Notice) + 't;
