//! What the encodings of grants and of owners' secrets share: buffers that are erased, and lists of
//! nodes.

use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::confidential::Node;
use moteseal_core::digest::Digest;
use zeroize::Zeroizing;

/// An upper bound on the encoded length of a node: heads, depth, prefix and key.
pub(crate) const NODE: usize = 1 + 2 + 5 + 34;
/// The largest number of nodes of a column: `2 * 32` open any range of epochs.
pub(crate) const MAX_NODES: usize = 64;

/// Encodes into a buffer of at most `bound` bytes. The buffer is erased when it is dropped, and is
/// never moved while it is written.
///
/// # Errors
/// [`BufferTooSmall`] if `bound` is too low.
pub(crate) fn encode(
    bound: usize,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), BufferTooSmall>,
) -> Result<Zeroizing<Vec<u8>>, BufferTooSmall> {
    let mut buffer = Zeroizing::new(vec![0; bound]);
    let mut out = Writer::new(&mut buffer);
    write(&mut out)?;
    let length = out.position();
    buffer.truncate(length);
    Ok(buffer)
}

/// Writes `[[depth, prefix, key], ...]`.
pub(crate) fn write_nodes(out: &mut Writer<'_>, nodes: &[Node]) -> Result<(), BufferTooSmall> {
    out.array(nodes.len() as u64)?;
    for node in nodes {
        out.array(3)?.uint(node.depth())?.uint(node.prefix())?.bytes(node.expose())?;
    }
    Ok(())
}

/// Reads `[[depth, prefix, key], ...]`: at most [`MAX_NODES`] nodes, whose epochs ascend and do not
/// overlap.
pub(crate) fn read_nodes(reader: &mut Reader<'_>) -> Result<Vec<Node>, DecodeError> {
    let count = usize::try_from(reader.array_any()?).unwrap_or(usize::MAX);
    if count > MAX_NODES {
        return Err(DecodeError::FieldOutOfRange);
    }
    let mut nodes = Vec::with_capacity(count);
    let mut free = 0;
    for _ in 0..count {
        reader.array(3)?;
        let (depth, prefix) = (reader.uint()?, reader.uint()?);
        let key = Zeroizing::new(reader.fixed()?);
        let node = Node::new(depth, prefix, *key).map_err(|_| DecodeError::FieldOutOfRange)?;
        let offsets = node.offsets();
        if u64::from(*offsets.start()) < free {
            return Err(DecodeError::FieldOutOfRange);
        }
        free = u64::from(*offsets.end()) + 1;
        nodes.push(node);
    }
    Ok(nodes)
}

/// Checks a name or a purpose: at most `longest` bytes of text without control characters.
pub(crate) fn is_plain(text: &str, longest: usize) -> bool {
    text.len() <= longest && !text.chars().any(char::is_control)
}

/// Returns the check value of an owner's file: a digest, which detects damage.
pub(crate) fn checksum(content: &[u8]) -> [u8; 32] {
    Digest::of(&[b"moteseal/1/owner-file\0", content]).0
}
