//! Pinned seals: the newest seal of each device that this client has verified. A later response
//! that omits or contradicts a pinned seal is rejected (`Missing`, `Equivocation`). A cloud
//! therefore cannot withhold the end of a device's chain without being detected.
//!
//! The file is small JSON and is replaced atomically. It contains no secrets. Deleting it is safe;
//! the client only loses this protection until it pins seals again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::error::OutputError;
use crate::output::AtomicFile;

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
}

/// The file of pinned seals to use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PinFile {
    /// No file. Pinned seals are neither used nor saved.
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

    /// Reads the file. Returns `None` if [`path`](Self::path) returns `None`.
    ///
    /// # Errors
    /// The errors of [`PinnedSeals::open`].
    pub fn open(&self, roster: &Roster) -> Result<Option<PinnedSeals>, OutputError> {
        self.path(roster).map(|path| PinnedSeals::open(&path)).transpose()
    }
}

/// The newest verified seal of each device. A device is identified by the digest of its first
/// certificate, so that devices and groups with the same name under different operators are
/// distinct.
#[derive(Clone, Debug, Default)]
pub struct PinnedSeals {
    path: Option<PathBuf>,
    newest: BTreeMap<Digest, PinnedSeal>,
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
        let newest = read(path)?;
        Ok(Self { path: Some(path.to_owned()), newest })
    }

    /// Returns the pinned seal of a device.
    #[must_use]
    pub fn of(&self, roster: &Roster, device: DeviceId) -> Option<PinnedSeal> {
        self.newest.get(&roster.device(device)?.certificate).copied()
    }

    /// Pins a seal, unless a newer seal of the device is pinned already.
    pub fn pin(&mut self, roster: &Roster, device: DeviceId, seal: PinnedSeal) {
        if let Some(device) = roster.device(device) {
            keep_newest(&mut self.newest, device.certificate, seal);
        }
    }

    /// Saves the pinned seals. Newer seals that another process has saved in the meantime are kept.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be read or written.
    pub fn save(&mut self) -> Result<(), OutputError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        for (certificate, seal) in read(&path)? {
            keep_newest(&mut self.newest, certificate, seal);
        }
        if let Some(folder) = path.parent() {
            moteseal_files::create_folder(folder)
                .map_err(|error| OutputError::new(&path, &error))?;
        }
        let entry = |(certificate, seal): (&Digest, &PinnedSeal)| {
            let digest = seal.digest.to_string();
            let seal = json!({"index": seal.index.0, "epoch": seal.epoch.0, "digest": digest});
            (certificate.to_string(), seal)
        };
        let devices: serde_json::Map<String, Value> = self.newest.iter().map(entry).collect();
        let mut file = AtomicFile::create(&path)?;
        let text = format!("{:#}\n", json!({"moteseal_memory": 1, "devices": devices}));
        std::io::Write::write_all(&mut file, text.as_bytes())
            .map_err(|error| OutputError::new(&path, &error))?;
        file.commit()
    }
}

fn keep_newest(newest: &mut BTreeMap<Digest, PinnedSeal>, certificate: Digest, seal: PinnedSeal) {
    let entry = newest.entry(certificate).or_insert(seal);
    if entry.index < seal.index {
        *entry = seal;
    }
}

fn read(path: &Path) -> Result<BTreeMap<Digest, PinnedSeal>, OutputError> {
    use std::io::Read;
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
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

fn parse(text: &[u8]) -> Option<BTreeMap<Digest, PinnedSeal>> {
    let text: Value = serde_json::from_slice(text).ok()?;
    (text.get("moteseal_memory")? == 1).then_some(())?;
    let entry = |(certificate, seal): (&String, &Value)| {
        let index = SealIndex(seal.get("index")?.as_u64()?.try_into().ok()?);
        let epoch = EpochNumber(seal.get("epoch")?.as_u64()?);
        let digest = digest(seal.get("digest")?.as_str()?)?;
        Some((self::digest(certificate)?, PinnedSeal { index, epoch, digest }))
    };
    text.get("devices")?.as_object()?.iter().map(entry).collect()
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
        PinnedSeal { index: SealIndex(index), epoch: EpochNumber(7), digest: Digest([byte; 32]) }
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
    fn rejects_a_file_of_another_kind_and_leaves_it_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        for text in [
            "",
            "dear diary",
            "{}",
            r#"{"moteseal_memory":2,"devices":{}}"#,
            r#"{"moteseal_memory":1,"devices":{"x":{}}}"#,
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
