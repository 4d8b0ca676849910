//! `moteseal grant`: lets others read encrypted columns, and shows what a grant opens.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use moteseal_client::start_text;
use moteseal_core::confidential::ColumnId;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_device::import::display_ms;
use moteseal_device::runner::system_clock;
use moteseal_grant::{
    Audience, Contents, GrantRequest, GrantedColumn, MakeError, OpenError, OpenGrant, Passphrase,
    Recipient, Recipients, Unlock, needs_passphrase,
};
use moteseal_terminal::secret::ask_secret;
use moteseal_verify::Roster;
use serde_json::json;

use crate::column_names::ColumnNames;
use crate::device_name::with_name;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::owner::{Group, OwnerFile, read_encrypted};
use crate::progress::count;
use crate::terminal::{Stdout, is_json, report_lines};
use crate::time::{self, When, when};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a grant: a file with which its recipients can read columns of devices for a range of
    /// time.
    #[command(
        after_help = "Example: moteseal grant make --owner keys/alice.owner --roster roster.cbor --operator keys/op.pub.pem \\\n      \
                            --device dev1 --columns temperature --since 2027-01-01 --until 2027-02-01 \\\n      \
                            --to age1... --purpose \"heating study\" --out study.mgrant\n\
                            A recipient makes the key pair with age-keygen -o me.txt and sends you the line age1...\n\
                            What a recipient has read cannot be taken back. --not-after binds honest programs only."
    )]
    Make(Make),
    /// Show what a grant opens, for whom it was made, and until when.
    #[command(
        after_help = "Examples:\n  moteseal grant show study.mgrant --identity me.txt --roster roster.cbor --operator keys/op.pub.pem\n  \
                            moteseal grant show study.mgrant --identity me.txt --schema rows.mproof --roster roster.cbor --operator keys/op.pub.pem\n\
                            A grant has ids of columns, from which the names cannot be computed. With --schema or --owner, the names are\n\
                            printed, too."
    )]
    Show(Show),
}

/// For whom a file is encrypted.
#[derive(Args, Debug)]
pub(crate) struct To {
    /// A recipient, age1...; repeat it for every recipient
    #[arg(long = "to", value_name = "RECIPIENT", group = "recipient")]
    recipients: Vec<String>,
    /// Encrypt with the passphrase in the first line of this file instead
    #[arg(long, value_name = "FILE", group = "recipient")]
    passphrase_file: Option<PathBuf>,
}

impl To {
    pub(crate) fn recipients(&self) -> Result<Recipients, Failure> {
        if let Some(path) = &self.passphrase_file {
            return Ok(Recipients::Passphrase(passphrase(path)?));
        }
        if self.recipients.is_empty() {
            return Err(Failure::usage(
                "name a recipient: --to age1..., or --passphrase-file FILE",
            ));
        }
        let parse = |text: &String| {
            Recipient::parse(text).map_err(|error| {
                Failure::named(Exit::Usage, error.named()).of(format_args!("--to {text}"))
            })
        };
        Ok(Recipients::Keys(self.recipients.iter().map(parse).collect::<Result<_, _>>()?))
    }
}

/// What decrypts files.
#[derive(Args, Debug)]
pub(crate) struct Unlocking {
    /// The file of your age identities, which age-keygen wrote
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// A file whose first line is the passphrase, for a file that is encrypted with one; for example
    /// /dev/fd/3. Without it, the passphrase is asked for at the terminal
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

impl Unlocking {
    /// Returns whether an argument is given.
    pub(crate) fn is_given(&self) -> bool {
        self.read().next().is_some()
    }

    /// Returns the files that are read.
    pub(crate) fn read(&self) -> impl Iterator<Item = &PathBuf> {
        self.identity.iter().chain(&self.passphrase_file)
    }

    /// Returns what decrypts the file with these bytes: the identities, or a passphrase.
    pub(crate) fn unlock(&self, path: &Path, file: &[u8]) -> Result<Unlock, Failure> {
        let needs_passphrase = needs_passphrase(file)
            .map_err(|error| Failure::named(Exit::Usage, error.named()).about(path))?;
        if needs_passphrase {
            let passphrase = match &self.passphrase_file {
                Some(path) => passphrase(path)?,
                None => ask_passphrase(path)?,
            };
            return Ok(Unlock::Passphrase(passphrase));
        }
        let identity = self.identity.as_ref().ok_or_else(|| {
            Failure::usage("give the file of your identities with --identity")
                .with_name("OtherKeyKind")
                .about(path)
        })?;
        let bytes = files::read(identity)?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        Unlock::identity_file(text)
            .map_err(|error| Failure::named(Exit::Usage, error.named()).about(identity))
    }
}

/// Asks for the passphrase of a file at the terminal.
fn ask_passphrase(path: &Path) -> Result<Passphrase, Failure> {
    let text = ask_secret(&format!("passphrase of {}: ", path.display())).map_err(|error| {
        Failure::usage(format_args!(
            "it is encrypted with a passphrase, and there is no terminal to ask for it ({error}); name a \
             file with it: --passphrase-file"
        ))
        .with_name("OtherKeyKind")
        .about(path)
    })?;
    Passphrase::new(&text).map_err(|error| Failure::named(Exit::Usage, error.named()))
}

/// Reads a passphrase: the first line of a file.
fn passphrase(path: &Path) -> Result<Passphrase, Failure> {
    let bytes = files::read(path)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Failure::usage("the passphrase is not UTF-8 text").about(path))?;
    Passphrase::new(text.lines().next().unwrap_or_default())
        .map_err(|error| Failure::named(Exit::Usage, error.named()).about(path))
}

#[derive(Args, Debug)]
pub(crate) struct Make {
    #[command(flatten)]
    group: Group,
    /// A device; repeat it for every device. By default all devices of the owner
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// The columns, separated by commas; by default all encrypted columns
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Start with the epoch that contains this time
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    since: When,
    /// End with the first epoch that ends at or after this time
    #[arg(long, value_name = "TIME", value_parser = when, allow_hyphen_values = true)]
    until: When,
    #[command(flatten)]
    to: To,
    /// The time after which programs refuse the grant
    #[arg(long, value_name = "TIME", value_parser = time::instant)]
    not_after: Option<u64>,
    /// What the recipients may use the readings for
    #[arg(long, value_name = "TEXT", default_value = "")]
    purpose: String,
    /// Write text in the form of PEM, for mail
    #[arg(long)]
    armour: bool,
    /// The file to write
    #[arg(long)]
    out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Show {
    /// The grant
    grant: PathBuf,
    #[command(flatten)]
    unlocking: Unlocking,
    /// The group's roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's public key
    #[arg(long, value_name = "PUBLIC_KEY")]
    operator: PathBuf,
    /// Bundles or proofs of the devices, whose schemas tell the names of the columns; for example a
    /// proof that `moteseal get --proof` has saved
    #[arg(long = "schema", value_name = "FILE")]
    schemas: Vec<PathBuf>,
    /// The owner's file, which tells the names of the columns, too
    #[arg(long, value_name = "FILE")]
    owner: Option<PathBuf>,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Make(arguments) => make(arguments),
        Command::Show(arguments) => show(arguments),
    }
}

fn make(arguments: &Make) -> Result<(), Failure> {
    let (file, roster) = arguments.group.read()?;
    files::check_absent(&arguments.out)?;
    let devices: Vec<DeviceId> = if arguments.devices.is_empty() {
        file.owner.streams().iter().map(moteseal_grant::Stream::device).collect()
    } else {
        files::devices(&roster, &arguments.group.roster, &arguments.devices)?
    };
    let first = arguments.since.epoch(roster.calendar());
    let end = arguments.until.epoch_after(roster.calendar());
    if end <= first {
        return Err(Failure::usage("--until is not after --since"));
    }
    let last = EpochNumber(end.0 - 1);
    let columns: Vec<&str> = arguments.columns.iter().map(String::as_str).collect();
    let recipients = arguments.to.recipients()?;
    let request = GrantRequest {
        devices: &devices,
        columns: (!columns.is_empty()).then_some(&columns[..]),
        epochs: first..=last,
        recipients: &recipients,
        not_after_ms: arguments.not_after,
        purpose: &arguments.purpose,
    };
    let grant = file
        .owner
        .grant(&request, &roster, arguments.armour)
        .map_err(|error| make_failure(&roster, error))?;
    files::create(&arguments.out, &grant, moteseal_files::PRIVATE)?;
    let (out, span) = (arguments.out.display().to_string(), time::span(&roster, first, last));
    report_lines([format!("grant for {span}: {out}")], || {
        json!({
            "file": out,
            "since_epoch": first.0,
            "until_epoch": end.0,
            "not_after_ms": arguments.not_after,
        })
    })
}

fn make_failure(roster: &Roster, error: MakeError) -> Failure {
    let text = error.to_string();
    let text = match error {
        MakeError::Forgotten { device, first } => with_name(roster, device, &text)
            .replace(&format!("epoch {first}"), &start_text(roster, first)),
        MakeError::NotOwned { device } | MakeError::EpochOutOfKeyRange { device } => {
            with_name(roster, device, &text)
        }
        _ => text,
    };
    let exit = match error {
        MakeError::Sign(_) | MakeError::NoRandomness => Exit::Internal,
        _ => Exit::Usage,
    };
    Failure::new(exit, text).with_name(error.name())
}

/// Reads and opens a grant.
pub(crate) fn open(
    path: &Path,
    unlocking: &Unlocking,
    roster: &Roster,
) -> Result<OpenGrant, Failure> {
    let bytes = read_encrypted(path)?;
    let unlock = unlocking.unlock(path, &bytes)?;
    OpenGrant::open(&bytes, &unlock, roster, system_clock()).map_err(|error| {
        let exit = match error {
            OpenError::Envelope(_) | OpenError::WrongGroup => Exit::Usage,
            _ => Exit::Refused,
        };
        let text = match error {
            OpenError::TooManyGenerations { device } => {
                with_name(roster, device, &error.to_string())
            }
            _ => error.to_string(),
        };
        Failure::new(exit, text).with_name(error.name()).about(path)
    })
}

fn show(arguments: &Show) -> Result<(), Failure> {
    let roster = files::roster(&arguments.roster, &arguments.operator)?;
    let mut names = ColumnNames::default();
    if let Some(owner) = &arguments.owner {
        names.add_owner(&OwnerFile::read(owner)?.owner);
    }
    for path in &arguments.schemas {
        names.add_schemas(path)?;
    }
    let contents = open(&arguments.grant, &arguments.unlocking, &roster)?.contents();
    let mut out = Stdout::lock();
    if is_json() {
        return out.line(to_json(&roster, &contents, &names));
    }
    out.line(format_args!("owner      {}", contents.owner))?;
    out.line(format_args!("purpose    {}", contents.purpose))?;
    match &contents.audience {
        Audience::Recipients(texts) => {
            for text in texts {
                out.line(format_args!("recipient  {}", text.escape_debug()))?;
            }
        }
        Audience::Passphrase(_) => out.line("recipient  who knows the passphrase")?,
    }
    let end = contents.not_after_ms.map_or_else(|| "no end".to_owned(), display_ms);
    out.line(format_args!("not after  {end}"))?;
    let until = contents.time.until_ms.map_or_else(|| "no end".to_owned(), display_ms);
    out.line(format_args!("time       {} to {until}", display_ms(contents.time.since_ms)))?;
    for granted in &contents.columns {
        let spans: Vec<_> =
            granted.epochs.iter().map(|(first, last)| time::span(&roster, *first, *last)).collect();
        out.line(format_args!(
            "opens      {}  {}  {}",
            name(&roster, granted.device),
            names.text(granted.column),
            spans.join(", ")
        ))?;
    }
    let mut lines = vec![count(contents.columns.len() as u64, "column")];
    if contents.columns.iter().any(|granted| granted.is_outdated) {
        lines.push(
            "the length of the group's epochs has changed since the grant was made, and it does not open all of \
             its time; ask the owner for a new one"
                .to_owned(),
        );
    }
    report_lines(lines, || json!(null))
}

fn name(roster: &Roster, device: DeviceId) -> String {
    roster.name(device).map_or_else(|| device.to_string(), str::to_owned)
}

fn to_json(roster: &Roster, contents: &Contents, names: &ColumnNames) -> serde_json::Value {
    let column = |granted: &GrantedColumn| {
        let epochs: Vec<_> = granted.epochs.iter().map(|(first, last)| [first.0, last.0]).collect();
        let id: ColumnId = granted.column;
        json!({
            "device": name(roster, granted.device),
            "generation": granted.generation,
            "column": id.to_string(),
            "name": names.get(id),
            "epochs": epochs,
            "outdated": granted.is_outdated,
            "nodes": granted.nodes,
        })
    };
    let recipients = match &contents.audience {
        Audience::Recipients(texts) => Some(texts),
        Audience::Passphrase(_) => None,
    };
    json!({
        "owner": contents.owner,
        "roster": contents.roster.to_string(),
        "purpose": contents.purpose,
        "since_ms": contents.time.since_ms,
        "until_ms": contents.time.until_ms,
        "recipients": recipients,
        "passphrase": recipients.is_none(),
        "not_after_ms": contents.not_after_ms,
        "columns": contents.columns.iter().map(column).collect::<Vec<_>>(),
    })
}
