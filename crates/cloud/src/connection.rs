//! A connection that gives up on a peer that takes no bytes, or too few. (What a peer *sends* too slowly is timed by hyper's head
//! timeout and by [`crate::body`].)

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Fails a write to a peer that takes too little: of each `stall` of time that writes have waited for it, in one piece or in many,
/// it must have taken `rate` bytes a second. The time in which there was nothing to write is the writer's own. The timer is touched
/// only when a write has to wait.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    inner: T,
    stall: Duration,
    /// Bytes that must go in each `stall`, at least one.
    due: u128,
    timer: Option<Pin<Box<Sleep>>>,
    /// Since when a write waits.
    waiting: Option<Instant>,
    /// How long writes have waited since the pace was judged last, and what has gone since.
    waited: Duration,
    gone: u128,
}

impl<T> Guarded<T> {
    pub(crate) fn new(inner: T, stall: Duration, rate: u64) -> Self {
        let due = (u128::from(rate) * stall.as_millis() / 1000).max(1);
        Self { inner, stall, due, timer: None, waiting: None, waited: Duration::ZERO, gone: 0 }
    }

    /// `bytes` gives how many bytes a write has written.
    fn judge<R>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<R>>,
        bytes: fn(&R) -> usize,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(result) = &done {
            if let Some(since) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            self.gone += result.as_ref().map_or(0, bytes) as u128;
            if self.waited >= self.stall {
                if self.gone < self.due {
                    return Poll::Ready(Err(too_slow()));
                }
                (self.waited, self.gone) = (Duration::ZERO, 0);
            }
            return done;
        }
        let judged_in = self.stall.saturating_sub(self.waited);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(judged_in)));
        if self.waiting.is_none() {
            self.waiting = Some(Instant::now());
            timer.as_mut().reset(Instant::now() + judged_in);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if self.gone < self.due {
                return Poll::Ready(Err(too_slow()));
            }
            (self.waiting, self.waited, self.gone) = (Some(Instant::now()), Duration::ZERO, 0);
            timer.as_mut().reset(Instant::now() + self.stall);
        }
        Poll::Pending
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer takes too few bytes")
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judge(cx, written, |written| *written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judge(cx, written, |written| *written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge(cx, shut, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Guarded::new(near, Duration::from_secs(3), 1);
        near.write_all(&[0; 8]).await.unwrap();
        let slow = tokio::spawn(async move {
            for _ in 0..5 {
                sleep(Duration::from_secs(2)).await;
                far.read_exact(&mut [0; 4]).await.unwrap();
            }
            far
        });
        near.write_all(&[0; 20]).await.unwrap();
        let far = slow.await.unwrap();
        let before = Instant::now();
        assert_eq!(near.write_all(&[0; 20]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // What went before counts once.
        assert!((3..=6).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
        drop(far);
    }

    /// One byte just before each time-out would keep a place for ever.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_now_and_then_is_given_up() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Guarded::new(near, Duration::from_secs(3), 1);
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(2)).await;
                far.read_exact(&mut [0; 1]).await.unwrap();
            }
        });
        let before = Instant::now();
        assert_eq!(near.write_all(&[0; 1000]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(before.elapsed().as_secs() < 3 * 8, "{:?}", before.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_writers_own_pauses_are_not_the_peers() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Guarded::new(near, Duration::from_secs(3), 1000);
        for _ in 0..20 {
            near.write_all(&[0; 8]).await.unwrap();
            sleep(Duration::from_secs(2)).await;
            far.read_exact(&mut [0; 8]).await.unwrap();
        }
    }
}
