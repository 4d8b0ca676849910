//! A link within one process: for a gateway's own devices, and for tests and simulations, in which it
//! loses, delays, repeats and reorders frames as configured. A seed makes its faults reproducible.
//!
//! The faults of a device's n-th frame in a direction depend only on the seed, the device, the
//! direction and n. They do not depend on how tasks are scheduled. Delays use tokio's clock. If
//! that clock is paused and the runtime has one thread, every execution is identical.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::fair::Fair;
use crate::link::{ChildLink, Down, LinkError, ParentLink, State, Up, check_length};

/// The maximum number of frames of one device that are in transit in one direction. At the limit, a
/// device must wait before it sends, and a frame from the parent is lost.
const ROOM: usize = 1024;
/// The maximum total size of the frames that wait at the parent, in bytes.
const PARENT_BYTES: usize = 64 << 20;

/// The faults of a network. Probabilities are from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The probability that a frame is lost.
    pub loss: f64,
    /// The probability that a frame that is not lost arrives twice.
    pub duplication: f64,
    /// The probability that a frame overtakes all frames of the same device and direction that are
    /// in transit.
    pub reordering: f64,
    /// The shortest and the longest transit time. Transit times are uniformly distributed between
    /// them.
    pub delay: (Duration, Duration),
}

/// A network of links that share a parent. A clone refers to the same network.
#[derive(Clone)]
pub struct Network {
    inner: Arc<Inner>,
}

struct Inner {
    seed: u64,
    ways: Mutex<Ways>,
    /// Notified when a frame for the parent has arrived.
    for_parent: Notify,
    /// Notified when a device has room to send.
    room: Notify,
    state: watch::Sender<State>,
}

struct Ways {
    faults: Faults,
    devices: HashMap<[u8; 8], Device>,
    up: Way<([u8; 8], Bytes)>,
    at_parent: Fair,
    retained: Option<Bytes>,
    is_cut: bool,
}

struct Device {
    down: Way<Down>,
    arrived: Arc<Notify>,
    up_chance: Chance,
    down_chance: Chance,
    /// The number of frames in transit to the parent, without the frames that wait at the parent.
    rising: usize,
}

/// Frames in transit, ordered by the time of their arrival and then by the order in which they were
/// sent.
struct Way<T> {
    frames: BTreeMap<(Instant, i64), T>,
    sent: i64,
}

impl<T> Way<T> {
    const fn new() -> Self {
        Self { frames: BTreeMap::new(), sent: 0 }
    }

    fn take_due(&mut self, now: Instant) -> Option<T> {
        let entry = self.frames.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    fn next_due(&self) -> Option<Instant> {
        self.frames.first_key_value().map(|((due, _), _)| *due)
    }

    /// Puts a frame in transit, subject to the faults. Returns the number of copies that will
    /// arrive.
    fn add(&mut self, chance: &mut Chance, faults: &Faults, frame: &T) -> usize
    where
        T: Clone,
    {
        // Draw the same number of random values for every frame, so that a fault does not affect
        // the random values of later frames.
        let (lost, twice) = (chance.hits(faults.loss), chance.hits(faults.duplication));
        let mut copies = 0;
        for copy in [true, twice] {
            let (overtakes, delay) = (chance.hits(faults.reordering), chance.between(faults.delay));
            if copy && !lost {
                self.sent += 1;
                let now = Instant::now();
                let key = if overtakes { (now, -self.sent) } else { (now + delay, self.sent) };
                self.frames.insert(key, frame.clone());
                copies += 1;
            }
        }
        copies
    }
}

/// A generator of pseudo-random numbers (SplitMix64), the same on every machine.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64, device: [u8; 8], direction: u64) -> Self {
        let mut chance = Self(seed);
        chance.0 = chance.next() ^ u64::from_be_bytes(device);
        chance.0 = chance.next() ^ direction;
        chance
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number in 0..1.
    fn fraction(&mut self) -> f64 {
        f64::from((self.next() >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
    }

    pub(crate) fn hits(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    fn between(&mut self, (least, most): (Duration, Duration)) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.fraction())
    }
}

impl Network {
    /// Creates a network whose faults are determined by `seed`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        let (devices, up, at_parent) = (HashMap::new(), Way::new(), Fair::new(PARENT_BYTES));
        let ways =
            Mutex::new(Ways { faults, devices, up, at_parent, retained: None, is_cut: false });
        let (for_parent, room, state) =
            (Notify::new(), Notify::new(), watch::Sender::new(State::Up));
        Self { inner: Arc::new(Inner { seed, ways, for_parent, room, state }) }
    }

    /// Changes the faults of the frames that are sent from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.inner.ways().faults = faults;
    }

    /// Cuts the network or restores it. Frames that are sent while the network is cut are lost, but
    /// frames in transit still arrive. The newest announcement arrives when the network is
    /// restored.
    pub fn cut(&self, is_cut: bool) {
        let mut ways = self.inner.ways();
        if ways.is_cut && !is_cut {
            let retained = ways.retained.clone();
            ways.devices.values_mut().for_each(|device| device.deliver_retained(retained.as_ref()));
        }
        ways.is_cut = is_cut;
        let cause = LinkError::Unreachable {
            url: "memory".to_owned(),
            cause: "the network is cut".to_owned(),
        };
        self.inner.state.send_replace(if is_cut {
            State::Down { cause, again_in: Duration::ZERO }
        } else {
            State::Up
        });
    }

    /// Returns the parent's end. If an earlier end of the parent was dropped, this end receives the
    /// frames that the earlier end did not receive.
    #[must_use]
    pub fn parent(&self) -> MemoryParent {
        MemoryParent { inner: self.inner.clone() }
    }

    /// Returns a device's end. If the device had an earlier end, the frames in transit to it are
    /// lost, as they are when a device restarts.
    #[must_use]
    pub fn child(&self, device: [u8; 8]) -> MemoryChild {
        let mut ways = self.inner.ways();
        let retained = ways.retained.clone();
        let seed = self.inner.seed;
        let chance = |direction| Chance::new(seed, device, direction);
        let end = ways.devices.entry(device).or_insert_with(|| Device {
            down: Way::new(),
            arrived: Arc::new(Notify::new()),
            up_chance: chance(0),
            down_chance: chance(1),
            rising: 0,
        });
        end.down.frames.clear();
        end.deliver_retained(retained.as_ref());
        MemoryChild { inner: self.inner.clone(), device, arrived: end.arrived.clone() }
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("seed", &self.inner.seed).finish_non_exhaustive()
    }
}

impl Inner {
    fn ways(&self) -> MutexGuard<'_, Ways> {
        self.ways.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device {
    fn deliver_retained(&mut self, retained: Option<&Bytes>) {
        if let Some(announcement) = retained {
            let down = Down::Announcement(announcement.clone());
            self.down.add(&mut Chance(0), &Faults::default(), &down);
            self.arrived.notify_one();
        }
    }

    fn send_down(&mut self, faults: &Faults, down: &Down) {
        if self.down.frames.len() < ROOM {
            self.down.add(&mut self.down_chance, faults, down);
            self.arrived.notify_one();
        }
    }
}

impl Ways {
    /// Puts a frame of a device in transit. Returns false if there is no room.
    fn send_up(&mut self, device: [u8; 8], frame: &Bytes) -> bool {
        let waiting = self.at_parent.waiting(device);
        let Some(end) = self.devices.get_mut(&device) else { return true };
        if end.rising + waiting >= ROOM {
            return false;
        }
        if !self.is_cut {
            end.rising += self.up.add(&mut end.up_chance, &self.faults, &(device, frame.clone()));
        }
        true
    }

    /// Returns the next frame at the parent, or the time when the next frame arrives.
    fn take_up(&mut self, excluded: Option<[u8; 8]>) -> Result<Up, Option<Instant>> {
        let now = Instant::now();
        while let Some((device, frame)) = self.up.take_due(now) {
            if let Some(end) = self.devices.get_mut(&device) {
                end.rising -= 1;
            }
            self.at_parent.push(Up::new(device, frame));
        }
        self.at_parent.pop(excluded).ok_or_else(|| self.up.next_due())
    }

    /// Returns the next message for a device, or the time when the next message arrives.
    fn take_down(&mut self, device: [u8; 8]) -> Result<Down, Option<Instant>> {
        let Some(end) = self.devices.get_mut(&device) else { return Err(None) };
        end.down.take_due(Instant::now()).ok_or_else(|| end.down.next_due())
    }
}

/// Waits for a notification or a point in time.
async fn wait(notified: impl Future<Output = ()>, due: Option<Instant>) {
    match due {
        Some(due) => {
            tokio::select! { () = notified => {}, () = tokio::time::sleep_until(due) => {} }
        }
        None => notified.await,
    }
}

/// A device's end of a [`Network`].
pub struct MemoryChild {
    inner: Arc<Inner>,
    device: [u8; 8],
    arrived: Arc<Notify>,
}

impl std::fmt::Debug for MemoryChild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryChild").field("device", &self.device).finish_non_exhaustive()
    }
}

impl ChildLink for MemoryChild {
    async fn send(&self, frame: Bytes) -> Result<(), LinkError> {
        check_length(&frame)?;
        loop {
            let mut room = std::pin::pin!(self.inner.room.notified());
            room.as_mut().enable();
            if self.inner.ways().send_up(self.device, &frame) {
                self.inner.for_parent.notify_one();
                return Ok(());
            }
            room.await;
        }
    }

    async fn receive(&mut self) -> Result<Down, LinkError> {
        loop {
            let due = match self.inner.ways().take_down(self.device) {
                Ok(down) => return Ok(down),
                Err(due) => due,
            };
            wait(self.arrived.notified(), due).await;
        }
    }

    fn state(&self) -> watch::Receiver<State> {
        self.inner.state.subscribe()
    }
}

/// The parent's end of a [`Network`].
pub struct MemoryParent {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for MemoryParent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryParent").finish_non_exhaustive()
    }
}

impl ParentLink for MemoryParent {
    async fn receive_but(&self, device: Option<[u8; 8]>) -> Result<Up, LinkError> {
        loop {
            let due = match self.inner.ways().take_up(device) {
                Ok(up) => {
                    self.inner.room.notify_waiters();
                    return Ok(up);
                }
                Err(due) => due,
            };
            wait(self.inner.for_parent.notified(), due).await;
        }
    }

    async fn send(&self, device: [u8; 8], frame: Bytes) -> Result<(), LinkError> {
        check_length(&frame)?;
        let mut ways = self.inner.ways();
        let faults = ways.faults;
        if !ways.is_cut
            && let Some(end) = ways.devices.get_mut(&device)
        {
            end.send_down(&faults, &Down::Frame(frame));
        }
        Ok(())
    }

    async fn announce(&self, announcement: Bytes) -> Result<(), LinkError> {
        check_length(&announcement)?;
        let mut ways = self.inner.ways();
        ways.retained = Some(announcement.clone());
        let (faults, down) = (ways.faults, Down::Announcement(announcement));
        if !ways.is_cut {
            ways.devices.values_mut().for_each(|end| end.send_down(&faults, &down));
        }
        Ok(())
    }

    fn state(&self) -> watch::Receiver<State> {
        self.inner.state.subscribe()
    }

    fn dropped(&self) -> u64 {
        self.inner.ways().at_parent.dropped()
    }
}
