//! The owners of a roster: the parties whose grants open confidential readings (spec/objects.md,
//! section 4; spec/grants.md).

use core::fmt;

use super::{RosterError, check_name};
use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::digest;
use crate::identity::Certificate;
use crate::record::{DeviceId, GroupId};
use crate::signature::PublicKey;

/// Returns the id for which a group's owner called `name` is certified:
/// `H("moteseal/1/owner" || 0x00 || group name || 0x00 || name)[..8]`. It is not the id of a device
/// with this name.
#[must_use]
pub fn owner_id(group_name: &str, name: &str) -> DeviceId {
    DeviceId(digest::short(&[b"moteseal/1/owner\0", group_name.as_bytes(), b"\0", name.as_bytes()]))
}

/// An owner of confidential readings. Its key verifies the grants that it signs.
#[derive(Clone, Copy)]
pub struct Owner<'a> {
    /// The name.
    pub name: &'a str,
    /// The certificate, encoded. Its device id is the [`owner_id`].
    pub bytes: &'a [u8],
}

impl<'a> Owner<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.array(2)?;
        Ok(Self { name: reader.text()?, bytes: reader.bytes()? })
    }

    /// Returns the certificate.
    ///
    /// # Errors
    /// [`DecodeError`], only if the roster has not been checked.
    pub fn certificate(&self) -> Result<Certificate<'a>, DecodeError> {
        Certificate::decode(self.bytes)
    }

    /// Returns the key that verifies the owner's grants; `None` only if the roster has not been
    /// checked.
    #[must_use]
    pub fn key(&self) -> Option<PublicKey> {
        self.certificate().ok()?.key().ok()
    }
}

impl fmt::Debug for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The encoded list of owners, which only sanitisers follow in a roster. Empty if the roster has no
/// such element.
#[derive(Clone, Copy)]
pub(super) struct Owners<'a>(&'a [u8]);

impl<'a> Owners<'a> {
    pub(super) const NONE: Self = Self(&[]);

    /// Reads the list and checks its encoding, but not that of the certificates. A list has at least
    /// one owner, so that each roster has one encoding.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let owners = Self::read_any(reader)?;
        if owners.iter().next().is_none() { Err(DecodeError::UnexpectedType) } else { Ok(owners) }
    }

    /// Reads a list as [`read`](Self::read) does. It may be empty, because sanitisers follow it.
    pub(super) fn read_any(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let bytes = reader.raw()?;
        let mut reader = Reader::resume(bytes);
        for _ in 0..reader.array_any()? {
            Owner::read(&mut reader)?;
        }
        Ok(Self(bytes))
    }

    pub(super) fn iter(self) -> impl Iterator<Item = Owner<'a>> + use<'a> {
        let mut reader = Reader::resume(self.0);
        let count = if self.0.is_empty() { 0 } else { reader.array_any().unwrap_or(0) };
        // The bytes have been read successfully before, so `ok()` is always `Some` here.
        (0..count).map_while(move |_| Owner::read(&mut reader).ok())
    }

    /// Checks names, ids and order.
    pub(super) fn check(self, group_name: &str, group: GroupId) -> Result<(), RosterError> {
        let mut last = None;
        for owner in self.iter() {
            check_name(owner.name)?;
            let (certificate, id) = (owner.certificate()?, owner_id(group_name, owner.name));
            if (certificate.group, certificate.device) != (group, id) {
                return Err(RosterError::CertificateMismatch);
            }
            if last >= Some(id) {
                return Err(RosterError::UnsortedOwners);
            }
            last = Some(id);
        }
        Ok(())
    }
}

/// An owner to list in a roster.
#[derive(Clone, Copy, Debug)]
pub struct OwnerDraft<'a> {
    /// The name.
    pub name: &'a str,
    /// The certificate, issued for the [`owner_id`].
    pub certificate: &'a [u8],
}

impl OwnerDraft<'_> {
    /// Returns the owner's id in the group called `group_name`. A roster lists its owners by ascending
    /// id.
    #[must_use]
    pub fn id(&self, group_name: &str) -> DeviceId {
        owner_id(group_name, self.name)
    }

    /// Returns an upper bound on the encoded length: three heads, and the head of the list.
    pub(super) fn size(&self) -> usize {
        36 + self.name.len() + self.certificate.len()
    }

    /// Writes the list. Writes nothing if there are no owners and nothing `follows` them.
    pub(super) fn write_all(
        owners: &[Self],
        follows: bool,
        out: &mut Writer<'_>,
    ) -> Result<(), BufferTooSmall> {
        if follows || !owners.is_empty() {
            out.array(owners.len() as u64)?;
        }
        for owner in owners {
            out.array(2)?.text(owner.name)?.bytes(owner.certificate)?;
        }
        Ok(())
    }
}
