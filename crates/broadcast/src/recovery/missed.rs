//! Chains that a node does not have: chains that other nodes mention, and missed chains, which the
//! head of a later chain names. The node requests their heads.

use crate::Head;
use crate::recovery::*;

/// What a node knows of a chain whose head it checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The chain is new.
    No,
    /// The head is in the store. It may have the number of the sender's latest accepted chain.
    Kept,
    /// The chain is noted as missed, or a part of it was received before. It may have any number.
    Missed,
}

impl<const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'_, SENDERS, CHAINS, B> {
    /// Requests the head of a missed chain on all links. Call this after a restart for each chain
    /// that the store has noted as missed.
    pub fn request(&mut self, now: Now, chain: ChainRef) {
        self.advance(now);
        if self.slot(chain).is_none() {
            self.note_unknown(chain, WANTS_HEAD, ALL_LINKS);
        }
    }

    /// Notes the chain before this one as missed if the node has not accepted it. `above` is the
    /// highest number that was accepted before the gap. Returns the missed chain.
    pub(super) fn note_missed<S: Store>(
        &self,
        head: &Head<'_>,
        above: Option<ChainNumber>,
        left: u8,
        store: &mut S,
    ) -> Result<Option<ChainRef>, S::Error> {
        let (id, key) = (head.id(), head.key());
        let Some(number) = head.previous() else { return Ok(None) };
        let Some(left) = left.checked_sub(1) else { return Ok(None) };
        if above.is_some_and(|above| number <= above) {
            return Ok(None);
        }
        let chain = ChainId { number, ..id }.reference(key);
        let missed = MissedChain { chain, sender: id.sender, key, number, above, left };
        Ok(store.miss(&missed)?.then_some(chain))
    }

    /// Records a chain whose head is not known, so that the node requests the head. The expected
    /// next chain of a known sender is not displaced by other chains.
    pub(super) fn note_unknown(&mut self, chain: ChainRef, wanted: u64, link: u8) {
        if let Some(known) =
            self.unknown.iter_mut().flatten().find(|unknown| unknown.chain == chain)
        {
            known.wanted |= wanted;
            return;
        }
        // A node without any certificate cannot check a head, so it also requests the certificate.
        let wanted = if self.senders.iter().all(Option::is_none) {
            wanted | WANTS_CERTIFICATE
        } else {
            wanted
        };
        let is_expected =
            chain == ANY_CHAIN || self.senders.iter().flatten().any(|sender| sender.next == chain);
        let pace = self.pace();
        let ask = Ask::at(self.clock, pace.settle_ms, pace.timing.request_ms, &mut self.draws);
        let new = Unknown { chain, wanted, link, is_expected, ask, attempts: 0 };
        if let Some(free) = self.unknown.iter_mut().find(|place| place.is_none()) {
            *free = Some(new);
            return;
        }
        let gives_way =
            |place: &&mut Option<Unknown>| place.is_some_and(|unknown| !unknown.is_expected);
        let count = u32::try_from(self.unknown.iter_mut().filter(gives_way).count()).unwrap_or(0);
        // Each candidate, including the new one, is dropped with the same probability.
        let drawn = self.draws.below(if is_expected { count } else { count.saturating_add(1) });
        if let Some(place) = self.unknown.iter_mut().filter(gives_way).nth(drawn as usize) {
            *place = Some(new);
        }
    }
}
