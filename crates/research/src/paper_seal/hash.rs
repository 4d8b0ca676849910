//! The paper's digest functions, with digests of fixed size.

use std::fmt::Debug;

use sha2::Digest as _;

/// A digest function of section VIII.A.
pub trait Hash: Clone + Debug {
    /// A digest. Memory is counted in digests.
    type Digest: Copy + Debug + Default + Eq + AsRef<[u8]> + 'static;

    /// The name in tables.
    const NAME: &'static str;

    /// The length of a digest, in bytes.
    const LENGTH: usize = size_of::<Self::Digest>();

    /// Returns the digest of the concatenated inputs.
    fn of(parts: &[&[u8]]) -> Self::Digest;
}

macro_rules! hash {
    ($name:ident, $of:ty, $text:literal, $length:literal) => {
        #[doc = concat!($text, ".")]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Hash for $name {
            type Digest = [u8; $length];

            const NAME: &'static str = $text;

            fn of(parts: &[&[u8]]) -> [u8; $length] {
                let mut hash = <$of>::new();
                parts.iter().for_each(|part| hash.update(part));
                hash.finalize().into()
            }
        }
    };
}

hash!(Md5, md5::Md5, "MD5", 16);
hash!(Sha1, sha1::Sha1, "SHA-1", 20);
hash!(Sha256, sha2::Sha256, "SHA-256", 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digests_of_abc_are_the_standards() {
        // The expected digests are from RFC 1321, A.5, and FIPS 180.
        assert_eq!(Md5::of(&[b"a", b"bc"])[..4], [0x90, 0x01, 0x50, 0x98]);
        assert_eq!(Sha1::of(&[b"a", b"bc"])[..4], [0xa9, 0x99, 0x3e, 0x36]);
        assert_eq!(Sha256::of(&[b"a", b"bc"])[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!([Md5::LENGTH, Sha1::LENGTH, Sha256::LENGTH], [16, 20, 32]);
    }
}
