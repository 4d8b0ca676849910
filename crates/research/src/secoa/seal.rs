//! SEALs (section II.D of Papadopoulos et al. 2011). A SEAL is a seed that has been encrypted
//! repeatedly with RSA's public key. Rolling encrypts it once more. Folding multiplies two SEALs,
//! and the product is the SEAL of the product of their seeds.

use crypto_bigint::modular::{ConstMontyForm, ConstMontyParams};
use crypto_bigint::{U1024, Uint, const_monty_params};

/// The length of a SEAL, in bytes.
pub const SEAL_BYTES: usize = 128;

// The RSA-1024 challenge number of RSA Laboratories. Its factors are not publicly known, and are
// not needed here.
const_monty_params!(
    Rsa1024,
    U1024,
    "C05748BBFB5ACD7E5A77DC03D9EC7D8BB957C1B95D9B206090D83FD1B67433CE83EAD7376CCFD612C72901F4CE0A2E07E322D438EA4F34647555D62D04140E10\
     84E999BB4CD5F947A76674009E2318549FD102C5F7596EDC332A0DDEE3A355186B9A046F0F96A279C1448A9151549DC663DA8A6E89CF8F511BAED6450DA2C1CB",
    "The modulus."
);

type Residue = ConstMontyForm<Rsa1024, { U1024::LIMBS }>;

/// A SEAL, or the fold of several SEALs at the same position of their chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal(Residue);

impl Seal {
    /// Creates the SEAL of a seed at a position, which is the number of encryptions.
    #[must_use]
    pub fn of(seed: &[u8; 20], position: u32) -> Self {
        Self(Residue::new(&widened(seed))).roll(position)
    }

    /// Rolls the SEAL forward by this number of positions. Each takes two modular multiplications,
    /// because the exponent is 3.
    #[must_use]
    pub fn roll(self, positions: u32) -> Self {
        let mut residue = self.0;
        for _ in 0..positions {
            residue = residue.square().mul(&residue);
        }
        Self(residue)
    }

    /// Folds two SEALs at the same position. Takes one modular multiplication.
    #[must_use]
    pub const fn fold(self, other: Self) -> Self {
        Self(self.0.mul(&other.0))
    }

    /// Encodes the SEAL for sending: the residue `x` is sent as `x * 2^1024 mod n`, big-endian.
    /// Anyone can convert this form to `x`, and aggregators can compute with it directly.
    #[must_use]
    pub fn to_bytes(self) -> [u8; SEAL_BYTES] {
        self.0.as_montgomery().to_be_bytes().into()
    }

    /// Decodes the bytes of [`to_bytes`](Self::to_bytes); `None` if the number is `n` or larger.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; SEAL_BYTES]) -> Option<Self> {
        let residue = U1024::from_be_slice(bytes);
        (residue < *Residue::MODULUS.as_ref()).then(|| Self(Residue::from_montgomery(residue)))
    }

    /// Returns the residue, big-endian.
    #[must_use]
    pub fn residue(self) -> [u8; SEAL_BYTES] {
        self.0.retrieve().to_be_bytes().into()
    }
}

/// The fold of many seeds at position 0. Each seed takes one modular multiplication. A querier
/// folds very many seeds.
#[derive(Clone, Copy, Debug)]
pub struct Folding {
    /// The product of all seeds. Each seed is used as if it were already in Montgomery form, so
    /// each factor lacks a factor of `2^1024`.
    product: Residue,
    seeds: u64,
}

impl Folding {
    /// Creates an empty fold.
    #[must_use]
    pub const fn new() -> Self {
        Self { product: Residue::ONE, seeds: 0 }
    }

    /// Adds a seed to the fold.
    pub fn add(&mut self, seed: &[u8; 20]) {
        self.product = self.product.mul(&Residue::from_montgomery(widened(seed)));
        self.seeds += 1;
    }

    /// Returns the SEAL at position 0 of all seeds.
    #[must_use]
    pub fn seal(&self) -> Seal {
        // `r2` is `2^2048`, which is the Montgomery form of `2^1024`.
        let missing = Residue::from_montgomery(*Rsa1024::PARAMS.r2())
            .pow_vartime(&Uint::<1>::from(self.seeds));
        Seal(self.product.mul(&missing))
    }
}

impl Default for Folding {
    fn default() -> Self {
        Self::new()
    }
}

fn widened(seed: &[u8; 20]) -> U1024 {
    let mut bytes = [0; SEAL_BYTES];
    bytes[SEAL_BYTES - 20..].copy_from_slice(seed);
    U1024::from_be_slice(&bytes)
}
