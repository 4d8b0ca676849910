//! `moteseal cloud policy apply`: passes the account to the running NATS servers and the roles to Cassandra,
//! after it has added what the servers have revoked and the folder does not know.

use std::path::Path;

use moteseal_stream::{Duty, push_account};
use moteseal_table::apply_roles;
use serde_json::json;

use super::config::Policy;
use super::folder::Folder;
use super::merge::merge;
use crate::cloud::runtime;
use crate::failure::Failure;
use crate::table;
use crate::terminal::report_lines;

pub(super) fn run(policy: &Policy, from: &Path) -> Result<(), Failure> {
    let folder = Folder::open(from)?;
    let _locked = folder.lock()?;
    let (mut lines, mut servers, mut added) = (Vec::new(), 0, 0);
    if let Some(stream) = &policy.stream {
        let merged = merge(policy, stream, &folder)?;
        added = merged.added;
        if added > 0 {
            lines.push(format!(
                "NATS: the servers have {added} revocations that this folder lacked, as after a restore from \
                 a backup; they stay in force (give the new nats.conf to the servers)"
            ));
        }
        let credentials = folder.path("keys/system.creds");
        let settings = stream.settings(Some(credentials), Duty::Admin.inbox());
        runtime()?.block_on(push_account(settings, &merged.jwt))?;
        servers = stream.servers.len();
        let revoked = folder.revocations()?.users.len();
        lines.push(format!("NATS: {servers} servers have the account; {revoked} keys are revoked"));
    }
    let revocations = folder.revocations()?;
    let revoked = folder.revoked(policy, &revocations)?;
    let mut roles = 0;
    if let Some(keyspace) = &policy.keyspace {
        let statements = folder.statements(policy, &revocations)?;
        if let Some(superuser) = &keyspace.superuser {
            let mut address = keyspace.address.clone();
            address.user = Some(superuser.clone());
            apply_roles(&address, &statements).map_err(|error| table::failure(&error))?;
            roles = policy.processes.len() - revoked.len();
            let dropped = revocations.roles.len();
            lines.push(format!("Cassandra: {roles} roles are created, {dropped} are dropped"));
        } else {
            let file = folder.path("roles.cql");
            lines.push(format!(
                "Cassandra: run {} as a superuser, or name one in the policy (table.superuser)",
                file.display()
            ));
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
    )
}
