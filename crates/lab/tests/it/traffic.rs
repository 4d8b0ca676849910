//! Compares the number of messages and the used share of the budget with theory, and each fast
//! simulation with a slow one.
use std::collections::BinaryHeap;

use moteseal_lab::chance::{Average, Seed};
use moteseal_lab::rivals::{Broadcast, broadcast_changes, expected_changes, send_everything};
use moteseal_lab::traffic::{
    EXPECTED_USE, Load, Traffic, budget_used, expected_late, expected_sent, expected_sent_within,
    one_by_one, skipping, skipping_through,
};

/// The average costs of some runs.
struct Costs {
    sent: Average,
    announcements: Average,
    kept: Average,
    /// The number of runs by final round.
    rounds: [f64; 33],
}

fn costs(runs: impl Iterator<Item = Traffic>, load: &Load) -> Costs {
    let mut costs = Costs {
        sent: Average::default(),
        announcements: Average::default(),
        kept: Average::default(),
        rounds: [0.0; 33],
    };
    for traffic in runs {
        assert!(traffic.most_kept <= load.budget, "{traffic:?} exceeds the budget of {load:?}");
        assert!(
            traffic.announcements <= u64::from(traffic.round),
            "{traffic:?}: more than one message per device and round in {load:?}"
        );
        assert_eq!(
            traffic.messages(load.devices),
            traffic.sent + load.devices * traffic.announcements
        );
        costs.sent.add(traffic.sent as f64);
        costs.announcements.add(traffic.announcements as f64);
        costs.kept.add(traffic.kept as f64);
        costs.rounds[usize::from(traffic.round)] += 1.0;
    }
    costs
}

/// Returns the difference between two averages, in standard errors.
fn apart(one: &Average, other: &Average) -> f64 {
    let error = one.error().hypot(other.error());
    if error == 0.0 {
        (one.mean() - other.mean()).abs() * 1e9
    } else {
        (one.mean() - other.mean()).abs() / error
    }
}

fn load(events: u64, budget: u64, devices: u64, delay: u64) -> Load {
    Load { delay, ..Load::new(events, budget, devices).unwrap() }
}

/// Returns whether two samples of final rounds have the same distribution. Uses a chi-square test
/// over the rounds in which at least ten runs end.
fn same_rounds(one: &Costs, other: &Costs) -> bool {
    let (mut statistic, mut freedom) = (0.0, -1.0_f64);
    for (a, b) in one.rounds.iter().zip(&other.rounds).filter(|&(a, b)| a + b >= 10.0) {
        statistic += (a - b).powi(2) / (a + b);
        freedom += 1.0;
    }
    statistic < freedom.max(1.0) + 5.0 * (2.0 * freedom.max(1.0)).sqrt()
}

#[test]
fn skipping_has_the_same_distribution_as_simulating_event_by_event() {
    const RUNS: u64 = 1500;
    let loads = [
        load(300, 100, 1, 0),
        load(2572, 500, 7, 0),
        load(5000, 100, 50, 0),
        load(3000, 20, 3, 40),
        load(5000, 100, 10, 700),
        load(4000, 3, 2, 5),
        // A load with far too few levels: rounds reach the last level, and no event is kept.
        Load { levels: 3, ..load(5000, 100, 10, 64) },
    ];
    for (number, load) in (0..).zip(loads) {
        let seed = Seed::default().derive("slow against fast", number);
        let slow = costs((0..RUNS).map(|run| one_by_one(&load, seed.derive("run", run))), &load);
        let mut draws = seed.draws();
        let fast = costs((0..RUNS).map(|_| skipping(&load, &mut draws)), &load);
        for (what, slow, fast) in [
            ("sent", slow.sent, fast.sent),
            ("announcements", slow.announcements, fast.announcements),
            ("kept", slow.kept, fast.kept),
        ] {
            assert!(
                apart(&slow, &fast) < 4.5,
                "{what} in {load:?}: {slow} one by one, {fast} skipping"
            );
            // The number of announcements is nearly constant, so its deviation is not compared.
            // `same_rounds` below compares its distribution instead.
            let is_similar = (slow.deviation() - fast.deviation()).abs()
                <= 0.15 * slow.deviation().max(fast.deviation());
            assert!(
                is_similar || what == "announcements",
                "the deviation of {what} differs in {load:?}"
            );
        }
        assert!(same_rounds(&slow, &fast), "{load:?}: {:?} {:?}", slow.rounds, fast.rounds);
    }
}

#[test]
fn events_sent_are_within_five_per_cent_of_theory() {
    for budget in [100, 500, 4000] {
        for events in [25, 36, 50, 75, 150, 500, 25_000]
            .map(|parts| parts * budget / 25)
            .into_iter()
            .chain([10_000_000, 100_000_000])
        {
            let load = load(events, budget, 1, 0);
            let mut draws = Seed::default().derive("sent", events ^ budget << 40).draws();
            let sent = costs((0..400).map(|_| skipping(&load, &mut draws)), &load).sent;
            let theory = expected_sent(events, budget);
            assert!(
                (sent.mean() / theory - 1.0).abs() < 0.05,
                "{load:?}: {sent} sent, theory {theory:.0}"
            );
            // The exact curve must fit better than the straight line.
            let within = expected_sent_within(events, budget);
            assert!(
                (sent.mean() / within - 1.0).abs() < 0.02,
                "{load:?}: {sent} sent, within the round {within:.0}"
            );
        }
    }
}

#[test]
fn events_sent_do_not_depend_on_the_number_of_devices() {
    for devices in [1, 10, 1000, 10_000] {
        let load = load(20_000, 500, devices, 0);
        let sent = costs(
            (0..60).map(|run| {
                one_by_one(&load, Seed::default().derive("devices", devices << 32 | run))
            }),
            &load,
        )
        .sent;
        let theory = expected_sent(load.events, load.budget);
        assert!(
            (sent.mean() / theory - 1.0).abs() < 0.05,
            "{devices} devices: {sent} sent, theory {theory:.0}"
        );
    }
}

#[test]
fn the_exact_theory_equals_the_line_at_the_ends_of_rounds_and_is_below_it_between_them() {
    for doublings in 0..20 {
        let events = 500 << doublings;
        assert!((expected_sent(events, 500) - expected_sent_within(events, 500)).abs() < 1e-6);
    }
    for events in (500..2_000_000).step_by(997) {
        let (line, curve) = (expected_sent(events, 500), expected_sent_within(events, 500));
        assert!(curve <= line + 1e-6 && curve >= 0.965 * line, "{events}: {curve} {line}");
    }
    assert_eq!((expected_sent(77, 500), expected_sent_within(77, 500)), (77.0, 77.0));
}

#[test]
fn a_late_round_costs_the_events_that_arrive_meanwhile() {
    let sent = |delay| {
        let load = load(1_000_000, 500, 1, delay);
        let mut draws = Seed::default().derive("late", delay).draws();
        costs((0..400).map(|_| skipping(&load, &mut draws)), &load).sent
    };
    let none = sent(0);
    for delay in [100, 1000, 10_000] {
        let extra = sent(delay).mean() - none.mean();
        let theory = expected_late(delay, 11);
        assert!(
            (extra - theory).abs() < 0.05 * theory + 15.0,
            "{delay} events late: {extra:.0} more, theory {theory:.0}"
        );
    }
}

#[test]
fn the_used_share_of_the_budget_agrees_with_theory() {
    for budget in [100, 500, 4000] {
        let mut draws = Seed::default().derive("use", budget).draws();
        let used: Average = (0..2000).map(|_| budget_used(budget, &mut draws).unwrap()).collect();
        assert!((used.mean() - 0.72).abs() <= 0.03, "budget {budget}: {used:.3}");
    }
    assert!((EXPECTED_USE - 0.7213).abs() < 1e-4);
}

#[test]
fn intermediate_reports_of_a_run_are_consistent() {
    let load = load(100_000, 100, 5, 250);
    let stops = [0, 50, 100, 1000, 1000, 99_999, 100_000];
    let mut seen = Vec::new();
    skipping_through(&load, &stops, &mut Seed::default().draws(), &mut |at, traffic| {
        seen.push((at, traffic));
    });
    assert_eq!(seen.iter().map(|&(at, _)| at).collect::<Vec<_>>(), stops);
    assert_eq!(seen[..3].iter().map(|(_, traffic)| traffic.sent).collect::<Vec<_>>(), [0, 50, 100]);
    assert!(seen.is_sorted_by_key(|(_, traffic)| (
        traffic.sent,
        traffic.announcements,
        traffic.round
    )));
    assert_eq!(seen[3], seen[4]);
}

/// Simulates the same protocol with real hashes: the coordinator keeps the `budget` smallest hashes
/// in a heap and broadcasts every change of the largest of them.
fn with_hashes(events: u64, budget: usize, seed: Seed) -> Broadcast {
    let (mut draws, mut smallest, mut cost) =
        (seed.draws(), BinaryHeap::new(), Broadcast::default());
    for _ in 0..events {
        let hash = draws.word();
        if smallest.len() == budget && smallest.peek().is_none_or(|&threshold| hash >= threshold) {
            continue;
        }
        cost.sent += 1;
        smallest.push(hash);
        if smallest.len() > budget {
            smallest.pop();
        }
        cost.announcements += u64::from(smallest.len() == budget);
    }
    cost
}

#[test]
fn broadcasting_every_change_costs_as_much_as_with_real_hashes() {
    for (events, budget) in [(50, 100), (100, 100), (150, 100), (5000, 20), (20_000, 100)] {
        let seed = Seed::default().derive("hashes", events);
        let slow: Average = (0..800)
            .map(|run| {
                with_hashes(events, usize::try_from(budget).unwrap(), seed.derive("run", run))
                    .messages(10) as f64
            })
            .collect();
        let mut draws = seed.draws();
        let fast: Average = (0..800)
            .map(|_| {
                let mut messages = 0;
                broadcast_changes(budget, &[events / 2, events], &mut draws, &mut |_, cost| {
                    messages = cost.messages(10);
                });
                messages as f64
            })
            .collect();
        assert!(
            apart(&slow, &fast) < 4.5 || slow.mean() == fast.mean(),
            "{events} events, budget {budget}: {slow} with hashes, {fast} without"
        );
        let theory = expected_changes(events, budget);
        let announced = if events < budget { 0.0 } else { theory - budget as f64 + 1.0 };
        assert!(
            (fast.mean() - theory - 10.0 * announced).abs() <= 5.0 * fast.error() + 0.1,
            "{events}: {fast}, theory {theory}"
        );
    }
    assert_eq!(send_everything(12), 12);
}
