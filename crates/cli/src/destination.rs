//! Writes verified rows, either to a file that appears only when it is complete, or to stdout once
//! everything is verified.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use moteseal_api::NamedError as _;
use moteseal_client::decrypt::{Withheld, WithheldColumn};
use moteseal_client::estimate::Estimator;
use moteseal_client::output::{AtomicFile, Format, OutputError, RowOutput, RowSpool};
use moteseal_client::{
    DeviceReport, Omission, Redaction, Report, Rows, SanitisedColumn, SealGap, Sink, Standing,
    start_text,
};
use moteseal_core::confidential::KeyAccessError;
use moteseal_core::record::Round;
use moteseal_verify::Roster;

use crate::client_error;
use crate::failure::{Exit, Failure};
use crate::progress::{bytes, count, thousands};
use crate::terminal::{Stdout, diagnostic};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    /// Aligned columns, for people
    Table,
    /// Comma-separated values
    Csv,
    /// One JSON object per line
    Jsonl,
    /// An Arrow IPC stream
    Arrow,
    /// A Parquet file
    Parquet,
}

/// The arguments that select where rows are written, and in which format.
#[derive(Args, Debug)]
pub(crate) struct Destination {
    /// The format of the rows; default: the format that the extension of --out names (.csv, .jsonl,
    /// .ndjson, .arrow, .parquet, or .txt for a table), or a table
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// The file for the rows; default: stdout. `moteseal verify` writes rows only if this option or
    /// --format is given
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Destination {
    /// Returns the format of the rows.
    ///
    /// # Errors
    /// A usage failure if neither `--format` nor the extension of `--out` names a format.
    pub(crate) fn format(&self) -> Result<Format, Failure> {
        let Some(format) = self.format else {
            let extension = self.out.as_ref().and_then(|out| out.extension());
            let Some(extension) = extension else { return Ok(Format::Table) };
            let extension = extension.to_string_lossy().to_ascii_lowercase();
            return match extension.as_str() {
                "txt" => Ok(Format::Table),
                "ndjson" => Ok(Format::JsonLines),
                extension => extension.parse().map_err(|_| {
                    Failure::usage(format_args!(
                        "--out: no format has the extension .{extension}; use .csv, .jsonl, .arrow, .parquet or .txt, or choose a format with --format"
                    ))
                }),
            };
        };
        Ok(match format {
            FormatName::Table => Format::Table,
            FormatName::Csv => Format::Csv,
            FormatName::Jsonl => Format::JsonLines,
            FormatName::Arrow => Format::Arrow,
            FormatName::Parquet => Format::Parquet,
        })
    }

    /// Returns the file for the rows, or `None` for stdout.
    pub(crate) fn out(&self) -> Option<&Path> {
        self.out.as_deref()
    }

    /// Returns whether the user asked for rows.
    pub(crate) const fn is_given(&self) -> bool {
        self.out.is_some() || self.format.is_some()
    }

    /// Starts writing. `field` is the field whose mean is estimated, if any.
    pub(crate) fn open(
        &self,
        field: Option<&str>,
        progress: ProgressBar,
    ) -> Result<Output, Failure> {
        let rows = match &self.out {
            Some(path) => RowOutput::to_file(path, self.format()?),
            None => RowOutput::to_spool(self.format()?),
        };
        let rows = rows.map_err(client_error::output)?;
        Ok(Output { rows, mean: field.map(Estimator::new), progress })
    }
}

/// Receives verified rows, which stay invisible until they are [released](Finished::release).
pub(crate) struct Output {
    rows: RowOutput,
    mean: Option<Estimator>,
    progress: ProgressBar,
}

impl Sink for Output {
    fn rows(&mut self, rows: &Rows<'_>) -> Result<(), OutputError> {
        self.progress.inc(u64::from(rows.len()));
        if let Some(mean) = &mut self.mean {
            mean.rows(rows)?;
        }
        self.rows.rows(rows)
    }
}

impl Output {
    /// Writes the remaining rows, which stay invisible. Also returns the estimator, if any.
    pub(crate) fn finish(self) -> Result<(Finished, Option<Estimator>), Failure> {
        self.progress.finish_and_clear();
        Ok((Finished(self.rows.finish().map_err(client_error::output)?), self.mean))
    }
}

/// All rows, written but not yet visible. Dropping this discards them.
pub(crate) struct Finished(RowSpool);

impl Finished {
    /// Makes the rows visible: moves the file into place, or copies the rows to stdout.
    pub(crate) fn release(self) -> Result<(), Failure> {
        let spool = self.0.release().map_err(client_error::output)?;
        spool.map_or(Ok(()), |spool| Stdout::lock().copy(spool))
    }
}

/// Rejects arguments that name the same file for two outputs, or an input file as an output.
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
                "{other} and {option} both name {}: one would replace the other; name two files",
                path.display()
            )));
        }
        if read.iter().any(|read| AtomicFile::is_same(path, read)) {
            return Err(Failure::usage(format_args!(
                "{option} {} would replace an input file; name another file",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Prints to stderr what was verified, one line per device. `action` states what happened to the
/// bytes: "received" or "read".
pub(crate) fn report_lines(report: &Report, roster: &Roster, action: &str) {
    for device in &report.devices {
        let until = match device.standing {
            _ if device.is_named => "the readings that the query names".to_owned(),
            Standing::Complete => "complete".to_owned(),
            Standing::Redacted => "redacted".to_owned(),
            Standing::TailUnknown { from } | Standing::ManifestMissing { from }
                if from <= device.since =>
            {
                "not known to be complete".to_owned()
            }
            Standing::TailUnknown { from } | Standing::ManifestMissing { from } => {
                format!("complete to {}", start_text(roster, from))
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
        diagnostic(format_args!(
            "{:<12} verified  {} of {}, {}, {until}{late}{outages}{newer}",
            device.name,
            thousands(device.rows),
            count(device.events, "reading"),
            count(device.epochs, "epoch"),
        ));
        if let Some(redaction) = &device.redaction {
            left_out(&device.name, redaction, roster);
        }
        withheld_lines(device);
        for SanitisedColumn { column, by, policy, rows } in &device.sanitised {
            diagnostic(format_args!(
                "{:<12} {column} is sanitised by {by} in {}: {policy}",
                device.name,
                count(*rows, "row"),
            ));
        }
    }
    if let Some(budget) = report.budget {
        diagnostic(format_args!(
            "{}",
            kept(
                (budget, roster.newest_period().levels),
                report.round_span(),
                report.rounds.len() as u64
            )
        ));
    }
    diagnostic(format_args!(
        "{} checked, {} {action}",
        count(report.signatures, "signature"),
        bytes(report.bytes)
    ));
}

/// Prints to stderr which columns of a device are not readable, and why.
pub(crate) fn withheld_lines(device: &DeviceReport) {
    for WithheldColumn { column, reason, rows, .. } in &device.withheld {
        if *rows == 0 {
            continue;
        }
        diagnostic(format_args!(
            "{:<12} {column} is empty in {}: {}: {reason}",
            device.name,
            count(*rows, "row"),
            reason.name()
        ));
    }
}

/// Prints what a redacted proof leaves out of the seals of a device: at most eight lines of each kind.
fn left_out(name: &str, redaction: &Redaction, roster: &Roster) {
    const LINES: usize = 8;
    let more = |all: usize, of: &str| {
        if all > LINES {
            diagnostic(format_args!(
                "{name:<12} and {} more {of}",
                thousands((all - LINES) as u64)
            ));
        }
    };
    for Omission { index, epoch, shown, omitted } in redaction.seals.iter().take(LINES) {
        diagnostic(format_args!(
            "{name:<12} seal {index}, {}: {} shown, {} omitted",
            start_text(roster, *epoch),
            thousands(*shown),
            thousands(*omitted),
        ));
    }
    more(redaction.seals.len(), "seals with omitted readings");
    for SealGap { first, last, epoch } in redaction.gaps.iter().take(LINES) {
        let until = start_text(roster, *epoch);
        let what = match first {
            Some(first) if first == last => format!("seal {last} ({until}) left out"),
            Some(first) => format!("seals {first} to {last} left out, up to {until}"),
            None if last.0 == 0 => format!("seal 0 ({until}) left out"),
            None => format!("seals up to {last} left out, up to {until}"),
        };
        diagnostic(format_args!("{name:<12} {what}"));
    }
    more(redaction.gaps.len(), "gaps between seals");
}

/// Describes the share of readings that a group's coordinator kept to stay within its budget.
fn kept((budget, levels): (u64, u8), rounds: Option<(Round, Round)>, epochs: u64) -> String {
    let share = |round: Round| match round.0 {
        0 => "all readings".to_owned(),
        round if round >= levels => "no reading".to_owned(),
        round => format!("1 reading in {}", thousands(1 << round)),
    };
    let within = format!("the group keeps at most {} per epoch", count(budget, "reading"));
    match rounds {
        None => format!("{within}; no epoch of the range has a manifest that states what was kept"),
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

/// Checks that the reader's keys are those of the devices, and that the readings are as complete as
/// requested.
///
/// # Errors
/// The failure for the first column with a wrong key, then [`incomplete`].
pub(crate) fn check(report: &Report, roster: &Roster) -> Result<(), Failure> {
    check_keys(report)?;
    incomplete(report, roster).map_or(Ok(()), Err)
}

/// Checks that the reader's keys are those with which the devices encrypted.
///
/// # Errors
/// The failure for the first column with a wrong key.
pub(crate) fn check_keys(report: &Report) -> Result<(), Failure> {
    let wrong = Withheld::Key(KeyAccessError::WrongKey);
    for device in &report.devices {
        if let Some(of) = device.withheld.iter().find(|of| of.reason == wrong) {
            let text = format!(
                "{wrong}, so its cells are empty; check that the grant or the stream secret is one of \
                 {}, and of the secret that it used at this time",
                device.name
            );
            let failure = Failure::refused(text).with_name(wrong.name());
            return Err(failure.of(format_args!("{}: column {}", device.name, of.column)));
        }
    }
    Ok(())
}

/// Returns the failure for the first device whose readings are not as complete as requested.
pub(crate) fn incomplete(report: &Report, roster: &Roster) -> Option<Failure> {
    let error = report.require_complete(roster).err()?;
    let hint = if error.can_end { format!(" (--until {})", error.time) } else { String::new() };
    Some(Failure::named(Exit::Incomplete, error.named()).with(hint))
}
