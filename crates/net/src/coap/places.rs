//! Where the children of a parent are: at which peer of which socket.
//!
//! Without DTLS, anyone can send a request in the name of any child. Such a request therefore only
//! announces a place. Frames go there only after a frame from this place was verified
//! ([`confirm`](Places::confirm)), or if nothing better is known of the child. A DTLS handshake
//! proves the device, so that its place needs no confirmation.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::config::Peer;

/// A place without DTLS expires if nothing arrived from it for this long: five times the interval at
/// which an idle child announces itself.
pub(super) const EXPIRY: Duration = Duration::from_secs(125);

/// A peer of one of the parent's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    /// The number of the socket.
    pub(super) socket: usize,
    /// The peer.
    pub(super) peer: Peer,
}

/// A place and when something last arrived from it.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: At,
    heard: Instant,
}

impl Place {
    fn is_live(&self, now: Instant) -> bool {
        self.at.peer.is_secure() || now.saturating_duration_since(self.heard) < EXPIRY
    }
}

/// The places of one child.
#[derive(Debug, Default)]
struct Child {
    /// The place that the device has proven, and when it last did.
    confirmed: Option<(Place, Instant)>,
    /// The newest other place from which someone announced the child.
    announced: Option<Place>,
}

/// The places of all children: at most two of each.
#[derive(Debug, Default)]
pub(super) struct Places {
    children: HashMap<[u8; 8], Child>,
}

impl Places {
    /// Notes that a request in the name of a child has arrived. Returns whether the child was not at
    /// this place before.
    pub(super) fn heard(&mut self, device: [u8; 8], at: At, now: Instant) -> bool {
        let place = Place { at, heard: now };
        let child = self.children.entry(device).or_default();
        let is_confirmed = child.confirmed.is_some_and(|(confirmed, _)| confirmed.at == at);
        if at.peer.is_secure() {
            child.confirmed = Some((place, now));
            return !is_confirmed;
        }
        if let Some((confirmed, _)) = child.confirmed.as_mut().filter(|_| is_confirmed) {
            let was_live = confirmed.is_live(now);
            confirmed.heard = now;
            return !was_live;
        }
        let before = child.announced.replace(place);
        before.is_none_or(|before| before.at != at || !before.is_live(now))
    }

    /// Makes a place that of a child, because the child has sent an authentic frame from there.
    pub(super) fn confirm(&mut self, device: [u8; 8], at: At, now: Instant) {
        let Some(child) = self.children.get_mut(&device) else { return };
        let is_open = |child: &Child| child.confirmed.is_some_and(|(place, _)| place.at == at);
        // A session that has ended since is not a place any more.
        if at.peer.is_secure() && !is_open(child) {
            return;
        }
        child.confirmed = Some((Place { at, heard: now }, now));
        child.announced.take_if(|announced| announced.at == at);
    }

    /// Removes a peer whose session has ended.
    pub(super) fn closed(&mut self, at: At) {
        self.children.retain(|_, child| {
            child.confirmed.take_if(|(place, _)| place.at == at);
            child.announced.take_if(|place| place.at == at);
            child.confirmed.is_some() || child.announced.is_some()
        });
    }

    /// Removes the children for which `is_member` returns false.
    pub(super) fn retain(&mut self, is_member: impl Fn(&[u8; 8]) -> bool) {
        self.children.retain(|device, _| is_member(device));
    }

    /// Returns where frames for a child go: its proven place, or else the announced one.
    pub(super) fn of(&self, device: [u8; 8], now: Instant) -> Option<At> {
        let child = self.children.get(&device)?;
        let confirmed = child.confirmed.map(|(place, _)| place);
        let mut places = confirmed.into_iter().chain(child.announced);
        places.find(|place| place.is_live(now)).map(|place| place.at)
    }

    /// Returns when a child last proved its place, if it is still there.
    pub(super) fn confirmed_at(&self, device: [u8; 8], now: Instant) -> Option<Instant> {
        let (place, at) = self.children.get(&device)?.confirmed?;
        place.is_live(now).then_some(at)
    }

    /// Returns whether any child has proven its place and is still there.
    pub(super) fn has_confirmed(&self, now: Instant) -> bool {
        let mut confirmed = self.children.values().filter_map(|child| child.confirmed);
        confirmed.any(|(place, _)| place.is_live(now))
    }

    /// Returns all places of all children, and forgets those that have expired.
    pub(super) fn all(&mut self, now: Instant) -> Vec<At> {
        let mut all = Vec::new();
        self.children.retain(|_, child| {
            child.confirmed.take_if(|(place, _)| !place.is_live(now));
            child.announced.take_if(|place| !place.is_live(now));
            let confirmed = child.confirmed.map(|(place, _)| place);
            let places = confirmed.into_iter().chain(child.announced).map(|place| place.at);
            let before = all.len();
            all.extend(places);
            all.len() > before
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: [u8; 8] = [1; 8];

    fn at(port: u16, session: u64) -> At {
        let address = ([127, 0, 0, 1], port).into();
        At { socket: usize::from(session > 0), peer: Peer { address, session } }
    }

    #[test]
    fn an_announcement_takes_no_place_that_a_frame_has_confirmed() {
        let (mut places, now) = (Places::default(), Instant::now());
        assert!(places.heard(DEVICE, at(1, 0), now) && !places.heard(DEVICE, at(1, 0), now));
        assert_eq!(places.of(DEVICE, now), Some(at(1, 0)), "nothing better is known");
        assert_eq!(places.confirmed_at(DEVICE, now), None);
        places.confirm(DEVICE, at(1, 0), now);
        assert!(places.heard(DEVICE, at(2, 0), now));
        assert_eq!(places.of(DEVICE, now), Some(at(1, 0)));
        assert_eq!(places.all(now), [at(1, 0), at(2, 0)], "both hear the round");
        places.confirm(DEVICE, at(2, 0), now);
        assert_eq!((places.of(DEVICE, now), places.all(now).len()), (Some(at(2, 0)), 1));
    }

    #[test]
    fn a_session_proves_its_place_until_it_ends() {
        let (mut places, now) = (Places::default(), Instant::now());
        assert!(places.heard(DEVICE, at(1, 7), now));
        assert!(places.heard(DEVICE, at(2, 0), now));
        assert_eq!(places.of(DEVICE, now + 2 * EXPIRY), Some(at(1, 7)), "sessions do not expire");
        places.closed(at(1, 7));
        assert_eq!(places.of(DEVICE, now), Some(at(2, 0)));
        // The frame arrived before the session ended.
        places.confirm(DEVICE, at(1, 7), now);
        assert_eq!(places.of(DEVICE, now), Some(at(2, 0)));
    }

    #[test]
    fn a_place_without_dtls_expires_if_nothing_arrives_from_it() {
        let (mut places, start) = (Places::default(), Instant::now());
        places.heard(DEVICE, at(1, 0), start);
        places.confirm(DEVICE, at(1, 0), start);
        let later = start + EXPIRY / 2;
        assert!(!places.heard(DEVICE, at(1, 0), later));
        assert!(places.of(DEVICE, start + EXPIRY).is_some());
        let expired = later + EXPIRY;
        assert!(places.of(DEVICE, expired).is_none());
        assert!(places.confirmed_at(DEVICE, expired).is_none());
        assert!(places.all(expired).is_empty() && places.children.is_empty());
    }
}
