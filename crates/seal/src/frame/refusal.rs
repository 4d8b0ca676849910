//! The coordinator's word that a seal is refused, so that its device does not send it for ever (spec/formats.md, section 8.2).
//!
//! It is about one seal by its index, which is never reused: heard twice, or late, it says nothing else. It gives its sender no power that a
//! coordinator has not anyway, who may as well acknowledge a seal and drop it: either way the seal is missing from the device's chain.

use moteseal_core::cbor::{BufferTooSmall, Reader, Writer};
use moteseal_core::link::{Direction, FrameError, LinkKey, closed, opened};
use moteseal_core::record::{DeviceId, SealIndex};

/// What every such frame begins with: an array of five, and its kind.
const START: [u8; 2] = [0x85, 17];
/// A frame is at most this long.
pub const MAX_REFUSAL: usize = 96;
/// Bytes of the longest name.
const MAX_NAME: usize = 48;

/// A coordinator's refusal of one seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The seal.
    pub index: SealIndex,
    /// Nothing that may happen makes the coordinator take it. Otherwise another roster, or another time, may.
    pub is_final: bool,
    /// Why: a name of spec/errors.md.
    pub name: &'a str,
}

impl<'a> Refusal<'a> {
    /// Whether a frame claims to be one; nothing is proven.
    #[must_use]
    pub fn is_claimed(frame: &[u8]) -> bool {
        frame.starts_with(&START)
    }

    /// Opens a frame of the coordinator to a device.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &'a [u8], device: DeviceId, key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Down)?)?;
        reader.array(5)?;
        let (kind, to) = (reader.u64()?, DeviceId(reader.fixed()?));
        let (index, is_final, name) =
            (SealIndex(reader.uint()?), reader.uint::<u8>()?, reader.text()?);
        let is_name = (1..=MAX_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if kind != 17 || to != device || is_final > 1 || !is_name {
            return Err(FrameError::Malformed);
        }
        Ok(Self { index, is_final: is_final != 0, name })
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_REFUSAL`] bytes suffice for a name that is opened.
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
