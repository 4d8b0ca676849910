//! Chains for named receivers (spec/broadcast.md, section 8): which receivers a chain is for, and
//! how its content is encrypted.
//!
//! The first messages of such a chain are its *address*. It has an entry for each addressed
//! receiver, in which the key of the content is masked with a value that derives from the key that
//! the receiver shares with the sender. An entry names no receiver: only the receiver finds its own.
//! The messages after the address are encrypted. The signature of the chain covers the address and
//! the encrypted messages, so a node that is not addressed verifies and relays the chain as any
//! other chain.
//!
//! Each chain has its own content key. The masks of the entries depend on a digest of this key, so
//! that two chains share no mask, even if the sender's state is lost, copied or restored.

use hmac::{Hmac, KeyInit, Mac};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::receipt::ReceiverKey;
use crate::{ChainId, KeyId, MAX_LABEL, MAX_RECEIVERS, Outline};

type Mac256 = Hmac<sha2::Sha256>;

/// The length of an entry of an address in bytes.
pub const ADDRESS_ENTRY: usize = 8 + CONTENT_KEY;
/// The length of a content key in bytes.
pub const CONTENT_KEY: usize = 16;
/// The maximum length in bytes of the first message of an address, without its entries and the
/// content.
pub const MAX_ADDRESS_START: usize = 48 + MAX_LABEL;

/// The number that the label has in the cipher. No message has this number.
const LABEL: u32 = u32::MAX;
const COMMITMENT: &[u8] = b"moteseal/1/content-key\0";
const CONTENT: &[u8] = b"moteseal/1/content\0";
const ENTRY: &[u8] = b"moteseal/1/receiver/address\0";

named_errors! {
    /// Why a receiver does not read an addressed chain.
    AddressError {
        /// The address is malformed.
        Decode(error: DecodeError) => from,
        /// The chain ends before its address does, or has no message after it.
        AddressIncomplete => "the chain ends before its address does; the sender must send it again",
        /// The receiver shares no key with the sender.
        NoReceiverKey => "the chain is for named receivers, and this one shares no key with the sender",
        /// The address has no entry for the receiver.
        NotAddressed => "the chain is for other receivers, or the sender has another key of this receiver",
        /// The entry for the receiver has another content key than the chain.
        WrongContentKey => "the entry of this receiver has a wrong key; the sender must send the chain again",
    }
}

impl AddressError {
    /// Returns whether the sender has made a faulty chain. Otherwise the chain is not for this
    /// receiver.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        !matches!(self, Self::NoReceiverKey | Self::NotAddressed)
    }
}

/// The bytes that identify a chain in hash inputs: network, sender, key id and number.
fn id_bytes(id: &ChainId, key: KeyId) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&id.network.0);
    bytes[8..16].copy_from_slice(&id.sender.0);
    bytes[16..24].copy_from_slice(&key.0);
    bytes[24..].copy_from_slice(&id.number.0.to_be_bytes());
    bytes
}

#[allow(clippy::expect_used)]
fn keyed(key: &[u8]) -> Mac256 {
    Mac256::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// Returns HKDF-Expand(key, info) (RFC 5869) of at most 32 bytes.
fn expand(key: &[u8], info: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mac = info.iter().fold(keyed(key), |mac, part| mac.chain_update(part));
    Zeroizing::new(mac.chain_update([1]).finalize().into_bytes().into())
}

/// The key of the content of one chain. `Debug` does not print it.
#[derive(Clone)]
pub struct ContentKey(Zeroizing<[u8; CONTENT_KEY]>);

impl core::fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ContentKey")
    }
}

impl ContentKey {
    /// Creates a key from its bytes. Each chain needs a new key that no other party can predict.
    #[must_use]
    pub fn new(bytes: &[u8; CONTENT_KEY]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// Returns the secret bytes of the key.
    #[must_use]
    pub fn secret(&self) -> &[u8; CONTENT_KEY] {
        &self.0
    }

    /// Returns the commitment: a digest with which every receiver checks that it has the same key.
    #[must_use]
    pub fn commitment(&self, id: &ChainId, key: KeyId) -> Digest {
        Digest::of(&[COMMITMENT, &id_bytes(id, key), &*self.0])
    }

    /// Returns the entry of a receiver in the address of a chain under the sender's key `key`.
    #[must_use]
    pub fn entry(&self, id: &ChainId, key: KeyId, receiver: &ReceiverKey) -> [u8; ADDRESS_ENTRY] {
        let commitment = self.commitment(id, key);
        let (mark, mask) = place(receiver, &id_bytes(id, key), &commitment);
        let mut entry = [0; ADDRESS_ENTRY];
        entry[..8].copy_from_slice(&mark);
        for ((byte, mask), key) in entry[8..].iter_mut().zip(&*mask).zip(&*self.0) {
            *byte = mask ^ key;
        }
        entry
    }

    /// Returns the cipher of a chain's content.
    #[must_use]
    pub fn cipher(&self, id: &ChainId, key: KeyId) -> ContentCipher {
        ContentCipher { key: expand(&*self.0, &[CONTENT, &id_bytes(id, key)]) }
    }
}

/// Returns with what the entry of a receiver begins, and the mask of the key in it.
fn place(
    receiver: &ReceiverKey,
    id: &[u8; 32],
    commitment: &Digest,
) -> ([u8; 8], Zeroizing<[u8; CONTENT_KEY]>) {
    let bytes = expand(receiver.secret(), &[ENTRY, id, &commitment.0]);
    let (mut mark, mut mask) = ([0; 8], Zeroizing::new([0; CONTENT_KEY]));
    mark.copy_from_slice(&bytes[..8]);
    mask.copy_from_slice(&bytes[8..ADDRESS_ENTRY]);
    (mark, mask)
}

/// Encrypts and decrypts the content of one chain: HMAC-SHA256 in counter mode. `Debug` does not
/// print the key.
#[derive(Clone)]
pub struct ContentCipher {
    key: Zeroizing<[u8; 32]>,
}

impl core::fmt::Debug for ContentCipher {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ContentCipher")
    }
}

impl ContentCipher {
    /// Encrypts or decrypts a message in place. `number` is its place among the messages after the
    /// address, from 0.
    pub fn apply(&self, number: u32, message: &mut [u8]) {
        let mac = keyed(&*self.key).chain_update(number.to_be_bytes());
        for (counter, chunk) in (0_u32..).zip(message.chunks_mut(32)) {
            let mut stream: [u8; 32] =
                mac.clone().chain_update(counter.to_be_bytes()).finalize().into_bytes().into();
            chunk.iter_mut().zip(&stream).for_each(|(byte, stream)| *byte ^= stream);
            stream.zeroize();
        }
    }

    /// Encrypts a chain's label in place.
    pub fn apply_to_label(&self, label: &mut [u8]) {
        self.apply(LABEL, label);
    }

    /// Decrypts the label of an address. `out` receives it.
    ///
    /// # Errors
    /// `FieldOutOfRange` if the label is not UTF-8, or has control characters.
    pub fn label<'o>(
        &self,
        address: &AddressStart<'_>,
        out: &'o mut [u8; MAX_LABEL],
    ) -> Result<&'o str, AddressError> {
        let refused = || AddressError::Decode(DecodeError::FieldOutOfRange);
        let label = out.get_mut(..address.label.len()).ok_or_else(refused)?;
        label.copy_from_slice(address.label);
        self.apply_to_label(label);
        let label = core::str::from_utf8(label).map_err(|_| refused())?;
        if label.chars().any(char::is_control) { Err(refused()) } else { Ok(label) }
    }
}

/// The first message of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressStart<'a> {
    /// The commitment of the content key.
    pub commitment: Digest,
    /// The number of entries of the whole address, 1 to [`MAX_RECEIVERS`].
    pub entries: u32,
    /// The encrypted label.
    pub label: &'a [u8],
    /// The first entries.
    pub first: &'a [u8],
    /// The encrypted message of a chain of one message; `None` in other chains.
    pub content: Option<&'a [u8]>,
}

impl<'a> AddressStart<'a> {
    /// Reads the first message of an addressed chain that has `messages` messages.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(message: &'a [u8], messages: u32) -> Result<Self, DecodeError> {
        let is_single = messages == 1;
        let mut reader = Reader::new(message)?;
        reader.array(if is_single { 6 } else { 5 })?;
        reader.version()?;
        let commitment = Digest(reader.fixed()?);
        let (entries, label, first) = (reader.uint()?, reader.bytes()?, reader.bytes()?);
        let content = if is_single { Some(reader.bytes()?) } else { None };
        let has = first.len() / ADDRESS_ENTRY;
        let most = usize::try_from(entries).unwrap_or(usize::MAX);
        let fits = (1..=MAX_RECEIVERS).contains(&entries)
            && label.len() <= MAX_LABEL
            && first.len().is_multiple_of(ADDRESS_ENTRY)
            && (1..=most).contains(&has)
            && (!is_single || has == most);
        if fits {
            Ok(Self { commitment, entries, label, first, content })
        } else {
            Err(DecodeError::FieldOutOfRange)
        }
    }

    /// Writes the message.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(if self.content.is_some() { 6 } else { 5 })?.uint(1u8)?;
        out.bytes(&self.commitment.0)?.uint(self.entries)?;
        out.bytes(self.label)?.bytes(self.first)?;
        if let Some(content) = self.content {
            out.bytes(content)?;
        }
        Ok(())
    }
}

/// How far the address of a chain was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressRead {
    /// More messages of the address follow.
    More,
    /// The address is complete.
    Complete,
}

/// An addressed chain that the receiver can read.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The key of the content.
    pub key: ContentKey,
    /// The cipher of the content.
    pub cipher: ContentCipher,
    /// The number of messages of the address; 0 if the only message contains the content, too.
    pub address: u32,
}

impl Opened {
    /// Returns the number among the messages of the content, and the encrypted content, of the
    /// message `number` of the chain; `None` if it belongs to the address only.
    ///
    /// # Errors
    /// [`DecodeError`] if the only message of the chain is malformed.
    pub fn content<'m>(
        &self,
        number: u32,
        message: &'m [u8],
    ) -> Result<Option<(u32, &'m [u8])>, DecodeError> {
        if self.address == 0 {
            return Ok(AddressStart::decode(message, 1)?.content.map(|content| (0, content)));
        }
        Ok(number.checked_sub(self.address).map(|number| (number, message)))
    }
}

/// Reads the address of a chain, message by message. It has a fixed size.
#[derive(Clone)]
pub struct AddressReader {
    id: ChainId,
    key: KeyId,
    messages: u32,
    /// The number of messages that were read.
    read: u32,
    /// The number of entries that were not read.
    left: u32,
    last: [u8; 8],
    commitment: Digest,
    has_key: bool,
    mark: [u8; 8],
    mask: Zeroizing<[u8; CONTENT_KEY]>,
    is_found: bool,
}

impl core::fmt::Debug for AddressReader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AddressReader").field("id", &self.id).finish_non_exhaustive()
    }
}

impl AddressReader {
    /// Begins to read the address of a chain.
    #[must_use]
    pub fn new(outline: &Outline) -> Self {
        Self {
            id: outline.id,
            key: outline.key,
            messages: outline.messages,
            read: 0,
            left: 0,
            last: [0; 8],
            commitment: Digest::NULL,
            has_key: false,
            mark: [0; 8],
            mask: Zeroizing::new([0; CONTENT_KEY]),
            is_found: false,
        }
    }

    /// Returns whether the address is complete.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.read > 0 && self.left == 0
    }

    /// Reads the next message of the chain, which must be verified. `receiver` is the key that the
    /// receiver shares with the sender, if it has one; pass the same key for all messages. After an
    /// error, the chain must not be read further.
    ///
    /// # Errors
    /// `AddressIncomplete`, and the errors of decoding: `FieldOutOfRange` if entries are not in
    /// ascending order, or there are fewer or more than stated.
    pub fn take(
        &mut self,
        receiver: Option<&ReceiverKey>,
        message: &[u8],
    ) -> Result<AddressRead, AddressError> {
        if self.is_complete() {
            return Ok(AddressRead::Complete);
        }
        let mut entries = message;
        if self.read == 0 {
            let start = AddressStart::decode(message, self.messages)?;
            (self.commitment, self.left, entries) = (start.commitment, start.entries, start.first);
            if let Some(receiver) = receiver {
                let id = id_bytes(&self.id, self.key);
                (self.mark, self.mask) = place(receiver, &id, &self.commitment);
                self.has_key = true;
            }
        }
        let (entries, rest) = entries.as_chunks::<ADDRESS_ENTRY>();
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        if !rest.is_empty() || count == 0 || count > self.left {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        for (place, entry) in entries.iter().enumerate() {
            let (mark, masked) = entry.split_at(8);
            let is_first = self.read == 0 && place == 0;
            if !is_first && mark <= &self.last[..] {
                return Err(DecodeError::FieldOutOfRange.into());
            }
            self.last.copy_from_slice(mark);
            if self.has_key && !self.is_found && mark == self.mark {
                self.mask.iter_mut().zip(masked).for_each(|(byte, masked)| *byte ^= masked);
                self.is_found = true;
            }
        }
        self.read += 1;
        self.left -= count;
        let content = if self.messages == 1 { 0 } else { 1 };
        if self.read + content + u32::from(self.left > 0) > self.messages {
            return Err(AddressError::AddressIncomplete);
        }
        Ok(if self.left == 0 { AddressRead::Complete } else { AddressRead::More })
    }

    /// Returns the key of the content after the address was read.
    ///
    /// # Errors
    /// `AddressIncomplete` if it was not read completely, `NoReceiverKey`, `NotAddressed`,
    /// `WrongContentKey`.
    pub fn open(&self) -> Result<Opened, AddressError> {
        if !self.is_complete() {
            return Err(AddressError::AddressIncomplete);
        }
        if !self.has_key {
            return Err(AddressError::NoReceiverKey);
        }
        if !self.is_found {
            return Err(AddressError::NotAddressed);
        }
        let key = ContentKey(self.mask.clone());
        let commitment = key.commitment(&self.id, self.key);
        if !bool::from(commitment.0.ct_eq(&self.commitment.0)) {
            return Err(AddressError::WrongContentKey);
        }
        let cipher = key.cipher(&self.id, self.key);
        let address = if self.messages == 1 { 0 } else { self.read };
        Ok(Opened { key, cipher, address })
    }
}
