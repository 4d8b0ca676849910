//! SECOA^S: a sum that is estimated from the maxima of `J` sketches, each by SECOA^M (section II.D
//! of Papadopoulos et al. 2011). The sink combines the certificates by XOR, and folds the SEALs
//! that are at the same position.

use super::max::{self, Claim};
use super::{CERTIFICATE_BYTES, Estimate, Folding, Refused, SEAL_BYTES, Seal, Sketch};
use crate::prf::KEY_BYTES;

/// The length of a source's number, in bytes.
const SOURCE_BYTES: usize = 4;

/// The message from a source or aggregator to an aggregator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partial {
    /// One claim for each sketch.
    pub claims: Vec<Claim>,
}

impl Partial {
    /// Merges the children's messages. Returns `None` if there are no children, or if they have
    /// different numbers of sketches.
    #[must_use]
    pub fn merge(children: Vec<Self>) -> Option<Self> {
        let sketches = children.first()?.claims.len();
        if children.iter().any(|child| child.claims.len() != sketches) {
            return None;
        }
        let mut children: Vec<_> =
            children.into_iter().map(|child| child.claims.into_iter()).collect();
        let claims = (0..sketches)
            .map(|_| Claim::merge(children.iter_mut().filter_map(Iterator::next).collect()));
        Some(Self { claims: claims.collect::<Option<_>>()? })
    }

    /// Encodes the message: all values, then all sources, certificates and SEALs.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(
            self.claims.len() * (1 + SOURCE_BYTES + CERTIFICATE_BYTES + SEAL_BYTES),
        );
        bytes.extend(self.claims.iter().map(|claim| claim.value));
        self.claims.iter().for_each(|claim| bytes.extend(claim.source.to_be_bytes()));
        self.claims.iter().for_each(|claim| bytes.extend(claim.certificate));
        self.claims.iter().for_each(|claim| bytes.extend(claim.seal.to_bytes()));
        bytes
    }

    /// Returns the message that the sink sends to the querier.
    #[must_use]
    pub fn finish(&self) -> Final {
        let mut seals = Positions::default();
        self.claims.iter().for_each(|claim| seals.add(claim.value, claim.seal));
        Final {
            values: self.claims.iter().map(|claim| claim.value).collect(),
            sources: self.claims.iter().map(|claim| claim.source).collect(),
            certificate: xor(self.claims.iter().map(|claim| claim.certificate)),
            seals: seals.0.into_iter().map(|(_, seal)| seal).collect(),
        }
    }
}

/// The message from the sink to the querier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Final {
    /// The maximum of each sketch.
    pub values: Vec<u8>,
    /// The source of each maximum.
    pub sources: Vec<u32>,
    /// The XOR of the certificates of all maxima.
    pub certificate: [u8; CERTIFICATE_BYTES],
    /// For each position of a maximum, in ascending order, the fold of the SEALs at this position.
    pub seals: Vec<Seal>,
}

impl Final {
    /// Encodes the message: values, sources, the certificate, SEALs.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.values.clone();
        self.sources.iter().for_each(|source| bytes.extend(source.to_be_bytes()));
        bytes.extend(self.certificate);
        self.seals.iter().for_each(|seal| bytes.extend(seal.to_bytes()));
        bytes
    }
}

/// A source.
#[derive(Clone)]
pub struct Source(max::Source);

impl Source {
    /// Creates the source with this number, and with the key that it shares with the querier.
    #[must_use]
    pub fn new(number: u32, key: &[u8; KEY_BYTES]) -> Self {
        Self(max::Source::new(number, key))
    }

    /// Returns the source's message for a value in an epoch, with `sketches` sketches.
    #[must_use]
    pub fn report(&self, epoch: u64, sketches: u32, value: u64) -> Partial {
        self.report_sketch(epoch, &Sketch::of(sketches, self.0.number(), epoch, value))
    }

    /// Returns the source's message like [`report`](Self::report), for an existing sketch.
    #[must_use]
    pub fn report_sketch(&self, epoch: u64, sketch: &Sketch) -> Partial {
        Partial {
            claims: (0..)
                .zip(sketch.values())
                .map(|(instance, &value)| self.0.claim(epoch, instance, value))
                .collect(),
        }
    }
}

/// The querier.
#[derive(Clone)]
pub struct Querier(max::Querier);

impl Querier {
    /// Creates the querier of the sources with these keys.
    #[must_use]
    pub fn new(keys: &[[u8; KEY_BYTES]]) -> Self {
        Self(max::Querier::new(keys))
    }

    /// Verifies that no sketch's maximum was changed in transit, and returns the estimated sum over
    /// all sources.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn verify(&self, epoch: u64, sketches: u32, result: &Final) -> Result<Estimate, Refused> {
        let count = usize::try_from(sketches).map_err(|_| Refused::Malformed)?;
        let mut positions: Vec<u8> = result.values.clone();
        positions.sort_unstable();
        positions.dedup();
        if count == 0
            || [result.values.len(), result.sources.len()] != [count; 2]
            || result.seals.len() != positions.len()
        {
            return Err(Refused::Malformed);
        }

        let mut certificates = Vec::with_capacity(count);
        for ((instance, &value), &source) in (0..).zip(&result.values).zip(&result.sources) {
            certificates.push(self.0.certificate(epoch, instance, source, value)?);
        }
        if xor(certificates) != result.certificate {
            return Err(Refused::Inflated);
        }

        let mut seeds = Folding::new();
        for key in &self.0.keys {
            (0..sketches).for_each(|instance| seeds.add(&key.seed(epoch, instance)));
        }
        let collected =
            positions.iter().copied().zip(result.seals.iter().copied()).reduce(rolled_up);
        match collected {
            Some((position, seal)) if seeds.seal().roll(position.into()) == seal => {
                Ok(Estimate::of(&result.values))
            }
            _ => Err(Refused::Deflated),
        }
    }

    /// Returns the message that the sink of an honest network sends, given the sketch of each
    /// source. It is computed from the keys and costs about as much as verification. It is for
    /// experiments with very many sources. Returns `None` unless every source has a sketch and all
    /// sketches have the same size.
    #[must_use]
    pub fn as_aggregated(&self, epoch: u64, sketches: &[Sketch]) -> Option<Final> {
        let instances = sketches.first()?.values().len();
        if sketches.len() != self.0.keys.len()
            || sketches.iter().any(|sketch| sketch.values().len() != instances)
        {
            return None;
        }
        let mut seals = Positions::default();
        let mut result = Final {
            values: Vec::new(),
            sources: Vec::new(),
            certificate: [0; CERTIFICATE_BYTES],
            seals: Vec::new(),
        };
        for (instance, place) in (0..).zip(0..instances) {
            let values = (0_u32..)
                .zip(sketches)
                .filter_map(|(source, sketch)| Some((*sketch.values().get(place)?, source)));
            let (value, std::cmp::Reverse(source)) =
                values.map(|(value, source)| (value, std::cmp::Reverse(source))).max()?;
            let mut seeds = Folding::new();
            self.0.keys.iter().for_each(|key| seeds.add(&key.seed(epoch, instance)));
            seals.add(value, seeds.seal().roll(value.into()));
            result.values.push(value);
            result.sources.push(source);
            result.certificate =
                xor([result.certificate, self.0.certificate(epoch, instance, source, value).ok()?]);
        }
        result.seals = seals.0.into_iter().map(|(_, seal)| seal).collect();
        Some(result)
    }
}

/// The folds of SEALs at each position, in ascending order.
#[derive(Default)]
struct Positions(Vec<(u8, Seal)>);

impl Positions {
    fn add(&mut self, position: u8, seal: Seal) {
        match self.0.binary_search_by_key(&position, |&(position, _)| position) {
            Ok(at) => self.0[at].1 = self.0[at].1.fold(seal),
            Err(at) => self.0.insert(at, (position, seal)),
        }
    }
}

/// Rolls the lower SEAL up to the higher one and folds them.
fn rolled_up((low, folded): (u8, Seal), (high, seal): (u8, Seal)) -> (u8, Seal) {
    (high, folded.roll(u32::from(high - low)).fold(seal))
}

fn xor(certificates: impl IntoIterator<Item = [u8; CERTIFICATE_BYTES]>) -> [u8; CERTIFICATE_BYTES] {
    certificates.into_iter().fold([0; CERTIFICATE_BYTES], |mut all, one| {
        all.iter_mut().zip(one).for_each(|(all, one)| *all ^= one);
        all
    })
}
