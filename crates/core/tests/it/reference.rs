//! A reference scanner for deterministic CBOR, which uses plain recursion and needs the complete
//! input. The tests compare the resumable scanner with it.

use moteseal_core::cbor::{DecodeError, MAX_DEPTH};

/// Returns the length of the item at the start of `bytes`.
pub(crate) fn item_length(bytes: &[u8]) -> Result<usize, DecodeError> {
    item(bytes, 0, 0)
}

fn item(bytes: &[u8], at: usize, depth: usize) -> Result<usize, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::NonCanonical);
    }
    let (major, argument, at) = head(bytes, at)?;
    match major {
        0 | 1 => Ok(at),
        2 => string(bytes, at, argument),
        3 => {
            let end = string(bytes, at, argument)?;
            std::str::from_utf8(&bytes[at..end]).map(|_| end).map_err(|_| DecodeError::NonCanonical)
        }
        4 => (0..argument).try_fold(at, |at, _| item(bytes, at, depth + 1)),
        5 => {
            let (mut at, mut last) = (at, None);
            for _ in 0..argument {
                let end = item(bytes, at, depth + 1)?;
                let key = &bytes[at..end];
                if last.is_some_and(|last| last >= key) {
                    return Err(DecodeError::NonCanonical);
                }
                last = Some(key);
                at = item(bytes, end, depth + 1)?;
            }
            Ok(at)
        }
        6 => item(bytes, at, depth + 1),
        _ if (20..=22).contains(&argument) => Ok(at),
        _ => Err(DecodeError::NonCanonical),
    }
}

fn string(bytes: &[u8], at: usize, length: u64) -> Result<usize, DecodeError> {
    let end = usize::try_from(length)
        .ok()
        .and_then(|length| at.checked_add(length))
        .ok_or(DecodeError::Truncated)?;
    if end <= bytes.len() { Ok(end) } else { Err(DecodeError::Truncated) }
}

fn head(bytes: &[u8], at: usize) -> Result<(u8, u64, usize), DecodeError> {
    let &first = bytes.get(at).ok_or(DecodeError::Truncated)?;
    let (major, info, at) = (first >> 5, u64::from(first & 31), at + 1);
    if info < 24 {
        return Ok((major, info, at));
    }
    if info > 27 {
        return Err(DecodeError::NonCanonical);
    }
    let width = 1 << (info - 24);
    let argument = bytes.get(at..at + width).ok_or(DecodeError::Truncated)?;
    let argument = argument.iter().fold(0, |value, &byte| value * 256 + u64::from(byte));
    let shorter = if width == 1 { argument < 24 } else { argument >> (4 * width) == 0 };
    if shorter || major == 7 {
        Err(DecodeError::NonCanonical)
    } else {
        Ok((major, argument, at + width))
    }
}
