//! The storage backend under redb: a file of pages, each with a checksum that is verified on every
//! read.
//!
//! redb itself verifies its pages only when it repairs a file. This backend stores redb's first
//! page, its header, unchanged, because the header's commit slots have their own checksums. Every
//! later page of 4,096 bytes is followed by its xxHash64 (eight bytes), seeded with the number of
//! the page, which also detects a page in the wrong place. A damaged page is read as zeros: redb
//! then stops, because the page is neither a leaf nor a branch, and never follows a damaged pointer
//! or returns a damaged value. The backend does not return an error for a damaged page, because
//! after an error redb would reject every further operation.
//!
//! The last 56 bytes of the first page, which redb does not use, belong to the store. The last 32
//! of them mark the file as a store and state its version. The 8 bytes before them state whether
//! the store needs its journal ([`set_needs_journal`]), and the 16 bytes before these how much of
//! the journal was acknowledged ([`set_acknowledged`]).
//!
//! [`Pages::frozen`] never writes to the file. Everything that redb writes, for example to repair
//! the file or to record that it is open, stays in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use xxhash_rust::xxh64::xxh64;

const PAGE: u64 = 4096;
const STRIDE: u64 = PAGE + 8;
/// The position of [`MARK`] in the file, in bytes.
const MARK_AT: u64 = PAGE - 32;
/// The mark that distinguishes a store from other redb files.
const MARK: &[u8; 32] = b"moteseal epoch store, version 1\n";

/// The position in the file, in bytes, of [`NEEDS_JOURNAL`] or of as many zeros.
const JOURNAL_AT: u64 = MARK_AT - NEEDS_JOURNAL.len() as u64;
/// States that the store's journal may have acknowledged data that is not in the tables.
const NEEDS_JOURNAL: &[u8; 8] = b"journal\n";

/// The position in the file, in bytes, of the record of [`set_acknowledged`].
const ACKNOWLEDGED_AT: u64 = JOURNAL_AT - 16;

/// The numbers of the pages that were read and found damaged.
pub(crate) type Damaged = Arc<Mutex<BTreeSet<u64>>>;

/// A redb backend over one file whose pages are verified.
#[derive(Debug)]
pub(crate) struct Pages<B = FileBackend> {
    file: B,
    damaged: Damaged,
    overlay: Option<Mutex<Overlay>>,
}

/// The changes to a frozen file, which are kept in memory.
#[derive(Debug)]
struct Overlay {
    length: u64,
    /// The header, and those pages that differ from the file, by number.
    header: Vec<u8>,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl<B: StorageBackend> Pages<B> {
    /// Returns a backend over any storage.
    pub(crate) const fn on(file: B, damaged: Damaged) -> Self {
        Self { file, damaged, overlay: None }
    }

    /// Returns whether the content of a page matches its checksum, and records a mismatch.
    fn verify(&self, number: u64, page: &[u8], stored: u64) -> bool {
        if xxh64(page, number) == stored {
            return true;
        }
        // A page that was never written is all zeros, as is its checksum. It is not damaged.
        let unwritten = stored == 0 && page.iter().all(|&byte| byte == 0);
        if !unwritten {
            self.damaged.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
        }
        unwritten
    }
}

impl Pages {
    /// Returns a backend that reads and writes `file`. `damaged` collects the numbers of damaged
    /// pages.
    pub(crate) fn new(file: File, damaged: Damaged) -> io::Result<Self> {
        Ok(Self::on(backend(file)?, damaged))
    }

    /// Returns a backend that reads `file` and never writes to it.
    pub(crate) fn frozen(file: File, damaged: Damaged) -> io::Result<Self> {
        let mut pages = Self::new(file, damaged)?;
        let length = pages.len()?;
        let mut header = vec![0; PAGE as usize];
        pages.file.read(0, &mut header)?;
        pages.overlay = Some(Mutex::new(Overlay { length, header, pages: BTreeMap::new() }));
        Ok(pages)
    }
}

/// Marks a new file as a store.
pub(crate) fn mark(file: &File) -> io::Result<()> {
    backend(file.try_clone()?)?.write(MARK_AT, MARK)
}

/// Returns whether a file is marked as a store.
pub(crate) fn is_marked(file: &File) -> io::Result<bool> {
    if file.metadata()?.len() < PAGE {
        return Ok(false);
    }
    let mut found = [0; MARK.len()];
    backend(file.try_clone()?)?.read(MARK_AT, &mut found)?;
    Ok(found == *MARK)
}

/// Records in a store's file whether its journal may have acknowledged data that is not in the
/// tables. If not, also removes the record of [`set_acknowledged`]. The record is durable when this
/// returns.
pub(crate) fn set_needs_journal(file: &File, needs: bool) -> io::Result<()> {
    if needs {
        file.write_all_at(NEEDS_JOURNAL, JOURNAL_AT)?;
    } else {
        file.write_all_at(&[0; 16 + NEEDS_JOURNAL.len()], ACKNOWLEDGED_AT)?;
    }
    file.sync_data()
}

/// Records in a store's file the length of its journal up to which all batches were acknowledged,
/// in bytes, with a checksum of the length. After a kill of the process the record is exact. After
/// a power loss it may be an older one, because this function does not sync it.
pub(crate) fn set_acknowledged(file: &File, length: u64) -> io::Result<()> {
    let mut record = [0; 16];
    if length > 0 {
        record[..8].copy_from_slice(&length.to_be_bytes());
        let sum = xxh64(&record[..8], ACKNOWLEDGED_AT);
        record[8..].copy_from_slice(&sum.to_be_bytes());
    }
    file.write_all_at(&record, ACKNOWLEDGED_AT)
}

/// Returns the length that [`set_acknowledged`] recorded, or 0 if there is no valid record. Stores
/// of earlier versions have no record.
pub(crate) fn acknowledged(file: &File) -> io::Result<u64> {
    let mut found = [0; 16];
    file.read_exact_at(&mut found, ACKNOWLEDGED_AT)?;
    let (length, sum) = found.split_at(8);
    let valid = xxh64(length, ACKNOWLEDGED_AT).to_be_bytes() == sum;
    Ok(if valid { u64::from_be_bytes(length.try_into().unwrap_or_default()) } else { 0 })
}

/// Returns whether the record of [`set_needs_journal`] in a store's file is true. Stores of earlier
/// versions have no record.
pub(crate) fn needs_journal(file: &File) -> io::Result<bool> {
    let mut found = [0; NEEDS_JOURNAL.len()];
    file.read_exact_at(&mut found, JOURNAL_AT)?;
    Ok(found == *NEEDS_JOURNAL)
}

fn backend(file: File) -> io::Result<FileBackend> {
    FileBackend::new(file).map_err(io::Error::other)
}

/// Returns the position of a page in the file, in bytes. If `page` is the number of pages, this is
/// the end of the file.
const fn physical(page: u64) -> u64 {
    if page == 0 { 0 } else { PAGE + (page - 1) * STRIDE }
}

fn aligned(offset: u64, length: usize) -> io::Result<std::ops::Range<u64>> {
    let length = length as u64;
    if offset == 0 || !offset.is_multiple_of(PAGE) || !length.is_multiple_of(PAGE) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "redb reads and writes whole pages",
        ));
    }
    Ok(offset / PAGE..(offset + length) / PAGE)
}

fn past_end() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a page past the end of the file")
}

impl<B: StorageBackend> StorageBackend for Pages<B> {
    fn len(&self) -> io::Result<u64> {
        if let Some(overlay) = &self.overlay {
            return Ok(overlay.lock().unwrap_or_else(PoisonError::into_inner).length);
        }
        let length = self.file.len()?;
        Ok(if length <= PAGE { length } else { PAGE + (length - PAGE) / STRIDE * PAGE })
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset + out.len() as u64 <= PAGE {
            return match &self.overlay {
                Some(overlay) => {
                    let overlay = overlay.lock().unwrap_or_else(PoisonError::into_inner);
                    out.copy_from_slice(&overlay.header[offset as usize..][..out.len()]);
                    Ok(())
                }
                None => self.file.read(offset, out),
            };
        }
        let pages = aligned(offset, out.len())?;
        if pages.end * PAGE > self.len()? {
            return Err(past_end());
        }
        let mut raw = vec![0; ((pages.end - pages.start) * STRIDE) as usize];
        // A frozen file may be longer in memory than on disk. The bytes after its end on disk are
        // zeros.
        let real = self.file.len()?.saturating_sub(physical(pages.start)).min(raw.len() as u64);
        self.file.read(physical(pages.start), &mut raw[..real as usize])?;
        let overlay = self
            .overlay
            .as_ref()
            .map(|overlay| overlay.lock().unwrap_or_else(PoisonError::into_inner));
        let mut whole = true;
        for ((number, raw), out) in
            pages.zip(raw.chunks_exact(STRIDE as usize)).zip(out.chunks_exact_mut(PAGE as usize))
        {
            if let Some(page) = overlay.as_ref().and_then(|overlay| overlay.pages.get(&number)) {
                out.copy_from_slice(page);
                continue;
            }
            let (page, sum) = raw.split_at(PAGE as usize);
            whole &=
                self.verify(number, page, u64::from_le_bytes(sum.try_into().unwrap_or_default()));
            out.copy_from_slice(page);
        }
        if !whole {
            // redb reads a long value in one piece: if one page of it is damaged, no other page may
            // look valid.
            out.fill(0);
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if let Some(overlay) = &self.overlay {
            overlay.lock().unwrap_or_else(PoisonError::into_inner).length = length;
            return Ok(());
        }
        self.file.set_len(if length <= PAGE { length } else { physical(length.div_ceil(PAGE)) })
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.overlay.is_some() { Ok(()) } else { self.file.sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let in_header = offset + data.len() as u64 <= PAGE;
        let pages = if in_header { 0..0 } else { aligned(offset, data.len())? };
        if let Some(overlay) = &self.overlay {
            let mut overlay = overlay.lock().unwrap_or_else(PoisonError::into_inner);
            if in_header {
                overlay.header[offset as usize..][..data.len()].copy_from_slice(data);
            }
            for (number, page) in pages.zip(data.chunks_exact(PAGE as usize)) {
                overlay.pages.insert(number, page.into());
            }
            return Ok(());
        }
        if in_header {
            return self.file.write(offset, data);
        }
        let start = physical(pages.start);
        let mut raw = Vec::with_capacity(((pages.end - pages.start) * STRIDE) as usize);
        for (number, page) in pages.zip(data.chunks_exact(PAGE as usize)) {
            raw.extend_from_slice(page);
            raw.extend_from_slice(&xxh64(page, number).to_le_bytes());
        }
        self.file.write(start, &raw)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
