//! The SIES scheme. A source encrypts a value, an aggregator adds encrypted values, and the querier
//! removes the keys from the sum and checks the shares.
//!
//! As in section IV of Papadopoulos et al. (ICDE 2011), a source sends `c = K_t * m + k_{i,t} mod
//! p` with `m = value * 2^160 + share`. `K_t` is the multiplier key, which all sources of a key
//! group share; `k_{i,t}` is the source's own key, and the share proves that the source took part.
//!
//! Unlike in the paper, each `K_t`, `k_{i,t}` and share is used for only one query, slot and epoch.
//! A record of one query, slot or epoch therefore cannot be replayed in another. All three come
//! from ChaCha20 blocks (RFC 8439, section 2.3) under keys that are derived for the query: one
//! block yields `K_t`, and another yields both `k_{i,t}` and the share.
//!
//! The querier needs only the sums of keys and shares. A host computes them for sixteen sources at
//! a time with [`KeyEngine::sum_keys`](crate::engine::KeyEngine::sum_keys).

use core::fmt;
use core::ops::Range;
use moteseal_core::named_errors;

use crypto_bigint::U256;
use hmac::{Hmac, KeyInit, Mac};
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

pub use crate::chacha::WORDS;
use crate::chacha::block;
use crate::field::Element;
use crate::guard::Permit;
use crate::noise::Noise;
use crate::query::QueryId;
use moteseal_core::chacha::BLOCK_WORDS;
use moteseal_core::digest::Digest;
use moteseal_core::provision::MASKS;
use moteseal_core::record::{DeviceId, GroupId};

/// The length of a partial state record (PSR), in bytes.
pub const PSR: usize = 32;
/// The number of bits of a share. A value is shifted left by this many bits.
pub const SHARE_BITS: u32 = 160;
/// Every value and every sum of a slot is below this limit, which is `p / 2^160` rounded down. When
/// a query is set up, [`Plan::check_capacity`](crate::query::Plan::check_capacity) checks that the
/// values of all sources together stay below it.
pub const SUM_LIMIT: u128 = (1 << (256 - SHARE_BITS)) - 1;

/// The number of a slot: a count, a sum or a sum of squares from which a query is answered. Each
/// slot has its own PSR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u8);

named_errors! {
    /// Why bytes are not a partial state record.
    PsrError {
        /// The length is not 32 bytes.
        TruncatedPsr => "a partial state record has 32 bytes",
        /// The integer is `p` or more.
        NotCanonical => "a partial state record is an integer below 2^256 - 189",
    }
}

named_errors! {
    /// Why a value was not encrypted.
    EncryptError {
        /// The permit and the key are for different queries.
        WrongQuery => "the permit and the key are for different queries",
        /// A value of this slot, or of a later one, was already encrypted under the permit.
        SlotUsed => "the permit was already used for this slot or a later one; a second value under the same key would reveal the key that all sources share",
        /// The value is above 2^96 - 2.
        ValueTooLarge => "a value must be below 2^96 - 1",
    }
}

named_errors! {
    /// Why a sum was rejected.
    OpenError {
        /// The shares in the sum are not the shares of the named participants. A record was
        /// dropped, added, altered, replayed or exchanged.
        SharesMismatch => "the shares in the sum are not those of the named participants in this query, slot and epoch",
        /// The sum is larger than the participants can have contributed.
        SumOutOfRange => "the sum is more than the named participants can have contributed",
    }
}

/// A partial state record: an encrypted value, or the sum of several.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Psr(Element);

impl Psr {
    /// The empty sum.
    pub const ZERO: Self = Self(Element::ZERO);

    /// Reads a record from 32 bytes, big-endian.
    ///
    /// # Errors
    /// [`PsrError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PsrError> {
        let bytes: &[u8; PSR] = bytes.try_into().map_err(|_| PsrError::TruncatedPsr)?;
        Element::canonical(U256::from_be_slice(bytes)).map(Self).ok_or(PsrError::NotCanonical)
    }

    /// Returns the record as 32 bytes, big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PSR] {
        self.0.value().to_be_bytes().into()
    }

    /// Returns the sum of two records. This is the only operation of an aggregator.
    #[inline]
    #[must_use]
    pub const fn merge(&self, other: &Self) -> Self {
        Self(self.0.add(other.0))
    }
}

impl fmt::Debug for Psr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psr(")?;
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

fn prf(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    #[allow(clippy::expect_used)]
    let mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(key)
        .expect("HMAC takes keys of any length");
    parts.iter().fold(mac, |mac, part| mac.chain_update(part)).finalize().into_bytes().into()
}

/// The querier's secret, from which all keys are derived. `Debug` does not show it.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Master([u8; 32]);

/// The long-term secrets of a source: a key that only the source and the querier know, and the key
/// of its key group. `Debug` does not show them.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SourceSecret {
    device: [u8; 32],
    key_group: KeyGroupSecret,
}

/// The secret that all sources of a key group share with the querier. Anyone who knows it can alter
/// the sums of this key group. `Debug` does not show it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeyGroupSecret([u8; 32]);

/// A source's keys for one query. `Debug` does not show them.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SourceKey {
    #[zeroize(skip)]
    query: QueryId,
    device: [u8; 32],
    key_group: KeyGroupKey,
}

/// The secrets from which a source derives the masks and the noise of its answers to a querier that
/// is not trusted with the readings: the secret that it shares with the next source of its key
/// group, the one that it shares with the previous source, and that of its noise. The sources of a
/// key group form a ring, and the masks of a whole key group add up to 0. The querier does not know
/// these secrets, so that it can open only the sum of a whole key group. `Debug` does not show them.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MaskSecret {
    next: [u8; 32],
    previous: [u8; 32],
    noise: [u8; 32],
}

/// The length of [`MaskSecret`] in bytes.
pub const MASK_SECRET: usize = 96;
/// The length of [`MaskRing`] in bytes.
pub const MASK_RING: usize = 12;

/// A source's mask secrets for one query. `Debug` does not show them.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MaskKey(MaskSecret);

/// The secret from which the set-up derives the mask secrets of all sources. `Debug` does not show
/// it.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct MaskRoot([u8; 32]);

/// A key group's key for one query. `Debug` does not show it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct KeyGroupKey([u8; 32]);

macro_rules! redacted {
    ($($secret:ident),+) => {
        $(impl fmt::Debug for $secret {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($secret), "(secret)"))
            }
        })+
    };
}
redacted!(Master, SourceSecret, KeyGroupSecret, SourceKey, KeyGroupKey, KeyTotals, KeyLanes);
redacted!(MaskRoot, MaskSecret, MaskKey);

impl MaskRoot {
    /// Creates the secret from 32 random bytes.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Derives the mask secrets of the source at a position. `ring` are the positions of its ring,
    /// ascending.
    #[must_use]
    pub fn source(
        &self,
        group: GroupId,
        ring: impl IntoIterator<Item = u32>,
        position: u32,
    ) -> MaskSecret {
        // The first source follows the last one.
        let (mut previous, mut before) = (None, None);
        for at in ring {
            if at == position {
                previous = before;
            }
            before = Some(at);
        }
        let previous = previous.or(before).unwrap_or(position);
        // The secret between a source and the next one has the number of the first of the two.
        let secret = |position: u32| {
            prf(&self.0, &[b"moteseal/1/sum/mask", &group.0, &position.to_be_bytes()])
        };
        let noise = prf(&self.0, &[b"moteseal/1/sum/noise", &group.0, &position.to_be_bytes()]);
        MaskSecret { next: secret(position), previous: secret(previous), noise }
    }
}

/// The sources whose masks add up to 0: those of a key group that have masks (spec/sums.md, section
/// 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskRing {
    /// The number of sources.
    pub sources: u32,
    /// The id of the set of their positions.
    pub id: [u8; 8],
}

impl MaskRing {
    /// Returns the ring of the sources at these positions: ascending ranges that do not touch.
    #[must_use]
    pub fn of(runs: impl IntoIterator<Item = Range<u32>>) -> Self {
        let mut ring = Self { sources: 0, id: [0; 8] };
        for run in runs {
            let bounds = [run.start.to_be_bytes(), run.end.to_be_bytes()];
            let digest = Digest::of(&[b"moteseal/1/sum/ring", &ring.id, &bounds[0], &bounds[1]]);
            ring.id.copy_from_slice(&digest.0[..8]);
            ring.sources = ring.sources.saturating_add(run.end.saturating_sub(run.start));
        }
        ring
    }

    /// Returns the ring as bytes: the number of sources in 4 bytes, big-endian, and the id.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; MASK_RING] {
        let mut bytes = [0; MASK_RING];
        bytes[..4].copy_from_slice(&self.sources.to_be_bytes());
        bytes[4..].copy_from_slice(&self.id);
        bytes
    }

    /// Reads the bytes that [`to_bytes`](Self::to_bytes) returned.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; MASK_RING]) -> Self {
        let [a, b, c, d, id @ ..] = *bytes;
        Self { sources: u32::from_be_bytes([a, b, c, d]), id }
    }
}

impl MaskSecret {
    /// Reads the secrets from the bytes that [`to_bytes`](Self::to_bytes) returned.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; MASK_SECRET]) -> Self {
        let mut secrets = Self { next: [0; 32], previous: [0; 32], noise: [0; 32] };
        secrets.next.copy_from_slice(&bytes[..32]);
        secrets.previous.copy_from_slice(&bytes[32..64]);
        secrets.noise.copy_from_slice(&bytes[64..]);
        secrets
    }

    /// Returns the secrets as bytes: the one that is shared with the next source, the one that is
    /// shared with the previous source, and that of the noise.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; MASK_SECRET]> {
        let mut bytes = Zeroizing::new([0; MASK_SECRET]);
        bytes[..32].copy_from_slice(&self.next);
        bytes[32..64].copy_from_slice(&self.previous);
        bytes[64..].copy_from_slice(&self.noise);
        bytes
    }

    /// Returns the secrets and the ring as bytes, as in a mote's provisioning blob: those of
    /// [`to_bytes`](Self::to_bytes), then those of [`MaskRing::to_bytes`].
    #[must_use]
    pub fn to_bytes_with(&self, ring: &MaskRing) -> Zeroizing<[u8; MASKS]> {
        let mut bytes = Zeroizing::new([0; MASKS]);
        bytes[..MASK_SECRET].copy_from_slice(&*self.to_bytes());
        bytes[MASK_SECRET..].copy_from_slice(&ring.to_bytes());
        bytes
    }

    /// Reads the bytes that [`to_bytes_with`](Self::to_bytes_with) returned.
    #[must_use]
    pub fn from_bytes_with_ring(bytes: &[u8; MASKS]) -> (Self, MaskRing) {
        let (mut secret, mut ring) = (Zeroizing::new([0; MASK_SECRET]), [0; MASK_RING]);
        secret.copy_from_slice(&bytes[..MASK_SECRET]);
        ring.copy_from_slice(&bytes[MASK_SECRET..]);
        (Self::from_bytes(&secret), MaskRing::from_bytes(&ring))
    }

    /// Derives the secrets for the query with the digest [`QueryId::whole`]. Callers should keep them
    /// for the query's later epochs.
    #[must_use]
    pub fn for_query(&self, query: &Digest) -> MaskKey {
        let derived = |secret| prf(secret, &[OF_QUERY, &query.0]);
        let (next, previous) = (derived(&self.next), derived(&self.previous));
        MaskKey(Self { next, previous, noise: derived(&self.noise) })
    }
}

impl MaskKey {
    /// Returns the noise of the source in an epoch. `ring` is the number of sources in its key group.
    #[must_use]
    pub const fn noise(&self, epoch: u64, ring: u32) -> Noise<'_> {
        Noise::new(&self.0.noise, epoch, ring)
    }

    /// Adds the source's mask of a slot and epoch to the source's record.
    #[must_use]
    pub fn cover(&self, psr: &Psr, slot: Slot, epoch: u64) -> Psr {
        let mask = |key| Element::reduce(integer(&block(key, slot.0.into(), epoch)[..8]), 0);
        Psr(psr.0.add(mask(&self.0.next)).sub(mask(&self.0.previous)))
    }
}

impl Master {
    /// Creates a master secret from 32 random bytes.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Returns the bytes that [`new`](Self::new) took.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(self.0)
    }

    /// Derives the secrets of a device in a key group.
    #[must_use]
    pub fn source(&self, group: GroupId, device: DeviceId, key_group: u32) -> SourceSecret {
        let device = prf(&self.0, &[b"moteseal/1/sum/device", &group.0, &device.0]);
        SourceSecret { device, key_group: self.key_group(group, key_group) }
    }

    /// Derives the secret of a key group.
    #[must_use]
    pub fn key_group(&self, group: GroupId, number: u32) -> KeyGroupSecret {
        KeyGroupSecret(prf(&self.0, &[b"moteseal/1/sum/keygroup", &group.0, &number.to_be_bytes()]))
    }
}

/// The label with which keys are derived for a query.
const OF_QUERY: &[u8] = b"moteseal/1/sum/query";
/// The label of the tags of refusals.
const OF_REFUSAL: &[u8] = b"moteseal/1/sum/refusal";

impl KeyGroupSecret {
    /// Derives the key for a query.
    #[must_use]
    pub fn for_query(&self, query: QueryId) -> KeyGroupKey {
        KeyGroupKey(prf(&self.0, &[OF_QUERY, &query.0]))
    }
}

impl SourceSecret {
    /// Reads the secrets from the bytes that [`to_bytes`](Self::to_bytes) returned.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 64]) -> Self {
        let (mut device, mut key_group) = ([0; 32], KeyGroupSecret([0; 32]));
        device.copy_from_slice(&bytes[..32]);
        key_group.0.copy_from_slice(&bytes[32..]);
        Self { device, key_group }
    }

    /// Returns the secrets as 64 bytes: the device's key, then the key group's.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; 64]> {
        let mut bytes = Zeroizing::new([0; 64]);
        bytes[..32].copy_from_slice(&self.device);
        bytes[32..].copy_from_slice(&self.key_group.0);
        bytes
    }

    /// Returns the tag of the source's statement that it does not answer an epoch of a query, for the
    /// reason with this name ([`Refusal`](crate::wire::Refusal)).
    #[must_use]
    pub fn refusal_tag(&self, query: QueryId, epoch: u64, reason: &str) -> [u8; 8] {
        let epoch = epoch.to_be_bytes();
        let whole = prf(&self.device, &[OF_REFUSAL, &query.0, &epoch, reason.as_bytes()]);
        let mut tag = [0; 8];
        tag.copy_from_slice(&whole[..8]);
        tag
    }

    /// Returns whether the source has made this statement, in constant time.
    #[must_use]
    pub fn has_refused(&self, query: QueryId, epoch: u64, reason: &str, tag: &[u8; 8]) -> bool {
        self.refusal_tag(query, epoch, reason).ct_eq(tag).into()
    }

    /// Derives the keys for a query. Callers should keep them for the query's later epochs.
    #[must_use]
    pub fn for_query(&self, query: QueryId) -> SourceKey {
        SourceKey {
            query,
            device: prf(&self.device, &[OF_QUERY, &query.0]),
            key_group: self.key_group.for_query(query),
        }
    }
}

/// Returns the integer that consists of the given 32-bit words, the least significant word first.
fn integer(words: &[u32]) -> U256 {
    let mut bytes = Zeroizing::new([0; 32]);
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    U256::from_le_slice(&*bytes)
}

impl KeyGroupKey {
    /// Returns the multiplier key `K_t`, which is never 0.
    fn multiplier(&self, slot: Slot, epoch: u64) -> Element {
        Element::reduce(integer(&block(&self.0, slot.0.into(), epoch)[..8]), 0).or_one()
    }
}

impl SourceKey {
    /// Encrypts a value below [`SUM_LIMIT`]. The permit proves that the guard has not permitted
    /// this epoch of this query before. The caller must store the guard durably before it sends the
    /// PSR. A permit allows one value per slot, in slot order.
    ///
    /// # Errors
    /// [`EncryptError`].
    pub fn encrypt(
        &self,
        permit: &mut Permit,
        slot: Slot,
        value: u128,
    ) -> Result<Psr, EncryptError> {
        if permit.query() != self.query {
            return Err(EncryptError::WrongQuery);
        }
        if value >= SUM_LIMIT {
            return Err(EncryptError::ValueTooLarge);
        }
        if !permit.take(slot.0) {
            return Err(EncryptError::SlotUsed);
        }
        let words = block(&self.device, slot.0.into(), permit.epoch());
        let (key, share) = words[..WORDS].split_at(8);
        let mut message =
            integer(share).wrapping_add(&U256::from_u128(value).shl_vartime(SHARE_BITS));
        let sealed =
            self.key_group.multiplier(slot, permit.epoch()).mul(Element::reduce(message, 0));
        message.zeroize();
        Ok(Psr(sealed.add(Element::reduce(integer(key), 0))))
    }

    /// Returns the query for which the keys were derived.
    #[must_use]
    pub const fn query(&self) -> QueryId {
        self.query
    }
}

/// The number of sources in one [`KeyLanes`].
pub const LANES: usize = 16;

/// The keys of sixteen sources for one query, with 32 bytes per source, arranged for vector
/// instructions: the first words of all sources, then the second words of all sources, and so on.
/// `Debug` does not show them.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
#[repr(align(64))]
pub struct KeyLanes([[u32; LANES]; 8]);

impl Default for KeyLanes {
    fn default() -> Self {
        Self([[0; LANES]; 8])
    }
}

impl KeyLanes {
    /// Stores a source's key in a lane.
    ///
    /// # Panics
    /// If `lane` is not below [`LANES`].
    pub fn set(&mut self, lane: usize, key: &SourceKey) {
        for (words, bytes) in self.0.iter_mut().zip(key.device.as_chunks().0) {
            words[lane] = u32::from_le_bytes(*bytes);
        }
    }

    /// Returns the words of the keys: element `j` contains word `j` of every lane.
    #[must_use]
    pub const fn words(&self) -> &[[u32; LANES]; 8] {
        &self.0
    }
}

/// The sums of the participants' keys and shares. Each used word of the ChaCha20 blocks is summed
/// separately in 64 bits; carries are resolved in [`open`](Self::open). `Debug` does not show the
/// sums.
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub struct KeyTotals {
    words: [u64; WORDS],
    sources: u32,
}

impl KeyTotals {
    /// Adds the key and the share of a participant.
    pub fn add(&mut self, source: &SourceKey, slot: Slot, epoch: u64) {
        self.add_block(&block(&source.device, slot.0.into(), epoch));
    }

    fn add_block(&mut self, words: &[u32; BLOCK_WORDS]) {
        for (total, word) in self.words.iter_mut().zip(words) {
            *total = total.wrapping_add((*word).into());
        }
        self.sources += 1;
    }

    /// Adds the word sums of `sources` participants. The sums overflow only with more than `2^32 -
    /// 1` participants in total.
    pub fn add_words(&mut self, words: &[u64; WORDS], sources: u32) {
        for (total, word) in self.words.iter_mut().zip(words) {
            *total = total.wrapping_add(*word);
        }
        self.sources += sources;
    }

    /// Adds the keys and shares of the sources in `lanes` whose bit in `present` is set, one lane
    /// after the other. This is the reference for
    /// [`KeyEngine::sum_keys`](crate::engine::KeyEngine::sum_keys).
    pub fn add_lanes(&mut self, lanes: &KeyLanes, present: u16, slot: Slot, epoch: u64) {
        for lane in (0..LANES).filter(|lane| present >> lane & 1 != 0) {
            let mut key = Zeroizing::new([0; 32]);
            for (bytes, words) in key.as_chunks_mut().0.iter_mut().zip(lanes.words()) {
                *bytes = words[lane].to_le_bytes();
            }
            self.add_block(&block(&key, slot.0.into(), epoch));
        }
    }

    /// Returns the sum of each used word. The sums are secret.
    #[must_use]
    pub const fn words(&self) -> &[u64; WORDS] {
        &self.words
    }

    /// Returns the number of participants that were added.
    #[must_use]
    pub const fn sources(&self) -> u32 {
        self.sources
    }

    /// Decrypts the sum of a slot of one key group: removes the participants' keys and checks their
    /// shares. `most` is the largest value that one participant can have contributed.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        &self,
        psr: &Psr,
        key: &KeyGroupKey,
        slot: Slot,
        epoch: u64,
        most: u128,
    ) -> Result<u128, OpenError> {
        let (keys, high) = carried(&self.words[..8]);
        let (shares, _) = carried(&self.words[8..]);
        let multiplier = key.multiplier(slot, epoch);
        let mut message = psr.0.sub(Element::reduce(keys, high)).mul(multiplier.invert()).value();
        // If the record contains exactly the values of these participants, the rest is the sum
        // followed by 160 zero bits.
        let (rest, borrow) = message.borrowing_sub(&shares, crypto_bigint::Limb::ZERO);
        message.zeroize();
        let sum = rest.shr_vartime(SHARE_BITS);
        if borrow.0 != 0 || sum.shl_vartime(SHARE_BITS) != rest {
            return Err(OpenError::SharesMismatch);
        }
        let mut low = [0; 16];
        low.copy_from_slice(&sum.to_be_bytes()[16..]);
        let sum = u128::from_be_bytes(low);
        let most = most.saturating_mul(u128::from(self.sources));
        if sum > most { Err(OpenError::SumOutOfRange) } else { Ok(sum) }
    }
}

/// Resolves the carries of words that were summed separately. Returns the low 256 bits of the
/// integer, and the higher bits.
fn carried(words: &[u64]) -> (U256, u64) {
    let mut out = Zeroizing::new([0_u32; 8]);
    let mut carry = 0_u64;
    for (i, out) in out.iter_mut().enumerate() {
        // A word's sum has up to 64 bits, and the carry is below 2^33, so the addition may overflow
        // by one bit.
        let (sum, over) = words.get(i).copied().unwrap_or_default().overflowing_add(carry);
        #[allow(clippy::cast_possible_truncation)]
        {
            *out = sum as u32;
        }
        carry = sum >> 32 | u64::from(over) << 32;
    }
    (integer(&*out), carry)
}
