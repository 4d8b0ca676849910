//! Times of authentication at the sender and at a receiver, as `moteseal-bench broadcast` measured
//! them, for figures 3 and 4.

/// Times of one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The machine's features, such as `avx2+sha`.
    pub host: String,
    /// The measured times.
    pub rows: Vec<Timing>,
}

/// The time of one thread for one message of a sequence, including its share of signatures.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Timing {
    /// `SIGS`, `HMAC`, `SA1` to `SA10`, `uTESLA`: ours, over Ed25519 and SHA-256. With the suffix
    /// `, the paper's`: over secp160r1 and SHA-1 truncated to 64 bits.
    pub scheme: String,
    /// Messages of the sequence, which share a signature.
    pub messages: u32,
    /// Microseconds at the sender.
    pub sender_us: f64,
    /// Microseconds at a receiver.
    pub receiver_us: f64,
}
