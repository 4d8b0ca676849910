//! Writes the report on secure sums: tables II, III and V, and figures 4, 5 and 6 of Papadopoulos
//! et al. (2011), compared with the paper's numbers.
//!
//! The report contains the measurements of `moteseal-bench sums`. It also evaluates the paper's
//! equations 1 to 11 twice: with the paper's costs of primitives, and with the costs on this
//! machine.

use std::path::Path;

use std::fmt::Display;

use serde::Serialize;

use super::page::{Entry, Shown, numbered};
use super::text::SUMS;
use super::{INDEX, Out, ReportError};
use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::sums::{self, Bounds, Measured, Model, Point, Primitives, Setting};
use crate::table::{Table, percent, thousands};

/// The command that measures and writes the report.
const COMMAND: &str = "moteseal-bench sums --out DIRECTORY";

/// Writes the tables and figures into a folder, which is created if it does not exist. Returns the
/// entries for the page.
///
/// # Errors
/// [`ReportError::Write`], [`ReportError::Draw`].
pub fn write(measured: &Measured, out: &Path) -> Result<Vec<Entry>, ReportError> {
    let out = Out { folder: out };
    std::fs::create_dir_all(out.folder)
        .map_err(|cause| ReportError::Write { path: out.folder.to_owned(), cause })?;
    let mut index = SUMS.fill("head", &[("host", &measured.host)]) + "\n";
    let mut entries = Vec::new();
    index += &table2(measured, &out, &mut entries)?;
    index += &table3(measured, &out, &mut entries)?;
    index += &figures(measured, &out, &mut entries)?;
    index += &table5(measured, &out, &mut entries)?;
    index += &accuracy(measured);
    index += &format!("\n{}\n", SUMS.get("why"));
    out.text(INDEX, &index)?;
    Ok(entries)
}

/// Formats a number with three significant digits.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !size.is_finite() {
        return format!("{value}");
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let decimals = (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}

/// Formats microseconds in a suitable unit.
fn time(microseconds: f64) -> String {
    match microseconds {
        1e6.. => format!("{} s", digits(microseconds / 1e6)),
        1e3.. => format!("{} ms", digits(microseconds / 1e3)),
        1.0.. => format!("{} µs", digits(microseconds)),
        _ => format!("{} ns", digits(microseconds * 1e3)),
    }
}

fn times(bounds: Bounds) -> String {
    format!("{} / {}", time(bounds.least), time(bounds.most))
}

#[derive(Serialize)]
struct Primitive {
    symbol: &'static str,
    meaning: &'static str,
    paper_us: f64,
    ours_us: f64,
}

fn table2(
    measured: &Measured,
    out: &Out<'_>,
    entries: &mut Vec<Entry>,
) -> Result<String, ReportError> {
    let pairs = Primitives::PAPER.named().into_iter().zip(measured.primitives.named());
    let rows: Vec<_> = pairs
        .map(|((symbol, meaning, paper_us), (_, _, ours_us))| Primitive {
            symbol,
            meaning,
            paper_us,
            ours_us,
        })
        .collect();
    out.rows("table2.csv", &rows)?;
    let mut table = Table::new(["symbol", "cost of", "the paper", "this machine"]);
    for row in &rows {
        table.row([
            row.symbol.to_owned(),
            row.meaning.to_owned(),
            time(row.paper_us),
            time(row.ours_us),
        ]);
    }
    let (paper, ours) = (Primitives::PAPER, measured.primitives);
    entries.push(
        Entry::new("sums-table-2", "Table II: costs of the primitives", COMMAND)
            .paper(format!(
                "HMAC-SHA-1 {}, RSA {}, 32-byte modular multiplication {}",
                time(paper.hm1),
                time(paper.rsa),
                time(paper.multiply32)
            ))
            .ours(format!(
                "HMAC-SHA-1 {}, RSA {}, 32-byte modular multiplication {}",
                time(ours.hm1),
                time(ours.rsa),
                time(ours.multiply32)
            ))
            .why(SUMS.get("table 2 why"))
            .show(Shown::Table(table.clone()))
            .data("table2.csv"),
    );
    Ok(format!("\n{}", SUMS.fill("table 2", &[("table", &table.markdown())])))
}

#[derive(Serialize)]
struct Cost {
    cost: &'static str,
    scheme: &'static str,
    unit: &'static str,
    /// The times as table III prints them; for SECOA, the least and the most.
    paper_prints: &'static str,
    paper_model_least: f64,
    paper_model_most: f64,
    model_least: f64,
    model_most: f64,
    measured: f64,
}

/// A party, its equations, and the values that table III prints for CMT, `SECOA^S` and SIES.
type Party = (&'static str, fn(&Primitives, &Setting) -> Model, [&'static str; 3]);

fn table3(
    measured: &Measured,
    out: &Out<'_>,
    entries: &mut Vec<Entry>,
) -> Result<String, ReportError> {
    let parties: [Party; 3] = [
        ("a source", sums::source, ["1.17 µs", "20.26 ms / 92.75 ms", "3.46 µs"]),
        ("an aggregator", sums::aggregator, ["0.45 µs", "1.25 ms / 36.63 ms", "1.11 µs"]),
        ("the querier", sums::querier, ["0.62 ms", "568.46 ms / 568.63 ms", "2.28 ms"]),
    ];
    let default =
        |points: &[Point]| points.iter().find(|point| point.setting == Setting::DEFAULT).copied();
    let points = [&measured.source, &measured.aggregator, &measured.querier_by_sources]
        .map(|points| default(points));
    let mut rows = Vec::new();
    let mut table = Table::new([
        "cost at",
        "scheme",
        "the paper",
        "equations with the paper's primitives",
        "equations with this machine's primitives",
        "measured",
    ]);
    for ((party, equations, printed), point) in parties.into_iter().zip(points) {
        let theirs = equations(&Primitives::PAPER, &Setting::DEFAULT);
        let ours = equations(&measured.primitives, &Setting::DEFAULT);
        let one = |value| Bounds { least: value, most: value };
        let lines = [
            (
                "CMT",
                printed[0],
                Some((one(theirs.cmt), one(ours.cmt))),
                point.map(|point| point.cmt),
            ),
            (
                "SECOA^S",
                printed[1],
                Some((theirs.secoa, ours.secoa)),
                point.map(|point| point.secoa),
            ),
            (
                "SIES, the paper's",
                printed[2],
                Some((one(theirs.sies), one(ours.sies))),
                point.map(|point| point.sies_paper),
            ),
            ("SIES, ours", "", None, point.map(|point| point.sies)),
        ];
        for (scheme, printed, models, measured) in lines {
            let text = |bounds: Bounds| {
                if scheme == "SECOA^S" { times(bounds) } else { time(bounds.least) }
            };
            table.row([
                party.to_owned(),
                scheme.to_owned(),
                printed.to_owned(),
                models.map_or_else(String::new, |(theirs, _)| text(theirs)),
                models.map_or_else(String::new, |(_, ours)| text(ours)),
                measured.map_or_else(|| "not measured at the default".to_owned(), time),
            ]);
            let none = Bounds { least: f64::NAN, most: f64::NAN };
            let (theirs, ours) = models.unwrap_or((none, none));
            rows.push(Cost {
                cost: party,
                scheme,
                unit: "us",
                paper_prints: printed,
                paper_model_least: theirs.least,
                paper_model_most: theirs.most,
                model_least: ours.least,
                model_most: ours.most,
                measured: measured.unwrap_or(f64::NAN),
            });
        }
    }
    out.rows("table3.csv", &rows)?;
    let of = |party: &str| {
        let ours = rows
            .iter()
            .find(|row| row.cost == party && row.scheme == "SIES, ours")
            .map_or(f64::NAN, |row| row.measured);
        format!(
            "{party} {}",
            if ours.is_nan() { "not measured at N = 1,024".to_owned() } else { time(ours) }
        )
    };
    entries.push(
        Entry::new("sums-table-3", "Table III: costs at typical values", COMMAND)
            .paper("SIES: a source 3.46 µs, an aggregator 1.11 µs, the querier 2.28 ms; SECOA^S at the querier 568 ms; bytes on an edge: 20, 38.72 KB, 32")
            .ours(format!("SIES: {}, {}, {}; bytes on an edge are in table V", of("a source"), of("an aggregator"), of("the querier")))
            .why(SUMS.get("table 3 why"))
            .replacement(SUMS.get("readings"))
            .show(Shown::Table(table.clone()))
            .data("table3.csv"),
    );
    Ok(format!("\n{}\n", SUMS.fill("table 3", &[("table", &table.markdown())])))
}

/// A row of a figure's CSV file, in microseconds: measured values, values of the equations with
/// this machine's costs of primitives, and values of the equations with the paper's costs.
#[derive(Serialize)]
struct Line {
    sources: u32,
    fanout: u32,
    lowest: u64,
    highest: u64,
    epochs: u32,
    secoa_epochs: u32,
    cmt_us: f64,
    sies_paper_us: f64,
    sies_us: f64,
    secoa_us: f64,
    model_cmt_us: f64,
    model_sies_us: f64,
    model_secoa_least_us: f64,
    model_secoa_most_us: f64,
    paper_cmt_us: f64,
    paper_sies_us: f64,
    paper_secoa_least_us: f64,
    paper_secoa_most_us: f64,
}

/// One figure: its name, its texts, and its horizontal axis.
struct Plot<'a> {
    name: &'a str,
    title: &'a str,
    subtitle: &'a str,
    x: Axis,
    place: fn(&Point) -> f64,
    points: &'a [Point],
    equations: fn(&Primitives, &Setting) -> Model,
    /// The statement in the text of the paper.
    claim: &'a str,
    /// The reason why our numbers differ from the paper's.
    why: &'a str,
}

fn figures(
    measured: &Measured,
    out: &Out<'_>,
    entries: &mut Vec<Entry>,
) -> Result<String, ReportError> {
    let domain = |points: &[Point]| {
        let most = points.iter().map(scale).fold(10.0, f64::max);
        let ticks = points.iter().map(|point| {
            (scale(point), format!("x{}", thousands(10_u64.saturating_pow(point.decimals))))
        });
        Axis::logarithmic("domain: [18, 50] and its factor", 1.0, most)
            .with_ticks(ticks.collect::<Vec<_>>())
    };
    let most_sources = measured.querier_by_sources.iter().map(sources).fold(128.0, f64::max);
    let source_ticks: Vec<_> = measured
        .querier_by_sources
        .iter()
        .map(|point| (sources(point), thousands(point.setting.sources.into())))
        .collect();
    let least_sources =
        measured.querier_by_sources.iter().map(sources).fold(most_sources, f64::min);
    let shown = [
        Plot {
            name: "fig4",
            title: "A source, by the domain of its values (figure 4)",
            subtitle: "N = 1,024, J = 300; processor time per reading",
            x: domain(&measured.source),
            place: scale,
            points: &measured.source,
            equations: sums::source,
            claim: "SIES more than 100 times cheaper than SECOA^S, a couple of microseconds, and independent of the domain",
            why: "Our source computes a block of ChaCha20; the paper's computes HMACs. SECOA^S gained less from newer processors, because it computes sketches one by one.",
        },
        Plot {
            name: "fig5",
            title: "An aggregator, by its children (figure 5)",
            subtitle: "J = 300, D = [1800, 5000]; processor time per epoch",
            x: Axis::linear("fan-out", 2.0, 6.0)
                .with_ticks((2..=6_u32).map(|fanout| (fanout.into(), fanout.to_string()))),
            place: fanout,
            points: &measured.aggregator,
            equations: sums::aggregator,
            claim: "SIES 0.3 to 2 µs, about 100 times cheaper than SECOA^S; all linear in the fan-out",
            why: "A modular addition takes some nanoseconds here; the paper's 0.37 µs are mostly the call of a bignum library. SECOA^S still folds and rolls RSA.",
        },
        Plot {
            name: "fig6a",
            title: "The querier, by the number of sources (figure 6a)",
            subtitle: "J = 300, F = 4, D = [1800, 5000]; processor time per epoch",
            x: Axis::logarithmic("sources", least_sources, most_sources).with_ticks(source_ticks),
            place: sources,
            points: &measured.querier_by_sources,
            equations: sums::querier,
            claim: "SIES 0.15 to 36 ms, more than 10 times cheaper than SECOA^S; all linear in the sources",
            why: "Our querier derives the keys of many sources at once in vector loops; the paper's computes one HMAC after the other. Both are linear in the number of sources.",
        },
        Plot {
            name: "fig6b",
            title: "The querier, by the domain of the values (figure 6b)",
            subtitle: "N = 1,024, J = 300, F = 4; processor time per epoch",
            x: domain(&measured.querier_by_domain),
            place: scale,
            points: &measured.querier_by_domain,
            equations: sums::querier,
            claim: "SIES and CMT are independent of the domain, SECOA^S is almost independent",
            why: "The machine and the loops are the same as in figure 6a. As in the paper, the domain does not matter.",
        },
    ];
    let mut table = Table::new(["figure", "the paper", "ours: SIES", "SECOA^S", "SECOA^S / SIES"]);
    for shown in &shown {
        figure(measured, out, shown)?;
        let range = |of: fn(&Point) -> f64, text: fn(f64) -> String| {
            let values = || shown.points.iter().map(of);
            format!(
                "{} to {}",
                text(values().fold(f64::INFINITY, f64::min)),
                text(values().fold(0.0, f64::max))
            )
        };
        let (sies, secoa, factor) = (
            range(|point| point.sies, time),
            range(|point| point.secoa, time),
            range(|point| point.secoa / point.sies, digits),
        );
        let number = shown.name.trim_start_matches("fig");
        entries.push(
            Entry::new(&format!("sums-figure-{number}"), &numbered(number, shown.title), COMMAND)
                .paper(shown.claim)
                .ours(format!("SIES {sies}, SECOA^S {secoa}; SECOA^S / SIES {factor}"))
                .why(shown.why)
                .replacement(SUMS.get("readings"))
                .show(Shown::Figure(format!("{}.png", shown.name)))
                .data(&format!("{}.csv", shown.name)),
        );
        table.row([
            format!("[{0}]({0}.png), [data]({0}.csv)", shown.name),
            shown.claim.to_owned(),
            sies,
            secoa,
            factor,
        ]);
    }
    Ok(format!("\n{}", SUMS.fill("figures", &[("table", &table.markdown())])))
}

fn scale(point: &Point) -> f64 {
    10_f64.powi(point.decimals.try_into().unwrap_or(i32::MAX))
}

fn fanout(point: &Point) -> f64 {
    point.setting.fanout.into()
}

fn sources(point: &Point) -> f64 {
    point.setting.sources.into()
}

fn figure(measured: &Measured, out: &Out<'_>, shown: &Plot<'_>) -> Result<(), ReportError> {
    let line = |point: &Point| {
        let ours = (shown.equations)(&measured.primitives, &point.setting);
        let theirs = (shown.equations)(&Primitives::PAPER, &point.setting);
        Line {
            sources: point.setting.sources,
            fanout: point.setting.fanout,
            lowest: point.setting.lowest,
            highest: point.setting.highest,
            epochs: point.epochs,
            secoa_epochs: point.secoa_epochs,
            cmt_us: point.cmt,
            sies_paper_us: point.sies_paper,
            sies_us: point.sies,
            secoa_us: point.secoa,
            model_cmt_us: ours.cmt,
            model_sies_us: ours.sies,
            model_secoa_least_us: ours.secoa.least,
            model_secoa_most_us: ours.secoa.most,
            paper_cmt_us: theirs.cmt,
            paper_sies_us: theirs.sies,
            paper_secoa_least_us: theirs.secoa.least,
            paper_secoa_most_us: theirs.secoa.most,
        }
    };
    let lines: Vec<_> = shown.points.iter().map(line).collect();
    out.rows(&format!("{}.csv", shown.name), &lines)?;

    let curve = |of: fn(&Line) -> f64| {
        shown.points.iter().map(shown.place).zip(lines.iter().map(of)).collect::<Vec<_>>()
    };
    let series = vec![
        Series::new(
            "SECOA, the paper's model: best and worst",
            Colour::Orange,
            Stroke::Dotted,
            curve(|line| line.paper_secoa_least_us),
        ),
        Series::new("", Colour::Orange, Stroke::Dotted, curve(|line| line.paper_secoa_most_us)),
        Series::new(
            "SIES, the paper's model",
            Colour::Purple,
            Stroke::Dotted,
            curve(|line| line.paper_sies_us),
        ),
        Series::new(
            "SECOA, our model: best and worst",
            Colour::Vermillion,
            Stroke::Dotted,
            curve(|line| line.model_secoa_least_us),
        ),
        Series::new("", Colour::Vermillion, Stroke::Dotted, curve(|line| line.model_secoa_most_us)),
        Series::new("SECOA", Colour::Vermillion, Stroke::Marked, curve(|line| line.secoa_us)),
        Series::new(
            "SIES by the paper",
            Colour::Green,
            Stroke::Marked,
            curve(|line| line.sies_paper_us),
        ),
        Series::new("SIES, ours", Colour::Blue, Stroke::Marked, curve(|line| line.sies_us)),
        Series::new("CMT", Colour::Grey, Stroke::Marked, curve(|line| line.cmt_us)),
    ];
    let all =
        || series.iter().flat_map(|series| &series.points).map(|&(_, y)| y).filter(|y| *y > 0.0);
    let decade = |value: f64, up: bool| {
        10_f64.powf(if up { value.log10().ceil() } else { value.log10().floor() })
    };
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    out.figure(
        &format!("{}.png", shown.name),
        &Figure {
            title: shown.title.to_owned(),
            subtitle: shown.subtitle.to_owned(),
            x: shown.x.clone(),
            panels: vec![Panel {
                y: Axis::logarithmic(
                    "microseconds",
                    decade(least.max(1e-4), false),
                    decade(most.max(1.0), true),
                ),
                height: 1,
                series,
            }],
        },
    )
}

#[derive(Serialize)]
struct Edge {
    edge: &'static str,
    scheme: &'static str,
    paper: &'static str,
    /// What the paper's equations give; `None` for what the paper does not count.
    model_least: Option<f64>,
    model_most: Option<f64>,
    sent: u64,
}

fn table5(
    measured: &Measured,
    out: &Out<'_>,
    entries: &mut Vec<Entry>,
) -> Result<String, ReportError> {
    let edges = &measured.edges;
    let (edge, last) =
        (sums::secoa_edge(&Setting::DEFAULT), sums::secoa_last_edge(&Setting::DEFAULT));
    let mut rows = Vec::new();
    for name in ["source to aggregator", "aggregator to aggregator", "sink to querier"] {
        let to_querier = name == "sink to querier";
        let (model, paper, sent) = if to_querier {
            (last, "832 / 448 / 6,700 (actual / least / most)", edges.secoa_last)
        } else {
            (Bounds { least: edge, most: edge }, "37.8 KB", edges.secoa)
        };
        let exact = |scheme, paper, size: u64, sent| {
            let size = f64::from(u32::try_from(size).unwrap_or(u32::MAX));
            let size = Some(size);
            Edge { edge: name, scheme, paper, model_least: size, model_most: size, sent }
        };
        rows.push(exact("CMT", "20", 20, edges.cmt));
        rows.push(Edge {
            edge: name,
            scheme: "SECOA^S",
            paper,
            model_least: Some(model.least),
            model_most: Some(model.most),
            sent,
        });
        rows.push(exact("SIES, the paper's", "32", 32, edges.sies_paper));
        rows.push(exact("SIES, ours, a PSR", "", 32, edges.sies));
        let (from_source, from_aggregator) = edges.sies_frames;
        let frame = if name == "source to aggregator" { from_source } else { from_aggregator };
        rows.push(Edge {
            edge: name,
            scheme: "SIES, ours, the whole frame",
            paper: "",
            model_least: None,
            model_most: None,
            sent: frame,
        });
    }
    out.rows("table5.csv", &rows)?;
    let mut table =
        Table::new(["edge", "scheme", "the paper, bytes", "equations 10 and 11", "sent"]);
    for row in rows {
        let model = match (row.model_least, row.model_most) {
            (Some(least), Some(most)) if (least - most).abs() < 0.5 => format!("{least:.0}"),
            (Some(least), Some(most)) => format!("{least:.0} / {most:.0}"),
            _ => String::new(),
        };
        table.row([
            row.edge.to_owned(),
            row.scheme.to_owned(),
            row.paper.to_owned(),
            model,
            thousands(row.sent),
        ]);
    }
    entries.push(
        Entry::new("sums-table-5", "Table V: bytes on an edge", COMMAND)
            .paper("CMT 20; SECOA^S 37.8 KB, and 832 on the edge to the querier (448 to 6.7 KB); SIES 32")
            .ours(format!(
                "CMT {}; SECOA^S {}, and {} on the edge to the querier; SIES {}",
                edges.cmt,
                thousands(edges.secoa),
                thousands(edges.secoa_last),
                edges.sies
            ))
            .why(SUMS.get("table 5 why"))
            .replacement(SUMS.get("readings"))
            .show(Shown::Table(table.clone()))
            .data("table5.csv"),
    );
    let seals = format!("{:.1}", edges.seals);
    let table = table.markdown();
    Ok(format!("\n{}\n", SUMS.fill("table 5", &[("table", &table), ("seals", &seals)])))
}

fn accuracy(measured: &Measured) -> String {
    let accuracy = &measured.accuracy;
    let values: [(&str, &dyn Display); 5] = [
        ("sums", &thousands(measured.exact)),
        ("estimates", &thousands(accuracy.estimates.into())),
        ("bias", &percent(accuracy.bias)),
        ("within", &percent(accuracy.within_tenth)),
        ("corrected", &percent(accuracy.corrected_within_tenth)),
    ];
    format!("\n{}\n", SUMS.fill("accuracy", &values))
}
