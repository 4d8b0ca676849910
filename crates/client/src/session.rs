//! Verifies the bytes of one response, without I/O: bytes in, verified rows and a report out.

use std::num::NonZero;

use moteseal_api::Query;
use moteseal_core::record::DeviceId;
use moteseal_lanes::Recall;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Roster, StreamReader, Suspect};

use crate::checker::Checker;
use crate::completeness::Report;
use crate::error::Stop;
use crate::pinned::{PinnedSeal, PinnedSeals};
use crate::rows::Sink;

/// Bytes to feed a session at once, where that many are available: enough work for several threads.
pub const PIECE: usize = 1 << 20;

/// The number of threads that this machine offers.
pub(crate) fn all_threads() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Verifies one response. Feed it chunks of any size, then finish it.
#[derive(Debug)]
pub struct Session<'r> {
    reader: StreamReader<'r, Roster>,
    checker: Checker<'r>,
}

impl<'r> Session<'r> {
    /// A session for the response to `query`. A response that contradicts or omits a seal of
    /// `pinned` is rejected.
    #[must_use]
    pub fn new(roster: &'r Roster, query: Query, pinned: Option<&PinnedSeals>) -> Self {
        Self::of(roster, Some(query), pinned)
    }

    /// A session for a proof, which contains its query.
    #[must_use]
    pub fn of_proof(roster: &'r Roster, pinned: Option<&PinnedSeals>) -> Self {
        Self::of(roster, None, pinned)
    }

    fn of(roster: &'r Roster, query: Option<Query>, pinned: Option<&PinnedSeals>) -> Self {
        let engine = Recall::detect();
        let reader = StreamReader::with_engine(roster, Limits::default(), engine.clone());
        Self { reader, checker: Checker::new(roster, engine, query, pinned) }
    }

    /// Sets the number of threads that verify, including the caller's; the default is one. Rows
    /// reach the sink on the caller's thread in the order of the response. Rows, report and errors
    /// do not depend on the number of threads. A session divides what it is fed at once, so small
    /// pieces leave threads idle; [`PIECE`] bytes are enough.
    #[must_use]
    pub fn with_threads(self, threads: NonZero<usize>) -> Self {
        Self { reader: self.reader.with_threads(threads), ..self }
    }

    /// The query; for a proof, available once its first item has been read.
    #[must_use]
    pub const fn query(&self) -> Option<&Query> {
        self.checker.query()
    }

    /// Verifies the next bytes, and passes the rows that they complete to `sink`.
    ///
    /// # Errors
    /// [`Stop`]. Further bytes then have no effect, and the caller must discard the rows that
    /// `sink` has received.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), Stop> {
        let Self { reader, checker } = self;
        checker.count_bytes(bytes.len());
        reader.feed::<Stop>(bytes, &mut |event| checker.event(event, sink))
    }

    /// Ends the response. Returns the report, and the newest seal of each device that had one: the
    /// seals to pin.
    ///
    /// # Errors
    /// [`Stop`], as [`feed`](Self::feed).
    pub fn finish(
        self,
        sink: &mut dyn Sink,
    ) -> Result<(Report, Vec<(DeviceId, PinnedSeal)>), Stop> {
        let Self { reader, mut checker } = self;
        reader.finish::<Stop>(&mut |event| checker.event(event, sink))?;
        checker.finish()
    }

    /// The parts of the run that was not proven, oldest first: compare them with the store's
    /// explanation. Empty unless [`feed`](Self::feed) has rejected a run.
    #[must_use]
    pub fn suspects(&self) -> &[Suspect] {
        self.reader.suspects()
    }
}
