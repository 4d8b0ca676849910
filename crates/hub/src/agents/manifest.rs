//! The manifest of a package: what the agent is, how it is started, what it may use, and the size
//! and digest of each file (spec/agents.md, section 1.1).

use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::digest::Digest;
use moteseal_core::identity::protected;
use moteseal_core::record::GroupId;
use moteseal_core::signature::{MAX_SIGNATURE, PublicKey, Signer};

use super::error::PackageError;

/// The maximum length of a signed manifest, in bytes.
pub const MAX_MANIFEST: usize = 1 << 19;
/// The maximum number of files in a package.
pub const MAX_FILES: usize = 1024;
/// The maximum length of all files of a package together, in bytes.
pub const MAX_CONTENT: u64 = 1 << 28;
/// The maximum length of the path of a file, in bytes.
pub const MAX_PATH: usize = 255;
/// The maximum length of the name of an agent, in bytes.
pub const MAX_NAME: usize = 32;
/// The maximum number of arguments, with the program.
pub const MAX_ARGUMENTS: usize = 64;
/// The maximum length of all arguments together, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 8192;
/// The bytes that the object needs beyond its payload: heads, the protected header, the signature.
const OVERHEAD: usize = 128 + MAX_SIGNATURE;

/// What an agent may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The memory of each process, and of all processes together, in bytes.
    pub memory: u64,
    /// The share of processor time of all processes together, in thousandths of a core.
    pub cpu_permille: u32,
    /// The size of the agent's data folder, in bytes.
    pub storage: u64,
    /// The number of processes. An agent with one process cannot start others.
    pub processes: u32,
    /// Whether the agent may use the network.
    pub network: bool,
}

impl Limits {
    /// The limits of a manifest that states none: 64 MiB of memory, a fifth of a core, 16 MiB of
    /// storage, one process, no network.
    pub const DEFAULT: Self = Self {
        memory: 64 << 20,
        cpu_permille: 200,
        storage: 16 << 20,
        processes: 1,
        network: false,
    };

    /// Returns whether every limit is in its range.
    const fn is_valid(&self) -> bool {
        const MIB: u64 = 1 << 20;
        self.memory >= 8 * MIB
            && self.memory <= 1 << 40
            && self.cpu_permille >= 1
            && self.cpu_permille <= 1_000_000
            && self.storage <= 1 << 40
            && self.processes >= 1
            && self.processes <= 1024
    }
}

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedFile {
    /// The path below the folder of the package: components separated by `/`.
    pub path: String,
    /// Whether the file may be executed.
    pub is_executable: bool,
    /// The length in bytes.
    pub size: u64,
    /// The SHA-256 of the content.
    pub digest: [u8; 32],
}

/// The content of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The group for which the package was made.
    pub group: GroupId,
    /// The name of the agent: lower-case letters, digits and hyphens, starting with a letter.
    pub name: String,
    /// The version, at least 1. Each package of the agent has a higher version than the one before.
    pub version: u64,
    /// The lowest version to which a hub may go back from this one, 1 to `version`. A version that
    /// removes a vulnerability states its own number.
    pub minimum: u64,
    /// The program and its arguments. The program is an executable file of the package, or an
    /// absolute path of a program of the hub, for example an interpreter.
    pub arguments: Vec<String>,
    /// What the agent may use.
    pub limits: Limits,
    /// The time within which a new version must deliver its first line, in milliseconds.
    pub start_timeout_ms: u32,
    /// The files, in ascending order of the bytes of their paths.
    pub files: Vec<PackedFile>,
}

/// Returns whether a text can be the name of an agent. Such a name is also a safe name of a folder.
#[must_use]
pub fn is_agent_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns whether a path stays inside its folder and has only one form: no empty component, no `.`
/// or `..`, no `/` at the start, no control character or backslash.
#[must_use]
pub fn is_safe_path(path: &str) -> bool {
    (1..=MAX_PATH).contains(&path.len())
        && !path.chars().any(|character| character.is_control() || character == '\\')
        && path.split('/').all(|component| !matches!(component, "" | "." | ".."))
}

impl Manifest {
    /// Checks the rules for the fields.
    ///
    /// # Errors
    /// [`PackageError`].
    pub fn check(&self) -> Result<(), PackageError> {
        if !is_agent_name(&self.name) {
            return Err(PackageError::BadAgentName);
        }
        let has_text = |text: &String| !text.contains(|c: char| c.is_control() && c != '\n');
        let length: usize = self.arguments.iter().map(String::len).sum();
        if !(1..=self.version).contains(&self.minimum)
            || !self.limits.is_valid()
            || !(100..=3_600_000).contains(&self.start_timeout_ms)
            || !(1..=MAX_ARGUMENTS).contains(&self.arguments.len())
            || length > MAX_ARGUMENT_BYTES
            || !self.arguments.iter().all(has_text)
            || self.files.len() > MAX_FILES
        {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        let mut before: Option<&str> = None;
        let mut content = 0u64;
        for file in &self.files {
            if !is_safe_path(&file.path) {
                return Err(PackageError::UnsafePath(file.path.clone()));
            }
            match before {
                Some(before) if before == file.path => {
                    return Err(PackageError::DuplicatePath(file.path.clone()));
                }
                Some(before) if before > file.path.as_str() => {
                    return Err(PackageError::UnsortedPaths);
                }
                _ => before = Some(&file.path),
            }
            content = content.saturating_add(file.size);
        }
        if content > MAX_CONTENT {
            return Err(PackageError::PackageTooLarge);
        }
        // A file cannot also be a folder. The files are sorted, but `a-b` comes between `a` and `a/b`.
        let paths: std::collections::BTreeSet<&str> =
            self.files.iter().map(|file| file.path.as_str()).collect();
        for path in &paths {
            let mut folders = path.match_indices('/').map(|(end, _)| &path[..end]);
            if let Some(file) = folders.find(|folder| paths.contains(folder)) {
                return Err(PackageError::DuplicatePath(file.to_owned()));
            }
        }
        let program = self.arguments.first().map_or("", String::as_str);
        let is_packed = self.files.iter().any(|file| file.path == program && file.is_executable);
        let is_on_hub = program.strip_prefix('/').is_some_and(is_safe_path);
        if is_packed || is_on_hub { Ok(()) } else { Err(PackageError::NoProgram) }
    }

    /// Writes the payload of a manifest. Does not check the rules for the fields.
    ///
    /// # Errors
    /// `PackageTooLarge` if `out` is too small; [`MAX_MANIFEST`] bytes always suffice.
    pub fn encode<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], PackageError> {
        let mut out = Writer::new(out);
        out.array(9)?.uint(1u8)?.bytes(&self.group.0)?.text(&self.name)?;
        out.uint(self.version)?.uint(self.minimum)?;
        out.array(self.arguments.len() as u64)?;
        for argument in &self.arguments {
            out.text(argument)?;
        }
        let limits = &self.limits;
        out.array(5)?
            .uint(limits.memory)?
            .uint(limits.cpu_permille)?
            .uint(limits.storage)?
            .uint(limits.processes)?
            .bool(limits.network)?;
        out.uint(self.start_timeout_ms)?.array(self.files.len() as u64)?;
        for file in &self.files {
            out.array(4)?
                .text(&file.path)?
                .bool(file.is_executable)?
                .uint(file.size)?
                .bytes(&file.digest)?;
        }
        Ok(out.finish())
    }

    /// Signs the manifest with the operator's key, and returns the object.
    ///
    /// # Errors
    /// [`PackageError`].
    pub fn sign(&self, operator: &dyn Signer) -> Result<Vec<u8>, PackageError> {
        self.check()?;
        let mut payload = vec![0; MAX_MANIFEST - OVERHEAD];
        sign_payload(self.encode(&mut payload)?, operator)
    }

    /// Reads a signed manifest, and checks that the operator signed it for this group.
    ///
    /// # Errors
    /// [`PackageError`], in the order of spec/agents.md.
    pub fn open(bytes: &[u8], group: GroupId, operator: &PublicKey) -> Result<Self, PackageError> {
        if bytes.len() > MAX_MANIFEST {
            return Err(PackageError::PackageTooLarge);
        }
        let object = Sign1::decode(bytes, Typ::Agent)?;
        if object.header.algorithm != operator.algorithm() {
            return Err(PackageError::AlgorithmMismatch);
        }
        let mut scratch = vec![0; bytes.len() + OVERHEAD];
        operator.verify(object.message(&mut scratch)?, object.signature)?;
        let manifest = Self::read(object.payload)?;
        if manifest.group != group {
            return Err(PackageError::AgentOfOtherGroup);
        }
        Ok(manifest)
    }

    /// Returns the content of a signed manifest without a check of its signature, for display.
    ///
    /// # Errors
    /// [`PackageError`].
    pub fn unverified(bytes: &[u8]) -> Result<Self, PackageError> {
        Self::read(Sign1::decode(bytes, Typ::Agent)?.payload)
    }

    fn read(payload: &[u8]) -> Result<Self, PackageError> {
        let mut reader = Reader::new(payload)?;
        reader.array(9)?;
        reader.version()?;
        let (group, name) = (GroupId(reader.fixed()?), reader.text()?.to_owned());
        let (version, minimum) = (reader.u64()?, reader.u64()?);
        let arguments = (0..bounded(reader.array_any()?, MAX_ARGUMENTS)?)
            .map(|_| Ok(reader.text()?.to_owned()))
            .collect::<Result<_, DecodeError>>()?;
        reader.array(5)?;
        let limits = Limits {
            memory: reader.u64()?,
            cpu_permille: reader.uint()?,
            storage: reader.u64()?,
            processes: reader.uint()?,
            network: reader.bool()?,
        };
        let start_timeout_ms = reader.uint()?;
        let files = (0..bounded(reader.array_any()?, MAX_FILES)?)
            .map(|_| {
                reader.array(4)?;
                Ok(PackedFile {
                    path: reader.text()?.to_owned(),
                    is_executable: reader.bool()?,
                    size: reader.u64()?,
                    digest: reader.fixed()?,
                })
            })
            .collect::<Result<_, DecodeError>>()?;
        if !reader.rest().is_empty() {
            return Err(DecodeError::TrailingBytes.into());
        }
        let manifest =
            Self { group, name, version, minimum, arguments, limits, start_timeout_ms, files };
        manifest.check()?;
        Ok(manifest)
    }

    /// Returns the length of all files together, in bytes.
    #[must_use]
    pub fn content_size(&self) -> u64 {
        self.files.iter().map(|file| file.size).fold(0, u64::saturating_add)
    }
}

/// Signs any bytes as the payload of a manifest. Readers reject payloads that break a rule.
///
/// # Errors
/// [`PackageError`].
pub fn sign_payload(payload: &[u8], operator: &dyn Signer) -> Result<Vec<u8>, PackageError> {
    let mut header = [0; _];
    let header = protected(operator.algorithm(), Typ::Agent, &mut header)?;
    let mut scratch = vec![0; payload.len() + OVERHEAD];
    let signature = operator.signature(sig_structure(&mut scratch, header, payload)?)?;
    let mut out = vec![0; payload.len() + OVERHEAD];
    let mut writer = Writer::new(&mut out);
    Sign1::encode(&mut writer, header, payload, &signature)?;
    let length = writer.position();
    out.truncate(length);
    Ok(out)
}

/// Returns the digest that identifies the content of a package: SHA-256 of its signed manifest.
#[must_use]
pub fn digest(manifest: &[u8]) -> Digest {
    Digest::of(&[manifest])
}

fn bounded(count: u64, limit: usize) -> Result<u64, DecodeError> {
    if count <= limit as u64 { Ok(count) } else { Err(DecodeError::FieldOutOfRange) }
}
