//! The numbers that Li et al. print, unchanged.

/// Devices of the experiment.
pub const DEVICES: u64 = 7;
/// Events of an epoch of table V. The paper does not state it. We derive it from the 4.43 bytes of
/// a record, of which 4 are data and 0.43 its share of a signature of 128 bytes; the bytes sent
/// therefore agree with the paper's by construction.
pub const EPOCH: usize = 298;

/// Table I, on a Cortex-M3 of 72 MHz, over a 10-byte string.
#[derive(Clone, Copy, Debug)]
pub struct OnM3 {
    /// The operation.
    pub name: &'static str,
    /// Milliseconds.
    pub ms: f64,
    /// Millijoule.
    pub mj: f64,
}

/// Table I.
pub const TABLE_1: [OnM3; 5] = [
    OnM3 { name: "RSA", ms: 203.6, mj: 37.6 },
    OnM3 { name: "DSA", ms: 192.8, mj: 36.2 },
    OnM3 { name: "MD5", ms: 0.041, mj: 0.007 },
    OnM3 { name: "SHA1", ms: 0.051, mj: 0.009 },
    OnM3 { name: "SHA256", ms: 0.098, mj: 0.017 },
];
/// The clock of that processor.
pub const M3_HERTZ: f64 = 72e6;

/// Table II: computation efficiency, partial retrieval, constant space, sampling uniformity.
pub const TABLE_2: [(&str, [bool; 4]); 5] = [
    ("Sign-each", [false, true, true, false]),
    ("Concatenate", [true, false, false, false]),
    ("Hash chaining", [true, false, true, false]),
    ("DTC", [true, true, false, true]),
    ("GSC", [true, true, true, true]),
];

/// Table IV: orders of growth at the device and at the coordinator.
pub const TABLE_4: [(&str, &str, &str); 3] =
    [("Sign-each", "O(1)", "O(B)"), ("DTC", "O(log n)", "O(B log n')"), ("GSC", "O(1)", "O(K)")];

/// Table V: milliseconds of signing, bytes sent and bytes received, for each record.
pub const TABLE_5: [(&str, f64, f64, f64); 5] = [
    ("Sign-each", 2.82, 132.0, 132.0),
    ("Concatenate", 0.59, 4.43, 8.89),
    ("Hash chaining", 0.57, 4.43, 8.89),
    ("DTC", 0.55, 4.45, 4.52),
    ("GSC", 0.41, 4.43, 4.43),
];

/// Table VI: microseconds by degree.
pub const TABLE_6: [(usize, f64); 6] =
    [(500, 4.219), (600, 5.035), (700, 5.933), (800, 7.078), (900, 7.925), (1000, 8.800)];

/// Table VII: budget, events for the signature, events for verification.
pub const TABLE_7: [(u64, u64, u64); 2] = [(500, 115_821, 35_038), (1000, 186_619, 70_296)];

/// Section VIII.D: the additional power of a Raspberry Pi 3 while it signs, in watts: 5.1 V times
/// (0.37 - 0.23) A.
pub const PI_WATT: f64 = 5.1 * (0.37 - 0.23);

/// Section VIII.E: how many more events per second GSC processes than DTC at a budget of 500 with
/// DSA, with SHA-256 and with MD5.
pub const GAPS: (f64, f64) = (0.35e6, 0.7e6);
