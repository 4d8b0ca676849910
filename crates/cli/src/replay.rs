//! `moteseal replay`: replays recorded readings at a chosen speed, as if they were sensed now.

use std::path::PathBuf;

use clap::Args;
use moteseal_device::import::display_ms;
use moteseal_device::recorder::Recorder;
use moteseal_device::replay::{Replay, Uplinked, uplink};
use serde_json::json;

use crate::cloud::runtime;
use crate::failure::Failure;
use crate::input_table::{Source, TABLES};
use crate::progress::{bar, count, thousands};
use crate::push::{Access, equivocation};
use crate::terminal::{diagnostic, report};

/// Replay recorded readings at a chosen speed, as if the device sensed them now.
///
/// Each reading is first written durably to a journal, and each epoch is sealed when it has ended.
/// With --to, each bundle is pushed as soon as it is sealed. The command can be stopped or killed
/// at any moment. Run it again to continue after the last durable reading; the next seal then
/// states that the device restarted. While the cloud does not respond, bundles wait in the
/// directory.
#[derive(Args, Debug)]
#[command(after_help = format!(
    "Example, a day in 24 minutes:\n  \
     moteseal replay data.csv --speed 60 --to http://127.0.0.1:8080 --time ts \\\n      \
     --column temperature:Cel:i16/100 --column humidity:%RH:u16/100 \\\n      \
     --device dev1 --key keys/dev1.key.pem \\\n      \
     --roster roster.cbor --operator keys/op.pub.pem --out bundles/\n\n{TABLES}"
))]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The speed: 1 replays at the recorded speed, 60 replays a minute per second, max replays as
    /// fast as possible
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = speed)]
    speed: Speed,
    /// Push each bundle to this cloud
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    #[command(flatten)]
    access: Access,
    /// The journal of unsealed readings; default: next to the state of the chain
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

/// The number of recorded seconds to replay per second; `None` for as fast as possible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed(pub(crate) Option<f64>);

pub(crate) fn speed(text: &str) -> Result<Speed, String> {
    match text.parse::<f64>() {
        _ if text == "max" => Ok(Speed(None)),
        Ok(factor) if factor.is_finite() && factor >= 1e-6 => Ok(Speed(Some(factor))),
        _ => Err("a factor above 0 such as 1 or 60, or max".to_owned()),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let cloud = arguments.to.as_deref().map(|url| arguments.access.client(url)).transpose()?;
    let ready = arguments.source.ready()?;
    let journal = arguments.journal.clone().unwrap_or_else(|| ready.journal());
    let (mut recorder, recovered) = Recorder::open(ready.sealer, ready.outbox, &journal)?;
    if recovered.readings > 0 {
        diagnostic(format_args!(
            "{}: continuing with {} of an unsealed epoch from the journal",
            arguments.source.device,
            count(recovered.readings, "reading")
        ));
    }

    let progress = bar(ready.recording.len() as u64, "replaying");
    let replay = Replay { calendar: ready.roster.calendar().clone(), speed: arguments.speed.0 };
    let waiting = recorder.outbox().bundles()?.into_iter().map(|(_, path)| path).collect();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let (replayed, pushed) = runtime()?.block_on(async {
        let mut sender = Some(sender);
        let sensing = async {
            let mut stored = |path| {
                if let Some(sender) = &sender {
                    // This fails only if nothing receives the paths because there is no uplink.
                    let _ = sender.send(path);
                }
            };
            let replayed = replay
                .run(
                    &ready.recording,
                    &mut recorder,
                    &mut |count| progress.set_position(count),
                    &mut stored,
                )
                .await;
            sender = None;
            replayed
        };
        let sending = async {
            match &cloud {
                Some(cloud) => uplink(cloud, waiting, receiver).await,
                None => Ok(Uplinked::default()),
            }
        };
        tokio::join!(sensing, sending)
    });
    progress.finish_and_clear();
    let replayed = replayed.map_err(|(at, error)| {
        let table = arguments.source.table.display();
        Failure::from(error).of(format_args!("{table}: the reading at {}", display_ms(at)))
    })?;
    let pushed = pushed?;
    let text = format!(
        "{}: {} replayed, {} already taken before; {} stored, the cloud has {}",
        arguments.source.device,
        count(replayed.readings, "reading"),
        thousands(replayed.left_out),
        count(replayed.bundles, "bundle"),
        thousands(pushed.pushed),
    );
    report(text, || {
        json!({
            "device": arguments.source.device,
            "readings": replayed.readings,
            "left_out": replayed.left_out,
            "bundles": replayed.bundles,
            "pushed": pushed.pushed,
        })
    })?;
    equivocation(&pushed.conflicts)
}
