//! The links of a running device to its parents in the trees of private sums.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{select_all, try_join_all};
use moteseal_core::signature::Signer;
use moteseal_net::link::State;
use moteseal_net::{ChildLink, Down, LinkError};
use tokio::time::timeout;
use tracing::warn;

use super::{Run, RunError};

/// If a link for sums that is up does not accept an answer within this time, the answers that are due are
/// lost. Meanwhile the device seals nothing and answers no other querier.
const ANSWER_TIME: Duration = Duration::from_millis(100);
/// How long to wait for the link for sums if an answer is due and the link is down.
const PAUSE: Duration = Duration::from_millis(50);

/// Receives the next message of the links, and the place of its link. Waits forever if there is no link.
/// With each `turn`, another link is the first one, so that none is hidden by the messages of another.
pub(super) async fn receive<L: ChildLink>(
    links: &mut [L],
    turn: usize,
) -> (usize, Result<Down, LinkError>) {
    first(links.iter_mut().map(ChildLink::receive), turn).await
}

/// Returns the output of the first of some futures that completes, and its place. Waits forever if there
/// is none. Drops the others. If several are complete, `turn` decides between them.
pub(super) async fn first<F: Future>(
    futures: impl Iterator<Item = F>,
    turn: usize,
) -> (usize, F::Output) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    if futures.is_empty() {
        return std::future::pending().await;
    }
    let (count, turn) = (futures.len(), turn % futures.len());
    futures.rotate_left(turn);
    let (output, place, _) = select_all(futures).await;
    ((place + turn) % count, output)
}

/// Sends answers over the link of one querier.
///
/// # Errors
/// `Closed`.
async fn send_answers<L: ChildLink>(link: &L, frames: Vec<Vec<u8>>) -> Result<(), LinkError> {
    for frame in frames {
        match timeout(ANSWER_TIME, link.send(Bytes::from(frame))).await {
            Ok(Err(LinkError::Closed)) => return Err(LinkError::Closed),
            Ok(Ok(())) => {}
            lost => {
                warn!(?lost, "answers were not sent");
                break;
            }
        }
    }
    Ok(())
}

impl<K: Signer + Send> Run<'_, K> {
    /// Sends the answers that are due. Returns how long to wait for the next answers.
    /// With each `turn`, another querier is the first one.
    pub(super) async fn answer<L: ChildLink>(
        &mut self,
        links: &[L],
        turn: usize,
    ) -> Result<Option<Duration>, RunError> {
        let mut sending = Vec::new();
        for (place, link) in
            links.iter().enumerate().cycle().skip(turn % links.len().max(1)).take(links.len())
        {
            let is_up = matches!(*link.state().borrow(), State::Up);
            let frames = self.answerers.answers(place, is_up, self.mote)?;
            sending.push(send_answers(link, frames));
        }
        // One link that accepts nothing does not delay the answers to other queriers.
        try_join_all(sending).await.map_err(RunError::Link)?;
        Ok(self.answerers.due_in_ms().map(|due| Duration::from_millis(due).max(PAUSE)))
    }

    /// Receives a query schedule from the parent in an aggregation tree. Ignores other messages.
    pub(super) fn receive_from_parent(
        &mut self,
        place: usize,
        down: &Down,
    ) -> Result<(), RunError> {
        match down {
            Down::Announcement(schedule) => {
                Ok(self.answerers.receive(place, schedule, self.mote)?)
            }
            _ => Ok(()),
        }
    }
}
