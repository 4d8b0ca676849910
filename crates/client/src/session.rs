//! A session judges the bytes of one answer, without I/O: bytes in, verified rows and a report out.

use std::num::NonZero;

use moteseal_api::Query;
use moteseal_core::record::DeviceId;
use moteseal_lanes::Recall;
use moteseal_seal::follow::Limits;
use moteseal_verify::{ReadError, Roster, StreamReader, Suspect};

use crate::judge::Judge;
use crate::memory::{Memory, Remembered};
use crate::output::OutputError;
use crate::refusal::Refusal;
use crate::report::Report;
use crate::rows::Sink;

/// Bytes to feed a session at once, where they are at hand: enough for several threads to share.
pub const PIECE: usize = 1 << 20;

/// As many threads as this machine has for us.
pub(crate) fn all_threads() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Judges one answer. Feed it chunks of any size, then finish it.
#[derive(Debug)]
pub struct Session<'r> {
    reader: StreamReader<'r, Roster>,
    judge: Judge<'r>,
}

/// Why a session stopped.
#[derive(Debug)]
pub enum Stop {
    /// The answer is refused.
    Refused(Refusal),
    /// The sink takes no more.
    Output(OutputError),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<OutputError> for Stop {
    fn from(error: OutputError) -> Self {
        Self::Output(error)
    }
}

impl<'r> Session<'r> {
    /// A session for the answer to `query`. What `memory` holds of the devices must not be contradicted or left out.
    #[must_use]
    pub fn new(roster: &'r Roster, query: Query, memory: Option<&Memory>) -> Self {
        Self::of(roster, Some(query), memory)
    }

    /// A session for a proof, which brings its query along.
    #[must_use]
    pub fn of_proof(roster: &'r Roster, memory: Option<&Memory>) -> Self {
        Self::of(roster, None, memory)
    }

    fn of(roster: &'r Roster, query: Option<Query>, memory: Option<&Memory>) -> Self {
        let engine = Recall::detect();
        let reader = StreamReader::with_engine(roster, Limits::default(), engine.clone());
        Self { reader, judge: Judge::new(roster, engine, query, memory) }
    }

    /// The same, verifying on so many threads, the caller's included: one unless this says otherwise. Rows go to the sink on the
    /// caller's thread, in the order of the answer, and neither they nor the report nor a refusal depend on it. A session works on
    /// what it is fed at once, so that small pieces leave little to share; [`PIECE`] bytes are enough.
    #[must_use]
    pub fn with_threads(self, threads: NonZero<usize>) -> Self {
        Self { reader: self.reader.with_threads(threads), ..self }
    }

    /// The query; of a proof once its first item has been read.
    #[must_use]
    pub const fn query(&self) -> Option<&Query> {
        self.judge.query()
    }

    /// Takes the next bytes, and gives `sink` the rows that they complete.
    ///
    /// # Errors
    /// [`Stop`]; feeding then has no effect any more, and what was given to `sink` is part of a refused answer.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), Stop> {
        let Self { reader, judge } = self;
        judge.count_bytes(bytes.len());
        reader.feed::<Stop>(bytes, &mut |event| judge.event(event, sink))
    }

    /// Ends the answer. The second value is the newest seal of each device that had one: what to remember.
    ///
    /// # Errors
    /// [`Stop`].
    pub fn finish(
        self,
        sink: &mut dyn Sink,
    ) -> Result<(Report, Vec<(DeviceId, Remembered)>), Stop> {
        let Self { reader, mut judge } = self;
        reader.finish::<Stop>(&mut |event| judge.event(event, sink))?;
        judge.finish()
    }

    /// The parts of the run that was not proven, oldest first: what an explanation is compared with. Empty unless `feed` has
    /// refused a run.
    #[must_use]
    pub fn suspects(&self) -> &[Suspect] {
        self.reader.suspects()
    }
}
