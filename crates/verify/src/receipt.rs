//! Makes COSE Receipts of inclusion (RFC 9942) from the events of a response (spec/objects.md,
//! section 8).

use moteseal_core::cbor::Writer;
use moteseal_core::digest::Digest;
use moteseal_core::record::Sequence;
use moteseal_seal::tree::geometry;
use moteseal_seal::{Authentic, MAX_MESSAGE, ReceiptError, Seal};

/// Returns the inclusion path of event `seq` in a tree of `n` events, ordered from the leaf up,
/// given the multiproof for this event alone. The multiproof consists of the same digests, ordered
/// from left to right. Returns `None` if the number of digests is wrong.
#[must_use]
pub fn path_of(n: u64, seq: Sequence, multiproof: &[u8]) -> Option<Vec<Digest>> {
    let (digests, rest) = multiproof.as_chunks::<32>();
    let subtrees: Vec<_> = geometry::siblings(n, [seq]).collect();
    if seq.0 >= n || !rest.is_empty() || digests.len() != subtrees.len() {
        return None;
    }
    geometry::path(n, seq)
        .map(|wanted| {
            subtrees.iter().position(|subtree| *subtree == wanted).map(|at| Digest(digests[at]))
        })
        .collect()
}

/// Returns the receipt of event `seq`. `signature` is the signature of the seal, and `path` is the
/// result of [`path_of`].
///
/// # Errors
/// [`ReceiptError`].
pub fn export(
    seal: &Seal<Authentic>,
    signature: &[u8],
    seq: Sequence,
    path: &[Digest],
) -> Result<Vec<u8>, ReceiptError> {
    let mut out = vec![0; MAX_MESSAGE + signature.len() + 34 * path.len() + 64];
    let mut writer = Writer::new(&mut out);
    seal.encode_receipt(&mut writer, signature, seq, path)?;
    let length = writer.position();
    out.truncate(length);
    Ok(out)
}
