//! What D5.3 measured on a mote (tables 17, 18 and 22), computed for the product.
//!
//! The inputs are the counts of the [`footprint`](crate::seals::footprint) and the transfers of messages.
//! No mote is measured. A time of computing has one cycle for each instruction, and a Cortex-M3 needs one
//! to a dozen. The functions return `None` if the footprint lacks a count.

use super::{P192_MS, TABLE_16, TABLE_17, TABLE_22};
use crate::health;
use crate::rerum::{TABLES_19_TO_21, Transfer};
use crate::seals::footprint::Footprint;

/// The clock rate of the RE-Mote, in hertz.
pub const HERTZ: f64 = 32e6;

/// The product's messages for the rows of table 17. The first two have the text of D5.3's message. The
/// last one is a seal of one reading with two columns in two column groups, the second one encrypted.
pub const MESSAGES: [&str; 3] = ["unsigned", "signed with Ed25519", "column groups, Ed25519"];

const STAR: &str = "star, L = 16";
const GROUPED: &str = "star, L = 16, two column groups";
const SEAL: &str = "star, L = 16, with its statement and upload item, signed elsewhere";
const COLUMNS: &str = "encryption of columns";
const CLOSING: &str = "closing an epoch";
const SIGNING: (&str, &str) = ("Ed25519, signing", "signing 300 bytes");

/// The counts of a seal of one reading. The sum has the end of an epoch twice: that of a star with groups,
/// and that of a star without them.
const SEALING: [(&str, &str); 7] = [
    (GROUPED, "an event of 4 bytes"),
    (GROUPED, CLOSING),
    (COLUMNS, "an event of 4 bytes, one column, ChaCha20"),
    (COLUMNS, "the next epoch of a column, from its stored nodes, mean"),
    (COLUMNS, "the key of a seal and its commitment"),
    (SEAL, "an epoch's end"),
    SIGNING,
];

/// The RAM of one encrypted column.
const COLUMN_RAM: [(&str, &str); 3] = [
    (COLUMNS, "RAM, the keys of a column"),
    (COLUMNS, "RAM, the key stream of a column of the open seal"),
    (COLUMNS, "RAM, the open seal, for all its columns"),
];

/// A message, and its transfer over CoAP.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The bytes of the message.
    pub bytes: usize,
    /// Its transfer with blocks of 64 bytes.
    pub transfer: Transfer,
}

/// The computed times of a message.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Its name in [`MESSAGES`].
    pub name: &'static str,
    /// The message.
    pub sent: Sent,
    /// The time of all frames on air, in milliseconds.
    pub air_ms: f64,
    /// The time of all CoAP messages at D5.3's mean time of a message, in milliseconds.
    pub transmission_ms: f64,
    /// The instructions to seal or to sign it.
    pub instructions: f64,
    /// The time of these instructions, in milliseconds.
    pub computing_ms: f64,
}

/// The memory of a part of the firmware, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// The flash. It is an upper bound, because functions that several parts share count for each of them.
    pub flash: f64,
    /// The state between two calls. The stack is not included.
    pub ram: f64,
}

/// The energy of signing and of verifying, in watt seconds.
#[derive(Clone, Copy, Debug)]
pub struct Energies {
    /// Ed25519, with the power that D5.3's mote has during ECDSA.
    pub ed25519: [f64; 2],
    /// P-256, with the same power.
    pub p256: [f64; 2],
    /// A seal with column groups, and verifying its signature, with the power that D5.3's mote has during
    /// PS14.
    pub grouped: [f64; 2],
}

fn sum(footprint: &Footprint, counts: &[(&str, &str)]) -> Option<f64> {
    counts.iter().map(|(part, what)| footprint.number(part, what)).sum()
}

/// Returns the instructions of a seal of one reading with column groups.
fn sealing(footprint: &Footprint) -> Option<f64> {
    Some(sum(footprint, &SEALING)? - footprint.of_epoch(STAR)?)
}

/// Returns the mean time of a CoAP message by D5.3's tables 17 and 21, in milliseconds.
#[must_use]
pub fn of_a_message_ms() -> f64 {
    let times: u32 = TABLE_17.iter().map(|row| row.transmission).sum();
    let messages: usize = TABLES_19_TO_21.iter().map(|row| row.messages).sum();
    f64::from(times) / number(messages)
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Returns the computed times of the messages (table 17).
#[must_use]
pub fn messages(sent: &[Sent; 3], footprint: &Footprint) -> Option<[Message; 3]> {
    let instructions = [0.0, sum(footprint, &[SIGNING])?, sealing(footprint)?];
    Some(std::array::from_fn(|at| Message {
        name: MESSAGES[at],
        sent: sent[at],
        air_ms: health::air_ms(sent[at].transfer.messages, sent[at].transfer.wire_bytes),
        transmission_ms: number(sent[at].transfer.messages) * of_a_message_ms(),
        instructions: instructions[at],
        computing_ms: instructions[at] / HERTZ * 1e3,
    }))
}

/// Returns the memory that column groups and encryption add to a star, and the memory of a seal with them
/// and with Ed25519 (table 18).
#[must_use]
pub fn memory(footprint: &Footprint) -> Option<[Memory; 2]> {
    let [star, grouped, columns, seal, signing] =
        [STAR, GROUPED, COLUMNS, SEAL, SIGNING.0].map(|part| footprint.number(part, "flash"));
    let ram = |part| footprint.number(part, "RAM");
    let column = sum(footprint, &COLUMN_RAM)?;
    let (star, grouped, columns) = (star?, grouped?, columns?);
    Some([
        Memory { flash: grouped - star + columns, ram: ram(GROUPED)? - ram(STAR)? + column },
        Memory {
            flash: grouped + columns + (seal? - star) + signing?,
            ram: ram(GROUPED)? + column + ram(SIGNING.0)?,
        },
    ])
}

/// Returns the power of D5.3's mote while it signs and verifies, with ECDSA and with PS14, in watts: the
/// energy of table 22, divided by the time of micro-ecc and of table 16.
#[must_use]
pub fn power_w() -> [[f64; 2]; 2] {
    let [_, signing, verifying] = TABLE_16;
    let times = [P192_MS, [signing, verifying]];
    std::array::from_fn(|row| {
        std::array::from_fn(|at| TABLE_22[row].1[at] / f64::from(times[row][at]) * 1e3)
    })
}

/// Returns the energy of signing and of verifying (table 22).
#[must_use]
pub fn energies(footprint: &Footprint) -> Option<Energies> {
    let [ecdsa, malleable] = power_w();
    let of = |instructions: [f64; 2], [sign, verify]: [f64; 2]| {
        [instructions[0] / HERTZ * sign, instructions[1] / HERTZ * verify]
    };
    let count = |part, what| footprint.number(part, what);
    let verifying = "verifying 300 bytes";
    let ed25519 = [sum(footprint, &[SIGNING])?, count("Ed25519, verifying", verifying)?];
    let p256 = [count("P-256, signing", SIGNING.1)?, count("P-256, verifying", verifying)?];
    Some(Energies {
        ed25519: of(ed25519, ecdsa),
        p256: of(p256, ecdsa),
        grouped: of([sealing(footprint)?, ed25519[1]], malleable),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn committed() -> Footprint {
        let read = |name: &str| {
            std::fs::read_to_string(format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR")))
                .unwrap()
        };
        Footprint::read(&read("footprint.csv"), &read("footprint_levels.csv")).unwrap()
    }

    fn sent(bytes: usize, messages: usize, wire_bytes: usize) -> Sent {
        let transfer = Transfer { blocks: messages / 2, messages, wire_bytes, longest: 0 };
        Sent { bytes, transfer }
    }

    #[test]
    fn the_committed_footprint_has_every_count() {
        let footprint = committed();
        let sent = [sent(46, 2, 93), sent(147, 6, 315), sent(148, 6, 316)];
        let [unsigned, signed, grouped] = messages(&sent, &footprint).unwrap();
        assert_eq!(unsigned.instructions.to_bits(), 0.0_f64.to_bits());
        assert!(signed.instructions < grouped.instructions);
        assert!(unsigned.air_ms < signed.air_ms && signed.air_ms < grouped.air_ms);
        let [added, whole] = memory(&footprint).unwrap();
        assert!(added.flash < whole.flash && added.ram < whole.ram);
        let energies = energies(&footprint).unwrap();
        assert!(
            energies.ed25519[0] < energies.p256[0] && energies.ed25519[0] < energies.grouped[0]
        );
    }

    #[test]
    fn sums_and_differences_are_those_of_the_documentation() {
        let lines = [
            (STAR, "flash", 1),
            (STAR, "RAM", 2),
            (STAR, CLOSING, 3),
            (GROUPED, "flash", 10),
            (GROUPED, "RAM", 20),
            (GROUPED, "an event of 4 bytes", 30),
            (GROUPED, CLOSING, 40),
            (COLUMNS, "flash", 100),
            (COLUMNS, COLUMN_RAM[0].1, 200),
            (COLUMNS, COLUMN_RAM[1].1, 300),
            (COLUMNS, COLUMN_RAM[2].1, 400),
            (COLUMNS, SEALING[2].1, 500),
            (COLUMNS, SEALING[3].1, 600),
            (COLUMNS, SEALING[4].1, 700),
            (SEAL, "flash", 1000),
            (SEAL, "an epoch's end", 2000),
            (SIGNING.0, "flash", 10_000),
            (SIGNING.0, "RAM", 20_000),
            (SIGNING.0, SIGNING.1, 30_000),
        ];
        let rows = lines.map(|(part, what, value)| format!("\"{part}\",\"{what}\",,{value},\n"));
        let parts = format!("part,what,unit,value,bar\n{}", rows.concat());
        let footprint = Footprint::read(&parts, "levels,finest_rate,ram_bytes\n").unwrap();
        let seal = 30.0 + 40.0 + 500.0 + 600.0 + 700.0 + (2000.0 - 3.0) + 30_000.0;
        assert_eq!(sealing(&footprint), Some(seal));
        let added = Memory { flash: 9.0 + 100.0, ram: 18.0 + 900.0 };
        let whole = Memory { flash: 10.0 + 100.0 + 999.0 + 10_000.0, ram: 20.0 + 900.0 + 20_000.0 };
        assert_eq!(memory(&footprint), Some([added, whole]));
        assert!(energies(&footprint).is_none());
    }

    #[test]
    fn power_and_time_of_a_message_follow_from_the_tables() {
        let milliwatts = power_w().map(|row| row.map(|watts| (watts * 1e3).round()));
        assert_eq!(milliwatts, [[92.0, 89.0], [138.0, 231.0]]);
        assert!((of_a_message_ms() - 51.95).abs() < 1e-9);
    }
}
