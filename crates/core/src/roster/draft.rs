//! Drafting and signing a roster.

use super::{Roster, RosterError};
use crate::cbor::{BufferTooSmall, Writer};
use crate::cose::{Sign1, Typ, sig_structure};
use crate::digest::Digest;
use crate::identity::protected;
use crate::record::{DeviceId, EpochNumber, GroupId};
use crate::signature::{Algorithm, Signer};

/// The content of a roster to issue.
///
/// Signing has separate steps, so that the private key can be in another program or device:
/// [`payload`](Self::payload) and [`message`](Self::message) return the bytes to sign, and
/// [`attach`](Self::attach) adds the signature. [`sign`](Self::sign) does all three with a local
/// key. A buffer of [`size`](Self::size) bytes suffices for each step.
#[derive(Clone, Copy, Debug)]
pub struct RosterDraft<'a> {
    /// The group's name.
    pub group_name: &'a str,
    /// The digests of the earlier versions, from version 0. Their number is this roster's version.
    pub history: &'a [Digest],
    /// The length of an epoch, in milliseconds.
    pub epoch_ms: u64,
    /// The number of levels.
    pub levels: u8,
    /// The largest number of events that the coordinator may keep per epoch; `None` means no limit.
    pub budget: Option<u64>,
    /// The first epoch that may be sealed.
    pub first_epoch: EpochNumber,
    /// The last epoch that may be sealed; `None` means no end.
    pub last_epoch: Option<EpochNumber>,
    /// The coordinator's certificate.
    pub coordinator: Option<&'a [u8]>,
    /// The devices, sorted by [`DeviceDraft::id`].
    pub devices: &'a [DeviceDraft<'a>],
}

/// A device to list in a roster.
#[derive(Clone, Copy, Debug)]
pub struct DeviceDraft<'a> {
    /// The name.
    pub name: &'a str,
    /// The device's certificates, encoded, sorted by first index.
    pub certificates: &'a [&'a [u8]],
}

impl DeviceDraft<'_> {
    /// Returns the device's id in the group called `group_name`. A roster lists its devices by
    /// ascending id.
    #[must_use]
    pub fn id(&self, group_name: &str) -> DeviceId {
        DeviceId::of(group_name, self.name)
    }
}

impl RosterDraft<'_> {
    /// Returns an upper bound on the number of bytes that each step writes.
    #[must_use]
    pub fn size(&self) -> usize {
        // The heads of strings and arrays have at most 9 bytes each, and a signature has at most
        // 2,420.
        let certificates = |certificates: &[&[u8]]| {
            certificates.iter().map(|bytes| bytes.len() + 9).sum::<usize>()
        };
        let devices = self
            .devices
            .iter()
            .map(|device| 36 + device.name.len() + certificates(device.certificates))
            .sum::<usize>();
        let coordinator = self.coordinator.map_or(1, |bytes| bytes.len() + 9);
        256 + Algorithm::MlDsa44.signature_length()
            + self.group_name.len()
            + 34 * self.history.len()
            + coordinator
            + devices
    }

    /// Writes the payload and checks all of it except the signatures of the certificates.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn payload<'s>(&self, scratch: &'s mut [u8]) -> Result<&'s [u8], RosterError> {
        let version = u32::try_from(self.history.len()).map_err(|_| RosterError::HistoryLength)?;
        let mut out = Writer::new(scratch);
        out.array(12)?
            .uint(1u8)?
            .text(self.group_name)?
            .bytes(&GroupId::of(self.group_name).0)?
            .uint(version)?;
        out.array(u64::from(version))?;
        for digest in self.history {
            out.bytes(&digest.0)?;
        }
        out.uint(self.epoch_ms)?.uint(self.levels)?.optional(self.budget, Writer::uint)?;
        out.uint(self.first_epoch.0)?.optional(self.last_epoch, |out, last| out.uint(last.0))?;
        out.optional(self.coordinator, Writer::bytes)?;
        out.array(self.devices.len() as u64)?;
        for device in self.devices {
            out.array(3)?
                .bytes(&device.id(self.group_name).0)?
                .text(device.name)?
                .array(device.certificates.len() as u64)?;
            for certificate in device.certificates {
                out.bytes(certificate)?;
            }
        }
        let payload = &*out.finish();
        Roster::read(payload, Digest::NULL)?;
        Ok(payload)
    }

    /// Writes to `scratch` the bytes that an operator's key of suite `operator` must sign.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn message<'s>(
        operator: Algorithm,
        payload: &[u8],
        scratch: &'s mut [u8],
    ) -> Result<&'s [u8], BufferTooSmall> {
        sig_structure(scratch, protected(operator, Typ::Roster, &mut [0; _])?, payload)
    }

    /// Writes the roster with its signature to `out`.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn attach<'o>(
        operator: Algorithm,
        payload: &[u8],
        signature: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        Sign1::encode(
            &mut out,
            protected(operator, Typ::Roster, &mut [0; _])?,
            payload,
            signature,
        )?;
        Ok(out.finish())
    }

    /// Signs with the operator's key and writes the roster to `out`.
    ///
    /// # Errors
    /// [`RosterError`]. The signatures of the certificates are not checked here; [`Roster::open`]
    /// checks them.
    pub fn sign<'o>(
        &self,
        operator: &dyn Signer,
        scratch: &mut [u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], RosterError> {
        let payload = self.payload(scratch)?;
        let signature = operator.signature(Self::message(operator.algorithm(), payload, out)?)?;
        Ok(Self::attach(operator.algorithm(), payload, &signature, out)?)
    }
}
