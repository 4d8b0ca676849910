//! What authentication takes at the two sides, as `moteseal-bench broadcast` measured it: for figures 3 and 4.

/// Times of one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// What the machine has, such as `avx2+sha`.
    pub host: String,
    /// What was measured.
    pub rows: Vec<Timing>,
}

/// The time of one thread that one message of a sequence takes, signatures included.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Timing {
    /// `SIGS`, `HMAC`, `SA1` to `SA10`, `uTESLA`: ours, over Ed25519 and SHA-256. With `, the paper's` behind it: over secp160r1 and SHA-1 cut to
    /// 64 bits.
    pub scheme: String,
    /// Messages of the sequence: what a signature is shared by.
    pub messages: u32,
    /// Microseconds at the sender.
    pub sender_us: f64,
    /// Microseconds at a receiver.
    pub receiver_us: f64,
}
