//! The installed agents (spec/agents.md, section 2).
//!
//! ```text
//! agents/lock                     held while a process changes the store
//! agents/hub.lock                 held by the hub that runs the agents
//! agents/NAME/current             the record: which version runs, and what it may go back to
//! agents/NAME/versions/7/         the signed manifest, and the files of the package
//! agents/NAME/data/               the folder that the agent may write
//! agents/NAME/status              what the hub reports about the agent
//! ```
//!
//! A version is unpacked next to the others and renamed when it is complete and durable. Then the
//! record is replaced. A crash at any moment leaves the old record or the new one, and never a
//! version that is incomplete.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use moteseal_files::{PRIVATE, create_folder, sync_folder};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::data_folder;
use super::error::{AgentError, PackageError};
use super::manifest::{Manifest, digest, is_agent_name};
use super::package::{Package, Trust};
use super::unpack::{FILES, MANIFEST, check, unpack};

/// The maximum length of a record, in bytes.
const MAX_RECORD: u64 = 1 << 16;
/// The start of the names of unfinished folders.
const UNFINISHED: &str = ".unfinished-";

/// The record of an agent. It is replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The number of the agent on this hub, from which its user id follows. It never changes.
    pub number: u32,
    /// The highest version that was ever accepted.
    pub highest: u64,
    /// The lowest version to go back to: the highest minimum that was ever accepted.
    #[serde(default)]
    pub minimum: u64,
    /// The SHA-256 of the signed manifest of that version, in hexadecimal digits.
    pub digest: String,
    /// The version that runs, unless the agent was removed.
    pub current: Option<u64>,
    /// Whether the version that runs has come up at least once.
    pub is_confirmed: bool,
    /// The version to go back to. It has come up before.
    pub previous: Option<u64>,
    /// The version that did not come up, and the name of the reason.
    pub failed: Option<(u64, String)>,
}

/// What an installation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The version is installed, and the hub starts it.
    Now {
        /// The agent.
        name: String,
        /// The version.
        version: u64,
    },
    /// The same package was installed before.
    Before {
        /// The agent.
        name: String,
        /// The version.
        version: u64,
    },
}

/// The version of an agent that runs.
#[derive(Clone, Debug)]
pub struct Active {
    /// The verified manifest.
    pub manifest: Manifest,
    /// The record.
    pub record: Record,
    /// The folder with the files of the package.
    pub files: PathBuf,
    /// The folder that the agent may write.
    pub data: PathBuf,
}

/// The folder with the installed agents.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    trust: Trust,
}

/// A lock on a file, which ends with this value or with the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Store {
    /// Opens the store in the folder `agents` of the hub's state folder. Creates the folders.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn open(state: &Path, trust: Trust) -> Result<Self, AgentError> {
        let folder = state.join("agents");
        create_folder(&folder).map_err(AgentError::at(&folder))?;
        Ok(Self { folder, trust })
    }

    /// Returns the folder of the store.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder of an agent.
    pub(super) fn agent(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn version(&self, name: &str, version: u64) -> PathBuf {
        self.agent(name).join("versions").join(version.to_string())
    }

    fn lock_file(&self, name: &str) -> Result<File, AgentError> {
        let path = self.folder.join(name);
        moteseal_files::private()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(AgentError::at(&path))
    }

    /// Waits until no other process changes the store.
    fn lock(&self) -> Result<Lock, AgentError> {
        let file = self.lock_file("lock")?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| AgentError::Io(self.folder.join("lock"), error.into()))?;
        Ok(Lock { _file: file })
    }

    /// Claims the agents for this process: only one hub may run them.
    ///
    /// # Errors
    /// `HubIsRunning`, and the errors of the operating system.
    pub fn claim(&self) -> Result<Lock, AgentError> {
        let file = self.lock_file("hub.lock")?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(AgentError::HubIsRunning(self.folder.clone()))
            }
            Err(error) => Err(AgentError::Io(self.folder.join("hub.lock"), error.into())),
        }
    }

    /// Returns the record of an agent, or `None` if it was never installed.
    ///
    /// # Errors
    /// `RecordDamaged`, and the errors of the operating system.
    pub fn record(&self, name: &str) -> Result<Option<Record>, AgentError> {
        if !is_agent_name(name) {
            return Err(PackageError::BadAgentName.into());
        }
        let path = self.agent(name).join("current");
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(AgentError::at(&path))?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_RECORD).read_to_end(&mut bytes).map_err(AgentError::at(&path))?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| AgentError::RecordDamaged(path, error))
    }

    fn write_record(&self, name: &str, record: &Record) -> Result<(), AgentError> {
        let path = self.agent(name).join("current");
        let bytes = serde_json::to_vec(record)
            .map_err(|error| AgentError::RecordDamaged(path.clone(), error))?;
        moteseal_files::replace(&path, &bytes, PRIVATE).map_err(AgentError::at(&path))
    }

    /// Returns the names of all agents that have a record, in ascending order.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn names(&self) -> Result<Vec<String>, AgentError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(AgentError::at(&self.folder))? {
            let entry = entry.map_err(AgentError::at(&self.folder))?;
            if let Ok(name) = entry.file_name().into_string()
                && is_agent_name(&name)
                && entry.path().join("current").exists()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Installs a package. `again` is whether a version that did not come up, was rolled back or was
    /// removed is installed again: a person may ask for this; a package that arrives again may not.
    ///
    /// # Errors
    /// [`AgentError`]. Nothing has changed, except that an unfinished folder may remain, which the
    /// next call removes.
    pub fn install<R: Read>(
        &self,
        input: R,
        path: &Path,
        again: bool,
    ) -> Result<Installed, AgentError> {
        let package = Package::open(input, path, &self.trust)?;
        let (name, version) = (package.manifest().name.clone(), package.manifest().version);
        let _lock = self.lock()?;
        self.remove_unfinished()?;
        let known = self.record(&name)?;
        let content = hex::encode(digest(package.signed_manifest()).0);
        if let Some(record) = &known {
            if version < record.highest {
                let highest = record.highest;
                return Err(AgentError::AgentVersionNotAbove { name, version, highest });
            }
            if version == record.highest {
                if content != record.digest {
                    return Err(AgentError::AgentVersionChanged { name, version });
                }
                let is_current = record.current == Some(version);
                if !again || is_current && self.check_files(package.manifest()).is_ok() {
                    return Ok(Installed::Before { name, version });
                }
            }
        }
        let minimum = package.manifest().minimum;
        self.place(package)?;
        let mut record = match known {
            Some(record) => record,
            None => Record { number: self.free_number()?, ..Record::default() },
        };
        if record.current != Some(version) {
            // A version that never came up is no version to go back to.
            if record.is_confirmed && record.current.is_some() {
                record.previous = record.current;
            }
            record.is_confirmed = false;
        }
        record.minimum = record.minimum.max(minimum);
        record.previous = record.previous.filter(|previous| *previous >= record.minimum);
        (record.highest, record.digest) = (version, content);
        (record.current, record.failed) = (Some(version), None);
        self.write_record(&name, &record)?;
        Ok(Installed::Now { name, version })
    }

    /// Unpacks a package and gives its folder its name.
    fn place<R: Read>(&self, package: Package<R>) -> Result<(), AgentError> {
        let (name, version) = (package.manifest().name.clone(), package.manifest().version);
        let versions = self.agent(&name).join("versions");
        create_folder(&versions).map_err(AgentError::at(&versions))?;
        let data = self.agent(&name).join("data");
        create_folder(&data).map_err(AgentError::at(&data))?;
        let unfinished = self.folder.join(format!("{UNFINISHED}{}", std::process::id()));
        let done = unpack(package, &unfinished).map_err(AgentError::from).and_then(|()| {
            let place = self.version(&name, version);
            remove(&place)?;
            fs::rename(&unfinished, &place).map_err(AgentError::at(&place))?;
            for folder in [&versions, &self.agent(&name), &self.folder] {
                sync_folder(folder).map_err(AgentError::at(folder))?;
            }
            Ok(())
        });
        if done.is_err() {
            let _ = remove(&unfinished);
        }
        done
    }

    /// Returns the smallest number that no agent has.
    fn free_number(&self) -> Result<u32, AgentError> {
        let mut taken = std::collections::BTreeSet::new();
        for name in self.names()? {
            taken.extend(self.record(&name)?.map(|record| record.number));
        }
        Ok((0..).find(|number| !taken.contains(number)).unwrap_or(u32::MAX))
    }

    /// Removes what processes have left that were killed while they installed. The caller has the
    /// lock.
    fn remove_unfinished(&self) -> Result<(), AgentError> {
        for entry in fs::read_dir(&self.folder).map_err(AgentError::at(&self.folder))?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the versions of an agent that its record does not name. Call this only while no
    /// process of another version runs.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn tidy(&self, name: &str) -> Result<(), AgentError> {
        let _lock = self.lock()?;
        self.remove_unfinished()?;
        let Some(record) = self.record(name)? else { return Ok(()) };
        let versions = self.agent(name).join("versions");
        for entry in fs::read_dir(&versions).into_iter().flatten().flatten() {
            let version = entry.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            if version.is_none() || version != record.current && version != record.previous {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    fn check_files(&self, manifest: &Manifest) -> Result<(), PackageError> {
        check(manifest, &self.version(&manifest.name, manifest.version).join(FILES))
    }

    /// Returns the version of an agent that runs, after a check of its signature and its files;
    /// `None` if the agent is not installed.
    ///
    /// # Errors
    /// `InstalledFilesChanged`, and the errors of [`record`](Self::record).
    pub fn active(&self, name: &str) -> Result<Option<Active>, AgentError> {
        let Some(record) = self.record(name)? else { return Ok(None) };
        let Some(version) = record.current else { return Ok(None) };
        let folder = self.version(name, version);
        let path = folder.join(MANIFEST);
        let changed = |error| AgentError::InstalledFilesChanged(name.to_owned(), error);
        let signed = fs::read(&path).map_err(PackageError::at(&path)).map_err(changed)?;
        let manifest = Manifest::open(&signed, self.trust.group, &self.trust.operator)
            .and_then(|manifest| {
                if manifest.name != name || manifest.version != version {
                    return Err(PackageError::BadAgentName);
                }
                check(&manifest, &folder.join(FILES))?;
                Ok(manifest)
            })
            .map_err(changed)?;
        let data = self.agent(name).join("data");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&data)
            .map_err(AgentError::at(&data))?;
        Ok(Some(Active { manifest, record, files: folder.join(FILES), data }))
    }

    /// Records that a version has come up. Does nothing if another version is current.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn confirm(&self, name: &str, version: u64) -> Result<(), AgentError> {
        let _lock = self.lock()?;
        match self.record(name)? {
            Some(record) if record.current == Some(version) && !record.is_confirmed => {
                self.write_record(name, &Record { is_confirmed: true, ..record })
            }
            _ => Ok(()),
        }
    }

    /// Goes back to the version before `version`, which did not come up. Returns the version that
    /// runs now, or `None` if there is none before it that is permitted, or if another version is
    /// current.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn fall_back(
        &self,
        name: &str,
        version: u64,
        reason: &str,
    ) -> Result<Option<u64>, AgentError> {
        let _lock = self.lock()?;
        match self.record(name)? {
            Some(record) if record.current == Some(version) => self.go_back(name, record, reason),
            _ => Ok(None),
        }
    }

    /// Goes back to the version before the current one.
    ///
    /// # Errors
    /// `NothingToRollBackTo`, `UnknownAgent` and the other errors of [`AgentError`].
    pub fn roll_back(&self, name: &str) -> Result<u64, AgentError> {
        let _lock = self.lock()?;
        let unknown = || AgentError::UnknownAgent(name.to_owned());
        let record = self.record(name)?.filter(|record| record.current.is_some());
        self.go_back(name, record.ok_or_else(unknown)?, "RolledBack")?
            .ok_or_else(|| AgentError::NothingToRollBackTo(name.to_owned()))
    }

    fn go_back(
        &self,
        name: &str,
        mut record: Record,
        reason: &str,
    ) -> Result<Option<u64>, AgentError> {
        let (Some(current), Some(previous)) = (record.current, record.previous) else {
            return Ok(None);
        };
        record.failed = Some((current, reason.to_owned()));
        (record.current, record.previous) = (Some(previous), None);
        record.is_confirmed = true;
        self.write_record(name, &record)?;
        Ok(Some(previous))
    }

    /// Removes an agent. Its record stays, so that no lower version can be installed later. Its data
    /// folder stays unless `with_data`.
    ///
    /// # Errors
    /// `UnknownAgent` and the other errors of [`AgentError`].
    pub fn remove(&self, name: &str, with_data: bool) -> Result<(), AgentError> {
        let _lock = self.lock()?;
        let mut record = self
            .record(name)?
            .filter(|record| record.current.is_some())
            .ok_or_else(|| AgentError::UnknownAgent(name.to_owned()))?;
        (record.current, record.previous, record.is_confirmed) = (None, None, false);
        self.write_record(name, &record)?;
        remove(&self.agent(name).join("versions"))?;
        if with_data {
            let data = self.agent(name).join("data");
            data_folder::remove(&data).map_err(AgentError::at(&data))?;
        }
        Ok(())
    }
}

/// Removes a folder, if it exists.
fn remove(path: &Path) -> Result<(), AgentError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(AgentError::Io(path.to_owned(), error))
        }
        _ => Ok(()),
    }
}
