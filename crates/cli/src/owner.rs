//! `moteseal owner`: the secrets of an owner of confidential readings.

mod files;
mod later;
mod show;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use moteseal_client::start_text;
use moteseal_core::identity::{MAX_PEM, encode_public_pem};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_core::signature::{Algorithm, PublicKey, SecretKey};
use moteseal_device::runner::system_clock;
use moteseal_grant::{
    BackupError, EnvelopeError, Owner, OwnerError, OwnerFileError, Share, Stream,
};
use moteseal_verify::Roster;
use serde_json::json;

pub(crate) use files::{Columns, OwnerFile, read_encrypted};

use crate::device_name::{name_of, with_name};
use crate::devices_file;
use crate::failure::{Exit, Failure};
use crate::grant::{To, Unlocking, owned_devices};
use crate::key;
use crate::progress::count;
use crate::terminal::{Stdout, is_json, report_lines};
use crate::time::{self, When};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the file of an owner: its signing key, and later the secrets of its devices.
    #[command(
        after_help = "Example:\n  moteseal owner new --group home --name alice --out keys/alice\n\
                            makes keys/alice.owner    the owner's secrets, stay with the owner; make a backup\n\
                            \x20     keys/alice.pub.pem  the public key, goes to the operator, who runs\n  \
                            moteseal roster set --roster roster.cbor --operator keys/op.key.pem \\\n      \
                            --owner alice=keys/alice.pub.pem"
    )]
    New(New),
    /// Make the stream secrets of devices with encrypted columns.
    #[command(
        after_help = "Example:\n  moteseal owner add --owner keys/alice.owner --roster roster.cbor \\\n      \
                            --operator keys/op.pub.pem --device dev1 --keys keys \\\n      \
                            --column 'temperature:Cel:i16/100!' --column battery:V:u16/1000\n\
                            makes keys/dev1.stream.key, the device's own copy of its secret.\n\
                            Give all columns of the device's schema, in order; those with ! are encrypted."
    )]
    Add(Add),
    /// Add encrypted columns that devices got later, so that grants can have them.
    #[command(
        after_help = "Examples:\n  moteseal owner add-columns --owner keys/alice.owner \\\n      \
                            --seals bundles/dev1-0000000042.mseal --roster roster.cbor --operator keys/op.pub.pem\n  \
                            moteseal owner add-columns --owner keys/alice.owner --device dev1 \\\n      \
                            --column 'temperature:Cel:i16/100!' --column 'pressure:Pa:u32!' \\\n      \
                            --roster roster.cbor --operator keys/op.pub.pem\n\
                            Change the columns in the configuration of the device, and restart it. The first command\n\
                            finds the new columns in the seals of a bundle or a proof. The second one needs no seal;\n\
                            run it once for each change of the columns."
    )]
    AddColumns(AddColumns),
    /// Write a device's own copy of its stream secret again, for example after the disk was full.
    #[command(
        after_help = "Example:\n  moteseal owner copy --owner keys/alice.owner --device dev1 --keys keys \\\n      \
                            --roster roster.cbor --operator keys/op.pub.pem\n\
                            writes keys/dev1.stream.key. A device whose keys the owner has forgotten, or that has\n\
                            columns from a later start, needs a new secret instead: moteseal owner add --from TIME"
    )]
    Copy(Copy),
    /// Give an owner a new signing key, for example after somebody has copied its file. The secrets of its
    /// devices stay.
    #[command(
        after_help = "Example: moteseal owner rotate-key --owner keys/alice.owner --out keys/alice-2.pub.pem\n\
                            writes the new public key, which goes to the operator, who runs\n\
                            \x20   moteseal roster set --roster roster.cbor --operator keys/op.key.pem \\\n\
                            \x20       --owner alice=keys/alice-2.pub.pem\n\
                            All programs then refuse grants that the old key has signed (OwnerKeyChanged); make them\n\
                            anew. A thief of the file still has the secrets: give the devices new ones, too\n\
                            (moteseal owner add --from TIME)."
    )]
    RotateKey(RotateKey),
    /// Erase the keys of the past. Nobody can make grants for it any more.
    #[command(
        after_help = "Example:\n  moteseal owner forget --owner keys/alice.owner --before -90d \\\n      \
                            --roster roster.cbor --operator keys/op.pub.pem\n\
                            Grants and backups that were made before still open the past; delete them, too."
    )]
    Forget(Forget),
    /// Make an encrypted backup of an owner's file.
    #[command(
        after_help = "Examples:\n  moteseal owner backup --owner keys/alice.owner --to age1... --out alice.backup\n  \
                            moteseal owner backup --owner keys/alice.owner --shares --out alice.backup\n\
                            The second command prints three shares; any two of them restore the backup."
    )]
    Backup(Backup),
    /// Show which devices an owner has secrets of, their columns, and the time that the keys cover.
    #[command(
        after_help = "Example:\n  moteseal owner show --owner keys/alice.owner --roster roster.cbor --operator keys/op.pub.pem\n\
                            No secret is printed."
    )]
    Show(Group),
    /// Restore an owner's file from a backup.
    #[command(
        after_help = "Example:\n  moteseal owner restore alice.backup --share-file share-1 --share-file share-3 \\\n      \
                            --out keys/alice.owner"
    )]
    Restore(Restore),
}

#[derive(Args, Debug)]
pub(crate) struct New {
    /// The group's name
    #[arg(long)]
    group: String,
    /// The owner's name in the roster
    #[arg(long)]
    name: String,
    /// The files to write: NAME.owner and NAME.pub.pem
    #[arg(long, value_name = "NAME")]
    out: PathBuf,
    /// The suite of the owner's signatures: ed25519, esp256 or ml-dsa-44
    #[arg(long, value_name = "SUITE", default_value = "ed25519", value_parser = ["ed25519", "esp256", "ml-dsa-44"])]
    alg: String,
}

#[derive(Args, Debug)]
pub(crate) struct Add {
    #[command(flatten)]
    group: Group,
    /// A device; repeat it for every device
    #[arg(long = "device", value_name = "NAME", required_unless_present = "devices_file")]
    devices: Vec<String>,
    /// A file with a device on each line, as for `moteseal roster add`
    #[arg(long, value_name = "FILE")]
    devices_file: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    /// The folder for the devices' copies of their secrets: NAME.stream.key
    #[arg(long, value_name = "FOLDER")]
    keys: PathBuf,
    /// The first time that the keys cover; by default the group's first epoch
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when)]
    from: Option<When>,
}

#[derive(Args, Debug)]
pub(crate) struct AddColumns {
    #[command(flatten)]
    group: Group,
    /// A bundle, a folder of bundles, or a proof, with seals of the devices; repeat it for several
    #[arg(long, value_name = "FILE")]
    seals: Vec<PathBuf>,
    /// A device; repeat it for every device. For --seals, the default is all devices of the owner
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    #[command(flatten)]
    columns: Columns,
    /// With --seals: move a column that a device has begun again, for example after it lost its keys. Grants
    /// then open its seals from these on, and no longer those before; make grants for the past first
    #[arg(long = "move", requires = "seals")]
    move_columns: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RotateKey {
    /// The owner's file
    #[arg(long, value_name = "FILE")]
    owner: PathBuf,
    /// The file to write: the new public key
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The suite of the owner's signatures: ed25519, esp256 or ml-dsa-44
    #[arg(long, value_name = "SUITE", default_value = "ed25519", value_parser = ["ed25519", "esp256", "ml-dsa-44"])]
    alg: String,
}

#[derive(Args, Debug)]
pub(crate) struct Copy {
    #[command(flatten)]
    group: Group,
    /// A device; repeat it for every device
    #[arg(long = "device", value_name = "NAME", required = true)]
    devices: Vec<String>,
    /// The folder for the copies: NAME.stream.key
    #[arg(long, value_name = "FOLDER")]
    keys: PathBuf,
    /// Write the secret that the device uses at this time, by default now. A device may have several, of which
    /// each replaces the one before from some time on
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when)]
    at: Option<When>,
}

/// The owner, and the group of its devices.
#[derive(Args, Debug)]
pub(crate) struct Group {
    /// The owner's file
    #[arg(long, value_name = "FILE")]
    pub(crate) owner: PathBuf,
    /// The group's roster
    #[arg(long)]
    pub(crate) roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    pub(crate) operator: PathBuf,
}

impl Group {
    /// Reads the owner's file and the roster, which must be of the same group.
    pub(crate) fn read(&self) -> Result<(OwnerFile, Roster), Failure> {
        let roster = crate::files::roster(&self.roster, &self.operator)?;
        let owner = OwnerFile::read(&self.owner)?;
        owner.check_group(&roster)?;
        Ok((owner, roster))
    }
}

#[derive(Args, Debug)]
pub(crate) struct Forget {
    #[command(flatten)]
    group: Group,
    /// Erase the keys of the epochs before the one that contains this time. Such an epoch can then not be
    /// granted, whether it is past or still to come
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when)]
    before: When,
    /// Accept a time in the future: the readings from now to then can never be granted
    #[arg(long)]
    future: bool,
    /// A device; repeat it for every device. By default all devices of the owner
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// The owner's file
    #[arg(long, value_name = "FILE")]
    owner: PathBuf,
    #[command(flatten)]
    to: To,
    /// Encrypt for a new key and print three shares of it; any two of them restore the backup
    #[arg(long, group = "recipient")]
    shares: bool,
    /// Write text in the form of PEM, for mail
    #[arg(long, alias = "armor")]
    armour: bool,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// The backup
    backup: PathBuf,
    #[command(flatten)]
    unlocking: Unlocking,
    /// A file with a share; give two of them
    #[arg(long = "share-file", value_name = "FILE", num_args = 1, conflicts_with_all = ["identity", "passphrase_file"])]
    shares: Vec<PathBuf>,
    /// The owner's file to write
    #[arg(long)]
    out: PathBuf,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::New(arguments) => new(arguments),
        Command::Add(arguments) => add(arguments),
        Command::AddColumns(arguments) => later::add_columns(arguments),
        Command::Copy(arguments) => later::copy(arguments),
        Command::RotateKey(arguments) => later::rotate_key(arguments),
        Command::Forget(arguments) => forget(arguments),
        Command::Backup(arguments) => backup(arguments),
        Command::Show(group) => show::show(group),
        Command::Restore(arguments) => restore(arguments),
    }
}

/// Returns the failure for an error that names devices by their ids.
fn failure(owner: &Owner, roster: &Roster, error: OwnerError) -> Failure {
    let text = error.to_string();
    let text = match error {
        OwnerError::NotOwned { device } => {
            with_name(roster, device, &text) + &owned_devices(owner, roster)
        }
        OwnerError::BaseNotLater { device } | OwnerError::NoCopy { device } => {
            with_name(roster, device, &text)
        }
        _ => text,
    };
    Failure::usage(text).with_name(error.name())
}

fn named(error: BackupError) -> Failure {
    let exit = match error {
        BackupError::NoRandomness | BackupError::Owner(_) => Exit::Internal,
        BackupError::File(_) => Exit::Refused,
        _ => Exit::Usage,
    };
    let hint = match error {
        BackupError::File(OwnerFileError::Decode(_)) => {
            "; the content is not an owner's file: is it a grant? (`moteseal grant show`)"
        }
        _ => "",
    };
    Failure::named(exit, error.named()).with(hint)
}

/// Makes a signing key of a suite.
fn new_key(suite: &str) -> Result<SecretKey, Failure> {
    let algorithm = Algorithm::from_name(suite).ok_or_else(|| {
        Failure::usage(format_args!("--alg {suite}: use ed25519, esp256 or ml-dsa-44"))
    })?;
    key::generate(algorithm)
}

/// Writes the file of an owner's public key. Never replaces a file.
fn write_public(path: &Path, key: &PublicKey) -> Result<(), Failure> {
    let mut pem = [0; MAX_PEM];
    let text =
        encode_public_pem(key, &mut pem).map_err(|error| Failure::new(Exit::Internal, error))?;
    crate::files::create(path, text.as_bytes(), 0o644)
}

fn new(arguments: &New) -> Result<(), Failure> {
    let name = arguments.out.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Failure::usage(format_args!(
            "--out {} does not name a file; for example: --out keys/alice",
            arguments.out.display()
        ))
    })?;
    let secrets = arguments.out.with_file_name(format!("{name}.owner"));
    let public = arguments.out.with_file_name(format!("{name}.pub.pem"));
    crate::files::check_absent(&public)?;
    let owner = Owner::new(&arguments.group, &arguments.name, new_key(&arguments.alg)?)
        .map_err(|error| Failure::named(Exit::Usage, error.named()))?;
    OwnerFile::create(&secrets, &owner)?;
    write_public(&public, &owner.public_key())?;
    let (secrets, public) = (secrets.display().to_string(), public.display().to_string());
    let lines = [format!("owner       {secrets}"), format!("public key  {public}")];
    report_lines(lines, || json!({ "owner": secrets, "public_key": public }))
}

fn add(arguments: &Add) -> Result<(), Failure> {
    let (mut owner, roster) = arguments.group.read()?;
    let mut names = arguments.devices.clone();
    if let Some(file) = &arguments.devices_file {
        names.extend(devices_file::names(file)?);
    }
    let from = arguments
        .from
        .map_or(roster.periods()[0].first_epoch, |from| from.epoch(roster.calendar()));
    let mut devices = Vec::with_capacity(names.len());
    for name in &names {
        let id = crate::files::device(&roster, &arguments.group.roster, name)?;
        devices.push((name.as_str(), id));
    }
    let columns = arguments.columns.encrypted()?;
    let copies = owner.add(&roster, &devices, from, &columns, &arguments.keys)?;
    owner.save(&copies)?;
    let mut lines = Vec::new();
    if roster.owner(owner.owner.id()).is_none() {
        lines.push(format!(
            "the roster does not list the owner {0}, and no grant can be made before it does: moteseal roster \
             set --owner {0}=PUBLIC_KEY",
            owner.owner.name()
        ));
    }
    lines.push(secrets_made(devices.len(), columns.len(), &arguments.keys));
    lines.push(files::OLD_BACKUPS.to_owned());
    report_lines(lines, || {
        json!({
            "owner": arguments.group.owner.display().to_string(),
            "folder": arguments.keys.display().to_string(),
            "devices": names,
        })
    })
}

/// Describes the secrets that a command has made.
pub(crate) fn secrets_made(devices: usize, columns: usize, folder: &Path) -> String {
    format!(
        "stream secrets of {} with {}: {}; give each device its own file and delete it here",
        count(devices as u64, "device"),
        count(columns as u64, "encrypted column"),
        folder.display()
    )
}

fn forget(arguments: &Forget) -> Result<(), Failure> {
    let (mut owner, roster) = arguments.group.read()?;
    let epoch = arguments.before.epoch(roster.calendar());
    let devices: Vec<DeviceId> = arguments
        .devices
        .iter()
        .map(|name| crate::files::device(&roster, &arguments.group.roster, name))
        .collect::<Result<_, _>>()?;
    let start = start_text(&roster, epoch);
    if epoch > roster.epoch_of(system_clock()) && !arguments.future {
        return Err(Failure::usage(format_args!(
            "--before {start} is in the future: the readings from now to then could never be granted; name an \
             earlier time, or add --future if this is meant"
        )));
    }
    let devices = (!devices.is_empty()).then_some(&devices[..]);
    // What is forgotten, and whether there are keys of it again.
    let forgotten = |owner: &Owner| -> Vec<(DeviceId, (Option<EpochNumber>, bool))> {
        let of = |stream: &Stream| (stream.forgotten(), stream.keeps_forgotten());
        owner.streams().iter().map(|stream| (stream.device(), of(stream))).collect()
    };
    let before = forgotten(&owner.owner);
    let changed = owner.owner.forget(epoch, devices);
    let changed = changed.map_err(|error| failure(&owner.owner, &roster, error))?;
    let after = forgotten(&owner.owner);
    let names = before.iter().zip(&after).filter(|(one, other)| one != other);
    let names: BTreeSet<_> = names.map(|((device, _), _)| name_of(&roster, *device)).collect();
    if changed > 0 {
        owner.save(&[])?;
    }
    let text = if changed == 0 {
        format!("nothing to erase: the owner has no key of an epoch before {start}")
    } else {
        format!(
            "keys before {start} erased of {}; grants and backups that were made before still open them",
            names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        )
    };
    let copies = owner.copies(&roster, devices);
    let mut lines = vec![text];
    if let Some(first) = copies.first() {
        let more = match copies.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        lines.push(format!(
            "{}{more}: a device's copy opens everything of its device, too; remove it: shred -u FILE",
            first.display()
        ));
    }
    report_lines(lines, || {
        let copies: Vec<_> = copies.iter().map(|path| path.display().to_string()).collect();
        json!({
            "before_epoch": epoch.0,
            "before": start,
            "secrets": changed,
            "devices": names,
            "copies": copies,
        })
    })
}

fn backup(arguments: &Backup) -> Result<(), Failure> {
    let owner = OwnerFile::read(&arguments.owner)?.owner;
    crate::files::check_absent(&arguments.out)?;
    let (backup, shares) = if arguments.shares {
        let (backup, shares) = owner.backup_with_shares(arguments.armour).map_err(named)?;
        (backup, Some(shares))
    } else {
        let recipients = arguments.to.recipients("--shares")?;
        (owner.backup(&recipients, arguments.armour).map_err(named)?, None)
    };
    crate::files::create(&arguments.out, &backup, moteseal_files::PRIVATE)?;
    let out = arguments.out.display().to_string();
    let texts: Vec<_> = shares.iter().flatten().map(Share::to_text).collect();
    let texts: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
    if let Err(error) = print_shares(&out, &texts) {
        // Without its shares, nobody can open it.
        let _ = std::fs::remove_file(&arguments.out);
        return Err(error);
    }
    if is_json() {
        return Ok(());
    }
    report_lines([format!("backup of owner {}: {out}", owner.name())], || json!(null))
}

/// Prints the shares of a backup, which are needed to restore it.
fn print_shares(out: &str, texts: &[&str]) -> Result<(), Failure> {
    let mut stdout = Stdout::lock();
    if is_json() {
        stdout.line(json!({ "backup": out, "shares": texts }))?;
    } else {
        for text in texts {
            stdout.line(text)?;
        }
    }
    if texts.is_empty() || stdout.is_open() {
        return Ok(());
    }
    Err(Failure::usage(
        "the shares could not be printed, because the reader of the output has ended; no backup was written",
    ))
}

fn restore(arguments: &Restore) -> Result<(), Failure> {
    crate::files::check_absent(&arguments.out)?;
    let backup = read_encrypted(&arguments.backup)?;
    let about = |error| named(error).about(&arguments.backup);
    let owner = if arguments.shares.is_empty() {
        let instead = ", or two shares of it with --share-file";
        let unlock = arguments.unlocking.start().unlock(&arguments.backup, &backup, instead)?;
        Owner::restore(&backup, &unlock).map_err(about)?
    } else {
        let shares: Vec<Share> =
            arguments.shares.iter().map(|path| read_share(path)).collect::<Result<_, _>>()?;
        Owner::restore_with_shares(&backup, &shares).map_err(|error| match error {
            BackupError::Envelope(error @ EnvelopeError::NoMatchingKey) => Failure::usage(
                "these are shares of another backup; give those that were printed with this one",
            )
            .with_name(error.name())
            .about(&arguments.backup),
            error => about(error),
        })?
    };
    OwnerFile::create(&arguments.out, &owner)?;
    let text = format!(
        "owner {} of group {} with {}: {}",
        owner.name(),
        owner.group_name(),
        count(owner.streams().len() as u64, "secret"),
        arguments.out.display()
    );
    report_lines([text], || {
        json!({
            "owner": arguments.out.display().to_string(),
            "name": owner.name(),
            "group": owner.group_name(),
            "secrets": owner.streams().len(),
        })
    })
}

fn read_share(path: &Path) -> Result<Share, Failure> {
    let text = crate::files::read(path)?;
    let text = std::str::from_utf8(&text).unwrap_or_default();
    Share::parse(text).map_err(|error| Failure::named(Exit::Usage, error.named()).about(path))
}
