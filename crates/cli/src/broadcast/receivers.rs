//! `moteseal broadcast receivers`: the receivers that acknowledge a sender's broadcasts
//! (spec/broadcast.md, section 7.1).

use std::fs::File;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use moteseal_api::NamedError as _;
use moteseal_broadcast::SenderCertificate;
use moteseal_broadcast::receipt::{MAX_KEY_FILE, ReceiverKey};
use moteseal_gateway::broadcast::Receivers;
use serde_json::json;
use zeroize::Zeroizing;

use crate::failure::{Exit, Failure};
use crate::files;
use crate::progress::count;
use crate::terminal::{Plain, Stdout, is_json, report};

/// List the receivers that acknowledge a sender's broadcasts, and make their keys.
///
/// The list is secret. `moteseal broadcast send` reads it next to the sender's key, for example
/// keys/ops.receivers next to keys/ops.key.pem.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
                        moteseal broadcast receivers init --cert ops.cert --list keys/ops.receivers\n  \
                        moteseal broadcast receivers add valve-1 valve-2 --list keys/ops.receivers --out keys\n  \
                        moteseal broadcast receivers group north valve-1 valve-2 --list keys/ops.receivers\n  \
                        moteseal broadcast receivers list --list keys/ops.receivers\n\n\
                        Copy each NAME.receiver.key to its receiver: moteseal broadcast watch --receiver-key FILE.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a new, empty list with a new secret
    Init {
        /// The sender's certificate
        #[arg(long, value_name = "FILE")]
        cert: PathBuf,
        /// The list to write
        #[arg(long, value_name = "FILE")]
        list: PathBuf,
    },
    /// Add receivers, and write their keys. Names are never used again
    Add {
        #[command(flatten)]
        names: Names,
        /// The folder for the files NAME.receiver.key
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Write the keys of receivers again
    Key {
        #[command(flatten)]
        names: Names,
        /// The folder for the files NAME.receiver.key
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Remove receivers: their receipts are no longer expected, and their keys are no longer valid
    Remove {
        #[command(flatten)]
        names: Names,
    },
    /// Set the members of a group, whose name `broadcast send --only` and --for accept
    Group {
        /// The name of the group
        #[arg(value_name = "GROUP")]
        group: String,
        /// The names of its members; without members, the group is deleted
        #[arg(value_name = "NAME")]
        members: Vec<String>,
        /// The list
        #[arg(long, value_name = "FILE")]
        list: PathBuf,
    },
    /// Print the receivers and the groups
    List {
        /// The list
        #[arg(long, value_name = "FILE")]
        list: PathBuf,
    },
}

/// The receivers that a command changes.
#[derive(Args, Debug)]
struct Names {
    /// The names of the receivers
    #[arg(value_name = "NAME", required_unless_present = "names_file")]
    names: Vec<String>,
    /// A file with one name in each line
    #[arg(long, value_name = "FILE", conflicts_with = "names")]
    names_file: Option<PathBuf>,
    /// The list
    #[arg(long, value_name = "FILE")]
    list: PathBuf,
}

impl Names {
    fn read(&self) -> Result<Vec<String>, Failure> {
        let Some(path) = &self.names_file else { return Ok(self.names.clone()) };
        let bytes = files::read(path)?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| Failure::usage("the names are not UTF-8").about(path))?;
        Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Init { cert, list } => init(cert, list),
        Command::Add { names, out } => add(names, out),
        Command::Key { names, out } => {
            let list = read(&names.list)?;
            let positions = list.positions(&names.read()?)?;
            write_keys(&list, &positions, out)
        }
        Command::Remove { names } => remove(names),
        Command::Group { group, members, list } => set_group(group, members, list),
        Command::List { list } => print(&read(list)?),
    }
}

/// Returns the path of a sender's list of receivers: `ops.receivers` next to `ops.key.pem`.
pub(super) fn list_path(key: &Path) -> PathBuf {
    let name = key.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    key.with_file_name(format!("{}.receivers", name.strip_suffix(".key.pem").unwrap_or(name)))
}

/// Reads a list of receivers.
pub(super) fn read(path: &Path) -> Result<Receivers, Failure> {
    let bytes = files::read(path)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let read = Receivers::parse(text);
    read.map_err(|error| Failure::named(Exit::Usage, error.named()).about(path))
}

/// Reads the key of a receiver.
pub(crate) fn key(path: &Path) -> Result<ReceiverKey, Failure> {
    let bytes = files::read(path)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default();
    let parsed = ReceiverKey::parse(text).map(|(key, _)| key);
    parsed.map_err(|error| Failure::named(Exit::Usage, error.named()).about(path))
}

fn init(cert: &Path, list: &Path) -> Result<(), Failure> {
    let claim = SenderCertificate::peek(&files::read(cert)?).map_err(|error| {
        Failure::named(Exit::Usage, error.named())
            .with("; `moteseal key certify` makes a sender's certificate")
            .about(cert)
    })?;
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *secret).map_err(|error| {
        Failure::new(Exit::Internal, format_args!("cannot get random bytes: {error}"))
    })?;
    let receivers = Receivers::new(claim.network, claim.sender, secret);
    files::create(list, receivers.to_text().as_bytes(), moteseal_files::PRIVATE)?;
    report(
        format_args!("list of receivers of {}: {}", claim.sender, list.display()),
        || json!({ "list": list.display().to_string(), "sender": claim.sender.to_string() }),
    )
}

fn add(names: &Names, out: &Path) -> Result<(), Failure> {
    let _lock = lock(&names.list)?;
    let mut list = read(&names.list)?;
    let mut positions = Vec::new();
    for name in names.read()? {
        files::check_absent(&key_path(out, &name))?;
        positions.push(list.add(&name)?.position());
    }
    // The positions are reserved before a key exists. If the command is killed in between,
    // `receivers key` writes the keys.
    replace(&names.list, &list)?;
    write_keys(&list, &positions, out)
}

fn remove(names: &Names) -> Result<(), Failure> {
    let _lock = lock(&names.list)?;
    let mut list = read(&names.list)?;
    let names_of = names.read()?;
    names_of.iter().try_for_each(|name| list.remove(name))?;
    replace(&names.list, &list)?;
    report(
        format_args!("removed {}", count(names_of.len() as u64, "receiver")),
        || json!({ "list": names.list.display().to_string(), "removed": names_of }),
    )
}

fn set_group(group: &str, members: &[String], path: &Path) -> Result<(), Failure> {
    let _lock = lock(path)?;
    let mut list = read(path)?;
    list.set_group(group, members)?;
    replace(path, &list)?;
    let count = list.groups().find(|(name, _)| *name == group).map_or(0, |(_, of)| of.len());
    report(
        format_args!("group {}: {}", Plain(group), self::count(count as u64, "receiver")),
        || json!({ "list": path.display().to_string(), "group": group, "members": count }),
    )
}

/// Waits until no other process changes the list.
fn lock(list: &Path) -> Result<File, Failure> {
    let mut name = list.as_os_str().to_owned();
    name.push(".lock");
    let path = PathBuf::from(name);
    let locked = moteseal_files::private()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| Failure::file("lock", &path, &error))
}

fn replace(path: &Path, list: &Receivers) -> Result<(), Failure> {
    moteseal_files::replace(path, list.to_text().as_bytes(), moteseal_files::PRIVATE)
        .map_err(|error| Failure::file("write", path, &error))
}

fn key_path(out: &Path, name: &str) -> PathBuf {
    out.join(format!("{name}.receiver.key"))
}

fn write_keys(list: &Receivers, positions: &[u32], out: &Path) -> Result<(), Failure> {
    let mut keys = Vec::with_capacity(positions.len());
    for position in positions {
        let name = list.label(*position);
        let Some(key) = list.key(*position) else { continue };
        let mut text = Zeroizing::new(String::with_capacity(MAX_KEY_FILE));
        // Writing to a string never fails.
        _ = key.write(name, &mut *text);
        keys.push((key_path(out, name), text));
    }
    keys.iter().try_for_each(|(path, _)| files::check_absent(path))?;
    files::create_folder(out)?;
    let contents: Vec<_> =
        keys.iter().map(|(path, text)| (path.clone(), text.as_bytes())).collect();
    files::create_many(&contents)?;
    let made = count(keys.len() as u64, "receiver's key");
    report(format_args!("{made} in {}", out.display()), || {
        let files: Vec<_> = positions
            .iter()
            .zip(&keys)
            .map(|(at, (path, _))| json!({ "name": list.label(*at), "position": at, "file": path.display().to_string() }))
            .collect();
        json!({ "folder": out.display().to_string(), "receivers": files })
    })
}

fn print(list: &Receivers) -> Result<(), Failure> {
    let mut out = Stdout::lock();
    for (position, entry) in (0_u32..).zip(list.entries()) {
        let (name, is_removed) = (&entry.name, entry.is_removed);
        if is_json() {
            out.line(json!({ "name": name, "position": position, "removed": is_removed }))?;
        } else {
            let removed = if is_removed { "  removed" } else { "" };
            out.line(format_args!("{position:>5}  {}{removed}", Plain(name)))?;
        }
    }
    for (group, members) in list.groups() {
        if is_json() {
            out.line(json!({ "group": group, "members": members }))?;
        } else {
            let members = members.join(", ");
            out.line(format_args!("group  {}: {}", Plain(group), Plain(&members)))?;
        }
    }
    Ok(())
}
