//! Writes the report on authenticated broadcast: figures 3 to 7 and tables I and II of Liu, Li and
//! Guizani (2012), compared with the paper's numbers.
//!
//! Bytes are counted on real encodings, transmissions and delays on real nodes in the simulator,
//! and memory on real types. `moteseal-bench broadcast` provides the times. Without them the report
//! omits figures 3 and 4.

mod costs;
mod network;

use std::path::Path;

use super::page::Entry;
use super::text::BROADCAST;
use super::{INDEX, Out, ReportError};
use crate::broadcast::times::Times;
use crate::broadcast::{ASSUMED, RUNS};
use crate::chance::Seed;
use crate::figure::Colour;

/// The amount of simulation.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of simulations per data point, each with a different seed. The paper has five.
    pub runs: u64,
}

impl Effort {
    /// The same number of simulations as in the paper.
    pub const FULL: Self = Self { runs: RUNS };
}

/// Returns the colour of a scheme, which is the same in all figures.
fn colour(scheme: &str) -> Colour {
    match scheme.split(',').next().unwrap_or(scheme) {
        "SIGS" => Colour::Purple,
        "uTESLA" => Colour::Orange,
        "SA1" => Colour::Black,
        "SA2" => Colour::Blue,
        "SA5" => Colour::Green,
        "SA10" => Colour::Vermillion,
        _ => Colour::Grey,
    }
}

/// The command that measures and writes the report.
const COMMAND: &str = "moteseal-bench broadcast --out DIRECTORY";

/// Writes the tables and figures into a folder, which is created if it does not exist. Calls
/// `progress` before each step. Returns the entries for the page.
///
/// # Errors
/// [`ReportError::Write`], [`ReportError::Draw`].
pub fn write(
    times: Option<&Times>,
    out: &Path,
    seed: Seed,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Entry>, ReportError> {
    let out = Out { folder: out };
    std::fs::create_dir_all(out.folder)
        .map_err(|cause| ReportError::Write { path: out.folder.to_owned(), cause })?;
    let mut index = BROADCAST.fill("head", &[("seed", &seed), ("links", &ASSUMED)]) + "\n";
    let mut entries = Vec::new();
    match times {
        Some(times) => index += &costs::times(times, &out, &mut entries)?,
        None => {
            index += &format!("\n{}\n", BROADCAST.get("no times"));
        }
    }
    progress("bytes per message");
    index += &costs::bytes(&out, &mut entries)?;
    index += &network::write(&out, seed, effort, progress, &mut entries)?;
    index += &costs::memory(&out, &mut entries)?;
    out.text(INDEX, &index)?;
    Ok(entries)
}
