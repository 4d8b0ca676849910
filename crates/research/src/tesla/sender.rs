//! The sender of uTESLA. It produces keys in order with little memory, tags packets, and discloses
//! keys when they are due.
//!
//! Each key is the hash of the next one, but the sender uses the keys in the opposite order, from
//! the first to the last. [`KeyChain`] keeps only `log2 n` of the `n` keys, called pebbles, and
//! computes the next key in about `log2 n` hashes per interval (Jakobsson, "Fractal hash sequence
//! representation and traversal", ISIT 2002).

use core::fmt;
use moteseal_core::named_errors;

use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::tesla::wire::TeslaFrame;
use crate::tesla::{
    ChainKey, Functions, KEY, MAX_INTERVALS, MAX_MESSAGE, Parameters, Schedule, ScheduleError,
};
use moteseal_core::cbor::{BufferTooSmall, Writer};

/// The number of pebbles (stored keys) of the longest chain.
const PEBBLES: usize = MAX_INTERVALS.ilog2() as usize;
/// The maximum number of intervals that a sender skips without [`Sender::leap_to`]. The limit
/// guards against a wrong clock: a key that is disclosed early can no longer protect messages, and
/// receivers cannot detect a key that is too far ahead.
pub const MAX_LEAP: u32 = 1024;
/// The position of a pebble that is no longer needed.
const DONE: u32 = u32::MAX;

named_errors! {
    /// Why a sender produced no frame.
    SenderError {
        /// Interval 0 is not over. It has no messages, because its key is public.
        NotStarted => "the first interval with messages has not begun",
        /// The last interval is over. Continue with a new chain.
        Ended => "the last interval is over; start a new chain",
        /// The clock shows an earlier interval than one that was already used. The keys of that
        /// earlier interval may already be public.
        ClockWentBack => "the clock was set back to an interval before one that was used",
        /// The clock shows more than [`MAX_LEAP`] intervals after the last one used, and
        /// [`Sender::leap_to`] was not called.
        LeapTooLong => "the clock is more than 1,024 intervals after the last one used; check the clock, and skip ahead if it is right",
        /// The message is longer than [`MAX_MESSAGE`].
        MessageTooLong => "a message has at most 4,096 bytes",
        /// The caller's buffer is too small for the frame.
        BufferTooSmall => "the frame does not fit the buffer",
    }
}

impl From<BufferTooSmall> for SenderError {
    fn from(_: BufferTooSmall) -> Self {
        Self::BufferTooSmall
    }
}

/// A pebble: a stored key of interval `at`, which moves step by step down to the interval
/// `destination`, where it is needed.
#[derive(Clone, Copy, Default, Zeroize)]
struct Pebble {
    key: ChainKey,
    at: u32,
    destination: u32,
    /// The pebble is needed every `2^(level + 1)` intervals.
    level: u32,
}

/// Produces the keys of a chain in order, starting with the first. The content is secret.
#[derive(Zeroize, ZeroizeOnDrop)]
struct KeyChain {
    #[zeroize(skip)]
    functions: Functions,
    /// The first `levels` pebbles are in use, ordered by destination.
    pebbles: [Pebble; PEBBLES],
    levels: usize,
    /// The interval of the current key.
    current: u32,
    key: ChainKey,
    /// The number of calls of `F` so far.
    #[cfg(test)]
    #[zeroize(skip)]
    steps: u64,
}

impl KeyChain {
    /// Computes the whole chain once. `secret` is the key of interval `n`, the smallest power of
    /// two that is at least 2 and at least `last`.
    fn new(functions: Functions, last: u32, secret: ChainKey) -> Self {
        let mut chain = Self {
            functions,
            pebbles: [Pebble::default(); PEBBLES],
            levels: last.next_power_of_two().ilog2().max(1) as usize,
            current: 0,
            key: secret,
            #[cfg(test)]
            steps: 0,
        };
        for at in (1..=1 << chain.levels).rev() {
            if at > 1 && u32::is_power_of_two(at) {
                let level = at.ilog2();
                chain.pebbles[level as usize - 1] =
                    Pebble { key: chain.key, at, destination: at, level };
            }
            chain.key = chain.functions.before(at, &chain.key);
        }
        chain
    }

    fn before(&mut self, at: u32, key: &ChainKey) -> ChainKey {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        self.functions.before(at, key)
    }

    /// Advances to the key of the next interval. The caller must not advance beyond the last
    /// interval.
    fn advance(&mut self) {
        self.current += 1;
        for i in 0..self.levels {
            let Pebble { key, at, destination, .. } = self.pebbles[i];
            if at != destination && at != DONE {
                let between = self.before(at, &key);
                self.pebbles[i].key = self.before(at - 1, &between);
                self.pebbles[i].at = at - 2;
            }
        }
        let nearest = self.pebbles[0];
        if self.current % 2 == 1 {
            self.key = self.before(nearest.at, &nearest.key);
            return;
        }
        self.key = nearest.key;
        // The pebble is used up. It starts again from the key of a later interval and moves towards
        // the next interval that needs it.
        let (destination, at) =
            (nearest.at + (2 << nearest.level), nearest.at + (3 << nearest.level));
        let from = self.pebbles[..self.levels]
            .iter()
            .find(|pebble| pebble.at == at)
            .map(|pebble| pebble.key);
        self.pebbles[0] = match from {
            Some(key) if destination < 1 << self.levels => {
                Pebble { key, at, destination, level: nearest.level }
            }
            _ => Pebble { key: [0; KEY], at: DONE, destination: DONE, level: nearest.level },
        };
        // Put the pebble that is needed next first. No two pebbles have the same destination.
        self.pebbles[..self.levels].sort_unstable_by_key(|pebble| pebble.destination);
    }
}

/// A sender of one chain.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Sender {
    #[zeroize(skip)]
    schedule: Schedule,
    commitment: ChainKey,
    /// The highest interval used so far. It may be after the chain's last interval, unlike the
    /// interval of the current key.
    served: u64,
    keys: KeyChain,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("schedule", &self.schedule)
            .field("interval", &self.keys.current)
            .finish_non_exhaustive()
    }
}

impl Sender {
    /// Creates a sender of a new chain. `secret` is 16 bytes of fresh randomness that is used for
    /// this chain only. The call computes about `last` hashes: the smallest power of two that is at
    /// least `last`.
    ///
    /// A sender that loses its memory must start a new chain, because it does not know which keys
    /// it has disclosed.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn new(schedule: Schedule, secret: ChainKey) -> Result<Self, ScheduleError> {
        schedule.check()?;
        let keys = KeyChain::new(Functions::new(&schedule), schedule.last, secret);
        Ok(Self { schedule, commitment: keys.key, served: 0, keys })
    }

    /// Returns the parameters with the key of interval 0, for receivers that join when the chain
    /// starts.
    #[must_use]
    pub const fn parameters(&self) -> Parameters {
        Parameters { schedule: self.schedule, committed: 0, key: self.commitment }
    }

    /// Returns the parameters for receivers that join late. They contain the newest key `K_i` for
    /// which `i < j - d` in the current interval `j` (RFC 4082, section 3.4). With this key,
    /// receivers need not compute keys back to the start of the chain.
    ///
    /// # Errors
    /// `ClockWentBack`, `LeapTooLong`.
    pub fn parameters_at(&mut self, now_ms: u64) -> Result<Parameters, SenderError> {
        let now = self.advance_to(now_ms)?;
        let newest = now
            .saturating_sub(u64::from(self.schedule.delay) + 1)
            .min(u64::from(self.schedule.last) - 1);
        let committed = u32::try_from(newest).unwrap_or(0);
        Ok(Parameters { schedule: self.schedule, committed, key: self.key_of(committed) })
    }

    /// Writes the packet of a message. Send it before the current interval is over.
    ///
    /// If the same message is sent twice in one interval, receivers return it only once.
    ///
    /// # Errors
    /// [`SenderError`].
    pub fn packet<'o>(
        &mut self,
        now_ms: u64,
        message: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], SenderError> {
        if message.len() > MAX_MESSAGE {
            return Err(SenderError::MessageTooLong);
        }
        let now = self.advance_to(now_ms)?;
        if now == 0 {
            return Err(SenderError::NotStarted);
        }
        if now > self.schedule.last.into() {
            return Err(SenderError::Ended);
        }
        let interval = self.keys.current;
        let tag = self.keys.functions.tag(interval, &self.keys.key, message);
        let mut out = Writer::new(out);
        TeslaFrame::Packet { chain: self.schedule.reference(), interval, message, tag }
            .encode(&mut out)?;
        Ok(out.finish())
    }

    /// Writes the frame of the newest key that may be disclosed: in interval `j`, this is the key
    /// of interval `j - d`. Returns `None` while no key may be disclosed yet. Send the frame once
    /// per interval, or more often if many frames are lost. Receivers can compute lost keys from
    /// any later key.
    ///
    /// # Errors
    /// `ClockWentBack`, `LeapTooLong`, `BufferTooSmall`.
    pub fn disclosure<'o>(
        &mut self,
        now_ms: u64,
        out: &'o mut [u8],
    ) -> Result<Option<&'o [u8]>, SenderError> {
        let now = self.advance_to(now_ms)?;
        let newest = now.saturating_sub(self.schedule.delay.into()).min(self.schedule.last.into());
        let Some(interval) = u32::try_from(newest).ok().filter(|interval| *interval > 0) else {
            return Ok(None);
        };
        let mut out = Writer::new(out);
        TeslaFrame::Key { chain: self.schedule.reference(), interval, key: self.key_of(interval) }
            .encode(&mut out)?;
        Ok(Some(out.finish()))
    }

    /// Skips any number of intervals, for example after a long silence or a late start. The caller
    /// must make sure that the clock is right, because the sender may then disclose the keys of all
    /// intervals up to `d` intervals before the new one.
    ///
    /// # Errors
    /// `ClockWentBack`.
    pub fn leap_to(&mut self, now_ms: u64) -> Result<(), SenderError> {
        self.step_to(self.schedule.interval_at(now_ms).unwrap_or(0)).map(|_| ())
    }

    /// Advances to the key of the current interval, or of the chain's last interval if that is
    /// earlier. Fails if this would skip more than [`MAX_LEAP`] intervals. Returns the current
    /// interval, or 0 before the chain starts.
    fn advance_to(&mut self, now_ms: u64) -> Result<u64, SenderError> {
        let now = self.schedule.interval_at(now_ms).unwrap_or(0);
        if now.min(self.schedule.last.into()) > u64::from(self.keys.current) + u64::from(MAX_LEAP) {
            return Err(SenderError::LeapTooLong);
        }
        self.step_to(now)
    }

    fn step_to(&mut self, now: u64) -> Result<u64, SenderError> {
        if now < self.served {
            return Err(SenderError::ClockWentBack);
        }
        self.served = now;
        while u64::from(self.keys.current) < now.min(self.schedule.last.into()) {
            self.keys.advance();
        }
        Ok(now)
    }

    /// Returns an earlier key, which is at most `d + 1` steps away. The key of interval 0 is
    /// stored.
    fn key_of(&self, interval: u32) -> ChainKey {
        if interval == 0 {
            return self.commitment;
        }
        (interval + 1..=self.keys.current)
            .rev()
            .fold(self.keys.key, |key, at| self.keys.functions.before(at, &key))
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use moteseal_broadcast::{ChainId, ChainNumber};
    use moteseal_core::record::DeviceId;
    use moteseal_core::record::NetworkId;

    fn functions() -> Functions {
        Functions::new(&Schedule {
            id: ChainId {
                network: NetworkId([1; 8]),
                sender: DeviceId([2; 8]),
                number: ChainNumber(3),
            },
            start_ms: 0,
            interval_ms: 1,
            delay: 1,
            last: 1,
        })
    }

    #[test]
    fn finds_every_key_of_short_chains_in_few_steps() {
        for levels in 1..=13_u32 {
            let last = 1_u32 << levels;
            let mut keys: Vec<ChainKey> = std::vec![[9; KEY]];
            for at in (1..=last).rev() {
                keys.push(functions().before(at, &keys[keys.len() - 1]));
            }
            keys.reverse();
            let mut chain = KeyChain::new(functions(), last, [9; KEY]);
            assert_eq!(
                (chain.levels, chain.key),
                (levels as usize, keys[0]),
                "the commitment of {last}"
            );
            let mut most = 0;
            for i in 1..=last {
                let before = chain.steps;
                chain.advance();
                assert_eq!(chain.key, keys[i as usize], "key {i} of {last}");
                most = most.max(chain.steps - before);
            }
            assert!(most <= u64::from(levels) + 1, "{most} steps for one key of {last}");
            assert!(
                chain.steps <= u64::from(last) * u64::from(levels) / 2 + 1,
                "{} steps for all of {last}",
                chain.steps
            );
        }
    }

    #[test]
    fn a_chain_has_the_length_of_a_power_of_two() {
        for (last, levels) in
            [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (1000, 10), (1024, 10), (1025, 11)]
        {
            assert_eq!(KeyChain::new(functions(), last, [9; KEY]).levels, levels, "{last}");
        }
        assert_eq!(PEBBLES, 20);
    }
}
