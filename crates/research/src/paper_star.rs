//! Geometric Star Chaining as published in Li et al., section IV.C: levels come from an event's
//! content, and `D_i = H(H(e) || D_i)`.
//!
//! The product hashes complete blocks and takes levels from salted sequence numbers;
//! docs/decisions/0002 gives the reasons.

use moteseal_core::digest::Digest;
use moteseal_core::signature::{PublicKey, SignError, Signer};

use crate::content_levels::{LEVELS, level};
use crate::scheme::{Ask, Context, OpenError, Row, Scheme, Sealed, Unsupported};
use crate::wire::{Input, put_event, put_u32};

/// The running digests on the device. An event of up to 55 bytes takes three compressions.
#[derive(Clone, Debug)]
pub struct RunningStar([Digest; LEVELS as usize]);

impl RunningStar {
    /// Creates a star without events.
    #[must_use]
    pub const fn new() -> Self {
        Self([Digest::NULL; LEVELS as usize])
    }

    /// Adds an event and returns its level.
    pub fn push(&mut self, event: &[u8]) -> u8 {
        let level = level(event);
        self.fold(level, event);
        level
    }

    /// Adds an event to a level by the paper's step.
    #[inline]
    pub fn fold(&mut self, level: u8, event: &[u8]) {
        let running = &mut self.0[usize::from(level)];
        *running = Digest::of(&[&Digest::of(&[event]).0, &running.0]);
    }

    /// Returns the digest over the digests of all levels, each preceded by the number of its level.
    #[must_use]
    pub fn root(&self) -> Digest {
        let parts: Vec<u8> = (0..LEVELS)
            .zip(&self.0)
            .flat_map(|(level, digest)| [&[level][..], &digest.0].concat())
            .collect();
        Digest::of(&[&parts])
    }
}

impl Default for RunningStar {
    fn default() -> Self {
        Self::new()
    }
}

/// The paper's star. Its rows have no sequence numbers: a block proves the order of its events, but
/// not their positions in the epoch.
#[derive(Clone, Copy, Debug, Default)]
pub struct PaperStar;

fn mask(ask: &Ask<'_>) -> Option<u32> {
    match ask {
        Ask::All => Some((1 << LEVELS) - 1),
        Ask::Rate(rate) => rate.levels(LEVELS),
        Ask::Events(_) => None,
    }
}

impl Scheme for PaperStar {
    fn name(&self) -> &'static str {
        "star (paper)"
    }

    fn seal(
        &self,
        context: &Context,
        signer: &dyn Signer,
        events: &[Vec<u8>],
    ) -> Result<Sealed, SignError> {
        let mut star = RunningStar::new();
        for event in events {
            star.push(event);
        }
        let signature = signer.signature(&context.message("star", &star.root().0))?.to_vec();
        Ok(Sealed { digests: star.0.to_vec(), ..Sealed::new(signer, events, vec![signature]) })
    }

    /// Serves the selected blocks, and the digest of every other block.
    fn serve(
        &self,
        context: &Context,
        sealed: &Sealed,
        ask: &Ask<'_>,
    ) -> Result<Vec<u8>, Unsupported> {
        let mask = mask(ask).ok_or(Unsupported)?;
        let mut out = Vec::new();
        for at in 0..LEVELS {
            if mask >> at & 1 == 0 {
                out.extend(sealed.digests[usize::from(at)].0);
                continue;
            }
            let block: Vec<&Vec<u8>> =
                sealed.events.iter().filter(|event| level(event) == at).collect();
            put_u32(&mut out, block.len());
            block.iter().for_each(|event| put_event(&mut out, context.framing, event));
        }
        out.extend(&sealed.signatures[0]);
        Ok(out)
    }

    fn open(
        &self,
        context: &Context,
        key: &PublicKey,
        served: &[u8],
        ask: &Ask<'_>,
    ) -> Result<Vec<Row>, OpenError> {
        let mask = mask(ask).ok_or(OpenError::Unsupported)?;
        let mut input = Input(served);
        let mut star = RunningStar::new();
        let mut rows = Vec::new();
        for at in 0..LEVELS {
            if mask >> at & 1 == 0 {
                star.0[usize::from(at)] = input.digest()?;
                continue;
            }
            let count = input.u32()?;
            for event in input.events(context.framing, count)? {
                if level(event) != at {
                    return Err(OpenError::NotAsAsked);
                }
                star.fold(at, event);
                rows.push(Row { seq: None, event: event.to_vec() });
            }
        }
        key.verify(&context.message("star", &star.root().0), input.signature())
            .map_err(|_| OpenError::NotAuthentic)?;
        Ok(rows)
    }

    fn device_state(&self, _: u64, _: usize) -> u64 {
        u64::from(LEVELS) * 32
    }
}
