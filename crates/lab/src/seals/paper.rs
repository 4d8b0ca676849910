//! The numbers that Li et al. print, unchanged.

/// Number of devices in the experiment.
pub const DEVICES: u64 = 7;
/// Number of events in an epoch of table V. The paper does not state it. It is derived from the
/// 4.43 bytes that a record takes in the table: 4 bytes are data, and 0.43 bytes are the record's
/// share of a signature of 128 bytes. Our number of bytes sent therefore agrees with the paper's by
/// construction.
pub const EPOCH: usize = 298;

/// A row of table I: an operation on a string of 10 bytes, on a Cortex-M3 at 72 MHz.
#[derive(Clone, Copy, Debug)]
pub struct OnM3 {
    /// The operation.
    pub name: &'static str,
    /// The time, in milliseconds.
    pub ms: f64,
    /// The energy, in millijoules.
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
/// The clock rate of this processor, in hertz.
pub const M3_HERTZ: f64 = 72e6;

/// Table II: for each scheme, whether it has computation efficiency, partial retrieval, constant
/// space and sampling uniformity.
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

/// Table V: for each record, the signing time in milliseconds, the bytes sent and the bytes
/// received.
pub const TABLE_5: [(&str, f64, f64, f64); 5] = [
    ("Sign-each", 2.82, 132.0, 132.0),
    ("Concatenate", 0.59, 4.43, 8.89),
    ("Hash chaining", 0.57, 4.43, 8.89),
    ("DTC", 0.55, 4.45, 4.52),
    ("GSC", 0.41, 4.43, 4.43),
];

/// Table VI: the degree, and the time in microseconds.
pub const TABLE_6: [(usize, f64); 6] =
    [(500, 4.219), (600, 5.035), (700, 5.933), (800, 7.078), (900, 7.925), (1000, 8.800)];

/// Table VII: the budget, the number of events to sign, and the number of events to verify.
pub const TABLE_7: [(u64, u64, u64); 2] = [(500, 115_821, 35_038), (1000, 186_619, 70_296)];

/// Section VIII.D: the additional power of a Raspberry Pi 3 while it signs, in watts: 5.1 V times
/// (0.37 - 0.23) A.
pub const PI_WATT: f64 = 5.1 * (0.37 - 0.23);

/// Section VIII.E: how many more events per second GSC processes than DTC at a budget of 500 with
/// DSA. The first number is with SHA-256, the second with MD5.
pub const GAPS: (f64, f64) = (0.35e6, 0.7e6);
