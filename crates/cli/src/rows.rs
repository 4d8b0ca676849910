//! Where verified rows go: a file that appears whole or not at all, or stdout once everything is verified.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use moteseal_client::estimate::Estimator;
use moteseal_client::output::{AtomicFile, Format, OutputError, Writer};
use moteseal_client::{Report, Rows, Sink, Standing};
use moteseal_core::record::Round;
use moteseal_device::import::display_ms;
use moteseal_verify::Roster;

use crate::failure::{Exit, Failure};
use crate::progress::{bytes, count, thousands};
use crate::terminal::{Stdout, talk};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    /// Aligned columns, for people
    Table,
    /// Comma-separated values
    Csv,
    /// One JSON object a line
    Jsonl,
    /// An Arrow IPC stream
    Arrow,
    /// A Parquet file
    Parquet,
}

/// Where rows go, and how they are written.
#[derive(Args, Debug)]
pub(crate) struct Destination {
    /// How to write the rows; what --out ends in, else a table
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// The file for the rows; stdout unless given
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Destination {
    fn format(&self) -> Format {
        let ending = || self.out.as_ref()?.extension()?.to_str()?.parse().ok();
        match self.format {
            None => ending().unwrap_or(Format::Table),
            Some(FormatName::Table) => Format::Table,
            Some(FormatName::Csv) => Format::Csv,
            Some(FormatName::Jsonl) => Format::JsonLines,
            Some(FormatName::Arrow) => Format::Arrow,
            Some(FormatName::Parquet) => Format::Parquet,
        }
    }

    /// The file for the rows, if there is one.
    pub(crate) fn out(&self) -> Option<&Path> {
        self.out.as_deref()
    }

    /// Whether rows are asked for at all.
    pub(crate) const fn is_given(&self) -> bool {
        self.out.is_some() || self.format.is_some()
    }

    /// Starts writing. `field` is one to estimate the mean of.
    pub(crate) fn open(
        &self,
        field: Option<&str>,
        progress: ProgressBar,
    ) -> Result<Output, Failure> {
        let (writer, kept): (Box<dyn Write + Send>, Kept) = match &self.out {
            Some(path) => {
                let shared = Shared::new(AtomicFile::create(path).map_err(output_failure)?);
                (Box::new(shared.clone()), Kept::File(shared))
            }
            None => {
                let none = |error| output_failure(OutputError::temporary(&error));
                let spool = tempfile::tempfile().map_err(none)?;
                let again = spool.try_clone().map_err(none)?;
                (Box::new(BufWriter::with_capacity(1 << 16, spool)), Kept::Spool(again))
            }
        };
        Ok(Output {
            writer: Writer::new(self.format(), writer),
            kept,
            mean: field.map(Estimator::new),
            progress,
        })
    }
}

/// A file that the writer fills and we commit.
#[derive(Clone)]
struct Shared(std::sync::Arc<std::sync::Mutex<Option<AtomicFile>>>);

impl Shared {
    fn new(file: AtomicFile) -> Self {
        Self(std::sync::Arc::new(std::sync::Mutex::new(Some(file))))
    }

    fn take(&self) -> Option<AtomicFile> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(file) => file.write(bytes),
            None => Err(io::Error::other("the file is closed")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(file) => file.flush(),
            None => Ok(()),
        }
    }
}

enum Kept {
    File(Shared),
    Spool(File),
}

/// Takes verified rows; nobody sees them before they are [released](Finished::release).
pub(crate) struct Output {
    writer: Writer<Box<dyn Write + Send>>,
    kept: Kept,
    mean: Option<Estimator>,
    progress: ProgressBar,
}

impl Sink for Output {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        self.progress.inc(u64::from(rows.len()));
        if let Some(mean) = &mut self.mean {
            mean.rows(rows)?;
        }
        self.writer.rows(rows)
    }
}

impl Output {
    /// Ends the rows: all of them are written, and nobody sees them yet. Gives the estimator back, if there is one.
    pub(crate) fn finish(self) -> Result<(Finished, Option<Estimator>), Failure> {
        self.progress.finish_and_clear();
        self.writer.finish().map_err(output_failure)?;
        let ready = match self.kept {
            Kept::File(shared) => {
                let mut file = shared.take();
                file.as_mut().map_or(Ok(()), AtomicFile::settle).map_err(output_failure)?;
                Ready::File(file)
            }
            Kept::Spool(mut file) => {
                let again = |error| {
                    Failure::new(
                        Exit::Internal,
                        format_args!("cannot read a temporary file: {error}"),
                    )
                };
                file.rewind().map_err(again)?;
                Ready::Spool(file)
            }
        };
        Ok((Finished(ready), self.mean))
    }

    /// Hands the rows out: everything is verified, and they are all there is to keep.
    pub(crate) fn keep(self) -> Result<(), Failure> {
        self.finish()?.0.release()
    }
}

enum Ready {
    File(Option<AtomicFile>),
    Spool(File),
}

/// All rows, written but not handed out. Dropped, it leaves nothing.
pub(crate) struct Finished(Ready);

impl Finished {
    /// Hands the rows out: the file goes to its place, or the rows to stdout.
    pub(crate) fn release(self) -> Result<(), Failure> {
        match self.0 {
            Ready::File(file) => file.map_or(Ok(()), AtomicFile::commit).map_err(output_failure),
            Ready::Spool(file) => Stdout::lock().copy(file),
        }
    }
}

/// Refuses to write two things into one file, or over one that is read.
pub(crate) fn distinct(
    written: &[(&str, Option<&Path>)],
    read: &[&PathBuf],
) -> Result<(), Failure> {
    let written: Vec<(&str, &Path)> =
        written.iter().filter_map(|(option, path)| Some((*option, (*path)?))).collect();
    for (at, (option, path)) in written.iter().enumerate() {
        if let Some((other, _)) =
            written[..at].iter().find(|(_, other)| AtomicFile::is_same(path, other))
        {
            return Err(Failure::usage(format_args!(
                "{other} and {option} are both {}: one would replace the other; name two files",
                path.display()
            )));
        }
        if read.iter().any(|read| AtomicFile::is_same(path, read)) {
            return Err(Failure::usage(format_args!(
                "{option} {} would replace a file that is read here; name another",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Rows that could not be written: the caller's mistake, or the machine's.
pub(crate) fn output_failure(error: OutputError) -> Failure {
    Failure::new(if error.is_misuse() { Exit::Usage } else { Exit::Internal }, error)
}

/// Says what was verified, a line a device, on stderr. `came` is what happened to the bytes: received, or read.
pub(crate) fn say(report: &Report, roster: &Roster, came: &str) {
    for device in &report.devices {
        let until = match device.standing {
            Standing::Complete => "complete".to_owned(),
            Standing::TailUnknown { from } | Standing::ManifestMissing { from } => {
                let at =
                    roster.epoch_start_ms(from).map_or_else(|| format!("epoch {from}"), display_ms);
                format!("complete to {at}")
            }
        };
        let late = match device.late {
            0 => String::new(),
            number => format!(", {} after the manifest", count(number, "seal")),
        };
        let newer = if device.newer.is_some() { "; newer seals are known" } else { "" };
        let outages = match device.outages.len() {
            0 => String::new(),
            number => format!(", {}", count(number as u64, "restart")),
        };
        talk(format_args!(
            "{:<12} verified  {} of {}, {}, {until}{late}{outages}{newer}",
            device.name,
            thousands(device.rows),
            count(device.events, "reading"),
            count(device.epochs, "epoch"),
        ));
    }
    if let Some(budget) = report.budget {
        talk(format_args!(
            "{}",
            kept((budget, roster.levels()), report.round_span(), report.rounds.len() as u64)
        ));
    }
    talk(format_args!(
        "{} checked, {} {came}",
        count(report.signatures, "signature"),
        bytes(report.bytes)
    ));
}

/// What a group's budget left of its readings.
fn kept((budget, levels): (u64, u8), rounds: Option<(Round, Round)>, epochs: u64) -> String {
    let share = |round: Round| match round.0 {
        0 => "all readings".to_owned(),
        round if round >= levels => "no reading".to_owned(),
        round => format!("1 reading in {}", thousands(1 << round)),
    };
    let within = format!("the group keeps at most {} an epoch", count(budget, "reading"));
    match rounds {
        None => format!("{within}; no epoch of these has a manifest that says what was kept"),
        Some((least, most)) if least == most => {
            format!(
                "{within}; {} ended at round {least}, about {}",
                count(epochs, "epoch"),
                share(least)
            )
        }
        Some((least, most)) => format!(
            "{within}; {} ended at rounds {least} to {most}, from about {} to {}",
            count(epochs, "epoch"),
            share(least),
            share(most)
        ),
    }
}

/// What is missing of what was asked for, as the failure that says so.
pub(crate) fn incomplete(report: &Report, roster: &Roster) -> Option<Failure> {
    let device = report.devices.iter().find(|device| !device.is_complete())?;
    let from = device.complete_until();
    let at = roster.epoch_start_ms(from).map_or_else(|| format!("epoch {from}"), display_ms);
    if let Standing::ManifestMissing { .. } = device.standing {
        return Some(Failure::new(
            Exit::Incomplete,
            format_args!(
                "ManifestMissing: the store gives no manifest of the epoch from {at} on, which says what was kept of it; ask for a \
                 rate, or again once the gateway has sent it"
            ),
        ));
    }
    Some(Failure::new(
        Exit::Incomplete,
        format_args!(
            "TailUnknown: nothing shows what {} sealed from {at} on; ask with --until {at}, or again when it has sealed more",
            device.name
        ),
    ))
}
