//! Why an aggregator rejects a frame or a query schedule (spec/errors.md).

use moteseal_core::link::FrameError;
use moteseal_core::named_errors;
use moteseal_sum::participation::ParticipationError;
use moteseal_sum::schedule::QueryScheduleError;
use moteseal_sum::sies::PsrError;

named_errors! {
    /// Why a frame or a query schedule was rejected. A rejection is counted and changes nothing.
    Refused {
        /// The frame does not decode, or it is not from the sender that it names.
        Frame(error: FrameError) => from,
        /// The query schedule does not decode, or is not the querier's for this group and roster.
        QuerySchedule(error: QueryScheduleError) => from,
        /// The participants are not a valid set of positions of the roster.
        Participation(error: ParticipationError) => from,
        /// A partial state record is invalid.
        Psr(error: PsrError) => from,
        /// This gateway has no such child in the tree.
        UnknownChild => "the tree has no such child of this gateway; give all gateways the same tree",
        /// The frame is longer than any valid frame of this child.
        FrameTooLong => "the frame is longer than any frame of this child can be",
        /// No active query has this reference.
        WrongQuery => "no query with this reference is running",
        /// The epoch was not asked for, or is still too far ahead.
        WrongEpoch => "the epoch was not asked for, or has not begun yet; check the child's clock",
        /// The epoch has already been sent to the parent, without this share.
        EpochOver => "the epoch was forwarded without this share; check the child's clock, or raise `grace`",
        /// A participant is not below this child.
        NotBeneath => "a source is named that is not below this child; give all gateways the same tree",
        /// The number of records does not match the query's slots and the key groups of the
        /// participants.
        WrongPsrCount => "there is not exactly one record for each slot of the query and key group of the participants",
        /// The child has sent a different share of this epoch before; the first one counts.
        Contradiction => "the child has already sent a different answer for this epoch",
        /// No question waits for this answer.
        NotAsked => "the frame answers a question that was not asked",
        /// The question is for a node that is not below this gateway.
        UnknownNode => "the question is for a node that is not below this gateway; give all gateways and the querier the same tree",
        /// The query schedule is older than the accepted one.
        OlderAgenda => "a newer query schedule was accepted before",
        /// Another query schedule with the same number was accepted.
        TwoAgendas => "another query schedule with this number was accepted; the querier must not reuse a number",
        /// The query schedule states a different number of sources than the roster has.
        SourcesMismatch => "the query schedule and the roster have different numbers of sources",
        /// The query schedule's number could not be made durable, so the schedule is rejected.
        NotDurable => "the query schedule is not accepted, because its number could not be written to the state folder",
    }
}
