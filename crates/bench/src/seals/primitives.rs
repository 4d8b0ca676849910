//! Measures table I: signatures and digests of a string of ten bytes, with the paper's primitives
//! and with ours.

use std::hint::black_box;

use moteseal_core::Digest;
use moteseal_core::signature::Algorithm;
use moteseal_lab::seals::Primitive;
use moteseal_research::paper_seal::{Hash, Md5, Sha1, Sha256};
use moteseal_seal::level::LevelKey;

use super::legacy::{Dsa, Rsa};
use super::suites::{Key, Named};
use super::{Effort, extremes};
use crate::hashing::{SALT, dependent_compressions, sealed_star};
use crate::measure::{Contender, interleaved};

/// The paper's message.
const MESSAGE: &[u8; 10] = b"ten bytes!";

fn signing<'k, H: Named>(key: &'k Key, effort: &Effort) -> Contender<'k> {
    let digest = H::of(&[MESSAGE]);
    let count = effort.signatures;
    Contender::new(count, move || {
        for _ in 0..count {
            black_box(key.sign::<H>(black_box(digest.as_ref())));
        }
    })
}

fn verifying<'k, H: Named>(key: &'k Key, effort: &Effort) -> Contender<'k> {
    let digest = H::of(&[MESSAGE]);
    let signature = key.sign::<H>(digest.as_ref());
    let count = effort.signatures;
    Contender::new(count, move || {
        for _ in 0..count {
            assert!(key.verify::<H>(black_box(digest.as_ref()), &signature));
        }
    })
}

fn hashing<H: Hash>(effort: &Effort) -> Contender<'static> {
    let count = effort.digests;
    Contender::new(count, move || {
        for _ in 0..count {
            black_box(H::of(&[black_box(MESSAGE)]));
        }
    })
}

/// Measures D, in nanoseconds, and the rows of the table.
pub(super) fn measure(effort: &Effort) -> Result<(f64, Vec<Primitive>), String> {
    let message = |error: super::legacy::Refused| error.to_string();
    let (rsa, dsa) =
        (Key::Rsa(Rsa::generate().map_err(message)?), Key::Dsa(Dsa::generate().map_err(message)?));
    let (edwards, p256, lattice) = (
        Key::ours(Algorithm::Ed25519)?,
        Key::ours(Algorithm::Esp256)?,
        Key::ours(Algorithm::MlDsa44)?,
    );
    let count = effort.digests;
    let level = LevelKey::new(&SALT);
    let events: Vec<[u8; 4]> = (0..10_000_u32).map(u32::to_be_bytes).collect();
    let named: Vec<(&str, bool, Contender<'_>)> = vec![
        ("D", false, dependent_compressions()),
        ("RSA-1024, sign", true, signing::<Md5>(&rsa, effort)),
        ("RSA-1024, verify", false, verifying::<Md5>(&rsa, effort)),
        ("DSA-512, sign", true, signing::<Md5>(&dsa, effort)),
        ("DSA-512, verify", false, verifying::<Md5>(&dsa, effort)),
        ("MD5", true, hashing::<Md5>(effort)),
        ("SHA-1", true, hashing::<Sha1>(effort)),
        ("SHA-256", true, hashing::<Sha256>(effort)),
        ("Ed25519, sign", false, signing::<Sha256>(&edwards, effort)),
        ("Ed25519, verify", false, verifying::<Sha256>(&edwards, effort)),
        ("P-256, sign", false, signing::<Sha256>(&p256, effort)),
        ("P-256, verify", false, verifying::<Sha256>(&p256, effort)),
        ("ML-DSA-44, sign", false, signing::<Sha256>(&lattice, effort)),
        ("ML-DSA-44, verify", false, verifying::<Sha256>(&lattice, effort)),
        (
            "SHA-256, core's",
            false,
            Contender::new(count, move || {
                for _ in 0..count {
                    black_box(Digest::of(&[black_box(MESSAGE)]));
                }
            }),
        ),
        (
            "an event's level, SipHash",
            false,
            Contender::new(count, move || {
                for seq in 0..count as u64 {
                    black_box(level.level(black_box(seq), 16));
                }
            }),
        ),
        (
            "an event into a star of 16 levels",
            false,
            Contender::new(events.len(), move || {
                black_box(sealed_star(black_box(&events)));
            }),
        ),
    ];
    let (mut names, mut contenders) = (Vec::new(), Vec::new());
    for (name, in_paper, contender) in named {
        names.push((name, in_paper));
        contenders.push(contender);
    }
    let times = interleaved(effort.repetitions.max(3) * 3, &mut contenders);
    let row = |(at, (name, in_paper))| Primitive {
        name,
        in_paper,
        time: extremes(&times, at),
        in_d: times.ratio(at, 0),
    };
    let rows = names.into_iter().enumerate().map(row).skip(1).collect();
    Ok((times.nanoseconds(0), rows))
}
