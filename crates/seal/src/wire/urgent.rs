//! The frames that carry an urgent event to the coordinator, and its answers (spec/coordinator.md,
//! section 8).
//!
//! These frames are types of their own, so that firmware that sends no urgent events does not
//! contain their code. A coordinator or a device that does not know them drops them (`Malformed`).

use moteseal_core::cbor::{BufferTooSmall, Reader, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::link::{Direction, FrameError, LinkKey, closed, opened};
use moteseal_core::record::DeviceId;

use super::refusal::is_name;

/// The first bytes of every event frame: the head of an array of four elements, and the kind.
const EVENT: [u8; 2] = [0x84, 7];
/// The first bytes of every frame that states that an event is stored.
const STORED: [u8; 2] = [0x83, 18];
/// The first bytes of every frame that refuses an event.
const REFUSED: [u8; 2] = [0x85, 19];
/// Maximum length of the frame of an [`EventAnswer`] in bytes.
pub const MAX_EVENT_ANSWER: usize = 128;

/// A frame with an urgent event, from a device to its coordinator. It also carries the stream
/// schema, so that the first event of a device can be read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFrame<'a> {
    /// The stream schema, encoded.
    pub schema: &'a [u8],
    /// The signed event ([`UrgentEvent`](crate::UrgentEvent)), a tagged `COSE_Sign1`.
    pub event: &'a [u8],
}

impl<'a> EventFrame<'a> {
    /// Returns whether the bytes claim to be such a frame. Nothing is verified.
    #[must_use]
    pub fn is_claimed(frame: &[u8]) -> bool {
        frame.starts_with(&EVENT)
    }

    /// Checks the tag of a device's frame and decodes it. The schema and the event are not checked.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &'a [u8], key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Up)?)?;
        reader.array(4)?;
        let kind = reader.u64()?;
        let _: [u8; 8] = reader.fixed()?;
        let (schema, event) = (reader.bytes()?, reader.bytes()?);
        if kind != 7 {
            return Err(FrameError::Malformed);
        }
        Ok(Self { schema, event })
    }

    /// Writes a frame from `device`.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn close<'o>(
        &self,
        device: DeviceId,
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(4)?.uint(7u8)?.bytes(&device.0)?.bytes(self.schema)?.bytes(self.event)?;
        closed(out, key, Direction::Up)
    }
}

/// A coordinator's answer to an urgent event. It names the event by its digest (spec/objects.md,
/// section 2), so a repeated or late answer cannot affect another event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAnswer<'a> {
    /// The event is stored durably.
    Stored {
        /// The digest of the event.
        digest: Digest,
    },
    /// The coordinator does not store the event.
    Refused {
        /// The digest of the event.
        digest: Digest,
        /// Whether nothing can make the coordinator accept the event. Otherwise the device sends it
        /// again later.
        is_final: bool,
        /// The reason: a name that spec/errors.md lists.
        name: &'a str,
    },
}

impl<'a> EventAnswer<'a> {
    /// Returns whether the bytes claim to be such a frame. Nothing is verified.
    #[must_use]
    pub fn is_claimed(frame: &[u8]) -> bool {
        frame.starts_with(&STORED) || frame.starts_with(&REFUSED)
    }

    /// Returns the digest of the event.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        match self {
            Self::Stored { digest } | Self::Refused { digest, .. } => *digest,
        }
    }

    /// Checks the tag of a coordinator's frame to a device and decodes it.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn open(frame: &'a [u8], device: DeviceId, key: &LinkKey) -> Result<Self, FrameError> {
        let mut reader = Reader::new(opened(frame, key, Direction::Down)?)?;
        let (fields, kind) = (reader.array_any()?, reader.u64()?);
        let (to, digest) = (DeviceId(reader.fixed()?), Digest(reader.fixed()?));
        if to != device {
            return Err(FrameError::Malformed);
        }
        match (kind, fields) {
            (18, 3) => Ok(Self::Stored { digest }),
            (19, 5) => {
                let (is_final, name) = (reader.uint::<u8>()?, reader.text()?);
                if is_final > 1 || !is_name(name) {
                    return Err(FrameError::Malformed);
                }
                Ok(Self::Refused { digest, is_final: is_final != 0, name })
            }
            _ => Err(FrameError::Malformed),
        }
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_EVENT_ANSWER`] bytes suffice for every valid name.
    pub fn close<'o>(
        &self,
        device: DeviceId,
        key: &LinkKey,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        match self {
            Self::Stored { digest } => {
                out.array(3)?.uint(18u8)?.bytes(&device.0)?.bytes(&digest.0)?;
            }
            Self::Refused { digest, is_final, name } => {
                out.array(5)?.uint(19u8)?.bytes(&device.0)?.bytes(&digest.0)?;
                out.uint(u8::from(*is_final))?.text(name)?;
            }
        }
        closed(out, key, Direction::Down)
    }
}
