//! Writes frames directly to the disk, past the page cache, if the system and the file system allow
//! it. One call both writes the frame and waits for the disk.
//!
//! Direct writes overwrite whole blocks. A write therefore repeats the bytes that precede the frame
//! in its first block, and ends with the zeros that follow the frame in its last block. It is used
//! only if the space for the frame was already written with zeros. After a crash the file is in the
//! same state as after writes through the cache: each sector is old or new. The format of the
//! journal is the same in both cases.

use std::fs::File;
use std::io;
use std::path::Path;

/// The alignment of positions, lengths and memory: the page size of most systems and the largest
/// block size of most disks. If a disk requires a larger alignment, the first write fails.
pub(super) const BLOCK: u64 = 4096;
const ALIGNMENT: usize = BLOCK as usize;
/// The maximum length of a frame that is written directly, in bytes. A frame must be copied into
/// aligned memory first. For longer frames, the copy takes more time than direct writing saves.
pub(super) const LONGEST: usize = 1 << 20;

/// A second handle of the journal's file.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// The memory from which blocks are written, starting at its first aligned byte. Between two
    /// writes it holds the used part of the block in which the last frame ends.
    buffer: Vec<u8>,
    /// The number of used bytes of that block.
    tail: usize,
}

impl Direct {
    /// Opens the file at `path` a second time. Returns `None` if it is not the file `same`, or if
    /// it does not allow direct writes. `tail` is the used part of the last block.
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

    /// Writes a frame after the last frame, which ends at `end`. The frame is durable when this
    /// returns. Returns `InvalidInput` if the file system rejects direct writes.
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

    /// Never called, because `open` returns `None`.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn write(&mut self, _end: u64, _frame: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes every later write fail with an unaligned position, as on a file system with larger
    /// blocks.
    #[cfg(test)]
    pub(super) const fn refuse_writes(&mut self) {
        self.tail += 1;
    }

    /// Returns whole blocks of aligned memory with room for `length` bytes. They begin with the
    /// used part of the last block.
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

/// Returns the offset of the first aligned byte of a buffer.
#[cfg(target_os = "linux")]
fn aligned(buffer: &[u8]) -> usize {
    let past = buffer.as_ptr().addr() % ALIGNMENT;
    (ALIGNMENT - past) % ALIGNMENT
}
