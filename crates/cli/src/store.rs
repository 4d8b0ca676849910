//! `moteseal store`: checks a cloud's store, creates the tables of one in Cassandra, discards a journal
//! that cannot be restored, and exports and imports backups.

mod backup;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use moteseal_store::check::{Finding, check, check_store};
use moteseal_store::{DiscardedJournal, discard_journal};
use moteseal_table::Access;
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::cloud::store_failure;
use crate::device_name::with_name;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::{bar, bytes, count, thousands};
use crate::table;
use crate::terminal::{Stdout, is_json};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read a whole store, verify every seal again, and report all damage.
    #[command(after_help = "Example:\n  \
                            moteseal store check epochs.redb --roster roster.cbor --operator keys/op.pub.pem\n\n\
                            The file is not modified. Stop the cloud first; a keyspace of Cassandra (cassandra://..) can be in\n\
                            use.\n\
                            Exit codes: 0 no damage, 5 something is damaged.\n\
                            Devices can push damaged seals again into a new store.")]
    Check(Check),
    /// Create a keyspace of Cassandra and its tables, or migrate them to this version.
    #[command(after_help = "Example:\n  \
                            moteseal store init --store 'cassandra://admin@10.0.0.1:9042/moteseal?ca=ca.pem'\n\n\
                            MOTESEAL_CASSANDRA_PASSWORD has the password, or MOTESEAL_CASSANDRA_PASSWORD_FILE names its file.\n\
                            It can be repeated. docs/scale.md describes the settings that Cassandra needs.")]
    Init(Init),
    /// Let a store start without its journal, if the journal is lost or damaged.
    #[command(after_help = "Example:\n  \
                            moteseal store discard-journal epochs.redb\n\n\
                            Stop the cloud first. The uploads that were acknowledged last are lost if only the journal had\n\
                            them: push the devices' data again. An existing journal is renamed, not deleted, and not checked.")]
    DiscardJournal(DiscardJournal),
    /// Write what a running cloud stores into a folder, verified, as a backup.
    #[command(after_help = "Examples:\n  \
                            moteseal store export backup/ --from https://cloud.example --roster roster.cbor \\\n      \
                            --operator keys/op.pub.pem\n  \
                            moteseal store export backup/ --check --roster roster.cbor --operator keys/op.pub.pem\n\n\
                            A further export writes only what has changed. If it is interrupted, run it again. Exit codes:\n\
                            0 everything is in the backup, 5 something does not verify, 6 the cloud does not respond.")]
    Export(backup::Export),
    /// Upload a backup to a running cloud, which verifies it.
    #[command(after_help = "Example:\n  \
                            moteseal store import backup/ --to https://cloud.example --token token\n\n\
                            What the cloud has is skipped. If the command is interrupted, run it again. Exit codes: 0 the\n\
                            cloud has everything, 3 it refused something, 6 it does not respond.")]
    Import(backup::Import),
}

#[derive(Args, Debug)]
pub(crate) struct DiscardJournal {
    /// The store's file
    store: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// The URL of the keyspace: cassandra://[user@]host:port[,host:port]/keyspace[?ca=FILE]
    #[arg(long, value_name = "URL")]
    store: PathBuf,
    /// The number of replicas in the data centre, if the keyspace is created
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    replicas: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The store's file, or the URL of a keyspace of Cassandra
    store: PathBuf,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(arguments) => run_check(&arguments),
        Command::Init(arguments) => run_init(&arguments),
        Command::DiscardJournal(arguments) => run_discard_journal(&arguments),
        Command::Export(arguments) => backup::run_export(&arguments),
        Command::Import(arguments) => backup::run_import(&arguments),
    }
}

/// Checks that a path is not a directory.
fn check_is_file(store: &Path) -> Result<(), Failure> {
    if store.is_dir() {
        let store = store.display();
        return Err(Failure::usage(format_args!("{store} is a directory; name a store's file")));
    }
    Ok(())
}

fn run_discard_journal(arguments: &DiscardJournal) -> Result<(), Failure> {
    check_is_file(&arguments.store)?;
    let discarded = quietly(|| discard_journal(&arguments.store));
    let DiscardedJournal { was_needed, kept } = discarded.map_err(|error| store_failure(&error))?;
    let mut out = Stdout::lock();
    if is_json() {
        return out.line(json!({
            "store": arguments.store.display().to_string(),
            "needed": was_needed,
            "kept": kept.map(|kept| kept.display().to_string()),
        }));
    }
    let store = arguments.store.display();
    let kept = match kept {
        Some(kept) => format!("its journal is now {}", kept.display()),
        None if was_needed => "its journal does not exist".to_owned(),
        None => return out.line(format_args!("{store} needs no journal; nothing was changed")),
    };
    out.line(format_args!(
        "{store} will open without its journal ({kept}); push the devices' data again"
    ))
}

/// Suppresses the panic messages of the database library, which panics on damage. The check catches
/// the panics and reports the damage itself.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = work();
    std::panic::set_hook(hook);
    result
}

fn run_init(arguments: &Init) -> Result<(), Failure> {
    let Some(address) = table::address(&arguments.store)? else {
        let store = arguments.store.display();
        return Err(Failure::usage(format_args!(
            "--store {store} is not a URL (cassandra://..); a store's file is created by `moteseal cloud run`"
        )));
    };
    let done = moteseal_table::init(&address, arguments.replicas)
        .map_err(|error| table::failure(&error))?;
    let mut out = Stdout::lock();
    if is_json() {
        return out.line(json!({
            "store": address.to_string(),
            "created": done.created,
            "before": done.before,
            "version": done.version,
        }));
    }
    let version = done.version;
    match done.before {
        None if done.created => out.line(format_args!("{address} was created (version {version})")),
        None => out.line(format_args!("{address}: the tables were created (version {version})")),
        Some(before) if before < version => {
            out.line(format_args!("{address} was migrated from version {before} to {version}"))
        }
        Some(_) => out.line(format_args!("{address} has version {version}; nothing was changed")),
    }
}

fn run_check(arguments: &Check) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let progress = bar(0, "checking");
    let report = if let Some(address) = table::address(&arguments.store)? {
        let store = table::open(&address, Access::Read)?;
        check_store(&store, &roster, &mut |now| progress.set_position(now.bytes))
            .map_err(|error| table::unreadable(&arguments.store, &error))
    } else {
        check_is_file(&arguments.store)?;
        let report = quietly(|| {
            check(&arguments.store, &roster, &mut |now| {
                progress.set_length(now.file_bytes);
                progress.set_position(now.bytes);
            })
        });
        report.map_err(|error| store_failure(&error))
    };
    progress.finish_and_clear();
    let report = report?;

    let mut out = Stdout::lock();
    if is_json() {
        let list = |findings: &[Finding]| {
            findings.iter().map(|finding| object(&roster, finding)).collect::<Vec<_>>()
        };
        let value = json!({
            "clean": report.is_clean(),
            "seals": report.seals,
            "void": report.void,
            "outdated": report.outdated,
            "urgent": report.urgent,
            "events": report.events,
            "bytes": report.bytes,
            "damage": list(&report.damage),
            "gaps": list(&report.gaps),
        });
        out.line(value)?;
    } else {
        for finding in report.damage.iter().chain(&report.gaps) {
            out.line(named(&roster, finding))?;
        }
        if report.void > 0 {
            out.line(format_args!(
                "{} void: the roster has ended the key; not served, signatures not checked",
                count(report.void, "seal")
            ))?;
        }
        if report.outdated > 0 {
            out.line(format_args!(
                "{} outdated (seals or manifests): a later version of the roster changed their epochs; not served, signatures not checked",
                thousands(report.outdated)
            ))?;
        }
        if report.urgent > 0 {
            out.line(format_args!("{} checked", count(report.urgent, "urgent event")))?;
        }
        let verdict = if report.is_clean() { "whole" } else { "DAMAGED" };
        out.line(format_args!(
            "{}: {verdict}; {}, {}, {} verified",
            arguments.store.display(),
            count(report.seals, "seal"),
            count(report.events, "reading"),
            bytes(report.bytes)
        ))?;
    }
    if report.is_clean() {
        return Ok(());
    }
    let first = report.damage.first().map_or_else(String::new, |finding| named(&roster, finding));
    // The text of a finding about the journal already says what to do.
    let is_journal = report.damage.first().is_some_and(|first| first.name.contains("Journal"));
    let remedy = if is_journal {
        ""
    } else {
        "; restore the file, or push the devices' bundles into a new one"
    };
    Err(Failure::new(
        Exit::Finding,
        format_args!(
            "{}: {} damaged, the first: {first}{remedy}",
            arguments.store.display(),
            report.damage.len()
        ),
    ))
}

/// Describes a finding, with the device's name instead of its id.
fn named(roster: &Roster, finding: &Finding) -> String {
    finding.device.map_or_else(
        || finding.to_string(),
        |device| with_name(roster, device, &finding.to_string()),
    )
}

fn object(roster: &Roster, finding: &Finding) -> Value {
    json!({
        "name": finding.name,
        "device": finding.device.map(|device| device.to_string()),
        "device_name": finding.device.and_then(|device| roster.name(device)),
        "first_index": finding.indices.map(|(first, _)| first.0),
        "last_index": finding.indices.map(|(_, last)| last.0),
        "what": finding.what,
    })
}
