//! The encoding of the bytes that the compared schemes serve: numbers are big-endian, and events
//! have the context's framing.

use moteseal_core::digest::Digest;
use moteseal_core::record::Framing;

use crate::scheme::OpenError;

/// Writes an event: without a prefix if its size is fixed, otherwise with a length prefix.
pub(crate) fn put_event(out: &mut Vec<u8>, framing: Framing, event: &[u8]) {
    if framing == Framing::Prefixed {
        #[allow(clippy::cast_possible_truncation)]
        out.extend((event.len() as u16).to_be_bytes());
    }
    out.extend(event);
}

/// Writes a number.
pub(crate) fn put_u32(out: &mut Vec<u8>, value: usize) {
    #[allow(clippy::cast_possible_truncation)]
    out.extend((value as u32).to_be_bytes());
}

/// The bytes that have not been read yet.
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], OpenError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(OpenError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, OpenError> {
        Ok(self.take(4)?.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    }

    pub(crate) fn digest(&mut self) -> Result<Digest, OpenError> {
        let mut digest = Digest::NULL;
        digest.0.copy_from_slice(self.take(32)?);
        Ok(digest)
    }

    pub(crate) fn event(&mut self, framing: Framing) -> Result<&'a [u8], OpenError> {
        let (event, rest) = framing.split_first(self.0).ok_or(OpenError::Malformed)?;
        self.0 = rest;
        Ok(event)
    }

    /// Reads the stated number of events. Each event needs at least one byte, so the length of the
    /// input limits the number.
    pub(crate) fn events(
        &mut self,
        framing: Framing,
        count: u32,
    ) -> Result<Vec<&'a [u8]>, OpenError> {
        (0..count).map(|_| self.event(framing)).collect()
    }

    /// Returns the remaining bytes, which are a signature.
    pub(crate) fn signature(self) -> &'a [u8] {
        self.0
    }
}
