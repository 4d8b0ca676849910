//! Measures how costs grow with the amount of data: sealing an event in ever longer seals, and
//! fetching a sample of fixed size from ever larger stores. Prints one table and optionally draws
//! one figure.

use std::path::Path;

use moteseal_lab::figure::{Axis, Colour, Figure, Panel, Series, Stroke};

use crate::load::Failed;
use crate::measure::Report;
use crate::{hashing, retrieval};

/// Runs both measurements, and draws the figure to the file `plot` if it is given.
pub(crate) fn run(plot: Option<&Path>) -> Result<Report, Failed> {
    let mut report = Report::new(
        "growth: D = one dependent SHA-256 compression; fetching over HTTP, verified, median of 31"
            .to_owned(),
    );
    let sealing = hashing::growth(&mut report);
    let fetching = retrieval::growth(&mut report)?;
    if let Some(path) = plot {
        std::fs::write(path, figure(sealing, fetching).png().map_err(|error| error.to_string())?)?;
    }
    Ok(report)
}

fn figure(sealing: Vec<(f64, f64)>, fetching: Vec<(f64, f64)>) -> Figure {
    let top = |points: &[(f64, f64)]| points.iter().map(|&(_, y)| y).fold(0.0, f64::max) * 1.4;
    let panel = |label: &str, name: &str, colour, points: Vec<(f64, f64)>| Panel {
        y: Axis::linear(label, 0.0, top(&points)),
        height: 1,
        series: vec![Series::new(name, colour, Stroke::Marked, points)],
    };
    Figure {
        title: "The cost of sealing and fetching as the data grows".to_owned(),
        subtitle: "D: one dependent SHA-256 compression. The sample: ten epochs of one device at rate 1/8, verified over HTTP"
            .to_owned(),
        x: Axis::logarithmic("readings under one seal (above), in the store (below)", 500.0, 2e7),
        panels: vec![
            panel("sealing a reading, D", "star, root included", Colour::Blue, sealing),
            panel(
                "fetching the sample, ms",
                "from a store of this many readings",
                Colour::Vermillion,
                fetching,
            ),
        ],
    }
}
