//! Unpacks a package into a folder, and checks the files of a folder against a manifest.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{BufWriter, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use moteseal_files::sync_folder;

use super::error::PackageError;
use super::manifest::Manifest;
use super::package::{Package, hash};

/// The name of the signed manifest in the folder of a version.
pub(super) const MANIFEST: &str = "manifest";
/// The name of the folder with the files of the package in the folder of a version.
pub(super) const FILES: &str = "files";

/// Unpacks a package into `folder`, which must not exist. When this function returns, the folder's
/// content is durable; its name is not. After an error, the folder must be removed.
pub(super) fn unpack<R: Read>(mut package: Package<R>, folder: &Path) -> Result<(), PackageError> {
    let create =
        |path: &Path| DirBuilder::new().mode(0o700).create(path).map_err(PackageError::at(path));
    create(folder)?;
    let files = folder.join(FILES);
    create(&files)?;
    let mut folders = BTreeSet::from([folder.to_owned(), files.clone()]);
    while let Some(packed) = package.next_file() {
        // The manifest's check guarantees that the path has no component that leads out. The folder is
        // new, so that it contains no symbolic link.
        let path = files.join(&packed.path);
        let mode = if packed.is_executable { 0o700 } else { 0o600 };
        let parents: Vec<&Path> = path
            .ancestors()
            .skip(1)
            .take_while(|parent| parent.starts_with(&files) && *parent != files)
            .collect();
        for parent in parents.into_iter().rev() {
            if folders.insert(parent.to_owned()) {
                create(parent)?;
            }
        }
        let at = || PackageError::at(&path);
        let file =
            File::options().write(true).create_new(true).mode(mode).open(&path).map_err(at())?;
        let mut out = BufWriter::new(file);
        package.content(&mut out).map_err(|error| match error {
            PackageError::Io(_, error) => PackageError::Io(path.clone(), error),
            other => other,
        })?;
        out.flush().map_err(at())?;
        out.get_ref().sync_all().map_err(at())?;
    }
    let path = folder.join(MANIFEST);
    let mut file = moteseal_files::private()
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(PackageError::at(&path))?;
    file.write_all(package.signed_manifest())
        .and_then(|()| file.sync_all())
        .map_err(PackageError::at(&path))?;
    package.finish()?;
    for folder in folders.iter().rev() {
        sync_folder(folder).map_err(PackageError::at(folder))?;
    }
    Ok(())
}

/// Checks that each file of the manifest is below `files` with the right content.
pub(super) fn check(manifest: &Manifest, files: &Path) -> Result<(), PackageError> {
    for packed in &manifest.files {
        let path = files.join(&packed.path);
        let found = fs::symlink_metadata(&path).map_err(PackageError::at(&path))?;
        if !found.is_file() {
            return Err(PackageError::NotAFile(path));
        }
        let (size, digest) = hash(&path)?;
        if size != packed.size {
            return Err(PackageError::FileSizeMismatch(packed.path.clone()));
        }
        if digest != packed.digest {
            return Err(PackageError::FileDigestMismatch(packed.path.clone()));
        }
    }
    Ok(())
}
