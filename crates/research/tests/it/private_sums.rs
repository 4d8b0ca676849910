//! Compares CMT and the paper's SIES with slow reference implementations, and demonstrates the
//! weaknesses that their descriptions state.

use moteseal_research::cmt;
use moteseal_research::prf::{hm1, hm256};
use moteseal_research::sies_paper::{self, OpenError, Psr, VALUE_SHIFT, attack};
use num_bigint::BigUint;
use proptest::prelude::*;

const GLOBAL: [u8; 20] = [7; 20];

fn own(source: usize) -> [u8; 20] {
    hm1(b"test keys", &source.to_be_bytes())
}

fn keys(sources: usize) -> Vec<[u8; 20]> {
    (0..sources).map(own).collect()
}

fn paper(sources: usize) -> (Vec<sies_paper::Source>, sies_paper::Querier) {
    let keys = keys(sources);
    (
        keys.iter().map(|&own| sies_paper::Source::new(GLOBAL, own)).collect(),
        sies_paper::Querier::new(GLOBAL, keys),
    )
}

fn answers(sources: &[sies_paper::Source], epoch: u64, values: &[u32]) -> Vec<Psr> {
    sources.iter().zip(values).map(|(source, &value)| source.answer(epoch, value)).collect()
}

fn merged(psrs: &[Psr]) -> Psr {
    psrs.iter().copied().reduce(Psr::merge).unwrap()
}

fn p() -> BigUint {
    (BigUint::from(1_u8) << 256) - 189_u8
}

/// The reference implementation: section IV.A with big integers.
fn answer_slowly(own: &[u8; 20], epoch: u64, value: u32) -> BigUint {
    let t = epoch.to_be_bytes();
    let key = hm256(own, &t);
    let message = (BigUint::from(value) << 224) + BigUint::from_bytes_be(&hm1(&key, &t));
    (BigUint::from_bytes_be(&hm256(&GLOBAL, &t)) * message + BigUint::from_bytes_be(&key)) % p()
}

fn bytes(number: &BigUint) -> [u8; 32] {
    let digits = number.to_bytes_be();
    let mut bytes = [0; 32];
    bytes[32 - digits.len()..].copy_from_slice(&digits);
    bytes
}

#[test]
fn the_pseudo_random_functions_are_hmac() {
    // The test vectors are RFC 2202, section 3, case 2, and RFC 4231, section 4.3.
    let (key, message) = (b"Jefe", b"what do ya want for nothing?");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&hm1(key, message)), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    assert_eq!(
        hex(&hm256(key, message)),
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

proptest! {
    #[test]
    fn cmt_adds_as_big_integers_do(values in prop::collection::vec(any::<u64>(), 1..40), epoch in any::<u64>()) {
        let keys = keys(values.len());
        let ciphertexts: Vec<_> =
            keys.iter().zip(&values).map(|(&key, &value)| cmt::Source::new(key).encrypt(epoch, value)).collect();
        let n = BigUint::from(1_u8) << 160;
        for ((key, &value), ciphertext) in keys.iter().zip(&values).zip(&ciphertexts) {
            let slowly = (BigUint::from(value) + BigUint::from_bytes_be(&hm1(key, &epoch.to_be_bytes()))) % &n;
            prop_assert_eq!(BigUint::from_bytes_be(&ciphertext.to_bytes()), slowly);
            prop_assert_eq!(cmt::Ciphertext::from_bytes(&ciphertext.to_bytes()), *ciphertext);
        }
        let sum = ciphertexts.into_iter().reduce(cmt::Ciphertext::merge).unwrap();
        let truth = values.iter().map(|&value| u128::from(value)).sum();
        prop_assert_eq!(cmt::Querier::new(keys).decrypt(epoch, sum), Some(truth));
    }

    #[test]
    fn sies_encrypts_as_big_integers_do(value in any::<u32>(), epoch in any::<u64>(), source in 0..1000_usize) {
        let psr = sies_paper::Source::new(GLOBAL, own(source)).answer(epoch, value);
        prop_assert_eq!(psr.to_bytes(), bytes(&answer_slowly(&own(source), epoch, value)));
        prop_assert_eq!(Psr::from_bytes(&psr.to_bytes()), Some(psr));
    }

    #[test]
    fn sies_opens_to_the_exact_sum(values in prop::collection::vec(0..1_u32 << 26, 1..40), epoch in any::<u64>()) {
        let (sources, querier) = paper(values.len());
        let sum = merged(&answers(&sources, epoch, &values));
        prop_assert_eq!(querier.open(epoch, sum), Ok(values.iter().sum()));
        prop_assert_eq!(querier.open(epoch.wrapping_add(1), sum), Err(OpenError::SharesMismatch));
    }

    #[test]
    fn sies_detects_dropped_added_and_changed_records(values in prop::collection::vec(0..1_u32 << 26, 2..20), at in any::<prop::sample::Index>(), bit in 0..256_usize) {
        let (sources, querier) = paper(values.len());
        let psrs = answers(&sources, 9, &values);
        let at = at.index(psrs.len());
        let without: Vec<_> = psrs.iter().enumerate().filter(|&(i, _)| i != at).map(|(_, &psr)| psr).collect();
        prop_assert_eq!(querier.open(9, merged(&without)), Err(OpenError::SharesMismatch));
        prop_assert_eq!(querier.open(9, merged(&psrs).merge(psrs[at])), Err(OpenError::SharesMismatch));
        let mut flipped = merged(&psrs).to_bytes();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Some(flipped) = Psr::from_bytes(&flipped) {
            prop_assert_eq!(querier.open(9, flipped), Err(OpenError::SharesMismatch));
        }
    }
}

#[test]
fn only_residues_are_records() {
    assert!(Psr::from_bytes(&bytes(&(p() - 1_u8))).is_some());
    assert_eq!(Psr::from_bytes(&bytes(&p())), None);
    assert_eq!(Psr::from_bytes(&[0xff; 32]), None);
}

#[test]
fn rejects_an_unknown_source() {
    let (sources, querier) = paper(2);
    let sum = merged(&answers(&sources, 1, &[1, 2]));
    assert_eq!(querier.open_of(1, sum, &[0, 2]), Err(OpenError::UnknownSource));
}

#[test]
fn cmt_accepts_an_altered_sum() {
    let keys = keys(3);
    let sum = keys
        .iter()
        .map(|&key| cmt::Source::new(key).encrypt(5, 20))
        .reduce(cmt::Ciphertext::merge)
        .unwrap();
    let mut million = [0; 20];
    million[12..].copy_from_slice(&1_000_000_u64.to_be_bytes());
    assert_eq!(
        cmt::Querier::new(keys).decrypt(5, sum.merge(cmt::Ciphertext::from_bytes(&million))),
        Some(1_000_060)
    );
}

#[test]
fn two_answers_in_one_epoch_reveal_the_epoch_key_of_the_papers_scheme() {
    let (sources, querier) = paper(8);
    let psrs = answers(&sources, 3, &[100; 8]);
    // The source restarts, loses the record that it has answered, and answers again.
    let again = sources[2].answer(3, 97);
    let key =
        attack::epoch_key_of_two(&psrs[2].to_bytes(), &again.to_bytes(), 3, VALUE_SHIFT).unwrap();
    assert_eq!(
        key,
        attack::epoch_key_of_leaked(&GLOBAL, 3),
        "the adversary computes the epoch key without the global key"
    );

    // With this key an attacker can forge answers: the querier accepts a sum that is 5,000 too
    // large.
    let forged = attack::alter(&merged(&psrs).to_bytes(), &key, 5000, VALUE_SHIFT).unwrap();
    assert_eq!(querier.open(3, Psr::from_bytes(&forged).unwrap()), Ok(5800));
}

#[test]
fn two_answers_let_an_attacker_alter_the_papers_sums_without_knowing_readings() {
    let (sources, querier) = paper(8);
    let psrs = answers(&sources, 3, &[100; 8]);
    let again = sources[2].answer(3, 97);
    let sum = merged(&psrs).to_bytes();
    for (times, altered) in [(1, 803), (10, 830), (-100, 500)] {
        let forged =
            attack::alter_by_two(&sum, &psrs[2].to_bytes(), &again.to_bytes(), times).unwrap();
        assert_eq!(
            querier.open(3, Psr::from_bytes(&forged).unwrap()),
            Ok(altered),
            "{times} times"
        );
    }
}

#[test]
fn a_leaked_key_lets_an_attacker_alter_every_sum_of_the_papers_scheme() {
    let (sources, querier) = paper(8);
    // One source is compromised, which reveals `K`. With `K` the attacker forges sums of other
    // sources in any epoch.
    for epoch in [0, 1, 1 << 40] {
        let psrs = answers(&sources, epoch, &[50; 8]);
        let key = attack::epoch_key_of_leaked(&GLOBAL, epoch);
        let others = [0, 1, 2, 3];
        let forged =
            attack::alter(&merged(&psrs[..4]).to_bytes(), &key, -199, VALUE_SHIFT).unwrap();
        assert_eq!(querier.open_of(epoch, Psr::from_bytes(&forged).unwrap(), &others), Ok(1));
    }
}

#[test]
fn the_papers_scheme_does_not_detect_a_source_falsely_reported_silent() {
    let (sources, querier) = paper(4);
    let psrs = answers(&sources, 6, &[18, 18, 18, 900]);
    // The aggregator drops an answer and reports that its source has failed. The querier cannot
    // distinguish this from a real failure.
    let dropped = merged(&psrs[..3]);
    assert_eq!(querier.open(6, dropped), Err(OpenError::SharesMismatch));
    assert_eq!(querier.open_of(6, dropped, &[0, 1, 2]), Ok(54));
}
