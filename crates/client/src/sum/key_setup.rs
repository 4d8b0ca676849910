//! Creates the key files of private sums: one for the querier, and one for each device. The keys of
//! the devices are derived from the querier's keys.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::PublicKey;
use moteseal_sum::QuerierName;
use moteseal_sum::key_file::{Circle, MAX_KEY_FILE, Masked, QuerierKeys, SourceKeys};
use moteseal_sum::sies::{MaskRing, MaskRoot, MaskSecret};
use moteseal_verify::Roster;
use moteseal_verify::aggregation::TreeError;
use zeroize::Zeroizing;

use super::participants::Participants;
use super::prepare::{querier_keys, random, with_masks};
use crate::input::{InputError, check_querier, create};

/// The key files that [`setup`] created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFiles {
    /// `querier.sum.key`, which only the querier may have.
    pub querier: PathBuf,
    /// `NAME.sum.key` of each device, in the order of the roster. Only that device may have the
    /// file.
    pub devices: Vec<PathBuf>,
    /// The number of devices in a key group. The last group may have fewer.
    pub key_group: u32,
}

/// A key group to which [`renew_masks`] gave new masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewedRing {
    /// The key group.
    pub key_group: u32,
    /// The number of its devices that have masks now.
    pub sources: u32,
    /// The number of devices that have masks now and had none, or the other way round. The sums before
    /// and after the renewal differ by these devices.
    pub changed: u32,
}

/// Returns the default number of key groups of a group with this number of devices: the largest
/// number up to 8 with which each key group has at least 5 devices, also the last one, which may be
/// smaller than the others. A group of fewer devices has one key group.
#[must_use]
pub fn default_key_groups(devices: u32) -> u32 {
    let in_last = |groups: u32| devices.saturating_sub(devices.div_ceil(groups) * (groups - 1));
    (2..=8).rev().find(|groups| in_last(*groups) >= 5).unwrap_or(1)
}

/// Creates the key files of a roster's devices, and of the querier with this name and public key, in
/// the folder `out`. Calls `progress` after each device's file. Never replaces a file. Each querier of
/// a group needs a set-up of its own, with a name and a folder of its own.
///
/// The devices are divided into `key_groups` key groups, by default [`default_key_groups`]. An
/// attacker with a stolen device key can falsify only the sums of that device's key group. Each key
/// group adds 32 bytes per slot to the frames on the links above it.
///
/// With `masks`, the files of the devices also contain the secrets of masks, so that a querier that is
/// not trusted with the readings can open only the sums of whole key groups (spec/sums.md, section
/// 2.3). The querier's file does not contain them, and they are not stored elsewhere.
///
/// # Errors
/// [`InputError`] if the querier's name is not valid, if the roster has fewer devices than `key_groups`, if
/// a device's name cannot be a file name, or if a file exists or cannot be written.
pub fn setup(
    roster: &Roster,
    (name, querier): (&str, &PublicKey),
    out: &Path,
    key_groups: Option<u32>,
    masks: bool,
    progress: &mut dyn FnMut(),
) -> Result<KeyFiles, InputError> {
    let name = QuerierName::new(name).ok_or_else(|| {
        let error = TreeError::InvalidQuerierName(name.to_owned());
        InputError::usage(error.name(), error)
    })?;
    if name.is_default() {
        check_querier(roster, querier)?;
    }
    let devices: Vec<_> = roster.sources();
    let sources = u32::try_from(devices.len())
        .map_err(|_| InputError::argument("the roster has too many devices"))?;
    let key_groups = key_groups.unwrap_or_else(|| default_key_groups(sources));
    if key_groups == 0 || key_groups > sources {
        return Err(InputError::argument(format_args!(
            "cannot create {key_groups} key groups; choose a number from 1 to the number of \
             devices, {sources}"
        )));
    }
    let key_group = sources.div_ceil(key_groups);
    let circle =
        Circle { group: roster.group(), roster: roster.first_digest(), sources, key_group };
    let files = KeyFiles {
        querier: out.join("querier.sum.key"),
        devices: devices
            .iter()
            .map(|device| Ok(out.join(file_of(&device.name)?)))
            .collect::<Result<_, _>>()?,
        key_group,
    };
    check_free(&files)?;
    let mut secret = Zeroizing::new([0; 32]);
    random(&mut *secret)?;
    let mut pem = Zeroizing::new([0; MAX_KEY_FILE]);
    let masked = masks.then(|| Masked::all(sources)).transpose().map_err(InputError::internal)?;
    let text = QuerierKeys::encode(&circle, (&name, querier), &secret, masked.as_ref(), &mut *pem)
        .map_err(InputError::internal)?;
    let keys = QuerierKeys::decode(text.as_bytes()).map_err(InputError::internal)?;
    moteseal_files::create_folder(out).map_err(|error| InputError::io("write", out, &error))?;
    // Write the querier's file first, because the devices' keys are useless without it.
    create(&files.querier, text.as_bytes(), 0o600)?;
    let root = mask_root()?;
    for ((position, device), path) in (0..).zip(&devices).zip(&files.devices) {
        let positions = circle.ring(position);
        let of_device = || {
            (root.source(circle.group, positions.clone(), position), MaskRing::of(Some(positions)))
        };
        write_device(&keys, device.id, position, masks.then(of_device), path)?;
        progress();
    }
    Ok(files)
}

/// Returns a new secret from which masks are derived. It is not stored.
fn mask_root() -> Result<MaskRoot, InputError> {
    let mut root = Zeroizing::new([0; 32]);
    random(&mut *root)?;
    Ok(MaskRoot::new(*root))
}

/// Makes new masks for the key groups of the devices with the names `changed`, after devices have joined
/// or left, or were replaced. Writes into the folder `out` a new key file for each device of these key
/// groups that takes part at the time `unix_ms`, and one for the querier. `querier` is the querier's
/// present key file. The keys and the files of other devices do not change. Never replaces a file.
///
/// # Errors
/// [`InputError`] if the querier's file cannot be read, is for another group or has no masks, if the
/// roster has no device with one of the names, if no device of a key group takes part, or if a file
/// exists or cannot be written.
pub fn renew_masks(
    roster: &Roster,
    querier: &Path,
    changed: &[String],
    out: &Path,
    unix_ms: u64,
) -> Result<(KeyFiles, Vec<RenewedRing>), InputError> {
    let keys = present_keys(roster, querier)?;
    if keys.masked.is_none() {
        let what = "the set-up made no masks; set up the sums with --masks";
        return Err(InputError::argument(what));
    }
    let (devices, circle) = (roster.sources(), keys.circle);
    let rings = rings(roster, &circle, changed, unix_ms)?;
    let before = with_masks(&keys, circle.sources);
    let mut after = Participants::none(circle.sources);
    before
        .iter()
        .filter(|position| !rings.contains_key(&(position / circle.key_group)))
        .chain(rings.values().flat_map(Participants::iter))
        .for_each(|position| after.insert(position..position + 1));
    let masked = Masked::new(|| after.runs()).map_err(|_| {
        InputError::argument("too many separate devices have masks; set up the sums again")
    })?;
    let renewed = rings.iter().map(|(key_group, ring)| RenewedRing {
        key_group: *key_group,
        sources: ring.count(),
        changed: circle
            .ring(key_group * circle.key_group)
            .map(|position| u32::from(before.contains(position) != ring.contains(position)))
            .sum(),
    });
    let renewed = renewed.collect();
    let members = || rings.values().flat_map(Participants::iter).map(|at| devices[at as usize]);
    let files = KeyFiles {
        querier: out.join("querier.sum.key"),
        devices: members()
            .map(|device| Ok(out.join(file_of(&device.name)?)))
            .collect::<Result<_, _>>()?,
        key_group: circle.key_group,
    };
    check_free(&files)?;
    moteseal_files::create_folder(out).map_err(|error| InputError::io("write", out, &error))?;
    let mut pem = Zeroizing::new([0; MAX_KEY_FILE]);
    let secret = keys.master.to_bytes();
    let of = (&keys.name, &keys.querier);
    let text = QuerierKeys::encode(&circle, of, &secret, Some(&masked), &mut *pem)
        .map_err(InputError::internal)?;
    create(&files.querier, text.as_bytes(), 0o600)?;
    let root = mask_root()?;
    let mut paths = files.devices.iter();
    for members in rings.values() {
        let ring = MaskRing::of(members.runs());
        for (position, path) in members.iter().zip(&mut paths) {
            let masks = (root.source(circle.group, members.iter(), position), ring);
            write_device(&keys, devices[position as usize].id, position, Some(masks), path)?;
        }
    }
    Ok((files, renewed))
}

/// Returns the key groups of the devices with these names, and of each the devices that take part at a
/// time.
fn rings(
    roster: &Roster,
    circle: &Circle,
    names: &[String],
    unix_ms: u64,
) -> Result<BTreeMap<u32, Participants>, InputError> {
    let (devices, epoch) = (roster.sources(), roster.epoch_of(unix_ms));
    let mut rings = BTreeMap::new();
    for name in names {
        let position = (0..).zip(&devices).find(|(_, device)| device.name == *name);
        let (position, _) = position.ok_or_else(|| {
            InputError::usage("UnknownDevice", format_args!("the roster has no device {name:?}"))
        })?;
        let mut members = Participants::none(circle.sources);
        circle
            .ring(position)
            .filter(|at| devices[*at as usize].takes_part_in(epoch))
            .for_each(|at| members.insert(at..at + 1));
        if members.count() == 0 {
            let what = format_args!("no device of the key group of {name} takes part now");
            return Err(InputError::argument(what));
        }
        rings.insert(position / circle.key_group, members);
    }
    Ok(rings)
}

/// Reads the querier's key file, for the number of devices and the querier of a roster.
fn present_keys(roster: &Roster, querier: &Path) -> Result<QuerierKeys, InputError> {
    let mut keys = querier_keys(querier, roster)?;
    let sources = u32::try_from(roster.sources().len())
        .map_err(|_| InputError::argument("the roster has too many devices"))?;
    if sources < keys.circle.sources {
        let what = format_args!(
            "the roster has {sources} devices, and the key file is for {}; use a later version of the roster",
            keys.circle.sources
        );
        return Err(InputError::usage("NotLater", what));
    }
    keys.circle.sources = sources;
    if let Some(key) = roster.querier().filter(|_| keys.name.is_default()) {
        keys.querier = key.clone();
    }
    Ok(keys)
}

/// Checks that none of the files exists.
fn check_free(files: &KeyFiles) -> Result<(), InputError> {
    match files.devices.iter().chain([&files.querier]).find(|path| path.exists()) {
        Some(taken) => Err(InputError::file(format_args!(
            "{} already exists; keys are never replaced",
            taken.display()
        ))),
        None => Ok(()),
    }
}

/// Creates the key files of the devices of a roster that have none in the folder `out`: those that
/// joined the group after [`setup`] was called. `querier` is the querier's key file. Calls
/// `progress` after each device of the roster. Returns the new files, in the order in which the
/// devices joined.
///
/// # Errors
/// [`InputError`] if the querier's file cannot be read or is for another group, if a device's name
/// cannot be a file name, or if a file cannot be written.
pub fn add(
    roster: &Roster,
    querier: &Path,
    out: &Path,
    progress: &mut dyn FnMut(),
) -> Result<Vec<PathBuf>, InputError> {
    let keys = present_keys(roster, querier)?;
    let devices = roster.sources();
    let masked = with_masks(&keys, keys.circle.sources);
    let paths = devices.iter().map(|device| Ok(out.join(file_of(&device.name)?)));
    let paths = paths.collect::<Result<Vec<_>, InputError>>()?;
    moteseal_files::create_folder(out).map_err(|error| InputError::io("write", out, &error))?;
    let mut added = Vec::new();
    for ((position, device), path) in (0..).zip(&devices).zip(paths) {
        if !path.exists() {
            if masked.contains(position) {
                return Err(InputError::file(format_args!(
                    "{} is missing, and its masks cannot be made again; copy it from a backup, or make \
                     new masks for its key group with --renew-masks {}",
                    path.display(),
                    device.name
                )));
            }
            write_device(&keys, device.id, position, None, &path)?;
            added.push(path);
        }
        progress();
    }
    Ok(added)
}

/// Writes the key file of the device at a position.
fn write_device(
    keys: &QuerierKeys,
    device: DeviceId,
    position: u32,
    masks: Option<(MaskSecret, MaskRing)>,
    path: &Path,
) -> Result<(), InputError> {
    let mut pem = Zeroizing::new([0; MAX_KEY_FILE]);
    let source = SourceKeys { masks, ..keys.source(device, position) };
    let text = source.encode(&mut *pem).map_err(InputError::internal)?;
    create(path, text.as_bytes(), 0o600)
}

/// Returns the file name of a device's keys.
fn file_of(name: &str) -> Result<String, InputError> {
    if name.contains(['/', '\0']) || name.starts_with('.') || name == "querier" {
        return Err(InputError::argument(format_args!(
            "the name of the roster's device {name:?} cannot be used as a file name; rename the device"
        )));
    }
    Ok(format!("{name}.sum.key"))
}

#[cfg(test)]
mod tests {
    use super::default_key_groups;

    #[test]
    fn a_key_group_has_at_least_five_devices_by_default() {
        for (devices, groups) in [(1, 1), (9, 1), (10, 2), (39, 5), (40, 8), (10_000, 8)] {
            assert_eq!(default_key_groups(devices), groups, "{devices}");
        }
        for devices in 1..1000 {
            let groups = default_key_groups(devices);
            let last = devices - devices.div_ceil(groups) * (groups - 1);
            assert!(groups == 1 || last >= 5, "{devices} devices, {groups} key groups");
        }
        assert_eq!(default_key_groups(u32::MAX), 8);
    }
}
