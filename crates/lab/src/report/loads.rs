//! Writes the results for synthetic loads of any size, compared with theory: number of messages,
//! effect of a delay, and the used share of the budget.

use serde::Serialize;

use super::text::SAMPLING;
use super::{Effort, Out, ReportError};
use crate::chance::{Average, Seed};
use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::rivals::{self, Broadcast};
use crate::table::{Table, rounded, thousands};
use crate::traffic::{
    self, EXPECTED_USE, Load, Traffic, expected_late, expected_sent, expected_sent_within,
};

/// The budget and the number of devices of the figures.
const BUDGET: u64 = 500;
const DEVICES: u64 = 100;
/// The delay of announcements, in events, for the line *delayed* in the figure of growth.
const DELAY: u64 = 10_000;
/// The largest load that is simulated event by event.
const MOST_ONE_BY_ONE: u64 = 1_000_000;

pub(super) fn write(
    out: &Out<'_>,
    seed: Seed,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
    index: &mut String,
) -> Result<(), ReportError> {
    *index += "\n## Synthetic loads\n\n";
    let mut table = Table::new(["what", "theory", "measured"]);
    progress("messages, by load, budget and devices");
    communication(out, seed, effort, &mut table)?;
    progress("the growth of messages, compared with simpler protocols");
    growth(out, seed, effort, &mut table)?;
    progress("late rounds");
    delay(out, seed, effort, &mut table)?;
    progress("the used share of the budget");
    utilisation(out, seed, effort, &mut table)?;
    *index += &table.markdown();
    *index += &format!("\n{}\n", SAMPLING.get("loads why"));
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

/// A row of communication.csv.
#[derive(Serialize)]
struct Cost {
    devices: u64,
    budget: u64,
    events: u64,
    levels: u8,
    method: &'static str,
    runs: u64,
    sent: f64,
    sent_error: f64,
    theory: f64,
    sent_by_theory: f64,
    within_round: f64,
    announcements: f64,
    round: f64,
    /// Whether every epoch announced at most as many rounds as its final round. If so, no device
    /// received more than one message per round.
    a_message_a_round: bool,
}

fn cost(load: &Load, method: &'static str, runs: u64, mut run: impl FnMut(u64) -> Traffic) -> Cost {
    let (mut sent, mut announcements, mut round, mut a_message_a_round) =
        (Average::default(), Average::default(), Average::default(), true);
    for number in 0..runs {
        let traffic = run(number);
        sent.add(as_f64(traffic.sent));
        announcements.add(as_f64(traffic.announcements));
        round.add(f64::from(traffic.round));
        a_message_a_round &= traffic.announcements <= u64::from(traffic.round);
    }
    let theory = expected_sent(load.events, load.budget);
    Cost {
        devices: load.devices,
        budget: load.budget,
        events: load.events,
        levels: load.levels,
        method,
        runs,
        sent: sent.mean(),
        sent_error: sent.error(),
        theory,
        sent_by_theory: sent.mean() / theory,
        within_round: expected_sent_within(load.events, load.budget),
        announcements: announcements.mean(),
        round: round.mean(),
        a_message_a_round,
    }
}

fn communication(
    out: &Out<'_>,
    seed: Seed,
    effort: Effort,
    table: &mut Table,
) -> Result<(), ReportError> {
    let mut rows = Vec::new();
    for budget in [100, 500, 4000] {
        // Loads in units of 1/25 of the budget. At 36 units the straight line of the theory has its
        // largest error.
        let loads = [25, 36, 50, 75, 150, 250]
            .map(|parts| parts * budget / 25)
            .into_iter()
            .chain([4, 5, 6, 7, 8].map(|power| 10_u64.pow(power)));
        let mut loads: Vec<_> = loads.filter(|&events| events >= budget).collect();
        loads.sort_unstable();
        loads.dedup();
        for events in loads {
            for devices in [1, 10, 100, 1000, 10_000] {
                let Some(load) = Load::new(events, budget, devices) else { continue };
                let seed = seed.derive("communication", events ^ devices << 32 ^ budget << 48);
                if devices == 1 {
                    let mut draws = seed.draws();
                    rows.push(cost(&load, "skipping", effort.runs, |_| {
                        traffic::skipping(&load, &mut draws)
                    }));
                }
                if events <= MOST_ONE_BY_ONE {
                    let runs = (effort.one_by_one / events).clamp(1, effort.runs);
                    rows.push(cost(&load, "one by one", runs, |run| {
                        traffic::one_by_one(&load, seed.derive("run", run))
                    }));
                }
            }
        }
    }
    out.rows("communication.csv", &rows)?;
    let furthest = |method: &str| {
        let of = rows
            .iter()
            .filter(|row| row.method == method)
            .map(|row| (row.sent_by_theory - 1.0) * 100.0);
        let (low, high) =
            of.fold((0.0, 0.0), |(low, high): (f64, f64), off| (low.min(off), high.max(off)));
        format!("{low:+.1} % to {high:+.1} %")
    };
    let all = rows.iter().all(|row| row.a_message_a_round);
    table.row([
        "[events sent](communication.csv), budgets 100 to 4,000, 1 to 10,000 devices, a budget to 10^8 events".to_owned(),
        "B (1 + log2(events/B)/2), bar ± 5 %; at most one message per device and round".to_owned(),
        format!(
            "{} by skipping, {} one by one ({} combinations); at most one message per device and round: {}",
            furthest("skipping"),
            furthest("one by one"),
            rows.len(),
            if all { "in all runs" } else { "NOT in all runs" }
        ),
    ]);
    Ok(())
}

#[derive(Serialize)]
struct Growth {
    events: u64,
    ours: f64,
    ours_theory: f64,
    ours_delayed: f64,
    broadcast_every_change: f64,
    send_everything: u64,
}

fn growth(out: &Out<'_>, seed: Seed, effort: Effort, table: &mut Table) -> Result<(), ReportError> {
    let most = 100_000_000_u64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let stops: Vec<u64> = (0..=53)
        .map(|step| (500.0 * 10_f64.powf(f64::from(step) / 10.0)) as u64)
        .take_while(|&stop| stop <= most)
        .chain([most])
        .collect();
    let Some(load) = Load::new(most, BUDGET, DEVICES) else { return Ok(()) };
    let late = Load { delay: DELAY, ..load };
    let mut averages =
        vec![
            (Average::default(), Average::default(), Average::default(), Average::default());
            stops.len()
        ];
    let mut draws = seed.derive("growth", 0).draws();
    for _ in 0..(effort.runs / 10).max(1) {
        let mut at = averages.iter_mut();
        traffic::skipping_through(&load, &stops, &mut draws, &mut |_, traffic| {
            if let Some((ours, _, _, rounds)) = at.next() {
                ours.add(as_f64(traffic.messages(DEVICES)));
                rounds.add(as_f64(traffic.announcements));
            }
        });
        let mut at = averages.iter_mut();
        traffic::skipping_through(&late, &stops, &mut draws, &mut |_, traffic| {
            if let Some((_, delayed, ..)) = at.next() {
                delayed.add(as_f64(traffic.messages(DEVICES)));
            }
        });
        let mut at = averages.iter_mut();
        rivals::broadcast_changes(BUDGET, &stops, &mut draws, &mut |_, cost: Broadcast| {
            if let Some((_, _, broadcast, _)) = at.next() {
                broadcast.add(as_f64(cost.messages(DEVICES)));
            }
        });
    }
    let rows: Vec<_> = stops
        .iter()
        .zip(&averages)
        .map(|(&events, (ours, delayed, broadcast, rounds))| Growth {
            events,
            ours: ours.mean(),
            ours_theory: expected_sent(events, BUDGET) + rounds.mean() * as_f64(DEVICES),
            ours_delayed: delayed.mean(),
            broadcast_every_change: broadcast.mean(),
            send_everything: rivals::send_everything(events),
        })
        .collect();
    out.rows("growth.csv", &rows)?;

    let line = |of: &dyn Fn(&Growth) -> f64| {
        rows.iter().map(|row| (as_f64(row.events), of(row))).collect()
    };
    out.figure(
        "growth.png",
        &Figure {
            title: "Messages, as the load grows".to_owned(),
            subtitle: format!(
                "Budget {BUDGET} events, {DEVICES} devices, one event per message; both directions together"
            ),
            x: Axis::logarithmic("events monitored in the epoch", 500.0, 1e8),
            panels: vec![Panel {
                y: Axis::logarithmic("messages", 400.0, 1.5e8),
                height: 1,
                series: vec![
                    Series::new(
                        "send everything, keep the smallest",
                        Colour::Grey,
                        Stroke::Solid,
                        line(&|row| as_f64(row.send_everything)),
                    ),
                    Series::new(
                        "broadcast every change",
                        Colour::Vermillion,
                        Stroke::Dashed,
                        line(&|row| row.broadcast_every_change),
                    ),
                    Series::new(
                        format!("rounds, {} events late", thousands(DELAY)),
                        Colour::Orange,
                        Stroke::Solid,
                        line(&|row| row.ours_delayed),
                    ),
                    Series::new(
                        "rounds (ours)",
                        Colour::Blue,
                        Stroke::Solid,
                        line(&|row| row.ours),
                    ),
                    Series::new(
                        "rounds, theory",
                        Colour::Black,
                        Stroke::Dotted,
                        line(&|row| row.ours_theory),
                    ),
                ],
            }],
        },
    )?;
    if let Some(last) = rows.last() {
        table.row([
            format!("[messages at 10^8 events](growth.png), budget {BUDGET}, {DEVICES} devices, [data](growth.csv)"),
            format!("{} with rounds", thousands(rounded(last.ours_theory))),
            format!(
                "{} with rounds, {} with rounds {} events late, {} when every change is broadcast, {} when everything is sent",
                thousands(rounded(last.ours)),
                thousands(rounded(last.ours_delayed)),
                thousands(DELAY),
                thousands(rounded(last.broadcast_every_change)),
                thousands(last.send_everything)
            ),
        ]);
    }
    Ok(())
}

#[derive(Serialize)]
struct Late {
    events: u64,
    budget: u64,
    delay: u64,
    sent: f64,
    sent_error: f64,
    extra: f64,
    extra_theory: f64,
}

fn delay(out: &Out<'_>, seed: Seed, effort: Effort, table: &mut Table) -> Result<(), ReportError> {
    let Some(load) = Load::new(MOST_ONE_BY_ONE, BUDGET, DEVICES) else { return Ok(()) };
    let mut rows: Vec<Late> = Vec::new();
    for delay in [0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000] {
        let load = Load { delay, ..load };
        let mut draws = seed.derive("delay", delay).draws();
        let (mut sent, mut theory) = (Average::default(), Average::default());
        for _ in 0..(effort.runs / 4).max(1) {
            let traffic = traffic::skipping(&load, &mut draws);
            sent.add(as_f64(traffic.sent));
            theory.add(expected_late(delay, traffic.round));
        }
        let at_once = rows.first().map_or(sent.mean(), |row| row.sent);
        rows.push(Late {
            events: load.events,
            budget: BUDGET,
            delay,
            sent: sent.mean(),
            sent_error: sent.error(),
            extra: sent.mean() - at_once,
            extra_theory: theory.mean(),
        });
    }
    out.rows("delay.csv", &rows)?;
    let at_once = rows.first().map_or(0.0, |row| row.sent);
    let line = |of: &dyn Fn(&Late) -> f64| {
        rows.iter().skip(1).map(|row| (as_f64(row.delay), of(row))).collect()
    };
    out.figure(
        "delay.png",
        &Figure {
            title: "The cost of late round messages".to_owned(),
            subtitle: format!(
                "Budget {BUDGET}, {} events; without delay {} are sent",
                thousands(load.events),
                thousands(rounded(at_once))
            ),
            x: Axis::logarithmic("delay of a round message, in events of the group", 1.0, 1e5),
            panels: vec![Panel {
                y: Axis::logarithmic("events sent", 1000.0, 2e5),
                height: 1,
                series: vec![
                    Series::new("measured", Colour::Blue, Stroke::Marked, line(&|row| row.sent)),
                    Series::new(
                        "theory: sent without delay, and the delay's share",
                        Colour::Black,
                        Stroke::Dotted,
                        line(&|row| at_once + row.extra_theory),
                    ),
                ],
            }],
        },
    )?;
    if let Some(row) = rows.iter().find(|row| row.delay == DELAY) {
        table.row([
            format!(
                "[late rounds](delay.png), {} events late, [data](delay.csv)",
                thousands(DELAY)
            ),
            format!("{:.0} events more than without delay", row.extra_theory),
            format!("{:.0} ± {:.0} more", row.extra, row.sent_error),
        ]);
    }
    Ok(())
}

#[derive(Serialize)]
struct Use {
    budget: u64,
    epochs: u64,
    used: f64,
    used_error: f64,
    theory: f64,
}

fn utilisation(
    out: &Out<'_>,
    seed: Seed,
    effort: Effort,
    table: &mut Table,
) -> Result<(), ReportError> {
    let mut rows: Vec<Use> = Vec::new();
    for budget in [100, 500, 1000, 2000, 4000, 10_000] {
        let mut draws = seed.derive("the budget's use", budget).draws();
        let used: Average =
            (0..2 * effort.runs).filter_map(|_| traffic::budget_used(budget, &mut draws)).collect();
        rows.push(Use {
            budget,
            epochs: used.count(),
            used: used.mean(),
            used_error: used.error(),
            theory: EXPECTED_USE,
        });
    }
    out.rows("utilisation.csv", &rows)?;
    let measured: Vec<_> = rows
        .iter()
        .map(|row| format!("{:.3} ± {:.3} at {}", row.used, row.used_error, thousands(row.budget)))
        .collect();
    table.row([
        "[budget used](utilisation.csv), loads log-uniform in 2 to 64 budgets".to_owned(),
        format!("1/(2 ln 2) = {EXPECTED_USE:.3}, bar 0.72 ± 0.03"),
        measured.join(", "),
    ]);
    Ok(())
}
