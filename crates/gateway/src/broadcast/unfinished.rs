//! The chains that a sender has begun and not finished. A sender that was killed goes on with such a
//! chain under the same number and head, so that receivers get its content once.
//!
//! Each chain has a file in a folder next to the file of chain numbers. The file is durable before
//! the head is sent, and locked while its process runs. Its content is the number of sent blocks in 4
//! bytes, the time when the chain was begun in 8 bytes, and the head. A chain is resumed only if all
//! later numbers of the sender belong to unfinished chains, too: receivers refuse a chain after a later
//! one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use moteseal_broadcast::{ChainDraft, ChainNumber, Head, HeadError, MAX_HEAD};
use moteseal_core::record::{DeviceId, NetworkId};
use moteseal_core::signature::{KeyPair, PublicKey};
use moteseal_store::lock::try_lock;

use super::content::Content;
use super::error::SendError;
use super::sender::{Hashes, build, sign};

/// The end of the names of the files.
const ENDING: &str = "head";
/// The maximum number of unfinished chains that are kept.
const MOST: usize = 64;
/// The length in bytes of the number of blocks.
const BLOCKS: usize = 4;
/// The length in bytes of a time.
const TIME: usize = 8;

/// The unfinished chains of a sender's key.
#[derive(Debug)]
pub struct Unfinished {
    folder: PathBuf,
    network: NetworkId,
    sender: DeviceId,
    key: PublicKey,
}

/// A chain that this process sends. If the value is dropped before [`finish`](Self::finish) is
/// called, the chain stays unfinished.
#[derive(Debug)]
pub struct BegunChain {
    path: PathBuf,
    file: File,
    number: ChainNumber,
    head: Vec<u8>,
    begun: u64,
    blocks: u32,
}

impl Unfinished {
    /// Returns the unfinished chains of the key of a sender whose chain numbers are in the file
    /// `numbers`.
    #[must_use]
    pub fn new(numbers: &Path, network: NetworkId, sender: DeviceId, key: PublicKey) -> Self {
        let mut folder = numbers.as_os_str().to_owned();
        folder.push(".unfinished");
        Self { folder: folder.into(), network, sender, key }
    }

    /// Returns the folder of the files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Durably records that the chain with this head is being sent. `begun` is the time from which
    /// its window was computed, in seconds of Unix time. Call this before the head is sent.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn begin(&self, number: ChainNumber, head: Vec<u8>, begun: u64) -> io::Result<BegunChain> {
        moteseal_files::create_folder(&self.folder)?;
        moteseal_files::sync_folder_of(&self.folder)?;
        let path = self.folder.join(format!("{}.{ENDING}", number.0));
        let mut file =
            moteseal_files::private().read(true).write(true).create_new(true).open(&path)?;
        try_lock(&file).map_err(io::Error::from)?;
        file.write_all(&[&[0; BLOCKS][..], &begun.to_be_bytes(), &head].concat())?;
        file.sync_all()?;
        moteseal_files::sync_folder_of(&path)?;
        Ok(BegunChain { path, file, number, head, begun, blocks: 0 })
    }

    /// Returns the chains that can be resumed, oldest first, and locks them. `last` is the sender's
    /// last number. Chains that another process sends are not returned. Removes the files of chains
    /// that cannot be resumed, and all but the newest 64.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn resumable(&self, last: Option<ChainNumber>) -> io::Result<Vec<BegunChain>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let (mut numbers, mut chains) = (BTreeSet::new(), Vec::new());
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|ending| ending != ENDING) {
                continue;
            }
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            numbers.extend(number);
            match self.open(&path, number)? {
                Opened::Chain(chain) => chains.push(chain),
                Opened::Other => {}
                Opened::Unusable => {
                    remove(&path)?;
                    numbers.remove(&number.unwrap_or_default());
                }
            }
        }
        let mut first = last.map_or(u64::MAX, |last| last.0);
        while numbers.contains(&first) {
            first = first.saturating_sub(1);
        }
        chains.sort_by_key(|chain| chain.number.0);
        let (resumable, passed): (Vec<_>, Vec<_>) =
            chains.into_iter().partition(|chain| chain.number.0 > first);
        let mut resumable = resumable;
        let oldest = resumable.drain(..resumable.len().saturating_sub(MOST));
        for chain in passed.into_iter().chain(oldest) {
            chain.finish()?;
        }
        Ok(resumable)
    }

    /// Opens and locks the file of a chain.
    fn open(&self, path: &Path, number: Option<u64>) -> io::Result<Opened> {
        let file = match File::options().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opened::Other),
            file => file?,
        };
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => return Ok(Opened::Other),
            locked => locked?,
        }
        // The process that had the lock may have finished the chain.
        if !path.exists() {
            return Ok(Opened::Other);
        }
        let mut content = vec![0; BLOCKS + TIME + MAX_HEAD];
        let mut length = 0;
        while let Some(rest) = content.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, length as u64)? {
                0 => break,
                read => length += read,
            }
        }
        content.truncate(length);
        let Some((blocks, rest)) = content.split_first_chunk::<BLOCKS>() else {
            return Ok(Opened::Unusable);
        };
        let Some((begun, head)) = rest.split_first_chunk::<TIME>() else {
            return Ok(Opened::Unusable);
        };
        let mut scratch = vec![0; MAX_HEAD];
        let opened = Head::open(head, self.network, self.sender, &self.key, &mut scratch);
        let opened = match opened {
            Ok(opened) => opened,
            Err(HeadError::WrongNetwork | HeadError::WrongSender | HeadError::WrongKey) => {
                return Ok(Opened::Other);
            }
            Err(_) => return Ok(Opened::Unusable),
        };
        if Some(opened.id().number.0) != number {
            return Ok(Opened::Unusable);
        }
        let blocks = u32::from_be_bytes(*blocks).min(opened.blocks());
        let number = opened.id().number;
        Ok(Opened::Chain(BegunChain {
            path: path.to_owned(),
            file,
            number,
            head: head.to_vec(),
            begun: u64::from_be_bytes(*begun),
            blocks,
        }))
    }
}

/// The result of opening the file of a chain.
enum Opened {
    Chain(BegunChain),
    /// Another process sends the chain or has finished it, or the chain belongs to another key.
    Other,
    /// The file is incomplete or damaged.
    Unusable,
}

impl BegunChain {
    /// Returns the signed head.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the time from which the chain's window was computed, in seconds of Unix time.
    #[must_use]
    pub const fn begun(&self) -> u64 {
        self.begun
    }

    /// Returns the number of blocks that were sent.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the parameters with which the chain was built, for the same content.
    #[must_use]
    pub fn draft(&self) -> Option<ChainDraft<'_>> {
        let head = Head::reopen(&self.head).ok()?;
        let outline = head.outline();
        Some(ChainDraft {
            id: outline.id,
            key: outline.key,
            messages: outline.messages,
            per_block: outline.per_block,
            kind: outline.kind,
            label: head.label(),
            window: head.window(),
            previous: head.previous(),
        })
    }

    /// Returns whether the chain has this content. Reads all of it.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn has_content(&self, content: &Content, key: &dyn KeyPair) -> Result<bool, SendError> {
        let Some(draft) = self.draft().filter(|draft| draft.messages == content.messages()) else {
            return Ok(false);
        };
        let mut hashes = Hashes::default();
        let head = sign(&build(draft, content, &mut hashes)?, key)?;
        let (Ok(now), Ok(begun)) = (Head::reopen(&head), Head::reopen(&self.head)) else {
            return Ok(false);
        };
        Ok((now.first(), now.outline()) == (begun.first(), begun.outline()))
    }

    /// Records how many blocks are sent. After a failure, more blocks are sent again than necessary.
    pub fn record(&mut self, blocks: u32) {
        self.blocks = blocks;
        let _ = self.file.write_all_at(&blocks.to_be_bytes(), 0);
    }

    /// Removes the record: the chain is finished.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn finish(self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Removes a file, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
