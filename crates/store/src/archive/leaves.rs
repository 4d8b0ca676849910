//! The file of one chain's leaves: an append-only sequence of records. Each record has the number
//! of the leaf's block (u32), its index in the block (u8), its length (u16), a checksum (xxHash64),
//! and the leaf. The checksum covers the whole record and the record's position in the file.
//! Numbers are big-endian.
//!
//! Opening the file removes a record that a crash left incomplete and skips damaged records. The
//! node requests the missing leaves again. If a leaf has two records, the later one is valid.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use moteseal_broadcast::ChainRef;
use xxhash_rust::xxh64::xxh64;

/// The bytes of a record before the leaf.
const HEAD: usize = 15;
/// The file name extension of leaf files.
const SUFFIX: &str = ".leaves";

/// Returns the number of bytes that a leaf occupies in the file.
pub(super) const fn room_for(leaf: &[u8]) -> u64 {
    (HEAD + leaf.len()) as u64
}

/// Returns the path of a chain's leaf file.
pub(super) fn path_of(folder: &Path, chain: ChainRef) -> PathBuf {
    folder.join(format!("{chain}{SUFFIX}"))
}

/// Returns the chain whose leaf file has this name, or `None` if it is not the name of a leaf file.
pub(super) fn chain_of(path: &Path) -> Option<ChainRef> {
    let digits = path.file_name()?.to_str()?.strip_suffix(SUFFIX)?;
    let chain = ChainRef(u64::from_str_radix(digits, 16).ok()?.to_be_bytes());
    (chain.to_string() == digits).then_some(chain)
}

/// The open leaf file of a chain.
#[derive(Debug)]
pub(super) struct Leaves {
    file: File,
    end: u64,
    /// For each leaf, the start of its record in the file and the length of the leaf.
    places: HashMap<(u32, u8), (u64, u16)>,
}

impl Leaves {
    /// Opens the file of a chain, or creates an empty one.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = moteseal_files::private();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let length = file.metadata()?.len();
        let mut leaves = Self { file, end: 0, places: HashMap::new() };
        let mut buffer = Vec::new();
        let mut at = 0;
        while let Some(head) = leaves.head_at(at, length)? {
            let next = at + HEAD as u64 + u64::from(head.length);
            if leaves.is_sound(at, &head, &mut buffer)? {
                leaves.places.insert(head.leaf, (at, head.length));
            } else {
                // The record is damaged, or a crash left it incomplete. Skip it if a valid record
                // follows; otherwise drop the rest of the file. (If the length field is damaged,
                // the next record cannot be found.)
                let follows = leaves.head_at(next, length)?;
                if !follows.map_or(Ok(false), |head| leaves.is_sound(next, &head, &mut buffer))? {
                    break;
                }
            }
            at = next;
        }
        if at < length {
            leaves.file.set_len(at)?;
        }
        leaves.end = at;
        Ok(leaves)
    }

    /// Returns the length of the file in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.end
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Adds a leaf. The leaf then survives a kill of the process, but not necessarily a power loss.
    pub(super) fn append(&mut self, leaf: (u32, u8), bytes: &[u8]) -> io::Result<()> {
        let length = u16::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let head = Head { leaf, length };
        let mut record = Vec::with_capacity(HEAD + bytes.len());
        record.extend_from_slice(&head.encode());
        record.extend_from_slice(&xxh64(bytes, seed(self.end, &head)).to_be_bytes());
        record.extend_from_slice(bytes);
        // If this write fails, `end` does not move, so the next record overwrites the incomplete
        // one.
        self.file.write_all_at(&record, self.end)?;
        self.places.insert(leaf, (self.end, length));
        self.end += record.len() as u64;
        Ok(())
    }

    /// Reads a leaf into `out`. Returns `None` if it is missing, damaged, or longer than `out`.
    pub(super) fn read<'b>(
        &mut self,
        leaf: (u32, u8),
        out: &'b mut [u8],
    ) -> io::Result<Option<&'b [u8]>> {
        let Some((at, length)) = self.places.get(&leaf).copied() else { return Ok(None) };
        let mut buffer = Vec::with_capacity(usize::from(length));
        if !self.is_sound(at, &Head { leaf, length }, &mut buffer)? {
            self.places.remove(&leaf);
            return Ok(None);
        }
        Ok(out.get_mut(..buffer.len()).map(|out| {
            out.copy_from_slice(&buffer);
            &*out
        }))
    }

    /// Returns whether the stored leaf has exactly these bytes.
    pub(super) fn holds(&mut self, leaf: (u32, u8), bytes: &[u8]) -> io::Result<bool> {
        match self.places.get(&leaf) {
            Some((_, length)) if usize::from(*length) == bytes.len() => {
                let mut kept = vec![0; bytes.len()];
                Ok(self.read(leaf, &mut kept)? == Some(bytes))
            }
            _ => Ok(false),
        }
    }

    /// Removes the leaves of a block from the index of this file. Their records stay in the file:
    /// if the file is opened again, the node reads them again, and verification rejects them again.
    pub(super) fn forget_block(&mut self, block: u32) {
        self.places.retain(|(of, _), _| *of != block);
    }

    /// Returns the head of the record at `at`, or `None` if no complete record fits in the `length`
    /// bytes of the file.
    fn head_at(&self, at: u64, length: u64) -> io::Result<Option<Head>> {
        if length.saturating_sub(at) < HEAD as u64 {
            return Ok(None);
        }
        let mut head = [0; 7];
        self.file.read_exact_at(&mut head, at)?;
        let head = Head::decode(head);
        Ok((length - at - HEAD as u64 >= u64::from(head.length)).then_some(head))
    }

    /// Reads the leaf of a record into `buffer` and returns whether the record's checksum is
    /// correct.
    fn is_sound(&self, at: u64, head: &Head, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let mut record = [0; HEAD];
        buffer.resize(usize::from(head.length), 0);
        let read = self
            .file
            .read_exact_at(&mut record, at)
            .and_then(|()| self.file.read_exact_at(buffer, at + HEAD as u64));
        match read {
            Ok(()) => {
                let checksum = xxh64(buffer, seed(at, head)).to_be_bytes();
                Ok(record.starts_with(&head.encode()) && record.ends_with(&checksum))
            }
            // Another process has truncated the file since it was opened.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The fields of a record before its checksum.
struct Head {
    leaf: (u32, u8),
    length: u16,
}

impl Head {
    fn encode(&self) -> [u8; 7] {
        let ([a, b, c, d], [e, f]) = (self.leaf.0.to_be_bytes(), self.length.to_be_bytes());
        [a, b, c, d, self.leaf.1, e, f]
    }

    const fn decode([a, b, c, d, index, e, f]: [u8; 7]) -> Self {
        Self { leaf: (u32::from_be_bytes([a, b, c, d]), index), length: u16::from_be_bytes([e, f]) }
    }
}

/// Returns the seed of a record's checksum, which depends on the record's head and its position in
/// the file.
fn seed(at: u64, head: &Head) -> u64 {
    xxh64(&head.encode(), at)
}
