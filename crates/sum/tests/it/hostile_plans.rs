//! Tests of plans that no text produces: a decoder refuses them (spec/queries.md, section 3.2).

use moteseal_core::cbor::{DecodeError, Writer};
use moteseal_sum::query::Plan;

/// A column of a plan: its name, divisor and range.
type Column<'a> = (&'a str, u32, Option<(i64, i64)>);

/// Encodes a plan, valid or not, from its items, columns, steps and epoch length.
fn by_hand(
    items: &[(u8, Option<u8>)],
    columns: &[Column<'_>],
    steps: &[Step],
    epoch: u64,
) -> Vec<u8> {
    // A plan without a sum has counters.
    let bits =
        if items.iter().any(|(aggregate, _)| matches!(aggregate, 0 | 2..=4)) { 0 } else { 20 };
    by_hand_with(items, columns, steps, epoch, Partition { bits, ..Partition::default() })
}

/// The groups, bins, bits of the counters and epsilon of a plan.
#[derive(Clone, Copy, Default)]
struct Partition {
    groups: Option<(u8, &'static [i64])>,
    bins: u8,
    bits: u8,
    epsilon: u32,
}

/// Like [`by_hand`], for a plan with groups, bins or noise.
fn by_hand_with(
    items: &[(u8, Option<u8>)],
    columns: &[Column<'_>],
    steps: &[Step],
    epoch: u64,
    partition: Partition,
) -> Vec<u8> {
    let mut buffer = [0; 4096];
    let mut out = Writer::new(&mut buffer);
    out.array(9).unwrap().uint(1u8).unwrap().array(items.len() as u64).unwrap();
    for &(aggregate, column) in items {
        let length = if aggregate == 6 { 3 } else { 2 };
        out.array(length).unwrap().uint(aggregate).unwrap().optional(column, Writer::uint).unwrap();
        if aggregate == 6 {
            out.uint(9500u16).unwrap();
        }
    }
    out.array(columns.len() as u64).unwrap();
    for &(name, divisor, range) in columns {
        out.array(if range.is_some() { 4 } else { 2 })
            .unwrap()
            .text(name)
            .unwrap()
            .uint(divisor)
            .unwrap();
        if let Some((low, high)) = range {
            out.int(low).unwrap().int(high).unwrap();
        }
    }
    out.array(steps.len() as u64).unwrap();
    for &step in steps {
        match step {
            Step::Op(number) => out.int(number).unwrap(),
            Step::Compare(column, low, high) => out
                .array(3)
                .unwrap()
                .uint(column)
                .unwrap()
                .optional(low, Writer::int)
                .unwrap()
                .optional(high, Writer::int)
                .unwrap(),
        };
    }
    match partition.groups {
        Some((column, values)) => {
            out.array(2).unwrap().uint(column).unwrap().array(values.len() as u64).unwrap();
            values.iter().for_each(|value| {
                out.int(*value).unwrap();
            });
        }
        None => {
            out.null().unwrap();
        }
    }
    out.uint(partition.bins).unwrap().uint(partition.bits).unwrap();
    out.uint(partition.epsilon).unwrap().uint(epoch).unwrap();
    out.finish().to_vec()
}

#[derive(Clone, Copy)]
enum Step {
    Compare(u8, Option<i64>, Option<i64>),
    Op(i64),
}

#[test]
fn rejects_a_plan_that_no_text_produces() {
    use Step::{Compare, Op};
    const SUM: (u8, Option<u8>) = (0, Some(0));
    const COUNT: (u8, Option<u8>) = (1, None);
    let (a, b) = (("a", 10, Some((-5, 5))), ("b", 1, None));
    let is = |column| Compare(column, Some(1), Some(1));
    let sound = by_hand(&[SUM, COUNT], &[a, b], &[is(0), is(1), is(1), Op(-2), Op(2)], 1000);
    assert_eq!(
        Plan::decode(&sound).map(|plan| plan.to_string()).as_deref(),
        Ok(
            "SELECT SUM(a), COUNT(*) FROM sensors WHERE a = 0.1 AND (b = 1 OR b = 1) EPOCH DURATION 1s"
        )
    );
    let long = "n".repeat(65);
    let nots: Vec<Step> = std::iter::once(is(0)).chain([Op(0); 17]).collect();
    assert!(Plan::decode(&by_hand(&[SUM], &[a], &nots[..17], 1000)).is_ok());
    let many: Vec<(u8, Option<u8>)> =
        (0..17u8).map(|at| ([0, 2, 3][usize::from(at % 3)], Some(at / 3))).collect();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
    let summed: Vec<_> = names.iter().map(|&name| (name, 1, Some((0, 1)))).collect();
    assert!(Plan::decode(&by_hand(&many[..16], &summed[..6], &[], 1000)).is_ok());
    let each: Vec<(u8, Option<u8>)> = (0..9).map(|at| (0, Some(at))).collect();
    assert!(Plan::decode(&by_hand(&each[..8], &summed[..8], &[], 1000)).is_ok());
    for (what, bytes) in [
        ("no item", by_hand(&[], &[], &[], 1000)),
        ("an unknown aggregate", by_hand(&[(7, Some(0))], &[a], &[], 1000)),
        ("a sum of no column", by_hand(&[(0, None)], &[], &[], 1000)),
        ("a missing column", by_hand(&[SUM], &[], &[], 1000)),
        ("an item twice", by_hand(&[SUM, SUM], &[a], &[], 1000)),
        ("too many items", by_hand(&many, &summed[..6], &[], 1000)),
        ("too many columns", by_hand(&each, &summed, &[], 1000)),
        ("an unused column", by_hand(&[SUM], &[a, b], &[], 1000)),
        (
            "columns in another order",
            by_hand(&[COUNT], &[("a", 1, None), b], &[is(1), is(0), Op(2)], 1000),
        ),
        ("a column twice", by_hand(&[SUM], &[a, ("a", 10, None)], &[is(1)], 1000)),
        ("an empty name", by_hand(&[SUM], &[("", 1, Some((0, 1)))], &[], 1000)),
        ("a name too long", by_hand(&[SUM], &[(&long, 1, Some((0, 1)))], &[], 1000)),
        (
            "a name with a control character",
            by_hand(&[SUM], &[("a\u{1b}", 1, Some((0, 1)))], &[], 1000),
        ),
        ("a divisor of 0", by_hand(&[SUM], &[("a", 0, Some((0, 1)))], &[], 1000)),
        ("a sum without a range", by_hand(&[SUM], &[("a", 1, None)], &[], 1000)),
        ("a range without a sum", by_hand(&[COUNT], &[("b", 1, Some((0, 1)))], &[is(0)], 1000)),
        ("an empty range", by_hand(&[SUM], &[("a", 1, Some((1, 0)))], &[], 1000)),
        ("a comparison without bounds", by_hand(&[SUM], &[a], &[Compare(0, None, None)], 1000)),
        ("another empty interval", by_hand(&[SUM], &[a], &[Compare(0, Some(2), Some(0))], 1000)),
        ("two truth values", by_hand(&[SUM], &[a], &[is(0), is(0)], 1000)),
        ("a NOT of nothing", by_hand(&[SUM], &[a], &[Op(0)], 1000)),
        ("an AND without enough operands", by_hand(&[SUM], &[a], &[is(0), Op(2)], 1000)),
        ("an AND of one", by_hand(&[SUM], &[a], &[is(0), Op(1)], 1000)),
        ("an OR of one", by_hand(&[SUM], &[a], &[is(0), Op(-1)], 1000)),
        ("an AND of an AND", by_hand(&[SUM], &[a], &[is(0), is(0), Op(2), is(0), Op(2)], 1000)),
        ("an OR of an OR", by_hand(&[SUM], &[a], &[is(0), is(0), is(0), Op(-2), Op(-2)], 1000)),
        ("an unknown operator", by_hand(&[SUM], &[a], &[is(0), Op(i64::MIN)], 1000)),
        ("too deep", by_hand(&[SUM], &[a], &nots, 1000)),
        (
            "too many steps",
            by_hand(&[SUM], &[a], &[[is(0); 32].to_vec(), vec![Op(32)]].concat(), 1000),
        ),
        ("an epoch too short", by_hand(&[SUM], &[a], &[], 999)),
        ("an epoch too long", by_hand(&[SUM], &[a], &[], 604_800_001)),
        ("an epoch of 64 bits", by_hand(&[SUM], &[a], &[], u64::MAX)),
    ] {
        assert_eq!(Plan::decode(&bytes), Err(DecodeError::FieldOutOfRange), "{what}");
    }
    assert_eq!(Plan::decode(&[&sound[..], &[0]].concat()), Err(DecodeError::TrailingBytes));
    assert_eq!(Plan::decode(&sound[..sound.len() - 1]), Err(DecodeError::Truncated));
}

#[test]
fn rejects_groups_bins_and_noise_that_no_text_produces() {
    const SUM: (u8, Option<u8>) = (0, Some(0));
    let (a, b) = (("a", 10, Some((-5, 5))), ("b", 1, None));
    let plan = |items: &[(u8, Option<u8>)], columns: &[Column<'_>], partition| {
        let bytes = by_hand_with(items, columns, &[], 1000, partition);
        Plan::decode(&bytes).map(|plan| plan.to_string())
    };
    let bits = |bits| Partition { bits, ..Partition::default() };
    let (quantile, groups) = ([(6, Some(0)), (5, Some(0))], Some((1, &[3, -2][..])));
    assert_eq!(
        plan(&quantile, &[a, b], Partition { groups, bins: 16, bits: 12, epsilon: 0 }).as_deref(),
        Ok(
            "SELECT QUANTILE(a, 0.9500), HISTOGRAM(a) FROM sensors GROUP BY b (3, -2) BINS 16 EPOCH DURATION 1s"
        )
    );
    let noisy = Partition { groups: None, bins: 8, bits: 48, epsilon: 500 };
    assert_eq!(
        plan(&quantile, &[a], noisy).as_deref(),
        Ok("SELECT QUANTILE(a, 0.9500), HISTOGRAM(a) FROM sensors EPSILON 0.500 EPOCH DURATION 1s")
    );
    let bins = |bins, bits| Partition { bins, bits, ..Partition::default() };
    let of = |groups| Partition { groups: Some(groups), ..Partition::default() };
    let third = ("b", 3, None);
    for (what, items, columns, partition) in [
        ("counters without need", &[SUM][..], &[a][..], bits(20)),
        ("no counters", &[(1, None)], &[], bits(0)),
        ("other counters", &[(1, None)], &[], bits(14)),
        ("counters for noise", &[(1, None)], &[], bits(48)),
        ("bins without need", &[SUM], &[a], bins(8, 0)),
        ("no bins", &quantile, &[a], bins(0, 12)),
        ("one bin", &quantile, &[a], bins(1, 12)),
        ("too many bins", &quantile, &[a], bins(65, 12)),
        ("too many slots", &[(5, Some(0)), (5, Some(1)), (5, Some(2))], &[a, a, a], bins(64, 20)),
        ("no group", &[SUM], &[a, b], of((1, &[]))),
        ("a group twice", &[SUM], &[a, b], of((1, &[4, 4]))),
        ("groups of no column", &[SUM], &[a], of((1, &[4]))),
        ("groups of inexact values", &[SUM], &[a, third], of((1, &[3]))),
        ("18 slots", &[SUM, (3, Some(0))], &[a, b], of((1, &[0, 1, 2, 3, 4, 5, 6, 7, 8]))),
        ("noise with fewer bits", &quantile, &[a], Partition { bits: 20, ..noisy }),
        ("a large epsilon", &quantile, &[a], Partition { epsilon: 4001, ..noisy }),
        ("a small epsilon", &[SUM], &[a], Partition { bins: 0, epsilon: 39, ..noisy }),
        ("a variance with noise", &[(3, Some(0))], &[a], Partition { bins: 0, ..noisy }),
    ] {
        assert_eq!(plan(items, columns, partition), Err(DecodeError::FieldOutOfRange), "{what}");
    }
    assert!(plan(&[SUM], &[a], Partition { bins: 0, epsilon: 40, ..noisy }).is_ok());
    let eight = of((1, &[0, 1, 2, 3, 4, 5, 6, 7]));
    assert!(plan(&[SUM, (3, Some(0))], &[a, b], eight).is_ok());
}
