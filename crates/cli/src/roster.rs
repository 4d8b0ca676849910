//! `moteseal roster`: makes and shows a group's roster, the list of its devices that the operator
//! signs.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use moteseal_core::signature::PublicKey;
use moteseal_verify::issue::{Budget, FirstRoster};
use serde_json::json;

use crate::failure::Failure;
use crate::files;
use crate::progress::count;
use crate::terminal::{Stdout, diagnostic};
use crate::time;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Certify the keys of devices and sign the roster of a new group.
    #[command(
        after_help = "Example:\n  moteseal key new --out keys/op\n  moteseal key new --out keys/dev1\n  \
                            moteseal roster new --operator keys/op.key.pem --group home --epoch 1h --levels 16 \\\n      \
                            --device dev1=keys/dev1.pub.pem --out roster.cbor"
    )]
    New(New),
    /// Verify the operator's signature of a roster and show the roster.
    Show(Show),
}

#[derive(Args, Debug)]
pub(crate) struct New {
    /// The operator's secret key
    #[arg(long, value_name = "KEY")]
    operator: PathBuf,
    /// The group's name
    #[arg(long)]
    group: String,
    /// The length of an epoch: 500ms, 30s, 15m, 1h or 1d
    #[arg(long, value_parser = time::duration)]
    epoch: u64,
    /// The number of sampling levels: with L levels the lowest rate is 1/2^(L-1), and a device
    /// needs 112 bytes per level
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=32))]
    levels: u8,
    /// The maximum number of events per epoch that the group's coordinator may keep
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..), requires = "coordinator")]
    budget: Option<u64>,
    /// With --budget: the public key of the coordinator, the group's gateway
    #[arg(long, value_name = "PUBLIC_KEY", requires = "budget")]
    coordinator: Option<PathBuf>,
    /// With --budget: the expected number of events of the group per epoch; the command then checks
    /// that --levels suffices for the budget
    #[arg(long, value_name = "EVENTS", requires = "budget")]
    expected: Option<u64>,
    /// A device and its public key; repeat it for every device
    #[arg(long = "device", value_name = "NAME=PUBLIC_KEY", required = true, value_parser = device)]
    devices: Vec<(String, PathBuf)>,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The roster
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::New(arguments) => new(&arguments),
        Command::Show(arguments) => show(&arguments),
    }
}

fn new(arguments: &New) -> Result<(), Failure> {
    // With too few levels even the lowest sampling rate could exceed the budget (docs/design.md,
    // sampling).
    if let (Some(budget), Some(expected)) = (arguments.budget, arguments.expected) {
        let enough =
            (1u128 << (arguments.levels - 1)) * u128::from(budget) >= 8 * u128::from(expected);
        if !enough {
            return Err(Failure::usage(format_args!(
                "--levels {} is too few for {expected} events per epoch and a budget of {budget}: 2^(levels-1) must be at least 8 * expected / budget",
                arguments.levels
            )));
        }
    }
    let operator = files::secret_key(&arguments.operator)?;
    let mut keys: Vec<(&str, PublicKey)> = Vec::with_capacity(arguments.devices.len());
    let mut speaks: HashMap<Vec<u8>, &str> = HashMap::with_capacity(arguments.devices.len());
    let mut names = HashSet::with_capacity(arguments.devices.len());
    for (name, path) in &arguments.devices {
        if !names.insert(name) {
            return Err(Failure::usage(format_args!("--device {name} is named twice")));
        }
        let key = files::public_key(path)?;
        // If two devices shared a key, either could seal readings in the name of the other.
        if let Some(other) = speaks.insert(key.to_bytes().to_vec(), name) {
            return Err(Failure::usage(format_args!(
                "--device {name}: {} is also the key of {other}; make a separate key for every device with `moteseal key new`",
                path.display()
            )));
        }
        keys.push((name, key));
    }
    let budget = match (arguments.budget, &arguments.coordinator) {
        (Some(events), Some(path)) => {
            Some(Budget { events, coordinator: files::public_key(path)? })
        }
        _ => None,
    };
    let roster = FirstRoster {
        group: &arguments.group,
        epoch_ms: arguments.epoch,
        levels: arguments.levels,
        budget,
        devices: &keys,
    };
    let bytes = roster.issue(&operator).map_err(|error| Failure::usage(error.named()))?;
    files::create(&arguments.out, &bytes, 0o644)?;
    let devices = count(keys.len() as u64, "device");
    diagnostic(format_args!(
        "roster of group {} with {devices}: {}",
        arguments.group,
        arguments.out.display()
    ));
    Ok(())
}

fn show(arguments: &Show) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let mut out = Stdout::lock();
    if arguments.json {
        let devices: Vec<_> = roster
            .devices()
            .map(|device| json!({ "name": device.name, "id": device.id.to_string() }))
            .collect();
        let object = json!({
            "group": roster.group_name(),
            "version": roster.version(),
            "digest": roster.digest().to_string(),
            "epoch_ms": roster.epoch_ms(),
            "levels": roster.levels(),
            "devices": devices,
        });
        out.line(object)?;
        return Ok(());
    }
    out.line(format_args!("group     {}", roster.group_name()))?;
    out.line(format_args!("version   {}", roster.version()))?;
    out.line(format_args!("digest    {}", roster.digest()))?;
    out.line(format_args!("epoch     {} ms", roster.epoch_ms()))?;
    out.line(format_args!("levels    {}", roster.levels()))?;
    for device in roster.devices() {
        out.line(format_args!("device    {}  {}", device.id, device.name))?;
    }
    Ok(())
}

/// Parses a device's name and the path of its key. The name is also used in file names: it may
/// contain letters, digits, dots, dashes and underscores, and must not start with a dot or a dash.
fn device(text: &str) -> Result<(String, PathBuf), String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    match text.split_once('=') {
        Some((name, _)) if !name.chars().all(plain) || name.starts_with(['.', '-']) => {
            Err("a device's name is also a file name: letters, digits, '.', '-' and '_', the first a letter, a digit or '_'"
                .to_owned())
        }
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("NAME=PUBLIC_KEY, for example dev1=keys/dev1.pub.pem".to_owned()),
    }
}
