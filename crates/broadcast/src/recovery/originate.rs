//! How a node sends its own chains, and continues chains after a reboot.

use crate::recovery::missed::Known;
use crate::recovery::receive::HeadSigner;
use crate::recovery::*;
use crate::{Head, Revocation, SenderCertificate, Taken};

/// A chain that the node continues after a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The chain.
    pub id: ChainId,
    /// The number of verified blocks. The node reports no [`Event::Verified`] for them. A host that
    /// does not know whether it has acted on them may act on them again.
    pub verified: u32,
    /// Whether the chain is complete.
    pub is_complete: bool,
}

impl<const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'_, SENDERS, CHAINS, B> {
    /// Starts to send one of the node's own chains. All its leaves must be in the store. The next
    /// polls send the certificate and the head. Each message follows after it is
    /// [released](Self::release). The certificate must be currently valid; its signature is not
    /// checked. After a reboot, call this again with the same head; the chain then continues with
    /// the next released message.
    ///
    /// Returns [`Event::Accepted`], or the reason why other nodes would reject the chain.
    ///
    /// # Errors
    /// The errors of the storage.
    pub fn originate<S: Store>(
        &mut self,
        now: Now,
        certificate: &[u8],
        head: &[u8],
        store: &mut S,
    ) -> Result<Event, S::Error> {
        self.advance(now);
        let (Ok(of), Ok(claim)) = (SenderCertificate::peek(certificate), Head::peek(head)) else {
            return Ok(Event::Refused(RefusedBroadcast::Malformed));
        };
        let (id, fingerprint) = (claim.id(), self.draws.fingerprint(certificate));
        if id.network != self.settings.network {
            return Ok(Event::Refused(RefusedBroadcast::WrongNetwork));
        }
        if of.sender != id.sender {
            return Ok(Event::Refused(RefusedBroadcast::UnknownSender));
        }
        if of.key != claim.key() {
            return Ok(Event::Refused(RefusedBroadcast::KeyNotCertified));
        }
        let is_known =
            self.senders.iter().flatten().any(|sender| sender.certificate == fingerprint);
        if !is_known {
            let Ok(own) = SenderCertificate::reopen(certificate) else {
                return Ok(Event::Refused(RefusedBroadcast::Malformed));
            };
            if own.network != self.settings.network {
                return Ok(Event::Refused(RefusedBroadcast::WrongNetwork));
            }
            // A sender need not know the key of the base station that certified it, because each
            // receiver decides which base stations it accepts.
            match self.enroll(now, &own, u8::MAX, (certificate, fingerprint), store)? {
                Event::Certified { key, .. } => self.send_now(Piece::Certificate(key)),
                refused => return Ok(refused),
            }
        }
        let chain = claim.reference();
        let is_kept = store.is_kept(Item::Head(chain), head)?;
        if let (true, Some(slot)) = (is_kept, self.slot(chain)) {
            // `resume` has already continued this chain as a complete one.
            let Some(tracked) = self.chains.get_mut(slot).and_then(Option::as_mut) else {
                return Ok(Event::Nothing);
            };
            tracked.progress = Progress::Own { released: 0 };
            (tracked.ask, tracked.trickle) = (Ask::NEVER, Trickle::OVER);
            return Ok(Event::Accepted {
                chain,
                sender: id.sender,
                number: id.number,
                abandoned: None,
            });
        }
        let known = if is_kept { Known::Kept } else { Known::No };
        let place = match self.may_accept(now, &claim, self.draws.fingerprint(head), known) {
            Ok(place) => place,
            Err(error) => return Ok(Event::Refused(error)),
        };
        let Some(signer) = self.head_signer(place) else {
            return Ok(Event::Refused(RefusedBroadcast::UnknownSender));
        };
        let event = self.accept(head, &signer, LinkSet::NONE, true, store)?;
        if let Event::Accepted { chain, .. } = event {
            self.send_now(Piece::Head(chain));
        }
        Ok(event)
    }

    /// Releases a message of the node's own chain: from now on, the node sends it and answers
    /// requests for it. Earlier messages count as sent. Release messages in order, and poll until
    /// each message is sent before you release the next one.
    ///
    /// # Errors
    /// `NoSuchLeaf` if the chain is not one of the node's own, if all its messages are already
    /// released, or if the chain has no such leaf.
    pub fn release(
        &mut self,
        now: Now,
        chain: ChainRef,
        block: u32,
        index: u8,
    ) -> Result<(), RefusedBroadcast> {
        self.advance(now);
        let slot = self.slot(chain).ok_or(RefusedBroadcast::NoSuchLeaf)?;
        let tracked = self
            .chains
            .get_mut(slot)
            .and_then(Option::as_mut)
            .ok_or(RefusedBroadcast::NoSuchLeaf)?;
        let Progress::Own { released } = &mut tracked.progress else {
            return Err(RefusedBroadcast::NoSuchLeaf);
        };
        if index >= tracked.outline.in_block(block) {
            return Err(RefusedBroadcast::NoSuchLeaf);
        }
        *released = (*released).max(tracked.outline.message(block, index).saturating_add(1));
        if *released >= tracked.outline.messages {
            tracked.progress = Progress::Whole;
            tracked.trickle.start(self.clock, &self.settings.timing, &mut self.draws);
        }
        if tracked.outline.messages > 1 || !self.relays.has(Item::Head(chain)) {
            self.send_now(Piece::Leaves { chain, block, bits: 1 << (index & 63) });
        }
        Ok(())
    }

    /// Continues a chain from before a reboot with the leaves that are in the store. `scratch`
    /// needs room for the longest leaf. Returns `None` if the store does not have the chain, or its
    /// certificate is no longer valid. Also returns `None` if the chain already has a slot, or no
    /// slot is free.
    ///
    /// # Errors
    /// The errors of the storage.
    pub fn resume<S: Store>(
        &mut self,
        now: Now,
        chain: ChainRef,
        store: &mut S,
        scratch: &mut [u8],
    ) -> Result<Option<Resumed>, S::Error> {
        self.advance(now);
        if self.slot(chain).is_some() || self.chains.iter().all(Option::is_some) {
            return Ok(None);
        }
        let Some(signer) = self.recertify(now, chain, store)? else { return Ok(None) };
        let mut bytes = [0; MAX_HEAD];
        let Some(bytes) = store.fetch(Item::Head(chain), &mut bytes)? else { return Ok(None) };
        let id = match Head::peek(bytes) {
            Ok(claim) if claim.reference() == chain => claim.id(),
            _ => return Ok(None),
        };
        let Event::Accepted { .. } = self.accept(bytes, &signer, LinkSet::NONE, false, store)?
        else {
            return Ok(None);
        };
        self.take_kept(chain, store, scratch)?;
        let Some(tracked) = self.tracked(chain) else { return Ok(None) };
        let verified = tracked
            .missing()
            .map_or(tracked.outline.blocks(), |(block, _)| block.saturating_sub(1));
        Ok(Some(Resumed { id, verified, is_complete: tracked.is_whole() }))
    }

    /// Returns the signer of a continued chain. The signer comes from the certificate that is
    /// stored with the chain, if that certificate is still valid. If the sender has no later
    /// certificate, the node also uses this one for the sender's next chains.
    #[inline(never)]
    fn recertify<S: Store>(
        &mut self,
        now: Now,
        chain: ChainRef,
        store: &mut S,
    ) -> Result<Option<HeadSigner>, S::Error> {
        let mut buffer = [0; MAX_SENDER_CERTIFICATE];
        let Some(bytes) = store.fetch(Item::ChainCertificate(chain), &mut buffer)? else {
            return Ok(None);
        };
        let Ok((certificate, base)) =
            SenderCertificate::open_any(bytes, self.settings.network, self.base_keys())
        else {
            return Ok(None);
        };
        let (Ok(key), Ok(base)) = (certificate.key(), u8::try_from(base)) else { return Ok(None) };
        if certificate.check(now.unix, &store.revoked(base)?).is_err() {
            return Ok(None);
        }
        let known = self.sender(certificate.sender, KeyId::of(&key));
        let known = known.and_then(|place| self.senders.get(place)?.as_ref());
        if known.is_none_or(|known| known.base == base && known.serial < certificate.serial) {
            let fingerprint = self.draws.fingerprint(bytes);
            let Event::Certified { .. } = self.certify(now, bytes, fingerprint, store)? else {
                return Ok(None);
            };
        }
        Ok(Some(HeadSigner { sender: certificate.sender, key, base, serial: certificate.serial }))
    }

    /// Verifies the stored leaves of a chain in order, up to the first incomplete block.
    fn take_kept<S: Store>(
        &mut self,
        chain: ChainRef,
        store: &mut S,
        scratch: &mut [u8],
    ) -> Result<(), S::Error> {
        let (pace, clock) = (self.pace(), self.clock);
        let Some(slot) = self.slot(chain) else { return Ok(()) };
        let Some(tracked) = self.chains.get_mut(slot).and_then(Option::as_mut) else {
            return Ok(());
        };
        let outline = tracked.outline;
        let Progress::Under(incoming) = &mut tracked.progress else { return Ok(()) };
        'blocks: for block in 1..=outline.blocks() {
            for index in 0..outline.in_block(block) {
                let Some(leaf) = store.fetch(Item::Leaf { chain, block, index }, scratch)? else {
                    continue;
                };
                if let Ok(Taken::Verified { .. }) = incoming.take(block, index, leaf) {
                    continue 'blocks;
                }
            }
            break;
        }
        tracked.note_arrival(true, clock, &pace, &mut self.draws);
        if tracked.is_whole() {
            tracked.trickle.start(clock, &pace.timing, &mut self.draws);
        }
        Ok(())
    }

    /// Queues an item for immediate sending, after the entries that are already queued for the same
    /// chain.
    fn send_now(&mut self, piece: Piece) {
        let (due, links) = (self.clock, self.settings.links);
        self.relays.add(
            Planned { due, piece, links, purpose: Purpose::Original, duplicates: 0, is_firm: true },
            false,
        );
    }

    /// Abandons a chain for which the host has no room. The node forgets the chain in the store, or
    /// retires it if it is complete, and does not accept it again.
    ///
    /// # Errors
    /// The errors of the storage.
    pub fn abandon<S: Store>(&mut self, chain: ChainRef, store: &mut S) -> Result<(), S::Error> {
        self.slot(chain).map_or(Ok(()), |slot| self.vacate(slot, store))
    }

    /// Sends a revocation, as a base station does.
    ///
    /// # Errors
    /// The errors of the storage.
    pub fn revoke<S: Store>(
        &mut self,
        now: Now,
        revocation: &[u8],
        store: &mut S,
    ) -> Result<Event, S::Error> {
        self.advance(now);
        if Revocation::peek(revocation).is_err() {
            return Ok(Event::Refused(RefusedBroadcast::Malformed));
        }
        let event = self.receive_revocation(MAX_LINKS, revocation, true, store)?;
        if let Event::Revoked { base, .. } = event {
            self.send_now(Piece::Revocation(base));
        }
        Ok(event)
    }
}
