//! What an owner does after its devices have their secrets: `moteseal owner add-columns`, `moteseal owner
//! copy` and `moteseal owner rotate-key`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use moteseal_client::start_text;
use moteseal_core::confidential::{ColumnId, KeyAccessError, KeyRequest};
use moteseal_core::record::DeviceId;
use moteseal_core::schema::Schema;
use moteseal_device::runner::system_clock;
use moteseal_grant::{Owner, OwnerError, Stream, encode_stream_secret};
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, Proven, ReadError, Roster, StreamReader};
use serde_json::json;

use super::files::{OLD_BACKUPS, OwnerFile, copy_path};
use super::{AddColumns, Copy, RotateKey, failure, new_key, write_public};
use crate::device_name::{name_of, with_name};
use crate::failure::{Exit, Failure};
use crate::grant::owned_devices;
use crate::progress::count;
use crate::terminal::{diagnostic, report_lines};

/// The number of bytes that are read from a file at once.
const PIECE: usize = 1 << 16;

pub(super) fn add_columns(arguments: &AddColumns) -> Result<(), Failure> {
    let (mut file, roster) = arguments.group.read()?;
    let devices = arguments.devices.iter();
    let devices: Vec<DeviceId> = devices
        .map(|name| crate::files::device(&roster, &arguments.group.roster, name))
        .collect::<Result<_, _>>()?;
    let before = columns_of(&file.owner);
    if arguments.seals.is_empty() {
        if devices.is_empty() {
            return Err(Failure::usage(
                "the columns are missing; name bundles or a proof with --seals FILE, or a device and all of its \
                 columns with --device and --column",
            ));
        }
        let columns = arguments.columns.encrypted()?;
        let columns: Vec<(ColumnId, &str)> =
            columns.iter().map(|(id, name)| (*id, name.as_str())).collect();
        for device in &devices {
            let added = file.owner.add_columns(*device, &columns);
            if let Err(error) = added {
                return Err(failure(&file.owner, &roster, error));
            }
        }
    } else if arguments.columns.is_given() {
        let what = "the columns are in the seals; give --seals without --column, or --column without --seals";
        return Err(Failure::usage(what));
    }
    let mut sealed = Sealed { may_move: arguments.move_columns, ..Sealed::default() };
    for path in &crate::verify::expand(&arguments.seals)? {
        sealed.add_from(path, &mut file.owner, &roster, &devices)?;
    }
    if !arguments.seals.is_empty() {
        check_seen(&file.owner, &roster, &devices, &sealed.seen)?;
    }
    let added: Vec<_> = columns_of(&file.owner).difference(&before).cloned().collect();
    if !added.is_empty() || !sealed.moved.is_empty() {
        file.save(&[])?;
    }
    let mut lines: Vec<String> = added
        .iter()
        .map(|(device, name)| format!("{}  {name}", name_of(&roster, *device)))
        .collect();
    let moved = sealed.moved.iter();
    lines.extend(
        moved.map(|(device, name)| format!("{}  {name}  moved", name_of(&roster, *device))),
    );
    lines.push(match added.len() {
        0 if sealed.moved.is_empty() => {
            "no new columns: the owner has all of them already".to_owned()
        }
        number => format!("{} added", count(number as u64, "column")),
    });
    if !added.is_empty() {
        lines.push(OLD_BACKUPS.to_owned());
    }
    lines.extend(forgotten_again(&file.owner, &roster, &added));
    report_lines(lines, || {
        let column = |(device, name): &(DeviceId, String)| json!([name_of(&roster, *device), name]);
        json!({
            "added": added.iter().map(column).collect::<Vec<_>>(),
            "moved": sealed.moved.iter().map(column).collect::<Vec<_>>(),
        })
    })?;
    sealed.refusal()
}

/// Returns, for each device, what to do if added columns have keys of a time that the owner had forgotten. The
/// command erases nothing else: a time before the one that was forgotten is replaced by that one.
fn forgotten_again(owner: &Owner, roster: &Roster, added: &[(DeviceId, String)]) -> Vec<String> {
    let devices: BTreeSet<DeviceId> = added.iter().map(|(device, _)| *device).collect();
    let line = |device: DeviceId| {
        let streams = owner.streams().iter().filter(|stream| stream.device() == device);
        let again = streams.filter(|stream| stream.keeps_forgotten());
        let before = again.filter_map(Stream::forgotten).min()?;
        let name = name_of(roster, device);
        Some(format!(
            "the owner's file has keys of added columns of {name} from before the time that was forgotten; erase them \
             when all columns are added: moteseal owner forget --device {name} --before {}",
            start_text(roster, before)
        ))
    };
    devices.into_iter().filter_map(line).collect()
}

/// Checks that the files have seals of each chosen device, or of a device of the owner. `seen` has the
/// devices of all seals.
fn check_seen(
    owner: &Owner,
    roster: &Roster,
    chosen: &[DeviceId],
    seen: &BTreeSet<DeviceId>,
) -> Result<(), Failure> {
    let names = || seen.iter().map(|of| name_of(roster, *of)).collect::<Vec<_>>().join(", ");
    if let Some(device) = chosen.iter().find(|device| !seen.contains(device)) {
        return Err(Failure::usage(format_args!(
            "--seals has no seal of {}, but of {}; name a file with its seals",
            name_of(roster, *device),
            names()
        )));
    }
    if seen.iter().any(|device| !owner.streams_of(*device).is_empty()) {
        return Ok(());
    }
    let text = format!(
        "the owner {} has no stream secret of {}, which sealed the files{}",
        owner.name(),
        names(),
        owned_devices(owner, roster)
    );
    Err(Failure::usage(text).with_name("NotOwned"))
}

/// Returns the devices and the names of their columns.
fn columns_of(owner: &Owner) -> BTreeSet<(DeviceId, String)> {
    let streams = owner.streams().iter();
    let columns = streams.flat_map(|stream| {
        stream.columns().iter().map(|column| (stream.device(), column.name.clone()))
    });
    columns.collect()
}

/// What became of the columns of seals.
#[derive(Default)]
struct Sealed {
    /// Whether a column may be moved to the batch of a seal.
    may_move: bool,
    /// The devices of all seals.
    seen: BTreeSet<DeviceId>,
    /// The devices and the names of the columns that were moved.
    moved: BTreeSet<(DeviceId, String)>,
    /// The first failure of each device, column and name of an error.
    failures: BTreeMap<(DeviceId, String, &'static str), Failure>,
}

impl Sealed {
    /// Adds the encrypted columns of the verified seals in a file. Seals of devices that are not chosen are
    /// ignored; without a choice, those of devices that the owner does not have. A column that cannot be
    /// added does not stop the others.
    fn add_from(
        &mut self,
        path: &Path,
        owner: &mut Owner,
        roster: &Roster,
        chosen: &[DeviceId],
    ) -> Result<(), Failure> {
        let fail = |error: std::io::Error| Failure::file("read", path, &error);
        let mut file = crate::verify::open(path)?;
        let mut reader = StreamReader::new(roster, Limits::default());
        if file.is_proof() {
            reader = reader.of_proof();
        }
        let mut seen = BTreeSet::new();
        let mut visit = |event: Event<'_>| -> Result<(), ReadError> {
            let Event::Proven(proven) = event else { return Ok(()) };
            let device = proven.seal.statement().device;
            self.seen.insert(device);
            let is_wanted = if chosen.is_empty() {
                !owner.streams_of(device).is_empty()
            } else {
                chosen.contains(&device)
            };
            // All seals of an epoch have their keys from the same epoch keys.
            let place = (device, proven.schema.digest.0, proven.seal.statement().epoch);
            if is_wanted && seen.insert(place) {
                self.add_seal(owner, &proven, roster, path);
            }
            Ok(())
        };
        let mut piece = vec![0; PIECE];
        let result = loop {
            let length = file.read(&mut piece).map_err(fail)?;
            if length == 0 {
                break reader.finish(&mut visit);
            }
            if let Err(error) = reader.feed(&piece[..length], &mut visit) {
                break Err(error);
            }
        };
        result.map_err(|error| {
            Failure::new(Exit::Refused, &error).with_name(error.name()).about(path)
        })
    }

    fn add_seal(&mut self, owner: &mut Owner, proven: &Proven<'_>, roster: &Roster, path: &Path) {
        let statement = proven.seal.statement();
        let (Some(keys), Ok(schema)) = (&statement.keys, Schema::decode(&proven.schema.bytes))
        else {
            return;
        };
        for ((field, column), commitment) in schema.encrypted_columns().zip(keys.commitments()) {
            let Some(suite) = field.suite else { continue };
            let seal = KeyRequest {
                device: statement.device,
                column,
                epoch: statement.epoch,
                index: statement.index,
                suite,
                nonce: keys.nonce(),
            };
            let (device, name) = (statement.device, field.name);
            match owner.add_sealed_column(&seal, commitment, name) {
                // The owner has forgotten the keys of the epoch.
                Ok(_) | Err(OwnerError::Access(KeyAccessError::EpochOutOfKeyRange)) => {}
                Err(OwnerError::ColumnMoved { .. }) if self.may_move => {
                    match owner.move_sealed_column(&seal, commitment, name) {
                        Ok(_) => _ = self.moved.insert((device, name.to_owned())),
                        Err(error) => self.fail(&error, (device, name), roster, path),
                    }
                }
                Err(error) => self.fail(&error, (device, name), roster, path),
            }
        }
    }

    fn fail(
        &mut self,
        error: &OwnerError,
        (device, column): (DeviceId, &str),
        roster: &Roster,
        path: &Path,
    ) {
        let mut text = with_name(roster, device, &error.to_string());
        if let OwnerError::ColumnMoved { .. } = error {
            text +=
                "; with --move, grants open the seals from this one on, and no longer those before";
        }
        let failure = || {
            let of = format!("{}: column {column}", name_of(roster, device));
            Failure::usage(text).with_name(error.name()).of(of).about(path)
        };
        self.failures.entry((device, column.to_owned(), error.name())).or_insert_with(failure);
    }

    /// Returns the first failure, if there is one. Prints the others.
    fn refusal(self) -> Result<(), Failure> {
        let mut failures = self.failures.into_values();
        let Some(mut first) = failures.next() else { return Ok(()) };
        let others = failures.map(|other| diagnostic(format_args!("{other}"))).count() as u64;
        if others > 0 {
            first.add(format_args!("; {} in all were not added", count(others + 1, "column")));
        }
        Err(first)
    }
}

pub(super) fn rotate_key(arguments: &RotateKey) -> Result<(), Failure> {
    let mut file = OwnerFile::read(&arguments.owner)?;
    let public = file.owner.rotate_key(new_key(&arguments.alg)?);
    // The public key first: it cannot be written again once the file has the new key.
    write_public(&arguments.out, &public)?;
    if let Err(error) = file.save(&[]) {
        if file.is_as_before() {
            let _ = std::fs::remove_file(&arguments.out);
        }
        return Err(error);
    }
    let (owner, out) = (arguments.owner.display(), arguments.out.display());
    let lines = [
        format!("owner       {owner} has a new key"),
        format!("public key  {out}"),
        format!(
            "the operator lists it: moteseal roster set --owner {}={out} ..; then make the grants that \
             shall stay valid, and a backup, anew",
            file.owner.name()
        ),
    ];
    report_lines(lines, || json!({ "owner": owner.to_string(), "public_key": out.to_string() }))
}

pub(super) fn copy(arguments: &Copy) -> Result<(), Failure> {
    let (file, roster) = arguments.group.read()?;
    crate::files::create_folder(&arguments.keys)?;
    let at = arguments.at.map_or_else(
        || roster.calendar().epoch_of(system_clock()),
        |at| at.epoch(roster.calendar()),
    );
    let mut copies = Vec::with_capacity(arguments.devices.len());
    let mut notes = Vec::new();
    let names: BTreeSet<&String> = arguments.devices.iter().collect();
    for name in names {
        let device = crate::files::device(&roster, &arguments.group.roster, name)?;
        let later = file.owner.streams_of(device).iter().find(|stream| stream.base() > at);
        notes.extend(later.map(|later| {
            let start = start_text(&roster, later.base());
            format!(
                "{name} has another secret from {start} on: repeat the command then, or with --at"
            )
        }));
        let secret = file.owner.copy_of(device, at);
        let secret = secret.map_err(|error| failure(&file.owner, &roster, error))?;
        let path = copy_path(&arguments.keys, name);
        crate::files::check_absent(&path)?;
        copies.push((path, encode_stream_secret(device, secret)));
    }
    for (path, text) in &copies {
        crate::files::create(path, text.as_bytes(), moteseal_files::PRIVATE)?;
    }
    let folder = arguments.keys.display();
    let text = format!(
        "stream secrets of {}: {folder}; give each device its own file and delete it here",
        count(copies.len() as u64, "device")
    );
    report_lines(
        [text].into_iter().chain(notes),
        || json!({ "folder": folder.to_string(), "devices": arguments.devices }),
    )
}
