//! Pinned seals: the newest seal of each device that this client has verified. A later response
//! that omits or contradicts a pinned seal is rejected (`Missing`, `Equivocation`). A cloud
//! therefore cannot withhold the end of a device's chain without being detected.
//!
//! The newest version of the group's roster is pinned, too: a client that has used it refuses an
//! earlier version ([`RosterNotLater`]). A seal that the newest version makes void or outdated is no
//! longer pinned.
//!
//! The newest signed reading of each device is pinned as well ([`PinnedSeals::check_reading`]).
//!
//! The file is small JSON and is replaced atomically. It contains no secrets. Deleting it is safe;
//! the client only loses this protection until it pins seals again.

mod readings;
mod rosters;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::error::{Error, OutputError};
use crate::output::AtomicFile;
use readings::Readings;
pub use readings::{OlderReading, PinnedReading};
use rosters::Rosters;
pub use rosters::{PinnedRoster, RosterNotLater};

/// The maximum size of a file of pinned seals, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// A seal that was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinnedSeal {
    /// The seal's index.
    pub index: SealIndex,
    /// The seal's epoch.
    pub epoch: EpochNumber,
    /// The seal's digest.
    pub digest: Digest,
    /// The version of the roster that the seal names; `None` if it was pinned by a version of this
    /// program that did not record it.
    pub roster: Option<u32>,
}

/// The file of pinned seals to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PinFile {
    /// No file. Pinned seals and rosters are neither used nor saved.
    None,
    /// The group's file in the user's state directory ([`PinnedSeals::default_path`]).
    #[default]
    Default,
    /// The file at this path.
    At(PathBuf),
}

impl PinFile {
    /// Returns the path of the file. Returns `None` for [`None`](Self::None), or if the user has no
    /// home directory.
    #[must_use]
    pub fn path(&self, roster: &Roster) -> Option<PathBuf> {
        match self {
            Self::None => None,
            Self::Default => PinnedSeals::default_path(roster),
            Self::At(path) => Some(path.clone()),
        }
    }

    /// Reads the file, and pins the roster ([`PinnedSeals::pin_roster`]). Returns `None` if
    /// [`path`](Self::path) returns `None`.
    ///
    /// # Errors
    /// [`Error::Output`], as for [`PinnedSeals::open`]; [`Error::RosterNotLater`], as for
    /// [`PinnedSeals::pin_roster`].
    pub fn open(&self, roster: &Roster) -> Result<Option<PinnedSeals>, Error> {
        let Some(path) = self.path(roster) else { return Ok(None) };
        let mut pinned = PinnedSeals::open(&path)?;
        pinned.pin_roster(roster)?;
        Ok(Some(pinned))
    }
}

/// The newest verified seal of each device, and the newest version of each group's roster. A device
/// is identified by the digest of its first certificate, and a group by its id and the operator's
/// public key, so that devices and groups with the same name under different operators are distinct.
#[derive(Clone, Debug, Default)]
pub struct PinnedSeals {
    path: Option<PathBuf>,
    newest: BTreeMap<Digest, PinnedSeal>,
    /// The digests of the seals that were pinned and that the roster no longer accepts.
    dropped: BTreeSet<Digest>,
    rosters: Rosters,
    readings: Readings,
    /// Whether there is something that [`save`](Self::save) has not saved.
    unsaved: bool,
}

impl PinnedSeals {
    /// Creates a collection of pinned seals without a file. [`save`](Self::save) then does nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the default file of a roster's group: `moteseal/GROUP.json` in the user's state
    /// directory (`$XDG_STATE_HOME`, or `~/.local/state` if that is not set). Returns `None` if the
    /// user has no home directory.
    #[must_use]
    pub fn default_path(roster: &Roster) -> Option<PathBuf> {
        use moteseal_core::roster::Directory;
        let absolute =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
        Some(state.join("moteseal").join(format!("{}.json", roster.group())))
    }

    /// Reads a file of pinned seals. A file that does not exist yet counts as empty.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be read, or does not contain pinned seals.
    pub fn open(path: &Path) -> Result<Self, OutputError> {
        let Content { newest, rosters, readings } = read(path)?;
        Ok(Self { path: Some(path.to_owned()), newest, rosters, readings, ..Self::default() })
    }

    /// Returns the pinned seal of a device. Returns `None` also if the roster makes the pinned seal
    /// void (its key has ended) or outdated (a later version introduced the period of its epoch).
    #[must_use]
    pub fn of(&self, roster: &Roster, device: DeviceId) -> Option<PinnedSeal> {
        let device = roster.device(device)?;
        let is_accepted = |seal: &PinnedSeal| {
            !device.is_void(seal.index, seal.epoch)
                && !seal.roster.is_some_and(|named| roster.is_outdated(named, seal.epoch))
        };
        self.newest.get(&device.certificate).copied().filter(is_accepted)
    }

    /// Pins a seal, unless a newer seal of the device is pinned already. A pinned seal that
    /// [`of`](Self::of) does not return is replaced.
    pub fn pin(&mut self, roster: &Roster, device: DeviceId, seal: PinnedSeal) {
        let is_accepted = self.of(roster, device).is_some();
        let Some(device) = roster.device(device) else { return };
        if !is_accepted && let Some(dropped) = self.newest.remove(&device.certificate) {
            self.dropped.insert(dropped.digest);
        }
        self.unsaved |= keep_newest(&mut self.newest, device.certificate, seal);
    }

    /// Returns the newest version of the roster that was pinned for the group and the operator.
    #[must_use]
    pub fn roster(&self, roster: &Roster) -> Option<PinnedRoster> {
        self.rosters.of(roster)
    }

    /// Checks that the roster is the pinned version or a later version of it, and pins it.
    ///
    /// # Errors
    /// [`RosterNotLater`] if it is not. Nothing is changed.
    pub fn pin_roster(&mut self, roster: &Roster) -> Result<(), RosterNotLater> {
        self.check_roster(roster)?;
        self.unsaved |= self.rosters.pin(roster, Timestamp::now());
        Ok(())
    }

    /// Checks that the roster is the pinned version or a later version of it.
    ///
    /// # Errors
    /// [`RosterNotLater`] if it is not.
    pub fn check_roster(&self, roster: &Roster) -> Result<(), RosterNotLater> {
        self.rosters.check(roster, self.path.as_deref())
    }

    /// Checks that a signed reading of a device does not precede the newest one that was pinned, and
    /// pins it. A pinned reading whose key the roster has ended is ignored.
    ///
    /// # Errors
    /// [`OlderReading`]. Nothing is changed.
    pub fn check_reading(
        &mut self,
        roster: &Roster,
        device: DeviceId,
        reading: PinnedReading,
    ) -> Result<(), OlderReading> {
        let Some(device) = roster.device(device) else { return Ok(()) };
        let is_accepted = |pinned: &PinnedReading| !device.is_void(pinned.index, pinned.epoch);
        let place = (&device.certificate, device.name.as_str());
        self.readings.check(place, reading, is_accepted, self.path.as_deref())?;
        self.unsaved |= self.readings.pin(device.certificate, reading);
        Ok(())
    }

    /// Saves the pinned seals and rosters if any of them was pinned since they were read or saved.
    /// Newer ones that another process has saved in the meantime are kept.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be read or written.
    pub fn save_if_changed(&mut self) -> Result<(), OutputError> {
        if self.unsaved { self.save() } else { Ok(()) }
    }

    /// Saves the pinned seals and rosters. Newer ones that another process has saved in the meantime
    /// are kept.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be read or written.
    pub fn save(&mut self) -> Result<(), OutputError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        if let Some(folder) = path.parent() {
            moteseal_files::create_folder(folder)
                .map_err(|error| OutputError::new(&path, &error))?;
        }
        // No other process may save between the reading and the replacement of the file. The lock is
        // held until this function returns.
        let _lock = lock(&path)?;
        let Content { newest, rosters, readings } = read(&path)?;
        for (certificate, seal) in newest {
            if !self.dropped.contains(&seal.digest) {
                keep_newest(&mut self.newest, certificate, seal);
            }
        }
        self.rosters.merge(rosters);
        self.readings.merge(readings);
        let entry = |(certificate, seal): (&Digest, &PinnedSeal)| {
            let digest = seal.digest.to_string();
            let mut value = json!({"index": seal.index.0, "epoch": seal.epoch.0, "digest": digest});
            if let (Some(value), Some(roster)) = (value.as_object_mut(), seal.roster) {
                value.insert("roster".to_owned(), roster.into());
            }
            (certificate.to_string(), value)
        };
        let devices: serde_json::Map<String, Value> = self.newest.iter().map(entry).collect();
        let content = json!({
            "moteseal_memory": 1,
            "rosters": self.rosters.to_json(),
            "readings": self.readings.to_json(),
            "devices": devices,
        });
        let mut file = AtomicFile::create(&path)?;
        std::io::Write::write_all(&mut file, format!("{content:#}\n").as_bytes())
            .map_err(|error| OutputError::new(&path, &error))?;
        file.commit()?;
        self.unsaved = false;
        Ok(())
    }
}

/// Locks the file of pinned seals against other processes that save. The lock is on a separate file,
/// because the file itself is replaced.
fn lock(path: &Path) -> Result<File, OutputError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let fail = |error: std::io::Error| OutputError::new(path, &error);
    let lock = moteseal_files::private().write(true).create(true).truncate(false).open(name);
    let lock = lock.map_err(fail)?;
    // A file system without locks protects only against processes that do not save at the same time.
    let _ = lock.lock();
    Ok(lock)
}

/// Pins a seal, unless a newer seal is pinned. Returns whether this changed anything.
fn keep_newest(
    newest: &mut BTreeMap<Digest, PinnedSeal>,
    certificate: Digest,
    seal: PinnedSeal,
) -> bool {
    let is_newer = newest.get(&certificate).is_none_or(|known| known.index < seal.index);
    if is_newer {
        newest.insert(certificate, seal);
    }
    is_newer
}

/// What is pinned in a file.
#[derive(Default)]
struct Content {
    newest: BTreeMap<Digest, PinnedSeal>,
    rosters: Rosters,
    readings: Readings,
}

fn read(path: &Path) -> Result<Content, OutputError> {
    use std::io::Read;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Content::default());
        }
        Err(error) => return Err(OutputError::new(path, &error)),
    };
    let mut text = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut text).map_err(|error| OutputError::new(path, &error))?;
    parse(&text).ok_or_else(|| {
        OutputError::because(
            path,
            "it does not contain pinned seals; name another file, or delete this one, which discards all pinned seals",
        )
    })
}

fn parse(text: &[u8]) -> Option<Content> {
    let text: Value = serde_json::from_slice(text).ok()?;
    (text.get("moteseal_memory")? == 1).then_some(())?;
    let entry = |(certificate, seal): (&String, &Value)| {
        let index = SealIndex(seal.get("index")?.as_u64()?.try_into().ok()?);
        let epoch = EpochNumber(seal.get("epoch")?.as_u64()?);
        let digest = digest(seal.get("digest")?.as_str()?)?;
        let roster = match seal.get("roster") {
            Some(version) => Some(version.as_u64()?.try_into().ok()?),
            None => None,
        };
        Some((self::digest(certificate)?, PinnedSeal { index, epoch, digest, roster }))
    };
    let newest = text.get("devices")?.as_object()?.iter().map(entry).collect::<Option<_>>()?;
    let rosters = Rosters::parse(text.get("rosters"))?;
    Some(Content { newest, rosters, readings: Readings::parse(text.get("readings"))? })
}

/// Decodes a digest from its 64 hexadecimal digits.
pub(crate) fn digest(text: &str) -> Option<Digest> {
    let mut digest = Digest::NULL;
    hex::decode_to_slice(text, &mut digest.0).ok()?;
    Some(digest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn seal(index: u32, byte: u8) -> PinnedSeal {
        let digest = Digest([byte; 32]);
        PinnedSeal { index: SealIndex(index), epoch: EpochNumber(7), digest, roster: Some(0) }
    }

    #[test]
    fn saved_seals_read_back_and_never_get_older() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/pinned.json");
        let mut one = PinnedSeals::open(&path).unwrap();
        let mut other = PinnedSeals::open(&path).unwrap();
        one.newest.insert(Digest([1; 32]), seal(5, 5));
        one.newest.insert(Digest([2; 32]), seal(9, 9));
        one.save().unwrap();
        other.newest.insert(Digest([1; 32]), seal(4, 4));
        other.newest.insert(Digest([3; 32]), seal(1, 1));
        other.save().unwrap();
        let read = PinnedSeals::open(&path).unwrap();
        let expected = [
            (Digest([1; 32]), seal(5, 5)),
            (Digest([2; 32]), seal(9, 9)),
            (Digest([3; 32]), seal(1, 1)),
        ];
        assert_eq!(read.newest.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn keeps_the_seals_of_processes_that_save_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pinned.json");
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for device in 0..8 {
                let (path, start) = (&path, &start);
                scope.spawn(move || {
                    for index in 0..20 {
                        let mut pinned = PinnedSeals::open(path).unwrap();
                        pinned.newest.insert(Digest([device; 32]), seal(index, device));
                        start.wait();
                        pinned.save().unwrap();
                        start.wait();
                    }
                });
            }
        });
        let read = PinnedSeals::open(&path).unwrap();
        assert_eq!(read.newest.len(), 8);
        assert!(read.newest.values().all(|pinned| pinned.index == SealIndex(19)));
    }

    #[test]
    fn rejects_a_file_of_another_kind_and_leaves_it_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        for text in [
            "",
            "dear diary",
            "{}",
            r#"{"moteseal_memory":2,"devices":{}}"#,
            r#"{"moteseal_memory":1,"devices":{"x":{}}}"#,
            r#"{"moteseal_memory":1,"devices":{},"rosters":[{"version":1}]}"#,
        ] {
            std::fs::write(&path, text).unwrap();
            let error = PinnedSeals::open(&path).unwrap_err().to_string();
            assert!(
                error.contains("notes.txt") && error.contains("does not contain pinned seals"),
                "{error}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
