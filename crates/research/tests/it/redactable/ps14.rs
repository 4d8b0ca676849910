//! PS14 against integers of any length as the oracle and sets as the model.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use moteseal_research::redactable::accumulator::{KeyError, Modulus, Trapdoor};
use moteseal_research::redactable::forgery::{Forged, forge};
use moteseal_research::redactable::moduli;
use moteseal_research::redactable::ps14::{PublicKey, Refused, SecretKey, Signed};
use moteseal_research::redactable::ps14_json::{Form, JsonError, Message, redact};
use num_bigint::BigUint;
use proptest::prelude::*;
use shake::{ExtendableOutput as _, Shake256, Update as _, XofReader as _};

use super::{orders, rng, subsets};

const PARTS: [&[u8]; 4] = [b"27,", b"4556", b"", b"Celsius"];
const TAG: [u8; 16] = [7; 16];

static KEY: LazyLock<SecretKey> =
    LazyLock::new(|| SecretKey::generate(super::trapdoor(), &mut rng(2)));

fn sign(parts: &[&[u8]]) -> Signed {
    KEY.sign(&TAG, parts.iter().copied()).unwrap()
}

/// Returns the key of D5.3 with the accumulator 4, and its tag.
fn d5_3() -> (SecretKey, Vec<u8>) {
    let trapdoor = moduli::d5_3().unwrap();
    let mut four = vec![0; trapdoor.modulus().length()];
    *four.last_mut().unwrap() = 4;
    let accumulator = trapdoor.modulus().element(&four).unwrap();
    (SecretKey::new(trapdoor, accumulator, 8).unwrap(), hex::decode("0000f42d8ccff646").unwrap())
}

/// The hash function as the module describes it, with integers of any length.
fn exponent(modulus: &BigUint, value: &[u8]) -> BigUint {
    let bits = modulus.bits();
    let length = usize::try_from(bits.div_ceil(8)).unwrap();
    let mut hash = vec![0; length];
    let mut hasher = Shake256::default();
    hasher.update(value);
    hasher.finalize_xof().read(&mut hash);
    let number = BigUint::from_bytes_be(&hash) >> (8 * length as u64 - (bits - 1));
    number | (BigUint::from(1_u8) << (bits - 2)) | BigUint::from(1_u8)
}

/// Returns a witness by the inverse modulo the order of all squares, without the factors' residues.
fn witness(p: &BigUint, q: &BigUint, accumulator: &BigUint, value: &[u8]) -> Option<BigUint> {
    let modulus = p * q;
    let order = (p >> 1_u8) * (q >> 1_u8);
    Some(accumulator.modpow(&exponent(&modulus, value).modinv(&order)?, &modulus))
}

#[test]
fn the_key_of_d5_3_signs_as_the_published_vector() {
    let (key, tag) = d5_3();
    assert_eq!(key.public().modulus().bits(), 245);
    assert_eq!(
        hex::encode(key.public().modulus().to_bytes()),
        "14b7266806c21f19ae181ba2152927e2c39809c46fc32db4ecd4415a4ebba1"
    );
    let signed = key.sign(&tag, [&b"27,"[..], b"4556"]).unwrap();
    let witness = |part: &[u8]| hex::encode(signed.parts[part].as_bytes());
    assert_eq!(
        hex::encode(signed.tag_witness.as_bytes()),
        "0513d19845490efebeb03f57636087163b36abffd72475bcb9e9d38c786d0c"
    );
    assert_eq!(witness(b"27,"), "11ef024c32dcd4eb78220f9c3c481787cfa3eac2d7781c8f44d73cd59a4e65");
    assert_eq!(witness(b"4556"), "04c95b680c40fbf2dda60a92ec0dee92c2e9db751ebd2417aac4aa8c688a75");
    assert_eq!(key.public().verify(&signed), Ok(()));
}

#[test]
fn the_sample_of_d5_3_is_no_signature_of_its_text() {
    let text = moteseal_research::json_signature::MALLEABLY_SIGNED;
    let modulus = moduli::d5_3().unwrap().modulus().clone();
    let message = Message::from_json(text, &modulus).unwrap();
    assert_eq!(message.modulus, Some(modulus.clone()));
    assert!(message.verify_as_d5_3(&modulus).is_err());
}

#[test]
fn messages_in_json_have_the_lengths_of_d5_3() {
    let (key, tag) = d5_3();
    let signed = key.sign(&tag, [&b"temp"[..], b"27,"]).unwrap();
    let text =
        |form| Message::new(42, &signed, &["temp", "27,"], form, key.public()).unwrap().to_json();
    let lengths = [Form::WithKey, Form::WithAccumulator, Form::Mended].map(|form| text(form).len());
    assert_eq!(lengths, [430, 358, 285]);
    // The names of the members and their order are those of figure 15.
    let names = |text: &str| {
        let names = text.split('"').filter(|name| !name.is_empty() && name.len() < 16);
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let sample = moteseal_research::json_signature::MALLEABLY_SIGNED;
    assert_eq!(names(&text(Form::WithKey)), names(sample));
}

#[test]
fn a_message_in_json_is_read_verified_and_redacted() {
    let (key, tag) = d5_3();
    let modulus = key.public().modulus();
    let signed = key.sign(&tag, [&b"27,"[..], b"4556"]).unwrap();
    for form in [Form::WithKey, Form::WithAccumulator, Form::Mended] {
        let message = Message::new(42, &signed, &["27,", "4556"], form, key.public()).unwrap();
        let text = message.to_json();
        let read = Message::from_json(&text, modulus).unwrap();
        assert_eq!(read, message);
        assert_eq!(read.signed(), signed);
        assert_eq!(read.verify(key.public()), Ok(()));
        // The mended message states no accumulator.
        assert_eq!(read.verify_as_d5_3(modulus).is_ok(), form != Form::Mended);

        let less = redact(&text, 2).unwrap();
        let read = Message::from_json(&less, modulus).unwrap();
        assert_eq!(read.verify(key.public()), Ok(()));
        assert_eq!(read.signed().parts.keys().collect::<Vec<_>>(), [b"27,"]);
        assert_eq!(redact(&less, 2), Err(JsonError::NoSuchPart));

        for wrong in [
            text.replace(",\"tag\"", ", \"tag\""),
            text.replace("{\"m", "{\"x\":\"1\",\"m"),
            text.replace("\"2\":\"4556\"", "\"2\":\"4556\",\"2\":\"4556\""),
            text.replace("4556", "\\u00344556"),
            text.replace("0000f42d8ccff646", "0000F42d8ccff646"),
            text.replace("\"s2\"", "\"s3\""),
            text[1..].to_owned(),
        ] {
            assert_ne!(wrong, text);
            assert_eq!(Message::from_json(&wrong, modulus), Err(JsonError::Spelling), "{wrong}");
        }
    }
    let quoted = key.sign(&tag, [&b"\""[..]]).unwrap();
    let written = Message::new(42, &quoted, &["\""], Form::Mended, key.public());
    assert_eq!(written, Err(JsonError::Escapes));
}

#[test]
fn witnesses_equal_those_of_the_oracle() {
    let factors = [
        ("0196c51aaf7fd44e8a0a32d8b5e5cef7", "0d098762f48bda219c9076de4be46c27"),
        // Primes of 32 and 36 bits, and of 65 and 67 bits, whose words are not full.
        ("ffffff2f", "fffffff77"),
        ("1fffffffffffff373", "7fffffffffffffe6b"),
    ];
    for (p, q) in factors {
        let [p, q] = [p, q].map(|digits| BigUint::parse_bytes(digits.as_bytes(), 16).unwrap());
        let trapdoor = Trapdoor::from_primes(&p.to_bytes_be(), &q.to_bytes_be()).unwrap();
        let key = SecretKey::generate(trapdoor, &mut rng(3));
        let accumulator = BigUint::from_bytes_be(key.public().accumulator().as_bytes());
        for part in PARTS {
            let signed = key.sign(&TAG, [part]).unwrap();
            let value = [&[1], &TAG[..], part].concat();
            let expected = witness(&p, &q, &accumulator, &value).unwrap();
            assert_eq!(BigUint::from_bytes_be(signed.parts[part].as_bytes()), expected);
            let of_tag = witness(&p, &q, &accumulator, &[&[0], &TAG[..]].concat()).unwrap();
            assert_eq!(BigUint::from_bytes_be(signed.tag_witness.as_bytes()), of_tag);
        }
    }
}

#[test]
fn long_keys_sign_and_verify() {
    for trapdoor in [moduli::bits_2048(), moduli::bits_3072()] {
        let key = SecretKey::generate(trapdoor.unwrap(), &mut rng(4));
        let signed = key.sign(&TAG, PARTS).unwrap();
        assert_eq!(key.public().verify(&signed), Ok(()));
        // The witness, to the power of its exponent, is the accumulator.
        let modulus = BigUint::from_bytes_be(&key.public().modulus().to_bytes());
        let value = [&[1], &TAG[..], PARTS[0]].concat();
        let witness = BigUint::from_bytes_be(signed.parts[PARTS[0]].as_bytes());
        let accumulator = BigUint::from_bytes_be(key.public().accumulator().as_bytes());
        assert_eq!(witness.modpow(&exponent(&modulus, &value), &modulus), accumulator);
    }
}

#[test]
fn every_subset_verifies_and_shows_exactly_its_parts() {
    let signed = sign(&PARTS);
    for removed in subsets(&PARTS) {
        let mut less = signed.clone();
        for part in &removed {
            less.redact(part).unwrap();
        }
        assert_eq!(KEY.public().verify(&less), Ok(()));
        let model: BTreeSet<_> =
            PARTS.iter().filter(|part| !removed.contains(part)).map(|part| part.to_vec()).collect();
        assert_eq!(less.parts.keys().cloned().collect::<BTreeSet<_>>(), model);
        // A redacted message equals a message that was signed without the removed parts.
        let parts: Vec<_> = model.iter().map(|part| &part[..]).collect();
        assert_eq!(less, sign(&parts));
    }
}

#[test]
fn the_order_of_redactions_does_not_matter() {
    let signed = sign(&PARTS);
    for removed in subsets(&PARTS) {
        let mut results = orders(&removed).into_iter().map(|order| {
            let mut less = signed.clone();
            for part in order {
                less.redact(part).unwrap();
                assert_eq!(KEY.public().verify(&less), Ok(()));
            }
            less
        });
        let first = results.next().unwrap();
        assert!(results.all(|other| other == first));
    }
    assert_eq!(signed.clone().redact(b"absent"), Err(Refused::NoSuchPart));
}

#[test]
fn every_pair_of_subsets_merges_to_its_union() {
    let sets = subsets(&PARTS);
    for one in &sets {
        for other in &sets {
            let merged = KEY.public().merge(&sign(one), &sign(other)).unwrap();
            let union: Vec<_> = PARTS
                .into_iter()
                .filter(|part| one.contains(part) || other.contains(part))
                .collect();
            assert_eq!(merged, sign(&union));
        }
    }
    let other = KEY.sign(&[8; 16], PARTS).unwrap();
    assert_eq!(KEY.public().merge(&sign(&PARTS), &other), Err(Refused::OtherOriginal));
    assert_eq!(
        Refused::OtherOriginal.to_string(),
        "the messages are not from one original; merge messages with the same tag"
    );
}

#[test]
fn every_subset_can_be_updated_to_every_larger_one() {
    for start in subsets(&PARTS) {
        for added in subsets(&PARTS) {
            let mut signed = sign(&start);
            KEY.update(&mut signed, added.iter().copied()).unwrap();
            let union: Vec<_> = PARTS
                .into_iter()
                .filter(|part| start.contains(part) || added.contains(part))
                .collect();
            assert_eq!(signed, sign(&union));
        }
    }
    // A message that is not authentic is not updated.
    let mut foreign = sign(&PARTS);
    foreign.tag_witness = foreign.parts[PARTS[0]].clone();
    assert_eq!(KEY.update(&mut foreign, [&b"more"[..]]), Err(Refused::Tag));
    assert_eq!(foreign.parts.len(), PARTS.len());
}

#[test]
fn foreign_witnesses_are_refused() {
    let public = KEY.public();
    let signed = sign(&PARTS);
    // The witness of another part.
    let mut swapped = signed.clone();
    swapped.parts.insert(PARTS[0].to_vec(), signed.parts[PARTS[1]].clone());
    assert_eq!(public.verify(&swapped), Err(Refused::Part));
    // A part of another message of the same signer.
    let other = KEY.sign(&[8; 16], [&b"29,"[..]]).unwrap();
    let mut mixed = signed.clone();
    mixed.parts.extend(other.parts);
    assert_eq!(public.verify(&mixed), Err(Refused::Part));
    // Another tag.
    let mut retagged = signed.clone();
    retagged.tag = vec![8; 16];
    assert_eq!(public.verify(&retagged), Err(Refused::Tag));
    retagged.tag = vec![7; 17];
    assert_eq!(public.verify(&retagged), Err(Refused::TagLength));
    assert_eq!(KEY.sign(&[7; 8], PARTS), Err(Refused::TagLength));
    // The witness of the tag is no witness of the empty part.
    let mut empty = sign(&[]);
    empty.parts.insert(Vec::new(), empty.tag_witness.clone());
    assert_eq!(public.verify(&empty), Err(Refused::Part));
    // Another key, also with the same modulus.
    let other = SecretKey::generate(super::trapdoor(), &mut rng(9));
    assert_eq!(other.public().modulus(), public.modulus());
    assert_eq!(other.public().verify(&signed), Err(Refused::Tag));
}

#[test]
fn numbers_out_of_range_and_with_a_common_factor_are_refused() {
    let trapdoor = moduli::d5_3().unwrap();
    let modulus = trapdoor.modulus();
    let n = BigUint::from_bytes_be(&modulus.to_bytes());
    let element = |number: &BigUint| {
        let digits = number.to_bytes_be();
        let padded = [vec![0; modulus.length() - digits.len()], digits].concat();
        modulus.element(&padded)
    };
    let p = BigUint::parse_bytes(b"0196c51aaf7fd44e8a0a32d8b5e5cef7", 16).unwrap();
    let two = BigUint::from(2_u8);
    for refused in [
        BigUint::ZERO,
        BigUint::from(1_u8),
        &n - 1_u8,
        n.clone(),
        &n + 1_u8,
        p.clone(),
        &n - &p,
        &p * 5_u8,
    ] {
        assert_eq!(element(&refused), None, "{refused}");
    }
    for accepted in [two.clone(), &n - 2_u8, p + 1_u8] {
        assert!(element(&accepted).is_some(), "{accepted}");
    }
    assert_eq!(modulus.element(&[2]), None);
    assert_eq!(modulus.element(&[0; 40]), None);

    // A witness that is an element modulo a longer modulus is refused by name.
    let (key, tag) = d5_3();
    let mut signed = key.sign(&tag, PARTS).unwrap();
    let foreign = moduli::bits_2048().unwrap().modulus().random_square(&mut rng(5));
    signed.parts.insert(PARTS[0].to_vec(), foreign.clone());
    assert_eq!(key.public().verify(&signed), Err(Refused::Number));
    assert_eq!(PublicKey::new(modulus.clone(), foreign, 8), Err(Refused::Number));
}

#[test]
fn wrong_keys_are_refused_by_name() {
    let bytes = |digits: &str| hex::decode(digits).unwrap();
    let (p, q) =
        (bytes("0196c51aaf7fd44e8a0a32d8b5e5cef7"), bytes("0d098762f48bda219c9076de4be46c27"));
    let error = |p: &[u8], q: &[u8]| Trapdoor::from_primes(p, q).map(|_| ()).unwrap_err();
    assert_eq!(error(&p, &p), KeyError::EqualPrimes);
    // 13 is a prime, but 6 is not.
    assert_eq!(error(&p, &[13]), KeyError::UnsafePrime);
    assert_eq!(error(&p, &[15]), KeyError::UnsafePrime);
    // 23 and 47 are safe primes.
    assert_eq!(error(&[23], &[47]), KeyError::ShortModulus);
    assert!(Trapdoor::from_primes(&q, &p).is_ok());
    assert!(matches!(Trapdoor::generate(&mut rng(1), 33), Err(KeyError::ShortModulus)));
    assert_eq!(Modulus::from_bytes(&[1, 0, 0, 0, 0, 0]), None);
    assert_eq!(Modulus::from_bytes(&[]), None);
    assert!(!format!("{:?}", KEY.clone()).contains("order"));
}

/// The attack of section 24: without a secret key, for any set.
#[test]
fn the_accumulator_in_the_message_lets_anyone_forge_and_the_mended_form_does_not() {
    let (key, tag) = d5_3();
    let public = key.public();
    let modulus = public.modulus();
    let mut z = vec![0; modulus.length()];
    *z.last_mut().unwrap() = 3;
    let parts: [&[u8]; 2] = [b"99,", b"0000"];
    let Forged { accumulator, signed } =
        forge(modulus, &modulus.element(&z).unwrap(), &tag, &parts).unwrap();

    let stated = PublicKey::new(modulus.clone(), accumulator, 8).unwrap();
    let forged = Message::new(42, &signed, &["99,", "0000"], Form::WithKey, &stated).unwrap();
    let forged = Message::from_json(&forged.to_json(), modulus).unwrap();
    assert_eq!(forged.verify_as_d5_3(modulus), Ok(()));
    assert_eq!(forged.verify(public), Err(Refused::Tag));
}

/// The same for a key of 2,048 bits: the length of the modulus does not help.
#[test]
fn the_forgery_works_for_long_keys() {
    let key = SecretKey::generate(moduli::bits_2048().unwrap(), &mut rng(6));
    let modulus = key.public().modulus();
    let z = modulus.random_square(&mut rng(7));
    let forged = forge(modulus, &z, &TAG, &PARTS).unwrap();
    let stated = PublicKey::new(modulus.clone(), forged.accumulator, 16).unwrap();
    assert_eq!(stated.verify(&forged.signed), Ok(()));
    assert_eq!(key.public().verify(&forged.signed), Err(Refused::Tag));
}

#[test]
fn the_compact_encoding_has_a_witness_for_each_part() {
    let signed = sign(&PARTS);
    let length = KEY.public().modulus().length();
    let content: usize = PARTS.iter().map(|part| part.len()).sum();
    assert_eq!(signed.to_bytes().len(), 16 + length + content + 4 * (4 + length));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_parts_are_redacted_merged_and_updated_like_sets(
        parts in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..6), 1..6),
        one in any::<u8>(),
        other in any::<u8>(),
    ) {
        let chosen = |bits: u8| {
            let numbered = parts.iter().enumerate().filter(move |(at, _)| bits >> at & 1 == 1);
            numbered.map(|(_, part)| &part[..]).collect::<Vec<_>>()
        };
        let all: Vec<_> = parts.iter().map(|part| &part[..]).collect();
        let redacted = |bits: u8| {
            let mut signed = sign(&all);
            let kept = chosen(bits);
            for part in all.iter().filter(|part| !kept.contains(part)) {
                signed.redact(part).unwrap();
            }
            signed
        };
        prop_assert_eq!(redacted(one), sign(&chosen(one)));
        let merged = KEY.public().merge(&redacted(one), &redacted(other)).unwrap();
        prop_assert_eq!(&merged, &redacted(one | other));
        let mut updated = redacted(one);
        KEY.update(&mut updated, chosen(other)).unwrap();
        prop_assert_eq!(updated, merged);
    }

    #[test]
    fn a_changed_bit_of_a_witness_is_refused(part in 0..PARTS.len(), bit in 0_usize..150) {
        let mut signed = sign(&PARTS);
        let mut bytes = signed.parts[PARTS[part]].as_bytes().to_vec();
        let last = bytes.len() - 1;
        bytes[last - bit / 8] ^= 1 << (bit % 8);
        if let Some(changed) = KEY.public().modulus().element(&bytes) {
            signed.parts.insert(PARTS[part].to_vec(), changed);
            prop_assert_eq!(KEY.public().verify(&signed), Err(Refused::Part));
        }
    }
}
