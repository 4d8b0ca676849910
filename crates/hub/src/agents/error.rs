//! Why a package or an agent cannot be used (spec/errors.md).

use std::io;
use std::path::{Path, PathBuf};

use moteseal_api::ErrorKind;
use moteseal_core::cbor::{BufferTooSmall, DecodeError};
use moteseal_core::signature::{SignError, SignatureError};

/// Why a package is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The package does not have the form of spec/agents.md.
    #[error("the package is malformed: {0}")]
    Decode(#[from] DecodeError),
    /// The manifest is signed with another suite than that of the operator's key.
    #[error(
        "the package is signed with another suite than that of the operator's key; sign it with the operator's key"
    )]
    AlgorithmMismatch,
    /// The group's operator has not signed this manifest.
    #[error("the group's operator has not signed this package: {0}")]
    Signature(#[from] SignatureError),
    /// The package is for another group.
    #[error("the package is for another group; pack it with the roster of this hub's group")]
    AgentOfOtherGroup,
    /// The name of the agent has a wrong form.
    #[error(
        "the name of an agent has 1 to 32 lower-case letters, digits and hyphens, and starts with a letter"
    )]
    BadAgentName,
    /// A path could lead out of the package's folder, or has more than one form.
    #[error("{0:?} is not a normalised path below the folder of the package")]
    UnsafePath(String),
    /// Two files have the same path, or one file is the folder of another one.
    #[error("{0:?} is the path of two files, or of a file and a folder")]
    DuplicatePath(String),
    /// The files are not in ascending order of their paths.
    #[error("the files are not in ascending order of their paths")]
    UnsortedPaths,
    /// A file does not have the length that the manifest states.
    #[error("{0:?} does not have the length that the manifest states")]
    FileSizeMismatch(String),
    /// A file does not have the digest that the manifest states.
    #[error("{0:?} does not have the digest that the manifest states")]
    FileDigestMismatch(String),
    /// The manifest or the files exceed the limits of the format.
    #[error("the package exceeds the limits of the format: 1,024 files with 256 MiB together")]
    PackageTooLarge,
    /// The program is neither an executable file of the package nor an absolute path.
    #[error(
        "the program is neither an executable file of the package nor an absolute path; mark the file as executable"
    )]
    NoProgram,
    /// The operator's key cannot sign.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// A file or folder could not be read or written.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A part of the folder to pack is not a regular file or a folder.
    #[error("{}: not a regular file or folder; leave it out of the package", .0.display())]
    NotAFile(PathBuf),
    /// A file changed while it was packed.
    #[error("{}: the file changed while it was packed; pack again", .0.display())]
    ChangedWhilePacking(PathBuf),
}

impl From<BufferTooSmall> for PackageError {
    fn from(_: BufferTooSmall) -> Self {
        Self::PackageTooLarge
    }
}

impl PackageError {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Decode(error) => error.name(),
            Self::AlgorithmMismatch => "AlgorithmMismatch",
            Self::Signature(error) => error.name(),
            Self::AgentOfOtherGroup => "AgentOfOtherGroup",
            Self::BadAgentName => "BadAgentName",
            Self::UnsafePath(_) => "UnsafePath",
            Self::DuplicatePath(_) => "DuplicatePath",
            Self::UnsortedPaths => "UnsortedPaths",
            Self::FileSizeMismatch(_) => "FileSizeMismatch",
            Self::FileDigestMismatch(_) => "FileDigestMismatch",
            Self::PackageTooLarge => "PackageTooLarge",
            Self::NoProgram => "AgentProgramMissing",
            Self::Sign(error) => error.name(),
            Self::Io(..) => "AgentFileFailed",
            Self::NotAFile(_) => "NotAFile",
            Self::ChangedWhilePacking(_) => "ChangedWhilePacking",
        }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(..) => ErrorKind::Internal,
            Self::Sign(_) | Self::NotAFile(_) | Self::ChangedWhilePacking(_) => ErrorKind::Usage,
            _ => ErrorKind::Refused,
        }
    }

    /// Returns a function that adds the path to an error of the operating system.
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io(path.to_owned(), error)
    }
}

moteseal_api::named_error!(PackageError);

/// Why an agent cannot be installed, changed or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The package is refused.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The version is below the highest one that was accepted.
    #[error(
        "version {version} of {name} is below version {highest}, which this hub has accepted; pack it with a higher version"
    )]
    AgentVersionNotAbove {
        /// The agent.
        name: String,
        /// The version of the package.
        version: u64,
        /// The highest version that was accepted.
        highest: u64,
    },
    /// The version was accepted before, with other content.
    #[error(
        "version {version} of {name} was accepted before with other content; pack it with a higher version"
    )]
    AgentVersionChanged {
        /// The agent.
        name: String,
        /// The version.
        version: u64,
    },
    /// There is no version to go back to.
    #[error("{0} has no version before the one that is installed")]
    NothingToRollBackTo(String),
    /// No agent with this name is installed.
    #[error("no agent with the name {0} is installed")]
    UnknownAgent(String),
    /// The files of an installed version have changed.
    #[error("the installed files of {0} have changed: {1}; install the package again")]
    InstalledFilesChanged(String, #[source] PackageError),
    /// A file of the store could not be read or written.
    #[error("{}: {}", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A record of the store has a wrong form.
    #[error("{}: the record of the agent is damaged: {}; remove the agent and install it again", .0.display(), .1)]
    RecordDamaged(PathBuf, serde_json::Error),
    /// Another process runs the agents of this folder.
    #[error("{}: another hub runs the agents of this folder; stop it first", .0.display())]
    HubIsRunning(PathBuf),
    /// The agents' own users cannot reach their folders.
    #[error(
        "{}: other users cannot enter this folder, so that the agents' own users cannot reach their files; run chmod o+x on it, or use another `state`",
        .0.display()
    )]
    FolderNotReachable(PathBuf),
    /// The system cannot confine agents.
    #[error(
        "this system cannot confine agents: {0}; use Linux 5.13 or later with landlock, or set confinement = \"best-effort\""
    )]
    ConfinementUnavailable(&'static str),
    /// The program could not be started.
    #[error("{0} could not be started: {1}")]
    StartFailed(String, io::Error),
}

impl AgentError {
    /// Returns the error's stable name (spec/errors.md).
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Package(error) => error.name(),
            Self::AgentVersionNotAbove { .. } => "AgentVersionNotAbove",
            Self::AgentVersionChanged { .. } => "AgentVersionChanged",
            Self::NothingToRollBackTo(_) => "NothingToRollBackTo",
            Self::UnknownAgent(_) => "UnknownAgent",
            Self::InstalledFilesChanged(..) => "InstalledFilesChanged",
            Self::Io(..) => "AgentFileFailed",
            Self::RecordDamaged(..) => "AgentRecordDamaged",
            Self::HubIsRunning(_) => "HubIsRunning",
            Self::FolderNotReachable(_) => "FolderNotReachable",
            Self::ConfinementUnavailable(_) => "ConfinementUnavailable",
            Self::StartFailed(..) => "AgentStartFailed",
        }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Package(error) => error.kind(),
            Self::AgentVersionNotAbove { .. } | Self::AgentVersionChanged { .. } => {
                ErrorKind::Refused
            }
            Self::NothingToRollBackTo(_)
            | Self::UnknownAgent(_)
            | Self::HubIsRunning(_)
            | Self::FolderNotReachable(_)
            | Self::ConfinementUnavailable(_) => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        }
    }

    /// Returns a function that adds the path to an error of the operating system.
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io(path.to_owned(), error)
    }
}

moteseal_api::named_error!(AgentError);
