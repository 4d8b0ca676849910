//! Signed readings and DTLS on motes: the numbers of the RERUM project's deliverable D5.3 (2016,
//! tables 7 to 9, 13, 19 to 21 and 23 to 25), and the types of our measurements.
//!
//! D5.3 measured on the RE-Mote, a Cortex-M3 of 32 MHz (CC2538) with Contiki. The lab does not
//! measure speed, and does not link the schemes that are only compared with the product.
//! `moteseal-bench lab` passes its results as [`Measured`], and
//! [`report::rerum`](crate::report::rerum) writes them.

use crate::seals::Spread;
use crate::seals::footprint::Footprint;

/// Table 7: the time of a signature on P-192, in milliseconds.
pub const SIGNING_MS: u32 = 216;

/// A row of table 8, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Interaction {
    /// The kind of message.
    pub message: &'static str,
    /// The transmission of the message.
    pub transmission: u32,
    /// The signature.
    pub signing: u32,
}

/// Table 8.
pub const TABLE_8: [Interaction; 2] = [
    Interaction { message: "unsigned", transmission: 102, signing: 0 },
    Interaction { message: "signed", transmission: 186, signing: SIGNING_MS },
];

/// Table 9: the sections `.text`, `.data` and `.bss` of the firmware, in bytes.
pub const TABLE_9: [(&str, [u32; 3]); 2] =
    [("with signatures", [58_895, 1706, 12_765]), ("without signatures", [53_315, 1702, 12_497])];

/// A row of tables 19 to 21.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The kind of message.
    pub message: &'static str,
    /// The bytes of the JSON text.
    pub bytes: usize,
    /// The number of CoAP blocks.
    pub blocks: usize,
    /// The number of CoAP messages, requests and responses.
    pub messages: usize,
}

/// Tables 19 to 21.
pub const TABLES_19_TO_21: [Size; 3] = [
    Size { message: "unsigned", bytes: 46, blocks: 1, messages: 2 },
    Size { message: "signed", bytes: 125, blocks: 2, messages: 4 },
    Size { message: "malleably signed", bytes: 430, blocks: 7, messages: 14 },
];

/// Table 23: the sections `.text`, `.data` and `.bss` of TinyDTLS's objects, in bytes.
pub const TABLE_23: [(&str, [u32; 3]); 10] = [
    ("dtls.o", [3224, 12, 8114]),
    ("crypto.o", [335, 0, 1335]),
    ("hmac.o", [1578, 0, 1335]),
    ("rijndael.o", [6678, 0, 0]),
    ("sha2.o", [1325, 0, 0]),
    ("ccm.o", [1064, 0, 4]),
    ("netq.o", [277, 12, 375]),
    ("dtls_time.o", [32, 0, 0]),
    ("peer.o", [150, 12, 45]),
    ("session.o", [148, 0, 0]),
];

/// Table 24: the sections `.text`, `.data` and `.bss` of the firmware with TinyDTLS, in bytes.
pub const TABLE_24: [(&str, [u32; 3]); 2] =
    [("dtls-client.elf", [67_774, 614, 16_297]), ("dtls-server.elf", [67_292, 550, 16_057])];

/// A row of table 25: a handshake between two motes, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Handshaking {
    /// The kind of handshake.
    pub mode: &'static str,
    /// The mean of ten handshakes.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// Table 25.
pub const TABLE_25: [Handshaking; 2] = [
    Handshaking { mode: "ECC", mean: 137.324, deviation: 0.656_87 },
    Handshaking { mode: "PSK", mean: 1.341, deviation: 0.1912 },
];

/// Returns the time of a handshake with signatures divided by that of a handshake with a shared key,
/// by table 25.
#[must_use]
pub fn ratio() -> f64 {
    let [ecc, psk] = TABLE_25;
    ecc.mean / psk.mean
}

/// How many blocks and messages a representation took over CoAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The number of blocks.
    pub blocks: usize,
    /// The number of messages, requests and responses.
    pub messages: usize,
    /// The bytes of all messages, without the headers of IP and UDP.
    pub wire_bytes: usize,
    /// The bytes of the longest message, counted in the same way.
    pub longest: usize,
}

/// A message with a reading.
#[derive(Clone, Debug)]
pub struct Message {
    /// The kind of message, as in [`TABLES_19_TO_21`], or the signature suite.
    pub name: &'static str,
    /// The bytes of the JSON text.
    pub bytes: usize,
    /// Its transfer with blocks of 64 bytes.
    pub transfer: Transfer,
    /// The processor time of the transfer in memory, both ends, in nanoseconds.
    pub time: Spread,
}

/// The time of signed readings with one suite.
#[derive(Clone, Debug)]
pub struct Signing {
    /// The suite.
    pub suite: &'static str,
    /// The time to write a signed message, in nanoseconds.
    pub signed: Spread,
    /// The time to verify and parse it, in nanoseconds.
    pub opened: Spread,
    /// The time to write a signed message, divided by that of P-192.
    pub ratio: f64,
}

/// A handshake of DTLS 1.2 in memory, with the cookie.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The cipher suite, and who has a certificate.
    pub suite: &'static str,
    /// The bytes of each datagram, in order, without the headers of IP and UDP.
    pub datagrams: Vec<usize>,
    /// The number of records.
    pub records: usize,
    /// The number of messages, ChangeCipherSpec included.
    pub messages: usize,
    /// The processor time of both sides, in nanoseconds.
    pub time: Spread,
    /// The time divided by that of the handshake with a shared key.
    pub ratio: f64,
}

impl Handshake {
    /// Returns the bytes of all datagrams.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.datagrams.iter().sum()
    }
}

/// The measurements of `moteseal-bench lab`.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The messages.
    pub messages: Vec<Message>,
    /// The times of signed readings.
    pub signing: Vec<Signing>,
    /// The handshakes.
    pub handshakes: Vec<Handshake>,
    /// The counts on a Cortex-M3, if they are available.
    pub footprint: Option<Footprint>,
}

/// The part of the footprint with the client of DTLS.
pub const CLIENT: &str = "client of DTLS 1.2, PSK_AES128_CCM_8, without retransmission";
/// The part of the footprint with the estimate of handshakes with signatures.
pub const ESTIMATE: &str = "handshake of DTLS 1.2 at a client, ECDHE_ECDSA on P-256, estimated";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_text() {
        // Section 2.1.4.4: 300 ms and 5.71 KiB of overhead; section 2.5.6.2: the ratio is 102.
        let total = |row: Interaction| row.transmission + row.signing;
        assert_eq!(TABLE_8.map(total), [102, 402]);
        let [with, without] = TABLE_9.map(|(_, sections)| sections);
        let overhead: [u32; 3] = std::array::from_fn(|at| with[at] - without[at]);
        assert_eq!((overhead, overhead.iter().sum::<u32>()), ([5580, 4, 268], 5852));
        assert_eq!(TABLE_24.map(|(_, sections)| sections.iter().sum::<u32>()), [84_685, 83_899]);
        assert!((ratio() - 102.4).abs() < 0.05);
        for row in TABLES_19_TO_21 {
            assert_eq!(row.messages, 2 * row.blocks);
        }
    }
}
