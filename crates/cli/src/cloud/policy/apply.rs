//! `moteseal cloud policy apply`: passes the account to the running NATS servers and the roles to Cassandra,
//! after it has added what the servers have revoked and the folder does not know. A server that is down does not keep
//! the others from it: it is named at the end.

use std::path::Path;

use moteseal_stream::{Duty, StreamError, push_account};
use moteseal_table::{Address, apply_roles, role_statements};
use serde_json::json;

use super::config::{Keyspace, Policy, Stream};
use super::folder::Folder;
use super::merge::{Merged, merge};
use crate::cloud::runtime;
use crate::failure::Failure;
use crate::table;
use crate::terminal::report_lines;

pub(super) fn run(policy: &Policy, from: &Path) -> Result<(), Failure> {
    let folder = Folder::open(from)?;
    let _locked = folder.lock()?;
    // Without the password, nothing is changed.
    let superuser = superuser(policy)?;
    let (mut lines, mut servers, mut added) = (Vec::new(), 0, 0);
    let (mut failure, mut is_known) = (None, true);
    if let Some(stream) = &policy.stream {
        let merged = merge(policy, stream, &folder)?;
        (added, is_known) = (merged.added, merged.jwt.is_ok());
        if added > 0 {
            lines.push(format!(
                "NATS: the servers have {added} revocations that this folder lacked, as after a restore from \
                 a backup; they stay in force (give the new nats.conf to the servers)"
            ));
        }
        (servers, failure) = pass(stream, &folder, &merged)?;
        let revoked = folder.revocations()?.users.len();
        lines.push(format!("NATS: {servers} servers have the account; {revoked} keys are revoked"));
    }
    let revocations = folder.revocations()?;
    let revoked = folder.revoked(policy, &revocations)?;
    let mut roles = 0;
    if let Some(keyspace) = &policy.keyspace {
        let statements = if is_known {
            folder.statements(policy, &revocations)?
        } else {
            // A role of this folder may be one that was dropped since a backup of it.
            let name = &keyspace.address.keyspace;
            role_statements(name, keyspace.replicas, &[], &revocations.roles)
        };
        let file = folder.path("roles.cql");
        let file = file.display();
        let dropped = revocations.roles.len();
        match superuser.map(|address| apply_roles(&address, &statements)) {
            Some(Ok(())) if is_known => {
                roles = policy.processes.len() - revoked.len();
                lines.push(format!("Cassandra: {roles} roles are created, {dropped} are dropped"));
            }
            Some(Ok(())) => lines.push(format!(
                "Cassandra: {dropped} roles are dropped; none is created before a NATS server has stated what is revoked"
            )),
            Some(Err(error)) => {
                let of_table = table::failure(&error);
                failure = Some(match failure {
                    None => of_table,
                    Some(failure) => failure.with(format_args!(". Cassandra: {of_table}")),
                });
            }
            None if is_known => lines.push(format!(
                "Cassandra: run {file} as a superuser, or name one in the policy (table.superuser)"
            )),
            None => lines.push(format!(
                "Cassandra: run {file} as a superuser when `apply` has reached a NATS server, which states what is revoked"
            )),
        }
    }
    lines.extend(revoked.iter().map(|name| {
        format!(
            "{name}: its credentials in this folder are revoked; make new ones with `moteseal cloud policy \
             init {} --out {} --renew {name}`, then run `apply` again",
            policy.file.display(),
            from.display()
        )
    }));
    report_lines(
        lines,
        || json!({ "servers": servers, "roles": roles, "added": added, "revoked": revoked }),
    )?;
    failure.map_or(Ok(()), Err)
}

/// Returns the address of the superuser who creates the roles, with the password.
fn superuser(policy: &Policy) -> Result<Option<Address>, Failure> {
    let Some(Keyspace { address, superuser: Some(user), .. }) = &policy.keyspace else {
        return Ok(None);
    };
    let address = Address { user: Some(user.clone()), ..address.clone() };
    address.with_login().map(Some).map_err(|error| table::failure(&error))
}

/// Passes the account to the servers. Returns the number of those that have it now, and what failed at the others.
fn pass(
    stream: &Stream,
    folder: &Folder,
    merged: &Merged,
) -> Result<(usize, Option<Failure>), Failure> {
    let all = stream.servers.len();
    let jwt = match &merged.jwt {
        Ok(jwt) => jwt,
        Err(error) => return Ok((0, Some(unasked(stream, error)))),
    };
    let settings = stream.settings(Some(folder.path("keys/system.creds")), Duty::Admin.inbox());
    Ok(match runtime()?.block_on(push_account(settings, jwt)) {
        Ok(()) => (all, None),
        Err(error) => (all - error.missing.len(), Some(error.into())),
    })
}

/// No server returned the account that it has.
fn unasked(stream: &Stream, error: &StreamError) -> Failure {
    let what = format_args!(
        "0 of {} NATS servers have the account, none returned what it has revoked ({}); run it again when they are up",
        stream.servers.len(),
        error.to_string().replace("; ", ": ")
    );
    Failure::new(error.kind().into(), what).with_name(error.name())
}
