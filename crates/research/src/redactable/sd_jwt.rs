//! SD-JWT (RFC 9901), the standard for documents from which their holder leaves claims out: a JSON
//! Web Token with the digests of salted claims, and the claims themselves next to it.
//!
//! ```text
//! disclosure = base64url(["<salt>","<name>",<value>])
//! digest     = base64url(SHA-256(disclosure))
//! message    = <token with the digests>~<disclosure>~<disclosure>~
//! ```
//!
//! This is the part that a comparison needs: the compact form with ES256, claims of the top level, and
//! no key binding, so a copied presentation is valid, too. A claim whose value has digests of its own
//! (RFC 9901, section 4.2.6) and a list with hidden elements are refused. ECDSA is that of
//! `moteseal-core`, which accepts only signatures with a low `s`.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moteseal_core::named_errors;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, SignError, Signer as _};
use rand_core::CryptoRng;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// The length of a salt in bytes, as RFC 9901 recommends (section 9.3).
pub const SALT: usize = 16;
/// The claims that only the format itself uses.
const RESERVED: [&str; 3] = ["_sd", "_sd_alg", "..."];

named_errors! {
    /// Why a message is not issued, not redacted or not accepted.
    Refused {
        /// The key is not a key of ES256.
        Algorithm => "the key is not a key of ES256; use the suite esp256",
        /// A claim has a reserved name.
        Reserved => "a claim is named _sd, _sd_alg or ..., which only the format uses",
        /// The text is not a message in the compact form.
        Spelling => "the text is not an SD-JWT in its compact form",
        /// The signature is not valid.
        Signature => "the signature of the token is not valid",
        /// The digests are not those of SHA-256.
        Hash => "the digests are not those of SHA-256",
        /// A disclosure does not belong to the token, or occurs twice.
        Disclosure => "a disclosure does not belong to the token, or occurs twice",
        /// Two messages cannot be merged because their tokens differ.
        OtherOriginal => "the messages are not from one original; merge messages with the same token",
        /// A claim occurs twice, or a digest does.
        Twice => "a claim or a digest occurs twice",
        /// A value has digests of its own.
        Nested => "a value has digests of its own, which this implementation does not process",
        /// The message does not disclose this claim.
        NoSuchClaim => "the message does not disclose this claim",
        /// The signer failed.
        Signer(error: SignError) => from,
    }
}

/// Issues a message with `shown` claims, and `hidden` claims that its holder can leave out.
///
/// # Errors
/// `Algorithm`, `Reserved`, `Twice` or `Signer`.
pub fn issue(
    key: &SecretKey,
    shown: &Map<String, Value>,
    hidden: &Map<String, Value>,
    rng: &mut impl CryptoRng,
) -> Result<String, Refused> {
    if key.algorithm() != Algorithm::Esp256 {
        return Err(Refused::Algorithm);
    }
    let mut payload = shown.clone();
    let mut disclosures = String::new();
    // The order of the digests must not show the order of the claims.
    let mut digests = BTreeSet::new();
    for (name, value) in hidden {
        if shown.contains_key(name) {
            return Err(Refused::Twice);
        }
        let mut salt = [0; SALT];
        rng.fill_bytes(&mut salt);
        let claim = json!([URL_SAFE_NO_PAD.encode(salt), name, value]);
        let disclosure = URL_SAFE_NO_PAD.encode(claim.to_string());
        digests.insert(digest(&disclosure));
        disclosures += &disclosure;
        disclosures.push('~');
    }
    if shown.keys().chain(hidden.keys()).any(|name| RESERVED.contains(&&**name)) {
        return Err(Refused::Reserved);
    }
    payload.insert("_sd".to_owned(), json!(digests));
    payload.insert("_sd_alg".to_owned(), json!("sha-256"));
    let header = json!({ "alg": "ES256", "typ": "example+sd-jwt" });
    let [header, payload] =
        [header, Value::Object(payload)].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let signed = format!("{header}.{payload}");
    let signature = URL_SAFE_NO_PAD.encode(&*key.signature(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}~{disclosures}"))
}

/// Leaves a claim out. No key is necessary.
///
/// # Errors
/// `NoSuchClaim` or `Spelling`.
pub fn redact(message: &str, name: &str) -> Result<String, Refused> {
    let (token, disclosures) = split(message)?;
    let mut kept = format!("{token}~");
    let mut found = false;
    for disclosure in disclosures {
        let (claim, _) = open(disclosure)?;
        if claim == name {
            found = true;
        } else {
            kept += disclosure;
            kept.push('~');
        }
    }
    if found { Ok(kept) } else { Err(Refused::NoSuchClaim) }
}

/// Verifies two messages with the same token, and joins their disclosures.
///
/// # Errors
/// `OtherOriginal` if the tokens differ, and the errors of [`verify`].
pub fn merge(key: &PublicKey, one: &str, other: &str) -> Result<String, Refused> {
    let (token, disclosures) = split(one)?;
    let (other_token, others) = split(other)?;
    if token != other_token {
        return Err(Refused::OtherOriginal);
    }
    verify(key, one)?;
    verify(key, other)?;
    let mut merged = one.to_owned();
    for disclosure in others.into_iter().filter(|other| !disclosures.contains(other)) {
        merged += disclosure;
        merged.push('~');
    }
    Ok(merged)
}

/// Verifies a message, and returns its claims: those that are always shown, and the disclosed ones.
///
/// # Errors
/// [`Refused`].
pub fn verify(key: &PublicKey, message: &str) -> Result<Map<String, Value>, Refused> {
    if key.algorithm() != Algorithm::Esp256 {
        return Err(Refused::Algorithm);
    }
    let (token, disclosures) = split(message)?;
    let (signed, signature) = token.rsplit_once('.').ok_or(Refused::Spelling)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refused::Spelling)?;
    key.verify(signed.as_bytes(), &signature).map_err(|_| Refused::Signature)?;
    let (header, payload) = signed.split_once('.').ok_or(Refused::Spelling)?;
    let object = |part: &str| {
        let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::Spelling)?;
        serde_json::from_slice::<Map<String, Value>>(&bytes).map_err(|_| Refused::Spelling)
    };
    if object(header)?.get("alg") != Some(&json!("ES256")) {
        return Err(Refused::Algorithm);
    }
    let mut claims = object(payload)?;
    if claims.remove("_sd_alg").is_some_and(|hash| hash != "sha-256") {
        return Err(Refused::Hash);
    }
    let mut digests = BTreeSet::new();
    for listed in claims.remove("_sd").as_ref().and_then(Value::as_array).into_iter().flatten() {
        if !digests.insert(listed.as_str().ok_or(Refused::Spelling)?.to_owned()) {
            return Err(Refused::Twice);
        }
    }
    if claims.values().any(is_nested) {
        return Err(Refused::Nested);
    }
    for disclosure in disclosures {
        // Each digest is used once.
        if !digests.remove(&digest(disclosure)) {
            return Err(Refused::Disclosure);
        }
        let (name, value) = open(disclosure)?;
        if RESERVED.contains(&&*name) {
            return Err(Refused::Reserved);
        }
        if is_nested(&value) {
            return Err(Refused::Nested);
        }
        if claims.insert(name, value).is_some() {
            return Err(Refused::Twice);
        }
    }
    Ok(claims)
}

/// Splits a message into its token and its disclosures.
fn split(message: &str) -> Result<(&str, Vec<&str>), Refused> {
    let message = message.strip_suffix('~').ok_or(Refused::Spelling)?;
    let mut parts = message.split('~');
    let token = parts.next().ok_or(Refused::Spelling)?;
    Ok((token, parts.collect()))
}

/// Returns the name and the value of a disclosed claim.
fn open(disclosure: &str) -> Result<(String, Value), Refused> {
    let bytes = URL_SAFE_NO_PAD.decode(disclosure).map_err(|_| Refused::Spelling)?;
    let (_salt, name, value): (String, String, Value) =
        serde_json::from_slice(&bytes).map_err(|_| Refused::Spelling)?;
    Ok((name, value))
}

fn digest(disclosure: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(disclosure))
}

/// Returns whether a value has digests of hidden claims or elements.
fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            RESERVED.iter().any(|name| members.contains_key(*name))
                || members.values().any(is_nested)
        }
        Value::Array(elements) => elements.iter().any(is_nested),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_disclosure_has_the_digest_of_section_4_2_3() {
        let disclosure = "WyJfMjZiYzRMVC1hYzZxMktJNmNCVzVlcyIsICJmYW1pbHlfbmFtZSIsICJNw7ZiaXVzIl0";
        assert_eq!(digest(disclosure), "X9yH0Ajrdm1Oij4tWso9UzzKJvPoDxwmuEcO3XAdRC0");
        assert_eq!(open(disclosure).unwrap(), ("family_name".to_owned(), json!("Möbius")));
    }
}
