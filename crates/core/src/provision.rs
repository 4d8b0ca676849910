//! The provisioning blob: the identity, keys and configuration that an operator stores in a mote
//! before deploying it (spec/mote.md, section 2).
//!
//! A blob is stored in its own flash region. It consists of a head, which contains the length and a
//! check value, and one CBOR array. The check value detects damage and unwritten flash. It does not
//! protect against an attacker, who could also replace the firmware. The blob contains secret keys,
//! so it must be kept secret. The `Debug` implementations in this module do not print the keys.

use core::fmt;

use zeroize::Zeroizing;

use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::confidential::{PATH, Path};
use crate::digest::{Digest, short};
use crate::record::NetworkId;
use crate::record::Scheme;
use crate::record::{DeviceId, EpochNumber, GroupId, MAX_LEVELS};
use crate::signature::{Algorithm, KeyError, PublicKey, SecretKey, Signer as _};

/// Maximum length of a blob and of the keys that follow it, in bytes: one page of flash.
pub const MAX_PROVISIONING: usize = 4096;
/// Length of the head in bytes: the magic bytes (4), the length of the array (4, big-endian) and
/// the check value (8).
const HEAD: usize = 16;
const MAGIC: [u8; 4] = *b"MSP\x01";
/// The magic bytes of the keys of encrypted columns, which follow a blob.
const KEYS_MAGIC: [u8; 4] = *b"MSK\x01";
/// The length of the random bytes that follow the head of the keys of encrypted columns, in bytes: that of
/// a nonce.
pub const NONCE_BASE: usize = 12;

named_errors! {
    /// Why a mote cannot use its provisioning blob.
    ProvisionError {
        /// There is no blob.
        NotProvisioned =>
            "the mote has no provisioning blob; create one with `moteseal device provision`",
        /// The blob is damaged or cut off.
        Damaged => "the provisioning blob is damaged; write it again",
        /// The blob is undamaged, but this version does not support its format.
        Decode(error: DecodeError) => from,
        /// A key in the blob was rejected, or its signature suite is not built in.
        Key(error: KeyError) => from,
    }
}

/// The recorded readings that a mote replays from its flash in place of a sensor, and the times at
/// which they were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayedWindow {
    /// The position of the first reading in the table.
    pub first: u32,
    /// The number of readings.
    pub count: u32,
    /// The Unix time at which the first reading was taken, in milliseconds.
    pub start_ms: u64,
    /// The interval at which the readings were taken, in milliseconds; at least 1.
    pub every_ms: u32,
    /// The interval at which the mote replays the readings, in milliseconds. If it is shorter than
    /// `every_ms`, the mote replays them faster than they were taken.
    pub interval_ms: u32,
}

/// The length of a mote's mask secrets and its ring, in bytes.
pub const MASKS: usize = 108;

/// The maximum length of the payload of a mote's policy, in bytes.
pub const MAX_POLICY_PAYLOAD: usize = 512;

/// A mote's configuration for private sums.
#[derive(Clone)]
pub struct Membership<'a> {
    /// The digest of version 0 of the group's roster.
    pub roster: Digest,
    /// The number of sources in a key group. Sources are grouped by position.
    pub key_group: u32,
    /// The position of this mote among the sources.
    pub position: u32,
    /// The mote's secrets: the bytes of a `moteseal_sum::sies::SourceSecret`.
    pub secret: Zeroizing<[u8; 64]>,
    /// The querier's public key.
    pub querier: PublicKey,
    /// The secret of the link to the mote's parent.
    pub link_secret: Zeroizing<[u8; 32]>,
    /// The mote's mask secrets and its ring, if it has masks: the bytes of a
    /// `moteseal_sum::sies::MaskSecret` and of a `MaskRing`.
    pub masks: Option<Zeroizing<[u8; MASKS]>>,
    /// Whether the set-up made masks, for this mote or for others. The mote then answers only under
    /// a policy.
    pub needs_policy: bool,
    /// The payload of the policy, if there is one. `moteseal device provision` has checked that the
    /// operator signed it. At most [`MAX_POLICY_PAYLOAD`] bytes.
    pub policy: Option<&'a [u8]>,
}

impl fmt::Debug for Membership<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("position", &self.position).finish_non_exhaustive()
    }
}

/// The key that a mote shares with a sender of broadcasts (spec/broadcast.md, section 7).
#[derive(Clone)]
pub struct SharedKey {
    /// The sender.
    pub sender: DeviceId,
    /// The position of this mote in the sender's list of receivers.
    pub position: u32,
    /// The key.
    pub key: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKey").field("position", &self.position).finish_non_exhaustive()
    }
}

/// The network and the base station whose broadcasts a mote acts on.
#[derive(Clone, Debug)]
pub struct Audience {
    /// The id of the network.
    pub network: NetworkId,
    /// The public key of the base station whose certificates the mote accepts.
    pub base: PublicKey,
    /// The key that the mote shares with a sender, if there is one.
    pub shared: Option<SharedKey>,
}

/// The contents of a provisioning blob.
#[derive(Clone)]
pub struct Provisioning<'a> {
    /// The device.
    pub device: DeviceId,
    /// The group of the device.
    pub group: GroupId,
    /// The digest and the version of the roster that the mote uses.
    pub roster: (Digest, u32),
    /// The digest of the device's first certificate, which is the `prev` of its first seal.
    pub certificate: Digest,
    /// The group's number of levels.
    pub levels: u8,
    /// The length of the group's epochs in milliseconds.
    pub epoch_ms: u64,
    /// The first and the last epoch that may be sealed. The first one is the first epoch of the
    /// newest period of the roster.
    pub epochs: (EpochNumber, Option<EpochNumber>),
    /// The start of the first epoch that may be sealed, in Unix milliseconds.
    pub start_ms: u64,
    /// The scheme that the mote uses until a broadcast changes it.
    pub scheme: Scheme,
    /// The stream schema, encoded.
    pub schema: &'a [u8],
    /// The key that signs seals.
    pub signer: SecretKey,
    /// The key from which the salts of the seals are derived.
    pub salt_key: Zeroizing<[u8; 32]>,
    /// The secret of the device's link to the coordinator.
    pub link_secret: Zeroizing<[u8; 32]>,
    /// The coordinator's public key.
    pub coordinator: PublicKey,
    /// The recorded readings that the mote replays.
    pub window: ReplayedWindow,
    /// The configuration for private sums, if the mote takes part in them.
    pub sums: Option<Membership<'a>>,
    /// The broadcasts that the mote acts on, if there are any.
    pub audience: Option<Audience>,
    /// The operator's public key, if the mote accepts time that the operator has signed.
    pub operator: Option<PublicKey>,
}

impl fmt::Debug for Provisioning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provisioning")
            .field("device", &self.device)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

fn write_key(out: &mut Writer<'_>, key: &PublicKey) -> Result<(), BufferTooSmall> {
    out.int(key.algorithm().cose())?.bytes(&key.to_bytes())?;
    Ok(())
}

fn read_key(reader: &mut Reader<'_>) -> Result<PublicKey, ProvisionError> {
    let algorithm = Algorithm::from_cose(reader.i64()?).ok_or(DecodeError::UnknownAlgorithm)?;
    Ok(PublicKey::from_bytes(algorithm, reader.bytes()?)?)
}

fn secret<const N: usize>(reader: &mut Reader<'_>) -> Result<Zeroizing<[u8; N]>, DecodeError> {
    reader.fixed().map(Zeroizing::new)
}

/// Reads the head of an optional array of `length` elements. Returns whether there is an array;
/// null in its place means that there is none.
fn is_there(reader: &mut Reader<'_>, length: u64) -> Result<bool, DecodeError> {
    if reader.at_array() {
        return reader.array(length).map(|()| true);
    }
    reader.optional(|reader| reader.array(length)).map(|found| found.is_some())
}

/// Reads the configuration for private sums. Blobs without masks and policy have seven fields.
fn membership<'a>(reader: &mut Reader<'a>) -> Result<Option<Membership<'a>>, ProvisionError> {
    let Some(fields) = reader.optional(Reader::array_any)? else { return Ok(None) };
    if fields != 7 && fields != 9 {
        return Err(DecodeError::UnexpectedType.into());
    }
    let roster = Digest(reader.fixed()?);
    let (key_group, position) = (reader.uint()?, reader.uint()?);
    let keys = secret::<64>(reader)?;
    let querier = read_key(reader)?;
    let link_secret = secret(reader)?;
    let (mut masks, mut policy) = (None, None);
    if fields == 9 {
        masks = reader.optional(Reader::bytes)?;
        policy = reader.optional(Reader::bytes)?;
        // A blob without both has seven fields.
        if masks.is_none() && policy.is_none() {
            return Err(DecodeError::NonCanonical.into());
        }
    }
    let needs_policy = masks.is_some();
    let masks = match masks {
        None | Some([]) => None,
        Some(bytes) => Some(Zeroizing::new(
            *<&[u8; MASKS]>::try_from(bytes).map_err(|_| DecodeError::UnexpectedType)?,
        )),
    };
    Ok(Some(Membership {
        roster,
        key_group,
        position,
        secret: keys,
        querier,
        link_secret,
        masks,
        needs_policy,
        policy,
    }))
}

fn check_value(body: &[u8]) -> [u8; 8] {
    short(&[b"moteseal/1/provision\0", body])
}

fn keys_check_value(body: &[u8]) -> [u8; 8] {
    short(&[b"moteseal/1/provision/keys\0", body])
}

/// Returns the body that a head at the start of `flash` states, and the check value of the head;
/// `None` if the magic bytes are others, or the body extends past the end.
fn body_of(flash: &[u8], magic: [u8; 4]) -> Option<(&[u8], &[u8])> {
    let (head, rest) = flash.split_first_chunk::<HEAD>()?;
    let length = head[4..8].iter().fold(0, |length, &byte| length << 8 | usize::from(byte));
    (head[..4] == magic).then_some((rest.get(..length)?, &head[8..]))
}

fn write_head(head: &mut [u8; HEAD], magic: [u8; 4], length: usize, check: [u8; 8]) -> bool {
    head[..4].copy_from_slice(&magic);
    head[8..].copy_from_slice(&check);
    u32::try_from(length).map(|length| head[4..8].copy_from_slice(&length.to_be_bytes())).is_ok()
}

/// Returns the offset of the bytes that follow a blob at the start of `flash`: the next multiple of 4.
/// They may be the keys of encrypted columns. Returns 0 if there is no blob, and the length of the
/// flash if the blob extends past its end.
#[must_use]
pub fn blob_end(flash: &[u8]) -> usize {
    if !flash.starts_with(&MAGIC) {
        return 0;
    }
    let end = body_of(flash, MAGIC).map_or(flash.len(), |(body, _)| HEAD + body.len());
    end.next_multiple_of(4).min(flash.len())
}

/// The keys of encrypted columns that follow a blob (spec/mote.md, section 2.5). The mote moves them
/// to flash of their own and erases them here, because they open all epochs from the first one.
///
/// They are not in the blob, so that erasing them leaves it valid.
#[derive(Clone, Copy)]
pub struct GivenKeys<'a> {
    /// The length of the keys with their head in bytes: what the mote erases.
    pub length: usize,
    /// Random bytes from which the mote makes its nonces. All zeros if the check value is wrong.
    pub nonce_base: &'a [u8; NONCE_BASE],
    /// The encodings of the columns' paths, each by [`Path::encode_short`], in the order of the
    /// schema. Empty if the check value is wrong, as of keys that are partly erased.
    pub paths: &'a [u8],
}

impl fmt::Debug for GivenKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenKeys").field("length", &self.length).finish_non_exhaustive()
    }
}

impl<'a> GivenKeys<'a> {
    /// Reads the keys at the start of `flash`, which follows a blob. Returns `None` if there are none.
    #[must_use]
    pub fn read(flash: &'a [u8]) -> Option<Self> {
        let (body, check) = body_of(flash, KEYS_MAGIC)?;
        let valid = if keys_check_value(body) == check { body } else { &[] };
        let (nonce_base, paths) = valid.split_first_chunk().unwrap_or((&[0; NONCE_BASE], &[]));
        Some(Self { length: HEAD + body.len(), nonce_base, paths })
    }
}

/// Writes the keys that follow a blob to `out`, and returns their length. The caller must draw
/// `nonce_base` at random for each blob, and must zero `out` after use.
///
/// # Errors
/// [`BufferTooSmall`].
pub fn encode_keys<'p>(
    nonce_base: &[u8; NONCE_BASE],
    paths: impl IntoIterator<Item = &'p Path>,
    out: &mut [u8],
) -> Result<usize, BufferTooSmall> {
    let (head, body) = out.split_first_chunk_mut::<HEAD>().ok_or(BufferTooSmall)?;
    *body.first_chunk_mut().ok_or(BufferTooSmall)? = *nonce_base;
    let mut end = NONCE_BASE;
    for path in paths {
        let mut buffer = Zeroizing::new([0; PATH]);
        let short = path.encode_short(&mut buffer);
        body.get_mut(end..end + short.len()).ok_or(BufferTooSmall)?.copy_from_slice(short);
        end += short.len();
    }
    let check = keys_check_value(body.get(..end).ok_or(BufferTooSmall)?);
    if write_head(head, KEYS_MAGIC, end, check) { Ok(HEAD + end) } else { Err(BufferTooSmall) }
}

impl<'a> Provisioning<'a> {
    /// Reads the blob at the start of `flash`. Bytes after the blob are ignored.
    ///
    /// # Errors
    /// [`ProvisionError`].
    pub fn decode(flash: &'a [u8]) -> Result<Self, ProvisionError> {
        if flash.len() < HEAD || !flash.starts_with(&MAGIC) {
            return Err(ProvisionError::NotProvisioned);
        }
        let (body, _) = body_of(flash, MAGIC)
            .filter(|(body, check)| check_value(body) == *check)
            .ok_or(ProvisionError::Damaged)?;
        let mut reader = Reader::new(body)?;
        reader.array(23)?;
        reader.version()?;
        let (device, group) = (DeviceId(reader.fixed()?), GroupId(reader.fixed()?));
        let roster = (Digest(reader.fixed()?), reader.uint()?);
        let certificate = Digest(reader.fixed()?);
        let (levels, epoch_ms): (u8, u64) = (reader.uint()?, reader.u64()?);
        let epochs = (EpochNumber(reader.u64()?), reader.optional(Reader::u64)?.map(EpochNumber));
        let start_ms = reader.u64()?;
        let scheme = match reader.u64()? {
            0 => Scheme::Star,
            1 => Scheme::Tree,
            _ => return Err(DecodeError::FieldOutOfRange.into()),
        };
        let schema = reader.bytes()?;
        let algorithm = Algorithm::from_cose(reader.i64()?).ok_or(DecodeError::UnknownAlgorithm)?;
        let signer = SecretKey::from_bytes(algorithm, &*secret::<32>(&mut reader)?)?;
        let (salt_key, link_secret) = (secret(&mut reader)?, secret(&mut reader)?);
        let coordinator = read_key(&mut reader)?;
        reader.array(5)?;
        let window = ReplayedWindow {
            first: reader.uint()?,
            count: reader.uint()?,
            start_ms: reader.u64()?,
            every_ms: reader.uint()?,
            interval_ms: reader.uint()?,
        };
        let sums = membership(&mut reader)?;
        let audience = if is_there(&mut reader, 4)? {
            let (network, base) = (NetworkId(reader.fixed()?), read_key(&mut reader)?);
            let shared = if is_there(&mut reader, 3)? {
                let (sender, position) = (DeviceId(reader.fixed()?), reader.uint()?);
                Some(SharedKey { sender, position, key: secret(&mut reader)? })
            } else {
                None
            };
            Some(Audience { network, base, shared })
        } else {
            None
        };
        let operator = if is_there(&mut reader, 2)? { Some(read_key(&mut reader)?) } else { None };
        let fits = (1..=MAX_LEVELS).contains(&usize::from(levels))
            && epoch_ms > 0
            && window.every_ms > 0
            && sums.as_ref().is_none_or(|sums| {
                let length = sums.policy.map_or(0, <[u8]>::len);
                sums.key_group > 0 && length <= MAX_POLICY_PAYLOAD
            });
        if !fits || !reader.rest().is_empty() {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        Ok(Self {
            device,
            group,
            roster,
            certificate,
            levels,
            epoch_ms,
            epochs,
            start_ms,
            scheme,
            schema,
            signer,
            salt_key,
            link_secret,
            coordinator,
            window,
            sums,
            audience,
            operator,
        })
    }

    /// Returns the epoch that contains a Unix time, in milliseconds. Times before the first epoch
    /// that may be sealed belong to an epoch before it.
    #[must_use]
    pub const fn epoch_of(&self, unix_ms: u64) -> EpochNumber {
        let (first, length) = (self.epochs.0.0, self.epoch_ms);
        EpochNumber(match unix_ms.checked_sub(self.start_ms) {
            Some(elapsed) => first.saturating_add(elapsed / length),
            None => first.saturating_sub((self.start_ms - unix_ms).div_ceil(length)),
        })
    }

    /// Writes the blob to `out`. [`MAX_PROVISIONING`] bytes suffice unless the schema is long. The
    /// caller must zero `out` after use.
    ///
    /// # Errors
    /// [`BufferTooSmall`].
    pub fn encode<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let (head, body) = out.split_first_chunk_mut::<HEAD>().ok_or(BufferTooSmall)?;
        let mut writer = Writer::new(body);
        self.write(&mut writer)?;
        let body = writer.written();
        let end = HEAD + body.len();
        let is_written = write_head(head, MAGIC, body.len(), check_value(body));
        out.get(..end).filter(|_| is_written).ok_or(BufferTooSmall)
    }

    fn write(&self, out: &mut Writer<'_>) -> Result<(), BufferTooSmall> {
        out.array(23)?.uint(1u8)?.bytes(&self.device.0)?.bytes(&self.group.0)?;
        out.bytes(&self.roster.0.0)?.uint(self.roster.1)?.bytes(&self.certificate.0)?;
        out.uint(self.levels)?.uint(self.epoch_ms)?.uint(self.epochs.0.0)?;
        out.optional(self.epochs.1, |out, last| out.uint(last.0))?.uint(self.start_ms)?;
        out.uint(self.scheme.number())?.bytes(self.schema)?;
        out.int(self.signer.algorithm().cose())?.bytes(&*self.signer.to_bytes())?;
        out.bytes(&*self.salt_key)?.bytes(&*self.link_secret)?;
        write_key(out, &self.coordinator)?;
        let window = &self.window;
        out.array(5)?.uint(window.first)?.uint(window.count)?.uint(window.start_ms)?;
        out.uint(window.every_ms)?.uint(window.interval_ms)?;
        match &self.sums {
            Some(sums) => {
                let needs_policy = sums.needs_policy || sums.masks.is_some();
                let is_long = needs_policy || sums.policy.is_some();
                out.array(if is_long { 9 } else { 7 })?
                    .bytes(&sums.roster.0)?
                    .uint(sums.key_group)?
                    .uint(sums.position)?
                    .bytes(&*sums.secret)?;
                write_key(out, &sums.querier)?;
                out.bytes(&*sums.link_secret)?;
                if is_long {
                    let masks = sums.masks.as_ref().map(|masks| &masks[..]);
                    let masks = masks.or(needs_policy.then_some(&[]));
                    out.optional(masks, Writer::bytes)?.optional(sums.policy, Writer::bytes)?;
                }
            }
            None => _ = out.null()?,
        }
        match &self.audience {
            Some(audience) => {
                out.array(4)?.bytes(&audience.network.0)?;
                write_key(out, &audience.base)?;
                match &audience.shared {
                    Some(SharedKey { sender, position, key }) => {
                        out.array(3)?.bytes(&sender.0)?.uint(*position)?.bytes(&**key)?;
                    }
                    None => _ = out.null()?,
                }
            }
            None => _ = out.null()?,
        }
        match &self.operator {
            Some(operator) => write_key(out.array(2)?, operator)?,
            None => _ = out.null()?,
        }
        Ok(())
    }
}
