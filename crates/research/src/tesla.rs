//! uTESLA: authenticated broadcast with hashes only, for motes that cannot check a signature
//! .
//!
//! It follows Perrig et al., "SPINS" (Wireless Networks 8, 2002), section 5, and RFC 4082, sections
//! 3.2 to 3.5. A sender tags the messages of an interval with a key that it discloses `d` intervals
//! later. Each key is the hash of the next one, so that a receiver can check a disclosed key but
//! cannot compute later ones. A receiver keeps a message that arrived while its key was secret, and
//! accepts the message after the key is disclosed.
//!
//! A receiver needs a clock that is right within a stated offset, waits `d` intervals for every
//! message, and cannot prove anything to third parties. A device that can check signatures should
//! use a signed chain instead.
//!
//! This module contains the schedule, the parameters and the hash functions of a chain of keys.
//! [`sender`] and [`receiver`] contain the two parties. Times and bytes are arguments, and the
//! memory is fixed. Nodes do not relay packets, because a packet cannot be verified before its key
//! is disclosed.

use core::fmt;
use moteseal_core::named_errors;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};

use moteseal_broadcast::{ChainId, ChainNumber, ChainRef};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::digest;
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;

pub mod receiver;
pub mod sender;
pub mod wire;

/// The length of a key of the chain in bytes (128 bits). Each step also hashes the number of its
/// interval, so that an attacker must attack each step of each chain separately.
pub const KEY: usize = 16;
/// The length of a packet's tag in bytes (64 bits). A forger must guess the tag. It learns whether
/// the guess was right only after the key is disclosed, when the receiver accepts no further
/// packets for that key. The receiver checks at most as many guesses as it has places for packets,
/// so 64 bits suffice. A longer tag would waste radio time.
pub const TAG: usize = 8;
/// The maximum length of a message, in bytes.
pub const MAX_MESSAGE: usize = 4096;
/// The maximum number of intervals of a chain: twelve days with intervals of one second.
pub const MAX_INTERVALS: u32 = 1 << 20;
/// The maximum length of encoded [`Parameters`].
pub const MAX_PARAMETERS: usize = 72;

/// A key of the chain. It is secret until `d` intervals after its own interval, and public from
/// then on.
pub type ChainKey = [u8; KEY];

named_errors! {
    /// Why a schedule is invalid.
    ScheduleError {
        /// The length of an interval is 0.
        IntervalOutOfRange => "an interval must last at least a millisecond",
        /// Keys would be disclosed in the interval in which they are used.
        DelayOutOfRange => "a key must stay secret for at least one interval after its own interval",
        /// The number of intervals is 0 or above [`MAX_INTERVALS`].
        TooManyIntervals => "a chain has 1 to 1,048,576 intervals",
        /// The last key would be disclosed after 2^64 - 1 ms.
        EndsTooLate => "the last key must be disclosed before 2^64 ms",
    }
}

named_errors! {
    /// Why parameters were rejected.
    ParametersError {
        /// The bytes are not encoded parameters, or the schedule is invalid.
        Malformed => "the bytes are not the parameters of a chain of keys",
        /// The parameters belong to another network.
        WrongNetwork => "the parameters belong to another network",
        /// The parameters belong to another sender.
        WrongSender => "the parameters belong to another sender",
        /// The chain of keys has a higher number than the signed chain that carried the parameters.
        WrongChain => "the parameters have a higher chain number than the signed chain that carried them",
    }
}

impl From<DecodeError> for ParametersError {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

/// The times at which a sender uses and discloses its keys. Interval `i` begins at `start_ms + i *
/// interval_ms` on the sender's clock. Interval 0 has no messages; its key is public from the
/// start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The network, the sender and the chain number. The number is either the number of the signed
    /// chain that first carried the parameters, or higher than every earlier number of the sender.
    pub id: ChainId,
    /// The start of interval 0, in Unix milliseconds: `T_0` of RFC 4082.
    pub start_ms: u64,
    /// The length of an interval in milliseconds: `T_int`.
    pub interval_ms: u32,
    /// `d`: the key of interval `i` is disclosed from the start of interval `i + d` on. `d`
    /// intervals must cover the longest delay of a message plus the clock offset. Otherwise genuine
    /// packets arrive too late to be safe.
    pub delay: u8,
    /// The last interval that has messages.
    pub last: u32,
}

impl Schedule {
    /// Checks the schedule.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn check(&self) -> Result<(), ScheduleError> {
        if self.interval_ms == 0 {
            return Err(ScheduleError::IntervalOutOfRange);
        }
        if self.delay == 0 {
            return Err(ScheduleError::DelayOutOfRange);
        }
        if !(1..=MAX_INTERVALS).contains(&self.last) {
            return Err(ScheduleError::TooManyIntervals);
        }
        // `end` is the end of the interval in which the last key is disclosed.
        let intervals = u64::from(self.last) + u64::from(self.delay) + 1;
        let end = intervals
            .checked_mul(self.interval_ms.into())
            .and_then(|length| length.checked_add(self.start_ms));
        end.map(|_| ()).ok_or(ScheduleError::EndsTooLate)
    }

    /// Returns the interval at a time of the sender's clock, in Unix milliseconds; `None` before
    /// interval 0.
    #[must_use]
    pub fn interval_at(&self, ms: u64) -> Option<u64> {
        // A checked schedule has intervals of at least one millisecond.
        ms.checked_sub(self.start_ms)?.checked_div(self.interval_ms.into())
    }

    /// Returns the reference that names the chain in frames.
    #[must_use]
    pub fn reference(&self) -> ChainRef {
        let mut reference = [0; 8];
        reference.copy_from_slice(&Sha256::digest(self.prefix(Function::Step))[..8]);
        ChainRef(reference)
    }

    /// Returns the block that precedes the input of a hash function.
    fn prefix(&self, function: Function) -> [u8; 64] {
        let mut block = [0; 64];
        block[..24].copy_from_slice(&digest::tag::<24>(b"moteseal/tesla/1"));
        block[24..32].copy_from_slice(&self.id.network.0);
        block[32..40].copy_from_slice(&self.id.sender.0);
        block[40..48].copy_from_slice(&self.id.number.0.to_be_bytes());
        block[48] = function as u8;
        block
    }
}

/// The parameters that a receiver needs before it can receive: a schedule and one disclosed key of
/// the chain.
///
/// Parameters arrive as the only message of a signed chain with the label `tesla`, or on an
/// authenticated link to each receiver, as in SPINS. Do not trust parameters from any other source.
/// A later signed chain may repeat them with a newer key, for receivers that join late. Before a
/// receiver starts, it must store the chain number durably; from then on it must reject lower
/// numbers of this sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The schedule.
    pub schedule: Schedule,
    /// The interval of the known key: 0 at the start of the chain, later for receivers that join
    /// late, and the last interval when the chain is over.
    pub committed: u32,
    /// The known key.
    pub key: ChainKey,
}

impl Parameters {
    /// Writes `[1, network, sender, chain, start, interval, delay, last, committed, key]`.
    ///
    /// # Errors
    /// [`BufferTooSmall`]; [`MAX_PARAMETERS`] bytes suffice.
    pub fn encode<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], BufferTooSmall> {
        let Schedule {
            id: ChainId { network, sender, number },
            start_ms,
            interval_ms,
            delay,
            last,
        } = self.schedule;
        let mut out = Writer::new(out);
        out.array(10)?
            .uint(1u8)?
            .bytes(&network.0)?
            .bytes(&sender.0)?
            .uint(number.0)?
            .uint(start_ms)?
            .uint(interval_ms)?;
        out.uint(delay)?.uint(last)?.uint(self.committed)?.bytes(&self.key)?;
        Ok(out.finish())
    }

    /// Reads parameters that arrived in the signed chain `outer`. They must have the network and
    /// the sender of `outer`. Their number must not be higher; it may be lower, so that later
    /// signed chains can repeat the parameters. If they arrived on an authenticated link instead,
    /// pass an `outer` with the highest number that the caller expects. The caller must check that
    /// the parameters are authentic, and that no newer chain of keys is known.
    ///
    /// # Errors
    /// [`ParametersError`].
    pub fn decode(bytes: &[u8], outer: ChainId) -> Result<Self, ParametersError> {
        let mut reader = Reader::new(bytes)?;
        reader.array(10)?;
        reader.version()?;
        let id = ChainId {
            network: NetworkId(reader.fixed()?),
            sender: DeviceId(reader.fixed()?),
            number: ChainNumber(reader.u64()?),
        };
        let schedule = Schedule {
            id,
            start_ms: reader.u64()?,
            interval_ms: reader.uint()?,
            delay: reader.uint()?,
            last: reader.uint()?,
        };
        let parameters = Self { schedule, committed: reader.uint()?, key: reader.fixed()? };
        if schedule.check().is_err() || parameters.committed > schedule.last {
            return Err(ParametersError::Malformed);
        }
        if id.network != outer.network {
            return Err(ParametersError::WrongNetwork);
        }
        if id.sender != outer.sender {
            return Err(ParametersError::WrongSender);
        }
        if id.number.0 > outer.number.0 {
            return Err(ParametersError::WrongChain);
        }
        Ok(parameters)
    }
}

/// The hash function that a prefix block names.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Function {
    /// `F`: maps a key to the previous one.
    Step = 0,
    /// `F'`: maps a key of the chain to the key that tags messages.
    Mac = 1,
}

/// The hash functions `F` and `F'` of one chain. Each is SHA-256 over a block that names the
/// network, the sender, the chain and the function, followed by the input. The block is hashed
/// once, so each call costs one compression. Because of the block, a key of one chain or function
/// reveals nothing about keys of other chains or functions.
#[derive(Clone)]
struct Functions {
    step: Sha256,
    mac: Sha256,
}

impl Functions {
    fn new(schedule: &Schedule) -> Self {
        let [step, mac] = [Function::Step, Function::Mac]
            .map(|function| Sha256::new_with_prefix(schedule.prefix(function)));
        Self { step, mac }
    }

    /// Returns the key of the previous interval: the first 16 bytes of `F(i, K_i) = SHA-256(P(0) ||
    /// i || K_i)`.
    fn before(&self, interval: u32, key: &ChainKey) -> ChainKey {
        let mut before = [0; KEY];
        before.copy_from_slice(&of(&self.step, interval, key)[..KEY]);
        before
    }

    /// Returns the tag of a message: the first 8 bytes of its HMAC-SHA256 under the key `F'(i, K_i)
    /// = SHA-256(P(1) || i || K_i)`.
    fn tag(&self, interval: u32, key: &ChainKey, message: &[u8]) -> [u8; TAG] {
        #[allow(clippy::expect_used)]
        let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&of(&self.mac, interval, key))
            .expect("HMAC takes keys of any length");
        let mut tag = [0; TAG];
        tag.copy_from_slice(&mac.chain_update(message).finalize().into_bytes()[..TAG]);
        tag
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Functions")
    }
}

fn of(function: &Sha256, interval: u32, key: &ChainKey) -> [u8; 32] {
    function.clone().chain_update(interval.to_be_bytes()).chain_update(key).finalize().into()
}
