//! Measures table VII and figure 14: the number of events that remain to be signed and verified
//! with the sampling protocol, and the throughput.
//!
//! As in the paper, a device signs the events that it sent to the coordinator, and a client
//! verifies the events that were kept. The events of one device on one day are an epoch. The
//! paper's star uses the levels of the sampling protocol's hash, which both schemes compute for
//! every event when signing and when verifying. If no event of an epoch was kept, no scheme
//! verifies the epoch. The product's star is verified as a cloud serves it: a seal over all of the
//! day's events, with the events from the final round on.

use std::hint::black_box;

use moteseal_core::Digest;
use moteseal_core::record::Scheme;
use moteseal_core::record::{Round, Sequence};
use moteseal_core::roster::Directory;
use moteseal_core::signature::{Algorithm, SecretKey, Signer};
use moteseal_lab::chance::Seed;
use moteseal_lab::seals::{Measured, WithBudget};
use moteseal_lanes::{Host, merkle};
use moteseal_research::content_levels;
use moteseal_research::paper_seal::{Hash, Md5, Nodes, Receiver, Sha1, Sha256, Star, TreeSigner};
use moteseal_seal::engine::Engine;
use moteseal_seal::level::LevelKey;
use moteseal_seal::tree::Tree;
use moteseal_seal::{MAX_MESSAGE, Seal, Statement};

use super::feed::{self, Record, Sampled};
use super::legacy::{Dsa, Rsa};
use super::suites::{self, Key, Named};
use super::{Effort, Inputs, extremes};
use crate::hashing::{DEVICE, OneDevice, SALT, SealedEpoch, framing, sealed_star};
use crate::measure::{Contender, interleaved};

/// Number of levels of the paper's star: more than any budget needs.
const UNITS: usize = 32;
/// Number of levels of the product's group: enough for two million events per day at a budget of
/// 500.
const LEVELS: u8 = 16;

/// Measures one budget.
pub(super) fn measure(
    inputs: &Inputs<'_>,
    effort: &Effort,
    budget: u64,
    seed: Seed,
    measured: &mut Measured,
) -> Result<(), String> {
    let Some((seals, counted)) = feed::sampled(inputs.devices, effort.budget_days, budget, seed)
    else {
        return Ok(());
    };
    if seals.is_empty() {
        return Ok(());
    }
    if inputs.is_whole {
        measured.counted.push(counted);
    }
    let message = |error: super::legacy::Refused| error.to_string();
    for key in
        [Key::Rsa(Rsa::generate().map_err(message)?), Key::Dsa(Dsa::generate().map_err(message)?)]
    {
        theirs::<Md5>(&key, &seals, budget, effort, measured);
        theirs::<Sha1>(&key, &seals, budget, effort, measured);
        theirs::<Sha256>(&key, &seals, budget, effort, measured);
    }
    for algorithm in [Algorithm::Ed25519, Algorithm::Esp256, Algorithm::MlDsa44] {
        ours(algorithm, &seals, budget, effort, measured)?;
    }
    if measured.each.is_none() {
        measured.each = Some(each(&Key::Dsa(Dsa::generate().map_err(message)?), &seals, effort));
    }
    Ok(())
}

/// Measures a signature per event. Returns the events signed and verified per second.
fn each(key: &Key, seals: &[Sampled], effort: &Effort) -> (f64, f64) {
    let events: Vec<Record> = seals
        .iter()
        .flat_map(|seal| seal.sent.iter().map(|&(_, event)| event))
        .take(effort.signatures)
        .collect();
    let sign = |event: &Record| key.sign::<Md5>(&Md5::of(&[event]));
    let signatures: Vec<_> = events.iter().map(sign).collect();
    let mut contenders = [
        Contender::new(events.len(), || {
            events.iter().for_each(|event| {
                black_box(sign(event));
            });
        }),
        Contender::new(events.len(), || {
            assert!(
                events
                    .iter()
                    .zip(&signatures)
                    .all(|(event, signature)| key.verify::<Md5>(&Md5::of(&[event]), signature))
            );
        }),
    ];
    let times = interleaved(effort.repetitions, &mut contenders);
    (extremes(&times, 0).per_second().median, extremes(&times, 1).per_second().median)
}

/// The data that the cloud stores for one seal of the paper's schemes.
struct Held<H: Hash> {
    star: Star<H>,
    star_signature: Vec<u8>,
    nodes: Nodes<H>,
    siblings: Vec<(usize, Vec<H::Digest>)>,
    tree_signature: Vec<u8>,
}

fn star_of<H: Hash>(seal: &Sampled) -> Star<H> {
    let mut star = Star::<H>::new(UNITS);
    for (level, event) in &seal.sent {
        black_box(star.level(event));
        star.fold(usize::from(*level).min(UNITS - 1), event);
    }
    star
}

fn tree_of<H: Hash>(seal: &Sampled) -> H::Digest {
    let mut signer = TreeSigner::<H>::new(64);
    for (_, event) in &seal.sent {
        // A tree does not need the level, but the sampling protocol does.
        black_box(content_levels::level(event));
        signer.push(event);
    }
    signer.close().unwrap_or_default()
}

impl<H: Named> Held<H> {
    fn new(key: &Key, seal: &Sampled) -> Self {
        let star = star_of::<H>(seal);
        let nodes = Nodes::<H>::of(seal.sent.iter().map(|(_, event)| &event[..]));
        let siblings = seal.saved.iter().map(|&place| {
            let mut siblings = Vec::new();
            nodes.siblings(place, &mut siblings);
            (place, siblings)
        });
        let siblings = siblings.collect();
        let (star_signature, tree_signature) =
            (key.sign::<H>(star.root().as_ref()), key.sign::<H>(nodes.root().as_ref()));
        Self { star, star_signature, nodes, siblings, tree_signature }
    }

    /// Rebuilds the blocks of the kept events. Uses the digests of the other blocks without change.
    fn verify_star(&self, key: &Key, seal: &Sampled) -> bool {
        if seal.saved.is_empty() {
            return true;
        }
        let mut star = Star::<H>::new(UNITS);
        for level in 0..usize::from(seal.round) {
            star.adopt(level, self.star.digest(level));
        }
        for &place in &seal.saved {
            let (level, event) = &seal.sent[place];
            black_box(star.level(event));
            star.fold(usize::from(*level).min(UNITS - 1), event);
        }
        key.verify::<H>(star.root().as_ref(), &self.star_signature)
    }

    fn verify_tree(&self, key: &Key, seal: &Sampled, receiver: &mut Receiver<H>) -> bool {
        if self.siblings.is_empty() {
            return true;
        }
        receiver.begin(self.nodes.leaves(), self.nodes.root());
        key.verify::<H>(self.nodes.root().as_ref(), &self.tree_signature)
            && self.siblings.iter().all(|(place, siblings)| {
                let event = &seal.sent[*place].1;
                black_box(content_levels::level(event));
                receiver.verify(*place, event, siblings)
            })
    }
}

/// Measures the paper's two schemes with one of the paper's suites.
fn theirs<H: Named>(
    key: &Key,
    seals: &[Sampled],
    budget: u64,
    effort: &Effort,
    measured: &mut Measured,
) {
    let held: Vec<_> = seals.iter().map(|seal| Held::<H>::new(key, seal)).collect();
    let (sent, saved) = sizes(seals);
    let mut receiver = Receiver::<H>::new(usize::MAX);
    let mut contenders = [
        Contender::new(sent, || {
            for seal in seals {
                black_box(key.sign::<H>(star_of::<H>(black_box(seal)).root().as_ref()));
            }
        }),
        Contender::new(saved, || {
            assert!(held.iter().zip(seals).all(|(held, seal)| held.verify_star(key, seal)));
        }),
        Contender::new(sent, || {
            for seal in seals {
                black_box(key.sign::<H>(tree_of::<H>(black_box(seal)).as_ref()));
            }
        }),
        Contender::new(saved, || {
            assert!(held.iter().zip(seals).all(|(held, seal)| held.verify_tree(
                key,
                seal,
                &mut receiver
            )));
        }),
    ];
    let times = interleaved(effort.repetitions, &mut contenders);
    for (scheme, first) in [("GSC", 0), ("DTC", 2)] {
        measured.with_budget.push(WithBudget {
            budget,
            suite: suites::suite::<H>(key),
            is_ours: false,
            scheme,
            signed: extremes(&times, first).per_second(),
            verified: extremes(&times, first + 1).per_second(),
        });
    }
}

fn sizes(seals: &[Sampled]) -> (usize, usize) {
    let count = |of: fn(&Sampled) -> usize| seals.iter().map(of).sum::<usize>().max(1);
    (count(|seal| seal.sent.len()), count(|seal| seal.saved.len()))
}

/// Measures the product's star and tree over the sent events. The verifier of a star checks the
/// kept events against the day's seal. The verifier of a tree checks a multiproof of the kept
/// events.
///
/// A seal of the product counts all of a day's events by level, sent or not, and both verifiers
/// check the counts. A star contains only the sent events. A mote's tree would contain all events;
/// in this measurement it only contains the sent ones.
fn ours(
    algorithm: Algorithm,
    seals: &[Sampled],
    budget: u64,
    effort: &Effort,
    measured: &mut Measured,
) -> Result<(), String> {
    let host = Host::detect();
    let key = SecretKey::from_seed(algorithm, &[7; 32]).map_err(|error| error.to_string())?;
    let group = OneDevice(key.public());
    let sent: Vec<Vec<Record>> =
        seals.iter().map(|seal| seal.sent.iter().map(|&(_, event)| event).collect()).collect();
    let saved: Vec<Vec<Record>> = seals
        .iter()
        .map(|seal| seal.saved.iter().map(|&place| seal.sent[place].1).collect())
        .collect();
    let star = |seal: &Sampled| {
        let kept = seal
            .saved
            .iter()
            .map(|&place| (seal.salt.level(seal.seqs[place], LEVELS), seal.sent[place].1));
        SealedEpoch::pruned(&key, &group, seal.salt, seal.events, Round(seal.round), kept)
    };
    let stars: Vec<_> = seals.iter().filter(|seal| !seal.saved.is_empty()).map(star).collect();
    let message = |scheme, root, use_it: &mut dyn FnMut(&[u8])| {
        let mut statement = Statement::new(scheme, group.group(), Digest::NULL, DEVICE, LEVELS);
        statement.salt = SALT;
        let seal = Seal::new(statement, root, algorithm);
        use_it(seal.message(&mut [0; MAX_MESSAGE]));
    };
    let sign = |scheme, root| {
        message(scheme, root, &mut |message| {
            black_box(key.signature(message).expect("the key signs"));
        });
    };
    let trees: Vec<_> = sent
        .iter()
        .zip(seals)
        .zip(&saved)
        .filter(|((_, seal), _)| !seal.saved.is_empty())
        .collect();
    let trees: Vec<_> = trees
        .into_iter()
        .map(|((events, seal), saved)| {
            let leaves = merkle::leaves(&host, 4, events.as_flattened());
            let chosen: Vec<Sequence> =
                seal.saved.iter().map(|&place| Sequence(place as u64)).collect();
            let proof: Vec<u8> = merkle::multiproof(&host, &leaves, chosen.iter().copied())
                .iter()
                .flat_map(|digest| digest.0)
                .collect();
            let mut signature = Vec::new();
            message(Scheme::Tree, merkle::root(&host, &leaves), &mut |message| {
                signature = key.signature(message).expect("the key signs").to_vec();
            });
            (seal, saved, chosen, proof, signature)
        })
        .collect();
    let (signed_count, saved_count) = sizes(seals);
    let public = &group.0;
    let mut contenders = [
        Contender::new(signed_count, || {
            sent.iter().for_each(|events| sign(Scheme::Star, sealed_star(black_box(events))));
        }),
        Contender::new(saved_count, || stars.iter().for_each(|epoch| epoch.verify(&group, host))),
        Contender::new(signed_count, || {
            let level = LevelKey::new(&SALT);
            for events in &sent {
                let mut tree = Tree::<20>::new();
                for (seq, event) in (0..).zip(events) {
                    black_box(level.level(seq, LEVELS));
                    tree.push(event).expect("a day is smaller than the tree");
                }
                sign(Scheme::Tree, tree.root());
            }
        }),
        Contender::new(saved_count, || {
            for (seal, saved, chosen, proof, signature) in &trees {
                black_box(host.counters(&seal.salt, LEVELS, seal.events));
                seal.saved.iter().for_each(|&place| {
                    assert!(seal.salt.level(seal.seqs[place], LEVELS).0 >= seal.round);
                });
                let n = seal.sent.len() as u64;
                let root = host.multiproof_root(
                    n,
                    framing(),
                    saved.as_flattened(),
                    &mut chosen.iter().copied(),
                    proof,
                );
                message(
                    Scheme::Tree,
                    root.expect("the proof is of these events"),
                    &mut |message| {
                        public.verify(message, signature).expect("the tree is authentic");
                    },
                );
            }
        }),
    ];
    let times = interleaved(effort.repetitions, &mut contenders);
    for (scheme, first) in [("GSC", 0), ("DTC", 2)] {
        measured.with_budget.push(WithBudget {
            budget,
            suite: match algorithm {
                Algorithm::Ed25519 => "Ed25519 + SHA-256",
                Algorithm::Esp256 => "P-256 + SHA-256",
                _ => "ML-DSA-44 + SHA-256",
            },
            is_ours: true,
            scheme,
            signed: extremes(&times, first).per_second(),
            verified: extremes(&times, first + 1).per_second(),
        });
    }
    Ok(())
}
