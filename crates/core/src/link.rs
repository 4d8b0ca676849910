//! The keys of a link between a node and its parent, and the tag that authenticates each frame
//! (spec/coordinator.md, section 4).
//!
//! A frame is one CBOR item followed by a 16-byte HMAC-SHA256 tag under a key that only the two
//! ends share. The protocols define the items: sealing and private sums each have their own frames.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::cbor::{BufferTooSmall, DecodeError, Writer};
use crate::record::{DeviceId, GroupId};

/// Length of a frame's tag in bytes.
pub const TAG: usize = 16;
/// Maximum length of a frame in bytes. Every kind of link can carry a frame of this length.
pub const MAX_FRAME: usize = 1 << 16;
/// Maximum length of the name of a gateway or a querier, in bytes. The topics of a link contain the name
/// after the 16 hexadecimal digits of the group and a full stop.
pub const MAX_NODE_NAME: usize = 47;
type Mac256 = Hmac<sha2::Sha256>;

/// Returns whether a gateway or a querier may have this name: 1 to [`MAX_NODE_NAME`] letters, digits,
/// `-`, `_` and `.`.
#[must_use]
pub fn is_node_name(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NODE_NAME).contains(&name.len()) && name.bytes().all(is_sign)
}

/// The keys that a node shares with its parent, one for each direction. `Debug` does not print
/// them.
#[derive(Clone)]
pub struct LinkKey {
    up: Mac256,
    down: Mac256,
}

impl LinkKey {
    /// Derives the keys from 32 secret bytes. Each direction has its own key, so a frame cannot be
    /// reflected to its sender.
    #[must_use]
    pub fn new(secret: &[u8; 32]) -> Self {
        let direction = |label: &[u8]| mac(&*derive(secret, &[label]));
        Self { up: direction(b"moteseal/1/link/up"), down: direction(b"moteseal/1/link/down") }
    }

    /// Derives the secret of one device from the secret that the coordinator keeps for the whole
    /// group.
    #[must_use]
    pub fn secret_of(
        group_secret: &[u8; 32],
        group: GroupId,
        device: DeviceId,
    ) -> Zeroizing<[u8; 32]> {
        derive(group_secret, &[b"moteseal/1/link", &group.0, &device.0])
    }

    /// Returns a public name of a link secret, by which the files of both ends of a link can be
    /// compared without showing the secret.
    #[must_use]
    pub fn name_of(secret: &[u8; 32]) -> [u8; 8] {
        let whole = derive(secret, &[b"moteseal/1/link/name"]);
        let mut name = [0; 8];
        name.copy_from_slice(&whole[..8]);
        name
    }

    /// Derives the pre-shared key of a device's DTLS sessions (RFC 4279) from the link secret of the
    /// device.
    #[must_use]
    pub fn dtls_psk(secret: &[u8; 32]) -> Zeroizing<[u8; 32]> {
        derive(secret, &[b"moteseal/1/dtls"])
    }

    fn tag(&self, direction: Direction, item: &[u8]) -> [u8; TAG] {
        let key = if direction == Direction::Up { &self.up } else { &self.down };
        let mut whole: [u8; 32] = key.clone().chain_update(item).finalize().into_bytes().into();
        let mut tag = [0; TAG];
        tag.copy_from_slice(&whole[..TAG]);
        whole.zeroize();
        tag
    }
}

impl fmt::Debug for LinkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkKey(secret)")
    }
}

#[allow(clippy::expect_used)]
fn mac(key: &[u8]) -> Mac256 {
    Mac256::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn derive(secret: &[u8; 32], parts: &[&[u8]]) -> Zeroizing<[u8; 32]> {
    let mac = parts.iter().fold(mac(secret), |mac, part| mac.chain_update(part));
    Zeroizing::new(mac.finalize().into_bytes().into())
}

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a node to its parent.
    Up,
    /// From a parent to a node below it.
    Down,
}

named_errors! {
    /// Why a frame is dropped. Receivers count such frames but do not reply to them, because anyone
    /// can write to a link.
    FrameError {
        /// The bytes are not a frame.
        Malformed => "the bytes are not a frame of this version",
        /// The tag does not match: the frame is damaged, forged, or made with another link secret.
        NotAuthentic => "the tag does not match: the frame is damaged, forged, or made with another link secret",
    }
}

impl From<DecodeError> for FrameError {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

/// Returns the id of the device that a frame names as its sender or receiver. Nothing is verified.
#[must_use]
pub fn claimed_device(frame: &[u8]) -> Option<DeviceId> {
    // Every frame starts with an array of at most 23 elements, a kind below 24, and a byte string
    // of eight bytes.
    let (start, rest) = frame.split_first_chunk::<3>()?;
    let device = rest.first_chunk()?;
    (start[0] >> 5 == 4 && start[0] & 31 < 24 && start[1] < 24 && start[2] == 0x48)
        .then_some(DeviceId(*device))
}

/// Checks the tag of a frame and returns its item.
///
/// # Errors
/// [`FrameError`] if the bytes are not a frame or the tag does not match.
pub fn opened<'a>(
    frame: &'a [u8],
    key: &LinkKey,
    direction: Direction,
) -> Result<&'a [u8], FrameError> {
    let (item, tag) = frame.split_last_chunk::<TAG>().ok_or(FrameError::Malformed)?;
    if bool::from(key.tag(direction, item).ct_eq(tag)) {
        Ok(item)
    } else {
        Err(FrameError::NotAuthentic)
    }
}

/// Appends the tag to a written item and returns the frame.
///
/// # Errors
/// [`BufferTooSmall`] if the tag does not fit.
pub fn closed<'o>(
    out: Writer<'o>,
    key: &LinkKey,
    direction: Direction,
) -> Result<&'o [u8], BufferTooSmall> {
    let mut out = out;
    let tag = key.tag(direction, out.written());
    out.raw(&tag)?;
    Ok(out.finish())
}
