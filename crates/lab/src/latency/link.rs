//! A link between a sensor and a receiver, shaped in user space: a TCP proxy that passes bytes on later.
//!
//! The delays are those of Wi-Fi in the field. Sui et al., "Characterizing and Improving WiFi Latency in
//! Large-Scale Operational Networks" (MobiSys 2016), measured the round trip between 47,000 devices and
//! their access points: the median is 3 ms, the 90th percentile 20 ms and the 99th 250 ms. In the paper's
//! second setup, a message travels from the sensor to the telephone and from the telephone to the
//! receiver. These are two hops in one direction, so the delay of a direction is one of their round trips.
//!
//! TCP keeps the order and repeats lost segments, so a loss is a delay: the last hundredth of the delays
//! is one retransmission, 250 ms. A new delay is drawn every 100 ms, which is our choice, because Wi-Fi is
//! slow for a while rather than for single segments. The rate is not limited.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use crate::chance::{Draws, Seed};

/// The shares of the delays that are at most as long as the time, in milliseconds. Between them, the
/// logarithm of the delay is interpolated. The shortest delay is our choice.
pub const DELAYS_MS: [(f64, f64); 4] = [(0.0, 1.0), (0.5, 3.0), (0.9, 20.0), (0.99, 250.0)];
/// How long a delay applies.
const SLOT: Duration = Duration::from_millis(100);
/// The payload of a segment on Ethernet and Wi-Fi.
const SEGMENT: usize = 1448;
/// The segments that one direction may hold. Beyond that, the sender has to wait.
const SEGMENTS: usize = 512;

/// Returns the delay that a share of all delays does not exceed, in milliseconds.
#[must_use]
pub fn delay_ms(share: f64) -> f64 {
    let above = DELAYS_MS.iter().position(|(to, _)| share <= *to).unwrap_or(DELAYS_MS.len());
    match (above.checked_sub(1).map(|at| DELAYS_MS[at]), DELAYS_MS.get(above)) {
        (Some((from, low)), Some((to, high))) => {
            low * (high / low).powf((share - from) / (to - from))
        }
        (Some((_, last)), None) => last,
        (None, _) => DELAYS_MS[0].1,
    }
}

/// A link to an address, for one connection.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Link {
    /// Listens on a free port of this machine, and connects what comes to `to`. The delays follow from
    /// the seed and the time since the connection began.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(to: SocketAddr, seed: Seed) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let thread = spawn(move || {
            let (near, _) = listener.accept()?;
            drop(listener);
            let far = TcpStream::connect(to)?;
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
            let up = spawn(move || pass(near, far, seed.derive("up", 0)));
            pass(far_too, near_too, seed.derive("down", 0));
            let _ = up.join();
            Ok(())
        });
        Ok(Self { address, thread: Some(thread) })
    }

    /// Returns the address of the near end.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Ends the thread also if nobody has connected. Otherwise nothing listens any more.
        drop(TcpStream::connect(self.address));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The delays of one direction.
struct Delays {
    draws: Draws,
    began: Instant,
    slot: u128,
    delay: Duration,
}

impl Delays {
    fn new(seed: Seed) -> Self {
        let mut draws = seed.draws();
        let delay = Duration::from_secs_f64(delay_ms(draws.unit()) / 1e3);
        Self { draws, began: Instant::now(), slot: 0, delay }
    }

    fn at(&mut self, now: Instant) -> Duration {
        let slot = now.duration_since(self.began).as_millis() / SLOT.as_millis();
        while self.slot < slot {
            self.slot += 1;
            self.delay = Duration::from_secs_f64(delay_ms(self.draws.unit()) / 1e3);
        }
        self.delay
    }
}

/// Passes the bytes of one direction on, in order, until it ends.
fn pass(mut from: TcpStream, to: TcpStream, seed: Seed) {
    let (send, segments) = sync_channel(SEGMENTS);
    let writer = spawn(move || deliver(&segments, to));
    let (mut delays, mut last) = (Delays::new(seed), Instant::now());
    let mut segment = vec![0; SEGMENT];
    while let Ok(length @ 1..) = from.read(&mut segment) {
        let now = Instant::now();
        last = last.max(now + delays.at(now));
        if send.send((last, segment[..length].to_vec())).is_err() {
            break;
        }
    }
    drop(send);
    let _ = writer.join();
}

fn deliver(segments: &Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    while let Ok((at, segment)) = segments.recv() {
        sleep(at.saturating_duration_since(Instant::now()));
        if to.write_all(&segment).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_delays_have_the_percentiles_of_the_measurement() {
        let mut draws = Seed::default().draws();
        let mut delays: Vec<f64> = (0..100_000).map(|_| delay_ms(draws.unit())).collect();
        delays.sort_unstable_by(f64::total_cmp);
        for (share, expected) in DELAYS_MS.into_iter().skip(1) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let found = delays[(share * 1e5) as usize];
            assert!((found / expected - 1.0).abs() < 0.1, "{share}: {found}, not {expected}");
        }
        assert_eq!((delays[0] >= 1.0, delays[99_999]), (true, 250.0));
    }

    #[test]
    fn bytes_arrive_later_in_order_and_complete_in_both_directions() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::start(listener.local_addr().unwrap(), Seed::default()).unwrap();
        let mut near = TcpStream::connect(link.address()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let sent: Vec<u8> = (0..20_000_u32).flat_map(u32::to_be_bytes).collect();
        let froms = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        for (from, to) in froms.iter().zip([&mut far, &mut near]) {
            let began = Instant::now();
            (&*from).write_all(&sent).unwrap();
            let mut received = vec![0; sent.len()];
            to.read_exact(&mut received).unwrap();
            assert!(received == sent && began.elapsed() >= Duration::from_millis(1));
        }
        drop((near, far, froms));
        let unused = Link::start(link.address(), Seed::default()).unwrap();
        drop((link, unused));
    }
}
