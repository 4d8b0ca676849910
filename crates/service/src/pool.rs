//! Shared capacity (connections, requests or bytes) that no single address can use up.
//!
//! A [`Pool`] counts how much of its capacity each peer holds. While at least half of the pool is
//! free, any peer may take more. After that, a peer may hold at most its share, except that the
//! first amount of a peer may be larger. An amount returns to the pool when its [`Held`] is
//! dropped. The pool cannot reclaim an amount from a slow peer; callers therefore enforce minimum
//! rates on requests and responses.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The remote end of a connection: an IPv4 address, or the /64 network of an IPv6 address. An IPv6
/// host can usually choose any address in its network, so its addresses count as one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            v4 => v4,
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

/// A limited capacity that peers share.
#[derive(Debug)]
pub struct Pool {
    total: u64,
    /// How much one peer may hold while less than half of the pool is free.
    share: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    peers: HashMap<Peer, u64>,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    peer: Peer,
    amount: u64,
    granted: oneshot::Sender<Held>,
}

/// Why the pool cannot grant an amount now.
#[derive(Debug, PartialEq, Eq)]
enum Full {
    /// The peer would exceed its share, and the rest is reserved for other peers.
    Share,
    /// The pool has less than this amount left.
    Total,
}

impl Pool {
    /// Creates a pool with a capacity of `total`. A peer's share is `percent` of it, but at least
    /// `least`, the smallest amount that is useful to a peer.
    #[must_use]
    pub fn new(total: u64, percent: u8, least: u64) -> Arc<Self> {
        let percent = u64::from(percent.min(100));
        let share = (total / 100 * percent + total % 100 * percent / 100).max(least);
        Arc::new(Self { total, share, state: Mutex::default() })
    }

    /// Grants `amount` to `peer`, or returns `None` if the pool cannot grant it now.
    #[must_use]
    pub fn take(self: &Arc<Self>, peer: Peer, amount: u64) -> Option<Held> {
        let mut held = Held { pool: Arc::clone(self), peer, amount: 0 };
        held.grow(amount).then_some(held)
    }

    /// Waits until the pool can grant `amount` (at most the whole pool) to `peer`. Peers that wait
    /// are served in order, except that a peer that would exceed its share does not block the peers
    /// after it. Returns `None` only if the pool is dropped.
    pub async fn wait(self: &Arc<Self>, peer: Peer, amount: u64) -> Option<Held> {
        let amount = amount.min(self.total);
        let _leaving = Leaving(self);
        let turn = {
            let mut state = self.lock();
            state.waiting.retain(|waiting| !waiting.granted.is_closed());
            let in_turn = state.waiting.is_empty();
            if in_turn && self.fits(&state, peer, amount).is_ok() {
                return Some(self.grant(&mut state, peer, amount));
            }
            let (granted, turn) = oneshot::channel();
            state.waiting.push_back(Waiting { peer, amount, granted });
            turn
        };
        self.serve();
        turn.await.ok()
    }

    fn fits(&self, state: &State, peer: Peer, amount: u64) -> Result<(), Full> {
        let held = state.peers.get(&peer).copied().unwrap_or(0);
        if state.used + amount > self.total {
            return Err(Full::Total);
        }
        // A peer that holds nothing may get more than its share. Otherwise a request for more than
        // the share would wait for ever.
        let may = held == 0 || state.used + amount <= self.total / 2 || held + amount <= self.share;
        if may { Ok(()) } else { Err(Full::Share) }
    }

    fn grant(self: &Arc<Self>, state: &mut State, peer: Peer, amount: u64) -> Held {
        state.used += amount;
        *state.peers.entry(peer).or_default() += amount;
        Held { pool: Arc::clone(self), peer, amount }
    }

    /// Grants amounts to the waiting peers, in order, until the pool has too little left.
    fn serve(self: &Arc<Self>) {
        // A peer may have stopped waiting. The amount granted to it is dropped after the lock is
        // released, because dropping a `Held` takes the lock.
        let mut unwanted = Vec::new();
        let mut state = self.lock();
        let mut at = 0;
        while let Some(waiting) = state.waiting.get(at) {
            let (peer, amount) = (waiting.peer, waiting.amount);
            let fits =
                if waiting.granted.is_closed() { Ok(()) } else { self.fits(&state, peer, amount) };
            match fits {
                Err(Full::Total) => break,
                Err(Full::Share) => at += 1,
                Ok(()) => {
                    let Some(waiting) = state.waiting.remove(at) else { break };
                    if !waiting.granted.is_closed() {
                        let held = self.grant(&mut state, peer, amount);
                        unwanted.extend(waiting.granted.send(held).err());
                    }
                }
            }
        }
        drop(state);
        drop(unwanted);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the queue when a call of `wait` ends, because the pool may then be able to grant the
/// amount of the next peer in the queue. This is also necessary if the call ends without a grant.
struct Leaving<'p>(&'p Arc<Pool>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

/// An amount of a pool's capacity that a peer holds until this value is dropped.
#[derive(Debug)]
pub struct Held {
    pool: Arc<Pool>,
    peer: Peer,
    amount: u64,
}

impl Held {
    /// Takes `amount` more from the pool and returns `true`. If the pool cannot grant all of it,
    /// takes nothing and returns `false`.
    #[must_use]
    pub fn grow(&mut self, amount: u64) -> bool {
        let mut state = self.pool.lock();
        let fits = self.pool.fits(&state, self.peer, amount).is_ok();
        if fits {
            state.used += amount;
            *state.peers.entry(self.peer).or_default() += amount;
            self.amount += amount;
        }
        fits
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut state = self.pool.lock();
        state.used -= self.amount;
        if let Some(held) = state.peers.get_mut(&self.peer) {
            *held -= self.amount;
            if *held == 0 {
                state.peers.remove(&self.peer);
            }
        }
        let waited_for = !state.waiting.is_empty();
        drop(state);
        if waited_for {
            self.pool.serve();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn peer(last: u8) -> Peer {
        IpAddr::from([10, 0, 0, last]).into()
    }

    #[test]
    fn one_address_gets_at_most_half_and_later_ones_their_share() {
        let pool = Pool::new(32, 25, 1);
        let mut first: Vec<Held> = std::iter::from_fn(|| pool.take(peer(1), 1)).collect();
        assert_eq!(first.len(), 16);
        let second: Vec<Held> = std::iter::from_fn(|| pool.take(peer(2), 1)).collect();
        let third: Vec<Held> = std::iter::from_fn(|| pool.take(peer(3), 1)).collect();
        assert_eq!((second.len(), third.len()), (8, 8));
        assert!(pool.take(peer(4), 1).is_none(), "nothing is left");
        drop(first.pop());
        assert!(pool.take(peer(1), 1).is_none(), "the peer has more than its share");
        assert!(pool.take(peer(4), 1).is_some());
        drop((first, second, third));
        let state = pool.lock();
        assert_eq!((state.used, state.peers.len()), (0, 0));
    }

    #[test]
    fn a_share_is_at_least_the_minimum_and_at_most_the_whole_pool() {
        let pool = Pool::new(3, 25, 1);
        assert!(pool.take(peer(1), 1).is_some());
        let pool = Pool::new(3, 100, 1);
        let all: Vec<Held> = std::iter::from_fn(|| pool.take(peer(1), 1)).collect();
        assert_eq!(all.len(), 3);
        let pool = Pool::new(100, 25, 60);
        let _other = pool.take(peer(2), 40).unwrap();
        let mut body = pool.take(peer(1), 1).unwrap();
        assert!(body.grow(59) && !body.grow(1));
    }

    #[test]
    fn hosts_of_one_ipv6_network_are_one_peer() {
        let peer = |text: &str| Peer::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff::9"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
    }

    #[tokio::test]
    async fn peers_are_served_in_order_but_not_delayed_by_the_share_of_another() {
        let pool = Pool::new(100, 25, 1);
        let first = pool.wait(peer(1), 90).await.unwrap();
        let of = |last, amount| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.wait(peer(last), amount).await.unwrap() })
        };
        // The greedy peer waits because it would exceed its share. The other peers wait because the
        // pool has too little left.
        let greedy = of(1, 10);
        tokio::task::yield_now().await;
        let modest = of(2, 10);
        let modest = modest.await.unwrap();
        let (long, late) = (of(3, 500), of(2, 5));
        tokio::task::yield_now().await;
        assert!(!long.is_finished() && !late.is_finished(), "the long request is first");
        drop(first);
        drop(greedy.await.unwrap());
        drop(modest);
        let long = long.await.unwrap();
        assert_eq!(long.amount, 100, "a larger amount is capped at the pool");
        drop(long);
        drop(late.await.unwrap());
        let holds = pool.wait(peer(6), 60).await.unwrap();
        let (leaves, later) = (of(4, 100), of(5, 40));
        tokio::task::yield_now().await;
        assert!(!later.is_finished());
        leaves.abort();
        drop(later.await.unwrap());
        drop(holds);
        let gone = of(4, 100);
        let waits = of(5, 100);
        gone.await.unwrap();
        waits.await.unwrap();
        assert_eq!(pool.lock().used, 0, "abandoned waits hold nothing");
    }
}
