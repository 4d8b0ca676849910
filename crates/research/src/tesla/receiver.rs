//! The receiver of uTESLA. It keeps packets that arrived in time, verifies keys before it uses
//! them, and returns the messages whose tags match.
//!
//! The checks follow the order of RFC 4082, section 3.5: the packet is safe (its key was still
//! secret when it arrived), the key is new, hashing the key yields the newest known key, and the
//! tag matches. Until a key is disclosed, a forged packet cannot be distinguished from a genuine
//! one. The number of places for packets is therefore small and fixed, and if too many packets
//! arrive, the receiver chooses at random which ones to keep.

use core::fmt;
use moteseal_core::named_errors;

use crate::tesla::wire::TeslaFrame;
use crate::tesla::{ChainKey, Functions, Parameters, Schedule, TAG};
use moteseal_broadcast::ChainRef;

named_errors! {
    /// Why a packet was rejected.
    PacketError {
        /// The frame belongs to another chain.
        WrongChain => "the frame belongs to another chain",
        /// The packet is of interval 0, which has no messages.
        NoSuchInterval => "interval 0 has no messages",
        /// The interval is after the chain's last one.
        BeyondEnd => "the interval is after the last one of the chain",
        /// The sender cannot have reached the interval, even if its clock is ahead by the allowed
        /// offset.
        FutureInterval => "the interval has not begun, even with the allowed clock offset",
        /// The key may already be public, according to the clock or because it was received.
        NotSafe => "the key of the interval may already be public",
        /// The message is longer than the place that this receiver has for a packet.
        MessageTooLong => "the message is longer than this receiver can keep",
        /// The same packet was received before.
        Repeated => "the packet was received before",
        /// More packets arrived than there are places. The receiver chooses at random which packets
        /// it keeps.
        NoRoom => "more packets arrived in the interval than the receiver can keep",
    }
}

named_errors! {
    /// Why a key was rejected.
    KeyError {
        /// The frame belongs to another chain.
        WrongChain => "the frame belongs to another chain",
        /// The interval is after the chain's last one.
        BeyondEnd => "the interval is after the last one of the chain",
        /// The newest known key was received again.
        Repeated => "the key is already known",
        /// The key belongs to an earlier interval than the newest known key.
        OldKey => "a newer key is known",
        /// The key is more than `steps` intervals after the newest known key. If the key is due,
        /// the receiver needs newer parameters. The receiver does not verify such a key. If a
        /// genuine key was disclosed this far ahead of time, the receiver does not notice it.
        TooManySteps => "the key is too far from the newest known one; newer parameters are needed",
        /// The budget of hashes for this interval of the receiver's clock is used up, so the key
        /// was not checked. The next interval has a new budget.
        BudgetSpent => "this interval's budget of steps along the chain is used up",
        /// Hashing the key repeatedly does not yield the newest known key.
        ForgedKey => "the key is not one of this chain",
        /// A genuine key arrived before it was due, so the sender's clock is further ahead than the
        /// settings state. The packets that waited for the key were dropped, because an attacker
        /// may have known the key and forged them.
        ClockTooFarOff => "a genuine key arrived too early: the clocks differ by more than the allowed offset; set the clock",
    }
}

named_errors! {
    /// Why creating a receiver failed.
    ReceiverError {
        /// There are too few rows. The receiver keeps packets of every interval whose key is not
        /// yet disclosed, up to the newest interval that can have begun. Each of these intervals
        /// needs a row.
        TooFewRows => "the receiver has too few rows: it needs rows for the disclosure delay, for one more interval, and for the clock offset",
    }
}

/// The settings of a receiver. `Debug` omits the seed.
#[derive(Clone, Copy)]
pub struct Settings {
    /// The maximum by which the sender's clock may be ahead of the receiver's, in milliseconds:
    /// `D_t` of RFC 4082.
    pub offset_ms: u64,
    /// The maximum number of hashes (steps along the chain) to verify one key. It limits the cost
    /// of a forged key. If the sender's clock skips further ahead than this, the receiver rejects
    /// the sender's keys as `TooManySteps` and does not detect messages that an attacker forges
    /// with them. Set it higher than the number of intervals that the sender may skip.
    pub steps: u32,
    /// The maximum number of hashes per interval of the receiver's clock, for all keys that are
    /// more than `d + 1` steps from the newest known key. It must be at least `steps`; otherwise
    /// the receiver can never verify the most distant keys. Keys within `d + 1` steps are always
    /// verified, so that a flood of forged keys cannot suppress a key that is due. After a longer
    /// silence, a flood can use up the budget of each interval before the genuine key arrives; the
    /// receiver then needs newer parameters. Such a flood can also prevent the receiver from
    /// noticing a key that was disclosed ahead of time.
    pub budget: u32,
    /// Secret randomness, so that an attacker cannot predict which packets are kept when too many
    /// arrive.
    pub seed: u64,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset_ms, steps, budget, seed: _ } = self;
        f.debug_struct("Settings")
            .field("offset_ms", offset_ms)
            .field("steps", steps)
            .field("budget", budget)
            .finish_non_exhaustive()
    }
}

/// The number of packets lost since the receiver was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that were dropped because more packets arrived in their interval than there are
    /// places.
    pub no_room: u64,
    /// Packets that were dropped to make room for newer intervals before their key arrived, or
    /// because their key arrived before it was due.
    pub given_up: u64,
    /// Packets whose tag did not match under the disclosed key.
    pub forged: u64,
}

/// A verified message of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered<'a> {
    /// The interval in which the message was sent.
    pub interval: u32,
    /// The message.
    pub message: &'a [u8],
}

/// A waiting packet.
#[derive(Clone, Copy)]
struct Place<const BYTES: usize> {
    /// The packet's order of arrival in its interval; `None` if the place is free.
    order: Option<u32>,
    length: u16,
    tag: [u8; TAG],
    message: [u8; BYTES],
}

impl<const BYTES: usize> Place<BYTES> {
    const FREE: Self = Self { order: None, length: 0, tag: [0; TAG], message: [0; BYTES] };

    fn message(&self) -> &[u8] {
        self.message.get(..usize::from(self.length)).unwrap_or_default()
    }
}

/// The packets of one interval.
#[derive(Clone, Copy)]
struct Row<const PLACES: usize, const BYTES: usize> {
    /// The interval; 0 if the row is free.
    interval: u32,
    /// The interval's key, after it is disclosed.
    key: Option<ChainKey>,
    /// The number of packets that arrived.
    seen: u32,
    places: [Place<BYTES>; PLACES],
}

impl<const PLACES: usize, const BYTES: usize> Row<PLACES, BYTES> {
    const FREE: Self = Self { interval: 0, key: None, seen: 0, places: [Place::FREE; PLACES] };

    fn waiting(&self) -> u64 {
        self.places.iter().map(|place| u64::from(place.order.is_some())).sum()
    }
}

/// A receiver of one chain, with `PLACES` places of `BYTES` bytes for the packets of each of `ROWS`
/// intervals. Its size is at most `ROWS * (PLACES * (BYTES + 22) + 28) + 400` bytes.
///
/// `ROWS` must be at least `d + 1 + ceil(D_t / T_int)`. When a key arrives in time, packets of
/// every interval from the key's interval to the newest interval that can have begun may be
/// waiting. Forged packets must not displace the row whose key is due. Each further row tolerates
/// one more consecutive lost disclosure without losing a message.
///
/// If the receiver's clock is ahead of the sender's (by `lead`), or a key arrives after the
/// interval in which it was disclosed (by `lateness`), more rows are needed: `d + 1 + ceil((D_t +
/// lead + lateness) / T_int)`, plus one for each lost disclosure.
#[derive(Clone)]
pub struct Receiver<const ROWS: usize, const PLACES: usize, const BYTES: usize> {
    parameters: Parameters,
    reference: ChainRef,
    functions: Functions,
    settings: Settings,
    random: u64,
    /// The interval of the receiver's clock whose budget is in use (`None` before the chain
    /// begins), and the number of hashes charged to it.
    spent: (Option<u64>, u32),
    rows: [Row<PLACES, BYTES>; ROWS],
    losses: Losses,
}

impl<const ROWS: usize, const PLACES: usize, const BYTES: usize> fmt::Debug
    for Receiver<ROWS, PLACES, BYTES>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("parameters", &self.parameters)
            .field("losses", &self.losses)
            .finish_non_exhaustive()
    }
}

impl<const ROWS: usize, const PLACES: usize, const BYTES: usize> Receiver<ROWS, PLACES, BYTES> {
    /// Creates a receiver. The parameters must be authentic.
    ///
    /// # Errors
    /// [`ReceiverError`].
    pub fn new(parameters: Parameters, settings: Settings) -> Result<Self, ReceiverError> {
        let Schedule { interval_ms, delay, .. } = parameters.schedule;
        let needed = settings
            .offset_ms
            .div_ceil(u64::from(interval_ms).max(1))
            .saturating_add(u64::from(delay) + 1);
        if usize::try_from(needed).map_or(true, |needed| ROWS < needed) {
            return Err(ReceiverError::TooFewRows);
        }
        let (reference, functions) =
            (parameters.schedule.reference(), Functions::new(&parameters.schedule));
        let (rows, losses) = ([Row::FREE; ROWS], Losses::default());
        Ok(Self {
            parameters,
            reference,
            functions,
            settings,
            random: settings.seed,
            spent: (None, 0),
            rows,
            losses,
        })
    }

    /// Returns the parameters with the newest known key. They are all that a receiver must store to
    /// continue after a restart; only the waiting packets are then lost.
    #[must_use]
    pub const fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// Returns the numbers of packets lost so far.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    /// Processes a frame of this chain with [`packet`](Self::packet) or [`key`](Self::key).
    /// `now_ms` is the time of the receiver's own clock in Unix milliseconds. After a key, call
    /// [`take`](Self::take) for the verified messages.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn receive(&mut self, now_ms: u64, frame: &TeslaFrame<'_>) -> Result<(), FrameError> {
        match *frame {
            TeslaFrame::Packet { chain, interval, message, tag } => {
                self.packet(now_ms, chain, interval, message, tag).map_err(FrameError::Packet)
            }
            TeslaFrame::Key { chain, interval, key } => {
                self.key(now_ms, chain, interval, &key).map_err(FrameError::Key)
            }
        }
    }

    /// Keeps a packet if it is safe: only the sender can have known the packet's key when the
    /// packet arrived. The packet is safe if `x < i + d`. Here `i` is the packet's interval, and
    /// `x = floor((now + D_t - T_0) / T_int)` is the highest interval in which the sender can be
    /// now.
    ///
    /// # Errors
    /// [`PacketError`]. A rejected packet changes nothing, except that `NoRoom` is counted as a
    /// loss.
    pub fn packet(
        &mut self,
        now_ms: u64,
        chain: ChainRef,
        interval: u32,
        message: &[u8],
        tag: [u8; TAG],
    ) -> Result<(), PacketError> {
        let schedule = &self.parameters.schedule;
        if chain != self.reference {
            return Err(PacketError::WrongChain);
        }
        if interval == 0 {
            return Err(PacketError::NoSuchInterval);
        }
        if interval > schedule.last {
            return Err(PacketError::BeyondEnd);
        }
        // The keys up to the newest received one are public, whatever the clock shows.
        if interval <= self.parameters.committed {
            return Err(PacketError::NotSafe);
        }
        let highest = self
            .highest(now_ms)
            .filter(|highest| u64::from(interval) <= *highest)
            .ok_or(PacketError::FutureInterval)?;
        if highest >= u64::from(interval) + u64::from(schedule.delay) {
            return Err(PacketError::NotSafe);
        }
        let length = u16::try_from(message.len())
            .ok()
            .filter(|_| message.len() <= BYTES)
            .ok_or(PacketError::MessageTooLong)?;
        let row = self.row(interval).ok_or(PacketError::NoRoom)?;
        let same = |place: &&Place<BYTES>| {
            place.order.is_some() && place.tag == tag && place.message() == message
        };
        if self.rows[row].places.iter().any(|place| same(&place)) {
            return Err(PacketError::Repeated);
        }
        let random = self.random();
        let row = &mut self.rows[row];
        let order = row.seen;
        row.seen = row.seen.saturating_add(1);
        let place = match row.places.iter_mut().find(|place| place.order.is_none()) {
            Some(free) => Some(free),
            None => {
                self.losses.no_room += 1;
                // Each packet is kept with the same probability, so a flood gains no advantage by
                // arriving first or last.
                usize::try_from(random % u64::from(row.seen))
                    .ok()
                    .and_then(|place| row.places.get_mut(place))
            }
        };
        let place = place.ok_or(PacketError::NoRoom)?;
        (place.order, place.length, place.tag) = (Some(order), length, tag);
        place.message[..message.len()].copy_from_slice(message);
        Ok(())
    }

    /// Accepts a key if hashing it repeatedly yields the newest known key. This also computes the
    /// keys in between, whose frames may have been lost.
    ///
    /// If a genuine key arrives before it is due, the receiver accepts it and returns
    /// `ClockTooFarOff`. The waiting packets of the key's interval and of earlier intervals are
    /// dropped. From then on packets of these intervals are `NotSafe`, even if the sender's clock
    /// is set back so that they seem safe by the clock.
    ///
    /// # Errors
    /// [`KeyError`]. A rejected key changes only the rest of the budget, except after
    /// `ClockTooFarOff`.
    pub fn key(
        &mut self,
        now_ms: u64,
        chain: ChainRef,
        interval: u32,
        key: &ChainKey,
    ) -> Result<(), KeyError> {
        let Parameters { schedule, committed, key: known } = self.parameters;
        if chain != self.reference {
            return Err(KeyError::WrongChain);
        }
        if interval > schedule.last {
            return Err(KeyError::BeyondEnd);
        }
        if interval <= committed {
            return Err(if interval == committed && *key == known {
                KeyError::Repeated
            } else {
                KeyError::OldKey
            });
        }
        if interval - committed > self.settings.steps {
            return Err(KeyError::TooManySteps);
        }
        self.spend(now_ms, interval - committed)?;
        // While hashing, collect the keys that belong to the rows. They are used only if the last
        // hash is the newest known key.
        let mut noted = [None::<ChainKey>; ROWS];
        let mut walked = *key;
        for at in (committed + 1..=interval).rev() {
            if let Some(row) = self.rows.iter().position(|row| row.interval == at) {
                noted[row] = Some(walked);
            }
            walked = self.functions.before(at, &walked);
        }
        if walked != known {
            return Err(KeyError::ForgedKey);
        }
        (self.parameters.committed, self.parameters.key) = (interval, *key);
        let disclosed = u64::from(interval) + u64::from(schedule.delay);
        let in_time = self.highest(now_ms).is_some_and(|highest| highest >= disclosed);
        for (row, key) in self.rows.iter_mut().zip(noted) {
            if key.is_some() && !in_time {
                self.losses.given_up += row.waiting();
                *row = Row::FREE;
            } else if key.is_some() {
                row.key = key;
            }
        }
        if in_time { Ok(()) } else { Err(KeyError::ClockTooFarOff) }
    }

    /// Returns the next verified message. Messages are ordered by interval and then by arrival, and
    /// each is returned once. Read all messages after each key: unread ones are dropped when their
    /// row is needed for a newer interval.
    pub fn take(&mut self) -> Option<Delivered<'_>> {
        let (row, place) = loop {
            let proven = self
                .rows
                .iter()
                .enumerate()
                .filter_map(|(at, row)| Some((row.interval, at, row.key?)));
            let (interval, row, key) = proven.min()?;
            let places = self.rows[row].places.iter().enumerate();
            let Some((_, place)) = places.filter_map(|(at, place)| Some((place.order?, at))).min()
            else {
                self.rows[row] = Row::FREE;
                continue;
            };
            let found = &mut self.rows[row].places[place];
            found.order = None;
            if self.functions.tag(interval, &key, found.message()) == found.tag {
                break (row, place);
            }
            self.losses.forged += 1;
        };
        let row = &self.rows[row];
        Some(Delivered { interval: row.interval, message: row.places[place].message() })
    }

    /// Returns the highest interval in which the sender can be at `now_ms`; `None` if the chain
    /// cannot have begun.
    fn highest(&self, now_ms: u64) -> Option<u64> {
        self.parameters.schedule.interval_at(now_ms.saturating_add(self.settings.offset_ms))
    }

    /// Charges `steps` hashes to the budget. At most `d + 1` steps are free of charge: a key that
    /// is due needs no more, even after `d` lost disclosures.
    fn spend(&mut self, now_ms: u64, steps: u32) -> Result<(), KeyError> {
        if steps <= u32::from(self.parameters.schedule.delay) + 1 {
            return Ok(());
        }
        let now = self.highest(now_ms);
        if self.spent.0 != now {
            self.spent = (now, 0);
        }
        let spent = self.spent.1.saturating_add(steps);
        if spent > self.settings.budget {
            return Err(KeyError::BudgetSpent);
        }
        self.spent.1 = spent;
        Ok(())
    }

    /// Returns the row for the packets of an interval: the row that the interval already has, a
    /// free row, or the row of the oldest interval, whose packets are dropped.
    fn row(&mut self, interval: u32) -> Option<usize> {
        if let Some(row) = self.rows.iter().position(|row| row.interval == interval) {
            return Some(row);
        }
        // A free row has interval 0, so it is chosen first.
        let (oldest, row) = self.rows.iter_mut().enumerate().min_by_key(|(_, row)| row.interval)?;
        if row.interval > interval {
            // All rows have later intervals. This happens only if the clock was set back.
            self.losses.no_room += 1;
            return None;
        }
        self.losses.given_up += row.waiting();
        *row = Row { interval, ..Row::FREE };
        Some(oldest)
    }

    /// Returns the next number of `SplitMix64` (Steele, Lea and Flood 2014). This generator is not
    /// cryptographic, but its seed is secret and its output never leaves the receiver.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

named_errors! {
    /// Why a frame was rejected.
    FrameError {
        /// A packet was rejected.
        Packet(error: PacketError) => forward,
        /// A key was rejected.
        Key(error: KeyError) => forward,
    }
}
