//! What a node does not send because other nodes have sent it.

use crate::recovery::*;

impl<const SENDERS: usize, const CHAINS: usize, const B: usize> Node<'_, SENDERS, CHAINS, B> {
    /// Records that another node has sent a copy of a genuine item on a link. This node then does
    /// not send the item there as an answer, and does not relay it there after enough copies.
    /// Entries with `is_firm` are an exception: they are sent in any case.
    pub(super) fn note_duplicate(&mut self, item: Item, link: u8) {
        let link = LinkSet::one(link);
        self.note_relayed(item, link);
        self.note_answered(item, link);
    }

    /// Counts a copy of an item towards those after which this node does not relay the item.
    fn note_relayed(&mut self, item: Item, link: LinkSet) {
        let enough = match self.settings.relay {
            Relay::Flood { copies } => copies,
            Relay::Never | Relay::OtherLinks => 1,
        };
        self.relays.suppress(item, |planned| {
            if planned.is_firm || enough == u8::MAX || planned.links.and(link).is_empty() {
                return false;
            }
            planned.duplicates = planned.duplicates.saturating_add(1);
            planned.duplicates >= enough && planned.links == link
        });
    }

    /// Ends a planned answer with an item that another node has sent.
    pub(super) fn note_answered(&mut self, item: Item, link: LinkSet) {
        let mut is_spared = false;
        self.answers.suppress(item, |planned| {
            let ends = planned.links == link && !planned.is_firm;
            is_spared |= ends;
            ends
        });
        if let (true, Some((chain, block, bits))) = (is_spared, Piece::of(item).place()) {
            self.spare(chain, block, bits);
        }
        // The certificate of a chain is also an answer to a request for the sender's certificate.
        if let Item::Certificate(_) = item {
            self.answers.drop_if(|planned| {
                planned.links == link && matches!(planned.piece, Piece::ChainCertificate(_))
            });
        }
    }

    /// Records requested leaves that this node did not send because other nodes sent them.
    fn spare(&mut self, chain: ChainRef, block: u32, bits: u64) {
        let same = |spared: &&mut Spared| (spared.chain, spared.block) == (chain, block);
        if let Some(spared) = self.spared.iter_mut().flatten().find(same) {
            spared.bits |= bits;
            return;
        }
        let place = self.spared_next % self.spared.len();
        self.spared_next = place + 1;
        if let Some(place) = self.spared.get_mut(place) {
            *place = Some(Spared { chain, block, bits });
        }
    }

    /// Returns whether this node withheld a part of the piece when it was last requested, and
    /// clears that record.
    pub(super) fn was_spared(&mut self, piece: Piece) -> bool {
        let Some((chain, block, bits)) = piece.place() else { return false };
        let found = self.spared.iter_mut().find(|place| {
            place.is_some_and(|spared| {
                (spared.chain, spared.block) == (chain, block) && spared.bits & bits != 0
            })
        });
        found.is_some_and(|place| {
            if let Some(spared) = place {
                spared.bits &= !bits;
            }
            place.take_if(|spared| spared.bits == 0);
            true
        })
    }
}
