//! The queue of broadcast frames that wait for a port. The origins of frames (the medium, and each
//! other port) take turns. If too many frames wait, the oldest frame of the origin with the most
//! waiting frames is dropped. A medium or a mote that floods therefore delays and loses only its
//! own frames.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

/// The maximum number of frames that wait for a port.
const WAITING: usize = 64;

/// Where a frame came from: a port, or the medium (`None`).
type Origin = Option<usize>;

/// The waiting frames of a port.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Whether frames are queued. While no mote is joined at the port, they are dropped.
    is_open: bool,
    frames: BTreeMap<Origin, VecDeque<Bytes>>,
    /// The origin of the frame that was sent last.
    last: Origin,
    dropped: u64,
}

impl Turns {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts or stops queueing frames. Drops the frames that wait.
    pub(super) fn open(&self, is_open: bool) {
        let mut waiting = self.waiting();
        waiting.is_open = is_open;
        waiting.frames.clear();
    }

    pub(super) fn put(&self, origin: Origin, frame: Bytes) {
        let mut waiting = self.waiting();
        if !waiting.is_open {
            return;
        }
        waiting.frames.entry(origin).or_default().push_back(frame);
        if waiting.frames.values().map(VecDeque::len).sum::<usize>() > WAITING
            && let Some(longest) = waiting.frames.values_mut().max_by_key(|frames| frames.len())
        {
            longest.pop_front();
            waiting.dropped += 1;
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Returns the next frame.
    pub(super) fn take(&self) -> Option<Bytes> {
        let mut waiting = self.waiting();
        let Waiting { frames, last, .. } = &mut *waiting;
        frames.retain(|_, frames| !frames.is_empty());
        let after = (std::ops::Bound::Excluded(*last), std::ops::Bound::Unbounded);
        let next = frames
            .range(after)
            .next()
            .or_else(|| frames.first_key_value())
            .map(|(origin, _)| *origin)?;
        *last = next;
        frames.get_mut(&next)?.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting().frames.values().all(VecDeque::is_empty)
    }

    /// Returns how many frames were dropped because too many were waiting.
    pub(super) fn dropped(&self) -> u64 {
        self.waiting().dropped
    }

    /// Waits until a frame arrives.
    pub(super) async fn arrival(&self) {
        self.arrived.notified().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_origin_that_floods_loses_only_its_own_frames() {
        let turns = Turns::default();
        turns.put(None, Bytes::from_static(b"no mote is there"));
        turns.open(true);
        turns.put(None, Bytes::from_static(b"medium"));
        for number in 0..10_000_u32 {
            turns.put(Some(3), Bytes::copy_from_slice(&number.to_be_bytes()));
        }
        turns.put(Some(4), Bytes::from_static(b"port 4"));
        let taken: Vec<Bytes> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!(taken.len(), WAITING);
        assert!(
            taken[..3].contains(&Bytes::from_static(b"medium"))
                && taken[..3].contains(&Bytes::from_static(b"port 4"))
        );
        assert_eq!(taken.last().unwrap()[..], 9_999_u32.to_be_bytes());
        assert_eq!(turns.dropped(), 10_002 - WAITING as u64);
        assert!(turns.is_empty());
    }
}
