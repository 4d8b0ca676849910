//! Consistent overhead byte stuffing (Cheshire and Baker, IEEE/ACM ToN 1999): packets are encoded
//! without zero bytes, so that zero bytes can separate them (spec/serial.md, section 1). Encoding
//! and decoding work byte by byte, so neither needs a second buffer for a packet.

use crate::packet::PacketError;

/// The length of the longest run that one code byte covers, in bytes.
const LONGEST_RUN: usize = 254;

/// Encodes a packet for the line: a zero byte, the packet encoded without zero bytes, and another
/// zero byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stuffer {
    next: Next,
    /// The offset of the next byte in the packet.
    at: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum Next {
    #[default]
    Opening,
    Code,
    /// The number of bytes left in a run, and whether the run has the maximum length. No zero
    /// follows a run of maximum length.
    Run {
        left: usize,
        is_full: bool,
    },
    Closing,
    Nothing,
}

impl Stuffer {
    /// Returns the next encoded byte of `packet`, or `None` at the end. `packet` must be the same
    /// in each call and must not be empty.
    pub fn next(&mut self, packet: &[u8]) -> Option<u8> {
        let rest = packet.get(self.at..).unwrap_or_default();
        match self.next {
            Next::Opening => {
                self.next = Next::Code;
                Some(0)
            }
            Next::Code => {
                let run = rest
                    .iter()
                    .take(LONGEST_RUN)
                    .position(|byte| *byte == 0)
                    .unwrap_or(rest.len().min(LONGEST_RUN));
                self.next = self.after(packet, run, run == LONGEST_RUN);
                u8::try_from(run + 1).ok()
            }
            Next::Run { left, is_full } => {
                self.at += 1;
                self.next = self.after(packet, left - 1, is_full);
                rest.first().copied()
            }
            Next::Closing => {
                self.next = Next::Nothing;
                Some(0)
            }
            Next::Nothing => None,
        }
    }

    /// Returns the next state, after a byte of a run with `left` more bytes.
    fn after(&mut self, packet: &[u8], left: usize, is_full: bool) -> Next {
        if left > 0 {
            Next::Run { left, is_full }
        } else if self.at >= packet.len() {
            Next::Closing
        } else {
            // The next code byte represents the zero that follows the run, so skip this zero. No
            // zero follows a full run.
            self.at += usize::from(!is_full);
            Next::Code
        }
    }

    /// Returns whether all bytes have been produced.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }
}

/// Finds and decodes packets of up to `N` bytes in any stream of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Unstuffer<const N: usize> {
    packet: [u8; N],
    length: usize,
    /// The number of bytes of the current run that have not arrived yet.
    left: u8,
    /// Whether a zero follows the current run, unless the packet ends after the run.
    is_zero_due: bool,
    is_too_long: bool,
    is_begun: bool,
}

impl<const N: usize> Default for Unstuffer<N> {
    fn default() -> Self {
        Self {
            packet: [0; N],
            length: 0,
            left: 0,
            is_zero_due: false,
            is_too_long: false,
            is_begun: false,
        }
    }
}

impl<const N: usize> Unstuffer<N> {
    /// Processes a received byte. Returns the length of the packet, or an error, if the byte ends a
    /// packet. [`packet`](Self::packet) then returns the packet, until the next call of `take`.
    ///
    /// # Errors
    /// `PacketTooLong`, `Malformed`.
    pub fn take(&mut self, byte: u8) -> Option<Result<usize, PacketError>> {
        if byte == 0 {
            let ended = match (self.is_begun, self.is_too_long, self.left) {
                (false, ..) => None,
                (_, true, _) => Some(Err(PacketError::PacketTooLong)),
                (_, _, 0) => Some(Ok(self.length)),
                _ => Some(Err(PacketError::Malformed)),
            };
            (self.left, self.is_zero_due, self.is_too_long, self.is_begun) =
                (0, false, false, false);
            return ended;
        }
        if !self.is_begun {
            (self.is_begun, self.length) = (true, 0);
        }
        if self.left > 0 {
            self.left -= 1;
            self.push(byte);
        } else {
            if self.is_zero_due {
                self.push(0);
            }
            self.left = byte - 1;
            self.is_zero_due = byte != u8::MAX;
        }
        None
    }

    fn push(&mut self, byte: u8) {
        match self.packet.get_mut(self.length) {
            Some(place) => {
                *place = byte;
                self.length += 1;
            }
            None => self.is_too_long = true,
        }
    }

    /// Returns the packet that the last call of [`take`](Self::take) completed.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        self.packet.get(..self.length).unwrap_or_default()
    }
}
