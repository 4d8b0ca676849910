//! The manifest of an epoch: the seals that the coordinator had when it closed the epoch, and the
//! final round (spec/coordinator.md, section 3).

use core::fmt;

use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ};
use moteseal_core::digest::Digest;
use moteseal_core::identity::IssueError;
use moteseal_core::record::{DeviceId, EpochNumber, GroupId, MAX_LEVELS, Round};
use moteseal_core::signature::{PublicKey, Signer};

use super::announcement::{AROUND, AnnouncementError, issue, prove};

/// A verified manifest: the seals of an epoch that the coordinator had when it closed the epoch,
/// and the final round.
#[derive(Clone, Copy)]
pub struct Manifest<'a> {
    epoch: EpochNumber,
    round: Round,
    roster: Digest,
    digest: Digest,
    devices: &'a [u8],
}

/// The content of a manifest to issue.
#[derive(Clone, Copy, Debug)]
pub struct ManifestDraft<'a> {
    /// The group.
    pub group: GroupId,
    /// The digest of the roster that was valid at the time.
    pub roster: Digest,
    /// The epoch.
    pub epoch: EpochNumber,
    /// The final round. It is the number of levels if nothing was kept.
    pub round: Round,
    /// The devices that have seals of the epoch, sorted by id, each with the digests of its seals
    /// by ascending index. Devices without seals must not be listed.
    pub devices: &'a [(DeviceId, &'a [Digest])],
}

impl ManifestDraft<'_> {
    /// Returns an upper bound on the number of bytes that `issue` writes to either of its buffers.
    #[must_use]
    pub fn size(&self) -> usize {
        128 + AROUND + self.devices.iter().map(|(_, seals)| 20 + 34 * seals.len()).sum::<usize>()
    }

    /// Signs the manifest and writes it to `out`. Both buffers need [`size`](Self::size) bytes.
    ///
    /// # Errors
    /// [`IssueError`]. The order of the devices is not checked here; [`Manifest::open`] rejects a
    /// manifest with devices out of order.
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
    /// Reads a manifest, and checks its group and the coordinator's signature. `scratch` must be at
    /// least 64 bytes longer than `bytes`.
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

    /// Reads the epoch that a manifest claims, before its signature is checked. The epoch
    /// determines the key for [`open`](Self::open). Returns `None` if there is no epoch to read.
    #[must_use]
    pub fn claimed_epoch(bytes: &[u8]) -> Option<EpochNumber> {
        let object = Sign1::decode(bytes, Typ::Manifest).ok()?;
        let mut reader = Reader::new(object.payload).ok()?;
        reader.array(6).ok()?;
        reader.version().ok()?;
        let _: ([u8; 8], [u8; 32]) = (reader.fixed().ok()?, reader.fixed().ok()?);
        reader.u64().ok().map(EpochNumber)
    }

    /// Returns the digest of the roster that the manifest names. Nothing is verified. Returns `None`
    /// if the bytes are not a manifest.
    #[must_use]
    pub fn claimed_roster(bytes: &[u8]) -> Option<Digest> {
        let object = Sign1::decode(bytes, Typ::Manifest).ok()?;
        let mut reader = Reader::new(object.payload).ok()?;
        reader.array(6).ok()?;
        reader.version().ok()?;
        let _: [u8; 8] = reader.fixed().ok()?;
        reader.fixed().ok().map(Digest)
    }

    /// Returns the epoch.
    #[must_use]
    pub const fn epoch(&self) -> EpochNumber {
        self.epoch
    }

    /// Returns the final round. Only levels from this round on are kept; if it equals the number of
    /// levels, nothing is kept.
    #[must_use]
    pub const fn round(&self) -> Round {
        self.round
    }

    /// Returns the digest of the roster that was valid at the time. That roster determines which
    /// devices are expected to have seals.
    #[must_use]
    pub const fn roster(&self) -> Digest {
        self.roster
    }

    /// Returns the digest of the signed object. Two manifests of one epoch with different digests
    /// prove misconduct of the coordinator.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the devices that have seals, sorted by id, each with the digests of its seals by
    /// ascending index.
    pub fn devices(
        &self,
    ) -> impl Iterator<Item = (DeviceId, impl ExactSizeIterator<Item = Digest> + Clone + use<'a>)>
    + use<'a> {
        let mut reader = Reader::resume(self.devices);
        let count = reader.array_any().unwrap_or(0);
        // The bytes have already been read successfully, so `ok()` is always `Some` here.
        (0..count).map_while(move |_| {
            Listed::read(&mut reader).ok().map(|(device, seals)| (device, seals.digests()))
        })
    }

    /// Returns the digests of a device's seals. There are none if the device is not listed.
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

/// The encoded digests of one device's seals, each after a CBOR head of two bytes.
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
