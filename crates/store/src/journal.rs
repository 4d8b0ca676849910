//! The durable journal: an append-only file of records, for a device's outbox and in front of the
//! embedded store.
//!
//! Records are collected in memory. [`Journal::sync`] writes them as one frame: four bytes that
//! start every frame, the length of its records (u32), a checksum of these two (the lower half of
//! their xxHash64), a checksum of all of it (xxHash64), both seeded with the position of the frame
//! in the file, then each record after its length (u32). All numbers are big-endian. Zeros may
//! follow the last frame: room that was written ahead ([`Journal::fill_ahead`]).
//!
//! A frame is synced before the next one is written, so a crash can leave only the last frame
//! incomplete: opening the journal drops it, and everything synced before is present. A frame that
//! fails its checksum while a complete one follows was damaged later; that is an error with the
//! position.
//!
//! Damage to the last frame looks much like an incomplete frame: [`Journal::open`] drops it, and
//! [`Journal::torn_bytes`] returns its length. A service that acknowledges what it has synced, such
//! as the embedded store or a gateway, opens its journal with [`Journal::open_strict`]: a last
//! frame of full length without a missing sector is then reported as damage.
//!
//! A journal with room ahead writes frames past the page cache if the system allows it
//! ([`direct`]), which costs the system a third less work.

mod direct;
mod error;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh64::xxh64;

use direct::{BLOCK, Direct};
pub use error::JournalError;

use crate::lock::try_lock;

const HEADER: &[u8; 20] = b"moteseal journal, 2\n";
const FRAME: [u8; 4] = *b"\xf7MJ\n";
/// The bytes before a frame's records.
const FRAME_HEAD: usize = 20;
/// The unit that a disk writes completely or not at all.
const SECTOR: u64 = 512;
/// The approximate length of the frames of a compacted journal. A reader holds one frame in memory.
const COMPACT_FRAME: usize = 1 << 20;
/// The zeros of the room that is written ahead.
static ZEROS: [u8; 1 << 18] = [0; 1 << 18];
/// The maximum length of the records that wait to be synced, in bytes.
pub const MAX_PENDING: usize = 256 << 20;

/// An open journal. The file is locked against other processes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Where the next frame goes.
    end: u64,
    /// How many records are in the file.
    synced: u64,
    /// The next frame, its head not yet filled in.
    pending: Vec<u8>,
    /// The length of the file. The bytes from `end` on are zeros.
    filled: u64,
    /// How much room is written ahead of the frames at a time; 0 for none.
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
    /// Opens the journal at `path`, or creates an empty one. Removes an incomplete last frame.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Self::open_as(path, Tail::Lenient)
    }

    /// Like [`open`](Self::open), but a last frame that is damaged and cannot be the result of a
    /// crash is [`JournalError::Damaged`] and stays as it is.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open_strict(path: &Path) -> Result<Self, JournalError> {
        Self::open_as(path, Tail::Strict)
    }

    /// Opens an existing journal for reading only: like [`open_strict`](Self::open_strict), but
    /// writes and removes nothing.
    ///
    /// # Errors
    /// [`JournalError`]; `Io` if the file does not exist.
    pub fn open_frozen(path: &Path) -> Result<Self, JournalError> {
        let io = |error| JournalError::io(path, error);
        // Locks need a file that is open for writing.
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(io)?;
        lock(path, &file)?;
        let length = file.metadata().map_err(io)?.len();
        let mut journal = Self::at(path, file, length);
        if journal.has_header()? {
            journal.find_end(length, Tail::Strict)?;
        }
        Ok(journal)
    }

    /// A journal on a file of `length` bytes that has not been read yet.
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

    /// From now on, writes room for frames ahead, `bytes` at a time. A sync then finds its place on
    /// the disk allocated and waits only for the frame; otherwise the file system also has to
    /// record the growth of the file. This takes about half the time, for twice the bytes.
    #[must_use]
    pub const fn fill_ahead(mut self, bytes: u64) -> Self {
        self.ahead = bytes;
        self
    }

    fn open_as(path: &Path, tail: Tail) -> Result<Self, JournalError> {
        let io = |error| JournalError::io(path, error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io)?;
        lock(path, &file)?;
        let length = file.metadata().map_err(io)?.len();
        let mut journal = Self::at(path, file, length);
        if !journal.has_header()? {
            // The file is new, or a crash interrupted its creation.
            file = journal.handle()?;
            file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(HEADER)).map_err(io)?;
            file.sync_all().map_err(io)?;
            sync_directory(path).map_err(io)?;
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

    /// Whether the file has the header of a journal; `false` if it is too short.
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
        let Some(last) = rest.iter().rposition(|&byte| byte != 0) else { return Ok(()) };
        self.torn = last as u64 + 1;
        if self.complete_frame_after(&rest, length)?
            || (tail == Tail::Strict && !can_be_torn(self.end, &rest))
        {
            return Err(JournalError::Damaged {
                path: self.path.clone(),
                offset: self.end,
                record: self.synced,
            });
        }
        Ok(())
    }

    /// The bytes of an incomplete frame that opening the journal dropped: no part of it had been
    /// synced.
    #[must_use]
    pub const fn torn_bytes(&self) -> u64 {
        self.torn
    }

    /// The number of synced records.
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
        // The limit is below 2^32.
        #[allow(clippy::cast_possible_truncation)]
        self.pending.extend_from_slice(&(record.len() as u32).to_be_bytes());
        self.pending.extend_from_slice(record);
        Ok(())
    }

    fn has_room_for(&self, record: &[u8]) -> bool {
        self.waiting().len() + 4 + record.len() <= MAX_PENDING
    }

    /// The records of the next frame.
    fn waiting(&self) -> &[u8] {
        &self.pending[FRAME_HEAD..]
    }

    /// Makes everything appended so far durable. Once this returns, it survives a kill and a power
    /// loss. After an error none of it counts as written, and the call can be repeated.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.write(true)
    }

    /// Like [`sync`](Self::sync); without `sync` it does not wait for the disk and promises
    /// nothing.
    pub(crate) fn write(&mut self, sync: bool) -> Result<(), JournalError> {
        if self.waiting().is_empty() {
            return Ok(());
        }
        let head = frame_head(self.end, self.waiting());
        self.pending[..FRAME_HEAD].copy_from_slice(&head);
        let written = self.write_frame(sync);
        if let Err(error) = written {
            // An incomplete frame must not stay in the middle of the file.
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
            // A frame may fit without the room ahead: the last bytes of a disk are for frames.
            if self.fill(sync).is_err() {
                self.cut()?;
            }
        }
        if sync && !self.unsynced && until <= self.filled && self.write_past_cache()? {
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(&self.pending)?;
        if matches!(self.past_cache, PastCache::Open(_)) {
            // The end of the file is unknown now.
            self.past_cache = PastCache::Untried;
        }
        if sync {
            self.file.sync_data()?;
        }
        self.unsynced = !sync;
        Ok(())
    }

    /// Writes the next frame past the page cache; returns `false` if that is not possible.
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
            // The file system accepts direct access when the file is opened, but not when it is
            // written, or it requires larger blocks.
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

    /// Writes zeros after the next frame's position, and syncs them if frames are synced.
    fn fill(&mut self, sync: bool) -> io::Result<()> {
        let until = (self.end + self.pending.len() as u64 + self.ahead).next_multiple_of(BLOCK);
        let from = self.filled;
        self.file.seek(SeekFrom::Start(from))?;
        let mut left = until - from;
        while left > 0 {
            // In large pieces, one system call each, so that the file system allocates many pages
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

    /// Removes what follows the last frame.
    fn cut(&mut self) -> io::Result<()> {
        self.file.set_len(self.end)?;
        self.filled = self.end;
        Ok(())
    }

    /// Forgets what was appended and not synced.
    pub(crate) fn discard(&mut self) {
        self.pending.truncate(FRAME_HEAD);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The end of the last complete frame, in bytes: the length of the file without the room ahead
    /// and without an incomplete frame.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.end
    }

    /// Removes the file. Durable when it returns.
    pub(crate) fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path)
            .and_then(|()| sync_directory(&self.path))
            .map_err(|error| JournalError::io(&self.path, error))
    }

    /// All records in order: the synced ones, read again and verified, then those that wait.
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

    /// Removes all records, including those that wait. Durable when it returns.
    ///
    /// # Errors
    /// [`JournalError`]; the records are then all present or all removed; if they are removed, the
    /// next sync makes that durable.
    pub fn reset(&mut self) -> Result<(), JournalError> {
        let start = HEADER.len() as u64;
        let io = |error| JournalError::io(&self.path, error);
        self.file.set_len(start).map_err(io)?;
        // Whether or not the next step succeeds, the file ends here now: the next frame must not
        // leave a hole.
        (self.end, self.filled, self.synced) = (start, start, 0);
        self.past_cache = PastCache::Untried;
        self.discard();
        self.file.sync_all().map_err(|error| JournalError::io(&self.path, error))
    }

    /// Keeps only these records, in one step that is either complete or undone after a crash.
    /// Records that wait are dropped, unless they are among them.
    ///
    /// # Errors
    /// [`JournalError`]; the journal is then unchanged, unless only its folder could not be synced:
    /// then it has these records, and a power loss may restore the previous state.
    pub fn compact<'r>(
        &mut self,
        records: impl IntoIterator<Item = &'r [u8]>,
    ) -> Result<(), JournalError> {
        self.compact_by(|_, compacted| {
            records.into_iter().try_for_each(|record| compacted.put(record))
        })
    }

    /// Like [`compact`](Self::compact), for a journal of any length: keeps `first`, then those of
    /// its records for which `keeps` returns true, in their order, with one frame of them in memory
    /// at a time.
    ///
    /// # Errors
    /// Those of `keeps`, and of [`compact`](Self::compact).
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
        // The new file has the journal's name: from here on it is the journal, or later records
        // would go to a removed file.
        Ok(sync_directory(&self.path).map_err(|error| JournalError::io(&self.path, error))?)
    }

    fn write_compact<E: From<JournalError>>(
        &self,
        temporary: &Path,
        fill: impl FnOnce(&Self, &mut Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        let _ = fs::remove_file(temporary);
        // The new file is locked before it gets its name, so that no other process can open it
        // first.
        let mut journal = Self::open(temporary)?;
        fill(self, &mut journal)?;
        journal.sync()?;
        fs::rename(temporary, &self.path).map_err(|error| JournalError::io(&self.path, error))?;
        journal.path.clone_from(&self.path);
        Ok(journal)
    }

    /// Adds a record to a journal that is used only after all of it is synced. The last record
    /// always waits for that.
    fn put(&mut self, record: &[u8]) -> Result<(), JournalError> {
        if self.waiting().len() + record.len() > COMPACT_FRAME {
            self.write(false)?;
        }
        self.append(record)
    }

    fn handle(&self) -> Result<File, JournalError> {
        self.file.try_clone().map_err(|error| JournalError::io(&self.path, error))
    }

    /// The records of the frame at `offset` of a file of `length` bytes; `None` if there is no
    /// complete frame.
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

    /// Whether a complete frame starts anywhere after the first byte of `rest`, which follows the
    /// last complete frame.
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

/// How to treat an end of a file that is not a complete frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tail {
    /// Always as incomplete.
    Lenient,
    /// As incomplete only if a crash can have caused it.
    Strict,
}

fn lock(path: &Path, file: &File) -> Result<(), JournalError> {
    match try_lock(file) {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(JournalError::Locked(path.to_owned())),
        Err(TryLockError::Error(error)) => Err(JournalError::io(path, error)),
    }
}

/// The head of the frame at `offset`.
fn frame_head(offset: u64, records: &[u8]) -> [u8; FRAME_HEAD] {
    let mut head = [0; FRAME_HEAD];
    head[..4].copy_from_slice(&FRAME);
    // The limit on waiting records is below 2^32.
    #[allow(clippy::cast_possible_truncation)]
    head[4..8].copy_from_slice(&(records.len() as u32).to_be_bytes());
    let start = xxh64(&head[..8], offset);
    head[8..12].copy_from_slice(&start.to_be_bytes()[4..]);
    head[12..].copy_from_slice(&xxh64(records, start).to_be_bytes());
    head
}

/// The bytes of records of the frame at `offset`; `None` if this is not its head.
fn records_length(offset: u64, head: &[u8; FRAME_HEAD]) -> Option<u32> {
    let sound = head[..4] == FRAME && head[8..12] == xxh64(&head[..8], offset).to_be_bytes()[4..];
    sound.then(|| u32::from_be_bytes([head[4], head[5], head[6], head[7]]))
}

/// Whether `rest`, at `offset` after the last complete frame, can be what a crash left of the next
/// one: less than all of it, or all of it with sectors that were never written.
fn can_be_torn(offset: u64, rest: &[u8]) -> bool {
    let Some(head) = rest.first_chunk::<FRAME_HEAD>() else { return true };
    // If the head is damaged, only its sectors can show whether the rest of the frame was ever
    // written.
    let length = records_length(offset, head)
        .map_or(FRAME_HEAD, |size| FRAME_HEAD.saturating_add(size as usize));
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

/// Whether the bytes are records and nothing else.
fn is_whole(records: &[u8]) -> bool {
    split(records).map(|record| 4 + record.len()).sum::<usize>() == records.len()
}

/// Whether an error of the operating system means that there is no room left: on the disk, in the
/// quota, or in the file.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// Syncs the directory of a new or renamed file, which makes its name durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
