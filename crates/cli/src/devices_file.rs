//! Reads the file of `--devices-file`: a device on each line, `NAME` or `NAME=PUBLIC_KEY`. Empty lines
//! and lines that begin with # are ignored. Paths are relative to the file's folder.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::files;
use crate::roster;

/// Reads the names of the devices, and ignores their public keys.
///
/// # Errors
/// A failure that names the line; a failure if a name is repeated, or if there is none.
pub(crate) fn names(file: &Path) -> Result<Vec<String>, Failure> {
    let names: Vec<String> = read(file)?.into_iter().map(|(name, _)| name).collect();
    let mut seen = HashSet::with_capacity(names.len());
    if let Some(name) = names.iter().find(|name| !seen.insert(name.as_str())) {
        return Err(Failure::usage(format_args!("the device {name} is named twice")).about(file));
    }
    if names.is_empty() {
        return Err(Failure::usage("there is no device in --devices-file").about(file));
    }
    Ok(names)
}

/// Reads the devices, with the paths of their public keys where the file states them.
///
/// # Errors
/// A failure that names the line.
pub(crate) fn read(file: &Path) -> Result<Vec<(String, Option<PathBuf>)>, Failure> {
    let bytes = files::read(file)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| Failure::usage(format_args!("{} is not UTF-8 text", file.display())))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = |error| Failure::usage(format_args!("{}, line {number}: {error}", file.display()));
        entries.push(match line.split_once('=') {
            Some((name, path)) => {
                let (name, path) =
                    roster::device(&format!("{}={}", name.trim(), path.trim())).map_err(at)?;
                (name, Some(folder.join(path)))
            }
            None => (roster::device_name(line).map_err(at)?, None),
        });
    }
    Ok(entries)
}
