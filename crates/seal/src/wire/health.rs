//! The frames with which a device reports its health to its coordinator (spec/health.md, section 5).
//!
//! The coordinator gives each device a random number, the session. A device states it in its reports, so
//! that a report that was recorded in an earlier session has no effect. A device that does not know the
//! number states 0, and receives it in return.
//!
//! The frames are types of their own, so that firmware that does not report contains nothing of them. A
//! coordinator that does not know them drops them (`Malformed`). Reports are not acknowledged: the next
//! one replaces them.

use moteseal_core::cbor::{BufferTooSmall, Reader, Writer};
use moteseal_core::health::{Health, MAX_ENCODED};
use moteseal_core::link::{Direction, FrameError, LinkKey, TAG, closed, opened};
use moteseal_core::record::DeviceId;

/// The first bytes of every health frame: the head of an array of five elements, and the kind.
const HEALTH: [u8; 2] = [0x85, 8];
/// The first bytes of every session frame: the head of an array of three elements, and the kind.
const SESSION: [u8; 2] = [0x83, 20];
/// Maximum length of a [`HealthFrame`] in bytes.
pub const MAX_HEALTH_FRAME: usize = 2 + 9 + 9 + 5 + MAX_ENCODED + TAG;
/// Maximum length of a [`HealthSession`] frame in bytes.
pub const MAX_HEALTH_SESSION: usize = 2 + 9 + 9 + TAG;

/// A frame with a device's health, from the device to its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthFrame {
    /// The session that the coordinator began; 0 if the device knows none.
    pub session: u64,
    /// The time until the next report if nothing unusual happens, in seconds.
    pub interval_s: u32,
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
        reader.array(5)?;
        let kind = reader.u64()?;
        let _: [u8; 8] = reader.fixed()?;
        if kind != 8 {
            return Err(FrameError::Malformed);
        }
        let (session, interval_s) = (reader.u64()?, reader.uint()?);
        Ok(Self { session, interval_s, health: Health::decode(reader.raw()?)? })
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
        out.array(5)?.uint(8u8)?.bytes(&device.0)?.uint(self.session)?.uint(self.interval_s)?;
        self.health.encode(&mut out)?;
        closed(out, key, Direction::Up)
    }
}

/// A frame by which a coordinator begins a session of reports with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSession(
    /// The session's number, which is random and not 0.
    pub u64,
);

impl HealthSession {
    /// Returns whether the bytes claim to be such a frame. Nothing is verified.
    #[must_use]
    pub fn is_claimed(frame: &[u8]) -> bool {
        frame.starts_with(&SESSION)
    }

    /// Checks the tag of a coordinator's frame to a device and decodes it.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &[u8], device: DeviceId, key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Down)?)?;
        reader.array(3)?;
        let (kind, to, session) = (reader.u64()?, DeviceId(reader.fixed()?), reader.u64()?);
        if kind != 20 || to != device || session == 0 {
            return Err(FrameError::Malformed);
        }
        Ok(Self(session))
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_HEALTH_SESSION`] bytes suffice.
    pub fn close<'o>(
        &self,
        device: DeviceId,
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(3)?.uint(20u8)?.bytes(&device.0)?.uint(self.0)?;
        closed(out, key, Direction::Down)
    }
}
