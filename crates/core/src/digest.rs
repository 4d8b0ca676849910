//! SHA-256 digests, and the tags that separate the uses of SHA-256 in the protocols
//! (spec/objects.md, section 1.4).

use core::fmt;

use sha2::Digest as _;
pub use sha2::block_api::compress256;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of a block that does not exist: 32 zero bytes.
    pub const NULL: Self = Self([0; 32]);

    /// Returns SHA-256 of the concatenation of `parts`.
    #[must_use]
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = sha2::Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Digest {
    /// Writes 64 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Returns the first eight bytes of SHA-256 of the concatenation of `parts`.
#[must_use]
pub fn short(parts: &[&[u8]]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&Digest::of(parts).0[..8]);
    out
}

/// The initial state of SHA-256 (FIPS 180-4, section 5.3.3).
pub const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Returns the digest for a final state of SHA-256: its eight words, each big-endian.
#[must_use]
pub fn state_bytes(state: &[u32; 8]) -> [u8; 32] {
    let mut out = [0; 32];
    for (bytes, word) in out.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    out
}

/// Pads a tag with zeros to `N` bytes.
///
/// # Panics
/// If `text` is longer than `N` bytes. In a constant this is a compile-time error.
#[must_use]
pub const fn tag<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let mut i = 0;
    while i < text.len() {
        out[i] = text[i];
        i += 1;
    }
    out
}
