//! SD-JWT: all sets of claims, known answers of another implementation, and wrong messages.

use std::slice;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer as _};
use moteseal_research::redactable::sd_jwt::{Refused, issue, merge, redact, verify};
use serde_json::{Map, Value, json};

use super::{orders, rng, subsets};

const HIDDEN: [&str; 3] = ["fine", "place", "temperature"];

fn key() -> SecretKey {
    SecretKey::from_seed(Algorithm::Esp256, &[3; 32]).unwrap()
}

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("an object") };
    map
}

fn claims() -> (Map<String, Value>, Map<String, Value>) {
    let shown = json!({"measurement_id": 42});
    let hidden = json!({"temperature": "27,", "fine": 4556, "place": {"room": "kitchen"}});
    (map(shown), map(hidden))
}

fn issued() -> String {
    let (shown, hidden) = claims();
    issue(&key(), &shown, &hidden, &mut rng(1)).unwrap()
}

#[test]
fn every_set_of_claims_in_every_order_verifies_and_discloses_the_rest() {
    let message = issued();
    let (shown, hidden) = claims();
    for removed in subsets(&HIDDEN) {
        let mut expected = shown.clone();
        let kept = hidden.iter().filter(|(name, _)| !removed.contains(&&***name));
        expected.extend(kept.map(|(name, value)| (name.clone(), value.clone())));
        for order in orders(&removed) {
            let mut less = message.clone();
            for name in order {
                less = redact(&less, name).unwrap();
            }
            assert_eq!(verify(&key().public(), &less).unwrap(), expected);
        }
    }
    assert_eq!(redact(&message, "measurement_id"), Err(Refused::NoSuchClaim));
}

#[test]
fn every_pair_of_messages_merges_to_its_union() {
    let message = issued();
    let sets: Vec<_> = subsets(&HIDDEN)
        .into_iter()
        .map(|set| set.iter().fold(message.clone(), |less, name| redact(&less, name).unwrap()))
        .collect();
    for one in &sets {
        for other in &sets {
            let merged =
                verify(&key().public(), &merge(&key().public(), one, other).unwrap()).unwrap();
            let mut union = verify(&key().public(), one).unwrap();
            union.extend(verify(&key().public(), other).unwrap());
            assert_eq!(merged, union);
        }
    }
    let (shown, hidden) = claims();
    let other = issue(&key(), &shown, &hidden, &mut rng(2)).unwrap();
    assert_eq!(merge(&key().public(), &message, &other), Err(Refused::OtherOriginal));
    let foreign = message.replacen('~', "~W10~", 1);
    assert_eq!(merge(&key().public(), &message, &foreign), Err(Refused::Disclosure));
}

/// The Python package sd-jwt 0.10.4 issued this message.
#[test]
fn a_message_of_another_implementation_verifies() {
    let public = hex::decode(include_str!("sd_jwt_public_key.hex").trim()).unwrap();
    let public = PublicKey::from_bytes(Algorithm::Esp256, &public).unwrap();
    let message = include_str!("sd_jwt_message.txt").trim();
    let (mut all, hidden) = claims();
    all.extend(hidden);
    assert_eq!(verify(&public, message).unwrap(), all);
    let less = redact(message, "fine").unwrap();
    all.remove("fine");
    assert_eq!(verify(&public, &less).unwrap(), all);
}

/// Signs a payload that need not be one of [`issue`].
fn signed(header: &Value, payload: &Value, disclosures: &[Value]) -> String {
    let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let text = format!("{header}.{payload}");
    let signature = URL_SAFE_NO_PAD.encode(&*key().signature(text.as_bytes()).unwrap());
    let mut message = format!("{text}.{signature}~");
    for disclosure in disclosures {
        message += &format!("{}~", URL_SAFE_NO_PAD.encode(disclosure.to_string()));
    }
    message
}

fn digest(disclosure: &Value) -> String {
    use sha2::{Digest as _, Sha256};
    URL_SAFE_NO_PAD.encode(Sha256::digest(URL_SAFE_NO_PAD.encode(disclosure.to_string())))
}

#[test]
fn wrong_messages_are_refused_by_name() {
    let header = json!({"alg": "ES256"});
    let refused = |payload: &Value, disclosures: &[Value]| {
        verify(&key().public(), &signed(&header, payload, disclosures)).map(|_| ())
    };
    let claim = json!(["salt", "a", 1]);
    let with = |claims: &[&Value]| json!({"_sd": claims.iter().map(|claim| digest(claim)).collect::<Vec<_>>(), "b": 2});
    assert_eq!(refused(&with(&[&claim]), slice::from_ref(&claim)), Ok(()));
    // A disclosure of another token, and one that occurs twice.
    assert_eq!(refused(&with(&[]), slice::from_ref(&claim)), Err(Refused::Disclosure));
    let changed = json!(["salt", "a", 2]);
    assert_eq!(refused(&with(&[&claim]), &[changed]), Err(Refused::Disclosure));
    assert_eq!(
        refused(&with(&[&claim]), &[claim.clone(), claim.clone()]),
        Err(Refused::Disclosure)
    );
    // A digest that occurs twice, and two claims with one name.
    assert_eq!(refused(&with(&[&claim, &claim]), &[]), Err(Refused::Twice));
    let same = json!(["pepper", "a", 3]);
    assert_eq!(refused(&with(&[&claim, &same]), &[claim.clone(), same]), Err(Refused::Twice));
    let shown = json!(["salt", "b", 3]);
    assert_eq!(refused(&with(&[&shown]), &[shown]), Err(Refused::Twice));
    for name in ["_sd", "_sd_alg", "..."] {
        let reserved = json!(["salt", name, []]);
        assert_eq!(refused(&with(&[&reserved]), &[reserved]), Err(Refused::Reserved));
    }
    let nested = json!(["salt", "a", {"_sd": []}]);
    assert_eq!(refused(&with(&[&nested]), &[nested]), Err(Refused::Nested));
    assert_eq!(refused(&json!({"list": [{"...": "x"}]}), &[]), Err(Refused::Nested));
    let element = json!(["salt", "element"]);
    assert_eq!(refused(&with(&[&element]), &[element]), Err(Refused::Spelling));
    assert_eq!(refused(&json!({"_sd": [], "_sd_alg": "sha-512"}), &[]), Err(Refused::Hash));
    assert_eq!(refused(&json!({"_sd": [1]}), &[]), Err(Refused::Spelling));

    let none = signed(&json!({"alg": "none"}), &json!({}), &[]);
    assert_eq!(verify(&key().public(), &none), Err(Refused::Algorithm));
    let message = issued();
    assert_eq!(verify(&key().public(), &message[..message.len() - 1]), Err(Refused::Spelling));
    assert_eq!(verify(&key().public(), &message[1..]), Err(Refused::Signature));
    let stranger = SecretKey::from_seed(Algorithm::Esp256, &[4; 32]).unwrap();
    assert_eq!(verify(&stranger.public(), &message), Err(Refused::Signature));
    let edwards = SecretKey::from_seed(Algorithm::Ed25519, &[3; 32]).unwrap();
    assert_eq!(verify(&edwards.public(), &message), Err(Refused::Algorithm));
    let (shown, hidden) = claims();
    assert_eq!(issue(&edwards, &shown, &hidden, &mut rng(1)), Err(Refused::Algorithm));
    assert_eq!(issue(&key(), &hidden, &hidden, &mut rng(1)), Err(Refused::Twice));
    let reserved = map(json!({"...": 1}));
    assert_eq!(issue(&key(), &shown, &reserved, &mut rng(1)), Err(Refused::Reserved));
}

#[test]
fn a_hidden_claim_takes_a_digest_and_a_disclosure() {
    let (shown, hidden) = claims();
    let whole = issued();
    assert_eq!(whole.matches('~').count(), 1 + hidden.len());
    let less = redact(&whole, "fine").unwrap();
    // The salt has 22 characters: ["<22>","fine",4556] has 38 bytes, 51 in base64url, and a tilde.
    assert_eq!(whole.len() - less.len(), 51 + 1);
    // The digest stays.
    let none = issue(&key(), &shown, &Map::new(), &mut rng(1)).unwrap();
    assert!(less.len() > none.len() + 2 * 43);
}
