//! The announcement of a round: the lowest level whose events a coordinator requests in the current
//! epoch (spec/coordinator.md, section 2).
//!
//! Announcements and manifests are signed with the key that the roster certifies for the
//! coordinator. Devices therefore accept rounds only from the coordinator, and anyone can check the
//! rounds later ([`audit`](crate::sample::audit)).

use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::identity::{IssueError, protected};
use moteseal_core::named_errors;
use moteseal_core::record::{EpochNumber, GroupId, MAX_LEVELS, Round};
use moteseal_core::signature::{MAX_SIGNATURE, PublicKey, SignatureError, Signer};

named_errors! {
    /// Why an announcement or manifest was rejected.
    AnnouncementError {
        /// The bytes do not decode.
        Decode(error: DecodeError) => from,
        /// It is not signed with the signature suite of the coordinator's key.
        AlgorithmMismatch => "the announcement or manifest is not signed with the signature suite of the coordinator's key",
        /// The signature was rejected.
        Signature(error: SignatureError) => from,
        /// It is signed for another group.
        WrongGroup => "the announcement or manifest is signed for another group",
        /// The devices are not sorted by id, or one has no seals.
        UnsortedDevices => "the devices are not sorted by id, or one has no seals",
    }
}

/// Checks the coordinator's signature of an object and returns the payload of the object.
pub(super) fn prove<'a>(
    object: &Sign1<'a>,
    coordinator: &PublicKey,
    scratch: &mut [u8],
) -> Result<&'a [u8], AnnouncementError> {
    if object.header.algorithm != coordinator.algorithm() {
        return Err(AnnouncementError::AlgorithmMismatch);
    }
    let message = object.message(scratch).map_err(|_| DecodeError::FieldOutOfRange)?;
    coordinator.verify(message, object.signature).map_err(AnnouncementError::Signature)?;
    Ok(object.payload)
}

/// Signs a payload and writes the signed object to `out`, which is also used as a scratch buffer.
pub(super) fn issue<'o>(
    typ: Typ,
    payload: &[u8],
    coordinator: &dyn Signer,
    out: &'o mut [u8],
) -> Result<&'o [u8], IssueError> {
    let mut header = [0; _];
    let header = protected(coordinator.algorithm(), typ, &mut header)?;
    let signature = coordinator.signature(sig_structure(out, header, payload)?)?;
    let mut out = Writer::new(out);
    Sign1::encode(&mut out, header, payload, &signature)?;
    Ok(out.finish())
}

/// Maximum number of bytes of a signed object in addition to its payload.
pub(super) const AROUND: usize = 64 + MAX_SIGNATURE;
/// Maximum length of a payload that is accepted for reading. The payload of a valid announcement
/// has at most 22 bytes.
const ANNOUNCEMENT: usize = 32;
/// Maximum length of an announcement, signature included.
pub const MAX_ANNOUNCEMENT: usize = ANNOUNCEMENT + AROUND;

/// A verified announcement: the current epoch, and the lowest level whose events are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    epoch: EpochNumber,
    round: Round,
}

impl Announcement {
    /// Reads an announcement, and checks its group and the coordinator's signature.
    ///
    /// # Errors
    /// [`AnnouncementError`].
    pub fn open(
        bytes: &[u8],
        group: GroupId,
        coordinator: &PublicKey,
    ) -> Result<Self, AnnouncementError> {
        let object = Sign1::decode(bytes, Typ::Round)?;
        if object.payload.len() > ANNOUNCEMENT {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        // The scratch buffer suffices, because `Sign1` rejects headers that are longer than every
        // known header.
        let payload = prove(&object, coordinator, &mut [0; ANNOUNCEMENT + 64])?;
        let mut reader = Reader::new(payload)?;
        reader.array(4)?;
        reader.version()?;
        let found = GroupId(reader.fixed()?);
        let (epoch, round) = (EpochNumber(reader.u64()?), Round(reader.uint()?));
        if usize::from(round.0) >= MAX_LEVELS {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        if found != group {
            return Err(AnnouncementError::WrongGroup);
        }
        Ok(Self { epoch, round })
    }

    /// Signs an announcement and writes it to `out` ([`MAX_ANNOUNCEMENT`] bytes suffice).
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue<'o>(
        group: GroupId,
        epoch: EpochNumber,
        round: Round,
        coordinator: &dyn Signer,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], IssueError> {
        let mut payload = [0; ANNOUNCEMENT];
        let mut writer = Writer::new(&mut payload);
        writer.array(4)?.uint(1u8)?.bytes(&group.0)?.uint(epoch.0)?.uint(round.0)?;
        let payload = writer.finish();
        issue(Typ::Round, payload, coordinator, out)
    }

    /// Returns the epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// Returns the round. It never decreases within an epoch.
    #[must_use]
    pub const fn round(&self) -> Round {
        self.round
    }
}
