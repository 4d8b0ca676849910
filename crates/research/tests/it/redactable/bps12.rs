//! BPS12 on D5.3's P-192 and on the product's suites.

use std::collections::BTreeMap;

use moteseal_core::signature::{self, Algorithm};
use moteseal_research::redactable::bps12::{Party, Policy, Refused, Signed, judge, sanitise, sign};
use moteseal_research::redactable::signing::{SigningKey, VerifyingKey};
use moteseal_research::secp192r1;
use proptest::prelude::*;

use super::subsets;

const BLOCKS: [&[u8]; 4] = [b"temp", b"27,", b"4556", b""];
/// The blocks that the sanitiser may replace.
const ADMISSIBLE: [usize; 2] = [2, 3];

fn p192(byte: u8) -> secp192r1::SecretKey {
    secp192r1::SecretKey::from_bytes(&[byte; 24]).unwrap()
}

fn modern(byte: u8) -> signature::SecretKey {
    signature::SecretKey::from_seed(Algorithm::Esp256, &[byte; 32]).unwrap()
}

fn changes(changes: &[(usize, &[u8])]) -> BTreeMap<usize, Vec<u8>> {
    changes.iter().map(|(index, content)| (*index, content.to_vec())).collect()
}

/// Runs a check on both curves, with the signer's key, the sanitiser's and a stranger's.
macro_rules! on_both_curves {
    ($check:ident) => {
        $check([3, 5, 7].map(p192));
        $check([3, 5, 7].map(modern));
    };
}

/// The keys of the signer and of the sanitiser, and the signed message.
fn signed<K: SigningKey>(keys: &[K; 3]) -> (K::Public, K::Public, Signed<K::Public>) {
    let [signer, sanitiser] = [&keys[0], &keys[1]].map(SigningKey::public);
    let signed = sign(&keys[0], &sanitiser, &BLOCKS, &ADMISSIBLE).unwrap();
    (signer, sanitiser, signed)
}

#[test]
fn everyone_sees_who_is_accountable() {
    fn check<K: SigningKey>(keys: [K; 3]) {
        let (signer, sanitiser, signed) = signed(&keys);
        assert_eq!(judge(&signer, &sanitiser, &signed), Ok(Party::Signer));
        let replaced = changes(&[(2, b"...")]);
        let sanitised = sanitise(&keys[1], &signer, &signed, &replaced).unwrap();
        assert_eq!(judge(&signer, &sanitiser, &sanitised), Ok(Party::Sanitiser));
        assert_eq!(sanitised.blocks, [&b"temp"[..], b"27,", b"...", b""]);
        // The sanitiser is accountable even if it replaces nothing.
        let same = sanitise(&keys[1], &signer, &signed, &changes(&[])).unwrap();
        assert_eq!(judge(&signer, &sanitiser, &same), Ok(Party::Sanitiser));
        // The roles cannot be exchanged.
        assert!(judge(&sanitiser, &signer, &sanitised).is_err());
        // All versions have the same signature of the fixed blocks, which links them.
        assert_eq!(signed.fixed, sanitised.fixed);
    }
    on_both_curves!(check);
}

#[test]
fn a_sanitiser_replaces_exactly_the_admissible_blocks() {
    fn check<K: SigningKey>(keys: [K; 3]) {
        let (signer, sanitiser, signed) = signed(&keys);
        for set in subsets(&[0, 1, 2, 3]) {
            let replaced: BTreeMap<_, _> = set.iter().map(|at| (*at, b"new".to_vec())).collect();
            let result = sanitise(&keys[1], &signer, &signed, &replaced);
            if set.iter().all(|at| ADMISSIBLE.contains(at)) {
                let result = result.unwrap();
                assert_eq!(judge(&signer, &sanitiser, &result), Ok(Party::Sanitiser));
                for (at, block) in result.blocks.iter().enumerate() {
                    assert_eq!(block, if set.contains(&at) { &b"new"[..] } else { BLOCKS[at] });
                }
            } else {
                assert_eq!(result, Err(Refused::NotAdmissible));
            }
        }
        let absent = changes(&[(4, b"")]);
        assert_eq!(sanitise(&keys[1], &signer, &signed, &absent), Err(Refused::NoSuchBlock));
    }
    on_both_curves!(check);
}

#[test]
fn replacements_in_steps_equal_one_replacement() {
    let keys = [3, 5, 7].map(p192);
    let (signer, _, signed) = signed(&keys);
    let step = |from: &Signed<_>, replaced: &[(usize, &[u8])]| {
        sanitise(&keys[1], &signer, from, &changes(replaced)).unwrap()
    };
    let once = step(&signed, &[(2, b"a"), (3, b"b")]);
    assert_eq!(step(&step(&signed, &[(2, b"a")]), &[(3, b"b")]), once);
    assert_eq!(step(&step(&signed, &[(3, b"b")]), &[(2, b"a")]), once);
    assert_eq!(step(&step(&signed, &[(2, b"x")]), &[(2, b"a"), (3, b"b")]), once);
}

#[test]
fn only_the_named_sanitiser_can_sanitise() {
    fn check<K: SigningKey>(keys: [K; 3]) {
        let (signer, sanitiser, signed) = signed(&keys);
        let replaced = changes(&[(2, b"...")]);
        for wrong in [&keys[0], &keys[2]] {
            let result = sanitise(wrong, &signer, &signed, &replaced);
            assert_eq!(result, Err(Refused::NotSanitiser));
        }
        // A stranger who names itself needs a signature of the fixed blocks.
        let mut foreign = signed.clone();
        foreign.policy.sanitiser = keys[2].public();
        let result = sanitise(&keys[2], &signer, &foreign, &replaced);
        assert_eq!(result, Err(Refused::Fixed));
        assert_eq!(judge(&signer, &keys[2].public(), &signed), Err(Refused::NotSanitiser));
        assert_eq!(judge(&keys[2].public(), &sanitiser, &signed), Err(Refused::Fixed));
    }
    on_both_curves!(check);
}

#[test]
fn equal_keys_are_refused() {
    fn check<K: SigningKey>(keys: [K; 3]) {
        let signer = keys[0].public();
        assert_eq!(sign(&keys[0], &signer, &BLOCKS, &ADMISSIBLE), Err(Refused::SameKey));
        let (_, _, mut signed) = signed(&keys);
        signed.policy.sanitiser = signer.clone();
        assert_eq!(judge(&signer, &signer, &signed), Err(Refused::SameKey));
    }
    on_both_curves!(check);
}

#[test]
fn a_changed_message_is_refused_by_name() {
    fn check<K: SigningKey>(keys: [K; 3]) {
        let (signer, sanitiser, signed) = signed(&keys);
        let refused = |change: &dyn Fn(&mut Signed<K::Public>)| {
            let mut changed = signed.clone();
            change(&mut changed);
            judge(&signer, &sanitiser, &changed).unwrap_err()
        };
        assert_eq!(refused(&|signed| signed.blocks[0] = b"humi".to_vec()), Refused::Fixed);
        assert_eq!(refused(&|signed| signed.blocks[2] = b"4557".to_vec()), Refused::Full);
        assert_eq!(refused(&|signed| signed.blocks.swap(0, 1)), Refused::Fixed);
        assert_eq!(refused(&|signed| drop(signed.blocks.pop())), Refused::BlockCount);
        assert_eq!(refused(&|signed| signed.blocks.push(Vec::new())), Refused::BlockCount);
        assert_eq!(refused(&|signed| assert!(signed.policy.admissible.insert(1))), Refused::Fixed);
        assert_eq!(refused(&|signed| assert!(signed.policy.admissible.remove(&3))), Refused::Fixed);
        assert_eq!(
            refused(&|signed| assert!(signed.policy.admissible.insert(9))),
            Refused::NoSuchBlock
        );
        assert_eq!(refused(&|signed| signed.fixed = signed.full.clone()), Refused::Fixed);
        assert_eq!(refused(&|signed| signed.full = signed.fixed.clone()), Refused::Full);
        assert_eq!(refused(&|signed| signed.full.clear()), Refused::Full);
        assert_eq!(sign(&keys[0], &sanitiser, &BLOCKS, &[4]).unwrap_err(), Refused::NoSuchBlock);
    }
    on_both_curves!(check);
}

/// Real keys do not give a signature that is valid under two keys, so this key accepts everything.
#[derive(Clone, Debug, PartialEq)]
struct Gullible(u8);

impl VerifyingKey for Gullible {
    fn encoded(&self) -> Vec<u8> {
        vec![self.0]
    }

    fn verifies(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

#[test]
fn a_message_that_is_valid_under_both_keys_has_no_accountable_party() {
    let policy = Policy { blocks: 0, admissible: [].into(), sanitiser: Gullible(2) };
    let signed = Signed { blocks: Vec::new(), policy, fixed: Vec::new(), full: Vec::new() };
    assert_eq!(judge(&Gullible(1), &Gullible(2), &signed), Err(Refused::BothKeys));
}

/// Returns the signer's text of the fixed blocks, which a key that records it gets.
#[derive(Debug)]
struct Recording(u8);

impl SigningKey for Recording {
    type Public = Gullible;

    fn public(&self) -> Gullible {
        Gullible(self.0)
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, signature::SignError> {
        Ok(message.to_vec())
    }
}

proptest! {
    #[test]
    fn different_messages_have_different_signed_texts(
        one in (prop::collection::vec(prop::collection::vec(0_u8..3, 0..4), 0..4), any::<u8>()),
        other in (prop::collection::vec(prop::collection::vec(0_u8..3, 0..4), 0..4), any::<u8>()),
    ) {
        let texts = |(blocks, bits): &(Vec<Vec<u8>>, u8)| {
            let admissible: Vec<_> = (0..blocks.len()).filter(|at| bits >> at & 1 == 1).collect();
            let fixed: Vec<_> = (0..).zip(blocks).filter(|(at, _)| !admissible.contains(at))
                .map(|(at, block)| (at, block.clone())).collect::<Vec<(usize, _)>>();
            let blocks: Vec<_> = blocks.iter().map(|block| &block[..]).collect();
            let signed = sign(&Recording(1), &Gullible(2), &blocks, &admissible).unwrap();
            ((fixed, admissible, blocks.len()), signed.fixed, signed.full)
        };
        let (of_one, of_other) = (texts(&one), texts(&other));
        prop_assert_eq!(of_one.1 == of_other.1, of_one.0 == of_other.0);
        prop_assert_eq!(of_one.2 == of_other.2, one.0 == other.0 && of_one.0 == of_other.0);
        prop_assert_ne!(&of_one.1, &of_one.2);
    }
}
