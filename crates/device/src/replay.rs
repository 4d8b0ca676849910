//! Replays a recording as if it were sensed now, at a chosen speed. Meanwhile, an uplink uploads
//! the bundles.
//!
//! The cloud may be unreachable for any length of time. Bundles then wait in the outbox, in order.

use std::path::PathBuf;
use std::time::Duration;

use moteseal_api::NamedError as _;
use moteseal_core::signature::Signer;
use moteseal_net::Client;
use moteseal_verify::Calendar;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::import::Recording;
use crate::push::{Conflict, Push, PushError};
use crate::recorder::{RecordError, Recorder};
use crate::seal::SealRefused;

/// The maximum number of readings that are made durable together.
const SYNC_EVERY: u32 = 256;
/// The first and the longest pause before the uplink repeats a failed upload.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The settings of a replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The lengths of the group's epochs.
    pub calendar: Calendar,
    /// How many recorded seconds are replayed per second; `None` for as fast as possible.
    pub speed: Option<f64>,
}

/// The result of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The number of readings that were recorded.
    pub readings: u64,
    /// The number of readings that were skipped, because an earlier replay sealed them or because
    /// their epochs are closed.
    pub left_out: u64,
    /// The number of bundles that were stored.
    pub bundles: u64,
}

impl Replay {
    /// Records the readings of a recording at the chosen speed, and closes the last epoch. If an
    /// earlier replay stopped within an epoch, skips as many readings of that epoch as the earlier
    /// replay has recorded ([`Recorder::taken`]). Calls `taken` with the number of readings
    /// processed so far, and `stored` with each new bundle. The future may be dropped at any
    /// moment, because recorded readings are in the journal.
    ///
    /// # Errors
    /// [`RecordError`], with the time of the reading in milliseconds since 1970.
    pub async fn run<K: Signer>(
        &self,
        recording: &Recording,
        recorder: &mut Recorder<K>,
        taken: &mut dyn FnMut(u64),
        stored: &mut dyn FnMut(PathBuf),
    ) -> Result<Replayed, (u64, RecordError)> {
        let mut replayed = Replayed::default();
        let (start, mut first, mut unsynced, mut last_ms) = (Instant::now(), None, 0, 0);
        let mut before = recorder.taken();
        for (unix_ms, record) in recording.iter() {
            if let Some((epoch, left @ 1..)) = &mut before
                && *epoch == self.calendar.epoch_of(unix_ms)
            {
                *left -= 1;
                replayed.left_out += 1;
                continue;
            }
            let first_ms = *first.get_or_insert(unix_ms);
            let fail = |error| (unix_ms, error);
            if let Some(speed) = self.speed {
                #[allow(clippy::cast_precision_loss)]
                let due =
                    start + Duration::from_secs_f64((unix_ms - first_ms) as f64 / 1000.0 / speed);
                if due > Instant::now() {
                    recorder.sync().map_err(fail)?;
                    unsynced = 0;
                    sleep_until(due).await;
                }
            }
            match recorder.record(self.calendar.epoch_of(unix_ms), record) {
                Ok(path) => {
                    replayed.readings += 1;
                    if let Some(path) = path {
                        replayed.bundles += 1;
                        stored(path);
                    }
                }
                Err(RecordError::Refused(
                    SealRefused::EpochGoesBack { .. } | SealRefused::EpochClosed { .. },
                )) => {
                    replayed.left_out += 1;
                    // Measure the pace from the first reading that is not skipped.
                    first = None;
                }
                Err(error) => return Err(fail(error)),
            }
            unsynced += 1;
            if unsynced == SYNC_EVERY {
                recorder.sync().map_err(fail)?;
                unsynced = 0;
                tokio::task::yield_now().await;
            }
            taken(replayed.readings + replayed.left_out);
            last_ms = unix_ms;
        }
        if let Some(path) = recorder.close(true).map_err(|error| (last_ms, error))? {
            replayed.bundles += 1;
            stored(path);
        }
        Ok(replayed)
    }
}

/// The result of an uplink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uplinked {
    /// The number of bundles that were uploaded, or that the cloud already had.
    pub pushed: u64,
    /// The indices under which the cloud has different seals.
    pub conflicts: Vec<Conflict>,
}

/// Uploads the bundles `waiting`, then the bundles that arrive through `bundles`, in order. Repeats
/// an upload while the cloud does not respond. Returns when `bundles` is closed and every bundle is
/// uploaded.
///
/// # Errors
/// [`PushError`] if the cloud rejects a bundle, or its file cannot be read.
pub async fn uplink(
    cloud: &Client,
    waiting: Vec<PathBuf>,
    mut bundles: mpsc::UnboundedReceiver<PathBuf>,
) -> Result<Uplinked, PushError> {
    let mut waiting = waiting;
    let mut done = Uplinked::default();
    loop {
        if waiting.is_empty() {
            let Some(path) = bundles.recv().await else { return Ok(done) };
            waiting.push(path);
        }
        while let Ok(path) = bundles.try_recv() {
            waiting.push(path);
        }
        let push = Push::of(std::mem::take(&mut waiting))?;
        let mut wait = AGAIN.0;
        let pushed = loop {
            match push.to(cloud, &mut |_| {}).await {
                Ok(pushed) => break pushed,
                Err(PushError::Net { error, .. }) if error.is_unreachable() => {
                    tracing::warn!(error = %error.named(), seconds = wait.as_secs(), "the upload failed; bundles wait in the outbox");
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(AGAIN.1);
                }
                Err(error) => return Err(error),
            }
        };
        done.pushed += pushed.stored + pushed.known + pushed.queued;
        done.conflicts.extend(pushed.conflicts);
        done.conflicts.sort_by_key(|conflict| (conflict.device, conflict.index));
        done.conflicts.dedup_by_key(|conflict| (conflict.device, conflict.index));
    }
}
