//! A stream that fails if its peer receives too slowly.
//!
//! This module does not limit how slowly a request arrives: hyper limits the time for the head, and
//! the service that reads the body limits the time for the body.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Fails a write with `TimedOut` if the peer receives too slowly.
///
/// The stream adds up the time for which writes wait for the peer. Whenever this sum reaches
/// `stall`, the peer must have received at least `rate` bytes per second since the last check. Time
/// without a waiting write does not count. The stream sets its timer only when a write has to wait.
#[derive(Debug)]
pub(crate) struct PacedStream<T> {
    inner: T,
    stall: Duration,
    /// The number of bytes that the peer must receive per `stall`; at least one.
    due: u128,
    timer: Option<Pin<Box<Sleep>>>,
    /// When the pending write began to wait.
    waiting: Option<Instant>,
    /// How long writes have waited since the last check of the rate.
    waited: Duration,
    /// The number of bytes written since the last check of the rate.
    written: u128,
}

impl<T> PacedStream<T> {
    pub(crate) fn new(inner: T, stall: Duration, rate: u64) -> Self {
        let due = (u128::from(rate) * stall.as_millis() / 1000).max(1);
        Self { inner, stall, due, timer: None, waiting: None, waited: Duration::ZERO, written: 0 }
    }

    /// Checks the rate after an attempt to write. `bytes` returns how many bytes a completed
    /// attempt wrote.
    fn check<R>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<R>>,
        bytes: fn(&R) -> usize,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(result) = &done {
            if let Some(since) = self.waiting.take() {
                self.waited += since.elapsed();
            }
            self.written += result.as_ref().map_or(0, bytes) as u128;
            if self.waited >= self.stall {
                if self.written < self.due {
                    return Poll::Ready(Err(too_slow()));
                }
                (self.waited, self.written) = (Duration::ZERO, 0);
            }
            return done;
        }
        let check_in = self.stall.saturating_sub(self.waited);
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(check_in)));
        if self.waiting.is_none() {
            self.waiting = Some(Instant::now());
            timer.as_mut().reset(Instant::now() + check_in);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if self.written < self.due {
                return Poll::Ready(Err(too_slow()));
            }
            (self.waiting, self.waited, self.written) = (Some(Instant::now()), Duration::ZERO, 0);
            timer.as_mut().reset(Instant::now() + self.stall);
        }
        Poll::Pending
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer receives too slowly")
}

impl<T: AsyncRead + Unpin> AsyncRead for PacedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for PacedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.check(cx, written, |written| *written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.check(cx, written, |written| *written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.check(cx, flushed, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.check(cx, shut, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn fails_for_a_peer_that_receives_nothing_but_not_for_a_slow_one() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = PacedStream::new(near, Duration::from_secs(3), 1);
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
        // Bytes that the peer received before it stopped delay the error by at most one interval.
        assert!((3..=6).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
        drop(far);
    }

    /// Without the minimum rate, a peer that receives one byte before each timeout would keep its
    /// connection open for ever.
    #[tokio::test(start_paused = true)]
    async fn fails_for_a_peer_that_receives_single_bytes() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = PacedStream::new(near, Duration::from_secs(3), 1);
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
    async fn does_not_count_the_pauses_of_the_writer() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = PacedStream::new(near, Duration::from_secs(3), 1000);
        for _ in 0..20 {
            near.write_all(&[0; 8]).await.unwrap();
            sleep(Duration::from_secs(2)).await;
            far.read_exact(&mut [0; 8]).await.unwrap();
        }
    }
}
