//! Measures figure 11 and table VI: the times of trees of degree `k` and of packets from them.

use std::hint::black_box;

use moteseal_lab::seals::{ByDegree, Packet};
use moteseal_research::paper_seal::{KTree, Md5};

use super::feed::Record;
use super::{Effort, extremes};
use crate::measure::{Contender, interleaved};

/// Number of repetitions. The paper uses the median of ten.
const RUNS: usize = 10;
const HEIGHT: u32 = 3;

fn build(degree: usize, events: &[Record]) -> KTree<Md5> {
    KTree::build(degree, events.iter().map(|event| &event[..]))
}

/// Creates the packets of all these events.
fn write(tree: &KTree<Md5>, events: &[Record]) {
    let mut packet = Vec::new();
    for (seq, event) in events.iter().enumerate() {
        tree.packet(seq, event, &mut packet).expect("the tree has all these events");
        black_box(&packet);
    }
}

/// Returns the number of repetitions for figure 11 and table VI.
pub(super) fn runs(effort: &Effort) -> usize {
    RUNS.min(effort.repetitions + 3)
}

/// Measures figure 11.
pub(super) fn by_degree(effort: &Effort) -> Vec<ByDegree> {
    const DEGREES: [usize; 3] = [2, 3, 4];
    let mut rows = Vec::new();
    for &size in effort.trees {
        let events: Vec<Record> =
            (0..u32::try_from(size).unwrap_or(u32::MAX)).map(u32::to_be_bytes).collect();
        let events = &events[..];
        let trees = DEGREES.map(|degree| build(degree, events));
        // Repeat a small tree, so that a repetition takes about a millisecond.
        let times_over = (8192 / size).max(1);
        let mut contenders = Vec::new();
        for (degree, tree) in DEGREES.into_iter().zip(&trees) {
            contenders.push(Contender::new(size * times_over, move || {
                for _ in 0..times_over {
                    black_box(build(degree, black_box(events)));
                }
            }));
            contenders.push(Contender::new(size * times_over, move || {
                for _ in 0..times_over {
                    write(tree, events);
                }
            }));
        }
        let times = interleaved(runs(effort), &mut contenders);
        rows.extend(DEGREES.into_iter().enumerate().map(|(at, degree)| ByDegree {
            degree,
            events: size,
            build: extremes(&times, 2 * at).times(1e-3),
            packet: extremes(&times, 2 * at + 1).times(1e-3),
        }));
    }
    rows
}

/// Measures table VI.
pub(super) fn packets(effort: &Effort) -> Vec<Packet> {
    let events: Vec<Record> =
        (0..u32::try_from(effort.packets).unwrap_or(u32::MAX)).map(u32::to_be_bytes).collect();
    let trees: Vec<KTree<Md5>> =
        effort.degrees.iter().map(|&degree| KTree::first_part(degree, HEIGHT)).collect();
    let events = &events[..];
    let mut contenders: Vec<_> = trees
        .iter()
        .map(|tree| Contender::new(events.len(), move || write(tree, events)))
        .collect();
    let times = interleaved(runs(effort), &mut contenders);
    let mut packet = Vec::new();
    let mut row = |(at, &degree): (usize, &usize)| {
        let bytes = trees[at].packet(0, &events[0], &mut packet).map_or(0, |()| packet.len());
        Packet { degree, bytes, time: extremes(&times, at).times(1e-3) }
    };
    effort.degrees.iter().enumerate().map(&mut row).collect()
}
