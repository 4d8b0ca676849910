//! Runs a watcher on links.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use moteseal_api::NamedError as _;
use moteseal_broadcast::recovery::Now;
use moteseal_broadcast::wire::MAX_BROADCAST_FRAME;
use moteseal_net::broadcast::MAX_DATAGRAM;
use moteseal_net::{BroadcastLink, LinkError};

use super::watcher::{OnWatchEvent, WatchError, WatchEvent, Watcher};

// Every broadcast frame fits in a datagram, so every link can send it.
const _: () = assert!(MAX_BROADCAST_FRAME <= MAX_DATAGRAM);

/// The maximum time that a link may take to accept a frame.
const PATIENCE: Duration = Duration::from_secs(1);
/// The maximum number of frames that are received before the watcher is asked for frames to send.
const AT_ONCE: usize = 32;

/// Returns the time since `start`, and the time of the machine's clock.
#[must_use]
pub fn now(start: Instant) -> Now {
    let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Now { ms, unix: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()) }
}

/// Runs a watcher on its links until `stop` completes or every link is closed. `start` is the
/// moment at which the watcher's clock was 0.
///
/// # Errors
/// [`WatchError`].
pub async fn run<L: BroadcastLink>(
    watcher: &mut Watcher<'_>,
    links: &[L],
    start: Instant,
    notify: &mut OnWatchEvent<'_>,
    stop: impl Future<Output = ()>,
) -> Result<(), WatchError> {
    let mut stop = std::pin::pin!(stop);
    let mut out = vec![0; MAX_BROADCAST_FRAME];
    let mut turn = 0;
    let mut is_down = vec![false; links.len()];
    loop {
        watcher.tend(now(start), notify)?;
        while let Some(transmit) = watcher.poll(now(start), &mut out)? {
            let frame = Bytes::copy_from_slice(&out[..transmit.length]);
            for ((number, link), was_down) in (0..).zip(links).zip(&mut is_down) {
                if !transmit.links.has(number) {
                    continue;
                }
                // A link that accepts nothing must not delay the other links.
                let sent = match tokio::time::timeout(PATIENCE, link.send(frame.clone())).await {
                    Ok(sent) => sent.map_err(|error| error.named().to_string()),
                    Err(_) => Err("it has not accepted a frame for a second".to_owned()),
                };
                // Report each outage only once. Receivers will request the frames that are not sent
                // now.
                if let (Err(cause), false) = (&sent, *was_down) {
                    notify(WatchEvent::LinkDown { link: number, cause })
                        .map_err(WatchError::Output)?;
                }
                *was_down = sent.is_err();
            }
        }
        let wait =
            watcher.next_due().map(|due| Duration::from_millis(due.saturating_sub(now(start).ms)));
        for taken in 0..AT_ONCE {
            turn += 1;
            let received = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                received = first_of(links, turn) => received,
                () = sleep(if taken == 0 { wait } else { Some(Duration::ZERO) }) => break,
            };
            match received {
                Ok((link, frame)) => watcher.receive(now(start), link, &frame, notify)?,
                Err(_) => return Ok(()),
            }
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(Duration::ZERO) => {}
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// Receives the next frame from any link. `turn` selects the link that is polled first.
async fn first_of<L: BroadcastLink>(links: &[L], turn: usize) -> Result<(u8, Bytes), LinkError> {
    let mut receiving: Vec<Pin<Box<_>>> =
        links.iter().map(|link| Box::pin(link.receive())).collect();
    poll_fn(|context| {
        for place in 0..receiving.len() {
            let place = (place + turn) % links.len().max(1);
            let Some(link) = receiving.get_mut(place) else { continue };
            if let Poll::Ready(received) = link.as_mut().poll(context) {
                return Poll::Ready(
                    received.map(|frame| (u8::try_from(place).unwrap_or(u8::MAX), frame)),
                );
            }
        }
        Poll::Pending
    })
    .await
}
