//! Measures sealing, verification and trees on a single thread, in units of D. D is the time of one
//! dependent SHA-256 compression: each message contains the previous digest. `peers/` measures
//! other projects' trees, and a signature per event.

use std::hint::black_box;

use moteseal_core::digest::{INITIAL, compress256, state_bytes};
use moteseal_core::record::Scheme;
use moteseal_core::record::{Framing, Level, Round};
use moteseal_core::roster::{Directory, NoKey};
use moteseal_core::schema::Groups;
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey, Signer};
use moteseal_core::{DeviceId, Digest, EpochNumber, GroupId, SealIndex, Sequence};
use moteseal_lanes::{Host, merkle};
use moteseal_seal::engine::{Engine, Scalar};
use moteseal_seal::follow::Shape;
use moteseal_seal::level::LevelKey;
use moteseal_seal::level::Salt;
use moteseal_seal::stream::{Open, Part, Select};
use moteseal_seal::tree::{MultiproofError, Tree};
use moteseal_seal::{
    Answers, Follower, Limits, MAX_MESSAGE, Seal, Star, Statement, Unverified, star,
};

use crate::measure::{Bar, Contender, Report, interleaved};

const LEVELS: usize = 16;
const MILLION: usize = 1_000_000;
pub(crate) const DEVICE: DeviceId = DeviceId(*b"device 1");
pub(crate) const SALT: Salt = Salt(*b"0123456789abcdef");

/// Runs all measurements.
pub(crate) fn run() -> Report {
    let host = Host::detect();
    let mut report = Report::new(format!(
        "hashing, one thread; host loops: {}; D = one dependent SHA-256 compression",
        host.name()
    ));
    let events = events(MILLION);
    unit(&mut report);
    star_sealing(&mut report, &events[..MILLION]);
    verification(&mut report, host, &events[..MILLION]);
    tree_sealing(&mut report, host, &events[..1000]);
    tree_sealing(&mut report, host, &events[..MILLION]);
    tree_sampling(&mut report, host, &events[..MILLION]);
    report
}

/// Returns readings that resemble a sensor's readings: they change slowly, and many are equal.
fn events(count: usize) -> Vec<[u8; 4]> {
    let mut state = 1_u64;
    let mut value = 2_000_i32;
    (0..count)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            value += i32::from(state >> 63 == 1) - i32::from(state >> 62 & 1 == 1);
            value.to_be_bytes()
        })
        .collect()
}

/// Returns the contender for D: compressions in which each message contains the previous digest.
pub(crate) fn dependent_compressions() -> Contender<'static> {
    const COUNT: usize = 20_000;
    let mut block = [0_u8; 64];
    Contender::new(COUNT, move || {
        for _ in 0..COUNT {
            let mut state = INITIAL;
            compress256(&mut state, &[block]);
            block[..32].copy_from_slice(&state_bytes(&state));
        }
        black_box(&block);
    })
}

fn unit(report: &mut Report) {
    let times = interleaved(101, &mut [dependent_compressions()]);
    report.add_spread("D", times.spread(0), "ns", None);
}

pub(crate) fn framing() -> Framing {
    Framing::fixed(4).expect("four bytes are a record's size")
}

/// Returns the root of one seal's star.
pub(crate) fn sealed_star(events: &[[u8; 4]]) -> Digest {
    let mut star = Star::<LEVELS>::new(DEVICE, SealIndex(0), &SALT, framing());
    for event in events {
        star.push(event).expect("the events are of the record's size");
    }
    let (counters, digests) = star.close();
    star::root(&counters, &digests)
}

fn star_sealing(report: &mut Report, events: &[[u8; 4]]) {
    let star = Contender::new(events.len(), || {
        black_box(sealed_star(black_box(events)));
    });
    let levels = Contender::new(events.len(), || {
        let mut levels = [0; 4096];
        for first in (0..events.len()).step_by(levels.len()) {
            let count = levels.len().min(events.len() - first);
            Scalar.levels(&SALT, 16, first as u64, &mut levels[..count]);
            black_box(&levels);
        }
    });
    let paper = Contender::new(events.len(), || {
        black_box(papers_star(black_box(events)));
    });
    let times = interleaved(21, &mut [dependent_compressions(), star, levels, paper]);
    report.add(
        "star, an event pushed (1,000,000 of 4 bytes)",
        times.ratio(1, 0),
        "D",
        Bar::AtMost(0.35),
    );
    report.add("  of which its level alone takes, by core's loop", times.ratio(2, 0), "D", None);
    report.add("  by the paper's step, with the same levels", times.ratio(3, 0), "D", None);
    report.add("  faster than by the paper's step", times.ratio(3, 1), "x", None);
}

/// Computes the paper's star (section IV.C) with as few instructions as ours: for the event's
/// level, `D = H(H(event) || D)`.
fn papers_star(events: &[[u8; 4]]) -> [Digest; LEVELS] {
    let key = LevelKey::new(&SALT);
    let mut digests = [Digest::NULL; LEVELS];
    for (seq, event) in (0..).zip(events) {
        let level = key.level(seq, 16);
        let digest = &mut digests[usize::from(level.0)];
        let (mut short, mut long, mut padding) = ([0; 64], [0; 64], [0; 64]);
        short[..4].copy_from_slice(event);
        short[4] = 0x80;
        short[63] = 8 * 4;
        let mut state = INITIAL;
        compress256(&mut state, &[short]);
        long[..32].copy_from_slice(&state_bytes(&state));
        long[32..].copy_from_slice(&digest.0);
        padding[0] = 0x80;
        padding[62..].copy_from_slice(&(8 * 64_u16).to_be_bytes());
        let mut state = INITIAL;
        compress256(&mut state, &[long, padding]);
        *digest = Digest(state_bytes(&state));
    }
    digests
}

/// A group of one device.
pub(crate) struct OneDevice(pub(crate) PublicKey);

impl Directory for OneDevice {
    fn group(&self) -> GroupId {
        GroupId::of("bench")
    }

    fn levels(&self, _: EpochNumber) -> u8 {
        LEVELS.try_into().expect("at most 32")
    }

    fn epochs(&self) -> (EpochNumber, Option<EpochNumber>) {
        (EpochNumber(0), None)
    }

    fn roster_digest(&self, _: u32) -> Option<Digest> {
        Some(Digest::NULL)
    }

    fn with_key(
        &self,
        _: DeviceId,
        _: SealIndex,
        _: EpochNumber,
        use_key: &mut dyn FnMut(&PublicKey),
    ) -> Result<(), NoKey> {
        use_key(&self.0);
        Ok(())
    }

    fn first_prev(&self, _: DeviceId) -> Option<Digest> {
        Some(Digest::NULL)
    }
}

fn verification(report: &mut Report, host: Host, events: &[[u8; 4]]) {
    let key = SecretKey::from_seed(Algorithm::Ed25519, &[7; 32]).expect("Ed25519 takes any seed");
    let directory = OneDevice(key.public());
    let (million, small) = (
        SealedEpoch::new(&key, &directory, events),
        SealedEpoch::new(&key, &directory, &events[..298]),
    );
    // Repeat a small epoch, so that a repetition takes milliseconds.
    let times_over = 100;
    let mut contenders = [
        dependent_compressions(),
        Contender::new(events.len(), || million.verify(&directory, host)),
        Contender::new(events.len(), || million.verify(&directory, Scalar)),
        Contender::new(times_over * 298, || {
            (0..times_over).for_each(|_| small.verify(&directory, host));
        }),
        Contender::new(times_over * 298, || {
            for _ in 0..times_over {
                black_box(small.rebuild(&directory, host));
            }
        }),
    ];
    let times = interleaved(21, &mut contenders);
    report.add(
        "star, whole epoch verified, an event of 1,000,000",
        times.ratio(1, 0),
        "D",
        Bar::AtMost(0.25),
    );
    report.add("  by core's loops alone", times.ratio(2, 0), "D", None);
    report.add("  an event of 298, Ed25519 signature included", times.ratio(3, 0), "D", None);
    report.add(
        "  an event of 298, proven by a later seal of its run",
        times.ratio(4, 0),
        "D",
        None,
    );
}

/// An epoch as it is in a bundle, with its signature. It is complete, or has only the levels from a
/// round on.
pub(crate) struct SealedEpoch {
    salt: Salt,
    n: u32,
    round: Round,
    mask: u32,
    bundle: Vec<u8>,
    signature: Vec<u8>,
}

impl SealedEpoch {
    pub(crate) fn new(key: &SecretKey, directory: &OneDevice, events: &[[u8; 4]]) -> Self {
        let mut star = Star::<LEVELS>::new(DEVICE, SealIndex(0), &SALT, framing());
        let mut blocks = vec![Vec::new(); LEVELS];
        for event in events {
            let level = star.push(event).expect("the events are of the record's size");
            blocks[usize::from(level.0)].extend_from_slice(event);
        }
        let (counters, digests) = star.close();
        let mut statement = Statement::new(
            Scheme::Star,
            directory.group(),
            Digest::NULL,
            DEVICE,
            directory.levels(EpochNumber(0)),
        );
        statement.salt = SALT;
        statement.counters = counters;
        let n = events.len().try_into().expect("fewer than 2^32 events");
        Self::signed(key, n, statement, &digests, blocks)
    }

    /// Returns the response of a cloud that has pruned an epoch of `n` events to those from `round`
    /// on. `kept` has these events in order, each with its level.
    pub(crate) fn pruned(
        key: &SecretKey,
        directory: &OneDevice,
        salt: Salt,
        n: u32,
        round: Round,
        kept: impl Iterator<Item = (Level, [u8; 4])>,
    ) -> Self {
        let mut blocks = vec![Vec::new(); LEVELS];
        for (level, event) in kept {
            blocks[usize::from(level.0)].extend_from_slice(&event);
        }
        let mut statement = Statement::new(
            Scheme::Star,
            directory.group(),
            Digest::NULL,
            DEVICE,
            directory.levels(EpochNumber(0)),
        );
        (statement.salt, statement.round, statement.own_round) = (salt, round, round);
        statement.counters = Scalar.counters(&salt, directory.levels(EpochNumber(0)), n);
        // The device sets levels below its round to null, so they have no digest.
        let digest = |(level, block): (u8, &Vec<u8>)| match statement.is_null(Level(level)) {
            true => Digest::NULL,
            false => star::block_digest(DEVICE, SealIndex(0), Level(level), block),
        };
        let digests: Vec<Digest> = (0..).zip(&blocks).map(digest).collect();
        Self::signed(key, n, statement, &digests, blocks)
    }

    fn signed(
        key: &SecretKey,
        n: u32,
        statement: Statement,
        digests: &[Digest],
        blocks: Vec<Vec<u8>>,
    ) -> Self {
        let (salt, round, mask) = (statement.salt, statement.own_round, statement.surviving());
        let root = star::root(&statement.counters, digests);
        let seal = Seal::new(statement, root, key.algorithm());
        let mut signature = vec![0; key.algorithm().signature_length()];
        key.sign(seal.message(&mut [0; MAX_MESSAGE]), &mut signature)
            .expect("the buffer has the signature's length");
        Self {
            salt,
            n,
            round,
            mask,
            bundle: blocks.into_iter().rev().flatten().collect(),
            signature,
        }
    }

    /// Rebuilds the seal from the transmitted events and from the digests of the omitted ones.
    fn rebuild(&self, directory: &OneDevice, engine: impl Engine) -> Seal<Unverified> {
        let part = Part {
            scheme: Scheme::Star,
            last_in_epoch: false,
            restart: false,
            skipped: 0,
            advance: 0,
            salt: self.salt,
            n: self.n,
            round: self.round,
            own_round: self.round,
            lost: None,
            answered: Answers::NONE,
            select: Select::Levels(self.mask),
            digests: &[],
            events: &self.bundle,
            signature: Some(&self.signature),
            keys: None,
            groups: Groups::NONE,
            blinds: &[],
        };
        let mut follower = Follower::new(directory, engine, Limits::default());
        let open = Open { device: DEVICE, roster_version: 0, prev: Some(Digest::NULL), last: None };
        follower.open(&open, |_| None).expect("the device is in the directory");
        let shape = Shape::new(Digest::NULL, framing());
        follower.part(&part, Some(&shape)).expect("the part is well-formed").seal
    }

    pub(crate) fn verify(&self, directory: &OneDevice, engine: impl Engine) {
        let seal = self.rebuild(directory, engine);
        black_box(seal.verify(directory, &self.signature).expect("the epoch is authentic"));
    }
}

fn tree_sealing(report: &mut Report, host: Host, events: &[[u8; 4]]) {
    // Repeat a small tree, so that a repetition takes milliseconds.
    let times_over = (100_000 / events.len()).max(1);
    let leaves = events.len() * times_over;
    let repeat = |seal: fn(Host, &[[u8; 4]])| {
        Contender::new(leaves, move || {
            for _ in 0..times_over {
                seal(host, black_box(events));
            }
        })
    };
    let pushed = repeat(|_, events| {
        let mut tree = Tree::<20>::new();
        for event in events {
            tree.push(event).expect("the tree holds a million");
        }
        black_box(tree.root());
    });
    let batch = repeat(|host, events| {
        let mut tree = Tree::<20>::new();
        tree.extend(&host, 4, events.as_flattened()).expect("the tree holds a million");
        black_box(tree.root());
    });
    let batch_scalar = repeat(|_, events| {
        let mut tree = Tree::<20>::new();
        tree.extend(&Scalar, 4, events.as_flattened()).expect("the tree holds a million");
        black_box(tree.root());
    });
    let repetitions = if events.len() >= MILLION { 7 } else { 21 };
    let times =
        interleaved(repetitions, &mut [dependent_compressions(), pushed, batch, batch_scalar]);
    let n = events.len();
    report.add(
        format!("tree of {n}, a leaf pushed singly"),
        times.ratio(1, 0),
        "D",
        Bar::AtMost(3.3),
    );
    report.add(format!("tree of {n}, a leaf in batches"), times.ratio(2, 0), "D", Bar::AtMost(1.7));
    report.add("  by core's loops alone", times.ratio(3, 0), "D", None);
}

/// Measures the verification of an eighth of a tree's leaves, selected by level, with one compact
/// multiproof for the other leaves.
fn tree_sampling(report: &mut Report, host: Host, events: &[[u8; 4]]) {
    let mut levels = vec![0; events.len()];
    host.levels(&SALT, 16, 0, &mut levels);
    let chosen: Vec<Sequence> = (0..)
        .map(Sequence)
        .zip(&levels)
        .filter(|(_, level)| **level >= 3)
        .map(|(seq, _)| seq)
        .collect();
    let records: Vec<u8> = events
        .iter()
        .zip(&levels)
        .filter(|(_, level)| **level >= 3)
        .flat_map(|(event, _)| *event)
        .collect();
    let leaves = merkle::leaves(&host, 4, events.as_flattened());
    let proof: Vec<u8> = merkle::multiproof(&host, &leaves, chosen.iter().copied())
        .iter()
        .flat_map(|digest| digest.0)
        .collect();
    let (n, expected) = (events.len() as u64, merkle::root(&host, &leaves));
    let verify =
        |engine: &dyn Fn(&mut dyn Iterator<Item = Sequence>) -> Result<Digest, MultiproofError>| {
            assert_eq!(engine(&mut chosen.iter().copied()), Ok(expected));
        };
    let mut contenders = [
        dependent_compressions(),
        Contender::new(chosen.len(), || {
            verify(&|chosen| host.multiproof_root(n, framing(), &records, chosen, &proof));
        }),
        Contender::new(chosen.len(), || {
            verify(&|chosen| Scalar.multiproof_root(n, framing(), &records, chosen, &proof));
        }),
    ];
    let times = interleaved(7, &mut contenders);
    report.add("tree of 1000000, an eighth verified, a leaf of it", times.ratio(1, 0), "D", None);
    report.add("  by core's loops alone", times.ratio(2, 0), "D", None);
}

/// Measures the sealing time per event, in D, for seals of a thousand events to ten million events.
pub(crate) fn growth(report: &mut Report) -> Vec<(f64, f64)> {
    let events = &events(10 * MILLION);
    let sizes = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    let mut contenders = vec![dependent_compressions()];
    for size in sizes {
        let times_over = (MILLION / size).max(1);
        contenders.push(Contender::new(size * times_over, move || {
            for _ in 0..times_over {
                black_box(sealed_star(black_box(&events[..size])));
            }
        }));
    }
    let times = interleaved(7, &mut contenders);
    let mut points = Vec::new();
    for (contender, size) in (1..).zip(sizes) {
        let ratio = times.ratio(contender, 0);
        report.add(format!("star, an event of a seal of {size}, root included"), ratio, "D", None);
        #[allow(clippy::cast_precision_loss)]
        points.push((size as f64, ratio));
    }
    report.add(
        "star, an event at 10,000,000 against one at 1,000",
        times.ratio(5, 1),
        "x",
        Bar::AtMost(1.1),
    );
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_pruned_to_a_round_has_its_devices_signature() {
        let key =
            SecretKey::from_seed(Algorithm::Ed25519, &[7; 32]).expect("Ed25519 takes any seed");
        let (directory, events) = (OneDevice(key.public()), events(3000));
        let from = |round: u8| {
            let levelled =
                (0..).map(Sequence).zip(&events).map(|(seq, event)| (SALT.level(seq, 16), *event));
            SealedEpoch::pruned(
                &key,
                &directory,
                SALT,
                3000,
                Round(round),
                levelled.filter(move |(level, _)| level.0 >= round),
            )
        };
        assert_eq!(from(0).signature, SealedEpoch::new(&key, &directory, &events).signature);
        for round in [0, 1, 5, 15] {
            let pruned = from(round);
            assert!(pruned.mask.trailing_zeros() >= u32::from(round));
            pruned.verify(&directory, Scalar);
            pruned.verify(&directory, Host::detect());
        }
    }

    #[test]
    fn the_papers_step_follows_the_paper() {
        let events = events(300);
        let mut digests = [Digest::NULL; LEVELS];
        for (seq, event) in (0..).map(Sequence).zip(&events) {
            let digest = &mut digests[usize::from(SALT.level(seq, 16).0)];
            *digest = Digest::of(&[&Digest::of(&[event]).0, &digest.0]);
        }
        assert_eq!(papers_star(&events), digests);
    }
}
