//! `moteseal roster`: makes and shows a group's roster, the list of its devices that the operator
//! signs.

mod change;
mod enrol;

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use moteseal_client::start_text;
use moteseal_core::record::DeviceId;
use moteseal_core::signature::PublicKey;
use moteseal_verify::issue::{Budget, FirstRoster};
use moteseal_verify::roster::Term;
use moteseal_verify::{Roster, SanitiserRight};
use serde_json::json;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::count;
use crate::terminal::{Stdout, is_json, report_lines};
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
    /// Add devices to a group.
    #[command(
        after_help = "Examples:\n  moteseal roster add --roster roster.cbor --operator keys/op.key.pem \\\n      \
                            --device dev2=keys/dev2.pub.pem\n  \
                            moteseal roster add --roster roster.cbor --operator keys/op.key.pem \\\n      \
                            --devices-file names.txt --keys keys\n\n\
                            Services that run with roster.cbor load the new version when the file changes."
    )]
    Add(change::Add),
    /// Remove devices from a group. Their past seals stay verifiable.
    #[command(
        after_help = "Example: moteseal roster remove --roster roster.cbor --operator keys/op.key.pem --device dev2"
    )]
    Remove(change::Remove),
    /// Give devices new keys.
    #[command(
        after_help = "Example: moteseal roster rotate --roster roster.cbor --operator keys/op.key.pem \\\n             \
                            --device dev1=keys/dev1b.pub.pem --from 2027-01-01\n\n\
                            The device keeps its old key until then: `key` and `next_key` in its configuration."
    )]
    Rotate(change::Rotate),
    /// Revoke the newest key of a device, from a time or a seal index on.
    #[command(after_help = "Example:\n  \
                            moteseal roster revoke --roster roster.cbor --operator keys/op.key.pem --device dev1 --from -2d\n\n\
                            Seals from there on are no longer valid, also those that are stored already. Add the device\n\
                            again with `roster add` and a new key.")]
    Revoke(change::Revoke),
    /// Change the epoch length, levels, budget or coordinator from an epoch on, the querier or the
    /// owners.
    #[command(
        after_help = "Example:\n  moteseal roster set --roster roster.cbor --operator keys/op.key.pem \\\n      \
                            --epoch 10m --from 2027-01-01"
    )]
    Set(change::Set),
    /// Name a sanitiser, who may replace column groups of devices, give it a further right, end its rights
    /// or remove it.
    #[command(
        after_help = "Example: moteseal roster sanitiser gw --roster roster.cbor --operator keys/op.key.pem \\\n             \
                            --key keys/gw.pub.pem --groups 1 --devices dev1"
    )]
    Sanitiser(change::SetSanitiser),
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
    #[command(flatten)]
    enrolment: enrol::Enrolment,
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
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::New(arguments) => new(&arguments),
        Command::Add(arguments) => change::add(&arguments),
        Command::Remove(arguments) => change::remove(&arguments),
        Command::Rotate(arguments) => change::rotate(&arguments),
        Command::Revoke(arguments) => change::revoke(&arguments),
        Command::Set(arguments) => change::set(&arguments),
        Command::Sanitiser(arguments) => change::sanitiser(&arguments),
        Command::Show(arguments) => show(&arguments),
    }
}

/// Checks that the lowest sampling rate does not exceed the budget (docs/design.md, sampling).
fn levels_suffice(levels: u8, budget: u64, expected: u64) -> Result<(), Failure> {
    if (1u128 << (levels - 1)) * u128::from(budget) >= 8 * u128::from(expected) {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "--levels {levels} is too few for {expected} events per epoch and a budget of {budget}: 2^(levels-1) must be at least 8 * expected / budget"
    )))
}

fn new(arguments: &New) -> Result<(), Failure> {
    if let (Some(budget), Some(expected)) = (arguments.budget, arguments.expected) {
        levels_suffice(arguments.levels, budget, expected)?;
    }
    let operator = files::secret_key(&arguments.operator)?;
    let enrolled = arguments.enrolment.enrol()?;
    let keys: Vec<_> =
        enrolled.devices().iter().map(|(name, key)| (name.as_str(), key.clone())).collect();
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
    let bytes =
        roster.issue(&operator).map_err(|error| Failure::named(Exit::Usage, error.named()))?;
    // The keys must exist before the roster names them.
    enrolled.write()?;
    files::create(&arguments.out, &bytes, 0o644)?;
    let devices = count(keys.len() as u64, "device");
    let text =
        format!("roster of group {} with {devices}: {}", arguments.group, arguments.out.display());
    report_lines([Some(text), enrolled.note()].into_iter().flatten(), || {
        json!({
            "file": arguments.out.display().to_string(),
            "group": arguments.group,
            "version": 0,
            "devices": keys.len(),
            "keys_made": enrolled.made(),
        })
    })
}

fn show(arguments: &Show) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let mut out = Stdout::lock();
    if is_json() {
        return out.line(to_json(&roster));
    }
    out.line(format_args!("group     {}", roster.group_name()))?;
    out.line(format_args!("version   {}", roster.version()))?;
    out.line(format_args!("digest    {}", roster.digest()))?;
    for period in roster.periods() {
        if roster.periods().len() > 1 {
            out.line(format_args!("from      {}", start_text(&roster, period.first_epoch)))?;
        }
        out.line(format_args!("epoch     {} ms", period.epoch_ms))?;
        out.line(format_args!("levels    {}", period.levels))?;
        if let Some(budget) = period.budget {
            out.line(format_args!("budget    {} per epoch", count(budget, "event")))?;
        }
        if let Some(key) = &period.coordinator {
            out.line(format_args!(
                "gateway   {} {}",
                key.algorithm().name(),
                hex::encode(&*key.to_bytes())
            ))?;
        }
    }
    if let Some(key) = roster.querier() {
        out.line(format_args!(
            "querier   {} {}",
            key.algorithm().name(),
            hex::encode(&*key.to_bytes())
        ))?;
    }
    for owner in roster.owners() {
        out.line(format_args!(
            "owner     {} {}  {}",
            owner.key.algorithm().name(),
            hex::encode(&*owner.key.to_bytes()),
            owner.name
        ))?;
    }
    for sanitiser in roster.sanitisers() {
        out.line(format_args!(
            "sanitiser {} {}  {}",
            sanitiser.key.algorithm().name(),
            hex::encode(&*sanitiser.key.to_bytes()),
            sanitiser.name
        ))?;
        for right in &sanitiser.rights {
            out.line(format_args!("  right   {}", describe_right(&roster, right)))?;
        }
    }
    for device in roster.devices() {
        out.line(format_args!("device    {}  {}", device.id, device.name))?;
        for term in device.terms() {
            out.line(format_args!("  key     {}", describe(&roster, term)))?;
        }
    }
    Ok(())
}

/// Describes a key of a device and the seals for which it is valid.
fn describe(roster: &Roster, term: &Term) -> String {
    let mut text =
        format!("{} {}", term.key.algorithm().name(), hex::encode(&*term.key.to_bytes()));
    if term.first_index.0 > 0 {
        let _ = write!(text, ", from seal {}", term.first_index);
    }
    if term.first_epoch.0 > 0 {
        let _ = write!(text, ", from {}", start_text(roster, term.first_epoch));
    }
    if let Some(end) = term.end_index {
        let _ = write!(text, ", before seal {end}");
    }
    if let Some(end) = term.end_epoch {
        let _ = write!(text, ", until {}", start_text(roster, end));
    }
    text
}

/// Describes what a sanitiser may replace.
fn describe_right(roster: &Roster, right: &SanitiserRight) -> String {
    let devices = right.devices.as_ref().map_or_else(
        || "all devices".to_owned(),
        |devices| {
            let name = |id: &DeviceId| roster.name(*id).map_or(id.to_string(), str::to_owned);
            devices.iter().map(name).collect::<Vec<_>>().join(", ")
        },
    );
    let mut text = format!("column groups {} of {devices}", right.groups);
    if right.first_epoch.0 > 0 {
        let _ = write!(text, ", from {}", start_text(roster, right.first_epoch));
    }
    if let Some(end) = right.end_epoch {
        let _ = write!(text, ", until {}", start_text(roster, end));
    }
    text
}

fn to_json(roster: &Roster) -> serde_json::Value {
    let key = |key: &PublicKey| json!({ "algorithm": key.algorithm().name(), "public_key": hex::encode(&*key.to_bytes()) });
    let term = |term: &Term| {
        json!({
            "key": key(&term.key),
            "first_index": term.first_index.0,
            "first_epoch": term.first_epoch.0,
            "end_index": term.end_index.map(|end| end.0),
            "end_epoch": term.end_epoch.map(|end| end.0),
        })
    };
    let devices: Vec<_> = roster
        .devices()
        .map(|device| {
            json!({
                "name": device.name,
                "id": device.id.to_string(),
                "since": device.since,
                "keys": device.terms().iter().map(term).collect::<Vec<_>>(),
            })
        })
        .collect();
    let periods: Vec<_> = roster
        .periods()
        .iter()
        .map(|period| {
            json!({
                "version": period.version,
                "first_epoch": period.first_epoch.0,
                "start_ms": roster.epoch_start_ms(period.first_epoch),
                "epoch_ms": period.epoch_ms,
                "levels": period.levels,
                "budget": period.budget,
                "coordinator": period.coordinator.as_ref().map(key),
            })
        })
        .collect();
    let owners: Vec<_> = roster
        .owners()
        .iter()
        .map(|owner| json!({ "name": owner.name, "key": key(&owner.key) }))
        .collect();
    let right = |right: &SanitiserRight| {
        json!({
            "devices": right.devices.as_ref().map(|devices| {
                devices.iter().map(ToString::to_string).collect::<Vec<_>>()
            }),
            "groups": right.groups.iter().collect::<Vec<_>>(),
            "first_epoch": right.first_epoch.0,
            "end_epoch": right.end_epoch.map(|end| end.0),
        })
    };
    let sanitisers: Vec<_> = roster
        .sanitisers()
        .iter()
        .map(|of| {
            let rights: Vec<_> = of.rights.iter().map(right).collect();
            json!({ "name": of.name, "key": key(&of.key), "rights": rights })
        })
        .collect();
    let newest = roster.newest_period();
    json!({
        "group": roster.group_name(),
        "version": roster.version(),
        "digest": roster.digest().to_string(),
        "epoch_ms": newest.epoch_ms,
        "levels": newest.levels,
        "budget": newest.budget,
        "periods": periods,
        "querier": roster.querier().map(key),
        "owners": owners,
        "sanitisers": sanitisers,
        "devices": devices,
    })
}

/// Parses a device's name. The name is also used in file names: it may contain letters, digits,
/// dots, dashes and underscores, and must not start with a dot or a dash.
pub(crate) fn device_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || !name.chars().all(plain) || name.starts_with(['.', '-']) {
        return Err("a device's name is also a file name: letters, digits, '.', '-' and '_', the first a letter, a digit or '_'"
            .to_owned());
    }
    Ok(name.to_owned())
}

/// Parses a device's name and the path of its key.
pub(crate) fn device(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((device_name(name)?, path.into()))
        }
        _ => Err("NAME=PUBLIC_KEY, for example dev1=keys/dev1.pub.pem".to_owned()),
    }
}
