//! The folder of a policy: the secrets of the accounts, processes and tokens, and the files for the servers.
//!
//! | file | for |
//! |---|---|
//! | `keys/` | the keys of NATS's operator and accounts; nobody else needs them |
//! | `processes/NAME/` | a process: `stream.creds`, `cassandra.user` and `cassandra.password` |
//! | `clients/NAME.token` | a client of the clouds |
//! | `nats.conf` | each NATS server, which includes it |
//! | `roles.cql` | Cassandra, run by a superuser |
//! | `tokens` | each cloud, `--tokens` |
//! | `revocations.json` | what was revoked |
//! | `revoked/` | revoked secrets, with which `check` tries that they are refused |
//!
//! The files themselves state what was issued. A revocation is recorded before anything else is changed, so
//! that a command that was interrupted can be repeated.
//!
//! A folder that was restored from a backup lacks what was revoked since. `apply` therefore adds the
//! revocations that the servers have (`merge.rs`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use moteseal_files::{PRIVATE, PUBLIC};
use moteseal_stream::{Authority, Credentials, MAX_REVOKED, Permissions, jwt_issued_at};
use moteseal_table::{Password, Rights, Role, cql, role_statements};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::config::{Policy, Process, Stream};
use crate::failure::Failure;

/// What to do if a file that cannot be made again is missing or damaged.
const RESTORE: &str =
    "restore the folder from its newest backup, and follow docs/scale.md, Restore the folder";
/// The end of the name of a role that creates tables.
const CREATOR: &str = ".admin";

/// What `init` did. The names are those of files in the folder, and of processes and tokens.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) created: Vec<String>,
    pub(super) changed: Vec<String>,
    pub(super) revoked: Vec<String>,
}

impl Done {
    /// Returns what to do next, if anything.
    pub(super) fn next_step(&self) -> Option<&'static str> {
        let changed = self.created.len() + self.changed.len() + self.revoked.len();
        if changed == 0 {
            return Some("the folder is up to date");
        }
        (!self.revoked.is_empty() || !self.changed.is_empty()).then_some(
            "give the changed files to the processes and servers, and run `moteseal cloud policy apply`",
        )
    }
}

/// What was revoked.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Revocations {
    /// Users of NATS by their public key. Their JWTs of this Unix time and before are not valid.
    pub(super) users: BTreeMap<String, u64>,
    /// Roles of Cassandra.
    pub(super) roles: Vec<String>,
}

impl Revocations {
    /// Revokes the JWTs of a user up to this time. Returns whether that is new.
    pub(super) fn add(&mut self, user: String, until: u64) -> bool {
        let known = self.users.get(&user).is_some_and(|known| *known >= until);
        if !known {
            self.users.insert(user, until);
        }
        !known
    }
}

/// A folder that `init` has written, or is writing.
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    /// Returns the folder, if `init` has written it.
    pub(super) fn open(root: &Path) -> Result<Self, Failure> {
        let folder = Self { root: root.to_owned() };
        if folder.path("revocations.json").is_file() {
            return Ok(folder);
        }
        let what = "this is not the folder of a policy; write it with `moteseal cloud policy init`";
        Err(Failure::usage(what).about(root))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn credentials(&self, process: &str) -> PathBuf {
        self.path(&format!("processes/{process}/stream.creds"))
    }

    pub(super) fn token(&self, name: &str) -> PathBuf {
        self.path(&format!("clients/{name}.token"))
    }

    /// Reads a file of the folder, if it exists.
    pub(super) fn read(&self, name: &str) -> Result<Option<Zeroizing<String>>, Failure> {
        let path = self.path(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(Zeroizing::new(text))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::file("read", &path, &error)),
        }
    }

    /// Reads a file of the folder that `init` must have written.
    pub(super) fn must_read(&self, name: &str) -> Result<Zeroizing<String>, Failure> {
        self.read(name)?.ok_or_else(|| self.incomplete(name))
    }

    pub(super) fn incomplete(&self, name: &str) -> Failure {
        let what = "the file is missing; complete the folder with `moteseal cloud policy init`";
        Failure::usage(what).with_name("PolicyIncomplete").about(&self.path(name))
    }

    /// Returns the role and password of a process or of a revoked one in Cassandra. `folder` is relative.
    pub(super) fn login(&self, folder: &str) -> Result<(String, Password), Failure> {
        let user = self.must_read(&format!("{folder}/cassandra.user"))?;
        let password = self.must_read(&format!("{folder}/cassandra.password"))?;
        Ok((user.trim().to_owned(), Password(password.trim().to_owned())))
    }

    /// Returns the statements that create the roles of all processes and drop the revoked ones. A process
    /// whose credentials are revoked gets no role: a restored folder has its earlier password.
    pub(super) fn statements(
        &self,
        policy: &Policy,
        revocations: &Revocations,
    ) -> Result<Vec<Zeroizing<String>>, Failure> {
        let Some(keyspace) = &policy.keyspace else { return Ok(Vec::new()) };
        let revoked = self.revoked(policy, revocations)?;
        let processes = policy.processes.iter().filter(|(name, _)| !revoked.contains(name));
        let roles = processes.map(|(name, process)| {
            let (name, password) = self.login(&format!("processes/{name}"))?;
            Ok(Role { name, password, rights: process.rights })
        });
        let roles = roles.collect::<Result<Vec<_>, Failure>>()?;
        let (keyspace, replicas) = (&keyspace.address.keyspace, keyspace.replicas);
        Ok(role_statements(keyspace, replicas, &roles, &revocations.roles))
    }

    /// Returns the processes of the policy whose credentials in the folder are revoked.
    pub(super) fn revoked<'p>(
        &self,
        policy: &'p Policy,
        revocations: &Revocations,
    ) -> Result<Vec<&'p String>, Failure> {
        let mut revoked = Vec::new();
        for name in policy.processes.keys() {
            if self.is_revoked(name, revocations)? {
                revoked.push(name);
            }
        }
        Ok(revoked)
    }

    fn is_revoked(&self, process: &str, revocations: &Revocations) -> Result<bool, Failure> {
        let user = self.process_credentials(process)?.is_some_and(|user| {
            let until = revocations.users.get(&user.user());
            until.is_some_and(|until| *until >= user.issued_at())
        });
        let role = self.read(&format!("processes/{process}/cassandra.user"))?;
        Ok(user || role.is_some_and(|role| revocations.roles.iter().any(|of| of == role.trim())))
    }

    fn process_credentials(&self, process: &str) -> Result<Option<Credentials>, Failure> {
        let name = format!("processes/{process}/stream.creds");
        let Some(text) = self.read(&name)? else { return Ok(None) };
        Credentials::parse(&text).map(Some).ok_or_else(|| {
            let what = "the file has no JWT and seed of a user; restore it from a backup, so that the \
                        user can be revoked";
            Failure::usage(what).with_name("PolicyDamaged").about(&self.path(&name))
        })
    }

    /// Locks the folder until the file is dropped. Each command that writes it does so.
    pub(super) fn lock(&self) -> Result<File, Failure> {
        let lock = self.path("lock");
        let locked = moteseal_files::private().create(true).write(true).truncate(false).open(&lock);
        let locked = locked.and_then(|file| file.lock().map(|()| file));
        locked.map_err(|error| Failure::file("lock", &lock, &error))
    }

    pub(super) fn revocations(&self) -> Result<Revocations, Failure> {
        let text = self.must_read("revocations.json")?;
        serde_json::from_str(&text).map_err(|_| {
            let what = format_args!("the file is damaged, so revocations would be lost; {RESTORE}");
            Failure::usage(what).with_name("PolicyDamaged").about(&self.path("revocations.json"))
        })
    }

    /// Returns the names in a folder of the folder, sorted.
    pub(super) fn names(&self, folder: &str) -> Result<Vec<String>, Failure> {
        let path = self.path(folder);
        let read = || -> std::io::Result<Vec<String>> {
            let names = fs::read_dir(&path)?.map(|entry| Ok(entry?.file_name()));
            let names = names.collect::<std::io::Result<Vec<_>>>()?;
            Ok(names.into_iter().filter_map(|name| name.into_string().ok()).collect())
        };
        let mut names = read().map_err(|error| Failure::file("read", &path, &error))?;
        names.sort();
        Ok(names)
    }
}

/// Writes what is missing, and revokes what the policy does not name any more or `renew` names.
pub(super) fn init(policy: &Policy, out: &Path, renew: &[String]) -> Result<Done, Failure> {
    let is_known =
        |name: &&String| policy.processes.contains_key(*name) || policy.tokens.contains_key(*name);
    if let Some(unknown) = renew.iter().find(|name| !is_known(name)) {
        let what =
            format_args!("--renew {unknown}: the policy names no process or token like this");
        return Err(Failure::usage(what).about(&policy.file));
    }
    for folder in ["keys", "processes", "clients", "revoked"] {
        let path = out.join(folder);
        moteseal_files::create_folder(&path)
            .map_err(|error| Failure::file("create", &path, &error))?;
    }
    let folder = Folder { root: out.to_owned() };
    let _locked = folder.lock()?;
    let mut writer = Writer::open(&folder)?;
    writer.revoke(policy, renew)?;
    if let Some(stream) = &policy.stream {
        writer.stream(policy, stream)?;
    }
    if policy.keyspace.is_some() {
        writer.table(policy)?;
    }
    writer.tokens(policy)?;
    Ok(writer.done)
}

/// Writes the folder, while it is locked.
pub(super) struct Writer<'f> {
    pub(super) folder: &'f Folder,
    pub(super) revocations: Revocations,
    done: Done,
    now: u64,
}

impl<'f> Writer<'f> {
    pub(super) fn open(folder: &'f Folder) -> Result<Self, Failure> {
        let has_secrets =
            !folder.names("keys")?.is_empty() || !folder.names("processes")?.is_empty();
        if !folder.path("revocations.json").exists() && has_secrets {
            let what = format_args!(
                "revocations.json is missing, so revocations would be lost; {RESTORE}, or use a new folder"
            );
            return Err(Failure::usage(what).with_name("PolicyDamaged").about(&folder.root));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut writer =
            Self { folder, revocations: Revocations::default(), done: Done::default(), now };
        if folder.path("revocations.json").exists() {
            writer.revocations = folder.revocations()?;
        } else {
            writer.save()?;
        }
        Ok(writer)
    }

    /// Records the revocations.
    pub(super) fn save(&self) -> Result<(), Failure> {
        let path = self.folder.path("revocations.json");
        if self.revocations.roles.len() > MAX_REVOKED {
            let what = format_args!(
                "more than {MAX_REVOKED} roles of Cassandra are revoked; write the policy into a new folder"
            );
            return Err(Failure::usage(what).about(&path));
        }
        let text = serde_json::to_string_pretty(&self.revocations).map_err(Failure::internal)?;
        replace(&path, text.as_bytes(), PUBLIC)
    }

    fn create(&mut self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.path(name);
        if let Some(folder) = path.parent() {
            moteseal_files::create_folder(folder)
                .map_err(|error| Failure::file("create", folder, &error))?;
        }
        moteseal_files::create(&path, text.as_bytes(), PRIVATE)
            .map_err(|error| Failure::file("create", &path, &error))?;
        self.done.created.push(name.to_owned());
        Ok(())
    }

    /// Writes a file that follows from others, unless it is up to date.
    fn update(&mut self, name: &str, text: &str, mode: u32) -> Result<(), Failure> {
        let found = self.folder.read(name)?;
        if found.as_ref().is_some_and(|found| ***found == *text) {
            return Ok(());
        }
        replace(&self.folder.path(name), text.as_bytes(), mode)?;
        let list = if found.is_some() { &mut self.done.changed } else { &mut self.done.created };
        list.push(name.to_owned());
        Ok(())
    }

    /// Revokes the processes and tokens that the policy does not name or that are renewed, and those whose
    /// revocation was interrupted.
    fn revoke(&mut self, policy: &Policy, renew: &[String]) -> Result<(), Failure> {
        for name in self.folder.names("processes")? {
            let is_kept = policy.processes.contains_key(&name) && !renew.contains(&name);
            if !is_kept || self.folder.is_revoked(&name, &self.revocations)? {
                self.revoke_process(&name)?;
            }
        }
        for file in self.folder.names("clients")? {
            let Some(name) = file.strip_suffix(".token") else { continue };
            if !policy.tokens.contains_key(name) || renew.iter().any(|renewed| renewed == name) {
                self.move_to_revoked(&format!("clients/{file}"), name, ".token")?;
            }
        }
        Ok(())
    }

    fn revoke_process(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(user) = self.folder.process_credentials(name)? {
            self.revocations.add(user.user(), self.now.max(user.issued_at()));
        }
        if let Some(role) = self.folder.read(&format!("processes/{name}/cassandra.user"))?
            && !self.revocations.roles.iter().any(|of| of == role.trim())
        {
            self.revocations.roles.push(role.trim().to_owned());
        }
        self.save()?;
        self.move_to_revoked(&format!("processes/{name}"), name, "")
    }

    fn move_to_revoked(&mut self, from: &str, name: &str, suffix: &str) -> Result<(), Failure> {
        self.rename(from, &self.free_name(name, suffix))?;
        self.done.revoked.push(name.to_owned());
        Ok(())
    }

    /// Returns a name among the revoked secrets that is not used.
    fn free_name(&self, name: &str, suffix: &str) -> String {
        let names = (1..).map(|number: u64| format!("revoked/{name}-{number}{suffix}"));
        names.into_iter().find(|to| !self.folder.path(to).exists()).unwrap_or_default()
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Failure> {
        let (from, to) = (self.folder.path(from), self.folder.path(to));
        let folder = to.parent().unwrap_or(&self.folder.root);
        let renamed = moteseal_files::create_folder(folder)
            .and_then(|()| fs::rename(&from, &to))
            .and_then(|()| moteseal_files::sync_folder(folder));
        renamed.map_err(|error| Failure::file("move", &from, &error))
    }

    /// Returns the keys of NATS, which are made if there are none.
    pub(super) fn authority(&mut self) -> Result<Authority, Failure> {
        const NAMES: [&str; 3] = ["keys/operator.seed", "keys/account.seed", "keys/system.seed"];
        let found =
            [self.folder.read(NAMES[0])?, self.folder.read(NAMES[1])?, self.folder.read(NAMES[2])?];
        if let [Some(operator), Some(account), Some(system)] = &found {
            let authority = Authority::from_seeds(operator, account, system);
            return authority.map_err(|error| {
                let what = format_args!("{error}; {RESTORE}");
                Failure::usage(what).with_name("PolicyDamaged").about(&self.folder.path("keys"))
            });
        }
        // An interrupted first run has issued nothing.
        if self.folder.path("nats.conf").exists() {
            let missing = NAMES.iter().zip(&found).find(|(_, found)| found.is_none());
            let what = format_args!("a key is missing, so nothing can be revoked; {RESTORE}");
            let name = missing.map_or("keys", |(name, _)| name);
            let damaged = Failure::usage(what).with_name("PolicyDamaged");
            return Err(damaged.about(&self.folder.path(name)));
        }
        let authority = Authority::generate();
        for (name, seed) in NAMES.iter().zip(authority.seeds()?) {
            replace(&self.folder.path(name), format!("{}\n", *seed).as_bytes(), PRIVATE)?;
            self.done.created.push((*name).to_owned());
        }
        Ok(authority)
    }

    /// Writes the credentials of NATS and the lines for its servers.
    fn stream(&mut self, policy: &Policy, stream: &Stream) -> Result<(), Failure> {
        let authority = self.authority()?;
        for (name, process) in &policy.processes {
            self.user(&authority, stream, name, process)?;
        }
        self.system_user(&authority)?;
        self.servers(&authority, stream, None).map(drop)
    }

    /// Writes the credentials with which `apply` works at the servers, unless there are some with the right
    /// permissions.
    pub(super) fn system_user(&mut self, authority: &Authority) -> Result<(), Failure> {
        const NAME: &str = "keys/system.creds";
        let found = self.folder.read(NAME)?.and_then(|text| Credentials::parse(&text));
        if found.is_some_and(|found| authority.is_system_user(&found)) {
            return Ok(());
        }
        let user = authority.system_user(self.now)?;
        self.update(NAME, &user.text(), PRIVATE)
    }

    /// Writes the JWT of the account and the lines for the servers, and returns the JWT. It states the
    /// revocations of the folder, and is issued later than `after`.
    pub(super) fn servers(
        &mut self,
        authority: &Authority,
        stream: &Stream,
        after: Option<u64>,
    ) -> Result<String, Failure> {
        let revoked = self.revocations.users.clone();
        let account = match self.folder.read("keys/account.jwt")? {
            Some(jwt)
                if authority.is_account_jwt(&jwt, &stream.name, &revoked)
                    && after.is_none_or(|after| jwt_issued_at(&jwt) > after) =>
            {
                jwt.trim().to_owned()
            }
            // A server accepts each JWT that is passed to it. Servers of a cluster later give each other
            // the one with the latest time.
            earlier => {
                let earlier = earlier.map(|jwt| jwt_issued_at(&jwt));
                let after = earlier.max(after).map_or(0, |after| after.saturating_add(1));
                let at = self.now.max(after);
                let jwt = authority.account_jwt(&stream.name, &revoked, at)?;
                self.update("keys/account.jwt", &format!("{jwt}\n"), PUBLIC)?;
                jwt
            }
        };
        let mut lasting = |name: &str, make: &dyn Fn(u64) -> Result<String, _>| {
            if let Some(jwt) = self.folder.read(name)? {
                return Ok(jwt.trim().to_owned());
            }
            let jwt: String = make(self.now)?;
            self.update(name, &format!("{jwt}\n"), PUBLIC)?;
            Ok::<_, Failure>(jwt)
        };
        let operator = lasting("keys/operator.jwt", &|at| authority.operator_jwt(at))?;
        let system = lasting("keys/system.jwt", &|at| authority.system_jwt(at))?;
        let mut lines = authority.server_lines(&operator, &account, &system, &stream.accounts);
        if let (Some(certificate), Some(key)) = (&stream.certificate, &stream.key) {
            let (certificate, key) = (serde_json::json!(certificate), serde_json::json!(key));
            lines += &format!("tls {{ cert_file: {certificate}, key_file: {key} }}\n");
        }
        self.update("nats.conf", &lines, PUBLIC)?;
        Ok(account)
    }

    /// Writes the credentials of a process, or a new JWT for its key if its roles have changed.
    fn user(
        &mut self,
        authority: &Authority,
        stream: &Stream,
        name: &str,
        process: &Process,
    ) -> Result<(), Failure> {
        let file = format!("processes/{name}/stream.creds");
        let permissions = Permissions::of(&stream.name, &process.duties);
        let Some(found) = self.folder.process_credentials(name)? else {
            let user = authority.user(name, &permissions, None, self.now)?;
            return self.create(&file, &user.text());
        };
        if authority.is_user(&found, name, &permissions) {
            return Ok(());
        }
        let at = self.now.max(found.issued_at() + 1);
        self.revocations.add(found.user(), at - 1);
        self.save()?;
        let user = authority.user(name, &permissions, Some(&found), at)?;
        self.update(&file, &user.text(), PRIVATE)
    }

    /// Writes the roles and passwords of Cassandra, and the statements that create them.
    fn table(&mut self, policy: &Policy) -> Result<(), Failure> {
        let keyspace = policy.keyspace.as_ref().map(|of| &*of.address.keyspace).unwrap_or_default();
        for (name, process) in &policy.processes {
            let (user, password) = (
                format!("processes/{name}/cassandra.user"),
                format!("processes/{name}/cassandra.password"),
            );
            // Cassandra gives the creator of tables all permissions on them, which a change of the role's
            // permissions would not revoke. A creator is therefore another role.
            let creates = process.rights == Rights::Create;
            let first = format!("{keyspace}_{name}{}", if creates { CREATOR } else { "" });
            let found = self.folder.read(&user)?;
            let has_password = self.folder.read(&password)?.is_some();
            if let Some(role) = found.as_ref().map(|role| role.trim())
                && !(has_password && is_named(role, &first))
            {
                self.revocations.roles.push(role.to_owned());
                self.save()?;
                let folder = self.free_name(name, "");
                self.rename(&user, &format!("{folder}/cassandra.user"))?;
                if has_password {
                    self.rename(&password, &format!("{folder}/cassandra.password"))?;
                }
                self.done.revoked.push(name.clone());
            }
            if self.folder.read(&password)?.is_none() {
                self.create(&password, &format!("{}\n", *secret()?))?;
            }
            if self.folder.read(&user)?.is_none() {
                // A revoked role is dropped, so its name is not used again. A folder that was restored from a
                // backup does not know the names that were used since, so the number is the time.
                let others = (self.now..).map(|number| format!("{first}.{number}"));
                let free = std::iter::once(first.clone())
                    .chain(others)
                    .find(|role| !self.revocations.roles.contains(role));
                self.create(&user, &format!("{}\n", free.unwrap_or(first)))?;
            }
        }
        self.roles(policy)
    }

    /// Writes the statements that create the roles.
    pub(super) fn roles(&mut self, policy: &Policy) -> Result<(), Failure> {
        let statements = self.folder.statements(policy, &self.revocations)?;
        self.update("roles.cql", &cql(&statements), PRIVATE)
    }

    /// Writes the tokens of the clients, and the file of tokens of the clouds.
    fn tokens(&mut self, policy: &Policy) -> Result<(), Failure> {
        if policy.tokens.is_empty() && self.folder.read("tokens")?.is_none() {
            return Ok(());
        }
        if policy.tokens.is_empty() {
            let what =
                "name at least one token: a cloud with an empty file of tokens serves nobody";
            return Err(Failure::usage(what).about_key(&policy.file, "tokens"));
        }
        let mut text = Zeroizing::new(String::new());
        for (name, rights) in &policy.tokens {
            let file = format!("clients/{name}.token");
            if self.folder.read(&file)?.is_none() {
                self.create(&file, &format!("{}\n", *secret()?))?;
            }
            let token = self.folder.must_read(&file)?;
            let (scopes, binding) = (&rights.scopes, &rights.binding);
            *text += &format!("{scopes} {binding} {} # {name}\n", token.trim());
        }
        self.update("tokens", &text, PRIVATE)
    }
}

/// Returns whether a role has this name, or this name and a number.
fn is_named(role: &str, first: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    role.strip_prefix(first)
        .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number))
}

/// Returns 160 random bits in hexadecimal digits.
fn secret() -> Result<Zeroizing<String>, Failure> {
    let mut bytes = Zeroizing::new([0; 20]);
    getrandom::fill(&mut *bytes).map_err(Failure::internal)?;
    Ok(Zeroizing::new(hex::encode(*bytes)))
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    moteseal_files::remove_abandoned(path);
    moteseal_files::replace(path, bytes, mode).map_err(|error| Failure::file("write", path, &error))
}
