//! Sends frames to the gateway, and logs the state of the link.

use std::time::Duration;

use bytes::Bytes;
use moteseal_api::NamedError as _;
use moteseal_core::signature::Signer;
use moteseal_net::link::State;
use moteseal_net::{ChildLink, LinkError};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::{Run, RunError};
use crate::mote::BUFFER;

/// The maximum number of frames that are sent before the gateway's frames are received again.
pub(super) const FRAMES: usize = 32;
/// If a link that is up does not accept a frame within this time, the frame is lost.
pub(super) const SEND_TIME: Duration = Duration::from_secs(2);

impl<K: Signer + Send> Run<'_, K> {
    /// Makes everything durable and sends what is due. Returns whether there may be more frames.
    pub(super) async fn send<L: ChildLink>(&mut self, link: &L) -> Result<bool, RunError> {
        self.lingers_until = self.lingers();
        if self.lingers_until.is_some() {
            self.mote.sync_inputs()?;
            self.send_urgent(link).await?;
            return Ok(false);
        }
        let frames = self.mote.frames(FRAMES)?;
        if !frames.is_empty() {
            self.sent = Instant::now();
        }
        self.send_urgent(link).await?;
        let has_more = frames.len() == FRAMES;
        for frame in frames {
            match timeout(SEND_TIME, link.send(Bytes::from(frame))).await {
                Ok(Ok(())) => {}
                Ok(Err(LinkError::Closed)) => return Err(RunError::Link(LinkError::Closed)),
                // The frame is lost. A link may lose any frame, so the frame is sent again later.
                Ok(Err(error)) => self.log.warn("a frame was not sent", error.named()),
                Err(_) => return Ok(false),
            }
        }
        Ok(has_more)
    }

    /// Returns until when the readings of the open seal wait for others, if they do.
    fn lingers(&self) -> Option<Instant> {
        let mote = self.mote.mote();
        let may_wait = mote.has_only_new_readings() && mote.buffered() < BUFFER / 2;
        let until = self.sent + self.settings.linger;
        (may_wait && !self.is_ended && until > Instant::now()).then_some(until)
    }
}

/// Logs a change of the link's state.
pub(super) fn note_link(state: &State) {
    match state {
        State::Up => info!("the link to the gateway is up"),
        State::Down { cause, again_in } => {
            warn!(cause = %cause.named(), ?again_in, "the link to the gateway is down; readings wait");
        }
        State::Connecting => {}
    }
}
