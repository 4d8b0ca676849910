//! `moteseal cloud policy apply`: passes the account to the running NATS servers and the roles to Cassandra.

use std::path::Path;

use moteseal_stream::{Duty, push_account};
use moteseal_table::apply_roles;
use serde_json::json;

use super::config::Policy;
use super::folder::Folder;
use crate::cloud::runtime;
use crate::failure::Failure;
use crate::table;
use crate::terminal::report_lines;

pub(super) fn run(policy: &Policy, from: &Path) -> Result<(), Failure> {
    let folder = Folder::open(from)?;
    let revocations = folder.revocations()?;
    let (mut lines, mut servers, mut roles) = (Vec::new(), 0, 0);
    if let Some(stream) = &policy.stream {
        let jwt = folder.must_read("keys/account.jwt")?;
        let credentials = folder.path("keys/system.creds");
        let settings = stream.settings(Some(credentials), Duty::Admin.inbox());
        runtime()?.block_on(push_account(settings, jwt.trim()))?;
        servers = stream.servers.len();
        let revoked = revocations.users.len();
        lines.push(format!("NATS: {servers} servers have the account; {revoked} keys are revoked"));
    }
    if let Some(keyspace) = &policy.keyspace {
        let statements = folder.statements(policy, &revocations.roles)?;
        if let Some(superuser) = &keyspace.superuser {
            let mut address = keyspace.address.clone();
            address.user = Some(superuser.clone());
            apply_roles(&address, &statements).map_err(|error| table::failure(&error))?;
            roles = policy.processes.len();
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
    report_lines(lines, || json!({ "servers": servers, "roles": roles }))
}
