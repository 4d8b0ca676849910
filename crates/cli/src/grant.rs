//! `moteseal grant`: lets others read encrypted columns, and shows what a grant opens.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use moteseal_client::start_text;
use moteseal_core::confidential::ColumnId;
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_device::import::display_ms;
use moteseal_device::runner::system_clock;
use moteseal_grant::{
    Audience, Contents, EnvelopeError, GrantRequest, GrantedColumn, MakeError, OpenError,
    OpenGrant, Owner, Passphrase, Recipient, Recipients, Stream, Unlock, needs_passphrase,
};
use moteseal_terminal::secret::ask_secret;
use moteseal_verify::Roster;
use serde_json::json;
use zeroize::Zeroizing;

use crate::column_names::ColumnNames;
use crate::device_name::{listed_name, name_of as name, with_name};
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
        after_help = "Example:\n  moteseal grant make --owner keys/alice.owner --roster roster.cbor \\\n      \
                            --operator keys/op.pub.pem --device dev1 --columns temperature \\\n      \
                            --since 2027-01-01 --until 2027-02-01 --to age1... --purpose \"heating study\" \\\n      \
                            --out study.mgrant\n\
                            A recipient makes the key pair with age-keygen -o me.txt and sends you the line age1...\n\
                            What a recipient has read cannot be taken back. --not-after binds honest programs only."
    )]
    Make(Make),
    /// Show what a grant opens, for whom it was made, and until when.
    #[command(after_help = "Examples:\n  \
                            moteseal grant show study.mgrant --identity me.txt --roster roster.cbor \\\n      \
                            --operator keys/op.pub.pem\n  \
                            moteseal grant show study.mgrant --identity me.txt --schema rows.mproof \\\n      \
                            --roster roster.cbor --operator keys/op.pub.pem\n\
                            A grant has ids of columns, from which the names cannot be computed. With --schema or --owner, the\n\
                            names are printed, too.")]
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
    /// Returns the recipients. `instead` is another option that the command has for them, or empty.
    pub(crate) fn recipients(&self, instead: &str) -> Result<Recipients, Failure> {
        if let Some(path) = &self.passphrase_file {
            return Ok(Recipients::Passphrase(passphrase(path)?));
        }
        if self.recipients.is_empty() {
            let or = if instead.is_empty() { "" } else { ", or " };
            return Err(Failure::usage(format_args!(
                "no recipient is given; name one with --to age1..., or --passphrase-file FILE{or}{instead}"
            )));
        }
        let parse = |text: &String| Recipient::parse(text).map_err(|error| recipient(text, error));
        Ok(Recipients::Keys(self.recipients.iter().map(parse).collect::<Result<_, _>>()?))
    }
}

/// Returns the failure for a text that is not a recipient. It repeats only a text that looks like one:
/// others can be secrets.
fn recipient(text: &str, error: EnvelopeError) -> Failure {
    let text = text.trim().to_ascii_lowercase();
    let failure = if text.starts_with("age-secret-key-") {
        let what = "this is a secret identity; give the line age1... of its file, which `age-keygen -y FILE` \
                    prints";
        Failure::usage(what).with_name(error.name())
    } else {
        Failure::named(Exit::Usage, error.named())
    };
    if text.starts_with("age1") {
        failure.of(format_args!("--to {text}"))
    } else {
        failure.of("--to")
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

    /// Returns what decrypts several files. Each option's file is read once, because it may be a pipe.
    pub(crate) const fn start(&self) -> Unlocker<'_> {
        Unlocker { options: self, identities: None, passphrase: None }
    }
}

/// What decrypts several files.
pub(crate) struct Unlocker<'a> {
    options: &'a Unlocking,
    identities: Option<Zeroizing<Vec<u8>>>,
    passphrase: Option<Passphrase>,
}

impl Unlocker<'_> {
    /// Returns what decrypts the file with these bytes: the identities, or a passphrase. `instead` names
    /// other options that decrypt it.
    pub(crate) fn unlock(
        &mut self,
        path: &Path,
        file: &[u8],
        instead: &str,
    ) -> Result<Unlock, Failure> {
        let needs_passphrase = needs_passphrase(file).map_err(|error| {
            let failure = Failure::named(Exit::Usage, error.named()).about(path);
            failure.with(files::likeness_of(file))
        })?;
        if needs_passphrase {
            let passphrase = match (&self.passphrase, &self.options.passphrase_file) {
                (Some(known), _) => known.clone(),
                (None, Some(path)) => self.passphrase.insert(passphrase(path)?).clone(),
                // Each file may have a passphrase of its own.
                (None, None) => ask_passphrase(path)?,
            };
            return Ok(Unlock::Passphrase(passphrase));
        }
        let identity = self.options.identity.as_ref().ok_or_else(|| {
            Failure::usage(format_args!(
                "the file is encrypted; give the file of your identities with --identity{instead}"
            ))
            .with_name("OtherKeyKind")
            .about(path)
        })?;
        let bytes = match &self.identities {
            Some(known) => known,
            None => self.identities.insert(files::read(identity)?),
        };
        let text = std::str::from_utf8(bytes).unwrap_or_default();
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
    // Editors on Windows write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Passphrase::new(text.lines().next().unwrap_or_default())
        .map_err(|error| Failure::named(Exit::Usage, error.named()).about(path))
}

#[derive(Args, Debug)]
pub(crate) struct Make {
    #[command(flatten)]
    group: Group,
    /// A device; repeat it for every device. By default all devices of the owner that have one of the
    /// columns, and whose keys reach the range
    #[arg(long = "device", value_name = "NAME")]
    devices: Vec<String>,
    /// The columns, separated by commas; by default all encrypted columns
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = listed_name)]
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
    #[arg(long, alias = "armor")]
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
    /// Bundles, folders of bundles, or proofs of the devices, whose schemas tell the names of the
    /// columns; for example a proof that `moteseal get --proof` has saved
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
    if let Some(end) = arguments.not_after.filter(|end| *end <= system_clock()) {
        return Err(Failure::usage(format_args!(
            "--not-after {} is in the past, and programs would refuse the grant; name a later time",
            display_ms(end)
        )));
    }
    let first = arguments.since.epoch(roster.calendar());
    let end = arguments.until.epoch_after(roster.calendar());
    if end <= first {
        return Err(Failure::usage("--until is not after --since"));
    }
    let last = EpochNumber(end.0 - 1);
    let columns: Vec<&str> = arguments.columns.iter().map(String::as_str).collect();
    let columns = (!columns.is_empty()).then_some(&columns[..]);
    let recipients = arguments.to.recipients("")?;
    let epochs = first..=last;
    let (devices, left_out) = granted_devices(arguments, &file.owner, &roster, columns, &epochs)?;
    check_columns(&file.owner, &roster, &devices, columns)?;
    let request = GrantRequest {
        devices: &devices,
        columns,
        epochs,
        recipients: &recipients,
        not_after_ms: arguments.not_after,
        purpose: &arguments.purpose,
    };
    let grant = file
        .owner
        .grant(&request, &roster, arguments.armour)
        .map_err(|error| make_failure(&file.owner, &roster, error))?;
    files::create(&arguments.out, &grant, moteseal_files::PRIVATE)?;
    let (out, span) = (arguments.out.display().to_string(), time::span(&roster, first, last));
    let granted = columns_of(&file.owner, &devices, columns);
    let names: Vec<_> = devices.iter().map(|device| name(&roster, *device)).collect();
    let mut lines = Vec::with_capacity(left_out.len() + 2);
    lines.extend(left_out.iter().map(|(device, error)| {
        format!("left out   {}: {}", name(&roster, *device), reason(&file.owner, &roster, *error))
    }));
    lines.push(format!("opens      {}: {}", names.join(", "), granted.join(", ")));
    lines.push(format!("grant for {span}: {out}"));
    report_lines(lines, || {
        let left_out = left_out.iter().map(
            |(device, error)| json!({ "device": name(&roster, *device), "reason": error.name() }),
        );
        json!({
            "file": out,
            "devices": names,
            "columns": granted,
            "left_out": left_out.collect::<Vec<_>>(),
            "since_epoch": first.0,
            "since": start_text(&roster, first),
            "until_epoch": end.0,
            "until": start_text(&roster, end),
            "not_after_ms": arguments.not_after,
        })
    })
}

/// The devices that a grant does not have, and why.
type LeftOut = Vec<(DeviceId, MakeError)>;

/// Returns the devices of a grant, in the order of the roster's ids: those that the user names, or all
/// devices of the owner without those that the grant cannot have.
fn granted_devices(
    arguments: &Make,
    owner: &Owner,
    roster: &Roster,
    columns: Option<&[&str]>,
    epochs: &RangeInclusive<EpochNumber>,
) -> Result<(Vec<DeviceId>, LeftOut), Failure> {
    if !arguments.devices.is_empty() {
        let mut seen = BTreeSet::new();
        let mut devices = files::devices(roster, &arguments.group.roster, &arguments.devices)?;
        devices.retain(|device| seen.insert(*device));
        return Ok((devices, Vec::new()));
    }
    let owned: BTreeSet<DeviceId> = owner.streams().iter().map(Stream::device).collect();
    let (mut devices, mut left_out) = (Vec::new(), Vec::new());
    for device in owned {
        match owner.check_grantable(device, columns, epochs) {
            Ok(()) => devices.push(device),
            Err(error) => left_out.push((device, error)),
        }
    }
    if let (true, Some((device, error))) = (devices.is_empty(), left_out.first()) {
        check_columns(owner, roster, &[*device], columns)?;
        return Err(make_failure(owner, roster, *error));
    }
    Ok((devices, left_out))
}

/// Returns the names of the encrypted columns of devices, or of those in `columns`, sorted.
fn columns_of<'o>(
    owner: &'o Owner,
    devices: &[DeviceId],
    columns: Option<&[&str]>,
) -> Vec<&'o str> {
    let streams = devices.iter().flat_map(|device| owner.streams_of(*device));
    let names = streams.flat_map(|stream| stream.columns().iter().map(|column| &*column.name));
    let is_chosen = |name: &&str| columns.is_none_or(|columns| columns.contains(name));
    names.filter(is_chosen).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Checks that each device has one of the columns, and that each column is one of a device's. The library
/// checks it, too; this check names the column.
fn check_columns(
    owner: &Owner,
    roster: &Roster,
    devices: &[DeviceId],
    columns: Option<&[&str]>,
) -> Result<(), Failure> {
    let Some(columns) = columns else { return Ok(()) };
    let unknown = |what: &str, of: &[DeviceId]| {
        let known = columns_of(owner, of, None).join(", ");
        let text = format!("{what}; the encrypted columns are {known}");
        Err(Failure::usage(text).with_name(MakeError::UnknownColumn.name()))
    };
    let owned: Vec<DeviceId> =
        devices.iter().copied().filter(|device| !owner.streams_of(*device).is_empty()).collect();
    if owned.len() < devices.len() {
        // The library returns `NotOwned`.
        return Ok(());
    }
    let all = columns_of(owner, &owned, None);
    if let Some(column) = columns.iter().find(|column| !all.contains(column)) {
        let names: Vec<_> = owned.iter().take(8).map(|device| name(roster, *device)).collect();
        let what = format!("no encrypted column of {} is called {column:?}", names.join(", "));
        return unknown(&what, &owned);
    }
    match owned.iter().find(|device| columns_of(owner, &[**device], Some(columns)).is_empty()) {
        Some(device) => {
            let what = format!("{} has none of {}", name(roster, *device), columns.join(", "));
            unknown(&what, &[*device])
        }
        None => Ok(()),
    }
}

fn make_failure(owner: &Owner, roster: &Roster, error: MakeError) -> Failure {
    let text = reason(owner, roster, error);
    let exit = match error {
        MakeError::Sign(_) | MakeError::NoRandomness => Exit::Internal,
        _ => Exit::Usage,
    };
    Failure::new(exit, text).with_name(error.name())
}

/// Describes why a grant was not made, with names of devices and with times.
fn reason(owner: &Owner, roster: &Roster, error: MakeError) -> String {
    let text = error.to_string();
    match error {
        MakeError::Forgotten { device, first } => with_name(roster, device, &text)
            .replace(&format!("epoch {first}"), &start_text(roster, first)),
        MakeError::NotOwned { device } => {
            with_name(roster, device, &text) + &owned_devices(owner, roster)
        }
        MakeError::EpochOutOfKeyRange { device } => {
            let begins = owner.streams_of(device).first().map(|stream| {
                format!(" (its keys begin at {})", start_text(roster, stream.base()))
            });
            with_name(roster, device, &text) + &begins.unwrap_or_default()
        }
        MakeError::UnknownColumn => "it has none of the columns".to_owned(),
        _ => text,
    }
}

/// Returns `; it has those of ...` with the names of an owner's devices, at most eight of them.
pub(crate) fn owned_devices(owner: &Owner, roster: &Roster) -> String {
    let owned: BTreeSet<DeviceId> = owner.streams().iter().map(Stream::device).collect();
    let names: Vec<_> = owned.iter().take(8).map(|device| name(roster, *device)).collect();
    match owned.len() {
        0 => "; make it with `moteseal owner add`".to_owned(),
        1..=8 => format!("; it has those of {}", names.join(", ")),
        all => format!("; it has those of {} and {} more", names.join(", "), all - 8),
    }
}

/// Reads and opens a grant, which must not have ended.
pub(crate) fn open(
    path: &Path,
    unlocker: &mut Unlocker<'_>,
    roster: &Roster,
) -> Result<OpenGrant, Failure> {
    open_at(path, unlocker, roster, system_clock())
}

/// Reads and opens a grant, which must not have ended at the time `now_ms`, in Unix milliseconds.
fn open_at(
    path: &Path,
    unlocker: &mut Unlocker<'_>,
    roster: &Roster,
    now_ms: u64,
) -> Result<OpenGrant, Failure> {
    let bytes = read_encrypted(path)?;
    let unlock = unlocker.unlock(path, &bytes, "")?;
    OpenGrant::open(&bytes, &unlock, roster, now_ms).map_err(|error| {
        let exit = match error {
            OpenError::Envelope(error) if error != EnvelopeError::Damaged => Exit::Usage,
            _ => Exit::Refused,
        };
        let text = error.to_string();
        let text = match error {
            OpenError::TooManyGenerations { device } => with_name(roster, device, &text),
            OpenError::GrantExpired { end_ms } => {
                text.replace(&format!("Unix time {end_ms} ms"), &display_ms(end_ms))
            }
            OpenError::Decode(_) => format!("{text}; is it a backup, or another file?"),
            _ => text,
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
    for path in crate::verify::expand(&arguments.schemas)? {
        names.add_schemas(&path)?;
    }
    // At time 0 no grant has ended.
    let mut contents =
        open_at(&arguments.grant, &mut arguments.unlocking.start(), &roster, 0)?.contents();
    contents
        .columns
        .sort_by_cached_key(|of| (name(&roster, of.device), names.text(of.column), of.generation));
    let has_ended = contents.not_after_ms.is_some_and(|end| system_clock() > end);
    let mut out = Stdout::lock();
    if is_json() {
        return out.line(to_json(&roster, &contents, &names, has_ended));
    }
    out.line(format_args!("owner      {}", contents.owner))?;
    if !contents.purpose.is_empty() {
        out.line(format_args!("purpose    {}", contents.purpose))?;
    }
    match &contents.audience {
        Audience::Recipients(texts) => {
            for text in texts {
                out.line(format_args!("recipient  {}", text.escape_debug()))?;
            }
        }
        Audience::Passphrase(_) => out.line("recipient  anyone with the passphrase")?,
    }
    let end = contents.not_after_ms.map_or_else(|| "no end".to_owned(), display_ms);
    let ended = if has_ended { " (it has ended)" } else { "" };
    out.line(format_args!("not after  {end}{ended}"))?;
    let until = contents.time.until_ms.map_or_else(|| "no end".to_owned(), display_ms);
    out.line(format_args!("time       {} to {until}", display_ms(contents.time.since_ms)))?;
    let width = |names: &mut dyn Iterator<Item = String>| {
        names.map(|name| name.chars().count()).max().unwrap_or_default()
    };
    let columns = &contents.columns;
    let devices = width(&mut columns.iter().map(|of| name(&roster, of.device)));
    let column = width(&mut columns.iter().map(|of| names.text(of.column)));
    for granted in columns {
        let spans: Vec<_> =
            granted.epochs.iter().map(|(first, last)| time::span(&roster, *first, *last)).collect();
        out.line(format_args!(
            "opens      {:<devices$}  {:<column$}  {}",
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

fn to_json(
    roster: &Roster,
    contents: &Contents,
    names: &ColumnNames,
    has_ended: bool,
) -> serde_json::Value {
    let column = |granted: &GrantedColumn| {
        let epochs: Vec<_> = granted.epochs.iter().map(|(first, last)| [first.0, last.0]).collect();
        let times = granted.epochs.iter().map(|(first, last)| {
            [*first, EpochNumber(last.0.saturating_add(1))].map(|epoch| start_text(roster, epoch))
        });
        let id: ColumnId = granted.column;
        json!({
            "device": name(roster, granted.device),
            "generation": granted.generation,
            "column": id.to_string(),
            "name": names.get(id),
            "epochs": epochs,
            "outdated": granted.is_outdated,
            "times": times.collect::<Vec<_>>(),
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
        "ended": has_ended,
        "columns": contents.columns.iter().map(column).collect::<Vec<_>>(),
    })
}
