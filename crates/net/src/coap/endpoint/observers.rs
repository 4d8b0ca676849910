//! The observers of all peers of an endpoint, and the limits on them.
//!
//! Anyone can register an observer under a forged address. Such observers have a part of the places
//! for themselves, where a new one displaces the oldest one. An observer that returns a message of the
//! server keeps its place.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::config::{Limits, Peer, network};
use super::super::message::Token;
use super::super::peer::{Observer, State};
use super::Counters;

/// The maximum number of clients that observe one periodic representation. Without DTLS, a new one
/// displaces the oldest one whose address is not validated.
pub const PERIODIC_OBSERVERS: usize = 8;
/// The number of these places that clients of one network without DTLS leave to others. Programs on the
/// same machine may use all.
const FOR_OTHERS: usize = 2;

/// The observers of all peers.
#[derive(Default)]
pub(super) struct Observers {
    pub(super) total: usize,
    /// The number of the newest registration.
    next: u64,
    /// Those whose addresses are not validated, by the number of the registration.
    pub(super) unproven: BTreeMap<u64, (Peer, Token, Box<str>)>,
    /// Unproven ones that must end before the next one is added, because there are too many.
    pub(super) displaced: Vec<(Peer, Token)>,
    /// The number of proven observers of each network.
    networks: HashMap<u128, usize>,
    /// The peers that observe each path.
    pub(super) paths: HashMap<String, BTreeSet<Peer>>,
}

impl Observers {
    /// Returns how many observers may have addresses that are not validated.
    const fn unproven_limit(limits: &Limits) -> usize {
        limits.observers / 4
    }

    /// Counts the observers of a peer whose address is validated now. At the limit, they stay
    /// among those that may be displaced.
    pub(super) fn prove(&mut self, peer: Peer, state: &State, limits: &Limits) {
        for observer in &state.observers {
            if self.has_room(peer, limits) && self.unproven.remove(&observer.number).is_some() {
                *self.networks.entry(network(peer.address.ip())).or_default() += 1;
            }
        }
    }

    /// Returns whether there is room for a proven observer.
    fn has_room(&self, peer: Peer, limits: &Limits) -> bool {
        let of_network = self.networks.get(&network(peer.address.ip()));
        let most = limits.observers - Self::unproven_limit(limits);
        self.total - self.unproven.len() < most
            && of_network.is_none_or(|of| *of < limits.observers_of_network)
    }

    /// Returns whether a periodic representation has no room for another observer, or none for another
    /// one of the same network. If an observer among those has an address that is not validated, the
    /// oldest of these ends to make room.
    pub(super) fn is_full(&mut self, peer: Peer, path: &str) -> bool {
        let Some(peers) = self.paths.get(path) else { return false };
        let own = network(peer.address.ip());
        let is_near = |of: &Peer| !of.is_secure() && network(of.address.ip()) == own;
        let is_crowded = !peer.is_secure()
            && !peer.is_local()
            && peers.iter().filter(|of| is_near(of)).count() >= PERIODIC_OBSERVERS - FOR_OTHERS;
        if peers.contains(&peer) || (peers.len() < PERIODIC_OBSERVERS && !is_crowded) {
            return false;
        }
        let is_other = |of: &Peer| self.displaced.iter().all(|(displaced, _)| displaced != of);
        let mut unproven = self.unproven.values();
        let oldest = unproven.find(|(of, _, observed)| {
            **observed == *path && is_other(of) && (!is_crowded || is_near(of))
        });
        let Some((oldest, token, _)) = oldest else { return true };
        self.displaced.push((*oldest, *token));
        false
    }

    /// Notes a new observer of a path. Returns the number of its registration, or `None` if there are
    /// too many.
    pub(super) fn add(
        &mut self,
        (peer, state): (Peer, &State),
        (token, path): (Token, &str),
        limits: &Limits,
        counters: &mut Counters,
    ) -> Option<u64> {
        let (is_proven, unproven) = (state.is_validated(), Self::unproven_limit(limits));
        let has_room = if is_proven { self.has_room(peer, limits) } else { unproven > 0 };
        if !has_room || state.observers.len() >= limits.observers_of_peer {
            counters.unregistered += 1;
            return None;
        }
        self.next += 1;
        if is_proven {
            *self.networks.entry(network(peer.address.ip())).or_default() += 1;
        } else {
            if self.unproven.len() >= unproven
                && let Some((_, (oldest, token, _))) = self.unproven.first_key_value()
            {
                counters.displaced += 1;
                self.displaced.push((*oldest, *token));
            }
            self.unproven.insert(self.next, (peer, token, path.into()));
        }
        self.total += 1;
        self.paths.entry(path.to_owned()).or_default().insert(peer);
        Some(self.next)
    }

    /// Notes that an observer has ended.
    pub(super) fn ended(&mut self, peer: Peer, observer: &Observer) {
        self.total -= 1;
        if self.unproven.remove(&observer.number).is_some() {
            return;
        }
        let network = network(peer.address.ip());
        if let Some(count) = self.networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
    }

    /// Removes a peer from those that observe a path. The peer may observe it several times; the
    /// caller checks this.
    pub(super) fn stop(&mut self, peer: Peer, path: &str) {
        if let Some(peers) = self.paths.get_mut(path) {
            peers.remove(&peer);
            if peers.is_empty() {
                self.paths.remove(path);
            }
        }
    }
}
