//! Drafting and signing a roster.

use super::{OwnerDraft, Period, Roster, RosterError, SanitiserDraft, Term};
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
    /// The periods, in ascending order.
    pub periods: &'a [Period<'a>],
    /// The last epoch that may be sealed; `None` means no end.
    pub last_epoch: Option<EpochNumber>,
    /// The certificate of the querier of private sums. The first version cannot have one.
    pub querier: Option<&'a [u8]>,
    /// The devices, sorted by [`DeviceDraft::id`].
    pub devices: &'a [DeviceDraft<'a>],
    /// The owners of confidential readings, sorted by [`OwnerDraft::id`]. The first version cannot
    /// have one.
    pub owners: &'a [OwnerDraft<'a>],
    /// The sanitisers, sorted by [`SanitiserDraft::id`]. The first version cannot have one.
    pub sanitisers: &'a [SanitiserDraft<'a>],
}

/// A device to list in a roster.
#[derive(Clone, Copy, Debug)]
pub struct DeviceDraft<'a> {
    /// The name.
    pub name: &'a str,
    /// The version that was the first to list the device.
    pub since: u32,
    /// The terms of the device's certificates, sorted by first index and first epoch.
    pub terms: &'a [Term<'a>],
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
        // The heads of strings and arrays, and integers, have at most 9 bytes each, and a signature
        // has at most 2,420.
        let terms =
            |terms: &[Term<'_>]| terms.iter().map(|term| term.bytes.len() + 37).sum::<usize>();
        let devices = self
            .devices
            .iter()
            .map(|device| 45 + device.name.len() + terms(device.terms))
            .sum::<usize>();
        let periods = self
            .periods
            .iter()
            .map(|period| 64 + period.coordinator.map_or(0, <[u8]>::len))
            .sum::<usize>();
        256 + Algorithm::MlDsa44.signature_length()
            + self.group_name.len()
            + 34 * self.history.len()
            + periods
            + self.querier.map_or(0, <[u8]>::len)
            + self.owners.iter().map(OwnerDraft::size).sum::<usize>()
            + self.sanitisers.iter().map(SanitiserDraft::size).sum::<usize>()
            + devices
    }

    /// Writes the payload and checks all of it except the signatures of the certificates.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn payload<'s>(&self, scratch: &'s mut [u8]) -> Result<&'s [u8], RosterError> {
        let version = u32::try_from(self.history.len()).map_err(|_| RosterError::HistoryLength)?;
        let mut out = Writer::new(scratch);
        let is_first = version == 0;
        out.array(match (is_first, self.owners, self.sanitisers) {
            (true, ..) => 12,
            (false, [], []) => 9,
            (false, _, []) => 10,
            (false, ..) => 11,
        })?
        .uint(1u8)?
        .text(self.group_name)?
        .bytes(&GroupId::of(self.group_name).0)?
        .uint(version)?;
        out.array(u64::from(version))?;
        for digest in self.history {
            out.bytes(&digest.0)?;
        }
        if is_first {
            self.write_first(&mut out)?;
        } else {
            self.write_later(&mut out)?;
        }
        let payload = &*out.finish();
        Roster::read(payload, Digest::NULL)?;
        Ok(payload)
    }

    /// Writes the elements after the history as the first version has them.
    fn write_first(&self, out: &mut Writer<'_>) -> Result<(), RosterError> {
        let ([period], None, [], []) = (self.periods, self.querier, self.owners, self.sanitisers)
        else {
            return Err(RosterError::NotAFirstVersion);
        };
        out.uint(period.epoch_ms)?.uint(period.levels)?.optional(period.budget, Writer::uint)?;
        out.uint(period.first_epoch.0)?;
        out.optional(self.last_epoch, |out, last| out.uint(last.0))?;
        out.optional(period.coordinator, Writer::bytes)?;
        out.array(self.devices.len() as u64)?;
        for device in self.devices {
            out.array(3)?.bytes(&device.id(self.group_name).0)?.text(device.name)?;
            out.array(device.terms.len() as u64)?;
            for term in device.terms {
                let Term { bytes, first_epoch: EpochNumber(0), end_index: None, end_epoch: None } =
                    *term
                else {
                    return Err(RosterError::NotAFirstVersion);
                };
                out.bytes(bytes)?;
            }
            if device.since > 0 {
                return Err(RosterError::NotAFirstVersion);
            }
        }
        Ok(())
    }

    /// Writes the elements after the history as later versions have them.
    fn write_later(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(self.periods.len() as u64)?;
        for period in self.periods {
            period.write(out)?;
        }
        out.optional(self.last_epoch, |out, last| out.uint(last.0))?;
        out.optional(self.querier, Writer::bytes)?;
        out.array(self.devices.len() as u64)?;
        for device in self.devices {
            out.array(4)?.bytes(&device.id(self.group_name).0)?.text(device.name)?;
            out.uint(device.since)?.array(device.terms.len() as u64)?;
            for term in device.terms {
                out.array(4)?.bytes(term.bytes)?.uint(term.first_epoch.0)?;
                out.optional(term.end_index, |out, end| out.uint(end.0))?;
                out.optional(term.end_epoch, |out, end| out.uint(end.0))?;
            }
        }
        OwnerDraft::write_all(self.owners, !self.sanitisers.is_empty(), out)?;
        SanitiserDraft::write_all(self.sanitisers, out)
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
