//! `moteseal redact` and `moteseal merge`: proofs that show less of a proof or of bundles, and proofs
//! that show what several proofs show.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_client::bundles::{StreamFile, device_name};
use moteseal_client::redact::{
    BundleProof, FEW_READINGS, Guessable, Keep, KeptReadings, MergeError, Redacted, merge, redact,
};
use moteseal_client::{Error, Report, start_text};
use moteseal_core::record::{EpochNumber, SealIndex};
use moteseal_verify::Roster;

use crate::client_error;
use crate::destination::{distinct, report_lines};
use crate::failure::Failure;
use crate::files;
use crate::progress::count;
use crate::terminal::{Stdout, diagnostic, is_json};
use crate::time::{When, when};
use crate::verify::{expand, open};

/// The roster, and the file to write.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// The file for the new proof
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

/// Make a proof that shows less of a proof or of bundles, for somebody else. It verifies without what was
/// left out, and `moteseal verify` states what is missing. Needs no key and no network.
///
/// A proof of bundles is always a redacted one: bundles do not show that a device sealed no more.
///
/// Every option states what to keep. Nothing of the readings that are left out remains in the file:
/// digests take their place. These digests are not blinded. A reader who can guess the plain readings
/// under a digest can test the guess: single readings of trees, levels of stars, and whole seals with few
/// readings. The command warns of digests of fewer than 8 readings.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                  moteseal redact p.mproof --since 2026-01-01 --until 2026-01-02 -o day.mproof \\\n      \
                  --roster roster.cbor --operator keys/op.pub.pem\n  \
                  moteseal redact p.mproof --devices dev2 --events 12/17,12/40-42 -o four.mproof \\\n      \
                  --roster roster.cbor --operator keys/op.pub.pem\n  \
                  moteseal redact bundles/*.mseal --columns temperature --drop -o some.mproof \\\n      \
                  --roster roster.cbor --operator keys/op.pub.pem\n\n\
                  `moteseal get --proof p.mproof` saves a proof. Single readings (--events) can be kept of trees.\n\n\
                  Exit codes: 0 written, 3 a file is rejected.")]
pub(crate) struct Redact {
    /// A proof (.mproof); or bundles (.mseal), or directories of bundles
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The devices to keep, separated by commas; default: all
    #[arg(long, value_name = "DEVICE", value_delimiter = ',')]
    devices: Vec<String>,
    /// Keep the epochs from the one on that contains this time
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    since: Option<When>,
    /// Keep the epochs up to the first one that ends at or after this time
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    until: Option<When>,
    /// The readings to keep, separated by commas, of seals that are trees: 17 or 17-20 of every seal, or
    /// 12/17 of seal 12 (the columns index and seq); default: all
    #[arg(
        long,
        alias = "readings",
        value_name = "[SEAL/]READING",
        value_delimiter = ',',
        value_parser = readings
    )]
    events: Vec<KeptReadings>,
    /// The columns to keep, separated by commas. With --drop, the cells of the other columns are left
    /// out. Only whole column groups can be left out, except group 0: the command refuses if another
    /// column would stay
    #[arg(long, value_name = "COLUMN", value_delimiter = ',', requires = "drop")]
    columns: Vec<String>,
    /// Leave out the cells of the columns that --columns does not name. To hide columns that stay in
    /// the new proof, encrypt them, and grant only those that may be read (`moteseal grant`)
    #[arg(long, requires = "columns")]
    drop: bool,
    #[command(flatten)]
    common: Common,
}

/// Make a proof that shows what several proofs of the same devices show. Where they have the same seal,
/// the readings of all of them are in the new proof. Needs no key and no network.
///
/// The new proof is a redacted one, whatever the others are.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: moteseal merge a.mproof b.mproof -o both.mproof --roster roster.cbor \\\n      \
                        --operator keys/op.pub.pem\n\n\
                        Exit codes: 0 written, 3 a proof is rejected, or they are parts of different originals."
)]
pub(crate) struct Merge {
    /// The proofs (.mproof)
    #[arg(required = true, num_args = 2..)]
    proofs: Vec<PathBuf>,
    #[command(flatten)]
    common: Common,
}

fn readings(text: &str) -> Result<KeptReadings, String> {
    let parse = || {
        let (index, seqs) = match text.split_once('/') {
            Some((index, seqs)) => (Some(SealIndex(index.parse().ok()?)), seqs),
            None => (None, text),
        };
        let (first, last) = seqs.split_once('-').unwrap_or((seqs, seqs));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(KeptReadings { index, first, last })
    };
    parse().ok_or_else(|| {
        "[SEAL/]READING[-READING]: 7 is reading 7 of every seal; 12/7-9 are three readings of seal 12"
            .to_owned()
    })
}

impl Common {
    /// Opens the roster. No input file may be replaced: none of `inputs`, nor those in `also_read`.
    fn open_roster(&self, inputs: &[PathBuf], also_read: &[&PathBuf]) -> Result<Roster, Failure> {
        let read = inputs.iter().chain([&self.roster, &self.operator]);
        let read: Vec<&PathBuf> = read.chain(also_read.iter().copied()).collect();
        distinct(&[("--out", Some(self.out.as_path()))], &read)?;
        files::roster(&self.roster, &self.operator)
    }

    /// Opens the roster and the proofs. No input file may be replaced, nor those in `also_read`.
    pub(crate) fn open(
        &self,
        proofs: &[PathBuf],
        also_read: &[&PathBuf],
    ) -> Result<(Roster, Vec<StreamFile>), Failure> {
        let roster = self.open_roster(proofs, also_read)?;
        let streams = proofs.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
        Ok((roster, streams))
    }

    pub(crate) fn report(&self, roster: &Roster, report: &Report) -> Result<(), Failure> {
        report_lines(report, roster, "written");
        if is_json() {
            let mut value = report.to_json();
            if let Some(object) = value.as_object_mut() {
                object.insert("file".to_owned(), self.out.display().to_string().into());
            }
            Stdout::lock().line(value)?;
        } else {
            Stdout::lock().line(self.out.display())?;
        }
        Ok(())
    }
}

pub(crate) fn run_redact(arguments: &Redact) -> Result<(), Failure> {
    let Redact { files: given, devices, since, until, events, columns, drop, common } = arguments;
    let given = expand(given)?;
    let roster = common.open_roster(&given, &[])?;
    let keeps_all = devices.is_empty() && events.is_empty() && columns.is_empty();
    if keeps_all && since.is_none() && until.is_none() {
        return Err(Failure::usage(
            "what to keep is missing; give --devices, --since, --until, --events, or --columns with --drop",
        ));
    }
    let devices = match &devices[..] {
        [] => Vec::new(),
        names => files::devices(&roster, &common.roster, names)?,
    };
    let keep = Keep {
        devices,
        since: since.map_or(EpochNumber(0), |since| since.epoch(roster.calendar())),
        until: until.map(|until| until.epoch_after(roster.calendar())),
        readings: events.clone(),
        columns: if *drop { columns.clone() } else { Vec::new() },
    };
    let (source, subject) = (source(&given, &roster)?, subject(&given));
    let redacted = redact(source, subject, &roster, &keep, &common.out);
    let Redacted { report, guessable } =
        redacted.map_err(|error| rejected(&roster, &error, subject))?;
    common.report(&roster, &report)?;
    warn(&roster, guessable);
    Ok(())
}

/// Opens a proof, or makes a proof of bundles.
pub(crate) fn source<'r>(
    given: &[PathBuf],
    roster: &'r Roster,
) -> Result<Box<dyn Read + 'r>, Failure> {
    let mut bundles = BundleProof::new(roster);
    for file in given {
        let stream = open(file)?;
        if !stream.is_proof() {
            bundles.add(stream).map_err(|error| rejected(roster, &error, file))?;
        } else if given.len() == 1 {
            return Ok(Box::new(stream));
        } else {
            return Err(Failure::usage(format_args!(
                "{} is a proof; redact each proof by itself, and put the new proofs together with \
                 `moteseal merge`",
                file.display()
            )));
        }
    }
    let proof = bundles.finish();
    Ok(Box::new(proof.map_err(|error| rejected(roster, &error, subject(given)))?))
}

/// Returns what a failure that concerns all input is about.
pub(crate) fn subject(given: &[PathBuf]) -> &Path {
    match given {
        [file] => file,
        _ => Path::new("the bundles"),
    }
}

/// Returns the failure for an error about a file, or about several files that `path` names together.
fn rejected(roster: &Roster, error: &Error, path: &Path) -> Failure {
    let failure = client_error::failure(roster, error);
    match error {
        // The failure names the file that could not be written.
        Error::Output(_) => failure,
        _ => failure.with(files::likeness(path)).about(path),
    }
}

/// Warns of readings that can be guessed.
fn warn(roster: &Roster, Guessable { seals, first }: Guessable) {
    let Some((device, index, epoch)) = first else { return };
    diagnostic(format_args!(
        "warning: the proof has digests of fewer than {FEW_READINGS} omitted readings, in {} (the first is seal {index} of {}, {})",
        count(seals, "seal"),
        device_name(roster, device),
        start_text(roster, epoch)
    ));
    diagnostic(
        "a reader who can guess these readings can test the guess; encrypt the columns that must be hidden",
    );
}

pub(crate) fn run_merge(arguments: &Merge) -> Result<(), Failure> {
    let Merge { proofs, common } = arguments;
    let (roster, streams) = common.open(proofs, &[])?;
    let sources = streams.into_iter().zip(proofs.iter().map(Path::new)).collect();
    let report = merge(sources, &roster, &common.out);
    let report = report.map_err(|MergeError { path, error }| {
        let failure = client_error::failure(&roster, &error);
        match path {
            Some(path) => failure.with(files::likeness(&path)).about(&path),
            None => failure,
        }
    })?;
    common.report(&roster, &report)
}
