//! Records (RFC 6347, section 4.1) and the messages of the handshake (section 4.2.2).

use super::DtlsError;

/// DTLS 1.2.
pub(super) const VERSION: [u8; 2] = [0xfe, 0xfd];

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;

/// The length of a record's header in bytes.
pub(super) const HEADER: usize = 13;
/// The length of the part of the nonce that a protected record contains, in bytes.
pub(super) const EXPLICIT_NONCE: usize = 8;
/// The length of the tag in bytes.
pub(super) const TAG: usize = 8;
/// The length of a message's header in bytes.
pub(super) const HANDSHAKE_HEADER: usize = 12;

/// A datagram that is being written into a buffer.
pub struct Datagram<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl<'a> Datagram<'a> {
    /// Creates an empty datagram.
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, length: 0 }
    }

    /// Returns the number of bytes that have been written.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Appends bytes, and returns them in the buffer.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<&mut [u8], DtlsError> {
        let end = self.length + bytes.len();
        let place = self.buffer.get_mut(self.length..end).ok_or(DtlsError::BufferTooSmall)?;
        place.copy_from_slice(bytes);
        self.length = end;
        Ok(place)
    }

    /// Appends the header of a record. The upper 16 bits of `sequence` are the epoch.
    pub(super) fn record_header(
        &mut self,
        content: u8,
        sequence: u64,
        length: usize,
    ) -> Result<(), DtlsError> {
        let length = u16::try_from(length).map_err(|_| DtlsError::BufferTooSmall)?;
        self.put(&[content])?;
        self.put(&VERSION)?;
        self.put(&sequence.to_be_bytes())?;
        self.put(&length.to_be_bytes())?;
        Ok(())
    }
}

/// A received record.
pub(super) struct Record<'a> {
    pub(super) content: u8,
    pub(super) epoch: u16,
    /// The epoch in the upper 16 bits, and the sequence number.
    pub(super) sequence: u64,
    pub(super) fragment: &'a [u8],
}

impl<'a> Record<'a> {
    /// Splits the first record from a datagram. Returns `None` if it is malformed.
    pub(super) fn split(datagram: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut reader = Reader(datagram);
        let content = *reader.take(1)?.first()?;
        let version = reader.take(2)?;
        let sequence = u64::from_be_bytes(reader.take(8)?.try_into().ok()?);
        let fragment = reader.vector16()?;
        let epoch = u16::try_from(sequence >> 48).ok()?;
        // HelloVerifyRequest may come in a record of version 1.0.
        if version.first() != VERSION.first() || (epoch > 0 && version != VERSION) {
            return None;
        }
        Some((Self { content, epoch, sequence, fragment }, reader.0))
    }
}

/// A received message of the handshake, which is not fragmented.
pub(super) struct Message<'a> {
    pub(super) kind: u8,
    pub(super) sequence: u16,
    pub(super) body: &'a [u8],
    /// The header and the body.
    pub(super) bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Splits the first message from the content of a record.
    pub(super) fn split(fragment: &'a [u8]) -> Result<(Self, &'a [u8]), DtlsError> {
        let mut reader = Reader(fragment);
        let mut field = |length| reader.take(length).ok_or(DtlsError::Malformed);
        let kind = field(1)?.first().copied().unwrap_or_default();
        let length = number(field(3)?);
        let sequence = number(field(2)?) as u16;
        let (offset, here) = (number(field(3)?), number(field(3)?));
        if offset != 0 || here != length {
            return Err(DtlsError::Incomplete);
        }
        let body = field(here)?;
        let rest = reader.0;
        let bytes = fragment.get(..HANDSHAKE_HEADER + here).ok_or(DtlsError::Malformed)?;
        Ok((Self { kind, sequence, body, bytes }, rest))
    }
}

/// Returns the header of a message that is not fragmented.
pub(super) fn handshake_header(
    kind: u8,
    sequence: u16,
    length: usize,
) -> Result<[u8; HANDSHAKE_HEADER], DtlsError> {
    let length = u16::try_from(length).map_err(|_| DtlsError::BufferTooSmall)?;
    let ([high, low], [first, second]) = (length.to_be_bytes(), sequence.to_be_bytes());
    Ok([kind, 0, high, low, first, second, 0, 0, 0, 0, high, low])
}

/// Returns a number of at most three bytes, big-endian.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// The unread part of a message.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads this many bytes.
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads a number of two bytes.
    pub(super) fn number16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// Reads bytes after their length, which has one byte.
    pub(super) fn vector8(&mut self) -> Option<&'a [u8]> {
        let length = *self.take(1)?.first()?;
        self.take(length.into())
    }

    /// Reads bytes after their length, which has two bytes.
    pub(super) fn vector16(&mut self) -> Option<&'a [u8]> {
        let length = self.number16()?;
        self.take(length.into())
    }
}
