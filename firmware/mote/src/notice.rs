//! Notices with which a mote reports what it does to the program that runs it. The program may
//! ignore them: they do not affect the mote.

use core::fmt;

use moteseal_broadcast::address::AddressError;
use moteseal_broadcast::firmware::UpdateReport;
use moteseal_broadcast::recovery::RefusedBroadcast;
use moteseal_broadcast::{ChainNumber, Untimely};
use moteseal_core::record::Scheme;
use moteseal_core::record::{EpochNumber, SealIndex};

use crate::command::Command;

/// An action of a mote. In the comments of the variants, "the mote" is the mote that sends the
/// notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The mote started. The field is the number of starts so far.
    Started(u32),
    /// The mote opened a seal.
    Opened(SealIndex, EpochNumber, Scheme),
    /// The mote signed a seal. The last field is the number of events.
    Sealed(SealIndex, EpochNumber, u64),
    /// The coordinator has acknowledged a seal.
    Taken(SealIndex),
    /// The mote gave up a seal, because the coordinator refuses the seal, or has lost some of its
    /// events after acknowledging them.
    GivenUp(SealIndex),
    /// The coordinator has more of this device than the mote's state: the state is older than the
    /// mote's past, or a second device has the key. The mote continues at the second index. The
    /// first index is the newest seal that the coordinator has.
    RolledBack(Option<SealIndex>, SealIndex),
    /// All readings are sealed, and the coordinator has every seal.
    Done,
    /// The mote skips readings that are earlier than the roster's first epoch. The field is the
    /// place of the first such reading.
    TooEarly(u32),
    /// The mote stops sealing, because the reading at this place is later than the roster's last
    /// epoch.
    OutOfRange(u32),
    /// The mote accepted the query schedule with this number.
    QuerySchedule(u64),
    /// The mote does not act on a query schedule or does not answer a query. The field is the name
    /// of the reason.
    NotAnswering(&'static str),
    /// The mote answered this epoch of a query.
    Answered(u64),
    /// The mote acted on a command, which it received in this chain.
    Acted(ChainNumber, Command),
    /// The mote did not act on this chain of commands, or update file, because it came at the wrong time or
    /// the mote does not know the time. The chain may not be verified.
    NotObeyed(ChainNumber, Untimely),
    /// The mote did not act on this chain of commands, which is for named receivers.
    NotRead(ChainNumber, AddressError),
    /// A message of this chain is not a command, or is too long to be stored.
    NoCommand(ChainNumber),
    /// The mote refused a broadcast.
    Refused(RefusedBroadcast),
    /// The mote accepted a time statement. The field is the earliest possible time, in Unix
    /// milliseconds.
    Time(u64),
    /// The mote did not accept a time. The field is the name of the reason.
    NoTime(&'static str),
    /// What happened to the mote's firmware.
    Update(UpdateReport),
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
            Self::RolledBack(Some(stored), next) => {
                write!(f, "rolled-back stored {stored} next {next}")
            }
            Self::RolledBack(None, next) => write!(f, "rolled-back next {next}"),
            Self::Done => f.write_str("done"),
            Self::TooEarly(at) => write!(f, "too-early {at}"),
            Self::OutOfRange(at) => write!(f, "out-of-range {at}"),
            Self::QuerySchedule(number) => write!(f, "query-schedule {number}"),
            Self::NotAnswering(why) => write!(f, "not-answering {why}"),
            Self::Answered(epoch) => write!(f, "answered {epoch}"),
            Self::Acted(chain, command) => write!(f, "acted {chain} {command}"),
            Self::NotObeyed(chain, why) => write!(f, "not-obeyed {chain} {}", why.name()),
            Self::NotRead(chain, why) => write!(f, "not-read {chain} {}", why.name()),
            Self::NoCommand(chain) => write!(f, "no-command {chain}"),
            Self::Refused(refused) => write!(f, "refused {}", refused.name()),
            Self::Time(unix_ms) => write!(f, "time {unix_ms}"),
            Self::NoTime(why) => write!(f, "no-time {why}"),
            Self::Update(report) => write!(f, "update {report}"),
        }
    }
}

/// A callback that receives notices.
pub type OnNotice<'t> = dyn FnMut(Notice) + 't;
