//! Creates the key files of private sums: one for the querier, and one for each device. The keys of
//! the devices are derived from the querier's keys.

use std::path::{Path, PathBuf};

use moteseal_core::record::DeviceId;
use moteseal_core::roster::Directory as _;
use moteseal_core::signature::PublicKey;
use moteseal_sum::key_file::{Circle, MAX_KEY_FILE, QuerierKeys, SourceKeys};
use moteseal_sum::sies::{MaskRoot, MaskSecret};
use moteseal_verify::Roster;
use zeroize::Zeroizing;

use super::prepare::{querier_keys, random};
use crate::input::{InputError, create};

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

/// Returns the default number of key groups of a group with this number of devices: the largest
/// number up to 8 with which each key group has at least 5 devices, also the last one, which may be
/// smaller than the others. A group of fewer devices has one key group.
#[must_use]
pub fn default_key_groups(devices: u32) -> u32 {
    let in_last = |groups: u32| devices.saturating_sub(devices.div_ceil(groups) * (groups - 1));
    (2..=8).rev().find(|groups| in_last(*groups) >= 5).unwrap_or(1)
}

/// Creates the key files of a roster's devices, and of the querier with the public key `querier`,
/// in the folder `out`. Calls `progress` after each device's file. Never replaces a file.
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
/// [`InputError`] if the roster has fewer devices than `key_groups`, if a device's name cannot be a
/// file name, or if a file exists or cannot be written.
pub fn setup(
    roster: &Roster,
    querier: &PublicKey,
    out: &Path,
    key_groups: Option<u32>,
    masks: bool,
    progress: &mut dyn FnMut(),
) -> Result<KeyFiles, InputError> {
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
    if let Some(taken) = files.devices.iter().chain([&files.querier]).find(|path| path.exists()) {
        return Err(InputError::file(format_args!(
            "{} already exists; keys are never replaced",
            taken.display()
        )));
    }
    let mut secret = Zeroizing::new([0; 32]);
    random(&mut *secret)?;
    let mut pem = Zeroizing::new([0; MAX_KEY_FILE]);
    let text = QuerierKeys::encode(&circle, querier, &secret, masks, &mut *pem)
        .map_err(InputError::internal)?;
    let keys = QuerierKeys::decode(text.as_bytes()).map_err(InputError::internal)?;
    moteseal_files::create_folder(out).map_err(|error| InputError::io("write", out, &error))?;
    // Write the querier's file first, because the devices' keys are useless without it.
    create(&files.querier, text.as_bytes(), 0o600)?;
    let mut root = Zeroizing::new([0; 32]);
    random(&mut *root)?;
    let root = MaskRoot::new(*root);
    for ((position, device), path) in (0..).zip(&devices).zip(&files.devices) {
        let of_device = || root.source(circle.group, circle.ring(position), position);
        write_device(&keys, device.id, position, masks.then(of_device), path)?;
        progress();
    }
    Ok(files)
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
    let mut keys = querier_keys(querier, roster)?;
    let devices = roster.sources();
    let before = keys.circle.sources;
    keys.circle.sources = u32::try_from(devices.len())
        .map_err(|_| InputError::argument("the roster has too many devices"))?;
    if let Some(key) = roster.querier() {
        keys.querier = key.clone();
    }
    let paths = devices.iter().map(|device| Ok(out.join(file_of(&device.name)?)));
    let paths = paths.collect::<Result<Vec<_>, InputError>>()?;
    moteseal_files::create_folder(out).map_err(|error| InputError::io("write", out, &error))?;
    let mut added = Vec::new();
    for ((position, device), path) in (0..).zip(&devices).zip(paths) {
        if !path.exists() {
            if keys.has_masks && position < before {
                return Err(InputError::file(format_args!(
                    "{} is missing, and its masks cannot be made again; copy it from a backup, or set up \
                     the sums again",
                    path.display()
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
    masks: Option<MaskSecret>,
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
