//! The format of a packet: a kind or channel, a sequence byte, a body, and a checksum
//! (spec/serial.md, sections 2 and 3).
//!
//! Within a session, the checksum of a packet also covers bytes that are not sent: the session
//! numbers of both ends and the whole sequence number. Packets of other sessions, late packets and
//! echoes of an end's own packets therefore have a wrong checksum.

use crate::Channel;
use crate::checksum::Crc32;
use moteseal_core::named_errors;
use moteseal_core::record::DeviceId;

/// The version of the packet format.
pub const VERSION: u8 = 1;
/// The longest body, in bytes.
pub const MAX_BODY: usize = 1400;
/// The length of a packet without its body, in bytes: kind (1), sequence (1) and checksum (4).
pub const OVERHEAD: usize = 6;
/// The first byte of a HELLO, the packet that opens a line.
pub const HELLO: u8 = 0x80;
/// The first byte of an acknowledgement.
pub const ACK: u8 = 0x81;
/// The length of the body of a HELLO in bytes.
const HELLO_BODY: usize = 28;
/// The length of a HELLO packet in bytes. Every line must have room for it.
pub const MIN_ROOM: usize = HELLO_BODY + OVERHEAD;

/// Returns the size of the buffer for packets with bodies of up to `body` bytes. Use it for the
/// parameters of [`Line`](crate::Line).
#[must_use]
pub const fn room(body: usize) -> usize {
    if body + OVERHEAD > MIN_ROOM { body + OVERHEAD } else { MIN_ROOM }
}

named_errors! {
    /// Why received bytes were dropped. Usually they are noise on the line. Each end counts them.
    PacketError {
        /// The bytes are not correctly encoded, too short, or of an unknown kind.
        Malformed => "the bytes are not a packet of a serial line",
        /// The packet is longer than this end has room for.
        PacketTooLong => "the packet is longer than this end has room for",
        /// The checksum is wrong: noise, a packet of another session, a late packet, or an echo.
        ChecksumMismatch => "the checksum is wrong: noise, or a packet of another session",
        /// The HELLO has another version.
        UnsupportedVersion => "the other end uses another version of the protocol",
        /// The HELLO is from an end of the same kind: two motes or two gateways are connected, or
        /// the line echoes this end's own packets.
        SameSide => "the other end is of the same kind as this one; connect a mote to a gateway, and turn echo off",
    }
}

/// The session and sequence number that a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The session number of the packet's sender.
    pub sender: u64,
    /// The session number of the packet's receiver.
    pub receiver: u64,
    /// The sequence number of the body, or of the body that is acknowledged. Only its last byte is
    /// sent.
    pub number: u32,
}

impl Binding {
    /// Returns the checksum of a packet with the given kind, sequence byte and body.
    pub(super) fn checksum(&self, packet: &[u8]) -> [u8; 4] {
        let crc = Crc32::new().with(&self.sender.to_be_bytes()).with(&self.receiver.to_be_bytes());
        crc.with(&self.number.to_be_bytes()).with(packet).value().to_be_bytes()
    }

    /// Returns the sequence byte: the last byte of the sequence number.
    #[must_use]
    pub const fn sequence(&self) -> u8 {
        self.number.to_be_bytes()[3]
    }

    /// Completes a packet and returns its length. `packet` must consist of two free bytes, a body
    /// of `length` bytes, and four free bytes. Returns `None` if there is not enough room.
    pub fn close(&self, kind: u8, length: usize, packet: &mut [u8]) -> Option<usize> {
        let (front, behind) = packet.split_at_mut_checked(length.checked_add(2)?)?;
        let checksum = behind.first_chunk_mut()?;
        (front[0], front[1]) = (kind, self.sequence());
        *checksum = self.checksum(front);
        Some(length + OVERHEAD)
    }

    /// Returns the body of a packet, if the packet's checksum matches this binding.
    ///
    /// # Errors
    /// `Malformed`, `ChecksumMismatch`.
    pub fn open<'p>(&self, packet: &'p [u8]) -> Result<&'p [u8], PacketError> {
        let (front, checksum) = packet.split_last_chunk::<4>().ok_or(PacketError::Malformed)?;
        let [kind, sequence, body @ ..] = front else { return Err(PacketError::Malformed) };
        let is_body_right = if *kind == ACK {
            body.is_empty()
        } else {
            Channel::of(*kind).is_some() && body.len() <= MAX_BODY
        };
        if !is_body_right {
            return Err(PacketError::Malformed);
        }
        if *sequence != self.sequence() || self.checksum(front) != *checksum {
            return Err(PacketError::ChecksumMismatch);
        }
        Ok(body)
    }
}

/// A HELLO: the identity and the state of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Whether this end knows the session of the other end and considers the line open. If not, it
    /// expects an answer.
    pub is_open: bool,
    /// The length of the longest body that this end accepts, in bytes.
    pub longest_body: u16,
    /// The id of this end. The id of a gateway is eight zero bytes.
    pub device: DeviceId,
    /// The session number of this end; never 0.
    pub session: u64,
    /// The other end's session number if this end knows it, otherwise 0.
    pub received: u64,
}

impl Hello {
    /// Returns the encoded packet.
    #[must_use]
    pub fn encode(&self) -> [u8; MIN_ROOM] {
        let mut packet = [0; MIN_ROOM];
        let mut rest = &mut packet[..];
        let mut put = |bytes: &[u8]| {
            let (front, behind) = core::mem::take(&mut rest).split_at_mut(bytes.len());
            front.copy_from_slice(bytes);
            rest = behind;
        };
        put(&[HELLO, 0, VERSION, u8::from(self.is_open)]);
        put(&self.longest_body.to_be_bytes());
        put(&self.device.0);
        put(&self.session.to_be_bytes());
        put(&self.received.to_be_bytes());
        let (front, checksum) = packet.split_at_mut(MIN_ROOM - 4);
        checksum.copy_from_slice(&Crc32::new().with(front).value().to_be_bytes());
        packet
    }

    /// Reads a packet whose first byte is [`HELLO`].
    ///
    /// # Errors
    /// `Malformed`, `ChecksumMismatch` or `UnsupportedVersion`. The first two bytes are checked
    /// first, then the checksum, then the version. The length and the other fields are checked
    /// last, because they depend on the version.
    pub fn decode(packet: &[u8]) -> Result<Self, PacketError> {
        let (front, checksum) = packet.split_last_chunk::<4>().ok_or(PacketError::Malformed)?;
        let [HELLO, 0, version, rest @ ..] = front else { return Err(PacketError::Malformed) };
        if Crc32::new().with(front).value().to_be_bytes() != *checksum {
            return Err(PacketError::ChecksumMismatch);
        }
        if *version != VERSION {
            return Err(PacketError::UnsupportedVersion);
        }
        let rest: &[u8; HELLO_BODY - 1] = rest.try_into().map_err(|_| PacketError::Malformed)?;
        let number = |from: usize| {
            rest[from..from + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let hello = Self {
            is_open: rest[0] == 1,
            longest_body: u16::from_be_bytes([rest[1], rest[2]]),
            device: DeviceId(number(3).to_be_bytes()),
            session: number(11),
            received: number(19),
        };
        if rest[0] > 1 || hello.session == 0 { Err(PacketError::Malformed) } else { Ok(hello) }
    }
}
