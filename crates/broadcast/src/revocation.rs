//! Revocations of certificates (spec/broadcast.md, sections 1.2 and 1.5). A revocation lists all that
//! its base station has revoked: every serial below a minimum, and a few single serials.
//!
//! What is revoked stays revoked. A receiver accepts only a revocation that covers the one that it
//! knows. It thus stores one revocation for each base station, and a replayed older one changes
//! nothing. Revocation needs no clock: a receiver without a clock cannot detect that a certificate
//! has expired, but it can detect that a certificate was revoked.

use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::identity::{IssueError, protected};
use moteseal_core::named_errors;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, MAX_SIGNATURE, PublicKey, Signer};

use crate::certificate::{MAX_MESSAGE, MAX_PAYLOAD, check_signature, signed};
use crate::{KeyId, SenderCertificateError};

/// The maximum length of a revocation in bytes.
pub const MAX_REVOCATION: usize = 160 + MAX_SIGNATURE;
/// The maximum number of single serials in a revocation.
pub const MAX_REVOKED: usize = 8;
/// The maximum length in bytes of [`Revoked::encode`].
pub const MAX_REVOKED_BYTES: usize = 8 * (1 + MAX_REVOKED);

named_errors! {
    /// Why a serial was not added to what a base station has revoked.
    RevokeError {
        /// A certificate with this serial cannot exist.
        NoSuchSerial => "no certificate has the serial 2^64-1",
        /// There are already [`MAX_REVOKED`] single serials.
        TooManySerials =>
            "a revocation lists at most 8 single serials; raise the minimum serial above some of them, \
             after certifying again the senders below it that must remain valid",
    }
}

/// What a base station has revoked: all serials below a minimum, and single serials above it. Equal
/// sets of serials are equal values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    minimum: u64,
    /// The single serials in ascending order; the others are 0. The first is above `minimum`.
    serials: [u64; MAX_REVOKED],
    count: u8,
}

impl Revoked {
    /// Nothing is revoked.
    pub const NONE: Self = Self::below(0);

    /// All serials below `minimum` are revoked.
    #[must_use]
    pub const fn below(minimum: u64) -> Self {
        Self { minimum, serials: [0; MAX_REVOKED], count: 0 }
    }

    /// Returns the lowest serial that is not revoked.
    #[must_use]
    pub const fn minimum(&self) -> u64 {
        self.minimum
    }

    /// Returns the single serials in ascending order. All are above the minimum.
    #[must_use]
    pub fn serials(&self) -> &[u64] {
        self.serials.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Returns whether a serial is revoked.
    #[must_use]
    pub fn contains(&self, serial: u64) -> bool {
        serial < self.minimum || self.serials().contains(&serial)
    }

    /// Returns whether everything that `other` revokes is revoked.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.minimum >= other.minimum && other.serials().iter().all(|serial| self.contains(*serial))
    }

    /// Also revokes all serials below `minimum`.
    #[must_use]
    pub fn and_below(&self, minimum: u64) -> Self {
        let mut next = Self::below(self.minimum.max(minimum));
        for serial in self.serials() {
            if *serial == next.minimum {
                next.minimum = serial.saturating_add(1);
            } else if *serial > next.minimum {
                next.push(*serial);
            }
        }
        next
    }

    /// Also revokes one serial.
    ///
    /// # Errors
    /// [`RevokeError`].
    pub fn and(&self, serial: u64) -> Result<Self, RevokeError> {
        if serial == u64::MAX {
            return Err(RevokeError::NoSuchSerial);
        }
        if self.contains(serial) {
            return Ok(*self);
        }
        if serial == self.minimum {
            return Ok(self.and_below(serial.saturating_add(1)));
        }
        if usize::from(self.count) == MAX_REVOKED {
            return Err(RevokeError::TooManySerials);
        }
        let mut next = Self::below(self.minimum);
        for lower in self.serials().iter().filter(|other| **other < serial) {
            next.push(*lower);
        }
        next.push(serial);
        for higher in self.serials().iter().filter(|other| **other > serial) {
            next.push(*higher);
        }
        Ok(next)
    }

    /// Adds a serial above all others, if there is room.
    fn push(&mut self, serial: u64) {
        if let Some(place) = self.serials.get_mut(usize::from(self.count)) {
            (*place, self.count) = (serial, self.count.saturating_add(1));
        }
    }

    /// Adds the next serial of an encoding.
    fn read(&mut self, serial: u64) -> Result<(), DecodeError> {
        let previous = self.serials().last().copied().unwrap_or(self.minimum);
        if serial <= previous || serial == u64::MAX || usize::from(self.count) == MAX_REVOKED {
            return Err(DecodeError::FieldOutOfRange);
        }
        self.push(serial);
        Ok(())
    }

    /// Writes the minimum and the serials to `out`, 8 bytes each in big-endian order, and returns
    /// the bytes. This is how stores keep the value.
    pub fn encode<'o>(&self, out: &'o mut [u8; MAX_REVOKED_BYTES]) -> &'o [u8] {
        let all = core::iter::once(&self.minimum).chain(self.serials());
        for (place, number) in out.as_chunks_mut::<8>().0.iter_mut().zip(all) {
            *place = number.to_be_bytes();
        }
        out.get(..8 * (1 + usize::from(self.count))).unwrap_or_default()
    }

    /// Reads what [`encode`](Self::encode) has written.
    ///
    /// # Errors
    /// [`DecodeError::FieldOutOfRange`] for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let ([minimum, serials @ ..], []) = bytes.as_chunks::<8>() else {
            return Err(DecodeError::FieldOutOfRange);
        };
        let mut revoked = Self::below(u64::from_be_bytes(*minimum));
        for serial in serials {
            revoked.read(u64::from_be_bytes(*serial))?;
        }
        Ok(revoked)
    }
}

/// The content of a revocation, before the base station signs it. [`MAX_REVOCATION`] bytes suffice
/// for the signed revocation.
#[derive(Clone, Copy, Debug)]
pub struct RevocationDraft<'k> {
    /// The network.
    pub network: NetworkId,
    /// The base station's key.
    pub base: &'k PublicKey,
    /// All that the base station has revoked. It must cover every earlier revocation.
    pub revoked: Revoked,
}

impl RevocationDraft<'_> {
    fn payload<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], IssueError> {
        let mut out = Writer::new(out);
        out.array(5)?
            .uint(1u8)?
            .bytes(&self.network.0)?
            .bytes(&KeyId::of(self.base).0)?
            .uint(self.revoked.minimum)?
            .array(u64::from(self.revoked.count))?;
        for serial in self.revoked.serials() {
            out.uint(*serial)?;
        }
        Ok(out.finish())
    }
}

signed!(RevocationDraft, Typ::Revocation, "the base station");

/// A verified revocation. Only [`open`](Self::open) creates this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    network: NetworkId,
    base: KeyId,
    revoked: Revoked,
}

impl Revocation {
    /// Reads a revocation and checks that one of the base stations signed it for this network. Also
    /// returns the index in `bases` of the base station that signed. Checks at most one signature.
    ///
    /// # Errors
    /// [`SenderCertificateError`].
    pub fn open(
        bytes: &[u8],
        network: NetworkId,
        bases: &[PublicKey],
    ) -> Result<(Self, usize), SenderCertificateError> {
        let (object, revocation) = Self::decode(bytes)?;
        if revocation.network != network {
            return Err(SenderCertificateError::WrongNetwork);
        }
        let found = bases.iter().enumerate().find(|(_, base)| KeyId::of(base) == revocation.base);
        let (place, base) = found.ok_or(SenderCertificateError::UnknownBaseStation)?;
        check_signature(&object, base)?;
        Ok((revocation, place))
    }

    /// Returns the base station of a revocation and what it revokes, without checking its signature.
    /// A node uses this to find out whether the revocation is new.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not a revocation.
    pub fn peek(bytes: &[u8]) -> Result<(KeyId, Revoked), DecodeError> {
        let (_, revocation) = Self::decode(bytes)?;
        Ok((revocation.base, revocation.revoked))
    }

    fn decode(bytes: &[u8]) -> Result<(Sign1<'_>, Self), DecodeError> {
        let object = Sign1::decode(bytes, Typ::Revocation)?;
        let mut reader = Reader::new(object.payload)?;
        reader.array(5)?;
        reader.version()?;
        let (network, base) = (NetworkId(reader.fixed()?), KeyId(reader.fixed()?));
        let mut revoked = Revoked::below(reader.u64()?);
        let count = reader.array_any()?;
        if count > MAX_REVOKED as u64 {
            return Err(DecodeError::FieldOutOfRange);
        }
        for _ in 0..count {
            revoked.read(reader.u64()?)?;
        }
        Ok((object, Self { network, base, revoked }))
    }

    /// Returns the network.
    #[must_use]
    pub const fn network(&self) -> NetworkId {
        self.network
    }

    /// Returns the base station whose serials are revoked.
    #[must_use]
    pub const fn base(&self) -> KeyId {
        self.base
    }

    /// Returns what the base station has revoked.
    #[must_use]
    pub const fn revoked(&self) -> &Revoked {
        &self.revoked
    }
}
