//! Authentic samples that own a copy of their events. They are needed because the parts of an epoch
//! are checked together, but may arrive in several runs.

use core::fmt;
use core::marker::PhantomData;

use crate::level::{Counters, Salt};
use crate::sample::Sample;
use crate::seal::Authentic;
use crate::stream::{Gaps, Select};
use moteseal_core::digest::Digest;
use moteseal_core::record::Framing;
use moteseal_core::record::Scheme;

/// A sample of an authentic seal with a copy of its events in `B`, such as a `Vec<u8>`.
pub struct Kept<B> {
    seal: Digest,
    scheme: Scheme,
    salt: Salt,
    counts: Counters,
    framing: Framing,
    select: KeptSelect<B>,
    events: B,
}

enum KeptSelect<B> {
    Levels(u32),
    Events { encoded: B, length: u32 },
}

impl<B> fmt::Debug for Kept<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("seal", &self.seal).finish_non_exhaustive()
    }
}

impl Sample<'_, Authentic> {
    /// Copies the sample, including its events.
    #[must_use]
    pub fn keep<B: for<'b> From<&'b [u8]>>(&self) -> Kept<B> {
        let select = match &self.select {
            Select::Levels(mask) => KeptSelect::Levels(*mask),
            Select::Events(gaps) => {
                KeptSelect::Events { encoded: B::from(gaps.encoded()), length: gaps.len() }
            }
        };
        Kept {
            seal: self.seal,
            scheme: self.scheme,
            salt: self.salt,
            counts: self.counts,
            framing: self.framing,
            select,
            events: B::from(self.events),
        }
    }
}

impl<B: AsRef<[u8]>> Kept<B> {
    /// Returns the sample, which borrows the copied events.
    #[must_use]
    pub fn sample(&self) -> Sample<'_, Authentic> {
        let select = match &self.select {
            KeptSelect::Levels(mask) => Select::Levels(*mask),
            KeptSelect::Events { encoded, length } => {
                Select::Events(Gaps::checked(encoded.as_ref(), *length))
            }
        };
        Sample {
            seal: self.seal,
            scheme: self.scheme,
            salt: self.salt,
            counts: self.counts,
            framing: self.framing,
            select,
            events: self.events.as_ref(),
            proven: PhantomData,
        }
    }
}
