//! Applies journaled batches to the tables, in large transactions on a separate thread, while the
//! journal accepts further batches.
//!
//! Batches are applied when enough of them are pending, when they have waited for some time, when a
//! read or a receipt needs them, and when the store closes. The transactions are not synced: after
//! a crash the journal still has the batches that the tables lost. The tables are synced only
//! before the journal is emptied, which happens when it has grown long and when the store closes.
//!
//! After a failed write the store opens redb's file again and applies the records of the journal
//! again. If the disk is full, it opens the file frozen and applies the acknowledged batches in
//! memory. They can then be read, but the store accepts no new batches until the file can be
//! written. Batches that cannot be applied because of a damaged page are withheld: reads of their
//! devices fail, and the batches stay in the journal.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::commit::{Damaged, Known, sync, write};
use super::journal_replay::{BYTES, Failure, replay};
use super::{Shared, State, open};
use crate::batch::Batch;
use crate::epochs::{PutError, Receipt, Reply};
use crate::journal::Journal;
use crate::pages;

/// A transaction starts when this many batches are pending, or batches with [`BYTES`] bytes in
/// total.
const BATCHES: usize = 1024;

/// A batch that is in the journal but not yet in the tables.
pub(super) struct Pending {
    pub(super) batch: Batch,
    pub(super) bytes: usize,
    /// The reply, unless it has been sent already.
    pub(super) reply: Option<Reply>,
}

impl State {
    /// Returns whether the pending batches should be applied now.
    pub(super) fn is_due(&self, shared: &Shared) -> bool {
        let bytes = BYTES.min(shared.options.queue_bytes / 4);
        !self.pending.is_empty()
            && (self.ended
                || self.wanted > self.applied
                || self.pending_bytes >= bytes
                || self.pending.len() >= BATCHES
                || self.since.is_none_or(|since| since.elapsed() >= shared.options.apply_after))
    }
}

pub(super) fn run(shared: &Shared) {
    let mut known = Known::default();
    while let Some(pending) = next(shared) {
        apply(shared, &mut known, None, pending);
        let long = shared
            .journal()
            .as_ref()
            .is_some_and(|journal| journal.length() >= shared.options.journal_bytes);
        if long && shared.state().held.is_none() {
            checkpoint(shared, &mut known);
        }
    }
    close(shared);
}

/// Waits until the pending batches are due and returns them. Returns `None` when the store closes.
fn next(shared: &Shared) -> Option<Vec<Pending>> {
    let mut state = shared.state();
    loop {
        if state.is_due(shared) {
            return Some(state.take());
        }
        if state.pending.is_empty() && state.ended {
            return None;
        }
        let left = match state.since.filter(|_| !state.pending.is_empty()) {
            Some(since) => shared.options.apply_after.saturating_sub(since.elapsed()),
            None => Duration::MAX,
        };
        state = shared.due.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}

impl State {
    fn take(&mut self) -> Vec<Pending> {
        self.since = None;
        std::mem::take(&mut self.pending)
    }
}

/// Applies batches to the tables, notifies waiting callers, and sends the remaining replies.
/// Returns `false` if the file cannot be written. Batches that need a damaged page become
/// [`Withheld`](super::journal_replay::Withheld).
fn apply(
    shared: &Shared,
    known: &mut Known,
    journal: Option<&Journal>,
    pending: Vec<Pending>,
) -> bool {
    let batches: Vec<&Batch> = pending.iter().map(|pending| &pending.batch).collect();
    let written = {
        let database = shared.database.read().unwrap_or_else(PoisonError::into_inner);
        match database.as_ref() {
            Some(database) => write(database, &shared.name, false, known, &batches),
            None => Err(shared.unopened()),
        }
    };
    let results = written.or_else(|error| {
        *known = Known::default();
        match journal {
            Some(journal) => rebuild(shared, journal, &batches, error),
            None => shared.journal().as_ref().map_or_else(
                || Err(shared.unopened()),
                |journal| rebuild(shared, journal, &batches, error),
            ),
        }
    });
    let done = results.is_ok();
    let results: Vec<Result<Receipt, Option<PutError>>> = match results {
        Ok(results) => results.into_iter().map(|result| result.map_err(|Damaged| None)).collect(),
        Err(error) => batches.iter().map(|_| Err(Some(error.clone()))).collect(),
    };
    let mut answers = Vec::new();
    let mut state = shared.state();
    for (pending, result) in pending.into_iter().zip(results) {
        state.applied += 1;
        state.pending_bytes -= pending.bytes;
        shared.unapplied.fetch_sub(1, Ordering::SeqCst);
        match (pending.reply, result) {
            (Some(reply), result) => {
                state.distrusted |= result.is_err();
                answers.push((
                    reply,
                    result.map_err(|error| error.unwrap_or_else(|| shared.page_damaged())),
                ));
            }
            (None, Err(None)) => {
                state.withheld.add(&pending.batch);
                shared.withholding.store(true, Ordering::SeqCst);
            }
            // If the file cannot be written, the batch stays in the journal, and reads fail until
            // it has been applied.
            (None, Err(Some(_)) | Ok(_)) => {}
        }
    }
    drop(state);
    shared.applied.notify_all();
    answers.into_iter().for_each(|(reply, result)| reply(result));
    done
}

impl Shared {
    fn unopened(&self) -> PutError {
        PutError::Failed {
            store: self.name.clone(),
            what: "it could not be opened again".to_owned(),
        }
    }

    /// Syncs the tables. Returns `false` if a damaged page prevents it.
    fn sync_tables(&self) -> Result<bool, PutError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        sync(database.as_ref().ok_or_else(|| self.unopened())?, &self.name)
    }
}

/// Makes the tables durable and empties the journal. New batches cannot be journaled during the
/// second of its two syncs.
fn checkpoint(shared: &Shared, known: &mut Known) {
    // The first sync does most of the work, while new batches can still be journaled.
    let sync = || if shared.options.sync { shared.sync_tables() } else { Ok(true) };
    let synced = sync();
    let mut guard = shared.journal();
    let Some(journal) = guard.as_mut() else { return };
    let pending = shared.state().take();
    let applied = apply(shared, known, Some(journal), pending);
    if !applied || shared.state().held.is_some() {
        return;
    }
    match synced.and_then(|_| sync()) {
        Ok(true) => empty(shared, journal),
        // The journal cannot be emptied, so it must not grow further.
        Ok(false) => shared.state().held = Some(shared.page_damaged()),
        Err(error) => {
            *known = Known::default();
            let _ = rebuild(shared, journal, &[], error);
        }
    }
}

/// Removes from the journal the batches that are durable in the tables.
fn empty(shared: &Shared, journal: &mut Journal) {
    let mut state = shared.state();
    if let Err(error) = open::empty_journal(&shared.file, &state.withheld, journal) {
        // The journal may now end with data that a crash would remove, so no further batch may be
        // written after this data.
        state.held = Some(PutError::Failed { store: shared.name.clone(), what: error.to_string() });
    }
}

/// Opens the file again after a failed write and tries to write it.
pub(super) fn retry(shared: &Shared) -> Result<(), PutError> {
    // This runs on the only thread that journals, so no further batches become pending.
    let state = shared.state();
    let journaled = state.journaled;
    drop(shared.wait_until(state, journaled));
    let mut guard = shared.journal();
    let Some(journal) = guard.as_mut() else { return Err(shared.unopened()) };
    let error = shared.state().held.take();
    let Some(error) = error else { return Ok(()) };
    let _ = rebuild(shared, journal, &[], error);
    if shared.state().held.is_none() {
        empty(shared, journal);
    }
    shared.state().held.clone().map_or(Ok(()), Err)
}

/// Opens the file again and applies the records of the journal. `batches` are applied last: they
/// are already in the journal but not in `pending`, and their results are returned.
fn rebuild(
    shared: &Shared,
    journal: &Journal,
    batches: &[&Batch],
    error: PutError,
) -> Result<Vec<Result<Receipt, Damaged>>, PutError> {
    let waiting = shared.state().pending.len() + batches.len();
    let applied =
        usize::try_from(journal.synced_records()).unwrap_or(usize::MAX).saturating_sub(waiting);
    // Lock out readers: the file lacks acknowledged data until the journal has been applied.
    let mut database = shared.database.write().unwrap_or_else(PoisonError::into_inner);
    // Close the file first, to release its lock.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(database.take())));
    let options = open::Options { create: false, ..shared.options.clone() };
    for frozen in [false, true] {
        let opened = if frozen {
            open::open_frozen(&shared.path, &options, &pages::Damaged::default())
        } else {
            open::open(&shared.path, &options)
        };
        let Ok(opened) = opened else { continue };
        let mut known = Known::default();
        let written =
            replay(&opened, &shared.name, &mut known, journal, applied).and_then(|withheld| {
                let results = write(&opened, &shared.name, false, &mut known, batches)
                    .map_err(Failure::Unwritable)?;
                // Only a successful sync proves that the disk has space for the data.
                let synced = sync(&opened, &shared.name).map_err(Failure::Unwritable)?;
                Ok((withheld, results, synced))
            });
        if let Ok((withheld, results, synced)) = written {
            let mut state = shared.state();
            shared.withholding.store(!withheld.is_empty(), Ordering::SeqCst);
            state.withheld = withheld;
            state.held =
                if frozen { Some(error) } else { (!synced).then(|| shared.page_damaged()) };
            *database = Some(opened);
            return Ok(results);
        }
        let _ = catch_unwind(AssertUnwindSafe(|| drop(opened)));
    }
    shared.state().held = Some(error.clone());
    Err(error)
}

/// Makes everything durable in the tables and removes the journal, so that the closed store is one
/// file. Batches that cannot be applied stay in the journal.
fn close(shared: &Shared) {
    if shared.state().held.is_some() && retry(shared).is_err() {
        return;
    }
    let mut guard = shared.journal();
    if shared.sync_tables() != Ok(true) {
        return;
    }
    if shared.state().withheld.records.is_empty() {
        // If a step fails, the journal stays, and the next start applies its records again, which
        // changes nothing.
        if let Some(journal) = guard.take()
            && open::set_needs_journal(&shared.path, false).is_ok()
        {
            let _ = journal.remove();
        }
    } else if let Some(journal) = guard.as_mut() {
        empty(shared, journal);
    }
}
