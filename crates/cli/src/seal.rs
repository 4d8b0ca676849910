//! `moteseal seal`: recorded readings become signed bundles.

use std::path::PathBuf;

use clap::Args;
use moteseal_core::record::SealIndex;
use moteseal_core::seal::Scheme;
use moteseal_device::import::display_ms;
use moteseal_device::recorder::left_in;
use moteseal_device::{Batch, Bundle, Recording, Sealed};
use serde_json::json;

use crate::failure::Failure;
use crate::progress::{bar, thousands};
use crate::source::{Source, TABLES, outbox_failure, record_failure};
use crate::terminal::{Stdout, talk};

/// Seals recorded readings: one signed bundle an epoch, ready to be pushed to any cloud.
///
/// Sealing another file continues the device's chain, whatever directory its bundles go to: the chain's state lies beside the key.
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
    /// Leave readings out of epochs that are sealed already
    #[arg(long)]
    new_only: bool,
    /// More readings of the last epoch will follow: do not close it
    #[arg(long)]
    keep_open: bool,
    /// What was sealed, as JSON on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut ready = arguments.source.ready()?;
    let journal = ready.journal();
    let left = left_in(&journal, &ready.sealer).map_err(|error| record_failure(&error, &error))?;
    if left > 0 {
        return Err(Failure::usage(format_args!(
            "{}: {left} readings that a replay of {} left are not sealed yet; run that replay again first, it goes on",
            journal.display(),
            arguments.source.device
        )));
    }
    let recording = &ready.recording;
    let batch = Batch { epoch_ms: ready.roster.epoch_ms(), new_only: arguments.new_only, keep_open: arguments.keep_open };
    let progress = bar(recording.len() as u64, "sealing");
    let sealed = batch.seal(recording, &mut ready.sealer, &mut |count| progress.set_position(count));
    progress.finish_and_clear();
    let sealed = sealed.map_err(|error| Failure::usage(format_args!("{}: {error}", arguments.source.table.display())))?;
    let progress = bar(sealed.bundles.len() as u64, "storing");
    let stored = ready.outbox.store(&sealed.bundles, &mut |_| progress.inc(1));
    progress.finish_and_clear();
    let paths = stored.map_err(outbox_failure)?;
    arguments.report(recording, &sealed, &paths)
}

impl Arguments {
    #[allow(clippy::cast_precision_loss)]
    fn report(&self, recording: &Recording, sealed: &Sealed, paths: &[PathBuf]) -> Result<(), Failure> {
        if sealed.left_out > 0 {
            talk(format_args!("{} readings of epochs that are sealed already were left out", thousands(sealed.left_out)));
        }
        let events: u64 = sealed.bundles.iter().map(Bundle::events).sum();
        let overhead: usize = sealed.bundles.iter().map(Bundle::uplink_overhead).sum();
        let indices = sealed.bundles.first().zip(sealed.bundles.last()).map(|(first, last)| (first.index(), last.index()));
        let span = recording.iter().next().zip(recording.iter().next_back()).map(|((first, _), (last, _))| (first, last));
        if let (Some((SealIndex(first), SealIndex(last))), Some((from, to))) = (indices, span) {
            talk(format_args!(
                "{}: {} readings from {} to {} under seals {first} to {last} ({}), {:.2} B a reading beside the data: {}",
                self.source.device,
                thousands(events),
                display_ms(from),
                display_ms(to),
                Scheme::from(self.source.scheme).as_str(),
                overhead as f64 / events.max(1) as f64,
                self.source.out.display()
            ));
        } else {
            talk(format_args!("{}: nothing new to seal", self.source.device));
        }
        if self.json {
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
