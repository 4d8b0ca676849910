//! The transfer of a representation over CoAP in blocks of 64 bytes.

use moteseal_lab::rerum::Transfer;

/// The size exponent of Block2 for blocks of 64 bytes (RFC 7959, section 2.2).
const SIZE_EXPONENT: u32 = 2;

/// Returns the value of the option Block2.
const fn block2(number: u32, more: bool) -> u32 {
    number << 4 | (more as u32) << 3 | SIZE_EXPONENT
}

/// Transfers a representation block by block, as a client and a server of RFC 7959 do, and counts
/// the blocks and the messages: a request and a response for each block.
///
/// The client asks for the next block while the server's option says that there are more.
pub(super) fn transfer(representation: &[u8]) -> Transfer {
    let size = 1 << (SIZE_EXPONENT + 4);
    let mut received = Vec::new();
    let mut transfer = Transfer { blocks: 0, messages: 0 };
    let mut request = block2(0, false);
    loop {
        let number = request >> 4;
        let rest = &representation[(number as usize * size).min(representation.len())..];
        let block = &rest[..rest.len().min(size)];
        let response = block2(number, rest.len() > size);
        received.extend_from_slice(block);
        transfer.blocks += 1;
        transfer.messages += 2;
        if response == block2(number, false) {
            break;
        }
        request = block2(number + 1, false);
    }
    debug_assert_eq!(received, representation);
    transfer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_block_that_is_full_is_not_followed_by_an_empty_one() {
        let blocks = |bytes: usize| transfer(&vec![7; bytes]).blocks;
        assert_eq!([0, 1, 63, 64, 65, 128, 129].map(blocks), [1, 1, 1, 1, 2, 2, 3]);
        assert_eq!([block2(0, false), block2(0, true), block2(6, false)], [2, 10, 98]);
    }
}
