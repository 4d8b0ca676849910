//! Runs one experiment: replays the 92 days of the chosen sources with one budget. The results for
//! each day and for all days are compared with the paper's numbers.

use std::fmt;

use serde::Serialize;

use crate::chance::{Average, Seed};
use crate::data::{DAYS, Recording, Source};
use crate::figure::Figure;
use crate::kept::kept_each_day;
use crate::sampling::{self, Epoch, Plan};
use crate::table::{Table, date, percent, rounded, thousands};
use crate::temperature::{self, TRUNCATED};
use crate::traffic::expected_sent;

/// The results of one day of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DayLine {
    /// The date.
    pub date: String,
    /// The budget, in events.
    pub budget: u64,
    /// Number of events that all devices monitored.
    pub monitored: u64,
    /// Number of events sent to the coordinator.
    pub sent: u64,
    /// The expected number of sent events.
    pub sent_theory: f64,
    /// Number of events kept.
    pub kept: u64,
    /// The maximum number of events buffered at once.
    pub most_buffered: u64,
    /// The final round.
    pub round: u8,
    /// The used share of the budget.
    pub used: f64,
}

impl DayLine {
    pub(crate) fn new(day: usize, budget: u64, epoch: &Epoch) -> Self {
        Self {
            date: date(day),
            budget,
            monitored: epoch.monitored,
            sent: epoch.sent,
            sent_theory: expected_sent(epoch.monitored, budget),
            kept: epoch.kept(),
            most_buffered: epoch.most_kept,
            round: epoch.round.0,
            used: epoch.used(budget),
        }
    }
}

/// How far an estimate deviates from the true value: the mean over days, and its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// The mean.
    pub mean: f64,
    /// The standard error of the mean.
    pub error: f64,
    /// The number of days.
    pub days: u64,
    /// The number of days on which the estimate was too low.
    pub too_low: u64,
}

impl Deviation {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut average, mut too_low) = (Average::default(), 0);
        for value in values {
            average.add(value);
            too_low += u64::from(value < 0.0);
        }
        Self { mean: average.mean(), error: average.error(), days: average.count(), too_low }
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:+.2} ± {:.2} °F, too low on {} of {} days",
            self.mean, self.error, self.too_low, self.days
        )
    }
}

/// The results of all days together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// Number of events monitored.
    pub monitored: u64,
    /// Number of events sent to the coordinator.
    pub sent: u64,
    /// The expected number of sent events.
    pub sent_theory: f64,
    /// Number of events kept.
    pub kept: u64,
    /// The average share of the budget that is used at the end of a day.
    pub used: f64,
    /// Number of days on which the coordinator buffered more events than the budget at some time.
    pub days_over_budget: u64,
    /// The error of home C's mean temperature when it is estimated from the sample, in degrees
    /// Fahrenheit; absent without home C.
    pub sampled_off: Option<Deviation>,
    /// The error of the same mean when it is estimated from the day's first 40 readings.
    pub truncated_off: Option<Deviation>,
}

/// The paper's numbers for the paper's data, seven sources of Smart* homes A, B and C: section
/// VIII.B.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Paper {
    /// The budget to which the numbers of the first day refer.
    pub budget: u64,
    /// Number of events monitored on 2012-05-01.
    pub monitored: u64,
    /// Number of events sent to the coordinator on 2012-05-01.
    pub sent: u64,
    /// The used share of the budget from May to July, averaged over all budgets.
    pub used: f64,
}

/// The paper's numbers.
pub const PAPER: Paper = Paper { budget: 500, monitored: 2572, sent: 1057, used: 0.75 };

/// A source, with a description of its data and the number of recorded days.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct StandIn {
    name: &'static str,
    is: &'static str,
    days_recorded: usize,
}

/// An experiment and its results.
#[derive(Clone, Debug, Serialize)]
pub struct Experiment {
    budget: u64,
    levels: u8,
    seed: String,
    sources: Vec<StandIn>,
    days: Vec<DayLine>,
    totals: Totals,
    paper: Paper,
    #[serde(skip)]
    epochs: Vec<Epoch>,
}

impl Experiment {
    /// Replays the 92 days of the given sources. Returns `None` if the budget is too small: no
    /// group can then have enough levels for the load.
    #[must_use]
    pub fn run(sources: &[Source], devices: &[Recording], budget: u64, seed: Seed) -> Option<Self> {
        let plan = Plan::new(budget, devices, DAYS, seed)?;
        let epochs = sampling::epochs(&plan, devices, DAYS);
        let days: Vec<_> = epochs
            .iter()
            .enumerate()
            .map(|(day, epoch)| DayLine::new(day, budget, epoch))
            .collect();
        let home_c = sources.iter().position(|&source| source == Source::HomeC);
        let temperatures = home_c.map(|device| {
            let of = |(day, epoch)| temperature::day(devices, device, day, epoch);
            epochs.iter().enumerate().filter_map(of).collect::<Vec<_>>()
        });
        let off = |of: fn(&temperature::Day) -> Option<f64>| {
            Some(Deviation::of(temperatures.as_ref()?.iter().filter_map(of)))
        };
        let totals = Totals {
            monitored: days.iter().map(|day| day.monitored).sum(),
            sent: days.iter().map(|day| day.sent).sum(),
            sent_theory: days.iter().map(|day| day.sent_theory).sum(),
            kept: days.iter().map(|day| day.kept).sum(),
            used: days.iter().map(|day| day.used).collect::<Average>().mean(),
            days_over_budget: days.iter().filter(|day| day.most_buffered > budget).count() as u64,
            sampled_off: off(temperature::Day::sampled_off),
            truncated_off: off(|day| Some(day.truncated_off())),
        };
        let stand_in = |(source, device): (&Source, &Recording)| StandIn {
            name: source.name(),
            is: source.describe(),
            days_recorded: device.days(),
        };
        let sources = sources.iter().zip(devices).map(stand_in).collect();
        Some(Self {
            budget,
            levels: plan.levels,
            seed: seed.to_string(),
            sources,
            days,
            totals,
            paper: PAPER,
            epochs,
        })
    }

    /// Returns the results of each day.
    #[must_use]
    pub fn days(&self) -> &[DayLine] {
        &self.days
    }

    /// Returns the results of all days together.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Returns a figure of the events monitored and kept each day, like figure 6 of the paper.
    #[must_use]
    pub fn figure(&self) -> Figure {
        let names: Vec<_> = self.sources.iter().map(|source| source.name).collect();
        let title = format!("Events saved each day, budget {}", thousands(self.budget));
        kept_each_day(
            &title,
            &format!("{}; seed {}", names.join(", "), self.seed),
            &[(self.budget, self.epochs.clone())],
        )
    }
}

impl fmt::Display for Experiment {
    /// Writes a table for a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new(["day", "monitored", "sent", "theory", "kept", "round", "budget used"]);
        for day in &self.days {
            table.row([
                day.date.clone(),
                thousands(day.monitored),
                thousands(day.sent),
                thousands(rounded(day.sent_theory)),
                thousands(day.kept),
                day.round.to_string(),
                percent(day.used),
            ]);
        }
        let totals = &self.totals;
        writeln!(f, "{table}")?;
        writeln!(
            f,
            "budget {}, {} levels, seed {}",
            thousands(self.budget),
            self.levels,
            self.seed
        )?;
        writeln!(
            f,
            "all days: {} of {} events sent (theory {}), {} kept; {} of the budget used on average; over budget on {} days",
            thousands(totals.sent),
            thousands(totals.monitored),
            thousands(rounded(totals.sent_theory)),
            thousands(totals.kept),
            percent(totals.used),
            totals.days_over_budget
        )?;
        if let (Some(sampled), Some(truncated)) = (&totals.sampled_off, &totals.truncated_off) {
            writeln!(f, "mean temperature of home C by the sample: {sampled}")?;
            writeln!(f, "by the day's first {TRUNCATED} readings instead: {truncated}")?;
        }
        let paper = self.paper;
        writeln!(
            f,
            "\nThe paper, on seven sources of Smart* homes A, B and C: {} of {} events sent on 2012-05-01 at budget {}; about {:.0} % of the\n\
             budget used on average; truncation is biased, sampling is not. Our numbers differ because the sources differ; the data of homes A and B cannot be obtained:",
            thousands(paper.sent),
            thousands(paper.monitored),
            paper.budget,
            100.0 * paper.used
        )?;
        for source in &self.sources {
            let again = if source.days_recorded < DAYS {
                format!(" ({} days, repeated)", source.days_recorded)
            } else {
                String::new()
            };
            writeln!(f, "  {:<8} {}{again}", source.name, source.is)?;
        }
        Ok(())
    }
}
