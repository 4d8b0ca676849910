//! The HTTP contract between a cloud and its clients: paths, queries, listings and problems. This
//! crate opens no sockets.
//!
//! This crate is for authors of clients and of clouds. Events and their proofs are sent as the
//! stream items of `spec/answers.md`, section 1 (`application/cbor-seq`). The listings and receipts
//! of this crate are not signed: a client must treat their contents only as hints.
//!
//! ```
//! use moteseal_api::Query;
//!
//! let text = br#"{"devices": ["0123456789abcdef"], "since": 480000, "until": 480024,
//!                 "rate": "1/8"}"#;
//! let query = Query::from_json(text)?;
//! assert_eq!((query.devices.len(), query.since.0), (1, 480_000));
//! # Ok::<(), moteseal_api::QueryError>(())
//! ```

#![forbid(unsafe_code)]

mod error;
pub mod listing;
pub mod paths;
pub mod problem;
pub mod query;
pub mod strict_json;
pub mod summary;

pub use error::{ErrorKind, Named, NamedError};
pub use listing::{
    Conflict, DeviceEntry, DeviceList, EventConflict, EventReceipt, ManifestReceipt, Newest,
    Receipt, SealEntry, SealList,
};
pub use problem::{Place, Problem, ProblemType};
pub use query::{MAX_QUERY_COLUMNS, Query, QueryError, groups_of};

/// The media type of item streams (RFC 8742): uploads, responses, bundles and explaining forms.
pub const CBOR_SEQ: &str = "application/cbor-seq";
/// The header in which a cloud states the version of the roster that it uses, as a decimal number.
/// The statement is not signed: a client reports it, and verifies the response without it.
pub const ROSTER_VERSION: &str = "moteseal-roster-version";
/// The header in which a cloud states where an answer with urgent events ends, as the parameter
/// `after` of the next request. It is not signed.
pub const CURSOR: &str = "moteseal-cursor";
/// The header in which a cloud with workers states the position of an upload in its queue, as a decimal
/// number. It is not signed.
pub const POSITION: &str = "moteseal-position";
/// The header in which a client asks that a read waits until everything up to a position is stored.
pub const AFTER: &str = "moteseal-after";
/// The media type of manifests (RFC 9052): a tagged `COSE_Sign1`.
pub const COSE: &str = "application/cose";
/// The media type of queries and listings.
pub const JSON: &str = "application/json";
/// The media type of problems (RFC 9457).
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The maximum number of parts in a run of a response. A client holds a whole run in memory until
/// it has verified the run's signature.
pub const RUN_PARTS: usize = 64;
/// A cloud ends a run once the parts in the run have this many bytes or more.
pub const RUN_BYTES: usize = 16 << 20;

/// Parses an id of sixteen lower-case hexadecimal digits, in the only form in which programs write
/// it. Returns `None` for any other text.
#[must_use]
pub fn parse_id(text: &[u8]) -> Option<[u8; 8]> {
    let mut id = [0; 8];
    let is_lower = !text.iter().any(u8::is_ascii_uppercase);
    hex::decode_to_slice(text, &mut id).ok().filter(|()| is_lower)?;
    Some(id)
}

/// Parses a device id of sixteen hexadecimal digits. Returns `None` for any other text.
#[must_use]
pub fn parse_device(text: &str) -> Option<moteseal_core::DeviceId> {
    let mut id = [0; 8];
    hex::decode_to_slice(text, &mut id).ok()?;
    Some(moteseal_core::DeviceId(id))
}

/// Parses a digest of 64 hexadecimal digits. Returns `None` for any other text.
#[must_use]
pub fn parse_digest(text: &str) -> Option<moteseal_core::digest::Digest> {
    let mut digest = [0; 32];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(moteseal_core::digest::Digest(digest))
}
