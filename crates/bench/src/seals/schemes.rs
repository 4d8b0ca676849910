//! Measures tables II, IV and V: the properties, the state and the cost per record of each scheme.
//!
//! For tables II and IV, the schemes of `moteseal-research`, including the product's, are run and
//! queried. For table V, the paper's schemes run with RSA-1024 and MD5, and with our suite.

use std::hint::black_box;

use moteseal_core::record::{DeviceId, EpochNumber, Sequence};
use moteseal_core::signature::{Algorithm, SecretKey};
use moteseal_lab::chance::Seed;
use moteseal_lab::seals::paper::{DEVICES, EPOCH};
use moteseal_lab::seals::{Ability, Cost, State};
use moteseal_research::paper_seal::{Md5, Nodes, Sha256, TreeSigner};
use moteseal_research::{
    Ask, Concatenate, Context, EpochSeal, OfflineChain, OnlineChain, PaperStar, PaperTree,
    RunningStar, Scheme, Sealed, SignEach,
};
use moteseal_seal::Star;
use moteseal_seal::sample::Rate;
use moteseal_seal::tree::{Tree, geometry};

use super::feed::Record;
use super::legacy::Rsa;
use super::signed::{sign_stars, sign_trees};
use super::space::{seal_star, seal_tree};
use super::suites::{Key, Named, suite};
use super::{Effort, extremes};
use crate::hashing::{OneDevice, SALT, framing};
use crate::measure::{Contender, interleaved};

fn context() -> Context {
    Context {
        device: DeviceId(*b"device 1"),
        epoch: EpochNumber(480_000),
        framing: framing(),
        salt: SALT,
    }
}

fn half() -> Result<Rate, String> {
    "1/2".parse().map_err(|_| "1/2 is a rate".to_owned())
}

fn key() -> Result<SecretKey, String> {
    SecretKey::from_seed(Algorithm::Ed25519, &[7; 32]).map_err(|error| error.to_string())
}

fn synthetic(count: usize) -> Vec<Vec<u8>> {
    (0..u32::try_from(count).unwrap_or(u32::MAX)).map(|n| n.to_be_bytes().to_vec()).collect()
}

/// Measures table II.
pub(super) fn abilities() -> Result<Vec<Ability>, String> {
    let on_line = OnlineChain::new([9; 32]);
    let schemes: [(&'static str, &dyn Scheme); 8] = [
        ("Sign-each", &SignEach),
        ("Concatenate", &Concatenate),
        ("Hash chaining, off-line", &OfflineChain),
        ("Hash chaining, on-line", &on_line),
        ("DTC", &PaperTree),
        ("GSC", &PaperStar),
        ("DTC, the product's", &EpochSeal::TREE),
        ("GSC, the product's", &EpochSeal::STAR),
    ];
    schemes.into_iter().map(|(name, scheme)| ability(name, scheme)).collect()
}

fn ability(name: &'static str, scheme: &dyn Scheme) -> Result<Ability, String> {
    let (context, key, rate, events) = (context(), key()?, half()?, synthetic(EPOCH));
    let public = key.public();
    let sealed = scheme.seal(&context, &key, &events).map_err(|error| error.to_string())?;
    let all = scheme.serve(&context, &sealed, &Ask::All).map_err(|error| error.to_string())?;
    let part = |ask: &Ask<'_>| scheme.serve(&context, &sealed, ask).ok();
    #[allow(clippy::cast_precision_loss)]
    let share =
        |served: Option<Vec<u8>>| served.map(|served| served.len() as f64 / all.len() as f64);
    let middle = [(EPOCH / 2) as u64];
    let opens = |served: &[u8], ask: &Ask<'_>| scheme.open(&context, &public, served, ask).is_ok();

    // The cloud withholds one requested event, from a sample by rate and from events that the
    // application selected.
    let chosen: Vec<u64> = (0..EPOCH as u64).filter(|seq| seq % 2 == 1).collect();
    let by_choice =
        part(&Ask::Events(&chosen[1..])).map(|served| !opens(&served, &Ask::Events(&chosen)));
    let lacking = Sealed { events: sealed.events[1..].to_vec(), ..sealed.clone() };
    let by_rate = scheme
        .serve(&context, &lacking, &Ask::Rate(rate))
        .ok()
        .map(|served| !opens(&served, &Ask::Rate(rate)));
    // The cloud reports half the number of events.
    let keep = EPOCH / 2;
    let mut cut = Sealed { events: sealed.events[..keep].to_vec(), ..sealed.clone() };
    if cut.signatures.len() == sealed.events.len() {
        cut.signatures.truncate(keep);
    }
    let notices_cut =
        scheme.serve(&context, &cut, &Ask::All).map_or(true, |served| !opens(&served, &Ask::All));
    Ok(Ability {
        scheme: name,
        // Count only signatures of the device's key. One-time signatures have a different length.
        signatures: sealed
            .signatures
            .iter()
            .filter(|signature| signature.len() == Algorithm::Ed25519.signature_length())
            .count(),
        half_of_all: share(part(&Ask::Rate(rate))),
        one_of_all: share(part(&Ask::Events(&middle))),
        state: (scheme.device_state(EPOCH as u64, 4), scheme.device_state(1000 * EPOCH as u64, 4)),
        notices_withheld: by_choice.or(by_rate),
        notices_cut,
    })
}

/// Computes table IV, with digests of 32 bytes and signatures of 64 bytes.
pub(super) fn states() -> Vec<State> {
    const BUDGET: usize = 500;
    let mut rows = Vec::new();
    for events in [100_usize, 1000, 10_000, 100_000] {
        let made_up = synthetic(events);
        let (mut signer, mut most) = (TreeSigner::<Sha256>::new(64), 0);
        for event in &made_up {
            signer.push(event);
            most = most.max(signer.waiting() as u64);
        }
        let nodes = Nodes::<Sha256>::of(made_up.iter().map(Vec::as_slice));
        let (mut digests, mut siblings) = (0, Vec::new());
        for kept in 0..BUDGET {
            nodes.siblings(kept * events / BUDGET, &mut siblings);
            digests += siblings.len() as u64;
        }
        // The product's coordinator prunes trees: it keeps one proof for all kept events of a
        // device.
        let share = (BUDGET / usize::try_from(DEVICES).unwrap_or(7)).min(events);
        let kept = (0..share).map(|n| Sequence((n * events / share) as u64));
        let proof = geometry::siblings(events as u64, kept).count() as u64;
        let digest = 32;
        let mut row = |scheme, device: u64, coordinator: u64| {
            rows.push(State { scheme, events: events as u64, device, coordinator });
        };
        row("Sign-each", SignEach.device_state(events as u64, 4), BUDGET as u64 * 64);
        row("DTC", most * digest, digests * digest);
        row("GSC", size_of::<RunningStar>() as u64, DEVICES * size_of::<RunningStar>() as u64);
        row("DTC, the product's", size_of::<Tree<20>>() as u64, DEVICES * (proof * digest + 64));
        row("GSC, the product's", size_of::<Star<16>>() as u64, DEVICES * (16 * digest + 64));
    }
    rows
}

/// Returns the recorded events, divided into epochs of the paper's size.
fn chunks(epochs: &[Vec<Record>], effort: &Effort) -> Vec<Vec<Record>> {
    let all: Vec<Record> = epochs.iter().flatten().copied().collect();
    let mut chunks: Vec<Vec<Record>> =
        all.chunks_exact(EPOCH).take(effort.signatures).map(<[Record]>::to_vec).collect();
    if chunks.is_empty() {
        chunks.push((0..u32::try_from(EPOCH).unwrap_or(0)).map(u32::to_be_bytes).collect());
    }
    chunks
}

/// Measures table V, and the bytes that an application of DTC receives if every event is sent with
/// its own siblings.
pub(super) fn costs(epochs: &[Vec<Record>], effort: &Effort) -> Result<(Vec<Cost>, f64), String> {
    let chunks = chunks(epochs, effort);
    let rsa = Key::Rsa(Rsa::generate().map_err(|error| error.to_string())?);
    let mut rows = Vec::new();
    let packets = theirs::<Md5>(&rsa, &chunks, effort, &mut rows);
    ours(&chunks, effort, &mut rows)?;
    Ok((rows, packets))
}

/// Returns the contenders for the first three schemes, which are the same in all suites.
fn plain<'a, H: Named>(key: &'a Key, chunks: &'a [Vec<Record>]) -> [Contender<'a>; 3] {
    let count = chunks.len() * EPOCH;
    let each = Contender::new(EPOCH, move || {
        for event in &chunks[0] {
            black_box(key.sign::<H>(H::of(&[event]).as_ref()));
        }
    });
    let concatenate = Contender::new(count, move || {
        for events in chunks {
            black_box(key.sign::<H>(H::of(&[events.as_flattened()]).as_ref()));
        }
    });
    let chain = Contender::new(count, move || {
        for events in chunks {
            let head = events
                .iter()
                .rfold(H::Digest::default(), |next, event| H::of(&[event, next.as_ref()]));
            black_box(key.sign::<H>(head.as_ref()));
        }
    });
    [each, concatenate, chain]
}

#[allow(clippy::cast_precision_loss)]
fn theirs<H: Named>(
    key: &Key,
    chunks: &[Vec<Record>],
    effort: &Effort,
    rows: &mut Vec<Cost>,
) -> f64 {
    const UNITS: usize = 16;
    let count = chunks.len() * EPOCH;
    let mut contenders: Vec<_> = plain::<H>(key, chunks).into();
    contenders.push(Contender::new(count, || {
        black_box(sign_trees::<H>(key, chunks, 64));
    }));
    contenders.push(Contender::new(count, || {
        black_box(sign_stars::<H>(key, chunks, UNITS));
    }));
    let times = interleaved(effort.repetitions, &mut contenders);

    let (n, signature, digest) = (EPOCH as f64, key.length() as f64, H::LENGTH as f64);
    let whole = 4.0 * n + signature;
    // Half of the events, selected by the application's permutation, and the tree's digests of the
    // omitted events: with and without sharing digests between events.
    let mut draws = Seed::default().derive("half", 0).draws();
    let mut order: Vec<usize> = (0..EPOCH).collect();
    #[allow(clippy::cast_possible_truncation)]
    (1..EPOCH).rev().for_each(|last| order.swap(last, draws.below(last as u64 + 1) as usize));
    let mut wanted = order[..EPOCH / 2].to_vec();
    wanted.sort_unstable();
    let (half, shared) = (
        wanted.len() as f64,
        geometry::siblings(EPOCH as u64, wanted.iter().map(|&seq| Sequence(seq as u64))).count()
            as f64,
    );
    let nodes = Nodes::<H>::of(chunks[0].iter().map(|event| &event[..]));
    let mut siblings = Vec::new();
    let own: usize = wanted
        .iter()
        .map(|&seq| {
            nodes.siblings(seq, &mut siblings);
            siblings.len()
        })
        .sum();
    // For a star, half of the events are its first block, which has half of the events on average.
    let blocks = signature + (UNITS - 1) as f64 * digest;
    let bytes = [
        (4.0 + signature, 4.0 + signature),
        (whole / n, whole / half),
        (whole / n, whole / half),
        (whole / n, (4.0 * half + signature + shared * digest) / half),
        (whole / n, (4.0 * half + blocks) / half),
    ];
    for (at, (scheme, (sent, received))) in
        ["Sign-each", "Concatenate", "Hash chaining", "DTC", "GSC"]
            .into_iter()
            .zip(bytes)
            .enumerate()
    {
        rows.push(Cost {
            scheme,
            suite: suite::<H>(key),
            signing: extremes(&times, at).times(1e-3),
            sent,
            received,
        });
    }
    (4.0 * half + own as f64 * digest + signature) / half
}

/// Measures the schemes with our suite: the first three unchanged, and the product's tree and star.
/// The bytes are those that the schemes really send and serve.
#[allow(clippy::cast_precision_loss)]
fn ours(chunks: &[Vec<Record>], effort: &Effort, rows: &mut Vec<Cost>) -> Result<(), String> {
    let (key, secret) = (Key::ours(Algorithm::Ed25519)?, key()?);
    let group = OneDevice(secret.public());
    let count = chunks.len() * EPOCH;
    let mut contenders: Vec<_> = plain::<Sha256>(&key, chunks).into();
    contenders.push(Contender::new(count, || {
        chunks.iter().for_each(|events| seal_tree::<20>(&secret, &group, events));
    }));
    contenders.push(Contender::new(count, || {
        chunks.iter().for_each(|events| seal_star::<16>(&secret, &group, events));
    }));
    let times = interleaved(effort.repetitions, &mut contenders);

    let (context, rate) = (context(), half()?);
    let events: Vec<Vec<u8>> = chunks[0].iter().map(|event| event.to_vec()).collect();
    let schemes: [(&'static str, &dyn Scheme); 5] = [
        ("Sign-each", &SignEach),
        ("Concatenate", &Concatenate),
        ("Hash chaining", &OfflineChain),
        ("DTC, the product's", &EpochSeal::TREE),
        ("GSC, the product's", &EpochSeal::STAR),
    ];
    for (at, (name, scheme)) in schemes.into_iter().enumerate() {
        let sealed = scheme.seal(&context, &secret, &events).map_err(|error| error.to_string())?;
        let served =
            scheme.serve(&context, &sealed, &Ask::Rate(rate)).map_err(|error| error.to_string())?;
        let opened = scheme
            .open(&context, &secret.public(), &served, &Ask::Rate(rate))
            .map_err(|error| error.to_string())?;
        rows.push(Cost {
            scheme: name,
            suite: "Ed25519 + SHA-256",
            signing: extremes(&times, at).times(1e-3),
            sent: 4.0 + sealed.overhead as f64 / EPOCH as f64,
            received: served.len() as f64 / opened.len().max(1) as f64,
        });
    }
    Ok(())
}
