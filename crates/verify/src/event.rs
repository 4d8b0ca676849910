//! The results of a [`StreamReader`](crate::StreamReader): verified parts, manifests and the ends
//! of responses.

use std::sync::Arc;

use moteseal_core::digest::Digest;
use moteseal_core::record::{Framing, MAX_LEVELS, Round};
use moteseal_core::schema::{RecordCheck, Schema, SchemaError};
use moteseal_seal::follow::Shape;
use moteseal_seal::sample::{Manifest, Sample};
use moteseal_seal::stream::{Part, Select};
use moteseal_seal::{Authentic, Seal, Statement, Unverified};

/// A schema of a stream. It applies to the parts that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaEntry {
    /// The encoded schema.
    pub bytes: Vec<u8>,
    /// The digest of the encoded schema.
    pub digest: Digest,
    /// How the schema's records are delimited.
    pub framing: Framing,
    /// The check of the schema's records; `None` if every record of the right length is valid.
    pub check: Option<Box<RecordCheck>>,
    /// The number of encrypted columns.
    pub encrypted: usize,
}

impl SchemaEntry {
    /// Decodes a schema.
    ///
    /// # Errors
    /// The errors of [`Schema::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SchemaError> {
        let schema = Schema::decode(bytes)?;
        let framing = schema.record_size().and_then(Framing::fixed).unwrap_or(Framing::Prefixed);
        let check = RecordCheck::of(&schema).map(Box::new);
        let encrypted = schema.encrypted_count();
        Ok(Self { digest: schema.digest(), framing, check, encrypted, bytes: bytes.to_vec() })
    }

    pub(crate) fn shape(&self) -> Shape<'_> {
        Shape {
            digest: self.digest,
            framing: self.framing,
            check: self.check.as_deref(),
            encrypted: self.encrypted,
        }
    }
}

/// One part of a verified run.
#[derive(Debug)]
pub struct Proven<'a> {
    /// The seal.
    pub seal: &'a Seal<Authentic>,
    /// The selected events.
    pub sample: Sample<'a, Authentic>,
    /// The decoded part item.
    pub part: &'a Part<'a>,
    /// The encoded part item.
    pub bytes: &'a [u8],
    /// The digest `D_i` of each level that the part contains, for a star. Null for the other
    /// levels, and for a tree.
    pub blocks: &'a [Digest; MAX_LEVELS],
    /// The schema.
    pub schema: &'a Arc<SchemaEntry>,
}

impl Proven<'_> {
    /// Returns whether the part selects all levels that the seal still has. A bundle's part that
    /// lacks one of them is rejected as `NotWhole`, even if its signature is valid.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let surviving = self.seal.statement().surviving();
        matches!(self.part.select, Select::Levels(mask) if mask == surviving)
    }

    /// Returns the round `j` for which the part contains all of the seal's levels from `j` on and
    /// no lower level. Returns 0 if the part contains all levels, and `None` for every other
    /// selection.
    #[must_use]
    pub fn whole_from(&self) -> Option<Round> {
        match self.part.select {
            Select::Levels(mask) => kept_from(self.seal.statement(), mask),
            Select::Events(_) => None,
        }
    }
}

/// Returns the lowest round `j` for which `mask` contains all levels of the seal from `j` on and no
/// lower level; `None` for every other mask.
#[must_use]
pub fn kept_from(statement: &Statement, mask: u32) -> Option<Round> {
    let lacking = statement.surviving() & !mask;
    #[allow(clippy::cast_possible_truncation)]
    let round = Round((u32::BITS - lacking.leading_zeros()) as u8);
    let holes = mask & 1u32.checked_shl(round.0.into()).map_or(u32::MAX, |next| next - 1);
    (holes == 0 && mask & !statement.surviving() == 0).then_some(round)
}

/// An event of a stream.
// The size is acceptable: an event is passed to the callback at once and never stored.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Event<'a> {
    /// One part of a verified run.
    Proven(Proven<'a>),
    /// The query that a proof answers.
    Proof(&'a str),
    /// A seal's explaining form, not verified: the seal's `COSE_Sign1`, and the concatenated
    /// digests.
    Explain(&'a [u8], &'a [u8]),
    /// A verified manifest of the coordinator, and its tagged `COSE_Sign1`.
    Manifest(Manifest<'a>, &'a [u8]),
    /// The end item: the response is complete.
    End,
    /// The server could not complete the response: the name of the error, and a description.
    Problem(&'a str, &'a str),
}

/// One part of a run that failed verification. None of its content is verified. The client compares
/// it with the explaining form, which the store returns on request, to find the fault.
#[derive(Clone, Debug)]
pub struct Suspect {
    /// The seal, rebuilt from the received part.
    pub seal: Seal<Unverified>,
    /// The digest `D_i` of each received level, for a star. Null for the other levels, and for a
    /// tree.
    pub blocks: [Digest; MAX_LEVELS],
    /// The part item's bytes.
    pub item: Vec<u8>,
    /// The schema of the part.
    pub schema: Arc<SchemaEntry>,
}
