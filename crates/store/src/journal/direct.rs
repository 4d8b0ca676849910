//! Writes frames directly to the disk, past the page cache, if the system and the file system allow
//! it. One call writes and waits for the disk.
//!
//! It overwrites whole blocks: before a frame it repeats the earlier bytes of the first block, and
//! after it the zeros that were there. It therefore only writes frames whose space was written
//! ahead. After a crash the file is the same as if the bytes had been written through the cache:
//! each sector is old or new. The format of the journal does not depend on it.

use std::fs::File;
use std::io;
use std::path::Path;

/// The alignment of positions, lengths and memory: the page size of most systems and the largest
/// block of most disks. If a disk requires more, the first write fails.
pub(super) const BLOCK: u64 = 4096;
const ALIGNMENT: usize = BLOCK as usize;
/// Longer frames are written through the page cache, because the copy costs more than it saves.
pub(super) const LONGEST: usize = 1 << 20;

/// A second handle of the journal's file.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// The bytes to write, from the first aligned byte on. Between two writes it holds the used
    /// part of the block in which the last frame ends.
    buffer: Vec<u8>,
    /// How many bytes of that block are used.
    tail: usize,
}

impl Direct {
    /// Opens the file at `path` again, if it is still the file `same` and allows direct writes.
    /// `tail` is the used part of the last block.
    #[cfg(target_os = "linux")]
    pub(super) fn open(path: &Path, same: &File, tail: &[u8]) -> Option<Self> {
        use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

        let flags = (rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC).bits();
        let file = std::fs::OpenOptions::new()
            .write(true)
            .custom_flags(flags.cast_signed())
            .open(path)
            .ok()?;
        let (found, expected) = (file.metadata().ok()?, same.metadata().ok()?);
        if (found.dev(), found.ino()) != (expected.dev(), expected.ino()) || tail.len() >= ALIGNMENT
        {
            return None;
        }
        let mut direct = Self { file, buffer: Vec::new(), tail: tail.len() };
        direct.blocks(tail.len())[..tail.len()].copy_from_slice(tail);
        Some(direct)
    }

    /// Direct writes are not implemented for other systems.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open(_path: &Path, _same: &File, _tail: &[u8]) -> Option<Self> {
        None
    }

    /// Writes a frame after the last one, which ends at `end`. It is durable when this returns.
    /// `InvalidInput` if the file system rejects direct writes.
    #[cfg(target_os = "linux")]
    pub(super) fn write(&mut self, end: u64, frame: &[u8]) -> io::Result<()> {
        use std::os::unix::fs::FileExt;

        let tail = self.tail;
        let start = end
            .checked_sub(tail as u64)
            .filter(|start| start.is_multiple_of(BLOCK))
            .ok_or(io::ErrorKind::InvalidInput)?;
        let filled = tail + frame.len();
        let blocks = self.blocks(filled);
        blocks[tail..filled].copy_from_slice(frame);
        blocks[filled..].fill(0);
        let begun = filled / ALIGNMENT * ALIGNMENT;
        let length = blocks.len();
        let at = aligned(&self.buffer);
        self.file.write_all_at(&self.buffer[at..at + length], start)?;
        self.buffer.copy_within(at + begun..at + filled, at);
        self.tail = filled - begun;
        Ok(())
    }

    /// Never called, since `open` returns `None`.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn write(&mut self, _end: u64, _frame: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes every later write fail as on a file system with larger blocks, because its position is
    /// not aligned.
    #[cfg(test)]
    pub(super) const fn refuse_writes(&mut self) {
        self.tail += 1;
    }

    /// Whole blocks of aligned memory for `length` bytes, beginning with the used part of the last
    /// block.
    #[cfg(target_os = "linux")]
    fn blocks(&mut self, length: usize) -> &mut [u8] {
        let whole = length.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        if self.buffer.len() < whole + ALIGNMENT {
            let begun = self.buffer.get(aligned(&self.buffer)..).unwrap_or_default();
            let begun = begun[..self.tail.min(begun.len())].to_vec();
            self.buffer = vec![0; whole + ALIGNMENT];
            let at = aligned(&self.buffer);
            self.buffer[at..at + begun.len()].copy_from_slice(&begun);
        }
        let at = aligned(&self.buffer);
        &mut self.buffer[at..at + whole]
    }
}

/// The offset of the first aligned byte of a buffer.
#[cfg(target_os = "linux")]
fn aligned(buffer: &[u8]) -> usize {
    let past = buffer.as_ptr().addr() % ALIGNMENT;
    (ALIGNMENT - past) % ALIGNMENT
}
