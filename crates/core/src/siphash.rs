//! SipHash-2-4 of 64-bit words under one key. The levels of events and seeded random choices are
//! computed with it.

/// A 16-byte key, expanded to the initial state of SipHash.
#[derive(Clone, Copy)]
pub struct SipKey([u64; 4]);

impl SipKey {
    /// Expands a key.
    #[must_use]
    #[inline]
    pub fn new(key: &[u8; 16]) -> Self {
        let mut halves = key.chunks_exact(8).map(|half| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(half);
            u64::from_le_bytes(bytes)
        });
        let (k0, k1) = (halves.next().unwrap_or(0), halves.next().unwrap_or(0));
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    /// Returns the initial state of SipHash under this key.
    #[must_use]
    pub const fn state(&self) -> [u64; 4] {
        self.0
    }

    /// Returns SipHash-2-4 of the eight little-endian bytes of `message`.
    // Inline the function on 64-bit processors, where the call would take a tenth as long as the
    // hash itself. Do not inline it on smaller processors, because four copies of the code would
    // take up flash.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    #[must_use]
    pub fn hash(&self, message: u64) -> u64 {
        const LENGTH: u64 = 8 << 56;
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        macro_rules! round {
            () => {
                v0 = v0.wrapping_add(v1);
                v2 = v2.wrapping_add(v3);
                v1 = v1.rotate_left(13) ^ v0;
                v3 = v3.rotate_left(16) ^ v2;
                v0 = v0.rotate_left(32);
                v2 = v2.wrapping_add(v1);
                v0 = v0.wrapping_add(v3);
                v1 = v1.rotate_left(17) ^ v2;
                v3 = v3.rotate_left(21) ^ v0;
                v2 = v2.rotate_left(32);
            };
        }
        v3 ^= message;
        round!();
        round!();
        v0 ^= message;
        v3 ^= LENGTH;
        round!();
        round!();
        v0 ^= LENGTH;
        v2 ^= 0xff;
        round!();
        round!();
        round!();
        round!();
        v0 ^ v1 ^ v2 ^ v3
    }
}
