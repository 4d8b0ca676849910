//! Writes the report on sampling: figures 5, 6, 7a and 7b of Li et al. and the growth of messages,
//! each as PNG and CSV. An index compares our numbers with the paper's and explains the
//! differences. `moteseal-lab report` writes this report; [`page`] includes it in the page of all
//! papers.

pub mod broadcast;
mod days;
pub mod health;
pub mod latency;
mod loads;
pub mod page;
pub mod redactable;
pub mod rerum;
pub mod seals;
pub mod sums;
mod text;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use page::Entry;
use text::SAMPLING;

use crate::broadcast::chains::NoChain;
use crate::chance::Seed;
use crate::data::{DataError, Folder, Recording, Source};
use crate::figure::{DrawError, Figure};

/// The budgets of the paper's experiment.
pub const BUDGETS: [u64; 4] = [500, 1000, 2000, 4000];
/// The file name of the index that [`write`](write()) creates.
pub const INDEX: &str = "README.md";

/// The amount of simulation. More simulations take more time and have smaller errors.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of seeds over which figure 7b is averaged.
    pub seeds: u64,
    /// Number of synthetic epochs over which each load is averaged.
    pub runs: u64,
    /// Number of events that are simulated one by one for each load, in all its epochs together.
    pub one_by_one: u64,
}

impl Effort {
    /// The effort of `moteseal-lab report` and `make lab`. It takes one to two minutes.
    pub const FULL: Self = Self { seeds: 20, runs: 2000, one_by_one: 4_000_000 };
}

/// Why a report cannot be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReportError {
    /// The recorded data cannot be used.
    Data(DataError),
    /// A file could not be written.
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// A figure could not be drawn.
    Draw(DrawError),
    /// A chain could not be created.
    Chain(NoChain),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(error) => error.fmt(f),
            Self::Write { path, cause } => write!(f, "cannot write {}: {cause}", path.display()),
            Self::Draw(error) => error.fmt(f),
            Self::Chain(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Data(error) => Some(error),
            Self::Write { cause, .. } => Some(cause),
            Self::Draw(error) => Some(error),
            Self::Chain(error) => Some(error),
        }
    }
}

impl From<DataError> for ReportError {
    fn from(error: DataError) -> Self {
        Self::Data(error)
    }
}

/// Writes the report on sampling into a folder, which is created if it does not exist. Calls
/// `progress` before each step. Returns the entries for the [`page`].
///
/// # Errors
/// [`ReportError`]: data is absent or malformed, or a file cannot be written.
pub fn write(
    folder: &Folder,
    out: &Path,
    seed: Seed,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Entry>, ReportError> {
    progress("reading the recorded days");
    let devices =
        Source::ALL.iter().map(|source| source.load(folder)).collect::<Result<Vec<_>, _>>()?;
    write_of(&devices, out, seed, effort, progress)
}

/// Writes the same report as [`write()`] from recordings that have already been read, in the order
/// of [`Source::ALL`].
///
/// # Errors
/// [`ReportError`], except `Data`.
pub fn write_of(
    devices: &[Recording],
    out: &Path,
    seed: Seed,
    effort: Effort,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Entry>, ReportError> {
    let out = Out { folder: out };
    std::fs::create_dir_all(out.folder)
        .map_err(|cause| ReportError::Write { path: out.folder.to_owned(), cause })?;
    let mut index = SAMPLING.fill("head", &[("seed", &seed)]) + "\n";
    let entries = days::write(devices, &out, seed, effort, progress, &mut index)?;
    loads::write(&out, seed, effort, progress, &mut index)?;
    out.text(INDEX, &index)?;
    Ok(entries)
}

/// The output folder.
struct Out<'a> {
    folder: &'a Path,
}

impl Out<'_> {
    fn text(&self, name: &str, text: &str) -> Result<(), ReportError> {
        self.bytes(name, text.as_bytes())
    }

    fn bytes(&self, name: &str, bytes: &[u8]) -> Result<(), ReportError> {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).map_err(|cause| ReportError::Write { path, cause })
    }

    fn rows<T: Serialize>(&self, name: &str, rows: &[T]) -> Result<(), ReportError> {
        write_rows(&self.folder.join(name), rows)
    }

    fn figure(&self, name: &str, figure: &Figure) -> Result<(), ReportError> {
        self.bytes(name, &figure.png().map_err(ReportError::Draw)?)
    }
}

/// Writes rows as CSV, with the names of their fields as the header.
///
/// # Errors
/// [`ReportError::Write`].
pub fn write_rows<T: Serialize>(path: &Path, rows: &[T]) -> Result<(), ReportError> {
    let failed = |cause| ReportError::Write { path: path.to_owned(), cause };
    let mut writer = csv::Writer::from_path(path).map_err(|error| failed(error.into()))?;
    for row in rows {
        writer.serialize(row).map_err(|error| failed(error.into()))?;
    }
    writer.flush().map_err(failed)
}
