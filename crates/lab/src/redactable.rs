//! Malleable signatures on motes: the numbers of the RERUM project's deliverable D5.3 (2016, tables 15
//! to 18 and 22), and the types of our measurements.
//!
//! [`mote`] computes tables 17, 18 and 22 for the product's column groups.
//!
//! D5.3 measured PS14 on the RE-Mote, and estimated BPS12 from ECDSA. The lab does not measure speed,
//! and does not link the schemes. `moteseal-bench redactable` and `moteseal-bench lab` pass their
//! results as [`Measured`], and [`report::redactable`](crate::report::redactable) formats them.
//! Tables 19 to 21 are in [`rerum`](crate::rerum).

pub mod mote;

use crate::rerum::{Interaction, TABLE_8};
use crate::seals::Spread;
use crate::seals::footprint::Footprint;
use mote::Sent;

/// The number of fields of the measured messages.
pub const FIELDS: usize = 4;
/// The content of a field, in bytes.
pub const FIELD_BYTES: usize = 8;

/// The times that table 15 multiplies: micro-ecc's P-192, signing and verifying, in milliseconds.
pub const P192_MS: [u32; 2] = [206, 224];
/// Table 15: the number of ECDSA operations of BPS12 to sign, to sanitise and to verify.
pub const TABLE_15: [u32; 3] = [2, 1, 3];

/// Table 16: ECDSA, and PS14's signing and verifying, in milliseconds.
pub const TABLE_16: [u32; 3] = [216, 7374, 5772];

/// Table 17, in milliseconds.
pub const TABLE_17: [Interaction; 3] = [
    TABLE_8[0],
    TABLE_8[1],
    Interaction { message: "malleably signed", transmission: 751, signing: TABLE_16[1] },
];

/// Table 18: the sections `.text`, `.data` and `.bss` of the firmware, in bytes.
pub const TABLE_18: [(&str, [u32; 3]); 2] = [
    ("with malleable signatures", [56_730, 1611, 14_081]),
    ("without malleable signatures", [48_435, 483, 12_941]),
];

/// Table 22: the energy of signing and of verifying, in watt seconds.
pub const TABLE_22: [(&str, [f64; 2]); 2] =
    [("ECDSA", [0.019, 0.020]), ("malleable", [1.017, 1.336])];

/// A scheme with its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The name of the scheme, and its parameters.
    pub name: &'static str,
    /// What a redacted message hides.
    pub hidden: &'static str,
    /// Who can redact it.
    pub redactor: &'static str,
    /// What can be linked.
    pub linked: &'static str,
}

/// The measurements of a scheme, of messages with [`FIELDS`] fields of [`FIELD_BYTES`] bytes.
#[derive(Clone, Debug)]
pub struct Scheme {
    /// The properties.
    pub properties: Properties,
    /// The bytes of a message.
    pub bytes: usize,
    /// The bytes that one more field adds, without its content.
    pub field_bytes: usize,
    /// The times, in nanoseconds.
    pub times: Times,
}

/// The times of a scheme, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time to sign a message.
    pub sign: Spread,
    /// The time to leave one field out, or to replace it.
    pub redact: Spread,
    /// The time to verify a message.
    pub verify: Spread,
    /// The time to merge two messages with three of the fields each; `None` if the scheme has no
    /// merging.
    pub merge: Option<Spread>,
}

/// The measurement of PS14 with the message of D5.3: a tag and two parts.
#[derive(Clone, Copy, Debug)]
pub struct Ps14 {
    /// The length of the modulus in bits.
    pub bits: u32,
    /// The time to sign, in nanoseconds.
    pub sign: Spread,
    /// The time to verify, in nanoseconds.
    pub verify: Spread,
    /// The time to sign, divided by that of ECDSA on P-192.
    pub sign_ratio: f64,
    /// The time to verify, divided by that of ECDSA on P-192.
    pub verify_ratio: f64,
}

/// The measurement of an encryption of a string of 24 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Encryption {
    /// The cipher.
    pub name: &'static str,
    /// The bytes of an encrypted string.
    pub bytes: usize,
    /// The time to encrypt a string, in nanoseconds.
    pub time: Spread,
}

/// The measurements of `moteseal-bench`.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Our ECDSA on P-192: the times to sign and to verify, in nanoseconds.
    pub p192: Option<[Spread; 2]>,
    /// PS14 with moduli of several lengths.
    pub ps14: Vec<Ps14>,
    /// All schemes.
    pub schemes: Vec<Scheme>,
    /// The encryptions of a string.
    pub encryptions: Vec<Encryption>,
    /// The product's messages on a mote, in the order of [`mote::MESSAGES`].
    pub sent: Option<[Sent; 3]>,
    /// The counts on a Cortex-M3, if they are available.
    pub footprint: Option<Footprint>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_text() {
        // Section 2.3.5.1: 8,023 ms and 10.32 KiB of overhead.
        let total = |row: Interaction| row.transmission + row.signing;
        assert_eq!(TABLE_17.map(total), [102, 402, 8125]);
        let [with, without] = TABLE_18.map(|(_, sections)| sections);
        let overhead: [u32; 3] = std::array::from_fn(|at| with[at] - without[at]);
        assert_eq!((overhead, overhead.iter().sum::<u32>()), ([8295, 1128, 1140], 10_563));
        let [sign, verify] = P192_MS;
        let [signing, sanitising, verifying] = TABLE_15;
        assert_eq!([signing * sign, sanitising * sign, verifying * verify], [412, 206, 672]);
    }
}
