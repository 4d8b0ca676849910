//! Drops received frames on purpose, for tests and experiments. The same seed always gives the same
//! losses. Receivers with different seeds lose different frames, independently of each other.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::medium::BroadcastLink;
use crate::in_memory::Chance;
use crate::link::LinkError;

/// Decides which frames are lost.
#[derive(Debug)]
pub struct Losses {
    loss: f64,
    chance: Mutex<Chance>,
}

impl Losses {
    /// Selects the fraction `loss` (from 0 to 1) of the frames. `seed` determines which frames.
    #[must_use]
    pub fn new(seed: u64, loss: f64) -> Self {
        Self { loss, chance: Mutex::new(Chance::new(seed, *b"losses\0\0", 0)) }
    }

    /// Returns whether the next frame is lost.
    pub fn hits(&self) -> bool {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).hits(self.loss)
    }
}

/// A link that drops some of the frames that it receives.
#[derive(Debug)]
pub struct Lossy<L> {
    link: L,
    losses: Losses,
}

impl<L> Lossy<L> {
    /// Creates a link that drops those frames received by `link` that `losses` selects.
    pub const fn new(link: L, losses: Losses) -> Self {
        Self { link, losses }
    }
}

impl<L: BroadcastLink> BroadcastLink for Lossy<L> {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        self.link.send(frame).await
    }

    async fn receive(&self) -> Result<Bytes, LinkError> {
        loop {
            let frame = self.link.receive().await?;
            if !self.losses.hits() {
                return Ok(frame);
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.link.dropped()
    }
}
