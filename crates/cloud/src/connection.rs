//! A connection that gives up on a peer that takes no bytes. (What a peer *sends* too slowly is timed by hyper's head timeout
//! and the upload's body timeouts.)

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Fails a write that has waited for the peer for too long. The timer is touched only when a write has to wait.
#[derive(Debug)]
pub(crate) struct Guarded<T> {
    inner: T,
    stall: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl<T> Guarded<T> {
    pub(crate) fn new(inner: T, stall: Duration) -> Self {
        Self { inner, stall, timer: None, waiting: false }
    }

    fn judge<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        let stall = self.stall;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(stall)));
        if !self.waiting {
            self.waiting = true;
            timer.as_mut().reset(Instant::now() + stall);
        }
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes no bytes")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge(cx, shut)
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
        let mut near = Guarded::new(near, Duration::from_secs(3));
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
        assert_eq!(before.elapsed().as_secs(), 3);
        drop(far);
    }
}
