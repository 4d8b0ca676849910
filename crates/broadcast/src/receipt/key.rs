//! The key that a receiver shares with a sender, its tags, and the file in which a receiver keeps
//! it.

use core::fmt::{self, Write};

use hmac::{Hmac, KeyInit, Mac};
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, NetworkId};
use zeroize::Zeroizing;

use super::{HeadRequest, RECEIVER_TAG, Request};
use crate::MAX_RECEIVERS;

type Mac256 = Hmac<sha2::Sha256>;

/// A tag under a [`ReceiverKey`], or the exclusive or of several receipts.
pub type ReceiverTag = [u8; RECEIVER_TAG];

/// The maximum length of a receiver's name, in bytes.
pub const MAX_RECEIVER_NAME: usize = 64;
/// The maximum length of a key file, in bytes.
pub const MAX_KEY_FILE: usize = 512;

/// The first line of a key file.
const TITLE: &str = "moteseal receiver key 1";

const DERIVE: &[u8] = b"moteseal/1/receiver\0";
const RECEIPT: &[u8] = b"moteseal/1/receiver/receipt\0";
const REQUEST: &[u8] = b"moteseal/1/receiver/request\0";
const HEAD_REQUEST: &[u8] = b"moteseal/1/receiver/head-request\0";
const HEAD: &[u8] = b"moteseal/1/receiver/head\0";

named_errors! {
    /// Why bytes are not the key file of a receiver.
    KeyFileError {
        /// The text does not have the lines of a key file.
        NotAReceiverKey => "the file is not a receiver's key; `moteseal broadcast receivers add` makes one",
        /// The position is above the highest one.
        UnknownPosition => "the position is after the last one that a sender can use",
        /// The name is empty, too long, or has characters that are not allowed.
        BadReceiverName => "a receiver's name has 1 to 64 bytes, no control characters, commas or slashes, and no spaces at its ends",
    }
}

/// Checks the name of a receiver: it has 1 to [`MAX_RECEIVER_NAME`] bytes, no control character, no
/// comma and no slash, and neither begins nor ends with white space.
///
/// # Errors
/// `BadReceiverName`.
pub fn check_receiver_name(name: &str) -> Result<(), KeyFileError> {
    let is_plain =
        !name.chars().any(|character| character.is_control() || matches!(character, ',' | '/'));
    if name.is_empty() || name.len() > MAX_RECEIVER_NAME || name.trim() != name || !is_plain {
        return Err(KeyFileError::BadReceiverName);
    }
    Ok(())
}

/// The key that one receiver shares with one sender. `Debug` does not print it.
#[derive(Clone)]
pub struct ReceiverKey {
    network: NetworkId,
    sender: DeviceId,
    position: u32,
    key: Zeroizing<[u8; 32]>,
}

impl ReceiverKey {
    /// Creates a key from its parts. `position` is the receiver's position in the sender's list.
    #[must_use]
    pub fn new(network: NetworkId, sender: DeviceId, position: u32, key: &[u8; 32]) -> Self {
        Self { network, sender, position, key: Zeroizing::new(*key) }
    }

    /// Derives the key of a receiver from the sender's secret (spec/broadcast.md, section 7.1).
    #[must_use]
    pub fn derive(
        secret: &[u8; 32],
        network: NetworkId,
        sender: DeviceId,
        position: u32,
        name: &str,
    ) -> Self {
        let parts: [&[u8]; 5] =
            [DERIVE, &network.0, &sender.0, &position.to_be_bytes(), name.as_bytes()];
        let key = Zeroizing::new(mac(secret, &parts));
        Self { network, sender, position, key }
    }

    /// Returns the network.
    #[must_use]
    pub const fn network(&self) -> NetworkId {
        self.network
    }

    /// Returns the sender with whom the receiver shares the key.
    #[must_use]
    pub const fn sender(&self) -> DeviceId {
        self.sender
    }

    /// Returns the secret bytes of the key.
    #[must_use]
    pub fn secret(&self) -> &[u8; 32] {
        &self.key
    }

    /// Returns the receiver's position in the sender's list, from 0.
    #[must_use]
    pub const fn position(&self) -> u32 {
        self.position
    }

    /// Returns the receipt for a chain: the tag over the bytes of its head.
    #[must_use]
    pub fn receipt(&self, head: &[u8]) -> ReceiverTag {
        self.tag(&[RECEIPT, head])
    }

    /// Returns the tag of a request for parts of a chain.
    #[must_use]
    pub fn request(&self, request: &Request) -> ReceiverTag {
        self.tag(&[
            REQUEST,
            &request.chain.0,
            &request.block.to_be_bytes(),
            &request.wanted.to_be_bytes(),
            &request.attempt.to_be_bytes(),
        ])
    }

    /// Returns the tag of a request for the newest head.
    #[must_use]
    pub fn head_request(&self, request: &HeadRequest) -> ReceiverTag {
        self.tag(&[HEAD_REQUEST, &request.key.0, &request.above.to_be_bytes()])
    }

    /// Returns the tag of a head that the sender sends to this receiver.
    #[must_use]
    pub fn head(&self, head: &[u8]) -> ReceiverTag {
        self.tag(&[HEAD, head])
    }

    fn tag(&self, parts: &[&[u8]]) -> ReceiverTag {
        let whole = mac(&self.key, parts);
        let mut tag = [0; RECEIVER_TAG];
        tag.copy_from_slice(&whole[..RECEIVER_TAG]);
        tag
    }

    /// Reads a key file. Returns the key and the receiver's name.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn parse(text: &str) -> Result<(Self, &str), KeyFileError> {
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Err(KeyFileError::NotAReceiverKey);
        }
        let mut field = |name: &str| {
            let line = lines.next().and_then(|line| line.strip_prefix(name));
            line.and_then(|line| line.strip_prefix(' ')).ok_or(KeyFileError::NotAReceiverKey)
        };
        let hex = |text: &str| decode_hex(text).ok_or(KeyFileError::NotAReceiverKey);
        let (network, sender) = (hex(field("network")?)?, hex(field("sender")?)?);
        let position = field("position")?;
        let is_plain = position == "0" || !position.starts_with(['+', '0']);
        let position: u32 =
            position.parse().ok().filter(|_| is_plain).ok_or(KeyFileError::NotAReceiverKey)?;
        let name = field("name")?;
        let key = decode_hex(field("key")?).ok_or(KeyFileError::NotAReceiverKey)?;
        let key = Zeroizing::new(key);
        if lines.next().is_some() {
            return Err(KeyFileError::NotAReceiverKey);
        }
        if position >= MAX_RECEIVERS {
            return Err(KeyFileError::UnknownPosition);
        }
        check_receiver_name(name)?;
        Ok((Self::new(NetworkId(network), DeviceId(sender), position, &key), name))
    }

    /// Writes the key file of the receiver called `name`. It has at most [`MAX_KEY_FILE`] bytes.
    ///
    /// # Errors
    /// The errors of the output.
    pub fn write(&self, name: &str, out: &mut impl Write) -> fmt::Result {
        let Self { network, sender, position, .. } = self;
        writeln!(out, "{TITLE}\nnetwork {network}\nsender {sender}")?;
        write!(out, "position {position}\nname {name}\nkey ")?;
        self.key.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
        out.write_char('\n')
    }
}

impl fmt::Debug for ReceiverKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiverKey")
            .field("sender", &self.sender)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

#[allow(clippy::expect_used)]
fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mac = Mac256::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().fold(mac, |mac, part| mac.chain_update(part)).finalize().into_bytes().into()
}

/// Reads exactly `N` bytes of lower-case hexadecimal digits.
#[must_use]
pub fn decode_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}
