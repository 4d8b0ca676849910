//! Deterministic CBOR and COSE encodings of everything that travels, rests or is signed: spec/formats.md.

pub mod cast;
pub mod cbor;
pub mod cose;
pub mod link;
pub mod serial;
pub mod stream;
pub mod sum;
pub mod tesla;
