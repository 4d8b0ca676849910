//! What an owner does after its devices have their secrets: `moteseal owner add-columns` and
//! `moteseal owner copy`.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use moteseal_core::confidential::{ColumnId, KeyAccessError, KeyRequest};
use moteseal_core::record::DeviceId;
use moteseal_core::schema::Schema;
use moteseal_grant::{Owner, OwnerError, encode_stream_secret};
use moteseal_seal::follow::Limits;
use moteseal_verify::{Event, Proven, ReadError, Roster, StreamReader};
use serde_json::json;

use super::files::{OLD_BACKUPS, copy_path};
use super::{AddColumns, Copy, failure};
use crate::device_name::with_name;
use crate::failure::{Exit, Failure};
use crate::progress::count;
use crate::terminal::report_lines;

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
        let columns = arguments.columns.encrypted()?;
        let columns: Vec<(ColumnId, &str)> =
            columns.iter().map(|(id, name)| (*id, name.as_str())).collect();
        for device in &devices {
            let added = file.owner.add_columns(*device, &columns);
            added.map_err(|error| failure(&roster, error))?;
        }
    } else if arguments.columns.is_given() {
        let what = "the columns are in the seals; give --seals without --column, or --column without --seals";
        return Err(Failure::usage(what));
    }
    let mut is_moved = false;
    for path in &arguments.seals {
        is_moved |= add_from(path, &mut file.owner, &roster, &devices)?;
    }
    let added: Vec<_> = columns_of(&file.owner).difference(&before).cloned().collect();
    if !added.is_empty() || is_moved {
        file.save(&[])?;
    }
    let mut lines: Vec<String> = added
        .iter()
        .map(|(device, name)| format!("{}  {name}", name_of(&roster, *device)))
        .collect();
    lines.push(format!("{} added", count(added.len() as u64, "column")));
    if !added.is_empty() {
        lines.push(OLD_BACKUPS.to_owned());
    }
    report_lines(lines, || {
        let column = |(device, name): &(DeviceId, String)| json!([name_of(&roster, *device), name]);
        json!({ "added": added.iter().map(column).collect::<Vec<_>>() })
    })
}

fn name_of(roster: &Roster, device: DeviceId) -> String {
    roster.name(device).map_or_else(|| device.to_string(), str::to_owned)
}

/// Returns the devices and the names of their columns.
fn columns_of(owner: &Owner) -> BTreeSet<(DeviceId, String)> {
    let streams = owner.streams().iter();
    let columns = streams.flat_map(|stream| {
        stream.columns().iter().map(|column| (stream.device(), column.name.clone()))
    });
    columns.collect()
}

/// Why the columns of a file were not added.
enum Stopped {
    Read(ReadError),
    Owner(OwnerError, String, DeviceId),
}

impl From<ReadError> for Stopped {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

/// Adds the encrypted columns of the verified seals in a file. Seals of devices that are not chosen are
/// ignored; without a choice, those of devices that the owner does not have. Returns whether anything
/// was changed.
fn add_from(
    path: &Path,
    owner: &mut Owner,
    roster: &Roster,
    chosen: &[DeviceId],
) -> Result<bool, Failure> {
    let fail = |error: std::io::Error| Failure::file("read", path, &error);
    let mut file = crate::verify::open(path)?;
    let mut reader = StreamReader::new(roster, Limits::default());
    if file.is_proof() {
        reader = reader.of_proof();
    }
    let (mut is_changed, mut seen) = (false, BTreeSet::new());
    let mut visit = |event: Event<'_>| -> Result<(), Stopped> {
        let Event::Proven(proven) = event else { return Ok(()) };
        let device = proven.seal.statement().device;
        let is_wanted = if chosen.is_empty() {
            !owner.streams_of(device).is_empty()
        } else {
            chosen.contains(&device)
        };
        // All seals of an epoch have their keys from the same epoch keys.
        let place = (device, proven.schema.digest.0, proven.seal.statement().epoch);
        if is_wanted && seen.insert(place) {
            is_changed |= add_seal(owner, &proven)?;
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
    match result {
        Ok(()) => Ok(is_changed),
        Err(Stopped::Read(error)) => {
            Err(Failure::new(Exit::Refused, &error).with_name(error.name()).about(path))
        }
        Err(Stopped::Owner(error, column, device)) => {
            let text = with_name(roster, device, &error.to_string());
            let of = format!("{}: column {column}", name_of(roster, device));
            Err(Failure::usage(text).with_name(error.name()).of(of).about(path))
        }
    }
}

fn add_seal(owner: &mut Owner, proven: &Proven<'_>) -> Result<bool, Stopped> {
    let statement = proven.seal.statement();
    let (Some(keys), Ok(schema)) = (&statement.keys, Schema::decode(&proven.schema.bytes)) else {
        return Ok(false);
    };
    let mut is_changed = false;
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
        match owner.add_sealed_column(&seal, commitment, field.name) {
            Ok(added) => is_changed |= added,
            // The owner has forgotten the keys of the epoch.
            Err(OwnerError::Access(KeyAccessError::EpochOutOfKeyRange)) => {}
            Err(error) => {
                return Err(Stopped::Owner(error, field.name.to_owned(), statement.device));
            }
        }
    }
    Ok(is_changed)
}

pub(super) fn copy(arguments: &Copy) -> Result<(), Failure> {
    let (file, roster) = arguments.group.read()?;
    crate::files::create_folder(&arguments.keys)?;
    let mut copies = Vec::with_capacity(arguments.devices.len());
    for name in &arguments.devices {
        let device = crate::files::device(&roster, &arguments.group.roster, name)?;
        let secret = file.owner.copy_of(device).map_err(|error| failure(&roster, error))?;
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
    report_lines([text], || json!({ "folder": folder.to_string(), "devices": arguments.devices }))
}
