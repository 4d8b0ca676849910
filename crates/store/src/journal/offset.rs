//! Writes at an offset of a file, where possible without moving the file's position first.

use std::fs::File;
use std::io;
#[cfg(not(unix))]
use std::io::{Seek as _, SeekFrom, Write as _};

/// Writes all bytes at an offset of the file.
#[cfg(unix)]
pub(super) fn write_at(file: &mut File, bytes: &[u8], offset: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    file.write_all_at(bytes, offset)
}

/// Writes all bytes at an offset of the file.
#[cfg(not(unix))]
pub(super) fn write_at(file: &mut File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}
