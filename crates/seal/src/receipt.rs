//! An event of a tree with its inclusion path, as a COSE Receipt (RFC 9942, section 5.2;
//! spec/objects.md, section 8). Software that implements this RFC can verify the event with the
//! device's public key alone.

use crate::seal::{MAX_MESSAGE, Seal, protected};
use moteseal_core::cbor::{BufferTooSmall, Writer, head};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::Scheme;
use moteseal_core::record::Sequence;

const SIGN1_TAG: u64 = 18;
const LABEL_VDP: i64 = 396;
const LABEL_INCLUSION: i64 = -1;

named_errors! {
    /// Why a receipt cannot be written.
    ReceiptError {
        /// The seal's scheme is the star, not the tree.
        SchemeMismatch => "receipts exist only for events that were sealed as a tree",
        /// The seal commits to column groups separately.
        ColumnGroups => "a device with column groups has no receipts; get a proof instead",
        /// The tree has one event, whose path is empty. RFC 9942 has no encoding for that.
        PathEmpty => "a tree of one event has no path; the seal itself proves the event",
        /// The buffer is too small.
        BufferTooSmall => "the receipt does not fit the buffer",
    }
}

impl From<BufferTooSmall> for ReceiptError {
    fn from(_: BufferTooSmall) -> Self {
        Self::BufferTooSmall
    }
}

impl<S> Seal<S> {
    /// Writes the receipt of event `seq`. `path` is the concatenation of the sibling digests from
    /// the leaf up. The header and the signature are those of the seal. The payload, which is the
    /// root, is detached: the verifier computes it. This function does not check that the path
    /// leads to the root.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub fn encode_receipt(
        &self,
        out: &mut Writer<'_>,
        signature: &[u8],
        seq: Sequence,
        path: &[Digest],
    ) -> Result<(), ReceiptError> {
        if self.statement().scheme != Scheme::Tree {
            return Err(ReceiptError::SchemeMismatch);
        }
        if !self.statement().groups.is_empty() {
            return Err(ReceiptError::ColumnGroups);
        }
        if path.is_empty() {
            return Err(ReceiptError::PathEmpty);
        }
        let mut buffer = [0; MAX_MESSAGE];
        let protected = protected(self.statement(), self.algorithm(), &mut buffer)?;
        let (n, siblings) = (self.statement().counters.total(), path.len() as u64);
        let length = 1 + head(0, n).1 + head(0, seq.0).1 + head(4, siblings).1 + path.len() * 34;
        out.tag(SIGN1_TAG)?.array(4)?.bytes(protected)?;
        out.map(1)?.int(LABEL_VDP)?.map(1)?.int(LABEL_INCLUSION)?.array(1)?;
        let (proof, width) = head(2, length as u64);
        out.raw(&proof[..width])?.array(3)?.uint(n)?.uint(seq.0)?.array(siblings)?;
        for digest in path {
            out.bytes(&digest.0)?;
        }
        out.null()?.bytes(signature)?;
        Ok(())
    }
}
