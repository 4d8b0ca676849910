//! uTESLA: authenticated broadcast with nothing but hashes, for motes that cannot check a signature (spec/tesla.md).
//!
//! After Perrig et al., "SPINS" (Wireless Networks 8, 2002), section 5, and RFC 4082, sections 3.2 to 3.5: a sender tags what it says in an
//! interval under a key that it tells everybody `d` intervals later; the keys are a one-way chain, walked from its end. A receiver keeps what
//! came while the key was still secret, and takes it once the key is out. It needs a clock that is right to within a stated offset, waits
//! `d` intervals for every message, and can prove nothing to third parties: who can check a signature uses a chain instead.
//!
//! Here are the schedule, the parameters and the functions of a chain of keys; who speaks is [`sender`], who listens [`receiver`]. Time and
//! bytes come in as arguments, memory is fixed, and nothing is forwarded: what cannot be checked yet is nobody's to relay.

use core::fmt;
use moteseal_core::named_errors;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};

use crate::{ChainId, ChainNumber, ChainRef};
use moteseal_core::cbor::{BufferTooSmall, DecodeError, Reader, Writer};
use moteseal_core::digest;
use moteseal_core::record::DeviceId;
use moteseal_core::record::NetworkId;

pub mod receiver;
pub mod sender;
pub mod wire;

/// Bytes of a key of the chain: 128 bits, each step with a number of its own in the hash, so that no two steps of any two chains can be
/// attacked at once.
pub const KEY: usize = 16;
/// Bytes of a packet's tag. A forger has one try a packet and learns only afterwards whether it was right, when the key is out and the try
/// worthless; of the tries a receiver looks at as many as it has places. 64 bits suffice for that, and 8 bytes a packet are dear on a radio.
pub const TAG: usize = 8;
/// A message is at most this long, in bytes.
pub const MAX_MESSAGE: usize = 4096;
/// A chain is at most this many intervals long: twelve days of seconds.
pub const MAX_INTERVALS: u32 = 1 << 20;
/// Bytes of [`Parameters`], encoded, at most.
pub const MAX_PARAMETERS: usize = 72;

/// A key of the chain. Secret until its interval is `d` intervals old, and public from then on.
pub type ChainKey = [u8; KEY];

named_errors! {
    /// Why a schedule cannot be kept.
    ScheduleError {
        /// Intervals of no length.
        IntervalOutOfRange => "an interval must last at least a millisecond",
        /// Keys that are told in the interval they are used in.
        DelayOutOfRange => "a key must stay secret for at least one interval after its own",
        /// No interval, or more than [`MAX_INTERVALS`].
        TooManyIntervals => "a chain has 1 to 1,048,576 intervals",
        /// The last key would be told after 2^64 - 1 ms.
        EndsTooLate => "the last key must be told within 64 bits of milliseconds",
    }
}

named_errors! {
    /// Why bytes are not the parameters that were expected.
    ParametersError {
        /// Not the encoding of parameters, or of a schedule that cannot be kept.
        Malformed => "these are not the parameters of a chain of keys",
        /// Of another network.
        WrongNetwork => "the parameters are of another network",
        /// Of another sender.
        WrongSender => "the parameters are another sender's",
        /// Of a chain with a higher number than what they came in.
        WrongChain => "the parameters are of a chain with a higher number than the signed chain that they came in",
    }
}

impl From<DecodeError> for ParametersError {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

/// Who speaks, and when which key is used and told. Interval `i` is from `start_ms + i * interval_ms` on, by the sender's clock; interval 0
/// has no messages, its key is the first that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Network, sender and number: that of the signed chain that the parameters first came in, or one above any that the sender had before.
    pub id: ChainId,
    /// When interval 0 begins, in Unix milliseconds: `T_0` of RFC 4082.
    pub start_ms: u64,
    /// The length of an interval in milliseconds: `T_int`.
    pub interval_ms: u32,
    /// `d`: the key of interval `i` is told from the beginning of interval `i + d` on. More than the longest way of a message plus the clock
    /// offset, or honest packets come too late to be safe.
    pub delay: u8,
    /// The last interval that has messages.
    pub last: u32,
}

impl Schedule {
    /// Checks that it can be kept.
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
        // The end of the interval in which the last key is told.
        let intervals = u64::from(self.last) + u64::from(self.delay) + 1;
        let end = intervals
            .checked_mul(self.interval_ms.into())
            .and_then(|length| length.checked_add(self.start_ms));
        end.map(|_| ()).ok_or(ScheduleError::EndsTooLate)
    }

    /// The interval at a time of the sender's clock, in Unix milliseconds; `None` before interval 0.
    #[must_use]
    pub fn interval_at(&self, ms: u64) -> Option<u64> {
        // A schedule that was checked has intervals of some length.
        ms.checked_sub(self.start_ms)?.checked_div(self.interval_ms.into())
    }

    /// The eight bytes that stand for the chain in frames.
    #[must_use]
    pub fn reference(&self) -> ChainRef {
        let mut reference = [0; 8];
        reference.copy_from_slice(&Sha256::digest(self.prefix(Function::Step))[..8]);
        ChainRef(reference)
    }

    /// The block that a function's hashes begin with.
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

/// What a receiver must know for certain before it listens: a schedule and one key of the chain, which is public already.
///
/// They come as the one message of a signed chain with the label `tesla`, or by an authenticated link to each receiver, as in SPINS. What
/// comes by another way is worth nothing. A later signed chain may say them again, with a newer key, for those who join late. Either way the receiver, before it listens, makes durable that it knows this chain number, and takes
/// no lower one from this sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The schedule.
    pub schedule: Schedule,
    /// The interval of the known key; 0 at the chain's beginning, later for those who join late, and the last one when all is said.
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

    /// Reads parameters that came in the signed chain `outer`, or by a link: of its network and sender, and with no higher number, so that they
    /// can be said again. By an authenticated link the number is the highest that the caller expects. That they are authentic, and not of a chain
    /// before the newest that this receiver has known, is the caller's to know.
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

/// Which function a prefix block is for.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Function {
    /// `F`, from a key to the one before.
    Step = 0,
    /// `F'`, from a key of the chain to the one that tags.
    Mac = 1,
}

/// `F` and `F'` of one chain: SHA-256 behind a block that names network, sender, chain and function, hashed once. So each is one compression,
/// and a key of one chain, function or interval says nothing about any other.
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

    /// The key of the interval before: `F(i, K_i) = SHA-256(P(0) || i || K_i)`, its first 16 bytes.
    fn before(&self, interval: u32, key: &ChainKey) -> ChainKey {
        let mut before = [0; KEY];
        before.copy_from_slice(&of(&self.step, interval, key)[..KEY]);
        before
    }

    /// The tag of a message: HMAC-SHA256 under `F'(i, K_i) = SHA-256(P(1) || i || K_i)`, its first 8 bytes.
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
