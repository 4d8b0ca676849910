//! Measures figures 8, 9 and 10: throughput by the signer's memory, by the receiver's cache, and by
//! the rate that an application requests.
//!
//! The suite is DSA-512 over MD5, as in the paper. Figure 8 is also measured with our suite and
//! with the product's star and tree.

use std::hint::black_box;

use moteseal_core::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::SealIndex;
use moteseal_core::roster::Directory;
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_lab::chance::Seed;
use moteseal_lab::seals::{ByCache, ByRate, BySpace, Spread};
use moteseal_lanes::Host;
use moteseal_research::paper_seal::{Md5, Sha256};
use moteseal_seal::tree::Tree;
use moteseal_seal::{MAX_MESSAGE, Seal, Star, Statement, star};

use super::feed::Record;
use super::legacy::Dsa;
use super::signed::{Packets, Stars, Trees, sign_stars, sign_trees};
use super::suites::{Key, Named, suite};
use super::{Effort, extremes};
use crate::hashing::{DEVICE, OneDevice, SALT, SealedEpoch, framing};
use crate::measure::{Contender, interleaved};

fn dsa() -> Result<Key, String> {
    Dsa::generate().map(Key::Dsa).map_err(|error| error.to_string())
}

fn events(epochs: &[Vec<Record>]) -> usize {
    epochs.iter().map(Vec::len).sum()
}

/// Measures figure 8.
pub(super) fn by_space(epochs: &[Vec<Record>], effort: &Effort) -> Result<Vec<BySpace>, String> {
    let mut rows = Vec::new();
    for &units in effort.units {
        of_suite::<Md5>(&dsa()?, epochs, units, effort, &mut rows);
        of_suite::<Sha256>(&Key::ours(Algorithm::Ed25519)?, epochs, units, effort, &mut rows);
    }
    products(epochs, effort, &mut rows)?;
    Ok(rows)
}

/// Measures the paper's two schemes with memory for `units` digests.
fn of_suite<H: Named>(
    key: &Key,
    epochs: &[Vec<Record>],
    units: usize,
    effort: &Effort,
    rows: &mut Vec<BySpace>,
) {
    let count = events(epochs);
    let (stars, trees) = (Stars::<H>::new(key, epochs, units), Trees::<H>::new(key, epochs, units));
    let packets = trees.packets(|_, _| true);
    let mut contenders = [
        Contender::new(count, || {
            black_box(sign_stars::<H>(key, black_box(epochs), units));
        }),
        Contender::new(count, || assert!(stars.verify(key, 1.0))),
        Contender::new(count, || {
            black_box(sign_trees::<H>(key, black_box(epochs), units));
        }),
        Contender::new(count, || assert!(trees.verify(key, &packets, usize::MAX))),
    ];
    let times = interleaved(effort.repetitions, &mut contenders);
    for (scheme, first) in [("GSC", 0), ("DTC", 2)] {
        #[allow(clippy::cast_precision_loss)]
        rows.push(BySpace {
            scheme,
            suite: suite::<H>(key),
            levels: None,
            units: units as f64,
            signed: extremes(&times, first).per_second(),
            verified: extremes(&times, first + 1).per_second(),
        });
    }
}

/// Seals and signs a star of the product.
pub(super) fn seal_star<const L: usize>(key: &SecretKey, group: &OneDevice, events: &[Record]) {
    let mut running = Star::<L>::new(DEVICE, SealIndex(0), &SALT, framing());
    for event in events {
        running.push(event).expect("the events are of the record's size");
    }
    let (counters, digests) = running.close();
    let levels = u8::try_from(L).expect("at most 32 levels");
    let mut statement = Statement::new(Scheme::Star, group.group(), Digest::NULL, DEVICE, levels);
    (statement.salt, statement.counters) = (SALT, counters);
    let seal = Seal::new(statement, star::root(&counters, &digests), key.algorithm());
    black_box(key.signature(seal.message(&mut [0; MAX_MESSAGE])).expect("the key signs"));
}

/// Seals and signs a tree of the product.
pub(super) fn seal_tree<const H: usize>(key: &SecretKey, group: &OneDevice, events: &[Record]) {
    let mut tree = Tree::<H>::new();
    for event in events {
        tree.push(event).expect("an epoch is smaller than the tree");
    }
    let mut statement = Statement::new(Scheme::Tree, group.group(), Digest::NULL, DEVICE, 16);
    statement.salt = SALT;
    let seal = Seal::new(statement, tree.root(), key.algorithm());
    black_box(key.signature(seal.message(&mut [0; MAX_MESSAGE])).expect("the key signs"));
}

/// Measures the product's star and tree, at the size of their state.
fn products(
    epochs: &[Vec<Record>],
    effort: &Effort,
    rows: &mut Vec<BySpace>,
) -> Result<(), String> {
    let key =
        SecretKey::from_seed(Algorithm::Ed25519, &[7; 32]).map_err(|error| error.to_string())?;
    let group = OneDevice(key.public());
    let count = events(epochs);
    let host = Host::detect();
    let sealed: Vec<_> =
        epochs.iter().map(|events| SealedEpoch::new(&key, &group, events)).collect();
    let mut contenders = [
        Contender::new(count, || {
            epochs.iter().for_each(|events| seal_star::<8>(&key, &group, events));
        }),
        Contender::new(count, || {
            epochs.iter().for_each(|events| seal_star::<16>(&key, &group, events));
        }),
        Contender::new(count, || {
            epochs.iter().for_each(|events| seal_star::<32>(&key, &group, events));
        }),
        Contender::new(count, || {
            epochs.iter().for_each(|events| seal_tree::<20>(&key, &group, events));
        }),
        Contender::new(count, || sealed.iter().for_each(|epoch| epoch.verify(&group, host))),
    ];
    let times = interleaved(effort.repetitions, &mut contenders);
    let verified = extremes(&times, 4).per_second();
    let sizes = [
        (size_of::<Star<8>>(), Some(8)),
        (size_of::<Star<16>>(), Some(16)),
        (size_of::<Star<32>>(), Some(32)),
        (size_of::<Tree<20>>(), None),
    ];
    for (at, (size, levels)) in sizes.into_iter().enumerate() {
        #[allow(clippy::cast_precision_loss)]
        rows.push(BySpace {
            scheme: if levels.is_some() { "GSC, the product's" } else { "DTC, the product's" },
            suite: "Ed25519 + SHA-256",
            levels,
            units: size as f64 / 32.0,
            signed: extremes(&times, at).per_second(),
            verified: if at == 1 { verified } else { Spread::NONE },
        });
    }
    Ok(())
}

/// The signer's memory for each line of figure 9, in digests. The paper's picture has three lines,
/// and its text has no numbers.
const SIGNERS: [usize; 3] = [4, 7, 10];

/// Measures figure 9.
pub(super) fn by_cache(epochs: &[Vec<Record>], effort: &Effort) -> Result<Vec<ByCache>, String> {
    let key = dsa()?;
    let mut rows = Vec::new();
    for signer in SIGNERS {
        let trees = Trees::<Md5>::new(&key, epochs, signer);
        let packets = trees.packets(|_, _| true);
        let verify = |&cache: &usize| {
            Contender::new(events(epochs), {
                let (trees, key, packets) = (&trees, &key, &packets);
                move || assert!(trees.verify(key, packets, cache))
            })
        };
        let mut contenders: Vec<_> = effort.caches.iter().map(verify).collect();
        let times = interleaved(effort.repetitions, &mut contenders);
        rows.extend(effort.caches.iter().enumerate().map(|(at, &cache)| ByCache {
            signer,
            cache,
            verified: extremes(&times, at).per_second(),
        }));
    }
    Ok(rows)
}

/// The rates of figure 10.
const RATES: [f64; 4] = [0.01, 0.1, 0.5, 1.0];

/// Measures figure 10.
pub(super) fn by_rate(epochs: &[Vec<Record>], effort: &Effort) -> Result<Vec<ByRate>, String> {
    let key = dsa()?;
    let mut rows = Vec::new();
    for &units in effort.units {
        let (stars, trees) =
            (Stars::<Md5>::new(&key, epochs, units), Trees::<Md5>::new(&key, epochs, units));
        let wanted = RATES.map(|rate| permuted(epochs, rate));
        let packets: Vec<Vec<Packets<Md5>>> = wanted
            .iter()
            .map(|wanted| trees.packets(|epoch, place| wanted[epoch][place]))
            .collect();
        let counts: Vec<usize> =
            packets.iter().map(|packets| packets.iter().map(Packets::len).sum()).collect();
        let mut contenders = Vec::new();
        for (at, rate) in RATES.into_iter().enumerate() {
            let (stars, trees, key, packets) = (&stars, &trees, &key, &packets[at]);
            contenders
                .push(Contender::new(counts[at].max(1), move || assert!(stars.verify(key, rate))));
            contenders.push(Contender::new(counts[at].max(1), move || {
                assert!(trees.verify(key, packets, usize::MAX));
            }));
        }
        let times = interleaved(effort.repetitions, &mut contenders);
        for (at, rate) in RATES.into_iter().enumerate() {
            #[allow(clippy::cast_precision_loss)]
            let unused = 1.0 - counts[at] as f64 / stars.served(rate).max(1) as f64;
            let row = |scheme, unused: f64, contender| ByRate {
                scheme,
                rate,
                units,
                unused: unused.max(0.0),
                verified: extremes(&times, contender).per_second(),
            };
            rows.extend([row("GSC", unused, 2 * at), row("DTC", 0.0, 2 * at + 1)]);
        }
    }
    Ok(rows)
}

/// Selects the first events of a random permutation of each epoch: the paper's algorithm 3.
fn permuted(epochs: &[Vec<Record>], rate: f64) -> Vec<Vec<bool>> {
    let of = |(number, events): (u64, &Vec<Record>)| {
        let mut draws = Seed::default().derive("permutation", number).draws();
        let mut order: Vec<usize> = (0..events.len()).collect();
        let mut wanted = vec![false; events.len()];
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let most = ((events.len() as f64 * rate).round() as usize).clamp(1, events.len());
        for first in 0..most {
            #[allow(clippy::cast_possible_truncation)]
            let other = first + draws.below((events.len() - first) as u64) as usize;
            order.swap(first, other);
            wanted[order[first]] = true;
        }
        wanted
    };
    (0..).zip(epochs).map(of).collect()
}
