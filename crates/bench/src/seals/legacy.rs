//! RSA-1024 and DSA-512, the paper's signatures (Li et al., section VIII.A), by AWS-LC: for
//! comparison only, and nowhere else in the workspace.
//!
//! `aws-lc-rs` offers neither: it starts at RSA of 2,048 bits and has no DSA. What it is made on
//! still computes both, so this module calls that, and is the only one of `bench` with unsafe code.
//! PKCS #1 v1.5 for RSA, as the paper's time had it; a digest longer than DSA's `q` of 160 bits is
//! cut by the library, as FIPS 186 says. Neither gives security today: a factored RSA-1024 is a
//! matter of money, a discrete logarithm of 512 bits one of minutes.

use std::fmt;
use std::ptr::{NonNull, null, null_mut};

use aws_lc_sys as lc;

/// The digest function that a signature is over.
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

/// The library refused; what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(&'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AWS-LC refuses {}", self.0)
    }
}

impl std::error::Error for Refused {}

/// Turns the library's 1 for success into a result.
const fn done(code: i32, what: &'static str) -> Result<(), Refused> {
    if code == 1 { Ok(()) } else { Err(Refused(what)) }
}

/// An RSA key pair of 1,024 bits.
#[derive(Debug)]
pub(crate) struct Rsa(NonNull<lc::RSA>);

impl Rsa {
    /// Bits of its modulus.
    pub(crate) const BITS: i32 = 1024;
    /// Bytes of a signature.
    pub(crate) const SIGNATURE: usize = 128;

    /// A fresh key.
    pub(crate) fn generate() -> Result<Self, Refused> {
        let what = "an RSA key of 1,024 bits";
        // SAFETY: takes nothing; gives null or an RSA that is ours to free.
        let key = Self(NonNull::new(unsafe { lc::RSA_new() }).ok_or(Refused(what))?);
        // SAFETY: takes nothing; gives null or a number that is ours to free, which happens below
        // on every way out.
        let exponent = NonNull::new(unsafe { lc::BN_new() }).ok_or(Refused(what))?;
        // SAFETY: both pointers are live and nobody else's; the callback may be null.
        let made = unsafe {
            if lc::BN_set_word(exponent.as_ptr(), lc::RSA_F4 as lc::BN_ULONG) == 1 {
                lc::RSA_generate_key_ex(key.0.as_ptr(), Self::BITS, exponent.as_ptr(), null_mut())
            } else {
                0
            }
        };
        // SAFETY: the number is ours, and the key keeps a copy of its own.
        unsafe { lc::BN_free(exponent.as_ptr()) };
        done(made, what)?;
        Ok(key)
    }

    /// Signs a digest.
    pub(crate) fn sign(&self, name: DigestName, digest: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut signature = vec![0; Self::SIGNATURE];
        let mut length = 0;
        // SAFETY: the digest is readable for its length; the signature has the modulus's 128 bytes,
        // the most that is written; the key is live, and signing changes nothing of it but caches,
        // behind the library's own lock.
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
        done(code, "to sign by RSA")?;
        signature.truncate(length as usize);
        Ok(signature)
    }

    /// Whether a signature is this key's of the digest.
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
        // SAFETY: the key is ours, and nothing refers to it any more.
        unsafe { lc::RSA_free(self.0.as_ptr()) };
    }
}

/// A DSA key pair over a modulus of 512 bits.
#[derive(Debug)]
pub(crate) struct Dsa(NonNull<lc::DSA>);

impl Dsa {
    /// Bits of its modulus.
    pub(crate) const BITS: u32 = 512;
    /// Bytes of a signature's two numbers, as the paper would count them; in DER it is a few bytes
    /// longer.
    pub(crate) const SIGNATURE: usize = 40;

    /// Fresh parameters and a fresh key.
    pub(crate) fn generate() -> Result<Self, Refused> {
        let what = "a DSA key of 512 bits";
        // SAFETY: takes nothing; gives null or a DSA that is ours to free.
        let key = Self(NonNull::new(unsafe { lc::DSA_new() }).ok_or(Refused(what))?);
        let pointer = key.0.as_ptr();
        // SAFETY: the key is live and nobody else's; no seed is given, and what is asked to be told
        // where may be null.
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
        // SAFETY: the key is live, nobody else's, and has parameters.
        done(unsafe { lc::DSA_generate_key(pointer) }, what)?;
        Ok(key)
    }

    /// Signs a digest.
    pub(crate) fn sign(&self, name: DigestName, digest: &[u8]) -> Result<Vec<u8>, Refused> {
        // SAFETY: the key is live and has its parameters.
        let most = usize::try_from(unsafe { lc::DSA_size(self.0.as_ptr()) })
            .map_err(|_| Refused("a DSA signature's size"))?;
        let mut signature = vec![0; most];
        let mut length = 0;
        // SAFETY: the digest is readable for its length; the signature has DSA_size bytes, the most
        // that is written; the key is live, and signing changes nothing of it but caches, behind
        // the library's own lock.
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
        done(code, "to sign by DSA")?;
        signature.truncate(length as usize);
        Ok(signature)
    }

    /// Whether a signature is this key's of the digest.
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
        // SAFETY: the key is ours, and nothing refers to it any more.
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
    fn the_papers_keys_sign_every_digest_and_refuse_every_other() {
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
        assert_eq!(rsa.sign(DigestName::Md5, &[0; 20]), Err(Refused("to sign by RSA")));
    }

    #[test]
    fn a_key_is_of_the_papers_size() {
        let (rsa, dsa) = (Rsa::generate().unwrap(), Dsa::generate().unwrap());
        // SAFETY: both keys are live.
        let bits = unsafe {
            (lc::RSA_bits(rsa.0.as_ptr()), lc::BN_num_bits(lc::DSA_get0_p(dsa.0.as_ptr())))
        };
        assert_eq!(bits, (1024, 512));
    }
}
