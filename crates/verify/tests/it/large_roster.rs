//! A roster of 10,000 devices takes little more time than its signatures, and little memory.
//! Finding G2 of the review.

use std::time::{Duration, Instant};

use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer as _};
use moteseal_verify::Roster;
use moteseal_verify::issue::FirstRoster;
use moteseal_verify::roster::{Device, Term};

const DEVICES: usize = 10_000;
const ROUNDS: usize = 5;

#[test]
fn a_roster_of_ten_thousand_devices_opens_in_little_more_than_its_signatures_take() {
    let operator = SecretKey::from_seed(Algorithm::Ed25519, &[1; 32]).unwrap();
    // Keys that differ cost a decompression each; a few hundred of them suffice to measure it.
    let keys: Vec<PublicKey> = (0..200)
        .map(|seed| SecretKey::from_seed(Algorithm::Ed25519, &[seed; 32]).unwrap().public())
        .collect();
    let names: Vec<String> = (0..DEVICES).map(|at| format!("sensor-{at:05}")).collect();
    let devices: Vec<(&str, PublicKey)> =
        names.iter().zip(keys.iter().cycle()).map(|(name, key)| (&**name, key.clone())).collect();
    let first =
        FirstRoster { group: "big", epoch_ms: 1000, levels: 8, budget: None, devices: &devices };
    let bytes = first.issue(&operator).unwrap();

    let message = [7; 200];
    let signature = operator.signature(&message).unwrap();
    let public = operator.public();
    let (mut signatures, mut opening) = (Duration::MAX, Duration::MAX);
    // On a busy machine, the shortest of several alternating measurements is the least disturbed one.
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..DEVICES {
            public.verify(&message, &signature).unwrap();
        }
        signatures = signatures.min(start.elapsed());
        let start = Instant::now();
        let roster = Roster::open(&bytes, &public).unwrap();
        opening = opening.min(start.elapsed());
        assert_eq!(roster.devices().len(), DEVICES);
    }
    println!("{opening:?} for {DEVICES} devices, {signatures:?} for as many signatures");
    assert!(opening < 3 * signatures, "{opening:?}, {signatures:?}");

    // The file itself, and for each device its entry, its name and a term.
    let each = size_of::<Device>() + size_of::<Term>() + 3 * size_of::<usize>() + names[0].len();
    println!("{} bytes, and {each} bytes for each device", bytes.len());
    assert!(bytes.len() + 2 * DEVICES * each < 20_000_000, "{each} bytes for each device");
}
