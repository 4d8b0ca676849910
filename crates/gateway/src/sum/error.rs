//! The reasons for which an aggregator rejects a frame or a query schedule (spec/errors.md).

use moteseal_core::link::FrameError;
use moteseal_core::named_errors;
use moteseal_core::participation::ParticipationError;
use moteseal_sum::schedule::QueryScheduleError;
use moteseal_sum::sies::PsrError;

named_errors! {
    /// Why a frame or a query schedule was rejected. A rejection is counted and changes nothing.
    Refused {
        /// The frame does not decode, or the sender that it names did not send it.
        Frame(error: FrameError) => from,
        /// The query schedule does not decode, or the querier did not sign it for this group and
        /// roster.
        QuerySchedule(error: QueryScheduleError) => from,
        /// The participants are not a valid set of positions of the roster.
        Participation(error: ParticipationError) => from,
        /// A partial state record is invalid.
        Psr(error: PsrError) => from,
        /// This gateway has no such child in the tree.
        UnknownChild => "this gateway has no such child in the tree; give all gateways the same tree",
        /// The frame is longer than any valid frame of this child.
        FrameTooLong => "the frame is longer than the longest valid frame of this child",
        /// No active query has this reference.
        WrongQuery => "no query with this reference is running",
        /// The query does not ask for this epoch, or the epoch is still too far ahead.
        WrongEpoch => "the query does not ask for this epoch, or the epoch has not begun yet; check the child's clock",
        /// The epoch is over: its sum was already sent to the parent, or the epoch was skipped.
        EpochOver => "the share is late: its epoch is already over at this gateway; check the child's clock, or raise `grace`",
        /// A source or a gateway is not below this child.
        NotBeneath => "the frame names a source or a gateway that is not below this child; give all gateways the same tree",
        /// The number of records does not match the query's slots and the key groups of the
        /// participants.
        WrongPsrCount => "the number of records is wrong: one is needed for each slot of the query in each key group of the participants",
        /// The child has already sent a different share for this epoch. The first share is kept.
        Contradiction => "the child has already sent a different answer for this epoch",
        /// No forwarded question waits for this answer.
        NotAsked => "the frame answers a question that was not asked",
        /// The question is for a node that is not below this gateway.
        UnknownNode => "the question is for a node that is not below this gateway; give all gateways and the querier the same tree",
        /// The query schedule is older than the accepted one.
        OlderAgenda => "a newer query schedule was accepted before",
        /// The number of the query schedule is far ahead of this gateway's clock.
        ScheduleAhead => "the number of the query schedule, a time in milliseconds, is more than a day ahead of this clock; check the clocks of the querier and of this gateway",
        /// A different query schedule with the same number was accepted before.
        TwoAgendas => "another query schedule with this number was accepted; the querier must not reuse a number",
        /// The source does not belong to the group in this epoch, or the querier does not ask it.
        NotMember => "the source does not belong to the group in this epoch, or the querier does not ask it; give all parties the newest version of the roster",
        /// The number of the query schedule could not be made durable, so the schedule is rejected.
        NotDurable => "the query schedule is rejected because its number could not be written to the state folder",
    }
}
