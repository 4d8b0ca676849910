//! Shares the processors between the addresses whose uploads are verified at the same time.
//!
//! One address may use all processors while no other address needs them. A thread calls
//! [`Turn::pause`] between two signatures. If the threads of its address then use more than their
//! share of the processors, and other threads need them, the call waits.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use moteseal_service::Peer;

/// The threads that verify uploads, by address.
#[derive(Debug)]
pub(crate) struct Turns {
    processors: usize,
    threads: Mutex<HashMap<Peer, Threads>>,
    /// Notified when a thread ends or starts to wait.
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Threads {
    running: usize,
    waiting: usize,
}

impl Turns {
    /// Shares this number of processors.
    pub(crate) fn new(processors: usize) -> Arc<Self> {
        Arc::new(Self { processors, threads: Mutex::default(), freed: Condvar::new() })
    }

    /// Counts a thread that verifies an upload of this address until the result is dropped.
    pub(crate) fn start(self: &Arc<Self>, peer: Peer) -> Turn {
        self.lock().entry(peer).or_default().running += 1;
        Turn { turns: Arc::clone(self), peer }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, Threads>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this number of running threads of one address leaves enough processors to
    /// the others.
    fn is_fair(&self, threads: &HashMap<Peer, Threads>, running_of_peer: usize) -> bool {
        let running: usize = threads.values().map(|of| of.running).sum();
        let share = (self.processors / threads.len().max(1)).max(1);
        running <= self.processors || running_of_peer <= share
    }
}

/// A thread that verifies an upload.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    peer: Peer,
}

impl Turn {
    /// Waits while the thread would take a processor from the threads of other addresses.
    pub(crate) fn pause(&self) {
        let mut threads = self.turns.lock();
        let of_peer = |threads: &HashMap<Peer, Threads>| {
            threads.get(&self.peer).map_or(0, |of_peer| of_peer.running)
        };
        if self.turns.is_fair(&threads, of_peer(&threads)) {
            return;
        }
        self.change(&mut threads, |of_peer| {
            of_peer.running -= 1;
            of_peer.waiting += 1;
        });
        self.turns.freed.notify_all();
        loop {
            threads = self.turns.freed.wait(threads).unwrap_or_else(PoisonError::into_inner);
            // Check the state in which this thread runs again.
            self.change(&mut threads, |of_peer| of_peer.running += 1);
            if self.turns.is_fair(&threads, of_peer(&threads)) {
                self.change(&mut threads, |of_peer| of_peer.waiting -= 1);
                return;
            }
            self.change(&mut threads, |of_peer| of_peer.running -= 1);
        }
    }

    fn change(&self, threads: &mut HashMap<Peer, Threads>, change: impl FnOnce(&mut Threads)) {
        change(threads.entry(self.peer).or_default());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut threads = self.turns.lock();
        self.change(&mut threads, |of_peer| of_peer.running -= 1);
        threads.retain(|_, of_peer| of_peer.running + of_peer.waiting > 0);
        drop(threads);
        self.turns.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;

    fn peer(last: u8) -> Peer {
        IpAddr::from([10, 0, 0, last]).into()
    }

    /// Calls `pause` on another thread. The receiver gets the turn when the call returns.
    fn pause(turn: Turn) -> Receiver<Turn> {
        let (send, paused) = channel();
        std::thread::spawn(move || {
            turn.pause();
            let _ = send.send(turn);
        });
        paused
    }

    fn is_waiting(paused: &Receiver<Turn>) -> bool {
        paused.recv_timeout(Duration::from_millis(100)).err() == Some(RecvTimeoutError::Timeout)
    }

    #[test]
    fn one_address_uses_all_processors_until_another_needs_one() {
        let turns = Turns::new(2);
        let (first, second) = (turns.start(peer(1)), turns.start(peer(1)));
        first.pause();
        second.pause();
        let other = turns.start(peer(2));
        let first = pause(first);
        assert!(is_waiting(&first), "the other address needs the processor");
        // One thread of each address runs, so neither of them waits.
        second.pause();
        other.pause();
        let third = pause(turns.start(peer(1)));
        assert!(is_waiting(&third));
        drop((other, second));
        let [first, third] =
            [first, third].map(|paused| paused.recv_timeout(Duration::from_secs(20)).unwrap());
        drop((first, third));
        assert!(turns.lock().is_empty());
    }

    #[test]
    fn every_address_has_one_thread_that_does_not_wait() {
        let turns = Turns::new(2);
        let all: Vec<Turn> = (1..=5).map(|last| turns.start(peer(last))).collect();
        all.iter().for_each(Turn::pause);
        let more = pause(turns.start(peer(1)));
        assert!(is_waiting(&more));
        drop(all);
        more.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}
