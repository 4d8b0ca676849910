//! Malleable signatures: the schemes of the RERUM project's deliverable D5.3 (2016, sections 2.3 and
//! 2.4), and SD-JWT (RFC 9901) for comparison. A party that is not the signer leaves parts of a
//! signed message out, or replaces them, and what remains still verifies.
//!
//! | module | scheme | source |
//! |---|---|---|
//! | [`ps14`] | a set of parts with a witness each, which anyone can redact and merge | Pöhls and Samelin, "On Updatable Redactable Signatures" (ACNS 2014) |
//! | [`ps14_json`] | its message in JSON, as motes send it | D5.3, figure 15 |
//! | [`bps12`] | blocks that one named party may replace, and everyone sees that it did | Brzuska, Pöhls and Samelin, "Non-Interactive Public Accountability for Sanitizable Signatures" (EuroPKI 2012) |
//! | [`mpps14_hashed`] | a tree whose subtrees anyone can leave out: a Merkle tree with salts | de Meer, Pöhls, Posegga and Samelin, "Redactable Signature Schemes for Trees with Signer-Controlled Non-Leaf-Redactions" (2014); section 2.3.3.2 of D5.3 |
//! | [`mpps14_accumulated`] | the same with accumulators, and inner nodes that anyone can leave out where the signer allows it | the same |
//! | [`sd_jwt`] | claims of a JSON Web Token that its holder can leave out | RFC 9901 |
//!
//! The schemes of D5.3 are built from its text and from their published descriptions. Where these
//! leave a choice open, the module states the choice.
//!
//! [`forgery`] has an attack on D5.3's form of PS14.

pub mod accumulator;
pub mod bps12;
pub mod document;
mod encoding;
pub mod forgery;
pub mod moduli;
pub mod mpps14_accumulated;
pub mod mpps14_hashed;
pub mod ps14;
pub mod ps14_json;
pub mod sd_jwt;
pub mod signing;
