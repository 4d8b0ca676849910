//! `moteseal cloud policy check`: tries at the running servers who can do what, and compares it with the policy.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use moteseal_api::{CBOR_SEQ, COSE, paths};
use moteseal_cloud::rights::{Binding, Rights, Scope};
use moteseal_net::{Client, Credential, NetError, Options, Retry, Token};
use moteseal_stream::{CONNECT, Duty, accepts_plain_text};
use moteseal_table::{LOGIN, check_revocation};
use serde_json::json;

use super::config::Policy;
use super::folder::Folder;
use crate::cloud::runtime;
use crate::failure::{Exit, Failure};
use crate::table;
use crate::terminal::{Stdout, diagnostic, is_json};

/// The number of columns of one table.
const COLUMNS: usize = 6;
/// A client without credentials.
const NOBODY: &str = "(nobody)";

/// An attempt and its result.
struct Attempt {
    /// The server, as a heading.
    at: String,
    who: String,
    action: String,
    expected: bool,
    /// `None` if it could not be tried.
    found: Option<bool>,
    /// Why it could not be tried, or what differs.
    note: Option<String>,
}

impl Attempt {
    fn new(
        (at, who): (&str, &str),
        action: impl Into<String>,
        expected: bool,
        found: Result<bool, String>,
    ) -> Self {
        let (found, note) = match found {
            Ok(found) => (Some(found), None),
            Err(note) => (None, Some(note)),
        };
        let (at, who) = (at.to_owned(), who.to_owned());
        Self { at, who, action: action.into(), expected, found, note }
    }

    fn differs(&self) -> bool {
        self.found.is_some_and(|found| found != self.expected)
    }
}

pub(super) fn run(policy: &Policy, from: &Path) -> Result<(), Failure> {
    let folder = Folder::open(from)?;
    let mut done = Vec::new();
    stream(policy, &folder, &mut done)?;
    table(policy, &folder, &mut done)?;
    http(policy, &folder, &mut done)?;
    print(&done)?;
    let differing: Vec<&Attempt> = done.iter().filter(|attempt| attempt.differs()).collect();
    let named = |attempt: &Attempt| {
        let Attempt { at, who, action, expected, note, .. } = attempt;
        let can = if *expected { "cannot" } else { "can" };
        let note = note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
        format!("{who} {can} {action} at {at}{note}")
    };
    if let Some(first) = differing.first() {
        // `apply` does not reach the clouds.
        let (at_clouds, others): (Vec<&Attempt>, Vec<&Attempt>) =
            differing.iter().partition(|attempt| policy.clouds.contains(&attempt.at));
        let mut remedies = Vec::new();
        if !others.is_empty() {
            remedies.push(
                "run `moteseal cloud policy apply`, or change what is wrong at the server"
                    .to_owned(),
            );
        }
        if let Some(Attempt { at, .. }) = at_clouds.first() {
            let file = folder.path("tokens");
            remedies.push(format!("give the file {} to the cloud {at} (--tokens)", file.display()));
        }
        let what = format_args!(
            "{} of {} attempts differ from the policy, the first: {}; {}",
            differing.len(),
            done.len(),
            named(first),
            remedies.join(", and ")
        );
        return Err(Failure::new(Exit::Finding, what).with_name("PolicyDiffers"));
    }
    if let Some(first) = done.iter().find(|attempt| attempt.found.is_none()) {
        let Attempt { at, who, action, note, .. } = first;
        let what = format_args!(
            "{} of {} attempts could not be made, the first: {who} {action} at {at}: {}",
            done.iter().filter(|attempt| attempt.found.is_none()).count(),
            done.len(),
            note.as_deref().unwrap_or_default()
        );
        return Err(Failure::new(Exit::Incomplete, what).with_name("PolicyUnchecked"));
    }
    diagnostic(format_args!("{} attempts: everything is as the policy states", done.len()));
    Ok(())
}

/// Tries what each process, each revoked one and nobody can do at the NATS servers.
fn stream(policy: &Policy, folder: &Folder, done: &mut Vec<Attempt>) -> Result<(), Failure> {
    let Some(stream) = &policy.stream else { return Ok(()) };
    let at = format!("stream {}", stream.name);
    let runtime = runtime()?;
    let mut users: Vec<(String, Option<PathBuf>, &[Duty])> = Vec::new();
    for (name, process) in &policy.processes {
        let file = folder.credentials(name);
        if !file.is_file() {
            return Err(folder.incomplete(&format!("processes/{name}/stream.creds")));
        }
        users.push((name.clone(), Some(file), &process.duties));
    }
    for name in folder.names("revoked")? {
        let file = folder.path(&format!("revoked/{name}/stream.creds"));
        if file.is_file() {
            users.push((format!("revoked {name}"), Some(file), &[]));
        }
    }
    users.push((NOBODY.to_owned(), None, &[]));
    for (who, credentials, duties) in users {
        let inbox = duties.first().map_or(Duty::Admin.inbox(), |duty| duty.inbox());
        let settings = stream.settings(credentials, inbox);
        let attempts = runtime.block_on(moteseal_stream::attempts(settings, duties))?;
        done.extend(attempts.into_iter().map(|attempt| {
            Attempt::new((&at, &who), attempt.action, attempt.expected, attempt.found)
        }));
    }
    let needs_tls = |server: &&String| {
        let host = server.split_once("://").map_or(server.as_str(), |(_, host)| host);
        server.starts_with("tls://") || !is_this_machine(host)
    };
    for server in stream.servers.iter().filter(needs_tls) {
        let found = runtime.block_on(accepts_plain_text(server));
        done.push(Attempt::new((&at, server), "connect without TLS", false, found));
    }
    Ok(())
}

/// Returns whether a host, with a port or without, is on this machine.
fn is_this_machine(host: &str) -> bool {
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let host = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((host, _)) => host,
        None => host.split_once(':').map_or(host, |(host, _)| host),
    };
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Tries what each process, each revoked one and nobody can do in Cassandra.
fn table(policy: &Policy, folder: &Folder, done: &mut Vec<Attempt>) -> Result<(), Failure> {
    let Some(keyspace) = &policy.keyspace else { return Ok(()) };
    let at = format!("keyspace {}", keyspace.address.keyspace);
    if keyspace.address.authorities.is_none() {
        for host in keyspace.address.hosts.iter().filter(|host| !is_this_machine(host)) {
            let attempt =
                Attempt::new((&at, host), "receive passwords without TLS", false, Ok(true));
            let note = Some("add ?ca=FILE to table.store".to_owned());
            done.push(Attempt { note, ..attempt });
        }
    } else {
        let runtime = runtime()?;
        for host in &keyspace.address.hosts {
            let found = runtime.block_on(moteseal_table::accepts_plain_text(host));
            done.push(Attempt::new((&at, host), "connect without TLS", false, found));
        }
    }
    let mut users = Vec::new();
    for (name, process) in &policy.processes {
        let login = folder.login(&format!("processes/{name}"))?;
        users.push((name.clone(), Some(login), Some(process.rights)));
    }
    for name in folder.names("revoked")? {
        let file = format!("revoked/{name}");
        if folder.path(&file).join("cassandra.password").is_file() {
            users.push((format!("revoked {name}"), Some(folder.login(&file)?), None));
        }
    }
    users.push((NOBODY.to_owned(), None, None));
    for (who, login, rights) in users {
        let mut address = keyspace.address.clone();
        (address.user, address.password) = login.unzip();
        let attempts = moteseal_table::attempts(&address, rights);
        let attempts = attempts.map_err(|error| table::failure(&error))?;
        let can_read = attempts.iter().all(|attempt| attempt.found.is_ok());
        done.extend(attempts.into_iter().map(|attempt| {
            Attempt::new((&at, &who), attempt.action, attempt.expected, attempt.found)
        }));
        // Any of the processes may read the settings of the nodes.
        if rights.is_some() && can_read && !done.iter().any(|done| done.who == "(nodes)") {
            let checked = check_revocation(&address);
            let (found, note) = match checked {
                Ok(()) => (Some(true), None),
                Err(error) if error.name() == "TableSlowRevocation" => {
                    (Some(false), Some(error.to_string()))
                }
                Err(error) => (None, Some(error.to_string())),
            };
            let attempt =
                Attempt::new((&at, "(nodes)"), "apply revocations within 5 s", true, Ok(true));
            done.push(Attempt { found, note, ..attempt });
        }
    }
    Ok(())
}

/// Tries what each token, each revoked one and a client without a token can do at the clouds.
fn http(policy: &Policy, folder: &Folder, done: &mut Vec<Attempt>) -> Result<(), Failure> {
    if policy.tokens.is_empty() {
        return Ok(());
    }
    let mut tokens: Vec<(String, Option<PathBuf>, Option<&Rights>)> = Vec::new();
    for (name, rights) in &policy.tokens {
        let file = folder.token(name);
        if !file.is_file() {
            return Err(folder.incomplete(&format!("clients/{name}.token")));
        }
        tokens.push((name.clone(), Some(file), Some(rights)));
    }
    for name in folder.names("revoked")? {
        if let Some(token) = name.strip_suffix(".token") {
            let file = folder.path(&format!("revoked/{name}"));
            tokens.push((format!("revoked {token}"), Some(file), None));
        }
    }
    tokens.push((NOBODY.to_owned(), None, None));
    let runtime = runtime()?;
    for cloud in &policy.clouds {
        for (who, token, rights) in &tokens {
            let token = token.as_deref().map(Token::read).transpose()?;
            let options = Options {
                ca: policy.cloud_ca.clone(),
                credential: token.map(Credential::Token),
                retry: Retry { attempts: 1, ..Retry::default() },
                ..Options::default()
            };
            let client = Client::new(cloud, &options)?;
            let may = |scope| rights.is_some_and(|rights| rights.scopes.has(scope));
            let is_bound = |rights: &Rights| matches!(rights.binding, Binding::Devices(_));
            let manifests = may(Scope::Write) && !rights.is_some_and(is_bound);
            // No upload is stored, because none of these is one.
            let nothing = || Bytes::from_static(&[0xff]);
            let tried = runtime.block_on(async {
                let read = client.get(&format!("{}?limit=1", paths::DEVICES)).await;
                let upload = client.put(paths::BUNDLES, CBOR_SEQ, nothing()).await;
                let of_group = client.put(paths::MANIFESTS, COSE, nothing()).await;
                // A cloud that accepts no uploads does not check for which devices they would be.
                let is_unknown = matches!(&of_group, Err(NetError::Refused { status: 404, .. }));
                let mut tried = vec![
                    ("read", may(Scope::Read), permitted(read)),
                    ("upload seals", may(Scope::Write), permitted(upload)),
                ];
                if !is_unknown {
                    tried.push(("upload manifests", manifests, permitted(of_group)));
                }
                tried
            });
            done.extend(tried.into_iter().map(|(action, expected, found)| {
                Attempt::new((cloud, who), action, expected, found)
            }));
        }
    }
    Ok(())
}

/// Returns whether a cloud permits a request. It checks the credential before anything else.
fn permitted<T>(answer: Result<T, NetError>) -> Result<bool, String> {
    match answer {
        Ok(_) => Ok(true),
        Err(NetError::Refused { status: 401 | 403, .. }) => Ok(false),
        Err(NetError::Refused { status: 400..=499, .. }) => Ok(true),
        Err(error) => Err(error.to_string()),
    }
}

fn print(done: &[Attempt]) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    if is_json() {
        for attempt in done {
            let Attempt { at, who, action, expected, found, note } = attempt;
            out.line(json!({ "at": at, "who": who, "action": action, "expected": expected,
                "found": found, "note": note }))?;
        }
        return Ok(());
    }
    let mut servers: Vec<&str> = Vec::new();
    for attempt in done {
        if !servers.contains(&attempt.at.as_str()) {
            servers.push(&attempt.at);
        }
    }
    for at in servers {
        let of_server: Vec<&Attempt> = done.iter().filter(|attempt| attempt.at == at).collect();
        let mut who: Vec<&str> = Vec::new();
        for attempt in &of_server {
            if !who.contains(&attempt.who.as_str()) {
                who.push(&attempt.who);
            }
        }
        for columns in who.chunks(COLUMNS) {
            for line in matrix(at, &of_server, columns) {
                out.line(line)?;
            }
        }
    }
    out.line("yes, no: as the policy states. YES, NO: the policy states the opposite. ?: could not be tried")?;
    for attempt in done {
        if let Some(note) = &attempt.note {
            let Attempt { at, who, action, .. } = attempt;
            if action == CONNECT || action == LOGIN || attempt.differs() {
                out.line(format_args!("{at}, {who}, {action}: {note}"))?;
            }
        }
    }
    Ok(())
}

/// Returns the lines of a table with a row for each action and a column for each of these users.
fn matrix(at: &str, attempts: &[&Attempt], columns: &[&str]) -> Vec<String> {
    let mut rows: Vec<(&str, BTreeMap<&str, &'static str>)> = Vec::new();
    for attempt in attempts.iter().filter(|attempt| columns.contains(&attempt.who.as_str())) {
        let cell = match (attempt.found, attempt.differs()) {
            (None, _) => "?",
            (Some(true), false) => "yes",
            (Some(false), false) => "no",
            (Some(true), true) => "YES",
            (Some(false), true) => "NO",
        };
        let action = attempt.action.as_str();
        match rows.iter_mut().find(|(row, _)| *row == action) {
            Some((_, cells)) => drop(cells.insert(&attempt.who, cell)),
            None => rows.push((action, BTreeMap::from([(attempt.who.as_str(), cell)]))),
        }
    }
    let first = rows.iter().map(|(action, _)| action.len()).chain([at.len()]).max().unwrap_or(0);
    let line = |head: &str, cell: &dyn Fn(&str) -> String| {
        let mut line = format!("{head:<first$}");
        for who in columns {
            let _ = write!(line, "  {:<width$}", cell(who), width = who.len().max(3));
        }
        line.trim_end().to_owned()
    };
    let head = line(at, &|who| who.to_owned());
    let rows = rows.iter().map(|(action, cells)| {
        line(action, &|who| cells.get(who).copied().unwrap_or_default().to_owned())
    });
    std::iter::once(head).chain(rows).chain([String::new()]).collect()
}

#[cfg(test)]
mod tests {
    use super::is_this_machine;

    #[test]
    fn hosts_of_this_machine_are_recognised() {
        for host in ["localhost", "localhost:4222", "127.0.0.1:9042", "a@127.0.0.1", "[::1]:4222"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in ["10.0.0.1:4222", "localhost.example", "[2001:db8::1]:4222", "nats1"] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
