//! BPS12, sanitizable signatures with public accountability (Brzuska, Pöhls and Samelin, EuroPKI 2012;
//! D5.3, section 2.3.3.1). A message is a list of blocks. The signer names a sanitiser, and the blocks
//! that the sanitiser may replace by any other content. Everyone sees who signed the current content.
//!
//! `SIG` is an ordinary signature, and `ADM` the number of blocks, the indices of the admissible
//! blocks and the sanitiser's key:
//!
//! ```text
//! s_FIX  = SIG(signer,              0, fixed blocks with their indices, ADM)
//! s_FULL = SIG(signer or sanitiser, 1, all blocks, ADM, the signer's key)
//! ```
//!
//! Choices that D5.3 does not state: each value of a signed text follows its length, so that no two
//! lists of values have the same text. The two keys must differ, and a message whose `s_FULL`
//! verifies under both keys is refused, so that [`judge`] has one answer.
//!
//! What was replaced is hidden. That the sanitiser signed is not hidden, and two versions of one
//! message have the same `s_FIX`, which links them.

use std::collections::{BTreeMap, BTreeSet};

use moteseal_core::named_errors;
use moteseal_core::signature::SignError;

use super::encoding::{put, put_number};
use super::signing::{SigningKey, VerifyingKey};

named_errors! {
    /// Why a message is not signed, not sanitised or not accepted.
    Refused {
        /// The keys of the signer and of the sanitiser are equal.
        SameKey => "the signer and the sanitiser have the same key; use two keys",
        /// There is no block with this index.
        NoSuchBlock => "the message has no block with this index",
        /// The signer does not allow that this block is replaced.
        NotAdmissible => "the signer does not allow that this block is replaced",
        /// The key is not the one that the signer named as the sanitiser's.
        NotSanitiser => "the key is not the one that the signer named as the sanitiser's",
        /// The number of blocks is not the signed one.
        BlockCount => "the message has not the signed number of blocks",
        /// The signature of the fixed blocks is not valid.
        Fixed => "the signature of the fixed blocks is not valid",
        /// The signature of all blocks is valid under neither key.
        Full => "the signature of all blocks is valid under neither key",
        /// The signature of all blocks is valid under both keys.
        BothKeys => "the signature of all blocks is valid under both keys",
        /// The signer failed.
        Signer(error: SignError) => from,
    }
}

/// Who is accountable for the content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The signer: the content is the original one.
    Signer,
    /// The sanitiser, even if it replaced a block by the same content.
    Sanitiser,
}

/// What the sanitiser may do: `ADM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy<P> {
    /// The number of blocks.
    pub blocks: usize,
    /// The indices of the blocks that may be replaced, from 0.
    pub admissible: BTreeSet<usize>,
    /// The sanitiser's key.
    pub sanitiser: P,
}

impl<P: VerifyingKey> Policy<P> {
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.blocks);
        put_number(&mut out, self.admissible.len());
        for index in &self.admissible {
            put_number(&mut out, *index);
        }
        put(&mut out, &self.sanitiser.encoded());
        out
    }
}

/// A signed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed<P> {
    /// The blocks.
    pub blocks: Vec<Vec<u8>>,
    /// What the sanitiser may do.
    pub policy: Policy<P>,
    /// `s_FIX`.
    pub fixed: Vec<u8>,
    /// `s_FULL`.
    pub full: Vec<u8>,
}

impl<P: VerifyingKey> Signed<P> {
    /// Returns what `s_FIX` signs.
    fn fixed_text(&self) -> Vec<u8> {
        let mut out = vec![0];
        put_number(&mut out, self.blocks.len().saturating_sub(self.policy.admissible.len()));
        let fixed = (0..).zip(&self.blocks).filter(|(at, _)| !self.policy.admissible.contains(at));
        for (index, block) in fixed {
            put_number(&mut out, index);
            put(&mut out, block);
        }
        put(&mut out, &self.policy.encoded());
        out
    }

    /// Returns what `s_FULL` signs.
    fn full_text(&self, signer: &P) -> Vec<u8> {
        let mut out = vec![1];
        put_number(&mut out, self.blocks.len());
        for block in &self.blocks {
            put(&mut out, block);
        }
        put(&mut out, &self.policy.encoded());
        put(&mut out, &signer.encoded());
        out
    }

    /// Returns the bytes of a compact encoding: each block after its length, the policy and both
    /// signatures.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for block in &self.blocks {
            put(&mut out, block);
        }
        out.extend(self.policy.encoded());
        out.extend([&*self.fixed, &self.full].concat());
        out
    }
}

/// Signs a message whose admissible blocks the sanitiser may replace. Takes two signatures.
///
/// # Errors
/// `SameKey`, `NoSuchBlock` for an admissible index without a block, `Signer`.
pub fn sign<K: SigningKey>(
    key: &K,
    sanitiser: &K::Public,
    blocks: &[&[u8]],
    admissible: &[usize],
) -> Result<Signed<K::Public>, Refused> {
    let public = key.public();
    if public == *sanitiser {
        return Err(Refused::SameKey);
    }
    if admissible.iter().any(|index| *index >= blocks.len()) {
        return Err(Refused::NoSuchBlock);
    }
    let policy = Policy {
        blocks: blocks.len(),
        admissible: admissible.iter().copied().collect(),
        sanitiser: sanitiser.clone(),
    };
    let blocks = blocks.iter().map(|block| block.to_vec()).collect();
    let mut signed = Signed { blocks, policy, fixed: Vec::new(), full: Vec::new() };
    signed.fixed = key.sign(&signed.fixed_text())?;
    signed.full = key.sign(&signed.full_text(&public))?;
    Ok(signed)
}

/// Replaces blocks with the sanitiser's key. Takes one signature and one verification.
///
/// # Errors
/// `NotSanitiser`, `NotAdmissible`, `NoSuchBlock`, `Fixed`, `BlockCount`, `Signer`.
pub fn sanitise<K: SigningKey>(
    key: &K,
    signer: &K::Public,
    signed: &Signed<K::Public>,
    changes: &BTreeMap<usize, Vec<u8>>,
) -> Result<Signed<K::Public>, Refused> {
    if key.public() != signed.policy.sanitiser {
        return Err(Refused::NotSanitiser);
    }
    check_fixed(signer, signed)?;
    let mut sanitised = signed.clone();
    for (index, content) in changes {
        let block = sanitised.blocks.get_mut(*index).ok_or(Refused::NoSuchBlock)?;
        if !signed.policy.admissible.contains(index) {
            return Err(Refused::NotAdmissible);
        }
        block.clone_from(content);
    }
    sanitised.full = key.sign(&sanitised.full_text(signer))?;
    Ok(sanitised)
}

/// Verifies a message, and returns who is accountable for its content. Needs only public keys. Takes
/// three verifications.
///
/// # Errors
/// [`Refused`].
pub fn judge<P: VerifyingKey>(
    signer: &P,
    sanitiser: &P,
    signed: &Signed<P>,
) -> Result<Party, Refused> {
    if *sanitiser != signed.policy.sanitiser {
        return Err(Refused::NotSanitiser);
    }
    check_fixed(signer, signed)?;
    let text = signed.full_text(signer);
    match [signer, sanitiser].map(|key| key.verifies(&text, &signed.full)) {
        [true, false] => Ok(Party::Signer),
        [false, true] => Ok(Party::Sanitiser),
        [false, false] => Err(Refused::Full),
        [true, true] => Err(Refused::BothKeys),
    }
}

/// Verifies everything but `s_FULL`.
fn check_fixed<P: VerifyingKey>(signer: &P, signed: &Signed<P>) -> Result<(), Refused> {
    let policy = &signed.policy;
    if *signer == policy.sanitiser {
        return Err(Refused::SameKey);
    }
    if policy.blocks != signed.blocks.len() {
        return Err(Refused::BlockCount);
    }
    if policy.admissible.iter().any(|index| *index >= policy.blocks) {
        return Err(Refused::NoSuchBlock);
    }
    if !signer.verifies(&signed.fixed_text(), &signed.fixed) {
        return Err(Refused::Fixed);
    }
    Ok(())
}
