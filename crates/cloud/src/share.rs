//! What peers share: places and memory, of which no address gets so much that nothing is left for others.
//!
//! A [`Pool`] counts what is taken and by whom. While half of it is free, whoever comes may take; from then on an address gets no
//! more than its share ([`crate::Limits::peer_percent`]). Something taken is a [`Held`], which gives it back when it is dropped. A
//! pool counts; it does not know what for, and asks nobody to give anything back: that is what minimum rates are for.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Who is at the other end: an IPv4 address, or the /64 of an IPv6 one, in which a host takes any address it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            v4 => v4,
        })
    }
}

/// Places, or bytes, that peers share.
#[derive(Debug)]
pub(crate) struct Pool {
    total: u64,
    /// What one peer may hold while others want the rest.
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

/// Why a peer does not get something now.
#[derive(Debug, PartialEq, Eq)]
enum Full {
    /// The rest is for others.
    Share,
    /// There is not so much left.
    Total,
}

impl Pool {
    /// `percent` of it are a peer's share, but never less than `least`: what the smallest useful share is.
    pub(crate) fn new(total: u64, percent: u8, least: u64) -> Arc<Self> {
        let percent = u64::from(percent.min(100));
        let share = (total / 100 * percent + total % 100 * percent / 100).max(least);
        Arc::new(Self { total, share, state: Mutex::default() })
    }

    /// A peer's part of the pool, if there is so much for it now.
    pub(crate) fn take(self: &Arc<Self>, peer: Peer, amount: u64) -> Option<Held> {
        let mut held = Held { pool: Arc::clone(self), peer, amount: 0 };
        held.grow(amount).then_some(held)
    }

    /// The same, waiting for it. More than all of it is all of it. Who waits for others comes in turn; who waits because of what
    /// its own address holds is overtaken.
    pub(crate) async fn wait(self: &Arc<Self>, peer: Peer, amount: u64) -> Option<Held> {
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
        // Who holds nothing may have even a thing that is larger than a share: otherwise it would never get it.
        let may = held == 0 || state.used + amount <= self.total / 2 || held + amount <= self.share;
        if may { Ok(()) } else { Err(Full::Share) }
    }

    fn grant(self: &Arc<Self>, state: &mut State, peer: Peer, amount: u64) -> Held {
        state.used += amount;
        *state.peers.entry(peer).or_default() += amount;
        Held { pool: Arc::clone(self), peer, amount }
    }

    /// Gives those who wait what there is for them, in turn.
    fn serve(self: &Arc<Self>) {
        // What somebody no longer waits for is given back outside the lock, which takes it again.
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

/// Somebody waits no more, served or not: who stood behind may be next.
struct Leaving<'p>(&'p Arc<Pool>);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.serve();
    }
}

/// A peer's part of a pool, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    pool: Arc<Pool>,
    peer: Peer,
    amount: u64,
}

impl Held {
    /// Takes more, all of it or, with `false`, nothing.
    #[must_use]
    pub(crate) fn grow(&mut self, amount: u64) -> bool {
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
    fn one_address_gets_half_at_most_and_others_their_share_behind_it() {
        let pool = Pool::new(32, 25, 1);
        let mut first: Vec<Held> = std::iter::from_fn(|| pool.take(peer(1), 1)).collect();
        assert_eq!(first.len(), 16);
        let second: Vec<Held> = std::iter::from_fn(|| pool.take(peer(2), 1)).collect();
        let third: Vec<Held> = std::iter::from_fn(|| pool.take(peer(3), 1)).collect();
        assert_eq!((second.len(), third.len()), (8, 8));
        assert!(pool.take(peer(4), 1).is_none(), "nothing is left");
        drop(first.pop());
        assert!(pool.take(peer(1), 1).is_none(), "it has more than its share");
        assert!(pool.take(peer(4), 1).is_some());
        drop((first, second, third));
        let state = pool.lock();
        assert_eq!((state.used, state.peers.len()), (0, 0));
    }

    #[test]
    fn a_share_is_never_too_small_for_one_and_all_of_it_where_peers_cannot_be_told_apart() {
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
    async fn who_waits_comes_in_turn_and_nobody_waits_behind_what_another_address_holds() {
        let pool = Pool::new(100, 25, 1);
        let first = pool.wait(peer(1), 90).await.unwrap();
        let of = |last, amount| {
            let pool = Arc::clone(&pool);
            tokio::spawn(async move { pool.wait(peer(last), amount).await.unwrap() })
        };
        // The greedy one waits for what it holds itself, the others only for the total.
        let greedy = of(1, 10);
        tokio::task::yield_now().await;
        let modest = of(2, 10);
        let modest = modest.await.unwrap();
        let (long, late) = (of(3, 500), of(2, 5));
        tokio::task::yield_now().await;
        assert!(!long.is_finished() && !late.is_finished(), "the long one is first");
        drop(first);
        drop(greedy.await.unwrap());
        drop(modest);
        let long = long.await.unwrap();
        assert_eq!(long.amount, 100, "more than all of it is all of it");
        drop(long);
        drop(late.await.unwrap());
        let holds = pool.wait(peer(6), 60).await.unwrap();
        let (leaves, behind) = (of(4, 100), of(5, 40));
        tokio::task::yield_now().await;
        assert!(!behind.is_finished());
        leaves.abort();
        drop(behind.await.unwrap());
        drop(holds);
        let gone = of(4, 100);
        let waits = of(5, 100);
        gone.await.unwrap();
        waits.await.unwrap();
        assert_eq!(pool.lock().used, 0, "what nobody waits for any more is free");
    }
}
