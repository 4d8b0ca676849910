//! The authenticated requests of receivers (spec/broadcast.md, section 7.4): for which requests a
//! sender waits, which requests of unknown origin it answers, and to which receivers it sends the
//! newest head.

use std::collections::{BTreeMap, VecDeque};

use moteseal_broadcast::ChainRef;
use moteseal_broadcast::receipt::{HeadRequest, ReceiverTag, Request, is_tag};

use super::receivers::Receivers;

/// The share of the sender's rate for answers to requests of unknown origin: a twentieth.
const UNKNOWN_SHARE: u64 = 20;
/// The maximum number of bytes of these answers at once is the sender's rate divided by this, or one
/// answer if that is more.
const UNKNOWN_BURST: u64 = 40;
/// The shortest interval between two heads that are sent to the same receiver, in milliseconds.
const SAME_MS: u64 = 250;
/// The shortest interval between two heads that are sent to receivers, in milliseconds.
const EACH_MS: u64 = 5;

/// The requests that arrive at a sender with a list of receivers.
#[derive(Debug)]
pub(super) struct Requests {
    rate: u64,
    /// The bytes of answers that requests of unknown origin may cause now.
    credit: u64,
    credited_ms: u64,
    /// The block for whose requests the sender waits.
    about: Option<(ChainRef, u32)>,
    /// The number of each receiver's last request for this block.
    attempts: BTreeMap<u32, u32>,
    /// The number of each receiver's last request for the head of the chain.
    head_attempts: BTreeMap<u32, u32>,
}

impl Requests {
    /// `rate` is the sender's rate in bytes per second.
    pub(super) const fn new(rate: u64) -> Self {
        Self {
            rate,
            credit: 0,
            credited_ms: 0,
            about: None,
            attempts: BTreeMap::new(),
            head_attempts: BTreeMap::new(),
        }
    }

    /// Returns whether a receiver of the list has sent this request, and the sender waits for it:
    /// it is for the block `about` or for the head of its chain, and its number is higher than that
    /// of the receiver's last request. A copy of a request is therefore of no use to an attacker.
    pub(super) fn is_waited_for(
        &mut self,
        list: &Receivers,
        about: Option<(ChainRef, u32)>,
        request: &Request,
        (receiver, tag): (u32, &ReceiverTag),
    ) -> bool {
        let Some((chain, block)) = about else { return false };
        if chain != request.chain || (request.block != block && request.block != 0) {
            return false;
        }
        let is_genuine = list.key(receiver).is_some_and(|key| is_tag(&key.request(request), tag));
        if !is_genuine || request.wanted == 0 {
            return false;
        }
        if self.about != about {
            if self.about.is_none_or(|(of, _)| of != chain) {
                self.head_attempts.clear();
            }
            (self.about, self.attempts) = (about, BTreeMap::new());
        }
        let is_leaf = request.block > 0;
        let attempts = if is_leaf { &mut self.attempts } else { &mut self.head_attempts };
        let last = attempts.entry(receiver).or_default();
        let is_new = request.attempt > *last;
        *last = request.attempt.max(*last);
        is_new
    }

    /// Returns the part of a request of unknown origin that the sender answers now. An answer has at
    /// most `each` bytes.
    pub(super) fn granted(&mut self, now_ms: u64, wanted: u64, each: u64) -> u64 {
        let (each, passed) = (each.max(1), now_ms.saturating_sub(self.credited_ms));
        let gained = passed.saturating_mul(self.rate / UNKNOWN_SHARE) / 1000;
        if gained > 0 {
            self.credited_ms = now_ms;
            let most = (self.rate / UNKNOWN_BURST).max(each);
            self.credit = self.credit.saturating_add(gained).min(most);
        }
        let mut left = wanted;
        while left != 0 && self.credit >= each {
            self.credit -= each;
            // Removes the lowest bit.
            left &= left - 1;
        }
        wanted & !left
    }
}

/// The receivers to which a sender sends its newest head, because they asked for it. The sender
/// sends at most one head each 5 ms, and at most one to the same receiver each 250 ms. A copy of a
/// receiver's request only makes the sender send to that receiver what it lacks.
#[derive(Debug, Default)]
pub struct HeadAnswers {
    waiting: VecDeque<u32>,
    sent: BTreeMap<u32, u64>,
    next_ms: u64,
}

impl HeadAnswers {
    /// Processes a request for the newest head of a key. `newest` is the number of this head.
    /// Ignores the request if no receiver of the list has sent it, or the receiver has this head.
    pub fn take(
        &mut self,
        list: &Receivers,
        newest: u64,
        request: &HeadRequest,
        receiver: u32,
        tag: &ReceiverTag,
    ) {
        let is_genuine =
            list.key(receiver).is_some_and(|key| is_tag(&key.head_request(request), tag));
        if is_genuine && request.above < newest && !self.waiting.contains(&receiver) {
            self.waiting.push_back(receiver);
        }
    }

    /// Returns the receiver to which to send the newest head now.
    pub fn next(&mut self, now_ms: u64) -> Option<u32> {
        if now_ms < self.next_ms {
            return None;
        }
        let is_due =
            |receiver: &u32| self.sent.get(receiver).is_none_or(|at| now_ms >= at + SAME_MS);
        let place = self.waiting.iter().position(is_due)?;
        let receiver = self.waiting.remove(place)?;
        self.next_ms = now_ms + EACH_MS;
        self.sent.insert(receiver, now_ms);
        Some(receiver)
    }

    /// Returns whether a receiver waits for a head.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use moteseal_broadcast::KeyId;
    use moteseal_core::record::{DeviceId, NetworkId};
    use zeroize::Zeroizing;

    const CHAIN: ChainRef = ChainRef(*b"chain  1");

    fn list() -> Receivers {
        let (network, sender) = (NetworkId(*b"network1"), DeviceId(*b"sender 1"));
        let mut list = Receivers::new(network, sender, Zeroizing::new([7; 32]));
        (0..3).for_each(|at| _ = list.add(&format!("r{at}")).unwrap());
        list
    }

    #[test]
    fn a_sender_waits_for_each_authenticated_request_once() {
        let (list, mut requests) = (list(), Requests::new(1_000_000));
        let key = list.key(1).unwrap();
        let about = Some((CHAIN, 4));
        let request = |block, attempt| Request { chain: CHAIN, block, wanted: 3, attempt };
        let mut waits = |request: &Request, receiver, tag: &ReceiverTag| {
            requests.is_waited_for(&list, about, request, (receiver, tag))
        };
        let first = request(4, 7);
        let tag = key.request(&first);
        assert!(waits(&first, 1, &tag), "genuine");
        assert!(!waits(&first, 1, &tag), "a copy");
        assert!(!waits(&request(4, 6), 1, &key.request(&request(4, 6))), "an earlier one");
        assert!(!waits(&request(4, 8), 1, &tag), "another tag");
        assert!(!waits(&request(4, 8), 2, &key.request(&request(4, 8))), "another receiver");
        assert!(!waits(&request(3, 8), 1, &key.request(&request(3, 8))), "another block");
        assert!(waits(&request(0, 8), 1, &key.request(&request(0, 8))), "the head");
        let next = Some((CHAIN, 5));
        let again = request(5, 1);
        let tag = key.request(&again);
        assert!(requests.is_waited_for(&list, next, &again, (1, &tag)), "after a restart");
        let tag = key.request(&request(0, 8));
        assert!(!requests.is_waited_for(&list, next, &request(0, 8), (1, &tag)), "a copy");
        assert!(!requests.is_waited_for(&list, None, &request(5, 2), (1, &tag)));
    }

    #[test]
    fn answers_to_unknown_requests_use_a_twentieth_of_the_rate() {
        for each in [1_000, 8_000, 40_000] {
            let mut requests = Requests::new(1_000_000);
            let granted = (0..10_000).map(|ms| requests.granted(ms, u64::MAX, each).count_ones());
            let answered = u64::from(granted.sum::<u32>()) * each;
            assert!((400_000..=530_000).contains(&answered), "{answered} bytes in 10 s");
        }
        // A part of a request is answered, from the first leaf on.
        let mut requests = Requests::new(1_000_000);
        assert_eq!(requests.granted(0, 0b1111_0000, 10_000), 0);
        assert_eq!(requests.granted(1_000, 0b1111_0000, 10_000), 0b0011_0000);
    }

    #[test]
    fn heads_go_to_receivers_that_lack_them_at_a_limited_rate() {
        let (list, mut answers) = (list(), HeadAnswers::default());
        let request = HeadRequest { key: KeyId(*b"key of 1"), above: 4 };
        let tag = |at| list.key(at).unwrap().head_request(&request);
        answers.take(&list, 4, &request, 0, &tag(0));
        answers.take(&list, 5, &request, 1, &tag(0));
        assert_eq!(answers.next(0), None, "it has the newest one; forged");
        let mut sent = Vec::new();
        for ms in 0..1_000 {
            (0..3).for_each(|at| answers.take(&list, 5, &request, at, &tag(at)));
            sent.extend(answers.next(ms).map(|at| (ms, at)));
        }
        assert_eq!(sent[..4], [(0, 0), (5, 1), (10, 2), (250, 0)]);
        assert_eq!(sent.len(), 12);
    }
}
