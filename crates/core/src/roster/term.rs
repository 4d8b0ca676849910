//! The devices of a roster, and the terms in which their keys are valid (spec/objects.md, section
//! 4).

use core::fmt;

use super::{RosterError, check_name};
use crate::cbor::{DecodeError, Reader};
use crate::identity::Certificate;
use crate::record::{DeviceId, EpochNumber, GroupId, SealIndex};
use crate::signature::PublicKey;

/// The term of a certificate: the seals for which the certified key is valid.
#[derive(Clone, Copy)]
pub struct Term<'a> {
    /// The certificate, encoded.
    pub bytes: &'a [u8],
    /// The first epoch in which the key is valid.
    pub first_epoch: EpochNumber,
    /// The first index for which the key is no longer valid; `None` if there is none.
    pub end_index: Option<SealIndex>,
    /// The first epoch in which the key is no longer valid; `None` if there is none.
    pub end_epoch: Option<EpochNumber>,
}

impl<'a> Term<'a> {
    /// Returns the term of a certificate that is valid in all epochs, from its first index on.
    #[must_use]
    pub const fn always(certificate: &'a [u8]) -> Self {
        Self { bytes: certificate, first_epoch: EpochNumber(0), end_index: None, end_epoch: None }
    }

    /// Reads a term as the later versions of a roster list it.
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        reader.array(4)?;
        Ok(Self {
            bytes: reader.bytes()?,
            first_epoch: EpochNumber(reader.u64()?),
            end_index: reader.optional(Reader::uint)?.map(SealIndex),
            end_epoch: reader.optional(Reader::u64)?.map(EpochNumber),
        })
    }

    /// Returns the certificate.
    ///
    /// # Errors
    /// [`DecodeError`], only if the roster has not been checked.
    pub fn certificate(&self) -> Result<Certificate<'a>, DecodeError> {
        Certificate::decode(self.bytes)
    }

    /// Returns whether the term has not ended at this index and epoch.
    #[must_use]
    pub fn lasts(&self, index: SealIndex, epoch: EpochNumber) -> bool {
        self.end_index.is_none_or(|end| index < end) && self.lasts_in(epoch)
    }

    /// Returns whether the term has not ended in this epoch.
    #[must_use]
    pub fn lasts_in(&self, epoch: EpochNumber) -> bool {
        self.end_epoch.is_none_or(|end| epoch < end)
    }
}

impl fmt::Debug for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("first_epoch", &self.first_epoch)
            .field("end_index", &self.end_index)
            .field("end_epoch", &self.end_epoch)
            .finish_non_exhaustive()
    }
}

/// Why a roster has no key for a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoKey {
    /// The roster does not list the device, or lists no certificate for the seal's index and epoch.
    Unknown,
    /// The term of the certificate for the seal's index and epoch has ended: the device was removed
    /// from the group, or its key was revoked.
    Ended,
}

/// A device of a roster.
#[derive(Clone, Copy)]
pub struct Device<'a> {
    /// The id.
    pub id: DeviceId,
    /// The name.
    pub name: &'a str,
    /// The version of the roster that was the first to list the device.
    pub since: u32,
    terms: &'a [u8],
    /// Whether `terms` is a list of certificates, as in the first version of a roster.
    has_certificates_only: bool,
}

impl<'a> Device<'a> {
    /// Reads a device of the first version of a roster, or of a later one.
    pub(super) fn read(reader: &mut Reader<'a>, is_first: bool) -> Result<Self, DecodeError> {
        reader.array(if is_first { 3 } else { 4 })?;
        Ok(Self {
            id: DeviceId(reader.fixed()?),
            name: reader.text()?,
            since: if is_first { 0 } else { reader.uint()? },
            terms: reader.raw()?,
            has_certificates_only: is_first,
        })
    }

    /// Checks the encoding of the terms, but not that of their certificates.
    pub(super) fn check_shape(&self) -> Result<(), DecodeError> {
        let mut reader = Reader::resume(self.terms);
        for _ in 0..reader.array_any()? {
            self.read_term(&mut reader)?;
        }
        Ok(())
    }

    fn read_term(&self, reader: &mut Reader<'a>) -> Result<Term<'a>, DecodeError> {
        if self.has_certificates_only {
            reader.bytes().map(Term::always)
        } else {
            Term::read(reader)
        }
    }

    /// Checks the device's values. `version` is the roster's version.
    pub(super) fn check(
        &self,
        group_name: &str,
        group: GroupId,
        version: u32,
    ) -> Result<(), RosterError> {
        check_name(self.name)?;
        if self.id != DeviceId::of(group_name, self.name) {
            return Err(RosterError::DeviceMismatch);
        }
        if self.since > version {
            return Err(RosterError::SinceOutOfRange);
        }
        let mut last = None;
        for term in self.terms() {
            let certificate = term.certificate()?;
            if (certificate.group, certificate.device) != (group, self.id) {
                return Err(RosterError::CertificateMismatch);
            }
            let first = (certificate.first_index, term.first_epoch);
            if last.is_some_and(|last: (SealIndex, EpochNumber)| {
                last == first || last.0 > first.0 || last.1 > first.1
            }) {
                return Err(RosterError::UnsortedCertificates);
            }
            if term.end_index.is_some_and(|end| end < first.0)
                || term.end_epoch.is_some_and(|end| end < first.1)
            {
                return Err(RosterError::TermRangeEmpty);
            }
            last = Some(first);
        }
        last.map(|_| ()).ok_or(RosterError::CertificateMissing)
    }

    /// Returns the terms of the device's certificates, sorted by first index and first epoch. There
    /// is at least one.
    pub fn terms(&self) -> impl Iterator<Item = Term<'a>> + use<'a> {
        let mut reader = Reader::resume(self.terms);
        let count = reader.array_any().unwrap_or(0);
        let device = *self;
        // The bytes have been read successfully before, so `ok()` is always `Some` here.
        (0..count).map_while(move |_| device.read_term(&mut reader).ok())
    }

    /// Returns the certificates of the device, in the order of their terms. There is at least one.
    pub fn certificates(&self) -> impl Iterator<Item = Certificate<'a>> + use<'a> {
        self.terms().map_while(|term| term.certificate().ok())
    }

    /// Returns the first certificate of the device. Its digest is the `prev` of the device's first
    /// seal.
    #[must_use]
    pub fn first_certificate(&self) -> Option<Certificate<'a>> {
        self.certificates().next()
    }

    /// Returns the certificate and the key for the device's seal `index` of `epoch`: those of the
    /// last term whose first index and first epoch are not above them.
    ///
    /// # Errors
    /// [`NoKey`].
    pub fn key(
        &self,
        index: SealIndex,
        epoch: EpochNumber,
    ) -> Result<(Certificate<'a>, PublicKey), NoKey> {
        let started = |term: &Term<'a>| {
            term.first_epoch <= epoch
                && term.certificate().is_ok_and(|certificate| certificate.first_index <= index)
        };
        let term = self.terms().take_while(started).last().ok_or(NoKey::Unknown)?;
        if !term.lasts(index, epoch) {
            return Err(NoKey::Ended);
        }
        let certificate = term.certificate().map_err(|_| NoKey::Unknown)?;
        Ok((certificate, certificate.key().map_err(|_| NoKey::Unknown)?))
    }

    /// Returns whether the device belongs to the group in an epoch: whether one of its keys is valid
    /// in it.
    #[must_use]
    pub fn is_member_in(&self, epoch: EpochNumber) -> bool {
        self.terms().any(|term| term.first_epoch <= epoch && term.lasts_in(epoch))
    }
}

impl fmt::Debug for Device<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
