//! Writes figures 12 and 13, which show a small machine, by models.
//!
//! **These are models, not measurements.** We have no Raspberry Pi and no power meter. Two things
//! replace them. The first is the same curve on this machine. The second is a model of a Cortex-M3
//! from the times and energies in the paper's table I, and from counted instructions of our
//! firmware if they are available. The page states each model's constants and their sources.

use serde::Serialize;

use super::super::page::{Entry, Shown};
use super::super::{Out, ReportError};
use super::throughput::series_of;
use super::{COMMAND, decades, digits, events_an_epoch, line, rate, rates};
use crate::figure::{Axis, Colour, Figure, Panel, Series, Stroke};
use crate::seals::footprint::Footprint;
use crate::seals::{Measured, paper};
use crate::table::Table;

/// The sizes of the signer's memory in the models, in digests.
const UNITS: std::ops::RangeInclusive<i32> = 1..=12;

pub(super) fn write(measured: &Measured, out: &Out<'_>) -> Result<Vec<Entry>, ReportError> {
    Ok(vec![figure12(measured, out)?, figure13(measured, out)?])
}

fn on_m3(name: &str) -> (f64, f64) {
    paper::TABLE_1
        .iter()
        .find(|row| row.name == name)
        .map_or((f64::NAN, f64::NAN), |row| (row.ms, row.mj))
}

/// Returns the number of events that share a signature. In a star these are the events of an epoch.
/// In a tree the memory of `units` digests also limits their number.
fn shared(scheme: &str, units: i32, epoch: f64) -> f64 {
    if scheme == "DTC" { (2_f64.powi(units) - 1.0).min(epoch) } else { epoch }
}

/// Number of digests computed per event. In a tree they are the leaf and on average one node. In
/// the paper's star they are the digest of the event and the digest of the step.
const DIGESTS: f64 = 2.0;

/// Returns the cost of an event on the paper's Cortex-M3 according to its table I, in milliseconds
/// and in millijoules.
fn by_table_1(scheme: &str, units: i32, epoch: f64) -> (f64, f64) {
    let ((sign_ms, sign_mj), (hash_ms, hash_mj)) = (on_m3("DSA"), on_m3("MD5"));
    let share = 1.0 / shared(scheme, units, epoch);
    (DIGESTS.mul_add(hash_ms, sign_ms * share), DIGESTS.mul_add(hash_mj, sign_mj * share))
}

/// Returns the power of the paper's board while it computes, in watts. It is the energy divided by
/// the time in table I, which is nearly the same in all five rows.
fn watt() -> f64 {
    let all = paper::TABLE_1.iter().map(|row| row.mj / row.ms);
    all.clone().sum::<f64>() / all.count() as f64
}

/// Returns the number of cycles per instruction that follows from the paper's time for SHA-256:
/// 0.098 ms at 72 MHz are 7,056 cycles. They are divided by the number of instructions of our
/// unrolled SHA-256.
fn cycles_an_instruction(footprint: Option<&Footprint>) -> Option<f64> {
    let instructions = footprint?.primitive("SHA-256, unrolled")?;
    Some((on_m3("SHA256").0 * 1e-3 * paper::M3_HERTZ / instructions).max(1.0))
}

/// Returns the counted instructions per event of our star with Ed25519: the instructions for the
/// event itself, plus its share of the instructions that end and sign an epoch, including the
/// statement.
fn our_instructions(footprint: Option<&Footprint>, epoch: f64) -> Option<f64> {
    let footprint = footprint?;
    let end = footprint.number(
        "all in one: star L = 16, Ed25519, source, receiver of a chain",
        "an epoch's end, signed",
    )?;
    Some(footprint.of_event("star, L = 16")? + end / epoch)
}

#[derive(Serialize)]
struct Modelled {
    scheme: &'static str,
    units: i32,
    /// Number of events per second on the paper's Cortex-M3, by the model.
    model_per_second: f64,
    /// Energy per event in microjoules, by the model.
    model_uj: f64,
}

fn modelled(epoch: f64) -> Vec<Modelled> {
    let row = |scheme, units| {
        let (ms, mj) = by_table_1(scheme, units, epoch);
        Modelled { scheme, units, model_per_second: 1e3 / ms, model_uj: mj * 1e3 }
    };
    UNITS.map(|units| row("GSC", units)).chain(UNITS.map(|units| row("DTC", units))).collect()
}

/// Returns the points of a scheme's curve over the memory of the signer.
fn curve(model: &[Modelled], scheme: &str, value: fn(&Modelled) -> f64) -> Vec<(f64, f64)> {
    let rows = model.iter().filter(|row| row.scheme == scheme);
    rows.map(|row| (f64::from(row.units), value(row))).collect()
}

/// Returns a horizontal line at a value of our firmware, which does not depend on the memory.
fn firmware_level(name: &str, level: f64) -> Series {
    line(name, Colour::Green, Stroke::Dotted, vec![(1.0, level), (12.0, level)])
}

fn constants(epoch: f64) -> String {
    format!(
        "**A model.** All constants are from the paper's table I (Cortex-M3 at 72 MHz): DSA 192.8 \
         ms and 36.2 mJ, MD5 0.041 ms and 0.007 mJ. An event costs two digests, in a tree and in \
         the paper's star, and its share of a signature: 1 / (2^u - 1) in a tree with memory for u \
         digests, 1 / {} in a star (the mean number of events of a device and day). Radio, memory \
         and sleep are not counted.",
        digits(epoch)
    )
}

fn figure12(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let epoch = events_an_epoch(measured);
    let model = modelled(epoch);
    out.rows("fig12.csv", &model)?;
    let footprint = measured.footprint.as_ref();
    let curve = |scheme| curve(&model, scheme, |row| row.model_per_second);
    let here = |scheme: &str| {
        series_of(&measured.by_space, scheme, "DSA")
            .into_iter()
            .map(|row| (row.units, row.signed.median))
            .collect()
    };
    let mut series = vec![
        line("GSC, DSA-512 + MD5, this machine", Colour::Blue, Stroke::Marked, here("GSC")),
        line("DTC, DSA-512 + MD5, this machine", Colour::Vermillion, Stroke::Marked, here("DTC")),
        line("GSC, a model of the paper's Cortex-M3", Colour::Blue, Stroke::Dotted, curve("GSC")),
        line(
            "DTC, a model of the paper's Cortex-M3",
            Colour::Vermillion,
            Stroke::Dotted,
            curve("DTC"),
        ),
    ];
    let mut ours = "counted instructions of our firmware are absent".to_owned();
    if let Some(instructions) = our_instructions(footprint, epoch) {
        // The upper bound assumes that every instruction takes one cycle, the minimum. The lower
        // value uses the cycles per instruction that follow from the paper's SHA-256.
        let quick = paper::M3_HERTZ / instructions;
        let slow = quick / cycles_an_instruction(footprint).unwrap_or(1.0);
        for (name, level) in [
            ("the product's star on a Cortex-M3 at 72 MHz, a model: at most", quick),
            ("and by the paper's cycles per instruction", slow),
        ] {
            series.push(firmware_level(name, level));
        }
        ours = format!(
            "the product's star with Ed25519 {} to {} events per second on a Cortex-M3 at 72 MHz, \
             by a model from {} counted instructions per event",
            rate(slow),
            rate(quick),
            digits(instructions)
        );
    }
    out.figure(
        "fig12.png",
        &Figure {
            title: "Signing throughput on a small machine (figure 12)".to_owned(),
            subtitle: "solid: measured here, one thread; dotted: models, from the paper's table I and from counted instructions"
                .to_owned(),
            x: Axis::linear("memory of the signer, in digests", 0.0, 12.0),
            panels: vec![Panel {
                y: decades("signed, events per second", series.iter().flat_map(|series| series.points.iter().map(|point| point.1))),
                height: 1,
                series,
            }],
        },
    )?;
    let mut table = Table::new([
        "memory, digests",
        "GSC here",
        "DTC here",
        "GSC, model of the Cortex-M3",
        "DTC, model of the Cortex-M3",
    ]);
    for row in series_of(&measured.by_space, "GSC", "DSA") {
        #[allow(clippy::cast_possible_truncation)]
        let units = row.units as i32;
        let tree = series_of(&measured.by_space, "DTC", "DSA")
            .into_iter()
            .find(|tree| (tree.units - row.units).abs() < 0.5);
        table.row([
            format!("{:.0}", row.units),
            rates(row.signed),
            tree.map_or_else(String::new, |tree| rates(tree.signed)),
            rate(1e3 / by_table_1("GSC", units, epoch).0),
            rate(1e3 / by_table_1("DTC", units, epoch).0),
        ]);
    }
    let at = |scheme, units| rate(1e3 / by_table_1(scheme, units, epoch).0);
    Ok(Entry::new("sealing-figure-12", "Figure 12: signing throughput on a small machine", COMMAND)
        .paper("a picture: on a Raspberry Pi 3 both schemes sign about 10 times slower than on the \
             desktop, and the memory of the signer limits DTC")
        .ours(format!("a model of the paper's Cortex-M3, events per second: GSC {}; DTC {} at 1 digest, {} at 12; {ours}", at("GSC", 8), at("DTC", 1), at("DTC", 12)))
        .why(
            "No small machine was measured. The model shows the same limit by memory as figure 8, \
             and how much slower a microcontroller is than both of the paper's machines.",
        )
        .replacement("This machine's curve of figure 8 instead of a Raspberry Pi 3, and models of a \
             Cortex-M3, which is some hundred times slower.")
        .show(Shown::Figure("fig12.png".to_owned()))
        .show(Shown::Table(table))
        .show(Shown::Text(constants(epoch)))
        .data("fig12.csv"))
}

fn figure13(measured: &Measured, out: &Out<'_>) -> Result<Entry, ReportError> {
    let epoch = events_an_epoch(measured);
    let model = modelled(epoch);
    out.rows("fig13.csv", &model)?;
    let footprint = measured.footprint.as_ref();
    let curve = |scheme| curve(&model, scheme, |row| row.model_uj);
    let mut series = vec![
        line(
            "DTC, DSA + MD5: a model by the paper's table I",
            Colour::Vermillion,
            Stroke::Marked,
            curve("DTC"),
        ),
        line(
            "GSC, DSA + MD5: a model by the paper's table I",
            Colour::Blue,
            Stroke::Marked,
            curve("GSC"),
        ),
    ];
    let mut ours =
        "counted instructions of our firmware are absent, so there is no curve for it".to_owned();
    let mut constants = constants(epoch);
    if let Some(instructions) = our_instructions(footprint, epoch) {
        let cycles = cycles_an_instruction(footprint).unwrap_or(1.0);
        let least = instructions / paper::M3_HERTZ * watt() * 1e6;
        for (name, level) in [
            ("the product's star, Ed25519: a model, at least", least),
            ("the same at the paper's cycles per instruction", least * cycles),
        ] {
            series.push(firmware_level(name, level));
        }
        ours = format!(
            "the product's star with Ed25519 {} to {} µJ per event, by a model from counted instructions",
            digits(least),
            digits(least * cycles)
        );
        constants += &format!(
            "  For the product: {} instructions per event, including the event's share of an epoch's \
             signature, counted in QEMU (`docs/footprint.csv`). They take at least one cycle each, \
             and {:.2} cycles each according to the paper's 0.098 ms for SHA-256. The power is {:.3} W, \
             the energy divided by the time in table I.",
            digits(instructions),
            cycles,
            watt()
        );
    }
    out.figure(
        "fig13.png",
        &Figure {
            title: "Energy of signing: a model (figure 13)".to_owned(),
            subtitle: "no power meter: from times and energies of the paper's table I, and from counted instructions".to_owned(),
            x: Axis::linear("memory of the signer, in digests", 0.0, 12.0),
            panels: vec![Panel {
                y: decades(
                    "microjoules per event, by the model",
                    series.iter().flat_map(|series| series.points.iter().map(|point| point.1)),
                ),
                height: 1,
                series,
            }],
        },
    )?;
    let mut table = Table::new(["memory, digests", "DTC, µJ per event", "GSC, µJ per event"]);
    for units in UNITS {
        table.row([
            units.to_string(),
            digits(by_table_1("DTC", units, epoch).1 * 1e3),
            digits(by_table_1("GSC", units, epoch).1 * 1e3),
        ]);
    }
    let at = |units| digits(by_table_1("DTC", units, epoch).1 * 1e3);
    Ok(Entry::new("sealing-figure-13", "Figure 13: energy of signing (a model)", COMMAND)
        .paper(format!(
            "a picture: a DTC signer with less memory needs more energy, in proportion to its time; \
             a Raspberry Pi 3 draws {:.2} W more while it signs",
            paper::PI_WATT
        ))
        .ours(format!("**a model**: DTC by the paper's table I {} µJ per event at 1 digest, {} at 4, {} at 12; {ours}", at(1), at(4), at(12)))
        .why("Our numbers are from a model of a microcontroller, the paper's from a power meter at a \
             Raspberry Pi. Only the shape of the curves can be compared. It is the same, because \
             energy is power times time in both.")
        .replacement("A model instead of a Raspberry Pi and a power meter; its constants are below.")
        .show(Shown::Figure("fig13.png".to_owned()))
        .show(Shown::Table(table))
        .show(Shown::Text(constants))
        .data("fig13.csv"))
}
