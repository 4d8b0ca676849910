//! `moteseal seal`: seals recorded readings into signed bundles.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_api::NamedError as _;
use moteseal_core::record::Scheme;
use moteseal_core::record::SealIndex;
use moteseal_device::outbox::EXTENSION;
use moteseal_device::recorder::unsealed_readings;
use moteseal_device::{Batch, Bundle, Recording, Sealed};
use moteseal_verify::Roster;
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::input_table::{Source, TABLES};
use crate::interrupt;
use crate::progress::{bar, count, range};
use crate::terminal::{Stdout, diagnostic, is_json};
use crate::time::span;

/// Seal recorded readings into one signed bundle per epoch, which can be pushed to any cloud.
///
/// Sealing another file continues the device's chain, even in another directory: the state of the
/// chain is next to the key.
#[derive(Args, Debug)]
#[command(after_help = format!(
    "Example:\n  \
     moteseal seal data.csv --time ts \\\n      \
     --column temperature:Cel:i16/100 --column humidity:%RH:u16/100 \\\n      \
     --device dev1 --key keys/dev1.key.pem \\\n      \
     --roster roster.cbor --operator keys/op.pub.pem --out bundles/\n\n{TABLES}"
))]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Leave out the readings that are already sealed. Of the epoch that --keep-open left open, these
    /// must be the first readings of the table
    #[arg(long)]
    new_only: bool,
    /// Do not close the last epoch, because more of its readings will follow
    #[arg(long)]
    keep_open: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let existed = arguments.source.out.exists();
    seal(arguments).inspect_err(|_| {
        if !existed {
            // Remove the new directory if it is empty: an empty directory would look as if
            // something had been sealed.
            let _ = std::fs::remove_dir(&arguments.source.out);
        }
    })
}

fn seal(arguments: &Arguments) -> Result<(), Failure> {
    let mut ready = arguments.source.ready()?;
    clear_temporaries(&arguments.source.out);
    let folder = arguments.source.out.clone();
    // Clear the folder only once. If this repeated until the folder is clean, the sealing thread
    // could finish in the meantime. The next run removes files that are written after the clearing.
    interrupt::on_stop(move || clear_temporaries(&folder));
    let journal = ready.journal();
    let left = unsealed_readings(&journal, &ready.sealer)?;
    if left > 0 {
        return Err(Failure::usage(format_args!(
            "{}: not sealed yet: {} of an interrupted replay of {}; run that replay again to finish it",
            journal.display(),
            count(left, "reading"),
            arguments.source.device
        )));
    }
    let recording = &ready.recording;
    let batch = Batch {
        calendar: ready.roster.calendar().clone(),
        new_only: arguments.new_only,
        keep_open: arguments.keep_open,
    };
    let progress = bar(recording.len() as u64, "sealing");
    let sealed =
        batch.seal(recording, &mut ready.sealer, &mut |count| progress.set_position(count));
    progress.finish_and_clear();
    let sealed = sealed.map_err(|error| {
        Failure::named(Exit::Usage, error.named()).about(&arguments.source.table)
    })?;
    let progress = bar(sealed.bundles.len() as u64, "storing");
    let stored = ready.outbox.store(&sealed.bundles, &mut |_| progress.inc(1));
    progress.finish_and_clear();
    let paths = stored?;
    arguments.report(&ready.roster, recording, &sealed, &paths)
}

/// Removes the unfinished bundles of a directory. This process holds the directory's outbox, so no
/// other process writes to it.
fn clear_temporaries(folder: &Path) {
    let ending = format!(".{EXTENSION}.tmp");
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.ends_with(&ending));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Arguments {
    #[allow(clippy::cast_precision_loss)]
    fn report(
        &self,
        roster: &Roster,
        recording: &Recording,
        sealed: &Sealed,
        paths: &[PathBuf],
    ) -> Result<(), Failure> {
        if sealed.left_out > 0 {
            diagnostic(format_args!(
                "left out: {} already sealed",
                count(sealed.left_out, "reading")
            ));
        }
        let events: u64 = sealed.bundles.iter().map(Bundle::events).sum();
        let overhead: usize = sealed.bundles.iter().map(Bundle::uplink_overhead).sum();
        let indices = sealed
            .bundles
            .first()
            .zip(sealed.bundles.last())
            .map(|(first, last)| (first.index(), last.index()));
        // Every file contains the schema and the start of the chain. These are uploaded only with
        // the first bundle, so the other files are longer than their uploads.
        let more: usize = sealed.bundles.iter().map(|bundle| bundle.bytes.len()).sum();
        let data: usize = sealed.bundles.iter().map(Bundle::events_length).sum();
        let epochs = sealed
            .bundles
            .first()
            .zip(sealed.bundles.last())
            .map(|(first, last)| (first.epoch(), last.epoch()));
        if let (Some((SealIndex(first), SealIndex(last))), Some((since, until))) = (indices, epochs)
        {
            diagnostic(format_args!(
                "{}: {} under {} ({}), epochs from {}; overhead {:.2} B per reading on the uplink, {:.2} B in the files: {}",
                self.source.device,
                count(events, "reading"),
                range("seal", first, last),
                Scheme::from(self.source.scheme).as_str(),
                span(roster, since, until),
                overhead as f64 / events.max(1) as f64,
                (more - data) as f64 / events.max(1) as f64,
                self.source.out.display()
            ));
        } else {
            diagnostic(format_args!("{}: nothing new to seal", self.source.device));
        }
        if is_json() {
            let bundles: Vec<_> = sealed
                .bundles
                .iter()
                .zip(paths)
                .map(|(bundle, path)| {
                    json!({
                        "file": path.display().to_string(),
                        "index": bundle.index().0,
                        "epoch": bundle.epoch().0,
                        "events": bundle.events(),
                        "digest": bundle.seal.digest().to_string(),
                        "bytes": bundle.bytes.len(),
                        "uplink_overhead_bytes": bundle.uplink_overhead(),
                    })
                })
                .collect();
            let object = json!({
                "device": self.source.device,
                "scheme": Scheme::from(self.source.scheme).as_str(),
                "events": events,
                "left_out": sealed.left_out,
                "skipped": recording.skipped,
                "bundles": bundles,
            });
            Stdout::lock().line(object)?;
        }
        Ok(())
    }
}
