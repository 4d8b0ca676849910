//! The genuine data of an experiment. Experiments use it to check that nodes send, store and
//! deliver no other data.

use moteseal_broadcast::ChainRef;
use moteseal_broadcast::recovery::Item;
use moteseal_broadcast::wire::{BroadcastFrame, MAX_BROADCAST_FRAME};
use moteseal_core::cbor::Writer;

use crate::radio::SignedChain;

/// The data that senders and base stations have sent.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// The senders' chains, with the certificates.
    pub chains: Vec<SignedChain>,
}

impl Truth {
    fn chain(&self, chain: ChainRef) -> Option<&SignedChain> {
        self.chains.iter().find(|signed| signed.reference() == chain)
    }

    fn leaf(&self, chain: ChainRef, block: u32, index: u8) -> Option<&[u8]> {
        let leaf = self.chain(chain)?.leaves.iter().find(|(b, i, _)| (*b, *i) == (block, index));
        leaf.map(|(.., bytes)| &bytes[..])
    }

    /// Returns whether a node's frame is genuine: it contains genuine data, or it is a correct
    /// advertisement or request. An advertisement of messages after the end of a chain is not
    /// correct.
    #[must_use]
    pub fn is_genuine(&self, frame: &[u8]) -> bool {
        match BroadcastFrame::decode(frame) {
            Ok(BroadcastFrame::Certificate(bytes)) => {
                self.chains.iter().any(|signed| signed.certificate == bytes)
            }
            Ok(BroadcastFrame::Head(bytes)) => {
                self.chains.iter().any(|signed| signed.head == bytes)
            }
            Ok(BroadcastFrame::Fragment { chain, block, index, leaf }) => {
                self.leaf(chain, block, index) == Some(leaf)
            }
            Ok(BroadcastFrame::Repair { chain, block, mask, lengths, bytes }) => {
                self.is_sum(chain, block, mask, usize::from(lengths), bytes)
            }
            Ok(BroadcastFrame::Holds { chain, block, index }) => {
                let end = self.chain(chain).and_then(|signed| signed.leaves.last());
                end.is_some_and(|(last, at, _)| (block, index) <= (*last, *at))
            }
            Ok(
                BroadcastFrame::Wanted { .. }
                | BroadcastFrame::ReceiverWanted { .. }
                | BroadcastFrame::HeadWanted { .. },
            ) => true,
            Ok(BroadcastFrame::Single { head, leaf }) => {
                let is_it = |signed: &&SignedChain| signed.head == head && signed.leaves.len() == 1;
                self.chains
                    .iter()
                    .filter(is_it)
                    .any(|signed| signed.leaves.iter().all(|(.., bytes)| bytes == leaf))
            }
            // No node of these experiments sends receipts, or heads to one receiver.
            Ok(
                BroadcastFrame::Revocation(_)
                | BroadcastFrame::Receipts { .. }
                | BroadcastFrame::ReceiptsWanted { .. }
                | BroadcastFrame::HeadFor { .. },
            )
            | Err(_) => false,
        }
    }

    /// Returns whether `bytes` are the exclusive-or of the leaves that `mask` selects, and
    /// `lengths` is the exclusive-or of the lengths of these leaves.
    fn is_sum(&self, chain: ChainRef, block: u32, mask: u64, lengths: usize, bytes: &[u8]) -> bool {
        let members = (0..64_u8).filter(|index| mask >> index & 1 == 1);
        let Some(leaves) =
            members.map(|index| self.leaf(chain, block, index)).collect::<Option<Vec<_>>>()
        else {
            return false;
        };
        let mut sum = vec![0; leaves.iter().map(|leaf| leaf.len()).max().unwrap_or(0)];
        for leaf in &leaves {
            sum.iter_mut().zip(*leaf).for_each(|(sum, byte)| *sum ^= byte);
        }
        sum == bytes && leaves.iter().fold(0, |all, leaf| all ^ leaf.len()) == lengths
    }

    /// Returns whether an item in a node's store is genuine. A revocation is not genuine, because
    /// no base station of an experiment revokes a certificate.
    #[must_use]
    pub fn is_kept_rightly(&self, item: &Item, bytes: &[u8]) -> bool {
        match item {
            Item::Certificate(..) | Item::ChainCertificate(_) => {
                self.chains.iter().any(|signed| signed.certificate == bytes)
            }
            Item::Head(chain) => self.chain(*chain).is_some_and(|signed| signed.head == bytes),
            Item::Leaf { chain, block, index } => self.leaf(*chain, *block, *index) == Some(bytes),
            Item::Revocation(_) => false,
        }
    }

    /// Returns the messages of the chain with this index, in order.
    #[must_use]
    pub fn messages(&self, place: usize) -> Vec<Vec<u8>> {
        let Some(signed) = self.chains.get(place) else { return Vec::new() };
        let message = |(block, index, leaf): &(u32, u8, Vec<u8>)| {
            let trailer = if index + 1 == signed.outline.in_block(*block) {
                signed.outline.trailer(*block)
            } else {
                0
            };
            leaf.get(trailer..).unwrap_or_default().to_vec()
        };
        signed.leaves.iter().map(message).collect()
    }

    /// Returns all frames of the chain with this index as the sender first sends them: certificate,
    /// head, fragments.
    #[must_use]
    pub fn frames(&self, place: usize) -> Vec<Vec<u8>> {
        let Some(signed) = self.chains.get(place) else { return Vec::new() };
        let chain = signed.reference();
        let statements =
            [BroadcastFrame::Certificate(&signed.certificate), BroadcastFrame::Head(&signed.head)];
        let leaves = signed.leaves.iter();
        let fragments = leaves.map(|(block, index, leaf)| BroadcastFrame::Fragment {
            chain,
            block: *block,
            index: *index,
            leaf,
        });
        statements.into_iter().chain(fragments).filter_map(|frame| encoded(&frame)).collect()
    }
}

fn encoded(frame: &BroadcastFrame<'_>) -> Option<Vec<u8>> {
    let mut buffer = vec![0; MAX_BROADCAST_FRAME];
    let mut out = Writer::new(&mut buffer);
    frame.encode(&mut out).ok()?;
    Some(out.finish().to_vec())
}

#[cfg(test)]
mod tests {
    use moteseal_core::signature::Algorithm;

    use super::*;
    use crate::broadcast::chains::speech;
    use crate::chance::Seed;
    use crate::radio::Authority;

    #[test]
    fn a_frame_with_any_bit_changed_is_not_genuine() {
        let authority = Authority::new(Algorithm::Ed25519, 1).expect("the suite is there");
        let truth = Truth {
            chains: vec![speech(&authority, 1, 7, 3, Seed::default()).expect("such a chain")],
        };
        assert_eq!(truth.messages(0).iter().map(Vec::len).collect::<Vec<_>>(), [20; 7]);
        for frame in truth.frames(0) {
            assert!(truth.is_genuine(&frame));
            for at in 0..frame.len() {
                let mut changed = frame.clone();
                changed[at] ^= 1;
                let is_hint = matches!(
                    BroadcastFrame::decode(&changed),
                    Ok(BroadcastFrame::Wanted { .. } | BroadcastFrame::Holds { .. })
                );
                assert!(is_hint || !truth.is_genuine(&changed), "byte {at}");
            }
        }
    }
}
