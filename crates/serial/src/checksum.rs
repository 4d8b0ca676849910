//! CRC-32 of IEEE 802.3: polynomial 0x04c11db7, reflected; the initial value and the final
//! exclusive-or value are all ones (spec/serial.md, section 2).
//!
//! It is computed four bits at a time, with a table of 64 bytes and about ten instructions per
//! byte.

const TABLE: [u32; 16] = table();

const fn table() -> [u32; 16] {
    let mut table = [0; 16];
    let mut at = 0;
    while at < 16 {
        let (mut value, mut bit) = (at as u32, 0);
        while bit < 4 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
}

/// An incremental checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc32(u32);

impl Crc32 {
    pub(super) const fn new() -> Self {
        Self(u32::MAX)
    }

    #[must_use]
    pub(super) fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |crc, byte| {
            let crc = crc ^ u32::from(*byte);
            let crc = crc >> 4 ^ TABLE[crc as usize & 15];
            crc >> 4 ^ TABLE[crc as usize & 15]
        }))
    }

    pub(super) const fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_check_value_of_the_crc_catalogue() {
        assert_eq!(Crc32::new().with(b"123456789").value(), 0xcbf4_3926);
        assert_eq!(Crc32::new().with(b"1234").with(b"").with(b"56789").value(), 0xcbf4_3926);
    }
}
