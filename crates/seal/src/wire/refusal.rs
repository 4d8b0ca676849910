//! The message by which a coordinator tells a device that it rejects a seal, so that the device
//! stops sending it (spec/coordinator.md, section 4.5).
//!
//! A refusal identifies one seal by its index. Indices are never reused, so a repeated or late
//! refusal cannot affect another seal. A refusal gives the coordinator no additional power, because
//! the coordinator could also acknowledge a seal and then drop it. In both cases a verifier sees
//! that the seal is missing from the device's chain.

use moteseal_core::cbor::{BufferTooSmall, Reader, Writer};
use moteseal_core::link::{Direction, FrameError, LinkKey, closed, opened};
use moteseal_core::record::{DeviceId, SealIndex};

/// The first bytes of every refusal: the head of an array of five elements, and the kind.
const START: [u8; 2] = [0x85, 17];
/// Maximum length of the frame of a refusal in bytes.
pub const MAX_REFUSAL: usize = 96;
/// Maximum length of the name of a reason in bytes.
const MAX_NAME: usize = 48;

/// Returns whether a text may be the name of a reason.
#[inline]
pub(super) fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A coordinator's rejection of one seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The index of the seal.
    pub index: SealIndex,
    /// Whether the rejection is final. Otherwise the seal may be accepted later, or under another
    /// roster.
    pub is_final: bool,
    /// The reason: a name that spec/errors.md lists.
    pub name: &'a str,
}

impl<'a> Refusal<'a> {
    /// Returns whether the bytes claim to be a refusal. Nothing is verified.
    #[must_use]
    pub fn is_claimed(frame: &[u8]) -> bool {
        frame.starts_with(&START)
    }

    /// Checks the tag of a coordinator's frame to a device and decodes it.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &'a [u8], device: DeviceId, key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Down)?)?;
        reader.array(5)?;
        let (kind, to) = (reader.u64()?, DeviceId(reader.fixed()?));
        let (index, is_final, name) =
            (SealIndex(reader.uint()?), reader.uint::<u8>()?, reader.text()?);
        if kind != 17 || to != device || is_final > 1 || !is_name(name) {
            return Err(FrameError::Malformed);
        }
        Ok(Self { index, is_final: is_final != 0, name })
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_REFUSAL`] bytes suffice for every valid name.
    pub fn close<'o>(
        &self,
        device: DeviceId,
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(5)?
            .uint(17u8)?
            .bytes(&device.0)?
            .uint(self.index.0)?
            .uint(u8::from(self.is_final))?
            .text(self.name)?;
        closed(out, key, Direction::Down)
    }
}
