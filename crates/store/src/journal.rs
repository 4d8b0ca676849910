//! A durable journal: an append-only file of records. A device's outbox, a gateway, the archive and
//! the embedded store use it.
//!
//! Records are collected in memory, and [`Journal::sync`] writes them as one frame. A frame has
//! these fields, all numbers big-endian:
//!
//! - a marker of four bytes, the same for every frame
//! - the length of the frame's records (u32)
//! - a checksum of the marker and the length: the lower half of their xxHash64, seeded with the
//!   position of the frame in the file
//! - a checksum of the records: their xxHash64, seeded with the xxHash64 of the marker and the
//!   length
//! - each record, preceded by its length (u32)
//!
//! Zeros may follow the last frame: they are space that was written in advance
//! ([`Journal::fill_ahead`]).
//!
//! A frame is synced before the next one is written, so a crash can leave only the last frame
//! incomplete. Opening the journal drops that frame and keeps every frame that was synced before.
//! If a frame fails its checksum although a complete frame follows it, it was damaged later;
//! opening then returns an error with its position.
//!
//! If the last frame is damaged, it resembles an incomplete frame: [`Journal::open`] drops it, and
//! [`Journal::torn_bytes`] returns its length. A service that acknowledges what it has synced, such
//! as the embedded store or a gateway, opens its journal with [`Journal::open_strict`]. A last
//! frame that has its full length and no missing sector is then reported as damage. A service that
//! also records, in another file, up to which length it has acknowledged the journal, opens it with
//! [`Journal::open_acknowledged`]. A shorter journal is then reported as damage, too.
//!
//! A journal with space written in advance bypasses the page cache when it writes frames, if the
//! system allows this ([`direct`]). This reduces the operating system's work per frame by a third.

mod direct;
mod error;
mod offset;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use moteseal_files::{private, sync_folder_of};
use xxhash_rust::xxh64::xxh64;

use direct::{BLOCK, Direct};
pub use error::JournalError;
use offset::write_at;

use crate::lock::try_lock;

const HEADER: &[u8; 20] = b"moteseal journal, 2\n";
const FRAME: [u8; 4] = *b"\xf7MJ\n";
/// The length of a frame before its records, in bytes.
const FRAME_HEAD: usize = 20;
/// The unit that a disk writes completely or not at all.
const SECTOR: u64 = 512;
/// The approximate length of a frame in a compacted journal, in bytes. A reader holds one frame in
/// memory.
const COMPACT_FRAME: usize = 1 << 20;
/// The zeros that are written in advance.
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];
/// The maximum length of the records that wait for the next sync, in bytes.
pub const MAX_PENDING: usize = 256 << 20;

/// An open journal. The file is locked against other processes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// The position of the next frame.
    end: u64,
    /// The number of records in the file.
    synced: u64,
    /// The next frame, its head not yet filled in.
    pending: Vec<u8>,
    /// The length of the file. All bytes from `end` to here are zeros.
    filled: u64,
    /// How many bytes of space are written in advance at a time; 0 for none.
    ahead: u64,
    torn: u64,
    past_cache: PastCache,
    /// Whether frames were written that have not been synced.
    unsynced: bool,
}

/// Whether frames can be written past the page cache.
#[derive(Debug)]
enum PastCache {
    Untried,
    Refused,
    Open(Direct),
}

impl Journal {
    /// The length in bytes of a journal without records.
    pub(crate) const EMPTY_BYTES: u64 = HEADER.len() as u64;

    /// Opens the journal at `path`, or creates an empty one. Removes an incomplete last frame.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Self::open_with(path, Tail::Lenient, private().create(true))
    }

    /// Creates an empty journal. Removes a file or a symbolic link that has this name.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn create(path: &Path) -> Result<Self, JournalError> {
        let _ = fs::remove_file(path);
        // `create_new` never follows a symbolic link.
        Self::open_with(path, Tail::Lenient, private().create_new(true))
    }

    /// Like [`open`](Self::open), but if the last frame is damaged in a way that a crash cannot
    /// cause, returns [`JournalError::Damaged`] and leaves the frame in the file.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open_strict(path: &Path) -> Result<Self, JournalError> {
        Self::open_acknowledged(path, 0)
    }

    /// Like [`open_strict`](Self::open_strict), for a journal whose [`length`](Self::length) was at
    /// least `acknowledged` bytes after a sync. If its complete frames are shorter, returns
    /// [`JournalError::Damaged`].
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open_acknowledged(path: &Path, acknowledged: u64) -> Result<Self, JournalError> {
        Self::open_with(path, Tail::Strict { acknowledged }, private().create(true))
    }

    /// Opens an existing journal for reading only. Like
    /// [`open_acknowledged`](Self::open_acknowledged), but never writes to the file.
    ///
    /// # Errors
    /// [`JournalError`]; `Io` if the file does not exist.
    pub fn open_frozen(path: &Path, acknowledged: u64) -> Result<Self, JournalError> {
        let io = |error| JournalError::io(path, error);
        // A lock requires a file that is open for writing.
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        lock(path, &file)?;
        let length = file.metadata().map_err(io)?.len();
        let mut journal = Self::at(path, file, length);
        if journal.has_header()? {
            journal.find_end(length, Tail::Strict { acknowledged })?;
        }
        Ok(journal)
    }

    /// Returns a journal over a file of `length` bytes whose content has not been read yet.
    fn at(path: &Path, file: File, length: u64) -> Self {
        let end = HEADER.len() as u64;
        Self {
            path: path.to_owned(),
            file,
            end,
            synced: 0,
            pending: vec![0; FRAME_HEAD],
            filled: length,
            ahead: 0,
            torn: 0,
            past_cache: PastCache::Untried,
            unsynced: false,
        }
    }

    /// Makes the journal write `bytes` zeros in advance whenever the space for frames runs out. A
    /// sync then takes about half the time, because the space on the disk is already allocated and
    /// the file system need not record that the file has grown. In exchange, the journal writes
    /// about twice as many bytes.
    #[must_use]
    pub const fn fill_ahead(mut self, bytes: u64) -> Self {
        self.ahead = bytes;
        self
    }

    fn open_with(path: &Path, tail: Tail, options: &mut OpenOptions) -> Result<Self, JournalError> {
        let io = |error| JournalError::io(path, error);
        let mut file = options.read(true).write(true).truncate(false).open(path).map_err(io)?;
        lock(path, &file)?;
        let length = file.metadata().map_err(io)?.len();
        let mut journal = Self::at(path, file, length);
        if !journal.has_header()? {
            // The file is new, or a crash interrupted its creation.
            file = journal.handle()?;
            file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(HEADER)).map_err(io)?;
            file.sync_all().map_err(io)?;
            sync_folder_of(path).map_err(io)?;
            journal.filled = HEADER.len() as u64;
            return Ok(journal);
        }
        journal.find_end(length, tail)?;
        if journal.torn > 0 {
            journal.file.set_len(journal.end).and_then(|()| journal.file.sync_all()).map_err(io)?;
            journal.filled = journal.end;
        }
        Ok(journal)
    }

    /// Returns whether the file has the header of a journal, or `false` if the file ends within the
    /// header.
    fn has_header(&self) -> Result<bool, JournalError> {
        let mut header = Vec::new();
        (&self.file)
            .take(HEADER.len() as u64)
            .read_to_end(&mut header)
            .map_err(|error| JournalError::io(&self.path, error))?;
        if HEADER.starts_with(&header) {
            Ok(header.len() == HEADER.len())
        } else {
            Err(JournalError::NotAJournal(self.path.clone()))
        }
    }

    /// Finds the end of the synced frames in a file of `length` bytes.
    fn find_end(&mut self, length: u64, tail: Tail) -> Result<(), JournalError> {
        while let Some(records) = self.read_frame(self.end, length)? {
            self.synced += split(&records).count() as u64;
            self.end += (FRAME_HEAD + records.len()) as u64;
        }
        let rest = self.read_from(self.end)?;
        let damaged = match rest.iter().rposition(|&byte| byte != 0) {
            None => tail.lacks(self.end),
            Some(last) => {
                let stated =
                    frame_length(self.end, &rest).map_or(0, |length| length.min(rest.len()));
                self.torn = stated.max(last + 1) as u64;
                tail.lacks(self.end)
                    || self.complete_frame_after(&rest, length)?
                    || (tail.is_strict() && !can_be_torn(self.end, &rest))
            }
        };
        if damaged {
            return Err(JournalError::Damaged {
                path: self.path.clone(),
                offset: self.end,
                record: self.synced,
            });
        }
        Ok(())
    }

    /// Returns the length of the incomplete frame that was dropped when the journal was opened, in
    /// bytes. If a crash interrupted its write, none of its records had been synced. A synced frame
    /// of which a sector was later overwritten with zeros looks the same.
    #[must_use]
    pub const fn torn_bytes(&self) -> u64 {
        self.torn
    }

    /// Returns the number of synced records.
    #[must_use]
    pub const fn synced_records(&self) -> u64 {
        self.synced
    }

    /// Adds a record. It is durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`JournalError::TooMuch`].
    pub fn append(&mut self, record: &[u8]) -> Result<(), JournalError> {
        if !self.has_room_for(record) {
            return Err(JournalError::TooMuch(self.path.clone()));
        }
        // `MAX_PENDING` is below 2^32.
        #[allow(clippy::cast_possible_truncation)]
        self.pending.extend_from_slice(&(record.len() as u32).to_be_bytes());
        self.pending.extend_from_slice(record);
        Ok(())
    }

    fn has_room_for(&self, record: &[u8]) -> bool {
        self.waiting().len() + 4 + record.len() <= MAX_PENDING
    }

    /// Returns the encoded records of the next frame.
    fn waiting(&self) -> &[u8] {
        &self.pending[FRAME_HEAD..]
    }

    /// Makes everything appended so far durable: once this returns, the records survive a kill of
    /// the process and a power loss. After an error, treat none of them as written; the call can be
    /// repeated.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.write(true)
    }

    /// Like [`sync`](Self::sync), but if `sync` is false, does not wait for the disk and promises
    /// no durability.
    pub(crate) fn write(&mut self, sync: bool) -> Result<(), JournalError> {
        if self.waiting().is_empty() {
            return Ok(());
        }
        let head = frame_head(self.end, self.waiting());
        self.pending[..FRAME_HEAD].copy_from_slice(&head);
        let written = self.write_frame(sync);
        if let Err(error) = written {
            // Remove an incomplete frame, so that it cannot remain in the middle of the file.
            let _ = self.cut();
            return Err(JournalError::io(&self.path, error));
        }
        self.synced += split(self.waiting()).count() as u64;
        self.end += self.pending.len() as u64;
        self.filled = self.filled.max(self.end);
        self.discard();
        Ok(())
    }

    fn write_frame(&mut self, sync: bool) -> io::Result<()> {
        let until = (self.end + self.pending.len() as u64).next_multiple_of(BLOCK);
        if self.ahead > 0 && until > self.filled {
            // On a nearly full disk the frame alone may still fit, so an error here is not final.
            if self.fill(sync).is_err() {
                self.cut()?;
            }
        }
        if sync && !self.unsynced && until <= self.filled && self.write_past_cache()? {
            return Ok(());
        }
        write_at(&mut self.file, &self.pending, self.end)?;
        if matches!(self.past_cache, PastCache::Open(_)) {
            // The copy of the last block that direct writes use is now out of date.
            self.past_cache = PastCache::Untried;
        }
        if sync {
            self.file.sync_data()?;
        }
        self.unsynced = !sync;
        Ok(())
    }

    /// Writes the next frame past the page cache. Returns `false` if that is not possible.
    fn write_past_cache(&mut self) -> io::Result<bool> {
        if self.ahead == 0 || self.pending.len() > direct::LONGEST {
            return Ok(false);
        }
        if matches!(self.past_cache, PastCache::Untried) {
            let begun = self.end / BLOCK * BLOCK;
            #[allow(clippy::cast_possible_truncation)]
            let mut tail = vec![0; (self.end - begun) as usize];
            self.file.seek(SeekFrom::Start(begun))?;
            self.file.read_exact(&mut tail)?;
            self.past_cache = Direct::open(&self.path, &self.file, &tail)
                .map_or(PastCache::Refused, PastCache::Open);
        }
        let PastCache::Open(direct) = &mut self.past_cache else { return Ok(false) };
        match direct.write(self.end, &self.pending) {
            Ok(()) => Ok(true),
            // Some file systems accept direct access when the file is opened, but reject the write
            // or require larger blocks.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
                ) =>
            {
                self.past_cache = PastCache::Refused;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes zeros in advance, from the end of the file on. Syncs them if `sync` is true.
    fn fill(&mut self, sync: bool) -> io::Result<()> {
        let until = (self.end + self.pending.len() as u64 + self.ahead).next_multiple_of(BLOCK);
        let from = self.filled;
        self.file.seek(SeekFrom::Start(from))?;
        let mut left = until - from;
        while left > 0 {
            // Write large pieces, one per system call, so that the file system allocates many pages
            // at once.
            let piece = left.min(ZEROS.len() as u64);
            #[allow(clippy::cast_possible_truncation)]
            self.file.write_all(&ZEROS[..piece as usize])?;
            left -= piece;
        }
        if sync {
            self.file.sync_data()?;
        }
        self.filled = until;
        Ok(())
    }

    /// Truncates the file after the last frame.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.filled = self.end;
        Ok(())
    }

    /// Drops the records that were appended but not synced.
    pub(crate) fn discard(&mut self) {
        self.pending.truncate(FRAME_HEAD);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the end of the last complete frame, in bytes: the length of the file without the
    /// zeros written in advance and without an incomplete frame.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.end
    }

    /// Removes the file. The removal is durable when this returns.
    pub(crate) fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path)
            .and_then(|()| sync_folder_of(&self.path))
            .map_err(|error| JournalError::io(&self.path, error))
    }

    /// Returns all records in order: first the synced records, which are read and verified again,
    /// then the records that wait for the next sync.
    pub fn iter(&self) -> impl Iterator<Item = Result<Vec<u8>, JournalError>> + '_ {
        let (mut at, mut number, mut failed) = (HEADER.len() as u64, 0, false);
        let frames = std::iter::from_fn(move || {
            if at >= self.end || failed {
                return None;
            }
            let damaged =
                || JournalError::Damaged { path: self.path.clone(), offset: at, record: number };
            let records =
                self.read_frame(at, self.end).and_then(|records| records.ok_or_else(damaged));
            match records {
                Ok(records) => {
                    at += (FRAME_HEAD + records.len()) as u64;
                    let records: Vec<_> =
                        split(&records).map(|record| Ok(record.to_vec())).collect();
                    number += records.len() as u64;
                    Some(records)
                }
                Err(error) => {
                    failed = true;
                    Some(vec![Err(error)])
                }
            }
        });
        frames.flatten().chain(split(self.waiting()).map(|record| Ok(record.to_vec())))
    }

    /// Removes all records, including those that wait for the next sync. The removal is durable
    /// when this returns.
    ///
    /// # Errors
    /// [`JournalError`]. The records are then either all present or all removed. If they are
    /// removed, the next sync makes the removal durable.
    pub fn reset(&mut self) -> Result<(), JournalError> {
        let start = HEADER.len() as u64;
        let io = |error| JournalError::io(&self.path, error);
        self.file.set_len(start).map_err(io)?;
        // Set the new end even if the next step fails: the next frame must not leave a hole.
        (self.end, self.filled, self.synced) = (start, start, 0);
        self.past_cache = PastCache::Untried;
        self.discard();
        self.file.sync_all().map_err(|error| JournalError::io(&self.path, error))
    }

    /// Replaces the records of the journal by these records. A crash leaves either the old or the
    /// new records, never a mixture. Appended records that were not synced are dropped unless they
    /// are in `records`.
    ///
    /// # Errors
    /// [`JournalError`]. The journal is then unchanged, with one exception: if only its folder
    /// could not be synced, it has the new records, but a power loss may restore the old ones.
    pub fn compact<'r>(
        &mut self,
        records: impl IntoIterator<Item = &'r [u8]>,
    ) -> Result<(), JournalError> {
        self.compact_by(|_, compacted| {
            records.into_iter().try_for_each(|record| compacted.put(record))
        })
    }

    /// Like [`compact`](Self::compact), but for a journal of any length: the new records are
    /// `first`, followed by the records of the journal for which `keeps` returns true, in the same
    /// order. At most one frame is in memory at a time.
    ///
    /// # Errors
    /// Those of `keeps` and of [`compact`](Self::compact).
    pub fn retain<E: From<JournalError>>(
        &mut self,
        first: &[u8],
        mut keeps: impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        self.compact_by(|journal, compacted| {
            compacted.put(first)?;
            for record in journal.iter() {
                let record = record?;
                if keeps(&record)? {
                    compacted.put(&record)?;
                }
            }
            Ok(())
        })
    }

    fn compact_by<E: From<JournalError>>(
        &mut self,
        fill: impl FnOnce(&Self, &mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".new");
        let temporary = PathBuf::from(name);
        let compacted = self.write_compact(&temporary, fill);
        if compacted.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        let ahead = self.ahead;
        *self = compacted?.fill_ahead(ahead);
        // The new file now has the journal's name. Use it from here on, even after an error:
        // otherwise later records would go to the removed file.
        Ok(sync_folder_of(&self.path).map_err(|error| JournalError::io(&self.path, error))?)
    }

    fn write_compact<E: From<JournalError>>(
        &self,
        temporary: &Path,
        fill: impl FnOnce(&Self, &mut Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        // Lock the new file before it gets the journal's name, so that no other process can open it
        // first.
        let mut journal = Self::create(temporary)?;
        fill(self, &mut journal)?;
        journal.sync()?;
        fs::rename(temporary, &self.path).map_err(|error| JournalError::io(&self.path, error))?;
        journal.path.clone_from(&self.path);
        Ok(journal)
    }

    /// Adds a record to a new journal. Writes full frames without a sync, because the journal is
    /// used only after a final sync. At least the last record is always pending, so the final sync
    /// is never skipped.
    fn put(&mut self, record: &[u8]) -> Result<(), JournalError> {
        if self.waiting().len() + record.len() > COMPACT_FRAME {
            self.write(false)?;
        }
        self.append(record)
    }

    fn handle(&self) -> Result<File, JournalError> {
        self.file.try_clone().map_err(|error| JournalError::io(&self.path, error))
    }

    /// Returns the records of the frame at `offset` in a file of `length` bytes, or `None` if there
    /// is no complete frame.
    fn read_frame(&self, offset: u64, length: u64) -> Result<Option<Vec<u8>>, JournalError> {
        let read = || -> io::Result<Option<Vec<u8>>> {
            let Some(room) = length.checked_sub(offset + FRAME_HEAD as u64) else {
                return Ok(None);
            };
            let mut file = &self.file;
            file.seek(SeekFrom::Start(offset))?;
            let mut head = [0; FRAME_HEAD];
            file.read_exact(&mut head)?;
            let Some(size) = records_length(offset, &head).filter(|&size| u64::from(size) <= room)
            else {
                return Ok(None);
            };
            let mut records = vec![0; size as usize];
            file.read_exact(&mut records)?;
            Ok((frame_head(offset, &records) == head && is_whole(&records)).then_some(records))
        };
        read().map_err(|error| JournalError::io(&self.path, error))
    }

    fn read_from(&self, offset: u64) -> Result<Vec<u8>, JournalError> {
        let mut rest = Vec::new();
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| file.read_to_end(&mut rest))
            .map_err(|error| JournalError::io(&self.path, error))?;
        Ok(rest)
    }

    /// Returns whether a complete frame starts anywhere after the first byte of `rest`, the bytes
    /// that follow the last complete frame.
    fn complete_frame_after(&self, rest: &[u8], length: u64) -> Result<bool, JournalError> {
        for (at, _) in
            rest.windows(FRAME.len()).enumerate().skip(1).filter(|(_, bytes)| *bytes == FRAME)
        {
            if self.read_frame(self.end + at as u64, length)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How to treat bytes at the end of a file that are not a complete frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Always treat them as an incomplete frame.
    Lenient,
    /// Treat them as an incomplete frame only if a crash can have caused them, otherwise as damage.
    /// The file has had complete frames up to `acknowledged`, in bytes.
    Strict { acknowledged: u64 },
}

impl Tail {
    const fn is_strict(self) -> bool {
        matches!(self, Self::Strict { .. })
    }

    /// Returns whether acknowledged frames are missing from a journal with complete frames up to
    /// `end`.
    const fn lacks(self, end: u64) -> bool {
        matches!(self, Self::Strict { acknowledged } if end < acknowledged)
    }
}

fn lock(path: &Path, file: &File) -> Result<(), JournalError> {
    match try_lock(file) {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(JournalError::Locked(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(JournalError::io(path, error)),
    }
}

/// Returns the head of the frame at `offset`.
fn frame_head(offset: u64, records: &[u8]) -> [u8; FRAME_HEAD] {
    let mut head = [0; FRAME_HEAD];
    head[..4].copy_from_slice(&FRAME);
    // `MAX_PENDING` is below 2^32.
    #[allow(clippy::cast_possible_truncation)]
    head[4..8].copy_from_slice(&(records.len() as u32).to_be_bytes());
    let start = xxh64(&head[..8], offset);
    head[8..12].copy_from_slice(&start.to_be_bytes()[4..]);
    head[12..].copy_from_slice(&xxh64(records, start).to_be_bytes());
    head
}

/// Returns the length of the records of the frame at `offset`, or `None` if `head` is not a valid
/// head.
fn records_length(offset: u64, head: &[u8; FRAME_HEAD]) -> Option<u32> {
    let sound = head[..4] == FRAME && head[8..12] == xxh64(&head[..8], offset).to_be_bytes()[4..];
    sound.then(|| u32::from_be_bytes([head[4], head[5], head[6], head[7]]))
}

/// Returns the length of the frame at the start of `rest`, if its head is valid. `offset` is the
/// position of `rest` in the file.
fn frame_length(offset: u64, rest: &[u8]) -> Option<usize> {
    let size = records_length(offset, rest.first_chunk()?)?;
    Some(FRAME_HEAD.saturating_add(size as usize))
}

/// Returns whether `rest`, which follows the last complete frame at `offset`, can be a frame that a
/// crash left incomplete. Such a frame is too short, or it has its full length but some of its
/// sectors were never written.
fn can_be_torn(offset: u64, rest: &[u8]) -> bool {
    // If the head is damaged, the length of the frame is unknown, so only the sectors of the head
    // are examined.
    let length = frame_length(offset, rest).unwrap_or(FRAME_HEAD);
    let Some(frame) = rest.get(..length) else { return true };
    #[allow(clippy::cast_possible_truncation)]
    let (first, others) = frame.split_at(((SECTOR - offset % SECTOR) as usize).min(frame.len()));
    std::iter::once(first)
        .chain(others.chunks(SECTOR as usize))
        .any(|sector| sector.iter().all(|&byte| byte == 0))
}

/// Splits off the first record.
fn split_first(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = records.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

fn split(records: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = records;
    std::iter::from_fn(move || {
        let (record, tail) = split_first(rest)?;
        rest = tail;
        Some(record)
    })
}

/// Returns whether the bytes are a sequence of complete records.
fn is_whole(records: &[u8]) -> bool {
    split(records).map(|record| 4 + record.len()).sum::<usize>() == records.len()
}

/// Returns whether an error of the operating system means that space has run out: on the disk, in
/// the user's quota, or because a file may not grow further.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests;
