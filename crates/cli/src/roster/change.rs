//! `moteseal roster add|remove|rotate|revoke|set|sanitiser`: signs the next version of a roster.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use moteseal_client::start_text;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_core::schema::Groups;
use moteseal_core::signature::SecretKey;
use moteseal_verify::issue::{NextRoster, PeriodChange};
use moteseal_verify::roster::Owner;
use moteseal_verify::{Roster, SanitiserRight};
use serde_json::json;

use super::enrol::Enrolment;
use super::levels_suffice;
use crate::failure::{Exit, Failure};
use crate::files;
use crate::owner::{Columns, OwnerFile, secrets_made};
use crate::progress::count;
use crate::terminal::{diagnostic, report_lines};
use crate::time::{self, When};

/// The roster to change, and the operator who signs the next version.
#[derive(Args, Debug)]
pub(crate) struct Change {
    /// The roster
    #[arg(long)]
    roster: PathBuf,
    /// The operator's secret key
    #[arg(long, value_name = "KEY")]
    operator: PathBuf,
    /// The file to write; by default the new version replaces --roster
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Add {
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    enrolment: Enrolment,
    /// The file of the owner of the devices' encrypted columns: make the devices' stream secrets. The
    /// devices' copies NAME.stream.key are written to --stream-keys
    #[arg(long, value_name = "FILE", requires_all = ["columns", "stream_keys"])]
    owner: Option<PathBuf>,
    #[command(flatten)]
    columns: Columns,
    /// With --owner: the folder for the devices' copies of their stream secrets
    #[arg(long, value_name = "FOLDER", requires = "owner")]
    stream_keys: Option<PathBuf>,
    /// When the devices join: a time, -7d for seven days ago, or @N for epoch N. By default the
    /// group's first epoch; in a group with a budget the next epoch, because the coordinator
    /// expects every device of the group to seal
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when)]
    from: Option<When>,
}

#[derive(Args, Debug)]
pub(crate) struct Remove {
    #[command(flatten)]
    change: Change,
    /// A device; repeat it for every device
    #[arg(long = "device", value_name = "NAME", required = true)]
    devices: Vec<String>,
    /// When the devices leave the group; by default at the end of the current epoch
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when)]
    from: Option<When>,
}

#[derive(Args, Debug)]
pub(crate) struct Rotate {
    #[command(flatten)]
    change: Change,
    /// A device and the file with its new public key or certificate request (PEM); repeat it for
    /// every device
    #[arg(long = "device", value_name = "NAME=PUBLIC_KEY", required = true, value_parser = super::device)]
    devices: Vec<(String, PathBuf)>,
    /// When the new keys become valid; by default with the second epoch after the current one, so
    /// that the devices can load the roster before
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when)]
    from: Option<When>,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    #[command(flatten)]
    change: Change,
    /// The device whose newest key was stolen or lost
    #[arg(long, value_name = "NAME")]
    device: String,
    /// The first time at which the key is no longer valid
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when, required_unless_present = "from_index")]
    from: Option<When>,
    /// The first seal index for which the key is no longer valid
    #[arg(long, value_name = "INDEX")]
    from_index: Option<u32>,
}

/// A budget, or the word `none`.
#[derive(Clone, Copy, Debug)]
enum NewBudget {
    None,
    Events(u64),
}

fn new_budget(text: &str) -> Result<NewBudget, String> {
    match text.parse() {
        _ if text == "none" => Ok(NewBudget::None),
        Ok(events) if events > 0 => Ok(NewBudget::Events(events)),
        _ => Err("a number of events above 0, or none".to_owned()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct Set {
    #[command(flatten)]
    change: Change,
    /// The length of an epoch: 500ms, 30s, 15m, 1h or 1d
    #[arg(long, value_parser = time::duration)]
    epoch: Option<u64>,
    /// The number of sampling levels
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=32))]
    levels: Option<u8>,
    /// The maximum number of events per epoch that the coordinator may keep, or none
    #[arg(long, value_name = "EVENTS", value_parser = new_budget)]
    budget: Option<NewBudget>,
    /// The expected number of events of the group per epoch; the command then checks that the
    /// levels suffice for the budget
    #[arg(long, value_name = "EVENTS")]
    expected: Option<u64>,
    /// The public key of the coordinator
    #[arg(long, value_name = "PUBLIC_KEY")]
    coordinator: Option<PathBuf>,
    /// The public key of the querier of private sums; it is valid at once
    #[arg(long, value_name = "PUBLIC_KEY")]
    querier: Option<PathBuf>,
    /// An owner of confidential readings and its public key, which verifies its grants; it is valid at
    /// once. Repeat it for every owner
    #[arg(long = "owner", value_name = "NAME=PUBLIC_KEY", value_parser = super::device)]
    owners: Vec<(String, PathBuf)>,
    /// An owner whose grants are no longer valid
    #[arg(long = "remove-owner", value_name = "NAME")]
    removed_owners: Vec<String>,
    /// When the change takes effect: at the start of this epoch or of the first epoch that starts
    /// later. By default the second epoch after the current one, so that every device and gateway
    /// can load the roster before
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when)]
    from: Option<When>,
    /// Change the length of past epochs although the roster lists owners. Devices with encrypted columns then
    /// need new stream secrets (moteseal owner add --from)
    #[arg(long, requires = "epoch")]
    force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SetSanitiser {
    /// The name of the sanitiser, by which readers accept it
    name: String,
    #[command(flatten)]
    change: Change,
    /// The public key of the sanitiser; needed for a new one. A new key voids what the old one signed
    #[arg(long, value_name = "PUBLIC_KEY", requires = "groups")]
    key: Option<PathBuf>,
    /// Give the sanitiser the right to replace these column groups (1 to 7), separated by commas
    #[arg(long, value_name = "GROUP", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=7))]
    groups: Vec<u8>,
    /// With --groups: only of these devices, separated by commas; default: all
    #[arg(long, value_name = "DEVICE", value_delimiter = ',', requires = "groups")]
    devices: Vec<String>,
    /// With --groups: from the epoch on that contains this time; default: all earlier epochs, too
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when, requires = "groups")]
    since: Option<When>,
    /// With --groups, up to the first epoch that ends at or after this time. Without --groups, end all
    /// rights of the sanitiser there; what it signed for earlier epochs stays valid
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time::when)]
    until: Option<When>,
    /// Remove the sanitiser. Nothing that it signed is accepted any longer
    #[arg(long, conflicts_with_all = ["groups", "until"])]
    remove: bool,
}

/// A roster that is being changed.
struct Draft<'k> {
    before: Roster,
    next: NextRoster<'k>,
    change: &'k Change,
    now: EpochNumber,
}

fn named(error: moteseal_verify::issue::ChangeError) -> Failure {
    Failure::named(Exit::Usage, error.named())
}

impl<'k> Draft<'k> {
    fn open(change: &'k Change, operator: &'k SecretKey) -> Result<Self, Failure> {
        let bytes = files::read(&change.roster)?;
        let public = operator.public();
        let about = |error: moteseal_core::roster::RosterError| {
            Failure::named(Exit::Usage, error.named()).about(&change.roster)
        };
        let before = Roster::open(&bytes, &public).map_err(about)?;
        let next = NextRoster::after(&bytes, operator, &public).map_err(about)?;
        let unix_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let now = before.epoch_of(unix_ms);
        Ok(Self { before, next, change, now })
    }

    /// Returns the epoch that a time option names, or `epochs` after the current one.
    fn epoch(&self, from: Option<When>, epochs: u64) -> EpochNumber {
        match from {
            Some(from) => from.epoch_after(self.before.calendar()),
            None => EpochNumber(self.now.0.saturating_add(epochs)),
        }
    }

    /// Signs and writes the new version, and reports it. `notes` are further lines of the report.
    fn write(self, what: &str, notes: &[String]) -> Result<(), Failure> {
        let Self { before, next, change, .. } = self;
        let bytes = next.issue().map_err(named)?;
        match &change.out {
            Some(out) => files::create(out, &bytes, 0o644)?,
            None => replace(&change.roster, &before, &bytes)?,
        }
        let out = change.out.as_ref().unwrap_or(&change.roster);
        let text = format!(
            "version {} of the roster of group {}: {what}: {}",
            next.version(),
            before.group_name(),
            out.display()
        );
        let lines = std::iter::once(text).chain(notes.iter().cloned());
        report_lines(lines, || {
            json!({
                "file": out.display().to_string(),
                "group": before.group_name(),
                "version": next.version(),
                "change": what,
                "notes": notes,
            })
        })
    }
}

/// Replaces a roster by its next version, unless another process has replaced it in the meantime.
fn replace(path: &Path, before: &Roster, bytes: &[u8]) -> Result<(), Failure> {
    if *files::read(path)? != before.bytes() {
        return Err(Failure::usage(format_args!(
            "{} was changed while this command ran; run the command again",
            path.display()
        )));
    }
    moteseal_files::replace(path, bytes, 0o644)
        .map_err(|error| Failure::file("write", path, &error))
}

pub(crate) fn add(arguments: &Add) -> Result<(), Failure> {
    let operator = files::secret_key(&arguments.change.operator)?;
    let mut draft = Draft::open(&arguments.change, &operator)?;
    let first = match arguments.from {
        None if !draft.before.has_budget() => draft.before.periods()[0].first_epoch,
        from => draft.epoch(from, 1),
    };
    let enrolled = arguments.enrolment.enrol()?;
    for (name, key) in enrolled.devices() {
        draft.next.add(name, key, first).map_err(named)?;
    }
    let what = format!(
        "{} added, from {}",
        count(enrolled.devices().len() as u64, "device"),
        start_text(&draft.before, first)
    );
    let again: Vec<&str> = enrolled
        .devices()
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| draft.before.devices().any(|device| device.name == *name))
        .collect();
    let secrets = match (&arguments.owner, &arguments.stream_keys) {
        (Some(path), Some(folder)) => {
            let mut owner = OwnerFile::read(path)?;
            owner.check_group(&draft.before)?;
            let group = draft.before.group_name();
            let devices: Vec<_> = enrolled
                .devices()
                .iter()
                .map(|(name, _)| (name.as_str(), DeviceId::of(group, name)))
                .collect();
            let columns = arguments.columns.encrypted()?;
            let copies = owner.add(&draft.before, &devices, first, &columns, folder)?;
            let made = secrets_made(devices.len(), columns.len(), folder);
            Some((owner, copies, made))
        }
        _ => None,
    };
    // The keys and secrets must exist before the roster names the devices.
    enrolled.write()?;
    if let Some((owner, copies, _)) = &secrets {
        owner.save(copies)?;
    }
    let notes = enrolled.note().into_iter().chain(secrets.map(|(_, _, made)| made));
    draft.write(&what, &notes.collect::<Vec<_>>())?;
    if !again.is_empty() {
        diagnostic(format_args!(
            "{} belonged to the group before: the secrets of links and private sums stay the same; if \
             another party may know them, use another name",
            again.join(", ")
        ));
    }
    Ok(())
}

pub(crate) fn remove(arguments: &Remove) -> Result<(), Failure> {
    let operator = files::secret_key(&arguments.change.operator)?;
    let mut draft = Draft::open(&arguments.change, &operator)?;
    let end = draft.epoch(arguments.from, 1);
    for name in &arguments.devices {
        files::device(&draft.before, &arguments.change.roster, name)?;
        draft.next.end(name, None, Some(end)).map_err(named)?;
    }
    let what = format!(
        "{} removed, from {}",
        arguments.devices.join(", "),
        start_text(&draft.before, end)
    );
    draft.write(&what, &[])
}

pub(crate) fn rotate(arguments: &Rotate) -> Result<(), Failure> {
    let operator = files::secret_key(&arguments.change.operator)?;
    let mut draft = Draft::open(&arguments.change, &operator)?;
    let first = draft.epoch(arguments.from, 2);
    let mut names = Vec::with_capacity(arguments.devices.len());
    for (name, path) in &arguments.devices {
        files::device(&draft.before, &arguments.change.roster, name)?;
        let key = files::device_public_key(name, path)?;
        draft.next.rotate(name, &key, first, SealIndex(0)).map_err(named)?;
        names.push(name.as_str());
    }
    let what =
        format!("new keys of {} from {}", names.join(", "), start_text(&draft.before, first));
    draft.write(&what, &[])
}

pub(crate) fn revoke(arguments: &Revoke) -> Result<(), Failure> {
    let operator = files::secret_key(&arguments.change.operator)?;
    let mut draft = Draft::open(&arguments.change, &operator)?;
    files::device(&draft.before, &arguments.change.roster, &arguments.device)?;
    let end_epoch = arguments.from.map(|from| from.epoch(draft.before.calendar()));
    let end_index = arguments.from_index.map(SealIndex);
    draft.next.end(&arguments.device, end_index, end_epoch).map_err(named)?;
    let mut what = format!("the newest key of {} is revoked", arguments.device);
    if let Some(index) = end_index {
        let _ = write!(what, ", from seal {index}");
    }
    if let Some(epoch) = end_epoch {
        let _ = write!(what, ", from {}", start_text(&draft.before, epoch));
    }
    draft.write(&what, &[])
}

pub(crate) fn set(arguments: &Set) -> Result<(), Failure> {
    let operator = files::secret_key(&arguments.change.operator)?;
    let mut draft = Draft::open(&arguments.change, &operator)?;
    let change = PeriodChange {
        epoch_ms: arguments.epoch,
        levels: arguments.levels,
        budget: arguments.budget.map(|budget| match budget {
            NewBudget::None => None,
            NewBudget::Events(events) => Some(events),
        }),
        coordinator: arguments.coordinator.as_deref().map(files::public_key).transpose()?,
    };
    let is_period = change.epoch_ms.is_some()
        || change.levels.is_some()
        || change.budget.is_some()
        || change.coordinator.is_some();
    let has_owners = !arguments.owners.is_empty() || !arguments.removed_owners.is_empty();
    if !is_period && arguments.querier.is_none() && !has_owners {
        return Err(Failure::usage(
            "nothing to change: give --epoch, --levels, --budget, --coordinator, --querier or --owner",
        ));
    }
    let mut whats = Vec::new();
    if is_period {
        let newest = draft.before.newest_period();
        let budget = change.budget.unwrap_or(newest.budget);
        if let (Some(budget), Some(expected)) = (budget, arguments.expected) {
            levels_suffice(change.levels.unwrap_or(newest.levels), budget, expected)?;
        }
        if budget.is_some() && change.coordinator.is_none() && newest.coordinator.is_none() {
            return Err(Failure::usage(
                "a budget needs a coordinator: give its public key with --coordinator",
            ));
        }
        let first = draft.epoch(arguments.from, 2);
        let start = start_text(&draft.before, first);
        // The keys of encrypted columns belong to the numbers of epochs, and devices erase those of the past.
        let has_keys = change.epoch_ms.is_some() && !draft.before.owners().is_empty();
        if first <= draft.now && has_keys && !arguments.force {
            let what = format_args!(
                "{start} is in the past, and devices with encrypted columns have erased the keys of its epochs; \
                 give a later --from, or --force and then new stream secrets (moteseal owner add --from)"
            );
            return Err(Failure::usage(what).with_name("PastEpochs"));
        }
        draft.next.begin_period(first, &change).map_err(named)?;
        if first <= draft.now {
            diagnostic(format_args!(
                "note: {start} is in the past; seals and manifests from then on that name an earlier version are no longer valid"
            ));
        }
        if has_keys {
            diagnostic(format_args!(
                "note: grants for the time from {start} on no longer open all of it; the owners must make them anew"
            ));
        }
        whats.push(format!("new parameters from {start}"));
    }
    if let Some(path) = &arguments.querier {
        draft.next.set_querier(&files::public_key(path)?).map_err(named)?;
        whats.push("new querier".to_owned());
    }
    for (name, path) in &arguments.owners {
        let key = files::public_key(path)?;
        let is_other = |owner: &&Owner| {
            owner.key == key
                && owner.name != *name
                && !arguments.removed_owners.contains(&owner.name)
        };
        if let Some(other) = draft.before.owners().iter().find(is_other) {
            return Err(Failure::usage(format_args!(
                "{} is the key of owner {}; make a separate key for each owner with `moteseal owner new`",
                path.display(),
                other.name
            )));
        }
        draft.next.set_owner(name, &key).map_err(named)?;
        whats.push(format!("owner {name}"));
    }
    for name in &arguments.removed_owners {
        draft.next.remove_owner(name).map_err(named)?;
        whats.push(format!("owner {name} removed"));
    }
    draft.write(&whats.join(", "), &[])
}

pub(crate) fn sanitiser(arguments: &SetSanitiser) -> Result<(), Failure> {
    let SetSanitiser { name, change, key, groups, devices, since, until, remove } = arguments;
    let operator = files::secret_key(&change.operator)?;
    let mut draft = Draft::open(change, &operator)?;
    let calendar = draft.before.calendar();
    let end_epoch = until.map(|until| until.epoch_after(calendar));
    let what = if *remove {
        draft.next.remove_sanitiser(name).map_err(named)?;
        format!("sanitiser {name} removed")
    } else if groups.is_empty() {
        let Some(end) = end_epoch else {
            return Err(Failure::usage("nothing to change: give --groups, --until or --remove"));
        };
        draft.next.end_sanitiser(name, end).map_err(named)?;
        format!("the rights of sanitiser {name} end at {}", start_text(&draft.before, end))
    } else {
        let devices = match &devices[..] {
            [] => None,
            names => Some(files::devices(&draft.before, &change.roster, names)?),
        };
        let right = SanitiserRight {
            devices,
            groups: groups.iter().fold(Groups::NONE, |all, group| all.with(*group)),
            first_epoch: since.map_or(EpochNumber(0), |since| since.epoch(calendar)),
            end_epoch,
        };
        let key = key.as_deref().map(files::public_key).transpose()?;
        draft.next.set_sanitiser(name, key.as_ref(), right).map_err(named)?;
        let had = draft.before.sanitisers().iter().find(|before| before.name == *name);
        if had.is_some_and(|before| key.as_ref().is_some_and(|key| *key != before.key)) {
            diagnostic(format_args!(
                "note: {name} has a new key; what the old key signed is refused from now on (NotAuthentic)"
            ));
        }
        format!("sanitiser {name}")
    };
    draft.write(&what, &[])
}
