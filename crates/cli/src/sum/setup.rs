//! `moteseal sum setup`: makes the key files of private sums, one for each device and one for the
//! querier.

use std::path::{Path, PathBuf};

use clap::Args;
use moteseal_client::input;
use moteseal_client::sum::{MIN_COUNT, RenewedRing, add, renew_masks, setup};
use moteseal_device::runner::system_clock;
use moteseal_verify::Roster;
use moteseal_verify::aggregation::QUERIER;
use serde_json::json;

use crate::client_error;
use crate::failure::Failure;
use crate::files;
use crate::progress::{bar, count};
use crate::terminal::{diagnostic, report_lines};

/// Make the key files of private sums: one for each device and one for the querier.
#[derive(Args, Debug)]
#[command(after_help = "Example: moteseal key new --out q\n         \
                        moteseal sum setup --roster roster.cbor --operator op.pub.pem --querier q.key.pem \\\n      \
                        --out sumkeys/\n\
                        makes sumkeys/NAME.sum.key     for each device of the roster: goes to that device only\n      \
                        sumkeys/querier.sum.key  stays with the querier: all other keys are derived from it\n\n         \
                        moteseal sum setup --roster roster.cbor --operator op.pub.pem \\\n      \
                        --keys sumkeys/querier.sum.key --out sumkeys/\n\
                        makes the files of the devices that have joined the group since")]
pub(crate) struct Arguments {
    /// The group's roster; its devices are the sources
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key; default: op.pub.pem in the roster's folder, or in keys/ there
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: Option<PathBuf>,
    /// The key with which the querier signs its queries: the secret or the public key; .pem may be
    /// omitted
    #[arg(long, value_name = "KEY", required_unless_present = "keys")]
    querier: Option<PathBuf>,
    /// The querier's file of an earlier setup: make the files of the devices that have joined since
    /// and have none in --out. The files of the other devices stay valid
    #[arg(long, value_name = "QUERIER_KEYS", conflicts_with_all = ["querier", "key_groups"])]
    keys: Option<PathBuf>,
    /// The querier's name. Each further querier of a group needs a set-up of its own, with another
    /// name, another folder and another tree
    #[arg(long, default_value = QUERIER, conflicts_with = "keys")]
    name: String,
    /// With --keys: make new masks for the key group of this device, because it has joined or left or
    /// was replaced. Writes new files for the querier and for the devices of this key group. The files
    /// of other devices stay valid
    #[arg(long, value_name = "DEVICE", requires = "keys")]
    renew_masks: Vec<String>,
    /// The folder for the files
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Divide the devices into this many key groups. An attacker with a stolen device can falsify
    /// only the sums of its key group. Each further key group adds 32 bytes per message on the
    /// links above its devices [default: at most 8, of at least 5 devices each]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    key_groups: Option<u32>,
    /// Give the devices secrets with which they mask their answers, for a querier that the policy
    /// does not trust with readings. It can open only the sums of whole key groups
    #[arg(long, conflicts_with = "keys")]
    masks: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { roster: path, querier, keys, out, key_groups, .. } = arguments;
    let roster = files::roster(path, &operator(arguments)?)?;
    if let Some(keys) = keys.as_ref().filter(|_| !arguments.renew_masks.is_empty()) {
        return renew(&roster, keys, &arguments.renew_masks, out);
    }
    if let Some(keys) = keys {
        return add_devices(&roster, keys, out);
    }
    let querier = querier.as_ref().ok_or_else(|| Failure::usage("give --querier or --keys"))?;
    let querier = input::public_half(&with_suffix(querier));
    let querier = querier.map_err(|error| client_error::input(&error))?;
    let sources = roster.devices().len() as u64;
    if let Some(key_groups) = key_groups.filter(|key_groups| u64::from(*key_groups) > sources) {
        return Err(Failure::usage(format_args!(
            "--key-groups {key_groups}: {} has {}; a key group needs at least one",
            path.display(),
            count(sources, "device")
        )));
    }
    let progress = bar(sources, "writing keys");
    let files =
        setup(&roster, (&arguments.name, &querier), out, *key_groups, arguments.masks, &mut || {
            progress.inc(1);
        })
        .map_err(|error| client_error::input(&error))?;
    progress.finish_and_clear();
    let groups = sources.div_ceil(files.key_group.into());
    let mut lines = vec![
        format!("querier    {}", files.querier.display()),
        format!("devices    {} in {}", count(sources, "key file"), out.display()),
    ];
    if groups > 1 {
        let most = count(files.key_group.into(), "device");
        lines.push(format!("key groups {groups} of up to {most}"));
    }
    if arguments.masks {
        lines.push(
            "masks      the devices answer only under a policy (moteseal sum policy)".to_owned(),
        );
    }
    report_lines(lines, || {
        json!({
            "masks": arguments.masks,
            "name": arguments.name,
            "querier": files.querier.display().to_string(),
            "folder": out.display().to_string(),
            "devices": sources,
            "key_groups": groups,
        })
    })
}

/// Makes the key files of the devices that have joined the group.
fn add_devices(roster: &Roster, keys: &Path, out: &Path) -> Result<(), Failure> {
    let progress = bar(roster.devices().len() as u64, "writing keys");
    let added = add(roster, keys, out, &mut || progress.inc(1));
    progress.finish_and_clear();
    let added = added.map_err(|error| client_error::input(&error))?;
    let made = count(added.len() as u64, "key file");
    report_lines(vec![format!("devices    {made} in {}", out.display())], || {
        let files: Vec<_> = added.iter().map(|path| path.display().to_string()).collect();
        json!({ "folder": out.display().to_string(), "added": files })
    })
}

/// Makes new masks for the key groups of the devices with these names.
fn renew(roster: &Roster, keys: &Path, changed: &[String], out: &Path) -> Result<(), Failure> {
    let made = renew_masks(roster, keys, changed, out, system_clock());
    let (files, rings) = made.map_err(|error| client_error::input(&error))?;
    let mut lines = vec![
        format!("querier    {}", files.querier.display()),
        format!(
            "devices    {} in {}",
            count(files.devices.len() as u64, "key file"),
            out.display()
        ),
    ];
    for RenewedRing { key_group, sources, changed } in &rings {
        lines.push(format!(
            "key group  {key_group}: {} with masks, {} changed",
            count(u64::from(*sources), "device"),
            count(u64::from(*changed), "device")
        ));
        if (1..MIN_COUNT).contains(changed) {
            diagnostic(format_args!(
                "key group {key_group}: its sums before and after differ by {}, which the querier may compare; \
                 change several devices together, or let it ask with EPSILON only",
                count(u64::from(*changed), "device")
            ));
        }
    }
    lines.push(
        "next       end the query, replace all of these files, restart the devices, start the query"
            .to_owned(),
    );
    report_lines(lines, || {
        let paths: Vec<_> = files.devices.iter().map(|path| path.display().to_string()).collect();
        let rings: Vec<_> = rings
            .iter()
            .map(|ring| {
                json!({
                    "key_group": ring.key_group,
                    "sources": ring.sources,
                    "changed": ring.changed,
                })
            })
            .collect();
        json!({
            "querier": files.querier.display().to_string(),
            "renewed": paths,
            "key_groups": rings,
        })
    })
}

/// Returns the path of the operator's public key: the given file, or the one in the roster's
/// folder.
fn operator(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let in_roster_folder = || {
        ["op.pub.pem", "keys/op.pub.pem"]
            .map(|name| arguments.roster.with_file_name(name))
            .into_iter()
            .find(|path| path.exists())
    };
    arguments.operator.clone().or_else(in_roster_folder).ok_or_else(|| {
        Failure::usage(format_args!(
            "there is no op.pub.pem in the folder of {}; give the operator's public key with --operator",
            arguments.roster.display()
        ))
    })
}

/// Adds `.pem` to the path: `moteseal key new --out q` makes `q.key.pem`, so `--querier q.key` must
/// refer to that file.
fn with_suffix(path: &Path) -> PathBuf {
    let mut whole = path.as_os_str().to_owned();
    whole.push(".pem");
    let whole = PathBuf::from(whole);
    if !path.exists() && whole.exists() { whole } else { path.to_owned() }
}
