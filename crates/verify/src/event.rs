//! What a [`StreamReader`](crate::StreamReader) returns: verified parts, manifests and the ends of
//! responses.

use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::record::{Framing, MAX_LEVELS, Round};
use moteseal_core::schema::{Schema, SchemaError};
use moteseal_seal::follow::Shape;
use moteseal_seal::sample::{Manifest, Sample};
use moteseal_seal::stream::{Part, Select};
use moteseal_seal::{Authentic, Seal, Statement, Unverified};

/// The schema of the parts that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEntry {
    /// Its encoding.
    pub bytes: Vec<u8>,
    /// Its digest.
    pub digest: Digest,
    /// How its records are delimited.
    pub framing: Framing,
}

impl SchemaEntry {
    /// Decodes a schema.
    ///
    /// # Errors
    /// As [`Schema::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SchemaError> {
        let schema = Schema::decode(bytes)?;
        let framing = schema.record_size().and_then(Framing::fixed).unwrap_or(Framing::Prefixed);
        Ok(Self { digest: schema.digest(), framing, bytes: bytes.to_vec() })
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { digest: self.digest, framing: self.framing }
    }
}

/// One part of a verified run.
#[derive(Debug)]
pub struct Proven<'a> {
    /// The seal.
    pub seal: &'a Seal<Authentic>,
    /// The selected events.
    pub sample: Sample<'a, Authentic>,
    /// The item.
    pub part: &'a Part<'a>,
    /// The item's bytes.
    pub bytes: &'a [u8],
    /// A star's `D_i` of each level in the part. Null for the other levels, and for a tree.
    pub blocks: &'a [Digest; MAX_LEVELS],
    /// The schema.
    pub schema: &'a Arc<SchemaEntry>,
}

impl Proven<'_> {
    /// Whether the part selects every existing level. A bundle that lacks one is `NotWhole`, even
    /// if its signature is valid.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let surviving = self.seal.statement().surviving();
        matches!(self.part.select, Select::Levels(mask) if mask == surviving)
    }

    /// The round from which on the part is complete: it has every existing level from this round
    /// on, and none below. 0 if the part is whole; `None` if it selects anything else.
    #[must_use]
    pub fn whole_from(&self) -> Option<Round> {
        match self.part.select {
            Select::Levels(mask) => kept_from(self.seal.statement(), mask),
            Select::Events(_) => None,
        }
    }
}

/// The lowest round from which on `mask` has every existing level, if it has none below.
#[must_use]
pub fn kept_from(statement: &Statement, mask: u32) -> Option<Round> {
    let lacking = statement.surviving() & !mask;
    #[allow(clippy::cast_possible_truncation)]
    let round = Round((u32::BITS - lacking.leading_zeros()) as u8);
    let holes = mask & 1u32.checked_shl(round.0.into()).map_or(u32::MAX, |next| next - 1);
    (holes == 0 && mask & !statement.surviving() == 0).then_some(round)
}

/// An event of a stream.
// Passed to the callback at once, never stored.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Event<'a> {
    /// One part of a verified run.
    Proven(Proven<'a>),
    /// The query of a proof.
    Proof(&'a str),
    /// The explaining form of a seal, not verified: its `COSE_Sign1`, and its digests.
    Explain(&'a [u8], &'a [u8]),
    /// A coordinator's manifest, verified, and its tagged `COSE_Sign1`.
    Manifest(Manifest<'a>, &'a [u8]),
    /// The response is complete.
    End,
    /// The server could not continue: the error's name, and what happened.
    Problem(&'a str, &'a str),
}

/// One part of a run that failed verification, for comparison with the store's explanation. Nothing
/// in it is verified.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The seal, rebuilt from the received part.
    pub seal: Seal<Unverified>,
    /// A star's `D_i` of each received level. Null for the other levels, and for a tree.
    pub blocks: [Digest; MAX_LEVELS],
    /// The part item's bytes.
    pub item: Vec<u8>,
    /// The schema of the part.
    pub schema: Arc<SchemaEntry>,
}
