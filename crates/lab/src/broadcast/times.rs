//! The times of authentication at the sender and at a receiver for figures 3 and 4, as
//! `moteseal-bench broadcast` measured them.

/// The times on one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    /// The machine's instruction set extensions, such as `avx2+sha`.
    pub host: String,
    /// The measured times.
    pub rows: Vec<Timing>,
}

/// The time per message of a sequence in one thread, including the message's share of the
/// signature.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Timing {
    /// The scheme: `SIGS`, `HMAC`, `SA1` to `SA10`, or `uTESLA`. Without a suffix it is our
    /// implementation over Ed25519 and SHA-256. With the suffix `, the paper's`, it is over
    /// secp160r1 and SHA-1 truncated to 64 bits.
    pub scheme: String,
    /// Number of messages in the sequence, which share one signature.
    pub messages: u32,
    /// Time per message at the sender, in microseconds.
    pub sender_us: f64,
    /// Time per message at a receiver, in microseconds.
    pub receiver_us: f64,
}
