//! Verifies the bytes of one response without I/O. A session receives bytes, and returns verified
//! rows and a report.

use std::num::NonZero;

use moteseal_api::Query;
use moteseal_core::record::DeviceId;
use moteseal_lanes::Recall;
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, ReadError, Roster, StreamReader, Suspect};

use crate::checker::Checker;
use crate::completeness::Report;
use crate::decrypt::{KeySource, SealKeys};
use crate::error::Stop;
use crate::pinned::{PinnedSeal, PinnedSeals};
use crate::proof_scope::Scope;
use crate::rows::{NoRows, Sink};
use crate::sanitised::Accepted;

/// The recommended number of bytes to pass to a session at once. It is enough work for several
/// threads.
pub const PIECE: usize = 1 << 20;

/// Returns the number of threads that this machine offers.
pub(crate) fn all_threads() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

/// Verifies one response. The caller feeds it chunks of any size and then finishes it.
#[derive(Debug)]
pub struct Session<'r> {
    reader: StreamReader<'r, Roster>,
    checker: Checker<'r>,
}

impl<'r> Session<'r> {
    /// Creates a session for the response to `query`. A response that contradicts or omits a seal
    /// of `pinned` is rejected. The caller checks the roster ([`PinnedSeals::check_roster`]).
    #[must_use]
    pub fn new(roster: &'r Roster, query: Query, pinned: Option<&PinnedSeals>) -> Self {
        Self::of(roster, Some(Scope::Answer(query)), pinned)
    }

    /// Creates a session for a proof, which contains its query. The caller checks the roster
    /// ([`PinnedSeals::check_roster`]).
    #[must_use]
    pub fn of_proof(roster: &'r Roster, pinned: Option<&PinnedSeals>) -> Self {
        Self::of(roster, None, pinned)
    }

    fn of(roster: &'r Roster, scope: Option<Scope>, pinned: Option<&PinnedSeals>) -> Self {
        let engine = Recall::detect();
        let reader = StreamReader::with_engine(roster, Limits::default(), engine.clone());
        let reader = if scope.is_some() { reader.of_answer() } else { reader.of_proof() };
        Self { reader, checker: Checker::new(roster, engine, scope, pinned) }
    }

    /// Sets the number of threads that verify, including the caller's thread; the default is one.
    /// The rows reach the sink on the caller's thread, in the order of the response. Rows, report
    /// and errors do not depend on the number of threads.
    ///
    /// The session divides the bytes of one call of [`feed`](Self::feed) among the threads. If the
    /// chunks are small, threads are therefore idle. Chunks of [`PIECE`] bytes are large enough.
    #[must_use]
    pub fn with_threads(self, threads: NonZero<usize>) -> Self {
        Self { reader: self.reader.with_threads(threads), ..self }
    }

    /// Sets the keys that decrypt the encrypted columns of verified rows. Without keys, these columns
    /// are withheld.
    #[must_use]
    pub fn with_keys(self, keys: &'r mut dyn SealKeys) -> Self {
        self.with_key_source(KeySource::new(keys))
    }

    /// Accepts the values by which the sanitisers with these names replaced those of devices. Without
    /// this, columns that a sanitiser replaced are refused (`ColumnSanitised`).
    #[must_use]
    pub fn accept_sanitised(self, names: impl IntoIterator<Item = String>) -> Self {
        self.accepting(Accepted::Named(names.into_iter().collect()))
    }

    pub(crate) fn accepting(self, accepted: Accepted) -> Self {
        Self { checker: self.checker.accepting(accepted), ..self }
    }

    pub(crate) fn with_key_source(self, keys: KeySource<'r>) -> Self {
        Self { checker: self.checker.with_keys(keys), ..self }
    }

    /// Returns what the stream shows. For a proof, this is `None` until the first item has been read.
    #[must_use]
    pub const fn scope(&self) -> Option<&Scope> {
        self.checker.scope()
    }

    /// Verifies the next bytes, and passes the rows that they complete to `sink`.
    ///
    /// # Errors
    /// [`Stop`] if the response is rejected or the sink fails. Further bytes then have no effect,
    /// and the caller must discard the rows that `sink` has received.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> Result<(), Stop> {
        let Self { reader, checker } = self;
        checker.count_bytes(bytes.len());
        reader.feed::<Stop>(bytes, &mut |event| checker.event(event, sink))
    }

    /// Does the same as [`feed`](Self::feed), without rows. Passes each event to `observe` before it
    /// is checked; its signature has been verified. What `observe` makes of it must be discarded if
    /// the session stops.
    pub(crate) fn observe<E: From<ReadError> + From<Stop>>(
        &mut self,
        bytes: &[u8],
        observe: &mut dyn FnMut(&Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Self { reader, checker } = self;
        checker.count_bytes(bytes.len());
        reader.feed::<E>(bytes, &mut |event| {
            observe(&event)?;
            Ok(checker.event(event, &mut NoRows)?)
        })
    }

    /// Ends the response. Returns the report, and the newest seal of each device with a seal in the
    /// response. The caller should pin these seals.
    ///
    /// # Errors
    /// [`Stop`], as for [`feed`](Self::feed).
    pub fn finish(
        self,
        sink: &mut dyn Sink,
    ) -> Result<(Report, Vec<(DeviceId, PinnedSeal)>), Stop> {
        let Self { reader, mut checker } = self;
        reader.finish::<Stop>(&mut |event| checker.event(event, sink))?;
        checker.finish()
    }

    /// Returns the parts of the run that was not proven, oldest first. The caller can compare them
    /// with the store's explaining form. Empty unless [`feed`](Self::feed) has rejected a run.
    #[must_use]
    pub fn suspects(&self) -> &[Suspect] {
        self.reader.suspects()
    }
}
