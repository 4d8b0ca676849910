//! Writes figures 5, 6, 7a and 7b, from the recorded days.

use serde::Serialize;

use super::page::{Entry, Shown};
use super::text::SAMPLING;
use super::{BUDGETS, Effort, Out, ReportError};
use crate::chance::{Average, Seed};
use crate::data::{DAYS, Recording, Source};
use crate::experiment::{DayLine, Deviation, PAPER};
use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::kept::{as_f64, days_axis, kept_each_day};
use crate::sampling::{self, Epoch, Plan, Step};
use crate::table::{Table, date, percent, rounded, thousands};
use crate::temperature::{self, Day, TRUNCATED};
use crate::traffic::{self, Load, expected_sent};

/// The budget of figures 5 and 7a.
const BUDGET: u64 = 500;
/// The budgets of figure 7b: the paper's four, a smaller one and a larger one.
const BUDGETS_7B: [u64; 6] = [250, 500, 1000, 2000, 4000, 8000];
/// The device whose temperature is estimated.
const HOME_C: usize = 0;
const SUBTITLE: &str = "Seven sources, 1 May to 31 July 2012: Smart* home C; in place of homes A and B, houses A to E and TelosB motes";

pub(super) fn write(
    devices: &[Recording],
    out: &Out<'_>,
    seed: Seed,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
    index: &mut String,
) -> Result<Vec<Entry>, ReportError> {
    *index += &replacements(devices);
    *index += "\n## Recorded days\n\n";
    let mut table = Table::new(["figure", "the paper", "ours"]);
    progress("figure 5: one day");
    figure5(devices, out, seed, &mut table)?;
    progress("figure 6: events saved each day");
    figure6(devices, out, seed, &mut table)?;
    progress("figure 7a: a mean temperature each day");
    figure7a(devices, out, seed, &mut table)?;
    progress("figure 7b: the mean temperature by budget");
    figure7b(devices, out, seed, effort, &mut table)?;
    *index += &table.markdown();
    *index += &why(devices);
    Ok(table.rows().iter().zip(ENTRIES).filter_map(|(row, entry)| entry.of(row)).collect())
}

/// A figure on the page: its number and its title.
struct OnPage {
    number: &'static str,
    title: &'static str,
}

/// The figures on the page, in the order of the rows of the Markdown table.
const ENTRIES: [OnPage; 4] = [
    OnPage { number: "5", title: "Figure 5: one day within a budget of 500 events" },
    OnPage { number: "6", title: "Figure 6: events saved in the cloud each day" },
    OnPage { number: "7a", title: "Figure 7a: a mean temperature each day, truncated and sampled" },
    OnPage { number: "7b", title: "Figure 7b: what the budget does to the mean temperature" },
];

impl OnPage {
    /// Creates the page's entry from a row of the Markdown table. The row has three cells: figure,
    /// the paper, ours.
    fn of(&self, row: &[String]) -> Option<Entry> {
        let [_, paper, ours] = row else { return None };
        let Self { number, title } = self;
        let entry = Entry::new(
            &format!("sealing-figure-{number}"),
            title,
            "moteseal-lab report --out DIRECTORY",
        );
        let figure = Shown::Figure(format!("fig{number}.png"));
        Some(
            entry
                .paper(paper)
                .ours(ours)
                .why(SAMPLING.get(&format!("{number} why")))
                .replacement(SAMPLING.get("entry replacement"))
                .show(figure)
                .data(&format!("fig{number}.csv")),
        )
    }
}

/// Returns a table of the sources, which states what replaces the paper's sources.
fn replacements(devices: &[Recording]) -> String {
    let mut table = Table::new(["source", "what it is", "days recorded", "events per day"]);
    for (source, recording) in Source::ALL.iter().zip(devices) {
        #[allow(clippy::cast_precision_loss)]
        let events: Average = (0..DAYS).map(|day| recording.day(day).len() as f64).collect();
        table.row([
            format!("`{source}`"),
            source.describe().to_owned(),
            recording.days().to_string(),
            format!("{:.0}", events.mean()),
        ]);
    }
    let table = table.markdown();
    format!("\n{}", SAMPLING.fill("replacements", &[("days", &DAYS), ("table", &table)]))
}

/// Returns the text that explains why our numbers differ from the paper's.
fn why(devices: &[Recording]) -> String {
    let loads: Average = (0..DAYS).map(|day| as_f64(sampling::load(devices, day))).collect();
    let events = thousands(rounded(loads.mean()));
    format!("\n{}\n", SAMPLING.fill("why", &[("events", &events)]))
}

/// Returns the plan for one budget. The fallback is never used: the budgets are constants that are
/// large enough for 32 levels.
fn plan(budget: u64, devices: &[Recording], seed: Seed) -> Plan {
    Plan::new(budget, devices, DAYS, seed).unwrap_or(Plan { budget, levels: 32, seed })
}

#[derive(Serialize)]
struct Moment {
    second: u32,
    monitored: u64,
    sent: u64,
    buffered: u64,
    round: u8,
}

fn figure5(
    devices: &[Recording],
    out: &Out<'_>,
    seed: Seed,
    table: &mut Table,
) -> Result<(), ReportError> {
    let mut steps: Vec<Step> = Vec::new();
    let epoch =
        sampling::epoch(&plan(BUDGET, devices, seed), devices, 0, &mut |step| steps.push(step));
    let rows: Vec<_> = steps
        .iter()
        .map(|step| Moment {
            second: step.second,
            monitored: step.monitored,
            sent: step.sent,
            buffered: step.kept,
            round: step.round.0,
        })
        .collect();
    out.rows("fig5.csv", &rows)?;

    let line = |of: fn(&Step) -> u64| {
        steps.iter().map(|step| (f64::from(step.second) / 3600.0, as_f64(of(step)))).collect()
    };
    let x = Axis::linear("hour of the day", 0.0, 24.0)
        .with_ticks((0..=8).map(|i| (f64::from(3 * i), format!("{:02}:00", 3 * i))));
    let bound = Series::level(format!("budget: {BUDGET}"), Colour::Black, &x, as_f64(BUDGET));
    let figure = Figure {
        title: format!("One day within a budget of {BUDGET} events (figure 5)"),
        subtitle: format!(
            "{}, seven devices; {} events monitored, {} sent, {} kept, final round {}",
            date(0),
            thousands(epoch.monitored),
            thousands(epoch.sent),
            epoch.kept(),
            epoch.round
        ),
        panels: vec![
            Panel {
                y: Axis::linear("events since midnight", 0.0, as_f64(epoch.monitored) * 1.02),
                height: 5,
                series: vec![
                    Series::new(
                        "monitored at the devices",
                        Colour::Grey,
                        Stroke::Solid,
                        line(|step| step.monitored),
                    ),
                    Series::new(
                        "sent to the coordinator",
                        Colour::Vermillion,
                        Stroke::Solid,
                        line(|step| step.sent),
                    ),
                ],
            },
            Panel {
                y: Axis::linear("events buffered at the coordinator", 0.0, as_f64(BUDGET) * 1.08),
                height: 4,
                series: vec![
                    Series::new(
                        "buffered at the coordinator",
                        Colour::Blue,
                        Stroke::Solid,
                        line(|step| step.kept),
                    ),
                    bound,
                ],
            },
        ],
        x,
    };
    out.figure("fig5.png", &figure)?;

    let (monitored, sent) = (PAPER.monitored, PAPER.sent);
    let mut draws = seed.derive("the paper's day", 0).draws();
    let load = Load::new(monitored, BUDGET, 7);
    let alike: Average = load
        .iter()
        .flat_map(|load| (0..2000).map(move |_| load))
        .map(|load| as_f64(traffic::skipping(load, &mut draws).sent))
        .collect();
    table.row([
        "[5](fig5.png), [data](fig5.csv)".to_owned(),
        format!(
            "2012-05-01, budget {BUDGET}: {} of {} events sent",
            thousands(sent),
            thousands(monitored)
        ),
        format!(
            "{} of {} sent (theory {}), {} kept, never more than {} buffered. With the paper's {} \
             events: {} ± {:.0} sent, the mean and standard deviation of 2,000 simulated days \
             (theory {})",
            thousands(epoch.sent),
            thousands(epoch.monitored),
            thousands(rounded(expected_sent(epoch.monitored, BUDGET))),
            epoch.kept(),
            epoch.most_kept,
            thousands(monitored),
            thousands(rounded(alike.mean())),
            alike.deviation(),
            thousands(rounded(expected_sent(monitored, BUDGET))),
        ),
    ]);
    Ok(())
}

fn figure6(
    devices: &[Recording],
    out: &Out<'_>,
    seed: Seed,
    table: &mut Table,
) -> Result<(), ReportError> {
    let runs: Vec<_> = BUDGETS
        .iter()
        .map(|&budget| (budget, sampling::epochs(&plan(budget, devices, seed), devices, DAYS)))
        .collect();
    let mut rows = Vec::new();
    for (budget, epochs) in &runs {
        rows.extend(
            epochs.iter().enumerate().map(|(day, epoch)| DayLine::new(day, *budget, epoch)),
        );
    }
    out.rows("fig6.csv", &rows)?;
    out.figure(
        "fig6.png",
        &kept_each_day("Events saved in the cloud each day (figure 6)", SUBTITLE, &runs),
    )?;

    let used: Vec<_> = runs
        .iter()
        .map(|(budget, epochs)| {
            let used: Average = epochs.iter().map(|epoch| epoch.used(*budget)).collect();
            format!("{} at {}", percent(used.mean()), thousands(*budget))
        })
        .collect();
    let over = rows.iter().filter(|row| row.most_buffered > row.budget).count();
    table.row([
        "[6](fig6.png), [data](fig6.csv)".to_owned(),
        "about 75 % of the budget used on average, for all budgets; never more than the budget"
            .to_owned(),
        format!("{}; more than the budget on {over} of {} days", used.join(", "), rows.len()),
    ]);
    Ok(())
}

#[derive(Serialize)]
struct Estimated {
    date: String,
    truth_fahrenheit: f64,
    readings_sampled: usize,
    sampled_off: Option<f64>,
    first_40_off: f64,
    first_as_many_off: Option<f64>,
}

/// Returns the estimates for each of home C's days that has readings, with the index of the day.
fn estimates(devices: &[Recording], epochs: &[Epoch]) -> Vec<(usize, Day)> {
    let of = |(day, epoch)| Some((day, temperature::day(devices, HOME_C, day, epoch)?));
    epochs.iter().enumerate().filter_map(of).collect()
}

fn figure7a(
    devices: &[Recording],
    out: &Out<'_>,
    seed: Seed,
    table: &mut Table,
) -> Result<(), ReportError> {
    let epochs = sampling::epochs(&plan(BUDGET, devices, seed), devices, DAYS);
    let days = estimates(devices, &epochs);
    let rows: Vec<_> = days
        .iter()
        .map(|(day, estimate)| Estimated {
            date: date(*day),
            truth_fahrenheit: estimate.truth,
            readings_sampled: estimate.readings,
            sampled_off: estimate.sampled_off(),
            first_40_off: estimate.truncated_off(),
            first_as_many_off: estimate.truncated_alike_off(),
        })
        .collect();
    out.rows("fig7a.csv", &rows)?;

    let line = |of: &dyn Fn(&Day) -> f64| {
        days.iter().map(|(day, estimate)| (as_f64(*day as u64), of(estimate))).collect::<Vec<_>>()
    };
    let sampled = line(&|day| day.sampled_off().unwrap_or(f64::NAN));
    let truncated = line(&Day::truncated_off);
    let all =
        || sampled.iter().chain(&truncated).map(|&(_, off)| off).filter(|off| off.is_finite());
    let (low, high) = (all().fold(-1.0, f64::min), all().fold(1.0, f64::max));
    out.figure(
        "fig7a.png",
        &Figure {
            title: format!("Mean temperature of home C, estimated within a budget of {BUDGET} events (figure 7a)"),
            subtitle: "The difference of a day's estimate from the mean of all its readings".to_owned(),
            x: days_axis(DAYS),
            panels: vec![Panel {
                y: Axis::linear("deviation from the true mean, degrees Fahrenheit", (low * 1.1).floor(), (high * 1.1).ceil()),
                height: 1,
                series: vec![
                    Series::new(
                        format!("truncated: the first {TRUNCATED} readings"),
                        Colour::Vermillion,
                        Stroke::Dashed,
                        truncated.clone(),
                    ),
                    Series::new("sampled", Colour::Blue, Stroke::Marked, sampled.clone()),
                ],
            }],
        },
    )?;

    let say = |points: &[(f64, f64)]| {
        Deviation::of(points.iter().map(|&(_, off)| off).filter(|off| off.is_finite()))
    };
    let readings: Average = days.iter().map(|(_, day)| as_f64(day.readings as u64)).collect();
    table.row([
        "[7a](fig7a.png), [data](fig7a.csv)".to_owned(),
        "truncation to the first 40 readings too low on nearly all days (one exception), sampling near the truth; of home A, which is not in the data".to_owned(),
        format!(
            "of home C, mean deviation ± its standard error: sampled {}; the first {TRUNCATED} readings {}. A sample has {:.0} readings on average",
            say(&sampled),
            say(&truncated),
            readings.mean()
        ),
    ]);
    Ok(())
}

#[derive(Serialize)]
struct Accuracy {
    budget: u64,
    seeds: u64,
    readings_sampled: f64,
    sampled_mean_off: f64,
    sampled_mean_off_error: f64,
    sampled_mean_distance: f64,
    first_as_many_mean_off: f64,
    first_as_many_mean_distance: f64,
    first_40_mean_distance: f64,
}

fn figure7b(
    devices: &[Recording],
    out: &Out<'_>,
    seed: Seed,
    effort: Effort,
    table: &mut Table,
) -> Result<(), ReportError> {
    let mut rows: Vec<Accuracy> = Vec::new();
    for budget in BUDGETS_7B {
        let (mut readings, mut off, mut distance) =
            (Average::default(), Average::default(), Average::default());
        let (mut alike, mut alike_distance, mut first) =
            (Average::default(), Average::default(), Average::default());
        for number in 0..effort.seeds {
            let plan = plan(budget, devices, seed.derive("figure 7b", number));
            for (_, day) in estimates(devices, &sampling::epochs(&plan, devices, DAYS)) {
                readings.add(as_f64(day.readings as u64));
                first.add(day.truncated_off().abs());
                if let Some(sampled) = day.sampled_off() {
                    off.add(sampled);
                    distance.add(sampled.abs());
                }
                if let Some(truncated) = day.truncated_alike_off() {
                    alike.add(truncated);
                    alike_distance.add(truncated.abs());
                }
            }
        }
        rows.push(Accuracy {
            budget,
            seeds: effort.seeds,
            readings_sampled: readings.mean(),
            sampled_mean_off: off.mean(),
            sampled_mean_off_error: off.error(),
            sampled_mean_distance: distance.mean(),
            first_as_many_mean_off: alike.mean(),
            first_as_many_mean_distance: alike_distance.mean(),
            first_40_mean_distance: first.mean(),
        });
    }
    out.rows("fig7b.csv", &rows)?;

    let line = |of: fn(&Accuracy) -> f64| {
        rows.iter().map(|row| (as_f64(row.budget), of(row))).collect::<Vec<_>>()
    };
    let most = rows
        .iter()
        .map(|row| row.first_40_mean_distance.max(row.first_as_many_mean_distance))
        .fold(0.5, f64::max);
    out.figure(
        "fig7b.png",
        &Figure {
            title: "A larger budget, a better estimate (figure 7b)".to_owned(),
            subtitle: format!(
                "The error of home C's mean temperature, averaged over {DAYS} days and {} seeds",
                effort.seeds
            ),
            x: Axis::logarithmic("budget, events per day", 220.0, 9100.0)
                .with_ticks(BUDGETS_7B.map(|budget| (as_f64(budget), thousands(budget)))),
            panels: vec![Panel {
                y: Axis::linear(
                    "mean distance from the true mean, degrees Fahrenheit",
                    0.0,
                    most * 1.1,
                ),
                height: 1,
                series: vec![
                    Series::new(
                        format!("truncated: the first {TRUNCATED} readings"),
                        Colour::Vermillion,
                        Stroke::Dashed,
                        line(|row| row.first_40_mean_distance),
                    ),
                    Series::new(
                        "truncated: the first, as many as sampled",
                        Colour::Orange,
                        Stroke::Marked,
                        line(|row| row.first_as_many_mean_distance),
                    ),
                    Series::new(
                        "sampled",
                        Colour::Blue,
                        Stroke::Marked,
                        line(|row| row.sampled_mean_distance),
                    ),
                ],
            }],
        },
    )?;
    let sampled: Vec<_> = rows
        .iter()
        .map(|row| format!("{:.2} at {}", row.sampled_mean_distance, thousands(row.budget)))
        .collect();
    let bias: Vec<_> = rows
        .iter()
        .map(|row| format!("{:+.3} ± {:.3}", row.sampled_mean_off, row.sampled_mean_off_error))
        .collect();
    table.row([
        "[7b](fig7b.png), [data](fig7b.csv)".to_owned(),
        "a larger budget gives a more accurate mean".to_owned(),
        format!(
            "mean distance in °F: {}; mean deviation ± its standard error: {}",
            sampled.join(", "),
            bias.join(", ")
        ),
    ]);
    Ok(())
}
