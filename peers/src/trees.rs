//! Compares the trees of RFC 9162 with the crates `rs_merkle` and `ct-merkle`, on one thread:
//! building a tree, and proving an eighth of the leaves, which are distributed like a sample.
//! Moteseal and `rs_merkle` prove these leaves together in a multiproof. `ct-merkle` only has paths
//! of single leaves, so single paths of all three are also compared.

use std::hint::black_box;

use ct_merkle::InclusionProof;
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use moteseal_core::record::{Framing, Sequence};
use moteseal_lanes::{Host, merkle};
use moteseal_seal::engine::Engine as _;
use moteseal_seal::tree::{self, Tree, path_root};
use rs_merkle::{Hasher as _, MerkleProof, MerkleTree, algorithms};
use sha2::Sha256;

use crate::load::{Failed, record};
use crate::measure::{Bar, Contender, Report, Times, interleaved};

type TheirTree = MerkleTree<algorithms::Sha256>;
type CtTree = MemoryBackedTree<Sha256, [u8; 4]>;

/// The maximum number of single paths in a measurement. More paths take longer without changing the
/// rate.
const PATHS: usize = 200;

pub(crate) fn run() -> Result<Vec<Report>, Failed> {
    let host = Host::detect();
    let mut report = Report::new(format!(
        "trees of records of 4 bytes, one thread; host loops: {}",
        host.name()
    ));
    for size in [1000, 1_000_000] {
        let records: Vec<[u8; 4]> = (0..size).map(|reading| record(400_000, reading)).collect();
        built(&mut report, host, &records);
        proven(&mut report, host, &records)?;
    }
    Ok(vec![report])
}

fn built(report: &mut Report, host: Host, records: &[[u8; 4]]) {
    // Repeat small trees, so that a repetition takes milliseconds.
    let times_over = (100_000 / records.len()).max(1);
    let repeat = |build: fn(Host, &[[u8; 4]])| {
        Contender::new(records.len() * times_over, move || {
            (0..times_over).for_each(|_| build(host, black_box(records)))
        })
    };
    let batch = repeat(|host, records| {
        let mut tree = Tree::<20>::new();
        if tree.extend(&host, 4, records.as_flattened()).is_ok() {
            black_box(tree.root());
        }
    });
    let pushed = repeat(|_, records| {
        let mut tree = Tree::<20>::new();
        if records.iter().all(|record| tree.push(record).is_ok()) {
            black_box(tree.root());
        }
    });
    let rs = repeat(|_, records| {
        black_box(TheirTree::from_leaves(&their_leaves(records)).root());
    });
    let ct = repeat(|_, records| {
        black_box(ct_tree(records).root());
    });
    let repetitions = if records.len() >= 100_000 { 7 } else { 21 };
    let times = interleaved(repetitions, &mut [batch, pushed, rs, ct]);
    let size = records.len();
    report.add_spread(
        format!("tree of {size}, a leaf: ours, in batches"),
        times.spread(0),
        "ns",
        None,
    );
    report.add_spread("  ours, pushed singly as a mote does", times.spread(1), "ns", None);
    against(report, &times, "rs_merkle", 2, 0, Bar::AtLeast(2.0));
    against(report, &times, "ct-merkle", 3, 0, Bar::AtLeast(6.0));
}

/// Adds a row for a peer, and a row with the peer's time divided by Moteseal's.
fn against(
    report: &mut Report,
    times: &Times,
    peer: &str,
    at: usize,
    ours: usize,
    bar: impl Into<Option<Bar>>,
) {
    report.add_spread(format!("  {peer}"), times.spread(at), "ns", None);
    report.add_spread("    times ours", times.ratios(at, ours), "x", bar);
}

fn their_leaves(records: &[[u8; 4]]) -> Vec<[u8; 32]> {
    records.iter().map(|record| algorithms::Sha256::hash(record)).collect()
}

fn ct_tree(records: &[[u8; 4]]) -> CtTree {
    let mut tree = CtTree::new();
    records.iter().for_each(|record| tree.push(*record));
    tree
}

fn proven(report: &mut Report, host: Host, records: &[[u8; 4]]) -> Result<(), Failed> {
    let size = records.len();
    // An eighth of the leaves, as levels would select them, without a regular pattern that would
    // make memory access faster.
    let chosen: Vec<usize> =
        (0..size).filter(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 == 0).collect();
    let paths: Vec<usize> = chosen.iter().copied().step_by((chosen.len() / PATHS).max(1)).collect();
    let sequences = || chosen.iter().map(|at| Sequence(*at as u64));
    let framing = Framing::fixed(4).ok_or("four bytes are a record's size")?;

    // The input of each prover: the hashes of all leaves for Moteseal, and the complete tree for
    // the others.
    let leaves = merkle::leaves(&host, 4, records.as_flattened());
    let root = merkle::root(&host, &leaves);
    let hashes = their_leaves(records);
    let theirs = TheirTree::from_leaves(&hashes);
    let their_root = theirs.root().ok_or("rs_merkle has no root")?;
    let ct = ct_tree(records);
    let ct_root = ct.root();
    if ct_root.as_bytes()[..] != root.0 {
        return Err("ct-merkle computes a different root of the same tree".into());
    }

    // Prove all selected leaves in one proof.
    let prove = || -> Vec<u8> {
        merkle::multiproof(&host, &leaves, sequences()).iter().flat_map(|digest| digest.0).collect()
    };
    let proof = prove();
    let selected: Vec<u8> = chosen.iter().flat_map(|at| records[*at]).collect();
    let verify = || {
        host.multiproof_root(size as u64, framing, &selected, &mut sequences(), &proof) == Ok(root)
    };
    // The time that rs_merkle takes to select hashes grows with the square of their number. A
    // million leaves would take an hour.
    let together = size <= 100_000;
    let some: &[usize] = if together { &chosen } else { &[] };
    let their_proof = theirs.proof(some).to_bytes();
    let their_selected: Vec<[u8; 4]> = some.iter().map(|at| records[*at]).collect();
    let their_verify = || {
        let hashes = their_leaves(&their_selected);
        MerkleProof::<algorithms::Sha256>::try_from(&their_proof[..])
            .is_ok_and(|proof| proof.verify(their_root, some, &hashes, size))
    };
    if !verify() || together && !their_verify() {
        return Err("a multiproof does not verify".into());
    }

    // Prove the leaves one by one.
    let path = |at: usize| -> Vec<u8> {
        merkle::path(&host, &leaves, Sequence(at as u64))
            .iter()
            .flat_map(|digest| digest.0)
            .collect()
    };
    let our_paths: Vec<Vec<u8>> = paths.iter().map(|at| path(*at)).collect();
    let their_paths: Vec<Vec<u8>> =
        paths.iter().map(|at| theirs.proof(&[*at]).to_bytes()).collect();
    let ct_paths: Vec<InclusionProof<Sha256>> =
        paths.iter().map(|at| ct.prove_inclusion(*at)).collect();
    let verify_paths = || {
        paths.iter().zip(&our_paths).all(|(at, path)| {
            path_root(tree::leaf(&records[*at]), Sequence(*at as u64), size as u64, path)
                == Ok(root)
        })
    };
    let their_verify_paths = || {
        paths.iter().zip(&their_paths).all(|(at, path)| {
            let hash = algorithms::Sha256::hash(&records[*at]);
            MerkleProof::<algorithms::Sha256>::try_from(&path[..])
                .is_ok_and(|path| path.verify(their_root, &[*at], &[hash], size))
        })
    };
    let ct_verify_paths = || {
        paths
            .iter()
            .zip(&ct_paths)
            .all(|(at, path)| ct_root.verify_inclusion(&records[*at], *at as u64, path).is_ok())
    };
    if !verify_paths() || !their_verify_paths() || !ct_verify_paths() {
        return Err("a path does not verify".into());
    }

    let (chosen_count, their_count, path_count) = (chosen.len(), some.len().max(1), paths.len());
    let mut contenders = vec![
        Contender::new(chosen_count, || _ = black_box(prove())),
        Contender::new(chosen_count, || _ = black_box(verify())),
        Contender::new(path_count, || _ = black_box(verify_paths())),
        Contender::new(path_count, || _ = black_box(their_verify_paths())),
        Contender::new(path_count, || _ = black_box(ct_verify_paths())),
        Contender::new(path_count, || {
            paths.iter().for_each(|at| _ = black_box(theirs.proof(&[*at]).to_bytes()))
        }),
        Contender::new(path_count, || {
            paths.iter().for_each(|at| _ = black_box(ct.prove_inclusion(*at)))
        }),
    ];
    if together {
        contenders
            .push(Contender::new(their_count, || _ = black_box(theirs.proof(some).to_bytes())));
        contenders.push(Contender::new(their_count, || _ = black_box(their_verify())));
    }
    let times = interleaved(if together { 21 } else { 7 }, &mut contenders);
    report.add_spread(
        format!("tree of {size}, an eighth proven together, a leaf of it: ours"),
        times.spread(0),
        "ns",
        None,
    );
    if together {
        against(report, &times, "rs_merkle", 7, 0, None);
    }
    against(report, &times, "rs_merkle, a path each", 5, 0, None);
    against(report, &times, "ct-merkle, a path each", 6, 0, None);
    report.add_spread(
        format!("tree of {size}, an eighth verified together, a leaf of it: ours"),
        times.spread(1),
        "ns",
        None,
    );
    if together {
        against(report, &times, "rs_merkle", 8, 1, None);
    }
    against(report, &times, "rs_merkle, a path each", 3, 1, None);
    against(report, &times, "ct-merkle, a path each", 4, 1, None);
    report.add_spread(
        format!("tree of {size}, one leaf verified by its path: ours"),
        times.spread(2),
        "ns",
        None,
    );
    against(report, &times, "rs_merkle", 3, 2, None);
    against(report, &times, "ct-merkle", 4, 2, None);
    #[allow(clippy::cast_precision_loss)]
    {
        report.add(
            "  bytes a leaf of a proof of an eighth: ours",
            proof.len() as f64 / chosen_count as f64,
            "B",
            None,
        );
        let single: usize = ct_paths.iter().map(|path| path.as_bytes().len()).sum();
        report.add("  bytes a leaf of its path", single as f64 / path_count as f64, "B", None);
    }
    Ok(())
}
