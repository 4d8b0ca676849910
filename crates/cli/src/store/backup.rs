//! `moteseal store export` and `moteseal store import`: backups of a running cloud.

use std::path::PathBuf;

use clap::Args;
use moteseal_api::NamedError as _;
use moteseal_client::backup::{self, BackupError, Findings, Place};
use moteseal_net::replica::Replica;
use serde_json::{Value, json};

use crate::cloud::runtime;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::{bar, bytes, count, thousands};
use crate::push::Access;
use crate::terminal::{Stdout, is_json};

#[derive(Args, Debug)]
pub(crate) struct Export {
    /// The folder of the backup, which is created if it does not exist; or s3://BUCKET[/PREFIX]
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The cloud's address: https://.. or http://..
    #[arg(long, value_name = "URL", required_unless_present = "check")]
    from: Option<String>,
    /// Verify the backup offline instead of writing it
    #[arg(long, conflicts_with = "from")]
    check: bool,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    #[command(flatten)]
    access: Access,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    /// The folder of the backup, or s3://BUCKET[/PREFIX]
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// The cloud's address: https://.. or http://..
    #[arg(long, value_name = "URL")]
    to: String,
    #[command(flatten)]
    access: Access,
}

pub(crate) fn run_export(arguments: &Export) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let place = Place::open(&arguments.backup).map_err(|error| failure(&error))?;
    let Some(from) = &arguments.from else { return check(&place, &roster) };
    let replica = Replica::new(arguments.access.client(from)?);
    let progress = bar(0, "exporting");
    let exported =
        runtime()?.block_on(backup::export(&replica, &roster, &place, &mut |done, all| {
            progress.set_length(all);
            progress.set_position(done);
        }));
    progress.finish_and_clear();
    let exported = exported.map_err(|error| failure(&error))?;
    let mut out = Stdout::lock();
    if is_json() {
        out.line(json!({
            "backup": place.name(),
            "seals": exported.seals,
            "manifests": exported.manifests,
            "urgent": exported.events,
            "written": exported.written,
            "bytes": exported.bytes,
            "reused": exported.reused,
            "removed": exported.removed,
            "void": exported.void,
            "refused": list(&exported.refused),
        }))?;
    } else {
        print(&mut out, &exported.refused)?;
        if exported.void > 0 {
            out.line(format_args!(
                "{} left out: the roster has ended the key",
                count(exported.void, "seal")
            ))?;
        }
        out.line(format_args!(
            "{}: {}, {}, {}; {} written ({}), {} unchanged, {} removed",
            place.name(),
            count(exported.seals, "seal"),
            count(exported.manifests, "manifest"),
            count(exported.events, "urgent event"),
            count(exported.written, "object"),
            bytes(exported.bytes),
            thousands(exported.reused),
            thousands(exported.removed)
        ))?;
    }
    let remedy = "it is not in the backup; `moteseal store check` shows damage of the store";
    found(&exported.refused, Exit::Finding, remedy)
}

fn check(place: &Place, roster: &moteseal_verify::Roster) -> Result<(), Failure> {
    let progress = bar(0, "checking");
    let checked = runtime()?.block_on(backup::check(place, roster, &mut |done, all| {
        progress.set_length(all);
        progress.set_position(done);
    }));
    progress.finish_and_clear();
    let checked = checked.map_err(|error| failure(&error))?;
    let is_clean = checked.findings.count == 0;
    let mut out = Stdout::lock();
    if is_json() {
        out.line(json!({
            "backup": place.name(),
            "clean": is_clean,
            "seals": checked.seals,
            "manifests": checked.manifests,
            "urgent": checked.events,
            "bytes": checked.bytes,
            "findings": list(&checked.findings),
        }))?;
    } else {
        print(&mut out, &checked.findings)?;
        out.line(format_args!(
            "{}: {}; {}, {}, {}, {} verified",
            place.name(),
            if is_clean { "whole" } else { "DAMAGED" },
            count(checked.seals, "seal"),
            count(checked.manifests, "manifest"),
            count(checked.events, "urgent event"),
            bytes(checked.bytes)
        ))?;
    }
    found(&checked.findings, Exit::Finding, "remove damaged objects and export again")
}

pub(crate) fn run_import(arguments: &Import) -> Result<(), Failure> {
    let place = Place::open(&arguments.backup).map_err(|error| failure(&error))?;
    let replica = Replica::new(arguments.access.client(&arguments.to)?);
    let progress = bar(0, "importing");
    let imported = runtime()?.block_on(backup::import(&place, &replica, &mut |done, all| {
        progress.set_length(all);
        progress.set_position(done);
    }));
    progress.finish_and_clear();
    let imported = imported.map_err(|error| failure(&error))?;
    let (seals, manifests, events) = imported.stored;
    let mut out = Stdout::lock();
    if is_json() {
        out.line(json!({
            "cloud": arguments.to,
            "seals": seals,
            "manifests": manifests,
            "urgent": events,
            "known": imported.known,
            "skipped": imported.skipped,
            "refused": list(&imported.refused),
        }))?;
    } else {
        print(&mut out, &imported.refused)?;
        out.line(format_args!(
            "{}: {}, {}, {} stored; {} already there",
            arguments.to,
            count(seals, "seal"),
            count(manifests, "manifest"),
            count(events, "urgent event"),
            thousands(imported.known + imported.skipped)
        ))?;
    }
    found(&imported.refused, Exit::Refused, "nothing of this object was stored")
}

/// Prints findings, and the number of those that are not listed.
fn print(out: &mut Stdout, findings: &Findings) -> Result<(), Failure> {
    for finding in &findings.listed {
        out.line(finding)?;
    }
    let more = findings.count - findings.listed.len() as u64;
    if more > 0 {
        out.line(format_args!("and {} more", thousands(more)))?;
    }
    Ok(())
}

fn list(findings: &Findings) -> Value {
    let one = |finding: &backup::Finding| json!({ "name": finding.name, "what": finding.what });
    findings.listed.iter().map(one).collect()
}

/// Returns a failure for the first finding, if there is one.
fn found(findings: &Findings, exit: Exit, remedy: &str) -> Result<(), Failure> {
    let Some(first) = findings.listed.first() else { return Ok(()) };
    let number = thousands(findings.count);
    let message = format_args!("{number} refused or damaged, the first: {first}; {remedy}");
    Err(Failure::new(exit, message).with_name(&first.name))
}

fn failure(error: &BackupError) -> Failure {
    let exit = match error {
        BackupError::Damaged { .. } => Exit::Finding,
        error => error.kind().into(),
    };
    Failure::named(exit, error.named())
}
