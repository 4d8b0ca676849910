//! The key files that `moteseal sum setup` writes: one per device and one for the querier. A file
//! is deterministic CBOR in PEM (RFC 7468); see spec/sums.md, section 7.
//!
//! Each file contains the digest of version 0 of the group's roster. It stays valid when the group
//! changes, because later versions of the roster do not change the positions of the sources.

use core::fmt;
use core::ops::Range;

use pem_rfc7468::LineEnding;
use zeroize::{Zeroize, Zeroizing};

use crate::QuerierName;
use crate::sies::{MaskRing, MaskSecret, Master, SourceSecret};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::digest::Digest;
use moteseal_core::link::MAX_NODE_NAME;
use moteseal_core::named_errors;
use moteseal_core::participation::Participation;
use moteseal_core::record::{DeviceId, GroupId};
use moteseal_core::signature::{Algorithm, KeyError, MAX_PUBLIC_KEY, PublicKey};

const SOURCE: &str = "MOTESEAL SUM SOURCE KEY";
const QUERIER: &str = "MOTESEAL SUM QUERIER KEY";

/// The maximum length of the CBOR content of a device's file in bytes.
const MAX_BODY: usize = 280 + MAX_NODE_NAME + MAX_PUBLIC_KEY;
/// The maximum length of the encoded set of the devices that have masks, in bytes.
pub const MAX_MASKED: usize = 1024;
/// The maximum length of the CBOR content of the querier's file in bytes.
const MAX_QUERIER_BODY: usize = MAX_BODY + MAX_MASKED;
/// The maximum length of a key file in bytes.
pub const MAX_KEY_FILE: usize = MAX_QUERIER_BODY * 3 / 2 + 128;

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

    /// Returns the positions of the key group of a position. At a set-up with masks, they are its ring.
    #[must_use]
    pub const fn ring(&self, position: u32) -> Range<u32> {
        let size = if self.key_group == 0 { 1 } else { self.key_group };
        let start = position / size * size;
        let end = start.saturating_add(size);
        start..if end < self.sources { end } else { self.sources }
    }

    /// Writes the start of an array of `fields` fields. The name of a further querier is one more.
    fn write(
        &self,
        querier: &QuerierName,
        out: &mut Writer<'_>,
        fields: u64,
    ) -> Result<(), BufferTooSmall> {
        let is_named = !querier.is_default();
        out.array(fields + u64::from(is_named))?
            .uint(1 + u8::from(is_named))?
            .bytes(&self.group.0)?
            .bytes(&self.roster.0)?
            .uint(self.sources)?
            .uint(self.key_group)?;
        if is_named {
            out.text(querier.as_str())?;
        }
        Ok(())
    }

    /// Reads the start of an array. Returns the number of its fields without the querier's name, and
    /// this name.
    fn read(reader: &mut Reader<'_>) -> Result<(u64, Self, QuerierName), DecodeError> {
        let mut fields = reader.array_any()?;
        let is_named = match reader.uint()? {
            1u8 => false,
            2 => true,
            _ => return Err(DecodeError::UnsupportedVersion),
        };
        let (group, roster) = (GroupId(reader.fixed()?), Digest(reader.fixed()?));
        let (sources, key_group) = (reader.uint()?, reader.uint()?);
        if sources == 0 || key_group == 0 {
            return Err(DecodeError::FieldOutOfRange);
        }
        let mut querier = QuerierName::default();
        if is_named {
            fields = fields.saturating_sub(1);
            querier = QuerierName::new(reader.text()?)
                .filter(|name| !name.is_default())
                .ok_or(DecodeError::FieldOutOfRange)?;
        }
        Ok((fields, Self { group, roster, sources, key_group }, querier))
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
    /// The querier's name.
    pub querier_name: QuerierName,
    /// The querier's public key.
    pub querier: PublicKey,
    /// The device's secrets.
    pub secret: SourceSecret,
    /// The device's mask secrets and its ring, if it has masks.
    pub masks: Option<(MaskSecret, MaskRing)>,
    /// Whether the set-up made masks, for this device or for others. The device then answers only
    /// under a policy.
    pub needs_policy: bool,
}

/// The content of the querier's key file.
#[derive(Debug)]
pub struct QuerierKeys {
    /// The group for which the keys were made.
    pub circle: Circle,
    /// The querier's name.
    pub name: QuerierName,
    /// The public key that verifies the querier's query schedules.
    pub querier: PublicKey,
    /// The secret from which all keys are derived.
    pub master: Master,
    /// The devices that have masks; `None` if the set-up made none.
    pub masked: Option<Masked>,
}

/// The positions of the devices that have masks, as an encoded [`Participation`].
#[derive(Clone, Copy)]
pub struct Masked {
    bytes: [u8; MAX_MASKED],
    length: usize,
}

impl Masked {
    /// Takes the set that consists of the given runs: ascending ranges that are not empty and do not
    /// touch.
    ///
    /// # Errors
    /// [`BufferTooSmall`] if the encoded set has more than [`MAX_MASKED`] bytes.
    pub fn new<R: Iterator<Item = Range<u32>>>(
        runs: impl Fn() -> R,
    ) -> Result<Self, BufferTooSmall> {
        let mut masked = Self { bytes: [0; MAX_MASKED], length: 0 };
        masked.length = Participation::encode_runs(runs, &mut masked.bytes)?;
        Ok(masked)
    }

    /// Returns the set of all positions below `sources`, for which a set-up makes masks. `sources` is not
    /// 0.
    ///
    /// # Errors
    /// [`BufferTooSmall`], which does not happen.
    pub fn all(sources: u32) -> Result<Self, BufferTooSmall> {
        Self::new(|| core::iter::once(0..sources))
    }

    fn read(bytes: &[u8], sources: u32) -> Result<Self, DecodeError> {
        Participation::decode(bytes, sources).map_err(|_| DecodeError::FieldOutOfRange)?;
        let mut masked = Self { bytes: [0; MAX_MASKED], length: bytes.len() };
        let place = masked.bytes.get_mut(..bytes.len()).ok_or(DecodeError::FieldOutOfRange)?;
        place.copy_from_slice(bytes);
        Ok(masked)
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Returns the runs of consecutive positions, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Range<u32>> + use<'_> {
        let set = Participation::decode(self.as_bytes(), u32::MAX).ok();
        set.into_iter().flat_map(|set| set.runs())
    }
}

impl fmt::Debug for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}

impl PartialEq for Masked {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Masked {}

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
        let (fields, circle, querier_name) = Circle::read(&mut reader)?;
        if !(10..=12).contains(&fields) {
            return Err(DecodeError::UnexpectedType.into());
        }
        let (device, position) = (DeviceId(reader.fixed()?), reader.uint()?);
        let querier = public_key(&mut reader)?;
        let mut secret: [u8; 64] = reader.fixed()?;
        let keys = SourceSecret::from_bytes(&secret);
        secret.zeroize();
        let mut masks = None;
        let needs_policy = fields > 10;
        if position >= circle.sources {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        if needs_policy {
            let bytes = reader.bytes()?;
            if let Ok(secret) = bytes.try_into() {
                let ring = match fields {
                    12 => MaskRing::from_bytes(&reader.fixed()?),
                    _ => MaskRing::of(Some(circle.ring(position))),
                };
                if !(1..=circle.key_group).contains(&ring.sources) {
                    return Err(DecodeError::FieldOutOfRange.into());
                }
                masks = Some((MaskSecret::from_bytes(secret), ring));
            } else if !bytes.is_empty() || fields == 12 {
                return Err(DecodeError::UnexpectedType.into());
            }
        }
        let secret = keys;
        Ok(Self { circle, device, position, querier_name, querier, secret, masks, needs_policy })
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
        // The ring of the set-up is not stated.
        let ring = self.masks.as_ref().map(|(_, ring)| *ring);
        let ring = ring.filter(|ring| *ring != MaskRing::of(Some(self.circle.ring(self.position))));
        let fields = 10 + u64::from(needs_policy) + u64::from(ring.is_some());
        self.circle.write(&self.querier_name, &mut writer, fields)?;
        writer.bytes(&self.device.0)?.uint(self.position)?;
        writer
            .int(self.querier.algorithm().cose())?
            .bytes(&self.querier.to_bytes())?
            .bytes(&*self.secret.to_bytes())?;
        match &self.masks {
            Some((masks, _)) => drop(writer.bytes(&*masks.to_bytes())?),
            None if needs_policy => drop(writer.bytes(&[])?),
            None => {}
        }
        if let Some(ring) = ring {
            writer.bytes(&ring.to_bytes())?;
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
        let mut buffer = Zeroizing::new([0; MAX_QUERIER_BODY]);
        let mut reader = Reader::new(decode(pem, QUERIER, &mut *buffer)?)?;
        let (fields, circle, name) = Circle::read(&mut reader)?;
        if fields != 8 && fields != 9 {
            return Err(DecodeError::UnexpectedType.into());
        }
        let querier = public_key(&mut reader)?;
        let mut secret: [u8; 32] = reader.fixed()?;
        let master = Master::new(secret);
        secret.zeroize();
        let mut masked = None;
        if fields == 9 {
            let item = reader.raw()?;
            let all = Masked::all(circle.sources).map_err(|_| DecodeError::FieldOutOfRange)?;
            let read = match Reader::new(item)?.bool() {
                Ok(true) => Some(all),
                Ok(false) => None,
                // The whole set has one form only.
                Err(_) => Some(Masked::read(Reader::new(item)?.bytes()?, circle.sources)?)
                    .filter(|read| *read != all),
            };
            masked = Some(read.ok_or(DecodeError::FieldOutOfRange)?);
        }
        Ok(Self { circle, name, querier, master, masked })
    }

    /// Writes the file to `out` and returns its text. `name` is the querier's name, `secret` is 32 random
    /// bytes, and `masked` are the devices that have masks. [`MAX_KEY_FILE`] bytes suffice. The caller
    /// must zero `out` after use.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode<'o>(
        circle: &Circle,
        (name, querier): (&QuerierName, &PublicKey),
        secret: &[u8; 32],
        masked: Option<&Masked>,
        out: &'o mut [u8],
    ) -> Result<&'o str, BufferTooSmall> {
        let mut body = Zeroizing::new([0; MAX_QUERIER_BODY]);
        let mut writer = Writer::new(&mut *body);
        circle.write(name, &mut writer, 8 + u64::from(masked.is_some()))?;
        writer.int(querier.algorithm().cose())?.bytes(&querier.to_bytes())?.bytes(secret)?;
        match masked {
            Some(masked) if *masked == Masked::all(circle.sources)? => drop(writer.bool(true)?),
            Some(masked) => drop(writer.bytes(masked.as_bytes())?),
            None => {}
        }
        encode(QUERIER, writer.finish(), out)
    }

    /// Derives the keys of the device at a position.
    #[must_use]
    pub fn source(&self, device: DeviceId, position: u32) -> SourceKeys {
        let Circle { group, key_group, .. } = self.circle;
        let secret = self.master.source(group, device, position / key_group);
        SourceKeys {
            circle: self.circle,
            device,
            position,
            querier_name: self.name,
            querier: self.querier.clone(),
            secret,
            masks: None,
            needs_policy: self.masked.is_some(),
        }
    }
}
