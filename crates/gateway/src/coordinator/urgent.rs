//! Checks the urgent events of devices (spec/coordinator.md, section 8). A coordinator cannot forge
//! an event, because the device's key signs it.

use std::sync::Arc;

use moteseal_api::ErrorKind;
use moteseal_core::digest::Digest;
use moteseal_core::health::MAX_HEALTH;
use moteseal_core::link::{FrameError, MAX_FRAME, claimed_device};
use moteseal_core::record::{DeviceId, EpochNumber};
use moteseal_seal::UrgentEvent;
use moteseal_seal::wire::{
    EventAnswer, EventFrame, HealthFrame, HealthSession, MAX_EVENT_ANSWER, MAX_HEALTH_SESSION,
};
use moteseal_verify::{SchemaEntry, Urgent, UrgentRefused};

use super::{GroupCoordinator, Refused, link_key};

/// Why an urgent event is rejected. The device is told the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventRefused {
    /// The frame does not decode, or the device that it names did not send it.
    #[error("not a valid frame of a device of this group")]
    Frame(#[from] FrameError),
    /// The roster has no such device.
    #[error("the roster has no such device; add it, or give the gateway the newer roster")]
    UnknownDevice,
    /// The device sends more urgent events than it may.
    #[error("the device sends too many urgent events, or too many wait for the cloud")]
    TooManyUrgent,
    /// The device has used its share of the journal.
    #[error("the device has used its share of the limit `disk`")]
    OverQuota,
    /// The event is of another device than the one that sent it.
    #[error("the event is of another device than the one that sent it")]
    DeviceMismatch,
    /// The event does not verify.
    #[error(transparent)]
    Event(#[from] UrgentRefused),
    /// The event's epoch is more than one epoch ahead of the group's current epoch.
    #[error("the event's epoch is too far ahead; check the device's clock")]
    EpochTooFar,
    /// The device does not belong to the group in this epoch.
    #[error("the roster does not list the device in this epoch")]
    NotAMember,
}

impl EventRefused {
    /// Returns the error's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Frame(error) => error.name(),
            Self::UnknownDevice => "UnknownDevice",
            Self::TooManyUrgent => "TooManyUrgent",
            Self::OverQuota => "OverQuota",
            Self::DeviceMismatch => "DeviceMismatch",
            Self::Event(error) => error.name(),
            Self::EpochTooFar => "EpochTooFar",
            Self::NotAMember => "NotAMember",
        }
    }

    /// Always returns [`ErrorKind::Refused`].
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    /// Returns whether nothing can make the coordinator accept the event: neither another version
    /// of the roster, nor time, nor room.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::DeviceMismatch => true,
            Self::Event(error) => matches!(
                error.name(),
                "Truncated"
                    | "TrailingBytes"
                    | "NonCanonical"
                    | "UnexpectedType"
                    | "UnsupportedVersion"
                    | "FieldOutOfRange"
                    | "WrongType"
                    | "UnexpectedHeader"
                    | "WrongGroup"
                    | "SchemaUnknown"
                    | "RecordLength"
                    | "RecordValue"
                    | "KeyEnded"
            ),
            _ => false,
        }
    }
}

moteseal_api::named_error!(EventRefused);

/// An event frame whose tag is correct.
pub(crate) struct Claimed<'a> {
    pub(crate) device: DeviceId,
    pub(crate) digest: Digest,
    pub(crate) frame: EventFrame<'a>,
}

impl GroupCoordinator {
    /// Checks the tag of an event frame and reads the digest of its event.
    ///
    /// # Errors
    /// [`EventRefused`].
    pub(crate) fn open_event<'a>(&self, frame: &'a [u8]) -> Result<Claimed<'a>, EventRefused> {
        if frame.len() > MAX_FRAME {
            return Err(FrameError::Malformed.into());
        }
        let device = claimed_device(frame).ok_or(FrameError::Malformed)?;
        let slot = self.slot(device).ok_or(EventRefused::UnknownDevice)?;
        let frame = match &self.devices[slot as usize].key {
            Some(key) => EventFrame::open(frame, key)?,
            None => EventFrame::open(frame, &link_key(&self.secret, &self.roster, device))?,
        };
        let digest = UrgentEvent::digest(frame.event).map_err(|_| FrameError::Malformed)?;
        Ok(Claimed { device, digest, frame })
    }

    /// Opens a device's frame with its health.
    ///
    /// # Errors
    /// [`Refused`].
    pub(crate) fn open_health(&self, frame: &[u8]) -> Result<(DeviceId, HealthFrame), Refused> {
        if frame.len() > MAX_HEALTH + 64 {
            return Err(Refused::Frame(FrameError::Malformed));
        }
        let device = claimed_device(frame).ok_or(Refused::Frame(FrameError::Malformed))?;
        let slot = self.slot(device).ok_or(Refused::UnknownDevice)?;
        let opened = match &self.devices[slot as usize].key {
            Some(key) => HealthFrame::open(frame, key),
            None => HealthFrame::open(frame, &link_key(&self.secret, &self.roster, device)),
        };
        Ok((device, opened.map_err(Refused::Frame)?))
    }

    /// Returns the frame that begins a session of reports with a device.
    pub(crate) fn health_session(&self, device: DeviceId, offer: HealthSession) -> Option<Vec<u8>> {
        let key = link_key(&self.secret, &self.roster, device);
        let mut out = [0; MAX_HEALTH_SESSION];
        offer.close(device, &key, &mut out).ok().map(<[u8]>::to_vec)
    }

    /// Verifies the event of a frame. `now` is the current epoch by the coordinator's own clock.
    ///
    /// # Errors
    /// [`EventRefused`].
    pub(crate) fn verify_event(
        &self,
        claimed: &Claimed<'_>,
        now: EpochNumber,
    ) -> Result<Urgent, EventRefused> {
        let schema = SchemaEntry::decode(claimed.frame.schema)
            .map_err(|error| EventRefused::Event(error.into()))?;
        let event = Urgent::open(claimed.frame.event, &Arc::new(schema), &self.roster)?;
        if event.device() != claimed.device {
            return Err(EventRefused::DeviceMismatch);
        }
        if event.epoch().0 > now.0.saturating_add(1) {
            return Err(EventRefused::EpochTooFar);
        }
        let device = self.roster.device(event.device());
        if !device.is_some_and(|device| device.is_member_in(event.epoch())) {
            return Err(EventRefused::NotAMember);
        }
        Ok(event)
    }

    /// Returns the frame that answers an event. Send [`EventAnswer::Stored`] only after the event
    /// is durable.
    pub(crate) fn event_answer(
        &self,
        device: DeviceId,
        answer: &EventAnswer<'_>,
    ) -> Option<Vec<u8>> {
        let key = link_key(&self.secret, &self.roster, device);
        let mut out = [0; MAX_EVENT_ANSWER];
        answer.close(device, &key, &mut out).ok().map(<[u8]>::to_vec)
    }
}
