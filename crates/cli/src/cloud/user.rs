//! `moteseal cloud user`: the users of a cloud.
//!
//! The table of users is a file of its own. A cloud that runs with `--users` notices each change
//! before it serves the next request.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use moteseal_api::parse_id;
use moteseal_cloud::password::{Password, PasswordHash};
use moteseal_cloud::rights::{Binding, Rights, Scopes};
use moteseal_cloud::users::{User, Users};
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::roster::Directory as _;
use moteseal_service::{TlsError, certificate_key};
use serde_json::json;

use crate::failure::Failure;
use crate::files;
use crate::progress::count;
use crate::terminal::{Stdout, diagnostic, is_json, report};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a user who logs in with a password or with a client certificate.
    #[command(after_help = "Examples:\n  \
                            moteseal cloud user add gateway --users epochs.redb-users --scope write --generate\n  \
                            moteseal cloud user add analyst --users epochs.redb-users --scope read \\\n      \
                            --password-file analyst.password\n  \
                            moteseal cloud user add dev1 --users epochs.redb-users --scope read,write \\\n      \
                            --certificate dev1.pem --device dev1 --roster roster.cbor --operator keys/op.pub.pem\n\n\
                            --generate prints the password once, on stdout. The table has only its hash (Argon2id).\n\
                            A gateway needs the scope write, and push needs read,write.\n\
                            Run the command as the user that runs the cloud: only the owner may read the table.\n\
                            A cloud that runs with --users serves the new user at once.")]
    Add(Add),
    /// List the users of a table.
    #[command(after_help = "Example: moteseal cloud user list --users epochs.redb-users")]
    List(List),
    /// Revoke a user. A cloud that runs refuses the user's next request, also on open connections.
    #[command(after_help = "Example: moteseal cloud user revoke gateway --users epochs.redb-users")]
    Revoke(Revoke),
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("credential").required(true).multiple(true)
    .args(["password_file", "generate", "certificate"])))]
pub(crate) struct Add {
    /// The user's name
    name: String,
    /// The table of users; it is created if it does not exist
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
    /// What the user may do: read, write, or read,write
    #[arg(long, value_name = "SCOPES", value_parser = scopes)]
    scope: Scopes,
    /// The user may upload only this device's seals: a name of the roster or an id; may be repeated
    #[arg(long, value_name = "DEVICE", conflicts_with = "group")]
    device: Vec<String>,
    /// The user may upload only to clouds of this group: an id, or the name that the roster has
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// The roster, for names of devices and of the group
    #[arg(long, requires = "operator")]
    roster: Option<PathBuf>,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY", requires = "roster")]
    operator: Option<PathBuf>,
    /// A file with the user's password
    #[arg(long, value_name = "FILE", conflicts_with = "generate")]
    password_file: Option<PathBuf>,
    /// Generate a password and print it
    #[arg(long)]
    generate: bool,
    /// The user's client certificate (PEM); only its public key counts
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Replace a user of this name
    #[arg(long)]
    replace: bool,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// The table of users
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// The user's name
    name: String,
    /// The table of users
    #[arg(long, value_name = "FILE")]
    users: PathBuf,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Add(arguments) => add(arguments),
        Command::List(arguments) => list(arguments),
        Command::Revoke(arguments) => revoke(arguments),
    }
}

fn scopes(text: &str) -> Result<Scopes, String> {
    Scopes::parse(text).ok_or_else(|| "use read, write or read,write".to_owned())
}

fn add(arguments: &Add) -> Result<(), Failure> {
    let binding = binding(arguments)?;
    let rights = Rights::new(arguments.scope.clone(), binding).ok_or_else(|| {
        Failure::usage("--device and --group limit uploads; add write to --scope, or omit them")
    })?;
    let password = match &arguments.password_file {
        Some(path) => Some(Password::read(path)),
        None => arguments.generate.then(Password::generate),
    };
    let password = password.transpose()?;
    let hash = password.as_ref().map(PasswordHash::of).transpose();
    let certificate = arguments.certificate.as_deref().map(certificate_key).transpose();
    let user = User {
        rights,
        password: hash?,
        certificate: certificate.map_err(|error: TlsError| {
            Failure::new(error.kind().into(), &error).with_name(error.name())
        })?,
    };
    let text = user.to_string();
    let change = |users: &mut Users| users.add(&arguments.name, user, arguments.replace);
    Users::change(&arguments.users, true, change)?;
    diagnostic(format_args!("{}: added {} ({text})", arguments.users.display(), arguments.name));
    let generated = password.as_ref().filter(|_| arguments.generate);
    let generated = generated.map(|password| String::from_utf8_lossy(password.bytes()));
    if is_json() {
        let password = generated.as_deref();
        return Stdout::lock().line(json!({ "user": arguments.name, "password": password }));
    }
    generated.map_or(Ok(()), |password| Stdout::lock().line(password))
}

/// Returns the binding to the devices or the group that the arguments name.
fn binding(arguments: &Add) -> Result<Binding, Failure> {
    let roster = arguments.roster.as_deref().zip(arguments.operator.as_deref());
    let roster = roster.map(|(roster, operator)| files::roster(roster, operator)).transpose()?;
    if let Some(group) = &arguments.group {
        return match (parse_id(group.as_bytes()), &roster) {
            (Some(id), _) => Ok(Binding::Group(GroupId(id))),
            (None, Some(roster)) if roster.group_name() == group => {
                Ok(Binding::Group(roster.group()))
            }
            (None, Some(roster)) => Err(Failure::usage(format_args!(
                "the roster is of the group {}, not of {group}",
                roster.group_name()
            ))),
            (None, None) => Err(Failure::usage(format_args!(
                "{group} is not the id of a group (sixteen hexadecimal digits); add --roster and \
                 --operator to use its name"
            ))),
        };
    }
    if arguments.device.is_empty() {
        return Ok(Binding::Any);
    }
    let device = |name: &String| match (parse_id(name.as_bytes()), &roster, &arguments.roster) {
        (_, Some(roster), Some(path)) if roster.id(name).is_some() => {
            files::device(roster, path, name)
        }
        (Some(id), ..) => Ok(DeviceId(id)),
        (None, Some(roster), Some(path)) => files::device(roster, path, name),
        (None, ..) => Err(Failure::usage(format_args!(
            "{name} is not the id of a device (sixteen hexadecimal digits); add --roster and \
             --operator to use its name"
        ))),
    };
    let devices = arguments.device.iter().map(device).collect::<Result<_, _>>()?;
    Ok(Binding::Devices(devices))
}

fn list(arguments: &List) -> Result<(), Failure> {
    let users = Users::read(&arguments.users)?;
    let mut out = Stdout::lock();
    let mut number = 0;
    for (name, user) in users.iter() {
        number += 1;
        if is_json() {
            let (devices, group) = match &user.rights.binding {
                Binding::Any => (None, None),
                Binding::Group(group) => (None, Some(group.to_string())),
                Binding::Devices(devices) => {
                    (Some(devices.iter().map(DeviceId::to_string).collect::<Vec<_>>()), None)
                }
            };
            out.line(json!({
                "user": name,
                "scope": user.rights.scopes.to_string(),
                "devices": devices,
                "group": group,
                "password": user.password.is_some(),
                "certificate": user.certificate.map(|key| key.to_string()),
            }))?;
        } else {
            out.line(format_args!("{name:<16} {user}"))?;
        }
    }
    diagnostic(format_args!("{}: {}", arguments.users.display(), count(number, "user")));
    Ok(())
}

fn revoke(arguments: &Revoke) -> Result<(), Failure> {
    let Revoke { name, users } = arguments;
    Users::change(users, false, |table| table.revoke(name))?;
    report(format_args!("{}: revoked {name}", users.display()), || json!({ "revoked": name }))
}
