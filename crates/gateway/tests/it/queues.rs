//! Compares the queues with a map of vectors, and checks how much memory they use.

use std::collections::BTreeMap;

use moteseal_core::{Level, Sequence};
use moteseal_gateway::queues::{Queues, Slot};
use proptest::collection::vec;
use proptest::prelude::*;

const LEVELS: u8 = 5;

type Events = Vec<(u64, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Step {
    Keep(u8, u8, u8),
    Large(u8, u8),
    Forget(u8),
    Withdraw(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => (0..6u8, 0..LEVELS + 1, any::<u8>()).prop_map(|(slot, level, length)| Step::Keep(slot, level, length)),
        1 => (0..6u8, 0..LEVELS).prop_map(|(slot, level)| Step::Large(slot, level)),
        1 => (0..LEVELS + 1).prop_map(Step::Forget),
        6 => (0..6u8, 0..LEVELS + 1).prop_map(|(slot, level)| Step::Withdraw(slot, level)),
    ]
}

proptest! {
    #[test]
    fn queues_have_the_kept_events_without_dropped_and_withdrawn_ones(steps in vec(step(), 0..600)) {
        let mut queues = Queues::new(LEVELS);
        let mut reference: BTreeMap<(u8, u8), Events> = BTreeMap::new();
        let mut forgotten = [false; LEVELS as usize];
        for (seq, step) in (0..).zip(steps) {
            let (slot, level, record) = match step {
                Step::Keep(slot, level, length) => (slot, level, vec![seq as u8; usize::from(length)]),
                Step::Large(slot, level) => (slot, level, vec![seq as u8; 65_535]),
                Step::Forget(level) => {
                    queues.forget(Level(level));
                    reference.retain(|&(_, of), _| of != level);
                    if let Some(forgotten) = forgotten.get_mut(usize::from(level)) {
                        *forgotten = true;
                    }
                    continue;
                }
                Step::Withdraw(slot, level) => {
                    let there = reference.remove(&(slot, level)).map_or(0, |events| events.len() as u64);
                    prop_assert_eq!(queues.withdraw(Slot(u32::from(slot)), Level(level)), there);
                    continue;
                }
            };
            queues.keep(Slot(u32::from(slot)), Level(level), Sequence(seq), &record).unwrap();
            if level < LEVELS && !forgotten[usize::from(level)] {
                reference.entry((slot, level)).or_default().push((seq, record));
            }
        }
        for slot in 0..8u8 {
            for level in 0..LEVELS + 2 {
                let expected = reference.remove(&(slot, level)).unwrap_or_default();
                let found: Vec<_> = queues.events(Slot(u32::from(slot)), Level(level)).into_iter().map(|(seq, record)| (seq.0, record.to_vec())).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}

#[test]
fn a_device_that_keeps_abandoning_seals_takes_bounded_memory() {
    let mut queues = Queues::new(LEVELS);
    let mut most = 0;
    for round in 0..2000 {
        for seq in 0..100 {
            queues.keep(Slot(3), Level(1), Sequence(seq), &[0; 32]).unwrap();
        }
        assert_eq!(queues.withdraw(Slot(3), Level(1)), 100);
        if round == 10 {
            most = queues.memory();
        }
    }
    assert!(queues.memory() <= most, "{} after {most}", queues.memory());
}

#[test]
fn an_event_costs_its_payload_and_at_most_32_bytes() {
    // A thousand devices keep a hundred thousand events of 4 bytes. The levels have their usual
    // distribution.
    let mut queues = Queues::new(16);
    let mut random = 1u64;
    for seq in 0..100_000u64 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let level = (random.leading_zeros() as u8).min(15);
        queues
            .keep(Slot((seq % 1000) as u32), Level(level), Sequence(seq / 1000), &[0; 4])
            .unwrap();
    }
    let overhead = queues.memory() as f64 / 100_000.0 - 4.0;
    assert!(overhead <= 32.0, "{overhead}");
}
