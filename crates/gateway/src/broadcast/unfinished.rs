//! The chains that a sender has begun and not finished. A sender that was killed goes on with such a
//! chain under the same number and head, so that receivers get its content once.
//!
//! Each chain has a file in a folder next to the file of chain numbers. The file is durable before
//! the head is sent, and locked while its process runs. Its content is the number of sent blocks in 4
//! bytes, the time when the chain was begun in 8 bytes, and the head. Before the head, the file of a
//! chain for named receivers has the content key in 16 bytes, and its name has another ending. A
//! chain is resumed only if all later numbers of the sender belong to unfinished chains, too:
//! receivers refuse a chain after a later one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use moteseal_broadcast::address::{CONTENT_KEY, ContentKey};
use moteseal_broadcast::{ChainDraft, ChainNumber, Head, HeadError, MAX_HEAD, OutgoingChain};
use moteseal_core::record::{DeviceId, NetworkId};
use moteseal_core::signature::PublicKey;
use moteseal_store::lock::try_lock;
use zeroize::Zeroizing;

use super::content::Content;
use super::error::SendError;
use super::sender::{Hashes, build};

/// The end of the names of the files.
const ENDING: &str = "head";
/// The end of the names of the files of chains for named receivers. An older program ignores them.
const ADDRESSED: &str = "addressed";
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
    content_key: Option<ContentKey>,
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
    /// its window was computed, in seconds of Unix time. `content_key` is the key of the content of a
    /// chain for named receivers. Call this before the head is sent.
    ///
    /// # Errors
    /// The errors of the operating system.
    pub fn begin(
        &self,
        number: ChainNumber,
        head: Vec<u8>,
        begun: u64,
        content_key: Option<ContentKey>,
    ) -> io::Result<BegunChain> {
        moteseal_files::create_folder(&self.folder)?;
        moteseal_files::sync_folder_of(&self.folder)?;
        let ending = if content_key.is_some() { ADDRESSED } else { ENDING };
        let path = self.folder.join(format!("{}.{ending}", number.0));
        let mut file =
            moteseal_files::private().read(true).write(true).create_new(true).open(&path)?;
        try_lock(&file).map_err(io::Error::from)?;
        let key = content_key.as_ref().map_or(&[][..], |key| &key.secret()[..]);
        let content = [&[0; BLOCKS][..], &begun.to_be_bytes(), key, &head].concat();
        file.write_all(&Zeroizing::new(content))?;
        file.sync_all()?;
        moteseal_files::sync_folder_of(&path)?;
        Ok(BegunChain { path, file, number, head, begun, blocks: 0, content_key })
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
            if path.extension().is_none_or(|ending| ending != ENDING && ending != ADDRESSED) {
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
        let mut content = Zeroizing::new(vec![0; BLOCKS + TIME + CONTENT_KEY + MAX_HEAD]);
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
        let Some((begun, rest)) = rest.split_first_chunk::<TIME>() else {
            return Ok(Opened::Unusable);
        };
        let (content_key, head) = if path.extension().is_some_and(|ending| ending == ADDRESSED) {
            let Some((key, head)) = rest.split_first_chunk::<CONTENT_KEY>() else {
                return Ok(Opened::Unusable);
            };
            (Some(ContentKey::new(key)), head)
        } else {
            (None, rest)
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
        if Some(opened.id().number.0) != number
            || opened.outline().is_addressed != content_key.is_some()
        {
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
            content_key,
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

    /// Returns the key of the content, if the chain is for named receivers.
    #[must_use]
    pub const fn content_key(&self) -> Option<&ContentKey> {
        self.content_key.as_ref()
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
            is_addressed: outline.is_addressed,
        })
    }

    /// Returns whether the chain has this content. Reads all of it.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn has_content(&self, content: &Content) -> Result<bool, SendError> {
        let Some(draft) = self.draft().filter(|draft| draft.messages == content.messages()) else {
            return Ok(false);
        };
        let mut hashes = Hashes::default();
        Ok(self.is_same(&build(draft, content, &mut hashes)?))
    }

    /// Returns whether this is the chain that was begun. If the content was modified after
    /// [`has_content`](Self::has_content), it is not, and must not be sent: the key of the content
    /// would encrypt two contents.
    #[must_use]
    pub fn is_same(&self, chain: &OutgoingChain<'_>) -> bool {
        Head::reopen(&self.head).is_ok_and(|head| chain.is_of(&head))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use moteseal_broadcast::{ChainId, KeyId, Kind, Window};
    use moteseal_core::signature::{Algorithm, SecretKey};

    use super::super::sender::sign;
    use super::super::{AddressForm, Addressees, Receivers};
    use super::*;

    /// A sender that goes on with a chain must not encrypt another content with the chain's key.
    #[test]
    fn content_that_changes_after_it_was_compared_is_not_that_of_the_begun_chain() {
        let folder = tempfile::tempdir().unwrap();
        let key = SecretKey::from_seed(Algorithm::Ed25519, &[7; 32]).unwrap();
        let (network, sender) = (NetworkId([1; 8]), DeviceId([2; 8]));
        let mut list = Receivers::new(network, sender, Zeroizing::new([3; 32]));
        list.add("valve").unwrap();
        let to = Addressees::new(&list, vec![0]);
        let file = folder.path().join("image");
        fs::write(&file, [1; 3000]).unwrap();
        let plain = Content::file(&file, None).unwrap();
        let draft = ChainDraft {
            id: ChainId { network, sender, number: ChainNumber(5) },
            key: KeyId::of(&key.public()),
            messages: 0,
            per_block: 1,
            kind: Kind::File,
            label: "",
            window: Window::ALWAYS,
            previous: None,
            is_addressed: true,
        };
        let content_key = to.content_key(&Zeroizing::new([4; 32]), "image", &plain).unwrap();
        let form = AddressForm::divided(None);
        let encrypt = |key: &ContentKey| {
            to.encrypt(key, (&draft.id, draft.key), "image", &plain, form).unwrap()
        };
        let content = encrypt(&content_key);
        let mut hashes = Hashes::default();
        let head = sign(&build(draft, &content, &mut hashes).unwrap(), &key).unwrap();
        let numbers = folder.path().join("chains");
        let unfinished = Unfinished::new(&numbers, network, sender, key.public());
        drop(unfinished.begin(draft.id.number, head, 9, Some(content_key.clone())).unwrap());

        let begun = unfinished.resumable(Some(ChainNumber(5))).unwrap().pop().unwrap();
        assert_eq!(begun.content_key().unwrap().secret(), content_key.secret());
        let content = encrypt(begun.content_key().unwrap());
        assert!(begun.has_content(&content).unwrap());
        let mut hashes = Hashes::default();
        assert!(begun.is_same(&build(draft, &content, &mut hashes).unwrap()));
        assert!(!begun.has_content(&encrypt(&ContentKey::new(&[5; 16]))).unwrap(), "another key");
        // The file's date does not show the change.
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(&file, [2; 3000]).unwrap();
        File::options().write(true).open(&file).unwrap().set_modified(written).unwrap();
        let mut hashes = Hashes::default();
        assert!(!begun.is_same(&build(draft, &content, &mut hashes).unwrap()), "another content");
    }
}
