//! Moduli whose factors are public: for tests, and for measurements that need no key generation.
//! They protect nothing.

use super::accumulator::{KeyError, Trapdoor};

/// Reads hexadecimal digits of a constant.
fn number(digits: &str) -> Vec<u8> {
    num_bigint::BigUint::parse_bytes(digits.as_bytes(), 16).unwrap_or_default().to_bytes_be()
}

/// Returns the key of D5.3 with its factors. The key is in the sample message of figure 15 (member
/// `pk`) and has 245 bits. One processor finds its factors in about a minute.
///
/// # Errors
/// [`KeyError`].
pub fn d5_3() -> Result<Trapdoor, KeyError> {
    let p = number("0196c51aaf7fd44e8a0a32d8b5e5cef7");
    let q = number("0d098762f48bda219c9076de4be46c27");
    Trapdoor::from_primes(&p, &q)
}

/// Returns a modulus of 2,048 bits, from two safe primes of public groups: the second Oakley group
/// (RFC 2409, section 6.2) and the group of 1,024 bits for SRP (RFC 5054, appendix A).
///
/// # Errors
/// [`KeyError`].
pub fn bits_2048() -> Result<Trapdoor, KeyError> {
    Trapdoor::from_primes(&number(OAKLEY_1024), &number(SRP_1024))
}

/// Returns a modulus of 3,072 bits, from two safe primes of public groups: the group of 1,536 bits
/// for IKE (RFC 3526, section 2) and the one for SRP (RFC 5054, appendix A).
///
/// # Errors
/// [`KeyError`].
pub fn bits_3072() -> Result<Trapdoor, KeyError> {
    Trapdoor::from_primes(&number(IKE_1536), &number(SRP_1536))
}

const IKE_1536: &str = "\
    FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A0879\
    8E3404DDEF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B\
    0BFF5CB6F406B7EDEE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA4836\
    1C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804\
    F1746C08CA237327FFFFFFFFFFFFFFFF";
const OAKLEY_1024: &str = "\
    FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A0879\
    8E3404DDEF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B\
    0BFF5CB6F406B7EDEE386BFB5A899FA5AE9F24117C4B1FE649286651ECE65381FFFFFFFFFFFFFFFF";
const SRP_1024: &str = "\
    EEAF0AB9ADB38DD69C33F80AFA8FC5E86072618775FF3C0B9EA2314C9C256576D674DF7496EA81D3383B4813\
    D692C6E0E0D5D8E250B98BE48E495C1D6089DAD15DC7D7B46154D6B6CE8EF4AD69B15D4982559B297BCF1885\
    C529F566660E57EC68EDBC3C05726CC02FD4CBF4976EAA9AFD5138FE8376435B9FC61D2FC0EB06E3";
const SRP_1536: &str = "\
    9DEF3CAFB939277AB1F12A8617A47BBBDBA51DF499AC4C80BEEEA9614B19CC4D5F4F5F556E27CBDE51C6A94B\
    E4607A291558903BA0D0F84380B655BB9A22E8DCDF028A7CEC67F0D08134B1C8B97989149B609E0BE3BAB63D\
    47548381DBC5B1FC764E3F4B53DD9DA1158BFD3E2B9C8CF56EDF019539349627DB2FD53D24B7C48665772E43\
    7D6C7F8CE442734AF7CCB7AE837C264AE3A9BEB87F8A2FE9B8B5292E5A021FFF5E91479E8CE7A28C2442C6F3\
    15180F93499A234DCF76E3FED135F9BB";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_moduli_have_the_stated_lengths_and_safe_primes() {
        for (trapdoor, bits) in [(d5_3(), 245), (bits_2048(), 2048), (bits_3072(), 3072)] {
            assert_eq!(trapdoor.unwrap().modulus().bits(), bits);
        }
    }
}
