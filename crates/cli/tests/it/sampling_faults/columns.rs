//! The columns of a simulated device, and the cells of a reading in each of them.

use moteseal_core::confidential::{ColumnId, StreamSecret};
use moteseal_core::record::EpochNumber;
use moteseal_core::schema::{Field, MAX_SCHEMA, Schema};

use super::FIRST;
use crate::chance::Chance;

/// The encrypted columns.
pub(super) const ENCRYPTED: [&str; 2] = ["warm", "damp"];

/// The columns of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Columns {
    /// One plain column.
    Plain,
    /// A plain column, and an encrypted one of each cipher.
    Encrypted,
    /// The same, with the last column in another column group.
    Grouped,
}

impl Columns {
    /// All kinds of columns.
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::Encrypted, Self::Grouped];

    /// Draws the columns of a group's devices. Half of the groups encrypt nothing.
    pub(super) fn draw(chance: &mut Chance, devices: u8) -> Vec<Self> {
        let encrypts = chance.percent(50);
        let mut columns = || match chance.below(8) {
            0 | 1 => Self::Plain,
            2..=4 => Self::Encrypted,
            _ => Self::Grouped,
        };
        (0..devices).map(|_| if encrypts { columns() } else { Self::Plain }).collect()
    }

    const fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["reading::u32"],
            Self::Encrypted => &["seen::u64", "warm::u64!", "damp::u64!aes"],
            Self::Grouped => &["seen::u64", "warm::u64!", "damp::u64!aes@1"],
        }
    }

    /// Returns the encoded schema.
    pub(super) fn schema(self) -> Vec<u8> {
        let fields: Vec<Field<'_>> =
            self.fields().iter().map(|field| Field::parse(field).unwrap()).collect();
        Schema::encode(&fields, &mut [0; MAX_SCHEMA]).unwrap().as_bytes().to_vec()
    }

    /// Returns the ids and the names of the encrypted columns.
    pub(super) fn encrypted(self) -> Vec<(ColumnId, &'static str)> {
        let bytes = self.schema();
        let schema = Schema::decode(&bytes).unwrap();
        let columns: Vec<_> =
            schema.encrypted_columns().map(|(_, column)| column).zip(ENCRYPTED).collect();
        assert_eq!(columns.is_empty(), self == Self::Plain);
        columns
    }

    /// Returns the record of a reading in plaintext.
    pub(super) fn record(self, reading: [u8; 4]) -> Vec<u8> {
        match self {
            Self::Plain => reading.to_vec(),
            Self::Encrypted | Self::Grouped => {
                (0..3).flat_map(|column| cell(reading, column)).collect()
            }
        }
    }
}

/// Returns the cell of a reading in one of three columns, of which the first one is plain. No two cells
/// are equal, and none of them occurs in other bytes by chance.
pub(super) fn cell(reading: [u8; 4], column: u64) -> [u8; 8] {
    // SplitMix64 is a bijection.
    let number = u64::from(u32::from_be_bytes(reading)) << 2 | column;
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31).to_be_bytes()
}

/// Returns the stream secret of a device.
pub(super) fn stream_secret(number: u8) -> StreamSecret {
    StreamSecret::new([number ^ 0x5c; 32], EpochNumber(FIRST - 10))
}
