//! `moteseal hub agent`: packs, shows, installs, lists, rolls back and removes agents
//! (spec/agents.md).

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use moteseal_core::record::GroupId;
use moteseal_core::roster::Directory as _;
use moteseal_files::{PUBLIC, Temporary, sync_folder_of};
use moteseal_hub::agents::package::{Package, Trust, list, pack, unverified_manifest};
use moteseal_hub::agents::{AgentError, Installed, Limits, Manifest, PackageError, Status, Store};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config;
use crate::failure::Failure;
use crate::files;
use crate::progress::{bytes, count};
use crate::terminal::{Plain, Stdout, is_json, report, report_lines};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sign a package of a program and its files, for the hubs of one group.
    #[command(after_help = "Example, agent.toml:\n  \
                            group         = \"home\"\n  \
                            name          = \"weather\"\n  \
                            version       = 3\n  \
                            arguments     = [\"/usr/bin/python3\", \"weather.py\"]\n  \
                            start_timeout = \"30s\"\n  \
                            [limits]\n  \
                            memory        = \"64MiB\"\n  \
                            cpu_percent   = 20\n  \
                            storage       = \"16MiB\"\n  \
                            processes     = 1\n  \
                            network       = true\n\n\
                            moteseal hub agent pack weather --manifest agent.toml --operator-key keys/op.key.pem \\\n      \
                            --out weather.agent\n\n\
                            Each package needs a higher version than the one before. The limits are shown by `agent show`.")]
    Pack(Pack),
    /// Show what a package contains, and verify it.
    Show(Show),
    /// Install a package. A hub that runs starts it at once.
    Install(Install),
    /// List the installed agents and what the hub reports about them.
    List(Config),
    /// Go back to the version before.
    Rollback(Named),
    /// Remove an agent. Lower versions stay refused.
    Remove(Remove),
}

#[derive(Args, Debug)]
pub(crate) struct Pack {
    /// The folder with the files
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The agent's name, version, program and limits
    #[arg(long, value_name = "FILE")]
    manifest: PathBuf,
    /// The secret key of the group's operator
    #[arg(long, value_name = "FILE")]
    operator_key: PathBuf,
    /// The package to write; default: NAME-VERSION.agent
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The package
    #[arg(value_name = "FILE")]
    package: PathBuf,
    /// The public key of the group's operator; without it, nothing is verified
    #[arg(long, value_name = "FILE")]
    operator: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Config {
    /// The hub's configuration
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Install {
    /// The package
    #[arg(value_name = "FILE")]
    package: PathBuf,
    #[command(flatten)]
    config: Config,
}

#[derive(Args, Debug)]
pub(crate) struct Named {
    /// The name of the agent
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    config: Config,
}

#[derive(Args, Debug)]
pub(crate) struct Remove {
    #[command(flatten)]
    of: Named,
    /// Remove the files that the agent has stored, too
    #[arg(long)]
    data: bool,
}

/// The contents of `agent.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentFile {
    group: String,
    name: String,
    version: u64,
    #[serde(default = "minimum")]
    minimum: u64,
    arguments: Vec<String>,
    #[serde(default = "start_timeout", deserialize_with = "config::duration")]
    start_timeout: Duration,
    #[serde(default)]
    limits: LimitsFile,
}

const fn minimum() -> u64 {
    1
}

const fn start_timeout() -> Duration {
    Duration::from_secs(30)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsFile {
    #[serde(deserialize_with = "config::bytes")]
    memory: u64,
    cpu_percent: u32,
    #[serde(deserialize_with = "config::bytes")]
    storage: u64,
    processes: u32,
    network: bool,
}

impl Default for LimitsFile {
    fn default() -> Self {
        let Limits { memory, cpu_permille, storage, processes, network } = Limits::DEFAULT;
        Self { memory, cpu_percent: cpu_permille / 10, storage, processes, network }
    }
}

/// The keys of `hub.toml` that decide where agents are and who signs them. The hub itself reads the
/// other keys.
#[derive(Debug, Deserialize)]
struct HubFile {
    roster: PathBuf,
    operator: PathBuf,
    state: PathBuf,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Pack(arguments) => packed(arguments),
        Command::Show(arguments) => show(arguments),
        Command::Install(arguments) => install(arguments),
        Command::List(arguments) => all(arguments),
        Command::Rollback(arguments) => roll_back(arguments),
        Command::Remove(arguments) => remove(arguments),
    }
}

fn store(config: &Config) -> Result<Store, Failure> {
    let (hub, folder): (HubFile, _) = config::load_as(&config.config, "docs/agents.md")?;
    let operator = folder.join(&hub.operator);
    let roster = files::roster(&folder.join(&hub.roster), &operator)?;
    let trust = Trust { group: roster.group(), operator: files::public_key(&operator)? };
    Ok(Store::open(&folder.join(&hub.state), trust)?)
}

fn packed(arguments: &Pack) -> Result<(), Failure> {
    let file = &arguments.manifest;
    let (described, _): (AgentFile, _) = config::load_as(file, "docs/agents.md")?;
    let operator = files::secret_key(&arguments.operator_key)?;
    let start_timeout_ms = u32::try_from(described.start_timeout.as_millis()).unwrap_or(u32::MAX);
    let limits = &described.limits;
    let manifest = Manifest {
        group: GroupId::of(&described.group),
        name: described.name,
        version: described.version,
        minimum: described.minimum,
        arguments: described.arguments,
        limits: Limits {
            memory: limits.memory,
            cpu_permille: limits.cpu_percent.saturating_mul(10),
            storage: limits.storage,
            processes: limits.processes,
            network: limits.network,
        },
        start_timeout_ms,
        files: list(&arguments.folder)?,
    };
    manifest.check().map_err(|error| Failure::from(error).about(file))?;
    let name = || format!("{}-{}.agent", manifest.name, manifest.version).into();
    let out = arguments.out.clone().unwrap_or_else(name);
    let failed = |error: io::Error| Failure::file("write", &out, &error);
    let made = Temporary::create(&out, PUBLIC).map_err(failed)?;
    let mut writer = BufWriter::new(made.file().map_err(failed)?);
    pack(&arguments.folder, &manifest, &operator, &mut writer)?;
    writer.flush().and_then(|()| writer.get_ref().sync_all()).map_err(failed)?;
    made.replace(&out).and_then(|()| sync_folder_of(&out)).map_err(failed)?;
    let text = format!(
        "version {} of {}, {} with {}: {}",
        manifest.version,
        manifest.name,
        count(manifest.files.len() as u64, "file"),
        bytes(manifest.content_size()),
        out.display()
    );
    report(text, || json!({ "file": out.display().to_string(), "agent": described_as(&manifest) }))
}

/// Returns a manifest as JSON.
fn described_as(manifest: &Manifest) -> Value {
    let limits = &manifest.limits;
    json!({
        "group": hex::encode(manifest.group.0),
        "name": manifest.name,
        "version": manifest.version,
        "minimum": manifest.minimum,
        "arguments": manifest.arguments,
        "start_timeout_ms": manifest.start_timeout_ms,
        "limits": {
            "memory": limits.memory,
            "cpu_permille": limits.cpu_permille,
            "storage": limits.storage,
            "processes": limits.processes,
            "network": limits.network,
        },
        "files": manifest.files.iter().map(|file| json!({
            "path": file.path,
            "executable": file.is_executable,
            "size": file.size,
            "sha256": hex::encode(file.digest),
        })).collect::<Vec<_>>(),
    })
}

/// Verifies a whole package of any group.
fn verify(path: &Path, group: GroupId, operator: &Path) -> Result<(), Failure> {
    let trust = Trust { group, operator: files::public_key(operator)? };
    let read = || {
        let file = File::open(path).map_err(|error| PackageError::Io(path.to_owned(), error))?;
        let mut package = Package::open(file, path, &trust)?;
        while package.next_file().is_some() {
            package.content(&mut io::sink())?;
        }
        package.finish()
    };
    read().map_err(|error| Failure::from(error).about(path))
}

fn show(arguments: &Show) -> Result<(), Failure> {
    let path = &arguments.package;
    let (manifest, _) =
        unverified_manifest(path).map_err(|error| Failure::from(error).about(path))?;
    if let Some(operator) = &arguments.operator {
        verify(path, manifest.group, operator)?;
    }
    let is_verified = arguments.operator.is_some();
    if is_json() {
        let mut shown = described_as(&manifest);
        shown["verified"] = json!(is_verified);
        return Stdout::lock().line(shown);
    }
    let limits = &manifest.limits;
    let mut lines = vec![
        format!("agent      {} version {}", manifest.name, manifest.version),
        format!("group      {}", hex::encode(manifest.group.0)),
        format!(
            "signature  {}",
            if is_verified { "verified" } else { "not verified: give --operator" }
        ),
        format!("program    {}", Plain(&manifest.arguments.join(" "))),
        format!(
            "limits     memory {}, processor {} %, storage {}, {}, {}",
            bytes(limits.memory),
            f64::from(limits.cpu_permille) / 10.0,
            bytes(limits.storage),
            count(limits.processes.into(), "process"),
            if limits.network { "network" } else { "no network" }
        ),
        format!("start      within {} s", f64::from(manifest.start_timeout_ms) / 1000.0),
    ];
    lines.extend(manifest.files.iter().map(|file| {
        let mode = if file.is_executable { "executable" } else { "file      " };
        format!("{mode} {} {} {}", hex::encode(file.digest), bytes(file.size), Plain(&file.path))
    }));
    let mut out = Stdout::lock();
    lines.into_iter().try_for_each(|line| out.line(line))
}

fn install(arguments: &Install) -> Result<(), Failure> {
    let store = store(&arguments.config)?;
    let path = &arguments.package;
    let file = File::open(path).map_err(|error| Failure::file("open", path, &error))?;
    let installed = store.install(file, path, true);
    let installed = installed.map_err(|error| Failure::from(error).about(path))?;
    let (name, version, is_new) = match &installed {
        Installed::Before { name, version } => (name, version, false),
        Installed::Now { name, version } => (name, version, true),
    };
    let state = if is_new { "is installed" } else { "was installed before" };
    report(
        format!("version {version} of {name} {state}"),
        || json!({ "agent": name, "version": version, "new": is_new }),
    )
}

fn all(arguments: &Config) -> Result<(), Failure> {
    let store = store(arguments)?;
    let (mut lines, mut values) = (Vec::new(), Vec::new());
    for name in store.names()? {
        let Some(record) = store.record(&name)? else { continue };
        let Some(version) = record.current else { continue };
        let status = Status::read(&store.folder().join(&name).join("status"));
        let mut line = format!("{name} version {version}");
        if !record.is_confirmed {
            line.push_str(", not come up yet");
        }
        if let Some((failed, reason)) = &record.failed {
            line.push_str(&format!(", version {failed} was given up: {reason}"));
        }
        if let Some(status) = &status {
            line.push_str(&format!(
                ", {}, {} recorded, {} refused, {}",
                json!(status.state).as_str().unwrap_or_default(),
                count(status.lines, "line"),
                status.lines_refused,
                count(status.exits, "exit")
            ));
            if let Some(reason) = status.stopped {
                line.push_str(&format!(", stopped: {}", reason.name()));
            }
            if let Some(error) = &status.error {
                line.push_str(&format!(", {}", Plain(error)));
            }
        }
        lines.push(line);
        values.push(json!({ "agent": name, "record": record, "status": status }));
    }
    let mut out = Stdout::lock();
    if is_json() {
        return values.into_iter().try_for_each(|value| out.line(value));
    }
    lines.into_iter().try_for_each(|line| out.line(line))
}

fn roll_back(arguments: &Named) -> Result<(), Failure> {
    let name = &arguments.name;
    let version = store(&arguments.config)?.roll_back(name)?;
    report(
        format!("{name} goes back to version {version}"),
        || json!({ "agent": name, "version": version }),
    )
}

fn remove(arguments: &Remove) -> Result<(), Failure> {
    let Remove { of: Named { name, config }, data } = arguments;
    store(config)?.remove(name, *data).map_err(|error: AgentError| Failure::from(error))?;
    report_lines([format!("{name} is removed")], || json!({ "agent": name }))
}
