//! What a coordinator signs: the round of an epoch while it goes on, and the manifest when it is over (spec/formats.md, section 8).
//!
//! Both are signed with the key that the roster certifies for the coordinator, so that a device need not take a round from a
//! stranger, and so that nobody has to take the coordinator's word later: [`audit`](crate::sample::audit) judges it.

use core::fmt;

use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::digest::Digest;
use moteseal_core::identity::{IssueError, protected};
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, MAX_LEVELS, Round};
use moteseal_core::signature::{MAX_SIGNATURE, PublicKey, SignatureError, Signer};

named_errors! {
    /// Why an announcement or manifest is rejected.
    AnnouncementError {
        /// The bytes are not one.
        Decode(error: DecodeError) => from,
        /// Signed with another suite than the coordinator's key.
        AlgorithmMismatch => "signed with another signature suite than the coordinator's key",
        /// The signature was rejected.
        Signature(error: SignatureError) => from,
        /// Signed for another group.
        WrongGroup => "signed for another group",
        /// Devices that are not sorted by id, or a device without seals.
        UnsortedDevices => "the devices are not sorted by id, or one has no seals",
    }
}

/// Checks that `coordinator` signed an object; its payload.
fn prove<'a>(
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

/// Signs a payload and writes the object to `out`, which is also used as scratch.
fn issue<'o>(
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

/// Bytes that a signed object takes beside its payload.
const AROUND: usize = 64 + MAX_SIGNATURE;
/// The longest payload of an announcement that is read; none that is right has more than 22 bytes.
const ANNOUNCEMENT: usize = 32;
/// Room for any announcement, signature included.
pub const MAX_ANNOUNCEMENT: usize = ANNOUNCEMENT + AROUND;

/// The coordinator's word on which epoch it is, and from which level on events are wanted. Checked; there is no other kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    epoch: EpochNumber,
    round: Round,
}

impl Announcement {
    /// Reads an announcement and checks that it is the coordinator's, for this group.
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
        // Sign1 has taken no header that is longer than a known one.
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

    /// The epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// The round; it never falls within an epoch.
    #[must_use]
    pub const fn round(&self) -> Round {
        self.round
    }
}

/// The coordinator's word on an epoch: which seals it had when it closed it, and the final round. Checked; there is no other kind.
#[derive(Clone, Copy)]
pub struct Manifest<'a> {
    epoch: EpochNumber,
    round: Round,
    roster: Digest,
    digest: Digest,
    devices: &'a [u8],
}

/// What a coordinator is to sign of an epoch.
#[derive(Clone, Copy, Debug)]
pub struct ManifestDraft<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of the roster that was in force.
    pub roster: Digest,
    /// The epoch.
    pub epoch: EpochNumber,
    /// The final round; the number of levels if nothing was kept.
    pub round: Round,
    /// The devices that have seals of the epoch, by ascending id, each with their digests by ascending index. All others of the
    /// roster are absent.
    pub devices: &'a [(DeviceId, &'a [Digest])],
}

impl ManifestDraft<'_> {
    /// No step writes more bytes than this.
    #[must_use]
    pub fn size(&self) -> usize {
        128 + AROUND + self.devices.iter().map(|(_, seals)| 20 + 34 * seals.len()).sum::<usize>()
    }

    /// Signs the manifest and writes it to `out`; both buffers need [`size`](Self::size) bytes.
    ///
    /// # Errors
    /// [`IssueError`]. Devices out of order make a manifest that nobody opens.
    pub fn issue<'o>(
        &self,
        coordinator: &dyn Signer,
        scratch: &mut [u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], IssueError> {
        let mut writer = Writer::new(scratch);
        writer
            .array(6)?
            .uint(1u8)?
            .bytes(&self.group.0)?
            .bytes(&self.roster.0)?
            .uint(self.epoch.0)?
            .uint(self.round.0)?;
        writer.array(self.devices.len() as u64)?;
        for (device, seals) in self.devices {
            writer.array(2)?.bytes(&device.0)?.array(seals.len() as u64)?;
            for seal in *seals {
                writer.bytes(&seal.0)?;
            }
        }
        issue(Typ::Manifest, writer.finish(), coordinator, out)
    }
}

impl<'a> Manifest<'a> {
    /// Reads a manifest and checks that it is the coordinator's, for this group. `scratch` needs as many bytes as the manifest
    /// has, and 64 more.
    ///
    /// # Errors
    /// [`AnnouncementError`].
    pub fn open(
        bytes: &'a [u8],
        group: GroupId,
        coordinator: &PublicKey,
        scratch: &mut [u8],
    ) -> Result<Self, AnnouncementError> {
        let object = Sign1::decode(bytes, Typ::Manifest)?;
        let payload = prove(&object, coordinator, scratch)?;
        let digest = object.digest();
        let mut reader = Reader::new(payload)?;
        reader.array(6)?;
        reader.version()?;
        let found = GroupId(reader.fixed()?);
        let roster = Digest(reader.fixed()?);
        let (epoch, round) = (EpochNumber(reader.u64()?), Round(reader.uint()?));
        let devices = reader.rest();
        let mut ascends = true;
        let mut last = None;
        for _ in 0..reader.array_any()? {
            let (device, seals) = Listed::read(&mut reader)?;
            ascends &= last < Some(device) && seals.count > 0;
            last = Some(device);
        }
        if usize::from(round.0) > MAX_LEVELS {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        if found != group {
            return Err(AnnouncementError::WrongGroup);
        }
        if !ascends {
            return Err(AnnouncementError::UnsortedDevices);
        }
        Ok(Self { epoch, round, roster, digest, devices })
    }

    /// The epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// The final round: only levels from it on are kept; the number of levels if nothing is.
    #[must_use]
    pub const fn round(&self) -> Round {
        self.round
    }

    /// The digest of the roster that was in force: it names the devices that are expected.
    #[must_use]
    pub const fn roster(&self) -> Digest {
        self.roster
    }

    /// The digest of the signed object: two manifests of one epoch with different digests are evidence.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The devices that have seals, by ascending id, each with the digests of its seals by ascending index.
    pub fn devices(
        &self,
    ) -> impl Iterator<Item = (DeviceId, impl ExactSizeIterator<Item = Digest> + Clone + use<'a>)>
    + use<'a> {
        let mut reader = Reader::resume(self.devices);
        let count = reader.array_any().unwrap_or(0);
        // The bytes have been read once before: every `ok()` here is a `Some`.
        (0..count).map_while(move |_| {
            Listed::read(&mut reader).ok().map(|(device, seals)| (device, seals.digests()))
        })
    }

    /// The digests of a device's seals; none if the device is absent.
    pub fn seals(&self, device: DeviceId) -> impl Iterator<Item = Digest> + use<'a> {
        self.devices()
            .find(|(listed, _)| *listed == device)
            .into_iter()
            .flat_map(|(_, seals)| seals)
    }
}

impl fmt::Debug for Manifest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manifest")
            .field("epoch", &self.epoch)
            .field("round", &self.round)
            .finish_non_exhaustive()
    }
}

/// Digests as they are encoded: each behind two bytes of head.
#[derive(Clone, Copy)]
struct Listed<'a> {
    encoded: &'a [u8],
    count: u64,
}

impl<'a> Listed<'a> {
    const ENTRY: usize = 34;

    fn read(reader: &mut Reader<'a>) -> Result<(DeviceId, Self), DecodeError> {
        reader.array(2)?;
        let device = DeviceId(reader.fixed()?);
        let count = reader.array_any()?;
        let encoded = reader.rest();
        for _ in 0..count {
            reader.fixed::<32>()?;
        }
        Ok((device, Self { encoded: &encoded[..encoded.len() - reader.rest().len()], count }))
    }

    fn digests(self) -> impl ExactSizeIterator<Item = Digest> + Clone + use<'a> {
        self.encoded.chunks_exact(Self::ENTRY).map(|entry| {
            let mut digest = Digest::NULL;
            digest.0.copy_from_slice(&entry[2..]);
            digest
        })
    }
}
