//! Manifests of firmware images for motes (spec/update.md, section 1). A manifest names the board,
//! the version, the length and the digest of an image, and is signed by a base station.
//!
//! The sender of a broadcast is not trusted with firmware: a sender's key is used often and on
//! machines in the field, and firmware can read every secret of a mote. A base station's key signs
//! only certificates, revocations and manifests, and may be kept offline.
//!
//! An *update file* is a manifest followed by its image. It is broadcast as a chain of kind file in
//! blocks of one message. The first message has the manifest, so that a receiver refuses an image
//! before it erases anything, and needs memory for one message only.

use core::fmt;

use moteseal_core::cbor::{DecodeError, Reader, Writer};
use moteseal_core::cose::{Sign1, Typ, sig_structure};
use moteseal_core::identity::{IssueError, protected};
use moteseal_core::named_errors;
use moteseal_core::record::NetworkId;
use moteseal_core::signature::{Algorithm, PublicKey, Signer};

use crate::certificate::{MAX_MESSAGE, MAX_PAYLOAD, check_signature, signed};
use crate::{KeyId, SenderCertificateError};

/// The length of the first part of an update file, and of each message of its chain except the last
/// one, in bytes.
pub const UPDATE_PART: usize = 256;
/// The end of the label of a chain that contains an update file.
pub const UPDATE_SUFFIX: &str = ".firmware";
/// The maximum length of the name of a board, in bytes.
pub const MAX_BOARD: usize = 32;

/// The content of a manifest, before a base station signs it.
#[derive(Clone, Copy, Debug)]
pub struct FirmwareDraft<'a> {
    /// The network.
    pub network: NetworkId,
    /// The base station's id: [`KeyId::of`] the key that signs the manifest.
    pub base: KeyId,
    /// The name of the board: 1 to [`MAX_BOARD`] printable ASCII characters without spaces.
    pub board: &'a str,
    /// The version, at least 1.
    pub version: u32,
    /// The length of the image in bytes, at least 1.
    pub length: u32,
    /// The SHA-256 of the image.
    pub digest: [u8; 32],
}

/// Checks the rules for the fields of a manifest.
fn is_valid(board: &str, version: u32, length: u32) -> bool {
    (1..=MAX_BOARD).contains(&board.len())
        && board.bytes().all(|byte| byte.is_ascii_graphic())
        && version > 0
        && length > 0
}

impl FirmwareDraft<'_> {
    fn payload<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], IssueError> {
        if !is_valid(self.board, self.version, self.length) {
            return Err(IssueError::FieldOutOfRange);
        }
        let mut out = Writer::new(out);
        out.array(7)?
            .uint(1u8)?
            .bytes(&self.network.0)?
            .bytes(&self.base.0)?
            .text(self.board)?
            .uint(self.version)?
            .uint(self.length)?
            .bytes(&self.digest)?;
        Ok(out.finish())
    }

    /// Signs the manifest and returns the first part of an update file: the length of the manifest
    /// (2 bytes, big-endian), the manifest, and zeros.
    ///
    /// # Errors
    /// [`IssueError`]; `BufferTooSmall` if a signature of the signer's suite does not fit.
    pub fn issue_part(&self, signer: &dyn Signer) -> Result<[u8; UPDATE_PART], IssueError> {
        let mut part = [0; UPDATE_PART];
        let (length, rest) = part.split_at_mut(2);
        let written = self.issue(signer, rest)?.len();
        // A manifest in this buffer has at most `UPDATE_PART` bytes.
        length.copy_from_slice(&u16::try_from(written).unwrap_or(u16::MAX).to_be_bytes());
        Ok(part)
    }
}

signed!(FirmwareDraft, Typ::Firmware, "the base station");

/// A verified manifest. Only [`open_part`](Self::open_part) and [`open`](Self::open) create this
/// type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirmwareManifest<'a> {
    /// The name of the board.
    pub board: &'a str,
    /// The version.
    pub version: u32,
    /// The length of the image in bytes.
    pub length: u32,
    /// The SHA-256 of the image.
    pub digest: [u8; 32],
}

impl<'a> FirmwareManifest<'a> {
    /// Reads the first part of an update file, and checks the manifest in it ([`open`](Self::open)).
    ///
    /// # Errors
    /// [`SenderCertificateError`].
    pub fn open_part(
        part: &'a [u8],
        network: NetworkId,
        base: &PublicKey,
    ) -> Result<Self, SenderCertificateError> {
        Self::open(manifest_in(part)?, network, base)
    }

    /// Reads a manifest and checks that the base station with the key `base` signed it for this
    /// network.
    ///
    /// # Errors
    /// [`SenderCertificateError`]. `WrongNetwork` and `UnknownBaseStation` are detected without a
    /// signature check.
    #[inline(never)]
    pub fn open(
        bytes: &'a [u8],
        network: NetworkId,
        base: &PublicKey,
    ) -> Result<Self, SenderCertificateError> {
        let object = Sign1::decode(bytes, Typ::Firmware)?;
        let mut reader = Reader::new(object.payload)?;
        reader.array(7)?;
        reader.version()?;
        let (of, by) = (NetworkId(reader.fixed()?), KeyId(reader.fixed()?));
        let board = reader.text()?;
        let (version, length, digest) = (reader.uint()?, reader.uint()?, reader.fixed()?);
        if !is_valid(board, version, length) {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        if of != network {
            return Err(SenderCertificateError::WrongNetwork);
        }
        if by != KeyId::of(base) {
            return Err(SenderCertificateError::UnknownBaseStation);
        }
        check_signature(&object, base)?;
        Ok(Self { board, version, length, digest })
    }
}

/// Returns the manifest in the first part of an update file. Checks no signature.
///
/// # Errors
/// `FieldOutOfRange` if the part has another form.
pub fn manifest_in(part: &[u8]) -> Result<&[u8], DecodeError> {
    let (length, rest) = part
        .split_first_chunk()
        .filter(|_| part.len() == UPDATE_PART)
        .ok_or(DecodeError::FieldOutOfRange)?;
    let (manifest, zeros) = rest
        .split_at_checked(usize::from(u16::from_be_bytes(*length)))
        .ok_or(DecodeError::FieldOutOfRange)?;
    if zeros.iter().any(|byte| *byte != 0) {
        return Err(DecodeError::FieldOutOfRange);
    }
    Ok(manifest)
}

/// The start of the label of an image, which programs find in an image.
const TAG_MAGIC: [u8; 12] = *b"\x9dMSfirmware\x01";
/// The length of an [`image_tag`] in bytes.
pub const IMAGE_TAG: usize = 12 + 4 + MAX_BOARD;

/// Returns the bytes by which an image states its version and its board, for example in a static
/// variable: a magic, the version (4 bytes, big-endian), and the board, padded with zeros. A program
/// that signs a manifest reads both from the image ([`find_tag`]), so that a manifest and its image
/// cannot differ.
///
/// # Panics
/// If the board has more than [`MAX_BOARD`] bytes.
#[must_use]
pub const fn image_tag(board: &str, version: u32) -> [u8; IMAGE_TAG] {
    assert!(board.len() <= MAX_BOARD, "the name of the board is too long");
    let mut tag = [0; IMAGE_TAG];
    let (magic, rest) = tag.split_at_mut(TAG_MAGIC.len());
    magic.copy_from_slice(&TAG_MAGIC);
    let (place, rest) = rest.split_at_mut(4);
    place.copy_from_slice(&version.to_be_bytes());
    rest.split_at_mut(board.len()).0.copy_from_slice(board.as_bytes());
    tag
}

/// Returns the version in a tag.
#[must_use]
pub const fn version_of(tag: &[u8; IMAGE_TAG]) -> u32 {
    u32::from_be_bytes([tag[12], tag[13], tag[14], tag[15]])
}

named_errors! {
    /// Why an image has no usable tag.
    ImageTagError {
        /// The image has none.
        NoImageTag => "this is not an image of a mote's firmware: it does not state its board and version",
        /// The image has several tags, or one with an invalid board or version.
        BadImageTag => "the image states its board and version more than once, or wrongly",
    }
}

/// Returns the board and the version that an image states.
///
/// # Errors
/// [`ImageTagError`].
pub fn find_tag(image: &[u8]) -> Result<(&str, u32), ImageTagError> {
    let mut places = image.windows(IMAGE_TAG).filter(|place| place.starts_with(&TAG_MAGIC));
    let tag = places.next().ok_or(ImageTagError::NoImageTag)?;
    let fields = tag.get(TAG_MAGIC.len()..).and_then(|rest| rest.split_first_chunk());
    let (version, board) = fields.ok_or(ImageTagError::BadImageTag)?;
    let length = board.iter().position(|byte| *byte == 0).unwrap_or(board.len());
    let (board, zeros) = board.split_at(length);
    let board = core::str::from_utf8(board).map_err(|_| ImageTagError::BadImageTag)?;
    let version = u32::from_be_bytes(*version);
    let is_plain = is_valid(board, version, 1) && zeros.iter().all(|byte| *byte == 0);
    if is_plain && places.next().is_none() {
        Ok((board, version))
    } else {
        Err(ImageTagError::BadImageTag)
    }
}

named_errors! {
    /// Why a mote refuses an update, or is not running it.
    UpdateError {
        /// The manifest is malformed, or no accepted base station has signed it for this network.
        ManifestRefused => "the base station has not signed this manifest for this network; sign the image with the base station of the mote's network",
        /// The image is for another board.
        WrongBoard => "the image is for another board; build it for the board of the mote",
        /// The version is not above the version that runs, or above the highest one that was
        /// confirmed.
        VersionNotAbove => "the version is not above the confirmed one; build the image with a higher version",
        /// The image is longer than a slot.
        ImageTooLong => "the image is longer than the slot of the board; leave out a part of the firmware",
        /// The chain does not have the messages of an update file with this manifest.
        WrongLength => "the chain does not have the messages that the manifest requires; send it in blocks of one message of 256 bytes",
        /// The digest of the received image is not that of the manifest.
        ImageDamaged => "the image differs from its manifest, or the flash has failed; send it again as a new chain (`--resume never`)",
        /// No complete image of this version was received.
        NotReceived => "the mote does not have the whole image of this version; send the image before the command",
        /// The image that runs is not confirmed yet, so the other slot is in use.
        NotConfirmed => "an update is being tried; wait until it is confirmed or has failed, and send again",
        /// The image was not confirmed: it reset, or did not pass its self-test in time. The mote
        /// runs the image before it.
        SelfTestFailed => "the new image was not confirmed, and the mote runs the one before it; check that the coordinator was reachable and the power stable, and send the command again",
    }
}

impl UpdateError {
    /// Every error.
    pub const ALL: [Self; 9] = [
        Self::ManifestRefused,
        Self::WrongBoard,
        Self::VersionNotAbove,
        Self::ImageTooLong,
        Self::WrongLength,
        Self::ImageDamaged,
        Self::NotReceived,
        Self::NotConfirmed,
        Self::SelfTestFailed,
    ];

    /// Returns the number of the error in reports, from 1.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::ManifestRefused => 1,
            Self::WrongBoard => 2,
            Self::VersionNotAbove => 3,
            Self::ImageTooLong => 4,
            Self::WrongLength => 5,
            Self::ImageDamaged => 6,
            Self::NotReceived => 7,
            Self::NotConfirmed => 8,
            Self::SelfTestFailed => 9,
        }
    }
}

/// What a mote reports to its gateway about its firmware (spec/update.md, section 5). A report is
/// not authenticated: it is for operators, and nothing may depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateReport {
    /// The mote runs this version, and it is confirmed.
    Running(u32),
    /// The mote has received the whole image of this version.
    Received(u32),
    /// The mote restarts and tries this version.
    Installing(u32),
    /// The mote tries this version: it is running its self-test.
    Trying(u32),
    /// This version has passed its self-test.
    Confirmed(u32),
    /// The mote does not accept, install or run this version, for this reason.
    Refused(u32, UpdateError),
}

/// The length of a report in bytes.
pub const UPDATE_REPORT: usize = 6;

impl UpdateReport {
    /// Returns the report's bytes: its kind, the number of the error or 0, and the version.
    #[must_use]
    pub const fn encode(self) -> [u8; UPDATE_REPORT] {
        let (kind, error, version) = match self {
            Self::Running(version) => (0, 0, version),
            Self::Received(version) => (1, 0, version),
            Self::Installing(version) => (2, 0, version),
            Self::Trying(version) => (3, 0, version),
            Self::Confirmed(version) => (4, 0, version),
            Self::Refused(version, error) => (5, error.number(), version),
        };
        let [a, b, c, d] = version.to_be_bytes();
        [kind, error, a, b, c, d]
    }

    /// Reads a report.
    ///
    /// # Errors
    /// `FieldOutOfRange` for other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let [kind, number, a, b, c, d] = *bytes else { return Err(DecodeError::FieldOutOfRange) };
        let version = u32::from_be_bytes([a, b, c, d]);
        match (kind, number) {
            (0, 0) => Ok(Self::Running(version)),
            (1, 0) => Ok(Self::Received(version)),
            (2, 0) => Ok(Self::Installing(version)),
            (3, 0) => Ok(Self::Trying(version)),
            (4, 0) => Ok(Self::Confirmed(version)),
            (5, _) => UpdateError::ALL
                .into_iter()
                .find(|error| error.number() == number)
                .map(|error| Self::Refused(version, error))
                .ok_or(DecodeError::FieldOutOfRange),
            _ => Err(DecodeError::FieldOutOfRange),
        }
    }
}

impl fmt::Display for UpdateReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(version) => write!(f, "running {version}"),
            Self::Received(version) => write!(f, "received {version}"),
            Self::Installing(version) => write!(f, "installing {version}"),
            Self::Trying(version) => write!(f, "trying {version}"),
            Self::Confirmed(version) => write!(f, "confirmed {version}"),
            Self::Refused(version, error) => write!(f, "refused {version} {}", error.name()),
        }
    }
}
