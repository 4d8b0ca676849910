//! The report on authenticated broadcast: figures 3 to 7 and tables I and II of Liu, Li and Guizani (2012), beside the paper's numbers.
//!
//! Bytes are those of real encodings, transmissions and delays those of real nodes in the simulator, memory that of real types. Times are
//! handed in by `moteseal-bench broadcast`; without them figures 3 and 4 are left out.

mod costs;
mod network;

use std::path::Path;

use super::page::Entry;
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
/// What the testbed is here.
const TESTBED: &str = "In place of seven TelosB motes and their radio, the product's own nodes in a simulator; the links are assumed, since figure 2 is a picture.";

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
    let mut index = format!(
        "# Authenticated broadcast, beside the paper's\n\n\
         Written by `cargo run --release -p moteseal-bench -- broadcast --out DIRECTORY`; `moteseal-lab broadcast --out DIRECTORY --seed {seed}` writes the same \
         but for the times of figures 3 and 4. The paper is Liu, Li and Guizani, \"PKC Based Broadcast Authentication using Signature Amortization for \
         WSNs\" (IEEE Transactions on Wireless Communications, 2012), section V. Nothing is tuned to match it, and the same seed gives the same bytes.\n\n\
         **The topology is assumed.** Figure 2 of the paper is a picture that its text does not give. Known are seven nodes, at most three hops, that the \
         sender's one-hop receivers are 1 and 2, and that 2 is heard by the sender, 1, 3 and 4. The lab takes the links {ASSUMED}.\n\n\
         SA1 to SA10 are chains with 1 to 10 messages a block, as the product sends them: Ed25519, SHA-256, 8-byte tags in blocks of more than one. The \
         sender has 100 messages of 20 bytes, at a Poisson rate of 0.2 a second; nodes wait up to 2 s before they repeat, ask or answer. Every hearer misses \
         a transmission with the stated probability, independently.\n"
    );
    let mut entries = Vec::new();
    match times {
        Some(times) => index += &costs::times(times, &out, &mut entries)?,
        None => {
            index += "\n## Figures 3 and 4: time a message\n\nNot in this report: the lab does not measure speed. `moteseal-bench broadcast --out DIRECTORY` does, and writes this report \
                      with them.\n";
        }
    }
    tell("bytes a message");
    index += &costs::bytes(&out, &mut entries)?;
    index += &network::write(&out, seed, effort, tell, &mut entries)?;
    index += &costs::memory(&out, &mut entries)?;
    out.text(INDEX, &index)?;
    Ok(entries)
}
