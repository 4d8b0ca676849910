//! The time of day, which a mote accepts only from a time statement that the operator or the querier
//! has signed in answer to the mote's challenge (spec/time.md).
//!
//! The clock never runs backwards: its lower limit is in the journal. It runs with the mote's timer
//! between two statements, and jumps ahead only because of a statement.

use moteseal_core::provision::Provisioning;
use moteseal_core::signed_time::{
    TimeAnchor, TimeChallenge, TimeError, TimeRange, TimeSigner, TimeStatement,
};

use crate::durable::Durable;
use crate::flash::Flash;
use crate::journal::JournalError;
use crate::notice::{Notice, OnNotice};

/// The mote asks for the time again this long after it has accepted a statement, in milliseconds.
const AGAIN_MS: u64 = 60_000;
/// The first and the longest time from a challenge to the next one while no statement arrives, in
/// milliseconds. The time doubles with each challenge.
const WAITS_MS: (u64, u64) = (5_000, 60_000);
/// When a statement is accepted, the lower limit in the journal is at most this much earlier than the
/// clock, in milliseconds.
const DURABLE_MS: u64 = 3_600_000;

/// The clock of a mote.
#[derive(Debug)]
pub struct TrustedClock {
    /// The accepted statement.
    anchor: Option<TimeAnchor>,
    /// The lower limit of the time, in Unix milliseconds.
    floor_ms: u64,
    /// The newest challenge, and when it was sent.
    asked: Option<(TimeChallenge, u64)>,
    /// The number of challenges since the start.
    count: u32,
    /// When the next challenge is sent.
    due_ms: u64,
    wait_ms: u64,
}

impl TrustedClock {
    /// Creates a clock that does not know the time. `floor_ms` is the lower limit in the journal.
    #[must_use]
    pub const fn new(floor_ms: u64) -> Self {
        Self { anchor: None, floor_ms, asked: None, count: 0, due_ms: 0, wait_ms: WAITS_MS.0 }
    }

    /// Returns the times that are possible now; `None` until a statement is accepted.
    ///
    /// - An action that must not happen too early uses [`earliest_ms`](TimeRange::earliest_ms).
    /// - An action that must not happen too late uses [`latest_ms`](TimeRange::latest_ms).
    #[must_use]
    pub fn range(&self, now_ms: u64) -> Option<TimeRange> {
        let TimeRange { earliest_ms, latest_ms } = self.anchor?.range(now_ms);
        Some(TimeRange { earliest_ms: earliest_ms.max(self.floor_ms), latest_ms })
    }

    /// Sends a challenge soon if the time is not known, because something needs the time now.
    pub fn hasten(&mut self, now_ms: u64) {
        if self.anchor.is_none() {
            self.wait_ms = WAITS_MS.0;
            let least_ms = self.asked.map_or(now_ms, |(_, sent)| sent.saturating_add(WAITS_MS.0));
            self.due_ms = self.due_ms.min(least_ms);
        }
    }

    /// Sends a new challenge soon, because the line was opened again and the newest one may be lost.
    pub fn opened(&mut self, now_ms: u64) {
        if self.asked.take().is_some() {
            self.wait_ms = WAITS_MS.0;
            self.due_ms = now_ms;
        }
    }

    /// If a challenge is due, writes it to `out` and returns its length. A mote that neither answers
    /// queries nor acts on broadcasts does not ask for the time.
    pub fn next_body(
        &mut self,
        now_ms: u64,
        provisioning: &Provisioning<'_>,
        starts: u32,
        out: &mut [u8],
    ) -> Option<usize> {
        let Provisioning { sums, audience, operator, .. } = provisioning;
        let is_useful = sums.is_some() || audience.is_some() && operator.is_some();
        if !is_useful || now_ms < self.due_ms {
            return None;
        }
        let challenge = TimeChallenge::new(&provisioning.salt_key, starts, self.count);
        // After the last number, no challenge is unique.
        self.count = self.count.checked_add(1)?;
        let place = out.first_chunk_mut::<16>()?;
        *place = challenge.0;
        self.asked = Some((challenge, now_ms));
        self.due_ms = now_ms.saturating_add(self.wait_ms);
        self.wait_ms = (self.wait_ms * 2).min(WAITS_MS.1);
        Some(place.len())
    }

    /// Processes a body that may be a time statement.
    ///
    /// If a valid statement contradicts the lower limit, the clock no longer knows the time: a signer
    /// has been, or is, wrong. It accepts the statements that are signed after its lower limit.
    ///
    /// # Errors
    /// [`JournalError`].
    #[inline(never)]
    pub fn receive<F: Flash>(
        &mut self,
        now_ms: u64,
        body: &[u8],
        provisioning: &Provisioning<'_>,
        durable: &mut Durable<F>,
        notify: &mut OnNotice<'_>,
    ) -> Result<(), JournalError> {
        let anchor = match self.open(now_ms, body, provisioning) {
            Ok(anchor) => anchor,
            Err(error) => {
                notify(Notice::NoTime(error.name()));
                return Ok(());
            }
        };
        self.asked = None;
        if let Some(range) = self.range(now_ms) {
            self.floor_ms = range.earliest_ms;
        }
        if anchor.range(now_ms).latest_ms < self.floor_ms {
            self.anchor = None;
            notify(Notice::NoTime("TimeBehind"));
            return Ok(());
        }
        self.anchor = Some(anchor);
        self.wait_ms = WAITS_MS.0;
        self.due_ms = now_ms.saturating_add(AGAIN_MS);
        if let Some(range) = self.range(now_ms) {
            self.floor_ms = range.earliest_ms;
            if self.floor_ms.saturating_sub(durable.memory().time_floor()) >= DURABLE_MS {
                durable.raise_time(self.floor_ms)?;
            }
            notify(Notice::Time(range.earliest_ms));
        }
        Ok(())
    }

    fn open(
        &self,
        now_ms: u64,
        body: &[u8],
        provisioning: &Provisioning<'_>,
    ) -> Result<TimeAnchor, TimeError> {
        let (challenge, sent_ms) = self.asked.ok_or(TimeError::WrongChallenge)?;
        let key = |signer| match signer {
            TimeSigner::Operator => provisioning.operator.as_ref(),
            TimeSigner::Querier => provisioning.sums.as_ref().map(|sums| &sums.querier),
        };
        let to = (provisioning.group, provisioning.device);
        let statement = TimeStatement::open(body, to, challenge, key)?;
        TimeAnchor::new(&statement, sent_ms, now_ms)
    }
}
