//! The frame that carries a device's health to its coordinator (spec/health.md, section 5).
//!
//! It is a type of its own, so that firmware that does not report contains nothing of it. A coordinator
//! that does not know it drops it (`Malformed`). It is not acknowledged: the next one replaces it.

use moteseal_core::cbor::{BufferTooSmall, Reader, Writer};
use moteseal_core::health::{Health, MAX_ENCODED};
use moteseal_core::link::{Direction, FrameError, LinkKey, TAG, closed, opened};
use moteseal_core::record::DeviceId;

/// The first bytes of every health frame: the head of an array of three elements, and the kind.
const HEALTH: [u8; 2] = [0x83, 8];
/// Maximum length of a [`HealthFrame`] in bytes.
pub const MAX_HEALTH_FRAME: usize = 2 + 9 + MAX_ENCODED + TAG;

/// A frame with a device's health, from the device to its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthFrame {
    /// The health.
    pub health: Health,
}

impl HealthFrame {
    /// Returns whether the bytes claim to be such a frame. Nothing is verified.
    #[must_use]
    pub fn is_claimed(frame: &[u8]) -> bool {
        frame.starts_with(&HEALTH)
    }

    /// Checks the tag of a device's frame and decodes it.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &[u8], key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Up)?)?;
        reader.array(3)?;
        let kind = reader.u64()?;
        let _: [u8; 8] = reader.fixed()?;
        if kind != 8 {
            return Err(FrameError::Malformed);
        }
        Ok(Self { health: Health::decode(reader.raw()?)? })
    }

    /// Writes a frame from `device`.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_HEALTH_FRAME`] bytes suffice.
    pub fn close<'o>(
        &self,
        device: DeviceId,
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(3)?.uint(8u8)?.bytes(&device.0)?;
        self.health.encode(&mut out)?;
        closed(out, key, Direction::Up)
    }
}
