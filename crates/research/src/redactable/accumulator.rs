//! The trapdoor accumulator of PS14 (construction 1, section 2.3.1 of D5.3): numbers modulo an RSA
//! modulus, a hash function to exponents, and roots for the party that knows the factors.
//!
//! A witness `w` of a value `v` in an accumulator `a` satisfies `w^H(v) = a mod n`. Anyone can check
//! it. Only the factors of `n` give the root `w` of a given `a`.
//!
//! `H` must be division intractable: nobody may find values of which one exponent divides the product
//! of others. Exponents are therefore odd and have the full length of the modulus:
//!
//! 1. Compute SHAKE256 of the value, as many bytes as the modulus has.
//! 2. Read them as a big-endian number, and keep the upper `L - 1` bits, where `L` is the number of
//!    bits of the modulus.
//! 3. Set the highest of these bits and the lowest.

use std::fmt;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{
    BoxedUint, ConcatenatingMul as _, Gcd as _, Odd, RandomMod as _, Resize as _, Word,
};
use crypto_primes::{Flavor, is_prime, random_prime};
use moteseal_core::named_errors;
use rand_core::CryptoRng;
use shake::{ExtendableOutput as _, Shake256, Update as _, XofReader as _};

/// The least number of bits of a modulus. Such a modulus is for tests only.
pub const MIN_BITS: u32 = 32;

named_errors! {
    /// Why numbers are not a trapdoor.
    KeyError {
        /// A factor is not a safe prime.
        UnsafePrime => "a factor is not a safe prime; choose a prime p for which (p - 1) / 2 is prime",
        /// The factors are equal.
        EqualPrimes => "the factors are equal; choose two different primes",
        /// The modulus is too short.
        ShortModulus => "the modulus is shorter than 32 bits; choose larger primes",
    }
}

/// An RSA modulus.
#[derive(Clone)]
pub struct Modulus {
    parameters: BoxedMontyParams,
    bits: u32,
}

/// A number modulo an RSA modulus that is neither 0, 1 nor -1, and has no factor in common with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Element(Box<[u8]>);

/// An exponent: the hash of a value.
#[derive(Clone, Debug)]
pub struct Exponent(BoxedUint);

impl Modulus {
    /// Creates a modulus from its bytes, big-endian. Returns `None` if it is even or shorter than
    /// [`MIN_BITS`]. Whether it has two large factors cannot be checked.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let number = BoxedUint::from_be_slice_vartime(&bytes[zeros..]);
        let bits = number.bits_vartime();
        if bits < MIN_BITS {
            return None;
        }
        let odd = Odd::new(number).into_option()?;
        Some(Self { parameters: BoxedMontyParams::new_vartime(odd), bits })
    }

    /// Returns the number of bits.
    #[must_use]
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns the number of bytes of the modulus and of each [`Element`].
    #[must_use]
    pub const fn length(&self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Returns the modulus, big-endian, without leading zeros.
    #[must_use]
    pub fn to_bytes(&self) -> Box<[u8]> {
        self.number().to_be_bytes_trimmed_vartime()
    }

    fn number(&self) -> &BoxedUint {
        self.parameters.modulus().as_ref()
    }

    fn precision(&self) -> u32 {
        self.number().bits_precision()
    }

    /// Reads an element of exactly [`length`](Self::length) bytes, big-endian. Returns `None` if the
    /// number is not in `2..=n - 2`, or has a factor in common with the modulus.
    #[must_use]
    pub fn element(&self, bytes: &[u8]) -> Option<Element> {
        if bytes.len() != self.length() {
            return None;
        }
        let number = BoxedUint::from_be_slice(bytes, self.precision()).ok()?;
        let one = BoxedUint::one_with_precision(self.precision());
        let is_between = number > one && number < self.number().wrapping_sub(&one);
        let is_coprime = is_between && number.gcd_vartime(self.number()) == one;
        is_coprime.then(|| Element(bytes.into()))
    }

    /// Returns whether the bytes of an element are an element modulo this modulus.
    #[must_use]
    pub fn accepts(&self, element: &Element) -> bool {
        self.element(&element.0).is_some()
    }

    fn to_element(&self, number: &BoxedUint) -> Option<Element> {
        let bytes = number.to_be_bytes();
        self.element(bytes.get(bytes.len().checked_sub(self.length())?..)?)
    }

    fn to_number(&self, element: &Element) -> BoxedUint {
        BoxedUint::from_be_slice_truncated(&element.0, self.precision())
    }

    /// Returns the exponent of a value, which consists of these parts: `H` of the module's
    /// documentation.
    #[must_use]
    pub fn exponent(&self, parts: &[&[u8]]) -> Exponent {
        let mut hasher = Shake256::default();
        for part in parts {
            hasher.update(part);
        }
        let mut bytes = vec![0; self.length()];
        hasher.finalize_xof().read(&mut bytes);
        let excess = 8 * self.length() as u32 - (self.bits - 1);
        let mut number = BoxedUint::from_be_slice_truncated(&bytes, self.precision());
        number.unbounded_shr_assign_vartime(excess);
        let highest = self.bits - 2;
        let words = number.as_mut_words();
        words[0] |= 1;
        words[(highest / Word::BITS) as usize] |= 1 << (highest % Word::BITS);
        Exponent(number)
    }

    /// Returns `base^exponent`. Returns `None` if the result is 1 or -1.
    #[must_use]
    pub fn power(&self, base: &Element, exponent: &Exponent) -> Option<Element> {
        self.to_element(&self.raised(&self.to_number(base), exponent))
    }

    fn raised(&self, base: &BoxedUint, Exponent(exponent): &Exponent) -> BoxedUint {
        let base = BoxedMontyForm::new(base.clone(), &self.parameters);
        base.pow_bounded_exp(exponent, exponent.bits_vartime()).retrieve()
    }

    /// Returns whether `witness^exponent` is the accumulator. Both numbers must be elements modulo
    /// this modulus ([`accepts`](Self::accepts)).
    #[must_use]
    pub fn is_witness(&self, witness: &Element, exponent: &Exponent, of: &Element) -> bool {
        self.raised(&self.to_number(witness), exponent) == self.to_number(of)
    }

    /// Draws a random square that is an element.
    pub fn random_square(&self, rng: &mut impl CryptoRng) -> Element {
        loop {
            let root = BoxedUint::random_mod_vartime(rng, self.parameters.modulus().as_nz_ref());
            let square = BoxedMontyForm::new(root, &self.parameters).square().retrieve();
            if let Some(element) = self.to_element(&square) {
                return element;
            }
        }
    }
}

impl PartialEq for Modulus {
    fn eq(&self, other: &Self) -> bool {
        self.number() == other.number()
    }
}

impl Eq for Modulus {}

impl fmt::Debug for Modulus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Modulus").field(self.number()).finish()
    }
}

impl Element {
    /// Returns the number, big-endian, in as many bytes as its modulus has.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A safe prime `p = 2 p' + 1`.
#[derive(Clone)]
struct SafePrime {
    parameters: BoxedMontyParams,
    /// `p'`: the order of the squares modulo `p`.
    order: Odd<BoxedUint>,
}

impl SafePrime {
    fn new(number: BoxedUint) -> Option<Self> {
        if !is_prime(Flavor::Safe, &number) {
            return None;
        }
        Some(Self {
            order: Odd::new(number.wrapping_shr_vartime(1)).into_option()?,
            parameters: BoxedMontyParams::new(Odd::new(number).into_option()?),
        })
    }

    fn modulus(&self) -> &Odd<BoxedUint> {
        self.parameters.modulus()
    }

    /// Reduces a number modulo `p`.
    fn reduced(&self, number: &BoxedUint) -> BoxedUint {
        number.rem(self.modulus().as_nz_ref())
    }

    fn product(&self, a: BoxedUint, b: BoxedUint) -> BoxedUint {
        let [a, b] = [a, b].map(|number| BoxedMontyForm::new(number, &self.parameters));
        a.mul(&b).retrieve()
    }

    /// Returns the root of a square modulo `p`. Returns `None` if the exponent is a multiple of
    /// `p'`, which reveals `p`.
    fn root(&self, square: &BoxedUint, Exponent(exponent): &Exponent) -> Option<BoxedUint> {
        let inverse: Option<BoxedUint> =
            exponent.rem(self.order.as_nz_ref()).invert_odd_mod(&self.order).into();
        let square = BoxedMontyForm::new(self.reduced(square), &self.parameters);
        Some(square.pow(&inverse?).retrieve())
    }
}

/// A modulus with its factors. The type does not protect the factors, so it must not hold a real
/// secret.
#[derive(Clone)]
pub struct Trapdoor {
    modulus: Modulus,
    p: SafePrime,
    q: SafePrime,
    /// `q^-1 mod p`.
    inverse: BoxedUint,
}

impl Trapdoor {
    /// Generates two safe primes, each with half of the bits of the modulus. The modulus has this
    /// number of bits, or one less. 2,048 bits take many seconds.
    ///
    /// # Errors
    /// `ShortModulus`.
    pub fn generate(rng: &mut impl CryptoRng, bits: u32) -> Result<Self, KeyError> {
        if bits < MIN_BITS + 2 {
            return Err(KeyError::ShortModulus);
        }
        let p: BoxedUint = random_prime(rng, Flavor::Safe, bits.div_ceil(2));
        loop {
            let q: BoxedUint = random_prime(rng, Flavor::Safe, bits / 2);
            match Self::new(p.clone(), q) {
                Err(KeyError::EqualPrimes) => {}
                result => return result,
            }
        }
    }

    /// Creates a trapdoor from the bytes of two safe primes, big-endian.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn from_primes(p: &[u8], q: &[u8]) -> Result<Self, KeyError> {
        let [p, q] = [p, q].map(BoxedUint::from_be_slice_vartime);
        Self::new(p, q)
    }

    fn new(p: BoxedUint, q: BoxedUint) -> Result<Self, KeyError> {
        if p == q {
            return Err(KeyError::EqualPrimes);
        }
        let product = p.concatenating_mul(&q).to_be_bytes();
        let modulus = Modulus::from_bytes(&product).ok_or(KeyError::ShortModulus)?;
        let [p, q] = [p, q].map(|prime| SafePrime::new(prime).ok_or(KeyError::UnsafePrime));
        let (p, q) = (p?, q?);
        let inverse: Option<BoxedUint> = p.reduced(q.modulus()).invert_odd_mod(p.modulus()).into();
        Ok(Self { modulus, inverse: inverse.ok_or(KeyError::EqualPrimes)?, p, q })
    }

    /// Returns the modulus.
    #[must_use]
    pub const fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// Returns the root of a square, which is a square too: the number `w` with
    /// `w^exponent = square`. It computes a root modulo each prime and joins both. Returns `None` if
    /// the exponent has a factor in common with the order of the squares, which happens with
    /// negligible probability unless the modulus is short.
    #[must_use]
    pub fn root(&self, square: &Element, exponent: &Exponent) -> Option<Element> {
        let square = self.modulus.to_number(square);
        let (of_p, of_q) = (self.p.root(&square, exponent)?, self.q.root(&square, exponent)?);
        let difference = of_p.sub_mod(&self.p.reduced(&of_q), self.p.modulus().as_nz_ref());
        let factor = self.p.product(difference, self.inverse.clone());
        // At most (p - 1) q + q - 1, so it is below n.
        let joined = self.q.modulus().as_ref().concatenating_mul(&factor).concatenating_add(&of_q);
        self.modulus.to_element(&joined.try_resize(self.modulus.precision())?)
    }
}

impl fmt::Debug for Trapdoor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trapdoor").field("modulus", &self.modulus).finish_non_exhaustive()
    }
}
