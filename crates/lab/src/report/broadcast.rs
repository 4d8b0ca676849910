//! The report on authenticated broadcast: figures 3 to 7 and tables I and II of Liu, Li and Guizani (2012), beside the paper's numbers.
//!
//! Bytes are those of real encodings, transmissions and delays those of real nodes in the simulator, memory that of real types. Times are
//! handed in by `moteseal-bench broadcast`; without them figures 3 and 4 are left out.

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

/// How much is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Runs a point, each of its own seed; the paper's are five.
    pub runs: u64,
}

impl Effort {
    /// The paper's.
    pub const FULL: Self = Self { runs: RUNS };
}

/// A scheme's colour, the same in all figures.
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

/// The command that measures and writes all of it.
const COMMAND: &str = "moteseal-bench broadcast --out DIRECTORY";
/// Writes the tables and figures into a folder, which is made if it is not there; tells what it is at. They come back for the page of everything.
///
/// # Errors
/// [`ReportError::Write`], [`ReportError::Draw`].
pub fn write(
    times: Option<&Times>,
    out: &Path,
    seed: Seed,
    effort: Effort,
    tell: &mut dyn FnMut(&str),
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
    tell("bytes a message");
    index += &costs::bytes(&out, &mut entries)?;
    index += &network::write(&out, seed, effort, tell, &mut entries)?;
    index += &costs::memory(&out, &mut entries)?;
    out.text(INDEX, &index)?;
    Ok(entries)
}
