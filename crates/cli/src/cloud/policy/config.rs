//! The policy: which processes and tokens a cloud has, and where its servers are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use moteseal_cloud::rights::{Binding, Rights, Scopes};
use moteseal_stream::{Duty, Settings};
use moteseal_table::{Address, Authorities, Rights as TableRights};
use serde::Deserialize;

use crate::config::load_as;
use crate::failure::Failure;
use crate::table;

/// The longest name of a process or token.
const MAX_NAME: usize = 32;

/// The contents of `policy.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    stream: Option<Stream>,
    table: Option<Table>,
    http: Option<Http>,
    /// The roles of each process.
    #[serde(default)]
    processes: BTreeMap<String, Vec<Role>>,
    /// The tokens of devices, gateways and analysts.
    #[serde(default)]
    tokens: BTreeMap<String, Token>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    Admin,
    Intake,
    Worker,
    Serve,
    /// Intake, worker and serve.
    All,
}

/// The NATS servers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) servers: Vec<String>,
    #[serde(default = "default_stream")]
    pub(super) name: String,
    /// The authorities that sign the servers' certificates.
    ca: Option<PathBuf>,
    /// The certificate and key of a server, as paths on its machine.
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
    /// Where a server stores the JWTs of accounts, as a path on its machine.
    #[serde(default = "default_accounts")]
    pub(super) accounts: String,
}

/// The keyspace of Cassandra.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The URL without a user.
    store: String,
    #[serde(default = "default_replicas")]
    replicas: u32,
    /// A superuser of Cassandra, as which `apply` creates the roles.
    superuser: Option<String>,
}

/// The clouds that serve HTTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Http {
    clouds: Vec<String>,
    ca: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    scope: String,
    /// Ids of devices.
    #[serde(default)]
    device: Vec<String>,
    /// The id of a group.
    group: Option<String>,
}

fn default_stream() -> String {
    "moteseal".to_owned()
}

fn default_accounts() -> String {
    "/var/lib/nats/accounts".to_owned()
}

const fn default_replicas() -> u32 {
    3
}

/// A process: what it does at NATS, and in Cassandra.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) duties: Vec<Duty>,
    pub(super) rights: TableRights,
}

/// The keyspace, and who creates its roles.
#[derive(Debug)]
pub(super) struct Keyspace {
    pub(super) address: Address,
    pub(super) replicas: u32,
    pub(super) superuser: Option<String>,
}

/// A policy that was checked.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) file: PathBuf,
    pub(super) stream: Option<Stream>,
    pub(super) keyspace: Option<Keyspace>,
    pub(super) clouds: Vec<String>,
    pub(super) cloud_ca: Option<PathBuf>,
    pub(super) processes: BTreeMap<String, Process>,
    pub(super) tokens: BTreeMap<String, Rights>,
}

/// Reads and checks a policy.
pub(super) fn load(file: &Path) -> Result<Policy, Failure> {
    let (contents, folder): (Contents, PathBuf) = load_as(file, "docs/scale.md")?;
    let wrong =
        |key: &str, what: std::fmt::Arguments<'_>| Failure::usage(what).about_key(file, key);
    if contents.stream.is_none() && contents.table.is_none() && contents.tokens.is_empty() {
        let what = "the policy has neither [stream], [table] nor [tokens]; add what the cloud uses";
        return Err(Failure::usage(what).about(file));
    }
    for (section, name) in (contents.processes.keys().map(|name| ("processes", name)))
        .chain(contents.tokens.keys().map(|name| ("tokens", name)))
    {
        if !is_name(name) {
            let what = format_args!(
                "a name has 1 to {MAX_NAME} of the characters a-z, 0-9, - and _, and starts with a letter"
            );
            return Err(wrong(&format!("{section}.{name}"), what));
        }
    }
    let mut stream = contents.stream;
    if let Some(stream) = &mut stream {
        if stream.certificate.is_some() != stream.key.is_some() {
            return Err(wrong("stream.key", format_args!("set certificate and key, or neither")));
        }
        stream.ca = stream.ca.take().map(|ca| folder.join(ca));
    }
    let processes = contents.processes.into_iter().map(|(name, roles)| {
        let process = process(&roles);
        process.map(|process| (name.clone(), process)).ok_or_else(|| {
            let what = "name at least one of the roles admin, intake, worker, serve and all";
            wrong(&format!("processes.{name}"), format_args!("{what}"))
        })
    });
    let processes = processes.collect::<Result<BTreeMap<_, _>, _>>()?;
    if processes.is_empty() && (stream.is_some() || contents.table.is_some()) {
        return Err(wrong("processes", format_args!("name the processes, with their roles")));
    }
    let tokens = contents.tokens.into_iter().map(|(name, token)| {
        let rights = rights(&token).ok_or_else(|| {
            let what = "scope is read, write or \"read,write\"; device is a list of ids and group an \
                        id (sixteen hexadecimal digits), one of them, and only with write";
            wrong(&format!("tokens.{name}"), format_args!("{what}"))
        })?;
        Ok((name, rights))
    });
    let tokens = tokens.collect::<Result<_, Failure>>()?;
    let keyspace = contents.table.map(|table| keyspace(table, file, &folder)).transpose()?;
    let (clouds, ca) = contents.http.map_or_else(Default::default, |http| (http.clouds, http.ca));
    let cloud_ca = ca.map(|ca| folder.join(ca));
    let file = file.to_owned();
    Ok(Policy { file, stream, keyspace, clouds, cloud_ca, processes, tokens })
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_'))
}

fn process(roles: &[Role]) -> Option<Process> {
    let mut duties = BTreeSet::new();
    for role in roles {
        match role {
            Role::Admin => drop(duties.insert(Duty::Admin)),
            Role::Intake => drop(duties.insert(Duty::Intake)),
            Role::Worker => drop(duties.insert(Duty::Worker)),
            Role::Serve => drop(duties.insert(Duty::Serve)),
            Role::All => duties.extend([Duty::Intake, Duty::Worker, Duty::Serve]),
        }
    }
    // The rights of several roles are those of the one with the most rights.
    let rights = duties.iter().map(|duty| match duty {
        Duty::Admin => TableRights::Create,
        Duty::Worker => TableRights::Write,
        Duty::Intake | Duty::Serve => TableRights::Read,
    });
    let rights = rights.max()?;
    Some(Process { duties: duties.into_iter().collect(), rights })
}

fn rights(token: &Token) -> Option<Rights> {
    let mut words: Vec<String> = Vec::new();
    if !token.device.is_empty() {
        words.push(format!("device={}", token.device.join(",")));
    }
    words.extend(token.group.as_ref().map(|group| format!("group={group}")));
    let binding = Binding::parse(words.iter().map(String::as_str))?;
    Rights::new(Scopes::parse(&token.scope)?, binding)
}

fn keyspace(table: Table, file: &Path, folder: &Path) -> Result<Keyspace, Failure> {
    let wrong = |what: &str| Failure::usage(what).about_key(file, "table.store");
    let address = table::address(Path::new(&table.store));
    let address = address.map_err(|failure| failure.about_key(file, "table.store"))?;
    let Some(mut address) = address else {
        return Err(wrong(
            "this is not the URL of a keyspace; write cassandra://host:port/keyspace",
        ));
    };
    if address.user.is_some() {
        return Err(wrong("leave out the user; each process has a role of its own"));
    }
    if let Some(Authorities::File(ca)) = &mut address.authorities {
        *ca = folder.join(&*ca);
    }
    if !(1..=9).contains(&table.replicas) {
        let what = "1 to 9 replicas are possible";
        return Err(Failure::usage(what).about_key(file, "table.replicas"));
    }
    Ok(Keyspace { address, replicas: table.replicas, superuser: table.superuser })
}

impl Stream {
    /// Returns the settings of a connection with these credentials.
    pub(super) fn settings(&self, credentials: Option<PathBuf>, inbox: &str) -> Settings {
        let settings = Settings::new(self.servers.clone(), moteseal_stream::Role::Serve);
        Settings {
            name: self.name.clone(),
            credentials,
            ca: self.ca.clone(),
            inbox: inbox.to_owned(),
            ..settings
        }
    }
}
