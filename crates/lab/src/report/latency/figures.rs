//! The figures of the report on latency.

use super::super::{Out, ReportError};
use super::ms;
use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::latency::spread::Histogram;
use crate::latency::wired::{Configuration, Message, Point, Rate, Run};
use crate::latency::wireless::{Medium, Protection};
use crate::latency::{Study, paper};

const COLOURS: [Colour; 5] =
    [Colour::Blue, Colour::Green, Colour::Orange, Colour::Vermillion, Colour::Purple];

/// Returns a logarithmic axis for times in milliseconds that contains these times.
fn times<'p>(label: &str, series: impl Iterator<Item = &'p Series>) -> Axis {
    let values = series.flat_map(|series| &series.points).map(|(_, time)| *time);
    let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
    for value in values.filter(|value| *value > 0.0) {
        (low, high) = (low.min(value), high.max(value));
    }
    if low > high {
        return Axis::logarithmic(label, 0.1, 10.0);
    }
    let ticks = (-3..6).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
    let ticks: Vec<f64> = ticks.collect();
    // Round outwards to the next 1, 2 or 5.
    let from = ticks.iter().copied().rfind(|tick| *tick <= low).unwrap_or(low);
    let to = ticks.iter().copied().find(|tick| *tick >= high).unwrap_or(high);
    let is_wide = to / from > 1e3;
    let shown = ticks.into_iter().filter(|tick| (from..=to).contains(tick));
    let shown = shown.filter(|tick| !is_wide || (tick.log10() - tick.log10().round()).abs() < 1e-6);
    Axis::logarithmic(label, from, to).with_ticks(
        shown
            .map(|tick| {
                (tick, format!("{tick:.3}").trim_end_matches('0').trim_end_matches('.').to_owned())
            })
            .collect::<Vec<_>>(),
    )
}

/// Figure 4: the times per message of the trials, and the paper's.
pub(super) fn wireless(study: &Study, out: &Out<'_>) -> Result<(), ReportError> {
    let panel = |medium: Medium| {
        let mut series = Vec::new();
        for (protection, colour) in Protection::ALL.into_iter().zip(COLOURS) {
            for of in study
                .wireless
                .iter()
                .filter(|of| (of.medium, of.protection) == (medium, protection))
            {
                let name = format!("{protection}, QoS {}", of.qos);
                let points = (1..).map(f64::from).zip(of.per_message.iter().copied()).collect();
                let stroke = if of.qos == 0 { Stroke::Marked } else { Stroke::Dashed };
                let name = if medium == Medium::Loopback { name } else { String::new() };
                series.push(Series::new(name, colour, stroke, points));
            }
            let column = Protection::ALL.iter().position(|one| *one == protection);
            if let Some(column @ 0..3) = column {
                let place = usize::from(medium == Medium::Hotspot);
                let points =
                    (1..).map(f64::from).zip(paper::TRIALS.map(|trial| trial[place][column]));
                series.push(Series::new("", colour, Stroke::Dotted, points.collect()));
            }
        }
        let label = match medium {
            Medium::Loopback => "loopback (dotted: the paper's router), ms per message",
            Medium::Hotspot => "shaped link (dotted: the paper's hotspot), ms per message",
        };
        Panel { y: times(label, series.iter()), height: 1, series }
    };
    let trials = study.wireless.iter().map(|of| of.per_message.len()).max().unwrap_or(1).max(5);
    #[allow(clippy::cast_precision_loss)]
    let x = Axis::linear("trial", 1.0, trials as f64);
    out.figure(
        "fig4.png",
        &Figure {
            title: "Time per message of 24 bytes over MQTT (figure 4)".to_owned(),
            subtitle:
                "From the first string to the arrival of the last one, divided by their number"
                    .to_owned(),
            x,
            panels: Medium::ALL.map(panel).to_vec(),
        },
    )?;
    let panel = |medium: Medium| {
        let qos = |qos: u8| {
            study.wireless.iter().filter(move |of| (of.medium, of.qos) == (medium, qos)).map(
                move |of| {
                    let colour = COLOURS[of.protection as usize];
                    let name = match medium {
                        Medium::Loopback => format!("{}, QoS {}", of.protection, of.qos),
                        Medium::Hotspot => String::new(),
                    };
                    let stroke = if qos == 0 { Stroke::Solid } else { Stroke::Dashed };
                    Series::new(name, colour, stroke, shares(&of.histogram))
                },
            )
        };
        let series: Vec<Series> = qos(0).chain(qos(1)).collect();
        share_panel(&format!("{}: share of the strings, %", medium.name()), series)
    };
    let panels = Medium::ALL.map(panel).to_vec();
    out.figure(
        "histogram_wireless.png",
        &Figure {
            title: "Latency of strings of 24 bytes over MQTT".to_owned(),
            subtitle: "Sent as fast as possible; ten bins a decade".to_owned(),
            x: bins(&panels),
            panels,
        },
    )
}

/// Returns the share of each bin in percent.
#[allow(clippy::cast_precision_loss)]
fn shares(histogram: &Histogram) -> Vec<(f64, f64)> {
    let all = histogram.count().max(1) as f64;
    // A point is in the middle of its bin.
    let middle = 10_f64.powf(0.05);
    histogram.bins().map(|(from, count)| (from * middle, 100.0 * count as f64 / all)).collect()
}

fn share_panel(label: &str, series: Vec<Series>) -> Panel {
    let most = series.iter().flat_map(|of| &of.points).map(|(_, share)| *share).fold(1.0, f64::max);
    Panel { y: Axis::linear(label, 0.0, most), height: 1, series }
}

/// Returns the horizontal axis of histograms.
fn bins(panels: &[Panel]) -> Axis {
    let series = panels.iter().flat_map(|panel| &panel.series);
    let swapped: Vec<Series> = series
        .map(|of| Series {
            points: of.points.iter().map(|(x, y)| (*y, *x)).collect(),
            ..of.clone()
        })
        .collect();
    times("ms", swapped.iter())
}

fn line(points: &[Point], of: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    points.iter().map(|point| (point.at_s, of(point))).collect()
}

/// Figure 5: the end-to-end latency over the time of the runs at the maximum rate.
pub(super) fn over_time(study: &Study, out: &Out<'_>) -> Result<(), ReportError> {
    let panel = |configuration: Configuration| {
        let series: Vec<Series> =
            [(Message::Short, Colour::Blue), (Message::Long, Colour::Vermillion)]
                .into_iter()
                .filter_map(|(message, colour)| {
                    let run = study.wired_run(configuration, message, Rate::Maximum)?;
                    let name = message.to_string();
                    let points = line(&run.timeline, |point| point.total);
                    Some(Series::new(name, colour, Stroke::Dots, points))
                })
                .collect();
        (!series.is_empty()).then(|| Panel {
            y: times(&format!("configuration {}, ms", configuration.describe()), series.iter()),
            height: 1,
            series,
        })
    };
    let mut panels: Vec<Panel> = Configuration::ALL.into_iter().filter_map(panel).collect();
    // The names are in the legend once.
    for panel in panels.iter_mut().skip(1) {
        panel.series.iter_mut().for_each(|series| series.name.clear());
    }
    let x = seconds(&panels);
    out.figure(
        "fig5.png",
        &Figure {
            title: "End-to-end latency at the maximum rate (figure 5)".to_owned(),
            subtitle:
                "The longest latency of each interval. Configurations 1 to 3 take turns of 1 s.\n\
                       The vertical scales differ"
                    .to_owned(),
            x,
            panels,
        },
    )
}

fn seconds(panels: &[Panel]) -> Axis {
    let points = panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
    let last = points.map(|(at, _)| *at).fold(1.0, f64::max);
    Axis::linear("seconds since the first message", 0.0, last)
}

/// Figure 6: the processing latency of configuration 4 with messages of 24 bytes.
pub(super) fn sawtooth(study: &Study, out: &Out<'_>) -> Result<(), ReportError> {
    let rates = [
        (Rate::Low, Colour::Green),
        (Rate::Maximum, Colour::Blue),
        (Rate::Parallel, Colour::Vermillion),
    ];
    let runs: Vec<(&Run, Colour)> = rates
        .into_iter()
        .filter_map(|(rate, colour)| {
            Some((study.wired_run(Configuration::Four, Message::Short, rate)?, colour))
        })
        // Results of earlier versions have no messages at the low rate.
        .filter(|(run, _)| !run.timeline.is_empty())
        .collect();
    let has_longest = runs.iter().all(|(run, _)| !run.processing_timeline.is_empty());
    let which = if has_longest {
        "the longest of each interval"
    } else {
        "of the message with the longest\nend-to-end latency of each interval"
    };
    let lines = |with_name: bool| {
        let runs = runs.iter().map(move |(run, colour)| {
            let name = if with_name { run.rate.name() } else { "" };
            let kept = if has_longest { &run.processing_timeline } else { &run.timeline };
            let points = line(kept, |point| point.processing);
            Series::new(name, *colour, Stroke::Solid, points)
        });
        runs.collect::<Vec<Series>>()
    };
    let paper = Series::new(
        "the paper's longest: 6 s",
        Colour::Grey,
        Stroke::Dotted,
        vec![(0.0, paper::SAWTOOTH), (study.seconds, paper::SAWTOOTH)],
    );
    let series = [lines(true), vec![paper]].concat();
    let panel = Panel { y: times("processing latency, ms", series.iter()), height: 1, series };
    let panels = vec![panel];
    out.figure(
        "fig6.png",
        &Figure {
            title: "Processing latency of configuration 4, messages of 24 bytes (figure 6)"
                .to_owned(),
            subtitle: format!(
                "From the start of the worker's write until the table has synced it; {which}"
            ),
            x: seconds(&panels),
            panels,
        },
    )?;
    // Messages of one write have the same processing latency.
    let panels: Vec<Panel> = runs
        .iter()
        .map(|(run, colour)| {
            let points = (0..).map(f64::from).zip(run.detail.iter().map(|point| point.processing));
            let series = Series::new("", *colour, Stroke::Dots, points.collect());
            let label = format!(
                "{}: processing latency, ms (longest of the run: {})",
                run.rate,
                ms(run.processing.max)
            );
            let most = series.points.iter().map(|(_, time)| *time).fold(1.0, f64::max);
            Panel { y: Axis::linear(&label, 0.0, most), height: 1, series: vec![series] }
        })
        .collect();
    let most = panels.iter().flat_map(|panel| &panel.series).map(|one| one.points.len()).max();
    #[allow(clippy::cast_precision_loss)]
    let x = Axis::linear(
        "messages in the order in which they were sent",
        0.0,
        most.unwrap_or(1) as f64,
    );
    out.figure(
        "fig6_detail.png",
        &Figure {
            title: "Consecutive messages of configuration 4, 24 bytes".to_owned(),
            subtitle: "From the middle of the run".to_owned(),
            x,
            panels,
        },
    )
}

/// Histograms of the end-to-end latency with messages of 1,024 bytes.
pub(super) fn histograms(study: &Study, out: &Out<'_>) -> Result<(), ReportError> {
    let panel = |rate: Rate| {
        let series: Vec<Series> = Configuration::ALL
            .into_iter()
            .zip(COLOURS)
            .filter_map(|(configuration, colour)| {
                let run = study.wired_run(configuration, Message::Long, rate)?;
                let name = if rate == Rate::Low { configuration.describe() } else { "" };
                Some(Series::new(name, colour, Stroke::Marked, shares(&run.histogram)))
            })
            .collect();
        share_panel(&format!("{rate}: share of the messages, %"), series)
    };
    let panels: Vec<Panel> = [Rate::Low, Rate::Maximum].map(panel).to_vec();
    out.figure(
        "histogram_wired.png",
        &Figure {
            title: "End-to-end latency of messages of 1,024 bytes".to_owned(),
            subtitle: "Ten bins a decade; the vertical scales differ".to_owned(),
            x: bins(&panels),
            panels,
        },
    )
}
