//! Deliberate losses at the receiver, reproducible from a seed, for tests and experiments.
//! Receivers with different seeds lose independently.

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
    /// Loses the fraction `loss` of the frames, from 0 to 1, chosen by `seed`.
    #[must_use]
    pub fn new(seed: u64, loss: f64) -> Self {
        Self { loss, chance: Mutex::new(Chance::new(seed, *b"losses\0\0", 0)) }
    }

    /// Whether the next frame is lost.
    pub fn hits(&self) -> bool {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).hits(self.loss)
    }
}

/// A link that loses some of the frames that it receives.
#[derive(Debug)]
pub struct Lossy<L> {
    link: L,
    losses: Losses,
}

impl<L> Lossy<L> {
    /// Drops the frames that `losses` selects among those that `link` receives.
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
