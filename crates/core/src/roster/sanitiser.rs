//! The sanitisers of a roster: the parties that may replace the cells of column groups by coarser ones
//! (spec/objects.md, section 4; spec/sanitised.md).

use core::fmt;

use super::{RosterError, check_name};
use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::digest;
use crate::identity::Certificate;
use crate::record::{DeviceId, EpochNumber, GroupId};
use crate::schema::Groups;
use crate::signature::PublicKey;

/// Returns the id for which a group's sanitiser called `name` is certified:
/// `H("moteseal/1/sanitiser" || 0x00 || group name || 0x00 || name)[..8]`. It is not the id of a
/// device or owner with this name.
#[must_use]
pub fn sanitiser_id(group_name: &str, name: &str) -> DeviceId {
    let (group, name) = (group_name.as_bytes(), name.as_bytes());
    DeviceId(digest::short(&[b"moteseal/1/sanitiser\0", group, b"\0", name]))
}

/// What a sanitiser may replace: column groups of devices, in a range of epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right<'a> {
    devices: Option<&'a [u8]>,
    /// The column groups. Group 0 is not among them.
    pub groups: Groups,
    /// The first epoch.
    pub first_epoch: EpochNumber,
    /// The epoch after the last one; `None` if there is no end.
    pub end_epoch: Option<EpochNumber>,
}

impl<'a> Right<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.array(4)?;
        let devices = reader.optional(Reader::raw)?;
        if let Some(devices) = devices {
            let mut listed = Reader::resume(devices);
            let count = listed.array_any()?;
            if count == 0 {
                return Err(DecodeError::UnexpectedType);
            }
            for _ in 0..count {
                listed.fixed::<8>()?;
            }
        }
        let groups = Groups::from_bits(reader.uint()?);
        let first_epoch = EpochNumber(reader.u64()?);
        let end_epoch = reader.optional(Reader::u64)?.map(EpochNumber);
        Ok(Self { devices, groups, first_epoch, end_epoch })
    }

    fn check(&self) -> Result<(), RosterError> {
        if self.groups.is_empty() || self.groups.contains(0) {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        if self.end_epoch.is_some_and(|end| end < self.first_epoch) {
            return Err(RosterError::TermRangeEmpty);
        }
        let mut last = None;
        for device in self.devices().into_iter().flatten() {
            if last >= Some(device) {
                return Err(RosterError::UnsortedDevices);
            }
            last = Some(device);
        }
        Ok(())
    }

    /// Returns the devices, sorted by id; `None` for all devices of the group.
    #[must_use]
    pub fn devices(&self) -> Option<impl Iterator<Item = DeviceId> + use<'a>> {
        let mut reader = Reader::resume(self.devices?);
        let count = reader.array_any().unwrap_or(0);
        // The bytes have been read successfully before, so `ok()` is always `Some` here.
        Some((0..count).map_while(move |_| reader.fixed().ok().map(DeviceId)))
    }
}

/// A sanitiser. Its key verifies the statements that it signs.
#[derive(Clone, Copy)]
pub struct Sanitiser<'a> {
    /// The name.
    pub name: &'a str,
    /// The certificate, encoded. Its device id is the [`sanitiser_id`].
    pub bytes: &'a [u8],
    rights: &'a [u8],
}

impl<'a> Sanitiser<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.array(3)?;
        let (name, bytes, rights) = (reader.text()?, reader.bytes()?, reader.raw()?);
        let mut listed = Reader::resume(rights);
        let count = listed.array_any()?;
        if count == 0 {
            return Err(DecodeError::UnexpectedType);
        }
        for _ in 0..count {
            Right::read(&mut listed)?;
        }
        Ok(Self { name, bytes, rights })
    }

    /// Returns the certificate.
    ///
    /// # Errors
    /// [`DecodeError`], only if the roster has not been checked.
    pub fn certificate(&self) -> Result<Certificate<'a>, DecodeError> {
        Certificate::decode(self.bytes)
    }

    /// Returns the key that verifies the sanitiser's statements; `None` only if the roster has not been
    /// checked.
    #[must_use]
    pub fn key(&self) -> Option<PublicKey> {
        self.certificate().ok()?.key().ok()
    }

    /// Returns what the sanitiser may replace. There is at least one right.
    pub fn rights(&self) -> impl Iterator<Item = Right<'a>> + use<'a> {
        let mut reader = Reader::resume(self.rights);
        let count = reader.array_any().unwrap_or(0);
        // The bytes have been read successfully before, so `ok()` is always `Some` here.
        (0..count).map_while(move |_| Right::read(&mut reader).ok())
    }
}

impl fmt::Debug for Sanitiser<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sanitiser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The encoded list of sanitisers: the last element of a roster. Empty if the roster has no such
/// element.
#[derive(Clone, Copy)]
pub(super) struct Sanitisers<'a>(&'a [u8]);

impl<'a> Sanitisers<'a> {
    pub(super) const NONE: Self = Self(&[]);

    /// Reads the list and checks its encoding, but not that of the certificates. A list has at least
    /// one sanitiser, so that each roster has one encoding.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes = reader.raw()?;
        let mut reader = Reader::resume(bytes);
        let count = reader.array_any()?;
        if count == 0 {
            return Err(DecodeError::UnexpectedType);
        }
        for _ in 0..count {
            Sanitiser::read(&mut reader)?;
        }
        Ok(Self(bytes))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Sanitiser<'a>> + use<'a> {
        let mut reader = Reader::resume(self.0);
        let count = if self.0.is_empty() { 0 } else { reader.array_any().unwrap_or(0) };
        // The bytes have been read successfully before, so `ok()` is always `Some` here.
        (0..count).map_while(move |_| Sanitiser::read(&mut reader).ok())
    }

    /// Checks names, ids, order and rights.
    pub(super) fn check(self, group_name: &str, group: GroupId) -> Result<(), RosterError> {
        let mut last = None;
        for sanitiser in self.iter() {
            check_name(sanitiser.name)?;
            let certificate = sanitiser.certificate()?;
            let id = sanitiser_id(group_name, sanitiser.name);
            if (certificate.group, certificate.device) != (group, id) {
                return Err(RosterError::CertificateMismatch);
            }
            if last >= Some(id) {
                return Err(RosterError::UnsortedSanitisers);
            }
            sanitiser.rights().try_for_each(|right| right.check())?;
            last = Some(id);
        }
        Ok(())
    }
}

/// A right to list in a roster.
#[derive(Clone, Copy, Debug)]
pub struct RightDraft<'a> {
    /// The devices, sorted by id; `None` for all devices of the group.
    pub devices: Option<&'a [DeviceId]>,
    /// The column groups, without group 0.
    pub groups: Groups,
    /// The first epoch.
    pub first_epoch: EpochNumber,
    /// The epoch after the last one; `None` if there is no end.
    pub end_epoch: Option<EpochNumber>,
}

/// A sanitiser to list in a roster.
#[derive(Clone, Copy, Debug)]
pub struct SanitiserDraft<'a> {
    /// The name.
    pub name: &'a str,
    /// The certificate, issued for the [`sanitiser_id`].
    pub certificate: &'a [u8],
    /// What the sanitiser may replace.
    pub rights: &'a [RightDraft<'a>],
}

impl SanitiserDraft<'_> {
    /// Returns the sanitiser's id in the group called `group_name`. A roster lists its sanitisers by
    /// ascending id.
    #[must_use]
    pub fn id(&self, group_name: &str) -> DeviceId {
        sanitiser_id(group_name, self.name)
    }

    /// Returns an upper bound on the encoded length, with the head of the list.
    pub(super) fn size(&self) -> usize {
        let right = |right: &RightDraft<'_>| 40 + 9 * right.devices.map_or(0, <[_]>::len);
        48 + self.name.len() + self.certificate.len() + self.rights.iter().map(right).sum::<usize>()
    }

    /// Writes the list, or nothing if there are no sanitisers.
    pub(super) fn write_all(
        sanitisers: &[Self],
        out: &mut Writer<'_>,
    ) -> Result<(), BufferTooSmall> {
        if !sanitisers.is_empty() {
            out.array(sanitisers.len() as u64)?;
        }
        for sanitiser in sanitisers {
            out.array(3)?.text(sanitiser.name)?.bytes(sanitiser.certificate)?;
            out.array(sanitiser.rights.len() as u64)?;
            for right in sanitiser.rights {
                out.array(4)?;
                out.optional(right.devices, |out, devices| {
                    out.array(devices.len() as u64)?;
                    devices.iter().try_fold(out, |out, device| out.bytes(&device.0))
                })?;
                out.uint(right.groups.bits())?.uint(right.first_epoch.0)?;
                out.optional(right.end_epoch, |out, end| out.uint(end.0))?;
            }
        }
        Ok(())
    }
}
