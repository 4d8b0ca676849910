//! Frames straight to the disk, past the page cache, where the system and the file system can: one call writes and waits.
//!
//! It writes whole blocks over what is there: in front of a frame stands what its first block held before, behind it zeros, as
//! stood there. So it is for frames whose room was written ahead, and what a crash leaves is what it would leave of the same
//! bytes written the usual way, old or new by the sector. The journal's file and format know nothing of it.

use std::fs::File;
use std::io;
use std::path::Path;

/// What positions, lengths and memory are aligned to: the page of most systems and the largest block of most disks. Where a disk
/// wants more, the first write is refused.
pub(super) const BLOCK: u64 = 4096;
const ALIGNMENT: usize = BLOCK as usize;
/// Longer frames go the usual way: they do not pay for a copy.
pub(super) const LONGEST: usize = 1 << 20;

/// A second handle of the journal's file.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// Behind its first aligned byte stands what is written: the block in which the last frame ends, up to there.
    buffer: Vec<u8>,
    /// How much of that block the last frame fills.
    tail: usize,
}

impl Direct {
    /// Opens the file at `path` once more, if it still is `same` and can be written so. `tail` are the bytes of the last begun block.
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

    /// Nothing is known of other systems.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open(_path: &Path, _same: &File, _tail: &[u8]) -> Option<Self> {
        None
    }

    /// Writes a frame behind the last one, which ends at `end`. Durable when it returns. `InvalidInput` if files cannot be written so.
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

    /// It is never opened.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn write(&mut self, _end: u64, _frame: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// From now on every write is refused, as by a file system with larger blocks: it is at no block's start.
    #[cfg(test)]
    pub(super) const fn refuse_writes(&mut self) {
        self.tail += 1;
    }

    /// Whole blocks of memory for `length` bytes, the begun block still in front.
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

/// Where the first aligned byte of a buffer stands.
#[cfg(target_os = "linux")]
fn aligned(buffer: &[u8]) -> usize {
    let past = buffer.as_ptr().addr() % ALIGNMENT;
    (ALIGNMENT - past) % ALIGNMENT
}
