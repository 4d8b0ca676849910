//! Generates the frames of each assault from recorded frames.

use moteseal_broadcast::wire::BroadcastFrame;
use moteseal_broadcast::{ChainNumber, ChainRef, Claim, Head, KeyId, MAX_HEAD, SenderCertificate};
use moteseal_core::Digest;
use moteseal_core::cbor::Writer;
use moteseal_core::cose::{Protected, Sign1, Typ, sig_structure};
use moteseal_core::signature::{Algorithm, SecretKey, Signer};

use super::{Assault, Broadcaster, MAX_FORGED, RECENT};

/// The number of SHA-256 in the COSE registry.
const SHA_256: i64 = -16;

impl Broadcaster {
    /// Returns a frame of this assault; `None` if the assault needs frames that were not recorded
    /// yet.
    pub(super) fn frame(&mut self, assault: Assault) -> Option<Vec<u8>> {
        match assault {
            Assault::ForgeHeads => self.forged_head(),
            Assault::AlterHeads => self.altered_head(),
            Assault::ForgeLeaves => self.forged_leaf(),
            Assault::AlterLeaves => self.altered_leaf(),
            Assault::MoveLeaves => self.moved_leaf(),
            Assault::ReplayOld => {
                let frame = self.recorded.get(self.replayed % self.recorded.len().max(1)).cloned();
                self.replayed += 1;
                frame
            }
            Assault::ReplayPresent => {
                let at = self.chance.index(self.recent.len());
                self.recent.get(at).cloned()
            }
            Assault::Ask => self.request(),
            Assault::Advertise => self.advertisement(),
            Assault::ForgeRepairs => self.forged_repair(),
            Assault::ForgeCertificates => self.forged_certificate(),
            Assault::ForgeRevocations => self.forged_revocation(),
            Assault::ForgeSingles => self.forged_single(),
            Assault::Malform => self.malformed(),
        }
    }

    /// Calls `find` for the received frames, starting with the newest, until it returns a result.
    fn newest<T>(&self, find: impl Fn(&BroadcastFrame<'_>) -> Option<T>) -> Option<T> {
        self.recent.iter().rev().find_map(|frame| find(&BroadcastFrame::decode(frame).ok()?))
    }

    /// Returns the decoded and the encoded head of the current chain.
    fn current(&self) -> Option<(Claim, Vec<u8>)> {
        self.newest(|frame| match frame {
            BroadcastFrame::Head(head) | BroadcastFrame::Single { head, .. } => {
                Some((Head::peek(head).ok()?, head.to_vec()))
            }
            _ => None,
        })
    }

    /// Returns one of the last few recorded fragments.
    fn recent_fragment(&mut self) -> Option<(ChainRef, u32, u8, Vec<u8>)> {
        let fragments: Vec<_> = self
            .recent
            .iter()
            .rev()
            .filter_map(|frame| match BroadcastFrame::decode(frame).ok()? {
                BroadcastFrame::Fragment { chain, block, index, leaf } => {
                    Some((chain, block, index, leaf.to_vec()))
                }
                _ => None,
            })
            .take(RECENT)
            .collect();
        self.chance.pick(&fragments).cloned()
    }

    /// Returns the reference of the current chain, and a block near the current one.
    fn place(&mut self) -> Option<(ChainRef, u32)> {
        let (chain, block, ..) = self.recent_fragment()?;
        let ahead = [0, 0, 0, 1, 1, 2, 1000][self.chance.index(7)];
        Some((chain, block.saturating_add(ahead)))
    }

    /// Returns a chain number: either one that a receiver may expect next, or one so high that the
    /// sender could send no further chain if it were accepted.
    fn number(&mut self, present: ChainNumber) -> ChainNumber {
        let ahead = self.chance.below(1000);
        ChainNumber(match self.chance.below(4) {
            0 => present.0,
            1 => present.0.saturating_add(1),
            2 => present.0.saturating_add(ahead),
            _ => u64::MAX - ahead,
        })
    }

    fn forged_head(&mut self) -> Option<Vec<u8>> {
        let (claim, _) = self.current()?;
        let head = self.head_of(&claim)?;
        encoded(&BroadcastFrame::Head(&head))
    }

    /// Returns a head that names the sender but is signed with a key of the attacker, and has a new
    /// digest.
    fn head_of(&mut self, claim: &Claim) -> Option<Vec<u8>> {
        let number = self.number(claim.id().number);
        let (messages, per_block) = (1 + self.chance.below(100), 1 + self.chance.below(10));
        let first = self.chance.bytes();
        let leaves = per_block.min(messages);
        let tags =
            self.chance.filled(usize::try_from(if leaves > 1 { 8 * leaves } else { 0 }).ok()?);
        head(claim, number, (messages, per_block), &first, &tags, &self.key)
    }

    fn altered_head(&mut self) -> Option<Vec<u8>> {
        let (_, mut head) = self.current()?;
        // The digest and the signature are in the second half.
        let half = head.len() / 2;
        let at = half + self.chance.index(head.len() - half);
        let bit = self.chance.below(8);
        *head.get_mut(at)? ^= 1 << bit;
        encoded(&BroadcastFrame::Head(&head))
    }

    fn forged_leaf(&mut self) -> Option<Vec<u8>> {
        let (chain, block) = self.place()?;
        let (_, _, index, genuine) = self.recent_fragment()?;
        let longer = self.chance.index(3) * 100;
        let leaf = self.chance.filled(genuine.len() + longer);
        let index = if self.chance.below(4) == 0 {
            u8::try_from(self.chance.below(256)).unwrap_or(0)
        } else {
            index
        };
        encoded(&BroadcastFrame::Fragment { chain, block, index, leaf: &leaf })
    }

    fn altered_leaf(&mut self) -> Option<Vec<u8>> {
        let (chain, block, index, mut leaf) = self.recent_fragment()?;
        let at = self.chance.index(leaf.len());
        let bit = self.chance.below(8);
        *leaf.get_mut(at)? ^= 1 << bit;
        encoded(&BroadcastFrame::Fragment { chain, block, index, leaf: &leaf })
    }

    fn moved_leaf(&mut self) -> Option<Vec<u8>> {
        let (chain, block, index, leaf) = self.recent_fragment()?;
        let (block, index) = if self.chance.below(2) == 0 {
            (block.saturating_add(1), index)
        } else {
            (block, index.wrapping_add(1) % 64)
        };
        encoded(&BroadcastFrame::Fragment { chain, block, index, leaf: &leaf })
    }

    fn request(&mut self) -> Option<Vec<u8>> {
        let (chain, block) = self.place()?;
        let earlier = u32::try_from(self.chance.below(u64::from(block) + 1)).unwrap_or(0);
        let block = if self.chance.below(2) == 0 { block } else { earlier };
        encoded(&BroadcastFrame::Wanted {
            chain,
            block,
            wanted: if block == 0 { 3 } else { u64::MAX },
        })
    }

    fn advertisement(&mut self) -> Option<Vec<u8>> {
        let (chain, block) = self.place()?;
        let index = u8::try_from(self.chance.below(64)).unwrap_or(0);
        let block = if self.chance.below(4) == 0 { u32::MAX } else { block };
        encoded(&BroadcastFrame::Holds { chain, block, index })
    }

    fn forged_repair(&mut self) -> Option<Vec<u8>> {
        let (chain, block) = self.place()?;
        let (_, _, index, genuine) = self.recent_fragment()?;
        let mask = self.chance.word() | 1 << (index % 64);
        let bytes = self.chance.filled(genuine.len());
        let lengths = u16::try_from(self.chance.below(64)).unwrap_or(0);
        encoded(&BroadcastFrame::Repair { chain, block, mask, lengths, bytes: &bytes })
    }

    /// Returns the id of the network's base station if a received certificate contains it;
    /// otherwise the id of the attacker's key.
    fn base(&self) -> KeyId {
        let named = self.newest(|frame| match frame {
            BroadcastFrame::Certificate(certificate) => {
                Some(SenderCertificate::peek(certificate).ok()?.base)
            }
            _ => None,
        });
        named.unwrap_or_else(|| KeyId::of(&self.key.public()))
    }

    fn forged_certificate(&mut self) -> Option<Vec<u8>> {
        let genuine = self.newest(|frame| match frame {
            BroadcastFrame::Certificate(certificate) => Some(certificate.to_vec()),
            _ => None,
        });
        if let (Some(mut certificate), 0) = (genuine, self.chance.below(2)) {
            let at = self.chance.index(certificate.len());
            *certificate.get_mut(at)? ^= 1;
            return encoded(&BroadcastFrame::Certificate(&certificate));
        }
        let (id, base, serial) = (self.current()?.0.id(), self.base(), self.chance.word());
        let mut buffer = [0; MAX_HEAD];
        let mut payload = Writer::new(&mut buffer);
        payload
            .array(9)
            .ok()?
            .uint(1u8)
            .ok()?
            .bytes(&id.network.0)
            .ok()?
            .bytes(&base.0)
            .ok()?
            .uint(serial)
            .ok()?
            .bytes(&id.sender.0)
            .ok()?;
        payload
            .int(Algorithm::Ed25519.cose())
            .ok()?
            .bytes(&self.key.public().to_bytes())
            .ok()?
            .uint(0u8)
            .ok()?
            .uint(u64::MAX)
            .ok()?;
        let certificate = signed(Typ::SenderCertificate, payload.finish(), &self.key)?;
        encoded(&BroadcastFrame::Certificate(&certificate))
    }

    fn forged_revocation(&mut self) -> Option<Vec<u8>> {
        let (id, base) = (self.current()?.0.id(), self.base());
        let least = u64::MAX - self.chance.below(1 << 32);
        let mut buffer = [0; 64];
        let mut payload = Writer::new(&mut buffer);
        payload
            .array(5)
            .ok()?
            .uint(1u8)
            .ok()?
            .bytes(&id.network.0)
            .ok()?
            .bytes(&base.0)
            .ok()?
            .uint(least)
            .ok()?
            .array(0)
            .ok()?;
        let revocation = signed(Typ::Revocation, payload.finish(), &self.key)?;
        encoded(&BroadcastFrame::Revocation(&revocation))
    }

    fn forged_single(&mut self) -> Option<Vec<u8>> {
        let (claim, genuine) = self.current()?;
        let leaf = self.chance.filled(20);
        // Either the genuine head with another message, or a forged head that matches its message,
        // in which only the signature is wrong.
        let head = if self.chance.below(2) == 0 {
            genuine
        } else {
            let number = self.number(claim.id().number);
            let first = Digest::of(&[&block_prefix(&claim, number), &leaf]).0;
            head(&claim, number, (1, 1), &first, &[], &self.key)?
        };
        encoded(&BroadcastFrame::Single { head: &head, leaf: &leaf })
    }

    fn malformed(&mut self) -> Option<Vec<u8>> {
        let at = self.chance.index(self.recent.len());
        let mut frame = self.recent.get(at).cloned().unwrap_or_default();
        match self.chance.below(5) {
            0 => frame.truncate(self.chance.index(frame.len())),
            1 => frame.push(0),
            2 => frame = self.chance.filled(1 + at % 300),
            3 => {
                // The first bytes of a frame contain the heads of its CBOR items.
                let at = self.chance.index(frame.len().min(24));
                let bit = self.chance.below(8);
                *frame.get_mut(at)? ^= 1 << bit;
            }
            _ => {
                // This array claims to have more elements than fit in any memory.
                frame = vec![0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
                frame.extend(self.chance.bytes());
            }
        }
        Some(frame)
    }
}

/// Returns the prefix of a block's hash (spec/broadcast.md, section 2).
fn block_prefix(claim: &Claim, number: ChainNumber) -> [u8; 64] {
    let id = claim.id();
    let parts: [&[u8]; 6] = [
        b"moteseal/cast/1\0\0\0\0\0\0\0\0\0",
        &id.network.0,
        &id.sender.0,
        &claim.key().0,
        &number.0.to_be_bytes(),
        &[1],
    ];
    let mut prefix = [0; 64];
    prefix.iter_mut().zip(parts.into_iter().flatten()).for_each(|(place, byte)| *place = *byte);
    prefix
}

/// Returns a head with this number of messages and this block size, signed with a key of the
/// attacker.
fn head(
    claim: &Claim,
    number: ChainNumber,
    (messages, per_block): (u64, u64),
    first: &[u8; 32],
    tags: &[u8],
    key: &SecretKey,
) -> Option<Vec<u8>> {
    let id = claim.id();
    let mut buffer = [0; MAX_HEAD];
    let mut payload = Writer::new(&mut buffer);
    payload.array(16).ok()?.uint(1u8).ok()?.bytes(&id.network.0).ok()?.bytes(&id.sender.0).ok()?;
    payload.bytes(&claim.key().0).ok()?.uint(number.0).ok()?;
    payload
        .uint(messages)
        .ok()?
        .uint(per_block)
        .ok()?
        .uint(20u8)
        .ok()?
        .uint(claim.outline().kind_number())
        .ok()?;
    let window = claim.window();
    payload.text("").ok()?.uint(window.not_before).ok()?.uint(window.not_after).ok()?;
    payload.uint(0u8).ok()?;
    payload.int(SHA_256).ok()?.bytes(first).ok()?.bytes(tags).ok()?;
    signed(Typ::Chain, payload.finish(), key)
}

fn encoded(frame: &BroadcastFrame<'_>) -> Option<Vec<u8>> {
    let mut buffer = vec![0; MAX_FORGED];
    let mut out = Writer::new(&mut buffer);
    frame.encode(&mut out).ok()?;
    Some(out.finish().to_vec())
}

/// Returns an object that is signed with the attacker's key and otherwise valid.
fn signed(typ: Typ, payload: &[u8], key: &SecretKey) -> Option<Vec<u8>> {
    let mut header = [0; 64];
    let mut header = Writer::new(&mut header);
    Protected::new(key.algorithm(), typ).encode(&mut header).ok()?;
    let header = header.finish();
    let mut buffer = [0; 2 * MAX_HEAD];
    let signature = key.signature(sig_structure(&mut buffer, header, payload).ok()?).ok()?;
    let mut out = Writer::new(&mut buffer);
    Sign1::encode(&mut out, header, payload, &signature).ok()?;
    Some(out.finish().to_vec())
}
