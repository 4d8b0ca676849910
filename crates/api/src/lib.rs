//! The HTTP contract between a cloud and those who use it: paths, queries, listings, problem codes. No sockets.
//!
//! What carries proof travels as the items of `spec/formats.md`, section 4 (`application/cbor-seq`); everything here is the
//! frame around them and proves nothing. A client takes no number of a listing for more than a hint where to look.

#![forbid(unsafe_code)]

mod error;
pub mod listing;
pub mod paths;
pub mod problem;
pub mod query;

pub use error::ErrorKind;
pub use listing::{
    Conflict, DeviceEntry, DeviceList, ManifestReceipt, Newest, Receipt, SealEntry, SealList,
};
pub use problem::{Place, Problem};
pub use query::{Query, QueryError};

/// The media type of item streams (RFC 8742): uploads, answers, bundles, explanations.
pub const CBOR_SEQ: &str = "application/cbor-seq";
/// The media type of manifests (RFC 9052): a tagged `COSE_Sign1`.
pub const COSE: &str = "application/cose";
/// The media type of queries and listings.
pub const JSON: &str = "application/json";
/// The media type of refusals (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An answer's runs have at most this many parts, so that a client need not hold more before it may use any.
pub const RUN_PARTS: usize = 64;
/// An answer's runs end with the part that takes them past this many bytes.
pub const RUN_BYTES: usize = 16 << 20;

/// A device id from its sixteen hexadecimal digits; `None` if these are others.
#[must_use]
pub fn parse_device(text: &str) -> Option<moteseal_core::DeviceId> {
    let mut id = [0; 8];
    hex::decode_to_slice(text, &mut id).ok()?;
    Some(moteseal_core::DeviceId(id))
}
