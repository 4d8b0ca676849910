//! Reads the small files that options refer to: tokens, passwords, certificates and keys.

use std::path::Path;

use crate::error::BadFile;

/// Reads a file of at most `limit` bytes.
pub(crate) fn read_small(path: &Path, limit: u64) -> Result<Vec<u8>, BadFile> {
    use std::io::Read;
    let bad = |error: std::io::Error| BadFile::new(path, crate::error::innermost(&error));
    let file = std::fs::File::open(path).map_err(bad)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(bad)?;
    if bytes.len() as u64 > limit {
        Err(BadFile::new(path, format!("longer than {limit} bytes")))
    } else {
        Ok(bytes)
    }
}
