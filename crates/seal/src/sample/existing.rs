//! Chooses a sample among the existing events of an epoch's trees (spec/answers.md, section 4).
//!
//! With a budget, only the events of some levels are kept. An event *exists* if its level was kept
//! in all parts of the epoch. The signed salts, counters and rounds determine these levels, as for
//! [`Choice::AtMost`](crate::sample::Choice::AtMost). If the levels of each part were counted
//! separately, a part with a lower round would have more than its share of the sample. A sample
//! among the existing events is uniform, has the requested size if enough events exist, and leaves
//! its sender no choice.
//!
//! The existing events are numbered, numbers are chosen, and the chosen events are then located by
//! computing levels. The alternative, to choose among all events and skip missing ones, could need
//! as many swaps as there are events.

use crate::engine::Engine;
use crate::members::members;
use crate::sample::permutation::{ScratchTooSmall, Swap, choose};
use crate::statement::Statement;
use moteseal_core::record::Sequence;

/// Chooses as many of the existing events of an epoch as `chosen` has room for, or all of them if
/// there are fewer. Returns their positions, ascending. A position counts all events of the epoch,
/// by index of the part and then by sequence number, including events that do not exist.
///
/// `parts` must be all parts of the epoch, by ascending index. Their counters must follow from
/// their salts, as in every verified seal. `levels` is the mask of existing levels,
/// [`EpochCounts::surviving`](crate::sample::choice::EpochCounts::surviving). `scratch` must have
/// the size that [`choose`] requires. In a part with missing events, this computes the level of
/// every event up to the last chosen one.
///
/// # Errors
/// [`ScratchTooSmall`].
pub fn draw<'c, 's, E: Engine>(
    engine: &E,
    parts: impl Iterator<Item = &'s Statement> + Clone,
    levels: u32,
    seed: &[u8; 32],
    chosen: &'c mut [u64],
    scratch: &mut [Swap],
) -> Result<&'c mut [u64], ScratchTooSmall> {
    let Some(first) = parts.clone().next() else { return Ok(&mut []) };
    let existing = |part: &Statement| u64::from(part.counters.masked(levels));
    let total = parts.clone().map(existing).sum();
    let chosen = choose(seed, first.device, first.epoch, total, chosen, scratch)?;
    chosen.sort_unstable();
    // The chosen numbers count only existing events. `before` is the number of existing events
    // before a part, and `start` is the number of all events before it.
    let (mut before, mut start) = (0, 0);
    let mut rest = &mut *chosen;
    for part in parts {
        let (n, count) = (part.counters.total(), existing(part));
        let (mine, others) =
            rest.split_at_mut(rest.partition_point(|&drawn| drawn < before + count));
        rest = others;
        if count == n {
            mine.iter_mut().for_each(|drawn| *drawn = *drawn - before + start);
        } else if !mine.is_empty() {
            #[allow(clippy::cast_possible_truncation)]
            let mut there = members(engine, &part.salt, part.counters.levels(), n as u32, levels);
            let mut passed = before;
            for drawn in mine {
                #[allow(clippy::cast_possible_truncation)]
                let Some(Sequence(seq)) = there.nth((*drawn - passed) as usize) else { break };
                passed = *drawn + 1;
                *drawn = start + seq;
            }
        }
        (before, start) = (before + count, start + n);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

    use std::vec;
    use std::vec::Vec;

    use proptest::collection::vec as vector;
    use proptest::prelude::*;

    use super::*;
    use crate::engine::Scalar;
    use crate::level::{Counters, Salt};
    use crate::sample::choice::EpochCounts;
    use crate::sample::permutation::scratch_for;
    use moteseal_core::digest::Digest;
    use moteseal_core::record::Scheme;
    use moteseal_core::record::{DeviceId, EpochNumber, GroupId, Round};

    const LEVELS: u8 = 8;

    /// Returns the statement of a tree's part with `n` events.
    fn part(salt: [u8; 16], n: u32, own_round: u8) -> Statement {
        let mut statement =
            Statement::new(Scheme::Tree, GroupId([1; 8]), Digest::NULL, DeviceId([2; 8]), LEVELS);
        statement.epoch = EpochNumber(7);
        statement.salt = Salt(salt);
        statement.own_round = Round(own_round);
        statement.counters = Counters::of(&statement.salt, LEVELS, n);
        statement
    }

    fn surviving(parts: &[Statement], round: u8) -> EpochCounts {
        let mut counts = EpochCounts::at_round(LEVELS, Round(round));
        parts.iter().for_each(|part| counts.add(part));
        counts
    }

    fn drawn(parts: &[Statement], round: u8, seed: u8, count: usize) -> Vec<u64> {
        let (mut chosen, mut scratch) = (vec![0; count], vec![Swap::FREE; scratch_for(count)]);
        let seed = Digest::of(&[&[seed]]).0;
        draw(
            &Scalar,
            parts.iter(),
            surviving(parts, round).surviving(),
            &seed,
            &mut chosen,
            &mut scratch,
        )
        .unwrap()
        .to_vec()
    }

    /// Chooses events by the definition: lists the existing events, permutes them, takes the first
    /// ones and sorts them.
    fn by_hand(parts: &[Statement], round: u8, seed: u8, count: usize) -> Vec<u64> {
        let mut start = 0;
        let mut existing = Vec::new();
        let level = |part: &Statement, seq: u64| part.salt.level(Sequence(seq), LEVELS).0;
        let dropped = |wanted: u8| {
            let by = |part: &&Statement| wanted < part.own_round.0;
            wanted < round
                || parts
                    .iter()
                    .filter(by)
                    .any(|part| (0..part.counters.total()).any(|seq| level(part, seq) == wanted))
        };
        for part in parts {
            let n = part.counters.total();
            existing
                .extend((0..n).filter(|&seq| !dropped(level(part, seq))).map(|seq| start + seq));
            start += n;
        }
        let (mut chosen, mut scratch) = (vec![0; count], vec![Swap::FREE; scratch_for(count)]);
        let seed = Digest::of(&[&[seed]]).0;
        let total = existing.len() as u64;
        let chosen =
            choose(&seed, DeviceId([2; 8]), EpochNumber(7), total, &mut chosen, &mut scratch)
                .unwrap();
        let mut chosen: Vec<u64> = chosen.iter().map(|&number| existing[number as usize]).collect();
        chosen.sort_unstable();
        chosen
    }

    proptest! {
        #[test]
        fn chooses_the_front_of_a_permutation_of_the_existing_events(
            shape in vector((any::<[u8; 16]>(), 0_u32..200, 0..LEVELS), 1..4), round in 0..=LEVELS, seed: u8, count in 0_usize..60,
        ) {
            let parts: Vec<Statement> = shape.into_iter().map(|(salt, n, own_round)| part(salt, n, own_round)).collect();
            prop_assert_eq!(drawn(&parts, round, seed, count), by_hand(&parts, round, seed, count));
            prop_assert_eq!(surviving(&parts, round).existing(), by_hand(&parts, round, seed, 600).len() as u64);
        }
    }

    /// If all events exist, the result is the start of the permutation of all events, sorted.
    #[test]
    fn without_a_round_no_event_is_skipped() {
        let parts = [part([1; 16], 60, 0), part([2; 16], 40, 0)];
        let (mut chosen, mut scratch) = ([0; 10], [Swap::FREE; 21]);
        let seed = Digest::of(&[&[9]]).0;
        let chosen =
            choose(&seed, DeviceId([2; 8]), EpochNumber(7), 100, &mut chosen, &mut scratch)
                .unwrap();
        chosen.sort_unstable();
        assert_eq!(drawn(&parts, 0, 9, 10), chosen);
    }

    #[test]
    fn chooses_nothing_if_nothing_exists() {
        assert_eq!(drawn(&[part([1; 16], 90, 0)], LEVELS, 1, 5), []);
        assert_eq!(drawn(&[part([1; 16], 90, 0)], 32, 1, 5), []);
        assert_eq!(drawn(&[], 0, 1, 5), []);
    }

    /// Over 2,000 seeds, each existing event is in the sample equally often: chi-square is below
    /// the 99.9 % quantile for its degrees of freedom. A sample of `m` of `N` events contains no
    /// event twice, which multiplies the variance of the counts by `(N - m) / (N - 1)`. The
    /// statistic is divided by this factor.
    #[test]
    fn chooses_every_existing_event_equally_often() {
        let parts = [part([3; 16], 150, 0), part([4; 16], 90, 2)];
        let levels = surviving(&parts, 1).surviving();
        let existing = by_hand(&parts, 1, 0, 240);
        let (total, count) = (existing.len(), 8);
        assert!((40..80).contains(&total), "{total} events");
        let mut hits = vec![0_u32; 240];
        for i in 0..2000_u32 {
            let (mut chosen, mut scratch) = ([0; 8], [Swap::FREE; 17]);
            let seed = Digest::of(&[b"existing", &i.to_be_bytes()]).0;
            for &at in
                &*draw(&Scalar, parts.iter(), levels, &seed, &mut chosen, &mut scratch).unwrap()
            {
                hits[at as usize] += 1;
            }
        }
        assert_eq!(
            hits.iter().sum::<u32>(),
            existing.iter().map(|&at| hits[at as usize]).sum::<u32>(),
            "only existing events are chosen"
        );
        let expected = (2000 * count) as f64 / total as f64;
        let square: f64 = existing
            .iter()
            .map(|&at| (f64::from(hits[at as usize]) - expected).powi(2) / expected)
            .sum();
        let statistic = square * (total - 1) as f64 / (total - count) as f64;
        // The 99.9 % quantile, by the approximation of Wilson and Hilferty.
        let freedom = (total - 1) as f64;
        let quantile =
            freedom * (1.0 - 2.0 / (9.0 * freedom) + 3.09 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
        assert!(statistic < quantile, "{statistic} of at most {quantile}");
    }
}
