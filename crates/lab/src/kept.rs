//! Draws the figure of the events that are monitored and kept each day (figure 6 of Li et al.).

use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::sampling::Epoch;
use crate::table::{date, thousands};

/// The colours of the budgets.
const COLOURS: [Colour; 4] = [Colour::Blue, Colour::Orange, Colour::Green, Colour::Purple];

/// Draws figure 6 for the given budgets: the numbers of events monitored and kept each day.
///
/// `runs` contains, for each budget in events, the results of the days in order.
#[must_use]
pub fn kept_each_day(title: &str, subtitle: &str, runs: &[(u64, Vec<Epoch>)]) -> Figure {
    let days = runs.iter().map(|(_, epochs)| epochs.len()).max().unwrap_or(0);
    let x = days_axis(days);
    let monitored: Vec<_> = runs
        .first()
        .map(|(_, epochs)| over_days(epochs.iter().map(|epoch| as_f64(epoch.monitored))))
        .unwrap_or_default();
    let most = monitored.iter().map(|&(_, load)| load).fold(1.0, f64::max);
    let largest = runs.iter().map(|&(budget, _)| budget).max().unwrap_or(1);
    let mut series = Vec::new();
    for ((budget, epochs), colour) in runs.iter().zip(COLOURS.into_iter().cycle()) {
        series.push(Series::level("", colour, &x, as_f64(*budget)));
        let kept = over_days(epochs.iter().map(|epoch| as_f64(epoch.kept())));
        series.push(Series::new(
            format!("saved, budget {}", thousands(*budget)),
            colour,
            Stroke::Marked,
            kept,
        ));
    }
    Figure {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        x,
        panels: vec![
            Panel {
                y: Axis::linear("events monitored per day", 0.0, most * 1.05),
                height: 2,
                series: vec![Series::new("monitored", Colour::Black, Stroke::Solid, monitored)],
            },
            Panel {
                y: Axis::linear(
                    "events saved per day (dotted: the budget)",
                    0.0,
                    as_f64(largest) * 1.05,
                ),
                height: 5,
                series,
            },
        ],
    }
}

/// Returns a horizontal axis of days, with ticks at the first and the fifteenth of each month.
pub(crate) fn days_axis(days: usize) -> Axis {
    let last = as_f64(days.max(2) as u64 - 1);
    Axis::linear("day of 2012", 0.0, last).with_ticks(
        (0..days)
            .filter(|&day| date(day).ends_with("-01") || date(day).ends_with("-15"))
            .map(|day| (as_f64(day as u64), day_and_month(day))),
    )
}

fn over_days(values: impl IntoIterator<Item = f64>) -> Vec<(f64, f64)> {
    (0..).map(as_f64).zip(values).collect()
}

#[allow(clippy::cast_precision_loss)]
pub(crate) const fn as_f64(number: u64) -> f64 {
    number as f64
}

/// Formats a day of the experiment as `15 May`.
fn day_and_month(day: usize) -> String {
    let date = date(day);
    let month = match date.get(5..7) {
        Some("05") => "May",
        Some("06") => "June",
        _ => "July",
    };
    format!("{} {month}", date.get(8..).unwrap_or_default().trim_start_matches('0'))
}
