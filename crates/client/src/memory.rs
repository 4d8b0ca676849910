//! The newest seal of each device that we have seen: what makes a withheld tail `Missing` instead of unknown.
//!
//! A small JSON file, replaced atomically. It holds nothing secret; who deletes it loses that much protection and no more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use moteseal_core::digest::Digest;
use moteseal_core::record::{DeviceId, EpochNumber, SealIndex};
use moteseal_verify::Roster;
use serde_json::{Value, json};

use crate::output::{AtomicFile, OutputError};

/// A file larger than this is no memory of ours.
const MAX_FILE: u64 = 64 << 20;

/// A seal that we have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Its index.
    pub index: SealIndex,
    /// Its epoch.
    pub epoch: EpochNumber,
    /// Its digest.
    pub digest: Digest,
}

/// What we have seen of a group's devices. A device is known by the digest of its first certificate, so that groups and devices
/// of the same name under another operator are others.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    path: Option<PathBuf>,
    newest: BTreeMap<Digest, Remembered>,
}

impl Memory {
    /// A memory that is never saved.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where the memory of a roster's group rests unless another file is named: `moteseal/GROUP.json` in the user's state
    /// directory (`$XDG_STATE_HOME`, else `~/.local/state`); `None` without a home.
    #[must_use]
    pub fn default_path(roster: &Roster) -> Option<PathBuf> {
        use moteseal_core::roster::Directory;
        let absolute =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
        Some(state.join("moteseal").join(format!("{}.json", roster.group())))
    }

    /// Reads the memory in a file; one that does not exist yet is empty.
    ///
    /// # Errors
    /// [`OutputError`] if the file cannot be read, or is none of ours.
    pub fn open(path: &Path) -> Result<Self, OutputError> {
        let newest = read(path)?;
        Ok(Self { path: Some(path.to_owned()), newest })
    }

    /// The newest seal that we have seen of a device.
    #[must_use]
    pub fn of(&self, roster: &Roster, device: DeviceId) -> Option<Remembered> {
        self.newest.get(&roster.device(device)?.certificate).copied()
    }

    /// Remembers a seal, unless a newer one is remembered.
    pub fn remember(&mut self, roster: &Roster, device: DeviceId, seal: Remembered) {
        if let Some(device) = roster.device(device) {
            keep_newest(&mut self.newest, device.certificate, seal);
        }
    }

    /// Saves what is remembered, together with what others have saved in the meantime.
    ///
    /// # Errors
    /// [`OutputError`].
    pub fn save(&mut self) -> Result<(), OutputError> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        for (certificate, seal) in read(&path)? {
            keep_newest(&mut self.newest, certificate, seal);
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| OutputError::new(&path, &error))?;
        }
        let entry = |(certificate, seal): (&Digest, &Remembered)| {
            let seal = json!({"index": seal.index.0, "epoch": seal.epoch.0, "digest": seal.digest.to_string()});
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

fn keep_newest(newest: &mut BTreeMap<Digest, Remembered>, certificate: Digest, seal: Remembered) {
    let entry = newest.entry(certificate).or_insert(seal);
    if entry.index < seal.index {
        *entry = seal;
    }
}

fn read(path: &Path) -> Result<BTreeMap<Digest, Remembered>, OutputError> {
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
            "not a memory of ours; name another file, or delete it and lose what was remembered",
        )
    })
}

fn parse(text: &[u8]) -> Option<BTreeMap<Digest, Remembered>> {
    let text: Value = serde_json::from_slice(text).ok()?;
    (text.get("moteseal_memory")? == 1).then_some(())?;
    let entry = |(certificate, seal): (&String, &Value)| {
        let index = SealIndex(seal.get("index")?.as_u64()?.try_into().ok()?);
        let epoch = EpochNumber(seal.get("epoch")?.as_u64()?);
        let digest = digest(seal.get("digest")?.as_str()?)?;
        Some((self::digest(certificate)?, Remembered { index, epoch, digest }))
    };
    text.get("devices")?.as_object()?.iter().map(entry).collect()
}

/// A digest from its 64 hexadecimal digits.
pub(crate) fn digest(text: &str) -> Option<Digest> {
    let mut digest = Digest::NULL;
    hex::decode_to_slice(text, &mut digest.0).ok()?;
    Some(digest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn seal(index: u32, byte: u8) -> Remembered {
        Remembered { index: SealIndex(index), epoch: EpochNumber(7), digest: Digest([byte; 32]) }
    }

    #[test]
    fn what_is_saved_reads_back_and_never_gets_older() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/memory.json");
        let mut one = Memory::open(&path).unwrap();
        let mut other = Memory::open(&path).unwrap();
        one.newest.insert(Digest([1; 32]), seal(5, 5));
        one.newest.insert(Digest([2; 32]), seal(9, 9));
        one.save().unwrap();
        other.newest.insert(Digest([1; 32]), seal(4, 4));
        other.newest.insert(Digest([3; 32]), seal(1, 1));
        other.save().unwrap();
        let read = Memory::open(&path).unwrap();
        let expected = [
            (Digest([1; 32]), seal(5, 5)),
            (Digest([2; 32]), seal(9, 9)),
            (Digest([3; 32]), seal(1, 1)),
        ];
        assert_eq!(read.newest.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_file_of_another_kind_is_left_alone() {
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
            let error = Memory::open(&path).unwrap_err().to_string();
            assert!(error.contains("notes.txt") && error.contains("not a memory"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
