//! Packages: a signed manifest, followed by the content of each file (spec/agents.md, section 1).
//!
//! A package is a CBOR sequence. [`Package`] reads it as a stream: it verifies the manifest before
//! it reads any file, and each file while it passes its content on. Its memory does not depend on
//! the size of the files.

use std::fs::{self, File};
use std::io::{self, Cursor, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use moteseal_core::cbor::{DecodeError, Scanner, head};
use moteseal_core::record::GroupId;
use moteseal_core::signature::{PublicKey, Signer};
use sha2::{Digest as _, Sha256};

use super::error::PackageError;
use super::manifest::{MAX_CONTENT, MAX_FILES, MAX_MANIFEST, Manifest, PackedFile};

/// The number of bytes that are read at once.
const BLOCK: usize = 1 << 16;
/// The maximum depth of folders in a package.
const MAX_FOLDERS: usize = 64;

/// Whose packages are accepted.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The group.
    pub group: GroupId,
    /// The public key of the group's operator.
    pub operator: PublicKey,
}

/// A package whose manifest is verified, and whose files are read next.
#[derive(Debug)]
pub struct Package<R> {
    manifest: Manifest,
    signed: Vec<u8>,
    rest: io::Chain<Cursor<Vec<u8>>, R>,
    /// The number of files that were read.
    read: usize,
    /// For messages about the input.
    path: PathBuf,
}

/// Reads the signed manifest at the start of a package. Returns it with the bytes that were read
/// after it.
fn read_manifest(input: &mut impl Read, path: &Path) -> Result<(Vec<u8>, Vec<u8>), PackageError> {
    let (mut bytes, mut scanner) = (Vec::new(), Scanner::default());
    let mut block = vec![0; BLOCK];
    loop {
        let read = input.read(&mut block).map_err(PackageError::at(path))?;
        bytes.extend_from_slice(&block[..read]);
        match scanner.scan(&bytes) {
            Ok(length) if length <= MAX_MANIFEST => {
                let rest = bytes.split_off(length);
                return Ok((bytes, rest));
            }
            Err(DecodeError::Truncated) if read > 0 && bytes.len() <= MAX_MANIFEST => {}
            Ok(_) => return Err(PackageError::PackageTooLarge),
            Err(DecodeError::Truncated) if read > 0 => return Err(PackageError::PackageTooLarge),
            Err(error) => return Err(error.into()),
        }
    }
}

impl<R: Read> Package<R> {
    /// Reads and verifies the manifest. `path` names the input in errors.
    ///
    /// # Errors
    /// [`PackageError`].
    pub fn open(mut input: R, path: &Path, trust: &Trust) -> Result<Self, PackageError> {
        let (signed, rest) = read_manifest(&mut input, path)?;
        let manifest = Manifest::open(&signed, trust.group, &trust.operator)?;
        Ok(Self {
            manifest,
            signed,
            rest: Cursor::new(rest).chain(input),
            read: 0,
            path: path.to_owned(),
        })
    }

    /// Returns the verified manifest.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the bytes of the signed manifest.
    #[must_use]
    pub fn signed_manifest(&self) -> &[u8] {
        &self.signed
    }

    /// Returns the next file, or `None` after the last one. Its content must be read by
    /// [`content`](Self::content) before the next call.
    #[must_use]
    pub fn next_file(&self) -> Option<&PackedFile> {
        self.manifest.files.get(self.read)
    }

    /// Writes the content of the next file to `out` and verifies it.
    ///
    /// # Errors
    /// [`PackageError`]; the errors of `out` with the path of the package. After an error, the
    /// content that was written must not be used.
    pub fn content(&mut self, out: &mut dyn Write) -> Result<(), PackageError> {
        let Some(file) = self.manifest.files.get(self.read) else { return Ok(()) };
        let at = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => DecodeError::Truncated.into(),
            _ => PackageError::Io(self.path.clone(), error),
        };
        let (expected, length) = head(2, file.size);
        let mut found = [0; 9];
        let found = &mut found[..length];
        self.rest.read_exact(found).map_err(at)?;
        if found != &expected[..length] {
            return Err(PackageError::FileSizeMismatch(file.path.clone()));
        }
        let (mut hash, mut left) = (Sha256::new(), file.size);
        let mut block = vec![0; BLOCK];
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
            let part = &mut block[..part];
            self.rest.read_exact(part).map_err(at)?;
            hash.update(&*part);
            out.write_all(part).map_err(at)?;
            left -= part.len() as u64;
        }
        if hash.finalize()[..] != file.digest {
            return Err(PackageError::FileDigestMismatch(file.path.clone()));
        }
        self.read += 1;
        Ok(())
    }

    /// Checks that all files were read and that nothing follows them.
    ///
    /// # Errors
    /// `TrailingBytes`, and the errors of the input.
    pub fn finish(mut self) -> Result<(), PackageError> {
        let mut one = [0];
        let read = self.rest.read(&mut one).map_err(PackageError::at(&self.path))?;
        if read == 0 && self.read == self.manifest.files.len() {
            Ok(())
        } else {
            Err(DecodeError::TrailingBytes.into())
        }
    }
}

/// Reads the manifest of a package without a check of its signature, for display.
///
/// # Errors
/// [`PackageError`].
pub fn unverified_manifest(path: &Path) -> Result<(Manifest, Vec<u8>), PackageError> {
    let mut file = File::open(path).map_err(PackageError::at(path))?;
    let (signed, _) = read_manifest(&mut file, path)?;
    Ok((Manifest::unverified(&signed)?, signed))
}

/// Lists the files below a folder, in ascending order of their paths. Calculates their digests.
///
/// # Errors
/// [`PackageError`]; `NotAFile` for symbolic links, sockets and devices.
pub fn list(folder: &Path) -> Result<Vec<PackedFile>, PackageError> {
    let mut files = Vec::new();
    let mut open = vec![(folder.to_owned(), String::new(), 0)];
    let mut content = 0u64;
    while let Some((folder, prefix, depth)) = open.pop() {
        for entry in fs::read_dir(&folder).map_err(PackageError::at(&folder))? {
            let entry = entry.map_err(PackageError::at(&folder))?;
            let path = entry.path();
            let Ok(name) = entry.file_name().into_string() else {
                return Err(PackageError::UnsafePath(path.display().to_string()));
            };
            let inner = format!("{prefix}{name}");
            let found = fs::symlink_metadata(&path).map_err(PackageError::at(&path))?;
            if found.is_dir() && depth < MAX_FOLDERS {
                open.push((path, format!("{inner}/"), depth + 1));
            } else if found.is_file() {
                content = content.saturating_add(found.len());
                if files.len() >= MAX_FILES || content > MAX_CONTENT {
                    return Err(PackageError::PackageTooLarge);
                }
                let (size, digest) = hash(&path)?;
                let is_executable = found.permissions().mode() & 0o100 != 0;
                files.push(PackedFile { path: inner, is_executable, size, digest });
            } else {
                return Err(PackageError::NotAFile(path));
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

/// Returns the length and the SHA-256 of a file.
pub(super) fn hash(path: &Path) -> Result<(u64, [u8; 32]), PackageError> {
    let mut file = File::open(path).map_err(PackageError::at(path))?;
    let (mut hash, mut size, mut block) = (Sha256::new(), 0, vec![0; BLOCK]);
    loop {
        let read = file.read(&mut block).map_err(PackageError::at(path))?;
        if read == 0 {
            return Ok((size, hash.finalize().into()));
        }
        hash.update(&block[..read]);
        size += read as u64;
    }
}

/// Signs the manifest and writes the package of the files below `folder`, which
/// [`list`] has listed.
///
/// # Errors
/// [`PackageError`]; the errors of `out` with the path of the folder.
pub fn pack(
    folder: &Path,
    manifest: &Manifest,
    operator: &dyn Signer,
    out: &mut dyn Write,
) -> Result<(), PackageError> {
    let signed = manifest.sign(operator)?;
    out.write_all(&signed).map_err(PackageError::at(folder))?;
    let mut block = vec![0; BLOCK];
    for packed in &manifest.files {
        let path = folder.join(&packed.path);
        let changed = || PackageError::ChangedWhilePacking(path.clone());
        let mut file = File::open(&path).map_err(PackageError::at(&path))?;
        let (head, length) = head(2, packed.size);
        out.write_all(&head[..length]).map_err(PackageError::at(folder))?;
        let (mut hash, mut size) = (Sha256::new(), 0u64);
        loop {
            let read = file.read(&mut block).map_err(PackageError::at(&path))?;
            if read == 0 {
                break;
            }
            size += read as u64;
            if size > packed.size {
                return Err(changed());
            }
            hash.update(&block[..read]);
            out.write_all(&block[..read]).map_err(PackageError::at(folder))?;
        }
        if size != packed.size || hash.finalize()[..] != packed.digest {
            return Err(changed());
        }
    }
    Ok(())
}
