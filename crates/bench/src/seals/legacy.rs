//! RSA-1024 and DSA-512, the paper's signatures (Li et al., section VIII.A), computed by AWS-LC.
//! They are for comparison only, and no other module of the workspace uses them.
//!
//! `aws-lc-rs` offers neither: its smallest RSA key has 2,048 bits, and it has no DSA. Its C
//! library has both, so this module calls the library directly. It is the only module of `bench`
//! with unsafe code. RSA uses PKCS #1 v1.5, which was usual when the paper was written. If a digest
//! is longer than DSA's `q` of 160 bits, the library truncates it (FIPS 186). Both signatures are
//! insecure today: factoring RSA-1024 is affordable, and a discrete logarithm of 512 bits takes
//! minutes.

use std::fmt;
use std::ptr::{NonNull, null, null_mut};

use aws_lc_sys as lc;

/// The digest function of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigestName {
    Md5,
    Sha1,
    Sha256,
}

impl DigestName {
    const fn nid(self) -> i32 {
        match self {
            Self::Md5 => lc::NID_md5,
            Self::Sha1 => lc::NID_sha1,
            Self::Sha256 => lc::NID_sha256,
        }
    }
}

/// The error if AWS-LC fails. The field is the operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(&'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AWS-LC failed: {}", self.0)
    }
}

impl std::error::Error for Refused {}

/// Converts a return code of the library, which is 1 for success, to a result.
const fn done(code: i32, what: &'static str) -> Result<(), Refused> {
    if code == 1 { Ok(()) } else { Err(Refused(what)) }
}

/// An RSA key pair of 1,024 bits.
#[derive(Debug)]
pub(crate) struct Rsa(NonNull<lc::RSA>);

impl Rsa {
    /// The length of the modulus, in bits.
    pub(crate) const BITS: i32 = 1024;
    /// The length of a signature, in bytes.
    pub(crate) const SIGNATURE: usize = 128;

    /// Generates a key.
    pub(crate) fn generate() -> Result<Self, Refused> {
        let what = "generate an RSA key of 1,024 bits";
        // SAFETY: the function has no arguments; it returns null or an RSA that we own and free.
        let key = Self(NonNull::new(unsafe { lc::RSA_new() }).ok_or(Refused(what))?);
        // SAFETY: the function has no arguments; it returns null or a number that we own. It is
        // freed below, before any return.
        let exponent = NonNull::new(unsafe { lc::BN_new() }).ok_or(Refused(what))?;
        // SAFETY: both pointers are live and not shared; the callback may be null.
        let code = unsafe {
            if lc::BN_set_word(exponent.as_ptr(), lc::RSA_F4 as lc::BN_ULONG) == 1 {
                lc::RSA_generate_key_ex(key.0.as_ptr(), Self::BITS, exponent.as_ptr(), null_mut())
            } else {
                0
            }
        };
        // SAFETY: we own the number, and the key has its own copy.
        unsafe { lc::BN_free(exponent.as_ptr()) };
        done(code, what)?;
        Ok(key)
    }

    /// Signs a digest.
    pub(crate) fn sign(&self, name: DigestName, digest: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut signature = vec![0; Self::SIGNATURE];
        let mut length = 0;
        // SAFETY: the digest is readable for its length. The signature has room for 128 bytes, the
        // length of the modulus, which is the most that the function writes. The key is live.
        // Signing only changes the key's caches, which the library protects with its own lock.
        let code = unsafe {
            lc::RSA_sign(
                name.nid(),
                digest.as_ptr(),
                digest.len(),
                signature.as_mut_ptr(),
                &raw mut length,
                self.0.as_ptr(),
            )
        };
        done(code, "sign with RSA")?;
        signature.truncate(length as usize);
        Ok(signature)
    }

    /// Returns whether a signature of the digest is valid under this key.
    pub(crate) fn verify(&self, name: DigestName, digest: &[u8], signature: &[u8]) -> bool {
        // SAFETY: digest and signature are readable for their lengths; the key is live.
        let code = unsafe {
            lc::RSA_verify(
                name.nid(),
                digest.as_ptr(),
                digest.len(),
                signature.as_ptr(),
                signature.len(),
                self.0.as_ptr(),
            )
        };
        code == 1
    }
}

impl Drop for Rsa {
    fn drop(&mut self) {
        // SAFETY: we own the key, and there are no other references to it.
        unsafe { lc::RSA_free(self.0.as_ptr()) };
    }
}

/// A DSA key pair over a modulus of 512 bits.
#[derive(Debug)]
pub(crate) struct Dsa(NonNull<lc::DSA>);

impl Dsa {
    /// The length of the modulus, in bits.
    pub(crate) const BITS: u32 = 512;
    /// The length of the two numbers of a signature, in bytes. Their DER encoding is a few bytes
    /// longer.
    pub(crate) const SIGNATURE: usize = 40;

    /// Generates parameters and a key.
    pub(crate) fn generate() -> Result<Self, Refused> {
        let what = "generate a DSA key of 512 bits";
        // SAFETY: the function has no arguments; it returns null or a DSA that we own and free.
        let key = Self(NonNull::new(unsafe { lc::DSA_new() }).ok_or(Refused(what))?);
        let pointer = key.0.as_ptr();
        // SAFETY: the key is live and not shared; the seed, the outputs and the callback may be
        // null.
        let code = unsafe {
            lc::DSA_generate_parameters_ex(
                pointer,
                Self::BITS,
                null(),
                0,
                null_mut(),
                null_mut(),
                null_mut(),
            )
        };
        done(code, what)?;
        // SAFETY: the key is live, not shared, and has parameters.
        done(unsafe { lc::DSA_generate_key(pointer) }, what)?;
        Ok(key)
    }

    /// Signs a digest.
    pub(crate) fn sign(&self, name: DigestName, digest: &[u8]) -> Result<Vec<u8>, Refused> {
        // SAFETY: the key is live and has its parameters.
        let most = usize::try_from(unsafe { lc::DSA_size(self.0.as_ptr()) })
            .map_err(|_| Refused("compute the size of a DSA signature"))?;
        let mut signature = vec![0; most];
        let mut length = 0;
        // SAFETY: the digest is readable for its length. The signature has room for DSA_size bytes,
        // which is the most that the function writes. The key is live. Signing only changes the
        // key's caches, which the library protects with its own lock.
        let code = unsafe {
            lc::DSA_sign(
                name.nid(),
                digest.as_ptr(),
                digest.len(),
                signature.as_mut_ptr(),
                &raw mut length,
                self.0.as_ptr(),
            )
        };
        done(code, "sign with DSA")?;
        signature.truncate(length as usize);
        Ok(signature)
    }

    /// Returns whether a signature of the digest is valid under this key.
    pub(crate) fn verify(&self, name: DigestName, digest: &[u8], signature: &[u8]) -> bool {
        // SAFETY: digest and signature are readable for their lengths; the key is live.
        let code = unsafe {
            lc::DSA_verify(
                name.nid(),
                digest.as_ptr(),
                digest.len(),
                signature.as_ptr(),
                signature.len(),
                self.0.as_ptr(),
            )
        };
        code == 1
    }
}

impl Drop for Dsa {
    fn drop(&mut self) {
        // SAFETY: we own the key, and there are no other references to it.
        unsafe { lc::DSA_free(self.0.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DIGESTS: [(DigestName, usize); 3] =
        [(DigestName::Md5, 16), (DigestName::Sha1, 20), (DigestName::Sha256, 32)];

    #[test]
    fn signatures_are_valid_for_their_digest_only() {
        let (rsa, dsa) = (Rsa::generate().unwrap(), Dsa::generate().unwrap());
        for (name, length) in DIGESTS {
            let digest: Vec<u8> = (1..=length).map(|byte| byte as u8).collect();
            let mut other = digest.clone();
            other[0] ^= 1;
            let (by_rsa, by_dsa) =
                (rsa.sign(name, &digest).unwrap(), dsa.sign(name, &digest).unwrap());
            assert_eq!(by_rsa.len(), Rsa::SIGNATURE);
            assert!(
                (Dsa::SIGNATURE..=Dsa::SIGNATURE + 10).contains(&by_dsa.len()),
                "{} bytes of DER",
                by_dsa.len()
            );
            assert!(rsa.verify(name, &digest, &by_rsa) && dsa.verify(name, &digest, &by_dsa));
            assert!(!rsa.verify(name, &other, &by_rsa) && !dsa.verify(name, &other, &by_dsa));
            assert!(
                !rsa.verify(name, &digest, &by_rsa[1..])
                    && !dsa.verify(name, &digest, &by_dsa[1..])
            );
        }
        assert_eq!(rsa.sign(DigestName::Md5, &[0; 20]), Err(Refused("sign with RSA")));
    }

    #[test]
    fn keys_have_the_papers_sizes() {
        let (rsa, dsa) = (Rsa::generate().unwrap(), Dsa::generate().unwrap());
        // SAFETY: both keys are live.
        let bits = unsafe {
            (lc::RSA_bits(rsa.0.as_ptr()), lc::BN_num_bits(lc::DSA_get0_p(dsa.0.as_ptr())))
        };
        assert_eq!(bits, (1024, 512));
    }
}
