//! The schemes behind one interface: a message of fields, of which one is left out or replaced.

use std::collections::BTreeMap;

use moteseal_core::signature::SecretKey;
use moteseal_lab::redactable::{FIELD_BYTES, Properties};
use moteseal_research::redactable::document::Document;
use moteseal_research::redactable::signing::SigningKey;
use moteseal_research::redactable::{bps12, mpps14_accumulated, mpps14_hashed, ps14, sd_jwt};
use serde_json::{Map, Value};

use super::rng;

/// The properties of PS14 with its three moduli.
pub(super) const PS14: [Properties; 3] =
    [ps14("PS14, 245 bits"), ps14("PS14, 2,048 bits"), ps14("PS14, 3,072 bits")];

const fn ps14(name: &'static str) -> Properties {
    Properties {
        name,
        hidden: "parts, and that there were more",
        redactor: "anyone",
        linked: "forms of one message, by the tag",
    }
}

/// The properties of BPS12 on its two curves.
pub(super) const BPS12: [Properties; 2] = [bps12("BPS12, P-192"), bps12("BPS12, P-256")];

const fn bps12(name: &'static str) -> Properties {
    Properties {
        name,
        hidden: "replaced contents, not that the sanitiser signed",
        redactor: "the named sanitiser, in admissible blocks",
        linked: "forms of one message, by s_FIX",
    }
}

/// The properties of MPPS14 in its two forms.
pub(super) const MPPS14: [Properties; 2] = [
    Properties {
        name: "MPPS14, hashes, P-256",
        hidden: "subtrees, not their places",
        redactor: "anyone",
        linked: "forms of one tree, by the signature",
    },
    Properties {
        name: "MPPS14, accumulators of 2,048 bits, P-256",
        hidden: "subtrees and their number; inner nodes where the signer allows it",
        redactor: "anyone",
        linked: "forms of one tree, by the signature",
    },
];

/// The properties of SD-JWT.
pub(super) const SD_JWT: Properties = Properties {
    name: "SD-JWT, ES256",
    hidden: "claims, not their number",
    redactor: "anyone",
    linked: "forms of one message, by the signature",
};

/// A scheme.
pub(super) trait Redactable {
    /// A signed message.
    type Signed: 'static;

    /// Signs a message with this number of fields.
    fn sign(&self, fields: usize) -> Result<Self::Signed, String>;

    /// Leaves a field out, or replaces it.
    fn redact(&self, signed: &Self::Signed, field: usize) -> Result<Self::Signed, String>;

    /// Verifies a message.
    fn verify(&self, signed: &Self::Signed) -> Result<(), String>;

    /// Merges two redacted forms; `None` if the scheme cannot merge.
    fn merge(
        &self,
        one: &Self::Signed,
        other: &Self::Signed,
    ) -> Option<Result<Self::Signed, String>>;

    /// Returns the bytes of a message.
    fn length(&self, signed: &Self::Signed) -> usize;
}

/// Returns the content of a field.
pub(super) fn content(field: usize) -> String {
    format!("{field:0width$}", width = FIELD_BYTES)
}

fn contents(fields: usize) -> Vec<String> {
    (0..fields).map(content).collect()
}

pub(super) fn text(error: impl ToString) -> String {
    error.to_string()
}

/// PS14.
pub(super) struct Set(pub(super) ps14::SecretKey);

impl Redactable for Set {
    type Signed = ps14::Signed;

    fn sign(&self, fields: usize) -> Result<Self::Signed, String> {
        let parts = contents(fields);
        self.0.sign(&[7; ps14::TAG], parts.iter().map(String::as_bytes)).map_err(text)
    }

    fn redact(&self, signed: &Self::Signed, field: usize) -> Result<Self::Signed, String> {
        let mut less = signed.clone();
        less.redact(content(field).as_bytes()).map_err(text)?;
        Ok(less)
    }

    fn verify(&self, signed: &Self::Signed) -> Result<(), String> {
        self.0.public().verify(signed).map_err(text)
    }

    fn merge(
        &self,
        one: &Self::Signed,
        other: &Self::Signed,
    ) -> Option<Result<Self::Signed, String>> {
        Some(self.0.public().merge(one, other).map_err(text))
    }

    fn length(&self, signed: &Self::Signed) -> usize {
        signed.to_bytes().len()
    }
}

/// BPS12. The sanitiser may replace every block.
pub(super) struct Bps12<K: SigningKey> {
    signer: K,
    sanitiser: K,
    keys: [K::Public; 2],
}

impl<K: SigningKey> Bps12<K> {
    pub(super) fn new(signer: K, sanitiser: K) -> Self {
        let keys = [&signer, &sanitiser].map(SigningKey::public);
        Self { signer, sanitiser, keys }
    }
}

impl<K: SigningKey> Redactable for Bps12<K>
where
    K::Public: 'static,
{
    type Signed = bps12::Signed<K::Public>;

    fn sign(&self, fields: usize) -> Result<Self::Signed, String> {
        let blocks = contents(fields);
        let blocks: Vec<_> = blocks.iter().map(String::as_bytes).collect();
        let admissible: Vec<_> = (0..fields).collect();
        bps12::sign(&self.signer, &self.keys[1], &blocks, &admissible).map_err(text)
    }

    fn redact(&self, signed: &Self::Signed, field: usize) -> Result<Self::Signed, String> {
        let replaced = BTreeMap::from([(field, Vec::new())]);
        bps12::sanitise(&self.sanitiser, &self.keys[0], signed, &replaced).map_err(text)
    }

    fn verify(&self, signed: &Self::Signed) -> Result<(), String> {
        bps12::judge(&self.keys[0], &self.keys[1], signed).map(|_| ()).map_err(text)
    }

    fn merge(&self, _: &Self::Signed, _: &Self::Signed) -> Option<Result<Self::Signed, String>> {
        None
    }

    fn length(&self, signed: &Self::Signed) -> usize {
        signed.to_bytes().len()
    }
}

/// Returns a tree with a node for each field below its root.
fn document(fields: usize) -> Document {
    let leaves = contents(fields).into_iter().map(|content| Document::new(content, Vec::new()));
    Document::new(Vec::new(), leaves.collect())
}

/// MPPS14 with hashes.
pub(super) struct Hashed(pub(super) SecretKey);

impl Redactable for Hashed {
    type Signed = mpps14_hashed::Signed;

    fn sign(&self, fields: usize) -> Result<Self::Signed, String> {
        mpps14_hashed::sign(&self.0, &document(fields), &mut rng()).map_err(text)
    }

    fn redact(&self, signed: &Self::Signed, field: usize) -> Result<Self::Signed, String> {
        let mut less = signed.clone();
        less.redact(&[field]).map_err(text)?;
        Ok(less)
    }

    fn verify(&self, signed: &Self::Signed) -> Result<(), String> {
        signed.verify(&self.0.public()).map_err(text)
    }

    fn merge(
        &self,
        one: &Self::Signed,
        other: &Self::Signed,
    ) -> Option<Result<Self::Signed, String>> {
        Some(one.merge(other, &self.0.public()).map_err(text))
    }

    fn length(&self, signed: &Self::Signed) -> usize {
        signed.to_bytes().len()
    }
}

/// MPPS14 with accumulators.
pub(super) struct Accumulated(pub(super) mpps14_accumulated::SecretKey<SecretKey>);

impl Redactable for Accumulated {
    type Signed = mpps14_accumulated::Signed;

    fn sign(&self, fields: usize) -> Result<Self::Signed, String> {
        self.0.sign(&document(fields), &mut rng()).map_err(text)
    }

    fn redact(&self, signed: &Self::Signed, field: usize) -> Result<Self::Signed, String> {
        let mut less = signed.clone();
        let (_, node) = signed.root.children.get(field).ok_or("the tree has no such field")?;
        less.redact(&node.id).map_err(text)?;
        Ok(less)
    }

    fn verify(&self, signed: &Self::Signed) -> Result<(), String> {
        self.0.public().verify(signed).map_err(text)
    }

    fn merge(
        &self,
        one: &Self::Signed,
        other: &Self::Signed,
    ) -> Option<Result<Self::Signed, String>> {
        Some(self.0.public().merge(one, other).map_err(text))
    }

    fn length(&self, signed: &Self::Signed) -> usize {
        signed.to_bytes().len()
    }
}

/// SD-JWT. The names of the claims are their numbers.
pub(super) struct SdJwt(pub(super) SecretKey);

impl Redactable for SdJwt {
    type Signed = String;

    fn sign(&self, fields: usize) -> Result<String, String> {
        let claim = |field: usize| (field.to_string(), Value::String(content(field)));
        let hidden = (0..fields).map(claim).collect();
        sd_jwt::issue(&self.0, &Map::new(), &hidden, &mut rng()).map_err(text)
    }

    fn redact(&self, signed: &String, field: usize) -> Result<String, String> {
        sd_jwt::redact(signed, &field.to_string()).map_err(text)
    }

    fn verify(&self, signed: &String) -> Result<(), String> {
        sd_jwt::verify(&self.0.public(), signed).map(|_| ()).map_err(text)
    }

    fn merge(&self, one: &String, other: &String) -> Option<Result<String, String>> {
        Some(sd_jwt::merge(&self.0.public(), one, other).map_err(text))
    }

    fn length(&self, signed: &String) -> usize {
        signed.len()
    }
}
