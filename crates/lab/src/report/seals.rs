//! Writes the report on sealing: tables I, II and IV to VII and figures 8 to 14 of Li et al.,
//! compared with the paper's numbers, and additional results.
//!
//! The report draws and compares the measurements of `moteseal-bench lab`. Two results come from
//! models and are marked as such: the signing throughput of a Cortex-M3 (figure 12) and its energy
//! (figure 13). The models use counted instructions and the paper's table I.

mod beyond;
mod modelled_machine;
mod tables;
mod throughput;

use std::path::Path;

use super::page::Entry;
use super::{Out, ReportError};
use crate::figure::{Axis, Colour, Series, Stroke};
use crate::seals::{Measured, Spread, paper};

/// The entries for the page.
#[derive(Clone, Debug, Default)]
pub struct Sealing {
    /// The entries for tables I, II and IV to VII and figures 8 to 14.
    pub paper: Vec<Entry>,
    /// The entries for results that the papers do not have.
    pub beyond: Vec<Entry>,
}

/// The command that measures and writes the report.
const COMMAND: &str = "moteseal-bench lab --out DIRECTORY";

/// Writes figures and data into a folder, which is created if it does not exist.
///
/// # Errors
/// [`ReportError::Write`], [`ReportError::Draw`].
pub fn write(measured: &Measured, out: &Path) -> Result<Sealing, ReportError> {
    let out = Out { folder: out };
    std::fs::create_dir_all(out.folder)
        .map_err(|cause| ReportError::Write { path: out.folder.to_owned(), cause })?;
    let mut paper = tables::write(measured, &out)?;
    paper.extend(throughput::write(measured, &out)?);
    paper.extend(modelled_machine::write(measured, &out)?);
    paper.sort_by_key(|entry| order(&entry.id));
    Ok(Sealing { paper, beyond: beyond::write(measured, &out)? })
}

/// Returns a key that sorts entries as the paper does: first tables, then figures, each by number.
fn order(id: &str) -> (bool, u32, String) {
    let last = id.rsplit('-').next().unwrap_or_default();
    let digits: String = last.chars().take_while(char::is_ascii_digit).collect();
    (id.contains("figure"), digits.parse().unwrap_or(u32::MAX), last.to_owned())
}

/// Describes the events of the throughput experiments, for subtitles and descriptions of
/// replacements.
fn fed(measured: &Measured) -> String {
    let fed = &measured.fed;
    format!(
        "{} events of {} epochs (a device and day each) from {}",
        crate::table::thousands(fed.events as u64),
        fed.epochs,
        fed.sources.join(", ")
    )
}

/// Returns the mean number of events of the replayed epochs, or the number of table V if no epoch
/// was replayed.
#[allow(clippy::cast_precision_loss)]
fn events_an_epoch(measured: &Measured) -> f64 {
    let fed = &measured.fed;
    if fed.events == 0 { paper::EPOCH as f64 } else { fed.events as f64 / fed.epochs.max(1) as f64 }
}

/// Returns text that compares the cost of SHA-256 relative to MD5 here and in the paper's table I.
fn digests(measured: &Measured) -> String {
    let of = |name: &str| {
        measured
            .primitives
            .iter()
            .find(|primitive| primitive.name == name)
            .map(|found| found.time.median)
    };
    let theirs = |name: &str| {
        paper::TABLE_1.iter().find(|row| row.name == name).map_or(f64::NAN, |row| row.ms)
    };
    let here = match (of("SHA-256"), of("MD5")) {
        (Some(sha), Some(md5)) => format!("SHA-256 takes {} times MD5 here", digits(sha / md5)),
        _ => "SHA-256 and MD5 are not measured here".to_owned(),
    };
    let why = if measured.loops.contains("sha") {
        ", which has instructions for SHA and none for MD5"
    } else {
        ""
    };
    let there = digits(theirs("SHA256") / theirs("MD5"));
    format!(
        "{here} (a machine with the loops \"{}\"{why}), {there} times on the paper's Cortex-M3.",
        measured.loops
    )
}

/// Formats a number with three significant digits.
pub(super) fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || !size.is_finite() {
        return if value.is_nan() { "none".to_owned() } else { format!("{value}") };
    }
    if size >= 1000.0 {
        return crate::table::thousands(crate::table::rounded(value));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let decimals = (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.decimals$}")
}

/// Formats nanoseconds in a suitable unit.
pub(super) fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        1e9.. => format!("{} s", digits(nanoseconds / 1e9)),
        1e6.. => format!("{} ms", digits(nanoseconds / 1e6)),
        1e3.. => format!("{} µs", digits(nanoseconds / 1e3)),
        _ => format!("{} ns", digits(nanoseconds)),
    }
}

/// Formats nanoseconds with their spread: `12.3 µs (11.9 to 14.0)`.
pub(super) fn spread(value: Spread) -> String {
    if value.median.is_nan() {
        return "not measured".to_owned();
    }
    format!("{} ({} to {})", time(value.median), time(value.least), time(value.most))
}

/// Formats a number of events per second: `1.23 M`.
fn rate(value: f64) -> String {
    match value {
        1e6.. => format!("{} M", digits(value / 1e6)),
        1e3.. => format!("{} k", digits(value / 1e3)),
        _ => digits(value),
    }
}

/// Formats a number of events per second with its spread: `1.23 M (1.20 M to 1.31 M)`.
fn rates(value: Spread) -> String {
    if value.median.is_nan() {
        return "not measured".to_owned();
    }
    format!("{} ({} to {})", rate(value.median), rate(value.least), rate(value.most))
}

/// Returns a logarithmic axis that contains all values and whose ends are powers of ten.
fn decades(label: &str, values: impl IntoIterator<Item = f64>) -> Axis {
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for value in values.into_iter().filter(|value| value.is_finite() && *value > 0.0) {
        (least, most) = (least.min(value), most.max(value));
    }
    let (least, most) = if least.is_finite() { (least, most) } else { (1.0, 10.0) };
    let (from, to) = (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()));
    Axis::logarithmic(label, from, if to > from { to } else { from * 10.0 })
}

/// Returns a series of medians.
fn line(
    name: impl Into<String>,
    colour: Colour,
    stroke: Stroke,
    points: Vec<(f64, f64)>,
) -> Series {
    Series::new(name, colour, stroke, points)
}

/// Returns the largest finite value, or the smallest positive number if that is larger.
fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max).max(f64::MIN_POSITIVE)
}
