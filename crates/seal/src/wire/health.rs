//! The frames with which a device reports its health to its coordinator (spec/health.md, section 5).
//!
//! The coordinator gives each device a random number, the session. A device states it in its reports, so
//! that a report that was recorded in an earlier session has no effect. A device that does not know the
//! number states 0, and receives it in return, together with the coordinator's time.
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
/// The first bytes of every session frame: the head of an array of six elements, and the kind.
const SESSION: [u8; 2] = [0x86, 20];
/// Maximum length of a [`HealthFrame`] in bytes.
pub const MAX_HEALTH_FRAME: usize = 2 + 9 + 9 + 5 + MAX_ENCODED + TAG;
/// Maximum length of a [`HealthSession`] frame in bytes.
pub const MAX_HEALTH_SESSION: usize = 2 + 9 + 9 + 9 + 5 + 5 + TAG;

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
pub struct HealthSession {
    /// The session's number, which is random and not 0.
    pub session: u64,
    /// The time of the coordinator's clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The report that the frame answers: its `boot` and its `uptime_s`.
    pub answers: (u32, u32),
}

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
        reader.array(6)?;
        let (kind, to, session) = (reader.u64()?, DeviceId(reader.fixed()?), reader.u64()?);
        let (unix_ms, answers) = (reader.u64()?, (reader.uint()?, reader.uint()?));
        if kind != 20 || to != device || session == 0 {
            return Err(FrameError::Malformed);
        }
        Ok(Self { session, unix_ms, answers })
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
        let Self { session, unix_ms, answers: (boot, uptime_s) } = *self;
        let mut out = Writer::new(out);
        out.array(6)?.uint(20u8)?.bytes(&device.0)?.uint(session)?;
        out.uint(unix_ms)?.uint(boot)?.uint(uptime_s)?;
        closed(out, key, Direction::Down)
    }

    /// Returns by how many milliseconds the device's clock is ahead of the coordinator's. `sent_ms` and
    /// `received_ms` are the times of the device's clock when it sent the report that the frame answers,
    /// and when it received the frame. The result is wrong by at most half of the time between them, and
    /// exact if both frames took the same time.
    #[must_use]
    pub fn clock_offset(&self, sent_ms: u64, received_ms: u64) -> i64 {
        let middle = sent_ms.saturating_add(received_ms.saturating_sub(sent_ms) / 2);
        let ahead = i128::from(middle) - i128::from(self.unix_ms);
        i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX })
    }
}
