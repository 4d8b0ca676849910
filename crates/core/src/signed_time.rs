//! Time statements: the time of day, signed for one device in answer to its challenge
//! (spec/time.md).
//!
//! The party that carries a statement to the device is not trusted. The device accepts only a
//! statement that answers its newest challenge, so the statement was signed after the device sent
//! the challenge. [`TimeAnchor`] computes from this which times are possible.

use crate::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use crate::cose::{Sign1, Typ, sig_structure};
use crate::digest::Digest;
use crate::identity::{IssueError, protected};
use crate::record::{DeviceId, GroupId};
use crate::signature::{MAX_SIGNATURE, PublicKey, SignatureError, Signer};

/// Maximum length of a payload that is accepted for reading. A valid payload has at most 47 bytes.
const PAYLOAD: usize = 48;
/// Maximum length of a time statement in bytes, signature included.
pub const MAX_TIME_STATEMENT: usize = PAYLOAD + 64 + MAX_SIGNATURE;
/// The maximum time between a challenge and the statement that answers it, in milliseconds. A
/// device ignores a later statement.
pub const MAX_DELAY_MS: u64 = 5_000;
/// The maximum deviation of a device's timer is `2^-RATE_SHIFT` of the elapsed time: 488 ppm.
const RATE_SHIFT: u32 = 11;

named_errors! {
    /// Why a time statement was rejected.
    TimeError {
        /// The bytes do not decode.
        Decode(error: DecodeError) => from,
        /// It is for another group.
        WrongGroup => "the time statement is for another group",
        /// It is for another device.
        OtherDevice => "the time statement is for another device",
        /// It does not answer the newest challenge, or there is no challenge to answer.
        WrongChallenge => "the time statement does not answer the newest challenge",
        /// It arrived too late after the challenge.
        TimeLate => "the time statement arrived too late after the challenge",
        /// The device has no key of a signer in this role.
        UnknownSigner => "the device has no key of this signer of the time",
        /// It is not signed with the signature suite of the signer's key.
        AlgorithmMismatch => "the time statement is not signed with the signature suite of the signer's key",
        /// The signature was rejected.
        Signature(error: SignatureError) => from,
    }
}

/// A party whose time a device accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSigner {
    /// The operator of the group.
    Operator,
    /// The querier of the group's private sums.
    Querier,
}

impl TimeSigner {
    /// Returns the signer's number in a statement.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Operator => 0,
            Self::Querier => 1,
        }
    }

    const fn of(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Operator),
            1 => Some(Self::Querier),
            _ => None,
        }
    }
}

/// A number that only the device can predict. Each challenge of a device is another number.
///
/// If another party could predict a challenge, it could have a statement for the challenge signed in
/// advance, and thus deliver an old time later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeChallenge(pub [u8; 16]);

impl TimeChallenge {
    /// Returns challenge number `count` of a device after its start number `starts`. `secret` is a
    /// secret of the device.
    #[must_use]
    pub fn new(secret: &[u8; 32], starts: u32, count: u32) -> Self {
        let label = b"moteseal/1/time/challenge\0";
        let whole = Digest::of(&[label, secret, &starts.to_be_bytes(), &count.to_be_bytes()]);
        let mut challenge = [0; 16];
        challenge.copy_from_slice(&whole.0[..16]);
        Self(challenge)
    }
}

/// What a signer of the time states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeStatement {
    /// The group.
    pub group: GroupId,
    /// The device for which the time is signed.
    pub device: DeviceId,
    /// The device's challenge.
    pub challenge: TimeChallenge,
    /// The time at which the statement was signed, in Unix milliseconds.
    pub unix_ms: u64,
}

impl TimeStatement {
    /// Signs the statement and writes it to `out` ([`MAX_TIME_STATEMENT`] bytes suffice).
    ///
    /// # Errors
    /// [`IssueError`].
    pub fn issue<'o>(
        &self,
        role: TimeSigner,
        signer: &dyn Signer,
        out: &'o mut [u8],
    ) -> Result<&'o [u8], IssueError> {
        let (mut header, mut payload) = ([0; _], [0; PAYLOAD]);
        let header = protected(signer.algorithm(), Typ::Time, &mut header)?;
        let payload = self.write(role, &mut payload)?;
        let signature = signer.signature(sig_structure(out, header, payload)?)?;
        let mut out = Writer::new(out);
        Sign1::encode(&mut out, header, payload, &signature)?;
        Ok(out.finish())
    }

    fn write<'o>(&self, role: TimeSigner, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let mut out = Writer::new(out);
        out.array(6)?.uint(1u8)?.bytes(&self.group.0)?.bytes(&self.device.0)?;
        out.bytes(&self.challenge.0)?.uint(self.unix_ms)?.uint(role.number())?;
        Ok(out.finish())
    }

    /// Reads a statement, and checks that it is for this device, answers this challenge, and is
    /// signed by one of the signers. `key` returns the public key of a signer, or `None` if the
    /// device accepts no time of this signer.
    ///
    /// # Errors
    /// [`TimeError`].
    pub fn open<'k>(
        bytes: &[u8],
        (group, device): (GroupId, DeviceId),
        challenge: TimeChallenge,
        key: impl FnOnce(TimeSigner) -> Option<&'k PublicKey>,
    ) -> Result<Self, TimeError> {
        let object = Sign1::decode(bytes, Typ::Time)?;
        if object.payload.len() > PAYLOAD {
            return Err(DecodeError::FieldOutOfRange.into());
        }
        let mut reader = Reader::new(object.payload)?;
        reader.array(6)?;
        reader.version()?;
        let statement = Self {
            group: GroupId(reader.fixed()?),
            device: DeviceId(reader.fixed()?),
            challenge: TimeChallenge(reader.fixed()?),
            unix_ms: reader.u64()?,
        };
        let role = TimeSigner::of(reader.u64()?).ok_or(DecodeError::FieldOutOfRange)?;
        if statement.group != group {
            return Err(TimeError::WrongGroup);
        }
        if statement.device != device {
            return Err(TimeError::OtherDevice);
        }
        if statement.challenge != challenge {
            return Err(TimeError::WrongChallenge);
        }
        let key = key(role).ok_or(TimeError::UnknownSigner)?;
        if object.header.algorithm != key.algorithm() {
            return Err(TimeError::AlgorithmMismatch);
        }
        let mut scratch = [0; PAYLOAD + 64];
        let message = object.message(&mut scratch).map_err(|_| DecodeError::FieldOutOfRange)?;
        key.verify(message, object.signature)?;
        Ok(statement)
    }
}

/// The times that are possible now, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// It is this time or later.
    pub earliest_ms: u64,
    /// It is this time or earlier.
    pub latest_ms: u64,
}

/// An accepted statement, from which the device computes the time with its own timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeAnchor {
    unix_ms: u64,
    sent_ms: u64,
    received_ms: u64,
}

impl TimeAnchor {
    /// Creates an anchor. `sent_ms` and `received_ms` are the times of the device's timer at which
    /// it sent the challenge and received the statement.
    ///
    /// # Errors
    /// `TimeLate` if more than [`MAX_DELAY_MS`] are between the two.
    pub const fn new(
        statement: &TimeStatement,
        sent_ms: u64,
        received_ms: u64,
    ) -> Result<Self, TimeError> {
        if received_ms.saturating_sub(sent_ms) > MAX_DELAY_MS {
            return Err(TimeError::TimeLate);
        }
        Ok(Self { unix_ms: statement.unix_ms, sent_ms, received_ms })
    }

    /// Returns the possible times when the device's timer shows `now_ms`.
    ///
    /// The statement was signed between the two times of the anchor. The real elapsed time differs
    /// from that of the timer by at most 488 ppm.
    #[must_use]
    pub const fn range(&self, now_ms: u64) -> TimeRange {
        let least = now_ms.saturating_sub(self.received_ms);
        let most = now_ms.saturating_sub(self.sent_ms);
        TimeRange {
            earliest_ms: self.unix_ms.saturating_add(least - least.div_ceil(1 << RATE_SHIFT)),
            latest_ms: self
                .unix_ms
                .saturating_add(most)
                .saturating_add(most.div_ceil(1 << RATE_SHIFT)),
        }
    }
}
