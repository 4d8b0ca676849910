//! Runs a sender of the product against simulated receivers, in virtual time.

use std::time::Duration;

use bytes::Bytes;
use moteseal_net::{BroadcastLink, LinkError};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// The sender's end of the simulated medium.
pub(crate) struct Link {
    out: UnboundedSender<Bytes>,
    arriving: Mutex<UnboundedReceiver<Bytes>>,
}

impl BroadcastLink for Link {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        self.out.send(frame).map_err(|_| LinkError::Closed)
    }

    async fn receive(&self) -> Result<Bytes, LinkError> {
        self.arriving.lock().await.recv().await.ok_or(LinkError::Closed)
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// Everything except the sender.
pub(crate) trait World {
    /// Receives a frame of the sender.
    fn receive(&mut self, now_ms: u64, frame: &[u8]);
    /// Returns the frames that reach the sender now.
    fn step(&mut self, now_ms: u64) -> Vec<Vec<u8>>;
    /// Returns when to step next.
    fn next_due(&self) -> Option<u64>;
}

/// Runs `act` with a link to the world, and returns its result.
pub(crate) async fn run<T>(world: &mut impl World, act: impl AsyncFnOnce(&Link) -> T) -> T {
    let ((out, mut sent), (to_sender, arriving)) = (unbounded_channel(), unbounded_channel());
    let link = Link { out, arriving: Mutex::new(arriving) };
    let start = Instant::now();
    let now = || u64::try_from(start.elapsed().as_millis()).unwrap();
    let mut acting = std::pin::pin!(act(&link));
    loop {
        for frame in world.step(now()) {
            to_sender.send(Bytes::from(frame)).unwrap();
        }
        let due = world.next_due().unwrap_or(u64::MAX).clamp(now() + 1, now() + 1_000);
        tokio::select! {
            biased;
            Some(frame) = sent.recv() => world.receive(now(), &frame),
            result = &mut acting => return result,
            () = tokio::time::sleep_until(start + Duration::from_millis(due)) => {}
        }
    }
}
