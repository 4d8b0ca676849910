//! The messages that wait at a child.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::link::Down;

/// The maximum number of frames that wait. At the limit, the oldest frame is dropped.
const FRAMES: usize = 256;

/// The messages that wait at a child: the newest announcement, and the newest frames.
#[derive(Debug, Default)]
pub(crate) struct ChildInbox {
    waiting: Mutex<(Option<Bytes>, VecDeque<Bytes>)>,
    arrived: Notify,
}

impl ChildInbox {
    fn waiting(&self) -> MutexGuard<'_, (Option<Bytes>, VecDeque<Bytes>)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, message: Down) {
        let mut waiting = self.waiting();
        let (newest, frames) = &mut *waiting;
        match message {
            Down::Announcement(announcement) => *newest = Some(announcement),
            Down::Frame(frame) => {
                if frames.len() >= FRAMES {
                    frames.pop_front();
                }
                frames.push_back(frame);
            }
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for a message. An announcement comes before frames. The future may be dropped.
    pub(crate) async fn next(&self) -> Down {
        loop {
            {
                let mut waiting = self.waiting();
                let (newest, frames) = &mut *waiting;
                if let Some(announcement) = newest.take() {
                    return Down::Announcement(announcement);
                }
                if let Some(frame) = frames.pop_front() {
                    return Down::Frame(frame);
                }
            }
            self.arrived.notified().await;
        }
    }
}
