//! The receiver: keeps what came in time, checks keys before it uses them, and hands out what their tags prove.
//!
//! RFC 4082, section 3.5, in its order: the packet is safe, the key is new, the key leads to the one known before, the tag is right. Until a
//! key is out nobody can tell a forged packet from a genuine one, so the places for packets are few, are shared by chance, and never grow.

use core::fmt;
use moteseal_core::named_errors;

use crate::ChainRef;
use crate::tesla::wire::TeslaFrame;
use crate::tesla::{ChainKey, Functions, Parameters, Schedule, TAG};

named_errors! {
    /// Why a packet is not kept.
    PacketError {
        /// A frame of another chain.
        WrongChain => "the frame is of another chain",
        /// Interval 0, which has no messages.
        NoSuchInterval => "interval 0 has no messages",
        /// An interval after the chain's last.
        BeyondEnd => "the interval is after the last one of the chain",
        /// The sender cannot be there yet, even with its clock ahead by all that is allowed.
        FutureInterval => "the interval has not begun, whatever the clock offset",
        /// The key may be out already: by the clock, or because it was heard.
        NotSafe => "the key of the interval may be known to others already",
        /// Longer than this receiver's places.
        MessageTooLong => "the message is longer than this receiver keeps",
        /// The same packet is kept already.
        Repeated => "the packet is there already",
        /// More packets than places; which stay is decided by chance.
        NoRoom => "more packets came in the interval than there are places for",
    }
}

named_errors! {
    /// Why a key is not taken.
    KeyError {
        /// A frame of another chain.
        WrongChain => "the frame is of another chain",
        /// An interval after the chain's last.
        BeyondEnd => "the interval is after the last one of the chain",
        /// The newest key that is known, again.
        Repeated => "the key is known",
        /// A key of an interval before that of the newest known one.
        OldKey => "a newer key is known",
        /// Further from the newest known key than this receiver computes at once: if it is due, newer parameters are needed. Genuine or not
        /// cannot be said, so that a leak so far ahead is not noticed.
        TooManySteps => "the key is too far from the newest known one; newer parameters are needed",
        /// Keys have cost this interval's budget of steps already. Nothing was computed; a later interval has a new budget.
        BudgetSpent => "this interval's budget of steps along the chain is spent",
        /// It does not lead to the newest known key.
        ForgedKey => "the key is not one of this chain",
        /// A genuine key before its time: the sender's clock is further ahead than was stated. What waited for it was dropped, for others may
        /// have had it.
        ClockTooFarOff => "a genuine key came before its time: the clocks are further apart than stated; set the clock",
    }
}

named_errors! {
    /// Why there can be no such receiver.
    ReceiverError {
        /// Fewer rows than intervals whose packets can wait at one time, from the one whose key is coming to the newest that is safe.
        TooFewRows => "the receiver needs rows for the disclosure delay, one interval more, and those that the clock offset takes",
    }
}

/// How a receiver judges. Printed without its secret.
#[derive(Clone, Copy)]
pub struct Settings {
    /// The most by which the sender's clock may be ahead of the receiver's, in milliseconds: `D_t` of RFC 4082.
    pub offset_ms: u64,
    /// The most steps along the chain for one key, so that a forged one costs no more. If the sender's clock leaps further ahead than this, the
    /// keys that it then tells everybody are `TooManySteps` here, and what others forge with them is not: let it be more than the sender leaps.
    pub steps: u32,
    /// The most steps in one interval, of the receiver's clock, for keys that are further than `d + 1` steps from the newest known one; not below
    /// `steps`, or such keys are never looked at. Nearer ones always are, for no flood may keep a key out that comes when it is due: each costs as
    /// little as its frame. After a longer silence a flood of forged keys can spend each budget before the genuine key comes; then newer
    /// parameters are needed. The same flood can hide a leak from further ahead.
    pub budget: u32,
    /// Secret randomness, so that nobody knows which packets will stay of too many.
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

/// What was lost, since the receiver was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that there was no place for.
    pub no_room: u64,
    /// Packets that were given up for newer intervals before a key came, or because their key came too early.
    pub given_up: u64,
    /// Packets whose tag was wrong once the key was out.
    pub forged: u64,
}

/// What the sender said: its key has proven it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivered<'a> {
    /// The interval in which it was said.
    pub interval: u32,
    /// The message.
    pub message: &'a [u8],
}

/// A packet that waits.
#[derive(Clone, Copy)]
struct Place<const BYTES: usize> {
    /// In which order it came among those of its interval; `None` if the place is free.
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
    /// 0 if the row is free.
    interval: u32,
    /// The interval's key, once it is known.
    key: Option<ChainKey>,
    /// Packets that came.
    seen: u32,
    places: [Place<BYTES>; PLACES],
}

impl<const PLACES: usize, const BYTES: usize> Row<PLACES, BYTES> {
    const FREE: Self = Self { interval: 0, key: None, seen: 0, places: [Place::FREE; PLACES] };

    fn waiting(&self) -> u64 {
        self.places.iter().map(|place| u64::from(place.order.is_some())).sum()
    }
}

/// A receiver of one chain, with `PLACES` places of `BYTES` bytes for packets of each of `ROWS` intervals: at most
/// `ROWS * (PLACES * (BYTES + 22) + 28) + 400` bytes.
///
/// Of `ROWS`, `d + 1 + ceil(D_t / T_int)` must be there: when a key comes in time, packets wait from its interval up to the newest that can have
/// begun, and what is forged must not take the row of the one whose key is coming. Each row more is for one disclosure that is missed: so many
/// in a row may be lost without losing a message. If the receiver's clock is ahead, or a key is heard after the interval in which it was told,
/// the lead and the lateness count as the offset does: `d + 1 + ceil((D_t + lead + lateness) / T_int)` rows, and one for each missed disclosure.
#[derive(Clone)]
pub struct Receiver<const ROWS: usize, const PLACES: usize, const BYTES: usize> {
    parameters: Parameters,
    reference: ChainRef,
    functions: Functions,
    settings: Settings,
    random: u64,
    /// The interval by the clock in which steps were counted, and how many; `None` before the chain begins.
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
    /// A receiver that knows authentic parameters.
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

    /// The parameters with the newest known key: all that must be kept for a receiver that starts again. Packets that wait are lost with its
    /// memory.
    #[must_use]
    pub const fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// What was lost so far.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    /// Hears a frame of this chain, at a time of the receiver's own clock in Unix milliseconds; see [`packet`](Self::packet) and
    /// [`key`](Self::key). After a key, [`take`](Self::take) gives what it proved.
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

    /// Keeps a packet, if no one but the sender can have known its key when it came: if `x < i + d`, where `i` is its interval and `x` the
    /// highest in which the sender can be now, `floor((now + D_t - T_0) / T_int)`.
    ///
    /// # Errors
    /// [`PacketError`]. Nothing has changed, except that after `NoRoom` it was counted.
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
        // A key that was heard is out, whatever the clock says.
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
                // Each of the packets that came stays with the same chance, so that no flood gets its way by being first or last.
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

    /// Takes a key, if it leads to the newest known one. The keys between, which may have been lost, follow from it.
    ///
    /// So it does with a genuine key before its time, for what is out stays out: what waits for keys up to it is given up, and packets of these
    /// intervals are `NotSafe` from then on, even if the sender's clock is set back and they look safe by the time.
    ///
    /// # Errors
    /// [`KeyError`]. But for `ClockTooFarOff`, nothing has changed but what is left of the budget.
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
        // The keys of the rows are noted on the way, and believed at its end.
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
        let told = u64::from(interval) + u64::from(schedule.delay);
        let in_time = self.highest(now_ms).is_some_and(|highest| highest >= told);
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

    /// The next message that a known key proves, by interval and then in the order in which they came; each once. Take all of them after each
    /// key: where room is short, what was not taken is given up.
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

    /// The highest interval in which the sender can be: `None` if it cannot have begun.
    fn highest(&self, now_ms: u64) -> Option<u64> {
        self.parameters.schedule.interval_at(now_ms.saturating_add(self.settings.offset_ms))
    }

    /// Pays for steps, if they are more than a key that is due takes even if `d` disclosures before it were lost.
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

    /// The row of an interval, a free one, or the one of the oldest interval, which has waited longest for a key.
    fn row(&mut self, interval: u32) -> Option<usize> {
        if let Some(row) = self.rows.iter().position(|row| row.interval == interval) {
            return Some(row);
        }
        // A free row has the interval 0.
        let (oldest, row) = self.rows.iter_mut().enumerate().min_by_key(|(_, row)| row.interval)?;
        if row.interval > interval {
            // Only if the clock was set back.
            self.losses.no_room += 1;
            return None;
        }
        self.losses.given_up += row.waiting();
        *row = Row { interval, ..Row::FREE };
        Some(oldest)
    }

    /// `SplitMix64` (Steele, Lea and Flood 2014): its seed is secret and its numbers are never seen.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// Why a frame was of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Of a packet.
    Packet(PacketError),
    /// Of a key.
    Key(KeyError),
}

impl FrameError {
    /// The error's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet(error) => error.name(),
            Self::Key(error) => error.name(),
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet(error) => error.fmt(f),
            Self::Key(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for FrameError {}
