//! The record layer as far as it is visible without keys (RFC 6347, section 4.1).

/// Length of a record's header in bytes.
pub(super) const HEADER: usize = 13;
/// The maximum length of a received datagram during a handshake, in bytes. Peers send at most one
/// packet of their network at a time.
pub(super) const MAX_HANDSHAKE_DATAGRAM: usize = 2048;
/// The maximum length of a received datagram of a session, in bytes: one record of the maximum
/// length, 2^14 bytes and the protection.
const MAX_DATAGRAM: usize = (1 << 14) + 2048;

pub(super) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
pub(super) const APPLICATION_DATA: u8 = 23;

/// One record of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// The content type.
    pub(super) content: u8,
    /// 0 before the keys are in use, 1 after that.
    pub(super) epoch: u16,
    /// The sequence number, 48 bits.
    pub(super) sequence: u64,
    /// The record with its header.
    pub(super) whole: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record without its header.
    pub(super) fn body(&self) -> &'a [u8] {
        &self.whole[HEADER..]
    }
}

/// Splits a datagram into its records. Returns `None` if it is not entirely made of records of DTLS
/// 1.0 or 1.2, or longer than a peer may send.
pub(super) fn records(datagram: &[u8]) -> Option<Vec<Record<'_>>> {
    /// The library processes at most this number of records of one datagram.
    const MAX_RECORDS: usize = 8;
    if datagram.is_empty() || datagram.len() > MAX_DATAGRAM {
        return None;
    }
    let mut records = Vec::with_capacity(4);
    let mut rest = datagram;
    while !rest.is_empty() {
        let header: &[u8; HEADER] = rest.first_chunk()?;
        let length = HEADER + usize::from(u16::from_be_bytes([header[11], header[12]]));
        let (whole, after) = rest.split_at_checked(length)?;
        let is_known = (CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&header[0])
            && header[1] == 0xfe
            && matches!(header[2], 0xff | 0xfd);
        if !is_known || records.len() == MAX_RECORDS {
            return None;
        }
        let sequence = header[5..11].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let epoch = u16::from_be_bytes([header[3], header[4]]);
        records.push(Record { content: header[0], epoch, sequence, whole });
        rest = after;
    }
    Some(records)
}

/// Adds `shift` to the sequence number of each unprotected record of an outgoing datagram.
///
/// The first record of the server after the cookie exchange has the sequence number of the
/// ClientHello that it answers (RFC 6347, section 4.2.1), but the library starts at 1.
pub(super) fn shift_sequence(datagram: &mut [u8], shift: u64) {
    let mut rest = datagram;
    while shift > 0 && rest.len() >= HEADER {
        let length = HEADER + usize::from(u16::from_be_bytes([rest[11], rest[12]]));
        if rest[3..5] == [0, 0] {
            let mut sequence = [0; 8];
            sequence[2..].copy_from_slice(&rest[5..11]);
            let shifted = u64::from_be_bytes(sequence).wrapping_add(shift).to_be_bytes();
            rest[5..11].copy_from_slice(&shifted[2..]);
        }
        rest = rest.get_mut(length..).unwrap_or_default();
    }
}

/// Returns an unprotected fatal alert.
pub(super) fn fatal_alert(sequence: u64, description: u8) -> [u8; HEADER + 2] {
    let mut alert = [0; HEADER + 2];
    alert[..3].copy_from_slice(&[ALERT, 0xfe, 0xfd]);
    alert[5..11].copy_from_slice(&sequence.to_be_bytes()[2..]);
    alert[12..].copy_from_slice(&[2, 2, description]);
    alert
}
