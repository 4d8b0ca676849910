//! The key files that `moteseal sum setup` writes: one per device and one for the querier. A file
//! is deterministic CBOR in PEM (RFC 7468); see spec/sums.md, section 7.
//!
//! Each file contains the digest of version 0 of the group's roster. It stays valid when the group
//! changes, because later versions of the roster do not change the positions of the sources.

use core::ops::Range;

use pem_rfc7468::LineEnding;
use zeroize::{Zeroize, Zeroizing};

use crate::sies::{MaskSecret, Master, SourceSecret};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::named_errors;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, KeyError, MAX_PUBLIC_KEY, PublicKey};

const SOURCE: &str = "MOTESEAL SUM SOURCE KEY";
const QUERIER: &str = "MOTESEAL SUM QUERIER KEY";

/// The maximum length of a file's CBOR content in bytes.
const MAX_BODY: usize = 264 + MAX_PUBLIC_KEY;
/// The maximum length of a key file in bytes.
pub const MAX_KEY_FILE: usize = MAX_BODY * 3 / 2 + 128;

named_errors! {
    /// Why a key file was rejected.
    KeyFileError {
        /// The file is not a key file.
        MalformedPem => "not a key file of private sums; `moteseal sum setup` creates one",
        /// The file is the querier's key file, but a device's key file is expected, or the other
        /// way round.
        WrongPemLabel => "the wrong kind of key file; the file of a device is called NAME.sum.key, and the file of the querier is called querier.sum.key",
        /// The content is damaged.
        Decode(error: DecodeError) => from,
        /// The querier's public key was rejected.
        Key(error: KeyError) => forward,
        /// The keys were made for another group.
        WrongGroup => "the keys of private sums are for another group",
        /// The keys were made for a roster with another version 0.
        WrongRoster => "the keys of private sums are for another roster of a group with this name; run `moteseal sum setup` again",
    }
}

/// The group for which keys were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circle {
    /// The group.
    pub group: GroupId,
    /// The digest of version 0 of the group's roster.
    pub roster: Digest,
    /// The number of devices in the roster when the file was made. Later versions may have more.
    pub sources: u32,
    /// The number of consecutive positions that form a key group.
    pub key_group: u32,
}

impl Circle {
    /// Checks that the keys were made for this group. `roster` is the digest of version 0 of its
    /// roster.
    ///
    /// # Errors
    /// `WrongGroup`, `WrongRoster`.
    pub fn check(&self, group: GroupId, roster: &Digest) -> Result<(), KeyFileError> {
        if self.group != group {
            return Err(KeyFileError::WrongGroup);
        }
        if self.roster == *roster { Ok(()) } else { Err(KeyFileError::WrongRoster) }
    }

    /// Returns the positions of the key group of a position.
    #[must_use]
    pub const fn ring(&self, position: u32) -> Range<u32> {
        let size = if self.key_group == 0 { 1 } else { self.key_group };
        let start = position / size * size;
        let end = start.saturating_add(size);
        start..if end < self.sources { end } else { self.sources }
    }

    fn write(&self, out: &mut Writer<'_>, fields: u64) -> Result<(), BufferTooSmall> {
        out.array(fields)?
            .uint(1u8)?
            .bytes(&self.group.0)?
            .bytes(&self.roster.0)?
            .uint(self.sources)?
            .uint(self.key_group)?;
        Ok(())
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.version()?;
        let (group, roster) = (GroupId(reader.fixed()?), Digest(reader.fixed()?));
        let (sources, key_group) = (reader.uint()?, reader.uint()?);
        if sources == 0 || key_group == 0 {
            return Err(DecodeError::FieldOutOfRange);
        }
        Ok(Self { group, roster, sources, key_group })
    }
}

/// The content of a device's key file.
#[derive(Clone, Debug)]
pub struct SourceKeys {
    /// The group for which the keys were made.
    pub circle: Circle,
    /// The device.
    pub device: DeviceId,
    /// The device's position among the sources.
    pub position: u32,
    /// The querier's public key.
    pub querier: PublicKey,
    /// The device's secrets.
    pub secret: SourceSecret,
    /// The device's mask secrets, if the set-up made masks for it.
    pub masks: Option<MaskSecret>,
    /// Whether the set-up made masks, for this device or for others. The device then answers only
    /// under a policy.
    pub needs_policy: bool,
}

/// The content of the querier's key file.
#[derive(Debug)]
pub struct QuerierKeys {
    /// The group for which the keys were made.
    pub circle: Circle,
    /// The public key that verifies the querier's query schedules.
    pub querier: PublicKey,
    /// The secret from which all keys are derived.
    pub master: Master,
    /// Whether the set-up made masks.
    pub has_masks: bool,
}

fn encode<'o>(label: &str, body: &[u8], out: &'o mut [u8]) -> Result<&'o str, BufferTooSmall> {
    pem_rfc7468::encode(label, LineEnding::LF, body, out).map_err(|_| BufferTooSmall)
}

fn decode<'b>(pem: &[u8], label: &str, buffer: &'b mut [u8]) -> Result<&'b [u8], KeyFileError> {
    let (found, body) =
        pem_rfc7468::decode(pem, buffer).map_err(|_| match pem_rfc7468::decode_label(pem) {
            Ok(found) if found != label => KeyFileError::WrongPemLabel,
            _ => KeyFileError::MalformedPem,
        })?;
    if found == label { Ok(body) } else { Err(KeyFileError::WrongPemLabel) }
}

fn public_key(reader: &mut Reader<'_>) -> Result<PublicKey, KeyFileError> {
    let algorithm = Algorithm::from_cose(reader.i64()?).ok_or(DecodeError::UnknownAlgorithm)?;
    PublicKey::from_bytes(algorithm, reader.bytes()?).map_err(KeyFileError::Key)
}

impl SourceKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn decode(pem: &[u8]) -> Result<Self, KeyFileError> {
        let mut buffer = Zeroizing::new([0; MAX_BODY]);
        let mut reader = Reader::new(decode(pem, SOURCE, &mut *buffer)?)?;
        let fields = reader.array_any()?;
        if fields != 10 && fields != 11 {
            return Err(DecodeError::UnexpectedType.into());
        }
        let circle = Circle::read(&mut reader)?;
        let (device, position) = (DeviceId(reader.fixed()?), reader.uint()?);
        let querier = public_key(&mut reader)?;
        let mut secret: [u8; 64] = reader.fixed()?;
        let keys = SourceSecret::from_bytes(&secret);
        secret.zeroize();
        let mut masks = None;
        let needs_policy = fields == 11;
        if needs_policy {
            let bytes = reader.bytes()?;
            if let Ok(secret) = bytes.try_into() {
                masks = Some(MaskSecret::from_bytes(secret));
            } else if !bytes.is_empty() {
                return Err(DecodeError::UnexpectedType.into());
            }
        }
        if position >= circle.sources {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        Ok(Self { circle, device, position, querier, secret: keys, masks, needs_policy })
    }

    /// Writes the file to `out` and returns its text. [`MAX_KEY_FILE`] bytes suffice. The caller
    /// must zero `out` after use.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode<'o>(&self, out: &'o mut [u8]) -> Result<&'o str, BufferTooSmall> {
        let mut body = Zeroizing::new([0; MAX_BODY]);
        let mut writer = Writer::new(&mut *body);
        let needs_policy = self.needs_policy || self.masks.is_some();
        self.circle.write(&mut writer, 10 + u64::from(needs_policy))?;
        writer.bytes(&self.device.0)?.uint(self.position)?;
        writer
            .int(self.querier.algorithm().cose())?
            .bytes(&self.querier.to_bytes())?
            .bytes(&*self.secret.to_bytes())?;
        match &self.masks {
            Some(masks) => drop(writer.bytes(&*masks.to_bytes())?),
            None if needs_policy => drop(writer.bytes(&[])?),
            None => {}
        }
        encode(SOURCE, writer.finish(), out)
    }
}

impl QuerierKeys {
    /// Reads a file.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn decode(pem: &[u8]) -> Result<Self, KeyFileError> {
        let mut buffer = Zeroizing::new([0; MAX_BODY]);
        let mut reader = Reader::new(decode(pem, QUERIER, &mut *buffer)?)?;
        let fields = reader.array_any()?;
        if fields != 8 && fields != 9 {
            return Err(DecodeError::UnexpectedType.into());
        }
        let circle = Circle::read(&mut reader)?;
        let querier = public_key(&mut reader)?;
        let mut secret: [u8; 32] = reader.fixed()?;
        let master = Master::new(secret);
        secret.zeroize();
        let has_masks = fields == 9;
        if has_masks && !reader.bool()? {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        Ok(Self { circle, querier, master, has_masks })
    }

    /// Writes the file to `out` and returns its text. `master` is 32 random bytes. [`MAX_KEY_FILE`]
    /// bytes suffice. The caller must zero `out` after use.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode<'o>(
        circle: &Circle,
        querier: &PublicKey,
        secret: &[u8; 32],
        has_masks: bool,
        out: &'o mut [u8],
    ) -> Result<&'o str, BufferTooSmall> {
        let mut body = Zeroizing::new([0; MAX_BODY]);
        let mut writer = Writer::new(&mut *body);
        circle.write(&mut writer, 8 + u64::from(has_masks))?;
        writer.int(querier.algorithm().cose())?.bytes(&querier.to_bytes())?.bytes(secret)?;
        if has_masks {
            writer.bool(true)?;
        }
        encode(QUERIER, writer.finish(), out)
    }

    /// Derives the keys of the device at a position.
    #[must_use]
    pub fn source(&self, device: DeviceId, position: u32) -> SourceKeys {
        let Circle { group, key_group, .. } = self.circle;
        let secret = self.master.source(group, device, position / key_group);
        let (circle, querier) = (self.circle, self.querier.clone());
        let needs_policy = self.has_masks;
        SourceKeys { circle, device, position, querier, secret, masks: None, needs_policy }
    }
}
